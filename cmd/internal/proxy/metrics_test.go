package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// ask returns an answer, with the name of the host that is asked for.
func ask(t *testing.T, url, host string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host, r.Close = host, true
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(b)
}

// TestMetrics: what the proxy does is counted, in Prometheus' format and for a bounded number of
// names.
func TestMetrics(t *testing.T) {
	t.Parallel()
	var notes lines
	addr, server, p := proxied(t, func(o *Options) { o.Metrics, o.Err, o.MaxRequest, o.MaxClients = ":0", &notes, 64<<10, 1 })
	at := notes.await(t, "metrics are at ")
	url := regexp.MustCompile(`http://\S+/`).FindString(at)
	c := dial(t, addr)
	value := big("x")
	large := strings.Repeat("y", 100<<10)
	talk(t, c, wire("SET", "user:1", value)+wire("GET", "user:1")+wire("SET", "user:2", large), fmt.Sprintf("+OK\r\n$%d\r\n%s\r\n+OK\r\n", len(value), value))
	stored, err := server.Do(t.Context(), "GET", "user:1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Do(t.Context(), "SET", "user:bad", string(damaged(stored))); err != nil {
		t.Fatal(err)
	}
	commands := wire("GET", "user:bad") + wire("APPEND", "user:1", "x") + wire("EVAL", "return 1", "0") + wire("LLEN", "l") + wire("unheard.of") + "un;heard\r\n" + wire("w\xff") + wire(strings.Repeat("z", 100))
	for i := range 2 * maxNames {
		commands += wire(fmt.Sprintf("unheard%d", i))
	}
	go io.WriteString(c, commands+wire("QUIT"))
	if _, err := io.ReadAll(c); err != nil {
		t.Fatal(err)
	}
	status, text := ask(t, url+"metrics", "localhost:1")
	if status != http.StatusOK {
		t.Fatal(status, text)
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	for _, want := range []string{
		"ready 1", "connections_total 1", "connections_rejected_total 0", "upstream_failures_total 0", "packed_values_total 1", fmt.Sprintf("packed_plain_bytes_total %d", len(value)),
		fmt.Sprintf("packed_stored_bytes_total %d", len(stored)), "unpacked_values_total 1", "unpack_errors_total 1", "pack_errors_total 0", "passed_large_values_total 1", "scripts_total 1",
		`refused_commands_total{command="append"} 1`, `unknown_commands_total{command="unheard.of"} 1`, `unknown_commands_total{command="unheard97"} 1`, "held_bytes 0",
	} {
		if !strings.Contains(text, "\nbale_proxy_"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if n := strings.Count(text, "\nbale_proxy_unknown_commands_total{"); n > maxNames+1 || !strings.Contains(text, `unknown_commands_total{command="other"} 10`) {
		t.Errorf("%d names of unknown commands: %s", n, text)
	}
	for _, side := range []string{`received_bytes_total{from="clients"}`, `received_bytes_total{from="redis"}`, `sent_bytes_total{to="redis"}`, `sent_bytes_total{to="clients"}`} {
		if !regexp.MustCompile(`(?m)^bale_proxy_` + regexp.QuoteMeta(side) + ` \d{3,}$`).MatchString(text) {
			t.Errorf("no bytes of %s", side)
		}
	}
	doc, err := os.ReadFile("../../../docs/proxy.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`(?m)^# TYPE (\S+)`).FindAllStringSubmatch(text, -1) {
		if !bytes.Contains(doc, []byte("`"+name[1]+"`")) {
			t.Errorf("docs/proxy.md does not have %s", name[1])
		}
	}
	if status, _ := ask(t, url+"metrics", "evil.example"); status != http.StatusMisdirectedRequest {
		t.Errorf("under a foreign name: %d", status)
	}
	if status, text := ask(t, url+"ready", ""); status != http.StatusOK || text != "ready\n" {
		t.Errorf("%d %s", status, text)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	for {
		status, text := ask(t, url+"ready", "")
		if status == http.StatusServiceUnavailable && text == "not ready: Redis does not answer\n" {
			break
		}
	}
	if b, err := io.ReadAll(dial(t, addr)); err != nil || len(b) > 0 {
		t.Errorf("%q, %v", b, err)
	}
	if _, text := ask(t, url+"metrics", ""); !strings.Contains(text, "\nbale_proxy_upstream_failures_total 1\n") {
		t.Errorf("%s", text)
	}
	if err := p.stop(); err != nil {
		t.Error(err)
	}
}

// TestNamesStay: a counted command keeps its name and its count, whatever its client sends
// afterwards.
func TestNamesStay(t *testing.T) {
	var notes lines
	addr, _, _ := proxied(t, func(o *Options) { o.Metrics, o.Err = ":0", &notes })
	url := regexp.MustCompile(`http://\S+/`).FindString(notes.await(t, "metrics are at "))
	c := dial(t, addr)
	const refusal = "-BALE SYNC " + noReplica + "\r\n"
	talk(t, c, wire("SYNC")+wire("SYNC")+wire("\xff\x01\n\""), refusal+refusal+"-ERR unknown command")
	if _, text := ask(t, url+"metrics", ""); !strings.Contains(text, `refused_commands_total{command="sync"} 2`) {
		t.Error(regexp.MustCompile("(?m)^bale_proxy_refused.*$").FindString(text))
	}
	talk(t, dial(t, addr), wire("SYNC"), refusal)
	if _, text := ask(t, url+"metrics", ""); !strings.Contains(text, `refused_commands_total{command="sync"} 3`) {
		t.Error(regexp.MustCompile("(?m)^bale_proxy_refused.*$").FindAllString(text, -1))
	}
}

// TestSlowLog: a slow command has a line with its name and key, and without its values. One that
// waits on purpose has none, and a burst has at most ten lines a second.
func TestSlowLog(t *testing.T) {
	t.Parallel()
	var notes lines
	addr, server, _ := proxied(t, func(o *Options) { o.SlowLog, o.Err = 20*time.Millisecond, &notes })
	c := dial(t, addr)
	talk(t, c, wire("SET", "user:1", "secret")+wire("BLPOP", "none", "0.1"), "+OK\r\n*-1\r\n")
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(server.PID(), syscall.SIGCONT)
	const n = 50
	if _, err := io.WriteString(c, wire("SET", "user:slow", big("secret"))+wire("MGET", "other", "user:1")+"ECHO secret\r\n"+wire("LPUSH", "list", "secret")+strings.Repeat(wire("PING"), n)); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond) // until the proxy has it, and 20 ms
	if err := syscall.Kill(server.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	talk(t, c, "", "+OK\r\n*2\r\n$-1\r\n$6\r\nsecret\r\n$6\r\nsecret\r\n:1\r\n"+strings.Repeat("+PONG\r\n", n))
	text := notes.await(t, `for "lpush", key ""`)
	for _, want := range []string{`for "set", key "user:slow", of ` + c.LocalAddr().String(), `for "mget", key "other"`, `for "echo", key ""`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	if strings.Contains(text, "secret") || strings.Contains(text, "blpop") || strings.Count(text, "slow: ") > 3*maxSlow {
		t.Errorf("%s", text)
	}
	const many = freeExpected/perExpected + 1       // so that the transaction takes memory
	const like = maxQueued/(perExpected+128) + 1000 // like commands count once, as without the log
	talk(t, c, wire("MULTI"), "+OK\r\n")
	go io.WriteString(c, strings.Repeat(wire("GET", "user:1"), like)+wire("DISCARD"))
	talk(t, c, "", strings.Repeat("+QUEUED\r\n", like)+"+OK\r\n")
	talk(t, c, wire("MULTI")+strings.Repeat(wire("GET", "user:1"), many), "+OK\r\n"+strings.Repeat("+QUEUED\r\n", many))
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, wire("EXEC")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond) // a line of a second of its own
	if err := syscall.Kill(server.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	notes.await(t, `for "exec", key ""`)
}
