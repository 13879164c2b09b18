package compress

import (
	"errors"
	"io"
	"testing"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/testvalues"
)

func TestSet(t *testing.T) {
	ctx := t.Context()
	d, err := frame.NewDictionary(testvalues.Page(1))
	if err != nil {
		t.Fatal(err)
	}
	with, err := Setting{Algorithm: frame.S2}.New(d)
	if err != nil {
		t.Fatal(err)
	}
	made := 0
	s := &Set{Read: []Compressor{with}, Engine: func(s Setting, d *frame.Dictionary) (Compressor, error) {
		made++
		return s.New(d)
	}}
	w := s.Writer()
	if w == nil || w.Algorithm() != frame.Zstd || w.DictionaryID() != 0 || made != 1 {
		t.Errorf("the default writes %v, %d made", w, made)
	}
	if c, err := s.Reader(ctx, frame.S2, d.ID()); c != with || err != nil {
		t.Errorf("a given reader: %v, %v", c, err)
	}
	for _, a := range algorithms {
		for range 2 {
			if c, err := s.Reader(ctx, a, 0); err != nil || c.Algorithm() != a || c.DictionaryID() != 0 {
				t.Errorf("%v: %v, %v", a, c, err)
			}
		}
	}
	if made != len(algorithms) {
		t.Errorf("%d compressors made, not one for each of %d algorithms", made, len(algorithms))
	}
	if _, err := s.Reader(ctx, frame.Zstd, d.ID()); !errors.Is(err, ErrUnknownDictionary) {
		t.Errorf("a dictionary with another algorithm: %v", err)
	}
	if _, err := s.Reader(ctx, 15, 0); !errors.Is(err, ErrUnknownAlgorithm) {
		t.Errorf("algorithm 15: %v", err)
	}
	if err := errors.Join(s.Close(), s.Close(), with.Close()); err != nil {
		t.Error(err)
	}

	given := &Set{Write: with}
	if c, err := given.Reader(ctx, frame.S2, d.ID()); given.Writer() != with || c != with || err != nil {
		t.Errorf("a given writer: %v, %v", c, err)
	}
}

func TestInvalidSet(t *testing.T) {
	for name, s := range map[string]*Set{
		"nil reader": {Read: []Compressor{None, nil}},
		"engine":     {Engine: func(Setting, *frame.Dictionary) (Compressor, error) { return nil, io.ErrUnexpectedEOF }},
	} {
		if w := s.Writer(); w != nil {
			t.Errorf("%s: the writer is %v", name, w)
		}
		want := ErrSetting
		if s.Engine != nil {
			want = io.ErrUnexpectedEOF
		}
		if c, err := s.Reader(t.Context(), frame.Stored, 0); !errors.Is(err, want) {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
}
