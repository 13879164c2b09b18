package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// stepProxy passes commands on to a server, and stops before the first that at reports until it is
// released.
type stepProxy struct {
	url      string
	seen     func(command []string) // each command, if it is set
	at       func(command []string) bool
	reached  chan struct{}
	released chan struct{}

	lock sync.Mutex
	done bool
}

func startStepProxy(t *testing.T, server *redisproc.Server, at func(command []string) bool) *stepProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &stepProxy{url: "redis://" + l.Addr().String(), at: at, reached: make(chan struct{}), released: make(chan struct{})}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s, err := net.Dial("tcp", server.Addr())
			if err != nil {
				c.Close()
				return
			}
			go func() { io.Copy(c, s); c.Close() }()
			go func() { p.pass(c, s); s.Close() }()
		}
	}()
	return p
}

// pass passes commands on until the client ends.
func (p *stepProxy) pass(from io.Reader, to io.Writer) {
	r := bufio.NewReader(from)
	for {
		raw, command, err := clitest.ReadCommand(r)
		if err != nil {
			return
		}
		p.lock.Lock()
		if p.seen != nil {
			p.seen(command)
		}
		stop := !p.done && p.at(command)
		p.done = p.done || stop
		p.lock.Unlock()
		if stop {
			close(p.reached)
			<-p.released
		}
		if _, err := to.Write(raw); err != nil {
			return
		}
	}
}

// lifecycle is a registry with a group and three dictionaries, and values that programs write.
type lifecycle struct {
	t        *testing.T
	server   *redisproc.Server
	client   redis.UniversalClient
	registry *dict.Registry
	files    [3]string
	ids      [3]frame.DictionaryID
}

const (
	lifecycleGroup = "users"
	lifecycleGrace = "50ms"
)

func newLifecycle(t *testing.T, keys int) *lifecycle {
	t.Helper()
	l := &lifecycle{t: t, server: redisproc.ForTest(t)}
	var err error
	if l.client, err = keyspace.Open(t.Context(), l.server.URL()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.client.Close() })
	if l.registry, err = dict.NewRegistry(goredis.NewStore(l.client), dict.RegistryOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range l.files {
		l.files[i], l.ids[i] = plainDictionary(t, i+1)
	}
	l.do("dict", "publish", l.files[0], "--group", lifecycleGroup)
	l.activate(0)
	for i := range keys {
		l.set(fmt.Sprint("user:", i), l.value(i))
	}
	l.set("other", l.packed(nil, 1)) // so that gc finds a packed value
	return l
}

// plainDictionary is one of plain content: training takes minutes under the race detector.
func plainDictionary(t *testing.T, seed int) (path string, id frame.DictionaryID) {
	t.Helper()
	var content []byte
	for i := range 8 {
		content = fmt.Appendf(content, `{"n":%d,"body":%q}`, i, newFleetValue("user", int64(1000*seed+i)).Body)
	}
	d, err := frame.NewDictionary(content)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "plain.dict")
	if err := os.WriteFile(path, d.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, d.ID()
}

func (l *lifecycle) value(i int) []byte {
	return fmt.Appendf(nil, `{"n":%d,"body":%q}`, i, newFleetValue("user", int64(i)).Body)
}

func (l *lifecycle) set(key string, value []byte) {
	l.t.Helper()
	if err := l.client.Set(l.t.Context(), key, value, 0).Err(); err != nil {
		l.t.Fatal(err)
	}
}

// packed is a value as a program packs it.
func (l *lifecycle) packed(d *dict.Dictionary, i int) []byte {
	l.t.Helper()
	c, err := compress.Setting{Algorithm: frame.Zstd}.New(d)
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Close()
	p, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: c}})
	if err != nil {
		l.t.Fatal(err)
	}
	defer p.Close()
	b, err := p.Pack(nil, l.value(i))
	if err != nil || !frame.HasMagic(b) {
		l.t.Fatalf("%q, %v", b, err)
	}
	return b
}

// run runs a command at a URL.
func (l *lifecycle) run(ctx context.Context, url string, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	if args[0] != "verify" {
		args = append(args, "--grace", lifecycleGrace)
	}
	code = app.Run(ctx, append(args, "--redis", url), strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

// do runs a command that must succeed.
func (l *lifecycle) do(args ...string) string {
	l.t.Helper()
	code, out, errs := l.run(l.t.Context(), l.server.URL(), args...)
	if code != cli.ExitDone {
		l.t.Fatalf("bale %s: exit %d, %s", strings.Join(args, " "), code, errs)
	}
	return out
}

func (l *lifecycle) activate(i int) {
	l.t.Helper()
	l.do("dict", "activate", l.ids[i].String(), "--group", lifecycleGroup, "--force")
}

// moveOn makes the first dictionary neither the current nor the previous one, and waits until it
// may go.
func (l *lifecycle) moveOn() {
	l.t.Helper()
	for i := 1; i < 3; i++ {
		l.do("dict", "publish", l.files[i], "--group", lifecycleGroup)
		l.activate(i)
	}
	if err := awaitRemovable(l.t.Context(), l.registry, lifecycleGroup, l.ids[0]); err != nil {
		l.t.Fatal(err)
	}
}

// collect collects, and makes sure that nothing comes back from quarantine.
func (l *lifecycle) collect() string {
	l.t.Helper()
	out := l.do("dict", "gc", "--apply", "--max-rate", "0")
	if err := l.client.Del(l.t.Context(), dict.DefaultPrefix+"quarantine:"+l.ids[0].String()).Err(); err != nil {
		l.t.Fatal(err)
	}
	return out
}

// verify expects that all values can be read.
func (l *lifecycle) verify() {
	l.t.Helper()
	if code, out, errs := l.run(l.t.Context(), l.server.URL(), "verify", "--max-rate", "0", "--max-bandwidth", "0"); code != cli.ExitDone {
		l.t.Errorf("verify: exit %d, %s\n%s", code, errs, out)
	}
}

// command is a command that runs.
type command struct {
	ended     chan struct{}
	code      int
	out, errs string
}

func (l *lifecycle) start(ctx context.Context, url string, args ...string) *command {
	c := &command{ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		c.code, c.out, c.errs = l.run(ctx, url, args...)
	}()
	return c
}

// await waits for a step, and fails if the command ends before it.
func (l *lifecycle) await(p *stepProxy, c *command) {
	l.t.Helper()
	select {
	case <-p.reached:
	case <-c.ended:
		l.t.Fatalf("it ended before: exit %d, %s\n%s", c.code, c.errs, c.out)
	case <-time.After(2 * fleetPatience):
		l.t.Fatal("the step did not come")
	}
}

// writes reports a script of bale migrate for one of the values.
func writes(command []string) bool {
	name := strings.ToLower(command[0])
	return (name == "evalsha" || name == "eval") && len(command) > 3 && strings.HasPrefix(command[3], "user:")
}

// TestSlowMigrate: the group moves on twice while a migration is about to write, and the dictionary
// is collected. It must not write then.
func TestSlowMigrate(t *testing.T) {
	l := newLifecycle(t, 20)
	proxy := startStepProxy(t, l.server, writes)
	c := l.start(t.Context(), proxy.url, "migrate", "--match", "user:*", "--dict", "current", "--group", lifecycleGroup, "--max-rate", "0", "--max-bandwidth", "0")
	l.await(proxy, c)
	l.moveOn()
	if out := l.collect(); !strings.Contains(out, l.ids[0].String()+" of users is removed") {
		t.Errorf("gc: %s", out)
	}
	close(proxy.released)
	<-c.ended
	l.verify()
	if c.code != cli.ExitFailed || !strings.Contains(c.errs, fmt.Sprintf("dictionary %v was removed, so nothing more is packed with it", l.ids[0])) {
		t.Errorf("exit %d, %s", c.code, c.errs)
	}
}

// TestResumedMigrate: a resumed migration uses the dictionary that it began with, which may have
// been retired long ago. Gc must see that.
func TestResumedMigrate(t *testing.T) {
	const keys = 2500
	l := newLifecycle(t, keys)
	resume := filepath.Join(t.TempDir(), "state")
	args := []string{"migrate", "--match", "user:*", "--dict", "current", "--group", lifecycleGroup, "--max-rate", "0", "--max-bandwidth", "0", "--resume", resume}
	proxy := startStepProxy(t, l.server, writes)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := l.start(ctx, proxy.url, args...)
	l.await(proxy, c)
	cancel()
	close(proxy.released)
	<-c.ended
	if c.code != cli.ExitFailed || !strings.Contains(c.out, "INTERRUPTED") {
		t.Fatalf("exit %d, %s\n%s", c.code, c.errs, c.out)
	}
	for i := range keys { // programs write anew what was packed
		l.set(fmt.Sprint("user:", i), l.value(i))
	}
	l.moveOn()
	proxy = startStepProxy(t, l.server, writes)
	c = l.start(t.Context(), proxy.url, args...)
	l.await(proxy, c)
	l.collect() // which finds no value with the dictionary
	close(proxy.released)
	<-c.ended
	l.verify()
	if c.code != cli.ExitDone && !strings.Contains(c.errs, "was removed, so nothing more is packed with it") { // for gc may have come late
		t.Errorf("exit %d, %s", c.code, c.errs)
	}
	if c.code == cli.ExitDone && !strings.Contains(c.errs, "is not written with dictionary") {
		t.Errorf("no warning: %s", c.errs)
	}
}

// TestResumeAfterRemoval: a migration does not go on with a dictionary that was removed.
func TestResumeAfterRemoval(t *testing.T) {
	l := newLifecycle(t, 2500)
	resume := filepath.Join(t.TempDir(), "state")
	args := []string{"migrate", "--match", "user:*", "--dict", "current", "--group", lifecycleGroup, "--max-rate", "0", "--max-bandwidth", "0", "--resume", resume}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	proxy := startStepProxy(t, l.server, writes)
	c := l.start(ctx, proxy.url, args...)
	l.await(proxy, c)
	cancel()
	close(proxy.released)
	<-c.ended
	for i := range 2500 {
		l.set(fmt.Sprint("user:", i), l.value(i))
	}
	l.moveOn()
	l.do("dict", "gc", "--apply", "--max-rate", "0") // to quarantine, from where a reader would bring it back
	if code, _, errs := l.run(t.Context(), l.server.URL(), args...); code != cli.ExitFailed || !strings.Contains(errs, fmt.Sprintf(`group "users" has no dictionary %v`, l.ids[0])) {
		t.Errorf("exit %d, %s", code, errs)
	}
	l.verify()
}

// TestSlowGC: a dictionary is activated again during the walk of gc, written with, and retired. Gc
// must not act on what it knew before.
func TestSlowGC(t *testing.T) {
	l := newLifecycle(t, 500)
	l.moveOn()
	var first []string // keys that gc has looked at
	proxy := startStepProxy(t, l.server, func(command []string) bool {
		return strings.EqualFold(command[0], "scan") && command[1] != "0" && !slices.Contains(command, "match")
	})
	proxy.seen = func(command []string) {
		if strings.EqualFold(command[0], "getrange") && strings.HasPrefix(command[1], "user:") {
			first = append(first, command[1])
		}
	}
	c := l.start(t.Context(), proxy.url, "dict", "gc", "--apply", "--max-rate", "0")
	l.await(proxy, c)
	d, err := l.registry.Fetch(t.Context(), l.ids[0])
	if err != nil || len(first) == 0 {
		t.Fatalf("%v, %d keys", err, len(first))
	}
	l.activate(0)
	l.set(first[0], l.packed(d, 1))
	l.activate(1)
	l.activate(2)
	if err := awaitRemovable(t.Context(), l.registry, lifecycleGroup, l.ids[0]); err != nil { // past its grace again
		t.Fatal(err)
	}
	close(proxy.released)
	<-c.ended
	if err := l.client.Del(t.Context(), dict.DefaultPrefix+"quarantine:"+l.ids[0].String()).Err(); err != nil {
		t.Fatal(err)
	}
	l.verify()
	if c.code != cli.ExitDone || !strings.Contains(c.out, l.ids[0].String()+" of users stays: it was used during the scan") {
		t.Errorf("exit %d, %s\n%s", c.code, c.errs, c.out)
	}
}

// TestValuesUnderThePrefix: values whose keys start with the registry's prefix count for gc, and
// are verified and migrated.
func TestValuesUnderThePrefix(t *testing.T) {
	l := newLifecycle(t, 0)
	const prefix, keys = "user:", 20
	r, err := dict.NewRegistry(goredis.NewStore(l.client), dict.RegistryOptions{Prefix: prefix, Grace: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for i := range l.files {
		d, err := registry.ReadFile(l.files[i])
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.Publish(t.Context(), "p", d, dict.Info{}), r.Activate(t.Context(), "p", d.ID(), true)); err != nil {
			t.Fatal(err)
		}
		for k := range keys {
			if i == 0 {
				l.set(fmt.Sprint(prefix, k), l.packed(d, k))
			}
		}
	}
	if err := awaitRemovable(t.Context(), r, "p", l.ids[0]); err != nil {
		t.Fatal(err)
	}
	out := l.do("dict", "gc", "--apply", "--prefix", prefix)
	if want := fmt.Sprintf("%v of p stays: %d values refer to it", l.ids[0], keys); !strings.Contains(out, want) {
		t.Errorf("gc: want %q: %s", want, out)
	}
	if code, out, errs := l.run(t.Context(), l.server.URL(), "verify", "--prefix", prefix); code != cli.ExitDone || !strings.Contains(out, fmt.Sprintf("%d values read: all", keys+1)) {
		t.Errorf("verify: exit %d, %s\n%s", code, errs, out)
	}
	if out := l.do("migrate", "--revert", "--match", prefix+"*", "--prefix", prefix); !strings.Contains(out, fmt.Sprintf("%d values", keys)) {
		t.Errorf("migrate: %s", out)
	}
	for k := range keys {
		if b, err := l.client.Get(t.Context(), fmt.Sprint(prefix, k)).Bytes(); err != nil || !bytes.Equal(b, l.value(k)) {
			t.Fatalf("value %d is not what it was, %v", k, err)
		}
	}
}

// TestMovedBetweenServers: a value moves from one server to another while gc scans both. Gc finds
// it, or proves nothing.
func TestMovedBetweenServers(t *testing.T) {
	for name, at := range map[string]func(command []string) bool{
		"before the look at the second server": func(command []string) bool {
			return strings.EqualFold(command[0], "info") && len(command) > 1 && strings.EqualFold(command[1], "all")
		},
		"before the scan of the second server": func(command []string) bool { return strings.EqualFold(command[0], "scan") },
	} {
		t.Run(name, func(t *testing.T) { movedBetweenServers(t, at) })
	}
}

func movedBetweenServers(t *testing.T, at func(command []string) bool) {
	l := newLifecycle(t, 0)
	second := redisproc.ForTest(t)
	other, err := keyspace.Open(t.Context(), second.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	d, err := registry.ReadFile(l.files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Set(t.Context(), "user:1", l.packed(d, 1), 0).Err(); err != nil {
		t.Fatal(err)
	}
	l.moveOn()
	proxy := startStepProxy(t, second, at)
	c := l.start(t.Context(), proxy.url, "dict", "gc", "--apply", "--registry", l.server.URL(), "--redis", l.server.URL())
	l.await(proxy, c)
	host, port, _ := net.SplitHostPort(l.server.Addr())
	if err := other.Migrate(t.Context(), host, port, "user:1", 0, fleetPatience).Err(); err != nil {
		t.Fatal(err)
	}
	close(proxy.released)
	<-c.ended
	if !strings.Contains(c.errs, "ran during the scan") && !strings.Contains(c.out, l.ids[0].String()+" of users stays: 1 values refer to it") {
		t.Errorf("exit %d, %s\n%s", c.code, c.errs, c.out)
	}
	if b, err := l.client.Exists(t.Context(), l.registry.DataKey(l.ids[0])).Result(); err != nil || b != 1 {
		t.Errorf("the dictionary that the value needs is gone: %d, %v", b, err)
	}
}

// TestTwoRemoves: one dictionary is removed from two groups at the same time. Each leaves it to the
// other, so nobody scans: the bytes stay.
func TestTwoRemoves(t *testing.T) {
	l := newLifecycle(t, 20)
	l.do("migrate", "--match", "user:*", "--dict", "current", "--group", lifecycleGroup, "--max-rate", "0", "--max-bandwidth", "0")
	l.do("dict", "publish", l.files[0], "--group", "second")
	l.moveOn()
	if err := awaitRemovable(t.Context(), l.registry, "second", l.ids[0]); err != nil {
		t.Fatal(err)
	}
	id := l.ids[0].String()
	proxy := startStepProxy(t, l.server, func(command []string) bool {
		name := strings.ToLower(command[0])
		return (name == "evalsha" || name == "eval") && len(command) > 3 && strings.HasPrefix(command[3], "bale:dict:group:")
	})
	c := l.start(t.Context(), proxy.url, "dict", "remove", id, "--group", lifecycleGroup)
	l.await(proxy, c)
	code, out, errs := l.run(t.Context(), l.server.URL(), "dict", "remove", id, "--group", "second")
	close(proxy.released)
	<-c.ended
	if b, err := l.client.Exists(t.Context(), l.registry.DataKey(l.ids[0])).Result(); err != nil || b != 1 {
		t.Errorf("the dictionary is gone, %d, %v: %d %s %s, %d %s %s", b, err, code, out, errs, c.code, c.out, c.errs)
	}
	l.verify()
}

// TestRemovedFromOneOfTwoGroups: it says that the bytes stay, and why.
func TestRemovedFromOneOfTwoGroups(t *testing.T) {
	l := newLifecycle(t, 0)
	l.do("dict", "publish", l.files[0], "--group", "second")
	l.moveOn()
	out := l.do("dict", "gc", "--apply", "--max-rate", "0")
	if want := fmt.Sprintf("%v is out of users; its bytes stay: second has it", l.ids[0]); !strings.Contains(out, want) {
		t.Errorf("want %q: %s", want, out)
	}
}

// TestOrphanFindsAGroup: if a dictionary without a group is published during the scan, gc keeps it
// and reports it.
func TestOrphanFindsAGroup(t *testing.T) {
	l := newLifecycle(t, 500)
	d, err := registry.ReadFile(l.files[1])
	if err != nil {
		t.Fatal(err)
	}
	l.set(l.registry.DataKey(d.ID()), d.Bytes())
	proxy := startStepProxy(t, l.server, func(command []string) bool {
		return strings.EqualFold(command[0], "getrange") && strings.HasPrefix(command[1], "user:")
	})
	c := l.start(t.Context(), proxy.url, "dict", "gc", "--apply", "--max-rate", "0")
	l.await(proxy, c)
	l.do("dict", "publish", l.files[1], "--group", "second")
	close(proxy.released)
	<-c.ended
	if want := fmt.Sprintf("%v of no group stays: second has it", d.ID()); c.code != cli.ExitDone || !strings.Contains(c.out, want) {
		t.Errorf("exit %d, want %q: %s\n%s", c.code, want, c.errs, c.out)
	}
}

// registryKeys are all keys of the registry, with what they hold and when they end.
func (l *lifecycle) registryKeys() map[string]string {
	l.t.Helper()
	all := map[string]string{}
	for _, key := range l.client.Keys(l.t.Context(), dict.DefaultPrefix+"*").Val() {
		ends, err := l.client.Do(l.t.Context(), "PEXPIRETIME", key).Int64()
		if err != nil {
			l.t.Fatal(err)
		}
		all[key] = fmt.Sprintf("%d %s", ends, l.client.Get(l.t.Context(), key).Val())
	}
	return all
}

// TestToolsRestore: a command that reads a value reports that it brought a dictionary back. A
// command that changes nothing reports that it left the dictionary in quarantine.
func TestToolsRestore(t *testing.T) {
	l := newLifecycle(t, 20)
	l.do("migrate", "--match", "user:*", "--dict", "current", "--group", lifecycleGroup, "--max-rate", "0", "--max-bandwidth", "0")
	l.moveOn()
	l.do("dict", "remove", l.ids[0].String(), "--group", lifecycleGroup, "--force")
	quarantined := func() {
		l.do("dict", "restore", l.ids[0].String(), "--group", lifecycleGroup)
		l.do("dict", "remove", l.ids[0].String(), "--group", lifecycleGroup, "--force")
	}
	const restored, left = "1 dictionary that values need came back from quarantine\n", "values need 1 dictionary in quarantine, until that ends"
	for i, args := range [][]string{
		{"verify", "--max-rate", "0", "--max-bandwidth", "0"},
		{"inspect", "--key", "user:1"},
		{"train", "--match", "user:*", "--max-size", "2KiB", "--values", "1000", "--out", filepath.Join(t.TempDir(), "x.dict")},
		{"migrate", "--match", "user:*", "--max-rate", "0", "--max-bandwidth", "0", "--dict", "current", "--group", lifecycleGroup, "--repack", "--dry-run"},
		{"migrate", "--match", "user:*", "--max-rate", "0", "--max-bandwidth", "0", "--revert", "--dry-run"},
		{"migrate", "--match", "user:*", "--max-rate", "0", "--max-bandwidth", "0", "--dict", l.files[0], "--dry-run"},
	} {
		quarantined()
		before, want := l.registryKeys(), restored
		if i > 0 {
			want = left
		}
		for again := range 2 {
			var o, e bytes.Buffer
			code := app.Run(t.Context(), append(args, "--redis", l.server.URL()), strings.NewReader(""), &o, &e)
			said := strings.Contains(o.String(), want) || strings.Contains(e.String(), "bale "+args[0]+": "+want)
			if (code == cli.ExitDone) == slices.Contains(args, l.files[0]) || said != (again == 0 || i > 0) { // which no group has
				t.Errorf("%q, %d: exit %d, %s\n%s", args, again+1, code, e.String(), o.String())
			}
			if diff := cmp.Diff(before, l.registryKeys()); (diff == "") != (i > 0) {
				t.Errorf("%q changes the registry: %s", args, diff)
			}
		}
	}
}

// TestExportGoesOn: a dictionary that is missing does not keep the others, and the group's state,
// from the copy.
func TestExportGoesOn(t *testing.T) {
	l := newLifecycle(t, 0)
	l.do("dict", "publish", l.files[1], "--group", lifecycleGroup)
	for i := range 2 { // whichever comes first in the state
		key := l.registry.DataKey(l.ids[i])
		b, err := l.client.Get(t.Context(), key).Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if err := l.client.Del(t.Context(), key).Err(); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "copy")
		code, out, errs := l.run(t.Context(), l.server.URL(), "dict", "export", "--group", lifecycleGroup, "--out", dir)
		if code != cli.ExitFailed || !strings.Contains(errs, l.ids[i].String()) || !strings.Contains(out, l.ids[1-i].String()) {
			t.Errorf("exit %d, %s\n%s", code, errs, out)
		}
		for _, name := range []string{l.ids[1-i].String() + dict.Extension, dict.StateFile} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
		l.set(key, b)
	}
}
