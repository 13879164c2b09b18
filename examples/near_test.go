package examples

import (
	"testing"

	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/balekv/bale"
	"github.com/balekv/bale/extra/formats/protobuf"
	"github.com/balekv/bale/extra/near"
	"github.com/balekv/bale/internal/memstore"
)

// TestNearProtobuf: near keeps messages. Their common type is not a part of each.
func TestNearProtobuf(t *testing.T) {
	cache, err := bale.New(memstore.New(), bale.Options[*descriptorpb.EnumValueDescriptorProto]{Codec: protobuf.Codec[*descriptorpb.EnumValueDescriptorProto]{}})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := near.New(cache, near.Options[*descriptorpb.EnumValueDescriptorProto]{})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if err := kept.Set(t.Context(), "k", &descriptorpb.EnumValueDescriptorProto{}, bale.NoExpiry()); err != nil {
		t.Fatal(err)
	}
	if _, err := kept.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if s := kept.Stats(); s.Entries != 1 || s.Bytes > 1000 {
		t.Errorf("%+v", s)
	}
}
