//go:build !cgo

package czstd

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/compress/zstd"
	"github.com/balekv/bale/frame"
)

// TestPure: without cgo the same settings work, and what they write is read by package
// compress/zstd.
func TestPure(t *testing.T) {
	if Native || Version() != "" || len(Builders()) != 0 {
		t.Error("it says that it is libzstd")
	}
	d, err := frame.NewDictionary(bytes.Repeat([]byte(`{"name":"somebody","mail":"somebody@example.com"}`), 4))
	if err != nil {
		t.Fatal(err)
	}
	value := []byte(`{"name":"nobody","mail":"nobody@example.com","name":"nobody"}`)
	for _, dictionary := range []*frame.Dictionary{nil, d} {
		reader, err := zstd.New(zstd.Options{Dictionary: dictionary})
		if err != nil {
			t.Fatal(err)
		}
		for _, level := range []string{"", "1", "19", "fastest", "best"} {
			c, err := Engine(compress.Setting{Algorithm: frame.Zstd, Level: level}, dictionary)
			if err != nil {
				t.Fatal(err)
			}
			packed, err := c.Compress(nil, value)
			if err != nil || c.DictionaryID() != dictionary.ID() {
				t.Fatal(c.DictionaryID(), err)
			}
			if got, err := reader.Decompress(nil, packed, len(value)); err != nil || !bytes.Equal(got, value) {
				t.Errorf("level %q: %q, %v", level, got, err)
			}
			if err := c.(*compressor).Close(); err != nil {
				t.Error(err)
			}
			if _, err := c.Compress(nil, value); !errors.Is(err, os.ErrClosed) {
				t.Errorf("closed: %v", err)
			}
		}
	}
}
