package cli

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// TestInput: all bytes arrive, by any reads, and the error after them.
func TestInput(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("some bytes of stdin\n", inputBytes/7)
	random := rand.New(rand.NewPCG(1, 2))
	for name, in := range map[string]io.Reader{
		"whole": strings.NewReader(text), "halves": iotest.HalfReader(strings.NewReader(text)),
		"with the end": iotest.DataErrReader(strings.NewReader(text)),
	} {
		r, got := newInput(t.Context(), in), strings.Builder{}
		for {
			p := make([]byte, random.IntN(100_000))
			n, err := r.Read(p)
			if got.Write(p[:n]); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if got.String() != text {
			t.Errorf("%s: %d of %d bytes, or others", name, got.Len(), len(text))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	in, out := io.Pipe()
	defer out.Close()
	cancel()
	for range 2 {
		if _, err := newInput(ctx, in).Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end: %v", err)
		}
	}
}

// TestArgumentsKeepTheirBytes: keys may be any bytes, also as arguments.
func TestArgumentsKeepTheirBytes(t *testing.T) {
	var grammar struct {
		Match []string `sep:"none"`
		Key   string   `arg:""`
		Keys  []string `arg:"" optional:""`
	}
	parser, err := App{Name: "test"}.Parser(&grammar)
	if err != nil {
		t.Fatal(err)
	}
	const odd = "bin\xff\x80,\u00df\x00:*"
	if _, err := parser.Parse([]string{"--match", odd, "--match=" + odd, odd, odd}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(grammar.Match, []string{odd, odd}) || grammar.Key != odd || !slices.Equal(grammar.Keys, []string{odd}) {
		t.Errorf("%q", grammar)
	}
}
