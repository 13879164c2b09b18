package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/advise"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/dictops"
	"github.com/balekv/bale/cmd/internal/migrate"
	"github.com/balekv/bale/cmd/internal/schematest"
	"github.com/balekv/bale/cmd/internal/verify"
	"github.com/balekv/bale/internal/redisproc"
)

// TestSchemas holds what the commands write as JSON against docs/schemas.
func TestSchemas(t *testing.T) {
	s := redisproc.ForTest(t)
	dir := t.TempDir()
	c := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer c.Close()
	pipe := c.Pipeline()
	for i := range 300 {
		value := fmt.Sprintf(`{"id":%d,"name":"customer %d","email":"customer%d@example.com","plan":"business","country":"DE"}`, i, i*7919%1000, i)
		pipe.Set(t.Context(), fmt.Sprintf("user:%d", i), value, 0)
		pipe.RPush(t.Context(), "list", value)
	}
	pipe.Set(t.Context(), "damaged", "\xba\x1e\x01\x02", 0)
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	output := func(args ...string) []byte {
		t.Helper()
		var out, errs bytes.Buffer
		if code := app.Run(t.Context(), append(args, "--json", "-"), strings.NewReader(""), &out, &errs); code != cli.ExitDone {
			t.Fatalf("%q: exit %d: %s", args, code, &errs)
		}
		return out.Bytes()
	}
	dictionary := filepath.Join(dir, "users.dict")
	schematest.Check[advise.Advice](t, "advise", 1, output("advise", "--redis", s.URL(), "--price", "10"))
	trained := output("train", "--redis", s.URL(), "--match", "user:*", "--max-size", "2KiB", "--out", dictionary)
	schematest.Check[dictops.Training](t, "train", 1, trained)
	if _, err := os.Stat(dictionary); err != nil {
		t.Fatal(err)
	}
	schematest.Check[migrate.Result](t, "migrate", 1, output("migrate", "--redis", s.URL(), "--match", "user:*", "--compress", "zstd:3"))
	schematest.Check[migrate.Result](t, "migrate", 1, output("migrate", "--revert", "--redis", s.URL(), "--match", "user:*"))
	schematest.Check[verify.Result](t, "verify", 1, output("verify", "--redis", s.URL()))
}
