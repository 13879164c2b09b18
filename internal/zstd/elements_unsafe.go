//go:build (amd64 || arm64) && !purego

package zstd

import "unsafe"

// These read and write without bounds checks: callers stay inside of the slices.

func load32(b []byte, i int) uint32 {
	return *(*uint32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), i))
}

func load8(b []byte, i int) byte {
	return *(*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), i))
}

func elem[T any](t []T, i uint) T {
	var zero T
	return *(*T)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(t)), uintptr(i)*unsafe.Sizeof(zero)))
}
