package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/balekv/bale/cmd/internal/rank"
	"github.com/balekv/bale/cmd/internal/rounds"
	"github.com/balekv/bale/cmd/internal/twemproxy"
	"github.com/balekv/bale/internal/redisproc"
)

const (
	// figuresEnv asks for the figures. Its value is how long each cell is measured in each round.
	figuresEnv = "BALE_PROXY_FIGURES"
	// serveEnv makes TestFiguresServe a proxy: copy, bale or pool, and the server's address or URL.
	serveEnv = "BALE_PROXY_SERVE"
	// profileEnv is a folder for processor profiles of the proxies.
	profileEnv = "BALE_PROXY_PROFILE"

	figureRounds = 12
	paced        = 64 * 60 // commands a second, where latency is measured
	manyClients  = 10_000
)

// hop is a proxy of its own process, on a core of its own.
type hop struct {
	name, addr, prefix string
	pid                int
}

// figure is a cell of the tables: a load through a hop.
type figure struct {
	hop
	load    string
	write   bool
	depth   int
	clients int
	rate    int // commands a second; 0 for as many as there can be

	micros, p99, rates []float64 // of each round: processor time a command, latency, and commands a second
}

// TestFigures measures the proxy beside a bare one and twemproxy, and prints the tables of
// docs/figures.md. The proxies have one core, and Redis and the load the other one. Each reply is
// compared with what was written.
func TestFigures(t *testing.T) {
	if os.Getenv(figuresEnv) == "" {
		t.Skip("set " + figuresEnv + " to a duration, such as 1s")
	}
	turn, err := time.ParseDuration(os.Getenv(figuresEnv))
	if err != nil {
		t.Fatal(err)
	}
	if runtime.NumCPU() < 2 {
		t.Fatal("this needs two cores")
	}
	pin(t, os.Getpid(), 0)
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 50_000, Max: 50_000}) // the hard limit may stay
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	s := newStage(t)
	if err := s.past.ConfigSet(t.Context(), "maxclients", strconv.Itoa(manyClients+200)).Err(); err != nil {
		t.Fatal(err)
	}
	bare := serve(t, "copy "+s.server.Addr())
	bale := serve(t, "bale "+s.server.URL())
	pool := serve(t, "pool "+s.server.URL())
	twem, err := twemproxy.Start(t.Context(), s.server.Addr(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer twem.Close()
	pin(t, twem.PID(), 1)
	s.proxy = bale.addr
	s.prove(t)
	stored := 0
	for i := range 100 {
		stored += int(s.past.StrLen(t.Context(), "user:"+strconv.Itoa(i)).Val())
	}

	bare.name, bare.prefix = "io.Copy", "other:"
	out, packed, quick, shared, sharedPacked := bale, bale, bale, pool, pool
	out.name, out.prefix = "bale, out of scope", "other:"
	packed.name, packed.prefix = "bale, zstd:3+dict", "user:"
	quick.name, quick.prefix = "bale, zstd:1+dict", "quick:"
	shared.name, shared.prefix = "bale --pool 1, out of scope", "other:"
	sharedPacked.name, sharedPacked.prefix = "bale --pool 1, zstd:1+dict", "quick:"
	proxies := []hop{bare, out, packed, quick, shared, sharedPacked, {"twemproxy", twem.Addr(), "other:", twem.PID()}}
	var figures []*figure
	for _, l := range []figure{{load: "GET", depth: 1, clients: 64}, {load: "SET", depth: 1, clients: 64, write: true}, {load: "GET, pipelines of 16", depth: 16, clients: 16}, {load: "SET, pipelines of 16", depth: 16, clients: 16, write: true}} {
		for _, h := range proxies {
			f := l
			f.hop = h
			figures = append(figures, &f)
		}
	}
	for _, h := range append([]hop{{"Redis itself", s.server.Addr(), "other:", s.server.PID()}}, proxies...) {
		figures = append(figures, &figure{hop: h, load: "latency", depth: 1, clients: 64, rate: paced})
	}
	names := make([]string, len(figures))
	for i, f := range figures {
		names[i] = f.name + " " + f.load
	}
	about, err := rounds.Measure(t.Context(), rounds.Options{Duration: figureRounds * turn, Rounds: figureRounds, Seed: 1}, names, func(ctx context.Context, cell int, d time.Duration) error {
		return figures[cell].measure(t, d)
	})
	if err != nil {
		t.Fatal(err)
	}

	fmt.Printf("%s, %s, %d rounds of %v a cell; values of %d bytes, packed %d on average", about.CPU, about.Go, figureRounds, turn, valueSize, stored/100)
	if about.OthersCPU != nil {
		fmt.Printf("; other programs took %.3f cores", *about.OthersCPU)
	}
	fmt.Print("\n\n| load | proxy | processor time, µs | against io.Copy | commands a second of a core | measured a second |\n|---|---|---|---|---|---|\n")
	for i, f := range figures[:4*len(proxies)] {
		base := figures[i/len(proxies)*len(proxies)]
		ratios := make([]float64, figureRounds)
		for r := range ratios {
			ratios[r] = f.micros[r] / base.micros[r]
		}
		fmt.Printf("| %s | %s | %s | %s | %.0f | %.0f |\n", f.load, f.name, interval(f.micros, "%.2f"), interval(ratios, "%.2f"), 1e6/rank.Median(f.micros), rank.Median(f.rates))
	}
	fmt.Printf("\n| GET at %d a second, 64 connections | P99, µs | more than Redis itself |\n|---|---|---|\n", paced)
	direct := figures[4*len(proxies)]
	for _, f := range figures[4*len(proxies):] {
		added := make([]float64, figureRounds)
		for r := range added {
			added[r] = f.p99[r] - direct.p99[r]
		}
		fmt.Printf("| %s | %s | %s |\n", f.name, interval(f.p99, "%.0f"), interval(added, "%.0f"))
	}

	clients := min(manyClients, (int(limit.Cur)-200)/2)
	fmt.Printf("\n| %d connections | KiB a connection |\n|---|---|\n", clients)
	for _, h := range []hop{out, packed} {
		fresh := serve(t, "bale "+s.server.URL())
		before := resident(t, fresh.pid)
		all := make([]net.Conn, clients)
		set, get, buf := newTraffic(t, h.prefix, true, 1), newTraffic(t, h.prefix, false, 1), make([]byte, 4096)
		for i := range all {
			c := dial(t, fresh.addr)
			if all[i] = c; errors.Join(set.exchange(c, i, buf), get.exchange(c, i, buf)) != nil {
				t.Fatalf("connection %d does not answer", i)
			}
		}
		for i, c := range all { // all at a time
			if err := get.exchange(c, i, buf); err != nil {
				t.Fatal(err)
			}
		}
		fmt.Printf("| %s | %.1f |\n", h.name, float64(resident(t, fresh.pid)-before)/1024/float64(clients))
		for _, c := range all {
			c.Close()
		}
	}
}

// measure is one cell of one round.
func (f *figure) measure(t *testing.T, d time.Duration) error {
	traffic := newTraffic(t, f.prefix, f.write, f.depth)
	conns := make([]net.Conn, f.clients)
	for i := range conns {
		c := dial(t, f.addr)
		defer c.Close()
		conns[i] = c
		if err := traffic.exchange(c, i, make([]byte, 64<<10)); err != nil {
			return err
		}
	}
	var commands atomic.Int64
	var lock sync.Mutex
	var failed error
	var times []float64
	began, cpu := time.Now(), processTime(t, f.pid)
	var running sync.WaitGroup
	for i, c := range conns {
		running.Go(func() {
			var err error
			var mine []float64
			buf, n, at := make([]byte, 64<<10), 0, began
			if f.rate > 0 {
				at = began.Add(time.Duration(i) * time.Second / time.Duration(f.rate))
			}
			for err == nil && time.Since(began) < d {
				if f.rate == 0 {
					err = traffic.exchange(c, i+n, buf)
				} else {
					time.Sleep(time.Until(at))
					at = at.Add(time.Duration(f.clients) * time.Second / time.Duration(f.rate))
					sent := time.Now()
					err = traffic.exchange(c, i+n, buf)
					mine = append(mine, float64(time.Since(sent))/1e3)
				}
				n++
			}
			commands.Add(int64(n * f.depth))
			lock.Lock()
			defer lock.Unlock()
			failed = errors.Join(failed, err)
			times = append(times, mine...)
		})
	}
	running.Wait()
	if failed != nil {
		return fmt.Errorf("%s: %w", f.name, failed)
	}
	n := float64(commands.Load())
	f.micros = append(f.micros, float64(processTime(t, f.pid)-cpu)/1e3/n)
	f.rates = append(f.rates, n/time.Since(began).Seconds())
	if slices.Sort(times); len(times) > 0 {
		f.p99 = append(f.p99, times[len(times)*99/100])
	}
	return nil
}

// interval is a median with its 95% interval.
func interval(values []float64, format string) string {
	low, high, ok := rank.MedianInterval(values)
	if !ok {
		return fmt.Sprintf(format, rank.Median(values))
	}
	return fmt.Sprintf(format+" ("+format+" to "+format+")", rank.Median(values), low, high)
}

// serve starts a proxy on core 1: this program again.
func serve(t *testing.T, what string) hop {
	t.Helper()
	args := []string{"-c", "1", os.Args[0], "-test.run=^TestFiguresServe$", "-test.timeout=0"}
	if dir := os.Getenv(profileEnv); dir != "" {
		args = append(args, "-test.cpuprofile="+filepath.Join(dir, strings.Fields(what)[0]+strconv.FormatInt(time.Now().UnixNano(), 36)+".pprof"))
	}
	cmd := osexec.Command("taskset", args...)
	cmd.Env, cmd.SysProcAttr, cmd.Stderr = append(os.Environ(), serveEnv+"="+what), redisproc.Attributes(), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	done, err := redisproc.Spawn(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); <-done })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return hop{addr: strings.TrimSpace(line), pid: cmd.Process.Pid}
}

// TestFiguresServe is no test: TestFigures runs it in processes of their own, until its standard
// input ends.
func TestFiguresServe(t *testing.T) {
	kind, to, ok := strings.Cut(os.Getenv(serveEnv), " ")
	if !ok {
		t.Skip("a part of TestFigures")
	}
	if kind != "copy" {
		o := staged(to)
		o.MaxClients = manyClients
		if kind == "pool" {
			o.Pool = 1
		}
		fmt.Println(start(t, o).addr)
	} else {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go bareProxy(c, to)
			}
		}()
		fmt.Println(l.Addr())
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// bareProxy forwards a connection, and looks at nothing.
func bareProxy(c net.Conn, to string) {
	defer c.Close()
	s, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer s.Close()
	go func() {
		_, _ = io.Copy(s, c)
		_ = s.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, s)
}

func pin(t *testing.T, pid, core int) {
	t.Helper()
	if out, err := osexec.Command("taskset", "-a", "-c", "-p", strconv.Itoa(core), strconv.Itoa(pid)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// processTime is what all threads of a process have used. /proc has hundredths of a second alone.
func processTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	const scheduled = 2 // of the kinds of clocks of a process
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &at); err != nil {
		t.Fatal(err)
	}
	return time.Duration(at.Nano())
}

// resident is how much memory a process has, in bytes.
func resident(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * syscall.Getpagesize()
}
