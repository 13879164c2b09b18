package cbor_test

import (
	"fmt"

	"github.com/balekv/bale"
	"github.com/balekv/bale/extra/formats/cbor"
)

type User struct {
	Name string `json:"name"`
	Age  int    `json:"age"`
}

func Example() {
	var codec bale.Codec[User] = cbor.Codec[User]{} // goes into bale.Options.Codec

	stored, err := codec.Append(nil, User{"Ada", 36})
	if err != nil {
		panic(err)
	}
	var v User
	if err := codec.Decode(stored, &v); err != nil {
		panic(err)
	}
	fmt.Printf("%d bytes are read as %+v", len(stored), v)
	// Output: 16 bytes are read as {Name:Ada Age:36}
}
