package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/fleet"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

// beforeScan does something before each SCAN.
type beforeScan func()

func (beforeScan) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b beforeScan) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "scan" {
			b()
		}
		return next(ctx, cmd)
	}
}

func (beforeScan) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestRestartMeanwhile: a run that goes on in another process is not complete. The next one walks
// from the start, and changes what is left.
func TestRestartMeanwhile(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redisproc.ForTest(t)
	c := open(t, server.Addr())
	const n = 3000
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range n {
			p.Set(ctx, fmt.Sprint("user:", i), text(i), 0)
		}
		return nil
	})
	must(t, err)
	var notes bytes.Buffer
	o := Options{
		Settings: Settings{Match: []string{"user:*"}}, Resume: filepath.Join(t.TempDir(), "state"),
		Plan: page.NewSheet(&notes, 100),
		Registry: registry.Options{
			Streams: &cli.Streams{Out: &notes, Err: &notes}, Data: []string{server.URL()}, Prefix: dict.DefaultPrefix,
		},
	}
	j := &job{Options: &o}
	j.setting, _ = o.Setting()
	j.registry, err = registry.Open(ctx, o.Registry)
	must(t, err)
	defer j.registry.Close()
	j.client = j.registry.Client()
	o.Prefix = j.registry.Prefix
	must(t, j.prepare(ctx))
	packer, err := j.packer()
	must(t, err)
	restarted := false
	j.client.AddHook(beforeScan(func() {
		if j.state.Counts.Keys > 0 && !restarted {
			restarted = true
			must(t, c.Save(ctx).Err(), server.Restart(ctx))
		}
	}))
	r, err := j.result(j.walk(ctx, packer, nil))
	if r.Complete || r.Interrupted || !errors.Is(err, keyspace.ErrInconclusive) ||
		!strings.Contains(err.Error(), "it was restarted") ||
		!strings.Contains(err.Error(), "Run it again (migrate passes over what it has done), or give --run NAME") {
		t.Errorf("complete %v after %d keys, %v", r.Complete, r.Keys, err)
	}
	must(t, j.state.Save(o.Resume))
	r, err = Run(ctx, o)
	if err != nil || !r.Complete || r.Strings.After.Values != n ||
		!strings.Contains(notes.String(), "is not as it was (restarted") {
		t.Errorf("%d values, %v\n%s", r.Strings.After.Values, err, &notes)
	}
	if r := run(t, c, options(t)); r.Changed() > 0 || r.Left[Packed].Values != n {
		t.Errorf("%d values were left plain", r.Changed())
	}
}

// TestRenamesMeanwhile: values that get other keys may be missed by a walk, which says so.
func TestRenamesMeanwhile(t *testing.T) {
	t.Parallel()
	server := redisproc.ForTest(t)
	c := open(t, server.Addr())
	must(t, c.MSet(t.Context(), "user:1", text(1), "other", "x").Err())
	for command, want := range map[string]string{"RENAME other other": "RENAME ran", "SWAPDB 3 4": "SWAPDB ran meanwhile"} {
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			for ctx.Err() == nil {
				if _, err := server.Do(t.Context(), strings.Fields(command)...); err != nil {
					t.Error(err)
				}
			}
		})
		for try := 1; ; try++ { // on a busy machine none may run during the first walk
			var notes bytes.Buffer
			r, err := Run(t.Context(), Options{Settings: Settings{Match: []string{"user:*"}}, Plan: page.NewSheet(&notes, 100), Registry: registry.Options{
				Streams: &cli.Streams{Out: &notes, Err: &notes}, Data: []string{server.URL()}, Prefix: dict.DefaultPrefix,
			}})
			swapped, said := errors.Is(err, keyspace.ErrInconclusive), strings.Contains(fmt.Sprint(notes.String(), err), want)
			if r == nil || r.Complete == swapped || swapped != (said && strings.HasPrefix(command, "SWAPDB")) || !said && try == 100 {
				t.Errorf("%s: %+v, %v\n%s", command, r, err, &notes)
				break
			}
			if said {
				break
			}
		}
		cancel()
		group.Wait()
	}
}

// TestSwapIsRemembered: what saw a SWAPDB does not become complete by giving the command again; a
// state to resume from begins anew.
func TestSwapIsRemembered(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		server := redisproc.ForTest(t)
		c := open(t, server.Addr())
		must(t, c.Set(t.Context(), "user:1", text(1), 0).Err())
		var notes bytes.Buffer
		o := Options{Settings: Settings{Match: []string{"user:*"}}, Plan: page.NewSheet(&notes, 100), Registry: registry.Options{
			Streams: &cli.Streams{Out: &notes, Err: &notes}, Data: []string{server.URL()}, Prefix: dict.DefaultPrefix,
		}}
		if shared {
			o.Run.Name = "users"
		} else {
			o.Resume = filepath.Join(t.TempDir(), "state")
		}
		swapped := false // in the middle of the first walk
		o.Registry.Pace.Shared = func(ctx context.Context, _ int) (err error) {
			if !swapped {
				swapped = true
				err = c.Do(ctx, "SWAPDB", 3, 4).Err()
			}
			return err
		}
		for try := range 2 {
			r, err := Run(t.Context(), o)
			if again := try == 1 && !shared; r == nil || r.Complete != again || errors.Is(err, keyspace.ErrInconclusive) == again {
				t.Errorf("shared %v, try %d: %+v, %v", shared, try, r, err)
			}
		}
	}
}

// TestExcludedFields: fields of hashes with an excluded name stay out of the dictionary, and a name
// that nothing has is warned of.
func TestExcludedFields(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redisproc.ForTest(t)
	c := open(t, server.Addr())
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 600 {
			p.HSet(ctx, fmt.Sprint("acct:", i), "card", fmt.Sprint("458328928629312", i%3), "token", fmt.Sprintf("%q", fmt.Sprint("tok_secret", i%3)),
				"address", fmt.Sprintf(`{"street":"Hidden Street %d"}`, i%3), "profile", text(i))
		}
		return nil
	})
	must(t, err)
	var notes bytes.Buffer
	o := Options{Settings: Settings{Match: []string{"acct:*"}, Dict: Auto, Group: "acct", Exclude: []string{"token", "address.street", "emial"}},
		Force: true, Plan: page.NewSheet(&notes, 100), Registry: registry.Options{
			Streams: &cli.Streams{Out: &notes, Err: &notes}, Data: []string{server.URL()}, Prefix: dict.DefaultPrefix}}
	if _, err := Run(ctx, o); err != nil || strings.Count(notes.String(), "no value has the field") != 1 || !strings.Contains(notes.String(), `"emial"`) {
		t.Errorf("%v\n%s", err, &notes)
	}
	reg, err := dict.NewRegistry(goredis.NewStore(c), dict.RegistryOptions{})
	must(t, err)
	lacks := func(secrets ...string) {
		t.Helper()
		st, err := reg.State(ctx, "acct")
		must(t, err)
		d, err := reg.Fetch(ctx, st.Current)
		must(t, err)
		for _, secret := range secrets {
			if bytes.Contains(d.Bytes(), []byte(secret)) {
				t.Errorf("the dictionary has %q", secret)
			}
		}
	}
	lacks("secret", "4583", "Hidden")

	// What is excluded later is not measured against the dictionary that has it.
	o.Exclude, o.Repack, o.Force, o.Resume = []string{"name"}, true, false, filepath.Join(t.TempDir(), "state")
	waiting, stop := context.WithCancel(ctx)
	o.Plan = page.NewSheet(writerFunc(func(b []byte) (int, error) {
		if bytes.Contains(b, []byte("is activated in")) {
			stop()
		}
		return notes.Write(b)
	}), 100)
	if _, err := Run(waiting, o); !errors.Is(err, context.Canceled) || !strings.Contains(notes.String(), "may have the contents of name") {
		t.Errorf("%v\n%s", err, &notes)
	}
	o.Force = true
	if r, err := Run(ctx, o); err != nil || r.UsedMemoryBefore == 0 || r.Changed() == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	lacks("secret", "4583", "Hidden", "name 1")

	// Trained again after it was switched off, the same dictionary is in use again.
	st, err := reg.State(ctx, "acct")
	must(t, err)
	must(t, reg.Activate(ctx, "acct", 0, true))
	_, err = Run(ctx, Options{Settings: Settings{Match: o.Match, Revert: true}, Plan: o.Plan, Registry: o.Registry})
	must(t, err)
	o.Resume = ""
	_, err = Run(ctx, o)
	must(t, err)
	if now, err := reg.State(ctx, "acct"); err != nil || now.Current != st.Current {
		t.Errorf("%v is current, want %v: %v\n%s", now.Current, st.Current, err, &notes)
	}

	// Keys of that group by another pattern: whose they are is not guessed.
	o.Match, o.Group, o.Exclude, o.Resume = []string{"*:1*"}, "", nil, ""
	if _, err := Run(ctx, o); err == nil || !strings.Contains(err.Error(), `or may do so: "acct". If programs`) {
		t.Errorf("without --group: %v", err)
	}
	o.Group = "ones" // trains, and none pays
	if _, err := Run(ctx, o); !errors.Is(err, dict.ErrNoDictionary) {
		t.Errorf("with a new --group: %v", err)
	}
}

// TestReplica: a run on a replica ends before it does anything. A dry run needs no writes.
func TestReplica(t *testing.T) {
	t.Parallel()
	master := redisproc.ForTest(t)
	host, port, _ := strings.Cut(master.Addr(), ":")
	replica := redisproc.ForTest(t, "--replicaof", host, port)
	var notes bytes.Buffer
	o := Options{Settings: Settings{Match: []string{"*"}}, Plan: page.NewSheet(&notes, 100), Registry: registry.Options{
		Streams: &cli.Streams{Err: &notes}, Data: []string{replica.URL()}}}
	for _, url := range []string{"", master.URL()} {
		o := o
		if url != "" { // only the registry is on a replica
			o.Registry.Data, o.Registry.URL, o.Dict, o.Group = []string{url}, replica.URL(), Auto, "user"
		}
		if _, err := Run(t.Context(), o); !errors.Is(err, keyspace.ErrReplica) || notes.Len() > 0 {
			t.Errorf("%v\n%s", err, &notes)
		}
	}
	o.DryRun = true
	if _, err := Run(t.Context(), o); err != nil || !strings.Contains(notes.String(), keyspace.ErrReplica.Error()) {
		t.Errorf("a dry run: %v\n%s", err, &notes)
	}
	r, err := dict.NewRegistry(registry.NewExplaining(open(t, replica.Addr())), dict.RegistryOptions{})
	must(t, err)
	d, err := frame.NewDictionary([]byte(strings.Repeat(text(1), 9)))
	must(t, err)
	if err := r.Publish(t.Context(), "user", d, dict.Info{}); !errors.Is(err, keyspace.ErrReplica) || !keyspace.IsReply(err) {
		t.Errorf("publish: %v", err)
	}
}

// TestWhoseGroup: a run with --dict auto and no --group begins none where one may be meant whose
// dictionaries lack fields, as far as the registry knows. With that --group they lack them again.
func TestWhoseGroup(t *testing.T) {
	t.Parallel()
	ctx, server := t.Context(), redisproc.ForTest(t)
	c := open(t, server.Addr())
	for i := range 600 {
		must(t, c.Set(ctx, fmt.Sprint("user:", i), fmt.Sprintf(`{"secret":"hidden of all %d","profile":%q}`, i%3, text(i)), 0).Err())
	}
	waiting, err := frame.NewDictionary([]byte(strings.Repeat(text(1), 9)))
	must(t, err)
	for name, test := range map[string]struct {
		change func(*dict.Registry) error
		want   string // of the error
	}{
		"waits for activation": {func(r *dict.Registry) error {
			return r.Publish(ctx, "acct", waiting, dict.Info{Exclude: "secret"})
		}, `or may do so: "acct". If programs`},
		"a state that cannot be read": {func(r *dict.Registry) error {
			return errors.Join(r.Publish(ctx, "acct", waiting, dict.Info{}), c.Set(ctx, r.GroupKey("acct"), "x", 0).Err())
		}, `or may do so: "acct". If programs`},
		"a state that is gone": {func(r *dict.Registry) error {
			return errors.Join(r.Publish(ctx, "user", waiting, dict.Info{}), c.Del(ctx, r.GroupKey("user")).Err())
		}, `or may do so: "user". If programs`},
		"excludes nothing": {func(r *dict.Registry) error { return r.Publish(ctx, "acct", waiting, dict.Info{}) }, ""},
		"excludes itself": {func(r *dict.Registry) error {
			return r.Publish(ctx, "user", waiting, dict.Info{Exclude: "secret"})
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			prefix := strings.ReplaceAll(name, " ", "-") + ":"
			r, err := dict.NewRegistry(goredis.NewStore(c), dict.RegistryOptions{Prefix: prefix})
			must(t, err, test.change(r))
			o := Options{Settings: Settings{Match: []string{"user:*"}, Dict: Auto}, Force: true, DryRun: true,
				Plan: page.NewSheet(io.Discard, 100), Registry: registry.Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{server.URL()}, Prefix: prefix}}
			if test.want != "" {
				if _, err := Run(ctx, o); err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v", err)
				}
				return
			}
			o.DryRun = false
			_, err = Run(ctx, o)
			must(t, err)
			st, err := r.State(ctx, "user")
			must(t, err)
			d, err := r.Fetch(ctx, st.Current)
			must(t, err)
			if has := bytes.Contains(d.Bytes(), []byte("hidden")); has != (name == "excludes nothing") {
				t.Errorf("the dictionary has what is excluded: %t", has)
			}
			o.Revert, o.Dict, o.Force = true, "", false
			_, err = Run(ctx, o)
			must(t, err)
		})
	}
}

// writerFunc is an io.Writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestOtherRegistry: the keys of a registry with another prefix are not packed.
func TestOtherRegistry(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	server := redisproc.ForTest(t)
	c := open(t, server.Addr())
	other, err := dict.NewRegistry(goredis.NewStore(c), dict.RegistryOptions{Prefix: "other:"})
	must(t, err)
	var ids []frame.DictionaryID
	for i := range 3 {
		d, err := frame.NewDictionary([]byte(strings.Repeat(text(i), 9)))
		must(t, err, other.Publish(ctx, "user", d, dict.Info{}))
		for g := range 10 {
			must(t, other.Publish(ctx, fmt.Sprintf("team%d:user", g), d, dict.Info{}))
		}
		ids = append(ids, d.ID())
	}
	for db := 1; db < 5; db++ {
		one := redis.NewClient(&redis.Options{Addr: server.Addr(), DB: db})
		defer one.Close()
		_, err := other.Join(ctx, goredis.NewStore(one), fmt.Sprintf("redis://cache-%d.example.org:6379/%d", db, db))
		must(t, err)
	}
	settings := []byte(`{"match":["shop:user:*"],"compress":"zstd","dict":"auto","group":"shop:user","exclude":["email","name"],"prefix":"other:"}`)
	_, err = fleet.Join(ctx, c, "other:", "nightly", fleet.Job{Command: "migrate", Units: 1, Settings: settings})
	must(t, err)
	const forged = `{"group":"42","dictionaries":[]}` // hides no key but its own
	must(t, c.Set(ctx, "user:1", text(1)+text(2), 0).Err(), c.Set(ctx, "user:group:42", forged, 0).Err(),
		c.Set(ctx, "user:group:43", text(1)+text(2), 0).Err())
	var notes bytes.Buffer
	r, err := Run(ctx, Options{Settings: Settings{Match: []string{"*"}}, Plan: page.NewSheet(&notes, 100), Registry: registry.Options{
		Streams: &cli.Streams{Out: &notes, Err: &notes}, Data: []string{server.URL()}, Prefix: dict.DefaultPrefix,
	}})
	if err != nil || r.Changed() != 2 || r.Left[Registry].Values < 4 || strings.Count(notes.String(), "give --prefix other:") != 1 {
		t.Errorf("%+v, %v\n%s", r, err, &notes)
	}
	if st, err := other.State(ctx, "user"); err != nil || len(st.Dictionaries) != len(ids) {
		t.Errorf("%+v, %v", st, err)
	}
	if all, err := other.Groups(ctx); err != nil || len(all) != 11 {
		t.Errorf("%q, %v", all, err)
	}
	if all, err := other.Servers(ctx); err != nil || len(all) != 4 {
		t.Errorf("%q, %v", all, err)
	}
	_, err = fleet.Open(ctx, c, "other:", "nightly")
	must(t, err)
	key := other.DataKey(ids[0])
	words, err := c.Get(ctx, key).Bytes()
	must(t, err)
	packed, err := packer(t, nil).Pack(nil, words)
	must(t, err, c.Set(ctx, key, packed, 0).Err())
	_, err = Run(ctx, Options{Settings: Settings{Match: []string{key}, Revert: true}, Plan: page.NewSheet(&notes, 100), Registry: registry.Options{
		Streams: &cli.Streams{Out: &notes, Err: &notes}, Data: []string{server.URL()}, Prefix: dict.DefaultPrefix,
	}})
	must(t, err)
	for _, id := range ids {
		_, err := other.Look(ctx, id)
		must(t, err)
	}
}
