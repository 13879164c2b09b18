package dictops

import (
	"encoding/json"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/fleet"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// TestSharedGC: workers remove what no value needs, once. A worker that comes later has the same
// answer, and removes nothing by what was read before.
func TestSharedGC(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	at := redisproc.ClusterForTest(t, 3).Servers[0].URL()
	client, err := keyspace.Open(ctx, at)
	clitest.OK(t, err)
	defer client.Close()
	one, err := frame.NewDictionary([]byte(strings.Repeat("dictionary ", 10)))
	clitest.OK(t, err)
	needs := string(frame.Header{Algorithm: frame.Zstd, DictionaryID: one.ID(), Length: 100}.Append(nil)) + "payload"
	key := dict.DefaultPrefix + "data:" + one.ID().String()
	r, err := dict.NewRegistry(goredis.NewStore(client), dict.RegistryOptions{})
	clitest.OK(t, err)
	other, err := frame.NewDictionary([]byte(strings.Repeat("another one ", 10)))
	clitest.OK(t, err)
	clitest.OK(t, r.Publish(ctx, "users", other, dict.Info{}), client.Set(ctx, key, one.Bytes(), 0).Err())
	gc := func(name string) string {
		t.Helper()
		l, err := Run(ctx, registry.Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{at}},
			Options{Apply: true, Proof: Proof{Empty: true}, Run: fleet.Part{Name: name}}, GC)
		clitest.OK(t, err)
		var text strings.Builder
		l.WriteText(page.NewSheet(&text, 0))
		return text.String()
	}
	want := func(text, part string) {
		t.Helper()
		if !strings.Contains(text, part) {
			t.Errorf("no %q in: %s", part, text)
		}
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { want(gc("one"), "of no group is removed: no value of") })
	}
	both.Wait()
	// A copy comes from elsewhere, and a reader brings the dictionary back.
	clitest.OK(t, client.Set(ctx, "copy", needs, 0).Err(), client.Set(ctx, key, one.Bytes(), 0).Err())
	want(gc("one"), "is removed") // what it has done
	if n, err := client.Exists(ctx, key).Result(); err != nil || n != 1 {
		t.Errorf("it is removed again: %v", err)
	}
	want(gc("two"), "stays: 1 values refer to it")
	clitest.OK(t, client.Del(ctx, key).Err())
	for range 2 {
		want(gc("nothing"), "Nothing to remove")
	}
}

// TestManyCandidates: what the first worker of a gc finds fits into what a run keeps.
func TestManyCandidates(t *testing.T) {
	now := time.Now()
	all := make([]candidate, 10_000)
	for i := range all {
		all[i] = candidate{"a group of users", dict.Entry{ID: frame.DictionaryID(i), Size: 1 << 16, Published: now, Activated: now, Retired: now, Used: now}}
	}
	n := fitting(all)
	text, err := json.Marshal(agreed{May: all[:n]})
	if clitest.OK(t, err); n < 2000 || len(text) > 1<<20 || fitting(all[:n]) != n {
		t.Errorf("%d, of %d bytes", n, len(text))
	}
}

// TestForgedStandings: a forged state of a unit cannot name masters without end.
func TestForgedStandings(t *testing.T) {
	for n, good := range map[int]bool{3: true, mostRead: true, mostRead + 1: false} {
		var c counted
		err := json.Unmarshal([]byte(`{"read":[{}`+strings.Repeat(",{}", n-1)+`]}`), &c)
		if len(c.Read) != n || (err == nil) != good {
			t.Errorf("%d of %d masters, %v", len(c.Read), n, err)
		}
	}
	long := `{"read":[{"run_id":"` + strings.Repeat("x", longestStanding+1) + `"}]}`
	if err := json.Unmarshal([]byte(long), new(counted)); err == nil {
		t.Error("a master with a long text is read")
	}
}

// TestSharedNeedsACluster: a run shares the scan of one cluster.
func TestSharedNeedsACluster(t *testing.T) {
	ctx := t.Context()
	_, at := clitest.Server(t)
	for want, data := range map[string][]string{"is none": {at}, "names 2 servers": {at, at + "/1"}} {
		_, err := Run(ctx, registry.Options{Streams: &cli.Streams{Err: io.Discard}, Data: data, URL: at},
			Options{Run: fleet.Part{Name: "r"}}, GC)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
