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
		if n := c.writes[0].bytes.Load(); len(c.keys) > 0 || c.late.Load() != 0 || n != 0 {
			t.Errorf("%d keys are kept, %d bytes", len(c.keys), n)
		}
	})
}

// TestCallsBound: what goes on without callers is bounded while the server does not answer, for
// each part of a cluster by itself. An answer, or the end of the calls, lets further ones through.
func TestCallsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		answer := make(chan struct{})
		hang := func() (bool, error) { <-answer; return true, nil }
		call := func(part int, send func() (bool, error)) error {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			_, err := Send(ctx, &c, Call{Part: part, Bytes: 1 << 20}, send)
			return err
		}
		for i := range 4 {
			if err := call(1, hang); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("call %d: %v", i, err)
			}
		}
		if err := call(1, hang); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the server may be slow: %v", err)
		}
		time.Sleep(patience)
		// One call of many is sent beyond the bound. What it leaves counts, too.
		refused := 0
		for range 100 {
			if err := call(1, hang); errors.Is(err, ErrHung) {
				refused++
				time.Sleep(time.Millisecond)
			} else if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("beyond the bound: %v", err)
			}
		}
		if refused < 90 || refused == 100 {
			t.Errorf("beyond the bound %d of 100 calls are refused", refused)
		}
		write := Call{Part: 1, Bytes: 1 << 20, Writes: []string{"key"}}
		if _, err := Send(t.Context(), &c, write, func() (bool, error) { return true, nil }); err != nil {
			t.Errorf("a write, which may go to another server: %v", err)
		}
		always := func(send func() (bool, error)) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := Send(ctx, &c, Call{Part: 1, Always: true}, send)
			return err
		}
		if err := always(hang); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("what is always sent: %v", err)
		}
		if err := always(func() (bool, error) { return true, nil }); err != nil {
			t.Error(err)
		}
		// A call that is left now and then, between answers, refuses nothing.
		for range 10 {
			if err := call(1, hang); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after an answer: %v", err)
			}
			if err := call(1, func() (bool, error) { return true, nil }); err != nil {
				t.Errorf("after one that was left: %v", err)
			}
		}
		if err := call(1, hang); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the last one: %v", err)
		}
		if err := call(2, func() (bool, error) { return true, nil }); err != nil {
			t.Errorf("another part: %v", err)
		}
		if c.Direct(1) || !c.Direct(2) {
			t.Error("a read that may wait needs no goroutine, or another one does")
		}
		c.Ended(t.Context(), 2, nil)
		close(answer)
		synctest.Wait()
		if n := c.reads[1].bytes.Load() + c.writes[1].bytes.Load() + c.queued.Load(); n != 0 {
			t.Errorf("%d are kept", n)
		}
		if err := call(1, hang); err != nil || !c.Direct(1) {
			t.Errorf("when all have ended: %v", err)
		}
	})
}

// TestCallsCeiling: of servers of one part one hangs, and another answers. What is held is bounded
// all the same, also by large values.
func TestCallsCeiling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Calls
		answer := make(chan struct{})
		hang := func() (bool, error) { <-answer; return true, nil }
		call := Call{Bytes: 10 << 20, Writes: []string{"key"}}
		for i := range 1000 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			call.Writes = []string{strconv.Itoa(i)}
			Send(ctx, &c, call, hang)
			cancel()
			Send(t.Context(), &c, Call{Writes: []string{"short"}}, func() (bool, error) { return true, nil })
			time.Sleep(time.Millisecond)
		}
		if held := c.writes[0].bytes.Load(); held < 8*maxLate || held > 16*maxLate {
			t.Errorf("%d MiB are held", held>>20)
		}
		close(answer)
		synctest.Wait()
		if held := c.writes[0].bytes.Load(); held != 0 {
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
		c.Answered()
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
