package goredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/internal/testvalues"
	"github.com/balekv/bale/stats"
)

// recorder keeps the events that it receives.
type recorder struct {
	timed  bool
	mu     sync.Mutex
	events []stats.Event
}

func (r *recorder) Timed(context.Context) bool { return r.timed }

func (r *recorder) Record(_ context.Context, e stats.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// told are the events since it was asked last, without what depends on the pools.
func (r *recorder) told() []stats.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	for i := range events {
		events[i].Fresh = 0
	}
	r.events = nil
	return events
}

// TestRecorder sends every kind of command in every way.
func TestRecorder(t *testing.T) {
	ctx := t.Context()
	v := big("recorded")
	packed, err := newPacker(t, bale.PackerOptions{}).Pack(nil, []byte(v))
	if err != nil {
		t.Fatal(err)
	}
	n, s := len(v), len(packed)
	damaged := damage(string(packed))
	const zstd = frame.Zstd
	absent := string(frame.Freshness{Absent: true}.Append(frame.Header{Version: frame.V2}.Append(nil)))
	unknown := string(frame.Header{Algorithm: frame.Zstd, DictionaryID: 7, Length: 5}.Append(nil)) + "xxxxx"
	event := func(op stats.Op, keys, hits, misses int32, a frame.Algorithm, plain, stored int) []stats.Event {
		return []stats.Event{{Op: op, Keys: keys, Hits: hits, Misses: misses, Algorithm: a, Plain: plain, Stored: stored}}
	}
	failed := func(op stats.Op, class stats.Class, keys, hits, misses, errors int32, a frame.Algorithm, plain, stored int) []stats.Event {
		e := event(op, keys, hits, misses, a, plain, stored)
		e[0].Class, e[0].Errors = class, errors
		return e
	}
	addr := redisproc.ForTest(t).Addr()
	raw := redis.NewClient(&redis.Options{Addr: addr})
	defer raw.Close()
	for _, protocol := range []int{2, 3} {
		rec := &recorder{}
		hooked, reader := redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol}), redis.NewClient(&redis.Options{Addr: addr, Protocol: protocol})
		defer hooked.Close()
		defer reader.Close()
		install(t, newHook(t, HookOptions{Exclude: []string{"other:*"}, Recorder: rec}), hooked)
		install(t, newHook(t, HookOptions{Exclude: []string{"other:*"}, Recorder: rec, ReadOnly: true}), reader)
		for _, test := range []struct {
			client *redis.Client // default: hooked
			cmd    redis.Cmder
			want   []stats.Event
		}{
			{nil, redis.NewStatusCmd(ctx, "set", "new", v), event(stats.Set, 1, 0, 0, zstd, n, s)},
			{nil, redis.NewCmd(ctx, "SET", "new", "short"), event(stats.Set, 1, 0, 0, frame.Stored, 5, 5)},
			{nil, redis.NewCmd(ctx, "set", "k", 5, "nx"), event(stats.Set, 1, 0, 0, frame.Stored, 0, 0)},
			{nil, redis.NewCmd(ctx, "set", "new", "\xba\x1e"), event(stats.Set, 1, 0, 0, frame.Stored, 2, 12)}, // escaped
			{nil, redis.NewCmd(ctx, "getset", "k", v), event(stats.Set, 1, 0, 0, zstd, n, s)},
			{nil, redis.NewStatusCmd(ctx, "set", "k", v, "get"), event(stats.Set, 1, 0, 0, zstd, n, s)},
			{nil, redis.NewCmd(ctx, "getset", "damaged", v), failed(stats.Set, stats.Corrupt, 1, 0, 0, 1, zstd, n, s)},
			{nil, redis.NewCmd(ctx, "set", "list", v, "get"), failed(stats.Set, stats.Server, 1, 0, 0, 1, zstd, n, s)},
			{nil, redis.NewCmd(ctx, "mset", "new", v, "other:1", v, "new2", "short", "new3", 7), event(stats.SetMany, 3, 0, 0, frame.Stored, n+5, s+5)},
			{nil, redis.NewCmd(ctx, "hset", "hnew", "f", "short", "g", v), event(stats.SetMany, 2, 0, 0, zstd, n+5, s+5)},
			{nil, redis.NewCmd(ctx, "hsetnx", "hnew", "f", v), event(stats.Set, 1, 0, 0, zstd, n, s)},
			{reader, redis.NewCmd(ctx, "set", "new", v), event(stats.Set, 1, 0, 0, frame.Stored, n, n)},
			{reader, redis.NewCmd(ctx, "set", "new", packed), event(stats.Set, 1, 0, 0, frame.Stored, s, s+10)}, // escaped
			{reader, redis.NewCmd(ctx, "set", "new", binary(v)), event(stats.Set, 1, 0, 0, frame.Stored, n, n)},
			{reader, redis.NewCmd(ctx, "mset", "new", []byte(v), "other:1", v, "new2", 5), event(stats.SetMany, 2, 0, 0, frame.Stored, n, n)},

			{nil, redis.NewStringCmd(ctx, "get", "k"), event(stats.Get, 1, 1, 0, zstd, n, s)},
			{reader, redis.NewCmd(ctx, "get", "k"), event(stats.Get, 1, 1, 0, zstd, n, s)},
			{nil, redis.NewCmd(ctx, "getex", "plain"), event(stats.Get, 1, 1, 0, frame.Stored, 5, 5)},
			{nil, redis.NewIntCmd(ctx, "get", "number"), event(stats.Get, 1, 1, 0, frame.Stored, 0, 0)},
			{nil, redis.NewCmd(ctx, "getdel", "none"), event(stats.Get, 1, 0, 1, frame.Stored, 0, 0)},
			{nil, redis.NewStringCmd(ctx, "get", "absent"), event(stats.Get, 1, 0, 1, frame.Stored, 0, 0)},
			{nil, redis.NewStringCmd(ctx, "hget", "h", "f"), event(stats.Get, 1, 1, 0, zstd, n, s)},
			{nil, redis.NewStringCmd(ctx, "hget", "h", "none"), event(stats.Get, 1, 0, 1, frame.Stored, 0, 0)},
			{nil, redis.NewStringCmd(ctx, "get", "damaged"), failed(stats.Get, stats.Corrupt, 1, 0, 0, 1, frame.Stored, 0, 0)},
			{nil, redis.NewStringCmd(ctx, "get", "list"), failed(stats.Get, stats.Server, 1, 0, 0, 1, frame.Stored, 0, 0)},
			{nil, redis.NewSliceCmd(ctx, "mget", "plain", "none", "other:1", "absent", "k"), event(stats.GetMany, 4, 2, 2, zstd, n+5, s+5)},
			{nil, redis.NewCmd(ctx, "mget", "k", "unknown", "other:none", "damaged", "none"), failed(stats.GetMany, stats.UnknownDictionary, 4, 1, 1, 2, zstd, n, s)},
			{nil, redis.NewMapStringStringCmd(ctx, "hgetall", "h"), event(stats.GetMany, 1, 1, 0, zstd, n, s)},
			{nil, redis.NewCmd(ctx, "hgetall", "h"), event(stats.GetMany, 1, 1, 0, zstd, n, s)},
			{nil, redis.NewMapStringStringCmd(ctx, "hgetall", "none"), event(stats.GetMany, 1, 0, 1, frame.Stored, 0, 0)},
			{nil, redis.NewMapStringStringCmd(ctx, "hgetall", "list"), failed(stats.GetMany, stats.Server, 1, 0, 0, 1, frame.Stored, 0, 0)},
			{nil, redis.NewSliceCmd(ctx, "hmget", "h", "f", "none"), event(stats.GetMany, 2, 1, 1, zstd, n, s)},
			{nil, redis.NewStringSliceCmd(ctx, "hmget", "h", "f", "none"), event(stats.GetMany, 2, 1, 1, zstd, n, s)},
			{nil, redis.NewStringSliceCmd(ctx, "hvals", "h"), event(stats.GetMany, 1, 1, 0, zstd, n, s)},
			{nil, redis.NewKeyValueSliceCmd(ctx, "hrandfield", "h", 2, "withvalues"), event(stats.GetMany, 1, 1, 0, zstd, n, s)},
			{nil, redis.NewScanCmd(ctx, nil, "hscan", "h", 0), event(stats.GetMany, 1, 1, 0, zstd, n, s)},
			{nil, redis.NewScanCmd(ctx, nil, "hscan", "none", 0), event(stats.GetMany, 0, 0, 0, frame.Stored, 0, 0)},

			// What is not told.
			{nil, redis.NewStringCmd(ctx, "get", "other:1"), nil},
			{nil, redis.NewStatusCmd(ctx, "set", "other:1", v), nil},
			{nil, redis.NewSliceCmd(ctx, "mget", "other:1", "other:2"), nil},
			{nil, redis.NewIntCmd(ctx, "strlen", "k"), nil},
			{nil, redis.NewIntCmd(ctx, "incr", "number"), nil},
			{nil, redis.NewStringSliceCmd(ctx, "hrandfield", "h", 2), nil},
			{nil, redis.NewCmd(ctx, "eval", "return 1", 1, "k"), nil},
			{nil, redis.NewStatusCmd(ctx, "rename", "k", "l"), nil},
			{nil, redis.NewCmd(ctx, "set", "k", v, "ifeq", "old"), nil},
		} {
			for _, sender := range senders {
				raw.FlushAll(ctx)
				raw.MSet(ctx, "k", packed, "plain", "plain", "damaged", damaged, "absent", absent, "unknown", unknown, "number", 7, "other:1", v)
				raw.HSet(ctx, "h", "f", packed)
				raw.LPush(ctx, "list", "x")
				client := test.client
				if client == nil {
					client = hooked
				}
				test.cmd.SetErr(nil)
				sender.send(ctx, client, test.cmd)
				if diff := cmp.Diff(test.want, rec.told()); diff != "" {
					t.Errorf("%s, %s, RESP%d: %v (-want +got):\n%s", shorter(test.cmd), sender.name, protocol, test.cmd.Err(), diff)
				}
			}
		}
	}
}

// TestRecorderOfFailures: commands that never came to the server, or whose values cannot be packed.
func TestRecorderOfFailures(t *testing.T) {
	ctx := t.Context()
	rec := &recorder{}
	hook := newHook(t, HookOptions{Recorder: rec})
	for name, test := range map[string]struct {
		err  error
		want stats.Class
	}{
		"cancelled": {context.Canceled, stats.Canceled}, "deadline": {context.DeadlineExceeded, stats.Timeout},
		"network": {&net.OpError{Op: "read", Err: timeout{}}, stats.Timeout}, "breaker": {errors.New("circuit open"), stats.Server},
	} {
		fail := failing{func() error { return test.err }}
		want := []stats.Event{{Op: stats.GetMany, Class: test.want, Keys: 2, Errors: 2}}
		if err := alone(hook).ProcessHook(fail.ProcessHook(nil))(ctx, redis.NewSliceCmd(ctx, "mget", "a", "b")); err != test.err {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, rec.told()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if err := alone(hook).ProcessPipelineHook(fail.ProcessPipelineHook(nil))(ctx, []redis.Cmder{redis.NewSliceCmd(ctx, "mget", "a", "b")}); err != test.err {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(want, rec.told()); diff != "" {
			t.Errorf("%s, pipeline: %s", name, diff)
		}
	}
	// A value that cannot be packed is not sent; the others of the pipeline are.
	set := func(v any) redis.Cmder { return redis.NewStatusCmd(ctx, "set", "k", v) }
	sent := 0
	err := alone(hook).ProcessPipelineHook(func(_ context.Context, cmds []redis.Cmder) error { sent = len(cmds); return nil })(ctx, []redis.Cmder{set("first"), set(binary("")), set("third value")})
	want := []stats.Event{{Op: stats.Set, Class: stats.Codec, Keys: 1, Errors: 1}, {Op: stats.Set, Keys: 1, Plain: 5, Stored: 5}, {Op: stats.Set, Keys: 1, Plain: 11, Stored: 11}}
	if diff := cmp.Diff(want, rec.told()); diff != "" || sent != 2 || err == nil {
		t.Errorf("%d sent, %v: %s", sent, err, diff)
	}
}

type timeout struct{}

func (timeout) Error() string { return "too late" }
func (timeout) Timeout() bool { return true }

// TestRecorderOfTransactionByHand: what is read comes with EXEC, and is not told.
func TestRecorderOfTransactionByHand(t *testing.T) {
	ctx := t.Context()
	rec := &recorder{}
	hooked, _ := clients(t, HookOptions{Recorder: rec}, 3)
	conn := hooked.Conn()
	defer conn.Close()
	for _, args := range [][]any{{"multi"}, {"set", "k", "short"}, {"get", "k"}, {"mget", "k", "l"}, {"exec"}} {
		if err := conn.Do(ctx, args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]stats.Event{{Op: stats.Set, Keys: 1, Plain: 5, Stored: 5}}, rec.told()); diff != "" {
		t.Error(diff)
	}
}

// TestRecorderTimes: which stages a command has.
func TestRecorderTimes(t *testing.T) {
	ctx := t.Context()
	rec := &recorder{timed: true}
	hooked, raw := clients(t, HookOptions{Recorder: rec}, 3)
	v := big("timed")
	raw.Set(ctx, "plain", "plain", 0)
	check := func(name string, e stats.Event, want ...stats.Stage) {
		t.Helper()
		stages := map[stats.Stage]bool{}
		for _, s := range want {
			stages[s] = true
		}
		for s, took := range e.Times {
			if (took > 0) != stages[stats.Stage(s)] {
				t.Errorf("%s: %v took %v", name, stats.Stage(s), took)
			}
		}
	}
	hooked.Set(ctx, "k", v, 0)
	hooked.Get(ctx, "k")
	hooked.Get(ctx, "plain")
	hooked.GetSet(ctx, "k", v)
	p := hooked.Pipeline()
	p.Set(ctx, "k", v, 0)
	p.Get(ctx, "k")
	p.Get(ctx, "none")
	p.Exec(ctx)
	told := rec.told()
	if len(told) != 7 {
		t.Fatalf("%d events", len(told))
	}
	check("set", told[0], stats.Pack, stats.Store)
	check("get", told[1], stats.Store, stats.Unpack)
	check("get of a plain value", told[2], stats.Store)
	check("getset", told[3], stats.Pack, stats.Store, stats.Unpack)
	check("set in a pipeline", told[4], stats.Pack, stats.Store)
	check("get in a pipeline", told[5], stats.Store, stats.Unpack)
	check("missing key in a pipeline", told[6], stats.Store)
	if told[4].Times[stats.Store] != told[5].Times[stats.Store] {
		t.Error("one pipeline, two round trips")
	}
}

// TestRecorderAllocations: telling allocates nothing, neither of commands nor of pipelines.
func TestRecorderAllocations(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector empties pools")
	}
	ctx := t.Context()
	packed, err := newPacker(t, bale.PackerOptions{}).Pack(nil, []byte(big("allocations")))
	if err != nil {
		t.Fatal(err)
	}
	next := func(_ context.Context, cmd redis.Cmder) error {
		if get, ok := cmd.(*redis.StringCmd); ok {
			get.SetVal(string(packed))
		}
		return nil
	}
	cmds := []redis.Cmder{redis.NewStatusCmd(ctx, "set", "user:1", big("allocations")), redis.NewStringCmd(ctx, "get", "user:1"), redis.NewStatusCmd(ctx, "set", "user:1", 5)}
	count := func(r stats.Recorder) map[string]float64 {
		hook := newHook(t, HookOptions{Match: []string{"user:*"}, Recorder: r})
		process := alone(hook).ProcessHook(next)
		allocs := map[string]float64{}
		for i, cmd := range cmds {
			allocs[fmt.Sprint(i)] = testing.AllocsPerRun(100, func() { process(ctx, cmd) })
		}
		pipeline := alone(hook).ProcessPipelineHook(func(ctx context.Context, cmds []redis.Cmder) error {
			for _, cmd := range cmds {
				next(ctx, cmd)
			}
			return nil
		})
		allocs["pipeline"] = testing.AllocsPerRun(100, func() { pipeline(ctx, cmds) })
		return allocs
	}
	without := count(nil)
	if diff := cmp.Diff(without, count(stats.NewCounters(stats.CountersOptions{TimeEvery: 1}))); diff != "" {
		t.Errorf("allocations (-without +with a Recorder):\n%s", diff)
	}
	if want := map[string]float64{"0": 3, "1": 2, "2": 0, "pipeline": 7}; !cmp.Equal(want, without) {
		t.Errorf("without a Recorder %v allocations, want %v", without, want)
	}
}

// TestCountersOfHook: what the counters of a program make of it.
func TestCountersOfHook(t *testing.T) {
	ctx := t.Context()
	counters := stats.NewCounters(stats.CountersOptions{})
	hooked, _ := clients(t, HookOptions{Recorder: counters}, 3)
	for i := range 10 {
		hooked.Set(ctx, fmt.Sprint("k", i), big("counted"), time.Hour)
	}
	for i := range 15 {
		hooked.Get(ctx, fmt.Sprint("k", i))
	}
	s := counters.Snapshot()
	if get := s.Ops[stats.Get]; get.Count != 15 || get.Hits != 10 || get.Misses != 5 || s.Ops[stats.Set].Count != 10 {
		t.Errorf("%+v", s.Ops[:2])
	}
}

// BenchmarkRecorder is what telling adds to a GET of a plain value, the fastest that there is.
func BenchmarkRecorder(b *testing.B) {
	ctx := b.Context()
	cmd := redis.NewStringCmd(ctx, "get", "user:1")
	for _, bench := range []struct {
		name     string
		recorder stats.Recorder
	}{
		{"none", nil}, {"counters", stats.NewCounters(stats.CountersOptions{})}, {"all timed", stats.NewCounters(stats.CountersOptions{TimeEvery: 1})},
	} {
		b.Run(bench.name, func(b *testing.B) {
			process := alone(newHook(b, HookOptions{Match: []string{"user:*"}, Recorder: bench.recorder})).ProcessHook(func(context.Context, redis.Cmder) error {
				cmd.SetVal("plain")
				return nil
			})
			b.ReportAllocs()
			for b.Loop() {
				process(ctx, cmd)
			}
		})
	}
}
