package dataset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/values"
)

// Options say which sets to measure on.
type Options struct {
	Files   []string // the user's own values; - is In
	In      io.Reader
	Builtin []string // of [Names]; default, without Files and Sizes: all
	Sizes   []int    // of built-in values, in bytes
	Tracks  []string // of built-in values: [Typed], [Dynamic]
	Values  int      // at most, of a set of Files
	Seed    uint64   // of built-in values and samples
}

// Validate returns an error if there is no such set or track.
func (o *Options) Validate() error {
	for _, track := range o.Tracks {
		if track != Typed && track != Dynamic {
			return fmt.Errorf("--track %q; there are %s and %s", track, Typed, Dynamic)
		}
	}
	for _, name := range o.Builtin {
		if !slices.Contains(Names(), name) {
			return fmt.Errorf("--builtin %q; there are %s", name, strings.Join(Names(), ", "))
		}
	}
	for _, size := range o.Sizes {
		if size < 1 || size > cli.MaxValue {
			return fmt.Errorf("--value-size %v, must be 1 to %v", cli.Bytes(size), cli.Bytes(cli.MaxValue))
		}
	}
	if o.Values < 1 {
		return fmt.Errorf("--values %d, must be at least 1", o.Values)
	}
	return nil
}

// Open reads and makes the sets. Sets of the same name get a number.
func Open(ctx context.Context, o Options) (sets []*Dataset, err error) {
	for _, path := range o.Files {
		d, err := Load(ctx, path, o.In, values.Limits{Values: o.Values, ValueSize: cli.MaxValue, Seed: o.Seed, Uniform: true})
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(sets, func(other *Dataset) bool { return other.Name == d.Name }) {
			d.Name = fmt.Sprintf("%s-%d", d.Name, len(sets)+1)
		}
		sets = append(sets, d)
	}
	names := o.Builtin
	if len(o.Files)+len(o.Builtin)+len(o.Sizes) == 0 {
		names = Names()
	}
	for _, name := range names {
		d, err := Make(name, o.Seed)
		if err != nil {
			return nil, err
		}
		for _, track := range o.Tracks {
			each := d
			if track == Dynamic {
				if each, err = d.Dynamic(); errors.Is(err, ErrNoCoder) && len(names) > 1 {
					continue // one of several that is no JSON
				} else if err != nil {
					return nil, fmt.Errorf("%w: %w", cli.ErrUsage, err)
				}
			}
			sets = append(sets, each)
		}
	}
	for _, size := range o.Sizes {
		d, err := Sized(size, o.Seed)
		if err != nil {
			return nil, err
		}
		sets = append(sets, d)
	}
	return sets, nil
}
