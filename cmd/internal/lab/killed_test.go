package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/link"
	"github.com/balekv/bale/cmd/internal/twemproxy"
	"github.com/balekv/bale/internal/redisproc"
)

// keeperEnv makes this program one that measures until it is interrupted, or killed.
const keeperEnv = "BALE_TEST_LAB_KEEPER"

// keep measures through all that a run may start: a private server, behind a link and a proxy where
// there can be any. It prints their processes.
func keep() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	server, err := OpenPrivate(ctx, ServerSetting{Link: "1gbit"})
	if _, cannot := errors.AsType[link.Unavailable](err); cannot {
		server, err = OpenPrivate(ctx, ServerSetting{})
	}
	if err != nil {
		return err
	}
	values, err := dataset.Sized(100, 1)
	if err != nil {
		return err
	}
	none, err := engine.Parse("none")
	if err != nil {
		return err
	}
	_, missing := exec.LookPath("nutcracker")
	c := Config{
		Datasets: []*dataset.Dataset{values}, Codecs: []string{"raw"}, Compress: []engine.Setting{none}, Concurrency: []int{4},
		Clients: []ClientSetting{{Name: "redigo", Proxy: missing == nil}}, Rounds: 1000, Duration: 20 * time.Second, Seed: 1,
	}
	var once sync.Once
	c.Progress = func(p Progress) {
		if p.Round < 2 {
			return
		}
		once.Do(func() {
			info, err := server.info(ctx, "server")
			fmt.Print(info["process_id"])
			if err == nil && server.proxy != nil {
				fmt.Print(" ", server.proxy.PID())
			}
			fmt.Println()
		})
	}
	r, err := Measure(ctx, []*Server{server}, c)
	if !errors.Is(err, context.Canceled) || r == nil || len(r.Cells) != 1 || !r.Cells[0].Verified {
		return fmt.Errorf("%+v, %w", r, err)
	}
	return server.Close()
}

// TestKilled: whether the lab is interrupted or killed, its servers and proxies end with it.
// Interrupted it leaves nothing; killed, a network that the next link removes, and files in the
// folder for temporary ones.
func TestKilled(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("elsewhere the kernel does not end a process with its parent")
	}
	redisproc.ForTest(t) // skips where there is none
	if _, err := exec.LookPath("nutcracker"); err != nil && os.Getenv(requireProxy) != "" {
		t.Fatal(twemproxy.ErrNotInstalled)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			tmp := t.TempDir()
			keeper := exec.Command(program)
			keeper.Env = append(os.Environ(), keeperEnv+"=1", "TMPDIR="+tmp)
			keeper.Stderr = os.Stderr
			out, err := keeper.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := keeper.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Error(err)
			}
			pids := strings.Fields(line)
			if len(pids) == 0 {
				t.Errorf("no server is named in %q", line)
			}
			for _, pid := range pids {
				if _, err := os.Readlink("/proc/" + pid + "/exe"); err != nil {
					t.Error(err)
				}
			}
			if err := keeper.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if err := keeper.Wait(); (err == nil) != (sig == syscall.SIGINT) {
				t.Error(err)
			}
			for _, pid := range pids {
				// A process that has ended is there until its parent, which is not this one, has
				// asked how; its program is not.
				for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
					if _, err := os.Readlink("/proc/" + pid + "/exe"); err != nil {
						break
					}
					if time.Now().After(deadline) {
						t.Fatalf("process %s is still there", pid)
					}
				}
			}
			if sig == syscall.SIGINT {
				if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
					t.Errorf("left: %v, %v", left, err)
				}
			} else if l, err := link.Open(t.Context(), link.Setting{Bits: 1e9}); err == nil {
				defer l.Close()
			}
			if list, err := exec.Command("ip", "netns", "list").Output(); err == nil && strings.Contains(string(list), fmt.Sprintf("bale-%x-", keeper.Process.Pid)) {
				t.Errorf("left:\n%s", list)
			}
		})
	}
}
