package codec

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// point has MarshalBinary alone, as types before Go 1.24 do.
type point struct{ x, y uint16 }

var errLost = errors.New("nowhere")

func (p *point) MarshalBinary() ([]byte, error) {
	if p.x == 0 {
		return []byte("partly"), errLost
	}
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, p.x), p.y), nil
}

func (p *point) UnmarshalBinary(b []byte) error {
	if len(b) != 4 {
		return io.ErrUnexpectedEOF
	}
	p.x, p.y = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	return nil
}

// readOnly can only be read.
type readOnly struct{}

func (*readOnly) UnmarshalBinary([]byte) error { return nil }

func TestBinary(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	want, err := at.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	times := Binary[time.Time, *time.Time]{} // with AppendBinary
	b, err := times.Append([]byte("before"), at)
	if err != nil || !bytes.Equal(b, append([]byte("before"), want...)) {
		t.Errorf("%q, %v", b, err)
	}
	var again time.Time
	if err := times.Decode(want, &again); err != nil || !again.Equal(at) {
		t.Errorf("%v, %v", again, err)
	}
	points := Binary[point, *point]{}
	b, err = points.Append([]byte("before"), point{1, 2})
	if err != nil || string(b) != "before\x00\x01\x00\x02" {
		t.Errorf("%q, %v", b, err)
	}
	var p point
	if err := points.Decode([]byte{0, 3, 0, 4}, &p); err != nil || p != (point{3, 4}) {
		t.Errorf("%v, %v", p, err)
	}
	if err := points.Decode([]byte{0}, &p); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("too short: %v", err)
	}
	if b, err := points.Append([]byte("before"), point{}); !errors.Is(err, errLost) || string(b) != "before" {
		t.Errorf("%q, %v", b, err)
	}
	b, err = Binary[readOnly, *readOnly]{}.Append([]byte("before"), readOnly{})
	if message := (&Error{Err: err}).Error(); !errors.Is(err, errNotBinary) || string(b) != "before" || !strings.Contains(message, "MarshalBinary") {
		t.Errorf("%q, %v, %s", b, err, message)
	}
}

// TestBinaryAllocations: a type with AppendBinary costs the one allocation that the value itself
// takes.
func TestBinaryAllocations(t *testing.T) {
	at, dst := time.Now(), make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() { dst, _ = Binary[time.Time, *time.Time]{}.Append(dst[:0], at) }); n > 1 {
		t.Errorf("%v allocations", n)
	}
}

func ExampleBinary() {
	var addresses Binary[netip.Addr, *netip.Addr]
	b, err := addresses.Append(nil, netip.MustParseAddr("192.0.2.1"))
	fmt.Println(b, err)
	var a netip.Addr
	err = addresses.Decode(b, &a)
	fmt.Println(a, err)
	// Output:
	// [192 0 2 1] <nil>
	// 192.0.2.1 <nil>
}
