package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/balekv/bale/cmd/internal/ab"
	"github.com/balekv/bale/cmd/internal/compare"
	"github.com/balekv/bale/cmd/internal/report"
)

// abOptions are those of bale bench --ab.
type abOptions struct {
	a, b      string        // the commands
	blocks    int           // 0: the default
	gate      string        // "": the default one
	json      string        // as openJSON takes it
	all       bool          // show what did not change, too
	seed      uint64        // of the order
	noConfirm bool          // take a regression as found at once
	timeout   time.Duration // of each run of a command; 0: ten minutes
}

// runAB runs two commands in turn and compares what they print. The error is compare.ErrRegression
// where the second is worse.
func runAB(ctx context.Context, s *streams, o abOptions) error {
	gate, err := parseGate(o.gate)
	if err != nil {
		return err
	}
	switch {
	case o.blocks < 0 || o.blocks > ab.MaxBlocks:
		return fmt.Errorf("%w: --blocks %d, must be 1 to %d", errUsage, o.blocks, ab.MaxBlocks)
	case o.timeout < 0:
		return fmt.Errorf("%w: --timeout %v, must be above 0", errUsage, o.timeout)
	}
	out, err := openJSON(o.json, s) // before the measuring, not after it
	if err != nil {
		return asUsage{err}
	}
	defer out.discard()
	progress, stopProgress := showProgress(s.err)
	r, err := ab.Run(ctx, ab.Options{A: o.a, B: o.b, Blocks: o.blocks, Gate: gate, Seed: o.seed, NoConfirm: o.noConfirm, Timeout: o.timeout, Progress: progress})
	stopProgress()
	if r != nil {
		unwritten := out.write(r)
		if o.json != "-" {
			unwritten = errors.Join(unwritten, show(s, func(w io.Writer) { report.AB(w, r, report.CompareOptions{All: o.all, Width: reportWidth(s.out)}) }))
		}
		switch {
		case unwritten != nil:
			err = asUsage{errors.Join(err, unwritten)}
		case err == nil:
			err = r.Report.Err()
		}
	}
	return incomparable(err)
}

// parseGate reads --gate; the zero Gate is the default one.
func parseGate(text string) (compare.Gate, error) {
	if text == "" {
		return compare.Gate{}, nil
	}
	gate, err := compare.ParseGate(text)
	if err != nil {
		return gate, fmt.Errorf("%w: --gate: %w", errUsage, err)
	}
	return gate, nil
}

// incomparable makes errors of what was to be compared errors of usage, so that the exit status 1
// is for what got worse.
func incomparable(err error) error {
	for _, is := range []error{ab.ErrCommand, compare.ErrIncomparable, compare.ErrFormat, compare.ErrNoBenchmarks} {
		if errors.Is(err, is) && !errors.Is(err, errUsage) {
			return asUsage{err}
		}
	}
	return err
}

// asUsage is an error in what a command was given, in its own words.
type asUsage struct{ error }

func (e asUsage) Is(target error) bool { return target == errUsage }

func (e asUsage) Unwrap() error { return e.error }
