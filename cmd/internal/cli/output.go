package cli

import (
	"errors"
	"fmt"
	"io"

	"github.com/balekv/bale/cmd/internal/outfile"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
)

// Result is what a command found. It writes itself as text; its fields are those of the JSON.
type Result interface {
	comparable
	WriteText(page.Sheet)
}

// Report runs a command, and writes its result: as JSON to a path, if there is one, and as text
// unless that is stdout (-). A command that found nothing returns nil.
func Report[R Result](s *Streams, path string, run func() (R, error)) error {
	out, err := OpenJSON(path, s) // before the work, not after it
	if err != nil {
		return err
	}
	defer out.Discard()
	result, err := run()
	if none := *new(R); result == none {
		return err
	}
	err = errors.Join(err, out.Write(result))
	if path != "-" { // in the end: who reads it may stop before all is written
		result.WriteText(s.Sheet())
	}
	return err
}

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
