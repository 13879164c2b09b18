//go:build !race

package testvalues

// Race reports whether the race detector is on. It allocates, and empties pools.
const Race = false
