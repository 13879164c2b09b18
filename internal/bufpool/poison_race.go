//go:build race

package bufpool

// Poison overwrites a returned buffer when the race detector is on. A caller that still reads it
// fails tests that compare the bytes, and causes a data race in all tests.
func Poison(b []byte) {
	b = b[:cap(b)]
	for i := range b {
		b[i] = 0xDB
	}
}
