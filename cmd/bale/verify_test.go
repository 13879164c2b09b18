package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stream"
)

// TestVerifyRepairs: a stream whose chunks still have the lease of their writing, as a crash of an
// older version left it, is named and mended.
func TestVerifyRepairs(t *testing.T) {
	ctx := t.Context()
	l := newLifecycle(t, 1)
	streams, err := stream.New(goredis.NewStore(l.client), stream.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for key, expiry := range map[string]bale.Expiry{"endless": bale.NoExpiry(), "ends": bale.TTL(2 * time.Hour), "sound": bale.NoExpiry()} {
		if _, err := streams.PutReader(ctx, key, strings.NewReader(key), expiry); err != nil {
			t.Fatal(err)
		}
	}
	chunk := func(key string) string {
		m, err := stream.ParseManifest([]byte(l.client.Get(ctx, key).Val()))
		if err != nil {
			t.Fatal(err)
		}
		return m.ChunkKey(key, 0)
	}
	for _, key := range []string{"endless", "ends"} {
		if err := l.client.Expire(ctx, chunk(key), time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := l.run(ctx, l.server.URL(), "verify", "--max-rate", "0", "--max-bandwidth", "0")
	if code != cli.ExitFailed || !strings.Contains(out, "2: chunks of the stream expire before it: bale verify --repair mends it") || !strings.Contains(out, `"endless": `) {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
	if code, out, errs = l.run(ctx, l.server.URL(), "verify", "--max-rate", "0", "--max-bandwidth", "0", "--repair"); code != cli.ExitDone || !strings.Contains(out, "2 streams or interrupted writes of streams were mended") {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
	if left := l.client.PTTL(ctx, chunk("endless")).Val(); left != -1 {
		t.Errorf("the chunk of a value without expiry ends in %v", left)
	}
	if left := l.client.PTTL(ctx, chunk("ends")).Val(); left < l.client.PTTL(ctx, "ends").Val() {
		t.Errorf("the chunk ends in %v, before its value", left)
	}
	l.verify()

	// A write in progress has a journal, which is no value and stays.
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := streams.PutReader(ctx, "slow", r, bale.NoExpiry())
		ended <- err
	}()
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	l.verify()
	if code, out, errs := l.run(ctx, l.server.URL(), "verify", "--max-rate", "0", "--max-bandwidth", "0", "--repair"); code != cli.ExitDone {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
	if err := errors.Join(w.Close(), <-ended); err != nil {
		t.Error(err)
	}
	l.verify()
}

// manifest is what anybody can write who can write a key.
func manifest(generation string, size, stored, chunks uint64) []byte {
	p := append([]byte{1, byte(len(generation))}, generation...)
	for _, v := range []uint64{size, stored, chunks} {
		p = binary.AppendUvarint(p, v)
	}
	h := frame.Header{Algorithm: frame.Chunks, HasChecksum: true, Checksum: frame.Checksum(p), Length: uint64(len(p))}
	return append(h.Append(nil), p...)
}

// TestForgedManifest: verify and inspect do not look for as many chunks as a forged manifest
// claims.
func TestForgedManifest(t *testing.T) {
	const n, generation = 1 << 24, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	ctx := t.Context()
	l := newLifecycle(t, 1)
	for key, value := range map[string][]byte{
		"impossible": manifest(generation, 1<<31, 1<<31, 1<<31-1), "plausible": manifest(generation, n<<16, n<<16+1<<30, n), "other": manifest("prices", 100, 100, 1),
	} {
		if err := l.client.Set(ctx, key, value, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(l.client.Set(ctx, "other:prices:0", "12.50", 0).Err(), l.client.ConfigResetStat(ctx).Err()); err != nil {
		t.Fatal(err)
	}
	if code, out, _ := l.run(ctx, l.server.URL(), "verify", "--max-rate", "0", "--repair"); code != cli.ExitFailed || !strings.Contains(out, "3 CANNOT BE UNPACKED") || !strings.Contains(out, "some are missing or damaged: [0 1 2 3 4]") {
		t.Errorf("exit %d\n%s", code, out)
	}
	for _, key := range []string{"impossible", "plausible"} {
		var errs bytes.Buffer
		if code := app.Run(ctx, []string{"inspect", "--redis", l.server.URL(), "--key", key}, strings.NewReader(""), io.Discard, &errs); code != cli.ExitFailed || !strings.Contains(errs.String(), "corrupt value") {
			t.Errorf("%s: exit %d, %s", key, code, &errs)
		}
	}
	if calls := l.client.InfoMap(ctx, "stats").Val()["Stats"]["total_commands_processed"]; len(calls) > 3 {
		t.Errorf("%s commands", calls)
	}
	if left := l.client.PTTL(ctx, "other:prices:0").Val(); left != -1 {
		t.Errorf("somebody's key ends in %v", left)
	}
}

// TestRepairReadsLittle: a large value where a repair looks for a journal, or for a stream, is not
// read, and stays.
func TestRepairReadsLittle(t *testing.T) {
	const large, allowed = 100 << 20, 16 << 20
	ctx := t.Context()
	l := newLifecycle(t, 1)
	empty := []byte{2, 0} // an alive key's journal
	h := frame.Header{Algorithm: frame.Chunks, HasChecksum: true, Checksum: frame.Checksum(empty), Length: uint64(len(empty))}
	noise := strings.Repeat("x", large)
	for key, value := range map[string]string{"a:G:alive": "", "a:bale:journal": noise, "b:G:alive": "", "b": noise} {
		if value == "" {
			value = string(append(h.Append(nil), empty...))
		}
		if err := l.client.Set(ctx, key, value, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	before := l.peak()
	code, out, errs := l.run(ctx, l.server.URL(), "verify", "--max-rate", "0", "--max-bandwidth", "0", "--repair")
	if code != cli.ExitFailed || !strings.Contains(out, "1 CANNOT BE UNPACKED") || !strings.Contains(out, "not the journal of a stream") {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
	if grown := l.peak() - before; grown > allowed {
		t.Errorf("the server grew by %d MiB", grown>>20)
	}
	for _, key := range []string{"a:bale:journal", "b"} {
		if n := l.client.StrLen(ctx, key).Val(); n != large {
			t.Errorf("%s has %d bytes", key, n)
		}
	}
}

// TestVerifyIsInterrupted while it looks for the chunks of one stream, slowly.
func TestVerifyIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := newLifecycle(t, 1)
	const n, generation = 500, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if _, err := l.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		m := stream.Manifest{Generation: generation}
		for i := range n {
			p.Set(ctx, m.ChunkKey("k", i), "x", 0)
		}
		return p.Set(ctx, "k", manifest(generation, n<<17, n<<16, n), 0).Err()
	}); err != nil {
		t.Fatal(err)
	}
	go func() {
		for l.client.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]["cmdstat_pttl"] == "" && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if code, out, errs := l.run(ctx, l.server.URL(), "verify", "--max-rate", "200", "--match", "k"); code == cli.ExitDone || !strings.Contains(out, "INTERRUPTED") {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
}
