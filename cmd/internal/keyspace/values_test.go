package keyspace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/internal/redisproc"
)

// TestReadValues reads strings and hashes, small and large, as they are.
func TestReadValues(t *testing.T) {
	t.Parallel()
	for name, client := range servers(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			set := func(k, value string) {
				if err := client.Set(ctx, k, value, 0).Err(); err != nil {
					t.Fatal(err)
				}
			}
			hset := func(k string, fields int, value string) {
				for i := range fields {
					if err := client.HSet(ctx, k, fmt.Sprint("f", i), value).Err(); err != nil {
						t.Fatal(err)
					}
				}
			}
			for i := range 2500 {
				set(fmt.Sprint("s:", i), fmt.Sprint("value ", i))
			}
			for i := range 40 {
				hset(fmt.Sprint("h:", i), 3, "small")
			}
			hset("h:large", 700, strings.Repeat("x", 100))
			hset("h:long", 3, strings.Repeat("y", 3<<20))
			set("s:long 1", strings.Repeat("z", 5<<20))
			set("s:long 2", strings.Repeat("z", 5<<20))
			set("s:too large", strings.Repeat("z", 6<<20))
			set("skip:1", "x")
			if err := client.RPush(ctx, "list", "x").Err(); err != nil {
				t.Fatal(err)
			}
			read := func(o ValuesOptions) (map[string]int, Looked) {
				t.Helper()
				got := map[string]int{}
				var looked Looked
				o.Size, o.Skip = 5<<20, func(k string) bool { return strings.HasPrefix(k, "skip:") }
				o.Values = func(_ context.Context, _ redis.UniversalClient, values []Value) (Next, error) {
					for _, v := range values {
						got[fmt.Sprintf("%s %s %.9s %d", v.Key, v.Field, v.Stored, len(v.Stored))]++
					}
					return More, nil
				}
				o.Page = func(places []Place, l Looked) error {
					looked = l
					return nil
				}
				if err := ReadValues(ctx, client, o); err != nil {
					t.Fatal(err)
				}
				return got, looked
			}
			got, looked := read(ValuesOptions{})
			if len(got) != 2500+40*3+700+3+2 || got["s:17  value 17 8"] != 1 || got["h:large f699 xxxxxxxxx 100"] != 1 || got["h:39 f2 small 5"] != 1 || got[fmt.Sprintf("s:long 2  zzzzzzzzz %d", 5<<20)] != 1 {
				t.Errorf("%d values", len(got))
			}
			if looked.Scanned < looked.Keys {
				t.Errorf("%d keys of %d", looked.Keys, looked.Scanned)
			}
			looked.Scanned = 0
			if diff := cmp.Diff(Looked{Keys: 2500 + 42 + 2 + 1 + 2, Skipped: 1, Others: 1, TooLarge: 1}, looked); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got, _ := read(ValuesOptions{Kind: "hash"}); len(got) != 40*3+700+3 {
				t.Errorf("%d fields", len(got))
			}
			if got, _ := read(ValuesOptions{Match: []string{"s:1*", "h:large", "s:11*"}}); len(got) != 1111+700 || got["s:11  value 11 8"] != 2 {
				t.Errorf("%d values of patterns", len(got))
			}
			// The pattern has a wildcard. In a cluster, Redis 8 and Valkey look for a name without
			// one in its own slot alone, and few keys count.
			start := time.Now()
			if got, _ := read(ValuesOptions{Match: []string{"h:large*"}, Pacer: &Pacer{Pace: Pace{Rate: 10000}}}); len(got) != 700 || time.Since(start) < 250*time.Millisecond {
				t.Errorf("%d fields in %v, at 10000 a second", len(got), time.Since(start))
			}
			// The reading of a server, and all of it, may end early; and it ends with its context,
			// when the page in hand is done.
			for next, most := range map[Next]int{Stop: 1, NextNode: 3} {
				calls := 0
				if err := ReadValues(ctx, client, ValuesOptions{Size: 1 << 20, Values: func(context.Context, redis.UniversalClient, []Value) (Next, error) {
					calls++
					return next, nil
				}}); err != nil || calls > most {
					t.Errorf("%d calls, %v", calls, err)
				}
			}
			cancelled, cancel := context.WithCancel(ctx)
			defer cancel()
			calls := 0
			if err := ReadValues(cancelled, client, ValuesOptions{Size: 1 << 20, Values: func(ctx context.Context, _ redis.UniversalClient, _ []Value) (Next, error) {
				calls++
				cancel()
				return More, ctx.Err()
			}}); !errors.Is(err, context.Canceled) || calls != 1 {
				t.Errorf("%d calls, %v", calls, err)
			}
		})
	}
}

func TestUsedMemoryAndCalls(t *testing.T) {
	t.Parallel()
	for name, client := range servers(t) {
		t.Run(name, func(t *testing.T) {
			if n, err := UsedMemory(t.Context(), client); err != nil || n < 500<<10 {
				t.Errorf("%d bytes, %v", n, err)
			}
			if err := client.Append(t.Context(), "k", "x").Err(); err != nil {
				t.Fatal(err)
			}
			if calls, err := CommandCalls(t.Context(), client); err != nil || calls["append"] != 1 {
				t.Errorf("%v, %v", calls["append"], err)
			}
		})
	}
}

// TestAllocated compares the model of a value that was read with its server, whichever that is.
func TestAllocated(t *testing.T) {
	ctx := t.Context()
	c := opened(t, "redis://"+redisproc.ForTest(t).Addr())
	defer c.Close()
	text, err := c.Info(ctx).Result()
	if err != nil {
		t.Fatal(err)
	}
	// libc gives 16 bytes more where it takes a piece that was freed.
	tolerance := 0
	if Info(text)["mem_allocator"] == "libc" {
		tolerance = 16
	}
	for _, inHash := range []bool{false, true} {
		usage := func(n int) (v Value, bytes int) {
			t.Helper()
			err := errors.Join(c.Del(ctx, "k").Err(), c.HSet(ctx, "k", "f", strings.Repeat("x", n)).Err())
			if !inHash {
				err = errors.Join(c.Del(ctx, "k").Err(), c.Set(ctx, "k", strings.Repeat("x", n), 0).Err())
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := ReadValues(ctx, c, ValuesOptions{Size: 1 << 20, Values: func(_ context.Context, _ redis.UniversalClient, values []Value) (Next, error) {
				v = values[0]
				return More, nil
			}}); err != nil {
				t.Fatal(err)
			}
			return v, int(c.MemoryUsage(ctx, "k", 0).Val())
		}
		v, base := usage(100)
		base -= v.Allocated(100)
		for n := 65; n < 20000; n += 1 + n/13 {
			v, want := usage(n)
			if got := v.Allocated(n) + base; got < want-tolerance || got > want+tolerance {
				t.Errorf("in a hash %v, %d bytes: the model says %d, the server %d", inHash, n, got, want)
			}
		}
	}
}

// TestVersion: Valkey is not called Redis.
func TestVersion(t *testing.T) {
	for _, test := range []struct {
		info    map[string]string
		version string
		name    string
	}{
		{map[string]string{"redis_version": "7.0.15"}, "7.0.15", "Redis 7.0.15"},
		{map[string]string{"redis_version": "7.2.4", "valkey_version": "9.1.2", "server_name": "valkey"}, "Valkey 9.1.2", "Valkey 9.1.2"},
		{map[string]string{"redis_version": "7.2.4", "valkey_version": "8.0.1"}, "Valkey 8.0.1", "Valkey 8.0.1"},
		{map[string]string{"redis_version": "6.2.0", "server_name": "other"}, "6.2.0", "Redis 6.2.0"},
		{map[string]string{}, "", "Redis"},
	} {
		if version := Version(test.info); version != test.version || ServerName(version) != test.name {
			t.Errorf("%v: %q, %q", test.info, version, ServerName(version))
		}
	}
	// The server in PATH, by what it says at its start.
	s := redisproc.ForTest(t)
	info, err := s.Do(t.Context(), "INFO", "server")
	if err != nil {
		t.Fatal(err)
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Skip("there is no redis-server, but another one")
	}
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	var name, version string // "Valkey server v=9.1.2 sha=..."
	if _, err := fmt.Sscanf(string(out), "%s server v=%s", &name, &version); err != nil || ServerName(Version(Info(info))) != name+" "+version {
		t.Errorf("%q, but %q, %v", ServerName(Version(Info(info))), out, err)
	}
}

// TestProgress: the part of a walk that is done grows evenly, however few keys are like the
// pattern.
func TestProgress(t *testing.T) {
	s := redisproc.ForTest(t)
	c, err := Open(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const keys = 20_000
	if _, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range keys {
			p.Set(t.Context(), fmt.Sprint("key:", i), i, 0)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, patterns := range [][]string{{"*"}, {"key:1999*", "key:1*"}} {
		last, pages := 0, 0
		if err := ReadValues(t.Context(), c, ValuesOptions{
			Match: patterns, Size: 1 << 20, Values: func(context.Context, redis.UniversalClient, []Value) (Next, error) { return More, nil },
			Page: func(places []Place, l Looked) error {
				done, all := Progress(c, places, len(patterns), l.Keys, keys)
				if done < last || done > all {
					t.Errorf("%q: %d of %d, after %d", patterns, done, all, last)
				}
				if part := float64(l.Keys) / keys; len(patterns) == 1 && math.Abs(float64(done)/float64(all)-part) > 0.05 {
					t.Errorf("%d of %d, with %d of %d keys looked at", done, all, l.Keys, keys)
				}
				last, pages = done, pages+1
				return nil
			},
		}); err != nil {
			t.Fatal(err)
		}
		if last != 1<<20 || pages < 4 {
			t.Errorf("%q: %d in the end, after %d pages", patterns, last, pages)
		}
	}
}
