// Package study has the lab's fixed comparisons: what each measures, as a command line of bale bench, and what its figures say, in
// sentences. [All] lists them, and [Find] finds one by its name.
package study

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/bale/internal/outcome"
)

// Study is a comparison that is the same for everybody.
type Study struct {
	Name  string
	About string   // what it answers, in a line
	Args  []string // of bale bench

	// Findings are sentences about a run of it, each with the figures that it rests on. Cells that failed are left out.
	Findings func(r *outcome.Run) []string
}

// ErrStudy says that there is no such study.
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
	return []Study{
		{"serializers", "JSON libraries, MessagePack, CBOR, protocol buffers, gob, through Redis: time and size", []string{
			"--builtin", "profiles,fields100", "--track", "typed,dynamic",
			"--codec", "json,json2,go-json,sonic,json-iterator,easyjson,gob,msgpack,shamaton,msgp,cbor,protobuf",
			"--compress", "none,zstd:3+dict", "--concurrency", "64",
		}, serializers},
		{"compressors", "snappy, s2, lz4, gzip and zstd, with and without a dictionary, by kind of data", []string{
			"--builtin", "profiles,text,protobuf,random", "--codec", "raw",
			"--compress", "none,snappy,s2,lz4,gzip,zstd:1,zstd:3,zstd:9,zstd:3/go,s2+dict,lz4+dict,zstd:1+dict,zstd:3+dict,zstd:9+dict", "--concurrency", "64",
		}, compressors},
		{"pooling", "a new context for each value, pooled ones and streams: time, allocations, share of the garbage collector", []string{
			"--value-size", "4KiB", "--codec", "raw", "--duration", "2s", // for the garbage collector to have its turns
			"--compress", "none,zstd:3,zstd:3/naive,zstd:3/stream,zstd:3/go,zstd:3/go/naive,zstd:3/go/stream,gzip,gzip/naive,lz4,lz4/naive,lz4/stream", "--concurrency", "8",
		}, pooling},
		{"clients", "go-redis, rueidis, redigo and radix, by themselves and through twemproxy: 32-byte keys, 1 KB values, half GET, half SET", []string{
			"--value-size", "1000", "--key-size", "32", "--mix", "50:50", "--codec", "raw", "--compress", "none",
			"--client", "goredis,goredis+auto,rueidis,rueidis-auto,redigo,radix,goredis@twemproxy,rueidis@twemproxy,redigo@twemproxy,radix@twemproxy", "--concurrency", "1,64,1000", "--duration", "640ms",
		}, clients},
		{"pipeline", "one by one, pipelines and MSET, by depth", []string{
			"--value-size", "1000", "--codec", "raw", "--compress", "none", "--batch", "single,pipeline:10,pipeline:100,pipeline:1000,mset:10,mset:100,mset:1000",
			"--client", "goredis,rueidis,redigo", "--concurrency", "8", "--duration", "1s",
		}, pipelines},
		{"pool-size", "how many connections go-redis' pool should have for 256 callers", []string{
			"--value-size", "1000", "--codec", "raw", "--compress", "none", "--mix", "50:50",
			"--client", "goredis:1,goredis:2,goredis:4,goredis:8,goredis:16,goredis:32,goredis:64,goredis:128,goredis:256,goredis:16+idle:16", "--concurrency", "256", "--duration", "2s",
		}, poolSizes},
		{"dictionary", "contexts used again, dictionaries, streams: ratio and P99", []string{
			"--builtin", "profiles,sessions", "--codec", "json",
			"--compress", "none,zstd:3,zstd:3/naive,zstd:3/stream,zstd:3+dict,zstd:3/naive+dict,zstd:3/stream+dict,zstd:3/go+dict,s2+dict,lz4+dict", "--concurrency", "8", "--duration", "1s",
		}, dictionaries},
		{"network", "from which bandwidth on compression has the higher throughput", []string{
			"--builtin", "sessions", "--codec", "json", "--compress", "none,s2,zstd:3,zstd:3+dict", "--concurrency", "64", "--duration", "1s",
			"--link", "10mbit", "--link", "100mbit", "--link", "1gbit", "--link", "10gbit",
		}, networks},
	}
}

// group is the cells of a run that differ in nothing but what is compared.
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

func throughput(c outcome.Cell) float64 { return c.ValuesPerSecond.Median }

// cpu is the time in us of what a codec and a compressor do.
func cpu(c outcome.Cell, stages ...string) float64 {
	sum := 0.0
	for _, s := range stages {
		sum += c.Stages[s].P50
	}
	return sum
}

func callers(n int) string {
	if n == 1 {
		return "1 caller"
	}
	return fmt.Sprintf("%d callers", n)
}
