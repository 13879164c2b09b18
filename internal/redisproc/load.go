package redisproc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	loadedFile = "dump.rdb"      // the name that a file to be loaded has in the server's directory
	askWithin  = 5 * time.Second // one answer, of a server that loads and answers between whiles
	stallAfter = 2 * time.Minute // no byte loaded and no answer for so long: it will not get on
	pollMax    = 200 * time.Millisecond
)

// ErrStalled says that a server did not get on with loading a file.
var ErrStalled = errors.New("no progress for " + stallAfter.String())

// ErrOld says that the server in PATH is of a version before [File].Since.
var ErrOld = errors.New("the server is too old")

// brokenFile is the server's message when it gives up on a file. It then reads the whole file again
// to find the broken place.
const brokenFile = "Internal error in RDB reading"

// File is an RDB file for a server to load.
type File struct {
	// Path names the file, which is read only: neither it nor its folder is written to.
	Path string

	// Progress, if not nil, receives the loaded fraction from time to time, 0 to 1. It is called
	// from one goroutine.
	Progress func(fraction float64)

	// Valkey prefers valkey-server, if both are in PATH.
	Valkey bool

	// Since is the minimum major version of the server, for example 7. An earlier or unknown
	// version is not started ([ErrOld]). 0 is any.
	Since int

	// Memory bounds the server's data in bytes; beyond it the server ends. It has no effect if the
	// system does not count a process' data (ulimit -d), as on macOS. 0 is no limit.
	Memory uint64
}

// StartFile runs a redis-server as [Start] does, and returns when the server has loaded a file.
// There is no time limit but ctx. The server demands a password, which [Server.URL] has, because
// the file may hold secrets. Anybody may have written the file, so the server runs no scripts or
// functions and has no DEBUG and MODULE. A server that ends is a [StartError], whose Log has the
// reason. The caller closes the server.
func StartFile(ctx context.Context, f File, args ...string) (*Server, error) {
	programs := programs
	if f.Valkey {
		programs = []string{programs[1], programs[0]}
	}
	return startWith(ctx, programs, func(s *Server) error { return f.prepare(s, args...) })
}

func (f File) prepare(s *Server, args ...string) error {
	path, err := filepath.Abs(f.Path)
	if err != nil {
		return err
	}
	if f.Since > 0 {
		if err := since(s.path, f.Since); err != nil {
			return err
		}
	}
	s.loading = &loading{progress: f.Progress, stall: stallAfter}
	s.modest = path // what others wrote is read
	if err := os.Symlink(path, filepath.Join(s.dir, loadedFile)); err != nil {
		return err
	}
	s.args = append(s.arguments(), append([]string{"--dbfilename", loadedFile}, args...)...)
	if f.Memory > 0 {
		s.prefix = []string{"/bin/sh", "-c", fmt.Sprintf(`ulimit -d %d; exec "$@"`, f.Memory>>10), "sh"}
	}
	password := rand.Text()
	s.protect(password, "user default on >"+password+" ~* +@all -@scripting -debug -module")
	return nil
}

// versionOf matches the major version in the server's description of itself.
var versionOf = regexp.MustCompile(` server v=([0-9]{1,3})\.`)

// since returns ErrOld for servers of an earlier major version.
func since(path string, least int) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = Environment()
	says, err := cmd.Output()
	if m := versionOf.FindSubmatch(says); m != nil {
		if major, _ := strconv.Atoi(string(m[1])); major >= least {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("%w: it must be of version %d.0 or later, and %s --version says %q", ErrOld, least, path, strings.TrimSpace(string(says))), err)
}

// loading is how to wait for a server that loads a file.
type loading struct {
	progress func(fraction float64) // may be nil
	stall    time.Duration
}

// await waits for the server to have loaded its file.
func (l *loading) await(ctx context.Context, s *Server) error {
	moved, before, pause := time.Now(), "", 5*time.Millisecond
	for {
		asking, cancel := context.WithTimeout(ctx, min(askWithin, l.stall))
		info, err := s.Do(asking, "INFO", "persistence")
		cancel()
		if err == nil {
			state := fields(info)
			if state["loading"] == "0" {
				l.tell(1)
				return nil
			}
			if now := state["loading_loaded_bytes"]; now != before {
				moved, before = time.Now(), now
			}
			loaded, _ := strconv.ParseFloat(state["loading_loaded_bytes"], 64)
			if total, _ := strconv.ParseFloat(state["loading_total_bytes"], 64); total > 0 {
				l.tell(min(loaded/total, 1))
			}
		}
		if strings.Contains(s.log.String(), brokenFile) {
			return errEnded
		}
		if time.Since(moved) >= l.stall {
			return errors.Join(ErrStalled, err)
		}
		select {
		case <-s.done:
			return errEnded
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
			pause = min(2*pause, pollMax)
		}
	}
}

func (l *loading) tell(fraction float64) {
	if l.progress != nil {
		l.progress(fraction)
	}
}

// fields are the lines of INFO.
func fields(info string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			all[name] = value
		}
	}
	return all
}

// StartError says that a server did not start, or did not load its file.
type StartError struct {
	Program string // as in PATH: "redis-server"
	Port    int
	State   string // how the process ended by itself: "exit status 1", "signal: killed"; empty if it did not
	Log     string // what it said
	Err     error
}

func (e *StartError) Error() string {
	return fmt.Sprintf("redisproc: %s on port %d: %v; it said:\n%s", e.Program, e.Port, e.Err, e.Log)
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// output is a process's output, readable while it runs. It is a file: a pipe would have to be read
// to its end, and a child of the process can keep that open.
type output struct{ *os.File }

// newOutput makes a file that has no name any more.
func newOutput() (output, error) {
	f, err := os.CreateTemp("", "bale-redis-")
	if err != nil {
		return output{}, err
	}
	return output{f}, os.Remove(f.Name())
}

// maxOutput is as much of it as is read; a server that starts says 1 KiB.
const maxOutput = 1 << 20

func (o output) String() string {
	text, _ := io.ReadAll(io.NewSectionReader(o, 0, maxOutput)) // it is only told
	return string(text)
}
