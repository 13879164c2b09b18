package keyspace

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/printable"
)

// Replicas are servers to read values from in place of their masters. One is read once it has what
// its master had written when the Replicas were made. The names come from the masters, so that no
// key is missed: what a replica does not have, or refuses, is read from the master. Replicas are
// for one reading at a time.
type Replicas struct {
	note     func(format string, args ...any)
	topology *Topology
	of       map[string]*replica // by the address of the master
}

// replica is a server that was good to read a moment ago.
type replica struct {
	client *redis.Client
	needs  int64     // the offset from which on it is read
	has    bool      // it has reached that
	asked  time.Time // for its state
	failed int       // readings
}

// replicaSeen is for how long a replica is good to read without another look at it.
var replicaSeen = 5 * time.Second

const (
	replicaAwaited = 200 * time.Millisecond // for one that lacks something: at first, and between two looks at it
	replicaFails   = 3                      // readings, before it is not read any more
)

// NewReplicas chooses the replicas of a client's masters by the rules of [Nodes]. Those of a single
// master get the user and password, too. Note gets why a replica is not read, or not any more. The
// caller closes the result; the client remains the caller's.
func NewReplicas(
	ctx context.Context, client redis.UniversalClient, note func(format string, args ...any),
) (*Replicas, error) {
	topology, err := Nodes(ctx, client, true)
	if err != nil {
		return nil, err
	}
	for _, text := range topology.Notes {
		note("%s", text)
	}
	r := &Replicas{note, topology, map[string]*replica{}}
	for _, n := range topology.Nodes {
		if n.Addr != n.Master {
			r.of[n.Master] = &replica{client: n.Client, needs: n.written}
		}
	}
	note("values are read from %s, and those of %s without a good one from themselves",
		printable.Count(len(r.of), "replica", "replicas"), printable.Count(len(topology.Nodes)-len(r.of), "master", "masters"))
	return r, nil
}

// Close closes the clients of the replicas.
func (r *Replicas) Close() error { return r.topology.Close() }

// instead is who to read the values of a master's keys from, nil for the master itself. A replica
// that has fallen behind is not read any more.
func (r *Replicas) instead(ctx context.Context, master *redis.Client) *redis.Client {
	if r == nil {
		return nil
	}
	chosen := r.of[master.Options().Addr]
	if chosen == nil {
		return nil
	}
	switch since := time.Since(chosen.asked); {
	case chosen.has && since < replicaSeen:
		return chosen.client
	case !chosen.has && since < replicaAwaited:
		return nil
	}
	before, err := infoOf(ctx, master)
	if err != nil { // its own reading fails then
		return nil
	}
	patience := time.Time{}
	if chosen.asked.IsZero() { // mostly it has all within milliseconds
		patience = time.Now().Add(replicaAwaited)
	}
	for {
		after, err := infoOf(ctx, chosen.client)
		state := &member{state: after}
		if err == nil {
			err = state.behind(&member{state: before})
		}
		if err != nil {
			r.drop(master, err)
			return nil
		}
		chosen.asked = time.Now()
		if chosen.has = chosen.has || state.offset("slave_repl_offset") >= chosen.needs; chosen.has {
			return chosen.client
		}
		if chosen.asked.After(patience) || sleep(ctx, firstSettling) != nil {
			return nil
		}
	}
}

// drop reads a master itself from now on.
func (r *Replicas) drop(master *redis.Client, err error) {
	addr := master.Options().Addr
	r.note("replica %s is not read any more: %v", r.of[addr].client.Options().Addr, err)
	delete(r.of, addr)
}

// doubt looks at the replica of a master before it is read again after an error.
func (r *Replicas) doubt(master *redis.Client, err error) {
	chosen := r.of[master.Options().Addr]
	chosen.asked = time.Time{}
	if chosen.failed++; chosen.failed == replicaFails {
		r.drop(master, err)
	}
}
