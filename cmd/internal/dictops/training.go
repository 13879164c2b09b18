package dictops

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/dict"
	"github.com/jedib0t/go-pretty/v6/table"
)

// Training is what [Train] found.
type Training struct {
	*dict.Training
	all      bool   // every candidate is shown, else the best of each builder
	Source   string // where the values come from
	Compress string // as it was asked for
	Seconds  float64
	Values   int       // there were, before anything was left out
	LeftOut  []LeftOut // the fields that were asked to be
	File     string    // where the dictionary went
	Reason   string    // why there is none
	Engine   string
	Lacking  string // what another build would have tried, if anything
	Go, CPU  string
	Cores    int
}

// LeftOut is a field whose contents stay out of a dictionary.
type LeftOut struct {
	Field  string `json:"field"`
	Values int    `json:"values"` // that have it
}

// WriteText writes the report.
func (r *Training) WriteText(w io.Writer) {
	printable.Fprintf(w, "%s\n%d values of %.0f bytes in the mean trained on, %d held out", r.Source, r.Samples, mean(r.SampleBytes, r.Samples), r.HeldOut)
	if r.Excluded > 0 {
		printable.Fprintf(w, ", %d left out since they are not JSON", r.Excluded)
	}
	for i, l := range r.LeftOut {
		if i == 0 {
			printable.Fprintf(w, "\ncontents left out: ")
		} else {
			printable.Fprintf(w, ", ")
		}
		printable.Fprintf(w, "%s in %d of %d values", l.Field, l.Values, r.Values)
	}
	printable.Fprintf(w, "\n%d dictionaries tried in %.1f s with %s; %s, %d cores, %s\n", len(r.Candidates), r.Seconds, r.Engine, r.Go, r.Cores, r.CPU)
	if r.Without.Values > 0 {
		printable.Fprintf(w, "\non held-out values, %s:\n", r.Compress)
		t := page.NewTable(w, 2, 1, "", "ratio", "without headers", "B/value in Redis", "compress µs", "decompress µs")
		row := func(name string, m dict.Measure) {
			if m.Values > 0 {
				t.AppendRow(table.Row{name, fmt.Sprintf("%.2f", m.Ratio()), fmt.Sprintf("%.2f", m.PayloadRatio()), fmt.Sprintf("%.0f", m.AllocatedPerValue()), micros(m.CompressNs), micros(m.DecompressNs)})
			}
		}
		row("without a dictionary", r.Without)
		row("with the current one", r.Current)
		row("with the dictionary", r.With)
		t.Render()
	}
	if len(r.Candidates) > 0 {
		printable.Fprintf(w, "\n%s:\n", map[bool]string{true: "all that were tried", false: "the best of each builder"}[r.all])
		r.candidates(w)
	}
	printable.Fprintf(w, "\n")
	page.NewSheet(w, 0).Wrapped(r.verdict(), r.Lacking)
}

func (r *Training) candidates(w io.Writer) {
	shown := slices.Clone(r.Candidates)
	slices.SortStableFunc(shown, func(a, b dict.Candidate) int {
		return cmp.Or(cmp.Compare(min(len(a.Error), 1), min(len(b.Error), 1)), cmp.Compare(a.HeldOut.AllocatedBytes, b.HeldOut.AllocatedBytes))
	})
	if !r.all { // the chosen one, and the best of each other builder
		seen := map[string]bool{r.Winner.Builder: r.Dictionary != nil}
		shown = slices.DeleteFunc(shown, func(c dict.Candidate) bool {
			if r.isWinner(c) {
				return false
			}
			if seen[c.Builder] {
				return true
			}
			seen[c.Builder] = true
			return false
		})
	}
	t := page.NewTable(w, 2, 2, "builder", "", "bytes", "ratio", "without headers", "B/value in Redis")
	var failed []string
	for _, c := range shown {
		name, note := strings.TrimSpace(c.Builder+" "+c.Params), ""
		if c.Error != "" {
			failed = append(failed, fmt.Sprintf("%s, %d bytes: %s", name, c.Asked, strings.TrimPrefix(c.Error, c.Builder+": ")))
			continue
		}
		if r.isWinner(c) {
			note = "chosen"
		}
		t.AppendRow(table.Row{name, note, c.Size, fmt.Sprintf("%.2f", c.HeldOut.Ratio()), fmt.Sprintf("%.2f", c.HeldOut.PayloadRatio()), fmt.Sprintf("%.0f", c.HeldOut.AllocatedPerValue())})
	}
	if t.Length() > 0 {
		t.Render()
	}
	page.NewSheet(w, 0).Wrapped(failed...)
}

func (r *Training) isWinner(c dict.Candidate) bool {
	return r.Dictionary != nil && c.ID == r.Winner.ID && c.Builder == r.Winner.Builder && c.Params == r.Winner.Params && c.Asked == r.Winner.Asked
}

func (r *Training) verdict() string {
	if r.Dictionary == nil {
		return "No dictionary was written: " + strings.TrimPrefix(r.Reason, dict.ErrNoDictionary.Error()+": ") + "."
	}
	saved := 1 - float64(r.With.AllocatedBytes)/float64(r.Without.AllocatedBytes)
	return fmt.Sprintf("Dictionary %v, %d bytes by %s, is in %s. It saves %.0f%% of the %.0f bytes that Redis takes for a value without one, and its own memory from %d values on. "+
		"The figures are those of the best of %d on the values it was chosen on: expect a little less.",
		r.Dictionary.ID(), len(r.Dictionary.Bytes()), strings.TrimSpace(r.Winner.Builder+" "+r.Winner.Params), r.File, 100*saved, r.Without.AllocatedPerValue(), r.PaysFrom(), len(r.Candidates))
}

// trainingJSON is the report for machines.
type trainingJSON struct {
	Source      string           `json:"source"`
	Compress    string           `json:"compress"`
	Engine      string           `json:"engine"`
	Go          string           `json:"go"`
	CPU         string           `json:"cpu"`
	Cores       int              `json:"cores"`
	Seconds     float64          `json:"seconds"`
	Samples     int              `json:"samples"`
	SampleBytes int64            `json:"sample_bytes"`
	HeldOut     int              `json:"held_out"`
	Excluded    int              `json:"excluded"` // left out since they are not JSON
	LeftOut     []LeftOut        `json:"left_out,omitempty"`
	File        string           `json:"file,omitempty"`
	Reason      string           `json:"reason,omitempty"`
	Lacking     string           `json:"lacking,omitempty"`
	PaysFrom    int              `json:"pays_from_values,omitempty"`
	Winner      *dict.Candidate  `json:"winner,omitempty"`
	Without     dict.Measure     `json:"without"`
	Current     *dict.Measure    `json:"current,omitempty"`
	With        *dict.Measure    `json:"with,omitempty"`
	Ratio       float64          `json:"ratio,omitempty"`         // with the dictionary
	Payload     float64          `json:"payload_ratio,omitempty"` // without bale's headers
	Candidates  []dict.Candidate `json:"candidates"`
}

// MarshalJSON writes the report for machines.
func (r *Training) MarshalJSON() ([]byte, error) {
	out := &trainingJSON{
		Source: r.Source, Compress: r.Compress, Engine: r.Engine, Go: r.Go, CPU: r.CPU, Cores: r.Cores, Seconds: r.Seconds, Samples: r.Samples, SampleBytes: r.SampleBytes,
		HeldOut: r.HeldOut, Excluded: r.Excluded, LeftOut: r.LeftOut, Reason: r.Reason, Lacking: r.Lacking, Without: r.Without, Candidates: r.Candidates,
	}
	if r.Current.Values > 0 {
		out.Current = &r.Current
	}
	if r.With.Values > 0 {
		out.With, out.Ratio, out.Payload = &r.With, r.With.Ratio(), r.With.PayloadRatio()
	}
	if r.Dictionary != nil {
		out.Winner, out.File, out.PaysFrom = &r.Winner, r.File, r.PaysFrom()
	}
	return json.Marshal(out)
}

func mean(total int64, n int) float64 {
	if n == 0 {
		return 0
	}
	return float64(total) / float64(n)
}

func micros(ns float64) string {
	if ns == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", ns/1000)
}
