package dict

import (
	"fmt"
	"io/fs"
)

// Extension is that of a file with a dictionary.
const Extension = ".dict"

// ReadFS returns the dictionaries in the files *.dict of a file system: a folder (os.DirFS) or an embed.FS, so that a
// program brings along what it must be able to read whatever becomes of the registry.
func ReadFS(fsys fs.FS) ([]*Dictionary, error) {
	var all []*Dictionary
	names, err := fs.Glob(fsys, "*"+Extension)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		b, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		d, err := New(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, d)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("dict: no file *%s: %w", Extension, fs.ErrNotExist)
	}
	return all, nil
}
