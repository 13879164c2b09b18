// Package compress names the ways to compress a value and makes their compressors.
//
// A [Compressor] turns bytes into fewer bytes and back. The packages below this one
// each make one kind; [Parse] and [Setting.New] make any of them from its name, as the command
// line and configuration files spell it: "zstd:better", "s2", "none".
package compress

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/balekv/bale/compress/gzip"
	"github.com/balekv/bale/compress/lz4"
	"github.com/balekv/bale/compress/none"
	"github.com/balekv/bale/compress/s2"
	"github.com/balekv/bale/compress/snappy"
	"github.com/balekv/bale/compress/zstd"
	"github.com/balekv/bale/frame"
)

// Compressor makes and reads the payloads of one algorithm with one dictionary or none. An
// implementation is safe for concurrent use and keeps no reference to dst or src.
type Compressor interface {
	// Algorithm and DictionaryID are what a frame says about a payload of this compressor.
	Algorithm() frame.Algorithm
	DictionaryID() frame.DictionaryID

	// Compress appends the payload of src to dst, which src must not overlap.
	Compress(dst, src []byte) ([]byte, error)

	// Decompress appends the content of the payload src, which is size bytes long, to dst. It
	// allocates no more than size bytes for it, nor (those of this module) more than a payload of src's make can hold. One that
	// decodes to more or fewer bytes, or does not end where src does, is an error. The caller has made sure that size is acceptable.
	Decompress(dst, src []byte, size int) ([]byte, error)

	// Close lets go of what the compressor holds. It must not be in use.
	Close() error
}

var (
	// ErrSetting says that a setting does not exist.
	ErrSetting = errors.New("compress: no such setting")

	// ErrNoDictionary says that an algorithm or level takes no dictionary.
	ErrNoDictionary = errors.New("compress: takes no dictionary")
)

// Setting is an algorithm and a level to write with. The zero Setting is "none".
type Setting struct {
	Algorithm frame.Algorithm

	// Level is the level's name, empty for the algorithm's default one. For zstd it may also be a number from
	// 1 to 22, as libzstd counts: the pure-Go compressor takes its nearest level (1 and 2 are fastest,
	// 3 to 5 default, 6 to 9 better, the others best).
	Level string
}

// Engine makes the compressor of a setting with a dictionary, nil for none. A nil Engine is
// [Setting.New]: pure Go. Module czstd has another.
type Engine func(Setting, *frame.Dictionary) (Compressor, error)

// New makes a compressor, which the caller closes.
func (e Engine) New(s Setting, d *frame.Dictionary) (Compressor, error) {
	if e == nil {
		return s.New(d)
	}
	return e(s, d)
}

// A level is what Setting.Level can be: its name, and how to make its compressor.
type level struct {
	name string
	make func(*frame.Dictionary) (Compressor, error)
}

// levels lists the levels of an algorithm, the default one first.
func levels(a frame.Algorithm) []level {
	switch a {
	case frame.Stored:
		return []level{{"", plain(a, func() (Compressor, error) { return none.New(), nil })}}
	case frame.Snappy:
		return []level{{"", plain(a, func() (Compressor, error) { return snappy.New(), nil })}}
	case frame.S2:
		return []level{{"default", s2Level(s2.Default)}, {"better", s2Level(s2.Better)}, {"best", s2Level(s2.Best)}}
	case frame.LZ4:
		return []level{{"default", lz4Level(lz4.Default)}, {"best", plain(a, func() (Compressor, error) { return lz4.New(lz4.Options{Level: lz4.Best}) })}}
	case frame.Gzip:
		return []level{{"default", gzipLevel(gzip.Default)}, {"fastest", gzipLevel(gzip.Fastest)}, {"best", gzipLevel(gzip.Best)}}
	case frame.Zstd:
		return []level{{"fastest", zstdLevel(zstd.Fastest)}, {"default", zstdLevel(zstd.Default)}, {"better", zstdLevel(zstd.Better)}, {"best", zstdLevel(zstd.Best)}}
	}
	return nil
}

// plain wraps a compressor that takes no dictionary.
func plain(a frame.Algorithm, make func() (Compressor, error)) func(*frame.Dictionary) (Compressor, error) {
	return func(d *frame.Dictionary) (Compressor, error) {
		if d != nil {
			return nil, fmt.Errorf("%w: %v; zstd, s2 and lz4 do at their default level, zstd and s2 at every level", ErrNoDictionary, a)
		}
		return make()
	}
}

func s2Level(l s2.Level) func(*frame.Dictionary) (Compressor, error) {
	return func(d *frame.Dictionary) (Compressor, error) { return s2.New(s2.Options{Level: l, Dictionary: d}) }
}

func lz4Level(l lz4.Level) func(*frame.Dictionary) (Compressor, error) {
	return func(d *frame.Dictionary) (Compressor, error) {
		return lz4.New(lz4.Options{Level: l, Dictionary: d})
	}
}

func gzipLevel(l gzip.Level) func(*frame.Dictionary) (Compressor, error) {
	return plain(frame.Gzip, func() (Compressor, error) { return gzip.New(gzip.Options{Level: l}) })
}

func zstdLevel(l zstd.Level) func(*frame.Dictionary) (Compressor, error) {
	return func(d *frame.Dictionary) (Compressor, error) {
		return zstd.New(zstd.Options{Level: l, Dictionary: d})
	}
}

// algorithms lists what there is, in the order of the frame's numbers.
var algorithms = []frame.Algorithm{frame.Stored, frame.Snappy, frame.S2, frame.LZ4, frame.Gzip, frame.Zstd}

// Settings lists every setting there is, each with its level spelled out.
func Settings() []Setting {
	var all []Setting
	for _, a := range algorithms {
		for _, l := range levels(a) {
			all = append(all, Setting{a, l.name})
		}
	}
	return all
}

// String is the setting as [Parse] takes it: "zstd:better", or "zstd" for the default level.
func (s Setting) String() string {
	if s.Level == "" {
		return s.Algorithm.String()
	}
	return s.Algorithm.String() + ":" + s.Level
}

// Parse reads a setting: the name of an algorithm, and after a colon, if wanted, that of a level.
func Parse(name string) (Setting, error) {
	algorithm, level, hasLevel := strings.Cut(name, ":")
	a, err := frame.ParseAlgorithm(algorithm)
	if s := (Setting{a, level}); err == nil && !(hasLevel && level == "") {
		if _, ok := s.find(); ok {
			return s, nil
		}
	}
	var names []string
	for _, s := range Settings() {
		names = append(names, s.String())
	}
	return Setting{}, fmt.Errorf("%w: %q; there are %s, and zstd:1 to zstd:22", ErrSetting, name, strings.Join(names, ", "))
}

func (s Setting) find() (level, bool) {
	for _, l := range levels(s.Algorithm) {
		if s.Level == l.name || s.Level == "" {
			return l, true
		}
	}
	if n, err := strconv.Atoi(s.Level); err == nil && s.Algorithm == frame.Zstd && n >= 1 && n <= maxZstdLevel && strconv.Itoa(n) == s.Level {
		return level{s.Level, zstdLevel(zstd.NearestLevel(n))}, true
	}
	return level{}, false
}

// maxZstdLevel is libzstd's highest level.
const maxZstdLevel = 22

// TakesDictionary reports whether New accepts a dictionary.
func (s Setting) TakesDictionary() bool {
	switch s.Algorithm {
	case frame.S2, frame.Zstd:
		return true
	case frame.LZ4:
		return s.Level != "best"
	}
	return false
}

// New makes the setting's compressor with a dictionary, or with none when d is nil. The caller
// closes it.
func (s Setting) New(d *frame.Dictionary) (Compressor, error) {
	l, ok := s.find()
	if !ok {
		return nil, fmt.Errorf("%w: %q; there are %v, and zstd:1 to zstd:22", ErrSetting, s, Settings())
	}
	return l.make(d)
}
