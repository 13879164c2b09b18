package keyspace

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/internal/redisproc"
)

// TestReadingIsNoUse: a walk leaves the order of eviction as it is, or says that the server does
// not let it.
func TestReadingIsNoUse(t *testing.T) {
	ctx := t.Context()
	for policy, option := range map[string][]any{"allkeys-lru": {"IDLETIME", 1000}, "allkeys-lfu": {"FREQ", 1}} {
		s := redisproc.ForTest(t, "--maxmemory-policy", policy)
		writer := opened(t, s.URL())
		must(t, writer.Set(ctx, "string", "v", 0).Err(), writer.HSet(ctx, "hash", "f", "v").Err(), writer.RPush(ctx, "list", "v").Err())
		keys := []string{"string", "hash", "list"}
		for _, k := range keys {
			dump := writer.Dump(ctx, k).Val()
			must(t, writer.Do(ctx, append([]any{"RESTORE", k, 0, dump, "REPLACE"}, option...)...).Err())
		}
		knows := writer.Do(ctx, "CLIENT", "NO-TOUCH", "ON").Err() == nil
		c := opened(t, s.URL())
		warnings, err := Lost(ctx, c, ServerInfo, DBSize, MemoryUsage)
		must(t, err)
		must(t, ReadValues(ctx, c, ValuesOptions{Size: 100, Values: func(context.Context, redis.UniversalClient, []Value) (Next, error) { return More, nil }}))
		_, err = FindReferences(ctx, []redis.UniversalClient{c}, ReferenceOptions{})
		must(t, err)
		_, err = Sample(ctx, c, SampleOptions{Values: 10, Bytes: 100, Size: 10, Unpack: func(_ context.Context, b []byte) ([]byte, error) { return b, nil }})
		must(t, err)
		_, err = Fetch(ctx, c, "hash", "f", true, 100)
		must(t, err)
		top := topology(t, c)
		if !knows {
			if all := strings.Join(warnings, "\n"); len(warnings) != 1 || !strings.Contains(all, policy) || !strings.Contains(all, "does not know CLIENT NO-TOUCH") || !strings.Contains(all, "may be evicted") {
				t.Errorf("%s: %q", policy, all)
			}
			if len(top.Notes) != 1 || top.Notes[0] != warnings[0] {
				t.Errorf("%s: %q", policy, top.Notes)
			}
			continue
		}
		if len(warnings)+len(top.Notes) > 0 {
			t.Errorf("%s: %q, %q", policy, warnings, top.Notes)
		}
		for _, k := range keys {
			var order int64
			if policy == "allkeys-lru" {
				order = int64(writer.ObjectIdleTime(ctx, k).Val().Seconds())
			} else {
				order = 1001 - writer.ObjectFreq(ctx, k).Val()
			}
			if order < 1000 {
				t.Errorf("%s: reading %s counts as a use: %d", policy, k, order)
			}
		}
		run(t, s, "ACL SETUSER u reset on >p ~* +@all -client|no-touch")
		denied := opened(t, strings.Replace(s.URL(), "redis://", "redis://u:p@", 1))
		if warnings, err := Lost(ctx, denied); err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "ACL SETUSER u +client|no-touch") {
			t.Errorf("%s: %q, %v", policy, warnings, err)
		}
	}
	if warnings, err := Lost(ctx, opened(t, redisproc.ForTest(t).URL())); err != nil || len(warnings) > 0 { // which evicts nothing
		t.Errorf("%q, %v", warnings, err)
	}
}

// replyError is an error that a server answers with.
type replyError string

func (e replyError) Error() string { return string(e) }
func (replyError) RedisError()     {}

// TestForbidden has the words of several servers. No argument, which may be a value, comes into the
// error that is shown.
func TestForbidden(t *testing.T) {
	for text, want := range map[string]string{
		"ERR unknown command 'EVALSHA', with args beginning with: 'abc' '1' 'user:3' 'secret' ": "it has no command EVALSHA, or it was taken away",
		"ERR unknown command `config`, with args beginning with: `get` `secret`":                "no command CONFIG",
		"ERR unknown subcommand 'NO-TOUCH'. Try CLIENT HELP.":                                   "no command NO-TOUCH",
		"ERR Command is not available: 'MEMORY'. See https://example.com/secret":                "no command MEMORY",
		"NOPERM this user has no permissions to run the 'client|no-touch' command":              "+client|no-touch allows it",
		"NOPERM User u has no permissions to run the 'info' command":                            "+info allows it",
		"NOPERM this user has no permissions to access one of the keys used as arguments":       "",
		"ERR Unknown Redis command called from script script: 1234, on @user_script:1.":         "",
		"WRONGTYPE Operation against a key holding the wrong kind of value":                     "",
		"ERR value is not an integer or out of range":                                           "",
		"LOADING Redis is loading the dataset in memory":                                        "",
	} {
		err := error(replyError(text))
		if IsForbidden(err) != (want != "") {
			t.Errorf("%s: %v", text, IsForbidden(err))
		}
		shown := Explain(err, "u").Error()
		if want != "" && (!strings.Contains(shown, want) || strings.Contains(shown, "secret")) {
			t.Errorf("%s: %s", text, shown)
		}
	}
	if IsForbidden(nil) || IsForbidden(errors.New("ERR unknown command 'x'")) || IsForbidden(redis.Nil) {
		t.Error("no answer of a server")
	}
}

// TestEndsByNoTouch: which servers do not get CLIENT NO-TOUCH. TestReadMovingSlots shows the crash
// of Redis 8.2.3.
func TestEndsByNoTouch(t *testing.T) {
	for info, want := range map[string]bool{
		"redis_version:7.0.15\nredis_mode:cluster":                          false, // it does not know it
		"redis_version:7.2.4\nredis_mode:cluster":                           true,
		"redis_version:8.2.3\nredis_mode:cluster":                           true,
		"redis_version:8.2.3\nredis_mode:standalone":                        false,
		"redis_version:8.4.0\nredis_mode:cluster":                           false,
		"redis_version:10.0.0\nredis_mode:cluster":                          false,
		"redis_version:7.2.4\nvalkey_version:8.1.1\nserver_mode:cluster":    true,
		"redis_version:7.2.4\nvalkey_version:9.1.2\nserver_mode:cluster":    false,
		"redis_version:7.2.4\nvalkey_version:8.1.1\nserver_mode:standalone": false,
		"redis_mode:cluster":                                                true, // whatever it is
		"redis_version:hidden\nredis_mode:cluster":                          true,
		"redis_mode:standalone":                                             false,
	} {
		if got := endsByNoTouch(Info(info)); got != want {
			t.Errorf("%q: %v", info, got)
		}
	}
}
