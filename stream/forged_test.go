package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/balekv/bale"
)

// generation is a text of the right length and letters.
func generation(start string) string {
	return start + strings.Repeat("A", generationSize-len(start))
}

// counted is a memory that counts its commands.
func counted() (*memory, *atomic.Int64) {
	m, commands := newMemory(), new(atomic.Int64)
	m.before = func(string, string) error { commands.Add(1); return nil }
	return m, commands
}

// mostCommands is far more than a short value needs, and far less than a forged number asks for.
const mostCommands = 2000

// TestKeyOfAJournal: a stream in the key of another one's journal would end the other's writes.
func TestKeyOfAJournal(t *testing.T) {
	m := newMemory()
	s := newStreams(t, m, Options{})
	put := func(key string) error {
		_, err := s.PutReader(t.Context(), key, strings.NewReader("x"), bale.Expiry{})
		return err
	}
	if err := put("file:ada"); err != nil {
		t.Fatal(err)
	}
	if err := put("file:ada:bale:journal"); !errors.Is(err, bale.ErrInvalid) {
		t.Errorf("the journal's key: %v", err)
	}
	if err := put("file:ada"); err != nil {
		t.Errorf("again: %v", err)
	}
	if is, err := s.Delete(t.Context(), "file:ada"); !is || err != nil {
		t.Errorf("Delete: %v, %v", is, err)
	}
}

// TestForgedManifest: what bale cannot have written is corrupt, and nothing is done on its word.
func TestForgedManifest(t *testing.T) {
	good := Info{Size: 100_000_000, Stored: 3*minChunk - 1000, Chunks: 3}
	if _, err := ParseManifest((&Manifest{good, generation("X")}).append(nil)); err != nil {
		t.Fatal(err)
	}
	for name, forged := range map[string]Manifest{
		"a key of somebody":       {good, "prices"},
		"no generation":           {good, ""},
		"of other letters":        {good, strings.Repeat("a", generationSize)},
		"with a colon":            {good, generation("A:1")},
		"too long":                {good, generation("X") + "A"},
		"most chunks":             {Info{math.MaxInt32, math.MaxInt32, math.MaxInt32}, generation("X")},
		"most of everything":      {Info{math.MaxInt64, math.MaxInt64, math.MaxInt32}, generation("X")},
		"too many for their size": {Info{good.Size, good.Stored, 4}, generation("X")},
		"too few for their size":  {Info{1 << 30, maxChunk + 100, 1}, generation("X")},
		"beyond the largest":      {Info{1 << 50, 1 << 50, maxChunks + 1}, generation("X")},
		"larger than the value":   {Info{1000, 3 * minChunk, 3}, generation("X")},
		"too small for the value": {Info{1 << 40, 1000, 1}, generation("X")},
		"nothing in many":         {Info{0, 0, 5}, generation("X")},
		"something in none":       {Info{5, 5, 0}, generation("X")},
	} {
		m, commands := counted()
		s := newStreams(t, m, Options{})
		m.values["v"] = forged.append(nil)
		m.values["v:prices:0"] = []byte("12.50")
		m.values[forged.ChunkKey("v", 0)] = []byte("somebody's")
		for do, err := range map[string]error{
			"parse":  second(ParseManifest(m.values["v"])),
			"get":    second(s.GetReader(t.Context(), "v")),
			"stat":   second(s.Stat(t.Context(), "v")),
			"put":    second(s.PutReader(t.Context(), "v", strings.NewReader("x"), bale.Expiry{})),
			"delete": second(s.Delete(t.Context(), "v")),
			"repair": second(s.Repair(t.Context(), "v")),
		} {
			if !errors.Is(err, bale.ErrCorrupt) {
				t.Errorf("%s, %s: %v", name, do, err)
			}
		}
		if len(m.ends) > 0 || string(m.values["v:prices:0"]) != "12.50" {
			t.Errorf("%s: another key was touched: %v", name, m.ends)
		}
		if n := commands.Load(); n > mostCommands {
			t.Errorf("%s: %d commands", name, n)
		}
	}
}

// TestForgedJournal is TestForgedManifest for the other list of chunks.
func TestForgedJournal(t *testing.T) {
	good := entry{id: generation("A"), chunks: 2, old: generation("B"), oldChunks: 3}
	for name, forge := range map[string]func(e entry) journal{
		"a key of somebody":          func(e entry) journal { e.id = "prices"; return journal{e} },
		"another one":                func(e entry) journal { e.old = "prices"; return journal{e} },
		"most chunks":                func(e entry) journal { e.chunks = math.MaxInt32; return journal{e} },
		"most old chunks":            func(e entry) journal { e.oldChunks = maxChunks + 1; return journal{e} },
		"old chunks of no old value": func(e entry) journal { e.old = ""; return journal{e} },
		"one entry twice":            func(e entry) journal { return journal{e, e} },
		"many entries": func(e entry) (j journal) {
			for range maxEntries + 1 {
				j = append(j, e)
			}
			return j
		},
	} {
		m, commands := counted()
		s := newStreams(t, m, Options{})
		m.values["v"+journalSuffix] = forge(good).stored()
		for _, key := range []string{"v:prices:0", "v:bale:prices:0"} {
			m.values[key] = []byte("12.50")
		}
		for do, err := range map[string]error{
			"put":    second(s.PutReader(t.Context(), "v", strings.NewReader("x"), bale.Expiry{})),
			"delete": second(s.Delete(t.Context(), "v")),
			"repair": second(s.Repair(t.Context(), "v")),
		} {
			if !errors.Is(err, bale.ErrCorrupt) {
				t.Errorf("%s, %s: %v", name, do, err)
			}
		}
		for key := range m.ends {
			if strings.Contains(key, "prices") {
				t.Errorf("%s: %s expires", name, key)
			}
		}
		if n := commands.Load(); n > mostCommands {
			t.Errorf("%s: %d commands", name, n)
		}
	}
}

// TestForgedCount: a number of chunks that could be is looked into only as far as there are chunks.
func TestForgedCount(t *testing.T) {
	const n = 1 << 22
	forged := Manifest{Info{n * minChunk, n*minChunk + 1<<20, n}, generation("X")}
	entries := make(journal, 20)
	for i := range entries {
		entries[i] = entry{id: generation("J" + strings.Repeat("B", i)), chunks: n, old: generation("K" + strings.Repeat("B", i)), oldChunks: n}
	}
	for name, there := range map[string][]int{"no chunks": nil, "the first": {0}, "the last": {n - 1}, "both": {0, n - 1}, "some": {0, 40, n / 2, n - 1}} {
		for do, run := range map[string]func(s *Streams) error{
			"put": func(s *Streams) error {
				return second(s.PutReader(t.Context(), "v", strings.NewReader("x"), bale.Expiry{}))
			},
			"delete": func(s *Streams) error { return second(s.Delete(t.Context(), "v")) },
			"repair": func(s *Streams) error {
				if err := second(s.Repair(t.Context(), "v")); !errors.Is(err, bale.ErrCorrupt) {
					return fmt.Errorf("chunks are missing, and the error is %w", err)
				}
				return nil
			},
		} {
			m, commands := counted()
			s := newStreams(t, m, Options{MaxSize: math.MaxInt64})
			m.values["v"] = forged.append(nil)
			m.values["v"+journalSuffix] = entries.stored()
			for _, i := range there {
				m.values[forged.ChunkKey("v", i)] = []byte("x")
			}
			if err := run(s); err != nil {
				t.Errorf("%s, %s: %v", name, do, err)
			}
			if n := commands.Load(); n > mostCommands+200*int64(len(entries)) {
				t.Errorf("%s, %s: %d commands", name, do, n)
			}
		}
	}
}

// TestRetireGoesOn: Redis fails while old chunks are retired, at each of some commands, and what
// was done has expired when the next write goes on. No chunk stays.
func TestRetireGoesOn(t *testing.T) {
	value := noise(1, 3*lookPage*minChunk)
	for _, after := range []int{1, lookPage - 1, lookPage, lookPage + 5, 2 * lookPage, 3 * lookPage} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			s := newStreams(t, m, Options{Chunk: minChunk, Parallel: 1})
			if _, err := s.PutReader(t.Context(), "k", bytes.NewReader(value), bale.Expiry{}); err != nil {
				t.Fatal(err)
			}
			touched := 0
			m.before = func(op, _ string) error {
				if op != "touch" {
					return nil
				}
				if touched++; touched > after {
					return errors.New("connection reset")
				}
				return nil
			}
			if is, err := s.Delete(t.Context(), "k"); !is || err == nil {
				t.Fatal(is, err)
			}
			m.before = nil
			time.Sleep(time.Hour)
			if left := len(m.forever()); left < 2*lookPage-after {
				t.Fatalf("after %d: only %d chunks are left", after, left)
			}
			if _, err := s.Delete(t.Context(), "k"); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Hour)
			nothingLeft(t, s, m, fmt.Sprint("after ", after))
		})
	}
}

// TestRetireEnds: on a slow server it goes on for a while after the caller has gone, and not for
// all chunks. The journal has the rest.
func TestRetireEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s := newStreams(t, m, Options{Chunk: minChunk, Parallel: 1})
		if _, err := s.PutReader(t.Context(), "k", bytes.NewReader(noise(1, 100*minChunk)), bale.Expiry{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		touched := 0
		m.before = func(op, _ string) error {
			if op == "touch" {
				touched++
				cancel()
				time.Sleep(cleanTime / 10)
			}
			return nil
		}
		if is, err := s.Delete(ctx, "k"); !is || err == nil {
			t.Error(is, err)
		}
		if touched > 20 {
			t.Errorf("%d chunks were retired after the end of the context", touched)
		}
		m.before = nil
		if _, err := s.Delete(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		nothingLeft(t, s, m, "at the end")
	})
}

// TestJournalIsFull: entries of dead writers make room, those of live ones are an error.
func TestJournalIsFull(t *testing.T) {
	m := newMemory()
	s := newStreams(t, m, Options{})
	var j journal
	for i := range maxEntries {
		j = append(j, entry{id: generation(strings.Repeat("B", i%20) + strings.Repeat("C", i/20)), end: time.Now().Add(time.Hour).UnixMilli()})
		m.values[j[i].aliveKey("k")] = journal(nil).append(nil)
	}
	m.values["k"+journalSuffix] = j.stored()
	if _, err := s.PutReader(t.Context(), "k", strings.NewReader("x"), bale.Expiry{}); !errors.Is(err, errFull) {
		t.Error(err)
	}
	takeForDead(m)
	if _, err := s.PutReader(t.Context(), "k", strings.NewReader("x"), bale.Expiry{}); err != nil {
		t.Error(err)
	}
	if _, is := m.values["k"+journalSuffix]; is {
		t.Error("the journal is still there")
	}
}

// TestForgedFullJournal: a full journal, one of whose entries is for the value itself and marked,
// is a bounded number of commands: what a sweeper mends needs an entry of its own, and has no room.
func TestForgedFullJournal(t *testing.T) {
	there := Manifest{Info{Size: 100, Stored: 100, Chunks: 1}, generation("X")}
	forged := journal{{id: there.Generation, chunks: 1, marked: true}}
	for i := range maxEntries - 1 {
		forged = append(forged, entry{id: generation("Y" + strings.Repeat("B", i%20) + strings.Repeat("C", i/20))})
	}
	for do, run := range map[string]func(s *Streams) error{
		"put": func(s *Streams) error {
			return second(s.PutReader(t.Context(), "v", strings.NewReader("x"), bale.Expiry{}))
		},
		"delete": func(s *Streams) error { return second(s.Delete(t.Context(), "v")) },
		"repair": func(s *Streams) error { return second(s.Repair(t.Context(), "v")) },
	} {
		m, commands := counted()
		count := m.before
		m.before = func(op, key string) error {
			if commands.Load() > 10*mostCommands {
				return errors.New("enough")
			}
			return count(op, key)
		}
		s := newStreams(t, struct{ bale.Store }{m}, Options{}) // without PTTL, by which Repair would find the chunk
		m.values["v"] = there.append(nil)
		m.values[there.ChunkKey("v", 0)] = []byte("x")
		m.ends[there.ChunkKey("v", 0)] = time.Now().Add(time.Hour)
		m.values["v"+journalSuffix] = forged.stored()
		err := run(s)
		if n := commands.Load(); n > mostCommands || err != nil {
			t.Errorf("%s: %d commands, and %v", do, n, err)
		}
		if end, expires := m.ends[there.ChunkKey("v", 0)]; do == "repair" && expires {
			t.Errorf("the value's chunk was not mended: it expires at %v", end)
		}
	}
}
