// Package registry opens the registry of dictionaries, and the servers with the values that use it.
//
// [Open] connects. [Registry.Packer] reads values with the registry's dictionaries,
// [Registry.Sample] reads values to train on, and [ReadFile] reads a dictionary from a file.
package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/fieldpath"
)

// Options select the servers.
type Options struct {
	*cli.Streams          // Err receives notes
	Data         []string // URLs of the servers with values, or of nodes of clusters
	URL          string   // of the registry; empty for the only one of Data
	Prefix       string   // of the registry's keys; empty for the default
	Login        keyspace.Login
	Grace        time.Duration
	LookOnly     bool // dictionaries in quarantine stay there
	Pace         keyspace.Pace
}

// At is the URL of the registry.
func (o *Options) At() string { return cmp.Or(o.URL, o.Data[0]) }

// Flags are the options of a command for this registry, ready for a shell, without defaults.
func (o *Options) Flags() string {
	var words []string
	if at := o.At(); at != os.Getenv(cli.URLEnv) {
		words = append(words, "--redis "+keyspace.Shell(at, "REDIS_URL"))
	}
	if o.Login.User != "" {
		words = append(words, printable.Option("--user", o.Login.User))
	}
	if o.Prefix != dict.DefaultPrefix {
		words = append(words, printable.Option("--prefix", o.Prefix))
	}
	return strings.Join(words, " ")
}

// Registry is a registry of dictionaries and the servers with values. A command makes it.
type Registry struct {
	*dict.Registry
	Options
	Keys    redis.UniversalClient // of the registry
	Servers []Server              // with values
	Pacer   *keyspace.Pacer       // of all that one goroutine asks
	Store   *Store                // of the registry

	reader   *reader
	restored int                          // dictionaries that Read brought back
	left     map[frame.DictionaryID]error // in quarantine, and why they cannot come back; nil if nobody tried
	closers  []io.Closer                  // the first one last
	lavish   func()                       // ends Frugal
}

// Server is a Redis with values.
type Server struct {
	Name   string // for people, without a password
	Client redis.UniversalClient
}

// Label is the name that the registry keeps for the server.
func (s Server) Label() string { return strings.Replace(s.Name, "***@", "", 1) }

// Open connects to the registry and to the servers with values.
func Open(ctx context.Context, o Options) (_ *Registry, err error) {
	switch {
	case o.Grace < 0:
		return nil, fmt.Errorf("%w: --grace %v, must not be negative", cli.ErrUsage, o.Grace)
	case len(o.Data) == 0 || slices.Contains(o.Data, ""): // no command guesses a server
		return nil, cli.NoServer()
	case o.URL == "" && len(o.Data) > 1:
		return nil, fmt.Errorf("%w: with more than one --redis, --registry says which Redis has the registry",
			cli.ErrUsage)
	}
	o.Prefix = cmp.Or(o.Prefix, dict.DefaultPrefix)
	r := &Registry{
		Options: o, Pacer: &keyspace.Pacer{Pace: o.Pace}, left: map[frame.DictionaryID]error{},
		lavish: keyspace.Frugal(),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	open := func(url string) (redis.UniversalClient, error) {
		client, err := o.Login.Open(ctx, url)
		if err == nil {
			r.closers = append(r.closers, client)
		}
		return client, err
	}
	for _, url := range o.Data {
		client, err := open(url)
		if err != nil {
			return nil, err
		}
		r.Servers = append(r.Servers, Server{keyspace.Redact(url), client})
		if url == o.At() {
			r.Keys = client
		}
	}
	if r.Keys == nil {
		if r.Keys, err = open(o.At()); err != nil {
			return nil, fmt.Errorf("--registry: %w", err)
		}
	}
	r.Store = r.Paced(r.Keys)
	r.Registry, err = dict.NewRegistry(r.Store,
		dict.RegistryOptions{Prefix: o.Prefix, Grace: o.Grace})
	r.reader = &reader{registry: r, command: ctx, missing: map[frame.DictionaryID]missing{}}
	r.closers = append(r.closers, r.reader)
	return r, err
}

// Client reaches the first server with values.
func (r *Registry) Client() redis.UniversalClient { return r.Servers[0].Client }

// Database is the number of a client's database.
func Database(client redis.UniversalClient) int {
	if single, ok := client.(*redis.Client); ok {
		return single.Options().DB
	}
	return 0
}

// Close closes everything, packers included, and reports the dictionaries in quarantine that were
// read.
func (r *Registry) Close() (err error) {
	if n := r.Restored(); n > 0 {
		r.Notef("%s", RestoredText(n))
	}
	for id, cause := range r.left {
		why := ""
		if cause != nil {
			why = fmt.Sprintf(" (it could not come back: %v)", cause)
		}
		r.Notef("values need %s in quarantine, until that ends: bale dict restore %v keeps one%s",
			printable.Count(len(r.left), "dictionary", "dictionaries"), id, why)
		break
	}
	r.lavish()
	for _, c := range slices.Backward(r.closers) {
		err = errors.Join(err, c.Close())
	}
	return err
}

// Restored is the number of dictionaries that came back from quarantine since the last call.
func (r *Registry) Restored() int {
	n := r.restored
	r.restored = 0
	return n
}

// RestoredText reports dictionaries that came back from quarantine.
func RestoredText(n int) string {
	return printable.Count(n, "dictionary that values need", "dictionaries that values need") +
		" came back from quarantine"
}

// Join makes the first server with values known to the registry, before a command writes packed
// values into it.
func (r *Registry) Join(ctx context.Context) error {
	store := r.Paced(r.Client())
	name := ""
	id, err := r.ServerID(ctx, store)
	if err != nil {
		return err
	}
	if id == "" {
		name = r.Servers[0].Label()
	}
	_, err = r.Registry.Join(ctx, store, name)
	return err
}

// WarnOfEviction warns if the registry's Redis may evict dictionaries. If the server does not
// report its policy, that is no error.
func (r *Registry) WarnOfEviction(ctx context.Context) {
	if danger, err := r.Danger(ctx); err == nil && danger != "" {
		r.Notef("WARNING: %s", danger)
	}
}

// WarnOfLag warns of a server that may lack keys of its master.
func (r *Registry) WarnOfLag(ctx context.Context) {
	for _, s := range r.Servers {
		if keyspace.Unlinked(ctx, s.Client) {
			r.Notef("WARNING: %s is a replica that is not in step with its master: it may lack keys. "+
				"Its link is down, or its first copy is not complete", s.Name)
		}
	}
}

// WarnOfDenied warns of each command that a server with values refuses, with the consequence.
func (r *Registry) WarnOfDenied(ctx context.Context, optional ...keyspace.Optional) error {
	for _, s := range r.Servers {
		all, err := keyspace.Lost(ctx, s.Client, optional...)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
		for _, text := range all {
			r.Notef("WARNING: %s: %s", s.Name, text)
		}
	}
	return nil
}

// Renamed warns of commands that gave values other keys during a walk, by their calls before and
// after it. It is an error after a SWAPDB. See [keyspace.Renamed].
func (r *Registry) Renamed(before, after map[string]int64) error {
	text, err := keyspace.Renamed(before, after)
	if text != "" {
		r.Notef("WARNING: %s. If keys like these got other names, some may have been missed: run it again (with --run under another name) when no program renames them.", text)
	}
	return err
}

// Read reads a dictionary that a value needs. One in quarantine comes back. It stays there with
// LookOnly, and where the registry's Redis takes no writes. Close reports each.
func (r *Registry) Read(ctx context.Context, id frame.DictionaryID) (*dict.Dictionary, error) {
	if r.LookOnly {
		d, until, err := r.Peek(ctx, id)
		if !until.IsZero() {
			r.left[id] = nil
		}
		return d, err
	}
	held := r.holds(ctx, id)
	d, err := r.Bring(ctx, id)
	switch {
	case d != nil && err != nil:
		r.left[id], err = err, nil
	case err == nil:
		if delete(r.left, id); !held {
			r.restored++
		}
	}
	return d, err
}

// Bring is Fetch. If the registry does not take the dictionary back from quarantine, the dictionary
// comes with an error.
func (r *Registry) Bring(ctx context.Context, id frame.DictionaryID) (*dict.Dictionary, error) {
	d, err := r.Fetch(ctx, id)
	if err != nil || r.holds(ctx, id) {
		return d, err
	}
	if _, err := r.Store.Swap(ctx, r.DataKey(id), nil, d.Bytes(), 0); err != nil {
		return d, fmt.Errorf("restore dictionary %v: %w", id, err)
	}
	return d, nil
}

// Peek reads a dictionary, and leaves one in quarantine there: until is when it goes for good.
func (r *Registry) Peek(
	ctx context.Context, id frame.DictionaryID,
) (d *dict.Dictionary, until time.Time, err error) {
	d, err = r.Look(ctx, id)
	if err != nil || r.holds(ctx, id) {
		return d, until, err
	}
	until, err = r.QuarantinedUntil(ctx, id)
	return d, until, err
}

// holds reports whether the registry answers that it has the bytes of a dictionary in their place.
func (r *Registry) holds(ctx context.Context, id frame.DictionaryID) bool {
	first, err := r.Keys.GetRange(ctx, r.DataKey(id), 0, 0).Result()
	return err == nil && first != ""
}

// NoEnd is the end of a quarantine whose key has no expiry. bale gives each key one.
var NoEnd = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// EndText describes the end of a quarantine: "until ...", or "without an end".
func EndText(until time.Time) string {
	if until.Equal(NoEnd) {
		return "without an end"
	}
	return "until " + until.Format(time.RFC3339)
}

// QuarantinedUntil is when a dictionary in quarantine goes for good: zero if it is not there, and
// [NoEnd] if its key has no expiry.
func (r *Registry) QuarantinedUntil(ctx context.Context, id frame.DictionaryID) (time.Time, error) {
	left, err := keyspace.Lives(ctx, r.Keys, r.Prefix+"quarantine:"+id.String())
	switch {
	case err != nil, left == 0:
		return time.Time{}, err
	case left == keyspace.ForEver:
		return NoEnd, nil
	}
	return time.Now().Add(left), nil
}

// maxSample bounds the values of a sample in bytes: all of them are in memory.
const maxSample = 48 << 20

// MaxSampled is the largest value in bytes that is read to train a dictionary of a size. A
// dictionary hardly helps a value a hundred times as large. It is 4 MiB at most: each of the
// candidates in progress takes memory of several times the largest value.
func MaxSampled(dictionary int) int { return min(100*dictionary, 4<<20) }

// Sample reads values of the first server to train on.
func (r *Registry) Sample(
	ctx context.Context, o keyspace.SampleOptions,
) (*keyspace.Sampled, error) {
	packer, err := r.Packer(&compress.Set{}, bale.PackerOptions{MaxSize: o.Size})
	if err != nil {
		return nil, err
	}
	o.Skip, o.Pacer, o.Bytes = keyspace.RegistryKeys(r.Prefix), r.Pacer, maxSample
	o.Unpack = func(ctx context.Context, stored []byte) ([]byte, error) {
		return packer.Unpack(ctx, nil, stored)
	}
	return keyspace.Sample(ctx, r.Client(), o)
}

// LeftOut counts the values that have a field that stays out of a dictionary, for each of them. To
// the values it adds fields of hashes by that name. It warns of a field that nothing has.
func LeftOut(
	ctx context.Context, s *keyspace.Sampled, fields []string, warn func(text string),
) ([]int, error) {
	counts, err := fieldpath.Count(ctx, s.Values, fields)
	for i := range counts {
		if s.Excluded != nil {
			counts[i] += s.Excluded[i]
		}
		if err == nil && counts[i] == 0 {
			warn(fmt.Sprintf("WARNING: no value has the field %q, so nothing is left out for it. "+
				"Is it spelled so? A name counts at any depth, a path from the root (user.token).", fields[i]))
		}
	}
	return counts, err
}

// Named is a dictionary as texts name it.
func Named(id frame.DictionaryID) string {
	if id == 0 {
		return "no dictionary"
	}
	return "dictionary " + id.String()
}

// ID reads the id of a dictionary, or that of the dictionary in a file.
func ID(name string) (frame.DictionaryID, error) {
	if _, err := os.Stat(name); err == nil {
		d, err := ReadFile(name)
		if err != nil {
			return 0, err
		}
		return d.ID(), nil
	}
	id, err := frame.ParseDictionaryID(name)
	if err != nil {
		return 0, fmt.Errorf("%w: there is no file %q, and it is no dictionary id: eight lower-case hexadecimal digits", cli.ErrUsage, name)
	}
	return id, nil
}

// ReadFile reads the dictionary in a file.
func ReadFile(path string) (*frame.Dictionary, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, frame.MaxDictionarySize+1))
	if err != nil {
		return nil, err
	}
	d, err := frame.NewDictionary(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}
