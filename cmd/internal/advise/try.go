package advise

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/content"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/holdout"
)

// settings are those that are tried, those that cost least first: a dictionary is one more thing to
// look after. The order decides between those that save as much, and not the time that was
// measured, which differs from run to run. Levels above them cost several times as much for a few
// percent; balebench run measures any.
var (
	settings = []string{
		"lz4", "snappy", "s2", "zstd:1", "zstd:3", "lz4+dict", "s2+dict", "zstd:1+dict", "zstd:3+dict",
		"zstd:9", "gzip", "zstd:9+dict",
	}
	encodings = []encoding{{"msgpack", content.ToMsgpack}, {"cbor", content.ToCBOR}}
)

type encoding struct {
	name string
	to   func(dst, json []byte) ([]byte, error)
}

const (
	minTraining = 40      // items, below which no dictionary is tried
	trainBytes  = 4 << 20 // of them, above which no more are trained on: it takes a second for a megabyte
	mostJSON    = 0.95    // of the items, from which on they are re-encoded, too

	// A dictionary must save so much on the sample, so that it saves dict.Train's 0.05 on other
	// values.
	dictionaryGain = 0.06
)

// trial is what an option does to the sample of a group.
type trial struct {
	Option
	setting engine.Setting
	enc     *encoding // nil for values as they are
	rank    int       // of settings
	built   built
	after   []float64 // bytes of each piece
	wire    []float64 // bytes of its values, as stored
	promise float64   // bytes that it saves, by the values that the choice is made on
	saved   []float64 // bytes that it saves, for each draw
	apart   float64   // bytes that two dictionaries of it differ by
}

// built is a dictionary, nil for none, and its builder.
type built struct {
	dictionary *dict.Dictionary
	builder    dict.Builder
}

// piece is the unit of a sample: a key with all that was read of it, or, if there are few keys, one
// field of a hash.
type piece struct {
	*entry
	items  []item
	alone  bool    // a field by itself
	times  float64 // fields of its hash that a field alone stands for; else 1
	beside float64 // bytes: its share of what its hash takes beside the fields
	before float64 // bytes
	wire   float64 // bytes of its values
}

// all is the bytes of the fields that one alone stands for.
func (p *piece) all(field int64) float64 { return p.times*float64(field) + p.beside }

// groupSample is the sample of a group, with the numbers that all its trials share.
type groupSample struct {
	memory *memory
	sizes  []*entry // all that were looked at
	pieces []piece  // whose values were read
	uses   []use    // of pieces
	items  int
	unread int            // hashes with fields that are too large to be read
	looked int            // hashes whose fields were asked for
	kept   map[*item]bool // that are never packed
	packed packed

	slowness float64 // of this machine's processor
	timed    float64 // mean bytes of the values whose times were measured
	read     float64 // the part of the bytes of all the group's values that was read
	there    int64   // values in the group that may be packed, fields of hashes included
}

const (
	minDictionarySize = 2 << 10 // the least that dict.Train takes

	// With fewer hashes than these they are tried field by field: their fields are what is alike.
	fewHashes = 200
)

func newGroupSample(m *memory, all []*entry, keys int64) *groupSample {
	m = m.calibrated(all)
	g := &groupSample{memory: m, sizes: all, kept: map[*item]bool{}}
	hashes := 0
	var modelled, usage, read, there, count float64
	for _, e := range all {
		if e.kind == Hash && e.items != nil {
			hashes++
			modelled, usage = modelled+float64(e.now), usage+float64(e.usage)
		}
	}
	weigh(all)
	for _, e := range all {
		if e.rough && usage > 0 { // MEMORY USAGE counts a little less than there is
			e.now = int64(float64(e.usage) * modelled / usage)
		}
		if e.sampled && e.kind == Hash && e.size > 0 {
			if g.looked++; e.items == nil {
				g.unread++
			}
		}
		if e.sampled && e.items == nil && reachable(e.kind) { // too large to be packed, or to be read: it stays as it is
			g.add(piece{entry: e, before: float64(e.now)})
			continue
		}
		if e.items == nil {
			continue
		}
		bytes, packable := 0.0, 0.0
		for i := range e.items {
			it := &e.items[i]
			bytes += float64(it.size)
			if !e.heavy {
				read += float64(len(it.head))
			}
			if kind := content.Detect(it.head, int64(len(it.head)) == it.size); kind.Untouchable() || len(it.head) == 0 {
				g.kept[it] = true
			}
			if g.packable(it) {
				packable++
			}
		}
		g.items += len(e.items)
		times := 1.0
		if e.kind == Hash {
			times = float64(e.size) / float64(len(e.items))
		}
		if count += packable * times; !e.heavy {
			there += bytes * times
		}
		if e.kind != Hash || hashes >= fewHashes || e.encoding == "listpack" || len(e.items) < 2 {
			g.add(piece{entry: e, items: e.items, before: float64(e.now), wire: bytes})
			continue
		}
		beside, fields := float64(e.now), make([]int64, len(e.items))
		for i, it := range e.items {
			fields[i] = m.field(e, it, it.size)
			beside -= times * float64(fields[i])
		}
		for i, it := range e.items {
			p := piece{entry: e, items: e.items[i : i+1], alone: true, times: times, beside: beside / float64(len(fields)), wire: times * float64(it.size)}
			p.before = p.all(fields[i])
			g.add(p)
		}
	}
	for _, p := range g.pieces {
		g.packed.add(m, p)
	}
	values := 0
	for _, e := range all {
		if e.items != nil {
			values++
		}
	}
	if values > 0 {
		g.read = min(1, read/max(1, there)*float64(values)/float64(keys))
		g.there = int64(math.Ceil(float64(keys) / float64(values) * count))
	}
	return g
}

const (
	heavyPart  = 0.02 // of the memory of all keys that were looked at
	heavyTimes = 8    // of their median
)

// weigh marks outliers: strings that dominate their group. The others tell little of them.
func weigh(all []*entry) {
	total, sizes := 0.0, make([]int64, len(all))
	for i, e := range all {
		total, sizes[i] = total+float64(e.now), e.now
	}
	slices.Sort(sizes)
	for _, e := range all {
		e.heavy = e.kind == String && float64(e.now) > heavyPart*total && e.now > heavyTimes*quantile(sizes, 0.5)
	}
}

// use is what a piece is for. The best of some dozen settings, and of a hundred dictionaries, looks
// better than it is on the values that it was chosen by: the estimate is made on others.
type use int

const (
	toTrain use = iota
	toChoose
	toEstimate
)

// useOf is the use of the piece at index i: half are to estimate. The other half is divided by the
// Rudin-Shapiro sequence, which does not follow the one of holdout.Training.
func useOf(i int) use {
	switch {
	case !holdout.Training(i):
		return toEstimate
	case bits.OnesCount(uint(i&(i>>1)))%2 != 0:
		return toChoose
	}
	return toTrain
}

func (g *groupSample) add(p piece) {
	p.times = cmp.Or(p.times, 1)
	g.uses = append(g.uses, useOf(len(g.pieces)))
	g.pieces = append(g.pieces, p)
}

// even takes one value after another that trains, of the piece at i, and reports whether to take
// it. It passes values over so that each hash has its share by fields, as in bale migrate.
func (g *groupSample) even(trains func(*item) bool) func(i int) bool {
	var due [toEstimate + 1]float64
	most := 0.0
	for _, p := range g.pieces {
		for j := range p.items {
			if trains(&p.items[j]) {
				most = max(most, p.times)
			}
		}
	}
	return func(i int) bool {
		d := &due[g.uses[i]]
		if *d += g.pieces[i].times / most; *d < 1 {
			return false
		}
		*d--
		return true
	}
}

// packable reports a value that may be packed.
func (g *groupSample) packable(v *item) bool { return !g.kept[v] && v.size >= smallValue }

// values are those to train on and to choose by, so mixed that dict.Train divides them so. Heavy
// ones are left out unless wanted.
func (g *groupSample) values(encode func(dst, src []byte) ([]byte, error), heavy bool) ([][]byte, error) {
	var halves [2][][]byte
	even := g.even(g.packable)
	for i, p := range g.pieces {
		for j := range p.items {
			if g.uses[i] == toEstimate || p.heavy && !heavy || !g.packable(&p.items[j]) || !even(i) {
				continue
			}
			v := p.items[j].head
			if encode != nil {
				var err error
				if v, err = encode(nil, v); err != nil {
					return nil, err
				}
			}
			halves[g.uses[i]] = append(halves[g.uses[i]], v)
		}
	}
	var mixed [][]byte
	bytes := 0
	for i := 0; ; i++ {
		half := &halves[toChoose]
		if holdout.Training(i) {
			half = &halves[toTrain]
		}
		if len(*half) == 0 || bytes > trainBytes {
			return mixed, nil
		}
		mixed = append(mixed, (*half)[0])
		bytes += len((*half)[0])
		*half = (*half)[1:]
	}
}

// errEncoding says that a group's values cannot be re-encoded.
var errEncoding = errors.New("cannot be re-encoded")

// packer packs and unpacks as the trial does.
func (t *trial) packer() (_ *bale.Packer, release func(), err error) {
	c, err := t.setting.New(t.built.dictionary)
	if err != nil {
		return nil, nil, err
	}
	p, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: c, Engine: t.setting.Engine()}})
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	return p, func() { p.Close(); c.Close() }, nil
}

// value is an item as the trial packs it.
func (t *trial) value(dst []byte, it *item) ([]byte, error) {
	if t.enc == nil {
		return it.head, nil
	}
	v, err := t.enc.to(dst, it.head)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errEncoding, err)
	}
	return v, nil
}

// measure stores the whole sample in one way, and proves that every value comes back.
func (g *groupSample) measure(ctx context.Context, setting engine.Setting, d built, enc *encoding) (*trial, error) {
	t := &trial{Option: Option{Setting: setting.Setting.String()}, setting: setting, built: d, enc: enc}
	packer, release, err := t.packer()
	if err != nil {
		return nil, err
	}
	defer release()
	if d.dictionary != nil {
		t.Dictionary = len(d.dictionary.Bytes())
	}
	if enc != nil {
		t.Encoding = enc.name
	}
	var encoded, packed, back []byte
	for _, p := range g.pieces {
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
				v, err := t.value(encoded[:0], it)
				if err != nil {
					return nil, err
				}
				if enc != nil {
					encoded = v
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
				stored[j] = int64(math.Round(it.times()*float64(len(packed)))) + it.fresh
				if it.fresh > 0 && frame.HasMagic(packed) { // it has a header
					stored[j] += frame.FreshnessSize - it.fresh
				}
			}
			wire += stored[j]
		}
		t.wire = append(t.wire, p.times*float64(wire))
		t.after = append(t.after, g.memory.bytes(p, stored))
	}
	return t, nil
}

// times is how many times as large as the head the whole value is.
func (it *item) times() float64 { return float64(it.size) / float64(len(it.head)) }

// bytes is the memory of a piece if its values are stored in these sizes.
func (m *memory) bytes(p piece, stored []int64) float64 {
	switch {
	case p.alone:
		return p.all(m.field(p.entry, p.items[0], stored[0]))
	case p.kind == Hash:
		return float64(m.key(p.entry) + m.hash(p.entry, stored))
	case stored[0] == p.items[0].size:
		return float64(p.now)
	}
	return float64(m.string(p.entry, nil, stored[0]))
}

// quantile returns the smallest of the sorted values that a part q of all do not exceed.
func quantile[T any](sorted []T, q float64) T {
	return sorted[max(0, int(math.Ceil(q*float64(len(sorted))))-1)]
}

// effort is how much time a group is worth.
type effort int

const (
	quick    effort = iota // no dictionaries
	little                 // a dictionary for zstd, by two builders
	some                   // by some builders
	thorough               // by all of them, and for every compressor and encoding
)

// tryAll tries the settings on a group.
func tryAll(ctx context.Context, g *groupSample, how effort, formats []Format) (all []*trial, err error) {
	trained := map[frame.Algorithm]built{} // that of s2 serves lz4, too: both look back 64 KiB, and know no tables
	for rank, name := range settings {
		setting, err := engine.Parse(name)
		if err != nil {
			return all, err
		}
		var d built
		if setting.Dict {
			if how == quick || how < thorough && setting.Algorithm != frame.Zstd {
				continue
			}
			by := setting.Algorithm
			if by == frame.LZ4 {
				by = frame.S2
			}
			var ok bool
			if d, ok = trained[by]; !ok {
				if d, err = g.train(ctx, trainedFor[by], nil, effortFor(how, by)); err != nil {
					return all, err
				}
				trained[by] = d
			}
			if d.dictionary == nil {
				continue
			}
		}
		t, err := g.measure(ctx, setting, d, nil)
		if err != nil {
			return all, fmt.Errorf("%s: %w", name, err)
		}
		t.rank = rank
		all = append(all, t)
	}
	if len(formats) > 0 && formats[0].Name == content.JSON.String() && formats[0].Part >= mostJSON {
		for i := range encodings {
			again, err := g.reencoded(ctx, &encodings[i], how)
			if err != nil && !errors.Is(err, errEncoding) {
				return all, err
			}
			all = append(all, again...)
		}
	}
	return all, g.time(ctx, all)
}

// reencoded tries an encoding alone, and with a dictionary for the largest groups.
func (g *groupSample) reencoded(ctx context.Context, enc *encoding, how effort) (all []*trial, err error) {
	try := func(setting compress.Setting, d built) error {
		t, err := g.measure(ctx, engine.Setting{Setting: setting}, d, enc)
		if err == nil {
			all = append(all, t)
		}
		return err
	}
	if err := try(compress.Setting{}, built{}); err != nil || how < thorough {
		return all, err
	}
	d, err := g.train(ctx, trainedFor[frame.Zstd], enc, some)
	if err == nil && d.dictionary != nil {
		err = try(trainedFor[frame.Zstd], d)
	}
	return all, err
}

// train makes a dictionary of the half of the sample that is for that; none when it is not worth
// it.
func (g *groupSample) train(ctx context.Context, setting compress.Setting, enc *encoding, how effort) (built, error) {
	var encode func(dst, src []byte) ([]byte, error)
	if enc != nil {
		encode = enc.to
	}
	values, err := g.values(encode, false)
	if err != nil {
		return built{}, fmt.Errorf("%w: %w", errEncoding, err)
	}
	return g.trainOn(ctx, values, dict.TrainOptions{Setting: setting, Builders: builders(setting, how), NoRefit: true})
}

func (g *groupSample) trainOn(ctx context.Context, values [][]byte, o dict.TrainOptions) (built, error) {
	if 2*len(values) < minTraining {
		return built{}, nil
	}
	o.NoTimes, o.Values = true, g.there
	t, err := dict.Train(ctx, values, o)
	if errors.Is(err, dict.ErrNoDictionary) {
		return built{}, nil
	}
	if err != nil {
		return built{}, err
	}
	i := slices.IndexFunc(o.Builders, func(b dict.Builder) bool { return b.Name == t.Winner.Builder && b.Params == t.Winner.Params })
	return built{t.Dictionary, o.Builders[i]}, nil
}

// trainedFor are the settings that dictionaries are made for at first: they are good for the
// algorithm's other levels, too.
var trainedFor = map[frame.Algorithm]compress.Setting{frame.Zstd: {Algorithm: frame.Zstd, Level: "3"}, frame.S2: {Algorithm: frame.S2}}

// refine makes the dictionary of the trial that was chosen anew, of all values but those to
// estimate on, and for its own setting. Only ctx's end is an error: the trial is good without.
func (g *groupSample) refine(ctx context.Context, t *trial, how effort) error {
	values, err := g.values(nil, false)
	if err != nil {
		return err
	}
	o := dict.TrainOptions{Setting: t.setting.Setting, Builders: []dict.Builder{t.built.builder}, MaxSize: max(t.Dictionary, minDictionarySize)}
	if how == thorough && t.setting.Setting != trainedFor[t.setting.Algorithm] {
		o.Builders, o.MaxSize = builders(o.Setting, how), 0
	}
	d, err := g.trainOn(ctx, values, o)
	if err != nil || d.dictionary == nil {
		return ctx.Err()
	}
	better, err := g.measure(ctx, t.setting, d, nil)
	if err != nil {
		return ctx.Err()
	}
	t.built, t.Dictionary, t.after, t.wire = d, better.Dictionary, better.after, better.wire
	return nil
}

// pays reports whether bale migrate would train a dictionary for the trial's setting: there too
// dict.Train decides, on other values of the group, heavy ones among them.
func (g *groupSample) pays(ctx context.Context, t *trial) (bool, error) {
	var values [][]byte
	trains := func(v *item) bool { return !g.kept[v] }
	bytes, even := 0, g.even(trains)
	for at, p := range g.pieces {
		for i := range p.items {
			if v := p.items[i].head; trains(&p.items[i]) && bytes <= 2*trainBytes && even(at) {
				values = append(values, v)
				bytes += len(v)
			}
		}
	}
	d, err := g.trainOn(ctx, values, dict.TrainOptions{Setting: t.setting.Setting, Builders: []dict.Builder{t.built.builder},
		MaxSize: max(t.Dictionary, minDictionarySize), MinGain: dictionaryGain, NoRefit: true})
	return d.dictionary != nil, err
}

// renewed makes a dictionary that bale migrate --dict auto would put in place of the current one;
// none if it would keep that.
func (g *groupSample) renewed(
	ctx context.Context, setting compress.Setting, exclude []string, current *dict.Dictionary, how effort,
) (built, error) {
	values, err := g.values(nil, true)
	if err != nil {
		return built{}, err
	}
	return g.trainOn(ctx, values, dict.TrainOptions{Setting: setting, Builders: builders(setting, min(how, some)),
		Exclude: exclude, Current: current, MinGain: dictionaryGain, NoRefit: true})
}

// effortFor is less for what is not zstd: it seldom wins.
func effortFor(how effort, a frame.Algorithm) effort {
	if a != frame.Zstd {
		return min(how, some)
	}
	return how
}

// builders returns the dictionary builders to try: all for the best encoding of a large group,
// otherwise a few of different kinds. bale train tries them all.
func builders(setting compress.Setting, how effort) []dict.Builder {
	params := map[effort][]string{little: {"k=512", "by score"}, some: {"k=128", "k=512", "k=4096", "by score"}}[how]
	return slices.DeleteFunc(dict.Builders(setting), func(b dict.Builder) bool { return params != nil && !slices.Contains(params, b.Params) })
}

// formatsOf counts what the items of a sample are.
func formatsOf(pieces []piece) []Format {
	counts := map[string]float64{}
	total := 0.0
	for _, p := range pieces {
		for _, it := range p.items {
			counts[content.Detect(it.head, int64(len(it.head)) == it.size).String()] += p.times
			total += p.times
		}
	}
	var all []Format
	for name, n := range counts {
		all = append(all, Format{Name: name, Part: n / total})
	}
	slices.SortFunc(all, func(a, b Format) int { return cmp.Or(cmp.Compare(b.Part, a.Part), cmp.Compare(a.Name, b.Name)) })
	return all
}
