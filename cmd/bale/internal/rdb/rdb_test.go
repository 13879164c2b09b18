package rdb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/balekv/bale/redisproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// saved is the file that a server writes of what fill puts into it.
func saved(t *testing.T, fill func(ctx context.Context, c *redis.Client), args ...string) string {
	t.Helper()
	dir := t.TempDir()
	s := redisproc.ForTest(t, append([]string{"--dir", dir}, args...)...)
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer c.Close()
	fill(t.Context(), c)
	if err := c.Save(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "dump.rdb")
}

// mixed puts keys of all types into two databases.
func mixed(t *testing.T) func(ctx context.Context, c *redis.Client) {
	return func(ctx context.Context, c *redis.Client) {
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range 100 {
				p.Set(ctx, fmt.Sprint("string:", i), strings.Repeat("value", i), 0)
			}
			p.HSet(ctx, "hash", "a", 1, "b", strings.Repeat("x", 1000))
			p.RPush(ctx, "list", "a", "b")
			p.SAdd(ctx, "set", 1, 2, 3)
			p.ZAdd(ctx, "zset", redis.Z{Score: 1.5, Member: "m"})
			p.XAdd(ctx, &redis.XAddArgs{Stream: "stream", Values: []any{"f", "v"}})
			p.Set(ctx, "long", "lives", time.Hour)
			p.Do(ctx, "SELECT", 7)
			p.Set(ctx, "elsewhere", "x", 0)
			p.Do(ctx, "SELECT", 0)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// look is all that there is to be seen of a folder.
func look(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %v %v %x\n", e.Name(), info.Mode(), info.ModTime(), content)
	}
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(&b, info.ModTime(), info.Mode())
	return b.String()
}

func TestLoad(t *testing.T) {
	path := saved(t, mixed(t))
	dir := filepath.Dir(path)
	if err := errors.Join(os.Chmod(path, 0o400), os.Chmod(dir, 0o500)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(dir, 0o700) })
	before := look(t, dir)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	h, err := ReadHeader(path)
	if err != nil || !regexp.MustCompile(`^(Redis|Valkey) \d+\.\d+\.\d+$`).MatchString(h.Server) || h.Version < 9 || time.Since(h.Saved).Abs() > time.Hour || h.UsedMemory < 500_000 || h.AppendOnly || h.Size < 1000 {
		t.Errorf("%+v, %v", h, err)
	}
	var told []float64
	l, err := Load(t.Context(), path, func(f float64) { told = append(told, f) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if diff := cmp.Diff([]Database{{0, 106}, {7, 1}}, l.Databases); diff != "" || l.Keys != 107 || l.Expired != 0 || l.Warnings != nil || l.Header != *h {
		t.Errorf("%+v\n%s", l, diff)
	}
	if len(told) == 0 || told[len(told)-1] != 1 {
		t.Errorf("progress %v", told)
	}
	o, err := redis.ParseURL(l.URL)
	if err != nil || o.Password == "" {
		t.Fatalf("%+v, %v", o, err)
	}
	c := redis.NewClient(o)
	defer c.Close()
	if got, err := c.HGetAll(t.Context(), "hash").Result(); err != nil || got["a"] != "1" || len(got["b"]) != 1000 {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := c.TTL(t.Context(), "long").Result(); err != nil || got < 50*time.Minute || got > time.Hour {
		t.Errorf("%v, %v", got, err)
	}
	// Not even a server that is told to save reaches the file.
	if err := errors.Join(c.Set(t.Context(), "new", "value", 0).Err(), c.Save(t.Context()).Err()); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(before, look(t, dir)); diff != "" {
		t.Errorf("the file's folder was changed: %s", diff)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestExpired: keys that expired after the file was written are counted. Their time is put into the past in the file, which must have
// no checksum then.
func TestExpired(t *testing.T) {
	at := time.Now().Add(time.Hour).Truncate(time.Second)
	path := saved(t, func(ctx context.Context, c *redis.Client) {
		for i := range 5 {
			if err := errors.Join(c.Set(ctx, fmt.Sprint("short:", i), "x", 0).Err(), c.PExpireAt(ctx, fmt.Sprint("short:", i), at).Err(), c.Set(ctx, fmt.Sprint("ever:", i), "x", 0).Err()); err != nil {
				t.Fatal(err)
			}
		}
	}, "--rdbchecksum", "no")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	old, past := binary.LittleEndian.AppendUint64(nil, uint64(at.UnixMilli())), binary.LittleEndian.AppendUint64(nil, uint64(time.Now().Add(-time.Hour).UnixMilli()))
	if n := bytes.Count(content, old); n != 5 {
		t.Fatalf("%d expiries", n)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(content, old, past), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Load(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l.Keys != 5 || l.Expired != 5 || len(l.Warnings) != 1 || l.Warnings[0] != "5 of its 10 keys had expired, and are not there" {
		t.Errorf("%+v", l)
	}
}

// TestLarge loads a file that takes a while, and is not all in memory at once.
func TestLarge(t *testing.T) {
	path := saved(t, func(ctx context.Context, c *redis.Client) {
		for i := range 3 {
			if err := c.SetRange(ctx, fmt.Sprint("sparse:", i), 40<<20, "end").Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Do(ctx, "DEBUG", "POPULATE", 200_000).Err(); err != nil {
			t.Fatal(err)
		}
	}, "--enable-debug-command", "local", "--rdbcompression", "no")
	var told []float64
	l, err := Load(t.Context(), path, func(f float64) { told = append(told, f) })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if l.Keys != 200_003 || l.Size < 120<<20 {
		t.Errorf("%+v", l)
	}
	for i := 1; i < len(told); i++ {
		if told[i] < told[i-1] || told[i] > 1 {
			t.Errorf("progress %v", told)
		}
	}
}

// TestInterrupted: the first word of progress ends the loading.
func TestInterrupted(t *testing.T) {
	path := saved(t, func(ctx context.Context, c *redis.Client) {
		if err := c.Do(ctx, "DEBUG", "POPULATE", 400_000).Err(); err != nil {
			t.Fatal(err)
		}
	}, "--enable-debug-command", "local")
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l, err := Load(ctx, path, func(float64) { cancel() })
	if l != nil { // it was loaded at once
		err = errors.Join(context.Canceled, l.Close())
	}
	if !errors.Is(err, context.Canceled) || len(err.Error()) > 300 {
		t.Errorf("%v", err)
	}
	if _, err := Load(ctx, path, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("before it starts: %v", err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

func TestRefused(t *testing.T) {
	path := saved(t, mixed(t))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	selects := bytes.Index(whole, []byte{0xfe, 0})
	head, module := string(whole[:selects]), "\x81"+string(binary.BigEndian.AppendUint64(nil, 0x8c1b3aa9f12e4401))
	unchecked := "\xff" + strings.Repeat("\x00", 8)
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-20] ^= 0xff
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		content string
		err     error
		want    string
	}{
		"folder":        {"", ErrNotRDB, "folder: give the file in it"},
		"missing":       {"", fs.ErrNotExist, "no such file"},
		"empty":         {"", ErrNotRDB, "it is empty"},
		"text":          {"hello", ErrNotRDB, "one starts with REDIS"},
		"digits":        {"REDIS00x1", ErrNotRDB, "one starts with REDIS"},
		"short":         {"REDIS00", ErrNotRDB, "one starts with REDIS"},
		"dump.rdb.gz":   {"\x1f\x8b\x08\x00", ErrNotRDB, "gunzip"},
		"dump.rdb.zst":  {"\x28\xb5\x2f\xfd", ErrNotRDB, "unzstd"},
		"aof":           {"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n", ErrNotRDB, "append-only file of commands"},
		"aof.manifest":  {"file appendonly.aof.1.base.rdb seq 1 type b\n", ErrNotRDB, ".base.rdb"},
		"magic alone":   {"REDIS0009", ErrDamaged, "Unexpected EOF"},
		"cut":           {string(whole[:len(whole)/2]), ErrDamaged, "Unexpected EOF"},
		"flipped":       {string(flipped), ErrDamaged, "RDB"},
		"checksum":      {string(whole[:len(whole)-1]) + string(whole[len(whole)-1]^1), ErrDamaged, "Wrong RDB checksum"},
		"type":          {head + "\xfe\x00\x3f\x01a\x01b" + unchecked, ErrDamaged, "Unknown RDB encoding type 63"},
		"newer":         {"REDIS9999" + head[9:], ErrNewer, "has format 9999, written by Redis "},
		"newer, no aux": {"REDIS9999" + unchecked, ErrNewer, "written by a later server, which redis-server "},
		"valkey":        {"VALKEY999\xfa\x0avalkey-ver\x069.99.9" + unchecked, ErrNewer, "written by Valkey 9.99.9, which "},
		"module":        {head + "\xfe\x00\x07\x01a" + module + "\x02\x05\x00" + unchecked, ErrModules, `module type "jBs6qfEuR"`},
		"module aux":    {head + "\xf7" + module + "\x02\x01\x02\x01\x00" + unchecked, ErrModules, `"jBs6qfEuR"`},
		"databases":     {head + "\xfe\x50\x00\x00\x01a\x01b" + unchecked, nil, "more than 1024 databases"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, name)
			if name != "missing" && name != "folder" {
				if err := os.WriteFile(path, []byte(test.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			l, err := Load(t.Context(), path, nil)
			if err == nil {
				l.Close()
				t.Fatal("it was loaded")
			}
			if test.err != nil && !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestDamaged cuts and changes files at random: each is loaded or refused, with a cause.
func TestDamaged(t *testing.T) {
	for _, checksum := range []string{"yes", "no"} {
		whole, err := os.ReadFile(saved(t, mixed(t), "--rdbchecksum", checksum))
		if err != nil {
			t.Fatal(err)
		}
		const seed = 1
		r := rand.New(rand.NewPCG(seed, 0))
		damaged := make([][]byte, 60)
		for i := range damaged {
			damaged[i] = bytes.Clone(whole)
			if at := r.IntN(len(whole)); i%3 == 0 {
				damaged[i] = damaged[i][:at]
			} else {
				damaged[i][at] = byte(r.Uint32())
			}
		}
		var group sync.WaitGroup
		var lock sync.Mutex
		loaded := 0
		for part := range 4 {
			group.Go(func() {
				for i := part; i < len(damaged); i += 4 {
					path := filepath.Join(t.TempDir(), "dump.rdb")
					if err := os.WriteFile(path, damaged[i], 0o600); err != nil {
						t.Error(err)
						return
					}
					l, err := Load(t.Context(), path, nil)
					switch {
					case err == nil:
						lock.Lock()
						loaded++
						lock.Unlock()
						if err := l.Close(); err != nil {
							t.Error(err)
						}
					case !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotRDB) && !errors.Is(err, ErrNewer) && !errors.Is(err, ErrModules) && !strings.Contains(err.Error(), "databases"):
						t.Errorf("checksum %s, %d: %v", checksum, i, err)
					}
				}
			})
		}
		group.Wait()
		if checksum == "yes" && loaded > 3 || loaded > 40 { // a byte may have been replaced by itself
			t.Errorf("checksum %s: %d of %d were loaded", checksum, loaded, len(damaged))
		}
	}
}

// TestServersThatFail: what a server says that cannot load anything is handed on.
func TestServersThatFail(t *testing.T) {
	path := saved(t, mixed(t))
	dir := t.TempDir()
	t.Setenv("PATH", dir+string(os.PathListSeparator)+"/bin")
	if _, err := os.Stat("/bin/redis-server"); err == nil {
		t.Setenv("PATH", dir)
	}
	if _, err := Load(t.Context(), path, nil); !errors.Is(err, redisproc.ErrNotInstalled) || !strings.Contains(err.Error(), path) {
		t.Errorf("without a server: %v", err)
	}
	for script, want := range map[string]struct {
		err  error
		text string
	}{
		"kill -9 $$": {ErrMemory, "(signal: killed)"},
		"echo 'Out Of Memory allocating 5 bytes!'; exit 1": {ErrMemory, "exit status 1"},
		"kill -11 $$":             {ErrDamaged, "signal: segmentation fault"},
		"echo what is it; exit 1": {nil, "and said: what is it"},
		"echo '12:M 1 Jan 2026 1:1:1.1 # Bad directive'; exit 1": {nil, "and said: Bad directive"},
	} {
		if err := os.WriteFile(filepath.Join(dir, "redis-server"), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := Load(t.Context(), path, nil)
		if err == nil || want.err != nil && !errors.Is(err, want.err) || !strings.Contains(err.Error(), want.text) {
			t.Errorf("%s: %v", script, err)
		}
	}
}

func TestMemoryWarning(t *testing.T) {
	for _, test := range []struct {
		h         Header
		available uint64
		want      string
	}{
		{Header{UsedMemory: 100 << 20, Size: 1 << 40}, 100 << 20, ""},
		{Header{UsedMemory: 101 << 20, Size: 1}, 100 << 20, "its data took 101 MiB of memory, and 100 MiB are available here"},
		{Header{Size: 26 << 20}, 100 << 20, "its data may take 104 MiB of memory, and 100 MiB are available here"},
	} {
		if got := memoryWarning(&test.h, test.available); got != test.want {
			t.Errorf("%+v: %q", test.h, got)
		}
	}
}

// TestHeader reads what no server here writes.
func TestHeader(t *testing.T) {
	for in, want := range map[string]Header{
		"REDIS0006\xfe\x00": {Version: 6},
		"REDIS0009\xfa\x09redis-ver\x055.0.9\xfa\x05ctime\xc2\x01\x00\x00\x00\xfa\x08used-mem\xc1\xe8\x03\xfa\x0caof-preamble\xc0\x01\xff": {
			Version: 9, Server: "Redis 5.0.9", Saved: time.Unix(1, 0), UsedMemory: 1000, AppendOnly: true},
		"REDIS0011\xfa\x40\x0avalkey-ver\x057.2.5\xfa\x08aof-base\xc0\x01": {Version: 11, Server: "Valkey 7.2.5", AppendOnly: true},
		"VALKEY080":                      {Version: 80, Server: "Valkey"},
		"REDIS0011\xfa\x09redis-ver\x05": {Version: 11}, "REDIS0011\xfa\x09re": {Version: 11}, "REDIS0011\xfa": {Version: 11}, "REDIS0011\xfa\x40": {Version: 11},
		"REDIS0011\xfa\xc3\x05\x0a": {Version: 11}, "REDIS0011\xfa\x05ctime\xc2\x01": {Version: 11},
	} {
		var h Header
		if err := h.parse([]byte(in)); err != nil || h != want {
			t.Errorf("%q: %+v, %v; want %+v", in, h, err, want)
		}
	}
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte("REDIS0009\xfa\x09redis-ver\x055.0.9\xfa\x05ctime\xc2\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Header
		if err := h.parse(b); err == nil && (h.Version < -999 || h.UsedMemory < 0) {
			t.Errorf("%+v", h)
		}
	})
}
