package report

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/balekv/bale/cmd/bale/internal/keyspace"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// Dictionaries are the groups of a registry, as bale dict list shows them.
type Dictionaries struct {
	Groups []Group `json:"groups"`

	// Values that refer to dictionaries that no group has, by a scan.
	Unknown map[frame.DictionaryID]*keyspace.Reference `json:"unknown,omitempty"`

	prefix  string
	now     time.Time
	scanned *keyspace.References
}

// Group is a group and what refers to its dictionaries.
type Group struct {
	*dict.State
	References map[frame.DictionaryID]*keyspace.Reference `json:"references,omitempty"` // by a scan
}

// NewDictionaries makes the report of the states in the registry with a prefix; refs is nil without a scan.
func NewDictionaries(states []*dict.State, refs *keyspace.References, prefix string, now time.Time) *Dictionaries {
	d := &Dictionaries{prefix: prefix, now: now, scanned: refs, Groups: []Group{}}
	known := map[frame.DictionaryID]bool{0: true}
	for _, s := range states {
		g := Group{State: s}
		for _, e := range s.Dictionaries {
			known[e.ID] = true
			if refs != nil && refs.ByID[e.ID] != nil {
				if g.References == nil {
					g.References = map[frame.DictionaryID]*keyspace.Reference{}
				}
				g.References[e.ID] = refs.ByID[e.ID]
			}
		}
		d.Groups = append(d.Groups, g)
	}
	if refs != nil {
		for id, ref := range refs.ByID {
			if !known[id] {
				if d.Unknown == nil {
					d.Unknown = map[frame.DictionaryID]*keyspace.Reference{}
				}
				d.Unknown[id] = ref
			}
		}
	}
	return d
}

// Write writes the table.
func (d *Dictionaries) Write(w io.Writer) {
	if len(d.Groups) == 0 {
		fmt.Fprintln(w, "The registry is empty: bale train makes a dictionary, bale dict publish puts it here.")
	} else {
		header := []any{"group", "id", "state", "bytes", "age", "ratio at training"}
		if d.scanned != nil {
			header = append(header, "ratio now", "values")
		}
		t := newTable(w, 2, 3, header...)
		for _, g := range d.Groups {
			for _, e := range g.Dictionaries {
				row := table.Row{g.Group, e.ID, use(g.State, e), e.Size, age(d.now.Sub(e.Published)), ratio(e.Info.Ratio)}
				if d.scanned != nil {
					ref := g.References[e.ID]
					if ref == nil {
						ref = &keyspace.Reference{}
					}
					row = append(row, ratio(float64(ref.PlainBytes)/float64(max(1, ref.StoredBytes))), ref.Values)
				}
				t.AppendRow(row)
			}
		}
		t.Render()
	}
	if d.scanned != nil {
		fmt.Fprintf(w, "%d keys looked at; %d values are not packed", d.scanned.Keys, d.scanned.Foreign)
		if n := d.scanned.Streams; n > 0 {
			fmt.Fprintf(w, "; %d are streams, which use no dictionary", n)
		}
		fmt.Fprintln(w)
	}
	for _, id := range slices.Sorted(maps.Keys(d.Unknown)) {
		fmt.Fprintf(w, "UNKNOWN dictionary %v: %d values refer to it, and no group in this registry (prefix %s) has it\n", id, d.Unknown[id].Values, d.prefix)
	}
}

// use says what a dictionary is to its group.
func use(s *dict.State, e dict.Entry) string {
	switch {
	case e.ID == s.Current:
		return "current"
	case e.ID == s.Previous:
		return "previous"
	case e.Activated.IsZero():
		return "published"
	}
	return "retired"
}

func ratio(r float64) string {
	if r == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", r)
}

// age is a time in the largest unit that fits twice.
func age(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", max(0, d/time.Second))
}

// IsZstdDictionary reports a dictionary in zstd's format, which starts with the magic number 0xEC30A437 (RFC 8878, section 5). Any other
// is plain content.
func IsZstdDictionary(d *dict.Dictionary) bool {
	return bytes.HasPrefix(d.Bytes(), []byte{0x37, 0xA4, 0x30, 0xEC})
}

// ShowDictionary writes what is known of a dictionary, without its content.
func ShowDictionary(w io.Writer, d *dict.Dictionary, states []*dict.State) {
	format := "plain content"
	if IsZstdDictionary(d) {
		format = "zstd, with entropy tables"
	}
	fmt.Fprintf(w, "id        %v\nbytes     %d\nformat    %s\n", d.ID(), len(d.Bytes()), format)
	for _, s := range states {
		e := s.Find(d.ID())
		if e == nil {
			continue
		}
		fmt.Fprintf(w, "\ngroup     %s, %s\npublished %s\n", s.Group, use(s, *e), e.Published.Format(time.RFC3339))
		if !e.Activated.IsZero() {
			fmt.Fprintf(w, "activated %s\n", e.Activated.Format(time.RFC3339))
		}
		if !e.Retired.IsZero() {
			fmt.Fprintf(w, "retired   %s\n", e.Retired.Format(time.RFC3339))
		}
		if i := e.Info; i.Builder != "" {
			fmt.Fprintf(w, "trained   by %s on %d values, for %s: ratio %.2f, without it %.2f\n", i.Builder, i.Samples, i.Setting, i.Ratio, i.RatioWithout)
		}
	}
}
