//go:build race

package latency

const race = true
