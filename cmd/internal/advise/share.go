package advise

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/fleet"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/registry"
)

const (
	// A unit keeps this many names of a group. It keeps more of a group with more than its share of an
	// average unit, for that may be in few slots. In all these are several thousand of a group.
	unitNames = 16

	// Names that all units keep have about this many bytes at most, and those of hot keys as many. A
	// unit with more keys than the average keeps more, up to unitBytes.
	runBytes  = 64 << 20
	unitBytes = 256 << 10
)

// agreed are what all workers of a shared run agree on.
type agreed struct {
	Match  []string `json:"match,omitempty"`
	Groups []string `json:"group,omitempty"`
	Sample int      `json:"sample"`
	Seed   uint64   `json:"seed"`
	Prefix string   `json:"prefix"`
}

// shared counts the keys of a cluster with the other workers of a run, by their names alone. One of
// the workers then looks at the sample, and answers.
func shared(ctx context.Context, at registry.Options, o Options) (a *Advice, err error) {
	at.LookOnly = true
	reg, err := registry.Open(ctx, at)
	if err != nil {
		return nil, err
	}
	defer reg.Close()
	cluster, ok := reg.Client().(*redis.ClusterClient)
	if !ok {
		return nil, fmt.Errorf("%w: --run shares the scan of a cluster, and %s is none: leave it out",
			cli.ErrUsage, reg.Servers[0].Name)
	}
	if _, err := newScanner(&o); err != nil {
		return nil, err
	}
	run, err := fleet.JoinWalk(ctx, reg, o.Run.Name, "advise", agreed{o.Match, o.Groups, o.Sample, o.Seed, reg.Prefix})
	if err != nil {
		return nil, err
	}
	server := &Server{}
	if err := server.read(ctx, cluster); err != nil {
		return nil, err
	}
	var heat *lfu
	if server.countsReads() {
		heat = lfuOf(ctx, cluster)
	}
	keys, err := fleet.Once(ctx, run, "keys", func(ctx context.Context) (int64, error) {
		n, err := cluster.DBSize(ctx).Result()
		if keyspace.IsForbidden(err) {
			return 0, nil
		}
		return n, err
	})
	if err != nil {
		return nil, err
	}
	mean := max(1, int(keys)/run.Units)
	if keys == 0 { // they are not known
		mean = math.MaxInt
	}
	empty := func() *sketch {
		s, _ := newScanner(&o) // which has been tried
		s.lfu = heat
		return &sketch{scanner: s, mean: mean, room: runBytes / run.Units}
	}
	all := empty()
	w := fleet.Walk[sketch]{
		Registry: reg, New: empty, Merge: (*sketch).merge, Rate: o.Run.Rate,
		Pass: func(ctx context.Context, place keyspace.Place, c *sketch, page func([]keyspace.Place) error) error {
			return keyspace.ReadValues(ctx, cluster, keyspace.ValuesOptions{
				Match: o.Match, Pacer: reg.Pacer, Places: []keyspace.Place{place},
				Names: func(ctx context.Context, at redis.UniversalClient, names []string) ([]string, error) {
					return nil, c.names(ctx, at, names)
				},
				Page: func(places []keyspace.Place, _ keyspace.Looked) error { return page(places) },
			})
		},
	}
	if err := w.Work(ctx, run); err != nil {
		return nil, err
	}
	answers, err := fleet.Once(ctx, run, "answer", func(ctx context.Context) (string, error) {
		a = nil // of a try before
		if err := w.Share(ctx, run, all); err != nil {
			return "", err
		}
		o.shared = all.scanner
		a, err = ask(ctx, cluster, at, o)
		return run.Worker, err
	})
	switch {
	case err != nil:
	case answers == run.Worker:
		a.Scan.Seconds = run.Seconds()
		err = run.Forget(ctx)
	default: // perhaps this one was too late
		a = nil
		reg.Notef("all keys are counted; the answer is in the output of %s (for a new one, start another --run NAME)", answers)
	}
	return a, err
}

// sketch is what the names of some keys tell: the groups that there are, a sample of each group's
// names, and how often keys are read. As JSON it is what a unit keeps.
type sketch struct {
	scanner *scanner // nil for one that was read
	mean    int      // keys of a unit
	room    int      // bytes of names that such a unit may keep

	Seen     int64      `json:"seen"`
	Long     int64      `json:"long,omitempty"`
	Registry bool       `json:"registry,omitempty"`
	Groups   []sketched `json:"groups"`
}

// sketched is a group of a sketch. Names are bytes, for JSON is text.
type sketched struct {
	Seen  int64           `json:"seen"`
	Names [][]byte        `json:"names"`         // those with the lowest ranks
	Below uint64          `json:"below"`         // names with this rank, and higher ones, are not kept
	Hot   map[string]warm `json:"hot,omitempty"` // by type
}

// warm is a heat.
type warm struct {
	Keys    int64    `json:"keys"`
	Ends    int64    `json:"ends,omitempty"`
	Reads   float64  `json:"reads"`
	Bytes   float64  `json:"bytes"`
	Hottest []warmed `json:"hottest"`
}

type warmed struct {
	Name  []byte  `json:"name"`
	Bytes int64   `json:"bytes"`
	Reads float64 `json:"reads"`
	End   bool    `json:"end,omitempty"`
}

// names counts keys.
func (k *sketch) names(ctx context.Context, at redis.UniversalClient, names []string) error {
	s := k.scanner
	matched, wanted := s.count(names)
	for _, e := range wanted {
		if t, ok := s.finder.Find(e.name); ok {
			t.add(e)
		}
	}
	s.masters = at
	s.lock.Lock()
	defer s.lock.Unlock()
	return (&walker{scanner: s}).feel(ctx, at, matched)
}

// MarshalJSON writes what was counted.
func (k *sketch) MarshalJSON() ([]byte, error) {
	type plain sketch
	if k.scanner == nil {
		return json.Marshal((*plain)(k))
	}
	s := k.scanner
	c := plain{Seen: s.scan.Seen, Long: s.long, Registry: s.registry}
	groups := s.finder.Groups()
	share := max(1, float64(c.Seen)/float64(k.mean))
	room := min(int(share*float64(k.room)), unitBytes)
	keep := func(t *tally, part int) []*entry {
		n := unitNames * max(1, float64(t.seen)*float64(len(groups))/float64(k.mean)) / float64(part)
		return t.entries[:min(max(1, int(n)), len(t.entries))]
	}
	part := 1
	for bytes := room + 1; bytes > room && part <= 2*unitBytes; part *= 2 {
		bytes = 0
		for _, g := range groups {
			g.Value.shrink()
			for _, e := range keep(g.Value, part) {
				bytes += len(e.name)
			}
		}
	}
	for _, g := range groups {
		t := g.Value
		found := sketched{Seen: t.seen, Hot: map[string]warm{}}
		kept := keep(t, part/2)
		for _, e := range kept {
			found.Names = append(found.Names, []byte(e.name))
		}
		if found.Below = t.entriesBelow; len(kept) < len(t.entries) {
			found.Below = t.entries[len(kept)].rank
		}
		for kind, h := range t.heats {
			w := warm{Keys: h.keys, Ends: h.ends, Reads: h.reads, Bytes: h.bytes}
			for _, k := range h.hottest {
				if room -= len(k.name); room >= 0 {
					w.Hottest = append(w.Hottest, warmed{[]byte(k.name), k.bytes, k.reads, k.end})
				}
			}
			found.Hot[kind] = w
		}
		c.Groups = append(c.Groups, found)
	}
	return json.Marshal(&c)
}

// merge adds what another sketch has, which is not used any more. A group's keys count for the
// groups of its names: these are a uniform sample.
func (k *sketch) merge(o *sketch) {
	if o.scanner != nil { // the sum of all units, for nothing yet
		k.scanner = o.scanner
		return
	}
	s := k.scanner
	s.scan.Seen += o.Seen
	s.long += o.Long
	s.registry = s.registry || o.Registry
	for _, g := range o.Groups {
		if len(g.Names) == 0 { // all are too long
			continue
		}
		n := int64(len(g.Names))
		for i, b := range g.Names {
			name := string(b)
			t := s.finder.Add(name)
			if t.seen += g.Seen / n; int64(i) < g.Seen%n {
				t.seen++
			}
			t.entriesBelow = min(t.entriesBelow, g.Below)
			e := &entry{rank: keyspace.Rank(s.options.Seed, name), name: name}
			if look, _ := t.wants(e.rank); look {
				t.add(e)
			}
			if i > 0 {
				continue
			}
			for kind, w := range g.Hot {
				if !reachable(kind) { // of a forged state
					continue
				}
				h := &heat{keys: w.Keys, ends: w.Ends, reads: w.Reads, bytes: w.Bytes}
				for _, k := range w.Hottest {
					if len(k.Name) > maxName { // of a forged state
						continue
					}
					h.hottest = append(h.hottest, hot{string(k.Name), k.Bytes, k.Reads, k.End})
				}
				t.heats.of(kind).merge(h)
			}
		}
	}
}

// recall looks at the sample of names that there is, each at the server that has it.
func (s *scanner) recall(ctx context.Context, client redis.UniversalClient, nodes []keyspace.Node) error {
	cluster := client.(*redis.ClusterClient)
	s.scanned = s.scan.Keys // all are counted
	s.walkers = map[*redis.Client]*walker{}
	its := map[string][]*entry{} // by master
	for t := range s.limits.tallies {
		t.shrink()
		for _, e := range t.entries {
			s.limits.keptBytes -= e.kept()
			master, err := cluster.MasterForKey(ctx, e.name)
			if err != nil {
				return err
			}
			its[master.Options().Addr] = append(its[master.Options().Addr], e)
		}
		s.limits.keptEntries -= len(t.entries)
		t.entries = nil
	}
	defer func() {
		for _, left := range its { // of masters that have others in their place by now
			s.failed, s.failure = s.failed+int64(len(left)), cmp.Or(s.failure, "MOVED")
		}
	}()
	total, done := 0, 0
	for _, all := range its {
		total += len(all)
	}
	progress := s.options.progress(scanning)
	return keyspace.AtOnce(ctx, s.options.Pace, nodes, func(ctx context.Context, n keyspace.Node) error {
		s.lock.Lock()
		defer s.lock.Unlock()
		w := &walker{scanner: s, node: n.Client, pacer: keyspace.Pacer{Pace: s.options.Pace}}
		s.walkers[n.Client] = w
		if err := w.begin(ctx); err != nil {
			return err
		}
		all := its[n.Master]
		delete(its, n.Master)
		slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(a.rank, b.rank) })
		for names := range slices.Chunk(all, pageKeys) {
			w.keys += len(names)
			if err := w.look(ctx, names); err != nil {
				return err
			}
			if done += len(names); progress != nil {
				progress(done, total, fmt.Sprintf("%d keys counted, %d looked at", s.scan.Seen, s.scan.LookedAt))
			}
			if err := w.rest(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}
