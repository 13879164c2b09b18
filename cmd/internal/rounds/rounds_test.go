package rounds

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMeasure: each cell has its turn in each round, for its part of the time, in an order that the
// seed decides.
func TestMeasure(t *testing.T) {
	order := func(seed uint64) (all []int) {
		var told []string
		o := Options{Duration: time.Second, Rounds: 4, Seed: seed, Progress: func(done, total int, what string) {
			if done != len(told) || total != 12 {
				t.Errorf("%d of %d", done, total)
			}
			told = append(told, what)
		}}
		e, err := Measure(t.Context(), o, []string{"a", "b", "c"}, func(_ context.Context, cell int, d time.Duration) error {
			if d != 250*time.Millisecond {
				t.Errorf("%v", d)
			}
			all = append(all, cell)
			return nil
		})
		if err != nil || e.Rounds != 4 || e.DurationS != 1 || e.Seed != seed || e.Go == "" || e.Cores == 0 || e.OthersCPU != nil && *e.OthersCPU < 0 {
			t.Errorf("%+v, %v", e, err)
		}
		if len(told) != 12 || !strings.HasPrefix(told[11], "round 4 of 4, ") {
			t.Errorf("%q", told)
		}
		for round := range slices.Chunk(all, 3) {
			if got := slices.Sorted(slices.Values(round)); !slices.Equal(got, []int{0, 1, 2}) {
				t.Errorf("a round of %v", round)
			}
		}
		return all
	}
	if first := order(1); !slices.Equal(first, order(1)) || slices.Equal(first, order(2)) {
		t.Error("the order is not the seed's")
	}
}

// TestEnds: an error of a turn, or the end of the context, ends it.
func TestEnds(t *testing.T) {
	broken, turns := errors.New("broken"), 0
	ctx, cancel := context.WithCancel(t.Context())
	for _, test := range []struct {
		turn func(context.Context, int, time.Duration) error
		want error
	}{
		{func(context.Context, int, time.Duration) error { turns++; return broken }, broken},
		{func(context.Context, int, time.Duration) error { turns++; cancel(); return nil }, context.Canceled},
	} {
		if _, err := Measure(ctx, Options{Duration: time.Second, Rounds: 3}, []string{"a"}, test.turn); !errors.Is(err, test.want) {
			t.Errorf("%v, want %v", err, test.want)
		}
	}
	if turns != 2 {
		t.Errorf("%d turns", turns)
	}
}

func TestValidate(t *testing.T) {
	for _, o := range []Options{{}, {Duration: time.Second}, {Duration: time.Second, Rounds: maxRounds + 1}, {Duration: time.Millisecond, Rounds: 2}, {Duration: maxDuration + 1, Rounds: 2}} {
		if o.Validate() == nil {
			t.Errorf("%+v", o)
		}
	}
	if err := (&Options{Duration: 2 * time.Millisecond, Rounds: 2}).Validate(); err != nil {
		t.Error(err)
	}
}
