//go:build unix

package outfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// somebody is another user than any who runs tests.
const somebody = 54321

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	elsewhere := filepath.Join(dir, "elsewhere")
	must(t, os.WriteFile(elsewhere, []byte("precious"), 0o644))
	for name, before := range map[string]func(path string) error{
		"new":               func(string) error { return nil },
		"readable by all":   func(path string) error { return os.WriteFile(path, []byte("before"), 0o666) },
		"link":              func(path string) error { return os.Symlink(elsewhere, path) },
		"link to nothing":   func(path string) error { return os.Symlink(filepath.Join(dir, "nothing"), path) },
		"partial":           func(path string) error { return os.WriteFile(path+Partial, []byte("before"), 0o666) },
		"partial is a link": func(path string) error { return os.Symlink(elsewhere, path+Partial) },
	} {
		path := filepath.Join(dir, name)
		must(t, before(path))
		must(t, Write(path, []byte("values")))
		info, err := os.Lstat(path)
		must(t, err)
		if got, err := os.ReadFile(path); err != nil || string(got) != "values" || info.Mode() != 0o600 {
			t.Errorf("%s: %q, %v, %v", name, got, info.Mode(), err)
		}
		if _, err := os.Lstat(path + Partial); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := os.ReadFile(elsewhere); err != nil || string(got) != "precious" {
		t.Errorf("what a link pointed to is %q, %v", got, err)
	}
	if err := Write(filepath.Join(dir, "no", "folder"), nil); !errors.Is(err, fs.ErrNotExist) || err.Error() != "open "+filepath.Join(dir, "no", "folder")+": no such file or directory" {
		t.Error(err)
	}
}

func TestError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	broken := errors.New("broken")
	for _, end := range []func(*File){
		func(f *File) {
			if err := f.Close(broken); !errors.Is(err, broken) {
				t.Error(err)
			}
		},
		(*File).Discard,
	} {
		must(t, os.WriteFile(path, []byte("before"), 0o600))
		f, err := Open(path)
		must(t, err)
		_, err = f.Write([]byte("half"))
		must(t, err)
		end(f)
		if got, err := os.ReadFile(path); err != nil || string(got) != "before" {
			t.Errorf("%q, %v", got, err)
		}
		if _, err := os.Lstat(path + Partial); !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
}

// TestTwoAtOnce: of two commands that write a file, the second one does.
func TestTwoAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, end := range []func(*File) error{
		func(f *File) error { return f.Close(nil) },
		func(f *File) error { f.Discard(); return ErrTaken },
	} {
		first, err := Open(path)
		must(t, err)
		second, err := Open(path)
		must(t, err)
		_, err = second.Write([]byte("half"))
		must(t, err)
		if err := end(first); !errors.Is(err, ErrTaken) {
			t.Error(err)
		}
		_, err = second.Write([]byte(" and half"))
		must(t, err)
		must(t, second.Close(nil))
		if got, err := os.ReadFile(path); err != nil || string(got) != "half and half" {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// TestPipe: a pipe of one's own is written to, also through a link of one's own, and one of
// somebody else is not, through whatever link.
func TestPipe(t *testing.T) {
	for name, test := range map[string]struct {
		pipe, link int // whose; -1 for no link
		foreign    bool
	}{
		"own": {os.Geteuid(), -1, false}, "own link": {os.Geteuid(), os.Geteuid(), false},
		"another's": {somebody, -1, true}, "own link to another's": {somebody, os.Geteuid(), true}, "another's link": {os.Geteuid(), somebody, true},
	} {
		t.Run(name, func(t *testing.T) {
			if test.foreign && os.Geteuid() != 0 {
				t.Skip("for root alone")
			}
			dir := t.TempDir()
			path := filepath.Join(dir, "pipe")
			must(t, syscall.Mkfifo(path, 0o666))
			must(t, os.Lchown(path, test.pipe, -1))
			if test.link >= 0 {
				link := filepath.Join(dir, "link")
				must(t, os.Symlink(path, link))
				must(t, os.Lchown(link, test.link, -1))
				path = link
			}
			reader, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
			must(t, err)
			defer reader.Close()
			err = Write(path, []byte("values"))
			if errors.Is(err, ErrForeign) != test.foreign || err != nil && !test.foreign {
				t.Error(err)
			}
			b := make([]byte, 10)
			n, _ := reader.Read(b) // an error where nobody wrote
			if want := map[bool]string{false: "values"}[test.foreign]; string(b[:max(0, n)]) != want {
				t.Errorf("the pipe has %q, want %q", b[:max(0, n)], want)
			}
			if info, err := os.Stat(path); err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
				t.Errorf("%v, %v", info, err)
			}
		})
	}
	if err := Write(os.DevNull, []byte("values")); err != nil {
		t.Error(err)
	}
	if err := Write(t.TempDir(), nil); !errors.Is(err, syscall.EISDIR) {
		t.Error(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
