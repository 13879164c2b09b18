// Package engine is the choice of compressors that the commands have, and how the command line
// spells them. [Parse] reads what every command takes, [ParseForm] in addition the forms that the
// lab measures against each other: one-shot with pooled contexts, naive, and streams.
package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

const (
	cgoSuffix  = "/cgo"
	dictSuffix = "+dict"
)

// Setting is a compressor on the command line: ALGORITHM[:LEVEL][/cgo][/naive|/stream][+dict].
type Setting struct {
	compress.Setting
	Cgo  bool // "/cgo": libzstd, where zstd would be pure Go
	Form Form // "/naive", "/stream": for the lab alone
	Dict bool // "+dict": with a dictionary that is trained on a part of the data
}

// Parse reads a setting that values can be stored with: in the form Pooled.
func Parse(name string) (Setting, error) {
	s, err := ParseForm(name)
	if err == nil && s.Form != Pooled {
		return Setting{}, fmt.Errorf("%w: %q; /%v is for balebench run, which measures what it costs; leave it out", compress.ErrSetting, name, s.Form)
	}
	return s, err
}

// ParseForm reads a setting in any form that its library has.
func ParseForm(name string) (Setting, error) {
	var form Form
	rest, dict := strings.CutSuffix(name, dictSuffix)
	for _, f := range []Form{Naive, Stream} {
		if before, ok := strings.CutSuffix(rest, "/"+f.String()); ok {
			rest, form = before, f
			break
		}
	}
	rest, cgo := strings.CutSuffix(rest, cgoSuffix)
	setting, err := compress.Parse(rest)
	switch {
	case err != nil:
		return Setting{}, fmt.Errorf("%w (and zstd/cgo for libzstd, zstd+dict, s2+dict and lz4+dict)", err)
	case dict && !setting.TakesDictionary():
		return Setting{}, fmt.Errorf("%w: %q; zstd and s2 take one, and lz4 at its default level", compress.ErrNoDictionary, name)
	case cgo && setting.Algorithm != frame.Zstd:
		return Setting{}, fmt.Errorf("%w: %q; /cgo is for zstd alone", compress.ErrSetting, name)
	case cgo && libzstd == nil:
		return Setting{}, fmt.Errorf("%w: %q; this program was built without cgo, leave /cgo out", compress.ErrSetting, name)
	}
	s := Setting{setting, cgo, form, dict}
	if why := s.lacks(); why != "" {
		return Setting{}, fmt.Errorf("%w: %q; %s", compress.ErrSetting, name, why)
	}
	return s, nil
}

// UnmarshalText is ParseForm, for options.
func (s *Setting) UnmarshalText(text []byte) (err error) {
	*s, err = ParseForm(string(text))
	return err
}

// Built returns those of the names that this build has: without cgo none of "/cgo".
func Built(names ...string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return libzstd == nil && strings.Contains(name, cgoSuffix) })
}

// String is the inverse of ParseForm.
func (s Setting) String() string {
	name := s.Setting.String()
	if s.Cgo {
		name += cgoSuffix
	}
	if s.Form != Pooled {
		name += "/" + s.Form.String()
	}
	if s.Dict {
		name += dictSuffix
	}
	return name
}

// Engine makes the setting's compressors.
func (s Setting) Engine() compress.Engine {
	if s.Cgo {
		return libzstd
	}
	return nil
}

// New makes the setting's compressor with a dictionary, nil for none. It reads its own payloads.
// Other readers of the algorithm read them too, except for streams of lz4, s2 and snappy, whose
// formats differ from those of their blocks.
func (s Setting) New(d *frame.Dictionary) (compress.Compressor, error) {
	switch s.Form {
	case Naive:
		return s.newNaive(d)
	case Stream:
		return s.newStream(d)
	}
	return s.Engine().New(s.Setting, d)
}
