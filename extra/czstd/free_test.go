//go:build cgo

package czstd

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestContextsAreFreed although a small object allocated beside each of them stays in use. In the
// allocator's shared blocks one such neighbour keeps the whole block, and no cleanup runs.
func TestContextsAreFreed(t *testing.T) {
	const n = 50
	c := native(t, 3, nil)
	var neighbours [2 * n]*uint64
	var freed atomic.Int64
	for i := range neighbours {
		if i%2 == 1 {
			runtime.AddCleanup(decoders.New().(*dctx), func(freed *atomic.Int64) { freed.Add(1) }, &freed)
		} else {
			runtime.AddCleanup(c.contexts.New().(*cctx), func(freed *atomic.Int64) { freed.Add(1) }, &freed)
		}
		neighbours[i] = new(uint64)
	}
	// The pointer that a test's frame still holds may keep the last one.
	const want = 2*n - 1
	for start := time.Now(); freed.Load() < want && time.Since(start) < 20*time.Second; {
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
	if got := freed.Load(); got < want {
		t.Errorf("%d of %d contexts are freed", got, 2*n)
	}
	runtime.KeepAlive(&neighbours)
}
