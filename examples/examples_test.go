// Package examples runs the examples against a Redis of its own.
package examples

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/balekv/bale/internal/redisproc"
)

func TestExamplePrograms(t *testing.T) {
	redis := redisproc.ForTest(t)
	for program, want := range map[string]string{
		"./clients": "map[]\nmap[motto:*goredis.Store]\nmap[motto:*rueidis.Store]\nmap[motto:*valkey.Store]\n" +
			"*redigo.Store\nchanged by others\n",
		"./cache":      "Ada Lovelace, in fewer than 200 bytes: true\n",
		"./hook":       "the same page: true\n",
		"./rollout":    "reads packed: true, writes plain: true\n",
		"./dictionary": "the same profile: true, in less than half of its bytes: true\n",
		"./resilience": "with a service that fails at first: Ada Lovelace\nwith a dead Redis: Ada Lovelace\n" +
			"it was asked fewer than 60 times, and then left alone: true\n",
		"./httpc": "order 7 is sent\nthere is no order 8\nrequests with 200 GET /v1/orders/{id} - 1\nrequests with 404 GET /v1/orders/{id} - 1\n",
		"./guide": "loaded Ada Lovelace\n2 of three there, 1 of two deleted\n" +
			"loaded Ada Lovelace; user 404 is not there: true\nnear: Ada Lovelace\n" +
			"both ends of the batch are there: true\n18000000 bytes as fewer than 180000: true\n/ready 200\n/metrics 200\n",
	} {
		cmd := exec.CommandContext(t.Context(), "go", "run", program)
		cmd.Env = append(cmd.Environ(), "REDIS_ADDR="+redis.Addr())
		var logged bytes.Buffer
		cmd.Stderr = &logged
		if out, err := cmd.Output(); err != nil || string(out) != want {
			t.Errorf("%s: %v\n got %q\nwant %q\n%s", program, err, out, want, &logged)
		}
	}
}

// TestGuideACL: the guide needs no more rights than it says, and they are enough.
func TestGuideACL(t *testing.T) {
	guide, err := os.ReadFile("../docs/guide.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rules, _ := strings.Cut(string(guide), "ACL SETUSER shop on >secret ")
	rules, _, _ = strings.Cut(rules, "\n")
	redis := redisproc.ForTest(t)
	if ok, err := redis.Do(t.Context(), strings.Fields("ACL SETUSER default reset on nopass "+rules)...); err != nil || ok != "OK" {
		t.Fatalf("%q: %q, %v", rules, ok, err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "./guide")
	cmd.Env = append(cmd.Environ(), "REDIS_ADDR="+redis.Addr())
	if out, err := cmd.CombinedOutput(); err != nil || !strings.HasSuffix(string(out), "/metrics 200\n") {
		t.Errorf("%v\n%s", err, out)
	}
	stats, err := redis.Do(t.Context(), "INFO", "commandstats", "errorstats")
	if err != nil || strings.Contains(stats, "errorstat_NOPERM") {
		t.Errorf("%v\n%s", err, stats)
	}
	for _, rule := range strings.Fields(rules) {
		name, isCommand := strings.CutPrefix(rule, "+")
		if isCommand && !slices.Contains([]string{"publish", "persist", "pexpireat", "touch"}, name) && !strings.Contains(stats, "cmdstat_"+name+":") {
			t.Errorf("%s was not used", name)
		}
	}
}

func TestFill(t *testing.T) {
	redis := redisproc.ForTest(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-n", "700"}, "700 values written; the database has "},
		{[]string{"profiles.ndjson"}, "200 values written; the database has "},
	} {
		out, err := exec.CommandContext(t.Context(), "go", append([]string{"run", "./fill", "-redis", redis.URL()}, c.args...)...).CombinedOutput()
		keys, failed := redis.Do(t.Context(), "DBSIZE")
		if want := c.want + keys + " keys\n"; err != nil || failed != nil || string(out) != want {
			t.Errorf("%q: %v, %s", c.args, err, out)
		}
	}
	for _, key := range []string{"shop:user:*:profile", "shop:product:*", "shop:cart:*", "shop:session:*", "shop:views:*", "shop:sales:*", "profiles:199"} {
		if keys, err := redis.Do(t.Context(), "KEYS", key); err != nil || keys == "" {
			t.Errorf("no key %s, %v", key, err)
		}
	}
}
