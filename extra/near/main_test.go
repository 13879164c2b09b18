package near

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/balekv/bale"
	balerueidis "github.com/balekv/bale/adapter/rueidis"
)

func TestMain(m *testing.M) {
	// When the nodes of a cluster change, the client keeps the old connections for five seconds,
	// closed or not.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"))
}

// patience is how long tests wait for what must come to pass.
const patience = 20 * time.Second

func connect(t testing.TB, o rueidis.ClientOption, addrs ...string) rueidis.Client {
	t.Helper()
	o.InitAddress = addrs
	o.ForceSingleClient = len(addrs) == 1
	o.Dialer.Timeout = time.Second
	client, err := rueidis.NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// direct is a cache without a near one.
func direct[T any](t testing.TB, store bale.Store) *bale.Cache[T] {
	t.Helper()
	cache, err := bale.New(store, bale.Options[T]{})
	if err != nil {
		t.Fatal(err)
	}
	return cache
}

func newCache[T any](t testing.TB, store bale.Store, o Options[T]) *Cache[T] {
	t.Helper()
	c, err := New(direct[T](t, store), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func invalidations(t testing.TB, client rueidis.Client, interval time.Duration) Invalidations {
	t.Helper()
	i, err := balerueidis.NewInvalidations(client, balerueidis.InvalidationsOptions{Interval: interval})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// listening waits until all of n nodes are listened to.
func listening[T any](t testing.TB, c *Cache[T], n int) {
	t.Helper()
	await(t, "nobody listens", func() bool { return c.Stats().Resets >= uint64(n) })
}

func await(t testing.TB, otherwise string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(otherwise)
		}
	}
}

// gated is a Store whose readings are counted, and may be held up after Redis has answered.
type gated struct {
	bale.Store
	gets  atomic.Int64
	read  chan struct{} // told of each reading that Redis has answered, if not nil
	gate  chan struct{} // lets one reading go on, or all when closed; nil for no gate
	panic bool          // a reading that is let go on panics
}

func (g *gated) wait(ctx context.Context) error {
	if g.gate == nil {
		return nil
	}
	if g.read != nil {
		g.read <- struct{}{}
	}
	select {
	case <-g.gate:
		if g.panic {
			panic("as it is told")
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g *gated) Get(ctx context.Context, key string) ([]byte, error) {
	g.gets.Add(1)
	v, err := g.Store.Get(ctx, key)
	if err := g.wait(ctx); err != nil {
		return nil, err
	}
	return v, err
}

func (g *gated) GetMany(ctx context.Context, keys []string) ([][]byte, error) {
	g.gets.Add(int64(len(keys)))
	v, err := g.Store.GetMany(ctx, keys)
	if err := g.wait(ctx); err != nil {
		return nil, err
	}
	return v, err
}

// next waits for the next one.
func next(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatal("nobody reads Redis")
	}
}

// proxy forwards connections, and can be frozen: connections stay open, and nothing comes through.
type proxy struct {
	listener net.Listener
	to       string
	mu       sync.Mutex
	thawed   chan struct{} // closed while it is not frozen
	conns    []net.Conn
	done     sync.WaitGroup
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, to: to, thawed: make(chan struct{})}
	close(p.thawed)
	p.done.Go(p.serve)
	t.Cleanup(func() {
		p.thaw()
		l.Close()
		p.mu.Lock()
		for _, c := range p.conns {
			c.Close()
		}
		p.mu.Unlock()
		p.done.Wait()
	})
	return p
}

func (p *proxy) serve() {
	for {
		from, err := p.listener.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", p.to)
		if err != nil {
			from.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, from, to)
		p.mu.Unlock()
		for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
			p.done.Go(func() {
				defer way[1].Close()
				io.Copy(slow{way[1], p}, way[0])
			})
		}
	}
}

func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.thawed = make(chan struct{})
}

func (p *proxy) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.thawed:
	default:
		close(p.thawed)
	}
}

type slow struct {
	to io.Writer
	p  *proxy
}

func (s slow) Write(b []byte) (int, error) {
	s.p.mu.Lock()
	thawed := s.p.thawed
	s.p.mu.Unlock()
	<-thawed
	return s.to.Write(b)
}

// getOrLoad is GetOrLoad for the value alone.
func getOrLoad[T any](ctx context.Context, c *Cache[T], key string, load func(context.Context) (T, error), e ...bale.Expiry) (T, error) {
	entry, err := c.GetOrLoad(ctx, key, load, e...)
	return entry.Value, err
}
