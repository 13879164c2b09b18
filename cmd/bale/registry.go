package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/dictionaries"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/redis/go-redis/v9"
)

// registryFlags say where the registry of dictionaries is, for a command with a --redis of its own.
type registryFlags struct {
	cli.PasswordFlag
	Registry string `placeholder:"URL" help:"The Redis with the registry of dictionaries. Default: that of --redis."`
	Prefix   string `default:"bale:dict:" placeholder:"TEXT" help:"Prefix of the registry's keys. Default: ${default}."`
}

// graceFlag is the grace period that a command declares.
type graceFlag struct {
	Grace time.Duration `placeholder:"D" help:"The grace period that your programs need. The registry keeps the longest one; bale dict grace sets it. Default: the registry's."`
}

// dictFlags are those of the dict commands that need the registry alone.
type dictFlags struct {
	registryFlags
	graceFlag
	Redis string `default:"redis://127.0.0.1:6379" env:"BALE_REDIS_URL" placeholder:"URL" help:"The Redis, or a node of the cluster, with the registry. Default: ${default}."`
}

// dataFlags are those of the dict commands that look at values.
type dataFlags struct {
	registryFlags
	graceFlag
	paceFlags `set:"max_rate=10000"`
	Redis     []string `default:"redis://127.0.0.1:6379" env:"BALE_REDIS_URL" placeholder:"URL" sep:"none" help:"A Redis, or a node of a cluster, with values. Repeatable: give all that use the registry. Default: ${default}."`
}

// redisServers are the servers that a command works on.
type redisServers struct {
	registry *dict.Registry
	keys     redis.UniversalClient // of the registry
	prefix   string
	data     []dataServer
	restored atomic.Int64 // dictionaries that fetch brought back
	onlyLook bool         // fetch brings none back
	left     sync.Map     // dictionaries that it therefore left in quarantine
	lavish   func()       // ends frugal
}

// dataServer is a Redis with values.
type dataServer struct {
	name   string // for people, without a password
	client redis.UniversalClient
}

// label is the name under which a command makes the server known to the registry.
func (d dataServer) label() string { return strings.Replace(d.name, "***@", "", 1) }

// open connects to the registry and to the servers with values. The caller closes them.
func (f *registryFlags) open(ctx context.Context, grace time.Duration, data ...string) (_ *redisServers, err error) {
	if grace < 0 {
		return nil, fmt.Errorf("%w: --grace %v, must not be negative", cli.ErrUsage, grace)
	}
	if f.Registry == "" && len(data) > 1 {
		return nil, fmt.Errorf("%w: with more than one --redis, --registry says which Redis has the registry", cli.ErrUsage)
	}
	s := &redisServers{prefix: f.Prefix, lavish: frugal()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	password, err := f.Password()
	if err != nil {
		return nil, err
	}
	at := cmp.Or(f.Registry, data[0])
	for _, url := range data {
		client, err := keyspace.Open(ctx, keyspace.WithPassword(url, password))
		if err != nil {
			return nil, dataError{err}
		}
		s.data = append(s.data, dataServer{keyspace.Redact(url), client})
		if url == at {
			s.keys = client
		}
	}
	if s.keys == nil {
		if s.keys, err = keyspace.Open(ctx, keyspace.WithPassword(at, password)); err != nil {
			return nil, fmt.Errorf("--registry: %w", err)
		}
	}
	if s.registry, err = dict.NewRegistry(goredis.NewDictStore(s.keys), dict.RegistryOptions{Prefix: f.Prefix, Grace: grace}); err != nil {
		return nil, usageIfInvalid(err)
	}
	return s, nil
}

// dataError is an error of a server with values, as opposed to the registry.
type dataError struct{ error }

func (e dataError) Unwrap() error { return e.error }

// defaultRedis is the default of dataFlags.Redis.
const defaultRedis = "redis://127.0.0.1:6379"

// connect opens the registry and all servers with values. The caller closes them.
func (f *dataFlags) connect(ctx context.Context) (*redisServers, error) {
	s, err := f.open(ctx, f.Grace, f.Redis...)
	if _, ok := errors.AsType[dataError](err); ok && f.Registry != "" && slices.Equal(f.Redis, []string{defaultRedis}) {
		err = fmt.Errorf("%w; %s is the default of --redis, which names the servers with values", err, defaultRedis)
	}
	return s, err
}

func (s *redisServers) close() error {
	s.lavish()
	var err error
	if s.keys != nil && !slices.ContainsFunc(s.data, func(d dataServer) bool { return d.client == s.keys }) {
		err = s.keys.Close()
	}
	for _, d := range s.data {
		err = errors.Join(err, d.client.Close())
	}
	return err
}

// with opens the registry for as long as do runs.
func (f *dictFlags) with(ctx context.Context, do func(*redisServers) error) error {
	s, err := f.open(ctx, f.Grace, f.at())
	if err != nil {
		return err
	}
	return errors.Join(do(s), s.close())
}

// at is the URL of the registry.
func (f *dictFlags) at() string { return cmp.Or(f.Registry, f.Redis) }

// references scans all servers with values, and shows its progress.
func (s *redisServers) references(ctx context.Context, command string, o keyspace.ReferenceOptions, out *cli.Streams) (*keyspace.References, error) {
	if err := s.sayLost(ctx, out.Err, command, keyspace.ServerInfo, keyspace.MemoryUsage); err != nil {
		return nil, err
	}
	progress, stop := cli.ShowProgress(out.Err)
	defer stop()
	var total int64
	var clients []redis.UniversalClient
	for _, d := range s.data {
		clients = append(clients, d.client)
		n, err := keyspace.Count(ctx, d.client)
		if err != nil {
			return nil, err
		}
		total += n
	}
	if !o.Proof { // for which no key is passed over: the registry's hold no frames
		o.Skip = keyspace.RegistryKeys(s.prefix)
	}
	if progress != nil {
		o.Progress = func(keys int64) {
			progress(int(keys), int(max(total, keys, 1)), fmt.Sprintf("%d keys looked at", keys))
		}
	}
	refs, err := keyspace.FindAllReferences(ctx, clients, o)
	if err != nil {
		return nil, err
	}
	return refs, nil
}

// allScanned is an error if the registry knows of a data server that is not among those of the
// command.
func (s *redisServers) allScanned(ctx context.Context) error {
	known, err := s.registry.Servers(ctx)
	if err != nil {
		return err
	}
	scanned, names := map[string]bool{}, map[string]bool{}
	for _, d := range s.data {
		names[withoutDatabase(d.label())] = true
		if err := keyspace.EachDatabase(ctx, d.client, func(c redis.UniversalClient) error {
			id, err := s.registry.ServerID(ctx, goredis.NewDictStore(c))
			scanned[id] = true
			return err
		}); err != nil {
			return err
		}
	}
	for _, server := range known {
		if !scanned[server.ID] {
			if names[withoutDatabase(server.Name)] {
				return fmt.Errorf("%w: %s has another id than at %s, so it was emptied or replaced. If its old values are gone for good: bale dict servers %s",
					errNotScanned, server.Name, server.Seen.Format(time.RFC3339), printable.Option("--forget", server.ID))
			}
			return fmt.Errorf("%w: programs keep values in %s, which was last seen at %s: give its URL with --redis, too. If it is gone for good: bale dict servers %s",
				errNotScanned, cmp.Or(server.Name, "a server without a name"), server.Seen.Format(time.RFC3339), printable.Option("--forget", server.ID))
		}
	}
	return nil
}

// withoutDatabase is the URL of a server, whose databases are all scanned, or a label as it is.
func withoutDatabase(name string) string {
	if scheme, rest, ok := strings.Cut(name, "://"); ok {
		rest, _, _ = strings.Cut(rest, "/")
		return scheme + "://" + rest
	}
	return name
}

var errNotScanned = errors.New("not all data servers of the registry are scanned")

// join makes the first server with values known to the registry, before a command writes packed
// values into it.
func (s *redisServers) join(ctx context.Context) error {
	store := goredis.NewDictStore(s.data[0].client)
	name := ""
	id, err := s.registry.ServerID(ctx, store)
	if err != nil {
		return err
	}
	if id == "" {
		name = s.data[0].label()
	}
	_, err = s.registry.Join(ctx, store, name)
	return err
}

// warnOfDanger warns how dictionaries may be evicted. If the server does not report its policy,
// that is no error.
func (s *redisServers) warnOfDanger(ctx context.Context, w io.Writer, command string) {
	if danger, err := s.registry.Danger(ctx); err == nil && danger != "" {
		printable.Fprintf(w, "bale %s: WARNING: %s\n", command, danger)
	}
}

// fetch reads a dictionary, and counts one that comes back from quarantine, or that stays there.
func (s *redisServers) fetch(ctx context.Context, id frame.DictionaryID) (*dict.Dictionary, error) {
	if s.onlyLook {
		d, until, err := s.look(ctx, id)
		if !until.IsZero() {
			s.left.Store(id, nil)
		}
		return d, err
	}
	held := s.holds(ctx, id)
	d, err := s.registry.Fetch(ctx, id)
	if err == nil && !held && s.holds(ctx, id) {
		s.restored.Add(1)
	}
	return d, err
}

// holds reports whether the registry answers that it has the bytes of a dictionary in their place.
func (s *redisServers) holds(ctx context.Context, id frame.DictionaryID) bool {
	values, err := goredis.NewDictStore(s.keys).Get(ctx, s.registry.DataKey(id))
	return err == nil && values[0] != nil
}

const restoredText = "dictionaries came back from quarantine, because values need them"

// sayQuarantined says how many dictionaries fetch has brought back, and how many it left.
func (s *redisServers) sayQuarantined(w io.Writer, command string) {
	if n := s.restored.Load(); n > 0 {
		printable.Fprintf(w, "bale %s: %d %s\n", command, n, restoredText)
	}
	n := 0
	var id any
	s.left.Range(func(one, _ any) bool { id, n = one, n+1; return true })
	if n > 0 {
		printable.Fprintf(w, "bale %s: %d dictionaries that values need are in quarantine, and go when that ends: bale dict restore %v keeps one\n", command, n, id)
	}
}

// quarantineKey is the key of a removed dictionary's bytes.
func (s *redisServers) quarantineKey(id string) string { return s.prefix + "quarantine:" + id }

// quarantinedUntil is when a dictionary in quarantine goes for good, zero if it is not there.
func (s *redisServers) quarantinedUntil(ctx context.Context, id frame.DictionaryID) (time.Time, error) {
	left, err := keyspace.Lives(ctx, s.keys, s.quarantineKey(id.String()))
	if err != nil || left == 0 {
		return time.Time{}, err
	}
	if left == keyspace.ForEver { // which bale never writes
		return time.Time{}, fmt.Errorf("key %q has no expiry", s.quarantineKey(id.String()))
	}
	return time.Now().Add(left), nil
}

// look reads a dictionary, and leaves one in quarantine there: until is when it goes for good.
func (s *redisServers) look(ctx context.Context, id frame.DictionaryID) (d *dict.Dictionary, until time.Time, err error) {
	d, err = s.registry.Look(ctx, id)
	if err != nil || s.holds(ctx, id) {
		return d, until, err
	}
	until, err = s.quarantinedUntil(ctx, id)
	return d, until, err
}

// inventory looks at all that the registry has, and changes nothing. The group, if one is given,
// must be there.
func (s *redisServers) inventory(ctx context.Context, group string) (in dictionaries.Inventory, err error) {
	in = dictionaries.Inventory{Prefix: s.prefix, Sound: map[frame.DictionaryID]bool{}, Quarantined: map[frame.DictionaryID]time.Time{}}
	names, err := s.registry.Groups(ctx)
	listed := !errors.Is(err, dict.ErrCorrupt)
	if err != nil && listed {
		return in, err
	}
	if !listed { // the keys below name the groups, too
		in.Unreadable = append(in.Unreadable, dictionaries.UnreadableGroup{Cause: cli.Told(err)})
	}
	looked := map[string]bool{}
	state := func(name string) error {
		if looked[name] {
			return nil
		}
		looked[name] = true
		switch st, err := s.registry.State(ctx, name); {
		case errors.Is(err, dict.ErrInvalid), errors.Is(err, dict.ErrCorrupt):
			in.Unreadable = append(in.Unreadable, dictionaries.UnreadableGroup{Name: name, Cause: cli.Told(err)})
		case err != nil:
			return err
		default:
			in.Groups = append(in.Groups, st)
		}
		return nil
	}
	for _, name := range names {
		if err := state(name); err != nil {
			return in, err
		}
	}
	if group != "" && !slices.ContainsFunc(in.Groups, func(st *dict.State) bool { return st.Group == group }) {
		looked[group] = true
		unlisted, err := groupStates(ctx, s.registry, group)
		if err != nil {
			return in, err
		}
		in.Groups = append(in.Groups, unlisted...)
	}
	store := goredis.NewDictStore(s.keys)
	return in, s.walk(ctx, s.prefix, func(name string) error {
		kind, name, _ := strings.Cut(name, ":")
		if kind == "group" && !listed {
			return state(name)
		}
		id, err := frame.ParseDictionaryID(name)
		switch {
		case err != nil || id == 0:
			return nil
		case kind == "quarantine":
			until, err := s.quarantinedUntil(ctx, id)
			if !until.IsZero() {
				in.Quarantined[id] = until
			}
			return err
		case kind != "data":
			return nil
		}
		values, err := store.Get(ctx, s.registry.DataKey(id))
		if err != nil || values[0] == nil { // gone meanwhile
			return err
		}
		d, err := dict.New(values[0])
		in.Sound[id] = err == nil && d.ID() == id
		return nil
	})
}

// registryPace bounds only what does harm: the keys of the registry are few, and the walk to them
// goes over all keys.
var registryPace = keyspace.Pace{Bandwidth: 20 << 20}

// walk calls each for the rest of every key of the registry that starts with a prefix.
func (s *redisServers) walk(ctx context.Context, prefix string, each func(rest string) error) error {
	return keyspace.Walk(ctx, s.keys, escapePattern(prefix)+"*", "string", registryPace, func(_ context.Context, _ *redis.Client, keys []string) (int, keyspace.Next, error) {
		for _, k := range keys {
			if err := each(strings.TrimPrefix(k, prefix)); err != nil {
				return 0, keyspace.Stop, err
			}
		}
		return 0, keyspace.More, nil
	})
}

// escapePattern makes a pattern that matches a text alone.
func escapePattern(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(text)
}
