package keyspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/internal/glob"
	"github.com/balekv/bale/redismem"
)

const (
	pagesPerSecond = 20 // where there is a rate: a page is no longer burst than a twentieth of a second
	smallestPage   = 10
	largestPage    = 1000 // keys
)

// Value is what a string holds, or a field of a hash.
type Value struct {
	Key    string
	Field  string
	InHash bool
	Stored []byte

	memory *redismem.Server // nil for the zero one
}

// Allocated is the server's allocation for the value if it has n bytes, by the model of package
// redismem. A string counts without its key, a field with its name, as in a hash table. Fields of a
// listpack take less.
func (v *Value) Allocated(n int) int {
	var m redismem.Server
	if v.memory != nil {
		m = *v.memory
	}
	if v.InHash {
		return m.Field(len(v.Field), n)
	}
	return m.KeyString(len(v.Key), n, false) - m.Key(len(v.Key), false)
}

// Place is how far a reading of values has come on one server, or in some slots of a cluster.
type Place struct {
	Addr    string `json:"addr,omitempty"`
	RunID   string `json:"run_id,omitempty"`  // of the process: its cursors mean nothing to another
	ReplID  string `json:"replid,omitempty"`  // another one after a fail-over, which loses writes
	Cluster string `json:"cluster,omitempty"` // the server's part in a cluster, with its slots; see [Watch]
	Pattern int    `json:"pattern,omitempty"`
	Cursor  uint64 `json:"cursor"`
	Done    bool   `json:"done,omitempty"`

	// Slots are read wherever they are, in place of a server. Cursor is the next slot, all patterns
	// are looked for at once, and Servers are the masters that had the slots until then.
	Slots   *Slots   `json:"slots,omitempty"`
	Servers []Served `json:"servers,omitempty"`
}

// Progress is how far a walk is: steps done, of all. A pattern takes a walk of its own. The cursor
// of SCAN, which counts up from the highest bit on, tells for any pattern. That of a cluster's node
// has a slot in it: there the keys that were looked at count, of all keys for each pattern.
func Progress(client redis.UniversalClient, places []Place, patterns int, looked, keys int64) (done, all int) {
	const steps = 1 << 20
	walks := max(patterns, 1)
	if _, single := client.(*redis.Client); !single || len(places) != 1 {
		return int(looked), int(max(int64(walks)*keys, looked, 1))
	}
	if places[0].Done {
		return steps, steps
	}
	return (places[0].Pattern*steps + int(bits.Reverse64(places[0].Cursor)>>44)) / walks, steps
}

// Looked counts what a reading of values came across.
type Looked struct {
	Scanned     int64 // keys that SCAN went over, about; not of slots
	Keys        int64 // that it listed, those of Skip and of other types included
	Skipped     int64 // keys that Skip passed over
	Others      int64 // keys of other types than string and hash
	TooLarge    int64 // strings, beyond Size, and keys with a name of more than 4 MiB
	LargeFields int64 // fields of hashes, beyond Size or LargestElement, or with such a name
	Gone        int64 // keys that were there, and a moment later were not
}

// ValuesOptions select the values to read.
type ValuesOptions struct {
	Match []string // patterns of keys, one after another; all keys if there is none. A key that is like two of them is read twice
	Skip  Skip     // passes keys over; nil for none
	Kind  string   // "string" or "hash" for these alone
	Size  int      // a larger value is passed over, and a field that is larger than LargestElement
	Pacer *Pacer   // of keys, fields of hashes and bytes, beside what else the caller reads; nil for no limits

	// Places is where to continue: the places that Page received in an earlier reading, or nil for
	// the start. See [Places].
	Places []Place

	// Replicas, if set, are read in place of their masters.
	Replicas *Replicas

	// Values gets some values of one server at a time, 4 MiB together if not a single one has more.
	// Their keys are reached through the server's client. The values are the callee's.
	Values func(ctx context.Context, node redis.UniversalClient, values []Value) (Next, error)

	// Enough, if set, ends the reading of a large hash before its end, after some of its values.
	Enough func(hash string) bool

	// Names, if set, gets the names of keys of any type in place of Values, and returns those that are
	// elsewhere by now. The client is that of the cluster for names that it returned before.
	Names func(ctx context.Context, c redis.UniversalClient, names []string) (moved []string, err error)

	// steady, if set, is called before keys of a slot are listed on some masters, and what it returns
	// when they are read. If that is errMeanwhile, the slot is read again.
	steady func(ctx context.Context, nodes ...*redis.Client) (func() error, error)

	// Page, if set, is called with the current position after all values of a page of keys are
	// done, and at the end.
	Page func(places []Place, looked Looked) error
}

// CheckMatch reports a pattern that servers and bale cannot read alike, by its flag.
func CheckMatch(patterns []string) error {
	for _, p := range patterns {
		if p == "" {
			return errors.New("--match is empty; '*' is for all keys")
		}
		if err := glob.Check(p); err != nil {
			return fmt.Errorf("--match: pattern %q %w", p, err)
		}
	}
	return nil
}

// ReadValues reads the values of strings and hashes, a page of keys at a time, by their sizes. The
// server holds less than 16 MiB of replies, however large the values are. Exception, before Redis
// 7.4 and Valkey 8: a hash of more than 10,000 fields, if a few are much larger than the mean. When
// ctx ends it stops between two calls to the server, with ctx's error, and the context of Values
// does not end: what is begun is finished. A key that is moved by a cluster between two nodes
// meanwhile may be missed.
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
	var memory *redismem.Server
	for _, node := range nodes { // which are alike
		if memory, err = memoryOf(ctx, node); err != nil {
			return fmt.Errorf("INFO of %s: %w", node.Options().Addr, err)
		}
		break
	}
	r := &valueReader{
		ValuesOptions: o, client: client, ctx: ctx, alive: context.WithoutCancel(ctx), memory: memory,
		places: slices.Clone(o.Places),
	}
	most := largestPage
	if r.Pacer != nil && r.Pacer.Rate > 0 {
		most = min(max(r.Pacer.Rate/pagesPerSecond, smallestPage), largestPage)
	}
	r.page = pager{min(firstKeys, int64(most)), int64(most)}
	for i := range r.places {
		p := &r.places[i]
		if p.Slots != nil {
			if next, err := r.slots(p); err != nil || next == Stop {
				return errors.Join(err, r.paged())
			}
			continue
		}
		if !p.Done && (p.Pattern < 0 || p.Pattern >= len(o.Match)) {
			return fmt.Errorf("%s: pattern %d, and there are %d", p.Addr, p.Pattern, len(o.Match))
		}
		node := nodes[p.Addr]
		if node == nil {
			return fmt.Errorf("%s is no master of the cluster any more: start again", p.Addr)
		}
		next, err := r.node(node, p)
		if err != nil {
			return err
		}
		if next == Stop {
			break
		}
	}
	return r.paged()
}

// Places are the servers of a client, all at the start. One that forbids INFO has no RunID.
func Places(ctx context.Context, client redis.UniversalClient) ([]Place, error) {
	nodes, err := nodesOf(ctx, client)
	if err != nil {
		return nil, err
	}
	return placesOf(ctx, nodes)
}

func placesOf(ctx context.Context, nodes map[string]*redis.Client) (places []Place, err error) {
	for _, addr := range slices.Sorted(maps.Keys(nodes)) {
		info, err := infoOf(ctx, nodes[addr])
		if err != nil && !IsForbidden(err) {
			return nil, fmt.Errorf("INFO of %s: %w", addr, err)
		}
		places = append(places, Place{Addr: addr, RunID: info["run_id"], ReplID: info["master_replid"]})
	}
	return places, nil
}

// nodesOf are the servers that hold a client's keys, by address. They stay the client's.
func nodesOf(ctx context.Context, client redis.UniversalClient) (map[string]*redis.Client, error) {
	if single, ok := client.(*redis.Client); ok {
		return map[string]*redis.Client{single.Options().Addr: single}, nil
	}
	var lock sync.Mutex
	nodes := map[string]*redis.Client{}
	err := client.(*redis.ClusterClient).ForEachMaster(ctx, func(_ context.Context, n *redis.Client) error {
		lock.Lock()
		defer lock.Unlock()
		nodes[n.Options().Addr] = n
		return nil
	})
	return nodes, Explain(err, UserOf(client))
}

// UsedMemory is the used_memory of all servers of a client; 0 where a user may not ask.
func UsedMemory(ctx context.Context, client redis.UniversalClient) (int64, error) {
	return infoSum(ctx, client, "memory", "used_memory")
}

// Hits are the keyspace_hits of all servers of a client; 0 where a user may not ask.
func Hits(ctx context.Context, client redis.UniversalClient) (int64, error) {
	return infoSum(ctx, client, "stats", "keyspace_hits")
}

// infoSum adds up a number of INFO; 0 where a user may not ask.
func infoSum(ctx context.Context, client redis.UniversalClient, section, field string) (int64, error) {
	nodes, err := nodesOf(ctx, client)
	if err != nil {
		return 0, err
	}
	var total int64
	for addr, n := range nodes {
		info, err := infoOf(ctx, n, section)
		if IsForbidden(err) {
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("INFO of %s: %w", addr, err)
		}
		var n int64
		if _, err := fmt.Sscan(info[field], &n); err != nil {
			return 0, fmt.Errorf("%s of %s: %w", field, addr, err)
		}
		total += n
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
		info, err := infoOf(ctx, n, "commandstats")
		if err != nil {
			return nil, fmt.Errorf("INFO of %s: %w", addr, err)
		}
		for name, n := range callsIn(info) {
			calls[name] += n
		}
	}
	return calls, nil
}

// valueReader is a reading under way.
type valueReader struct {
	ValuesOptions
	client     redis.UniversalClient
	ctx, alive context.Context // alive does not end
	page       pager           // of keys
	places     []Place
	looked     Looked
	hashes     HashReader
	server     *redis.Client // that is read
	replica    bool          // a replica is read in its place
	memory     *redismem.Server

	// Of slots.
	listed     int  // keys that are asked for at a time
	shuffles   bool // the server lists them in an order of its own
	silent     bool // INFO is forbidden
	noSlotScan bool // there is no CLUSTERSCAN
}

func (r *valueReader) paged() error {
	if r.Page == nil {
		return nil
	}
	return r.Page(slices.Clone(r.places), r.looked)
}

// node reads the rest of one server.
func (r *valueReader) node(node *redis.Client, p *Place) (Next, error) {
	r.server = node
	for !p.Done {
		if err := r.ctx.Err(); err != nil {
			return Stop, err
		}
		asked := r.page.count
		keys, cursor, err := scan(r.alive, node, p.Cursor, r.Match[p.Pattern], r.Kind, asked)
		if err != nil {
			return Stop, fmt.Errorf("SCAN: %w", Explain(err, node.Options().Username))
		}
		r.page.saw(len(keys), lengthOfAll(keys))
		r.looked.Scanned += max(asked, int64(len(keys)))
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
		if err := r.Pacer.Wait(r.ctx, node, int(asked), 0); err != nil {
			return Stop, err
		}
	}
	return More, nil
}

// keys reads the values of a page of keys.
func (r *valueReader) keys(node *redis.Client, keys []string) (Next, error) {
	r.looked.Keys += int64(len(keys))
	all := len(keys)
	keys = r.Skip.drop(keys)
	r.looked.Skipped += int64(all - len(keys))
	all = len(keys)
	keys = slices.DeleteFunc(keys, func(key string) bool { return len(key) > longestName && r.Names == nil })
	r.looked.TooLarge += int64(all - len(keys))
	if replica := r.Replicas.instead(r.alive, node); replica != nil {
		r.server, r.replica = replica, true
		left, next, err := r.from(replica, keys)
		r.server, r.replica = node, false
		if err != nil {
			r.Replicas.doubt(node, err)
		}
		if err != nil || next != More {
			return next, err
		}
		keys = left
	}
	moved, next, err := r.from(node, keys)
	// The cluster's client finds out where they are now.
	for wait := firstSettling; err == nil && next == More && len(moved) > 0; wait *= 4 {
		if wait > settleWithin {
			return Stop, fmt.Errorf("key %q: the cluster says that it is elsewhere, wherever one asks", moved[0])
		}
		if moved, next, err = r.from(r.client, moved); err == nil && len(moved) > 0 {
			err = sleep(r.ctx, wait)
		}
	}
	return next, err
}

// IsMoved reports a key that another node of the cluster has.
func IsMoved(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") || redis.HasErrorPrefix(err, "TRYAGAIN")
}

// elsewhere reports a key to ask for once more: of another server, or of the master of a replica.
func (r *valueReader) elsewhere(err error) bool {
	return IsMoved(err) || r.replica && (IsReply(err) || errors.Is(err, redis.Nil))
}

// Pipeline sends n commands, or n groups of them, at once. It returns errors of the pipeline, not
// those of single commands.
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
	if r.Names != nil {
		moved, err = r.Names(r.ctx, c, keys)
		return moved, More, err
	}
	kinds, lengths := make([]*redis.StatusCmd, len(keys)), make([]*redis.IntCmd, len(keys))
	// STRLEN of another type than a string is an error, which does no harm.
	if err := Pipeline(r.alive, c, len(keys), func(p redis.Pipeliner, i int) {
		kinds[i], lengths[i] = p.Type(r.alive, keys[i]), p.StrLen(r.alive, keys[i])
	}); err != nil {
		return nil, Stop, err
	}
	var strs, hashes []string
	var sizes []int64
	for i, k := range keys {
		kind, err := kinds[i].Result()
		switch {
		case r.elsewhere(err), r.replica && kind == "none":
			moved = append(moved, k)
			continue
		case err != nil:
			return nil, Stop, fmt.Errorf("TYPE %q: %w", k, r.explain(err))
		}
		if kind != "none" && r.Kind != "" && kind != r.Kind { // SCAN would not list it
			continue
		}
		switch kind {
		case "none":
			r.looked.Gone++
		case "hash":
			hashes = append(hashes, k)
		case "string":
			n, err := lengths[i].Result()
			switch {
			case r.elsewhere(err):
				moved = append(moved, k)
			case isWrongType(err): // by now
				r.looked.Gone++
			case err != nil:
				return nil, Stop, fmt.Errorf("STRLEN %q: %w", k, r.explain(err))
			case n > int64(r.Size):
				r.looked.TooLarge++
			default:
				strs, sizes = append(strs, k), append(sizes, n)
			}
		default:
			r.looked.Others++
		}
	}
	for from, to := range batches(sizes) {
		elsewhere, next, err := r.strings(c, strs[from:to], sizes[from:to])
		moved = append(moved, elsewhere...)
		if err != nil || next != More {
			return nil, next, err
		}
	}
	elsewhere, next, err := r.readHashes(c, hashes)
	return append(moved, elsewhere...), next, err
}

// explain adds what a user lacks.
func (r *valueReader) explain(err error) error { return Explain(err, r.server.Options().Username) }

// strings reads strings.
func (r *valueReader) strings(c redis.UniversalClient, keys []string, sizes []int64) (moved []string, next Next, err error) {
	if err := r.ctx.Err(); err != nil {
		return nil, Stop, err
	}
	asked := make([]Value, len(keys))
	for i, k := range keys {
		asked[i].Key = k
	}
	replies, err := getAll(r.alive, c, asked, sizes, int64(r.Size))
	if err != nil {
		return nil, Stop, err
	}
	values := make([]Value, 0, len(keys))
	for i, k := range keys {
		switch stored, err := replies[i].stored, replies[i].err; {
		case r.elsewhere(err):
			moved = append(moved, k)
		case errors.Is(err, redis.Nil), isWrongType(err):
			r.looked.Gone++
		case errors.Is(err, ErrTooLarge): // by now
			r.looked.TooLarge++
		case err != nil:
			return nil, Stop, fmt.Errorf("GETRANGE %q: %w", k, r.explain(err))
		default:
			values = append(values, Value{Key: k, Stored: stored, memory: r.memory})
		}
	}
	next, err = r.give(c, values, 0)
	return moved, next, err
}

// give passes values on, and waits for n elements in addition to their bytes.
func (r *valueReader) give(c redis.UniversalClient, values []Value, n int) (Next, error) {
	bytes := 0
	for _, v := range values {
		bytes += len(v.Field) + len(v.Stored)
	}
	if len(values) > 0 {
		if next, err := r.Values(r.alive, c, values); err != nil || next != More {
			return next, err
		}
	}
	return More, r.Pacer.Wait(r.ctx, r.server, n, bytes)
}

// readHashes reads hashes: as many small ones at once as a reply has room for, and each of the
// others on its own.
func (r *valueReader) readHashes(c redis.UniversalClient, keys []string) (moved []string, next Next, err error) {
	asked := make([]extentReplies, len(keys))
	if err := Pipeline(r.alive, c, len(keys), func(p redis.Pipeliner, i int) { asked[i] = askExtent(r.alive, p, "hash", keys[i]) }); err != nil {
		return nil, Stop, err
	}
	var small []string
	var sizes []int64
	for i, k := range keys {
		size, err := asked[i].extent()
		switch {
		case r.elsewhere(err):
			moved = append(moved, k)
		case isWrongType(err):
			r.looked.Gone++
		case err != nil && !IsForbidden(err):
			return nil, Stop, fmt.Errorf("HLEN %q: %w", k, r.explain(err))
		case size.Small():
			small, sizes = append(small, k), append(sizes, size.Usage)
		default:
			elsewhere, next, err := r.largeHash(c, k, size)
			if elsewhere {
				moved = append(moved, k)
			}
			if err != nil || next != More {
				return moved, next, err
			}
		}
	}
	for from, to := range batches(sizes) {
		elsewhere, next, err := r.smallHashes(c, small[from:to])
		moved = append(moved, elsewhere...)
		if err != nil || next != More {
			return moved, next, err
		}
	}
	return moved, More, nil
}

// smallHashes reads hashes that a reply has room for.
func (r *valueReader) smallHashes(c redis.UniversalClient, keys []string) (moved []string, next Next, err error) {
	if err := r.ctx.Err(); err != nil {
		return nil, Stop, err
	}
	replies := make([]*redis.ScanCmd, len(keys))
	if err := Pipeline(r.alive, c, len(keys), func(p redis.Pipeliner, i int) { replies[i] = p.HScan(r.alive, keys[i], 0, "", UsageOf) }); err != nil {
		return nil, Stop, err
	}
	var values []Value
	var more []string // that have grown
	fields := 0
	for i, k := range keys {
		pairs, cursor, err := replies[i].Result()
		switch {
		case r.elsewhere(err):
			moved = append(moved, k)
		case isWrongType(err):
			r.looked.Gone++
		case err != nil:
			return nil, Stop, fmt.Errorf("HSCAN %q: %w", k, r.explain(err))
		case cursor != 0:
			more = append(more, k)
		default:
			values = r.pairs(values, k, pairs)
			fields += len(pairs) / 2
		}
	}
	if next, err := r.give(c, values, fields); err != nil || next != More {
		return moved, next, err
	}
	for _, k := range more {
		elsewhere, next, err := r.largeHash(c, k, Extent{UsageOf, replyBytes})
		if elsewhere {
			moved = append(moved, k)
		}
		if err != nil || next != More {
			return moved, next, err
		}
	}
	return moved, More, nil
}

// errStopped ends the reading of a hash whose values were enough.
var errStopped = errors.New("stopped")

// largeHash reads a hash in parts.
func (r *valueReader) largeHash(c redis.UniversalClient, key string, size Extent) (moved bool, next Next, err error) {
	next = More
	err = r.hashes.Read(r.alive, c, key, size, int64(r.Size), func(pairs []string, tooLarge int) error {
		r.looked.LargeFields += int64(tooLarge)
		var err error
		if next, err = r.give(c, r.pairs(nil, key, pairs), len(pairs)/2+tooLarge); err == nil && (next != More || r.Enough != nil && r.Enough(key)) {
			err = errStopped
		}
		return err
	})
	switch {
	case errors.Is(err, errStopped):
		return false, next, nil
	case r.elsewhere(err):
		return true, More, nil
	case isWrongType(err):
		r.looked.Gone++
		return false, More, nil
	case err != nil && IsReply(err):
		return false, Stop, fmt.Errorf("hash %q: %w", key, r.explain(err))
	case err != nil:
		return false, Stop, err
	}
	return false, More, nil
}

// pairs appends fields, name and value in turn.
func (r *valueReader) pairs(values []Value, key string, page []string) []Value {
	for i := 0; i+1 < len(page); i += 2 {
		if len(page[i+1]) > r.Size || len(page[i]) > longestName {
			r.looked.LargeFields++
			continue
		}
		values = append(values, Value{Key: key, Field: page[i], InHash: true, Stored: []byte(page[i+1]), memory: r.memory})
	}
	return values
}

// OfStream reports the manifest or a chunk of a stream.
func OfStream(key string, stored []byte) bool { return ofStream(key, stored) }

// Tally is a number of values and what they take.
type Tally struct {
	Values    int64 `json:"values"`
	Bytes     int64 `json:"bytes"`     // as stored
	Allocated int64 `json:"allocated"` // by the server, by package redismem's model; without keys
}

// Add counts a value that takes n bytes.
func (t *Tally) Add(v Value, n int) {
	t.Values++
	t.Bytes += int64(n)
	t.Allocated += int64(v.Allocated(n))
}

// Merge adds another tally.
func (t *Tally) Merge(other Tally) {
	t.Values += other.Values
	t.Bytes += other.Bytes
	t.Allocated += other.Allocated
}

// NewProblem describes why a value could not be read or written back, in short texts.
func NewProblem(v Value, cause string) Problem {
	if len(cause) > maxCause { // for the names of keys in it
		cause = printable.Name(cause)
	}
	return Problem{printable.Name(v.Key), printable.Name(v.Field), v.InHash, cause}
}

// maxCause is the longest cause in bytes that is no matter of long names.
const maxCause = 1 << 10

// Problem is a value that could not be read or written back.
type Problem struct {
	Key    string `json:"key"`
	Field  string `json:"field,omitempty"`
	InHash bool   `json:"in_hash,omitempty"`
	Cause  string `json:"cause"`
}

// String names the key, quoted.
func (p Problem) String() string {
	if p.InHash {
		return fmt.Sprintf("%q, field %q: %s", p.Key, p.Field, p.Cause)
	}
	return fmt.Sprintf("%q: %s", p.Key, p.Cause)
}
