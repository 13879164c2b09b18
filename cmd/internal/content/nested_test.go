package content_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/content"
)

// TestNested: values that nest as deep as they are long are detected and re-encoded without a stack
// that grows with them.
func TestNested(t *testing.T) {
	const n = 1 << 20
	field := "" // messages of protobuf inside each other
	for len(field) < 1<<14 {
		field = "\x0a" + string([]byte{byte(len(field)) | 0x80, byte(len(field)>>7) | 0x80, byte(len(field) >> 14)}) + field
	}
	for name, v := range map[string]string{
		"JSON arrays":     strings.Repeat("[", n),
		"JSON objects":    strings.Repeat(`{"a":`, n/5),
		"closed JSON":     strings.Repeat("[", n/2) + strings.Repeat("]", n/2),
		"msgpack arrays":  strings.Repeat("\x91", n) + "\x01",
		"msgpack maps":    strings.Repeat("\x81\xa1a", n/3) + "\x01",
		"CBOR arrays":     strings.Repeat("\x81", n) + "\x01",
		"CBOR maps":       strings.Repeat("\xa1\x61a", n/3) + "\x01",
		"CBOR tags":       strings.Repeat("\xc1", n) + "\x01",
		"CBOR indefinite": strings.Repeat("\x9f", n) + strings.Repeat("\xff", n),
		"CBOR strings":    strings.Repeat("\x7f", n) + strings.Repeat("\xff", n),
		"protobuf":        field,
		"protobuf groups": strings.Repeat("\x0b", n),
		"PHP":             strings.Repeat(`a:1:{i:0;`, n/9),
		"skippable zstd":  strings.Repeat("\x50\x2a\x4d\x18\x00\x00\x00\x00", n/8),
	} {
		for _, whole := range []bool{true, false} {
			switch k := content.Detect([]byte(v), whole); k {
			case content.Msgpack, content.CBOR, content.GoRedisCache:
				t.Errorf("%s (whole: %v) is taken for %v", name, whole, k)
			}
		}
		for _, encode := range []func(dst, src []byte) ([]byte, error){content.ToMsgpack, content.ToCBOR} {
			if _, err := encode(nil, []byte(v)); !errors.Is(err, content.ErrNotJSON) {
				t.Errorf("%s is re-encoded: %v", name, err)
			}
		}
	}
}
