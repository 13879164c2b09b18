// Package testvalues makes the values that the core's tests and benchmarks share: always the same
// ones. Where the variable BALE_CORPORA names a folder of NDJSON files, [Corpora] has those, too.
package testvalues

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// Profile is the JSON of a user, about 450 bytes; each i makes another one.
func Profile(i int) []byte {
	rng := rand.New(rand.NewPCG(uint64(i), 1))
	pick := func(from ...string) string { return from[rng.IntN(len(from))] }
	return fmt.Appendf(nil, `{"id":%d,"name":"%s %s","email":"user%d@example.com","country":"%s","language":"%s","avatar_url":"https://cdn.example.com/avatars/%016x%016x.png","plan":"%s","verified":%v,"balance_cents":%d,"created_at":"2025-%02d-%02dT%02d:%02d:00Z","settings":{"theme":"%s","newsletter":%v,"notifications":"%s","timezone":"%s"},"tags":["%s","%s"]}`,
		100000+i, pick("Ada", "Grace", "Linus", "Mei", "Omar"), pick("Lovelace", "Hopper", "Nakamura", "García"), 100000+i, pick("DE", "FR", "JP"), pick("de", "fr", "ja"),
		rng.Uint64(), rng.Uint64(), pick("free", "pro"), rng.IntN(2) == 0, rng.IntN(100000), 1+rng.IntN(12), 1+rng.IntN(28), rng.IntN(24), rng.IntN(60),
		pick("light", "dark"), rng.IntN(2) == 0, pick("all", "mentions"), pick("Europe/Berlin", "Asia/Tokyo"), pick("vip", "beta"), pick("wholesale", "newsletter"))
}

// Page is JSON of about 3.8 KB: a list of profiles.
func Page(i int) []byte {
	var list [][]byte
	for j := range 9 {
		list = append(list, Profile(i*9+j))
	}
	return fmt.Appendf(nil, `{"page":%d,"users":[%s]}`, i, bytes.Join(list, []byte(",")))
}

// LogBatch is a batch of log lines, 3.8 to 4.1 KB: a service that says one to three different
// messages, a line a second.
func LogBatch(i, messages int) []byte {
	texts := []string{"GET /api/v1/products served from cache", "cache miss, loading from database", "token refreshed"}[:messages]
	var b []byte
	for line := range 31 {
		b = fmt.Appendf(b, `{"time":"2026-01-01T00:%02d:%02dZ","level":"info","service":"checkout","message":"%s","status":200}`+"\n",
			i%60, line, texts[line%messages])
	}
	return b
}

// Kinds are names of what [Of] makes.
var Kinds = []string{"json", "text", "zeros", "random"}

// Of is a value of a kind and of n bytes.
func Of(kind string, n int) []byte {
	switch kind {
	case "json":
		var b []byte
		for i := 0; len(b) < n; i++ {
			b = append(append(b, Profile(i)...), '\n')
		}
		return b[:n]
	case "text":
		return []byte(strings.Repeat("It is a truth universally acknowledged. ", n/40+1)[:n])
	case "zeros":
		return make([]byte, n)
	}
	b := make([]byte, n)
	rng := rand.New(rand.NewPCG(uint64(n), 2))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// RawDictionary is what profiles have in common, as plain content.
func RawDictionary() []byte {
	var b []byte
	for i := range 20 {
		b = append(b, Profile(1_000_000+i)...)
	}
	return b
}

// Corpora are the values of the NDJSON files in the folder that BALE_CORPORA names, by the files'
// names; none if it is not set.
func Corpora() (map[string][][]byte, error) {
	dir := os.Getenv("BALE_CORPORA")
	if dir == "" {
		return nil, nil
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.ndjson"))
	if err != nil {
		return nil, err
	}
	corpora := map[string][][]byte{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		corpora[strings.TrimSuffix(filepath.Base(path), ".ndjson")] = bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	}
	return corpora, nil
}
