package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/tcptest"
	"github.com/balekv/bale/cmd/internal/values"
	"github.com/balekv/bale/internal/redisproc"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silence{}) // as the command does
	if os.Getenv(keeperEnv) != "" {
		if err := keep(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	tcptest.VerifyTestMain(m)
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func config(t testing.TB, settings ...string) Config {
	t.Helper()
	sets, err := dataset.Open(t.Context(), dataset.Options{Builtin: []string{"profiles", "sessions", "logs", "random"}, Tracks: []string{dataset.Typed}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Datasets: sets[:1], Codecs: []string{"json"}, Concurrency: []int{1, 4}, Duration: 40 * time.Millisecond, Rounds: 2, Seed: 1}
	for _, name := range settings {
		s, err := engine.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		c.Compress = append(c.Compress, s)
	}
	return c
}

// realServer is a private redis-server, opened as the command does.
func realServer(t *testing.T) *Server {
	t.Helper()
	redisproc.ForTest(t) // skips where there is none
	s, err := OpenServer(t.Context(), "", keyspace.Login{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestRunMeasuresEveryCell(t *testing.T) {
	server := realServer(t)
	steps := 0
	c := config(t, "none", "zstd")
	c.Progress = func(p Progress) {
		done, total := p.Done, p.Total
		if done != steps || total != 2+4*2 {
			t.Errorf("step %d of %d, want %d of 10", done, total, steps)
		}
		steps++
	}
	r, err := Measure(t.Context(), []*Server{server}, c)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cells) != 4 || r.Environment.Rounds != 2 || steps != 10 {
		t.Fatalf("%d cells, %d rounds, %d steps", len(r.Cells), r.Environment.Rounds, steps)
	}
	for _, cell := range r.Cells {
		if !cell.Verified || cell.Operations == 0 || len(cell.Rounds) != 2 {
			t.Errorf("%+v", cell)
		}
		// Both of Redis' own figures include the value, and they are figures of one thing.
		stored := float64(cell.StoredBytes) / float64(cell.Values)
		if *cell.RedisBytesPerKey < stored || math.Abs(*cell.RedisBytesPerKey / *cell.MemoryUsagePerKey - 1) > 0.15 {
			t.Errorf("%s: %.0f stored, %.0f by used_memory, %.0f by MEMORY USAGE", cell.Compress, stored, *cell.RedisBytesPerKey, *cell.MemoryUsagePerKey)
		}
		// The stages are all there is of an operation.
		sum := 0.0
		for _, name := range outcome.Stages[:6] {
			sum += cell.Stages[name].Mean
		}
		if total := cell.Stages["total"].Mean; math.Abs(sum/total-1) > 0.01 {
			t.Errorf("stages take %.1f us, the whole %.1f us", sum, total)
		}
	}
	if plain, packed := r.Cells[0], r.Cells[2]; packed.Ratio <= plain.Ratio || *packed.RedisBytesPerKey >= *plain.RedisBytesPerKey {
		t.Errorf("zstd saves nothing: ratio %v and %v", plain.Ratio, packed.Ratio)
	}
	if keys, err := server.client.DBSize(t.Context()).Result(); err != nil || keys != 0 {
		t.Errorf("%d keys left, %v", keys, err)
	}
}

// variants are all that a client can be set to.
var variants = []string{
	"goredis", "goredis:2", "goredis+auto", "goredis:1+auto", "goredis:2+auto",
	"goredis+idle:2",
	"rueidis", "rueidis:1", "rueidis:4", "rueidis-auto", "rueidis:2-auto", "redigo", "redigo:2", "radix", "radix:2",
}

func TestParseClient(t *testing.T) {
	for in, want := range map[string]ClientSetting{
		"goredis": {Name: "goredis"}, "goredis:16": {Name: "goredis", Connections: 16}, "goredis+auto": {Name: "goredis", Auto: true}, "goredis:16+auto": {Name: "goredis", Connections: 16, Auto: true},
		"goredis:16+idle:4": {Name: "goredis", Connections: 16, Idle: 4}, "goredis+idle:4@twemproxy": {Name: "goredis", Idle: 4, Proxy: true}, "radix": {Name: "radix"}, "radix:3@twemproxy": {Name: "radix", Connections: 3, Proxy: true},
		"rueidis": {Name: "rueidis", Auto: true}, "rueidis:256": {Name: "rueidis", Connections: 256, Auto: true}, "rueidis-auto": {Name: "rueidis"}, "rueidis:3-auto": {Name: "rueidis", Connections: 3},
		"redigo": {Name: "redigo"}, "redigo:10000": {Name: "redigo", Connections: 10_000},
	} {
		got, err := ParseClient(in)
		if err != nil || got != want || got.String() != in {
			t.Errorf("%s: %+v, which is %s, %v; want %+v", in, got, got, err, want)
		}
	}
	for _, in := range variants {
		if got, err := ParseClient(in); err != nil || got.String() != in {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		"": "there are goredis[:N][+auto][+idle:N], rueidis[:N][-auto], redigo[:N] or radix[:N], each with @twemproxy", "nobody": "there are goredis", "Goredis": "there are", "goredis+pool": "there are", ":4": "there are",
		"goredis:": "must be 1 to 10000", "goredis:0": "must be 1 to 10000", "redigo:10001": "must be 1 to 10000", "goredis:x": "must be 1 to 10000", "goredis:-1": "must be 1 to 10000",
		"rueidis:3": "another power of two up to 256", "rueidis:512": "another power of two up to 256",
		"goredis-auto": "redigo and radix never", "redigo+auto": "redigo and radix never", "redigo-auto": "redigo and radix never", "radix+auto": "redigo and radix never", "rueidis+auto": "rueidis unless it has -auto", "goredis:04": "goredis[:N]",
		"goredis+auto:4": "there are", "goredis-auto+auto": "redigo and radix never", "redigo+idle:3": "goredis without", "goredis+auto+idle:3": "goredis without", "goredis+idle:0": "goredis without", "goredis@proxy": "there are", "@twemproxy": "there are",
	} {
		if got, err := ParseClient(in); !errors.Is(err, ErrClient) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v; want %q", in, got, err, want)
		}
	}
}

// TestClients: each client in each of its settings takes each value through, over the connections
// that it was given, and comes with figures of its own.
func TestClients(t *testing.T) {
	embedded := func(t *testing.T) *Server {
		s, err := OpenEmbedded(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	for name, open := range map[string]func(*testing.T) *Server{"real": realServer, "embedded": embedded} {
		t.Run(name, func(t *testing.T) {
			c := config(t, "none", "s2")
			for _, name := range variants {
				s, err := ParseClient(name)
				if err != nil {
					t.Fatal(err)
				}
				c.Clients = append(c.Clients, s)
			}
			r, err := Measure(t.Context(), []*Server{open(t)}, c)
			if err != nil {
				t.Fatal(err)
			}
			if want := 2 * len(variants) * len(c.Concurrency); len(r.Cells) != want {
				t.Fatalf("%d cells, want %d", len(r.Cells), want)
			}
			seen := map[string]int{}
			for _, cell := range r.Cells {
				seen[cell.Client]++
				if !cell.Verified || cell.Operations == 0 {
					t.Errorf("%s %s, %d callers: %s", cell.Client, cell.Compress, cell.Concurrency, cell.Error)
				}
			}
			for _, name := range variants {
				if seen[name] != 4 {
					t.Errorf("%d cells of %s", seen[name], name)
				}
			}
		})
	}
	c := config(t, "none")
	c.Clients = []ClientSetting{{Name: "nobody"}}
	if _, err := Measure(t.Context(), []*Server{embedded(t)}, c); !errors.Is(err, ErrClient) {
		t.Errorf("a client that does not exist: %v", err)
	}
}

// TestConnections counts what a server sees of each client, with many callers at once.
func TestConnections(t *testing.T) {
	const callers = 32
	server := realServer(t)
	single := func(ctx context.Context, c *client, key string, value []byte) ([]byte, error) {
		if err := c.store.Set(ctx, key, value, bale.Expiry{}); err != nil {
			return nil, err
		}
		return c.store.Get(ctx, key)
	}
	pipelined := func(ctx context.Context, c *client, key string, value []byte) ([]byte, error) {
		if _, err := c.batcher.pipeline(ctx, []string{key}, [][]byte{value}); err != nil {
			return nil, err
		}
		got, err := c.batcher.pipeline(ctx, []string{key}, nil)
		if err != nil {
			return nil, err
		}
		return got[0], nil
	}
	const inPipelines = " in pipelines"
	for name, bounds := range map[string][2]int{ // fewer than all, where those were enough for the callers at hand
		"goredis in pipelines": {4, callers}, "goredis:3 in pipelines": {3, 3}, "redigo:3 in pipelines": {3, 3},
		"goredis": {4, callers}, "goredis:3": {3, 3}, "goredis+auto": {1, 1}, "goredis:4+auto": {2, 4}, "redigo": {4, callers}, "redigo:3": {3, 3},
		// Without auto-pipelining rueidis has one beside its pool, which it dialed to see whether
		// there is a server.
		"rueidis:1": {1, 1}, "rueidis:8": {3, 8}, "rueidis-auto": {4, callers + 1}, "rueidis:3-auto": {4, 4},
	} {
		t.Run(name, func(t *testing.T) {
			operate := single
			setting, batched := strings.CutSuffix(name, inPipelines)
			if batched {
				operate = pipelined
			}
			s, err := ParseClient(setting)
			if err != nil {
				t.Fatal(err)
			}
			connections := func() int {
				list, err := server.client.ClientList(t.Context()).Result()
				if err != nil {
					t.Fatal(err)
				}
				return strings.Count(list, "\n")
			}
			before := connections()
			c, err := dial(t.Context(), s, *server.Options, callers, opTimeout)
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			stop := make(chan struct{})
			for i := range callers {
				all.Go(func() {
					key, value := fmt.Sprint("key:", i), []byte(fmt.Sprint("value ", i))
					for n := 0; ; n++ {
						if got, err := operate(t.Context(), c, key, value); err != nil || !bytes.Equal(got, value) {
							t.Errorf("%q, %v", got, err)
							return
						}
						select {
						case <-stop:
							if n > 100 {
								return
							}
						default:
						}
					}
				})
			}
			for began := time.Now(); connections()-before < bounds[0] && time.Since(began) < opTimeout; {
				time.Sleep(time.Millisecond)
			}
			close(stop)
			all.Wait()
			if n := connections() - before; n < bounds[0] || n > bounds[1] {
				t.Errorf("%d connections, want %d to %d", n, bounds[0], bounds[1])
			}
			if err := c.close(); err != nil {
				t.Error(err)
			}
			for connections() > before { // until the server has seen the last of them
				time.Sleep(time.Millisecond)
			}
		})
	}
}

// TestDictionaries: trained on one half, measured on the other, with their bytes in those of the
// keys; where none pays there is a reason and no cell.
func TestDictionaries(t *testing.T) {
	server := realServer(t)
	c := config(t, "none", "s2", "s2+dict")
	sets, err := dataset.Open(t.Context(), dataset.Options{Builtin: []string{"profiles", "sessions", "logs", "random"}, Tracks: []string{dataset.Typed}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	profiles, _ := sets[0].Halves() // fewer, for the sake of time
	profiles, _ = profiles.Halves()
	random, _ := sets[3].Halves()
	random, _ = random.Halves()
	c.Datasets, c.Concurrency = []*dataset.Dataset{profiles, random}, []int{2}
	r, err := Measure(t.Context(), []*Server{server}, c)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Dictionaries) != 2 || len(r.Cells) != 5 {
		t.Fatalf("%d dictionaries, %d cells", len(r.Dictionaries), len(r.Cells))
	}
	d, none := r.Dictionaries[0], r.Dictionaries[1]
	if d.Samples != len(profiles.Raw)/2 || d.ID == 0 || d.Bytes < 1000 || d.Builder == "" || d.Payload < 2 || d.Reason != "" || d.Tried < 20 || d.Seconds <= 0 {
		t.Errorf("%+v", d)
	}
	if none.ID != 0 || none.Dataset != "random" || !strings.Contains(none.Reason, "no dictionary") {
		t.Errorf("%+v", none)
	}
	plain, with := r.Cells[1], r.Cells[2]
	if with.Compress != "s2+dict" || !with.Verified || with.Values != len(profiles.Raw)/2 || plain.Values != with.Values || plain.RawBytes != with.RawBytes {
		t.Errorf("%+v", with)
	}
	if with.Ratio < 2*plain.Ratio {
		t.Errorf("ratio %.2f with, %.2f without", with.Ratio, plain.Ratio)
	}
	// Over all keys, MEMORY USAGE does not have the dictionary, and used_memory does; the rest is
	// the key table's.
	extra := (*with.RedisBytesPerKey - *with.MemoryUsagePerKey) - (*plain.RedisBytesPerKey - *plain.MemoryUsagePerKey)
	if bytes := extra * float64(with.Keys); bytes < 0.5*float64(d.Bytes) || bytes > float64(d.Bytes)+64<<10 {
		t.Errorf("%.0f bytes more for a dictionary of %d", bytes, d.Bytes)
	}
}

// TestAlternatingValues: where two kinds of values alternate, the dictionary is trained on both,
// and chosen by both.
func TestAlternatingValues(t *testing.T) {
	server, err := OpenEmbedded(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	var text strings.Builder
	kinds := [2]string{"the quick brown fox jumps over the lazy dog, and runs", "pack my box with five dozen liquor jugs; sphinx of quartz"}
	for i := range 400 {
		fmt.Fprintf(&text, "{\"id\":%d,\"text\":%q}\n", 7919*i, kinds[i%2])
	}
	c := config(t, "s2+dict")
	c.Concurrency = []int{1}
	d, err := dataset.Load(t.Context(), "-", strings.NewReader(text.String()), values.Limits{Values: 1000, ValueSize: 1000, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	c.Datasets = []*dataset.Dataset{d}
	r, err := Measure(t.Context(), []*Server{server}, c)
	if err != nil {
		t.Fatal(err)
	}
	if d := r.Dictionaries[0]; d.Reason != "" || d.Payload < 2.5 {
		t.Errorf("%+v", d)
	}
}

// TestUnstableEncodings: a codec that encodes a map in any order is found, and named once.
func TestUnstableEncodings(t *testing.T) {
	dataset.RegisterGob()
	server, err := OpenEmbedded(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c := config(t, "none")
	c.Concurrency, c.Codecs = []int{1, 2}, []string{"json", "cbor", "gob"}
	c.Datasets, err = dataset.Open(t.Context(), dataset.Options{Builtin: []string{"profiles"}, Tracks: []string{dataset.Typed, dataset.Dynamic}, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Measure(t.Context(), []*Server{server}, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, cell := range r.Cells {
		if want := cell.Codec != "json" && cell.Track == dataset.Dynamic; cell.Unstable != want {
			t.Errorf("%s, %s: %v, %s", cell.Codec, cell.Track, cell.Unstable, cell.Error)
		}
	}
	named := 0
	for _, w := range r.Warnings() {
		if strings.HasPrefix(w, "cbor, gob of profiles (dynamic): two encodings of the same value differ") {
			named++
		}
	}
	if named != 1 {
		t.Errorf("%q", r.Warnings())
	}
}

// liar returns another value than was written, now and then.
type liar struct {
	bale.Store
	reads atomic.Int64
	lie   func(read int64, value []byte) ([]byte, error)
}

func (l *liar) Get(ctx context.Context, key string) ([]byte, error) {
	v, err := l.Store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	return l.lie(l.reads.Add(1), v)
}

func TestOneWrongValueFailsTheCell(t *testing.T) {
	server, err := OpenEmbedded(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	errBroken := errors.New("broken")
	for _, test := range []struct {
		name string
		lie  func(int64, []byte) ([]byte, error)
		want string

		mismatch bool
	}{
		{"another value", func(n int64, v []byte) ([]byte, error) {
			if n == 20 {
				return []byte(`{"id":1}`), nil
			}
			return v, nil
		}, "MISMATCH", true},
		{"no JSON", func(n int64, v []byte) ([]byte, error) {
			if n == 20 {
				return []byte("{"), nil
			}
			return v, nil
		}, "MISMATCH", true},
		{"a flipped bit", func(n int64, v []byte) ([]byte, error) {
			if n == 20 {
				v = bytes.Clone(v)
				v[len(v)-3] ^= 1
			}
			return v, nil
		}, "corrupt value", true},
		{"a failing server", func(n int64, v []byte) ([]byte, error) {
			if n == 20 {
				return nil, errBroken
			}
			return v, nil
		}, "get: broken", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := config(t, "zstd")
			c.Concurrency = []int{2}
			c.wrap = func(s bale.Store) bale.Store { return &liar{Store: s, lie: test.lie} }
			r, err := Measure(t.Context(), []*Server{server}, c)
			if err != nil {
				t.Fatal(err)
			}
			if cell := r.Cells[0]; cell.Verified || cell.Mismatch != test.mismatch || !strings.Contains(cell.Error, test.want) {
				t.Errorf("verified %v, mismatch %v, error %q; want %q", cell.Verified, cell.Mismatch, cell.Error, test.want)
			}
		})
	}
}

// forgetful loses what is written in bulk.
type forgetful struct{ bale.Store }

func (f forgetful) SetMany(context.Context, []bale.Item) error { return nil }

func TestLostValuesFailTheCell(t *testing.T) {
	server, err := OpenEmbedded(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c := config(t, "none")
	c.wrap = func(s bale.Store) bale.Store { return forgetful{s} }
	r, err := Measure(t.Context(), []*Server{server}, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, cell := range r.Cells {
		if cell.Verified || !strings.Contains(cell.Error, "MISMATCH") {
			t.Errorf("verified %v, error %q", cell.Verified, cell.Error)
		}
	}
}

// TestInterrupted: the result is marked as interrupted. It has the cells that were measured in
// every whole round, or in the first one; a round that was cut short gives no figures.
func TestInterrupted(t *testing.T) {
	server, err := OpenEmbedded(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, test := range []struct {
		name                 string
		step                 int // the run ends before this one; the first fills, and then there are two cells a round
		cells, rounds, fewer int
	}{
		{"while filling", 0, 0, 0, 0},
		{"before the first cell", 1, 0, 0, 0},
		{"in the first round", 2, 1, 1, 1},
		{"in the second round", 4, 2, 1, 0},
		{"in the third round", 6, 2, 2, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			c := config(t, "none")
			c.Rounds, c.Duration = 3, 60*time.Millisecond
			c.Progress = func(p Progress) {
				done := p.Done
				if done == test.step {
					cancel()
				}
			}
			r, err := Measure(ctx, []*Server{server}, c)
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v", err)
			}
			if test.cells == 0 {
				if r != nil {
					t.Errorf("result %+v", r)
				}
				return
			}
			if r == nil || len(r.Cells) != test.cells {
				t.Fatalf("result %+v", r)
			}
			e := r.Environment
			if want := 0.02 * float64(test.rounds); !e.Interrupted || e.Rounds != test.rounds || e.CellsLeftOut != test.fewer || math.Abs(e.DurationS-want) > 1e-9 {
				t.Errorf("%+v", e)
			}
			for _, cell := range r.Cells {
				if n := len(cell.Rounds); !cell.Verified || n < test.rounds {
					t.Errorf("%d rounds of a cell, error %q", n, cell.Error)
				}
			}
		})
	}
}

// deaf says that it wrote a value, and does not.
type deaf struct{ bale.Store }

func (deaf) Set(context.Context, string, []byte, bale.Expiry) error { return nil }

// TestLostWritesFailTheCell: a write that is lost leaves the value of before, which is another.
func TestLostWritesFailTheCell(t *testing.T) {
	server, err := OpenEmbedded(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for _, mix := range []Mix{{}, {Gets: 1, Sets: 1}, {Sets: 1}} {
		c := config(t, "none", "zstd")
		c.Mix = mix
		c.wrap = func(s bale.Store) bale.Store { return deaf{s} }
		r, err := Measure(t.Context(), []*Server{server}, c)
		if err != nil {
			t.Fatal(err)
		}
		for _, cell := range r.Cells {
			if !cell.Mismatch {
				t.Errorf("%v, %+v: verified %v, error %q", mix, cell.Identity, cell.Verified, cell.Error)
			}
		}
	}
}
