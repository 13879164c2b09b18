package near

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/internal/testvalues"
)

type inner struct {
	Name string
	Tags []string
}

type outer struct {
	ID    int64
	When  time.Time
	In    inner
	More  []inner
	Point *inner
	Any   any
	By    map[string]inner
	Flat  [][4]int32
	Pair  [2]string
	note  string
}

type list struct{ Next *list }

type tree struct{ Children []tree }

// locked is changed under its lock, also while values point to it.
type locked struct {
	mu sync.Mutex
	by map[int]string
}

// row is a value as an ORM makes it: with a pointer to its connections.
type row struct {
	Name string
	from *locked
}

func TestEstimate(t *testing.T) {
	const word = 8 // bytes, as on every machine this is meant for
	const str = 2 * word
	const in = str + 3*word
	long := &list{}
	for range 2 * maxDepth {
		long = &list{long}
	}
	ring := &list{}
	ring.Next = ring
	self := make([]tree, 10)
	for i := range self {
		self[i].Children = self
	}
	for _, test := range []struct {
		name string
		got  int
		want int
	}{
		{"a number", newEstimator[int64]().size("", 1), word},
		{"a time", newEstimator[time.Time]().size("", time.Now()), 3 * word},
		{"a string", newEstimator[string]().size("", "hello"), str + 5},
		{"bytes", newEstimator[[]byte]().size("", make([]byte, 5, 100)), 3*word + 100},
		{"strings", newEstimator[[]string]().size("", []string{"a", "bcd"}), 3*word + 2*str + 4},
		{"nil", newEstimator[*inner]().size("", nil), word},
		{"a pointer", newEstimator[*inner]().size("", &inner{Name: "abc"}), word + in + 3},
		{"an array", newEstimator[[2]string]().size("", [2]string{"a", "bc"}), 2*str + 3},
		{"a map", newEstimator[map[int64]int64]().size("", map[int64]int64{1: 1, 2: 2}), word + 48 + 8*17},
		{"a map of strings", newEstimator[map[string]string]().size("", map[string]string{"a": "bcd"}), word + 48 + 8*33 + 4},
		{"no map", newEstimator[map[string]string]().size("", nil), word},
		{"any", newEstimator[any]().size("", []any{"abc", int64(1), nil}), 2*word + 3*word + 3*2*word + str + 3 + word},
		{"all of it", newEstimator[outer]().size("", outer{
			In: inner{Name: "abc"}, More: []inner{{Tags: []string{"d"}}}, Point: &inner{}, Any: "ef", By: map[string]inner{"g": {Name: "h"}},
			Flat: make([][4]int32, 3), Pair: [2]string{"ij", ""}, note: "klm",
		}), word + 3*word + in + 3*word + word + 2*word + word + 3*word + 2*str + str + 3 + in + str + 1 + in + str + 2 + 48 + 8*(str+in+1) + 1 + 1 + 3*16 + 2 + 3},
		{"many numbers", newEstimator[[]int64]().size("", make([]int64, 2*maxParts)), 3*word + 2*maxParts*word},
		{"too many parts", newEstimator[[]string]().size("", make([]string, 2*maxParts)), tooLarge},
		{"too deep", newEstimator[*list]().size("", long), tooLarge},
		{"a ring", newEstimator[*list]().size("", ring), tooLarge},
		{"in itself", newEstimator[[]tree]().size("", self), tooLarge},
		{"a lock of its own", newEstimator[*locked]().size("", &locked{by: map[int]string{}}), 3*word + 48},
		{"a lock elsewhere", newEstimator[row]().size("", row{from: &locked{}}), tooLarge},
		{"no lock", newEstimator[row]().size("", row{Name: "abc"}), str + word + 3},
		{"a shared lock", newEstimator[[]*sync.RWMutex]().size("", []*sync.RWMutex{{}}), tooLarge},
		{"no room for a lock", newEstimator[[]*[0]sync.Mutex]().size("", []*[0]sync.Mutex{{}}), 4 * word}, // as messages of protocol buffers
	} {
		if test.got != test.want {
			t.Errorf("%s: %d, want %d", test.name, test.got, test.want)
		}
	}
}

// TestEstimateOfShared: what others change under a lock is not looked at. A map that changes
// meanwhile would end the program.
func TestEstimateOfShared(t *testing.T) {
	shared := &locked{by: map[int]string{}}
	done := make(chan struct{})
	var writing sync.WaitGroup
	defer writing.Wait()
	defer close(done)
	writing.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			shared.mu.Lock()
			shared.by[i%100] = "a"
			shared.mu.Unlock()
		}
	})
	for range 10_000 {
		if n := newEstimator[row]().size("", row{from: shared}); n != tooLarge {
			t.Fatalf("%d bytes", n)
		}
	}
}

// TestOverhead: what an entry is counted with beside its key and value is about what it takes.
func TestOverhead(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector takes memory too")
	}
	const n = 20000
	near := newCache(t, newStore(t, redisproc.ForTest(t).Addr()), Options[string]{MaxAge: time.Hour})
	memory := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	before := memory()
	for i := range n {
		key := fmt.Sprintf("a key of some length: %10d", i)
		f := &flight[string]{entry: bale.Entry[string]{Value: strings.Repeat("x", 64)}}
		near.shard(key).flights[want{key, false}] = f
		f.done, f.size = make(chan struct{}), near.weigh(key, f.entry.Value)
		near.finish(want{key, false}, f)
	}
	near.entries.CleanUp()
	used, counted := memory()-before, float64(near.Stats().Bytes)
	t.Logf("an entry takes %.0f bytes, and is counted with %.0f", used/n, counted/n)
	if near.Stats().Entries != n || math.Abs(used/counted-1) > 0.25 {
		t.Errorf("%d entries take %.0f bytes, and are counted with %.0f", n, used, counted)
	}
	runtime.KeepAlive(near)
}

// TestEstimateOfDecoded: what is estimated for a decoded value is about what it takes, whoever
// wrote it.
func TestEstimateOfDecoded(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector takes memory too")
	}
	type small struct {
		A []string
		M map[string]small
		L map[string][20]int64
	}
	many := func(item string, n int) string { return "[" + strings.Repeat(item+",", n-1) + item + "]" }
	for _, test := range []struct{ name, value string }{
		{"elements beyond a slice's length", `[{"A":` + many(`"`+strings.Repeat("a", 1<<16)+`"`, 100) + `,"A":["x"]}]`},
		{"small maps", many(`{"M":{"a":{}}}`, 20_000)},
		{"maps of 15", many(`{"M":{"1":{},"2":{},"3":{},"4":{},"5":{},"6":{},"7":{},"8":{},"9":{},"a":{},"b":{},"c":{},"d":{},"e":{},"f":{}}}`, 2000)},
		{"large elements", many(`{"L":{"a":[1]}}`, 10_000)},
		{"no maps", many(`{"A":["a","b"]}`, 20_000)},
	} {
		memory := func() int {
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			return int(m.HeapAlloc)
		}
		before := memory()
		var v []small
		if err := json.Unmarshal([]byte(test.value), &v); err != nil {
			t.Fatal(err)
		}
		used, is := memory()-before, newEstimator[[]small]().size("", v)
		if float64(used) > 1.25*float64(is) || is > 2*used {
			t.Errorf("%s: %d bytes, and estimated are %d", test.name, used, is)
		}
		runtime.KeepAlive(test.value)
		runtime.KeepAlive(v)
	}
}
