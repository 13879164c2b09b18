package keyspace

import "runtime/debug"

// memoryGoal is from where on the garbage collector works hard: a command that reads values keeps
// below 200 MiB.
const memoryGoal = 96 << 20

// Frugal makes the garbage collector keep memory small, until restore is called.
func Frugal() (restore func()) {
	before := debug.SetMemoryLimit(memoryGoal)
	return func() { debug.SetMemoryLimit(before) }
}
