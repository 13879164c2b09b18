package keyspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	pagesPerSecond = 20 // where there is a rate: a page is no longer burst than a twentieth of a second
	smallestPage   = 10
	largestPage    = 1000    // keys
	batchBytes     = 8 << 20 // of values that are read at a time, if not a single one has more
	hashesAtOnce   = 32      // whose first fields are read at a time
)

// Value is what a string holds, or a field of a hash.
type Value struct {
	Key    string
	Field  string
	InHash bool
	Stored []byte
}

// Place is how far a reading of values has come on one server.
type Place struct {
	Addr    string `json:"addr"`
	RunID   string `json:"run_id"` // of the process: its cursors mean nothing to another
	Pattern int    `json:"pattern"`
	Cursor  uint64 `json:"cursor"`
	Done    bool   `json:"done"`
}

// Looked counts what a reading of values came across.
type Looked struct {
	Keys     int64 // those of Skip and of other types included
	Skipped  int64 // keys that start with one of Skip
	Others   int64 // keys of other types than string and hash
	TooLarge int64 // values
	Gone     int64 // keys that were there, and a moment later were not
}

// ValuesOptions say what is read.
type ValuesOptions struct {
	Match []string // patterns of keys, one after another; all keys if there is none. A key that is like two of them is read twice
	Skip  []string // keys that start so are passed over
	Kind  string   // "string" or "hash" for these alone
	Size  int      // a larger value is passed over
	Rate  int      // keys, and fields of hashes, a second; 0 for no limit

	// Places is where to go on, as Page was told of it by an earlier reading; nil for the start. See [Places].
	Places []Place

	// Values is called with some values of one server at a time, through whose client their keys are to be
	// reached. The values are the callee's.
	Values func(ctx context.Context, node redis.UniversalClient, values []Value) (Next, error)

	// Page, if it is set, is called when all values of a page of keys have been dealt with, with how far the reading is, and in the end.
	Page func(places []Place, looked Looked) error
}

// ReadValues reads the values of strings and hashes, a page of keys at a time. Hashes are read in pages, too, and never as a whole. When ctx ends it
// stops between two calls to the server, with ctx's error, and the context of Values does not end: what is begun is
// finished. A key that is moved by a cluster between two nodes meanwhile may be missed.
func ReadValues(ctx context.Context, client redis.UniversalClient, o ValuesOptions) error {
	nodes, err := nodesOf(ctx, client)
	if err != nil {
		return err
	}
	if o.Places == nil {
		if o.Places, err = Places(ctx, client); err != nil {
			return err
		}
	}
	if len(o.Match) == 0 {
		o.Match = []string{""}
	}
	r := &valueReader{
		ValuesOptions: o, client: client, ctx: ctx, alive: context.WithoutCancel(ctx),
		pacer: pacer{rate: o.Rate, start: time.Now()}, page: largestPage, places: slices.Clone(o.Places),
	}
	if o.Rate > 0 {
		r.page = min(max(o.Rate/pagesPerSecond, smallestPage), largestPage)
	}
	for i := range r.places {
		p := &r.places[i]
		node := nodes[p.Addr]
		if node == nil {
			return fmt.Errorf("%s is no master of the cluster any more: start again", p.Addr)
		}
		next, err := r.node(node, p)
		if err != nil || next == Stop {
			return err
		}
	}
	return r.paged()
}

// Places are the servers of a client, all at the start.
func Places(ctx context.Context, client redis.UniversalClient) ([]Place, error) {
	nodes, err := nodesOf(ctx, client)
	if err != nil {
		return nil, err
	}
	var places []Place
	for _, addr := range slices.Sorted(maps.Keys(nodes)) {
		info, err := nodes[addr].InfoMap(ctx, "server").Result()
		if err != nil {
			return nil, fmt.Errorf("INFO of %s: %w", addr, err)
		}
		places = append(places, Place{Addr: addr, RunID: info["Server"]["run_id"]})
	}
	return places, nil
}

// nodesOf are the servers that hold a client's keys, by address. They stay the client's.
func nodesOf(ctx context.Context, client redis.UniversalClient) (map[string]*redis.Client, error) {
	single, ok := client.(*redis.Client)
	all := []*redis.Client{single}
	if !ok {
		var err error
		if all, err = masters(ctx, client.(*redis.ClusterClient)); err != nil {
			return nil, err
		}
	}
	nodes := map[string]*redis.Client{}
	for _, n := range all {
		nodes[n.Options().Addr] = n
	}
	return nodes, nil
}

// UsedMemory is the sum of used_memory of a client's servers.
func UsedMemory(ctx context.Context, client redis.UniversalClient) (int64, error) {
	nodes, err := nodesOf(ctx, client)
	if err != nil {
		return 0, err
	}
	var total int64
	for addr, n := range nodes {
		info, err := n.InfoMap(ctx, "memory").Result()
		if err != nil {
			return 0, fmt.Errorf("INFO of %s: %w", addr, err)
		}
		var used int64
		if _, err := fmt.Sscan(info["Memory"]["used_memory"], &used); err != nil {
			return 0, fmt.Errorf("used_memory of %s: %w", addr, err)
		}
		total += used
	}
	return total, nil
}

// CommandCalls are how often a client's servers have been sent each command since they started.
func CommandCalls(ctx context.Context, client redis.UniversalClient) (map[string]int64, error) {
	nodes, err := nodesOf(ctx, client)
	if err != nil {
		return nil, err
	}
	calls := map[string]int64{}
	for addr, n := range nodes {
		info, err := n.InfoMap(ctx, "commandstats").Result()
		if err != nil {
			return nil, fmt.Errorf("INFO of %s: %w", addr, err)
		}
		for name, stats := range info["Commandstats"] {
			var c int64
			if _, err := fmt.Sscanf(stats, "calls=%d,", &c); err == nil {
				calls[strings.TrimPrefix(name, "cmdstat_")] += c
			}
		}
	}
	return calls, nil
}

// valueReader is a reading under way.
type valueReader struct {
	ValuesOptions
	client     redis.UniversalClient
	ctx, alive context.Context // alive does not end
	pacer      pacer
	page       int
	places     []Place
	looked     Looked
	fields     int // of the page
}

func (r *valueReader) paged() error {
	if r.Page == nil {
		return nil
	}
	return r.Page(slices.Clone(r.places), r.looked)
}

// node reads the rest of one server.
func (r *valueReader) node(node *redis.Client, p *Place) (Next, error) {
	for !p.Done {
		if err := r.ctx.Err(); err != nil {
			return Stop, err
		}
		var keys []string
		var cursor uint64
		var err error
		if match := r.Match[p.Pattern]; r.Kind == "" {
			keys, cursor, err = node.Scan(r.alive, p.Cursor, match, int64(r.page)).Result()
		} else {
			keys, cursor, err = node.ScanType(r.alive, p.Cursor, match, int64(r.page), r.Kind).Result()
		}
		if err != nil {
			return Stop, fmt.Errorf("SCAN: %w", err)
		}
		r.fields = 0
		if next, err := r.keys(node, keys); err != nil || next != More {
			return next, err
		}
		if p.Cursor = cursor; cursor == 0 {
			p.Pattern++
			p.Done = p.Pattern >= len(r.Match)
		}
		if err := r.paged(); err != nil {
			return Stop, err
		}
		if err := r.pacer.wait(r.ctx, r.page+r.fields); err != nil {
			return Stop, err
		}
	}
	return More, nil
}

// keys reads the values of a page of keys.
func (r *valueReader) keys(node *redis.Client, keys []string) (Next, error) {
	r.looked.Keys += int64(len(keys))
	all := len(keys)
	keys = slices.DeleteFunc(keys, func(k string) bool {
		return slices.ContainsFunc(r.Skip, func(skip string) bool { return skip != "" && strings.HasPrefix(k, skip) })
	})
	r.looked.Skipped += int64(all - len(keys))
	moved, next, err := r.from(node, keys)
	if err != nil || next != More || len(moved) == 0 {
		return next, err
	}
	// The cluster's client finds out where they are now.
	moved, next, err = r.from(r.client, moved)
	if err == nil && len(moved) > 0 {
		err = fmt.Errorf("key %q: the cluster says that it is elsewhere, wherever one asks", moved[0])
	}
	return next, err
}

// IsMoved reports a key that another node of the cluster has.
func IsMoved(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "TRYAGAIN")
}

// Pipeline sends n commands, or n groups of them, at once. The error is for what is none of a single command.
func Pipeline(ctx context.Context, c redis.UniversalClient, n int, command func(p redis.Pipeliner, i int)) error {
	if n == 0 {
		return nil
	}
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range n {
			command(p, i)
		}
		return nil
	})
	if err != nil && !IsReply(err) && !errors.Is(err, redis.Nil) {
		return err
	}
	return nil
}

// from reads the values of some keys through a client, and returns the keys that are elsewhere.
func (r *valueReader) from(c redis.UniversalClient, keys []string) (moved []string, next Next, err error) {
	kinds, lengths := make([]*redis.StatusCmd, len(keys)), make([]*redis.IntCmd, len(keys))
	// STRLEN of another type than a string is an error, which does no harm.
	if err := Pipeline(r.alive, c, len(keys), func(p redis.Pipeliner, i int) {
		kinds[i], lengths[i] = p.Type(r.alive, keys[i]), p.StrLen(r.alive, keys[i])
	}); err != nil {
		return nil, Stop, err
	}
	var strs, hashes []string
	var sizes []int
	for i, k := range keys {
		kind, err := kinds[i].Result()
		switch {
		case IsMoved(err):
			moved = append(moved, k)
			continue
		case err != nil:
			return nil, Stop, fmt.Errorf("TYPE %q: %w", k, err)
		}
		switch kind {
		case "none":
			r.looked.Gone++
		case "hash":
			hashes = append(hashes, k)
		case "string":
			n, err := lengths[i].Result()
			switch {
			case IsMoved(err):
				moved = append(moved, k)
			case isWrongType(err): // by now
				r.looked.Gone++
			case err != nil:
				return nil, Stop, fmt.Errorf("STRLEN %q: %w", k, err)
			case n > int64(r.Size):
				r.looked.TooLarge++
			default:
				strs, sizes = append(strs, k), append(sizes, int(n))
			}
		default:
			r.looked.Others++
		}
	}
	for len(strs) > 0 {
		n, bytes := 1, sizes[0]
		for n < len(strs) && bytes+sizes[n] <= batchBytes {
			bytes += sizes[n]
			n++
		}
		elsewhere, next, err := r.strings(c, strs[:n])
		moved = append(moved, elsewhere...)
		if err != nil || next != More {
			return nil, next, err
		}
		strs, sizes = strs[n:], sizes[n:]
	}
	for page := range slices.Chunk(hashes, hashesAtOnce) {
		elsewhere, next, err := r.hashes(c, page)
		moved = append(moved, elsewhere...)
		if err != nil || next != More {
			return nil, next, err
		}
	}
	return moved, More, nil
}

// strings reads strings.
func (r *valueReader) strings(c redis.UniversalClient, keys []string) (moved []string, next Next, err error) {
	if err := r.ctx.Err(); err != nil {
		return nil, Stop, err
	}
	replies := make([]*redis.StringCmd, len(keys))
	if err := Pipeline(r.alive, c, len(keys), func(p redis.Pipeliner, i int) { replies[i] = p.Get(r.alive, keys[i]) }); err != nil {
		return nil, Stop, err
	}
	values := make([]Value, 0, len(keys))
	for i, k := range keys {
		stored, err := replies[i].Bytes()
		switch {
		case errors.Is(err, redis.Nil), isWrongType(err):
			r.looked.Gone++
		case IsMoved(err):
			moved = append(moved, k)
		case err != nil:
			return nil, Stop, fmt.Errorf("GET %q: %w", k, err)
		case len(stored) > r.Size: // by now
			r.looked.TooLarge++
		default:
			values = append(values, Value{Key: k, Stored: stored})
		}
	}
	next, err = r.give(c, values)
	return moved, next, err
}

func (r *valueReader) give(c redis.UniversalClient, values []Value) (Next, error) {
	if len(values) == 0 {
		return More, nil
	}
	return r.Values(r.alive, c, values)
}

// hashes reads hashes: the first fields of several at once, which are all that most have, and then what there is more of each.
func (r *valueReader) hashes(c redis.UniversalClient, keys []string) (moved []string, next Next, err error) {
	if err := r.ctx.Err(); err != nil {
		return nil, Stop, err
	}
	replies := make([]*redis.ScanCmd, len(keys))
	if err := Pipeline(r.alive, c, len(keys), func(p redis.Pipeliner, i int) { replies[i] = p.HScan(r.alive, keys[i], 0, "", elements) }); err != nil {
		return nil, Stop, err
	}
	var values []Value
	cursors := map[string]uint64{}
	for i, k := range keys {
		page, cursor, err := replies[i].Result()
		switch {
		case isWrongType(err):
			r.looked.Gone++
		case IsMoved(err):
			moved = append(moved, k)
		case err != nil:
			return nil, Stop, fmt.Errorf("HSCAN %q: %w", k, err)
		default:
			values = r.pairs(values, k, page)
			if cursor != 0 {
				cursors[k] = cursor
			}
		}
	}
	if next, err := r.give(c, values); err != nil || next != More {
		return moved, next, err
	}
	for _, k := range slices.Sorted(maps.Keys(cursors)) {
		elsewhere, next, err := r.rest(c, k, cursors[k])
		if elsewhere {
			moved = append(moved, k)
		}
		if err != nil || next != More {
			return moved, next, err
		}
	}
	return moved, More, nil
}

// rest reads a hash from a cursor on.
func (r *valueReader) rest(c redis.UniversalClient, key string, cursor uint64) (moved bool, next Next, err error) {
	count := int64(elements)
	for cursor != 0 {
		if err := r.pacer.wait(r.ctx, r.fields); err != nil {
			return false, Stop, err
		}
		r.fields = 0
		page, after, err := c.HScan(r.alive, key, cursor, "", count).Result()
		switch {
		case isWrongType(err):
			r.looked.Gone++
			return false, More, nil
		case IsMoved(err):
			return true, More, nil
		case err != nil:
			return false, Stop, fmt.Errorf("HSCAN %q: %w", key, err)
		}
		bytes := 0
		for _, s := range page {
			bytes += len(s)
		}
		if bytes > batchBytes {
			count = max(1, count/2) // long fields
		}
		if next, err := r.give(c, r.pairs(nil, key, page)); err != nil || next != More {
			return false, next, err
		}
		cursor = after
	}
	return false, More, nil
}

// pairs appends the fields of a page of HSCAN.
func (r *valueReader) pairs(values []Value, key string, page []string) []Value {
	for i := 0; i+1 < len(page); i += 2 {
		r.fields++
		if len(page[i+1]) > r.Size {
			r.looked.TooLarge++
			continue
		}
		values = append(values, Value{Key: key, Field: page[i], InHash: true, Stored: []byte(page[i+1])})
	}
	return values
}

// OfStream reports the manifest or a chunk of a stream.
func OfStream(key string, stored []byte) bool { return ofStream(key, stored) }
