package advise

import (
	"cmp"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// entry is a key that was looked at.
type entry struct {
	rank     uint64 // a hash of its name: the keys with the lowest ones are the sample
	name     string
	kind     string
	expires  bool
	ttl      time.Duration // if it expires
	size     int64         // of a string, in bytes; of anything else its elements
	encoding string        // of a hash, as OBJECT ENCODING says it
	now      int64         // bytes, modelled; of another type than string and hash as MEMORY USAGE says
	modelled int64         // bytes that MEMORY USAGE should say
	usage    int64         // MEMORY USAGE, 0 where it was not asked for
	read     int64         // bytes of memory that items take
	items    []item        // what could be packed; nil where it was not read or is let go
	sampled  bool          // it is one of those whose values are tried, where there are any
	rough    bool          // now is MEMORY USAGE
	heavy    bool          // it counts for itself, not for others of its group
	scale    float64       // of now, to MEMORY USAGE of a group, 0 for 1
	node     *redis.Client // that has it
}

// item is a value: of a string, or of a field of a hash.
type item struct {
	name []byte // of the field
	head []byte // the value, or its first part
	size int64  // of the whole value

	// fresh is what a value of GetOrLoad takes beside its content: a header, and the record of its
	// freshness.
	fresh int64
}

// itemBytes is the memory of an item beside its bytes: its part of the list, with room to grow, and
// two allocations of 8 bytes at least. Of tiny fields it is nearly all.
const itemBytes = 96

// tally holds the counts and the sample of a group of keys. The sample is the keys with the lowest
// ranks ("bottom-k sampling", Cohen and Kaplan, 2007). It is uniform, and the same for the same
// keys in any order. The samples of two groups merge into the sample of both.
type tally struct {
	seen    int64
	entries []*entry
	limits  *limits
	held    int // entries that are sampled
	heats   heats

	// A key with a rank at or above these is in no sample any more.
	entriesBelow, valuesBelow uint64
}

// limits bound all samples together.
type limits struct {
	entries, values int   // of a group: keys that are looked at, and whose values are kept of those
	allEntries      int   // of all groups
	allBytes        int64 // of memory, for the names and the values kept of all groups

	keptEntries int
	keptBytes   int64
	tallies     map[*tally]struct{}
	most        float64 // how much may be kept, in parts of the limits: more than 1 if the least is more
}

func newLimits(values int, entries int, allBytes int64) *limits {
	return &limits{values: values, entries: sizesPerValue * values, allEntries: entries, allBytes: allBytes, tallies: map[*tally]struct{}{}, most: 1}
}

const (
	// The mean size of a group's keys takes more keys than the ratio of their values, and costs
	// less to find out.
	sizesPerValue = 4

	minValues = 50 // of a group, however many groups there are; and keys
)

func (l *limits) newTally() *tally {
	t := &tally{limits: l, entriesBelow: ^uint64(0), valuesBelow: ^uint64(0), heats: heats{}}
	l.tallies[t] = struct{}{}
	return t
}

// wants reports whether to sample a key with this rank, and whether to read its value.
func (t *tally) wants(rank uint64) (look, read bool) {
	return rank < t.entriesBelow, rank < t.valuesBelow
}

// add takes a key that was looked at.
func (t *tally) add(e *entry) {
	if look, read := t.wants(e.rank); !look {
		return
	} else if !read {
		e.drop()
	}
	t.entries = append(t.entries, e)
	t.limits.keptEntries++
	t.limits.keptBytes += e.kept()
	if e.sampled {
		t.held++
	}
	if len(t.entries) >= 2*t.limits.entries || t.held >= 2*t.limits.values {
		t.shrink()
	}
	t.limits.keep()
}

// kept is how many bytes it takes of limits.allBytes.
func (e *entry) kept() int64 { return int64(len(e.name)) + e.read }

// drop releases the values.
func (e *entry) drop() { e.items, e.read, e.sampled = nil, 0, false }

// merge takes over all of another tally.
func (t *tally) merge(o *tally) {
	t.seen += o.seen
	t.entriesBelow, t.valuesBelow = min(t.entriesBelow, o.entriesBelow), min(t.valuesBelow, o.valuesBelow)
	t.entries = append(t.entries, o.entries...)
	o.entries = nil
	for kind, h := range o.heats {
		t.heats.of(kind).merge(h)
	}
	delete(t.limits.tallies, o)
	t.shrink()
}

// shrink keeps what the limits allow. A key that SCAN gave twice is kept once.
func (t *tally) shrink() {
	slices.SortFunc(t.entries, func(a, b *entry) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.name, b.name)) })
	kept := t.entries[:0]
	values := 0
	for _, e := range t.entries {
		last := len(kept) - 1
		switch {
		case e.rank >= t.entriesBelow, last >= 0 && kept[last].rank == e.rank && kept[last].name == e.name:
		case len(kept) == t.limits.entries:
			t.entriesBelow = e.rank
		default:
			held := e.read
			if e.rank >= t.valuesBelow || values == t.limits.values {
				t.valuesBelow = min(t.valuesBelow, e.rank)
				e.drop()
			}
			if e.sampled {
				values++
			}
			t.limits.keptBytes += e.read - held
			kept = append(kept, e)
			continue
		}
		t.limits.keptEntries--
		t.limits.keptBytes -= e.kept()
	}
	clear(t.entries[len(kept):])
	t.entries, t.held = kept, values
}

// keep makes the samples smaller when they are too large together. First it drops the samples'
// surplus over their limits; if that is not enough, it halves the limits. Of very many groups the
// smallest samples are too large together: they may grow by a third before keep runs again.
func (l *limits) keep() {
	over := func(part float64) bool {
		return float64(l.keptBytes) > part*float64(l.allBytes) || float64(l.keptEntries) > part*float64(l.allEntries)
	}
	if !over(l.most) {
		return
	}
	l.shrink()
	for over(roomAfter) && l.entries > minValues {
		if l.values > minValues {
			l.values = max(minValues, l.values/2)
			l.entries = sizesPerValue * l.values
		} else {
			l.entries = max(minValues, l.entries/2)
		}
		l.shrink()
	}
	for l.most = 1; over(roomAfter * l.most); {
		l.most /= roomAfter
	}
}

func (l *limits) shrink() {
	for t := range l.tallies {
		t.shrink()
	}
}

// roomAfter is the fill level after making room; below 1, so that keep does not run again at once.
const roomAfter = 0.75
