package advise

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Yield lets all other programs on this machine go first, above all a Redis. This process runs
// only when the machine is idle (SCHED_IDLE, sched(7)), and on all processors but one. Linux sets
// this by thread, and new threads inherit it. If the system does not allow it, Yield does nothing.
func Yield() {
	runtime.GOMAXPROCS(max(1, runtime.NumCPU()-1))
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.SchedSetAttr(id, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
		}
	}
}
