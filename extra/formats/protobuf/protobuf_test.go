package protobuf

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/balekv/bale"
	"github.com/balekv/bale/extra/formats"
	"github.com/balekv/bale/extra/formats/internal/codectest"
)

// The codec fits a cache of messages.
var _ = bale.Options[*structpb.Struct]{Codec: Codec[*structpb.Struct]{}}

func sample(t testing.TB) *structpb.Struct {
	t.Helper()
	m, err := structpb.NewStruct(map[string]any{
		"name": "Zoë \U0001F600", "": nil, "list": []any{1, "x", true, []any{}, map[string]any{}}, "float": math.MaxFloat64, "inf": math.Inf(-1),
		"nested": map[string]any{"deeper": map[string]any{"ключ": strings.Repeat("long ", 200)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// unknown is a message with a field that its type does not have.
func unknown() *timestamppb.Timestamp {
	m := timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
	m.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "of a later version"))
	return m
}

func TestRoundTrip(t *testing.T) {
	codectest.RoundTrip(t, Codec[*structpb.Struct]{}, sample(t), protocmp.Transform())
	codectest.RoundTrip(t, Codec[*structpb.Struct]{}, &structpb.Struct{}, protocmp.Transform())
	codectest.RoundTrip(t, Codec[*timestamppb.Timestamp]{}, unknown(), protocmp.Transform())
	codectest.RoundTrip(t, Codec[*wrapperspb.BytesValue]{}, wrapperspb.Bytes([]byte{0, 1, 0xff}), protocmp.Transform())
	codectest.RoundTrip(t, Codec[*wrapperspb.Int64Value]{}, wrapperspb.Int64(math.MinInt64), protocmp.Transform())
	codectest.RoundTrip(t, Codec[*wrapperspb.UInt64Value]{}, wrapperspb.UInt64(math.MaxUint64), protocmp.Transform())
	wrapped, err := anypb.New(unknown())
	if err != nil {
		t.Fatal(err)
	}
	codectest.RoundTrip(t, Codec[*anypb.Any]{}, wrapped, protocmp.Transform())
}

// TestDecodeInto: a message that is there is filled, and what was in it goes.
func TestDecodeInto(t *testing.T) {
	b, err := Codec[*structpb.Struct]{}.Append(nil, sample(t))
	if err != nil {
		t.Fatal(err)
	}
	m := &structpb.Struct{Fields: map[string]*structpb.Value{"old": structpb.NewNullValue()}}
	v := m
	if err := (Codec[*structpb.Struct]{}).Decode(b, &v); err != nil || v != m {
		t.Fatalf("another message, %v", err)
	}
	if diff := cmp.Diff(sample(t), m, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	v = nil
	if err := (Codec[*structpb.Struct]{}).Decode(b[:len(b)-1], &v); err == nil || v != nil {
		t.Errorf("%v, %v", v, err)
	}
}

func TestErrors(t *testing.T) {
	// A message may end before each of its fields.
	b, err := Codec[*timestamppb.Timestamp]{}.Append(nil, unknown())
	if err != nil {
		t.Fatal(err)
	}
	fields := map[int]bool{0: true}
	for n := 0; n < len(b); {
		_, _, size := protowire.ConsumeField(b[n:])
		if size < 0 {
			t.Fatal(protowire.ParseError(size))
		}
		n += size
		fields[n] = true
	}
	for n := range b {
		var v *timestamppb.Timestamp
		if err := (Codec[*timestamppb.Timestamp]{}).Decode(b[:n], &v); (err == nil) != fields[n] {
			t.Errorf("%d of %d bytes: %v", n, len(b), err)
		}
	}
	var v *timestamppb.Timestamp
	for _, more := range []string{"\x00", "x", "\x0c"} {
		if err := (Codec[*timestamppb.Timestamp]{}).Decode([]byte(string(b)+more), &v); err == nil {
			t.Errorf("%q after the value is decoded", more)
		}
	}

	codectest.Unencodable(t, Codec[*structpb.Struct]{}, nil)
	codectest.Unencodable(t, Codec[*wrapperspb.StringValue]{}, wrapperspb.String("not \xff UTF-8"))
	codectest.Unencodable(t, Codec[proto.Message]{}, nil)
	var m proto.Message
	if err := (Codec[proto.Message]{}).Decode(nil, &m); err == nil {
		t.Error("an interface is decoded into")
	}
	if _, err := New[*structpb.Struct](Options{MaxDepth: -1}); !errors.Is(err, bale.ErrInvalid) {
		t.Error(err)
	}
}

// nested is a Value that holds n messages inside each other, itself among them.
func nested(n int) []byte {
	var b []byte
	for n > 1 { // from inside: a ListValue's field 1, and a Value's field 6
		field := protowire.Number(1)
		if n--; n%2 == 1 {
			field = 6
		}
		b = append(protowire.AppendVarint(protowire.AppendTag(nil, field, protowire.BytesType), uint64(len(b))), b...)
	}
	return b
}

func TestDepth(t *testing.T) {
	for _, depth := range []int{0, 4, 10_000} {
		limit := depth
		if depth == 0 {
			limit = 1000
		}
		c, err := New[*structpb.Value](Options{MaxDepth: depth})
		if err != nil {
			t.Fatal(err)
		}
		var v *structpb.Value
		if err := codectest.Bounded(t, bale.Codec[*structpb.Value](c), nested(limit), &v); err != nil {
			t.Errorf("%d deep: %v", limit, err)
		}
		if err := c.Decode(nested(limit+1), &v); !errors.Is(err, formats.ErrLimit) {
			t.Errorf("%d deep: %v", limit+1, err)
		}
	}
	// Groups that the message does not know, which are passed and not made.
	var v *structpb.Value
	groups := bytes.Repeat(protowire.AppendTag(nil, 1000, protowire.StartGroupType), 5_000_000)
	if err := (Codec[*structpb.Value]{}).Decode(groups, &v); err == nil {
		t.Error("open groups are decoded")
	}
}

func TestHostile(t *testing.T) {
	for name, src := range map[string]string{
		"length of 4 billion":     "\x0a\xff\xff\xff\xff\x0f",
		"length of 2 to the 63rd": "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
		"endless number":          strings.Repeat("\xff", 100),
		"field 0":                 "\x02\x00",
		"unknown wire type":       "\x0f",
		"end of no group":         "\x0c",
		"map entry cut":           "\x0a\x05\x0a\x01",
	} {
		var v *structpb.Struct
		if err := codectest.Bounded(t, bale.Codec[*structpb.Struct](Codec[*structpb.Struct]{}), []byte(src), &v); err == nil {
			t.Errorf("%s is decoded", name)
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	v, err := structpb.NewStruct(map[string]any{"one": []any{1, "x"}})
	if err != nil {
		t.Fatal(err)
	}
	codectest.Concurrent(t, Codec[*structpb.Struct]{}, v, protocmp.Transform())
}

func TestAllocations(t *testing.T) {
	codectest.Pin(t, Codec[*timestamppb.Timestamp]{}, timestamppb.New(time.Unix(1, 2)), 0, 2)
	codectest.Pin(t, Codec[*wrapperspb.StringValue]{}, wrapperspb.String("text"), 0, 3)
}

func FuzzDecode(f *testing.F) {
	for _, b := range seeds(f) {
		f.Add(b)
	}
	f.Fuzz(hostile)
}

// TestMutated is the fuzz test that runs always.
func TestMutated(t *testing.T) {
	codectest.Mutate(t, seeds(t), func(src []byte) { hostile(t, src) })
}

func seeds(t testing.TB) [][]byte {
	b, err := Codec[*structpb.Struct]{}.Append(nil, sample(t))
	if err != nil {
		t.Fatal(err)
	}
	return [][]byte{b, nested(1001), []byte("\x0a\xff\xff\xff\xff\x0f")}
}

// hostile is what must hold for all bytes.
func hostile(t *testing.T, src []byte) {
	codectest.Fuzz(t, Codec[*structpb.Struct]{}, src, func(a, b *structpb.Struct) bool { return proto.Equal(a, b) })
	codectest.Fuzz(t, Codec[*structpb.Value]{}, src, func(a, b *structpb.Value) bool { return proto.Equal(a, b) })
	codectest.Fuzz(t, Codec[*timestamppb.Timestamp]{}, src, func(a, b *timestamppb.Timestamp) bool { return proto.Equal(a, b) })
}
