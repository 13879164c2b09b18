package codec_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/balekv/bale"
	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/internal/memstore"
)

// User is a value with binary methods of its own, as go-redis takes them.
type User struct {
	ID   uint32 `json:"id"`
	Name string `json:"name"`
}

func (u User) MarshalBinary() ([]byte, error) {
	return append(binary.BigEndian.AppendUint32(nil, u.ID), u.Name...), nil
}

func (u *User) UnmarshalBinary(b []byte) error {
	if len(b) < 4 {
		return io.ErrUnexpectedEOF
	}
	u.ID, u.Name = binary.BigEndian.Uint32(b), string(b[4:])
	return nil
}

func ExampleBinary() {
	users := codec.Binary[User, *User]{} // goes into bale.Options.Codec
	stored, err := users.Append(nil, User{7, "Ada"})
	fmt.Printf("%q %v\n", stored, err)
	var user User
	err = users.Decode(stored, &user)
	fmt.Println(user, err)
	// Output:
	// "\x00\x00\x00\aAda" <nil>
	// {7 Ada} <nil>
}

// Text and bytes need no encoding: other programs read them as they are.
func ExampleString() {
	ctx := context.Background()
	store := memstore.New()
	pages, err := bale.New(store, bale.Options[string]{Codec: codec.String{}})
	if err != nil {
		panic(err)
	}
	images, err := bale.New(store, bale.Options[[]byte]{Codec: codec.Bytes{}})
	if err != nil {
		panic(err)
	}
	err = errors.Join(pages.Set(ctx, "page", "<p>hello</p>"), images.Set(ctx, "image", []byte{0x89, 'P', 'N', 'G'}))
	fmt.Println(err)
	page, err := store.Get(ctx, "page")
	fmt.Printf("%s %v\n", page, err)
	image, err := store.Get(ctx, "image")
	fmt.Printf("%q %v\n", image, err)
	// Output:
	// <nil>
	// <p>hello</p> <nil>
	// "\x89PNG" <nil>
}

// Gob describes the type in each value: for small values JSON is smaller, unless a dictionary takes
// the description back.
func ExampleGob() {
	type Point struct{ X, Y int }
	asJSON, err := codec.JSON[Point]{}.Append(nil, Point{3, 4})
	if err != nil {
		panic(err)
	}
	asGob, err := codec.Gob[Point]{}.Append(nil, Point{3, 4})
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s is smaller: %v\n", asJSON, len(asJSON) < len(asGob))
	var p Point
	err = codec.Gob[Point]{}.Decode(asGob, &p)
	fmt.Println(p, err)
	// Output:
	// {"X":3,"Y":4} is smaller: true
	// {3 4} <nil>
}

// A value of another codec: the error names the type and never shows the value.
func ExampleError() {
	ctx := context.Background()
	store := memstore.New()
	if err := store.Set(ctx, "user:7", []byte(`{"id":"secret"}`), bale.NoExpiry()); err != nil {
		panic(err)
	}
	users, err := bale.New(store, bale.Options[User]{Codec: codec.JSON[User]{}})
	if err != nil {
		panic(err)
	}
	_, err = users.Get(ctx, "user:7")
	if e, ok := errors.AsType[*codec.Error](err); ok {
		fmt.Println(e.Op, e.Type, errors.Is(err, codec.ErrFailed))
	}
	fmt.Println(strings.Contains(err.Error(), "secret"))
	// Output:
	// decode codec_test.User true
	// false
}

// A panic of a loader or a codec is an error of the call. Its stack says where.
func ExamplePanicError() {
	users, err := bale.New(memstore.New(), bale.Options[User]{})
	if err != nil {
		panic(err)
	}
	defer users.Close()
	_, err = users.GetOrLoad(context.Background(), "user:7", func(context.Context) (User, error) {
		var byID map[uint32]*User
		return *byID[7], nil
	})
	if e, ok := errors.AsType[*codec.PanicError](err); ok {
		fmt.Println(e)
		fmt.Println(len(e.Stack) > 0)
	}
	// Output:
	// panic: runtime error: invalid memory address or nil pointer dereference
	// true
}
