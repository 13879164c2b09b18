package outcome

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/balekv/bale/cmd/internal/rank"
)

// Finding is what a study says of one of the things that it compares: sentences, and the figures
// that they rest on as a table.
type Finding struct {
	About   string     `json:"about"`             // "profiles, typed"; empty where it is about all
	Claims  []string   `json:"claims"`            // each is a sentence with its figures
	Legend  []string   `json:"legend,omitempty"`  // explains the columns, an item each, without a full stop
	Columns []string   `json:"columns,omitempty"` // none where there is no table
	Rows    [][]Figure `json:"rows,omitempty"`    // a figure for each column; the first of a row is its name
}

// Figure is a field of a finding's table.
type Figure struct {
	Text  string   `json:"text"`            // empty where there is none
	Value *float64 `json:"value,omitempty"` // that Text shows; nil for words
	Range string   `json:"range,omitempty"` // the 95% interval: "1.40 to 1.66"
	Best  bool     `json:"best,omitempty"`  // of its column, or without a significant difference from it
	Same  bool     `json:"same,omitempty"`  // without a significant difference from what it is compared with
}

// NewEstimate is the median of a figure over rounds, with its interval where there are enough of
// them.
func NewEstimate(rounds []float64) Estimate {
	if len(rounds) == 0 {
		return Estimate{}
	}
	e := Estimate{Median: rank.Median(rounds), Rounds: rounds}
	if low, high, ok := rank.MedianInterval(rounds); ok {
		e.Interval = &[2]float64{low, high}
	}
	return e
}

// Around is e with the figure of all rounds together for its median, and its interval made wider
// where that is not in there. So a percentile fits the other percentiles of a cell, and what one
// bad round has among the slowest is not lost.
func (e Estimate) Around(all float64) Estimate {
	if e.Interval != nil {
		e.Interval = &[2]float64{min(e.Interval[0], all), max(e.Interval[1], all)}
	}
	e.Median = all
	return e
}

// Over is how many times another one e is. Its median is 0 where the other's is.
//
// It is the quotient of the medians, which stand beside it. The interval is of the quotients of the
// rounds, pair by pair: a round measures all cells one after the other, so that slowness hits both.
// It is that of Wilcoxon's signed ranks, wider where the quotient is not in there. If there are too
// few rounds, or they are unknown or zero, it is what both intervals allow.
func (e Estimate) Over(other Estimate) (q Estimate) {
	if other.Median == 0 {
		return q
	}
	q.Median = e.Median / other.Median
	if rounds := min(len(e.Rounds), len(other.Rounds)); rounds >= rank.IntervalRounds(true) {
		x, okX := logs(other.Rounds[:rounds])
		y, okY := logs(e.Rounds[:rounds])
		if okX && okY {
			between := rank.SignedRanks(x, y)
			q.Interval = &[2]float64{math.Exp(between.Low), math.Exp(between.High)}
			return q.Around(q.Median)
		}
	}
	if e.Interval != nil && other.Interval != nil && other.Interval[0] > 0 {
		q.Interval = &[2]float64{e.Interval[0] / other.Interval[1], e.Interval[1] / other.Interval[0]}
	}
	return q
}

// logs are the logarithms of values, if all have one.
func logs(values []float64) ([]float64, bool) {
	out := make([]float64, len(values))
	for i, v := range values {
		if v <= 0 {
			return nil, false
		}
		out[i] = math.Log(v)
	}
	return out, true
}

// Apart reports whether e differs significantly from another estimate. The interval of their
// quotient must exclude 1. If there is none, the two intervals must not overlap; without them Apart
// is false.
func (e Estimate) Apart(other Estimate) bool {
	if q := e.Over(other); q.Interval != nil {
		return q.Interval[0] > 1 || q.Interval[1] < 1
	}
	return e.Interval != nil && other.Interval != nil && (e.Interval[0] > other.Interval[1] || e.Interval[1] < other.Interval[0])
}

// Since is how much more an estimate is than that of another run: 0.1 is a tenth. It is significant
// if Mann and Whitney's test finds it, for the rounds of two runs are no pairs.
func (e Estimate) Since(was Estimate) (change float64, significant bool) {
	if was.Median == 0 {
		return 0, false
	}
	change = e.Median/was.Median - 1
	if len(was.Rounds) == 0 || len(e.Rounds) == 0 {
		return change, false
	}
	between := rank.Unpaired(was.Rounds, e.Rounds)
	return change, between.Bounded && (between.Low > 0 && change > 0 || between.High < 0 && change < 0)
}

// Times says how many times another one e is: "1.52 times (1.40 to 1.66)", with the interval of
// [Estimate.Over], and whether noise may be all of it.
func (e Estimate) Times(other Estimate) string {
	q := e.Over(other)
	switch {
	case other.Median == 0:
		return "unknown times"
	case q.Interval == nil:
		return fmt.Sprintf("%.2f times", q.Median)
	case !e.Apart(other):
		return fmt.Sprintf("%.2f times (%.2f to %.2f: no significant difference)", q.Median, q.Interval[0], q.Interval[1])
	}
	return fmt.Sprintf("%.2f times (%.2f to %.2f)", q.Median, q.Interval[0], q.Interval[1])
}

// Words is a name in a table.
func Words(s string) Figure { return Figure{Text: s} }

// Exact is a figure without noise.
func Exact(v float64, decimals int) Figure {
	return Figure{Text: Number(v, decimals), Value: &v}
}

// Measured is a figure with its interval, unless that has the same digits.
func Measured(e Estimate, decimals int) Figure {
	f := Exact(e.Median, decimals)
	if e.Interval != nil {
		low, high := Number(e.Interval[0], decimals), Number(e.Interval[1], decimals)
		if low != f.Text || high != f.Text {
			f.Range = low + " to " + high
		}
	}
	return f
}

// Against is how many times another estimate one is; it is nothing against itself.
func Against(e, other Estimate) Figure {
	q := e.Over(other)
	if q.Median == 0 {
		return Figure{}
	}
	f := Measured(q, 2)
	f.Same = q.Interval != nil && !e.Apart(other)
	return f
}

// Marked is a figure that is the best of its column, or without a significant difference from it.
func Marked(f Figure, best bool) Figure {
	f.Best = best
	return f
}

// InSentence is an estimate in a sentence: "1,219 (1,180 to 1,301)".
func InSentence(e Estimate, decimals int) string {
	f := Measured(e, decimals)
	if f.Range == "" {
		return f.Text
	}
	return f.Text + " (" + f.Range + ")"
}

// Number has commas between thousands; decimals only where there are few digits before them.
func Number(v float64, decimals int) string {
	if v >= 100 && decimals < 2 {
		decimals = 0
	}
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(v, 'f', decimals, 64), ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction == "" {
		return whole
	}
	return whole + "." + fraction
}
