package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
	"github.com/balekv/bale/stats/eventfile"
)

// eventsMain is a program that writes a file of events: events FILE MINUTES, from 10:00 on.
func eventsMain() {
	if err := writeEvents(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// writeEvents writes a batch each second: 8 reads of users that hit and one that misses, the write
// after that, and one read of 10 pages. Once a minute a read fails, and two events were dropped.
func writeEvents(path, minutes string) error {
	n, err := strconv.Atoi(minutes)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	file := eventfile.NewWriter(f)
	from := time.Date(2026, 1, 2, 10, 0, 0, 0, time.UTC)
	for second := range n * 60 {
		b := stats.Batch{From: from.Add(time.Duration(second) * time.Second), To: from.Add(time.Duration(second+1) * time.Second)}
		add := func(group string, e stats.Event) {
			b.Groups, b.Events = append(b.Groups, group), append(b.Events, e)
		}
		for i := range 8 {
			e := stats.Event{Op: stats.Get, Keys: 1, Hits: 1, Algorithm: frame.Zstd, DictionaryID: 0x0a1b2c3d, Plain: 400, Stored: 100}
			if e.Timed = i == 0; e.Timed {
				e.Times[stats.Store], e.Times[stats.Unpack], e.Times[stats.Decode] = 100*time.Microsecond, 10*time.Microsecond, 5*time.Microsecond
			}
			add("user:profile", e)
		}
		add("user:profile", stats.Event{Op: stats.Get, Keys: 1, Misses: 1})
		add("user:profile", stats.Event{Op: stats.Set, Keys: 1, Algorithm: frame.Zstd, DictionaryID: 0x0a1b2c3d, Plain: 400, Stored: 100})
		add("page/home", stats.Event{Op: stats.GetMany, Keys: 10, Hits: 10, Plain: 1000, Stored: 1000})
		if second%60 == 30 {
			b.Dropped = 2
			add("user:profile", stats.Event{Op: stats.Get, Class: stats.Timeout, Keys: 1, Errors: 1})
		}
		if err := file.Write(context.Background(), &b); err != nil {
			return err
		}
	}
	return f.Close()
}

// examples VERB runs the examples that --help shows of a command; each must say something.
func examples(ts *testscript.TestScript, neg bool, args []string) {
	var help, errs bytes.Buffer
	if code := app.Run(context.Background(), append(args, "--help"), strings.NewReader(""), &help, &errs); code != cli.ExitDone {
		ts.Fatalf("%s", &errs)
	}
	_, text, _ := strings.Cut(help.String(), "Examples:")
	n := 0
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "bale ") {
			ts.Check(ts.Exec("bash", "-o", "pipefail", "-c", "out=$("+line+") && test -n \"$out\""))
			n++
		}
	}
	if n == 0 {
		ts.Fatalf("no example:\n%s", &help)
	}
}

// cut FILE BYTES leaves out bytes at the end of a file.
func cut(ts *testscript.TestScript, neg bool, args []string) {
	n, err := strconv.Atoi(args[1])
	ts.Check(err)
	b := []byte(ts.ReadFile(args[0]))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b[:len(b)-n], 0o600))
}
