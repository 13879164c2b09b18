//go:build !race

package keygroup

const raceEnabled = false
