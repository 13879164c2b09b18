package httplab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/origin"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/page"
)

// broken is a client with a fault.
type broken struct {
	fault func(path string, dst []byte) (int, []byte, error)
}

func (b broken) get(_ context.Context, path string, dst []byte) (int, []byte, error) {
	return b.fault(path, dst)
}

func (b broken) close() {}

// withClient has a run know one more client.
func withClient(t *testing.T, name string, fault func(path string, dst []byte) (int, []byte, error)) {
	was := slices.Clone(rows)
	t.Cleanup(func() { rows = was })
	rows = append(rows, row{name: name, open: func(need) (client, error) { return broken{fault}, nil }})
}

// TestWrongAnswerFails: a client that brings back another response than the one that was asked for
// has no figures, and the run fails.
func TestWrongAnswerFails(t *testing.T) {
	withClient(t, "wrong", func(_ string, dst []byte) (int, []byte, error) {
		time.Sleep(time.Millisecond)
		return 200, append(dst, make([]byte, 1000)...), nil
	})
	o := options(t, "tuned", "wrong")
	r, err := Run(context.Background(), o)
	if err == nil || r == nil {
		t.Fatalf("%v, %v", r, err)
	}
	for _, c := range r.Cells.([]Cell) {
		if c.Verified != (c.Client == "tuned") || c.Client == "wrong" && !strings.Contains(c.Error, "MISMATCH") {
			t.Errorf("%+v", c)
		}
	}
	var b strings.Builder
	r.WriteText(page.NewSheet(&b, 80), outcome.TextOptions{})
	if !strings.Contains(b.String(), "FAILED: wrong: MISMATCH") {
		t.Errorf("%s", &b)
	}
}

// TestErrorsAreCounted: a client that fails at times has figures, and its errors are counted; one
// that always fails has none.
func TestErrorsAreCounted(t *testing.T) {
	answer := func(path string, dst []byte) []byte {
		return append(dst, strings.Repeat(path[strings.LastIndex(path, "/")+1:], 1000)[:1000]...)
	}
	withClient(t, "at-times", func(path string, dst []byte) (int, []byte, error) {
		time.Sleep(time.Millisecond)
		if strings.ContainsAny(path[len(path)-1:], "0123") {
			return 503, dst, nil
		}
		return 200, answer(path, dst), nil
	})
	withClient(t, "never", func(string, []byte) (int, []byte, error) {
		return 0, nil, errors.New("no route to host")
	})
	o := options(t, "at-times", "never")
	o.Loops = []string{Closed}
	r, err := Run(context.Background(), o)
	if err == nil {
		t.Error("no error")
	}
	for _, c := range r.Cells.([]Cell) {
		switch c.Client {
		case "at-times":
			if !c.Verified || c.Requests == 0 || c.FirstError != "status 503" || c.Errors == 0 {
				t.Errorf("%+v", c)
			}
		case "never":
			if c.Verified || !strings.Contains(c.Error, "no route to host") {
				t.Errorf("%+v", c)
			}
		}
	}
}

// TestOpenLoopCountsWaits: in an open loop latency counts from the schedule. A client too slow for
// the rate has a higher P99 than its served P99.
func TestOpenLoopCountsWaits(t *testing.T) {
	withClient(t, "slow", func(path string, dst []byte) (int, []byte, error) {
		time.Sleep(20 * time.Millisecond) // for a request each 10 ms
		return 200, append(dst, strings.Repeat(path[strings.LastIndex(path, "/")+1:], 1000)[:1000]...), nil
	})
	o := options(t, "slow")
	o.Loops, o.InFlight = []string{Open}, 1
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	c := r.Cells.([]Cell)[0]
	if c.P99.Median < 1.5*c.Served.Median || c.Kept() {
		t.Errorf("P99 %g µs, served %g; %g a second of %g", c.P99.Median, c.Served.Median, c.PerSecond.Median, c.Rate)
	}
}

// TestRateIsFound: without a rate the run finds one that all clients keep.
func TestRateIsFound(t *testing.T) {
	o := options(t, "tuned", "fasthttp")
	o.Rate, o.Loops, o.Sizes = 0, []string{Open}, []int{1000, 2000}
	var steps [2]string
	last := 0.0
	o.Progress = func(done, total int, what string) {
		step, doing, _ := strings.Cut(what, ": ")
		if step != steps[0] {
			steps, last = [2]string{step, steps[0]}, 0
		}
		if part := float64(done) / float64(total); part < last || part >= 1 || (step == "step 1 of 2") != strings.HasPrefix(doing, "finding a rate") {
			t.Errorf("%d of %d, %s, after %.2f", done, total, what, last)
		} else {
			last = part
		}
	}
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	cells := r.Cells.([]Cell)
	if len(cells) != 4 || cells[0].Rate < 1 || cells[0].Rate != cells[1].Rate {
		t.Errorf("%+v", cells)
	}
	if steps != [2]string{"step 2 of 2", "step 1 of 2"} {
		t.Errorf("%q", steps)
	}
}

func TestInterruptedRun(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	o := options(t, "tuned")
	o.Duration = time.Minute
	o.Progress = func(int, int, string) { time.AfterFunc(50*time.Millisecond, cancel) }
	if r, err := Run(ctx, o); r != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", r, err)
	}
}

func TestSettings(t *testing.T) {
	for text, want := range map[string]ClientSetting{
		"default": {"default", "", origin.Net}, "resilient:hedge": {"resilient", "hedge", origin.Net}, "fasthttp@fasthttp": {"fasthttp", "", origin.FastHTTP}, "httpc:limit@fasthttp": {"httpc", "limit", origin.FastHTTP},
	} {
		var got ClientSetting
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "curl", "tuned:retry", "resilient:", "resilient:luck", "tuned@apache", "http2@fasthttp"} {
		if err := new(ClientSetting).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	var all []string
	for name := range strings.SplitSeq(Defaults, ",") {
		var c ClientSetting
		if err := c.UnmarshalText([]byte(name)); err != nil {
			t.Error(err)
		}
		if !slices.Contains(all, c.Name) {
			all = append(all, c.Name)
		}
	}
	slices.Sort(all)
	known := slices.Sorted(slices.Values(names()))
	if diff := cmp.Diff(known, all); diff != "" {
		t.Errorf("the defaults lack a client: %s", diff)
	}
}

func TestValidate(t *testing.T) {
	for i, change := range []func(*Options){
		func(o *Options) { o.Sizes = []int{15} }, func(o *Options) { o.Sizes = []int{17 << 20} }, func(o *Options) { o.Sizes = nil }, func(o *Options) { o.Clients = nil },
		func(o *Options) { o.Loops = []string{"half"} }, func(o *Options) { o.Rate = -1 }, func(o *Options) { o.Rate = 1e9 }, func(o *Options) { o.Concurrency = 0 },
		func(o *Options) { o.InFlight = 20_000 }, func(o *Options) { o.Delay = -1 }, func(o *Options) { o.Delay = time.Hour }, func(o *Options) { o.Rounds = 0 }, func(o *Options) { o.Duration = 0 },
	} {
		o := options(t, "tuned")
		change(&o)
		if _, err := Run(context.Background(), o); !errors.Is(err, cli.ErrUsage) {
			t.Error(fmt.Sprint(i), err)
		}
	}
}
