package advise

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/content"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/holdout"
)

// The settings that are tried on every group, and those that are with a dictionary. Levels above
// them cost several times as much for a few percent; balebench run measures any.
var (
	plainSettings = []string{"snappy", "s2", "lz4", "gzip", "zstd:1", "zstd:3", "zstd:9"}
	dictSettings  = []string{"lz4+dict", "s2+dict", "zstd:1+dict", "zstd:3+dict", "zstd:9+dict"}
	encodings     = []encoding{{"msgpack", content.ToMsgpack}, {"cbor", content.ToCBOR}}
)

type encoding struct {
	name string
	to   func(dst, json []byte) ([]byte, error)
}

const (
	timedItems  = 200 // of the values that dictionaries were not trained on
	timedRounds = 5   // of which the quickest counts, for each value

	minTraining = 40      // items, below which no dictionary is tried
	trainBytes  = 4 << 20 // of them, above which no more are trained on: it takes a second for a megabyte
	mostJSON    = 0.95    // of the items, from which on they are re-encoded, too
)

// trial is what an option does to the sample of a group.
type trial struct {
	Option
	after      []float64 // bytes of each piece
	wire       []float64 // bytes of its values, as stored
	dictionary *dict.Dictionary
}

// tried is a group with all that was tried on it.
type tried struct {
	*groupSample
	trials []*trial
}

// piece is the unit of a sample: a key with all that was read of it, or, if there are few keys, one
// field of a hash.
type piece struct {
	*entry
	items  []item
	alone  bool    // a field by itself
	before float64 // bytes
	wire   float64 // bytes of its values
}

// groupSample is the sample of a group, with the numbers that all its trials share.
type groupSample struct {
	memory  *memory
	sizes   []*entry // all that were looked at
	pieces  []piece  // whose values were read
	trained []bool   // of pieces: those that dictionaries are trained on
	items   int
	kept    map[*item]bool // that are never packed

	read          float64 // the part of the bytes of all the group's values that was read
	maxDictionary int     // bytes
}

const (
	// A dictionary takes memory itself: it may have so small a part of that of its group.
	dictionaryPart    = 32
	minDictionarySize = 2 << 10
	maxDictionarySize = 128 << 10

	// With fewer hashes than these they are tried field by field: their fields are what is alike.
	fewHashes = 200
)

func newGroupSample(m *memory, all []*entry, keys int64) *groupSample {
	g := &groupSample{memory: m, sizes: all, kept: map[*item]bool{}}
	hashes := 0
	var now, modelled, usage, read, there float64
	for _, e := range all {
		if e.kind == Hash && e.items != nil {
			hashes++
			modelled, usage = modelled+float64(e.now), usage+float64(e.usage)
		}
	}
	for _, e := range all {
		if e.rough && usage > 0 { // MEMORY USAGE counts a little less than there is
			e.now = int64(float64(e.usage) * modelled / usage)
		}
		now += float64(e.now)
		if e.sampled && e.items == nil && reachable(e.kind) { // too large to be packed, or to be read: it stays as it is
			g.add(piece{entry: e, before: float64(e.now)})
			continue
		}
		if e.items == nil {
			continue
		}
		bytes := 0.0
		for i := range e.items {
			it := &e.items[i]
			read += float64(len(it.head))
			bytes += float64(it.size)
			if kind := content.Detect(it.head, int64(len(it.head)) == it.size); kind.Untouchable() || len(it.head) == 0 {
				g.kept[it] = true
			}
		}
		g.items += len(e.items)
		if e.kind == Hash {
			there += bytes * float64(e.size) / float64(len(e.items))
		} else {
			there += bytes
		}
		if e.kind != Hash || hashes >= fewHashes || e.encoding == "listpack" || len(e.items) < 2 {
			g.add(piece{entry: e, items: e.items, before: float64(e.now), wire: bytes})
			continue
		}
		for i := range e.items {
			it := e.items[i]
			g.add(piece{entry: e, items: e.items[i : i+1], alone: true, before: float64(m.field(e, it, it.size)), wire: float64(it.size)})
		}
	}
	values := 0
	for _, e := range all {
		if e.items != nil {
			values++
		}
	}
	if there > 0 {
		g.read = min(1, read/there*float64(values)/float64(keys))
	}
	if len(all) > 0 {
		most := now / float64(len(all)) * float64(keys) / dictionaryPart
		g.maxDictionary = int(min(maxDictionarySize, max(minDictionarySize, most))) &^ (1<<10 - 1)
	}
	return g
}

func (g *groupSample) add(p piece) {
	g.trained = append(g.trained, holdout.Training(len(g.pieces)))
	g.pieces = append(g.pieces, p)
}

// values are those of the pieces that dictionaries are trained on and of the others, so mixed that
// dict.Train divides them so.
func (g *groupSample) values(encode func(dst, src []byte) ([]byte, error)) ([][]byte, error) {
	var halves [2][][]byte
	for i, p := range g.pieces {
		half := half(!g.trained[i])
		for j := range p.items {
			if g.kept[&p.items[j]] || p.items[j].size < smallValue {
				continue
			}
			v := p.items[j].head
			if encode != nil {
				var err error
				if v, err = encode(nil, v); err != nil {
					return nil, err
				}
			}
			halves[half] = append(halves[half], v)
		}
	}
	var mixed [][]byte
	bytes := 0
	for i := 0; ; i++ {
		half := half(!holdout.Training(i))
		if len(halves[half]) == 0 || bytes > trainBytes {
			return mixed, nil
		}
		mixed = append(mixed, halves[half][0])
		bytes += len(halves[half][0])
		halves[half] = halves[half][1:]
	}
}

// errEncoding says that a group's values cannot be re-encoded.
var errEncoding = errors.New("cannot be re-encoded")

// measure stores the whole sample in one way, and proves that every value comes back.
func (g *groupSample) measure(ctx context.Context, setting engine.Setting, d *dict.Dictionary, enc *encoding) (*trial, error) {
	c, err := setting.New(d)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: c, Engine: setting.Engine()}})
	if err != nil {
		return nil, err
	}
	defer packer.Close()
	t := &trial{Option: Option{Setting: setting.Setting.String()}, dictionary: d}
	if d != nil {
		t.Dictionary = len(d.Bytes())
	}
	if enc != nil {
		t.Encoding = enc.name
	}
	var encoded, packed, back []byte
	var timed [2][]timedValue // those that dictionaries were trained on, and others
	for i, p := range g.pieces {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if p.items == nil {
			t.after, t.wire = append(t.after, p.before), append(t.wire, p.wire)
			continue
		}
		stored := make([]int64, len(p.items))
		wire := int64(0)
		for j := range p.items {
			it := &p.items[j]
			if stored[j] = it.size; !g.kept[it] {
				v := it.head
				if enc != nil {
					if encoded, err = enc.to(encoded[:0], v); err != nil {
						return nil, fmt.Errorf("%w: %w", errEncoding, err)
					}
					v = encoded
				}
				if packed, err = packer.Pack(packed[:0], v); err != nil {
					return nil, err
				}
				if back, err = packer.Unpack(ctx, back[:0], packed); err != nil {
					return nil, err
				}
				if !bytes.Equal(back, v) {
					return nil, fmt.Errorf("a value comes back different with %s", setting)
				}
				whole := float64(it.size) / float64(len(it.head))
				stored[j] = int64(math.Round(whole * float64(len(packed))))
				if some := &timed[half(!g.trained[i])]; len(*some) < timedItems {
					*some = append(*some, timedValue{bytes.Clone(v), whole})
				}
			}
			wire += stored[j]
		}
		t.wire = append(t.wire, float64(wire))
		t.after = append(t.after, float64(g.bytes(p, stored)))
	}
	if len(timed[1]) == 0 {
		timed[1] = timed[0]
	}
	return t, t.time(ctx, packer, timed[1])
}

func half(other bool) int {
	if other {
		return 1
	}
	return 0
}

// bytes is the memory of a piece if its values are stored in these sizes.
func (g *groupSample) bytes(p piece, stored []int64) int64 {
	switch {
	case p.alone:
		return g.memory.field(p.entry, p.items[0], stored[0])
	case p.kind == Hash:
		return g.memory.key(p.entry) + g.memory.hash(p.entry, stored)
	case stored[0] == p.items[0].size:
		return p.now
	}
	return g.memory.string(p.entry, nil, stored[0])
}

// timedValue is a value, or the first part of a value that is times as large.
type timedValue struct {
	bytes []byte
	times float64
}

// time measures how long each value takes to pack and to unpack: the quickest of several rounds,
// because the machine may be busy with other work. The time for part of a value is scaled up to the
// whole.
func (t *trial) time(ctx context.Context, packer *bale.Packer, values []timedValue) error {
	if len(values) == 0 {
		return nil
	}
	pack, unpack := make([]float64, len(values)), make([]float64, len(values))
	var packed, back []byte
	for round := range timedRounds {
		for i, v := range values {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			var err error
			start := time.Now()
			if packed, err = packer.Pack(packed[:0], v.bytes); err != nil {
				return err
			}
			between := time.Now()
			if back, err = packer.Unpack(ctx, back[:0], packed); err != nil {
				return err
			}
			end := time.Now()
			p, u := v.times*between.Sub(start).Seconds()*1e6, v.times*end.Sub(between).Seconds()*1e6
			if round == 0 || p < pack[i] {
				pack[i] = p
			}
			if round == 0 || u < unpack[i] {
				unpack[i] = u
			}
		}
	}
	t.Pack, t.Unpack = cost(pack), cost(unpack)
	return nil
}

func cost(us []float64) Cost {
	slices.Sort(us)
	sum := 0.0
	for _, v := range us {
		sum += v
	}
	return Cost{Mean: sum / float64(len(us)), P50: quantile(us, 0.5), P99: quantile(us, 0.99)}
}

// quantile returns the smallest of the sorted values that a part q of all do not exceed.
func quantile[T any](sorted []T, q float64) T {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// effort is how much time a group is worth.
type effort int

const (
	quick    effort = iota // no dictionaries
	little                 // a dictionary for zstd, by one builder
	some                   // by some builders
	thorough               // by all of them, and for every compressor and encoding
)

// tryAll tries the settings on a group.
func tryAll(ctx context.Context, g *groupSample, how effort, formats []Format) (*tried, error) {
	r := &tried{groupSample: g}
	add := func(name string, d *dict.Dictionary, enc *encoding) error {
		setting, err := engine.Parse(name)
		if err != nil {
			return err
		}
		t, err := g.measure(ctx, setting, d, enc)
		if errors.Is(err, errEncoding) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		r.trials = append(r.trials, t)
		return nil
	}
	for _, name := range plainSettings {
		if err := add(name, nil, nil); err != nil {
			return r, err
		}
	}
	json := len(formats) > 0 && formats[0].Name == content.JSON.String() && formats[0].Part >= mostJSON
	if json {
		for i := range encodings {
			if err := add("none", nil, &encodings[i]); err != nil {
				return r, err
			}
		}
	}
	trained := map[frame.Algorithm]*dict.Dictionary{} // that of s2 serves lz4, too: both look back 64 KiB, and know no tables
	for _, name := range dictSettings {
		setting, err := engine.Parse(name)
		if err != nil {
			return r, err
		}
		if how == quick || how < thorough && setting.Algorithm != frame.Zstd {
			continue
		}
		by := setting.Algorithm
		if by == frame.LZ4 {
			by = frame.S2
		}
		d, ok := trained[by]
		if !ok {
			if d, err = g.train(ctx, trainedFor[by], nil, effortFor(how, by)); err != nil {
				return r, err
			}
			trained[by] = d
		}
		if d == nil {
			continue
		}
		if err := add(name, d, nil); err != nil {
			return r, err
		}
	}
	if json && how == thorough {
		for i := range encodings {
			d, err := g.train(ctx, trainedFor[frame.Zstd], &encodings[i], some)
			if errors.Is(err, errEncoding) || err == nil && d == nil {
				continue
			}
			if err != nil {
				return r, err
			}
			if err := add("zstd:3+dict", d, &encodings[i]); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

// train makes a dictionary of the half of the sample that is for that; nil when none is worth it.
func (g *groupSample) train(ctx context.Context, setting compress.Setting, enc *encoding, how effort) (*dict.Dictionary, error) {
	var encode func(dst, src []byte) ([]byte, error)
	if enc != nil {
		encode = enc.to
	}
	values, err := g.values(encode)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errEncoding, err)
	}
	if len(values) < minTraining {
		return nil, nil
	}
	size := 0
	for _, v := range values {
		size += len(v)
	}
	t, err := dict.Train(ctx, values, dict.TrainOptions{Setting: setting, Engine: engine.Default, Builders: builders(how, size), MaxSize: g.maxDictionary, NoTimes: true})
	if errors.Is(err, dict.ErrNoDictionary) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return t.Dictionary, nil
}

// trainedFor are the settings that dictionaries are made for at first: they are good for the
// algorithm's other levels, too.
var trainedFor = map[frame.Algorithm]compress.Setting{frame.Zstd: {Algorithm: frame.Zstd, Level: "3"}, frame.S2: {Algorithm: frame.S2}}

// refine makes a dictionary for a trial's own setting, if it has another one's, and takes it if it
// is better. Only ctx's end is an error: the trial is good without.
func (r *tried) refine(ctx context.Context, t *trial) error {
	setting, err := engine.Parse(t.Setting)
	if err != nil || t.dictionary == nil || setting.Setting == trainedFor[setting.Algorithm] {
		return nil
	}
	d, err := r.train(ctx, setting.Setting, nil, thorough)
	if err != nil || d == nil {
		return ctx.Err()
	}
	better, err := r.measure(ctx, setting, d, nil)
	if err != nil {
		return ctx.Err()
	}
	var now, then float64
	for i := range t.after {
		now, then = now+t.after[i], then+better.after[i]
	}
	if then < now {
		*t = *better
	}
	return nil
}

// effortFor is less for what is not zstd: it seldom wins.
func effortFor(how effort, a frame.Algorithm) effort {
	if a != frame.Zstd {
		return min(how, some)
	}
	return how
}

// builders returns the dictionary builders to try. For the best encoding of a large group it tries
// all quick ones, and the slow ones if there is little training data. Otherwise it tries a few of
// different kinds. bale train tries them all.
func builders(how effort, bytes int) []dict.Builder {
	quick := engine.QuickBuilders()
	if how < thorough {
		return slices.DeleteFunc(quick, func(b dict.Builder) bool {
			return !slices.Contains(fewParams, b.Params) || how == little && !slices.Contains(oneParams, b.Params)
		})
	}
	if bytes > slowBytes {
		return quick
	}
	return append(quick, slices.DeleteFunc(engine.Builders(), func(b dict.Builder) bool { return !b.Slow })...)
}

// slowBytes is how many bytes of values slow builders get through in about a second.
const slowBytes = 512 << 10

// fewParams are segments of such lengths that one of them is close to the best on every corpus.
var fewParams = []string{"k=256 d=6", "k=1024 d=6", "k=4096 d=6", "k=8192 d=8", "k=256 d=8", "k=1024 d=8"}

// oneParams is the middle one, for libzstd and for pure Go.
var oneParams = []string{"k=1024 d=6", "k=1024 d=8"}

// formatsOf counts what the items of a sample are.
func formatsOf(pieces []piece) []Format {
	counts := map[string]int{}
	total := 0
	for _, p := range pieces {
		for _, it := range p.items {
			counts[content.Detect(it.head, int64(len(it.head)) == it.size).String()]++
			total++
		}
	}
	var all []Format
	for name, n := range counts {
		all = append(all, Format{Name: name, Part: float64(n) / float64(total)})
	}
	slices.SortFunc(all, func(a, b Format) int { return cmp.Or(cmp.Compare(b.Part, a.Part), cmp.Compare(a.Name, b.Name)) })
	return all
}
