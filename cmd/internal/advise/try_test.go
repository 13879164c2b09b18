package advise

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// TestFewFieldsArePacked: a dictionary is charged to the fields that it serves, and not to numbers
// and short ones beside them.
func TestFewFieldsArePacked(t *testing.T) {
	f, m := &found{name: "product:*", kind: Hash, keys: 3000}, &memory{}
	for i := range 100 {
		e := &entry{rank: uint64(i), name: "key", kind: Hash, size: 4, ttl: -1, now: 1000}
		for _, v := range []string{strings.Repeat("text ", 40), "short", "12", strconv.Itoa(1_000_000 + i)} {
			e.items = append(e.items, item{head: []byte(v), size: int64(len(v))})
		}
		f.entries = append(f.entries, e)
	}
	if g := newGroupSample(m, f.entries, f.keys); g.there != 3000 {
		t.Errorf("a dictionary serves %d values", g.there)
	}
}

// TestFreshnessTakesMemory: packed or not, a value of GetOrLoad has the record of its freshness. So
// its memory may be that of a larger class.
func TestFreshnessTakesMemory(t *testing.T) {
	random := make([]byte, 100)
	for i := range random {
		random[i] = byte(rand.N(256))
	}
	for _, v := range []string{strings.Repeat("words ", 20), string(random)} {
		stored := func(fresh int64) float64 {
			e := &entry{name: "key", kind: String, size: int64(len(v)), ttl: -1, items: []item{{head: []byte(v), size: int64(len(v)), fresh: fresh}}}
			g := newGroupSample(&memory{}, []*entry{e}, 1)
			trial, err := g.measure(t.Context(), engine.Setting{Setting: compress.Setting{Algorithm: frame.Zstd}}, built{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return trial.wire[0]
		}
		packed := stored(0) < float64(len(v))
		want := map[bool]float64{true: frame.FreshnessSize, false: 12 + frame.FreshnessSize}[packed]
		if more := stored(12+frame.FreshnessSize) - stored(0); more != want {
			t.Errorf("packed %v: %v bytes more, want %v", packed, more, want)
		}
	}
}

// TestAdvisedDictionariesAreTrained: bale migrate --dict auto makes every dictionary that the
// advice recommends. Several of the groups are near the least gain of dict.Train.
func TestAdvisedDictionariesAreTrained(t *testing.T) {
	advised, refused := 0, 0
	for _, size := range []int{552, 560, 584, 600, 612} {
		rng := rand.New(rand.NewPCG(18, uint64(size)))
		f, m := &found{name: "values", kind: String, keys: 20_000}, &memory{}
		var values [][]byte
		for i := range 200 {
			random := make([]byte, size+rng.IntN(200))
			for j := range random {
				random[j] = byte(rng.Uint32())
			}
			v := fmt.Appendf(nil, "id=%d;session=%d;user=%d;agent=%d;locale=%d;theme=%d;token=%s", i,
				rng.IntN(10), rng.IntN(10), rng.IntN(10), rng.IntN(10), rng.IntN(10), hex.EncodeToString(random))
			e := &entry{rank: uint64(i), name: "key", kind: String, size: int64(len(v)), ttl: -1, items: []item{{head: v, size: int64(len(v))}}}
			e.now = m.string(e, v, e.size)
			f.entries, values = append(f.entries, e), append(values, v)
		}
		o := &Options{Budget: time.Second, Seed: 1}
		a := newAttempt(m, f, o)
		a.how = little
		if err := a.try(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if a.chosen == nil || a.chosen.Dictionary == 0 {
			refused++
			continue
		}
		advised++
		setting, err := compress.Parse(a.chosen.Setting)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dict.Train(t.Context(), values, dict.TrainOptions{Setting: setting, NoTimes: true}); err != nil {
			t.Errorf("%d bytes: %s with a dictionary is advised: %v", size, a.chosen.Setting, err)
		}
	}
	if advised == 0 || refused == 0 {
		t.Errorf("%d groups have a dictionary, %d have none", advised, refused)
	}
}
