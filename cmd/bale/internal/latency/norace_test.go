//go:build !race

package latency

const race = false
