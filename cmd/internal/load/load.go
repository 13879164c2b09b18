// Package load has what the labs of Redis and HTTP share: the pacer of an open loop, and what this
// process and the machine have used.
package load

import (
	"context"
	"runtime"
	"time"

	"github.com/shirou/gopsutil/v4/cpu"
)

// Start is an operation of an open loop: its scheduled start, and the time when the pacer released
// it, in nanoseconds since the loop began.
type Start struct{ Intended, Sent int64 }

// IntendedAt is when operation i of an open loop is to start, in nanoseconds since its beginning.
func IntendedAt(i int64, rate float64) int64 { return int64(float64(i) / rate * 1e9) }

// Pace releases operations at a rate a second, evenly spaced, from began on. It returns when the
// next one would not start before until, which may come closer meanwhile; when release returns
// false; or when ctx ends. It sleeps on a thread of its own by the clock of the system: the timers
// of Go are up to a millisecond late.
func Pace(ctx context.Context, began time.Time, rate float64, until func() int64, release func(Start) bool) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() int64 { return int64(time.Since(began)) }
	for i := int64(0); ; i++ {
		intended := IntendedAt(i, rate)
		if intended >= until() {
			return
		}
		for now() < intended {
			if intended >= until() || ctx.Err() != nil {
				return
			}
			sleepPrecisely(time.Duration(min(intended-now(), int64(maxNap))))
		}
		if !release(Start{intended, now()}) {
			return
		}
	}
}

const maxNap = 10 * time.Millisecond // so that the end is seen in time where operations are rare

// Usage is what this process has used so far.
type Usage struct {
	CPU           time.Duration
	Allocs, Bytes uint64
	Cycles        uint32      // of the garbage collector
	pauses        [256]uint64 // a ring of the last stops of the world, in ns
}

// Used reads the Usage. It allocates nothing.
func Used() Usage {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Usage{ProcessorTime(), m.Mallocs, m.TotalAlloc, m.NumGC, m.PauseNs}
}

// LongestPause is the longest stop of the world since an earlier Usage.
func (u *Usage) LongestPause(since *Usage) time.Duration {
	longest := uint64(0)
	for n := since.Cycles; n < u.Cycles; n++ {
		longest = max(longest, u.pauses[n%uint32(len(u.pauses))])
	}
	return time.Duration(longest)
}

// BusyMachine is the share of all cores from which on a machine is the limit: what the kernel does
// between two processes is in neither's account.
const BusyMachine = 0.80

// MachineTime is the processor time of all programs, and what other machines on the same hardware
// took; 0 where it is unknown.
func MachineTime(ctx context.Context) time.Duration {
	times, err := cpu.TimesWithContext(ctx, false)
	if err != nil || len(times) != 1 {
		return 0
	}
	t := times[0]
	return time.Duration((t.User + t.System + t.Nice + t.Irq + t.Softirq + t.Steal) * float64(time.Second))
}
