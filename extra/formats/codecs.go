// Package codecs and the packages below it implement bale.Codec for more formats. Each format has
// its own package, so that a program links only the library it uses:
//
//   - codecs/fastjson: JSON as encoding/json writes it, with goccy/go-json
//   - codecs/msgpack: MessagePack, with vmihailenco/msgpack
//   - codecs/cbor: CBOR (RFC 8949), with fxamacker/cbor
//   - codecs/protobuf: protocol buffers, with google.golang.org/protobuf
//
// Each has a Codec whose zero value is useful, and a New that takes Options. All of them append,
// and keep no reference to their input. They treat it as untrusted. Nesting is limited. A claimed
// length counts only if its bytes are there. Bytes after the value are an error. A protocol buffer
// has no end of its own, so bytes after it are an error unless they are fields.
//
// The table shows the mean bytes of the repository's example profiles (TestSizes; pure Go zstd, the
// dictionary trained on other profiles). It also shows the microseconds for one profile
// (BenchmarkProfile; Go 1.26, two cores, the best of 30 runs):
//
//	          plain  zstd  with a dictionary  Append  Decode
//	JSON        407   313                125    0.91    4.38
//	fastjson    407   313                125    0.38    0.83
//	msgpack     322   295                114    0.80    1.52
//	cbor        339   296                124    0.57    1.59
//
// With a dictionary the sizes are close. So choose by speed, and by the other readers of the
// values.
package codecs

import "errors"

// ErrLimit is wrapped by every codec's Decode when a value exceeds a limit of its Options. The
// value may be valid for a reader that allows more.
var ErrLimit = errors.New("beyond the codec's limits")
