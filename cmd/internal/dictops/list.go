package dictops

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// Dictionaries are the groups of a registry, as bale dict list shows them.
type Dictionaries struct {
	Groups []Group `json:"groups"`

	// Ungrouped are dictionaries in the registry that no group has.
	Ungrouped []frame.DictionaryID `json:"ungrouped,omitempty"`

	// Auto is how far Auto is with the next dictionary, by group. Groups without a dictionary are
	// among them.
	Auto map[string]*Progress `json:"auto,omitempty"`

	// Unreadable are groups whose names or states are damaged, or beyond what a command reads.
	Unreadable []UnreadableGroup `json:"unreadable_groups,omitempty"`

	// Missing are dictionaries of the groups above whose bytes are gone. Damaged are those whose
	// bytes are wrong, also in no group.
	Missing []frame.DictionaryID `json:"missing,omitempty"`
	Damaged []frame.DictionaryID `json:"damaged,omitempty"`

	// Quarantined are removed dictionaries that can still be brought back, and until when:
	// registry.NoEnd if the key has no expiry.
	Quarantined map[frame.DictionaryID]time.Time `json:"quarantined,omitempty"`

	// Values that refer to dictionaries that no group has, by a scan. At most 100 ids that the
	// registry does not hold are named. UnknownOthers counts the values with further ids.
	Unknown       map[frame.DictionaryID]*keyspace.Reference `json:"unknown,omitempty"`
	UnknownOthers *keyspace.Reference                        `json:"unknown_others,omitempty"`

	prefix  string
	packed  map[frame.DictionaryID]bool // of Damaged: like a value
	now     time.Time
	scanned *keyspace.References
}

// Group is a group and what refers to its dictionaries.
type Group struct {
	*dict.State
	References map[frame.DictionaryID]*keyspace.Reference `json:"references,omitempty"` // by a scan
}

// Progress is how far Auto is with a group.
type Progress struct {
	Collected int  `json:"collected"`
	Wanted    int  `json:"wanted"`
	Training  bool `json:"training,omitempty"` // a sample is taken, or a dictionary trained on it
}

// UnreadableGroup is a group that nothing can be said of. Without a name it is the list of groups.
type UnreadableGroup struct {
	Name  string `json:"name"`
	Cause string `json:"cause"`
}

// Inventory is a registry as it was found.
type Inventory struct {
	Prefix      string
	Groups      []*dict.State
	Auto        map[string]*Progress
	Unreadable  []UnreadableGroup
	Sound       map[frame.DictionaryID]bool // every dictionary that has bytes, and whether they are its own
	Packed      []frame.DictionaryID        // those that are packed like a value
	Quarantined map[frame.DictionaryID]time.Time
}

// IDs are the dictionaries that the registry knows of.
func (in *Inventory) IDs() map[frame.DictionaryID]bool {
	ids := map[frame.DictionaryID]bool{}
	for _, s := range in.Groups {
		for _, e := range s.Dictionaries {
			ids[e.ID] = true
		}
	}
	for id := range in.Sound {
		ids[id] = true
	}
	for id := range in.Quarantined {
		ids[id] = true
	}
	return ids
}

// newDictionaries makes the report of a group of the registry, or of all if its name is empty; refs
// is nil without a scan.
func newDictionaries(in Inventory, group string, refs *keyspace.References, now time.Time) *Dictionaries {
	d := &Dictionaries{
		prefix: in.Prefix, packed: setOf(in.Packed), now: now, scanned: refs, Unreadable: in.Unreadable,
		Groups: []Group{}, Quarantined: maps.Clone(in.Quarantined),
	}
	known, shown := map[frame.DictionaryID]bool{0: true}, map[frame.DictionaryID]bool{}
	for _, s := range in.Groups {
		g := Group{State: s}
		for _, e := range s.Dictionaries {
			known[e.ID] = true
			if group == "" || s.Group == group {
				shown[e.ID] = true
			}
			if refs != nil && refs.ByID[e.ID] != nil {
				if g.References == nil {
					g.References = map[frame.DictionaryID]*keyspace.Reference{}
				}
				g.References[e.ID] = refs.ByID[e.ID]
			}
		}
		if group == "" || s.Group == group {
			d.Groups = append(d.Groups, g)
		}
	}
	for name, p := range in.Auto {
		if group == "" || name == group {
			if d.Auto == nil {
				d.Auto = map[string]*Progress{}
			}
			d.Auto[name] = p
		}
	}
	for _, id := range slices.Sorted(maps.Keys(shown)) {
		switch sound, there := in.Sound[id]; {
		case !there:
			d.Missing = append(d.Missing, id)
		case !sound:
			d.Damaged = append(d.Damaged, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(in.Sound)) {
		if in.Sound[id] {
			delete(d.Quarantined, id) // a copy, which nobody needs
		}
		switch {
		case known[id]:
		case in.Sound[id]:
			d.Ungrouped = append(d.Ungrouped, id)
		default:
			d.Damaged = append(d.Damaged, id)
		}
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
		if refs.Others.Values > 0 {
			d.UnknownOthers = &refs.Others
		}
	}
	return d
}

// Sound is an error if a group is damaged, or a dictionary of a group is missing or damaged.
func (d *Dictionaries) Sound() error {
	var wrong []string
	add := func(n int, one, more, what string) {
		if n > 0 {
			wrong = append(wrong, printable.Count(n, one, more)+" "+what)
		}
	}
	lists := 0
	for _, g := range d.Unreadable {
		if g.Name == "" {
			lists++
		}
	}
	add(lists, "list of groups", "lists of groups", "damaged")
	add(len(d.Unreadable)-lists, "group", "groups", "damaged")
	add(len(d.Missing), "dictionary", "dictionaries", "missing")
	add(len(d.Damaged), "dictionary", "dictionaries", "damaged")
	if wrong == nil {
		return nil
	}
	return fmt.Errorf("%s: docs/reliability.md has the steps", strings.Join(wrong, ", "))
}

// WriteText writes the table.
func (d *Dictionaries) WriteText(w page.Sheet) {
	ungrouped := setOf(d.Ungrouped)
	lost := slices.DeleteFunc(slices.Sorted(maps.Keys(d.Unknown)), func(id frame.DictionaryID) bool { return ungrouped[id] })
	switch {
	case len(d.Groups) > 0:
		d.table(w)
	case len(lost) > 0:
		w.Lines("The registry has no group, and values need dictionaries: bring these back with bale dict import DIR or bale dict publish FILE. docs/reliability.md has the steps.")
	case len(d.Unreadable) > 0:
	case len(d.Ungrouped) > 0:
		w.Lines("The registry has no group.")
	case len(d.Auto) > 0:
		w.Lines("The registry has no dictionary yet.")
	default:
		w.Lines("The registry is empty: bale train makes a dictionary, bale dict publish puts it here.")
	}
	firstLines(w, slices.Sorted(maps.Keys(d.Auto)), "groups with Auto at work", func(name string) {
		w.Lines(fmt.Sprintf("Auto, group %q: %s", name, progressText(d.Auto[name])))
	})
	firstLines(w, d.Unreadable, "damaged groups", func(g UnreadableGroup) {
		if g.Name == "" {
			w.Lines(fmt.Sprintf("DAMAGED: the list of groups (those above are by their keys): %s", g.Cause))
		} else {
			w.Lines(fmt.Sprintf("DAMAGED: group %q cannot be read: %s", g.Name, g.Cause))
		}
	})
	firstLines(w, d.Missing, "missing dictionaries", func(id frame.DictionaryID) {
		if until, ok := d.Quarantined[id]; ok {
			w.Lines(fmt.Sprintf("MISSING: the bytes of dictionary %v are in quarantine %s: bale dict restore %[1]v brings them back", id, registry.EndText(until)))
			return
		}
		w.Lines(fmt.Sprintf("MISSING: key %sdata:%v is gone: bring the dictionary back with bale dict import DIR or bale dict publish FILE", d.prefix, id))
	})
	firstLines(w, d.Damaged, "damaged dictionaries", func(id frame.DictionaryID) {
		if d.packed[id] {
			w.Lines("DAMAGED: " + unpackText(d.prefix+"data:"+id.String()))
			return
		}
		w.Lines(fmt.Sprintf("DAMAGED: key %sdata:%v does not hold the dictionary's bytes: delete the key, then bale dict import DIR or bale dict publish FILE", d.prefix, id))
	})
	missing := setOf(d.Missing)
	quarantined := slices.DeleteFunc(slices.Sorted(maps.Keys(d.Quarantined)), func(id frame.DictionaryID) bool { return missing[id] })
	firstLines(w, quarantined, "dictionaries in quarantine", func(id frame.DictionaryID) {
		w.Lines(fmt.Sprintf("%v is in quarantine %s; bale dict restore brings it back", id, registry.EndText(d.Quarantined[id])))
	})
	if d.scanned != nil {
		printable.Fprintf(w, "%d keys looked at; %d values and field names are plain", d.scanned.Keys, d.scanned.Foreign)
		if n := d.scanned.Streams; n > 0 {
			printable.Fprintf(w, "; %d are streams, which use no dictionary", n)
		}
		printable.Fprintf(w, "\n")
		if d.scanned.Unread > 0 {
			w.Lines(fmt.Sprintf("%d keys could not be read, the first one: %v", d.scanned.Unread, d.scanned.Problem))
		}
	}
	firstLines(w, d.Ungrouped, "dictionaries in no group", func(id frame.DictionaryID) {
		values := ""
		if ref := d.Unknown[id]; ref != nil {
			values = fmt.Sprintf(", and %d values refer to it", ref.Values)
		}
		w.Lines(fmt.Sprintf("%v is in the registry, in no group%s: bale dict restore %[1]v --group NAME puts it into one", id, values))
	})
	firstLines(w, lost, "unknown dictionaries", func(id frame.DictionaryID) {
		w.Lines(fmt.Sprintf("UNKNOWN dictionary %v: %d values refer to it, and no group in this registry (prefix %s) has it", id, d.Unknown[id].Values, d.prefix))
	})
	if o := d.UnknownOthers; o != nil {
		w.Lines(fmt.Sprintf("UNKNOWN dictionaries beyond those that are named: %d values refer to them", o.Values))
	}
}

const (
	linesShown = 100  // of one kind
	rowsShown  = 1000 // of the table
)

// firstLines writes a line for each of the first items, and how many others there are.
func firstLines[T any](w page.Sheet, items []T, what string, line func(T)) {
	for _, item := range items[:min(linesShown, len(items))] {
		line(item)
	}
	if more := len(items) - linesShown; more > 0 {
		w.Lines(fmt.Sprintf("... and %d more %s: --json names them", more, what))
	}
}

func setOf(ids []frame.DictionaryID) map[frame.DictionaryID]bool {
	set := map[frame.DictionaryID]bool{}
	for _, id := range ids {
		set[id] = true
	}
	return set
}

func (d *Dictionaries) table(w page.Sheet) {
	header := []string{"group", "id", "state", "size", "age", "ratio at training"}
	if d.scanned != nil {
		header = append(header, "ratio now", "values")
	}
	t, n := w.Table(3, header...), 0
	t.Drop = []string{"age", "size", "ratio at training", "state"}
	for _, g := range d.Groups {
		for _, e := range g.Dictionaries {
			if n++; n > rowsShown {
				continue
			}
			row := []any{g.Group, e.ID, use(g.State, e), printable.Size(e.Size), age(d.now.Sub(e.Published)), ratio(e.Info.Ratio)}
			if d.scanned != nil {
				ref := g.References[e.ID]
				if ref == nil {
					ref = &keyspace.Reference{}
				}
				row = append(row, ratio(float64(ref.PlainBytes)/float64(max(1, ref.StoredBytes))), ref.Values)
			}
			t.Row(row...)
		}
	}
	t.Render()
	if more := n - rowsShown; more > 0 {
		w.Lines(fmt.Sprintf("... and %d more dictionaries: --group NAME shows those of one group, --json all", more))
	}
}

// progressText describes how far Auto is.
func progressText(p *Progress) string {
	of := fmt.Sprintf("%s of %s values", page.Thousands(int64(p.Collected)), page.Thousands(int64(p.Wanted)))
	switch {
	case !p.Training:
		return of + " collected, to judge whether a dictionary is needed"
	case p.Collected < p.Wanted:
		return of + " collected, for the sample to train on"
	}
	return "a dictionary is in training"
}

// use describes the role of a dictionary in its group.
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

// ratio is "-" for one that was not measured.
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

// isZstdDictionary reports a dictionary in zstd's format, which starts with the magic number
// 0xEC30A437 (RFC 8878, section 5). Any other is plain content.
func isZstdDictionary(d *dict.Dictionary) bool {
	return bytes.HasPrefix(d.Bytes(), []byte{0x37, 0xA4, 0x30, 0xEC})
}

// showDictionary writes what is known of a dictionary, without its content. Until is when it goes
// for good if it is in quarantine, otherwise zero.
func showDictionary(w io.Writer, d *dict.Dictionary, states []*dict.State, until time.Time) {
	format := "plain content"
	if isZstdDictionary(d) {
		format = "zstd, with entropy tables"
	}
	printable.Fprintf(w, "id        %v\nsize      %s\nformat    %s\n", d.ID(), printable.Size(len(d.Bytes())), format)
	if !until.IsZero() {
		printable.Fprintf(w, "removed   in quarantine %s; bale dict restore brings it back\n", registry.EndText(until))
	}
	for _, s := range states {
		e := s.Find(d.ID())
		if e == nil {
			continue
		}
		printable.Fprintf(w, "\ngroup     %s, %s\npublished %s\n", s.Group, use(s, *e), e.Published.Format(time.RFC3339))
		if !e.Activated.IsZero() && !e.Activated.Equal(e.Retired) { // one that came back has one time for both
			printable.Fprintf(w, "activated %s\n", e.Activated.Format(time.RFC3339))
		}
		if !e.Retired.IsZero() {
			printable.Fprintf(w, "retired   %s\n", e.Retired.Format(time.RFC3339))
		}
		if i := e.Info; i.Builder != "" {
			printable.Fprintf(w, "trained   by %s on %d values, for %s: ratio %s, without it %s\n",
				i.Builder, i.Samples, i.Setting, ratio(i.Ratio), ratio(i.RatioWithout))
			if left := e.Excluded(); left != nil {
				printable.Fprintf(w, "left out  contents of %s: ratio %s with them\n", strings.Join(left, ", "), ratio(i.RatioWhole))
			}
		}
	}
}
