package advise

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/internal/redisproc"
)

// TestLargeFieldsAreNotRead: a hash of small fields and one that is too large to be read stays as
// it is, and the server evicts nothing for its replies.
func TestLargeFieldsAreNotRead(t *testing.T) {
	t.Parallel()
	const (
		hashes  = 3
		large   = 24 << 20
		allowed = 16 << 20
	)
	for name, fields := range map[string]int{"few fields": 199, "many fields": 3000} { // MEMORY USAGE looks at 1,000
		t.Run(name, func(t *testing.T) {
			s := redisproc.ForTest(t, "--maxmemory-policy", "allkeys-lru")
			ctx := t.Context()
			client := opened(t, s.URL())
			store(t, client, func(p redis.Pipeliner) {
				rng := rand.New(rand.NewPCG(1, 2))
				for h := range hashes {
					for i := range fields {
						p.HSet(ctx, fmt.Sprint("user:h", h), fmt.Sprint("f", i), profile(rng, i))
					}
				}
				for i := range 1000 {
					p.Set(ctx, fmt.Sprint("user:", i), profile(rng, i), 0)
				}
			})
			big := strings.Repeat("x", large)
			for h := range hashes {
				if err := client.HSet(ctx, fmt.Sprint("user:h", h), "big", big).Err(); err != nil {
					t.Fatal(err)
				}
			}
			figure := func(section, name string) (n int64) {
				t.Helper()
				info, err := client.InfoMap(ctx, section).Result()
				if err == nil {
					_, err = fmt.Sscan(info[strings.ToUpper(section[:1])+section[1:]][name], &n)
				}
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			sent := figure("stats", "total_net_output_bytes")
			if err := client.ConfigSet(ctx, "maxmemory", fmt.Sprint(figure("memory", "used_memory")+allowed)).Err(); err != nil {
				t.Fatal(err)
			}
			o := options()
			o.Sample = 10000 // all fields
			a, err := Redis(ctx, client, o)
			if err != nil {
				t.Fatal(err)
			}
			if n := figure("stats", "evicted_keys"); n > 0 {
				t.Errorf("%d keys were evicted", n)
			}
			if n := figure("stats", "total_net_output_bytes") - sent; n > allowed {
				t.Errorf("the server sent %d KiB", n>>10)
			}
			for h := range hashes {
				if g := groupOf(t, a, fmt.Sprint("user:h", h), Hash); g.Now < keyspace.LargestElement || g.Saving.Estimate != 0 {
					t.Errorf("%+v", g)
				}
			}
		})
	}
}

// TestHugeAmongSmall: one string that has most of a group's bytes saves what it does itself. Where
// its value was not read, nothing of it is promised.
func TestHugeAmongSmall(t *testing.T) {
	t.Parallel()
	s := redisproc.ForTest(t)
	ctx := t.Context()
	client := opened(t, s.URL())
	rng := rand.New(rand.NewPCG(1, 2))
	const keys = 1500
	store(t, client, func(p redis.Pipeliner) {
		for i := range keys {
			p.Set(ctx, fmt.Sprint("small:", i), profile(rng, i), 0)
		}
	})
	advised := func(sample int) *Advice {
		o := options()
		o.Sample = sample
		a, err := Redis(ctx, client, o)
		must(t, err)
		return a
	}
	alone := advised(keys).Total.Saving.Estimate
	for name, huge := range map[string]string{
		"random": string(noise(rng, 3e6)), "text": strings.Repeat(profile(rng, 1)[:200], 15_000),
		"too large": strings.Repeat(profile(rng, 1)[:200], packedMax/200+1),
	} {
		must(t, client.Set(ctx, fmt.Sprint("small:", keys), huge, 0).Err())
		want := alone
		switch name {
		case "text":
			want += 3e6
		case "too large": // and what the others save is nothing beside it
			want = 0
		}
		if got := advised(10 * keys).Total.Saving; got.Estimate < 0.85*want || got.Estimate > 1.15*want {
			t.Errorf("%s: %+v saved, want %.0f", name, got, want)
		}
		a := advised(400)
		if got := a.Total.Saving; got.Estimate > 1.15*want || got.High < 0.5*want {
			t.Errorf("%s, not read: %+v saved, want %.0f", name, got, want)
		}
		if a.Groups[0].Budget != a.Budget {
			t.Errorf("%s: the others, of some 200 bytes, have a budget of %v", name, a.Groups[0].Budget)
		}
		const unread = "of its memory is in strings of unusual size that were not read (1 of those looked at)"
		if !strings.Contains(strings.Join(a.Warnings, "\n"), unread) {
			t.Errorf("%s: no %q in %q", name, unread, a.Warnings)
		}
	}
}

// TestLargeFieldsAreTried: fields that bale migrate packs are tried. Hashes with larger ones are
// named, and no verdict on others holds for them.
func TestLargeFieldsAreTried(t *testing.T) {
	t.Parallel()
	s := redisproc.ForTest(t)
	ctx := t.Context()
	client := opened(t, s.URL())
	rng := rand.New(rand.NewPCG(1, 2))
	body := func(size int) string {
		var b strings.Builder
		for i := 0; b.Len() < size; i++ {
			b.WriteString(profile(rng, i))
		}
		return b.String()[:size]
	}
	store(t, client, func(p redis.Pipeliner) {
		for i := range 60 {
			p.HSet(ctx, fmt.Sprint("httpcache:", i), "status", "301", "type", "text/html")
			if i%2 == 0 {
				p.HSet(ctx, fmt.Sprint("httpcache:", i), "body", body(800_000))
			}
			p.HSet(ctx, fmt.Sprint("page:", i), "html", body(300_000))
		}
		for i := range 2 {
			p.HSet(ctx, fmt.Sprint("film:", i), "html", body(keyspace.LargestElement+1))
		}
	})
	a, err := Redis(ctx, client, options())
	must(t, err)
	for _, name := range []string{"httpcache:*", "page:*"} {
		if g := groupOf(t, a, name, Hash); g.Saving.Estimate < float64(g.Now)/2 || g.Why != "" {
			t.Errorf("%s: %+v of %d, %s", name, g.Saving, g.Now, g.Why)
		}
	}
	if g := groupOf(t, a, "film:*", Hash); g.Why != "its fields are too large to be read" {
		t.Errorf("%q", g.Why)
	}
	if warnings := strings.Join(a.Warnings, " "); !strings.Contains(warnings, "film:*: 2 of the 2 hashes tried have a field above 8 MiB") || strings.Contains(warnings, "page:*: 6") {
		t.Errorf("%s", warnings)
	}
}

// TestLargeStringsAreNamed: the answer names strings that bale migrate leaves as they are, while
// programs pack them.
func TestLargeStringsAreNamed(t *testing.T) {
	t.Parallel()
	s := redisproc.ForTest(t)
	ctx := t.Context()
	client := opened(t, s.URL())
	hex := make([]byte, 20<<20)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range hex {
		hex[i] = "0123456789abcdef"[rng.IntN(16)]
	}
	for name, value := range map[string]string{
		"packed": string(hex), "plain": strings.Repeat("the same again, ", 33<<16), "fine": strings.Repeat("the same again, ", 20<<16),
	} {
		for i := range 4 {
			must(t, client.Set(ctx, fmt.Sprint(name, ":", i), value, 0).Err())
		}
	}
	a, err := Redis(ctx, client, options())
	must(t, err)
	warnings := strings.Join(a.Warnings, "\n")
	for name, want := range map[string]bool{"packed": true, "plain": true, "fine": false} {
		if g := groupOf(t, a, name+":*", String); g.Saving.Estimate <= 0 {
			t.Errorf("%s: %+v", name, g)
		}
		if strings.Contains(warnings, name+":*: 4 of the 4 strings tried") != want {
			t.Errorf("%s: %s", name, warnings)
		}
	}
}

// TestCutValuesAreNamed: a value of which the first part alone was tried is no certain answer.
func TestCutValuesAreNamed(t *testing.T) {
	for _, cut := range []bool{false, true} {
		value := strings.Repeat("the same again, ", headBytes/16)
		if cut {
			value += "!"
		}
		path := filepath.Join(t.TempDir(), "values.txt")
		must(t, os.WriteFile(path, []byte(value+"\n"), 0o600))
		a, err := Run(t.Context(), Source{Streams: &cli.Streams{}, Files: []string{path}, DB: -1, MaxValue: 1 << 20}, options())
		must(t, err)
		says := strings.Join(a.Warnings, " ") + a.boundsText(a.Total.Saving, a.Total.Now, a.Groups[0].cut())
		if strings.Contains(says, "the first part was tried") != cut || strings.Contains(says, "first 64 KiB of all") != cut {
			t.Errorf("cut %v: %s", cut, says)
		}
	}
}
