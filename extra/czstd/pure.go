//go:build !cgo

package czstd

import (
	"github.com/balekv/bale/compress/zstd"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// Native reports whether compressors of this package are libzstd, and not pure Go: true with cgo.
const Native = false

// Version is that of the libzstd in use, "1.5.7"; empty without cgo.
func Version() string { return "" }

// Builders are libzstd's builders of dictionaries, for dict.TrainOptions: none without cgo, where
// dict.Builders are the only ones.
func Builders() []dict.Builder { return nil }

// state is the pure-Go compressor.
type state struct{ *zstd.Compressor }

func (s *state) open(level int, dictionary *frame.Dictionary) (err error) {
	s.Compressor, err = zstd.New(zstd.Options{Level: zstd.NearestLevel(level), Dictionary: dictionary})
	return err
}
