package outcome

import (
	"fmt"
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/page"
)

// TestSeries: a picture over time has a line and a name for each series with points, in the colour
// of its place, and a ground for the shaded time.
func TestSeries(t *testing.T) {
	s := Series{
		Title: "Good calls", At: []float64{0.5, 1.5, 2.5, 3.5}, Shaded: [2]float64{1, 3}, Tick: func(v float64) string { return fmt.Sprint(v) },
		Lines: []Line{{"none", []float64{500, 0, 0, 500}}, {"breaker", nil}, {"limit", []float64{500, 400, 400, 500}}},
	}
	for _, width := range []page.Px{panelWidth, wideWidth} {
		svg := string(s.draw("id", width).SVG())
		for want, n := range map[string]int{`class="curve hue-a"`: 1, `class="lead hue-a"`: 1, `class="curve hue-b"`: 0, `class="curve hue-c"`: 1, `class="lead hue-c"`: 1, `class="hatch-ground"`: 1, ">none<": 1, ">breaker<": 0, ">limit<": 1, "none at most 500, limit at most 500": 1} {
			if got := strings.Count(svg, want); got != n {
				t.Errorf("%v: %s is there %d times, not %d:\n%s", width, want, got, n, svg)
			}
		}
	}
	if d := (&Series{}).draw("id", panelWidth); d != nil {
		t.Errorf("no points make %+v", d)
	}
	s = Series{At: []float64{1}, Lines: []Line{{"one", []float64{0}}}, Tick: s.Tick}
	if svg := string(s.draw("id", panelWidth).SVG()); strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Errorf("%s", svg)
	}
}

// TestPercentilesPicture: both lines of a distribution are drawn.
func TestPercentilesPicture(t *testing.T) {
	points := []Point{{0.01, 5000}, {0.5, 6000}, {0.99, 20_000}, {1, 30_000}}
	p := Percentiles{Title: "500 a second", Lines: []Distribution{{"tuned", points, points}, {"default", points, nil}, {"failed", nil, nil}}}
	svg := string(p.draw("id", panelWidth).SVG())
	for want, n := range map[string]int{`class="curve service hue-a"`: 1, `class="curve hue-a"`: 1, `class="curve hue-b"`: 1, `class="curve hue-c"`: 0, ">tuned<": 1} {
		if got := strings.Count(svg, want); got != n {
			t.Errorf("%s is there %d times, not %d:\n%s", want, got, n, svg)
		}
	}
}
