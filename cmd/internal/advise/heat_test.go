package advise

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/schematest"
	"github.com/balekv/bale/internal/redisproc"
)

// TestLFUReads counts uses as Redis does (src/evict.c) for half a day, with settings of the server.
func TestLFUReads(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, l := range []lfu{{factor: 10, decay: 1}, {factor: 1, decay: 1}, {factor: 100, decay: 5}} {
		for _, want := range []float64{2, 10} {
			if l.reads(lfuEnd) < want {
				continue
			}
			var estimates []float64
			for range 21 {
				counter, perMinute := int64(lfuInitial), int(60*want)
				for minute := range 12 * 60 {
					if minute%int(l.decay) == 0 {
						counter = max(0, counter-1)
					}
					for range perMinute {
						if rng.Float64() < 1/(float64(max(0, counter-lfuInitial))*l.factor+1) {
							counter = min(lfuEnd, counter+1)
						}
					}
				}
				estimates = append(estimates, l.reads(counter))
			}
			slices.Sort(estimates)
			if got := estimates[10]; got < want/2 || got > 2*want {
				t.Errorf("%+v: %v reads a second, where there were %v", l, got, want)
			}
		}
	}
}

// TestHotKeys: a server with an LFU policy has pages of 300 KB, of which one is read all the time.
func TestHotKeys(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	rng := rand.New(rand.NewPCG(1, 2))
	s := redisproc.ForTest(t, "--maxmemory-policy", "allkeys-lfu")
	admin := opened(t, s.URL())
	page := func(i int) string {
		var b strings.Builder
		for b.Len() < 300_000 {
			b.WriteString(profile(rng, i))
		}
		return b.String()
	}
	const pages = 60
	counters := map[string]int{"page:7": 255, "page:8": 30, "user:3:profile": 100}
	for i := range 500 {
		values := map[string]string{fmt.Sprintf("user:%d:profile", i): profile(rng, i)}
		if i < pages {
			values[fmt.Sprintf("page:%d", i)] = page(i)
		}
		for name, value := range values {
			if err := admin.Set(ctx, name, value, 0).Err(); err != nil {
				t.Fatal(err)
			}
			dump := admin.Dump(ctx, name).Val()
			if err := admin.Do(ctx, "RESTORE", name, 0, dump, "REPLACE", "FREQ", max(counters[name], 1)).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	long := "page:" + strings.Repeat("9", maxName) // is no hot key: the answer would keep its name
	dump := admin.Dump(ctx, "page:7").Val()
	if err := admin.Do(ctx, "RESTORE", long, 0, dump, "FREQ", 255).Err(); err != nil {
		t.Fatal(err)
	}
	user := func(rules ...any) redis.UniversalClient {
		t.Helper()
		reader := []any{"ACL", "SETUSER", "reader", "reset", "on", ">secret", "%R~*", "+@read", "+info", "+ping"}
		if err := admin.Do(ctx, append(reader, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
		return opened(t, strings.Replace(s.URL(), "redis://", "redis://reader:secret@", 1))
	}
	ask := func(c redis.UniversalClient, change func(o *Options)) *Advice {
		t.Helper()
		o := options()
		if change != nil {
			change(&o)
		}
		a, err := Redis(ctx, c, o)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	hot := func(a *Advice) (all []string) {
		for _, w := range a.Warnings {
			if strings.HasPrefix(w, "HOT: ") {
				all = append(all, w)
			}
		}
		return all
	}
	a := ask(user("+config|get"), nil)
	if a.Server.ReadsNow != 0 {
		t.Errorf("%v reads a second, where nobody reads", a.Server.ReadsNow)
	}
	g := groupOf(t, a, "page:*", String)
	if g.Heat == nil || g.Heat.Keys != 2 || len(g.Heat.Hottest) != 2 || g.Heat.Most < g.Heat.Reads {
		t.Fatalf("%+v", g.Heat)
	}
	schematest.Check[Advice](t, schematest.Written(t, a))
	k := g.Heat.Hottest[0]
	want := 2501.0 / 60 // and less with each minute that begins meanwhile, by which the counter falls
	if k.Name != "page:7" || k.Bytes < 300_000 || k.Reads > want+0.1 || k.Reads < want-1 || k.Most < k.Reads {
		t.Errorf("%+v", k)
	}
	want = k.Reads * g.Options[g.Chosen].Unpack.Mean / 1e6
	if k.CPU < 0.9*want || k.CPU > 1.1*want || k.CPU > g.Heat.CPU {
		t.Errorf("unpacking takes %v of a processor, the group %v, want about %v", k.CPU, g.Heat.CPU, want)
	}
	if h := groupOf(t, a, "user:*:profile", String).Heat; h == nil || h.Keys != 1 || h.Most != h.Reads {
		t.Errorf("%+v", h)
	}
	// The processor's speed decides whether that is worth a word: here it is made so.
	for i, group := range a.Groups {
		if group.Heat != nil {
			a.Groups[i].Heat.MostCPU = map[string]float64{"page:*": hotShare, "user:*:profile": 0.9 * hotShare}[group.Name]
		}
	}
	a.Warnings = nil
	a.hotGroups()
	all := hot(a)
	if len(all) != 1 || len(a.Warnings) != 1 || !strings.HasPrefix(all[0], "HOT: page:*: 2 keys are read ") ||
		!strings.Contains(all[0], "near.New") || strings.Contains(all[0], "CONFIG GET") {
		t.Errorf("%q", a.Warnings)
	}
	hidden := ask(user(), func(o *Options) { o.HideKeys, o.Match = true, []string{"page:*"} })
	if hidden.lfu == nil || !hidden.lfu.assumed || len(hidden.Groups) != 1 ||
		hidden.Groups[0].Heat.Hottest[0].Name != "hot key 1" {
		t.Errorf("%+v, %+v", hidden.lfu, hidden.Groups)
	}
	hidden.Groups[0].Heat.MostCPU, hidden.Warnings = 1, nil
	hidden.hotGroups()
	if all := hot(hidden); len(all) != 1 || !strings.Contains(all[0], "CONFIG GET") || strings.Contains(all[0], "page:") {
		t.Errorf("%q", hidden.Warnings)
	}
	if err := admin.ConfigSet(ctx, "lfu-decay-time", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if a := ask(user("+config|get"), nil); a.lfu != nil || groupOf(t, a, "page:*", String).Heat != nil {
		t.Error("counters that never fall count")
	}
}

// TestHotKeysUnknown: the answer says what is not known of reads, where it matters: without an LFU
// policy, or when the counters have not followed yet.
func TestHotKeysUnknown(t *testing.T) {
	counted := func(reads float64, ends int64) *heat { return &heat{keys: 1, reads: reads, ends: ends} }
	for name, test := range map[string]struct {
		reads float64
		lfu   *lfu
		heat  *heat
		want  string
	}{
		"few":                   {reads: 100},
		"many":                  {reads: 1000, want: "1,000 reads a second are of: only LFU policies"},
		"counted":               {reads: 1000, lfu: &lfu{}, heat: counted(990, 0)},
		"not counted yet":       {reads: 1000, lfu: &lfu{}, heat: counted(10, 0), want: "990 reads a second are of: the server's LFU counters need"},
		"of a counter's end":    {reads: 1000, lfu: &lfu{}, heat: counted(42, 1)},
		"nothing is hot so far": {reads: 1000, lfu: &lfu{}, want: "1,000 reads a second are of: the server's LFU counters need"},
	} {
		a := &Advice{lfu: test.lfu, Server: &Server{Policy: "noeviction", ReadsNow: test.reads}, Groups: []Group{
			{Name: "page:*", Options: []Option{{Unpack: Cost{Mean: 300}}}},
			{Name: "user:*", Options: []Option{{Unpack: Cost{Mean: 1}}}, heat: test.heat},
			{Name: "left:*", Chosen: -1},
		}}
		a.warm()
		a.hotGroups()
		said := strings.Join(a.Warnings, "\n")
		if !strings.Contains(said, test.want) || (said == "") != (test.want == "") ||
			test.want != "" && !strings.Contains(said, "of page:*, unpacking would take") {
			t.Errorf("%s: %q", name, said)
		}
	}
}

// TestHotKeysOfMasters: the values are read from replicas, and the counters are those of masters.
func TestHotKeysOfMasters(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cluster := redisproc.ClusterForTestWith(t, 2, redisproc.Options{Args: []string{"--maxmemory-policy", "allkeys-lfu"}})
	c := opened(t, "redis://"+cluster.Addrs()[0])
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		if err := c.Set(ctx, fmt.Sprintf("user:%d:profile", i), profile(rng, i), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, master := range cluster.Servers {
		if _, err := cluster.AddReplica(ctx, master); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for range 5000 {
			p.Get(ctx, "user:1:profile")
			p.Get(ctx, "user:2:profile")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	a, err := Redis(ctx, opened(t, "redis://"+cluster.Addrs()[0]), options())
	if err != nil {
		t.Fatal(err)
	}
	if g := groupOf(t, a, "user:*:profile", String); !a.Server.Replica || g.Heat == nil || g.Heat.Keys != 2 {
		t.Errorf("%+v, %+v", a.Server, g.Heat)
	}
}
