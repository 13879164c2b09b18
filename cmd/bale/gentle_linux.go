package main

import (
	"os"
	"strconv"
	"syscall"
)

// niceness is that of background work: others on the machine go first, a Redis above all.
const niceness = 10

// gentle lets others on this machine go first. Linux keeps it by thread, and new threads have it from those that start them. Where it
// is not allowed, it is not done.
func gentle() {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = syscall.Setpriority(syscall.PRIO_PROCESS, id, niceness)
		}
	}
}
