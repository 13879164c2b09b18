package keyspace

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// Watch tells whether the servers of a walk by one process stay the same. If one is restarted or
// fails over, the walk goes on with a cursor that means nothing. If a slot is moved to a server
// that is done, its keys are missed. A shared walk does not need it: see [Settled].
type Watch struct{ watch }

// NewWatch begins to watch the servers that hold a client's keys. What they forbid to ask is not
// watched: see [Lost]. The error says why a walk might miss keys from the start: a slot is moving.
func NewWatch(ctx context.Context, client redis.UniversalClient) (*Watch, error) {
	masters, err := nodesOf(ctx, client)
	if err != nil {
		return nil, err
	}
	last, err := statesOf(ctx, masters, false)
	if err != nil {
		return nil, withRunHint(err)
	}
	return &Watch{watch{watchers: []*watcher{{client: client, last: last}}, looked: time.Now()}}, nil
}

// Places are the servers, all at the start.
func (w *Watch) Places() (places []Place) {
	states := w.watchers[0].last
	for _, addr := range slices.Sorted(maps.Keys(states)) {
		s := states[addr]
		p := Place{Addr: addr, RunID: s.identity[0], ReplID: s.identity[1]}
		if s.slots != nil {
			sum := fnv.New64a()
			sum.Write(fmt.Append(nil, s.slots))
			p.Cluster = fmt.Sprintf("%s, slots %x", s.identity[2], sum.Sum64())
		}
		places = append(places, p)
	}
	return places
}

// NowAndThen looks if it is time to. It is an [InconclusiveError] if something has changed. A
// server that does not answer at present is none.
func (w *Watch) NowAndThen(ctx context.Context) error { return withRunHint(w.nowAndThen(ctx)) }

// Look is an [InconclusiveError] if something has changed, or a server does not tell. It has the
// last word on a walk.
func (w *Watch) Look(ctx context.Context) error { return withRunHint(w.look(ctx, true)) }

func withRunHint(err error) error {
	if !errors.Is(err, ErrInconclusive) {
		return err
	}
	return fmt.Errorf("%w. Run it again (migrate passes over what it has done), "+
		"or give --run NAME, which survives fail-overs and moved slots", err)
}
