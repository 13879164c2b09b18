package outcome

import (
	"fmt"
	"math"

	"github.com/balekv/bale/cmd/internal/rank"
)

// Finding is what a study says of one of the things that it compares: sentences, and the figures
// that they rest on as a table.
type Finding struct {
	About   string     `json:"about"`             // "profiles, typed"; empty where it is about all
	Says    []string   `json:"says"`              // each is a sentence with its figures
	Note    string     `json:"note,omitempty"`    // what the columns are, in sentences
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
// It uses the quotients of the rounds, pair by pair: a round measures all cells one after the
// other, so that slowness hits both. The estimate is Hodges and Lehmann's, with the interval of
// Wilcoxon's signed ranks. If there are too few rounds, or they are unknown or zero, it is the
// quotient of the medians, with the interval that both intervals allow.
func (e Estimate) Over(other Estimate) (q Estimate) {
	if other.Median == 0 {
		return q
	}
	if rounds := min(len(e.Rounds), len(other.Rounds)); rounds >= rank.IntervalRounds(true) {
		x, okX := logs(other.Rounds[:rounds])
		y, okY := logs(e.Rounds[:rounds])
		if okX && okY {
			between := rank.SignedRanks(x, y)
			q.Median, q.Interval = math.Exp(between.Shift), &[2]float64{math.Exp(between.Low), math.Exp(between.High)}
			return q
		}
	}
	q.Median = e.Median / other.Median
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
