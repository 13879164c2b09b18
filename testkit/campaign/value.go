package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Value is what workers store. Every byte of it follows from its key, number, style and size, so
// that a reader can verify all of it.
type Value struct {
	K string // the key, with the field for hashes
	N int64  // the number of the write
	Y int    // the style of the text: values of one style share most of it
	Z int    // the size of the body in bytes
	B string // the body
}

// newValue makes the value of a write.
func newValue(key string, n int64, style, size int) Value {
	return Value{K: key, N: n, Y: style, Z: size, B: body(key, n, style, size)}
}

var words = strings.Fields("country language plan verified theme timezone balance avatar tags newsletter currency address phone email created updated visits orders basket wishlist segment consent score limit region carrier status history device platform")

// phrases are the texts that values of a style have in common.
func phrases(style int) []string {
	r := rand.New(rand.NewPCG(uint64(style), 77))
	p := make([]string, 24)
	for i := range p {
		p[i] = fmt.Sprintf("%s_%04x=%s-%08x;%s:%s.%06x ", words[r.IntN(len(words))], r.IntN(1<<16), words[r.IntN(len(words))], r.Uint32(), words[r.IntN(len(words))], words[r.IntN(len(words))], r.IntN(1<<24))
	}
	return p
}

// body makes a text of a size: phrases of its style, and some bytes of its own.
func body(key string, n int64, style, size int) string {
	seed := uint64(n)
	for _, c := range []byte(key) {
		seed = seed*1099511628211 + uint64(c)
	}
	r := rand.New(rand.NewPCG(seed, uint64(n)))
	p := phrases(style)
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(p[r.IntN(len(p))])
		if r.IntN(3) == 0 {
			fmt.Fprintf(&b, "%x ", r.Uint32())
		}
	}
	return b.String()[:size]
}

// check verifies a value that was read under a key.
func (v *Value) check(key string) error {
	switch {
	case v.K != key:
		return fmt.Errorf("foreign value: it is that of %q, number %d", v.K, v.N)
	case v.Z < 0 || v.Z > maxBody || len(v.B) != v.Z:
		return fmt.Errorf("false size: body of %d bytes, and it says %d", len(v.B), v.Z)
	case v.B != body(v.K, v.N, v.Y, v.Z):
		return fmt.Errorf("false bytes: the body is not that of number %d", v.N)
	}
	return nil
}

const maxBody = 8 << 20

// text is a value as JSON, for strings, hashes and streams.
func (v *Value) text() []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

// checkText verifies the JSON of a value that was read under a key, and returns its number.
func checkText(key string, b []byte) (int64, error) {
	if len(b) >= 2 && b[0] == 0xBA && b[1] == 0x1E {
		return 0, fmt.Errorf("packed bytes were handed out: %x", b[:min(len(b), 24)])
	}
	var v Value
	if err := json.Unmarshal(b, &v); err != nil {
		return 0, fmt.Errorf("not a value that was written: %.40q: %w", b, err)
	}
	return v.N, v.check(key)
}

// sample is the content of a dictionary for a style: what its values have in common.
func sample(style int, salt int64) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "dictionary %d of style %d ", salt, style)
	for range 2 {
		for _, p := range phrases(style) {
			b.WriteString(p)
		}
	}
	b.WriteString(`{"K":"h:{1}:1","N":1,"Y":0,"Z":400,"B":"`)
	return []byte(b.String())
}
