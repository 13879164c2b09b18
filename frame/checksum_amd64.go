package frame

import "hash/crc32"

// The standard library computes a checksum of less than half a kilobyte, as cached values are, in
// one chain of instructions that each wait for the one before. Here three parts of the content take
// turns, which at 450 bytes takes half the time: what was the largest part of Unpack beside the
// decompression. The method is Intel's ("Fast CRC Computation for iSCSI Polynomial Using CRC32
// Instruction", 2011).

const (
	minLanes = 96      // bytes, from which on it is faster
	maxLanes = 3 << 10 // above, the standard library does as well
	laneStep = 3 * 8   // bytes; a lane is a whole number of words
)

// hasInstructions reports whether the processor has CRC32 and PCLMULQDQ; those of the last fifteen
// years do.
func hasInstructions() bool

// checksumLanes is the CRC-32C of length bytes at p, whose first 3*lane are taken in three lanes.
// The lane is a multiple of 8; the shifts are those by two lanes and by one.
//
//go:noescape
func checksumLanes(p *byte, length, lane int, shift2, shift1 uint64) uint32

// update continues a CRC-32C over length bytes at p.
//
//go:noescape
func update(crc uint32, p *byte, length int) uint32

// updateShort is crc32.Update for the few bytes of a header, for which that takes longest to get to
// its loop.
func updateShort(crc uint32, b []byte) uint32 {
	if useLanes && len(b) > 0 {
		return update(crc, &b[0], len(b))
	}
	return crc32.Update(crc, castagnoli, b)
}

var useLanes = hasInstructions()

// shifts[i] moves a CRC past 8*i bytes: x^(64*i-33) modulo the polynomial, bits reflected, the -33
// being what the product of two reflected numbers and the reduction add.
var shifts = func() (table [maxLanes/laneStep*2 + 1]uint32) {
	const polynomial = 0x82F63B78
	power := uint32(1 << 31) // x^0
	for exponent, i := 0, 1; i < len(table); exponent++ {
		if exponent == 64*i-33 {
			table[i] = power
			i++
		}
		carry := power & 1
		power >>= 1
		if carry != 0 {
			power ^= polynomial
		}
	}
	return table
}()

// Checksum is the checksum of content that a frame carries: CRC-32C (Castagnoli,
// RFC 3720), which amd64 and arm64 compute in hardware.
func Checksum(content []byte) uint32 {
	if n := len(content); n >= minLanes && n <= maxLanes && useLanes {
		words := n / laneStep
		return checksumLanes(&content[0], n, words*8, uint64(shifts[2*words]), uint64(shifts[words]))
	}
	return crc32.Checksum(content, castagnoli)
}
