package main

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/internal/testvalues"
)

// TestImportStaysInTheFolder: a link out of the folder, what is no file and what is too large is
// not published.
func TestImportStaysInTheFolder(t *testing.T) {
	client, url := clitest.Server(t)
	secrets := t.TempDir()
	key := filepath.Join(secrets, "key")
	content := []byte("PRIVATE " + strings.Repeat("secret ", 100))
	clitest.OK(t, os.WriteFile(key, content, 0o600))
	state := filepath.Join(secrets, "state.json")
	clitest.OK(t, os.WriteFile(state, []byte(`{"group":"g"}`), 0o600))
	large := bytes.Repeat([]byte("x"), 64<<20)
	for name, test := range map[string]struct {
		make func(dir string) error
		want string
	}{
		"a link": {func(dir string) error { return os.Symlink(key, filepath.Join(dir, "a.dict")) }, "escapes"},
		"a link up": {func(dir string) error {
			return os.Symlink("../"+filepath.Base(secrets)+"/key", filepath.Join(dir, "a.dict"))
		}, "escapes"},
		"a pipe":          {func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "a.dict"), 0o600) }, "regular"},
		"a folder":        {func(dir string) error { return os.Mkdir(filepath.Join(dir, "a.dict"), 0o700) }, "regular"},
		"a large file":    {func(dir string) error { return os.WriteFile(filepath.Join(dir, "a.dict"), large, 0o600) }, "1048577 bytes"},
		"a link as state": {func(dir string) error { return os.Symlink(state, filepath.Join(dir, "group.json")) }, "escapes"},
		"a large state":   {func(dir string) error { return os.WriteFile(filepath.Join(dir, "group.json"), large, 0o600) }, "group.json"},
		"a state of nulls": {func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "group.json"), []byte(`{"dictionaries":[`+strings.Repeat("null,", 100_000)+"null]}"), 0o600)
		}, "commas"},
		"a pipe as state":      {func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "group.json"), 0o600) }, "regular"},
		"a list and no object": {func(dir string) error { return os.WriteFile(filepath.Join(dir, "group.json"), []byte("[]"), 0o600) }, "group.json"},
	} {
		dir := t.TempDir()
		clitest.OK(t, os.WriteFile(filepath.Join(dir, "b.dict"), bytes.Repeat([]byte("sound "), 100), 0o600), test.make(dir))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		code, out, errs := ran(t, "dict", "import", dir, "--group", "g", "--redis", url)
		runtime.ReadMemStats(&after)
		if code != cli.ExitFailed || !strings.Contains(errs, test.want) || strings.Contains(out+errs, "PRIVATE") {
			t.Errorf("%s: exit %d, %s%s", name, code, out, errs)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 60<<20 && !testvalues.Race {
			t.Errorf("%s: %d bytes were allocated", name, n)
		}
		if keys := client.Keys(t.Context(), "*").Val(); len(keys) > 0 {
			t.Errorf("%s: %q were written", name, keys)
			clitest.OK(t, client.FlushAll(t.Context()).Err())
		}
	}
	dir := t.TempDir()
	clitest.OK(t, os.WriteFile(filepath.Join(dir, "b"), content, 0o600), os.Symlink("b", filepath.Join(dir, "b.dict"))) // as a mounted volume has it
	if code, out, errs := ran(t, "dict", "import", dir, "--group", "g", "--redis", url); code != cli.ExitDone || !strings.Contains(errs, "warning") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
}
