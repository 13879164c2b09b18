// Package clitest tests programs of package cli: it runs scripts, and feeds commands with hostile
// text and secrets. Its functions are for tests in the folder of a program, two below the root.
package clitest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/internal/redisproc"
)

// Repository is the root of the clone.
const Repository = "../.."

// Commands are commands of scripts by their names.
type Commands map[string]func(ts *testscript.TestScript, neg bool, args []string)

// Scripts runs the program as a user does; testdata/script has a session for each thing it does.
// The caller's TestMain has made the programs known to testscript. Each script has a Redis of its
// own at $REDIS_URL, where a redis-server is installed (condition redis), and profiles.ndjson.
func Scripts(t *testing.T, more ...Commands) {
	_, err := exec.LookPath("redis-server")
	installed := err == nil
	if !installed && os.Getenv(redisproc.RequireEnv) != "" {
		t.Fatal("no redis-server in PATH")
	}
	commands := Commands{"change": change, "redis-set": redisSet, "redis-has": redisHas, "same": same}
	for _, c := range more {
		maps.Copy(commands, c)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			values, err := os.ReadFile(filepath.Join(Repository, "examples", "profiles.ndjson"))
			if err == nil {
				err = os.WriteFile(filepath.Join(env.WorkDir, "profiles.ndjson"), values, 0o600)
			}
			if err != nil || !installed {
				return err
			}
			// A server of the script's own, for what needs --redis.
			s, err := redisproc.Start(context.Background())
			if err != nil {
				return err
			}
			env.Defer(func() { s.Close() })
			env.Setenv("REDIS_URL", s.URL())
			return nil
		},
		Condition: func(cond string) (bool, error) { return installed && cond == "redis", nil },
		Cmds:      commands,
	})
}

// change FILE OFFSET adds one to the byte at an offset, counted from the end when negative.
func change(ts *testscript.TestScript, neg bool, args []string) {
	b := []byte(ts.ReadFile(args[0]))
	offset, err := strconv.Atoi(args[1])
	ts.Check(err)
	if offset < 0 {
		offset += len(b)
	}
	b[offset]++
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b, 0o644))
}

// same A B compares two files byte by byte.
func same(ts *testscript.TestScript, neg bool, args []string) {
	if equal := ts.ReadFile(args[0]) == ts.ReadFile(args[1]); equal == neg {
		ts.Fatalf("%s and %s are the same: %v", args[0], args[1], equal)
	}
}

// Client is a client of a script's Redis.
func Client(ts *testscript.TestScript) *redis.Client {
	o, err := redis.ParseURL(ts.Getenv("REDIS_URL"))
	ts.Check(err)
	c := redis.NewClient(o)
	ts.Defer(func() { c.Close() })
	return c
}

// redis-set KEY FILE stores a file.
func redisSet(ts *testscript.TestScript, neg bool, args []string) {
	ts.Check(Client(ts).Set(context.Background(), args[0], ts.ReadFile(args[1]), 0).Err())
}

// redis-has PATTERN says whether there are keys.
func redisHas(ts *testscript.TestScript, neg bool, args []string) {
	keys, err := Client(ts).Keys(context.Background(), args[0]).Result()
	ts.Check(err)
	if (len(keys) > 0) == neg {
		ts.Fatalf("keys %v", keys)
	}
}

// Ran runs a command, and returns its exit code and what it printed.
func Ran(ctx context.Context, app cli.App, args ...string) (code int, out, errs string) {
	var o, e bytes.Buffer
	code = app.Run(ctx, args, strings.NewReader(""), &o, &e)
	return code, o.String(), e.String()
}

// Served runs a command. One that serves, like bale proxy, ends after do, which is called when it
// listens and may be nil.
func Served(ctx context.Context, app cli.App, do func(), stdin io.Reader, args ...string) (code int, out, errs string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var o bytes.Buffer
	e := &untilServing{serving: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-ctx.Done():
		case <-e.serving:
			if do != nil {
				do()
			}
			cancel()
		}
	}()
	code = app.Run(ctx, args, stdin, &o, e)
	cancel()
	<-done
	return code, o.String(), e.String()
}

// listens is what a command that serves says when it does.
const listens = ": listens on "

// untilServing is the standard error of a command, until it says that it listens and afterwards.
type untilServing struct {
	lock    sync.Mutex
	text    bytes.Buffer
	serving chan struct{}
	known   bool
}

func (u *untilServing) Write(b []byte) (int, error) {
	u.lock.Lock()
	defer u.lock.Unlock()
	u.text.Write(b)
	if !u.known && bytes.Contains(u.text.Bytes(), []byte(listens)) {
		u.known = true
		close(u.serving)
	}
	return len(b), nil
}

func (u *untilServing) String() string {
	u.lock.Lock()
	defer u.lock.Unlock()
	return u.text.String()
}

// OK ends the test with the first error.
func OK(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// ExitCodes checks that command lines have an exit code, and that they say one line where they
// fail.
func ExitCodes(t *testing.T, app cli.App, want int, stdin string, commands ...string) {
	t.Helper()
	for _, command := range commands {
		var out, errs bytes.Buffer
		if got := app.Run(context.Background(), strings.Fields(command), strings.NewReader(stdin), &out, &errs); got != want {
			t.Errorf("%s %s: exit %d, want %d: %s", app.Name, command, got, want, &errs)
		}
		if (errs.Len() > 0) != (want != cli.ExitDone) || strings.Count(errs.String(), "\n") > 1 {
			t.Errorf("%s %s: stderr %q", app.Name, command, &errs)
		}
	}
}

// HelpExamples checks that the help of each command has examples of it.
func HelpExamples(t *testing.T, app cli.App, commands ...string) {
	t.Helper()
	for _, command := range commands {
		var out, errs bytes.Buffer
		if code := app.Run(context.Background(), []string{command, "--help"}, strings.NewReader(""), &out, &errs); code != cli.ExitDone {
			t.Fatalf("%s --help: exit %d, %s", command, code, &errs)
		}
		_, examples, ok := strings.Cut(out.String(), "Examples:")
		if !ok || !strings.Contains(examples, app.Name+" "+command) {
			t.Errorf("%s --help has no example:\n%s", command, &out)
		}
	}
}

// Build builds the program in the current folder, and returns where it is.
func Build(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "program")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		tb.Fatalf("%v: %s", err, out)
	}
	return path
}

// Entries returns the names in a folder; none if there is no folder.
func Entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// Server starts a server for a test.
func Server(t testing.TB) (*redis.Client, string) {
	t.Helper()
	server := redisproc.ForTest(t)
	o, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { client.Close() })
	return client, server.URL()
}
