package durability

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/rounds"
	"github.com/balekv/bale/cmd/internal/schematest"
	"github.com/balekv/bale/cmd/internal/sqlproc"
	"github.com/balekv/bale/internal/redisproc"
)

// TestDurability measures real servers and kills them. What is durable loses nothing, and what
// keeps nothing loses everything.
func TestDurability(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	r, err := Run(t.Context(), rounds.Options{Duration: 40 * time.Millisecond, Rounds: 2, Seed: 1, About: outcome.Environment{Study: "durability"}})
	if err != nil {
		t.Fatal(err)
	}
	for server, variable := range map[string]string{"Redis": redisproc.RequireEnv, "PostgreSQL": sqlproc.PostgreSQL.Require, "MariaDB": sqlproc.MariaDB.Require} {
		for _, s := range r.Skipped {
			if s.Server == server && os.Getenv(variable) != "" {
				t.Errorf("%s: %s", server, s.Reason)
			}
		}
	}
	schematest.CheckReport[Cell](t, r.Schema(), schematest.Written(t, r))
	measured := 0
	for _, c := range r.Cells.([]*Cell) {
		if !c.Verified || c.Writes == 0 && c.Flush != flushEach || c.WritesPerSecond.Median < 0 {
			t.Errorf("%+v", c)
		}
		if c.Writes > 0 {
			measured++
		}
		if (c.Kill != nil) != (c.Callers == maxCallers && c.Server != "") {
			t.Errorf("%s, %d: %+v", c.Setting, c.Callers, c.Kill)
		}
		if k := c.Kill; k != nil {
			// The kernel has everything but what stays in the memory of these: with everysec, while
			// an fsync runs.
			mayLose := slices.Contains([]string{"Redis no", "Redis everysec", "PostgreSQL off", "MariaDB 0"}, c.Setting)
			if k.Kills != 2 || k.Acknowledged == 0 || k.Lost > 0 && !mayLose || c.Setting == "Redis no" && k.Lost != k.Acknowledged || k.OldestMS < 0 {
				t.Errorf("%s: %+v", c.Setting, k)
			}
		}
	}
	if measured < len(r.Cells.([]*Cell))/2 {
		t.Errorf("%d cells measured", measured)
	}
	if len(r.Skipped) == 0 && (len(r.Findings) != 3 || len(r.Environment.Servers) != 3) {
		t.Errorf("%d findings, %v", len(r.Findings), r.Environment.Servers)
	}
}

// TestServersNotInstalled: without any server there is the file alone, and the reasons.
func TestServersNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	postgres, mariadb := *sqlproc.PostgreSQL, *sqlproc.MariaDB
	defer func(a, b sqlproc.Kind) { *sqlproc.PostgreSQL, *sqlproc.MariaDB = a, b }(postgres, mariadb)
	sqlproc.PostgreSQL.Elsewhere, sqlproc.MariaDB.Elsewhere = "", ""
	r, err := Run(t.Context(), rounds.Options{Duration: 40 * time.Millisecond, Rounds: 2})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Skipped) != 3 || len(r.Cells.([]*Cell)) != len(callers) {
		t.Errorf("%+v, %d cells", r.Skipped, len(r.Cells.([]*Cell)))
	}
	for _, s := range r.Skipped {
		if !strings.Contains(s.Reason, "apt-get install") {
			t.Errorf("%+v", s)
		}
	}
}

// memory is a store of a test. It loses or damages a write if it is asked to.
type memory struct {
	mu                      sync.Mutex
	values                  map[int64][]byte
	forget, damage, foreign bool
}

func (s *memory) connect(context.Context) error { return nil }
func (s *memory) disconnect()                   {}
func (s *memory) clear(context.Context) error   { clear(s.values); return nil }
func (s *memory) kill() time.Time               { return time.Now() }
func (s *memory) restart(context.Context) error { return nil }
func (s *memory) version() string               { return "memory" }
func (s *memory) close() error                  { return nil }

func (s *memory) write(_ context.Context, _ int, id int64, value []byte) error {
	time.Sleep(time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forget && len(s.values) > 0 {
		return nil
	}
	s.values[id] = append([]byte(nil), value...)
	if s.damage {
		s.values[id][7]++
	}
	if s.foreign {
		s.values[id+1_000_000] = value
	}
	return nil
}

func (s *memory) read(_ context.Context, from, _ int64, each func(int64, []byte) error) error {
	for id, v := range s.values {
		if id >= from {
			if err := each(id, v); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestRoundTrip: a write that is acknowledged and lost, a damaged value, and one that nobody wrote
// fail a cell.
func TestRoundTrip(t *testing.T) {
	for _, test := range []struct {
		name string
		s    *memory
		want error
	}{
		{"good", &memory{}, nil}, {"forgotten", &memory{forget: true}, errLost}, {"damaged", &memory{damage: true}, errDamaged}, {"foreign", &memory{foreign: true}, errDamaged},
	} {
		for _, n := range callers {
			test.s.values = map[int64][]byte{}
			c := &Cell{Callers: n, target: &target{store: test.s}}
			for range 2 {
				if err := c.measure(t.Context(), 20*time.Millisecond); !errors.Is(err, test.want) {
					t.Errorf("%s, %d callers: %v", test.name, n, err)
				}
			}
			if test.want == nil && (c.Writes == 0 || c.target.next < c.Writes) {
				t.Errorf("%d writes, the next id is %d", c.Writes, c.target.next)
			}
		}
	}
}

// TestValues: values of different ids differ.
func TestValues(t *testing.T) {
	seen := map[string]bool{}
	for id := range int64(1000) {
		v := value(nil, id)
		if len(v) != valueSize || seen[string(v)] {
			t.Fatalf("id %d: %d bytes", id, len(v))
		}
		seen[string(v)] = true
	}
}

// made is a cell of which every round had the same figures.
func made(setting, server, flush string, callers int, rate float64, kill *Kill) *Cell {
	same := func(v float64) outcome.Estimate {
		return outcome.Estimate{Median: v, Interval: &[2]float64{0.9 * v, 1.1 * v}}
	}
	return &Cell{Setting: setting, Server: server, Flush: flush, Callers: callers, WritesPerSecond: same(rate), P50: same(1e6 / rate), P99: same(4e6 / rate), Kill: kill, Verified: true, target: &target{}}
}

// TestFindings: the sentences name the quickest durable setting, what the others save, and what
// kills took. A failed cell is as one that is not there.
func TestFindings(t *testing.T) {
	cells := []*Cell{
		made(fileServer, "", flushEach, 1, 1500, nil),
		made("Redis no", "Redis", flushNever, 1, 20000, nil), made("Redis always", "Redis", flushEach, 1, 1000, nil),
		made("PostgreSQL on", "PostgreSQL", flushEach, 1, 1050, nil),
		made("Redis no", "Redis", flushNever, 64, 90000, &Kill{Kills: 3, Acknowledged: 1000, Lost: 1000, OldestMS: 900}), made("Redis always", "Redis", flushEach, 64, 30000, &Kill{Kills: 3, Acknowledged: 500}),
		made("PostgreSQL off", "PostgreSQL", flushSooner, 64, 30000, &Kill{Kills: 3, Acknowledged: 800, Lost: 12, OldestMS: 41.2}),
	}
	want := []string{
		"one write at a time: On disk before it is acknowledged: PostgreSQL on does the most, 1,050 (945 to 1,155) writes a second with a P50 of 952 (857 to 1,048) µs; no significant difference: Redis always.",
		"one write at a time: Redis no does 20.00 times (16.36 to 24.44) the writes of Redis always.",
		"64 writes at once: On disk before it is acknowledged: Redis always does the most, 30,000 (27,000 to 33,000) writes a second with a P50 of 33 (30 to 37) µs.",
		"64 writes at once: Redis no does 3.00 times (2.45 to 3.67) the writes of Redis always.",
		"kill -9: Redis no lost all 1,000 acknowledged writes.",
		"kill -9: PostgreSQL off lost 12 of 800 acknowledged writes, of the last 42 ms.",
		"kill -9: No acknowledged write was lost by Redis always.",
		"kill -9: " + notCovered,
		"kill -9: Redis is no database unless appendfsync is always: without a log a kill took 1,000 of 1,000 writes, and with everysec a power loss may take the last second.",
	}
	failed := made("MariaDB 1", "MariaDB", flushEach, 1, 1e9, &Kill{Kills: 1, Acknowledged: 1, Lost: 1})
	failed.Verified = false
	for _, all := range [][]*Cell{cells, append([]*Cell{failed}, cells...)} {
		var got []string
		for _, f := range findings(all) {
			for _, s := range f.Claims {
				got = append(got, f.About+": "+s)
			}
			for _, row := range f.Rows {
				if len(row) != len(f.Columns) {
					t.Errorf("%v below %v", row, f.Columns)
				}
			}
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if got := findings(nil); len(got) > 0 {
		t.Errorf("%+v of nothing", got)
	}
}

// TestInterrupted: a run that is interrupted has no report, and leaves no server behind.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, err := Run(ctx, rounds.Options{Duration: time.Second, Rounds: 2}); r != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %v", r, err)
	}
	if _, err := Run(t.Context(), rounds.Options{Duration: time.Second}); err == nil || !strings.Contains(err.Error(), "--repeat 0") {
		t.Errorf("%v", err)
	}
}
