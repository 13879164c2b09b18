// Package codecs and the packages below it are more implementations of bale.Codec, each in a
// package of its own, so that a program links only the library it uses:
//
//   - codecs/fastjson: JSON as encoding/json writes it, with goccy/go-json
//   - codecs/msgpack: MessagePack, with vmihailenco/msgpack
//   - codecs/cbor: CBOR (RFC 8949), with fxamacker/cbor
//   - codecs/protobuf: protocol buffers, with google.golang.org/protobuf
//
// Each has a Codec whose zero value is useful, and a New that takes Options. All of them append,
// keep nothing of what they read, and treat it as bytes that anybody may have written: how deep it
// may nest is limited, a length that it claims is believed only when so many bytes are there, and
// bytes after the value are an error (after a protocol buffer, which has no end of its own, unless
// they are fields).
//
// Which one: the profiles of the repository's examples take, in the mean, these bytes (TestSizes;
// pure Go zstd, the dictionary trained on other profiles), and one like them these microseconds
// (BenchmarkProfile; Go 1.26, two cores, the best of 30 runs):
//
//	          plain  zstd  with a dictionary  Append  Decode
//	JSON        407   313                125    0.91    4.38
//	fastjson    407   313                125    0.38    0.83
//	msgpack     322   295                114    0.80    1.52
//	cbor        339   296                124    0.57    1.59
//
// With a dictionary all are about as small, so choose by speed and by who else reads the values.
package codecs

import "errors"

// ErrLimit is what every codec's Decode wraps when it refuses a value for a limit of its Options,
// before or while it reads it: the value may be a good one, for a reader that allows more.
var ErrLimit = errors.New("beyond the codec's limits")
