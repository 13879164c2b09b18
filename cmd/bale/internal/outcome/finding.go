package outcome

import (
	"fmt"
	"math"

	"golang.org/x/perf/benchmath"
)

// Finding is what a study says of one of the things that it compares: sentences, and the figures that they rest on as a table.
type Finding struct {
	About   string     `json:"about"`             // "profiles, typed"; empty where it is about all
	Says    []string   `json:"says"`              // each is a sentence with its figures
	Note    string     `json:"note,omitempty"`    // what the columns are, in sentences
	Columns []string   `json:"columns,omitempty"` // none where there is no table
	Rows    [][]Figure `json:"rows,omitempty"`    // a figure for each column; the first of a row is its name
}

// Figure is a field of a finding's table.
type Figure struct {
	Text  string `json:"text"`            // empty where there is none
	Range string `json:"range,omitempty"` // the 95% interval: "1.40 to 1.66"
	Best  bool   `json:"best,omitempty"`  // of its column, or not told from it
	Same  bool   `json:"same,omitempty"`  // not told from what it is compared with
}

const confidence = 0.95

// NewEstimate is the median of a figure over rounds, with its interval where there are enough of them.
func NewEstimate(rounds []float64) Estimate {
	if len(rounds) == 0 {
		return Estimate{}
	}
	summary := benchmath.AssumeNothing.Summary(benchmath.NewSample(rounds, &benchmath.DefaultThresholds), confidence)
	e := Estimate{Median: summary.Center}
	if !math.IsInf(summary.Lo, 0) && !math.IsInf(summary.Hi, 0) {
		e.Interval = &[2]float64{summary.Lo, summary.Hi}
	}
	return e
}

// Over is how many times another one e is, with the range that their intervals leave. Its median is 0 where the other's is.
func (e Estimate) Over(other Estimate) (q Estimate) {
	if other.Median == 0 {
		return q
	}
	q.Median = e.Median / other.Median
	if e.Interval != nil && other.Interval != nil && other.Interval[0] > 0 {
		q.Interval = &[2]float64{e.Interval[0] / other.Interval[1], e.Interval[1] / other.Interval[0]}
	}
	return q
}

// Apart reports whether the intervals of two estimates have nothing in common. They have where one has none.
func (e Estimate) Apart(other Estimate) bool {
	return e.Interval != nil && other.Interval != nil && (e.Interval[0] > other.Interval[1] || e.Interval[1] < other.Interval[0])
}

// Times says how many times another one e is: "1.52 times (1.40 to 1.66)", with the range that their intervals leave, and whether noise may be all of it.
func (e Estimate) Times(other Estimate) string {
	q := e.Over(other)
	switch {
	case other.Median == 0:
		return "unknown times"
	case q.Interval == nil:
		return fmt.Sprintf("%.2f times", q.Median)
	case !e.Apart(other):
		return fmt.Sprintf("%.2f times (%.2f to %.2f: not told apart)", q.Median, q.Interval[0], q.Interval[1])
	}
	return fmt.Sprintf("%.2f times (%.2f to %.2f)", q.Median, q.Interval[0], q.Interval[1])
}
