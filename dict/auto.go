package dict

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/balekv/bale/internal/fieldpath"
	"github.com/balekv/bale/internal/sampling"
)

const (
	defaultInterval    = 30 * time.Second
	defaultMinValues   = 1000
	defaultSampleBytes = 8 << 20
	defaultDecay       = 0.85
	defaultMinAge      = 24 * time.Hour
	defaultMaxBytes    = defaultKeep
	defaultRetry       = time.Hour
	halfLife           = 5000 // values after which one counts half
	defaultLease       = 30 * time.Second
	minLease           = time.Second
	leaseRenewals      = 3   // in its time
	patience           = 20  // intervals to take a sample in,
	idlePatience       = 2   // and without a new value
	engineGap          = 0.8 // what another engine than the one at training may come to of its ratio
)

// Auto trains and replaces a group's dictionary automatically; the zero value is useful. Each
// program of the fleet with Auto watches its own compression ratio. A training starts when the
// group has no dictionary yet and enough values were written. It also starts when the ratio decays
// against the one at training. One program takes a lease in Redis. It samples the values that it
// writes, trains in the background, and publishes the dictionary. After the registry's grace period
// any program with Auto activates it. A manual rollback or activation in between wins, until the
// ratio decays again. A program that is killed in the middle leaves only a lease, which runs out.
type Auto struct {
	// Interval is the time between two checks, give or take a fifth. Defaults to 30 seconds.
	Interval time.Duration

	// MinValues is how many values must have been written since the writer last changed before Auto
	// judges the ratio. It is also the minimum for taking a sample, in which the same value counts
	// once if it was only read. Defaults to 1000; at least 20.
	MinValues int

	// SampleBytes bounds the sample in bytes. Defaults to 8 MiB.
	SampleBytes int

	// Decay is the limit for renewal: the live ratio divided by the ratio at training. Defaults to
	// 0.85; between 0 and 1. The live ratio is a mean over bytes. The weight of a value is halved
	// after 5000 later values. A program whose engine did not train the dictionary uses its own
	// first ratio instead, but at least 0.8 of the ratio at training.
	Decay float64

	// MinAge is how old the newest dictionary of the group must be before a decayed ratio leads to
	// another one, whoever published it. Values that change by the hour would otherwise produce many
	// dictionaries, and all programs load each. Defaults to a day.
	MinAge time.Duration

	// MaxBytes bounds the group's dictionaries in the registry. A group that holds as many bytes
	// gets no further one, and Log says so, until bale dict gc has removed those that no value
	// needs. Defaults to 16 MiB, as GroupOptions.Keep for readers.
	MaxBytes int64

	// Retry is the pause of the fleet after a training without a result. Defaults to an hour.
	Retry time.Duration

	// Lease is the time after which another program may train in place of one that was killed.
	// Defaults to 30 seconds; at least one.
	Lease time.Duration

	// Train are the options of the training; Setting, Engine and Current are the group's. Workers
	// defaults to 1, and training then takes at most half of one processor. Auto does not count the
	// group's keys in Redis: set Values if they are far from a million, else a dictionary for few keys
	// may be too large, and one for many too small. The next dictionary also leaves out the fields of
	// [State.Excluded], whatever Exclude says.
	Train TrainOptions
}

// autopilot is a running Auto.
type autopilot struct {
	group *Group
	Auto

	training atomic.Bool
	sampling atomic.Bool
	lock     sync.Mutex
	sample   [][]byte
	hashes   []uint64            // of the sample
	has      map[uint64]struct{} // those
	size     int                 // of the sample, in bytes
	seen     int                 // values that were offered to it

	// The writer at the last look, and its live ratio.
	writer                    *writer
	values, plain, stored     int64
	weightedPlain, weightedIn float64
	atStart                   float64 // the live ratio over the first MinValues
	told                      int64   // tenths of MinValues that the log has
	gaveUp                    int64   // values written and read when there were last too few for a sample

	needs bool // values that are read: the group is among sampling.Groups

	shown []byte // what this program last wrote into the registry, nil for nothing
}

func newAutopilot(g *Group, o Auto) (*autopilot, error) {
	a := &autopilot{group: g, Auto: o, has: map[uint64]struct{}{}}
	if a.Interval == 0 {
		a.Interval = defaultInterval
	}
	if a.MinValues == 0 {
		a.MinValues = defaultMinValues
	}
	if a.SampleBytes == 0 {
		a.SampleBytes = defaultSampleBytes
	}
	if a.Decay == 0 {
		a.Decay = defaultDecay
	}
	if a.MinAge == 0 {
		a.MinAge = defaultMinAge
	}
	if a.MaxBytes == 0 {
		a.MaxBytes = defaultMaxBytes
	}
	if a.Retry == 0 {
		a.Retry = defaultRetry
	}
	if a.Lease == 0 {
		a.Lease = defaultLease
	}
	if a.Train.Workers == 0 {
		a.Train.Workers = 1
	}
	a.Train.Setting, a.Train.Engine = g.options.Setting, g.options.Engine
	if _, err := a.Train.withDefaults(); err != nil {
		return nil, err
	}
	switch {
	case a.Interval < 0 || a.Retry < 0 || a.MinAge < 0:
		return nil, fmt.Errorf("dict: %w: Auto: Interval %v, Retry %v and MinAge %v must not be negative",
			ErrInvalid, o.Interval, o.Retry, o.MinAge)
	case a.MaxBytes < 0:
		return nil, fmt.Errorf("dict: %w: Auto: MaxBytes is %d, must not be negative", ErrInvalid, o.MaxBytes)
	case a.Lease < minLease:
		return nil, fmt.Errorf("dict: %w: Auto: Lease is %v, must be %v at least", ErrInvalid, o.Lease, minLease)
	case a.MinValues < minSamples:
		return nil, fmt.Errorf("dict: %w: Auto: MinValues is %d, must be %d at least", ErrInvalid, o.MinValues, minSamples)
	case a.SampleBytes < minDictionary:
		return nil, fmt.Errorf("dict: %w: Auto: SampleBytes is %d, must be %d at least", ErrInvalid, o.SampleBytes, minDictionary)
	case !(a.Decay > 0 && a.Decay < 1):
		return nil, fmt.Errorf("dict: %w: Auto: Decay is %v, must be between 0 and 1", ErrInvalid, o.Decay)
	}
	return a, nil
}

// offer gives a value to the sample, if one is being taken. The caller never waits: while another
// value is being added, offer skips this one. A sample has each value once, and of values that were
// read the same one does not count twice: a few hot keys are no sample.
func (a *autopilot) offer(value []byte, written bool) {
	if !a.sampling.Load() || len(value) > a.SampleBytes/minSamples || !a.lock.TryLock() {
		return
	}
	defer a.lock.Unlock()
	hash := maphash.Bytes(sampleSeed, value)
	_, known := a.has[hash]
	if written || !known {
		a.seen++
	}
	if known {
		return
	}
	// As many as fit, and then each value with the same chance (Vitter's algorithm R), by bytes as
	// well as it goes.
	if a.size+len(value) <= a.SampleBytes {
		a.sample, a.hashes = append(a.sample, bytes.Clone(value)), append(a.hashes, hash)
		a.has[hash] = struct{}{}
		a.size += len(value)
		return
	}
	if i := mathrand.IntN(a.seen); i < len(a.sample) {
		if size := a.size - len(a.sample[i]) + len(value); size <= a.SampleBytes {
			delete(a.has, a.hashes[i])
			a.sample[i], a.hashes[i], a.size = bytes.Clone(value), hash, size
			a.has[hash] = struct{}{}
		}
	}
}

// reset empties the sample. a.lock is held.
func (a *autopilot) reset() {
	a.sample, a.hashes, a.has, a.size, a.seen = nil, nil, map[uint64]struct{}{}, 0, 0
}

var sampleSeed = maphash.MakeSeed()

// collected is how many values were seen: of the sample, or before one is taken.
func (a *autopilot) collected(w *writer) int {
	if !a.sampling.Load() {
		return int(w.values.Load() + w.read.Load())
	}
	a.lock.Lock()
	defer a.lock.Unlock()
	return a.seen
}

// need says whether the group needs values that are read: for a first dictionary.
func (a *autopilot) need(values bool) {
	switch {
	case values && !a.needs:
		sampling.Groups.Add(1)
	case !values && a.needs:
		sampling.Groups.Add(-1)
	}
	a.needs = values
}

// run looks at the group from time to time until Close.
func (a *autopilot) run() {
	defer a.need(false)
	for {
		a.need(a.group.writer.Load().key.id == 0)
		if !a.sleep(a.group.ctx, time.Duration(float64(a.Interval)*(1+pollJitter*(2*mathrand.Float64()-1)))) {
			return
		}
		if err := a.look(a.group.ctx); err != nil && a.group.ctx.Err() == nil {
			a.group.log.Warn("no new dictionary", "err", err)
		}
	}
}

func (a *autopilot) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// ratio returns the live ratio of the present writer, and its number of values. A new writer starts
// from zero.
func (a *autopilot) ratio() (ratio float64, values int64) {
	w := a.group.writer.Load()
	if w != a.writer {
		if a.writer != nil {
			a.sampling.Store(false) // another dictionary has come
		}
		a.writer, a.values, a.plain, a.stored, a.weightedPlain, a.weightedIn, a.atStart = w, 0, 0, 0, 0, 0, 0
	}
	values, plain, stored := w.values.Load(), w.plainBytes.Load(), w.storedBytes.Load()
	fade := math.Exp2(-float64(values-a.values) / halfLife)
	a.weightedPlain = a.weightedPlain*fade + float64(plain-a.plain)
	a.weightedIn = a.weightedIn*fade + float64(stored-a.stored)
	a.values, a.plain, a.stored = values, plain, stored
	if a.weightedIn == 0 {
		return 0, values
	}
	ratio = a.weightedPlain / a.weightedIn
	if a.atStart == 0 && values >= int64(a.MinValues) {
		a.atStart = ratio
	}
	return ratio, values
}

// reason returns why a new dictionary is needed, or "".
func (a *autopilot) reason(s *State) string {
	ratio, values := a.ratio()
	values += a.writer.read.Load() // none with a dictionary
	if values < int64(a.MinValues) || values == a.gaveUp || a.writer.key.id != s.Current {
		return ""
	}
	if s.Current == 0 {
		if !first(s) {
			return "" // somebody switched it off
		}
		return fmt.Sprintf("no dictionary yet, %d values written or read", values)
	}
	e := s.Find(s.Current)
	if fields := a.leaks(s); len(fields) > 0 {
		return fmt.Sprintf("dictionary %v may have the contents of %s", s.Current, strings.Join(fields, ", "))
	}
	if e == nil || e.Info.Ratio == 0 {
		return ""
	}
	// The ratio may have been measured with another engine than this program's. So use this
	// program's own first ratio, unless the values had changed by then.
	expected := min(e.Info.Ratio, max(a.atStart, engineGap*e.Info.Ratio))
	if ratio >= a.Decay*expected {
		return ""
	}
	return fmt.Sprintf("the ratio is %.2f, and %.2f is to be expected (%.2f at training)", ratio, expected, e.Info.Ratio)
}

// leaks are fields that are excluded now, but were not when the current dictionary was trained.
func (a *autopilot) leaks(s *State) []string {
	if s.Current == 0 {
		return nil
	}
	return s.Find(s.Current).MayContain(a.Train.Exclude)
}

// young reports whether the newest dictionary is not as old as it must be. The first one of a group
// waits for nothing, and an old one that came back counts for nothing.
func (a *autopilot) young(s *State) bool {
	return s.Current != 0 && slices.ContainsFunc(s.Dictionaries, func(e Entry) bool {
		age := a.group.registry.now().Sub(e.Published).Abs() // a wrong clock stops nothing for long
		return age < a.MinAge && !e.restored()
	})
}

// full is why the group gets no further dictionary, nil if it may.
func (a *autopilot) full(s *State) error {
	bytes := int64(0)
	for _, e := range s.Dictionaries {
		bytes += int64(e.Size)
	}
	if bytes < a.MaxBytes {
		return nil
	}
	return fmt.Errorf("its %d dictionaries take %d bytes; bale dict gc removes those that no value needs",
		len(s.Dictionaries), bytes)
}

// tell logs how many of the values for a first dictionary were seen, at each tenth of them.
func (a *autopilot) tell(s *State) {
	seen, wanted := a.values+a.writer.read.Load(), int64(a.MinValues)
	if !first(s) || seen > wanted {
		return
	}
	if tenths := 10 * seen / wanted; tenths > a.told {
		a.told = tenths
		a.group.log.Info("values seen, to judge whether a dictionary is needed", "collected", seen, "wanted", wanted)
	}
}

// first reports whether the group never had a current dictionary.
func first(s *State) bool { return s.Current == 0 && s.Previous == 0 && s.changed().IsZero() }

// awaiting is the next dictionary to activate: the newest that was published since the current one
// was activated. A manual rollback or activation has already decided about older ones.
func awaiting(s *State) *Entry {
	for _, id := range pending(s) {
		if e := s.Find(id); e.Published.After(s.changed()) {
			return e
		}
	}
	return nil
}

var errDecided = errors.New("dict: another dictionary was activated, or none, while this one was in training")

// look activates a waiting dictionary, or trains a new one, if it is time.
func (a *autopilot) look(ctx context.Context) error {
	g := a.group
	s, err := g.registry.State(ctx, g.name)
	if err != nil {
		return err
	}
	if e := awaiting(s); e != nil {
		a.ratio()
		if !e.Info.Auto {
			return nil // published by a person, who will activate it
		}
		// By then somebody may have decided otherwise.
		err := g.registry.activate(ctx, g.name, e.ID, false, func(s *State) bool {
			now := awaiting(s)
			return now != nil && now.ID == e.ID
		})
		if errors.Is(err, ErrGrace) {
			return nil
		}
		return err
	}
	why := a.reason(s)
	if why == "" {
		a.tell(s)
		return nil
	}
	full := a.full(s)
	g.report("no dictionary is trained for what Auto.MaxBytes says", full)
	if full != nil || a.young(s) {
		return nil
	}
	l, err := acquire(ctx, g.registry, g.name, a.Lease)
	if l == nil || err != nil {
		return err // somebody else is at it
	}
	g.log.Info("taking a sample for a new dictionary", "why", why)
	a.training.Store(true)
	defer a.training.Store(false)
	err = a.renew(l.ctx, s)
	keep := time.Duration(0)
	if errors.Is(err, errIdle) {
		a.gaveUp = a.writer.values.Load() + a.writer.read.Load()
	}
	if errors.Is(err, ErrNoDictionary) || errors.Is(err, ErrInvalid) {
		keep = a.Retry // the others would find no more
	}
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.options.FetchTimeout)
	defer cancel()
	return errors.Join(err, l.release(release, keep))
}

// renew takes a sample, trains and publishes. The context ends with the lease.
func (a *autopilot) renew(ctx context.Context, s *State) error {
	g := a.group
	samples, err := a.collect(ctx)
	if err != nil {
		return err
	}
	o := a.Train
	o.Exclude = slices.Concat(o.Exclude, s.Excluded())
	if s.Current != 0 && len(s.Find(s.Current).MayContain(o.Exclude)) == 0 {
		if o.Current = g.dictionary(s.Current); o.Current == nil {
			return fmt.Errorf("dict: %v: %w", s.Current, ErrUnknown)
		}
	}
	if o.Workers == 1 {
		last := time.Now()
		o.Progress = func(int, int, string) { // rest as long as each candidate took
			a.sleep(ctx, time.Since(last))
			last = time.Now()
		}
	}
	counts, err := fieldpath.Count(ctx, samples, a.Train.Exclude)
	if err != nil {
		return err
	}
	for i, n := range counts {
		if n == 0 {
			g.log.Warn("no sampled value has this field of Exclude, so nothing is left out for it: is it spelled so?",
				"field", a.Train.Exclude[i])
		}
	}
	t, err := Train(ctx, samples, o)
	if err != nil {
		return err
	}
	info := t.Info()
	info.Auto = true
	if err := g.registry.publish(ctx, g.name, t.Dictionary, info, func(now *State, _ *Entry) error {
		if now.Current != s.Current || !now.changed().Equal(s.changed()) || a.young(now) {
			return errDecided
		}
		return nil
	}); err != nil {
		return err
	}
	g.log.Info("dictionary published", "id", t.Dictionary.ID(), "ratio", info.Ratio, "bytes", len(t.Dictionary.Bytes()))
	return nil
}

var errIdle = errors.New("dict: too few different values were written or read to take a sample")

// collect takes a sample of the values being written, or read, until enough were offered. A slow or
// idle program gives up, so that another one can try. It goes on with its sample: values may come
// in bursts, and the next one may be over before a look.
func (a *autopilot) collect(ctx context.Context) (_ [][]byte, err error) {
	a.lock.Lock()
	if !a.sampling.Load() {
		a.reset()
	}
	start, before := time.Now(), a.seen
	a.lock.Unlock()
	a.sampling.Store(true)
	defer func() { a.sampling.Store(err == errIdle) }()
	for logged, grown := start, start; ; {
		if time.Since(start) > patience*a.Interval || time.Since(grown) > idlePatience*a.Interval {
			return nil, errIdle
		}
		if !a.sleep(ctx, a.Interval/10+time.Millisecond) {
			return nil, context.Cause(ctx)
		}
		a.lock.Lock()
		seen := a.seen
		if seen >= a.MinValues {
			sample := a.sample
			a.reset()
			a.lock.Unlock()
			return sample, nil
		}
		a.lock.Unlock()
		if seen > before {
			grown, before = time.Now(), seen
		}
		if time.Since(logged) >= a.Interval {
			logged = time.Now()
			a.group.log.Info("taking a sample for a new dictionary", "collected", seen, "wanted", a.MinValues)
		}
	}
}

// lease is the right of one program of the fleet to train for a group.
type lease struct {
	registry *Registry
	key      string
	ttl      time.Duration
	token    []byte
	ctx      context.Context // ends when the lease does
	end      context.CancelCauseFunc
	renewed  chan struct{}
}

var errLeaseLost = errors.New("dict: the lease was lost")

// acquire takes the lease of a group, and renews it until release; nil when another program has it.
func acquire(ctx context.Context, r *Registry, group string, ttl time.Duration) (*lease, error) {
	l := &lease{registry: r, ttl: ttl, key: r.leaseKey(group), token: []byte(rand.Text()), renewed: make(chan struct{})}
	ok, err := swap(ctx, r.store, l.key, nil, l.token, ttl)
	if err != nil || !ok {
		return nil, err
	}
	l.ctx, l.end = context.WithCancelCause(ctx)
	go l.renew()
	return l, nil
}

func (l *lease) renew() {
	defer close(l.renewed)
	ticker := time.NewTicker(l.ttl / leaseRenewals)
	defer ticker.Stop()
	valid := time.Now().Add(l.ttl)
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-ticker.C:
		}
		before := time.Now()
		ok, err := l.registry.store.Swap(l.ctx, l.key, l.token, l.token, l.ttl)
		switch {
		case err == nil && ok:
			valid = before.Add(l.ttl)
		case err == nil || time.Now().After(valid):
			l.end(errLeaseLost)
			return
		}
	}
}

// release gives the lease back, or bars all programs from it for a while longer.
func (l *lease) release(ctx context.Context, keep time.Duration) error {
	l.end(context.Canceled)
	<-l.renewed
	value := l.token
	if keep == 0 {
		value = nil
	}
	_, err := l.registry.store.Swap(ctx, l.key, l.token, value, keep)
	return err
}
