package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/migrate"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stream"
)

type verifyCommand struct {
	registryFlags
	paceFlags `set:"max_rate=5000"`
	Redis     string   `required:"" env:"BALE_REDIS_URL" placeholder:"URL" help:"The Redis, or a node of the cluster, whose values are read: those of the URL's database."`
	Match     []string `placeholder:"PATTERN" sep:"none" help:"The keys whose values are read, for example 'user:*'. Repeatable; each pattern takes a walk of its own. Default: all."`
	Repair    bool     `help:"Mend streams (package stream) that a crash left half done: chunks that would expire before their value, and chunks that no value needs."`
	JSON      string   `name:"json" placeholder:"FILE" help:"Write all figures as JSON, too: to a file, or to stdout (-) in place of the tables."`
}

// Help is shown below the options.
func (verifyCommand) Help() string {
	return `Every string and every field of a hash is read and unpacked with the registry's dictionaries; checksums are compared. Of values in chunks (package stream) the manifest is checked, each chunk, that all chunks are there, and that none expires before its value. No value is changed, except streams with --repair. A dictionary in quarantine that a value needs comes back to the registry; the command says how many did.

The exit status is 1 if a value cannot be unpacked; ten of each cause are named, a hundred in all, and values never shown.

Examples:
  bale verify --redis redis://127.0.0.1:6379
  bale verify --redis redis://127.0.0.1:6379 --match 'user:*' --max-rate 0 --max-bandwidth 0
  bale verify --redis redis://127.0.0.1:6379 --repair`
}

// Bad values are all counted, and some are named.
const (
	badNamed = 100 // in all
	ofCause  = 10  // of each cause, so that one cause does not hide the others
)

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
	Journals int64             `json:"journals,omitempty"` // of streams that are written, or whose writer died
	Mended   int64             `json:"mended,omitempty"`   // streams, and interrupted writes that were tidied up
	Others   int64             `json:"other_type"`         // keys
	Registry int64             `json:"registry"`           // keys
	TooLarge int64             `json:"too_large"`          // values beyond 64 MiB and fields beyond 8 MiB, which were not read
	Restored int64             `json:"restored,omitempty"` // dictionaries that came back from quarantine
	Bad      int64             `json:"bad"`
	Causes   map[string]int64  `json:"causes,omitempty"` // of the bad ones
	Named    []migrate.Problem `json:"named,omitempty"`  // the first of each cause

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
func (c *verifyCommand) Run(ctx context.Context, s *cli.Streams) error {
	if err := c.check(); err != nil {
		return err
	}
	servers, err := c.open(ctx, 0, c.Redis)
	if err != nil {
		return err
	}
	defer servers.close()
	client := servers.data[0].client
	servers.warnOfDanger(ctx, s.Err, "verify")
	if err := servers.sayLost(ctx, s.Err, "verify", keyspace.ServerInfo, keyspace.DBSize, keyspace.MemoryUsage); err != nil {
		return err
	}
	pace := &keyspace.Pacer{Pace: keyspace.Pace{Rate: c.MaxRate, Bandwidth: int(c.MaxBandwidth)}}
	reader := newStoredReader(servers, pace)
	defer reader.close()
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: reader, MaxSize: cli.MaxValue})
	if err != nil {
		return err
	}
	defer packer.Close()
	out, err := cli.OpenJSON(c.JSON, s)
	if err != nil {
		return err
	}
	defer out.Discard()
	streams, err := stream.New(recordStore{goredis.NewStore(client), client}, stream.Options{})
	if err != nil {
		return err
	}
	v := &verifier{interrupt: ctx, pace: pace, client: client, at: keyspace.Redact(cmp.Or(c.Registry, c.Redis)), streams: streams, repair: c.Repair, packer: packer, packed: map[readerKey]*packedValues{}, named: map[string][]migrate.Problem{}, found: verification{
		Redis: keyspace.Redact(c.Redis), Database: databaseOf(client), Match: c.Match, Packed: []packedValues{}, Causes: map[string]int64{},
	}}
	err = v.run(ctx, s, c)
	v.found.Restored = servers.restored.Load()
	r := v.report(err)
	if c.JSON != "-" {
		r.write(s.Out)
	}
	if err = errors.Join(err, out.Write(r)); err == nil && r.Bad > 0 {
		err = fmt.Errorf("%d of %d values cannot be unpacked", r.Bad, r.Values)
	}
	return err
}

// verifier is a verification under way.
type verifier struct {
	client  redis.UniversalClient
	at      string // the registry, without a password
	packer  *bale.Packer
	streams *stream.Streams
	repair  bool // them

	interrupt context.Context // of the command: that of a value does not end
	pace      *keyspace.Pacer // of chunks, and of dictionaries
	packed    map[readerKey]*packedValues
	found     verification
	plain     []byte                       // to unpack into
	named     map[string][]migrate.Problem // by cause
	rereads   int                          // of the value at hand, which changed
}

func (v *verifier) run(ctx context.Context, s *cli.Streams, c *verifyCommand) error {
	total, err := v.client.DBSize(ctx).Result()
	if err != nil && !keyspace.IsForbidden(err) {
		return fmt.Errorf("DBSIZE: %w", err)
	}
	progress, stop := cli.ShowProgress(s.Err)
	defer stop()
	start := time.Now()
	defer func() { v.found.Seconds = time.Since(start).Seconds() }()
	return keyspace.ReadValues(ctx, v.client, keyspace.ValuesOptions{
		Match: c.Match, Skip: keyspace.RegistryKeys(c.Prefix, dict.DefaultPrefix), Pace: c.pace(s.Err, "verify"), Size: bale.MaxPackedLen(cli.MaxValue),
		Values: func(ctx context.Context, node redis.UniversalClient, values []keyspace.Value) (keyspace.Next, error) {
			for _, value := range values {
				v.rereads = 0
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
		if value.InHash {
			return v.bad(ctx, value, errStreamField)
		}
		return v.stream(ctx, value)
	}
	plain, err := v.packer.Unpack(ctx, v.plain[:0], value.Stored)
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
	if owner, ok := stream.Owner(value.Key, value.Stored); ok {
		v.found.Journals++
		if !v.repair {
			return nil
		}
		return v.mend(ctx, value, owner)
	}
	m, err := stream.ParseManifest(value.Stored)
	if err != nil {
		return v.bad(ctx, value, err)
	}
	chunks, err := keyspace.LookAt(v.interrupt, v.client, m.Chunks, func(i int) string { return m.ChunkKey(value.Key, i) }, v.pace)
	if err != nil {
		return v.failed(ctx, value, err)
	}
	if len(chunks.Missing) > 0 {
		return v.bad(ctx, value, missingChunks(&m, chunks))
	}
	lives, err := keyspace.Lives(ctx, v.client, value.Key)
	if err != nil {
		return v.failed(ctx, value, err)
	}
	if chunks.Shortest < lives {
		if !v.repair {
			return v.bad(ctx, value, errShortChunks)
		}
		if err := v.mend(ctx, value, value.Key); err != nil {
			return err
		}
	}
	v.found.Streams++
	return nil
}

// errStreamField: package stream writes strings.
var errStreamField = fmt.Errorf("%w: a field of a hash holds a manifest or a journal of a stream, and bale writes none there", bale.ErrCorrupt)

var errShortChunks = errors.New("chunks of the stream expire before it: bale verify --repair mends it")

// mend repairs a stream. The error is Redis'.
func (v *verifier) mend(ctx context.Context, value keyspace.Value, key string) error {
	r, err := v.streams.Repair(v.interrupt, key)
	if err != nil {
		return v.failed(ctx, value, err)
	}
	if r.Mended > 0 {
		v.found.Mended++
	}
	v.found.Mended += int64(r.Swept)
	return nil
}

// failed counts a value that cannot be checked or mended. Another error than of its keys is
// returned.
func (v *verifier) failed(ctx context.Context, value keyspace.Value, err error) error {
	ofKeys := keyspace.IsReply(err) || slices.ContainsFunc([]error{bale.ErrCorrupt, stream.ErrLease, stream.ErrBusy}, func(e error) bool { return errors.Is(err, e) })
	if !ofKeys || v.interrupt.Err() != nil {
		return err
	}
	return v.bad(ctx, value, err)
}

// bad counts a value that cannot be unpacked, if it is still there.
func (v *verifier) bad(ctx context.Context, value keyspace.Value, cause error) error {
	now, err := keyspace.Fetch(ctx, v.client, value.Key, value.Field, value.InHash, int64(bale.MaxPackedLen(cli.MaxValue)))
	switch {
	case errors.Is(err, redis.Nil), redis.HasErrorPrefix(err, "WRONGTYPE"), errors.Is(err, keyspace.ErrTooLarge): // by now
		v.found.Values--
		return nil
	case err != nil:
		return fmt.Errorf("key %q: %w", value.Key, err)
	case !bytes.Equal(now, value.Stored) && v.rereads < mostRereads:
		v.rereads++
		if err := v.pace.Wait(v.interrupt, nil, 1, len(now)); err != nil {
			return err
		}
		v.found.Values--
		value.Stored = now
		return v.value(ctx, value)
	case !bytes.Equal(now, value.Stored):
		cause = errChanges
	}
	v.found.Bad++
	name := printable.Name(causeOf(cause))
	if _, known := v.found.Causes[name]; !known && len(v.found.Causes) >= causesKept {
		name = otherCauses
	}
	v.found.Causes[name]++
	if errors.Is(cause, dict.ErrUnknown) {
		cause = fmt.Errorf("%w: %s", cause, v.at)
	}
	if len(v.named[name]) < ofCause {
		v.named[name] = append(v.named[name], migrate.NewProblem(value, cli.Told(cause)))
	}
	return nil
}

// mostRereads bounds the readings of a value that changes meanwhile.
const mostRereads = 5

var errChanges = errors.New("changes while it is read, and could not be unpacked at any time")

// Causes beyond the first are counted together: a forged frame can name a dictionary of its own.
const (
	causesKept  = badNamed - 1
	otherCauses = "other causes"
)

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
	if reply, ok := errors.AsType[redis.Error](err); ok { // without the keys
		return cli.Told(reply)
	}
	return cli.Told(err)
}

func (v *verifier) report(err error) *verification {
	r := &v.found
	r.Complete, r.Interrupted = err == nil, errors.Is(err, context.Canceled)
	causes := slices.Sorted(maps.Keys(v.named))
	for i := range ofCause {
		for _, cause := range causes {
			if i < len(v.named[cause]) && len(r.Named) < badNamed {
				r.Named = append(r.Named, v.named[cause][i])
			}
		}
	}
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
		printable.Fprintf(w, "INTERRUPTED: this is what was read so far.\n\n")
	} else if !r.Complete {
		printable.Fprintf(w, "FAILED: this is what was read until then.\n\n")
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	printable.Fprintf(t, "stored\tvalues\tbytes\tratio\t\nplain\t%d\t%d\t\t\n", r.Plain.Values, r.Plain.Bytes)
	for _, p := range r.Packed {
		name := p.Algorithm
		switch {
		case p.Algorithm == frame.Stored.String():
			name = "escaped, or chunks"
		case p.Dictionary != 0:
			name += ", dictionary " + p.Dictionary.String()
		}
		printable.Fprintf(t, "%s\t%d\t%d\t%.2f\t\n", name, p.Values, p.Bytes, float64(p.PlainBytes)/float64(max(p.Bytes, 1)))
	}
	t.Flush()
	for _, line := range []struct {
		n    int64
		text string
	}{
		{r.Streams, "streams, whose chunks are all there"}, {r.Mended, "streams or interrupted writes of streams were mended"},
		{r.Journals, "journals of streams, which are being written or whose writer died (--repair tidies up after those)"},
		{r.Absent, "frames that say that there is no value"}, {r.TooLarge, "values beyond 64 MiB, or fields of hashes beyond 8 MiB, were not read"},
		{r.Others, "keys of other types were not read"}, {r.Registry, "keys of the dictionaries' registry were not read"},
		{r.Restored, restoredText},
	} {
		if line.n > 0 {
			printable.Fprintf(w, "%d %s\n", line.n, line.text)
		}
	}
	printable.Fprintf(w, "\n%d keys looked at in %.1f s, %d values read: ", r.Keys, r.Seconds, r.Values)
	switch {
	case r.Bad == 0 && !r.Complete:
		printable.Fprintf(w, "those can be unpacked; the others were not checked\n")
		return
	case r.Bad == 0 && r.Keys == 0:
		printable.Fprintf(w, "there is nothing to check\n")
		return
	case r.Bad == 0:
		printable.Fprintf(w, "all can be unpacked\n")
		return
	}
	printable.Fprintf(w, "%d CANNOT BE UNPACKED\n", r.Bad)
	for _, cause := range slices.Sorted(maps.Keys(r.Causes)) {
		printable.Fprintf(w, "  %d: %s\n", r.Causes[cause], cause)
	}
	printable.Fprintf(w, "the first of each cause\n")
	for _, p := range r.Named {
		printable.Fprintf(w, "  %v\n", p)
	}
}
