// Package sqlproc runs private PostgreSQL and MariaDB servers in a temporary folder, for
// measurements that need a real one.
//
// [Start] runs one. It listens on a socket in its folder alone, which only its user can reach, and
// asks for a random password. [Server.Kill] ends all its processes at once, as a crash does;
// [Server.Restart] runs it again on the data that were left. It never runs as root.
package sqlproc

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/shirou/gopsutil/v4/process"

	"github.com/balekv/bale/internal/redisproc"
)

var (
	// ErrNotInstalled says that a program of the server is not installed.
	ErrNotInstalled = errors.New("not installed")
	// ErrRoot says that the server refuses to run as root, and that no other user can run it.
	ErrRoot = errors.New("it does not run as root, and no other user can reach its programs and its folder; run balebench as another user, or set TMPDIR to a folder that all can reach")

	errEnded = errors.New("it ended at start")
)

// Kind is a database.
type Kind struct {
	Name      string // "PostgreSQL"
	Package   string // of Debian
	Elsewhere string // a pattern of folders beside PATH that may have the programs
	Require   string // the variable that, when not empty, makes a test without the server fail instead of skip

	programs []string // in PATH or in the folders; the first one is the server
	named    bool     // it refuses a user without a name
	socket   string
	stop     syscall.Signal // ends the server without waiting for its clients
	install  func(paths []string, data, secret string) []string
	run      func(path, data, secret string) []string
	secret   func(password string) string // the content of the file that install or run get
	connect  func(s *Server) (*sql.DB, error)
	version  string // a query
}

const (
	dataFolder     = "data"
	secretFile     = "secret"
	databaseUser   = "bale"
	installTimeout = time.Minute // 2 s; a busy machine takes longer
	startTimeout   = time.Minute // 0.5 s, and longer after a crash
	stopTimeout    = 20 * time.Second
	maxLog         = 64 << 10 // bytes of it in an error
)

// PostgreSQL and MariaDB are the kinds there are.
var (
	PostgreSQL = &Kind{
		Name: "PostgreSQL", Package: "postgresql", Require: "BALE_REQUIRE_POSTGRESQL",
		programs: []string{"postgres", "initdb"}, Elsewhere: "/usr/lib/postgresql/*/bin", named: true, socket: ".s.PGSQL.5432", stop: syscall.SIGINT,
		install: func(paths []string, data, secret string) []string {
			return []string{paths[1], "-D", data, "-U", databaseUser, "--pwfile=" + secret, "--auth=scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync"}
		},
		run: func(path, data, _ string) []string {
			return []string{path, "-D", data, "-c", "listen_addresses=", "-c", "unix_socket_directories=."}
		},
		secret: func(password string) string { return password + "\n" },
		connect: func(s *Server) (*sql.DB, error) {
			c, err := pgx.ParseConfig("host=/ port=5432 sslmode=disable dbname=postgres user=" + databaseUser)
			if err != nil {
				return nil, err
			}
			c.Password, c.DialFunc = s.password, func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx) }
			return stdlib.OpenDB(*c), nil
		},
		version: "SHOW server_version",
	}
	MariaDB = &Kind{
		Name: "MariaDB", Package: "mariadb-server", Require: "BALE_REQUIRE_MARIADB",
		programs: []string{"mariadbd", "mariadb-install-db"}, Elsewhere: "/usr/sbin", socket: "socket", stop: syscall.SIGTERM,
		install: func(paths []string, data, _ string) []string {
			return []string{paths[1], "--no-defaults", "--datadir=" + data, "--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve", "--force"}
		},
		run: func(path, data, secret string) []string {
			return []string{path, "--no-defaults", "--datadir=" + data, "--socket=socket", "--skip-networking", "--init-file=" + secret, "--pid-file=pid", "--max-connections=200"}
		},
		secret: func(password string) string {
			return fmt.Sprintf("ALTER USER root@localhost IDENTIFIED BY '%s';\nCREATE DATABASE IF NOT EXISTS %s;\n", password, databaseUser)
		},
		connect: func(s *Server) (*sql.DB, error) {
			c := mysql.NewConfig()
			c.User, c.Passwd, c.DBName, c.Net, c.Addr, c.Logger = "root", s.password, databaseUser, "unix", "/", &mysql.NopLogger{}
			c.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx) }
			connector, err := mysql.NewConnector(c)
			if err != nil {
				return nil, err
			}
			return sql.OpenDB(connector), nil
		},
		version: "SELECT VERSION()",
	}
)

// Server is a running server.
type Server struct {
	Version string // "15.18"

	kind     *Kind
	folder   string
	path     string
	args     []string
	password string
	user     *syscall.SysProcAttr
	log      *os.File
	cmd      *exec.Cmd
	done     chan struct{} // closed when the process has ended
}

// Start runs a server on new data, and returns when it answers. Further args are settings as on its
// command line. The caller closes it. On Linux it ends with this process, however that ends.
func Start(ctx context.Context, kind *Kind, args ...string) (_ *Server, err error) {
	paths, err := kind.find()
	if err != nil {
		return nil, err
	}
	s := &Server{kind: kind, path: paths[0], password: rand.Text(), user: redisproc.Attributes()}
	if s.folder, err = os.MkdirTemp("", "bale-sql-"); err != nil {
		return nil, fmt.Errorf("%s: %w", kind.Name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", kind.Name, err), s.Close())
		}
	}()
	data, secret := filepath.Join(s.folder, dataFolder), filepath.Join(s.folder, secretFile)
	if err := os.WriteFile(secret, []byte(kind.secret(s.password)), 0o600); err != nil {
		return nil, err
	}
	if s.log, err = os.Create(filepath.Join(s.folder, "log")); err != nil {
		return nil, err
	}
	if err := redisproc.Lower(s.user, s.folder, kind.named, []string{s.path, "--version"}, []string{"test", "-r", secret}); err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 && s.user.Credential == nil {
		return nil, ErrRoot
	}
	installing, cancel := context.WithTimeout(ctx, installTimeout)
	defer cancel()
	if err := s.spawn(kind.install(paths, data, secret)); err != nil {
		return nil, err
	}
	select {
	case <-s.done:
	case <-installing.Done():
		s.Kill()
		return nil, cmp.Or(ctx.Err(), fmt.Errorf("%s: %w; it said:\n%s", filepath.Base(paths[1]), installing.Err(), s.said()))
	}
	if !s.cmd.ProcessState.Success() {
		return nil, fmt.Errorf("%s: %v; it said:\n%s", filepath.Base(paths[1]), s.cmd.ProcessState, s.said())
	}
	s.args = append(kind.run(s.path, data, secret), args...)
	return s, s.Restart(ctx)
}

// find looks for the programs.
func (k *Kind) find() (paths []string, err error) {
	folders, _ := filepath.Glob(k.Elsewhere) // the pattern is good
	slices.SortFunc(folders, func(a, b string) int { return cmp.Compare(versionIn(b), versionIn(a)) })
	for _, folder := range append([]string{""}, folders...) {
		paths = paths[:0]
		for _, name := range k.programs {
			if path, err := exec.LookPath(filepath.Join(folder, name)); err == nil {
				paths = append(paths, path)
			}
		}
		if len(paths) == len(k.programs) {
			return paths, nil
		}
	}
	return nil, fmt.Errorf("%s is %w (Debian: apt-get install %s)", k.Name, ErrNotInstalled, k.Package)
}

// versionIn is the number in /usr/lib/postgresql/15/bin.
func versionIn(folder string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(folder)))
	return n
}

func (s *Server) spawn(command []string) (err error) {
	s.cmd = exec.Command(command[0], command[1:]...)
	s.cmd.Dir, s.cmd.Env, s.cmd.SysProcAttr = s.folder, redisproc.Environment(), s.user
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.done, err = redisproc.Spawn(s.cmd)
	return err
}

// Restart runs the server on its data, after it was ended by Kill, and returns when it answers.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.log.Truncate(0); err != nil {
		return err
	}
	if err := s.spawn(s.args); err != nil {
		return err
	}
	db, err := s.Open()
	if err != nil {
		return err
	}
	defer db.Close()
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if err = db.QueryRowContext(starting, s.kind.version).Scan(&s.Version); err == nil {
			s.Version, _, _ = strings.Cut(strings.Fields(s.Version)[0], "-") // without what the distribution adds
			return nil
		}
		select {
		case <-s.done:
			return fmt.Errorf("%w, %v; it said:\n%s", errEnded, s.cmd.ProcessState, s.said())
		case <-starting.Done():
			return cmp.Or(ctx.Err(), fmt.Errorf("it does not answer: %w; it said:\n%s", err, s.said()))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// said is the log of the last start.
func (s *Server) said() string {
	b := make([]byte, maxLog)
	n, _ := s.log.ReadAt(b, 0) // what there is
	return string(b[:n])
}

func (s *Server) dial(ctx context.Context) (net.Conn, error) {
	return redisproc.DialSocket(ctx, filepath.Join(s.folder, dataFolder), s.kind.socket)
}

// Open returns a pool of connections to the server. The caller closes it.
func (s *Server) Open() (*sql.DB, error) { return s.kind.connect(s) }

// Kill ends all processes of the server with SIGKILL, as a crash does, and returns when they are
// gone. It returns the time of the first signal. Data that the kernel has are not lost.
func (s *Server) Kill() (at time.Time) {
	var children []*process.Process
	if p, err := process.NewProcess(int32(s.cmd.Process.Pid)); err == nil {
		children, _ = p.Children() // none, or it has ended
	}
	at = time.Now()
	s.cmd.Process.Kill() // first: it would start what ends
	for _, child := range children {
		child.Kill()
	}
	<-s.done
	for _, child := range children {
		for range 1000 {
			if status, err := child.Status(); err != nil || slices.Contains(status, process.Zombie) { // that init has not looked at
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	return at
}

// Close ends the server and removes its folder.
func (s *Server) Close() error {
	if s.cmd != nil && s.cmd.Process != nil {
		s.cmd.Process.Signal(s.kind.stop)
		select {
		case <-s.done:
		case <-time.After(stopTimeout):
			s.Kill()
		}
	}
	if s.log != nil {
		s.log.Close()
	}
	return os.RemoveAll(s.folder)
}
