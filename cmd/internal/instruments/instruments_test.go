package instruments

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/rounds"
)

// TestRun measures everything briefly: every cell counted what it recorded, and the ring alone may
// drop.
func TestRun(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	r, err := Run(t.Context(), rounds.Options{Duration: 4 * time.Millisecond, Rounds: 2, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	cells := r.Cells.([]*Cell)
	if len(cells) != len(instruments)*len(goroutines)*len(reads) || len(r.Findings) != len(reads)+1 || len(r.Charts) != 1 {
		t.Fatalf("%d cells, %d findings", len(cells), len(r.Findings))
	}
	for _, c := range cells {
		if !c.Verified || c.Recorded > uint64(c.Operations) || c.Reads == 0 && c.Recorded != uint64(c.Operations) || c.Dropped > 0 && c.Instrument != "ring" || c.Dropped > c.Recorded {
			t.Errorf("%+v", c)
		}
	}
}

// TestPattern: a share of reads is exact in every hundred operations.
func TestPattern(t *testing.T) {
	for _, share := range reads {
		n := 0
		for _, is := range pattern(share, 7) {
			if is {
				n++
			}
		}
		if n != share {
			t.Errorf("%d reads of %d", n, share)
		}
	}
}

// forgetful loses one of every operations, or a read goes back once.
type forgetful struct {
	atomics
	calls atomic.Uint64
	every uint64
	back  atomic.Bool
}

func (m *forgetful) record(caller int, bytes uint64) {
	if m.calls.Add(1)%m.every != 0 {
		m.atomics.record(caller, bytes)
	}
}

func (m *forgetful) read(caller int) totals {
	all := m.atomics.read(caller)
	if all.operations > 10 && m.back.CompareAndSwap(true, false) {
		return totals{}
	}
	return all
}

func (m *forgetful) finish(context.Context) (totals, uint64, error) { return m.atomics.read(0), 0, nil }

// TestRoundTrip: a meter that loses an operation fails its cell, as one does whose reads go back.
func TestRoundTrip(t *testing.T) {
	const never = 1 << 40
	back := &forgetful{every: never}
	back.back.Store(true)
	for _, test := range []struct {
		name string
		m    *forgetful
		want error
	}{{"good", &forgetful{every: never}, nil}, {"loses one", &forgetful{every: 3}, errTotals}, {"goes back", back, errBack}} {
		c := &Cell{Goroutines: 1, Reads: 50, open: func(int) (meter, error) { return test.m, nil }}
		if err := c.measure(t.Context(), 5*time.Millisecond, 1); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	r, err := run(t.Context(), rounds.Options{Duration: 2 * time.Millisecond, Rounds: 1}, []instrument{{"mutex", 0, func(int) (meter, error) { return &forgetful{every: 2}, nil }}})
	if err == nil || r == nil || len(r.Failures) == 0 || !strings.Contains(r.Failures[0], "FAILED mutex, 0% reads, 1 goroutine: MISMATCH") {
		t.Errorf("%v", err)
	}
}

// made is a cell of which every round had the same figures.
func made(name string, goroutines, reads int, rate float64, dropped uint64) *Cell {
	same := func(v float64) outcome.Estimate {
		return outcome.Estimate{Median: v, Interval: &[2]float64{0.9 * v, 1.1 * v}}
	}
	claim := 0.0
	for _, i := range instruments {
		if i.name == name {
			claim = i.claim
		}
	}
	return &Cell{Instrument: name, Goroutines: goroutines, Reads: reads, OpsPerSecond: same(rate), Recorded: 1000, Dropped: dropped, Claim: claim, Verified: true}
}

// TestFindings: what drops is not the best, and a claim stands beside a figure as a claim. A failed
// cell is as one that is not there.
func TestFindings(t *testing.T) {
	cells := []*Cell{
		made("mutex", 1, 0, 40e6, 0), made("atomic", 1, 0, 80e6, 0), made("ring", 1, 0, 90e6, 1), made("ring", 1000, 0, 90e6, 900),
		made("mutex", 1000, 0, 10e6, 0), made("atomic", 1000, 0, 8e6, 0),
	}
	want := []string{
		"no reads: 1 goroutine: atomic does the most without loss, 80.00 (72.00 to 88.00) million operations a second, 2.00 times (1.64 to 2.44) a mutex.",
		"no reads: 1,000 goroutines: mutex does the most without loss, 10.00 (9.00 to 11.00) million operations a second.",
		"no reads: 1,000 goroutines: the ring dropped 90% of 1,000 events, and says so.",
		"the published claim: mutex: claimed 182,000 operations a second; here at least 10,000,000, 54.9 times.",
		"the published claim: atomic: claimed 890,000 operations a second; here at least 8,000,000, 9.0 times.",
	}
	failed := made("channel", 1, 0, 1e12, 0)
	failed.Verified = false
	for _, all := range [][]*Cell{cells, append([]*Cell{failed}, cells...)} {
		var got []string
		for _, f := range findings(all) {
			for _, s := range f.Claims {
				got = append(got, f.About+": "+s)
			}
			for _, row := range f.Rows {
				if len(row) != len(f.Columns) {
					t.Errorf("%v below %v", row, f.Columns)
				}
			}
			if f.About == "the published claim" && (!slices.Contains(f.Legend, claimNote) || f.Rows[0][1].Value != nil) {
				t.Errorf("the claim passes for a measurement: %+v", f)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if got := findings(nil); len(got) > 0 {
		t.Errorf("%+v of nothing", got)
	}
}
