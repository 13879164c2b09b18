//go:build !race

package ab

const raceEnabled = false
