// Package examples runs the examples against a Redis of its own.
package examples

import (
	"os/exec"
	"testing"

	"github.com/balekv/bale/redisproc"
)

func TestExamples(t *testing.T) {
	redis := redisproc.ForTest(t)
	for program, want := range map[string]string{
		"./cache":      "Ada Lovelace, in fewer than 200 bytes: true\n",
		"./hook":       "the same page: true\n",
		"./dictionary": "the same profile: true, in less than half of its bytes: true\n",
	} {
		cmd := exec.CommandContext(t.Context(), "go", "run", program)
		cmd.Env = append(cmd.Environ(), "REDIS_ADDR="+redis.Addr())
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%s: %v\n got %q\nwant %q", program, err, out, want)
		}
	}
}
