package content_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"encoding/gob"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/content"
)

// A maker makes a value of a kind; the same rng makes the same. size is what it is to have in
// bytes, about, before it is compressed.
type maker func(t testing.TB, rng *rand.Rand, size int) []byte

// kinds are makers of values whose kind is known, with real libraries where Go has them.
var kinds = []struct {
	name string
	kind content.Kind
	make maker
}{
	{"json", content.JSON, asJSON},
	{"json array", content.JSON, func(t testing.TB, rng *rand.Rand, size int) []byte { return encoded(t, json.Marshal, list(rng, size)) }},
	{"json indented", content.JSON, func(t testing.TB, rng *rand.Rand, size int) []byte {
		var b bytes.Buffer
		must(t, json.Indent(&b, asJSON(t, rng, size), "", "  "))
		return b.Bytes()
	}},
	{"text", content.Text, asText},
	{"log", content.Text, func(_ testing.TB, rng *rand.Rand, size int) []byte {
		var b []byte
		for len(b) < size {
			b = fmt.Appendf(b, "[%d] 2026-01-02T03:04:05Z GET /api/%s?id=%d 200 %.3f\n", rng.IntN(100), word(rng), rng.IntN(1e6), rng.Float64())
		}
		return b
	}},
	{"html", content.Text, func(_ testing.TB, rng *rand.Rand, size int) []byte {
		b := []byte("<!doctype html><html>")
		for len(b) < size {
			b = fmt.Appendf(b, "<div class=\"%s\">%s</div>\n", word(rng), word(rng))
		}
		return b
	}},
	{"base64", content.Text, func(t testing.TB, rng *rand.Rand, size int) []byte {
		return []byte(base64.StdEncoding.EncodeToString(randomBytes(t, rng, size*3/4)))
	}},
	{"hex", content.Text, func(t testing.TB, rng *rand.Rand, size int) []byte {
		return fmt.Appendf(nil, "x%x", randomBytes(t, rng, size/2))
	}},
	{"msgpack", content.Msgpack, asMsgpack},
	{"msgpack array", content.Msgpack, func(t testing.TB, rng *rand.Rand, size int) []byte {
		return encoded(t, msgpack.Marshal, list(rng, size))
	}},
	{"cbor", content.CBOR, asCBOR},
	{"cbor array", content.CBOR, func(t testing.TB, rng *rand.Rand, size int) []byte { return encoded(t, cbor.Marshal, list(rng, size)) }},
	{"protobuf", content.Protobuf, asProtobuf},
	{"go-redis/cache", content.GoRedisCache, func(t testing.TB, rng *rand.Rand, size int) []byte { return append(asMsgpack(t, rng, size), 0) }},
	{"go-redis/cache s2", content.GoRedisCacheS2, func(t testing.TB, rng *rand.Rand, size int) []byte {
		return append(s2.Encode(nil, asMsgpack(t, rng, size)), 1)
	}},
	{"php", content.PHP, asPHP},
	{"php session", content.PHP, func(t testing.TB, rng *rand.Rand, size int) []byte {
		return append([]byte("_token|s:2:\"ab\";user|"), asPHP(t, rng, size)...)
	}},
	{"gzip", content.Gzip, compressedBy(func(w io.Writer) io.WriteCloser { return gzip.NewWriter(w) })},
	{"zlib", content.Zlib, compressedBy(func(w io.Writer) io.WriteCloser { return zlib.NewWriter(w) })},
	{"zstd", content.Zstd, func(t testing.TB, rng *rand.Rand, size int) []byte {
		return zstdEncoder.EncodeAll(asJSON(t, rng, size), nil)
	}},
	{"lz4", content.LZ4, compressedBy(func(w io.Writer) io.WriteCloser { return lz4.NewWriter(w) })},
	{"snappy framed", content.Snappy, compressedBy(func(w io.Writer) io.WriteCloser { return snappy.NewBufferedWriter(w) })},
	{"s2 framed", content.S2, compressedBy(func(w io.Writer) io.WriteCloser { return s2.NewWriter(w, s2.WriterConcurrency(1)) })},
	{"snappy block", content.Snappy, func(t testing.TB, rng *rand.Rand, size int) []byte {
		return s2.EncodeSnappy(nil, asJSON(t, rng, size))
	}},
	{"random", content.Random, randomBytes},
}

// slow are the kinds whose writers take long to make.
var slow = map[string]bool{"gzip": true, "zlib": true, "lz4": true, "snappy framed": true, "s2 framed": true}

var zstdEncoder, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func encoded(t testing.TB, marshal func(any) ([]byte, error), v any) []byte {
	t.Helper()
	b, err := marshal(v)
	must(t, err)
	return b
}

// words are of several languages and scripts.
var words = strings.Fields(`order invoice the of a customer Straße über Größe für naïve café déjà élève señor mañana ação
заказ товар и корзина город пользователь 注文 商品 こんにちは 世界 配送 用户 订单 购物车 谢谢 주문 고객 감사합니다 مرحبا طلب عميل שלום लेख ग्राहक ลูกค้า 🚀 👍🏽 ελληνικά`)

func word(rng *rand.Rand) string { return words[rng.IntN(len(words))] }

func sentence(rng *rand.Rand, n int) string {
	var b strings.Builder
	for b.Len() < n {
		b.WriteString(word(rng))
		b.WriteByte(" \n ,.!"[rng.IntN(6)])
	}
	return b.String()
}

// record is what values hold: fields as a cache's have.
func record(rng *rand.Rand) map[string]any {
	r := map[string]any{
		"id": rng.IntN(1 << 30), "name": word(rng), "email": fmt.Sprintf("user%d@example.org", rng.IntN(1e6)), "verified": rng.IntN(2) == 0, "deleted_at": nil,
		"price": float64(rng.IntN(1e5)) / 100, "tags": []string{word(rng), word(rng)}, "size": map[string]any{"w": rng.IntN(300), "h": -rng.IntN(70000)},
	}
	if rng.IntN(3) == 0 {
		r["text"] = sentence(rng, rng.IntN(300))
	}
	if rng.IntN(8) == 0 {
		r["scores"] = []float64{rng.Float64(), rng.NormFloat64()}
	}
	return r
}

func list(rng *rand.Rand, size int) []any {
	all := []any{rng.IntN(100), word(rng)}
	for n := 120; n < size; n += 120 {
		all = append(all, record(rng))
	}
	return all
}

// object is a record, or a page of them, of about as many bytes as size, 100 at least.
func object(rng *rand.Rand, size int) map[string]any {
	if size < 250 {
		return record(rng)
	}
	return map[string]any{"page": rng.IntN(20), "items": list(rng, size)}
}

func asJSON(t testing.TB, rng *rand.Rand, size int) []byte {
	return encoded(t, json.Marshal, object(rng, size))
}

func asMsgpack(t testing.TB, rng *rand.Rand, size int) []byte {
	return encoded(t, msgpack.Marshal, object(rng, size))
}

func asCBOR(t testing.TB, rng *rand.Rand, size int) []byte {
	return encoded(t, cbor.Marshal, object(rng, size))
}

func asText(_ testing.TB, rng *rand.Rand, size int) []byte { return []byte(sentence(rng, size)) }

func randomBytes(_ testing.TB, rng *rand.Rand, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// compressedBy compresses JSON. The JSON is somewhat longer than size, so that its compressed form
// is at least half as long.
func compressedBy(writer func(io.Writer) io.WriteCloser) maker {
	return func(t testing.TB, rng *rand.Rand, size int) []byte {
		var b bytes.Buffer
		w := writer(&b)
		_, err := w.Write(asJSON(t, rng, size))
		must(t, err)
		must(t, w.Close())
		return b.Bytes()
	}
}

// asProtobuf is a message with fields of every type but groups.
func asProtobuf(_ testing.TB, rng *rand.Rand, size int) []byte {
	text := func(b []byte, number uint64, s []byte) []byte {
		return append(binary.AppendUvarint(binary.AppendUvarint(b, number<<3|2), uint64(len(s))), s...)
	}
	one := func() []byte {
		b := binary.AppendUvarint([]byte{1 << 3}, rng.Uint64N(1<<40))
		b = text(b, 2, []byte(word(rng)))
		b = text(b, 3, fmt.Appendf(nil, "user%d@example.org", rng.IntN(1e6)))
		b = append(b, 4<<3, byte(rng.IntN(2)))
		b = binary.LittleEndian.AppendUint64(append(b, 5<<3|1), rng.Uint64())
		b = binary.LittleEndian.AppendUint32(append(b, 6<<3|5), rng.Uint32())
		b = text(b, 7, text(append([]byte{1 << 3}, byte(rng.IntN(128))), 2, []byte(word(rng))))
		if rng.IntN(4) == 0 {
			b = binary.AppendUvarint(append(b, 8<<3), uint64(-rng.Int64N(1000)))
		}
		b = text(b, 19, []byte(sentence(rng, 1+rng.IntN(60))))
		return text(b, 20, []byte{byte(rng.IntN(128)), byte(rng.IntN(128)), 0xac, 2}) // packed
	}
	if size < 250 {
		return one()
	}
	b := []byte{1 << 3, byte(rng.IntN(128))}
	for len(b) < size {
		b = text(b, 2, one())
	}
	return b
}

// asPHP is what PHP's serialize makes of an array or an object.
func asPHP(_ testing.TB, rng *rand.Rand, size int) []byte {
	var body []byte
	n := 0
	for ; n == 0 || len(body) < size; n++ {
		w := word(rng)
		body = fmt.Appendf(body, "s:%d:%q;", 2+len(strconv.Itoa(n)), "k_"+strconv.Itoa(n))
		switch rng.IntN(5) {
		case 0:
			body = fmt.Appendf(body, "i:%d;", rng.IntN(1000))
		case 1:
			body = append(body, "a:1:{i:0;N;}"...)
		case 2:
			body = append(body, "s:4:\"\x00\xff\x01\x02\";"...)
		default:
			body = fmt.Appendf(body, "s:%d:\"%s\";", len(w), w)
		}
	}
	if rng.IntN(2) == 0 {
		return fmt.Appendf(nil, "O:8:\"App\\User\":%d:{%s}", n, body)
	}
	return fmt.Appendf(nil, "a:%d:{%s}", n, body)
}

// others are values that are no format of ours, and must be taken for none: by name, what they may
// be called.
var others = []struct {
	name string
	ok   []content.Kind
	make maker
}{
	{"gob", []content.Kind{content.Binary}, func(t testing.TB, rng *rand.Rand, _ int) []byte {
		type user struct {
			ID    int
			Name  string
			Tags  []string
			Price float64
		}
		var b bytes.Buffer
		must(t, gob.NewEncoder(&b).Encode(user{rng.IntN(1e6), word(rng), []string{word(rng)}, rng.Float64()}))
		return b.Bytes()
	}},
	{"latin-1", []content.Kind{content.Binary, content.Text}, func(_ testing.TB, rng *rand.Rand, size int) []byte {
		return singleBytes(rng, size, strings.Fields("Straße über Größe für naïve café déjà élève señor mañana ação the of")...)
	}},
	{"windows-1251", []content.Kind{content.Binary, content.Text}, func(_ testing.TB, rng *rand.Rand, size int) []byte {
		return singleBytes(rng, size, strings.Fields("заказ товар Корзина город Яблоко Ввод юг")...)
	}},
	{"utf-16", []content.Kind{content.Binary}, func(_ testing.TB, rng *rand.Rand, size int) []byte {
		var b []byte
		for _, r := range sentence(rng, size) {
			b = binary.LittleEndian.AppendUint16(b, uint16(r))
		}
		return b
	}},
	{"float64s", []content.Kind{content.Binary, content.Random}, func(_ testing.TB, rng *rand.Rand, size int) []byte {
		var b []byte
		for len(b) < size {
			b, _ = binary.Append(b, binary.LittleEndian, rng.NormFloat64())
		}
		return b
	}},
	{"float32s", []content.Kind{content.Binary}, func(_ testing.TB, rng *rand.Rand, size int) []byte {
		var b []byte
		for len(b) < size {
			b, _ = binary.Append(b, binary.LittleEndian, float32(rng.NormFloat64()))
		}
		return b
	}},
	{"uint32s", []content.Kind{content.Binary}, func(_ testing.TB, rng *rand.Rand, size int) []byte {
		var b []byte
		for len(b) < size {
			b = binary.BigEndian.AppendUint32(b, rng.Uint32N(100000))
		}
		return b
	}},
	{"bits", []content.Kind{content.Binary}, func(_ testing.TB, rng *rand.Rand, size int) []byte {
		b := make([]byte, size)
		for range size/2 + 1 {
			b[rng.IntN(len(b))] |= 1 << rng.IntN(8)
		}
		return b
	}},
	{"lz4 block", []content.Kind{content.Binary, content.Random}, func(t testing.TB, rng *rand.Rand, size int) []byte {
		src := asJSON(t, rng, size)
		dst := make([]byte, lz4.CompressBlockBound(len(src)))
		n, err := lz4.CompressBlock(src, dst, nil)
		must(t, err)
		if n == 0 {
			return src[:0]
		}
		return dst[:n]
	}},
	{"fix", []content.Kind{content.Binary}, func(_ testing.TB, rng *rand.Rand, size int) []byte {
		b := []byte("8=FIX.4.2\x01")
		for len(b) < size {
			b = fmt.Appendf(b, "%d=%s%d\x01", rng.IntN(300), word(rng), rng.IntN(1000))
		}
		return b
	}},
	{"c string", []content.Kind{content.Binary}, func(t testing.TB, rng *rand.Rand, size int) []byte { return append(asText(t, rng, size), 0) }},
}

// singleBytes is text in an encoding with a byte for a character: Latin-1, or Windows-1251 for
// Cyrillic letters.
func singleBytes(rng *rand.Rand, size int, words ...string) []byte {
	var b []byte
	for len(b) < size {
		for _, r := range words[rng.IntN(len(words))] {
			if r >= 'А' && r <= 'я' {
				r = r - 'А' + 0xc0
			}
			b = append(b, byte(r))
		}
		b = append(b, ' ')
	}
	return b
}

// packed is a frame of the project.
func packed(t testing.TB, plain []byte) []byte {
	t.Helper()
	packer, err := bale.NewPacker(bale.PackerOptions{})
	must(t, err)
	b, err := packer.Pack(nil, plain)
	must(t, err)
	return b
}
