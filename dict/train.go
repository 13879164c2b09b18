package dict

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/holdout"
	"github.com/balekv/bale/internal/zstd"
	"github.com/balekv/bale/redismem"
)

const (
	minDictionary  = 2 << 10 // bytes; the smallest size that is tried
	defaultMaxSize = 1 << 20 // bytes
	defaultValues  = 1_000_000
	commonSize     = 128 << 10 // bytes; larger ones are for the best builders
	libzstdDefault = 112 << 10 // bytes; the size that the zstd tool makes by default
	defaultMinGain = 0.05
	minSamples     = 20

	// samplesPerByte bounds the bytes of samples for each byte of a dictionary. zdict.h recommends a
	// hundred; more do not make a better dictionary.
	samplesPerByte = 100

	searchBytes = 4 << 20 // of held-out values, for the search
	slowBytes   = 4 << 20 // of samples, for slow builders
	slowSizes   = 2       // at how many sizes they are tried
	leading     = 3       // builders that are tried at larger sizes, and at sizes between
	sizeStep    = 4       // from one size that all builders are tried at to the next

	// Sizes end where the best candidate of one is so much worse than that of a smaller one.
	nowhereNear = 0.02

	finalists = 6 // candidates that are measured with the halves swapped as well
	costTime  = 100 * time.Millisecond

	// A smaller dictionary wins if it comes this near to the best one: it is faster, and takes less
	// memory in every program.
	tie = 0.005

	// copies is how often a dictionary is counted: Redis holds it, and a program holds it beside
	// tables of about twice its size. Levels that search all matches have tables of seven times.
	copies          = 4
	searchingCopies = 9

	packedGain = 0.05 // what a value must get smaller by to be stored packed: the Packer's default
)

// TrainOptions are the settings of [Train]; the zero value is useful.
type TrainOptions struct {
	// Setting is the setting for later values, and for measuring candidates. Defaults to zstd at
	// the engine's default level.
	Setting compress.Setting

	// Engine makes the compressor of the setting. Defaults to pure Go.
	Engine compress.Engine

	// Builders make the candidates. Defaults to [Builders] of the
	// Setting.
	Builders []Builder

	// MaxSize is the size in bytes of the largest candidate. Defaults to 1 MiB; 2 KiB to
	// frame.MaxDictionarySize. Candidates larger than the samples are left out.
	MaxSize int

	// Values is the number of values that the dictionary will serve, at least those of the sample.
	// Each is charged its share of the dictionary, as one server and one program hold it: four times
	// its size, at zstd's levels from better on nine times. Large dictionaries are for many values.
	// Defaults to 1,000,000.
	Values int64

	// MinGain is the part of the memory, as Redis allocates it, that the dictionary must save, less
	// its own memory, compared with compression without one. Defaults to 0.05; below 1. Negative
	// means that a single byte is enough.
	MinGain float64

	// Current is the present dictionary, if any. A new one must then save MinGain of the memory
	// that values take with Current, which is there already and costs nothing.
	Current *Dictionary

	// Exclude are fields of JSON values: names, at any depth, or paths from the root
	// ("user.token"). Their values, with the names inside them, never enter the dictionary. The
	// names in Exclude may take 8 KiB in all.
	//
	// Train ignores samples that are not JSON objects or lists, nest deeper than 1,000 levels or
	// have more than 4 MiB; their contents are not searched for. It does not know the names of a
	// hash's fields: leave out the samples of such fields yourself.
	//
	// An excluded value may also occur in another field. Train cuts each value of 25 bytes or more,
	// and each piece of it of 32 bytes or more, out of all samples. It rejects a dictionary that
	// contains a shorter value, of 6 bytes or more. Names inside excluded values are treated the
	// same, unless a name is a word of letters, '_' and '-'. Train does not find a value in another
	// encoding, such as percent-encoding. If the value is JSON in a string, it does not find pieces
	// with quotes in another field that holds the same JSON as an object.
	Exclude []string

	// NoRefit returns the winner as it was measured, made of half of the samples. By default Train
	// makes it again of all samples. Use NoRefit if you measure on the held-out half yourself.
	NoRefit bool

	// NoTimes leaves out Measure.CompressNs and DecompressNs, which take half a second to measure.
	// Use it if you train many dictionaries, or measure times yourself.
	NoTimes bool

	// Workers is the number of candidates in progress at a time. Defaults to GOMAXPROCS. It does
	// not change the result.
	Workers int

	// Progress is called after each candidate, if it is set, from one goroutine at a time. The
	// total never grows.
	Progress func(done, total int, what string)
}

func (o TrainOptions) withDefaults() (TrainOptions, error) {
	if o.Setting == (compress.Setting{}) {
		o.Setting = compress.Setting{Algorithm: frame.Zstd}
	}
	if o.Builders == nil {
		o.Builders = Builders(o.Setting)
	}
	if o.MaxSize == 0 {
		o.MaxSize = defaultMaxSize
	}
	if o.Values == 0 {
		o.Values = defaultValues
	}
	if o.MinGain == 0 {
		o.MinGain = defaultMinGain
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	o.Exclude = slices.Compact(slices.Sorted(slices.Values(o.Exclude)))
	switch {
	case !o.Setting.TakesDictionary():
		return o, fmt.Errorf("dict: %w: %v takes no dictionary; zstd and s2 do, and lz4 at its default level", ErrInvalid, o.Setting)
	case o.MaxSize < minDictionary || o.MaxSize > frame.MaxDictionarySize:
		return o, fmt.Errorf("dict: %w: MaxSize is %d, must be %d to %d", ErrInvalid, o.MaxSize, minDictionary, frame.MaxDictionarySize)
	case o.Values < 0:
		return o, fmt.Errorf("dict: %w: Values is %d, must not be negative", ErrInvalid, o.Values)
	case !(o.MinGain < 1):
		return o, fmt.Errorf("dict: %w: MinGain is %v, must be below 1", ErrInvalid, o.MinGain)
	case len(excluded(o.Exclude)) > maxExclude: // which the registry would refuse
		return o, fmt.Errorf("dict: %w: the names in Exclude take more than %d bytes: exclude the objects that hold these fields",
			ErrInvalid, maxExclude)
	case o.Workers < 0:
		return o, fmt.Errorf("dict: %w: Workers is %d, must not be negative", ErrInvalid, o.Workers)
	}
	return o, nil
}

// Measure is the size and speed of values in one form of storage.
type Measure struct {
	Values         int   `json:"values"`
	RawBytes       int64 `json:"raw_bytes"`
	PayloadBytes   int64 `json:"payload_bytes"`   // compressed, without bale's header
	StoredBytes    int64 `json:"stored_bytes"`    // frames, or the values as they are where that is smaller
	AllocatedBytes int64 `json:"allocated_bytes"` // as Redis allocates them, see package redismem; without keys

	// CompressNs and DecompressNs are the time for a value, on one processor; measured for the
	// winner alone.
	CompressNs   float64 `json:"compress_ns,omitempty"`
	DecompressNs float64 `json:"decompress_ns,omitempty"`
}

// Ratio is RawBytes over StoredBytes, 0 without values.
func (m Measure) Ratio() float64 {
	if m.StoredBytes == 0 {
		return 0
	}
	return float64(m.RawBytes) / float64(m.StoredBytes)
}

// PayloadRatio is RawBytes over PayloadBytes: what other tools call the ratio.
func (m Measure) PayloadRatio() float64 {
	if m.PayloadBytes == 0 {
		return 0
	}
	return float64(m.RawBytes) / float64(m.PayloadBytes)
}

// AllocatedPerValue is AllocatedBytes for one value, 0 without values.
func (m Measure) AllocatedPerValue() float64 {
	if m.Values == 0 {
		return 0
	}
	return float64(m.AllocatedBytes) / float64(m.Values)
}

// Candidate is a dictionary that was tried.
type Candidate struct {
	Builder string             `json:"builder"`
	Params  string             `json:"params,omitempty"`
	Asked   int                `json:"asked_size"` // the size that the builder was given
	Size    int                `json:"size"`
	ID      frame.DictionaryID `json:"id,omitempty"`
	HeldOut Measure            `json:"held_out"`
	Swapped Measure            `json:"swapped,omitzero"` // the values trained on, with a dictionary of those held out: of the leading candidates
	Error   string             `json:"error,omitempty"`  // why there is none, or why it was not taken
}

// Training is the result of Train.
type Training struct {
	Dictionary *Dictionary // nil when there is none that pays
	Setting    compress.Setting

	// Winner is how Dictionary was made. HeldOut is measured with the candidate, made of half of the
	// samples. Unless NoRefit is set, Dictionary is made of samples of both halves: Refitted is their
	// number, and 0 where the candidate itself was taken.
	Winner   Candidate
	Refitted int

	Values        int64 // that the dictionary is to serve
	Samples       int   // values trained on
	SampleBytes   int64 // and their size
	HeldOut       int   // values measured on
	Excluded      int   // samples that Train ignored because of Exclude
	Elsewhere     int   // samples with long excluded values, or pieces of them, in other fields, which were cut out
	NotVerifiable int   // candidates that did not pass the round trip

	// The held-out values, compressed without a dictionary, with the Dictionary, and with
	// TrainOptions.Current, if there is one.
	Without, With, Current Measure
	Candidates             []Candidate

	// Exclude is TrainOptions.Exclude, sorted. Whole is the held-out values with the Winner's builder
	// and size if nothing is excluded: the difference to With is the cost. That dictionary is dropped.
	Exclude []string
	Whole   Measure
}

// PaysFrom is the number of values that the dictionary must serve to save the memory that it takes
// itself, in Redis and in a program; 0 if there is none that saves.
func (t *Training) PaysFrom() int {
	saved := t.Without.AllocatedPerValue() - t.With.AllocatedPerValue()
	if t.Dictionary == nil || saved <= 0 {
		return 0
	}
	return int(float64(t.footprint(len(t.Dictionary.Bytes())))/saved) + 1
}

// footprint is what a dictionary of a size takes in Redis and in a program, in bytes.
func (t *Training) footprint(size int) int64 {
	n := int64(copies)
	if levelOf(t.Setting) != zstd.Default {
		n = searchingCopies
	}
	return n * int64(redismem.Server{}.String(size))
}

// Train makes the dictionary that saves most. It trains on half of the samples. The split follows
// the Thue-Morse sequence, with which periodic samples cannot keep in step. On the other half it
// measures candidates of all builders and several sizes. The leading ones are measured with the
// halves swapped as well. The candidate with the fewest bytes as Redis allocates them, in both
// halves, wins. The memory of the dictionary itself counts, divided by the number of values. A
// smaller dictionary wins if it comes within half a percent of that and is no worse than any
// Baseline. The winner has passed a full round trip over all held-out values, also with the pure-Go
// reader. Finally its builder makes it again of all samples. The figures remain those on held-out
// values, of the dictionary that was made of half the samples.
//
// If no dictionary pays, the error is ErrNoDictionary, and the Training still holds the figures.
// The same samples and options give the same dictionary. Train needs memory for a few copies of its
// training samples, and up to 50 MiB for tables. With Exclude it needs some six more copies of all
// samples. A candidate uses samples of at most a hundred times its size in all: if there are more,
// one of each n. Of a single sample it uses at most an eighth of that.
func Train(ctx context.Context, samples [][]byte, o TrainOptions) (*Training, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	t := &trainer{options: o, result: &Training{Setting: o.Setting, Exclude: o.Exclude}}
	return t.result, t.run(ctx, samples)
}

// trainer is the state of a Train.
type trainer struct {
	options   TrainOptions
	result    *Training
	exclude   *excluder
	train     [][]byte
	whole     [][]byte // train before fields were excluded
	heldOut   [][]byte
	search    [][]byte // the part of heldOut that candidates are compared on
	swapped   [][]byte // heldOut as samples to train on
	largest   int      // size of a candidate in bytes
	materials materials
	lock      sync.Mutex
	tried     []*trial
	done      int
	total     int
}

// trial is a candidate with its bytes.
type trial struct {
	builder    *Builder
	index      int // of the builder
	dictionary *Dictionary
	Candidate
}

func (t *trainer) run(ctx context.Context, samples [][]byte) error {
	samples = slices.DeleteFunc(slices.Clone(samples), func(s []byte) bool { return len(s) == 0 })
	for i, s := range samples {
		if holdout.Training(i) {
			t.train = append(t.train, s)
		} else {
			t.heldOut = append(t.heldOut, s)
		}
	}
	if len(t.options.Exclude) > 0 {
		t.exclude = newExcluder(t.options.Exclude)
		t.whole = thin(t.train, samplesPerByte*t.options.MaxSize)
		var err error
		if t.train, t.result.Excluded, err = t.exclude.redact(ctx, t.train); err != nil {
			return err
		}
		if t.swapped, _, err = t.exclude.redact(ctx, t.heldOut); err != nil { // its values may stand in the others
			return err
		}
	} else {
		t.swapped = t.heldOut
	}
	t.swapped = thin(t.swapped, samplesPerByte*t.options.MaxSize)
	t.train = thin(t.train, samplesPerByte*t.options.MaxSize)
	r := t.result
	if t.exclude != nil { // by now both halves are collected
		for _, half := range [][][]byte{t.train, t.swapped} {
			n, err := t.exclude.cutPieces(ctx, half)
			if err != nil {
				return err
			}
			r.Elsewhere += n
		}
	}
	t.search = thin(t.heldOut, searchBytes)
	r.Samples, r.HeldOut = len(t.train), len(t.heldOut)
	for _, s := range t.train {
		r.SampleBytes += int64(len(s))
	}
	t.largest = max(min(t.options.MaxSize, int(r.SampleBytes)), minDictionary)
	r.Values = max(t.options.Values, int64(len(samples)))
	if len(t.train)+len(t.heldOut) < minSamples || len(t.train) < minSamples/2 {
		why := ""
		if r.Excluded > 0 {
			why = fmt.Sprintf(" (%d were left out: with excluded fields every sample must be a JSON object or list of at most 4 MiB)", r.Excluded)
		}
		return fmt.Errorf("dict: %w: %w: %d values%s, must be %d at least; some thousands are better", ErrNoDictionary, ErrTooFew, len(t.train)+len(t.heldOut), why, minSamples)
	}
	plain, err := t.options.Engine.New(t.options.Setting, nil)
	if err != nil {
		return err
	}
	defer plain.Close()
	if r.Without, err = measure(ctx, plain, t.heldOut); err != nil {
		return err
	}
	t.time(ctx, plain, &r.Without)
	if t.options.Current != nil {
		current, err := t.options.Engine.New(t.options.Setting, t.options.Current)
		if err != nil {
			return err
		}
		defer current.Close()
		if r.Current, err = measure(ctx, current, t.heldOut); err != nil {
			return err
		}
	}
	if err := t.searchAll(ctx); err != nil {
		return err
	}
	if err := t.crossValidate(ctx); err != nil {
		return err
	}
	return t.choose(ctx, samples)
}

// searchAll tries all builders at sizes from the smallest up, until larger ones come nowhere near
// the best. Those that did best are tried at sizes around, and at larger ones as long as that pays.
// Slow builders come last.
func (t *trainer) searchAll(ctx context.Context) error {
	largest := min(t.largest, commonSize)
	var fast, slow, baselines []int
	for i, b := range t.options.Builders {
		switch {
		case b.Slow:
			slow = append(slow, i)
		case b.Baseline:
			baselines = append(baselines, i)
		default:
			fast = append(fast, i)
		}
	}
	steps := sizesTo(largest, sizeStep)
	// So many trials follow at most.
	later := len(fast)*len(steps) + leading*(2+len(between(0))+bits.Len(uint(t.largest-1)/commonSize)) + slowSizes*len(slow) + finalists
	try := func(trials []*trial, ofLater int) error {
		later -= ofLater
		return t.try(ctx, trials, t.train, later)
	}
	sizes := sizesTo(largest, 2)
	if largest > libzstdDefault {
		sizes = append(sizes, libzstdDefault)
	}
	if err := try(t.trials(baselines, sizes), 0); err != nil { // all of them: their best is to be matched
		return err
	}
	least := int64(math.MaxInt64)
	for i, size := range steps {
		trials := t.trials(fast, []int{size})
		ofLater := len(trials)
		if err := try(trials, ofLater); err != nil {
			return err
		}
		here := int64(math.MaxInt64)
		for _, c := range trials {
			if c.dictionary != nil && c.Error == "" {
				here = min(here, t.charged(c))
			}
		}
		if least = min(least, here); len(baselines) == 0 && float64(here) > (1+nowhereNear)*float64(least) {
			later -= len(fast) * (len(steps) - i - 1)
			break
		}
	}
	// at tries the leaders at sizes that follow from theirs.
	at := func(sizes func(c *trial) []int, ofLater int) error {
		var trials []*trial
		for _, c := range leaders(t.ranked()) {
			for _, s := range sizes(c) {
				if s >= minDictionary && s <= t.largest && !t.hasTried(c.index, s) {
					trials = append(trials, t.trials([]int{c.index}, []int{s})...)
				}
			}
		}
		return try(trials, ofLater)
	}
	if err := at(func(c *trial) []int { return []int{c.Asked / 2, 2 * c.Asked} }, 2*leading); err != nil {
		return err
	}
	for size := largest; size < t.largest; {
		ranked := t.ranked()
		if len(ranked) == 0 || ranked[0].Asked <= size/2 {
			break
		}
		size = min(2*size, t.largest)
		if err := at(func(*trial) []int { return []int{size} }, leading); err != nil {
			return err
		}
	}
	later = slowSizes*len(slow) + finalists + leading*len(between(0))
	if err := at(func(c *trial) []int { return between(c.Asked) }, leading*len(between(0))); err != nil {
		return err
	}
	var best []int
	for _, c := range t.ranked() {
		if len(best) < slowSizes && !slices.Contains(best, c.Asked) {
			best = append(best, c.Asked)
		}
	}
	if len(best) == 0 { // no builder had anything: perhaps a slow one has
		best = []int{min(16<<10, t.largest)}
	}
	return try(t.trials(slow, best), slowSizes*len(slow))
}

// sizesTo are the sizes from the smallest to a largest one, each so many times the one before.
func sizesTo(largest, times int) (sizes []int) {
	for s := minDictionary; s < largest; s *= times {
		sizes = append(sizes, s)
	}
	return append(sizes, largest)
}

// hasTried reports whether a builder was tried at a size.
func (t *trainer) hasTried(index, size int) bool {
	return slices.ContainsFunc(t.tried, func(c *trial) bool { return c.index == index && c.Asked == size })
}

// crossValidate measures the leading candidates with the halves swapped: the best of many on one
// half is partly so by chance.
func (t *trainer) crossValidate(ctx context.Context) error {
	ranked, noWorse := t.ranked(), t.noWorse()
	slices.SortStableFunc(ranked, func(a, b *trial) int { // those that may win first
		switch x, y := noWorse(a), noWorse(b); {
		case x == y:
			return 0
		case x:
			return -1
		}
		return 1
	})
	leading := ranked[:min(finalists, len(ranked))]
	if best := t.best(); best != nil && !slices.Contains(leading, best) {
		leading[len(leading)-1] = best
	}
	values := thin(t.train, searchBytes)
	return t.each(ctx, leading, 0, func(c *trial) {
		if _, m, err := t.measure(ctx, c, t.swapped, values); err == nil {
			c.Swapped = m
		}
	})
}

// between are the sizes between one and its neighbours.
func between(size int) []int { return []int{size / 4 * 3, size / 8 * 7, size / 4 * 5, size / 2 * 3} }

// leaders are the best candidates of the builders that did best.
func leaders(ranked []*trial) (best []*trial) {
	for _, c := range ranked {
		if len(best) < leading && !slices.ContainsFunc(best, func(b *trial) bool { return b.index == c.index }) {
			best = append(best, c)
		}
	}
	return best
}

// trials are candidates of builders, by their indexes, at some sizes.
func (t *trainer) trials(builders, sizes []int) (all []*trial) {
	for _, i := range builders {
		b := &t.options.Builders[i]
		for _, s := range sizes {
			all = append(all, &trial{builder: b, index: i, Candidate: Candidate{Builder: b.Name, Params: b.Params, Asked: s}})
		}
	}
	return all
}

// try makes and measures candidates. At most later ones follow.
func (t *trainer) try(ctx context.Context, trials []*trial, samples [][]byte, later int) error {
	t.tried = append(t.tried, trials...)
	return t.each(ctx, trials, later, func(c *trial) {
		d, m, err := t.measure(ctx, c, samples, t.search)
		if d != nil {
			c.Size, c.ID = len(d.Bytes()), d.ID()
		}
		if c.HeldOut = m; err != nil {
			c.Error = err.Error()
			return
		}
		c.dictionary = d
	})
}

// each calls f for candidates, several at a time.
func (t *trainer) each(ctx context.Context, trials []*trial, later int, f func(*trial)) error {
	t.total = t.done + len(trials) + later
	next := make(chan *trial)
	var workers sync.WaitGroup
	for range t.options.Workers {
		workers.Go(func() {
			for c := range next {
				f(c)
				t.lock.Lock()
				t.done++
				if t.options.Progress != nil {
					t.options.Progress(t.done, t.total, fmt.Sprintf("%v, %d KiB", c.builder, c.Asked>>10))
				}
				t.lock.Unlock()
			}
		})
	}
	for _, c := range trials {
		if ctx.Err() != nil {
			break
		}
		next <- c
	}
	close(next)
	workers.Wait()
	return ctx.Err()
}

// measure makes a candidate's dictionary of samples, and measures values with it.
func (t *trainer) measure(ctx context.Context, c *trial, samples, values [][]byte) (d *Dictionary, m Measure, err error) {
	material := t.materials.get(samples, sampleBytes(c.builder, c.Asked))
	if d, err = c.builder.build(context.WithValue(ctx, materialKey{}, material), material.of[all], c.Asked); err != nil {
		return nil, m, err
	}
	if n := len(d.Bytes()); n > c.Asked {
		return d, m, fmt.Errorf("%v made %d bytes where %d were asked for", c.builder, n, c.Asked)
	}
	if err := ctx.Err(); err != nil { // an engine may digest d at once, which takes up to a second
		return d, m, err
	}
	compressor, err := guard(func() (compress.Compressor, error) { return t.options.Engine.New(t.options.Setting, d) })
	if err != nil {
		return d, m, err
	}
	defer compressor.Close()
	m, err = guard(func() (Measure, error) { return measure(ctx, compressor, values) })
	return d, m, err
}

// sampleBytes are how many bytes of samples a builder gets for a dictionary of a size.
func sampleBytes(b *Builder, size int) int {
	if b.Slow {
		return min(samplesPerByte*size, slowBytes)
	}
	return samplesPerByte * size
}

// guard takes a panic of experimental code for an error.
func guard[T any](f func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &codec.PanicError{Value: p, Stack: debug.Stack()}
		}
	}()
	return f()
}

// charged are the bytes of a candidate's values as Redis allocates them, with their share of it.
func (t *trainer) charged(c *trial) int64 {
	return t.share(c.HeldOut, c.Size) + t.share(c.Swapped, c.Size)
}

// share are the bytes of measured values as Redis allocates them, with their share of a dictionary.
func (t *trainer) share(m Measure, size int) int64 {
	return m.AllocatedBytes + t.result.footprint(size)*int64(m.Values)/t.result.Values
}

// ranked are the candidates that there are, the best first: once there are some, those that were
// measured with the halves swapped.
func (t *trainer) ranked() []*trial {
	ranked := slices.DeleteFunc(slices.Clone(t.tried), func(c *trial) bool { return c.dictionary == nil || c.Error != "" })
	once := func(c *trial) bool { return c.Swapped.Values == 0 }
	if slices.ContainsFunc(ranked, func(c *trial) bool { return !once(c) }) {
		ranked = slices.DeleteFunc(ranked, once)
	}
	slices.SortStableFunc(ranked, func(a, b *trial) int {
		return cmp.Or(cmp.Compare(t.charged(a), t.charged(b)), cmp.Compare(a.Size, b.Size))
	})
	return ranked
}

// noWorse reports whether a candidate is no worse than any baseline.
func (t *trainer) noWorse() func(c *trial) bool {
	allocated, stored := int64(math.MaxInt64), int64(math.MaxInt64)
	for _, c := range t.tried {
		if c.builder.Baseline && c.dictionary != nil && c.Error == "" {
			allocated, stored = min(allocated, c.HeldOut.AllocatedBytes), min(stored, c.HeldOut.StoredBytes)
		}
	}
	return func(c *trial) bool { return c.HeldOut.AllocatedBytes <= allocated && c.HeldOut.StoredBytes <= stored }
}

// best is the candidate to take, nil when there is none.
func (t *trainer) best() *trial {
	ranked := t.ranked()
	if len(ranked) == 0 {
		return nil
	}
	best, noWorse := ranked[0], t.noWorse()
	if i := slices.IndexFunc(ranked, noWorse); i >= 0 { // none, where one baseline is best in one count and another in the other
		best = ranked[i]
	}
	enough := int64(float64(t.charged(best)) * (1 + tie))
	for _, c := range ranked {
		if c.Size < best.Size && t.charged(c) <= enough && noWorse(c) {
			best = c
		}
	}
	return best
}

// choose takes the best candidate that passes every check.
func (t *trainer) choose(ctx context.Context, samples [][]byte) error {
	r := t.result
	defer func() {
		for _, c := range t.tried {
			r.Candidates = append(r.Candidates, c.Candidate)
		}
	}()
	refused := ""
	for c := t.best(); c != nil; c = t.best() {
		if err := ctx.Err(); err != nil {
			return err
		}
		with, err := guard(func() (Measure, error) { return t.validate(ctx, c.dictionary) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			c.Error = err.Error()
			r.NotVerifiable++
			refused = fmt.Sprintf("; the best one was refused: %v", err)
			continue
		}
		r.With, r.Winner = with, c.Candidate
		if t.exclude != nil {
			if _, r.Whole, err = t.measure(ctx, c, t.whole, t.heldOut); err != nil {
				r.Whole = Measure{} // a builder may have nothing for these
			}
		}
		against, name := r.Without, "without one"
		if t.options.Current != nil && r.Current.AllocatedBytes < against.AllocatedBytes {
			against, name = r.Current, "with the current one"
		}
		charged := float64(t.share(with, c.Size))
		gain := 1 - charged/float64(against.AllocatedBytes)
		if gain <= 0 || gain < t.options.MinGain {
			return fmt.Errorf("dict: %w pays: the best of %d, %v with %d bytes, takes %.0f bytes a value in Redis, its own memory for %d values included, and there are %.0f %s (%.1f%% less, must be %.1f%%)%s",
				ErrNoDictionary, len(t.tried), c.builder, c.Size, charged/float64(with.Values), r.Values, against.AllocatedPerValue(), name, 100*max(0, gain), 100*max(0, t.options.MinGain), refused)
		}
		compressor, err := t.options.Engine.New(t.options.Setting, c.dictionary)
		if err != nil {
			return err
		}
		defer compressor.Close()
		t.time(ctx, compressor, &r.With)
		r.Dictionary = c.dictionary
		if t.options.NoRefit {
			return nil
		}
		return t.refit(ctx, c, samples)
	}
	reason := ""
	if len(t.tried) > 0 {
		reason = ": " + t.tried[0].Error
	}
	return fmt.Errorf("dict: %w: none of %d attempts gave one%s%s", ErrNoDictionary, len(t.tried), reason, refused)
}

// refit replaces the winner by its builder's dictionary of all samples, unless that fails a check.
// It may be twice as large if the winner holds a large part of its samples.
func (t *trainer) refit(ctx context.Context, c *trial, samples [][]byte) error {
	if t.exclude != nil {
		var err error
		if samples, _, err = t.exclude.redact(ctx, samples); err != nil {
			return err
		}
	}
	asked := c.Asked
	if int64(c.Size) > t.result.SampleBytes/4 { // there was little to choose from, and is twice as much now
		asked = min(2*asked, t.options.MaxSize)
	}
	samples = thin(samples, sampleBytes(c.builder, asked))
	if t.exclude != nil {
		if _, err := t.exclude.cutPieces(ctx, samples); err != nil {
			return err
		}
	}
	d, err := c.builder.build(ctx, samples, asked)
	if err == nil && len(d.Bytes()) <= asked {
		if _, err = guard(func() (Measure, error) { return t.validate(ctx, d) }); err == nil {
			r := t.result
			r.Dictionary, r.Refitted = d, len(samples)
			r.Winner.ID, r.Winner.Size = d.ID(), len(d.Bytes())
		}
	}
	if ctx.Err() != nil {
		t.result.Dictionary = nil
	}
	return ctx.Err()
}

// validate proves that every held-out value comes back, through the engine and through pure Go. It
// also proves that the dictionary contains nothing excluded.
func (t *trainer) validate(ctx context.Context, d *Dictionary) (Measure, error) {
	if t.exclude != nil {
		if err := t.exclude.verify(ctx, d); err != nil {
			return Measure{}, err
		}
	}
	c, err := t.options.Engine.New(t.options.Setting, d)
	if err != nil {
		return Measure{}, err
	}
	defer c.Close()
	readers := []compress.Compressor{c}
	if t.options.Engine != nil {
		pure, err := t.options.Setting.New(d)
		if err != nil {
			return Measure{}, fmt.Errorf("pure Go cannot use it: %w", err)
		}
		defer pure.Close()
		readers = append(readers, pure)
	}
	var packed, back []byte
	for i, v := range t.heldOut {
		if err := ctx.Err(); err != nil {
			return Measure{}, err
		}
		if packed, err = c.Compress(packed[:0], v); err != nil {
			return Measure{}, fmt.Errorf("value %d: %w", i, err)
		}
		for _, r := range readers {
			if back, err = r.Decompress(back[:0], packed, len(v)); err != nil {
				return Measure{}, fmt.Errorf("value %d does not come back: %w", i, err)
			}
			if !bytes.Equal(back, v) {
				return Measure{}, fmt.Errorf("value %d comes back different", i)
			}
		}
	}
	return measure(ctx, c, t.heldOut)
}

// measure stores values as a Packer with default options does, and counts.
func measure(ctx context.Context, c compress.Compressor, values [][]byte) (Measure, error) {
	m := Measure{Values: len(values)}
	header := frame.Header{Algorithm: c.Algorithm(), DictionaryID: c.DictionaryID(), HasChecksum: true}
	var payload []byte
	var err error
	for _, v := range values {
		if err := ctx.Err(); err != nil {
			return m, err
		}
		if payload, err = c.Compress(payload[:0], v); err != nil {
			return m, err
		}
		header.Length = uint64(len(v))
		stored := header.PayloadOffset() + len(payload)
		if len(v)-stored < max(1, int(packedGain*float64(len(v)))) {
			stored = len(v)
		}
		m.RawBytes += int64(len(v))
		m.PayloadBytes += int64(len(payload))
		m.StoredBytes += int64(stored)
		m.AllocatedBytes += int64(redismem.Server{}.String(stored))
	}
	return m, nil
}

// time measures what it costs to compress and decompress a value.
func (t *trainer) time(ctx context.Context, c compress.Compressor, m *Measure) {
	if t.options.NoTimes {
		return
	}
	rng := rand.New(rand.NewPCG(1, 1))
	values := make([][]byte, 0, 1000)
	payloads := make([][]byte, 0, 1000)
	for range min(1000, len(t.heldOut)) {
		v := t.heldOut[rng.IntN(len(t.heldOut))]
		p, err := c.Compress(nil, v)
		if err != nil || ctx.Err() != nil {
			return
		}
		values, payloads = append(values, v), append(payloads, p)
	}
	var dst []byte
	each := func(f func(i int)) float64 {
		n, start := 0, time.Now()
		for time.Since(start) < costTime && ctx.Err() == nil {
			for i := range values {
				if ctx.Err() != nil {
					return 0
				}
				f(i)
			}
			n += len(values)
		}
		return float64(time.Since(start).Nanoseconds()) / float64(max(1, n))
	}
	m.CompressNs = each(func(i int) { dst, _ = c.Compress(dst[:0], values[i]) })
	m.DecompressNs = each(func(i int) { dst, _ = c.Decompress(dst[:0], payloads[i], len(values[i])) })
}
