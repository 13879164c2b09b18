package redisproc

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestServerAnswersAndEnds(t *testing.T) {
	ForTest(t) // skips where there is no server
	s, err := Start(context.Background(), "--maxmemory", "64mb")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Do(t.Context(), "CONFIG", "GET", "maxmemory"); err != nil || got != "maxmemory\n67108864" {
		t.Errorf("CONFIG GET: %q, %v", got, err)
	}
	pid, dir := s.PID(), s.dir
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is still there: %v", pid, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("directory %s is still there: %v", dir, err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestBadSettingSaysWhatTheServerSaid(t *testing.T) {
	ForTest(t)
	_, err := Start(context.Background(), "--no-such-setting", "1")
	if err == nil || !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("error %v does not hold the server's message", err)
	}
}

func TestClusterForms(t *testing.T) {
	c := ClusterForTest(t, 3)
	for _, s := range c.Servers {
		info, err := s.Do(t.Context(), "CLUSTER", "INFO")
		if err != nil || !strings.Contains(info, "cluster_slots_ok:16384") {
			t.Errorf("%s: %v\n%s", s.Addr(), err, info)
		}
	}
}

func TestRestartEmpties(t *testing.T) {
	s := ForTest(t)
	ctx := context.Background()
	addr := s.Addr()
	if _, err := s.Do(ctx, "SET", "a", "1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if reply, err := s.Do(ctx, "DBSIZE"); err != nil || reply != "0" || s.Addr() != addr {
		t.Errorf("%q, %v at %s, was at %s", reply, err, s.Addr(), addr)
	}
	for _, args := range [][]string{{"--maxclients", "77"}, nil} { // for one run only
		if err := s.Restart(ctx, args...); err != nil {
			t.Fatal(err)
		}
		if reply, err := s.Do(ctx, "CONFIG", "GET", "maxclients"); err != nil || strings.HasSuffix(reply, "77") != (args != nil) {
			t.Errorf("%v: %q, %v", args, reply, err)
		}
	}
}

func TestDo(t *testing.T) {
	s := ForTest(t)
	ctx := t.Context()
	for _, test := range []struct {
		command string
		want    string
		err     string
	}{
		{"SET k \x00binary\xff", "OK", ""},
		{"GET k", "\x00binary\xff", ""},
		{"GET none", "", "redisproc: GET: redisproc: nil"},
		{"STRLEN k", "8", ""},
		{"MGET k none k", "\x00binary\xff\n\n\x00binary\xff", ""},
		{"NOSUCH", "", "redisproc: NOSUCH: ERR unknown command"},
	} {
		got, err := s.Do(ctx, strings.Split(test.command, " ")...)
		if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.HasPrefix(err.Error(), test.err) {
			t.Errorf("%s: %q, %v", test.command, got, err)
		}
	}
}

// TestCannotStart: a program that is no program is an error, and leaves nothing behind.
func TestCannotStart(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/redis-server", []byte("#!/no/such/interpreter\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	t.Setenv("TMPDIR", dir)
	if s, err := Start(context.Background()); err == nil {
		s.Close()
		t.Error("it runs")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%d entries are left, %v", len(left), err)
	}
}

// TestTLS: a server that is asked for TLS misses the certificate, or was built without TLS.
func TestTLS(t *testing.T) {
	ForTest(t)
	_, err := Start(t.Context(), "--tls-port", "1")
	if err == nil {
		t.Fatal("it runs without a certificate")
	}
	if misses := strings.Contains(err.Error(), "Failed to configure TLS"); misses == errors.Is(err, ErrNoTLS) {
		t.Errorf("it misses a certificate: %t, %v", misses, err)
	}
	if errors.Is(err, ErrNoTLS) && os.Getenv(RequireTLSEnv) != "" {
		t.Error(err)
	}
}

// TestNoTLS: tests that need TLS skip on a server without it, and fail where it is required.
func TestNoTLS(t *testing.T) {
	for _, says := range []string{
		"# Missing implement of connection type tls\n# Failed finding TLS support.",
		"*** FATAL CONFIG FILE ERROR (Redis 7.0.15) ***\n>>> 'tls-port \"6380\"'\nBad directive or wrong number of arguments",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(dir+"/redis-server", []byte("#!/bin/sh\necho \""+strings.ReplaceAll(says, "\"", "\\\"")+"\"\nexit 1\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", dir)
		for required, want := range map[string]string{"": "skipped", "1": "failed"} {
			t.Setenv(RequireTLSEnv, required)
			tb := &ended{TB: t}
			if ForTest(tb, "--tls-port", "6380"); tb.how != want {
				t.Errorf("required %q: %q, want %q", required, tb.how, want)
			}
		}
	}
}

// ended is a test that notes how it ends, and goes on.
type ended struct {
	TB
	how string
}

func (e *ended) Skipf(string, ...any)  { e.how += "skipped" }
func (e *ended) Fatalf(string, ...any) { e.how += "failed" }
func (e *ended) Cleanup(func())        {} // no server runs

// TestStartWithPassword: a server that asks who it is has started.
func TestStartWithPassword(t *testing.T) {
	ForTest(t) // skips where there is no redis-server
	s, err := Start(t.Context(), "--requirepass", "secret")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Do(t.Context(), "GET", "k"); err == nil {
		t.Error("it asks nobody")
	}
}

// TestPortIsHeld: a server that was killed is one that does not answer, not another server.
func TestPortIsHeld(t *testing.T) {
	s := ForTest(t)
	s.Kill()
	if hold, err := reservePort(s.port); err == nil {
		t.Error("another server may have its port", hold.Close())
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	hold, err := reservePort(s.port)
	if err != nil {
		t.Fatal(err)
	}
	if err := hold.Close(); err != nil {
		t.Error(err)
	}
}
