// Package compress names the ways to compress a value and makes their compressors.
//
// A [Compressor] turns bytes into fewer bytes and back. [Parse] and [Setting.New] make one from its
// name, as the command line and configuration files spell it: "zstd:better", "s2", "none".
package compress

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/balekv/bale/compress/zstd"
	"github.com/balekv/bale/frame"
)

// Compressor makes and reads the payloads of one algorithm with one dictionary or none. An
// implementation is safe for concurrent use and keeps no reference to dst or src.
type Compressor interface {
	// Algorithm and DictionaryID identify this compressor in the frame of a payload.
	Algorithm() frame.Algorithm
	DictionaryID() frame.DictionaryID

	// Compress appends the payload of src to dst, which src must not overlap.
	Compress(dst, src []byte) ([]byte, error)

	// Decompress appends the content of the payload src to dst. The content has size bytes. A
	// payload that decodes to more or fewer bytes, or does not end where src does, is an error. The
	// caller has made sure that size is acceptable. Compressors of this module allocate size bytes
	// at once up to 512 KiB, or 64 times src. Beyond that, memory grows with the decoded content.
	Decompress(dst, src []byte, size int) ([]byte, error)

	// Close frees the compressor's memory. You may call Close while a compressor of this module is
	// in use, and more than once. Calls in progress finish. Later calls work, or return an error
	// that is os.ErrClosed.
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

	// Level is the level's name, empty for the algorithm's default. For zstd it may also be one of
	// libzstd's numbers from 1 to 22. The pure-Go compressor takes its nearest level: 1 and 2 are
	// fastest, 3 to 5 default, 6 to 9 better, the others best.
	Level string
}

// Engine makes the compressor of a setting with a dictionary, nil for none. A nil Engine is
// [Setting.New]: pure Go. Module czstd has another.
type Engine func(Setting, *frame.Dictionary) (Compressor, error)

// New makes a compressor, which the caller closes. Its errors are those of [Setting.New].
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
	// plain is a compressor that takes no dictionary.
	plain := func(name string, c func() Compressor) level {
		return level{name, func(d *frame.Dictionary) (Compressor, error) {
			if d != nil {
				return nil, fmt.Errorf("%w: %v; zstd, s2 and lz4 do at their default level, zstd and s2 at every level", ErrNoDictionary, a)
			}
			return c(), nil
		}}
	}
	switch a {
	case frame.Stored:
		return []level{plain("", func() Compressor { return None })}
	case frame.Snappy:
		return []level{plain("", func() Compressor { return snappy{} })}
	case frame.S2:
		of := func(l s2Level) func(*frame.Dictionary) (Compressor, error) {
			return func(d *frame.Dictionary) (Compressor, error) { return newS2(l, d) }
		}
		return []level{{"default", of(s2Default)}, {"better", of(s2Better)}, {"best", of(s2Best)}}
	case frame.LZ4:
		return []level{
			{"default", func(d *frame.Dictionary) (Compressor, error) { return newLZ4(false, d), nil }},
			plain("best", func() Compressor { return newLZ4(true, nil) }),
		}
	case frame.Gzip:
		of := func(n int) func() Compressor { return func() Compressor { return newGzip(n) } }
		return []level{plain("default", of(6)), plain("fastest", of(gzip.BestSpeed)), plain("best", of(gzip.BestCompression))}
	case frame.Zstd:
		return []level{{"default", zstdLevel(zstd.Default)}, {"fastest", zstdLevel(zstd.Fastest)}, {"better", zstdLevel(zstd.Better)}, {"best", zstdLevel(zstd.Best)}}
	}
	return nil
}

func zstdLevel(l zstd.Level) func(*frame.Dictionary) (Compressor, error) {
	return func(d *frame.Dictionary) (Compressor, error) {
		return zstd.New(zstd.Options{Level: l, Dictionary: d})
	}
}

// algorithms lists all algorithms, in the order of the frame's numbers.
var algorithms = []frame.Algorithm{frame.Stored, frame.Snappy, frame.S2, frame.LZ4, frame.Gzip, frame.Zstd}

// Settings lists all settings, each with its level spelled out.
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
// Any other name is [ErrSetting].
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
// closes it. An error is [ErrSetting], [ErrNoDictionary], or that of a damaged dictionary.
func (s Setting) New(d *frame.Dictionary) (Compressor, error) {
	l, ok := s.find()
	if !ok {
		return nil, fmt.Errorf("%w: %q; there are %v, and zstd:1 to zstd:22", ErrSetting, s, Settings())
	}
	return l.make(d)
}
