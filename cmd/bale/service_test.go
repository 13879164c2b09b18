package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/internal/redisproc"
)

// requireClients names the variable that, when not empty, makes a missing client a failure instead
// of a skip.
const requireClients = "BALE_REQUIRE_CLIENTS"

// TestPythonService takes the service of docs/proxy.md to packed values and back, by the document's
// own commands. redis-py is the machine's, or that of cmd/internal/proxy/clients/install.
func TestPythonService(t *testing.T) {
	clients, err := filepath.Abs("../internal/proxy/clients/python/.venv/bin")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", clients+":"+os.Getenv("PATH"))
	for _, needed := range []string{"python3 -c 'import redis'", "curl --version", "redis-cli --version"} {
		if out, err := exec.CommandContext(t.Context(), "sh", "-c", needed).CombinedOutput(); err != nil {
			if os.Getenv(requireClients) != "" {
				t.Fatalf("%s: %v\n%s", needed, err, out)
			}
			t.Skipf("%s: %v", needed, err)
		}
	}
	redis, files, binaries := redisproc.ForTest(t), t.TempDir(), t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binaries, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	document, err := os.ReadFile(filepath.Join(clitest.Repository, "docs", "proxy.md"))
	if err != nil {
		t.Fatal(err)
	}
	script := regexp.MustCompile("(?ms)^```python\n(# service.py\n.*?)^```$").FindSubmatch(document)
	blocks := regexp.MustCompile("(?ms)^```bash\n(.*?)^```$").FindAllSubmatch(document, -1)
	if script == nil || blocks == nil {
		t.Fatalf("script %q, %d blocks of commands", script, len(blocks))
	}
	source := strings.Replace(string(script[1]), "8080", servicePort(), 1)
	if err := os.WriteFile(filepath.Join(files, "service.py"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // where a line failed
		_ = exec.Command("sh", "-c", fmt.Sprintf("cd %s && kill $(cat proxy.pid service.pid)", files)).Run()
	})
	for _, block := range blocks {
		for line := range strings.Lines(string(block[1])) {
			if !t.Run(strings.TrimSpace(line), func(t *testing.T) { runDocumented(t, strings.TrimSpace(line), redis, files, binaries) }) {
				return
			}
		}
	}
}
