package keyspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// SlotProof proves, a range of slots at a time, that values do not refer to dictionaries. Slots may
// move and masters fail over meanwhile.
//
// A command of a cluster gives a value another key of its slot only. So it may hide the value only
// while this slot is read: from the list of its keys to the last of them. If one runs in this time,
// as the counters of the server tell, the slot is read again. RESTORE alone brings a value to
// another slot: see [SlotProof.Check].
type SlotProof struct {
	ReferenceOptions
	Client *redis.ClusterClient
	Pacer  *Pacer // in place of Pace

	// Begun is what the masters had before anything was read: see [SlotProof.Start].
	Begun []Standing
}

// Standing is what a master had: how much of its replication.
type Standing struct {
	Served
	Offset int64 `json:"offset"`

	// Restores is how often RESTORE ran. Processed and Reset are the commands that ran at all, and
	// what is counted of CONFIG RESETSTAT (since Redis 7): they show whether the counters began anew.
	Restores  int64  `json:"restores"`
	Processed int64  `json:"processed"`
	Reset     string `json:"reset,omitempty"`
}

// Read looks at the values of some slots, and adds to what was found. It returns the place that it
// has come to, and what the masters that it read had in the end.
func (p *SlotProof) Read(
	ctx context.Context, slots Slots, found *References,
) (place Place, read []Standing, err error) {
	part := found.part()
	scan := &referenceScan{ReferenceOptions: p.ReferenceOptions, pacer: p.Pacer, found: part}
	scan.Proof = true
	options := scan.places([]Place{{Slots: &slots}}, func(places []Place) error {
		place = places[0]
		return nil
	})
	options.steady = p.steady(scan, part)
	if err := ReadValues(ctx, p.Client, options); err != nil {
		return place, nil, err
	}
	now, err := p.standings(ctx)
	if err == nil {
		err = p.restored(now)
	}
	if err != nil {
		return place, nil, err
	}
	for _, s := range place.Servers {
		i := slices.IndexFunc(now, func(m standing) bool { return m.sameAs(s) })
		if i < 0 {
			err := errors.New("it was restarted or failed over while its slots were read")
			return place, nil, inconclusive(ctx, s.Addr, "", err)
		}
		read = append(read, now[i].Standing)
	}
	found.Merge(part)
	return place, read, nil
}

// standing is a master as it is.
type standing struct {
	Standing
	former string // master_replid2
	upTo   int64  // second_repl_offset: what the former master had before it is here
}

// sameAs reports the same process, which did not fail over to another and back.
func (m *standing) sameAs(s Served) bool {
	return m.RunID == s.RunID && !failedOver(s.ReplID, m.ReplID, m.former)
}

// has reports a master that has all that another one had: the same process, or one that followed it
// that far, as its former replication id tells. It does not share what begins at upTo.
func (m *standing) has(s Standing) bool {
	return m.sameAs(s.Served) || m.former == s.ReplID && m.upTo > s.Offset
}

// standings are those of all masters at present.
func (p *SlotProof) standings(ctx context.Context) (all []standing, err error) {
	masters, err := nodesOf(ctx, p.Client)
	if err != nil {
		return nil, err
	}
	for _, addr := range slices.Sorted(maps.Keys(masters)) {
		info, err := infoOf(ctx, masters[addr], "all") // with the calls of commands
		if err != nil {
			return nil, inconclusive(ctx, addr, "", fmt.Errorf("INFO: %w", Explain(err, UserOf(masters[addr]))))
		}
		state := stateIn(info)
		if state.role != "master" {
			return nil, inconclusive(ctx, addr, "", errors.New("it is no master any more"))
		}
		for _, number := range databasesIn(info) {
			if number > 0 {
				err := fmt.Errorf("db%d has keys, too, and a shared run looks at db0: leave out --run", number)
				return nil, inconclusive(ctx, addr, "", err)
			}
		}
		m := standing{former: state.former}
		m.Served = Served{addr, state.identity[0], state.identity[1]}
		m.Restores, m.Reset = state.calls["restore"], state.reset
		m.Processed, _ = strconv.ParseInt(info["total_commands_processed"], 10, 64)
		if state.calls["info"] == 0 {
			m.Processed = -1 // the calls are not shown
		}
		m.Offset, _ = strconv.ParseInt(info["master_repl_offset"], 10, 64)
		m.upTo, _ = strconv.ParseInt(info["second_repl_offset"], 10, 64)
		all = append(all, m)
	}
	return all, nil
}

// Start is what the masters have before anything is read, for [SlotProof.Check].
func (p *SlotProof) Start(ctx context.Context) (all []Standing, err error) {
	now, err := p.standings(ctx)
	for _, m := range now {
		all = append(all, m.Standing)
	}
	return all, err
}

var (
	errLacks = errors.New("it was restarted, left the cluster, or failed over to a server that may lack " +
		"what it had: start again under another --run NAME")
	errReset    = errors.New("its counters of commands began anew, or are not shown, and tell whether RESTORE ran")
	errRestored = errors.New("RESTORE ran during the scan, or before it became a master, so a value may have " +
		"moved past the scan. If it never restores packed values, give --accept-moves")
)

// Check has the last word when all slots are read. It is an [InconclusiveError] in two cases. A
// master that was read failed over to a server that lacked some of what it had: older values may be
// back. Or RESTORE ran anywhere, unless AcceptMoves.
func (p *SlotProof) Check(ctx context.Context, read []Standing) error {
	now, err := p.standings(ctx)
	if err != nil {
		return err
	}
	for _, s := range slices.Concat(p.Begun, read) {
		if !slices.ContainsFunc(now, func(m standing) bool { return m.has(s) }) {
			return &InconclusiveError{s.Addr, "", errLacks}
		}
	}
	return p.restored(now)
}

// restored is an error if RESTORE may have run since the start. Of a new master nothing is known:
// what it did as a replica counts.
func (p *SlotProof) restored(now []standing) error {
	if p.AcceptMoves {
		return nil
	}
	for _, m := range now {
		var begun Standing
		if i := slices.IndexFunc(p.Begun, func(s Standing) bool { return s.RunID == m.RunID }); i >= 0 {
			begun = p.Begun[i]
		} else {
			begun.Reset = m.Reset
		}
		switch {
		case m.Restores > begun.Restores:
			return &InconclusiveError{m.Addr, "", errRestored}
		case m.Restores < begun.Restores || m.Processed < begun.Processed || m.Processed < 0 || m.Reset != begun.Reset:
			return &InconclusiveError{m.Addr, "", errReset}
		}
	}
	return nil
}

// steady returns what watches masters while keys of a slot are listed and read, and adds what the
// scan found to all of it, once. What that returns is an error if a value may have been missed:
// errMeanwhile if the slot was moved, perhaps there and back. What is seen after a slot is what is
// seen before the next one.
func (p *SlotProof) steady(
	scan *referenceScan, all *References,
) func(context.Context, ...*redis.Client) (func() error, error) {
	last := map[*redis.Client]serverState{}
	return func(ctx context.Context, nodes ...*redis.Client) (_ func() error, err error) {
		for _, node := range nodes {
			if _, seen := last[node]; !seen {
				if last[node], err = counters(ctx, node); err != nil {
					return nil, err
				}
			}
		}
		scan.found = all.part()
		scan.chase = len(nodes) > 1 // of a slot that moves, both sides are watched
		return func() error {
			var missed error
			for _, node := range nodes {
				before, after := last[node], serverState{}
				if after, err = counters(ctx, node); err != nil {
					return err
				}
				last[node] = after
				if err := p.missed(before, after); err != nil {
					missed = inconclusive(ctx, node.Options().Addr, "", err)
				}
			}
			if missed == nil {
				all.Merge(scan.found)
			}
			return missed
		}, nil
	}
}

// missed is an error if a value of a slot may have been missed between two looks at its master.
func (p *SlotProof) missed(before, after serverState) error {
	switch {
	case after.identity != before.identity:
		return errMeanwhile
	case p.AcceptMoves:
		return nil
	case len(after.calls) == 0:
		return errors.New("INFO has no commandstats, which show the commands that move values")
	case wasReset(before, after):
		return fmt.Errorf("%w: CONFIG RESETSTAT ran", errMeanwhile)
	}
	for _, name := range moving {
		ofSlots := name == "migrate" || name == "restore" || name == "restore-asking"
		if !ofSlots && after.calls[name] != before.calls[name] {
			return fmt.Errorf("%w: %s ran; if it is never used on packed values, give --accept-moves",
				errMeanwhile, strings.ToUpper(name))
		}
	}
	return nil
}

// counters are the calls of a master, and its epoch, which is another one when it gets back a slot.
func counters(ctx context.Context, node *redis.Client) (s serverState, err error) {
	var stats, cluster *redis.StringCmd
	_, err = node.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		stats, cluster = pipe.Info(ctx, "commandstats"), pipe.ClusterInfo(ctx)
		return nil
	})
	if err != nil {
		return s, inconclusive(ctx, node.Options().Addr, "", fmt.Errorf("INFO, CLUSTER INFO: %w", Explain(err, UserOf(node))))
	}
	s = stateIn(Info(stats.Val()))
	s.identity[2] = Info(cluster.Val())["cluster_my_epoch"]
	return s, nil
}

// ReadReferences looks at the values of some places, and adds to what was found. It is for a part
// of a scan that proves nothing; [SlotProof.Read] is for one that does.
func ReadReferences(
	ctx context.Context, client redis.UniversalClient, places []Place, o ReferenceOptions, pacer *Pacer,
	found *References, page func([]Place) error,
) error {
	s := &referenceScan{ReferenceOptions: o, pacer: pacer, found: found, chase: true}
	return ReadValues(ctx, client, s.places(places, page))
}

// places reads the keys of some places.
func (s *referenceScan) places(places []Place, page func([]Place) error) ValuesOptions {
	return ValuesOptions{
		Match: []string{s.Match}, Skip: s.Skip, Pacer: s.pacer, Places: places,
		Page: func(places []Place, _ Looked) error { return page(places) },
		Names: func(ctx context.Context, c redis.UniversalClient, names []string) ([]string, error) {
			moved, err := s.page(ctx, c, "the cluster", names, true)
			if err == nil && !s.chase && len(moved) > 0 {
				err = errMeanwhile
			}
			return moved, err
		},
	}
}
