//go:build purego || !(amd64 || arm64)

package zstd

import "encoding/binary"

func load32(b []byte, i int) uint32 { return binary.LittleEndian.Uint32(b[i:]) }

func load8(b []byte, i int) byte { return b[i] }

func elem[T any](t []T, i uint) T { return t[i] }
