package group

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/stats"
)

// TestSet: many at once make no group twice, and no more than the most.
func TestSet(t *testing.T) {
	made := map[string]int{} // under the set's lock
	s := NewSet(10, func(name string) string {
		made[name]++
		return name
	})
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for i := range 100 {
				name := fmt.Sprint(i % 20)
				if got := s.Get(name); got != name && got != Other {
					t.Errorf("%s for %s", got, name)
				}
			}
		})
	}
	callers.Wait()
	if n := len(s.All()); n != 11 || len(made) != n || made[Other] != 1 {
		t.Errorf("%d groups: %v", n, made)
	}
	for name, n := range made {
		if n != 1 {
			t.Errorf("%s is made %d times", name, n)
		}
	}
}

// TestOtherTakesNoPlace: a group that is called so is the one beyond the most.
func TestOtherTakesNoPlace(t *testing.T) {
	s := NewSet(2, func(name string) string { return name })
	for _, test := range []struct{ name, want string }{
		{Other, Other}, {"a", "a"}, {"b", "b"}, {"c", Other}, {"a", "a"}, {"\xff", Other},
	} {
		if got := s.Get(test.name); got != test.want {
			t.Errorf("%q is %q", test.name, got)
		}
	}
	if diff := cmp.Diff([]string{Other, "a", "b"}, s.All()); diff != "" {
		t.Error(diff)
	}
	if got := NewSet(0, func(name string) string { return name }).Get("\xff"); got != "\uFFFD" {
		t.Errorf("%q", got)
	}
}

// TestTotals: each operation is in one outcome, each key in one result, and what falls for a moment
// does not.
func TestTotals(t *testing.T) {
	var totals Totals
	s := new(stats.Snapshot)
	for op := range s.Ops {
		s.Ops[op] = stats.OpStats{Count: 10, Keys: 20}
		s.Ops[op].Errors[stats.Server], s.Ops[op].Errors[stats.Dropped] = 1, 2
		if Reads(stats.Op(op)) {
			s.Ops[op].Hits, s.Ops[op].Misses = 12, 4
		}
	}
	before := *totals.Update(s)
	for i, o := range before {
		op := stats.Op(i)
		var outcomes, results uint64
		for outcome, n := range o.Outcomes {
			outcomes += n
			if n > 0 && !Has(op, outcome) {
				t.Errorf("%v has %d of %s", op, n, Outcome(outcome))
			}
		}
		for _, n := range o.Keys {
			results += n
		}
		if outcomes != o.Count || results != 20 {
			t.Errorf("%v: %d outcomes, %d results: %+v", op, outcomes, results, o)
		}
	}
	for op := range s.Ops { // as where a snapshot is taken between two counters of one operation
		s.Ops[op].Errors[stats.Server] = 5
		s.Ops[op].Hits = 0
	}
	after := totals.Update(s)
	for op := range after {
		for outcome, n := range after[op].Outcomes {
			if n < before[op].Outcomes[outcome] {
				t.Errorf("%v: %s falls to %d", stats.Op(op), Outcome(outcome), n)
			}
		}
		for result, n := range after[op].Keys {
			if n < before[op].Keys[result] {
				t.Errorf("%v: %s falls to %d", stats.Op(op), Result(result), n)
			}
		}
	}
	names := map[string]bool{}
	for i := range Outcomes {
		names[Outcome(i)] = true
	}
	if len(names) != Outcomes {
		t.Errorf("%d names of %d outcomes", len(names), Outcomes)
	}
}
