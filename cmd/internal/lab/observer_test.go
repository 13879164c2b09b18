package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/observe/prom"
	"github.com/balekv/bale/stats"
)

// counting counts what callers do, from when measuring begins.
type counting struct {
	bale.Store
	seen *seen
}

type seen struct {
	on                         atomic.Bool
	sets, gets, misses, stored atomic.Uint64
}

func (c counting) Set(ctx context.Context, key string, value []byte, e bale.Expiry) error {
	err := c.Store.Set(ctx, key, value, e)
	if err == nil && c.seen.on.Load() && !bytes.HasPrefix(value, proof) { // which the lab writes for itself
		c.seen.sets.Add(1)
		c.seen.stored.Add(uint64(len(value)))
	}
	return err
}

func (c counting) Get(ctx context.Context, key string) ([]byte, error) {
	v, err := c.Store.Get(ctx, key)
	if c.seen.on.Load() && !bytes.HasPrefix(v, proof) && (err == nil || errors.Is(err, bale.ErrNotFound)) {
		c.seen.gets.Add(1)
		if err != nil {
			c.seen.misses.Add(1)
		}
	}
	return v, err
}

// observer notes what a run tells, and asks for its result all the time, as two pages would.
type observer struct {
	t        *testing.T
	busy     sync.Mutex // held while it is told something
	calls    []string
	groups   map[string]*stats.Counters
	watchers sync.WaitGroup
	stop     chan struct{}
	seen     seen
	results  atomic.Int64 // that had a cell
}

func (o *observer) told(what string) func() {
	if !o.busy.TryLock() {
		o.t.Errorf("told two things at once: %s", what)
		return func() {}
	}
	o.calls = append(o.calls, what)
	return o.busy.Unlock
}

func (o *observer) Recorder(group string) stats.Recorder {
	defer o.told("recorder " + group)()
	o.groups[group] = stats.NewCounters(stats.CountersOptions{TimeEvery: 1})
	return o.groups[group]
}

func (o *observer) Trained(group string, d *dict.Training) { defer o.told("trained " + group)() }

func (o *observer) Pool(client string, pool func() prom.PoolStats) {
	if pool == nil {
		defer o.told("no pool " + client)()
		if o.stop != nil { // the last that may be asked for
			close(o.stop)
			o.watchers.Wait()
		}
		return
	}
	defer o.told("pool " + client)()
	pool()
}

func (o *observer) Watch(result func() *outcome.Run) {
	defer o.told("watch")()
	o.stop = make(chan struct{})
	for range 2 {
		o.watchers.Go(func() {
			for {
				select {
				case <-o.stop:
					return
				default:
				}
				r := result()
				if _, err := json.Marshal(r); err != nil {
					o.t.Error(err)
				}
				for _, c := range r.Cells {
					if !c.Verified || len(c.Rounds) == 0 {
						o.t.Errorf("%v while it goes on: %d rounds, %s", c.Identity, len(c.Rounds), c.Error)
					}
				}
				if len(r.Cells) > 0 {
					o.results.Add(1)
				}
				time.Sleep(10 * time.Millisecond) // of two cores the run needs some
			}
		})
	}
}

// TestObserver: the observer receives exactly the operations that were done, in order. Several
// goroutines may ask for the result while the run goes on.
func TestObserver(t *testing.T) {
	server := realServer(t)
	for _, test := range []struct {
		name   string
		change func(*Config)
		calls  []string
	}{
		{"round trips", func(c *Config) { c.Concurrency = []int{1, 4} },
			[]string{"pool goredis", "recorder profiles/typed/json/none", "recorder profiles/typed/json/s2", "watch", "no pool goredis"}},
		{"a dictionary", func(c *Config) { c.Compress, c.Concurrency = config(t, "zstd:3+dict").Compress, []int{2} },
			[]string{"pool goredis", "trained profiles/typed/json/zstd:3+dict", "recorder profiles/typed/json/zstd:3+dict", "watch", "no pool goredis"}},
		{"a mix", func(c *Config) { c.Mix = Mix{Gets: 3, Sets: 1, Misses: 0.25} },
			[]string{"pool goredis", "recorder profiles/typed/json/none", "recorder profiles/typed/json/s2", "watch", "no pool goredis"}},
		{"both tracks", func(c *Config) {
			dynamic, err := c.Datasets[0].Dynamic()
			if err != nil {
				t.Fatal(err)
			}
			c.Datasets, c.Compress, c.Concurrency = append(c.Datasets, dynamic), c.Compress[:1], []int{2}
		},
			[]string{"pool goredis", "recorder profiles/typed/json/none", "recorder profiles/dynamic/json/none", "watch", "no pool goredis"}},
		{"a sweep", func(c *Config) { c.Sweep, c.Compress, c.Concurrency = true, c.Compress[:1], []int{4} },
			[]string{"pool goredis", "recorder profiles/typed/json/none", "watch", "no pool goredis"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := &observer{t: t, groups: map[string]*stats.Counters{}}
			c := small(t, "none", "s2")
			test.change(&c)
			c.Observer = o
			c.wrap = func(s bale.Store) bale.Store { return counting{s, &o.seen} }
			c.Progress = func(p Progress) {
				if p.Cell != nil || strings.HasPrefix(p.What, "finding") { // from here on it is callers who call
					o.seen.on.Store(true)
				}
			}
			r, err := Measure(t.Context(), []*Server{server}, c)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.calls, o.calls); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			var told, done [4]uint64
			for _, group := range o.groups {
				s := group.Snapshot()
				set, get := s.Ops[stats.Set], s.Ops[stats.Get]
				for i, n := range []uint64{set.Count, get.Count, get.Misses, set.Stored} {
					told[i] += n
				}
				if set.Errors != [stats.Classes]uint64{} || get.Hits+get.Misses != get.Count || set.Keys != set.Count || set.Times[stats.Pack].Count != set.Count {
					t.Errorf("%+v", s.Ops)
				}
			}
			done = [4]uint64{o.seen.sets.Load(), o.seen.gets.Load(), o.seen.misses.Load(), o.seen.stored.Load()}
			if told != done || done[0] == 0 || (done[2] > 0) != (c.Mix.Misses > 0) {
				t.Errorf("told of SETs, GETs, misses, bytes: %d, done: %d", told, done)
			}
			operations := uint64(0) // those of warming up are told, too
			for _, cell := range r.Cells {
				operations += uint64(cell.Operations)
			}
			if all := done[0] + done[1]; c.Mix.Single() && all < operations || !c.Mix.Single() && done[0] < operations {
				t.Errorf("%d operations were measured, %v done", operations, done)
			}
			if o.results.Load() == 0 {
				t.Error("no result was seen while it went on")
			}
		})
	}
}

// TestObserverOfBatches: a batch is one event, with as many keys as it has values.
func TestObserverOfBatches(t *testing.T) {
	server := realServer(t)
	o := &observer{t: t, groups: map[string]*stats.Counters{}}
	c := config(t, "none")
	c.Batches, c.Concurrency, c.Observer = []Batch{{MSet: true, N: 7}}, []int{3}, o
	r, err := Measure(t.Context(), []*Server{server}, c)
	if err != nil {
		t.Fatal(err)
	}
	s := o.groups["profiles/typed/json/none"].Snapshot()
	set, get := s.Ops[stats.SetMany], s.Ops[stats.GetMany]
	if set.Count < uint64(r.Cells[0].Operations) || get.Count != set.Count || set.Keys != 7*set.Count || get.Keys != set.Keys || get.Hits != get.Keys || get.Stored != set.Stored || s.Ops[stats.Set].Count != 0 {
		t.Errorf("%d operations; %+v; %+v", r.Cells[0].Operations, set, get)
	}
}
