package advise

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/keyspace"
)

func feed(t *tally, keys []string, read int) {
	for _, k := range keys {
		t.seen++
		r := keyspace.Rank(1, k)
		look, value := t.wants(r)
		if !look {
			continue
		}
		e := &entry{rank: r, name: k, kind: String, sampled: value}
		if value {
			e.items, e.read = []item{{head: make([]byte, read)}}, int64(read)
		}
		t.add(e)
	}
}

func names(t *tally, withValues bool) []string {
	t.shrink()
	var all []string
	for _, e := range t.entries {
		if !withValues || e.items != nil {
			all = append(all, e.name)
		}
	}
	return all
}

func numbered(from, to int) []string {
	var keys []string
	for i := from; i < to; i++ {
		keys = append(keys, fmt.Sprintf("user:%d", i))
	}
	return keys
}

// TestSampleIsThatOfTheKeys: whatever their order, how often they come, and in how many groups they
// were at first.
func TestSampleIsThatOfTheKeys(t *testing.T) {
	keys := numbered(0, 20_000)
	whole := newLimits(100, 1<<20, 1<<30).newTally()
	feed(whole, keys, 10)
	want, wantValues := names(whole, false), names(whole, true)
	if len(want) != 400 || len(wantValues) != 100 || !slices.Equal(want[:100], wantValues) {
		t.Fatalf("%d keys, %d values", len(want), len(wantValues))
	}
	again := slices.Concat(keys, keys[:5000])
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
	l := newLimits(100, 1<<20, 1<<30)
	parts := make([]*tally, 7)
	for i := range parts {
		parts[i] = l.newTally()
		feed(parts[i], again[i*len(again)/7:(i+1)*len(again)/7], 10)
	}
	for _, p := range parts[1:] {
		parts[0].merge(p)
	}
	if got := names(parts[0], false); !slices.Equal(got, want) {
		t.Errorf("%d keys, other ones than of the whole", len(got))
	}
	if got := names(parts[0], true); !slices.Equal(got, wantValues) {
		t.Errorf("%d values, other ones than of the whole", len(got))
	}
	bytes := int64(len(strings.Join(want, ""))) + 100*10
	if parts[0].seen != 25_000 || len(l.tallies) != 1 || l.keptEntries != 400 || l.keptBytes != bytes {
		t.Errorf("%d seen, %d tallies, %d entries, %d bytes", parts[0].seen, len(l.tallies), l.keptEntries, l.keptBytes)
	}
}

// TestSampleIsUniform: consecutive names are no closer to one another in it than any.
func TestSampleIsUniform(t *testing.T) {
	tl := newLimits(1000, 1<<20, 1<<30).newTally()
	feed(tl, numbered(0, 100_000), 0)
	sum, n := 0.0, 0
	for _, k := range names(tl, false) {
		var i int
		if _, err := fmt.Sscanf(k, "user:%d", &i); err != nil {
			t.Fatal(err)
		}
		sum, n = sum+float64(i), n+1
	}
	// The mean of 4,000 numbers below 100,000 has a standard error of 456.
	if mean := sum / float64(n); n != 4000 || math.Abs(mean-50_000) > 4*456 {
		t.Errorf("%d keys, in the mean number %.0f", n, mean)
	}
}

func TestSampleIsBounded(t *testing.T) {
	l := newLimits(1000, 20_000, 1<<20)
	var all []*tally
	for g := range 50 {
		all = append(all, l.newTally())
		feed(all[g], numbered(g*10_000, (g+1)*10_000), 100)
		if l.keptEntries > 20_000 || l.keptBytes > 1<<20 {
			t.Fatalf("group %d: %d entries, %d bytes kept", g, l.keptEntries, l.keptBytes)
		}
	}
	for i, tl := range all {
		if n := len(names(tl, true)); n < minValues || n > l.values {
			t.Errorf("group %d has %d values of %d", i, n, l.values)
		}
	}
	var entries int
	var bytes int64
	for _, tl := range all {
		entries += len(tl.entries)
		for _, e := range tl.entries {
			bytes += e.read + int64(len(e.name))
		}
	}
	if entries != l.keptEntries || bytes != l.keptBytes {
		t.Errorf("counted %d entries and %d bytes, there are %d and %d", l.keptEntries, l.keptBytes, entries, bytes)
	}
}

// TestManyGroups: so many groups that their smallest samples are beyond the limits. A sample is in
// order after it was cut to its limits. That must not happen for each further key: with 4,000
// groups it took 86 ms.
func TestManyGroups(t *testing.T) {
	const groups, each = 200, 100
	l := newLimits(4000, 5000, 1<<30)
	var all []*tally
	for range groups {
		all = append(all, l.newTally())
	}
	cut := 0
	for i := range groups * each {
		tl := all[i%groups]
		tl.add(&entry{rank: uint64(groups*each - i), name: "key", kind: String}) // below all before
		if n := len(tl.entries); n > 1 && tl.entries[0].rank < tl.entries[n-1].rank {
			cut++
		}
	}
	if cut > each || l.keptEntries > groups*each*4/5 {
		t.Errorf("cut for %d keys, and %d are kept", cut, l.keptEntries)
	}
}

// TestTinyFieldsAreBounded: the sample counts the memory of fields of a few bytes, which is many
// times their bytes.
func TestTinyFieldsAreBounded(t *testing.T) {
	var pairs []string
	for i := range 512 {
		pairs = append(pairs, fmt.Sprint(i), fmt.Sprint(i%10))
	}
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	l := newLimits(4000, allEntries, allBytes)
	s, tally := &walker{scanner: &scanner{limits: l}}, l.newTally()
	for i := range 6000 {
		e := &entry{name: fmt.Sprint("hash:", i), kind: Hash, rank: keyspace.Rank(1, fmt.Sprint(i)), sampled: true}
		s.addFields(e, pairs)
		tally.add(e)
	}
	if took := heap() - before; took > 3*allBytes/2 {
		t.Errorf("the sample takes %d MiB", took>>20)
	}
	runtime.KeepAlive(tally)
}

// TestEvenWithoutNumbers: what is not trained on takes no share of it.
func TestEvenWithoutNumbers(t *testing.T) {
	var g groupSample
	g.add(piece{items: []item{{size: 500}}, times: 10})
	g.add(piece{items: []item{{size: 5}}, times: 600_000})
	if even := g.even(g.packable); !even(0) {
		t.Error("numbers of a large hash leave nothing of the others")
	}
}
