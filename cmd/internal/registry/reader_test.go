package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// TestDictionariesAreBounded: a command that meets many dictionaries keeps those used last, and
// fetches one for all algorithms.
func TestDictionariesAreBounded(t *testing.T) {
	const (
		dictionaries = 40 // of 1 MiB
		allowed      = 32 << 20
	)
	algorithms := []frame.Algorithm{frame.Zstd, frame.S2, frame.LZ4}
	ctx := t.Context()
	client, url := clitest.Server(t)
	r, err := Open(ctx, Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{url}, Prefix: dict.DefaultPrefix})
	clitest.OK(t, err)
	defer r.Close()
	var ids []frame.DictionaryID
	payloads := map[frame.Algorithm][]byte{} // with the first dictionary
	noise := make([]byte, frame.MaxDictionarySize)
	for i := range dictionaries {
		rand.NewChaCha8([32]byte{byte(i)}).Read(noise)
		d, err := frame.NewDictionary(noise)
		clitest.OK(t, err, client.Set(ctx, dict.DefaultPrefix+"data:"+d.ID().String(), noise, 0).Err())
		ids = append(ids, d.ID())
		if i > 0 {
			continue
		}
		for _, a := range algorithms {
			var engine compress.Engine
			c, err := engine.New(compress.Setting{Algorithm: a}, d)
			clitest.OK(t, err)
			payloads[a], err = c.Compress(nil, d.Tail(1000))
			clitest.OK(t, err, c.Close())
		}
	}
	first := slices.Clone(noise)
	rand.NewChaCha8([32]byte{0}).Read(first)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	sent := func() (n int64) {
		t.Helper()
		info, err := client.InfoMap(ctx, "stats").Result()
		clitest.OK(t, err)
		_, err = fmt.Sscan(info["Stats"]["total_net_output_bytes"], &n)
		clitest.OK(t, err)
		return n
	}
	sentBefore := sent()
	readFirst := func() {
		t.Helper()
		for _, a := range algorithms {
			c, err := r.reader.compressor(ctx, a, ids[0])
			clitest.OK(t, err)
			if plain, err := c.Decompress(nil, payloads[a], 1000); err != nil || !slices.Equal(plain, first[len(first)-1000:]) {
				t.Errorf("%v: %d bytes, %v", a, len(plain), err)
			}
		}
	}
	readFirst()
	for _, id := range ids[1:] {
		for _, a := range algorithms {
			_, err := r.reader.compressor(ctx, a, id)
			clitest.OK(t, err)
		}
	}
	if grown := heap() - before; grown > allowed {
		t.Errorf("%d MiB are kept", grown>>20)
	}
	readFirst()                                               // which was dropped
	const most = (dictionaries + 2) * frame.MaxDictionarySize // each once, the first one twice
	if n := sent() - sentBefore; n > most {
		t.Errorf("the registry sent %d bytes, more than %d", n, most)
	}
	runtime.KeepAlive(r)
}

// TestMissingAreBounded: a reader remembers no more dictionaries that are missing than it says, and
// asks for them at its pace.
func TestMissingAreBounded(t *testing.T) {
	client, url := clitest.Server(t)
	r, err := Open(t.Context(), Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{url}, Prefix: dict.DefaultPrefix})
	clitest.OK(t, err)
	defer r.Close()
	for i := range 2*missingKept + 10 {
		if _, err := r.reader.compressor(t.Context(), frame.Zstd, frame.DictionaryID(i+1)); !errors.Is(err, dict.ErrUnknown) {
			t.Fatal(err)
		}
		if len(r.reader.missing) > missingKept {
			t.Fatalf("%d are kept", len(r.reader.missing))
		}
	}
	clitest.OK(t, client.ConfigResetStat(t.Context()).Err())
	r.Pacer.Rate = 1
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond) // less than it has to wait
	defer cancel()
	_, err = r.reader.compressor(ctx, frame.Zstd, 1<<31)
	calls, failed := keyspace.CommandCalls(t.Context(), client)
	if !errors.Is(err, context.DeadlineExceeded) || failed != nil || calls["get"]+calls["getrange"] > 0 {
		t.Errorf("%v, %v, %v", err, calls, failed)
	}
}

// TestInterruptedFetch: the wait for a dictionary ends with the command, and blames no value.
func TestInterruptedFetch(t *testing.T) {
	_, url := clitest.Server(t)
	ctx, interrupt := context.WithCancel(t.Context())
	r, err := Open(ctx, Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{url}, Prefix: dict.DefaultPrefix})
	clitest.OK(t, err)
	defer r.Close()
	r.Pacer.Rate = 1
	interrupt()
	alive, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := r.reader.compressor(alive, frame.Zstd, 1); !errors.Is(err, ErrUnreachable) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestQuarantineWithoutEnd: bale gives each key of the quarantine an expiry, and somebody else may
// not. The dictionary is read all the same. An empty prefix is the default one.
func TestQuarantineWithoutEnd(t *testing.T) {
	ctx := t.Context()
	client, url := clitest.Server(t)
	r, err := Open(ctx, Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{url}, LookOnly: true})
	clitest.OK(t, err)
	defer r.Close()
	d, err := frame.NewDictionary([]byte("words of a dictionary"))
	clitest.OK(t, err, client.Set(ctx, dict.DefaultPrefix+"quarantine:"+d.ID().String(), d.Bytes(), 0).Err())
	if _, err := r.reader.compressor(ctx, frame.Zstd, d.ID()); err != nil || len(r.left) != 1 {
		t.Errorf("%v, %v", r.left, err)
	}
	if until, err := r.QuarantinedUntil(ctx, d.ID()); err != nil || !until.After(time.Now().AddDate(100, 0, 0)) {
		t.Errorf("until %v, %v", until, err)
	}
}

// TestRegistryTakesNoWrites: a dictionary in quarantine is read all the same, and a note says that
// it stays there. A command that is to bring it back fails.
func TestRegistryTakesNoWrites(t *testing.T) {
	ctx := t.Context()
	client, url := clitest.Server(t)
	var notes strings.Builder
	r, err := Open(ctx, Options{Streams: &cli.Streams{Err: &notes}, Data: []string{url}})
	clitest.OK(t, err)
	d, err := frame.NewDictionary([]byte("words of a dictionary"))
	clitest.OK(t, err, client.Set(ctx, dict.DefaultPrefix+"quarantine:"+d.ID().String(), d.Bytes(), time.Hour).Err())
	clitest.OK(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	if _, err := r.Read(ctx, d.ID()); err != nil {
		t.Error(err)
	}
	if _, err := r.Bring(ctx, d.ID()); !strings.Contains(fmt.Sprint(err), "OOM") {
		t.Error(err)
	}
	clitest.OK(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
	other, err := frame.NewDictionary([]byte("words of another dictionary"))
	clitest.OK(t, err, client.Set(ctx, dict.DefaultPrefix+"quarantine:"+other.ID().String(), other.Bytes(), time.Hour).Err())
	clitest.OK(t, client.ConfigSet(ctx, "maxmemory", "1").Err())
	if _, err := r.Read(ctx, other.ID()); err != nil || len(r.left) != 2 {
		t.Error(err)
	}
	clitest.OK(t, client.ConfigSet(ctx, "maxmemory", "0").Err())
	if _, err := r.Read(ctx, other.ID()); err != nil || len(r.left) != 1 { // it is back
		t.Error(err)
	}
	clitest.OK(t, r.Close())
	if text := notes.String(); !strings.Contains(text, "in quarantine, until that ends") || !strings.Contains(text, "OOM") {
		t.Error(text)
	}
	r, err = Open(ctx, Options{Streams: &cli.Streams{Err: &notes}, Data: []string{url}})
	clitest.OK(t, err)
	if _, err := r.Read(ctx, d.ID()); err != nil || r.Restored() != 1 {
		t.Error(err)
	}
	clitest.OK(t, r.Close())
}

// TestFailuresAreRemembered: a dictionary that cannot be read is not read again with each value,
// and its bytes are paced, too. An error of the connection or the context is not remembered.
func TestFailuresAreRemembered(t *testing.T) {
	const wrong, otherType = frame.DictionaryID(1), frame.DictionaryID(2)
	client, url := clitest.Server(t)
	key := func(id frame.DictionaryID) string { return dict.DefaultPrefix + "data:" + id.String() }
	clitest.OK(t, client.Set(t.Context(), key(wrong), make([]byte, 1000), 0).Err(), client.LPush(t.Context(), key(otherType), "v").Err())
	for _, lookOnly := range []bool{false, true} {
		r, err := Open(t.Context(), Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{url}, Prefix: dict.DefaultPrefix, LookOnly: lookOnly})
		clitest.OK(t, err)
		defer r.Close()
		for _, id := range []frame.DictionaryID{wrong, otherType} {
			r.Pacer.Pace = keyspace.Pace{}
			_, first := r.reader.compressor(t.Context(), frame.Zstd, id)
			clitest.OK(t, client.ConfigResetStat(t.Context()).Err())
			_, second := r.reader.compressor(t.Context(), frame.Zstd, id)
			calls, err := keyspace.CommandCalls(t.Context(), client)
			if first == nil || second == nil || first.Error() != second.Error() || err != nil || calls["getrange"] > 0 {
				t.Errorf("look only %v, %v: %v, %v, %v, %v", lookOnly, id, first, second, calls, err)
			}
		}
		clear(r.reader.missing)
		r.Pacer.Bandwidth = 1
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond) // less than 1000 bytes take
		_, err = r.reader.compressor(ctx, frame.Zstd, wrong)
		cancel()
		if err == nil || errors.Is(err, dict.ErrCorrupt) || len(r.reader.missing) > 0 {
			t.Errorf("look only %v: %v, %v", lookOnly, r.reader.missing, err)
		}
	}
}

// TestLargeValuesAreNotTrainedOn: one value of 45 MiB would make train take 1.6 GiB.
func TestLargeValuesAreNotTrainedOn(t *testing.T) {
	for size, want := range map[int]int{2 << 10: 200 << 10, 128 << 10: 4 << 20, 1 << 20: 4 << 20} {
		if got := MaxSampled(size); got != want {
			t.Errorf("a dictionary of %d bytes: %d, want %d", size, got, want)
		}
	}
}

// TestForgedSample: a few bytes that unpack to much are passed over before they are unpacked.
func TestForgedSample(t *testing.T) {
	const values = 20
	client, url := clitest.Server(t)
	packer, err := bale.NewPacker(bale.PackerOptions{})
	clitest.OK(t, err)
	defer packer.Close()
	packed, err := packer.Pack(nil, make([]byte, 64<<20))
	clitest.OK(t, err)
	for i := range values {
		clitest.OK(t, client.Set(t.Context(), fmt.Sprint(i), packed, 0).Err())
	}
	r, err := Open(t.Context(), Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{url}, Prefix: dict.DefaultPrefix})
	clitest.OK(t, err)
	defer r.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	sample, err := r.Sample(t.Context(), keyspace.SampleOptions{Values: 100, Size: MaxSampled(1 << 20)})
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err != nil || sample.TooLarge != values || sample.Unread > 0 || took > 64<<20 {
		t.Errorf("%+v, %v, %d bytes", sample, err, took)
	}
}

// TestRegistryIsGone: a registry that does not answer says nothing about a value. It is asked again
// with the next one.
func TestRegistryIsGone(t *testing.T) {
	server := redisproc.ForTest(t)
	r, err := Open(t.Context(), Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{server.URL()}, Prefix: dict.DefaultPrefix})
	clitest.OK(t, err)
	defer r.Close()
	server.Kill()
	if _, err := r.reader.compressor(t.Context(), frame.Zstd, 1); !errors.Is(err, ErrUnreachable) || len(r.reader.missing) > 0 {
		t.Errorf("%v, %v", err, r.reader.missing)
	}
	clitest.OK(t, server.Restart(t.Context()))
	if _, err := r.reader.compressor(t.Context(), frame.Zstd, 1); !errors.Is(err, dict.ErrUnknown) {
		t.Error(err)
	}
}
