package push

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"github.com/balekv/bale/cmd/internal/outcome"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// requireEnv names the variable that, when not empty, makes a test without a Pushgateway fail
// instead of skip.
const requireEnv = "BALE_REQUIRE_PUSHGATEWAY"

// The gateway's only user; the password is one that a URL has to escape.
const user, password, userConfig = "bench", "s3cr:et/", `
basic_auth_users:
  bench: $2b$04$abcdefghijklmnopqrstuuZGWTEtB/mvp7HDei1P6LtgRvxP.NZyy
`

// runGateway runs a Pushgateway until the test ends, and returns where it is.
func runGateway(t *testing.T) (addr string) {
	t.Helper()
	path, err := exec.LookPath("prometheus-pushgateway")
	if err != nil {
		if os.Getenv(requireEnv) != "" {
			t.Fatal(err)
		}
		t.Skip("no prometheus-pushgateway in PATH (Debian: apt-get install prometheus-pushgateway)")
	}
	config := filepath.Join(t.TempDir(), "web.yml")
	if err := os.WriteFile(config, []byte(userConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, "--web.listen-address="+addr, "--persistence.file=", "--web.config.file="+config, "--log.level=warn")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second // then it is killed
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := cmd.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("prometheus-pushgateway: %v\n%s", err, log.Bytes())
		}
		if t.Failed() {
			t.Logf("prometheus-pushgateway says:\n%s", log.Bytes())
		}
	})
	deadline, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
			return addr
		}
		select {
		case <-deadline.Done():
			t.Fatal(err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// metrics are the lines of the gateway's own page that have a figure of the bench, sorted.
func metrics(t *testing.T, addr string) []string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+addr+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.SetBasicAuth(user, password)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != 200 {
		t.Fatal(err, reply.Status)
	}
	lines := regexp.MustCompile(`(?m)^bale_bench_.*`).FindAllString(string(body), -1)
	slices.Sort(lines)
	return lines
}

func perKey(v float64) *float64 { return &v }

func run() *outcome.Run {
	return &outcome.Run{
		Environment: outcome.Environment{Bale: "v1", Go: "go1.26", CPU: "a \"CPU\"", OS: "linux", RedisVersion: "7.0.15", Time: time.UnixMilli(1_500)},
		Cells: []outcome.Cell{
			{
				Identity: outcome.Identity{Dataset: "profiles", Track: "dynamic", Codec: "json", Compress: "zstd:3+dict", Client: "goredis", Concurrency: 64},
				Verified: true, Values: 100, StoredBytes: 10_000, Ratio: 4, RedisBytesPerKey: perKey(208.5),
				OpsPerSecond: outcome.Estimate{Median: 32_652}, ValuesPerSecond: outcome.Estimate{Median: 32_652},
				P50: outcome.Estimate{Median: 1919}, P99: outcome.Estimate{Median: 6484}, AllocsPerOp: outcome.Estimate{Median: 111},
			},
			{
				Identity: outcome.Identity{Dataset: "a\xff", Track: "typed", Codec: "gob", Compress: "none", Client: "rueidis",
					Server: "appendonly=always", Batch: "mset:10", Concurrency: 1, Rate: 1500.5},
				Verified: true, OpsPerSecond: outcome.Estimate{Median: 10}, ValuesPerSecond: outcome.Estimate{Median: 100},
			},
			{
				Identity: outcome.Identity{Dataset: "profiles", Track: "dynamic", Codec: "gob", Compress: "none", Client: "goredis", Concurrency: 64},
				Mismatch: true, OpsPerSecond: outcome.Estimate{Median: 5},
			},
		},
	}
}

// lines are those of a run as the gateway shows them, with the labels of its group.
func lines(instance, study string) []string {
	group := func(name string) string {
		labels := map[string]string{"instance": instance, "job": "bale_bench"}
		if study != "" {
			labels["study"] = study
		}
		b := `{`
		for i, k := range slices.Sorted(maps.Keys(labels)) {
			if i > 0 {
				b += ","
			}
			b += fmt.Sprintf("%s=%q", k, labels[k])
		}
		return name + b + "}"
	}
	withCell := func(name, batch, client, codec, compress, concurrency, dataset, rate, server, track string) string {
		tail := fmt.Sprintf(`rate=%q,server=%q`, rate, server)
		if study != "" {
			tail += fmt.Sprintf(",study=%q", study)
		}
		return fmt.Sprintf(`bale_bench_%s{batch=%q,client=%q,codec=%q,compress=%q,concurrency=%q,dataset=%q,instance=%q,job="bale_bench",%s,track=%q}`,
			name, batch, client, codec, compress, concurrency, dataset, instance, tail, track)
	}
	first := func(name string, v any) string {
		return fmt.Sprint(withCell(name, "", "goredis", "json", "zstd:3+dict", "64", "profiles", "", "", "dynamic"), " ", v)
	}
	second := func(name string, v any) string {
		return fmt.Sprint(withCell(name, "mset:10", "rueidis", "gob", "none", "1", "a�", "1500.5", "appendonly=always", "typed"), " ", v)
	}
	info := strings.Replace(group("bale_bench_info"), "{", `{bale="v1",cpu="a \"CPU\"",go="go1.26",`, 1)
	info = strings.Replace(info, `job="bale_bench"`, `job="bale_bench",os="linux",redis="7.0.15"`, 1)
	all := []string{
		first("ops_per_second", 32652), first("values_per_second", 32652), first("p50_seconds", 0.001919), first("p99_seconds", 0.006484), first("ratio", 4),
		first("stored_bytes_per_value", 100), first("redis_bytes_per_key", 208.5), first("allocs_per_op", 111), first("verified", 1),
		second("ops_per_second", 10), second("values_per_second", 100), second("p50_seconds", 0), second("p99_seconds", 0), second("ratio", 0),
		second("allocs_per_op", 0), second("verified", 1),
		withCell("verified", "", "goredis", "gob", "none", "64", "profiles", "", "", "dynamic") + " 0",
		group("bale_bench_run_timestamp_seconds") + " 1.5",
		info + " 1",
	}
	slices.Sort(all)
	return all
}

// TestGateway: a real one has what was pushed, and nothing of what was there before.
func TestGateway(t *testing.T) {
	addr := runGateway(t)
	const escaped = "s3cr%3Aet%2F"
	g, err := Parse("http://" + user + ":" + escaped + "@" + addr + "/metrics/")
	if err != nil {
		t.Fatal(err)
	}
	g.Instance = "a/machine"
	before := run()
	before.Cells[0].Dataset = "of another time"
	for _, r := range []*outcome.Run{before, run()} {
		if err := g.Push(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(lines("a/machine", ""), metrics(t, addr)); diff != "" {
		t.Errorf("(-pushed +there):\n%s", diff)
	}
	study := run()
	study.Environment.Study = "clients"
	if err := g.Push(t.Context(), study); err != nil {
		t.Fatal(err)
	}
	both := append(lines("a/machine", ""), lines("a/machine", "clients")...)
	slices.Sort(both)
	if diff := cmp.Diff(both, metrics(t, addr)); diff != "" {
		t.Errorf("with a study (-pushed +there):\n%s", diff)
	}

	wrong, err := Parse("http://" + user + ":wrong" + escaped + "@" + addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := wrong.Push(t.Context(), run()); err == nil || !strings.Contains(err.Error(), "unexpected status code 401 while pushing to http://"+addr+"/") {
		t.Errorf("with a wrong password: %v", err)
	} else if strings.Contains(err.Error(), "s3cr") {
		t.Error("the password is in the error")
	}
}

// TestErrors: what is no gateway is an error, without the password.
func TestErrors(t *testing.T) {
	silent := make(chan struct{})
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path[:2] {
		case "/r":
			http.Redirect(w, r, "/other", http.StatusFound)
		case "/l":
			http.Error(w, strings.Repeat("long", 10_000), http.StatusBadRequest)
		case "/s":
			<-silent
		}
	}))
	defer elsewhere.Close()
	defer close(silent)
	gone := httptest.NewServer(nil)
	gone.Close()
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	host := func(s *httptest.Server) string { return "http://bench:hidden@" + s.Listener.Addr().String() }
	for _, test := range []struct {
		ctx       context.Context
		url, want string
	}{
		{t.Context(), host(gone), "connection refused"},
		{t.Context(), host(elsewhere) + "/redirects", "unexpected status code 302"},
		{t.Context(), host(elsewhere) + "/long", "unexpected status code 400"},
		{soon, host(elsewhere) + "/silent", "context deadline exceeded"},
	} {
		g, err := Parse(test.url)
		if err != nil {
			t.Fatal(err)
		}
		err = g.Push(test.ctx, run())
		switch {
		case err == nil || !strings.Contains(err.Error(), test.want):
			t.Errorf("%s: %v", test.url, err)
		case !strings.HasPrefix(err.Error(), "push to "+g.String()+": ") || strings.Contains(err.Error(), "hidden") || len(err.Error()) > 2*maxReply:
			t.Errorf("%s: %d bytes: %.200v", test.url, len(err.Error()), err)
		}
	}
	twice := run()
	twice.Cells = append(twice.Cells, twice.Cells[0])
	g, err := Parse("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Push(t.Context(), twice); err == nil || !strings.Contains(err.Error(), "was collected before with the same name and label values") {
		t.Errorf("a cell that is there twice: %v", err)
	}
}

func TestParse(t *testing.T) {
	for _, test := range []struct{ in, url, user, password string }{
		{in: "http://127.0.0.1:9091", url: "http://127.0.0.1:9091"},
		{in: "https://push.example/prefix/", url: "https://push.example/prefix"},
		{in: "http://push.example:9091/metrics", url: "http://push.example:9091"},
		{in: "http://[::1]:9091/", url: "http://[::1]:9091"},
		{in: "http://bench@push.example", url: "http://push.example", user: "bench"},
		{in: "http://bench:hid%2Fden@push.example/metrics/", url: "http://push.example", user: "bench", password: "hid/den"},
	} {
		g, err := Parse(test.in)
		if err != nil {
			t.Errorf("%s: %v", test.in, err)
			continue
		}
		if g.String() != test.url || g.user != test.user || g.password != test.password || g.basic != strings.Contains(test.in, "@") || g.Instance == "" {
			t.Errorf("%s: %+v", test.in, g)
		}
	}
	for _, in := range []string{
		"", "127.0.0.1:9091", "push.example:9091", "http://", "ftp://bench:hidden@push.example", "http://bench:hidden", "http://bench:hid/den@push.example",
		"http://push.example?token=hidden", "http://push.example#hidden", "http://bench:hidden@push.example:port", "http://bench:%hidden@push.example",
	} {
		if g, err := Parse(in); err == nil {
			t.Errorf("%q is %+v", in, g)
		} else if strings.Contains(err.Error(), "hid") || !strings.HasPrefix(err.Error(), "push: ") {
			t.Errorf("%q: %v", in, err)
		}
	}
}

// TestLowerBounds: a latency of which only a lower bound is known is left out, and nothing else is.
func TestLowerBounds(t *testing.T) {
	r := run()
	r.Cells[0].AtLeast = true
	for name, want := range map[string]int{"bale_bench_p50_seconds": 1, "bale_bench_p99_seconds": 1, "bale_bench_ops_per_second": 2, "bale_bench_verified": 3} {
		if got := testutil.CollectAndCount((*collection)(r), name); got != want {
			t.Errorf("%d of %s, want %d", got, name, want)
		}
	}
}

func TestLint(t *testing.T) {
	problems, err := testutil.CollectAndLint((*collection)(run()))
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
