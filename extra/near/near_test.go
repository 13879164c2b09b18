package near

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/rueidis"

	"github.com/balekv/bale"
	balerueidis "github.com/balekv/bale/adapter/rueidis"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/internal/testvalues"
)

func newStore(t testing.TB, addrs ...string) bale.Store {
	return balerueidis.NewStore(connect(t, rueidis.ClientOption{}, addrs...), balerueidis.StoreOptions{})
}

func TestOptions(t *testing.T) {
	cache := direct[int](t, newStore(t, redisproc.ForTest(t).Addr()))
	for _, test := range []struct {
		cache *bale.Cache[int]
		o     Options[int]
		want  string
	}{
		{nil, Options[int]{}, "near: invalid argument: no bale.Cache"},
		{cache, Options[int]{MaxBytes: -1}, "near: invalid argument: MaxBytes is -1, must be at least 65536, or 0 for 67108864"},
		{cache, Options[int]{MaxBytes: 65535}, "near: invalid argument: MaxBytes is 65535, must be at least 65536, or 0 for 67108864"},
		{cache, Options[int]{MaxAge: -time.Second}, "near: invalid argument: MaxAge is -1s, must not be negative"},
	} {
		if _, err := New(test.cache, test.o); !errors.Is(err, bale.ErrInvalid) || err.Error() != test.want {
			t.Errorf("%+v: %v", test.o, err)
		}
	}
}

// TestChangesByOthers: what others do to a key is seen, without MaxAge having a part in it.
func TestChangesByOthers(t *testing.T) {
	for _, caching := range []bool{false, true} {
		t.Run(fmt.Sprintf("client-side caching %v", caching), func(t *testing.T) {
			server := redisproc.ForTest(t)
			client := connect(t, rueidis.ClientOption{DisableCache: !caching}, server.Addr())
			near := newCache(t, balerueidis.NewStore(client, balerueidis.StoreOptions{}), Options[string]{MaxAge: time.Hour, Invalidations: invalidations(t, client, time.Second)})
			listening(t, near, 1)
			for _, test := range []struct{ commands, want string }{
				{"SET k b", "b"},
				{"DEL k", ""},
				{"PEXPIRE k 20", ""},
				{"PEXPIREAT k 1", ""},
				{"APPEND k z", "az"},
				{"FLUSHALL", ""},
				{"FLUSHDB ASYNC", ""},
				{"SET other b;RENAME other k", "b"},
				{"MSET x 1 k c y 2", "c"},
			} {
				do(t, server, "SET k a")
				kept(t, near, "k", "a")
				do(t, server, test.commands)
				await(t, test.commands+" is not seen", func() bool {
					got, err := near.Get(t.Context(), "k")
					if err != nil && !errors.Is(err, bale.ErrNotFound) {
						t.Fatal(err)
					}
					return got == test.want && (err == nil) == (test.want != "")
				})
			}
		})
	}
}

func do(t *testing.T, server *redisproc.Server, commands string) {
	t.Helper()
	for command := range strings.SplitSeq(commands, ";") {
		args := strings.Fields(command)
		for i, a := range args { // values are JSON
			if i > 0 && slices.Contains([]string{"a", "b", "c"}, a) {
				args[i] = `"` + a + `"`
			}
		}
		if args[0] == "APPEND" { // "a" becomes "az"
			args = []string{"SETRANGE", args[1], "2", `z"`}
		}
		if _, err := server.Do(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
	}
}

// kept waits until a value is kept.
func kept(t *testing.T, c *Cache[string], key, value string) {
	t.Helper()
	await(t, key+" is not kept", func() bool {
		hits := c.Stats().Hits
		got, err := c.Get(t.Context(), key)
		if err != nil && !errors.Is(err, bale.ErrNotFound) {
			t.Fatal(err)
		}
		return got == value && c.Stats().Hits > hits
	})
}

// TestOwnWrites: what a program does through the Cache it sees as soon as that has returned.
func TestOwnWrites(t *testing.T) {
	ctx := t.Context()
	near := newCache(t, newStore(t, redisproc.ForTest(t).Addr()), Options[string]{MaxAge: time.Hour})
	for name, test := range map[string]struct {
		do   func() error
		want string
	}{
		"Set":     {func() error { return near.Set(ctx, "k", "b") }, "b"},
		"SetMany": {func() error { return near.SetMany(ctx, map[string]string{"k": "b", "l": "c"}) }, "b"},
		"Touch":   {func() error { return near.Touch(ctx, "k", bale.ExpireAt(time.Unix(1, 0))) }, ""},
		"Delete": {func() error {
			n, err := near.Delete(ctx, "none", "k")
			if n != 1 {
				err = fmt.Errorf("%d deleted", n)
			}
			return err
		}, ""},
	} {
		if err := near.Set(ctx, "k", "a"); err != nil {
			t.Fatal(err)
		}
		kept(t, near, "k", "a")
		if err := test.do(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, err := near.Get(ctx, "k")
		if got != test.want || (test.want == "") != errors.Is(err, bale.ErrNotFound) {
			t.Errorf("after %s: %q, %v", name, got, err)
		}
		many, err := near.GetMany(ctx, "k")
		if err != nil || many["k"] != test.want {
			t.Errorf("after %s: %q, %v", name, many, err)
		}
	}
}

// TestOwnWritesAgainstReaders: many read all the time, and what they read is not what is there when
// a Set has returned.
func TestOwnWritesAgainstReaders(t *testing.T) {
	ctx := t.Context()
	near := newCache(t, newStore(t, redisproc.ForTest(t).Addr()), Options[int]{MaxAge: time.Hour})
	done := make(chan struct{})
	var readers sync.WaitGroup
	for i := range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					runtime.Gosched() // or these have the processors to themselves
				}
				var err error
				switch i % 3 {
				case 0:
					_, err = near.Get(ctx, "k")
				case 1:
					_, err = near.GetMany(ctx, "k", "l")
				default:
					_, err = getOrLoad(ctx, near, "k", none)
				}
				if err != nil && !errors.Is(err, bale.ErrNotFound) {
					t.Error(err)
					return
				}
			}
		})
	}
	for n := range 300 {
		if err := near.Set(ctx, "k", n); err != nil {
			t.Fatal(err)
		}
		if got, err := near.Get(ctx, "k"); err != nil || got != n {
			t.Errorf("%d was set, then got %d, %v", n, got, err)
			break
		}
		if got, err := near.GetMany(ctx, "k"); err != nil || got["k"] != n {
			t.Errorf("%d was set, then got %d, %v", n, got["k"], err)
			break
		}
		if got, err := getOrLoad(ctx, near, "k", none); err != nil || got != n {
			t.Errorf("%d was set, then got %d, %v", n, got, err)
			break
		}
	}
	close(done)
	readers.Wait()
	if near.Stats().Hits == 0 {
		t.Error("nothing was kept")
	}
}

// TestChangeWhileReading: a value that changed after Redis was asked is not kept, whoever changed
// it. A call after the change does not get the old value from the read in flight.
func TestChangeWhileReading(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	client := connect(t, rueidis.ClientOption{}, server.Addr())
	for name, change := range map[string]func(c *Cache[string]){
		"by another": func(c *Cache[string]) {
			before := c.Stats().Invalidations
			do(t, server, "SET k b")
			await(t, "no invalidation", func() bool { return c.Stats().Invalidations > before })
		},
		"by Set": func(c *Cache[string]) {
			if err := c.Set(ctx, "k", "b"); err != nil {
				t.Error(err)
			}
		},
		"flushed": func(c *Cache[string]) {
			before := c.Stats().Resets
			do(t, server, "FLUSHALL")
			await(t, "no reset", func() bool { return c.Stats().Resets > before })
			do(t, server, "SET k b")
		},
	} {
		for _, many := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, many %v", name, many), func(t *testing.T) {
				do(t, server, "SET k a")
				store := &gated{Store: balerueidis.NewStore(client, balerueidis.StoreOptions{}), gate: make(chan struct{}), read: make(chan struct{}, 1)}
				near := newCache(t, store, Options[string]{MaxAge: time.Hour, Invalidations: invalidations(t, client, time.Second)})
				listening(t, near, 1)
				get := func() (string, error) {
					if !many {
						return near.Get(ctx, "k")
					}
					got, err := near.GetMany(ctx, "k", "l")
					return got["k"], err
				}
				first := make(chan string)
				go func() {
					got, err := get()
					if err != nil {
						t.Error(err)
					}
					first <- got
				}()
				next(t, store.read)
				change(near)
				second := make(chan string)
				go func() {
					got, err := get()
					if err != nil {
						t.Error(err)
					}
					second <- got
				}()
				next(t, store.read) // it reads for itself
				store.gate <- struct{}{}
				store.gate <- struct{}{}
				if got := <-first; got != "a" && got != "b" {
					t.Errorf("got %q", got)
				}
				if got := <-second; got != "b" {
					t.Errorf("after the change a call got %q", got)
				}
				close(store.gate)
				store.read = nil
				if got, err := get(); err != nil || got != "b" {
					t.Errorf("then %q, %v", got, err)
				}
			})
		}
	}
}

// TestOneReading: all who miss a key at once share a reading.
func TestOneReading(t *testing.T) {
	const callers = 1000
	ctx := t.Context()
	store := &gated{Store: newStore(t, redisproc.ForTest(t).Addr()), gate: make(chan struct{})}
	near := newCache(t, store, Options[string]{MaxAge: time.Hour})
	if err := near.Set(ctx, "k", "a"); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			var got string
			var err error
			if i%2 == 0 {
				got, err = near.Get(ctx, "k")
			} else {
				var many map[string]string
				many, err = near.GetMany(ctx, "k", "k")
				got = many["k"]
			}
			if err != nil || got != "a" {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	await(t, "not all have missed", func() bool { return near.Stats().Misses == callers/2*3 })
	close(store.gate)
	all.Wait()
	if n := store.gets.Load(); n != 1 {
		t.Errorf("%d readings", n)
	}
}

// TestContexts: one who gives up does not make others fail, and one who waits can give up.
func TestContexts(t *testing.T) {
	for _, many := range []bool{false, true} {
		t.Run(fmt.Sprintf("many %v", many), func(t *testing.T) {
			store := &gated{Store: newStore(t, redisproc.ForTest(t).Addr()), gate: make(chan struct{}), read: make(chan struct{})}
			near := newCache(t, store, Options[string]{MaxAge: time.Hour})
			if err := near.Set(t.Context(), "k", "a"); err != nil {
				t.Fatal(err)
			}
			get := func(ctx context.Context) <-chan error {
				result := make(chan error)
				go func() {
					var got string
					var err error
					if many {
						var values map[string]string
						values, err = near.GetMany(ctx, "k", "none")
						got = values["k"]
					} else {
						got, err = near.Get(ctx, "k")
					}
					if err == nil && got != "a" {
						err = fmt.Errorf("got %q", got)
					}
					result <- err
				}()
				return result
			}
			misses := func(n uint64) {
				if many {
					n *= 2
				}
				await(t, "not all have missed", func() bool { return near.Stats().Misses == n })
			}
			firstCtx, cancelFirst := context.WithCancel(t.Context())
			first := get(firstCtx)
			next(t, store.read)
			secondCtx, cancelSecond := context.WithCancel(t.Context())
			second, third := get(secondCtx), get(t.Context())
			misses(3)
			cancelSecond()
			if err := <-second; !errors.Is(err, context.Canceled) {
				t.Errorf("one who waits and gives up: %v", err)
			}
			cancelFirst()
			if err := <-first; !errors.Is(err, context.Canceled) {
				t.Errorf("one who reads and gives up: %v", err)
			}
			next(t, store.read) // by the third, for himself
			close(store.gate)
			if err := <-third; err != nil {
				t.Errorf("one who does not give up: %v", err)
			}
		})
	}
}

// TestPanic: a reading that panics leaves no one waiting.
func TestPanic(t *testing.T) {
	for _, many := range []bool{false, true} {
		store := &gated{Store: newStore(t, redisproc.ForTest(t).Addr()), gate: make(chan struct{}), read: make(chan struct{}), panic: true}
		near := newCache(t, store, Options[string]{MaxAge: time.Hour})
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				defer func() {
					if recover() == nil {
						t.Error("it did not panic")
					}
				}()
				if many {
					near.GetMany(t.Context(), "k", "l")
				} else {
					near.Get(t.Context(), "k")
				}
			})
		}
		for range 2 { // one after the other, for the second waits for the first at first
			next(t, store.read)
			store.gate <- struct{}{}
		}
		readers.Wait()
	}
}

// TestErrorsAreNotKept, nor that a key does not exist.
func TestErrorsAreNotKept(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	near := newCache(t, newStore(t, server.Addr()), Options[string]{MaxAge: time.Hour})
	for range 2 {
		if _, err := near.Get(ctx, "k"); !errors.Is(err, bale.ErrNotFound) {
			t.Error(err)
		}
	}
	if _, err := server.Do(ctx, "SET", "k", "no JSON"); err != nil {
		t.Fatal(err)
	}
	var keyErr *bale.KeyError
	for range 2 {
		if _, err := near.Get(ctx, "k"); !errors.As(err, &keyErr) || keyErr.Key != "k" {
			t.Error(err)
		}
	}
	do(t, server, "SET l a")
	got, err := near.GetMany(ctx, "k", "l", "none", "l")
	var keyErrs bale.KeyErrors
	if !errors.As(err, &keyErrs) || len(keyErrs) != 1 || keyErrs[0].Key != "k" {
		t.Error(err)
	}
	if diff := cmp.Diff(map[string]string{"l": "a"}, got); diff != "" {
		t.Error(diff)
	}
	do(t, server, "SET k b")
	if got, err := near.Get(ctx, "k"); err != nil || got != "b" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := near.GetMany(ctx); err != nil || len(got) != 0 {
		t.Errorf("of no keys: %q, %v", got, err)
	}
	server.Kill()
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if got, err := near.GetMany(short, "k", "m"); err == nil || got["k"] != "b" {
		t.Errorf("without a server: %q, %v", got, err)
	}
}

// none is a loader that has nothing.
func none(context.Context) (int, error) { return 0, bale.ErrNotFound }

// TestGetOrLoad: what was loaded is kept, unless it has changed meanwhile, or is older than it
// should be.
func TestGetOrLoad(t *testing.T) {
	ctx := t.Context()
	cache, err := bale.New(newStore(t, redisproc.ForTest(t).Addr()), bale.Options[int]{Load: bale.LoadOptions{StaleIfError: time.Hour, Beta: -1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cache.Close() })
	near, err := New(cache, Options[int]{MaxAge: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(near.Close)
	loads := 0
	var meanwhile func()
	var fails error
	get := func(want int, wantErr error, wantHit bool) {
		t.Helper()
		hits := near.Stats().Hits
		got, err := getOrLoad(ctx, near, "k", func(context.Context) (int, error) {
			loads++
			if meanwhile != nil {
				meanwhile()
			}
			return loads, fails
		}, bale.TTL(50*time.Millisecond))
		if got != want || !errors.Is(err, wantErr) || near.Stats().Hits-hits == 1 != wantHit {
			t.Errorf("got %d, %v, a hit %v; want %d, %v, %v", got, err, near.Stats().Hits-hits == 1, want, wantErr, wantHit)
		}
	}
	get(1, nil, false)
	get(1, nil, true)
	if got, err := near.Get(ctx, "k"); err != nil || got != 1 {
		t.Errorf("%d, %v", got, err)
	}
	near.drop("k")
	await(t, "the value does not expire", func() bool {
		_, err := cache.Get(ctx, "k")
		return errors.Is(err, bale.ErrNotFound)
	})
	fails = errors.New("no such luck")
	get(1, nil, false) // the old one
	get(1, nil, false) // is not kept
	if _, err := near.Delete(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	get(0, fails, false)
	get(0, fails, false)
	fails = bale.ErrNotFound
	get(0, bale.ErrNotFound, false)
	fails = nil
	meanwhile = func() { near.drop("k") }
	get(loads+1, nil, false)
	meanwhile = nil
	hits := near.Stats().Hits
	if _, err := near.Get(ctx, "k"); err != nil && !errors.Is(err, bale.ErrNotFound) || near.Stats().Hits > hits {
		t.Errorf("what has changed during its load is kept; %v", err)
	}
	quiet(t, near)
	if _, err := near.Delete(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	get(loads+1, nil, false)
	get(loads, nil, true)
}

// TestClone: what a caller does to its value, nobody else sees.
func TestClone(t *testing.T) {
	ctx := t.Context()
	near := newCache(t, newStore(t, redisproc.ForTest(t).Addr()), Options[[]string]{MaxAge: time.Hour, Clone: slices.Clone[[]string]})
	want := []string{"a", "b"}
	if err := near.Set(ctx, "k", want); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		got, err := near.Get(ctx, "k")
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%q, %v", got, err)
		}
		clear(got)
		many, err := near.GetMany(ctx, "k", "k")
		if err != nil || !slices.Equal(many["k"], want) {
			t.Fatalf("%q, %v", many, err)
		}
		clear(many["k"])
	}
	if _, err := near.Delete(ctx, "k"); err != nil {
		t.Fatal(err)
	}
	began, gate := near.Stats().Misses, make(chan struct{})
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			got, err := getOrLoad(ctx, near, "k", func(context.Context) ([]string, error) { <-gate; return slices.Clone(want), nil })
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%q, %v", got, err)
			}
			clear(got)
		})
	}
	await(t, "not all have missed", func() bool { return near.Stats().Misses == began+10 })
	close(gate)
	all.Wait()
	if got, err := near.Get(ctx, "k"); err != nil || !slices.Equal(got, want) {
		t.Errorf("what is kept is %q, %v", got, err)
	}
}

// TestMemory: what is kept never takes more than MaxBytes, and is counted exactly.
func TestMemory(t *testing.T) {
	const maxBytes = 1 << 20
	ctx := t.Context()
	near := newCache(t, newStore(t, redisproc.ForTest(t).Addr()), Options[string]{MaxAge: time.Hour, MaxBytes: maxBytes})
	values := map[string]string{}
	total := 0
	for i := 0; total < 10*maxBytes; i++ {
		v := strings.Repeat("x", 100+i*7919%20000)
		total += len(v)
		values[fmt.Sprint("key:", i)] = v
	}
	if err := near.SetMany(ctx, values); err != nil {
		t.Fatal(err)
	}
	sum := func() (n int64) {
		for key, e := range near.entries.All() {
			n += int64(len(key) + len(e.Value))
		}
		return n
	}
	var readers sync.WaitGroup
	var most atomic.Int64
	for r := range 4 {
		readers.Go(func() {
			for key, v := range values { // each in an order of its own
				got, err := near.Get(ctx, key)
				if err != nil || got != v {
					t.Errorf("%q: %d bytes, %v", key, len(got), err)
				}
				now := near.Stats().Bytes
				if r == 0 {
					now = max(now, sum())
				}
				for {
					if m := most.Load(); now <= m || most.CompareAndSwap(m, now) {
						break
					}
				}
			}
		})
	}
	readers.Wait()
	if m := most.Load(); m > maxBytes {
		t.Errorf("%d bytes were kept at most", m)
	}
	near.entries.CleanUp()
	var exact int64
	for key, e := range near.entries.All() {
		if want := int64(len(key)+len(e.Value)+16) + overhead; e.size != want {
			t.Errorf("%q is counted with %d bytes, %d expected", key, e.size, want)
		}
		exact += e.size
	}
	s := near.Stats()
	if s.Bytes != exact || exact > maxBytes || exact < maxBytes/2 || s.Evictions == 0 || s.Entries == 0 {
		t.Errorf("%d bytes are kept: %+v", exact, s)
	}

	large := strings.Repeat("x", maxBytes/largestPart)
	if err := near.Set(ctx, "large", large); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got, err := near.Get(ctx, "large"); err != nil || got != large {
			t.Errorf("%d bytes, %v", len(got), err)
		}
	}
	if n := near.Stats().TooLarge; n != 2 {
		t.Errorf("%d values were too large", n)
	}
	// As many as can, of the largest size there may be: otter alone removes them too late.
	var writers sync.WaitGroup
	part := strings.Repeat("x", maxBytes/largestPart-1000)
	for w := range 8 {
		writers.Go(func() {
			for i := range 2000 {
				if _, err := near.miss(ctx, want{fmt.Sprint(w, i), false}, near.now(), func(context.Context) (bale.Entry[string], error) { return bale.Entry[string]{Value: part}, nil }); err != nil {
					t.Error(err)
				}
				if n := near.Stats().Bytes; n > maxBytes {
					t.Errorf("%d bytes are kept", n)
					return
				}
			}
		})
	}
	writers.Wait()
	near.Close()
	if s := near.Stats(); s.Bytes != 0 || s.Entries != 0 {
		t.Errorf("nothing is kept: %+v", s)
	}
}

// TestMemoryIsFreed: what is too old goes by itself.
func TestMemoryIsFreed(t *testing.T) {
	near := newCache(t, newStore(t, redisproc.ForTest(t).Addr()), Options[string]{MaxAge: 10 * time.Millisecond})
	if err := near.Set(t.Context(), "k", "a"); err != nil {
		t.Fatal(err)
	}
	await(t, "nothing is kept", func() bool {
		if _, err := near.Get(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		return near.Stats().Bytes > 0
	})
	await(t, "nothing is freed", func() bool { return near.Stats().Bytes == 0 })
}

// TestReset: nothing of before is served, though its memory is freed later.
func TestReset(t *testing.T) {
	server := redisproc.ForTest(t)
	near := newCache(t, newStore(t, server.Addr()), Options[string]{MaxAge: time.Hour})
	do(t, server, "SET k a")
	kept(t, near, "k", "a")
	do(t, server, "SET k b")
	near.changed(nil)
	if near.Stats().Bytes == 0 {
		t.Error("the memory was freed at once, and this test shows nothing")
	}
	if got, err := near.Get(t.Context(), "k"); err != nil || got != "b" {
		t.Errorf("%q, %v", got, err)
	}
	kept(t, near, "k", "b")
}

// TestMemoryAfterReset: what cannot be served any more is not kept either.
func TestMemoryAfterReset(t *testing.T) {
	server := redisproc.ForTest(t)
	client := connect(t, rueidis.ClientOption{}, server.Addr())
	near := newCache(t, balerueidis.NewStore(client, balerueidis.StoreOptions{}), Options[string]{MaxAge: time.Hour, Invalidations: invalidations(t, client, time.Second)})
	listening(t, near, 1)
	do(t, server, "SET k a")
	kept(t, near, "k", "a")
	do(t, server, "FLUSHALL")
	await(t, "nothing is freed", func() bool { return near.Stats().Bytes == 0 })
}

// TestClose: then nothing is kept, and values are read as without a near cache.
func TestClose(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	client := connect(t, rueidis.ClientOption{}, server.Addr())
	near := newCache(t, balerueidis.NewStore(client, balerueidis.StoreOptions{}), Options[string]{Invalidations: invalidations(t, client, time.Second)})
	listening(t, near, 1)
	do(t, server, "SET k a")
	kept(t, near, "k", "a")
	near.Close()
	do(t, server, "SET k b")
	for range 3 {
		if got, err := near.Get(ctx, "k"); err != nil || got != "b" {
			t.Errorf("%q, %v", got, err)
		}
	}
	if s := near.Stats(); s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
	near.Close()
}

// failing are Invalidations that never work.
type failing struct{ listened atomic.Int64 }

func (f *failing) Listen(context.Context, func([]string)) error {
	f.listened.Add(1)
	return errors.New("no such luck")
}

func (*failing) Covers(string) bool { return true }

// TestListenFails: the error is logged, and Listen is called again; values are kept for MaxAge
// until then.
func TestListenFails(t *testing.T) {
	server := redisproc.ForTest(t)
	var log bytes.Buffer
	from := new(failing)
	near := newCache(t, newStore(t, server.Addr()), Options[string]{MaxAge: time.Hour, Invalidations: from, Log: slog.New(slog.NewTextHandler(&log, nil))})
	do(t, server, "SET k a")
	kept(t, near, "k", "a")
	await(t, "it is not tried again", func() bool { return from.listened.Load() >= 2 })
	near.Close()
	if !strings.Contains(log.String(), "no such luck") {
		t.Errorf("the log has %q", &log)
	}
}

// TestAllocations: a hit allocates nothing.
func TestAllocations(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector allocates")
	}
	ctx := t.Context()
	near := newCache(t, newStore(t, redisproc.ForTest(t).Addr()), Options[string]{MaxAge: time.Hour})
	if err := near.Set(ctx, "k", "a"); err != nil {
		t.Fatal(err)
	}
	kept(t, near, "k", "a")
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := near.Get(ctx, "k"); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	load := func(context.Context) (string, error) { return "", bale.ErrNotFound }
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := getOrLoad(ctx, near, "k", load); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations by GetOrLoad", n)
	}
}

func BenchmarkGetKept(b *testing.B) {
	ctx := b.Context()
	near := newCache(b, newStore(b, redisproc.ForTest(b).Addr()), Options[string]{MaxAge: time.Hour})
	if err := near.Set(ctx, "shop:user:1", "a"); err != nil {
		b.Fatal(err)
	}
	if _, err := near.Get(ctx, "shop:user:1"); err != nil {
		b.Fatal(err)
	}
	get := func() {
		if _, err := near.Get(ctx, "shop:user:1"); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			get()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				get()
			}
		})
	})
}

// TestKeysThatAreNotCovered: of what nobody tells, values get no older than without Invalidations.
func TestKeysThatAreNotCovered(t *testing.T) {
	cache, err := bale.New(newStore(t, redisproc.ForTest(t).Addr()), bale.Options[int]{})
	if err != nil {
		t.Fatal(err)
	}
	near, err := New(cache, Options[int]{Invalidations: prefixed("user:")})
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	await(t, "it does not listen", func() bool { return near.resets.Load() > 0 })
	for key, want := range map[string]time.Duration{"user:1": time.Minute, "use": time.Second, "other": time.Second} {
		if got := near.maxAgeOf(key); got != want {
			t.Errorf("%s gets %v old, want %v", key, got, want)
		}
		if err := cache.Set(t.Context(), key, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := near.Get(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		if near.lookup(key, near.now()+want-100*time.Millisecond) == nil {
			t.Errorf("%s is not kept until it is %v old", key, want)
		}
		if near.lookup(key, near.now()+want+time.Millisecond) != nil {
			t.Errorf("%s is kept longer", key)
		}
	}
}

// TestJoin: a call joins no reading that began longer ago than the key's age, or before a reset.
func TestJoin(t *testing.T) {
	near := newCache(t, &gated{}, Options[int]{Invalidations: prefixed("user:")})
	await(t, "it does not listen", func() bool { return near.resets.Load() > 0 })
	for key, age := range map[string]time.Duration{"user:1": time.Minute, "other": time.Second} {
		for _, load := range []bool{false, true} {
			w := want{key, load}
			f, _, _ := near.join(w, near.now())
			if same, mine, _ := near.join(w, f.began+age); same != f || mine {
				t.Errorf("%v: a reading that began %v ago is not joined", w, age)
			}
			if _, mine, _ := near.join(w, f.began+age+1); !mine {
				t.Errorf("%v: a reading that began more than %v ago is joined", w, age)
			}
			near.resets.Add(1)
			if _, mine, _ := near.join(w, near.now()); !mine {
				t.Errorf("%v: a reading that began before a reset is joined", w)
			}
		}
	}
}

// prefixed are Invalidations that never tell, of keys that begin so.
type prefixed string

func (p prefixed) Covers(key string) bool { return strings.HasPrefix(key, string(p)) }

func (prefixed) Listen(ctx context.Context, changed func([]string)) error {
	changed(nil)
	<-ctx.Done()
	return ctx.Err()
}
