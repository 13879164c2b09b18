//go:build race

package content_test

const raceEnabled = true
