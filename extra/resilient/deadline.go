package resilient

import (
	"context"
	"sync"
	"time"
)

// deadline is a context with an earlier deadline than its parent's. It needs a timer only if
// somebody waits for its end, so that it costs a tenth of context.WithDeadline for a call that just
// asks for the deadline.
type deadline struct {
	context.Context
	at time.Time

	mu     sync.Mutex
	inner  context.Context // from Done on
	cancel context.CancelFunc
	over   bool
}

func (d *deadline) Deadline() (time.Time, bool) { return d.at, true }

func (d *deadline) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.inner == nil {
		d.inner, d.cancel = context.WithDeadline(d.Context, d.at)
		if d.over {
			d.cancel()
		}
	}
	return d.inner.Done()
}

func (d *deadline) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.inner != nil:
		return d.inner.Err()
	case d.over:
		return context.Canceled
	case d.Context.Err() != nil:
		return d.Context.Err()
	case !time.Now().Before(d.at):
		return context.DeadlineExceeded
	}
	return nil
}

// Value lets a child of d find the context that Done made, so that it needs no goroutine.
func (d *deadline) Value(key any) any {
	d.mu.Lock()
	inner := d.inner
	d.mu.Unlock()
	if inner != nil {
		return inner.Value(key)
	}
	return d.Context.Value(key)
}

// finish ends d with its call.
func (d *deadline) finish() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	if d.cancel != nil {
		d.cancel()
	}
}
