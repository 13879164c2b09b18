// Package lab measures end to end what each way to serialize and compress costs and saves. Each
// value is serialized, compressed, SET, GET, decompressed and deserialized, through a real Redis.
//
// [Run] opens what [Options] ask for and measures it, as balebench run does; [Measure] measures a
// matrix of cells. It interleaves the cells in rounds of random order, so that drift of the machine
// hits all cells alike. It compares every value that comes back with the original.
package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/shirou/gopsutil/v4/process"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/latency"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/observe/prom"
	"github.com/balekv/bale/stats"
)

// Config says what to measure.
type Config struct {
	Datasets    []*dataset.Dataset
	Codecs      []string
	Clients     []ClientSetting // goredis if empty
	Compress    []engine.Setting
	Batches     []Batch // one by one if empty
	Concurrency []int

	// Rates are operations a second that are started whether those before have ended or not (an
	// open loop). A closed loop if empty: each caller starts an operation when its last one has
	// ended.
	Rates []float64
	// Sweep has rates found, from a tenth of what the closed loop does to more than that. It
	// excludes Rates.
	Sweep bool

	Mix      Mix
	KeySize  int           // bytes of a key; those that it needs if zero
	Duration time.Duration // to measure each cell for, in all rounds
	Rounds   int
	Seed     uint64 // of the order of cells and values

	// Profiles are the kinds of profiles to take of each cell, of ProfileKinds; ProfileDir is where
	// their files go, nowhere if empty.
	Profiles   []string
	ProfileDir string

	// About is what to say of the run beside what Measure finds out: the commands that repeat it, and
	// its study.
	About outcome.Environment

	// Progress is called before each step, if it is set; Total never changes.
	Progress func(Progress)

	// Observer, if set, follows the run while it goes on.
	Observer Observer

	wrap    func(bale.Store) bale.Store // for tests: a store with faults
	timeout time.Duration               // of a command; for tests another one than opTimeout
}

// Progress is how far a run is.
type Progress struct {
	Done, Total      int // steps: sets to be stored, and turns of cells
	What             string
	Cells, CellsDone int               // done are those that were measured in every round
	Rounds, Round    int               // the round is 0 before the first
	Cell             *outcome.Identity // that is measured next; nil for none
}

// Observer follows a run for a live view. The lab calls its functions one at a time.
type Observer interface {
	// Recorder returns the recorder for all operations of a group: DATASET/TRACK/CODEC/COMPRESS.
	Recorder(group string) stats.Recorder

	// Trained receives the dictionary of a group.
	Trained(group string, t *dict.Training)

	// Pool receives the pool statistics of a client that reports them, and nil when the client
	// closes.
	Pool(client string, pool func() prom.PoolStats)

	// Watch is given, before the first cell, what makes the result as far as it is measured, at any
	// time until Measure returns.
	Watch(result func() *outcome.Run)
}

const (
	memoryKeys   = 10_000           // used_memory is compared over at least so many keys,
	memoryBytes  = 128 << 20        // unless they were more bytes than this
	usageSamples = 500              // keys that MEMORY USAGE is asked for,
	usageStride  = 7919             // so far apart: a prime, so that they have as many values as there are
	clearTimeout = 30 * time.Second // for removing the keys at the end, also after Ctrl-C
	batchKeys    = 100              // keys in a pipeline while filling,
	batchBytes   = 4 << 20          // and bytes
	opTimeout    = 10 * time.Second // for one command; a slower server fails the cell
	maxInFlight  = 256 << 20        // bytes of the values that all callers of a cell have in hand,
	maxValues    = 1_000_000        // and how many they are
)

// run is the state of a Measure.
type run struct {
	Config
	servers     []*Server
	keys        []string
	process     *process.Process
	cores       int
	began       time.Time
	facts       outcome.Environment // known before the first cell
	latency     *latency.Recorder
	done, total int
	timeline    *timeline
	operations  atomic.Int64 // of all cells, for the timeline
	end         context.CancelCauseFunc

	mu           sync.Mutex // of what follows, for it is watched
	cells        []*cell
	rounds       int // whole ones
	dictionaries []outcome.Dictionary
	skipped      []outcome.Skipped
	sweeps       []outcome.Sweep
}

// Measure measures all cells, on one or more servers. A cell that fails, or reads back a different
// value, is in the result with Verified false. The error reports what ended the whole run. If ctx
// ends early, or a server stops answering, Measure returns the error along with a partial result.
// It holds the cells that were measured in every whole round, and in at least one. Without any such
// cell the result is nil.
func Measure(ctx context.Context, servers []*Server, c Config) (result *outcome.Run, err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	r, err := newRun(servers, c)
	if err == nil && c.ProfileDir != "" {
		err = os.MkdirAll(c.ProfileDir, 0o700) // before the measuring, not after it
	}
	if err != nil {
		return nil, err
	}
	r.end = end
	defer func() {
		cleanUp, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTimeout)
		defer cancel()
		for _, s := range servers {
			err = errors.Join(err, s.clear(cleanUp, r.keys), s.closeClients(c.Observer))
		}
	}()
	for _, s := range servers {
		if err := s.dial(ctx, &r.Config); err != nil {
			return nil, err
		}
	}
	variants, err := r.variants(ctx)
	defer func() {
		for _, v := range variants {
			v.close()
		}
	}()
	if err != nil {
		return nil, err
	}
	r.matrix(variants)
	around, known := r.lookAround(ctx)
	r.timeline = r.watchTime()
	defer r.timeline.stop()
	if c.Observer != nil {
		c.Observer.Watch(func() *outcome.Run {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.result(false)
		})
	}
	r.total = r.done + len(variants) + r.steps()
	for _, v := range variants {
		r.step("filling " + v.String())
		if err := r.fill(ctx, v); err != nil {
			if err = r.examine(ctx, r.widest(), err); ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			v.failure.set(err)
		}
	}
	if c.Sweep {
		r.findRates(ctx)
	}
	defer sampling(c.Profiles)()
	rng := rand.New(rand.NewPCG(c.Seed, 0))
	for round := 0; round < c.Rounds && ctx.Err() == nil; round++ {
		for _, i := range rng.Perm(len(r.cells)) {
			r.turn(round, r.cells[i])
			if ctx.Err() == nil {
				r.measure(ctx, r.cells[i], round)
			}
		}
		if ctx.Err() == nil {
			r.mu.Lock()
			r.rounds++
			r.mu.Unlock()
		}
	}
	r.timeline.stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	result = r.result(ctx.Err() == nil)
	if after, ok := r.lookAround(context.WithoutCancel(ctx)); ok && known {
		result.Environment.OthersCPU = others(around, after)
	}
	if err := r.addProfiles(result); err != nil {
		return result, err
	}
	if len(result.Cells) == 0 && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return result, context.Cause(ctx)
}

func (c Config) withDefaults() Config {
	if len(c.Clients) == 0 {
		c.Clients = []ClientSetting{{Name: Clients[0]}}
	}
	c.Batches, c.Rates, c.timeout = orDefault(c.Batches), orDefault(c.Rates), cmp.Or(c.timeout, opTimeout)
	return c
}

func newRun(servers []*Server, c Config) (*run, error) {
	c = c.withDefaults()
	r := &run{Config: c, servers: servers, cores: cores(), began: time.Now()}
	var err error
	if r.process, err = process.NewProcess(int32(os.Getpid())); err != nil {
		return nil, fmt.Errorf("own process: %w", err)
	}
	if r.latency, err = latency.New(latency.Options{Stages: recorded}); err != nil {
		return nil, err
	}
	r.keys, r.facts = r.keysOf(), r.environment()
	return r, nil
}

func (r *run) step(what string) {
	r.tell(what, 0, nil)
	r.done++
}

// turn is the step of a cell.
func (r *run) turn(round int, c *cell) {
	i := c.identity()
	r.tell(fmt.Sprintf("round %d of %d, %v", round+1, r.Rounds, c.variant), round+1, &i)
	r.done++
}

func (r *run) tell(what string, round int, next *outcome.Identity) {
	if r.Progress == nil {
		return
	}
	p := Progress{Done: r.done, Total: r.total, What: what, Cells: len(r.cells), Rounds: r.Rounds, Round: round, Cell: next}
	for _, c := range r.cells {
		if len(c.rounds) == r.Rounds {
			p.CellsDone++
		}
	}
	r.Progress(p)
}

// steps are those of measuring.
func (r *run) steps() int {
	if !r.Sweep {
		return len(r.cells) * r.Rounds
	}
	return len(r.cells) * (1 + len(sweepShares)*r.Rounds)
}

// result is what was measured so far. When a run ends early, or while it goes on, a cell counts
// that was measured in every whole round, and in one at least.
func (r *run) result(complete bool) *outcome.Run {
	rounds := max(1, r.rounds)
	result := &outcome.Run{
		Dictionaries: slices.Clone(r.dictionaries), Skipped: slices.Clone(r.skipped), Timeline: r.timeline.moments(),
		Environment: r.facts,
	}
	e := &result.Environment
	e.Time = time.Now().UTC().Truncate(time.Second)
	e.DurationS, e.Rounds, e.Interrupted = r.Duration.Seconds()*float64(rounds)/float64(r.Rounds), rounds, !complete
	e.Seconds = time.Since(r.began).Seconds()
	places := map[outcome.Identity]int{}
	for _, cell := range r.cells {
		if r.Sweep && cell.rate == 0 && cell.failed() == nil {
			continue // measured for its rates alone
		}
		if complete || len(cell.rounds) >= rounds || cell.failed() != nil {
			places[cell.identity()] = len(result.Cells)
			result.Cells = append(result.Cells, cell.result(r.cores))
		}
	}
	e.CellsLeftOut = len(r.cells) - len(result.Cells)
	for _, s := range r.sweeps {
		if s, ok := knee(s, r.cells, places, result.Cells); ok {
			result.Sweeps = append(result.Sweeps, s)
		}
	}
	return result
}

// load describes an operation and its arrival.
func (r *run) load() string {
	how := "each caller starts an operation when its last one has ended (closed loop)"
	if r.Sweep || r.Rates[0] > 0 {
		how = "operations start at a fixed rate, and latency counts from when each was to start (open loop)"
	}
	return r.Mix.String() + "; " + how
}

// keysOf names the keys of the run. All cells use the same keys, so that the data set in Redis
// stays small, and a value left by another cell shows as a mismatch. Within a cell each caller has
// its own keys. A codec may write a value in more than one way (gob and its maps), and each caller
// must find its own bytes. In a mix all callers share the keys.
func (r *run) keysOf() []string {
	n := 0
	for _, d := range r.Datasets {
		for _, callers := range r.Concurrency {
			for _, b := range r.Batches {
				if (&cell{variant: &variant{data: d}, batch: b, concurrency: callers}).unfit() == "" {
					n = max(n, callers*b.values())
				}
			}
		}
		_, measured := r.halves(d)
		n = max(n, r.keyCount(measured), len(d.Raw))
	}
	keys := make([]string, n+1)
	prefix := fmt.Sprintf("bale:bench:%08x", rand.Uint32()) // not the seed: two runs may share a server
	for i := range keys {
		keys[i] = fmt.Sprintf("%s:%0*d", prefix, max(6, r.KeySize-len(prefix)-1), i)
	}
	return keys
}

// MinKeySize is the shortest key in bytes that a run can be asked for.
const MinKeySize = len("bale:bench:00000000:000000")

// dictKey is the key of a dictionary while the memory is measured: the last one, which no value
// has.
func (r *run) dictKey() string { return r.keys[len(r.keys)-1] }

// keyCount is over how many keys the memory of a set is measured: a multiple of its values.
func (r *run) keyCount(d *dataset.Dataset) int {
	n := max(1, len(d.Raw))
	keys := n * max(1, (memoryKeys+n-1)/n)
	mean := max(1, d.RawBytes()/int64(n))
	return max(1, min(keys, int(memoryBytes/mean)))
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// failure keeps the first error of many goroutines.
type failure struct{ first atomic.Pointer[error] }

func (f *failure) set(err error) { f.first.CompareAndSwap(nil, &err) }

// replace puts another error in the place of the first; none if it is nil. Nobody may call set
// meanwhile.
func (f *failure) replace(err error) {
	f.first.Store(nil)
	if err != nil {
		f.set(err)
	}
}

func (f *failure) get() error {
	if p := f.first.Load(); p != nil {
		return *p
	}
	return nil
}

// errMismatch: a value came back different. errMissing: no value came back.
var (
	errMismatch = errors.New("MISMATCH: a value read back differs from the one written")
	errMissing  = fmt.Errorf("%w: it is not there", errMismatch)
)
