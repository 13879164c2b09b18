package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// process is a child: a worker or a tool. It ends with the driver.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	tail *tail         // the end of what it said on stderr, and of a tool's stdout

	mu      sync.Mutex
	stopped bool
}

// tail keeps the last bytes that are written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailKept = 16 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > tailKept {
		t.b = bytes.Clone(t.b[len(t.b)-tailKept:])
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

// run starts a child. It has an own group, so that Ctrl-C reaches the driver alone, and ends with
// the driver however that ends (Linux).
func run(path string, args, env []string, pipes bool) (p *process, in io.WriteCloser, out io.ReadCloser, err error) {
	p = &process{cmd: exec.Command(path, args...), done: make(chan struct{}), tail: new(tail)}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	p.cmd.Stderr = p.tail
	var write *os.File
	if pipes {
		if in, err = p.cmd.StdinPipe(); err != nil {
			return nil, nil, nil, err
		}
		// A pipe of our own, for Wait would close StdoutPipe before all is read.
		var read *os.File
		if read, write, err = os.Pipe(); err != nil {
			return nil, nil, nil, err
		}
		p.cmd.Stdout, out = write, read
	} else {
		p.cmd.Stdout = p.tail
	}
	started := make(chan error)
	go func() {
		// The kernel ends the child when the thread that started it ends, so the thread must stay.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		if write != nil {
			write.Close()
		}
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // ProcessState says how
		}
		close(p.done)
	}()
	return p, in, out, <-started
}

// signal sends a signal, unless it has ended.
func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
		return
	default:
	}
	p.stopped = s == syscall.SIGSTOP || p.stopped && s != syscall.SIGCONT
	_ = p.cmd.Process.Signal(s)
}

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}
