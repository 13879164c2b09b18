package dict

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("the server does not answer")

// memory is a Store in memory, which can be emptied and can fail. The real one is tested in module
// goredis.
type memory struct {
	lock      sync.Mutex
	values    map[string][]byte
	expires   map[string]time.Time
	listeners map[chan string]bool
	down      bool
	left      int            // calls until it goes down, if not zero
	stuck     chan struct{}  // until it is closed no call returns, whatever its context says
	gets      map[string]int // how often each key was asked for
	swaps     map[string]int // and was to be changed
}

func newMemory() *memory {
	return &memory{values: map[string][]byte{}, expires: map[string]time.Time{}, listeners: map[chan string]bool{}, gets: map[string]int{}, swaps: map[string]int{}}
}

func (m *memory) do(f func()) error {
	m.lock.Lock()
	if stuck := m.stuck; stuck != nil {
		m.lock.Unlock()
		<-stuck
		m.lock.Lock()
	}
	defer m.lock.Unlock()
	if m.left > 0 {
		if m.left--; m.left == 0 {
			m.down = true
		}
	}
	if m.down {
		return errDown
	}
	for k, at := range m.expires {
		if time.Now().After(at) {
			delete(m.values, k)
			delete(m.expires, k)
		}
	}
	f()
	return nil
}

func (m *memory) setDown(down bool) {
	m.lock.Lock()
	m.down = down
	m.lock.Unlock()
}

// count is how often a key is in gets or swaps.
func (m *memory) count(of map[string]int, key string) int {
	m.lock.Lock()
	defer m.lock.Unlock()
	return of[key]
}

func (m *memory) flush() {
	m.lock.Lock()
	clear(m.values)
	clear(m.expires)
	m.lock.Unlock()
}

func (m *memory) set(key string, value []byte) {
	m.lock.Lock()
	m.values[key] = value
	m.lock.Unlock()
}

func (m *memory) Read(ctx context.Context, keys ...string) (values [][]byte, err error) {
	err = m.do(func() {
		for _, k := range keys {
			m.gets[k]++
			values = append(values, append([]byte(nil), m.values[k]...)) // nil for an empty one
		}
	})
	return values, err
}

func (m *memory) Refresh(ctx context.Context, keys ...string) (exists []bool, err error) {
	err = m.do(func() {
		for _, k := range keys {
			exists = append(exists, m.values[k] != nil)
		}
	})
	return exists, err
}

// value returns what the server has, while programs are at work.
func (m *memory) value(key string) []byte {
	m.lock.Lock()
	defer m.lock.Unlock()
	return m.values[key]
}

// lifetime returns how long the server keeps a key.
func (m *memory) lifetime(key string) time.Duration {
	m.lock.Lock()
	defer m.lock.Unlock()
	return time.Until(m.expires[key])
}

func (m *memory) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (ok bool, err error) {
	err = m.do(func() {
		m.swaps[key]++
		if there := m.values[key]; (there == nil) != (old == nil) || !bytes.Equal(there, old) {
			ok = value != nil && there != nil && bytes.Equal(there, value)
			return
		}
		ok = true
		delete(m.expires, key)
		if value == nil {
			delete(m.values, key)
			return
		}
		m.values[key] = bytes.Clone(value)
		if ttl > 0 {
			m.expires[key] = time.Now().Add(ttl)
		}
	})
	return ok, err
}

func (m *memory) Notify(ctx context.Context, channel, message string) error {
	return m.do(func() {
		for l := range m.listeners {
			select {
			case l <- message:
			default:
			}
		}
	})
}

func (m *memory) Listen(ctx context.Context, channel string, receive func(string)) error {
	messages := make(chan string, 100)
	if err := m.do(func() { m.listeners[messages] = true }); err != nil {
		return err
	}
	defer func() {
		m.lock.Lock()
		delete(m.listeners, messages)
		m.lock.Unlock()
	}()
	receive("")
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case message := <-messages:
			receive(message)
		}
	}
}

// hooked is a memory that calls a function after a number of calls that read or change a key.
type hooked struct {
	*memory
	lock sync.Mutex
	left int
	do   func()
}

func (h *hooked) after(calls int, do func()) {
	h.lock.Lock()
	h.left, h.do = calls, do
	h.lock.Unlock()
}

// asked is how many calls there were, without after.
func (h *hooked) asked() int {
	h.lock.Lock()
	defer h.lock.Unlock()
	return -h.left
}

func (h *hooked) called() {
	h.lock.Lock()
	h.left--
	now := h.left == 0
	h.lock.Unlock()
	if now {
		h.do()
	}
}

func (h *hooked) Read(ctx context.Context, keys ...string) ([][]byte, error) {
	defer h.called()
	return h.memory.Read(ctx, keys...)
}

func (h *hooked) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	defer h.called()
	return h.memory.Swap(ctx, key, old, value, ttl)
}

// cutOff is a program's own way to a memory, which can be cut.
type cutOff struct {
	*memory
	cut atomic.Bool
}

func (c *cutOff) Read(ctx context.Context, keys ...string) ([][]byte, error) {
	if c.cut.Load() {
		return nil, errDown
	}
	return c.memory.Read(ctx, keys...)
}

// busy is how long a condition may take: a busy machine may stand still for many seconds.
const busy = 2 * time.Minute

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(busy); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", busy, what)
		}
	}
}

func (m *memory) EvictionPolicy(context.Context) (policy string, maxmemory int64, err error) {
	return "noeviction", 0, m.do(func() {})
}
