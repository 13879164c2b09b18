//go:build race

package bale

const raceEnabled = true
