package dict

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/balekv/bale/frame"
)

const (
	maxFolder   = 64 << 20 // bytes of dictionaries in a folder; those used longest ago go
	usedApart   = time.Hour
	folderRetry = 5 * time.Millisecond
	lockSuffix  = ".fetching"
	newSuffix   = ".new"
)

// folder keeps dictionaries for the programs of a host: a file for each, named by its id. It is an
// aid alone: whatever fails there, the registry is asked.
type folder string

// openFolder makes the folder, if it is missing, for nobody else.
func openFolder(path string) (folder, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", fmt.Errorf("dict: %w: Folder: %w", ErrInvalid, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("dict: %w: Folder: %w", ErrInvalid, err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return "", fmt.Errorf("dict: %w: Folder %s has mode %o, must be 0700: dictionaries are pieces of values",
			ErrInvalid, path, mode)
	}
	return folder(path), nil
}

func (f folder) path(id frame.DictionaryID) string {
	return filepath.Join(string(f), id.String()+Extension)
}

// read returns a dictionary, or nil.
func (f folder) read(id frame.DictionaryID) *Dictionary {
	if f == "" {
		return nil
	}
	name := filepath.Base(f.path(id))
	b, err := readFile(os.DirFS(string(f)), name, frame.MaxDictionarySize+1)
	if err != nil {
		return nil
	}
	d, err := parse(id, name, b)
	if err != nil { // damaged: it is fetched, and written again
		return nil
	}
	if info, err := os.Stat(f.path(id)); err == nil && time.Since(info.ModTime()) > usedApart {
		now := time.Now()
		_ = os.Chtimes(f.path(id), now, now)
	}
	return d
}

// fetch returns a dictionary of the folder, or else the one that get returns, which it keeps. From
// is empty for the latter. While another program of the host gets it, fetch waits, but no longer
// than most.
func (f folder) fetch(
	ctx context.Context, id frame.DictionaryID, most time.Duration, get func() (*Dictionary, error),
) (d *Dictionary, from string, err error) {
	const kept = "folder"
	if f == "" {
		d, err = get()
		return d, "", err
	}
	if d := f.read(id); d != nil {
		return d, kept, nil
	}
	lock := f.path(id) + lockSuffix
	for wait := most; ctx.Err() == nil; wait -= folderRetry {
		file, err := os.OpenFile(lock, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			_ = file.Close()
			defer os.Remove(lock)
			break
		}
		info, gone := os.Stat(lock)
		if wait <= 0 || !errors.Is(err, fs.ErrExist) || gone == nil && time.Since(info.ModTime()) > most {
			_ = os.Remove(lock) // its program was killed
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(folderRetry):
		}
	}
	if d := f.read(id); d != nil {
		return d, kept, nil
	}
	if d, err = get(); err == nil {
		f.write(d)
	}
	return d, "", err
}

// write keeps a dictionary, whole or not at all.
func (f folder) write(d *Dictionary) {
	file, err := os.CreateTemp(string(f), "*"+newSuffix) // 0600
	if err != nil {
		return
	}
	_, err = file.Write(d.Bytes())
	if err = cmp.Or(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), f.path(d.ID()))
	}
	if err != nil {
		_ = os.Remove(file.Name())
		return
	}
	f.prune()
}

// prune removes the dictionaries used longest ago, beyond maxFolder, and what killed programs left.
func (f folder) prune() {
	entries, _ := os.ReadDir(string(f))
	var all []fs.FileInfo
	size := int64(0)
	for _, e := range entries {
		info, err := e.Info()
		switch suffix := filepath.Ext(e.Name()); {
		case err != nil:
		case suffix == Extension:
			all, size = append(all, info), size+info.Size()
		case (suffix == newSuffix || suffix == lockSuffix) && time.Since(info.ModTime()) > usedApart:
			_ = os.Remove(filepath.Join(string(f), e.Name()))
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range all {
		if size <= maxFolder {
			return
		}
		if os.Remove(filepath.Join(string(f), info.Name())) == nil {
			size -= info.Size()
		}
	}
}
