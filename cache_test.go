package bale

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

type user struct {
	Name string
	Bio  string
	Age  int
}

var grace = user{"Grace Hopper", strings.Repeat("Found the first bug. ", 30), 85}

// memory is a Store that keeps what it is given, and its expiries, in maps.
type memory struct {
	mu       sync.Mutex
	values   map[string][]byte
	expiries map[string]Expiry
	writes   int
	fail     error           // of every operation
	refuse   map[string]bool // keys of operations on many
}

func newMemory() *memory {
	return &memory{values: map[string][]byte{}, expiries: map[string]Expiry{}}
}

func (m *memory) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.values[key]
	if m.fail != nil {
		return nil, m.fail
	}
	if !ok {
		return nil, ErrNotFound
	}
	return bytes.Clone(v), nil
}

func (m *memory) Set(_ context.Context, key string, value []byte, e Expiry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	m.writes++
	m.values[key], m.expiries[key] = append([]byte{}, value...), e
	return nil
}

func (m *memory) Swap(_ context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return false, m.fail
	}
	v, ok := m.values[key]
	if ok != (old != nil) || !bytes.Equal(v, old) {
		return false, nil
	}
	if value == nil {
		delete(m.values, key)
	} else {
		m.values[key], m.expiries[key] = bytes.Clone(value), TTL(ttl)
	}
	return true, nil
}

func (m *memory) GetMany(ctx context.Context, keys []string) ([][]byte, error) {
	values := make([][]byte, len(keys))
	var failed KeyErrors
	for i, key := range keys {
		if m.refuse[key] {
			failed = append(failed, &KeyError{"get", key, errors.New("refused")})
			continue
		}
		v, err := m.Get(ctx, key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		values[i] = v
	}
	if failed != nil {
		return values, failed
	}
	return values, nil
}

func (m *memory) SetMany(ctx context.Context, items []Item) error {
	var failed KeyErrors
	for _, item := range items {
		if m.refuse[item.Key] {
			failed = append(failed, &KeyError{"set", item.Key, errors.New("refused")})
		} else if err := m.Set(ctx, item.Key, item.Value, item.Expiry); err != nil {
			return err
		}
	}
	if failed != nil {
		return failed
	}
	return nil
}

func (m *memory) Delete(_ context.Context, keys []string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, key := range keys {
		if _, ok := m.values[key]; ok {
			delete(m.values, key)
			n++
		}
	}
	return n, m.fail
}

func (m *memory) Touch(_ context.Context, key string, e Expiry) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.values[key]
	if ok {
		m.expiries[key] = e
	}
	return ok, m.fail
}

func newCache(t *testing.T, o Options[user]) (*Cache[user], *memory) {
	t.Helper()
	m := newMemory()
	c, err := New(m, o)
	if err != nil {
		t.Fatal(err)
	}
	return c, m
}

func TestCache(t *testing.T) {
	ctx := t.Context()
	for name, o := range map[string]Options[user]{
		"default": {},
		"gob":     {Codec: codec.Gob[user]{}},
		"plain":   {Packer: newPacker(t, PackerOptions{Compressors: &compress.Set{Write: compress.None}})},
	} {
		t.Run(name, func(t *testing.T) {
			c, m := newCache(t, o)
			if _, err := c.Get(ctx, "k"); err != ErrNotFound {
				t.Errorf("missing key: %v", err)
			}
			if err := c.Set(ctx, "k", grace, TTL(time.Minute)); err != nil {
				t.Fatal(err)
			}
			if got, err := c.Get(ctx, "k"); err != nil || got != grace {
				t.Errorf("%v, %v", got, err)
			}
			if _, _, packed := frame.Parse(m.values["k"]); packed != (name != "plain") {
				t.Errorf("packed %v", packed)
			}
			values := map[string]user{"a": grace, "b": {Name: "B"}, "c": {Age: 3}}
			if err := c.SetMany(ctx, values); err != nil {
				t.Fatal(err)
			}
			got, err := c.GetMany(ctx, "a", "none", "b", "c", "a")
			if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(values, got); diff != "" {
				t.Error(diff)
			}
			if n, err := c.Delete(ctx, "a", "none"); n != 1 || err != nil {
				t.Errorf("delete: %d, %v", n, err)
			}
			if err := c.Touch(ctx, "a", TTL(time.Hour)); err != ErrNotFound {
				t.Errorf("touch of a missing key: %v", err)
			}
			if err := c.Touch(ctx, "b", TTL(time.Hour)); err != nil || m.expiries["b"] != TTL(time.Hour) {
				t.Errorf("touch: %v, %v", m.expiries["b"], err)
			}
			writes := m.writes
			if err := c.SetMany(ctx, nil); err != nil || m.writes != writes {
				t.Errorf("nothing set: %v", err)
			}
			if got, err := c.GetMany(ctx); len(got) != 0 || got == nil || err != nil {
				t.Errorf("nothing got: %v, %v", got, err)
			}
			if n, err := c.Delete(ctx); n != 0 || err != nil {
				t.Errorf("nothing deleted: %d, %v", n, err)
			}
		})
	}
}

func TestPlainValuesAreRead(t *testing.T) {
	c, m := newCache(t, Options[user]{})
	m.values["k"] = []byte(`{"Name":"from another program"}`)
	if got, err := c.Get(t.Context(), "k"); err != nil || got.Name != "from another program" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestDecodeErrors(t *testing.T) {
	ctx := t.Context()
	c, m := newCache(t, Options[user]{})
	if err := c.SetMany(ctx, map[string]user{"good": grace, "bad": grace}); err != nil {
		t.Fatal(err)
	}
	m.values["bad"][len(m.values["bad"])-1] ^= 1
	m.values["not json"] = []byte(`{"Name":"half a va`)
	packedText, err := newPacker(t, PackerOptions{}).Pack(nil, []byte(`{"Name":`+strings.Repeat(" ", 100)+`"half`))
	if err != nil {
		t.Fatal(err)
	}
	m.values["packed, not json"] = packedText
	before := maps.Clone(m.values)
	for key, test := range map[string]struct{ corrupt, algorithm bool }{"bad": {true, true}, "not json": {false, false}, "packed, not json": {false, true}} {
		got, err := c.Get(ctx, key)
		var ke *KeyError
		var de *DecodeError
		if !errors.As(err, &ke) || ke.Key != key || ke.Op != "get" || !strings.Contains(err.Error(), fmt.Sprintf("%q", key)) {
			t.Errorf("%s: the key is not named: %v", key, err)
		}
		if errors.Is(err, ErrCorrupt) != test.corrupt || errors.As(err, &de) != test.algorithm || test.algorithm && !strings.Contains(err.Error(), "zstd") {
			t.Errorf("%s: %v", key, err)
		}
		if got != (user{}) {
			t.Errorf("%s: a part of a value is handed out: %v", key, got)
		}
	}
	got, err := c.GetMany(ctx, "good", "bad", "none", "not json")
	var failed KeyErrors
	if !errors.As(err, &failed) || len(failed) != 2 || failed[0].Key != "bad" || failed[1].Key != "not json" || !errors.Is(err, ErrCorrupt) {
		t.Errorf("GetMany: %v", err)
	}
	if diff := cmp.Diff(map[string]user{"good": grace}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before, m.values); diff != "" {
		t.Errorf("a value that cannot be read was touched: %s", diff)
	}
}

func TestStoreErrors(t *testing.T) {
	ctx := t.Context()
	c, m := newCache(t, Options[user]{})
	m.refuse = map[string]bool{"no": true}
	err := c.SetMany(ctx, map[string]user{"yes": grace, "no": grace})
	var failed KeyErrors
	if !errors.As(err, &failed) || len(failed) != 1 || failed[0].Key != "no" {
		t.Errorf("SetMany: %v", err)
	}
	got, err := c.GetMany(ctx, "yes", "no")
	if !errors.As(err, &failed) || len(failed) != 1 || got["yes"] != grace {
		t.Errorf("GetMany: %v, %v", got, err)
	}
	m.fail = errors.New("down")
	for op, err := range map[string]error{
		"get": errorOf(c.Get(ctx, "k")), "set": c.Set(ctx, "k", grace), "getmany": errorOf(c.GetMany(ctx, "k")), "setmany": c.SetMany(ctx, map[string]user{"k": grace}),
		"delete": errorOf(c.Delete(ctx, "k")), "touch": c.Touch(ctx, "k"),
	} {
		if !errors.Is(err, m.fail) || !strings.HasPrefix(err.Error(), "bale: ") {
			t.Errorf("%s: %v", op, err)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }

func TestNothingIsSentIfOneValueCannotBeEncoded(t *testing.T) {
	m := newMemory()
	c, err := New[any](m, Options[any]{})
	if err != nil {
		t.Fatal(err)
	}
	err = c.SetMany(t.Context(), map[string]any{"a": 1, "b": func() {}, "c": 2})
	var failed KeyErrors
	if !errors.As(err, &failed) || len(failed) != 1 || failed[0].Key != "b" || m.writes != 0 {
		t.Errorf("%v, %d writes", err, m.writes)
	}
	if err := c.Set(t.Context(), "b", func() {}); err == nil || m.writes != 0 {
		t.Errorf("%v, %d writes", err, m.writes)
	}
}

func TestExpiry(t *testing.T) {
	ctx := t.Context()
	at := time.Now().Add(time.Hour)
	c, m := newCache(t, Options[user]{TTL: time.Minute})
	for name, test := range map[string]struct{ in, want Expiry }{
		"default": {Expiry{}, TTL(time.Minute)}, "own": {TTL(time.Second), TTL(time.Second)}, "absolute": {ExpireAt(at), ExpireAt(at)}, "never": {NoExpiry(), NoExpiry()},
	} {
		if err := c.Set(ctx, name, grace, test.in); err != nil || m.expiries[name] != test.want {
			t.Errorf("%s: %v, %v", name, m.expiries[name], err)
		}
		if err := c.SetMany(ctx, map[string]user{name: grace}, test.in); err != nil || m.expiries[name] != test.want {
			t.Errorf("%s of many: %v, %v", name, m.expiries[name], err)
		}
		if err := c.Touch(ctx, name, test.in); err != nil || m.expiries[name] != test.want {
			t.Errorf("%s touched: %v, %v", name, m.expiries[name], err)
		}
	}
	for _, e := range []Expiry{TTL(-1), TTL(1), ExpireAt(time.Unix(-5, 0))} {
		for op, err := range map[string]error{"set": c.Set(ctx, "k", grace, e), "setmany": c.SetMany(ctx, map[string]user{"k": grace}, e), "touch": c.Touch(ctx, "k", e)} {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s with %+v: %v", op, e, err)
			}
		}
	}
	if _, ok := m.values["k"]; ok {
		t.Error("written with an invalid expiry")
	}
}

func TestJitter(t *testing.T) {
	c, m := newCache(t, Options[user]{TTL: time.Hour, Jitter: 0.25})
	values := map[string]user{}
	for i := range 400 {
		values[fmt.Sprint(i)] = user{Age: i}
	}
	if err := c.SetMany(t.Context(), values); err != nil {
		t.Fatal(err)
	}
	shortest, longest, sum := time.Hour, time.Duration(0), time.Duration(0)
	for _, e := range m.expiries {
		shortest, longest, sum = min(shortest, e.in), max(longest, e.in), sum+e.in
	}
	// The mean of 400 draws is within 1% of 52.5 minutes, with a chance of failure of one in a
	// million. The ends are reached within a minute.
	if mean := sum / 400; shortest < 45*time.Minute || shortest > 46*time.Minute || longest > time.Hour || longest < 59*time.Minute || mean < 51*time.Minute || mean > 54*time.Minute {
		t.Errorf("TTLs from %v to %v, mean %v", shortest, longest, mean)
	}
	c, m = newCache(t, Options[user]{TTL: time.Millisecond, Jitter: 1})
	for range 100 {
		if err := c.Set(t.Context(), "k", grace); err != nil || m.expiries["k"].in < time.Millisecond {
			t.Fatalf("%v, %v", m.expiries["k"], err)
		}
	}
}

func TestMillis(t *testing.T) {
	at := time.UnixMilli(1_700_000_000_123)
	for _, test := range []struct {
		e        Expiry
		ms       int64
		absolute bool
	}{
		{Expiry{}, 0, false}, {NoExpiry(), 0, false}, {TTL(1), 1, false}, {TTL(time.Millisecond), 1, false}, {TTL(time.Millisecond + 1), 2, false},
		{TTL(time.Hour), 3_600_000, false}, {ExpireAt(at), 1_700_000_000_123, true}, {ExpireAt(at.Add(1)), 1_700_000_000_124, true},
		{TTL(math.MaxInt64), math.MaxInt64 / int64(time.Millisecond), false}, // a time.Duration has room for it
	} {
		if ms, absolute := test.e.Millis(); ms != test.ms || absolute != test.absolute {
			t.Errorf("%+v: %d, %v", test.e, ms, absolute)
		}
	}
}

func TestOptionsAreChecked(t *testing.T) {
	if _, err := New[user](nil, Options[user]{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("no store: %v", err)
	}
	for _, o := range []Options[user]{{TTL: -1}, {Jitter: -0.1}, {Jitter: 1.1}} {
		if _, err := New(newMemory(), o); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}

// watchful checks that a value stays as it is for as long as it may be read.
type watchful struct {
	*memory
	t *testing.T
}

func (w watchful) Set(ctx context.Context, key string, value []byte, e Expiry) error {
	before := bytes.Clone(value)
	time.Sleep(time.Millisecond)
	if !bytes.Equal(before, value) {
		w.t.Error("the value changed while it was being stored")
	}
	return w.memory.Set(ctx, key, value, e)
}

func TestConcurrentUse(t *testing.T) {
	ctx := t.Context()
	c, err := New(watchful{newMemory(), t}, Options[[]byte]{Codec: codec.Bytes{}})
	if err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	for caller := range 16 {
		callers.Go(func() {
			var kept [][]byte
			value := bytes.Repeat([]byte{byte(caller), 'x', 'y'}, 200)
			for i := range 20 {
				key := fmt.Sprint(caller, i)
				if err := c.Set(ctx, key, value); err != nil {
					t.Error(err)
				}
				got, err := c.Get(ctx, key)
				if err != nil {
					t.Error(err)
				}
				kept = append(kept, got)
			}
			for _, got := range kept { // none is a buffer that was used again
				if !bytes.Equal(got, value) {
					t.Error("a value changed after it was handed out")
				}
			}
		})
	}
	callers.Wait()
}

func TestKeyErrorsMessage(t *testing.T) {
	var e KeyErrors
	for i := range 5 {
		e = append(e, &KeyError{"get", fmt.Sprint("k", i), ErrCorrupt})
	}
	if got, want := e.Error(), `bale: get "k0": corrupt value; bale: get "k1": corrupt value; bale: get "k2": corrupt value; and 2 more`; got != want {
		t.Errorf("%s", got)
	}
	if !errors.Is(e, ErrCorrupt) || errors.Is(e, ErrNotFound) {
		t.Error("the causes are not found")
	}
}

// TestNothingHandedOutIsUsedAgain: what a caller was given stays as it is, whatever others do, and
// what it handed in is its own again at once. With the race detector the pools' buffers are
// overwritten as they are given back.
func TestNothingHandedOutIsUsedAgain(t *testing.T) {
	c, err := New(newMemory(), Options[[]byte]{Codec: codec.Bytes{}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	value := func(w, i int) []byte { return bytes.Repeat(fmt.Appendf(nil, "value %d of %d, ", i, w), 10+i%5) }
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			var held, want [][]byte
			for i := range 200 {
				key, v := fmt.Sprint(w, ":", i), value(w, i)
				if i%7 == 0 {
					v = v[:20] // stored as it is
				}
				kept := bytes.Clone(v)
				if err := c.Set(ctx, key, v); err != nil {
					t.Error(err)
				}
				clear(v)
				got, err := c.Get(ctx, key)
				if err != nil {
					t.Error(err)
				}
				many, err := c.GetMany(ctx, key)
				if err != nil {
					t.Error(err)
				}
				loaded, err := valueOf(c.GetOrLoad(ctx, "shared"+fmt.Sprint(i), func(context.Context) ([]byte, error) { return value(0, i), nil }))
				if err != nil {
					t.Error(err)
				}
				held, want = append(held, got, many[key], loaded), append(want, kept, kept, value(0, i))
				packed, err := c.packer.Pack(nil, kept)
				if err != nil {
					t.Error(err)
				}
				held, want = append(held, packed), append(want, bytes.Clone(packed))
			}
			for i := range held {
				if !bytes.Equal(held[i], want[i]) {
					t.Errorf("what was handed out has changed to %.20q, want %.20q", held[i], want[i])
					return
				}
				clear(held[i]) // the caller's own
			}
		})
	}
	wg.Wait()
}
