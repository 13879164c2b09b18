package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/bale/internal/engine"
	"github.com/balekv/bale/cmd/bale/internal/keyspace"
	"github.com/balekv/bale/cmd/bale/internal/migrate"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stream"
)

type verifyCommand struct {
	Redis  string   `required:"" placeholder:"URL" help:"The Redis, or a node of the cluster, whose values are read: those of the URL's database."`
	Match  []string `placeholder:"PATTERN" sep:"none" help:"The keys whose values are read, for example 'user:*'. Repeatable; each pattern takes a walk of its own. Default: all."`
	Rate   int      `default:"5000" placeholder:"N" help:"How many keys, and fields of hashes, a second are read, at most; 0 for no limit. Default: ${default}."`
	Prefix string   `default:"bale:dict:" placeholder:"TEXT" help:"What the keys of the registry start with, whose dictionaries packed values are read with. Default: ${default}."`
	JSON   string   `name:"json" placeholder:"FILE" help:"Write all figures as JSON, too: to a file, or to stdout (-) in place of the tables."`
}

// Help is shown below the options.
func (verifyCommand) Help() string {
	return `Every string and every field of a hash is read and unpacked with the registry's dictionaries; checksums are compared. Of values in chunks (package stream) the manifest is checked, each chunk, and that all chunks are there. Nothing is changed.

The exit status is 1 if a value cannot be unpacked; the first hundred are named, and values never shown.

Examples:
  bale verify --redis redis://127.0.0.1:6379
  bale verify --redis redis://127.0.0.1:6379 --match 'user:*' --rate 0`
}

// badNamed is how many values are named that cannot be unpacked; all are counted.
const badNamed = 100

// verification is what was found; its fields are those of the JSON.
type verification struct {
	Redis    string            `json:"redis"`
	Database int               `json:"database"`
	Match    []string          `json:"match,omitempty"`
	Keys     int64             `json:"keys"`   // looked at
	Values   int64             `json:"values"` // read: strings, and fields of hashes
	Plain    migrate.Tally     `json:"plain"`
	Packed   []packedValues    `json:"packed"` // that can be unpacked, by what they were packed with
	Absent   int64             `json:"absent"` // frames that say that there is no value
	Streams  int64             `json:"streams"`
	Others   int64             `json:"other_type"` // keys
	Registry int64             `json:"registry"`   // keys
	TooLarge int64             `json:"too_large"`  // values beyond 64 MiB, which were not read
	Bad      int64             `json:"bad"`
	Causes   map[string]int64  `json:"causes,omitempty"` // of the bad ones
	Named    []migrate.Problem `json:"named,omitempty"`  // the first of them

	Seconds     float64 `json:"seconds"`
	Complete    bool    `json:"complete"`
	Interrupted bool    `json:"interrupted,omitempty"`
}

// packedValues are those with one algorithm and dictionary.
type packedValues struct {
	Algorithm  string             `json:"algorithm"`
	Dictionary frame.DictionaryID `json:"dictionary"`
	Values     int64              `json:"values"`
	Bytes      int64              `json:"bytes"` // as stored
	PlainBytes int64              `json:"plain_bytes"`
}

// Run verifies.
func (c *verifyCommand) Run(ctx context.Context, s *streams) error {
	if c.Rate < 0 {
		return fmt.Errorf("%w: --rate %d, must not be negative", errUsage, c.Rate)
	}
	client, err := keyspace.Open(ctx, c.Redis)
	if err != nil {
		return err
	}
	defer client.Close()
	reader, err := newStoredReader(client, c.Prefix)
	if err != nil {
		return err
	}
	defer reader.close()
	packer, err := bale.NewPacker(bale.PackerOptions{Dictionaries: reader, Engine: engine.Default, MaxSize: maxValue})
	if err != nil {
		return err
	}
	defer packer.Close()
	out, err := openJSON(c.JSON, s)
	if err != nil {
		return err
	}
	defer out.discard()
	v := &verifier{client: client, packer: packer, packed: map[readerKey]*packedValues{}, found: verification{
		Redis: keyspace.Redact(c.Redis), Database: databaseOf(client), Match: c.Match, Packed: []packedValues{}, Causes: map[string]int64{},
	}}
	err = v.run(ctx, s, c)
	r := v.report(err)
	if c.JSON != "-" {
		r.write(s.out)
	}
	if err = errors.Join(err, out.write(r)); err == nil && r.Bad > 0 {
		err = fmt.Errorf("%d of %d values cannot be unpacked", r.Bad, r.Values)
	}
	return err
}

// verifier is a verification under way.
type verifier struct {
	client redis.UniversalClient
	packer *bale.Packer
	packed map[readerKey]*packedValues
	found  verification
	plain  []byte // to unpack into
}

func (v *verifier) run(ctx context.Context, s *streams, c *verifyCommand) error {
	total, err := v.client.DBSize(ctx).Result()
	if err != nil {
		return fmt.Errorf("DBSIZE: %w", err)
	}
	progress, stop := showProgress(s.err)
	defer stop()
	start := time.Now()
	defer func() { v.found.Seconds = time.Since(start).Seconds() }()
	return keyspace.ReadValues(ctx, v.client, keyspace.ValuesOptions{
		Match: c.Match, Skip: []string{c.Prefix, dict.DefaultPrefix}, Rate: c.Rate, Size: bale.MaxPackedLen(maxValue),
		Values: func(ctx context.Context, node redis.UniversalClient, values []keyspace.Value) (keyspace.Next, error) {
			for _, value := range values {
				if err := v.value(ctx, value); err != nil {
					return keyspace.Stop, err
				}
			}
			return keyspace.More, nil
		},
		Page: func(_ []keyspace.Place, l keyspace.Looked) error {
			f := &v.found
			f.Keys, f.Registry, f.Others, f.TooLarge = l.Keys, l.Skipped, l.Others, l.TooLarge
			if progress != nil {
				progress(int(l.Keys), int(max(total, l.Keys, 1)), fmt.Sprintf("%d keys looked at, %d values cannot be unpacked", l.Keys, f.Bad))
			}
			return nil
		},
	})
}

// value looks at a value. The error is Redis'.
func (v *verifier) value(ctx context.Context, value keyspace.Value) error {
	v.found.Values++
	h, _, packed := frame.Parse(value.Stored)
	if !packed {
		v.found.Plain.Add(value, len(value.Stored))
		return nil
	}
	if h.Algorithm == frame.Chunks && h.Version == frame.V1 {
		return v.stream(ctx, value)
	}
	plain, err := v.packer.UnpackContext(ctx, v.plain[:0], value.Stored)
	if v.plain = plain[:0]; cap(plain) > maxKept {
		v.plain = nil
	}
	switch {
	case errors.Is(err, bale.ErrNotFound):
		v.found.Absent++
		return nil
	case err != nil:
		return v.bad(ctx, value, err)
	}
	key := readerKey{h.Algorithm, h.DictionaryID}
	p := v.packed[key]
	if p == nil {
		p = &packedValues{Algorithm: h.Algorithm.String(), Dictionary: h.DictionaryID}
		v.packed[key] = p
	}
	p.Values++
	p.Bytes += int64(len(value.Stored))
	p.PlainBytes += int64(len(plain))
	return nil
}

// maxKept is the largest buffer in bytes that is kept for the next value.
const maxKept = 1 << 20

// stream looks at a manifest, and for its chunks.
func (v *verifier) stream(ctx context.Context, value keyspace.Value) error {
	m, err := stream.ParseManifest(value.Stored)
	if err != nil {
		return v.bad(ctx, value, err)
	}
	chunks, err := keyspace.LookAt(ctx, v.client, m.Chunks, func(i int) string { return m.ChunkKey(value.Key, i) })
	if err != nil {
		return err
	}
	if chunks.Absent > 0 {
		return v.bad(ctx, value, fmt.Errorf("%w: %d of %d chunks of the stream are missing", bale.ErrCorrupt, chunks.Absent, m.Chunks))
	}
	v.found.Streams++
	return nil
}

// bad counts a value that cannot be unpacked, if it is still there.
func (v *verifier) bad(ctx context.Context, value keyspace.Value, cause error) error {
	get := v.client.Get(ctx, value.Key)
	if value.InHash {
		get = v.client.HGet(ctx, value.Key, value.Field)
	}
	now, err := get.Bytes()
	switch {
	case errors.Is(err, redis.Nil), redis.HasErrorPrefix(err, "WRONGTYPE"):
		v.found.Values--
		return nil
	case err != nil:
		return fmt.Errorf("key %q: %w", value.Key, err)
	case !bytes.Equal(now, value.Stored):
		v.found.Values--
		value.Stored = now
		return v.value(ctx, value)
	}
	v.found.Bad++
	v.found.Causes[causeOf(cause)]++
	if len(v.found.Named) < badNamed {
		v.found.Named = append(v.found.Named, migrate.Problem{Key: value.Key, Field: value.Field, InHash: value.InHash, Cause: told(cause)})
	}
	return nil
}

// causeOf is what the causes are counted by.
func causeOf(err error) string {
	for _, cause := range []error{bale.ErrCorrupt, bale.ErrTooLarge, bale.ErrUnknownAlgorithm} {
		if errors.Is(err, cause) {
			return cause.Error()
		}
	}
	if e, ok := errors.AsType[*bale.DecodeError](err); ok && errors.Is(err, bale.ErrUnknownDictionary) {
		return fmt.Sprintf("%v %v", bale.ErrUnknownDictionary, e.DictionaryID)
	}
	return told(err)
}

func (v *verifier) report(err error) *verification {
	r := &v.found
	r.Complete, r.Interrupted = err == nil, errors.Is(err, context.Canceled)
	for _, p := range v.packed {
		r.Packed = append(r.Packed, *p)
	}
	slices.SortFunc(r.Packed, func(a, b packedValues) int {
		return cmp.Or(cmp.Compare(b.Values, a.Values), cmp.Compare(a.Algorithm, b.Algorithm), cmp.Compare(a.Dictionary, b.Dictionary))
	})
	return r
}

// write writes what was found.
func (r *verification) write(w io.Writer) {
	if r.Interrupted {
		fmt.Fprint(w, "INTERRUPTED: this is what was read so far.\n\n")
	} else if !r.Complete {
		fmt.Fprint(w, "FAILED: this is what was read until then.\n\n")
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "stored\tvalues\tbytes\tratio\t\nplain\t%d\t%d\t\t\n", r.Plain.Values, r.Plain.Bytes)
	for _, p := range r.Packed {
		name := p.Algorithm
		switch {
		case p.Algorithm == frame.Stored.String():
			name = "escaped, or chunks"
		case p.Dictionary != 0:
			name += ", dictionary " + p.Dictionary.String()
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%.2f\t\n", name, p.Values, p.Bytes, float64(p.PlainBytes)/float64(max(p.Bytes, 1)))
	}
	t.Flush()
	for _, line := range []struct {
		n    int64
		text string
	}{
		{r.Streams, "streams, whose chunks are all there"}, {r.Absent, "frames that say that there is no value"}, {r.TooLarge, "values beyond 64 MiB were not read"},
		{r.Others, "keys of other types were not read"}, {r.Registry, "keys of the dictionaries' registry were not read"},
	} {
		if line.n > 0 {
			fmt.Fprintf(w, "%d %s\n", line.n, line.text)
		}
	}
	fmt.Fprintf(w, "\n%d keys looked at in %.1f s, %d values read: ", r.Keys, r.Seconds, r.Values)
	switch {
	case r.Bad == 0 && !r.Complete:
		fmt.Fprintln(w, "those can be unpacked; the others were not checked")
		return
	case r.Bad == 0 && r.Keys == 0:
		fmt.Fprintln(w, "there is nothing to check")
		return
	case r.Bad == 0:
		fmt.Fprintln(w, "all can be unpacked")
		return
	}
	fmt.Fprintf(w, "%d CANNOT BE UNPACKED\n", r.Bad)
	causes := make([]string, 0, len(r.Causes))
	for cause := range r.Causes {
		causes = append(causes, cause)
	}
	slices.Sort(causes)
	for _, cause := range causes {
		fmt.Fprintf(w, "  %d: %s\n", r.Causes[cause], cause)
	}
	fmt.Fprintln(w, "the first of them")
	for _, p := range r.Named {
		fmt.Fprintf(w, "  %v\n", p)
	}
}
