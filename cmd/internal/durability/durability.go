// Package durability measures what a durable write costs in Redis, PostgreSQL and MariaDB, and what
// each setting loses when the server is killed.
//
// [Run] is the entry point. Each setting has a private server of its own. Every value is read back,
// and after a kill each acknowledged write is looked for.
package durability

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v4/disk"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/latency"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/rounds"
	"github.com/balekv/bale/cmd/internal/sqlproc"
)

const (
	maxCallers = 64
	valueSize  = 256             // bytes
	warmUp     = 0.25            // of the time of a round, before it
	maxKills   = 3               // of each server
	killAfter  = time.Second     // more or less; log flushes of a second have passed or not
	memoryDisk = "tmpfs"         // a file system without a disk
	fileServer = "a file, fsync" // the yardstick, which is not killed
)

// callers are the loads: one write at a time, and many at once.
var callers = []int{1, maxCallers}

// Flushes to disk, as the documentation of the servers has them.
const (
	flushNever  = "never"
	flushEach   = "each write"
	flushSecond = "each second"
	flushSooner = "each 0.2 s" // PostgreSQL's wal_writer_delay
)

// setting is a server with the setting that decides when a write is on disk.
type setting struct {
	name, server, flush string
	start               func(ctx context.Context) (store, error)
}

// settings are those that are compared.
var settings = []setting{
	{fileServer, "", flushEach, func(ctx context.Context) (store, error) { return startFile(ctx, nil) }},
	onRedis("no", flushNever, "--appendonly", "no"),
	onRedis("everysec", flushSecond, "--appendonly", "yes", "--appendfsync", "everysec"),
	onRedis("always", flushEach, "--appendonly", "yes", "--appendfsync", "always"),
	onSQL(sqlproc.PostgreSQL, "off", flushSooner, "-c", "synchronous_commit=off"),
	onSQL(sqlproc.PostgreSQL, "on", flushEach, "-c", "synchronous_commit=on"),
	onSQL(sqlproc.MariaDB, "0", flushSecond, "--innodb-flush-log-at-trx-commit=0"),
	onSQL(sqlproc.MariaDB, "2", flushSecond, "--innodb-flush-log-at-trx-commit=2"),
	onSQL(sqlproc.MariaDB, "1", flushEach, "--innodb-flush-log-at-trx-commit=1"),
}

func onRedis(name, flush string, args ...string) setting {
	return setting{"Redis " + name, "Redis", flush, func(ctx context.Context) (store, error) { return startRedis(ctx, args) }}
}

func onSQL(kind *sqlproc.Kind, name, flush string, args ...string) setting {
	return setting{kind.Name + " " + name, kind.Name, flush, func(ctx context.Context) (store, error) { return startSQL(ctx, kind, args) }}
}

// Cell is a setting under a load.
type Cell struct {
	Setting         string           `json:"setting"` // "PostgreSQL off"
	Server          string           `json:"server"`  // "PostgreSQL"; empty for a file
	Flush           string           `json:"flush"`   // to disk, by the server's documentation
	Callers         int              `json:"callers"` // who each write one value after the other
	Writes          int64            `json:"writes"`  // measured
	WritesPerSecond outcome.Estimate `json:"writes_per_second"`
	P50             outcome.Estimate `json:"p50_us"`
	P99             outcome.Estimate `json:"p99_us"`
	Kill            *Kill            `json:"kill,omitempty"` // of the most callers
	Verified        bool             `json:"verified"`       // every value read back was the one written
	Error           string           `json:"error,omitempty"`

	target *target
	times  latency.Histogram
	rates  []float64
	p50s   []float64
	p99s   []float64
}

// target is a store that several cells write to, each value under a new id.
type target struct {
	store       // nil if it did not start
	err   error // why it cannot be measured
	next  int64 // id
}

// Kill is what a server lost when all its processes got SIGKILL while it was written to.
type Kill struct {
	Kills        int     `json:"kills"`
	Acknowledged int64   `json:"acknowledged"`   // writes, of all kills
	Lost         int64   `json:"lost"`           // of those, after the restart
	OldestMS     float64 `json:"oldest_lost_ms"` // before the kill, the most of all kills; 0 for none
}

// errLost: an acknowledged write is not there. errDamaged: one is there that nobody wrote.
var (
	errLost    = errors.New("MISMATCH: an acknowledged write was not read back")
	errDamaged = errors.New("MISMATCH: a value read back differs from the one written")
)

// Run measures all settings whose servers run here. The others are in the report with the reason. A
// cell that reads back another value than was written is an error, beside the report.
func Run(ctx context.Context, o rounds.Options) (report *outcome.Report, err error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	targets := startAll(ctx)
	defer func() {
		for _, t := range targets {
			if t.store != nil {
				t.disconnect()
				err = errors.Join(err, t.close())
			}
		}
	}()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	report = &outcome.Report{Method: method}
	var cells []*Cell
	var names []string
	for i, s := range settings {
		if t := targets[i]; t.err != nil {
			left := outcome.Skipped{Identity: outcome.Identity{Server: s.server}, Reason: t.err.Error()}
			if !slices.Contains(report.Skipped, left) {
				report.Skipped = append(report.Skipped, left)
			}
			continue
		}
		for _, n := range callers {
			cells = append(cells, &Cell{Setting: s.name, Server: s.server, Flush: s.flush, Callers: n, Verified: true, target: targets[i]})
			names = append(names, fmt.Sprintf("%s, %d at once", s.name, n))
		}
	}
	measuring := o
	measuring.Progress = cli.Step(o.Progress, 1, 2)
	report.Environment, err = rounds.Measure(ctx, measuring, names, func(ctx context.Context, i int, d time.Duration) error {
		if c := cells[i]; c.Verified {
			c.fail(c.measure(ctx, d))
		}
		return ctx.Err()
	})
	if err == nil {
		err = killAll(ctx, o, cells)
	}
	if err != nil {
		return nil, err
	}
	for i, c := range cells {
		c.sumUp()
		if !c.Verified {
			report.Failures = append(report.Failures, fmt.Sprintf("FAILED %s: %s", names[i], c.Error))
		}
		if v := c.target.version(); v != "" && !slices.Contains(report.Environment.Servers, v) {
			report.Environment.Servers = append(report.Environment.Servers, v)
		}
	}
	if usage, err := disk.UsageWithContext(ctx, os.TempDir()); err == nil && usage.Fstype == memoryDisk {
		report.Environment.Notes = append(report.Environment.Notes, "NO DISK: the temporary folder is in memory (tmpfs), where fsync costs nothing: set TMPDIR to a folder on a disk")
	}
	report.Cells, report.Findings, report.Charts = cells, findings(cells), charts(cells)
	return report, report.Err()
}

// killAll kills each server some times.
func killAll(ctx context.Context, o rounds.Options, cells []*Cell) error {
	kills, rng := min(maxKills, o.Rounds), rand.New(rand.NewPCG(o.Seed, 1))
	var killed []*Cell
	for _, c := range cells {
		if c.Callers == maxCallers && c.Server != "" {
			killed = append(killed, c)
		}
	}
	progress := cli.Step(o.Progress, 2, 2)
	for i, c := range killed {
		c.Kill = &Kill{}
		for n := 0; n < kills && c.Verified; n++ {
			if progress != nil {
				progress(i*kills+n, len(killed)*kills, "killing "+c.Setting)
			}
			c.fail(c.kill(ctx, time.Duration((0.5+rng.Float64())*float64(min(killAfter, o.Duration)))))
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	return nil
}

// startAll starts all servers at once and connects to them.
func startAll(ctx context.Context) []*target {
	all := make([]*target, len(settings))
	var wg sync.WaitGroup
	for i, s := range settings {
		all[i] = &target{}
		wg.Go(func() {
			if all[i].store, all[i].err = s.start(ctx); all[i].err == nil {
				all[i].err = all[i].connect(ctx)
			}
		})
	}
	wg.Wait()
	return all
}

// fail keeps the error of a cell whose values do not match, or whose server failed.
func (c *Cell) fail(err error) {
	if err != nil {
		c.Verified, c.Error = false, err.Error()
	}
}

// value is what is written under an id.
func value(buffer []byte, id int64) []byte {
	buffer = buffer[:0]
	for x := uint64(id)*0x9e3779b97f4a7c15 + 1; len(buffer) < valueSize; x ^= x << 17 {
		x ^= x << 13
		x ^= x >> 7
		buffer = binary.BigEndian.AppendUint64(buffer, x)
	}
	return buffer
}

// ack is when a write was begun and acknowledged, since the start of the writing.
type ack struct{ from, to time.Duration }

// write has all callers write from a start until the time has come or a write fails. It returns
// what each was acknowledged, in the order of its ids from the first, and the error that came
// first.
func (c *Cell) write(ctx context.Context, start time.Time, until time.Duration) (acks [][]ack, failedAt time.Time, err error) {
	acks = make([][]ack, c.Callers)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for caller := range c.Callers {
		wg.Go(func() {
			var buffer []byte
			for {
				from := time.Since(start)
				if from >= until {
					return
				}
				id := c.id(caller, len(acks[caller]))
				buffer = value(buffer, id)
				if failure := c.target.write(ctx, caller, id, buffer); failure != nil {
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						failedAt, err = time.Now(), failure
					}
					return
				}
				acks[caller] = append(acks[caller], ack{from, time.Since(start)})
			}
		})
	}
	wg.Wait()
	return acks, failedAt, err
}

// id is that of a caller's write: about as they come, like those that a database makes.
func (c *Cell) id(caller, n int) int64 { return c.target.next + int64(n*c.Callers+caller) }

// end is the first id that no caller has used.
func (c *Cell) end(acks [][]ack) int64 {
	most := 0
	for _, each := range acks {
		most = max(most, len(each))
	}
	return c.id(0, most+1)
}

// check reads everything and returns which writes are there, of each caller. A write whose
// acknowledgement did not come, the one behind the last, may be there or not.
func (c *Cell) check(ctx context.Context, acks [][]ack) (there [][]bool, err error) {
	there = make([][]bool, c.Callers)
	for caller := range there {
		there[caller] = make([]bool, len(acks[caller])+1)
	}
	var want []byte
	err = c.target.read(ctx, c.target.next, c.end(acks), func(id int64, got []byte) error {
		caller, n := int(id-c.target.next)%c.Callers, int(id-c.target.next)/c.Callers
		if want = value(want, id); n >= len(there[caller]) || there[caller][n] || !bytes.Equal(got, want) {
			return fmt.Errorf("%w: write %d", errDamaged, id)
		}
		there[caller][n] = true
		return nil
	})
	return there, err
}

// finish removes what was written, and takes new ids for what comes.
func (c *Cell) finish(ctx context.Context, acks [][]ack) error {
	c.target.next = c.end(acks)
	return c.target.clear(ctx)
}

// measure is a round.
func (c *Cell) measure(ctx context.Context, d time.Duration) error {
	from := time.Duration(warmUp * float64(d))
	until := from + d
	acks, _, err := c.write(ctx, time.Now(), until)
	if err != nil {
		return err
	}
	recorder, err := latency.New(latency.Options{Stages: 1, Shards: 1})
	if err != nil {
		return err
	}
	n := 0
	for _, each := range acks {
		for _, a := range each {
			if a.from >= from {
				recorder.Shard(0).Record(0, a.to-a.from)
			}
			if a.to >= from && a.to < until {
				n++
			}
		}
	}
	there, err := c.check(ctx, acks)
	if err != nil {
		return err
	}
	for caller, each := range acks {
		for i := range each {
			if !there[caller][i] {
				return fmt.Errorf("%w: write %d of caller %d", errLost, i, caller)
			}
		}
	}
	times := recorder.Snapshot()[0]
	c.times.Merge(times)
	c.Writes += int64(n)
	c.rates = append(c.rates, float64(n)/d.Seconds())
	if times.Count() > 0 {
		c.p50s, c.p99s = append(c.p50s, microseconds(times, 0.5)), append(c.p99s, microseconds(times, 0.99))
	}
	return c.finish(ctx, acks)
}

func microseconds(h *latency.Histogram, q float64) float64 { return float64(h.Quantile(q)) / 1e3 }

// kill ends the server after a time while all callers write, starts it again and counts what is
// gone.
func (c *Cell) kill(ctx context.Context, after time.Duration) error {
	var killed time.Time
	done, start := make(chan struct{}), time.Now()
	go func() {
		defer close(done)
		select {
		case <-time.After(after):
		case <-ctx.Done():
		}
		killed = c.target.kill()
	}()
	acks, failedAt, failure := c.write(ctx, start, after+writeTimeout)
	<-done
	if failedAt.Before(killed) {
		return fmt.Errorf("writing failed before the kill: %w", failure)
	}
	c.target.disconnect()
	if err := c.target.restart(ctx); err != nil {
		return fmt.Errorf("restart after a kill: %w", err)
	}
	if err := c.target.connect(ctx); err != nil {
		return err
	}
	there, err := c.check(ctx, acks)
	if err != nil {
		return err
	}
	k := c.Kill
	k.Kills++
	for caller, each := range acks {
		k.Acknowledged += int64(len(each))
		for i, a := range each {
			if !there[caller][i] {
				k.Lost++
				k.OldestMS = max(k.OldestMS, (killed.Sub(start)-a.to).Seconds()*1e3)
			}
		}
	}
	return c.finish(ctx, acks)
}

// sumUp makes the estimates of the rounds.
func (c *Cell) sumUp() {
	c.WritesPerSecond = outcome.NewEstimate(c.rates)
	c.P50 = outcome.NewEstimate(c.p50s).Around(microseconds(&c.times, 0.5))
	c.P99 = outcome.NewEstimate(c.p99s).Around(microseconds(&c.times, 0.99))
}
