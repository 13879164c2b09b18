package keyspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/internal/glob"
)

// SlotCount is how many slots a Redis Cluster has.
const SlotCount = 16384

// Slots are those from From up to To, without To.
type Slots struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// Served is a master that keys were listed on.
type Served struct {
	Addr  string `json:"addr"`
	RunID string `json:"run_id,omitempty"` // empty where INFO is forbidden, like ReplID

	// ReplID is another one after a fail-over, also to another server and back.
	ReplID string `json:"replid,omitempty"`
}

const (
	// mostListed is how many keys of a slot are listed by one command. CLUSTER GETKEYSINSLOT has no
	// cursor, and takes a server 0.1 to 0.2 µs a key. A list is some times longer than the one before,
	// whose names tell how large it will be. Before Redis 7.4 and Valkey 8, a writer chooses the order
	// of names, and can hide long ones behind short ones. There a list has a page more, and fewer keys
	// in all. The keys of a slot that has more take CLUSTERSCAN, or a SCAN of the whole server.
	mostListed      = 100_000
	mostListedOfOld = 10_000
	longerBy        = 4

	settleWithin  = 10 * time.Second // for a slot to have one owner, and for replicas to catch up
	firstSettling = 5 * time.Millisecond
	lastSettling  = 500 * time.Millisecond
)

// probes has a key of each slot that nobody writes: whether it is redirected tells whose the slot
// is.
var probes = sync.OnceValue(func() []string {
	all := make([]string, SlotCount)
	for i, left := 0, SlotCount; left > 0; i++ {
		tag := strconv.FormatInt(int64(i), 36)
		if slot := slotOf(tag); all[slot] == "" {
			all[slot] = "{" + tag + "}:" + probeKey
			left--
		}
	}
	return all
})

// slotOf is the slot of a hash tag: CRC16 of XMODEM (Redis Cluster specification, appendix A).
func slotOf(tag string) int {
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % SlotCount
}

// keySlot is the slot of a key: of what stands between its first { and the next }, if that is
// something.
func keySlot(key string) int {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	return slotOf(key)
}

// slots reads the rest of a place that is a range of slots. Slots may be moved meanwhile: a key
// that is there from before its slot is listed until it is read is not missed. A list counts if the
// server owned the whole slot. Of a slot that is being moved, the lists of both servers count.
func (r *valueReader) slots(p *Place) (Next, error) {
	cluster, ok := r.client.(*redis.ClusterClient)
	if !ok {
		return Stop, fmt.Errorf("slots %d to %d: a %T has none", p.Slots.From, p.Slots.To-1, r.client)
	}
	from, to := p.Slots.From, p.Slots.To
	if from < 0 || from >= to || to > SlotCount {
		return Stop, fmt.Errorf("slots from %d up to %d: a cluster has those from 0 up to %d", from, to, SlotCount)
	}
	if p.Cursor == 0 {
		p.Cursor = uint64(from)
	}
	if !p.Done && (p.Cursor < uint64(from) || p.Cursor >= uint64(to)) {
		return Stop, fmt.Errorf("slots from %d up to %d: slot %d is none of them", from, to, p.Cursor)
	}
	for !p.Done {
		end, next, err := r.slot(cluster, p, int(p.Cursor))
		if err != nil || next != More {
			return next, err
		}
		p.Cursor = uint64(end)
		p.Done = end >= p.Slots.To
		if err := r.paged(); err != nil {
			return Stop, err
		}
	}
	return More, nil
}

// slot reads the keys of a slot, again if it was moved while they were listed. It may also read the
// slots that follow, up to end.
func (r *valueReader) slot(c *redis.ClusterClient, p *Place, slot int) (end int, next Next, err error) {
	var last error
	var node *redis.Client // that was named as the owner
	for start, wait := time.Now(), firstSettling; time.Since(start) < settleWithin; wait = min(2*wait, lastSettling) {
		err := r.ctx.Err()
		if node == nil && err == nil {
			node, err = c.MasterForKey(r.alive, probes()[slot])
		}
		if err != nil {
			return slot, Stop, err
		}
		end, next, err = r.owned(node, p, slot)
		if redis.HasErrorPrefix(err, "ASK") {
			end = slot + 1
			next, err = r.halves(c, node, p, slot, err)
		}
		if err == nil || !unsettled(err) {
			return end, next, err
		}
		last = err
		c.ReloadState(r.alive) // in its own time: a slot may be moved again before
		if node, err = redirected(r.alive, c, err); err != nil {
			return slot, Stop, err
		}
		if err := sleep(r.ctx, wait); err != nil {
			return slot, Stop, err
		}
	}
	return slot, Stop, fmt.Errorf("slot %d: %w", slot, last)
}

// redirected is the master that a redirection names, nil if it is none of those that the client
// knows.
func redirected(ctx context.Context, c *redis.ClusterClient, err error) (*redis.Client, error) {
	if !IsMoved(err) {
		return nil, nil
	}
	masters, failed := nodesOf(ctx, c)
	return masters[destination(err)], failed
}

// destination is the address that a redirection names: "MOVED 3999 127.0.0.1:6381".
func destination(err error) string {
	text := err.Error()
	return text[strings.LastIndexByte(text, ' ')+1:]
}

// errMeanwhile says that a slot was moved while its keys were listed, or that a command may have
// hidden some.
var errMeanwhile = errors.New("it changes again and again while it is read")

// unsettled reports an error that passes when the cluster has agreed.
func unsettled(err error) bool {
	return IsMoved(err) || errors.Is(err, errMeanwhile) || redis.HasErrorPrefix(err, "CLUSTERDOWN") ||
		redis.HasErrorPrefix(err, "LOADING") || redis.HasErrorPrefix(err, "MASTERDOWN")
}

// IsUnserved reports an error of a server that cannot be reached, or serves nobody at present.
func IsUnserved(err error) bool {
	_, ofNet := errors.AsType[net.Error](err)
	return ofNet || errors.Is(err, io.EOF) || errors.Is(err, redis.ErrPoolTimeout) || err != nil && unsettled(err)
}

// owned reads the keys of a slot that a server owns, and none of which is being moved. The list is
// made in a transaction with a key that is not there: a server redirects that where the slot is not
// its own, or is being moved. If the keys are too many for a list, it reads those of the slots that
// follow, too, up to end.
func (r *valueReader) owned(node *redis.Client, p *Place, slot int) (end int, next Next, err error) {
	end = slot + 1
	steady, err := r.watched(node)
	if err != nil {
		return end, Stop, err
	}
	keys, more, err := r.list(node, p, slot, true)
	if err != nil {
		return end, Stop, err
	}
	if !more {
		if next, err = r.some(node, keys); err == nil && len(keys) > 0 {
			err = steady()
		}
		return end, next, err
	}
	before, err := epoch(r.alive, node)
	if err != nil {
		return end, Stop, err
	}
	if end, next, err = r.large(node, slot, p.Slots.To); err != nil || next != More {
		return end, next, err
	}
	if still, err := r.owns(node, slot, end); err != nil || still < end {
		return end, Stop, cmp.Or(err, errMeanwhile)
	}
	if after, err := epoch(r.alive, node); err != nil || after != before { // it may have gone, and come back
		return end, Stop, cmp.Or(err, errMeanwhile)
	}
	return end, More, steady()
}

// watched begins to watch servers, if that is asked for.
func (r *valueReader) watched(nodes ...*redis.Client) (steady func() error, err error) {
	if r.steady == nil {
		return func() error { return nil }, nil
	}
	return r.steady(r.alive, nodes...)
}

// owns returns up to which slot a server owns all from one on, and none is being moved. It is the
// server's error if that is not the first.
func (r *valueReader) owns(node *redis.Client, from, to int) (end int, err error) {
	asked := make([]*redis.IntCmd, 0, to-from)
	_, err = node.Pipelined(r.alive, func(p redis.Pipeliner) error {
		for _, probe := range probes()[from:to] {
			asked = append(asked, p.Exists(r.alive, probe))
		}
		return nil
	})
	if err != nil && !IsReply(err) {
		return from, err
	}
	for i, a := range asked {
		if err := a.Err(); err != nil && i == 0 {
			return from, err
		} else if err != nil {
			return from + i, nil
		}
	}
	return to, nil
}

// halves reads the keys of a slot that is being moved: first those that its owner still has, then
// those that have arrived. The client asks for these by way of the owner: a replica that takes over
// may know nothing of the move, and answers that there are none.
func (r *valueReader) halves(c *redis.ClusterClient, source *redis.Client, p *Place, slot int, ask error) (Next, error) {
	masters, err := nodesOf(r.alive, c)
	if err != nil {
		return Stop, err
	}
	target := masters[destination(ask)]
	if target == nil {
		if target, err = otherwise(r.alive, masters, source, slot, ask); err != nil {
			return Stop, err
		}
	}
	bySource := func() error {
		if owner, err := c.MasterForKey(r.alive, probes()[slot]); err != nil || owner != source {
			return cmp.Or(err, errMeanwhile)
		}
		return nil
	}
	if err := bySource(); err != nil {
		return Stop, err
	}
	nodes := []*redis.Client{source, target}
	steady, err := r.watched(nodes...)
	if err != nil {
		return Stop, err
	}
	for _, node := range nodes {
		keys, more, err := r.list(node, p, slot, false)
		next := More
		switch {
		case err == nil && more:
			_, next, err = r.large(node, slot, slot+1)
		case err == nil:
			next, err = r.some(node, keys)
		}
		if err != nil || next != More {
			return next, err
		}
	}
	if err := source.Exists(r.alive, probes()[slot]).Err(); err == nil || err.Error() != ask.Error() {
		return Stop, errMeanwhile
	}
	if err := bySource(); err != nil {
		return Stop, err
	}
	return More, steady()
}

// otherwise is the master that a slot moves to, where CLUSTER SLOTS lacks the address of the
// redirection. The master has another address there, or no slot yet.
func otherwise(
	ctx context.Context, masters map[string]*redis.Client, source *redis.Client, slot int, ask error,
) (*redis.Client, error) {
	own := func(node *redis.Client) ([]string, error) {
		nodes, err := clusterNodes(ctx, node)
		if err != nil {
			return nil, err
		}
		return ownLine(nodes)
	}
	fields, err := own(source)
	if err != nil {
		return nil, err
	}
	moves := movesIn(fields)
	for _, node := range masters {
		fields, err := own(node)
		if err != nil {
			return nil, err
		}
		if slices.Contains(moves, move{slot, fields[0], false}) {
			return node, nil
		}
	}
	return nil, fmt.Errorf("%w: it moves to %s, which has no slots yet", errMeanwhile, destination(ask))
}

// list lists the keys of a slot that a server has, and notes the server. More says that there are
// too many.
func (r *valueReader) list(node *redis.Client, p *Place, slot int, whole bool) (keys []string, more bool, err error) {
	// The last slot tells how large names are. This one's may be larger: the first list has no more
	// of them than a page of SCAN.
	for r.listed = min(max(r.listed, firstKeys), largestPage); ; {
		var probe *redis.IntCmd
		var listed *redis.StringSliceCmd
		var info, replication *redis.StringCmd
		_, err := node.TxPipelined(r.alive, func(t redis.Pipeliner) error {
			if whole {
				probe = t.Exists(r.alive, probes()[slot])
			}
			listed = t.ClusterGetKeysInSlot(r.alive, slot, r.listed)
			if !r.silent {
				info, replication = t.Info(r.alive, "server"), t.Info(r.alive, "replication")
			}
			return nil
		})
		switch {
		case info != nil && IsForbidden(info.Err()):
			r.silent = true
			continue
		case whole && probe.Err() != nil:
			return nil, false, probe.Err()
		case err != nil && listed.Err() != nil:
			return nil, false, fmt.Errorf("CLUSTER GETKEYSINSLOT: %w", Explain(listed.Err(), node.Options().Username))
		case err != nil:
			return nil, false, err
		}
		keys := listed.Val()
		served := Served{Addr: node.Options().Addr}
		if info != nil {
			server := Info(info.Val())
			served.RunID, r.shuffles = server["run_id"], shuffles(server)
			served.ReplID = Info(replication.Val())["master_replid"]
		}
		if !slices.Contains(p.Servers, served) {
			p.Servers = append(slices.Clone(p.Servers), served)
		}
		most, longer := mostListedOfOld, r.listed+largestPage
		if r.shuffles {
			most, longer = mostListed, longerBy*r.listed
		}
		room := int(min(int64(most), int64(max(len(keys), 1))*replyBytes/2/int64(max(lengthOfAll(keys), 1))))
		if len(keys) < r.listed {
			r.listed = min(r.listed, room)
			return keys, false, nil
		}
		if r.listed >= room {
			r.listed = room
			return nil, true, nil
		}
		r.listed = min(longer, room)
	}
}

// shuffles reports a server, by its INFO, that has a hash table for each slot: nobody chooses the
// order of its keys. One that hides its version has none.
func shuffles(info map[string]string) bool {
	if info["valkey_version"] != "" {
		return number(info["valkey_version"]) >= 800
	}
	return number(info["redis_version"]) >= 704
}

// large reads the keys of a slot that has more than can be listed at once: by CLUSTERSCAN (Valkey
// 9.1), or by a SCAN of the server. That also reads the slots that follow, up to end, as far as the
// server owns them; last is the limit.
func (r *valueReader) large(node *redis.Client, slot, last int) (end int, next Next, err error) {
	end = slot + 1
	read := func(asked int64, page []string) (Next, error) {
		if next, err := r.some(node, page); err != nil || next != More {
			return next, err
		}
		// The server looked at others, too, and some has counted these.
		return More, r.Pacer.Wait(r.ctx, node, max(int(asked)-len(page), 0), 0)
	}
	for cursor := ""; cursor != "0" && !r.noSlotScan; {
		asked := r.page.count
		page, after, err := r.clusterScan(node, slot, cursor, asked)
		if r.noSlotScan = IsForbidden(err) && cursor == ""; r.noSlotScan {
			break
		}
		if err != nil {
			return end, Stop, fmt.Errorf("CLUSTERSCAN: %w", Explain(err, node.Options().Username))
		}
		r.page.saw(len(page), lengthOfAll(page))
		if next, err = read(asked, page); err != nil || next != More {
			return end, next, err
		}
		cursor = after
	}
	if !r.noSlotScan {
		return end, More, nil
	}
	if last > end {
		if end, err = r.owns(node, slot, last); err != nil {
			return end, Stop, err
		}
	}
	for cursor := uint64(0); ; {
		asked := r.page.count
		page, after, err := scan(r.alive, node, cursor, "", r.Kind, asked)
		if err != nil {
			return end, Stop, fmt.Errorf("SCAN: %w", Explain(err, node.Options().Username))
		}
		r.page.saw(len(page), lengthOfAll(page))
		page = slices.DeleteFunc(page, func(key string) bool {
			s := keySlot(key)
			return s < slot || s >= end
		})
		if next, err = read(asked, page); err != nil || next != More || after == 0 {
			return end, next, err
		}
		cursor = after
	}
}

// clusterScan reads a page of a slot's names.
func (r *valueReader) clusterScan(node *redis.Client, slot int, cursor string, count int64) ([]string, string, error) {
	tag, _, _ := strings.Cut(probes()[slot], ":")
	at := cmp.Or(cursor, "0-"+tag+"-0") // a cursor is routed as a key
	reply, err := node.Do(r.alive, "CLUSTERSCAN", at, "SLOT", slot, "COUNT", count).Slice()
	if err == nil && len(reply) != 2 {
		err = fmt.Errorf("%w: %d elements", errReply, len(reply))
	}
	if err != nil {
		return nil, "", err
	}
	names, _ := reply[1].([]any)
	page := make([]string, 0, len(names))
	for _, name := range names {
		page = append(page, fmt.Sprint(name))
	}
	return page, fmt.Sprint(reply[0]), nil
}

// some reads the values of names of one slot: of those that the patterns match.
func (r *valueReader) some(node *redis.Client, names []string) (Next, error) {
	r.server = node
	all := len(names)
	names = slices.DeleteFunc(names, func(key string) bool {
		return !slices.ContainsFunc(r.Match, func(pattern string) bool { return pattern == "" || glob.Match(pattern, key) })
	})
	for page := range slices.Chunk(names, int(r.page.most)) {
		if next, err := r.keys(node, page); err != nil || next != More {
			return next, err
		}
		if err := r.paged(); err != nil {
			return Stop, err
		}
		if err := r.Pacer.Wait(r.ctx, node, len(page), 0); err != nil {
			return Stop, err
		}
	}
	return More, r.Pacer.Wait(r.ctx, node, 1+all-len(names), 0) // for the slot itself, and names that do not match
}

// epoch is the configuration epoch of a node, which is another one each time that it gets a slot.
func epoch(ctx context.Context, node *redis.Client) (string, error) {
	info, err := clusterInfo(ctx, node)
	return info["cluster_my_epoch"], err
}

// Owners returns which masters have some slots at present, by their ids.
func Owners(ctx context.Context, client redis.UniversalClient) (func(Slots) []string, error) {
	all, err := client.ClusterSlots(ctx).Result()
	if err != nil {
		return nil, Explain(err, UserOf(client))
	}
	return func(s Slots) (owners []string) {
		for _, part := range all {
			if part.Start < s.To && part.End >= s.From && len(part.Nodes) > 0 && !slices.Contains(owners, part.Nodes[0].ID) {
				owners = append(owners, part.Nodes[0].ID)
			}
		}
		return owners
	}, nil
}

// Settled reports whether the masters of a place are masters still, the same processes, and did not
// fail over to others and back. If not, the slots have to be read again. If the reader writes, it
// waits until the replicas have what was written by now, ten seconds at most; confirmed is false
// where one has not.
func Settled(ctx context.Context, client redis.UniversalClient, p Place, writes bool) (same, confirmed bool, err error) {
	nodes, err := nodesOf(ctx, client)
	if err != nil {
		return false, false, err
	}
	confirmed = true
	servers := p.Servers
	if p.Slots == nil {
		servers = []Served{{p.Addr, p.RunID, p.ReplID}}
	}
	for _, s := range servers {
		node := nodes[s.Addr]
		if node == nil {
			return false, false, nil
		}
		written := int64(-1)
		for start, wait := time.Now(), firstSettling; ; wait = min(2*wait, lastSettling) {
			info, err := infoOf(ctx, node)
			if IsForbidden(err) {
				break
			}
			if err != nil {
				return false, false, fmt.Errorf("INFO of %s: %w", s.Addr, err)
			}
			if info["role"] != "master" || info["run_id"] != s.RunID ||
				failedOver(s.ReplID, info["master_replid"], info["master_replid2"]) {
				return false, false, nil
			}
			if !writes {
				break
			}
			offset, _ := strconv.ParseInt(info["master_repl_offset"], 10, 64)
			if written < 0 {
				written = offset
			}
			if offset-bytesBehind(info) >= written {
				break
			}
			if time.Since(start) > settleWithin {
				confirmed = false
				break
			}
			// Replicas tell what they have once a second, and at once where WAIT wants one more of
			// them than there are.
			err = node.Do(ctx, "WAIT", online(info)+1, wait.Milliseconds()).Err()
			if IsForbidden(err) {
				err = sleep(ctx, wait)
			}
			if err != nil && !IsReply(err) {
				return false, false, err
			}
		}
	}
	return true, confirmed, nil
}

// online is how many replicas of a master are in step.
func online(info map[string]string) (n int) {
	for i := 0; ; i++ {
		line, ok := info["slave"+strconv.Itoa(i)]
		if !ok {
			return n
		}
		if strings.Contains(line, "state=online") {
			n++
		}
	}
}
