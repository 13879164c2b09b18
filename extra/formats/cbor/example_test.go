package cbor_test

import (
	"errors"
	"fmt"

	"github.com/balekv/bale"
	"github.com/balekv/bale/extra/formats"
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

// Comment is a value of any depth.
type Comment struct {
	Text    string    `json:"text"`
	Replies []Comment `json:"replies,omitempty"`
}

// Of values that others can write, a reader takes no deeper ones than its program makes.
func ExampleNew() {
	comments, err := cbor.New[Comment](cbor.Options{MaxDepth: 4}) // goes into bale.Options.Codec
	if err != nil {
		panic(err)
	}
	reply := Comment{"a", []Comment{{Text: "b"}}}
	for range 2 {
		stored, err := comments.Append(nil, reply)
		if err != nil {
			panic(err)
		}
		var read Comment
		err = comments.Decode(stored, &read)
		fmt.Println(read.Text, errors.Is(err, formats.ErrLimit))
		reply = Comment{"deeper", []Comment{reply}}
	}
	// Output:
	// a false
	//  true
}
