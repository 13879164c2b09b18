package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

func writeConfig(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestConfig: errors in a file name the place.
func TestConfig(t *testing.T) {
	path := filepath.Join(t.TempDir(), "proxy.json")
	for content, want := range map[string]string{
		``:                "EOF",
		`{`:               "unexpected EOF",
		`{}`:              "there are 0 groups",
		`{"groups":[{}]}`: "groups[0].match: it is empty",
		`{"grups":[]}`:    `unknown field "grups"`,
		`{"groups":[{"match":["a"],"compress":"s2"}]} x`:                                         "something follows the object",
		`{"groups":[{"match":["a["],"compress":"s2"}]}`:                                          `groups[0].match: pattern "a["`,
		`{"groups":[{"match":["a"],"exclude":["a["],"compress":"s2"}]}`:                          `groups[0].exclude: pattern "a["`,
		`{"groups":[{"match":["a"],"compress":"zip"}]}`:                                          "groups[0].compress: ",
		`{"groups":[{"match":["a"],"compress":"zstd:3/naive"}]}`:                                 "groups[0].compress: ",
		`{"groups":[{"match":["a"],"compress":"s2","group":"g"}]}`:                               "groups[0].group: it is for compress with +dict: s2+dict",
		`{"groups":[{"match":["*"],"compress":"zstd+dict"}]}`:                                    "groups[0].group: compress zstd+dict needs the name",
		`{"groups":[{"match":["a","b"],"compress":"s2"},{"match":["c","b"],"compress":"zstd"}]}`: `groups[1].match: an earlier group has the pattern "b"`,
		`{"groups":[` + strings.Repeat(`{"match":["a"],"compress":"s2"},`, 100) + `{}]}`:         "there are 101 groups",
		`{"groups":[{"match":["*","bale:dict:*"],"compress":"s2"}]}`:                             `groups[0].match: all keys of the pattern "bale:dict:*" are the registry's`,
		strings.Repeat(" ", maxConfig) + `{}`:                                                    "larger than 1 MiB",
	} {
		writeConfig(t, path, content)
		if _, err := ReadConfig(path, dict.DefaultPrefix); !errors.Is(err, cli.ErrUsage) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%.100s: %v\nwant %s", content, err, want)
		}
	}
	if _, err := ReadConfig(filepath.Join(t.TempDir(), "none"), dict.DefaultPrefix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	writeConfig(t, path, `{"groups":[{"match":["user:*:profile"],"exclude":["user:0*"],"compress":"zstd:3+dict"},{"match":["a","b"],"compress":"s2"}],"read_only":true}`)
	c, err := ReadConfig(path, dict.DefaultPrefix)
	const want = "match [\"user:*:profile\"], exclude [\"user:0*\"]: zstd:3+dict, dictionary of group user:profile\nmatch [\"a\" \"b\"]: s2\n"
	if err != nil || c.String() != want || !c.ReadOnly {
		t.Errorf("%s, %v", c, err)
	}
}

// TestPrefix: an empty prefix is the default one. No prefix takes a whole pattern out of scope.
func TestPrefix(t *testing.T) {
	through, past := clients(t, func(o *Options) { o.Prefix = "" }, 2)
	if err := through.Set(t.Context(), "user:1", big("x"), 0).Err(); err != nil {
		t.Fatal(err)
	}
	if !isPacked(past.Get(t.Context(), "user:1").Val()) {
		t.Error("it is not packed")
	}
	const refused = "--match: all keys of the pattern "
	for prefix, want := range map[string]string{"u": refused, "user:": refused, "user:1": "<nil>", "v": "<nil>"} {
		o := options("redis://127.0.0.1:1", "user:*")
		o.Prefix = prefix
		if err := o.Check(); !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v", prefix, err)
		}
	}
}

// TestGroups: each group packs its keys in its own way, the first that matches wins, and all are
// read. A command has keys of several.
func TestGroups(t *testing.T) {
	through, past := clients(t, func(o *Options) {
		o.ConfigFile = filepath.Join(t.TempDir(), "proxy.json")
		writeConfig(t, o.ConfigFile, `{"groups":[
			{"match":["a:*"],"exclude":["a:x*"],"compress":"s2"},
			{"match":["b:*"],"compress":"lz4"},
			{"match":["a:*", "c:*"],"exclude":["a:xx*"],"compress":"zstd:3"}]}`)
	}, 3)
	ctx := t.Context()
	keys := []string{"a:1", "b:1", "c:1", "a:x", "a:xx", "d:1"}
	var pairs []any
	for _, k := range keys {
		pairs = append(pairs, k, big(k))
	}
	if err := through.MSet(ctx, pairs...).Err(); err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]frame.Algorithm{"a:1": frame.S2, "b:1": frame.LZ4, "c:1": frame.Zstd, "a:x": frame.Zstd} {
		if h, _, ok := frame.Parse([]byte(past.Get(ctx, k).Val())); !ok || h.Algorithm != want {
			t.Errorf("%s is packed with %v", k, h.Algorithm)
		}
	}
	for _, k := range []string{"a:xx", "d:1"} {
		if past.Get(ctx, k).Val() != big(k) {
			t.Errorf("%s is packed", k)
		}
	}
	values, err := through.MGet(ctx, keys...).Result()
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range keys {
		if values[i] != big(k) {
			t.Errorf("%s: %q", k, values[i])
		}
	}
	if err := through.Rename(ctx, "c:1", "d:2").Err(); err == nil || !strings.HasPrefix(err.Error(), "BALE RENAME") {
		t.Errorf("out of the second group: %v", err)
	}
	past.RPush(ctx, "ids", "x")
	if v, err := through.Sort(ctx, "ids", &redis.Sort{By: "nosort", Get: []string{"a:*"}}).Result(); err != nil || v[0] != big("a:x") {
		t.Errorf("SORT: %q, %v", v, err)
	}
}

// TestReload: settings are replaced while clients write and read, and one that cannot be used
// changes nothing.
func TestReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "proxy.json")
	s2, zstd := `{"groups":[{"match":["user:*"],"compress":"s2"}]}`, `{"groups":[{"match":["user:*"],"compress":"zstd:3+dict"}]}`
	writeConfig(t, path, s2)
	reload := make(chan os.Signal)
	var notes lines
	goals := make(chan int64, 100)
	through, past := clients(t, func(o *Options) {
		o.ConfigFile, o.Reload, o.Err, o.MemoryGoal = path, reload, &notes, func(bytes int64) { goals <- bytes }
	}, 3)
	ctx := t.Context()
	d := activated(t, past, big("a dictionary"))
	var load sync.WaitGroup
	loading, stop := context.WithCancel(ctx)
	defer stop()
	for i := range 4 {
		load.Go(func() {
			key := "user:" + string(rune('a'+i))
			for loading.Err() == nil {
				if err := through.Set(ctx, key, big(key), 0).Err(); err != nil {
					t.Error(err)
				}
				if v, err := through.Get(ctx, key).Result(); v != big(key) {
					t.Errorf("%q, %v", v, err)
				}
			}
		})
	}
	stored := func() frame.Header {
		if err := through.Set(ctx, "user:1", big("x"), 0).Err(); err != nil {
			t.Error(err)
		}
		h, _, _ := frame.Parse([]byte(past.Get(ctx, "user:1").Val()))
		return h
	}
	has := func(content string, algorithm frame.Algorithm, id frame.DictionaryID) {
		t.Helper()
		writeConfig(t, path, content)
		reload <- syscall.SIGHUP
		for h := stored(); h.Algorithm != algorithm || h.DictionaryID != id; h = stored() {
			time.Sleep(time.Millisecond)
		}
	}
	for range 10 {
		has(zstd, frame.Zstd, d.ID())
		has(s2, frame.S2, 0)
	}
	writeConfig(t, path, `{"groups":[]}`)
	reload <- syscall.SIGHUP
	notes.await(t, "keeps the settings it has: ")
	if h := stored(); h.Algorithm != frame.S2 {
		t.Errorf("packed with %v", h.Algorithm)
	}
	writeConfig(t, path, `{"groups":[{"match":["user:*"],"compress":"s2"}],"read_only":true}`)
	reload <- syscall.SIGHUP
	for stored().Length > 0 {
		time.Sleep(time.Millisecond)
	}
	stop()
	load.Wait()
	// Each group has encoders of its own.
	writeConfig(t, path, `{"groups":[{"match":["user:*"],"compress":"s2"},{"match":["cart:*"],"compress":"zstd:11"}]}`)
	reload <- syscall.SIGHUP
	notes.await(t, "2 groups")
	close(goals)
	first, last := <-goals, int64(0)
	for last = range goals {
	}
	if want := first + 40<<20*int64(runtime.GOMAXPROCS(0)); last != want {
		t.Errorf("the memory goal is %d bytes, want %d", last, want)
	}
}

// lines keeps what is written, and may be read meanwhile.
type lines struct {
	lock sync.Mutex
	b    strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.b.Write(b)
}

func (l *lines) await(t *testing.T, text string) string {
	t.Helper()
	for range 60_000 {
		l.lock.Lock()
		got := l.b.String()
		l.lock.Unlock()
		if strings.Contains(got, text) {
			return got
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%q is not among the notes", text)
	return ""
}

// TestLateRedis: a proxy starts before its Redis. Until that answers, clients' connections end.
func TestLateRedis(t *testing.T) {
	t.Parallel()
	server := redisproc.ForTest(t)
	server.Kill()
	var notes lines
	o := options(server.URL(), "user:*")
	o.Err = &notes
	p := start(t, o)
	atEnd(t, dial(t, p.addr))
	notes.await(t, "serves no client yet")
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	notes.await(t, "serves clients now")
	talk(t, dial(t, p.addr), wire("SET", "user:1", big("x"))+wire("GET", "user:1"), fmt.Sprintf("+OK\r\n$%d\r\n%s\r\n", len(big("x")), big("x")))
	early := options("redis://127.0.0.1:1", "user:*")
	ctx, cancel := context.WithCancel(t.Context())
	early.Listening = func(net.Addr) { cancel() }
	if err := Run(ctx, early); err != nil {
		t.Errorf("one that ends before its Redis comes: %v", err)
	}
}
