package advise

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

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

// TestCutValuesAreNamed: a value of which the first part alone was tried is no certain answer.
func TestCutValuesAreNamed(t *testing.T) {
	for _, cut := range []bool{false, true} {
		value := strings.Repeat("the same again, ", headBytes/16)
		if cut {
			value += "!"
		}
		path := filepath.Join(t.TempDir(), "values.txt")
		must(t, os.WriteFile(path, []byte(value+"\n"), 0o600))
		a, err := Run(t.Context(), Source{Files: []string{path}, DB: -1, MaxValue: 1 << 20}, options())
		must(t, err)
		says := strings.Join(a.Warnings, " ") + a.boundsText(a.Total.Saving, a.Total.Now, a.Groups[0].cut())
		if strings.Contains(says, "the first part was tried") != cut || strings.Contains(says, "first 64 KiB of all") != cut {
			t.Errorf("cut %v: %s", cut, says)
		}
	}
}
