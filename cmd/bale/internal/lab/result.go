package lab

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/balekv/bale/frame"
)

// Result is what a run found; its JSON is the output of bale bench --json.
type Result struct {
	Environment Environment `json:"environment"`
	Cells       []Cell      `json:"cells"`

	// Dictionaries are those of the settings with "+dict", one for each set of values, codec and setting.
	Dictionaries []Dictionary `json:"dictionaries,omitempty"`
}

// Dictionary is one that was trained on the half of a set that is not measured.
type Dictionary struct {
	Dataset  string             `json:"dataset"`
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
	Bale         string    `json:"bale"`
	Go           string    `json:"go"`
	OS           string    `json:"os"`
	CPU          string    `json:"cpu"`
	Cores        int       `json:"cores"`
	MemoryBytes  uint64    `json:"memory_bytes"`
	RedisVersion string    `json:"redis_version"`
	Zstd         string    `json:"zstd"` // what zstd is where it is not pure Go
	Embedded     bool      `json:"embedded"`
	Private      bool      `json:"private"`
	Seed         uint64    `json:"seed"`
	DurationS    float64   `json:"duration_s"` // measured for each cell, in all of Rounds
	Rounds       int       `json:"rounds"`     // that every cell was measured in; one more for some where Interrupted
	Interrupted  bool      `json:"interrupted,omitempty"`
	CellsLeftOut int       `json:"cells_left_out,omitempty"` // where Interrupted: those that were not measured in a whole round
	Notes        []string  `json:"notes,omitempty"`
}

// Cell is one combination and its figures.
type Cell struct {
	Client      string `json:"client"`
	Dataset     string `json:"dataset"`
	Codec       string `json:"codec"`
	Compress    string `json:"compress"`
	Concurrency int    `json:"concurrency"`

	Values      int     `json:"values"`
	RawBytes    int64   `json:"raw_bytes"`    // of all values as they were given
	PlainBytes  int64   `json:"plain_bytes"`  // serialized
	StoredBytes int64   `json:"stored_bytes"` // packed; without the dictionary
	Ratio       float64 `json:"ratio"`        // RawBytes / StoredBytes

	// RedisBytesPerKey is the difference of used_memory over Keys keys, divided by them: value, key, table,
	// and the dictionary, if there is one. Null for the embedded server, which has no such figure.
	RedisBytesPerKey *float64 `json:"redis_bytes_per_key"`
	// MemoryUsagePerKey is the mean of MEMORY USAGE over a sample of the keys.
	MemoryUsagePerKey *float64 `json:"memory_usage_per_key"`
	Keys              int      `json:"keys"`

	Operations         int64     `json:"operations"`            // an operation is a value written and read back
	OpsPerSecond       float64   `json:"ops_per_second"`        // median of the rounds
	OpsPerSecondRounds []float64 `json:"ops_per_second_rounds"` // each round
	AllocsPerOp        float64   `json:"allocs_per_op"`         // in this process, the client's included
	BytesPerOp         float64   `json:"bytes_per_op"`
	PeakRSSBytes       int64     `json:"peak_rss_bytes"` // of this process, over the start of the cell's round

	Verified bool             `json:"verified"`           // every value read back was the one written
	Mismatch bool             `json:"mismatch,omitempty"` // one was another, or damaged; else a cell that is not Verified could not be measured
	Error    string           `json:"error,omitempty"`
	Stages   map[string]Stage `json:"stages"`
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

const (
	maxLatency = int64(time.Minute) // longer ones count as this
	digits     = 3                  // a percentile is right to 0.1%
)

// histograms has one distribution for each of Stages, in nanoseconds.
type histograms [7]*hdrhistogram.Histogram

func newHistograms() *histograms {
	var h histograms
	for i := range h {
		h[i] = hdrhistogram.New(1, maxLatency, digits)
	}
	return &h
}

func (h *histograms) record(times *[7]time.Duration) {
	for i, d := range times {
		// Within the bounds there is no error.
		h[i].RecordValue(min(max(int64(d), 1), maxLatency))
	}
}

func (h *histograms) merge(from *histograms) {
	for i := range h {
		h[i].Merge(from[i])
	}
}

func (h *histograms) reset() {
	for i := range h {
		h[i].Reset()
	}
}

func (h *histograms) stages() map[string]Stage {
	us := func(ns int64) float64 { return float64(ns) / 1e3 }
	stages := make(map[string]Stage, len(Stages))
	for i, name := range Stages {
		stages[name] = Stage{
			P50: us(h[i].ValueAtQuantile(50)), P95: us(h[i].ValueAtQuantile(95)),
			P99: us(h[i].ValueAtQuantile(99)), P999: us(h[i].ValueAtQuantile(99.9)),
			Mean: h[i].Mean() / 1e3,
		}
	}
	return stages
}
