package fastjson_test

import (
	"fmt"

	"github.com/balekv/bale"
	"github.com/balekv/bale/extra/formats/fastjson"
)

type User struct {
	Name string `json:"name"`
	Age  int    `json:"age"`
}

func Example() {
	var codec bale.Codec[User] = fastjson.Codec[User]{} // goes into bale.Options.Codec

	stored, err := codec.Append(nil, User{"Ada", 36})
	if err != nil {
		panic(err)
	}
	var v User
	if err := codec.Decode(stored, &v); err != nil {
		panic(err)
	}
	fmt.Printf("%s is read as %+v", stored, v)
	// Output: {"name":"Ada","age":36} is read as {Name:Ada Age:36}
}
