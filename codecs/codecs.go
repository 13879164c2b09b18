// Package codecs and the packages below it are more implementations of bale.Codec, each in a package of its own, so that
// a program links only the library it uses:
//
//   - codecs/fastjson: JSON as encoding/json writes it, with goccy/go-json
//   - codecs/msgpack: MessagePack, with vmihailenco/msgpack
//   - codecs/cbor: CBOR (RFC 8949), with fxamacker/cbor
//   - codecs/protobuf: protocol buffers, with google.golang.org/protobuf
//
// Each has a Codec whose zero value is useful, and a New that takes Options. All of them append, keep nothing of what they
// read, and treat it as bytes that anybody may have written: how deep it may nest is limited, a length that it
// claims is believed only when so many bytes are there, and bytes after the value are an error.
//
// Which one: a struct of 407 bytes of JSON, the profile of this package's benchmark, is 371 bytes of CBOR and 337 of MessagePack, and compressed
// with a dictionary all of them are about as small. So choose by speed, and by who else reads the values.
package codecs

import "errors"

// ErrLimit is what every codec's Decode wraps when it refuses a value for a limit of its Options, before or while it reads it: the value
// may be a good one, for a reader that allows more.
var ErrLimit = errors.New("beyond the codec's limits")
