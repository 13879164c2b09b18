package clitest

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/internal/redisproc"
)

// PasswordSources checks that a password need not be among the arguments, where all users of the
// machine can read it. The commands connect to a server, which they name as URL; whether they take
// it from the environment, too, is environment. Afterwards the current folder has a file password.
func PasswordSources(t *testing.T, app cli.App, connecting []string, environment bool) {
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
	run := func(command, url string, env ...string) (int, string) {
		for i := 0; i < len(env); i += 2 {
			t.Setenv(env[i], env[i+1])
			defer t.Setenv(env[i], "")
		}
		code, out, errs := Served(t.Context(), app, nil, strings.NewReader(""), strings.Fields(strings.ReplaceAll(command, "URL", url))...)
		if out += errs; strings.Contains(out, "s3cret") {
			t.Errorf("%s shows the password:\n%s", command, out)
		}
		return code, out
	}
	for _, command := range connecting {
		want, out := run(command, server.URL())
		if strings.Contains(out, "NOAUTH") || strings.Contains(out, "no answer") {
			t.Fatalf("%s: %s", command, out)
		}
		// One that serves tries again, and says why.
		if code, out := run(command, bare); code != cli.ExitFailed && !strings.Contains(out, listens) || !strings.Contains(out, keyspace.PasswordHint) || strings.Contains(out, "no answer") {
			t.Errorf("%s without a password: exit %d, %s", command, code, out)
		}
		sources := map[string]func() (int, string){
			"file":          func() (int, string) { return run(command+" --redis-password-file password", bare) },
			"REDISCLI_AUTH": func() (int, string) { return run(command, bare, "REDISCLI_AUTH", password) },
			"a user and REDISCLI_AUTH": func() (int, string) {
				return run(command, "redis://default@"+server.Addr(), "REDISCLI_AUTH", password)
			},
			"file before REDISCLI_AUTH": func() (int, string) {
				return run(command+" --redis-password-file password", bare, "REDISCLI_AUTH", "another")
			},
			"URL before REDISCLI_AUTH": func() (int, string) { return run(command, server.URL(), "REDISCLI_AUTH", "another") },
		}
		if environment {
			sources[cli.URLEnv] = func() (int, string) {
				return run(strings.Replace(command, " --redis URL", "", 1), server.URL(), cli.URLEnv, server.URL())
			}
			sources["--redis before "+cli.URLEnv] = func() (int, string) { return run(command, server.URL(), cli.URLEnv, "redis://127.0.0.1:1") }
		}
		for name, source := range sources {
			if code, out := source(); code != want || strings.Contains(out, "NOAUTH") || strings.Contains(out, "no answer") {
				t.Errorf("%s, %s: exit %d, want %d: %s", command, name, code, want, out)
			}
		}
	}
	for file, want := range map[string]string{"none": "no such file", os.DevNull: "is empty"} {
		if code, out := run(connecting[0]+" --redis-password-file "+file, bare); code != cli.ExitUsage || !strings.Contains(out, "--redis-password-file: ") || !strings.Contains(out, want) {
			t.Errorf("%s: exit %d, %s", file, code, out)
		}
	}
}

// Refused runs a command that must fail without the secret in its output. One that serves may go on
// until it listens: it tries the URL again and again.
func Refused(t *testing.T, app cli.App, args []string, secret string) {
	t.Helper()
	code, out, errs := Served(t.Context(), app, nil, strings.NewReader(""), args...)
	if code == cli.ExitDone && !strings.Contains(errs, listens) || strings.Contains(out+errs, secret) {
		t.Errorf("%q: exit %d, %s%s", args, code, out, errs)
	}
}

// NoSecretIsShown checks that no command shows a password of a URL that it cannot read.
// keyspace.FuzzURL is about many more of them.
func NoSecretIsShown(t *testing.T, app cli.App, commands []string) {
	const secret = "5ecret"
	for _, url := range []string{
		"redis://user:5ecret@host:x", ":5ecret@host", "redis//u:5ecret@h", "redis://u:a/5ecretb@h", "http://u:5ecret@h", "redis://u:p@5ecret@h:x", "redis://u:\x1b5ecret@h",
		"-5ecret@h", "-\x1b5ecret@h", "--redis=u:5ecret@h", "--other=5ecret@h", "@5ecret@",
	} {
		for _, command := range append(commands, "URL") {
			args := strings.Fields(command)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "URL", url)
			}
			Refused(t, app, args, secret)
		}
	}
}

// FilesAreTheUsers checks that the current folder has at least this number of files, and that
// nobody else can read one.
func FilesAreTheUsers(t *testing.T, atLeast int) {
	t.Helper()
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
	if files < atLeast {
		t.Errorf("%d files", files)
	}
}

// FewValues are values that a dictionary can be trained on.
func FewValues() string {
	var values strings.Builder
	for i := range 2000 {
		values.WriteString(`{"name":"Ada Lovelace","place":"London","number":` + strings.Repeat("1", 1+i%9) + "}\n")
	}
	return values.String()
}
