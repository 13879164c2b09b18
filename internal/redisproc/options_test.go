package redisproc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// keeperEnv makes this test's program start a server and wait to be killed.
const keeperEnv = "REDISPROC_TEST_KEEPER"

// through runs a program by exec, as `ip netns exec` does.
var through = []string{"env", "BALE_TEST_PREFIX=1"}

func TestMain(m *testing.M) {
	if os.Getenv(keeperEnv) == "" {
		os.Exit(m.Run())
	}
	s, err := StartWith(context.Background(), Options{Prefix: through})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(s.PID(), s.dir)
	select {} // until it is killed
}

func TestStartWith(t *testing.T) {
	ForTest(t) // skips where there is no server
	for name, test := range map[string]struct {
		o    Options
		host string
		skip bool
	}{
		"zero":            {Options{}, "127.0.0.1", false},
		"another address": {Options{Host: "127.0.0.2"}, "127.0.0.2", runtime.GOOS != "linux"}, // elsewhere loopback is a single address
		"prefix":          {Options{Prefix: through}, "127.0.0.1", false},
		"settings":        {Options{Host: "127.0.0.1", Prefix: through, Args: []string{"--io-threads", "2"}}, "127.0.0.1", false},
	} {
		t.Run(name, func(t *testing.T) {
			if test.skip {
				t.Skip("not on " + runtime.GOOS)
			}
			s, err := StartWith(t.Context(), test.o)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if want := test.host + ":" + strconv.Itoa(s.port); s.Addr() != want || s.URL() != "redis://"+want {
				t.Errorf("%s, %s; want %s", s.Addr(), s.URL(), want)
			}
			info, err := s.Do(t.Context(), "INFO", "server")
			if pid := fields(info)["process_id"]; err != nil || pid != strconv.Itoa(s.PID()) {
				t.Errorf("the server is process %s and not %d, %v", pid, s.PID(), err)
			}
			if _, err := s.Do(t.Context(), "SET", "k", "v"); err != nil {
				t.Error(err)
			}
			if err := s.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if reply, err := s.Do(t.Context(), "DBSIZE"); err != nil || reply != "0" {
				t.Errorf("%s keys after a restart, %v", reply, err)
			}
			if len(test.o.Args) > 0 {
				got, err := s.Do(t.Context(), "CONFIG", "GET", strings.TrimPrefix(test.o.Args[0], "--"))
				if err != nil || !strings.HasSuffix(got, "\n"+test.o.Args[1]) {
					t.Errorf("%q, %v", got, err)
				}
			}
		})
	}
}

// TestPassword: a server with a password answers nobody without it, and shows it to no other user
// of the machine.
func TestPassword(t *testing.T) {
	ForTest(t)
	const password = "a \"password\" #1"
	s, err := StartWith(t.Context(), Options{Password: password})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if want := "redis://:a%20%22password%22%20%231@" + s.Addr(); s.URL() != want {
		t.Errorf("the URL is %s and not %s", s.URL(), want)
	}
	for range 2 {
		if _, err := s.Do(t.Context(), "SET", "k", "v"); err != nil {
			t.Error(err)
		}
		for _, command := range []string{"GET k", "CONFIG SET dir /", "MONITOR"} {
			if _, err := asStranger(t, s, strings.Fields(command)...); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
				t.Errorf("%s without the password: %v", command, err)
			}
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if slices.ContainsFunc(s.args, func(a string) bool { return strings.Contains(a, password) }) {
		t.Errorf("the arguments show the password: %q", s.args)
	}
	if err := filepath.WalkDir(s.dir, func(path string, _ os.DirEntry, err error) error {
		info, stat := os.Stat(path)
		if err == nil && stat == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v", path, info.Mode())
		}
		return errors.Join(err, stat)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestStartWithNowhere: the error names an address that is not this machine's, or a prefix that is
// no program.
func TestStartWithNowhere(t *testing.T) {
	ForTest(t)
	t.Setenv("TMPDIR", t.TempDir())
	for name, test := range map[string]struct {
		o    Options
		says string
	}{
		"address": {Options{Host: "192.0.2.77"}, "192.0.2.77"}, // TEST-NET-1 of RFC 5737
		"prefix":  {Options{Prefix: []string{"no-such-program"}}, "no-such-program"},
	} {
		if s, err := StartWith(t.Context(), test.o); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				s.Close()
			}
		}
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("%d entries are left, %v", len(left), err)
	}
}

// TestAppendOnly: Args win over the defaults; what is kept outlives a restart, and not Close.
func TestAppendOnly(t *testing.T) {
	for _, fsync := range []string{"everysec", "always"} {
		s := ForTest(t, "--appendonly", "yes", "--appendfsync", fsync)
		for command, want := range map[string]string{"CONFIG GET appendonly": "appendonly\nyes", "CONFIG GET appendfsync": "appendfsync\n" + fsync, "SET k v": "OK"} {
			if got, err := s.Do(t.Context(), strings.Fields(command)...); err != nil || got != want {
				t.Errorf("%s: %s: %q, %v", fsync, command, got, err)
			}
		}
		var kept []string
		if err := filepath.WalkDir(s.dir, func(path string, _ os.DirEntry, err error) error { kept = append(kept, path); return err }); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(kept, func(path string) bool { return strings.Contains(filepath.Base(path), "appendonly.aof") }) {
			t.Errorf("%s: the directory has %q", fsync, kept)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
		// What was answered was written, if not yet synchronized: it outlives the process.
		if got, err := s.Do(t.Context(), "GET", "k"); err != nil || got != "v" {
			t.Errorf("%s: %q after a restart, %v", fsync, got, err)
		}
		dir := s.dir
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: directory %s is still there: %v", fsync, dir, err)
		}
	}
}

// TestEndsWithUs: a process that is killed takes its server along, also one that runs through a
// prefix.
func TestEndsWithUs(t *testing.T) {
	ForTest(t)
	if runtime.GOOS != "linux" {
		t.Skip("on Linux alone")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	keeper := exec.Command(program)
	keeper.Env = append(os.Environ(), keeperEnv+"=1")
	keeper.Stderr = os.Stderr
	out, err := keeper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := keeper.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var pid int
	var dir string
	if _, scan := fmt.Sscan(line, &pid, &dir); err != nil || scan != nil {
		t.Fatalf("%q: %v, %v", line, err, scan)
	}
	defer os.RemoveAll(dir)
	if err := syscall.Kill(pid, 0); err != nil {
		t.Fatalf("the server does not run: %v", err)
	}
	if err := keeper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	keeper.Wait()
	for deadline := time.Now().Add(20 * time.Second); alive(pid); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("process %d is still there", pid)
		}
	}
}

// alive reports whether a process runs. One that has ended is there until its parent, which is not
// ours, has asked how.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}
