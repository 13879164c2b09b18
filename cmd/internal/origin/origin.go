// Package origin is the HTTP server of the labs. It runs in a process of its own, on a free port of
// loopback. Its [Behaviour] sets how long an answer takes, and faults.
//
// [Start] starts the program's own executable again, in which [Child] serves. The two talk over the
// server's standard input and output. The server ends when its input does, so it ends with the
// process that started it, however that ends. It answers only below a random path: other users of
// the machine reach its port, too.
package origin

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/internal/redisproc"
)

// Command is the argument that makes a program the server. The name of a library follows it.
const Command = "origin"

// Libraries are those that the server can be made of.
var Libraries = []string{Net, FastHTTP}

// The libraries. Net speaks HTTP/1.1 and HTTP/2 without TLS on the same port.
const (
	Net      = "net"
	FastHTTP = "fasthttp"
)

// Behaviour says how the server answers.
type Behaviour struct {
	Delay    time.Duration `json:"delay"`     // from a request to its answer
	Workers  int           `json:"workers"`   // requests that are served at a time; others wait. 0: all of them
	Failing  float64       `json:"failing"`   // share of the requests that are answered 503 at once
	Slow     float64       `json:"slow"`      // share of the others that take SlowTime instead of Delay, beside the workers
	SlowTime time.Duration `json:"slow_time"` // for a shorter time than Delay: Delay
	Dead     bool          `json:"dead"`      // no request is answered before the next Behaviour
}

// Stats are what the server has done since it started.
type Stats struct {
	Connections int64         `json:"connections"` // accepted
	Requests    int64         `json:"requests"`    // received
	CPU         time.Duration `json:"cpu"`         // processor time of its process
}

// Sizes of an answer's body in bytes.
const (
	MinSize = idDigits
	MaxSize = 16 << 20
)

const idDigits = 16

// below is the path of a request below the root.
func below(size int, id uint64) string { return fmt.Sprintf("/%d/%0*x", size, idDigits, id) }

// Check returns an error if a body is not the answer to the request of that [Server.Path].
func Check(body []byte, size int, id uint64) error {
	if len(body) != size {
		return fmt.Errorf("%w: %d bytes, not %d", ErrMismatch, len(body), size)
	}
	var unit [idDigits]byte
	copy(unit[:], fmt.Appendf(unit[:0], "%0*x", idDigits, id))
	for rest := body; len(rest) > 0; rest = rest[min(idDigits, len(rest)):] {
		if !bytes.HasPrefix(unit[:], rest[:min(idDigits, len(rest))]) {
			return fmt.Errorf("%w: it has other bytes", ErrMismatch)
		}
	}
	return nil
}

// ErrMismatch: an answer is not the one that was asked for.
var ErrMismatch = errors.New("MISMATCH: the body is not that of the request")

// Server is a running server. Its methods may be called by several goroutines.
type Server struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *json.Decoder
	said bytes.Buffer // on its standard error
	addr string
	root string // of all paths

	mu sync.Mutex // of a question and its answer
}

const (
	startTimeout = 10 * time.Second
	stopTimeout  = 5 * time.Second
)

// Start starts a server of a library. The caller closes it.
func Start(ctx context.Context, library string, b Behaviour) (*Server, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("the server's program: %w", err)
	}
	s := &Server{cmd: exec.Command(program, Command, library), root: "/" + rand.Text()}
	s.cmd.Env, s.cmd.Stderr = redisproc.Environment(), &s.said
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("the server: %w", err)
	}
	s.out = json.NewDecoder(out)
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { s.cmd.Process.Kill() })()
	if err = json.NewEncoder(s.in).Encode(s.root); err == nil {
		err = s.out.Decode(&s.addr)
	}
	if err == nil {
		err = s.Set(b)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("the server did not start: %w", err), ctx.Err(), s.Close())
		if s.said.Len() > 0 {
			err = fmt.Errorf("%w; it said: %s", err, strings.TrimSpace(s.said.String()))
		}
		return nil, err
	}
	return s, nil
}

// Addr is its address, host:port.
func (s *Server) Addr() string { return s.addr }

// Path is the path of a request for an answer of size bytes, which repeat the id.
func (s *Server) Path(size int, id uint64) string { return s.root + below(size, id) }

// Set changes how the server answers from now on.
func (s *Server) Set(b Behaviour) error {
	_, err := s.ask(&b)
	return err
}

// Stats returns what it has done so far.
func (s *Server) Stats() (Stats, error) { return s.ask(nil) }

// ask sends a Behaviour, or nothing (null), and returns the answer.
func (s *Server) ask(b *Behaviour) (stats Stats, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err = json.NewEncoder(s.in).Encode(b); err == nil {
		err = s.out.Decode(&stats)
	}
	if err != nil {
		return stats, fmt.Errorf("the HTTP server has ended: %w", err)
	}
	return stats, nil
}

// Close ends the server. Requests in hand get no answer.
func (s *Server) Close() error {
	s.in.Close() // it may have ended by itself
	kill := time.AfterFunc(stopTimeout, func() { s.cmd.Process.Kill() })
	defer kill.Stop()
	if err := s.cmd.Wait(); err != nil {
		return fmt.Errorf("the HTTP server: %w", err)
	}
	return nil
}

// Child makes this process the server, and ends it, if [Start] started it. Programs that call Start
// call it first, and so does the TestMain of a test.
func Child() {
	if len(os.Args) != 3 || os.Args[1] != Command {
		return
	}
	signal.Ignore(os.Interrupt) // of a terminal: the program ends us
	if err := Serve(os.Args[2], os.Stdin, os.Stdout); err != nil {
		printable.Fprintf(os.Stderr, "%v\n", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Serve is the server's side: it serves until in ends.
func Serve(library string, in io.Reader, out io.Writer) error {
	if !slices.Contains(Libraries, library) {
		return fmt.Errorf("%s %q; there are %s", Command, library, strings.Join(Libraries, ", "))
	}
	o, from := &origin{changed: make(chan struct{})}, json.NewDecoder(in)
	if err := from.Decode(&o.root); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- o.serve(library, &counting{listener, o}) }()
	to := json.NewEncoder(out)
	if err := to.Encode(listener.Addr().String()); err != nil {
		return err
	}
	for {
		var b *Behaviour
		switch err := from.Decode(&b); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if b != nil {
			o.set(*b)
		}
		if err := to.Encode(o.stats()); err != nil {
			return err
		}
		select {
		case err := <-failed:
			return err
		default:
		}
	}
}
