package dict

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"

	"github.com/balekv/bale/frame"
)

// maxBundle bounds the files that ReadFS reads, in bytes together.
const maxBundle = 64 << 20

// ReadFS returns the dictionaries in the files *.dict of a file system: a folder (os.DirFS) or an
// embed.FS. A program that brings its dictionaries along can read its values even if the registry
// is lost. A dictionary in several files is returned once. If the files have more than 64 MiB
// together, the error is [ErrInvalid]. ReadFS follows the links that the file system follows: those
// of [os.DirFS] lead anywhere, those of [os.Root.FS] stay in the folder.
func ReadFS(fsys fs.FS) ([]*Dictionary, error) {
	var all []*Dictionary
	names, err := fs.Glob(fsys, "*"+Extension)
	if err != nil {
		return nil, err
	}
	read := 0
	seen := map[frame.DictionaryID]bool{}
	for _, name := range names {
		b, err := readFile(fsys, name, frame.MaxDictionarySize+1)
		if err != nil {
			return nil, err
		}
		d, err := frame.NewDictionary(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if read += len(b); read > maxBundle {
			return nil, fmt.Errorf("dict: %w: the files *%s have more than %d MiB together", ErrInvalid, Extension, maxBundle>>20)
		}
		if !seen[d.ID()] {
			seen[d.ID()] = true
			all = append(all, d)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("dict: no file *%s: %w", Extension, fs.ErrNotExist)
	}
	return all, nil
}

// readFile reads a regular file as far as a limit.
func readFile(fsys fs.FS, name string, limit int64) ([]byte, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() { // a pipe would never end
		return nil, fmt.Errorf("%s: %w: not a regular file", name, fs.ErrInvalid)
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// maxStateFile is that of an indented document.
const maxStateFile = 8 * maxDocument

// ReadState returns the state in the file [StateFile] of a file system, with the bounds of one in a
// registry. Without the file the error is [fs.ErrNotExist].
func ReadState(fsys fs.FS) (*State, error) {
	b, err := readFile(fsys, StateFile, maxStateFile+1)
	if err != nil {
		return nil, err
	}
	s := &State{}
	var document bytes.Buffer
	if len(b) > maxStateFile {
		err = fmt.Errorf("more than %d bytes", maxStateFile)
	} else if err = json.Compact(&document, b); err == nil {
		if err = decode(document.Bytes(), s); err == nil {
			err = s.check()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: not the state of a group: %w", StateFile, ErrCorrupt, err)
	}
	return s, nil
}
