package keyspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

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

// Standing is what a master had: how much of its replication. A replica's has only the counters.
type Standing struct {
	Served
	Offset int64 `json:"offset"`

	// Moves is how often commands ran that move a value to another slot, or to another database and
	// back: RESTORE, MOVE, and COPY where the server has several databases. Processed and Reset are
	// the commands that ran at all, and what is counted of CONFIG RESETSTAT (since Redis 7): they
	// show whether the counters began anew.
	Moves     int64  `json:"moves"`
	Processed int64  `json:"processed"`
	Reset     string `json:"reset,omitempty"`

	Replica bool `json:"replica,omitempty"`
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
	if err == nil && slices.ContainsFunc(now, p.promoted) {
		err = p.moves(ctx, func(m move) bool { return slots.From <= m.slot && m.slot < slots.To })
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
	shown  bool   // the calls of commands
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
		m, info, err := standingOf(ctx, masters[addr])
		if err != nil {
			return nil, inconclusive(ctx, addr, "", err)
		}
		if info["role"] != "master" {
			return nil, inconclusive(ctx, addr, "", errors.New("it is no master any more"))
		}
		for _, number := range databasesIn(info) {
			if number > 0 {
				err := fmt.Errorf("db%d has keys, too, and a shared run looks at db0: leave out --run", number)
				return nil, inconclusive(ctx, addr, "", err)
			}
		}
		all = append(all, m)
	}
	return all, nil
}

// standingOf asks a server.
func standingOf(ctx context.Context, node *redis.Client) (m standing, info map[string]string, err error) {
	info, err = infoOf(ctx, node, "all") // with the calls of commands
	if err != nil {
		return m, nil, fmt.Errorf("INFO: %w", Explain(err, UserOf(node)))
	}
	state := stateIn(info)
	m.former, m.shown = state.former, state.calls["info"] > 0
	m.Served = Served{node.Options().Addr, state.identity[0], state.identity[1]}
	m.Moves, m.Reset = state.calls["restore"]+state.calls["move"], state.reset
	if copies := state.calls["copy"]; copies > 0 {
		several, err := hasDatabases(ctx, node)
		if err != nil {
			return m, nil, err
		}
		if several {
			m.Moves += copies
		}
	}
	m.Processed, _ = strconv.ParseInt(info["total_commands_processed"], 10, 64)
	m.Offset, _ = strconv.ParseInt(info["master_repl_offset"], 10, 64)
	m.upTo, _ = strconv.ParseInt(info["second_repl_offset"], 10, 64)
	return m, info, nil
}

// hasDatabases reports whether a node of a cluster may have more databases than one: Valkey 9 does
// by the setting cluster-databases. A refusal by access control tells nothing.
func hasDatabases(ctx context.Context, node *redis.Client) (bool, error) {
	var second *redis.StatusCmd
	_, err := node.TxPipelined(ctx, func(p redis.Pipeliner) error {
		second = p.Select(ctx, 1)
		p.Select(ctx, 0)
		return nil
	})
	if err != nil && !IsReply(err) {
		return false, fmt.Errorf("SELECT: %w", err)
	}
	return second.Err() == nil || !strings.HasPrefix(second.Err().Error(), "ERR "), nil
}

// Start is what the servers have before anything is read, for [SlotProof.Check]. A replica that is
// not in step, or does not answer, is left out.
func (p *SlotProof) Start(ctx context.Context) (all []Standing, err error) {
	now, err := p.standings(ctx)
	if err != nil {
		return nil, err
	}
	for _, m := range now {
		all = append(all, m.Standing)
	}
	var lock sync.Mutex
	err = p.Client.ForEachSlave(ctx, func(ctx context.Context, node *redis.Client) error {
		probing, cancel := context.WithTimeout(ctx, probeWithin)
		defer cancel()
		r, info, err := standingOf(probing, node)
		if err == nil && info["master_link_status"] == "up" {
			lock.Lock()
			defer lock.Unlock()
			r.Served, r.Replica = Served{RunID: r.RunID}, true // a run keeps all of them
			all = append(all, r.Standing)
		}
		return ctx.Err()
	})
	if err == nil {
		err = p.moves(ctx, func(move) bool { return false })
	}
	return all, err
}

var (
	errLacks = errors.New("it was restarted, left the cluster, or failed over to a server that may lack " +
		"what it had: start again under another --run NAME")
	errReset = errors.New("its counters of commands began anew, are not shown, or were not known at the start, " +
		"and they tell whether RESTORE ran: start again under another --run NAME, or give --accept-moves if it " +
		"never restores packed values")
	errRestored = errors.New("RESTORE ran during the scan, or MOVE or COPY between databases, so a value may have " +
		"moved past the scan. If they never move packed values, give --accept-moves")
)

// Check has the last word when all slots are read. It is an [InconclusiveError] in three cases. A
// master that was read failed over to a server that lacked some of what it had: older values may be
// back. RESTORE ran anywhere, unless AcceptMoves. Or a slot is moving: see [SlotProof.moves].
func (p *SlotProof) Check(ctx context.Context, read []Standing) error {
	now, err := p.standings(ctx)
	if err != nil {
		return err
	}
	for _, s := range slices.Concat(p.Begun, read) {
		if !s.Replica && !slices.ContainsFunc(now, func(m standing) bool { return m.has(s) }) {
			return &InconclusiveError{s.Addr, "", errLacks}
		}
	}
	if err := p.moves(ctx, func(move) bool { return true }); err != nil {
		return err
	}
	return p.restored(now)
}

// promoted reports a master that was none at the start, or was not all the time.
func (p *SlotProof) promoted(m standing) bool {
	stayed := slices.ContainsFunc(p.Begun, func(s Standing) bool { return !s.Replica && m.sameAs(s.Served) })
	return !stayed && hasFormer(m.former)
}

// moves is an error if a slot is moving that matters, or one whose source does not know that it is.
// Before Valkey 8, a fail-over of the source forgets the move: the new master answers as if it had
// the whole slot. The keys that have left are back when redis-cli --cluster fix ends the move.
func (p *SlotProof) moves(ctx context.Context, matters func(move) bool) error {
	masters, err := nodesOf(ctx, p.Client)
	if err != nil {
		return err
	}
	all, err := withoutSlots(ctx, masters)
	if err != nil {
		return err
	}
	for addr, node := range masters {
		if all[addr], err = clusterNodes(ctx, node); err != nil {
			return inconclusive(ctx, addr, "", err)
		}
	}
	leaving, arriving := map[move]bool{}, map[move]string{}
	for addr, nodes := range all {
		fields, err := ownLine(nodes)
		if err != nil {
			return inconclusive(ctx, addr, "", err)
		}
		for _, m := range movesIn(fields) {
			if matters(m) {
				return inconclusive(ctx, addr, "", errMoving(m.slot))
			}
			if m.arrives {
				arriving[m] = addr
			} else if masters[addr] != nil { // no former master
				leaving[m] = true
			}
		}
	}
	for m, addr := range arriving {
		if !leaving[move{m.slot, m.to, false}] {
			return inconclusive(ctx, addr, "", errMoving(m.slot))
		}
	}
	return nil
}

// restored is an error if RESTORE may have run since the start. A replica counts what it gets from
// its master, except in a full synchronization. So a master by a fail-over must have been a replica
// in step at the start. Any other new one joined empty: it has no former master, or one that stays.
func (p *SlotProof) restored(now []standing) error {
	if p.AcceptMoves {
		return nil
	}
	for _, m := range now {
		var begun Standing
		i := slices.IndexFunc(p.Begun, func(s Standing) bool { return s.RunID == m.RunID })
		isFormer := func(o standing) bool { return o.ReplID == m.former }
		if i >= 0 {
			begun = p.Begun[i]
		} else if hasFormer(m.former) && !slices.ContainsFunc(now, isFormer) {
			return &InconclusiveError{m.Addr, "", errReset}
		}
		switch {
		case m.Moves > begun.Moves:
			return &InconclusiveError{m.Addr, "", errRestored}
		case m.Moves < begun.Moves || m.Processed < begun.Processed || m.Reset != begun.Reset || !m.shown:
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
	options := s.places(places, page)
	options.steady = func(context.Context, ...*redis.Client) (func() error, error) {
		s.found = found.part() // a slot counts once, however often it is read
		return func() error { found.Merge(s.found); return nil }, nil
	}
	return ReadValues(ctx, client, options)
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
