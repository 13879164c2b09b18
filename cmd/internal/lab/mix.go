package lab

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Mix selects the operations and their keys. With the zero Mix an operation writes a value and
// reads it back, on keys of the caller's own.
type Mix struct {
	// Gets and Sets are the shares of operations that are a single GET or SET: 90 and 10 for nine
	// GETs to a SET. All callers share the keys, and every key holds a value. If both are zero, an
	// operation is a SET and a GET of the same value.
	Gets, Sets int

	// Misses is the share of GETs that are of a key without a value, 0 to 1.
	Misses float64

	// Zipf is the exponent of the popularity of keys: the k-th most popular one has a share of
	// 1/k^Zipf; 0 for all alike, 0.99 as in YCSB.
	Zipf float64
}

// ErrMix: the Mix is invalid.
var ErrMix = errors.New("no such mix")

const (
	maxShare = 1_000_000
	maxZipf  = 10
)

// ParseMix reads GETS:SETS, for example 90:10; the empty string is the zero Mix.
func ParseMix(s string) (Mix, error) {
	if s == "" {
		return Mix{}, nil
	}
	gets, sets, ok := strings.Cut(s, ":")
	g, err1 := strconv.Atoi(gets)
	w, err2 := strconv.Atoi(sets)
	if !ok || err1 != nil || err2 != nil || g < 0 || w < 0 || g > maxShare || w > maxShare || g+w == 0 {
		return Mix{}, fmt.Errorf("%w: %q; it is GETS:SETS, for example 90:10", ErrMix, s)
	}
	return Mix{Gets: g, Sets: w}, nil
}

// UnmarshalText is ParseMix, for options.
func (m *Mix) UnmarshalText(text []byte) (err error) {
	*m, err = ParseMix(string(text))
	return err
}

// Validate returns an error if the Mix is invalid.
func (m Mix) Validate() error {
	switch {
	case !(m.Misses >= 0 && m.Misses <= 1):
		return fmt.Errorf("%w: hit rate %v, must be 0 to 1", ErrMix, 1-m.Misses)
	case !(m.Zipf >= 0 && m.Zipf <= maxZipf):
		return fmt.Errorf("%w: Zipf exponent %v, must be 0 to %d", ErrMix, m.Zipf, maxZipf)
	case !m.Single() && (m.Misses != 0 || m.Zipf != 0):
		return fmt.Errorf("%w: a hit rate and a Zipf exponent are of single GETs and SETs: say how many of each, for example 90:10", ErrMix)
	}
	return nil
}

// Single reports whether operations are single GETs and SETs.
func (m Mix) Single() bool { return m.Gets+m.Sets > 0 }

// Proportion is GETS:SETS; empty for the zero Mix.
func (m Mix) Proportion() string {
	if !m.Single() {
		return ""
	}
	return fmt.Sprintf("%d:%d", m.Gets, m.Sets)
}

// String describes an operation.
func (m Mix) String() string {
	if !m.Single() {
		return "an operation is a value written and read back"
	}
	s := fmt.Sprintf("of %d operations %d are a GET and %d a SET", m.Gets+m.Sets, m.Gets, m.Sets)
	if m.Misses > 0 {
		s += fmt.Sprintf(", %.3g%% of the GETs find a value", 100*(1-m.Misses))
	}
	if m.Zipf > 0 {
		s += fmt.Sprintf(", keys by a Zipf distribution of exponent %.3g", m.Zipf)
	}
	return s
}

// popularity draws keys.
type popularity struct {
	keys int
	sums []float64 // of the shares of the first keys, for Zipf
}

func (m Mix) popularity(keys int) *popularity {
	p := &popularity{keys: keys}
	if m.Zipf > 0 {
		p.sums = make([]float64, keys)
		sum := 0.0
		for i := range p.sums {
			sum += math.Pow(float64(i+1), -m.Zipf)
			p.sums[i] = sum
		}
	}
	return p
}

// draw returns a key's number. By Zipf, neighbours in popularity are far apart among the keys.
func (p *popularity) draw(rng *rand.Rand) int {
	if p.sums == nil {
		return rng.IntN(p.keys)
	}
	return p.rank(min(sort.SearchFloat64s(p.sums, rng.Float64()*p.sums[len(p.sums)-1]), p.keys-1))
}

// rank is the key of a rank, from 0.
func (p *popularity) rank(i int) int {
	const prime = 7_368_787 // more than there are keys, so that ranks and keys are one to one
	return i * prime % p.keys
}

// Batch is how values travel: one by one if zero.
type Batch struct {
	MSet bool // by MSET and MGET; else by a pipeline of SETs and one of GETs
	N    int  // values in one; 0 for one by one, each by a command of its own
}

// ErrBatch: there is no such kind of batch.
var ErrBatch = errors.New("no such batch")

// BatchSyntax is Batch as help texts show it.
const BatchSyntax = "single, pipeline:N or mset:N"

const (
	maxBatch = 100_000
	single   = "single"
)

// ParseBatch reads single, pipeline:N or mset:N.
func ParseBatch(s string) (Batch, error) {
	if s == single {
		return Batch{}, nil
	}
	kind, number, _ := strings.Cut(s, ":")
	n, err := strconv.Atoi(number)
	if !slices.Contains([]string{"pipeline", "mset"}, kind) || err != nil || n < 1 || n > maxBatch {
		return Batch{}, fmt.Errorf("%w: %q; there are %s, with N from 1 to %d", ErrBatch, s, BatchSyntax, maxBatch)
	}
	return Batch{kind == "mset", n}, nil
}

// UnmarshalText is ParseBatch, for options.
func (b *Batch) UnmarshalText(text []byte) (err error) {
	*b, err = ParseBatch(string(text))
	return err
}

// String is the inverse of ParseBatch, but empty for one by one.
func (b Batch) String() string {
	switch {
	case b.N == 0:
		return ""
	case b.MSet:
		return fmt.Sprintf("mset:%d", b.N)
	}
	return fmt.Sprintf("pipeline:%d", b.N)
}

// values is how many go together.
func (b Batch) values() int { return max(1, b.N) }
