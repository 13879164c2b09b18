package keyspace

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/internal/redisproc"
)

// TestSlotOfKey: slots are those that a server computes.
func TestSlotOfKey(t *testing.T) {
	t.Parallel()
	s := redisproc.ClusterForTest(t, 1).Servers[0]
	for _, key := range []string{"", "a", "user:1000", "{user}:1", "x{}y", "x{a}{b}", "{", "}{a}", "a{b", "é", "123456789"} {
		want, err := s.Do(t.Context(), "CLUSTER", "KEYSLOT", key)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(keySlot(key)); got != want {
			t.Errorf("%q: slot %s, want %s", key, got, want)
		}
	}
	for slot, probe := range probes() {
		if keySlot(probe) != slot {
			t.Fatalf("probe of slot %d: %s has slot %d", slot, probe, keySlot(probe))
		}
	}
}

// inSlots reads the values of all keys, in ranges of slots.
func inSlots(ctx context.Context, client redis.UniversalClient, o ValuesOptions, ranges int) (map[string]int, Looked, error) {
	seen := map[string]int{}
	var all Looked
	o.Size = 1 << 20
	o.Values = func(_ context.Context, _ redis.UniversalClient, values []Value) (Next, error) {
		for _, v := range values {
			seen[v.Key+"/"+v.Field+"="+string(v.Stored)]++
		}
		return More, nil
	}
	for i := range ranges {
		o.Places = []Place{{Slots: &Slots{i * SlotCount / ranges, (i + 1) * SlotCount / ranges}}}
		var looked Looked
		o.Page = func(places []Place, l Looked) error { looked = l; return nil }
		if err := ReadValues(ctx, client, o); err != nil {
			return seen, all, err
		}
		all.Keys += looked.Keys
		all.Others += looked.Others
	}
	return seen, all, nil
}

// fill writes n keys of a form, and notes them as the values that are to be read.
func fill(t *testing.T, client redis.UniversalClient, form string, n int, want map[string]int) {
	t.Helper()
	for from := 0; from < n; from += 500 {
		if _, err := client.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for i := from; i < min(from+500, n); i++ {
				key := fmt.Sprintf(form, i)
				p.Set(t.Context(), key, i, 0)
				want[fmt.Sprintf("%s/=%d", key, i)] = 1
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadSlots reads all types, slots with more keys than are listed at once, and the keys of two
// patterns, each key once.
func TestReadSlots(t *testing.T) {
	t.Parallel()
	c := redisproc.ClusterForTest(t, 3)
	ctx := t.Context()
	client := opened(t, c.Servers[0].URL())
	want := map[string]int{}
	for _, p := range []struct {
		form string
		n    int
	}{{"user:%d", 3000}, {"{big}:%d", mostListed + 500}} {
		fill(t, client, p.form, p.n, want)
	}
	client.HSet(ctx, "user:hash", "a", "1", "b", "2")
	want["user:hash/a=1"], want["user:hash/b=2"] = 1, 1
	client.RPush(ctx, "user:list", "x")
	for _, ranges := range []int{1, 7} {
		got, looked, err := inSlots(ctx, client, ValuesOptions{}, ranges)
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, want)
		if looked.Others != 1 || looked.Keys != int64(len(want)) { // a hash with two fields, and the list
			t.Errorf("%d ranges: %+v", ranges, looked)
		}
	}
	got, _, err := inSlots(ctx, client, ValuesOptions{Match: []string{"user:1*", "user:*1", "{big}:77"}}, 3)
	if err != nil {
		t.Fatal(err)
	}
	for v, n := range got {
		key, _, _ := strings.Cut(v, "/")
		if n != 1 || !strings.HasPrefix(key, "user:1") && !strings.HasSuffix(key, "1") && key != "{big}:77" {
			t.Errorf("%s read %d times", v, n)
		}
	}
	if len(got) != 1111+271+1-111 && got["{big}:77/=77"] != 1 {
		t.Errorf("%d values of the patterns", len(got))
	}
	counted := 0
	count := &Pacer{Pace: Pace{Shared: func(_ context.Context, n int) error { counted += n; return nil }}}
	if _, _, err := inSlots(ctx, client, ValuesOptions{Match: []string{"nobody's"}, Pacer: count}, 3); err != nil || counted < len(want) {
		t.Errorf("%d of %d names that do not match count: %v", counted, len(want), err)
	}
	if got, _, err := inSlots(ctx, client, ValuesOptions{Kind: "hash"}, 1); err != nil || len(got) != 2 {
		t.Errorf("hashes: %v, %v", got, err)
	}
}

func same(t *testing.T, got, want map[string]int) {
	t.Helper()
	wrong := 0
	for v, n := range want {
		if got[v] != n && wrong < 5 {
			wrong++
			t.Errorf("%s was read %d times", v, got[v])
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d values, want %d", len(got), len(want))
	}
}

// TestSlotsOutOfRange: a place that was written elsewhere may have any numbers.
func TestSlotsOutOfRange(t *testing.T) {
	client, err := Open(t.Context(), redisproc.ClusterForTest(t, 1).Servers[0].URL())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, p := range []Place{
		{Slots: &Slots{-1, 5}}, {Slots: &Slots{SlotCount, SlotCount + 1}}, {Slots: &Slots{5, 5}}, {Slots: &Slots{7, 3}},
		{Slots: &Slots{0, 10}, Cursor: 10}, {Slots: &Slots{0, 10}, Cursor: 1 << 63}, {Slots: &Slots{5, 10}, Cursor: 3},
	} {
		err := ReadValues(t.Context(), client, ValuesOptions{Places: []Place{p}})
		if err == nil || !strings.Contains(err.Error(), "slots") {
			t.Errorf("%+v at %d: %v", *p.Slots, p.Cursor, err)
		}
	}
}

// TestSlotsOfLongNames: many short names do not let a server list as many long ones of the next
// slot, or of the same one: Redis 7.0 lists the newest first.
func TestSlotsOfLongNames(t *testing.T) {
	t.Parallel()
	c := redisproc.ClusterForTest(t, 1)
	ctx := t.Context()
	client := opened(t, c.Servers[0].URL())
	var lists listings
	if err := client.(*redis.ClusterClient).ForEachMaster(ctx, func(_ context.Context, n *redis.Client) error {
		n.AddHook(&lists)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for _, p := range []struct {
		form string
		n    int
	}{{"{b}:%d", 5000}, {"{a}:%d" + strings.Repeat("x", 8<<10), 2500}, {"{a}:%d", 5000}} { // in the order of their slots
		fill(t, client, p.form, p.n, want)
	}
	got, _, err := inSlots(ctx, client, ValuesOptions{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, want)
	if lists.largest == 0 || lists.largest > 10<<20 {
		t.Errorf("a list of names has %d bytes", lists.largest)
	}
	var place Place // of a slot that cannot be listed at once
	if err := ReadValues(ctx, client, ValuesOptions{
		Kind: "hash", Places: []Place{{Slots: &Slots{slotOf("a"), slotOf("a") + 1}}},
		Page: func(places []Place, _ Looked) error { place = places[0]; return nil },
	}); err != nil || len(place.Servers) != 1 || place.Servers[0].RunID == "" {
		t.Errorf("%+v, %v", place, err)
	}
}

// TestGuessedProbe: a key of a known name does not hide that its slot is being moved.
func TestGuessedProbe(t *testing.T) {
	t.Parallel()
	c := redisproc.ClusterForTest(t, 2)
	ctx := t.Context()
	client := opened(t, c.Servers[0].URL())
	slot := slotOf("a")
	tag, _, _ := strings.Cut(probes()[slot], ":")
	put := func(key string) {
		if err := client.Set(ctx, key, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	put(tag + ":bale:advise")
	want := map[string]int{tag + ":bale:advise": 1}
	for i := range 40 {
		key := fmt.Sprintf("{a}:%d", i)
		put(key)
		want[key] = 1
	}
	from, to := c.Servers[0], c.Servers[1]
	if slot >= SlotCount/2 {
		from, to = to, from
	}
	steps := 0
	if err := c.Move(ctx, slot, from, to, func() {
		if steps++; steps != 5 {
			return
		}
		seen := map[string]int{}
		if err := ReadValues(ctx, client, ValuesOptions{
			Size: 100, Places: []Place{{Slots: &Slots{slot, slot + 1}}},
			Values: func(_ context.Context, _ redis.UniversalClient, values []Value) (Next, error) {
				for _, v := range values {
					seen[v.Key] = 1
				}
				return More, nil
			},
		}); err != nil {
			t.Error(err)
		}
		same(t, seen, want)
	}); err != nil || steps < 5 {
		t.Fatal(steps, err)
	}
}

// TestLargeSlots: slots with more keys than a list has take one SCAN of their server, or
// CLUSTERSCAN. A slot of another server ends what it reads.
func TestLargeSlots(t *testing.T) {
	t.Parallel()
	c := redisproc.ClusterForTest(t, 2)
	ctx := t.Context()
	client := opened(t, c.Servers[0].URL())
	want := map[string]int{}
	for _, slot := range []int{8185, 8186, 8189, 8191, 8192, 8195} { // the second server begins at 8192
		tag, _, _ := strings.Cut(probes()[slot], ":")
		fill(t, client, tag+"%d", mostListedOfOld+1000, want)
	}
	var lists listings
	if err := client.(*redis.ClusterClient).ForEachMaster(ctx, func(_ context.Context, n *redis.Client) error {
		n.AddHook(&lists)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	if err := ReadValues(ctx, client, ValuesOptions{
		Size: 100, Places: []Place{{Slots: &Slots{8180, 8200}}},
		Values: func(_ context.Context, _ redis.UniversalClient, values []Value) (Next, error) {
			for _, v := range values {
				seen[fmt.Sprintf("%s/%s=%s", v.Key, v.Field, v.Stored)]++
			}
			return More, nil
		},
	}); err != nil {
		t.Fatal(err)
	}
	same(t, seen, want)
	if lists.scans > 2 {
		t.Errorf("%d times SCAN from the start", lists.scans)
	}
}

// listings is the largest list of names in a transaction, in bytes, and how often a SCAN began.
type listings struct {
	largest, scans int

	refused atomic.Int64
	again   chan struct{} // if set, closed when a list of names is refused for the second time
}

func (l *listings) DialHook(next redis.DialHook) redis.DialHook { return next }
func (l *listings) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); args[0] == "scan" && fmt.Sprint(args[1]) == "0" {
			l.scans++
		}
		return next(ctx, cmd)
	}
}
func (l *listings) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		err := next(ctx, commands)
		for _, c := range commands {
			if c, ok := c.(*redis.StringSliceCmd); ok {
				if l.again != nil && c.Name() == "cluster" && c.Err() != nil && l.refused.Add(1) == 2 {
					close(l.again)
				}
				l.largest = max(l.largest, lengthOfAll(c.Val()))
			}
		}
		return err
	}
}

// TestReadMovingSlots: while slots are moved to and fro, no key is missed.
func TestReadMovingSlots(t *testing.T) {
	t.Parallel()
	c := redisproc.ClusterForTest(t, 2)
	ctx := t.Context()
	client := opened(t, c.Servers[0].URL())
	tags := []string{"a", "b", "c", "d"}
	for i := range 400 {
		key := fmt.Sprintf("{%s}:%d", tags[i%len(tags)], i)
		if err := client.Set(ctx, key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	moving, stop := context.WithCancel(ctx)
	moved := make(chan error, 1)
	moves := 0
	go func() {
		for i := 0; moving.Err() == nil; i++ {
			slot := slotOf(tags[i%len(tags)])
			from, to := c.Servers[0], c.Servers[1]
			if (slot >= SlotCount/2) != (i/len(tags)%2 == 1) {
				from, to = to, from
			}
			if err := c.Move(ctx, slot, from, to, func() { time.Sleep(time.Millisecond) }); err != nil {
				moved <- fmt.Errorf("slot %d: %w", slot, err)
				return
			}
			moves++
		}
		moved <- nil
	}()
	for walk := range 15 {
		for _, tag := range tags {
			slot := slotOf(tag)
			seen := map[string]bool{}
			if err := ReadValues(ctx, client, ValuesOptions{
				Size:   100,
				Places: []Place{{Slots: &Slots{slot, slot + 1}}},
				Values: func(_ context.Context, _ redis.UniversalClient, values []Value) (Next, error) {
					for _, v := range values {
						seen[v.Key] = true
					}
					return More, nil
				},
			}); err != nil {
				t.Fatal(err)
			}
			for i := range 400 {
				if key := fmt.Sprintf("{%s}:%d", tag, i); tags[i%len(tags)] == tag && !seen[key] {
					t.Errorf("walk %d: %s was missed", walk, key)
				}
			}
		}
	}
	stop()
	if err := <-moved; err != nil {
		t.Fatal(err)
	}
	if moves < 10 {
		t.Errorf("%d slots were moved meanwhile", moves)
	}
	t.Logf("%d moves", moves)
}

// TestSettled: a place's masters are the same, or another process, or a former master.
func TestSettled(t *testing.T) {
	t.Parallel()
	c := redisproc.ClusterForTest(t, 1)
	ctx := t.Context()
	replica, err := c.AddReplica(ctx, c.Servers[0])
	if err != nil {
		t.Fatal(err)
	}
	client := opened(t, c.Servers[0].URL())
	var place Place
	read := func() {
		t.Helper()
		if err := ReadValues(ctx, client, ValuesOptions{
			Size: 100, Places: []Place{{Slots: &Slots{0, 100}}},
			Page: func(places []Place, _ Looked) error { place = places[0]; return nil },
		}); err != nil {
			t.Fatal(err)
		}
	}
	read()
	if len(place.Servers) != 1 || place.Servers[0].RunID == "" || place.Servers[0].ReplID == "" || !place.Done || place.Cursor != 100 {
		t.Fatalf("%+v", place)
	}
	settled := func(p Place, want bool) {
		t.Helper()
		same, confirmed, err := Settled(ctx, client, p, true)
		if err != nil || same != want || same && !confirmed {
			t.Errorf("%+v: same %v, confirmed %v, %v", p, same, confirmed, err)
		}
	}
	settled(place, true)
	other := place
	other.Servers = slices.Clone(place.Servers)
	other.Servers[0].RunID = strings.Repeat("0", 40)
	settled(other, false)
	other.Servers[0].Addr = "127.0.0.1:1"
	settled(other, false)
	if _, err := replica.Do(ctx, "CLUSTER", "FAILOVER", "TAKEOVER"); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		client.(*redis.ClusterClient).ReloadState(ctx)
		time.Sleep(20 * time.Millisecond)
		if same, _, err := Settled(ctx, client, place, true); err == nil && !same {
			read()
			if place.Servers[0].Addr != replica.Addr() {
				continue
			}
			settled(place, true)
			return
		}
	}
	t.Error("the former master is still taken for one")
}
