package dictops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/outfile"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/cmd/internal/values"
	"github.com/balekv/bale/dict"
)

// TrainOptions are the settings of [Train].
type TrainOptions struct {
	Registry registry.Options // Streams are always used, the rest without Files
	Files    []string         // with values; empty for those of a Redis
	Match    []string         // patterns of keys; all if empty
	Sample   int              // how many values are read
	Seed     uint64
	Setting  engine.Setting // that values will be compressed with
	MaxSize  int            // of the dictionary, in bytes
	Serves   int64          // how many values it is for; 0 for those of the Redis, or the default of dict.Train
	MinGain  float64        // the part of the memory that it must save
	Exclude  []string       // fields of JSON values that stay out of it
	Current  string         // file of the present dictionary; empty for none
	Out      string         // file of the new one
	Report   string         // file of the report for machines; empty for none
	All      bool           // the text shows every dictionary that was tried
}

// errNone: the result says why.
var errNone = errors.New("no dictionary was written")

// fewStrings is how many strings there must be for hashes not to be looked at: they are elsewhere
// then.
const fewStrings = 20

// Train makes a dictionary of values and writes it to a file. If none saves enough, the result says
// why, beside the error.
func Train(ctx context.Context, o TrainOptions) (_ *Training, err error) {
	s := o.Registry.Streams
	if err := keyspace.CheckMatch(o.Match); err != nil {
		return nil, fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	var current *dict.Dictionary
	if o.Current != "" {
		if current, err = registry.ReadFile(o.Current); err != nil {
			return nil, err
		}
	}
	progress, stop := cli.ShowProgress(s.Err)
	defer stop()
	second := progress
	if len(o.Files) == 0 {
		progress, second = cli.Step(progress, 1, 2), cli.Step(progress, 2, 2)
	}
	sampled, source, err := o.values(ctx, progress)
	if err != nil {
		return nil, err
	}
	counts, err := registry.LeftOut(ctx, sampled, o.Exclude, func(text string) { stop(); s.Notef("%s", text) })
	if err != nil {
		return nil, err
	}
	left := make([]LeftOut, len(o.Exclude))
	for i, n := range counts {
		left[i] = LeftOut{Field: o.Exclude[i], Values: n}
	}
	fields, all := 0, 0
	for _, n := range sampled.Excluded {
		fields += n
	}
	for _, n := range counts { // which count those, too
		all += n
	}
	start := time.Now()
	training, err := dict.Train(ctx, sampled.Values, dict.TrainOptions{
		Setting: o.Setting.Setting, Engine: o.Setting.Engine(),
		MaxSize: o.MaxSize, Values: cmp.Or(o.Serves, sampled.Most), MinGain: o.MinGain,
		Exclude: o.Exclude, Current: current, Progress: second,
	})
	stop()
	if errors.Is(err, dict.ErrInvalid) {
		return nil, fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	if err != nil && !errors.Is(err, dict.ErrNoDictionary) {
		return nil, err
	}
	if training.Dictionary != nil {
		if err := outfile.Write(o.Out, training.Dictionary.Bytes()); err != nil {
			return nil, err
		}
	}
	if all == fields { // whole fields of hashes, which are not in the figures
		training.Whole = dict.Measure{}
	}
	t := &Training{
		all: o.All, LeftOut: left, Given: len(sampled.Values), fields: fields,
		Training: training, Source: source, Compress: o.Setting.String(),
		Seconds: time.Since(start).Seconds(), File: o.Out, report: o.Report,
		Go: runtime.Version(), Cores: runtime.NumCPU(),
		CPU: cli.CPU(),
	}
	if len(o.Files) == 0 {
		t.flags = o.Registry.Flags()
	}
	if err != nil {
		t.Reason, err = cli.Message(err), errNone
	}
	return t, err
}

// values reads the values to train on, and describes their source.
func (o *TrainOptions) values(
	ctx context.Context, progress func(done, total int, what string),
) (_ *keyspace.Sampled, source string, err error) {
	if len(o.Files) > 0 {
		var all [][]byte
		var names []string
		for _, path := range o.Files {
			d, err := values.Load(ctx, path, o.Registry.In,
				values.Limits{Values: o.Sample, ValueSize: cli.MaxValue, Seed: o.Seed})
			if err != nil {
				return nil, "", err
			}
			all = append(all, d.Values...)
			if d.Note != "" {
				d.Name += " (" + d.Note + ")"
			}
			names = append(names, d.Name)
		}
		return &keyspace.Sampled{Values: all}, strings.Join(names, ", "), nil
	}
	o.Registry.LookOnly = true
	r, err := registry.Open(ctx, o.Registry)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := r.WarnOfDenied(ctx, keyspace.ServerInfo, keyspace.MemoryUsage); err != nil {
		return nil, "", err
	}
	sampled, err := r.Sample(ctx, keyspace.SampleOptions{
		Match: o.Match, Values: o.Sample, Size: registry.MaxSampled(o.MaxSize), Seed: o.Seed,
		Exclude: o.Exclude, FewStrings: fewStrings, Progress: progress,
	})
	if err != nil {
		return nil, "", err
	}
	source = fmt.Sprintf("%s, %s looked at", keyspace.Redact(o.Registry.Data[0]),
		printable.Count(sampled.Keys, "key", "keys"))
	for _, part := range []struct {
		n    int
		text string
	}{
		{sampled.Fields, ", and %d values of hashes"}, {sampled.TooLarge, ", %d passed over as too large"},
		{sampled.Streams, ", %d of streams passed over"},
	} {
		if part.n > 0 {
			source += fmt.Sprintf(part.text, part.n)
		}
	}
	if n := sampled.Unread; n > 0 {
		source += fmt.Sprintf(", %d that could not be unpacked (%s)", n, cli.Message(sampled.Err))
	}
	if n := sampled.Untried; n > 0 {
		source += fmt.Sprintf(", %d packed ones that were not tried after these", n)
	}
	return sampled, source, nil
}
