package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/tcptest"
	"github.com/balekv/bale/internal/redisproc"
)

func TestMain(m *testing.M) { tcptest.VerifyTestMain(m) }

func client(t *testing.T) redis.UniversalClient {
	c := redis.NewClient(&redis.Options{Addr: redisproc.ForTest(t).Addr()})
	t.Cleanup(func() { c.Close() })
	return c
}

func join(t *testing.T, c redis.UniversalClient, units int) *Run {
	t.Helper()
	r, err := Join(t.Context(), c, "p:", "users", Job{Command: "migrate", Settings: json.RawMessage(`{"match":["*"]}`), Units: units})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestWork: many workers do each unit once, one of a shard at a time, and what is done once for all
// is.
func TestWork(t *testing.T) {
	c := client(t)
	const units, shards, workers = 60, 7, 5
	var lock sync.Mutex
	done, atWork := map[int]int{}, map[int]bool{}
	prepared := 0
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			r := join(t, c, units)
			text, err := r.Once(t.Context(), "prepare", func(context.Context) (json.RawMessage, error) {
				prepared++ // by one alone
				return json.RawMessage(`"ready"`), nil
			})
			if err != nil || string(text) != `"ready"` {
				t.Errorf("%s, %v", text, err)
			}
			err = r.Work(t.Context(), Worker{
				Shards: func(context.Context) (func(int) []string, error) {
					return func(unit int) []string { return []string{fmt.Sprint("s", unit%shards)} }, nil
				},
				Do: func(_ context.Context, u *Unit) error {
					lock.Lock()
					if done[u.Number]++; atWork[u.Number%shards] {
						t.Errorf("two units of shard %d at once", u.Number%shards)
					}
					atWork[u.Number%shards] = true
					lock.Unlock()
					time.Sleep(time.Millisecond)
					lock.Lock()
					defer lock.Unlock()
					atWork[u.Number%shards] = false
					u.State = json.RawMessage(fmt.Sprint(u.Number))
					return nil
				},
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if len(done) != units || prepared != 1 {
		t.Errorf("%d units done, prepared %d times", len(done), prepared)
	}
	for u, n := range done {
		if n != 1 {
			t.Errorf("unit %d done %d times", u, n)
		}
	}
	r := join(t, c, units)
	saved := 0
	if err := r.States(t.Context(), func(i int, s json.RawMessage) error {
		if saved++; string(s) != fmt.Sprint(i) {
			t.Errorf("unit %d: %s", i, s)
		}
		return nil
	}); err != nil || saved != units {
		t.Errorf("%d states, %v", saved, err)
	}
	if ttl := c.PTTL(t.Context(), "p:run:users").Val(); ttl <= 0 {
		t.Errorf("a run that is done lives for %v", ttl)
	}
	if names, err := List(t.Context(), c, "p:"); err != nil || len(names) != 1 || names[0] != "users" {
		t.Errorf("%q, %v", names, err)
	}
}

// first does something before each command of a name.
type first struct {
	command string // what the name begins with
	do      func()
}

func (h first) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h first) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h first) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), h.command) {
			h.do()
		}
		return next(ctx, cmd)
	}
}

// TestListKeepsNewRuns: a list at the moment when a run is made does not remove its name, nor one
// when a run is made again that has expired.
func TestListKeepsNewRuns(t *testing.T) {
	s := redisproc.ForTest(t)
	joining, c := redis.NewClient(&redis.Options{Addr: s.Addr()}), redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer joining.Close()
	defer c.Close()
	list := func() []string {
		names, err := List(t.Context(), c, "p:")
		if err != nil {
			t.Error(err)
		}
		return names
	}
	joining.AddHook(first{"eval", func() { list() }})
	join(t, joining, 1)
	if names := list(); !slices.Equal(names, []string{"users"}) {
		t.Errorf("%q", names)
	}

	if err := joining.Del(t.Context(), "p:run:users").Err(); err != nil {
		t.Fatal(err)
	}
	again := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer again.Close()
	c.AddHook(first{"hdel", func() { join(t, again, 1) }})
	for range 2 {
		if names := list(); !slices.Equal(names, []string{"users"}) {
			t.Errorf("%q", names)
		}
	}
}

// TestForgedRun: a run that somebody forged takes no more memory than one of bale's.
func TestForgedRun(t *testing.T) {
	ctx := t.Context()
	c := redis.NewClient(&redis.Options{Addr: redisproc.ForTest(t).Addr()})
	defer c.Close()
	r := join(t, c, 3)
	forge := func(script string) {
		t.Helper()
		if err := c.Eval(ctx, script, []string{r.key, index("p:")}).Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
	forge("redis.call('HSET', KEYS[1], 'state', string.rep('x', 8e6))")
	if _, err := r.View(ctx); !errors.Is(err, ErrUnknown) {
		t.Errorf("a state of 8 MB: %v", err)
	}
	if err := r.Set(ctx, Paused); !errors.Is(err, ErrUnknown) {
		t.Errorf("a state of 8 MB: %v", err)
	}
	if _, answer, err := r.take(ctx, "0", nil); answer != "unknown" || err != nil {
		t.Errorf("a state of 8 MB: %q, %v", answer, err)
	}
	forge("redis.call('HSET', KEYS[1], 'state', 'running', 'lease:2', string.rep('9', 8e6))")
	if _, err := r.View(ctx); err == nil || !strings.Contains(err.Error(), "another --run NAME") {
		t.Errorf("a lease of 8 MB: %v", err)
	}
	forge("redis.call('HSET', KEYS[1], 'lease:2', '9\\n9')")
	if _, err := r.View(ctx); !keyspace.IsReply(err) {
		t.Errorf("a lease of two lines: %v", err)
	}
	if err := r.Set(ctx, Aborted); err != nil {
		t.Errorf("a run with forged leases cannot be aborted: %v", err)
	}
	forge("redis.call('HSET', KEYS[2], string.rep('x', 8e6), 'verify', 'gone', string.rep('x', 8e6))")
	if names, err := List(ctx, c, "p:"); err != nil || !slices.Equal(names, []string{"users"}) {
		t.Errorf("%d names, %v", len(names), err)
	}
	forge("for i = 1, 10000 do redis.call('HSET', KEYS[2], i, 'verify') end")
	if names, err := List(ctx, c, "p:"); err == nil || !strings.Contains(err.Error(), "p:runs names more runs") {
		t.Errorf("%d names, %v", len(names), err)
	}
}

// TestFenced: a worker whose lease has ended saves nothing, and the next one goes on from what was
// saved before.
func TestFenced(t *testing.T) {
	c := client(t)
	first, second := join(t, c, 1), join(t, c, 1)
	u, _, err := first.take(t.Context(), "0", []string{"s"})
	if err != nil || u == nil {
		t.Fatal(err)
	}
	u.State = json.RawMessage(`"half"`)
	if err := u.Save(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v, answer, err := second.take(t.Context(), "0", []string{"s"}); v != nil || answer != "taken" || err != nil {
		t.Fatalf("%v, %q, %v", v, answer, err)
	}
	for _, field := range []string{"lease:0", "shard:s"} { // as if its time had passed
		text := c.HGet(t.Context(), first.key, field).Val()
		if err := c.HSet(t.Context(), first.key, field, "1"+text[13:]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	v, _, err := second.take(t.Context(), "0", []string{"s"})
	if err != nil || v == nil || string(v.State) != `"half"` {
		t.Fatalf("%+v, %v", v, err)
	}
	u.State = json.RawMessage(`"late"`)
	for name, act := range map[string]func() error{
		"save":   func() error { return u.Save(t.Context()) },
		"finish": func() error { return u.finish(t.Context(), time.Second) },
		"back":   func() error { return u.tell(t.Context(), 0, nil) },
	} {
		if err := act(); !errors.Is(err, errFenced) {
			t.Errorf("%s of the late one: %v", name, err)
		}
	}
	v.State = json.RawMessage(`"whole"`)
	if err := v.finish(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	if err := v.finish(t.Context(), time.Second); err != nil { // its answer was lost
		t.Errorf("told again: %v", err)
	}
	if got := c.HGet(t.Context(), first.key, "unit:0").Val(); got != `"whole"` {
		t.Errorf("the state is %s", got)
	}
	if c.HExists(t.Context(), first.key, "shard:s").Val() {
		t.Error("the shard is still taken")
	}
}

// TestPauseAndAbort: a unit that is worked on is lost to a pause, and a run that is aborted stays
// so.
func TestPauseAndAbort(t *testing.T) {
	c := client(t)
	r := join(t, c, 2)
	u, _, err := r.take(t.Context(), "0", nil)
	if err != nil {
		t.Fatal(err)
	}
	set := func(state string) {
		t.Helper()
		if err := r.Set(t.Context(), state); err != nil {
			t.Fatal(err)
		}
	}
	set(Paused)
	if err := u.Save(t.Context()); !errors.Is(err, errPaused) {
		t.Errorf("saved while the run is paused: %v", err)
	}
	if v, answer, err := r.take(t.Context(), "1", nil); v != nil || answer != Paused || err != nil {
		t.Errorf("%v, %q, %v", v, answer, err)
	}
	set(Running)
	if err := u.Save(t.Context()); err != nil {
		t.Error(err)
	}
	set(Aborted)
	if err := u.finish(t.Context(), time.Second); err != nil {
		t.Errorf("what was done: %v", err)
	}
	if err := r.Work(t.Context(), Worker{Do: func(context.Context, *Unit) error { return nil }}); !errors.Is(err,
		ErrAborted) {
		t.Error(err)
	}
	if err := r.Set(t.Context(), Running); !errors.Is(err, ErrAborted) {
		t.Errorf("it runs again: %v", err)
	}
}

// TestDoneStays: a run that is done is neither paused nor resumed nor aborted, also where no worker
// lived to end it.
func TestDoneStays(t *testing.T) {
	c := client(t)
	r := join(t, c, 1)
	u, _, err := r.take(t.Context(), "0", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := u.finish(t.Context(), time.Second); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{Running, Paused} { // paused as its last unit ended
		c.HSet(t.Context(), r.key, "state", state)
		before := c.HGetAll(t.Context(), r.key).Val()
		for _, state := range []string{Aborted, Paused, Running} {
			if err := r.Set(t.Context(), state); !errors.Is(err, ErrDone) {
				t.Errorf("%s: %v", state, err)
			}
		}
		if after := c.HGetAll(t.Context(), r.key).Val(); !maps.Equal(before, after) {
			t.Errorf("%v, and before %v", after, before)
		}
		if err := r.Work(t.Context(), Worker{}); err != nil {
			t.Error(err)
		}
		if left := c.PTTL(t.Context(), r.key).Val(); left <= 0 || state == Paused && left > time.Hour {
			t.Errorf("%s: it is kept for %v", state, left) // no longer for a later worker
		}
		c.PExpire(t.Context(), r.key, time.Hour)
		_, err := r.Once(t.Context(), "after "+state, func(context.Context) (json.RawMessage, error) { return nil, nil })
		if err != nil {
			t.Errorf("%s: %v", state, err)
		}
	}
	state, err := setScript.Run(t.Context(), c, []string{r.key}, Aborted, 1).Text() // of another worker
	if err != nil || state != Done || c.HGet(t.Context(), r.key, "state").Val() != Running {
		t.Errorf("%q, %v", state, err)
	}
}

// TestFailingUnits: a unit that fails is tried again, and a worker gives up in the end.
func TestFailingUnits(t *testing.T) {
	c := client(t)
	r := join(t, c, 3)
	var tried atomic.Int32
	broken := errors.New("broken")
	err := r.Work(t.Context(), Worker{Do: func(_ context.Context, u *Unit) error {
		if u.Number == 1 && tried.Add(1) < 3 {
			return broken
		}
		return nil
	}})
	if err != nil || tried.Load() != 3 {
		t.Errorf("%v after %d tries", err, tried.Load())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	r2, err := Join(ctx, c, "p:", "other", Job{Command: "migrate", Settings: json.RawMessage(`1`), Units: 1})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = r2.Work(ctx, Worker{
		Do: func(context.Context, *Unit) error {
			if n++; n == 3 {
				cancel(nil)
			}
			return broken
		},
	})
	if !errors.Is(err, context.Canceled) || n != 3 {
		t.Errorf("%v after %d", err, n)
	}
	if v, err := r2.View(t.Context()); err != nil || len(v.Workers) != 0 {
		t.Errorf("an interrupted worker keeps its unit: %+v, %v", v, err)
	}
}

// TestJoin: a name is for one command and its settings. The units are those of who came first.
func TestJoin(t *testing.T) {
	c := client(t)
	join(t, c, 3)
	for name, job := range map[string]Job{
		"command":  {Command: "verify", Settings: json.RawMessage(`{"match":["*"]}`), Units: 3},
		"settings": {Command: "migrate", Settings: json.RawMessage(`{"match":["a*"]}`), Units: 3},
	} {
		if _, err := Join(t.Context(), c, "p:", "users", job); !errors.Is(err, ErrOther) {
			t.Errorf("other %s: %v", name, err)
		}
	}
	if r := join(t, c, 4); r.Units != 3 {
		t.Errorf("%d units", r.Units)
	}
	for _, name := range []string{"", "a b", "-x", "\x1b[31m", string(make([]byte, 200))} {
		if _, err := Join(t.Context(), c, "p:", name, Job{Command: "x", Units: 1}); err == nil {
			t.Errorf("name %q was taken", name)
		}
	}
	if _, err := Open(t.Context(), c, "p:", "none"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if err := c.HSet(t.Context(), "p:run:forged", "job", `{"layout":1,"units":2000000000}`).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), c, "p:", "forged"); !errors.Is(err, ErrOther) {
		t.Error(err)
	}
}

// TestTokenOfALostLease: after a fail-over that lost a lease, the next one may have its number. The
// first worker saves nothing all the same.
func TestTokenOfALostLease(t *testing.T) {
	c := client(t)
	first, second := join(t, c, 1), join(t, c, 1)
	u, _, err := first.take(t.Context(), "0", nil)
	if err != nil || u == nil {
		t.Fatal(err)
	}
	if err := c.HDel(t.Context(), first.key, "lease:0", "token").Err(); err != nil {
		t.Fatal(err)
	}
	v, _, err := second.take(t.Context(), "0", nil)
	if err != nil || v == nil {
		t.Fatal(err)
	}
	u.State = json.RawMessage(`"late"`)
	if err := u.Save(t.Context()); !errors.Is(err, errFenced) {
		t.Errorf("the first one saves: %v", err)
	}
	if err := v.Save(t.Context()); err != nil {
		t.Errorf("the second one does not: %v", err)
	}
}

// lossy loses the first answer that a unit is done.
type lossy struct{ lost bool }

func (*lossy) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *lossy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		for _, arg := range cmd.Args() {
			if text, _ := arg.(string); strings.HasPrefix(text, "done ") && err == nil && !l.lost {
				l.lost = true
				return errors.New("the answer is lost")
			}
		}
		return err
	}
}

func (*lossy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// away is a Redis that does not answer the first time that it is asked for a unit.
type away struct{ asked bool }

func (*away) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *away) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.Contains(cmd.Args(), any("prepare")) && !a.asked {
			a.asked = true
			return io.EOF
		}
		return next(ctx, cmd)
	}
}

func (*away) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestOnceWhileAway: what is done once outlasts a fail-over of the Redis with the run.
func TestOnceWhileAway(t *testing.T) {
	c, a := client(t), &away{}
	c.AddHook(a)
	text, err := join(t, c, 1).Once(t.Context(), "prepare", func(context.Context) (json.RawMessage, error) { return json.RawMessage(`1`), nil })
	if string(text) != "1" || err != nil || !a.asked {
		t.Errorf("%s, %v, asked %v", text, err, a.asked)
	}
}

// TestLostAnswer: a unit whose end was told, without an answer, is done by this worker.
func TestLostAnswer(t *testing.T) {
	c, l := client(t), &lossy{}
	c.AddHook(l)
	r := join(t, c, 1)
	u, _, err := r.take(t.Context(), "0", nil)
	if err != nil || u == nil {
		t.Fatal(err)
	}
	if err := r.hold(t.Context(), u, func(context.Context) error { u.State = json.RawMessage(`1`); return nil }); err != nil || !l.lost {
		t.Errorf("lost %v: %v", l.lost, err)
	}
}

// TestInterruptIsNoFailure: a worker that is interrupted does not say that something is tried
// again.
func TestInterruptIsNoFailure(t *testing.T) {
	r := join(t, client(t), 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Work(ctx, Worker{Failed: func(_ int, err error) { t.Error(err) }}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestLateWorker: one that joins when all is done takes the run's time, not that until now.
func TestLateWorker(t *testing.T) {
	c := client(t)
	work := func() float64 {
		t.Helper()
		r := join(t, c, 1)
		if err := r.Work(t.Context(), Worker{Do: func(context.Context, *Unit) error { return nil }}); err != nil {
			t.Fatal(err)
		}
		return r.Seconds()
	}
	work()
	if c.HGet(t.Context(), "p:run:users", "started").Val() > c.HGet(t.Context(), "p:run:users", "ended").Val() {
		t.Error("it ended before it started")
	}
	if err := c.HSet(t.Context(), "p:run:users", "started", 1000, "ended", 3500).Err(); err != nil {
		t.Fatal(err)
	}
	if got := work(); got != 2.5 {
		t.Errorf("%v s", got)
	}
}

// oddReplies answers each command with so many elements.
type oddReplies int

func (oddReplies) DialHook(next redis.DialHook) redis.DialHook { return next }

func (oddReplies) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (n oddReplies) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if c, ok := cmd.(*redis.Cmd); ok {
			c.SetVal(slices.Repeat([]any{"x"}, int(n)))
		}
		return nil
	}
}

// TestOddReply: a server that answers a script with another number of elements ends no worker.
func TestOddReply(t *testing.T) {
	for _, n := range []int{0, 2, 4} {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		client.AddHook(oddReplies(n))
		r := &Run{client: client, key: "k", Worker: "w"}
		if u, _, err := r.take(t.Context(), "0", nil); u != nil || err == nil {
			t.Errorf("%d elements: %v, %v", n, u, err)
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
}
