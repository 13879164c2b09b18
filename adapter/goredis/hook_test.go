package goredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/internal/sampling"
	"github.com/balekv/bale/internal/testvalues"
	"github.com/balekv/bale/stream"
)

// big is a value that packs well.
func big(seed string) string { return strings.Repeat("a value that repeats itself, "+seed+"; ", 20) }

func newPacker(t testing.TB, o bale.PackerOptions) *bale.Packer {
	t.Helper()
	p, err := bale.NewPacker(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func newHook(t testing.TB, o HookOptions) *Hook {
	t.Helper()
	if o.Match == nil {
		o.Match = []string{"*"}
	}
	h, err := NewHook(newPacker(t, bale.PackerOptions{}), o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// install puts a hook on a client, as a program does.
func install(t testing.TB, h *Hook, c redis.UniversalClient) {
	t.Helper()
	if err := h.Install(c); err != nil {
		t.Fatal(err)
	}
}

// valueOf is what a command returned.
func valueOf(cmd redis.Cmder) any {
	switch cmd := cmd.(type) {
	case *redis.Cmd:
		return cmd.Val()
	case *redis.SliceCmd:
		return cmd.Val()
	case *redis.StringSliceCmd:
		return cmd.Val()
	case *redis.MapStringStringCmd:
		return cmd.Val()
	case *redis.IntCmd:
		return cmd.Val()
	case *redis.ScanCmd:
		keys, _ := cmd.Val()
		return keys
	}
	return nil
}

// alone is a hook on a client of one server, without the client.
func alone(h *Hook) *installed {
	i := &installed{hook: h}
	i.level.Store(int32(whole))
	return i
}

// clients are two clients of an empty server: one with a hook, one without.
func clients(t testing.TB, o HookOptions, protocol int) (hooked, raw *redis.Client) {
	t.Helper()
	server := redisproc.ForTest(t)
	options := func() *redis.Options { return &redis.Options{Addr: server.Addr(), Protocol: protocol} }
	hooked, raw = redis.NewClient(options()), redis.NewClient(options())
	install(t, newHook(t, o), hooked)
	t.Cleanup(func() { hooked.Close(); raw.Close() })
	return hooked, raw
}

func isPacked(s string) bool {
	_, _, ok := frame.Parse([]byte(s))
	return ok
}

// sender sends commands in one of the ways there are, and gives the reply to the last one.
type sender struct {
	name string
	send func(ctx context.Context, c redis.UniversalClient, cmd redis.Cmder) error
}

var senders = []sender{
	{"single", func(ctx context.Context, c redis.UniversalClient, cmd redis.Cmder) error { return c.Process(ctx, cmd) }},
	{"pipeline", func(ctx context.Context, c redis.UniversalClient, cmd redis.Cmder) error {
		p := c.Pipeline()
		p.Ping(ctx)
		p.Process(ctx, cmd)
		_, err := p.Exec(ctx)
		return err
	}},
	{"transaction", func(ctx context.Context, c redis.UniversalClient, cmd redis.Cmder) error {
		p := c.TxPipeline()
		p.Process(ctx, cmd)
		_, err := p.Exec(ctx)
		return err
	}},
}

// TestWritesArePackedAndReadsUnpacked takes every command that writes or reads values through every
// way to send it, in both protocols, with typed replies and with Do's.
func TestWritesArePackedAndReadsUnpacked(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a, b := big("a"), big("b")
	hashSet := []any{"hset", "h", "f", a, "g", b}
	do := func(args ...any) redis.Cmder { return redis.NewCmd(ctx, args...) }
	for _, test := range []struct {
		before []any                     // sent through the hook beforehand
		cmd    func() redis.Cmder        // the command
		reply  any                       // what it must reply, nil for whatever
		get    func(cmd redis.Cmder) any // how to read the reply; default: Val of a *redis.Cmd
		stored map[string]string         // strings, or key.field of hashes, that must be stored packed and decode to these
	}{
		{cmd: func() redis.Cmder { return do("SET", "k", a) }, reply: "OK", stored: map[string]string{"k": a}},
		{cmd: func() redis.Cmder { return do("set", "k", a, "ex", 100, "nx") }, reply: "OK", stored: map[string]string{"k": a}},
		{before: []any{"set", "k", b}, cmd: func() redis.Cmder { return do("set", "k", a, "xx", "keepttl") }, reply: "OK", stored: map[string]string{"k": a}},
		{before: []any{"set", "k", b}, cmd: func() redis.Cmder { return do("set", "k", a, "get") }, reply: b, stored: map[string]string{"k": a}},
		{before: []any{"set", "k", b}, cmd: func() redis.Cmder {
			return redis.NewStatusCmd(ctx, "set", "k", a, "pxat", time.Now().Add(time.Hour).UnixMilli(), "get")
		}, reply: b,
			get: func(c redis.Cmder) any { return c.(*redis.StatusCmd).Val() }, stored: map[string]string{"k": a}},
		{cmd: func() redis.Cmder { return do("setex", "k", 100, a) }, stored: map[string]string{"k": a}},
		{cmd: func() redis.Cmder { return do("psetex", "k", 100000, a) }, stored: map[string]string{"k": a}},
		{cmd: func() redis.Cmder { return do("setnx", "k", a) }, reply: int64(1), stored: map[string]string{"k": a}},
		{before: []any{"set", "k", b}, cmd: func() redis.Cmder { return do("getset", "k", a) }, reply: b, stored: map[string]string{"k": a}},
		{before: []any{"set", "k", b}, cmd: func() redis.Cmder { return do("getex", "k", "ex", 10) }, reply: b, stored: map[string]string{"k": b}},
		{before: []any{"set", "k", b}, cmd: func() redis.Cmder { return do("getdel", "k") }, reply: b},
		{before: []any{"set", "k", b}, cmd: func() redis.Cmder { return do("get", "k") }, reply: b},
		{before: []any{"set", "k", b}, cmd: func() redis.Cmder { return redis.NewStringCmd(ctx, "get", "k") }, reply: b, get: func(c redis.Cmder) any { return c.(*redis.StringCmd).Val() }},
		{cmd: func() redis.Cmder { return do("mset", "k", a, "l", b, "m", "short") }, stored: map[string]string{"k": a, "l": b}},
		{cmd: func() redis.Cmder { return do("msetnx", "k", a, "l", b) }, reply: int64(1), stored: map[string]string{"k": a, "l": b}},
		{before: []any{"mset", "k", a, "l", b}, cmd: func() redis.Cmder { return do("mget", "k", "none", "l") }, reply: []any{a, nil, b}},
		{before: []any{"mset", "k", a, "l", b}, cmd: func() redis.Cmder { return redis.NewSliceCmd(ctx, "mget", "k", "none", "l") }, reply: []any{a, nil, b}, get: func(c redis.Cmder) any { return c.(*redis.SliceCmd).Val() }},
		{cmd: func() redis.Cmder { return do("hset", "h", "f", a, "n", 1, "g", b) }, reply: int64(3), stored: map[string]string{"h.f": a, "h.g": b}},
		{cmd: func() redis.Cmder { return do("hmset", "h", "f", a) }, stored: map[string]string{"h.f": a}},
		{cmd: func() redis.Cmder { return do("hsetnx", "h", "f", a) }, reply: int64(1), stored: map[string]string{"h.f": a}},
		{before: hashSet, cmd: func() redis.Cmder { return do("hget", "h", "f") }, reply: a},
		{before: hashSet, cmd: func() redis.Cmder { return do("hmget", "h", "g", "none", "f") }, reply: []any{b, nil, a}},
		{before: hashSet, cmd: func() redis.Cmder { return redis.NewSliceCmd(ctx, "hmget", "h", "g", "none") }, reply: []any{b, nil}, get: func(c redis.Cmder) any { return c.(*redis.SliceCmd).Val() }},
		{before: hashSet, cmd: func() redis.Cmder { return do("hvals", "h") }, reply: []any{a, b}},
		{before: hashSet, cmd: func() redis.Cmder { return redis.NewStringSliceCmd(ctx, "hvals", "h") }, reply: []string{a, b}, get: func(c redis.Cmder) any { return c.(*redis.StringSliceCmd).Val() }},
		{before: hashSet, cmd: func() redis.Cmder { return do("hgetall", "h") }, reply: "a map", get: func(c redis.Cmder) any { // a list in RESP2
			return shape(c.(*redis.Cmd).Val(), map[string]string{"f": a, "g": b})
		}},
		{before: hashSet, cmd: func() redis.Cmder { return redis.NewMapStringStringCmd(ctx, "hgetall", "h") }, reply: map[string]string{"f": a, "g": b}, get: func(c redis.Cmder) any { return c.(*redis.MapStringStringCmd).Val() }},
		{before: hashSet, cmd: func() redis.Cmder { return redis.NewKeyValueSliceCmd(ctx, "hrandfield", "h", 2, "withvalues") }, reply: map[string]string{"f": a, "g": b}, get: func(c redis.Cmder) any {
			m := map[string]string{}
			for _, p := range c.(*redis.KeyValueSliceCmd).Val() {
				m[p.Key] = p.Value
			}
			return m
		}},
		{before: hashSet, cmd: func() redis.Cmder { return do("hrandfield", "h", 2, "withvalues") }, reply: "a map", get: func(c redis.Cmder) any {
			return shape(c.(*redis.Cmd).Val(), map[string]string{"f": a, "g": b})
		}},
		{before: hashSet, cmd: func() redis.Cmder { return redis.NewScanCmd(ctx, nil, "hscan", "h", 0) }, reply: []string{"f", a, "g", b}, get: func(c redis.Cmder) any { page, _ := c.(*redis.ScanCmd).Val(); return page }},
		{before: hashSet, cmd: func() redis.Cmder { return do("hscan", "h", 0) }, reply: []any{"0", []any{"f", a, "g", b}}},
	} {
		for _, protocol := range []int{2, 3} {
			hooked, raw := clients(t, HookOptions{}, protocol)
			for _, s := range senders {
				t.Run(fmt.Sprintf("%s/%s/RESP%d", shorter(test.cmd()), s.name, protocol), func(t *testing.T) {
					if err := raw.FlushAll(ctx).Err(); err != nil {
						t.Fatal(err)
					}
					if test.before != nil {
						if err := hooked.Do(ctx, test.before...).Err(); err != nil {
							t.Fatal(err)
						}
					}
					cmd := test.cmd()
					args := append([]any(nil), cmd.Args()...)
					if err := s.send(ctx, hooked, cmd); err != nil {
						t.Fatal(err)
					}
					if diff := gocmp(args, cmd.Args()); diff != "" {
						t.Errorf("arguments were changed:\n%s", diff)
					}
					if test.reply != nil {
						get := test.get
						if get == nil {
							get = func(c redis.Cmder) any { return c.(*redis.Cmd).Val() }
						}
						if diff := gocmp(test.reply, get(cmd)); diff != "" {
							t.Errorf("reply (-want +got):\n%s", diff)
						}
					}
					for name, want := range test.stored {
						var stored string
						if key, field, hash := strings.Cut(name, "."); hash {
							stored = raw.HGet(ctx, key, field).Val()
						} else {
							stored = raw.Get(ctx, name).Val()
						}
						plain, err := newPacker(t, bale.PackerOptions{}).Unpack(t.Context(), nil, []byte(stored))
						if !isPacked(stored) || err != nil || string(plain) != want {
							t.Errorf("%s is stored as %d bytes, packed %v, %v", name, len(stored), isPacked(stored), err)
						}
					}
				})
			}
		}
	}
}

func gocmp(want, got any) string { return cmp.Diff(want, got) }

// shape flattens what Do replies for fields and values, and says "a map" if it is the wanted one.
func shape(v any, want map[string]string) any {
	got := map[string]string{}
	switch v := v.(type) {
	case map[any]any:
		for field, value := range v {
			got[field.(string)] = value.(string)
		}
	case []any:
		for i := 0; i < len(v); i++ {
			if pair, ok := v[i].([]any); ok {
				got[pair[0].(string)] = pair[1].(string)
			} else {
				got[v[i].(string)] = v[i+1].(string)
				i++
			}
		}
	}
	if cmp.Equal(want, got) {
		return "a map"
	}
	return v
}

// shorter names a test by its command without the values.
func shorter(cmd redis.Cmder) string {
	var parts []string
	for _, a := range cmd.Args() {
		if s := fmt.Sprint(a); len(s) < 20 {
			parts = append(parts, s)
		}
	}
	return fmt.Sprintf("%T %s", cmd, strings.Join(parts, " "))
}

func TestTypedMethods(t *testing.T) {
	ctx := t.Context()
	hooked, raw := clients(t, HookOptions{}, 3)
	v := big("typed")
	if err := hooked.Set(ctx, "k", []byte(v), time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if got, err := hooked.GetEx(ctx, "k", time.Minute).Result(); got != v || err != nil {
		t.Errorf("GetEx: %v", err)
	}
	if got, err := hooked.SetArgs(ctx, "k", big("new"), redis.SetArgs{Get: true, TTL: time.Hour}).Result(); got != v || err != nil {
		t.Errorf("SetArgs with Get: %v", err)
	}
	if _, err := hooked.SetArgs(ctx, "none", v, redis.SetArgs{Get: true}).Result(); !errors.Is(err, redis.Nil) {
		t.Errorf("SetArgs with Get of a key that was not there: %v", err)
	}
	type row struct {
		Name string `redis:"name"`
		N    int    `redis:"n"`
	}
	if err := hooked.HSet(ctx, "h", row{v, 7}).Err(); err != nil {
		t.Fatal(err)
	}
	var got row
	if err := hooked.HGetAll(ctx, "h").Scan(&got); err != nil || got != (row{v, 7}) {
		t.Errorf("struct: %v, %v", got.N, err)
	}
	if s := raw.HGet(ctx, "h", "name").Val(); !isPacked(s) {
		t.Error("the field of a struct is not packed")
	}
	if n, err := hooked.HIncrBy(ctx, "h", "n", 1).Result(); n != 8 || err != nil {
		t.Errorf("HIncrBy: %d, %v", n, err)
	}
	if err := hooked.Set(ctx, "n", 41, 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := hooked.Incr(ctx, "n").Result(); n != 42 || err != nil {
		t.Errorf("Incr: %d, %v", n, err)
	}
	var fields []string
	iter := hooked.HScan(ctx, "h", 0, "", 10).Iterator()
	for iter.Next(ctx) {
		fields = append(fields, iter.Val())
	}
	if diff := gocmp([]string{"name", v, "n", "8"}, fields); diff != "" || iter.Err() != nil {
		t.Errorf("HScan: %v\n%s", iter.Err(), diff)
	}
	// A transaction with WATCH.
	err := hooked.Watch(ctx, func(tx *redis.Tx) error {
		old, err := tx.Get(ctx, "k").Result()
		if err != nil || old != big("new") {
			t.Errorf("Get within Watch: %v", err)
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "k", big("watched"), 0)
			return nil
		})
		return err
	}, "k")
	if err != nil || hooked.Get(ctx, "k").Val() != big("watched") || !isPacked(raw.Get(ctx, "k").Val()) {
		t.Errorf("Watch: %v", err)
	}
}

// binary is a value that marshals itself.
type binary string

// errNothing may be text of a value.
var errNothing = errors.New("nothing to marshal")

func (b binary) MarshalBinary() ([]byte, error) {
	if b == "" {
		return nil, errNothing
	}
	return []byte(b), nil
}

func TestArgumentTypes(t *testing.T) {
	ctx := t.Context()
	hooked, raw := clients(t, HookOptions{}, 3)
	v := big("argument")
	at := time.Now()
	for name, test := range map[string]struct {
		arg    any
		packed bool
	}{
		"string": {v, true}, "bytes": {[]byte(v), true}, "pointer": {&v, true}, "marshaler": {binary(v), true},
		"ip": {net.IP(v), true}, "int": {12, false}, "float": {1.5, false}, "bool": {true, false}, "time": {at, false}, "duration": {time.Second, false},
		"nil": {nil, false}, "nil pointer": {(*string)(nil), false}, "empty": {"", false}, "short": {"short", false},
	} {
		plain := raw.Set(ctx, name, test.arg, 0)
		want := raw.Get(ctx, name).Val()
		if plain.Err() != nil {
			t.Fatal(plain.Err())
		}
		if err := hooked.Set(ctx, name, test.arg, 0).Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := raw.Get(ctx, name).Val(); isPacked(got) != test.packed {
			t.Errorf("%s: packed %v", name, isPacked(got))
		}
		if got := hooked.Get(ctx, name).Val(); got != want {
			t.Errorf("%s: %q comes back, without the hook %q", name, got, want)
		}
	}
	if e, ok := errors.AsType[*codec.Error](hooked.Set(ctx, "k", binary(""), 0).Err()); !ok || strings.Contains(e.Error(), errNothing.Error()) || !errors.Is(e, errNothing) {
		t.Errorf("failing marshaler: %v", e)
	}
	// The same command sent again is packed once.
	cmd := redis.NewStatusCmd(ctx, "set", "again", v)
	for range 2 {
		if err := hooked.Process(ctx, cmd); err != nil {
			t.Fatal(err)
		}
	}
	if got := hooked.Get(ctx, "again").Val(); got != v {
		t.Error("a command sent twice stores another value")
	}
	// The application's own bytes stay as they are.
	own := []byte(v)
	if err := hooked.Set(ctx, "own", own, 0).Err(); err != nil || string(own) != v {
		t.Errorf("own bytes changed, %v", err)
	}
	// A value that looks like a frame comes back as it is.
	packed := raw.Get(ctx, "own").Val()
	for _, s := range []string{packed, "\xba\x1e", "\xba\x1e and more"} {
		if err := hooked.Set(ctx, "frame", s, 0).Err(); err != nil || hooked.Get(ctx, "frame").Val() != s {
			t.Errorf("%q: %v", s[:2], err)
		}
	}
}

func TestPlainValuesStay(t *testing.T) {
	ctx := t.Context()
	hooked, raw := clients(t, HookOptions{}, 3)
	for _, v := range []string{"", "plain", big("plain"), "\xba\x1e\x05 no frame", "\xba"} {
		raw.Set(ctx, "k", v, 0)
		raw.HSet(ctx, "h", "f", v)
		if got, err := hooked.Get(ctx, "k").Result(); got != v || err != nil {
			t.Errorf("%q: %q, %v", v, got, err)
		}
		if got, err := hooked.HGetAll(ctx, "h").Result(); got["f"] != v || err != nil {
			t.Errorf("%q in a hash: %q, %v", v, got, err)
		}
	}
	if _, err := hooked.Get(ctx, "none").Result(); !errors.Is(err, redis.Nil) {
		t.Errorf("missing key: %v", err)
	}
}

// refused are commands that must not reach the server.
var refused = [][]any{
	{"APPEND", "k", "x"}, {"setrange", "k", 0, "x"}, {"getrange", "k", 0, 1}, {"substr", "k", 0, 1}, {"strlen", "k"}, {"hstrlen", "k", "f"},
	{"setbit", "k", 1, 1}, {"getbit", "k", 1}, {"bitcount", "k"}, {"bitpos", "k", 1}, {"bitop", "and", "other:1", "k"}, {"bitop", "not", "k", "other:1"},
	{"bitfield", "k", "get", "u8", 0}, {"bitfield_ro", "k", "get", "u8", 0}, {"lcs", "other:1", "k"}, {"pfadd", "k", "x"}, {"pfcount", "other:1", "k"},
	{"pfmerge", "k", "other:1"}, {"digest", "k"}, {"set", "k", "v", "ifeq", "old"}, {"set", "k", "v", "IFDNE", "ff"}, {"delex", "k", "IFEQ", "v"},
	{"dump", "k"}, {"RENAME", "k", "other:1"}, {"renamenx", "k", "other:1"}, {"copy", "k", "other:1"}, {"copy", "k", "other:1", "DB", 1, "REPLACE"},
}

func TestRefusedBeforeTheyAreSent(t *testing.T) {
	ctx := t.Context()
	hooked, raw := clients(t, HookOptions{Exclude: []string{"other:*"}}, 3)
	v := big("kept")
	for _, args := range refused {
		for _, s := range senders {
			raw.FlushAll(ctx)
			hooked.Set(ctx, "k", v, 0)
			before := calls(t, raw, args[0].(string))
			cmd := redis.NewCmd(ctx, args...)
			err := s.send(ctx, hooked, cmd)
			var refusal *CommandError
			if !errors.As(err, &refusal) || !errors.Is(err, ErrCommand) || refusal.Command != strings.ToLower(args[0].(string)) || refusal.Key != "k" {
				t.Errorf("%v %s: error %v", args, s.name, err)
			}
			if !errors.Is(cmd.Err(), ErrCommand) {
				t.Errorf("%v %s: the command's error is %v", args, s.name, cmd.Err())
			}
			if after := calls(t, raw, args[0].(string)); after != before {
				t.Errorf("%v %s: was sent", args, s.name)
			}
			if got := hooked.Get(ctx, "k").Val(); got != v {
				t.Errorf("%v %s: changed the value", args, s.name)
			}
		}
	}
	// Out of scope they work.
	if n, err := hooked.Append(ctx, "other:1", "abc").Result(); n != 3 || err != nil {
		t.Errorf("append out of scope: %d, %v", n, err)
	}
	// These commands return the reply's bytes unchanged.
	for _, cmd := range []redis.Cmder{redis.NewRawCmd(ctx, "get", "k"), redis.NewRawCmd(ctx, "mget", "other:1", "k")} {
		if err := hooked.Process(ctx, cmd); !errors.Is(err, ErrCommand) {
			t.Errorf("%T %s: %v", cmd, cmd.Name(), err)
		}
	}
	if err := hooked.Process(ctx, redis.NewRawCmd(ctx, "get", "other:1")); err != nil {
		t.Errorf("raw out of scope: %v", err)
	}
}

// TestMovedValues: a value that is moved within the scope, into it or outside of it is read as it
// was.
func TestMovedValues(t *testing.T) {
	ctx := t.Context()
	hooked, raw := clients(t, HookOptions{Exclude: []string{"other:*"}}, 3)
	v := big("moved")
	for _, to := range []struct{ src, dst string }{{"k", "l"}, {"other:1", "k"}, {"other:1", "other:2"}} {
		for _, args := range [][]any{{"rename", to.src, to.dst}, {"renamenx", to.src, to.dst}, {"copy", to.src, to.dst}} {
			raw.FlushAll(ctx)
			hooked.Set(ctx, to.src, v, 0)
			if err := hooked.Do(ctx, args...).Err(); err != nil {
				t.Errorf("%v: %v", args, err)
			}
			if got, err := hooked.Get(ctx, to.dst).Result(); got != v || err != nil {
				t.Errorf("%v: %d bytes, %v", args, len(got), err)
			}
		}
	}
	// RESTORE keeps another client's DUMP unchanged, packed or not.
	for _, key := range []string{"k", "other:1"} {
		raw.FlushAll(ctx)
		hooked.Set(ctx, key, v, 0)
		if err := hooked.Restore(ctx, "l", 0, raw.Dump(ctx, key).Val()).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := hooked.Get(ctx, "l").Result(); got != v || err != nil {
			t.Errorf("restored from %s: %d bytes, %v", key, len(got), err)
		}
	}
}

// TestRawSet: a SET whose reply holds no value works with every type of command.
func TestRawSet(t *testing.T) {
	ctx := t.Context()
	hooked, raw := clients(t, HookOptions{}, 3)
	v := big("raw")
	for _, args := range [][]any{{"set", "k", v}, {"set", "get", v, "ex", 100}, {"set", "k", "get", "px", int64(100)}} {
		if err := hooked.Process(ctx, redis.NewRawCmd(ctx, args...)); err != nil {
			t.Errorf("%v: %v", args[1:], err)
		}
	}
	if !isPacked(raw.Get(ctx, "get").Val()) {
		t.Error("not packed")
	}
	if err := hooked.Process(ctx, redis.NewRawCmd(ctx, "set", "k", v, "ex", 100, "GET")); !errors.Is(err, ErrCommand) {
		t.Errorf("with GET: %v", err)
	}
}

// TestNumbers: which numbers the server can count with.
func TestNumbers(t *testing.T) {
	ctx := t.Context()
	hooked, raw := clients(t, HookOptions{}, 3)
	text := func(digits int) string { return "1." + strings.Repeat("0", digits-2) }
	for name, test := range map[string]struct {
		arg    any
		packed bool
	}{
		"int": {41, false}, "text": {"41", false}, "float": {1e300, false}, // 301 digits, as go-redis writes it
		"63 bytes": {text(63), false}, "64 bytes": {text(64), true},
		"64 bytes that do not repeat": {"1.37592635827364091827364501928374657283910293847561029384756102", true}, // there are but ten digits
	} {
		if err := hooked.Set(ctx, name, test.arg, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if got := isPacked(raw.Get(ctx, name).Val()); got != test.packed {
			t.Errorf("%s: packed %v", name, got)
		}
		_, err := hooked.IncrByFloat(ctx, name, 1).Result()
		if (err != nil) != test.packed || err != nil && !strings.Contains(err.Error(), "not a valid float") {
			t.Errorf("%s: INCRBYFLOAT: %v", name, err)
		}
		if err == nil && isPacked(raw.Get(ctx, name).Val()) {
			t.Errorf("%s: packed after INCRBYFLOAT", name)
		}
		hooked.HSet(ctx, "h", name, test.arg)
		if _, err := hooked.HIncrByFloat(ctx, "h", name, 1).Result(); (err != nil) != test.packed {
			t.Errorf("%s: HINCRBYFLOAT: %v", name, err)
		}
	}
}

// calls is how often the server has run a command, failed calls and those within transactions
// included.
func calls(t *testing.T, c *redis.Client, command string) string {
	t.Helper()
	stats, err := c.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(stats) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+strings.ToLower(command)+":"); ok {
			if command != "set" {
				return rest
			}
			// Of SET the test itself sends one each time.
			return ""
		}
	}
	return ""
}

func TestPipelineWithRefusedCommand(t *testing.T) {
	ctx := t.Context()
	hooked, raw := clients(t, HookOptions{}, 3)
	p := hooked.Pipeline()
	first := p.Set(ctx, "a", big("a"), 0)
	bad := p.StrLen(ctx, "a")
	last := p.Get(ctx, "a")
	if _, err := p.Exec(ctx); !errors.Is(err, ErrCommand) {
		t.Errorf("Exec: %v", err)
	}
	if first.Err() != nil || !errors.Is(bad.Err(), ErrCommand) || last.Val() != big("a") || last.Err() != nil {
		t.Errorf("errors %v, %v, %v", first.Err(), bad.Err(), last.Err())
	}

	tx := hooked.TxPipeline()
	set := tx.Set(ctx, "b", big("b"), 0)
	bad = tx.StrLen(ctx, "b")
	if _, err := tx.Exec(ctx); !errors.Is(err, ErrCommand) {
		t.Errorf("Exec: %v", err)
	}
	if !errors.Is(set.Err(), ErrCommand) || !strings.Contains(set.Err().Error(), "the transaction was not sent") || !errors.Is(bad.Err(), ErrCommand) {
		t.Errorf("errors %v, %v", set.Err(), bad.Err())
	}
	if raw.Exists(ctx, "b").Val() != 0 {
		t.Error("the transaction was sent")
	}
	if got := set.Args()[2]; got != big("b") {
		t.Error("arguments are not restored")
	}
}

// damage changes a byte of the content of a stored value.
func damage(s string) string { return s[:len(s)-1] + string(s[len(s)-1]^1) }

func TestWhatCannotBeUnpacked(t *testing.T) {
	ctx := t.Context()
	hooked, raw := clients(t, HookOptions{}, 3)
	good := big("good")
	hooked.MSet(ctx, "good", good, "bad", big("bad"))
	hooked.HSet(ctx, "h", "good", good, "bad", big("bad"))
	bad := damage(raw.Get(ctx, "bad").Val())
	raw.MSet(ctx, "bad", bad, "bad2", bad)
	raw.HSet(ctx, "h", "bad", bad)

	check := func(name string, err error, val any, zero any) {
		t.Helper()
		var ke *bale.KeyError
		var de *bale.DecodeError
		if !errors.Is(err, bale.ErrCorrupt) || !errors.As(err, &ke) || !errors.As(err, &de) || de.Algorithm != frame.Zstd {
			t.Errorf("%s: error %v", name, err)
		}
		if strings.Contains(fmt.Sprint(err), "repeats itself") {
			t.Errorf("%s: the error holds the value: %v", name, err)
		}
		if diff := gocmp(zero, val); diff != "" {
			t.Errorf("%s: a value is handed out: %s", name, diff)
		}
	}
	get := hooked.Get(ctx, "bad")
	check("get", get.Err(), get.Val(), "")
	do := hooked.Do(ctx, "get", "bad")
	check("do get", do.Err(), do.Val(), nil)
	mget := hooked.MGet(ctx, "good", "bad", "bad2")
	check("mget", mget.Err(), mget.Val(), []any(nil))
	var many bale.KeyErrors
	if !errors.As(mget.Err(), &many) || len(many) != 2 || many[0].Key != "bad" || many[1].Key != "bad2" {
		t.Errorf("mget: %v", mget.Err())
	}
	all := hooked.HGetAll(ctx, "h")
	check("hgetall", all.Err(), all.Val(), map[string]string(nil))
	if !strings.Contains(all.Err().Error(), `field "bad"`) {
		t.Errorf("the field is not named: %v", all.Err())
	}
	vals := hooked.HVals(ctx, "h")
	check("hvals", vals.Err(), vals.Val(), []string(nil))
	old := hooked.SetArgs(ctx, "bad2", good, redis.SetArgs{Get: true})
	check("set get", old.Err(), old.Val(), "")

	for _, pipeline := range []func() redis.Pipeliner{hooked.Pipeline, hooked.TxPipeline} {
		p := pipeline()
		one, two, three := p.Get(ctx, "good"), p.Get(ctx, "bad"), p.HGet(ctx, "h", "good")
		_, err := p.Exec(ctx)
		check("Exec", err, nil, nil)
		check("pipeline", two.Err(), two.Val(), "")
		if one.Val() != good || one.Err() != nil || three.Val() != good || three.Err() != nil {
			t.Errorf("others: %v, %v", one.Err(), three.Err())
		}
	}
	if raw.Get(ctx, "bad").Val() != bad {
		t.Error("the stored value was touched")
	}
}

// TestNoValue: what GetOrLoad keeps of a key that has no value, or has none any more, reads as a
// key that does not exist.
func TestNoValue(t *testing.T) {
	ctx := t.Context()
	v := "there" // short, so that the hash keeps its order
	for _, protocol := range []int{2, 3} {
		hooked, raw := clients(t, HookOptions{}, protocol)
		cache, err := bale.New(NewStore(raw), bale.Options[string]{Load: bale.LoadOptions{NegativeTTL: time.Hour}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cache.GetOrLoad(ctx, "negative", func(context.Context) (string, error) { return "", bale.ErrNotFound }, bale.TTL(time.Hour)); !errors.Is(err, bale.ErrNotFound) {
			t.Fatal(err)
		}
		trailer := func(expires time.Time) string {
			b := frame.Header{Version: frame.V2, Length: uint64(len(v))}.Append(nil)
			return string(frame.Freshness{Expires: expires}.Append(append(b, v...)))
		}
		stale, fresh := trailer(time.Now().Add(-time.Second)), trailer(time.Now().Add(time.Hour))
		for name, gone := range map[string]string{"negative": raw.Get(ctx, "negative").Val(), "stale": stale} {
			if !isPacked(gone) {
				t.Fatalf("%s is no frame", name)
			}
			raw.FlushAll(ctx)
			set := func() { raw.MSet(ctx, "k", gone, "fresh", fresh) }
			set()
			raw.HSet(ctx, "h", "f", v, "gone", gone)
			for _, s := range senders {
				for _, args := range [][]any{{"get", "k"}, {"getex", "k"}, {"getdel", "k"}, {"getset", "k", v}, {"set", "k", v, "get"}, {"hget", "h", "gone"}} {
					for _, cmd := range []redis.Cmder{redis.NewCmd(ctx, args...), redis.NewStringCmd(ctx, args...)} {
						set()
						err := s.send(ctx, hooked, cmd)
						if err != redis.Nil || cmd.Err() != redis.Nil {
							t.Errorf("%s: %v %s: %v, %v", name, args[0], s.name, err, cmd.Err())
						}
						if do, ok := cmd.(*redis.Cmd); ok && do.Val() != nil {
							t.Errorf("%s: %v %s: value %q", name, args[0], s.name, do.Val())
						}
					}
				}
			}
			set()
			for _, test := range []struct {
				cmd  redis.Cmder
				want any
			}{
				{redis.NewSliceCmd(ctx, "mget", "fresh", "k", "none"), []any{v, nil, nil}},
				{redis.NewCmd(ctx, "mget", "fresh", "k", "none"), []any{v, nil, nil}},
				{redis.NewSliceCmd(ctx, "hmget", "h", "gone", "f"), []any{nil, v}},
				{redis.NewStringSliceCmd(ctx, "hvals", "h"), []string{v, ""}},
				{redis.NewMapStringStringCmd(ctx, "hgetall", "h"), map[string]string{"f": v}},
				{redis.NewCmd(ctx, "hscan", "h", 0), []any{"0", []any{"f", v, "gone", nil}}},
				{redis.NewScanCmd(ctx, nil, "hscan", "h", 0), []string{"f", v, "gone", ""}},
				{redis.NewCmd(ctx, "hgetall", "h"), map[int]any{2: []any{"f", v, "gone", nil}, 3: map[any]any{"f": v, "gone": nil}}[protocol]},
			} {
				if err := hooked.Process(ctx, test.cmd); err != nil {
					t.Errorf("%s: %s: %v", name, test.cmd.Name(), err)
				}
				if diff := gocmp(test.want, valueOf(test.cmd)); diff != "" {
					t.Errorf("%s: %T %s: %s", name, test.cmd, test.cmd.Name(), diff)
				}
			}
			p := hooked.Pipeline()
			one, two := p.Get(ctx, "fresh"), p.Get(ctx, "k")
			if _, err := p.Exec(ctx); err != redis.Nil || one.Val() != v || two.Err() != redis.Nil {
				t.Errorf("%s: pipeline: %v, %v", name, err, two.Err())
			}
		}
	}
}

// TestStreamedValue: a value in chunks is not the hook's to read, and its error says whose it is.
func TestStreamedValue(t *testing.T) {
	ctx := t.Context()
	hooked, raw := clients(t, HookOptions{}, 3)
	streams, err := stream.New(NewStore(raw), stream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := streams.PutReader(ctx, "k", strings.NewReader(big("streamed")), bale.Expiry{}); err != nil {
		t.Fatal(err)
	}
	get, mget := hooked.Get(ctx, "k"), hooked.MGet(ctx, "none", "k")
	for _, err := range []error{get.Err(), mget.Err()} {
		var key *bale.KeyError
		if !errors.As(err, &key) || key.Key != "k" || !errors.Is(err, bale.ErrUnknownAlgorithm) || !strings.Contains(err.Error(), "package stream") {
			t.Errorf("%v", err)
		}
	}
	if get.Val() != "" || mget.Val() != nil {
		t.Error("a value is handed out")
	}
}

func TestReadOnly(t *testing.T) {
	ctx := t.Context()
	hooked, raw := clients(t, HookOptions{}, 3)
	reader := redis.NewClient(&redis.Options{Addr: raw.Options().Addr})
	defer reader.Close()
	install(t, newHook(t, HookOptions{ReadOnly: true}), reader)
	v := big("read only")
	hooked.Set(ctx, "packed", v, 0)
	if got, err := reader.Get(ctx, "packed").Result(); got != v || err != nil {
		t.Errorf("get: %v", err)
	}
	reader.Set(ctx, "plain", v, 0)
	if got := raw.Get(ctx, "plain").Val(); got != v {
		t.Error("packed in spite of ReadOnly")
	}
	if err := reader.StrLen(ctx, "packed").Err(); !errors.Is(err, ErrCommand) {
		t.Errorf("strlen: %v", err)
	}
}

func TestScope(t *testing.T) {
	ctx := t.Context()
	hooked, raw := clients(t, HookOptions{Match: []string{"user:*", "page:?"}, Exclude: []string{"user:0*"}}, 3)
	v := big("scope")
	for key, packed := range map[string]bool{"user:1": true, "page:a": true, "page:ab": false, "user:01": false, "other": false} {
		hooked.Set(ctx, key, v, 0)
		if got := isPacked(raw.Get(ctx, key).Val()); got != packed {
			t.Errorf("%s: packed %v", key, got)
		}
	}
	hooked.MSet(ctx, "user:1", v, "other", v)
	if !isPacked(raw.Get(ctx, "user:1").Val()) || isPacked(raw.Get(ctx, "other").Val()) {
		t.Error("mset with keys in and out of scope")
	}
	// Out of scope nothing is unpacked either.
	packed := raw.Get(ctx, "user:1").Val()
	raw.Set(ctx, "other", packed, 0)
	if diff := gocmp([]any{v, packed}, hooked.MGet(ctx, "user:1", "other").Val()); diff != "" {
		t.Error(diff)
	}
}

func TestScripts(t *testing.T) {
	ctx := t.Context()
	hooked, raw := clients(t, HookOptions{}, 3)
	v := big("script")
	hooked.Set(ctx, "k", v, 0)
	script := "return redis.call('strlen', KEYS[1])"
	if n, err := hooked.Eval(ctx, script, []string{"k"}).Int(); err != nil || n >= len(v) {
		t.Errorf("scripts see packed bytes: %d, %v", n, err)
	}
	strict := redis.NewClient(&redis.Options{Addr: raw.Options().Addr})
	defer strict.Close()
	install(t, newHook(t, HookOptions{RefuseScripts: true, Match: []string{"k"}}), strict)
	if err := strict.Eval(ctx, script, []string{"x", "k"}).Err(); !errors.Is(err, ErrCommand) {
		t.Errorf("in scope: %v", err)
	}
	if err := strict.EvalSha(ctx, "00", []string{"k"}).Err(); !errors.Is(err, ErrCommand) {
		t.Errorf("in scope: %v", err)
	}
	for _, keys := range [][]string{{"x"}, nil} {
		if err := strict.Eval(ctx, "return 1", keys).Err(); err != nil {
			t.Errorf("out of scope: %v", err)
		}
	}
}

func TestNewHookRefusesBadOptions(t *testing.T) {
	for name, o := range map[string]HookOptions{
		"no Match": {}, "open class": {Match: []string{"a[bc"}}, "open escape": {Match: []string{"*"}, Exclude: []string{`a\`}}, "range beyond ASCII": {Match: []string{"[a-\xff]*"}},
	} {
		if _, err := NewHook(newPacker(t, bale.PackerOptions{}), o); !errors.Is(err, bale.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewHook(nil, HookOptions{Match: []string{"*"}}); !errors.Is(err, bale.ErrInvalid) {
		t.Errorf("no packer: %v", err)
	}
}

// TestAnyArguments sends what no server would take: the hook must pass it on and not panic.
func TestAnyArguments(t *testing.T) {
	ctx := t.Context()
	hook := newHook(t, HookOptions{RefuseScripts: true, Match: []string{"k"}})
	process := alone(hook).ProcessHook(func(context.Context, redis.Cmder) error { return nil })
	odd := []any{nil, "k", "2", -1, int64(1 << 60), int64(3), []byte("k"), 1.5, true, big("x"), []byte(big("y")), struct{}{}, "fields", "withvalues"}
	names := []any{"", nil, 5, []byte("GET"), "nonsense"}
	commands.Names(func(name string) { names = append(names, name, strings.ToUpper(name)) })
	for _, name := range names {
		for n := range 5 {
			for i := range odd {
				args := []any{name}
				for j := range n {
					args = append(args, odd[(i+j*3)%len(odd)])
				}
				before := fmt.Sprint(args)
				if err := process(ctx, redis.NewCmd(ctx, args...)); err != nil && !errors.Is(err, ErrCommand) {
					t.Errorf("%v: %v", args, err)
				}
				if fmt.Sprint(args) != before {
					t.Errorf("%v: arguments changed", name)
				}
			}
		}
	}
	if err := process(ctx, redis.NewCmd(ctx)); err != nil {
		t.Errorf("no arguments: %v", err)
	}
}

// TestHookAllocations pins what the hook adds to commands whose values it leaves alone: nothing.
func TestHookAllocations(t *testing.T) {
	ctx := t.Context()
	hook := newHook(t, HookOptions{Match: []string{"user:*"}})
	get, plain := redis.NewStringCmd(ctx, "get", "user:1"), big("plain")
	process := alone(hook).ProcessHook(func(_ context.Context, cmd redis.Cmder) error {
		get.SetVal(plain)
		return nil
	})
	for _, cmd := range []redis.Cmder{get, redis.NewIntCmd(ctx, "lpush", "user:1", "x"), redis.NewStatusCmd(ctx, "set", "user:1", 5),
		redis.NewStatusCmd(ctx, "set", "user:1", 5, "px", int64(5000), "nx")} {
		if n := testing.AllocsPerRun(100, func() { process(ctx, cmd) }); n > 0 {
			t.Errorf("%s: %v allocations", cmd.Name(), n)
		}
	}
	if testvalues.Race {
		return // it empties pools
	}
	sampling.Groups.Add(1)
	defer sampling.Groups.Add(-1)
	if n := testing.AllocsPerRun(100, func() { process(ctx, get) }); n > 0 {
		t.Errorf("%v allocations to show a plain value", n)
	}
}

// TestReadOnlyEscapes: an uploaded value reads back unchanged, even if it is a frame. This holds in
// every program of a roll-out that has the hook. All other values stay as they are.
func TestReadOnlyEscapes(t *testing.T) {
	ctx := t.Context()
	packer := newPacker(t, bale.PackerOptions{})
	packed, err := packer.Pack(nil, []byte(big("uploaded")))
	if err != nil {
		t.Fatal(err)
	}
	escaped, err := packer.Pack(nil, packed)
	if err != nil {
		t.Fatal(err)
	}
	frames := map[string]string{
		"packed": string(packed), "twice": string(escaped), "large": bomb(t),
		"absent":  string(frame.Freshness{Absent: true}.Append(frame.Header{Version: frame.V2}.Append(nil))),
		"damaged": string(packed[:len(packed)-1]) + "\x00", "dictionary": string(frame.Header{Algorithm: frame.Zstd, DictionaryID: 7, Length: 5}.Append(nil)) + "xxxxx",
		"later": string(frame.Header{Version: 4, Algorithm: 15, Length: 5}.Append(nil)) + "later", "stream": string(frame.Header{Algorithm: frame.Chunks, Length: 5}.Append(nil)) + "chunk",
	}
	plain := map[string]string{
		"text": big("text"), "short": "short", "empty": "", "magic": "\xba\x1e", "like a frame": "\xba\x1e\x05\x00\x00" + big("binary"), "PNG": "\x89PNG\r\n\x1a\n" + big("picture"),
	}
	for _, protocol := range []int{2, 3} {
		reader, raw := clients(t, HookOptions{ReadOnly: true}, protocol)
		others := map[string]*redis.Client{}
		for name, o := range map[string]HookOptions{"packs": {}, "ReadOnly": {ReadOnly: true}, "NoEscape": {ReadOnly: true, NoEscape: true}} {
			others[name] = redis.NewClient(raw.Options())
			defer others[name].Close()
			install(t, newHook(t, o), others[name])
		}
		for _, write := range []func(v string) redis.Cmder{
			func(v string) redis.Cmder { return redis.NewStatusCmd(ctx, "set", "k", v) },
			func(v string) redis.Cmder {
				return redis.NewStatusCmd(ctx, "SET", []byte("k"), []byte(v), "px", 100_000)
			},
			func(v string) redis.Cmder { return redis.NewStatusCmd(ctx, "set", "k", binary(v)) },
			func(v string) redis.Cmder { return redis.NewStatusCmd(ctx, "set", "k", &v) },
			func(v string) redis.Cmder { return redis.NewStatusCmd(ctx, "setex", "k", 100, v) },
			func(v string) redis.Cmder { return redis.NewBoolCmd(ctx, "setnx", "k", v) },
			func(v string) redis.Cmder { return redis.NewStringCmd(ctx, "getset", "k", v) },
			func(v string) redis.Cmder { return redis.NewStatusCmd(ctx, "mset", "other", v, "k", v) },
			func(v string) redis.Cmder { return redis.NewIntCmd(ctx, "hset", "k", "f", v, "g", v) },
			func(v string) redis.Cmder { return redis.NewBoolCmd(ctx, "hsetnx", "k", "f", v) },
		} {
			for _, sender := range senders {
				for _, values := range []map[string]string{frames, plain} {
					for name, v := range values {
						cmd := write(v)
						if _, marshals := cmd.Args()[len(cmd.Args())-1].(binary); marshals && v == "" {
							continue
						}
						if err := raw.Del(ctx, "k").Err(); err != nil {
							t.Fatal(err)
						}
						if err := sender.send(ctx, reader, cmd); err != nil && !errors.Is(err, redis.Nil) {
							t.Fatalf("%s, %s, %s: %v", cmd.Name(), sender.name, name, err)
						}
						get := func(c *redis.Client) (string, error) {
							if strings.HasPrefix(cmd.Name(), "h") {
								return c.HGet(ctx, "k", "f").Result()
							}
							return c.Get(ctx, "k").Result()
						}
						stored, err := get(raw)
						if err != nil {
							t.Fatal(err)
						}
						h, _, is := frame.Parse([]byte(stored))
						if escaped := is && h.Algorithm == frame.Stored && h.Version == frame.V1 && strings.HasSuffix(stored, v); escaped != (frames[name] != "") || !escaped && stored != v || len(stored) > len(v)+frame.MaxHeaderSize {
							t.Errorf("%s, %s, %s: %.40q is stored as %.60q", cmd.Name(), sender.name, name, v, stored)
						}
						for other, c := range others {
							if got, err := get(c); got != v || err != nil {
								t.Errorf("%s, %s, %s, read by one that %s: %d bytes of %d, %v", cmd.Name(), sender.name, name, other, len(got), len(v), err)
							}
						}
					}
				}
			}
		}
		// With NoEscape the bytes are the user's.
		for name, v := range frames {
			if err := others["NoEscape"].Set(ctx, "k", v, 0).Err(); err != nil {
				t.Fatal(err)
			}
			if got := raw.Get(ctx, "k").Val(); got != v {
				t.Errorf("%s: NoEscape stores %.40q", name, got)
			}
		}
	}
	// A value that cannot be escaped is not written.
	hook, err := NewHook(newPacker(t, bale.PackerOptions{MaxSize: 10}), HookOptions{Match: []string{"*"}, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	set := redis.NewStatusCmd(ctx, "set", "k", frames["packed"])
	if err := alone(hook).ProcessHook(func(context.Context, redis.Cmder) error { t.Error("it is sent"); return nil })(ctx, set); !errors.Is(err, bale.ErrTooLarge) {
		t.Error(err)
	}
}
