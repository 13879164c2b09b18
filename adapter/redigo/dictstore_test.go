package redigo

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/redisproc"
)

// listening starts Listen and waits until it listens. ended receives the error of Listen.
func listening(t *testing.T, ctx context.Context, pool *redis.Pool, channel string) (heard chan string, ended chan error) {
	t.Helper()
	heard, ended = make(chan string, 100), make(chan error, 1)
	go func() { ended <- NewStore(pool).Listen(ctx, channel, func(m string) { heard <- m }) }()
	if m := <-heard; m != "" {
		t.Fatalf("heard %q first", m)
	}
	return heard, ended
}

// TestListenBesideThePool: those who listen take no connection from the application.
func TestListenBesideThePool(t *testing.T) {
	server := redisproc.ForTest(t)
	for name, pool := range map[string]*redis.Pool{
		"Dial":        {Dial: func() (redis.Conn, error) { return redis.Dial("tcp", server.Addr()) }},
		"DialContext": {DialContext: func(ctx context.Context) (redis.Conn, error) { return redis.DialContext(ctx, "tcp", server.Addr()) }},
	} {
		t.Run(name, func(t *testing.T) {
			pool.MaxActive, pool.Wait = 1, true
			defer pool.Close()
			ctx, stop := context.WithCancel(t.Context())
			_, first := listening(t, ctx, pool, "news")
			_, second := listening(t, ctx, pool, "news")
			if _, err := NewStore(pool).Get(ctx, "none"); !errors.Is(err, bale.ErrNotFound) {
				t.Errorf("the application: %v", err)
			}
			if n := pool.ActiveCount(); n > 1 {
				t.Errorf("%d connections are the pool's", n)
			}
			stop()
			for _, ended := range []chan error{first, second} {
				if err := <-ended; !errors.Is(err, context.Canceled) {
					t.Errorf("ended with %v", err)
				}
			}
		})
	}
}

// TestListenOutlastsReadTimeout: a connection that hears nothing for longer than replies may take
// is not broken.
func TestListenOutlastsReadTimeout(t *testing.T) {
	server := redisproc.ForTest(t)
	const timeout = 300 * time.Millisecond // a busy machine answers within
	pool := &redis.Pool{Dial: func() (redis.Conn, error) {
		return redis.Dial("tcp", server.Addr(), redis.DialReadTimeout(timeout), redis.DialWriteTimeout(time.Second))
	}}
	defer pool.Close()
	ctx, stop := context.WithCancel(t.Context())
	heard, ended := listening(t, ctx, pool, "news")
	time.Sleep(3 * timeout) // what is tested is that nothing happens
	if _, err := server.Do(ctx, "PUBLISH", "news", "hello"); err != nil {
		t.Fatal(err)
	}
	if m := <-heard; m != "hello" {
		t.Errorf("heard %q: the connection was made anew", m)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

// TestListenGivesUp: what keeps it from listening at all is returned.
func TestListenGivesUp(t *testing.T) {
	server := redisproc.ForTest(t)
	admin, err := redis.Dial("tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.Do("ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "resetchannels"); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		pool *redis.Pool
		says string
	}{
		"no right to the channel": {&redis.Pool{Dial: func() (redis.Conn, error) {
			return redis.Dial("tcp", server.Addr(), redis.DialUsername("app"), redis.DialPassword("secret"))
		}}, "NOPERM"},
		"no such user": {&redis.Pool{Dial: func() (redis.Conn, error) {
			return redis.Dial("tcp", server.Addr(), redis.DialUsername("nobody"), redis.DialPassword("secret"))
		}}, "WRONGPASS"},
		"no way to dial": {&redis.Pool{}, "neither Dial nor DialContext"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			defer test.pool.Close()
			if err := NewStore(test.pool).Listen(t.Context(), "news", func(m string) { t.Errorf("heard %q", m) }); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, want %s", err, test.says)
			}
		})
	}
}
