package cli

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
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
