// Package formats and the packages below it implement bale.Codec for more formats. Each format has
// its own package, so that a program links only the library it uses:
//
//   - formats/fastjson: JSON as encoding/json writes it, with goccy/go-json
//   - formats/msgpack: MessagePack, with vmihailenco/msgpack
//   - formats/cbor: CBOR (RFC 8949), with fxamacker/cbor
//   - formats/protobuf: protocol buffers, with google.golang.org/protobuf
//
// Each has a Codec whose zero value is useful, and a New that takes Options. All of them append,
// and keep no reference to their input. They treat it as untrusted. Nesting is limited. A claimed
// length counts only if its bytes are there. Bytes after the value are an error. A protocol buffer
// has no end of its own, so bytes after it are an error unless they are fields.
package formats

import "errors"

// ErrLimit is wrapped by every codec's Decode when a value exceeds a limit of its Options. The
// value may be valid for a reader that allows more.
var ErrLimit = errors.New("beyond the codec's limits")
