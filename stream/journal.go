package stream

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/adapters"
)

// The journal of a key lists the writes and deletions in progress. A writer gives its chunks their
// final expiry before it swaps the key, and retires the old chunks after. The journal names both,
// so that a crash in between leaves no chunk for good. The steps of a write, and the state
// after a crash at each:
//
//	write the chunks, with the lease      they expire
//	set the alive key, add the entry      they expire
//	give the chunks their final expiry    the old value stays; the entry names the new chunks
//	swap the key                          the new value stays; the entry names the old chunks
//	retire the old chunks
//	remove the entry and the alive key
//
// The alive key has the lease too, and its writer renews it. An entry without its alive key belongs
// to a dead writer. The next write or deletion of the key sweeps it, or [Streams.Repair] does. The
// sweeper retires the chunks of each generation in the entry, except the one that the key points
// to. The sweeper marks the entry first. A writer checks the mark before it swaps, and gives up if
// it is set. It checks again after the swap, and repeats the final expiry if the mark was set in
// between. The sweeper may still retire chunks then. So it reads the key again after that, and
// repairs its value.
//
// All of this needs the newest state of each key. So those who write read from masters.
const (
	journalSuffix = ":bale:journal"
	aliveSuffix   = ":alive"
)

// entry is a write or a deletion in progress.
type entry struct {
	id        string // the new generation; a deletion has an id of its own
	chunks    int    // of the new generation
	old       string // the generation to be replaced, empty for none
	oldChunks int
	end       int64 // all these chunks expire by then, in ms since 1970; 0: never, or not known
	marked    bool  // a sweeper has started on it
}

func (e *entry) aliveKey(key string) string { return key + ":" + e.id + aliveSuffix }

// journal holds the entries of a key. It is stored as the payload of a frame of algorithm chunks:
//
//	version (1 byte, 2), entries (uvarint); each entry:
//	id, old (1 byte of length each, and the text), chunks, old chunks, end (uvarints), marked (1 byte)
//
// An alive key holds an empty one.
type journal []entry

const (
	journalVersion = 2

	// maxEntries bounds the work that a journal asks for: each entry takes tens of commands.
	maxEntries = 100
)

func (j journal) append(dst []byte) []byte {
	p := binary.AppendUvarint([]byte{journalVersion}, uint64(len(j)))
	for _, e := range j {
		p = append(append(p, byte(len(e.id))), e.id...)
		p = append(append(p, byte(len(e.old))), e.old...)
		for _, v := range []int64{int64(e.chunks), int64(e.oldChunks), e.end} {
			p = binary.AppendUvarint(p, uint64(v))
		}
		marked := byte(0)
		if e.marked {
			marked = 1
		}
		p = append(p, marked)
	}
	h := frame.Header{Algorithm: frame.Chunks, HasChecksum: true, Checksum: frame.Checksum(p), Length: uint64(len(p))}
	return append(h.Append(dst), p...)
}

// stored is the value of the journal's key, nil (no key) without entries.
func (j journal) stored() []byte {
	if len(j) == 0 {
		return nil
	}
	return j.append(nil)
}

// ttl returns the journal's time to live, 0 for none: no chunk in it may outlive it.
func (j journal) ttl() time.Duration {
	var end int64
	for _, e := range j {
		if e.end == 0 {
			return 0
		}
		end = max(end, e.end)
	}
	return max(time.Until(time.UnixMilli(end)), time.Millisecond)
}

func (j journal) find(id string) int {
	return slices.IndexFunc(j, func(e entry) bool { return e.id == id })
}

// isJournal reports whether the payload of a frame of algorithm chunks is a journal.
func isJournal(payload []byte) bool { return len(payload) > 0 && payload[0] == journalVersion }

// parseJournal reads the value of a journal's key, nil for no key.
func parseJournal(stored []byte) (journal, error) {
	if stored == nil {
		return nil, nil
	}
	h, offset, ok := frame.Parse(stored)
	p := stored[offset:]
	if !ok || h.Algorithm != frame.Chunks || h.Version != frame.V1 || !isJournal(p) {
		return nil, fmt.Errorf("%w: not the journal of a stream: look at the key, and remove it if nothing needs it", bale.ErrCorrupt)
	}
	damaged := fmt.Errorf("%w: the journal of a stream is damaged, or bale did not write it: remove its key; chunks of interrupted writes may stay behind", bale.ErrCorrupt)
	if uint64(len(p)) != h.Length || h.HasChecksum && frame.Checksum(p) != h.Checksum {
		return nil, damaged
	}
	p = p[1:]
	number := func() int64 {
		v, n := binary.Uvarint(p)
		if n <= 0 || v > math.MaxInt64 {
			ok, p = false, nil
			return 0
		}
		p = p[n:]
		return int64(v)
	}
	text := func() string {
		if len(p) == 0 || len(p) < 1+int(p[0]) {
			ok, p = false, nil
			return ""
		}
		t := string(p[1 : 1+int(p[0])])
		p = p[1+len(t):]
		return t
	}
	var j journal
	n := number()
	if n > maxEntries {
		return nil, damaged
	}
	for ; n > 0 && ok; n-- {
		e := entry{id: text(), old: text()}
		chunks, oldChunks := number(), number()
		e.chunks, e.oldChunks, e.end = int(chunks), int(oldChunks), number()
		if len(p) == 0 || p[0] > 1 || chunks > maxChunks || oldChunks > maxChunks || !isGeneration(e.id) || e.old != "" && !isGeneration(e.old) || e.old == "" && oldChunks > 0 || j.find(e.id) >= 0 {
			return nil, damaged
		}
		e.marked, p = p[0] == 1, p[1:]
		j = append(j, e)
	}
	if !ok || len(p) > 0 {
		return nil, damaged
	}
	return j, nil
}

// Owner returns the stream's key for a journal or an alive key, and false for any other key. Such
// keys exist while a stream is written or deleted. After a crash the journal stays until
// [Streams.Repair], or the next write or deletion of the stream.
func Owner(key string, stored []byte) (string, bool) {
	h, offset, ok := frame.Parse(stored)
	if !ok || h.Algorithm != frame.Chunks || h.Version != frame.V1 || !isJournal(stored[offset:]) {
		return "", false
	}
	if owner, ok := strings.CutSuffix(key, journalSuffix); ok {
		return owner, true
	}
	if owner, ok := strings.CutSuffix(key, aliveSuffix); ok {
		if i := strings.LastIndexByte(owner, ':'); i >= 0 {
			return owner[:i], true
		}
	}
	return "", false
}

// journalBytes reads the journal of a key, nil for none.
func (s *Streams) journalBytes(ctx context.Context, key string) ([]byte, error) {
	stored, err := s.get(ctx, key+journalSuffix)
	if errors.Is(err, bale.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("journal %s: %w", key+journalSuffix, err)
	}
	return stored, nil
}

// edit changes the journal by compare-and-set and returns its new value. known is its last known
// value, or a guess. If change returns false the journal stays as it is.
func (s *Streams) edit(ctx context.Context, key string, known []byte, change func(*journal) bool) (now []byte, err error) {
	for {
		j, err := parseJournal(known)
		if err != nil {
			return nil, fmt.Errorf("journal %s: %w", key+journalSuffix, err)
		}
		if !change(&j) {
			return known, nil
		}
		next := j.stored()
		ok, err := timely(ctx, func(ctx context.Context) (bool, error) {
			return s.store.Swap(ctx, key+journalSuffix, known, next, j.ttl())
		})
		if err != nil {
			return nil, fmt.Errorf("journal %s: %w", key+journalSuffix, err)
		}
		if ok {
			return next, nil
		}
		if known, err = s.journalBytes(ctx, key); err != nil {
			return nil, err
		}
	}
}

// intent is the writer's side of its entry in the journal.
type intent struct {
	*Streams
	key   string
	entry entry
	known []byte // the last known value of the journal
	stop  func() // stops renewing the alive key

	renewed atomic.Pointer[time.Time] // when the alive key was last renewed, without a gap before
}

// silence is the time since the alive key was renewed. Both clocks count: one of them stands still
// while the machine sleeps.
func (i *intent) silence() time.Duration {
	renewed := *i.renewed.Load()
	return max(time.Since(renewed), time.Now().Round(0).Sub(renewed.Round(0)))
}

// lasts gives a chunk its final expiry, unless a sweeper may soon act: ErrLease. If that happened
// after a sweeper had removed the entry, and the writer died, the chunk would stay for good. So the
// command is not sent when two thirds of the lease have passed, and has a third of it to be sent.
func (i *intent) lasts(ctx context.Context, chunk string, e bale.Expiry) (ok bool, err error) {
	if i.silence() > i.options.Lease*2/3 {
		return false, errSilent
	}
	ctx, cancel := context.WithTimeout(ctx, i.options.Lease/3)
	defer cancel()
	return i.touch(ctx, chunk, e)
}

var errSilent = fmt.Errorf("%w: no sign of life from this writer for longer than Options.Lease, and another one may tidy up after it: write again, or raise Lease", ErrLease)

// announce sets the alive key and adds the entry to the journal. Unless swept, it sweeps a full
// journal first. Withdraw the intent even after an error.
func (s *Streams) announce(ctx context.Context, key string, e entry, swept bool) (*intent, error) {
	i := &intent{Streams: s, key: key, entry: e, stop: func() {}}
	alive := func(ctx context.Context) error {
		now := time.Now()
		ctx, cancel := context.WithTimeout(ctx, cleanTime)
		defer cancel()
		err := s.store.Set(ctx, e.aliveKey(key), journal(nil).append(nil), bale.TTL(s.options.Lease))
		// After a gap it is too late: a sweeper may have removed the entry.
		if err == nil && (i.renewed.Load() == nil || i.silence() < s.options.Lease) {
			i.renewed.Store(&now)
		}
		return err
	}
	if err := alive(ctx); err != nil {
		return i, err
	}
	renewing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(s.options.Lease / 3)
		defer ticker.Stop()
		for {
			select {
			case <-renewing.Done():
				return
			case <-ticker.C:
				_ = alive(renewing) // if that fails for too long, confirm finds the mark
			}
		}
	}()
	i.stop = func() { cancel(); <-ended }
	for ; ; swept = true {
		var full bool
		var err error
		i.known, err = s.edit(ctx, key, nil, func(j *journal) bool {
			if full = false; j.find(e.id) >= 0 {
				return false // the answer to an earlier try was lost
			}
			if full = len(*j) >= maxEntries; !full {
				*j = append(*j, e)
			}
			return !full
		})
		switch {
		case err != nil || !full:
			return i, err
		case swept:
			return i, errFull
		}
		if _, err = s.sweep(ctx, key, i.known); err != nil {
			return i, err
		}
	}
}

// errFull: dead writers are swept before it is returned, so that only a crowd of live ones gets it.
var errFull = fmt.Errorf("%w: %d, wait for them", ErrBusy, maxEntries)

// confirm returns ErrLease if a sweeper has marked the entry. It updates the generation to be
// replaced.
func (i *intent) confirm(ctx context.Context, old *Manifest) error {
	known, err := i.journalBytes(ctx, i.key)
	if err != nil {
		return err
	}
	lost := false
	i.known, err = i.edit(ctx, i.key, known, func(j *journal) bool {
		at := j.find(i.entry.id)
		lost = at < 0 || (*j)[at].marked
		if lost || (*j)[at].old == old.Generation {
			return false
		}
		i.entry.old, i.entry.oldChunks = old.Generation, old.Chunks
		if old.Chunks > 0 {
			i.entry.end = 0
		}
		(*j)[at] = i.entry
		return true
	})
	if err == nil && lost {
		err = errSilent
	}
	return err
}

// withdraw removes the entry and the alive key. Then it sweeps the entries of dead writers.
func (i *intent) withdraw(ctx context.Context) error {
	now, err := i.remove(ctx)
	if err == nil {
		_, err = i.sweep(ctx, i.key, now)
	}
	return err
}

// remove removes the entry and the alive key, and returns the journal.
func (i *intent) remove(ctx context.Context) ([]byte, error) {
	i.stop()
	now, err := i.edit(ctx, i.key, i.known, func(j *journal) bool {
		at := j.find(i.entry.id)
		if at < 0 {
			return false
		}
		*j = slices.Delete(*j, at, at+1)
		return true
	})
	if err == nil {
		err = i.die(ctx)
	}
	return now, err
}

// die deletes the alive key.
func (i *intent) die(ctx context.Context) error {
	_, err := timely(ctx, func(ctx context.Context) (int, error) {
		return i.store.Delete(ctx, []string{i.entry.aliveKey(i.key)})
	})
	return err
}

// Repaired is the result of [Streams.Repair].
type Repaired struct {
	// Active counts the writes and deletions in progress. Repair leaves them alone.
	Active int

	// Swept counts the interrupted writes and deletions. Their chunks expire within the longer of
	// Options.Lease and Options.Grace, except those of the current value.
	Swept int

	// Mended counts the chunks of the current value, if any of them would have expired before it.
	Mended int
}

// Repair tidies up after writers and deletions of a key that were interrupted, and gives the chunks
// of its value the expiry that the key needs. It is safe beside readers and writers. A key without
// a stream is a no-op, apart from its journal. Missing chunks are ErrCorrupt: nothing brings them
// back. If Redis does not answer, Repair ends at the latest a minute and a half after the context.
//
// Pass the key of the stream. If a scan finds a journal, [Owner] returns that key. Repair mends
// expiries only if the Store has the method PTTL: see [bale.Store].
func (s *Streams) Repair(ctx context.Context, key string) (Repaired, error) {
	r, err := s.repair(ctx, key)
	if err != nil {
		err = &bale.KeyError{Op: "repair", Key: key, Err: err}
	}
	return r, err
}

func (s *Streams) repair(ctx context.Context, key string) (Repaired, error) {
	ctx = adapters.FromMasters(ctx)
	stored, err := s.journalBytes(ctx, key)
	if err != nil {
		return Repaired{}, err
	}
	r, err := s.sweep(ctx, key, stored)
	if err != nil {
		return r, err
	}
	_, m, err := s.replaced(ctx, key)
	if err != nil {
		return r, err
	}
	l, ok := s.store.(aging)
	if !ok || m.Chunks == 0 {
		return r, nil
	}
	lives, err := lifetime(ctx, l, key)
	if err != nil {
		return r, unlessNotFound(err)
	}
	err = s.each(ctx, m.Chunks, func(ctx context.Context, i int) error {
		chunk, err := lifetime(ctx, l, m.ChunkKey(key, i))
		if errors.Is(err, bale.ErrNotFound) || err == nil && shorter(chunk, lives) {
			return errShort // one is enough to know
		}
		return err
	})
	if !errors.Is(err, errShort) {
		return r, err
	}
	r.Mended, err = s.mend(ctx, key, &m, nil)
	return r, err
}

// errShort ends a look at chunks: one of them expires before its value.
var errShort = errors.New("a chunk expires before its value")

// sweep retires the chunks that dead writers left, and removes their entries.
func (s *Streams) sweep(ctx context.Context, key string, stored []byte) (r Repaired, err error) {
	j, err := parseJournal(stored)
	if err != nil {
		return r, fmt.Errorf("journal %s: %w", key+journalSuffix, err)
	}
	slices.SortStableFunc(j, func(a, b entry) int { // marked ones last: to mend takes room in the journal
		switch {
		case a.marked == b.marked:
			return 0
		case a.marked:
			return 1
		}
		return -1
	})
	for _, e := range j {
		_, err := s.get(ctx, e.aliveKey(key))
		if err == nil {
			r.Active++
			continue
		}
		if !errors.Is(err, bale.ErrNotFound) {
			return r, err
		}
		gone := false
		stored, err = s.edit(ctx, key, stored, func(j *journal) bool {
			at := j.find(e.id)
			if gone = at < 0; gone {
				return false
			}
			e = (*j)[at]
			(*j)[at].marked = true
			return !e.marked
		})
		if err != nil {
			return r, err
		}
		if gone {
			continue
		}
		m, err := s.present(ctx, key)
		if err != nil {
			return r, err
		}
		var failed error
		keep := false
		if left := (Manifest{Generation: e.id, Info: Info{Chunks: e.chunks}}); e.id != m.Generation {
			failed = s.retire(ctx, key, &left, max(s.options.Lease, s.options.Grace))
		}
		if left := (Manifest{Generation: e.old, Info: Info{Chunks: e.oldChunks}}); e.old != m.Generation && failed == nil {
			keep, failed = s.retireOld(ctx, key, &left)
		}
		ctx := context.WithoutCancel(ctx)
		// This sweeper may have retired its chunks, or an earlier one.
		if !keep && e.chunks > 0 && (e.marked || m.Generation != e.id) {
			if keep, err = s.restore(ctx, key, e.id); err != nil {
				return r, err
			}
		}
		if failed != nil {
			return r, failed
		}
		stored, err = s.edit(ctx, key, stored, func(j *journal) bool {
			at := j.find(e.id)
			switch {
			case at < 0 || keep && (*j)[at].end == 0:
				return false
			case keep:
				(*j)[at].end = 0
			default:
				*j = slices.Delete(*j, at, at+1)
			}
			return true
		})
		if err != nil {
			return r, err
		}
		if !keep {
			r.Swept++
		}
	}
	return r, nil
}

// restore mends the chunks of a swept generation if its writer's swap came after all. Without PTTL
// the chunks never expire then, and keep is true: the entry must stay until the value has gone. It
// also stays if a full journal has no room for the mending.
func (s *Streams) restore(ctx context.Context, key, generation string) (keep bool, err error) {
	m, err := s.present(ctx, key)
	if err != nil || m.Generation != generation {
		return false, err
	}
	switch _, err = s.mend(ctx, key, &m, nil); {
	case errors.Is(err, ErrBusy):
		return true, nil // the next sweep may have room
	case errors.Is(err, bale.ErrCorrupt):
		err = nil // nothing brings the missing chunks back
	}
	_, ages := s.store.(aging)
	return !ages, err
}

// aging is the optional method PTTL of a Store. With it, readers and Repair find chunks that would
// expire before their value. Versions of bale without the journal left such chunks after a crash.
type aging interface {
	PTTL(ctx context.Context, keys []string) ([]int64, error)
}

// lifetime returns the shortest remaining time to live of keys: negative if none expires,
// bale.ErrNotFound if one does not exist.
func lifetime(ctx context.Context, store aging, keys ...string) (time.Duration, error) {
	ms, err := timely(ctx, func(ctx context.Context) ([]int64, error) { return store.PTTL(ctx, keys) })
	if err != nil {
		return 0, err
	}
	shortest := time.Duration(-1)
	for _, n := range ms {
		if n == -2 {
			return 0, bale.ErrNotFound
		}
		if d := time.Duration(min(n, longest)) * time.Millisecond; shorter(d, shortest) {
			shortest = d
		}
	}
	return shortest, nil
}

// longest is a lifetime of 146 years in milliseconds. Redis keeps keys for longer than a
// time.Duration has room for. Chunks that got all of that, 292 years, still live as long.
const longest = math.MaxInt64 / 2 / int64(time.Millisecond)

// shorter compares lifetimes: a negative one never ends.
func shorter(a, b time.Duration) bool { return a >= 0 && (b < 0 || a < b) }

func unlessNotFound(err error) error {
	if errors.Is(err, bale.ErrNotFound) {
		return nil
	}
	return err
}

// replaced reads the value that a writer would replace. For no value, or one that is not a stream,
// the Manifest is zero.
func (s *Streams) replaced(ctx context.Context, key string) (stored []byte, m Manifest, err error) {
	stored, m, err = s.head(ctx, key)
	if errors.Is(err, bale.ErrNotFound) || errors.Is(err, ErrNotStream) {
		err = nil
	}
	return stored, m, err
}

// present is the manifest of the key's value, within cleanTime.
func (s *Streams) present(ctx context.Context, key string) (Manifest, error) {
	return timely(ctx, func(ctx context.Context) (Manifest, error) {
		_, m, err := s.replaced(ctx, key)
		return m, err
	})
}

// mend gives the chunks of a value the expiry that its key needs. If lasting is nil the key says
// which; none if the Store has no PTTL.
func (s *Streams) mend(ctx context.Context, key string, m *Manifest, lasting func() bale.Expiry) (mended int, err error) {
	// If the value is replaced meanwhile, its chunks must expire after all: the entry sees to that,
	// even after a crash or an error.
	// A sweep mends, too: it must not begin another one.
	i, err := s.announce(ctx, key, entry{id: rand.Text(), old: m.Generation, oldChunks: m.Chunks}, true)
	defer func() {
		detached := context.WithoutCancel(ctx)
		now, failed := s.present(detached, key)
		if failed == nil && now.Generation != m.Generation {
			mended, err = 0, nil
			_, failed = s.retireOld(ctx, key, m)
		}
		if failed == nil {
			_, failed = i.remove(detached)
		} else {
			i.stop()
		}
		if err == nil {
			err = failed
		}
	}()
	if err != nil {
		return 0, err
	}
	if lasting == nil {
		needed := bale.NoExpiry()
		if l, ok := s.store.(aging); ok {
			lives, err := lifetime(ctx, l, key)
			if err != nil {
				return 0, unlessNotFound(err)
			}
			if lives >= 0 {
				needed = s.beyond(lives)
			}
		}
		lasting = func() bale.Expiry { return needed }
	}
	err = s.each(ctx, m.Chunks, func(ctx context.Context, n int) error {
		ok, err := i.lasts(ctx, m.ChunkKey(key, n), lasting())
		if err == nil && !ok { // the others are no use without it
			err = fmt.Errorf("%w: chunk %d of %d is missing", bale.ErrCorrupt, n, m.Chunks)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return m.Chunks, nil
}
