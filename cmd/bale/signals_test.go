package main

import (
	"bytes"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestIgnoredSignals: what nohup and a shell made a command ignore does not end it.
func TestIgnoredSignals(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", `trap "" HUP INT; exec bale pack`) // these tests, as that command: see TestMain
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	part := strings.Repeat("value ", 100_000) // more than a pipe holds: bale reads by now
	for _, signal := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if _, err := io.WriteString(in, part); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	_, err = io.WriteString(in, part)
	in.Close()
	if ended := cmd.Wait(); err != nil || ended != nil || out.Len() == 0 {
		t.Errorf("%v, %v, %.300s", err, ended, &out)
	}
}
