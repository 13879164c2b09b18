package advise

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/load"
)

// yardstickTime is what the yardstick takes of a reference processor, an Intel Xeon at 2.6 GHz. All
// times are those of it: what slows a busy machine down slows the yardstick as much as compressors.
const yardstickTime = 120 * time.Microsecond

const (
	timedItems  = 200     // of a group's values
	timedBytes  = 2 << 20 // of them
	timedRounds = 7       // of which the quickest counts

	yardsticks = 3 // in each round
)

// yardstick is work that stays the same, and is of the kind that compressors do: it finds repeats
// in text by a table of hashes, and copies the rest.
type yardstick struct {
	text  []byte
	table []uint32
	out   []byte
	best  time.Duration // that it took
}

func newYardstick() *yardstick {
	const size, bits = 64 << 10, 15
	y := &yardstick{table: make([]uint32, 1<<bits), out: make([]byte, 0, size), best: math.MaxInt64}
	rng := rand.New(rand.NewPCG(1, 1))
	for len(y.text) < size {
		y.text = fmt.Appendf(y.text, `{"id":%d,"name":"user %x","plan":"pro","balance":%d}`, rng.Uint32(), rng.Uint32(), rng.IntN(1e5))
	}
	return y
}

// work does it once, and returns the number of bytes that it wrote.
func (y *yardstick) work() int {
	clear(y.table)
	y.out = y.out[:0]
	copied := 0 // bytes of the text
	for i := 1; i+4 <= len(y.text); {
		word := binary.LittleEndian.Uint32(y.text[i:])
		last := &y.table[word*2654435761>>(32-15)]
		seen := int(*last)
		*last = uint32(i)
		if binary.LittleEndian.Uint32(y.text[seen:]) != word {
			i++
			continue
		}
		n := 4
		for i+n < len(y.text) && y.text[seen+n] == y.text[i+n] {
			n++
		}
		y.out = append(append(y.out, y.text[copied:i]...), byte(n), byte(i-seen), byte((i-seen)>>8))
		i += n
		copied = i
	}
	return len(y.out)
}

func (y *yardstick) measure() {
	start := load.ThreadTime()
	y.work()
	y.best = min(y.best, load.ThreadTime()-start)
}

// microseconds are what a time here is on the reference processor.
func (y *yardstick) microseconds(d time.Duration) float64 {
	return d.Seconds() * 1e6 * float64(yardstickTime) / float64(max(1, y.best))
}

// time measures how long values take to pack and to unpack, in all trials: of each value the
// quickest of several rounds, in each of which all trials and the yardstick have their turn. That
// round was not interrupted.
func (g *groupSample) time(ctx context.Context, trials []*trial) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var watches []*stopwatch
	for _, t := range trials {
		w, err := g.newStopwatch(t)
		if err != nil {
			return err
		}
		defer w.release()
		watches = append(watches, w)
	}
	y := newYardstick()
	for range timedRounds {
		for range yardsticks {
			y.measure()
		}
		for _, w := range watches {
			if err := w.round(ctx); err != nil {
				return err
			}
		}
	}
	g.slowness = float64(y.best) / float64(yardstickTime)
	for i, t := range trials {
		w := watches[i]
		t.Pack, t.Unpack = w.cost(w.pack, y), w.cost(w.unpack, y)
	}
	return nil
}

// stopwatch times a trial.
type stopwatch struct {
	packer       *bale.Packer
	release      func()
	values       [][]byte
	times        []float64 // how many times as large as the timed part each value is
	packed       [][]byte
	back         []byte
	pack, unpack lap
}

// lap is the least time that was measured, for each value.
type lap []time.Duration

func (g *groupSample) newStopwatch(t *trial) (*stopwatch, error) {
	w := &stopwatch{}
	size, whole := 0, 0.0
	for _, any := range []bool{false, true} { // any values, where there are none to estimate on
		for i, p := range g.pieces {
			for j := range p.items {
				it := &p.items[j]
				if g.kept[it] || !any && g.uses[i] != toEstimate || len(w.values) == timedItems || size > timedBytes {
					continue
				}
				v, err := t.value(nil, it)
				if err != nil {
					return nil, err
				}
				size += len(v)
				whole += float64(it.size)
				w.values, w.times = append(w.values, v), append(w.times, it.times())
			}
		}
		if len(w.values) > 0 {
			break
		}
	}
	g.timed = whole / float64(max(1, len(w.values)))
	w.packed = make([][]byte, len(w.values))
	w.pack, w.unpack = newLap(len(w.values)), newLap(len(w.values))
	var err error
	w.packer, w.release, err = t.packer()
	return w, err
}

func newLap(n int) lap {
	l := make(lap, n)
	for i := range l {
		l[i] = math.MaxInt64
	}
	return l
}

// round packs and unpacks all values.
func (w *stopwatch) round(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := w.pack.run(func(i int) (err error) {
		w.packed[i], err = w.packer.Pack(w.packed[i][:0], w.values[i])
		return err
	})
	if err != nil {
		return err
	}
	return w.unpack.run(func(i int) (err error) {
		w.back, err = w.packer.Unpack(ctx, w.back[:0], w.packed[i])
		return err
	})
}

// run does f for all values. The first one is done twice: other trials have taken the caches since,
// and one slow value would lift the mean of all above their P99.
func (l lap) run(f func(i int) error) error {
	if len(l) > 0 {
		if err := f(0); err != nil {
			return err
		}
	}
	last := time.Now() // a thread's own clock takes ten times as long to read; the least times are alike
	for i := range l {
		if err := f(i); err != nil {
			return err
		}
		now := time.Now()
		l[i], last = min(l[i], now.Sub(last)), now
	}
	return nil
}

// cost is a lap on the reference processor. The time for the first part of a value is scaled up to
// the whole.
func (w *stopwatch) cost(l lap, y *yardstick) Cost {
	if len(l) == 0 {
		return Cost{}
	}
	us, sum := make([]float64, len(l)), 0.0
	for i, d := range l {
		us[i] = w.times[i] * y.microseconds(d)
		sum += us[i]
	}
	slices.Sort(us)
	mean := min(sum/float64(len(us)), us[len(us)-1]) // of equal times, the quotient may be a bit more than each
	return Cost{Mean: mean, P50: quantile(us, 0.5), P99: quantile(us, 0.99)}
}
