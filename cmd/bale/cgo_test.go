package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/cmd/internal/advise"
)

// TestSavingsWithoutCgo: train and advise report the same with cgo and without, but for times.
func TestSavingsWithoutCgo(t *testing.T) {
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("cgo needs gcc")
	}
	dir := t.TempDir()
	const data = "../../examples/profiles.ndjson"
	reports := map[string][2]any{}
	for i, cgo := range []string{"CGO_ENABLED=0", "CGO_ENABLED=1"} {
		binary := filepath.Join(dir, cgo)
		run := func(name string, args ...string) {
			t.Helper()
			cmd := exec.CommandContext(t.Context(), name, args...)
			cmd.Env = append(os.Environ(), cgo)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s %q: %v\n%s", cgo, args, err, out)
			}
		}
		run("go", "build", "-o", binary, ".")
		for _, args := range [][]string{
			{"train", "--data", data, "--out", filepath.Join(dir, "users.dict")},
			{"train", "--data", data, "--out", filepath.Join(dir, "users.dict"), "--compress", "zstd:9"},
			{"advise", "--data", data},
		} {
			file := filepath.Join(dir, "report.json")
			run(binary, append(args, "--json", file)...)
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var report any
			if err := json.Unmarshal(b, &report); err != nil {
				t.Fatalf("%s %q: %v", cgo, args, err)
			}
			report = withoutTimes(report)
			if args[0] == "advise" {
				report = optionsOf(b)
			}
			name := strings.Join(args, " ")
			both := reports[name]
			both[i] = report
			reports[name] = both
		}
	}
	for name, both := range reports {
		if diff := cmp.Diff(both[0], both[1]); diff != "" {
			t.Errorf("%s: without cgo and with it:\n%s", name, diff)
		}
		if b, _ := json.Marshal(both[0]); len(b) < 1000 {
			t.Errorf("%s reports %s", name, b)
		}
	}
}

// optionsOf are what advise says of each option. Of two that take about as many bytes it chooses
// the faster one, as the clock measured them.
func optionsOf(report []byte) []string {
	var advice advise.Advice
	if err := json.Unmarshal(report, &advice); err != nil {
		return nil
	}
	var all []string
	for _, g := range advice.Groups {
		for _, o := range g.Options {
			all = append(all, fmt.Sprintf("%s: %s %s: %d bytes, %.0f less, dictionary of %d", g.Name, o.Setting, o.Encoding, o.Bytes, o.Saving.Estimate, o.Dictionary))
		}
	}
	slices.Sort(all)
	return all
}

// withoutTimes returns a document without what a clock has measured.
func withoutTimes(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, field := range v {
			if strings.HasSuffix(key, "_us") || strings.HasSuffix(key, "_ns") || key == "seconds" || key == "slowness" || key == "time" {
				delete(v, key)
				continue
			}
			v[key] = withoutTimes(field)
		}
	case []any:
		for i := range v {
			v[i] = withoutTimes(v[i])
		}
	}
	return v
}
