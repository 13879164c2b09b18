//go:build race

package flame

const race = true
