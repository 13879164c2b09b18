package advise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keygroup"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/redismem"
)

const (
	// A SCAN of 64 keys keeps the server busy for some 30 µs: other clients wait no longer than for
	// one of their own commands.
	pageKeys = 64

	headBytes  = 64 << 10 // of a value; what is behind is taken to be like it
	maxName    = 1 << 10  // bytes of a key's name, above which the key is only counted: the samples keep names
	shortBytes = 32       // of a value whose size alone is wanted: enough to see that it is a number
	hashFields = 128      // of a hash, at most, at a time
	fewFields  = 10       // where it is not known how large they are

	// Values are read in replies of about this size, because the server keeps a reply in memory
	// until it is read. Sizes are estimates before the read.
	replyBytes = 4 << 20
)

// packedMax is the size in bytes of the largest value that is packed: a Packer's default.
const packedMax = 64 << 20

// scanner looks at the keys of all servers.
type scanner struct {
	lock     sync.Mutex // held by the walker at work, and by none that waits for its server
	options  *Options
	finder   *keygroup.Finder[*tally]
	limits   *limits
	match    func(key string) bool
	pattern  string // for SCAN
	scan     Scan
	memory   memory
	usage    memory            // the same, counted as MEMORY USAGE does
	scanned  int64             // keys that the server went over
	noUsage  bool              // the server gives no MEMORY USAGE
	models   []redismem.Server // those that the server may have, until one was fitted
	failed   int64             // keys that the server did not tell of
	failure  string            // why, of the first one
	registry bool              // keys of a registry were passed over
	long     int64             // keys whose names are longer than maxName
	start    time.Time
	largest  []Key
	lfu      *lfu                  // nil where the server does not count reads
	counters int64                 // that were asked for
	masters  redis.UniversalClient // which are asked for the counters: a replica does not count their reads

	walkers map[*redis.Client]*walker
}

func newScanner(o *Options) (*scanner, error) {
	s := &scanner{options: o, limits: newLimits(o.Sample, allEntries, allBytes)}
	if err := keyspace.CheckMatch(o.Match); err != nil {
		return nil, fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	if len(o.Match) == 1 {
		s.pattern = o.Match[0]
	} else if len(o.Match) > 1 {
		s.match = func(key string) bool {
			return slices.ContainsFunc(o.Match, func(p string) bool { return keygroup.Match(p, key) })
		}
	}
	var err error
	s.finder, err = keygroup.New(keygroup.Options{Patterns: o.Groups}, s.limits.newTally, (*tally).merge)
	return s, err
}

// walker scans a server.
type walker struct {
	*scanner
	node   *redis.Client
	hashes keyspace.HashReader
	pacer  keyspace.Pacer
	idle   time.Duration // of a round trip

	// Since the last rest:
	rested time.Time
	waited time.Duration // for the server
	trips  int
	keys   int   // that the server went over, and fields that were read
	read   int64 // bytes
}

// walk scans all servers, some at a time.
func (s *scanner) walk(ctx context.Context, nodes []keyspace.Node) error {
	s.walkers = map[*redis.Client]*walker{}
	return keyspace.AtOnce(ctx, s.options.Pace, nodes, func(ctx context.Context, n keyspace.Node) error {
		s.lock.Lock()
		defer s.lock.Unlock()
		w := &walker{scanner: s, node: n.Client, pacer: keyspace.Pacer{Pace: s.options.Pace}}
		s.walkers[n.Client] = w
		return w.walk(ctx)
	})
}

// outside does something that waits for the server, while others work.
func (w *walker) outside(do func() error) error {
	w.lock.Unlock()
	start := time.Now()
	err := do()
	if start.Before(w.rested) {
		start = w.rested
	}
	w.waited += time.Since(start) // without the wait for the lock: the server does nothing meanwhile
	w.lock.Lock()
	return err
}

// begin learns how long a round trip takes.
func (w *walker) begin(ctx context.Context) error {
	err := w.outside(func() (err error) {
		w.idle, err = roundTrip(ctx, w.node)
		return err
	})
	w.waited = 0
	return err
}

// walk scans the keys of the server.
func (w *walker) walk(ctx context.Context) error {
	if err := w.begin(ctx); err != nil {
		return err
	}
	progress := w.options.progress(scanning)
	var cursor uint64
	for {
		var keys []string
		var next uint64
		if err := w.outside(func() (err error) {
			keys, next, err = w.node.Scan(ctx, cursor, w.pattern, pageKeys).Result()
			return err
		}); err != nil {
			return fmt.Errorf("SCAN: %w", keyspace.Explain(err, w.node.Options().Username))
		}
		w.trips++
		if err := w.page(ctx, keys); err != nil {
			return err
		}
		if progress != nil {
			progress(int(min(w.scanned, w.scan.Keys)), int(w.scan.Keys), fmt.Sprintf("%d keys seen, %d looked at", w.scan.Seen, w.scan.LookedAt))
		}
		if cursor = next; cursor == 0 {
			return nil
		}
		if err := w.rest(ctx); err != nil {
			return err
		}
	}
}

// roundTrip is the shortest of some.
func roundTrip(ctx context.Context, node *redis.Client) (time.Duration, error) {
	shortest := time.Hour
	for range 5 {
		start := time.Now()
		if err := node.Ping(ctx).Err(); err != nil {
			return 0, fmt.Errorf("PING: %w", err)
		}
		shortest = min(shortest, time.Since(start))
	}
	return shortest, nil
}

// rest waits until the server may be asked for more.
func (w *walker) rest(ctx context.Context) error {
	busy := w.waited - time.Duration(w.trips)*w.idle
	n, bytes := w.keys, int(w.read)
	defer func() { w.rested, w.waited, w.trips, w.keys, w.read = time.Now(), 0, 0, 0, 0 }()
	if w.options.Pace.Rate <= 0 && w.options.Pace.Bandwidth <= 0 {
		return ctx.Err()
	}
	return w.outside(func() error { return w.sleep(ctx, busy, n, bytes) })
}

func (w *walker) sleep(ctx context.Context, busy time.Duration, n, bytes int) error {
	if err := w.pacer.Rest(ctx, busy); err != nil {
		return err
	}
	return w.pacer.Wait(ctx, w.node, n, bytes)
}

// look is a key of a page that is looked at, and the replies about it.
type look struct {
	*entry
	value bool // its value is to be read

	kind     *redis.StatusCmd
	ttl      *redis.DurationCmd
	size     *redis.IntCmd
	encoding *redis.StringCmd
	usage    *redis.IntCmd
	start    *redis.StringCmd
	fields   *redis.ScanCmd
}

// page counts the keys of a page and looks at some.
func (w *walker) page(ctx context.Context, keys []string) error {
	w.scanned += pageKeys
	w.keys += pageKeys
	matched, wanted := w.count(keys)
	if err := w.feel(ctx, w.node, matched); err != nil {
		return err
	}
	return w.look(ctx, wanted)
}

// count counts keys. It returns those of which heat is asked for, and those to look at.
func (s *scanner) count(keys []string) (matched []string, wanted []*entry) {
	for _, k := range keys {
		if skip := s.options.Skip; skip != nil && skip(k) {
			s.registry = true
			continue
		}
		if s.match != nil && !s.match(k) {
			continue
		}
		t := s.finder.Add(k)
		t.seen++
		if len(k) <= maxName { // the hottest are kept by name
			matched = append(matched, k)
		}
		s.scan.Seen++
		r := keyspace.Rank(s.options.Seed, k)
		if look, _ := t.wants(r); look && len(k) > maxName {
			s.long++
		} else if look {
			wanted = append(wanted, &entry{rank: r, name: strings.Clone(k)})
		}
	}
	return matched, wanted
}

// look looks at keys, and reads the values of some.
func (w *walker) look(ctx context.Context, keys []*entry) error {
	s := w.scanner
	var looks []*look
	for _, e := range keys {
		if t, ok := s.finder.Find(e.name); ok { // its group may be another one than before
			if wanted, value := t.wants(e.rank); wanted {
				looks = append(looks, &look{entry: e, value: value && s.scan.BytesRead < s.options.MaxBytes})
			}
		}
	}
	for _, ask := range []func(context.Context, redis.Pipeliner, *look){s.askKind, s.askSize} {
		if err := w.pipelined(ctx, looks, ask); err != nil {
			return err
		}
	}
	for len(looks) > 0 {
		n, err := w.values(ctx, looks)
		if err != nil {
			return err
		}
		for _, l := range looks[:n] {
			w.take(l)
		}
		s.fit(looks[:n])
		for _, l := range looks[:n] {
			s.keepLargest(l.entry)
		}
		clear(looks[:n]) // the replies are large perhaps
		if looks = looks[n:]; len(looks) == 0 {
			return nil
		}
		if err := w.rest(ctx); err != nil {
			return err
		}
	}
	return nil
}

// values reads the values of the first n keys: as many as have room in a reply, or a single large
// hash.
func (w *walker) values(ctx context.Context, looks []*look) (n int, err error) {
	bytes := int64(0)
	for _, l := range looks {
		l.entry.node = w.node
		if bytes += l.planned(); n > 0 && (bytes > replyBytes || l.large()) {
			break
		}
		if n++; l.large() {
			return n, w.readHash(ctx, l.entry, l.extent(), int(l.count()), replyBytes)
		}
	}
	return n, w.pipelined(ctx, looks[:n], w.askValue)
}

func (w *walker) pipelined(ctx context.Context, looks []*look, ask func(context.Context, redis.Pipeliner, *look)) error {
	if len(looks) == 0 {
		return nil
	}
	return w.ask(ctx, func(p redis.Pipeliner) {
		for _, l := range looks {
			ask(ctx, p, l)
		}
	})
}

// ask sends commands at once. An error about one key is in its reply alone.
func (w *walker) ask(ctx context.Context, add func(redis.Pipeliner)) error {
	return w.askAt(ctx, w.node, add)
}

func (w *walker) askAt(ctx context.Context, c redis.UniversalClient, add func(redis.Pipeliner)) error {
	w.trips++
	p := c.Pipeline()
	add(p)
	err := w.outside(func() error {
		_, err := p.Exec(ctx)
		return err
	})
	if keyspace.IsReply(err) {
		return nil
	}
	return err
}

// fit chooses the model that the server has, by the MEMORY USAGE of the first keys that tell.
func (s *scanner) fit(looks []*look) {
	var entries []*entry
	for _, l := range looks {
		whole := l.entry.kind == String || int64(len(l.entry.items)) == l.entry.size
		if l.entry.modelled > 0 && l.entry.usage > 0 && l.entry.items != nil && whole {
			entries = append(entries, l.entry)
		}
	}
	off := make([]int64, len(s.models))
	best := 0
	for i, m := range s.models {
		usage := memory{Server: m}
		usage.MemoryUsage = true
		for _, e := range entries {
			want := usage.entry(e)
			off[i] += max(want-e.usage, e.usage-want)
		}
		if off[i] < off[best] {
			best = i
		}
	}
	if len(off) == 0 || slices.Max(off) == off[best] {
		return
	}
	s.use(s.models[best])
	s.models = nil
	for _, e := range entries {
		e.now, e.modelled = s.memory.entry(e), s.usage.entry(e)
	}
}

// use takes a model of the server.
func (s *scanner) use(m redismem.Server) {
	s.memory.Server, s.usage.Server = m, m
	s.usage.MemoryUsage = true
}

func (s *scanner) askKind(ctx context.Context, p redis.Pipeliner, l *look) {
	l.kind, l.ttl = p.Type(ctx, l.name), p.PTTL(ctx, l.name)
}

func (s *scanner) askSize(ctx context.Context, p redis.Pipeliner, l *look) {
	switch l.entry.kind = l.kind.Val(); l.entry.kind {
	case "none", "":
		return
	case String:
		l.size = p.StrLen(ctx, l.name)
		if !l.value {
			return
		}
	case Hash:
		l.size, l.encoding = p.HLen(ctx, l.name), p.ObjectEncoding(ctx, l.name)
	}
	switch {
	case s.noUsage:
	case l.entry.kind == Hash:
		l.usage = p.MemoryUsage(ctx, l.name, keyspace.UsageOf)
	default:
		l.usage = p.MemoryUsage(ctx, l.name)
	}
}

// planned is about how many bytes the value's reply will have.
func (l *look) planned() int64 {
	switch l.entry.kind {
	case String:
		return min(l.size.Val(), l.part())
	case Hash:
		if l.count() > 0 && !l.large() {
			return l.extent().Usage
		}
	}
	return 0
}

// large reports a hash that is read by the sizes of its fields.
func (l *look) large() bool {
	return l.entry.kind == Hash && l.count() > 0 && !l.extent().Small()
}

// part is how much of a string is read.
func (l *look) part() int64 {
	if l.value {
		return headBytes
	}
	return shortBytes
}

// extent is how large a hash is.
func (l *look) extent() keyspace.Extent {
	e := keyspace.Extent{Length: l.size.Val(), Usage: -1}
	if l.usage != nil && l.usage.Err() == nil {
		e.Usage = l.usage.Val()
	}
	return e
}

// count is how many fields of a hash are asked for.
func (l *look) count() int64 {
	switch field := l.extent().Mean(); {
	case !l.value, l.size.Val() == 0, field > keyspace.LargestElement:
		return 0
	case field < 0:
		return fewFields
	default:
		return min(hashFields, max(fewFields, replyBytes/max(1, field)))
	}
}

func (s *scanner) askValue(ctx context.Context, p redis.Pipeliner, l *look) {
	switch l.entry.kind {
	case String:
		l.start = p.GetRange(ctx, l.name, 0, l.part()-1)
	case Hash:
		if n := l.count(); n > 0 { // and it is small
			l.fields = p.HScan(ctx, l.name, 0, "", n)
		}
	}
}

// take adds a key with the server's answers. It ignores a key that has gone since.
func (w *walker) take(l *look) {
	s := w.scanner
	e := l.entry
	for _, err := range []error{l.kind.Err(), l.ttl.Err()} {
		if err != nil {
			s.fail(err)
			return
		}
	}
	if e.kind == "none" || e.kind == "" || l.ttl.Val() == gone {
		return
	}
	if e.ttl = l.ttl.Val(); e.ttl >= 0 {
		e.expires = true
	}
	if l.usage != nil {
		switch err := l.usage.Err(); {
		case err == nil:
			e.usage = max(e.usage, l.usage.Val())
		case denied(err), redis.HasErrorPrefix(err, "ERR unknown"):
			s.noUsage = true
		case errors.Is(err, redis.Nil):
			return
		}
	}
	e.sampled = l.value
	there := true
	switch e.kind {
	case String:
		there = w.takeString(l)
	case Hash:
		there = w.takeHash(l)
	default:
		e.now = e.usage
	}
	if !there {
		return
	}
	s.scan.LookedAt++
	if t, ok := s.finder.Find(e.name); ok { // its group may be another one than before
		t.add(e)
	}
}

// denied reports that a user may not run a command, whatever the key.
func denied(err error) bool {
	return redis.HasErrorPrefix(err, "NOPERM") && strings.Contains(err.Error(), "command")
}

// fail counts a key without an answer from the server: the user may not read it, or a cluster is
// moving it.
func (s *scanner) fail(err error) {
	if s.failed++; s.failed == 1 {
		s.failure, _, _ = strings.Cut(err.Error(), " ") // MOVED, NOPERM: the rest may name the key
	}
}

func (w *walker) takeString(l *look) bool {
	s := w.scanner
	for _, err := range []error{l.size.Err(), l.start.Err()} {
		if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			s.fail(err)
		}
		if err != nil {
			return false
		}
	}
	e, start := l.entry, []byte(l.start.Val())
	w.took(int64(len(start)))
	e.size = l.size.Val()
	if int64(len(start)) < min(e.size, l.part()) { // it was written, or has gone, since its size was told
		if len(start) == 0 {
			return false
		}
		e.size = int64(len(start))
	}
	e.size = max(e.size, int64(len(start)))
	e.now = s.memory.string(e, start, e.size)
	e.modelled = s.usage.string(e, start, e.size)
	if l.value && e.size > 0 && e.size <= packedMax {
		e.items, e.read = []item{{head: start, size: e.size}}, itemBytes+int64(len(start))
	}
	return true
}

func (w *walker) takeHash(l *look) bool {
	s := w.scanner
	e := l.entry
	if err := l.size.Err(); err != nil {
		s.fail(err)
		return false
	}
	e.size = l.size.Val()
	if l.encoding.Err() == nil {
		e.encoding = l.encoding.Val()
	}
	if l.fields != nil && l.fields.Err() == nil {
		if pairs, _ := l.fields.Val(); !w.addFields(e, pairs) {
			e.items, e.read = nil, 0
		}
	}
	return s.modelHash(e)
}

// modelHash says what a hash takes, by the fields that were read. It reports one that is there.
func (s *scanner) modelHash(e *entry) bool {
	if len(e.items) == 0 { // its fields are too large, or it is not to be read
		e.now, e.modelled, e.rough = e.usage, 0, true
		return e.usage > 0
	}
	e.size = max(e.size, int64(len(e.items)))
	e.now, e.modelled = s.memory.entry(e), s.usage.entry(e)
	return true
}

// errEnough ends the reading of a hash.
var errEnough = errors.New("enough")

// readHash reads a hash by the sizes of its fields from its start, until it has the wanted number
// of fields or most bytes. A field that is too large to be read ends that: the hash has no items,
// and is not tried.
func (w *walker) readHash(ctx context.Context, e *entry, size keyspace.Extent, wanted int, most int64) error {
	s := w.scanner
	bytes := int64(0)
	e.items, e.read = nil, 0
	each := func(pairs []string, tooLarge int) error {
		s.lock.Lock()
		defer s.lock.Unlock()
		before := s.scan.BytesRead
		whole := w.addFields(e, pairs)
		bytes += s.scan.BytesRead - before
		if !whole || tooLarge > 0 {
			e.items, e.read = nil, 0
			e.usage = max(e.usage, int64(tooLarge)*keyspace.LargestElement) // by 1,000 fields it may be less
			return errEnough
		}
		if len(e.items) >= wanted || bytes >= most || s.limits.keptBytes+e.read >= s.limits.allBytes {
			return errEnough
		}
		return w.rest(ctx)
	}
	err := w.outside(func() error { return w.hashes.Read(ctx, w.node, e.name, size, keyspace.LargestElement, each) })
	if errors.Is(err, errEnough) || keyspace.IsReply(err) { // which is about this key
		return nil
	}
	return err
}

// addFields adds fields of a hash, name and value in turn. It is false if one is too large to be
// read.
func (w *walker) addFields(e *entry, pairs []string) (read bool) {
	for i := 0; i+1 < len(pairs); i += 2 {
		name, v := pairs[i], pairs[i+1]
		w.took(int64(len(name) + len(v)))
		w.keys++
		if len(v) > keyspace.LargestElement {
			return false
		}
		e.items = append(e.items, item{name: []byte(name), head: []byte(v[:min(len(v), headBytes)]), size: int64(len(v))})
		e.read += itemBytes + int64(len(name)+min(len(v), headBytes))
	}
	return true
}

// took counts bytes of values that were read.
func (w *walker) took(n int64) {
	w.scan.BytesRead += n
	w.read += n
}

// deepen reads more fields of hashes that have a large part of their group's fields. They may be
// all that there is to try things on.
func (s *scanner) deepen(ctx context.Context) error {
	for t := range s.limits.tallies {
		fields := int64(0)
		for _, e := range t.entries {
			if e.kind == Hash && e.items != nil {
				fields += e.size
			}
		}
		for _, e := range t.entries {
			if e.kind != Hash || e.items == nil || s.scan.BytesRead >= s.options.MaxBytes {
				continue
			}
			wanted := min(e.size, int64(s.limits.values)*e.size/fields)
			if int64(len(e.items)) >= wanted {
				continue
			}
			if err := s.readMore(ctx, e, int(wanted)); err != nil {
				return err
			}
		}
	}
	return nil
}

// readMore reads a hash from its start, until it has the wanted number of fields.
func (s *scanner) readMore(ctx context.Context, e *entry, wanted int) error {
	w := s.walkers[e.node]
	s.lock.Lock()
	defer s.lock.Unlock()
	w.rested, w.waited, w.trips = time.Now(), 0, 0
	s.limits.keptBytes -= e.read
	defer func() { s.limits.keptBytes += e.read }()
	size := keyspace.Extent{Length: e.size, Usage: e.usage}
	if e.usage == 0 { // it was not asked for
		size.Usage = -1
	}
	err := w.readHash(ctx, e, size, wanted, s.options.MaxBytes-s.scan.BytesRead)
	if err == nil && !s.modelHash(e) { // it has gone
		e.drop()
	}
	return err
}

// keepLargest keeps the keys that take most memory.
func (s *scanner) keepLargest(e *entry) {
	i, _ := slices.BinarySearchFunc(s.largest, e.now, func(k Key, n int64) int { return cmp.Compare(n, k.Bytes) })
	if e.now == 0 || i == topKeys || slices.ContainsFunc(s.largest, func(k Key) bool { return k.Name == e.name }) {
		return
	}
	s.largest = slices.Insert(s.largest, i, Key{Name: e.name, Type: e.kind, Bytes: e.now})
	s.largest = s.largest[:min(len(s.largest), topKeys)]
}
