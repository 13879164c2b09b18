package verify

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/fleet"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/stream"
	"github.com/redis/go-redis/v9"
)

// changing overwrites a key before each command.
type changing struct{ write func() }

func (changing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c changing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { c.write(); return next(ctx, cmd) }
}

func (c changing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { c.write(); return next(ctx, cmds) }
}

// TestVerifyOfAChangingValue: a value that is another bad one whenever it is looked at is bad,
// after some looks.
func TestVerifyOfAChangingValue(t *testing.T) {
	ctx := t.Context()
	client, url := clitest.Server(t)
	o, err := redis.ParseURL(url)
	clitest.OK(t, err)
	watched := redis.NewClient(o)
	defer watched.Close()
	damaged, writes := append(frame.Header{Algorithm: frame.Zstd, Length: 100}.Append(nil), "garbage"...), 0
	watched.AddHook(changing{func() {
		writes++
		if writes > 100 {
			t.Error("it reads on and on")
			watched.Close()
		}
		clitest.OK(t, client.Set(ctx, "k", fmt.Sprint(string(damaged), writes), 0).Err())
	}})
	packer, err := bale.NewPacker(bale.PackerOptions{})
	clitest.OK(t, err)
	defer packer.Close()
	v := &verifier{interrupt: ctx, pace: &keyspace.Pacer{}, client: watched, packer: packer, found: newPart(badNamed)}
	clitest.OK(t, v.value(ctx, keyspace.Value{Key: "k", Stored: damaged}))
	if r := v.found.result(nil); r.Values != 1 || r.Bad != 1 || r.Causes[errChanges.Error()] != 1 || len(r.Named) != 1 ||
		r.Named[0].Key != "k" {
		t.Errorf("%+v", r)
	}
}

// TestValuesEndWithContext: an interrupt ends the work on values that were read.
func TestValuesEndWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	v := &verifier{interrupt: ctx, found: newPart(badNamed)}
	if _, err := v.values(t.Context(), nil, []keyspace.Value{{Key: "k", Stored: []byte("v")}}); !errors.Is(err,
		context.Canceled) || v.found.Values != 0 {
		t.Errorf("%v, %d values", err, v.found.Values)
	}
}

// TestBadValuesArePaced: a bad value is read twice, and both count. So does its name, which is sent
// for the second reading.
func TestBadValuesArePaced(t *testing.T) {
	client, _ := clitest.Server(t)
	packer, err := bale.NewPacker(bale.PackerOptions{})
	clitest.OK(t, err)
	defer packer.Close()
	for _, v := range []keyspace.Value{
		{Key: "k", Stored: make([]byte, 1<<20)},
		{Key: strings.Repeat("k", 1<<20), Field: "f", InHash: true},
		{Key: "h", Field: strings.Repeat("f", 1<<20), InHash: true},
	} {
		v.Stored = append(frame.Header{Algorithm: frame.Zstd, Length: 100}.Append(nil), v.Stored...)
		if v.InHash {
			clitest.OK(t, client.HSet(t.Context(), v.Key, v.Field, v.Stored).Err())
		} else {
			clitest.OK(t, client.Set(t.Context(), v.Key, v.Stored, 0).Err())
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond) // less than 1 MiB takes
		r := &verifier{
			interrupt: ctx, pace: &keyspace.Pacer{Pace: keyspace.Pace{Bandwidth: 1 << 20}},
			client: client, packer: packer, found: newPart(badNamed),
		}
		if err := r.value(t.Context(), v); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%.1q: %v", v.Key, err)
		}
		cancel()
	}
}

// TestAllIsPaced: a rate counts the second reading of bad values, and each chunk that is looked
// for, also that of all workers.
func TestAllIsPaced(t *testing.T) {
	payload := append([]byte{1, 26}, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"...)
	for _, n := range []uint64{10 * 64 << 10, 10 * 64 << 10, 10} {
		payload = binary.AppendUvarint(payload, n)
	}
	manifest := append(frame.Header{Version: frame.V1, Algorithm: frame.Chunks, Length: uint64(len(payload)),
		HasChecksum: true, Checksum: frame.Checksum(payload)}.Append(nil), payload...)
	damaged := append(frame.Header{Algorithm: frame.Zstd, Length: 100}.Append(nil), "damaged"...)
	const rate = 500
	for _, run := range []fleet.Part{{}, {Name: "all", Rate: rate}} {
		client, url := clitest.Server(t)
		for i := range 20 {
			clitest.OK(t, client.MSet(t.Context(), fmt.Sprint("damaged", i), damaged, fmt.Sprint("stream", i), manifest).Err())
		}
		clitest.OK(t, client.ConfigResetStat(t.Context()).Err())
		began, err := client.Time(t.Context()).Result()
		clitest.OK(t, err)
		counted := 0
		r, err := Run(t.Context(), Options{Run: run, Registry: registry.Options{
			Streams: &cli.Streams{Err: io.Discard}, Data: []string{url}, Prefix: dict.DefaultPrefix,
			Pace: keyspace.Pace{Shared: func(_ context.Context, n int) error {
				counted += n
				return nil
			}},
		}})
		if r == nil || r.Bad != 40 {
			t.Fatalf("%+v, %v", r, err)
		}
		calls, err := keyspace.CommandCalls(t.Context(), client)
		clitest.OK(t, err)
		if run.Name != "" { // it counts in place of that, a tenth of the rate at a time
			due, err := client.HGet(t.Context(), dict.DefaultPrefix+"run:all", "due").Float64()
			clitest.OK(t, err)
			counted = int((due-float64(began.UnixMilli()))*rate/1000) + rate/10
		}
		if looks := int(calls["strlen"]); looks < 100 || counted < looks {
			t.Errorf("%d of %d looks count", counted, looks)
		}
	}
}

// TestEachCauseIsNamed: as many as are counted by themselves, each before the second of another.
func TestEachCauseIsNamed(t *testing.T) {
	found := newPart(badNamed)
	for i := range causesKept + 1 {
		cause := fmt.Sprint("cause ", i)
		for range ofCause {
			found.name(cause, keyspace.Problem{Cause: cause})
		}
	}
	seen := map[string]bool{}
	for _, p := range found.result(nil).Named {
		seen[p.Cause] = true
	}
	if len(seen) != causesKept+1 || len(found.Named) != badNamed {
		t.Errorf("%d causes in %d", len(seen), len(found.Named))
	}
}

// TestForgedPackings: a forged state of a unit has no more algorithms than are counted apart.
func TestForgedPackings(t *testing.T) {
	all := newPart(badNamed)
	for unit := range 3 {
		forged := newPart(ofUnit)
		for i := range packingsKept {
			forged.Packed = append(forged.Packed, Packed{Algorithm: fmt.Sprint(unit, i), Values: 1})
		}
		all.merge(forged)
	}
	all.packed(Packed{Algorithm: "0 0", Values: 1})
	long := newPart(badNamed)
	if long.packed(Packed{Algorithm: strings.Repeat("x", 100)}); long.Packed[0].Algorithm != otherPackings {
		t.Errorf("an algorithm of %d bytes", len(long.Packed[0].Algorithm))
	}
	values := int64(0)
	for _, p := range all.Packed {
		values += p.Values
	}
	if first, others := all.Packed[0], all.Packed[packingsKept]; len(all.Packed) != packingsKept+1 ||
		values != 3*packingsKept+1 || first.Values != 2 || others.Algorithm != otherPackings {
		t.Errorf("%d kinds of %d values, %+v, %+v", len(all.Packed), values, first, others)
	}
}

// gone are the compressors of a registry that does not answer.
type gone struct{ *compress.Set }

func (gone) Reader(context.Context, frame.Algorithm, frame.DictionaryID) (compress.Compressor, error) {
	return nil, registry.ErrUnreachable
}

// TestRegistryIsGone: a value is not bad because the registry does not answer.
func TestRegistryIsGone(t *testing.T) {
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: gone{&compress.Set{Write: compress.None}}})
	clitest.OK(t, err)
	defer packer.Close()
	v := &verifier{interrupt: t.Context(), packer: packer, found: newPart(badNamed)}
	packed := frame.Header{Algorithm: frame.Zstd, DictionaryID: 7, Length: 100}.Append(nil)
	if err := v.value(t.Context(), keyspace.Value{Key: "k", Stored: packed}); !errors.Is(err, registry.ErrUnreachable) ||
		v.found.Bad > 0 {
		t.Errorf("%v, %d bad", err, v.found.Bad)
	}
}

// TestShareGoesOn: a worker finds a bad value after another one died that had found none.
func TestShareGoesOn(t *testing.T) {
	ctx := t.Context()
	client, url := clitest.Server(t)
	damaged := append(frame.Header{Algorithm: frame.Zstd, Length: 100}.Append(nil), "garbage"...)
	clitest.OK(t, client.Set(ctx, "k", damaged, 0).Err())
	o := Options{Run: fleet.Part{Name: "check"}, Registry: registry.Options{Streams: &cli.Streams{Err: io.Discard},
		Data: []string{url}, Prefix: dict.DefaultPrefix}}
	reg, err := registry.Open(ctx, o.Registry)
	clitest.OK(t, err)
	defer reg.Close()
	_, err = fleet.JoinWalk(ctx, reg, o.Run.Name, "verify", settings{Prefix: reg.Prefix})
	clitest.OK(t, err)
	places, err := keyspace.Places(ctx, reg.Client())
	clitest.OK(t, err)
	none, err := json.Marshal(map[string]any{"place": places[0], "counts": newPart(ofUnit)})
	clitest.OK(t, err)
	clitest.OK(t, client.HSet(ctx, reg.Prefix+"run:"+o.Run.Name, "unit:0", none).Err())
	if r, err := Run(ctx, o); err == nil || r == nil || r.Bad != 1 || len(r.Causes) != 1 || len(r.Named) != 1 ||
		r.Named[0].Key != "k" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestRestartMeanwhile: a walk that goes on in another process is not complete, for cursors of one
// mean nothing to another.
func TestRestartMeanwhile(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redisproc.ForTest(t)
	o := Options{Registry: registry.Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{server.URL()},
		Prefix: dict.DefaultPrefix}}
	reg, err := registry.Open(ctx, o.Registry)
	clitest.OK(t, err)
	defer reg.Close()
	client := reg.Client().(*redis.Client)
	for i := range 3000 {
		clitest.OK(t, client.Set(ctx, fmt.Sprint(i), "plain", 0).Err())
	}
	clitest.OK(t, client.Save(ctx).Err())
	packer, err := bale.NewPacker(bale.PackerOptions{})
	clitest.OK(t, err)
	defer packer.Close()
	for _, restart := range []bool{false, true} {
		v := &verifier{interrupt: ctx, pace: reg.Pacer, client: client, packer: packer, found: newPart(badNamed)}
		client.AddHook(changing{func() {
			if restart && v.found.Keys > 0 {
				restart = false
				clitest.OK(t, server.Restart(ctx))
			}
		}})
		want := !restart
		err := v.walk(ctx, reg, nil)
		if r := v.found.result(err); r.Complete != want || r.Interrupted || want && r.Keys != 3000 {
			t.Errorf("complete %v after %d keys, %v", r.Complete, r.Keys, err)
		}
		if !want && (!errors.Is(err, keyspace.ErrInconclusive) ||
			!strings.Contains(err.Error(), "it was restarted") || !strings.Contains(err.Error(), "--run NAME")) {
			t.Error(err)
		}
	}
}

// TestDamagedChunks: what no reader can read is bad, though all chunks are there.
func TestDamagedChunks(t *testing.T) {
	ctx := t.Context()
	client, url := clitest.Server(t)
	s, err := stream.New(goredis.NewStore(client), stream.Options{Chunk: 64 << 10})
	clitest.OK(t, err)
	content := make([]byte, 1<<19)
	rand.NewChaCha8([32]byte{}).Read(content)
	_, err = s.PutReader(ctx, "user:1", bytes.NewReader(content), bale.NoExpiry())
	clitest.OK(t, err)
	stored, err := client.Get(ctx, "user:1").Bytes()
	clitest.OK(t, err)
	m, err := stream.ParseManifest(stored)
	clitest.OK(t, err)
	chunk := m.ChunkKey("user:1", 3)
	old, err := client.Get(ctx, chunk).Result()
	clitest.OK(t, err)
	for what, damaged := range map[string]string{
		"": old, "other bytes": strings.Repeat("x", len(old)), "its header": "\xba\x1f" + old[2:], "shorter": old[:len(old)-1],
	} {
		clitest.OK(t, client.Set(ctx, chunk, damaged, 0).Err())
		r, err := Run(ctx, Options{Match: []string{"user:1"}, Registry: registry.Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{url}, Prefix: dict.DefaultPrefix}})
		if bad := int64(min(len(what), 1)); r == nil || r.Bad != bad || r.Streams != 1-bad || (err != nil) != (bad > 0) {
			t.Errorf("%q: %+v, %v", what, r, err)
		}
	}
}

// TestMatchIsChecked: a pattern that ends in the middle matched nothing on a server, and panicked
// in a run that workers share.
func TestMatchIsChecked(t *testing.T) {
	for pattern, want := range map[string]string{`user:\`: "ends within", "user:[123": "ends within", "": "is empty"} {
		r, err := Run(t.Context(), Options{Match: []string{pattern}})
		if r != nil || !errors.Is(err, cli.ErrUsage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}

// TestReplicas: a bad value of a replica is one if its master has it, too.
func TestReplicas(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	master := redisproc.ForTest(t, "--repl-diskless-sync-delay", "0")
	damaged := string(append(frame.Header{Algorithm: frame.Zstd, Length: 100}.Append(nil), "garbage"...))
	set := func(s *redisproc.Server, key, value string) {
		t.Helper()
		_, err := s.Do(ctx, "SET", key, value)
		clitest.OK(t, err)
	}
	host, port, err := net.SplitHostPort(master.Addr())
	clitest.OK(t, err)
	replica := redisproc.ForTest(t, "--replicaof", host, port, "--replica-read-only", "no")
	for stats := ""; !strings.Contains(stats, "cmdstat_set:"); { // the stream of writes begins some time after the replica is online
		set(master, "bad", damaged)
		set(master, "good", "plain")
		stats, err = replica.Do(ctx, "INFO", "commandstats")
		clitest.OK(t, err)
	}
	set(replica, "good", damaged)
	var notes strings.Builder
	for _, run := range []string{"", "check"} {
		o := Options{Replicas: true, Run: fleet.Part{Name: run}, Registry: registry.Options{
			Streams: &cli.Streams{Err: &notes}, Data: []string{master.URL()}, Prefix: dict.DefaultPrefix}}
		r, err := Run(ctx, o)
		if r == nil || r.Bad != 1 || r.Values != 2 || len(r.Named) != 1 || r.Named[0].Key != "bad" || !r.Complete {
			t.Errorf("%+v, %v", r, err)
		}
	}
	stats, err := replica.Do(ctx, "INFO", "commandstats") // of two values, and of a look at the replica, both times
	clitest.OK(t, err)
	if !strings.Contains(stats, "cmdstat_getrange:calls=6,") || strings.Contains(notes.String(), "not read") {
		t.Errorf("%s\n%s", stats, notes.String())
	}
}
