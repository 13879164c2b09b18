package advise

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/frame"
)

// Packed is what bale saves in a group already. A frame says how long its value is, so that nothing
// has to be unpacked.
type Packed struct {
	Keys  int64 `json:"keys"`  // with a packed value
	Saved int64 `json:"saved"` // bytes that Redis would allocate more with the values as they were
}

// packed are the pieces of a sample with packed values.
type packed struct {
	pieces        int
	before, plain float64 // bytes that they take, and would take
}

func (p *packed) add(m *memory, of piece) {
	sizes, found := make([]int64, len(of.items)), false
	for i, it := range of.items {
		sizes[i] = it.size
		if n, ok := plainSize(it.head); ok {
			sizes[i], found = n, true
		}
	}
	if !found {
		return
	}
	var plain int64
	switch {
	case of.alone:
		plain = m.field(of.entry, of.items[0], sizes[0])
	case of.kind == Hash:
		plain = m.hash(of.entry, sizes)
	default:
		plain = m.string(of.entry, nil, sizes[0])
	}
	p.pieces++
	p.before, p.plain = p.before+of.before, p.plain+float64(plain)
}

// packed reports whether a value of the samples is packed.
func (s *scanner) packed() bool {
	for t := range s.limits.tallies {
		for _, e := range t.entries {
			if slices.ContainsFunc(e.items, func(it item) bool { _, ok := plainSize(it.head); return ok }) {
				return true
			}
		}
	}
	return false
}

// scaled extends the sample to its group.
func (p *packed) scaled(keys int64, now float64, pieces []piece) *Packed {
	if p.pieces == 0 {
		return nil
	}
	before := 0.0
	for _, one := range pieces {
		before += one.before
	}
	return &Packed{
		Keys:  int64(math.Round(float64(p.pieces) / float64(len(pieces)) * float64(keys))),
		Saved: int64((p.plain - p.before) / before * now),
	}
}

// plainSize is the size of the value in a frame, of which start is the beginning.
func plainSize(start []byte) (int64, bool) {
	h, offset, ok := frame.Parse(start)
	if !ok || !h.Known() {
		return 0, false
	}
	if h.Algorithm.LengthInPayload() {
		h.Length, _ = binary.Uvarint(start[offset:])
	}
	return int64(h.Length), h.Length <= packedMax // one beyond that is damaged, or forged
}

// packedTable shows what is packed already.
func (a *Advice) packedTable(w page.Sheet) {
	t := w.Table(1, "group", "keys", "now", "as they were", "saves")
	t.Drop = []string{"keys"}
	for i := range a.Groups {
		if g := &a.Groups[i]; g.Packed != nil {
			plain := g.Now + g.Packed.Saved
			t.Row(page.Name(g.Name, shownAdvice), page.Thousands(g.Packed.Keys), page.Amount(float64(g.Now)), page.Amount(float64(plain)), page.Part(float64(g.Packed.Saved), plain))
		}
	}
	if t.Len() == 0 {
		return
	}
	printable.Fprintf(w, "\nwhat bale saves already:\n")
	t.Render()
	if a.Server != nil {
		w.Hanging("  ", "Values change. bale dict export writes the present dictionary to a file, and bale train --current FILE says what a new one would save beside it.")
	}
}

// saved is what all packed values save.
func (a *Advice) saved() (bytes int64) {
	for _, g := range a.Groups {
		if g.Packed != nil {
			bytes += g.Packed.Saved
		}
	}
	return bytes
}

// packedAlready is that in words, "" if nothing is packed.
func (a *Advice) packedAlready() string {
	if n := a.saved(); n > 0 {
		return fmt.Sprintf(" What is packed already saves %s.", page.Amount(float64(n)))
	}
	return ""
}
