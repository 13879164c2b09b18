package keyspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/printable"
)

// A server holds replies in its memory until the client has read them. That memory counts against
// maxmemory, so large replies evict keys. Sizes are asked for first. Then a reply, or all those of
// a pipeline, take about replyBytes.
const (
	replyBytes = 4 << 20
	// LargestElement is the largest field of a hash that is read, in bytes. An element has no
	// command that reads a part of it. A string is read in pieces, so this is no limit for strings.
	LargestElement = 8 << 20

	// UsageOf is how many elements MEMORY USAGE looks at. Of a value with no more it is exact.
	UsageOf = 1000

	pieceBytes  = 1 << 20 // of a string that is larger than replyBytes
	largeString = 16 << 20

	firstKeys   = 4 // of SCAN, until it is seen how large names are
	mostKeys    = 100
	elements    = 8     // of a large value that are read at a time: no command tells how large each is
	namesAtOnce = 1000  // of a hash, without the values
	allNames    = 10000 // the most names of a hash that are read at once, where they cannot be read in pages
	someNames   = 64    // that tell how long all are
	longKey     = 1 << 10

	// longestName is the longest name of a key or field that is sent back. The server takes twice its
	// bytes for a request with it. No command reads a part of a name, so a longer one arrives once.
	longestName = replyBytes
)

// pager says how many elements the next reply may have.
type pager struct{ count, most int64 }

// saw learns from a reply of n elements. The next one has twice as many at most, and no more than
// have room if they are alike.
func (p *pager) saw(n, bytes int) {
	next := 2 * p.count
	if bytes > 0 {
		next = min(next, max(int64(n), 1)*replyBytes/2/int64(bytes))
	}
	p.count = min(max(next, 1), p.most)
}

// Extent is how large the value of a key is.
type Extent struct {
	Length int64 // elements
	Usage  int64 // bytes, by MEMORY USAGE with [UsageOf] samples; -1 where the server does not tell
}

// Small reports a value that a single reply has room for.
func (e Extent) Small() bool { return e.Usage >= 0 && e.Usage <= replyBytes && e.Length <= UsageOf }

// Mean is how large an element is, -1 where that is not known.
func (e Extent) Mean() int64 {
	if e.Usage < 0 || e.Length <= 0 {
		return -1
	}
	return e.Usage / e.Length
}

// pager is where to begin with the elements of the value. Where nothing is known of them, that is
// one.
func (e Extent) pager() pager {
	switch mean := e.Mean(); {
	case e.Small():
		return pager{e.Length + 1, UsageOf}
	case mean < 0:
		return pager{1, elements}
	case e.Usage <= LargestElement: // all of it is no more than an element may be
		return pager{min(max(replyBytes/2/max(mean, 1), 1), elements), UsageOf}
	default:
		return pager{min(max(replyBytes/2/max(mean, 1), 1), elements), elements}
	}
}

// lengthOf are the commands that count the elements of a type.
var lengthOf = map[string]string{"hash": "hlen", "list": "llen", "set": "scard", "zset": "zcard", "stream": "xlen"}

// extentReplies are the replies to askExtent.
type extentReplies struct {
	length *redis.IntCmd
	usage  *redis.IntCmd
}

// askExtent asks for the extent of a key of a type of lengthOf.
func askExtent(ctx context.Context, c redis.Cmdable, kind, key string) (r extentReplies) {
	switch kind {
	case "hash":
		r.length = c.HLen(ctx, key)
	case "list":
		r.length = c.LLen(ctx, key)
	case "set":
		r.length = c.SCard(ctx, key)
	case "zset":
		r.length = c.ZCard(ctx, key)
	case "stream":
		r.length = c.XLen(ctx, key)
	}
	r.usage = c.MemoryUsage(ctx, key, UsageOf)
	return r
}

// extent reads the replies. The error is of the length, for what there is without MEMORY USAGE
// does.
func (r extentReplies) extent() (Extent, error) {
	e := Extent{Usage: -1}
	var err error
	if e.Length, err = r.length.Result(); err != nil {
		return e, err
	}
	if usage, err := r.usage.Result(); err == nil {
		e.Usage = usage
	}
	return e, nil
}

// batches are the first and the last index, plus one, of runs of sizes whose sum is replyBytes at
// most, if not a single one is more.
func batches(sizes []int64) iter.Seq2[int, int] {
	return func(yield func(from, to int) bool) {
		for from := 0; from < len(sizes); {
			to, sum := from+1, sizes[from]
			for to < len(sizes) && sum+sizes[to] <= replyBytes {
				sum += sizes[to]
				to++
			}
			if !yield(from, to) {
				return
			}
			from = to
		}
	}
}

// HashReader reads hashes by the sizes of their fields. The zero HashReader is ready. It learns
// what the server has, and is for one goroutine.
type HashReader struct {
	withNames bool // HSCAN has no NOVALUES, before Redis 7.4 and Valkey 8
	noLengths bool // HSTRLEN is not allowed
}

// Read calls each with the fields of a hash, name and value in turn. Fields larger than
// LargestElement or than most, or with a name of more than 4 MiB, are only counted, in tooLarge.
// The error of the server is not wrapped.
func (r *HashReader) Read(ctx context.Context, c redis.Cmdable, key string, size Extent, most int64, each func(pairs []string, tooLarge int) error) error {
	p := size.pager()
	// Each question about a length sends the key's name. A long one would take GiB of requests.
	long := len(key) > longKey && int64(len(key))*size.Length > 2*replyBytes
	if long { // without a mean, each page tells how many fields the next may have
		p.most = min(max(replyBytes/2/max(size.Mean(), 1), 1), UsageOf)
	}
	if size.Small() || r.noLengths || long {
		return r.scan(ctx, c, key, p, each)
	}
	most = min(most, LargestElement)
	err := r.names(ctx, c, key, size, func(names []string) error {
		lengths := make([]*redis.IntCmd, len(names))
		if _, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, name := range names {
				if len(name) <= longestName {
					lengths[i] = p.HStrLen(ctx, key, name)
				}
			}
			return nil
		}); err != nil {
			return err
		}
		var fields []string
		var sizes []int64
		tooLarge := 0
		for i, name := range names {
			if lengths[i] == nil {
				tooLarge++
				continue
			}
			n, err := lengths[i].Result()
			switch {
			case err != nil:
				return err
			case n > most:
				tooLarge++
			default:
				fields, sizes = append(fields, name), append(sizes, n+int64(len(name)))
			}
		}
		for from, to := range batches(sizes) {
			values, err := c.HMGet(ctx, key, fields[from:to]...).Result()
			if err != nil {
				return err
			}
			pairs := make([]string, 0, 2*len(values))
			for i, v := range values[:min(len(values), to-from)] { // more are of no Redis
				if v, ok := v.(string); ok { // else it is gone
					pairs = append(pairs, fields[from+i], v)
				}
			}
			if err := each(pairs, tooLarge); err != nil {
				return err
			}
			tooLarge = 0
		}
		if tooLarge > 0 {
			return each(nil, tooLarge)
		}
		return nil
	})
	r.noLengths = IsForbidden(err)
	if r.noLengths || errors.Is(err, errNoNames) {
		return r.scan(ctx, c, key, p, each)
	}
	return err
}

// errNoNames says that the names of a hash cannot be had without its values.
var errNoNames = errors.New("the names of so many fields cannot be read alone")

// names calls each with the names of a hash's fields.
func (r *HashReader) names(ctx context.Context, c redis.Cmdable, key string, size Extent, each func(names []string) error) error {
	p := size.pager()
	p.most = namesAtOnce
	for cursor := uint64(0); !r.withNames; {
		names, next, err := c.HScanNoValues(ctx, key, cursor, "", p.count).Result()
		if err != nil && !IsReply(err) {
			return err
		}
		if err != nil && cursor == 0 && !isWrongType(err) && !IsMoved(err) && !redis.HasErrorPrefix(err, "NOPERM") { // a syntax error
			r.withNames = true
			break
		}
		if err != nil {
			return err
		}
		if err := each(names); err != nil {
			return err
		}
		p.saw(len(names), lengthOfAll(names))
		if cursor = next; cursor == 0 {
			return nil
		}
	}
	if long, err := r.longNames(ctx, c, key, size); err != nil || long {
		return cmp.Or(err, errNoNames)
	}
	names, err := c.HKeys(ctx, key).Result()
	for n := elements; len(names) > 0 && err == nil; n = min(2*n, namesAtOnce) {
		n = min(n, len(names))
		err = each(names[:n])
		names = names[n:]
	}
	return err
}

// longNames reports a hash with more names than a reply has room for, by some of them.
func (r *HashReader) longNames(ctx context.Context, c redis.Cmdable, key string, size Extent) (bool, error) {
	if size.Length > allNames || size.Usage >= 0 && size.Usage <= 2*replyBytes {
		return size.Length > allNames, nil
	}
	n := int64(elements)
	if mean := size.Mean(); mean > 0 {
		n = min(max(replyBytes/mean, 1), someNames)
	}
	names, err := c.HRandField(ctx, key, int(n)).Result()
	if IsForbidden(err) { // Redis 6.0 does not have it
		return false, nil
	}
	return int64(lengthOfAll(names))*size.Length > replyBytes*int64(len(names)), err
}

// scan reads fields with their values.
func (r *HashReader) scan(ctx context.Context, c redis.Cmdable, key string, p pager, each func(pairs []string, tooLarge int) error) error {
	for cursor := uint64(0); ; {
		pairs, next, err := c.HScan(ctx, key, cursor, "", p.count).Result()
		if err != nil {
			return err
		}
		if err := each(pairs, 0); err != nil {
			return err
		}
		p.saw(len(pairs)/2, lengthOfAll(pairs))
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

func lengthOfAll(all []string) (n int) {
	for _, s := range all {
		n += len(s)
	}
	return n
}

// readString reads a string of n bytes, in pieces if it is long. What a program writes meanwhile
// may be a part of it. Of a key that is gone it is empty. The error of the server is not wrapped.
func readString(ctx context.Context, c redis.Cmdable, key string, n int64) ([]byte, error) {
	if n > largeString { // garbage would be in memory beside it: the value before, and then the pieces
		debug.FreeOSMemory()
		defer debug.FreeOSMemory()
	}
	b := make([]byte, 0, n)
	for int64(len(b)) < n {
		at := int64(len(b))
		piece, err := c.GetRange(ctx, key, at, min(at+pieceBytes, n)-1).Result()
		if err != nil {
			return nil, err
		}
		if piece == "" {
			break
		}
		b = append(b, piece...)
	}
	return b, nil
}

// ErrTooLarge: the value is larger than the limit of reading.
var ErrTooLarge = errors.New("the value is too large to be read")

// Reread reads strings and fields again, into values: the first n, which a reply has room for. Each
// of the n has an error in errs: redis.Nil if the value is gone, or the server's error. It is
// ErrTooLarge for more than limit bytes, and for a field of more than [LargestElement]. The last
// result is any other error. A string of more than 4 MiB is read in pieces: if a program writes it
// meanwhile, they may be of two values.
func Reread(ctx context.Context, c redis.UniversalClient, values []Value, limit int64) (n int, errs []error, err error) {
	values = values[:min(len(values), mostKeys)]
	lengths := make([]*redis.IntCmd, len(values))
	if err := Pipeline(ctx, c, len(values), func(p redis.Pipeliner, i int) {
		if v := values[i]; v.InHash {
			lengths[i] = p.HStrLen(ctx, v.Key, v.Field)
		} else {
			lengths[i] = p.StrLen(ctx, v.Key)
		}
	}); err != nil {
		return 0, nil, err
	}
	var some []Value
	var sizes []int64
	var at []int
	sum := int64(0)
	for i, v := range values {
		most := limit
		if v.InHash {
			most = min(limit, LargestElement)
		}
		size, err := lengths[i].Result()
		switch {
		case IsForbidden(err) && v.InHash: // it is read all the same
			size, err = 0, nil
		case IsForbidden(err):
			size, err = most+1, nil
		case size > most:
			err = tooLarge(size, most)
		}
		if err == nil {
			if sum += size; len(some) > 0 && sum > replyBytes {
				break
			}
			some, sizes, at = append(some, v), append(sizes, size), append(at, i)
		}
		n, errs = n+1, append(errs, err)
	}
	all, err := getAll(ctx, c, some, sizes, limit)
	if err != nil {
		return 0, nil, err
	}
	for k, i := range at {
		values[i].Stored, errs[i] = all[k].stored, all[k].err
		if n := int64(len(all[k].stored)); n > limit {
			values[i].Stored, errs[i] = nil, tooLarge(n, limit)
		}
	}
	return n, errs, nil
}

// tooLarge is an ErrTooLarge about a value of n bytes.
func tooLarge(n, most int64) error {
	return fmt.Errorf("%w: it has %s, and no more than %s are read", ErrTooLarge, printable.Size(n), printable.Size(most))
}

// Fetch reads a string, or a field of a hash, as [Reread] has it.
func Fetch(ctx context.Context, c redis.UniversalClient, key, field string, inHash bool, limit int64) ([]byte, error) {
	one := []Value{{Key: key, Field: field, InHash: inHash}}
	_, errs, err := Reread(ctx, c, one, limit)
	if err == nil {
		err = errs[0]
	}
	return one[0].Stored, err
}

// got is the answer for a value; the error is one of the server about it, redis.Nil or ErrTooLarge.
type got struct {
	stored []byte
	err    error
}

// getAll reads values of one of batches. The error is none of a single value. It reads a string
// up to the size that it had. A string that is longer by now, or empty, is read again by its new
// size, up to limit. Redis gives a field in whole only.
func getAll(ctx context.Context, c redis.UniversalClient, values []Value, sizes []int64, limit int64) ([]got, error) {
	all := make([]got, len(values))
	if len(values) == 1 && !values[0].InHash && sizes[0] > replyBytes {
		return all, all[0].readString(ctx, c, values[0].Key, sizes[0])
	}
	replies, exists := make([]*redis.StringCmd, len(values)), make([]*redis.IntCmd, len(values))
	if err := Pipeline(ctx, c, len(values), func(p redis.Pipeliner, i int) {
		v := values[i]
		if v.InHash {
			replies[i] = p.HGet(ctx, v.Key, v.Field)
			return
		}
		replies[i] = p.GetRange(ctx, v.Key, 0, sizes[i]) // one byte more: a longer string shows
		if sizes[i] == 0 {
			exists[i] = p.Exists(ctx, v.Key)
		}
	}); err != nil {
		return nil, err
	}
	for i, r := range replies {
		a := &all[i]
		a.stored, a.err = r.Bytes()
		n := int64(len(a.stored))
		switch {
		case a.err != nil || values[i].InHash:
		case n == 0 && sizes[i] == 0 && exists[i].Err() == nil && exists[i].Val() == 0:
			a.err = redis.Nil
		case n > sizes[i], n == 0 && sizes[i] > 0:
			if err := a.readAgain(ctx, c, values[i].Key, limit); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// readString reads a string of more than replyBytes. The result is an error that is not about the
// string.
func (g *got) readString(ctx context.Context, c redis.UniversalClient, key string, n int64) error {
	g.stored, g.err = readString(ctx, c, key, n)
	if g.err == nil && len(g.stored) == 0 {
		g.err = redis.Nil
	}
	return g.fatal()
}

// fatal is the error if it is not about the value.
func (g *got) fatal() error {
	if g.err == nil || IsReply(g.err) || errors.Is(g.err, redis.Nil) || errors.Is(g.err, ErrTooLarge) {
		return nil
	}
	return g.err
}

// growths is how often a string is read again that is longer each time.
const growths = 5

// readAgain reads a string that has another size than a moment ago. The result is an error that is
// not about the string.
func (g *got) readAgain(ctx context.Context, c redis.UniversalClient, key string, limit int64) error {
	for range growths {
		var n int64
		switch n, g.err = c.StrLen(ctx, key).Result(); {
		case g.err != nil:
			return g.fatal()
		case n > limit:
			g.stored, g.err = nil, tooLarge(n, limit)
			return nil
		case n > replyBytes:
			return g.readString(ctx, c, key, n)
		}
		g.stored, g.err = c.GetRange(ctx, key, 0, n).Bytes()
		if g.err == nil && len(g.stored) == 0 {
			var there int64
			if there, g.err = c.Exists(ctx, key).Result(); g.err == nil && there == 0 {
				g.err = redis.Nil
			}
		}
		if g.err != nil || int64(len(g.stored)) <= n {
			return g.fatal()
		}
	}
	g.stored, g.err = nil, fmt.Errorf("%w: a program made it longer again and again, %d times", ErrTooLarge, growths)
	return nil
}
