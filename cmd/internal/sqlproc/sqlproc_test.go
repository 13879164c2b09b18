package sqlproc

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// start runs a server until the test ends. Without one the test is skipped, or fails where the
// kind's variable is set.
func start(t *testing.T, kind *Kind, args ...string) *Server {
	t.Helper()
	s, err := Start(t.Context(), kind, args...)
	if errors.Is(err, ErrNotInstalled) && os.Getenv(kind.Require) == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

var kinds = []*Kind{PostgreSQL, MariaDB}

// TestKillAndRestart: what a server acknowledged is there after all its processes were killed, only
// its user reaches its folder, and nothing of it is left after Close.
func TestKillAndRestart(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.Name, func(t *testing.T) {
			defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			s, err := Start(t.Context(), kind)
			if errors.Is(err, ErrNotInstalled) && os.Getenv(kind.Require) == "" {
				t.Skip(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			if info, err := os.Stat(s.folder); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			for round := range 2 {
				db, err := s.Open()
				if err != nil {
					t.Fatal(err)
				}
				if round == 0 {
					for _, statement := range []string{"CREATE TABLE kept (n INT)", "INSERT INTO kept VALUES (42)"} {
						if _, err := db.ExecContext(t.Context(), statement); err != nil {
							t.Fatal(err)
						}
					}
					s.Kill()
					if err := db.PingContext(t.Context()); err == nil {
						t.Error("it answers after its end")
					}
					if err := s.Restart(t.Context()); err != nil {
						t.Fatal(err)
					}
				} else {
					n := 0
					if err := db.QueryRowContext(t.Context(), "SELECT n FROM kept").Scan(&n); err != nil || n != 42 {
						t.Errorf("%d, %v", n, err)
					}
				}
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(s.folder); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the folder is left: %v", err)
			}
		})
	}
}

// TestPassword: who does not know the password is refused.
func TestPassword(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind.Name, func(t *testing.T) {
			s := start(t, kind)
			s.password += "x"
			db, err := s.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			if err := db.PingContext(t.Context()); err == nil {
				t.Error("any password is right")
			}
		})
	}
}

// TestSettings: a setting is the server's, and a wrong one is an error with the server's words.
func TestSettings(t *testing.T) {
	for kind, setting := range map[*Kind]struct{ args, wrong []string }{
		PostgreSQL: {[]string{"-c", "synchronous_commit=off"}, []string{"-c", "no_such_setting=1"}},
		MariaDB:    {[]string{"--innodb-flush-log-at-trx-commit=2"}, []string{"--no-such-setting=1"}},
	} {
		t.Run(kind.Name, func(t *testing.T) {
			s := start(t, kind, setting.args...)
			db, err := s.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			query, want := "SHOW synchronous_commit", "off"
			if kind == MariaDB {
				query, want = "SELECT @@innodb_flush_log_at_trx_commit", "2"
			}
			got := ""
			if err := db.QueryRowContext(t.Context(), query).Scan(&got); err != nil || got != want {
				t.Errorf("%q, %v", got, err)
			}
			if s.Version == "" || strings.ContainsAny(s.Version, "- ") {
				t.Errorf("version %q", s.Version)
			}
			if _, err := Start(t.Context(), kind, setting.wrong...); !errors.Is(err, errEnded) || !strings.Contains(err.Error(), "such") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestNotInstalled: the error names the package.
func TestNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, kind := range kinds {
		missing := *kind
		missing.Elsewhere = filepath.Join(t.TempDir(), "*")
		if _, err := Start(t.Context(), &missing); !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "apt-get install "+kind.Package) {
			t.Errorf("%v", err)
		}
	}
}

// TestUnreachableFolder: as root, a folder that no other user reaches is a reason and not a server
// of root's.
func TestUnreachableFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root alone drops its rights")
	}
	folder := t.TempDir()
	if err := os.Chmod(filepath.Dir(folder), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", folder)
	for _, kind := range kinds {
		if _, err := Start(t.Context(), kind); !errors.Is(err, ErrRoot) && !errors.Is(err, ErrNotInstalled) {
			t.Errorf("%v", err)
		}
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("%v, %v", left, err)
		}
	}
}
