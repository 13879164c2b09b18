package resilient

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/stats"
)

// NewStore returns a Store behind a Guard, whose Options.Failed should be [StoreFailed]. It has the
// method PTTL if s has.
//
// Reads may be retried and hedged. Writes may be retried: each of them has the same effect if Redis
// does it twice. Only the answer may differ: if the first try of a Delete did its work and its
// answer was lost, the second one counts no keys. A retry may undo what another program wrote since
// the first try.
//
// [bale.Cache.GetOrLoad] treats a rejected read like any failed read: it loads the value. So
// programs with an open Breaker go on without Redis, at once.
func NewStore(s bale.Store, g *Guard) bale.Store {
	guarded := &store{s, g}
	if a, ok := s.(aging); ok {
		return &agingStore{guarded, a}
	}
	return guarded
}

// StoreFailed is [Options].Failed for Redis. It reports true for all errors but a missing key, a
// value that bale cannot read, a command that its hook does not send, and some replies. These are
// replies that would be the same next time, such as those for a key of another type, a missing
// permission or an unknown command. Others send a client to another node of a Cluster.
func StoreFailed(err error) bool {
	if many, ok := errors.AsType[bale.KeyErrors](err); ok {
		return slices.ContainsFunc(many, func(e *bale.KeyError) bool { return StoreFailed(e.Err) })
	}
	if errors.Is(err, bale.ErrNotFound) {
		return false
	}
	// The value has arrived. If the registry of its dictionary does not answer, that is another
	// endpoint, or its own commands fail here.
	if _, ok := errors.AsType[*bale.DecodeError](err); ok {
		return false
	}
	switch bale.ErrorClass(err) {
	case stats.Corrupt, stats.TooLarge, stats.UnknownDictionary, stats.UnknownAlgorithm, stats.Codec, stats.Invalid:
		return false
	}
	for ; err != nil; err = errors.Unwrap(err) { // a client's error is the reply, maybe wrapped
		reply := err.Error()
		for _, final := range []string{
			"WRONGTYPE ", "NOPERM ", "NOSCRIPT ", "CROSSSLOT ", "EXECABORT ", "MOVED ", "ASK ", "ERR ",
			"command does not work on packed values", // goredis.ErrCommand
		} {
			if strings.HasPrefix(reply, final) {
				return strings.HasPrefix(reply, "ERR max number of clients")
			}
		}
	}
	return true
}

type store struct {
	store bale.Store
	guard *Guard
}

// AtOnce is how many calls a bale.Cache should make at once, 0 for any number. It leaves room in
// the Limit for those of others.
func (s *store) AtOnce() int {
	g := s.guard
	if g.o.Limit.Healthy == 0 {
		return 0
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return max(1, g.limiter.allowed()*4/5)
}

type getCall struct {
	store bale.Store
	key   string
}

func (c getCall) make(ctx context.Context) ([]byte, error) { return c.store.Get(ctx, c.key) }

func (s *store) Get(ctx context.Context, key string) ([]byte, error) {
	return do[[]byte](ctx, s.guard, Read, getCall{s.store, key})
}

type setCall struct {
	store bale.Store
	item  bale.Item
}

func (c setCall) make(ctx context.Context) (struct{}, error) {
	return struct{}{}, c.store.Set(ctx, c.item.Key, c.item.Value, c.item.Expiry)
}

func (s *store) Set(ctx context.Context, key string, value []byte, e bale.Expiry) error {
	_, err := do[struct{}](ctx, s.guard, Idempotent, setCall{s.store, bale.Item{Key: key, Value: value, Expiry: e}})
	return err
}

func (s *store) GetMany(ctx context.Context, keys []string) ([][]byte, error) {
	keys = s.own(keys)
	return Do(ctx, s.guard, Read, func(ctx context.Context) ([][]byte, error) { return s.store.GetMany(ctx, keys) })
}

// own returns the keys, or a copy if a hedge may go on when the caller has changed them.
func (s *store) own(keys []string) []string {
	if s.guard.o.Hedge.Quantile > 0 {
		return slices.Clone(keys)
	}
	return keys
}

func (s *store) SetMany(ctx context.Context, items []bale.Item) error {
	_, err := Do(ctx, s.guard, Idempotent, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.store.SetMany(ctx, items) })
	return err
}

func (s *store) Delete(ctx context.Context, keys []string) (int, error) {
	return Do(ctx, s.guard, Idempotent, func(ctx context.Context) (int, error) { return s.store.Delete(ctx, keys) })
}

func (s *store) Touch(ctx context.Context, key string, e bale.Expiry) (bool, error) {
	return Do(ctx, s.guard, Idempotent, func(ctx context.Context) (bool, error) { return s.store.Touch(ctx, key, e) })
}

func (s *store) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	return Do(ctx, s.guard, Idempotent, func(ctx context.Context) (bool, error) { return s.store.Swap(ctx, key, old, value, ttl) })
}

// aging is a Store with PTTL.
type aging interface {
	PTTL(ctx context.Context, keys []string) ([]int64, error)
}

type agingStore struct {
	*store
	aging aging
}

func (s *agingStore) PTTL(ctx context.Context, keys []string) ([]int64, error) {
	keys = s.own(keys)
	return Do(ctx, s.guard, Read, func(ctx context.Context) ([]int64, error) { return s.aging.PTTL(ctx, keys) })
}
