package rdb

import (
	"bufio"
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

	"github.com/balekv/bale/cmd/internal/tcptest"
	"github.com/balekv/bale/internal/redisproc"
)

func TestMain(m *testing.M) { tcptest.VerifyTestMain(m) }

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

// look returns the visible state of a folder.
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
	l, err := Load(t.Context(), path, Options{Progress: func(f float64) { told = append(told, f) }})
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
	// Not even a SAVE on the server reaches the file.
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

// TestExpired: keys that expired after the file was written are counted. Their time is put into the
// past in the file, which must have no checksum then.
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
	l, err := Load(t.Context(), path, Options{})
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
	l, err := Load(t.Context(), path, Options{Progress: func(f float64) { told = append(told, f) }})
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
	l, err := Load(ctx, path, Options{Progress: func(float64) { cancel() }})
	if l != nil { // it was loaded at once
		err = errors.Join(context.Canceled, l.Close())
	}
	if !errors.Is(err, context.Canceled) || len(err.Error()) > 300 {
		t.Errorf("%v", err)
	}
	if _, err := Load(ctx, path, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("before it starts: %v", err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// TestRefused: what cannot be loaded is refused in words that help; those of the server, if the
// file is trusted.
func TestRefused(t *testing.T) {
	path := saved(t, mixed(t))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	header, err := ReadHeader(path)
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
		"cut":           {string(whole[:len(whole)/2]), ErrDamaged, " says: "}, // each version in its own words
		"flipped":       {string(flipped), ErrDamaged, "RDB"},
		"checksum":      {string(whole[:len(whole)-1]) + string(whole[len(whole)-1]^1), ErrDamaged, "Wrong RDB checksum"},
		"type":          {head + "\xfe\x00\x3f\x01a\x01b" + unchecked, ErrDamaged, "Unknown RDB encoding type 63"},
		"newer":         {"REDIS9999" + head[9:], ErrNewer, "has format 9999, written by " + header.Server},
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
			l, err := Load(t.Context(), path, Options{Trust: true})
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

// TestUntrusted: Load finds entries that run, or that take memory on the file's word, before it
// starts a server: here none could start. It takes no memory for claimed sizes.
func TestUntrusted(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	const end = "\xff\x00\x00\x00\x00\x00\x00\x00\x00"
	module, huge := "\x81"+string(binary.BigEndian.AppendUint64(nil, 0x8c1b3aa9f12e4401)), "\x81\x00\x7f\xff\xff\xff\xff\xff\xff"
	library := "#!lua name=l\nwhile true do end"
	function := "\xf5" + string(rune(len(library))) + library
	facts := ""
	for name := range factNames {
		facts += "\xfa" + string(rune(len(name))) + name + "\x011"
	}
	for name, test := range map[string]struct {
		content string
		err     error
		want    string
	}{
		"function":                  {function + "\xfe\x00\x00\x01a\x01b" + end, ErrUntrusted, "library of functions"},
		"script":                    {"\xfa\x03lua\x08return 1" + end, ErrUntrusted, "it has a script"},
		"script in capitals":        {"\xfa\x03LuA\x08return 1" + end, ErrUntrusted, "it has a script"},
		"script by a long length":   {"\xfa\x40\x03lua\x08return 1" + end, ErrUntrusted, "form that no server writes"},
		"compressed script":         {"\xfa\xc3\x05\x03\x02lua\x00\x08return 1" + end, ErrUntrusted, "form that no server writes"},
		"script behind a NUL":       {"\xfa\x04lua\x00\x08return 1" + end, ErrUntrusted, `"lua\x00"`},
		"unknown fact":              {"\xfa\x05\x1b[31m\x01x" + end, ErrUntrusted, `"\x1b[31m"`},
		"fact in capitals":          {"\xfa\x05CTIME\x011" + end, ErrUntrusted, `"CTIME"`},
		"fact without a name":       {"\xfa\x00\x01x" + end, ErrUntrusted, `""`},
		"fact that is cut":          {"\xfa\x09redis", ErrDamaged, "ends"},
		"facts of servers":          {facts + end, redisproc.ErrNotInstalled, ""},
		"function behind keys":      {"\xfe\x00\x00\x01a\x01b" + function + end, ErrUntrusted, "library of functions"},
		"function in another form":  {"\xf6\x01a\x03lua\x00" + end, ErrUntrusted, "library of functions"},
		"module aux":                {"\xf7" + module + "\x02\x01\x02\x01\x00" + end, ErrModules, `"jBs6qfEuR"`},
		"module":                    {"\xfe\x00\x07\x01a" + module + "\x02\x05\x00" + end, ErrModules, `"jBs6qfEuR"`},
		"table":                     {"\xfe\x00\xfb" + huge + "\x00" + end, ErrUntrusted, "tables of"},
		"table of what expires":     {"\xfe\x00\xfb\x00\x80\x20\x00\x00\x00" + end, ErrUntrusted, "tables of"},
		"table of a slot":           {"\xfe\x00\xf4\x01\x80\x20\x00\x00\x00\x00" + end, ErrUntrusted, "tables of"},
		"tables of many databases":  {strings.Repeat("\xfe\x01\xfb\x80\x00\x00\xff\xff\x00", 20) + end, ErrUntrusted, "tables of"},
		"hash":                      {"\xfe\x00\x04\x01a" + huge + "\x01a\x01b" + end, ErrDamaged, "ends"},
		"string":                    {"\xfe\x00\x00\x01a" + huge + "b" + end, ErrDamaged, "ends"},
		"compressed string":         {"\xfe\x00\x00\x01a\xc3\x02\x80\x7f\xff\xff\xffbb" + end, ErrUntrusted, "claims to be one of 2147483647"},
		"type":                      {"\xfe\x00\x3f\x01a\x01b" + end, ErrUntrusted, "type 63"},
		"hash of Valkey":            {"\xfe\x00\x16\x01a\x00" + end, ErrUntrusted, "type 22"},
		"opcode":                    {"\xf3\x01a\x01b" + end, ErrUntrusted, "type 243"},
		"length":                    {"\xfe\x85" + end, ErrUntrusted, "length of kind 0x85"},
		"kind of string":            {"\xfe\x00\x00\xc5" + end, ErrUntrusted, "string of kind 5"},
		"nothing":                   {"", ErrDamaged, "ends"},
		"no end":                    {"\xfe\x00\x00\x01a\x01b", ErrDamaged, "ends"},
		"nothing wrong":             {"\xfe\x00\xfb\x01\x00\x00\x01a\x01b" + end, redisproc.ErrNotInstalled, ""},
		"keys of all simple shapes": {"\xfe\x00\xf8\x40\x01\xf9\x05\xfd\x00\x00\x00\x00\x00\xc0\x01\xc1\x01\x02\x03\x01a\x03\x01m\x03nan\x01n\xfd\x01o\xff" + end, redisproc.ErrNotInstalled, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "dump.rdb")
			if err := os.WriteFile(path, []byte("REDIS0011\xfa\x09redis-ver\x057.0.1"+test.content), 0o600); err != nil {
				t.Fatal(err)
			}
			l, err := Load(t.Context(), path, Options{})
			if err == nil {
				l.Close()
				t.Fatal("it was loaded")
			}
			if !errors.Is(err, test.err) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestFunctions: a library is not loaded, and is if the file is trusted.
func TestFunctions(t *testing.T) {
	path := saved(t, func(ctx context.Context, c *redis.Client) {
		if err := errors.Join(c.Set(ctx, "a", "b", 0).Err(), c.FunctionLoad(ctx, "#!lua name=l\nredis.register_function('f', function() return 1 end)").Err()); err != nil {
			t.Skip(err) // before Redis 7.0
		}
	})
	if _, err := Load(t.Context(), path, Options{}); !errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), "--trust-rdb") {
		t.Errorf("%v", err)
	}
	l, err := Load(t.Context(), path, Options{Trust: true})
	if err != nil || l.Keys != 1 {
		t.Fatalf("%+v, %v", l, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestNoScripts: the server runs nothing for those who have its password.
func TestNoScripts(t *testing.T) {
	l, err := Load(t.Context(), saved(t, mixed(t)), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o, err := redis.ParseURL(l.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(o)
	defer c.Close()
	for _, command := range [][]any{{"EVAL", "return 1", 0}, {"SCRIPT", "LOAD", "return 1"}, {"DEBUG", "SLEEP", 0}, {"MODULE", "LIST"}} {
		if err := c.Do(t.Context(), command...).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") && !strings.Contains(err.Error(), "not allowed") {
			t.Errorf("%s: %v", command, err)
		}
	}
}

// TestEveryType: a file with a value of every type and encoding that the server has is walked over
// to its end.
func TestEveryType(t *testing.T) {
	for _, compact := range []bool{true, false} {
		path := saved(t, func(ctx context.Context, c *redis.Client) {
			mixed(t)(ctx, c)
			if !compact {
				for _, kind := range []string{"hash-max-listpack-entries", "zset-max-listpack-entries", "set-max-listpack-entries", "set-max-intset-entries", "hash-max-ziplist-entries"} {
					c.ConfigSet(ctx, kind, "0") // not all servers have all
				}
				c.ConfigSet(ctx, "list-max-listpack-size", "1")
			}
			for i := range 300 {
				c.RPush(ctx, "l", strings.Repeat("x", i*50))
				c.SAdd(ctx, "s", fmt.Sprint("member", i))
				c.SAdd(ctx, "n", i)
				c.ZAdd(ctx, "z", redis.Z{Score: float64(i) / 3, Member: i})
				c.HSet(ctx, "h", i, strings.Repeat("v", i))
				c.XAdd(ctx, &redis.XAddArgs{Stream: "x", Values: []any{"field", strings.Repeat("v", i)}})
			}
			c.HSet(ctx, "e", "a", 1, "b", 2)
			c.HExpire(ctx, "e", time.Hour, "a") // Redis 7.4, Valkey 9
			c.Set(ctx, "zeros", strings.Repeat("0", 1<<20), time.Hour)
			c.PFAdd(ctx, "hll", 1, 2, 3)
			for i := range 3 {
				group := fmt.Sprint("group", i)
				if err := c.XGroupCreate(ctx, "x", group, "0").Err(); err != nil {
					t.Fatal(err)
				}
				if err := c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: group, Consumer: "c", Streams: []string{"x", ">"}, Count: 20}).Err(); err != nil {
					t.Fatal(err)
				}
			}
			c.XDel(ctx, "x", c.XInfoStream(ctx, "x").Val().FirstEntry.ID)
		}, "--maxmemory", "1gb", "--maxmemory-policy", map[bool]string{true: "allkeys-lfu", false: "allkeys-lru"}[compact])
		l, err := Load(t.Context(), path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := scanner{valkey: l.valkey, left: l.Size}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		s.r = bufio.NewReader(f)
		if err := s.file(); err != nil || s.keys != uint64(l.Keys) || s.left != 8 { // the checksum
			t.Errorf("%d keys of %d, %d bytes left, %v", s.keys, l.Keys, s.left, err)
		}
		if err := errors.Join(f.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	}
}

// newServer prints the version of a recent server.
const newServer = "[ \"$1\" = --version ] && echo 'Redis server v=7.0.0 sha=0' && exit\n"

// TestOldServer: servers before Redis 7.0 do not get a file that is not trusted, for they run
// scripts that others do not.
func TestOldServer(t *testing.T) {
	path := saved(t, mixed(t))
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for says, refused := range map[string]bool{
		"Redis server v=6.2.14 sha=40305114:0 malloc=libc": true, "Redis server version 2.4.1 (00000000:0)": true, "hello": true, "": true,
		"Redis server v=7.0.0 sha=0": false, "Valkey server v=9.1.2 sha=0": false, "Redis server v=10.0.0 sha=0": false,
	} {
		script := "#!/bin/sh\n[ \"$1\" = --version ] && echo '" + says + "' && exit\necho started; exit 1\n"
		if err := os.WriteFile(filepath.Join(dir, "redis-server"), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := Load(t.Context(), path, Options{})
		if err == nil || errors.Is(err, ErrUntrusted) != refused || strings.Contains(err.Error(), "started") == refused {
			t.Errorf("%q: %v", says, err)
		}
		if _, err := Load(t.Context(), path, Options{Trust: true}); err == nil || errors.Is(err, ErrUntrusted) || !strings.Contains(err.Error(), "started") {
			t.Errorf("%q, of a file that is trusted: %v", says, err)
		}
	}
}

// TestMemoryLimit: a server that exceeds its memory limit is ended, with an error.
func TestMemoryLimit(t *testing.T) {
	path := saved(t, func(ctx context.Context, c *redis.Client) {
		for i := range 60 {
			if err := c.Set(ctx, fmt.Sprint(i), strings.Repeat("0", 8<<20), 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
	})
	l := Loaded{whole: true}
	_, err := redisproc.StartFile(t.Context(), redisproc.File{Path: path, Memory: 400 << 20})
	if err == nil {
		t.Fatal("it was loaded")
	}
	if explained := l.explain(path, err); !errors.Is(explained, ErrMemory) {
		t.Errorf("%v, of %v", explained, err)
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte("REDIS0011\xfe\x00\xfb\x01\x00\x00\x01a\x01b\xff"), false)
	f.Add([]byte("VALKEY080\xfe\x00\x16\x01a\x01\x01f\x01v12345678\xff"), true)
	f.Fuzz(func(t *testing.T, b []byte, valkey bool) {
		s := scanner{r: bufio.NewReader(bytes.NewReader(b)), left: int64(len(b)), valkey: valkey}
		if err := s.file(); s.left < 0 || s.left > int64(len(b)) || err == nil && s.keys > uint64(len(b)) {
			t.Errorf("%d bytes left of %d, %d keys, %v", s.left, len(b), s.keys, err)
		}
	})
}

// TestDamagedFiles cuts and changes files at random: each is loaded or refused, with a cause.
func TestDamagedFiles(t *testing.T) {
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
					l, err := Load(t.Context(), path, Options{})
					switch {
					case err == nil:
						lock.Lock()
						loaded++
						lock.Unlock()
						if err := l.Close(); err != nil {
							t.Error(err)
						}
					case !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNotRDB) && !errors.Is(err, ErrNewer) && !errors.Is(err, ErrModules) && !errors.Is(err, ErrUntrusted) && !strings.Contains(err.Error(), "databases"):
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

// TestSlow: a server that does not get ready is ended, and the error says why.
func TestSlow(t *testing.T) {
	path := saved(t, mixed(t))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "redis-server"), []byte("#!/bin/sh\nexec /bin/sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	if _, err := Load(t.Context(), path, Options{within: 100 * time.Millisecond}); !errors.Is(err, ErrSlow) || !strings.Contains(err.Error(), path) {
		t.Errorf("%v", err)
	}
}

// TestServersThatFail: the error of a server that cannot load anything is passed on.
func TestServersThatFail(t *testing.T) {
	path := saved(t, mixed(t))
	dir := t.TempDir()
	t.Setenv("PATH", dir+string(os.PathListSeparator)+"/bin")
	if _, err := os.Stat("/bin/redis-server"); err == nil {
		t.Setenv("PATH", dir)
	}
	if _, err := Load(t.Context(), path, Options{}); !errors.Is(err, redisproc.ErrNotInstalled) || !strings.Contains(err.Error(), path) {
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
		if err := os.WriteFile(filepath.Join(dir, "redis-server"), []byte("#!/bin/sh\n"+newServer+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := Load(t.Context(), path, Options{})
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
		{Header{UsedMemory: 101 << 20, Size: 1}, 100 << 20, "its data took 101.0 MiB of memory, and 100.0 MiB are available here"},
		{Header{Size: 26 << 20}, 100 << 20, "its data may take 104.0 MiB of memory, and 100.0 MiB are available here"},
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
		"VALKEY080":                      {Version: 80, Server: "Valkey", valkey: true},
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
