package stream

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/adapters"
)

// lagging is a memory whose reads are answered by replicas that lag behind.
type lagging struct {
	*memory
	lag func(key string) time.Duration

	writing sync.Mutex
	past    map[string][]past
}

// past is the state of a key until a write.
type past struct {
	until time.Time
	value []byte
	end   time.Time
}

func newLagging(lag func(key string) time.Duration) *lagging {
	return &lagging{memory: newMemory(), lag: lag, past: map[string][]past{}}
}

const roundTrip = 200 * time.Microsecond

// write keeps the state of a key before a write; the result ends the write.
func (l *lagging) write(key string) func() {
	time.Sleep(roundTrip)
	l.writing.Lock()
	value, _ := l.look("", key)
	l.past[key] = append(l.past[key], past{time.Now(), bytes.Clone(value), l.ends[key]})
	l.memory.mu.Unlock()
	return l.writing.Unlock
}

// replica returns the key's state on its replica, and nil if that is the master's.
func (l *lagging) replica(ctx context.Context, key string) *past {
	time.Sleep(roundTrip)
	if adapters.AsksMasters(ctx) {
		return nil
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	at := time.Now().Add(-l.lag(key))
	for _, p := range l.past[key] {
		if p.until.After(at) {
			if !p.end.IsZero() && !time.Now().Before(p.end) {
				p.value = nil
			}
			return &p
		}
	}
	return nil
}

func (l *lagging) Get(ctx context.Context, key string) ([]byte, error) {
	switch p := l.replica(ctx, key); {
	case p == nil:
		return l.memory.Get(ctx, key)
	case p.value == nil:
		return nil, bale.ErrNotFound
	default:
		return bytes.Clone(p.value), nil
	}
}

func (l *lagging) PTTL(ctx context.Context, keys []string) ([]int64, error) {
	ttls, err := l.memory.PTTL(ctx, keys)
	for i := range ttls {
		switch p := l.replica(ctx, keys[i]); {
		case p == nil:
		case p.value == nil:
			ttls[i] = -2
		case p.end.IsZero():
			ttls[i] = -1
		default:
			ttls[i] = time.Until(p.end).Milliseconds()
		}
	}
	return ttls, err
}

func (l *lagging) Set(ctx context.Context, key string, value []byte, e bale.Expiry) error {
	defer l.write(key)()
	return l.memory.Set(ctx, key, value, e)
}

func (l *lagging) Touch(ctx context.Context, key string, e bale.Expiry) (bool, error) {
	defer l.write(key)()
	return l.memory.Touch(ctx, key, e)
}

func (l *lagging) Delete(ctx context.Context, keys []string) (n int, err error) {
	for _, key := range keys {
		end := l.write(key)
		deleted, failed := l.memory.Delete(ctx, []string{key})
		end()
		n, err = n+deleted, errors.Join(err, failed)
	}
	return n, err
}

func (l *lagging) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	defer l.write(key)()
	return l.memory.Swap(ctx, key, old, value, ttl)
}

// TestWritersAskMasters: the journal's fence holds only if writers read from masters. From replicas
// that lag by different times, writes failed, and the remaining value lost its chunks.
func TestWritersAskMasters(t *testing.T) {
	value := noise(1, 3*minChunk)
	for round := range 5 {
		synctest.Test(t, func(t *testing.T) {
			lags := map[bool]time.Duration{true: 1500 * time.Microsecond, false: 30 * time.Millisecond}
			l := newLagging(func(key string) time.Duration { return lags[strings.HasSuffix(key, journalSuffix)] })
			var writers sync.WaitGroup
			for i := range 4 {
				s := newStreams(t, l, Options{Chunk: minChunk})
				writers.Go(func() {
					for j := range 3 {
						time.Sleep(time.Duration((i*7+j*13+round*5)%40) * time.Millisecond)
						if _, err := s.PutReader(t.Context(), "k", bytes.NewReader(value), bale.NoExpiry()); err != nil {
							t.Error(err)
						}
					}
				})
			}
			writers.Wait()
			time.Sleep(10 * time.Minute)
			s := newStreams(t, l, Options{Chunk: minChunk})
			expect(t, s, l.memory, "after all writes", value)
			if is, err := s.Delete(t.Context(), "k"); !is || err != nil {
				t.Errorf("Delete: %v, %v", is, err)
			}
			time.Sleep(s.options.Lease)
			nothingLeft(t, s, l.memory, "after Delete")
		})
	}
}

// TestReadersAskReplicas: a replica may lack the chunks of a new value, or have the manifest of an
// old one whose chunks are gone. The master has them.
func TestReadersAskReplicas(t *testing.T) {
	for name, late := range map[string]string{"chunks": "k:", "manifest": "k"} {
		synctest.Test(t, func(t *testing.T) {
			l := newLagging(func(key string) time.Duration {
				if key == late || late != "k" && strings.HasPrefix(key, late) {
					return time.Hour
				}
				return 0
			})
			s := newStreams(t, l, Options{Chunk: minChunk})
			var value []byte
			for seed := range uint64(2) {
				time.Sleep(2 * time.Hour) // the replica has all that came before
				value = noise(seed, 3*minChunk)
				if _, err := s.PutReader(t.Context(), "k", bytes.NewReader(value), bale.NoExpiry()); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(2 * s.options.Grace)
			if got, err := read(t, s, "k"); err != nil || !bytes.Equal(got, value) {
				t.Errorf("late %s: %d bytes, %v", name, len(got), err)
			}
		})
	}
}
