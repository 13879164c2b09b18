package protobuf_test

import (
	"fmt"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/balekv/bale"
	"github.com/balekv/bale/extra/formats/protobuf"
)

func Example() {
	var codec bale.Codec[*wrapperspb.StringValue] = protobuf.Codec[*wrapperspb.StringValue]{} // goes into bale.Options.Codec

	stored, err := codec.Append(nil, wrapperspb.String("Ada"))
	if err != nil {
		panic(err)
	}
	var v *wrapperspb.StringValue
	if err := codec.Decode(stored, &v); err != nil {
		panic(err)
	}
	fmt.Printf("%d bytes are read as %s", len(stored), v.Value)
	// Output: 5 bytes are read as Ada
}
