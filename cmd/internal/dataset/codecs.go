package dataset

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"sync"
)

// CodecInfo is what there is to know about a codec before it is used.
type CodecInfo struct {
	Name    string
	Library string // the path of its module, or of its package in the standard library; empty for raw
	About   string // in a few words
	Note    string // what to know before it is chosen, or empty
	Typed   bool   // it serializes sets of the typed track,
	Dynamic bool   // and of the dynamic one
}

// CodecInfos are the codecs that Coder takes.
func CodecInfos() []CodecInfo {
	return []CodecInfo{
		{"json", "encoding/json", "JSON, of the standard library", "", true, true},
		{"gob", "encoding/gob", "gob, of the standard library", "each value has its type's description", true, true},
		{"raw", "", "the bytes as they are", "", true, true},
		{"json2", "github.com/go-json-experiment/json", "JSON, the coming encoding/json/v2", "", true, true},
		{"go-json", "github.com/goccy/go-json", "JSON", "", true, true},
		{"sonic", "github.com/bytedance/sonic", "JSON, compiled while it runs", "", true, true},
		{"easyjson", "github.com/mailru/easyjson", "JSON, generated code", "", true, false},
		{"binary", "", "codec.Binary with methods written by hand", "", true, false},
		{"msgpack", "github.com/vmihailenco/msgpack/v5", "MessagePack", "", true, true},
		{"shamaton", "github.com/shamaton/msgpack/v2", "MessagePack", "", true, true},
		{"msgp", "github.com/tinylib/msgp", "MessagePack, generated code", "", true, false},
		{"cbor", "github.com/fxamacker/cbor/v2", "CBOR", "", true, true},
		{"protobuf", "google.golang.org/protobuf", "protocol buffers, generated code", "", true, false},
	}
}

// Codecs are the names that Coder takes.
func Codecs() []string {
	var names []string
	for _, c := range CodecInfos() {
		names = append(names, c.Name)
	}
	return names
}

// Version is the version of the library in this program. For the standard library it is Go's; it is
// empty if there is no library or its version is unknown.
func (c CodecInfo) Version() string {
	switch c.Library {
	case "":
		return ""
	case "encoding/json", "encoding/gob":
		return runtime.Version()
	}
	return ModuleVersion(c.Library)
}

// ModuleVersion is the version of a module in this program; empty if it is not there.
func ModuleVersion(path string) string { return versions()[path] }

var versions = sync.OnceValue(func() map[string]string {
	v := map[string]string{}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			v[m.Path] = cmp.Or(m.Replace, m).Version
		}
	}
	return v
})
