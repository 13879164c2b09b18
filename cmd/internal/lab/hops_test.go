package lab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/link"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/twemproxy"
)

// Variables that, when not empty, make a test fail instead of skip where its part of the machine is
// missing.
const (
	requireProxy = "BALE_REQUIRE_TWEMPROXY"
	requireLink  = "BALE_REQUIRE_LINK"
)

// TestThroughTwemproxy: each client works one by one and in batches, over the one connection that
// the proxy has to the server. After the run the proxy is gone.
func TestThroughTwemproxy(t *testing.T) {
	if _, err := exec.LookPath("nutcracker"); err != nil && os.Getenv(requireProxy) == "" {
		t.Skip(twemproxy.ErrNotInstalled)
	}
	server := realServer(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp) // of the proxy
	const callers = 16
	c := config(t, "s2")
	c.Concurrency, c.Batches = []int{callers}, []Batch{{}, {N: 5}, {MSet: true, N: 5}}
	for _, name := range []string{"goredis@twemproxy", "goredis:2+auto@twemproxy", "rueidis@twemproxy", "rueidis:4-auto@twemproxy", "redigo@twemproxy", "radix:4@twemproxy", "redigo:2"} {
		s, err := ParseClient(name)
		if err != nil {
			t.Fatal(err)
		}
		c.Clients = append(c.Clients, s)
	}
	pid, addr, proxied := 0, "", 0.
	c.Progress = func(p Progress) {
		if p.Round < 2 {
			return
		}
		pid, addr = server.proxy.PID(), server.proxy.Addr() // clients have their connections, for there was a round before
		list, err := server.client.ClientList(t.Context()).Result()
		if n := strings.Count(list, "\n"); err != nil || n > callers/2 {
			t.Errorf("the server has %d connections, %v", n, err)
		}
	}
	r, err := Measure(t.Context(), []*Server{server}, c)
	if err != nil {
		t.Fatal(err)
	}
	if want := len(c.Clients)*len(c.Batches) - 2; len(r.Cells) != want || len(r.Skipped) != 2 { // auto-pipelining has no batches
		t.Errorf("%d cells, want %d", len(r.Cells), want)
	}
	for _, s := range r.Skipped {
		if s.Client != "goredis:2+auto@twemproxy" || s.Batch == "" || s.Reason != noBatches {
			t.Errorf("left out: %+v", s)
		}
	}
	for _, cell := range r.Cells {
		u := cell.Resources
		switch through := strings.HasSuffix(cell.Client, "@twemproxy"); {
		case !cell.Verified || cell.Operations == 0:
			t.Errorf("%s %s: %s", cell.Client, cell.Batch, cell.Error)
		case through != (u.ProxyCPU != nil):
			t.Errorf("%s %s: of the proxy %v", cell.Client, cell.Batch, u.ProxyCPU)
		case through && *u.ProxyCPU > *u.ServerCPU:
			t.Errorf("%s %s: the proxy used %.2f of %.2f cores", cell.Client, cell.Batch, *u.ProxyCPU, *u.ServerCPU)
		case through:
			proxied += *u.ProxyCPU
		}
	}
	// All that goes through it costs it something, though a cell's time may be less than what the
	// kernel counts in.
	if proxied <= 0 {
		t.Error("the proxy is said to have used no processor at all")
	}
	if pid == 0 {
		t.Fatal("no proxy was seen")
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d of the proxy is there still: %v", pid, err)
	}
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Errorf("somebody answers at %s", addr)
	}
	if left, err := filepath.Glob(filepath.Join(tmp, "bale-twemproxy-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	// Run reports in advance what the proxy does not support.
	server.Options.Username = "somebody"
	if _, err := Measure(t.Context(), []*Server{server}, c); !errors.Is(err, ErrClient) || strings.Contains(err.Error(), server.Options.Password) {
		t.Errorf("with a user name: %v", err)
	}
}

// TestBehindALink: values that are large for a narrow link fill it, and nothing of it is left.
func TestBehindALink(t *testing.T) {
	near := realServer(t) // where values are stored first, which would take a while over the link
	const bits = 5e5
	far, err := OpenPrivate(t.Context(), ServerSetting{Link: "500kbit"})
	if _, cannot := errors.AsType[link.Unavailable](err); cannot && os.Getenv(requireLink) == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	defer func() {
		if !closed {
			far.Close()
		}
	}()
	if far.LinkBits != bits || far.Setting != "link=500kbit" || !far.Private || near.LinkBits != 0 {
		t.Errorf("%+v", far)
	}
	values, err := dataset.Sized(2000, 1)
	if err != nil {
		t.Fatal(err)
	}
	values, _ = values.Halves()
	values, _ = values.Halves()
	c := config(t, "none", "zstd:3")
	c.Datasets, c.Codecs, c.Concurrency, c.Duration = []*dataset.Dataset{values}, []string{"raw"}, []int{4}, time.Second
	r, err := Measure(t.Context(), []*Server{near, far}, c)
	if err != nil {
		t.Fatal(err)
	}
	through := map[string]outcome.Cell{}
	for _, cell := range r.Cells {
		if !cell.Verified || cell.Operations == 0 {
			t.Errorf("%s %s: %s", cell.Server, cell.Compress, cell.Error)
		}
		through[cell.Server+" "+cell.Compress] = cell
	}
	if len(through) != 4 {
		t.Errorf("%d cells", len(through))
	}
	plain, packed := through["link=500kbit none"], through["link=500kbit zstd:3"]
	if plain.Limit != outcome.LimitNetwork || !strings.Contains(plain.Why, "of 0.5 Mbit/s") {
		t.Errorf("limit %q: %s", plain.Limit, plain.Why)
	}
	if other := through[" none"]; other.Limit == outcome.LimitNetwork {
		t.Errorf("without a link the limit is %q: %s", other.Limit, other.Why)
	}
	// The link alone sets the pace, and so the ratio of the bytes does.
	if much := packed.ValuesPerSecond.Median / plain.ValuesPerSecond.Median; packed.Ratio < 1.5 || much < 0.75*packed.Ratio {
		t.Errorf("%.2f times the values over the same link, at a ratio of %.2f", much, packed.Ratio)
	}
	err, closed = far.Close(), true
	if err != nil {
		t.Error(err)
	}
	for _, what := range []string{"netns list", "-oneline link"} {
		out, err := exec.Command("ip", strings.Fields(what)...).Output()
		if name := fmt.Sprintf("bale-%x-", os.Getpid()); err != nil || strings.Contains(string(out), name) {
			t.Errorf("ip %s: %v, %s of this process is there still:\n%s", what, err, name, out)
		}
	}
}
