package resilience

import (
	"fmt"
	"slices"

	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/page"
)

const method = "500 calls start each second on schedule, whatever became of earlier ones, and each has 200 ms. A call is good if its answer comes in time; every answer is checked. " +
	"The HTTP server is a process of its own with eight workers, which take 10 ms for an answer: 800 a second. In the middle third of the time it has the fault; it does the work for callers who have left, as most servers do. " +
	"Breaker: opens when half of the calls of a second fail, for 0.3 s at first. Limit: healthy calls take 11 ms. Hedge: after the P95. Retry: three tries. All: these, and a time-out of 200 ms. None: the deadline alone."

// describe makes tables and pictures of the cells, which are by scenario.
func describe(report *outcome.Report, all [][]*cell) {
	var cells []Cell
	e := &report.Environment
	for _, made := range all {
		var of []Cell
		for _, c := range made {
			of = append(of, c.result())
			if of[len(of)-1].Phases[before].Good.Median == 0 {
				report.Failures = append(report.Failures, fmt.Sprintf("FAILED: %s, %s: no call was good before the fault", c.scenario.name, c.policy.name))
			}
		}
		s := made[0].scenario
		report.Findings = append(report.Findings, s.finding(of))
		report.Charts = append(report.Charts, s.chart(of, e.DurationS/float64(e.Rounds)))
		cells = append(cells, of...)
	}
	report.Cells = cells
}

// percent is a share.
func percent(e outcome.Estimate) outcome.Figure {
	e.Median *= 100
	if e.Interval != nil {
		e.Interval = &[2]float64{100 * e.Interval[0], 100 * e.Interval[1]}
	}
	f := outcome.Measured(e, 0)
	f.Text += "%"
	return f
}

// said is a share in a sentence.
func said(e outcome.Estimate) string {
	f := percent(e)
	if f.Range == "" {
		return f.Text
	}
	return f.Text + " (" + f.Range + ")"
}

// asked names what [Phase.Asked] counts.
func (s *scenario) asked() string {
	if s.redis {
		return "loads"
	}
	return "asked"
}

// finding is the table of a scenario, and what it says.
func (s *scenario) finding(cells []Cell) outcome.Finding {
	f := outcome.Finding{About: s.title, Columns: []string{"policy", "before", "during", "after", "P99", "refused", s.asked()},
		Legend: []string{s.about, "Before, during, after: good calls", "P99: ms that callers waited for an answer or an error, during the fault",
			"Refused: by the policy per call, during the fault"}}
	if s.redis {
		f.Legend = append(f.Legend, "Loads: of the value per call, during the fault")
	} else {
		f.Legend = append(f.Legend, "Asked: requests that the server got per call, during the fault")
	}
	for _, c := range cells {
		ill := c.Phases[during]
		f.Rows = append(f.Rows, []outcome.Figure{
			outcome.Words(c.Policy), percent(c.Phases[before].Good), percent(ill.Good), percent(c.Phases[after].Good),
			outcome.Measured(ill.P99, 1), outcome.Measured(ill.Refused, 2), outcome.Measured(ill.Asked, 2),
		})
	}
	bare := &cells[0].Phases
	for _, c := range cells[1:] {
		ill, well := &c.Phases[during], &c.Phases[after]
		f.Claims = append(f.Claims, fmt.Sprintf("With %s, %s of the calls are good during the fault and %s after it; without, %s and %s.",
			c.Policy, said(ill.Good), said(well.Good), said(bare[during].Good), said(bare[after].Good)))
		if ill.P99.Over(bare[during].P99).Interval != nil { // a ratio of single rounds is noise
			f.Claims = append(f.Claims, fmt.Sprintf("With %s, P99 is %s that without.", c.Policy, ill.P99.Times(bare[during].P99)))
		}
	}
	return f
}

// chart are the pictures of a scenario; a turn takes this many seconds.
func (s *scenario) chart(cells []Cell, seconds float64) outcome.Chart {
	tick := func(v float64) string { return outcome.Number(v, 0) }
	chart := outcome.Chart{Title: s.title, Note: s.about + ". The fault lasts for the shaded time."}
	for _, picture := range []struct {
		title string
		tick  func(float64) string
		rare  bool // not all policies have it
		of    func(*Moments) []float64
	}{
		{"Good calls a second", tick, false, func(m *Moments) []float64 { return m.Good }},
		{"What callers wait for, P99", func(v float64) string { return page.Short(v) + " ms" }, false, func(m *Moments) []float64 { return m.P99 }},
		{"Requests refused a second", tick, true, func(m *Moments) []float64 { return m.Refused }},
		{"The limit: requests in flight", tick, true, func(m *Moments) []float64 { return m.Limit }},
	} {
		series := outcome.Series{Title: picture.title, At: cells[0].Moments.AtS, Shaded: [2]float64{seconds / phases, 2 * seconds / phases}, Tick: picture.tick}
		shown := false
		for _, c := range cells {
			line := outcome.Line{Name: c.Policy}
			if points := picture.of(&c.Moments); !picture.rare || slices.Max(points) > 0 {
				line.Points, shown = points, true
			}
			series.Lines = append(series.Lines, line)
		}
		if shown {
			chart.Series = append(chart.Series, series)
		}
	}
	return chart
}
