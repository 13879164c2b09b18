package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/advise"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/dictops"
	"github.com/balekv/bale/cmd/internal/events"
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
	var lines strings.Builder
	for i := range 300 {
		value := fmt.Sprintf(`{"id":%d,"name":"customer %d","email":"customer%d@example.com","plan":"business","country":"DE"}`, i, i*7919%1000, i)
		pipe.Set(t.Context(), fmt.Sprintf("user:%d", i), value, 0)
		pipe.RPush(t.Context(), "list", value)
		fmt.Fprintln(&lines, value)
	}
	pipe.Set(t.Context(), "damaged", "\xba\x1e\x01\x02", 0)
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	output := func(want int, args ...string) []byte {
		t.Helper()
		var out, errs bytes.Buffer
		if code := app.Run(t.Context(), append(args, "--json", "-"), strings.NewReader(""), &out, &errs); code != want {
			t.Fatalf("%q: exit %d: %s", args, code, &errs)
		}
		return out.Bytes()
	}
	done := func(args ...string) []byte {
		t.Helper()
		return output(cli.ExitDone, args...)
	}
	dictionary, values, recorded := filepath.Join(dir, "users.dict"), filepath.Join(dir, "values.ndjson"), filepath.Join(dir, "app.events")
	saved, err := c.ConfigGet(t.Context(), "dir").Result()
	clitest.OK(t, err, os.WriteFile(values, []byte(lines.String()), 0o600), writeEvents(recorded, "2"), c.Save(t.Context()).Err())
	schematest.Check[advise.Advice](t, done("advise", "--redis", s.URL(), "--price", "10"))
	schematest.Check[advise.Advice](t, done("advise", "--rdb", filepath.Join(saved["dir"], "dump.rdb")))
	schematest.Check[advise.Advice](t, done("advise", "--data", values))

	schematest.Check[dictops.Training](t, done("train", "--redis", s.URL(), "--match", "user:*", "--max-size", "2KiB", "--out", dictionary))
	if _, err := os.Stat(dictionary); err != nil {
		t.Fatal(err)
	}
	schematest.Check[dictops.Training](t, done("train", "--data", values, "--exclude", "email", "--max-size", "2KiB", "--out", filepath.Join(dir, "other.dict")))
	schematest.Check[dictops.Training](t, output(cli.ExitFailed, "train", "--data", values, "--current", dictionary, "--max-size", "2KiB", "--out", filepath.Join(dir, "none.dict")))

	change := []string{"migrate", "--redis", s.URL(), "--match", "user:*"}
	for _, args := range [][]string{
		{"--compress", "zstd:3", "--dry-run"}, {"--compress", "zstd:3"}, {"--dict", "auto", "--repack", "--dry-run"},
		{"--dict", "auto", "--repack", "--force"}, {"--dict", "current", "--group", "user"}, {"--revert"},
	} {
		schematest.Check[migrate.Result](t, done(slices.Concat(change, args)...))
	}
	schematest.Check[verify.Result](t, done("verify", "--redis", s.URL()))
	packer, err := bale.NewPacker(bale.PackerOptions{})
	clitest.OK(t, err)
	packed, err := packer.Pack(nil, bytes.Repeat([]byte("value "), 100))
	clitest.OK(t, err, c.Set(t.Context(), "user:cut", packed[:len(packed)-1], 0).Err())
	schematest.Check[verify.Result](t, output(cli.ExitFailed, "verify", "--redis", s.URL()))
	schematest.Check[events.Summary](t, done("stats", "--every", "1m", recorded))
}
