package redisproc

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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

// brokenFile is what a server says of a file that it gives up. It reads all of the file again then, to say where it is broken.
const brokenFile = "Internal error in RDB reading"

// File is an RDB file for a server to load.
type File struct {
	// Path names the file, which is read only: neither it nor its folder is written to.
	Path string

	// Progress, if there is one, is told from time to time which part is loaded, 0 to 1. It is called from one goroutine.
	Progress func(fraction float64)

	// Valkey prefers valkey-server, if both are in PATH.
	Valkey bool
}

// StartFile runs a redis-server as [Start] does, which loads a file, and returns when it has. That takes as long as it takes, until
// ctx ends or the server does. The server asks for a password, which [Server.URL] has, for the file may hold what others on
// the machine must not read. A server that ends is a [StartError], whose Log says why. The caller closes the server.
func StartFile(ctx context.Context, f File, args ...string) (*Server, error) {
	path, err := filepath.Abs(f.Path)
	if err != nil {
		return nil, fmt.Errorf("redisproc: %w", err)
	}
	programs := programs
	if f.Valkey {
		programs = []string{programs[1], programs[0]}
	}
	password := rand.Text()
	return startWith(ctx, programs, func(s *Server) error {
		s.password, s.loading = password, &loading{progress: f.Progress, stall: stallAfter}
		if err := os.Symlink(path, filepath.Join(s.dir, loadedFile)); err != nil {
			return err
		}
		// Arguments can be read by everybody on the machine; a file in our directory cannot.
		conf := filepath.Join(s.dir, "server.conf")
		s.args = append([]string{conf}, append(s.arguments(), append([]string{"--dbfilename", loadedFile}, args...)...)...)
		return os.WriteFile(conf, []byte("requirepass "+password+"\n"), 0o600)
	})
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

// output is what a process says, to be read while it runs.
type output struct {
	lock sync.Mutex
	text bytes.Buffer
}

// Write appends to it.
func (o *output) Write(b []byte) (int, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.lock.Lock()
	defer o.lock.Unlock()
	return o.text.String()
}
