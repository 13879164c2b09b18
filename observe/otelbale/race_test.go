//go:build race

package otelbale_test

const raceEnabled = true
