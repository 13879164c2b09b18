package resilience

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/balekv/bale/cmd/internal/origin"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/rounds"
	"github.com/balekv/bale/cmd/internal/schematest"
	"github.com/balekv/bale/internal/redisproc"
)

func TestMain(m *testing.M) {
	origin.Child()
	goleak.VerifyTestMain(m)
}

// TestStudy: every policy of every scenario has calls in each phase, and the faults show.
func TestStudy(t *testing.T) {
	redisproc.ForTest(t) // skips where there is none
	var r *outcome.Report
	cells := map[string]Cell{}
	for duration := 900 * time.Millisecond; ; duration *= 4 { // on a busy machine no call may be good in a short time, or none come to the loader
		var err error
		if r, err = Run(context.Background(), rounds.Options{Duration: duration, Rounds: 1, Seed: 1, About: outcome.Environment{Study: "resilience"}}); err == nil {
			for _, c := range r.Cells.([]Cell) {
				cells[c.Scenario+" "+c.Policy] = c
			}
			if cells["redis none"].Phases[during].Asked.Median > 0 {
				break
			}
			err = errors.New("nothing was loaded while Redis did not answer")
		}
		if duration > 10*time.Second {
			t.Fatal(err)
		}
	}
	for _, c := range r.Cells.([]Cell) {
		for i, p := range c.Phases {
			if p.Good.Median < 0 || p.Good.Median > 1 || p.P99.Median <= 0 || p.Refused.Median < 0 {
				t.Errorf("%s, %s, phase %d: %+v", c.Scenario, c.Policy, i, p)
			}
		}
		if n := len(c.Moments.AtS); n != moments || len(c.Moments.Good) != n || len(c.Moments.P99) != n || len(c.Moments.Refused) != n || len(c.Moments.Limit) != n {
			t.Errorf("%s, %s: %d moments", c.Scenario, c.Policy, n)
		}
		if hasLimit := c.Policy == "limit" || c.Policy == "all"; hasLimit != (c.Moments.Limit[0] > 0) {
			t.Errorf("%s, %s: limit %v", c.Scenario, c.Policy, c.Moments.Limit)
		}
	}
	n := 0
	for _, s := range scenarios {
		n += len(s.policies)
		bare, with := cells[s.name+" none"].Phases, cells[s.name+" "+s.policies[len(s.policies)-1].name].Phases
		if bare[before].Good.Median == 0 || with[before].Good.Median == 0 {
			t.Errorf("%s: %+v, %+v", s.name, bare, with)
		}
		if s.name == "dead" && bare[during].Good.Median > 0.5 {
			t.Errorf("%s: %+v", s.name, bare)
		}
		if bare[during].Refused.Median > 0 {
			t.Errorf("%s: no policy refuses %g", s.name, bare[during].Refused.Median)
		}
	}
	if len(cells) != n || len(r.Findings) != len(scenarios) || len(r.Charts) != len(scenarios) || len(r.Environment.Servers) != 2 {
		t.Errorf("%d cells of %d, %d findings, servers %q", len(cells), n, len(r.Findings), r.Environment.Servers)
	}
	schematest.CheckReport[Cell](t, r.Schema(), schematest.Written(t, r))
	var text, html strings.Builder
	r.WriteText(page.NewSheet(&text, 80), outcome.TextOptions{})
	if err := r.WritePage(&html); err != nil {
		t.Fatal(err)
	}
	for _, s := range scenarios {
		if !strings.Contains(text.String(), s.title) || !strings.Contains(html.String(), s.title+"</h2>") {
			t.Errorf("%s is missing", s.title)
		}
	}
	for line := range strings.Lines(text.String()) {
		if len([]rune(line)) > 81 {
			t.Errorf("%d columns: %s", len([]rune(line)), line)
		}
	}
}

// TestNoRatioOfOneRound: P99 is compared only if noise has an interval.
func TestNoRatioOfOneRound(t *testing.T) {
	for rounds, want := range map[int]bool{1: false, 6: true} {
		e := func(v float64) outcome.Estimate {
			var all []float64
			for i := range rounds {
				all = append(all, v+float64(i)/100)
			}
			return outcome.NewEstimate(all)
		}
		p := Phase{Good: e(0.5), P99: e(10)}
		f := scenarios[0].finding([]Cell{{Policy: "none", Phases: [phases]Phase{p, p, p}}, {Policy: "limit", Phases: [phases]Phase{p, p, p}}})
		says := strings.Join(f.Claims, " ")
		if strings.Contains(says, "times") != want || strings.Contains(says, "% (50 to 55)") != want || !strings.Contains(says, "With limit, 5") {
			t.Errorf("%d rounds: %s", rounds, says)
		}
	}
}

// TestShort: the shortest study works, as CI runs it.
func TestShort(t *testing.T) {
	r, err := Run(context.Background(), rounds.Options{Duration: 60 * time.Millisecond, Rounds: 2})
	if err != nil || len(r.Findings) == 0 {
		t.Errorf("%v, %v", r, err)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	r, err := Run(ctx, rounds.Options{Duration: time.Minute, Rounds: 1, Progress: func(int, int, string) { time.AfterFunc(100*time.Millisecond, cancel) }})
	if r != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", r, err)
	}
}

func TestUsage(t *testing.T) {
	if _, err := Run(context.Background(), rounds.Options{Duration: time.Second}); err == nil {
		t.Error("no rounds are taken")
	}
}

// TestPrivateServer: other users of the machine cannot use the study's server, which is not root's.
func TestPrivateServer(t *testing.T) {
	redisproc.ForTest(t) // skips where there is none
	to, err := overRedis(t.Context(), none)
	if err != nil {
		t.Fatal(err)
	}
	defer to.close()
	server := to.(*cached).server
	anyone := redis.NewClient(&redis.Options{Addr: server.Addr(), DisableIdentity: true})
	defer anyone.Close()
	if err := anyone.Get(t.Context(), "x").Err(); !redis.HasErrorPrefix(err, "NOAUTH") {
		t.Errorf("without a password: %v", err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", server.PID()))
	if err == nil && os.Geteuid() == 0 && strings.Contains(string(status), "\nUid:\t0\t") {
		t.Error("it is root's")
	}
}
