package advise

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/keygroup"
	"github.com/balekv/bale/cmd/internal/page"
)

// TestIntervalsHoldTheTruth draws samples of a population that is known, and counts how often the
// interval has its saving in it.
func TestIntervalsHoldTheTruth(t *testing.T) {
	t.Parallel()
	const (
		keys  = 5000
		tries = 200
	)
	for _, sampled := range []int{200, 1000} {
		rng := rand.New(rand.NewPCG(3, uint64(sampled)))
		before, after := make([]float64, keys), make([]float64, keys)
		truth := 0.0
		for i := range keys {
			before[i] = 100 + rng.ExpFloat64()*400 // some large, most small
			after[i] = before[i] * (0.2 + 0.6*rng.Float64())
			truth += before[i] - after[i]
		}
		within := 0
		var width float64
		for try := range tries {
			g := &groupSample{memory: &memory{}}
			tr := &trial{}
			for _, i := range rng.Perm(keys)[:sampled] {
				e := &entry{name: fmt.Sprint(i), now: int64(before[i])}
				g.sizes = append(g.sizes, e)
				g.add(piece{entry: e, before: before[i]})
				tr.after = append(tr.after, after[i])
			}
			g.read = float64(sampled) / keys
			i := interval(newEstimator(g, keys, uint64(try)).saving(tr))
			if i.Low > i.Estimate || i.Estimate > i.High {
				t.Fatalf("%+v", i)
			}
			if i.Low <= truth && truth <= i.High {
				within++
			}
			width += (i.High - i.Low) / truth / tries
		}
		t.Logf("%d of %d keys: %d of %d intervals hold the truth, %.1f%% wide", sampled, keys, within, tries, 100*width)
		// 95% of them should; 200 tries have a standard deviation of 3.
		if within < 180 {
			t.Errorf("%d keys: only %d of %d intervals hold the truth", sampled, within, tries)
		}
		if width > 0.5 {
			t.Errorf("%d keys: intervals are %.0f%% wide", sampled, 100*width)
		}
	}
}

// TestHeavyKeys: the estimate is of all bytes, though one key has most of them, and whatever its
// value is for.
func TestHeavyKeys(t *testing.T) {
	t.Parallel()
	const keys = 2000
	for _, left := range []float64{1, 0.1} { // of the heavy one; of the others it is a half
		for _, sampled := range []int{24, 500, keys} {
			for at := range 8 {
				g, tr, saved := &groupSample{memory: &memory{}}, &trial{}, 0.0
				for i := range sampled {
					e, part := &entry{name: fmt.Sprint(i), kind: String, now: int64(200 + i%100)}, 0.5
					if i == at {
						e.now, part = 3e6, left
					}
					g.sizes = append(g.sizes, e)
					g.add(piece{entry: e, before: float64(e.now)})
					tr.after = append(tr.after, part*float64(e.now))
					saved += (1 - part) * float64(e.now)
				}
				weigh(g.sizes)
				g.read = float64(sampled) / keys
				truth := keys / float64(sampled) * saved
				if i := interval(newEstimator(g, keys, 1).saving(tr)); i.Estimate < 0.95*truth || i.Estimate > 1.05*truth {
					t.Errorf("%.1f left, %d of %d keys, place %d: %+v, want %.0f", left, sampled, keys, at, i, truth)
				}
			}
		}
	}
}

// TestUnreadHeavyKeys: what strings of unusual size save is not promised where they were not read,
// and the interval holds it, whatever the others save.
func TestUnreadHeavyKeys(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		keys, heavy, read, every int     // in all, heavy ones, those of them that were read, and one of how many others
		left, ofHeavy            float64 // after packing
	}{
		"half read":                 {4000, 8, 4, 2, 0.5, 0.1},
		"half read, others as is":   {4000, 8, 4, 2, 1, 0.1},
		"a quarter":                 {16_000, 40, 10, 4, 0.8, 0.1},
		"none":                      {4000, 1, 0, 4, 1, 0.1},
		"none, and it saves none":   {4000, 1, 0, 4, 0.5, 1},
		"half read, they save none": {4000, 8, 4, 2, 0.5, 1},
		"all":                       {4000, 8, 8, 1, 0.5, 0.1},
	} {
		g, tr, truth := &groupSample{memory: &memory{}}, &trial{}, 0.0
		read, light, heavies := 0.0, 0.0, 0
		for i := range c.keys {
			e, left, isRead := &entry{name: fmt.Sprint(i), kind: String, now: int64(200 + i%100)}, c.left, i%c.every == 0
			if i%(c.keys/c.heavy) == 1 && heavies < c.heavy {
				e.now, left, isRead = 1e6, c.ofHeavy, heavies < c.read
				heavies++
			} else if light += float64(e.now); isRead {
				read += float64(e.now)
			}
			e.size = e.now
			g.sizes = append(g.sizes, e)
			if truth += (1 - left) * float64(e.now); isRead {
				g.add(piece{entry: e, items: make([]item, 1), before: float64(e.now), wire: float64(e.now)})
				tr.after = append(tr.after, left*float64(e.now))
			}
		}
		weigh(g.sizes)
		g.read, tr.wire = read/light, tr.after
		e := newEstimator(g, int64(c.keys), 1)
		of := map[string]Interval{"keys": interval(e.saving(tr)), "reads": interval(e.network(tr)).times(float64(c.keys))}
		for what, i := range of {
			if i.Low > 1.001*truth || i.High < 0.999*truth {
				t.Errorf("%s, %s: %+v, and it is %.0f", name, what, i, truth)
			}
			if i.Estimate > 1.001*truth || c.read == c.heavy && i.Estimate < 0.999*truth {
				t.Errorf("%s, %s: %.0f is promised, and it is %.0f", name, what, i.Estimate, truth)
			}
		}
	}
}

// TestLeastBesideUnread: where one string was not read, and saves nothing, the least that others
// save is not above the truth more often than the interval says.
func TestLeastBesideUnread(t *testing.T) {
	t.Parallel()
	const keys, sampled, tries = 1500, 400, 100
	rng := rand.New(rand.NewPCG(3, 4))
	above := 0
	for try := range tries {
		g, tr, truth, read, all := &groupSample{memory: &memory{}}, &trial{}, 0.0, 0.0, 0.0
		for i := range keys {
			now, left := 100+int64(rng.ExpFloat64()*400), 0.1+0.8*rng.Float64()
			e := &entry{name: fmt.Sprint(i), kind: String, now: now}
			truth, all = truth+(1-left)*float64(now), all+float64(now)
			g.sizes = append(g.sizes, e)
			if i < sampled {
				read += float64(now)
				g.add(piece{entry: e, before: float64(now)})
				tr.after = append(tr.after, left*float64(now))
			}
		}
		g.sizes = append(g.sizes, &entry{name: "heavy", kind: String, now: 5e6})
		weigh(g.sizes)
		g.read = read / all
		if interval(newEstimator(g, keys+1, uint64(try)).saving(tr)).Low > truth {
			above++
		}
	}
	if above > 14 { // 5 have a standard deviation of 2.2
		t.Errorf("the least is above the truth in %d of %d tries", above, tries)
	}
}

// TestIntervalsOfUnlikeHashes: a small part of three large hashes was read, and all of the others.
func TestIntervalsOfUnlikeHashes(t *testing.T) {
	t.Parallel()
	const hashes, tries = 43, 100
	rng := rand.New(rand.NewPCG(3, 7))
	within := 0
	for try := range tries {
		g, tr := &groupSample{memory: &memory{}}, &trial{}
		truth, read, there := 0.0, 0.0, 0.0
		for h := range hashes {
			fields, sampled, left := 20, 20, 0.4
			if h%15 == 0 {
				fields, sampled, left = 3000, 150, 0.9
			}
			e, times := &entry{name: fmt.Sprint(h)}, float64(fields)/float64(sampled)
			size := 0.0
			for i := range fields {
				before := 100 + rng.ExpFloat64()*400
				after := before * (left + 0.2*(rng.Float64()-0.5))
				truth += before - after
				if size += before; i < sampled {
					g.add(piece{entry: e, alone: true, times: times, before: times * before})
					tr.after = append(tr.after, times*after)
					read += before
				}
			}
			there += size
			e.now = int64(size)
			g.sizes = append(g.sizes, e)
		}
		g.read = read / there
		if i := interval(newEstimator(g, hashes, uint64(try)).saving(tr)); i.Low <= truth && truth <= i.High {
			within++
		}
	}
	if within < 88 { // 95 have a standard deviation of 2
		t.Errorf("%d of %d intervals hold the truth", within, tries)
	}
}

// TestNoIntervalWhereAllIsKnown: there is nothing to estimate when every key was looked at.
func TestNoIntervalWhereAllIsKnown(t *testing.T) {
	g := &groupSample{memory: &memory{}}
	tr := &trial{}
	for i := range 100 {
		e := &entry{name: fmt.Sprint(i), now: int64(100 + i)}
		g.sizes = append(g.sizes, e)
		g.add(piece{entry: e, before: float64(e.now)})
		tr.after = append(tr.after, 50)
	}
	g.read = 1
	i := interval(newEstimator(g, 100, 1).saving(tr))
	if i.Low != i.High || i.Estimate < 9949 || i.Estimate > 9951 { // the sum of 100..199 less 50 each
		t.Errorf("%+v", i)
	}
}

func TestQuantile(t *testing.T) {
	for _, c := range []struct {
		of   []int
		q    float64
		want int
	}{{[]int{1}, 0.5, 1}, {[]int{1, 2}, 0.5, 1}, {[]int{1, 2, 3}, 0.5, 2}, {[]int{1, 2, 3}, 0.99, 3}, {[]int{1, 2, 3}, 0, 1}, {[]int{1, 2, 3}, 1, 3}} {
		if got := quantile(c.of, c.q); got != c.want {
			t.Errorf("%v of %v: %d, want %d", c.q, c.of, got, c.want)
		}
	}
}

// tie is a group with settings that save as much: their times are up to a third off, as on a busy
// machine.
func tie(rng *rand.Rand) (*Group, []*trial, *estimator) {
	g := &groupSample{memory: &memory{}}
	trials := []*trial{{rank: 0}, {rank: 3}, {rank: 4}, {rank: 9}}
	for i, saves := range []float64{0.1, 0.49, 0.5, 0.505} {
		us := 30 * (1 + (rng.Float64()-0.5)/1.5)
		trials[i].Setting, trials[i].Pack, trials[i].Unpack = settings[trials[i].rank], Cost{Mean: us}, Cost{Mean: us}
		for range 100 {
			trials[i].after = append(trials[i].after, 1000*(1-saves))
			trials[i].wire = append(trials[i].wire, 1000*(1-saves))
		}
	}
	for i := range 100 {
		e := &entry{name: fmt.Sprint(i), now: 1000}
		g.sizes = append(g.sizes, e)
		g.add(piece{entry: e, before: 1000, wire: 1000})
	}
	return &Group{Now: 100_000, Keys: 100, Formats: []Format{{Name: "JSON", Part: 1}}}, trials, newEstimator(g, 100, 1)
}

// TestNoiseDoesNotChoose: of settings that save as much, the same is recommended whatever the clock
// said.
func TestNoiseDoesNotChoose(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		g, trials, e := tie(rng)
		chosen := choose(g, trials, e, 50*time.Microsecond)
		if g.list(trials, chosen); chosen == nil || g.Options[g.Chosen].Setting != "zstd:1" {
			t.Fatalf("%+v", g)
		}
	}
}

// TestPackedBesideRandom: a group that is packed is called that, though what is left takes long.
func TestPackedBesideRandom(t *testing.T) {
	g, trials, e := tie(rand.New(rand.NewPCG(1, 2)))
	g.Formats = []Format{{Name: "bale", Part: 0.999}, {Name: "random", Part: 0.001}}
	if choose(g, trials, e, time.Nanosecond) != nil || g.Why != alreadyPacked {
		t.Errorf("%+v", g)
	}
}

// TestAmongOthers: keys without a group that save much are named, a few of them.
func TestAmongOthers(t *testing.T) {
	a := Advice{Groups: []Group{{Name: keygroup.Other, Saving: Interval{Estimate: 5 << 20}}, {Name: "a:*", Saving: Interval{Estimate: 9 << 20}}}}
	a.Total.Saving.Estimate = 14 << 20
	for i := range 5 {
		a.TopKeys = append(a.TopKeys, Key{Name: fmt.Sprint("feed:", i), Group: []string{keygroup.Other, "a:*"}[i%2], Bytes: 1 << 20})
	}
	for i := range a.Groups {
		a.amongOthers(&a.Groups[i])
	}
	if len(a.Warnings) != 1 || !strings.Contains(a.Warnings[0], "Its largest keys: feed:0 (1.0 MiB), feed:2 (1.0 MiB), feed:4 (1.0 MiB). To make") {
		t.Errorf("%q", a.Warnings)
	}
}

// TestBudgetOfTimed: the budget is for values of the size that was timed, whatever others have.
func TestBudgetOfTimed(t *testing.T) {
	setting, err := engine.Parse("zstd:3")
	must(t, err)
	var all []*entry
	for i := range 400 {
		v := []byte(strings.Repeat("word ", 100))
		all = append(all, &entry{rank: uint64(i), name: fmt.Sprint(i), kind: String, now: 500, size: 500, items: []item{{head: v, size: 500}}})
	}
	all[0].size, all[7].size, all[7].items = 1e6, 1e6, nil // of one the start was read, and of one nothing
	g := newGroupSample(&memory{}, all, 400)
	w, err := g.newStopwatch(&trial{setting: setting})
	must(t, err)
	defer w.release()
	want := 0.0
	for i, v := range w.values {
		want += w.times[i] * float64(len(v)) / float64(len(w.values))
	}
	if len(w.values) < 50 || g.timed != want {
		t.Errorf("%d values of %v bytes, want %v", len(w.values), g.timed, want)
	}
}

// TestBudgetGrows: a value of 8 KiB may take twice as long as one of 4.
func TestBudgetGrows(t *testing.T) {
	for size, want := range map[float64]time.Duration{100: 25 * time.Microsecond, 4096: 25 * time.Microsecond, 8192: 50 * time.Microsecond} {
		g, trials, e := tie(rand.New(rand.NewPCG(1, 2)))
		for _, tr := range trials {
			tr.Pack.Mean = 40
		}
		e.timed = size
		if chosen := choose(g, trials, e, 25*time.Microsecond); g.Budget != want || (chosen != nil) != (want > 40*time.Microsecond) {
			t.Errorf("%v bytes: %v, %v", size, g.Budget, chosen)
		}
	}
}

// TestNearBudget: a choice that a little more or less time would change says so.
func TestNearBudget(t *testing.T) {
	option := func(setting string, us float64, bytes int64) Option {
		return Option{Setting: setting, Bytes: bytes, Pack: Cost{Mean: us}, InBudget: us <= 50}
	}
	for name, c := range map[string]struct {
		options []Option
		chosen  int
		want    string // of the warnings, "" for none
	}{
		"barely not allowed": {[]Option{option("zstd:9", 55, 30<<20), option("zstd:3", 20, 40<<20)}, 1, "zstd:9 would save 10.0\u00a0MiB more, and takes 55.0\u00a0µs"},
		"barely allowed":     {[]Option{option("zstd:9", 45, 30<<20), option("zstd:3", 20, 40<<20)}, 0, "zstd:9 takes 45.0\u00a0µs for a value, near the budget of 50\u00a0µs. With less, zstd:3 is the next"},
		"far from it":        {[]Option{option("zstd:19", 90, 20<<20), option("zstd:9", 25, 30<<20), option("zstd:3", 20, 40<<20)}, 1, ""},
		"of no worth":        {[]Option{option("zstd:9", 55, 39<<20+1<<19), option("zstd:3", 20, 40<<20)}, 1, ""},
	} {
		a := &Advice{Budget: 50 * time.Microsecond}
		g := &Group{Name: "g", Now: 100 << 20, Budget: a.Budget, Options: c.options, Chosen: c.chosen, Saving: Interval{Estimate: 60 << 20}}
		a.nearBudget(g)
		got := strings.ReplaceAll(strings.Join(a.Warnings, "\n"), " µs", "\u00a0µs")
		if got = strings.ReplaceAll(got, " MiB", "\u00a0MiB"); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestBestOfMany: the estimate of the best of many settings is not better than it is, since it is
// made on other values than the choice.
func TestBestOfMany(t *testing.T) {
	const values, alike, tries = 200, 40, 200
	rng := rand.New(rand.NewPCG(5, 6))
	within := 0
	for range tries {
		g := &groupSample{memory: &memory{}}
		for i := range values {
			e := &entry{name: fmt.Sprint(i), now: 1000}
			g.sizes = append(g.sizes, e)
			g.add(piece{entry: e, before: 1000, wire: 1000})
		}
		g.read = 0.001
		var trials []*trial
		for range alike { // each saves half, of other values
			tr := &trial{}
			for range values {
				tr.after = append(tr.after, 1000*rng.Float64())
				tr.wire = append(tr.wire, 500)
			}
			trials = append(trials, tr)
		}
		e := newEstimator(g, 200_000, 1)
		chosen := trials[0]
		for _, tr := range trials {
			if e.promise(tr) > e.promise(chosen) {
				chosen = tr
			}
		}
		if i := interval(e.saving(chosen)); i.Low <= 100e6 && 100e6 <= i.High {
			within++
		}
	}
	if within < 180 {
		t.Errorf("%d of %d intervals hold the truth", within, tries)
	}
}

// TestYardstickIsFixed: another work would be another unit of time.
func TestYardstickIsFixed(t *testing.T) {
	y := newYardstick()
	if first, again := y.work(), y.work(); first != 23658 || again != first {
		t.Errorf("%d, then %d bytes", first, again)
	}
}

// TestCodeIsCopied: the lines of Go in the text compile as they stand.
func TestCodeIsCopied(t *testing.T) {
	var b bytes.Buffer
	a := &Advice{Next: []Step{{What: "Do it.", Code: "if err != nil {\n\treturn err\n}\n", Go: true}}}
	a.WriteText(page.NewSheet(&b, 0), false)
	if !strings.Contains(b.String(), "   if err != nil {\n   \treturn err\n   }\n") {
		t.Errorf("%q", b.String())
	}
}

// TestBewareConcernsTheSteps: the steps of a group warn of no pattern that has nothing to do with
// its keys.
func TestBewareConcernsTheSteps(t *testing.T) {
	group := func(match string, saving float64, keys ...string) Group {
		return Group{Name: match, Match: match, Type: String, Keys: 9, names: keys, Saving: Interval{Estimate: saving}, Options: []Option{{Setting: "zstd:3"}}}
	}
	a := &Advice{Server: &Server{}, Groups: []Group{group("page:*", 3, "page:1"), group("user:*", 2, "user:1"), group("user:*:note", 1, "user:1:note")}}
	a.next(&Options{URL: "redis://h:1"})
	if what := a.Next[0].What; !strings.HasPrefix(what, "Begin with page:*, which saves most.") || strings.Contains(what, "BEWARE") {
		t.Errorf("%q", what)
	}
	a.Groups = a.Groups[1:]
	a.next(&Options{URL: "redis://h:1"})
	if what := a.Next[0].What; !strings.HasPrefix(what, "Begin with user:*:note") || !strings.Contains(what, "BEWARE: the pattern user:* catches keys of user:*:note as well") {
		t.Errorf("%q", what)
	}
}

// TestStepsStayWithinMatch: groups are not joined to one with keys beyond --match, and steps for
// such keys warn.
func TestStepsStayWithinMatch(t *testing.T) {
	for _, test := range []struct {
		match, pattern string
		beyond         bool
	}{
		{"feed/*", "*", true}, {"feed/*", "feed/xml/*", false}, {"sess{*", "*:v3:*", true}, {"sess{*", "sess{*}:v3:*", false},
		{"*", "*:v3:*", false}, {"user:1*", "user:*", true}, {"a?", "a*", true}, {`cache:\[v2\]:*`, `cache:\[v2\]:*`, false}, {`odd\*`, "odd*", true},
		{`q\?:*`, "q?:*", true}, {"q*", "q?:*", false}, {"q?:*", "q?:*", false}, {"q?:*", "q[ab]:*", false}, {`q\[ab\]*`, "q[ab]*", true},
	} {
		if got := beyond([]string{"other:*", test.match}, test.pattern); got != test.beyond {
			t.Errorf("--match %s, %s: beyond is %v", test.match, test.pattern, got)
		}
		a := &Advice{Server: &Server{}, Groups: []Group{{Name: test.pattern, Match: test.pattern, Type: String, Keys: 9, Options: []Option{{Setting: "zstd:3"}}}}}
		a.next(&Options{URL: "redis://h:1", Match: []string{test.match}})
		if got := strings.Contains(a.Next[0].What, "goes beyond --match"); got != test.beyond {
			t.Errorf("--match %s: %q", test.match, a.Next[0].What)
		}
	}
	packed := &Advice{Source: "r", Server: &Server{}, Groups: []Group{{Name: "user:*", Match: "user:*", Type: String, Chosen: -1, Now: 100,
		Packed: &Packed{Better: &Interval{10, 20, 30}, renewal: "--dict auto"}}}}
	packed.next(&Options{URL: "redis://h:1", Match: []string{"user:1*"}})
	var text bytes.Buffer
	packed.packedTable(page.NewSheet(&text, 0))
	if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), "BEWARE: the pattern user:* goes beyond --match") {
		t.Errorf("to pack anew:\n%s", &text)
	}
	for _, bare := range []bool{false, true} { // whose group is not known
		packed.Groups[0].Packed.bare = bare
		text.Reset()
		packed.packedTable(page.NewSheet(&text, 0))
		if strings.Contains(strings.Join(strings.Fields(text.String()), " "), "add --group with its name") != bare {
			t.Errorf("without a dictionary %v:\n%s", bare, &text)
		}
	}
	part := func(name string) *attempt {
		return &attempt{found: &found{name: name, kind: String}, group: Group{Name: name, Match: name}}
	}
	all := []*attempt{part("feed/xml/google/*"), part("feed/xml/meta/*")}
	for match, want := range map[string]int{"*": 1, "feed/*": 0} {
		if found := families(all, &Options{Match: []string{match}}, func(*attempt) string { return "tried" }); len(found) != want {
			t.Errorf("--match %s: %d families, not %d", match, len(found), want)
		}
	}
}

// TestNamesAreNoPatterns: where the name of a group, as a pattern, is like other keys, the steps
// give the pattern.
func TestNamesAreNoPatterns(t *testing.T) {
	group := func(name, match string) Group {
		return Group{Name: name, Match: match, Type: String, Keys: 9, Options: []Option{{Setting: "zstd:3"}}}
	}
	a := &Advice{Server: &Server{}, Groups: []Group{group("page:*", "page:*"), group("cache:[v2]:*", `cache:\[v2\]:*`), group("user:*", "user:*")}}
	a.next(&Options{URL: "redis://h:1"})
	want := `if you give it as --match and --group. For cache:[v2]:* these are --match 'cache:\[v2\]:*' --group 'cache:\[v2\]:*'. `
	if what := a.Next[0].What; !strings.Contains(what, want) || strings.Contains(what, "For user:*") {
		t.Errorf("%q", what)
	}
}

// TestReadsThatThereAre: no reads move nothing less. Reads are counted since the server's start,
// and the text says when that was.
func TestReadsThatThereAre(t *testing.T) {
	for reads, want := range map[float64]string{0.3: "", 2627: " Reads move 5.0 KiB a second less, at the 2,627 reads a second that the server has had since its start, 40 s ago ("} {
		a := &Advice{Server: &Server{Reads: reads, Hits: 1, up: 40}, Groups: []Group{{Options: []Option{{}}}}, Total: Total{Now: 100, Network: Interval{Estimate: 5120}}}
		if got := adviceTotal(a); !strings.Contains(got, want) || want == "" && strings.Contains(got, "Reads") {
			t.Errorf("%v reads: %q", reads, got)
		}
	}
}
