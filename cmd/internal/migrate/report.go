package migrate

import (
	"io"
	"strings"
	"text/tabwriter"

	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/frame"
)

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
	{NotSmaller, "not small enough when packed"},
	{Number, "numbers"},
	{HLL, "HyperLogLogs"},
	{Fresh, "packed by GetOrLoad, with how long they are fresh"},
	{Absent, "frames that say that there is no value; they go when they expire"},
	{Stream, "of streams (package stream)"},
	{TooLarge, "larger than 32 MiB (64 MiB to unpack), or fields of hashes larger than 8 MiB"},
	{Gone, "removed meanwhile"},
	{Registry, "keys of the dictionaries' registry"},
	{OtherType, "keys of other types"},
	{FreshField, "NOT UNPACKED: fields that end by themselves, on a server that gives fields no expiry"},
	{Refused, "NOT CHANGED: the server refused"},
	{Nested, "NOT UNPACKED: their content is itself a frame"},
	{Changed, "NOT CHANGED: a program writes them all the time"},
	{Unreadable, "UNREADABLE"},
}

// Write writes the summary.
func (r *Result) Write(w io.Writer) {
	verb := "packed"
	if r.Mode == "revert" {
		verb = "unpacked"
	}
	if r.DryRun {
		verb = "to be " + verb
	}
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
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	printable.Fprintf(t, "%s\tvalues\tbytes before\tafter\tallocated before\tafter\t\n", verb)
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
		printable.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t\n", row.name, row.Before.Values, row.Before.Bytes, row.After.Bytes, row.Before.Allocated, row.After.Allocated)
	}
	t.Flush()
	if len(r.Left) > 0 {
		printable.Fprintf(w, "\nleft as they are\n")
		for _, l := range leftReasons {
			if n := r.Left[l.reason].Values; n > 0 {
				printable.Fprintf(w, "%10d  %s\n", n, l.text)
			}
		}
	}
	if r.Expired.Values > 0 {
		printable.Fprintf(w, "\n%d values had expired by their own account: %s\n", r.Expired.Values, map[bool]string{false: "deleted", true: "to be deleted"}[r.DryRun])
	}
	if len(r.Problems) > 0 {
		printable.Fprintf(w, "\nthe first that could not be %s\n", strings.TrimPrefix(verb, "to be "))
		for _, p := range r.Problems {
			printable.Fprintf(w, "  %v\n", p)
		}
	}
	printable.Fprintf(w, "\n%d keys looked at in %.1f s; %s: %d values", r.Keys, r.Seconds, verb, all.Before.Values)
	if all.Before.Bytes > 0 {
		printable.Fprintf(w, ", from %d to %d bytes (%+.1f%%), as allocated from %d to %d (%+.1f%%)", all.Before.Bytes, all.After.Bytes, changed(all.Before.Bytes, all.After.Bytes),
			all.Before.Allocated, all.After.Allocated, changed(all.Before.Allocated, all.After.Allocated))
	}
	printable.Fprintf(w, "\n")
	if !r.DryRun && r.UsedMemoryAfter > 0 {
		printable.Fprintf(w, "used_memory: %d before, %d after (%+.1f%%)\n", r.UsedMemoryBefore, r.UsedMemoryAfter, changed(r.UsedMemoryBefore, r.UsedMemoryAfter))
	}
}

func changed(before, after int64) float64 { return 100 * (float64(after)/float64(max(before, 1)) - 1) }
