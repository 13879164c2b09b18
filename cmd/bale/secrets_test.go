package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/outfile"
	"github.com/balekv/bale/internal/redisproc"
)

// connecting are commands that connect to a Redis, each as short as it can be. URL stands for the
// server's URL.
var connecting = []string{
	"verify --redis URL", "migrate --redis URL --match user:* --dry-run", "advise --redis URL", "train --redis URL --out users.dict", "inspect --redis URL --key user:1",
	"dict list --redis URL", "dict gc --redis URL", "dict servers --redis URL", "dict grace --redis URL", "verify --redis URL --registry URL",
	"bench --redis URL --value-size=100 --compress=none --concurrency=1 --duration=6ms --repeat=1",
}

// TestPasswordSources: a password need not be among the arguments, where all users of the machine
// can read it.
func TestPasswordSources(t *testing.T) {
	const password = "s3cret/with@signs"
	redisproc.ForTest(t)
	server, err := redisproc.StartWith(t.Context(), redisproc.Options{Password: password})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	t.Chdir(t.TempDir())
	if err := os.WriteFile("password", []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Do(t.Context(), "SET", "user:1", `{"name":"Ada"}`); err != nil {
		t.Fatal(err)
	}
	bare := "redis://" + server.Addr()
	bale := func(command, url string, env ...string) (int, string) {
		for i := 0; i < len(env); i += 2 {
			t.Setenv(env[i], env[i+1])
			defer t.Setenv(env[i], "")
		}
		var out bytes.Buffer
		code := run(t.Context(), strings.Fields(strings.ReplaceAll(command, "URL", url)), strings.NewReader(""), &out, &out)
		if strings.Contains(out.String(), "s3cret") {
			t.Errorf("%s shows the password:\n%s", command, &out)
		}
		return code, out.String()
	}
	for _, command := range connecting {
		want, out := bale(command, server.URL())
		if strings.Contains(out, "NOAUTH") || strings.Contains(out, "no answer") {
			t.Fatalf("%s: %s", command, out)
		}
		if code, out := bale(command, bare); code != exitFailed || !strings.Contains(out, keyspace.PasswordHint) {
			t.Errorf("%s without a password: exit %d, %s", command, code, out)
		}
		sources := map[string]func() (int, string){
			"file":          func() (int, string) { return bale(command+" --redis-password-file password", bare) },
			"REDISCLI_AUTH": func() (int, string) { return bale(command, bare, "REDISCLI_AUTH", password) },
			"a user and REDISCLI_AUTH": func() (int, string) {
				return bale(command, "redis://default@"+server.Addr(), "REDISCLI_AUTH", password)
			},
			"file before REDISCLI_AUTH": func() (int, string) {
				return bale(command+" --redis-password-file password", bare, "REDISCLI_AUTH", "another")
			},
			"URL before REDISCLI_AUTH": func() (int, string) { return bale(command, server.URL(), "REDISCLI_AUTH", "another") },
		}
		if !strings.HasPrefix(command, "bench ") { // which writes: it goes to no server that its command does not name
			sources[urlEnv] = func() (int, string) {
				return bale(strings.Replace(command, " --redis URL", "", 1), server.URL(), urlEnv, server.URL())
			}
			sources["--redis before "+urlEnv] = func() (int, string) { return bale(command, server.URL(), urlEnv, "redis://127.0.0.1:1") }
		}
		for name, source := range sources {
			if code, out := source(); code != want || strings.Contains(out, "NOAUTH") || strings.Contains(out, "no answer") {
				t.Errorf("%s, %s: exit %d, want %d: %s", command, name, code, want, out)
			}
		}
	}
	for file, want := range map[string]string{"none": "no such file", os.DevNull: "is empty"} {
		if code, out := bale("verify --redis URL --redis-password-file "+file, bare); code != exitUsage || !strings.Contains(out, "--redis-password-file: ") || !strings.Contains(out, want) {
			t.Errorf("%s: exit %d, %s", file, code, out)
		}
	}
	// Values of a file are no business of the server that the environment names.
	if code, out := bale("train --data password", "", urlEnv, "redis://127.0.0.1:1"); strings.Contains(out, "127.0.0.1") {
		t.Errorf("train --data: exit %d, %s", code, out)
	}
	if code, out := bale("inspect password", "", urlEnv, "redis://127.0.0.1:1"); strings.Contains(out, "127.0.0.1") || strings.Contains(out, "wrong usage") {
		t.Errorf("inspect of a file: exit %d, %s", code, out)
	}
}

// TestNoSecretIsShown: no command shows a password of a URL that it cannot read. keyspace.FuzzURL
// is about many more of them.
func TestNoSecretIsShown(t *testing.T) {
	const secret = "5ecret"
	for _, url := range []string{
		"redis://user:5ecret@host:x", ":5ecret@host", "redis//u:5ecret@h", "redis://u:a/5ecretb@h", "http://u:5ecret@h", "redis://u:p@5ecret@h:x", "redis://u:\x1b5ecret@h",
		"-5ecret@h", "-\x1b5ecret@h", "--redis=u:5ecret@h", "--other=5ecret@h", "@5ecret@",
	} {
		for _, command := range append(connecting, "bench --embedded --value-size=100 --compress=none --concurrency=1 --duration=6ms --repeat=1 --push URL", "verify URL", "URL") {
			args := strings.Fields(command)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "URL", url)
			}
			var out bytes.Buffer
			if code := run(t.Context(), args, strings.NewReader(""), &out, &out); code == exitDone || strings.Contains(out.String(), secret) {
				t.Errorf("%q: exit %d, %s", args, code, &out)
			}
		}
	}
}

// TestFilesAreTheUsers: what may hold values can be read by its user alone, whatever was there
// before.
func TestFilesAreTheUsers(t *testing.T) {
	redisproc.ForTest(t)
	dir := t.TempDir()
	t.Chdir(dir)
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	// Somebody else may have put something where a file is to be.
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), "bench.json"+outfile.Partial); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("bench.html"+outfile.Partial, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	var values bytes.Buffer
	for i := range 2000 {
		values.WriteString(`{"name":"Ada Lovelace","place":"London","number":` + strings.Repeat("1", 1+i%9) + "}\n")
	}
	const bench = "bench --embedded --data - --compress=none,zstd+dict --concurrency=1 --duration=6ms --repeat=1 --profile cpu --profile-dir profiles --json bench.json --html bench.html --go-bench bench.txt"
	for i, command := range []string{
		bench, bench,
		"train --data - --out users.dict --json train.json --max-size 4KiB",
		"advise --data - --json advice.json --html advice.html",
	} {
		var out bytes.Buffer
		if code := run(t.Context(), strings.Fields(command), bytes.NewReader(values.Bytes()), &out, &out); code != exitDone {
			t.Fatalf("%s: exit %d, %s", command, code, &out)
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
	files := 0
	if err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v", path, info.Mode())
		}
		files++
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if files < 9 {
		t.Errorf("%d files", files)
	}
	if _, err := os.Stat("elsewhere"); err == nil {
		t.Error("values were written where a link pointed to")
	}
}

// TestSignals: each signal that ends a command lets it clean up first, that of a closed terminal,
// too.
func TestSignals(t *testing.T) {
	redisproc.ForTest(t)
	binary := testBinary(t)
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		tmp, results := t.TempDir(), t.TempDir()
		cmd := exec.Command(binary, "bench", "--duration=60s", "--repeat=1", "--concurrency=2", "--json", filepath.Join(results, "out.json"))
		cmd.Env = append(os.Environ(), "TMPDIR="+tmp)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(time.Minute); len(entries(t, tmp)) == 0 && time.Now().Before(deadline); { // the server's directory
			time.Sleep(10 * time.Millisecond)
		}
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(out.String(), "interrupted") {
			t.Errorf("%v: exit %d, %s", signal, code, &out)
		}
		if left := append(entries(t, tmp), entries(t, results)...); len(left) > 0 {
			t.Errorf("%v: left behind: %v", signal, left)
		}
	}
}
