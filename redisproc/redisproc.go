// Package redisproc runs private redis-server processes on loopback, for tests and measurements that need a
// real one.
//
// [Start] runs a single server, [StartWith] one on another address or through another command, [StartFile] one that loads an RDB file and [StartCluster] a
// Redis Cluster; [ForTest], [ClusterForTest] and [SentinelForTest] do so for a test. Unless they are told otherwise, servers keep nothing on disk and listen on
// 127.0.0.1 alone. They end with Close and, on Linux, with the process that started them however that ends.
package redisproc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrNotInstalled says that PATH has neither redis-server nor valkey-server.
var ErrNotInstalled = errors.New("redisproc: no redis-server in PATH (Debian: apt-get install redis-server)")

var (
	errPortTaken = errors.New("the port was taken meanwhile")
	errEnded     = errors.New("ended at start")
)

// programs are the servers there are, the first choice first.
var programs = []string{"redis-server", "valkey-server"}

const (
	startTimeout = 10 * time.Second // a server answers within 0.1 s; a busy machine takes longer
	stopTimeout  = 5 * time.Second  // from the wish to end to the end by force
	startTries   = 5                // a free port may be taken before the server binds it
)

// loopback is where servers listen unless Options say otherwise.
const loopback = "127.0.0.1"

// Server is a running redis-server.
type Server struct {
	host     string
	port     int
	dir      string
	path     string
	prefix   []string // the command that runs the program; empty for none
	args     []string
	password string   // empty for none
	loading  *loading // nil if there is nothing to be loaded
	cmd      *exec.Cmd
	done     chan struct{} // closed when the process has ended
	log      *output
}

// Start runs a redis-server on a free port with persistence off, and returns when it answers. Further
// args are settings as on its command line, for example "--maxmemory", "100mb". The caller closes
// it.
func Start(ctx context.Context, args ...string) (*Server, error) {
	return StartWith(ctx, Options{Args: args})
}

// Options say where and how a server runs.
type Options struct {
	// Args are settings as on the server's command line, for example "--maxmemory", "100mb". They come last and win over those that
	// every server has: with "--appendonly", "yes" it keeps its data in its directory, which [Server.Restart] leaves and [Server.Close] removes.
	Args []string

	// Host is the IP address to listen on; 127.0.0.1 by default. The server asks nobody who he is: whoever reaches another address can use it, unless Args have
	// "--requirepass".
	Host string

	// Prefix is a command that runs the server, for example "ip", "netns", "exec", "name"; none by default. It has to become the server (exec) and not to start it
	// beside itself, so that [Server.PID] is the server's and the server ends with us. Host is an address where it runs, which can be reached from here.
	Prefix []string
}

// StartWith runs a server as [Start] does, where and how Options say. The caller closes it.
func StartWith(ctx context.Context, o Options) (*Server, error) {
	return startWith(ctx, programs, func(s *Server) error {
		if o.Host != "" {
			s.host = o.Host
		}
		s.prefix = o.Prefix
		s.args = append(s.arguments(), o.Args...)
		return nil
	})
}

// arguments are those that every server has.
func (s *Server) arguments() []string {
	args := []string{"--port", strconv.Itoa(s.port), "--bind", s.host, "--save", "", "--appendonly", "no", "--dir", s.dir, "--daemonize", "no"}
	if s.host != loopback {
		args = append(args, "--protected-mode", "no") // which would refuse all that does not come over loopback
	}
	return args
}

// StartSentinel runs a sentinel that watches a server under a name, with a quorum of one. The caller closes
// it.
func StartSentinel(ctx context.Context, name string, master *Server) (*Server, error) {
	return startWith(ctx, programs, func(s *Server) error {
		// A sentinel takes its settings from a file alone, which it rewrites.
		path := filepath.Join(s.dir, "sentinel.conf")
		s.args = []string{path, "--sentinel"}
		text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor %s 127.0.0.1 %d 1\n", s.port, s.dir, name, master.port)
		return os.WriteFile(path, []byte(text), 0o600)
	})
}

// startWith runs the first of the programs that there is, with a port and a directory of its own, which prepare makes
// its arguments of.
func startWith(ctx context.Context, programs []string, prepare func(*Server) error) (*Server, error) {
	path, err := lookPath(programs)
	if err != nil {
		return nil, err
	}
	var last error
	for range startTries {
		s, err := start(ctx, path, prepare)
		if err == nil {
			return s, nil
		}
		last = err
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	return nil, last
}

func lookPath(programs []string) (string, error) {
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrNotInstalled
}

func start(ctx context.Context, path string, prepare func(*Server) error) (*Server, error) {
	port, err := freePort()
	if err != nil {
		return nil, fmt.Errorf("redisproc: no free port: %w", err)
	}
	dir, err := os.MkdirTemp("", "bale-redis-")
	if err != nil {
		return nil, fmt.Errorf("redisproc: %w", err)
	}
	s := &Server{host: loopback, port: port, dir: dir, path: path}
	if err := prepare(s); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("redisproc: %w", err)
	}
	if err := s.launch(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// launch runs the process and waits for it to answer.
func (s *Server) launch(ctx context.Context) error {
	s.done, s.log = make(chan struct{}), new(output)
	command := slices.Concat(s.prefix, []string{s.path}, s.args)
	s.cmd = exec.Command(command[0], command[1:]...)
	s.cmd.Dir = s.dir
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.SysProcAttr = attributes()
	cmd, done := s.cmd, s.done
	started := make(chan error)
	go func() {
		// The kernel ends the child when the thread that started it ends, so the thread must
		// stay (Linux, PR_SET_PDEATHSIG).
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() // how it ended does not matter: the log says
		}
		close(done)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("redisproc: %w", err)
	}
	await := s.awaitReady
	if s.loading != nil {
		await = func(ctx context.Context) error { return s.loading.await(ctx, s) }
	}
	if err := await(ctx); err != nil {
		state := ""
		select {
		case <-s.done:
			state = s.cmd.ProcessState.String()
		default:
			s.kill()
		}
		if strings.Contains(s.log.String(), "Address already in use") {
			err = errPortTaken
		}
		return &StartError{Program: filepath.Base(s.path), Port: s.port, State: state, Log: s.log.String(), Err: err}
	}
	return nil
}

func (s *Server) kill() {
	if s.cmd.Process != nil {
		s.cmd.Process.Kill()
	}
	<-s.done
}

// Restart kills the server and runs it again on the same address, without waiting for its clients: with
// persistence off, as it is by default, it is empty then. It must not be called at once with other methods.
func (s *Server) Restart(ctx context.Context) error {
	s.kill()
	return s.launch(ctx)
}

// awaitReady waits for the server to answer PING.
func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	done := s.done
	go func() { // an address that nobody has may not answer for seconds
		select {
		case <-done:
			end(errEnded)
		case <-ctx.Done():
		}
	}()
	for {
		reply, err := s.Do(ctx, "PING")
		if err == nil && reply == "PONG" || err != nil && strings.Contains(err.Error(), "NOAUTH ") { // one that asks who it is answers, too
			return nil
		}
		select {
		case <-ctx.Done():
			if context.Cause(ctx) == errEnded {
				return errEnded
			}
			return errors.Join(ctx.Err(), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Addr is the server's address, host:port.
func (s *Server) Addr() string { return net.JoinHostPort(s.host, strconv.Itoa(s.port)) }

// URL is the server's address as Redis clients take it, with its password if it was given one by [StartFile].
func (s *Server) URL() string {
	if s.password != "" {
		return "redis://:" + s.password + "@" + s.Addr()
	}
	return "redis://" + s.Addr()
}

// PID is the id of the server's process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Close ends the server and removes its directory.
func (s *Server) Close() error {
	if s.cmd == nil || s.cmd.Process == nil { // it never ran
		return os.RemoveAll(s.dir)
	}
	select {
	case <-s.done:
	default:
		s.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-s.done:
		case <-time.After(stopTimeout):
			s.kill()
		}
	}
	return os.RemoveAll(s.dir)
}

// freePort finds a port that is free now, and whose cluster bus port (10,000 above) exists.
func freePort() (int, error) {
	for range 100 { // where only high ports are handed out there may be none
		l, err := net.Listen("tcp", loopback+":0")
		if err != nil {
			return 0, err
		}
		port := l.Addr().(*net.TCPAddr).Port
		if err := l.Close(); err != nil {
			return 0, err
		}
		if port <= 55000 {
			return port, nil
		}
	}
	return 0, errors.New("the system hands out ports above 55000 alone")
}
