package frame

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Field is one part of a stored value, as returned by [Describe].
type Field struct {
	Offset int    // of the first byte in the value
	Bytes  []byte // the part itself; of the payload at most the first 16 bytes
	Name   string // as in the package comment
	Value  string // what it says, for a person
}

// String is the field on one line: offset, bytes, name and meaning.
func (f Field) String() string {
	return fmt.Sprintf("%4d  %-23s  %-10s  %s", f.Offset, hex.EncodeToString(f.Bytes), f.Name, f.Value)
}

// payloadShown is how much of a payload Describe shows: enough to recognise a format, too little to
// read a value.
const payloadShown = 16

// Describe explains the bytes of a stored value field by field. It reports false, and a
// single field, when b is not a frame. The fields alias b.
func Describe(b []byte) ([]Field, bool) {
	h, offset, ok := Parse(b)
	if !ok {
		why := "no frame: stored without bale"
		if HasMagic(b) {
			why = "starts like a frame, but its header check is wrong: foreign bytes, or a damaged frame"
		}
		return []Field{{0, b[:min(len(b), payloadShown)], "plain", fmt.Sprintf("%d bytes, %s", len(b), why)}}, false
	}
	fields := []Field{
		{0, b[0:2], "magic", "a bale frame"},
		{2, b[2:3], "tag", fmt.Sprintf("version %d, %v%s%s", h.Version, h.Algorithm, choose(h.HasChecksum, ", checksum"), choose(h.DictionaryID != 0, ", dictionary"))},
		{3, b[3:5], "check", "matches the header"},
	}
	n := fixedSize
	if h.HasChecksum {
		fields = append(fields, Field{n, b[n : n+checksumSize], "checksum", fmt.Sprintf("CRC-32C of the content is %08x", h.Checksum)})
		n += checksumSize
	}
	if h.DictionaryID != 0 {
		fields = append(fields, Field{n, b[n : n+dictionarySize], "dictionary", "id " + h.DictionaryID.String()})
		n += dictionarySize
	}
	_, size := binary.Uvarint(b[n:])
	length := Field{n, b[n : n+size], "length", fmt.Sprintf("%d bytes decoded", h.Length)}
	if h.Algorithm.LengthInPayload() {
		length.Value += " (the payload's own first field)"
	}
	payload := b[offset:]
	var trailer []Field
	if h.Version == V2 {
		f, kind, size, ok := ParseTrailer(payload)
		at := len(b) - size
		switch {
		case ok:
			payload = payload[:len(payload)-size]
			trailer = []Field{{at, b[at:], "freshness", f.String()}}
		case kind == FreshnessTrailer:
			trailer = []Field{{at, nil, "freshness", "damaged"}}
		default:
			trailer = []Field{{at, nil, "trailer", fmt.Sprintf("of kind %d, which this version does not know", kind)}}
		}
	}
	fields = append(fields, length,
		Field{offset, payload[:min(len(payload), payloadShown)], "payload", fmt.Sprintf("%d bytes of %v", len(payload), h.Algorithm)})
	return append(fields, trailer...), true
}

// String describes the trailer for a person.
func (f Freshness) String() string {
	until := "never expires"
	if !f.Expires.IsZero() {
		until = "good until " + f.Expires.UTC().Format("2006-01-02 15:04:05.000 UTC")
	}
	if f.Absent {
		return "there is no value, " + until
	}
	return fmt.Sprintf("%s, took %v to load", until, f.Took)
}

func choose(cond bool, s string) string {
	if cond {
		return s
	}
	return ""
}
