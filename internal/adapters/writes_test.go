package adapters

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestWrites: a write waits for earlier ones of its keys whose callers have left, and for no
// others.
func TestWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Writes
		var mu sync.Mutex
		var sent []string
		write := func(ctx context.Context, name string, takes time.Duration, keys ...string) error {
			_, err := Write(ctx, &w, keys, func() (struct{}, error) {
				time.Sleep(takes)
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, name)
				return struct{}{}, nil
			})
			return err
		}
		within := func(d time.Duration) context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			t.Cleanup(cancel)
			return ctx
		}
		start := time.Now()
		for _, step := range []struct {
			name  string
			ctx   func() context.Context
			takes time.Duration
			keys  []string
			want  error
			at    time.Duration // when it returns
		}{
			{"late", func() context.Context { return within(time.Second) }, time.Minute, []string{"a", "b"}, context.DeadlineExceeded, time.Second},
			{"another key", t.Context, 0, []string{"c"}, nil, time.Second},
			{"in vain", func() context.Context { return within(time.Second) }, 0, []string{"b"}, context.DeadlineExceeded, 2 * time.Second},
			{"after it", t.Context, 0, []string{"c", "b"}, nil, time.Minute},
			{"without an end", context.Background, 0, []string{"a"}, nil, time.Minute},
		} {
			if err := write(step.ctx(), step.name, step.takes, step.keys...); !errors.Is(err, step.want) {
				t.Errorf("%s: %v", step.name, err)
			}
			if at := time.Since(start); at != step.at {
				t.Errorf("%s: after %v, not %v", step.name, at, step.at)
			}
		}
		// Two late ones of a key: the next one waits for both.
		for _, takes := range []time.Duration{time.Minute, time.Hour} {
			go write(within(time.Second), takes.String(), takes, "a")
		}
		time.Sleep(2 * time.Second)
		if err := write(t.Context(), "last", 0, "a"); err != nil {
			t.Error(err)
		}
		want := []string{"another key", "late", "after it", "without an end", "1m0s", "1h0m0s", "last"}
		if !slices.Equal(sent, want) {
			t.Errorf("%q are sent, not %q", sent, want)
		}
		synctest.Wait()
		if len(w.keys) > 0 || w.late.Load() != 0 {
			t.Errorf("%d keys are kept", len(w.keys))
		}
	})
}
