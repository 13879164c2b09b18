package advise

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
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
