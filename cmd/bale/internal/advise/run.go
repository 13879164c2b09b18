package advise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/bale/internal/content"
	"github.com/balekv/bale/cmd/bale/internal/keygroup"
	"github.com/balekv/bale/cmd/bale/internal/keyspace"
	"github.com/balekv/bale/redismem"
)

// Options are the settings of [Redis] and [Values].
type Options struct {
	Source string   // as the answer shows it
	URL    string   // as the next commands spell it, without a password
	Match  []string // patterns of the keys that are looked at, all if empty
	Groups []string // patterns of keys that are groups of their own, beside those that are found
	Skip   string   // keys that start so are passed over, none if empty: the registry's
	Sample int      // how many values of a group are tried at most

	Rate     int   // keys a second, 0 for as quick as the server answers
	MaxBytes int64 // of values that are read

	Budget time.Duration // that a value may take to pack, or to unpack, in the mean
	Price  float64       // USD for a GiB and month
	Seed   uint64

	ShowSamples bool // some values of each group are in the answer
	HideKeys    bool // no name or pattern of a key is in the answer

	Progress func(done, total int, what string) // may be nil
}

const (
	allEntries = 200_000  // keys that are remembered, of all groups
	allBytes   = 48 << 20 // of values

	topKeys = 20

	// A dictionary takes some seconds to make: it is tried for the largest groups, of those that matter.
	dictGroups     = 40
	thoroughGroups = 8
	triedPart      = 0.001 // of the memory of all groups

	formatItems  = 2000 // of which formats, entropy and likeness are told
	shownSamples = 3
	shownSample  = 200 // bytes
	assumedKey   = 24  // bytes of the key of a value that came from a file
	largeField   = 256 << 10
	gibibyte     = 1 << 30
	modelOffBy   = 0.03 // from which on the answer warns
)

// gone is what PTTL says of a key that does not exist.
const gone = -2 * time.Nanosecond

// Redis looks at the keys of a server, or of all shards of a cluster, reading only, and says what could be saved. When ctx ends it answers
// for what it has seen until then, with ctx's error beside the answer.
func Redis(ctx context.Context, client redis.UniversalClient, o Options) (*Advice, error) {
	begin := time.Now()
	a := &Advice{Source: o.Source, Time: begin, Server: &Server{}, Budget: o.Budget, Price: o.Price, Seed: o.Seed}
	if err := a.Server.read(ctx, client); err != nil { // before any other command, which it would count
		return nil, err
	}
	topology, err := keyspace.Nodes(ctx, client)
	if err != nil {
		return nil, err
	}
	defer topology.Close()
	s := &scanner{options: &o, limits: newLimits(o.Sample, allEntries, allBytes), start: time.Now()}
	a.Server.Cluster = topology.Cluster
	s.memory.Cluster = topology.Cluster
	s.memory.Unshared = a.Server.MaxMemory > 0 && (strings.Contains(a.Server.Policy, "lru") || strings.Contains(a.Server.Policy, "lfu"))
	if len(o.Match) == 1 {
		s.pattern = o.Match[0]
	} else if len(o.Match) > 1 {
		s.match = func(key string) bool {
			return slices.ContainsFunc(o.Match, func(p string) bool { return keygroup.Match(p, key) })
		}
	}
	if s.finder, err = keygroup.New(keygroup.Options{Patterns: o.Groups}, s.limits.newTally, func(into, from *tally) { into.merge(from) }); err != nil {
		return nil, err
	}
	for _, n := range topology.Nodes {
		s.scan.Keys += n.Keys
		a.Server.Replica = a.Server.Replica || n.Replica
	}
	a.Warnings = append(a.Warnings, topology.Notes...)
	for _, n := range topology.Nodes {
		if err = s.node(ctx, n.Client); err != nil {
			break
		}
	}
	s.scan.Seconds = time.Since(s.start).Seconds()
	a.Scan = s.scan
	if err != nil {
		if ctx.Err() == nil {
			return nil, err
		}
		a.Scan.Interrupted, a.Scan.Reason = true, "interrupted"
		ctx, err = context.WithoutCancel(ctx), ctx.Err() // a second interrupt ends the process
	}
	if s.scan.BytesRead >= o.MaxBytes {
		a.warn("After %d bytes of values no more were read (--max-bytes): what came later is in the counts, and not in the samples.", s.scan.BytesRead)
	}
	groups, names := s.groups(a)
	for _, k := range s.largest {
		if t, ok := s.finder.Find(k.Name); ok {
			k.Group = names[t]
		}
		a.TopKeys = append(a.TopKeys, k)
	}
	a.model(s)
	a.Total.Tables = tables(groups)
	err = errors.Join(err, a.answer(ctx, groups, &s.memory, &o))
	a.conclude(&o)
	a.Seconds = time.Since(begin).Seconds()
	return a, err
}

// Set is values without keys, as they come from a file.
type Set struct {
	Name   string
	File   string // that they come from
	Values [][]byte
	Total  int64 // values there are, of which Values are a sample
}

// Values is what could be saved of values that are not in a Redis yet.
func Values(ctx context.Context, sets []Set, o Options) (*Advice, error) {
	begin := time.Now()
	a := &Advice{Source: o.Source, Time: begin, Budget: o.Budget, Price: o.Price, Seed: o.Seed, files: map[string]string{}}
	m := &memory{}
	var groups []*found
	for _, s := range sets {
		f := &found{name: s.Name, kind: String, keys: s.Total}
		for i, v := range s.Values {
			e := &entry{rank: uint64(i), name: strings.Repeat("k", assumedKey), kind: String, size: int64(len(v)), ttl: -1}
			e.items = []item{{head: v[:min(len(v), headBytes)], size: int64(len(v))}}
			e.now = m.key(e) + m.string(v, e.size)
			f.entries = append(f.entries, e)
			a.Scan.BytesRead += e.size
		}
		a.files[s.Name] = s.File
		a.Scan.Keys += s.Total
		a.Scan.Seen += s.Total
		a.Scan.LookedAt += int64(len(s.Values))
		groups = append(groups, f)
	}
	a.warn("The values come from files: their keys are taken to have %d bytes and no expiry, and nothing is known of how often they are read.", assumedKey)
	err := a.answer(ctx, groups, m, &o)
	a.conclude(&o)
	a.Seconds = time.Since(begin).Seconds()
	return a, err
}

func (a *Advice) warn(format string, args ...any) {
	a.Warnings = append(a.Warnings, fmt.Sprintf(format, args...))
}

// found is a group of keys of one type, with those of them that were looked at.
type found struct {
	name, match string
	kind        string
	keys        int64
	entries     []*entry
}

// groups are what the finder found, divided by type, and counted up to all keys where not all were seen.
func (s *scanner) groups(a *Advice) ([]*found, map[*tally]string) {
	scale := 1.0
	if a.Scan.Interrupted && s.asked > 0 {
		scale = max(1, float64(s.scan.Keys)/float64(s.asked))
	}
	if s.pattern != "" || s.match != nil || !a.Scan.Interrupted {
		a.Scan.Keys = int64(math.Round(scale * float64(s.scan.Seen)))
	}
	var all []*found
	names := map[*tally]string{}
	for _, g := range s.finder.Groups() {
		names[g.Value] = g.Name
		g.Value.shrink()
		kinds := map[string]*found{}
		for _, e := range g.Value.entries {
			f := kinds[e.kind]
			if f == nil {
				f = &found{name: g.Name, match: g.Match, kind: e.kind}
				kinds[e.kind] = f
				all = append(all, f)
			}
			f.entries = append(f.entries, e)
		}
		for _, f := range kinds {
			f.keys = int64(math.Round(scale * float64(g.Value.seen) * float64(len(f.entries)) / float64(len(g.Value.entries))))
			f.keys = max(f.keys, int64(len(f.entries)))
		}
	}
	return all, names
}

// answer tries all groups, the largest first.
func (a *Advice) answer(ctx context.Context, groups []*found, m *memory, o *Options) error {
	total := int64(0)
	described := make([]Group, len(groups))
	samples := make([]*groupSample, len(groups))
	order := make([]int, len(groups))
	for i, f := range groups {
		samples[i] = newGroupSample(m, f.entries, f.keys)
		described[i] = describe(f, samples[i], o)
		order[i] = i
		if reachable(f.kind) {
			total += described[i].Now
		} else {
			a.Total.OutReach += described[i].Now
		}
		a.Total.Now += described[i].Now
		a.Scan.Values += samples[i].items
	}
	a.Total.Now += a.Total.Tables
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(described[y].Now, described[x].Now) })
	var saved, network []float64
	var err error
	for rankBySize, i := range order {
		g, s := &described[i], samples[i]
		g.Chosen = -1
		if o.Progress != nil {
			o.Progress(rankBySize, len(order), fmt.Sprintf("trying %d values of %s", s.items, g.Name))
		}
		switch {
		case !reachable(g.Type):
			g.Why = "out of reach: packing is for strings and the values of hashes"
		case err != nil:
			g.Why = "not tried: interrupted"
		case s.items == 0:
			g.Why = "no value of it was read"
		case len(s.keepItems) == s.items:
			g.Why = "already packed by bale, or of a kind that the server works on: " + g.Formats[0].Name
		default:
			how := quick
			switch {
			case float64(g.Now) < triedPart*float64(total):
			case rankBySize < thoroughGroups:
				how = thorough
			case rankBySize < dictGroups:
				how = some
			}
			var t *tried
			if t, err = tryAll(ctx, s, how, g.Formats); err != nil {
				g.Why = "not tried to the end: " + err.Error()
				if ctx.Err() == nil {
					return fmt.Errorf("%s: %w", g.Name, err)
				}
				continue
			}
			e := newEstimator(s, g.Keys, o.Seed)
			save, net := evaluate(g, t, e, o.Budget)
			if g.Chosen >= 0 && how == thorough {
				if err = t.refine(ctx, t.trials[g.Chosen]); err == nil {
					save, net = evaluate(g, t, e, o.Budget)
				}
			}
			if save != nil {
				saved = sum(saved, save, 1)
				reads := a.reads() * float64(g.Keys) / float64(max(1, a.Scan.Keys))
				network = sum(network, net, reads)
				a.Total.CPU += reads * g.Options[g.Chosen].Unpack.Mean / 1e6
				g.Month = g.Saving.times(o.Price / gibibyte)
				g.Sizes = distribution(m, s, t.trials[g.Chosen])
			}
			if g.Chosen < 0 {
				g.Sizes = distribution(m, s, nil)
			}
		}
	}
	a.Total.Saving, a.Total.Network = interval(saved), interval(network)
	a.Total.Month = a.Total.Saving.times(o.Price / gibibyte)
	slices.SortStableFunc(described, func(x, y Group) int {
		return cmp.Or(cmp.Compare(y.Saving.Estimate, x.Saving.Estimate), cmp.Compare(y.Now, x.Now))
	})
	a.Groups = described
	return err
}

// tables are what the buckets of the tables of all keys, and of those that expire, take.
func tables(groups []*found) int64 {
	var keys, expiring float64
	for _, f := range groups {
		n := 0
		for _, e := range f.entries {
			if e.expires {
				n++
			}
		}
		keys += float64(f.keys)
		expiring += float64(f.keys) * float64(n) / float64(len(f.entries))
	}
	return int64(redismem.Table(int(keys)) + redismem.Table(int(expiring)))
}

func reachable(kind string) bool { return kind == String || kind == Hash }

func (i Interval) times(f float64) Interval { return Interval{i.Low * f, i.Estimate * f, i.High * f} }

// reads is how many keys are read a second, 0 where it is not known.
func (a *Advice) reads() float64 {
	if a.Server == nil || a.Server.Seconds == 0 {
		return 0
	}
	return float64(a.Server.Hits) / a.Server.Seconds
}

// describe is what a group is, before anything is tried.
func describe(f *found, s *groupSample, o *Options) Group {
	g := Group{Name: f.name, Match: f.match, Type: f.kind, Keys: f.keys, Sampled: s.items}
	var names, now, elements, expiring float64
	var sizes []int64
	var lives []float64
	for _, e := range f.entries {
		names += float64(len(e.name))
		now += float64(e.now)
		elements += float64(e.size)
		if e.expires {
			expiring++
			lives = append(lives, e.ttl.Seconds())
		}
		if f.kind == String {
			sizes = append(sizes, e.size)
		}
	}
	n := float64(len(f.entries))
	g.KeyBytes, g.TTL.Part = names/n, expiring/n
	g.Now = int64(now / n * float64(f.keys))
	if len(lives) > 0 {
		slices.Sort(lives)
		g.TTL.P50, g.TTL.P90 = quantile(lives, 0.5), quantile(lives, 0.9)
	}
	var values, train, heldOut [][]byte
	for i, e := range s.entries {
		for _, it := range e.items {
			if f.kind == Hash {
				sizes = append(sizes, it.size)
			}
			if len(values) < formatItems {
				values = append(values, it.head)
				if s.trained[i] {
					train = append(train, it.head)
				} else {
					heldOut = append(heldOut, it.head)
				}
			}
		}
	}
	if f.kind == Hash {
		g.Fields = elements / n
	}
	if len(sizes) > 0 {
		slices.Sort(sizes)
		sum := 0.0
		for _, v := range sizes {
			sum += float64(v)
		}
		g.Size = Sizes{sum / float64(len(sizes)), quantile(sizes, 0.5), quantile(sizes, 0.9), quantile(sizes, 0.99), sizes[len(sizes)-1]}
	}
	if len(values) > 0 {
		g.Formats = formatsOf(s.entries)
		g.Entropy = content.Entropy(values)
		g.Common = content.Common(train, heldOut)
	}
	if o.ShowSamples {
		for _, v := range values[:min(len(values), shownSamples)] {
			cut := ""
			if len(v) > shownSample {
				v, cut = v[:shownSample], fmt.Sprintf(" ... %d bytes", len(v))
			}
			text := string(v)
			if strconv.Quote(text) != `"`+text+`"` && !strings.Contains(text, `"`) {
				text = strconv.Quote(text)
			}
			g.Samples = append(g.Samples, text+cut)
		}
	}
	return g
}

// distribution is the classes of memory that values take, before and after.
func distribution(m *memory, s *groupSample, t *trial) []Bucket {
	counts := map[int64]*Bucket{}
	at := func(class int64) *Bucket {
		b := counts[class]
		if b == nil {
			b = &Bucket{Class: class}
			counts[class] = b
		}
		return b
	}
	n := float64(len(s.entries))
	for i, e := range s.entries {
		at(e.now - m.key(e)).Before += 1 / n
		after := e.now
		if t != nil {
			after = int64(t.after[i])
		}
		at(after - m.key(e)).After += 1 / n
	}
	var all []Bucket
	for _, b := range counts {
		all = append(all, *b)
	}
	slices.SortFunc(all, func(a, b Bucket) int { return cmp.Compare(a.Class, b.Class) })
	return all
}

// model compares the model with what the server said.
func (a *Advice) model(s *scanner) {
	m := &Model{}
	for t := range s.limits.tallies {
		for _, e := range t.entries {
			if e.usage > 0 && e.told > 0 {
				m.Keys++
				m.Modelled += e.told
				m.Measured += e.usage
			}
		}
	}
	if m.Keys == 0 {
		a.warn("The server gave no MEMORY USAGE, so that the model of its memory is not checked, and lists, sets and other types count as nothing.")
		return
	}
	a.Model = m
	if off := float64(m.Modelled)/float64(m.Measured) - 1; math.Abs(off) > modelOffBy {
		a.warn("The model of the server's memory is %+.1f%% off what MEMORY USAGE says of %d keys (it is that of Redis 7): take the figures for so much less sure.", 100*off, m.Keys)
	}
}
