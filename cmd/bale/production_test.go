package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/compress/zstd"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// forbid makes a user without some commands, and returns the URL.
func (l *lifecycle) forbid(commands ...string) string {
	l.t.Helper()
	rules := []any{"ACL", "SETUSER", "u", "reset", "on", ">p", "~*", "&*", "+@all"}
	for _, c := range commands {
		rules = append(rules, "-"+c)
	}
	if err := l.client.Do(l.t.Context(), rules...).Err(); err != nil {
		l.t.Fatal(err)
	}
	return strings.Replace(l.server.URL(), "redis://", "redis://u:p@", 1)
}

// TestForbiddenCommands: a command copes with forbidden commands of the server, and reports the
// cost. If it cannot, it ends with the reason, and a matching exit status.
func TestForbiddenCommands(t *testing.T) {
	l := newLifecycle(t, 20)
	l.client.HSet(t.Context(), "hash", "f", l.value(1))
	fast := []string{"--max-rate", "0", "--max-bandwidth", "0"}
	imported := t.TempDir()
	clitest.OK(t, os.WriteFile(filepath.Join(imported, "other.dict"), bytes.Repeat([]byte("another dictionary, "), 20), 0o600))
	commands := map[string][]string{
		"verify":  append([]string{"verify"}, fast...),
		"dry run": append([]string{"migrate", "--match", "*", "--dry-run"}, fast...),
		"migrate": append([]string{"migrate", "--match", "*"}, fast...),
		"dict":    append([]string{"migrate", "--match", "*", "--dict", "current", "--group", lifecycleGroup}, fast...),
		"revert":  append([]string{"migrate", "--match", "*", "--revert"}, fast...),
		"list":    {"dict", "list"},
		"scan":    append([]string{"dict", "list", "--scan"}, fast...),
		"gc":      append([]string{"dict", "gc"}, fast...),
		"inspect": {"inspect", "--key", "user:1"},
		"cat":     {"cat", "user:1"},
		"train":   append([]string{"train", "--match", "user:*", "--max-size", "4KiB", "--values", "1000000", "--out", filepath.Join(t.TempDir(), "d")}, fast...),
		"proxy":   {"proxy", "--match", "user:*"},
		// A group of its own, through its life.
		"publish":  {"dict", "publish", l.files[0], "--group", "spare"},
		"activate": {"dict", "activate", l.ids[0].String(), "--group", "spare", "--force"},
		"previous": {"dict", "activate", "previous", "--group", "spare"},
		"export":   {"dict", "export", "--group", "spare", "--out", filepath.Join(t.TempDir(), "spare")},
		"remove":   {"dict", "remove", l.ids[2].String(), "--group", "spare", "--force"},
		"restore":  {"dict", "restore", l.ids[2].String(), "--group", "spare"},
		"import":   {"dict", "import", imported, "--group", "spare"},
		"grace":    {"dict", "grace", "1m"},
		"advise":   {"advise", "--max-rate", "0", "--max-bandwidth", "0", "--sample", "10"},
	}
	type expected struct {
		code int
		says string
	}
	allow := expected{1, `the user "u" may not run EVAL; ACL SETUSER u +eval allows it`}
	noScripts := map[string]expected{
		"dry run": {0, "a real run would fail: values are replaced by a script within the server: not allowed by the server: the user \"u\" may not run EVAL"},
		"migrate": allow, "dict": allow, "revert": allow, "publish": allow, "activate": allow, "previous": allow, "remove": allow, "restore": allow, "import": allow, "grace": allow,
	}
	for name, test := range map[string]struct {
		forbidden []string
		want      map[string]expected // of those that are not like the first
	}{
		"nothing": {nil, nil},
		"CONFIG":  {[]string{"config"}, nil},
		"OBJECT":  {[]string{"object"}, map[string]expected{"advise": {0, ""}}},
		"CLIENT":  {[]string{"client"}, nil},
		"DBSIZE":  {[]string{"dbsize"}, map[string]expected{"verify": {0, "may not run DBSIZE; ACL SETUSER u +dbsize allows it: progress shows no total"}, "migrate": {0, "no total"}, "dry run": {0, "no total"}}},
		"MEMORY":  {[]string{"memory"}, map[string]expected{"verify": {0, "one element at a time"}, "scan": {0, "one element at a time"}, "migrate": {0, "one element at a time"}}},
		"INFO": {[]string{"info"}, map[string]expected{
			"verify": {0, "not known whether this is a cluster"}, "scan": {0, "which other databases there are"}, "migrate": {0, "how much memory is used"},
		}},
		"EVALSHA": {[]string{"evalsha"}, nil}, // EVAL is enough
		"EVAL":    {[]string{"eval"}, noScripts},
		"scripts": {[]string{"eval", "evalsha"}, noScripts},
		// What these services forbid, as far as it may matter here, by their manuals.
		"ElastiCache": {strings.Fields("config debug migrate module bgsave bgrewriteaof save replicaof psync sync shutdown acl"), nil},
		"Memorystore": {strings.Fields("client cluster command config object acl debug migrate monitor bgsave bgrewriteaof save lastsave replicaof shutdown module"), nil},
		"Upstash": {strings.Fields("memory object client config cluster command latency slowlog debug migrate module replicaof"), map[string]expected{
			"verify": {0, "one element at a time"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			url := l.forbid(test.forbidden...)
			l.do("dict", "publish", l.files[1], "--group", "spare")
			l.do("dict", "publish", l.files[2], "--group", "spare")
			l.do("dict", "activate", l.ids[1].String(), "--group", "spare", "--force")
			l.do("dict", "grace", "2m")
			clitest.OK(t, l.client.ScriptFlush(t.Context()).Err()) // EVALSHA alone runs what others have loaded
			defer func() {                                         // an orphan would make gc look at all values
				data, err := l.client.Keys(t.Context(), dict.DefaultPrefix+"data:*").Result()
				data = slices.DeleteFunc(data, func(key string) bool { return strings.HasSuffix(key, l.ids[0].String()) })
				clitest.OK(t, err, l.client.Del(t.Context(), append(data, dict.DefaultPrefix+"group:spare")...).Err())
			}()
			for _, c := range strings.Split("verify,dry run,migrate,revert,dict,cat,proxy,revert,list,scan,gc,inspect,train,publish,activate,previous,export,remove,restore,import,grace,advise", ",") {
				if c == "advise" && !strings.Contains("INFO OBJECT MEMORY Memorystore", name) { // it takes long
					continue
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				args := commands[c]
				var code int
				var out, errs string
				switch c {
				case "advise", "inspect", "cat", "train":
					code, out, errs = clitest.Ran(ctx, app, append(args, "--redis", url)...)
				case "proxy":
					socket := filepath.Join(t.TempDir(), "s")
					code, out, errs = clitest.Served(ctx, app, func() {
						client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, Username: "u", Password: "p"})
						defer client.Close()
						got, err := client.Get(ctx, "user:1").Bytes()
						if err != nil || !bytes.Equal(got, l.value(1)) || client.Set(ctx, "user:1", got, 0).Err() != nil {
							t.Errorf("through the proxy: %q, %v", got, err)
						}
					}, strings.NewReader(""), append(args, "--redis", url, "--listen", "unix:"+socket)...)
				default:
					code, out, errs = l.run(ctx, url, args...)
				}
				cancel()
				want, special := test.want[c]
				if code != want.code || !strings.Contains(errs+out, want.says) || want.code == 0 && want.says == "" && !special && strings.Contains(errs, "WARNING: redis://") && test.want == nil {
					t.Errorf("%s: exit %d, want %d and %q\n%s\n%s", c, code, want.code, want.says, errs, out)
				}
			}
		})
	}
}

// TestRightsOfTheProxy: the rights that docs/security.md gives the login of --redis are enough.
func TestRightsOfTheProxy(t *testing.T) {
	page, err := os.ReadFile("../../docs/security.md")
	clitest.OK(t, err)
	_, rules, ok := strings.Cut(string(page), "ACL SETUSER bale-proxy ")
	rules, _, _ = strings.Cut(rules, "\n")
	if !ok {
		t.Fatal("docs/security.md has no rights of the proxy's login")
	}
	l := newLifecycle(t, 2)
	args := []any{"ACL", "SETUSER", "bale-proxy", "reset"}
	for _, rule := range strings.Fields(rules) {
		args = append(args, strings.Trim(strings.ReplaceAll(rule, "PASSWORD", "p"), "'"))
	}
	clitest.OK(t, l.client.Do(t.Context(), args...).Err(), l.client.Do(t.Context(), "ACL", "SETUSER", "u", "on", ">p", "~user:*", "+get", "+set", "+ping").Err())
	socket := filepath.Join(t.TempDir(), "s")
	code, _, errs := clitest.Served(t.Context(), app, func() {
		client := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, Username: "u", Password: "p"})
		defer client.Close()
		clitest.OK(t, client.Set(t.Context(), "user:0", l.value(0), 0).Err())
		if got, err := client.Get(t.Context(), "user:0").Bytes(); err != nil || !bytes.Equal(got, l.value(0)) {
			t.Errorf("%q, %v", got, err)
		}
	}, strings.NewReader(""), "proxy", "--redis", strings.Replace(l.server.URL(), "redis://", "redis://bale-proxy:p@", 1), "--match", "user:*",
		"--compress", "zstd:3+dict", "--group", lifecycleGroup, "--listen", "unix:"+socket)
	if code != cli.ExitDone || strings.Contains(errs, "level=WARN") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if h, _, ok := frame.Parse([]byte(l.client.Get(t.Context(), "user:0").Val())); !ok || h.DictionaryID != l.ids[0] {
		t.Errorf("written with %v", h.DictionaryID)
	}
	if denied, err := l.client.Do(t.Context(), "ACL", "LOG").Slice(); err != nil || len(denied) > 0 {
		t.Errorf("refused: %v, %v", denied, err)
	}
}

// TestDamagedGroups: a name that no group can have, and a list that is none, hide no other group.
func TestDamagedGroups(t *testing.T) {
	l := newLifecycle(t, 5)
	for groups, want := range map[string]string{
		`["` + lifecycleGroup + `"]`:                      "",
		`["bad name\u001b[31m","` + lifecycleGroup + `"]`: `group "bad name\x1b[31m", must be 1 to 200 bytes`,
		`["","` + lifecycleGroup + `"]`:                   "the list of groups",
		`["damaged","` + lifecycleGroup + `"]`:            `group "damaged" cannot be read: `,
		`[7]`:                                             "the list of groups",
		`{`:                                               "the list of groups",
	} {
		l.set(dict.DefaultPrefix+"groups", []byte(groups))
		l.set(dict.DefaultPrefix+"group:damaged", []byte("{"))
		for _, json := range []bool{false, true} {
			args := []string{"dict", "list"}
			if json {
				args = append(args, "--json")
			}
			code, out, errs := l.run(t.Context(), l.server.URL(), args...)
			if !strings.Contains(out, l.ids[0].String()) || (code == cli.ExitDone) != (want == "") || !json && !strings.Contains(out, want) || strings.Contains(out+errs, "\x1b[31m") {
				t.Errorf("%s: exit %d, %s\n%s", groups, code, errs, out)
			}
		}
	}
}

// TestDamagedKeysStopNoOther: a state or a list of groups that cannot be read stops no command that
// can do without it, and each names the key.
func TestDamagedKeysStopNoOther(t *testing.T) {
	l := newLifecycle(t, 5)
	id := l.ids[0].String()
	l.do("dict", "publish", l.files[1], "--group", lifecycleGroup)
	for _, otherType := range []bool{false, true} {
		damage := func(name string) string {
			key := dict.DefaultPrefix + name
			l.client.Del(t.Context(), key)
			if otherType {
				l.client.LPush(t.Context(), key, "v")
			} else {
				l.set(key, []byte("{"))
			}
			return fmt.Sprintf("%q", key)
		}
		check := func(key, want string, args ...string) {
			t.Helper()
			code, out, errs := l.run(t.Context(), l.server.URL(), args...)
			if done := code == cli.ExitDone; done != (want != "") || !strings.Contains(out, want) || !strings.Contains(out+errs, key) {
				t.Errorf("other type %v, %v: exit %d, %s\n%s", otherType, args, code, errs, out)
			}
		}
		l.set(dict.DefaultPrefix+"groups", []byte(`["damaged","`+lifecycleGroup+`"]`))
		key := damage("group:damaged")
		check(key, "group     "+lifecycleGroup, "dict", "show", id)
		check(key, "values", "migrate", "--match", "user:*", "--dict", id)
		check(key, "", "dict", "list")
		check(key, "", "dict", "gc")
		check(key, "", "dict", "remove", l.ids[1].String(), "--group", lifecycleGroup, "--force")
		key = damage("groups")
		check(key, "id        "+id, "dict", "show", id)
		check(key, "", "dict", "list")
		check("give --group NAME", "", "migrate", "--match", "user:*", "--dict", id)
		check("", "values", "migrate", "--match", "user:*", "--dict", id, "--group", lifecycleGroup)
		l.client.Del(t.Context(), dict.DefaultPrefix+"groups")
	}
	for _, name := range []string{"settings", "groups", "group:" + lifecycleGroup, "server"} {
		l.set(dict.DefaultPrefix+name, nil) // an empty key is a missing one
	}
	l.do("dict", "publish", l.files[0], "--group", lifecycleGroup)
	l.do("migrate", "--match", "user:*", "--dict", id)
}

// TestQuarantineWithoutEnd: a key of the quarantine without an expiry is shown as one.
func TestQuarantineWithoutEnd(t *testing.T) {
	l := newLifecycle(t, 1)
	content, err := os.ReadFile(l.files[1])
	if err != nil {
		t.Fatal(err)
	}
	l.set(dict.DefaultPrefix+"quarantine:"+l.ids[1].String(), content)
	for want, args := range map[string][]string{
		"is in quarantine without an end": {"dict", "list"}, `"9999-12-31T23:59:59Z"`: {"dict", "list", "--json"},
		"in quarantine without an end": {"dict", "show", l.ids[1].String()},
	} {
		if out := l.do(args...); !strings.Contains(out, want) {
			t.Errorf("%v: %s", args, out)
		}
	}
}

// TestReadingTakesLittleMemory: the commands that look at values take less than 200 MiB, and of the
// server's memory less than 16 MiB.
func TestReadingTakesLittleMemory(t *testing.T) {
	const (
		most    = 200 << 20
		allowed = 16 << 20
	)
	l := newLifecycle(t, 5)
	ctx := t.Context()
	field := strings.Repeat(`{"user":"somebody","role":"reader"}`, 3000)
	for i := range 400 {
		if err := l.client.HSet(ctx, fmt.Sprint("hash:", i%8), fmt.Sprint("f", i), fmt.Sprint(i, field)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		l.set(fmt.Sprint("string:", i), []byte(fmt.Sprint(i, strings.Repeat(field, 20))))
	}
	noise := make([]byte, 56<<20)
	rand.NewChaCha8([32]byte{}).Read(noise)
	long := append(noise, strings.Repeat("x", 6<<20)...)
	l.set("long", long)
	c, err := zstd.New(zstd.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: c}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	packed, err := p.Pack(nil, long) // by a tenth
	if err != nil || !frame.HasMagic(packed) {
		t.Fatal(err)
	}
	l.set("long packed", packed)
	l.set("middle", long[len(long)-32<<20:])
	for _, args := range [][]string{
		{"verify", "--max-rate", "0", "--max-bandwidth", "0"},
		{"migrate", "--match", "*", "--dry-run", "--max-rate", "0", "--max-bandwidth", "0"},
		{"migrate", "--match", "*", "--revert", "--dry-run", "--max-rate", "0", "--max-bandwidth", "0"},
		{"dict", "list", "--scan", "--max-rate", "0", "--max-bandwidth", "0"},
		{"dict", "gc", "--max-rate", "0", "--max-bandwidth", "0"},
		{"advise", "--max-rate", "0", "--max-bandwidth", "0"},
		{"train", "--out", t.TempDir() + "/d", "--max-rate", "0", "--max-bandwidth", "0", "--sample", "10"},
	} {
		before := l.peak()
		cmd := exec.Command("bale", append(args, "--redis", l.server.URL())...) // these tests, as that command: see TestMain
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		own := 0
		for running := true; running; {
			select {
			case err := <-ended:
				if running = false; err != nil && args[0] != "train" { // which finds no dictionary that pays
					t.Errorf("%v: %v\n%s", args, err, &out)
				}
			case <-time.After(time.Millisecond):
				// The peak of the process. (Maxrss of its rusage has that of its parent, too.)
				status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
				if _, peak, ok := strings.Cut(string(status), "VmHWM:"); ok {
					if _, err := fmt.Sscanf(peak, "%d kB", &own); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if own<<10 > most || own == 0 && runtime.GOOS == "linux" {
			t.Errorf("%v: %d MiB", args, own>>10)
		}
		if grown := l.peak() - before; grown > allowed {
			t.Errorf("%v: the server grew by %d KiB", args, grown>>10)
		}
	}
}

// peak is the most memory that the server has used.
func (l *lifecycle) peak() (n int64) {
	l.t.Helper()
	info, err := l.client.InfoMap(l.t.Context(), "memory").Result()
	if err != nil {
		l.t.Fatal(err)
	}
	if _, err := fmt.Sscan(info["Memory"]["used_memory_peak"], &n); err != nil {
		l.t.Fatal(err)
	}
	return n
}

// TestToldHasNoArguments: a server's error about an unknown command quotes the command's arguments,
// which may be values.
func TestToldHasNoArguments(t *testing.T) {
	err := errors.New("bale: ERR unknown command 'evalsha', with args beginning with: 'abc' '1' 'user:3' 'secret' ")
	if got := cli.Message(err); got != "ERR unknown command 'evalsha'" {
		t.Errorf("%q", got)
	}
}
