package resilient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/internal/adapters"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/stats"
	"github.com/balekv/bale/testkit/storetest"
)

// connect makes a client that leaves retries and time-outs to the Guard.
func connect(t *testing.T, o *redis.UniversalOptions) redis.UniversalClient {
	o.MaxRetries, o.ContextTimeoutEnabled, o.DialTimeout = -1, true, time.Second
	client := redis.NewUniversalClient(o)
	t.Cleanup(func() { client.Close() })
	return client
}

// TestStoreContract: a Store behind a Guard does all that a Store must.
func TestStoreContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, d storetest.Deployment) bale.Store {
		o := all()
		o.Timeout, o.Failed = 10*time.Second, StoreFailed
		o.Breaker = Breaker{Failures: 0.9, Calls: 1000}
		o.Hedge = Hedge{Quantile: 0.95}
		options := &redis.UniversalOptions{Addrs: d.Addrs, Username: d.Username, Password: d.Password}
		if d.CA != nil {
			options.TLSConfig = &tls.Config{RootCAs: x509.NewCertPool()}
			options.TLSConfig.RootCAs.AppendCertsFromPEM(d.CA)
		}
		return NewStore(goredis.NewStore(connect(t, options)), guard(t, o))
	}, storetest.Cluster, storetest.Sentinel)
}

func TestStoreFailed(t *testing.T) {
	key := func(err error) *bale.KeyError { return &bale.KeyError{Op: "get", Key: "k", Err: err} }
	for _, test := range []struct {
		err  error
		want bool
	}{
		{bale.ErrNotFound, false},
		{errors.New("WRONGTYPE Operation against a key holding the wrong kind of value"), false},
		{key(errors.New("NOPERM this user has no permissions")), false},
		{errors.New("ERR unknown command 'UNLINK'"), false},
		{errors.New("MOVED 866 127.0.0.1:6381"), false},
		{errors.New("ASK 866 127.0.0.1:6381"), false},
		{errors.New("CLUSTERDOWN The cluster is down"), true},
		{errors.New("ERR max number of clients reached"), true},
		{errors.New("LOADING Redis is loading the dataset in memory"), true},
		{errors.New("OOM command not allowed when used memory > 'maxmemory'."), true},
		{fmt.Errorf("pipeline: %w", context.DeadlineExceeded), true},
		{syscall.ECONNREFUSED, true},
		{bale.ErrCorrupt, false},
		{key(&bale.DecodeError{Err: bale.ErrTooLarge}), false},
		{key(&bale.DecodeError{Err: bale.ErrBudget}), false},
		{key(&bale.DecodeError{Err: bale.ErrUnknownAlgorithm}), false},
		{key(&bale.DecodeError{Err: fmt.Errorf("%w: it could not be fetched: %w", bale.ErrUnknownDictionary, syscall.ECONNREFUSED)}), false},
		{key(&bale.DecodeError{Err: fmt.Errorf("%w: %w", bale.ErrUnknownDictionary, context.DeadlineExceeded)}), false},
		{fmt.Errorf("set: %w", bale.ErrInvalid), false},
		{&goredis.CommandError{Command: "append", Key: "k", Reason: "it appends to packed bytes"}, false},
		{bale.KeyErrors{key(errors.New("WRONGTYPE x")), key(bale.ErrNotFound), key(bale.ErrCorrupt)}, false},
		{bale.KeyErrors{key(bale.ErrCorrupt), key(syscall.ECONNRESET)}, true},
		{bale.KeyErrors{key(errors.New("WRONGTYPE x")), key(syscall.ECONNRESET)}, true},
		{bale.KeyErrors{key(&bale.DecodeError{Err: context.DeadlineExceeded}), key(context.DeadlineExceeded)}, true},
	} {
		if got := StoreFailed(test.err); got != test.want {
			t.Errorf("%v: %v", test.err, got)
		}
		if got := guard(t, Options{Failed: StoreFailed}).failed(test.err); got != test.want {
			t.Errorf("%v: %v for a Guard", test.err, got)
		}
	}
}

// TestDeadRedis: a program whose Redis stops answering loads its values without it, and comes back
// to it.
func TestDeadRedis(t *testing.T) {
	t.Parallel()
	server := redisproc.ForTest(t)
	g := guard(t, Options{
		Name: "cache", Timeout: 200 * time.Millisecond, Retry: Retry{Tries: 2}, Failed: StoreFailed,
		Breaker: Breaker{Failures: 0.5, Calls: 5, Open: 200 * time.Millisecond, Probes: 1},
	})
	cache, err := bale.New(NewStore(goredis.NewStore(connect(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}})), g), bale.Options[string]{})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	load := func(context.Context) (string, error) { return "loaded", nil }
	get := func(key string) error {
		e, err := cache.GetOrLoad(t.Context(), key, load)
		if err == nil && e.Value != "loaded" {
			t.Errorf("%s: %q", key, e.Value)
		}
		return err
	}
	until := func(what string, met func() bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !met(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %+v", what, g.Stats())
			}
		}
	}
	until("stored", func() bool {
		if err := get("k"); err != nil {
			t.Fatal(err)
		}
		v, err := cache.Get(t.Context(), "k")
		return err == nil && v == "loaded"
	})
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume := sync.OnceFunc(func() { syscall.Kill(server.PID(), syscall.SIGCONT) })
	defer resume()
	n := 0
	until("open", func() bool {
		n++
		if err := get(strconv.Itoa(n)); err != nil {
			t.Fatal(err)
		}
		return g.Stats().State == Opened
	})
	before := g.Stats()
	for range 1000 {
		n++
		if err := get(strconv.Itoa(n)); err != nil {
			t.Fatal(err)
		}
	}
	if s := g.Stats(); s.Open < before.Open+500 || s.Tries > before.Tries+100 {
		t.Errorf("%+v, before %+v", s, before)
	}
	if _, err := cache.Get(t.Context(), "k"); !errors.Is(err, ErrRejected) && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	} else if got := bale.ErrorClass(err); errors.Is(err, ErrRejected) != (got == stats.Rejected) {
		t.Errorf("%v is %v", err, got)
	}
	resume()
	until("back", func() bool {
		v, err := cache.Get(t.Context(), "k")
		return err == nil && v == "loaded" && g.Stats().State == Closed
	})
}

// TestAtOnce: before a Redis that does not answer, GetOrLoad takes as long as the load once the
// breaker is open, and not a nanosecond of a simulated clock longer.
func TestAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, Options{Timeout: 50 * time.Millisecond, Retry: Retry{Tries: 2}, Failed: StoreFailed, Breaker: Breaker{Failures: 0.5, Calls: 5}})
		cache, err := bale.New(NewStore(mute{}, g), bale.Options[string]{})
		if err != nil {
			t.Fatal(err)
		}
		defer cache.Close()
		const loads = 3 * time.Millisecond
		get := func() time.Duration {
			began := time.Now()
			e, err := cache.GetOrLoad(t.Context(), "k", func(context.Context) (string, error) { time.Sleep(loads); return "loaded", nil })
			if e.Value != "loaded" || err != nil {
				t.Fatal(e, err)
			}
			return time.Since(began)
		}
		if d := get(); d < 50*time.Millisecond {
			t.Errorf("%v without an answer", d)
		}
		for g.Stats().State != Opened {
			get()
		}
		for range 100 {
			if d := get(); d != loads {
				t.Fatalf("%v", d)
			}
		}
		if s := g.Stats(); s.Open < 100 || s.State != Opened {
			t.Errorf("%+v", s)
		}
	})
}

// TestManyLocks: behind a fresh Limit, each value of a GetOrLoadMany with Lock is stored and no
// lock stays, also if two calls come at once.
func TestManyLocks(t *testing.T) {
	t.Parallel()
	server := redisproc.ForTest(t)
	for _, calls := range []int{1, 2} {
		g := guard(t, Options{
			Timeout: 10 * time.Second, Failed: StoreFailed, Retry: Retry{Tries: 2}, Breaker: Breaker{Failures: 0.5},
			Limit: Limit{Healthy: time.Second, Wait: 10 * time.Second}, // a busy machine does not make it smaller
		})
		client := connect(t, &redis.UniversalOptions{Addrs: []string{server.Addr()}})
		load := bale.LoadOptions{NegativeTTL: time.Minute, Lock: time.Minute}
		cache, err := bale.New(NewStore(goredis.NewStore(client), g), bale.Options[string]{TTL: time.Hour, Load: load})
		if err != nil {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		for call := range calls {
			var keys []string
			for i := range 100 {
				keys = append(keys, fmt.Sprintf("%d:%d:%d", calls, call, i))
			}
			callers.Go(func() {
				for _, want := range []int{100, 0} {
					loads := 0
					load := func(_ context.Context, keys []string) (map[string]string, error) {
						loads += len(keys)
						return map[string]string{keys[0]: "value"}, nil // the others are misses
					}
					_, err := cache.GetOrLoadMany(t.Context(), keys, load)
					if loads != want || err != nil {
						t.Errorf("%d calls: %d loads, want %d, %v", calls, loads, want, err)
					}
				}
				locks, err := client.Keys(t.Context(), fmt.Sprintf("%d:%d:*:lock", calls, call)).Result()
				if len(locks) > 0 || err != nil {
					t.Errorf("%d calls: %d locks, %v", calls, len(locks), err)
				}
			})
		}
		callers.Wait()
		if s := g.Stats(); calls == 1 && s.Full > 0 { // two calls together are above the limit: what is refused is tried again
			t.Errorf("%+v", s)
		}
		if err := cache.Close(); err != nil {
			t.Error(err)
		}
	}
}

// mute is a Store that does not answer.
type mute struct{ bale.Store }

func (mute) Get(ctx context.Context, _ string) ([]byte, error) { <-ctx.Done(); return nil, ctx.Err() }
func (mute) Set(ctx context.Context, _ string, _ []byte, _ bale.Expiry) error {
	<-ctx.Done()
	return ctx.Err()
}

// TestStoreAllocations: a Get behind a Guard allocates no more than without.
func TestStoreAllocations(t *testing.T) {
	o := all()
	o.Timeout = 0
	s := NewStore(fixed{}, guard(t, o))
	if n := testing.AllocsPerRun(1000, func() { s.Get(t.Context(), "k"); s.Set(t.Context(), "k", nil, bale.Expiry{}) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// fixed is a Store that has one value.
type fixed struct{ bale.Store }

var value = []byte("value")

func (fixed) Get(context.Context, string) ([]byte, error)            { return value, nil }
func (fixed) Set(context.Context, string, []byte, bale.Expiry) error { return nil }

// TestStoreKeys: a read that goes on does not see the caller's changes to its keys.
func TestStoreKeys(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := &lasting{leave: cancel, release: make(chan struct{}), saw: make(chan string, 2)}
	g := guard(t, Options{Hedge: Hedge{Quantile: 0.5}})
	g.slow.saw, g.slow.is = learning, 1e12
	for _, read := range []func(ctx context.Context, keys []string) error{
		func(ctx context.Context, keys []string) error {
			_, err := NewStore(s, g).GetMany(ctx, keys)
			return err
		},
		func(ctx context.Context, keys []string) error {
			_, err := NewStore(s, g).(aging).PTTL(ctx, keys)
			return err
		},
	} {
		keys := []string{"a"}
		if err := read(ctx, keys); err != context.Canceled {
			t.Error(err)
		}
		keys[0] = "b"
		s.release <- struct{}{}
		if key := <-s.saw; key != "a" {
			t.Error(key)
		}
		ctx, s.leave = context.WithCancel(t.Context())
	}
	s.leave()
}

// lasting is a Store whose reads go on when their caller has left.
type lasting struct {
	bale.Store
	leave   context.CancelFunc
	release chan struct{}
	saw     chan string
}

func (s *lasting) GetMany(_ context.Context, keys []string) ([][]byte, error) {
	s.leave()
	<-s.release
	s.saw <- keys[0]
	return nil, nil
}

func (s *lasting) PTTL(ctx context.Context, keys []string) ([]int64, error) {
	_, err := s.GetMany(ctx, keys)
	return nil, err
}

// TestStoreMasters: a Store behind a Guard still asks masters, if package stream wants that.
func TestStoreMasters(t *testing.T) {
	s := NewStore(masters{}, guard(t, Options{Timeout: time.Minute, Hedge: Hedge{Quantile: 0.5}}))
	if _, err := s.Get(adapters.FromMasters(t.Context()), "k"); err != nil {
		t.Error(err)
	}
	if _, err := s.(aging).PTTL(adapters.FromMasters(t.Context()), []string{"k"}); err != nil {
		t.Error(err)
	}
}

// masters is a Store that refuses reads from replicas.
type masters struct{ bale.Store }

func (m masters) Get(ctx context.Context, key string) ([]byte, error) {
	_, err := m.PTTL(ctx, []string{key})
	return nil, err
}

func (masters) PTTL(ctx context.Context, keys []string) ([]int64, error) {
	if !adapters.AsksMasters(ctx) {
		return nil, errors.New("a replica was asked")
	}
	return make([]int64, len(keys)), nil
}

// TestStorePartial: a read that failed for some keys has the other values, even if its retry is
// refused.
func TestStorePartial(t *testing.T) {
	g := guard(t, Options{Retry: Retry{Tries: 2, Delay: 1}, Breaker: Breaker{Failures: 0.5, Calls: 1}, Failed: StoreFailed})
	cache, err := bale.New(NewStore(partial{}, g), bale.Options[string]{})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	_, err = cache.GetMany(t.Context(), "a", "b")
	if failed, ok := errors.AsType[bale.KeyErrors](err); !ok || len(failed) != 1 || failed[0].Key != "b" {
		t.Error(err)
	}
	if s := g.Stats(); s.Tries != 1 || s.Open != 1 {
		t.Errorf("%+v", s)
	}
}

// partial is a Store that has no value of a, and fails for b.
type partial struct{ bale.Store }

func (partial) GetMany(context.Context, []string) ([][]byte, error) {
	return make([][]byte, 2), bale.KeyErrors{{Op: "get", Key: "b", Err: syscall.ECONNRESET}}
}
