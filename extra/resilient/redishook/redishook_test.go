package redishook

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/extra/resilient"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// TestKinds: what may be done with a command.
func TestKinds(t *testing.T) {
	const once, twice, passes = "once", "twice", "passes"
	for _, test := range []struct {
		want string
		args []any
	}{
		{twice, []any{"get", "k"}},
		{twice, []any{"GET", "k"}},
		{twice, []any{"set", "k", "v", "ex", 10}},
		{twice, []any{"set", "k", "v", "keepttl"}},
		{once, []any{"set", "k", "v", "NX"}},
		{once, []any{"set", "k", "v", []byte("NX")}},
		{once, []any{"set", "k", "v", "get"}},
		{once, []any{"incr", "k"}},
		{once, []any{"append", "k", "v"}},
		{once, []any{"lpush", "k", "v"}},
		{once, []any{"eval", "return 1", 0}},
		{once, []any{"getdel", "k"}},
		{once, []any{"multi"}},
		{once, []any{"json.set", "k", "$", "1", "NX"}},
		{twice, []any{"json.set", "k", "$", "1"}},
		{once, []any{"getex", "k"}},
		{once, []any{"ltrim", "k", 1, -1}},
		{twice, []any{"pexpireat", "k", 1}},
		{twice, []any{"zadd", "k", 1, "a"}},
		{once, []any{"zadd", "k", "incr", 1, "a"}},
		{twice, []any{"xread", "streams", "s", "0"}},
		{passes, []any{"xread", "block", 0, "streams", "s", "0"}},
		{once, []any{"xreadgroup", "group", "g", "c", "streams", "s", ">"}},
		{passes, []any{"blpop", "k", 0}},
		{passes, []any{"hello", 3}},
		{once, []any{"something", "new"}},
	} {
		kind, aside := kindOf(redis.NewCmd(t.Context(), test.args...))
		got := map[resilient.Kind]string{resilient.Once: once, resilient.Idempotent: twice}[kind]
		if aside {
			got = passes
		}
		if got != test.want {
			t.Errorf("%v: %s", test.args, got)
		}
	}
}

// flaky fails each command's first tries with an error of the network.
type flaky struct{ fails, calls int }

func (f *flaky) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *flaky) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := f.fail(cmd); err != nil {
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

func (f *flaky) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := f.fail(cmds[0]); err != nil {
			for _, cmd := range cmds {
				cmd.SetErr(err)
			}
			return err
		}
		return next(ctx, cmds)
	}
}

func (f *flaky) fail(cmd redis.Cmder) error {
	if cmd.Name() == "hello" || cmd.Name() == "client" {
		return nil
	}
	if f.calls++; f.calls <= f.fails {
		return net.ErrClosed
	}
	return nil
}

func TestHook(t *testing.T) {
	server := redisproc.ForTest(t)
	for name, test := range map[string]struct {
		fails int
		do    func(ctx context.Context, c *redis.Client) error
		want  error
		calls int
	}{
		"well":        {0, func(ctx context.Context, c *redis.Client) error { return c.Set(ctx, "k", "v", 0).Err() }, nil, 1},
		"retried":     {2, func(ctx context.Context, c *redis.Client) error { return c.Set(ctx, "k", "v", 0).Err() }, nil, 3},
		"a miss":      {0, func(ctx context.Context, c *redis.Client) error { return c.Get(ctx, "none").Err() }, redis.Nil, 1},
		"a late miss": {1, func(ctx context.Context, c *redis.Client) error { return c.Get(ctx, "none").Err() }, redis.Nil, 2},
		"once":        {1, func(ctx context.Context, c *redis.Client) error { return c.Incr(ctx, "n").Err() }, net.ErrClosed, 1},
		"for good":    {9, func(ctx context.Context, c *redis.Client) error { return c.Get(ctx, "k").Err() }, net.ErrClosed, 3},
		"over": {0, func(ctx context.Context, c *redis.Client) error {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return c.Get(ctx, "k").Err()
		}, context.Canceled, 0},
		"waits":         {1, func(ctx context.Context, c *redis.Client) error { return c.BLPop(ctx, time.Second, "list").Err() }, net.ErrClosed, 1},
		"pipeline":      {1, func(ctx context.Context, c *redis.Client) error { return pipeline(ctx, c, false) }, nil, 2},
		"pipeline once": {1, func(ctx context.Context, c *redis.Client) error { return pipeline(ctx, c, true) }, net.ErrClosed, 1},
		"transaction": {1, func(ctx context.Context, c *redis.Client) error {
			_, err := c.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "k"); return nil })
			return err
		}, net.ErrClosed, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := resilient.New(resilient.Options{Timeout: time.Minute, Failed: resilient.StoreFailed, Retry: resilient.Retry{Tries: 3, Delay: time.Millisecond}})
			if err != nil {
				t.Fatal(err)
			}
			c := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
			defer c.Close()
			f := &flaky{fails: test.fails}
			c.AddHook(New(g))
			c.AddHook(f)
			if err := test.do(t.Context(), c); !errors.Is(err, test.want) || (err == nil) != (test.want == nil) || f.calls != test.calls {
				t.Errorf("%v, %d calls", err, f.calls)
			}
			if s := g.Stats(); name == "a miss" && s.Failures > 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func pipeline(ctx context.Context, c *redis.Client, once bool) error {
	var get *redis.StringCmd
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, "k", "v", 0)
		get = p.Get(ctx, "k")
		if once {
			p.Incr(ctx, "n")
		}
		return nil
	})
	if err == nil && get.Val() != "v" {
		return errors.New("no value")
	}
	return err
}

// TestRefused: a command that the breaker refuses has the error, and no value.
func TestRefused(t *testing.T) {
	g, err := resilient.New(resilient.Options{Breaker: resilient.Breaker{Failures: 0.5, Calls: 5}})
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialerRetries: 1})
	defer c.Close()
	c.AddHook(New(g))
	for range 5 {
		c.Get(t.Context(), "k")
	}
	cmd := c.Get(t.Context(), "k")
	if v, err := cmd.Result(); v != "" || !errors.Is(err, resilient.ErrRejected) {
		t.Errorf("%q, %v", v, err)
	}
	cmds, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error { p.Get(t.Context(), "k"); p.Get(t.Context(), "l"); return nil })
	if !errors.Is(err, resilient.ErrRejected) || !errors.Is(cmds[1].Err(), resilient.ErrRejected) {
		t.Error(err, cmds[1].Err())
	}
	cmds, err = c.TxPipelined(t.Context(), func(p redis.Pipeliner) error { p.Get(t.Context(), "k"); return nil })
	if !errors.Is(err, resilient.ErrRejected) || !errors.Is(cmds[0].Err(), resilient.ErrRejected) {
		t.Error(err, cmds[0].Err())
	}
}

// TestUnreadable: a value that the hook behind the Guard cannot unpack, and a command that it does
// not send, are no failures of the server. They are not retried, and the breaker stays closed.
func TestUnreadable(t *testing.T) {
	server := redisproc.ForTest(t)
	ctx := t.Context()
	g, err := resilient.New(resilient.Options{
		Failed: resilient.StoreFailed, Retry: resilient.Retry{Tries: 2}, Breaker: resilient.Breaker{Failures: 0.5, Calls: 5},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	defer c.Close()
	packer, err := bale.NewPacker(bale.PackerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer packer.Close()
	packed, err := packer.Pack(nil, make([]byte, 1000))
	if err != nil {
		t.Fatal(err)
	}
	packed[len(packed)-1] ^= 1
	if err := c.Set(ctx, "k", packed, 0).Err(); err != nil {
		t.Fatal(err)
	}
	behind(t, c, g, packer)
	for range 10 {
		_, many := c.Pipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "k"); return nil })
		if err := c.Get(ctx, "k").Err(); !errors.Is(err, bale.ErrCorrupt) || !errors.Is(many, bale.ErrCorrupt) {
			t.Error(err, many)
		}
		if err := c.Append(ctx, "k", "v").Err(); !errors.Is(err, goredis.ErrCommand) {
			t.Error(err)
		}
	}
	if s := g.Stats(); s.Failures != 0 || s.Retries != 0 || s.State != resilient.Closed {
		t.Errorf("%+v", s)
	}
}

// behind has a client pack all values, behind a Guard.
func behind(t *testing.T, c *redis.Client, g *resilient.Guard, packer *bale.Packer) {
	t.Helper()
	c.AddHook(New(g))
	hook, err := goredis.NewHook(packer, goredis.HookOptions{Match: []string{"*"}})
	if err == nil {
		err = hook.Install(c)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestUnknownDictionary: a wait for a dictionary may take all of a call's time. The value has
// arrived, so the server has not failed.
func TestUnknownDictionary(t *testing.T) {
	server := redisproc.ForTest(t)
	ctx := t.Context()
	g, err := resilient.New(resilient.Options{
		Timeout: 100 * time.Millisecond, Failed: resilient.StoreFailed, Retry: resilient.Retry{Tries: 2}, Breaker: resilient.Breaker{Failures: 0.5, Calls: 3},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1, ContextTimeoutEnabled: true})
	defer c.Close()
	set := &compress.Set{}
	defer set.Close()
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: waiting{set}})
	if err != nil {
		t.Fatal(err)
	}
	packed := append(frame.Header{Algorithm: frame.Zstd, DictionaryID: 77, Length: 3}.Append(nil), "xyz"...)
	if err := c.Set(ctx, "k", packed, 0).Err(); err != nil {
		t.Fatal(err)
	}
	behind(t, c, g, packer)
	for range 3 {
		_, many := c.Pipelined(ctx, func(p redis.Pipeliner) error { p.Get(ctx, "k"); return nil })
		for _, err := range []error{c.Get(ctx, "k").Err(), many} {
			if !errors.Is(err, bale.ErrUnknownDictionary) || !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
	}
	if s := g.Stats(); s.Failures != 0 || s.Retries != 0 || s.State != resilient.Closed {
		t.Errorf("%+v", s)
	}
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(server.PID(), syscall.SIGCONT)
	if err := c.Get(ctx, "k").Err(); errors.Is(err, bale.ErrUnknownDictionary) {
		t.Error(err)
	}
	if s := g.Stats(); s.Failures == 0 {
		t.Errorf("a server that hangs has not failed: %+v", s)
	}
}

// waiting is a source of dictionaries that does not answer.
type waiting struct{ *compress.Set }

func (waiting) Reader(ctx context.Context, _ frame.Algorithm, _ frame.DictionaryID) (bale.Compressor, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestConflict: a transaction that finds a watched key changed is no failure of the server.
func TestConflict(t *testing.T) {
	server := redisproc.ForTest(t)
	g, err := resilient.New(resilient.Options{Failed: resilient.StoreFailed})
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer c.Close()
	c.AddHook(New(g))
	ctx := t.Context()
	err = c.Watch(ctx, func(tx *redis.Tx) error {
		if err := c.Set(ctx, "k", "v", 0).Err(); err != nil {
			return err
		}
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Set(ctx, "k", "w", 0); return nil })
		return err
	}, "k")
	if s := g.Stats(); err != redis.TxFailedErr || s.Tries != 2 || s.Failures != 0 {
		t.Errorf("%v, %+v", err, s)
	}
}

// TestOnePlace: a command that has the only place of the Limit can still make its connection.
func TestOnePlace(t *testing.T) {
	server := redisproc.ForTest(t)
	g, err := resilient.New(resilient.Options{Limit: resilient.Limit{Healthy: time.Second, Min: 1, Max: 1, Wait: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer c.Close()
	c.AddHook(New(g))
	if err := c.Ping(t.Context()).Err(); err != nil {
		t.Error(err)
	}
}
