// Package group has the common parts of Prometheus and OpenTelemetry: a bounded [Set] of groups,
// and the [Totals] of each, which never fall.
package group

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/balekv/bale/stats"
)

// DefaultMax is how many groups a [Set] has by default.
const DefaultMax = 200

// Other is the group of all names beyond the limit.
const Other = "other"

// Set has a G per group, up to a limit. Groups become labels, and time series databases fail on
// unbounded labels. It is safe for concurrent use.
type Set[G any] struct {
	most int
	make func(name string) G

	mu    sync.RWMutex
	byKey map[string]G
	all   []G
}

// NewSet makes a Set of up to most groups, without Other.
func NewSet[G any](most int, make func(name string) G) *Set[G] {
	return &Set[G]{most: cmp.Or(most, DefaultMax), make: make, byKey: map[string]G{}}
}

// Get returns the group of a name, and makes it if there is none. Beyond the limit it returns
// Other.
func (s *Set[G]) Get(name string) G {
	s.mu.RLock()
	g, ok := s.byKey[name]
	s.mu.RUnlock()
	if ok {
		return g
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.get(strings.ToValidUTF8(name, "\uFFFD"))
}

func (s *Set[G]) get(name string) G {
	g, ok := s.byKey[name]
	if ok {
		return g
	}
	if _, other := s.byKey[Other]; name != Other {
		named := len(s.all)
		if other {
			named--
		}
		if named >= s.most {
			return s.get(Other)
		}
	}
	g = s.make(name)
	s.byKey[name] = g
	s.all = append(s.all, g)
	return g
}

// All returns the groups in the order in which they were made.
func (s *Set[G]) All() []G {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.all)
}

// The outcomes of an operation: Hit and Miss for Get, the one of stats.OK for the others, and one
// per other class.
const (
	Hit = iota
	Miss
	classes

	Outcomes = classes + stats.Classes
)

// OutcomeOf is the outcome of a class.
func OutcomeOf(c stats.Class) int { return classes + int(c) }

// Outcome is the name of an outcome, a word for labels.
func Outcome(i int) string {
	switch i {
	case Hit:
		return "hit"
	case Miss:
		return "miss"
	}
	return stats.Class(i - classes).String()
}

// Has reports whether an operation can have an outcome.
func Has(op stats.Op, outcome int) bool {
	success := outcome == Hit || outcome == Miss
	if op == stats.Get {
		return success || outcome != OutcomeOf(stats.OK)
	}
	return !success
}

// The results of a key: of reads Found, Missed and Failed, of the other operations Any.
const (
	Found = iota
	Missed
	Failed
	Any

	Results
)

var results = [Results]string{"hit", "miss", "error", "any"}

// Result is the name of a result, a word for labels.
func Result(i int) string { return results[i] }

// Reads reports whether the keys of an operation are found or missed.
func Reads(op stats.Op) bool { return op == stats.Get || op == stats.GetMany }

// Op are the totals of one operation.
type Op struct {
	Count         uint64
	Outcomes      [Outcomes]uint64
	Keys          [Results]uint64
	Plain, Stored uint64
}

// Totals are those of one group's Counters, in a form whose numbers never fall. A figure derived
// from several counters could fall while operations run, for example successes as the difference of
// all and failures. A rate would then mistake that for a restart. Totals is not safe for concurrent
// use.
type Totals struct {
	last [stats.Ops]Op
}

// Update takes a snapshot, of the same Counters each time. The result is valid until the next call.
func (t *Totals) Update(s *stats.Snapshot) *[stats.Ops]Op {
	for op := range s.Ops {
		from := &s.Ops[op]
		now := Op{Count: from.Count, Plain: from.Plain, Stored: from.Stored}
		var failed uint64
		for class, n := range from.Errors {
			now.Outcomes[OutcomeOf(stats.Class(class))] = n
			failed += n
		}
		if stats.Op(op) == stats.Get {
			now.Outcomes[Miss] = from.Misses
			now.Outcomes[Hit] = less(from.Count, failed+from.Misses)
		} else {
			now.Outcomes[OutcomeOf(stats.OK)] = less(from.Count, failed)
		}
		if Reads(stats.Op(op)) {
			now.Keys[Found], now.Keys[Missed] = from.Hits, from.Misses
			now.Keys[Failed] = less(from.Keys, from.Hits+from.Misses)
		} else {
			now.Keys[Any] = from.Keys
		}
		t.last[op].rise(&now)
	}
	return &t.last
}

// rise raises the totals to the values in now, where these are higher.
func (o *Op) rise(now *Op) {
	o.Count = max(o.Count, now.Count)
	o.Plain, o.Stored = max(o.Plain, now.Plain), max(o.Stored, now.Stored)
	for i := range o.Outcomes {
		o.Outcomes[i] = max(o.Outcomes[i], now.Outcomes[i])
	}
	for i := range o.Keys {
		o.Keys[i] = max(o.Keys[i], now.Keys[i])
	}
}

func less(a, b uint64) uint64 {
	if b > a {
		return 0
	}
	return a - b
}
