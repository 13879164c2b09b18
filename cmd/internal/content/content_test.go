package content_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/pierrec/lz4/v4"
	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/content"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/internal/testvalues"
)

func TestDetect(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	manifest := []byte{1, 1, 'g', 5, 5, 1}
	long := strings.Repeat(`{"id":1,"name":"Ada"},`, 100)
	// A zstd frame behind a skippable one, as pzstd writes them.
	skippable := append([]byte("\x50\x2a\x4d\x18\x04\x00\x00\x00abcd"), zstdEncoder.EncodeAll([]byte(long), nil)...)
	for _, test := range []struct {
		name  string
		value []byte
		part  bool
		want  content.Kind
	}{
		{"nothing", nil, false, content.Empty},
		{"object", []byte(`{"a":1}`), false, content.JSON},
		{"empty object", []byte(`{}`), false, content.JSON},
		{"array in white space", []byte(" [1, 2]\n"), false, content.JSON},
		{"quoted string", []byte(`"a"`), false, content.JSON},
		{"true", []byte(`true`), false, content.JSON},
		{"null", []byte(`null`), false, content.JSON},
		{"truth", []byte(`truth`), false, content.Text},
		{"object that is not JSON", []byte(`{a:1}`), false, content.Text},
		{"cut object of a whole value", []byte(`{"a":`), false, content.Text},
		{"cut object", []byte(`{"a":"\u00`), true, content.JSON},
		{"object cut in a character", []byte("{\"a\":\"\xe4\xb8"), true, content.JSON},
		{"part with a fault", []byte(`{"a":1]   `), true, content.Text},
		{"two objects", []byte("{}\n{}"), false, content.Text},
		{"log line", []byte(`[2026-01-02] started`), true, content.Text},
		{"long JSON", []byte("[" + long), true, content.JSON},

		{"zero", []byte("0"), false, content.Number},
		{"int64", []byte("-9223372036854775808"), false, content.Number},
		{"float", []byte("3.0000000000000000001e+20"), false, content.Number},
		{"zeros in front", []byte("007"), false, content.Text},
		{"a number and a space", []byte("7 "), false, content.Text},
		{"hundred digits", []byte(strings.Repeat("1", 100)), false, content.Text},
		{"date", []byte("2026-01-02"), false, content.Text},

		{"Chinese", []byte("世界"), false, content.Text},
		{"cut in a character", []byte("世界\xe4\xb8"), true, content.Text},
		{"half a character", []byte("世界\xe4\xb8"), false, content.Binary},
		{"control", []byte("a\x00b"), false, content.Binary},
		{"single byte", []byte{0x81}, false, content.Binary},
		{"empty map of msgpack", []byte{0x80}, false, content.Binary},

		{"PHP array", []byte(`a:1:{s:2:"id";i:7;}`), false, content.PHP},
		{"empty PHP array", []byte(`a:0:{}`), false, content.PHP},
		{"PHP object", []byte("O:8:\"stdClass\":1:{s:3:\"\x00*\x00\";i:7;}"), false, content.PHP},
		{"PHP string", []byte("s:3:\"a\xffb\";"), false, content.PHP},
		{"PHP integer", []byte("i:-5;"), false, content.PHP},
		{"PHP null", []byte("N;"), false, content.PHP},
		{"cut PHP", []byte(`a:2:{s:2:"id";i:7;s:4:"na`), true, content.PHP},
		{"like PHP", []byte(`a:2: the second`), false, content.Text},
		{"key and value", []byte(`a|b: c;`), false, content.Text},
		{"PHP session", []byte(`user|a:1:{i:0;N;}n|i:5;`), false, content.PHP},
		{"igbinary", []byte("\x00\x00\x00\x02\x14\x01\x11\x02id\x06\x07"), false, content.Igbinary},
		{"two numbers", []byte("\x00\x00\x00\x02\x00\x00\x00\x07"), false, content.Binary},
		{"Java", []byte("\xac\xed\x00\x05t\x00\x03Ada"), false, content.Java},
		{"pickle 2", []byte("\x80\x02]q\x00(K\x01K\x02K\x03e."), false, content.Pickle},
		{"pickle 5", []byte("\x80\x05\x959\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\x02id\x94K\x07\x8c\x04name\x94\x8c\x03Ada\x94\x8c\x04tags\x94]\x94(\x8c\x01a\x94\x8c\x01b\x94e\x8c\x01x\x94G?\xf8\x00\x00\x00\x00\x00\x00u."), false, content.Pickle},
		{"Ruby", []byte("\x04\x08{\x06:\x07idi\x0c"), false, content.Ruby},

		{"bale", packed(t, []byte(long)), false, content.Bale},
		{"bale, cut", packed(t, []byte(long))[:20], true, content.Bale},
		{"stream", append(frame.Header{Algorithm: frame.Chunks, Length: 6}.Append(nil), manifest...), false, content.BaleStream},
		{"behind a skippable frame", skippable, false, content.Zstd},
		{"a long skippable frame", []byte("\x50\x2a\x4d\x18\x00\x00\x01\x00abcd"), true, content.Zstd},
		{"lz4 block", lz4Block(t, long), false, content.Binary},
		{"s2 block with repeats", s2.EncodeBest(nil, []byte(strings.Repeat("\x00\x01\x02\x03abc", 1000))), false, content.S2},
		{"snappy block with a byte too many", append(s2.EncodeSnappy(nil, []byte(long)), 0), false, content.Binary},
		{"png", []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR"), false, content.Image},
		{"jpeg", []byte("\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01"), false, content.Image},
		{"gif", []byte("GIF89a\x01\x00\x01\x00\x80\x00\x00"), false, content.Image},
		{"of gifs", []byte("GIF89a is a format"), false, content.Text},
		{"webp", []byte("RIFF\x24\x00\x00\x00WEBPVP8 \x18\x00\x00\x00"), false, content.Image},
		{"wav", []byte("RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00"), false, content.Binary},
		{"63 random bytes", randomBytes(t, rng, 63), false, content.Binary},
		{"64 random bytes", randomBytes(t, rng, 64), false, content.Random},
		{"uuid", []byte("\x6b\xa7\xb8\x10\x9d\xad\x11\xd1\x80\xb4\x00\xc0\x4f\xd4\x30\xc8"), false, content.Binary},
		{"little endian number", binary.LittleEndian.AppendUint64(nil, 7), false, content.Binary},
		{"msgpack of one member", []byte("\x81\xa1a\x01"), false, content.Msgpack},
		{"cbor of one member", []byte("\xa1\x61a\x01"), false, content.CBOR},
		{"cbor of no length", []byte("\xbf\x61a\x9f\x01\x02\xff\x61b\x7f\x61x\x61y\xff\xff"), false, content.CBOR},
		{"tagged cbor", []byte("\xd9\xd9\xf7\xa1\x61a\xc1\x01"), false, content.CBOR},
	} {
		if got := content.Detect(test.value, !test.part); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func lz4Block(t *testing.T, s string) []byte {
	t.Helper()
	dst := make([]byte, lz4.CompressBlockBound(len(s)))
	n, err := lz4.CompressBlock([]byte(s), dst, nil)
	must(t, err)
	return dst[:n]
}

func TestKinds(t *testing.T) {
	seen := map[string]bool{}
	for k := content.Empty; k <= content.Binary; k++ {
		if seen[k.String()] || content.ParseKind(k.String()) != k {
			t.Errorf("%d is %v, which is %d", k, k, content.ParseKind(k.String()))
		}
		seen[k.String()] = true
	}
	if got := content.ParseKind("no such"); got != content.Binary {
		t.Errorf("an unknown name is %v", got)
	}
	if !content.Random.Compressed() || content.JSON.Compressed() || !content.HyperLogLog.Untouchable() || content.JSON.Untouchable() {
		t.Error("Compressed or Untouchable is wrong")
	}
}

// TestHyperLogLog lets Redis make the values to detect: both of its encodings.
func TestHyperLogLog(t *testing.T) {
	server := redisproc.ForTest(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	for _, n := range []int{1, 20000} {
		key := fmt.Sprint("visitors:", n)
		pipe := rdb.Pipeline()
		for i := range n {
			pipe.PFAdd(t.Context(), key, i)
		}
		_, err := pipe.Exec(t.Context())
		must(t, err)
		v, err := rdb.Get(t.Context(), key).Bytes()
		must(t, err)
		if got := content.Detect(v, true); got != content.HyperLogLog {
			t.Errorf("of %d elements: %v", n, got)
		}
	}
}

// rates are how many values of each size are taken for each kind.
type rates map[content.Kind]int

func (r rates) String() string {
	var b strings.Builder
	for k := content.Empty; k <= content.Binary; k++ {
		if r[k] > 0 {
			fmt.Fprintf(&b, " %v: %d", k, r[k])
		}
	}
	return b.String()
}

const valuesEach = 10000

// draws is the number of values to try for a kind: fewer of slow kinds, and fewer of all kinds with
// -short or the race detector.
func draws(name string) int {
	n := valuesEach
	if slow[name] {
		n /= 10
	}
	if testing.Short() || testvalues.Race {
		n /= 20
	}
	return n
}

// sizes are spread so that there are as many between 64 and 128 bytes as between 4 and 8 KiB.
func size(rng *rand.Rand, least, octaves int) int {
	n := least << rng.IntN(octaves)
	return n + rng.IntN(n)
}

// textual are the kinds whose values must never be taken for anything else.
var textual = map[content.Kind]bool{content.JSON: true, content.Text: true, content.PHP: true}

// TestRates holds how often values are taken for what they are not.
func TestRates(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(7, 7))
			n, got, cut := draws(k.name), rates{}, rates{}
			for range n {
				v := k.make(t, rng, size(rng, 64, 7))
				for len(v) < 64 {
					v = k.make(t, rng, size(rng, 512, 2))
				}
				is := content.Detect(v, true)
				got[is]++
				if textual[k.kind] && is != k.kind {
					t.Errorf("%q is %v", v, is)
				}
			}
			for range n / 5 {
				v := k.make(t, rng, size(rng, 2048, 3))
				for len(v) < 512 {
					v = k.make(t, rng, size(rng, 8192, 3))
				}
				v = v[:256+rng.IntN(len(v)-256)]
				is := content.Detect(v, false)
				cut[is]++
				if textual[k.kind] && is != k.kind {
					t.Errorf("%q, cut, is %v", v, is)
				}
			}
			t.Logf("of %d:%v; of %d cut ones:%v", n, got, n/5, cut)
			if right := got[k.kind]; right*100 < n*99 {
				t.Errorf("%d of %d are right", right, n)
			}
			wantCut := n / 5 * 99 / 100
			switch k.kind {
			case content.GoRedisCache: // cut, there is no byte behind
				cut[k.kind] += cut[content.Msgpack]
			case content.GoRedisCacheS2:
				cut[k.kind] += cut[content.Snappy] + cut[content.S2]
			}
			if k.name == "snappy block" || k.name == "go-redis/cache s2" {
				wantCut = 0
			}
			if cut[k.kind] < wantCut {
				t.Errorf("%d of %d cut ones are right", cut[k.kind], n/5)
			}
		})
	}
	for _, k := range others {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(8, 8))
			n, got, right := draws(k.name), rates{}, 0
			for range n {
				v := k.make(t, rng, size(rng, 8, 10))
				is := content.Detect(v, true)
				got[is]++
				for _, ok := range k.ok {
					if is == ok {
						right++
					}
				}
			}
			t.Logf("of %d:%v", n, got)
			if wrong := n - right; wrong > max(2, n/1000) {
				t.Errorf("%d of %d are right", right, n)
			}
		})
	}
}

// TestShortRandom holds how often a few random bytes are taken for a format.
func TestShortRandom(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	for _, length := range []int{4, 8, 12, 16, 20, 24, 32, 48, 63} {
		n, got := 10*valuesEach, rates{}
		for range n {
			got[content.Detect(randomBytes(t, rng, length), true)]++
		}
		t.Logf("%d bytes, of %d:%v", length, n, got)
		if right := got[content.Binary] + got[content.Text] + got[content.Number]; right*200 < n*199 {
			t.Errorf("of %d random values of %d bytes %d are taken for a format", n, length, n-right)
		}
	}
}
