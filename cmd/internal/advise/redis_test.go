package advise

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keygroup"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/migrate"
	"github.com/balekv/bale/cmd/internal/page"
	dictregistry "github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/cmd/internal/tcptest"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/internal/redisproc"
)

func TestMain(m *testing.M) { tcptest.VerifyTestMain(m) }

// profile is a JSON value of some 250 bytes.
func profile(rng *rand.Rand, i int) string {
	return fmt.Sprintf(`{"id":%d,"name":"user %x","email":"u%d@example.com","country":"%s","verified":%v,"theme":"dark","timezone":"Europe/Berlin","plan":"pro","balance":%d,"tags":["vip","beta"],"created_at":"2026-%02d-%02dT10:00:00Z"}`,
		i, rng.Uint32(), rng.IntN(1e5), []string{"DE", "FR", "US"}[rng.IntN(3)], rng.IntN(2) == 0, rng.IntN(1e5), 1+rng.IntN(12), 1+rng.IntN(28))
}

// noise is bytes that do not compress.
func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// fill stores a key space of every kind, n keys of each.
func fill(t *testing.T, client redis.UniversalClient, n int) {
	t.Helper()
	ctx := t.Context()
	rng := rand.New(rand.NewPCG(1, 2))
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range n {
			var packed bytes.Buffer
			w := gzip.NewWriter(&packed)
			fmt.Fprint(w, profile(rng, i), profile(rng, i))
			w.Close()
			p.Set(ctx, fmt.Sprintf("user:%d:profile", i), profile(rng, i), time.Hour+time.Duration(i)*time.Second)
			p.Set(ctx, fmt.Sprintf("count:%d", i), rng.IntN(1e9), 0)
			p.Set(ctx, fmt.Sprintf("secret:%08x%08x", rng.Uint32(), rng.Uint32()), noise(rng, 300), 0)
			p.Set(ctx, fmt.Sprintf("page:%d", i), packed.Bytes(), 0)
			p.HSet(ctx, fmt.Sprintf("cart:%d", i), "a", profile(rng, i), "b", profile(rng, i), "n", 7)
			p.RPush(ctx, fmt.Sprintf("queue:%d", i), "x", "y")
		}
		p.Set(ctx, "bale:dict:groups", "skipped", 0)
		p.Set(ctx, "big", noise(rng, 1_000_000), 0)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// opened is a client for the time of the test.
func opened(t *testing.T, url string) redis.UniversalClient {
	t.Helper()
	client, err := keyspace.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func options() Options {
	return Options{Source: "test", URL: "redis://127.0.0.1:6379", Skip: keyspace.RegistryKeys("bale:dict:"), Sample: 200, MaxBytes: 1 << 30, Budget: time.Second, Seed: 1}
}

func groupOf(t *testing.T, a *Advice, name, kind string) *Group {
	t.Helper()
	for i := range a.Groups {
		if a.Groups[i].Name == name && a.Groups[i].Type == kind {
			return &a.Groups[i]
		}
	}
	var names []string
	for _, g := range a.Groups {
		names = append(names, g.Name+" "+g.Type)
	}
	t.Fatalf("no group %s of %s among %q", name, kind, names)
	return nil
}

// singleAndCluster are addresses of a server and of a cluster's node.
func singleAndCluster(t *testing.T) map[string]string {
	t.Helper()
	single, cluster := redisproc.ForTest(t), redisproc.ClusterForTest(t, 3)
	return map[string]string{"standalone": single.Addr(), "cluster": cluster.Addrs()[0]}
}

// TestRedis asks as a user who may only read, of a single server and of a cluster.
func TestRedis(t *testing.T) {
	t.Parallel()
	const n = 600
	for name, addr := range singleAndCluster(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			admin := opened(t, "redis://"+addr)
			fill(t, admin, n)
			rules := []any{"ACL", "SETUSER", "reader", "on", ">secret", "%R~*", "+@read", "+info", "+ping", "+cluster|slots", "+cluster|shards", "+cluster|nodes", "+readonly"}
			each := func(ctx context.Context, c *redis.Client) error { return c.Do(ctx, rules...).Err() }
			var err error
			if cluster, ok := admin.(*redis.ClusterClient); ok {
				err = cluster.ForEachShard(ctx, each)
			} else {
				err = each(ctx, admin.(*redis.Client))
			}
			if err != nil {
				t.Fatal(err)
			}
			reader := opened(t, "redis://reader:secret@"+addr)
			if err := reader.Set(ctx, "user:1:profile", "x", 0).Err(); !redis.HasErrorPrefix(err, "NOPERM") {
				t.Fatalf("the reader may write: %v", err)
			}
			a, err := Redis(ctx, reader, options())
			if err != nil {
				t.Fatal(err)
			}
			if a.Scan.Seen != 6*n+1 || a.Scan.Keys != 6*n+1 || a.Scan.Interrupted || a.Server.Cluster != (name == "cluster") {
				t.Errorf("%+v, %+v", a.Scan, a.Server)
			}
			if off := float64(a.Model.Modelled)/float64(a.Model.Measured) - 1; math.Abs(off) > 0.01 || a.Model.Keys < 5*200 {
				t.Errorf("the model is %+.2f%% off for %d keys", 100*off, a.Model.Keys)
			}
			profiles := groupOf(t, a, "user:*:profile", String)
			if diff := cmp.Diff([]Format{{"JSON", 1}}, profiles.Formats); diff != "" || profiles.Keys != n || profiles.Sampled != 200 || profiles.Match != "user:*:profile" || profiles.TTL.Part != 1 || profiles.TTL.P50 < 3600 {
				t.Errorf("%+v (-want +got):\n%s", profiles, diff)
			}
			chosen := profiles.Options[profiles.Chosen]
			if chosen.Dictionary == 0 || chosen.Ratio < 2 || profiles.Saving.Estimate < 0.3*float64(profiles.Now) || profiles.Saving.Low <= 0 || profiles.Saving.High < profiles.Saving.Low {
				t.Errorf("%+v, %+v", chosen, profiles.Saving)
			}
			if int64(math.Round(float64(profiles.Now)-profiles.Saving.Estimate))-chosen.Bytes > 1 {
				t.Errorf("%d now, %v saved, %d then", profiles.Now, profiles.Saving.Estimate, chosen.Bytes)
			}
			encodings := map[string]int{}
			for _, o := range profiles.Options {
				encodings[o.Encoding]++
				if o.Pack.Mean <= 0 || o.Unpack.P99 < o.Unpack.P50 || !o.InBudget {
					t.Errorf("%+v", o)
				}
			}
			if encodings["msgpack"] != 2 || encodings["cbor"] != 2 || encodings[""] != len(settings) {
				t.Errorf("tried: %v", encodings)
			}
			carts := groupOf(t, a, "cart:*", Hash)
			if carts.Fields != 3 || carts.Chosen < 0 || carts.Keys != n {
				t.Errorf("%+v", carts)
			}
			for group, why := range map[string]string{"count:*": "INCR", "secret:*": "random or encrypted", "page:*": "compressed (gzip)"} {
				if g := groupOf(t, a, group, String); g.Chosen >= 0 || !strings.Contains(g.Why, why) {
					t.Errorf("%s: %d, %q", group, g.Chosen, g.Why)
				}
			}
			if g := groupOf(t, a, "queue:*", "list"); !strings.Contains(g.Why, "out of reach") || g.Now == 0 {
				t.Errorf("%+v", g)
			}
			// A large value is read in part and counted in whole.
			if k := a.TopKeys[0]; k.Name != "big" || k.Bytes < 900_000 || a.Scan.BytesRead > 1_000_000 {
				t.Errorf("%+v, %d bytes read", k, a.Scan.BytesRead)
			}
			saved := 0.0
			for _, g := range a.Groups {
				saved += g.Saving.Estimate
			}
			if math.Abs(saved-a.Total.Saving.Estimate) > 1 || a.Total.Saving.Estimate > float64(a.Total.Now) {
				t.Errorf("%v saved by groups, %+v in all", saved, a.Total)
			}
			if len(a.Next) < 5 || !strings.Contains(a.Next[0].Code, "--match") {
				t.Errorf("%+v", a.Next)
			}
			again, err := Redis(ctx, reader, options())
			if err != nil {
				t.Fatal(err)
			}
			savings := func(g *Group) map[string]Interval {
				all := map[string]Interval{}
				for _, o := range g.Options {
					all[fmt.Sprint(o.Setting, o.Encoding, o.Dictionary)] = o.Saving
				}
				return all
			}
			if diff := cmp.Diff(savings(profiles), savings(groupOf(t, again, "user:*:profile", String))); diff != "" {
				t.Errorf("the same keys and seed give another answer:\n%s", diff)
			}
			// Nothing of a value is in the answer, unless it is asked for.
			if text := written(t, a); strings.Contains(text, "example.com") || strings.Contains(text, "Berlin") {
				t.Errorf("values are in the answer: %s", text)
			}
			o := options()
			o.ShowSamples, o.HideKeys = true, true
			o.Progress = func(_, _ int, what string) {
				if strings.Contains(what, "profile") || strings.Contains(what, "cart") {
					t.Errorf("the progress has a group's name: %s", what)
				}
			}
			if a, err = Redis(ctx, reader, o); err != nil {
				t.Fatal(err)
			}
			if text := written(t, a); !strings.Contains(text, "Berlin") || strings.Contains(text, "profile") || strings.Contains(text, "cart:") || strings.Contains(text, `"big"`) {
				t.Errorf("with samples and without keys: %s", text)
			}
		})
	}
}

func written(t *testing.T, a *Advice) string {
	t.Helper()
	b, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestSteps: the progress of an answer names its steps, of which a file of values has no scan.
func TestSteps(t *testing.T) {
	t.Parallel()
	s := redisproc.ForTest(t)
	client := opened(t, s.URL())
	fill(t, client, 300)
	var steps []string
	o := options()
	o.Progress = func(done, total int, what string) {
		step, _, _ := strings.Cut(what, ":")
		if len(steps) == 0 || steps[len(steps)-1] != step {
			steps = append(steps, step)
		}
		if done < 0 || done > total {
			t.Errorf("%d of %d, %s", done, total, what)
		}
	}
	_, err := Redis(t.Context(), client, o)
	must(t, err)
	if want := []string{"step 1 of 3", "step 2 of 3"}; len(steps) < 2 || !slices.Equal(steps[:2], want) {
		t.Errorf("%q", steps)
	}
	steps = nil
	_, err = Values(t.Context(), []Set{{Name: "file", Values: [][]byte{[]byte("a value"), []byte("another one")}, Total: 2}}, o)
	if must(t, err); !slices.Equal(steps, []string{"step 1 of 2"}) {
		t.Errorf("%q", steps)
	}
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	s := redisproc.ForTest(t)
	client := opened(t, s.URL())
	fill(t, client, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := options()
	o.Progress = func(done, total int, what string) {
		if done > 150 {
			cancel()
		}
	}
	a, err := Redis(ctx, client, o)
	if !errors.Is(err, context.Canceled) || a == nil {
		t.Fatalf("%v, %v", a, err)
	}
	if !a.Scan.Interrupted || a.Scan.Seen >= 6001 || a.Scan.Keys < 5000 || a.Scan.Keys > 7000 {
		t.Errorf("%+v", a.Scan)
	}
	if g := groupOf(t, a, "user:*:profile", String); g.Chosen < 0 || g.Keys < 400 || g.Keys > 1800 || g.Saving.Low != g.Saving.High ||
		a.Total.Saving.Low != a.Total.Saving.High {
		t.Errorf("%+v", g)
	}
	if !strings.Contains(strings.Join(a.Warnings, "\n"), "NOT ALL WAS SEEN") {
		t.Errorf("%q", a.Warnings)
	}
}

func TestEmpty(t *testing.T) {
	s := redisproc.ForTest(t)
	client := opened(t, s.URL())
	a, err := Redis(t.Context(), client, options())
	if err != nil || len(a.Groups) != 0 || a.Total.Saving.Estimate != 0 || len(a.Next) != 0 {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestLimits: no more is read than is allowed, and what is not allowed is done without.
func TestLimits(t *testing.T) {
	t.Parallel()
	s := redisproc.ForTest(t)
	ctx := t.Context()
	client := opened(t, s.URL())
	fill(t, client, 600)
	o := options()
	o.MaxBytes = 20_000
	a, err := Redis(ctx, client, o)
	if err != nil {
		t.Fatal(err)
	}
	// A page of values may go beyond it.
	if a.Scan.BytesRead < 20_000 || a.Scan.BytesRead > 300_000 || a.Scan.Seen != 3601 || !strings.Contains(strings.Join(a.Warnings, "\n"), "--max-bytes") {
		t.Errorf("%+v, %q", a.Scan, a.Warnings)
	}
	o = options()
	o.Match, o.Groups = []string{"user:*", "cart:1*"}, []string{"cart:11*"}
	if a, err = Redis(ctx, client, o); err != nil {
		t.Fatal(err)
	}
	if g := groupOf(t, a, "cart:11*", Hash); g.Keys != 11 || a.Scan.Seen != 600+111 {
		t.Errorf("%+v, %+v", g, a.Scan)
	}
	o = options()
	o.Budget = time.Nanosecond
	o.Match = []string{"user:*"}
	if a, err = Redis(ctx, client, o); err != nil {
		t.Fatal(err)
	}
	if g := groupOf(t, a, "user:*:profile", String); g.Chosen >= 0 || !strings.Contains(g.Why, "within 1ns") {
		t.Errorf("%d, %q", g.Chosen, g.Why)
	}
	if err := client.Do(ctx, "ACL", "SETUSER", "blind", "on", ">secret", "%R~*", "+@read", "+info", "+ping", "-memory").Err(); err != nil {
		t.Fatal(err)
	}
	blind := opened(t, strings.Replace(s.URL(), "redis://", "redis://blind:secret@", 1))
	if a, err = Redis(ctx, blind, options()); err != nil {
		t.Fatal(err)
	}
	if g := groupOf(t, a, "user:*:profile", String); a.Model != nil || g.Chosen < 0 || !strings.Contains(strings.Join(a.Warnings, "\n"), "MEMORY USAGE") {
		t.Errorf("%+v, %d, %q", a.Model, g.Chosen, a.Warnings)
	}
}

func TestValues(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var values [][]byte
	for i := range 300 {
		values = append(values, []byte(profile(rng, i)))
	}
	o := options()
	o.Price = 10
	a, err := Values(t.Context(), []Set{{"profiles", "p.ndjson", values, 3_000_000}, {"few", "f.ndjson", values[:3], 3}}, o)
	if err != nil {
		t.Fatal(err)
	}
	g := groupOf(t, a, "profiles", String)
	if g.Keys != 3_000_000 || g.Chosen < 0 || g.Month.Estimate <= 0 || g.Saving.Low >= g.Saving.Estimate || g.Saving.High <= g.Saving.Estimate || a.Server != nil {
		t.Errorf("%+v", g)
	}
	// A GiB at 10 USD.
	if want := g.Saving.Estimate / (1 << 30) * 10; math.Abs(g.Month.Estimate-want) > 1e-9 {
		t.Errorf("%v USD, want %v", g.Month.Estimate, want)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if a, err := Values(cancelled, []Set{{"profiles", "p.ndjson", values, 300}}, o); !errors.Is(err, context.Canceled) || a == nil || a.Groups[0].Chosen >= 0 {
		t.Errorf("%v", err)
	}
}

// store stores keys by one pipeline.
func store(t *testing.T, client redis.UniversalClient, add func(p redis.Pipeliner)) {
	t.Helper()
	if _, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		add(p)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestOddKeySpaces: what a review found to be answered wrongly.
func TestOddKeySpaces(t *testing.T) {
	ctx := t.Context()
	for name, c := range map[string]struct {
		fill  func(p redis.Pipeliner, rng *rand.Rand)
		set   func(o *Options)
		check func(t *testing.T, a *Advice)
	}{
		"one large hash": {
			fill: func(p redis.Pipeliner, rng *rand.Rand) {
				for i := range 3000 {
					p.HSet(ctx, "users", fmt.Sprint("user:", i), profile(rng, i))
				}
			},
			check: func(t *testing.T, a *Advice) {
				g := a.Groups[0]
				if g.Type != Hash || g.Keys != 1 || g.Fields != 3000 || g.Chosen < 0 || g.Options[g.Chosen].Dictionary == 0 || g.Sampled < 200 || g.Saving.Low >= g.Saving.High {
					t.Errorf("%+v", g)
				}
				if off := float64(a.Model.Modelled)/float64(a.Model.Measured) - 1; math.Abs(off) > 0.03 {
					t.Errorf("the model is %.1f%% off", 100*off)
				}
			},
		},
		"names that are too long to be kept": {
			fill: func(p redis.Pipeliner, rng *rand.Rand) {
				for i := range 100 {
					p.Set(ctx, strings.Repeat("x", maxName)+fmt.Sprint(i), "value", 0)
					p.Set(ctx, fmt.Sprint("user:", i), profile(rng, i), 0)
				}
			},
			check: func(t *testing.T, a *Advice) {
				if len(a.Groups) != 1 || a.Scan.Seen != 200 || a.Scan.LookedAt != 100 || !strings.Contains(strings.Join(a.Warnings, "\n"), "not looked at: 100") {
					t.Errorf("%d groups, %+v, %q", len(a.Groups), a.Scan, a.Warnings)
				}
			},
		},
		"many lists": {
			fill: func(p redis.Pipeliner, rng *rand.Rand) {
				for g := range 50 {
					for i := range 20 {
						p.RPush(ctx, fmt.Sprintf("list%c%c:%d", 'a'+g/10, 'a'+g%10, i), profile(rng, i), profile(rng, i))
					}
				}
				for i := range 300 {
					p.Set(ctx, fmt.Sprint("user:", i), profile(rng, i), 0)
				}
			},
			check: func(t *testing.T, a *Advice) {
				if g := groupOf(t, a, "user:*", String); g.Chosen < 0 || g.Options[g.Chosen].Dictionary == 0 {
					t.Errorf("%+v", g)
				}
			},
		},
		"what is too large to be packed stays": {
			fill: func(p redis.Pipeliner, rng *rand.Rand) {
				for i := range 100 {
					p.HSet(ctx, fmt.Sprint("h:", i), "text", profile(rng, i), "more", profile(rng, i))
				}
				blob := noise(rng, 600<<10)
				for i := range 10 {
					p.HSet(ctx, fmt.Sprint("h:", 100+i), "blob", blob)
				}
			},
			check: func(t *testing.T, a *Advice) {
				if g := groupOf(t, a, "h:*", Hash); g.Now < 10*600<<10 || g.Saving.Estimate > 100<<10 {
					t.Errorf("%d now, %+v", g.Now, g.Saving)
				}
			},
		},
		"hashes and the bytes that are read": {
			fill: func(p redis.Pipeliner, rng *rand.Rand) {
				for i := range 300 {
					for j := range 60 {
						p.HSet(ctx, fmt.Sprint("h:", i), fmt.Sprint(j), strings.Repeat("x", 2000))
					}
				}
			},
			set: func(o *Options) { o.MaxBytes = 1 << 20 },
			check: func(t *testing.T, a *Advice) {
				// A page may be under way; all of them have 36 MB.
				if a.Scan.BytesRead < 1<<20 || a.Scan.BytesRead > 32<<20 {
					t.Errorf("%d bytes read", a.Scan.BytesRead)
				}
				if g := groupOf(t, a, "h:*", Hash); g.Keys != 300 || math.Abs(float64(g.Now)/float64(300*60*2100)-1) > 0.1 {
					t.Errorf("%d keys, %d bytes", g.Keys, g.Now)
				}
			},
		},
		"a pattern that catches others' keys": {
			fill: func(p redis.Pipeliner, rng *rand.Rand) {
				for i := range 400 {
					p.Set(ctx, fmt.Sprint("user:", i), profile(rng, i), 0)
					p.Set(ctx, fmt.Sprintf("user:%d:note", i), strings.Repeat("x", 20), 0)
				}
			},
			check: func(t *testing.T, a *Advice) {
				if !strings.Contains(a.Next[0].What, "BEWARE: the pattern user:* catches keys of user:*:note as well") {
					t.Errorf("%+v", a.Next[0])
				}
			},
		},
		"a pattern that catches all keys saves most": {
			fill: func(p redis.Pipeliner, rng *rand.Rand) {
				for i := range 1000 {
					p.Set(ctx, fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", rng.Uint32(), rng.IntN(1<<16), rng.IntN(1<<16), rng.IntN(1<<16), rng.Int64N(1<<48)), profile(rng, i), 0)
					if i < 300 {
						p.Set(ctx, fmt.Sprint("page:", i), profile(rng, i), 0)
					}
				}
			},
			check: func(t *testing.T, a *Advice) {
				for _, want := range []string{"Begin with page:*, which saves most of those whose pattern is only theirs", "BEWARE: the pattern * catches keys of page:* as well"} {
					if !strings.Contains(a.Next[0].What, want) {
						t.Errorf("%q: %+v", want, a.Next[0])
					}
				}
			},
		},
		"names that are no text": {
			fill: func(p redis.Pipeliner, rng *rand.Rand) {
				for i := range 100 {
					p.Set(ctx, fmt.Sprintf("it's $(x) \x1b[31m\u009b\u202e:%d", i), profile(rng, i), 0)
				}
			},
			check: func(t *testing.T, a *Advice) {
				code := a.Next[0].Code
				for _, c := range []string{"\x1b", "\u009b", "\u202e"} {
					if strings.Contains(code, c) {
						t.Errorf("%q", code)
					}
				}
				words := strings.SplitN(code, "--match ", 2)[1]
				words = words[:strings.Index(words, " --compress")]
				out, err := exec.Command("bash", "-c", "printf %s "+words).Output()
				if err != nil || string(out) != a.Groups[0].Match {
					t.Errorf("%s is %q for a shell, %v; want %q", words, out, err, a.Groups[0].Match)
				}
			},
		},
		"a key that may not be read": {
			fill: func(p redis.Pipeliner, rng *rand.Rand) {
				for i := range 300 {
					p.Set(ctx, fmt.Sprint("user:", i), profile(rng, i), 0)
					p.Set(ctx, fmt.Sprint("hidden:", i), profile(rng, i), 0)
				}
				p.Do(ctx, "ACL", "SETUSER", "part", "on", ">secret", "%R~user:*", "%R~bale:advise:*", "+@read", "+info", "+ping")
			},
			set: func(o *Options) { o.URL = "part" },
			check: func(t *testing.T, a *Advice) {
				if g := groupOf(t, a, "user:*", String); g.Chosen < 0 || g.Keys != 300 {
					t.Errorf("%+v", g)
				}
				if warnings := strings.Join(a.Warnings, "\n"); !strings.Contains(warnings, "did not tell of 300 of the keys") || strings.Contains(warnings, "hidden:1") {
					t.Errorf("%q", warnings)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := redisproc.ForTest(t)
			client := opened(t, s.URL())
			store(t, client, func(p redis.Pipeliner) { c.fill(p, rand.New(rand.NewPCG(1, 2))) })
			o := options()
			if c.set != nil {
				c.set(&o)
			}
			if o.URL == "part" {
				part := opened(t, strings.Replace(s.URL(), "redis://", "redis://part:secret@", 1))
				client = part
			}
			a, err := Redis(ctx, client, o)
			if err != nil {
				t.Fatal(err)
			}
			c.check(t, a)
		})
	}
}

// TestTogetherEnds: the search for groups of one family ends with its context, also while it tries
// none.
func TestTogetherEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var all []*attempt
	for _, name := range []string{"a:x", "a:y"} {
		all = append(all, &attempt{found: &found{name: name, kind: String}, group: Group{Match: name}, chosen: &trial{Option: Option{Dictionary: 1}}})
	}
	all = append(all, &attempt{found: &found{name: "other", kind: String, entries: []*entry{{name: "a:z"}}}})
	if got, err := (&Advice{}).together(ctx, all, &memory{}, &Options{}); !errors.Is(err, context.Canceled) || len(got) != len(all) {
		t.Errorf("%v, %d groups", err, len(got))
	}
}

// TestTogether: groups of one family are one where a common dictionary serves as well, with those
// that are too small for one of their own. They stay apart where they were asked for, and where
// their pattern catches others.
func TestTogether(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redisproc.ForTest(t)
	client := opened(t, s.URL())
	const n = 300
	store(t, client, func(p redis.Pipeliner) {
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range n {
			for _, language := range []string{"de", "en", "fr"} {
				p.Set(ctx, fmt.Sprintf("frag:product:%d:%s", i, language), fmt.Sprintf(`<p lang="%s">%s</p>`, language, profile(rng, i)), 0)
				p.Set(ctx, fmt.Sprintf("asked:%d:%s", i, language), profile(rng, i), 0)
				p.Set(ctx, fmt.Sprintf("caught:%d:%s", i, language), profile(rng, i), 0)
			}
			p.Set(ctx, fmt.Sprintf("caught:%d:count", i), i, 0)
			for _, language := range []string{"de", "en", "it"} {
				if language < "f" {
					p.Set(ctx, fmt.Sprintf("image:%d:%s", i, language), profile(rng, i), 0)
				}
				if language != "it" || i < n/10 {
					p.Set(ctx, fmt.Sprintf("tail:%d:%s", i, language), profile(rng, i), 0)
				}
			}
			p.Set(ctx, fmt.Sprintf("image:%d:file", i), noise(rng, 300), 0)
		}
	})
	o := options()
	o.Groups = []string{"asked:*:de", "asked:*:en", "asked:*:fr"}
	a, err := Redis(ctx, client, o)
	if err != nil {
		t.Fatal(err)
	}
	g := groupOf(t, a, "frag:product:*:*", String)
	if g.Keys != 3*n || g.Chosen < 0 || g.Together == nil || len(g.Together.Groups) != 3 || g.Saving.Estimate < g.Together.Apart-sameWorth*float64(g.Now) {
		t.Errorf("%+v, %+v", g, g.Together)
	}
	i := slices.IndexFunc(a.Warnings, func(w string) bool { return strings.HasPrefix(w, "frag:product:*:* joins ") })
	for _, language := range []string{"de", "en", "fr"} {
		if i < 0 || !strings.Contains(a.Warnings[i], "frag:product:*:"+language) {
			t.Errorf("no word of %s: %q", language, a.Warnings)
		}
	}
	tail := groupOf(t, a, "tail:*:*", String)
	if g := tail; g.Keys != 2*n+n/10 || g.Together == nil || len(g.Together.Groups) != 3 {
		t.Errorf("%+v, %+v", g, g.Together)
	}
	if caught := a.caught(&Group{Name: "*:it", Match: "*:it", Type: String}); !slices.Equal(caught, []string{tail.Name}) {
		t.Errorf("*:it catches the keys of %q", caught)
	}
	for _, name := range []string{"asked:*:de", "caught:*:en", "image:*:de"} {
		if g := groupOf(t, a, name, String); g.Keys != n || g.Together != nil || g.Chosen < 0 {
			t.Errorf("%+v", g)
		}
	}
	saved := 0.0
	for _, g := range a.Groups {
		saved += g.Saving.Estimate
	}
	if math.Abs(saved-a.Total.Saving.Estimate) > 1 {
		t.Errorf("%v saved by groups, %v in all", saved, a.Total.Saving.Estimate)
	}
}

// TestReadsAreThoseOfOthers: what this command reads itself is no reason to expect savings.
func TestReadsAreThoseOfOthers(t *testing.T) {
	t.Parallel()
	s := redisproc.ForTest(t)
	ctx := t.Context()
	client := opened(t, s.URL())
	store(t, client, func(p redis.Pipeliner) {
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range 500 {
			p.Set(ctx, fmt.Sprint("user:", i), profile(rng, i), 0)
			p.HSet(ctx, fmt.Sprint("cart:", i), "a", profile(rng, i))
		}
	})
	for range 3 {
		a, err := Redis(ctx, client, options())
		if err != nil {
			t.Fatal(err)
		}
		if a.Server.Reads != 0 {
			t.Errorf("%v reads a second, and there were none", a.Server.Reads)
		}
	}
}

// TestGivenReplica: on a replica that is given itself, advise takes its own calls for nobody's, and
// says that the steps are for the master.
func TestGivenReplica(t *testing.T) {
	t.Parallel()
	ctx, master := t.Context(), redisproc.ForTest(t)
	fill(t, opened(t, master.URL()), 300)
	host, port, _ := strings.Cut(master.Addr(), ":")
	replica := redisproc.ForTest(t, "--replicaof", host, port)
	client := opened(t, replica.URL())
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if n, err := client.DBSize(ctx).Result(); err == nil && n >= 300 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the replica has not the keys")
		}
	}
	for range 3 {
		a, err := Redis(ctx, client, options())
		must(t, err)
		if s := a.Server; len(s.Watched)+len(s.Unattributed) > 0 || !(s.WatchedSeconds > 0) {
			t.Errorf("in %v s %v, %v: all of them are its own", s.WatchedSeconds, s.Watched, s.Unattributed)
		}
		if !slices.ContainsFunc(a.Warnings, func(w string) bool { return strings.Contains(w, "the URL of its master") }) {
			t.Errorf("warnings: %q", a.Warnings)
		}
	}
}

// TestCommandsAreThoseOfPrograms: advise takes no command of bale's tools for one of a program, and
// counts those of programs while it runs.
func TestCommandsAreThoseOfPrograms(t *testing.T) {
	t.Parallel()
	for name, addr := range singleAndCluster(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			other := opened(t, "redis://"+addr)
			fill(t, other, 300)
			must(t, other.Del(ctx, "bale:dict:groups").Err()) // bale is not in use here
			program := func(o *Options) (*Advice, error) {
				client := opened(t, "redis://"+addr)
				return Redis(ctx, client, *o)
			}
			o := options()
			for range 3 {
				a, err := program(&o)
				if err != nil {
					t.Fatal(err)
				}
				if s := a.Server; len(s.InPlace)+len(s.Watched) > 0 || !(s.WatchedSeconds > 0) {
					t.Errorf("since the start %v, in %v s %v: all of them are its own", s.InPlace, s.WatchedSeconds, s.Watched)
				}
			}
			var once sync.Once
			o.Progress = func(int, int, string) {
				once.Do(func() {
					for i := range 40 {
						other.StrLen(ctx, fmt.Sprintf("user:%d:profile", i))
						other.GetRange(ctx, fmt.Sprintf("user:%d:profile", i), 0, 3)
					}
					other.Append(ctx, "log", "x")
				})
			}
			for _, run := range []string{"with a program beside it", "after that"} {
				a, err := program(&o)
				if err != nil {
					t.Fatal(err)
				}
				want, wantStart := map[string]int64{"strlen": 40, "getrange": 40}, map[string]int64(nil)
				if run == "after that" {
					want, wantStart = nil, map[string]int64{"append": 1}
				}
				if diff := cmp.Diff(want, a.Server.Watched) + cmp.Diff(wantStart, a.Server.InPlace); diff != "" {
					t.Errorf("%s: %s", run, diff)
				}
				if warned := strings.Contains(strings.Join(a.Warnings, "\n"), "Programs have called"); !warned {
					t.Errorf("%s: the warnings are %q", run, a.Warnings)
				}
			}
		})
	}
}

// TestBaleIsNoProgram: what bale calls in programs and tools beside advise is no reason for a
// warning: GetOrLoad's locks, the training and lease of Auto, and a migration. A script of a
// program is.
func TestBaleIsNoProgram(t *testing.T) {
	t.Parallel()
	for name, addr := range singleAndCluster(t) {
		t.Run(name, func(t *testing.T) {
			ctx, url := t.Context(), "redis://"+addr
			other := opened(t, url)
			fill(t, other, 300)
			caches := goredis.NewStore(other)
			cache, err := bale.New(caches, bale.Options[string]{TTL: time.Hour})
			must(t, err)
			defer cache.Close()
			registry, err := dict.NewRegistry(caches, dict.RegistryOptions{Grace: time.Millisecond})
			must(t, err)
			group, err := registry.Open(ctx, "loaded", dict.GroupOptions{Auto: &dict.Auto{Interval: 5 * time.Millisecond, MinValues: 20}})
			must(t, err)
			defer group.Close()
			rng := rand.New(rand.NewPCG(1, 2))
			bale := func() {
				for i := range 40 {
					_, err := cache.GetOrLoad(ctx, fmt.Sprint("loaded:", i), func(context.Context) (string, error) { return profile(rng, i), nil }) // with a lock
					must(t, err)
				}
				for i := 0; !group.Status().Training; i++ { // it has the lease
					group.Packed([]byte(profile(rng, i)), 200)
					time.Sleep(time.Millisecond)
				}
				_, err := migrate.Run(ctx, migrate.Options{Registry: dictregistry.Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{url}, Prefix: dict.DefaultPrefix},
					Settings: migrate.Settings{Match: []string{"user:*"}}, Plan: page.NewSheet(io.Discard, 80)})
				must(t, err)
			}
			advice := func(beside func()) *Advice {
				t.Helper()
				var once sync.Once
				o := options()
				o.Progress = func(int, int, string) { once.Do(beside) }
				a, err := Redis(ctx, opened(t, url), o)
				must(t, err)
				return a
			}
			a := advice(bale)
			if s := a.Server; len(s.InPlace)+len(s.Watched) > 0 || s.Unattributed["strlen"] == 0 || s.Unattributed["evalsha"] != 0 {
				t.Errorf("since the start %v, while it ran %v, not attributed %v", s.InPlace, s.Watched, s.Unattributed)
			}
			if warnings := strings.Join(a.Warnings, "\n"); strings.Contains(warnings, "Programs have called") {
				t.Errorf("%q", a.Warnings)
			}
			if source := adviceSource(a); !strings.Contains(source, "bale calls these itself") {
				t.Errorf("no word of the calls that may be a program's: %q", source)
			}
			a = advice(func() {
				must(t, other.Eval(ctx, "return #redis.call('GET', KEYS[1])", []string{"user:1:profile"}).Err())
			})
			if s := a.Server; s.Unattributed["eval"] != 1 || len(s.Watched) > 0 {
				t.Errorf("with a program's script: %v, not attributed %v", s.Watched, s.Unattributed)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestScriptsOfPrograms: where no script of bale is cached, calls of scripts are those of programs.
func TestScriptsOfPrograms(t *testing.T) {
	calls := func(name string) int64 { return map[string]int64{"evalsha": 7, "strlen": 3}[name] }
	for name, c := range map[string]struct {
		inUse           bool
		scripts         scripts
		watched, unsure map[string]int64
	}{
		"no bale":             {false, scripts{true, 2, 0}, map[string]int64{"evalsha": 7, "strlen": 3}, nil},
		"bale's alone":        {true, scripts{true, 2, 2}, nil, map[string]int64{"strlen": 3}},
		"scripts of both":     {false, scripts{true, 3, 2}, nil, map[string]int64{"evalsha": 7, "strlen": 3}},
		"a program's":         {true, scripts{true, 1, 0}, map[string]int64{"evalsha": 7}, map[string]int64{"strlen": 3}},
		"forbidden, with":     {true, scripts{}, nil, map[string]int64{"evalsha": 7, "strlen": 3}},
		"forbidden, and none": {false, scripts{}, map[string]int64{"evalsha": 7, "strlen": 3}, nil},
	} {
		var s Server
		s.attribute(calls, c.inUse, func() scripts { return c.scripts })
		if diff := cmp.Diff(c.watched, s.Watched) + cmp.Diff(c.unsure, s.Unattributed); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestGoneMeanwhile: a key that goes, or is written, between two questions about it.
func TestGoneMeanwhile(t *testing.T) {
	ctx := context.Background()
	look := func(size int64, start string, value bool) *look {
		l := &look{entry: &entry{name: "k", kind: String}, value: value, size: redis.NewIntCmd(ctx), start: redis.NewStringCmd(ctx)}
		l.size.SetVal(size)
		l.start.SetVal(start)
		return l
	}
	s := &walker{scanner: &scanner{}}
	if s.takeString(look(100, "", true)) {
		t.Error("a key that has gone is there")
	}
	l := look(100, "0123456789", true)
	if !s.takeString(l) || l.entry.size != 10 || l.entry.items[0].size != 10 {
		t.Errorf("%+v", l.entry)
	}
	l = look(10, strings.Repeat("x", 20), true)
	if !s.takeString(l) || l.entry.size != 20 {
		t.Errorf("%+v", l.entry)
	}
	if l = look(0, "", true); !s.takeString(l) || l.entry.items != nil {
		t.Errorf("%+v", l.entry)
	}
}

func TestPatternsAreChecked(t *testing.T) {
	s := redisproc.ForTest(t)
	client := opened(t, s.URL())
	for _, p := range []string{"a\\", "a[", ""} {
		o := options()
		o.Match = []string{"b*", p}
		if _, err := Redis(t.Context(), client, o); !errors.Is(err, cli.ErrUsage) {
			t.Errorf("%q: %v", p, err)
		}
	}
}

// TestServersAtOnce: the keys of all servers are seen. An error of one ends the scan of all.
func TestServersAtOnce(t *testing.T) {
	ctx := t.Context()
	var nodes []keyspace.Node
	for i := range 3 {
		client := redis.NewClient(&redis.Options{Addr: redisproc.ForTest(t).Addr()})
		defer client.Close()
		_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for j := range 100 {
				p.Set(ctx, fmt.Sprintf("user:%d:%d", i, j), strings.Repeat("x", 100), 0)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, keyspace.Node{Client: client, Keys: 100})
	}
	scan := func() (*scanner, error) {
		s := &scanner{options: &Options{MaxBytes: 1 << 20}, limits: newLimits(100, allEntries, allBytes)}
		var err error
		if s.finder, err = keygroup.New(keygroup.Options{}, s.limits.newTally, (*tally).merge); err != nil {
			t.Fatal(err)
		}
		return s, s.walk(ctx, nodes)
	}
	if s, err := scan(); err != nil || s.scan.Seen != 300 || s.scan.LookedAt != 300 || s.scan.BytesRead == 0 {
		t.Errorf("%+v, %v", s.scan, err)
	}
	nodes[1].Client.Close()
	if _, err := scan(); !errors.Is(err, redis.ErrClosed) {
		t.Error(err)
	}
}
