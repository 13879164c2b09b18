package advise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/content"
	"github.com/balekv/bale/cmd/internal/fleet"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/migrate"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/redismem"
)

// Options are the settings of [Redis] and [Values].
type Options struct {
	Source string // as the answer shows it
	URL    string // as the next commands spell it, without a password
	// Registry is the URL of the dictionaries' registry, spelled likewise, empty where it is in the
	// same Redis.
	Registry string

	Match  []string      // patterns of the keys that are looked at, all if empty
	Groups []string      // patterns of keys that are groups of their own, beside those that are found
	Skip   keyspace.Skip // passes keys over: those of the registry
	Sample int           // how many keys of a group are read at most

	Pace     keyspace.Pace // of keys and fields; zero for as quick as the server answers
	MaxBytes int64         // of values that are read

	Budget time.Duration // that a value may take to pack, or to unpack, in the mean
	Price  float64       // USD for a GiB and month
	Seed   uint64

	Replicas bool // get user and password at the addresses that they announce: see keyspace.Nodes
	Database int  // that is looked at
	Private  bool // the server is one of our own, for a file: what it has counted says nothing

	ShowSamples bool // some values of each group are in the answer
	HideKeys    bool // no name or pattern of a key is in the answer

	CPU string // name of this machine's processor, for the answer

	Reader Reader // of packed values; nil not to try new dictionaries on those

	Progress func(done, total int, what string) // may be nil

	Run fleet.Part // in a run that workers share, on a cluster

	first  step
	shared *scanner // what all workers of a run have counted
}

// step is one of an answer, in the order in which they come. A running server begins with scanning,
// an RDB file with loading, other files with trying.
type step int

const (
	loading step = iota - 1
	scanning
	trying
	joining
)

// progress is that of a step, nil without any.
func (o *Options) progress(s step) func(done, total int, what string) {
	return cli.Step(o.Progress, int(s-o.first)+1, int(joining-o.first)+1)
}

const (
	allEntries = 200_000  // keys that are remembered, of all groups
	allBytes   = 48 << 20 // of memory that their names and values take

	topKeys = 20

	// A dictionary takes some seconds to make: bale advise tries it for the largest groups that
	// matter.
	thoroughGroups = 8
	someGroups     = 40
	triedPart      = 0.001 // of the memory of all groups

	formatItems  = 2000 // of which formats, entropy and likeness are told
	shownSamples = 3
	shownSample  = 200 // bytes
	assumedKey   = 24  // bytes of the key of a value that came from a file
	knownNames   = 100 // of a group, to see whose keys a pattern catches
	gibibyte     = 1 << 30
	modelOffBy   = 0.03 // from which on the answer warns
)

// gone is PTTL's answer for a missing key.
const gone = -2 * time.Nanosecond

// Redis reads the keys of a server, or of all shards of a cluster, and estimates the possible
// saving. It never writes. When ctx ends it estimates from the keys seen until then, and returns
// ctx's error beside the answer.
func Redis(ctx context.Context, client redis.UniversalClient, o Options) (*Advice, error) {
	begin := time.Now()
	a := &Advice{matched: len(o.Match) > 0, Source: o.Source, Time: begin, Server: &Server{}, Budget: o.Budget, Price: o.Price, Seed: o.Seed}
	if err := a.Server.read(ctx, client); err != nil { // before any other command, which it would count
		return nil, err
	}
	if o.Private {
		a.Server.Hits, a.Server.Misses, a.Server.Reads, a.Server.UsedMemory, a.Server.InPlace = 0, 0, 0, 0, nil
	}
	topology, err := keyspace.Nodes(ctx, client, o.Replicas)
	if err != nil {
		return nil, err
	}
	defer topology.Close()
	watched := func(context.Context, bool) {}
	if !o.Private {
		if watched, err = a.Server.watch(ctx, client, topology); err != nil {
			return nil, err
		}
	}
	s := o.shared
	if s == nil {
		if s, err = newScanner(&o); err != nil {
			return nil, err
		}
	}
	s.options, s.start = &o, time.Now()
	a.Server.Cluster = topology.Cluster
	s.models = redismem.Candidates(a.Server.info)
	for i := range s.models {
		s.models[i].Cluster = topology.Cluster
		evicts := strings.Contains(a.Server.Policy, "lru") || a.Server.countsReads()
		s.models[i].Unshared = a.Server.MaxMemory > 0 && evicts
	}
	s.memory.inexact = s.models[0].Layout != s.models[len(s.models)-1].Layout || s.models[0].Libc
	s.use(s.models[0])
	if a.Server.countsReads() && !o.Private {
		if s.lfu == nil {
			s.lfu, s.masters = lfuOf(ctx, client), client
		}
		a.lfu = s.lfu
	}
	for _, n := range topology.Nodes {
		s.scan.Keys += n.Keys
		a.Server.Replica = a.Server.Replica || n.Replica
		if n.Replica && n.Addr == n.Master { // which was given itself
			a.warn("This server is a replica, and takes no writes: " +
				"give the URL of its master to the commands that publish, activate or migrate.")
		}
	}
	if a.Server.Replica {
		a.warn("Replicas were read: used_memory is theirs, and hashes, lists and other collections " +
			"may take less memory there than on a master.")
	}
	a.Warnings = append(a.Warnings, topology.Notes...)
	walked := client
	if !topology.Cluster {
		walked = topology.Nodes[0].Client
	}
	var changed error
	if o.shared != nil {
		err = s.recall(ctx, client, topology.Nodes)
	} else {
		var stay *keyspace.Watch
		stay, changed = keyspace.NewWatch(ctx, walked)
		if err = s.walk(ctx, topology.Nodes); err == nil && changed == nil {
			changed = stay.Look(ctx)
		}
	}
	if err == nil {
		err = s.deepen(ctx)
	}
	if e, ok := errors.AsType[*keyspace.InconclusiveError](changed); ok {
		a.warn("Keys may have been missed, or counted twice: %s: %v.", e.Server, e.Err)
	}
	s.scan.Seconds = time.Since(s.start).Seconds()
	a.Scan = s.scan
	switch {
	case err != nil && ctx.Err() != nil:
		a.Scan.Interrupted, a.Scan.Reason = true, "interrupted"
		ctx, err = context.WithoutCancel(ctx), ctx.Err() // a second interrupt ends the process
	case err != nil && s.scan.Seen == 0:
		return nil, err
	case err != nil:
		a.Scan.Interrupted, a.Scan.Reason = true, "the server did not answer any more"
	}
	ask := func(about func(ctx context.Context)) {
		if !a.Scan.Interrupted {
			about(ctx)
			return
		}
		short, cancel := context.WithTimeout(ctx, 5*time.Second) // the server may hang
		defer cancel()
		about(short)
	}
	ask(func(ctx context.Context) { watched(ctx, s.registry || s.packed()) })
	if s.scan.BytesRead >= o.MaxBytes {
		a.warn("After %s of values no more were read (--max-bytes): what came later is in the counts, and not in the samples.", printable.Size(s.scan.BytesRead))
	}
	if s.failed > 0 {
		why := "the cluster was moving them"
		if s.failure == "NOPERM" {
			why = "this user may not read them"
		}
		a.warn("The server did not tell of %d of the keys that were looked at: %s (%s).", s.failed, why, s.failure)
	}
	if s.long > 0 {
		a.warn("Keys with names of more than %s were counted, and not looked at: %d.", printable.Size(maxName), s.long)
	}
	if s.limits.values < o.Sample {
		a.warn("There are so many groups, or so large values, that of each group at most %d values were kept (--sample %d).", s.limits.values, o.Sample)
	}
	groups, names := s.groups(a)
	for _, k := range s.largest {
		if t, ok := s.finder.Find(k.Name); ok {
			k.Group = names[t]
		}
		k.Name = printable.Name(k.Name)
		a.TopKeys = append(a.TopKeys, k)
	}
	a.model(s)
	a.Total.Tables = tables(groups, &s.memory)
	err = errors.Join(err, a.answer(ctx, groups, &s.memory, &o))
	if a.Server.now != nil {
		ask(func(ctx context.Context) { a.Server.now(ctx, s.counters) })
	}
	a.warm()
	a.elsewhere(&o)
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
	o.first = trying
	a := &Advice{Source: o.Source, Time: begin, Budget: o.Budget, Price: o.Price, Seed: o.Seed}
	m := &memory{}
	var groups []*found
	for _, s := range sets {
		f := &found{name: s.Name, kind: String, keys: s.Total, file: s.File}
		for i, v := range s.Values {
			e := &entry{rank: uint64(i), name: strings.Repeat("k", assumedKey), kind: String, size: int64(len(v)), ttl: -1}
			e.items = []item{{head: v[:min(len(v), headBytes)], size: int64(len(v))}}
			e.now = m.string(e, v, e.size)
			f.entries = append(f.entries, e)
			a.Scan.BytesRead += e.size
		}
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

// found is a group of keys of one type, with the keys that were sampled.
type found struct {
	name, match string
	kind        string
	keys        int64
	entries     []*entry
	file        string
	heat        *heat // nil where nothing of it is hot
}

// elsewhere tells of the databases that were not looked at.
func (a *Advice) elsewhere(o *Options) {
	for _, db := range slices.Sorted(maps.Keys(a.Server.databases)) {
		if n := a.Server.databases[db]; db != o.Database && n > 0 && !o.Private {
			a.warn("Database %d holds %d keys more: a URL that ends in /%[1]d is for it.", db, n)
		}
	}
}

// groups are what the finder found, divided by type, and counted up to all keys where not all were
// seen.
func (s *scanner) groups(a *Advice) ([]*found, map[*tally]string) {
	scale := 1.0
	if a.Scan.Interrupted && s.scanned > 0 {
		scale = max(1, float64(s.scan.Keys)/float64(s.scanned))
	}
	if s.pattern != "" || s.match != nil || !a.Scan.Interrupted {
		a.Scan.Keys = int64(math.Round(scale * float64(s.scan.Seen)))
	}
	var all []*found
	names := map[*tally]string{}
	for _, g := range s.finder.Groups() {
		if name := printable.Name(g.Name); name != g.Name { // nobody pastes such a pattern
			g.Name, g.Match = name, ""
		}
		names[g.Value] = g.Name
		g.Value.shrink()
		kinds, sampled, valued := map[string]*found{}, map[string]int{}, 0
		for _, e := range g.Value.entries {
			if e.sampled {
				sampled[e.kind]++
				valued++
			}
			f := kinds[e.kind]
			if f == nil {
				f = &found{name: g.Name, match: g.Match, kind: e.kind, heat: g.Value.heats[e.kind]}
				kinds[e.kind] = f
				all = append(all, f)
			}
			f.entries = append(f.entries, e)
		}
		for _, f := range kinds {
			part := float64(len(f.entries)) / float64(len(g.Value.entries))
			if all := int64(len(g.Value.entries)); valued > 0 && all < g.Value.seen { // some were not kept, by their types
				part = float64(sampled[f.kind]) / float64(valued)
			}
			f.keys = max(int64(math.Round(scale*float64(g.Value.seen)*part)), int64(len(f.entries)))
		}
	}
	return all, names
}

// attempt is a group with what was tried on it.
type attempt struct {
	*found
	group   Group
	sample  *groupSample
	how     effort
	tried   bool
	chosen  *trial    // nil for none
	network []float64 // bytes that it saves for a key, for each draw
}

func newAttempt(m *memory, f *found, o *Options) *attempt {
	t := &attempt{found: f, sample: newGroupSample(m, f.entries, f.keys)}
	t.group = describe(f, t.sample, o)
	t.group.file, t.group.heat, t.group.Chosen = f.file, f.heat, -1
	return t
}

// left counts strings that bale migrate leaves as they are, though the chosen setting makes them
// smaller. Values of a file are not migrated.
func (t *attempt) left() (n int) {
	if t.chosen == nil || t.kind != String || t.file != "" {
		return 0
	}
	for i, p := range t.sample.pieces {
		packed := t.chosen.wireOf(i)
		if packed < p.wire && (p.wire > migrate.LargestPlain || packed > migrate.LargestPacked) {
			n++
		}
	}
	return n
}

// answer tries all groups, the largest first.
func (a *Advice) answer(ctx context.Context, groups []*found, m *memory, o *Options) error {
	total := int64(0)
	var all []*attempt
	for _, f := range groups {
		t := newAttempt(m, f, o)
		if reachable(f.kind) {
			total += t.group.Now
		} else {
			a.Total.OutReach += t.group.Now
		}
		a.Total.Now += t.group.Now
		a.Scan.Values += t.sample.items
		all = append(all, t)
	}
	a.Total.Now += a.Total.Tables
	slices.SortStableFunc(all, func(x, y *attempt) int { return cmp.Compare(y.group.Now, x.group.Now) })
	var err error
	nth, packed := 0, 0
	progress := o.progress(trying)
	for _, t := range all {
		if t.group.Packed != nil {
			packed++
		}
	}
	steps := len(all) + packed
	for done, t := range all {
		g, s := &t.group, t.sample
		if progress != nil {
			progress(done, steps, fmt.Sprintf("%s, %d values", page.Name(shownName(g, o), shownProgress), s.items))
		}
		if s.unread > 0 {
			a.warn("%s: %d of the %d hashes tried have a field above %d MiB, and are taken to stay as they are. bale migrate --dry-run shows what their other fields save.",
				shownName(g, o), s.unread, s.looked, keyspace.LargestElement>>20)
		}
		if reachable(g.Type) && s.items > 0 {
			switch nth++; {
			case float64(g.Now) < triedPart*float64(total):
			case nth <= thoroughGroups:
				t.how = thorough
			case nth <= someGroups:
				t.how = some
			default:
				t.how = little
			}
		}
		switch {
		case !reachable(g.Type):
			g.Why = "out of reach: packing is for strings and the values of hashes"
		case err != nil:
			g.Why = "not tried: interrupted"
		case s.items == 0:
			switch {
			case s.unread > 0:
				g.Why = "its fields are too large to be read"
			case g.Size.Max <= packedMax:
				g.Why = "no value of it was read"
			default:
				g.Why = "too large to be packed"
			}
		case len(s.kept) == s.items:
			if g.Why = "already packed by bale"; g.Formats[0].Name != content.Bale.String() {
				g.Why = "of a kind that the server works on: " + g.Formats[0].Name
			}
		default:
			if err = t.try(ctx, o); err != nil && !t.tried {
				g.Why = "not tried: interrupted"
				if ctx.Err() == nil {
					return fmt.Errorf("a group of %d keys: %w", g.Keys, err)
				}
				continue
			}
			if a.Slowness == 0 || s.slowness < a.Slowness { // the other times it was busy
				a.Slowness = s.slowness
			}
			if t.how > quick && s.items < minTraining && g.Keys > int64(2*o.Sample) {
				a.warn("%s: of %d values no dictionary can be made: --sample is too small.", shownName(g, o), s.items)
			}
		}
	}
	if err == nil {
		all, err = a.packedTogether(ctx, all, m, o)
	}
	left := 0
	for _, t := range all {
		if t.group.Packed != nil {
			left++
		}
	}
	for _, t := range all {
		if err != nil || t.group.Packed == nil {
			continue
		}
		if progress != nil {
			progress(steps-left, steps, page.Name(shownName(&t.group, o), shownProgress)+", a new dictionary")
		}
		left--
		err = t.better(ctx, a, o)
	}
	if err == nil {
		all, err = a.together(ctx, all, m, o)
	}
	if err != nil && !a.Scan.Interrupted {
		a.Scan.Interrupted, a.Scan.Reason = true, "interrupted while groups were tried"
	}
	untried := 0
	for _, t := range all {
		if t.tried && t.how == quick {
			untried++
		}
	}
	if untried > 0 {
		a.warn("No dictionary was tried for %s below %.1f%% of the memory.", page.Plural(untried, "group"), 100*triedPart)
	}
	var saved, network []float64
	for _, t := range all {
		g := &t.group
		if n := t.left(); n > 0 {
			a.warn("%s: %d of the %d strings tried are above %d MiB, or above %d MiB when packed. bale migrate leaves them as they are: programs pack them when they write them.",
				shownName(g, o), n, len(t.sample.pieces), migrate.LargestPlain>>20, migrate.LargestPacked>>20)
		}
		if t.chosen != nil {
			saved = sum(saved, t.chosen.saved, 1)
			reads := a.reads() * float64(g.Keys) / float64(max(1, a.keys()))
			network = sum(network, t.network, reads)
			a.Total.CPU += reads * t.chosen.Unpack.Mean / 1e6
			g.Month = g.Saving.times(o.Price / gibibyte)
		}
		if t.tried {
			g.Sizes = distribution(m, t.sample, t.chosen)
		}
		a.Groups = append(a.Groups, *g)
	}
	a.Total.Saving, a.Total.Network = interval(saved), interval(network)
	a.Total.Month = a.Total.Saving.times(o.Price / gibibyte)
	slices.SortStableFunc(a.Groups, func(x, y Group) int {
		return cmp.Or(cmp.Compare(y.Saving.Estimate, x.Saving.Estimate), cmp.Compare(y.Now, x.Now))
	})
	return err
}

// try tries the settings on a group, and chooses one. If not even tried is set there is no answer.
func (t *attempt) try(ctx context.Context, o *Options) error {
	trials, err := tryAll(ctx, t.sample, t.how, t.group.Formats)
	if err != nil {
		return err
	}
	e := newEstimator(t.sample, t.keys, o.Seed)
	t.tried = true
	for {
		t.chosen = choose(&t.group, trials, e, o.Budget)
		if t.chosen == nil || t.chosen.built.dictionary == nil {
			break
		}
		pays := false
		if pays, err = t.sample.pays(ctx, t.chosen); pays || err != nil {
			break
		}
		trials = slices.DeleteFunc(trials, func(other *trial) bool { return other == t.chosen })
	}
	if t.chosen != nil && t.chosen.built.dictionary != nil && err == nil {
		first := t.chosen.Saving.Estimate
		err = t.sample.refine(ctx, t.chosen, t.how)
		// Programs will have yet another dictionary, of more values. As a deviation of what it saves
		// stands what twice the values to train on have changed.
		again := e.saving(t.chosen)[0]
		t.chosen.apart = max(math.Abs(again-first), dictionaryApart*again)
		e.evaluate(&t.group, t.chosen)
	}
	if t.chosen != nil {
		t.network = e.network(t.chosen)
	}
	t.group.list(trials, t.chosen)
	return err
}

// tables is the allocation for the tables of all keys, and of the keys that expire.
func tables(groups []*found, m *memory) int64 {
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
	return int64(m.Tables(int(keys), int(expiring)))
}

func reachable(kind string) bool { return kind == String || kind == Hash }

func (i Interval) times(f float64) Interval { return Interval{i.Low * f, i.Estimate * f, i.High * f} }

// reads is how many keys are read a second, 0 where it is not known.
func (a *Advice) reads() float64 {
	if a.Server == nil {
		return 0
	}
	return max(a.Server.Reads, a.Server.ReadsNow)
}

// keys is how many there are that reads are spread over: those of all the server.
func (a *Advice) keys() int64 {
	if a.Server == nil {
		return a.Scan.Keys
	}
	return max(a.Server.Keys, a.Scan.Keys)
}

// shownName is a group's name for a warning and for progress.
func shownName(g *Group, o *Options) string {
	if o.HideKeys {
		return "a group"
	}
	return g.Name
}

// describe is what a group is, before anything is tried.
func describe(f *found, s *groupSample, o *Options) Group {
	g := Group{Name: f.name, Match: f.match, Type: f.kind, Keys: f.keys, Sampled: s.items}
	var names, now, elements, expiring float64
	var sizes []int64
	var lives []float64
	for i, e := range f.entries {
		if i < knownNames && f.file == "" {
			g.names = append(g.names, e.name)
		}
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
		if e.heavy && !e.sampled {
			g.unread.strings, g.unread.part = g.unread.strings+1, g.unread.part+float64(e.now)
		}
	}
	g.unread.part /= max(1, now)
	n := float64(len(f.entries))
	g.KeyBytes, g.TTL.Part = names/n, expiring/n
	g.Now = int64(now / n * float64(f.keys))
	g.Packed = s.scaled(f.keys)
	if len(lives) > 0 {
		slices.Sort(lives)
		g.TTL.P50, g.TTL.P90 = quantile(lives, 0.5), quantile(lives, 0.9)
	}
	var values, train, heldOut [][]byte
	var shown []item
	for i, p := range s.pieces {
		for _, it := range p.items {
			if len(shown) < shownSamples {
				shown = append(shown, it)
			}
			if f.kind == Hash {
				sizes = append(sizes, it.size)
			}
			if len(values) < formatItems {
				values = append(values, it.head)
				if s.uses[i] != toEstimate {
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
		g.Formats = formatsOf(s.pieces)
		g.Entropy = content.Entropy(values)
		g.Common = content.Common(train, heldOut)
	}
	if o.ShowSamples {
		for _, it := range shown {
			g.Samples = append(g.Samples, excerpt(it))
		}
	}
	return g
}

// excerpt is the start of a value, on one line.
func excerpt(it item) string {
	v := it.head[:min(len(it.head), shownSample)]
	for cut := len(v); len(v) > 0 && cut-len(v) < utf8.UTFMax && !utf8.Valid(v); { // a character that was cut
		v = v[:len(v)-1]
	}
	if !utf8.Valid(v) {
		v = it.head[:min(len(it.head), shownSample)]
	}
	text := printable.Line(string(v))
	if it.size > shownSample {
		text += fmt.Sprintf(" ... %s", printable.Size(it.size))
	}
	return text
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
	n := 0.0
	for _, p := range s.pieces {
		n += p.times
	}
	for i, p := range s.pieces {
		one := func(bytes float64) int64 {
			if p.alone {
				return int64(math.Round((bytes - p.beside) / p.times))
			}
			return int64(bytes) - m.key(p.entry)
		}
		after := p.before
		if t != nil {
			after = t.after[i]
		}
		at(one(p.before)).Before += p.times / n
		at(one(after)).After += p.times / n
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
			if e.usage > 0 && e.modelled > 0 {
				m.Keys++
				m.Modelled += e.modelled
				m.Measured += e.usage
			}
		}
	}
	if s.noUsage {
		a.warn("The server gave no MEMORY USAGE, so that the model of its memory is not checked, and lists, sets and other types count as nothing.")
	}
	if m.Keys == 0 {
		return
	}
	a.Model, m.Scaled = m, s.memory.inexact
	if off := float64(m.Modelled)/float64(m.Measured) - 1; math.Abs(off) > modelOffBy && !m.Scaled {
		a.warn("The model of the server's memory is %+.1f%% off what MEMORY USAGE says of %s keys: the figures may be off by as much.", 100*off, page.Thousands(int64(m.Keys)))
	}
}
