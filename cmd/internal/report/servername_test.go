package report

import (
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/advise"
)

// TestServerName: each form of a report calls a server by its own name.
func TestServerName(t *testing.T) {
	for version, want := range map[string]string{"7.0.15": "Redis 7.0.15", "Valkey 9.1.2": "Valkey 9.1.2"} {
		run := result()
		run.Environment.RedisVersion = version
		var table, page strings.Builder
		Table(&table, run, Options{})
		if err := BenchHTML(&page, run, nil, BenchOptions{}); err != nil {
			t.Fatal(err)
		}
		advice := adviceSource(&advise.Advice{Server: &advise.Server{Version: version}})
		for what, got := range map[string]string{"table": table.String(), "page": page.String(), "advice": advice} {
			if !strings.Contains(got, want) || strings.Contains(got, "Redis Valkey") {
				t.Errorf("%s: %q is not in it, or is called Redis", what, want)
			}
		}
	}
}
