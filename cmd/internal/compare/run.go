package compare

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/balekv/bale/cmd/internal/outcome"
)

// Options are which runs to compare, and by which gate.
type Options struct {
	// Old and New are files: of balebench run --json, or in Go benchmark format. One may be -, for In.
	Old, New string
	In       io.Reader

	Gate Gate // default: [DefaultGate]
}

// Run reads two runs and compares them.
func Run(ctx context.Context, o Options) (*Report, error) {
	if o.Old == "-" && o.New == "-" {
		return nil, errors.New("stdin (-) is there twice")
	}
	before, err := read(ctx, o.Old, o.In)
	if err != nil {
		return nil, err
	}
	after, err := read(ctx, o.New, o.In)
	if err != nil {
		return nil, err
	}
	return Compare(ctx, before, after, Rules{Gate: o.Gate})
}

// maxText bounds a file in Go benchmark format, which may be between what a program printed.
const maxText = 256 << 20

// read reads a run in either format.
func read(ctx context.Context, path string, in io.Reader) (*Benchmarks, error) {
	name := "stdin"
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			if e, ok := errors.AsType[*fs.PathError](err); ok {
				err = e.Err
			}
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		defer f.Close()
		in, name = f, path
	}
	text := &io.LimitedReader{R: in, N: maxText + 1}
	r := bufio.NewReader(text)
	start, err := r.Peek(r.Size())
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if bytes.HasPrefix(bytes.TrimSpace(start), []byte("{")) {
		result, err := outcome.Read(r, name)
		if err != nil {
			return nil, err
		}
		return Of(result), nil
	}
	run, err := Read(ctx, r, name)
	if text.N == 0 {
		return nil, fmt.Errorf("%s is larger than %d MiB", name, maxText>>20)
	}
	return run, err
}
