package redisproc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// saved is an RDB file with two keys.
func saved(t *testing.T) string {
	t.Helper()
	s := ForTest(t)
	for _, command := range []string{"SET a 1", "SET b 2", "SAVE"} {
		if _, err := s.Do(t.Context(), strings.Fields(command)...); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), "any name.rdb")
	if err := os.Rename(filepath.Join(s.dir, "dump.rdb"), path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestStartFile(t *testing.T) {
	path := saved(t)
	var told []float64
	s, err := StartFile(t.Context(), File{Path: path, Progress: func(f float64) { told = append(told, f) }}, "--databases", "20")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, err := s.Do(t.Context(), "DBSIZE"); err != nil || got != "2" {
		t.Errorf("%s keys, %v", got, err)
	}
	if len(told) == 0 || told[len(told)-1] != 1 {
		t.Errorf("progress %v", told)
	}
	if _, err := asStranger(t, s, "GET", "a"); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("without the password: %v", err)
	}
	if _, err := os.Stat("/proc/self/cmdline"); err == nil {
		arguments, err := os.ReadFile("/proc/" + strconv.Itoa(s.PID()) + "/cmdline")
		if err != nil || strings.Contains(string(arguments), s.password) {
			t.Errorf("the arguments show the password, or: %v", err)
		}
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Do(t.Context(), "DBSIZE"); err != nil || got != "2" {
		t.Errorf("%s keys after a restart, %v", got, err)
	}
}

func TestStartFileBroken(t *testing.T) {
	path := saved(t)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, whole[:len(whole)-12], 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = StartFile(t.Context(), File{Path: path})
	e, ok := errors.AsType[*StartError](err)
	if !ok || !errors.Is(err, errEnded) || !strings.Contains(e.Log, "Unexpected EOF") || e.Program == "" || e.Port == 0 {
		t.Errorf("%v", err)
	}
}

// TestStartFileStalls: a pipe that nobody writes to is a file that never ends.
func TestStartFileStalls(t *testing.T) {
	ForTest(t) // skips where there is no server
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, interrupt := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var launched *Server
		_, err := startWith(ctx, programs, func(s *Server) error {
			launched = s
			s.loading = &loading{stall: 100 * time.Millisecond}
			if interrupt {
				s.loading.stall = time.Hour
				go func() { // once the server hangs, as its listener does before it loads
					for ctx.Err() == nil {
						if c, err := DialSocket(ctx, s.dir, socketFile); err == nil {
							c.Close()
							cancel()
						}
						time.Sleep(time.Millisecond)
					}
				}()
			}
			s.args = append(s.arguments(), "--dbfilename", loadedFile)
			return os.Symlink(path, filepath.Join(s.dir, loadedFile))
		})
		want := ErrStalled
		if interrupt {
			want = context.Canceled
		}
		if !errors.Is(err, want) {
			t.Errorf("interrupted %t: %v", interrupt, err)
		}
		if err := syscall.Kill(launched.PID(), 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("the process is still there: %v", err)
		}
		if _, err := os.Stat(launched.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("its directory is still there: %v", err)
		}
	}
}

// TestStartFileProgram: the server that wrote the file is the first choice, if it is there.
func TestStartFileProgram(t *testing.T) {
	path := saved(t)
	dir := t.TempDir()
	for _, name := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\necho this is "+name+"\nexit 3\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	for valkey, want := range map[bool]string{false: "redis-server", true: "valkey-server"} {
		_, err := StartFile(t.Context(), File{Path: path, Valkey: valkey})
		e, ok := errors.AsType[*StartError](err)
		if !ok || e.Program != want || e.Log != "this is "+want+"\n" || e.State != "exit status 3" {
			t.Errorf("%t: %v", valkey, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "redis-server")); err != nil {
		t.Fatal(err)
	}
	if _, err := StartFile(t.Context(), File{Path: path}); err == nil || !strings.Contains(err.Error(), "valkey-server") {
		t.Error(err)
	}
}

func TestAddReplica(t *testing.T) {
	c := ClusterForTest(t, 3)
	for _, master := range c.Servers[:2] {
		replica, err := c.AddReplica(t.Context(), master)
		if err != nil {
			t.Fatal(err)
		}
		info, err := replica.Do(t.Context(), "INFO", "replication")
		if state := fields(info); err != nil || state["role"] != "slave" || "127.0.0.1:"+state["master_port"] != master.Addr() {
			t.Errorf("%v, %v", state, err)
		}
	}
	if len(c.Replicas) != 2 || len(c.Addrs()) != 3 {
		t.Errorf("%d replicas, %d masters", len(c.Replicas), len(c.Addrs()))
	}
}
