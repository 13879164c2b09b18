package dict

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/balekv/bale/frame"
)

// TestFolder: programs of a host that start together fetch a dictionary once. Later ones read it
// without the registry, and put it back if that has lost it.
func TestFolder(t *testing.T) {
	m := newMemory()
	r := newRegistry(t, m, 0)
	d := dictionaryOf(t, 1)
	must(t, r.put(t.Context(), d)) // of no group
	folder := filepath.Join(t.TempDir(), "made", "by it")
	var work sync.WaitGroup
	for range 20 {
		g := open(t, r, GroupOptions{Folder: folder, FetchTimeout: 20 * time.Second})
		work.Go(func() {
			if _, err := g.Reader(t.Context(), frame.Zstd, d.ID()); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	key := r.dataKey(d.ID())
	if n := m.count(m.gets, key); n != 1 {
		t.Errorf("it was fetched %d times", n)
	}
	entries, err := os.ReadDir(folder)
	must(t, err)
	path := filepath.Join(folder, d.ID().String()+Extension)
	info, err := os.Stat(path)
	must(t, err)
	if len(entries) != 1 || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", entries, info)
	}

	empty := newRegistry(t, newMemory(), 0)
	g := open(t, empty, GroupOptions{Folder: folder, Poll: 10 * time.Millisecond})
	if _, err := g.Reader(t.Context(), frame.Zstd, d.ID()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is put back", func() bool {
		_, err := empty.Look(context.Background(), d.ID())
		return err == nil
	})
}

// TestFolderOfWriter: a program that starts puts the current dictionary back that its registry has
// lost, and writes with it, without a reader's asking.
func TestFolderOfWriter(t *testing.T) {
	m := newMemory()
	r := newRegistry(t, m, 0)
	d := dictionaryOf(t, 1)
	must(t, r.Publish(t.Context(), "g", d, Info{}))
	must(t, r.Activate(t.Context(), "g", d.ID(), true))
	f, err := openFolder(t.TempDir() + "/f")
	must(t, err)
	f.write(d)
	m.set(r.dataKey(d.ID()), nil)
	g := open(t, r, GroupOptions{Folder: string(f)})
	eventually(t, "it is written with", writes(g, d.ID()))
	if _, err := r.Look(t.Context(), d.ID()); err != nil {
		t.Error(err)
	}
}

// TestFolderInTrouble: what is damaged is fetched and written again, and a program that was killed
// while it fetched holds up others for a moment only. A folder that others can read is refused.
func TestFolderInTrouble(t *testing.T) {
	m := newMemory()
	r := newRegistry(t, m, 0)
	f, err := openFolder(t.TempDir() + "/f")
	must(t, err)
	for i, trouble := range []func(path string) error{
		func(path string) error { return os.WriteFile(path, []byte("damaged"), 0o600) },
		func(path string) error { return os.WriteFile(path, dictionaryOf(t, 99).Bytes(), 0o600) },
		func(path string) error { return os.Mkdir(path, 0o700) },
		func(path string) error { return os.WriteFile(path+lockSuffix, nil, 0o600) },
		func(path string) error {
			long := time.Now().Add(-time.Hour)
			return errors.Join(os.WriteFile(path+lockSuffix, nil, 0o600), os.Chtimes(path+lockSuffix, long, long))
		},
	} {
		d := dictionaryOf(t, i)
		must(t, r.put(t.Context(), d))
		must(t, trouble(f.path(d.ID())))
		g := open(t, r, GroupOptions{Folder: string(f), FetchTimeout: 200 * time.Millisecond})
		if _, err := g.Reader(t.Context(), frame.Zstd, d.ID()); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		if kept := f.read(d.ID()); i != 2 && (kept == nil || !bytes.Equal(kept.Bytes(), d.Bytes())) {
			t.Errorf("%d: it is not kept", i)
		}
		if _, err := os.Stat(f.path(d.ID()) + lockSuffix); err == nil {
			t.Errorf("%d: its lock stays", i)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	must(t, os.Chmod(string(f), 0o750))
	if _, err := r.Open(t.Context(), "g", GroupOptions{Folder: string(f)}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	file := f.path(dictionaryOf(t, 1).ID())
	if _, err := r.Open(t.Context(), "g", GroupOptions{Folder: file}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// TestFolderIsBounded: the dictionaries used longest ago go.
func TestFolderIsBounded(t *testing.T) {
	f, err := openFolder(t.TempDir() + "/f[1]") // no pattern
	must(t, err)
	var all []*Dictionary
	noise := rand.NewChaCha8([32]byte{})
	for size := 0; size < maxFolder; size += frame.MaxDictionarySize {
		b := make([]byte, frame.MaxDictionarySize)
		noise.Read(b)
		d, err := frame.NewDictionary(b)
		must(t, err)
		f.write(d)
		used := time.Now().Add(time.Duration(len(all)-100) * time.Hour)
		must(t, os.Chtimes(f.path(d.ID()), used, used))
		if all = append(all, d); f.read(all[0].ID()) == nil { // which counts as use
			t.Fatal("it has gone")
		}
	}
	small, left := dictionaryOf(t, 1), filepath.Join(string(f), "1"+newSuffix)
	long := time.Now().Add(-2 * usedApart)
	must(t, errors.Join(os.WriteFile(left, nil, 0o600), os.Chtimes(left, long, long)))
	f.write(small)
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a killed program left stays: %v", err)
	}
	for i, d := range append(all, small) {
		if there := f.read(d.ID()) != nil; there != (i != 1) {
			t.Errorf("%d of %d: %v", i, len(all), there)
		}
	}
}
