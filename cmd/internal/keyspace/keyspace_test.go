package keyspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/stream"
)

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"redis://user:pass@host:1/0":                 "redis://***@host:1/0",
		"redis://user:p@ss@host":                     "redis://***@host",
		"redis://host:1":                             "redis://host:1",
		"nonsense":                                   "nonsense",
		"redis://h/0?db=1&Password=x&read_timeout=3": "redis://h/0?db=1&Password=***&read_timeout=3",
		"redis://h/0?pass%77ord=a%26b&password=ab":   "redis://h/0?pass%77ord=***&password=***",
		"redis://h/0;sentinel_%70assword=x":          "redis://h/0;sentinel_%70assword=***",
		"redis://u:secret;password=x@h/0":            "redis://***@h/0",
		"redis://h/0?pool_size=3":                    "redis://h/0?pool_size=3",
	} {
		if got := Redact(in); got != want {
			t.Errorf("Redact(%q) = %q, want %q", in, got, want)
		}
	}
}

// TestLogin: a URL's own user and password come first.
func TestLogin(t *testing.T) {
	l := Login{User: "u", Password: "p"}
	for at, want := range map[string]string{
		"redis://h:1": "u:p@h:1", "rediss://h": "u:p@h:6379", "redis://v@h:1": "v:p@h:1", "redis://v:q@h:1/3": "v:q@h:1", "unix:///run/redis.sock": "u:p@/run/redis.sock",
		"redis://h:1?addr=i:2": "u:p@h:1", "redis://v:q@h:1?addr=i:2": "v:q@h:1",
	} {
		o, seeds, err := l.Server(t.Context(), at)
		if err != nil {
			t.Errorf("%s: %v", at, err)
			continue
		}
		if got := o.Username + ":" + o.Password + "@" + o.Addr; got != want || (len(seeds) == 2) != strings.Contains(at, "addr=") {
			t.Errorf("%s: %s, %q, want %s", at, got, seeds, want)
		}
	}
	for at, want := range map[string]string{
		"redis://h:1?addr=i:2&read_timeout=3": `do not take the option "read_timeout"`, "redis://h:1?master_name=m&pool_size=3": `do not take the option "pool_size"`,
		"redis://h:1?addr=i:2&password=secret": "it has an option that is not known", "redis://h:1/x?addr=i:2&master_name=m&password=secret": "the database after the host is no number",
		"redis://h:1?master_name=m&addr=secret@i:2": `"redis://***@i:2"`, "redis://h:1?addr=secret@i:2": `"redis://***@i:2"`, "redis://h:1?addr=secret%40i:2": `"redis://***@i:2"`,
		"redis://u:1?addr=a&secret@h:2": `"redis://***@h:2"`, "redis://h:1?addr=[u:secret@i]:2": `"redis://***@i`, "redis://u:1?master_name=secret@h:2": `"redis://***@h:2"`,
	} {
		if _, _, err := l.Server(t.Context(), at); !errors.Is(err, ErrURL) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", at, err, want)
		}
	}
}

// TestLoginOfSeveral: the files are for TLS URLs alone, of which there must be one.
func TestLoginOfSeveral(t *testing.T) {
	l := Login{CA: "ca.pem"}
	for _, c := range []struct {
		urls []string
		ok   bool
	}{{[]string{"rediss://h", "redis://registry"}, true}, {[]string{"redis://h", "rediss://registry"}, true}, {[]string{"", ""}, true}, {[]string{"redis://h", ""}, false}} {
		if err := l.Check(c.urls...); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrLogin) {
			t.Errorf("%q: %v", c.urls, err)
		}
	}
	if o, _, err := l.Server(t.Context(), "redis://registry:1"); err != nil || o.TLSConfig != nil {
		t.Errorf("the URL without TLS: %+v, %v", o, err)
	}
}

// TestSentinel: of several Sentinels one that answers names the master.
func TestSentinel(t *testing.T) {
	master := redisproc.ForTest(t)
	sentinel := redisproc.SentinelForTest(t, "main", master)
	url := "redis://127.0.0.1:1/3?addr=" + sentinel.Addr() + "&master_name="
	c, err := Open(t.Context(), url+"main")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if o := c.(*redis.Client).Options(); o.Addr != master.Addr() || o.DB != 3 {
		t.Errorf("%s, database %d; the master is at %s", o.Addr, o.DB, master.Addr())
	}
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Error(err)
	}
	if _, err := Open(t.Context(), url+"other"); err == nil || !strings.Contains(err.Error(), `knows no master "other"`) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("%v", err)
	}
}

// TestSeveralNodes: a cluster is found by any of its nodes.
func TestSeveralNodes(t *testing.T) {
	cluster := redisproc.ClusterForTest(t, 3)
	c, err := Open(t.Context(), "redis://127.0.0.1:1?addr="+cluster.Servers[1].Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Error(err)
	}
}

func TestParseURL(t *testing.T) {
	for in, want := range map[string]string{
		"": `no redis URL: ""; one starts with redis://`, "localhost:6379": "one starts with redis://, rediss:// or unix://", "://x": "one starts with redis://",
		"http://user:secret@host": `"***@host"; one starts`, "redis://user:sec ret@host:1/0": `"redis://***@host:1/0": `, "redis://host/x": "the database after the host is no number",
		":secret@host": `"***@host"`, "redis//user:secret@host": `"***@host"`, "redis://user:sec/ret@host": `"redis://***@host": there is an @ after a /, ? or #; in a password these are to be escaped: %2F`, "redis://:p?sec@host:1": "%3F for ?", "redis://user:secret": `"redis://user:***": the port is no number`,
		"redis://user:%secret@host": "%25 is a % in a password", "redis://user:p#secret@host": `"redis://***@host"`, "host:secret": `"host:***"`,
		"redis://user@host:secret": `"redis://***@host:***"`,
	} {
		_, err := ParseURL(in)
		if !errors.Is(err, ErrURL) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sec") {
			t.Errorf("%q: %v; want %q", in, err, want)
		}
	}
	for _, in := range []string{"redis://host:1/2", "rediss://user:secret@host", "unix:///tmp/redis.sock"} {
		if _, err := ParseURL(in); err != nil {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// FuzzURL: what stands before the last @, or after a colon that no port follows, is never shown.
func FuzzURL(f *testing.F) {
	const secret = "5ecret"
	for _, around := range [][2]string{{"redis://user:", "@host:1/0"}, {":", "@host"}, {"redis//u:", "@h"}, {"redis://u:a/", "b@h"}, {"redis://u:a#", "@h"}, {"redis://u:%", "@h"},
		{"unix://u:", "@/path?db=x"}, {"http://", "@h"}, {"redis://a@b:", "@h/9/9"}, {"redis://:", ""}, {"redis://u:a?", "=@h"}, {"://u:", "@"}, {"rediss://u:p@", "@h:x"},
		{"redis://h?addr=u:", "@i:1"}, {"redis://h?master_name=m&addr=u:", "@i:1"},
		{"redis://h?addr=", "@i:1"}, {"redis://u:1?addr=a&", "@h:1"}, {"redis://u:1?master_name=m&addr=[u:", "@h]:1"},
		{"@:", "0"}} {
		f.Add(around[0], around[1])
	}
	ended, end := context.WithCancel(context.Background())
	end() // no Sentinel is asked
	f.Fuzz(func(t *testing.T, before, after string) {
		in := before + secret + after
		if !strings.Contains(after, "@") && !strings.HasSuffix(before, ":") || strings.Contains(after, secret) {
			t.Skip("it is no password")
		}
		_, _, err := Login{}.Server(ended, in)
		if err == nil && !strings.Contains(after, "@") {
			t.Skip("nor is this")
		}
		if err != nil && strings.Contains(err.Error(), secret) || strings.Contains(Redact(in), secret) && strings.Contains(after, "@") {
			t.Errorf("%q: %q, %v", in, Redact(in), err)
		}
	})
}

func TestOpenFails(t *testing.T) {
	for _, url := range []string{"nonsense", "redis://127.0.0.1:1"} {
		if c, err := Open(t.Context(), url); err == nil {
			c.Close()
			t.Errorf("%s: no error", url)
		}
	}
}

// servers are a single one and a cluster, each with a user who may read only.
func servers(t *testing.T) map[string]redis.UniversalClient {
	all := map[string]redis.UniversalClient{}
	for name, addr := range map[string]string{"standalone": redisproc.ForTest(t).Addr(), "cluster": redisproc.ClusterForTest(t, 3).Addrs()[0]} {
		c, err := Open(t.Context(), "redis://"+addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		all[name] = c
	}
	if _, ok := all["cluster"].(*redis.ClusterClient); !ok {
		t.Fatal("the cluster was not recognised")
	}
	return all
}

// TestSampleEndsWithContext: an interrupt ends the work on values that were read.
func TestSampleEndsWithContext(t *testing.T) {
	client := servers(t)["standalone"]
	if err := client.HSet(t.Context(), "h", "a", 1, "b", 2, "c", 3).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	unpacked := 0
	_, err := Sample(ctx, client, SampleOptions{Values: 10, Bytes: 10, Size: 10, FewStrings: 10, Unpack: func(context.Context, []byte) ([]byte, error) {
		cancel()
		unpacked++
		return []byte("v"), nil
	}})
	if !errors.Is(err, context.Canceled) || unpacked != 1 {
		t.Errorf("%v, %d values", err, unpacked)
	}
}

func TestSample(t *testing.T) {
	t.Parallel()
	for name, client := range servers(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			for i := range 1000 {
				if err := errors.Join(client.Set(ctx, fmt.Sprintf("user:%d", i), fmt.Sprintf("value %d", i), 0).Err(), client.Set(ctx, fmt.Sprintf("other:%d", i), "x", 0).Err()); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(client.HSet(ctx, "user:hash", "a", "b").Err(), client.Set(ctx, "user:large", make([]byte, 1000), 0).Err(), client.Set(ctx, "user:bad", "bad", 0).Err(), client.Set(ctx, "user:bomb", "bomb", 0).Err()); err != nil {
				t.Fatal(err)
			}
			bad := errors.New("bad")
			options := SampleOptions{Match: []string{"user:*"}, Values: 5000, Bytes: 1 << 20, Size: 100, Unpack: func(_ context.Context, v []byte) ([]byte, error) {
				if string(v) == "bad" {
					return nil, bad
				}
				if string(v) == "bomb" {
					return make([]byte, 1<<20), nil
				}
				if string(v) == "absent" {
					return nil, fmt.Errorf("packed with none: %w", bale.ErrNotFound)
				}
				return v, nil
			}}
			streams, err := stream.New(goredis.NewStore(client), stream.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := streams.PutReader(ctx, "user:stream", strings.NewReader("content"), bale.Expiry{}); err != nil {
				t.Fatal(err)
			}
			if err := client.Set(ctx, "user:absent", "absent", 0).Err(); err != nil {
				t.Fatal(err)
			}
			s, err := Sample(ctx, client, options)
			if err != nil || len(s.Values) != 1000 || s.TooLarge != 2 || s.Unread != 1 || !errors.Is(s.Err, bad) || s.Keys != 1006 || s.Most != 1000 || s.Streams != 2 || s.Gone != 1 {
				t.Fatalf("%d values, %+v, %v", len(s.Values), s, err)
			}
			seen := map[string]bool{}
			for _, v := range s.Values {
				if !bytes.HasPrefix(v, []byte("value ")) || seen[string(v)] {
					t.Fatalf("%q", v)
				}
				seen[string(v)] = true
			}
			options.Skip = func(k string) bool { return strings.HasPrefix(k, "user:1") }
			if s, err = Sample(ctx, client, options); err != nil || len(s.Values) != 1000-111 || s.Keys != 1006-111 {
				t.Errorf("without user:1*: %d values, %+v, %v", len(s.Values), s, err)
			}
			options.Skip = nil
			options.Values = 300
			if s, err = Sample(ctx, client, options); err != nil || len(s.Values) != 300 || s.Most < 800 || s.Most > 1200 { // half of the keys
				t.Errorf("%d of 300, of about %d, %v", len(s.Values), s.Most, err)
			}
			for i := range 1000 {
				if err := client.HSet(ctx, fmt.Sprintf("hash:%d", i), "a", "x", "b", "y", "c", "z", "n", "12").Err(); err != nil {
					t.Fatal(err)
				}
			}
			hashes := options
			hashes.Match, hashes.Values, hashes.FewStrings = []string{"hash:*"}, 900, 900
			if s, err = Sample(ctx, client, hashes); err != nil || s.Fields != 900 || s.Most < 2400 || s.Most > 3600 {
				t.Errorf("%d fields, of about %d, %v", s.Fields, s.Most, err)
			}
			hashes.Values, hashes.FewStrings, hashes.Exclude = 5000, 5000, []string{"a", "b.x", "b.c"}
			if s, err = Sample(ctx, client, hashes); err != nil || s.Fields != 1000 || string(s.Values[0]) != "z" ||
				!slices.Equal(s.Excluded, []int{1000, 1000, 1000}) {
				t.Errorf("%d fields, %v left out, %v", s.Fields, s.Excluded, err)
			}
			options.Match = []string{"user:1*", "user:2*"} // 111 of each
			options.Values = 100
			s, err = Sample(ctx, client, options)
			first := 0
			for _, v := range s.Values {
				if bytes.HasPrefix(v, []byte("value 1")) {
					first++
				}
			}
			if err != nil || len(s.Values) != 100 || first != 50 {
				t.Errorf("%d values, %d of the first pattern, %v", len(s.Values), first, err)
			}
			options.Match, options.Values = []string{"user:*"}, 300
			options.Bytes = 500
			if s, err = Sample(ctx, client, options); err != nil || len(s.Values) < 30 || len(s.Values) > 60 {
				t.Errorf("%d values in 500 bytes, %v", len(s.Values), err)
			}
			cancelled, cancel := context.WithCancel(ctx)
			options.Progress = func(int, int, string) { cancel() }
			options.Values, options.Bytes = 5000, 1<<20
			if s, err = Sample(cancelled, client, options); !errors.Is(err, context.Canceled) || len(s.Values) == 0 {
				t.Errorf("%d values, %v", len(s.Values), err)
			}
		})
	}
}

// TestSampleOfHashes: all hashes of a server are looked at, large ones beside many small ones, each
// by its part of the fields. Of an object's fields not the first alone are taken.
// TestSampleOfOverlappingPatterns: a value is taken once, or it would be trained on and held out.
func TestSampleOfOverlappingPatterns(t *testing.T) {
	t.Parallel()
	for name, client := range servers(t) {
		t.Run(name, func(t *testing.T) {
			for i := range 100 {
				key := fmt.Sprintf("user:%d", i)
				if err := errors.Join(client.Set(t.Context(), key, key, 0).Err(), client.HSet(t.Context(), "hash:"+key, "field", key+"h").Err()); err != nil {
					t.Fatal(err)
				}
			}
			for _, match := range [][]string{{"user:1*", "*", "user:*", "*", "hash:*"}, {"*:1*", "user:*", "hash:*"}} {
				sampled, err := Sample(t.Context(), client, SampleOptions{
					Match: match, Values: 5000, Bytes: 1 << 20, Size: 100, FewStrings: 1000,
					Unpack: func(_ context.Context, v []byte) ([]byte, error) { return v, nil },
				})
				seen := map[string]bool{}
				for _, v := range sampled.Values {
					seen[string(v)] = true
				}
				if err != nil || len(seen) != 200 || len(sampled.Values) != 200 || sampled.Most > 300 {
					t.Errorf("%q: %d values, %d of them different, of %d, %v", match, len(sampled.Values), len(seen), sampled.Most, err)
				}
			}
		})
	}
}

func TestSampleOfHashes(t *testing.T) {
	t.Parallel()
	for name, client := range servers(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			set := func(key, value string, fields int) {
				t.Helper()
				var pairs []any
				for i := range fields {
					pairs = append(pairs, fmt.Sprint("f", i), fmt.Sprintf("%s %d", value, i))
				}
				if err := client.HSet(ctx, key, pairs...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			for i := range 40 {
				set(fmt.Sprint("few:", i), "code", 600)
				set(fmt.Sprint("object:", i), "object", 20)
			}
			for i := range 3 {
				set(fmt.Sprint("many:", i), "document", 4000)
			}
			o := SampleOptions{Match: []string{"[fm]*"}, Values: 3600, Bytes: 1 << 20, Size: 100, FewStrings: 1 << 20,
				Unpack: func(_ context.Context, v []byte) ([]byte, error) { return v, nil }}
			count := func(s *Sampled, value string) (n int) {
				for _, v := range s.Values {
					if strings.HasPrefix(string(v), value) {
						n++
					}
				}
				return n
			}
			s, err := Sample(ctx, client, o)
			if err != nil {
				t.Fatal(err)
			}
			// A tenth of 24,000 and of 12,000. On a cluster each master gives as many.
			least := 1100
			if name == "cluster" {
				least = 600
			}
			if n := count(s, "document"); n < least || len(s.Values) != 3600 || s.Keys != 43 || s.Most != 36000 {
				t.Errorf("%d documents of %d values, %d keys, %d fields", n, len(s.Values), s.Keys, s.Most)
			}
			o.Match, o.Values = []string{"object:*"}, 200
			if s, err = Sample(ctx, client, o); err != nil {
				t.Fatal(err)
			}
			if n := count(s, "object 0"); n > 40 || len(s.Values) != 200 || s.Keys != 40 || s.Most != 800 {
				t.Errorf("%d first fields of %d, %d keys, %d fields", n, len(s.Values), s.Keys, s.Most)
			}
			o.Match, o.Values = []string{"[fo]*"}, 1<<20
			if s, err = Sample(ctx, client, o); err != nil || len(s.Values) != 24800 || s.Most != 24800 {
				t.Errorf("%d values of all, %d fields, %v", len(s.Values), s.Most, err)
			}
		})
	}
}

func TestWalkKeepsItsRate(t *testing.T) {
	client := servers(t)["standalone"]
	for i := range 1000 {
		if err := client.Set(t.Context(), fmt.Sprint(i), "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	start, keys := time.Now(), 0
	if err := EachString(t.Context(), client, "", Pace{Rate: 5000}, func(string) error { keys++; return nil }); err != nil || keys != 1000 {
		t.Fatalf("%d keys, %v", keys, err)
	}
	// No upper bound: the machine may be busy.
	if took := time.Since(start); took < 150*time.Millisecond {
		t.Errorf("1000 keys in %v, at 5000 a second", took)
	}
}

func TestFindReferences(t *testing.T) {
	t.Parallel()
	for name, client := range servers(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			value := func(id frame.DictionaryID) string {
				return string(frame.Header{Algorithm: frame.Zstd, DictionaryID: id, HasChecksum: true, Length: 100}.Append(nil)) + "payload"
			}
			size := int64(len(value(1)))
			fields := map[string]any{}
			for i := range 500 {
				fields[fmt.Sprint(i)] = "plain"
			}
			fields["packed"] = value(3)
			for i := range 300 {
				if err := client.Set(ctx, fmt.Sprint("string:", i), value(1), 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(
				client.Set(ctx, "plain", "plain", 0).Err(), client.Set(ctx, "none", value(0), 0).Err(), client.Set(ctx, "skip:1", value(9), 0).Err(),
				client.HSet(ctx, "hash", fields).Err(),
				client.RPush(ctx, "list", "plain", value(4)).Err(), client.SAdd(ctx, "set", "plain", value(5)).Err(),
				client.ZAdd(ctx, "zset", redis.Z{Score: 1, Member: value(6)}).Err(),
				client.XAdd(ctx, &redis.XAddArgs{Stream: "stream", Values: []any{"field", value(7)}}).Err(),
			); err != nil {
				t.Fatal(err)
			}
			streams, err := stream.New(goredis.NewStore(client), stream.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := streams.PutReader(ctx, "chunked", strings.NewReader("content"), bale.Expiry{}); err != nil {
				t.Fatal(err)
			}
			// A frame of version 2 refers to its dictionary as one of version 1 does. Its trailer does
			// not count.
			fresh := frame.Header{Version: frame.V2, Algorithm: frame.Zstd, DictionaryID: 10, Length: 100}.Append(nil)
			if err := client.Set(ctx, "fresh", frame.Freshness{Expires: time.Now()}.Append(append(fresh, make([]byte, int(size)-len(fresh))...)), 0).Err(); err != nil {
				t.Fatal(err)
			}
			ids := map[frame.DictionaryID]int64{10: 1, 1: 300, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1}
			if single, ok := client.(*redis.Client); ok {
				o := *single.Options()
				o.DB, o.PushNotificationProcessor = 5, nil
				other := redis.NewClient(&o)
				if err := errors.Join(other.Set(ctx, "elsewhere", value(8), 0).Err(), other.Close()); err != nil {
					t.Fatal(err)
				}
				ids[8] = 1
			}
			r, err := FindReferences(ctx, []redis.UniversalClient{client}, ReferenceOptions{Skip: func(k string) bool { return strings.HasPrefix(k, "skip:") }, Proof: true})
			if err != nil {
				t.Fatal(err)
			}
			if r.Streams != 1 || r.ByID[0].Values != 2 { // the one chunk is a frame, too
				t.Errorf("%d streams, %+v", r.Streams, r.ByID[0])
			}
			delete(r.ByID, 0)
			if len(r.ByID) != len(ids) {
				t.Errorf("%d ids, want %d", len(r.ByID), len(ids))
			}
			for id, n := range ids {
				if ref := r.ByID[id]; ref == nil || ref.Values != n || ref.PlainBytes != 100*n || ref.StoredBytes != size*n {
					t.Errorf("%v: %+v, want %d values", id, ref, n)
				}
			}
			n, err := Count(ctx, client)
			if err != nil || n < r.Keys {
				t.Errorf("%d keys, %d looked at, %v", n, r.Keys, err)
			}
		})
	}
}

var free = &Pacer{}

// TestLookAt looks for chunks on one server, and on all nodes of a cluster.
func TestLookAt(t *testing.T) {
	t.Parallel()
	for name, client := range servers(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			const n = 2*pageSize + 50
			chunk := frame.Header{Algorithm: frame.Stored, HasChecksum: true, Checksum: frame.Checksum([]byte("12345")), Length: 5}.Append(nil)
			chunk = append(chunk, "12345"...)
			size := int64(len(chunk))
			key := func(i int) string { return fmt.Sprint("chunk:", i) }
			for i := range n {
				if err := client.Set(ctx, key(i), chunk, time.Hour).Err(); err != nil {
					t.Fatal(err)
				}
			}
			c, err := LookAt(ctx, client, n, key, free)
			if err != nil || c.Bytes != size*n || c.Missing != nil || c.Shortest < 30*time.Minute || c.Longest > time.Hour {
				t.Fatalf("%+v, %v", c, err)
			}
			if err := errors.Join(client.Persist(ctx, key(0)).Err(), client.Del(ctx, key(3)).Err(), client.Del(ctx, key(220)).Err(), client.LPush(ctx, key(220), "x").Err(), client.PExpire(ctx, key(1), 30*time.Second).Err()); err != nil {
				t.Fatal(err)
			}
			c, err = LookAt(ctx, client, n+10, key, free)
			if err != nil || c.Bytes != size*(missingShown-1) || !slices.Equal(c.Missing, []int{3}) || c.Longest != ForEver || c.Shortest > 30*time.Second {
				t.Errorf("%+v, %v", c, err)
			}
			if err := client.Set(ctx, key(3), chunk, time.Hour).Err(); err != nil {
				t.Fatal(err)
			}
			last := 0
			c, err = LookAt(ctx, client, math.MaxInt32, func(i int) string { last = max(last, i); return key(i) }, free)
			if err != nil || c.Bytes != size*(n-1) || !slices.Equal(c.Missing, []int{220, 250, 251, 252, 253}) || last != missingShown+3*pageSize-1 {
				t.Errorf("%+v, as far as %d, %v", c, last, err)
			}
			if c, err := LookAt(ctx, client, 0, key, free); err != nil || c.Bytes != 0 || c.Shortest != ForEver {
				t.Errorf("%+v, %v", c, err)
			}
			for k, want := range map[string]time.Duration{key(0): ForEver, "nowhere": 0} {
				if got, err := Lives(ctx, client, k); err != nil || got != want {
					t.Errorf("%s: %v, %v", k, got, err)
				}
			}
			cancelled, cancel := context.WithCancel(ctx)
			cancel()
			if _, err := LookAt(cancelled, client, n, key, free); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// TestLookAtLongNames: a page of chunks with long names has few, and a bandwidth counts the names.
func TestLookAtLongNames(t *testing.T) {
	t.Parallel()
	const there, size = 5, 1 << 20
	c, last := opened(t, redisproc.ForTest(t).URL()), 0
	key := func(i int) string { last = i; return strings.Repeat("k", size) + strconv.Itoa(i) }
	chunk := frame.Header{Algorithm: frame.Stored}.Append(nil)
	for i := range there {
		must(t, c.Set(t.Context(), key(i), chunk, 0).Err())
	}
	start, pace := time.Now(), &Pacer{Pace: Pace{Bandwidth: 1 << 30}}
	chunks, err := LookAt(t.Context(), c, math.MaxInt32, key, pace)
	if err != nil || !slices.Equal(chunks.Missing, []int{there}) || last != there {
		t.Errorf("%+v, as far as %d, %v", chunks, last, err)
	}
	if cost := pace.due.Sub(start); cost < 3*(there+1)*time.Second/1024 {
		t.Errorf("the names count for %v", cost)
	}
}

// TestWastedSample: values that are damaged at their ends are unpacked up to a bound, and those
// that cost nothing do not count.
func TestWastedSample(t *testing.T) {
	forged := append(frame.Header{Algorithm: frame.Zstd, Length: 64 << 20}.Append(nil), make([]byte, 2048)...)
	unpacked, failed := 0, bale.ErrUnknownDictionary
	unpack := func(_ context.Context, stored []byte) ([]byte, error) {
		if unpacked++; stored[0] == '{' {
			return stored, nil
		}
		return nil, failed
	}
	s := sampling{SampleOptions: SampleOptions{Values: 1, Size: 1 << 20, Bytes: 1 << 20, Unpack: unpack}}
	add := func(n int) {
		for range n {
			if !s.add(t.Context(), Value{Key: "k", Stored: forged}) {
				t.Fatal("there is no room")
			}
		}
	}
	add(100)
	failed = bale.ErrCorrupt
	add(100)
	if n := MostWasted >> 26; unpacked != 100+n || s.found.Unread != 100+n || s.found.Untried != 100-n {
		t.Errorf("%d are unpacked, %d in vain, %d are not tried", unpacked, s.found.Unread, s.found.Untried)
	}
	if n := Wasted(64<<20, forged[:10]); n != 10<<15 {
		t.Errorf("a value that is cut short wastes %d bytes", n)
	}
	if s.add(t.Context(), Value{Key: "k", Stored: []byte(`{"a":1}`)}); len(s.ranked) != 1 {
		t.Error("a plain value is passed over")
	}
}
