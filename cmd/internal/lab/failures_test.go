package lab

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/internal/redisproc"
)

// small is a config with fewer values.
func small(t *testing.T, settings ...string) Config {
	c := config(t, settings...)
	for range 4 {
		c.Datasets[0], _ = c.Datasets[0].Halves()
	}
	return c
}

// trap does something at a GET, once it is armed.
type trap struct {
	bale.Store
	armed  *atomic.Bool
	strike func(key string)
}

func (t trap) Get(ctx context.Context, key string) ([]byte, error) {
	if !strings.HasSuffix(key, ":none") && t.armed.CompareAndSwap(true, false) {
		t.strike(key)
	}
	return t.Store.Get(ctx, key)
}

// trapped has something done at an operation of round 2.
func trapped(c *Config, strike func(key string)) {
	armed := new(atomic.Bool)
	c.wrap = func(s bale.Store) bale.Store { return trap{s, armed, strike} }
	c.Progress = func(p Progress) {
		if p.Round == 2 {
			armed.Store(true)
		}
	}
}

// TestServerGone: when a server is killed or stands still, the run ends, reports it, and keeps the
// earlier measurements. No client hangs.
func TestServerGone(t *testing.T) {
	for how, sig := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "paused": syscall.SIGSTOP} {
		for _, name := range []string{"goredis", "goredis+auto", "rueidis", "rueidis-auto", "redigo", "radix"} {
			t.Run(how+" "+name, func(t *testing.T) {
				t.Parallel()
				process := redisproc.ForTest(t)
				server, err := OpenServer(t.Context(), process.URL(), keyspace.Login{})
				if err != nil {
					t.Fatal(err)
				}
				defer server.Close()
				server.Private = true // so that nothing is to be removed
				client, err := ParseClient(name)
				if err != nil {
					t.Fatal(err)
				}
				c := small(t, "none", "s2")
				c.Clients, c.Concurrency, c.Rounds, c.timeout = []ClientSetting{client}, []int{8}, 1000, 2*time.Second
				c.Duration = time.Duration(c.Rounds) * 5 * time.Millisecond
				trapped(&c, func(string) {
					if err := syscall.Kill(process.PID(), sig); err != nil {
						t.Error(err)
					}
				})
				r, err := Measure(t.Context(), []*Server{server}, c)
				if sig == syscall.SIGSTOP {
					syscall.Kill(process.PID(), syscall.SIGCONT)
				}
				if err == nil || !strings.Contains(err.Error(), "the server at "+process.Addr()+" does not answer any more") {
					t.Fatal(err)
				}
				if r == nil || len(r.Cells) != 2 || !r.Environment.Interrupted || r.Environment.Rounds != 1 {
					t.Fatalf("%+v", r)
				}
				for _, cell := range r.Cells {
					if !cell.Verified || cell.Operations == 0 {
						t.Errorf("%+v: %s", cell.Identity, cell.Error)
					}
				}
			})
		}
	}
}

// TestEvicted: a server that has too little memory for the values loses some, and that is no
// mismatch; nor is it where it takes no more.
func TestEvicted(t *testing.T) {
	for policy, want := range map[string]string{"allkeys-random": "the server evicted ", "noeviction": "OOM command not allowed"} {
		t.Run(policy, func(t *testing.T) {
			server, err := OpenServer(t.Context(), redisproc.ForTest(t, "--maxmemory", "3mb", "--maxmemory-policy", policy).URL(), keyspace.Login{})
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			c := config(t, "none")
			c.Concurrency = []int{2}
			r, err := Measure(t.Context(), []*Server{server}, c)
			if err != nil {
				t.Fatal(err)
			}
			if cell := r.Cells[0]; cell.Verified || cell.Mismatch || !strings.Contains(cell.Error, want) {
				t.Errorf("mismatch %v, %s", cell.Mismatch, cell.Error)
			}
		})
	}
}

// TestInterferes: who else writes to the keys of a run makes a cell fail, and the others are
// measured.
func TestInterferes(t *testing.T) {
	for name, test := range map[string]struct {
		do       func(context.Context, *Server, string) error
		want     string
		mismatch bool
	}{
		"another type": {func(ctx context.Context, s *Server, key string) error {
			return errors.Join(s.client.Del(ctx, key).Err(), s.client.LPush(ctx, key, "x").Err())
		}, "get: WRONGTYPE", false},
		"deleted":       {func(ctx context.Context, s *Server, key string) error { return s.client.Del(ctx, key).Err() }, "get: key not found", false},
		"another value": {func(ctx context.Context, s *Server, key string) error { return s.client.Set(ctx, key, "{}", 0).Err() }, "MISMATCH", true},
	} {
		t.Run(name, func(t *testing.T) {
			server := realServer(t)
			c := small(t, "none", "s2")
			c.Concurrency = []int{2}
			trapped(&c, func(key string) {
				if err := test.do(context.Background(), server, key); err != nil {
					t.Error(err)
				}
			})
			once := c.Progress
			strikes := 0
			c.Progress = func(p Progress) {
				if p.Round == 2 {
					if strikes++; strikes > 1 {
						return
					}
				}
				once(p)
			}
			r, err := Measure(t.Context(), []*Server{server}, c)
			if err != nil {
				t.Fatal(err)
			}
			failed := 0
			for _, cell := range r.Cells {
				if !cell.Verified {
					failed++
					if cell.Mismatch != test.mismatch || !strings.Contains(cell.Error, test.want) {
						t.Errorf("mismatch %v, %s", cell.Mismatch, cell.Error)
					}
				}
			}
			if failed != 1 || len(r.Cells) != 2 {
				t.Errorf("%d of %d cells failed", failed, len(r.Cells))
			}
		})
	}
}

// TestBatchMisses: a key that is gone is bale.ErrNotFound through every client, in pipelines and in
// one command, so that the lab can say that the server evicted it.
func TestBatchMisses(t *testing.T) {
	server := realServer(t)
	for _, name := range []string{"goredis", "rueidis", "redigo", "radix"} {
		t.Run(name, func(t *testing.T) {
			s, err := ParseClient(name)
			if err != nil {
				t.Fatal(err)
			}
			c, err := dial(t.Context(), s, *server.Options, 1, opTimeout)
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			if _, err := c.batcher.pipeline(t.Context(), []string{"there"}, [][]byte{[]byte("x")}); err != nil {
				t.Fatal(err)
			}
			for what, get := range map[string]func(context.Context, []string, [][]byte) ([][]byte, error){"pipeline": c.batcher.pipeline, "multi": c.batcher.multi} {
				got, err := get(t.Context(), []string{"there", "gone"}, nil)
				if missed := err == nil && len(got) == 2 && got[1] == nil; !missed && !errors.Is(err, bale.ErrNotFound) { // the caller takes nil for it
					t.Errorf("%s: %q, %v", what, got, err)
				}
				if got, err := get(t.Context(), []string{"there"}, nil); err != nil || string(got[0]) != "x" {
					t.Errorf("%s after a miss: %q, %v", what, got, err)
				}
			}
		})
	}
}
