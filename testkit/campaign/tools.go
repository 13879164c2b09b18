package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/balekv/bale/frame"
)

// toolPlan is a run of the bale command. All of it is drawn before it begins, so that it follows
// from the seed.
type toolPlan struct {
	name    string
	args    []string // without those of where the servers are
	pause   time.Duration
	chaos   string        // none, kill, stop: what is done to it
	shared  bool          // with another process
	after   time.Duration // when
	stopped time.Duration // for how long
}

// commands are all command lines of the tools that the campaign runs, in this one place, by lane.
// The lanes run beside each other, so that long walks meet changes.
//
//	%g the group, %i a dictionary's id, %f its file, %m a pattern, %r a rate, %d the grace,
//	%t a folder of the walk's own, %n the name of a run, which two processes share
var commands = [][]command{
	{ // operators
		{"publish", 10, "dict publish %f --group %g --grace %d"},
		{"activate", 12, "dict activate %i --group %g --force --grace %d"},
		{"activate-none", 1, "dict activate none --group %g --grace %d"},
		{"rollback", 3, "dict activate previous --group %g --grace %d"},
		{"export", 1, "dict export --group %g --out %t/export --grace %d"},
		{"import", 1, "dict import %t/export --group %g --grace %d"},
	},
	{ // collectors, beside each other
		{"gc", 10, "dict gc --apply --grace %d --max-rate %r"},
		{"list", 1, "dict list --scan --json --grace %d"},
	},
	{
		{"gc", 10, "dict gc --apply --grace %d --max-rate %r"},
		{"remove", 4, "dict remove %i --group %g --grace %d --max-rate %r"},
	},
	{ // walkers that write with a dictionary
		{"migrate", 6, "migrate --match %m --group %g --dict current --max-rate %r --min-size 64"},
		{"migrate-id", 2, "migrate --match %m --group %g --dict %i --max-rate %r"},
		{"migrate-repack", 4, "migrate --match %m --group %g --dict current --repack --max-rate %r"},
		{"migrate-auto", 1, "migrate --match %m --group %g --dict auto --grace %d --max-rate %r --force"},
		{"migrate-run", 5, "migrate --match %m --group %g --dict current --max-rate %r --run %n"},
		{"migrate-resume", 6, "migrate --match %m --group %g --dict current --max-rate %r --resume %t/resume-%g"},
	},
	{ // walkers that do not
		{"migrate-plain", 1, "migrate --match %m --max-rate %r"},
		{"revert", 6, "migrate --match %m --revert --max-rate %r"},
		{"revert-run", 3, "migrate --match %m --revert --max-rate %r --run %n"},
		{"verify", 2, "verify --max-rate %r"},
		{"verify-run", 2, "verify --max-rate %r --run %n"},
	},
}

// command is a tool with what it is chosen by.
type command struct {
	name   string
	weight int
	args   string
}

// pauses are those between two tools of a lane at most, in grace periods.
var pauses = []float64{2, 3, 3, 2, 4}

// The tools that the checks at rest run.
const (
	verifyAll  = "verify --max-rate 0 --max-bandwidth 0"
	revertAll  = "migrate --match * --revert --max-rate 0 --max-bandwidth 0"
	repackAll  = "migrate --match %m --group %g --dict current --repack --max-rate 0 --max-bandwidth 0"
	collectAll = "dict gc --apply --grace %d --max-rate 0"
)

// patterns are the keys that tools work on, by group.
var patterns = map[string][]string{
	groupStrings: {"h:*", "hh:*", "x:*", "x:{1*", "x:{2*", "x:{?}*", "x:*5"},
	groupCaches:  {"c:*", "l:*", "n:*", "b:*", "nl:*", "l:*"},
}

// dictionaries are those of a walk: files that the tools publish.
type dictionaries struct {
	files []string
	ids   []string
}

const dictionaryCount = 4

func newDictionaries(folder string, salt int64) (*dictionaries, error) {
	d := &dictionaries{}
	for i := range dictionaryCount {
		// Of few styles, so that some match what is written.
		b := sample(i%styles, salt+int64(i))
		made, err := frame.NewDictionary(b)
		if err != nil {
			return nil, err
		}
		path := filepath.Join(folder, fmt.Sprintf("d%d-%d.dict", salt, i))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return nil, err
		}
		d.files, d.ids = append(d.files, path), append(d.ids, made.ID().String())
	}
	return d, nil
}

// fill makes a command's arguments.
func (w *walk) fill(line, group, pattern string, dictionary, rate int) []string {
	return w.fillWith(w.dictionaries, line, group, pattern, dictionary, rate)
}

func (w *walk) fillWith(d *dictionaries, line, group, pattern string, dictionary, rate int) []string {
	args := strings.Fields(line)
	for i := range args {
		args[i] = strings.NewReplacer("%g", group, "%i", d.ids[dictionary], "%f", d.files[dictionary], "%m", pattern,
			"%r", fmt.Sprint(rate), "%d", w.c.grace.String(), "%t", w.folder).Replace(args[i])
	}
	return args
}

// planTool draws a run of a lane.
func (w *walk) planTool(r *rand.Rand, lane int) toolPlan {
	total := 0
	for _, c := range commands[lane] {
		total += c.weight
	}
	n, i := r.IntN(total), 0
	for n >= commands[lane][i].weight {
		n -= commands[lane][i].weight
		i++
	}
	chosen := commands[lane][i]
	group := []string{groupStrings, groupStrings, groupCaches}[r.IntN(3)]
	pattern := patterns[group][r.IntN(len(patterns[group]))]
	dictionary := r.IntN(dictionaryCount)
	// A walk that takes longer than six grace periods is what the protocol is about.
	seconds := 0.3 + r.Float64()*r.Float64()*20*w.c.grace.Seconds()
	if strings.HasPrefix(chosen.args, "dict") {
		seconds /= 3
	}
	rate := max(20, int(float64(w.c.coldKeys)/seconds))
	line := strings.ReplaceAll(chosen.args, "%n", fmt.Sprintf("run-%08x", r.Uint32()))
	p := toolPlan{
		name: chosen.name, args: w.fill(line, group, pattern, dictionary, rate), chaos: "none", shared: line != chosen.args,
		pause: time.Duration(pauses[lane] * r.Float64() * float64(w.c.grace)),
	}
	after, length, chance := r.Float64(), r.Float64(), r.Float64()
	p.after = time.Duration(after * after * 2 * float64(time.Second))
	p.stopped = time.Duration(length * 18 * float64(w.c.grace))
	switch {
	case chance < 0.15:
		p.chaos = "kill"
	case chance < 0.45 && lane > 0:
		p.chaos = "stop"
	}
	if !w.c.faultsOn["tool-kill"] && p.chaos == "kill" || !w.c.faultsOn["tool-stop"] && p.chaos == "stop" {
		p.chaos = "none"
	}
	return p
}

// runTool runs a tool to its end, or to that of its time.
func (w *walk) runTool(ctx context.Context, p toolPlan) (status int, output string) {
	args := slices.Concat(p.args, w.servers.toolArgs(ctx))
	start := w.now()
	child, _, _, err := run(w.c.bale, args, []string{"NO_COLOR=1"}, false)
	if err != nil {
		w.logf("tool %s: %v", p.name, err)
		return -1, err.Error()
	}
	w.count("tool "+p.name, 1)
	limit := time.NewTimer(40 * time.Second)
	defer limit.Stop()
	chaos := time.NewTimer(p.after)
	defer chaos.Stop()
	if p.chaos == "none" {
		chaos.Stop()
	}
	what := ""
	for waiting := true; waiting; {
		select {
		case <-child.done:
			waiting = false
		case <-chaos.C:
			what = ", " + p.chaos
			w.count("fault tool-"+p.chaos, 1)
			if p.chaos == "kill" {
				child.kill()
				continue
			}
			child.signal(syscall.SIGSTOP)
			sleep(ctx, p.stopped)
			child.signal(syscall.SIGCONT)
			what += fmt.Sprintf(" for %v", p.stopped.Round(time.Millisecond))
		case <-limit.C:
			what += ", over time"
			child.kill()
		case <-ctx.Done():
			select { // the faults are over; it may come to its end
			case <-child.done:
			case <-time.After(10 * time.Second):
				what += ", killed at rest"
				child.kill()
			}
		}
	}
	output = child.tail.String()
	status = child.cmd.ProcessState.ExitCode()
	w.event("tool %s from %s: %s: exit %d%s: %s", p.name, stamp(start), strings.Join(p.args, " "), status, what, lastLine(output))
	w.panicked("tool "+p.name, output)
	return status, output
}

// panicked reports a program that crashed by itself.
func (w *walk) panicked(who, output string) {
	for _, sign := range []string{"panic: ", "SIGSEGV", "fatal error: ", "DATA RACE"} {
		if i := strings.Index(output, sign); i >= 0 {
			w.violate("", "crash", fmt.Sprintf("%s crashed: %.600s", who, output[i:]))
			return
		}
	}
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	if i := strings.LastIndexByte(s, '\n'); i >= 0 {
		s = s[i+1:]
	}
	return fmt.Sprintf("%.200s", s)
}

// toolLoop runs tools one after another until the context ends.
func (w *walk) toolLoop(ctx context.Context, r *rand.Rand, lane int) {
	for ctx.Err() == nil {
		p := w.planTool(r, lane)
		if !sleep(ctx, p.pause) {
			return
		}
		var other sync.WaitGroup
		if p.shared {
			other.Go(func() {
				undisturbed := p
				undisturbed.chaos = "none"
				w.runTool(ctx, undisturbed)
			})
		}
		w.runTool(ctx, p)
		other.Wait()
	}
}

// sleep reports whether it came to its end.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// verify runs the tool that reads all values. An unreadable value is a violation.
func (w *walk) verify(ctx context.Context, when string) {
	report := filepath.Join(w.folder, "verify.json")
	_ = os.Remove(report)
	args := append(w.fill(verifyAll, groupStrings, "", 0, 0), "--json", report)
	status, output := w.runTool(ctx, toolPlan{name: "verify-at-rest", args: args, chaos: "none"})
	if status == 0 {
		return
	}
	var found struct {
		Named []struct {
			Key, Field, Cause string
		} `json:"named"`
	}
	b, err := os.ReadFile(report)
	if err == nil {
		err = json.Unmarshal(b, &found)
	}
	if err != nil || len(found.Named) == 0 {
		w.violate("", "verify", fmt.Sprintf("verify %s failed: %s (%v)", when, lastLine(output), errors.Join(err)))
		return
	}
	for _, bad := range found.Named {
		key := bad.Key
		if bad.Field != "" {
			key = fieldKey(key, bad.Field)
		}
		w.unreadable(ctx, key, "verify "+when+": "+bad.Cause)
	}
}
