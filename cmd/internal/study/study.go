// Package study has the lab's fixed comparisons: what each measures, as a command line of balebench
// run, and what its figures say, in sentences and small tables. [All] lists them, [Find] finds one
// by its name, and [Study.Findings] sums a run up. A study of something else than values through
// Redis has a [Study.Report] in place of that.
package study

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/durability"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/instruments"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/resilience"
	"github.com/balekv/bale/cmd/internal/rounds"
)

// Study is a comparison that is the same for everybody.
type Study struct {
	Name     string
	About    string   // what it compares, in a line
	Question string   // that it answers
	Args     []string // of balebench run

	find   func(r *outcome.Run) []outcome.Finding // of a study that is a command line of balebench run
	report func(context.Context, rounds.Options) (*outcome.Report, error)
}

// IsRun reports whether the study is a command line of balebench run. If not, Args has the defaults
// of its options, and Report runs it.
func (s Study) IsRun() bool { return s.report == nil }

// Report runs a study that is no command line of balebench run. An error beside the report is of
// cells without figures.
func (s Study) Report(ctx context.Context, o rounds.Options) (*outcome.Report, error) {
	r, err := s.report(ctx, o)
	if r != nil && o.Rounds < enoughRounds {
		r.Findings = slices.Insert(r.Findings, 0, tooFew())
	}
	return r, err
}

// enoughRounds are those that an interval takes.
const enoughRounds = 6

// Findings sum up a run of the study. They leave out failed cells, and call overlapping intervals
// no significant difference.
func (s Study) Findings(r *outcome.Run) []outcome.Finding {
	found := s.find(r)
	if len(found) > 0 && slices.ContainsFunc(r.Cells, func(c outcome.Cell) bool { return c.Verified && c.ValuesPerSecond.Interval == nil }) {
		found = slices.Insert(found, 0, tooFew())
	}
	return found
}

func tooFew() outcome.Finding {
	return outcome.Finding{Claims: []string{fmt.Sprintf("These are medians of too few rounds for intervals, which take %d: no difference between times or rates is significant.", enoughRounds)}}
}

// ErrStudy: there is no such study.
var ErrStudy = errors.New("no such study")

// Find returns a study by its name.
func Find(name string) (Study, error) {
	for _, s := range All() {
		if s.Name == name {
			return s, nil
		}
	}
	return Study{}, fmt.Errorf("%w: %q; there are %s", ErrStudy, name, strings.Join(Names(), ", "))
}

// Names are those of all studies.
func Names() []string {
	var names []string
	for _, s := range All() {
		names = append(names, s.Name)
	}
	return names
}

// All are the studies there are.
func All() []Study {
	return append(runs(), []Study{
		{Name: "durability", About: "a write in Redis, PostgreSQL and MariaDB, by when it is on disk: time, throughput, what a kill loses", Question: "What does a durable write cost, and what does a kill lose without it?",
			Args: []string{"--duration", "2s"}, report: durability.Run},
		{Name: "instruments", About: "what observing costs: locks, atomics, shards, bale's Counters and Ring, a channel, by goroutines and reads", Question: "What does it cost to count operations from many goroutines?",
			Args: []string{"--duration", "280ms"}, report: instruments.Run},
		{Name: "resilience", About: "a service and Redis that are slow, failing, half gone or dead, and what each policy of resilient does about it", Question: "What does each policy save when a service or Redis falls ill?",
			Args: []string{"--duration", "15s", "--repeat", "1"}, report: resilience.Run},
	}...)
}

// runs are the studies that are command lines of balebench run.
func runs() []Study {
	all := []Study{
		{"serializers", "JSON libraries, MessagePack, CBOR, protocol buffers, gob, through Redis: time and size", "Which serializer takes the least time, and which the fewest bytes?", []string{
			"--builtin", "profiles,sessions,fields100", "--track", "typed,dynamic",
			"--codec", "json,json2,go-json,sonic,easyjson,gob,msgpack,shamaton,msgp,binary,cbor,protobuf",
			"--compress", "none,zstd:3+dict", "--concurrency", "64",
		}, serializers, nil},
		{"compressors", "snappy, s2, lz4, gzip and zstd, with and without a dictionary, by kind of data", "Which compressor makes which kind of data smallest, and what does that cost?", []string{
			"--builtin", "profiles,text,protobuf,random", "--codec", "raw",
			"--compress", "none,snappy,s2,lz4,gzip,zstd:1,zstd:3,zstd:9,zstd:3/cgo,s2+dict,lz4+dict,zstd:1+dict,zstd:3+dict,zstd:9+dict,zstd:3/cgo+dict", "--concurrency", "64",
		}, compressors, nil},
		{"pooling", "a new context for each value, pooled ones and streams: time, allocations, share of the garbage collector", "What do pooled contexts save over a new one for each value, and over streams?", []string{
			"--value-size", "4KiB", "--codec", "raw", "--duration", "2s", // for the garbage collector to have its turns
			"--compress", "none,zstd:3,zstd:3/naive,zstd:3/stream,zstd:3/cgo,zstd:3/cgo/naive,zstd:3/cgo/stream,gzip,gzip/naive,lz4,lz4/naive,lz4/stream", "--concurrency", "8",
		}, pooling, nil},
		{"clients", "go-redis, rueidis, redigo and radix, by themselves and through twemproxy: 32-byte keys, 1 KB values, half GET, half SET", "Which Redis client does the most, and how long does it take, by the number of callers?", []string{
			"--value-size", "1000", "--key-size", "32", "--mix", "50:50", "--codec", "raw", "--compress", "none",
			"--client", "goredis,goredis+auto,rueidis,rueidis-auto,redigo,radix,goredis@twemproxy,rueidis@twemproxy,redigo@twemproxy,radix@twemproxy", "--concurrency", "1,64,256,1000", "--duration", "640ms",
		}, clients, nil},
		{"pipeline", "one by one, pipelines and MSET, by depth", "How deep should a pipeline be, and is MSET faster?", []string{
			"--value-size", "1000", "--codec", "raw", "--compress", "none", "--batch", "single,pipeline:10,pipeline:100,pipeline:1000,mset:10,mset:100,mset:1000",
			"--client", "goredis,rueidis,redigo", "--concurrency", "8", "--duration", "1s",
		}, pipelines, nil},
		{"pool-size", "how many connections go-redis' pool should have for 256 callers", "How many connections should a pool have for 256 callers?", []string{
			"--value-size", "1000", "--codec", "raw", "--compress", "none", "--mix", "50:50",
			"--client", "goredis:1,goredis:2,goredis:4,goredis:8,goredis:16,goredis:16+idle:16,goredis:32,goredis:64,goredis:128,goredis:256", "--concurrency", "256", "--duration", "2s",
		}, poolSizes, nil},
		{"dictionary", "contexts used again, dictionaries, streams: ratio and P99", "What does a dictionary do for ratio and P99, and what does it cost to use it well?", []string{
			"--builtin", "profiles,sessions", "--codec", "json",
			"--compress", "none,zstd:3,zstd:3/naive,zstd:3/stream,zstd:3+dict,zstd:3/naive+dict,zstd:3/stream+dict,zstd:3/cgo+dict,s2+dict,lz4+dict", "--concurrency", "8", "--duration", "1s",
		}, dictionaries, nil},
		{"network", "from which bandwidth on compression has the higher throughput", "Up to which bandwidth does compression have the higher throughput?", []string{
			"--builtin", "sessions", "--codec", "json", "--compress", "none,s2,zstd:3,zstd:3+dict", "--concurrency", "64", "--duration", "1s",
			"--link", "10mbit", "--link", "50mbit", "--link", "100mbit", "--link", "200mbit", "--link", "500mbit", "--link", "1gbit", "--link", "10gbit",
		}, networks, nil},
	}
	for _, s := range all {
		if i := slices.Index(s.Args, "--compress"); i >= 0 {
			s.Args[i+1] = strings.Join(engine.Built(strings.Split(s.Args[i+1], ",")...), ",")
		}
	}
	return all
}

// group holds the cells of a run that differ only in the compared setting.
type group struct {
	name  string
	cells []outcome.Cell
}

// groups splits the verified cells of a run by a name, in the order of the first of each.
func groups(r *outcome.Run, name func(outcome.Cell) string) []group {
	var all []group
	for _, c := range r.Cells {
		if !c.Verified {
			continue
		}
		n := name(c)
		i := slices.IndexFunc(all, func(g group) bool { return g.name == n })
		if i < 0 {
			i = len(all)
			all = append(all, group{name: n})
		}
		all[i].cells = append(all[i].cells, c)
	}
	return all
}

// find is the first cell that is as wanted.
func (g group) find(is func(outcome.Cell) bool) (outcome.Cell, bool) {
	if i := slices.IndexFunc(g.cells, is); i >= 0 {
		return g.cells[i], true
	}
	return outcome.Cell{}, false
}

func compressed(setting string) func(outcome.Cell) bool {
	return func(c outcome.Cell) bool { return c.Compress == setting }
}

// only are those of its cells that are as wanted.
func (g group) only(is func(outcome.Cell) bool) group {
	g.cells = slices.DeleteFunc(slices.Clone(g.cells), func(c outcome.Cell) bool { return !is(c) })
	return g
}

// best is the cell with the highest score.
func (g group) best(score func(outcome.Cell) float64) outcome.Cell {
	return slices.MaxFunc(g.cells, func(a, b outcome.Cell) int {
		switch x, y := score(a), score(b); {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return 0
	})
}

// like reports whether c is the best by an estimate, or not significantly different from it.
func like(c, best outcome.Cell, of func(outcome.Cell) outcome.Estimate) bool {
	a, b := of(c), of(best)
	return c.Identity == best.Identity || a.Interval != nil && b.Interval != nil && !a.Apart(b)
}

// nearest reports which cells of a column to mark: the best by an estimate, and those with no
// significant difference from it. If that would mark a worse median and skip a better one, the
// intervals are too wide to order the column. Then it marks no cell, and ordered is false.
func (g group) nearest(best outcome.Cell, of func(outcome.Cell) outcome.Estimate) (is func(outcome.Cell) bool, ordered bool) {
	farthest, next := 0.0, math.Inf(1) // from the best, of those that would be marked and of the others
	for _, c := range g.cells {
		switch off := math.Abs(of(c).Median - of(best).Median); {
		case like(c, best, of):
			farthest = max(farthest, off)
		default:
			next = min(next, off)
		}
	}
	if farthest > next {
		return func(outcome.Cell) bool { return false }, false
	}
	return func(c outcome.Cell) bool { return like(c, best, of) }, true
}

// unmarked says for a note which columns, each of a group, have no marks.
func unmarked(columns []group, best func(group) outcome.Cell, of func(outcome.Cell) outcome.Estimate) []string {
	var names []string
	for _, g := range columns {
		if _, ordered := g.nearest(best(g), of); !ordered {
			names = append(names, g.name)
		}
	}
	return noMarks(names...)
}

// noMarks is the item of a legend that explains columns without marks; none without columns.
func noMarks(columns ...string) []string {
	if len(columns) == 0 {
		return nil
	}
	return []string{"No best is marked in " + strings.Join(columns, ", ") + ": the intervals are too wide to order the cells"}
}

// alike names the other cells with no significant difference from the best; "" if there are none.
func (g group) alike(best outcome.Cell, of func(outcome.Cell) outcome.Estimate, name func(outcome.Cell) string) string {
	var names []string
	for _, c := range g.cells {
		if c.Identity != best.Identity && like(c, best, of) {
			names = append(names, name(c))
		}
	}
	switch {
	case len(names) == 0:
		return ""
	case len(names) == len(g.cells)-1 && len(names) > 2:
		return "; no significant difference from the others"
	}
	return "; no significant difference: " + strings.Join(names, ", ")
}

func throughput(c outcome.Cell) float64       { return c.ValuesPerSecond.Median }
func rate(c outcome.Cell) outcome.Estimate    { return c.ValuesPerSecond }
func codec(c outcome.Cell) string             { return c.Codec }
func compressor(c outcome.Cell) string        { return c.Compress }
func client(c outcome.Cell) string            { return c.Client }
func packing(c outcome.Cell) outcome.Estimate { return work(c, "compress", "decompress") }

// work is the time in us of some stages together.
func work(c outcome.Cell, stages ...string) outcome.Estimate {
	sum := 0.0
	for _, s := range stages {
		sum += c.Stages[s].P50
	}
	var rounds []float64
	for _, r := range c.Rounds {
		if len(r.StagesP50) != len(outcome.Stages) {
			return outcome.Estimate{Median: sum}
		}
		inRound := 0.0
		for _, s := range stages {
			inRound += r.StagesP50[slices.Index(outcome.Stages, s)]
		}
		rounds = append(rounds, inRound)
	}
	return outcome.NewEstimate(rounds).Around(sum)
}

// place is one of the places where something is compared with something else.
type place struct {
	name     string
	e, other outcome.Estimate
}

// verdicts lists the places where the first figure is more than the second, where it is less, and
// where there is no significant difference. The word in stands before the places: "over".
func verdicts(places []place, more, less, in string) string {
	var higher, lower, same []string
	for _, p := range places {
		q := p.e.Over(p.other)
		switch {
		case q.Median == 0:
		case !p.e.Apart(p.other):
			same = append(same, p.name)
		case q.Median > 1:
			higher = append(higher, p.e.Times(p.other)+" "+in+" "+p.name)
		default:
			lower = append(lower, p.e.Times(p.other)+" "+in+" "+p.name)
		}
	}
	var all []string
	for _, each := range []struct {
		says  string
		where []string
	}{{more + ":", higher}, {less + ":", lower}, {"no significant difference " + in, same}} {
		if len(each.where) > 0 {
			all = append(all, each.says+" "+strings.Join(each.where, ", "))
		}
	}
	return strings.Join(all, "; ")
}
