package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// TestRegistryElsewhere: values are in two servers, and the registry in a third. Nothing is
// collected unless both are scanned.
func TestRegistryElsewhere(t *testing.T) {
	l := newLifecycle(t, 50) // the values here are those of the first server; its registry is not used
	second, registry := redisproc.ForTest(t), redisproc.ForTest(t)
	other, err := keyspace.Open(t.Context(), second.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for i := range 50 {
		if err := other.Set(t.Context(), fmt.Sprint("user:", i), l.value(i), 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	bale := func(args ...string) (code int, out, errs string) {
		var o, e bytes.Buffer
		code = app.Run(t.Context(), args, strings.NewReader(""), &o, &e)
		return code, o.String(), e.String()
	}
	must := func(want string, args ...string) {
		t.Helper()
		if code, out, errs := bale(args...); code != cli.ExitDone || !strings.Contains(out, want) {
			t.Fatalf("bale %s: exit %d, want %q: %s\n%s", strings.Join(args, " "), code, want, errs, out)
		}
	}
	mustFail := func(want string, args ...string) {
		t.Helper()
		if code, out, errs := bale(args...); code == cli.ExitDone || !strings.Contains(errs, want) {
			t.Errorf("bale %s: exit %d, want %q: %s\n%s", strings.Join(args, " "), code, want, errs, out)
		}
	}
	urls := []string{l.server.URL(), second.URL()}
	at := func(url string) []string { return []string{"--redis", url, "--registry", registry.URL()} }
	with := func(command string, args ...string) []string { return append(strings.Fields(command), args...) }
	id := l.ids[0].String()

	must("is 50ms", "dict", "grace", "50ms", "--redis", registry.URL())
	must("is published", "dict", "publish", l.files[0], "--group", "users", "--redis", registry.URL())
	must("is written with", "dict", "activate", id, "--group", "users", "--force", "--redis", registry.URL())
	for _, url := range urls {
		must("packed: 50 values", with("migrate --match user:* --dict current --group users --max-rate 0 --max-bandwidth 0", at(url)...)...)
		must("all can be unpacked", with("verify --match user:* --max-rate 0 --max-bandwidth 0", at(url)...)...)
		must("the checksum matches", with("inspect --key user:1", at(url)...)...)
	}
	mustFail("50 of 50 values cannot be unpacked", "verify", "--match", "user:*", "--max-rate", "0", "--max-bandwidth", "0", "--redis", second.URL())
	must("trained on", with("train --match user:* --max-size 2KiB --values 1000 --out "+t.TempDir()+"/x.dict", at(urls[0])...)...)
	must("user", with("advise --max-rate 0", at(urls[0])...)...)
	_, out, _ := bale("dict", "servers", "--redis", registry.URL())
	for _, url := range urls {
		if !strings.Contains(out, strings.TrimSuffix(url, "/0")) {
			t.Errorf("%s has not joined:\n%s", url, out)
		}
	}
	both := with("--redis "+urls[0]+" --redis "+urls[1], "--registry", registry.URL())
	must("100", with("dict list --scan --max-rate 0", both...)...)

	for _, file := range l.files[1:] {
		must("is published", "dict", "publish", file, "--group", "users", "--redis", registry.URL())
		must("is written with", "dict", "activate", file, "--group", "users", "--force", "--redis", registry.URL())
	}
	client, err := keyspace.Open(t.Context(), registry.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	shared, err := dict.NewRegistry(goredis.NewStore(client), dict.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := awaitRemovable(t.Context(), shared, "users", l.ids[0]); err != nil {
		t.Fatal(err)
	}
	notScanned := "not all data servers of the registry are scanned: programs keep values in "
	mustFail(notScanned, "dict", "gc", "--apply", "--redis", registry.URL())
	mustFail(notScanned+urls[1], with("dict gc --apply", at(urls[0])...)...)
	mustFail(notScanned+urls[0], with("dict remove "+id+" --group users", at(urls[1])...)...)
	mustFail("with more than one --redis, --registry says", "dict", "gc", "--redis", urls[0], "--redis", urls[1])
	must(id+" of users stays: 100 values refer to it", with("dict gc --apply --max-rate 0", both...)...)

	must("unpacked: 50 values", with("migrate --match user:* --max-rate 0 --max-bandwidth 0 --revert", at(urls[1])...)...)
	must(id+" of users stays: 50 values refer to it", with("dict gc --apply --max-rate 0", both...)...)
	must("unpacked: 50 values", with("migrate --match user:* --max-rate 0 --max-bandwidth 0 --revert", at(urls[0])...)...)
	if err := l.client.Del(t.Context(), "other").Err(); err != nil {
		t.Fatal(err)
	}
	mustFail("keys holds a packed value", with("dict gc --apply --max-rate 0", both...)...)
	joined, err := shared.Servers(t.Context())
	if err != nil || len(joined) != 2 {
		t.Fatalf("%+v, %v", joined, err)
	}
	must("is forgotten", "dict", "servers", "--forget", joined[1].ID, "--redis", registry.URL())
	mustFail("knows no data server", "dict", "servers", "--forget", joined[1].ID, "--redis", registry.URL())
	must(id+" of users is removed", with("dict gc --apply --empty --max-rate 0", at(urls[0])...)...)
}

// TestAutoInList: dict list says how far Auto is, also of a group without a dictionary, and passes
// over what it did not write.
func TestAutoInList(t *testing.T) {
	ctx := t.Context()
	client, url := clitest.Server(t)
	r, err := dict.NewRegistry(goredis.NewStore(client), dict.RegistryOptions{})
	clitest.OK(t, err)
	g, err := r.Open(ctx, "users", dict.GroupOptions{Auto: &dict.Auto{Interval: 10 * time.Millisecond}})
	clitest.OK(t, err)
	defer g.Close()
	for range 63 {
		g.Packed([]byte("a value"), 7)
	}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if p, err := r.Progress(ctx, "users"); err == nil && p != nil && p.Collected == 63 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no progress in the registry")
		}
	}
	const key = dict.DefaultPrefix + "auto:"
	for i := range 20 {
		clitest.OK(t, client.Set(ctx, fmt.Sprint(key, "forged", i), `{"collected":5,"wanted":"\u001b[31m"}`, 0).Err())
	}
	clitest.OK(t, client.Set(ctx, key+"a group", "{}", 0).Err(), client.LPush(ctx, key+"list", "x").Err())
	const line = `Auto, group "users": 63 of 1,000 values collected`
	code, out, errs := ran(t, "dict", "list", "--redis", url)
	if code != cli.ExitDone || !strings.Contains(out, line) || !strings.Contains(out, "no dictionary yet") || strings.Count(out, "Auto, ") != 1 {
		t.Errorf("exit %d, %s", code, out)
	}
	if strings.Count(errs, "is not the progress of group") != 10 || strings.Contains(errs, "\x1b") {
		t.Errorf("%s", errs)
	}
	if code, out, errs = ran(t, "dict", "list", "--group", "users", "--redis", url); code != cli.ExitDone || !strings.Contains(out, line) || errs != "" {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if code, _, errs = ran(t, "dict", "list", "--group", "others", "--redis", url); code != cli.ExitFailed || !strings.Contains(errs, `there is no group "others"`) {
		t.Errorf("exit %d, %s", code, errs)
	}
	if code, out, _ = ran(t, "dict", "list", "--json", "--redis", url); code != cli.ExitDone || !strings.Contains(strings.Join(strings.Fields(out), ""), `"auto":{"users":{"collected":63,"wanted":1000}}`) {
		t.Errorf("exit %d, %s", code, out)
	}
}

// TestNoServerIsGuessed: a command that is given no Redis says so, also one that has a registry and
// needs the values.
func TestNoServerIsGuessed(t *testing.T) {
	t.Setenv(cli.URLEnv, "")
	server := redisproc.ForTest(t)
	for command, want := range map[string]int{
		"dict list": cli.ExitUsage, "dict gc --apply": cli.ExitUsage, "dict gc --apply --registry URL": cli.ExitUsage, "dict grace": cli.ExitUsage, "migrate --match *": cli.ExitUsage,
		"verify": cli.ExitUsage, "advise": cli.ExitUsage, "train --out d": cli.ExitUsage, "unpack key": cli.ExitUsage, "inspect --key k": cli.ExitUsage, "proxy --match *": cli.ExitUsage, "dict list --registry URL": cli.ExitDone, "dict grace --registry URL": cli.ExitDone,
	} {
		var out, errs bytes.Buffer
		code := app.Run(t.Context(), strings.Fields(strings.ReplaceAll(command, "URL", server.URL())), strings.NewReader(""), &out, &errs)
		if code != want || code != cli.ExitDone && !strings.Contains(errs.String(), "give --redis URL, or the environment's "+cli.URLEnv) {
			t.Errorf("%s: exit %d, %s", command, code, &errs)
		}
	}
}

// TestPublishSaysNoDefaults: the next step names neither the usual prefix nor the environment's
// URL.
func TestPublishSaysNoDefaults(t *testing.T) {
	server := redisproc.ForTest(t)
	file := filepath.Join(t.TempDir(), "notes.dict")
	if err := os.WriteFile(file, []byte(strings.Repeat("what values have in common ", 20)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ env, flags, want string }{
		{server.URL(), "", " --group notes\n"}, {"", "--redis " + server.URL(), " --group notes --redis "}, {server.URL(), "--prefix other:", " --group notes --prefix other:\n"},
	} {
		t.Setenv(cli.URLEnv, test.env)
		var out, errs bytes.Buffer
		if code := app.Run(t.Context(), strings.Fields("dict publish "+file+" --group notes "+test.flags), strings.NewReader(""), &out, &errs); code != cli.ExitDone || !strings.Contains(out.String(), test.want) {
			t.Errorf("%q: exit %d, %s%s; want %q", test.flags, code, &out, &errs, test.want)
		}
	}
}

// TestEmptyServer: a registry that knows no data servers, as old programs leave it, does not take
// an empty Redis for a proof.
func TestEmptyServer(t *testing.T) {
	l := newLifecycle(t, 0)
	l.moveOn()
	empty := redisproc.ForTest(t)
	code, _, errs := l.run(t.Context(), empty.URL(), "dict", "gc", "--apply", "--registry", l.server.URL())
	if code != cli.ExitFailed || !strings.Contains(errs, "none of 0 keys holds a packed value, so these may be the wrong servers") {
		t.Errorf("exit %d, %s", code, errs)
	}
	if _, err := l.registry.Fetch(t.Context(), l.ids[0]); err != nil {
		t.Error(err)
	}
}

// TestRegistryDoesNotAnswer: a migration whose registry is gone for longer than its claim lasts
// writes nothing.
func TestRegistryDoesNotAnswer(t *testing.T) {
	l := newLifecycle(t, 20)
	registry := redisproc.ForTest(t)
	publish := func(command ...string) {
		if code, _, errs := l.run(t.Context(), registry.URL(), command...); code != cli.ExitDone {
			t.Fatal(errs)
		}
	}
	publish("dict", "publish", l.files[0], "--group", lifecycleGroup)
	publish("dict", "activate", l.ids[0].String(), "--group", lifecycleGroup, "--force")
	proxy := startStepProxy(t, l.server, writes)
	c := l.start(t.Context(), proxy.url, "migrate", "--match", "user:*", "--dict", "current", "--group", lifecycleGroup, "--max-rate", "0", "--max-bandwidth", "0", "--registry", registry.URL())
	l.await(proxy, c)
	if err := registry.Restart(t.Context()); err != nil { // empty
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // longer than five grace periods
	close(proxy.released)
	<-c.ended
	if c.code != cli.ExitFailed || !strings.Contains(c.errs, "was removed") {
		t.Errorf("exit %d, %s", c.code, c.errs)
	}
	for i := range 20 {
		if stored := l.client.Get(t.Context(), fmt.Sprint("user:", i)).Val(); frame.HasMagic(stored) {
			t.Errorf("user:%d was packed with a dictionary that is nowhere", i)
		}
	}
}

// TestMigrateWithoutSettings: where only the registry's settings are lost, before a migration or
// during it, the migration makes new ones. Nothing is removed by these.
func TestMigrateWithoutSettings(t *testing.T) {
	for name, during := range map[string]bool{"before": false, "during": true} {
		t.Run(name, func(t *testing.T) {
			l := newLifecycle(t, 20)
			lose := func() {
				if n, err := l.client.Del(t.Context(), dict.DefaultPrefix+"settings").Result(); n != 1 || err != nil {
					t.Fatal(n, err)
				}
			}
			proxy := startStepProxy(t, l.server, writes)
			if !during {
				lose()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*fleetPatience)
			defer cancel()
			c := l.start(ctx, proxy.url, "migrate", "--match", "user:*", "--dict", "current", "--group", lifecycleGroup, "--max-rate", "0", "--max-bandwidth", "0")
			l.await(proxy, c)
			if during {
				lose()
				time.Sleep(300 * time.Millisecond) // longer than five grace periods
			}
			close(proxy.released)
			<-c.ended
			if c.code != cli.ExitDone || !strings.Contains(c.out, "packed: 20 values") || strings.Contains(c.errs, "does not answer") {
				t.Errorf("exit %d, %s\n%s", c.code, c.errs, c.out)
			}
			if servers, err := l.registry.Servers(t.Context()); err != nil || len(servers) != 1 {
				t.Errorf("%v, %v", servers, err)
			}
			if code, _, errs := l.run(t.Context(), l.server.URL(), "dict", "gc", "--apply"); code != cli.ExitFailed || !strings.Contains(errs, "was lost and made anew") {
				t.Errorf("gc: exit %d, %s", code, errs)
			}
		})
	}
}

// TestEvictionIsWarnedOf: the commands that matter say when the registry's Redis evicts
// dictionaries.
func TestEvictionIsWarnedOf(t *testing.T) {
	l := newLifecycle(t, 3)
	for name, value := range map[string]string{"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"} {
		if err := l.client.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	id := l.ids[1].String()
	folder := filepath.Join(t.TempDir(), "exported")
	for _, c := range []struct {
		args  []string
		warns int
	}{
		{[]string{"dict", "publish", l.files[1], "--group", "x"}, 1},
		{[]string{"dict", "publish", l.files[2], "--group", "x"}, 1},
		{[]string{"dict", "gc"}, 1},
		{[]string{"verify"}, 1},
		{[]string{"dict", "activate", id, "--group", "x", "--force"}, 1},
		{[]string{"dict", "activate", l.ids[2].String(), "--group", "x", "--force"}, 1},
		{[]string{"dict", "activate", "previous", "--group", "x"}, 1},
		{[]string{"dict", "restore", id, "--group", "x"}, 1},
		{[]string{"dict", "export", "--group", "x", "--out", folder}, 0},
		{[]string{"dict", "import", folder, "--group", "y", "--force"}, 1},
		{[]string{"migrate", "--match", "none:*", "--dict", "current", "--group", "x"}, 1},
		{[]string{"migrate", "--match", "none:*", "--dict", id}, 1},
		{[]string{"migrate", "--match", "none:*"}, 0},
	} {
		code, _, errs := l.run(t.Context(), l.server.URL(), c.args...)
		n := strings.Count(errs, "WARNING: the registry's Redis evicts any key once it is full (maxmemory-policy allkeys-lru)")
		if code != cli.ExitDone || n != c.warns {
			t.Errorf("%v: exit %d, %d warnings, want %d: %q", c.args, code, n, c.warns, errs)
		}
	}
}
