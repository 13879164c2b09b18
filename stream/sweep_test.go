package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/balekv/bale"
)

// skewed is a memory on a server whose clock is ahead.
type skewed struct {
	*memory
	ahead time.Duration
}

func (s skewed) Touch(ctx context.Context, key string, e bale.Expiry) (bool, error) {
	ms, absolute := e.Millis()
	if !absolute {
		return s.memory.Touch(ctx, key, e)
	}
	return s.memory.Touch(ctx, key, bale.ExpireAt(time.UnixMilli(ms).Add(-s.ahead)))
}

// TestServerClockAhead: chunks live as long as the key, even if the server's clock is ahead by more
// than Grace.
func TestServerClockAhead(t *testing.T) {
	for name, expiry := range map[string]func() bale.Expiry{
		"relative": func() bale.Expiry { return bale.TTL(time.Minute) },
		"absolute": func() bale.Expiry { return bale.ExpireAt(time.Now().Add(time.Minute)) },
	} {
		for _, mended := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory()
				s := newStreams(t, skewed{m, 3 * time.Minute}, Options{Chunk: minChunk})
				value := noise(1, 3*minChunk)
				if _, err := s.PutReader(t.Context(), "k", bytes.NewReader(value), expiry()); err != nil {
					t.Fatal(err)
				}
				if mended {
					shorten(t, m, time.Second)
					if _, err := s.Repair(t.Context(), "k"); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(time.Minute - time.Millisecond)
				expect(t, s, m, name, value)
			})
		}
	}
}

// TestBeyond: no overflow, and nothing below Grace.
func TestBeyond(t *testing.T) {
	s := newStreams(t, newMemory(), Options{Grace: time.Hour})
	for lives, want := range map[time.Duration]time.Duration{-time.Minute: time.Hour, time.Minute: 61 * time.Minute, math.MaxInt64: math.MaxInt64} {
		if got := s.beyond(lives); got != bale.TTL(want) {
			t.Errorf("%v: %v, want %v", lives, got, want)
		}
	}
}

// always is a Store with one answer to PTTL.
type always struct {
	bale.Store
	ms int64
}

func (a always) PTTL(context.Context, []string) ([]int64, error) { return []int64{a.ms}, nil }

// TestLifetime: no overflow, and chunks with the longest expiry that there is do not live shorter
// than their key.
func TestLifetime(t *testing.T) {
	var lives []time.Duration
	for _, ms := range []int64{-1, 5000, math.MaxInt64 / int64(time.Millisecond), 300 * 365 * 24 * 3600 * 1000, math.MaxInt64} {
		d, err := lifetime(t.Context(), always{ms: ms}, "k")
		if err != nil {
			t.Fatal(err)
		}
		lives = append(lives, d)
	}
	if lives[0] >= 0 || lives[1] != 5*time.Second || lives[2] < lives[1] || shorter(lives[2], lives[3]) || shorter(lives[2], lives[4]) || !shorter(lives[1], lives[4]) {
		t.Errorf("lifetimes are %v", lives)
	}
}

// takeForDead removes the alive keys, as an eviction or a pause longer than Lease does.
func takeForDead(m *memory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.values {
		if strings.HasSuffix(key, aliveSuffix) {
			delete(m.values, key)
			delete(m.ends, key)
		}
	}
}

// TestSettleCannotConfirm: a sweeper retires the chunks during the swap, and the writer cannot read
// the mark. An acknowledged value stays.
func TestSettleCannotConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		healthy := newStreams(t, m, Options{Chunk: minChunk})
		swapped, failed := false, false
		p := &process{memory: m, at: func(_ context.Context, _ int, op, key string) (bool, error) {
			if op == "swap" && key == "k" {
				takeForDead(m)
				if r, err := healthy.Repair(t.Context(), "k"); r.Swept != 1 || err != nil {
					t.Error(r, err)
				}
				swapped = true
			}
			if op == "get" && key == "k"+journalSuffix && swapped && !failed {
				failed = true
				return true, errors.New("i/o timeout")
			}
			return false, nil
		}}
		value := noise(1, 3*minChunk)
		if _, err := newStreams(t, p, Options{Chunk: minChunk}).PutReader(t.Context(), "k", bytes.NewReader(value), bale.Expiry{}); err != nil || !failed {
			t.Fatal(failed, err)
		}
		time.Sleep(time.Hour)
		expect(t, healthy, m, "later", value)
	})
}

// TestMendReplaced: the value is replaced while its chunks are mended, and one command after that
// fails. The journal keeps the entry until a sweeper has retired the chunks.
func TestMendReplaced(t *testing.T) {
	for _, fails := range []string{"get", "touch"} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			healthy := newStreams(t, m, Options{Chunk: minChunk})
			if _, err := healthy.PutReader(t.Context(), "k", bytes.NewReader(noise(1, 3*minChunk)), bale.Expiry{}); err != nil {
				t.Fatal(err)
			}
			shorten(t, m, defaultLease)
			value := noise(2, minChunk)
			replaced, headRead, failed := false, false, false
			p := &process{memory: m, at: func(_ context.Context, _ int, op, key string) (bool, error) {
				if op == "touch" && !replaced {
					replaced = true
					if _, err := healthy.PutReader(t.Context(), "k", bytes.NewReader(value), bale.Expiry{}); err != nil {
						t.Error(err)
					}
				}
				headRead = headRead || replaced && op == "get" && key == "k"
				if headRead && op == fails && !failed {
					failed = true
					return true, errors.New("i/o timeout")
				}
				return false, nil
			}}
			if r, err := newStreams(t, p, Options{Chunk: minChunk, Parallel: 1}).Repair(t.Context(), "k"); err == nil || !failed {
				t.Fatal(fails, failed, r, err)
			}
			time.Sleep(time.Hour) // the alive key expires
			if r, err := healthy.Repair(t.Context(), "k"); r.Swept != 1 || err != nil {
				t.Error(fails, r, err)
			}
			time.Sleep(time.Hour)
			expect(t, healthy, m, fails, value)
			nothingLeft(t, healthy, m, fails)
		})
	}
}

// withoutPTTL is a Store that cannot say how long a key lives.
type withoutPTTL struct{ bale.Store }

// TestSweepDuringSwap: a sweeper takes a writer for dead, and still retires its chunks when the
// writer's swap is done and settled. An acknowledged value stays, and expires with its chunks.
func TestSweepDuringSwap(t *testing.T) {
	cut := errors.New("connection reset")
	value, other := noise(1, 3*minChunk), noise(2, 3*minChunk)
	for sweeper, sweep := range map[string]func(ctx context.Context, s *Streams) error{
		"Repair": func(ctx context.Context, s *Streams) error { return second(s.Repair(ctx, "k")) },
		"dying Repair": func(ctx context.Context, s *Streams) error {
			if _, err := s.Repair(ctx, "k"); !errors.Is(err, cut) {
				return fmt.Errorf("it does not die: %v", err)
			}
			return nil
		},
		"cancelled write": func(ctx context.Context, s *Streams) error {
			return second(s.PutReader(ctx, "k", bytes.NewReader(other), bale.Expiry{}))
		},
	} {
		for name, e := range map[string]bale.Expiry{"lasting": {}, "expiring": bale.TTL(2 * time.Hour)} {
			for _, old := range []bool{false, true} {
				for _, ages := range []bool{true, false} {
					t.Run(fmt.Sprintf("%s/%s/old=%v/PTTL=%v", sweeper, name, old, ages), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							m := newMemory()
							open := func(store bale.Store) *Streams {
								if !ages {
									store = withoutPTTL{store}
								}
								return newStreams(t, store, Options{Chunk: minChunk, Parallel: 1})
							}
							healthy := open(m)
							if old {
								if _, err := healthy.PutReader(t.Context(), "k", bytes.NewReader(other), e); err != nil {
									t.Fatal(err)
								}
							}
							generation := ""
							atSwap, swap := make(chan struct{}), make(chan struct{})
							writer := open(&process{memory: m, at: func(_ context.Context, _ int, op, key string) (bool, error) {
								if strings.HasSuffix(key, aliveSuffix) {
									generation = strings.TrimSuffix(strings.TrimPrefix(key, "k:"), aliveSuffix)
								}
								if op == "swap" && key == "k" {
									close(atSwap)
									<-swap
								}
								return false, nil
							}})
							written := make(chan error)
							go func() { written <- second(writer.PutReader(t.Context(), "k", bytes.NewReader(value), e)) }()
							<-atSwap
							takeForDead(m)

							ctx, cancel := context.WithCancel(t.Context())
							defer cancel()
							var once sync.Once
							dead := false
							sweeping := open(&process{memory: m, at: func(_ context.Context, _ int, op, key string) (bool, error) {
								switch {
								case dead:
									return true, cut
								case op == "touch" && strings.Contains(key, generation):
									once.Do(func() {
										close(swap)
										if err := <-written; err != nil {
											t.Error(err)
										}
										dead = sweeper == "dying Repair"
									})
								case op == "touch" && sweeper == "cancelled write":
									cancel()
								}
								return false, nil
							}})
							if err := sweep(ctx, sweeping); err != nil && !errors.Is(err, context.Canceled) {
								t.Error(err)
							}
							if dead {
								if r, err := healthy.Repair(t.Context(), "k"); err != nil || ages && r.Swept != 1 {
									t.Error(r, err)
								}
							}
							time.Sleep(time.Hour)
							expect(t, healthy, m, "later", value)
							if name == "lasting" {
								if _, err := healthy.Delete(t.Context(), "k"); err != nil {
									t.Error(err)
								}
							}
							time.Sleep(2 * time.Hour)
							if _, err := healthy.Repair(t.Context(), "k"); err != nil {
								t.Error(err)
							}
							time.Sleep(time.Hour)
							if left := m.left(); len(left) > 0 {
								t.Errorf("in the end %q", left)
							}
						})
					})
				}
			}
		}
	}
}

// TestDeleteAgain: a deletion fails after the key is gone. The next one retires the chunks, at once
// and without a value.
func TestDeleteAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		p := &process{memory: m}
		s := newStreams(t, p, Options{Chunk: minChunk})
		if _, err := s.PutReader(t.Context(), "k", bytes.NewReader(noise(1, 3*minChunk)), bale.Expiry{}); err != nil {
			t.Fatal(err)
		}
		cut := errors.New("connection reset")
		p.at = func(_ context.Context, _ int, op, _ string) (bool, error) {
			if op == "touch" {
				return true, cut
			}
			return false, nil
		}
		if is, err := s.Delete(t.Context(), "k"); !is || !errors.Is(err, cut) {
			t.Fatal(is, err)
		}
		if is, err := s.Delete(t.Context(), "k"); is || !errors.Is(err, cut) {
			t.Errorf("the second one cannot retire them either: %v, %v", is, err)
		}
		p.at = nil
		for range 2 {
			if is, err := s.Delete(t.Context(), "k"); is || err != nil {
				t.Error(is, err)
			}
		}
		time.Sleep(time.Hour)
		if left := m.left(); len(left) > 0 {
			t.Errorf("in the end %q", left)
		}
	})
}

// shorten sets the expiry of the chunks of "k".
func shorten(t *testing.T, m *memory, ttl time.Duration) {
	t.Helper()
	head, err := ParseManifest(m.values["k"])
	if err != nil {
		t.Fatal(err)
	}
	for i := range head.Chunks {
		if _, err := m.Touch(t.Context(), head.ChunkKey("k", i), bale.TTL(ttl)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReplacedAfterSwap: a writer stands still after its swap, is taken for dead, and its value is
// replaced. It gives none of its chunks another expiry when it goes on.
func TestReplacedAfterSwap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		healthy := newStreams(t, m, Options{Chunk: minChunk})
		var swapped, stood atomic.Bool
		writer := newStreams(t, &process{memory: m, at: func(ctx context.Context, _ int, op, key string) (bool, error) {
			if swapped.Load() && stood.CompareAndSwap(false, true) {
				takeForDead(m)
				if err := errors.Join(second(healthy.Repair(ctx, "k")), second(healthy.PutReader(ctx, "k", bytes.NewReader(noise(2, 3*minChunk)), bale.Expiry{}))); err != nil {
					t.Error(err)
				}
			}
			if op == "swap" && key == "k" {
				swapped.Store(true)
			}
			return false, nil
		}}, Options{Chunk: minChunk})
		if _, err := writer.PutReader(t.Context(), "k", bytes.NewReader(noise(1, 3*minChunk)), bale.Expiry{}); err != nil || !stood.Load() {
			t.Fatal(stood.Load(), err)
		}
		time.Sleep(time.Hour)
		if _, err := healthy.Repair(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		nothingLeft(t, healthy, m, "in the end")
	})
}

// TestSilentWriter: a writer that could not renew its sign of life gives no chunk its final expiry,
// for a sweeper may have been there.
func TestSilentWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		var alive atomic.Bool
		writer := newStreams(t, &process{memory: m, at: func(_ context.Context, _ int, op, key string) (bool, error) {
			if strings.HasSuffix(key, aliveSuffix) && op == "set" && alive.Swap(true) {
				return true, errors.New("connection reset")
			}
			if op == "touch" && alive.Load() {
				time.Sleep(9 * time.Second) // the last ones come too late for a third of the lease, and chunks do not expire
			}
			return false, nil
		}}, Options{Chunk: minChunk, Parallel: 1, Lease: time.Minute})
		if _, err := writer.PutReader(t.Context(), "k", bytes.NewReader(noise(1, 6*minChunk)), bale.Expiry{}); !errors.Is(err, errSilent) {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Hour)
		nothingLeft(t, newStreams(t, m, Options{Chunk: minChunk}), m, "in the end")
	})
}

// TestFinalExpiryIsSentSoon: a command that gives a chunk its final expiry does not wait for a
// connection until a sweeper may act.
func TestFinalExpiryIsSentSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 30 * time.Second
		var alive atomic.Bool
		var touches atomic.Int64
		writer := newStreams(t, &process{memory: newMemory(), at: func(ctx context.Context, _ int, op, key string) (bool, error) {
			alive.CompareAndSwap(false, strings.HasSuffix(key, aliveSuffix))
			if op == "touch" && alive.Load() {
				touches.Add(1)
				if end, ok := ctx.Deadline(); !ok || time.Until(end) > lease/3 {
					t.Errorf("%s: %v", key, time.Until(end))
				}
			}
			return false, nil
		}}, Options{Chunk: minChunk, Lease: lease})
		if _, err := writer.PutReader(t.Context(), "k", bytes.NewReader(noise(1, 3*minChunk)), bale.Expiry{}); err != nil || touches.Load() < 3 {
			t.Errorf("%d touches, %v", touches.Load(), err)
		}
	})
}

// retrying is a Store whose client lost the answer to the first write of a journal and sent it
// again, after another writer had written.
type retrying struct {
	bale.Store
	other func()
}

func (r *retrying) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	ok, err := r.Store.Swap(ctx, key, old, value, ttl)
	if other := r.other; other != nil && strings.HasSuffix(key, journalSuffix) {
		r.other = nil
		other()
		return r.Store.Swap(ctx, key, old, value, ttl)
	}
	return ok, err
}

// TestAnnouncedOnce: an entry that is in the journal already is not added again, because a journal
// with two is damaged.
func TestAnnouncedOnce(t *testing.T) {
	m := newMemory()
	there := newStreams(t, m, Options{})
	s := newStreams(t, &retrying{m, func() {
		if i, err := there.announce(t.Context(), "v", entry{id: generation("OTHER")}, false); err != nil {
			t.Error(err)
		} else {
			i.stop()
		}
	}}, Options{})
	if _, err := s.PutReader(t.Context(), "v", strings.NewReader("value"), bale.Expiry{}); err != nil {
		t.Fatal(err)
	}
	j, err := parseJournal(m.values["v"+journalSuffix])
	if err != nil || len(j) != 1 {
		t.Errorf("%d entries, %v", len(j), err)
	}
}
