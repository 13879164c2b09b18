package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stream"
)

// Forged content of a Redis, or of a file, crashes none of the commands.

func ran(t *testing.T, args ...string) (code int, out, errs string) {
	return clitest.Ran(t.Context(), app, args...)
}

// TestForgedListOfGroups: a list with one name again and again is damaged, and its groups are read
// once each.
func TestForgedListOfGroups(t *testing.T) {
	ctx := t.Context()
	client, url := clitest.Server(t)
	const name = "user:profile"
	names := make([]string, 10_000)
	for i := range names {
		names[i] = name
	}
	list, err := json.Marshal(names)
	clitest.OK(t, err, client.Set(ctx, "bale:dict:groups", list, 0).Err(), client.Set(ctx, "bale:dict:group:"+name, `{"group":"`+name+`","epoch":1,"dictionaries":[{"id":"00000001"}]}`, 0).Err())
	for _, args := range [][]string{{"dict", "list"}, {"dict", "gc"}} {
		before, err := keyspace.CommandCalls(ctx, client)
		clitest.OK(t, err)
		code, out, errs := ran(t, append(args, "--redis", url)...)
		after, err := keyspace.CommandCalls(ctx, client)
		clitest.OK(t, err)
		if all := out + errs; code != cli.ExitFailed || !strings.Contains(all, `"bale:dict:groups"`) || strings.Count(all, name) > 2 {
			t.Errorf("%v: exit %d, %.1000s", args, code, all)
		}
		sent := int64(0)
		for command, n := range after {
			sent += n - before[command]
		}
		if sent > 200 {
			t.Errorf("%v: %d commands", args, sent)
		}
	}
	if _, out, _ := ran(t, "dict", "list", "--redis", url); !strings.Contains(out, name) {
		t.Errorf("the group is not shown: %s", out)
	}
}

// TestForgedRegistry: what dict list prints is bounded.
func TestForgedRegistry(t *testing.T) {
	ctx := t.Context()
	client, url := clitest.Server(t)
	state := dict.State{Group: "g", Epoch: 1}
	const n = 1500
	for i := range n {
		state.Dictionaries = append(state.Dictionaries, dict.Entry{ID: frame.DictionaryID(i + 1)})
		clitest.OK(t, client.Set(ctx, fmt.Sprintf("bale:dict:data:%v", frame.DictionaryID(n+i+1)), "damaged", 0).Err())
	}
	document, err := json.Marshal(&state)
	clitest.OK(t, err, client.Set(ctx, "bale:dict:groups", `["g"]`, 0).Err(), client.Set(ctx, "bale:dict:group:g", document, 0).Err())
	code, out, errs := ran(t, "dict", "list", "--redis", url)
	if code != cli.ExitFailed || strings.Count(out, "MISSING") != 100 || strings.Count(out, "DAMAGED") != 100 || strings.Count(out, "... and 1400 more") != 2 || strings.Count(out, "\n") > n {
		t.Errorf("exit %d, %d lines: %s", code, strings.Count(out, "\n"), errs)
	}
}

const forgedGeneration = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// journalOf is a journal with one deletion for each id, as anybody can write it.
func journalOf(ids ...string) []byte {
	p := binary.AppendUvarint([]byte{2}, uint64(len(ids)))
	for _, id := range ids {
		p = append(append(append(p, byte(len(id))), id...), 0, 0, 0, 0, 0)
	}
	h := frame.Header{Algorithm: frame.Chunks, HasChecksum: true, Checksum: frame.Checksum(p), Length: uint64(len(p))}
	return append(h.Append(nil), p...)
}

// TestVerifyGoesOn: what cannot be mended is named, and what comes after it is mended all the same.
func TestVerifyGoesOn(t *testing.T) {
	ctx := t.Context()
	client, url := clitest.Server(t)
	streams, err := stream.New(goredis.NewStore(client), stream.Options{})
	clitest.OK(t, err)
	short := func(key string) { // a stream whose chunk expires before it
		_, err := streams.PutReader(ctx, key, strings.NewReader(key), bale.NoExpiry())
		clitest.OK(t, err)
		m, err := stream.ParseManifest([]byte(client.Get(ctx, key).Val()))
		clitest.OK(t, err, client.PExpire(ctx, m.ChunkKey(key, 0), 1e9*3600).Err())
	}
	bad := []string{"fields", "hash-journal", "list-owner", "crowded"}
	clitest.OK(t, client.HSet(ctx, "fields", "manifest", manifest(forgedGeneration, 100, 100, 1600), "journal", journalOf()).Err())
	clitest.OK(t, client.HSet(ctx, "fields:bale:journal", "f", journalOf()).Err())
	short("hash-journal")
	clitest.OK(t, client.HSet(ctx, "hash-journal:bale:journal", "f", "v").Err())
	clitest.OK(t, client.LPush(ctx, "list-owner", "v").Err(), client.Set(ctx, "list-owner:bale:journal", journalOf(forgedGeneration), 0).Err())
	short("crowded")
	var ids []string
	for i := range 100 {
		ids = append(ids, fmt.Sprintf("%s%c%c", forgedGeneration[:24], 'A'+i/26, 'A'+i%26))
		clitest.OK(t, client.Set(ctx, "crowded:"+ids[i]+":alive", journalOf(), 0).Err())
	}
	clitest.OK(t, client.Set(ctx, "crowded:bale:journal", journalOf(ids...), 0).Err())
	const sound = 50
	for i := range sound {
		short(fmt.Sprint("sound", i))
	}
	code, out, errs := ran(t, "verify", "--repair", "--max-rate", "0", "--max-bandwidth", "0", "--redis", url)
	if code != cli.ExitFailed || strings.Contains(out, "FAILED") || !strings.Contains(out, fmt.Sprintf("%d streams or interrupted writes of streams were mended", sound)) {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
	for _, key := range bad {
		if !strings.Contains(out, fmt.Sprintf("%q", key)) && !strings.Contains(out, fmt.Sprintf("%q", key+":bale:journal")) {
			t.Errorf("%s is not named:\n%s", key, out)
		}
	}
}

// TestForgedFrames: what verify keeps and prints of forged frames does not grow with them, and the
// registry is not asked faster than --max-rate.
func TestForgedFrames(t *testing.T) {
	ctx := t.Context()
	client, url := clitest.Server(t)
	const n = 3000
	var fields []any
	for i := range n {
		h := frame.Header{Algorithm: frame.Zstd, DictionaryID: frame.DictionaryID(i + 1), Length: 10}
		fields = append(fields, fmt.Sprint(i), append(h.Append(nil), 'x'))
	}
	for i := range n {
		fields = append(fields, fmt.Sprint("m", i), manifest(forgedGeneration, 100<<20, 100<<20, 1600))
	}
	clitest.OK(t, client.HSet(ctx, "h", fields...).Err(), client.ConfigResetStat(ctx).Err())
	code, out, errs := ran(t, "verify", "--max-rate", "0", "--max-bandwidth", "0", "--redis", url)
	if code != cli.ExitFailed || !strings.Contains(out, fmt.Sprintf("%d CANNOT BE UNPACKED", 2*n)) || !strings.Contains(out, "other causes") || strings.Count(out, "\n") > 300 {
		t.Errorf("exit %d, %s\n%s", code, errs, out)
	}
	calls, err := keyspace.CommandCalls(ctx, client)
	clitest.OK(t, err)
	if calls["pttl"]+calls["strlen"] > 10 {
		t.Errorf("it looked for chunks of fields: %v", calls)
	}
}

// TestLongNames: names of keys and fields of any length are shown short, in text, JSON and pages.
func TestLongNames(t *testing.T) {
	ctx := t.Context()
	client, url := clitest.Server(t)
	const n, most = 2 << 20, 200 << 10
	damaged := append(frame.Header{Algorithm: frame.Zstd, Length: 100}.Append(nil), "garbage"...)
	long := func(c string) string { return strings.Repeat(c, n) }
	value := strings.Repeat("some words that are alike, ", 20)
	clitest.OK(t, client.Set(ctx, long("\x01"), damaged, 0).Err(), client.HSet(ctx, "h", long("f"), damaged).Err(), client.HSet(ctx, long("\u202e"), long("\xff"), damaged).Err())
	clitest.OK(t, client.Set(ctx, long("s"), manifest(forgedGeneration, 100, 100, 1), 0).Err(), client.Set(ctx, "bale:dict:groups", `["`+long("g")[:n/4]+`"]`, 0).Err())
	for i := range 40 {
		clitest.OK(t, client.Set(ctx, fmt.Sprint(long("p"), ":", i), value, 0).Err())
	}
	dir := t.TempDir()
	for i, args := range [][]string{
		{"verify", "--json", "-", "--max-bandwidth", "0"}, {"verify", "--max-bandwidth", "0"}, {"verify", "--repair", "--max-bandwidth", "0"},
		{"migrate", "--match", "*", "--dry-run", "--max-bandwidth", "0"}, {"migrate", "--match", "*", "--dry-run", "--json", "-", "--max-bandwidth", "0"},
		{"migrate", "--match", "*", "--revert", "--max-bandwidth", "0", "--resume", filepath.Join(dir, "state")},
		{"advise", "--json", filepath.Join(dir, "advice.json"), "--html", filepath.Join(dir, "advice.html"), "--all", "--max-bandwidth", "0"},
		{"dict", "list"}, {"dict", "list", "--scan", "--json"}, {"inspect", "--key", long("\x01")}, {"inspect", "--key", long("n")}, {"train", "--match", "h", "--out", filepath.Join(dir, "d")},
	} {
		_, out, errs := ran(t, append(args, "--redis", url)...)
		if len(out)+len(errs) > most {
			t.Errorf("%d, %.60q: %d bytes of output, %d of errors: %.300s", i, args, len(out), len(errs), errs)
		}
	}
	files, err := os.ReadDir(dir)
	clitest.OK(t, err)
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Size() > most+pageFrame {
			t.Errorf("%s has %d bytes, %v", f.Name(), info.Size(), err)
		}
	}
	if len(files) < 2 {
		t.Errorf("%d files", len(files))
	}
}

// pageFrame is what a page has beside data: styles and scripts.
const pageFrame = 200 << 10

// TestListIsPaced: the bytes of dictionaries count as those of values do, 20 MiB a second.
func TestListIsPaced(t *testing.T) {
	l := newLifecycle(t, 1)
	const n = 8
	for i := range n {
		l.set(fmt.Sprintf("%sdata:%08x", dict.DefaultPrefix, i+1), make([]byte, frame.MaxDictionarySize))
	}
	start := time.Now()
	l.run(t.Context(), l.server.URL(), "dict", "list")
	if took := time.Since(start); took < (n-1)*time.Second/20 {
		t.Errorf("%d MiB took %v", n, took)
	}
}
