package cli

import (
	"fmt"
	"io"

	"github.com/balekv/bale/cmd/internal/outfile"
	"github.com/balekv/bale/cmd/internal/printable"
)

// Output is where an option such as --json goes; nil is nowhere. A file appears, or is replaced,
// when all of it is written.
type Output struct {
	option string
	to     io.Writer
	file   *outfile.File // nil for stdout
}

// OpenJSON opens where --json goes.
func OpenJSON(path string, s *Streams) (*Output, error) { return OpenOutput("--json", path, s.Out) }

// OpenOutput opens where an option goes: nowhere if the path is empty, and to stdout if it is "-".
func OpenOutput(option, path string, stdout io.Writer) (*Output, error) {
	switch path {
	case "":
		return nil, nil
	case "-":
		return &Output{option: option, to: stdout}, nil
	}
	f, err := outfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", option, err)
	}
	return &Output{option: option, to: f, file: f}, nil
}

// Write writes all there is to write as JSON.
func (o *Output) Write(v any) error {
	return o.Put(func(w io.Writer) error { return printable.WriteJSON(w, v) })
}

// Put writes all there is to write.
func (o *Output) Put(all func(io.Writer) error) error {
	if o == nil {
		return nil
	}
	err := all(o.to)
	if f := o.file; f != nil {
		o.file = nil
		err = f.Close(err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.option, err)
	}
	return nil
}

// Discard ends what was not written.
func (o *Output) Discard() {
	if o != nil && o.file != nil {
		o.file.Discard()
	}
}
