package main

import (
	"fmt"
	"io"

	"github.com/balekv/bale/cmd/internal/outfile"
	"github.com/balekv/bale/cmd/internal/report"
)

// output is where an option such as --json goes; nil is nowhere. A file appears, or is replaced,
// when all of it is written.
type output struct {
	option string
	to     io.Writer
	file   *outfile.File // nil for stdout
}

// openJSON opens where --json goes.
func openJSON(path string, s *streams) (*output, error) { return openOutput("--json", path, s.out) }

// openOutput opens where an option goes: nowhere if the path is empty, and to stdout if it is "-".
func openOutput(option, path string, stdout io.Writer) (*output, error) {
	switch path {
	case "":
		return nil, nil
	case "-":
		return &output{option: option, to: stdout}, nil
	}
	f, err := outfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", option, err)
	}
	return &output{option: option, to: f, file: f}, nil
}

// write writes all there is to write as JSON.
func (o *output) write(v any) error {
	return o.put(func(w io.Writer) error { return report.WriteJSON(w, v) })
}

// put writes all there is to write.
func (o *output) put(all func(io.Writer) error) error {
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

// discard ends what was not written.
func (o *output) discard() {
	if o != nil && o.file != nil {
		o.file.Discard()
	}
}
