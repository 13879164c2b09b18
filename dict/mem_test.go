package dict

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("the server does not answer")

// memory is a Store in memory, which can be emptied and can fail. The real one is tested in module goredis.
type memory struct {
	lock      sync.Mutex
	values    map[string][]byte
	expires   map[string]time.Time
	listeners map[chan string]bool
	down      bool
	left      int            // calls until it goes down, if not zero
	gets      map[string]int // how often each key was asked for
	swaps     map[string]int // and was to be changed
}

func newMemory() *memory {
	return &memory{values: map[string][]byte{}, expires: map[string]time.Time{}, listeners: map[chan string]bool{}, gets: map[string]int{}, swaps: map[string]int{}}
}

func (m *memory) do(f func()) error {
	m.lock.Lock()
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

func (m *memory) Get(ctx context.Context, keys ...string) (values [][]byte, err error) {
	err = m.do(func() {
		for _, k := range keys {
			m.gets[k]++
			values = append(values, bytes.Clone(m.values[k]))
		}
	})
	return values, err
}

func (m *memory) Exists(ctx context.Context, keys ...string) (exists []bool, err error) {
	err = m.do(func() {
		for _, k := range keys {
			exists = append(exists, m.values[k] != nil)
		}
	})
	return exists, err
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

// hooked is a memory in which something happens right after a key was read or changed, once.
type hooked struct {
	*memory
	hook       sync.Mutex
	read, swap map[string]func()
}

func (h *hooked) afterGet(key string, do func())  { h.after(&h.read, key, do) }
func (h *hooked) afterSwap(key string, do func()) { h.after(&h.swap, key, do) }

func (h *hooked) after(of *map[string]func(), key string, do func()) {
	h.hook.Lock()
	defer h.hook.Unlock()
	if *of == nil {
		*of = map[string]func(){}
	}
	(*of)[key] = do
}

func (h *hooked) run(of map[string]func(), key string) {
	h.hook.Lock()
	do := of[key]
	delete(of, key)
	h.hook.Unlock()
	if do != nil {
		do()
	}
}

func (h *hooked) Get(ctx context.Context, keys ...string) ([][]byte, error) {
	values, err := h.memory.Get(ctx, keys...)
	for _, k := range keys {
		h.run(h.read, k)
	}
	return values, err
}

func (h *hooked) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	ok, err := h.memory.Swap(ctx, key, old, value, ttl)
	h.run(h.swap, key)
	return ok, err
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 seconds: %s", what)
		}
	}
}
