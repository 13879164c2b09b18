// Package twemproxy runs a private twemproxy (nutcracker) before a Redis server, as a hop to
// measure through.
//
// [Start] runs a [Proxy]. It forwards the commands that have keys, and PING: GET, SET with its
// expiries, MGET, MSET, UNLINK, EVALSHA and pipelines of them. It closes a connection that sends
// HELLO, CLIENT, SELECT, INFO, SCAN, FLUSHALL or MULTI. Send administrative commands to the server
// itself. The clients redigo and radix send none of these. The others, go-redis and rueidis, begin
// with HELLO, which [Dial] answers for them.
package twemproxy

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/balekv/bale/internal/redisproc"
)

// ErrNotInstalled says that PATH has no nutcracker. Debian's package would start a service of its
// own, which RUNLEVEL=1 prevents.
var ErrNotInstalled = errors.New("twemproxy: no nutcracker in PATH (Debian: RUNLEVEL=1 apt-get install nutcracker)")

var (
	errEnded     = errors.New("ended at start")
	errPortTaken = errors.New("a port was taken meanwhile")
	errPassword  = errors.New("the server asks for a password")
	errRefused   = fmt.Errorf("%w, and refuses the one that was given", errPassword)
)

const (
	program      = "nutcracker"
	socketFile   = "socket"         // in the proxy's folder
	startTimeout = 10 * time.Second // it answers within 0.1 s; a busy machine takes longer
	stopTimeout  = 5 * time.Second  // from the wish to end to the end by force
	startTries   = 5                // a free port may be taken before the proxy binds it
)

// launcher lets the proxy have as many connections as the system allows: it does not raise its
// limit itself, which often is 1024. It becomes the proxy.
const launcher = `ulimit -n "$(ulimit -H -n)"; exec "$0" "$@"`

// Proxy is a running twemproxy with one server behind it and, as is its default, one connection to
// that, which the commands of all clients share.
type Proxy struct {
	port     int
	password string // empty for none
	dir      string
	cmd      *exec.Cmd
	done     chan struct{} // closed when the process has ended
}

// Start runs a proxy to the server at host:port, whose password may be empty, and returns when a
// command goes through. It listens on free ports of loopback, and asks its clients for the same
// password. The caller closes it; on Linux it ends with this process, however that ends.
func Start(ctx context.Context, server, password string) (*Proxy, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, ErrNotInstalled
	}
	return startOn(ctx, redisproc.FreePort, path, server, password)
}

// startOn tries ports until one was not taken meanwhile.
func startOn(ctx context.Context, port func() (int, error), path, server, password string) (p *Proxy, err error) {
	for range startTries {
		if p, err = start(ctx, port, path, server, password); err == nil {
			return p, nil
		}
		if !errors.Is(err, errPortTaken) {
			break
		}
	}
	return nil, fmt.Errorf("twemproxy: %w", err)
}

func start(ctx context.Context, port func() (int, error), path, server, password string) (_ *Proxy, err error) {
	listen, err := port()
	stats, errStats := port()
	if err = cmp.Or(err, errStats); err != nil {
		return nil, fmt.Errorf("no free port: %w", err)
	}
	dir, err := os.MkdirTemp("", "bale-twemproxy-")
	if err != nil {
		return nil, err
	}
	p := &Proxy{port: listen, password: password, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()
	file := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(file("conf.yml"), []byte(p.configuration(server)), 0o600); err != nil {
		return nil, err
	}
	// Without a place for each of these, Debian's nutcracker writes to the system's.
	cmd := exec.Command("/bin/sh", "-c", launcher, path, "--conf-file="+file("conf.yml"), "--output="+file("log"), "--pid-file="+file("pid"),
		"--stats-addr=127.0.0.1", "--stats-port="+strconv.Itoa(stats))
	cmd.Dir, cmd.Env, cmd.SysProcAttr = dir, redisproc.Environment(), redisproc.Attributes()
	if p.done, err = redisproc.Spawn(cmd); err != nil {
		return nil, err
	}
	p.cmd = cmd
	if err := p.awaitReady(ctx); err != nil {
		said, _ := os.ReadFile(file("log")) // there may be none
		if strings.Contains(string(said), "Address already in use") {
			err = errPortTaken
		}
		return nil, fmt.Errorf("%s before %s: %w; it said:\n%s", program, server, err, said)
	}
	return p, nil
}

// configuration is nutcracker's, in YAML: what is measured through, and a socket in the proxy's
// folder, which only its user can reach.
func (p *Proxy) configuration(server string) string {
	auth := ""
	if p.password != "" {
		auth = fmt.Sprintf("  redis_auth: %q\n", p.password)
	}
	socket := filepath.Join(p.dir, socketFile)
	if runtime.GOOS == "linux" {
		socket = "/proc/self/cwd/" + socketFile // the folder's path may be too long for a socket's
	}
	pool := func(name, listen, more string) string {
		return fmt.Sprintf("%s:\n  listen: %s\n  redis: true\n%s  hash: fnv1a_64\n  distribution: modula\n  servers:\n    - %s:1\n", name, listen, more, server)
	}
	return pool("bale", p.Addr(), auth+"  preconnect: true\n") + pool("ready", socket, "")
}

// awaitReady waits until the proxy answers PING on its socket, and then until a command goes
// through to the server. Another program on its port could pretend to be the proxy. The proxy
// answers on its socket only when it listens everywhere, and ends if it cannot.
func (p *Proxy) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, try := range []func(context.Context) error{p.listens, p.try} {
		for {
			err := try(ctx)
			if errors.Is(err, errPassword) {
				return err
			}
			if err == nil {
				break
			}
			select {
			case <-p.done:
				return errEnded
			case <-ctx.Done():
				return errors.Join(ctx.Err(), err)
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	return nil
}

func (p *Proxy) listens(ctx context.Context) error {
	c, err := redisproc.DialSocket(ctx, p.dir, socketFile)
	if err != nil {
		return err
	}
	if reply, err := ask(ctx, c, "*1\r\n$4\r\nPING\r\n"); err != nil || reply != "+PONG" {
		return errors.Join(fmt.Errorf("it answers %q", reply), err)
	}
	return nil
}

// try sends a command to the server: PING would be answered by the proxy.
func (p *Proxy) try(ctx context.Context) error {
	c, err := Dial(p.password, p.DialContext)(ctx, "tcp", p.Addr())
	if err != nil {
		return err
	}
	reply, err := ask(ctx, c, "*2\r\n$3\r\nGET\r\n$10\r\nbale:ready\r\n")
	switch {
	case err != nil || strings.HasPrefix(reply, "$"):
		return err
	case strings.HasPrefix(reply, "-NOAUTH ") && p.password != "":
		return errRefused
	case strings.HasPrefix(reply, "-NOAUTH "):
		return errPassword
	}
	return fmt.Errorf("it answers %q", reply)
}

// ask sends a command and returns the first line of the answer.
func ask(ctx context.Context, c net.Conn, command string) (string, error) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })() // it ends what waits for the proxy
	if _, err := io.WriteString(c, command); err != nil {
		return "", err
	}
	reply, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(reply), err
}

// Addr is the proxy's address, host:port.
func (p *Proxy) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

// DialContext connects to an address on the proxy's port. It is an error if the proxy has ended:
// somebody else may have taken its port.
func (p *Proxy) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	return redisproc.DialWhile(ctx, p.done, network, addr)
}

// PID is the id of the proxy's process.
func (p *Proxy) PID() int { return p.cmd.Process.Pid }

// Close ends the proxy and removes its directory.
func (p *Proxy) Close() error {
	if p.cmd != nil {
		select {
		case <-p.done:
		default:
			p.cmd.Process.Signal(syscall.SIGTERM)
			select {
			case <-p.done:
			case <-time.After(stopTimeout):
				p.cmd.Process.Kill()
				<-p.done
			}
		}
	}
	return os.RemoveAll(p.dir)
}
