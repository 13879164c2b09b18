// Package redisproc runs private redis-server processes on loopback, for tests and measurements
// that need a real one.
//
// [Start] runs a single server, and [StartWith] runs one on another address or through another
// command. [StartFile] loads an RDB file, and [StartCluster] runs a Redis Cluster. [ForTest],
// [ClusterForTest] and [SentinelForTest] do the same for a test. By default servers store nothing
// on disk and listen on 127.0.0.1 alone. They end with Close and, on Linux, with the process that
// started them, however that ends.
//
// Any local process that takes the server's port could pretend to be the server. So a server must
// first answer on a socket in its folder, which only its user can reach. By then it has its port,
// or has ended without it. [Server.Do] uses this socket.
package redisproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
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

// ErrNoTLS says that a server was asked to use TLS and was built without it.
var ErrNoTLS = errors.New("redisproc: this redis-server was built without TLS")

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

// Ports of servers are below the ephemeral ports (from 32768 on Linux, 49152 elsewhere), and so are
// those of the cluster bus.
const (
	firstPort = 10_000
	lastPort  = 22_000
	busOffset = 10_000 // from a port to that of its cluster bus
	portTries = 100
)

// socketFile is where a server listens in its folder, beside its port.
const socketFile = "socket"

// loopback is where servers listen unless Options say otherwise.
const loopback = "127.0.0.1"

// Server is a running redis-server.
type Server struct {
	host     string
	port     int
	hold     io.Closer // of the port, see reserve
	dir      string
	path     string
	prefix   []string // the command that runs the program; empty for none
	args     []string
	settings string   // lines for its standard input: others can read arguments
	password string   // empty for none
	secure   bool     // it speaks TLS
	modest   string   // a file to be read by a server that is not root's where that can be; "" where the server is as we are
	loading  *loading // nil if there is nothing to be loaded
	cmd      *exec.Cmd
	done     chan struct{} // closed when the process has ended
	log      output
}

// Start runs a redis-server on a free port with persistence off, and returns when it answers.
// Further args are settings as on its command line, for example "--maxmemory", "100mb". The caller
// closes it.
func Start(ctx context.Context, args ...string) (*Server, error) {
	return StartWith(ctx, Options{Args: args})
}

// Options say where and how a server runs.
type Options struct {
	// Args are settings as on the server's command line, for example "--maxmemory", "100mb". They
	// override the settings that every server has. With "--appendonly", "yes" the server keeps its
	// data in its directory. [Server.Restart] leaves that directory, and [Server.Close] removes it.
	Args []string

	// Password is the password for clients. None by default: anyone who reaches the address can use
	// the server, on loopback every user of the machine. The server gets it on its standard input,
	// because others can read arguments. [Server.URL] has it.
	Password string

	// Unprivileged runs the server as a user without other files or processes, or else as nobody
	// (Linux). It applies if this process is root's and that user can reach the program and the
	// server's folder. Do not use it with a Prefix that needs root.
	Unprivileged bool

	// Host is the IP address to listen on; 127.0.0.1 by default.
	Host string

	// TLS has the server speak TLS on its port, and nothing else; also as a replica, and on the bus
	// of a cluster. The paths are absolute. Clients need no certificate unless Args say so. None by
	// default.
	TLS TLS

	// Prefix is a command that runs the server, for example "ip", "netns", "exec", "name"; none by
	// default. It has to become the server (exec) and not to start it beside itself, so that
	// [Server.PID] is the server's and the server ends with us. Host is an address where it runs,
	// which can be reached from here.
	Prefix []string
}

// TLS are a server's files in PEM.
type TLS struct{ Cert, Key, CA string }

// StartWith runs a server as [Start] does, where and how Options say. The caller closes it.
func StartWith(ctx context.Context, o Options) (*Server, error) {
	return startWith(ctx, programs, o.prepare)
}

func (o Options) prepare(s *Server) error {
	if o.Host != "" {
		s.host = o.Host
	}
	s.prefix = o.Prefix
	if o.Unprivileged {
		s.modest = s.dir
	}
	s.args = s.arguments()
	if f := o.TLS; f.Cert != "" {
		s.secure, s.settings = true, strings.Replace(s.settings, "port ", "port 0\ntls-port ", 1)
		s.args = append(s.args, "--tls-cert-file", f.Cert, "--tls-key-file", f.Key, "--tls-ca-cert-file", f.CA, "--tls-auth-clients", "no", "--tls-replication", "yes", "--tls-cluster", "yes")
	}
	s.args = append(s.args, o.Args...)
	if o.Password != "" {
		s.protect(o.Password, fmt.Sprintf("requirepass %q", o.Password))
	}
	return nil
}

// protect lets nobody in without a password, which is in a line of the server's settings.
func (s *Server) protect(password, line string) {
	s.password = password
	s.settings += line + "\n"
}

// arguments are those that every server has. Its port is not among them: others could read it, and
// take the port before the server does.
func (s *Server) arguments() []string {
	args := []string{"-", "--bind", s.host, "--save", "", "--appendonly", "no", "--dir", s.dir, "--daemonize", "no"}
	if s.host != loopback {
		args = append(args, "--protected-mode", "no") // which would refuse all that does not come over loopback
	}
	return args
}

// StartSentinel runs a sentinel that watches a server under a name, with a quorum of one. The
// caller closes it.
func StartSentinel(ctx context.Context, name string, master *Server) (*Server, error) {
	return startWith(ctx, programs, func(s *Server) error {
		// A sentinel takes its settings from a file alone, which it rewrites.
		path := filepath.Join(s.dir, "sentinel.conf")
		s.args = []string{path, "--sentinel"}
		text := s.settings + fmt.Sprintf("bind 127.0.0.1\ndir %s\nsentinel monitor %s 127.0.0.1 %d 1\n", s.dir, name, master.port)
		return os.WriteFile(path, []byte(text), 0o600)
	})
}

// startWith runs the first of the programs that there is, with a port and a directory of its own,
// which prepare makes its arguments of.
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
	port, hold, err := reserve()
	if err != nil {
		return nil, fmt.Errorf("redisproc: no free port: %w", err)
	}
	dir, err := os.MkdirTemp("", "bale-redis-")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("redisproc: %w", err), hold.Close())
	}
	socket := filepath.Join(dir, socketFile)
	if len(socket) > maxSocketPath {
		socket = socketFile // which must not be moved by "--dir"
	}
	s := &Server{host: loopback, port: port, hold: hold, dir: dir, path: path, settings: fmt.Sprintf("port %d\nunixsocket %q\nunixsocketperm 700\n", port, socket)}
	if err := prepare(s); err != nil {
		return nil, errors.Join(fmt.Errorf("redisproc: %w", err), s.Close())
	}
	if err := s.launch(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// launch runs the process and waits for it to answer.
func (s *Server) launch(ctx context.Context, more ...string) error {
	s.log.Close() // of the run before, if there was one
	var err error
	if s.log, err = newOutput(); err != nil {
		return fmt.Errorf("redisproc: %w", err)
	}
	command := slices.Concat(s.prefix, []string{s.path}, s.args, more)
	s.cmd = exec.Command(command[0], command[1:]...)
	s.cmd.Dir, s.cmd.Env, s.cmd.Stdin = s.dir, Environment(), strings.NewReader(s.settings)
	s.cmd.Stdout, s.cmd.Stderr = s.log.File, s.log.File
	s.cmd.SysProcAttr = Attributes()
	if s.modest != "" {
		if err := Lower(s.cmd.SysProcAttr, s.dir, false, []string{s.path, "--version"}, []string{"test", "-r", s.modest}); err != nil {
			return fmt.Errorf("redisproc: %w", err)
		}
	}
	if s.done, err = Spawn(s.cmd); err != nil {
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
			s.Kill()
		}
		if strings.Contains(s.log.String(), "Address already in use") {
			err = errPortTaken
		}
		if withoutTLS(s.log.String()) {
			err = ErrNoTLS
		}
		return &StartError{Program: filepath.Base(s.path), Port: s.port, State: state, Log: s.log.String(), Err: err}
	}
	return nil
}

// withoutTLS reports the log of a server that does not know TLS: as a connection type (Redis 7.2,
// Valkey), or as a setting (older ones).
func withoutTLS(log string) bool {
	return strings.Contains(log, "Failed finding TLS support") || strings.Contains(log, "Bad directive") && strings.Contains(log, ">>> 'tls-")
}

// Spawn starts a command and returns a channel that closes when it has ended. With [Attributes] the
// command ends with this process, however that ends (Linux).
func Spawn(cmd *exec.Cmd) (done chan struct{}, err error) {
	done = make(chan struct{})
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
	return done, <-started
}

// Kill ends the server with SIGKILL, and returns when it is gone. Until [Server.Close] no other
// server of this package has its port.
func (s *Server) Kill() {
	if s.cmd.Process != nil {
		s.cmd.Process.Kill()
	}
	<-s.done
}

// Restart kills the server and runs it again on the same address, without waiting for its clients.
// Persistence is off by default, so the server is then empty. Settings in args, written as for
// [Start], are added for this run. Do not call it concurrently with other methods.
func (s *Server) Restart(ctx context.Context, args ...string) error {
	s.Kill()
	return s.launch(ctx, args...)
}

// awaitReady waits for the server to answer PING on its socket, which it does once it listens
// everywhere.
func (s *Server) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	done := s.done
	go func() {
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

// URL is the server's address as Redis clients take it, with its password if it has one.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr()}
	if s.secure {
		u.Scheme = "rediss"
	}
	if s.password != "" {
		u.User = url.UserPassword("", s.password)
	}
	return u.String()
}

// PID is the id of the server's process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Close ends the server, removes its directory and gives its port back. After the first time it
// does nothing.
func (s *Server) Close() error {
	defer s.hold.Close()
	defer s.log.Close()
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
			s.Kill()
		}
	}
	return os.RemoveAll(s.dir)
}

// FreePort finds a port of loopback that is free now.
func FreePort() (int, error) {
	port, hold, err := reserve()
	if err != nil {
		return 0, err
	}
	return port, hold.Close()
}

// reserve finds a port of loopback that is free, as is its cluster bus port, and that nobody else
// reserves: not even while no server listens there. What holds it is a UDP socket of that number.
func reserve() (port int, hold io.Closer, err error) {
	for range portTries {
		port = firstPort + rand.IntN(lastPort-firstPort)
		if hold, err = reservePort(port); err == nil {
			return port, hold, nil
		}
	}
	return 0, nil, err
}

func reservePort(port int) (io.Closer, error) {
	hold, err := net.ListenPacket("udp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		return nil, err
	}
	for _, p := range []int{port, port + busOffset} {
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(p)))
		if err != nil {
			return nil, errors.Join(err, hold.Close())
		}
		l.Close()
	}
	return hold, nil
}

// Environment is what servers and proxies get of this process' environment, which may hold
// passwords of other servers.
func Environment() []string {
	env := []string{} // nil would be all of it
	for _, name := range []string{"PATH", "LD_LIBRARY_PATH", "TZ"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}
