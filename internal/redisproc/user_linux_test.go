package redisproc

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestUnprivileged: a server that root starts belongs to a user who has nothing else where that can
// be, and to root where it cannot.
func TestUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("for root alone")
	}
	own := ForTest(t)
	file := filepath.Join(t.TempDir(), loadedFile)
	if _, err := own.Do(t.Context(), "SAVE"); err != nil {
		t.Fatal(err)
	}
	dump, err := os.ReadFile(filepath.Join(own.dir, loadedFile))
	if err != nil {
		t.Fatal(err)
	}
	open, err := os.MkdirTemp("", "") // that everybody can reach, as a folder of the test's cannot be
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(open)
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath(programs[0])
	if err != nil {
		t.Skip(err)
	}
	hidden := t.TempDir()
	if err := os.Chmod(hidden, 0o700); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(hidden, programs[0]), b, 0o755); err != nil {
		t.Fatal(err)
	}
	mapped, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Contains(string(mapped), "4294967295") // a container may have few users
	seen := map[uint32]bool{}
	if nobody, err := user.Lookup("nobody"); err == nil {
		uid, err := strconv.Atoi(nobody.Uid)
		if err != nil {
			t.Fatal(err)
		}
		seen[uint32(uid)] = true
	}
	for name, test := range map[string]struct {
		start  func() (*Server, error)
		folder string // of PATH, before the others
		root   bool
	}{
		"asked for": {start: func() (*Server, error) { return StartWith(t.Context(), Options{Unprivileged: true, Password: "p"}) }},
		"with a log of writes": {start: func() (*Server, error) {
			return StartWith(t.Context(), Options{Unprivileged: true, Args: []string{"--appendonly", "yes"}})
		}},
		"not asked for":            {start: func() (*Server, error) { return Start(t.Context()) }, root: true},
		"a program that is root's": {start: func() (*Server, error) { return StartWith(t.Context(), Options{Unprivileged: true}) }, folder: hidden, root: true},
		"a file that all may read": {start: func() (*Server, error) {
			path := filepath.Join(open, "open.rdb")
			if err := os.WriteFile(path, dump, 0o644); err != nil {
				return nil, err
			}
			return StartFile(t.Context(), File{Path: path})
		}},
		"a file that is root's": {start: func() (*Server, error) {
			if err := os.WriteFile(file, dump, 0o600); err != nil {
				return nil, err
			}
			return StartFile(t.Context(), File{Path: file})
		}, root: true},
	} {
		t.Run(name, func(t *testing.T) {
			if test.folder != "" {
				t.Setenv("PATH", test.folder+":"+os.Getenv("PATH"))
			}
			s, err := test.start()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			info, err := os.Stat("/proc/" + strconv.Itoa(s.PID()))
			if err != nil {
				t.Fatal(err)
			}
			uid := info.Sys().(*syscall.Stat_t).Uid
			if (uid == 0) != test.root || uid != 0 && all && seen[uid] {
				t.Errorf("its user is %d, want root: %v; others had %v", uid, test.root, seen)
			}
			seen[uid] = true
			if _, err := s.Do(t.Context(), "SET", "k", "v"); err != nil {
				t.Error(err)
			}
			if err := s.Restart(t.Context()); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(s.dir); err == nil {
				t.Errorf("%s is left", s.dir)
			}
		})
	}
}
