package dictops

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/dict"
)

// Training is what [Train] found.
type Training struct {
	*dict.Training
	all      bool   // every candidate is shown, else the best of each builder
	Source   string // where the values come from
	Compress string // as it was asked for
	Seconds  float64
	Given    int       // values, before anything was left out
	fields   int       // of hashes that were left out before
	LeftOut  []LeftOut // the fields that were asked to be
	File     string    // where the dictionary went
	Reason   string    // why there is none
	Go, CPU  string
	Cores    int
	report   string // file of this for machines
	flags    string // of the registry that it is published to
}

// LeftOut is a field whose contents stay out of a dictionary.
type LeftOut struct {
	Field  string `json:"field"`
	Values int    `json:"values"` // that have it
}

// WriteText writes the report.
func (r *Training) WriteText(w page.Sheet) {
	printable.Fprintf(w, "%s\n", r.Source)
	of := fmt.Sprintf("%d values of %.0f bytes in the mean trained on, %d held out", r.Samples, mean(r.SampleBytes, r.Samples), r.HeldOut)
	if r.Excluded > 0 {
		of += fmt.Sprintf(", %d left out since they are no JSON objects or lists of at most 4 MiB", r.Excluded)
	}
	if n := r.Given - r.Samples - r.HeldOut - r.Excluded; n > 0 && len(r.Candidates) > 0 {
		of += fmt.Sprintf(", %d not used: 100 times the dictionary's size is enough", n)
	}
	var leftOut []string
	for _, l := range r.LeftOut {
		leftOut = append(leftOut, fmt.Sprintf("%s in %d of %d values", l.Field, l.Values, r.Given+r.fields))
	}
	w.Wrapped(of)
	if len(leftOut) > 0 {
		w.Wrapped("contents left out: " + strings.Join(leftOut, ", "))
	}
	if r.fields > 0 {
		w.Wrapped(fmt.Sprintf("%s left out whole, and not in the figures below: packed with this dictionary, these save less",
			printable.Count(int64(r.fields), "field of a hash is", "fields of hashes are")))
	}
	if r.Elsewhere > 0 {
		w.Wrapped(fmt.Sprintf("long contents were also cut out of other fields of %d values: exclude those fields too", r.Elsewhere))
	}
	of = ""
	if len(r.Candidates) > 0 {
		of = fmt.Sprintf(" for a group of %d values", r.Values)
	}
	w.Wrapped(fmt.Sprintf("%d dictionaries tried%s in %.1f s; %s, %d cores, %s", len(r.Candidates), of, r.Seconds, r.Go, r.Cores, r.CPU))
	if r.Without.Values > 0 {
		printable.Fprintf(w, "\non held-out values, %s:\n", r.Compress)
		t := w.Table(1, "", "ratio", "without headers", "B/value in Redis", "compress µs", "decompress µs")
		t.Drop = []string{"decompress µs", "compress µs", "without headers"}
		row := func(name string, m dict.Measure) {
			if m.Values > 0 {
				t.Row(name, fmt.Sprintf("%.2f", m.Ratio()), fmt.Sprintf("%.2f", m.PayloadRatio()), fmt.Sprintf("%.0f", m.AllocatedPerValue()), micros(m.CompressNs), micros(m.DecompressNs))
			}
		}
		row("without a dictionary", r.Without)
		row("with the current one", r.Current)
		row("with the dictionary", r.With)
		row("if nothing was left out", r.Whole)
		t.Render()
	}
	if len(r.Candidates) > 0 {
		printable.Fprintf(w, "\n%s:\n", map[bool]string{true: "all that were tried", false: "the best of each builder"}[r.all])
		r.candidates(w)
	}
	printable.Fprintf(w, "\n")
	w.Wrapped(r.verdict())
	if r.Dictionary != nil {
		publish := "bale dict publish " + printable.Shell(r.File) + " --group NAME"
		if r.report != "" {
			publish += " --training " + printable.Shell(r.report) // or dict list has no ratio
		}
		printable.Fprintf(w, "\nPublish it to the group of keys that it is for:\n    %s\n", strings.TrimSpace(publish+" "+r.flags))
	}
}

func (r *Training) candidates(w page.Sheet) {
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
	t := w.Table(2, "builder", "", "size", "ratio", "without headers", "B/value in Redis")
	t.Drop = []string{"without headers", "ratio"}
	var failed []string
	for _, c := range shown {
		name, note := strings.TrimSpace(c.Builder+" "+c.Params), ""
		if c.Error != "" {
			failed = append(failed, fmt.Sprintf("%s, %s: %s", name, printable.Size(c.Asked), strings.TrimPrefix(c.Error, c.Builder+": ")))
			continue
		}
		if r.isWinner(c) {
			note = "chosen"
		}
		t.Row(name, note, printable.Size(c.Size), fmt.Sprintf("%.2f", c.HeldOut.Ratio()), fmt.Sprintf("%.2f", c.HeldOut.PayloadRatio()), fmt.Sprintf("%.0f", c.HeldOut.AllocatedPerValue()))
	}
	if t.Len() > 0 {
		t.Render()
	}
	w.Wrapped(failed...)
}

func (r *Training) isWinner(c dict.Candidate) bool {
	return r.Dictionary != nil && c.Error == "" && c.Builder == r.Winner.Builder && c.Params == r.Winner.Params && c.Asked == r.Winner.Asked
}

func (r *Training) verdict() string {
	if r.Dictionary == nil {
		more := ""
		if r.With.Values > 0 {
			more = " If there will be more values, say how many with --values."
		}
		return "No dictionary was written: " + strings.TrimPrefix(r.Reason, dict.ErrNoDictionary.Error()+": ") + "." + more
	}
	saved := 1 - float64(r.With.AllocatedBytes)/float64(r.Without.AllocatedBytes)
	refitted := ": expect a little less"
	if r.Refitted > 0 {
		refitted = fmt.Sprintf(", made of values of the other half. The one in the file is made of %d values of both halves: 100 times its size, where there are as many", r.Refitted)
	}
	return fmt.Sprintf("Dictionary %v, %s by %s, is in %s. It saves %.0f%% of the %.0f bytes that Redis takes for a value packed without one, and its own memory from %d values on. "+
		"The figures are those of the best of %d on the values it was chosen on%s.",
		r.Dictionary.ID(), printable.Size(len(r.Dictionary.Bytes())), strings.TrimSpace(r.Winner.Builder+" "+r.Winner.Params), r.File, 100*saved, r.Without.AllocatedPerValue(), r.PaysFrom(), len(r.Candidates), refitted)
}

// TrainingJSON is the report for machines.
type TrainingJSON struct {
	Source      string           `json:"source"`
	Compress    string           `json:"compress"`
	Go          string           `json:"go"`
	CPU         string           `json:"cpu"`
	Cores       int              `json:"cores"`
	Seconds     float64          `json:"seconds"`
	Samples     int              `json:"samples"`
	SampleBytes int64            `json:"sample_bytes"`
	HeldOut     int              `json:"held_out"`
	Serves      int64            `json:"serves"`             // values, in the group
	Excluded    int              `json:"excluded"`           // left out since they are no JSON objects or lists of at most 4 MiB
	Refitted    int              `json:"refitted,omitempty"` // values that the dictionary in the file is made of
	LeftOut     []LeftOut        `json:"left_out,omitempty"`
	File        string           `json:"file,omitempty"`
	Reason      string           `json:"reason,omitempty"`
	PaysFrom    int              `json:"pays_from_values,omitempty"`
	Winner      *dict.Candidate  `json:"winner,omitempty"`
	Without     dict.Measure     `json:"without"`
	Current     *dict.Measure    `json:"current,omitempty"`
	With        *dict.Measure    `json:"with,omitempty"`
	Whole       *dict.Measure    `json:"whole,omitempty"`         // if nothing was left out
	Ratio       float64          `json:"ratio,omitempty"`         // with the dictionary
	Payload     float64          `json:"payload_ratio,omitempty"` // without bale's headers
	Candidates  []dict.Candidate `json:"candidates"`
}

// Schema is the one of the JSON, in docs/schemas.
func (r *Training) Schema() string { return "train-v2" }

// MarshalJSON writes the report for machines.
func (r *Training) MarshalJSON() ([]byte, error) {
	out := &TrainingJSON{
		Source: r.Source, Compress: r.Compress, Go: r.Go, CPU: r.CPU, Cores: r.Cores, Seconds: r.Seconds, Samples: r.Samples, SampleBytes: r.SampleBytes,
		HeldOut: r.HeldOut, Serves: r.Values, Excluded: r.Excluded, Refitted: r.Refitted, LeftOut: r.LeftOut, Reason: r.Reason, Without: r.Without, Candidates: r.Candidates,
	}
	if r.Current.Values > 0 {
		out.Current = &r.Current
	}
	if r.With.Values > 0 {
		out.With, out.Ratio, out.Payload = &r.With, r.With.Ratio(), r.With.PayloadRatio()
	}
	if r.Whole.Values > 0 {
		out.Whole = &r.Whole
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
