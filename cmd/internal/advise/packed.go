package advise

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/keygroup"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// Packed is what bale saves in a group already. A frame says how long its value is, so that nothing
// has to be unpacked.
type Packed struct {
	Keys  int64 `json:"keys"`  // with a packed value
	Saved int64 `json:"saved"` // bytes that Redis would allocate more with the values as they were

	// Better is how many bytes more it saves to pack the values anew: with a dictionary of the present
	// values, or with the group's current one where most have another. Nil where it was not tried: the
	// compressor takes none, the values cannot be read, or the group is too small.
	Better *Interval `json:"better,omitempty"`

	// Dictionaries are those of the packed values, the most frequent first, ten at most.
	Dictionaries []PackedWith `json:"dictionaries,omitempty"`

	renewal string // what bale migrate needs to pack anew: --dict auto
	bare    bool   // most are packed without a dictionary
	large   string // says that the present dictionary is too large for the group, "" if not
}

// PackedWith is a dictionary, and the part of a group's packed values that it is for.
type PackedWith struct {
	ID   frame.DictionaryID `json:"id"`
	Part float64            `json:"part"`
}

const (
	mostPackedWith = 10
	mostHave       = 0.95 // part of the values from which on a dictionary counts as that of all
)

// packing is how a value is packed.
type packing struct {
	frame.Algorithm
	frame.DictionaryID
}

// better unpacks the sample, and packs it with the present dictionary and with a new one.
func (t *attempt) better(ctx context.Context, a *Advice, o *Options) error {
	if o.Reader == nil || t.how == quick {
		return nil
	}
	plain, with, failed := t.unpacked(ctx, o.Reader, &a.wasted)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if failed != nil {
		a.warn("%s: packed values could not be read to try a new dictionary on: %v", shownName(&t.group, o), failed)
	}
	setting := engine.Setting{Setting: compress.Setting{Algorithm: with.Algorithm}}
	var excluded []string // fields that bale migrate would leave out of a new dictionary
	if len(plain) < minTraining || !setting.TakesDictionary() {
		return nil
	}
	var packed, current built // what most values are packed with, and what the group is written with
	group := ""
	some := with.DictionaryID
	if t.group.Packed.bare = some == 0; some == 0 && len(t.group.Packed.Dictionaries) > 0 { // which few have
		some = t.group.Packed.Dictionaries[0].ID
	}
	if some != 0 {
		st, err := o.Reader.Group(ctx, some)
		if err != nil {
			return ctx.Err() // a warning has said so
		}
		if with.DictionaryID != 0 {
			if packed.dictionary, err = o.Reader.Read(ctx, with.DictionaryID); err != nil {
				return ctx.Err()
			}
		}
		current = packed
		if with.DictionaryID == 0 && (st == nil || st.Group != keygroup.DictionaryGroup(t.match)) {
			st = nil // any value may name any dictionary
		}
		if st != nil {
			excluded = st.Excluded()
			if e := st.Latest(); e != nil {
				if s, err := compress.Parse(e.Info.Setting); err == nil && s.Algorithm == with.Algorithm {
					setting.Setting = s
				}
			}
		}
		if st != nil && !o.HideKeys {
			group = " " + printable.Option("--group", st.Group)
		}
		if st != nil && st.Current != with.DictionaryID {
			if current = (built{}); st.Current != 0 {
				if current.dictionary, err = o.Reader.Read(ctx, st.Current); err != nil {
					return ctx.Err()
				}
			}
		}
	}
	sample := newGroupSample(t.sample.memory, plain, t.group.Packed.Keys)
	before, err := sample.measure(ctx, setting, packed, nil)
	if err != nil {
		return ctx.Err()
	}
	if t.heat != nil {
		if err := sample.time(ctx, []*trial{before}); err != nil {
			return ctx.Err()
		}
		t.group.unpack = before.Unpack.Mean
	}
	there := before.Dictionary
	before.Dictionary = 0 // it is there, and costs nothing
	// By the rule of bale migrate --dict auto, which would else refuse what is advised here.
	anew, err := sample.renewed(ctx, setting.Setting, excluded, current.dictionary, t.how)
	if err != nil {
		return ctx.Err()
	}
	g, e := t.group.Packed, newEstimator(sample, t.group.Packed.Keys, o.Seed)
	gain := func(d built, free bool) (Interval, int, error) {
		after, err := sample.measure(ctx, setting, d, nil)
		if err != nil {
			return Interval{}, 0, err
		}
		size := after.Dictionary
		if free {
			after.Dictionary = 0
		}
		return interval(sum(e.saving(after), e.saving(before), -1)), size, nil
	}
	better := Interval{}
	switch {
	case anew.dictionary != nil:
		g.renewal = "--dict auto"
		better, _, err = gain(anew, false)
	case current.dictionary != nil && (packed.dictionary == nil || current.dictionary.ID() != packed.dictionary.ID()):
		g.renewal = "--dict current"
		better, _, err = gain(current, true)
		better = better.times(1 - g.part(current.dictionary.ID())) // these have it
	}
	if err != nil {
		return ctx.Err()
	}
	if g.renewal += group; setting.Setting != (compress.Setting{Algorithm: frame.Zstd}) {
		g.renewal += " --compress " + setting.String()
	}
	if better.Estimate <= 0 {
		better = Interval{}
	}
	g.Better = &better
	if float64(there) < minSaving*float64(t.group.Now) || g.worth(t.group.Now) {
		return nil
	}
	// Perhaps a smaller one would do.
	smaller, err := sample.renewed(ctx, setting.Setting, excluded, nil, t.how)
	if err != nil || smaller.dictionary == nil {
		return ctx.Err()
	}
	before.Dictionary = there
	freed, size, err := gain(smaller, false)
	if err != nil {
		return ctx.Err()
	}
	if freed.Low > 0 && freed.Estimate >= minSaving*float64(t.group.Now) && size < there {
		g.large = fmt.Sprintf("Its dictionary takes %s, and one of %s would do. "+
			"It is there already, so bale migrate --dict auto keeps it. "+
			"Auto does not count the keys in Redis: give their number as Auto.Train.Values.",
			printable.Size(there), printable.Size(size))
	}
	return nil
}

// Reader reads packed values, and the dictionaries that they need.
type Reader interface {
	Unpack(ctx context.Context, stored []byte) ([]byte, error)
	Read(ctx context.Context, id frame.DictionaryID) (*dict.Dictionary, error)

	// Group is a group that has a dictionary, the one that is written with it if there is one; nil
	// for none.
	Group(ctx context.Context, id frame.DictionaryID) (*dict.State, error)
}

// errWasted is why further packed values are not read.
var errWasted = fmt.Errorf("too many before them were damaged: they took %d MiB", keyspace.MostWasted>>20)

// unpacked are copies of the sampled entries with packed values, as they would be with plain ones,
// and how most values are packed. An error tells why the first of those was left out that are.
// wasted are the bytes of all values that turned out to be damaged once they were unpacked.
func (t *attempt) unpacked(ctx context.Context, r Reader, wasted *int64) (all []*entry, most frame.Header, failed error) {
	counts, bytes := map[packing]int{}, 0
	for _, e := range t.entries {
		if *wasted >= keyspace.MostWasted {
			failed = cmp.Or(failed, errWasted)
			break
		}
		found, whole := false, bytes < trainBytes
		c := *e
		c.items = slices.Clone(e.items)
		for i := range c.items {
			it := &c.items[i]
			h, offset, ok := frame.Parse(it.head)
			n, packed := plainSize(it.head)
			if !whole || !ok || !packed {
				continue
			}
			// Small fields of a forged hash may all be large values.
			if whole = int64(len(it.head)) == it.size && int64(bytes)+n <= trainBytes+packedMax; !whole {
				break
			}
			v, err := r.Unpack(ctx, it.head)
			if err != nil {
				if whole = false; !errors.Is(err, bale.ErrNotFound) { // a cached miss
					failed = cmp.Or(failed, err)
					if errors.Is(err, bale.ErrCorrupt) {
						*wasted += keyspace.Wasted(n, it.head)
					}
				}
				break
			}
			found = true
			bytes += len(v)
			counts[packing{h.Algorithm, h.DictionaryID}]++
			it.head, it.size = slices.Clone(v[:min(len(v), headBytes)]), int64(len(v))
			if h.Version == frame.V2 {
				it.fresh = int64(offset) + frame.FreshnessSize
			}
		}
		if !found || !whole {
			continue
		}
		if c.usage, c.modelled, c.rough = 0, 0, false; c.kind == String {
			c.size = c.items[0].size
		}
		c.now = t.sample.memory.entry(&c)
		all = append(all, &c)
	}
	best := 0
	for w, n := range counts {
		if n > best || n == best && w.DictionaryID > most.DictionaryID {
			best, most = n, frame.Header{Algorithm: w.Algorithm, DictionaryID: w.DictionaryID}
		}
	}
	return all, most, failed
}

// packed are the pieces of a sample with packed values.
type packed struct {
	keys         int // that they are of
	last         *entry
	saved, heavy float64                        // bytes that they would take more as they were; heavy ones apart
	values       float64                        // of the pieces, with those that they stand for
	with         map[frame.DictionaryID]float64 // of values that need one
}

func (p *packed) add(m *memory, of piece) {
	sizes, found := make([]int64, len(of.items)), false
	for i, it := range of.items {
		sizes[i] = it.size
		if n, ok := plainSize(it.head); ok {
			sizes[i], found = n, true
			p.values += of.times
			if h, _, _ := frame.Parse(it.head); h.DictionaryID != 0 {
				if p.with == nil {
					p.with = map[frame.DictionaryID]float64{}
				}
				p.with[h.DictionaryID] += of.times
			}
		}
	}
	if !found {
		return
	}
	if p.last != of.entry { // the fields of a hash follow one another
		p.last = of.entry
		p.keys++
	}
	if more := m.bytes(of, sizes) - of.before; of.heavy {
		p.heavy += more
	} else {
		p.saved += more
	}
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

// scaled is what is packed in the sample, extended to its group. Heavy values stand for themselves.
func (g *groupSample) scaled(keys int64) *Packed {
	p := g.packed
	if p.keys == 0 {
		return nil
	}
	sampled, last, now := 0, (*entry)(nil), 0.0
	for _, one := range g.pieces {
		if one.entry != last {
			last = one.entry
			sampled++
		}
	}
	for _, e := range g.sizes {
		if !e.heavy {
			now += float64(e.now)
		}
	}
	saved := p.saved/max(1, sumOf(g.used(), g.before))*now + p.heavy
	all := &Packed{
		Keys:  int64(math.Round(float64(p.keys) / float64(sampled) * float64(keys))),
		Saved: int64(saved / float64(len(g.sizes)) * float64(keys)),
	}
	for id, n := range p.with {
		all.Dictionaries = append(all.Dictionaries, PackedWith{id, n / p.values})
	}
	slices.SortFunc(all.Dictionaries, func(x, y PackedWith) int {
		return cmp.Or(cmp.Compare(y.Part, x.Part), cmp.Compare(x.ID, y.ID))
	})
	all.Dictionaries = all.Dictionaries[:min(len(all.Dictionaries), mostPackedWith)]
	return all
}

// with is the dictionaries of the packed values, in words.
func (p *Packed) with() string {
	switch n := len(p.Dictionaries); {
	case n == 0:
		return "-"
	case n == 1 && p.Dictionaries[0].Part < mostHave:
		return fmt.Sprintf("%v (%s)", p.Dictionaries[0].ID, page.Share(p.Dictionaries[0].Part))
	case n == 1:
		return p.Dictionaries[0].ID.String()
	case n < mostPackedWith:
		return fmt.Sprintf("%v and %d more", p.Dictionaries[0].ID, n-1)
	}
	return fmt.Sprintf("%v and others", p.Dictionaries[0].ID)
}

// part is the part of the values that have a dictionary.
func (p *Packed) part(id frame.DictionaryID) float64 {
	for _, w := range p.Dictionaries {
		if w.ID == id {
			return w.Part
		}
	}
	return 0
}

// keysOf is the keys with a packed value: "5,033 of 22,000", or shown, if all keys have one.
func (p *Packed) keysOf(all int64, shown string) string {
	if p.Keys == all {
		return shown
	}
	return page.Thousands(p.Keys) + " of " + shown
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
	t := w.Table(2, "group", "dictionary", "keys", "now", "as they were", "saves", "a new dictionary adds")
	t.Drop, t.Short = []string{"dictionary", "keys"}, map[string]string{"a new dictionary adds": "new dict. adds"}
	for i := range a.Groups {
		if g := &a.Groups[i]; g.Packed != nil {
			plain := g.Now + g.Packed.Saved
			t.Row(page.Name(g.Name, shownAdvice), g.Packed.with(), g.Packed.keysOf(g.Keys, page.Thousands(g.Keys)), page.Amount(float64(g.Now)), page.Amount(float64(plain)), page.Part(float64(g.Packed.Saved), plain), g.Packed.adds(g.Now))
		}
	}
	if t.Len() == 0 {
		return
	}
	printable.Fprintf(w, "\nwhat bale saves already:\n")
	t.Render()
	if g, _ := a.renewal(); g != nil {
		what := "These values have changed since the dictionary was trained. " +
			"This trains one of the present values, and packs them anew. " +
			"Auto does so by itself once their ratio has fallen by 15%, at most once a day."
		if g.Packed.bare {
			what = "Most of these values are packed without a dictionary. This trains one, and packs them anew."
		}
		if strings.HasPrefix(g.Packed.renewal, "--dict current") {
			what = "The group has a newer dictionary than most of these values. This packs them with it."
		}
		pattern := cmp.Or(g.Match, "PATTERN")
		if g.Match == "" {
			what += " PATTERN is for the pattern of their keys."
		}
		if g.Packed.bare && !strings.Contains(g.Packed.renewal, "--group ") {
			what += " If programs open a group of dictionaries for these keys, add --group with its name: " +
				"what that group excludes stays out of no other's dictionaries."
		}
		what += meaning(a.at) + a.warnBeyond(g.Match)
		w.Hanging("  ", what)
		printable.Fprintf(w, "  bale migrate --redis %s %s %s --repack\n",
			a.at, printable.Option("--match", pattern), g.Packed.renewal)
	}
	for i := range a.Groups {
		if g := &a.Groups[i]; g.Packed != nil && g.Packed.large != "" {
			w.Hanging("  ", page.Name(g.Name, shownAdvice)+": "+g.Packed.large)
		}
	}
}

// renewal is the group for which a new dictionary adds most, nil for none, and the bytes that new
// ones add to all groups that are worth one.
func (a *Advice) renewal() (most *Group, bytes float64) {
	for i := range a.Groups {
		if g := &a.Groups[i]; g.Packed != nil && g.Packed.worth(g.Now) {
			bytes += g.Packed.Better.Estimate
			if most == nil || g.Packed.Better.Estimate > most.Packed.Better.Estimate {
				most = g
			}
		}
	}
	return most, bytes
}

// worth reports whether a new dictionary adds a part of the group's memory that is worth a change.
func (p *Packed) worth(now int64) bool {
	return p.Better != nil && p.Better.Low > 0 && p.Better.Estimate >= minSaving*float64(now)
}

// adds is what a new dictionary adds, in words.
func (p *Packed) adds(now int64) string {
	switch {
	case p.Better == nil:
		return "not tried"
	case p.Better.Low <= 0:
		return "nothing"
	}
	return fmt.Sprintf("%s (%s)", page.Amount(p.Better.Estimate), page.Part(p.Better.Estimate, now))
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

// renewals says that new dictionaries are all there is to do, "" where they are not worth it.
func (a *Advice) renewals() string {
	if g, _ := a.renewal(); g == nil {
		return ""
	}
	return "Keep the settings, and pack values anew with new dictionaries." + a.packedAlready()
}

// packedAlready is what all packed values save, in words, "" if nothing is packed.
func (a *Advice) packedAlready() string {
	if n := a.saved(); n > 0 {
		s := fmt.Sprintf(" What is packed already saves %s", page.Amount(float64(n)))
		if _, more := a.renewal(); more > 0 {
			s += fmt.Sprintf("; new dictionaries would save %s more", page.Amount(more))
		}
		return s + "."
	}
	return ""
}
