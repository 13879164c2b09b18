package czstd

import (
	"fmt"
	"os"
	"strconv"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

const defaultLevel = 3 // libzstd's own

var errClosed = fmt.Errorf("czstd: compressor is closed: %w", os.ErrClosed)

// compressor makes and reads Zstandard frames without magic number and dictionary id, as that of
// package compress/zstd does. It is safe for concurrent use. A dictionary is digested once;
// contexts are pooled, and freed by the garbage collector.
type compressor struct {
	id    frame.DictionaryID
	level int
	state // of libzstd, or the pure-Go compressor
}

var _ compress.Compressor = (*compressor)(nil)

func newCompressor(level int, d *frame.Dictionary) (*compressor, error) {
	c := &compressor{id: d.ID(), level: level}
	if err := c.open(level, d); err != nil {
		return nil, fmt.Errorf("czstd: dictionary %v is not usable: %w", c.id, err)
	}
	return c, nil
}

// levels maps the names of the pure-Go levels to the levels of libzstd that their author compares
// them with. The exception is best, which aims at the smallest size at any cost.
var levels = map[string]int{"": defaultLevel, "fastest": 1, "default": 3, "better": 7, "best": 19}

// Engine makes the compressor of a setting. For zstd it is one of this package, with any level from
// 1 to 22 or a level's name (fastest is 1, default 3, better 7, best 19). From about level 16 on a
// context holds tens of megabytes. The other algorithms are pure Go. It is a [compress.Engine]: the
// dictionary is nil for none, the caller closes the compressor, and an error is
// [compress.ErrSetting], [compress.ErrNoDictionary], or that of a damaged dictionary.
func Engine(s compress.Setting, d *frame.Dictionary) (compress.Compressor, error) {
	if s.Algorithm != frame.Zstd {
		return s.New(d)
	}
	level, ok := levels[s.Level]
	if !ok {
		if _, err := compress.Parse(s.String()); err != nil {
			return nil, err
		}
		level, _ = strconv.Atoi(s.Level) // no error: checked
	}
	return newCompressor(level, d)
}

var _ compress.Engine = Engine

// Algorithm is [frame.Zstd].
func (*compressor) Algorithm() frame.Algorithm { return frame.Zstd }

// DictionaryID names the dictionary, zero for none.
func (c *compressor) DictionaryID() frame.DictionaryID { return c.id }
