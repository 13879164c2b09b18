package adapters

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestCalls: a write waits for earlier ones of its keys whose callers have left, and for no
// others.
func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		var mu sync.Mutex
		var sent []string
		write := func(ctx context.Context, name string, takes time.Duration, keys ...string) error {
			_, err := Send(ctx, &c, Call{Writes: keys}, func() (struct{}, error) {
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
		if n := c.held.Load(); len(c.keys) > 0 || c.keyed.Load() != 0 || n != 0 {
			t.Errorf("%d keys are kept, %d bytes", len(c.keys), n)
		}
	})
}

// TestCallsBound: what goes on without callers is bounded. Further calls wait for its end, but
// calls of other parts do not.
func TestCallsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		answer := make(chan struct{})
		hang := func() (bool, error) { <-answer; return true, nil }
		there := func() (bool, error) { return true, nil }
		call := func(call Call, send func() (bool, error)) error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			call.Bytes = 1 << 20
			_, err := Send(ctx, &c, call, send)
			return err
		}
		for i := range 1000 {
			if err := call(Call{Part: 1}, hang); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if held := c.held.Load(); held < maxLate || held > maxLate+2<<20 {
			t.Errorf("%d bytes are held", held)
		}
		if c.Direct(1) || !c.Direct(2) {
			t.Error("a read that may wait needs no goroutine, or another one does")
		}
		c.Ended(t.Context(), 2, nil)
		for name, other := range map[string]Call{
			"another part": {Part: 2},
			"a write, which may go to another server": {Part: 1, Writes: []string{"key"}},
			"what does not wait":                      {Part: 1, Always: true},
		} {
			if err := call(other, there); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for range 100 { // calls without an end, and those that wait for room
			go Send(context.Background(), &c, Call{Part: 1}, hang)
			go Send(t.Context(), &c, Call{Part: 1}, there)
		}
		synctest.Wait()
		close(answer)
		synctest.Wait()
		if n := c.held.Load() + c.reads[1].held.Load() + c.queued.Load(); n != 0 || c.freed != nil {
			t.Errorf("%d are kept", n)
		}
		if err := call(Call{Part: 1}, hang); err != nil || !c.Direct(1) {
			t.Errorf("when all have ended: %v", err)
		}
	})
}

// TestCallsCeiling: calls to many servers hang, or of one part some hang and some are answered.
// What is held is bounded all the same.
func TestCallsCeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		answer := make(chan struct{})
		for i := range 1000 {
			call := Call{Bytes: 10 << 20, Part: i % parts, Writes: []string{strconv.Itoa(i)}}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			Send(ctx, &c, call, func() (bool, error) { <-answer; return true, nil })
			call.Writes = []string{"short"}
			Send(ctx, &c, call, func() (bool, error) { return true, nil })
			cancel()
		}
		if held := c.held.Load(); held < ceiling || held > ceiling+11<<20 {
			t.Errorf("%d MiB are held", held>>20)
		}
		waited := make(chan error)
		go func() {
			_, err := Send(t.Context(), &c, Call{Part: 1}, func() (bool, error) { return true, nil })
			waited <- err
		}()
		for range 4 { // of the calls; the waiting one's part has one of its own
			answer <- struct{}{}
		}
		if err := <-waited; err != nil {
			t.Error(err)
		}
		close(answer)
		synctest.Wait()
		if held := c.held.Load(); held != 0 {
			t.Errorf("%d bytes are kept", held)
		}
	})
}

// TestCallsQueue: reads go to the client itself while it has room, and keep their places for a
// time when they end without an answer.
func TestCallsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		for i := range maxDirect {
			if !c.Direct(0) {
				t.Fatalf("there is no room for read %d", i)
			}
		}
		if c.Direct(0) {
			t.Error("the client has no room")
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range maxDirect {
			c.Ended(ended, 0, ended.Err())
		}
		c.NoteRead(t.Context(), 0, nil)
		if c.Direct(0) {
			t.Error("the commands have left the client at once")
		}
		time.Sleep(giveUp)
		synctest.Wait()
		if !c.Direct(0) || c.queued.Load() != 1 {
			t.Errorf("%d places are taken", c.queued.Load())
		}
	})
}
