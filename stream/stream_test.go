package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/balekv/bale"
	balezstd "github.com/balekv/bale/compress/zstd"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a Store with a clock that the test moves.
type memory struct {
	bale.Store
	mu     sync.Mutex
	values map[string][]byte
	ends   map[string]time.Time
	before func(op, key string) error // each operation
}

func newMemory() *memory {
	return &memory{values: map[string][]byte{}, ends: map[string]time.Time{}}
}

func (m *memory) look(op, key string) ([]byte, error) {
	if m.before != nil {
		if err := m.before(op, key); err != nil {
			return nil, err
		}
	}
	m.mu.Lock()
	if end, ok := m.ends[key]; ok && !time.Now().Before(end) {
		delete(m.values, key)
		delete(m.ends, key)
	}
	return m.values[key], nil
}

func (m *memory) Get(ctx context.Context, key string) ([]byte, error) {
	v, err := m.look("get", key)
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if v == nil {
		return nil, bale.ErrNotFound
	}
	return bytes.Clone(v), nil
}

func (m *memory) put(key string, value []byte, e bale.Expiry) {
	m.values[key] = append([]byte{}, value...)
	delete(m.ends, key)
	m.expire(key, e)
}

func (m *memory) expire(key string, e bale.Expiry) {
	delete(m.ends, key)
	if ms, absolute := e.Millis(); absolute {
		m.ends[key] = time.UnixMilli(ms)
	} else if ms > 0 {
		m.ends[key] = time.Now().Add(time.Duration(ms) * time.Millisecond)
	}
}

func (m *memory) Set(ctx context.Context, key string, value []byte, e bale.Expiry) error {
	if _, err := m.look("set", key); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	m.put(key, value, e)
	return nil
}

func (m *memory) Touch(ctx context.Context, key string, e bale.Expiry) (bool, error) {
	v, err := m.look("touch", key)
	if err != nil {
		return false, err
	}
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if v != nil {
		m.expire(key, e)
	}
	return v != nil, nil
}

func (m *memory) Delete(ctx context.Context, keys []string) (int, error) {
	n := 0
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	for _, key := range keys {
		v, err := m.look("delete", key)
		if err != nil {
			return n, err
		}
		if v != nil {
			n++
		}
		delete(m.values, key)
		delete(m.ends, key)
		m.mu.Unlock()
	}
	return n, nil
}

func (m *memory) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	v, err := m.look("swap", key)
	if err != nil {
		return false, err
	}
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if v != nil && value != nil && bytes.Equal(v, value) {
		return true, nil
	}
	if (v == nil) != (old == nil) || !bytes.Equal(v, old) {
		return false, nil
	}
	if value == nil {
		delete(m.values, key)
		delete(m.ends, key)
	} else {
		m.put(key, value, bale.TTL(ttl))
	}
	return true, nil
}

// PTTL is the optional method of a Store.
func (m *memory) PTTL(ctx context.Context, keys []string) ([]int64, error) {
	ttls := make([]int64, len(keys))
	for i, key := range keys {
		v, err := m.look("pttl", key)
		if err != nil {
			return nil, err
		}
		end, ends := m.ends[key]
		m.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case v == nil:
			ttls[i] = -2
		case !ends:
			ttls[i] = -1
		default:
			ttls[i] = time.Until(end).Milliseconds()
		}
	}
	return ttls, nil
}

// left are the keys that have not expired.
func (m *memory) left() []string {
	var keys []string
	m.mu.Lock()
	all := make([]string, 0, len(m.values))
	for key := range m.values {
		all = append(all, key)
	}
	m.mu.Unlock()
	for _, key := range all {
		if v, _ := m.look("", key); v != nil {
			keys = append(keys, key)
		}
		m.mu.Unlock()
	}
	return keys
}

func newStreams(t *testing.T, m bale.Store, o Options) *Streams {
	t.Helper()
	s, err := New(m, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// noise is bytes that do not get smaller, lines ones that do.
func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed)})
	r.Read(b)
	return b
}

func lines(n int) []byte {
	var b bytes.Buffer
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, `{"time":"2026-01-01T00:%02d:%02dZ","level":"info","user":%d,"message":"GET /api/v1/products/%d served from cache"}`+"\n", i/60%60, i%60, i*7919%100_000, i*104_729%5000)
	}
	return b.Bytes()[:n]
}

func read(t *testing.T, s *Streams, key string) ([]byte, error) {
	t.Helper()
	r, err := s.GetReader(t.Context(), key)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}

func TestRoundTrip(t *testing.T) {
	for _, level := range []balezstd.Level{balezstd.Fastest, balezstd.Best} {
		m := newMemory()
		s := newStreams(t, m, Options{Chunk: minChunk, Level: level})
		for name, value := range map[string][]byte{
			"empty": nil, "byte": {1}, "noise": noise(1, 1<<20), "exact": noise(2, 2*minChunk), "lines": lines(3 << 20), "zeros": make([]byte, 5<<20),
		} {
			for pass, source := range []io.Reader{bytes.NewReader(value), iotest.HalfReader(bytes.NewReader(value)), iotest.DataErrReader(bytes.NewReader(value))} {
				info, err := s.PutReader(t.Context(), name, source, bale.Expiry{})
				if err != nil || info.Size != int64(len(value)) {
					t.Fatalf("%s: %+v, %v", name, info, err)
				}
				stored := 0
				for key, v := range m.values {
					if strings.HasPrefix(key, name+":") && m.ends[key].IsZero() {
						stored += len(v)
					}
				}
				if int64(stored) != info.Stored || name == "lines" && stored > len(value)/4 {
					t.Errorf("%s: %d bytes are stored, %d are told", name, stored, info.Stored)
				}
				if got, err := s.Stat(t.Context(), name); got != info || err != nil {
					t.Errorf("%s: Stat says %+v, %v", name, got, err)
				}
				r, err := s.GetReader(t.Context(), name)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if r.Info() != info {
					t.Errorf("%s: %+v", name, r.Info())
				}
				var got []byte
				switch pass {
				case 0:
					got, err = io.ReadAll(r)
				case 1:
					var b bytes.Buffer
					var n int64
					n, err = r.WriteTo(&b)
					got = b.Bytes()
					if n != int64(len(value)) {
						t.Errorf("%s: WriteTo wrote %d", name, n)
					}
					if again, err := r.WriteTo(&b); again != 0 || err != nil {
						t.Errorf("%s: after the end %d, %v", name, again, err)
					}
				case 2:
					got, err = io.ReadAll(iotest.OneByteReader(r))
					if name != "empty" && name != "byte" {
						break
					}
				}
				if err != nil || !bytes.Equal(got, value) {
					t.Errorf("%s, pass %d: %d bytes come back, %v", name, pass, len(got), err)
				}
				if err := errors.Join(r.Close(), r.Close()); err != nil {
					t.Error(err)
				}
				if len(value) > 0 {
					if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
						t.Errorf("%s: after Close %d, %v", name, n, err)
					}
				}
			}
		}
	}
}

// TestStockDecoder: the chunks together are what any Zstandard decoder reads.
func TestStockDecoder(t *testing.T) {
	m := newMemory()
	s := newStreams(t, m, Options{Chunk: minChunk})
	value := append(lines(2<<20), noise(3, 300_000)...)
	info, err := s.PutReader(t.Context(), "k", bytes.NewReader(value), bale.Expiry{})
	if err != nil || info.Chunks < 3 {
		t.Fatal(info, err)
	}
	head, err := ParseManifest(m.values["k"])
	if err != nil {
		t.Fatal(err)
	}
	var whole []byte
	for i := range info.Chunks {
		chunk := m.values[head.ChunkKey("k", i)]
		_, offset, ok := frame.Parse(chunk)
		if !ok || len(chunk) > minChunk+headRoom {
			t.Fatalf("chunk %d of %d bytes", i, len(chunk))
		}
		whole = append(whole, chunk[offset:]...)
	}
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if got, err := d.DecodeAll(whole, nil); err != nil || !bytes.Equal(got, value) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	// And nobody takes the key for a value.
	p, err := bale.NewPacker(bale.PackerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, stored := range [][]byte{m.values["k"]} {
		if got, err := p.Unpack(t.Context(), nil, stored); !errors.Is(err, bale.ErrUnknownAlgorithm) || len(got) != 0 {
			t.Errorf("a Packer makes %q of the manifest, %v", got, err)
		}
	}
}

// TestInterruptedWrite leaves the old value, and nothing else for longer than its lease.
func TestInterruptedWrite(t *testing.T) {
	broken := errors.New("broken")
	old, fresh := lines(1<<20), noise(4, 1<<20)
	for name, test := range map[string]struct {
		source  func(cancel context.CancelCauseFunc) io.Reader
		store   func(op, key string, n int) error
		want    error
		crashed bool // nothing can be cleaned
	}{
		"the source fails": {source: func(context.CancelCauseFunc) io.Reader {
			return io.MultiReader(bytes.NewReader(fresh[:700_000]), iotest.ErrReader(broken))
		}, want: broken},
		"the source says it is cancelled": {source: func(context.CancelCauseFunc) io.Reader {
			return io.MultiReader(bytes.NewReader(fresh[:700_000]), iotest.ErrReader(context.Canceled))
		}, want: context.Canceled},
		"the context ends": {source: func(cancel context.CancelCauseFunc) io.Reader {
			return io.MultiReader(bytes.NewReader(fresh[:700_000]), readerFunc(func([]byte) (int, error) { cancel(broken); return 0, nil }))
		}, want: broken},
		"a chunk is refused": {store: func(op, key string, n int) error {
			if op == "set" && n > 5 {
				return broken
			}
			return nil
		}, want: broken},
		"the end is refused": {store: func(op, key string, n int) error {
			if op == "swap" && key == "k" {
				return broken
			}
			return nil
		}, want: broken, crashed: true}, // nobody can say whether it was done
		"a touch is refused": {store: func(op, key string, n int) error {
			if op == "touch" {
				return broken
			}
			return nil
		}, want: broken},
		"the process dies": {store: func(op, key string, n int) error {
			if n > 9 {
				return broken
			}
			return nil
		}, want: broken, crashed: true},
		"too large": {source: func(context.CancelCauseFunc) io.Reader {
			return io.MultiReader(bytes.NewReader(fresh), bytes.NewReader(fresh))
		}, want: bale.ErrTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory()
				s := newStreams(t, m, Options{Chunk: minChunk, MaxSize: 3 << 19})
				before, err := s.PutReader(t.Context(), "k", bytes.NewReader(old), bale.TTL(time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if test.store != nil {
					var mu sync.Mutex
					n := 0
					m.before = func(op, key string) error {
						mu.Lock()
						defer mu.Unlock()
						n++
						return test.store(op, key, n)
					}
				}
				var source io.Reader = bytes.NewReader(fresh)
				if test.source != nil {
					source = test.source(cancel)
				}
				_, err = s.PutReader(ctx, "k", source, bale.TTL(time.Hour))
				var keyed *bale.KeyError
				if !errors.Is(err, test.want) || !errors.As(err, &keyed) || keyed.Key != "k" {
					t.Errorf("error %v", err)
				}
				m.before = nil
				if got, err := read(t, s, "k"); err != nil || !bytes.Equal(got, old) {
					t.Errorf("the old value: %d bytes, %v", len(got), err)
				}
				if n := len(m.left()); !test.crashed && n != before.Chunks+1 || test.crashed && n <= before.Chunks+1 {
					t.Errorf("%d keys are left, the old value has %d", n, before.Chunks+1)
				}
				time.Sleep(defaultLease)
				if _, err := s.Repair(t.Context(), "k"); err != nil {
					t.Error(err)
				}
				time.Sleep(defaultLease)
				if n := len(m.left()); n != before.Chunks+1 {
					t.Errorf("after the lease %d keys are left, the old value has %d", n, before.Chunks+1)
				}
				time.Sleep(time.Hour - 2*defaultLease)
				if _, err := read(t, s, "k"); err != bale.ErrNotFound {
					t.Errorf("after its TTL: %v", err)
				}
				time.Sleep(defaultGrace)
				if left := m.left(); len(left) != 0 {
					t.Errorf("%d keys are left for ever", len(left))
				}
			})
		})
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestSlowSource: chunks live on while the source gives its bytes, however slowly; one that is lost
// all the same is an error.
func TestSlowSource(t *testing.T) {
	value := noise(5, 20*minChunk)
	for _, test := range []struct {
		pause time.Duration
		evict bool
		want  error
	}{{time.Minute, false, nil}, {4900 * time.Millisecond, false, nil}, {6 * time.Minute, false, nil}, {time.Hour, false, nil}, {time.Second, true, ErrLease}} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			s := newStreams(t, m, Options{Chunk: minChunk})
			rest := value
			source := readerFunc(func(p []byte) (int, error) {
				if len(rest) == 0 {
					return 0, io.EOF
				}
				if len(rest)%minChunk == 0 {
					time.Sleep(test.pause)
				}
				if test.evict && len(rest) < len(value)/2 {
					for _, key := range m.left() {
						m.Delete(t.Context(), []string{key})
						break
					}
				}
				n := copy(p[:min(len(p), minChunk/2)], rest)
				rest = rest[n:]
				return n, nil
			})
			_, err := s.PutReader(t.Context(), "k", source, bale.NoExpiry())
			if !errors.Is(err, test.want) {
				t.Fatalf("%v: %v", test.pause, err)
			}
			if test.want != nil {
				return
			}
			time.Sleep(1000 * time.Hour)
			if got, err := read(t, s, "k"); err != nil || !bytes.Equal(got, value) {
				t.Errorf("%v: %d bytes, %v", test.pause, len(got), err)
			}
		})
	}
}

// TestReplaced: a reader of a value that is replaced continues with the old one for the grace
// period. After that it gets an error.
func TestReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, fresh := noise(6, 1<<20), noise(7, 1<<20)
		for _, how := range []string{"replaced", "deleted"} {
			m := newMemory()
			s := newStreams(t, m, Options{Chunk: minChunk})
			if _, err := s.PutReader(t.Context(), "k", bytes.NewReader(old), bale.Expiry{}); err != nil {
				t.Fatal(err)
			}
			var readers []*Reader
			for range 2 {
				r, err := s.GetReader(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				half := make([]byte, 1<<19)
				if _, err := io.ReadFull(r, half); err != nil || !bytes.Equal(half, old[:1<<19]) {
					t.Fatal(err)
				}
				readers = append(readers, r)
			}
			if how == "replaced" {
				if _, err := s.PutReader(t.Context(), "k", bytes.NewReader(fresh), bale.Expiry{}); err != nil {
					t.Fatal(err)
				}
				if got, err := read(t, s, "k"); err != nil || !bytes.Equal(got, fresh) {
					t.Errorf("who comes after: %v", err)
				}
			} else {
				if is, err := s.Delete(t.Context(), "k"); !is || err != nil {
					t.Error(is, err)
				}
				if is, err := s.Delete(t.Context(), "k"); is || err != nil {
					t.Error(is, err)
				}
				if _, err := read(t, s, "k"); err != bale.ErrNotFound {
					t.Error(err)
				}
			}
			if rest, err := io.ReadAll(readers[0]); err != nil || !bytes.Equal(rest, old[1<<19:]) {
				t.Errorf("%s: within the grace period %d bytes, %v", how, len(rest), err)
			}
			time.Sleep(defaultGrace)
			rest, err := io.ReadAll(readers[1])
			if !errors.Is(err, ErrReplaced) || !bytes.HasPrefix(old[1<<19:], rest) {
				t.Errorf("%s: after it %d bytes, %v", how, len(rest), err)
			}
			if _, again := readers[1].Read(make([]byte, 1)); !errors.Is(again, ErrReplaced) {
				t.Errorf("%s: %v", how, again)
			}
		}
	})
}

// TestOldOrNew: whoever reads while others write gets one of the values that were written, whole.
func TestOldOrNew(t *testing.T) {
	m := newMemory()
	s := newStreams(t, m, Options{Chunk: minChunk, Grace: 50 * time.Millisecond})
	value := func(i int) []byte { return bytes.Repeat(noise(uint64(i), 1000), 200+i) }
	put := func(i int) {
		if _, err := s.PutReader(t.Context(), "k", bytes.NewReader(value(i)), bale.Expiry{}); err != nil {
			t.Error(err)
		}
	}
	put(0)
	var writers, readers sync.WaitGroup
	done := make(chan struct{})
	for w := range 3 {
		writers.Go(func() {
			for i := range 20 {
				put(w*20 + i + 1)
			}
		})
	}
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				got, err := read(t, s, "k")
				if errors.Is(err, ErrReplaced) {
					continue
				}
				i := len(got)/1000 - 200
				if err != nil || !bytes.Equal(got, value(i)) {
					t.Errorf("%d bytes, %v", len(got), err)
					return
				}
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
	// Of all that was written the last value stays, and nothing else.
	time.Sleep(60 * time.Millisecond)
	info, err := s.Stat(t.Context(), "k")
	if left := m.left(); err != nil || len(left) != info.Chunks+1 {
		t.Errorf("%d keys are left for a value of %d chunks, %v", len(left), info.Chunks, err)
	}
}

// TestDamage: each damage is an error that names it, before a byte of its chunk is returned.
func TestDamage(t *testing.T) {
	value := lines(6 << 20)
	for name, damage := range map[string]func(m *memory, head Manifest){
		"flipped": func(m *memory, head Manifest) { m.values[head.ChunkKey("k", 2)][1000] ^= 1 },
		"cut": func(m *memory, head Manifest) {
			k := head.ChunkKey("k", 2)
			m.values[k] = m.values[k][:1000]
		},
		"missing":       func(m *memory, head Manifest) { delete(m.values, head.ChunkKey("k", 2)) },
		"first missing": func(m *memory, head Manifest) { delete(m.values, head.ChunkKey("k", 0)) },
		"swapped": func(m *memory, head Manifest) {
			a, b := head.ChunkKey("k", 1), head.ChunkKey("k", 2)
			m.values[a], m.values[b] = m.values[b], m.values[a]
		},
		"shorter than it says": func(m *memory, head Manifest) { head.Size++; m.values["k"] = head.append(nil) },
		"longer than it says":  func(m *memory, head Manifest) { head.Size -= 100_000; m.values["k"] = head.append(nil) },
		"one chunk less":       func(m *memory, head Manifest) { head.Chunks--; m.values["k"] = head.append(nil) },
		"another stream after": func(m *memory, head Manifest) {
			k := head.ChunkKey("k", head.Chunks)
			m.values[k] = m.values[head.ChunkKey("k", 0)]
			head.Chunks++
			m.values["k"] = head.append(nil)
		},
		"manifest": func(m *memory, head Manifest) { v := m.values["k"]; v[len(v)-1] ^= 1 },
	} {
		for _, how := range []string{"Read", "WriteTo"} {
			m := newMemory()
			s := newStreams(t, m, Options{Chunk: minChunk})
			if _, err := s.PutReader(t.Context(), "k", bytes.NewReader(value), bale.Expiry{}); err != nil {
				t.Fatal(err)
			}
			head, err := ParseManifest(m.values["k"])
			if err != nil || head.Chunks < 5 {
				t.Fatal(head, err)
			}
			damage(m, head)
			var got bytes.Buffer
			r, err := s.GetReader(t.Context(), "k")
			if err == nil {
				if how == "Read" {
					_, err = got.ReadFrom(struct{ io.Reader }{r})
				} else {
					_, err = r.WriteTo(&got)
				}
				r.Close()
			}
			var keyed *bale.KeyError
			if !errors.Is(err, bale.ErrCorrupt) || !errors.As(err, &keyed) || keyed.Key != "k" {
				t.Errorf("%s, %s: %d bytes, error %v", name, how, got.Len(), err)
			}
			if !bytes.HasPrefix(value, got.Bytes()) {
				t.Errorf("%s, %s: wrong bytes are handed out", name, how)
			}
		}
	}
}

func TestNotStreams(t *testing.T) {
	m := newMemory()
	s := newStreams(t, m, Options{MaxSize: 100})
	m.values["plain"] = []byte(`{"a":1}`)
	for _, get := range []func() error{
		func() error { _, err := s.GetReader(t.Context(), "plain"); return err },
		func() error { _, err := s.Stat(t.Context(), "plain"); return err },
		func() error { _, err := s.Delete(t.Context(), "plain"); return err },
	} {
		if err := get(); !errors.Is(err, ErrNotStream) || strings.Contains(err.Error(), `{"a"`) {
			t.Error(err)
		}
	}
	if _, err := s.PutReader(t.Context(), "plain", strings.NewReader("now a stream"), bale.Expiry{}); err != nil {
		t.Error(err)
	}
	if got, err := read(t, s, "plain"); err != nil || string(got) != "now a stream" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := s.GetReader(t.Context(), "none"); err != bale.ErrNotFound {
		t.Error(err)
	}
	if _, err := s.Stat(t.Context(), "none"); err != bale.ErrNotFound {
		t.Error(err)
	}
	m.values["huge"] = (&Manifest{Generation: generation("X"), Info: Info{Size: 101, Stored: 5, Chunks: 1}}).append(nil)
	if _, err := s.GetReader(t.Context(), "huge"); !errors.Is(err, bale.ErrTooLarge) {
		t.Error(err)
	}
	m.values["later"] = func() []byte {
		p := []byte{9, 0}
		return append(frame.Header{Algorithm: frame.Chunks, HasChecksum: true, Checksum: frame.Checksum(p), Length: 2}.Append(nil), p...)
	}()
	for _, err := range []error{second(s.GetReader(t.Context(), "later")), second(s.PutReader(t.Context(), "later", strings.NewReader("x"), bale.Expiry{}))} {
		if !errors.Is(err, bale.ErrUnknownAlgorithm) {
			t.Errorf("a manifest of a later version: %v", err)
		}
	}
	if _, err := s.PutReader(t.Context(), "k", nil, bale.TTL(-1)); !errors.Is(err, bale.ErrInvalid) {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestRecorder: the Recorder receives each value once, with its sizes and its outcome.
func TestRecorder(t *testing.T) {
	m := newMemory()
	counters := stats.NewCounters(stats.CountersOptions{})
	s := newStreams(t, m, Options{Chunk: minChunk, Recorder: counters})
	value := lines(1 << 20)
	info, err := s.PutReader(t.Context(), "k", bytes.NewReader(value), bale.Expiry{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read(t, s, "k"); err != nil {
		t.Fatal(err)
	}
	r, err := s.GetReader(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	r.Close() // before its end
	s.GetReader(t.Context(), "none")
	m.values["plain"] = []byte("x")
	s.GetReader(t.Context(), "plain")
	s.PutReader(t.Context(), "k", iotest.ErrReader(io.ErrClosedPipe), bale.Expiry{})
	got := counters.Snapshot()
	put, get := got.Ops[stats.Set], got.Ops[stats.Get]
	if put.Count != 2 || put.Plain != uint64(info.Size) || put.Stored != uint64(info.Stored) || put.Errors[stats.Server] != 1 || put.Times[stats.Store].Count != 2 {
		t.Errorf("put: %d, %d bytes as %d, errors %v", put.Count, put.Plain, put.Stored, put.Errors)
	}
	if get.Count != 4 || get.Hits != 2 || get.Misses != 1 || get.Errors[stats.Server] != 1 || get.Plain != uint64(info.Size) {
		t.Errorf("get: %d, %d hits, %d misses, %d bytes, errors %v", get.Count, get.Hits, get.Misses, get.Plain, get.Errors)
	}
}

// forever are the keys that never expire.
func (m *memory) forever() (keys []string) {
	for _, key := range m.left() {
		m.mu.Lock()
		if _, ends := m.ends[key]; !ends {
			keys = append(keys, key)
		}
		m.mu.Unlock()
	}
	return keys
}

// TestNothingStaysForEver of an old value, although one of its chunks is gone, or the context ends
// as it is replaced.
func TestNothingStaysForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		s := newStreams(t, m, Options{Chunk: minChunk, Parallel: 1})
		put := func(ctx context.Context, source io.Reader, e bale.Expiry) {
			t.Helper()
			if _, err := s.PutReader(ctx, "k", source, e); err != nil {
				t.Fatal(err)
			}
		}
		put(t.Context(), bytes.NewReader(noise(1, 10*minChunk)), bale.Expiry{})
		for _, key := range m.left() {
			if strings.HasSuffix(key, ":0") {
				m.Delete(t.Context(), []string{key})
			}
		}
		put(t.Context(), bytes.NewReader(noise(1, 10*minChunk)), bale.Expiry{})
		ctx, cancel := context.WithCancel(t.Context())
		m.before = func(op, key string) error {
			if op == "swap" && key == "k" {
				cancel()
			}
			return nil
		}
		put(ctx, strings.NewReader("x"), bale.TTL(time.Hour))
		m.before = nil
		time.Sleep(1000 * time.Hour)
		if keys := m.forever(); len(keys) > 0 {
			t.Errorf("%d keys stay for ever", len(keys))
		}
	})
}

// TestEndIsOneMoment: a value of many chunks ends exactly at its expiry, and its chunks not before,
// even if setting their expiries is slow.
func TestEndIsOneMoment(t *testing.T) {
	for name, e := range map[string]func() bale.Expiry{
		"at":  func() bale.Expiry { return bale.ExpireAt(time.Now().Add(10 * time.Second)) },
		"ttl": func() bale.Expiry { return bale.TTL(10 * time.Second) },
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			s := newStreams(t, m, Options{Chunk: minChunk, Parallel: 1, Grace: time.Second})
			m.before = func(op, _ string) error {
				if op == "touch" {
					time.Sleep(100 * time.Millisecond)
				}
				return nil
			}
			begun := time.Now()
			if _, err := s.PutReader(t.Context(), "k", bytes.NewReader(noise(1, 50*minChunk)), e()); err != nil {
				t.Fatal(err)
			}
			m.before = nil
			time.Sleep(time.Until(begun.Add(9999 * time.Millisecond)))
			if _, err := read(t, s, "k"); err != nil {
				t.Errorf("%s: within its time: %v", name, err)
			}
			time.Sleep(2 * time.Millisecond)
			if _, err := read(t, s, "k"); err != bale.ErrNotFound {
				t.Errorf("%s: after it: %v", name, err)
			}
		})
	}
}

// TestDistantExpiries: a value that ends in 292 years or later takes an earlier one's place.
func TestDistantExpiries(t *testing.T) {
	for _, e := range []bale.Expiry{bale.TTL(math.MaxInt64), bale.ExpireAt(time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC))} {
		s := newStreams(t, newMemory(), Options{})
		for _, before := range []bale.Expiry{e, bale.NoExpiry(), e} {
			if _, err := s.PutReader(t.Context(), "k", strings.NewReader("x"), before); err != nil {
				t.Fatal(err)
			}
			if v, err := read(t, s, "k"); string(v) != "x" || err != nil {
				t.Errorf("%+v: %q, %v", e, v, err)
			}
		}
	}
}

// late is a Store that does a Swap only after it has said that it failed.
type late struct {
	*memory
	swap func()
}

func (l *late) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	if key != "k" || old == nil {
		return l.memory.Swap(ctx, key, old, value, ttl)
	}
	old, value = bytes.Clone(old), bytes.Clone(value)
	l.swap = func() { l.memory.Swap(context.Background(), key, old, value, ttl) }
	return false, errors.New("i/o timeout")
}

// TestLateSwap: what was written although the store failed can be read.
func TestLateSwap(t *testing.T) {
	m := &late{memory: newMemory()}
	s := newStreams(t, m, Options{Chunk: minChunk})
	if _, err := s.PutReader(t.Context(), "k", strings.NewReader("old"), bale.Expiry{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutReader(t.Context(), "k", strings.NewReader("new"), bale.Expiry{}); err == nil {
		t.Fatal("no error")
	}
	if got, err := read(t, s, "k"); string(got) != "old" || err != nil {
		t.Errorf("before: %q, %v", got, err)
	}
	m.swap()
	if got, err := read(t, s, "k"); string(got) != "new" || err != nil {
		t.Errorf("after: %q, %v", got, err)
	}
}

func TestReaderIsClosed(t *testing.T) {
	m := newMemory()
	s := newStreams(t, m, Options{Chunk: minChunk})
	if _, err := s.PutReader(t.Context(), "k", bytes.NewReader(noise(8, 1<<20)), bale.Expiry{}); err != nil {
		t.Fatal(err)
	}
	r, err := s.GetReader(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err = s.GetReader(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cancel()
	if _, err := io.ReadAll(r); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	broken := errors.New("disk full")
	r2, err := s.GetReader(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer r2.Close()
	if _, err := r2.WriteTo(writerFunc(func([]byte) (int, error) { return 0, broken })); !errors.Is(err, broken) {
		t.Error(err)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"Chunk": {Chunk: 1}, "Level": {Level: 9}, "MaxSize": {MaxSize: -1}, "Lease": {Lease: 1}, "Grace": {Grace: 1}, "Parallel": {Parallel: 17},
	} {
		if _, err := New(newMemory(), o); !errors.Is(err, bale.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(nil, Options{}); !errors.Is(err, bale.ErrInvalid) {
		t.Error(err)
	}
}

// FuzzManifest: no input panics, and what passes is written alike.
func FuzzManifest(f *testing.F) {
	f.Add((&Manifest{Generation: generation("GENERATION"), Info: Info{1 << 30, 1 << 20, 20}}).append(nil)[10:])
	f.Add([]byte{1, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, p []byte) {
		stored := append(frame.Header{Algorithm: frame.Chunks, HasChecksum: true, Checksum: frame.Checksum(p), Length: uint64(len(p))}.Append(nil), p...)
		m, err := ParseManifest(stored)
		if err != nil {
			return
		}
		again, err := ParseManifest(m.append(nil))
		if err != nil || again != m {
			t.Errorf("%+v becomes %+v, %v", m, again, err)
		}
	})
}
