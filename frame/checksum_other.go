//go:build !amd64

package frame

import "hash/crc32"

// Checksum is the checksum of content that a frame carries: CRC-32C (Castagnoli,
// RFC 3720), which amd64 and arm64 compute in hardware.
func Checksum(content []byte) uint32 { return crc32.Checksum(content, castagnoli) }

func updateShort(crc uint32, b []byte) uint32 { return crc32.Update(crc, castagnoli, b) }
