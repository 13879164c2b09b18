package goredis

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/redisproc"
)

// hooked is a client with a hook on all keys, and one without.
func hooked(t *testing.T, o HookOptions) (with, without *redis.Client) {
	t.Helper()
	addr := redisproc.ForTest(t).Addr()
	hook := newHook(t, o)
	with, without = redis.NewClient(&redis.Options{Addr: addr}), redis.NewClient(&redis.Options{Addr: addr})
	install(t, hook, with)
	t.Cleanup(func() { with.Close(); without.Close() })
	return with, without
}

// TestArgumentsQueuedTwice: one slice of arguments, or one command, may be in a pipeline twice.
func TestArgumentsQueuedTwice(t *testing.T) {
	ctx := t.Context()
	with, without := hooked(t, HookOptions{})
	value := strings.Repeat("the value ", 50)
	args := []any{"set", "k", value}
	cmd := redis.NewStatusCmd(ctx, "set", "c", value)
	p := with.Pipeline()
	p.Do(ctx, args...)
	p.Do(ctx, args...)
	p.Process(ctx, cmd)
	p.Process(ctx, cmd)
	if _, err := p.Exec(ctx); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"k", "c"} {
		if got, err := with.Get(ctx, key).Result(); err != nil || got != value {
			t.Errorf("%s: %d bytes, %v", key, len(got), err)
		}
		if stored := without.Get(ctx, key).Val(); !isPacked(stored) {
			t.Errorf("%s is not packed", key)
		}
	}
	if args[2] != any(value) || cmd.Args()[2] != any(value) {
		t.Error("the arguments have changed")
	}
}

// TestPanicBelowTheHook: the arguments are the program's again.
func TestPanicBelowTheHook(t *testing.T) {
	ctx := t.Context()
	with, _ := hooked(t, HookOptions{})
	with.AddHook(failing{func() error { panic("further down") }})
	value := strings.Repeat("the value ", 50)
	args := []any{"set", "k", value}
	func() {
		defer func() { recover() }()
		with.Do(ctx, args...)
	}()
	if args[2] != any(value) {
		t.Error("the arguments have changed")
	}
}

// TestTransactionInAPipeline: a refused command takes the whole transaction along, wherever it
// begins.
func TestTransactionInAPipeline(t *testing.T) {
	ctx := t.Context()
	with, without := hooked(t, HookOptions{})
	p := with.Pipeline()
	p.Ping(ctx)
	p.Do(ctx, "multi")
	p.Set(ctx, "a", "1", 0)
	p.Append(ctx, "b", "2")
	p.Set(ctx, "c", "3", 0)
	p.Do(ctx, "exec")
	if _, err := p.Exec(ctx); !errors.Is(err, ErrCommand) {
		t.Errorf("%v", err)
	}
	if n := without.DBSize(ctx).Val(); n != 0 {
		t.Errorf("%d keys were written", n)
	}
}

// TestUnknownReplies: a reply that the hook cannot unpack is refused, not handed out.
func TestUnknownReplies(t *testing.T) {
	ctx := t.Context()
	with, _ := hooked(t, HookOptions{})
	value := strings.Repeat("the value ", 50)
	if err := with.HSet(ctx, "h", "f", value).Err(); err != nil {
		t.Fatal(err)
	}
	if err := with.Process(ctx, redis.NewMapStringInterfaceCmd(ctx, "hgetall", "h")); !errors.Is(err, ErrCommand) {
		t.Errorf("a type that it does not know: %v", err)
	}
	if err := with.Process(ctx, redis.NewRawCmd(ctx, "exec")); !errors.Is(err, ErrCommand) {
		t.Errorf("a raw EXEC: %v", err)
	}
	if err := with.HSet(ctx, "h", "novalues", value).Err(); err != nil {
		t.Fatal(err)
	}
	page, _, err := with.HScan(ctx, "h", 0, "novalues", 10).Result()
	if err != nil || len(page) != 2 || page[1] != value {
		t.Errorf("a pattern that reads like an option: %d elements, %v", len(page), err)
	}
	got, err := with.Do(ctx, "hrandfield", "h", 2, []byte("WITHVALUES")).Slice()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range got {
		if s, ok := v.(string); ok && isPacked(s) {
			t.Error("an option given as bytes: packed bytes are handed out")
		}
	}
}

// failing is a hook that does not send.
type failing struct{ fail func() error }

func (failing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f failing) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(context.Context, redis.Cmder) error { return f.fail() }
}

func (f failing) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(context.Context, []redis.Cmder) error { return f.fail() }
}

// TestPipelineNotSent: what another hook held back, a breaker for example, is an error of the
// Store.
func TestPipelineNotSent(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	errOpen := errors.New("circuit open")
	for name, open := range deployments {
		t.Run(name, func(t *testing.T) {
			client := open(t)
			t.Cleanup(func() { client.Close() })
			client.AddHook(failing{func() error { return errOpen }})
			s := NewStore(client)
			_, get := s.GetMany(ctx, []string{"a", "b"})
			_, touch := NewStore(client).Refresh(ctx, "a")
			for what, err := range map[string]error{"set": s.SetMany(ctx, []bale.Item{{Key: "a"}, {Key: "b"}}), "get": get, "touch": touch} {
				if name == "ring" && err == nil || name != "ring" && !errors.Is(err, errOpen) {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}
