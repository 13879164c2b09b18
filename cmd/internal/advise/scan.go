package advise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/keygroup"
	"github.com/balekv/bale/cmd/internal/keyspace"
)

const (
	// A SCAN of 64 keys keeps the server busy for some 30 us: other clients wait no longer than for
	// one of their own commands.
	pageKeys = 64

	headBytes  = 64 << 10 // of a value; what is behind is taken to be like it
	shortBytes = 32       // of a value whose size alone is wanted: enough to see that it is a number
	hashFields = 128      // of a hash, at most, at a time
	fewFields  = 10       // where it is not known how large they are

	// Values are read in replies of about this size, because the server keeps a reply in memory
	// until it is read. Sizes are estimates before the read.
	replyBytes = 4 << 20

	// After each page the scan rests for nine times the time that the server took for it: at most a
	// tenth of one processor.
	restFactor = 9
)

// packedMax is the size in bytes of the largest value that is packed: a Packer's default.
const packedMax = 64 << 20

// scanner looks at the keys of a server.
type scanner struct {
	options *Options
	finder  *keygroup.Finder[*tally]
	limits  *limits
	match   func(key string) bool
	pattern string // for SCAN
	scan    Scan
	memory  memory
	told    memory // the same, counted as MEMORY USAGE does
	asked   int64  // keys that the server went over
	noUsage bool   // the server gives no MEMORY USAGE
	fitted  bool   // the model's allocator is the server's
	failed  int64  // keys that the server did not tell of
	failure string // why, of the first one
	start   time.Time
	largest []Key

	pacer keyspace.Pacer
	paced [2]int64 // asked and BytesRead that pacer has been told of
}

// node scans the keys of a node.
func (s *scanner) node(ctx context.Context, node *redis.Client) error {
	idle, err := roundTrip(ctx, node)
	if err != nil {
		return err
	}
	var cursor uint64
	for {
		start := time.Now()
		keys, next, err := node.Scan(ctx, cursor, s.pattern, pageKeys).Result()
		if err != nil {
			return fmt.Errorf("SCAN: %w", keyspace.Explain(err, node.Options().Username))
		}
		trips, err := s.page(ctx, node, keys)
		if err != nil {
			return err
		}
		busy := time.Since(start) - time.Duration(trips+1)*idle
		if s.options.Progress != nil {
			s.options.Progress(int(progressScan*min(s.asked, s.scan.Keys)/max(s.scan.Keys, 1)), progressAll, fmt.Sprintf("%d of %d keys seen, %d looked at", s.scan.Seen, s.scan.Keys, s.scan.LookedAt))
		}
		if cursor = next; cursor == 0 {
			return nil
		}
		if err := s.rest(ctx, node, busy); err != nil {
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

// rest waits until the next page is due.
func (s *scanner) rest(ctx context.Context, node *redis.Client, busy time.Duration) error {
	n, bytes := s.asked-s.paced[0], s.scan.BytesRead-s.paced[1]
	s.paced = [2]int64{s.asked, s.scan.BytesRead}
	if s.options.Pace.Rate <= 0 && s.options.Pace.Bandwidth <= 0 {
		return ctx.Err()
	}
	if wait := restFactor * busy; wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
	return s.pacer.Wait(ctx, node, int(n), int(bytes))
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

// page counts the keys of a page and samples some of them. trips counts its round trips.
func (s *scanner) page(ctx context.Context, node *redis.Client, keys []string) (trips int, err error) {
	var looks []*look
	s.asked += pageKeys
	for _, k := range keys {
		if skip := s.options.Skip; skip != nil && skip(k) || s.match != nil && !s.match(k) {
			continue
		}
		t := s.finder.Add(k)
		t.seen++
		s.scan.Seen++
		r := keyspace.Rank(s.options.Seed, k)
		if wanted, value := t.wants(r); wanted {
			looks = append(looks, &look{entry: &entry{rank: r, name: strings.Clone(k)}, value: value && s.scan.BytesRead < s.options.MaxBytes})
		}
	}
	for _, ask := range []func(context.Context, redis.Pipeliner, *look){s.askKind, s.askSize} {
		if len(looks) == 0 {
			return trips, nil
		}
		trips++
		if err := s.pipelined(ctx, node, looks, ask); err != nil {
			return trips, err
		}
	}
	for rest := looks; len(rest) > 0; trips++ {
		n, bytes := 0, int64(0)
		for n < len(rest) && (n == 0 || bytes+rest[n].planned() <= replyBytes) {
			bytes += rest[n].planned()
			n++
		}
		if err := s.pipelined(ctx, node, rest[:n], s.askValue); err != nil {
			return trips, err
		}
		s.fit(rest[:n])
		for _, l := range rest[:n] {
			l.entry.node = node
			s.take(l)
		}
		rest = rest[n:]
	}
	return trips, nil
}

func (s *scanner) pipelined(ctx context.Context, node *redis.Client, looks []*look, ask func(context.Context, redis.Pipeliner, *look)) error {
	_, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, l := range looks {
			ask(ctx, p, l)
		}
		return nil
	})
	if keyspace.IsReply(err) { // which is about one key
		return nil
	}
	return err
}

// fit finds out which of the two allocators the server has, by the first strings whose memory it
// tells.
func (s *scanner) fit(looks []*look) {
	if s.fitted {
		return
	}
	s.told = memory{Server: s.memory.Server}
	s.told.MemoryUsage = true
	if s.memory.Libc { // which has no such classes
		s.fitted = true
		return
	}
	other := s.told
	other.FineClasses = !other.FineClasses
	var off [2]int64
	for _, l := range looks {
		if l.entry.kind != String || l.usage == nil || l.usage.Err() != nil || l.size.Err() != nil || l.start.Err() != nil {
			continue
		}
		start := []byte(l.start.Val())
		for i, m := range []*memory{&s.told, &other} {
			told := m.string(l.entry, start, max(l.size.Val(), int64(len(start))))
			off[i] += max(told-l.usage.Val(), l.usage.Val()-told)
		}
	}
	if off[0] != off[1] {
		s.fitted = true
		if off[1] < off[0] {
			s.memory.FineClasses, s.told.FineClasses = other.FineClasses, other.FineClasses
		}
	}
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
	if !s.noUsage {
		l.usage = p.MemoryUsage(ctx, l.name)
	}
}

// planned is about how many bytes the value's reply will have.
func (l *look) planned() int64 {
	switch l.entry.kind {
	case String:
		return min(l.size.Val(), l.part())
	case Hash:
		return l.field() * l.count()
	}
	return 0
}

// part is how much of a string is read.
func (l *look) part() int64 {
	if l.value {
		return headBytes
	}
	return shortBytes
}

// field is the mean size of a hash's fields in memory, -1 if it is not known.
func (l *look) field() int64 {
	if l.usage == nil || l.usage.Err() != nil || l.size.Val() == 0 {
		return -1
	}
	return l.usage.Val() / l.size.Val()
}

// count is how many fields of a hash are asked for.
func (l *look) count() int64 {
	switch field := l.field(); {
	case !l.value, field > largeField:
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
		if n := l.count(); n > 0 {
			l.fields = p.HScan(ctx, l.name, 0, "", n)
		}
	}
}

// take adds a key with the server's answers. It ignores a key that has gone since.
func (s *scanner) take(l *look) {
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
			e.usage = l.usage.Val()
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
		there = s.takeString(l)
	case Hash:
		there = s.takeHash(l)
	default:
		e.now = e.usage
	}
	if !there {
		return
	}
	s.scan.LookedAt++
	s.keepLargest(e)
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

func (s *scanner) takeString(l *look) bool {
	for _, err := range []error{l.size.Err(), l.start.Err()} {
		if err != nil && !redis.HasErrorPrefix(err, "WRONGTYPE") {
			s.fail(err)
		}
		if err != nil {
			return false
		}
	}
	e, start := l.entry, []byte(l.start.Val())
	s.scan.BytesRead += int64(len(start))
	e.size = l.size.Val()
	if int64(len(start)) < min(e.size, l.part()) { // it was written, or has gone, since its size was told
		if len(start) == 0 {
			return false
		}
		e.size = int64(len(start))
	}
	e.size = max(e.size, int64(len(start)))
	e.now = s.memory.string(e, start, e.size)
	e.told = s.told.string(e, start, e.size)
	if l.value && e.size > 0 && e.size <= packedMax {
		e.items, e.read = []item{{head: start, size: e.size}}, int64(len(start))
	}
	return true
}

func (s *scanner) takeHash(l *look) bool {
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
		replies, _ := l.fields.Val()
		s.addFields(e, replies)
	}
	if len(e.items) == 0 { // its fields are too large, or it is not to be read
		e.now, e.rough = e.usage, true
		return e.usage > 0
	}
	e.now = s.memory.key(e) + s.memory.hash(e, nil)
	e.told = s.told.key(e) + s.told.hash(e, nil)
	return true
}

// addFields adds what HSCAN gave of a hash.
func (s *scanner) addFields(e *entry, replies []string) {
	for i := 0; i+1 < len(replies); i += 2 {
		name, v := replies[i], replies[i+1]
		e.items = append(e.items, item{name: []byte(name), head: []byte(v[:min(len(v), headBytes)]), size: int64(len(v))})
		e.read += int64(len(name) + min(len(v), headBytes))
		s.scan.BytesRead += int64(len(name) + len(v))
	}
}

// deepen reads more fields of large hashes where a group has few keys, so that there is something
// to try things on.
func (s *scanner) deepen(ctx context.Context) error {
	for t := range s.limits.tallies {
		fields, read := int64(0), 0
		for _, e := range t.entries {
			if e.kind == Hash && e.items != nil {
				fields, read = fields+e.size, read+len(e.items)
			}
		}
		most := s.limits.values
		if fields == 0 || int64(read) == fields || read >= most {
			continue
		}
		for _, e := range t.entries {
			if e.kind != Hash || e.items == nil || int64(len(e.items)) == e.size {
				continue
			}
			wanted := max(len(e.items), int(int64(most)*e.size/fields))
			if err := s.readMore(ctx, e, wanted); err != nil {
				return err
			}
		}
	}
	return nil
}

// readMore reads a hash from its start, until it has the wanted number of fields.
func (s *scanner) readMore(ctx context.Context, e *entry, wanted int) error {
	before := e.read
	defer func() { s.limits.keptBytes += e.read - before }()
	field := max(1, e.read/int64(len(e.items)))
	count := min(hashFields, max(fewFields, replyBytes/field))
	e.items, e.read = nil, 0
	for cursor := uint64(0); ; {
		start := time.Now()
		replies, next, err := e.node.HScan(ctx, e.name, cursor, "", count).Result()
		if err != nil && !keyspace.IsReply(err) {
			return fmt.Errorf("HSCAN: %w", err)
		}
		s.addFields(e, replies)
		s.asked += int64(len(replies) / 2)
		if cursor = next; cursor == 0 || len(e.items) >= wanted || s.scan.BytesRead >= s.options.MaxBytes {
			break
		}
		if err := s.rest(ctx, e.node, time.Since(start)); err != nil {
			return err
		}
	}
	if len(e.items) == 0 { // it has gone
		e.drop()
		return nil
	}
	e.size = max(e.size, int64(len(e.items)))
	e.now = s.memory.key(e) + s.memory.hash(e, nil)
	e.told = s.told.key(e) + s.told.hash(e, nil)
	return nil
}

// keepLargest keeps the keys that take most memory.
func (s *scanner) keepLargest(e *entry) {
	i, _ := slices.BinarySearchFunc(s.largest, e.now, func(k Key, n int64) int { return cmp.Compare(n, k.Bytes) })
	if i == topKeys || slices.ContainsFunc(s.largest, func(k Key) bool { return k.Name == e.name }) {
		return
	}
	s.largest = slices.Insert(s.largest, i, Key{Name: e.name, Type: e.kind, Bytes: e.now})
	s.largest = s.largest[:min(len(s.largest), topKeys)]
}
