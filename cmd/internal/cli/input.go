package cli

import (
	"context"
	"io"
	"os"
)

// inputBytes are read of stdin at a time.
const inputBytes = 64 << 10

// input is stdin for a command that a signal ends while it waits for more. A read that nobody waits
// for any more goes on until the process ends.
type input struct {
	ctx  context.Context
	in   io.Reader
	buf  []byte
	left []byte // of buf
	err  error
}

// newInput is stdin itself where that is a file, which keeps nobody waiting.
func newInput(ctx context.Context, in io.Reader) io.Reader {
	if f, ok := in.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			return in
		}
	}
	return &input{ctx: ctx, in: in}
}

func (i *input) Read(p []byte) (int, error) {
	if len(i.left) == 0 && i.err == nil && len(p) > 0 {
		if i.err = i.ctx.Err(); i.err == nil {
			i.fill()
		}
	}
	n := copy(p, i.left)
	if i.left = i.left[n:]; n == 0 && len(p) > 0 {
		return 0, i.err
	}
	return n, nil
}

// fill reads more, or has the context's error.
func (i *input) fill() {
	if i.buf == nil {
		i.buf = make([]byte, inputBytes)
	}
	type result struct {
		n   int
		err error
	}
	read := make(chan result, 1)
	go func() {
		n, err := i.in.Read(i.buf)
		read <- result{n, err}
	}()
	select {
	case <-i.ctx.Done():
		i.err = i.ctx.Err()
	case r := <-read:
		i.left, i.err = i.buf[:r.n], r.err
	}
}
