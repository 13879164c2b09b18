// Package values reads the values that people give to a command, from files, folders and stdin.
package values

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/balekv/bale/cmd/internal/printable"
)

// ErrData says that no values could be had from a file, folder or stream.
var ErrData = errors.New("no usable data")

// Set is a set of values that was read.
type Set struct {
	Name   string   // of the file or folder; "stdin"
	Values [][]byte // all, or a random sample
	Total  int      // how many there were
	Kind   string   // what they are taken for: JSON, Text or Binary
	Note   string   // what a reader of results should know of the set, or empty
}

// The kinds of values.
const (
	JSON   = "json"
	Text   = "text"
	Binary = "binary"
)

// AllJSON reports whether each value is JSON.
func AllJSON(values [][]byte) bool {
	return !slices.ContainsFunc(values, func(v []byte) bool { return !json.Valid(v) })
}

func kindOf(values [][]byte) string {
	switch {
	case AllJSON(values):
		return JSON
	case !slices.ContainsFunc(values, func(v []byte) bool { return !utf8.Valid(v) }):
		return Text
	}
	return Binary
}

// Limits bound what Load keeps.
type Limits struct {
	Values    int    // how many values are kept; of more, a random sample
	ValueSize int    // the largest value in bytes; a larger one is an error
	Seed      uint64 // of the sample

	// Uniform makes a single invalid value an error if the values should be JSON. They should in a
	// file .json, .jsonl or .ndjson, or if more than half of them are objects and lists of JSON.
	// Set it if the values get decoded: a single bad one would turn the whole set into text. Files
	// .txt may hold anything.
	Uniform bool
}

// Load reads a set of values. A file has one on each line that is not empty, a folder one in each
// file below it. For "-" it reads one on each line of stdin. If all values are JSON, they are
// measured as JSON, else as text or bytes.
func Load(ctx context.Context, path string, stdin io.Reader, limits Limits) (*Set, error) {
	s := sample{ctx: ctx, limits: limits, rng: rand.New(rand.NewPCG(limits.Seed, 0))}
	name, err := s.read(path, stdin)
	if err != nil {
		return nil, err
	}
	if len(s.kept) == 0 {
		return nil, fmt.Errorf("%w: %s holds no value", ErrData, path)
	}
	if limits.Uniform && s.bad.file != "" && 2*s.documents > s.seen {
		return nil, s.notJSON(s.bad, fmt.Sprintf("as %d of %d values are", s.documents, s.seen))
	}
	set := &Set{Name: name, Values: s.kept, Total: s.seen, Kind: kindOf(s.kept)}
	switch {
	case s.seen > len(s.kept):
		set.Note = fmt.Sprintf("%s: a sample of %d of its %d values", name, len(s.kept), s.seen)
	case set.Kind != JSON && s.firstJSON && s.openEnded:
		set.Note = name + ": looks like JSON over several lines, and each line was taken for a value: " + toLines
	case set.Kind == JSON && s.seen == 1 && s.firstList:
		set.Note = fmt.Sprintf("%s: a single value, which is a list: jq -c '.[]' makes a line of each element", name)
	case set.Kind != JSON && s.firstJSON:
		set.Note = fmt.Sprintf("%s: taken for %s, since not every value is JSON", name, set.Kind)
	}
	return set, nil
}

// maxKept bounds the bytes of all values that are kept. A folder of sparse files takes no room on a
// disk, and all of a machine's memory.
var maxKept = 1 << 30

// sample keeps a uniform random sample of what it is given (Vitter's algorithm R).
type sample struct {
	ctx       context.Context
	limits    Limits
	rng       *rand.Rand
	kept      [][]byte
	bytes     int // of those
	seen      int
	firstJSON bool // the first value looks like JSON,
	firstList bool // like a list,
	openEnded bool // and like the first line of one that goes on

	documents int   // objects and lists of JSON
	bad       place // of the first value that is no JSON, and may not be what it will
}

// place is where a value was read.
type place struct {
	file   string
	line   int // from 1; 0 for the whole file
	offset int64
}

// toLines says what to do with JSON over several lines.
const toLines = "jq -c . makes a line of each document, jq -c '.[]' of each element of a list"

// notJSON says of a value that it is no JSON but should be. It does not show it.
func (s *sample) notJSON(at place, why string) error {
	where, what := at.file, "file"
	if at.line > 0 {
		where, what = fmt.Sprintf("%s line %d", at.file, at.line), "line"
	}
	if s.firstJSON && s.openEnded {
		return fmt.Errorf("%w: %s is not JSON, from byte %d on, %s; it looks like JSON over several lines: %s", ErrData, where, at.offset, why, toLines)
	}
	return fmt.Errorf("%w: %s is not JSON, from byte %d on, %s: mend it or leave the %s out; what is meant to be text can be read from a file .txt", ErrData, where, at.offset, why, what)
}

// check counts what is JSON. It is an error if a value is not by whose file's name it should be.
func (s *sample) check(v []byte, at place) error {
	if !s.limits.Uniform {
		return nil
	}
	var syntax *json.SyntaxError
	if !errors.As(json.Unmarshal(v, new(json.RawMessage)), &syntax) {
		if v = bytes.TrimSpace(v); v[0] == '{' || v[0] == '[' {
			s.documents++
		}
		return nil
	}
	at.offset = syntax.Offset
	switch extension := strings.ToLower(filepath.Ext(at.file)); extension {
	case ".json", ".jsonl", ".ndjson":
		return s.notJSON(at, "as by the name of "+extension+" it should be")
	case ".txt":
	default:
		if s.bad.file == "" {
			s.bad = at
		}
	}
	return nil
}

func (s *sample) add(v []byte, at place) error {
	if s.seen++; s.seen == 1 {
		s.firstJSON = v[0] == '{' || v[0] == '['
		s.firstList = v[0] == '['
		s.openEnded = strings.IndexByte("{[,:", v[len(v)-1]) >= 0
	}
	if len(s.kept) < s.limits.Values {
		s.bytes += len(v)
		s.kept = append(s.kept, bytes.Clone(v))
	} else if i := s.rng.IntN(s.seen); i < len(s.kept) {
		s.bytes += len(v) - len(s.kept[i])
		s.kept[i] = bytes.Clone(v)
	}
	if s.bytes > maxKept {
		if s.seen > len(s.kept) {
			return fmt.Errorf("%w: a sample of %d of the first %d values up to %s has more than %d MiB: ask for a smaller sample", ErrData, len(s.kept), s.seen, at.file, maxKept>>20)
		}
		return fmt.Errorf("%w: the first %d values up to %s have more than %d MiB: give fewer, or ask for a smaller sample", ErrData, s.seen, at.file, maxKept>>20)
	}
	return s.check(v, at)
}

// read adds all values and returns the set's name.
func (s *sample) read(path string, stdin io.Reader) (string, error) {
	if path == "-" {
		return "stdin", s.lines("stdin", stdin)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrData, err)
	}
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	if info.IsDir() {
		return filepath.Base(filepath.Clean(path)), s.folder(path)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrData, err)
	}
	defer f.Close()
	return name, s.lines(path, f)
}

func (s *sample) lines(name string, r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, s.limits.ValueSize+2) // and the line's end
	n := 0
	tooLong := func() error {
		return fmt.Errorf("%w: %s line %d is longer than %s (a file holds one value on each line, a folder one in each file)", ErrData, name, n, printable.Size(s.limits.ValueSize))
	}
	for lines.Scan() {
		if err := s.ctx.Err(); err != nil { // empty lines may have no end
			return err
		}
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) > s.limits.ValueSize {
			return tooLong()
		}
		if len(line) > 0 {
			if err := s.add(line, place{file: name, line: n}); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		n++
		return tooLong()
	} else if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrData, name, err)
	}
	return s.ctx.Err()
}

func (s *sample) folder(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if ended := s.ctx.Err(); ended != nil {
			return ended
		}
		if err != nil {
			return fmt.Errorf("%w: %w", ErrData, err)
		}
		if !entry.Type().IsRegular() || s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		b, err := s.file(path)
		switch {
		case err != nil:
			return fmt.Errorf("%w: %w", ErrData, err)
		case len(b) == 0:
			return nil
		case len(b) > s.limits.ValueSize:
			return fmt.Errorf("%w: %s has more than %s", ErrData, path, printable.Size(s.limits.ValueSize))
		}
		return s.add(b, place{file: path})
	})
}

// file reads a file, which others may change meanwhile: a byte more than a value may have at most.
func (s *sample) file(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(s.limits.ValueSize)+1))
}
