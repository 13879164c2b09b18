//go:build race

package ab

const raceEnabled = true
