package lab

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/bale/internal/dataset"
	"github.com/balekv/bale/cmd/bale/internal/engine"
	"github.com/balekv/bale/redisproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func config(t *testing.T, settings ...string) Config {
	t.Helper()
	sets, err := dataset.BuiltIn(1)
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
	s, err := OpenServer(t.Context(), "")
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
	c.Progress = func(done, total int, what string) {
		if done != steps || total != 2+4*2 {
			t.Errorf("step %d of %d, want %d of 10", done, total, steps)
		}
		steps++
	}
	r, err := Run(t.Context(), server, c)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cells) != 4 || r.Environment.Rounds != 2 || steps != 10 {
		t.Fatalf("%d cells, %d rounds, %d steps", len(r.Cells), r.Environment.Rounds, steps)
	}
	for _, cell := range r.Cells {
		if !cell.Verified || cell.Operations == 0 || len(cell.OpsPerSecondRounds) != 2 {
			t.Errorf("%+v", cell)
		}
		// Both of Redis' own figures include the value, and they are figures of one thing.
		stored := float64(cell.StoredBytes) / float64(cell.Values)
		if *cell.RedisBytesPerKey < stored || math.Abs(*cell.RedisBytesPerKey / *cell.MemoryUsagePerKey - 1) > 0.15 {
			t.Errorf("%s: %.0f stored, %.0f by used_memory, %.0f by MEMORY USAGE", cell.Compress, stored, *cell.RedisBytesPerKey, *cell.MemoryUsagePerKey)
		}
		// The stages are all there is of an operation.
		sum := 0.0
		for _, name := range Stages[:6] {
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

// TestClients: each client takes each value through, and comes with figures of its own.
func TestClients(t *testing.T) {
	for name, open := range map[string]func() *Server{
		"real": func() *Server { return realServer(t) },
		"embedded": func() *Server {
			s, err := OpenEmbedded(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(t, "none", "s2")
			c.Clients = Clients
			r, err := Run(t.Context(), open(), c)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Cells) != 2*3*2 {
				t.Fatalf("%d cells", len(r.Cells))
			}
			seen := map[string]int{}
			for _, cell := range r.Cells {
				seen[cell.Client]++
				if !cell.Verified || cell.Operations == 0 {
					t.Errorf("%s %s, %d callers: %s", cell.Client, cell.Compress, cell.Concurrency, cell.Error)
				}
			}
			for _, name := range Clients {
				if seen[name] != 4 {
					t.Errorf("%d cells of %s", seen[name], name)
				}
			}
		})
	}
	c := config(t, "none")
	c.Clients = []string{"nobody"}
	if _, err := Run(t.Context(), realServer(t), c); err == nil {
		t.Error("a client that does not exist is accepted")
	}
}

// TestDictionaries: trained on one half, measured on the other, with their bytes in those of the keys; where none pays there
// is a reason and no cell.
func TestDictionaries(t *testing.T) {
	server := realServer(t)
	c := config(t, "none", "s2", "s2+dict")
	sets, err := dataset.BuiltIn(1)
	if err != nil {
		t.Fatal(err)
	}
	profiles, _ := sets[0].Halves() // fewer, for the sake of time
	profiles, _ = profiles.Halves()
	random, _ := sets[3].Halves()
	random, _ = random.Halves()
	c.Datasets, c.Concurrency = []*dataset.Dataset{profiles, random}, []int{2}
	r, err := Run(t.Context(), server, c)
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
	// Over all keys, MEMORY USAGE does not have the dictionary, and used_memory does; the rest is the key table's.
	extra := (*with.RedisBytesPerKey - *with.MemoryUsagePerKey) - (*plain.RedisBytesPerKey - *plain.MemoryUsagePerKey)
	if bytes := extra * float64(with.Keys); bytes < 0.5*float64(d.Bytes) || bytes > float64(d.Bytes)+64<<10 {
		t.Errorf("%.0f bytes more for a dictionary of %d", bytes, d.Bytes)
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
	}{
		{"another value", func(n int64, v []byte) ([]byte, error) {
			if n == 20 {
				return []byte(`{"id":1}`), nil
			}
			return v, nil
		}, "MISMATCH"},
		{"a flipped bit", func(n int64, v []byte) ([]byte, error) {
			if n == 20 {
				v = bytes.Clone(v)
				v[len(v)-3] ^= 1
			}
			return v, nil
		}, "corrupt value"},
		{"a failing server", func(n int64, v []byte) ([]byte, error) {
			if n == 20 {
				return nil, errBroken
			}
			return v, nil
		}, "get: broken"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := config(t, "zstd")
			c.Concurrency = []int{2}
			c.wrap = func(s bale.Store) bale.Store { return &liar{Store: s, lie: test.lie} }
			r, err := Run(t.Context(), server, c)
			if err != nil {
				t.Fatal(err)
			}
			if cell := r.Cells[0]; cell.Verified || !strings.Contains(cell.Error, test.want) {
				t.Errorf("verified %v, error %q; want %q", cell.Verified, cell.Error, test.want)
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
	r, err := Run(t.Context(), server, c)
	if err != nil {
		t.Fatal(err)
	}
	for _, cell := range r.Cells {
		if cell.Verified || !strings.Contains(cell.Error, "MISMATCH") {
			t.Errorf("verified %v, error %q", cell.Verified, cell.Error)
		}
	}
}

func TestInterruptedRunKeepsWholeRounds(t *testing.T) {
	server, err := OpenEmbedded(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := config(t, "none")
	c.Rounds = 3
	c.Progress = func(done, total int, what string) {
		if done == 1+2*2+1 { // in the middle of the third round
			cancel()
		}
	}
	r, err := Run(ctx, server, c)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if r == nil || r.Environment.Rounds != 2 {
		t.Fatalf("result %+v", r)
	}
	for _, cell := range r.Cells {
		if n := len(cell.OpsPerSecondRounds); !cell.Verified || n < 2 {
			t.Errorf("%d rounds of a cell, error %q", n, cell.Error)
		}
	}
}

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		in   []float64
		want float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{3, 1}, 2}, {[]float64{9, 1, 2}, 2}} {
		if got := median(test.in); got != test.want {
			t.Errorf("median(%v) = %v, want %v", test.in, got, test.want)
		}
	}
}

// BenchmarkRecord is what the lab adds to an operation: all stages recorded under the lock of a shard.
func BenchmarkRecord(b *testing.B) {
	h := newHistograms()
	times := [7]time.Duration{3000, 1000, 30000, 30000, 500, 7000, 71500}
	b.ReportAllocs()
	for b.Loop() {
		h.record(&times)
	}
	if got := h[6].TotalCount(); got == 0 || h[6].ValueAtQuantile(50) < 71000 {
		b.Fatalf("%d recorded", got)
	}
}
