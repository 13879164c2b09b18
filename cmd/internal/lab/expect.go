package lab

import (
	"fmt"
	"math"
	"time"

	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/page"
)

// Expectation is what is known of a run before anything was measured.
type Expectation struct {
	Cells int

	// Time is the approximate time of the run, on a machine like that of the constants below. It
	// includes the training of dictionaries, and assumes that every dictionary pays. It includes
	// the loading of values, once for the memory figures and for a mix before each round. It also
	// includes warming up, the rounds, and operations that take longer than a round. On a machine
	// half as fast everything takes longer, except the rounds.
	Time time.Duration

	// Overload is what open loops may take longer, at most: each round whose rate is too high waits
	// for what is late until it is given up. Whether a rate is is not known before.
	Overload time.Duration
}

// String describes it for people.
func (e Expectation) String() string {
	round := func(d time.Duration) time.Duration {
		if d > time.Minute {
			return d.Round(10 * time.Second)
		}
		return max(d.Round(time.Second), time.Second)
	}
	text := fmt.Sprintf("%s: about %v, with loading, training and warming up", page.Plural(e.Cells, "cell"), round(e.Time))
	if e.Overload > 0 {
		text += fmt.Sprintf("; up to %v more if every rate is too high", round(e.Overload))
	}
	return text
}

// What the parts of a run take, of a core of an AMD EPYC of 2.4 GHz: from default runs on two of
// them, in processor time. A megabyte is 1e6 bytes, as they were given.
const (
	trainLeast  = 700 * time.Millisecond // a dictionary,
	trainMB     = 1100 * time.Millisecond
	trainMost   = 10                    // megabytes, for dict takes a sample of more,
	trainValues = 20                    // and none of fewer values
	fillLeast   = 60 * time.Millisecond // the values of a set into Redis and back: looks at the memory,
	fillKey     = 3 * time.Microsecond
	fillMB      = 1500 * time.Microsecond // that is stored,
	fillValueMB = 10 * time.Millisecond   // and what is serialized, packed and compared, each value once
	loadKey     = 2 * time.Microsecond    // the keys of a mix
	loadMB      = time.Millisecond
	operation   = 100 * time.Microsecond // a caller's, on a machine that is shared with the server
	operationMB = 13 * time.Millisecond
	turnLeast   = 15 * time.Millisecond // a collection of garbage, looks at the server
	warming     = 0.5                   // of what is measured
	packedShare = 0.5                   // of a value that is left to go over a link
)

// scaled is a time for each of a number of things.
func scaled(each time.Duration, n float64) time.Duration { return time.Duration(float64(each) * n) }

// over returns how long bytes take to a server, in one direction, with this number of round trips.
func (s *Server) over(bytes, trips float64) time.Duration {
	d := scaled(s.LinkDelay, trips)
	if s.LinkBits > 0 {
		d += scaled(time.Second, bytes*8/s.LinkBits)
	}
	return d
}

// Estimate tells what to expect of a run.
func Estimate(servers []*Server, c Config) (e Expectation) {
	r := &run{Config: c.withDefaults(), servers: servers, cores: cores()}
	for _, set := range c.Datasets {
		train, measured := r.halves(set)
		if len(measured.Raw) == 0 {
			continue
		}
		for _, codec := range set.Codecs(c.Codecs) {
			if _, err := measured.Coder(codec); err != nil {
				continue
			}
			for _, setting := range c.Compress {
				if setting.Dict {
					if len(train.Raw) < trainValues {
						continue // none is trained
					}
					e.Time += trainLeast + scaled(trainMB, min(trainMost, megabytes(train.RawBytes())))
				}
				share := packedShare
				if setting.String() == "none" {
					share = 1
				}
				r.expect(&e, &variant{data: measured, codec: codec, setting: setting, keys: r.keyCount(measured)}, share)
			}
		}
	}
	return e
}

func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }

// expect adds what a variant takes, of whose bytes a share is left when it is packed.
func (r *run) expect(e *Expectation, v *variant, share float64) {
	keys, mean := float64(v.keys), meanSize(v.data)
	stored := keys * mean * share
	trips := math.Ceil(keys/batchKeys) + 1
	e.Time += fillLeast + scaled(fillKey, keys) + scaled(fillMB, keys*mean/1e6) + scaled(fillValueMB, megabytes(v.data.RawBytes())) + 2*r.widest().over(stored, trips)
	slice := r.roundTime()
	for _, s := range r.servers {
		load := time.Duration(0)
		if r.Mix.Single() {
			load = scaled(loadKey, keys) + scaled(loadMB, keys*mean/1e6) + s.over(stored, trips)
		}
		for _, client := range r.Clients {
			for _, b := range r.Batches {
				for _, n := range r.Concurrency {
					c := &cell{variant: v, batch: b, concurrency: n}
					if c.unfit() != "" || client.gathers() && b.N > 0 {
						continue
					}
					values := float64(b.values())
					each := operation + scaled(operationMB, values*mean/1e6)
					// Each caller has its turn at least once in what is measured, and once before.
					turn := max(each, scaled(each, float64(n)/float64(r.cores))) + s.over(values*mean*share*float64(n), 2)
					round := turnLeast + load + max(scaled(slice, warming), turn) + max(slice, turn) + turn/2
					cells, rounds := max(1, len(r.Rates)), r.Rounds
					if r.Sweep {
						cells = len(sweepShares)
						e.Time += round // for the rates
					}
					e.Cells += cells
					e.Time += scaled(round, float64(cells*rounds))
					if len(r.Rates) > 0 && r.Rates[0] > 0 {
						e.Overload += scaled(max(drainLeast, drainPatience*slice), float64(cells*rounds))
					}
				}
			}
		}
	}
}

// meanSize is the mean size of a value in bytes.
func meanSize(d *dataset.Dataset) float64 { return float64(d.RawBytes()) / float64(len(d.Raw)) }
