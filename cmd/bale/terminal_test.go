package main

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/cli/pty"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/internal/redisproc"
)

// TestReportsFitTerminals: the report of each command fits terminals of 60 columns and more, with
// names and numbers as long as those of real servers.
func TestReportsFitTerminals(t *testing.T) {
	s := redisproc.ForTest(t)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer c.Close()
	r := rand.New(rand.NewPCG(1, 2))
	pipe := c.Pipeline()
	var lines strings.Builder
	for i := range 400 {
		value := fmt.Sprintf(`{"id":%d,"name":"customer %d","email":"customer%d@example.com","plan":"business","country":"DE","token":"%x"}`, i, r.IntN(1e6), r.IntN(1e6), r.Uint64())
		fmt.Fprintln(&lines, value)
		pipe.Set(t.Context(), fmt.Sprintf("application:frontend:customer-profile:%d:en", i), value, 0)
		pipe.HSet(t.Context(), fmt.Sprintf("cart:%d", i%50), fmt.Sprintf("item:%d", i), value)
		pipe.Set(t.Context(), fmt.Sprintf("counter:page-impressions:%d", i), r.IntN(1e6), 0)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file("values.ndjson"), []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeEvents(file("app.events"), "2"); err != nil {
		t.Fatal(err)
	}
	const group, match = "application:frontend:customer-profile", "application:*"
	run := func(t *testing.T, stdout io.Writer, args ...string) {
		t.Helper()
		var errs bytes.Buffer
		if code := app.Run(t.Context(), args, strings.NewReader(""), stdout, &errs); code != cli.ExitDone {
			t.Errorf("%q: exit %d: %s", args, code, &errs)
		}
	}
	run(t, io.Discard, "train", "--data", file("values.ndjson"), "--max-size", "2KiB", "--out", file("a.dict"), "--json", file("a.json"))
	run(t, io.Discard, "dict", "publish", file("a.dict"), "--redis", s.URL(), "--group", group, "--training", file("a.json"))
	run(t, io.Discard, "dict", "activate", file("a.dict"), "--redis", s.URL(), "--group", group, "--force")
	for _, args := range [][]string{
		{"advise", "--redis", s.URL(), "--price", "12.5", "--sample", "200"},
		{"advise", "--redis", s.URL(), "--all", "--sample", "200"},
		{"train", "--redis", s.URL(), "--match", match, "--max-size", "2KiB", "--out", file("b.dict")},
		{"migrate", "--redis", s.URL(), "--match", match, "--dict", "current", "--group", group, "--dry-run"},
		{"migrate", "--redis", s.URL(), "--match", match, "--dict", "current", "--group", group},
		{"advise", "--redis", s.URL(), "--sample", "200"},
		{"verify", "--redis", s.URL()},
		{"dict", "list", "--redis", s.URL()},
		{"dict", "list", "--scan", "--redis", s.URL()},
		{"dict", "show", file("a.dict"), "--redis", s.URL()},
		{"dict", "servers", "--redis", s.URL()},
		{"dict", "gc", "--redis", s.URL()},
		{"inspect", "--redis", s.URL(), "--key", "application:frontend:customer-profile:7:en"},
		{"stats", "--every", "1m", file("app.events")},
		{"migrate", "--revert", "--redis", s.URL(), "--match", match},
	} {
		t.Run(strings.Join(args[:2], " "), func(t *testing.T) {
			clitest.FitsTerminals(t, func(stdout *os.File) { run(t, stdout, args...) })
		})
	}
}

// TestDryRunProgress: the line of progress of a dry run does not say that it changes values. One
// that trains has steps with numbers.
func TestDryRunProgress(t *testing.T) {
	s := redisproc.ForTest(t)
	client, err := keyspace.Open(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	staticKeys(t, client, 400)
	for args, wanted := range map[string][]string{
		"--match *":                    {" to be packed"},
		"--match static:* --dict auto": {"step 1 of 3: ", "step 2 of 3: ", "step 3 of 3: ", " to be packed"},
	} {
		screen, program := pty.Open(t, 80)
		seen := make(chan string)
		go func() {
			b, _ := io.ReadAll(screen)
			seen <- string(b)
		}()
		code := app.Run(t.Context(), append([]string{"migrate", "--redis", s.URL(), "--dry-run"}, strings.Fields(args)...), strings.NewReader(""), io.Discard, program)
		program.Close()
		got := <-seen
		if code != cli.ExitDone || strings.Contains(got, "changed") {
			t.Errorf("%s: exit %d, %q", args, code, got)
		}
		for _, want := range wanted {
			if !strings.Contains(got, want) {
				t.Errorf("%s: no %q in %q", args, want, got)
			}
		}
	}
}

// TestProgressInWholeWords: no command's line of progress is cut in 60 columns, except names.
func TestProgressInWholeWords(t *testing.T) {
	s := redisproc.ForTest(t)
	client, err := keyspace.Open(t.Context(), s.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	staticKeys(t, client, 400)
	pipe := client.Pipeline()
	for i := range 400 {
		pipe.Set(t.Context(), fmt.Sprintf("application:frontend:customer-profile:%d:en", i),
			fmt.Sprintf(`{"id":%d,"name":"customer %d","plan":"business","country":"DE"}`, i, i*i), 0)
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`application:\S*…`)
	for _, args := range []string{
		"advise", "train --max-size 4KiB --out " + filepath.Join(t.TempDir(), "a.dict"),
		"migrate --match static:* --dict auto --force", "advise", "verify", "dict gc", "dict list --scan",
		"migrate --match static:* --revert",
	} {
		screen, program := pty.Open(t, 60)
		seen := make(chan string)
		go func() {
			b, _ := io.ReadAll(screen)
			seen <- string(b)
		}()
		words := strings.Fields(args)
		at := 1
		if words[0] == "dict" {
			at = 2
		}
		all := append(append(slices.Clone(words[:at]), "--redis", s.URL()), words[at:]...)
		code := app.Run(t.Context(), all, strings.NewReader(""), io.Discard, program)
		program.Close()
		lines := strings.Split(<-seen, "\r\x1b[K")
		if code != cli.ExitDone || len(lines) < 2 && words[0] != "dict" { // there may be nothing to collect
			t.Errorf("%s: exit %d, %q", args, code, lines)
		}
		for _, line := range lines {
			if strings.Contains(name.ReplaceAllString(line, ""), "…") {
				t.Errorf("%s: %q", args, line)
			}
		}
	}
}
