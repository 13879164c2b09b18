// Package promtest runs a real Prometheus for tests: [Start] starts one, and [Server.Get] asks its
// API.
package promtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// requireEnv names the variable that, when not empty, makes a test without a prometheus fail
// instead of skip.
const requireEnv = "BALE_REQUIRE_PROMETHEUS"

// patience bounds Await.
const patience = 2 * time.Minute

// Require skips a test without a prometheus in PATH.
func Require(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("prometheus"); err != nil {
		if os.Getenv(requireEnv) != "" {
			t.Fatal(err)
		}
		t.Skip("no prometheus in PATH (Debian: apt-get install prometheus)")
	}
}

// Server is a running Prometheus.
type Server struct {
	url    string
	client *http.Client
}

// Start runs a Prometheus with a configuration until the test ends. The arguments are of the file
// of the configuration, a folder for the data, and an address to listen at.
func Start(t *testing.T, config string, args func(file, data, addr string) []string) *Server {
	t.Helper()
	Require(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "prometheus", append(args(file, filepath.Join(dir, "data"), addr), "--log.level=warn")...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second // then it is killed
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := &Server{"http://" + addr, &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(func() {
		cancel()
		if err := cmd.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("prometheus: %v\n%s", err, log.Bytes())
		}
		if t.Failed() {
			t.Logf("prometheus says:\n%s", log.Bytes())
		}
		s.client.CloseIdleConnections()
	})
	Await(t, func() error {
		reply, err := s.client.Get(s.url + "/-/ready")
		if err != nil {
			return err
		}
		defer reply.Body.Close()
		if reply.StatusCode != http.StatusOK {
			return errors.New(reply.Status)
		}
		return nil
	})
	return s
}

// Await calls f until it succeeds, for two minutes at most.
func Await(t *testing.T, f func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("after %v: %v", patience, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Get asks the API, and decodes the data of its answer.
func (s *Server) Get(path string, values url.Values, data any) error {
	reply, err := s.client.Get(s.url + "/api/v1/" + path + "?" + values.Encode())
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		return err
	}
	answer := struct {
		Status string
		Data   any
	}{Data: data}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		return fmt.Errorf("%s %v: %s: %.1000s", path, values, reply.Status, body)
	}
	return nil
}
