package czstd_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/balekv/bale"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/czstd"
	"github.com/balekv/bale/frame"
)

// A Packer with libzstd. Programs without it read what it writes.
func ExampleEngine() {
	compressor, err := czstd.Engine(compress.Setting{Algorithm: frame.Zstd, Level: "19"}, nil)
	if err != nil {
		panic(err)
	}
	defer compressor.Close()
	packer, err := bale.NewPacker(bale.PackerOptions{
		Compressors: &compress.Set{Write: compressor, Engine: czstd.Engine},
	})
	if err != nil {
		panic(err)
	}
	value := strings.Repeat("the same again, ", 50)
	packed, err := packer.Pack(nil, []byte(value))
	if err != nil {
		panic(err)
	}
	pure, err := bale.NewPacker(bale.PackerOptions{})
	if err != nil {
		panic(err)
	}
	defer pure.Close()
	again, err := pure.Unpack(context.Background(), nil, packed)
	fmt.Println(len(packed) < 60, string(again) == value, err)
	// Output:
	// true true <nil>
}

// A program says which engine it was built with, and trains with what that has.
func ExampleNative() {
	builders := dict.Builders(compress.Setting{})
	engine := "pure Go"
	if czstd.Native {
		engine = "libzstd " + czstd.Version() // "1.5.7"
		builders = append(builders, czstd.Builders()...)
	}
	fmt.Println(engine != "", len(builders) >= len(dict.Builders(compress.Setting{})))
	// Output:
	// true true
}
