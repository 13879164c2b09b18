//go:build !(amd64 || arm64) || purego

package zstd

import "encoding/binary"

func load64(b []byte, i int) uint64     { return binary.LittleEndian.Uint64(b[i:]) }
func store64(b []byte, i int, v uint64) { binary.LittleEndian.PutUint64(b[i:], v) }
func store16(b []byte, i int, v uint16) { binary.LittleEndian.PutUint16(b[i:], v) }
