package migrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/fleet"
	"github.com/balekv/bale/cmd/internal/keygroup"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// Options are the settings of [Run].
type Options struct {
	Registry registry.Options // Data has one URL
	Settings
	DryRun bool       // change nothing, and count what would be changed
	Force  bool       // activate a dictionary without waiting for the grace period
	Resume string     // file of a [State] to go on from, and to keep; empty for none
	Run    fleet.Part // in a run that workers share
	Plan   page.Sheet // receives the planned changes
}

// The words of Settings.Dict.
const (
	Auto    = "auto"    // train, publish and activate a dictionary
	Current = "current" // that of the group
)

// byWord says whether the dictionary is one of the group, not one that is named.
func (o *Options) byWord() bool { return o.Dict == Auto || o.Dict == Current }

// Validate names the flags whose options are out of range, or do not go together.
func (o *Options) Validate() error {
	setting, err := o.Setting()
	switch {
	case err != nil:
		return fmt.Errorf("--compress: %w", err)
	case setting.Dict && o.Dict == "" && !o.Revert:
		return fmt.Errorf("--compress %s: say with which dictionary: --dict auto trains one, --dict current takes that of --group", setting)
	case setting.Algorithm == frame.Stored:
		return errors.New("--compress none packs nothing; --revert unpacks")
	case o.Revert && (o.Compress != "" || o.Dict != "" || o.Group != "" || o.Repack ||
		o.MinSize != 0 || o.MinGain != 0):
		return errors.New("--revert makes all values plain: it goes with none of --compress, --dict, --group," +
			" --repack, --min-size and --min-gain")
	case o.Dict != "" && !setting.TakesDictionary():
		return fmt.Errorf("--compress %s takes no dictionary: zstd and s2 do, and lz4 at its default level", setting)
	case o.MinGain >= 1 || o.MinGain != o.MinGain:
		return fmt.Errorf("--min-gain %v, must be below 1", o.MinGain)
	case o.DryRun && o.Resume != "":
		return errors.New("--dry-run changes nothing, so there is nothing to --resume")
	case o.Run.Name != "" && o.Resume != "":
		return errors.New("--run keeps in Redis how far it is: it goes without --resume")
	case o.Run.Name != "" && o.DryRun && o.Dict == Auto:
		return errors.New("--run and --dry-run go with a dictionary that there is, not with --dict auto")
	case o.Run.Validate() != nil:
		return o.Run.Validate()
	case len(o.Exclude) > 0 && o.Dict != Auto:
		return errors.New("--exclude is for --dict auto")
	case o.Group != "" && o.Dict == "":
		return errors.New("--group is for --dict")
	case keyspace.CheckMatch(o.Match) != nil:
		return keyspace.CheckMatch(o.Match)
	case o.Group != "":
		if err := dict.CheckGroup(o.Group); err != nil {
			return fmt.Errorf("--group: %w", err)
		}
	case o.byWord():
		return fmt.Errorf("--dict %s needs a --group, a name for the keys: none can be made of %s", o.Dict, quoted(o.Match))
	}
	return nil
}

const (
	saveEvery = 100 * time.Millisecond // of the file to resume from

	// LargestPlain is the largest value in bytes that is packed in place. It, the packed one and the
	// unpacked copy are in memory at the same time.
	LargestPlain = 32 << 20
)

// job is a run in the making.
type job struct {
	*Options
	registry   *registry.Registry
	client     redis.UniversalClient
	setting    engine.Setting
	state      *State
	watch      *keyspace.Watch // nil for a shared run
	resumed    bool
	dictionary *dict.Dictionary // nil for none
	shared     *fleet.Run       // nil for a run of this process alone
	prefixes   []string         // of other registries, that were named
	unnamed    bool             // the group's name is made of --match
}

// Run packs or unpacks the values of a Redis in place. It also returns a result with its error: for
// values that could not be changed, or after an interrupt.
func Run(ctx context.Context, o Options) (_ *Result, err error) {
	unnamed := o.Group == "" && o.byWord() && len(o.Match) == 1
	if unnamed {
		o.Group = keygroup.DictionaryGroup(o.Match[0])
	}
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	if o.Resume != "" { // before anything is written
		if _, err := os.Stat(filepath.Dir(o.Resume)); err != nil {
			return nil, fmt.Errorf("--resume: %w", err)
		}
	}
	j := &job{Options: &o, unnamed: unnamed}
	j.setting, _ = o.Setting()
	j.setting.Dict = false // said by --dict
	o.Registry.LookOnly = o.DryRun
	if j.registry, err = registry.Open(ctx, o.Registry); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.registry.Close()) }()
	j.client = j.registry.Client()
	if o.Dict != "" {
		j.registry.WarnOfEviction(ctx)
	}
	o.Prefix, o.Database = j.registry.Prefix, registry.Database(j.client)
	if err := j.prepare(ctx); err != nil {
		return nil, err
	}
	packer, err := j.packer()
	if err != nil {
		return nil, err
	}
	hold, err := j.claim(ctx)
	if err != nil {
		return nil, err
	}
	if j.Dict != Auto {
		j.announce(ctx)
	}
	if err := j.state.Save(o.Resume); err != nil {
		return nil, err
	}
	if j.shared != nil {
		return j.result(j.share(ctx, packer, hold))
	}
	err = j.walk(ctx, packer, hold)
	if err == nil && o.Resume != "" {
		err = os.Remove(o.Resume)
	} else {
		err = errors.Join(err, j.state.Save(o.Resume))
	}
	return j.result(err)
}

// prepare finds the place to start from and the dictionary.
func (j *job) prepare(ctx context.Context) error {
	asked := []keyspace.Optional{keyspace.ServerInfo, keyspace.DBSize, keyspace.MemoryUsage}
	if j.Run.Name == "" {
		asked = append(asked, keyspace.ClusterNodes)
	}
	if err := j.registry.WarnOfDenied(ctx, asked...); err != nil {
		return err
	}
	err := CanSwap(ctx, j.client) // before anything is trained or published
	if err == nil && j.Dict != "" {
		err = keyspace.TakesWrites(ctx, j.registry.Keys)
	}
	if err != nil {
		if !j.DryRun || !errors.Is(err, keyspace.ErrDenied) && !errors.Is(err, keyspace.ErrReplica) {
			return err
		}
		j.registry.Notef("WARNING: this dry run continues, but a real run would fail: %v", err)
	}
	if err := j.meant(ctx); err != nil {
		return err
	}
	if j.Run.Name != "" {
		places, err := keyspace.Places(ctx, j.client)
		if err != nil {
			return err
		}
		return j.join(ctx, places)
	}
	if j.watch, err = keyspace.NewWatch(ctx, j.client); err != nil {
		return err
	}
	places := j.watch.Places()
	if j.Resume != "" {
		var anew []Anew
		if j.state, anew, err = ReadState(j.Resume, j.Settings, places); err != nil {
			return err
		}
		for _, a := range anew {
			j.registry.Notef("%s is %s: it is walked from the start", a.Addr,
				map[bool]string{
					true: "not as it was (restarted, failed over, slots were moved, or a first replica came)", false: "new",
				}[a.Restarted])
		}
	}
	if j.resumed = j.state != nil; !j.resumed {
		j.state = NewState(j.Settings, places)
		if j.state.UsedMemory, err = keyspace.UsedMemory(ctx, j.client); err != nil {
			return err
		}
	}
	if j.Dict == Auto { // else once the dictionary is known to be there
		j.announce(ctx)
	}
	if j.dictionary, err = j.choose(ctx); err != nil {
		return err
	}
	j.state.Dictionary = j.dictionary.ID()
	return nil
}

// packer packs with the setting and the dictionary, and reads what there is.
func (j *job) packer() (*bale.Packer, error) {
	if j.Revert {
		return j.registry.Packer(&compress.Set{}, bale.PackerOptions{})
	}
	writer, err := j.setting.New(j.dictionary)
	if err != nil {
		return nil, err
	}
	packer, err := j.registry.Packer(&compress.Set{Write: writer},
		bale.PackerOptions{MinSize: j.MinSize, MinGain: j.MinGain})
	if err != nil {
		err = fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	return packer, err
}

// announce prints the planned changes.
func (j *job) announce(ctx context.Context) {
	if !j.Revert {
		defer j.warnOfInPlace(ctx)
	}
	with := registry.Named(j.state.Dictionary)
	switch {
	case j.state.Dictionary != 0:
		if j.Dict == Current {
			with += ", the current one of " + j.Group
		}
	case j.Dict == Auto:
		with = "a dictionary that is trained first"
	}
	at := fmt.Sprintf("keys like %s in %s, database %d", quoted(j.Match), j.registry.Servers[0].Name,
		j.Database)
	if j.resumed {
		at += ", from where " + j.Resume + " says"
	}
	switch {
	case j.DryRun && j.Revert:
		j.planf("DRY RUN, nothing is changed: this is what unpacking all values of %s would do.", at)
	case j.Revert:
		j.planf("UNPACKS the values of %s, in place. No program should pack what it writes there any more: what one packs meanwhile may stay packed.", at)
	case j.DryRun:
		j.planf("DRY RUN, nothing is changed: this is what packing the values of %s, with %s and %s, would do.", at, j.setting, with)
	default:
		j.planf("PACKS the values of %s, in place, with %s and %s.\n"+
			"Every program that reads them must unpack by now (a goredis.Hook, with ReadOnly at first, or a bale.Cache): others see packed bytes. --revert undoes it.", at, j.setting, with)
	}
}

func (j *job) planf(format string, args ...any) {
	j.Plan.Lines(strings.Split(fmt.Sprintf(format, args...), "\n")...)
}

// quoted are patterns as texts name them.
func quoted(patterns []string) string {
	var all []string
	for _, p := range patterns {
		all = append(all, strconv.Quote(p))
	}
	return strings.Join(all, ", ")
}

// inPlaceCommands are commands that would work on packed bytes. STRLEN and GETRANGE are not among
// them, for bale itself uses them.
var inPlaceCommands = []string{"append", "setrange", "setbit", "getbit", "bitcount", "bitpos",
	"bitop", "bitfield", "bitfield_ro", "lcs"}

// warnOfInPlace prints which of those commands programs have used. It prints nothing if the server
// does not report them.
func (j *job) warnOfInPlace(ctx context.Context) {
	calls, err := keyspace.CommandCalls(ctx, j.client)
	if err != nil {
		return
	}
	var used []string
	for _, name := range inPlaceCommands {
		if n := calls[name]; n > 0 {
			used = append(used, fmt.Sprintf("%s (%s)", strings.ToUpper(name), page.PluralOf(n, "time")))
		}
	}
	if len(used) > 0 {
		j.registry.Notef("warning: since this server started, programs have used %s. On keys that are packed these would work on packed bytes: see that they are for other keys.", strings.Join(used, ", "))
	}
}

// walk changes the values, with progress, and keeps the state.
func (j *job) walk(
	ctx context.Context, packer *bale.Packer, hold func(context.Context) (time.Time, error),
) error {
	total, err := j.client.DBSize(ctx).Result()
	if err != nil && !keyspace.IsForbidden(err) {
		return fmt.Errorf("DBSIZE: %w", err)
	}
	progress, stop := cli.ShowProgress(j.registry.Err)
	defer stop()
	progress = j.step(progress, walkStep)
	start, before := time.Now(), j.state.Seconds
	if j.state.Calls == nil {
		j.state.Calls = keyspace.RenameCalls(ctx, j.client)
	}
	var saved time.Time
	defer func() { j.state.Seconds = before + time.Since(start).Seconds() }()
	o := j.pass(packer, hold)
	o.Places = j.state.Places
	o.Page = func(places []keyspace.Place, r *Counts) error {
		j.state.Places, j.state.Seconds = places, before+time.Since(start).Seconds()
		if progress != nil {
			done, all := keyspace.Progress(j.client, places, len(j.Match), r.Keys, total)
			progress(done, all,
				fmt.Sprintf("%d keys seen, %d %s", r.Keys, r.Changed(), verb(j.Revert, j.DryRun)))
		}
		if time.Since(saved) >= saveEvery {
			saved = time.Now()
			if err := j.state.Save(j.Resume); err != nil {
				return err
			}
		}
		return j.watch.NowAndThen(ctx)
	}
	if err := walk(ctx, j.client, o, j.state.Counts); err != nil {
		return err
	}
	if err := j.watch.Look(ctx); err != nil {
		return err
	}
	if err := j.registry.Renamed(j.state.Calls, keyspace.RenameCalls(ctx, j.client)); err != nil {
		j.state.Places, j.state.Calls = j.watch.Places(), nil // all of it again, also with --resume
		return err
	}
	return nil
}

// pass is a walk with the run's settings.
func (j *job) pass(packer *bale.Packer, hold func(context.Context) (time.Time, error)) pass {
	largest := LargestPlain
	if j.Revert {
		largest = cli.MaxValue
	}
	return pass{
		Match: j.Match, Skip: keyspace.RegistryKeys(j.registry.Prefix, dict.DefaultPrefix), Found: j.found, Pacer: j.registry.Pacer,
		Packer: packer, Algorithm: j.setting.Algorithm, DictionaryID: j.dictionary.ID(), MaxSize: largest,
		Revert: j.Revert, Repack: j.Repack, DryRun: j.DryRun, Hold: hold,
	}
}

// mostPrefixes bounds the registries that are named: anybody may write what looks like one.
const mostPrefixes = 10

// found names another registry, once.
func (j *job) found(prefix string) {
	if len(j.prefixes) < mostPrefixes && !slices.Contains(j.prefixes, prefix) {
		j.prefixes = append(j.prefixes, prefix)
		j.registry.Notef("WARNING: there is a registry with the prefix %q. Its keys are left as they are."+
			" If it has the dictionaries of these values, give %s", prefix, printable.Option("--prefix", prefix))
	}
}

// result is what the run did until it ended, with an error or without.
func (j *job) result(err error) (*Result, error) {
	r := &Result{
		Redis: j.registry.Servers[0].Name, Database: j.Database, Match: j.Match, Mode: "pack",
		DryRun: j.DryRun, Compress: j.setting.String(), Dictionary: j.dictionary.ID(), Group: j.Group,
		Counts: j.state.Counts, UsedMemoryBefore: j.state.UsedMemory, Seconds: j.state.Seconds,
		Complete: err == nil, Interrupted: errors.Is(err, context.Canceled), resume: j.Resume,
	}
	verb := "packed"
	if j.Revert {
		r.Mode, r.Compress, verb = "revert", "", "unpacked"
	}
	if err == nil || r.Interrupted { // else the server may not answer
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // also after an interrupt
		defer cancel()
		var memoryErr error
		if err == nil && j.shared != nil {
			r.UsedMemoryAfter, memoryErr = j.usedAfter(ctx)
		} else {
			r.UsedMemoryAfter, memoryErr = keyspace.UsedMemory(ctx, j.client)
		}
		err = errors.Join(err, memoryErr)
	}
	if err == nil && r.Failed() > 0 {
		err = fmt.Errorf("%s could not be %s and stayed unchanged",
			printable.Count(r.Failed(), "value", "values"), verb)
	}
	return r, err
}
