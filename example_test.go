package bale_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/balekv/bale"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

func ExamplePacker() {
	packer, err := bale.NewPacker(bale.PackerOptions{})
	if err != nil {
		panic(err)
	}
	defer packer.Close()
	value := []byte(strings.Repeat("the same again, ", 50))
	packed, err := packer.Pack(nil, value)
	if err != nil {
		panic(err)
	}
	unpacked, err := packer.Unpack(context.Background(), nil, packed)
	fmt.Println(len(value), len(packed) < 60, string(unpacked) == string(value), err)

	number, err := packer.Pack(nil, []byte("42"))
	fmt.Println(string(number), err)
	// Output:
	// 800 true true <nil>
	// 42 <nil>
}

// A Packer writes with one setting and reads every algorithm.
func ExamplePackerOptions() {
	compressor, err := compress.Setting{Algorithm: frame.S2, Level: "better"}.New(nil)
	if err != nil {
		panic(err)
	}
	writer, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: compressor}})
	if err != nil {
		panic(err)
	}
	packed, err := writer.Pack(nil, []byte(strings.Repeat("the same again, ", 50)))
	if err != nil {
		panic(err)
	}
	header, _, isFrame := frame.Parse(packed)
	fmt.Println(isFrame, header.Algorithm, header.Length)

	reader, err := bale.NewPacker(bale.PackerOptions{})
	if err != nil {
		panic(err)
	}
	value, err := reader.Unpack(context.Background(), nil, packed)
	fmt.Println(len(value), err)
	// Output:
	// true s2 800
	// 800 <nil>
}
