package frame

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
)

// MinDictionarySize and MaxDictionarySize bound a dictionary, in bytes. Below 16 bytes a compressor
// has nothing to refer to (and s2 refuses it). Above 1 MiB a dictionary no longer pays for cached
// values: on the corpora of the design, the best ones had 16 to 112 KiB.
const (
	MinDictionarySize = 16
	MaxDictionarySize = 1 << 20
)

// ErrDictionarySize says that the bytes are too few or too many for a dictionary.
var ErrDictionarySize = errors.New("dictionary size out of range")

// DictionaryID names a dictionary by its content, see [Dictionary.ID]; zero means none.
type DictionaryID uint32

// noDictionary is the text of the zero id.
const noDictionary = "none"

// String is the id as eight hexadecimal digits, or "none".
func (id DictionaryID) String() string {
	if id == 0 {
		return noDictionary
	}
	return fmt.Sprintf("%08x", uint32(id))
}

// ParseDictionaryID is the inverse of [DictionaryID.String].
func ParseDictionaryID(s string) (DictionaryID, error) {
	if s == noDictionary {
		return 0, nil
	}
	if id, err := strconv.ParseUint(s, 16, 32); err == nil && DictionaryID(id).String() == s {
		return DictionaryID(id), nil
	}
	return 0, fmt.Errorf("frame: %q is no dictionary id: eight lower-case hexadecimal digits, or %q", s, noDictionary)
}

// MarshalText is String.
func (id DictionaryID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText is [ParseDictionaryID].
func (id *DictionaryID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseDictionaryID(string(text))
	return err
}

// Dictionary is the bytes behind a [DictionaryID]: the common parts of values. Compressor and
// decompressor both have it, so that a small value need not repeat them. It is immutable and safe
// for concurrent use. Package dict trains dictionaries and rolls them out.
type Dictionary struct {
	id    DictionaryID
	bytes []byte
}

// NewDictionary makes a dictionary of a copy of b: MinDictionarySize to MaxDictionarySize bytes,
// otherwise the error is [ErrDictionarySize]. b may be in the format of zstd's trainer (starting
// with 37 A4 30 EC). Otherwise it is raw content that values have in common, the most common last.
func NewDictionary(b []byte) (*Dictionary, error) {
	if len(b) < MinDictionarySize || len(b) > MaxDictionarySize {
		return nil, fmt.Errorf("%w: %d bytes, must be %d to %d", ErrDictionarySize, len(b), MinDictionarySize, MaxDictionarySize)
	}
	return &Dictionary{id: contentID(b), bytes: bytes.Clone(b)}, nil
}

// ID names the dictionary: the first 32 bits of the SHA-256 of its bytes, little endian
// (the next 32 bits should those be zero, which means "none").
func (d *Dictionary) ID() DictionaryID {
	if d == nil {
		return 0
	}
	return d.id
}

// Bytes returns the dictionary's own bytes: do not change them. A nil dictionary has none.
func (d *Dictionary) Bytes() []byte {
	if d == nil {
		return nil
	}
	return d.bytes
}

// Tail returns the end of the dictionary's own bytes, at most n of them: do not change them.
// Formats with a short window use only that.
func (d *Dictionary) Tail(n int) []byte {
	b := d.Bytes()
	return b[max(0, len(b)-n):]
}

func contentID(b []byte) DictionaryID {
	sum := sha256.Sum256(b)
	for i := 0; i < len(sum); i += 4 {
		if id := binary.LittleEndian.Uint32(sum[i:]); id != 0 {
			return DictionaryID(id)
		}
	}
	return 1 // 256 zero bits: not to be expected, but never "none"
}
