package dictops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/fleet"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/registry"
)

// settings are what all workers of a shared scan agree on.
type settings struct {
	Apply       bool     `json:"apply,omitempty"`
	SkipTypes   []string `json:"skip-type,omitempty"`
	AcceptMoves bool     `json:"accept-moves,omitempty"`
	Prefix      string   `json:"prefix"`
}

const (
	// mostRead is how many masters a unit of up to 16 slots is read from at most, also as they move.
	mostRead = 32

	longestStanding = 512 // bytes of a master's texts

	mostCandidates = 768 << 10 // bytes of the dictionaries that may go, as JSON: the run keeps 1 MiB
)

// counted is what a part of a shared scan found.
type counted struct {
	Found *keyspace.References `json:"found"`
	Read  []keyspace.Standing  `json:"read,omitempty"` // the masters, for a proof
}

// UnmarshalJSON reads the state of a unit.
func (c *counted) UnmarshalJSON(text []byte) error {
	type plain counted
	if err := json.Unmarshal(text, (*plain)(c)); err != nil {
		return err
	}
	if len(c.Read) > mostRead {
		return fmt.Errorf("%d masters, must be at most %d", len(c.Read), mostRead)
	}
	for _, s := range c.Read {
		if n := len(s.Addr) + len(s.RunID) + len(s.ReplID) + len(s.Reset); n > longestStanding {
			return fmt.Errorf("a master with texts of %d bytes, must have at most %d", n, longestStanding)
		}
	}
	return nil
}

// join makes or joins the run of a shared scan.
func join(ctx context.Context, r *registry.Registry, o Options, command string) (*fleet.Run, error) {
	_, cluster := r.Client().(*redis.ClusterClient)
	switch {
	case len(r.Servers) > 1:
		return nil, fmt.Errorf("%w: --run shares the scan of one cluster, and --redis names %d servers: leave it out",
			cli.ErrUsage, len(r.Servers))
	case !cluster:
		return nil, fmt.Errorf("%w: --run shares the scan of a cluster, and %s is none: leave it out",
			cli.ErrUsage, r.Servers[0].Name)
	}
	if err := r.WarnOfDenied(ctx, keyspace.ServerInfo, keyspace.MemoryUsage); err != nil {
		return nil, err
	}
	return fleet.JoinWalk(ctx, r, o.Run.Name, command, settings{o.Apply, o.SkipTypes, o.AcceptMoves, r.Prefix})
}

// share scans a cluster with the other workers of a run. With a proof, check has the last word on
// it.
func share(
	ctx context.Context, r *registry.Registry, run *fleet.Run, rate int, o keyspace.ReferenceOptions,
) (found *keyspace.References, check func(context.Context) error, err error) {
	cluster := r.Client().(*redis.ClusterClient)
	proof := keyspace.SlotProof{ReferenceOptions: o, Client: cluster, Pacer: r.Pacer}
	if o.Proof {
		if proof.Begun, err = fleet.Once(ctx, run, "standing", proof.Start); err != nil {
			return nil, nil, err
		}
	}
	empty := func() *counted { return &counted{Found: keyspace.NewReferences(o.Known)} }
	w := fleet.Walk[counted]{
		Registry: r, New: empty, Rate: rate,
		Merge: func(all, part *counted) {
			if part.Found != nil {
				all.Found.Merge(part.Found)
			}
			all.Read = append(all.Read, part.Read...)
		},
		Pass: func(
			ctx context.Context, place keyspace.Place, c *counted, page func([]keyspace.Place) error,
		) error {
			switch {
			case place.Done:
				return nil
			case !o.Proof:
				return keyspace.ReadReferences(ctx, cluster, []keyspace.Place{place}, o, r.Pacer, c.Found, page)
			}
			place, read, err := proof.Read(ctx, *place.Slots, c.Found)
			if err != nil {
				return err
			}
			c.Read = append(c.Read, read...)
			return page([]keyspace.Place{place})
		},
	}
	all := empty()
	err = w.Share(ctx, run, all)
	return all.Found, func(ctx context.Context) error { return proof.Check(ctx, all.Read) }, err
}

// listShared counts references with the other workers of a run.
func listShared(
	ctx context.Context, r *registry.Registry, o Options, options keyspace.ReferenceOptions,
) (*keyspace.References, error) {
	run, err := join(ctx, r, o, "dict list --scan")
	if err != nil {
		return nil, err
	}
	refs, _, err := share(ctx, r, run, o.Run.Rate, options)
	return refs, err
}

// oldestProof is how long what a run has read counts: values come from elsewhere, too, by commands
// that no counter tells from others.
const oldestProof = 3 * 24 * time.Hour

// agreed is what the first worker of a gc found in the registry.
type agreed struct {
	May    []candidate `json:"may,omitempty"` // go
	Groups int         `json:"groups"`
	Kept   []string    `json:"kept,omitempty"`
	More   int         `json:"more,omitempty"`
}

// fitting is how many candidates a run keeps.
func fitting(all []candidate) int {
	size := 0
	for i, c := range all {
		text, _ := json.Marshal(c) // which has been JSON before
		if size += len(text) + 1; size > mostCandidates {
			return i
		}
	}
	return len(all)
}

// gcShared is [GC] of what the first worker of a run found. One of them removes, and only once:
// what has been read is not looked at again.
func gcShared(ctx context.Context, r *registry.Registry, o Options) (*Removal, error) {
	run, err := join(ctx, r, o, "dict gc")
	if err != nil {
		return nil, err
	}
	found, err := fleet.Once(ctx, run, "candidates", func(ctx context.Context) (a agreed, err error) {
		l := &Removal{}
		a.May, err = candidates(ctx, r, l)
		a.Groups, a.Kept, a.More = l.groups, l.kept, l.more
		if n := fitting(a.May); n < len(a.May) {
			rand.Shuffle(len(a.May), func(i, j int) { a.May[i], a.May[j] = a.May[j], a.May[i] }) // or the others never had their turn
			a.May = a.May[:fitting(a.May)]
			r.Notef("more than %d dictionaries may go: this gc looks at so many of them; run it again under another --run NAME", len(a.May))
		}
		return a, err
	})
	if err != nil {
		return nil, err
	}
	l := &Removal{groups: found.Groups, kept: found.Kept, more: found.More}
	if len(found.May) == 0 {
		return l, run.Set(ctx, fleet.Aborted) // nothing is scanned
	}
	if err := allScanned(ctx, r); err != nil {
		return nil, err
	}
	refs, check, err := share(ctx, r, run, o.Run.Rate, o.Proof.options(idsOf(found.May)))
	if err != nil {
		return nil, err
	}
	all, err := fleet.Once(ctx, run, "removed", func(ctx context.Context) ([]removed, error) {
		l.all = nil
		if age := time.Since(run.Started); age > oldestProof {
			return nil, fmt.Errorf("this run began %v ago, too long for a proof: start gc again under another --run NAME",
				age.Round(time.Hour))
		}
		if err := errors.Join(check(ctx), allScanned(ctx, r)); err != nil { // a program may have joined
			return nil, err
		}
		err := o.collect(ctx, r, found.May, refs, l)
		return l.all, err
	})
	if err == nil {
		l.all, l.keys = all, refs.Keys
	}
	return l.known(err)
}
