package stream

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/testvalues"
)

// process is the connection of one program to a memory. It can be cut at any command.
type process struct {
	*memory
	mu    sync.Mutex
	calls int
	// at is called before each command. With skip the server does not get the command; the program
	// gets err.
	at func(ctx context.Context, call int, op, key string) (skip bool, err error)
}

func (p *process) command(ctx context.Context, op, key string, do func()) error {
	p.mu.Lock()
	p.calls++
	call := p.calls
	p.mu.Unlock()
	var skip bool
	var err error
	if p.at != nil {
		skip, err = p.at(ctx, call, op, key)
	}
	if !skip {
		do()
	}
	return err
}

func (p *process) Get(ctx context.Context, key string) (v []byte, err error) {
	if cut := p.command(ctx, "get", key, func() { v, err = p.memory.Get(ctx, key) }); cut != nil {
		return nil, cut
	}
	return v, err
}

func (p *process) Set(ctx context.Context, key string, value []byte, e bale.Expiry) (err error) {
	if cut := p.command(ctx, "set", key, func() { err = p.memory.Set(ctx, key, value, e) }); cut != nil {
		return cut
	}
	return err
}

func (p *process) Touch(ctx context.Context, key string, e bale.Expiry) (ok bool, err error) {
	if cut := p.command(ctx, "touch", key, func() { ok, err = p.memory.Touch(ctx, key, e) }); cut != nil {
		return false, cut
	}
	return ok, err
}

func (p *process) Delete(ctx context.Context, keys []string) (n int, err error) {
	if cut := p.command(ctx, "delete", keys[0], func() { n, err = p.memory.Delete(ctx, keys) }); cut != nil {
		return 0, cut
	}
	return n, err
}

func (p *process) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (ok bool, err error) {
	if cut := p.command(ctx, "swap", key, func() { ok, err = p.memory.Swap(ctx, key, old, value, ttl) }); cut != nil {
		return false, cut
	}
	return ok, err
}

// expect checks that the value of "k" is one of values (nil: no value) and returns it.
func expect(t *testing.T, s *Streams, m *memory, when string, values ...[]byte) []byte {
	t.Helper()
	got, err := read(t, s, "k")
	switch {
	case errors.Is(err, ErrNotStream):
		got, err = m.Get(t.Context(), "k")
	case errors.Is(err, bale.ErrNotFound):
		got, err = nil, nil
	}
	if err != nil || !slices.ContainsFunc(values, func(v []byte) bool { return (v == nil) == (got == nil) && bytes.Equal(v, got) }) {
		t.Fatalf("%s: %d bytes, error %v", when, len(got), err)
	}
	return got
}

// nothingLeft checks that only the keys of the value are there.
func nothingLeft(t *testing.T, s *Streams, m *memory, when string) {
	t.Helper()
	keys := m.left()
	want := min(1, len(keys))
	if info, err := s.Stat(t.Context(), "k"); err == nil {
		want = info.Chunks + 1
	}
	if len(keys) != want {
		slices.Sort(keys)
		t.Errorf("%s: %d keys are left, the value has %d: %.900q", when, len(keys), want, keys)
	}
}

// TestCrash interrupts a write and a deletion at each of their commands. The key then holds the old
// value or the new one, whole, and keeps it for as long as it should. After a repair and the grace
// period no other key is left.
func TestCrash(t *testing.T) {
	step := 1
	if testvalues.Race {
		step = 5 // it takes ten times as long
	}
	cut := errors.New("connection reset")
	const ages = 100 * time.Hour
	before, after := noise(1, 3*minChunk), noise(2, 2*minChunk+1)
	for oldName, old := range map[string]func(s *Streams, m *memory) []byte{
		"nothing": func(*Streams, *memory) []byte { return nil },
		"plain":   func(_ *Streams, m *memory) []byte { m.values["k"] = []byte("plain"); return []byte("plain") },
		"lasting": func(s *Streams, _ *memory) []byte {
			if _, err := s.PutReader(context.Background(), "k", bytes.NewReader(before), bale.Expiry{}); err != nil {
				t.Fatal(err)
			}
			return before
		},
		"expiring": func(s *Streams, _ *memory) []byte {
			if _, err := s.PutReader(context.Background(), "k", bytes.NewReader(before), bale.TTL(10*ages)); err != nil {
				t.Fatal(err)
			}
			return before
		},
	} {
		for newName, change := range map[string]func(ctx context.Context, s *Streams) ([]byte, error){
			"lasting": func(ctx context.Context, s *Streams) ([]byte, error) {
				_, err := s.PutReader(ctx, "k", bytes.NewReader(after), bale.Expiry{})
				return after, err
			},
			"expiring": func(ctx context.Context, s *Streams) ([]byte, error) {
				_, err := s.PutReader(ctx, "k", bytes.NewReader(after), bale.TTL(10*ages))
				return after, err
			},
			"deletion": func(ctx context.Context, s *Streams) ([]byte, error) {
				_, err := s.Delete(ctx, "k")
				return nil, err
			},
		} {
			if newName == "deletion" && (oldName == "nothing" || oldName == "plain") {
				continue
			}
			// What becomes of a program at its n-th command.
			for fault, at := range map[string]func(n, call int, cancel func()) (skip bool, err error){
				"dies": func(n, call int, _ func()) (bool, error) {
					if call >= n {
						return true, cut
					}
					return false, nil
				},
				"dies with a command on its way": func(n, call int, _ func()) (bool, error) {
					if call >= n {
						return call > n, cut
					}
					return false, nil
				},
				"one command fails": func(n, call int, _ func()) (bool, error) {
					if call == n {
						return true, cut
					}
					return false, nil
				},
				"one reply is lost": func(n, call int, _ func()) (bool, error) {
					if call == n {
						return false, cut
					}
					return false, nil
				},
				"is cancelled": func(n, call int, cancel func()) (bool, error) {
					if call == n {
						cancel()
					}
					return false, nil
				},
			} {
				repair := func(s *Streams) error { _, err := s.Repair(context.Background(), "k"); return err }
				for sweeper, sweep := range map[string]func(s *Streams) error{
					"Repair":      repair,
					"late Repair": repair, // nobody reads the value, which mends it, while its chunks may have a lease
					"Delete": func(s *Streams) error {
						if _, err := s.PutReader(context.Background(), "k", strings.NewReader("x"), bale.Expiry{}); err != nil {
							return err
						}
						_, err := s.Delete(context.Background(), "k")
						return err
					},
				} {
					if sweeper == "Delete" && fault != "dies" {
						continue
					}
					t.Run(fmt.Sprintf("%s to %s/%s/%s", oldName, newName, fault, sweeper), func(t *testing.T) {
						total := 1
						for n := 1; n <= total; n += step {
							synctest.Test(t, func(t *testing.T) {
								m := newMemory()
								options := Options{Chunk: minChunk, Parallel: 1, Lease: time.Minute, Grace: 2 * time.Minute}
								healthy := newStreams(t, m, options)
								was := old(healthy, m)
								ctx, cancel := context.WithCancel(t.Context())
								defer cancel()
								p := &process{memory: m, at: func(_ context.Context, call int, _, _ string) (bool, error) { return at(n, call, cancel) }}
								is, err := change(ctx, newStreams(t, p, options))
								total = max(total, p.calls)
								where := fmt.Sprintf("at command %d, error %v", n, err)
								if err == nil {
									was = is
								}
								values := [][]byte{was, is}
								if sweeper != "late Repair" {
									values = [][]byte{expect(t, healthy, m, where, values...)}
								}
								time.Sleep(ages)
								found := expect(t, healthy, m, where+", much later", values...)
								if changed := bytes.Equal(found, is); fault == "is cancelled" && changed != (err == nil) {
									t.Errorf("%s: changed %v", where, changed)
								}
								if err := sweep(healthy); err != nil {
									t.Fatalf("%s: %v", where, err)
								}
								if sweeper == "Delete" {
									found = nil
								}
								expect(t, healthy, m, where+", repaired", found)
								time.Sleep(options.Grace)
								expect(t, healthy, m, where+", repaired long ago", found)
								nothingLeft(t, healthy, m, where)
								time.Sleep(10 * ages)
								if found == nil || len(m.forever()) == 0 {
									found = nil
								}
								expect(t, healthy, m, where+", in the end", found)
							})
							if t.Failed() {
								break
							}
						}
					})
				}
			}
		}
	}
}

// TestCrashingWriters runs many writers of one key beside readers and repairs. Commands are slow,
// some slower than the lease, and programs stand still and die at any of them. A reader gets one of
// the values, whole. Once a write was acknowledged there is always a value. In the end no other key
// is left.
func TestCrashingWriters(t *testing.T) {
	cut := errors.New("connection reset")
	options := Options{Chunk: minChunk, Parallel: 2, Lease: time.Minute, Grace: 2 * time.Minute}
	seeds := uint64(60)
	if testvalues.Race {
		seeds = 10
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			healthy := newStreams(t, m, options)
			rng := rand.New(rand.NewPCG(seed, 13))
			random := func(n int) int { // of all goroutines
				m.mu.Lock()
				defer m.mu.Unlock()
				return rng.IntN(n)
			}
			value := func(i int) *noisy { return &noisy{seed: uint64(i), left: 1 + i*minChunk/4} }
			var acknowledged, over atomic.Bool
			var writers, others sync.WaitGroup
			for w := range 4 {
				writers.Go(func() {
					for round := range 3 {
						dies := 1 + random(60)
						p := &process{memory: m}
						p.at = func(ctx context.Context, call int, op, _ string) (bool, error) {
							pause := time.Duration(random(3000)) * time.Millisecond
							if random(30) == 0 && op != "touch" { // a touch that is under way for so long may leave a chunk
								pause = time.Duration(random(3)) * options.Lease
							}
							time.Sleep(pause)
							if call > dies {
								return true, cut
							}
							if call == dies {
								return random(2) == 0, cut
							}
							return false, nil
						}
						s := newStreams(t, p, options)
						i := 1 + w*3 + round
						if _, err := s.PutReader(t.Context(), "k", value(i), bale.Expiry{}); err == nil {
							acknowledged.Store(true)
						}
					}
				})
			}
			check := func(when string) {
				had := acknowledged.Load()
				got, err := read(t, healthy, "k")
				if errors.Is(err, bale.ErrNotFound) && !had || errors.Is(err, ErrReplaced) {
					return
				}
				for i := 1; err == nil && i <= 12; i++ {
					if want, _ := io.ReadAll(value(i)); bytes.Equal(got, want) {
						return
					}
				}
				t.Errorf("seed %d, %s: %d bytes, error %v", seed, when, len(got), err)
			}
			others.Go(func() {
				for !over.Load() {
					check("meanwhile")
					time.Sleep(time.Duration(random(20)) * time.Second)
				}
			})
			others.Go(func() {
				for !over.Load() {
					if _, err := healthy.Repair(t.Context(), "k"); err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
					time.Sleep(time.Duration(random(60)) * time.Second)
				}
			})
			writers.Wait()
			over.Store(true)
			others.Wait()
			time.Sleep(100 * time.Hour)
			if _, err := healthy.Repair(t.Context(), "k"); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			time.Sleep(options.Grace)
			check("in the end")
			nothingLeft(t, healthy, m, fmt.Sprintf("seed %d", seed))
		})
		if t.Failed() {
			return
		}
	}
}

// noisy is bytes that do not get smaller, the same for the same seed.
type noisy struct {
	seed   uint64
	left   int
	source *rand.ChaCha8
}

func (n *noisy) Read(p []byte) (int, error) {
	if n.left == 0 {
		return 0, io.EOF
	}
	if n.source == nil {
		n.source = rand.NewChaCha8([32]byte{byte(n.seed)})
	}
	p = p[:min(len(p), n.left)]
	n.left -= len(p)
	return n.source.Read(p)
}

// TestMend: the next reader, or Repair, finds chunks that would expire before their key. Versions
// without a journal left such chunks.
func TestMend(t *testing.T) {
	for how, mend := range map[string]func(t *testing.T, s *Streams){
		"reader": func(t *testing.T, s *Streams) {
			for range 2 { // the second one has nothing to do
				r, err := s.GetReader(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
		},
		"Repair": func(t *testing.T, s *Streams) {
			for _, want := range []Repaired{{Mended: 4}, {}} {
				if r, err := s.Repair(t.Context(), "k"); r != want || err != nil {
					t.Errorf("%+v, %v; want %+v", r, err, want)
				}
			}
		},
	} {
		for name, e := range map[string]bale.Expiry{"lasting": {}, "expiring": bale.TTL(1000 * time.Hour)} {
			for _, short := range [][]int{{1, 2, 3}, {0, 1}} { // retire begins with the first
				t.Run(fmt.Sprint(how, "/", name, "/", short), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						m := newMemory()
						value := noise(1, 4*minChunk-1000)
						info, err := newStreams(t, m, Options{Chunk: minChunk}).PutReader(t.Context(), "k", bytes.NewReader(value), e)
						if err != nil || info.Chunks != 4 {
							t.Fatal(info, err)
						}
						head, err := ParseManifest(m.values["k"])
						if err != nil {
							t.Fatal(err)
						}
						s := newStreams(t, m, Options{Chunk: minChunk})
						if got, err := read(t, s, "k"); err != nil || !bytes.Equal(got, value) { // before the fail-over
							t.Errorf("%d bytes, %v", len(got), err)
						}
						for _, i := range short {
							if _, err := m.Touch(t.Context(), head.ChunkKey("k", i), bale.TTL(defaultGrace)); err != nil {
								t.Fatal(err)
							}
						}
						time.Sleep(defaultGrace / lookAgain)
						mend(t, s)
						time.Sleep(999 * time.Hour)
						if got, err := read(t, s, "k"); err != nil || !bytes.Equal(got, value) {
							t.Errorf("%d bytes, %v", len(got), err)
						}
						if _, ends := m.ends["k"]; ends == (name == "lasting") {
							t.Error("the key's own expiry has changed")
						}
						nothingLeft(t, s, m, "mended")
						time.Sleep(time.Hour + defaultGrace)
						if left := m.left(); name == "expiring" && len(left) > 0 || name == "lasting" && len(left) != 5 {
							t.Errorf("in the end %q", left)
						}
					})
				})
			}
		}
	}
}

// TestRepairLeavesAlone what is not its own, and what it cannot read.
func TestRepairLeavesAlone(t *testing.T) {
	m := newMemory()
	s := newStreams(t, m, Options{})
	m.values["k"] = []byte("plain")
	if r, err := s.Repair(t.Context(), "k"); r != (Repaired{}) || err != nil {
		t.Error(r, err)
	}
	if r, err := s.Repair(t.Context(), "none"); r != (Repaired{}) || err != nil {
		t.Error(r, err)
	}
	j := journal{{id: generation("A"), chunks: 2, old: generation("B"), oldChunks: 3, end: 4}, {id: generation("C"), marked: true}}
	got, err := parseJournal(j.stored())
	if err != nil || !slices.Equal(got, j) {
		t.Errorf("%+v, %v", got, err)
	}
	damaged := j.stored()
	damaged[len(damaged)-1] ^= 1
	for _, foreign := range [][]byte{[]byte("somebody's"), damaged, damaged[:8], (&Manifest{Generation: generation("X")}).append(nil)} {
		m.values["k"+journalSuffix] = foreign
		m.values["k"] = (&Manifest{Generation: generation("X")}).append(nil)
		_, repaired := s.Repair(t.Context(), "k")
		_, put := s.PutReader(t.Context(), "k", strings.NewReader("x"), bale.Expiry{})
		_, deleted := s.Delete(t.Context(), "k")
		for _, err := range []error{repaired, put, deleted} {
			if !errors.Is(err, bale.ErrCorrupt) || !strings.Contains(err.Error(), "k:bale:journal") {
				t.Error(err)
			}
		}
		if !bytes.Equal(m.values["k"+journalSuffix], foreign) || m.values["k"] == nil {
			t.Error("it was changed")
		}
	}
	for key, owner := range map[string]string{"a:b:bale:journal": "a:b", "a:b:ID:alive": "a:b", "a": "", "x:alive": ""} {
		if got, ok := Owner(key, j.stored()); got != owner || ok != (owner != "") {
			t.Errorf("%s: %q, %v", key, got, ok)
		}
		if _, ok := Owner(key, []byte("plain")); ok {
			t.Errorf("%s holds a plain value", key)
		}
	}
	// Nor does anybody take a journal for a stream, or replace it by one.
	m.values["j"] = j.stored()
	for _, err := range []error{second(s.GetReader(t.Context(), "j")), second(s.Delete(t.Context(), "j")), second(s.PutReader(t.Context(), "j", strings.NewReader("x"), bale.Expiry{}))} {
		if !errors.Is(err, bale.ErrUnknownAlgorithm) {
			t.Error(err)
		}
	}
}

// FuzzJournal: no input panics, and what passes is written alike.
func FuzzJournal(f *testing.F) {
	f.Add(journal{{id: generation("A"), chunks: 2, old: generation("B"), oldChunks: 3, end: 4}, {id: generation("C"), marked: true}}.append(nil)[10:])
	f.Add([]byte{2, 1, 255})
	f.Fuzz(func(t *testing.T, p []byte) {
		stored := append(frame.Header{Algorithm: frame.Chunks, HasChecksum: true, Checksum: frame.Checksum(p), Length: uint64(len(p))}.Append(nil), p...)
		j, err := parseJournal(stored)
		if err != nil {
			return
		}
		if again, err := parseJournal(j.append(nil)); err != nil || !slices.Equal(again, j) {
			t.Errorf("%+v becomes %+v, %v", j, again, err)
		}
	})
}

// TestRepairBesideWriters: Repair leaves a live writer alone, however slow. A writer that was taken
// for dead during its swap repeats the final expiry of its chunks. One that was taken for dead
// before does not swap.
func TestRepairBesideWriters(t *testing.T) {
	for name, test := range map[string]struct {
		op, key string // where it is taken for dead, if so
		want    error
	}{
		"slow":             {},
		"dead at the swap": {"swap", "k", nil},
		"dead before it":   {"touch", "", ErrLease},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory()
				options := Options{Chunk: minChunk, Parallel: 1, Lease: time.Minute}
				healthy := newStreams(t, m, options)
				old, fresh := noise(1, 2*minChunk), noise(2, 3*minChunk)
				if _, err := healthy.PutReader(t.Context(), "k", bytes.NewReader(old), bale.Expiry{}); err != nil {
					t.Fatal(err)
				}
				p := &process{memory: m}
				found := Repaired{}
				p.at = func(_ context.Context, _ int, op, key string) (bool, error) {
					if j, err := m.Get(t.Context(), "k"+journalSuffix); errors.Is(err, bale.ErrNotFound) || len(j) == 0 || strings.HasSuffix(key, aliveSuffix) {
						return false, nil
					}
					if test.op == "" {
						time.Sleep(options.Lease / 8) // at each of more than eight commands, so that the alive key must be renewed
					} else if op == test.op && (test.key == "" || test.key == key) {
						for _, key := range m.left() {
							if strings.HasSuffix(key, aliveSuffix) {
								if _, err := m.Delete(t.Context(), []string{key}); err != nil {
									t.Error(err)
								}
							}
						}
					}
					r, err := healthy.Repair(t.Context(), "k")
					if err != nil {
						t.Error(err)
					}
					found.Active, found.Swept = found.Active+r.Active, found.Swept+r.Swept
					return false, nil
				}
				_, err := newStreams(t, p, options).PutReader(t.Context(), "k", bytes.NewReader(fresh), bale.Expiry{})
				if !errors.Is(err, test.want) {
					t.Fatal(err)
				}
				if test.op == "" && (found.Active < 9 || found.Swept > 0) || test.op != "" && found.Swept != 1 {
					t.Errorf("Repair found %+v", found)
				}
				want := fresh
				if test.want != nil {
					want = old
				}
				time.Sleep(100 * time.Hour)
				expect(t, healthy, m, "much later", want)
				nothingLeft(t, healthy, m, "much later")
			})
		})
	}
}

// TestEndsWhileDown: from any command on the server does not answer, and the client sends commands
// again for as long as their contexts last. All calls end.
func TestEndsWhileDown(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, s *Streams) error{
		"put": func(ctx context.Context, s *Streams) error {
			return second(s.PutReader(ctx, "k", bytes.NewReader(noise(1, 3*minChunk)), bale.TTL(time.Hour)))
		},
		"delete": func(ctx context.Context, s *Streams) error { return second(s.Delete(ctx, "k")) },
		"repair": func(ctx context.Context, s *Streams) error { return second(s.Repair(ctx, "k")) },
		"read": func(ctx context.Context, s *Streams) error {
			r, err := s.GetReader(ctx, "k")
			if err == nil {
				_, err = io.Copy(io.Discard, r)
				err = errors.Join(err, r.Close())
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			longest := time.Duration(0)
			for down := 1; ; down++ {
				ended := false
				synctest.Test(t, func(t *testing.T) {
					m := newMemory()
					p := &process{memory: m}
					s := newStreams(t, p, Options{Chunk: minChunk, Parallel: 1})
					if err := put(s, noise(0, 3*minChunk), bale.TTL(time.Hour)); err != nil {
						t.Fatal(err)
					}
					for key := range m.ends { // to be mended
						if key != "k" {
							m.ends[key] = time.Now().Add(time.Minute)
						}
					}
					dead := journal{{id: crand.Text(), chunks: 2}} // to be swept
					if err := m.Set(t.Context(), "k"+journalSuffix, dead.stored(), bale.NoExpiry()); err != nil {
						t.Fatal(err)
					}
					before := p.calls
					var failed atomic.Bool
					p.at = func(ctx context.Context, call int, _, _ string) (bool, error) {
						if call-before < down {
							return false, nil
						}
						failed.Store(true)
						<-ctx.Done()
						return true, ctx.Err()
					}
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					start := time.Now()
					err := call(ctx, s)
					longest = max(longest, time.Since(start))
					ended = !failed.Load()
					if ended && err != nil {
						t.Error(err)
					}
				})
				if ended || t.Failed() {
					t.Log(down, longest)
					break
				}
			}
			if longest > 2*time.Second+2*cleanTime {
				t.Errorf("a call took %v", longest)
			}
		})
	}
}
