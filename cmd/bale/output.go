package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/balekv/bale/cmd/bale/internal/report"
)

// partialSuffix is added to the name of a file until all of it is written.
const partialSuffix = ".partial"

// writeFile writes a file as a whole or not at all.
func writeFile(path string, b []byte) error {
	partial := path + partialSuffix
	if err := os.WriteFile(partial, b, 0o600); err != nil {
		return err
	}
	if err := os.Rename(partial, path); err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	return nil
}

// output is where an option such as --json goes; nil is nowhere. A file appears, or is replaced, when all of it is written.
type output struct {
	option string
	to     io.Writer
	file   *os.File // nil for stdout
	path   string   // that file is renamed to; empty where it is written in place
}

// openJSON opens where --json goes.
func openJSON(path string, s *streams) (*output, error) { return openOutput("--json", path, s) }

// openOutput opens where an option goes: nowhere if the path is empty, and to stdout if it is "-".
func openOutput(option, path string, s *streams) (*output, error) {
	switch path {
	case "":
		return nil, nil
	case "-":
		return &output{option: option, to: s.out}, nil
	}
	o := &output{option: option, path: path}
	partial := path + partialSuffix
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		partial, o.path = path, "" // a pipe or a terminal
	}
	f, err := os.Create(partial)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", option, asked(err, path))
	}
	o.to, o.file = f, f
	return o, nil
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
		if err = errors.Join(err, f.Close()); o.path != "" {
			if err == nil {
				err = os.Rename(f.Name(), o.path)
			} else {
				err = errors.Join(err, os.Remove(f.Name()))
			}
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.option, asked(err, o.path))
	}
	return nil
}

// asked is an error of a file under the name that was asked for; empty is the one that it has.
func asked(err error, path string) error {
	if e, ok := errors.AsType[*os.PathError](err); ok && path != "" {
		return fmt.Errorf("%s %s: %w", e.Op, path, e.Err)
	}
	return err
}

// discard ends what was not written.
func (o *output) discard() {
	if o == nil || o.file == nil {
		return
	}
	o.file.Close()
	if o.path != "" {
		os.Remove(o.file.Name())
	}
}
