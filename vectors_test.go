package bale

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/testvalues"
)

var appendVectors = flag.Bool("append-vectors", false, "append vectors that frame/testdata does not have yet")

const (
	vectorsFile     = "frame/testdata/vectors.ndjson"
	rawDictFile     = "frame/testdata/raw.dict"
	trainedDictFile = "frame/testdata/trained.dict"
)

// vector is a stored value with the result that every reader must get, in all versions.
// frame/testdata/README.md explains the fields.
type vector struct {
	Name    string `json:"name"`
	Stored  string `json:"stored"`            // hex
	Content string `json:"content,omitempty"` // hex; of the value as it is for a foreign one
	Error   string `json:"error,omitempty"`
	Strict  bool   `json:"strict,omitempty"`
	MaxSize int    `json:"max_size,omitempty"`
}

// vectorErrors are the classes that Error names.
var vectorErrors = map[string]error{
	"corrupt": ErrCorrupt, "too large": ErrTooLarge, "unknown dictionary": ErrUnknownDictionary, "unknown algorithm": ErrUnknownAlgorithm,
	"not found": ErrNotFound,
}

func readVectors(t *testing.T) []vector {
	t.Helper()
	f, err := os.Open(vectorsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []vector
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func readDict(t testing.TB, path string) *frame.Dictionary {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	d, err := frame.NewDictionary(b)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// dictionaryReaders read values with either dictionary of testdata.
func dictionaryReaders(t testing.TB) []Compressor {
	t.Helper()
	var readers []Compressor
	for _, path := range []string{rawDictFile, trainedDictFile} {
		for _, a := range []frame.Algorithm{frame.S2, frame.LZ4, frame.Zstd} {
			readers = append(readers, newCompressor(t, compress.Setting{Algorithm: a}, readDict(t, path)))
		}
	}
	return readers
}

func newCompressor(t testing.TB, s compress.Setting, d *frame.Dictionary) Compressor {
	t.Helper()
	c, err := s.New(d)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newPacker(t testing.TB, o PackerOptions) *Packer {
	t.Helper()
	p, err := NewPacker(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// TestVectors reads everything that was ever frozen.
func TestVectors(t *testing.T) {
	if *appendVectors {
		writeVectors(t)
	}
	readers := dictionaryReaders(t)
	all := readVectors(t)
	if len(all) < 25 {
		t.Fatalf("%d vectors", len(all))
	}
	for _, v := range all {
		stored, err := hex.DecodeString(v.Stored)
		if err != nil {
			t.Fatal(err)
		}
		p := newPacker(t, PackerOptions{Compressors: &compress.Set{Read: readers}, Strict: v.Strict, MaxSize: v.MaxSize})
		got, err := p.Unpack(t.Context(), []byte("before"), stored)
		if v.Error != "" {
			if want := vectorErrors[v.Error]; want == nil || !errors.Is(err, want) || string(got) != "before" {
				t.Errorf("%s: error %v, want %s", v.Name, err, v.Error)
			}
			continue
		}
		if err != nil || hex.EncodeToString(bytes.TrimPrefix(got, []byte("before"))) != v.Content {
			t.Errorf("%s: %v, %d bytes", v.Name, err, len(got))
		}
	}
}

// TestVectorsByStockLibraries decodes the payloads of the vectors as the comment of package frame
// tells readers in other languages to.
func TestVectorsByStockLibraries(t *testing.T) {
	dictionaries := map[frame.DictionaryID][]byte{}
	for _, path := range []string{rawDictFile, trainedDictFile} {
		d := readDict(t, path)
		dictionaries[d.ID()] = d.Bytes()
	}
	seen := map[string]bool{}
	for _, v := range readVectors(t) {
		stored, _ := hex.DecodeString(v.Stored)
		h, offset, ok := frame.Parse(stored)
		if !ok || v.Error != "" {
			continue
		}
		payload := stored[offset:]
		if h.Version == frame.V2 {
			_, _, size, _ := frame.ParseTrailer(payload)
			payload = payload[:len(payload)-size]
		}
		got, err := stockDecode(h, payload, dictionaries[h.DictionaryID])
		if err != nil || hex.EncodeToString(got) != v.Content {
			t.Errorf("%s: %v", v.Name, err)
		}
		seen[fmt.Sprint(h.Algorithm, h.DictionaryID != 0)] = true
	}
	for _, want := range []string{"none false", "snappy false", "s2 false", "s2 true", "lz4 false", "lz4 true", "gzip false", "zstd false", "zstd true"} {
		if !seen[want] {
			t.Errorf("no vector with %s", want)
		}
	}
}

func stockDecode(h frame.Header, payload, dictionary []byte) ([]byte, error) {
	tail := dictionary[max(0, len(dictionary)-64<<10):]
	switch h.Algorithm {
	case frame.Stored:
		return payload, nil
	case frame.Snappy:
		return snappy.Decode(nil, payload)
	case frame.S2:
		if dictionary != nil {
			return s2.MakeDictManual(tail, 0).Decode(nil, payload)
		}
		return s2.Decode(nil, payload)
	case frame.LZ4:
		dst := make([]byte, h.Length)
		n, err := lz4.UncompressBlockWithDict(payload, dst, tail)
		return dst[:n], err
	case frame.Gzip:
		r, err := gzip.NewReader(bytes.NewReader(payload))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	case frame.Zstd:
		b := append([]byte{0x28, 0xB5, 0x2F, 0xFD}, payload...)
		if b[4]&3 != 0 {
			return nil, errors.New("the payload names a dictionary")
		}
		// This library, unlike libzstd, wants an id for a trained dictionary: put the dictionary's
		// own in.
		options := []zstd.DOption{zstd.WithDecoderDictRaw(0, dictionary)}
		if bytes.HasPrefix(dictionary, []byte{0x37, 0xA4, 0x30, 0xEC}) {
			options = []zstd.DOption{zstd.WithDecoderDicts(dictionary)}
			at := 5
			if b[4]&0x20 == 0 {
				at = 6 // after the window
			}
			b = append(b[:at:at], append(bytes.Clone(dictionary[4:8]), b[at:]...)...)
			b[4] |= 3
		}
		d, err := zstd.NewReader(nil, options...)
		if err != nil {
			return nil, err
		}
		defer d.Close()
		return d.DecodeAll(b, nil)
	}
	return nil, fmt.Errorf("unknown %v", h.Algorithm)
}

// writeVectors appends the vectors that are missing, by name; it never changes one.
func writeVectors(t *testing.T) {
	have := map[string]bool{}
	if _, err := os.Stat(vectorsFile); err == nil {
		for _, v := range readVectors(t) {
			have[v.Name] = true
		}
	}
	f, err := os.OpenFile(vectorsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	add := func(v vector, stored, content []byte) {
		if have[v.Name] {
			return
		}
		v.Stored, v.Content = hex.EncodeToString(stored), hex.EncodeToString(content)
		line, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(f, "%s\n", line); err != nil {
			t.Fatal(err)
		}
	}
	content := testvalues.Profile(7)
	pack := func(o PackerOptions, src []byte) []byte {
		stored, err := newPacker(t, o).Pack(nil, src)
		if err != nil {
			t.Fatal(err)
		}
		return stored
	}
	for _, a := range []frame.Algorithm{frame.Snappy, frame.S2, frame.LZ4, frame.Gzip, frame.Zstd} {
		setting := compress.Setting{Algorithm: a}
		src := content
		if a == frame.Snappy || a == frame.S2 || a == frame.LZ4 {
			src = testvalues.Page(7) // a single profile does not get smaller by them
		}
		c := newCompressor(t, setting, nil)
		add(vector{Name: a.String()}, pack(PackerOptions{Compressors: &compress.Set{Write: c}}, src), src)
		add(vector{Name: a.String() + " without checksum"}, pack(PackerOptions{Compressors: &compress.Set{Write: c}, NoChecksum: true}, src), src)
		if setting.TakesDictionary() {
			for name, path := range map[string]string{"raw": rawDictFile, "trained": trainedDictFile} {
				c := newCompressor(t, setting, readDict(t, path))
				add(vector{Name: a.String() + " with the " + name + " dictionary"}, pack(PackerOptions{Compressors: &compress.Set{Write: c}}, content), content)
			}
		}
	}
	zeros := make([]byte, 66_000)
	add(vector{Name: "zstd, several blocks"}, pack(PackerOptions{}, zeros), zeros)
	packed := pack(PackerOptions{}, content)
	add(vector{Name: "a frame as content"}, pack(PackerOptions{}, packed), packed)
	add(vector{Name: "content that starts with the magic"}, pack(PackerOptions{}, []byte("\xba\x1e and more")), []byte("\xba\x1e and more"))
	add(vector{Name: "the magic alone, escaped"}, pack(PackerOptions{}, []byte("\xba\x1e")), []byte("\xba\x1e"))
	add(vector{Name: "foreign: empty"}, nil, nil)
	add(vector{Name: "foreign: a number"}, []byte("12"), []byte("12"))
	add(vector{Name: "foreign: text"}, []byte(`{"plain":true}`), []byte(`{"plain":true}`))
	foreign := []byte("\xba\x1e\x15 but no header")
	add(vector{Name: "foreign: starts with the magic"}, foreign, foreign)
	add(vector{Name: "strict: starts with the magic", Strict: true, Error: "corrupt"}, foreign, nil)
	add(vector{Name: "strict: text", Strict: true}, []byte(`{"plain":true}`), []byte(`{"plain":true}`))
	add(vector{Name: "cut", Error: "corrupt"}, packed[:len(packed)-1], nil)
	add(vector{Name: "continued", Error: "corrupt"}, append(bytes.Clone(packed), 0), nil)
	escaped := pack(PackerOptions{}, []byte("\xba\x1e and more"))
	escaped[len(escaped)-1] ^= 1
	add(vector{Name: "a flipped bit of stored content", Error: "corrupt"}, escaped, nil)
	add(vector{Name: "header of another content", Error: "corrupt"},
		append(frame.Header{Algorithm: frame.Stored, HasChecksum: true, Checksum: frame.Checksum([]byte("this")), Length: 4}.Append(nil), "that"...), nil)
	add(vector{Name: "too large", MaxSize: 100, Error: "too large"}, packed, nil)
	add(vector{Name: "a length that nobody has", Error: "too large"}, frame.Header{Algorithm: frame.LZ4, Length: 1 << 62}.Append(nil), nil)
	add(vector{Name: "unknown dictionary", Error: "unknown dictionary"}, append(frame.Header{Algorithm: frame.Zstd, DictionaryID: 0x12345678, Length: 4}.Append(nil), "xxxx"...), nil)
	add(vector{Name: "unknown algorithm", Error: "unknown algorithm"}, append(frame.Header{Algorithm: 9, Length: 4}.Append(nil), "xxxx"...), nil)
	add(vector{Name: "unknown version", Error: "unknown algorithm"}, append(frame.Header{Version: 2, Algorithm: frame.Zstd, Length: 4}.Append(nil), "xxxx"...), nil)
	fresh := frame.Freshness{Expires: time.UnixMilli(1_800_000_000_123), Took: 45 * time.Millisecond}
	packFresh := func(o PackerOptions, src []byte, f frame.Freshness) []byte {
		stored, _, err := newPacker(t, o).pack(nil, src, &f)
		if err != nil {
			t.Fatal(err)
		}
		return stored
	}
	add(vector{Name: "version 2: fresh"}, packFresh(PackerOptions{}, content, fresh), content)
	add(vector{Name: "version 2: fresh, with the trained dictionary"},
		packFresh(PackerOptions{Compressors: &compress.Set{Write: newCompressor(t, compress.Setting{Algorithm: frame.Zstd}, readDict(t, trainedDictFile))}}, content, fresh), content)
	add(vector{Name: "version 2: fresh s2"}, packFresh(PackerOptions{Compressors: &compress.Set{Write: newCompressor(t, compress.Setting{Algorithm: frame.S2}, nil)}}, testvalues.Page(7), fresh), testvalues.Page(7))
	add(vector{Name: "version 2: fresh and not packed"}, packFresh(PackerOptions{}, []byte("12"), fresh), []byte("12"))
	add(vector{Name: "version 2: fresh and empty, for ever"}, packFresh(PackerOptions{}, nil, frame.Freshness{}), nil)
	add(vector{Name: "version 2: no value", Error: "not found"}, packFresh(PackerOptions{}, nil, frame.Freshness{Expires: fresh.Expires, Absent: true}), nil)
	damaged := packFresh(PackerOptions{}, content, fresh)
	damaged[len(damaged)-1] ^= 1
	add(vector{Name: "version 2: damaged trailer", Error: "corrupt"}, damaged, nil)
	add(vector{Name: "version 2: no trailer", Error: "corrupt"}, append(frame.Header{Version: frame.V2, Length: 2}.Append(nil), "12"...), nil)
	add(vector{Name: "chunks are not a value", Error: "unknown algorithm"}, append(frame.Header{Algorithm: frame.Chunks, Length: 4}.Append(nil), "xxxx"...), nil)
	// What the text had left open to somebody who wrote a reader.
	add(vector{Name: "zstd, and an empty frame behind it", Error: "corrupt"}, append(bytes.Clone(packed), 0x28, 0xB5, 0x2F, 0xFD, 0x20, 0, 1, 0, 0), nil)
	add(vector{Name: "zstd, and a skippable frame behind it", Error: "corrupt"}, append(bytes.Clone(packed), 0x50, 0x2A, 0x4D, 0x18, 0, 0, 0, 0), nil)
	add(vector{Name: "unknown algorithm, with more than a payload may have", Error: "unknown algorithm"}, append(frame.Header{Algorithm: 9, Length: 4}.Append(nil), make([]byte, 2000)...), nil)
	add(vector{Name: "stored, with more than a payload may have", Error: "corrupt"}, append(frame.Header{Length: 4}.Append(nil), make([]byte, 2000)...), nil)
	add(vector{Name: "a length of the limit", MaxSize: len(content)}, packed, content)
	add(vector{Name: "version 2: a trailer that is too short", Error: "corrupt"}, append(frame.Header{Version: frame.V2}.Append(nil), 1, 2, 3), nil)
	for name, b := range map[string][]byte{
		"foreign: a dictionary id of zero":        {0xBA, 0x1E, 1 << 5, 0, 0, 0, 0, 0, 0, 4, 'x', 'x', 'x', 'x'},
		"foreign: a length that could be shorter": {0xBA, 0x1E, 0, 0, 0, 0x84, 0, 'x', 'x', 'x', 'x'},
	} {
		sum := crc32.Checksum(slices.Concat(b[:3], b[5:len(b)-4]), crc32.MakeTable(crc32.Castagnoli))
		binary.LittleEndian.PutUint16(b[3:], uint16(sum>>16)^uint16(sum))
		add(vector{Name: name}, b, b)
	}
}
