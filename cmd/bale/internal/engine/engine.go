// Package engine is the choice of compressors that the command has: libzstd where it was built with cgo, pure Go
// otherwise, and how the command line spells them.
package engine

import (
	"fmt"
	"strings"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

const (
	goSuffix   = "/go"
	dictSuffix = "+dict"
)

// Setting is a compressor on the command line: ALGORITHM[:LEVEL][/go][+dict].
type Setting struct {
	compress.Setting
	Go   bool // "/go": pure Go, where zstd would be libzstd
	Dict bool // "+dict": with a dictionary that is trained on a part of the data
}

// Syntax is Setting as help texts show it.
const Syntax = "ALGORITHM[:LEVEL][/go][+dict]"

// Parse reads a setting.
func Parse(name string) (Setting, error) {
	var s Setting
	rest, dict := strings.CutSuffix(name, dictSuffix)
	rest, pure := strings.CutSuffix(rest, goSuffix)
	setting, err := compress.Parse(rest)
	switch {
	case err != nil:
		return s, fmt.Errorf("%w (and zstd/go for pure Go, zstd+dict, s2+dict and lz4+dict)", err)
	case dict && !setting.TakesDictionary():
		return s, fmt.Errorf("%w: %q; zstd and s2 take one, and lz4 at its default level", compress.ErrNoDictionary, name)
	case pure && setting.Algorithm != frame.Zstd:
		return s, fmt.Errorf("%w: %q; /go is for zstd alone, all else is pure Go anyway", compress.ErrSetting, name)
	}
	return Setting{setting, pure, dict}, nil
}

// String is the inverse of Parse.
func (s Setting) String() string {
	name := s.Setting.String()
	if s.Go {
		name += goSuffix
	}
	if s.Dict {
		name += dictSuffix
	}
	return name
}

// Engine makes the setting's compressors.
func (s Setting) Engine() compress.Engine {
	if s.Go {
		return nil
	}
	return Default
}

// New makes the setting's compressor with a dictionary, nil for none.
func (s Setting) New(d *frame.Dictionary) (compress.Compressor, error) {
	return s.Engine().New(s.Setting, d)
}
