package lab

import (
	"testing"
	"time"

	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/engine"
)

// TestEstimate: each part of a run is in the estimate, and a cell that is left out is not.
func TestEstimate(t *testing.T) {
	near, far := &Server{}, &Server{LinkBits: 1e6}
	base := func() Config { // of 1000 values of 1000 bytes: about 1 MB, or 10 MB of 10,000 keys
		c := config(t, "none")
		set, err := dataset.Sized(1000, 1)
		if err != nil {
			t.Fatal(err)
		}
		c.Datasets, c.Codecs, c.Concurrency, c.Rounds, c.Duration = []*dataset.Dataset{set}, []string{"raw"}, []int{4}, 10, time.Second
		return c
	}
	plain := Estimate([]*Server{near}, base())
	if plain.Cells != 1 || plain.Time < 1500*time.Millisecond || plain.Time > 3*time.Second || plain.Overload != 0 {
		t.Errorf("%+v", plain)
	}
	for name, test := range map[string]struct {
		servers  []*Server
		change   func(*Config)
		cells    int
		more     time.Duration // at least, and at most half as much again and a second
		overload time.Duration
	}{
		"a dictionary":     {[]*Server{near}, func(c *Config) { c.Compress = config(t, "zstd:3+dict").Compress }, 1, time.Second, 0},
		"a slow link":      {[]*Server{far}, func(*Config) {}, 1, 160 * time.Second, 0}, // 80 Mbit there, and back
		"a link beside":    {[]*Server{far, near}, func(*Config) {}, 2, 1500 * time.Millisecond, 0},
		"a mix on a link":  {[]*Server{far}, func(c *Config) { c.Mix = Mix{Gets: 1, Sets: 1} }, 1, 960 * time.Second, 0}, // and 80 before each round
		"a delay":          {[]*Server{{LinkDelay: 50 * time.Millisecond}}, func(*Config) {}, 1, 11 * time.Second, 0},    // 100 pipelines, 10 rounds
		"rates":            {[]*Server{near}, func(c *Config) { c.Rates = []float64{10, 20} }, 2, 1500 * time.Millisecond, 200 * time.Second / 2},
		"a sweep":          {[]*Server{near}, func(c *Config) { c.Sweep = true }, len(sweepShares), 12 * time.Second, 0},
		"large operations": {[]*Server{near}, func(c *Config) { c.Batches, c.Concurrency = []Batch{{N: 20_000}}, []int{1} }, 1, 4 * time.Second, 0},
		"no batches": {[]*Server{near}, func(c *Config) {
			c.Batches, c.Clients = []Batch{{}, {N: 2}}, []ClientSetting{{Name: "goredis", Auto: true}}
		}, 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := base()
			test.change(&c)
			e := Estimate(test.servers, c)
			more := e.Time - plain.Time
			if e.Cells != test.cells || more < test.more || more > test.more*3/2+time.Second || e.Overload != test.overload {
				t.Errorf("%d cells, %v more, overload %v; want %d, %v, %v", e.Cells, more, e.Overload, test.cells, test.more, test.overload)
			}
		})
	}
	forms := base()
	forms.Compress = []engine.Setting{}
	if e := Estimate([]*Server{near}, forms); e != (Expectation{}) {
		t.Errorf("of nothing: %+v", e)
	}
}
