package link

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/balekv/bale/internal/redisproc"
)

// keeperEnv makes this test's program open a link with a server and wait to be killed.
const keeperEnv = "LINK_TEST_KEEPER"

func TestMain(m *testing.M) {
	if os.Getenv(keeperEnv) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	l, err := Open(context.Background(), Setting{Bits: 1e9})
	if err == nil {
		var s *redisproc.Server
		if s, err = redisproc.StartWith(context.Background(), redisproc.Options{Host: l.ServerIP(), Prefix: l.Prefix()}); err == nil {
			fmt.Println(l.name, s.PID())
			select {} // until it is killed
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// requireEnv names the variable that, when not empty, makes a test fail instead of skip where no
// network can be limited.
const requireEnv = "BALE_REQUIRE_LINK"

// open opens a link until the test ends.
func open(tb testing.TB, s Setting) *Link {
	tb.Helper()
	l, err := Open(tb.Context(), s)
	if _, ok := errors.AsType[Unavailable](err); ok && os.Getenv(requireEnv) == "" {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
	})
	return l
}

// serve runs a server on a link until the test ends. It ends before the link does.
func serve(tb testing.TB, l *Link) *redisproc.Server {
	tb.Helper()
	s, err := redisproc.StartWith(context.Background(), redisproc.Options{Host: l.ServerIP(), Prefix: l.Prefix()})
	if errors.Is(err, redisproc.ErrNotInstalled) && os.Getenv(redisproc.RequireEnv) == "" {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// ours are the namespaces, devices and routes of links of this process.
func ours(tb testing.TB) []string {
	tb.Helper()
	var found []string
	for _, what := range []string{"netns list", "-oneline link", "-4 route show table all", "-6 route show table all"} {
		out, err := exec.Command("ip", strings.Fields(what)...).Output()
		if err != nil {
			tb.Fatalf("ip %s: %v", what, err)
		}
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, fmt.Sprintf("bale-%x-", os.Getpid())) {
				found = append(found, line)
			}
		}
	}
	return found
}

// nothingLeft fails if there is anything of a link of this process.
func nothingLeft(tb testing.TB) {
	tb.Helper()
	if left := ours(tb); len(left) > 0 {
		tb.Errorf("left: %q", left)
	}
}

func TestLink(t *testing.T) {
	l := open(t, Setting{Bits: 1e9})
	s := serve(t, l)
	if found := ours(t); len(found) < 3 {
		t.Errorf("a link is %q", found)
	}
	if reply, err := s.Do(t.Context(), "PING"); err != nil || reply != "PONG" {
		t.Errorf("%q, %v", reply, err)
	}
	if host, _, _ := net.SplitHostPort(s.Addr()); host != l.ServerIP() {
		t.Errorf("%s is not on %s", s.Addr(), l.ServerIP())
	}
	// The process is the server itself, in another network than this one.
	info, err := s.Do(t.Context(), "INFO", "server")
	if want := fmt.Sprintf("process_id:%d\r\n", s.PID()); err != nil || !strings.Contains(info, want) {
		t.Errorf("%v, want %s of\n%s", err, want, info)
	}
	network := func(process string) string {
		t.Helper()
		id, err := os.Readlink("/proc/" + process + "/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	if theirs := network(strconv.Itoa(s.PID())); theirs == network("self") {
		t.Errorf("the server is in our network, %s", theirs)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	nothingLeft(t)
}

// TestCloseFirst: a link that closes before its server takes away the server's network at once.
func TestCloseFirst(t *testing.T) {
	l := open(t, Setting{Bits: 1e9})
	serve(t, l)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	nothingLeft(t)
}

// TestSeveral: links beside each other lead each to its own server.
func TestSeveral(t *testing.T) {
	addresses := map[string]bool{}
	for i := range 3 {
		l := open(t, Setting{Bits: 1e8 * int64(i+1)})
		s := serve(t, l)
		addresses[l.ServerIP()] = true
		for range 2 {
			if reply, err := s.Do(t.Context(), "INCR", "k"); err != nil {
				t.Errorf("%q, %v", reply, err)
			}
		}
		if reply, err := s.Do(t.Context(), "GET", "k"); err != nil || reply != "2" {
			t.Errorf("link %d: %q, %v", i, reply, err)
		}
	}
	if len(addresses) != 3 {
		t.Errorf("addresses %v", addresses)
	}
}

// transfer sends values of size bytes in total to the server and reads them back. It returns both
// rates in Mbit/s.
func transfer(tb testing.TB, s *redisproc.Server, size int) (up, down float64) {
	tb.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		tb.Fatal(err)
	}
	defer conn.Close()
	n := min(size, 256<<10)
	value := fmt.Appendf(nil, "$%d\r\n%s\r\n", n, strings.Repeat("x", n))
	// move sends a command again and again, ahead of the replies.
	move := func(command []byte, reply int) float64 {
		tb.Helper()
		start := time.Now()
		sent := make(chan error, 1)
		go func() {
			var err error
			for range size / n {
				if _, failed := conn.Write(command); failed != nil {
					err = failed
				}
			}
			sent <- err
		}()
		_, err := io.CopyN(io.Discard, conn, int64(reply*(size/n)))
		if err := errors.Join(err, <-sent); err != nil {
			tb.Fatal(err)
		}
		return float64(size/n*n) * 8 / 1e6 / time.Since(start).Seconds()
	}
	up = move(append([]byte("*3\r\n$3\r\nSET\r\n$5\r\nlarge\r\n"), value...), len("+OK\r\n"))
	return up, move([]byte("*2\r\n$3\r\nGET\r\n$5\r\nlarge\r\n"), len(value))
}

// TestRate: a link gives in both directions the rate that it has. A busy machine may give less, and
// is tried again: what a link must never do is to give more. At the highest rate here that is all
// that is asked of a busy machine.
func TestRate(t *testing.T) {
	const tries, tolerance = 12, 0.15
	for _, test := range []struct {
		bits    int64
		size    int // a quarter of a second
		atLeast bool
	}{{1e9, 32 << 20, false}, {1e7, 320 << 10, true}, {1e8, 3200 << 10, true}} {
		setting := Setting{Bits: test.bits}
		s := serve(t, open(t, setting))
		want := float64(test.bits) / 1e6
		enough := false
		for try := 0; try < tries && !enough; try++ {
			up, down := transfer(t, s, test.size)
			t.Logf("%s: up %.1f, down %.1f Mbit/s", setting, up, down)
			if up > want*(1+tolerance) || down > want*(1+tolerance) {
				t.Errorf("%s gives %.1f up, %.1f down Mbit/s", setting, up, down)
			}
			enough = !test.atLeast || up >= want*(1-tolerance) && down >= want*(1-tolerance)
		}
		if !enough {
			t.Errorf("%s is not reached in %d tries", setting, tries)
		}
	}
}

// TestDelay: with a delay, a round trip takes at least the delay, and without it less.
func TestDelay(t *testing.T) {
	without := open(t, Setting{Bits: 1e9}) // skips where there can be no link
	delay := 40 * time.Millisecond
	l, err := Open(t.Context(), Setting{Bits: 1e9, Delay: delay})
	if errors.Is(err, NoNetem) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ping := func(l *Link) func() time.Duration {
		conn, err := net.Dial("tcp", serve(t, l).Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return func() time.Duration { return roundTrip(t, conn) }
	}
	with := ping(l)
	for range 3 {
		if took := with(); took < delay {
			t.Errorf("a round trip took %v", took)
		}
	}
	quick := ping(without)
	for try := 0; quick() >= delay; try++ {
		if try == 100 {
			t.Fatal("without a delay it takes as long")
		}
	}
}

// roundTrip is how long a PING takes.
func roundTrip(t *testing.T, conn net.Conn) time.Duration {
	t.Helper()
	start := time.Now()
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, len("+PONG\r\n"))); err != nil {
		t.Fatal(err)
	}
	return time.Since(start)
}

// TestNoDelay: if the kernel cannot delay packets, Open reports it with the next step, and leaves
// nothing.
func TestNoDelay(t *testing.T) {
	open(t, Setting{Bits: 1e7}).Close() // skips where there can be no link
	l, err := Open(t.Context(), Setting{Bits: 1e9, Delay: time.Millisecond})
	if err == nil {
		l.Close()
		t.Skip("this kernel can delay")
	}
	if !errors.Is(err, NoNetem) || !strings.Contains(err.Error(), "leave the delay out: --link 1gbit") {
		t.Error(err)
	}
	nothingLeft(t)
}

// TestOpenFails: whichever command fails, and whether it was done or not, nothing stays.
func TestOpenFails(t *testing.T) {
	open(t, Setting{Bits: 1e9}).Close() // skips where there can be no link
	dir := t.TempDir()
	count := filepath.Join(dir, "count")
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"ip", "tc"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		script := fmt.Sprintf(`#!/bin/sh
echo >>%[1]s
n=$(wc -l <%[1]s)
[ "$n" = "$(cat %[3]s/BEFORE)" ] && { echo failing before >&2; exit 1; }
%[2]s "$@" || exit
[ "$n" = "$(cat %[3]s/AFTER)" ] && { echo failing after >&2; exit 1; }
exit 0
`, count, path, dir)
		write(name, script)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	failures := 0
	for _, when := range []string{"BEFORE", "AFTER"} {
		write("BEFORE", "")
		write("AFTER", "")
		for n := 1; ; n++ {
			write("count", "")
			write(when, strconv.Itoa(n))
			l, err := Open(t.Context(), Setting{Bits: 1e9})
			if err == nil {
				ran, _ := os.ReadFile(count)
				if err := l.Close(); err != nil && !strings.Contains(err.Error(), "failing ") {
					t.Error(err)
				}
				if err := l.Close(); err != nil { // a second Close tries again what failed
					t.Error(err)
				}
				nothingLeft(t)
				if bytes.Count(ran, []byte("\n")) < n {
					break
				}
				if n > 1 { // removing what others have left may fail, as may looking for it
					failures++
				}
				continue
			}
			failures++
			if !strings.Contains(err.Error(), "failing "+strings.ToLower(when)) {
				t.Errorf("command %d, %s: %v", n, when, err)
			}
			nothingLeft(t)
		}
	}
	if failures != 2*10 { // the routes, seven to make it, two to limit it
		t.Errorf("%d failures", failures)
	}
}

func TestOpenCancelled(t *testing.T) {
	open(t, Setting{Bits: 1e9}).Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, Setting{Bits: 1e9}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Open(t.Context(), Setting{}); !errors.Is(err, ErrSetting) {
		t.Error(err)
	}
	nothingLeft(t)
}

// TestStale: what a process that is gone has left is removed, and what belongs to others stays.
func TestStale(t *testing.T) {
	open(t, Setting{Bits: 1e9}).Close()
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	ip := func(command string) string {
		t.Helper()
		out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
		if err != nil {
			t.Fatalf("ip %s: %v: %s", command, err, out)
		}
		return string(out)
	}
	stale := fmt.Sprintf("bale-%x-abc", gone.Process.Pid)
	bare := fmt.Sprintf("bale-%x-abd", gone.Process.Pid) // without a device
	living := fmt.Sprintf("bale-%x-abc", os.Getpid())
	strange := fmt.Sprintf("bale-%x-stranger", gone.Process.Pid)
	for _, name := range []string{stale, bare, living, strange} {
		ip("netns add " + name)
		defer exec.Command("ip", "netns", "delete", name).Run() // what the test is about is gone by then
	}
	ip("link add " + stale + " type veth peer name eth0 netns " + stale)
	open(t, Setting{Bits: 1e9})
	names := map[string]bool{}
	for line := range strings.Lines(ip("netns list")) {
		names[strings.Fields(line)[0]] = true
	}
	got := map[string]bool{"stale": names[stale], "bare": names[bare], "living": names[living], "strange": names[strange]}
	if diff := cmp.Diff(map[string]bool{"stale": false, "bare": false, "living": true, "strange": true}, got); diff != "" {
		t.Error(diff)
	}
	if devices := ip("-oneline link"); strings.Contains(devices, stale) {
		t.Errorf("the device is still there:\n%s", devices)
	}
}

// TestKilled: a process that is killed takes its server along, and the next link that is opened
// removes the network.
func TestKilled(t *testing.T) {
	serve(t, open(t, Setting{Bits: 1e9})) // skips where there can be none
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	keeper := exec.Command(program)
	keeper.Env = append(os.Environ(), keeperEnv+"=1", "TMPDIR="+t.TempDir())
	keeper.Stderr = os.Stderr
	out, err := keeper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := keeper.Start(); err != nil {
		t.Fatal(err)
	}
	var name string
	var pid int
	if _, err := fmt.Fscanln(out, &name, &pid); err != nil {
		t.Fatal(err)
	}
	namespace := "/run/netns/" + name
	if _, err := os.Stat(namespace); err != nil {
		t.Error(err)
	}
	if err := keeper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	keeper.Wait()
	// A process that has ended is there until its parent, which is not this one, has asked how; its
	// program is not.
	program = fmt.Sprintf("/proc/%d/exe", pid)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Readlink(program); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server, process %d, is still there", pid)
		}
	}
	open(t, Setting{Bits: 1e9})
	if _, err := os.Stat(namespace); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", namespace, err)
	}
}

// BenchmarkLink shows the rates that a link gives: Mbit/s of a value, to the server and from it.
func BenchmarkLink(b *testing.B) {
	for _, bits := range []int64{1e7, 1e8, 1e9, 1e10} {
		b.Run(Setting{Bits: bits}.String(), func(b *testing.B) {
			s := serve(b, open(b, Setting{Bits: bits}))
			var up, down float64
			for b.Loop() {
				u, d := transfer(b, s, int(min(bits/32, 128<<20))) // a quarter of a second, or less
				up, down = up+u, down+d
			}
			b.ReportMetric(up/float64(b.N), "Mbit/s-up")
			b.ReportMetric(down/float64(b.N), "Mbit/s-down")
		})
	}
}

// TestEnvironment: the tools, which run as root, do not get the passwords of servers.
func TestEnvironment(t *testing.T) {
	t.Setenv("REDISCLI_AUTH", "password-of-production")
	program, err := exec.LookPath("env")
	if err != nil {
		t.Skip(err)
	}
	out, err := run(t.Context(), program)
	if err != nil || strings.Contains(out, "REDISCLI_AUTH") || !strings.Contains(out, "LC_ALL=C") {
		t.Errorf("%v, %q", err, out)
	}
}
