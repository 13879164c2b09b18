package zstd_test

import (
	"fmt"

	"github.com/balekv/bale/compress/zstd"
	"github.com/balekv/bale/frame"
)

// A Compressor of your own options, for values that are written once and read for a long time.
func ExampleNew() {
	dictionary, err := frame.NewDictionary([]byte(`{"id":,"name":"","country":"DE","language":"de","plan":"free","verified":true}`))
	if err != nil {
		panic(err)
	}
	compressor, err := zstd.New(zstd.Options{
		Level:       zstd.Best,
		Dictionary:  dictionary,
		Concurrency: 1, // a value of more than 16 KiB takes 72 MB
	})
	if err != nil {
		panic(err)
	}
	defer compressor.Close()

	value := []byte(`{"id":7,"name":"Ada","country":"DE","language":"de","plan":"free","verified":true}`)
	payload, err := compressor.Compress(nil, value)
	fmt.Println(len(value), len(payload) < 40, err)
	value, err = compressor.Decompress(value[:0], payload, len(value))
	fmt.Println(string(value), err)
	// Output:
	// 82 true <nil>
	// {"id":7,"name":"Ada","country":"DE","language":"de","plan":"free","verified":true} <nil>
}

// The level for a number that users know from the zstd tool.
func ExampleNearestLevel() {
	fmt.Println(zstd.NearestLevel(9) == zstd.Better)
	fmt.Println(zstd.NearestLevel(19) == zstd.Best)
	// Output:
	// true
	// true
}
