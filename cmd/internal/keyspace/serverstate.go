package keyspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/printable"
)

// moving are the commands that move or copy values without any program reading them, as INFO
// commandstats names them.
var moving = []string{
	"rename", "renamenx", "copy", "move", "swapdb", "restore", "restore-asking", "migrate", "sort",
	"lmove", "blmove", "rpoplpush", "brpoplpush", "smove", "sunionstore", "sinterstore", "sdiffstore",
	"zunionstore", "zinterstore", "zdiffstore", "zrangestore", "geosearchstore", "georadius", "georadiusbymember", "bitop",
}

// renaming are those of them that give a string or a hash another key while it stays on its server.
var renaming = []string{"rename", "renamenx", "copy", "move", "swapdb"}

// RenameCalls are how often the commands ran that give values other keys, and INFO, which shows
// whether the counters began anew. It is nil where a server gives no counters.
func RenameCalls(ctx context.Context, client redis.UniversalClient) map[string]int64 {
	all, err := CommandCalls(ctx, client)
	if err != nil {
		return nil
	}
	calls := map[string]int64{"info": all["info"]}
	for _, name := range renaming {
		calls[name] = all[name]
	}
	return calls
}

// Renamed compares the calls before and after a walk, which may miss what such commands move from
// names that are still to be listed to others. It returns a sentence about them, empty if none ran.
// It is an [ErrInconclusive] if a SWAPDB did, for the walk has seen parts of two databases then.
func Renamed(before, after map[string]int64) (string, error) {
	if before == nil || after == nil {
		return "", nil
	}
	if after["swapdb"] > before["swapdb"] {
		return "", fmt.Errorf("%w: SWAPDB ran meanwhile, so that parts of two databases were seen: "+
			"run it again, with --run under another name", ErrInconclusive)
	}
	var ran []string
	for _, name := range append(renaming, "info") {
		switch n := after[name] - before[name]; {
		case n < 0 || n == 0 && name == "info":
			return "the server's counters began anew, so that RENAME, COPY, MOVE and SWAPDB would not be seen", nil
		case n > 0 && name != "info":
			ran = append(ran, fmt.Sprintf("%s ran %s", strings.ToUpper(name), printable.Count(n, "time", "times")))
		}
	}
	if ran == nil {
		return "", nil
	}
	return strings.Join(ran, ", ") + " meanwhile", nil
}

// slotCommands move keys between the nodes of a cluster, whatever AcceptMoves says.
var slotCommands = []string{
	"cluster|setslot", "cluster|addslots", "cluster|addslotsrange", "cluster|delslots", "cluster|delslotsrange", "cluster|failover",
	"cluster|migrateslots", "cluster|migration", "cluster|syncslots",
}

// resetCommand makes the counters of commands start again.
const resetCommand = "config|resetstat"

// serverState is what must stay the same while a server is scanned.
type serverState struct {
	role     string
	identity [3]string // run_id, master_replid, and in a cluster its id and epochs
	former   string    // master_replid2
	slots    []bool    // that it owns, in a cluster
	calls    map[string]int64
	reset    string // the counters of resetCommand
}

// watcher looks at a server or cluster again and again while it is scanned.
type watcher struct {
	client      redis.UniversalClient
	proof       bool // that no value was missed: else what a server forbids to ask does not count
	acceptMoves bool
	last        map[string]serverState
}

// look is an error if something has happened since the last look that may hide a value from the
// scan. Without proof, only the final look is an error where a server does not answer.
func (w *watcher) look(ctx context.Context, final bool) error {
	masters, err := nodesOf(ctx, w.client)
	if err != nil {
		return inconclusive(ctx, "the servers", "", err)
	}
	now, err := statesOf(ctx, masters, w.proof)
	switch {
	case err != nil && !w.proof && !final && IsUnserved(err): // at present
		return ctx.Err()
	case err != nil:
		return err
	case w.proof:
		err = compareStates(w.last, now, w.acceptMoves)
	default:
		err = sameServers(w.last, now)
	}
	w.last = now
	return err
}

// statesOf asks masters for their states. An error says why a scan would prove nothing. Without
// proof, a state has only what a server lets the user ask for, and a single server may be a
// replica.
func statesOf(ctx context.Context, masters map[string]*redis.Client, proof bool) (map[string]serverState, error) {
	all := map[string]serverState{}
	owned, clustered := make([]bool, SlotCount), false
	for _, addr := range slices.Sorted(maps.Keys(masters)) {
		s, err := stateOf(ctx, masters[addr], proof)
		if err != nil && (proof || !IsForbidden(err)) {
			return nil, inconclusive(ctx, addr, "", err)
		}
		for slot, mine := range s.slots {
			if mine && owned[slot] {
				return nil, inconclusive(ctx, addr, "", fmt.Errorf("slot %d has two masters", slot))
			}
			owned[slot] = owned[slot] || mine
		}
		clustered = clustered || s.slots != nil
		all[addr] = s
	}
	if slot := slices.Index(owned, false); clustered && slot >= 0 {
		return nil, inconclusive(ctx, "the cluster", "", fmt.Errorf("slot %d has no master that answers", slot))
	}
	if !clustered {
		return all, nil
	}
	empty, err := withoutSlots(ctx, masters)
	if err != nil && proof {
		return nil, err
	}
	for addr, nodes := range empty {
		if _, _, err := ownSlots(nodes); err != nil {
			return nil, inconclusive(ctx, addr, "", err)
		}
	}
	return all, nil
}

// clusterInfo has the fields of a node's CLUSTER INFO.
func clusterInfo(ctx context.Context, node *redis.Client) (map[string]string, error) {
	reply, err := node.ClusterInfo(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("CLUSTER INFO: %w", Explain(err, node.Options().Username))
	}
	return Info(reply), nil
}

// stateIn is what INFO shows of a server's state.
func stateIn(info map[string]string) serverState {
	return serverState{
		role:     info["role"],
		identity: [3]string{info["run_id"], info["master_replid"]},
		former:   info["master_replid2"],
		calls:    callsIn(info),
		reset:    info[callsPrefix+resetCommand],
	}
}

func stateOf(ctx context.Context, node *redis.Client, proof bool) (s serverState, err error) {
	explain := func(err error) error { return Explain(err, node.Options().Username) }
	var sections []string
	if proof {
		sections = []string{"all"} // with the calls of commands
	}
	info, err := infoOf(ctx, node, sections...)
	if err != nil {
		return s, fmt.Errorf("INFO: %w", explain(err))
	}
	if s = stateIn(info); proof && s.role != "" && s.role != "master" {
		return s, errors.New("it is a replica, which may lag behind: give its master")
	}
	for _, name := range []string{"loading", "async_loading"} {
		if info[name] == "1" {
			return s, errors.New("it is loading its data")
		}
	}
	if info["cluster_enabled"] != "1" {
		return s, nil
	}
	nodes, err := clusterNodes(ctx, node)
	if err != nil {
		return s, err
	}
	id := ""
	if id, s.slots, err = ownSlots(nodes); err != nil {
		return s, err
	}
	fields, err := clusterInfo(ctx, node)
	if err != nil {
		return s, err
	}
	if state := fields["cluster_state"]; state != "ok" {
		return s, fmt.Errorf("the cluster's state is %q", state)
	}
	s.identity[2] = fmt.Sprintf("%s, epochs %s and %s", id, fields["cluster_my_epoch"], fields["cluster_current_epoch"])
	return s, nil
}

// ownSlots reads the line of CLUSTER NODES for the node that answered: its id and its slots. A node
// that is not a master, or with a moving slot, is an error.
func ownSlots(nodes string) (id string, slots []bool, err error) {
	fields, err := ownLine(nodes)
	if err != nil {
		return "", nil, err
	}
	if !isNode(fields, "master") {
		return "", nil, errors.New("it is no master of the cluster any more")
	}
	if moves := movesIn(fields); len(moves) > 0 {
		return "", nil, errMoving(moves[0].slot)
	}
	slots = make([]bool, SlotCount)
	for _, f := range fields[8:] {
		from, to, isRange := strings.Cut(f, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err := errors.Join(err1, err2); err != nil || first < 0 || last >= SlotCount || first > last {
			return "", nil, fmt.Errorf("CLUSTER NODES has slots %q", f)
		}
		for slot := first; slot <= last; slot++ {
			slots[slot] = true
		}
	}
	return fields[0], slots, nil
}

func errMoving(slot int) error {
	return fmt.Errorf("slot %d is moving, or its move was interrupted (redis-cli --cluster fix): "+
		"start again when the cluster is at rest", slot)
}

// ownLine has the fields of CLUSTER NODES for the node that answered: id, address, flags, slots and
// others.
func ownLine(nodes string) ([]string, error) {
	for line := range strings.Lines(nodes) {
		if fields := strings.Fields(line); len(fields) >= 8 && isNode(fields, "myself") {
			return fields, nil
		}
	}
	return nil, errors.New("CLUSTER NODES does not name the node itself")
}

// isNode reports a node with one of some flags.
func isNode(fields []string, flags ...string) bool {
	return slices.ContainsFunc(strings.Split(fields[2], ","), func(f string) bool { return slices.Contains(flags, f) })
}

// move is a slot that is being moved, as its source or its target says.
type move struct {
	slot    int
	to      string // the target's id
	arrives bool   // the target says so
}

// movesIn reads the moves of a node: "[77->-ID]" to another one, and "[93-<-ID]" from another one.
func movesIn(fields []string) (moves []move) {
	for _, f := range fields[8:] {
		if !strings.HasPrefix(f, "[") {
			continue
		}
		number, way, _ := strings.Cut(strings.Trim(f, "[]"), "-")
		slot, err := strconv.Atoi(number)
		if err != nil {
			slot = -1
		}
		if to, leaves := strings.CutPrefix(way, ">-"); leaves {
			moves = append(moves, move{slot, to, false})
		} else {
			moves = append(moves, move{slot, fields[0], true})
		}
	}
	return moves
}

// clusterNodes is a node's CLUSTER NODES.
func clusterNodes(ctx context.Context, node *redis.Client) (string, error) {
	nodes, err := node.ClusterNodes(ctx).Result()
	if err != nil {
		err = fmt.Errorf("CLUSTER NODES: %w", Explain(err, node.Options().Username))
	}
	return nodes, err
}

// withoutSlots has CLUSTER NODES of the masters without slots, by address. They may have keys of
// slots that are moved to them, and a client of the cluster does not know them. One that failed for
// good is left out: it may be a former master that is down.
func withoutSlots(ctx context.Context, masters map[string]*redis.Client) (map[string]string, error) {
	all := map[string]string{}
	for addr, node := range masters {
		nodes, err := clusterNodes(ctx, node)
		if err != nil {
			return nil, inconclusive(ctx, addr, "", err)
		}
		for line := range strings.Lines(nodes) {
			fields := strings.Fields(line)
			if len(fields) != 8 || !isNode(fields, "master") || isNode(fields, "myself", "fail", "handshake", "noaddr") {
				continue
			}
			at, _, _ := strings.Cut(fields[1], "@") // IP:PORT@PORT,NAME
			colon := strings.LastIndexByte(at, ':')
			at = net.JoinHostPort(at[:max(colon, 0)], at[colon+1:])
			m := askReplica(ctx, *node.Options(), at, true)
			if err = m.err; err == nil && m.state["role"] == "master" { // still, or after all
				all[at], err = clusterNodes(ctx, m.client)
			}
			m.close()
			if err != nil {
				return nil, inconclusive(ctx, at, "", fmt.Errorf("a master without slots: %w", err))
			}
		}
		break // all of them know the same
	}
	return all, nil
}

// failedOver reports a replication id that is another one than before by a promotion. A master
// without replicas takes a new one, too, with its next replica or after an hour, but then forgets
// its former one (master_replid2).
func failedOver(before, id, former string) bool {
	return before != "" && id != before && hasFormer(former)
}

// hasFormer reports whether a master_replid2 is that of a former master: without one it is zeros.
func hasFormer(replid string) bool { return strings.Trim(replid, "0") != "" }

// sameServers returns an error that names the change between two looks at the masters; nil if they
// are the same processes, and have the same slots.
func sameServers(before, after map[string]serverState) error {
	for _, addr := range slices.Sorted(maps.Keys(after)) {
		if _, ok := before[addr]; !ok {
			return &InconclusiveError{addr, "", errors.New("it became a master during the scan")}
		}
	}
	for _, addr := range slices.Sorted(maps.Keys(before)) {
		b := before[addr]
		a, ok := after[addr]
		switch {
		case !ok:
			return &InconclusiveError{addr, "", errors.New("it was a master before the scan, and is none after it")}
		case a.role != b.role:
			err := fmt.Errorf("its role was %q before the scan, and is %q after it", b.role, a.role)
			return &InconclusiveError{addr, "", err}
		case !slices.Equal(a.slots, b.slots):
			return &InconclusiveError{addr, "", errors.New("slots of the cluster moved during the scan")}
		}
		for i, what := range [...]string{"it was restarted", "it failed over", "its cluster changed"} {
			if a.identity[i] != b.identity[i] && (i != 1 || failedOver(b.identity[i], a.identity[i], a.former)) {
				return &InconclusiveError{addr, "", fmt.Errorf("%s during the scan: before %s, after %s", what, b.identity[i], a.identity[i])}
			}
		}
	}
	return nil
}

// compareStates returns an error that names the changes between two looks at the masters, and the
// commands meanwhile that may hide a value; nil if there are none.
func compareStates(before, after map[string]serverState, acceptMoves bool) error {
	if err := sameServers(before, after); err != nil {
		return err
	}
	for _, addr := range slices.Sorted(maps.Keys(before)) {
		a, b := after[addr], before[addr]
		switch {
		case len(a.calls) == 0:
			return &InconclusiveError{addr, "", errors.New("INFO has no commandstats, which show the commands that move values")}
		case wasReset(b, a):
			return &InconclusiveError{addr, "", errors.New("CONFIG RESETSTAT ran during the scan: its counters show the commands that move values")}
		}
		watched := slotCommands
		if !acceptMoves {
			watched = slices.Concat(slotCommands, moving)
		}
		for _, name := range watched {
			if a.calls[name] == b.calls[name] {
				continue
			}
			hint := "start again when the cluster is at rest"
			if slices.Contains(moving, name) {
				hint = "a value may have moved past the scan; if it is never used on packed values, give --accept-moves"
			}
			return &InconclusiveError{addr, "", fmt.Errorf("%s ran during the scan: %s", strings.ToUpper(strings.ReplaceAll(name, "|", " ")), hint)}
		}
	}
	return nil
}

// wasReset reports whether the counters have started again since the look before. Every counter
// must be what it was or more, and that of INFO more, because the look before was one.
func wasReset(before, after serverState) bool {
	if before.reset != after.reset || after.calls["info"] <= before.calls["info"] {
		return true
	}
	for name, n := range before.calls {
		if after.calls[name] < n {
			return true
		}
	}
	return false
}
