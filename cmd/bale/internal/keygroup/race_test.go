//go:build race

package keygroup

const raceEnabled = true
