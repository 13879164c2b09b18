package events

import (
	"errors"
	"io"
	"io/fs"
	"os"
)

// unread is a file that cannot be opened: it gives its error when it is read, as others may.
type unread struct{ err error }

func (u unread) Read([]byte) (int, error) { return 0, u.err }

// Open opens files for [Collect]; "-" is stdin, once.
func Open(paths []string, stdin io.Reader) (sources []Source, done func(), err error) {
	var files []*os.File
	done = func() {
		for _, f := range files {
			f.Close()
		}
	}
	for _, path := range paths {
		source := Source{Name: path}
		if path == "-" {
			if stdin == nil {
				done()
				return nil, nil, errors.New("stdin (-) is there twice")
			}
			source, stdin = Source{Name: "stdin", Reader: stdin}, nil
		} else if f, err := os.Open(path); err == nil {
			files = append(files, f)
			source.Reader = f
		} else {
			if e, ok := errors.AsType[*fs.PathError](err); ok {
				err = e.Err // the rest of it is the name
			}
			source.Reader = unread{err}
		}
		sources = append(sources, source)
	}
	return sources, done, nil
}
