package adapters

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// Writes keeps the writes of a key in order, for clients that send commands over several
// connections or queues. A write may still be on its way when its caller's context has ended. Then
// a later write of the key waits for it. The zero value is ready, and safe for concurrent use.
type Writes struct {
	late atomic.Int64 // keys below, so that most calls need no lock
	mu   sync.Mutex
	keys map[string]*lateWrites
}

// lateWrites are the writes of a key that go on without their callers.
type lateWrites struct {
	n     int
	ended chan struct{} // closed when there are none
}

// Wait waits for the end of the writes of the keys that go on without their callers. It returns the
// error of ctx if that ends first.
func (w *Writes) Wait(ctx context.Context, keys ...string) error {
	for i := 0; i < len(keys) && w.late.Load() > 0; i++ {
		w.mu.Lock()
		late := w.keys[keys[i]]
		w.mu.Unlock()
		if late == nil {
			continue
		}
		select {
		case <-late.ended:
			i-- // or another one has begun
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Write waits for earlier writes of the keys and calls send, which returns when its commands cannot
// take effect any more. If ctx ends first, Write returns its error, and send goes on: it must not
// use what belongs to the caller. The client's own timeouts bound it.
func Write[T any](ctx context.Context, w *Writes, keys []string, send func() (T, error)) (T, error) {
	var none T
	if err := w.Wait(ctx, keys...); err != nil {
		return none, err
	}
	if ctx.Done() == nil {
		return send()
	}
	if err := ctx.Err(); err != nil {
		return none, err
	}
	type outcome struct {
		v   T
		err error
	}
	sent := make(chan outcome, 1)
	go func() {
		v, err := send()
		sent <- outcome{v, err}
	}()
	select {
	case o := <-sent:
		return o.v, o.err
	case <-ctx.Done():
	}
	end := w.begin(slices.Clone(keys))
	go func() {
		<-sent
		end()
	}()
	return none, ctx.Err()
}

// begin notes a write that goes on without its caller, until end is called.
func (w *Writes) begin(keys []string) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.keys == nil {
		w.keys = map[string]*lateWrites{}
	}
	for _, key := range keys {
		if w.keys[key] == nil {
			w.keys[key] = &lateWrites{ended: make(chan struct{})}
			w.late.Add(1)
		}
		w.keys[key].n++
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, key := range keys {
			if late := w.keys[key]; late.n == 1 {
				close(late.ended)
				delete(w.keys, key)
				w.late.Add(-1)
			} else {
				late.n--
			}
		}
	}
}
