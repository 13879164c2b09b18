package compress

import (
	"fmt"

	"github.com/balekv/bale/frame"
)

// None copies: it writes plain values, and reads content that is stored as it is inside a frame.
var None Compressor = none{}

type none struct{}

func (none) Algorithm() frame.Algorithm       { return frame.Stored }
func (none) DictionaryID() frame.DictionaryID { return 0 }
func (none) Close() error                     { return nil }

func (none) Compress(dst, src []byte) ([]byte, error) { return append(dst, src...), nil }

func (none) Decompress(dst, src []byte, size int) ([]byte, error) {
	if len(src) != size {
		return dst, fmt.Errorf("none: %d bytes stored, %d expected", len(src), size)
	}
	return append(dst, src...), nil
}
