package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/load"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/values"
	"github.com/balekv/bale/internal/redisproc"
)

func TestParseMix(t *testing.T) {
	for in, want := range map[string]Mix{"": {}, "90:10": {Gets: 90, Sets: 10}, "1:0": {Gets: 1}, "0:1": {Sets: 1}} {
		if got, err := ParseMix(in); err != nil || got != want || got.Validate() != nil {
			t.Errorf("%q: %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"90", "90:", ":", "0:0", "-1:2", "1:1000001", "a:b", "1:2:3"} {
		if got, err := ParseMix(in); !errors.Is(err, ErrMix) {
			t.Errorf("%q: %+v, %v", in, got, err)
		}
	}
	for _, m := range []Mix{{Gets: 1, Misses: -0.1}, {Gets: 1, Misses: 1.1}, {Gets: 1, Misses: math.NaN()}, {Gets: 1, Zipf: -1}, {Gets: 1, Zipf: 11}, {Misses: 0.5}, {Zipf: 1}} {
		if err := m.Validate(); !errors.Is(err, ErrMix) {
			t.Errorf("%+v: %v", m, err)
		}
	}
}

func TestParseBatch(t *testing.T) {
	for in, want := range map[string]Batch{"single": {}, "pipeline:10": {false, 10}, "mset:1": {true, 1}} {
		got, err := ParseBatch(in)
		if err != nil || got != want || got.N > 0 && got.String() != in {
			t.Errorf("%q: %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "mset", "mset:", "mset:0", "pipeline:100001", "pipeline:-1", "mget:10", "single:1"} {
		if got, err := ParseBatch(in); !errors.Is(err, ErrBatch) {
			t.Errorf("%q: %+v, %v", in, got, err)
		}
	}
}

// TestPopularity: by Zipf the k-th most popular key has 1/k^s of the first one's share, and every
// key its turn.
func TestPopularity(t *testing.T) {
	const keys, draws = 1000, 400_000
	for _, s := range []float64{0, 0.99, 2} {
		p := Mix{Gets: 1, Zipf: s}.popularity(keys)
		rng := rand.New(rand.NewPCG(1, 2))
		counts := make([]int, keys)
		for range draws {
			counts[p.draw(rng)]++
		}
		first := p.rank(0)
		for _, k := range []int{2, 3, 10} {
			want := math.Pow(float64(k), -s)
			got := float64(counts[p.rank(k-1)]) / float64(counts[first])
			// Five standard errors of the rarer one.
			if slack := 5*want/math.Sqrt(float64(counts[p.rank(k-1)])) + 5*want/math.Sqrt(float64(counts[first])); math.Abs(got-want) > slack {
				t.Errorf("exponent %v: the key of rank %d has %.4f of the first one's draws, want %.4f +- %.4f", s, k, got, want, slack)
			}
		}
	}
	seen := map[int]bool{}
	p := Mix{Gets: 1, Zipf: 1}.popularity(keys)
	for rank := range keys {
		seen[p.rank(rank)] = true
	}
	if len(seen) != keys {
		t.Errorf("%d keys of %d ranks", len(seen), keys)
	}
}

// TestMix: single operations in their proportions, and what they find.
func TestMix(t *testing.T) {
	server := realServer(t)
	c := config(t, "none", "s2")
	c.Mix = Mix{Gets: 3, Sets: 1, Misses: 0.25, Zipf: 0.99}
	c.Codecs = []string{"json", "gob"}
	c.KeySize = 60
	c.Duration = 200 * time.Millisecond
	var longest int
	c.wrap = func(s bale.Store) bale.Store { return &keyLengths{s, &longest} }
	r, err := Measure(t.Context(), []*Server{server}, c)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cells) != 8 {
		t.Fatalf("%d cells", len(r.Cells))
	}
	for _, cell := range r.Cells {
		gets := cell.Hits + cell.Misses
		if !cell.Verified || gets == 0 || cell.Operations == 0 {
			t.Errorf("%+v: %s", cell.Identity, cell.Error)
			continue
		}
		share := float64(cell.Misses) / float64(gets)
		if slack := 5 * math.Sqrt(0.25*0.75/float64(gets)); math.Abs(share-0.25) > slack {
			t.Errorf("%+v: %.3f of %d GETs are misses, want 0.25 +- %.3f", cell.Identity, share, gets, slack)
		}
	}
	if longest != 60 {
		t.Errorf("keys of %d bytes, want 60", longest)
	}
	if !strings.Contains(r.Environment.Load, "of 4 operations 3 are a GET") {
		t.Error(r.Environment.Load)
	}
}

// keyLengths notes the longest key that values are written to, in bulk.
type keyLengths struct {
	bale.Store
	longest *int
}

func (k *keyLengths) SetMany(ctx context.Context, items []bale.Item) error {
	for _, item := range items {
		*k.longest = max(*k.longest, len(item.Key))
	}
	return k.Store.SetMany(ctx, items)
}

// TestMixFindsWrongValues: a GET knows what belongs to its key.
func TestMixFindsWrongValues(t *testing.T) {
	server, err := OpenEmbedded(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for name, lie := range map[string]func(int64, []byte) ([]byte, error){
		"another value": func(n int64, v []byte) ([]byte, error) { return []byte(`{"id":1}`), nil },
		"a flipped bit": func(n int64, v []byte) ([]byte, error) { v = bytes.Clone(v); v[len(v)-3] ^= 1; return v, nil },
		"none":          func(n int64, v []byte) ([]byte, error) { return nil, bale.ErrNotFound },
	} {
		t.Run(name, func(t *testing.T) {
			c := config(t, "s2")
			c.Mix = Mix{Gets: 1}
			c.wrap = func(s bale.Store) bale.Store {
				return &liar{Store: s, lie: func(n int64, v []byte) ([]byte, error) {
					if n != 20 {
						return v, nil
					}
					return lie(n, v)
				}}
			}
			r, err := Measure(t.Context(), []*Server{server}, c)
			if err != nil {
				t.Fatal(err)
			}
			if cell := r.Cells[0]; cell.Verified || cell.Error == "" {
				t.Errorf("verified %v, error %q", cell.Verified, cell.Error)
			}
		})
	}
	// A key that is not to exist, and does.
	c := config(t, "s2")
	c.Mix = Mix{Gets: 1, Misses: 1}
	c.wrap = func(s bale.Store) bale.Store { return always{s} }
	r, err := Measure(t.Context(), []*Server{server}, c)
	if err != nil || r.Cells[0].Verified || !r.Cells[0].Mismatch {
		t.Errorf("%+v, %v", r.Cells[0], err)
	}
}

// always finds a value.
type always struct{ bale.Store }

func (always) Get(context.Context, string) ([]byte, error) { return []byte("{}"), nil }

// TestBatches: each client, by pipelines and by MSET, with as many values as were asked for.
func TestBatches(t *testing.T) {
	server := realServer(t)
	c := config(t, "none", "s2")
	c.Concurrency = []int{3}
	for _, name := range []string{"single", "pipeline:7", "mset:7"} {
		b, err := ParseBatch(name)
		if err != nil {
			t.Fatal(err)
		}
		c.Batches = append(c.Batches, b)
	}
	for _, name := range Clients {
		c.Clients = append(c.Clients, ClientSetting{Name: name, Auto: name == "rueidis"})
	}
	r, err := Measure(t.Context(), []*Server{server}, c)
	if err != nil {
		t.Fatal(err)
	}
	if want := 2 * 3 * len(Clients); len(r.Cells) != want || len(r.Skipped) != 0 {
		t.Fatalf("%d cells, want %d; left out %v", len(r.Cells), want, r.Skipped)
	}
	for _, cell := range r.Cells {
		want := 7.
		if cell.Batch == "" {
			want = 1
		}
		if values := cell.ValuesPerSecond.Median / cell.OpsPerSecond.Median; !cell.Verified || math.Abs(values-want) > 1e-6 {
			t.Errorf("%+v: %v values an operation, %s", cell.Identity, values, cell.Error)
		}
	}
}

// swapped gives values of a batch back in another order.
type swapped struct{ batcher }

func (s swapped) pipeline(ctx context.Context, keys []string, values [][]byte) ([][]byte, error) {
	got, err := s.batcher.pipeline(ctx, keys, values)
	if len(got) > 1 {
		got[0], got[1] = got[1], got[0]
	}
	return got, err
}

func TestBatchesFindWrongValues(t *testing.T) {
	server, err := OpenEmbedded(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c := config(t, "none")
	c.Batches, c.Concurrency = []Batch{{N: 20}}, []int{1}
	c.Progress = func(p Progress) {
		done := p.Done
		if done == 0 {
			for _, client := range server.clients {
				client.batcher = swapped{client.batcher}
			}
		}
	}
	r, err := Measure(t.Context(), []*Server{server}, c)
	if err != nil || !r.Cells[0].Mismatch {
		t.Errorf("%+v, %v", r.Cells[0], err)
	}
}

// TestCoordinatedOmission pauses the server while operations are to start at a fixed rate. The few
// callers there are notice a few long operations; all that should have started meanwhile waited as
// well, and count as that.
func TestCoordinatedOmission(t *testing.T) {
	const pause, between = 400 * time.Millisecond, 400 * time.Millisecond
	process := redisproc.ForTest(t)
	server, err := OpenServer(t.Context(), process.URL(), keyspace.Login{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c := config(t, "none")
	c.Concurrency, c.Rates, c.Rounds, c.Duration = []int{4}, []float64{1000}, 1, 2*time.Second
	stop, stopped := make(chan struct{}), make(chan struct{})
	c.Progress = func(p Progress) {
		what := p.What
		if !strings.HasPrefix(what, "round 1") {
			return
		}
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				case <-time.After(between):
				}
				if err := syscall.Kill(process.PID(), syscall.SIGSTOP); err != nil {
					t.Error(err)
				}
				time.Sleep(pause)
				if err := syscall.Kill(process.PID(), syscall.SIGCONT); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	r, err := Measure(t.Context(), []*Server{server}, c)
	close(stop)
	<-stopped
	if err != nil {
		t.Fatal(err)
	}
	cell := r.Cells[0]
	if !cell.Verified || cell.Rate != 1000 || cell.Late == nil {
		t.Fatalf("%+v", cell)
	}
	real, seen := at(cell.Latency, 0.9), at(cell.Service, 0.9)
	t.Logf("P90 from the start that was meant %.0f us, from the real one %.0f us; %d operations", real, seen, cell.Operations)
	// Half of the time the server stands still: of the operations more than a tenth wait for more
	// than half of a pause.
	if real < 1e6*pause.Seconds()/2 {
		t.Errorf("P90 is %.0f us, with pauses of %v", real, pause)
	}
	if seen > real/3 {
		t.Errorf("operations took %.0f us from when they started, %.0f us from when they were to: the callers saw the pauses as they are", seen, real)
	}
}

func at(points []outcome.Point, q float64) float64 {
	v := 0.
	for _, p := range points {
		if p.Quantile <= q {
			v = p.US
		}
	}
	return v
}

// TestDue: as many as the generator sends.
func TestDue(t *testing.T) {
	for _, rate := range []float64{1, 3, 7, 999, 1e6 / 3, 2_000_000} {
		for _, until := range []int64{0, 1, 999, 1e6, 333_333_333, 1e9 - 1, 1e9, 1e9 + 1} {
			p := &phase{cell: &cell{rate: rate}}
			p.until.Store(until)
			if n := p.due(); n > 0 && load.IntendedAt(n-1, rate) >= until || load.IntendedAt(n, rate) < until {
				t.Errorf("%v a second, %d ns: %d", rate, until, n)
			}
		}
	}
}

// TestSweep: rates rise up to more than the closed loop does, and the knee is among them.
func TestSweep(t *testing.T) {
	server := realServer(t)
	c := config(t, "none")
	c.Concurrency, c.Sweep, c.Duration, c.Rounds = []int{8}, true, 200*time.Millisecond, 2
	r, err := Measure(t.Context(), []*Server{server}, c)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Sweeps) != 1 || len(r.Sweeps[0].Cells) != len(sweepShares) || len(r.Cells) != len(sweepShares) {
		t.Fatalf("%+v, %d cells", r.Sweeps, len(r.Cells))
	}
	s, last := r.Sweeps[0], 0.
	for i, place := range s.Cells {
		cell := r.Cells[place]
		if !cell.Verified || cell.Rate <= last || math.Abs(cell.Rate/(sweepShares[i]*s.Capacity)-1) > 0.01 {
			t.Errorf("%+v after a rate of %v: %s", cell.Identity, last, cell.Error)
		}
		last = cell.Rate
		if cell.Rate == s.Knee && cell.Limit != outcome.LimitOffered {
			t.Errorf("the knee's limit is %q: %s", cell.Limit, cell.Why)
		}
	}
	if s.Capacity <= 0 || s.Knee > last {
		t.Errorf("%+v", s)
	}
}

// TestHopelessRate: operations that nobody comes to are counted, and the run ends.
func TestHopelessRate(t *testing.T) {
	server := realServer(t)
	c := config(t, "none")
	c.Concurrency, c.Rates, c.Duration, c.Rounds = []int{1}, []float64{2_000_000}, 50*time.Millisecond, 1
	r, err := Measure(t.Context(), []*Server{server}, c)
	if err != nil {
		t.Fatal(err)
	}
	// It depends on the machine whether any of the operations that were due got its turn.
	cell := r.Cells[0]
	// The abandoned operations would have taken longer than every latency shown.
	if !cell.AtLeast || len(cell.Rounds) > 0 && !cell.Rounds[0].AtLeast {
		t.Errorf("latencies that are lower bounds are not said to be: %+v", cell)
	}
	if cell.Unstarted == 0 || cell.Mismatch || cell.Limit == outcome.LimitOffered || !cell.Verified && !strings.Contains(cell.Error, "far too high") {
		t.Errorf("unstarted %d, limit %q, %s", cell.Unstarted, cell.Limit, cell.Error)
	}
}

// TestServers: settings arrive, and each has its cells.
func TestServers(t *testing.T) {
	redisproc.ForTest(t) // skips where there is none
	settings, err := ServerSettings([]string{"no", "always"}, []int{1, 2}, []string{"allkeys-lfu"}, nil)
	if err != nil || len(settings) != 4 {
		t.Fatal(settings, err)
	}
	var servers []*Server
	for _, s := range settings {
		server, err := OpenPrivate(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := server.Close(); err != nil {
				t.Error(err)
			}
		})
		for name, want := range map[string]string{"maxmemory-policy": s.Policy, "io-threads": fmt.Sprint(max(1, s.IOThreads))} {
			if got, err := server.client.ConfigGet(t.Context(), name).Result(); err != nil || got[name] != want {
				t.Errorf("%s: %s is %q, %v", s, name, got[name], err)
			}
		}
		if got, err := server.client.ConfigGet(t.Context(), "appendonly").Result(); err != nil || (got["appendonly"] == "yes") != (s.AppendOnly != "") {
			t.Errorf("%s: %v, %v", s, got, err)
		}
		servers = append(servers, server)
	}
	c := config(t, "none")
	c.Concurrency = []int{2}
	r, err := Measure(t.Context(), servers, c)
	if err != nil {
		t.Fatal(err)
	}
	for i, cell := range r.Cells {
		if !cell.Verified || cell.Server != settings[i].String() {
			t.Errorf("%+v: %s", cell.Identity, cell.Error)
		}
	}
	for _, bad := range []func() ([]ServerSetting, error){
		func() ([]ServerSetting, error) { return ServerSettings([]string{"sometimes"}, nil, nil, nil) },
		func() ([]ServerSetting, error) { return ServerSettings(nil, []int{0}, nil, nil) },
		func() ([]ServerSetting, error) { return ServerSettings(nil, nil, []string{"lru"}, nil) },
		func() ([]ServerSetting, error) { return ServerSettings(nil, nil, nil, []string{"fast"}) },
		func() ([]ServerSetting, error) { return ServerSettings([]string{"no", "no"}, nil, nil, nil) },
	} {
		if all, err := bad(); !errors.Is(err, ErrServer) {
			t.Errorf("%v, %v", all, err)
		}
	}
}

// TestTooMuchInHand: cells whose callers would hold too much are skipped, with the reason.
func TestTooMuchInHand(t *testing.T) {
	server, err := OpenEmbedded(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c := config(t, "none")
	d, err := dataset.Load(t.Context(), "-", strings.NewReader(strings.Repeat("x", 3<<20)+"\n"), values.Limits{Values: 1, ValueSize: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	c.Datasets, c.Concurrency = []*dataset.Dataset{d}, []int{1, 1000}
	cells := Estimate([]*Server{server}, c).Cells
	r, err := Measure(t.Context(), []*Server{server}, c)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cells) != 1 || cells != 1 || len(r.Skipped) != 1 || r.Skipped[0].Concurrency != 1000 || !strings.Contains(r.Skipped[0].Reason, "256 MiB") {
		t.Errorf("%d cells, %d expected, left out %+v", len(r.Cells), cells, r.Skipped)
	}
	// An operation takes longer than a round, and is measured all the same.
	if cell := r.Cells[0]; !cell.Verified || cell.OpsPerSecond.Median <= 0 {
		t.Errorf("%+v", cell)
	}
}

func TestSettled(t *testing.T) {
	for name, test := range map[string]struct {
		rates []float64
		want  bool
	}{
		"even":    {[]float64{100, 100, 100, 100, 100, 100, 100, 100}, true},
		"noise":   {[]float64{100, 120, 90, 110, 105, 95, 115, 100}, true},
		"rising":  {[]float64{10, 20, 30, 40, 50, 60, 70, 80}, false},
		"falling": {[]float64{100, 99, 98, 97, 70, 69, 68, 67}, false},
		"nothing": {[]float64{0, 0, 0, 0, 0, 0, 0, 0}, true},
	} {
		if got := settled(test.rates); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestLimit: what the resources of a cell say of it.
func TestLimit(t *testing.T) {
	cell := func(client, server float64) outcome.Cell {
		return outcome.Cell{
			Resources: outcome.Resources{ClientCPU: client, ServerCPU: &server, ServerMain: &server}, OpsPerSecond: outcome.Estimate{Median: 1000},
			Stages: map[string]outcome.Stage{"total": {Mean: 1000}},
		}
	}
	wait := 500.
	pool, offered, link := cell(0.5, 0.3), cell(0.5, 0.3), cell(0.5, 0.3)
	pool.Resources.PoolWait = &wait
	offered.Rate = 1000
	link.Resources.ServerOut = 1100
	through, both := cell(0.5, 1.2), cell(0.7, 1.2) // the server has 0.25 of the latter, in its main thread
	through.Resources.ServerMain, through.Resources.ProxyCPU = new(0.25), new(0.95)
	both.Resources.ServerMain, both.Resources.ProxyCPU = new(0.25), new(0.95)
	elsewhere := cell(0.5, 0.3)
	elsewhere.Resources.MachineCPU = new(1.9)
	remote := &Server{}
	for name, test := range map[string]struct {
		cell   outcome.Cell
		server *Server
		cores  int
		want   string
	}{
		"both":     {cell(1.0, 0.95), &Server{Here: true}, 2, outcome.LimitMachine},
		"server":   {cell(1.0, 0.95), &Server{Here: true}, 8, outcome.LimitServer},
		"client":   {cell(1.95, 0.5), remote, 2, outcome.LimitClient},
		"others":   {elsewhere, &Server{Here: true}, 2, outcome.LimitMachine},
		"proxy":    {through, &Server{Here: true}, 8, outcome.LimitProxy},
		"far":      {through, remote, 2, outcome.LimitProxy}, // 1.45 cores here
		"and near": {both, remote, 2, outcome.LimitMachine},  // 1.65
		"all here": {both, &Server{Here: true}, 2, outcome.LimitMachine},
		"waiting":  {cell(0.5, 0.3), &Server{Here: true}, 2, outcome.LimitWaiting},
		"pool":     {pool, remote, 2, outcome.LimitPool},
		"offered":  {offered, remote, 2, outcome.LimitOffered},
		"the link": {link, &Server{LinkBits: 10e6}, 2, outcome.LimitNetwork},
		"no link":  {link, &Server{LinkBits: 100e6}, 2, outcome.LimitWaiting},
	} {
		if got, why := bottleneck(&test.cell, test.server, test.cores); got != test.want || why == "" {
			t.Errorf("%s: %s, %s; want %s", name, got, why, test.want)
		}
	}
}
