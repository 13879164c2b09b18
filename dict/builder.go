package dict

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/frame"
	kdict "github.com/klauspost/compress/dict"
	"github.com/klauspost/compress/zstd"
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
	// soon: Train waits for it. Calls into other libraries (klauspost's builder, libzstd) cannot be
	// interrupted; each takes up to some seconds.
	Build func(ctx context.Context, samples [][]byte, size int) ([]byte, error)

	// Slow builders are tried at the sizes alone at which the others did best, and on a part of the
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

// tableSamples bounds the bytes of samples that entropy tables are counted on.
const tableSamples = 2 << 20

// embeddedID is the id inside a dictionary in zstd's format. bale's frames name a dictionary by its
// content instead.
const embeddedID = 1

var errNoContent = errors.New("the samples have too little in common")

// Builders are the builders in pure Go, the default of [TrainOptions]. Most make a cover of the
// samples, bare and with zstd's entropy tables, in segments of several sizes. The other is
// klauspost's builder. Module czstd has those of libzstd.
func Builders() []Builder {
	var all []Builder
	for _, k := range []int{64, 128, 256, 512, 1024, 2048, 4096, 8192} {
		params := fmt.Sprintf("k=%d d=8", k)
		all = append(all, Builder{Name: "go cover", Params: params, Build: func(ctx context.Context, samples [][]byte, size int) ([]byte, error) {
			content, err := cover(ctx, samples, size-tableRoom, k, 8)
			if err != nil {
				return nil, err
			}
			if len(content) < tableRoom {
				return nil, errNoContent
			}
			return withTables(content, samples)
		}}, Builder{Name: "go cover without tables", Params: params, Build: func(ctx context.Context, samples [][]byte, size int) ([]byte, error) {
			content, err := cover(ctx, samples, size, k, 8)
			if err == nil && len(content) == 0 {
				err = errNoContent
			}
			return content, err
		}})
	}
	return append(all, Builder{Name: "klauspost", Slow: true, Build: func(_ context.Context, samples [][]byte, size int) ([]byte, error) {
		return kdict.BuildZstdDict(samples, kdict.Options{
			MaxDictSize: size - tableRoom, HashBytes: 6, ZstdDictID: embeddedID, ZstdLevel: zstd.SpeedDefault,
		})
	}})
}

// tableRoom is what is left free in a dictionary for zstd's entropy tables, in bytes: they take 100
// to 250.
const tableRoom = 256

// withTables puts the entropy tables of zstd's format, as the samples need them, before the
// content.
func withTables(content []byte, samples [][]byte) ([]byte, error) {
	return zstd.BuildDict(zstd.BuildDictOptions{
		ID: embeddedID, Contents: thin(samples, tableSamples), History: content, Offsets: [3]int{1, 4, 8}, Level: zstd.SpeedDefault,
	})
}

// thin returns every n-th value, so many that they have at most limit bytes. Of the first one it
// returns a part, if that alone has more.
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
	for i := 0; i < len(values); i += every {
		// The values that are kept may be the large ones.
		if left -= len(values[i]); left < 0 {
			break
		}
		kept = append(kept, values[i])
	}
	if kept == nil {
		return [][]byte{values[0][:limit]}
	}
	return slices.Clip(kept)
}
