package keyspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/frame"
)

// Reference counts the values that were packed with one dictionary.
type Reference struct {
	Values int64 `json:"values"` // strings, and values within hashes and other types

	// The bytes do not count values that claim to have more than 64 MiB, nor, as at training, the
	// record of when a loaded value expires.
	PlainBytes  int64 `json:"plain_bytes"`
	StoredBytes int64 `json:"stored_bytes"`
}

func (r *Reference) add(other *Reference) {
	r.Values += other.Values
	r.PlainBytes += other.PlainBytes
	r.StoredBytes += other.StoredBytes
}

// References are the dictionaries that values refer to.
type References struct {
	// ByID has the dictionaries of ReferenceOptions.Known and the first 100 others. Zero is for
	// frames without a dictionary.
	ByID map[frame.DictionaryID]*Reference

	// Others are the values with further dictionaries: each forged frame may name one of its own.
	Others Reference

	Keys    int64 // looked at
	Foreign int64 // values that are not frames
	Streams int64 // values in chunks under other keys, whose manifests are not in ByID

	// Unread counts the keys that could not be looked at, and Problem is the error of the first
	// one. Both stay zero with ReferenceOptions.Proof: FindReferences fails instead.
	Unread  int64
	Problem string

	named map[frame.DictionaryID]bool // shared by all of a scan
	most  int                         // of them
}

// Packed is the number of values that are frames.
func (r *References) Packed() int64 {
	n := r.Streams + r.Others.Values
	for _, ref := range r.ByID {
		n += ref.Values
	}
	return n
}

// Merge adds what was found elsewhere.
func (r *References) Merge(other *References) {
	r.Keys += other.Keys
	r.Unread += other.Unread
	r.Problem = cmp.Or(r.Problem, other.Problem)
	r.addValues(other)
}

func (r *References) addValues(other *References) {
	r.Foreign += other.Foreign
	r.Streams += other.Streams
	for id, o := range other.ByID {
		if o != nil { // as in a forged state of a run
			r.of(id).add(o)
		}
	}
	r.Others.add(&other.Others)
}

func (r *References) of(id frame.DictionaryID) *Reference {
	if ref := r.ByID[id]; ref != nil {
		return ref
	}
	if id != 0 && !r.named[id] {
		if len(r.named) == r.most {
			return &r.Others
		}
		r.named[id] = true
	}
	r.ByID[id] = &Reference{}
	return r.ByID[id]
}

// ReferenceOptions are the settings of [FindReferences].
type ReferenceOptions struct {
	Match string // pattern of keys; empty for all
	Skip  Skip   // passes keys over; nil for none
	Pace  Pace   // of keys and elements

	// Known are the dictionaries that the caller asks for. Each is counted by its id.
	Known map[frame.DictionaryID]bool

	// Proof makes the scan fail with an [InconclusiveError] if it may have missed a value. Without
	// it, the scan counts what it could not read and goes on.
	Proof bool

	// SkipTypes are types (by TYPE) whose keys hold no packed values. They have no effect on strings
	// and hashes. With Proof, a key of another unknown type fails the scan.
	SkipTypes []string

	// AcceptMoves lets commands run that move values from key to key (RENAME, COPY, LMOVE). With
	// Proof and without AcceptMoves, such a command during the scan fails it.
	AcceptMoves bool

	Progress func(keys int64) // looked at; called by one at a time
}

// ErrInconclusive matches every [InconclusiveError].
var ErrInconclusive = errors.New("the scan is inconclusive")

// InconclusiveError says why a scan may have missed a value, so that it proves nothing.
type InconclusiveError struct {
	Server string // address
	Key    string // that could not be read; empty if the reason is not a key
	Err    error
}

// Error names the server and the key.
func (e *InconclusiveError) Error() string {
	if e.Key == "" {
		return fmt.Sprintf("%v: %s: %v", ErrInconclusive, e.Server, e.Err)
	}
	return fmt.Sprintf("%v: %s: key %q: %v", ErrInconclusive, e.Server, printable.Name(e.Key), e.Err)
}

// Unwrap returns ErrInconclusive and the reason.
func (e *InconclusiveError) Unwrap() []error { return []error{ErrInconclusive, e.Err} }

const (
	// startBytes hold a header, and in the payload of an escaped frame the header of another one.
	startBytes = 3 * frame.MaxHeaderSize

	maxUnknown = 100      // ids that are not in ReferenceOptions.Known, but in References.ByID
	maxLength  = 64 << 20 // decoded bytes, the default of PackerOptions.MaxSize; a header may claim any number

	lookEvery = time.Second // at the servers, with Proof, or ten times what a look takes

	lookTries    = 5  // of a key that changes its type between two commands
	listTries    = 3  // of a long list that changes while it is read in pages
	elementBytes = 16 // that an element takes beside its content, in a reply and here

	// LRANGE walks from the nearer end of a list, over nodes of an element or more: 7 ns each. The
	// rest of what it takes is the network's.
	perNode = 7 * time.Nanosecond
)

// textTypes are module types that hold only text, numbers or hashes, and so no frame.
var textTypes = []string{"ReJSON-RL", "TSDB-TYPE", "MBbloom--", "MBbloomCF", "bloomfltr", "CMSk-TYPE", "TDIS-TYPE"}

// FindReferences looks at every value of every type in every database of several servers or
// clusters, and reads no more than the first bytes of strings. On a cluster it reads the masters.
// It reads some servers at a time: see [Pace.Masters].
//
// With Proof it returns an [InconclusiveError] if it may have missed a value. Any error but a
// missing key ends the scan. The slots and epochs of a cluster must be the same before and after,
// and no slot may be moving. A single server must stay the same process and a master. All of them
// are watched from before the first scan until after the last: a value may move between them. One
// case remains: a program or script reads a value and writes it to another key, unchanged, during
// the scan.
func FindReferences(ctx context.Context, clients []redis.UniversalClient, o ReferenceOptions) (*References, error) {
	found := NewReferences(o.Known)
	var all []*redis.Client
	watch := &watch{}
	for _, client := range clients {
		masters, err := nodesOf(ctx, client)
		if err != nil {
			return found, inconclusive(ctx, "the servers", "", err)
		}
		for _, addr := range slices.Sorted(maps.Keys(masters)) {
			all = append(all, masters[addr])
		}
		if o.Proof {
			w := &watcher{client: client, proof: true, acceptMoves: o.AcceptMoves}
			if w.last, err = statesOf(ctx, masters, true); err != nil {
				return found, err
			}
			watch.watchers = append(watch.watchers, w)
		}
	}
	watch.looked = time.Now()
	var lock sync.Mutex // of found, and of what follows
	keys, progress := int64(0), o.Progress
	if progress != nil {
		o.Progress = func(more int64) {
			lock.Lock()
			defer lock.Unlock()
			keys += more
			progress(keys)
		}
	}
	if err := AtOnce(ctx, o.Pace, all, func(ctx context.Context, node *redis.Client) error {
		s := &referenceScan{
			ReferenceOptions: o, pacer: &Pacer{Pace: o.Pace}, found: NewReferences(o.Known), watch: watch,
		}
		err := s.server(ctx, node)
		lock.Lock()
		defer lock.Unlock()
		found.Merge(s.found)
		return err
	}); err != nil {
		return found, err
	}
	return found, watch.look(ctx, true)
}

// NewReferences are none yet.
func NewReferences(known map[frame.DictionaryID]bool) *References {
	named := map[frame.DictionaryID]bool{}
	maps.Copy(named, known)
	return (&References{named: named, most: len(named) + maxUnknown}).part()
}

// part is empty, for a part of the scan.
func (r *References) part() *References {
	return &References{ByID: map[frame.DictionaryID]*Reference{}, named: r.named, most: r.most}
}

// inconclusive wraps an error, unless the scan was interrupted.
func inconclusive(ctx context.Context, server, key string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return &InconclusiveError{server, key, err}
}

// referenceScan is the scan of a server under way.
type referenceScan struct {
	ReferenceOptions
	pacer  *Pacer
	hashes HashReader
	found  *References
	watch  *watch // over all servers
	chase  bool   // keys that are elsewhere by now, where a place is read
}

// watch looks at all servers from time to time.
type watch struct {
	lock     sync.Mutex
	watchers []*watcher
	looked   time.Time
	took     time.Duration
}

// look is an error if values may have moved since the last look.
func (w *watch) look(ctx context.Context, final bool) error {
	start := time.Now()
	for _, w := range w.watchers {
		if err := w.look(ctx, final); err != nil {
			return err
		}
	}
	w.looked = time.Now()
	w.took = w.looked.Sub(start)
	return nil
}

// nowAndThen looks if it is time to, and nobody else does.
func (w *watch) nowAndThen(ctx context.Context) error {
	if w == nil || !w.lock.TryLock() {
		return nil
	}
	defer w.lock.Unlock()
	if time.Since(w.looked) < max(lookEvery, 10*w.took) {
		return nil
	}
	return w.look(ctx, false)
}

// wait waits as the rate says, and looks at the servers from time to time.
func (s *referenceScan) wait(ctx context.Context, c redis.UniversalClient, n, bytes int) error {
	if err := s.watch.nowAndThen(ctx); err != nil {
		return err
	}
	server, _ := c.(*redis.Client)
	return s.pacer.Wait(ctx, server, n, bytes)
}

// server scans all databases of a server, also those that are new in the end.
func (s *referenceScan) server(ctx context.Context, node *redis.Client) error {
	addr := node.Options().Addr
	done := map[int]bool{}
	for {
		numbers, err := databases(ctx, node)
		if errors.Is(err, ErrDenied) && !s.Proof { // see Lost
			numbers, err = []int{node.Options().DB}, nil
		}
		if err != nil {
			return inconclusive(ctx, addr, "", err)
		}
		numbers = slices.DeleteFunc(numbers, func(n int) bool { return done[n] })
		if len(numbers) == 0 {
			return nil
		}
		for _, n := range numbers {
			done[n] = true
			if err := s.database(ctx, node, n); err != nil {
				return err
			}
		}
	}
}

func (s *referenceScan) database(ctx context.Context, node *redis.Client, number int) error {
	c, addr := node, node.Options().Addr
	if number != node.Options().DB {
		c = selected(node, number)
		defer c.Close()
		addr = fmt.Sprintf("%s, database %d", addr, number)
	}
	size := pager{firstKeys, mostKeys}
	for cursor := uint64(0); ; {
		asked := size.count
		keys, next, err := scan(ctx, c, cursor, s.Match, "", asked)
		if err != nil {
			return inconclusive(ctx, addr, "", fmt.Errorf("SCAN: %w", Explain(err, c.Options().Username)))
		}
		names := lengthOfAll(keys)
		size.saw(len(keys), names)
		if _, err := s.page(ctx, c, addr, s.Skip.drop(keys), false); err != nil {
			return err
		}
		if s.Progress != nil {
			s.Progress(int64(len(keys)))
		}
		if cursor = next; cursor == 0 {
			return nil
		}
		if err := s.wait(ctx, c, int(asked), 4*names); err != nil { // askKey sends each three times
			return err
		}
	}
}

// page looks at a page of keys. It returns those that are elsewhere by now, if they are to be
// chased.
func (s *referenceScan) page(
	ctx context.Context, c redis.UniversalClient, addr string, keys []string, chase bool,
) (moved []string, err error) {
	replies := make([]keyReplies, len(keys))
	ask := func(of func(p redis.Pipeliner, i int)) error {
		err := Pipeline(ctx, c, len(keys), func(p redis.Pipeliner, i int) {
			if len(keys[i]) <= longestName {
				of(p, i)
			}
		})
		if err != nil {
			err = inconclusive(ctx, addr, "", err)
		}
		return err
	}
	err = ask(func(p redis.Pipeliner, i int) { replies[i] = askKey(ctx, p, keys[i]) })
	if err == nil {
		err = ask(func(p redis.Pipeliner, i int) { replies[i].askExtent(ctx, p, keys[i]) })
	}
	if err != nil {
		return nil, err
	}
	for i, k := range keys {
		err := fmt.Errorf("%w: its name has %s", errUnread, printable.Size(len(k)))
		if len(k) <= longestName {
			err = s.key(ctx, c, k, replies[i])
		}
		if chase && IsMoved(err) {
			moved = append(moved, k)
			continue
		}
		s.found.Keys++
		if err == nil {
			continue
		}
		if _, ok := errors.AsType[*InconclusiveError](err); ok { // of a look at the servers
			return nil, err
		}
		err = inconclusive(ctx, addr, k, withHint(err, UserOf(c)))
		if s.Proof || ctx.Err() != nil || !IsReply(err) && !errors.Is(err, errUnread) {
			return nil, err
		}
		s.found.Unread++
		s.found.Problem = cmp.Or(s.found.Problem, err.Error())
	}
	return moved, nil
}

// withHint says what a user lacks who may not read a key.
func withHint(err error, user string) error {
	if err = Explain(err, user); redis.HasErrorPrefix(err, "NOPERM") {
		return fmt.Errorf("%w; ACL SETUSER %s %%R~* allows to read all keys (~* before Redis 7)", err, cmp.Or(user, "default"))
	}
	return err
}

// keyReplies are the replies to the commands that all keys get.
type keyReplies struct {
	kind   *redis.StatusCmd
	start  *redis.StringCmd
	length *redis.IntCmd
	size   extentReplies // of other types than strings
}

// askExtent asks for the size of a value with elements.
func (r *keyReplies) askExtent(ctx context.Context, c redis.Cmdable, key string) {
	if kind := r.kind.Val(); lengthOf[kind] != "" {
		r.size = askExtent(ctx, c, kind, key)
	}
}

// askKey asks for the type and, in case it is a string, for its start and length. For another type
// the server answers WRONGTYPE.
func askKey(ctx context.Context, c redis.Cmdable, key string) keyReplies {
	return keyReplies{kind: c.Type(ctx, key), start: c.GetRange(ctx, key, 0, startBytes-1), length: c.StrLen(ctx, key)}
}

// errUnread is the reason for a key that no command answers with an error for.
var errUnread = errors.New("cannot be read")

// key looks at the value of a key, again if its type changes meanwhile. The error is the reason why
// it may have missed a reference.
func (s *referenceScan) key(ctx context.Context, c redis.UniversalClient, key string, r keyReplies) error {
	for try := 1; ; try++ {
		found := s.found.part()
		err := s.value(ctx, c, key, r, found)
		if IsMoved(err) {
			return err
		}
		if !isWrongType(err) {
			s.found.addValues(found)
			return err
		}
		if try == lookTries {
			return fmt.Errorf("%w: its type changed %d times meanwhile", errUnread, try)
		}
		r = askKey(ctx, c, key)
		r.askExtent(ctx, c, key)
	}
}

// value adds the references of a value. The error is WRONGTYPE if the key has changed its type.
func (s *referenceScan) value(
	ctx context.Context, c redis.UniversalClient, key string, r keyReplies, found *References,
) error {
	switch kind, err := r.kind.Result(); {
	case err != nil:
		return err
	case kind == "none":
		return nil
	case kind == "string":
		start, err := r.start.Result()
		if err != nil {
			return err
		}
		length, err := r.length.Result()
		if err == nil {
			found.add(start, length)
		}
		return err
	case kind != "hash" && slices.Contains(s.SkipTypes, kind):
		return nil
	case lengthOf[kind] != "":
		size, err := r.size.extent()
		if err != nil && !IsForbidden(err) {
			return err
		}
		err = s.elements(ctx, c, kind, key, size, found)
		if errors.Is(err, errReply) {
			err = fmt.Errorf("%w: %w", errUnread, err)
		}
		if s.Proof && kind != "hash" && errors.Is(err, errUnread) {
			err = withSkip(err, kind)
		}
		return err
	case !s.Proof || slices.Contains(textTypes, kind):
		return nil
	default:
		return withSkip(fmt.Errorf("%w: no command of bale reads the type %s", errUnread, kind), kind)
	}
}

// withSkip says how to pass over a type.
func withSkip(err error, kind string) error {
	return fmt.Errorf("%w; if keys of this type hold no packed values, give --skip-type %s", err, kind)
}

// add counts a value by its first bytes. A frame in an escaped one counts, too: programs that pack
// twice store it.
func (r *References) add(start string, length int64) {
	b := []byte(start[:min(len(start), startBytes)])
	h, offset, ok := frame.Parse(b)
	switch {
	case !ok:
		r.Foreign++
		return
	case h.Algorithm == frame.Chunks:
		r.Streams++
		return
	}
	ref := r.of(h.DictionaryID)
	ref.Values++
	if h.Length <= maxLength {
		ref.PlainBytes += int64(h.Length)
		if h.Version == frame.V2 {
			length = max(0, length-frame.FreshnessSize)
		}
		ref.StoredBytes += length
	}
	for h.Algorithm == frame.Stored {
		b = b[offset:]
		if h, offset, ok = frame.Parse(b); !ok {
			return
		}
		if h.DictionaryID != 0 {
			r.of(h.DictionaryID).Values++
		}
	}
}

// addAll counts elements of a value, and waits as the pace says, for the bytes of the reply and the
// key's name in the request. It returns the former.
func (s *referenceScan) addAll(
	ctx context.Context, c redis.UniversalClient, key string, found *References, values []string,
) (bytes int, err error) {
	for _, v := range values {
		found.add(v, int64(len(v)))
		bytes += len(v) + elementBytes
	}
	return bytes, s.wait(ctx, c, len(values), len(key)+bytes)
}

// elements adds the elements of a value that is no string.
func (s *referenceScan) elements(
	ctx context.Context, c redis.UniversalClient, kind, key string, size Extent, found *References,
) error {
	if kind == "hash" {
		return s.hashes.Read(ctx, c, key, size, LargestElement, func(pairs []string, tooLarge int) error {
			if tooLarge > 0 {
				return fmt.Errorf("%w: %d of its fields have more than %d MiB, or a name of more than %d MiB",
					errUnread, tooLarge, LargestElement>>20, longestName>>20)
			}
			_, err := s.addAll(ctx, c, key, found, pairs)
			return err
		})
	}
	if mean := size.Mean(); mean > LargestElement {
		return fmt.Errorf("%w: its elements have %s in the mean, and no more than %d MiB are read at a time",
			errUnread, printable.Size(mean), LargestElement>>20)
	}
	if kind == "stream" { // an empty field takes 2 bytes of memory, and elementBytes in a reply
		size.Usage *= elementBytes / 2
	}
	p := size.pager()
	if mean := size.Mean(); mean > 0 { // so that the key's name is half of what a page takes, if there is room
		p.most = max(p.most, min(min(int64(len(key)), replyBytes/2)/mean, allNames))
	}
	switch kind {
	case "list":
		return s.list(ctx, c, key, p, found)
	case "stream":
		return s.stream(ctx, c, key, p, found)
	case "set":
		return s.scanned(ctx, c, c.SScan, key, p, found)
	default:
		return s.scanned(ctx, c, c.ZScan, key, p, found)
	}
}

// scanned adds the elements of a set or sorted set. The server returns every element that is there
// from start to end. Scores count as values that are not packed.
func (s *referenceScan) scanned(
	ctx context.Context, c redis.UniversalClient, scan func(context.Context, string, uint64, string, int64) *redis.ScanCmd, key string, p pager, found *References,
) error {
	for cursor := uint64(0); ; {
		values, next, err := scan(ctx, key, cursor, "", p.count).Result()
		if err != nil {
			return err
		}
		bytes, err := s.addAll(ctx, c, key, found, values)
		if err != nil {
			return err
		}
		p.saw(len(values), bytes)
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// stream adds the fields of all entries, the last one first: new entries, whose ids are larger, do
// not hold up the end. Ids stay, so that none is passed over when others go.
func (s *referenceScan) stream(
	ctx context.Context, c redis.UniversalClient, key string, p pager, found *References,
) error {
	for to := "+"; ; {
		// XRevRangeN would drop a field that is there twice.
		reply, err := c.Do(ctx, "XREVRANGE", key, to, "-", "COUNT", p.count).Slice()
		if err != nil || len(reply) == 0 {
			return err
		}
		var values []string
		for _, entry := range reply {
			parts, _ := entry.([]any)
			if len(parts) != 2 {
				return fmt.Errorf("%w: XREVRANGE gave an entry of %d parts", errUnread, len(parts))
			}
			to = fmt.Sprint("(", parts[0])
			fields, _ := parts[1].([]any)
			for _, f := range fields {
				values = append(values, fmt.Sprint(f))
			}
		}
		bytes, err := s.addAll(ctx, c, key, found, values)
		if err != nil {
			return err
		}
		p.saw(len(reply), bytes)
	}
}

// list adds the elements of a list. One that is longer than a page is read in pages under WATCH: an
// element is missed if others before it go meanwhile. If it changes each time it is read at once,
// or not at all if it is too large. At the target of its slot's move, Watch of the cluster's client
// finds no key, for it sends no ASKING: it calls nothing and returns nil.
func (s *referenceScan) list(
	ctx context.Context, c redis.UniversalClient, key string, p pager, found *References,
) error {
	values, err := c.LRange(ctx, key, 0, p.count-1).Result()
	if err != nil {
		return err
	}
	if int64(len(values)) < p.count {
		_, err = s.addAll(ctx, c, key, found, values)
		return err
	}
	seen, bytes := int64(0), 0
	for range listTries {
		var pages *References
		p := p
		err := c.Watch(ctx, func(tx *redis.Tx) error {
			pages, seen, bytes = s.found.part(), 0, 0
			start := time.Now()
			length, err := tx.LLen(ctx, key).Result()
			if err != nil {
				return err
			}
			idle := time.Since(start) // of a round trip
			for seen < length {       // further elements are new, and may have no end
				asked, start, way := p.count, time.Now(), min(seen, length-seen)
				values, err := tx.LRange(ctx, key, seen, seen+asked-1).Result()
				if err != nil {
					return err
				}
				took := time.Since(start)
				idle = min(idle, took)
				if err := s.pacer.Rest(ctx, min(took-idle, time.Duration(way)*perNode)); err != nil {
					return err
				}
				n, err := s.addAll(ctx, c, key, pages, values)
				seen += int64(len(values))
				if bytes += n; err != nil {
					return err
				}
				if int64(len(values)) < asked {
					break
				}
				p.saw(len(values), n)
			}
			var kind *redis.StatusCmd
			_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { kind = p.Type(ctx, key); return nil })
			return cmp.Or(kind.Err(), err) // that it moved, in place of EXECABORT
		}, key)
		if err == nil && pages == nil {
			return fmt.Errorf("%w: a list of this length is read when its slot has moved", errMeanwhile)
		}
		if err == nil {
			found.addValues(pages)
			return nil
		}
		if !errors.Is(err, redis.TxFailedErr) {
			return err
		}
	}
	if bytes <= replyBytes {
		most := 2 * seen // of a queue that was empty, nothing is known
		if size, err := askExtent(ctx, c, "list", key).extent(); err == nil && size.Small() {
			most = max(most, UsageOf)
		}
		if values, err = c.LRange(ctx, key, 0, most).Result(); err != nil {
			return err
		}
		if int64(len(values)) <= most { // else it is much longer by now
			_, err = s.addAll(ctx, c, key, found, values)
			return err
		}
	}
	return fmt.Errorf("%w: the list changed while it was read, %d times, and is too large or grows too fast "+
		"to read it at once", errUnread, listTries)
}

// databases are the numbers of the databases of a server that hold keys. A node of a cluster has
// one, 0.
func databases(ctx context.Context, node *redis.Client) (numbers []int, err error) {
	info, err := infoOf(ctx, node, "keyspace")
	if err != nil {
		return nil, fmt.Errorf("INFO keyspace: %w", Explain(err, node.Options().Username))
	}
	return databasesIn(info), nil
}

// databasesIn are the numbers of the databases that hold keys, by the fields of INFO.
func databasesIn(info map[string]string) (numbers []int) {
	for name, counts := range info {
		var db int
		if _, err := fmt.Sscanf(name, "db%d", &db); err == nil && strings.HasPrefix(counts, "keys=") {
			numbers = append(numbers, db)
		}
	}
	slices.Sort(numbers)
	return numbers
}

// EachDatabase calls do with a client for every database of a server that holds keys, or with the
// client of a cluster. The clients are good until do returns.
func EachDatabase(ctx context.Context, client redis.UniversalClient, do func(redis.UniversalClient) error) error {
	node, ok := client.(*redis.Client)
	if !ok {
		return do(client)
	}
	numbers, err := databases(ctx, node)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		c := selected(node, n)
		if err := errors.Join(do(c), c.Close()); err != nil {
			return err
		}
	}
	return nil
}

// selected is another client for another database of the same server. The caller closes it.
func selected(node *redis.Client, number int) *redis.Client {
	o := *node.Options()
	o.DB, o.PushNotificationProcessor = number, nil // a processor is one client's: go-redis logs an error for the second
	return redis.NewClient(&o)
}

// Count is the number of keys in all databases, 0 if a server forbids INFO.
func Count(ctx context.Context, client redis.UniversalClient) (int64, error) {
	nodes, err := nodesOf(ctx, client)
	if err != nil {
		return 0, err
	}
	var total int64
	for addr, node := range nodes {
		info, err := infoOf(ctx, node, "keyspace")
		if IsForbidden(err) {
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("INFO of %s: %w", addr, err)
		}
		for _, counts := range info {
			var n int64
			if _, err := fmt.Sscanf(counts, "keys=%d,", &n); err == nil {
				total += n
			}
		}
	}
	return total, nil
}
