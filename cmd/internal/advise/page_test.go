package advise

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/page/pagetest"
)

const mebibyte = 1 << 20

// options are the options to try for values of this size and gain, as part of a group of now bytes.
func optionsOf(now int64, size, gain, budget float64) (all []Option) {
	for _, o := range []struct {
		setting, encoding string
		dictionary        int
		ratio, pack       float64
	}{
		{"zstd:19", "", 32 << 10, 4.6, 210}, {"zstd:3", "msgpack", 32 << 10, 4.3, 3.3}, {"zstd:9", "", 32 << 10, 4.1, 14}, {"zstd:3", "", 32 << 10, 3.9, 3.2}, {"zstd:1", "", 32 << 10, 3.5, 2.6},
		{"zstd:3", "", 8 << 10, 3.3, 3}, {"s2", "", 32 << 10, 2.9, 1.5}, {"zstd:9", "", 0, 1.45, 31}, {"zstd:3", "", 0, 1.38, 5.1}, {"gzip:6", "", 0, 1.36, 24}, {"zstd:1", "", 0, 1.31, 4.4},
		{"s2", "", 0, 1.08, 0.5}, {"lz4", "", 0, 1.04, 0.62}, {"snappy", "", 0, 1.03, 0.41},
	} {
		ratio := 1 + (o.ratio-1)*gain
		saved := float64(now) * 0.85 * (1 - 1/ratio)
		pack := o.pack * (0.6 + size/1000)
		all = append(all, Option{
			Setting: o.setting, Encoding: o.encoding, Dictionary: o.dictionary, Ratio: ratio, Bytes: now - int64(saved), Saving: Interval{Low: saved * 0.94, Estimate: saved, High: saved * 1.05},
			Later: 0.83 * (1 - 1/ratio), Network: size * (1 - 1/ratio), Pack: Cost{Mean: pack, P50: pack * 0.9, P99: pack * 2.7}, Unpack: Cost{Mean: pack * 0.3, P50: pack * 0.28, P99: pack * 0.9}, InBudget: pack <= budget,
		})
	}
	return all
}

// sizes are the classes of memory around a size, before and after values shrink by ratio.
func sizes(size, ratio float64) (all []Bucket) {
	var before, after float64
	for _, class := range []int64{16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 4096, 8192} {
		near := func(size float64) float64 { return math.Exp(-8 * math.Pow(math.Log(float64(class)/size), 2)) }
		all = append(all, Bucket{Class: class, Before: near(size), After: near(size / ratio)})
		before, after = before+near(size), after+near(size/ratio)
	}
	for i := range all {
		all[i].Before, all[i].After = all[i].Before/before, all[i].After/after
	}
	return all
}

// advice has groups of all kinds.
func advice() *Advice {
	a := &Advice{
		Source: "redis://cache.example:6379/0", Time: time.Date(2026, 3, 14, 9, 26, 53, 0, time.UTC), Budget: 10 * time.Microsecond, Price: 12.5, Seed: 1, Go: "go1.26.8",
		CPU: "AMD EPYC", Cores: 2, Seconds: 94.2,
		Server: &Server{Version: "7.0.15", Cluster: true, Masters: 3, Replica: true, UsedMemory: 13_900 * mebibyte, MaxMemory: 16 << 30, Policy: "allkeys-lru", Hits: 812_345_678, Misses: 91_234_567, Reads: 671.6, Keys: 40_000_000,
			InPlace: map[string]int64{"append": 12, "setrange": 3}, Watched: map[string]int64{"strlen": 345}, WatchedSeconds: 61.7},
		Scan:  Scan{Keys: 14_213_007, Seen: 9_120_412, LookedAt: 81_200, Values: 61_344, BytesRead: 58 * mebibyte, Interrupted: true, Reason: "interrupted", Seconds: 61.7},
		Model: &Model{Keys: 1000, Modelled: 1_093_000, Measured: 1_004_000},
	}
	group := func(name, kind string, keys int64, size, gain float64, chosen int, why string) *Group {
		now := int64(float64(keys) * (size*1.1 + 90))
		g := Group{Name: name, Match: name, Type: kind, Keys: keys, Sampled: 4000, KeyBytes: 21.4, Size: Sizes{Mean: size, P50: int64(size * 0.8), P90: int64(size * 1.6), P99: int64(size * 3), Max: int64(size * 22)},
			TTL: TTL{Part: 0.98, P50: 40_000, P90: 80_000}, Formats: []Format{{Name: "JSON", Part: 0.97}, {Name: "text", Part: 0.03}}, Entropy: 4.9, Common: 0.61, Now: now, Chosen: chosen, Why: why}
		if gain > 0 {
			g.Options = optionsOf(now, size, gain, 10)
		}
		g.Sizes = sizes(size, 1)
		if chosen >= 0 {
			o := g.Options[chosen]
			g.Saving, g.Sizes = o.Saving, sizes(size, o.Ratio)
			price := a.Price / (1 << 30)
			g.Month = Interval{Low: price * o.Saving.Low, Estimate: price * o.Saving.Estimate, High: price * o.Saving.High}
		}
		a.Groups = append(a.Groups, g)
		return &a.Groups[len(a.Groups)-1]
	}
	group("shop:user:*:profile", String, 6_100_000, 452, 1, 3, "")
	group("session:*", String, 2_400_000, 803, 0.7, 3, "some values were written with other serializers")
	h := group("cart:*", Hash, 310_000, 1900, 0.5, 4, "")
	h.Fields, h.TTL = 7.3, TTL{}
	group("page:{*}:html", String, 41_000, 4100, 0.6, 9, "").Samples = []string{"<!DOCTYPE html>\n<p onclick=\"pwned=1\">Hello</p>\u202e", strings.Repeat("long ", 200), "\x00\xffbinary"}
	group(pagetest.Hostile, String, 90_000, 300, 0.8, 3, "")
	group("bin:\x00\xff\xfe\u202e:*", String, 60_000, 250, 0.8, 3, "")
	group("long:"+strings.Repeat("abcdefghi:", 49)+"*", String, 21_000, 410, 0.9, 3, "")
	group("котики:*:фото", String, 9000, 380, 0.9, 6, "")
	group("thumb:*", String, 120_000, 9200, 0.02, -1, "compressed (JPEG) already: the best of 14 settings saves 0.4%").Formats = []Format{{Name: "JPEG", Part: 1}}
	group("counter:*", String, 5_100_000, 6, 0, -1, "too small: 9 values in 10 have 8 bytes or less").Sizes = []Bucket{{Class: 8, Before: 1, After: 1}}
	group("slow:*", String, 44_000, 1200, 0.4, -1, "nothing packs and unpacks a value within 10us")
	out := group("leaderboard:*", "zset", 1200, 880_000, 0, -1, "out of reach: packing is for strings and the values of hashes")
	out.Sampled, out.Sizes, out.Formats, out.Entropy, out.Common, out.Match = 0, nil, nil, 0, 0, ""
	group("feed:*", "list", 300, 21_000, 0, -1, "out of reach: packing is for strings and the values of hashes").Sampled = 0
	finish(a)
	a.Warnings = []string{
		"Interrupted after 9120412 keys of about 14213007: the counts of groups are scaled up to all keys, and rare groups may be missing.",
		"Programs have called APPEND (12 calls). On packed values these fail, or see packed bytes: leave the keys that they work on as they are.",
		"The model of the server's memory is +8.9% off what MEMORY USAGE says of 1,000 keys: the figures may be off by as much.",
		pagetest.Hostile + ": a good part of its 90000 keys are those that the dictionary was trained on.\x1b[2J",
	}
	for i := range 20 {
		a.TopKeys = append(a.TopKeys, Key{Name: fmt.Sprintf("leaderboard:%d", 400+i), Type: "zset", Bytes: int64(9_000_000 - 310_000*i), Group: "leaderboard:*"})
	}
	a.TopKeys[3] = Key{Name: "bin:\x00" + pagetest.Hostile, Type: String, Bytes: 8_000_000, Group: pagetest.Hostile}
	a.Next = []Step{
		{What: "Make a dictionary for shop:user:*:profile.", Code: "bale train --redis redis://cache.example:6379/0 --match 'shop:user:*:profile' --out profile.dict\n"},
		{What: "Read packed values everywhere first, then write them.", Code: "hook, err := goredis.NewHook(packer, goredis.HookOptions{\n\tMatch:    []string{\"shop:user:*:profile\"},\n\tReadOnly: true,\n})\n", Go: true},
		{What: "Look at what it saves after a day.", Code: "bale advise redis://cache.example:6379/0 --match 'shop:user:*:profile' --html after.html"},
		{What: "Tell those who read " + pagetest.Hostile + " with other clients.", Code: "echo '" + pagetest.Hostile + "\u202e'"},
	}
	return a
}

// finish adds the groups up.
func finish(a *Advice) {
	a.Total = Total{CPU: 0.0031, Network: Interval{Low: 201_000, Estimate: 214_000, High: 226_000}}
	for _, g := range a.Groups {
		a.Total.Now += g.Now
		if g.Type != String && g.Type != Hash {
			a.Total.OutReach += g.Now
		}
		for _, s := range []struct {
			into *Interval
			from Interval
		}{{&a.Total.Saving, g.Saving}, {&a.Total.Month, g.Month}} {
			s.into.Low, s.into.Estimate, s.into.High = s.into.Low+s.from.Low, s.into.Estimate+s.from.Estimate, s.into.High+s.from.High
		}
	}
}

// files is the advice for values that are in no server.
func files() *Advice {
	a := advice()
	a.Source, a.Server, a.Model, a.Price, a.TopKeys = "profiles.ndjson", nil, nil, 0, nil
	a.Scan = Scan{Keys: 9000, Seen: 9000, LookedAt: 9000, Values: 4000, BytesRead: 4 * mebibyte, Seconds: 0.31}
	a.Groups = a.Groups[:1]
	finish(a)
	a.Total.Network, a.Total.CPU = Interval{}, 0
	return a
}

// nothing is the advice for a server without keys.
func nothing() *Advice {
	a := advice()
	a.Groups, a.TopKeys, a.Next, a.Warnings, a.Total, a.Scan, a.Server.InPlace, a.Server.Watched, a.Model = nil, nil, nil, nil, Total{}, Scan{}, nil, nil, nil
	return a
}

// unmoved is the advice to do nothing.
func unmoved() *Advice {
	a := advice()
	a.Groups = a.Groups[8:]
	finish(a)
	return a
}

// crowded has n groups, each with a long name and all options.
func crowded(n int) *Advice {
	a := advice()
	template := a.Groups[0]
	a.Groups = nil
	for i := range n {
		g := template
		g.Name = fmt.Sprintf("group:%d:%s", i, strings.Repeat("of:", 160))
		g.Match = g.Name
		g.Now /= int64(i + 1)
		g.Options = optionsOf(g.Now, 452, 1, 10)
		g.Saving, g.Month = g.Options[3].Saving, Interval{}
		if i%5 == 4 {
			g.Chosen, g.Why, g.Saving = -1, fmt.Sprintf("the best of 14 settings saves %.1f%%, which is not worth a change", float64(i)/100), Interval{}
		}
		a.Groups = append(a.Groups, g)
	}
	finish(a)
	return a
}

func adviceHTML(t *testing.T, a *Advice) string {
	t.Helper()
	var w bytes.Buffer
	if err := a.WritePage(&w); err != nil {
		t.Fatal(err)
	}
	return w.String()
}

func TestAdviceHTML(t *testing.T) {
	for golden, a := range map[string]*Advice{"testdata/advice.html": advice(), "testdata/advice-files.html": files(), "testdata/advice-none.html": nothing()} {
		pagetest.Golden(t, golden, 0, adviceHTML(t, a))
	}
}

func TestAdviceHTMLAnswers(t *testing.T) {
	one := unmoved()
	one.Groups = one.Groups[:1]
	all := advice()
	all.Groups = all.Groups[:8]
	for _, c := range []struct {
		advice *Advice
		want   string
	}{
		{advice(), "<h1 id=\"answer\">Packing 8 of the 13 groups of keys would save about 3.7\u00a0GiB of 9.1\u00a0GiB, which is 41%, or $46.41 a month.</h1>"},
		{all, "Packing all 8 groups of keys would save "},
		{files(), "Packing the only group of keys would save "},
		{unmoved(), "Leave it as it is: there is no setting to recommend for any of the 5 groups of keys."},
		{one, "Leave it as it is: there is no setting to recommend for the only group of keys."},
		{nothing(), "There is nothing to say: no keys were found."},
	} {
		got := adviceHTML(t, c.advice)
		if !strings.Contains(got, c.want) {
			t.Errorf("no %q in %q", c.want, regexp.MustCompile("<h1.*</h1>").FindString(got))
		}
		if saves := strings.Contains(c.want, "save"); strings.Contains(got, "<dt>Saved</dt>") != saves {
			t.Errorf("%s: says it what part is saved? %v", c.want, !saves)
		}
	}
}

func TestAdviceHTMLIsClosed(t *testing.T) {
	got := adviceHTML(t, advice())
	pagetest.Closed(t, got)
	for _, want := range []string{`bin:\x00\xff\xfe\u202e:*`, "&lt;script&gt;pwned=1"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s", want)
		}
	}
}

func TestAdviceHTMLIsSmall(t *testing.T) {
	const limit = 300 << 10
	for n, a := range map[int]*Advice{200: crowded(200), 5000: crowded(5000)} {
		got := adviceHTML(t, a)
		t.Logf("%d groups: %d bytes", n, len(got))
		if n == 200 && len(got) > limit {
			t.Errorf("%d bytes, more than %d", len(got), limit)
		}
		if n == 5000 && !strings.Contains(got, "Another 4,500 groups of ") {
			t.Error("it does not say what it leaves out")
		}
	}
}

// TestAdviceHTMLOfAnything: no advice, however odd, panics or draws at no place.
func TestAdviceHTMLOfAnything(t *testing.T) {
	odd := advice()
	odd.Groups[0].Now = 0
	odd.Groups[1].Options[3].Pack.Mean, odd.Groups[1].Options[3].Ratio = 0, 0
	odd.Groups[2].Chosen = 99
	odd.Groups[3].Saving.Estimate = -5000
	odd.Groups[4].Sizes = []Bucket{{Class: 0}, {Class: 1 << 40}}
	odd.Groups[5].Name, odd.Groups[5].Type = "", ""
	odd.Groups[6].Options = odd.Groups[6].Options[3:4]
	odd.Groups[6].Chosen = 0
	odd.Groups[7].Options[6].Pack.Mean = 2e7
	odd.Budget = 0
	for _, a := range []*Advice{odd, {}, {Groups: []Group{{}}}} {
		if got := adviceHTML(t, a); regexp.MustCompile(`"[^"]*(NaN|Inf)|\b(NaN|Inf)\b`).MatchString(strings.Split(got, "<script>")[0]) {
			t.Errorf("a figure that is none: %q", regexp.MustCompile(`.{0,60}\b(NaN|Inf)\b.{0,20}`).FindString(got))
		}
	}
}

// TestEven: the axis of a histogram has even steps, and all of the values.
func TestEven(t *testing.T) {
	var many []Bucket
	for class := int64(100); class < 100_000; class += 100 {
		many = append(many, Bucket{Class: class, Before: 0.001, After: 0.001})
	}
	got := even(many)
	if len(got) > 36 || len(got) < 10 {
		t.Errorf("%d buckets", len(got))
	}
	before := 0.0
	for i, b := range got {
		before += b.Before
		if i > 1 && math.Abs(float64(b.Class)/float64(got[i-1].Class)-float64(got[1].Class)/float64(got[0].Class)) > 0.02 {
			t.Errorf("%d after %d", b.Class, got[i-1].Class)
		}
	}
	if math.Abs(before-0.999) > 1e-9 || got[len(got)-1].Class < 99_900 {
		t.Errorf("%f of the values, up to %d bytes", before, got[len(got)-1].Class)
	}
}

// TestEvenOfFew: sizes with none between them are as far apart as their logarithms.
func TestEvenOfFew(t *testing.T) {
	got := even([]Bucket{{Class: 64, Before: 0.5}, {Class: 512, Before: 0.5}})
	if len(got) != 13 || got[4].Class != 128 || got[12].Class != 512 || got[12].Before != 0.5 || got[5].Before != 0 {
		t.Errorf("%v", got)
	}
}

func TestAdviceFigures(t *testing.T) {
	for got, want := range map[string]string{
		partBounds(Interval{Low: 67, High: 69}, 100): "67% to 69%", partBounds(Interval{Low: 678, High: 682}, 1000): "67.8% to 68.2%",
		bounds(Interval{Low: 1, High: 2}, page.Money, "%s-%s"): "$1.00-$2.00", bounds(Interval{Low: 1, High: 1.001}, page.Money, "%s-%s"): "", settingOf(&Option{Setting: "none", Encoding: "cbor"}): "cbor",
		budgetOf(1500 * time.Nanosecond): "1.5 µs", classLabel(48): "48", classLabel(1536): "1.5K", classLabel(4 << 20): "4M",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestServerName: the tables call a server by its own name.
// TestTotalAddsUp: what the total has and no group is on the page.
func TestTotalAddsUp(t *testing.T) {
	a := &Advice{Groups: []Group{{Name: "a:*", Type: String, Keys: 10, Now: 1 << 20, Chosen: -1, Why: "x"}}}
	a.Total.Now, a.Total.Tables = 1<<20+192<<10, 192<<10
	if !strings.Contains(adviceHTML(t, a), "take another 192.0 KiB of the 1.2 MiB in all") {
		t.Error("the tables are not on the page")
	}
}

// TestBeginWithAFamily: the first step is for a group of several keys, where there is one.
func TestBeginWithAFamily(t *testing.T) {
	option := []Option{{Setting: "zstd:3"}}
	a := &Advice{Server: &Server{}, Groups: []Group{
		{Name: "config", Match: "config", Type: String, Keys: 1, Options: option},
		{Name: "user:*", Match: "user:*", Type: String, Keys: 100, Options: option},
	}}
	a.next(&Options{URL: "redis://h"})
	if !strings.HasPrefix(a.Next[0].What, "Begin with user:*,") {
		t.Error(a.Next[0].What)
	}
	a.Groups = a.Groups[:1]
	if a.next(&Options{URL: "redis://h"}); len(a.Next) == 0 {
		t.Error("no step for a single key")
	}
}

func TestServerNameOfAdvice(t *testing.T) {
	for version, want := range map[string]string{"7.0.15": "Redis 7.0.15", "Valkey 9.1.2": "Valkey 9.1.2"} {
		if got := adviceSource(&Advice{Server: &Server{Version: version}}); !strings.HasPrefix(got, want) {
			t.Errorf("%q does not start with %q", got, want)
		}
	}
}

// TestUnprintedWarnings: paper has the first warnings, and says how many more there are.
func TestUnprintedWarnings(t *testing.T) {
	if !strings.Contains(adviceStyle, fmt.Sprintf(".warnings li:nth-child(n + %d)", printedWarnings+1)) {
		t.Error("page.css hides other warnings than are counted")
	}
	for n, want := range map[int]string{4: "", 7: "and 3 more"} {
		a := &Advice{Warnings: make([]string, n)}
		if got := newAdvicePage(a).Unprinted; got != want {
			t.Errorf("of %d warnings %q", n, got)
		}
	}
}
