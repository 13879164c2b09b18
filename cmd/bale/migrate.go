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
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/migrate"
	"github.com/balekv/bale/cmd/internal/outfile"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

type migrateCommand struct {
	registryFlags
	paceFlags `set:"max_rate=5000"`
	graceFlag
	Redis    string    `required:"" env:"BALE_REDIS_URL" placeholder:"URL" help:"The Redis, or a node of the cluster, whose values are packed: those of the URL's database."`
	Match    []string  `required:"" placeholder:"PATTERN" sep:"none" help:"The keys whose values are packed, for example 'user:*'; '*' for all. Repeatable; each pattern takes a walk of its own."`
	Compress string    `placeholder:"SETTING" help:"What values are packed with, as the programs that write them have it: zstd, with a level where wanted (zstd:3, zstd/go), s2, lz4 and others. Default: zstd."`
	Dict     string    `placeholder:"ID|FILE|current|auto" help:"The dictionary to pack with, which the registry must have: its id or its file; current for the one that --group is written with; auto to train, publish and activate one."`
	Group    string    `placeholder:"NAME" help:"The group of the dictionary. Default: made of the pattern, user:profile of 'user:*:profile'."`
	Exclude  []string  `placeholder:"FIELDS" help:"With --dict auto: fields of JSON values whose contents never enter the dictionary: names, or paths from the root (user.token)."`
	Revert   bool      `help:"Unpack what is packed, in place of packing."`
	Repack   bool      `help:"Pack anew what is packed with another algorithm or dictionary, too."`
	DryRun   bool      `help:"Change nothing, and say what would be changed."`
	Resume   string    `placeholder:"FILE" help:"Keep in this file how far it is, and go on from there if the file is there already. It is removed in the end."`
	Force    bool      `help:"With --dict auto: activate the dictionary at once, without waiting for the grace period."`
	MinSize  cli.Bytes `placeholder:"N" help:"Smaller values are left. Default: 64."`
	MinGain  float64   `placeholder:"PART" help:"The part of its size that a value must get smaller by. Default: 0.05."`
	JSON     string    `name:"json" placeholder:"FILE" help:"Write all figures as JSON, too: to a file, or to stdout (-) in place of the tables."`
}

// Help is shown below the options.
func (migrateCommand) Help() string {
	return `The values of strings and the fields of hashes are packed in place, while programs run. Each is compared with what was read and replaced by a script within Redis: what a program writes meanwhile stays, expiries stay to the millisecond, a key that is gone stays gone. What is packed already is left, so that it can be stopped, killed and started again at any time.

FIRST every program that reads the keys must be able to unpack:
  1. Roll out the programs with bale: a bale.Cache, or a goredis.Hook with ReadOnly, which unpacks but does not pack. With a dictionary they follow its group (dict.Registry.Open).
  2. Let the programs pack what they write: take ReadOnly away, and with a dictionary activate it (bale dict activate). This may also come after the next step: programs that still write plain values do no harm, and it can be run again.
  3. bale migrate --dry-run, then bale migrate.
  4. bale verify.

The user needs to read and to write: ACL SETUSER mover on >secret ~* &bale:dict:* +@read +@write +@connection +@scripting +info +time +publish.

The way back: let programs write plain values (ReadOnly again), bale migrate --revert, bale verify, which then counts plain values alone; in the end take bale out of the programs.

Programs must not use APPEND, GETRANGE, SETRANGE, STRLEN, SETBIT and their like on these keys, nor scripts that look into values: they would work on packed bytes. Numbers, HyperLogLogs, streams of package stream and keys of other types are left. So are values that GetOrLoad has packed, which say until when they are fresh.

A revert makes these plain, too. One that has expired by its own account is deleted, and the others expire at that time, never later than before. It leaves frames that say that there is no value (they expire soon), values whose content is itself a frame, and on a server that gives fields no expiry (before Redis 7.4 and Valkey 9) fields that are still fresh: revert again when they have expired.

A value that cannot be read, or that programs write all the time, is left and named, and the exit status is 1. A key whose value is replaced counts as used (LRU); one that is only read does not, from Redis 7.2 and in Valkey.

Examples:
  bale migrate --redis redis://127.0.0.1:6379 --match 'user:*' --dry-run
  bale migrate --redis redis://127.0.0.1:6379 --match 'user:*' --compress zstd:3 --resume users.state
  bale migrate --redis redis://127.0.0.1:6379 --match 'user:*' --dict auto --force --repack
  bale migrate --redis redis://127.0.0.1:6379 --match 'user:*' --revert`
}

const (
	dictAuto    = "auto"
	dictCurrent = "current"

	autoSample = 20000                  // values that --dict auto looks at
	saveEvery  = 100 * time.Millisecond // of the file to resume from
)

// Run migrates.
func (c *migrateCommand) Run(ctx context.Context, s *cli.Streams) error {
	setting, err := c.check()
	if err := cmp.Or(err, c.paceFlags.check()); err != nil {
		return err
	}
	servers, err := c.open(ctx, c.Grace, c.Redis)
	if err != nil {
		return err
	}
	defer servers.close()
	servers.onlyLook = c.DryRun
	defer servers.sayQuarantined(s.Err, "migrate")
	client := servers.data[0].client
	if err := servers.sayLost(ctx, s.Err, "migrate", keyspace.ServerInfo, keyspace.DBSize, keyspace.MemoryUsage); err != nil {
		return err
	}
	if err := migrate.CanSwap(ctx, client); err != nil { // before anything is trained or published
		if !c.DryRun || !errors.Is(err, keyspace.ErrDenied) {
			return err
		}
		printable.Fprintf(s.Err, "bale migrate: WARNING: this dry run goes on, and a run that is none would fail: %v\n", err)
	}
	state, resumed, err := c.state(ctx, client, s)
	if err != nil {
		return err
	}
	say := s.Out
	if c.JSON == "-" {
		say = s.Err
	}
	c.announce(say, client, setting, state.Dictionary, resumed)
	warnOfInPlace(ctx, s.Err, client)
	var d *dict.Dictionary
	if d, err = c.dictionary(ctx, s, say, servers, setting, state); err != nil {
		return err
	}
	state.Dictionary = d.ID()
	hold, err := c.claim(ctx, s, servers, d)
	if err != nil {
		return err
	}
	reader, packer, err := c.packer(servers, setting, d)
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
	out, err := cli.OpenJSON(c.JSON, s)
	if err != nil {
		return err
	}
	defer out.Discard()
	if err := c.save(state); err != nil {
		return err
	}
	err = c.migrate(ctx, s, client, packer, setting, d, hold, state)
	if err == nil && c.Resume != "" {
		err = os.Remove(c.Resume)
	} else if saved := c.save(state); saved != nil {
		err = errors.Join(err, saved)
	}
	r, reportErr := c.newReport(client, setting, d, state, err)
	if reportErr == nil && c.JSON != "-" {
		r.write(s.Out)
	}
	if reportErr == nil {
		reportErr = out.Write(r)
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
		return setting, fmt.Errorf("%w: "+format, append([]any{cli.ErrUsage}, args...)...)
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
func (c *migrateCommand) state(ctx context.Context, client redis.UniversalClient, s *cli.Streams) (state *migrate.State, resumed bool, err error) {
	places, err := keyspace.Places(ctx, client)
	if err != nil {
		return nil, false, err
	}
	settings := c.settings(client)
	if c.Resume != "" {
		state, anew, err := migrate.ReadState(c.Resume, settings, places, max(len(c.Match), 1))
		if err != nil {
			return nil, false, err
		}
		for _, addr := range anew {
			printable.Fprintf(s.Err, "bale migrate: %s is another process than before, or new: it is walked from the start\n", addr)
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
		err = outfile.Write(c.Resume, b)
	}
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	return nil
}

// dictionary is the one to pack with, nil for none.
func (c *migrateCommand) dictionary(ctx context.Context, s *cli.Streams, say io.Writer, servers *redisServers, setting engine.Setting, state *migrate.State) (*dict.Dictionary, error) {
	r := servers.registry
	switch {
	case c.Dict == "":
		return nil, nil
	case state.Dictionary != 0: // of the run that is resumed
		d, err := servers.fetch(ctx, state.Dictionary)
		if err == nil && c.Dict == dictAuto {
			err = c.activate(ctx, s, say, r, d.ID())
		}
		return d, err
	case c.Dict == dictAuto:
		d, published, err := c.train(ctx, s, say, servers, setting)
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
				hint = fmt.Sprintf("%v is published there, and waits for bale dict activate %[1]v %s", st.Dictionaries[i].ID, printable.Option("--group", c.Group))
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
		printable.Fprintf(say, "%s is written with %s.\n", c.Group, named(id))
	}
	d, err := servers.fetch(ctx, id)
	if errors.Is(err, dict.ErrUnknown) {
		return nil, fmt.Errorf("%w (prefix %s), so that no program could read what is packed with it: bale dict publish puts it there", err, c.Prefix)
	}
	return d, err
}

// claim keeps the dictionary in use while the run writes with it: gc removes unused dictionaries. A
// resumed run needs it as a new one does. It is nil for a run without a dictionary.
func (c *migrateCommand) claim(ctx context.Context, s *cli.Streams, servers *redisServers, d *dict.Dictionary) (func(context.Context) (time.Time, error), error) {
	if d == nil {
		return nil, nil
	}
	states, err := groupStates(ctx, servers.registry, c.Group)
	if err != nil && !(c.DryRun && c.Dict == dictAuto) { // which publishes nothing
		return nil, err
	}
	group, retired := "", false
	for _, st := range states {
		if e := st.Find(d.ID()); e != nil && (group == "" || retired) {
			group, retired = st.Group, !e.Retired.IsZero() && d.ID() != st.Current && d.ID() != st.Previous
		}
	}
	switch {
	case c.DryRun && (group != "" || c.Dict == dictAuto):
		return nil, nil
	case group == "" && c.Group != "":
		return nil, fmt.Errorf("group %q has no dictionary %v: bale dict list shows what it has", c.Group, d.ID())
	case group == "":
		return nil, fmt.Errorf("no group has dictionary %v, and it may be collected: bale dict publish puts it into one", d.ID())
	case retired:
		printable.Fprintf(s.Err, "bale migrate: warning: %s is not written with dictionary %v any more. What this packs can be read, and keeps it from being collected\n", group, d.ID())
	}
	claim := migrate.Claim{Registry: servers.registry, Group: group, Dictionary: d.ID(), Join: servers.join, Waiting: func(err error) {
		printable.Fprintf(s.Err, "bale migrate: the registry does not answer, so nothing is written until it does: %v\n", err)
	}}
	if err := servers.join(ctx); err != nil { // also before Hold, which needs the registry's settings
		return nil, err
	}
	_, err = claim.Hold(ctx)
	return claim.Hold, err
}

// train makes a dictionary of the existing values, and publishes it except in a dry run. If no new
// dictionary pays, it returns the group's current one.
func (c *migrateCommand) train(ctx context.Context, s *cli.Streams, say io.Writer, servers *redisServers, setting engine.Setting) (_ *dict.Dictionary, published bool, err error) {
	r := servers.registry
	st, err := r.State(ctx, c.Group)
	if err != nil {
		return nil, false, err
	}
	var current *dict.Dictionary
	if st.Current != 0 {
		if current, err = servers.fetch(ctx, st.Current); err != nil {
			return nil, false, err
		}
	}
	progress, stop := cli.ShowProgress(s.Err)
	defer stop()
	values, err := c.sample(ctx, servers, progress)
	if err != nil {
		return nil, false, err
	}
	training, err := dict.Train(ctx, values, dict.TrainOptions{
		Setting: setting.Setting, Engine: setting.Engine(), Builders: engine.Builders(), Exclude: c.Exclude, Current: current, Progress: progress,
	})
	stop()
	switch {
	case errors.Is(err, dict.ErrInvalid):
		return nil, false, fmt.Errorf("%w: %w", cli.ErrUsage, err)
	case errors.Is(err, dict.ErrNoDictionary) && current != nil:
		printable.Fprintf(say, "The current dictionary of %s, %v, stays: %s.\n", c.Group, current.ID(), cli.Told(err))
		return current, false, nil
	case errors.Is(err, dict.ErrNoDictionary):
		return nil, false, fmt.Errorf("%w (of %d values). Leave out --dict to pack without one, or give a --match of keys whose values look more alike", err, len(values))
	case err != nil:
		return nil, false, err
	}
	d := training.Dictionary
	printable.Fprintf(say, "Trained dictionary %v of %d bytes on %d values: on others it takes values of %s from a ratio of %.2f to one of %.2f.\n",
		d.ID(), len(d.Bytes()), training.Samples, c.Group, training.Without.Ratio(), training.With.Ratio())
	if c.DryRun {
		return d, false, nil
	}
	if err := r.Publish(ctx, c.Group, d, training.Info()); err != nil {
		return nil, false, usageIfInvalid(err)
	}
	return d, true, nil
}

// sample reads values to train on, as strings have them, and fields of hashes where there are not
// enough.
func (c *migrateCommand) sample(ctx context.Context, servers *redisServers, progress func(done, total int, what string)) (values [][]byte, err error) {
	client := servers.data[0].client
	reader, packer, err := c.packer(servers, engine.Setting{}, nil)
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
			Match: match, Skip: keyspace.RegistryKeys(c.Prefix), Values: autoSample * (i + 1) / len(c.Match), Bytes: maxSample / len(c.Match), Size: maxSampled, Pace: c.pace(io.Discard, "migrate"),
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
	fields, err := sampleFields(ctx, client, packer, keyspace.ValuesOptions{Match: c.Match, Skip: keyspace.RegistryKeys(c.Prefix), Size: maxSampled, Pace: c.pace(io.Discard, "migrate")}, 1, autoSample-len(values), func(n int) { tell(len(values) + n) })
	return append(values, fields...), err
}

// sampleFields reads a number of values of hashes, in the order of the ranks of their keys and
// fields. On a cluster each master gives its share.
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
	limit, bytes, share := 0, 0, (most+len(nodes)-1)/len(nodes)
	batch := packer.Batch() // what it holds is all kept
	o.Kind, o.Places = "hash", nodes
	o.Values = func(ctx context.Context, node redis.UniversalClient, some []keyspace.Value) (keyspace.Next, error) {
		if node != last {
			last, limit = node, min(limit+share, most)
		}
		for _, v := range some {
			if bytes > maxSample {
				return keyspace.Stop, nil
			}
			if len(fields) >= limit {
				return keyspace.NextNode, nil
			}
			if plain, err := batch.Unpack(ctx, nil, v.Stored); err == nil && len(plain) > 0 {
				bytes += len(plain)
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

// maxSampled is the largest value in bytes that a dictionary is trained on. Each of the candidates
// in progress takes memory of several times the largest value.
const maxSampled = 4 << 20

// activate makes a published dictionary the current one, when readers have had the time to fetch
// it.
func (c *migrateCommand) activate(ctx context.Context, s *cli.Streams, say io.Writer, r *dict.Registry, id frame.DictionaryID) error {
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
	grace, err := r.Grace(ctx)
	if err != nil {
		return err
	}
	until := e.Published.Add(grace)
	if left := time.Until(until); left > 0 && !c.Force {
		printable.Fprintf(say, "It is published to %s, and is activated in %v, when readers have it; --force does not wait.\n", c.Group, left.Round(time.Second))
		progress, stop := cli.ShowProgress(s.Err)
		defer stop()
		for left > 0 {
			if progress != nil {
				progress(int((grace - left).Milliseconds()), int(grace.Milliseconds()), "readers fetch the dictionary")
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
	printable.Fprintf(say, "%s is written with %s now.\n", c.Group, named(id))
	return nil
}

// packer packs with a setting and a dictionary, and reads what there is. The caller closes the
// packer first.
func (c *migrateCommand) packer(servers *redisServers, setting engine.Setting, d *dict.Dictionary) (*storedReader, *bale.Packer, error) {
	reader := newStoredReader(servers, &keyspace.Pacer{Pace: keyspace.Pace{Rate: c.MaxRate, Bandwidth: int(c.MaxBandwidth)}})
	o := bale.PackerOptions{Dictionaries: reader, Engine: engine.Default, MaxSize: cli.MaxValue, MinSize: int(c.MinSize), MinGain: c.MinGain}
	if !c.Revert && setting.Algorithm != frame.Stored {
		writer, err := setting.New(d)
		if err != nil {
			return nil, nil, err
		}
		reader.writer = writer
		o.Readers = []compress.Compressor{reader.writer}
	}
	packer, err := bale.NewPacker(o)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%w: %w", cli.ErrUsage, err), reader.close())
	}
	return reader, packer, nil
}

// storedReader reads with the dictionaries of a registry, and writes with its own compressor. It
// does not ask for a missing dictionary again with each value.
type storedReader struct {
	*registryReader
	writer  compress.Compressor
	pace    *keyspace.Pacer // of what it asks the registry for
	missing map[frame.DictionaryID]missingDictionary
}

type missingDictionary struct {
	until time.Time
	err   error
}

const (
	missingFor  = 5 * time.Second // in which a dictionary that is missing is not asked for again
	missingKept = 1000            // of them: forged frames can name as many as they like
)

func newStoredReader(servers *redisServers, pace *keyspace.Pacer) *storedReader {
	return &storedReader{newRegistryReader(servers), compress.None, pace, map[frame.DictionaryID]missingDictionary{}}
}

// Writer implements bale.Dictionaries.
func (r *storedReader) Writer() compress.Compressor { return r.writer }

// Reader implements bale.Dictionaries. One value is read at a time.
func (r *storedReader) Reader(ctx context.Context, a frame.Algorithm, id frame.DictionaryID) (compress.Compressor, error) {
	if m, ok := r.missing[id]; ok && time.Now().Before(m.until) {
		return nil, m.err
	}
	held := r.find(id) != nil
	if !held {
		if err := r.pace.Wait(ctx, nil, 1, 0); err != nil {
			return nil, err
		}
	}
	c, err := r.registryReader.Reader(ctx, a, id)
	if d := r.find(id); !held && d != nil {
		err = errors.Join(err, r.pace.Wait(ctx, nil, 0, 2*len(d.dictionary.Bytes()))) // fetch reads it twice
	}
	if errors.Is(err, dict.ErrUnknown) || errors.Is(err, dict.ErrCorrupt) {
		if len(r.missing) >= missingKept {
			clear(r.missing)
		}
		r.missing[id] = missingDictionary{time.Now().Add(missingFor), err}
	}
	return c, err
}

func (r *storedReader) close() error {
	return errors.Join(r.writer.Close(), r.registryReader.close())
}

// announce prints the planned changes.
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
		printable.Fprintf(w, "DRY RUN, nothing is changed: this is what unpacking all values of %s would do.\n", at)
	case c.Revert:
		printable.Fprintf(w, "UNPACKS the values of %s, in place. No program should pack what it writes there any more: what one packs meanwhile may stay packed.\n", at)
	case c.DryRun:
		printable.Fprintf(w, "DRY RUN, nothing is changed: this is what packing the values of %s, with %s and %s, would do.\n", at, setting, with)
	default:
		printable.Fprintf(w, "PACKS the values of %s, in place, with %s and %s.\n"+
			"Every program that reads them must unpack by now (a goredis.Hook, with ReadOnly at first, or a bale.Cache): others see packed bytes. --revert undoes it.\n", at, setting, with)
	}
}

// inPlaceCommands are commands that would work on packed bytes. STRLEN and GETRANGE are not among
// them, for bale itself uses them.
var inPlaceCommands = []string{"append", "setrange", "setbit", "getbit", "bitcount", "bitpos", "bitop", "bitfield", "bitfield_ro", "lcs"}

// warnOfInPlace prints which of those commands programs have used. It prints nothing if the server
// does not report them.
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
		printable.Fprintf(w, "bale migrate: warning: since this server started, programs have used %s. On keys that are packed these would work on packed bytes: see that they are for other keys.\n",
			strings.Join(used, ", "))
	}
}

// largestPacked is the largest value that is packed in place: it, the packed one and what that is
// read as are in memory at the same time.
const largestPacked = 32 << 20

// largest is the largest plain value that is changed.
func (c *migrateCommand) largest() int {
	if c.Revert {
		return cli.MaxValue
	}
	return largestPacked
}

// migrate runs, with progress, and keeps the state.
func (c *migrateCommand) migrate(ctx context.Context, s *cli.Streams, client redis.UniversalClient, packer *bale.Packer, setting engine.Setting, d *dict.Dictionary, hold func(context.Context) (time.Time, error), state *migrate.State) error {
	total, err := client.DBSize(ctx).Result()
	if err != nil && !keyspace.IsForbidden(err) {
		return fmt.Errorf("DBSIZE: %w", err)
	}
	progress, stop := cli.ShowProgress(s.Err)
	defer stop()
	start, before := time.Now(), state.Seconds
	var saved time.Time
	defer func() { state.Seconds = before + time.Since(start).Seconds() }()
	return migrate.Run(ctx, client, migrate.Options{
		Match: c.Match, Skip: keyspace.RegistryKeys(c.Prefix, dict.DefaultPrefix), Pace: c.pace(s.Err, "migrate"),
		Packer: packer, Algorithm: setting.Algorithm, DictionaryID: d.ID(), MaxSize: c.largest(),
		Revert: c.Revert, Repack: c.Repack, DryRun: c.DryRun, Hold: hold, Places: state.Places,
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
		r.Problems[i].Cause = cli.Told(errors.New(r.Problems[i].Cause))
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
	{migrate.TooLarge, "larger than 32 MiB (64 MiB to unpack), or fields of hashes larger than 8 MiB"},
	{migrate.Gone, "removed meanwhile"},
	{migrate.Registry, "keys of the dictionaries' registry"},
	{migrate.OtherType, "keys of other types"},
	{migrate.FreshField, "NOT UNPACKED: fields that end by themselves, on a server that gives fields no expiry"},
	{migrate.Refused, "NOT CHANGED: the server refused"},
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
	printable.Fprintf(w, "\n")
	if r.Interrupted {
		printable.Fprintf(w, "INTERRUPTED: this is what was done so far.")
		if r.resume != "" {
			printable.Fprintf(w, " The same command goes on from here (%s).", r.resume)
		}
		printable.Fprintf(w, "\n\n")
	} else if !r.Complete {
		printable.Fprintf(w, "FAILED: this is what was done until then.\n\n")
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	printable.Fprintf(t, "%s\tvalues\tbytes before\tafter\tallocated before\tafter\t\n", verb)
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
		printable.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t\n", row.name, row.Before.Values, row.Before.Bytes, row.After.Bytes, row.Before.Allocated, row.After.Allocated)
	}
	t.Flush()
	if len(r.Left) > 0 {
		printable.Fprintf(w, "\nleft as they are\n")
		for _, l := range leftReasons {
			if n := r.Left[l.reason].Values; n > 0 {
				printable.Fprintf(w, "%10d  %s\n", n, l.text)
			}
		}
	}
	if r.Expired.Values > 0 {
		printable.Fprintf(w, "\n%d values had expired by their own account: %s\n", r.Expired.Values, map[bool]string{false: "deleted", true: "to be deleted"}[r.DryRun])
	}
	if len(r.Problems) > 0 {
		printable.Fprintf(w, "\nthe first that could not be %s\n", strings.TrimPrefix(verb, "to be "))
		for _, p := range r.Problems {
			printable.Fprintf(w, "  %v\n", p)
		}
	}
	printable.Fprintf(w, "\n%d keys looked at in %.1f s; %s: %d values", r.Keys, r.Seconds, verb, all.Before.Values)
	if all.Before.Bytes > 0 {
		printable.Fprintf(w, ", from %d to %d bytes (%+.1f%%), as allocated from %d to %d (%+.1f%%)", all.Before.Bytes, all.After.Bytes, changed(all.Before.Bytes, all.After.Bytes),
			all.Before.Allocated, all.After.Allocated, changed(all.Before.Allocated, all.After.Allocated))
	}
	printable.Fprintf(w, "\n")
	if !r.DryRun && r.UsedMemoryAfter > 0 {
		printable.Fprintf(w, "used_memory: %d before, %d after (%+.1f%%)\n", r.UsedMemoryBefore, r.UsedMemoryAfter, changed(r.UsedMemoryBefore, r.UsedMemoryAfter))
	}
}

func changed(before, after int64) float64 { return 100 * (float64(after)/float64(max(before, 1)) - 1) }
