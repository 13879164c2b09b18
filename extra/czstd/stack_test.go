//go:build cgo

package czstd

import (
	"bytes"
	"testing"
)

// TestBuffersOnTheStack: a caller's arrays reach libzstd unharmed at whatever depth of the stack,
// which grows, and so moves, on the way.
func TestBuffersOnTheStack(t *testing.T) {
	c := native(t, 3, dictionary(t, "trained.dict"))
	value := append(profile(1), make([]byte, valueSize)...)[:valueSize]
	wrong := 0
	for depth := range 3000 {
		done := make(chan struct{})
		go func() { // on a new stack, which is small
			defer close(done)
			descend(depth, func() {
				if !onTheStack(c, value) {
					wrong++
				}
			})
		}()
		<-done
	}
	if wrong > 0 {
		t.Errorf("%d of 3000 are wrong", wrong)
	}
}

//go:noinline
func descend(n int, f func()) byte {
	var room [40]byte
	room[n%len(room)] = byte(n)
	if n == 0 {
		f()
		return 0
	}
	return descend(n-1, f) + room[(n+1)%len(room)]
}

const valueSize = 450

//go:noinline
func onTheStack(c *compressor, value []byte) bool {
	var src, back [valueSize]byte
	var room [1200]byte
	copy(src[:], value)
	packed, err := c.Compress(room[:0], src[:])
	if err != nil {
		return false
	}
	got, err := c.Decompress(back[:0], packed, valueSize)
	return err == nil && bytes.Equal(got, value)
}
