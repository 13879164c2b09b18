package load

import (
	"time"

	"golang.org/x/sys/unix"
)

// ProcessorTime is what this process has used so far.
func ProcessorTime() time.Duration { return usage(unix.RUSAGE_SELF) }

// ThreadTime is what the calling thread has used so far. Only differences count, and only those on
// one thread: lock the goroutine to it.
func ThreadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// ChildrenTime is what processes that this one started had used when they ended.
func ChildrenTime() time.Duration { return usage(unix.RUSAGE_CHILDREN) }

func usage(who int) time.Duration {
	var u unix.Rusage
	if unix.Getrusage(who, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// sleepPrecisely sleeps on the calling thread, which must belong to the caller alone. The system
// wakes it up within about 50 µs.
func sleepPrecisely(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &t, nil)
}
