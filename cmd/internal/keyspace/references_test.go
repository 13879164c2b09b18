package keyspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// packedWith is a value that refers to a dictionary.
func packedWith(id frame.DictionaryID) string {
	return string(frame.Header{Algorithm: frame.Zstd, DictionaryID: id, HasChecksum: true, Length: 100}.Append(nil)) + "payload"
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// wantInconclusive expects an InconclusiveError with a text.
func wantInconclusive(t *testing.T, err error, key, text string) {
	t.Helper()
	e, ok := errors.AsType[*InconclusiveError](err)
	if !ok || !errors.Is(err, ErrInconclusive) || e.Key != key || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v; want an inconclusive scan, key %q, %q", err, key, text)
	}
}

// TestProofNeedsEveryKey: a user who may not read all keys proves nothing.
func TestProofNeedsEveryKey(t *testing.T) {
	t.Parallel()
	for name, client := range servers(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			must(t, client.Set(ctx, "user:1", packedWith(1), 0).Err(), client.Set(ctx, "secret", packedWith(2), 0).Err())
			all, err := nodesOf(ctx, client)
			must(t, err)
			url := ""
			for addr, node := range all {
				url = "redis://some:secret@" + addr
				must(t, node.Do(ctx, "ACL", "SETUSER", "some", "on", ">secret", "~user:*", "+@all").Err())
			}
			some := opened(t, url)
			_, err = FindReferences(ctx, []redis.UniversalClient{some}, ReferenceOptions{Proof: true})
			wantInconclusive(t, err, "secret", "NOPERM")
			if !strings.Contains(fmt.Sprint(err), "ACL SETUSER some %R~*") {
				t.Errorf("no hint: %v", err)
			}
			r, err := FindReferences(ctx, []redis.UniversalClient{some}, ReferenceOptions{})
			if err != nil || r.Unread != 1 || r.ByID[1] == nil || !strings.HasPrefix(r.Problem, ErrInconclusive.Error()) {
				t.Errorf("without Proof: %+v, %v", r, err)
			}
			for _, node := range all {
				must(t, node.Do(ctx, "ACL", "SETUSER", "some", "%R~*").Err())
			}
			if r, err := FindReferences(ctx, []redis.UniversalClient{some}, ReferenceOptions{Proof: true}); err != nil || r.ByID[2] == nil || r.Packed() != 2 {
				t.Errorf("%+v, %v", r, err)
			}
			for _, denied := range []string{"type", "getrange", "scan", "info"} {
				for _, node := range all {
					must(t, node.Do(ctx, "ACL", "SETUSER", "some", "-"+denied).Err())
				}
				if _, err := FindReferences(ctx, []redis.UniversalClient{some}, ReferenceOptions{Proof: true}); !errors.Is(err, ErrInconclusive) || !errors.Is(err, ErrDenied) {
					t.Errorf("without %s: %v", denied, err)
				}
				for _, node := range all {
					must(t, node.Do(ctx, "ACL", "SETUSER", "some", "+"+denied).Err())
				}
			}
			if _, ok := client.(*redis.ClusterClient); !ok {
				// Another database that the user cannot select.
				other := selected(client.(*redis.Client), 5)
				defer other.Close()
				must(t, other.Set(ctx, "there", packedWith(3), 0).Err(), client.Do(ctx, "ACL", "SETUSER", "some", "-select").Err())
				_, err := FindReferences(ctx, []redis.UniversalClient{some}, ReferenceOptions{Proof: true})
				wantInconclusive(t, err, "", "database 5")
			}
		})
	}
}

// TestProofNeedsSlotsAtRest: slots that move before or during the scan make it prove nothing.
func TestProofNeedsSlotsAtRest(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cluster := redisproc.ClusterForTest(t, 3)
	client := opened(t, cluster.Servers[0].URL())
	for i := range 2000 {
		must(t, client.Set(ctx, fmt.Sprint("k", i), packedWith(1), 0).Err())
	}
	do := func(server int, args ...string) string {
		t.Helper()
		reply, err := cluster.Servers[server].Do(ctx, args...)
		must(t, err)
		return reply
	}
	ids := []string{do(0, "CLUSTER", "MYID"), do(1, "CLUSTER", "MYID"), do(2, "CLUSTER", "MYID")}
	scan := func(during func()) error {
		ran := false
		_, err := FindReferences(ctx, []redis.UniversalClient{client}, ReferenceOptions{Proof: true, Progress: func(int64) {
			if !ran && during != nil {
				ran = true
				during()
			}
		}})
		return err
	}
	must(t, scan(nil))

	do(1, "CLUSTER", "SETSLOT", "7000", "MIGRATING", ids[2])
	wantInconclusive(t, scan(nil), "", "slot 7000 is moving")
	do(1, "CLUSTER", "SETSLOT", "7000", "STABLE")
	must(t, scan(nil))
	wantInconclusive(t, scan(func() { // there and back: nothing shows in the end but that it ran
		do(2, "CLUSTER", "SETSLOT", "7000", "IMPORTING", ids[1])
		do(2, "CLUSTER", "SETSLOT", "7000", "STABLE")
	}), "", "CLUSTER SETSLOT ran during the scan")
	empty := -1
	for slot := SlotCount / 3 * 2; slot > 0 && empty < 0; slot-- {
		if do(1, "CLUSTER", "COUNTKEYSINSLOT", fmt.Sprint(slot)) == "0" && slot < 10900 {
			empty = slot
		}
	}
	wantInconclusive(t, scan(func() {
		for server := range 3 {
			do(server, "CLUSTER", "SETSLOT", fmt.Sprint(empty), "NODE", ids[2])
		}
	}), "", "slots of the cluster moved during the scan")
	must(t, scan(nil))

	// A key of a slot that is moving is answered with ASK, MOVED or TRYAGAIN.
	s := &referenceScan{ReferenceOptions: ReferenceOptions{Proof: true}, found: NewReferences(nil)}
	nodes, err := nodesOf(ctx, client)
	must(t, err)
	moved := 0
	for addr, node := range nodes {
		if _, err := s.page(ctx, node, addr, []string{"k1"}, false); err != nil {
			wantInconclusive(t, err, "k1", "MOVED")
			moved++
		}
	}
	if moved != 2 {
		t.Errorf("%d of 3 nodes said that the key is elsewhere", moved)
	}
	do(0, "CLUSTER", "DELSLOTS", "1")
	if err := scan(nil); !errors.Is(err, ErrInconclusive) {
		t.Errorf("a slot without a master: %v", err)
	}
}

// TestProofNeedsTheSameServer: a restart, a replica, and commands that move values make a scan
// prove nothing.
func TestProofNeedsTheSameServer(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t, "--save", "3600 1")
	client := opened(t, server.URL()).(*redis.Client)
	scan := func(o ReferenceOptions, during func()) (*References, error) {
		ran := false
		o.Proof, o.Progress = true, func(int64) {
			if !ran && during != nil {
				ran = true
				during()
			}
		}
		return FindReferences(ctx, []redis.UniversalClient{client}, o)
	}
	must(t, client.Set(ctx, "k", packedWith(1), 0).Err())
	rename := func() { must(t, client.Rename(ctx, "k", "l").Err(), client.Rename(ctx, "l", "k").Err()) }
	_, err := scan(ReferenceOptions{}, rename)
	wantInconclusive(t, err, "", "RENAME ran during the scan")
	_, err = scan(ReferenceOptions{AcceptMoves: true}, rename)
	must(t, err)
	_, err = scan(ReferenceOptions{}, func() {
		must(t, client.Eval(ctx, "redis.call('RENAME', KEYS[1], KEYS[2]) redis.call('RENAME', KEYS[2], KEYS[1]) return 1", []string{"k", "l"}).Err())
	})
	wantInconclusive(t, err, "", "RENAME ran during the scan")
	_, err = scan(ReferenceOptions{}, func() { must(t, client.BitOpOr(ctx, "l", "k").Err(), client.Del(ctx, "l").Err()) })
	wantInconclusive(t, err, "", "BITOP ran during the scan")
	// INFO counts itself, so a second one shows the same, except for the microseconds that it took:
	// those are equal now and then.
	for try := 0; try == 0 || err == nil && try < 5; try++ {
		must(t, client.ConfigResetStat(ctx).Err())
		_, err = scan(ReferenceOptions{}, func() { rename(); must(t, client.ConfigResetStat(ctx).Err()) })
	}
	wantInconclusive(t, err, "", "CONFIG RESETSTAT ran during the scan")
	_, err = scan(ReferenceOptions{}, func() { must(t, server.Restart(ctx)) })
	wantInconclusive(t, err, "", "restarted")
	// A database that gets its first key meanwhile is scanned, too.
	other := selected(client, 3)
	defer other.Close()
	must(t, client.Set(ctx, "k", packedWith(1), 0).Err())
	r, err := scan(ReferenceOptions{}, func() { must(t, other.Set(ctx, "new", packedWith(7), 0).Err()) })
	if err != nil || r.ByID[7] == nil {
		t.Errorf("%+v, %v", r, err)
	}
	must(t, client.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err())
	_, err = scan(ReferenceOptions{}, nil)
	wantInconclusive(t, err, "", "it is a replica")
}

// TestProofNeedsNames: a key whose name is too long to send it back may hold anything.
func TestProofNeedsNames(t *testing.T) {
	ctx := t.Context()
	client := opened(t, redisproc.ForTest(t).URL())
	must(t, client.Set(ctx, "k", packedWith(1), 0).Err(), client.Set(ctx, strings.Repeat("n", longestName+1), packedWith(2), 0).Err())
	_, err := FindReferences(ctx, []redis.UniversalClient{client}, ReferenceOptions{Proof: true})
	if !errors.Is(err, ErrInconclusive) || !strings.Contains(err.Error(), "its name has 4.0 MiB") || len(err.Error()) > 1000 {
		t.Errorf("%.1000v", err)
	}
	r, err := FindReferences(ctx, []redis.UniversalClient{client}, ReferenceOptions{})
	if err != nil || r.Unread != 1 || r.ByID[1] == nil || r.ByID[2] != nil {
		t.Errorf("without Proof: %+v, %v", r, err)
	}
	if all, err := CommandCalls(ctx, client); err != nil || all["type"] != 2 { // of the other key
		t.Errorf("TYPE ran %d times, %v", all["type"], err)
	}
}

// TestProofReadsTypes: types that nobody knows prove nothing; those without packed values do no
// harm.
func TestProofReadsTypes(t *testing.T) {
	s := &referenceScan{
		ReferenceOptions: ReferenceOptions{Proof: true, SkipTypes: []string{"queue-abc", "stream"}}, found: NewReferences(nil),
	}
	for kind, want := range map[string]bool{
		"ReJSON-RL": true, "queue-abc": true, "stream": true, "none": true, "vectorset": false, "TopK-TYPE": false,
	} {
		err := s.key(t.Context(), nil, "k", keyReplies{kind: redis.NewStatusResult(kind, nil)})
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "--skip-type "+kind) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// TestForgedReferences: frames that name a dictionary each take no memory, and a length that a
// frame claims is in no sum if no value has it. A dictionary that is asked for counts all the same.
func TestForgedReferences(t *testing.T) {
	ctx := t.Context()
	client := opened(t, redisproc.ForTest(t).URL())
	const known, forged = 77, 3000
	var values []any
	for i := range forged {
		values = append(values, packedWith(frame.DictionaryID(1000+i)))
	}
	long := string(frame.Header{Algorithm: frame.Zstd, DictionaryID: known, Length: 1 << 62}.Append(nil))
	values = append(values, packedWith(known), long, long)
	must(t, client.RPush(ctx, "list", values...).Err(), client.Set(ctx, "string", packedWith(known), 0).Err(), client.SAdd(ctx, "set", values...).Err())
	for _, proof := range []bool{true, false} {
		r, err := FindReferences(ctx, []redis.UniversalClient{client}, ReferenceOptions{Known: map[frame.DictionaryID]bool{known: true}, Proof: proof})
		must(t, err)
		if len(r.ByID) != maxUnknown+1 || r.Others.Values != 2*(forged-maxUnknown) || r.Packed() != 2*forged+6 {
			t.Errorf("%d ids, %d values of others, %d in all", len(r.ByID), r.Others.Values, r.Packed())
		}
		if ref, size := r.ByID[known], int64(len(packedWith(known))); ref == nil || ref.Values != 6 || ref.PlainBytes != 3*100 || ref.StoredBytes != 3*size {
			t.Errorf("%+v", ref)
		}
	}
	var state References // of a run
	must(t, json.Unmarshal([]byte(`{"ByID":{"00000007":null,"00000008":{"values":1}}}`), &state))
	all := NewReferences(nil)
	if all.Merge(&state); len(all.ByID) != 1 || all.Packed() != 1 {
		t.Errorf("%+v", all)
	}
}

// TestReferencesLikeTraining: values with and without the record of when they expire have the same
// ratio.
func TestReferencesLikeTraining(t *testing.T) {
	fresh := frame.Header{Version: frame.V2, Algorithm: frame.Zstd, DictionaryID: 7, Length: 100}.Append(nil)
	fresh = frame.Freshness{}.Append(append(fresh, make([]byte, 30)...))
	plain := append(frame.Header{Algorithm: frame.Zstd, DictionaryID: 7, Length: 100}.Append(nil), make([]byte, 30)...)
	r := References{ByID: map[frame.DictionaryID]*Reference{7: {}}}
	for _, v := range [][]byte{fresh, plain} {
		r.add(string(v), int64(len(v)))
	}
	r.add(string(fresh[:frame.MaxHeaderSize]), 1) // forged
	if ref := r.ByID[7]; ref == nil || ref.Values != 3 || ref.PlainBytes != 300 || ref.StoredBytes != 2*int64(len(plain)) {
		t.Errorf("%+v", ref)
	}
}

// afterCommand runs a function after each command of a name.
type afterCommand struct {
	name string
	run  func()
}

func (h afterCommand) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h afterCommand) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if cmd.Name() == h.name {
			h.run()
		}
		return err
	}
}

func (h afterCommand) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestListThatGrows: a list that changes all the time is not read at once, however much longer it
// is by then.
func TestListThatGrows(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	client, writer := opened(t, server.URL()).(*redis.Client), opened(t, server.URL())
	push := func(n int) {
		must(t, writer.RPush(ctx, "list", slices.Repeat([]any{strings.Repeat("x", 100)}, n)...).Err())
	}
	const length = UsageOf + 1
	push(length)
	pass, looks := 0, 0
	for read, page := 0, elements; read < length; page *= 2 {
		read += page
		pass++
	}
	client.AddHook(afterCommand{"lrange", func() {
		switch looks++; looks {
		case 2, 2 + pass, 2 + 2*pass:
			must(t, writer.LSet(ctx, "list", 0, "another").Err())
		case 1 + listTries*pass:
			push(100_000)
		}
	}})
	r, err := FindReferences(ctx, []redis.UniversalClient{client}, ReferenceOptions{})
	if err != nil || r.Unread != 1 || looks != 2+listTries*pass {
		t.Errorf("%+v, %v, read in %d pieces", r, err, looks)
	}
}

// TestStreamsEnd: a stream ends for a scan though a program adds more entries than are read. An
// older entry that stays is not missed.
func TestStreamsEnd(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redisproc.ForTest(t)
	writer := opened(t, server.URL())
	add := func(n int, id, value string, trim ...any) {
		_, err := writer.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range n {
				p.Do(ctx, slices.Concat([]any{"XADD", "stream"}, trim, []any{id, "f", value})...)
			}
			return nil
		})
		must(t, err)
	}
	const most = 1000 // pages, until the writer gives up
	for name, trim := range map[string][]any{"that grows": nil, "that is trimmed": {"MAXLEN", UsageOf + 1}} {
		must(t, writer.Del(ctx, "stream").Err())
		add(1, "*", packedWith(4))
		add(UsageOf-1, "*", "plain")
		add(1, "*", packedWith(5))
		pages := 0
		scanned := selected(writer.(*redis.Client), 0)
		scanned.AddHook(afterCommand{"xrevrange", func() {
			if pages++; pages < most {
				add(2*elements, "*", packedWith(6), trim...)
			}
		}})
		r, err := FindReferences(ctx, []redis.UniversalClient{scanned}, ReferenceOptions{Proof: true})
		if err != nil || pages >= most || r.ByID[5] == nil || r.ByID[6] != nil || trim == nil && r.ByID[4] == nil {
			t.Errorf("a stream %s: %+v, %v, read in %d pages", name, r, err, pages)
		}
		scanned.Close()
	}
	add(1, "18446744073709551615-18446744073709551615", packedWith(7))
	r, err := FindReferences(ctx, []redis.UniversalClient{writer}, ReferenceOptions{Proof: true})
	if err != nil || r.ByID[7] == nil {
		t.Errorf("the largest id: %+v, %v", r, err)
	}
}

// TestStreamOfManyFields: an entry of more fields than a reply may have costs its key alone.
func TestStreamOfManyFields(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	client := opened(t, redisproc.ForTest(t).URL())
	entry := &redis.XAddArgs{Stream: "stream", Values: slices.Repeat([]string{""}, mostElements+2)}
	if err := client.XAdd(ctx, entry).Err(); err != nil {
		t.Skip(err) // before Redis 7
	}
	const others = 2 * mostKeys
	for i := range others {
		must(t, client.Set(ctx, fmt.Sprint(i), packedWith(1), 0).Err())
	}
	r, err := FindReferences(ctx, []redis.UniversalClient{client}, ReferenceOptions{})
	if err != nil || r.Unread != 1 || r.Keys != others+1 || r.of(1).Values != others ||
		!strings.Contains(r.Problem, "a list of 1048578 elements") {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = FindReferences(ctx, []redis.UniversalClient{client}, ReferenceOptions{Proof: true})
	wantInconclusive(t, err, "stream", "give --skip-type stream")
	passed := ReferenceOptions{Proof: true, SkipTypes: []string{"stream"}}
	r, err = FindReferences(ctx, []redis.UniversalClient{client}, passed)
	if err != nil || r.of(1).Values != others {
		t.Errorf("without streams: %+v, %v", r, err)
	}
}

// TestStreamOfEmptyFields: an empty field takes 2 bytes in the server's memory, and more in a
// reply.
func TestStreamOfEmptyFields(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redisproc.ForTest(t)
	client := opened(t, server.URL())
	const entries, fields = 10, 100_000
	entry := &redis.XAddArgs{Stream: "stream", Values: slices.Repeat([]string{""}, fields)}
	for range entries {
		must(t, client.XAdd(ctx, entry).Err())
	}
	if size, err := askExtent(ctx, client, "stream", "stream").extent(); err != nil || !size.Small() {
		t.Errorf("%+v, %v", size, err)
	}
	r, err := FindReferences(ctx, []redis.UniversalClient{client}, ReferenceOptions{})
	if err != nil || r.Foreign != entries*fields {
		t.Errorf("%+v, %v", r, err)
	}
	if n := calls(t, server, "xrevrange"); n*replyBytes < entries*fields*elementBytes {
		t.Errorf("read in %d replies", n)
	}
}

// TestListsEnd: a list ends for a scan though a program adds more elements than are read. The error
// has a next step.
func TestListsEnd(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redisproc.ForTest(t)
	client, writer := opened(t, server.URL()).(*redis.Client), opened(t, server.URL())
	push := func(n int) { must(t, writer.RPush(ctx, "list", slices.Repeat([]any{"plain"}, n)...).Err()) }
	const most = 5000 // pages, until the writer gives up
	pages := 0
	client.AddHook(afterCommand{"lrange", func() {
		if pages++; pages < most {
			push(2 * UsageOf)
		}
	}})
	for _, o := range []ReferenceOptions{{}, {Proof: true}, {Proof: true, SkipTypes: []string{"list"}}} {
		must(t, writer.Del(ctx, "list").Err())
		push(UsageOf + 1)
		pages = 0
		r, err := FindReferences(ctx, []redis.UniversalClient{client}, o)
		switch {
		case o.SkipTypes != nil && (err != nil || pages > 0), pages >= most:
			t.Errorf("%+v: read in %d pages, %v", o, pages, err)
		case o.Proof && o.SkipTypes == nil:
			wantInconclusive(t, err, "list", "give --skip-type list")
		case !o.Proof && (err != nil || r.Unread != 1 || strings.Contains(r.Problem, "--skip-type")):
			t.Errorf("without Proof: %+v, %v", r, err)
		}
	}
}

// TestBusyShortList: a queue whose length changes all the time is short enough to be read at once.
func TestBusyShortList(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redisproc.ForTest(t)
	client, writer := opened(t, server.URL()).(*redis.Client), opened(t, server.URL())
	set := func(n int) {
		must(t, writer.Del(ctx, "list").Err(), writer.RPush(ctx, "list", slices.Repeat([]any{packedWith(1)}, n)...).Err())
	}
	client.AddHook(afterCommand{"llen", func() { set(1) }})
	client.AddHook(afterCommand{"memory", func() { set(5) }}) // MEMORY USAGE, before it is read at once
	set(1)
	s := &referenceScan{found: NewReferences(nil)}
	if err := s.list(ctx, client, "list", pager{1, 1}, s.found); err != nil || s.found.of(1).Values != 5 {
		t.Errorf("%+v, %v", s.found, err)
	}
}

// awayAtLast is a client whose Watch fails once, and then finds no key.
type awayAtLast struct {
	redis.UniversalClient
	tries int
}

func (c *awayAtLast) Watch(ctx context.Context, do func(*redis.Tx) error, keys ...string) error {
	if c.tries++; c.tries > 1 {
		return nil
	}
	return errors.Join(c.UniversalClient.Watch(ctx, do, keys...), redis.TxFailedErr)
}

// TestListThatLeaves: a list that leaves with its slot between two tries is not missed.
func TestListThatLeaves(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	client := opened(t, redisproc.ForTest(t).URL())
	must(t, client.RPush(ctx, "list", slices.Repeat([]any{packedWith(1)}, elements)...).Err())
	s := &referenceScan{found: NewReferences(nil)}
	err := s.list(ctx, &awayAtLast{client, 0}, "list", pager{elements, elements}, s.found)
	if !errors.Is(err, errMeanwhile) {
		t.Errorf("%+v, %v", s.found, err)
	}
}

// TestListThatLeavesMeanwhile: the server that a list leaves while it is read says where it goes.
func TestListThatLeavesMeanwhile(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cluster := redisproc.ClusterForTest(t, 2)
	slot := slotOf("list")
	if slot >= SlotCount/2 {
		slices.Reverse(cluster.Servers)
	}
	client := opened(t, cluster.Servers[0].URL()).(*redis.ClusterClient)
	must(t, client.RPush(ctx, "list", slices.Repeat([]any{packedWith(1)}, elements)...).Err())
	node, err := client.MasterForKey(ctx, "list")
	must(t, err)
	reads := 0
	node.AddHook(afterCommand{"lrange", func() {
		if reads++; reads == 2 { // all of it, under WATCH
			must(t, cluster.Move(ctx, slot, cluster.Servers[0], cluster.Servers[1], func() {}))
		}
	}})
	s := &referenceScan{found: NewReferences(nil)}
	if err := s.list(ctx, client, "list", pager{elements, elements}, s.found); !IsMoved(err) {
		t.Errorf("%+v, %v", s.found, err)
	}
}

// TestListOfShortElements: a reply takes memory for each element, however short they are. A list
// that changed once is read again.
func TestListOfShortElements(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	client := opened(t, redisproc.ForTest(t).URL()).(*redis.Client)
	writer := selected(client, 0)
	defer writer.Close()
	const length = replyBytes / 16 * 5 / 4
	for range 10 { // of 65,536 elements at once, Redis 8.2 counts none
		must(t, writer.RPush(ctx, "list", slices.Repeat([]any{""}, length/10)...).Err())
	}
	for changes, want := range map[int]bool{1: true, listTries: false} {
		looks, pages := 0, length/100_000+1
		scanned := selected(client, 0)
		scanned.AddHook(afterCommand{"lrange", func() {
			if looks++; looks%pages == 0 && looks/pages <= changes { // before the last page of a pass
				must(t, writer.LSet(ctx, "list", 0, looks).Err()) // another value, else newer servers change nothing
			}
		}})
		s := &referenceScan{found: NewReferences(nil)}
		err := s.list(ctx, scanned, "list", pager{100_000, 100_000}, s.found)
		if (err == nil) != want || err != nil && !errors.Is(err, errUnread) {
			t.Errorf("after %d changes: %v", changes, err)
		}
		if tries := min(changes+1, listTries); looks != 1+tries*pages {
			t.Errorf("after %d changes: read in %d pages", changes, looks)
		}
		scanned.Close()
	}
}

// TestReferencesWithin: what changes while it is read in pages is not missed, and neither is a
// frame where one does not expect it.
func TestReferencesWithin(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	client, writer := opened(t, server.URL()).(*redis.Client), opened(t, server.URL())
	list := make([]any, UsageOf+1) // which are read in pages
	for i := range list {
		list[i] = "plain"
	}
	list[elements] = packedWith(4) // the first pop puts it into the page that was read
	for name, always := range map[string]bool{"once": false, "all the time": true} {
		must(t, writer.Del(ctx, "list").Err(), writer.RPush(ctx, "list", list...).Err())
		looks := 0
		scanned := selected(client, 0)
		scanned.AddHook(afterCommand{"lrange", func() {
			if looks++; looks == 2 { // in the first pass
				must(t, writer.LPop(ctx, "list").Err())
			} else if always {
				must(t, writer.LSet(ctx, "list", -1, "plain").Err())
			}
		}})
		r, err := FindReferences(ctx, []redis.UniversalClient{scanned}, ReferenceOptions{Proof: true})
		if err != nil || r.ByID[4] == nil || r.ByID[4].Values != 1 {
			t.Errorf("a list that changes %s: %+v, %v", name, r, err)
		}
		scanned.Close()
	}
	escaped := string(frame.Header{Algorithm: frame.Stored, Length: uint64(len(packedWith(6)))}.Append(nil)) + packedWith(6)
	must(t,
		writer.Del(ctx, "list").Err(), writer.Set(ctx, "escaped", escaped, 0).Err(),
		writer.Do(ctx, "XADD", "stream", "*", "f", packedWith(5), "f", "plain").Err(),
	)
	r, err := FindReferences(ctx, []redis.UniversalClient{client}, ReferenceOptions{Proof: true})
	if err != nil || r.ByID[5] == nil || r.ByID[6] == nil {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestResetCounters: counters that start again are noticed by each of them, and before Redis 7
// without one for CONFIG RESETSTAT.
func TestResetCounters(t *testing.T) {
	state := func(reset string, info, set int64) serverState {
		return serverState{reset: reset, calls: map[string]int64{"info": info, "set": set}}
	}
	for name, c := range map[string]struct {
		before, after serverState
		want          bool
	}{
		"nothing":         {state("calls=1,usec=9", 3, 5), state("calls=1,usec=9", 4, 5), false},
		"other commands":  {state("", 3, 5), state("", 7, 9), false},
		"another usec":    {state("calls=1,usec=9", 3, 5), state("calls=1,usec=8", 4, 5), true},
		"INFO not more":   {state("", 3, 5), state("", 3, 5), true},
		"SET less":        {state("", 3, 5), state("", 9, 4), true},
		"SET gone":        {state("", 3, 5), serverState{calls: map[string]int64{"info": 9}}, true},
		"no commandstats": {serverState{}, serverState{}, true},
	} {
		if got := wasReset(c.before, c.after); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestMovingCommandsAreKnown asks the server which commands read one key and write another.
func TestMovingCommandsAreKnown(t *testing.T) {
	ctx := t.Context()
	client := opened(t, redisproc.ForTest(t).URL()).(*redis.Client)
	reply, err := client.Do(ctx, "COMMAND").Slice()
	must(t, err)
	known := append([]string{"pfmerge"}, moving...) // which holds counts, no values
	found := 0
	for _, r := range reply {
		command := r.([]any)
		if len(command) < 9 {
			t.Skip("a server without key specifications")
		}
		reads, writes, specs := false, false, command[8].([]any)
		for _, s := range specs {
			flags := fmt.Sprint(s)
			reads = reads || strings.Contains(flags, "access")
			writes = writes || strings.Contains(flags, "OW") || strings.Contains(flags, "insert")
		}
		if len(specs) < 2 || !reads || !writes {
			continue
		}
		found++
		if name := fmt.Sprint(command[0]); !slices.Contains(known, name) {
			t.Errorf("%s reads one key and writes another", name)
		}
	}
	if found < 15 {
		t.Errorf("only %d commands found", found)
	}
}
