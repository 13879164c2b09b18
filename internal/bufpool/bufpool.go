// Package bufpool lends byte buffers, so that packing and unpacking allocate
// nothing once they are warm.
package bufpool

import "sync"

// MaxCap is the largest capacity in bytes of a buffer that the pool keeps. 1 MiB holds nearly all
// cached values. The garbage collector frees larger buffers, so that one huge value does not stay
// in memory.
const MaxCap = 1 << 20

// Buffer is a lent buffer. B may be appended to and replaced.
type Buffer struct{ B []byte }

var pool = sync.Pool{New: func() any { return new(Buffer) }}

// Get lends an empty buffer.
func Get() *Buffer {
	b := pool.Get().(*Buffer)
	b.B = b.B[:0]
	return b
}

// Put gives a buffer back. Neither b nor anything that aliases b.B may be used afterwards.
func Put(b *Buffer) {
	Poison(b.B)
	if cap(b.B) <= MaxCap {
		pool.Put(b)
	}
}
