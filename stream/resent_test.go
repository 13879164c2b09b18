package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/balekv/bale"
)

// resent is a memory whose client loses the answer to the first Swap of "k" and sends it again, as
// go-redis does by default. Other programs work in between.
type resent struct {
	*memory
	between func()
}

func (r *resent) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	ok, err := r.memory.Swap(ctx, key, old, value, ttl)
	if f := r.between; f != nil && key == "k" {
		r.between = nil
		f()
		return r.memory.Swap(ctx, key, old, value, ttl)
	}
	return ok, err
}

// change is a write of a value, or a deletion.
type change func(s *Streams, value []byte, e bale.Expiry) error

func put(s *Streams, value []byte, e bale.Expiry) error {
	return second(s.PutReader(context.Background(), "k", bytes.NewReader(value), e))
}

func remove(s *Streams, _ []byte, _ bale.Expiry) error {
	return second(s.Delete(context.Background(), "k"))
}

// TestSentAgain: a swap was done, and its answer was lost. Another program replaces or deletes the
// value before the client sends the swap again. It retires the chunks before or after that.
func TestSentAgain(t *testing.T) {
	changes := map[string]change{"put": put, "delete": remove}
	for expiry, e := range map[string]bale.Expiry{"lasting": {}, "expiring": bale.TTL(3 * time.Hour)} {
		for _, old := range []bool{false, true} {
			for first, c := range changes {
				for second, other := range changes {
					for _, late := range []bool{false, true} {
						t.Run(fmt.Sprintf("%s/old=%v/%s/%s/late=%v", expiry, old, first, second, late), func(t *testing.T) {
							synctest.Test(t, func(t *testing.T) { sentAgain(t, c, other, e, old, late) })
						})
					}
				}
				t.Run(fmt.Sprintf("%s/old=%v/%s", expiry, old, first), func(t *testing.T) {
					nothing := func(*Streams, []byte, bale.Expiry) error { return nil }
					synctest.Test(t, func(t *testing.T) { sentAgain(t, c, nothing, e, old, false) })
				})
			}
		}
	}
}

// sentAgain checks that the key holds one of the values or none, whole and as long as it should,
// and that no chunk stays behind.
func sentAgain(t *testing.T, first, other change, e bale.Expiry, old, late bool) {
	m := newMemory()
	options := Options{Chunk: minChunk, Parallel: 1}
	healthy := newStreams(t, m, options)
	values := [][]byte{nil, noise(1, 3*minChunk), noise(2, 3*minChunk)}
	if old {
		if err := put(healthy, noise(0, 2*minChunk), e); err != nil {
			t.Fatal(err)
		}
	}
	swapped, stands, goOn, ended := false, make(chan struct{}), make(chan struct{}), make(chan error, 1)
	p := &process{memory: m, at: func(_ context.Context, _ int, op, key string) (bool, error) {
		if late && swapped && op == "touch" {
			swapped = false
			close(stands)
			<-goOn
		}
		swapped = swapped || op == "swap" && key == "k"
		return false, nil
	}}
	r := &resent{memory: m, between: func() {
		go func() { ended <- other(newStreams(t, p, options), values[2], e) }()
		select {
		case <-stands:
		case err := <-ended:
			ended <- err
		}
	}}
	if err := first(newStreams(t, r, options), values[1], e); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	if r.between == nil { // a deletion of no value swaps nothing
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(time.Hour)
	found := expect(t, healthy, m, "an hour later", values...)
	nothingLeft(t, healthy, m, "an hour later")
	time.Sleep(time.Hour)
	expect(t, healthy, m, "two hours later", found)
	if e == (bale.Expiry{}) {
		if err := remove(healthy, nil, e); err != nil {
			t.Error(err)
		}
	}
	time.Sleep(2 * time.Hour)
	if left := m.left(); len(left) > 0 {
		t.Errorf("in the end %q", left)
	}
}

// TestSentAgainTooLate: the chunks of the first try have expired before the second one. The value
// of the other writer stays.
func TestSentAgainTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		options := Options{Chunk: minChunk, Grace: time.Second}
		healthy := newStreams(t, m, options)
		if err := put(healthy, noise(0, 3*minChunk), bale.Expiry{}); err != nil {
			t.Fatal(err)
		}
		value := noise(2, 3*minChunk)
		s := newStreams(t, &resent{memory: m, between: func() {
			if err := put(healthy, value, bale.Expiry{}); err != nil {
				t.Error(err)
			}
			time.Sleep(2 * time.Second)
		}}, options)
		if err := put(s, noise(1, 3*minChunk), bale.Expiry{}); !errors.Is(err, ErrLease) {
			t.Errorf("error %v", err)
		}
		time.Sleep(time.Hour)
		expect(t, healthy, m, "later", value)
		nothingLeft(t, healthy, m, "later")
	})
}

// TestSilentBetweenSwaps: a writer whose swap came too late gives no sign of life, and a sweeper
// retires its chunks. When it goes on it makes none of them permanent.
func TestSilentBetweenSwaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		options := Options{Chunk: minChunk, Parallel: 1, Lease: 10 * time.Second}
		healthy := newStreams(t, m, options)
		if err := put(healthy, noise(0, 3*minChunk), bale.Expiry{}); err != nil {
			t.Fatal(err)
		}
		var silent, swapped, stood atomic.Bool
		value := noise(2, 3*minChunk)
		p := &process{memory: m, at: func(_ context.Context, _ int, op, key string) (bool, error) {
			switch {
			case op == "set" && strings.HasSuffix(key, aliveSuffix):
				for silent.Load() {
					time.Sleep(time.Second)
				}
			case op == "swap" && key == "k":
				if err := put(healthy, value, bale.Expiry{}); err != nil {
					t.Error(err)
				}
				swapped.Store(true)
			case op == "get" && key == "k" && swapped.Load() && stood.CompareAndSwap(false, true):
				silent.Store(true)
				time.Sleep(2 * options.Lease)
				if r, err := healthy.Repair(t.Context(), "k"); r.Swept != 1 || err != nil {
					t.Error(r, err)
				}
				silent.Store(false)
				time.Sleep(options.Lease * 2 / 3) // it is alive again, and its chunks have not expired
			case op == "delete" && stood.Load():
				return true, errors.New("connection reset")
			}
			return false, nil
		}}
		if err := put(newStreams(t, p, options), noise(1, 3*minChunk), bale.Expiry{}); !errors.Is(err, ErrLease) || !stood.Load() {
			t.Error(stood.Load(), err)
		}
		time.Sleep(time.Hour)
		expect(t, healthy, m, "later", value)
		nothingLeft(t, healthy, m, "later")
	})
}
