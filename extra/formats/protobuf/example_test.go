package protobuf_test

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/balekv/bale"
	"github.com/balekv/bale/extra/formats"
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

// Of values that others can write, a reader takes no deeper ones than its program makes.
func ExampleNew() {
	lists, err := protobuf.New[*structpb.ListValue](protobuf.Options{MaxDepth: 4}) // goes into bale.Options.Codec
	if err != nil {
		panic(err)
	}
	list := &structpb.ListValue{Values: []*structpb.Value{structpb.NewNumberValue(1)}}
	for range 3 {
		stored, err := lists.Append(nil, list)
		if err != nil {
			panic(err)
		}
		var read *structpb.ListValue
		err = lists.Decode(stored, &read)
		fmt.Println(errors.Is(err, formats.ErrLimit))
		list = &structpb.ListValue{Values: []*structpb.Value{structpb.NewListValue(list)}}
	}
	// Output:
	// false
	// false
	// true
}
