package advise

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/fleet"
	"github.com/balekv/bale/internal/redisproc"
)

// TestShared: workers that share a run count as one process does, and one of them gives the same
// answer.
func TestShared(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	const n, tagged = 600, 3000
	cluster := redisproc.ClusterForTestWith(t, 3, redisproc.Options{Args: []string{"--maxmemory-policy", "allkeys-lfu"}})
	url := cluster.Servers[1].URL()
	client := opened(t, url)
	fill(t, client, n)
	if _, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range tagged { // all in one slot
			p.Set(ctx, fmt.Sprintf("{app}:item:%d", i), fmt.Sprintf(`{"id":%d,"name":"item %d","state":"ready to be sent"}`, i, i*i), 0)
		}
		for range 3000 {
			p.Get(ctx, "user:7:profile")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	o := options()
	source := Source{Redis: url, Prefix: "bale:dict:", DB: -1}
	one, err := Run(ctx, source, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Run = fleet.Part{Name: "advice"}
	var workers sync.WaitGroup
	var lock sync.Mutex
	var all *Advice
	told, answering := 0, 4
	for i := range answering {
		workers.Go(func() {
			ctx := ctx
			if i == 0 { // which is interrupted
				limited, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				ctx = limited
			}
			output := &bytes.Buffer{}
			source := source
			source.Streams = &cli.Streams{Out: io.Discard, Err: output}
			a, err := Run(ctx, source, o)
			lock.Lock()
			defer lock.Unlock()
			switch {
			case err != nil && ctx.Err() != nil && i == 0:
				answering--
			case err != nil:
				t.Errorf("%v\n%s", err, output)
			case a == nil && strings.Contains(output.String(), "the answer is in the output of"):
				told++
			case a == nil || all != nil:
				t.Errorf("not one answer\n%s", output)
			default:
				all = a
			}
		})
	}
	workers.Wait()
	if all == nil || told != answering-1 {
		t.Fatalf("an answer: %v, and %d of %d workers say where it is", all != nil, told, answering)
	}
	if all.Scan.Seen != one.Scan.Seen || all.Scan.Keys != 6*n+1+tagged {
		t.Errorf("%+v, and one process: %+v", all.Scan, one.Scan)
	}
	for _, want := range one.Groups {
		got := groupOf(t, all, want.Name, want.Type)
		if got.Keys != want.Keys || got.Sampled != want.Sampled || math.Abs(float64(got.Now-want.Now)) > 0.001*float64(want.Now) {
			t.Errorf("%s: %d keys, %d tried, %d bytes, and by one process %d, %d, %d",
				want.Name, got.Keys, got.Sampled, got.Now, want.Keys, want.Sampled, want.Now)
		}
		if math.Abs(got.Saving.Estimate-want.Saving.Estimate) > 0.02*float64(want.Now) {
			t.Errorf("%s saves %+v, and by one process %+v", want.Name, got.Saving, want.Saving)
		}
	}
	if text := adviceSource(all); !strings.Contains(text, "a cluster of 3 masters") || !strings.Contains(text, "for each shard some") {
		t.Error(text)
	}
	if w := all.Server; len(w.Watched) > 0 || len(w.Unattributed) > 0 {
		t.Errorf("its own commands count as a program's: %v, %v", w.Watched, w.Unattributed)
	}
	if h := groupOf(t, all, "user:*:profile", String).Heat; h == nil || len(h.Hottest) != 1 || h.Hottest[0].Name != "user:7:profile" {
		t.Errorf("the key that is read often: %+v", h)
	}
	if names, err := client.HKeys(ctx, "bale:dict:run:advice").Result(); err != nil || slices.ContainsFunc(names, func(f string) bool { return regexp.MustCompile(`^unit:\d`).MatchString(f) }) {
		t.Errorf("after the answer the run has names of keys: %q, %v", names, err)
	}
	source.Streams = &cli.Streams{Out: io.Discard, Err: io.Discard}
	if again, err := Run(ctx, source, o); again != nil || err != nil {
		t.Errorf("a run that is done: %v, %v", again, err)
	}
	o.Sample++
	if _, err := Run(ctx, source, o); err == nil || !strings.Contains(err.Error(), "other settings") {
		t.Errorf("other settings: %v", err)
	}
	single := redisproc.ForTest(t)
	source.Redis = single.URL()
	if _, err := Run(ctx, source, o); err == nil || !strings.Contains(err.Error(), "is none: leave it out") {
		t.Errorf("a single server: %v", err)
	}
}

// TestLateAnswer: a worker that has lost its lease before it has the answer leaves that to another.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	cluster, registry := redisproc.ClusterForTest(t, 3), redisproc.ForTest(t)
	fill(t, opened(t, cluster.Servers[0].URL()), 2500)
	o := options()
	o.Sample, o.Run = 4000, fleet.Part{Name: "lost"}
	const key, lease = "bale:dict:run:lost", "lease:answer"
	r := opened(t, registry.URL())
	var thief sync.WaitGroup
	defer thief.Wait()
	thief.Go(func() {
		for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if held, _ := r.HGet(ctx, key, lease).Result(); held != "" {
				r.HSet(ctx, key, lease, fmt.Sprintf("%d 9999 other", time.Now().Add(time.Hour).UnixMilli()))
				time.Sleep(6 * time.Second) // in which the worker renews its own
				r.HSet(ctx, key, "unit:answer", `"other"`, lease, "done 5")
				return
			}
		}
	})
	var out bytes.Buffer
	a, err := Run(ctx, Source{Redis: cluster.Servers[0].URL(), Registry: registry.URL(), Prefix: "bale:dict:", DB: -1, Streams: &cli.Streams{Out: io.Discard, Err: &out}}, o)
	if a != nil || err != nil || !strings.Contains(out.String(), "in the output of other ") {
		t.Errorf("an answer: %v, %v\n%s", a != nil, err, &out)
	}
}

// TestSketches: what units keep of names has a bound, and adds up to what one scan knows.
func TestSketches(t *testing.T) {
	o := options()
	o.Sample = 500
	const units, keys = 1024, 200_000
	empty := func() *sketch {
		s, err := newScanner(&o)
		if err != nil {
			t.Fatal(err)
		}
		return &sketch{scanner: s, mean: keys / units, room: runBytes / units}
	}
	parts := make([]*sketch, units)
	for i := range parts {
		parts[i] = empty()
	}
	count := func(unit int, name string) {
		if err := parts[unit].names(t.Context(), nil, []string{name}); err != nil {
			t.Fatal(err)
		}
	}
	for q := range 10 { // queues, each in one slot
		for i := range 300 {
			count(100+q, fmt.Sprintf("bull:{queue-%c}:%d", 'a'+q, i))
		}
	}
	long := strings.Repeat("\xff", maxName/2)
	for i := range keys {
		count(i*7919%units, fmt.Sprintf("user:%d:profile", i))
		if i%4 == 0 {
			count(17, fmt.Sprintf("{app}:item:%d", i))
			count(18, fmt.Sprintf("%s%d:x%d", long, i%500, i))
		}
		if i%100 == 0 {
			count(i%units, fmt.Sprintf("rare:%d", i))
		}
	}
	all, size := empty(), 0
	for i, p := range parts {
		text, err := json.Marshal(p)
		if err != nil || len(text) > 768<<10 || (i > 200 && len(text) > 4<<10) {
			t.Fatalf("unit %d: %d bytes, %v", i, len(text), err)
		}
		size += len(text)
		var read sketch
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		all.merge(&read)
	}
	t.Logf("%d KiB for %d units", size>>10, units)
	forged := sketched{Names: [][]byte{[]byte("user:1:profile")}, Below: ^uint64(0)}
	forged.Hot = map[string]warm{"forged": {}, String: {}}
	all.merge(&sketch{Groups: []sketched{forged}})
	want := map[string]int64{"user:*:profile": keys, "{app}:item:*": keys / 4, "rare:*": keys / 100}
	queues := int64(0)
	for _, g := range all.scanner.finder.Groups() {
		if n := want[g.Name]; n > 0 && (g.Value.seen != n || len(g.Value.entries) < o.Sample) {
			t.Errorf("%s: %d keys of %d, %d in the sample", g.Name, g.Value.seen, n, len(g.Value.entries))
		}
		delete(want, g.Name)
		if len(g.Value.heats) > 1 {
			t.Errorf("%s: hot keys of types that are not asked for", g.Name)
		}
		if strings.HasPrefix(g.Name, "bull:") {
			queues += g.Value.seen
			if n := int64(len(g.Value.entries)); n < 40 {
				t.Errorf("%s: %d keys, %d in the sample", g.Name, g.Value.seen, n)
			}
		}
	}
	if len(want) > 0 || queues != 3000 {
		t.Errorf("not found: %v; %d keys of queues", want, queues)
	}
}
