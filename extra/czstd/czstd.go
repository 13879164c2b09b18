package czstd

import (
	"fmt"
	"os"
	"strconv"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

const (
	// MaxLevel is libzstd's highest level.
	MaxLevel = 22

	defaultLevel = 3 // libzstd's own
)

// Options are the settings of a Compressor; the zero value is useful.
type Options struct {
	// Level is libzstd's, 1 to 22. Defaults to 3. From about 16 on a context holds tens of
	// megabytes.
	Level int

	// Dictionary is what values have in common, or nil: one made by zstd's trainer, or plain
	// content.
	Dictionary *frame.Dictionary
}

var errClosed = fmt.Errorf("czstd: compressor is closed: %w", os.ErrClosed)

// Compressor makes and reads Zstandard frames without magic number and dictionary id, as that of
// package compress/zstd does. It is safe for concurrent use. A dictionary is digested once;
// contexts are pooled, and freed by the garbage collector.
type Compressor struct {
	id    frame.DictionaryID
	level int
	state // of libzstd, or the pure-Go compressor
}

var _ compress.Compressor = (*Compressor)(nil)

// New makes a Compressor.
func New(o Options) (*Compressor, error) {
	if o.Level == 0 {
		o.Level = defaultLevel
	}
	if o.Level < 1 || o.Level > MaxLevel {
		return nil, fmt.Errorf("czstd: no level %d, must be 1 to %d", o.Level, MaxLevel)
	}
	c := &Compressor{id: o.Dictionary.ID(), level: o.Level}
	if err := c.open(o.Level, o.Dictionary); err != nil {
		return nil, fmt.Errorf("czstd: dictionary %v is not usable: %w", c.id, err)
	}
	return c, nil
}

// levels maps the names of the pure-Go levels to the levels of libzstd that their author compares
// them with. The exception is best, which aims at the smallest size at any cost.
var levels = map[string]int{"": defaultLevel, "fastest": 1, "default": 3, "better": 7, "best": 19}

// Engine makes the compressor of a setting. For zstd it is one of this package, with any level from
// 1 to 22 or a level's name (fastest is 1, default 3, better 7, best 19). The other algorithms are
// pure Go. It is a [compress.Engine].
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
	return New(Options{Level: level, Dictionary: d})
}

var _ compress.Engine = Engine

// Algorithm is [frame.Zstd].
func (*Compressor) Algorithm() frame.Algorithm { return frame.Zstd }

// DictionaryID names the dictionary, zero for none.
func (c *Compressor) DictionaryID() frame.DictionaryID { return c.id }
