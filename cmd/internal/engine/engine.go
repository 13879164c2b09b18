// Package engine is the choice of compressors that the command has: libzstd where it was built with
// cgo, pure Go otherwise, and how the command line spells them. [Parse] reads what every command
// takes, [ParseForm] in addition the forms that the lab measures against each other: one-shot with
// pooled contexts, naive, and streams.
package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

const (
	goSuffix   = "/go"
	dictSuffix = "+dict"
)

// Setting is a compressor on the command line: ALGORITHM[:LEVEL][/go][/naive|/stream][+dict].
type Setting struct {
	compress.Setting
	Go   bool // "/go": pure Go, where zstd would be libzstd
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
	rest, pure := strings.CutSuffix(rest, goSuffix)
	setting, err := compress.Parse(rest)
	switch {
	case err != nil:
		return Setting{}, fmt.Errorf("%w (and zstd/go for pure Go, zstd+dict, s2+dict and lz4+dict)", err)
	case dict && !setting.TakesDictionary():
		return Setting{}, fmt.Errorf("%w: %q; zstd and s2 take one, and lz4 at its default level", compress.ErrNoDictionary, name)
	case pure && setting.Algorithm != frame.Zstd:
		return Setting{}, fmt.Errorf("%w: %q; /go is for zstd alone, all else is pure Go anyway", compress.ErrSetting, name)
	}
	s := Setting{setting, pure, form, dict}
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

// String is the inverse of ParseForm.
func (s Setting) String() string {
	name := s.Setting.String()
	if s.Go {
		name += goSuffix
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
	if s.Go {
		return nil
	}
	return Default
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

// QuickBuilders are the quick ones of Builders, of the first library: libzstd where it is
// available. They take a third of the time of all, and their dictionaries are within 0.2% of the
// best on the built-in sets.
func QuickBuilders() []dict.Builder {
	all := Builders()
	library, _, _ := strings.Cut(all[0].Name, " ")
	return slices.DeleteFunc(all, func(b dict.Builder) bool { return b.Slow || !strings.HasPrefix(b.Name, library) })
}
