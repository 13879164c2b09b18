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

	"github.com/balekv/bale/cmd/bale/internal/keygroup"
	"github.com/balekv/bale/cmd/bale/internal/keyspace"
)

const (
	// A SCAN of so many keys keeps the server for some 100 us; others wait no longer than for a command of theirs.
	pageKeys = 250

	headBytes  = 64 << 10 // of a value; what is behind is taken to be like it
	shortBytes = 32       // of a value whose size alone is wanted: enough to see that it is a number
	hashFields = 128      // of a hash; a listpack has no more by default, and comes as a whole

	// The scan rests for so many times the time that the server took for it: a tenth of one of its processors at the most.
	restFactor = 9
)

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
	start   time.Time
	largest []Key
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
			return fmt.Errorf("SCAN: %w", err)
		}
		trips, err := s.page(ctx, node, keys)
		if err != nil {
			return err
		}
		busy := time.Since(start) - time.Duration(trips+1)*idle
		if s.options.Progress != nil {
			s.options.Progress(int(s.scan.Seen), int(max(s.scan.Keys, s.scan.Seen, 1)), fmt.Sprintf("%d of %d keys seen, %d looked at", s.scan.Seen, s.scan.Keys, s.scan.LookedAt))
		}
		if cursor = next; cursor == 0 {
			return nil
		}
		if err := s.rest(ctx, busy); err != nil {
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
func (s *scanner) rest(ctx context.Context, busy time.Duration) error {
	if s.options.Rate <= 0 {
		return ctx.Err()
	}
	due := time.Duration(float64(s.asked) / float64(s.options.Rate) * float64(time.Second))
	wait := max(due-time.Since(s.start), restFactor*busy)
	if wait <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
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

// page counts the keys of a page and looks at some, in so many round trips.
func (s *scanner) page(ctx context.Context, node *redis.Client, keys []string) (trips int, err error) {
	var looks []*look
	s.asked += pageKeys
	for _, k := range keys {
		if skip := s.options.Skip; skip != "" && strings.HasPrefix(k, skip) || s.match != nil && !s.match(k) {
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
	for _, ask := range []func(context.Context, redis.Pipeliner, *look){s.askKind, s.askSize, s.askValue} {
		if len(looks) == 0 {
			return trips, nil
		}
		trips++
		if _, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, l := range looks {
				ask(ctx, p, l)
			}
			return nil
		}); err != nil && !isReply(err) {
			return trips, err
		}
	}
	s.fit(looks)
	for _, l := range looks {
		if err := s.take(l); err != nil {
			return trips, err
		}
	}
	return trips, nil
}

// fit finds out which of the two allocators the server has, by the first strings whose memory it tells.
func (s *scanner) fit(looks []*look) {
	if s.fitted {
		return
	}
	s.told = memory{Server: s.memory.Server}
	s.told.MemoryUsage = true
	fine := s.told
	fine.FineClasses = true
	var off [2]int64
	for _, l := range looks {
		if l.entry.kind != String || l.usage == nil || l.usage.Err() != nil || l.size.Err() != nil || l.start.Err() != nil {
			continue
		}
		start := []byte(l.start.Val())
		for i, m := range []*memory{&s.told, &fine} {
			told := m.key(l.entry) + m.string(start, max(l.size.Val(), int64(len(start))))
			off[i] += max(told-l.usage.Val(), l.usage.Val()-told)
		}
	}
	if off[0] != off[1] {
		s.fitted = true
		s.memory.FineClasses = off[1] < off[0]
		s.told.FineClasses = s.memory.FineClasses
	}
}

// isReply reports an error that the server answered with for one command.
func isReply(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
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

func (s *scanner) askValue(ctx context.Context, p redis.Pipeliner, l *look) {
	switch l.entry.kind {
	case String:
		n := int64(shortBytes)
		if l.value {
			n = headBytes
		}
		l.start = p.GetRange(ctx, l.name, 0, n-1)
	case Hash:
		n := l.size.Val()
		if n == 0 || l.usage != nil && l.usage.Val()/n > largeField {
			return
		}
		l.fields = p.HScan(ctx, l.name, 0, "", hashFields)
	}
}

// take adds a key with what the server said of it.
func (s *scanner) take(l *look) error {
	e := l.entry
	for _, err := range []error{l.kind.Err(), l.ttl.Err()} {
		if err != nil {
			return fmt.Errorf("key %q: %w", e.name, err)
		}
	}
	if e.kind == "none" || l.ttl.Val() == gone {
		return nil
	}
	if e.ttl = l.ttl.Val(); e.ttl >= 0 {
		e.expires = true
	}
	if l.usage != nil {
		switch err := l.usage.Err(); {
		case err == nil:
			e.usage = l.usage.Val()
		case redis.HasErrorPrefix(err, "NOPERM"), redis.HasErrorPrefix(err, "ERR unknown"):
			s.noUsage = true
		case errors.Is(err, redis.Nil):
			return nil // it is gone
		}
	}
	switch e.kind {
	case String:
		if !s.takeString(l) {
			return nil
		}
	case Hash:
		if !s.takeHash(l) {
			return nil
		}
	default:
		e.now = e.usage
	}
	s.scan.LookedAt++
	s.scan.BytesRead += e.read
	if t, ok := s.finder.Find(e.name); ok { // its group may be another one than before
		t.add(e)
	}
	s.keepLargest(e)
	return nil
}

func (s *scanner) takeString(l *look) bool {
	if l.size.Err() != nil || l.start.Err() != nil {
		return false // it is gone, or of another type now
	}
	e, start := l.entry, []byte(l.start.Val())
	e.size = max(l.size.Val(), int64(len(start)))
	e.now = s.memory.key(e) + s.memory.string(start, e.size)
	e.told = s.told.key(e) + s.told.string(start, e.size)
	if l.value {
		e.items, e.read = []item{{head: start, size: e.size}}, int64(len(start))
	}
	return true
}

func (s *scanner) takeHash(l *look) bool {
	e := l.entry
	if l.size.Err() != nil || l.fields != nil && l.fields.Err() != nil {
		return false
	}
	e.size = l.size.Val()
	if l.encoding.Err() == nil {
		e.encoding = l.encoding.Val()
	}
	if l.fields == nil {
		e.now = e.usage
		return e.usage > 0
	}
	replies, _ := l.fields.Val()
	for i := 0; i+1 < len(replies); i += 2 {
		v := []byte(replies[i+1])
		e.items = append(e.items, item{name: []byte(replies[i]), head: v[:min(len(v), headBytes)], size: int64(len(v))})
		e.read += int64(len(replies[i]) + len(v))
	}
	if len(e.items) == 0 {
		return false
	}
	e.now = s.memory.key(e) + s.memory.hash(e, nil)
	e.told = s.told.key(e) + s.told.hash(e, nil)
	if !l.value {
		e.drop()
	}
	return true
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
