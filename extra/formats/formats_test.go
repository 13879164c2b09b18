package formats_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/bytedance/sonic"

	"github.com/balekv/bale"
	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/formats/cbor"
	"github.com/balekv/bale/extra/formats/fastjson"
	"github.com/balekv/bale/extra/formats/internal/codectest"
	"github.com/balekv/bale/extra/formats/msgpack"
)

// sonicJSON is fastjson's rival: the same API, with its setting that writes the bytes of
// encoding/json.
type sonicJSON[T any] struct{}

func (sonicJSON[T]) Append(dst []byte, v T) ([]byte, error) {
	b, err := sonic.ConfigStd.Marshal(v)
	return append(dst, b...), err
}

func (sonicJSON[T]) Decode(src []byte, v *T) error { return sonic.ConfigStd.Unmarshal(src, v) }

var codecs = []struct {
	name  string
	codec bale.Codec[codectest.Profile]
}{
	{"json", codec.JSON[codectest.Profile]{}},
	{"sonic", sonicJSON[codectest.Profile]{}},
	{"fastjson", fastjson.Codec[codectest.Profile]{}},
	{"msgpack", msgpack.Codec[codectest.Profile]{}},
	{"cbor", cbor.Codec[codectest.Profile]{}},
}

// BenchmarkProfile is the comparison in the package comments.
func BenchmarkProfile(b *testing.B) {
	for _, c := range codecs {
		dst, err := c.codec.Append(nil, codectest.Ada)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name+"/append", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				dst, _ = c.codec.Append(dst[:0], codectest.Ada)
			}
			b.ReportMetric(float64(len(dst)), "bytes")
		})
		b.Run(c.name+"/decode", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var v codectest.Profile
				if err := c.codec.Decode(dst, &v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestSizes holds the sizes that the package comment speaks of: of the examples' profiles, plain,
// compressed, and compressed with a dictionary trained on the other half of them.
func TestSizes(t *testing.T) {
	profiles, err := os.ReadFile("../../examples/profiles.ndjson")
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("the module is not in its repository")
	} else if err != nil {
		t.Fatal(err)
	}
	type sizes struct{ plain, compressed, dictionary float64 }
	got := map[string]sizes{}
	for _, c := range codecs {
		if c.name == "sonic" || c.name == "fastjson" {
			continue // the bytes of json
		}
		var samples [][]byte
		for line := range bytes.Lines(profiles) {
			var v codectest.Profile
			if err := json.Unmarshal(line, &v); err != nil {
				t.Fatal(err)
			}
			b, err := c.codec.Append(nil, v)
			if err != nil {
				t.Fatal(err)
			}
			samples = append(samples, b)
		}
		trained, err := dict.Train(t.Context(), samples, dict.TrainOptions{MaxSize: 16 << 10, Builders: dict.Builders(compress.Setting{})[:6]})
		if err != nil {
			t.Fatal(err)
		}
		n := float64(trained.HeldOut)
		got[c.name] = sizes{float64(trained.Without.RawBytes) / n, float64(trained.Without.StoredBytes) / n, float64(trained.With.StoredBytes) / n}
		t.Logf("%-8s %5.0f bytes, zstd %5.0f, with a dictionary %5.0f", c.name, got[c.name].plain, got[c.name].compressed, got[c.name].dictionary)
	}
	for name, s := range got {
		if s.dictionary > s.plain/2.5 || s.dictionary > 1.15*got["msgpack"].dictionary || s.compressed > 1.15*got["msgpack"].compressed {
			t.Errorf("with %s compression saves less: %v", name, got)
		}
	}
	if got["msgpack"].plain >= got["cbor"].plain || got["cbor"].plain >= got["json"].plain {
		t.Errorf("MessagePack, CBOR and JSON are not in this order: %v", got)
	}
}
