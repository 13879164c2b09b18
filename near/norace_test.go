//go:build !race

package near

const raceEnabled = false
