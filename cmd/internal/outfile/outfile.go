// Package outfile writes files that may hold values: whole or not at all, for their user alone, and
// never to where somebody else points.
//
// [Write] writes a file at once. [Open] opens a [File], which gets its name with [File.Close].
package outfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Partial is added to the name of a file until all of it is written.
const Partial = ".partial"

// ErrForeign: a pipe, a device or a link to one belongs to another user, who may have put it there
// to read the output.
var ErrForeign = errors.New("it belongs to another user: give another name, or - for standard output")

// ErrTaken: another command has begun to write the same file, which will have its output alone.
var ErrTaken = errors.New("another command writes this file: give another name")

// File is a file that is being written.
type File struct {
	file    *os.File
	path    string
	inPlace bool // a pipe or a device, which stays where it is
}

// Write writes a file as a whole or not at all.
func Write(path string, b []byte) error {
	f, err := Open(path)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return f.Close(err)
}

// Open opens a new file, which replaces one of that name, or a link, when it is closed. A pipe or a
// device of that name is written to, if it and the link to it are the user's own or root's
// (ErrForeign).
func Open(path string) (*File, error) {
	f := &File{path: path}
	info, err := os.Stat(path)
	if f.inPlace = err == nil && !info.Mode().IsRegular(); f.inPlace {
		f.file, err = openSpecial(path)
	} else {
		f.file, err = create(path + Partial)
	}
	if err != nil {
		return nil, f.named(err)
	}
	return f, nil
}

// create makes a file that only its user can read. One of that name, which an earlier run left
// there or somebody else put there, is no more.
func create(path string) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// openSpecial opens a pipe or a device. It checks the opened file, because the path may have been
// replaced meanwhile.
func openSpecial(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	name, err := os.Lstat(path)
	opened, errOpened := f.Stat()
	if err = errors.Join(err, errOpened); err == nil && (opened.Mode().IsRegular() || foreign(opened) || foreign(name)) {
		err = &fs.PathError{Op: "open", Path: path, Err: ErrForeign}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Write implements io.Writer.
func (f *File) Write(b []byte) (int, error) { return f.file.Write(b) }

// Close ends a file that was written whole and gives it its name. If there is an error, also one
// from before, the file is removed. The error names the file as it was asked for.
func (f *File) Close(err error) error {
	mine := f.inPlace || f.mine()
	if err = errors.Join(err, f.file.Close()); !mine {
		return errors.Join(f.named(err), fmt.Errorf("%s: %w", f.path, ErrTaken))
	}
	if f.inPlace {
		return f.named(err)
	}
	if err == nil {
		err = os.Rename(f.file.Name(), f.path)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(f.file.Name()))
	}
	return f.named(err)
}

// Discard ends and removes a file that was not written whole.
func (f *File) Discard() {
	mine := !f.inPlace && f.mine()
	if f.file.Close(); mine {
		os.Remove(f.file.Name())
	}
}

// mine reports whether the partial file is still this one.
func (f *File) mine() bool {
	opened, err := f.file.Stat()
	there, errThere := os.Lstat(f.file.Name())
	return err == nil && errThere == nil && os.SameFile(opened, there)
}

// named gives an error the path that the user knows, in place of the temporary one.
func (f *File) named(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return fmt.Errorf("%s %s: %w", e.Op, f.path, e.Err)
	}
	return err
}
