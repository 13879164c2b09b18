package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/cmd/internal/cli"
)

// silent is a stdin that keeps its reader waiting for ten seconds, and interrupts it.
type silent struct {
	interrupt context.CancelFunc
	ended     <-chan struct{}
}

func (s silent) Read([]byte) (int, error) {
	s.interrupt()
	select {
	case <-s.ended:
	case <-time.After(10 * time.Second):
	}
	return 0, io.EOF
}

// TestInterruptedInput: a signal ends each command that waits for stdin.
func TestInterruptedInput(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"pack", "unpack", "inspect", "stats -", "train --data - --out /dev/null", "advise --data -"} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			defer close(ended)
			var out, notes bytes.Buffer
			code := app.Run(ctx, strings.Fields(args), silent{cancel, ended}, &out, &notes)
			if code != cli.ExitFailed || !strings.HasSuffix(notes.String(), ": interrupted\n") {
				t.Errorf("exit status %d, %s", code, &notes)
			}
		})
	}
}
