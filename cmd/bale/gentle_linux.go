package main

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// gentle lets everybody else on this machine go first, a Redis above all: this process runs when
// nobody else wants to (SCHED_IDLE, sched(7)), and on all processors but one. Linux keeps that by
// thread, and new threads have it from those that start them. Where it is not allowed, it is not
// done.
func gentle() {
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
