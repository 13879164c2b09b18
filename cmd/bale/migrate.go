package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/bale/internal/engine"
	"github.com/balekv/bale/cmd/bale/internal/keyspace"
	"github.com/balekv/bale/cmd/bale/internal/migrate"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/compress/none"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

type migrateCommand struct {
	Redis    string        `required:"" placeholder:"URL" help:"The Redis, or a node of the cluster, whose values are packed: those of the URL's database."`
	Match    []string      `required:"" placeholder:"PATTERN" sep:"none" help:"The keys whose values are packed, for example 'user:*'; '*' for all. Repeatable; each pattern takes a walk of its own."`
	Compress string        `placeholder:"SETTING" help:"What values are packed with, as the programs that write them have it: zstd, with a level where wanted (zstd:3, zstd/go), s2, lz4 and others. Default: zstd."`
	Dict     string        `placeholder:"ID|FILE|current|auto" help:"The dictionary to pack with, which the registry must have: its id or its file; current for the one that --group is written with; auto to train, publish and activate one."`
	Group    string        `placeholder:"NAME" help:"The group of the dictionary. Default: made of the pattern, user:profile of 'user:*:profile'."`
	Exclude  []string      `placeholder:"FIELDS" help:"With --dict auto: fields of JSON values whose contents never enter the dictionary: names, or paths from the root (user.token)."`
	Revert   bool          `help:"Unpack what is packed, in place of packing."`
	Repack   bool          `help:"Pack anew what is packed with another algorithm or dictionary, too."`
	DryRun   bool          `help:"Change nothing, and say what would be changed."`
	Rate     int           `default:"5000" placeholder:"N" help:"How many keys, and fields of hashes, a second are looked at, at most; 0 for no limit. Default: ${default}."`
	Resume   string        `placeholder:"FILE" help:"Keep in this file how far it is, and go on from there if the file is there already. It is removed in the end."`
	Prefix   string        `default:"bale:dict:" placeholder:"TEXT" help:"What the keys of the dictionaries' registry start with; they are left alone. Default: ${default}."`
	Grace    time.Duration `default:"1m" placeholder:"D" help:"With --dict auto: how long after publishing the dictionary is activated, for readers to fetch it. Default: ${default}."`
	Force    bool          `help:"With --dict auto: do not wait for that long."`
	MinSize  byteSize      `placeholder:"N" help:"Smaller values are left. Default: 64."`
	MinGain  float64       `placeholder:"PART" help:"The part of its size that a value must get smaller by. Default: 0.05."`
	JSON     string        `name:"json" placeholder:"FILE" help:"Write all figures as JSON, too: to a file, or to stdout (-) in place of the tables."`
}

// Help is shown below the options.
func (migrateCommand) Help() string {
	return `The values of strings and the fields of hashes are packed in place, while programs run. Each is compared with what was read and replaced by a script within Redis: what a program writes meanwhile stays, expiries stay to the millisecond, a key that is gone stays gone. What is packed already is left, so that it can be stopped, killed and started again at any time.

FIRST every program that reads the keys must be able to unpack:
  1. Roll out the programs with bale: a bale.Cache, or a goredis.Hook with ReadOnly, which unpacks but does not pack. With a dictionary they follow its group (dict.Registry.Open).
  2. Let the programs pack what they write: take ReadOnly away, and with a dictionary activate it (bale dict activate). This may also come after the next step: programs that still write plain values do no harm, and it can be run again.
  3. bale migrate --dry-run, then bale migrate.
  4. bale verify.

The user needs to read and to write: ACL SETUSER mover on >secret ~* &bale:dict:* +@read +@write +@connection +@scripting +info +publish.

The way back: let programs write plain values (ReadOnly again), bale migrate --revert, bale verify, which then counts plain values alone; in the end take bale out of the programs.

Programs must not use APPEND, GETRANGE, SETRANGE, STRLEN, SETBIT and their like on these keys, nor scripts that look into values: they would work on packed bytes. Numbers, HyperLogLogs, streams of package stream and keys of other types are left. So are values that GetOrLoad has packed, which say until when they are fresh. A revert makes them plain, and thereby fresh until the key expires; it leaves those that say that there is no value, for only a frame can say so (they expire soon), and those whose content is itself a frame.

A value that cannot be read, or that programs write all the time, is left and named, and the exit status is 1. Keys count as used by this (LRU, LFU).

Examples:
  bale migrate --redis redis://127.0.0.1:6379 --match 'user:*' --dry-run
  bale migrate --redis redis://127.0.0.1:6379 --match 'user:*' --compress zstd:3 --resume users.state
  bale migrate --redis redis://127.0.0.1:6379 --match 'user:*' --dict auto --grace 0s --repack
  bale migrate --redis redis://127.0.0.1:6379 --match 'user:*' --revert`
}

const (
	dictAuto    = "auto"
	dictCurrent = "current"

	autoSample = 20000                  // values that --dict auto looks at
	saveEvery  = 100 * time.Millisecond // of the file to resume from
)

// Run migrates.
func (c *migrateCommand) Run(ctx context.Context, s *streams) error {
	setting, err := c.check()
	if err != nil {
		return err
	}
	registry, client, err := (&registryFlags{Redis: c.Redis, Prefix: c.Prefix, Grace: c.Grace}).open(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	state, resumed, err := c.state(ctx, client, s)
	if err != nil {
		return err
	}
	say := s.out
	if c.JSON == "-" {
		say = s.err
	}
	c.announce(say, client, setting, state.Dictionary, resumed)
	warnOfInPlace(ctx, s.err, client)
	var d *dict.Dictionary
	if d, err = c.dictionary(ctx, s, say, client, registry, setting, state); err != nil {
		return err
	}
	state.Dictionary = d.ID()
	reader, packer, err := c.packer(client, setting, d)
	if err != nil {
		return err
	}
	defer reader.close()
	defer packer.Close()
	if !resumed {
		if state.UsedMemory, err = keyspace.UsedMemory(ctx, client); err != nil {
			return err
		}
	}
	out, err := openJSON(c.JSON, s)
	if err != nil {
		return err
	}
	defer out.discard()
	if err := c.save(state); err != nil {
		return err
	}
	err = c.migrate(ctx, s, client, packer, setting, d, state)
	if err == nil && c.Resume != "" {
		err = os.Remove(c.Resume)
	} else if saved := c.save(state); saved != nil {
		err = errors.Join(err, saved)
	}
	r, reportErr := c.newReport(client, setting, d, state, err)
	if reportErr == nil && c.JSON != "-" {
		r.write(s.out)
	}
	if reportErr == nil {
		reportErr = out.write(r)
	}
	if err = errors.Join(err, reportErr); err == nil && r.Failed() > 0 {
		err = fmt.Errorf("%d values could not be %s: they are as they were", r.Failed(), map[bool]string{false: "packed", true: "unpacked"}[c.Revert])
	}
	return err
}

// check rejects flags that do not go together.
func (c *migrateCommand) check() (engine.Setting, error) {
	setting, err := engine.Parse(cmp.Or(c.Compress, "zstd"))
	usage := func(format string, args ...any) (engine.Setting, error) {
		return setting, fmt.Errorf("%w: "+format, append([]any{errUsage}, args...)...)
	}
	switch {
	case err != nil:
		return usage("--compress: %w", err)
	case setting.Dict:
		return usage("--compress %s: the dictionary is given with --dict", setting)
	case setting.Algorithm == frame.Stored:
		return usage("--compress none packs nothing; --revert unpacks")
	case c.Revert && (c.Compress != "" || c.Dict != "" || c.Group != "" || c.Repack || c.MinSize != 0 || c.MinGain != 0):
		return usage("--revert makes all values plain: it goes with none of --compress, --dict, --group, --repack, --min-size and --min-gain")
	case c.Dict != "" && !setting.TakesDictionary():
		return usage("--compress %s takes no dictionary: zstd and s2 do, and lz4 at its default level", setting)
	case c.Rate < 0:
		return usage("--rate %d, must not be negative", c.Rate)
	case c.Grace < 0:
		return usage("--grace %v, must not be negative", c.Grace)
	case c.MinGain >= 1 || c.MinGain != c.MinGain:
		return usage("--min-gain %v, must be below 1", c.MinGain)
	case c.DryRun && c.Resume != "":
		return usage("--dry-run changes nothing, so there is nothing to --resume")
	case len(c.Exclude) > 0 && c.Dict != dictAuto:
		return usage("--exclude is for --dict auto")
	case c.Group != "" && c.Dict == "":
		return usage("--group is for --dict")
	case slices.Contains(c.Match, ""):
		return usage("--match is empty; '*' is for all keys")
	case c.JSON != "" && c.JSON == c.Resume:
		return usage("--json and --resume are the same file")
	}
	if c.Group == "" && (c.Dict == dictAuto || c.Dict == dictCurrent) {
		if c.Group = groupOf(c.Match[0]); c.Group == "" || len(c.Match) > 1 {
			return usage("--dict %s needs a --group, a name for the keys: none can be made of %s", c.Dict, quotedPatterns(c.Match))
		}
	}
	if c.Group != "" {
		if err := dict.CheckGroup(c.Group); err != nil {
			return usage("--group: %w", err)
		}
	}
	if c.Resume != "" { // before anything is written
		if _, err := os.Stat(filepath.Dir(c.Resume)); err != nil {
			return setting, fmt.Errorf("--resume: %w", err)
		}
	}
	return setting, nil
}

// groupOf makes a group's name of a pattern, by leaving out what is not the same in all keys.
func groupOf(pattern string) string {
	var parts []string
	for part := range strings.FieldsFuncSeq(pattern, func(r rune) bool { return r == ':' || r <= ' ' }) {
		if !strings.ContainsAny(part, `*?[]\{}`) {
			parts = append(parts, part)
		} else if literal, _, _ := strings.Cut(part, "*"); literal != "" && !strings.ContainsAny(literal, `?[]\{}`) {
			parts = append(parts, strings.TrimRight(literal, "-_./"))
		}
	}
	return strings.Join(parts, ":")
}

func quotedPatterns(match []string) string {
	var all []string
	for _, m := range match {
		all = append(all, strconv.Quote(m))
	}
	return strings.Join(all, ", ")
}

// databaseOf is the number of a client's database.
func databaseOf(client redis.UniversalClient) int {
	if single, ok := client.(*redis.Client); ok {
		return single.Options().DB
	}
	return 0
}

// settings are the flags that make a run the same.
func (c *migrateCommand) settings(client redis.UniversalClient) map[string]string {
	all := map[string]string{
		"--match": strings.Join(c.Match, " "), "--compress": c.Compress, "--dict": c.Dict, "--group": c.Group, "--prefix": c.Prefix,
		"--exclude": strings.Join(c.Exclude, ","), "database": strconv.Itoa(databaseOf(client)),
	}
	if c.Revert {
		all["--revert"] = "set"
	}
	if c.Repack {
		all["--repack"] = "set"
	}
	if c.MinSize != 0 {
		all["--min-size"] = c.MinSize.String()
	}
	if c.MinGain != 0 {
		all["--min-gain"] = fmt.Sprint(c.MinGain)
	}
	return all
}

// state is how far an earlier run came, or one at the start.
func (c *migrateCommand) state(ctx context.Context, client redis.UniversalClient, s *streams) (state *migrate.State, resumed bool, err error) {
	places, err := keyspace.Places(ctx, client)
	if err != nil {
		return nil, false, err
	}
	settings := c.settings(client)
	if c.Resume != "" {
		state, anew, err := migrate.ReadState(c.Resume, settings, places)
		if err != nil {
			return nil, false, err
		}
		for _, addr := range anew {
			fmt.Fprintf(s.err, "bale migrate: %s is another process than before, or new: it is walked from the start\n", addr)
		}
		if state != nil {
			return state, true, nil
		}
	}
	return migrate.NewState(settings, places), false, nil
}

// save writes how far the run is.
func (c *migrateCommand) save(state *migrate.State) error {
	if c.Resume == "" {
		return nil
	}
	b, err := state.Bytes()
	if err == nil {
		err = writeFile(c.Resume, b)
	}
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	return nil
}

// dictionary is the one to pack with, nil for none.
func (c *migrateCommand) dictionary(ctx context.Context, s *streams, say io.Writer, client redis.UniversalClient, r *dict.Registry, setting engine.Setting, state *migrate.State) (*dict.Dictionary, error) {
	switch {
	case c.Dict == "":
		return nil, nil
	case state.Dictionary != 0: // of the run that is resumed
		d, err := r.Fetch(ctx, state.Dictionary)
		if err == nil && c.Dict == dictAuto {
			err = c.activate(ctx, s, say, r, d.ID())
		}
		return d, err
	case c.Dict == dictAuto:
		d, published, err := c.train(ctx, s, say, client, r, setting)
		if err != nil || c.DryRun || !published {
			return d, err
		}
		state.Dictionary = d.ID()
		if err := c.save(state); err != nil { // a run that is killed from now on does not train again
			return nil, err
		}
		return d, c.activate(ctx, s, say, r, d.ID())
	}
	var id frame.DictionaryID
	if c.Dict == dictCurrent {
		st, err := r.State(ctx, c.Group)
		if err != nil {
			return nil, err
		}
		if id = st.Current; id == 0 {
			hint := "give --dict ID, or --dict auto to make one"
			if i := slices.IndexFunc(st.Dictionaries, func(e dict.Entry) bool { return e.Activated.IsZero() }); i >= 0 {
				hint = fmt.Sprintf("%v is published there, and waits for bale dict activate %[1]v --group %s", st.Dictionaries[i].ID, c.Group)
			}
			return nil, fmt.Errorf("group %q is written with no dictionary: %s", c.Group, hint)
		}
	} else {
		var err error
		if id, err = idOf(c.Dict); err != nil {
			return nil, err
		}
		if id == 0 {
			return nil, nil // "none"
		}
	}
	if c.Dict == dictCurrent {
		fmt.Fprintf(say, "%s is written with %s.\n", c.Group, named(id))
	}
	d, err := r.Fetch(ctx, id)
	if errors.Is(err, dict.ErrUnknown) {
		return nil, fmt.Errorf("%w (prefix %s), so that no program could read what is packed with it: bale dict publish puts it there", err, c.Prefix)
	}
	if err != nil {
		return nil, err
	}
	return d, c.kept(ctx, r, id)
}

// kept is an error for a dictionary that bale dict gc may remove, if it comes before the first value is packed with it.
func (c *migrateCommand) kept(ctx context.Context, r *dict.Registry, id frame.DictionaryID) error {
	states, err := groupStates(ctx, r, c.Group)
	if err != nil {
		return err
	}
	retired := ""
	for _, st := range states {
		switch e := st.Find(id); {
		case e == nil:
		case id == st.Current || id == st.Previous || e.Retired.IsZero():
			return nil
		default:
			retired = st.Group
		}
	}
	if retired != "" {
		return fmt.Errorf("dictionary %v of %s is retired, and may be collected: bale dict activate takes it into use again", id, retired)
	}
	if c.Group != "" {
		return fmt.Errorf("group %q has no dictionary %v: bale dict list shows what it has", c.Group, id)
	}
	return fmt.Errorf("no group has dictionary %v, and it may be collected: bale dict publish puts it into one", id)
}

// train makes a dictionary of the values there are, and publishes it unless nothing is to be changed. If no new one pays it is the group's
// current one.
func (c *migrateCommand) train(ctx context.Context, s *streams, say io.Writer, client redis.UniversalClient, r *dict.Registry, setting engine.Setting) (_ *dict.Dictionary, published bool, err error) {
	st, err := r.State(ctx, c.Group)
	if err != nil {
		return nil, false, err
	}
	var current *dict.Dictionary
	if st.Current != 0 {
		if current, err = r.Fetch(ctx, st.Current); err != nil {
			return nil, false, err
		}
	}
	progress, stop := showProgress(s.err)
	defer stop()
	values, err := c.sample(ctx, client, progress)
	if err != nil {
		return nil, false, err
	}
	training, err := dict.Train(ctx, values, dict.TrainOptions{
		Setting: setting.Setting, Engine: setting.Engine(), Builders: engine.Builders(), Exclude: c.Exclude, Current: current, Progress: progress,
	})
	stop()
	switch {
	case errors.Is(err, dict.ErrInvalid):
		return nil, false, fmt.Errorf("%w: %w", errUsage, err)
	case errors.Is(err, dict.ErrNoDictionary) && current != nil:
		fmt.Fprintf(say, "The current dictionary of %s, %v, stays: %s.\n", c.Group, current.ID(), told(err))
		return current, false, nil
	case errors.Is(err, dict.ErrNoDictionary):
		return nil, false, fmt.Errorf("%w (of %d values). Leave out --dict to pack without one, or give a --match of keys whose values look more alike", err, len(values))
	case err != nil:
		return nil, false, err
	}
	d := training.Dictionary
	fmt.Fprintf(say, "Trained dictionary %v of %d bytes on %d values: on others it takes values of %s from a ratio of %.2f to one of %.2f.\n",
		d.ID(), len(d.Bytes()), training.Samples, c.Group, training.Without.Ratio(), training.With.Ratio())
	if c.DryRun {
		return d, false, nil
	}
	if err := r.Publish(ctx, c.Group, d, training.Info()); err != nil {
		return nil, false, usageIfInvalid(err)
	}
	return d, true, nil
}

// sample reads values to train on, as strings have them, and fields of hashes where there are not enough.
func (c *migrateCommand) sample(ctx context.Context, client redis.UniversalClient, progress func(done, total int, what string)) (values [][]byte, err error) {
	reader, packer, err := c.packer(client, engine.Setting{}, nil)
	if err != nil {
		return nil, err
	}
	defer reader.close()
	defer packer.Close()
	tell := func(n int) {
		if progress != nil {
			progress(n, autoSample, fmt.Sprintf("%d values read", n))
		}
	}
	for i, match := range c.Match {
		sampled, err := keyspace.Sample(ctx, client, keyspace.SampleOptions{
			Match: match, Skip: c.Prefix, Values: autoSample * (i + 1) / len(c.Match), Bytes: maxSample / len(c.Match), Size: maxSampled, Rate: c.Rate,
			Unpack: func(ctx context.Context, stored []byte) ([]byte, error) {
				return packer.UnpackContext(ctx, nil, stored)
			},
			Progress: tell,
		})
		if err != nil {
			return nil, err
		}
		values = append(values, sampled.Values...)
	}
	if len(values) >= autoSample {
		return values, nil
	}
	fields, err := sampleFields(ctx, client, packer, keyspace.ValuesOptions{Match: c.Match, Skip: []string{c.Prefix}, Size: maxSampled, Rate: c.Rate}, 1, autoSample-len(values), func(n int) { tell(len(values) + n) })
	return append(values, fields...), err
}

// sampleFields reads so many values of hashes, in the order of the ranks of their keys and fields. On a cluster each master gives its share.
func sampleFields(ctx context.Context, client redis.UniversalClient, packer *bale.Packer, o keyspace.ValuesOptions, seed uint64, most int, tell func(n int)) ([][]byte, error) {
	nodes, err := keyspace.Places(ctx, client)
	if err != nil {
		return nil, err
	}
	type field struct {
		rank  uint64
		value []byte
	}
	var fields []field
	var last redis.UniversalClient
	limit, share := 0, (most+len(nodes)-1)/len(nodes)
	o.Kind, o.Places = "hash", nodes
	o.Values = func(ctx context.Context, node redis.UniversalClient, some []keyspace.Value) (keyspace.Next, error) {
		if node != last {
			last, limit = node, min(limit+share, most)
		}
		for _, v := range some {
			if len(fields) >= limit {
				return keyspace.NextNode, nil
			}
			if plain, err := packer.UnpackContext(ctx, nil, v.Stored); err == nil && len(plain) > 0 {
				fields = append(fields, field{keyspace.Rank(seed, v.Key+"\x00"+v.Field), plain})
			}
		}
		tell(len(fields))
		return keyspace.More, nil
	}
	err = keyspace.ReadValues(ctx, client, o)
	slices.SortFunc(fields, func(a, b field) int { return cmp.Compare(a.rank, b.rank) })
	values := make([][]byte, len(fields))
	for i, f := range fields {
		values[i] = f.value
	}
	return values, err
}

// maxSampled is the largest value in bytes that a dictionary is trained on, as bale train has it for its default size.
const maxSampled = 100 * 128 << 10

// activate makes a published dictionary the current one, when readers have had the time to fetch it.
func (c *migrateCommand) activate(ctx context.Context, s *streams, say io.Writer, r *dict.Registry, id frame.DictionaryID) error {
	st, err := r.State(ctx, c.Group)
	if err != nil {
		return err
	}
	e := st.Find(id)
	switch {
	case e == nil:
		return fmt.Errorf("dictionary %v is not in group %q any more: start without the file of --resume", id, c.Group)
	case st.Current == id || !e.Activated.IsZero():
		return nil
	}
	until := e.Published.Add(c.Grace)
	if left := time.Until(until); left > 0 && !c.Force {
		fmt.Fprintf(say, "It is published to %s, and is activated in %v, when readers have it; --force does not wait.\n", c.Group, left.Round(time.Second))
		progress, stop := showProgress(s.err)
		defer stop()
		for left > 0 {
			if progress != nil {
				progress(int((c.Grace - left).Milliseconds()), int(c.Grace.Milliseconds()), "readers fetch the dictionary")
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(min(left, time.Second)):
			}
			left = time.Until(until)
		}
	}
	if err := r.Activate(ctx, c.Group, id, c.Force); err != nil {
		return err
	}
	fmt.Fprintf(say, "%s is written with %s now.\n", c.Group, named(id))
	return nil
}

// packer packs with a setting and a dictionary, and reads what there is. The caller closes the packer first.
func (c *migrateCommand) packer(client redis.UniversalClient, setting engine.Setting, d *dict.Dictionary) (*storedReader, *bale.Packer, error) {
	reader, err := newStoredReader(client, c.Prefix)
	if err != nil {
		return nil, nil, err
	}
	o := bale.PackerOptions{Dictionaries: reader, Engine: engine.Default, MaxSize: maxValue, MinSize: int(c.MinSize), MinGain: c.MinGain}
	if !c.Revert && setting.Algorithm != frame.Stored {
		if reader.writer, err = setting.New(d); err != nil {
			return nil, nil, err
		}
		o.Readers = []compress.Compressor{reader.writer}
	}
	packer, err := bale.NewPacker(o)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%w: %w", errUsage, err), reader.close())
	}
	return reader, packer, nil
}

// storedReader reads with the dictionaries of a registry, and writes with a compressor of its own. What the registry does not hold it does not
// ask for with each value.
type storedReader struct {
	*registryReader
	writer  compress.Compressor
	missing map[frame.DictionaryID]missingDictionary
}

type missingDictionary struct {
	until time.Time
	err   error
}

// missingFor is how long a dictionary that is missing is not asked for again.
const missingFor = 5 * time.Second

func newStoredReader(client redis.UniversalClient, prefix string) (*storedReader, error) {
	r, err := newRegistryReader(client, prefix)
	if err != nil {
		return nil, err
	}
	return &storedReader{r, none.New(), map[frame.DictionaryID]missingDictionary{}}, nil
}

// Writer implements bale.Dictionaries.
func (r *storedReader) Writer() compress.Compressor { return r.writer }

// Reader implements bale.Dictionaries. One value is read at a time.
func (r *storedReader) Reader(ctx context.Context, a frame.Algorithm, id frame.DictionaryID) (compress.Compressor, error) {
	if m, ok := r.missing[id]; ok && time.Now().Before(m.until) {
		return nil, m.err
	}
	c, err := r.registryReader.Reader(ctx, a, id)
	if errors.Is(err, dict.ErrUnknown) || errors.Is(err, dict.ErrCorrupt) {
		r.missing[id] = missingDictionary{time.Now().Add(missingFor), err}
	}
	return c, err
}

func (r *storedReader) close() error {
	err := r.writer.Close()
	for _, c := range r.readers {
		err = errors.Join(err, c.Close())
	}
	return err
}

// announce says what is going to be changed.
func (c *migrateCommand) announce(w io.Writer, client redis.UniversalClient, setting engine.Setting, id frame.DictionaryID, resumed bool) {
	with := named(id)
	switch {
	case id != 0: // of the run that is resumed
	case c.Dict == dictAuto:
		with = "a dictionary that is trained first"
	case c.Dict == dictCurrent:
		with = "the current dictionary of " + c.Group
	case c.Dict != "" && c.Dict != frame.DictionaryID(0).String():
		with = "dictionary " + c.Dict
	}
	at := fmt.Sprintf("keys like %s in %s, database %d", quotedPatterns(c.Match), keyspace.Redact(c.Redis), databaseOf(client))
	if resumed {
		at += ", from where " + c.Resume + " says"
	}
	switch {
	case c.DryRun && c.Revert:
		fmt.Fprintf(w, "DRY RUN, nothing is changed: this is what unpacking all values of %s would do.\n", at)
	case c.Revert:
		fmt.Fprintf(w, "UNPACKS the values of %s, in place. No program should pack what it writes there any more: what one packs meanwhile may stay packed.\n", at)
	case c.DryRun:
		fmt.Fprintf(w, "DRY RUN, nothing is changed: this is what packing the values of %s, with %s and %s, would do.\n", at, setting, with)
	default:
		fmt.Fprintf(w, "PACKS the values of %s, in place, with %s and %s.\n"+
			"Every program that reads them must unpack by now (a goredis.Hook, with ReadOnly at first, or a bale.Cache): others see packed bytes. --revert undoes it.\n", at, setting, with)
	}
}

// inPlaceCommands are commands that would work on packed bytes. STRLEN and GETRANGE are not among them, for bale itself uses them.
var inPlaceCommands = []string{"append", "setrange", "setbit", "getbit", "bitcount", "bitpos", "bitop", "bitfield", "bitfield_ro", "lcs"}

// warnOfInPlace says which of those commands programs have used. Where the server does not tell, it says nothing.
func warnOfInPlace(ctx context.Context, w io.Writer, client redis.UniversalClient) {
	stats, err := keyspace.CommandCalls(ctx, client)
	if err != nil {
		return
	}
	var used []string
	for _, name := range inPlaceCommands {
		if n := stats[name]; n > 0 {
			used = append(used, fmt.Sprintf("%s (%d times)", strings.ToUpper(name), n))
		}
	}
	if len(used) > 0 {
		fmt.Fprintf(w, "bale migrate: warning: since this server started, programs have used %s. On keys that are packed these would work on packed bytes: see that they are for other keys.\n",
			strings.Join(used, ", "))
	}
}

// migrate runs, with progress, and keeps the state.
func (c *migrateCommand) migrate(ctx context.Context, s *streams, client redis.UniversalClient, packer *bale.Packer, setting engine.Setting, d *dict.Dictionary, state *migrate.State) error {
	total, err := client.DBSize(ctx).Result()
	if err != nil {
		return fmt.Errorf("DBSIZE: %w", err)
	}
	progress, stop := showProgress(s.err)
	defer stop()
	start, before := time.Now(), state.Seconds
	var saved time.Time
	defer func() { state.Seconds = before + time.Since(start).Seconds() }()
	return migrate.Run(ctx, client, migrate.Options{
		Match: c.Match, Skip: []string{c.Prefix, dict.DefaultPrefix}, Rate: c.Rate,
		Packer: packer, Algorithm: setting.Algorithm, DictionaryID: d.ID(), MaxSize: maxValue,
		Revert: c.Revert, Repack: c.Repack, DryRun: c.DryRun, Places: state.Places,
		Page: func(places []keyspace.Place, r *migrate.Result) error {
			state.Places, state.Seconds = places, before+time.Since(start).Seconds()
			if progress != nil {
				progress(int(r.Keys), int(max(total, r.Keys, 1)), fmt.Sprintf("%d keys looked at, %d values changed", r.Keys, r.Changed()))
			}
			if time.Since(saved) < saveEvery {
				return nil
			}
			saved = time.Now()
			return c.save(state)
		},
	}, state.Result)
}

// migrationReport is what a run did; its fields are those of the JSON.
type migrationReport struct {
	Redis      string             `json:"redis"`
	Database   int                `json:"database"`
	Match      []string           `json:"match"`
	Mode       string             `json:"mode"` // pack or revert
	DryRun     bool               `json:"dry_run"`
	Compress   string             `json:"compress,omitempty"`
	Dictionary frame.DictionaryID `json:"dictionary"`
	Group      string             `json:"group,omitempty"`
	*migrate.Result
	UsedMemoryBefore int64   `json:"used_memory_before"`
	UsedMemoryAfter  int64   `json:"used_memory_after"`
	Seconds          float64 `json:"seconds"`
	Complete         bool    `json:"complete"` // all keys were looked at
	Interrupted      bool    `json:"interrupted,omitempty"`

	resume string
}

func (c *migrateCommand) newReport(client redis.UniversalClient, setting engine.Setting, d *dict.Dictionary, state *migrate.State, err error) (*migrationReport, error) {
	r := &migrationReport{
		Redis: keyspace.Redact(c.Redis), Database: databaseOf(client), Match: c.Match, Mode: "pack", DryRun: c.DryRun, Compress: setting.String(), Dictionary: d.ID(), Group: c.Group,
		Result: state.Result, UsedMemoryBefore: state.UsedMemory, Seconds: state.Seconds, Complete: err == nil, Interrupted: errors.Is(err, context.Canceled), resume: c.Resume,
	}
	if c.Revert {
		r.Mode, r.Compress = "revert", ""
	}
	for i := range r.Problems {
		r.Problems[i].Cause = told(errors.New(r.Problems[i].Cause))
	}
	if err != nil && !r.Interrupted {
		return r, nil // the server may not answer
	}
	// Also after an interrupt.
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var memoryErr error
	r.UsedMemoryAfter, memoryErr = keyspace.UsedMemory(ctx, client)
	return r, memoryErr
}

// leftReasons say why values were left, in the order in which they are shown.
var leftReasons = []struct {
	reason migrate.Reason
	text   string
}{
	{migrate.Packed, "packed already"},
	{migrate.Otherwise, "packed with another algorithm or dictionary (--repack packs them anew)"},
	{migrate.Plain, "plain already"},
	{migrate.NotSmaller, "not small enough when packed"},
	{migrate.Number, "numbers"},
	{migrate.HLL, "HyperLogLogs"},
	{migrate.Fresh, "packed by GetOrLoad, with how long they are fresh"},
	{migrate.Absent, "frames that say that there is no value; they go when they expire"},
	{migrate.Stream, "of streams (package stream)"},
	{migrate.TooLarge, "larger than 64 MiB"},
	{migrate.Gone, "removed meanwhile"},
	{migrate.Registry, "keys of the dictionaries' registry"},
	{migrate.OtherType, "keys of other types"},
	{migrate.Nested, "NOT UNPACKED: their content is itself a frame"},
	{migrate.Changed, "NOT CHANGED: a program writes them all the time"},
	{migrate.Unreadable, "UNREADABLE"},
}

// write writes the summary.
func (r *migrationReport) write(w io.Writer) {
	verb := "packed"
	if r.Mode == "revert" {
		verb = "unpacked"
	}
	if r.DryRun {
		verb = "to be " + verb
	}
	fmt.Fprintln(w)
	if r.Interrupted {
		fmt.Fprint(w, "INTERRUPTED: this is what was done so far.")
		if r.resume != "" {
			fmt.Fprintf(w, " The same command goes on from here (%s).", r.resume)
		}
		fmt.Fprint(w, "\n\n")
	} else if !r.Complete {
		fmt.Fprint(w, "FAILED: this is what was done until then.\n\n")
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%s\tvalues\tbytes before\tafter\tallocated before\tafter\t\n", verb)
	var all migrate.Change
	for _, row := range []struct {
		name string
		migrate.Change
	}{{"strings", r.Strings}, {"fields of hashes", r.Fields}} {
		all.Before.Values += row.Before.Values
		all.Before.Bytes += row.Before.Bytes
		all.After.Bytes += row.After.Bytes
		all.Before.Allocated += row.Before.Allocated
		all.After.Allocated += row.After.Allocated
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t\n", row.name, row.Before.Values, row.Before.Bytes, row.After.Bytes, row.Before.Allocated, row.After.Allocated)
	}
	t.Flush()
	if len(r.Left) > 0 {
		fmt.Fprintln(w, "\nleft as they are")
		for _, l := range leftReasons {
			if n := r.Left[l.reason].Values; n > 0 {
				fmt.Fprintf(w, "%10d  %s\n", n, l.text)
			}
		}
	}
	if len(r.Problems) > 0 {
		fmt.Fprintf(w, "\nthe first that could not be %s\n", strings.TrimPrefix(verb, "to be "))
		for _, p := range r.Problems {
			fmt.Fprintf(w, "  %v\n", p)
		}
	}
	fmt.Fprintf(w, "\n%d keys looked at in %.1f s; %s: %d values", r.Keys, r.Seconds, verb, all.Before.Values)
	if all.Before.Bytes > 0 {
		fmt.Fprintf(w, ", from %d to %d bytes (%+.1f%%), as allocated from %d to %d (%+.1f%%)", all.Before.Bytes, all.After.Bytes, changed(all.Before.Bytes, all.After.Bytes),
			all.Before.Allocated, all.After.Allocated, changed(all.Before.Allocated, all.After.Allocated))
	}
	fmt.Fprintln(w)
	if !r.DryRun && r.UsedMemoryAfter > 0 {
		fmt.Fprintf(w, "used_memory: %d before, %d after (%+.1f%%)\n", r.UsedMemoryBefore, r.UsedMemoryAfter, changed(r.UsedMemoryBefore, r.UsedMemoryAfter))
	}
}

func changed(before, after int64) float64 { return 100 * (float64(after)/float64(max(before, 1)) - 1) }
