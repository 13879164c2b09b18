package compress_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/balekv/bale"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

// A setting of a configuration file.
func ExampleParse() {
	for _, name := range []string{"zstd:better", "s2", "zstd:huge"} {
		setting, err := compress.Parse(name)
		if err != nil {
			fmt.Println(errors.Is(err, compress.ErrSetting))
			continue
		}
		compressor, err := setting.New(nil)
		if err != nil {
			panic(err)
		}
		defer compressor.Close()
		value := []byte(strings.Repeat("the same again, ", 50))
		payload, err := compressor.Compress(nil, value)
		if err != nil {
			panic(err)
		}
		again, err := compressor.Decompress(nil, payload, len(value))
		fmt.Println(compressor.Algorithm(), len(payload) < 100, string(again) == string(value), err)
	}
	// Output:
	// zstd true true <nil>
	// s2 true true <nil>
	// true
}

// The settings that a dictionary helps.
func ExampleSettings() {
	for _, s := range compress.Settings() {
		if s.TakesDictionary() {
			fmt.Print(s, " ")
		}
	}
	// Output:
	// s2:default s2:better s2:best lz4:default zstd:default zstd:fastest zstd:better zstd:best
}

// A dictionary of what values have in common makes one small value much smaller.
func ExampleSetting_New() {
	dictionary, err := frame.NewDictionary([]byte(`{"id":,"name":"","country":"DE","language":"de","plan":"free","verified":true}`))
	if err != nil {
		panic(err)
	}
	value := []byte(`{"id":7,"name":"Ada","country":"DE","language":"de","plan":"free","verified":true}`)
	for _, d := range []*frame.Dictionary{nil, dictionary} {
		compressor, err := compress.Setting{Algorithm: frame.Zstd}.New(d)
		if err != nil {
			panic(err)
		}
		defer compressor.Close()
		payload, err := compressor.Compress(nil, value)
		fmt.Println(compressor.DictionaryID() == d.ID(), len(payload) < len(value)/2, err)
	}
	_, err = compress.Setting{Algorithm: frame.Gzip}.New(dictionary)
	fmt.Println(errors.Is(err, compress.ErrNoDictionary))
	// Output:
	// true false <nil>
	// true true <nil>
	// true
}

// A Set for the change from one dictionary to the next: new values have the new one, old ones are
// still read.
func ExampleSet() {
	var compressors []compress.Compressor
	for _, common := range []string{"the same again, the same again", "something else, something else"} {
		dictionary, err := frame.NewDictionary([]byte(common))
		if err != nil {
			panic(err)
		}
		compressor, err := compress.Setting{Algorithm: frame.Zstd}.New(dictionary)
		if err != nil {
			panic(err)
		}
		defer compressor.Close()
		compressors = append(compressors, compressor)
	}
	before := &compress.Set{Write: compressors[0]}
	during := &compress.Set{Write: compressors[1], Read: compressors[:1]}
	after := &compress.Set{Write: compressors[1]}

	old := pack(before, strings.Repeat("the same again, ", 10))
	for _, set := range []*compress.Set{during, after} {
		packer, err := bale.NewPacker(bale.PackerOptions{Compressors: set})
		if err != nil {
			panic(err)
		}
		value, err := packer.Unpack(context.Background(), nil, old)
		fmt.Println(len(value), errors.Is(err, compress.ErrUnknownDictionary))
	}
	// Output:
	// 160 false
	// 0 true
}

// The way back: nothing is packed any more, and every algorithm is read.
func ExampleSet_none() {
	value := strings.Repeat("the same again, ", 10)
	plain := &compress.Set{Write: compress.None}
	defer plain.Close()
	fmt.Println(string(pack(plain, value)) == value)

	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: plain})
	if err != nil {
		panic(err)
	}
	var zstd compress.Set
	defer zstd.Close()
	again, err := packer.Unpack(context.Background(), nil, pack(&zstd, value))
	fmt.Println(string(again) == value, err)
	// Output:
	// true
	// true <nil>
}

// pack packs a value with a set.
func pack(set *compress.Set, value string) []byte {
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: set})
	if err != nil {
		panic(err)
	}
	packed, err := packer.Pack(nil, []byte(value))
	if err != nil {
		panic(err)
	}
	return packed
}

// A program that can be built with libzstd takes its engine as an argument. Nil is pure Go.
func ExampleEngine() {
	open := func(engine compress.Engine) {
		compressor, err := engine.New(compress.Setting{Algorithm: frame.Zstd, Level: "19"}, nil)
		if err != nil {
			panic(err)
		}
		defer compressor.Close()
		payload, err := compressor.Compress(nil, []byte(strings.Repeat("the same again, ", 50)))
		fmt.Println(len(payload) < 50, err)
	}
	open(nil) // or czstd.Engine
	// Output:
	// true <nil>
}
