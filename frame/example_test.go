package frame_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/balekv/bale/frame"
)

// pack writes a frame with the standard library alone.
func pack(content []byte) []byte {
	header := frame.Header{Algorithm: frame.Gzip, HasChecksum: true, Checksum: frame.Checksum(content), Length: uint64(len(content))}
	value := header.Append(make([]byte, 0, frame.MaxHeaderSize+len(content)))
	buffer := bytes.NewBuffer(value)
	w := gzip.NewWriter(buffer)
	if _, err := w.Write(content); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return buffer.Bytes()
}

// A reader of gzip frames that needs the standard library alone: readers in other languages do the
// same.
func ExampleParse() {
	for _, value := range [][]byte{[]byte("plain"), pack([]byte("hello, hello, hello, hello"))} {
		header, offset, ok := frame.Parse(value)
		if !ok {
			fmt.Printf("%q was stored without bale, magic: %v\n", value, frame.HasMagic(value))
			continue
		}
		if !header.Known() || header.Algorithm != frame.Gzip || header.Length > 1<<20 {
			fmt.Println("a frame for another reader")
			continue
		}
		r, err := gzip.NewReader(bytes.NewReader(value[offset:]))
		if err != nil {
			panic(err)
		}
		content := make([]byte, header.Length)
		if _, err := io.ReadFull(r, content); err != nil {
			panic(err)
		}
		fmt.Printf("%q, whole: %v\n", content, !header.HasChecksum || frame.Checksum(content) == header.Checksum)
	}
	// Output:
	// "plain" was stored without bale, magic: false
	// "hello, hello, hello, hello", whole: true
}

// What "bale inspect" shows.
func ExampleDescribe() {
	fields, ok := frame.Describe(pack([]byte("hello, hello, hello, hello")))
	fmt.Println(ok)
	for _, field := range fields {
		if field.Name != "payload" { // the bytes depend on the version of Go
			fmt.Println(field)
		}
	}
	// Output:
	// true
	//    0  ba1e                     magic       a bale frame
	//    2  14                       tag         version 1, gzip, checksum
	//    3  8532                     check       matches the header
	//    5  f27f9fb8                 checksum    CRC-32C of the content is b89f7ff2
	//    9  1a                       length      26 bytes decoded
}

// A loaded value carries its expiry, so that readers know when to load it again.
func ExampleFreshness() {
	content := []byte("the user")
	header := frame.Header{Version: frame.V2, Algorithm: frame.Stored, Length: uint64(len(content))}
	value := append(header.Append(nil), content...)
	value = frame.Freshness{
		Expires: time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC),
		Took:    min(30*time.Millisecond, frame.MaxTook),
	}.Append(value)
	fmt.Println(len(value) == header.PayloadOffset()+len(content)+frame.FreshnessSize)

	payload := value[header.PayloadOffset():]
	fresh, kind, size, ok := frame.ParseTrailer(payload)
	fmt.Println(ok && kind == frame.FreshnessTrailer, string(payload[:len(payload)-size]))
	fmt.Println(fresh.Expires.UTC(), fresh.Took)
	// Output:
	// true
	// true the user
	// 2030-01-01 00:00:00 +0000 UTC 30ms
}

// A dictionary is named by its content, on every machine alike.
func ExampleDictionary() {
	d, err := frame.NewDictionary([]byte(`{"country":"DE","plan":"free","name":"`))
	if err != nil {
		panic(err)
	}
	fmt.Println(d.ID(), len(d.Bytes()), string(d.Tail(8)))

	id, err := frame.ParseDictionaryID(d.ID().String())
	fmt.Println(id == d.ID(), err)

	_, err = frame.NewDictionary(make([]byte, frame.MaxDictionarySize+1))
	fmt.Println(errors.Is(err, frame.ErrDictionarySize))
	// Output:
	// 4ef54c4a 38 "name":"
	// true <nil>
	// true
}

// Which algorithms a configuration may name, and where a reader finds their decoded length.
func ExampleParseAlgorithm() {
	for _, name := range []string{"zstd", "s2", "brotli"} {
		a, err := frame.ParseAlgorithm(name)
		if err != nil {
			fmt.Println("not", name) // err says what there is
			continue
		}
		fmt.Println(a, a.Known(), a.LengthInPayload())
	}
	fmt.Println(frame.Algorithm(15), frame.Algorithm(15).Known()) // of a later version
	// Output:
	// zstd true false
	// s2 true true
	// not brotli
	// algorithm 15 false
}
