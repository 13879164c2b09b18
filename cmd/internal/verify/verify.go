// Package verify reads every value of a Redis, and finds those that cannot be unpacked. [Run] does
// it, and returns a [Result].
package verify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/fleet"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stream"
	"github.com/redis/go-redis/v9"
)

// Bad values are all counted, and some are named.
const (
	badNamed = 100 // in all
	ofUnit   = 10  // in all, by a unit of a shared run: its state is kept in Redis
	ofCause  = 10  // of each cause, so that one cause does not hide the others
)

// largestRecord is more than a manifest or a journal has, in bytes.
const largestRecord = 1 << 20

// recordStore reads no more of a value than a manifest or a journal has. Anybody can put something
// large where a repair looks for one. It is for streams that are mended, and not read.
type recordStore struct {
	*goredis.Store
	client redis.UniversalClient
}

// Get returns the start of a value, which is no record if there is more.
func (s recordStore) Get(ctx context.Context, key string) ([]byte, error) {
	b, err := s.client.GetRange(ctx, key, 0, largestRecord).Bytes()
	if err != nil || len(b) > 0 {
		return b, err
	}
	there, err := s.client.Exists(ctx, key).Result()
	if err == nil && there == 0 {
		err = bale.ErrNotFound
	}
	return b, err
}

// verifier is a run under way.
type verifier struct {
	client  redis.UniversalClient
	at      string // the registry, without a password
	packer  *bale.Packer
	streams *stream.Streams
	repair  bool // them

	interrupt context.Context // of the command: that of a value does not end
	pace      *keyspace.Pacer // of values, chunks and dictionaries
	replicas  *keyspace.Replicas
	found     *part
	plain     []byte // to unpack into
	rereads   int    // of the value at hand, which changed
}

// part is what was found in a part of the keys.
type part struct {
	Result
	ByCause map[string][]keyspace.Problem `json:"by_cause,omitempty"` // in place of Named
	most    int                           // of them
	kinds   map[packing]int               // where each is in Packed
}

// packing is what a value is packed with.
type packing struct {
	algorithm  string
	dictionary frame.DictionaryID
}

func newPart(most int) *part {
	return &part{Result{Packed: []Packed{}, Causes: map[string]int64{}},
		map[string][]keyspace.Problem{}, most, map[packing]int{}}
}

// Options are the settings of [Run].
type Options struct {
	Registry registry.Options // Data has one URL
	Match    []string         // patterns of keys, each with a walk of its own; all keys if empty
	Repair   bool             // mend streams
	Replicas bool             // read values from replicas, where there are good ones
	Run      fleet.Part       // in a run that workers share
}

// settings are what all workers of a shared run agree on.
type settings struct {
	Match    []string `json:"match,omitempty"`
	Repair   bool     `json:"repair,omitempty"`
	Prefix   string   `json:"prefix"`
	Database int      `json:"redis database"`
}

// Run verifies. It also returns a result with its error: for values that cannot be unpacked, or
// after an interrupt.
func Run(ctx context.Context, o Options) (_ *Result, err error) {
	if err := errors.Join(o.Run.Validate(), keyspace.CheckMatch(o.Match)); err != nil {
		return nil, fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	reg, err := registry.Open(ctx, o.Registry)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reg.Close()) }()
	client := reg.Client()
	reg.WarnOfLag(ctx)
	reg.WarnOfEviction(ctx)
	asked := []keyspace.Optional{keyspace.ServerInfo, keyspace.DBSize, keyspace.MemoryUsage}
	if o.Run.Name == "" {
		asked = append(asked, keyspace.ClusterNodes)
	}
	if err := reg.WarnOfDenied(ctx, asked...); err != nil {
		return nil, err
	}
	packer, err := reg.Packer(&compress.Set{}, bale.PackerOptions{})
	if err != nil {
		return nil, err
	}
	streams, err := stream.New(recordStore{goredis.NewStore(client), client}, stream.Options{})
	if err != nil {
		return nil, err
	}
	v := &verifier{
		interrupt: ctx, pace: reg.Pacer, client: client, at: keyspace.Redact(reg.At()), streams: streams,
		repair: o.Repair, packer: packer,
		found: newPart(badNamed),
	}
	if o.Replicas {
		if v.replicas, err = keyspace.NewReplicas(ctx, client, reg.Notef); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, v.replicas.Close()) }()
	}
	if o.Run.Name != "" {
		err = v.share(ctx, reg, o)
	} else {
		err = v.walk(ctx, reg, o.Match)
	}
	r := v.found.result(err)
	r.Redis, r.Database, r.Match = reg.Servers[0].Name, registry.Database(client), o.Match
	if err == nil && r.Bad > 0 {
		err = fmt.Errorf("%d of %d values cannot be unpacked", r.Bad, r.Values)
	}
	return r, err
}

// share reads units of the run until all are done, and adds up what all workers found.
func (v *verifier) share(ctx context.Context, reg *registry.Registry, o Options) error {
	run, err := fleet.JoinWalk(ctx, reg, o.Run.Name, "verify",
		settings{o.Match, o.Repair, reg.Prefix, registry.Database(v.client)})
	if err != nil {
		return err
	}
	w := fleet.Walk[part]{
		Registry: reg, New: func() *part { return newPart(ofUnit) }, Merge: (*part).merge,
		Rate: o.Run.Rate, Writes: o.Repair,
		Keep: func(p, before *part) { p.Mended, p.Restored = before.Mended, before.Restored },
		Pass: func(ctx context.Context, place keyspace.Place, counts *part, page func([]keyspace.Place) error) error {
			unit := *v
			unit.interrupt, unit.found = ctx, counts
			return unit.read(ctx, reg, o.Match, []keyspace.Place{place}, page)
		},
	}
	err = w.Share(ctx, run, v.found)
	v.found.Seconds = run.Seconds()
	return err
}

// walk reads all values, with progress.
func (v *verifier) walk(ctx context.Context, reg *registry.Registry, match []string) error {
	total, err := v.client.DBSize(ctx).Result()
	if err != nil && !keyspace.IsForbidden(err) {
		return fmt.Errorf("DBSIZE: %w", err)
	}
	watch, err := keyspace.NewWatch(ctx, v.client)
	if err != nil {
		return err
	}
	calls := keyspace.RenameCalls(ctx, v.client)
	progress, stop := cli.ShowProgress(reg.Err)
	defer stop()
	start := time.Now()
	defer func() { v.found.Seconds = time.Since(start).Seconds() }()
	if err := v.read(ctx, reg, match, watch.Places(), func(places []keyspace.Place) error {
		if progress != nil {
			done, all := keyspace.Progress(v.client, places, len(match), v.found.Keys, total)
			progress(done, all,
				fmt.Sprintf("%d keys seen, %d unreadable", v.found.Keys, v.found.Bad))
		}
		return watch.NowAndThen(ctx)
	}); err != nil {
		return err
	}
	if err := watch.Look(ctx); err != nil {
		return err
	}
	return reg.Renamed(calls, keyspace.RenameCalls(ctx, v.client))
}

// read reads values from some places on, and adds to what was found. It calls page after each page
// of keys.
func (v *verifier) read(
	ctx context.Context, reg *registry.Registry, match []string, places []keyspace.Place,
	page func([]keyspace.Place) error,
) error {
	var before keyspace.Looked
	return keyspace.ReadValues(ctx, v.client, keyspace.ValuesOptions{
		Match: match, Skip: keyspace.RegistryKeys(reg.Prefix, dict.DefaultPrefix), Pacer: reg.Pacer,
		Size:   bale.MaxPackedLen(cli.MaxValue),
		Values: v.values, Replicas: v.replicas,
		Places: places,
		Page: func(places []keyspace.Place, l keyspace.Looked) error {
			f := v.found
			f.Keys += l.Keys - before.Keys
			f.Registry += l.Skipped - before.Skipped
			f.Others += l.Others - before.Others
			f.TooLarge += l.TooLarge - before.TooLarge
			f.LargeFields += l.LargeFields - before.LargeFields
			before = l
			f.Restored += int64(reg.Restored())
			return page(places)
		},
	})
}

// values looks at values of a server. A few MiB of forged ones take minutes to unpack, or as many
// dictionaries.
func (v *verifier) values(
	ctx context.Context, _ redis.UniversalClient, values []keyspace.Value,
) (keyspace.Next, error) {
	for _, value := range values {
		if err := v.interrupt.Err(); err != nil {
			return keyspace.Stop, err
		}
		v.rereads = 0
		if err := v.value(ctx, value); err != nil {
			return keyspace.Stop, err
		}
	}
	return keyspace.More, nil
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
	case errors.Is(err, registry.ErrUnreachable):
		return fmt.Errorf("key %q: %w", value.Key, err)
	case err != nil:
		return v.bad(ctx, value, err)
	}
	v.found.packed(Packed{h.Algorithm.String(), h.DictionaryID, 1, int64(len(value.Stored)), int64(len(plain))})
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
	chunks, err := keyspace.LookAt(v.interrupt, v.client, m.Chunks,
		func(i int) string { return m.ChunkKey(value.Key, i) }, v.pace)
	if err != nil {
		return v.failed(ctx, value, err)
	}
	if err := chunks.WholeOf(m.Stored); err != nil {
		return v.bad(ctx, value, err)
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
	ofKeys := keyspace.IsReply(err) ||
		slices.ContainsFunc([]error{bale.ErrCorrupt, stream.ErrLease, stream.ErrBusy},
			func(e error) bool { return errors.Is(err, e) })
	if !ofKeys || v.interrupt.Err() != nil {
		return err
	}
	return v.bad(ctx, value, err)
}

// bad counts a value that cannot be unpacked, if it is still there.
func (v *verifier) bad(ctx context.Context, value keyspace.Value, cause error) error {
	now, err := keyspace.Fetch(ctx, v.client, value.Key, value.Field, value.InHash,
		int64(bale.MaxPackedLen(cli.MaxValue)))
	names := 2 * (len(value.Key) + len(value.Field)) // with the question about the length
	if waited := v.pace.Wait(v.interrupt, nil, 1, names+len(now)); waited != nil {
		return waited
	}
	switch {
	case errors.Is(err, redis.Nil), redis.HasErrorPrefix(err, "WRONGTYPE"),
		errors.Is(err, keyspace.ErrTooLarge): // by now
		v.found.Values--
		return nil
	case err != nil:
		return fmt.Errorf("key %q: %w", value.Key, err)
	case !bytes.Equal(now, value.Stored) && v.rereads < mostRereads:
		v.rereads++
		v.found.Values--
		value.Stored = now
		return v.value(ctx, value)
	case !bytes.Equal(now, value.Stored):
		cause = errChanges
	}
	v.found.Bad++
	name := printable.Name(causeOf(cause))
	name = v.found.cause(name, 1)
	if errors.Is(cause, dict.ErrUnknown) {
		cause = fmt.Errorf("%w: %s", cause, v.at)
	}
	v.found.name(name, keyspace.NewProblem(value, cli.Message(cause)))
	return nil
}

// mostRereads bounds the readings of a value that changes meanwhile.
const mostRereads = 5

var errChanges = errors.New("changes while it is read, and could not be unpacked at any time")

// Causes beyond the first are counted together: a forged frame can name a dictionary of its own.
const (
	causesKept  = badNamed - 1
	otherCauses = "other causes"

	// packingsKept is of how many algorithms and dictionaries values are counted apart.
	packingsKept     = 10_000
	otherPackings    = "others"
	longestAlgorithm = 32 // bytes of a name; a forged one may be longer
)

// causeOf is what the causes are counted by.
func causeOf(err error) string {
	for _, cause := range []error{bale.ErrCorrupt, bale.ErrTooLarge, bale.ErrUnknownAlgorithm} {
		if errors.Is(err, cause) {
			return cause.Error()
		}
	}
	if e, ok := errors.AsType[*bale.DecodeError](err); ok &&
		errors.Is(err, bale.ErrUnknownDictionary) {
		return fmt.Sprintf("%v %v", bale.ErrUnknownDictionary, e.DictionaryID)
	}
	if reply, ok := errors.AsType[redis.Error](err); ok { // without the keys
		return cli.Message(reply)
	}
	return cli.Message(err)
}
