package dict

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"

	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/compress"
	levels "github.com/balekv/bale/compress/zstd"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/holdout"
	"github.com/balekv/bale/internal/zstd"
)

// Builder makes dictionaries of samples. Train tries all given builders and keeps the best measured
// dictionary.
type Builder struct {
	// Name says who makes the dictionary, for reports: "libzstd fastcover". Params tells builders
	// of one name apart: "k=256 d=8".
	Name, Params string

	// Build returns a dictionary of at most size bytes, the same for the same samples. It must not
	// keep or change the samples. An error, or a panic, means that it has none for these samples
	// and this size. It is called from several goroutines at once. When ctx ends it should return
	// soon: Train waits for it. Calls into libzstd cannot be interrupted; each takes up to some
	// seconds.
	Build func(ctx context.Context, samples [][]byte, size int) ([]byte, error)

	// Slow builders are tried only at the sizes at which the others did best, and on a part of the
	// samples.
	Slow bool

	// Baseline marks a candidate that the winner must match, even if a smaller dictionary comes
	// close to the best.
	Baseline bool
}

func (b *Builder) String() string {
	if b.Params == "" {
		return b.Name
	}
	return b.Name + " " + b.Params
}

// build calls Build and takes a panic for an error: some builders are experimental.
func (b *Builder) build(ctx context.Context, samples [][]byte, size int) (d *Dictionary, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	defer func() {
		if p := recover(); p != nil {
			d, err = nil, fmt.Errorf("%v: %w", b, &codec.PanicError{Value: p, Stack: debug.Stack()})
		}
	}()
	content, err := b.Build(ctx, samples, size)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", b, err)
	}
	return frame.NewDictionary(content)
}

// tableSamples bounds the bytes of samples that entropy tables are counted on. At levels that
// search all matches searchedSamples does: they take twenty times as long, and more samples gain
// less than 0.1%.
const (
	tableSamples    = 2 << 20
	searchedSamples = 512 << 10
)

var errNoContent = errors.New("the samples have too little in common")

// Builders are the builders in pure Go for a setting, the default of [TrainOptions]. Some cover the
// samples with segments of several sizes. The others choose whole samples, which serve best where
// values follow a template. All make dictionaries in zstd's format, with entropy tables for the
// setting's level of zstd. Module czstd has the builders of libzstd. The zero setting is for the
// default level.
func Builders(s compress.Setting) []Builder {
	level := levelOf(s)
	var all []Builder
	for _, k := range []int{64, 128, 256, 512, 2048, 4096} {
		all = append(all, Builder{Name: "go cover", Params: fmt.Sprintf("k=%d", k), Build: withTables(func(ctx context.Context, f *frequencies, size int) ([]byte, error) {
			return f.cover(ctx, size, k)
		}, level)})
	}
	for _, by := range []struct {
		params string
		length int
	}{{"by score", 0}, {"by density", 1}} {
		all = append(all, Builder{Name: "go values", Params: by.params, Build: withTables(func(ctx context.Context, f *frequencies, size int) ([]byte, error) {
			return f.wholes(ctx, size, by.length)
		}, level)})
	}
	return all
}

// tableRoom is what is left free in a dictionary for entropy tables, in bytes. They take 100 to
// 250; content that has no room then loses its start, where the first template may begin.
const tableRoom = 256

// levelOf is the encoder's level for a setting; Default for Fast, and for other algorithms.
func levelOf(s compress.Setting) zstd.Level {
	n, err := strconv.Atoi(s.Level)
	switch numbered := err == nil; {
	case s.Algorithm != frame.Zstd:
	case s.Level == "best" || numbered && levels.NearestLevel(n) == levels.Best:
		return zstd.Best
	case s.Level == "better" || numbered && levels.NearestLevel(n) == levels.Better:
		return zstd.Better
	}
	return zstd.Default
}

// tableRounds is how often samples are encoded for tables. The second time they are encoded with
// the tables of the first, at the level for which they are made: a first time at Better or Best
// gains 0.5% on few values, and takes as long again. A third time changes the bytes by 0.1% up or
// down.
const tableRounds = 2

// minContent is the least that entropy tables are put before, in bytes: the format's repeat
// offsets, 1, 4 and 8, must be in the content.
const minContent = 8

// withTables puts entropy tables of zstd's format before the content. They are counted on samples
// as the encoder writes them. A sample that the content was taken from finds itself in it, which no
// later value does. So samples also count with content that was chosen from the other half of them.
func withTables(choose func(ctx context.Context, f *frequencies, size int) ([]byte, error), level zstd.Level) func(ctx context.Context, samples [][]byte, size int) ([]byte, error) {
	return func(ctx context.Context, samples [][]byte, size int) ([]byte, error) {
		m := materialOf(ctx, samples)
		chosen := func(from int) ([]byte, error) {
			f, err := m.frequencies(ctx, from)
			if err != nil {
				return nil, err
			}
			return choose(ctx, f, size-tableRoom)
		}
		whole, err := chosen(all)
		if err != nil {
			return nil, err
		}
		if len(whole) == 0 {
			return nil, errNoContent
		}
		contents, counted := [parts][]byte{all: whole}, [parts][][]byte{m.of[1], m.of[0], thin(samples, tableSamples)}
		for i := range all {
			if contents[i], err = chosen(i); err != nil {
				return nil, err
			}
		}
		dictionaries := contents
		for round := range tableRounds {
			var t zstd.Trainer
			at := zstd.Default
			if round == tableRounds-1 && level != at {
				at = level
				for i := range counted {
					counted[i] = thin(counted[i], searchedSamples)
				}
			}
			for i, b := range dictionaries {
				d, err := zstd.NewDictionary(b)
				if err != nil {
					return nil, err
				}
				t.With(d, at)
				for j, s := range counted[i] {
					if j%checkEvery == 0 && ctx.Err() != nil {
						return nil, ctx.Err()
					}
					t.Add(s)
				}
			}
			for i, content := range contents {
				if len(content) < minContent {
					continue // counted without tables: one half may have too little in common
				}
				if dictionaries[i] = t.Dictionary(content, size); dictionaries[i] == nil {
					return whole, nil // the encoder makes tables where they pay
				}
			}
		}
		return dictionaries[2], nil
	}
}

// The parts of samples that content is chosen from: two halves, and all of them.
const (
	all   = 2
	parts = 3
)

// material is samples as the builders take them, counted once for all builders.
type material struct {
	of      [parts][][]byte
	lock    [parts]sync.Mutex
	counted [parts]*frequencies
}

func newMaterial(samples [][]byte) *material {
	m := &material{of: [parts][][]byte{all: samples}}
	for i, s := range thin(samples, tableSamples) {
		h := 0
		if holdout.Training(i) {
			h = 1
		}
		m.of[h] = append(m.of[h], s)
	}
	return m
}

// frequencies are those of a part, to forget of.
func (m *material) frequencies(ctx context.Context, part int) (*frequencies, error) {
	m.lock[part].Lock()
	defer m.lock[part].Unlock()
	f := m.counted[part]
	if f == nil {
		var err error
		if f, err = count(ctx, m.of[part], denseBytes); err != nil || f.slots == nil { // large ones take too much to be kept
			return f, err
		}
		m.counted[part] = f
	}
	return f.clone(), nil
}

// materialKey is the key of a context with the material that Train keeps.
type materialKey struct{}

// materialOf is the material of samples, that of the context where it is of the same.
func materialOf(ctx context.Context, samples [][]byte) *material {
	if m, ok := ctx.Value(materialKey{}).(*material); ok && len(samples) > 0 && len(m.of[all]) == len(samples) && &m.of[all][0] == &samples[0] {
		return m
	}
	return newMaterial(samples)
}

// materials are those of a Train, as long as they are small enough to be kept.
type materials struct {
	lock  sync.Mutex
	kept  map[materialID]*material
	bytes int // of samples
}

// materialID names samples, and how many bytes of them are taken.
type materialID struct {
	first    *[]byte
	n, limit int
}

// get is the material of samples with at most limit bytes.
func (k *materials) get(samples [][]byte, limit int) *material {
	taken := thin(samples, limit)
	if len(taken) == 0 {
		return newMaterial(taken)
	}
	id := materialID{&samples[0], len(samples), limit}
	if &taken[0] == &samples[0] {
		id.limit = 0
	}
	k.lock.Lock()
	defer k.lock.Unlock()
	if m := k.kept[id]; m != nil {
		return m
	}
	m, size := newMaterial(taken), 0
	for _, s := range taken {
		size += len(s)
	}
	if size > denseBytes {
		return m
	}
	if k.bytes += size; k.bytes > denseBytes || k.kept == nil {
		k.kept, k.bytes = map[materialID]*material{}, size
	}
	k.kept[id] = m
	return m
}

// largestPart is the part of thinned samples that a single value takes at most, as a divisor:
// anybody may have written it.
const largestPart = 8

// golden is 2^64 divided by the golden ratio: its multiples modulo 2^64 are spread evenly (Knuth,
// The Art of Computer Programming, volume 3, section 6.4).
const golden = 0x9E3779B97F4A7C15

// thin returns one of each n values, so many that they have at most limit bytes. Of a large one it
// returns a part. Which of the n it is has no period: with every n-th, samples that come in turns,
// such as a hash's fields, would be those of one kind.
func thin(values [][]byte, limit int) [][]byte {
	total := 0
	for _, v := range values {
		total += len(v)
	}
	if total <= limit {
		return values
	}
	every := (total + limit - 1) / limit
	var kept [][]byte
	left := limit
	for block := 0; block < len(values); block += every {
		n := uint64(min(every, len(values)-block))
		i := block + int(uint64(block+1)*golden>>32%n)
		v := values[i][:min(len(values[i]), limit/largestPart)]
		if left -= len(v); left < 0 { // the values that are kept may be the large ones
			break
		}
		kept = append(kept, v)
	}
	return slices.Clip(kept)
}
