package migrate

import (
	"fmt"
	"strings"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/frame"
)

// Reason is why a value was left as it is.
type Reason string

// The reasons, as the JSON names them.
const (
	Packed     Reason = "packed"      // already, as it would be packed now
	Otherwise  Reason = "otherwise"   // packed with another algorithm or dictionary, and Repack is not set
	Absent     Reason = "absent"      // a frame that says that there is no value
	Plain      Reason = "plain"       // already, when reverting
	FreshField Reason = "fresh_field" // a field that ends by its own account, on a server that gives fields no expiry
	Nested     Reason = "nested"      // its content is itself a frame: plain, it would be unpacked once more
	Refused    Reason = "refused"     // by the server, such as a field that is to end later than it can have one end; see Counts.Problems
	NotSmaller Reason = "not_smaller" // or not by MinGain, or below MinSize
	Number     Reason = "number"      // what INCR and INCRBYFLOAT work on
	HLL        Reason = "hyperloglog"
	Stream     Reason = "stream"      // manifests and chunks of package stream
	TooLarge   Reason = "too_large"   // a string beyond MaxSize, or 8 MiB when packed
	LargeField Reason = "large_field" // beyond MaxSize, what is read of hashes, or 8 MiB when packed
	Changed    Reason = "changed"     // by a program, at every try
	Gone       Reason = "gone"        // removed, expired or of another type meanwhile
	Unreadable Reason = "unreadable"  // see Counts.Problems
	Registry   Reason = "registry"    // keys of the dictionaries' registry
	OtherType  Reason = "other_type"  // keys that are neither strings nor hashes
)

// problemsKept is how many problems are named; all are counted.
const problemsKept = 10

// Counts are the values that a run changed, or would change with DryRun, and those that it left.
type Counts struct {
	Keys    int64                     `json:"keys"` // looked at
	Strings Change                    `json:"strings"`
	Fields  Change                    `json:"fields"`  // of hashes
	Left    map[Reason]keyspace.Tally `json:"left"`    // keys for the last two reasons, else values
	Expired keyspace.Tally            `json:"expired"` // values that a revert deleted: they had expired by their own account

	Problems []keyspace.Problem `json:"problems,omitempty"` // the first ones
}

func newCounts() *Counts { return &Counts{Left: map[Reason]keyspace.Tally{}} }

// Change is what values took before and after.
type Change struct {
	Before keyspace.Tally `json:"before"`
	After  keyspace.Tally `json:"after"`
}

func (c *Change) add(v keyspace.Value, after int) {
	c.Before.Add(v, len(v.Stored))
	c.After.Add(v, after)
}

// merge adds what another part of the run did.
func (r *Counts) merge(other *Counts) {
	r.Keys += other.Keys
	r.Strings.merge(other.Strings)
	r.Fields.merge(other.Fields)
	r.Expired.Merge(other.Expired)
	for _, l := range leftReasons { // no others, as a forged state of a run may have
		if tally := other.Left[l.reason]; tally.Values > 0 {
			t := r.Left[l.reason]
			t.Merge(tally)
			r.Left[l.reason] = t
		}
	}
	r.Problems = append(r.Problems, other.Problems[:min(len(other.Problems), problemsKept-len(r.Problems))]...)
}

func (c *Change) merge(other Change) {
	c.Before.Merge(other.Before)
	c.After.Merge(other.After)
}

// Changed is the number of values that were written.
func (r *Counts) Changed() int64 { return r.Strings.After.Values + r.Fields.After.Values }

// Failed is the number of values that should have been written and could not be.
func (r *Counts) Failed() int64 {
	return r.Left[Unreadable].Values + r.Left[Nested].Values + r.Left[FreshField].Values + r.Left[Refused].Values + r.Left[Changed].Values
}

func (r *Counts) leave(v keyspace.Value, why Reason) {
	t := r.Left[why]
	t.Add(v, len(v.Stored))
	r.Left[why] = t
}

func (r *Counts) problem(v keyspace.Value, cause error) {
	if len(r.Problems) < problemsKept {
		r.Problems = append(r.Problems, keyspace.NewProblem(v, cli.Message(cause)))
	}
}

// count adds to a reason where nothing is known of the bytes.
func (r *Counts) count(why Reason, n int64) {
	if n > 0 {
		t := r.Left[why]
		t.Values += n
		r.Left[why] = t
	}
}

// Result is what a run did, or would do. Its fields are those of the JSON.
type Result struct {
	Redis      string             `json:"redis"`
	Database   int                `json:"database"`
	Match      []string           `json:"match"`
	Mode       string             `json:"mode"` // pack or revert
	DryRun     bool               `json:"dry_run"`
	Compress   string             `json:"compress,omitempty"`
	Dictionary frame.DictionaryID `json:"dictionary"`
	Group      string             `json:"group,omitempty"`
	*Counts
	UsedMemoryBefore int64   `json:"used_memory_before"`
	UsedMemoryAfter  int64   `json:"used_memory_after"`
	Seconds          float64 `json:"seconds"`
	Complete         bool    `json:"complete"` // all keys were looked at
	Interrupted      bool    `json:"interrupted,omitempty"`

	resume string
}

// leftReasons say why values were left, in the order in which they are shown.
var leftReasons = []struct {
	reason Reason
	text   string
}{
	{Packed, "packed already"},
	{Otherwise, "packed with another algorithm or dictionary (--repack packs them anew)"},
	{Plain, "plain already"},
	{NotSmaller, "not small enough when packed, or below --min-size"},
	{Number, "numbers"},
	{HLL, "HyperLogLogs"},
	{Absent, "frames that say that there is no value; they go when they expire"},
	{Stream, "of streams (package stream)"},
	{TooLarge, "strings beyond 32 MiB, or 8 MiB when packed"},
	{LargeField, "fields of hashes beyond 8 MiB"},
	{Gone, "removed meanwhile"},
	{Registry, "keys of the dictionaries' registry"},
	{OtherType, "keys of other types"},
	{FreshField, "NOT UNPACKED: fields that end by themselves, on a server that gives fields no expiry"},
	{Refused, "NOT CHANGED: the server refused"},
	{Nested, "NOT UNPACKED: their content is itself a frame"},
	{Changed, "NOT CHANGED: a program writes them all the time"},
	{Unreadable, "UNREADABLE"},
}

// verb is a run's deed: "to be packed".
func verb(revert, dryRun bool) string {
	verb := "packed"
	if revert {
		verb = "unpacked"
	}
	if dryRun {
		verb = "to be " + verb
	}
	return verb
}

// Schema is the one of the JSON, in docs/schemas.
func (r *Result) Schema() string { return "migrate-v1" }

// WriteText writes the summary.
func (r *Result) WriteText(w page.Sheet) {
	verb := verb(r.Mode == "revert", r.DryRun)
	printable.Fprintf(w, "\n")
	if r.Interrupted {
		printable.Fprintf(w, "INTERRUPTED: this is what was done so far.")
		if r.resume != "" {
			printable.Fprintf(w, " The same command goes on from here (%s).", r.resume)
		}
		printable.Fprintf(w, "\n\n")
	} else if !r.Complete {
		printable.Fprintf(w, "FAILED: this is what was done until then.\n\n")
	}
	t := w.Table(1, verb, "values", "bytes before", "bytes after", "allocated before", "allocated after")
	t.Short = map[string]string{"allocated before": "alloc. before", "allocated after": "alloc. after"}
	t.Drop = []string{"bytes before", "bytes after"}
	var all Change
	for _, row := range []struct {
		name string
		Change
	}{{"strings", r.Strings}, {"fields of hashes", r.Fields}} {
		all.Before.Values += row.Before.Values
		all.Before.Bytes += row.Before.Bytes
		all.After.Bytes += row.After.Bytes
		all.Before.Allocated += row.Before.Allocated
		all.After.Allocated += row.After.Allocated
		t.Row(row.name, row.Before.Values, printable.Size(row.Before.Bytes), printable.Size(row.After.Bytes),
			printable.Size(row.Before.Allocated), printable.Size(row.After.Allocated))
	}
	t.Render()
	if len(r.Left) > 0 {
		printable.Fprintf(w, "\nleft as they are\n")
		for _, l := range leftReasons {
			if n := r.Left[l.reason].Values; n > 0 {
				if l.reason == TooLarge && r.Mode == "revert" {
					l.text = "strings beyond 64 MiB"
				}
				printable.Fprintf(w, "%10d  %s\n", n, l.text)
			}
		}
	}
	if r.Expired.Values > 0 {
		printable.Fprintf(w, "\n%d values had expired by their own account: %s\n", r.Expired.Values,
			map[bool]string{false: "deleted", true: "to be deleted"}[r.DryRun])
	}
	if len(r.Problems) > 0 {
		printable.Fprintf(w, "\nthe first that could not be %s\n", strings.TrimPrefix(verb, "to be "))
		for _, p := range r.Problems {
			printable.Fprintf(w, "  %v\n", p)
		}
	}
	done := fmt.Sprintf("%d keys looked at in %.1f s; %s: %d values", r.Keys, r.Seconds, verb, all.Before.Values)
	if all.Before.Bytes > 0 {
		done += fmt.Sprintf(", from %s to %s (%+.0f%%), as allocated without keys from %s to %s (%+.0f%%)",
			printable.Size(all.Before.Bytes), printable.Size(all.After.Bytes), changed(all.Before.Bytes, all.After.Bytes),
			printable.Size(all.Before.Allocated), printable.Size(all.After.Allocated), changed(all.Before.Allocated, all.After.Allocated))
	}
	if r.Keys == 0 && r.Complete {
		done = "No key is like --match in this database, whose number the URL may end in: nothing was done"
	}
	printable.Fprintf(w, "\n")
	w.Lines(done)
	if !r.DryRun && r.UsedMemoryAfter > 0 {
		part := fmt.Sprintf(" (%+.0f%%)", changed(r.UsedMemoryBefore, r.UsedMemoryAfter))
		if d := r.UsedMemoryAfter - r.UsedMemoryBefore; max(d, -d) < serverNoise {
			part = "; the server's own buffers and tables alone change it by up to 1 MiB"
		}
		w.Lines(fmt.Sprintf("used_memory: %s before, %s after%s", printable.Size(r.UsedMemoryBefore),
			printable.Size(r.UsedMemoryAfter), part))
	}
}

// serverNoise is what used_memory changes by when nothing is written: buffers of clients, and
// tables that the server resizes.
const serverNoise = 1 << 20

func changed(before, after int64) float64 { return 100 * (float64(after)/float64(max(before, 1)) - 1) }
