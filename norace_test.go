//go:build !race

package bale

const raceEnabled = false
