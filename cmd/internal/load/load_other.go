//go:build !linux

package load

import (
	"os"
	"time"

	"github.com/shirou/gopsutil/v4/process"
)

// ProcessorTime is what this process has used so far.
func ProcessorTime() time.Duration {
	p, err := process.NewProcess(int32(os.Getpid()))
	if err != nil {
		return 0
	}
	t, err := p.Times()
	if err != nil {
		return 0
	}
	return time.Duration((t.User + t.System) * float64(time.Second))
}

// start is where ThreadTime counts from.
var start = time.Now()

// ThreadTime is the time that has passed: threads have no clock of their own here.
func ThreadTime() time.Duration { return time.Since(start) }

// ChildrenTime is unknown here.
func ChildrenTime() time.Duration { return 0 }

func sleepPrecisely(d time.Duration) { time.Sleep(d) }
