// Package lab measures what each way to serialize and compress costs and saves, end to end: a
// value is serialized, compressed, SET, GET, decompressed and deserialized, through a real Redis.
//
// [Run] measures a matrix of cells. Cells are interleaved in rounds of random order, so that whatever drifts
// hits all alike, and every value that comes back is compared with the one that went in.
package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/shirou/gopsutil/v4/process"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/bale/internal/dataset"
	"github.com/balekv/bale/cmd/bale/internal/engine"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// Config says what to measure.
type Config struct {
	Datasets    []*dataset.Dataset
	Codecs      []string
	Clients     []ClientSetting // goredis if empty
	Compress    []engine.Setting
	Concurrency []int
	Duration    time.Duration // to measure each cell for, in all rounds
	Rounds      int
	Seed        uint64 // of the order of cells and values

	// Progress is called before each step, if it is set; total never changes.
	Progress func(done, total int, what string)

	wrap func(bale.Store) bale.Store // for tests: a store with faults
}

const (
	warmUpShare  = 5                    // a fifth of a round's time is run before measuring starts, at least
	memoryKeys   = 10_000               // used_memory is compared over at least so many keys,
	memoryBytes  = 128 << 20            // unless they were more bytes than this
	usageSamples = 500                  // keys that MEMORY USAGE is asked for
	rssInterval  = 5 * time.Millisecond // between looks at the resident set
	clearTimeout = 30 * time.Second     // for removing the keys at the end, also after Ctrl-C
	batchKeys    = 100                  // keys in a pipeline while filling,
	batchBytes   = 4 << 20              // and bytes
	shards       = 16                   // histograms that callers share, to spread their locks
	opTimeout    = 10 * time.Second     // for one command; a slower server fails the cell
)

// variant is what determines the stored bytes: all that is measured once for several cells.
type variant struct {
	data       *dataset.Dataset
	codec      string
	setting    engine.Setting
	dict       *dict.Dictionary
	report     int // of dict, among those of the run
	coder      dataset.Coder
	packer     *bale.Packer
	compressor compress.Compressor
	plain      int64
	stored     int64
	keys       int
	perKey     *float64
	usageKey   *float64
	failure    failure
}

// cell is a variant at a concurrency.
type cell struct {
	*variant
	client      *client
	concurrency int
	latency     *histograms
	rates       []float64
	operations  int64
	allocs      uint64
	allocBytes  uint64
	peakRSS     int64
	failure     failure
}

// failure keeps the first error of many goroutines.
type failure struct{ first atomic.Pointer[error] }

func (f *failure) set(err error) { f.first.CompareAndSwap(nil, &err) }

func (f *failure) get() error {
	if p := f.first.Load(); p != nil {
		return *p
	}
	return nil
}

// errMismatch says that a value came back different.
var errMismatch = errors.New("MISMATCH: a value read back differs from the one written")

// run is the state of a Run.
type run struct {
	Config
	server  *Server
	clients []*client
	keys    []string
	process *process.Process
	shards  [shards]struct {
		sync.Mutex
		*histograms
	}
	done, total int

	dictionaries []Dictionary
}

// Run measures all cells. A cell that fails, or has one value come back different, is in the result with
// Verified false; the error is for what ends the whole run. When ctx ends before, the
// result holds the cells that were measured in every whole round, and in one at least, along with ctx's error; it is nil where
// there is no such cell.
func Run(ctx context.Context, server *Server, c Config) (result *Result, err error) {
	r := &run{Config: c, server: server}
	if r.process, err = process.NewProcess(int32(os.Getpid())); err != nil {
		return nil, fmt.Errorf("own process: %w", err)
	}
	for i := range r.shards {
		r.shards[i].histograms = newHistograms()
	}
	if len(r.Clients) == 0 {
		r.Clients = []ClientSetting{{Name: Clients[0]}}
	}
	if err := r.dialAll(*server.Options, slices.Max(c.Concurrency)); err != nil {
		return nil, errors.Join(err, r.closeAll())
	}
	r.keys = r.keysOf()
	defer func() {
		cleanUp, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTimeout)
		defer cancel()
		err = errors.Join(err, server.clear(cleanUp, r.keys), r.closeAll())
	}()

	variants, cells, err := r.matrix(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		for _, v := range variants {
			v.packer.Close()
			v.compressor.Close()
		}
	}()
	r.total = r.done + len(variants) + len(cells)*c.Rounds
	for _, v := range variants {
		r.step("filling " + v.String())
		if err := r.fill(ctx, v); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			v.failure.set(err)
		}
	}
	rng := rand.New(rand.NewPCG(c.Seed, 0))
	rounds := 0
	for ; rounds < c.Rounds && ctx.Err() == nil; rounds++ {
		for _, i := range rng.Perm(len(cells)) {
			r.step(fmt.Sprintf("round %d of %d", rounds+1, c.Rounds))
			if ctx.Err() == nil {
				r.measure(ctx, cells[i], uint64(rounds))
			}
		}
	}
	if ctx.Err() != nil {
		rounds = max(1, rounds-1)
	}
	result = &Result{Dictionaries: r.dictionaries, Environment: Environment{
		Seed: c.Seed, DurationS: c.Duration.Seconds() * float64(rounds) / float64(c.Rounds), Rounds: rounds, Interrupted: ctx.Err() != nil,
	}}
	for _, cell := range cells {
		if ctx.Err() == nil || len(cell.rates) >= rounds || cell.failed() != nil {
			result.Cells = append(result.Cells, cell.result())
		}
	}
	result.Environment.CellsLeftOut = len(cells) - len(result.Cells)
	if len(result.Cells) == 0 && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return result, ctx.Err()
}

func (r *run) step(what string) {
	if r.Progress != nil {
		r.Progress(r.done, r.total, what)
	}
	r.done++
}

// keysOf names the keys of the run. All cells use the same ones, so that the data set in
// Redis stays small, and a value of another cell that stayed behind would be found as a mismatch. Within a cell
// each caller has keys of its own, for a codec may write a value in more than one way (gob and its maps), and
// each caller must find its own bytes.
func (r *run) keysOf() []string {
	n := slices.Max(r.Concurrency)
	for _, d := range r.Datasets {
		n = max(n, r.keyCount(d), len(d.Raw))
	}
	keys := make([]string, n+1)
	prefix := fmt.Sprintf("bale:bench:%08x", rand.Uint32()) // not the seed: two runs may share a server
	for i := range keys {
		keys[i] = fmt.Sprintf("%s:%06d", prefix, i)
	}
	return keys
}

// dictKey is the key of a dictionary while the memory is measured: the last one, which no value has.
func (r *run) dictKey() string { return r.keys[len(r.keys)-1] }

// keyCount is over how many keys the memory of a set is measured: a multiple of its values.
func (r *run) keyCount(d *dataset.Dataset) int {
	n := len(d.Raw)
	keys := n * max(1, (memoryKeys+n-1)/n)
	mean := max(1, d.RawBytes()/int64(n))
	return max(1, min(keys, int(memoryBytes/mean)))
}

// matrix makes the variants and cells. Where a setting asks for a dictionary that is trained on one half of the values, and
// all settings are measured on the other.
func (r *run) matrix(ctx context.Context) ([]*variant, []*cell, error) {
	r.total = len(r.Datasets) * len(r.Codecs) * len(r.Compress) * (1 + len(r.Clients)*len(r.Concurrency)*r.Rounds)
	var variants []*variant
	var cells []*cell
	for _, d := range r.Datasets {
		train, measured := d, d
		if slices.ContainsFunc(r.Compress, func(s engine.Setting) bool { return s.Dict }) {
			train, measured = d.Halves()
			if len(measured.Raw) == 0 {
				return nil, nil, fmt.Errorf("%s has a single value, and none is left to train a dictionary on", d.Name)
			}
		}
		for _, codec := range r.Codecs {
			coder, err := measured.Coder(codec)
			if err != nil {
				return nil, nil, err
			}
			for _, setting := range r.Compress {
				v := &variant{data: measured, codec: codec, setting: setting, coder: coder, keys: r.keyCount(measured)}
				if setting.Dict {
					if err := r.train(ctx, v, train); err != nil {
						return nil, nil, err
					}
					if v.dict == nil {
						continue
					}
				}
				if v.compressor, err = setting.New(v.dict); err != nil {
					return nil, nil, err
				}
				if v.packer, err = bale.NewPacker(bale.PackerOptions{Compressor: v.compressor, Engine: setting.Engine()}); err != nil {
					return nil, nil, err
				}
				variants = append(variants, v)
				for _, client := range r.clients {
					for _, n := range r.Concurrency {
						cells = append(cells, &cell{variant: v, client: client, concurrency: n, latency: newHistograms()})
					}
				}
			}
		}
	}
	return variants, cells, nil
}

// train trains the dictionary of a variant, if one pays.
func (r *run) train(ctx context.Context, v *variant, data *dataset.Dataset) error {
	coder, err := data.Coder(v.codec)
	if err != nil {
		return err
	}
	samples := make([][]byte, len(data.Raw))
	for i := range samples {
		if samples[i], err = coder.Encode(nil, i); err != nil {
			return fmt.Errorf("serialize value %d: %w", i, err)
		}
	}
	// Train halves by the sequence that the set was halved by, and half of a half by that is every other value again.
	rand.New(rand.NewPCG(r.Seed, 1)).Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
	start := time.Now()
	t, err := dict.Train(ctx, samples, dict.TrainOptions{
		Setting: v.setting.Setting, Engine: v.setting.Engine(), Builders: engine.Builders(), Refit: true,
		Progress: func(done, total int, what string) {
			if r.Progress != nil {
				r.Progress(r.done, r.total, fmt.Sprintf("training for %v: %d of %d, %s", v, done, total, what))
			}
		},
	})
	report := Dictionary{Dataset: data.Name, Codec: v.codec, Compress: v.setting.String(), Samples: len(samples), Seconds: time.Since(start).Seconds()}
	switch {
	case errors.Is(err, dict.ErrNoDictionary):
		report.Reason = strings.TrimPrefix(err.Error(), "dict: ")
	case err != nil:
		return err
	default:
		v.dict = t.Dictionary
		report.ID, report.Bytes, report.Tried = t.Dictionary.ID(), len(t.Dictionary.Bytes()), len(t.Candidates)
		report.Builder = strings.TrimSpace(t.Winner.Builder + " " + t.Winner.Params)
	}
	r.dictionaries = append(r.dictionaries, report)
	v.report = len(r.dictionaries) - 1
	return nil
}

func (v *variant) String() string {
	return fmt.Sprintf("%s %s %s", v.data.Name, v.codec, v.setting)
}

// fill stores every value, measures the memory that Redis takes for it, and verifies that each
// comes back.
func (r *run) fill(ctx context.Context, v *variant) error {
	stored := make([][]byte, len(v.data.Raw))
	payload := 0
	for i := range stored {
		plain, err := v.coder.Encode(nil, i)
		if err != nil {
			return fmt.Errorf("serialize value %d: %w", i, err)
		}
		packed, err := v.packer.Pack(nil, plain)
		if err != nil {
			return fmt.Errorf("pack value %d: %w", i, err)
		}
		stored[i] = slices.Clip(packed)
		payload += len(packed)
		if _, offset, ok := frame.Parse(packed); ok {
			payload -= offset
		}
		v.plain += int64(len(plain))
		v.stored += int64(len(packed))
	}
	keys := r.keys[:v.keys]
	if err := r.server.clear(ctx, r.keys); err != nil {
		return err
	}
	var before int64
	var err error
	if !r.server.Embedded {
		if before, err = r.server.usedMemory(ctx); err != nil {
			return err
		}
	}
	if v.dict != nil {
		r.dictionaries[v.report].Payload = float64(v.plain) / float64(payload)
		// Its bytes are a part of what the values take.
		if err := r.clients[0].store.Set(ctx, r.dictKey(), v.dict.Bytes(), bale.Expiry{}); err != nil {
			return err
		}
	}
	if err := r.roundTrip(ctx, v, stored, 0, len(keys)); err != nil {
		return err
	}
	if !r.server.Embedded {
		after, err := r.server.usedMemory(ctx)
		if err != nil {
			return err
		}
		perKey := float64(after-before) / float64(len(keys))
		v.perKey = &perKey
		if err := r.memoryUsage(ctx, v, keys); err != nil {
			return err
		}
	}
	// Values that were too many to be measured are verified all the same.
	return r.roundTrip(ctx, v, stored, len(keys), len(stored))
}

// roundTrip writes values to the keys from start up to end, beginning again when there are fewer values, and
// compares what it reads back: all of it byte by byte, and each value once after decoding.
func (r *run) roundTrip(ctx context.Context, v *variant, stored [][]byte, start, end int) error {
	for start < end {
		next, size := start, 0
		var items []bale.Item
		for ; next < end && next-start < batchKeys && size < batchBytes; next++ {
			value := stored[next%len(stored)]
			items = append(items, bale.Item{Key: r.keys[next], Value: value})
			size += len(value)
		}
		if err := r.clients[0].store.SetMany(ctx, items); err != nil {
			return err
		}
		got, err := r.clients[0].store.GetMany(ctx, r.keys[start:next])
		if err != nil {
			return err
		}
		for i := range items {
			if !bytes.Equal(got[i], items[i].Value) {
				return errMismatch
			}
			if start+i < len(stored) {
				if err := v.verify(got[i], start+i); err != nil {
					return err
				}
			}
		}
		start = next
	}
	return nil
}

// verify decodes a stored value all the way and compares it with value i.
func (v *variant) verify(stored []byte, i int) error {
	plain, err := v.packer.Unpack(nil, stored)
	if err != nil {
		return err
	}
	if err := v.coder.Verify(plain, i); err != nil {
		return fmt.Errorf("%w: %w", errMismatch, err)
	}
	return nil
}

// memoryUsage asks Redis what single keys take.
func (r *run) memoryUsage(ctx context.Context, v *variant, keys []string) error {
	n := min(usageSamples, len(keys))
	usage := make([]*redis.IntCmd, n)
	if _, err := r.server.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range usage {
			usage[i] = p.MemoryUsage(ctx, keys[i*len(keys)/n])
		}
		return nil
	}); err != nil {
		return fmt.Errorf("MEMORY USAGE: %w", err)
	}
	sum := int64(0)
	for _, u := range usage {
		sum += u.Val()
	}
	mean := float64(sum) / float64(n)
	v.usageKey = &mean
	return nil
}

// measure runs a cell for its share of a round.
func (r *run) measure(ctx context.Context, c *cell, round uint64) {
	if c.failed() != nil {
		return
	}
	for i := range r.shards {
		r.shards[i].reset()
	}
	// Each cell starts from the same heap, so that none pays for the garbage of the one before.
	debug.FreeOSMemory()
	slice := r.Duration / time.Duration(r.Rounds)
	var measuring atomic.Bool
	var operations atomic.Int64
	stop := make(chan struct{})
	var callers sync.WaitGroup
	for caller := range c.concurrency {
		rng := rand.New(rand.NewPCG(r.Seed, round<<32|uint64(caller)))
		callers.Go(func() { r.call(ctx, c, caller, rng, &measuring, &operations, stop) })
	}
	// It is warm after a share of the time, and not before each caller can have had a turn: a thousand of them
	// take a while to connect.
	sleep(ctx, slice/warmUpShare)
	for began := time.Now(); operations.Load() < int64(c.concurrency) && c.failure.get() == nil && time.Since(began) < opTimeout; {
		sleep(ctx, time.Millisecond)
		if ctx.Err() != nil {
			break
		}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	watch := r.watchRSS()
	measuring.Store(true)
	start, done := time.Now(), operations.Load()
	sleep(ctx, slice)
	measuring.Store(false)
	elapsed := time.Since(start)
	n := operations.Load() - done
	peak := watch()
	runtime.ReadMemStats(&after)
	close(stop)
	callers.Wait()
	if ctx.Err() != nil {
		return // a round that was cut short is no measurement
	}
	for i := range r.shards {
		c.latency.merge(r.shards[i].histograms)
	}
	c.operations += n
	c.rates = append(c.rates, float64(n)/elapsed.Seconds())
	c.allocs += after.Mallocs - before.Mallocs
	c.allocBytes += after.TotalAlloc - before.TotalAlloc
	c.peakRSS = max(c.peakRSS, peak)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// call is one caller: it writes values and reads them back until stop is closed.
func (r *run) call(ctx context.Context, c *cell, caller int, rng *rand.Rand, measuring *atomic.Bool, operations *atomic.Int64, stop <-chan struct{}) {
	shard := &r.shards[caller%shards]
	own := (len(r.keys) - 1) / c.concurrency
	keys := r.keys[caller*own:][:own]
	var op operation
	for {
		select {
		case <-stop:
			return
		default:
		}
		i := rng.IntN(len(c.data.Raw))
		if err := op.run(ctx, c.client.store, c.variant, i, keys[i%own]); err != nil {
			if ctx.Err() == nil {
				c.failure.set(err)
			}
			return
		}
		operations.Add(1)
		if !measuring.Load() {
			continue
		}
		times := op.times()
		shard.Lock()
		shard.record(&times)
		shard.Unlock()
	}
}

// operation is a value on its way, with the buffers and the clock of one caller. The lab itself allocates
// nothing for it, so that the allocations it reports are the library's and the client's.
type operation struct {
	plain, packed, unpacked []byte
	at                      [7]time.Time // before the first stage, and after each
}

// run takes value i through all stages and compares what came back.
func (o *operation) run(ctx context.Context, store bale.Store, v *variant, i int, key string) (err error) {
	o.at[0] = time.Now()
	if o.plain, err = v.coder.Encode(o.plain[:0], i); err != nil {
		return fmt.Errorf("serialize value %d: %w", i, err)
	}
	o.at[1] = time.Now()
	if o.packed, err = v.packer.Pack(o.packed[:0], o.plain); err != nil {
		return fmt.Errorf("pack value %d: %w", i, err)
	}
	o.at[2] = time.Now()
	if err := store.Set(ctx, key, o.packed, bale.Expiry{}); err != nil {
		return fmt.Errorf("set: %w", err)
	}
	o.at[3] = time.Now()
	stored, err := store.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	o.at[4] = time.Now()
	if o.unpacked, err = v.packer.Unpack(o.unpacked[:0], stored); err != nil {
		return fmt.Errorf("unpack value %d: %w", i, err)
	}
	o.at[5] = time.Now()
	if err := v.coder.Decode(o.unpacked); err != nil && bytes.Equal(o.unpacked, o.plain) {
		return fmt.Errorf("deserialize value %d: %w", i, err)
	}
	o.at[6] = time.Now()
	if !bytes.Equal(o.unpacked, o.plain) {
		return errMismatch
	}
	return nil
}

// times are how long the stages took, and all of them together.
func (o *operation) times() (t [7]time.Duration) {
	for i := range 6 {
		t[i] = o.at[i+1].Sub(o.at[i])
	}
	t[6] = o.at[6].Sub(o.at[0])
	return t
}

// watchRSS watches the resident set until the function that it returns is called, which
// returns by how many bytes it rose at most.
func (r *run) watchRSS() func() int64 {
	rss := func() int64 {
		m, err := r.process.MemoryInfo()
		if err != nil {
			return 0
		}
		return int64(m.RSS)
	}
	start := rss()
	peak := start
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(rssInterval)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				peak = max(peak, rss())
				return
			case <-ticker.C:
				peak = max(peak, rss())
			}
		}
	}()
	return func() int64 {
		close(stop)
		<-stopped
		return peak - start
	}
}

func (c *cell) failed() error { return errors.Join(c.variant.failure.get(), c.failure.get()) }

func (c *cell) result() Cell {
	out := Cell{
		Client: c.client.name, Dataset: c.data.Name, Codec: c.codec, Compress: c.setting.String(), Concurrency: c.concurrency,
		Values: len(c.data.Raw), RawBytes: c.data.RawBytes(), PlainBytes: c.plain, StoredBytes: c.stored,
		RedisBytesPerKey: c.perKey, MemoryUsagePerKey: c.usageKey, Keys: c.keys,
		Operations: c.operations, OpsPerSecond: median(c.rates), OpsPerSecondRounds: c.rates,
		PeakRSSBytes: c.peakRSS, Stages: c.latency.stages(),
	}
	if c.stored > 0 {
		out.Ratio = float64(out.RawBytes) / float64(c.stored)
	}
	if c.operations > 0 {
		out.AllocsPerOp = float64(c.allocs) / float64(c.operations)
		out.BytesPerOp = float64(c.allocBytes) / float64(c.operations)
	}
	err := c.failed()
	if err == nil && c.operations == 0 {
		err = errors.New("no operation was completed within a round: use a longer --duration")
	}
	out.Verified = err == nil
	if err != nil {
		out.Error = err.Error()
		out.Mismatch = errors.Is(err, errMismatch) || errors.Is(err, bale.ErrCorrupt)
	}
	return out
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 1 {
		return v[n/2]
	}
	return math.Round((v[len(v)/2-1]+v[len(v)/2])/2*1000) / 1000
}
