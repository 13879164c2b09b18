// Package redismem says how many bytes Redis allocates for what it stores, which is more than the bytes
// that one writes: [String] for a value, [Class] for an allocation.
//
// The model is Redis 7 with jemalloc, on a 64-bit machine; a test compares it with a server's own MEMORY USAGE.
package redismem

import "math/bits"

// Class is the size in bytes that jemalloc takes for an allocation of n bytes: its size classes are 8, the
// multiples of 16 up to 128, and then four for each doubling (jemalloc(3), "Size classes").
func Class(n int) int {
	switch {
	case n <= 8:
		return 8
	case n <= 128:
		return (n + 15) &^ 15
	}
	step := 1 << (bits.Len(uint(n-1)) - 3)
	return (n + step - 1) &^ (step - 1)
}

const (
	objectSize  = 16 // redisObject, of every value
	embeddedMax = 44 // OBJ_ENCODING_EMBSTR_SIZE_LIMIT: up to here the string is in the same allocation
)

// String is what Redis allocates for a string value of n bytes: the object and its string, without the key
// and its place in the key table. A value that is a whole number of at most 64 bits takes less: 16 bytes at most. From 32 KiB on Redis may
// keep a value in the buffer it was read into, which at the end of a class is the next larger one.
func String(n int) int {
	header := 3 // sdshdr8, and so on: object.c and sds.h
	switch {
	case uint64(n) >= 1<<32:
		header = 17
	case n >= 1<<16:
		header = 9
	case n >= 1<<8:
		header = 5
	}
	const terminator = 1
	if n <= embeddedMax {
		return Class(objectSize + 3 + n + terminator)
	}
	return Class(objectSize) + Class(header+n+terminator)
}
