// Package resilience studies what each policy of package resilient does for the callers of an HTTP
// server, or of a Redis, that falls ill and recovers.
//
// [Run] is the entry point. Calls start at a fixed rate, each with a deadline. In the middle third
// of the time the server has a fault. The policies of a scenario run at the same time, each with a
// server of its own, so that what else the machine does hits all alike. Every answer is checked.
package resilience

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/load"
	"github.com/balekv/bale/cmd/internal/origin"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/rounds"
	"github.com/balekv/bale/extra/resilient"
	"github.com/balekv/bale/internal/redisproc"
)

const (
	rate      = 500.0                  // calls a second
	workers   = 8                      // of the HTTP server
	delay     = 10 * time.Millisecond  // of each: 800 answers a second
	patience  = 200 * time.Millisecond // of a caller
	healthy   = 11 * time.Millisecond  // what a call takes on average
	maxCalls  = 1000                   // in flight; more fail at once. 100 wait for a dead server
	moments   = 60                     // of a picture
	leastSpan = 10 * time.Millisecond  // of a moment
)

// policy is what protects the calls.
type policy struct {
	name string
	o    resilient.Options
}

// The settings of the policies. The times of the breaker are shorter than its defaults, as the
// faults are.
var (
	retry   = resilient.Retry{Tries: 3}
	breaker = resilient.Breaker{Failures: 0.5, Window: time.Second, Open: 300 * time.Millisecond, MaxOpen: time.Second}
	limit   = resilient.Limit{Healthy: healthy}
	hedge   = resilient.Hedge{Quantile: 0.95}

	none        = policy{name: "none"}
	withRetry   = policy{"retry", resilient.Options{Retry: retry}}
	withBreaker = policy{"breaker", resilient.Options{Breaker: breaker}}
	withLimit   = policy{"limit", resilient.Options{Limit: limit}}
	withHedge   = policy{"hedge", resilient.Options{Hedge: hedge}}
	withEach    = policy{"all", resilient.Options{Timeout: patience, Retry: retry, Breaker: breaker, Limit: limit, Hedge: hedge}}
	withTimeout = policy{"timeout", resilient.Options{Timeout: patience / 4}}
	withTwo     = policy{"timeout, breaker", resilient.Options{Timeout: patience / 4, Breaker: breaker}}
)

// scenario is a fault of a server.
type scenario struct {
	name     string
	title    string
	about    string
	fault    origin.Behaviour // of the HTTP server
	redis    bool             // Redis stops answering instead
	policies []policy
}

var well = origin.Behaviour{Workers: workers, Delay: delay}

// ill is the server with a fault.
func ill(change func(*origin.Behaviour)) origin.Behaviour {
	b := well
	change(&b)
	return b
}

var scenarios = []scenario{
	{"tail", "Three of a hundred answers are slow", "3% of the answers take 120 ms instead of 10",
		ill(func(b *origin.Behaviour) { b.Slow, b.SlowTime = 0.03, 12*delay }), false, []policy{none, withHedge, withEach}},
	{"failing", "A fifth fails", "20% of the requests are answered 503 at once",
		ill(func(b *origin.Behaviour) { b.Failing = 0.2 }), false, []policy{none, withRetry, withEach}},
	{"half", "Half of the capacity is gone", "Four of the eight workers are gone: 400 answers a second for 500 calls",
		ill(func(b *origin.Behaviour) { b.Workers = workers / 2 }), false, []policy{none, withLimit, withEach}},
	{"slow", "Everything takes ten times as long", "Each answer takes a worker 100 ms: 80 answers a second for 500 calls",
		ill(func(b *origin.Behaviour) { b.Delay = 10 * delay }), false, []policy{none, withBreaker, withLimit, withEach}},
	{"dead", "Nothing is answered", "The server accepts requests and does not answer",
		ill(func(b *origin.Behaviour) { b.Dead = true }), false, []policy{none, withBreaker, withEach}},
	{"redis", "Redis does not answer", "Calls are GetOrLoad over a redis-server that stops answering (CLIENT PAUSE); a load takes 2 ms",
		origin.Behaviour{}, true, []policy{none, withTimeout, withTwo}},
}

// The phases of a turn.
const (
	before = iota
	during
	after
	phases
)

// Cell is a policy in a scenario.
type Cell struct {
	Scenario string        `json:"scenario"`
	Policy   string        `json:"policy"`
	Phases   [phases]Phase `json:"phases"` // before, during and after the fault
	Moments  Moments       `json:"moments"`
}

// Phase sums up the calls of a phase.
type Phase struct {
	Good    outcome.Estimate `json:"good"`           // share of the calls that got their answer within the deadline
	P99     outcome.Estimate `json:"p99_ms"`         // of what callers waited for an answer or an error
	Refused outcome.Estimate `json:"refused"`        // requests that a policy refused, a call. GetOrLoad makes two
	Asked   outcome.Estimate `json:"asked_per_call"` // requests that the server got, or loads behind Redis, a call
}

// Moments are figures over time: medians of the rounds.
type Moments struct {
	AtS     []float64 `json:"at_s"` // the middle of each
	Good    []float64 `json:"good_per_s"`
	P99     []float64 `json:"p99_ms"` // of what callers waited
	Refused []float64 `json:"refused_per_s"`
	Limit   []float64 `json:"limit"` // calls that may be in flight; 0 without a limit
}

// cell is one in the making.
type cell struct {
	scenario *scenario
	policy   policy
	turns    []*turn
}

// target is what is called.
type target interface {
	call(ctx context.Context, id uint64) error
	guard() *resilient.Guard // nil without policies
	asked() (int64, error)   // so far: Phase.Asked
	fall(ctx context.Context, length time.Duration) error
	recover() error
	close() error
}

// Run runs all scenarios. Those with Redis are left out if none is installed. If ctx ends early, it
// returns its error alone.
func Run(ctx context.Context, o rounds.Options) (_ *outcome.Report, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	report := &outcome.Report{Method: method}
	redisVersion, err := installedRedis(ctx)
	if errors.Is(err, redisproc.ErrNotInstalled) {
		report.Skipped = append(report.Skipped, outcome.Skipped{Identity: outcome.Identity{Server: "Redis"}, Reason: err.Error()})
	} else if err != nil {
		return nil, err
	}
	var all [][]*cell // by scenario
	var names []string
	for i := range scenarios {
		s := &scenarios[i]
		if s.redis && redisVersion == "" {
			continue
		}
		var cells []*cell
		for _, p := range s.policies {
			cells = append(cells, &cell{scenario: s, policy: p})
		}
		all, names = append(all, cells), append(names, s.name)
	}
	report.Environment, err = rounds.Measure(ctx, o, names, func(ctx context.Context, i int, d time.Duration) error {
		errs := make([]error, len(all[i]))
		var turns sync.WaitGroup
		for j, c := range all[i] {
			turns.Go(func() {
				t, err := c.run(ctx, d)
				if c.turns = append(c.turns, t); err != nil {
					errs[j] = fmt.Errorf("%s, %s: %w", c.scenario.name, c.policy.name, err)
				}
			})
		}
		turns.Wait()
		return errors.Join(errs...)
	})
	if err != nil {
		return nil, err
	}
	report.Environment.Servers = page.Filled("net/http "+report.Environment.Go, redisVersion)
	describe(report, all)
	return report, report.Err()
}

// installedRedis is the name of the redis-server in PATH, with its version.
func installedRedis(ctx context.Context) (string, error) {
	server, _, err := startRedis(ctx)
	if err != nil {
		return "", err
	}
	info, err := server.Do(ctx, "INFO", "server")
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	return keyspace.ServerName(keyspace.Version(fields)), errors.Join(err, server.Close())
}

// turn is a scenario with a policy, once.
type turn struct {
	length time.Duration // of it all
	span   time.Duration // of a moment

	mu    sync.Mutex
	spans []span
}

// span counts the calls with an intended start in a moment.
type span struct {
	calls, good    int
	waited         []time.Duration
	limit          int
	refused, asked int64
}

// at is the moment of a time since the turn began.
func (t *turn) at(d time.Duration) *span {
	return &t.spans[min(int(d/t.span), len(t.spans)-1)]
}

// run takes a turn.
func (c *cell) run(ctx context.Context, length time.Duration) (_ *turn, err error) {
	var to target
	if c.scenario.redis {
		to, err = overRedis(ctx, c.policy)
	} else {
		to, err = overHTTP(ctx, c.policy, c.scenario.fault)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	t := &turn{length: length, span: max(length/moments, leastSpan)}
	t.spans = make([]span, max(1, int(length/t.span))) // the last one has the rest, too
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	began := time.Now()
	var all sync.WaitGroup
	all.Go(func() {
		if err := faulty(ctx, to, length/phases); err != nil {
			cancel(err)
		}
	})
	all.Go(func() { t.watch(ctx, to, began, cancel) })
	var calls sync.WaitGroup
	var inFlight atomic.Int64
	id := uint64(0)
	load.Pace(ctx, began, rate, func() int64 { return int64(length) }, func(s load.Start) bool {
		if ctx.Err() != nil {
			return false
		}
		id++
		id := id
		if inFlight.Add(1) > maxCalls {
			inFlight.Add(-1)
			t.ended(time.Duration(s.Intended), 0, errFull)
			return true
		}
		calls.Go(func() {
			defer inFlight.Add(-1)
			due := began.Add(time.Duration(s.Intended))
			within, cancel := context.WithDeadline(ctx, due.Add(patience))
			defer cancel()
			err := to.call(within, id)
			t.ended(time.Duration(s.Intended), time.Since(due), err)
		})
		return true
	})
	calls.Wait()
	all.Wait()
	return t, context.Cause(ctx)
}

// errFull: as many calls as may be are in flight.
var errFull = errors.New("too many calls are in flight")

// ended counts a call.
func (t *turn) ended(intended, waited time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.at(intended)
	s.calls++
	s.waited = append(s.waited, waited)
	if err == nil && waited <= patience {
		s.good++
	}
}

// faulty makes the server ill for the second third, and well again.
func faulty(ctx context.Context, to target, third time.Duration) error {
	if !sleep(ctx, third) {
		return nil
	}
	if err := to.fall(ctx, third); err != nil {
		return err
	}
	sleep(ctx, third)
	return to.recover()
}

// watch looks at the limit and the server at the end of each moment.
func (t *turn) watch(ctx context.Context, to target, began time.Time, cancel context.CancelCauseFunc) {
	lastAsked, lastRefused := int64(0), int64(0)
	for i := range t.spans {
		if !sleep(ctx, time.Until(began.Add(time.Duration(i+1)*t.span))) {
			return
		}
		asked, err := to.asked()
		if err != nil {
			cancel(err)
			return
		}
		var s resilient.Stats
		if g := to.guard(); g != nil {
			s = g.Stats()
		}
		refused := int64(s.Open + s.Full + s.Late)
		t.mu.Lock()
		t.spans[i].limit, t.spans[i].asked, t.spans[i].refused = s.Limit, asked-lastAsked, refused-lastRefused
		t.mu.Unlock()
		lastAsked, lastRefused = asked, refused
	}
}

// sleep reports whether ctx has not ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// quantile of durations, in milliseconds; 0 without any.
func quantile(all []time.Duration, q float64) float64 {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return float64(all[min(len(all)-1, int(q*float64(len(all))))]) / 1e6
}

// phase sums up a phase of a turn.
func (t *turn) phase(phase int) (good, p99, refused, asked float64) {
	var sum span
	for i := range t.spans {
		if middle := time.Duration(i)*t.span + t.span/2; min(int(phases*middle/t.length), after) == phase {
			s := &t.spans[i]
			sum.calls += s.calls
			sum.good += s.good
			sum.refused += s.refused
			sum.asked += s.asked
			sum.waited = append(sum.waited, s.waited...)
		}
	}
	n := float64(max(1, sum.calls))
	return float64(sum.good) / n, quantile(sum.waited, 0.99), float64(sum.refused) / n, float64(sum.asked) / n
}

// result are the figures of a cell.
func (c *cell) result() Cell {
	out := Cell{Scenario: c.scenario.name, Policy: c.policy.name}
	for p := range phases {
		var good, p99, refused, asked []float64
		for _, t := range c.turns {
			g, q, r, a := t.phase(p)
			good, p99, refused, asked = append(good, g), append(p99, q), append(refused, r), append(asked, a)
		}
		out.Phases[p] = Phase{outcome.NewEstimate(good), outcome.NewEstimate(p99), outcome.NewEstimate(refused), outcome.NewEstimate(asked)}
	}
	first := c.turns[0]
	for i := range first.spans {
		of := func(figure func(*span) float64) float64 {
			var values []float64
			for _, t := range c.turns {
				values = append(values, figure(&t.spans[i]))
			}
			return outcome.NewEstimate(values).Median
		}
		seconds, m := first.span.Seconds(), &out.Moments
		m.AtS = append(m.AtS, (float64(i)+0.5)*seconds)
		m.Good = append(m.Good, of(func(s *span) float64 { return float64(s.good) / seconds }))
		m.P99 = append(m.P99, of(func(s *span) float64 { return quantile(s.waited, 0.99) }))
		m.Refused = append(m.Refused, of(func(s *span) float64 { return float64(s.refused) / seconds }))
		m.Limit = append(m.Limit, of(func(s *span) float64 { return float64(s.limit) }))
	}
	return out
}
