package dataset

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// ErrData says that no values could be had from a file, folder or stream.
var ErrData = errors.New("no usable data")

// Limits bound what Load keeps.
type Limits struct {
	Values    int    // how many values are kept; of more, a random sample
	ValueSize int    // the largest value in bytes; a larger one is an error
	Seed      uint64 // of the sample
}

// Load reads a set of values: from a file, one on each line that is not empty; from a folder, one
// in each file below it; from "-", one on each line of stdin. Values that are all JSON are measured as
// JSON, else as text or bytes.
func Load(path string, stdin io.Reader, limits Limits) (*Dataset, error) {
	s := sample{limits: limits, rng: rand.New(rand.NewPCG(limits.Seed, 0))}
	name, err := s.read(path, stdin)
	if err != nil {
		return nil, err
	}
	if len(s.kept) == 0 {
		return nil, fmt.Errorf("%w: %s holds no value", ErrData, path)
	}
	d := newUntyped(name, s.kept)
	d.Total = s.seen
	switch {
	case s.seen > len(s.kept):
		d.Note = fmt.Sprintf("%s: a sample of %d of its %d values", name, len(s.kept), s.seen)
	case d.Kind != "json" && s.firstJSON && s.openEnded:
		d.Note = fmt.Sprintf("%s: looks like JSON over several lines, and each line was taken for a value: jq -c . makes a line of each document, jq -c '.[]' of each element of a list", name)
	case d.Kind == "json" && s.seen == 1 && s.firstList:
		d.Note = fmt.Sprintf("%s: a single value, which is a list: jq -c '.[]' makes a line of each element", name)
	case d.Kind != "json" && s.firstJSON:
		d.Note = fmt.Sprintf("%s: taken for %s, since not every value is JSON", name, d.Kind)
	}
	return d, nil
}

// sample keeps a uniform random sample of what it is given (Vitter's algorithm R).
type sample struct {
	limits    Limits
	rng       *rand.Rand
	kept      [][]byte
	seen      int
	firstJSON bool // the first value looks like JSON,
	firstList bool // like a list,
	openEnded bool // and like the first line of one that goes on
}

func (s *sample) add(v []byte) {
	if s.seen++; s.seen == 1 {
		s.firstJSON = v[0] == '{' || v[0] == '['
		s.firstList = v[0] == '['
		s.openEnded = strings.IndexByte("{[,:", v[len(v)-1]) >= 0
	}
	if len(s.kept) < s.limits.Values {
		s.kept = append(s.kept, bytes.Clone(v))
	} else if i := s.rng.IntN(s.seen); i < len(s.kept) {
		s.kept[i] = bytes.Clone(v)
	}
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
		return fmt.Errorf("%w: %s line %d is longer than %d bytes (a file holds one value on each line, a folder one in each file)", ErrData, name, n, s.limits.ValueSize)
	}
	for lines.Scan() {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) > s.limits.ValueSize {
			return tooLong()
		}
		if len(line) > 0 {
			s.add(line)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		n++
		return tooLong()
	} else if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrData, name, err)
	}
	return nil
}

func (s *sample) folder(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("%w: %w", ErrData, err)
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrData, err)
		}
		switch {
		case info.Size() == 0:
			return nil
		case info.Size() > int64(s.limits.ValueSize):
			return fmt.Errorf("%w: %s has %d bytes, more than %d", ErrData, path, info.Size(), s.limits.ValueSize)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrData, err)
		}
		s.add(b)
		return nil
	})
}
