package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/outfile"
	"github.com/balekv/bale/internal/redisproc"
)

// connecting is a run through a Redis, as short as it can be.
const connecting = "run --redis URL --value-size=100 --compress=none --concurrency=1 --duration=6ms --repeat=1"

// TestPasswordSources: a run writes, so that it goes to no server that its command does not name.
func TestPasswordSources(t *testing.T) {
	clitest.PasswordSources(t, app, []string{connecting}, false)
}

func TestNoSecretIsShown(t *testing.T) {
	clitest.NoSecretIsShown(t, app, []string{connecting, "run --embedded --value-size=100 --compress=none --concurrency=1 --duration=6ms --repeat=1 --push URL"})
}

// TestFilesAreTheUsers: what may hold values can be read by its user alone, whatever was there
// before.
func TestFilesAreTheUsers(t *testing.T) {
	redisproc.ForTest(t)
	dir := t.TempDir()
	t.Chdir(dir)
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	// Another user may have put something at the path of the file.
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), "bench.json"+outfile.Partial); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("bench.html"+outfile.Partial, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	const bench = "run --embedded --data - --compress=none,zstd --concurrency=1 --duration=6ms --repeat=1 --profile cpu --profile-dir profiles --json bench.json --html bench.html --go-bench bench.txt"
	for i := range 2 {
		var out bytes.Buffer
		if code := app.Run(t.Context(), strings.Fields(bench), strings.NewReader(clitest.FewValues()), &out, &out); code != cli.ExitDone {
			t.Fatalf("%s: exit %d, %s", bench, code, &out)
		}
		if i > 0 {
			continue
		}
		profiles, err := filepath.Glob("profiles/*")
		if err != nil || len(profiles) != 2 {
			t.Fatalf("%q, %v", profiles, err)
		}
		if err := errors.Join(os.Chmod(profiles[0], 0o644), os.Remove(profiles[1]), os.Symlink(filepath.Join(dir, "elsewhere"), profiles[1])); err != nil {
			t.Fatal(err)
		}
	}
	clitest.FilesAreTheUsers(t, 6)
	if _, err := os.Stat("elsewhere"); err == nil {
		t.Error("values were written where a link pointed to")
	}
}

// TestSignals: each signal that ends a command lets it clean up first, that of a closed terminal,
// too.
func TestSignals(t *testing.T) {
	redisproc.ForTest(t)
	binary := clitest.Build(t)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if signal.Ignored(s) { // SIGHUP under nohup: the program does not heed it either
			continue
		}
		tmp, results := t.TempDir(), t.TempDir()
		cmd := exec.Command(binary, "run", "--duration=60s", "--repeat=1", "--concurrency=2", "--json", filepath.Join(results, "out.json"))
		cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); len(clitest.Entries(t, tmp)) == 0 && time.Now().Before(deadline); { // the server's directory
			time.Sleep(10 * time.Millisecond)
		}
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != cli.ExitFailed || !strings.Contains(out.String(), "interrupted") {
			t.Errorf("%v: exit %d, %s", s, code, &out)
		}
		if left := append(clitest.Entries(t, tmp), clitest.Entries(t, results)...); len(left) > 0 {
			t.Errorf("%v: left behind: %v", s, left)
		}
	}
}
