package ab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/balekv/bale/cmd/internal/compare"
)

const (
	maxOutput = 64 << 20 // bytes of standard output that are read
	tailBytes = 2 << 10  // of standard error, for an error's message
	// killAfter is how long processes have to end by themselves after SIGTERM.
	killAfter = 2 * time.Second
)

// shellCharacters are those that mean something to a shell anywhere in a command.
const shellCharacters = "|&;<>()$`\\\"'*?[#~{}!\n"

// argv is how to run a command: by itself, or by a shell if it has anything that is for one.
func argv(command string) ([]string, error) {
	words := strings.Fields(command)
	switch {
	case len(words) == 0:
		return nil, errors.New("an empty command")
	case strings.ContainsAny(command, shellCharacters), strings.Contains(words[0], "="): // NAME=value command
		return []string{"sh", "-c", command}, nil
	}
	return words, nil
}

// outcome is a process that ended well.
type outcome struct {
	out   bytes.Buffer
	wall  time.Duration
	state *os.ProcessState
}

func (p *outcome) stdout() io.Reader { return bytes.NewReader(p.out.Bytes()) }

// run are the figures of the process itself.
func (p *outcome) run() *compare.Benchmarks {
	const cell = "Command"
	r := &compare.Benchmarks{Series: []compare.Series{
		{Name: cell, Unit: "sec/op", Values: []float64{p.wall.Seconds()}},
		{Name: cell, Unit: "user+sys-sec/op", Values: []float64{(p.state.UserTime() + p.state.SystemTime()).Seconds()}},
	}}
	if rss, ok := peakRSS(p.state); ok {
		r.Series = append(r.Series, compare.Series{Name: cell, Unit: "peak-RSS-bytes", Values: []float64{rss}})
	}
	return r
}

// execute runs a command to its end. When ctx ends or the time is over, its whole process group
// gets a SIGTERM, and a SIGKILL a little later. The rest of the group is killed in any case once
// its leader is gone.
func execute(ctx context.Context, command string, timeout time.Duration) (*outcome, error) {
	args, err := argv(command)
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p := &outcome{}
	tail := &lastBytes{}
	out := &bounded{to: &p.out, stop: cancel}
	cmd := exec.CommandContext(running, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = out, tail
	cmd.WaitDelay = killAfter
	ownGroup(cmd)
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	err = cmd.Wait()
	p.wall, p.state = time.Since(start), cmd.ProcessState
	killGroup(cmd)
	switch {
	case out.full:
		return nil, fmt.Errorf("it printed more than %d MiB", maxOutput>>20)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case running.Err() != nil:
		return nil, fmt.Errorf("it took longer than %v%s", timeout, tail)
	case errors.Is(err, exec.ErrWaitDelay):
		return nil, errors.New("it ended, but something that it started went on writing to its output")
	case err != nil:
		return nil, fmt.Errorf("%w%s", err, orOutput(tail, &p.out))
	}
	return p, nil
}

// orOutput is what a command said last: on standard error, or else on standard output, where go
// test says what failed.
func orOutput(tail *lastBytes, out *bytes.Buffer) *lastBytes {
	if len(bytes.TrimSpace(tail.b)) > 0 {
		return tail
	}
	last := &lastBytes{}
	last.Write(out.Bytes())
	return last
}

// bounded takes what fits, and stops the command that writes more.
type bounded struct {
	to   *bytes.Buffer
	stop func()
	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.full || b.to.Len()+len(p) > maxOutput {
		b.full = true
		b.stop()
		return len(p), nil
	}
	return b.to.Write(p)
}

// lastBytes keeps the end of what is written.
type lastBytes struct{ b []byte }

func (l *lastBytes) Write(p []byte) (int, error) {
	l.b = append(l.b, p[max(0, len(p)-tailBytes):]...)
	l.b = l.b[max(0, len(l.b)-tailBytes):]
	return len(p), nil
}

// String is the last lines, to put behind an error, or nothing.
func (l *lastBytes) String() string {
	const most = 5
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(l.b), "\uFFFD")), "\n")
	if lines = lines[max(0, len(lines)-most):]; lines[0] == "" {
		return ""
	}
	return "; its last words: " + strings.Join(lines, "; ")
}
