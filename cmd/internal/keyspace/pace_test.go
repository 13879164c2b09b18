package keyspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/internal/redisproc"
)

// TestPaceCountsElementsAndBytes: the slower of the two bounds holds. There is no upper bound: the
// machine may be busy.
func TestPaceCountsElementsAndBytes(t *testing.T) {
	for name, test := range map[string]struct {
		pace     Pace
		n, bytes int
	}{
		"elements": {Pace{Rate: 1000, Bandwidth: 1 << 30}, 300, 10},
		"bytes":    {Pace{Rate: 1e9, Bandwidth: 1 << 20}, 1, 300 << 10},
	} {
		p := Pacer{Pace: test.pace}
		p.due = time.Now().Add(-time.Hour) // what was not used up long ago is no credit
		if err := p.Wait(t.Context(), nil, test.n, test.bytes); err != nil {
			t.Error(err)
		}
		if ahead := time.Until(p.due); ahead > 0 {
			t.Errorf("%s: it went on %v too early", name, ahead)
		}
		if cost := time.Until(p.due.Add(burst)); cost < 0 && p.due.Before(time.Now().Add(-time.Minute)) {
			t.Errorf("%s: an hour was saved up", name)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	p := Pacer{Pace: Pace{Rate: 1}}
	if err := p.Wait(cancelled, nil, 1000, 0); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestRest: a walk with bounds rests for nine times as long as a command took. There is no upper
// bound: the machine may be busy.
func TestRest(t *testing.T) {
	const busy = time.Millisecond
	p, start := Pacer{Pace: Pace{Rate: 1e9}}, time.Now()
	if err := p.Rest(t.Context(), busy); err != nil || time.Since(start) < restFactor*busy {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	var none *Pacer
	for _, p := range []*Pacer{none, {}} {
		if err := p.Rest(t.Context(), time.Hour); err != nil {
			t.Error(err)
		}
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Rest(cancelled, time.Hour); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestTrouble(t *testing.T) {
	lines := func(text string) map[string]string { return Info(strings.ReplaceAll(text, " ", "\n")) }
	for _, test := range []struct {
		info   string
		before int64
		since  time.Duration
		kind   string
	}{
		{"used_memory:100000000", 0, time.Hour, ""},
		{"used_memory:100000000", 90000000, time.Second, ""},
		{"used_memory:100000000", 60000000, time.Second, "memory"},
		{"used_memory:100000000", 60000000, 5 * time.Second, ""},
		{"used_memory:1 master_repl_offset:40000000 slave0:ip=a,port=1,state=online,offset=39000000,lag=0", 1, time.Second, ""},
		{"used_memory:1 master_repl_offset:40000000 slave0:ip=a,port=1,state=online,offset=40000000,lag=0 slave1:ip=a,port=2,state=online,offset=1000,lag=9", 1, time.Second, "replicas"},
		{"used_memory:1 master_repl_offset:40000000 slave0:ip=a,port=1,state=wait_bgsave,offset=0,lag=0", 1, time.Second, ""},
		{"used_memory:995 maxmemory:1000 maxmemory_policy:noeviction", 990, time.Second, "full"},
		{"used_memory:995 maxmemory:1000 maxmemory_policy:noeviction", 995, time.Second, ""},
		{"used_memory:995 maxmemory:1000 maxmemory_policy:allkeys-lru", 990, time.Second, ""},
		{"used_memory:980 maxmemory:1000 maxmemory_policy:noeviction", 970, time.Second, ""},
		{"", 1, time.Second, ""},
	} {
		if kind, why := trouble(lines(test.info), test.before, test.since); kind != test.kind || (kind == "") != (why == "") {
			t.Errorf("%s: %q, %q", test.info, kind, why)
		}
	}
}

// TestPauses: a walk waits for a server whose memory grows, and for one that answers slowly, and
// goes on.
func TestPauses(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := redisproc.ForTest(t)
	c, other := opened(t, s.URL()).(*redis.Client), opened(t, s.URL())
	paused := map[string]string{}
	var busy atomic.Bool
	p := Pacer{Pace: Pace{Rate: 1e9, Paused: func(why string, _ time.Duration) {
		paused[strings.Fields(why)[0]] = why
		busy.Store(false)
	}}}
	must(t, p.Wait(ctx, c, 1, 1))
	for range 2 {
		if err := other.Append(ctx, "k", strings.Repeat("x", 100<<20)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	p.servers[c].looked = time.Now().Add(-lookApart)
	must(t, p.Wait(ctx, c, 1, 1))
	if paused["used_memory"] == "" {
		t.Errorf("no pause for memory: %v", paused)
	}
	// Scripts keep the server busy until the walk pauses.
	p.servers[c].atFirst = time.Microsecond
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	busy.Store(true)
	go func() {
		defer close(ended)
		for busy.Load() {
			other.Eval(ctx, `local n = 0 for i = 1, 10000000 do n = n + i end`, nil)
		}
	}()
	for range 100 {
		must(t, p.Wait(ctx, c, 1, 1))
		if paused["PING"] != "" {
			break
		}
		time.Sleep(pingEvery)
	}
	busy.Store(false)
	cancel()
	<-ended
	if paused["PING"] == "" {
		t.Errorf("no pause for slow answers: %v, %v", paused, p.servers[c].pings)
	}
}

// TestPausesAreReported: each cause once, and again when the pauses have taken twice as long.
func TestPausesAreReported(t *testing.T) {
	var got []string
	p := Pacer{Pace: Pace{Paused: func(why string, sofar time.Duration) {
		got = append(got, fmt.Sprint(why, " ", sofar))
	}}, reported: map[string]bool{}}
	for range 15 {
		p.report("ping", "PING")
	}
	for range 300 {
		p.report("memory", "MEMORY")
	}
	if want := []string{"PING 0s", "MEMORY 3s", "MEMORY 10s", "MEMORY 20s", "MEMORY 40s"}; !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}
