package dictops

import (
	"fmt"
	"strings"
	"time"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/frame"
)

// Published is the result of [Publish].
type Published struct {
	Group      string
	Dictionary frame.DictionaryID
	Bytes      int           // of the dictionary
	Current    bool          // the group is written with it already
	Grace      time.Duration // until it can be activated
	flags      string        // of the registry, for the next command
}

// WriteText writes the result and the next command.
func (p *Published) WriteText(w page.Sheet) {
	printable.Fprintf(w, "Dictionary %v, %s, is published to %s.\n", p.Dictionary, printable.Size(p.Bytes), p.Group)
	if p.Current {
		printable.Fprintf(w, "The group is written with it already.\n")
		return
	}
	when := "in " + p.Grace.String()
	if p.Grace == 0 {
		when = "now"
	}
	printable.Fprintf(w, "Activate it %s:\n  %s\n", when,
		strings.TrimSpace(fmt.Sprintf("bale dict activate %v %s %s", p.Dictionary, printable.Option("--group", p.Group), p.flags)))
}

// Activated is the result of [Activate] and [Rollback].
type Activated struct {
	Group    string
	Current  frame.DictionaryID // 0 for none
	Previous frame.DictionaryID // that Rollback replaced
	Rollback bool
}

// WriteText writes what the group is written with.
func (a *Activated) WriteText(w page.Sheet) {
	if a.Rollback {
		printable.Fprintf(w, "%s is written with %s again, and no more with %s.\n", a.Group, registry.Named(a.Current), registry.Named(a.Previous))
		return
	}
	printable.Fprintf(w, "%s is written with %s now.\n", a.Group, registry.Named(a.Current))
}

// Restored is the result of [Restore].
type Restored struct {
	Dictionary frame.DictionaryID
	Group      string // "" for none
}

// WriteText writes where the dictionary is.
func (r *Restored) WriteText(w page.Sheet) {
	if r.Group == "" {
		printable.Fprintf(w, "%v is in the registry. No group has it: --group puts it into one.\n", r.Dictionary)
		return
	}
	printable.Fprintf(w, "%v is in the registry, and in %s.\n", r.Dictionary, r.Group)
}

// GracePeriod is the result of [Grace].
type GracePeriod struct{ Period time.Duration }

// WriteText writes the period.
func (g *GracePeriod) WriteText(w page.Sheet) {
	printable.Fprintf(w, "The grace period is %v.\n", g.Period)
}

// Forgotten is the result of [Forget].
type Forgotten struct{ Server string }

// WriteText writes the server's id.
func (f *Forgotten) WriteText(w page.Sheet) { printable.Fprintf(w, "%s is forgotten.\n", f.Server) }

// Exported is the result of [Export].
type Exported struct{ Files []string }

// WriteText writes a path a line.
func (e *Exported) WriteText(w page.Sheet) {
	for _, path := range e.Files {
		printable.Fprintf(w, "%v\n", path)
	}
}

// Imported is the result of [Import].
type Imported struct {
	Group        string
	Dictionaries []frame.DictionaryID // in the order of publishing
	Activated    *Activated           // nil if the group keeps what it is written with
}

// WriteText writes a dictionary a line.
func (i *Imported) WriteText(w page.Sheet) {
	for _, id := range i.Dictionaries {
		printable.Fprintf(w, "%v is in %s\n", id, i.Group)
	}
	if i.Activated != nil {
		i.Activated.WriteText(w)
	}
}
