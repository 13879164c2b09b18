package main

import (
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/google/go-cmp/cmp"
)

// TestCommandToRepeat: what was asked for and bears on the figures, with the seed, and no address
// of a server.
func TestCommandToRepeat(t *testing.T) {
	for args, want := range map[string]string{
		"run": "balebench run --seed 1",
		"run --quick --html x.html --json=y.json --stages --serve :0 --redis redis://:secret@host:1": "balebench run --quick --seed 1",
		"run --data=a --data b --compress none,s2 --concurrency 1,8 --duration 1s --seed 7":          "balebench run --data a --data b --compress none,s2 --concurrency 1,8 --duration 1s --seed 7",
		"run --value-size 1KiB,100 --mix 90:10 --zipf 0.99 --link 1gbit,1ms --link 10mbit":           "balebench run --value-size 1KiB,100 --mix 90:10 --zipf 0.99 --link 1gbit,1ms --link 10mbit --seed 1",
		"run --builtin text --profile cpu,heap --profile-dir d --embedded --io-threads 1,2":          "balebench run --builtin text --profile cpu,heap --profile-dir d --embedded --io-threads 1,2 --seed 1",
	} {
		b, err := parseRun(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		o, err := b.options(&cli.Streams{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, strings.Join(o.About.Command, " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", args, diff)
		}
	}
}
