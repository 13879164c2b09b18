package migrate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/tcptest"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/stream"
)

func TestMain(m *testing.M) { tcptest.VerifyTestMain(m) }

const maxSize = 1 << 20

// deployments are a single one and a cluster.
func deployments(t *testing.T) map[string]redis.UniversalClient {
	all := map[string]redis.UniversalClient{}
	for name, addr := range map[string]string{"standalone": redisproc.ForTest(t).Addr(), "cluster": redisproc.ClusterForTest(t, 3).Addrs()[0]} {
		all[name] = open(t, addr)
	}
	return all
}

func open(t *testing.T, addr string) redis.UniversalClient {
	t.Helper()
	c, err := keyspace.Open(t.Context(), "redis://"+addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// packer packs with zstd and a dictionary, or without one.
func packer(t *testing.T, d *frame.Dictionary) *bale.Packer { return packerOf(t, frame.Zstd, d) }

func packerOf(t *testing.T, a frame.Algorithm, d *frame.Dictionary) *bale.Packer {
	t.Helper()
	var engine compress.Engine
	c, err := engine.New(compress.Setting{Algorithm: a}, d)
	if err != nil {
		t.Fatal(err)
	}
	p, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: c}, MaxSize: maxSize})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close(); c.Close() })
	return p
}

func options(t *testing.T) pass {
	return pass{Match: []string{"*"}, Skip: keyspace.RegistryKeys("bale:dict:"), Packer: packer(t, nil), Algorithm: frame.Zstd, MaxSize: maxSize}
}

func run(t *testing.T, c redis.UniversalClient, o pass) *Counts {
	t.Helper()
	r := &Counts{}
	if err := walk(t.Context(), c, o, r); err != nil {
		t.Fatal(err)
	}
	return r
}

// left are the numbers of values by reason.
func left(r *Counts) map[Reason]int64 {
	n := map[Reason]int64{}
	for why, t := range r.Left {
		n[why] = t.Values
	}
	return n
}

func text(i int) string {
	return fmt.Sprintf(`{"id":%d,"name":"name %d","tags":["red","green","blue","red","green","blue"],"settings":{"theme":"dark","zone":"Europe/London"}}`, i, i*i)
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// snapshot is every string and hash there is, with the time that it ends.
func snapshot(t *testing.T, c redis.UniversalClient) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := keyspace.ReadValues(t.Context(), c, keyspace.ValuesOptions{Size: 1 << 30, Values: func(ctx context.Context, _ redis.UniversalClient, values []keyspace.Value) (keyspace.Next, error) {
		for _, v := range values {
			at, err := c.PExpireTime(ctx, v.Key).Result()
			if err != nil {
				return keyspace.Stop, err
			}
			all[fmt.Sprintf("%s/%s/%v", v.Key, v.Field, v.InHash)] = fmt.Sprintf("%d %s", at, v.Stored)
		}
		return keyspace.More, nil
	}})
	must(t, err)
	return all
}

// TestThereAndBack packs one of everything, twice, and unpacks it.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	for name, c := range deployments(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			for i := range 300 {
				ttl := time.Duration(0)
				if i%3 == 0 {
					ttl = time.Hour + time.Duration(i)*time.Millisecond
				}
				must(t, c.Set(ctx, fmt.Sprint("user:", i), text(i), ttl).Err())
			}
			fields := map[string]any{}
			for i := range 1000 {
				fields[fmt.Sprint("field ", i)] = text(i)
			}
			dictionary, err := frame.NewDictionary([]byte(text(1) + text(2)))
			must(t, err)
			with, err := packer(t, dictionary).Pack(nil, []byte(text(7)))
			must(t, err)
			otherwise, err := frameOf(frame.S2, text(8))
			must(t, err)
			corrupt, err := frameOf(frame.Zstd, text(9))
			must(t, err)
			corrupt[len(corrupt)-3]++
			expires := time.Now().Add(time.Minute)
			fresh := frame.Freshness{Expires: expires}.Append(append(frame.Header{Version: frame.V2, Length: 5}.Append(nil), "fresh"...))
			absent := frame.Freshness{Absent: true}.Append(frame.Header{Version: frame.V2}.Append(nil))
			must(t,
				c.HSet(ctx, "hash", fields).Err(), c.PExpire(ctx, "hash", time.Hour).Err(), c.HSet(ctx, "small", "a", text(1), "b", "short").Err(),
				c.Set(ctx, "escaped", "\xBA\x1E"+text(1), 0).Err(), c.Set(ctx, "magic", "\xBA\x1Eshort", 0).Err(), c.Set(ctx, "empty", "", 0).Err(),
				c.Set(ctx, "number", strings.Repeat("1", 100), 0).Err(), c.Set(ctx, "noise", noise(1000), 0).Err(), c.PFAdd(ctx, "hll", "a", "b").Err(), c.RPush(ctx, "list", text(1)).Err(),
				c.Set(ctx, "bale:dict:data:12345678", text(1), 0).Err(), c.Set(ctx, "large", bytes.Repeat([]byte(text(1)), maxSize/100), 0).Err(),
				c.Set(ctx, "unknown", with, 0).Err(), c.Set(ctx, "otherwise", otherwise, 0).Err(), c.Set(ctx, "corrupt", corrupt, time.Hour).Err(),
				c.Set(ctx, "fresh", fresh, time.Hour).Err(), c.Set(ctx, "absent", absent, time.Hour).Err(),
			)
			streams, err := stream.New(goredis.NewStore(c), stream.Options{})
			must(t, err)
			_, err = streams.PutReader(ctx, "stream", strings.NewReader(text(1)), bale.Expiry{})
			must(t, err)
			before := snapshot(t, c)

			dry := options(t)
			dry.DryRun = true
			would := run(t, c, dry)
			if diff := cmp.Diff(before, snapshot(t, c)); diff != "" {
				t.Fatalf("the dry run changed something:\n%s", diff)
			}
			r := run(t, c, options(t))
			if diff := cmp.Diff(would, r); diff != "" {
				t.Errorf("dry run and run (-dry +real):\n%s", diff)
			}
			// 300 and "escaped"; "a" and 1000; "short" and "" and "magic" and noise are left.
			if r.Strings.After.Values != 301 || r.Fields.After.Values != 1001 || r.Strings.After.Bytes >= r.Strings.Before.Bytes || r.Fields.After.Allocated >= r.Fields.Before.Allocated {
				t.Errorf("%+v, %+v", r.Strings, r.Fields)
			}
			want := map[Reason]int64{NotSmaller: 4, Number: 1, HLL: 1, OtherType: 1, Registry: 1, TooLarge: 1, Unreadable: 2, Otherwise: 1, Packed: 1, Absent: 1, Stream: 2}
			if diff := cmp.Diff(want, left(r)); diff != "" {
				t.Errorf("left (-want +got):\n%s", diff)
			}
			if r.Keys != 300+2+7+1+2+5+1+1-1 || len(r.Problems) != 2 {
				t.Errorf("%d keys, problems %v", r.Keys, r.Problems)
			}
			for _, p := range r.Problems {
				if !(p.Key == "corrupt" && strings.Contains(p.Cause, "corrupt value") || p.Key == "unknown" && strings.Contains(p.Cause, "unknown dictionary")) {
					t.Error(p)
				}
			}
			packed := snapshot(t, c)
			for _, key := range []string{"unknown//false", "corrupt//false", "fresh//false", "absent//false", "number//false", "large//false", "bale:dict:data:12345678//false", "stream//false"} {
				if before[key] != packed[key] || packed[key] == "" {
					t.Errorf("%s was changed", key)
				}
			}
			again := run(t, c, options(t))
			want[Packed] += 1302
			if diff := cmp.Diff(want, left(again)); diff != "" || again.Changed() != 0 {
				t.Errorf("again: %d changed, left (-want +got):\n%s", again.Changed(), diff)
			}

			o := options(t)
			o.Packer, o.DictionaryID, o.Repack = packer(t, dictionary), dictionary.ID(), true
			repacked := run(t, c, o)
			if repacked.Strings.After.Values != 302 || repacked.Fields.After.Values != 1001 || repacked.Left[Packed].Values != 2 { // "unknown" is packed so, and "fresh" is short
				t.Errorf("repacked: %+v", repacked)
			}
			o.Revert = true
			back := run(t, c, o)
			if back.Left[Unreadable].Values != 1 || back.Left[Absent].Values != 1 || back.Left[Stream].Values != 2 {
				t.Errorf("reverted: %+v", back.Left)
			}
			before["unknown//false"] = "-1 " + text(7)
			before["otherwise//false"] = "-1 " + text(8)
			before["fresh//false"] = fmt.Sprint(expires.UnixMilli()*1e6, " fresh")
			if diff := cmp.Diff(before, snapshot(t, c)); diff != "" {
				t.Errorf("not as it was (-want +got):\n%s", diff)
			}
		})
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

// frameOf packs whatever the gain.
func frameOf(a frame.Algorithm, value string) ([]byte, error) {
	var engine compress.Engine
	c, err := engine.New(compress.Setting{Algorithm: a}, nil)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	h := frame.Header{Algorithm: a, HasChecksum: true, Checksum: frame.Checksum([]byte(value)), Length: uint64(len(value))}
	return c.Compress(h.Append(nil), []byte(value))
}

// TestNested: what would be taken for a frame when it is plain stays packed, for a second walk
// would unpack it again.
func TestNested(t *testing.T) {
	c := open(t, redisproc.ForTest(t).Addr())
	inner, err := frameOf(frame.Zstd, text(1))
	must(t, err)
	outer, err := frameOf(frame.Zstd, string(inner))
	must(t, err)
	must(t, c.Set(t.Context(), "nested", outer, 0).Err())
	o := options(t)
	o.Revert = true
	for range 2 {
		r := run(t, c, o)
		if r.Left[Nested].Values != 1 || r.Failed() != 1 || len(r.Problems) != 1 {
			t.Errorf("%+v", r)
		}
	}
	if got := c.Get(t.Context(), "nested").Val(); got != string(outer) {
		t.Errorf("changed to %q", got)
	}
}

// freshFrame is a value as GetOrLoad stores it.
func freshFrame(value string, f frame.Freshness) []byte {
	return f.Append(append(frame.Header{Version: frame.V2, Length: uint64(len(value))}.Append(nil), value...))
}

// TestRepackKeepsFreshness: values of GetOrLoad are packed anew with the record of their freshness,
// and keep the expiries of their keys and fields. A second time changes nothing.
func TestRepackKeepsFreshness(t *testing.T) {
	t.Parallel()
	for name, c := range deployments(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			dictionary, err := frame.NewDictionary([]byte(text(1) + text(2)))
			must(t, err)
			now := time.Now()
			soon, late := now.Add(time.Hour), now.Add(3*time.Hour)
			loaded := func(value string, f frame.Freshness) []byte {
				packed, err := packer(t, nil).Pack(nil, []byte(value))
				must(t, err)
				h, offset, ok := frame.Parse(packed)
				if !ok {
					return freshFrame(value, f)
				}
				h.Version = frame.V2
				return f.Append(append(h.Append(nil), packed[offset:]...))
			}
			records := map[string]frame.Freshness{
				"never": {}, "soon": {Expires: soon, Took: 3 * time.Second}, "for StaleIfError": {Expires: now.Add(-time.Minute), Took: 1},
			}
			for key, f := range records {
				must(t, c.Set(ctx, key, loaded(text(7), f), 0).Err(), c.PExpireAt(ctx, key, late).Err(), c.HSet(ctx, "hash", key, loaded(text(8), f)).Err())
			}
			fields, err := newSwapper().knowsExpiry(ctx, c, "hash") // Redis 7.4, Valkey 9
			must(t, err)
			if fields {
				must(t, c.HPExpireAt(ctx, "hash", late, "soon").Err())
			}
			must(t, c.Set(ctx, "short", loaded("short", records["soon"]), 0).Err(), c.Set(ctx, "escaped", loaded("\xBA\x1E"+string(noise(100)), records["soon"]), 0).Err())

			before := snapshot(t, c)
			o := options(t)
			if r := run(t, c, o); r.Left[Packed].Values != 8 || r.Changed() != 0 {
				t.Errorf("packed so already: %+v", r)
			}
			o.Packer, o.DictionaryID = packer(t, dictionary), dictionary.ID()
			if r := run(t, c, o); r.Left[Otherwise].Values != 6 || r.Left[Packed].Values != 2 || r.Changed() != 0 {
				t.Errorf("without Repack: %+v", r)
			}
			o.Repack, o.DryRun = true, true
			would := run(t, c, o)
			if diff := cmp.Diff(before, snapshot(t, c)); diff != "" {
				t.Fatalf("the dry run changed something:\n%s", diff)
			}
			o.DryRun = false
			r := run(t, c, o)
			if diff := cmp.Diff(would, r); diff != "" || r.Strings.After.Values != 3 || r.Fields.After.Values != 3 || r.Left[Packed].Values != 2 {
				t.Errorf("%+v; dry run and run (-dry +real):\n%s", r, diff)
			}
			after := snapshot(t, c)
			for key, was := range before {
				ends, old, _ := strings.Cut(was, " ")
				endsNow, now, _ := strings.Cut(after[key], " ")
				h, offset, _ := frame.Parse([]byte(now))
				_, oldOffset, _ := frame.Parse([]byte(old))
				f, _, _, ok := frame.ParseTrailer([]byte(now[offset:]))
				if want, _, _, _ := frame.ParseTrailer([]byte(old[oldOffset:])); !ok || f != want || ends != endsNow {
					t.Errorf("%s: %+v until %s, was %+v until %s", key, f, endsNow, want, ends)
				}
				if h.DictionaryID != dictionary.ID() && !strings.HasPrefix(key, "short/") && !strings.HasPrefix(key, "escaped/") {
					t.Errorf("%s has dictionary %v", key, h.DictionaryID)
				}
				want, err := o.Packer.Unpack(ctx, nil, []byte(old))
				must(t, err)
				if got, err := o.Packer.Unpack(ctx, nil, []byte(now)); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%s is %q, %v", key, got, err)
				}
			}
			if ends := c.Do(ctx, "HPEXPIRETIME", "hash", "FIELDS", 2, "soon", "never").Val(); fields && fmt.Sprint(ends) != fmt.Sprint([]any{late.UnixMilli(), -1}) {
				t.Errorf("the fields end at %v", ends)
			}
			if again := run(t, c, o); again.Changed() != 0 || again.Left[Packed].Values != 8 {
				t.Errorf("again: %+v", again)
			}
		})
	}
}

// TestRevertKeepsExpiries: a value that has expired by its own account does not come back, and no
// other gets a longer life.
func TestRevertKeepsExpiries(t *testing.T) {
	t.Parallel()
	for name, c := range deployments(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			now := time.Now()
			past, soon, late := now.Add(-time.Second), now.Add(time.Hour), now.Add(3*time.Hour)
			set := func(key string, f frame.Freshness, ends time.Time) {
				must(t, c.Set(ctx, key, freshFrame(key, f), 0).Err())
				if !ends.IsZero() {
					must(t, c.PExpireAt(ctx, key, ends).Err())
				}
			}
			set("expired", frame.Freshness{Expires: past}, late) // kept for StaleIfError
			set("expired for ever", frame.Freshness{Expires: past}, time.Time{})
			set("absent, expired", frame.Freshness{Expires: past, Absent: true}, late)
			set("absent", frame.Freshness{Expires: soon, Absent: true}, late)
			set("fresh", frame.Freshness{Expires: soon}, late)
			set("fresh for ever", frame.Freshness{Expires: soon}, time.Time{})
			set("key ends first", frame.Freshness{Expires: late}, soon)
			set("never", frame.Freshness{}, late)
			must(t, c.HSet(ctx, "hash", "expired", freshFrame("x", frame.Freshness{Expires: past}), "fresh", freshFrame("fresh", frame.Freshness{Expires: soon}), "never", freshFrame("never", frame.Freshness{}), "plain", "p").Err())
			fields, err := newSwapper().knowsExpiry(ctx, c, "hash") // Redis 7.4, Valkey 9
			must(t, err)

			before := snapshot(t, c)
			o := options(t)
			o.Revert, o.DryRun = true, true
			would := run(t, c, o)
			if diff := cmp.Diff(before, snapshot(t, c)); diff != "" {
				t.Fatalf("the dry run changed something:\n%s", diff)
			}
			o.DryRun = false
			r := run(t, c, o)
			if diff := cmp.Diff(would, r); diff != "" {
				t.Errorf("dry run and run (-dry +real):\n%s", diff)
			}
			at := func(ends time.Time, value string) string { return fmt.Sprintf("%d %s", ends.UnixMilli()*1e6, value) }
			want := map[string]string{
				"absent//false": before["absent//false"], "fresh//false": at(soon, "fresh"), "fresh for ever//false": at(soon, "fresh for ever"),
				"key ends first//false": at(soon, "key ends first"), "never//false": at(late, "never"),
				"hash/never/true": "-1 never", "hash/plain/true": "-1 p", "hash/fresh/true": "-1 fresh",
			}
			if !fields {
				want["hash/fresh/true"] = before["hash/fresh/true"]
				if r.Left[FreshField].Values != 1 || r.Failed() != 1 || len(r.Problems) != 1 || r.Problems[0].Field != "fresh" {
					t.Errorf("%+v", r)
				}
			} else if ends := c.Do(ctx, "HPEXPIRETIME", "hash", "FIELDS", 1, "fresh").Val(); fmt.Sprint(ends) != fmt.Sprint([]any{soon.UnixMilli()}) {
				t.Errorf("the field ends at %v", ends)
			}
			if diff := cmp.Diff(want, snapshot(t, c)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if r.Expired.Values != 4 || r.Left[Absent].Values != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// TestRevertComparesBeforeItDeletes: a value that a program has written in place of an expired one
// stays.
func TestRevertComparesBeforeItDeletes(t *testing.T) {
	ctx := t.Context()
	c := open(t, redisproc.ForTest(t).Addr())
	expired := freshFrame("old", frame.Freshness{Expires: time.Now().Add(-time.Second)})
	must(t, c.Set(ctx, "k", "new", 0).Err(), c.HSet(ctx, "h", "f", "new").Err())
	o := options(t)
	o.Revert = true
	m := &migration{pass: o, ctx: t.Context(), client: c, swapper: newSwapper(), result: &Counts{Left: map[Reason]keyspace.Tally{}}}
	_, err := m.values(ctx, c, []keyspace.Value{{Key: "k", Stored: expired}, {Key: "h", Field: "f", InHash: true, Stored: expired}, {Key: "gone", Stored: expired}})
	must(t, err)
	if diff := cmp.Diff(map[Reason]int64{Plain: 2, Gone: 1}, left(m.result)); diff != "" || m.result.Expired.Values != 0 || c.Get(ctx, "k").Val() != "new" || c.HGet(ctx, "h", "f").Val() != "new" {
		t.Errorf("%+v", m.result)
	}
}

// TestSwap: what the scripts do, and that they are sent again to a server that has forgotten them.
func TestSwap(t *testing.T) {
	t.Parallel()
	for name, c := range deployments(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			s := newSwapper()
			for range 2 {
				must(t, c.FlushAll(ctx).Err())
				if cluster, ok := c.(*redis.ClusterClient); ok {
					must(t, cluster.ForEachMaster(ctx, func(ctx context.Context, n *redis.Client) error { return n.FlushAll(ctx).Err() }))
				}
				must(t, c.ScriptFlush(ctx).Err(),
					c.Set(ctx, "same", "old", time.Hour).Err(), c.Set(ctx, "done", "new", 0).Err(), c.Set(ctx, "different", "x", 0).Err(), c.RPush(ctx, "list", "old").Err(), c.Set(ctx, "for ever", "old", 0).Err(),
					c.HSet(ctx, "hash", "same", "old", "done", "new", "different", "x").Err(), c.PExpire(ctx, "hash", time.Hour).Err())
				times := []time.Duration{c.PExpireTime(ctx, "same").Val(), c.PExpireTime(ctx, "hash").Val(), c.PExpireTime(ctx, "for ever").Val()}
				var changes []change
				var want []outcome
				for _, test := range []struct {
					key  string
					want outcome
				}{{"same", done}, {"done", done}, {"different", different}, {"list", absent}, {"gone", absent}, {"for ever", done}} {
					changes = append(changes, change{keyspace.Value{Key: test.key, Stored: []byte("old")}, []byte("new"), time.Time{}, nil})
					want = append(want, test.want)
				}
				for _, test := range []struct {
					key, field string
					want       outcome
				}{{"hash", "same", done}, {"hash", "done", done}, {"hash", "different", different}, {"hash", "gone", absent}, {"list", "x", absent}, {"gone", "x", absent}} {
					changes = append(changes, change{keyspace.Value{Key: test.key, Field: test.field, InHash: true, Stored: []byte("old")}, []byte("new"), time.Time{}, nil})
					want = append(want, test.want)
				}
				got, err := s.swap(ctx, c, changes, time.Time{})
				must(t, err)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if after := []time.Duration{c.PExpireTime(ctx, "same").Val(), c.PExpireTime(ctx, "hash").Val(), c.PExpireTime(ctx, "for ever").Val()}; !cmp.Equal(after, times) {
					t.Errorf("expiries %v, and %v before", after, times)
				}
				if n := c.Exists(ctx, "gone").Val(); n != 0 || c.Get(ctx, "same").Val() != "new" || c.Get(ctx, "different").Val() != "x" || c.HGet(ctx, "hash", "different").Val() != "x" || c.HLen(ctx, "hash").Val() != 3 {
					t.Error("other values than should be")
				}
			}
		})
	}
}

// TestElsewhere: a key that the node does not have is found through the cluster's client.
func TestElsewhere(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := open(t, redisproc.ClusterForTest(t, 3).Addrs()[0])
	must(t, c.Set(ctx, "string", text(1), 0).Err(), c.HSet(ctx, "hash", "field", text(2)).Err())
	for _, value := range []keyspace.Value{{Key: "string", Stored: []byte(text(1))}, {Key: "hash", Field: "field", InHash: true, Stored: []byte(text(2))}} {
		if err := c.(*redis.ClusterClient).ForEachMaster(ctx, func(ctx context.Context, n *redis.Client) error {
			m := &migration{pass: options(t), ctx: t.Context(), client: c, swapper: newSwapper(), result: &Counts{Left: map[Reason]keyspace.Tally{}}}
			next, _, err := m.decide(ctx, value)
			if err == nil {
				err = m.settle(ctx, n, []change{{value, next, time.Time{}, nil}}, 1)
			}
			if m.result.Changed()+m.result.Left[Packed].Values != 1 {
				t.Errorf("%s: %+v", n.Options().Addr, m.result)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if got := c.Get(ctx, "string").Val() + c.HGet(ctx, "hash", "field").Val(); strings.Contains(got, "name") && !frame.HasMagic(got) {
		t.Errorf("not packed: %q", got)
	}
}

// TestChangedMeanwhile: what is written between reading and replacing stays; after some tries it is
// left.
func TestChangedMeanwhile(t *testing.T) {
	ctx := t.Context()
	c := open(t, redisproc.ForTest(t).Addr())
	must(t, c.Set(ctx, "k", text(2), time.Hour).Err(), c.HSet(ctx, "h", "f", text(3)).Err(), c.Set(ctx, "number", "12", 0).Err())
	m := &migration{pass: options(t), ctx: t.Context(), client: c, swapper: newSwapper(), result: &Counts{Left: map[Reason]keyspace.Tally{}}}
	must(t, m.settle(ctx, c, []change{
		{keyspace.Value{Key: "k", Stored: []byte(text(1))}, []byte("packed"), time.Time{}, nil}, {keyspace.Value{Key: "h", Field: "f", InHash: true, Stored: []byte(text(1))}, []byte("packed"), time.Time{}, nil},
		{keyspace.Value{Key: "gone", Stored: []byte(text(1))}, []byte("packed"), time.Time{}, nil}, {keyspace.Value{Key: "number", Stored: []byte(text(1))}, []byte("packed"), time.Time{}, nil},
	}, 1))
	if diff := cmp.Diff(map[Reason]int64{Gone: 1, Number: 1}, left(m.result)); diff != "" || m.result.Changed() != 2 {
		t.Errorf("%+v", m.result)
	}
	for stored, want := range map[string]string{c.Get(ctx, "k").Val(): text(2), c.HGet(ctx, "h", "f").Val(): text(3)} {
		if plain, err := m.Packer.Unpack(t.Context(), nil, []byte(stored)); err != nil || string(plain) != want || !frame.HasMagic(stored) {
			t.Errorf("%q, %v", plain, err)
		}
	}
	// A program that writes after every reading.
	n := 0
	busy := &writingAfterGet{UniversalClient: c, write: func() { n++; must(t, c.Set(ctx, "k", text(1000+n), 0).Err()) }}
	m = &migration{pass: options(t), ctx: t.Context(), client: c, swapper: newSwapper(), result: &Counts{Left: map[Reason]keyspace.Tally{}}}
	must(t, m.settle(ctx, busy, []change{{keyspace.Value{Key: "k", Stored: []byte(text(1))}, []byte("packed"), time.Time{}, nil}}, 1))
	if m.result.Left[Changed].Values != 1 || m.result.Changed() != 0 || m.result.Failed() != 1 || c.Get(ctx, "k").Val() != text(1000+n) {
		t.Errorf("%+v", m.result)
	}
}

// writingAfterGet lets a program write after every pipeline.
type writingAfterGet struct {
	redis.UniversalClient
	write func()
}

func (w *writingAfterGet) Pipelined(ctx context.Context, f func(redis.Pipeliner) error) ([]redis.Cmder, error) {
	cmds, err := w.UniversalClient.Pipelined(ctx, f)
	w.write()
	return cmds, err
}

// TestFieldExpiry: a field keeps the expiry of its own.
func TestFieldExpiry(t *testing.T) {
	ctx := t.Context()
	c := open(t, redisproc.ForTest(t).Addr())
	must(t, c.HSet(ctx, "h", "ends", text(1), "stays", text(2)).Err())
	if err := c.HPExpire(ctx, "h", time.Hour+123*time.Millisecond, "ends").Err(); err != nil {
		t.Skipf("a server without expiries of fields: %v", err)
	}
	before := c.HPExpireTime(ctx, "h", "ends", "stays").Val()
	o := options(t)
	for _, o.Revert = range []bool{false, true} {
		if r := run(t, c, o); r.Fields.After.Values != 2 {
			t.Errorf("%+v", r)
		}
		if after := c.HPExpireTime(ctx, "h", "ends", "stays").Val(); !cmp.Equal(before, after) || after[0] < 0 {
			t.Errorf("expiries %v, and %v before", after, before)
		}
	}
}

// TestFullServer: where memory is full, values can still get smaller, and not larger.
func TestFullServer(t *testing.T) {
	ctx := t.Context()
	c := open(t, redisproc.ForTest(t).Addr())
	for i := range 500 {
		must(t, c.Set(ctx, fmt.Sprint("user:", i), strings.Repeat(text(i), 10), 0).Err())
	}
	must(t, c.ConfigSet(ctx, "maxmemory", "1mb").Err())
	if err := c.Set(ctx, "more", "x", 0).Err(); !redis.HasErrorPrefix(err, "OOM") {
		t.Fatalf("it is not full: %v", err)
	}
	if r := run(t, c, options(t)); r.Changed() != 500 {
		t.Errorf("%+v", r)
	}
	must(t, c.ConfigSet(ctx, "maxmemory", "1").Err())
	revert, repack := options(t), options(t)
	revert.Revert = true
	repack.Repack, repack.Algorithm, repack.Packer = true, frame.S2, packerOf(t, frame.S2, nil)
	if err := walk(ctx, c, revert, &Counts{}); !strings.Contains(fmt.Sprint(err), "OOM") {
		t.Errorf("reverted: %v", err)
	}
	must(t, c.ConfigSet(ctx, "maxmemory", "0").Err(), c.Set(ctx, "plain", strings.Repeat("x", 1000), 0).Err(), c.ConfigSet(ctx, "maxmemory", "1").Err())
	if r := run(t, c, repack); r.Changed() != 1 || r.Left[Refused].Values != 500 { // the others would grow
		t.Errorf("packed with s2: %+v", r)
	}
}

// TestInterrupted: a run that ends in the middle goes on where it was.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for name, c := range deployments(t) {
		t.Run(name, func(t *testing.T) {
			const keys = 2000
			for page := range keys / 1000 {
				_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
					for i := range 1000 {
						p.Set(t.Context(), fmt.Sprint("user:", 1000*page+i), text(i), 0)
					}
					return nil
				})
				must(t, err)
			}
			places, err := keyspace.Places(t.Context(), c)
			must(t, err)
			state := NewState(Settings{Match: []string{"*"}}, places)
			path := filepath.Join(t.TempDir(), "state")
			rounds := 0
			for finished := false; !finished; rounds++ {
				ctx, cancel := context.WithCancel(t.Context())
				o := options(t)
				o.Places = state.Places
				o.Page = func(places []keyspace.Place, _ *Counts) error {
					state.Places = places
					cancel()
					return nil
				}
				err := walk(ctx, c, o, state.Counts)
				cancel()
				if finished = err == nil; !finished && !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				must(t, state.Save(path))
				now, err := keyspace.Places(t.Context(), c)
				must(t, err)
				var anew []Anew
				if state, anew, err = ReadState(path, Settings{Match: []string{"*"}}, now); err != nil || anew != nil {
					t.Fatal(err, anew)
				}
			}
			if r := state.Counts; rounds < 5 || r.Keys < keys || r.Changed() != keys {
				t.Errorf("%d rounds, %+v", rounds, r)
			}
		})
	}
}

// TestValuesEndWithContext: an interrupt ends the work on values that were read.
func TestValuesEndWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := &migration{pass: options(t), ctx: ctx, swapper: newSwapper(), result: &Counts{Left: map[Reason]keyspace.Tally{}}}
	if _, err := m.values(t.Context(), nil, []keyspace.Value{{Key: "k", Stored: []byte("1")}}); !errors.Is(err, context.Canceled) || len(m.result.Left) > 0 {
		t.Errorf("%v, %v", err, m.result.Left)
	}
}

func TestReadState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	settings := Settings{Match: []string{"user:*", "session:*"}, Compress: "zstd"}
	place := keyspace.Place{Addr: "a:1", RunID: "one", Pattern: 1, Cursor: 1 << 63}
	s := NewState(settings, []keyspace.Place{place, {Addr: "b:1", RunID: "two", Done: true}})
	must(t, s.Save(path))
	read := func(settings Settings, places ...keyspace.Place) (*State, []Anew, error) {
		return ReadState(path, settings, places)
	}
	other, more := settings, settings
	other.Compress, more.Revert = "s2", true
	for _, test := range []struct {
		settings Settings
		places   []keyspace.Place
		want     string
	}{
		{other, s.Places, `is of a run with --compress "zstd", and this one has "s2"`},
		{more, s.Places, `is of a run with --revert not given, and this one has true`},
		{settings, []keyspace.Place{{Addr: "c:1", RunID: "three"}}, "is of a run on a:1, b:1, and this is c:1"},
	} {
		if _, _, err := read(test.settings, test.places...); !errors.Is(err, ErrState) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v; want %s", err, test.want)
		}
	}
	got, anew, err := read(settings, keyspace.Place{Addr: "moved:1", RunID: "one"}, keyspace.Place{Addr: "b:1", RunID: "restarted"})
	place.Addr = "moved:1"
	if diff := cmp.Diff([]keyspace.Place{place, {Addr: "b:1", RunID: "restarted"}}, got.Places); diff != "" || err != nil || !cmp.Equal(anew, []Anew{{"b:1", true}}) {
		t.Errorf("%v, %v, %s", anew, err, diff)
	}
	for _, now := range []keyspace.Place{ // the same process, after a fail-over to another and back, and with other slots
		{Addr: "a:1", RunID: "one", ReplID: "new", Cluster: "id, slots 1"}, {Addr: "a:1", RunID: "one", ReplID: "old", Cluster: "id, slots 2"},
	} {
		before := keyspace.Place{Addr: "a:1", RunID: "one", ReplID: "old", Cluster: "id, slots 1", Cursor: 7}
		must(t, NewState(settings, []keyspace.Place{before}).Save(path))
		if got, anew, err := read(settings, now); err != nil || !cmp.Equal(anew, []Anew{{"a:1", true}}) || !cmp.Equal(got.Places[0], now) {
			t.Errorf("%+v, %v, %v", got, anew, err)
		}
	}
	silent := NewState(settings, []keyspace.Place{{Addr: "a:1", Cursor: 7}}) // INFO is forbidden: it may have been started anew
	must(t, silent.Save(path))
	if got, anew, err := read(settings, keyspace.Place{Addr: "a:1"}); err != nil || !cmp.Equal(anew, []Anew{{"a:1", true}}) || got.Places[0].Cursor != 0 {
		t.Errorf("%+v, %v, %v", got, anew, err)
	}
	if s, _, err := ReadState(path+"no", settings, nil); s != nil || err != nil {
		t.Error(s, err)
	}
	must(t, os.WriteFile(path, []byte("{}"), 0o600))
	if _, _, err := read(settings, place); !errors.Is(err, ErrState) {
		t.Error(err)
	}
}

func TestIsNumber(t *testing.T) {
	for s, want := range map[string]bool{
		"0": true, "-12": true, "3.14159": true, "1e300": true, strings.Repeat("9", 500): true, "": false, "12 ": false, "1,2": false, "x": false, "NaN": false, `{"a":1}`: false, strings.Repeat("9", 6000): false,
	} {
		if got := keyspace.IsNumber([]byte(s)); got != want {
			t.Errorf("%.20q: %v", s, got)
		}
	}
}

// TestFieldEndsTooLate: a field that is to end later than the server can have one end stays as it
// is, is named, and the run goes on.
func TestFieldEndsTooLate(t *testing.T) {
	ctx := t.Context()
	c := open(t, redisproc.ForTest(t).Addr())
	far := freshFrame("far", frame.Freshness{Expires: time.UnixMilli(1<<48 - 1)})
	soon := time.Now().Add(time.Hour)
	must(t, c.HSet(ctx, "h", "far", far, "soon", freshFrame("soon", frame.Freshness{Expires: soon}), "plain", "p").Err())
	must(t, c.HSet(ctx, "own", "far", far, "soon", far).Err(), c.Set(ctx, "far", far, 0).Err())
	if err := c.HPExpire(ctx, "own", time.Hour, "soon").Err(); err != nil {
		t.Skipf("a server without expiries of fields: %v", err)
	}
	own := c.HPExpireTime(ctx, "own", "soon").Val()
	refuses := c.Do(ctx, "HPEXPIREAT", "own", int64(1<<48-1), "XX", "FIELDS", 1, "none").Err() != nil
	refused, unpacked := int64(0), int64(4)
	if refuses {
		refused, unpacked = 2, 2
	}
	before := snapshot(t, c)
	o := options(t)
	for _, o.DryRun = range []bool{true, false} {
		o.Revert = true
		r := run(t, c, o)
		if r.Fields.After.Values != unpacked || r.Strings.After.Values != 1 || r.Left[Refused].Values != refused || r.Failed() != refused || len(r.Problems) != int(refused) {
			t.Errorf("dry run %v: %+v", o.DryRun, r)
		}
		if o.DryRun && !cmp.Equal(before, snapshot(t, c)) {
			t.Error("the dry run changed something")
		}
	}
	if refuses {
		if got := c.HGet(ctx, "h", "far").Val() + c.HGet(ctx, "own", "far").Val(); got != string(far)+string(far) {
			t.Errorf("the fields are %q", got)
		}
	}
	if got := c.HPExpireTime(ctx, "own", "soon").Val(); !cmp.Equal(got, own) || c.HGet(ctx, "own", "soon").Val() != "far" {
		t.Errorf("a field with an expiry of its own ends at %v, want %v", got, own)
	}
	if got := c.HPExpireTime(ctx, "h", "soon").Val(); !cmp.Equal(got, []int64{soon.UnixMilli()}) || c.HGet(ctx, "h", "soon").Val() != "soon" {
		t.Errorf("the field ends at %v, want %v", got, soon.UnixMilli())
	}
}

// TestNothingIsHalfDone: a user who may not set an expiry changes nothing, where a value is to get
// one.
func TestNothingIsHalfDone(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	admin := open(t, server.Addr())
	must(t, admin.Do(ctx, "ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", "-pexpireat").Err())
	_ = admin.Do(ctx, "ACL", "SETUSER", "u", "-hpexpireat").Err() // which Redis 7.0 does not know
	c, err := keyspace.Open(ctx, "redis://u:p@"+server.Addr())
	must(t, err)
	defer c.Close()
	fresh := freshFrame("fresh", frame.Freshness{Expires: time.Now().Add(time.Hour)})
	for _, inHash := range []bool{false, true} {
		must(t, admin.FlushAll(ctx).Err())
		if inHash {
			must(t, admin.HSet(ctx, "k", "f", fresh).Err())
		} else {
			must(t, admin.Set(ctx, "k", fresh, 2*time.Hour).Err())
		}
		before := snapshot(t, admin)
		o := options(t)
		o.Revert = true
		r := &Counts{}
		if err := walk(ctx, c, o, r); err == nil && r.Failed() != 1 {
			t.Errorf("in a hash %v: %+v", inHash, r)
		}
		if diff := cmp.Diff(before, snapshot(t, admin)); diff != "" {
			t.Errorf("in a hash %v (-before +after):\n%s", inHash, diff)
		}
	}
}

// TestManifestInField: package stream writes strings, so that a manifest in a field is no stream.
func TestManifestInField(t *testing.T) {
	c := open(t, redisproc.ForTest(t).Addr())
	must(t, c.HSet(t.Context(), "h", "f", append(frame.Header{Algorithm: frame.Chunks, Length: 1}.Append(nil), 1)).Err())
	if r := run(t, c, options(t)); r.Left[Stream].Values != 0 || r.Left[Unreadable].Values != 1 {
		t.Errorf("%+v", r)
	}
}

// TestForgedState: whatever stands in a file to resume from, the run ends with an error or goes on.
func TestForgedState(t *testing.T) {
	ctx := t.Context()
	c := open(t, redisproc.ForTest(t).Addr())
	must(t, c.Set(ctx, "user:1", text(1), 0).Err(), c.Set(ctx, "broken", append(frame.Header{Algorithm: frame.Zstd, Length: 5}.Append(nil), 'x'), 0).Err())
	o := options(t)
	o.DryRun = true
	honest := NewState(Settings{Match: []string{"*"}}, nil)
	var err error
	honest.Places, err = keyspace.Places(ctx, c)
	must(t, err, walk(ctx, c, o, honest.Counts))
	path := filepath.Join(t.TempDir(), "state")
	must(t, honest.Save(path))
	b, err := os.ReadFile(path)
	must(t, err)
	var document any
	must(t, json.Unmarshal(b, &document))
	read, refused := 0, 0
	try := func(b []byte) {
		must(t, os.WriteFile(path, b, 0o600))
		places, err := keyspace.Places(ctx, c)
		must(t, err)
		state, _, err := ReadState(path, honest.Settings, places)
		if err != nil {
			if refused++; !errors.Is(err, ErrState) {
				t.Errorf("%s: %v", b, err)
			}
			return
		}
		read++
		o := o
		o.Places = state.Places
		if err := walk(ctx, c, o, state.Counts); err != nil {
			t.Errorf("%s: %v", b, err)
		}
		must(t, state.Save(path))
	}
	// mutated puts each of some values in each place of the document.
	var mutated func(v any, put func(any))
	mutated = func(v any, put func(any)) {
		for _, other := range []any{nil, true, -1, 7, 1e18, 1.5, "", "x", []any{}, []any{nil, nil}, map[string]any{}, map[string]any{"x": nil}} {
			put(other)
			changed, err := json.Marshal(document)
			must(t, err)
			try(changed)
		}
		put(v)
		switch v := v.(type) {
		case map[string]any:
			for name := range v {
				mutated(v[name], func(other any) { v[name] = other })
			}
		case []any:
			for i := range v {
				mutated(v[i], func(other any) { v[i] = other })
			}
		}
	}
	mutated(document, func(other any) { document = other })
	for n := range b {
		try(b[:n])
	}
	try(append(bytes.Clone(b), bytes.Repeat([]byte(" "), maxState)...))
	if read < 100 || refused < 100 {
		t.Errorf("%d were read, %d refused", read, refused)
	}
}

// TestTooLargeByKind: strings and fields of hashes have limits of their own, and so counts.
func TestTooLargeByKind(t *testing.T) {
	t.Parallel()
	c := open(t, redisproc.ForTest(t).Addr())
	large := strings.Repeat("x", 2*maxSize)
	must(t, c.Set(t.Context(), "string", large, 0).Err(), c.HSet(t.Context(), "hash", "a", large, "b", large).Err())
	if diff := cmp.Diff(map[Reason]int64{TooLarge: 1, LargeField: 2}, left(run(t, c, options(t)))); diff != "" {
		t.Error(diff)
	}
}

// TestFailedReport: a run that failed in its first page of keys may have changed values, and does
// not know that there are no keys.
func TestFailedReport(t *testing.T) {
	r := &Result{Counts: newCounts()}
	r.Strings.add(keyspace.Value{Key: "k", Stored: []byte("value")}, 3)
	for _, r.Complete = range []bool{false, true} {
		var text strings.Builder
		r.WriteText(page.NewSheet(&text, 100))
		if nothing := strings.Contains(text.String(), "nothing was done"); nothing != r.Complete {
			t.Errorf("complete %v:\n%s", r.Complete, &text)
		}
	}
}
