// Package outcome is what the lab found, and how it is shown: [Run.WriteText] makes tables,
// [Run.WritePage] a page with pictures. Its JSON is what balebench run --json writes, and [Read]
// reads.
//
// A [Run] has a [Cell] for each combination of data, serializer, compressor, client and load.
package outcome

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/balekv/bale/cmd/internal/flame"
	"github.com/balekv/bale/cmd/internal/latency"
	"github.com/balekv/bale/frame"
)

// Run is what a run of the lab found.
type Run struct {
	Environment Environment `json:"environment"`
	Cells       []Cell      `json:"cells"`

	// Findings are a study's summary. An interrupted run has none.
	Findings []Finding `json:"findings,omitempty"`

	// Skipped are the combinations that there are no cells of, and why.
	Skipped []Skipped `json:"skipped,omitempty"`

	// Dictionaries are those of the settings with "+dict", one for each set of values, codec and
	// setting.
	Dictionaries []Dictionary `json:"dictionaries,omitempty"`

	// Sweeps are the knees of cells that were measured at rising rates.
	Sweeps []Sweep `json:"sweeps,omitempty"`

	// Timeline is this process and the servers over the time of the run, at most some hundred
	// moments.
	Timeline []Moment `json:"timeline,omitempty"`
}

// Dictionary is one that was trained on the half of a set that is not measured.
type Dictionary struct {
	Dataset  string             `json:"dataset"`
	Track    string             `json:"track"`
	Codec    string             `json:"codec"`
	Compress string             `json:"compress"`
	ID       frame.DictionaryID `json:"id"`
	Bytes    int                `json:"bytes"` // counted in the bytes a key of its cells
	Builder  string             `json:"builder,omitempty"`
	Samples  int                `json:"samples"`                 // trained on
	Tried    int                `json:"tried"`                   // candidates
	Seconds  float64            `json:"seconds"`                 // to train
	Reason   string             `json:"reason,omitempty"`        // why there is none; then there are no cells
	Payload  float64            `json:"payload_ratio,omitempty"` // serialized bytes over compressed ones, without headers, of the measured half
}

// Environment says where and how the figures were taken.
type Environment struct {
	Time         time.Time `json:"time"`
	Command      []string  `json:"command"`
	Study        string    `json:"study,omitempty"`         // that the run belongs to
	Question     string    `json:"question,omitempty"`      // that the study answers
	StudyCommand []string  `json:"study_command,omitempty"` // that made the run; Command is the bench that it stands for
	Bale         string    `json:"bale"`
	Go           string    `json:"go"`
	OS           string    `json:"os"`
	CPU          string    `json:"cpu"`
	Cores        int       `json:"cores"`
	MemoryBytes  uint64    `json:"memory_bytes"`
	RedisVersion string    `json:"redis_version"`       // "7.0.15" of Redis; of others with their name: "Valkey 9.1.2"
	Servers      []string  `json:"servers,omitempty"`   // of a [Report]: "PostgreSQL 15.18"
	Libraries    []Library `json:"libraries,omitempty"` // what was asked for: serializers, then compressors, then clients
	Embedded     bool      `json:"embedded"`
	Private      bool      `json:"private"`
	Load         string    `json:"load"`          // what an operation is and how operations come: "a value written and read back; closed loop"
	Mix          string    `json:"mix,omitempty"` // GETS:SETS where operations are single ones; then an operation has but a part of the stages
	Seed         uint64    `json:"seed"`
	OthersCPU    *float64  `json:"others_cpu"` // cores that other programs used meanwhile, or another machine on the same hardware took; null where unknown
	DurationS    float64   `json:"duration_s"` // measured for each cell, in all of Rounds
	Rounds       int       `json:"rounds"`     // that every cell was measured in; one more for some where Interrupted
	Seconds      float64   `json:"seconds"`    // that the run took
	Interrupted  bool      `json:"interrupted,omitempty"`
	Planned      int       `json:"planned_rounds"`           // Rounds of a run to its end
	CellsLeftOut int       `json:"cells_left_out,omitempty"` // where Interrupted: those that were not measured in a whole round
	Notes        []string  `json:"notes,omitempty"`
}

// Library is what does the work of a serializer, a compressor or a client.
type Library struct {
	Name    string `json:"name"`             // as the command line has it: "json", "zstd", "goredis"
	Module  string `json:"module,omitempty"` // or package of the standard library; empty where there is none, as for raw
	Version string `json:"version,omitempty"`
	Note    string `json:"note,omitempty"` // what to know before it is chosen: "archived by its authors"
}

// Identity is what tells a cell from all others of its run.
type Identity struct {
	Dataset     string  `json:"dataset"`
	Track       string  `json:"track"` // dataset.Typed or dataset.Dynamic; cells of the two are never ranked together
	Codec       string  `json:"codec"`
	Compress    string  `json:"compress"`
	Client      string  `json:"client"`
	Server      string  `json:"server,omitempty"` // its settings that differ from the default: "appendonly=always", "link=10mbit"
	Batch       string  `json:"batch,omitempty"`  // how values travel: "" for one by one, "pipeline:10", "mset:10"
	Concurrency int     `json:"concurrency"`
	Rate        float64 `json:"rate,omitempty"` // operations a second that are started whatever the answers do; 0 for a closed loop
}

// Skipped is a combination, as far as it was got, that is not measured.
type Skipped struct {
	Identity
	Reason string `json:"reason"`
}

// Estimate is the median of the rounds.
type Estimate struct {
	Median float64 `json:"median"`

	// Interval holds the median of all possible rounds, with a confidence of at least 95%. Its ends
	// are two order statistics of the rounds, by the binomial distribution. It is nil with fewer
	// than 6 rounds.
	Interval *[2]float64 `json:"interval_95,omitempty"`

	// Rounds are the figures behind the estimate, in order, while the run is in memory. In Run's
	// JSON they appear once, in [Round].
	Rounds []float64 `json:"-"`
}

// Cell is one combination and its figures.
type Cell struct {
	Identity

	Values      int     `json:"values"`
	RawBytes    int64   `json:"raw_bytes"`    // of all values as they were given
	PlainBytes  int64   `json:"plain_bytes"`  // serialized
	StoredBytes int64   `json:"stored_bytes"` // packed; without the dictionary
	Ratio       float64 `json:"ratio"`        // RawBytes / StoredBytes

	// Unstable says that the codec encodes the same value in different ways, as some do with maps.
	Unstable bool `json:"unstable,omitempty"`

	// RedisBytesPerKey is the difference of used_memory over Keys keys, divided by them: value,
	// key, table, and the dictionary, if there is one. Null for the embedded server, which has no
	// such figure.
	RedisBytesPerKey *float64 `json:"redis_bytes_per_key"`
	// MemoryUsagePerKey is the mean of MEMORY USAGE over a sample of the keys.
	MemoryUsagePerKey *float64 `json:"memory_usage_per_key"`
	Keys              int      `json:"keys"`

	// Operations counts all measured operations. An operation writes a value and reads it back. In
	// a mix it is a single SET or GET; with batches it is a whole batch.
	Operations      int64    `json:"operations"`
	OpsPerSecond    Estimate `json:"ops_per_second"`
	ValuesPerSecond Estimate `json:"values_per_second"` // the same, times the values of a batch
	AllocsPerOp     Estimate `json:"allocs_per_op"`     // in this process, the client's included
	BytesPerOp      Estimate `json:"bytes_per_op"`
	P50             Estimate `json:"p50_us"` // of the whole operation, as the rounds found it; in an open loop from when it was to start
	P99             Estimate `json:"p99_us"`

	Hits   int64 `json:"hits,omitempty"` // of the GETs of a mix
	Misses int64 `json:"misses,omitempty"`

	// Stages are the distributions of all rounds together. "total" is the whole operation from its
	// scheduled start.
	Stages map[string]Stage `json:"stages"`
	// Latency is the distribution of the whole operation for a picture of it, rising.
	Latency []Point `json:"latency"`
	// Service is the distribution from the actual start of an operation. A load generator that does
	// not know the schedule reports this one. Only an open loop has it; there Latency counts from
	// the scheduled start.
	Service []Point `json:"service,omitempty"`
	// Late is how long after its time an operation was begun although a caller was free: what the
	// generator itself added, in microseconds. Only of an open loop.
	Late *Stage `json:"late,omitempty"`
	// Unstarted are operations of an open loop that no caller came to before the round was given
	// up: the rate is far too high.
	Unstarted int64 `json:"unstarted,omitempty"`
	// AtLeast: P50, P99, Latency and the stage "total" are lower bounds. The operations
	// with the longest waits were given up (Unstarted), or took longer than latency.Max.
	AtLeast bool `json:"latency_at_least,omitempty"`

	Resources Resources `json:"resources"` // mean of the rounds, or peak where it says so
	// Limit is what kept the cell from being faster, of Limits, as far as the resources tell.
	Limit string `json:"limit,omitempty"`
	Why   string `json:"limit_why,omitempty"` // in words

	Rounds []Round `json:"rounds"`

	// Profiles are by kind: cpu, heap, mutex, block.
	Profiles map[string]Profile `json:"profiles,omitempty"`

	Verified bool   `json:"verified"`           // every value read back was the one written
	Mismatch bool   `json:"mismatch,omitempty"` // one was another, or damaged; else a cell that is not Verified could not be measured
	Error    string `json:"error,omitempty"`
}

// Schema is the one of the result's JSON, in docs/schemas.
func (r *Run) Schema() string { return "bench-v1" }

// Err is an error that counts the cells without figures, or nil.
func (r *Run) Err() error {
	wrong, unmeasured := 0, 0
	for _, c := range r.Cells {
		switch {
		case c.Mismatch:
			wrong++
		case !c.Verified:
			unmeasured++
		}
	}
	var errs []string
	if wrong > 0 {
		errs = append(errs, fmt.Sprintf("%d of %d cells FAILED: what came back was not what went in", wrong, len(r.Cells)))
	}
	if unmeasured > 0 {
		errs = append(errs, fmt.Sprintf("%d of %d cells in ERROR: they could not be measured", unmeasured, len(r.Cells)))
	}
	if len(r.Cells) == 0 && !r.Environment.Interrupted {
		errs = append(errs, "nothing was measured: there is no cell for what was asked for")
	}
	if errs == nil {
		return nil
	}
	return errors.New(strings.Join(errs, "; "))
}

// muchElse is the share of all cores above which other programs are reported.
const muchElse = 0.10

// MuchElse reports whether other programs use enough of a machine's cores to be reported.
func MuchElse(others float64, cores int) bool { return others > muchElse*float64(cores) }

// busy is a warning if other programs used much of the machine.
func (e *Environment) busy() []string {
	if e.OthersCPU == nil || !MuchElse(*e.OthersCPU, e.Cores) {
		return nil
	}
	return []string{fmt.Sprintf("BUSY MACHINE: other programs used %.1f of %d cores meanwhile; times are theirs, too, while bytes and ratios are exact", min(*e.OthersCPU, float64(e.Cores)), e.Cores)}
}

// grown names what makes a set of values larger than it was given, with the reason.
func (r *Run) grown() (all []string) {
	for _, c := range r.Cells {
		if c.Ratio <= 0 || c.Ratio >= 0.995 { // which prints as 1.00
			continue
		}
		why := "values that start as bale's frames are escaped"
		if c.PlainBytes > c.RawBytes {
			why = fmt.Sprintf("%s makes %.2f times their bytes", c.Codec, float64(c.PlainBytes)/float64(c.RawBytes))
		}
		text := fmt.Sprintf("%s (%s) with codec %s and compressor %s is larger than the given values, ratio %.2f: %s", c.Dataset, c.Track, c.Codec, c.Compress, c.Ratio, why)
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}

// Warnings are sentences on what distorts the figures, or is missing from them.
func (r *Run) Warnings() (all []string) {
	e := &r.Environment
	if len(r.Cells) > 0 {
		all = append(all, e.busy()...)
	}
	if e.Interrupted {
		all = append(all, fmt.Sprintf("INTERRUPTED: these are figures of %d of %d rounds, for %d of %d cells", e.Rounds, e.Planned, len(r.Cells), len(r.Cells)+e.CellsLeftOut))
	}
	all = append(all, r.grown()...)
	unstable := map[string][]string{} // codecs, by their set
	for _, c := range r.Cells {
		if set := c.Dataset + " (" + c.Track + ")"; c.Unstable && !slices.Contains(unstable[set], c.Codec) {
			unstable[set] = append(unstable[set], c.Codec)
		}
	}
	for _, set := range slices.Sorted(maps.Keys(unstable)) {
		all = append(all, fmt.Sprintf("%s of %s: two encodings of the same value differ; a program that compares stored bytes sees changes where there are none", strings.Join(unstable[set], ", "), set))
	}
	return all
}

// BytesPerKey is what Redis takes for a value, or what is stored where that is unknown.
func (c *Cell) BytesPerKey() float64 {
	if c.RedisBytesPerKey != nil {
		return *c.RedisBytesPerKey
	}
	return float64(c.StoredBytes) / float64(max(1, c.Values))
}

// The limits of a cell.
const (
	LimitServer  = "server"  // the server's main thread is busy all the time
	LimitProxy   = "proxy"   // the proxy before it is: it has one thread
	LimitClient  = "client"  // this process, which is the load generator and what is measured at once, uses all it can get
	LimitMachine = "machine" // both together use all cores, and each could do more on a machine of its own
	LimitNetwork = "network" // the link is full
	LimitPool    = "pool"    // callers wait for a connection
	LimitWaiting = "waiting" // none is busy: callers wait for round trips; more callers or connections may do more
	LimitOffered = "offered" // an open loop that keeps up: no more was asked for
)

// Resources are what an operation, or the time of a round, took.
type Resources struct {
	ClientCPU  float64  `json:"client_cpu"`          // cores that this process used, the load generator included
	ServerCPU  *float64 `json:"server_cpu"`          // cores that the server used, with all its threads, and a proxy before it; null where it does not say
	ServerMain *float64 `json:"server_main"`         // and its main thread, which does the commands
	ProxyCPU   *float64 `json:"proxy_cpu,omitempty"` // of ServerCPU what a proxy used; null without one
	MachineCPU *float64 `json:"machine_cpu"`         // cores that all programs used; null where it is unknown
	ServerIn   float64  `json:"server_in_bytes_op"`  // bytes an operation to the server
	ServerOut  float64  `json:"server_out_bytes_op"` // and from it
	GCShare    *float64 `json:"gc_share"`            // of the processor time of this process, in collecting garbage; null for fewer than 3 collections, which tell nothing
	GCCycles   float64  `json:"gc_cycles_per_s"`     // a second
	GCPauseUS  float64  `json:"gc_pause_max_us"`     // the longest stop of the world
	RSSBytes   int64    `json:"rss_peak_bytes"`      // peak of the resident set of this process
	RSSGrowth  int64    `json:"rss_growth_bytes"`    // of which over the start of the round
	VSSBytes   int64    `json:"vss_peak_bytes"`      // peak of the address space
	Routines   int      `json:"goroutines"`          // peak
	PoolWaits  *float64 `json:"pool_waits_op"`       // waits for a connection, an operation; null where the client does not say
	PoolWait   *float64 `json:"pool_wait_us_op"`     // and their time in microseconds, an operation
}

// Round is what one round of a cell found.
type Round struct {
	Round        int       `json:"round"`   // from 0
	AtS          float64   `json:"at_s"`    // when it began, in seconds from the start of the run
	WarmUpS      float64   `json:"warm_up"` // seconds until the rate was steady
	Steady       bool      `json:"steady"`  // false where it was still rising or falling when the patience for that was at an end
	Seconds      float64   `json:"seconds"` // measured
	Operations   int64     `json:"operations"`
	OpsPerSecond float64   `json:"ops_per_second"`
	StagesP50    []float64 `json:"stages_p50_us"` // in the order of Stages
	P99          float64   `json:"p99_us"`
	AtLeast      bool      `json:"latency_at_least,omitempty"` // the latencies are lower bounds, as Cell.AtLeast has it
	AllocsPerOp  float64   `json:"allocs_per_op"`
	BytesPerOp   float64   `json:"bytes_per_op"`
	Resources    Resources `json:"resources"`
}

// Point is a point of a distribution.
type Point struct {
	Quantile float64 `json:"q"`  // 0 to 1
	US       float64 `json:"us"` // in microseconds: so much or less took that share
}

// Points are those of a distribution for a picture of it, rising.
func Points(h *latency.Histogram) []Point {
	var out []Point
	for _, p := range h.Points() {
		out = append(out, Point{Quantile: p.Quantile, US: float64(p.Value) / 1e3})
	}
	return out
}

// Moment is a look at this process and the servers.
type Moment struct {
	AtS          float64 `json:"at_s"` // seconds from the start of the run
	RSSBytes     int64   `json:"rss_bytes"`
	HeapBytes    int64   `json:"heap_bytes"`  // live and not yet swept objects
	GCPauseUS    float64 `json:"gc_pause_us"` // stops of the world since the moment before
	GCCycles     int     `json:"gc_cycles"`   // since the moment before
	Goroutines   int     `json:"goroutines"`
	OpsPerSecond float64 `json:"ops_per_second"` // since the moment before
	Doing        string  `json:"doing"`
}

// Sweep is a cell at rising rates.
type Sweep struct {
	Identity         // with Rate 0
	Capacity float64 `json:"capacity"` // operations a second of the closed loop
	// Knee is the highest rate that was kept. The median of the rounds reached at least 95% of it,
	// and no operation was left unstarted. It is 0 if no rate was kept.
	Knee float64 `json:"knee"`
	// Cells are the places in Run.Cells of the cells, by rising rate.
	Cells []int `json:"cells"`
}

// Profile is a pprof profile of all rounds of a cell.
type Profile struct {
	File    string             `json:"file,omitempty"` // where it was written
	Samples int64              `json:"samples"`
	Shares  map[string]float64 `json:"shares,omitempty"` // by what the time went to; they sum to 1
	Tree    *flame.Tree        `json:"-"`                // for a page that draws it; nil for none. The file has it in full
}

// Stages are the steps of an operation in their order, and their sum last.
var Stages = []string{"serialize", "compress", "set", "get", "decompress", "deserialize", "total"}

// Stage is the distribution of the time that a step took, in microseconds.
type Stage struct {
	P50  float64 `json:"p50_us"`
	P95  float64 `json:"p95_us"`
	P99  float64 `json:"p99_us"`
	P999 float64 `json:"p999_us"`
	Mean float64 `json:"mean_us"`
}
