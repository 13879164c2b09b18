package resilient_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/extra/resilient"
	"github.com/balekv/bale/extra/resilient/redishook"
	"github.com/balekv/bale/internal/redisproc"
)

// process is a server in a process of its own.
type process interface {
	Addr() string
	PID() int
	Kill()
	Restart(ctx context.Context, args ...string) error
}

// web is an HTTP server in a process of its own: this test's executable, see TestMain.
type web struct {
	addr string
	cmd  *exec.Cmd
	done chan struct{}
}

func startWeb(t *testing.T) process {
	t.Helper()
	port, err := redisproc.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	w := &web{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	if err := w.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Kill)
	return w
}

func (w *web) Addr() string { return w.addr }
func (w *web) PID() int     { return w.cmd.Process.Pid }
func (w *web) Kill()        { w.cmd.Process.Kill(); <-w.done }

func (w *web) Restart(ctx context.Context, _ ...string) (err error) {
	if w.cmd != nil {
		w.Kill()
	}
	w.cmd = exec.Command(os.Args[0])
	w.cmd.Env = append(redisproc.Environment(), "RESILIENT_SERVE="+w.addr)
	w.cmd.SysProcAttr = redisproc.Attributes()
	if w.done, err = redisproc.Spawn(w.cmd); err != nil {
		return err
	}
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", w.addr)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-w.done:
			return errors.New("the server has ended")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// face is a way to call a server behind a Guard.
type face struct {
	name  string
	start func(t *testing.T) process
	// open returns what makes a call with an answer of its own, and what asks the server how many
	// connections it refused.
	open func(t *testing.T, addr string, o resilient.Options) (g *resilient.Guard, call func(ctx context.Context) error, refused func(ctx context.Context) (int, error))
}

var faces = []face{
	{"Store", startRedis, func(t *testing.T, addr string, o resilient.Options) (*resilient.Guard, func(context.Context) error, func(context.Context) (int, error)) {
		g, rdb := guarded(t, addr, o)
		store := resilient.NewStore(goredis.NewStore(rdb), g)
		return g, func(ctx context.Context) error {
			if _, err := store.Get(ctx, "k"); !errors.Is(err, bale.ErrNotFound) {
				return cmp.Or(err, errors.New("a value that nobody wrote"))
			}
			return nil
		}, refusedBy(rdb)
	}},
	{"hook", startRedis, func(t *testing.T, addr string, o resilient.Options) (*resilient.Guard, func(context.Context) error, func(context.Context) (int, error)) {
		g, rdb := guarded(t, addr, o)
		rdb.AddHook(redishook.New(g))
		return g, func(ctx context.Context) error { return rdb.Set(ctx, "k", "v", 0).Err() }, refusedBy(rdb)
	}},
	{"HTTP", startWeb, func(t *testing.T, addr string, o resilient.Options) (*resilient.Guard, func(context.Context) error, func(context.Context) (int, error)) {
		o.Failed = nil
		base := &http.Transport{MaxIdleConnsPerHost: 50}
		t.Cleanup(base.CloseIdleConnections)
		transport, err := resilient.NewTransport(base, o)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(ctx context.Context, path string) (string, error) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, nil)
			if err != nil {
				return "", err
			}
			resp, err := (&http.Client{Transport: transport}).Do(req)
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			return string(b), err
		}
		return transport.Guard(addr), func(ctx context.Context) error {
				if b, err := ask(ctx, "/"); b != "well" {
					return cmp.Or(err, errors.New("an answer that nobody sent"))
				}
				return nil
			}, func(ctx context.Context) (int, error) {
				b, err := ask(ctx, "/refused")
				if err != nil {
					return 0, err
				}
				return strconv.Atoi(b)
			}
	}},
}

func startRedis(t *testing.T) process { return redisproc.ForTest(t) }

// guarded makes a Guard, and a client that leaves retries and time-outs to it.
func guarded(t *testing.T, addr string, o resilient.Options) (*resilient.Guard, *redis.Client) {
	t.Helper()
	g, err := resilient.New(o)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true, PoolSize: 50, DialTimeout: 5 * time.Second})
	t.Cleanup(func() { rdb.Close() })
	return g, rdb
}

// refusedBy asks a Redis server how many connections it refused.
func refusedBy(rdb *redis.Client) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		info, err := rdb.Info(ctx, "stats").Result()
		if err != nil {
			return 0, err
		}
		_, n, _ := strings.Cut(info, "rejected_connections:")
		n, _, _ = strings.Cut(n, "\r")
		return strconv.Atoi(n)
	}
}

// slowed is a TCP proxy before a server, which holds answers back for as long as wait says.
func slowed(t *testing.T, server string, wait *atomic.Int64) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	pipe := func(dst, src net.Conn, wait *atomic.Int64) {
		defer dst.Close()
		buf := make([]byte, 4<<10)
		for {
			n, err := src.Read(buf)
			if wait != nil {
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Duration(wait.Load())):
				}
			}
			if _, failed := dst.Write(buf[:n]); err != nil || failed != nil {
				return
			}
		}
	}
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			behind, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			stop := context.AfterFunc(ctx, func() { client.Close(); behind.Close() })
			wg.Go(func() { pipe(behind, client, nil) })
			wg.Go(func() { defer stop(); pipe(client, behind, wait) })
		}
	})
	t.Cleanup(func() { l.Close(); cancel(); wg.Wait() })
	return l.Addr().String()
}

// TestServersFallIll: the breaker opens before a server that is stopped, gone, mute or slow,
// callers do not wait for it any more, and the breaker closes when the server is well again.
func TestServersFallIll(t *testing.T) {
	t.Parallel()
	signal := func(s syscall.Signal) func(*testing.T, process, *atomic.Int64) {
		return func(t *testing.T, p process, _ *atomic.Int64) {
			if err := syscall.Kill(p.PID(), s); err != nil {
				t.Fatal(err)
			}
		}
	}
	hold := func(d time.Duration) func(*testing.T, process, *atomic.Int64) {
		return func(_ *testing.T, _ process, wait *atomic.Int64) { wait.Store(int64(d)) }
	}
	failures := resilient.Breaker{Failures: 0.5}
	for name, fault := range map[string]struct {
		timeout    time.Duration
		breaker    resilient.Breaker
		proxy      bool
		fall, rise func(*testing.T, process, *atomic.Int64)
	}{
		"stopped": {100 * time.Millisecond, failures, false, signal(syscall.SIGSTOP), signal(syscall.SIGCONT)},
		"gone": {time.Minute, failures, false, func(_ *testing.T, p process, _ *atomic.Int64) { p.Kill() }, func(t *testing.T, p process, _ *atomic.Int64) {
			if err := p.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}},
		"mute": {100 * time.Millisecond, failures, true, hold(time.Hour), hold(0)},
		"slow": {time.Minute, resilient.Breaker{Slow: 100 * time.Millisecond, SlowShare: 0.5}, true, hold(100 * time.Millisecond), hold(0)},
	} {
		for _, face := range faces {
			t.Run(name+", "+face.name, func(t *testing.T) {
				t.Parallel()
				server := face.start(t)
				var wait atomic.Int64
				addr := server.Addr()
				if fault.proxy {
					addr = slowed(t, addr, &wait)
				}
				breaker := fault.breaker
				breaker.Calls, breaker.Open, breaker.Probes = 5, 100*time.Millisecond, 1
				g, call, _ := face.open(t, addr, resilient.Options{Timeout: fault.timeout, Failed: resilient.StoreFailed, Breaker: breaker})
				state := func(want resilient.State) {
					t.Helper()
					for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
						err := call(t.Context())
						if g.Stats().State == want && (want == resilient.Opened || err == nil) {
							return
						}
						if time.Now().After(end) {
							t.Fatalf("%+v, %v", g.Stats(), err)
						}
					}
				}
				state(resilient.Closed)
				well := g.Stats()
				fault.fall(t, server, &wait)
				state(resilient.Opened)
				ill, refused := g.Stats(), 0
				for range 1000 {
					if errors.Is(call(t.Context()), resilient.ErrRejected) {
						refused++
					}
				}
				if s := g.Stats(); refused < 500 || s.Tries > ill.Tries+100 {
					t.Errorf("%d of 1000 calls refused, %+v", refused, s)
				}
				if failed := ill.Failures > well.Failures; failed != (fault.breaker.Failures > 0) {
					t.Errorf("before %+v, then %+v", well, ill)
				}
				fault.rise(t, server, &wait)
				state(resilient.Closed)
			})
		}
	}
}

// TestNoConnectionsLeft: a server that has fewer connections than there are callers, and refuses
// more, fails nobody for good.
func TestNoConnectionsLeft(t *testing.T) {
	t.Parallel()
	for _, face := range faces {
		t.Run(face.name, func(t *testing.T) {
			t.Parallel()
			server := face.start(t)
			if r, ok := server.(*redisproc.Server); ok {
				if _, err := r.Do(t.Context(), "CONFIG", "SET", "maxclients", strconv.Itoa(resilient.ServedConnections)); err != nil {
					t.Fatal(err)
				}
			}
			errs := make([]error, 50)
			g, call, refused := face.open(t, server.Addr(), resilient.Options{
				Timeout: time.Minute, Failed: resilient.StoreFailed,
				// Most first tries fail, and few calls have succeeded yet: the budget is off.
				Retry: resilient.Retry{Tries: 1000, Delay: 10 * time.Millisecond, Budget: 1, Burst: 1e6},
				Limit: resilient.Limit{Healthy: 10 * time.Millisecond, Min: 1, Max: 50, Initial: 50, Queue: len(errs), Wait: time.Minute}, // of a smaller queue some fall out
			})
			var calls sync.WaitGroup
			for i := range errs {
				calls.Go(func() { errs[i] = call(t.Context()) })
			}
			calls.Wait()
			if err := errors.Join(errs...); err != nil {
				t.Errorf("%v: %+v", err, g.Stats())
			}
			if n, err := refused(t.Context()); n == 0 || err != nil || g.Stats().Failures == 0 {
				t.Errorf("%d connections refused, %v, %+v", n, err, g.Stats())
			}
		})
	}
}
