//go:build (amd64 || arm64) && !purego

package zstd

import "unsafe"

// These read and write little endian without bounds checks: the callers have checked. Build tag
// purego has the same functions with checks.

func load64(b []byte, i int) uint64 {
	return *(*uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), i))
}

func store64(b []byte, i int, v uint64) {
	*(*uint64)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), i)) = v
}

func store16(b []byte, i int, v uint16) {
	*(*uint16)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), i)) = v
}
