package dict

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

const (
	defaultPoll         = 10 * time.Second
	pollJitter          = 0.2 // of the poll, either way, so that a fleet does not poll in step
	defaultFetchTimeout = time.Second
	defaultKeep         = 16 << 20               // bytes
	maxReaders          = 256                    // whatever Keep says: one takes up to 200 KiB, of a dictionary of 16 bytes, too
	missingFor          = 5 * time.Second        // a dictionary that the registry does not hold
	failedFor           = 200 * time.Millisecond // one that could not be fetched
	silentFor           = 5 * time.Second        // after a fetch without an answer readers wait no longer than brief
	brief               = 10 * time.Millisecond  // and a registry that answers again does so by then
	maxMissing          = 1000                   // ids that are remembered as missing
	providedFor         = time.Second            // a dictionary that was put back is not put back again
	prefetched          = 4                      // published dictionaries that are fetched before they are activated
	maxUnknown          = 4                      // dictionaries that a fleet may have lost at a time
	minPoll             = time.Second            // whatever the registry says; a program may ask for less
	heardApart          = 100 * time.Millisecond // at least, from a look at the registry to one for what was heard
	firstRetry          = 10 * time.Millisecond
	listenRetry         = time.Second // and twice as long each time, while nothing is heard
	maxListenRetry      = 30 * time.Second
	unsureRetry         = time.Second // from a look that failed to the next
)

// GroupOptions are the settings of a [Group]; the zero value is useful.
type GroupOptions struct {
	// Setting is the setting for writing, with the group's dictionary or without. Defaults to zstd
	// at the engine's default level.
	Setting compress.Setting

	// Engine makes the compressors. Defaults to pure Go.
	Engine compress.Engine

	// ReadOnly packs without a dictionary, and reads with all: the first phase of a dictionary's
	// roll-out. In the second phase Auto may take its place; they exclude each other.
	ReadOnly bool

	// Poll is the interval of reading the group's state, give or take a fifth. A notification
	// usually announces a change at once. Defaults to 10 seconds, or to the registry's grace period
	// if that is shorter.
	Poll time.Duration

	// FetchTimeout bounds a reader's wait for an unknown dictionary, and Open's and Close's wait
	// for Redis. Defaults to a second.
	FetchTimeout time.Duration

	// Keep bounds the bytes of dictionaries in memory for reading; those in use stay beyond it. At
	// most 256 are kept. A dictionary ready for use takes several times its bytes. Defaults to 16
	// MiB.
	Keep int

	// Data is the Redis with the packed values. The group names it to the registry, which removes
	// no dictionary without a scan of it. Defaults to the registry's own Redis.
	Data Store

	// DataName is a label for Data, for people. It must not hold a password.
	DataName string

	// Bundled are dictionaries that come with the program. It reads them without a registry: see
	// [ReadFS].
	Bundled []*Dictionary

	// Folder is a directory in which the programs of a host keep dictionaries: each is fetched from
	// the registry once, however many programs start. It is made if it is missing. Dictionaries are
	// pieces of values, so it must be accessible to this user alone (mode 0700), and whoever can
	// write it can forge them. It keeps 64 MiB. Defaults to none.
	Folder string

	// Auto, if not nil, trains and replaces the group's dictionary automatically.
	Auto *Auto

	// Log receives the events of the background work. Defaults to no log.
	Log *slog.Logger
}

// Group follows a group of a registry in a running program. It polls the group's state in the
// background: the current dictionary becomes its writer, and it fetches the dictionaries that
// readers need. It is a bale.Compressors, for one or several Packers. If Redis does not answer, it
// continues with the dictionaries it has. After five grace periods of the registry without an
// answer it writes without a dictionary, because its own may be retired and collected by then. It
// is safe for concurrent use.
type Group struct {
	registry *Registry
	name     string
	options  GroupOptions
	log      *slog.Logger
	plain    compress.Compressor // without a dictionary
	fixed    *compress.Set       // reads what has no dictionary
	bundled  map[frame.DictionaryID]*Dictionary
	folder   folder

	writer  atomic.Pointer[writer]
	writing sync.Mutex                            // of those who change the writer, or when it lapses
	readers atomic.Pointer[map[readerKey]*reader] // copied to be changed, under lock
	clock   atomic.Int64                          // rises with each fetch; what was used last is kept

	lock     sync.Mutex
	state    *State    // the last one known
	owed     *State    // one that the registry has lost, and that could not be put back so far
	settings *settings // of the registry, as last known
	server   string    // the id of the data server, once it has joined
	danger   string
	unproven map[frame.DictionaryID]string // where they were read; the registry may not hold them
	reported map[string]string             // errors that were logged, by what failed

	lastErr error
	synced  time.Time
	held    map[frame.DictionaryID]*Dictionary // those of the readers, and of the group's state
	flights map[readerKey]*flight
	missing map[readerKey]missing
	silent  time.Time // when the registry last failed to answer a fetch; zero once it has answered

	grace time.Duration // the registry's
	lapse *time.Timer   // runs out then, and says so

	// Five grace periods after the last answered request: see allow.
	opened     time.Time
	lapses     atomic.Int64 // nanoseconds since opened
	lapsesWall atomic.Int64 // Unix nanoseconds

	restored atomic.Int64
	tending  atomic.Bool
	checked  time.Time // when tend looked for danger

	wake   chan struct{}
	later  bool // follow's: a dictionary was left to the poll
	wanted chan frame.DictionaryID
	auto   *autopilot
	cancel context.CancelFunc
	work   sync.WaitGroup
	ctx    context.Context // ends with Close
}

type readerKey struct {
	algorithm frame.Algorithm
	id        frame.DictionaryID
}

// writer is the compressor for writing, with its results so far.
type writer struct {
	compressor  compress.Compressor
	key         readerKey
	values      atomic.Int64
	read        atomic.Int64 // values, as long as there is no dictionary
	plainBytes  atomic.Int64
	storedBytes atomic.Int64
}

// reader is a compressor for reading.
type reader struct {
	compress.Compressor
	used atomic.Int64 // the clock when it was last asked for
}

// flight is one fetch that several callers wait for.
type flight struct {
	done   chan struct{}
	reader compress.Compressor
	err    error

	// A Store may ignore its context. Callers wait only until this context ends, and the flight
	// continues.
	ctx   context.Context
	soFar atomic.Pointer[error] // what the callers get then, if it is known
}

// missing is a dictionary that could not be fetched.
type missing struct {
	until time.Time
	err   error
}

// Open starts to follow a group. It reads the group's state once, within FetchTimeout. If Redis
// does not answer in that time, the Group starts without a dictionary and retries in the
// background. Open returns an error for invalid options only. The caller closes the Group.
func (r *Registry) Open(ctx context.Context, group string, o GroupOptions) (*Group, error) {
	if err := CheckGroup(group); err != nil {
		return nil, err
	}
	if o.Setting == (compress.Setting{}) {
		o.Setting = compress.Setting{Algorithm: frame.Zstd}
	}
	if o.Poll == 0 {
		o.Poll = defaultPoll
	}
	if o.FetchTimeout == 0 {
		o.FetchTimeout = defaultFetchTimeout
	}
	if o.Keep == 0 {
		o.Keep = defaultKeep
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	switch {
	case !o.Setting.TakesDictionary():
		return nil, fmt.Errorf("dict: %w: %v takes no dictionary; zstd and s2 do, and lz4 at its default level", ErrInvalid, o.Setting)
	case o.ReadOnly && o.Auto != nil:
		return nil, fmt.Errorf("dict: %w: ReadOnly and Auto exclude each other: set Auto when all programs read the group", ErrInvalid)
	case o.Poll < 0 || o.FetchTimeout < 0 || o.Keep < 0:
		return nil, fmt.Errorf("dict: %w: Poll %v, FetchTimeout %v and Keep %d must not be negative", ErrInvalid, o.Poll, o.FetchTimeout, o.Keep)
	}
	var shared folder
	if o.Folder != "" {
		var err error
		if shared, err = openFolder(o.Folder); err != nil {
			return nil, err
		}
	}
	plain, err := o.Engine.New(o.Setting, nil)
	if err != nil {
		return nil, fmt.Errorf("dict: %w: %w", ErrInvalid, err)
	}
	g := &Group{
		folder:   shared,
		registry: r, name: group, options: o, log: o.Log.With("group", group), plain: plain,
		fixed:   &compress.Set{Write: plain, Engine: o.Engine},
		bundled: map[frame.DictionaryID]*Dictionary{}, held: map[frame.DictionaryID]*Dictionary{},
		flights: map[readerKey]*flight{}, missing: map[readerKey]missing{},
		unproven: map[frame.DictionaryID]string{}, reported: map[string]string{},
		opened: time.Now(), wake: make(chan struct{}, 1), wanted: make(chan frame.DictionaryID, 16),
	}
	for _, d := range o.Bundled {
		g.bundled[d.ID()] = d
	}
	g.readers.Store(&map[readerKey]*reader{})
	g.write(plain)
	if o.Auto != nil {
		if g.auto, err = newAutopilot(g, *o.Auto); err != nil {
			return nil, errors.Join(err, plain.Close())
		}
	}
	g.ctx, g.cancel = context.WithCancel(context.WithoutCancel(ctx))
	g.grace = defaultGrace
	g.lapse = time.AfterFunc(time.Hour, func() {
		g.log.Warn("no answer of the registry: writing without a dictionary")
		g.write(plain)
	})
	looked := make(chan struct{})
	g.work.Go(func() {
		ctx, cancel := context.WithTimeout(g.ctx, o.FetchTimeout)
		g.sync(ctx, false)
		cancel()
		close(looked)
		g.follow()
	})
	g.work.Go(g.listen)
	if g.auto != nil {
		g.auto.need(true)
		g.work.Go(g.auto.run)
		g.work.Go(g.auto.show)
	}
	g.await(ctx, looked)
	return g, nil
}

// await waits for at most FetchTimeout, even if a Store ignores its context. It reports whether the
// work ended in time.
func (g *Group) await(ctx context.Context, done <-chan struct{}) bool {
	timer := time.NewTimer(g.options.FetchTimeout)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-ctx.Done():
	case <-timer.C:
	}
	return false
}

// Close ends the background work and releases the compressors. You may call it while the Group is
// in use, and more than once. Calls in progress finish; later calls may return an error that is
// [os.ErrClosed]. The compressors of another Engine must allow that, too. Close waits at most
// FetchTimeout: a call to Redis or a builder of Auto's training may end later.
func (g *Group) Close() error {
	g.lock.Lock() // no flight starts after it
	g.cancel()
	g.lock.Unlock()
	g.lapse.Stop()
	ended := make(chan struct{})
	go func() {
		g.work.Wait()
		close(ended)
	}()
	if !g.await(context.Background(), ended) {
		g.log.Warn("closed, and some background work has not ended yet")
	}
	err := errors.Join(g.fixed.Close(), g.plain.Close())
	for _, r := range *g.readers.Load() {
		err = errors.Join(err, r.Close())
	}
	return err
}

// Writer implements bale.Compressors: the compressor with the current dictionary, or without one.
func (g *Group) Writer() compress.Compressor {
	w := g.writer.Load()
	if w.key.id != 0 && g.lapsed() {
		return g.plain
	}
	return w.compressor
}

// lapsed reports whether the writer's dictionary may no longer be used. It checks two clocks. A
// process that was stopped runs before its timers do, and the monotonic clock stands still while
// the machine is suspended.
func (g *Group) lapsed() bool {
	now := time.Now()
	return int64(now.Sub(g.opened)) >= g.lapses.Load() || now.UnixNano() >= g.lapsesWall.Load()
}

// Packed implements bale.Compressors.
func (g *Group) Packed(plain []byte, stored int) {
	w := g.writer.Load()
	w.values.Add(1)
	w.plainBytes.Add(int64(len(plain)))
	w.storedBytes.Add(int64(stored))
	if g.auto != nil {
		g.auto.offer(plain, true)
	}
}

// Unpacked implements bale.Compressors. A group without a dictionary needs values for its first
// one, also of a cache that programs only read.
func (g *Group) Unpacked(plain []byte) {
	if g.auto == nil {
		return
	}
	if w := g.writer.Load(); w.key.id == 0 {
		w.read.Add(1)
		g.auto.offer(plain, false)
	}
}

// write makes a compressor the writer. One with a dictionary needs an answer of the registry that
// has not lapsed.
func (g *Group) write(c compress.Compressor) {
	g.writing.Lock()
	if c.DictionaryID() != 0 && g.lapsed() {
		c = g.plain
	}
	key := readerKey{c.Algorithm(), c.DictionaryID()}
	old := g.writer.Load()
	if old == nil || old.key != key {
		g.writer.Store(&writer{compressor: c, key: key})
	}
	g.writing.Unlock()
	switch {
	case old == nil || old.key.id == key.id:
	case key.id == 0:
		g.log.Info("writing without a dictionary", "before", old.key.id)
	default:
		g.log.Info("writing with a dictionary", "id", key.id)
	}
}

// Reader implements bale.Compressors. It fetches a missing dictionary from the registry, once for
// all waiting callers. After a failure it does not ask again for some seconds.
func (g *Group) Reader(ctx context.Context, a frame.Algorithm, id frame.DictionaryID) (compress.Compressor, error) {
	if id == 0 {
		return g.fixed.Reader(ctx, a, id)
	}
	key := readerKey{a, id}
	if w := g.writer.Load(); w.key == key {
		return w.compressor, nil
	}
	if r := (*g.readers.Load())[key]; r != nil {
		if now := g.clock.Load(); r.used.Load() != now {
			r.used.Store(now)
		}
		return r.Compressor, nil
	}
	if !(compress.Setting{Algorithm: a}).TakesDictionary() {
		return nil, fmt.Errorf("dict: %w: %v takes no dictionary", compress.ErrUnknownAlgorithm, a)
	}
	if err := ctx.Err(); err != nil { // of a reply with very many dictionaries, each would begin a fetch
		return nil, err
	}
	f, hurry, err := g.fly(key)
	if err != nil {
		return nil, err
	}
	patience, within := f.ctx, g.options.FetchTimeout
	if hurry {
		within = brief
		short, cancel := context.WithTimeout(f.ctx, brief)
		defer cancel()
		patience = short
	}
	select {
	case <-f.done:
		return f.reader, f.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-patience.Done():
	}
	select {
	case <-f.done:
		return f.reader, f.err
	default:
	}
	if g.ctx.Err() != nil {
		return nil, errClosed
	}
	if err := f.soFar.Load(); err != nil {
		return nil, *err
	}
	if !hurry { // a Store may never return
		g.lock.Lock()
		g.silent = time.Now()
		g.lock.Unlock()
	}
	return nil, fmt.Errorf("dict: fetch %v: no answer within %v: %w", id, within, context.DeadlineExceeded)
}

// fly starts a fetch or joins the one in flight. hurry reports that a wait is most likely in vain:
// the registry has not answered lately, or lacked the dictionary before. Then few fetches are in
// flight at a time. An old answer is never the error: LoadOptions.ReplaceUnreadable acts on it, and
// the dictionary may be back.
func (g *Group) fly(key readerKey) (f *flight, hurry bool, err error) {
	g.lock.Lock()
	defer g.lock.Unlock()
	if r := (*g.readers.Load())[key]; r != nil { // it has just arrived
		f := &flight{done: make(chan struct{}), reader: r.Compressor, ctx: g.ctx}
		close(f.done)
		return f, false, nil
	}
	now := time.Now()
	hurry = !g.silent.IsZero() && now.Sub(g.silent) < silentFor
	for _, a := range allAlgorithms {
		// What the registry lacks, it lacks for all algorithms. Nobody waits for it a second time.
		m, ok := g.missing[readerKey{a, key.id}]
		switch lost := ok && isLost(m.err); {
		case ok && now.Before(m.until) && (lost || a == key.algorithm):
			return nil, false, m.err
		case lost:
			hurry = true
		}
	}
	if f := g.flights[key]; f != nil {
		return f, hurry, nil
	}
	switch {
	case g.ctx.Err() != nil:
		return nil, false, errClosed
	case hurry && len(g.flights) > maxUnknown && g.held[key.id] == nil && g.bundled[key.id] == nil:
		return nil, false, fmt.Errorf("dict: fetch %v: not asked for while %d others are fetched: %w", key.id, len(g.flights), context.DeadlineExceeded)
	}
	ctx, cancel := context.WithTimeout(g.ctx, g.options.FetchTimeout)
	f = &flight{done: make(chan struct{}), ctx: ctx}
	g.flights[key] = f
	g.work.Go(func() {
		defer cancel()
		f.reader, f.err = g.load(ctx, key, f)
		g.lock.Lock()
		delete(g.flights, key)
		switch {
		case f.err == nil || isLost(f.err):
			g.silent = time.Time{}
		case g.ctx.Err() == nil && ctx.Err() != nil:
			g.silent = time.Now()
		}
		switch {
		case f.err == nil:
			for _, a := range allAlgorithms {
				delete(g.missing, readerKey{a, key.id})
			}
		case g.ctx.Err() != nil:
			f.err = errClosed
		default:
			for other := range g.missing { // one by one, because forged counts them
				if len(g.missing) < maxMissing {
					break
				}
				delete(g.missing, other)
			}
			again := failedFor
			if errors.Is(f.err, ErrUnknown) || errors.Is(f.err, ErrCorrupt) {
				again = missingFor
			}
			g.missing[key] = missing{time.Now().Add(again), f.err}
		}
		g.lock.Unlock()
		close(f.done)
	})
	return f, hurry, nil
}

var errClosed = fmt.Errorf("dict: group: %w", os.ErrClosed)

// load makes the reader of a dictionary, for a flight or for nil, and fetches it if necessary.
func (g *Group) load(ctx context.Context, key readerKey, f *flight) (compress.Compressor, error) {
	g.lock.Lock()
	d := g.held[key.id]
	g.lock.Unlock()
	if d == nil {
		from := "bundle"
		if d = g.bundled[key.id]; d == nil {
			var err error
			if d, from, err = g.folder.fetch(ctx, key.id, g.options.FetchTimeout/2, func() (*Dictionary, error) {
				return g.fetch(ctx, key.id, f)
			}); err != nil {
				return nil, err
			}
		}
		if from != "" {
			g.lock.Lock()
			g.unproven[key.id] = from
			g.lock.Unlock()
		}
	}
	return g.keep(key, d)
}

// fetch asks the registry for a dictionary, and then the rest of the fleet, which refills a
// registry that was emptied.
func (g *Group) fetch(ctx context.Context, id frame.DictionaryID, f *flight) (*Dictionary, error) {
	ctx, cancel := context.WithTimeout(ctx, g.options.FetchTimeout)
	defer cancel()
	d, from, err := g.registry.fetch(ctx, id)
	if !isLost(err) {
		g.putBack(ctx, d, from)
		return d, err
	}
	if f != nil {
		f.soFar.Store(&err)
		if g.forged() {
			return nil, err
		}
	}
	if notify := g.registry.store.Notify(ctx, g.registry.channel(), wantMessage+id.String()); notify != nil {
		return nil, err
	}
	own := *g.registry
	own.mirrors = nil
	for wait := firstRetry; ; wait *= 2 {
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(wait):
		}
		if d, again := own.Fetch(ctx, id); !errors.Is(again, ErrUnknown) && ctx.Err() == nil {
			return d, again
		}
	}
}

// isLost reports whether the registry answered that it lacks the dictionary.
func isLost(err error) bool { return errors.Is(err, ErrUnknown) || errors.Is(err, errMirror) }

// forged reports whether more than maxUnknown dictionaries are unknown. Then somebody makes up
// their ids. The Group no longer asks the fleet for them, and no reader waits. Otherwise a command
// that reads a thousand such values would wait for each.
func (g *Group) forged() bool {
	g.lock.Lock()
	defer g.lock.Unlock()
	unknown := map[frame.DictionaryID]bool{}
	now := time.Now()
	for key, f := range g.flights {
		if f.soFar.Load() != nil {
			unknown[key.id] = true
		}
	}
	for key, m := range g.missing {
		if len(unknown) > maxUnknown {
			break
		}
		if now.Before(m.until) && isLost(m.err) {
			unknown[key.id] = true
		}
	}
	return len(unknown) > maxUnknown
}

// report logs a background error once until it changes.
func (g *Group) report(doing string, err error) {
	g.lock.Lock()
	defer g.lock.Unlock()
	if err == nil {
		delete(g.reported, doing)
	} else if text := err.Error(); g.ctx.Err() == nil && g.reported[doing] != text {
		g.log.Warn(doing, "err", text)
		g.reported[doing] = text
	}
}

// keep makes a reader and adds it to the readers in memory. It drops readers that were long unused.
func (g *Group) keep(key readerKey, d *Dictionary) (compress.Compressor, error) {
	g.lock.Lock()
	defer g.lock.Unlock()
	readers := *g.readers.Load()
	if r := readers[key]; r != nil {
		return r.Compressor, nil
	}
	if g.ctx.Err() != nil {
		return nil, errClosed // nobody would close it
	}
	s := compress.Setting{Algorithm: key.algorithm}
	if key.algorithm == g.options.Setting.Algorithm {
		s = g.options.Setting // it may become the writer
	}
	c, err := g.options.Engine.New(s, d)
	if err != nil {
		return nil, fmt.Errorf("dict: %v: %w", key.id, err)
	}
	r := &reader{Compressor: c}
	r.used.Store(g.clock.Add(1))
	more := make(map[readerKey]*reader, len(readers)+1)
	size := len(d.Bytes())
	for k, r := range readers {
		more[k] = r
		size += len(g.held[k.id].Bytes())
	}
	more[key] = r
	g.held[key.id] = d
	for size > g.options.Keep || len(more) > maxReaders {
		var oldest readerKey
		for k, r := range more {
			if k != key && !g.inUse(k.id) && (oldest.id == 0 || r.used.Load() < more[oldest].used.Load()) {
				oldest = k
			}
		}
		if oldest.id == 0 {
			break
		}
		size -= len(g.held[oldest.id].Bytes())
		// Somebody may be reading with it: the garbage collector closes it.
		delete(more, oldest)
	}
	for id := range g.held {
		if !g.inUse(id) && !slices.ContainsFunc(allAlgorithms, func(a frame.Algorithm) bool { return more[readerKey{a, id}] != nil }) {
			delete(g.held, id)
		}
	}
	g.readers.Store(&more)
	return c, nil
}

// allAlgorithms are the algorithms with dictionaries.
var allAlgorithms = []frame.Algorithm{frame.Zstd, frame.S2, frame.LZ4}

// inUse reports whether the group needs a dictionary, so that it must stay in memory.
func (g *Group) inUse(id frame.DictionaryID) bool {
	for _, s := range []*State{g.state, g.owed} {
		if s != nil && (id == s.Current || id == s.Previous || slices.Contains(pending(s), id)) {
			return true
		}
	}
	return false
}

// pending are the dictionaries that were published after the current one, and may be activated
// next.
func pending(s *State) (ids []frame.DictionaryID) {
	for _, e := range s.Dictionaries {
		if e.ID == s.Current {
			break
		}
		if e.Activated.IsZero() && len(ids) < prefetched {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// follow reads the registry when a poll is due or a message came. Anybody who may publish on the
// channel makes all programs read. So messages within heardApart lead to one read at its end.
func (g *Group) follow() {
	first := g.untilPoll()
	poll, due := time.NewTimer(first), time.Now().Add(first)
	defer poll.Stop()
	wake := g.wake
	var rest <-chan time.Time
	provided := map[frame.DictionaryID]time.Time{}
	for {
		heard := false
		select {
		case <-g.ctx.Done():
			return
		case <-rest:
			wake = g.wake
			continue
		case <-poll.C:
		case <-wake:
			heard = true
		case id := <-g.wanted: // which puts off no poll
			if time.Since(provided[id]) > providedFor {
				maps.DeleteFunc(provided, func(_ frame.DictionaryID, at time.Time) bool { return time.Since(at) > providedFor })
				provided[id] = time.Now()
				g.provide(id)
			}
			continue
		}
		ctx, cancel := context.WithTimeout(g.ctx, max(g.options.FetchTimeout, g.options.Poll))
		g.sync(ctx, heard)
		cancel()
		next := g.untilPoll()
		if g.later { // as in all programs: each polls at a moment of its own, and no later than it would have
			next = min(time.Duration(rand.Float64()*float64(next)), time.Until(due))
		}
		due = time.Now().Add(next)
		poll.Reset(next)
		wake, rest = nil, time.After(heardApart)
	}
}

// look makes follow look at the registry.
func (g *Group) look() {
	select {
	case g.wake <- struct{}{}:
	default: // it is about to
	}
}

// untilPoll is the time to the next poll: soon after one that failed, and else within a grace
// period, but no sooner than this program itself wants to, or minPoll.
func (g *Group) untilPoll() time.Duration {
	g.lock.Lock()
	grace, unsure := max(g.grace, minGrace), errors.Is(g.lastErr, errUnsure)
	g.lock.Unlock()
	least := min(minPoll, g.options.Poll)
	if declared := g.registry.declared; declared > 0 {
		least = min(least, max(declared, minGrace))
	}
	grace = max(grace, least)
	if unsure {
		grace = min(grace, max(least, unsureRetry))
	}
	return min(grace, max(least, time.Duration(float64(min(g.options.Poll, grace))*(1+pollJitter*(2*rand.Float64()-1)))))
}

// listen receives notifications of changes until Close.
func (g *Group) listen() {
	var heard atomic.Bool
	for retry := listenRetry; ; retry = min(2*retry, maxListenRetry) {
		heard.Store(false)
		err := g.registry.store.Listen(g.ctx, g.registry.channel(), func(message string) {
			heard.Store(true)
			if id, ok := strings.CutPrefix(message, wantMessage); ok {
				if id, err := frame.ParseDictionaryID(id); err == nil && g.dictionary(id) != nil {
					select {
					case g.wanted <- id:
					default: // who wants it asks again
					}
				}
				return
			}
			if group, ok := strings.CutPrefix(message, changedMessage); ok && group != g.name {
				return
			}
			g.look()
		})
		if g.ctx.Err() != nil {
			return
		}
		if heard.Load() {
			retry = listenRetry
		}
		g.log.Warn("not listening for changes, polling alone", "err", err, "again_in", retry)
		select {
		case <-g.ctx.Done():
			return
		case <-time.After(retry):
		}
	}
}

// dictionary returns the dictionary of an id if it is in memory.
func (g *Group) dictionary(id frame.DictionaryID) *Dictionary {
	g.lock.Lock()
	defer g.lock.Unlock()
	if d := g.held[id]; d != nil {
		return d
	}
	return g.bundled[id]
}

// spare is a dictionary that the program or its folder has, or nil.
func (g *Group) spare(id frame.DictionaryID) *Dictionary {
	if d := g.dictionary(id); d != nil {
		return d
	}
	return g.folder.read(id)
}

// sync applies the registry's state of the group, and restores the registry's losses. What it heard
// of, all programs did at once: a dictionary that nothing is written with yet is left to the poll.
func (g *Group) sync(ctx context.Context, heard bool) {
	g.later = false // also if the look fails, or there is nothing to load any more: the poll would be due at once
	err := g.takeOver(ctx, heard)
	g.report("dictionaries are not up to date", err)
	g.lock.Lock()
	if g.lastErr = err; err == nil {
		g.silent = time.Time{}
	}
	g.lock.Unlock()
}

// errUnsure says that the registry's state is unknown, so that the next look is soon.
var errUnsure = errors.New("not confirmed")

func (g *Group) takeOver(ctx context.Context, heard bool) error {
	start := time.Now()
	r := g.registry
	values, err := r.store.Read(ctx, r.groupKey(g.name), r.settingsKey())
	if err != nil {
		return fmt.Errorf("dict: group %q: the state is %w: %w", g.name, errUnsure, err) // as before
	}
	s, err := r.parseState(g.name, values[0])
	if err != nil {
		return err
	}
	g.lock.Lock()
	known := cmp.Or(g.owed, g.state)
	g.lock.Unlock()
	var lost, denied error
	var owed *State
	if !s.includes(known) {
		// Either the registry was emptied, or reset by a fail-over; or a lagging replica answers.
		// The swap goes to the master.
		same, err := swap(ctx, r.store, r.groupKey(g.name), values[0], values[0], 0)
		switch another := s.Epoch > 0 && s.Incarnation != known.Incarnation && known.Merged[s.Incarnation] == 0; {
		case err != nil && another: // no replica is ahead; this program may not write
			owed, denied = known, err
		case err != nil: // the registry may be empty, and values that are written with a dictionary unreadable
			g.write(g.plain)
			return fmt.Errorf("dict: group %q: epoch %d, and was %d: this is %w: %w", g.name, s.Epoch, known.Epoch, errUnsure, err)
		case !same:
			return fmt.Errorf("dict: group %q: epoch %d, and was %d: an answer of a lagging replica is ignored", g.name, s.Epoch, known.Epoch)
		default:
			lost = g.giveBack(ctx, known)
			start = time.Now()
			if s, err = r.State(ctx, g.name); err != nil || !s.includes(known) {
				return errors.Join(lost, err)
			}
			g.log.Info("group put back into the registry", "epoch", s.Epoch)
		}
	}
	g.report("what the registry has lost of the group could not be put back", denied)
	grace := g.learn(ctx, values[1])
	if old := g.writer.Load().key.id; old != s.Current && old != s.Previous {
		g.write(g.plain) // before the answer counts: it does not allow that one
	}
	g.lock.Lock()
	g.state, g.owed, g.synced, g.grace = s, owed, time.Now(), grace
	g.lock.Unlock()
	if g.writer.Load().key.id == 0 {
		g.allow(start)
	}
	var unlisted error
	if s.Epoch > 0 {
		// A remover takes a dictionary without a listed group for an orphan.
		unlisted = r.addGroup(ctx, g.name)
	}
	err = errors.Join(lost, unlisted, g.fetchAll(ctx, s, start, heard), g.follows(ctx, s, start))
	if g.tending.CompareAndSwap(false, true) {
		g.work.Go(func() {
			defer g.tending.Store(false)
			g.tend(s)
		})
	}
	return err
}

// allow permits the writer's dictionary for five grace periods from the start of a request to the
// registry. The answer confirms that the dictionary is the current or previous one, and that its
// bytes exist.
func (g *Group) allow(start time.Time) {
	g.lock.Lock()
	defer g.lock.Unlock()
	if g.ctx.Err() != nil {
		return
	}
	g.writing.Lock()
	defer g.writing.Unlock()
	lapses := start.Add(lapseGraces * max(g.grace, minGrace))
	g.lapses.Store(int64(lapses.Sub(g.opened)))
	g.lapsesWall.Store(lapses.UnixNano())
	g.lapse.Reset(time.Until(lapses))
}

// follows makes the current dictionary the writer, once the registry holds it and it is loaded.
func (g *Group) follows(ctx context.Context, s *State, start time.Time) error {
	if s.Current == 0 || g.options.ReadOnly {
		g.write(g.plain)
		return nil
	}
	key := readerKey{g.options.Setting.Algorithm, s.Current}
	if g.writer.Load().key == key {
		return nil
	}
	exists, err := g.touch(ctx, []frame.DictionaryID{s.Current}, 1)
	var c compress.Compressor
	if err == nil && exists[0] {
		c, err = g.load(ctx, key, nil)
	}
	if c == nil {
		return err // fetchAll has said what is not there; the previous one stays so long
	}
	g.allow(start)
	g.write(c)
	return nil
}

// Status is the present state of a Group.
type Status struct {
	Group   string             `json:"group"`
	Writing frame.DictionaryID `json:"writing"` // what values are written with now
	State   *State             `json:"state"`   // as last read, nil before that
	Synced  time.Time          `json:"synced"`  // when the state was read
	Err     error              `json:"-"`       // why the last look failed, nil if it did not

	ReadOnly bool `json:"read_only,omitempty"` // [GroupOptions].ReadOnly: Writing is 0 whatever is current

	// Values counts the values written since the writer last changed, PlainBytes and StoredBytes
	// their bytes before and after packing. Ratio is the quotient. As at training, the stored bytes
	// are without the record of when a value of GetOrLoad expires.
	Values      int64   `json:"values"`
	PlainBytes  int64   `json:"plain_bytes"`
	StoredBytes int64   `json:"stored_bytes"`
	Ratio       float64 `json:"ratio"`

	// Restored counts the dictionaries that the registry had lost, and that this program put back:
	// from its memory, its bundle, quarantine or a mirror.
	Restored int64 `json:"restored"`

	// Danger is the last result of [Registry.Danger].
	Danger string `json:"danger,omitempty"`

	// Training says that Auto is taking a sample or training in this program.
	Training bool `json:"training"`

	// Collected is how many of the Wanted values Auto has seen: to judge whether a dictionary is
	// needed, and then for its sample. 0 of 0 without Auto.
	Collected int `json:"collected,omitempty"`
	Wanted    int `json:"wanted,omitempty"`
}

// Status returns the present state.
func (g *Group) Status() Status {
	w := g.writer.Load()
	s := Status{Group: g.name, Writing: g.Writer().DictionaryID(), ReadOnly: g.options.ReadOnly, Values: w.values.Load()}
	s.PlainBytes, s.StoredBytes = w.plainBytes.Load(), w.storedBytes.Load()
	if s.StoredBytes > 0 {
		s.Ratio = float64(s.PlainBytes) / float64(s.StoredBytes)
	}
	s.Restored = g.restored.Load()
	if a := g.auto; a != nil {
		s.Training, s.Wanted = a.training.Load(), a.MinValues
		s.Collected = min(a.collected(w), s.Wanted)
	}
	g.lock.Lock()
	defer g.lock.Unlock()
	s.State, s.Synced, s.Err, s.Danger = g.state, g.synced, g.lastErr, g.danger
	return s
}
