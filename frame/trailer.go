package frame

import (
	"encoding/binary"
	"math"
	"time"
)

// TrailerKind is the kind of the trailer of a V2 frame.
type TrailerKind byte

// The kinds are part of the format: appended, never changed.
const (
	FreshnessTrailer TrailerKind = 1
)

// FreshnessSize is the size in bytes of the trailer of a [Freshness].
const FreshnessSize = 11

// Freshness says when a loaded value expires, and how long its load took.
type Freshness struct {
	// Expires is when the value must be loaded again, to the millisecond; the zero time for never.
	// The value may stay in Redis longer, for the case that the load fails.
	Expires time.Time

	// Took is how long the load took, 0 to [MaxTook], rounded up to a millisecond.
	Took time.Duration

	// Absent marks a cached miss: the loader found no value. Took is zero then, and the content
	// empty.
	Absent bool
}

const (
	// MaxTook is the longest time that fits into [Freshness].Took; a longer one is cut to it.
	MaxTook = (absent - 1) * time.Millisecond

	absent      = math.MaxUint16 // in place of Took
	maxExpires  = 1<<48 - 1      // milliseconds
	expiresSize = 6
)

// Append appends the trailer to dst, which ends in a payload.
func (f Freshness) Append(dst []byte) []byte {
	start := len(dst)
	ms := uint64(0)
	if !f.Expires.IsZero() {
		ms = uint64(min(max(f.Expires.UnixMilli(), 1), maxExpires))
	}
	took := uint16(absent)
	if !f.Absent {
		took = uint16((min(max(f.Took, 0), MaxTook) + time.Millisecond - 1) / time.Millisecond)
	}
	dst = binary.LittleEndian.AppendUint32(dst, uint32(ms))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(ms>>32))
	dst = binary.LittleEndian.AppendUint16(dst, took)
	dst = append(dst, byte(FreshnessTrailer))
	return binary.LittleEndian.AppendUint16(dst, trailerCheck(dst[start:]))
}

// ParseTrailer reads the trailer at the end of the payload of a V2 frame, and returns its size
// there. It reports false for a damaged trailer, with kind FreshnessTrailer, and for one of a kind
// that this package does not know.
func ParseTrailer(payload []byte) (f Freshness, kind TrailerKind, size int, ok bool) {
	if len(payload) < trailerEnd {
		return f, FreshnessTrailer, 0, false
	}
	kind = TrailerKind(payload[len(payload)-trailerEnd])
	if kind != FreshnessTrailer || len(payload) < FreshnessSize {
		return f, kind, 0, false
	}
	t := payload[len(payload)-FreshnessSize:]
	if binary.LittleEndian.Uint16(t[FreshnessSize-2:]) != trailerCheck(t[:FreshnessSize-2]) {
		return f, kind, 0, false
	}
	if ms := uint64(binary.LittleEndian.Uint32(t)) | uint64(binary.LittleEndian.Uint16(t[4:]))<<32; ms != 0 {
		f.Expires = time.UnixMilli(int64(ms))
	}
	took := binary.LittleEndian.Uint16(t[expiresSize:])
	if f.Absent = took == absent; !f.Absent {
		f.Took = time.Duration(took) * time.Millisecond
	}
	return f, kind, FreshnessSize, true
}

// trailerEnd is the end of every trailer: kind and check.
const trailerEnd = 3

// trailerCheck is the check over a trailer, made like a header's.
func trailerCheck(t []byte) uint16 {
	c := updateShort(0, t)
	return uint16(c>>16) ^ uint16(c)
}
