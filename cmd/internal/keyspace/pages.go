package keyspace

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"

	"github.com/redis/go-redis/v9"
)

// A server holds replies in its memory until the client has read them. That memory counts against
// maxmemory, so large replies evict keys. Sizes are asked for first. Then a reply, or all those of
// a pipeline, take about replyBytes.
const (
	replyBytes = 4 << 20
	// LargestElement is the largest field of a hash that is read, in bytes. An element has no
	// command that reads a part of it. A string is read in pieces, so this is no limit for strings.
	LargestElement = 8 << 20

	pieceBytes  = 1 << 20 // of a string that is larger than replyBytes
	largeString = 16 << 20

	firstKeys   = 4 // of SCAN, until it is seen how large names are
	mostKeys    = 100
	elements    = 100   // of a large value that are read at a time
	usageOf     = 1000  // elements that MEMORY USAGE looks at; of a value with no more it is exact
	namesAtOnce = 1000  // of a hash, without the values
	allNames    = 10000 // the most names of a hash that are read at once, where they cannot be read in pages
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

// extent is how large the value of a key is.
type extent struct {
	length int64 // elements
	usage  int64 // bytes, by MEMORY USAGE; -1 where the server does not tell
}

// small reports a value that a single reply has room for.
func (e extent) small() bool { return e.usage >= 0 && e.usage <= replyBytes && e.length <= usageOf }

// mean is how large an element is, -1 where that is not known.
func (e extent) mean() int64 {
	if e.usage < 0 || e.length <= 0 {
		return -1
	}
	return e.usage / e.length
}

// pager is where to begin with the elements of the value. Where nothing is known of them, that is
// one.
func (e extent) pager() pager {
	switch mean := e.mean(); {
	case e.small():
		return pager{e.length + 1, usageOf}
	case mean < 0:
		return pager{1, elements}
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
	r.usage = c.MemoryUsage(ctx, key, usageOf)
	return r
}

// extent reads the replies. The error is that of the length: a failure of MEMORY USAGE is no error.
func (r extentReplies) extent() (extent, error) {
	e := extent{usage: -1}
	var err error
	if e.length, err = r.length.Result(); err != nil {
		return e, err
	}
	if usage, err := r.usage.Result(); err == nil {
		e.usage = usage
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

// hashReader reads hashes by the sizes of their fields.
type hashReader struct {
	withNames bool // HSCAN has no NOVALUES, before Redis 7.4 and Valkey 8
	noLengths bool // HSTRLEN is not allowed
}

// read calls each with the fields of a hash, name and value in turn. Fields larger than
// LargestElement or than most are only counted, in tooLarge. The error of the server is not
// wrapped.
func (r *hashReader) read(ctx context.Context, c redis.Cmdable, key string, size extent, most int64, each func(pairs []string, tooLarge int) error) error {
	if size.small() || r.noLengths {
		return r.scan(ctx, c, key, size, each)
	}
	most = min(most, LargestElement)
	err := r.names(ctx, c, key, size, func(names []string) error {
		lengths := make([]*redis.IntCmd, len(names))
		if _, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, name := range names {
				lengths[i] = p.HStrLen(ctx, key, name)
			}
			return nil
		}); err != nil {
			return err
		}
		var fields []string
		var sizes []int64
		tooLarge := 0
		for i, name := range names {
			n, err := lengths[i].Result()
			switch {
			case err != nil:
				return err
			case n > most:
				tooLarge++
			default:
				fields, sizes = append(fields, name), append(sizes, n)
			}
		}
		for from, to := range batches(sizes) {
			values, err := c.HMGet(ctx, key, fields[from:to]...).Result()
			if err != nil {
				return err
			}
			pairs := make([]string, 0, 2*len(values))
			for i, v := range values {
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
		return r.scan(ctx, c, key, size, each)
	}
	return err
}

// errNoNames says that the names of a hash cannot be had without its values.
var errNoNames = errors.New("the names of so many fields cannot be read alone")

// names calls each with the names of a hash's fields.
func (r *hashReader) names(ctx context.Context, c redis.Cmdable, key string, size extent, each func(names []string) error) error {
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
	if size.length > allNames {
		return errNoNames
	}
	names, err := c.HKeys(ctx, key).Result()
	for len(names) > 0 && err == nil {
		n := min(len(names), namesAtOnce)
		err = each(names[:n])
		names = names[n:]
	}
	return err
}

// scan reads fields with their values.
func (r *hashReader) scan(ctx context.Context, c redis.Cmdable, key string, size extent, each func(pairs []string, tooLarge int) error) error {
	p := size.pager()
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

// Reread reads strings and fields again, into values. The first result has an error for each value:
// redis.Nil if it is gone, ErrTooLarge if it is too large. Too large is more than limit bytes, a
// field of more than [LargestElement], or the server's own error. The second result is any other
// error. A string of more than 4 MiB is read in pieces: if a program writes it meanwhile, the
// pieces may be of two values.
func Reread(ctx context.Context, c redis.UniversalClient, values []Value, limit int64) ([]error, error) {
	errs, lengths := make([]error, len(values)), make([]*redis.IntCmd, len(values))
	if err := Pipeline(ctx, c, len(values), func(p redis.Pipeliner, i int) {
		if v := values[i]; v.InHash {
			lengths[i] = p.HStrLen(ctx, v.Key, v.Field)
		} else {
			lengths[i] = p.StrLen(ctx, v.Key)
		}
	}); err != nil {
		return nil, err
	}
	var at []int
	var sizes []int64
	for i, v := range values {
		most := limit
		if v.InHash {
			most = min(limit, LargestElement)
		}
		switch n, err := lengths[i].Result(); {
		case err != nil && !IsForbidden(err): // without the length it is read all the same
			errs[i] = err
		case n > most:
			errs[i] = fmt.Errorf("%w: it has %d bytes, and no more than %d are read", ErrTooLarge, n, most)
		default:
			at, sizes = append(at, i), append(sizes, n)
		}
	}
	for from, to := range batches(sizes) {
		some := at[from:to]
		if v := &values[some[0]]; !v.InHash && len(some) == 1 && sizes[from] > replyBytes {
			all, err := getAll(ctx, c, []string{v.Key}, sizes[from:to])
			if err != nil {
				return nil, err
			}
			v.Stored, errs[some[0]] = all[0].stored, all[0].err
			continue
		}
		replies := make([]*redis.StringCmd, len(some))
		if err := Pipeline(ctx, c, len(some), func(p redis.Pipeliner, i int) {
			if v := values[some[i]]; v.InHash {
				replies[i] = p.HGet(ctx, v.Key, v.Field)
			} else {
				replies[i] = p.Get(ctx, v.Key)
			}
		}); err != nil {
			return nil, err
		}
		for i, r := range replies {
			values[some[i]].Stored, errs[some[i]] = r.Bytes()
		}
	}
	return errs, nil
}

// Fetch reads a string, or a field of a hash, as [Reread] has it.
func Fetch(ctx context.Context, c redis.UniversalClient, key, field string, inHash bool, limit int64) ([]byte, error) {
	one := []Value{{Key: key, Field: field, InHash: inHash}}
	errs, err := Reread(ctx, c, one, limit)
	if err == nil {
		err = errs[0]
	}
	return one[0].Stored, err
}

// got is the answer for a string; the error is one of the server about it, or redis.Nil.
type got struct {
	stored []byte
	err    error
}

// getAll reads strings of one of batches. The error is none of a single string.
func getAll(ctx context.Context, c redis.UniversalClient, keys []string, sizes []int64) ([]got, error) {
	all := make([]got, len(keys))
	if len(keys) == 1 && sizes[0] > replyBytes {
		all[0].stored, all[0].err = readString(ctx, c, keys[0], sizes[0])
		if all[0].err == nil && len(all[0].stored) == 0 {
			all[0].err = redis.Nil
		}
		if err := all[0].err; err != nil && !IsReply(err) && !errors.Is(err, redis.Nil) {
			return nil, err
		}
		return all, nil
	}
	replies := make([]*redis.StringCmd, len(keys))
	if err := Pipeline(ctx, c, len(keys), func(p redis.Pipeliner, i int) { replies[i] = p.Get(ctx, keys[i]) }); err != nil {
		return nil, err
	}
	for i, r := range replies {
		all[i].stored, all[i].err = r.Bytes()
	}
	return all, nil
}
