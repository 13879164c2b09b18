package goredis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/testkit/storetest"
)

func TestDictStore(t *testing.T) {
	t.Parallel()
	storetest.RunDict(t, func(t *testing.T, d storetest.Deployment) dict.Store { return NewStore(connect(t, d)) })
}

// TestListenSaysWhyNot: what keeps it from listening at all is returned; and it ends with its
// context where the server does not answer.
func TestListenSaysWhyNot(t *testing.T) {
	server := redisproc.ForTest(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { admin.Close() })
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "resetchannels").Err(); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]redis.Options{
		"NOPERM":    {Username: "app", Password: "secret"},
		"WRONGPASS": {Username: "nobody", Password: "secret"},
	} {
		o.Addr = server.Addr()
		client := redis.NewClient(&o)
		t.Cleanup(func() { client.Close() })
		if err := NewStore(client).Listen(t.Context(), "news", func(m string) { t.Errorf("heard %q", m) }); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %s", err, name)
		}
	}
	if err := admin.Do(t.Context(), "CLIENT", "PAUSE", 600_000, "ALL").Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: 100 * time.Millisecond, DialerRetries: 1})
	t.Cleanup(func() { client.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := NewStore(client).Listen(ctx, "news", func(m string) { t.Errorf("heard %q", m) }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("paused: %v", err)
	}
}

// TestServerThatHangs: FetchTimeout holds with a client that does not heed its contexts (go-redis
// does with ContextTimeoutEnabled alone).
func TestServerThatHangs(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), ReadTimeout: 2 * time.Second, MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	r, err := dict.NewRegistry(NewStore(client), dict.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	o := dict.GroupOptions{FetchTimeout: 20 * time.Millisecond}
	g, err := r.Open(ctx, "users", o)
	if err != nil {
		t.Fatal(err)
	}
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { admin.Close() })
	if err := admin.Do(ctx, "CLIENT", "PAUSE", 600_000, "ALL").Err(); err != nil {
		t.Fatal(err)
	}
	// All of it is over before the client's first timeout, or this would be another error.
	if _, err := g.Reader(ctx, frame.Zstd, 77); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within 20ms") {
		t.Errorf("%v", err)
	}
	late, err := r.Open(ctx, "users", o)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(late.Close(), g.Close()); err != nil {
		t.Error(err)
	}
}

// rollOut publishes and activates a dictionary.
func rollOut(t *testing.T, r *dict.Registry, group string, content string) *dict.Dictionary {
	t.Helper()
	d, err := frame.NewDictionary([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Publish(t.Context(), group, d, dict.Info{}), r.Activate(t.Context(), group, d.ID(), true)); err != nil {
		t.Fatal(err)
	}
	return d
}

func openGroup(t *testing.T, client redis.UniversalClient, group string, o dict.GroupOptions) (*dict.Registry, *dict.Group, *bale.Packer) {
	t.Helper()
	r, err := dict.NewRegistry(NewStore(client), dict.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := r.Open(t.Context(), group, o)
	if err != nil {
		t.Fatal(err)
	}
	p, err := bale.NewPacker(bale.PackerOptions{Compressors: g})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { errors.Join(p.Close(), g.Close()) })
	return r, g, p
}

func wait(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 seconds: %s", what)
		}
	}
}

const common = `"country":"DE","language":"de","plan":"pro","verified":true,"settings":{"theme":"dark","timezone":"Europe/Berlin"}}`

// TestGroupThroughRedis: a Cache and a Hook on one client with one group; the hook leaves the
// registry alone.
func TestGroupThroughRedis(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"standalone", "cluster"} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			client := deployments[name](t)
			t.Cleanup(func() { client.Close() })
			plain := deploymentsClient(client)
			t.Cleanup(func() { plain.Close() })
			r, g, p := openGroup(t, client, "users", dict.GroupOptions{})
			hook, err := NewHook(p, HookOptions{Match: []string{"*"}})
			if err != nil {
				t.Fatal(err)
			}
			install(t, hook, client)
			first := rollOut(t, r, "users", "1 "+common)
			wait(t, "the dictionary is written with", func() bool { return g.Writer().DictionaryID() == first.ID() })
			value := `{"id":1,"name":"Ada",` + common
			if err := client.Set(ctx, "user:1", value, 0).Err(); err != nil {
				t.Fatal(err)
			}
			stored, err := plain.Get(ctx, "user:1").Bytes()
			if h, _, ok := frame.Parse(stored); err != nil || !ok || h.DictionaryID != first.ID() || len(stored) > len(value)/2 {
				t.Fatalf("stored %d bytes of %d, %+v, %v", len(stored), len(value), h, err)
			}
			second := rollOut(t, r, "users", "2 "+common)
			wait(t, "the other dictionary is written with", func() bool { return g.Writer().DictionaryID() == second.ID() })
			if got, err := client.Get(ctx, "user:1").Result(); err != nil || got != value {
				t.Errorf("%q, %v", got, err)
			}
			// A program that comes later reads all, and one without a registry says what is
			// missing.
			_, _, late := openGroup(t, plain, "users", dict.GroupOptions{})
			if got, err := late.Unpack(ctx, nil, stored); err != nil || string(got) != value {
				t.Errorf("late: %q, %v", got, err)
			}
			alone, err := bale.NewPacker(bale.PackerOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := alone.Unpack(t.Context(), nil, stored); !errors.Is(err, bale.ErrUnknownDictionary) || len(got) > 0 || !strings.Contains(err.Error(), first.ID().String()) {
				t.Errorf("alone: %q, %v", got, err)
			}
			if raw, err := plain.Get(ctx, dict.DefaultPrefix+"data:"+first.ID().String()).Bytes(); err != nil || !bytes.Equal(raw, first.Bytes()) {
				t.Errorf("the registry's own key: %d bytes, %v", len(raw), err)
			}
		})
	}
}

// deploymentsClient is another client for the same servers, without hooks. Call it before the first
// is used, for a client changes its options when it connects.
func deploymentsClient(client redis.UniversalClient) redis.UniversalClient {
	switch c := client.(type) {
	case *redis.ClusterClient:
		o := *c.Options()
		return redis.NewClusterClient(&o)
	case *redis.Client:
		o := *c.Options()
		o.PushNotificationProcessor = nil // is one client's
		return redis.NewClient(&o)
	}
	panic("no such client")
}

// TestUnknownDictionaryIsBounded: a value whose dictionary nobody has is an error within the time
// that was given, and the value stays.
func TestUnknownDictionaryIsBounded(t *testing.T) {
	ctx := t.Context()
	client := redis.NewClient(&redis.Options{Addr: redisproc.ForTest(t).Addr()})
	t.Cleanup(func() { client.Close() })
	d, err := frame.NewDictionary([]byte(common))
	if err != nil {
		t.Fatal(err)
	}
	stored := frame.Header{Algorithm: frame.Zstd, DictionaryID: d.ID(), HasChecksum: true, Length: 3}.Append(nil)
	stored = append(stored, "payload"...)
	if err := client.Set(ctx, "k", stored, 0).Err(); err != nil {
		t.Fatal(err)
	}
	_, _, p := openGroup(t, client, "users", dict.GroupOptions{FetchTimeout: 50 * time.Millisecond})
	cache, err := bale.New(NewStore(client), bale.Options[string]{Packer: p})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		var failure *bale.KeyError
		_, err := cache.Get(ctx, "k")
		late := errors.Is(err, context.DeadlineExceeded) // a busy machine may not answer in time that there is none
		if !errors.Is(err, bale.ErrUnknownDictionary) || !errors.Is(err, dict.ErrUnknown) && !late || !errors.As(err, &failure) || failure.Key != "k" {
			t.Errorf("%v", err)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := p.Unpack(cancelled, nil, append(frame.Header{Algorithm: frame.Zstd, DictionaryID: 77, Length: 3}.Append(nil), 0)); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that does not wait: %v", err)
	}
	if got, err := client.Get(ctx, "k").Bytes(); err != nil || !bytes.Equal(got, stored) {
		t.Errorf("the value has changed: %v", err)
	}
}

// TestRestartedEmpty: the registry of a server that comes back empty is filled again by the
// program, which does not write with a dictionary until it is.
func TestRestartedEmpty(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	r, g, p := openGroup(t, client, "users", dict.GroupOptions{Poll: 50 * time.Millisecond})
	d := rollOut(t, r, "users", common)
	wait(t, "the dictionary is written with", func() bool { return g.Writer().DictionaryID() == d.ID() })
	packed, err := p.Pack(nil, []byte(`{"id":1,`+common))
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(ctx, "user:1").Result(); !errors.Is(err, redis.Nil) {
		t.Fatalf("the server is not empty: %v", err)
	}
	_, _, late := openGroup(t, client, "users", dict.GroupOptions{FetchTimeout: 10 * time.Second})
	if _, err := late.Unpack(ctx, nil, packed); err != nil {
		t.Errorf("a value written before: %v", err)
	}
	wait(t, "the group is back", func() bool {
		s, err := r.State(ctx, "users")
		return err == nil && s.Current == d.ID() && g.Writer().DictionaryID() == d.ID()
	})
}

// TestDictionariesAreNotEvicted: Redis evicts the keys that were not used for longest, and a
// program uses its dictionaries from its own memory. It touches all of its group as often as it
// polls, also those that it does not hold.
func TestDictionariesAreNotEvicted(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	// With many samples, the least recently used of all keys goes first.
	server := redisproc.ForTest(t, "--maxmemory", "6mb", "--maxmemory-policy", "allkeys-lru", "--maxmemory-samples", "64")
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	r, err := dict.NewRegistry(NewStore(client), dict.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, name := range []string{"retired", "previous", "current"} {
		keys = append(keys, r.DataKey(rollOut(t, r, "users", name+strings.Repeat(common, 10)).ID()))
	}
	_, g, _ := openGroup(t, client, "users", dict.GroupOptions{Poll: 20 * time.Millisecond})
	if why := func() string {
		wait(t, "the danger is known", func() bool { return g.Status().Danger != "" })
		return g.Status().Danger
	}(); !strings.Contains(why, "allkeys-lru") {
		t.Errorf("danger: %q", why)
	}
	keys = append(keys, r.GroupKey("users"), "bale:dict:groups", "bale:dict:settings")

	n := 0
	fill := func(until func() bool) {
		for ; !until(); n += 50 {
			p := client.Pipeline()
			for i := range 50 {
				p.Set(ctx, fmt.Sprintf("filler:%d", n+i), strings.Repeat("x", 2000), 0)
			}
			if _, err := p.Exec(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	info := func(section, field string) int {
		s, err := client.Info(ctx, section).Result()
		_, rest, _ := strings.Cut(s, "\n"+field+":")
		value, _, _ := strings.Cut(rest, "\r")
		n, parseErr := strconv.Atoi(value)
		if err := errors.Join(err, parseErr); err != nil {
			t.Fatal(err)
		}
		return n
	}
	idle := func(key string) time.Duration { return client.ObjectIdleTime(ctx, key).Val() }
	fill(func() bool { return info("memory", "used_memory") > 5<<20 })
	wait(t, "the fillers are older than the last use of the dictionaries", func() bool {
		return idle("filler:0") >= 4*time.Second && idle(keys[0]) <= time.Second
	})
	fill(func() bool { return info("stats", "evicted_keys") >= 500 })
	for _, key := range keys {
		if client.Exists(ctx, key).Val() == 0 {
			t.Errorf("%s was evicted", key)
		}
	}
}

// TestProgramThatMayOnlyRead follows its group and reads, by Redis's own access list.
func TestProgramThatMayOnlyRead(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { admin.Close() })
	r, err := dict.NewRegistry(NewStore(admin), dict.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d := rollOut(t, r, "users", strings.Repeat(common, 10))
	for user, may := range map[string][]any{"reader": {"+@read", "+@pubsub"}, "getter": {"+getrange", "+subscribe"}} {
		if err := admin.Do(ctx, append([]any{"ACL", "SETUSER", user, "on", ">secret", "~*", "&*", "-@all", "+@connection"}, may...)...).Err(); err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: user, Password: "secret"})
		t.Cleanup(func() { client.Close() })
		_, g, _ := openGroup(t, client, "users", dict.GroupOptions{Poll: 20 * time.Millisecond})
		wait(t, user+" follows", func() bool { return g.Status().Writing == d.ID() })
		next := rollOut(t, r, "users", user+strings.Repeat(common, 10))
		wait(t, user+" follows on", func() bool { return g.Status().Writing == next.ID() && g.Status().Err == nil })
		d = next
	}
	if servers, err := r.Servers(ctx); err != nil || len(servers) != 0 {
		t.Errorf("%v have joined, %v", servers, err)
	}
}

func TestDictStoreAsksMasters(t *testing.T) {
	t.Parallel()
	storetest.RunDictMasters(t, func(t *testing.T, d storetest.Deployment) (dict.Store, func(string)) {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: d.Addrs, ReadOnly: true})
		t.Cleanup(func() { client.Close() })
		return NewStore(client), func(key string) { client.Get(t.Context(), key) }
	})
}

// subscribed is the reply to SUBSCRIBE news.
const subscribed = "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"

// publisher is a client of a server that answers SUBSCRIBE, and nothing else.
func publisher(t *testing.T, reply string) *redis.Client {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for b := make([]byte, 4096); ; {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					switch command := bytes.ToLower(b[:n]); {
					case bytes.Contains(command, []byte("subscribe")):
						io.WriteString(c, reply)
					case !bytes.Contains(command, []byte("ping")):
						io.WriteString(c, "-ERR unknown command\r\n")
					}
				}
			}()
		}
	}()
	client := redis.NewClient(&redis.Options{Addr: l.Addr().String(), Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { client.Close() })
	return client
}

// TestListenHostile: a message that no Redis sends is an error, whenever it comes. go-redis panics.
func TestListenHostile(t *testing.T) {
	for _, message := range []string{
		"*0\r\n", "*1\r\n:1\r\n", "*1\r\n$9\r\nsubscribe\r\n", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n$1\r\nx\r\n",
		"*2\r\n$7\r\nmessage\r\n$4\r\nnews\r\n", "*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n*1\r\n:1\r\n", "*1\r\n$4\r\npong\r\n", "*2\r\n$5\r\nother\r\n:1\r\n",
	} {
		for name, before := range map[string]string{"at once": "", "later": subscribed} {
			if err := NewStore(publisher(t, before+message)).Listen(t.Context(), "news", func(string) {}); err == nil || t.Context().Err() != nil {
				t.Errorf("%q %s: %v", message, name, err)
			}
		}
	}
}

// TestListenSilence: a server from which nothing is heard is asked, and listened to as long as it
// answers.
func TestListenSilence(t *testing.T) {
	t.Parallel()
	const silence = 500 * time.Millisecond
	if err := NewStore(publisher(t, subscribed)).listen(t.Context(), "news", silence, func(string) {}); err == nil || t.Context().Err() != nil {
		t.Errorf("one that does not answer: %v", err)
	}
	server := redisproc.ForTest(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { client.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- NewStore(client).listen(ctx, "news", silence, func(m string) {
			if m == "last" {
				cancel()
			}
		})
	}()
	for called(t, server, "ping") < 3 {
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(silence / 10):
		}
	}
	if _, err := server.Do(t.Context(), "PUBLISH", "news", "last"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// called is how often the server was sent a command.
func called(t *testing.T, server *redisproc.Server, command string) (n int) {
	t.Helper()
	info, err := server.Do(t.Context(), "INFO", "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "cmdstat_"+command+":calls=")
	fmt.Sscan(strings.SplitN(rest, ",", 2)[0], &n)
	return n
}

// TestAutoSeesPlainReads: a hook counts plain values that are read for a first dictionary, also in
// the first phase of a roll-out. It counts none that it would not pack.
func TestAutoSeesPlainReads(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redisproc.ForTest(t)
	raw := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer raw.Close()
	_, g, packer := openGroup(t, raw, "users", dict.GroupOptions{Auto: &dict.Auto{Interval: time.Hour}})
	for _, protocol := range []int{2, 3} {
		hooked := redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: protocol})
		defer hooked.Close()
		o := HookOptions{Match: []string{"user:*"}, Exclude: []string{"user:x:*"}, ReadOnly: true}
		hook, err := NewHook(packer, o)
		if err != nil {
			t.Fatal(err)
		}
		install(t, hook, hooked)
		value, hash := big("plain"), []any{"a", big("a"), "b", big("b"), "n", 5}
		for _, err := range []error{
			raw.MSet(ctx, "user:1", value, "user:2", value, "user:x:1", value, "other:1", value, "user:n", 5, "user:e", "").Err(),
			raw.HSet(ctx, "user:h", hash...).Err(), raw.HSet(ctx, "other:h", hash...).Err(),
			raw.Del(ctx, "user:l").Err(), raw.RPush(ctx, "user:l", value).Err(),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, test := range []struct {
			args []any
			want int
		}{
			{[]any{"get", "user:1"}, 1},
			{[]any{"get", "user:x:1"}, 0},
			{[]any{"get", "other:1"}, 0},
			{[]any{"get", "user:n"}, 0},
			{[]any{"get", "user:e"}, 0},
			{[]any{"get", "user:none"}, 0},
			{[]any{"mget", "user:1", "other:1", "user:none", "user:2", "user:n", "user:x:1"}, 2},
			{[]any{"hget", "user:h", "a"}, 1},
			{[]any{"hmget", "user:h", "a", "none", "b", "n"}, 2},
			{[]any{"hgetall", "user:h"}, 2},
			{[]any{"hgetall", "other:h"}, 0},
			{[]any{"hscan", "user:h", 0}, 2},
			{[]any{"lrange", "user:l", 0, -1}, 0},
			{[]any{"sort", "user:l", "by", "nosort"}, 0},
		} {
			for _, s := range senders {
				before := g.Status().Collected
				if err := s.send(ctx, hooked, redis.NewCmd(ctx, test.args...)); err != nil && err != redis.Nil {
					t.Errorf("%v, %s: %v", test.args, s.name, err)
				}
				if got := g.Status().Collected - before; got != test.want {
					t.Errorf("%v, %s, RESP%d: %d values counted, want %d", test.args, s.name, protocol, got, test.want)
				}
			}
		}
	}
}
