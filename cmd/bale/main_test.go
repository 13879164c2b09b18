package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/frame"
)

func TestMain(m *testing.M) {
	yieldToOthers = func() {}
	testscript.Main(m, map[string]func(){"bale": main, "fleet": fleetMain, "events": eventsMain})
}

// unbase64 FROM TO decodes a file.
func unbase64(ts *testscript.TestScript, neg bool, args []string) {
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(ts.ReadFile(args[0])))
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b, 0o644))
}

// TestLargeValuesGoThrough packs and unpacks more than --max-size: as it is, and not within memory.
func TestLargeValuesGoThrough(t *testing.T) {
	large := strings.Repeat("0123456789", 1000)
	for _, verb := range []string{"pack", "unpack"} {
		var out, errs bytes.Buffer
		if code := app.Run(context.Background(), []string{verb, "--max-size", "1KiB"}, strings.NewReader(large), &out, &errs); code != cli.ExitDone || out.String() != large {
			t.Errorf("%s: exit %d, %d bytes, %s", verb, code, out.Len(), &errs)
		}
	}
}

// TestBytesStayBytes: pack and unpack hand on all 256 bytes as they are, to a pipe and to a file.
func TestBytesStayBytes(t *testing.T) {
	var content []byte
	for b := range 256 {
		content = append(content, byte(b))
	}
	magic := frame.Header{Algorithm: frame.Stored, Length: 1}.Append(nil)[:2]
	claim := append(slices.Clone(magic), content...) // starts like a frame, and is none
	stored := frame.Header{Algorithm: frame.Stored, Version: frame.V2, HasChecksum: true, Checksum: frame.Checksum(content), Length: uint64(len(content))}
	fresh := frame.Freshness{Expires: time.Now().Add(time.Hour)}.Append(append(stored.Append(nil), content...))
	for _, test := range []struct {
		name        string
		args        []string
		stdin, want []byte
	}{
		{"pack", []string{"pack"}, content, content},
		{"pack what is larger than --max-size", []string{"pack", "--max-size", "100"}, content, content},
		{"unpack", []string{"unpack"}, content, content},
		{"unpack what starts like a frame", []string{"unpack"}, claim, claim},
		{"unpack what starts like a frame and is larger than --max-size", []string{"unpack", "--max-size", "1"}, claim, claim},
		{"unpack what is fresh", []string{"unpack"}, fresh, content},
		{"unpack what is fresh within --max-size", []string{"unpack", "--max-size", "256"}, fresh, content},
	} {
		check := func(to string, got []byte, code int, errs fmt.Stringer) {
			if !bytes.Equal(got, test.want) || code != cli.ExitDone {
				t.Errorf("%s to a %s: exit %d, %q, want %q; %s", test.name, to, code, got, test.want, errs)
			}
		}
		var errs bytes.Buffer
		file, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		code := app.Run(t.Context(), test.args, bytes.NewReader(test.stdin), file, &errs)
		file.Close()
		got, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		check("file", got, code, &errs)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		code = app.Run(t.Context(), test.args, bytes.NewReader(test.stdin), w, &errs) // a pipe has room for it
		w.Close()
		if got, err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		r.Close()
		check("pipe", got, code, &errs)
	}
}

func TestScripts(t *testing.T) {
	clitest.Scripts(t, dictScripts, migrateScripts, streamScripts, clitest.Commands{
		"unbase64": unbase64, "redis-save": redisSave, "examples": examples, "cut": cut,
	})
}

func TestExitCodes(t *testing.T) {
	damaged := string(append(frame.Header{Algorithm: frame.Zstd, Length: 5}.Append(nil), "xxxxx"...))
	clitest.ExitCodes(t, app, cli.ExitDone, "value", "", "--version", "--help", "help dict", "pack", "unpack", "proxy --redis redis://127.0.0.1:1 --match user:* --compress zstd+dict --check")
	clitest.ExitCodes(t, app, cli.ExitFailed, damaged, "unpack", "inspect nowhere")
	clitest.ExitCodes(t, app, cli.ExitUsage, "", "nonsense", "verify --nonsense", "pack --compress brotli", "inspect --key k", "unpack --dict nowhere",
		"proxy --match user:*", "proxy --redis redis://127.0.0.1:1", "proxy --redis redis://127.0.0.1:1 --match *[", "proxy --redis redis://127.0.0.1:1 --match * --compress zstd:3+dict",
		"proxy --redis redis://127.0.0.1:1 --match * --group g", "proxy --redis redis://127.0.0.1:1?addr=127.0.0.1:2 --match *", "proxy --redis redis://127.0.0.1:1 --match * --cluster --listen unix:/s", "proxy --redis redis://127.0.0.1:1 --match * --announce h",
		"proxy --redis redis://127.0.0.1:1 --match * --cluster --announce h:1/x", "proxy --redis redis://127.0.0.1:1?master_name=m --match * --cluster", "proxy --redis redis://127.0.0.1:1 --match * --max-clients 0", "proxy --redis redis://127.0.0.1:1 --match * --config nowhere", "proxy --redis redis://127.0.0.1:1 --match * --listen-mode 999",
		"bench --quick") // which says where the lab is
}

func TestExamplesOfHelpAreKnown(t *testing.T) {
	clitest.HelpExamples(t, app, "advise", "train", "migrate", "proxy", "verify", "pack", "unpack", "inspect", "stats")
}
