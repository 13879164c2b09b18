package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/frame"
)

// Result is what was found. Its fields are those of the JSON.
type Result struct {
	Redis       string             `json:"redis"`
	Database    int                `json:"database"`
	Match       []string           `json:"match,omitempty"`
	Keys        int64              `json:"keys"`   // looked at
	Values      int64              `json:"values"` // read: strings, and fields of hashes
	Plain       keyspace.Tally     `json:"plain"`
	Packed      []Packed           `json:"packed"` // that can be unpacked, by what they were packed with
	Absent      int64              `json:"absent"` // frames that say that there is no value
	Streams     int64              `json:"streams"`
	Journals    int64              `json:"journals,omitempty"` // of streams that are written, or whose writer died
	Mended      int64              `json:"mended,omitempty"`   // streams, and interrupted writes that were tidied up
	Others      int64              `json:"other_type"`         // keys
	Registry    int64              `json:"registry"`           // keys
	TooLarge    int64              `json:"too_large"`          // strings beyond 64 MiB, which were not read
	LargeFields int64              `json:"large_fields"`       // fields of hashes beyond 8 MiB, which were not read
	Restored    int64              `json:"restored,omitempty"` // dictionaries that came back from quarantine
	Bad         int64              `json:"bad"`
	Causes      map[string]int64   `json:"causes,omitempty"` // of the bad ones
	Named       []keyspace.Problem `json:"named,omitempty"`  // the first of each cause

	Seconds     float64 `json:"seconds"`
	Complete    bool    `json:"complete"`
	Interrupted bool    `json:"interrupted,omitempty"`
}

// Packed are those with one algorithm and dictionary.
type Packed struct {
	Algorithm  string             `json:"algorithm"`
	Dictionary frame.DictionaryID `json:"dictionary"`
	Values     int64              `json:"values"`
	Bytes      int64              `json:"bytes"` // as stored
	PlainBytes int64              `json:"plain_bytes"`
}

// Schema is the one of the JSON, in docs/schemas.
func (r *Result) Schema() string { return "verify-v1" }

// WriteText writes what was found.
func (r *Result) WriteText(w page.Sheet) {
	if r.Interrupted {
		printable.Fprintf(w, "INTERRUPTED: this is what was read so far.\n\n")
	} else if !r.Complete {
		printable.Fprintf(w, "FAILED: this is what was read until then.\n\n")
	}
	t := w.Table(1, "stored", "values", "size", "ratio")
	t.Row("plain", r.Plain.Values, printable.Size(r.Plain.Bytes))
	for _, p := range r.Packed {
		name := p.Algorithm
		switch {
		case p.Algorithm == frame.Stored.String():
			name = "escaped, or chunks"
		case p.Dictionary != 0:
			name += ", dictionary " + p.Dictionary.String()
		}
		t.Row(name, p.Values, printable.Size(p.Bytes), fmt.Sprintf("%.2f", float64(p.PlainBytes)/float64(max(p.Bytes, 1))))
	}
	t.Render()
	for _, line := range []struct {
		n    int64
		text string
	}{
		{r.Streams, "streams, whose chunks are all there"},
		{r.Mended, "streams or interrupted writes of streams were mended"},
		{r.Journals, "journals of streams, which are being written or whose writer died (--repair tidies up after those)"},
		{r.Absent, "frames that say that there is no value"},
		{r.TooLarge, "strings beyond 64 MiB were not read"},
		{r.LargeFields, "fields of hashes beyond 8 MiB were not read"},
		{r.Others, "keys of other types were not read"},
		{r.Registry, "keys of the dictionaries' registry were not read"},
	} {
		if line.n > 0 {
			w.Lines(fmt.Sprintf("%d %s", line.n, line.text))
		}
	}
	if r.Restored > 0 {
		w.Lines(registry.RestoredText(int(r.Restored)))
	}
	all := "all can be unpacked"
	switch {
	case r.Bad > 0:
		all = fmt.Sprintf("%d CANNOT BE UNPACKED", r.Bad)
	case !r.Complete:
		all = "those can be unpacked; the others were not checked"
	case r.Keys == 0:
		all = "there is nothing to check"
	}
	printable.Fprintf(w, "\n")
	w.Lines(fmt.Sprintf("%d keys looked at in %.1f s, %d values read: %s", r.Keys, r.Seconds, r.Values, all))
	if r.Bad == 0 {
		return
	}
	unknown := false
	for _, cause := range slices.Sorted(maps.Keys(r.Causes)) {
		unknown = unknown || strings.HasPrefix(cause, bale.ErrUnknownDictionary.Error())
		printable.Fprintf(w, "  %d: %s\n", r.Causes[cause], cause)
	}
	if unknown {
		w.Lines("If the dictionaries are in another Redis, name it with --registry.")
	}
	printable.Fprintf(w, "the first of each cause\n")
	for _, p := range r.Named {
		printable.Fprintf(w, "  %v\n", p)
	}
}

// packed counts values that can be unpacked.
func (p *part) packed(more Packed) {
	with := packing{more.Algorithm, more.Dictionary}
	if _, known := p.kinds[with]; !known && (len(p.kinds) >= packingsKept || len(with.algorithm) > longestAlgorithm) {
		with = packing{algorithm: otherPackings}
	}
	i, known := p.kinds[with]
	if !known {
		i = len(p.Packed)
		p.kinds[with] = i
		p.Packed = append(p.Packed, Packed{Algorithm: with.algorithm, Dictionary: with.dictionary})
	}
	p.Packed[i].Values += more.Values
	p.Packed[i].Bytes += more.Bytes
	p.Packed[i].PlainBytes += more.PlainBytes
}

// cause counts values by why they are bad, and returns the name that they are counted by.
func (p *part) cause(name string, n int64) string {
	if _, known := p.Causes[name]; !known && len(p.Causes) >= causesKept {
		name = otherCauses
	}
	p.Causes[name] += n
	return name
}

// name keeps the first problems of each cause. A cause that has none yet takes the place of the
// last one of the cause that has most.
func (p *part) name(cause string, problem keyspace.Problem) {
	all, longest := 0, ""
	for c, problems := range p.ByCause {
		all += len(problems)
		if len(problems) > len(p.ByCause[longest]) {
			longest = c
		}
	}
	mine, most := p.ByCause[cause], p.ByCause[longest]
	switch {
	case len(mine) >= ofCause, all >= p.most && (len(mine) > 0 || len(most) < 2):
		return
	case all >= p.most:
		p.ByCause[longest] = most[:len(most)-1]
	}
	p.ByCause[cause] = append(mine, problem)
}

// merge adds what another part has found.
func (p *part) merge(other *part) {
	p.Keys += other.Keys
	p.Values += other.Values
	p.Plain.Merge(other.Plain)
	for _, packed := range other.Packed {
		p.packed(packed)
	}
	p.Absent += other.Absent
	p.Streams += other.Streams
	p.Journals += other.Journals
	p.Mended += other.Mended
	p.Others += other.Others
	p.Registry += other.Registry
	p.TooLarge += other.TooLarge
	p.LargeFields += other.LargeFields
	p.Restored += other.Restored
	p.Bad += other.Bad
	for _, cause := range slices.Sorted(maps.Keys(other.Causes)) {
		name := p.cause(cause, other.Causes[cause])
		for _, problem := range other.ByCause[cause] {
			p.name(name, problem)
		}
	}
}

// result is what was found until the walk ended, with an error or without.
func (p *part) result(err error) *Result {
	r := &p.Result
	r.Complete, r.Interrupted = err == nil, errors.Is(err, context.Canceled)
	causes := slices.Sorted(maps.Keys(p.ByCause))
	for i := range ofCause {
		for _, cause := range causes {
			if i < len(p.ByCause[cause]) && len(r.Named) < badNamed {
				r.Named = append(r.Named, p.ByCause[cause][i])
			}
		}
	}
	slices.SortFunc(r.Packed, func(a, b Packed) int {
		return cmp.Or(cmp.Compare(b.Values, a.Values), cmp.Compare(a.Algorithm, b.Algorithm),
			cmp.Compare(a.Dictionary, b.Dictionary))
	})
	return r
}
