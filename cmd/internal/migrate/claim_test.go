package migrate

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// TestClaim: the registry is asked again in each grace period, an answer that does not come is
// waited for, and a dictionary that is gone ends the claim.
func TestClaim(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	registry, err := dict.NewRegistry(goredis.NewStore(open(t, server.Addr())), dict.RegistryOptions{Grace: 20 * time.Millisecond})
	must(t, err)
	d, err := frame.NewDictionary([]byte(text(1) + text(2)))
	must(t, err, registry.Publish(ctx, "g", d, dict.Info{}))
	entry := func() dict.Entry {
		s, err := registry.State(ctx, "g")
		must(t, err)
		return *s.Find(d.ID())
	}
	waits := 0
	c := claim{Registry: registry, Group: "g", Dictionary: d.ID(), Waiting: func(error) { waits++ }}
	for entry().Uses < 3 {
		start := time.Now()
		until, err := c.Hold(ctx)
		must(t, err)
		if until.Sub(start) > 5*20*time.Millisecond+time.Since(start) {
			t.Fatalf("it may write for %v", until.Sub(start))
		}
		if used := entry().Used.Add(writerGraces * 20 * time.Millisecond); until.After(used.Add(2 * time.Millisecond)) { // Used is cut to milliseconds
			t.Fatalf("it may write until %v, and Use says %v", until, used)
		}
	}
	_, err = registry.Remove(ctx, "g", entry(), true)
	must(t, err)
	for {
		if _, err = c.Hold(ctx); err != nil {
			break
		}
	}
	if !errors.Is(err, dict.ErrNotInGroup) || waits != 0 {
		t.Errorf("%v, %d waits", err, waits)
	}
	server.Kill()
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := c.Hold(short); !errors.Is(err, context.DeadlineExceeded) || waits > 1 {
		t.Errorf("without a registry: %v, %d waits", err, waits)
	}
}

// TestForbiddenClaim: a registry that forbids a command does not come back by itself, so that
// nobody waits for it.
func TestForbiddenClaim(t *testing.T) {
	s := redisproc.ForTest(t)
	admin := open(t, s.Addr())
	must(t, admin.Do(t.Context(), "ACL", "SETUSER", "u", "reset", "on", ">p", "~*", "&*", "+@all", "-evalsha", "-eval").Err())
	d, err := frame.NewDictionary([]byte(strings.Repeat("a dictionary ", 100)))
	must(t, err)
	registry, err := dict.NewRegistry(goredis.NewStore(admin), dict.RegistryOptions{})
	must(t, err, registry.Publish(t.Context(), "users", d, dict.Info{}), registry.Activate(t.Context(), "users", d.ID(), true))
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "u", Password: "p"})
	t.Cleanup(func() { c.Close() })
	denied, err := dict.NewRegistry(goredis.NewStore(c), dict.RegistryOptions{})
	must(t, err)
	claim := claim{Registry: denied, Group: "users", Dictionary: d.ID(), Waiting: func(err error) { t.Errorf("it waits: %v", err) }}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := claim.Hold(ctx); !keyspace.IsForbidden(err) {
		t.Error(err)
	}
}

// TestClaimOfReplica: a run does not begin with a registry on a replica. In the middle of a run, as
// after a fail-over, it waits for it to be a master.
func TestClaimOfReplica(t *testing.T) {
	client := open(t, redisproc.ForTest(t).Addr())
	r, err := dict.NewRegistry(registry.NewExplaining(client), dict.RegistryOptions{})
	must(t, err)
	d, err := frame.NewDictionary([]byte(strings.Repeat("a dictionary ", 100)))
	must(t, err, r.Publish(t.Context(), "users", d, dict.Info{}))
	waited := false
	claim := claim{Registry: r, Group: "users", Dictionary: d.ID(), Waiting: func(err error) {
		waited = errors.Is(err, keyspace.ErrReplica)
		must(t, client.ReplicaOf(t.Context(), "NO", "ONE").Err())
	}}
	before := claim
	_, err = claim.Hold(t.Context())
	must(t, err, client.ReplicaOf(t.Context(), "127.0.0.1", "1").Err())
	if _, err := before.Hold(t.Context()); !errors.Is(err, keyspace.ErrReplica) || waited {
		t.Errorf("at the start: %v, it waited: %t", err, waited)
	}
	claim.renew = time.Time{} // a grace period later
	if _, err := claim.Hold(t.Context()); err != nil || !waited {
		t.Errorf("%v, it waited: %t", err, waited)
	}
}

// TestClaimOfAnotherType: a key of another type is no outage, so that nobody waits for it.
func TestClaimOfAnotherType(t *testing.T) {
	client := open(t, redisproc.ForTest(t).Addr())
	store, err := dict.NewRegistry(goredis.NewStore(client), dict.RegistryOptions{})
	must(t, err, client.LPush(t.Context(), dict.DefaultPrefix+"settings", "v").Err())
	claim := claim{Registry: store, Group: "users", Dictionary: 1, Waiting: func(err error) { t.Errorf("it waits: %v", err) }}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := claim.Hold(ctx); !registry.Foreign(err) {
		t.Error(err)
	}
}

// TestForbiddenScripts: without EVALSHA the scripts are sent as a whole. Without EVAL, too, nothing
// is changed, and the error gives the reason and shows no value.
func TestForbiddenScripts(t *testing.T) {
	ctx := t.Context()
	for name, rename := range map[string]bool{"by an ACL": false, "by rename-command": true} {
		for _, forbidden := range [][]string{{"evalsha"}, {"evalsha", "eval"}} {
			args, rules := []string{}, []any{"ACL", "SETUSER", "u", "reset", "on", ">p", "~*", "+@all"}
			for _, c := range forbidden {
				if rules = append(rules, "-"+c); rename {
					args = append(args, "--rename-command", c, "")
				}
			}
			s := redisproc.ForTest(t, args...)
			c := open(t, s.Addr())
			must(t, c.Set(ctx, "k", text(1), 0).Err(), c.HSet(ctx, "h", "f", text(2)).Err())
			if !rename {
				must(t, c.Do(ctx, rules...).Err())
				c = redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "u", Password: "p"})
				t.Cleanup(func() { c.Close() })
			}
			r := &Counts{}
			err := walk(ctx, c, options(t), r)
			if len(forbidden) == 1 {
				if err != nil || r.Changed() != 2 || CanSwap(ctx, c) != nil {
					t.Errorf("%s, without %v: %+v, %v", name, forbidden, r, err)
				}
				continue
			}
			if !errors.Is(err, keyspace.ErrDenied) || !errors.Is(CanSwap(ctx, c), keyspace.ErrDenied) || r.Changed() != 0 || strings.Contains(err.Error(), "name") {
				t.Errorf("%s, without %v: %+v, %v", name, forbidden, r, err)
			}
			if c.Get(ctx, "k").Val() != text(1) {
				t.Error("it was changed")
			}
		}
	}
}

// TestHoldWhenInterrupted: a run that need not ask the registry ends with its context, too, and so
// does one whose changes come to the server too late again and again.
func TestHoldWhenInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := claim{renew: time.Now().Add(time.Hour), until: time.Now().Add(time.Hour)}
	cancel()
	if _, err := c.Hold(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}

	ctx, cancel = context.WithCancel(t.Context())
	client := open(t, redisproc.ForTest(t).Addr())
	must(t, client.Set(ctx, "k", text(1), 0).Err())
	o := options(t)
	asked := 0
	o.Hold = func(context.Context) (time.Time, error) {
		if asked++; asked == 3 {
			cancel()
		}
		return time.Now().Add(-time.Hour), nil
	}
	m := &migration{pass: o, ctx: ctx, client: client, swapper: newSwapper(), result: &Counts{Left: map[Reason]keyspace.Tally{}}}
	_, err := m.swap(t.Context(), client, []change{{value: keyspace.Value{Key: "k", Stored: []byte(text(1))}, next: []byte("packed")}})
	if !errors.Is(err, context.Canceled) || asked > 4 || client.Get(t.Context(), "k").Val() != text(1) {
		t.Errorf("%v after %d times", err, asked)
	}
}
