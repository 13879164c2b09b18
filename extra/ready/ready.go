// Package ready checks whether a program's path to Redis works, before it takes traffic and during
// it. Dictionaries are loaded, contexts are made, connections are open, and a value makes a round
// trip.
//
// [New] makes a [Readiness], which checks in the background. It is an http.Handler for an
// orchestrator's readiness probe: 200 when the program is ready, 503 while it warms up or has
// tripped, and JSON with the reason. An unavailable cache need not take the program down: see
// [Options].Failures.
package ready

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/internal/adapters"
)

// State is the state of a [Readiness].
type State string

// The states.
const (
	Warming State = "warming" // not every check has succeeded yet
	Ready   State = "ready"
	Tripped State = "tripped" // it was ready, and checks have failed since
)

// Options are the settings of [New].
type Options struct {
	// Store stores the probe value. Required.
	Store bale.Store

	// Packer packs the probe value. Default none: the value is stored plain.
	Packer *bale.Packer

	// Groups are the groups whose dictionaries must be loaded.
	Groups []*dict.Group

	// Connections is how many connections the Store's client should have open before the program is
	// ready. The warm-up sends this many commands at once. Default GOMAXPROCS.
	Connections int

	// Key is the key of the probe value. The probe removes it, and it also expires. Default
	// "bale:ready:" and a random text per process. In a cluster it probes the shard of that key.
	Key string

	// Checks are additional checks, by name. They must be quick, end with their context, and name
	// no secrets in their errors.
	Checks map[string]func(context.Context) error

	// Interval is the time between rounds of checks. Default 5 s; during warm-up, a tenth of it.
	// At least 1 ms.
	Interval time.Duration

	// Timeout bounds all checks of a round. Default 2 s; at least 1 ms.
	Timeout time.Duration

	// Failures is how many rounds in a row must fail before a ready program trips. One success
	// makes it ready again. Default 3; negative means never, for programs that work without their
	// cache.
	Failures int
}

const (
	defaultInterval = 5 * time.Second
	defaultTimeout  = 2 * time.Second
	defaultFailures = 3
	warmingShare    = 10

	probeBytes = 512 // enough to be packed

	dictionaries = "dictionaries" // the name of their check
)

// Status is the state and the last checks of a [Readiness]. It is the handler's JSON.
type Status struct {
	State  State     `json:"state"`
	Reason string    `json:"reason,omitempty"` // of what is wrong, the first check's; empty when nothing is
	Since  time.Time `json:"since"`            // when the state began
	At     time.Time `json:"checked_at"`       // when it was last checked; zero before the first time
	Checks []Check   `json:"checks"`           // in their order; those after one that failed are not made
}

// Check is the result of one check.
type Check struct {
	Name    string  `json:"name"` // "dictionaries", "contexts", "connections", "probe", or one of Options.Checks
	OK      bool    `json:"ok"`
	Error   string  `json:"error,omitempty"`
	Warning string  `json:"warning,omitempty"` // does not make it fail: see [dict.Status].Danger
	Millis  float64 `json:"ms"`
}

// Readiness checks until Close. It is safe for concurrent use.
type Readiness struct {
	options Options
	checks  []check
	value   []byte
	cancel  context.CancelFunc
	done    chan struct{}

	mu      sync.Mutex
	status  Status
	failed  int
	changed chan struct{} // closed, and made anew, with each round
}

type check struct {
	name string
	do   func(context.Context) error
}

// New makes a Readiness and starts its goroutine; [Readiness.Close] ends it. An option out of range
// is bale.ErrInvalid.
func New(o Options) (*Readiness, error) {
	if o.Interval == 0 {
		o.Interval = defaultInterval
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Failures == 0 {
		o.Failures = defaultFailures
	}
	if o.Connections == 0 {
		o.Connections = runtime.GOMAXPROCS(0)
	}
	if o.Key == "" {
		o.Key = "bale:ready:" + rand.Text()
	}
	switch {
	case o.Store == nil:
		return nil, fmt.Errorf("ready: %w: no Store", bale.ErrInvalid)
	case o.Interval < time.Millisecond || o.Timeout < time.Millisecond:
		return nil, fmt.Errorf("ready: %w: Interval is %v and Timeout %v, must be at least 1ms", bale.ErrInvalid, o.Interval, o.Timeout)
	case o.Connections < 0:
		return nil, fmt.Errorf("ready: %w: Connections is %d, must not be negative", bale.ErrInvalid, o.Connections)
	}
	if o.Packer != nil {
		o.Packer = o.Packer.Unobserved() // dict.Auto would take probes for values
	}
	r := &Readiness{options: o, value: bytes.Repeat([]byte("probe "+rand.Text()), probeBytes/32), done: make(chan struct{}), changed: make(chan struct{})}
	r.checks = []check{{dictionaries, r.dictionaries}, {"contexts", r.contexts}, {"connections", r.connections}, {"probe", r.probe}}
	for _, name := range slices.Sorted(maps.Keys(o.Checks)) {
		if o.Checks[name] == nil {
			return nil, fmt.Errorf("ready: %w: check %q is nil", bale.ErrInvalid, name)
		}
		r.checks = append(r.checks, check{name, o.Checks[name]})
	}
	r.status = Status{State: Warming, Reason: "not checked yet", Since: time.Now(), Checks: []Check{}}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go r.run(ctx)
	return r, nil
}

// Close ends the checks and waits for a running one.
func (r *Readiness) Close() error {
	r.cancel()
	<-r.done
	return nil
}

// Status returns the present state.
func (r *Readiness) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// Wait returns nil when the program is ready. When the context ends first, it returns an error with
// the reason.
func (r *Readiness) Wait(ctx context.Context) error {
	for {
		r.mu.Lock()
		s, changed := r.status, r.changed
		r.mu.Unlock()
		if s.State == Ready {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("ready: still %s: %s: %w", s.State, s.Reason, context.Cause(ctx))
		case <-r.done:
			return errors.New("ready: closed before it was ready")
		}
	}
}

// ServeHTTP answers with the [Status] as JSON: 200 when the program is ready, else 503.
func (r *Readiness) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s := r.Status()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if s.State != Ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(s) // who hung up does not want it
}

func (r *Readiness) run(ctx context.Context) {
	defer close(r.done)
	for {
		state := r.round(ctx)
		pause := r.options.Interval
		if state == Warming {
			pause /= warmingShare
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// round runs all checks once.
func (r *Readiness) round(ctx context.Context) State {
	limited, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	outcomes := make([]Check, 0, len(r.checks))
	reason := ""
	for _, c := range r.checks {
		start := time.Now()
		err := c.do(limited)
		o := Check{Name: c.name, OK: err == nil, Millis: float64(time.Since(start).Microseconds()) / 1000}
		if err != nil {
			o.Error = err.Error()
			reason = c.name + ": " + o.Error
		}
		if c.name == dictionaries {
			o.Warning = r.danger()
		}
		outcomes = append(outcomes, o)
		if err != nil {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctx.Err() != nil {
		return r.status.State // closed in the middle
	}
	next := r.status.State
	if reason == "" {
		r.failed = 0
		next = Ready
	} else if r.failed++; next == Ready && r.options.Failures > 0 && r.failed >= r.options.Failures {
		next = Tripped
	}
	now := time.Now()
	if next != r.status.State {
		r.status.Since = now
	}
	r.status = Status{State: next, Reason: reason, Since: r.status.Since, At: now, Checks: outcomes}
	close(r.changed)
	r.changed = make(chan struct{})
	return next
}

// dictionaries checks that each group has an answer of its registry, and writes with the current
// dictionary if it may.
func (r *Readiness) dictionaries(context.Context) error {
	for _, g := range r.options.Groups {
		s := g.Status()
		switch {
		case s.Err != nil:
			return fmt.Errorf("group %q: %w", s.Group, s.Err)
		case s.State == nil:
			return fmt.Errorf("group %q has not heard from its registry", s.Group)
		case !s.ReadOnly && s.State.Current != 0 && s.Writing != s.State.Current:
			return fmt.Errorf("group %q writes with dictionary %v, and %v is current", s.Group, s.Writing, s.State.Current)
		}
	}
	return nil
}

// danger describes how the dictionaries of a group may be evicted.
func (r *Readiness) danger() string {
	for _, g := range r.options.Groups {
		if s := g.Status(); s.Danger != "" {
			return fmt.Sprintf("group %q: %s", s.Group, s.Danger)
		}
	}
	return ""
}

// contexts makes contexts: it packs and unpacks on all processors at once.
func (r *Readiness) contexts(context.Context) error {
	if r.options.Packer == nil {
		return nil
	}
	return r.all(runtime.GOMAXPROCS(0), func() error {
		packed, err := r.options.Packer.Pack(nil, r.value)
		if err != nil {
			return err
		}
		return r.same(packed)
	})
}

var errOther = errors.New("another value came back")

func (r *Readiness) same(stored []byte) error {
	if r.options.Packer != nil {
		var err error
		if stored, err = r.options.Packer.Unpack(context.Background(), nil, stored); err != nil {
			return err
		}
	}
	if !bytes.Equal(stored, r.value) {
		return errOther
	}
	return nil
}

// all runs do n times at once.
func (r *Readiness) all(n int, do func() error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = do() })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// connections opens connections with concurrent commands.
func (r *Readiness) connections(ctx context.Context) error {
	if r.Status().State != Warming {
		return nil // they have been; the client opens them anew
	}
	return r.all(r.options.Connections, func() error {
		if _, err := r.options.Store.Get(ctx, r.options.Key); err != nil && !errors.Is(err, bale.ErrNotFound) {
			return err
		}
		return nil
	})
}

// probe writes a value, reads it and removes it.
func (r *Readiness) probe(ctx context.Context) error {
	stored := r.value
	if r.options.Packer != nil {
		var err error
		if stored, err = r.options.Packer.Pack(nil, r.value); err != nil {
			return err
		}
	}
	if err := r.options.Store.Set(ctx, r.options.Key, stored, bale.TTL(time.Minute)); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	// A replica, or a client's cache, may not have it yet.
	got, err := r.options.Store.Get(adapters.FromMasters(ctx), r.options.Key)
	if err == nil {
		err = r.same(got)
	}
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	_, err = r.options.Store.Delete(ctx, []string{r.options.Key})
	return err
}
