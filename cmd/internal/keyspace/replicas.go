package keyspace

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

// Replicas are servers to read values from in place of their masters. The names come from the
// masters, so that no key is missed: what a replica does not have yet, or refuses, is read from the
// master. They are for one reading at a time.
type Replicas struct {
	note     func(format string, args ...any)
	topology *Topology
	of       map[string]*replica // by the address of the master
}

// replica is a server that was good to read a moment ago.
type replica struct {
	client *redis.Client
	seen   time.Time
}

// replicaSeen is for how long a replica is good to read without another look at it.
var replicaSeen = 5 * time.Second

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
			r.of[n.Master] = &replica{n.Client, time.Now()}
		}
	}
	switch masters := len(topology.Nodes); masters - len(r.of) {
	case 0:
	case masters:
		note("there is no replica that can be read")
	default:
		note("%d of %d masters have no replica that can be read", masters-len(r.of), masters)
	}
	return r, nil
}

// Close closes the clients of the replicas.
func (r *Replicas) Close() error {
	if r == nil {
		return nil
	}
	return r.topology.Close()
}

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
	if time.Since(chosen.seen) < replicaSeen {
		return chosen.client
	}
	before, err := infoOf(ctx, master)
	if err != nil { // its own reading fails then
		return nil
	}
	after, err := infoOf(ctx, chosen.client)
	if err == nil {
		err = (&member{state: after}).behind(&member{state: before})
	}
	if err != nil {
		delete(r.of, master.Options().Addr)
		r.note("replica %s is not read any more: %v", chosen.client.Options().Addr, err)
		return nil
	}
	chosen.seen = time.Now()
	return chosen.client
}

// doubt looks at the replica of a master before it is read again.
func (r *Replicas) doubt(master *redis.Client) { r.of[master.Options().Addr].seen = time.Time{} }
