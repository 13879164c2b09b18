package goredis

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/frame"
)

// leftAlone are the commands on strings, hashes and keys that the hook has nothing to do with, and
// why.
var leftAlone = map[string]string{
	"decr": "works on numbers, which are never packed", "decrby": "as decr", "incr": "as decr", "incrby": "as decr", "incrbyfloat": "as decr",
	"hincrby": "as decr", "hincrbyfloat": "as decr",
	"hdel": "fields have no value in it", "hexists": "as hdel", "hkeys": "as hdel", "hlen": "as hdel", "hexpire": "as hdel", "hexpireat": "as hdel", "hexpiretime": "as hdel",
	"hpersist": "as hdel", "hpexpire": "as hdel", "hpexpireat": "as hdel", "hpexpiretime": "as hdel", "hpttl": "as hdel", "httl": "as hdel",
	"del": "keys have no value in it", "exists": "as del", "expire": "as del", "expireat": "as del", "expiretime": "as del", "keys": "as del", "object": "as del",
	"persist": "as del", "pexpire": "as del", "pexpireat": "as del", "pexpiretime": "as del", "pttl": "as del", "randomkey": "as del", "scan": "as del", "touch": "as del",
	"ttl": "as del", "type": "as del", "unlink": "as del", "wait": "as del", "waitaof": "as del",
	"move":       "the name stays the same, and the scope is one of names",
	"migrate":    "as move: a value's bytes and its name go to another server",
	"restore":    "what is not packed is read as it is",
	"pfdebug":    "is for HyperLogLogs, which PFADD refuses in scope",
	"pfselftest": "has no key",
}

// documented are the commands that a server has, with the group of each.
func documented(t *testing.T, c *redis.Client) map[string]string {
	t.Helper()
	docs, err := c.Do(t.Context(), "command", "docs").Result()
	if err != nil {
		t.Fatal(err)
	}
	groups := map[string]string{}
	for name, doc := range docs.(map[any]any) {
		groups[name.(string)] = fmt.Sprint(doc.(map[any]any)["group"])
	}
	return groups
}

// TestEveryCommandIsKnown asks the server for its commands. The hook must handle each command on
// strings, hashes or any key, or list a reason to let it pass.
func TestEveryCommandIsKnown(t *testing.T) {
	_, raw := clients(t, HookOptions{}, 3)
	known := 0
	for name, group := range documented(t, raw) {
		if !slices.Contains([]string{"string", "hash", "generic", "bitmap", "hyperloglog", "scripting"}, group) || group == "scripting" && !strings.HasPrefix(name, "eval") && !strings.HasPrefix(name, "fcall") {
			continue
		}
		known++
		_, passes := leftAlone[name]
		switch spec, _ := commands.Lookup(name); {
		case spec != nil && passes:
			t.Errorf("%s is in the table and passes", name)
		case spec == nil && !passes:
			t.Errorf("%s (%s): does it read or write values? Put it into rediscmd or leftAlone", name, group)
		}
	}
	if known < 60 {
		t.Errorf("the server has %d commands", known)
	}
}

// TestNewCommands sends the commands that only some servers have.
func TestNewCommands(t *testing.T) {
	ctx := t.Context()
	hooked, raw := clients(t, HookOptions{}, 3)
	has := documented(t, raw)
	a, b := big("a"), big("b")
	do := func(args ...any) redis.Cmder { return redis.NewCmd(ctx, args...) }
	for _, test := range []struct {
		name    string
		command string
		before  []any
		cmd     func() redis.Cmder
		reply   any
		get     func(redis.Cmder) any
		stored  map[string]string // key, or key.field
		refused bool
	}{
		{name: "HSETEX", command: "hsetex", cmd: func() redis.Cmder { return do("hsetex", "h", "EX", 100, "FIELDS", 2, "f", a, "g", b) }, reply: int64(1), stored: map[string]string{"h.f": a, "h.g": b}},
		{name: "HGETEX", command: "hgetex", before: []any{"hset", "h", "f", a}, cmd: func() redis.Cmder { return do("hgetex", "h", "EX", 100, "FIELDS", 2, "f", "none") }, reply: []any{a, nil}, stored: map[string]string{"h.f": a}},
		{name: "HGETEX typed", command: "hgetex", before: []any{"hset", "h", "f", a}, cmd: func() redis.Cmder { return redis.NewStringSliceCmd(ctx, "hgetex", "h", "FIELDS", 2, "f", "none") }, reply: []string{a, ""},
			get: func(c redis.Cmder) any { return c.(*redis.StringSliceCmd).Val() }},
		{name: "HGETDEL", command: "hgetdel", before: []any{"hset", "h", "f", a, "g", b}, cmd: func() redis.Cmder { return do("hgetdel", "h", "FIELDS", 2, "f", "none") }, reply: []any{a, nil}, stored: map[string]string{"h.g": b}},
		{name: "MSETEX", command: "msetex", cmd: func() redis.Cmder { return do("msetex", 2, "k", a, "l", b, "EX", 100) }, reply: int64(1), stored: map[string]string{"k": a, "l": b}},
		{name: "SET IFEQ", command: "set", before: []any{"set", "k", a}, cmd: func() redis.Cmder { return do("set", "k", b, "IFEQ", a) }, refused: true, stored: map[string]string{"k": a}},
		{name: "SET IFDEQ", command: "digest", before: []any{"set", "k", a}, cmd: func() redis.Cmder { return do("set", "k", b, "IFDEQ", "0123456789abcdef") }, refused: true, stored: map[string]string{"k": a}},
		{name: "DELIFEQ", command: "delifeq", before: []any{"set", "k", a}, cmd: func() redis.Cmder { return do("delifeq", "k", a) }, refused: true, stored: map[string]string{"k": a}},
		{name: "DELEX", command: "delex", before: []any{"set", "k", a}, cmd: func() redis.Cmder { return do("delex", "k", "IFEQ", a) }, refused: true, stored: map[string]string{"k": a}},
		{name: "DIGEST", command: "digest", before: []any{"set", "k", a}, cmd: func() redis.Cmder { return do("digest", "k") }, refused: true, stored: map[string]string{"k": a}},
	} {
		for _, s := range senders {
			t.Run(test.name+"/"+s.name, func(t *testing.T) {
				if _, there := has[test.command]; !there && !test.refused { // a refused one is not sent
					t.Skipf("the server has no %s", strings.ToUpper(test.command))
				}
				if err := raw.FlushAll(ctx).Err(); err != nil {
					t.Fatal(err)
				}
				if test.before != nil {
					if err := hooked.Do(ctx, test.before...).Err(); err != nil {
						t.Fatal(err)
					}
				}
				cmd := test.cmd()
				err := s.send(ctx, hooked, cmd)
				if errors.Is(err, ErrCommand) != test.refused || !test.refused && err != nil {
					t.Fatal(err)
				}
				get := test.get
				if get == nil {
					get = func(c redis.Cmder) any { return c.(*redis.Cmd).Val() }
				}
				if diff := gocmp(test.reply, get(cmd)); test.reply != nil && diff != "" {
					t.Errorf("reply:\n%s", diff)
				}
				for name, want := range test.stored {
					stored := ""
					if key, field, hash := strings.Cut(name, "."); hash {
						stored = raw.HGet(ctx, key, field).Val()
					} else {
						stored = raw.Get(ctx, name).Val()
					}
					if plain, err := newPacker(t, bale.PackerOptions{}).Unpack(t.Context(), nil, []byte(stored)); err != nil || !isPacked(stored) || string(plain) != want {
						t.Errorf("%s: %d bytes, packed %v, %v", name, len(stored), isPacked(stored), err)
					}
				}
			})
		}
	}
	t.Run("HIMPORT", func(t *testing.T) {
		if _, there := has["himport"]; !there {
			t.Skip("the server has no HIMPORT")
		}
		if err := hooked.HImportPrepare(ctx, "fields", "f", "g").Err(); err != nil {
			t.Fatal(err)
		}
		if err := hooked.HImportSet(ctx, "imported", "fields", a, b).Err(); err != nil {
			t.Fatal(err)
		}
		if diff := gocmp(map[string]string{"f": a, "g": b}, hooked.HGetAll(ctx, "imported").Val()); diff != "" || !isPacked(raw.HGet(ctx, "imported", "f").Val()) {
			t.Error(diff)
		}
	})
}

// TestSort: SORT reads the keys of its patterns. The hook unpacks the values in the reply, and
// refuses a SORT that would work on packed bytes.
func TestSort(t *testing.T) {
	ctx := t.Context()
	for _, protocol := range []int{2, 3} {
		hooked, raw := clients(t, HookOptions{Match: []string{"user:*", "h:?"}, Exclude: []string{"user:plain:*"}}, protocol)
		a, b := big("a"), big("b")
		for _, args := range [][]any{{"rpush", "ids", 2, 1, 3}, {"set", "user:1", a}, {"set", "user:2", b}, {"hset", "h:1", "f", a}, {"set", "w:1", 10}, {"set", "w:2", 5}, {"set", "w:3", 7}, {"set", "other:1", "plain"}} {
			if err := hooked.Do(ctx, args...).Err(); err != nil {
				t.Fatal(err)
			}
		}
		absent := string(frame.Freshness{Absent: true}.Append(frame.Header{Version: frame.V2}.Append(nil)))
		raw.Set(ctx, "user:3", absent, 0)
		upload := raw.Get(ctx, "user:1").Val() // an element that is itself a frame, and a value out of scope
		raw.RPush(ctx, "uploads", upload)
		raw.Set(ctx, "other:upload", upload, 0)
		raw.RPush(ctx, "names", "upload")
		for _, test := range []struct {
			cmd  redis.Cmder
			want any // nil if it is refused
		}{
			{redis.NewStringSliceCmd(ctx, "sort", "ids", "get", "user:*"), []string{a, b, ""}},
			{redis.NewCmd(ctx, "SORT", "ids", "GET", "#", "GET", "user:*"), []any{"1", a, "2", b, "3", nil}},
			{redis.NewSliceCmd(ctx, "sort", "ids", "by", "w:*", "get", "user:*"), []any{b, nil, a}},
			{redis.NewSliceCmd(ctx, "sort", "uploads", "by", "nosort", "get", "#", "get", "user:*"), []any{upload, nil}},
			{redis.NewStringSliceCmd(ctx, "sort", "names", "by", "nosort", "get", "user:*", "get", "other:*"), []string{"", upload}},
			{redis.NewCmd(ctx, "sort_ro", "ids", "limit", 0, 1, "get", "h:*->f"), []any{a}},
			{redis.NewStringSliceCmd(ctx, "sort", "ids", "desc"), []string{"3", "2", "1"}},
			{redis.NewStringSliceCmd(ctx, "sort", "ids", "limit", 0, 1, "get", "other:*"), []string{"plain"}},
			{redis.NewIntCmd(ctx, "sort", "ids", "get", "other:*", "store", "dst"), int64(3)},
			{redis.NewIntCmd(ctx, "sort", "ids", "by", "user:plain:*", "alpha", "store", "dst"), int64(3)}, // excluded
			{redis.NewIntCmd(ctx, "sort", "ids", "get", "user:*", "STORE", "dst"), nil},
			{redis.NewIntCmd(ctx, "sort", "ids", "get", "us*", "store", "dst"), nil},
			{redis.NewIntCmd(ctx, "sort", "ids", "get", "*", "store", "dst"), nil},
			{redis.NewCmd(ctx, "sort", "ids", "by", "user:*", "ALPHA"), nil},
			{redis.NewCmd(ctx, "sort_ro", "ids", "by", "h:*->f", "alpha"), nil},
			{redis.NewRawCmd(ctx, "sort", "ids", "get", "user:*"), nil},
		} {
			err := hooked.Process(ctx, test.cmd)
			if test.want == nil {
				var refusal *CommandError
				if !errors.As(err, &refusal) || refusal.Key == "" {
					t.Errorf("%v: %v", test.cmd.Args(), err)
				}
				continue
			}
			if diff := gocmp(test.want, valueOf(test.cmd)); err != nil || diff != "" {
				t.Errorf("%v: %v\n%s", test.cmd.Args(), err, diff)
			}
		}
		raw.Set(ctx, "user:1", damage(raw.Get(ctx, "user:1").Val()), 0)
		if err := hooked.Do(ctx, "sort", "ids", "get", "user:*").Err(); !errors.Is(err, bale.ErrCorrupt) || !strings.Contains(err.Error(), "user:*") {
			t.Errorf("damaged: %v", err)
		}
	}
}
