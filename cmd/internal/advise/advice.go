// Package advise estimates how much a Redis would save. It finds the groups of keys, tries
// compressors and dictionaries on a sample of each group's values, and counts in the bytes that the
// server allocates. [Run] is the entry point; it returns an [Advice].
package advise

import (
	"context"
	"fmt"
	"time"

	"github.com/balekv/bale/cmd/internal/page"
)

// Advice is the answer. Its fields are those of the JSON that bale advise writes. Bytes are those
// that Redis allocates, unless a comment says otherwise.
type Advice struct {
	Source   string        `json:"source"` // where the values come from, without a password
	Time     time.Time     `json:"time"`
	Server   *Server       `json:"server,omitempty"` // nil for files of values
	Scan     Scan          `json:"scan"`
	Model    *Model        `json:"model,omitempty"` // nil where the server gives no MEMORY USAGE
	Budget   time.Duration `json:"cpu_budget_ns"`   // what a value of up to 4 KiB may take to pack, and to unpack
	Price    float64       `json:"price,omitempty"` // USD for a GiB and month, 0 for none given
	Seed     uint64        `json:"seed"`
	Go       string        `json:"go"`
	CPU      string        `json:"cpu"`
	Cores    int           `json:"cores"`
	Slowness float64       `json:"slowness,omitempty"` // this machine's processor time, to that of the reference processor
	Seconds  float64       `json:"seconds"`
	Total    Total         `json:"total"`
	Groups   []Group       `json:"groups"`             // by what they save, most first
	TopKeys  []Key         `json:"top_keys,omitempty"` // the largest that were looked at, largest first
	Warnings []string      `json:"warnings,omitempty"`
	Next     []Step        `json:"next"`

	lfu         *lfu    // nil where the server does not count reads
	unexplained float64 // reads a second that no counter explains
	matched     bool    // keys that are like --match alone were looked at
	at          string  // for --redis in commands
	match       []string
	wasted      int64 // bytes of packed values that were unpacked, and are damaged
}

// Server is what a server says of itself.
type Server struct {
	Version    string  `json:"version"` // "7.0.15" of Redis; of others with their name: "Valkey 9.1.2"
	Cluster    bool    `json:"cluster,omitempty"`
	Masters    int     `json:"masters"`
	Replica    bool    `json:"replica,omitempty"` // replicas were read in place of masters
	UsedMemory int64   `json:"used_memory"`
	MaxMemory  int64   `json:"maxmemory,omitempty"`
	Policy     string  `json:"maxmemory_policy,omitempty"`
	Hits       int64   `json:"keyspace_hits"`
	Misses     int64   `json:"keyspace_misses"`
	Reads      float64 `json:"reads"`     // a second, since the start: hits without those by commands that this one looks at keys with
	ReadsNow   float64 `json:"reads_now"` // a second, while advise ran, without its own
	Keys       int64   `json:"keys"`      // in all databases

	// InPlace are the calls since the server's start of commands that work inside of a value, which
	// packing would break: "append": 12. Those that bale calls as well are counted while advise ran,
	// in WatchedSeconds, without its own calls: Watched are calls that other programs made,
	// Unattributed are calls that programs made by bale or without.
	InPlace        map[string]int64 `json:"in_place,omitempty"`
	Watched        map[string]int64 `json:"watched,omitempty"`
	Unattributed   map[string]int64 `json:"unattributed,omitempty"`
	WatchedSeconds float64          `json:"watched_seconds,omitempty"`

	up        float64                                   // seconds since the start of the oldest master, 0 where it is not known
	now       func(ctx context.Context, counters int64) // sets ReadsNow; so many counters were asked for
	databases map[int]int64                             // the keys in each
	info      map[string]string                         // of one of the masters
}

// Scan is what was looked at.
type Scan struct {
	Keys        int64   `json:"keys"`      // there are, as far as is known
	Seen        int64   `json:"seen"`      // whose names were seen
	LookedAt    int64   `json:"looked_at"` // of those, whose type, size and expiry were asked for
	Values      int     `json:"values"`    // values, or fields of hashes, that were tried
	BytesRead   int64   `json:"bytes_read"`
	Interrupted bool    `json:"interrupted,omitempty"`
	Reason      string  `json:"reason,omitempty"` // why not all keys were seen
	Seconds     float64 `json:"seconds"`
}

// Model is how the model of Redis' allocations compares with the server's own MEMORY USAGE.
type Model struct {
	Keys     int   `json:"keys"`
	Modelled int64 `json:"modelled"`
	Measured int64 `json:"measured"`

	// Scaled means that the model is not exact, for a version that was not measured or for libc's
	// malloc: the advice scales it to MEMORY USAGE, group by group.
	Scaled bool `json:"scaled,omitempty"`
}

// sentence says how far the model is off.
func (m *Model) sentence() string {
	off := fmt.Sprintf("%+.1f%% off MEMORY USAGE for %s", 100*(float64(m.Modelled)/float64(m.Measured)-1), page.Plural(m.Keys, "key"))
	if m.Scaled {
		return "The nearest model of the server's memory is " + off + ", and scaled to it in each group."
	}
	return "The model of the server's memory is " + off + "."
}

// Interval is an estimate with the bounds that it is within with 95% confidence. After a scan that
// was interrupted there are no bounds, and both are the estimate.
type Interval struct {
	Low      float64 `json:"low"`
	Estimate float64 `json:"estimate"`
	High     float64 `json:"high"`
}

// Total is the answer in one line.
type Total struct {
	Now      int64    `json:"now"`          // bytes of all groups, with keys and their entries, and of the tables
	Tables   int64    `json:"tables"`       // of those: what keys are found by, which packing does not change
	Saving   Interval `json:"saving"`       // bytes, with the dictionaries' own taken off
	Month    Interval `json:"month"`        // USD a month, if there is a price
	Network  Interval `json:"network"`      // bytes a second that reads save, at the hits that the server counted; 0 if it did not
	CPU      float64  `json:"cpu"`          // processors that unpacking takes at those hits
	OutReach int64    `json:"out_of_reach"` // bytes of what packing does not apply to
}

// The kinds of keys, as TYPE says them. Packing applies to strings and to the values of hashes.
const (
	String = "string"
	Hash   = "hash"
)

// Group is a set of keys that look alike and hold one type.
type Group struct {
	Name     string        `json:"name"`            // the pattern that its keys have in common: user:*:profile
	Match    string        `json:"match,omitempty"` // a pattern for SCAN and --match that finds them; "" where none does
	Type     string        `json:"type"`
	Keys     int64         `json:"keys"`
	Sampled  int           `json:"sampled"`          // values or fields that were tried
	Fields   float64       `json:"fields,omitempty"` // of a hash, in the mean
	KeyBytes float64       `json:"key_bytes"`        // of a key's name, in the mean
	Size     Sizes         `json:"size"`             // of values: of one of a hash's, for hashes
	Sizes    []Bucket      `json:"sizes,omitempty"`  // the distribution of values by the class of memory they take, before and after
	TTL      TTL           `json:"ttl"`
	Formats  []Format      `json:"formats,omitempty"`       // what values are, most frequent first
	Entropy  float64       `json:"entropy,omitempty"`       // bits a byte, of single bytes: 8 for random ones
	Common   float64       `json:"common,omitempty"`        // the part of held-out values that other values have, too: how equal they are
	Now      int64         `json:"now"`                     // bytes, with keys and their entries
	Budget   time.Duration `json:"cpu_budget_ns,omitempty"` // that its values have: Advice.Budget, and more of large ones
	Options  []Option      `json:"options,omitempty"`       // what was tried, smallest first
	Chosen   int           `json:"chosen"`                  // the recommended one of Options, -1 for none
	Saving   Interval      `json:"saving"`                  // bytes, of the chosen option; zeros if there is none
	Month    Interval      `json:"month"`                   // USD, if there is a price
	Packed   *Packed       `json:"packed,omitempty"`        // what bale saves already
	Why      string        `json:"why,omitempty"`           // why there is no recommendation, or what to see to first
	Together *Together     `json:"together,omitempty"`      // what the group was made of
	Heat     *Heat         `json:"heat,omitempty"`          // how often its values are read; nil where that is not known
	Samples  []string      `json:"samples,omitempty"`       // values, if they were asked for

	heat   *heat    // nil where nothing of it is hot
	unpack float64  // µs for a packed value, 0 where it was not measured
	unread unread   // heavy ones that were not read
	file   string   // that its values come from, if they do
	names  []string // of some of its keys
}

// Sizes are bytes as they are stored.
type Sizes struct {
	Mean float64 `json:"mean"`
	P50  int64   `json:"p50"`
	P90  int64   `json:"p90"`
	P99  int64   `json:"p99"`
	Max  int64   `json:"max"`
}

// Bucket is a class of memory, and the part of the values in it: the value's own allocation,
// without its key.
type Bucket struct {
	Class  int64   `json:"class"` // bytes
	Before float64 `json:"before"`
	After  float64 `json:"after"` // with the chosen option; as Before if there is none
}

// TTL is how long keys live still.
type TTL struct {
	Part float64 `json:"part"` // of the keys that expire at all, 0 to 1
	P50  float64 `json:"p50"`  // seconds, of those
	P90  float64 `json:"p90"`
}

// Format is a kind of content, and its part of the values.
type Format struct {
	Name string  `json:"name"`
	Part float64 `json:"part"`
}

// Option is one way to store a group's values, as measured on values that nothing was trained on.
type Option struct {
	Setting    string   `json:"setting"`              // for --compress, without "+dict"
	Encoding   string   `json:"encoding,omitempty"`   // what the values were re-encoded to first: "msgpack", "cbor"
	Dictionary int      `json:"dictionary,omitempty"` // bytes of the dictionary, 0 for none
	Ratio      float64  `json:"ratio"`                // bytes of values as they are to bytes as stored, headers included
	Bytes      int64    `json:"bytes"`                // of the group, in place of Group.Now; the dictionary's included
	Saving     Interval `json:"saving"`               // bytes
	Later      float64  `json:"later"`                // the part of the bytes of keys that come later that it saves: the dictionary was not trained on those
	Network    float64  `json:"network"`              // bytes that a read of one value saves
	Pack       Cost     `json:"pack"`
	Unpack     Cost     `json:"unpack"`
	InBudget   bool     `json:"in_budget"`
}

// Cost is processor time for one value, of a reference processor: this machine takes Slowness times
// as long. Read as microseconds it is also the seconds for a million.
type Cost struct {
	Mean float64 `json:"mean_us"` // microseconds
	P50  float64 `json:"p50_us"`
	P99  float64 `json:"p99_us"`
}

// Key is a large key.
type Key struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Bytes int64  `json:"bytes"`
	Group string `json:"group"`
}

// Step is something to do next: what for, and the commands or lines of Go, as they can be run.
type Step struct {
	What string `json:"what"`
	Code string `json:"code,omitempty"`
	Go   bool   `json:"go,omitempty"` // Code is Go, else it is for a shell
}
