package advise

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/rdb"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/cmd/internal/values"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// Source names the values: one of Redis, RDB and Files.
type Source struct {
	*cli.Streams
	Redis    string // URL of a server, or of a node of a cluster
	Login    keyspace.Login
	Registry string // URL of the dictionaries' registry; empty if it is in the same Redis
	Prefix   string // of its keys

	RDB      string // file, which a private server loads
	TrustRDB bool   // load functions, data of modules and unknown types
	DB       int    // database of the file; negative for the one with most keys

	Files    []string // with values; "-" for stdin
	MaxValue int      // bytes of the largest value of a file

	// Yield, if set, is called before a live server is read. See [Yield].
	Yield func()
}

// Validate names the flags whose options are out of range, or do not go together.
func (s *Source) Validate(o *Options) error {
	switch {
	case len(s.Files) > 0 && len(o.Match)+len(o.Groups) > 0:
		return errors.New("--match and --group are for keys, and --data has none")
	case s.DB >= 0 && s.RDB == "":
		return fmt.Errorf("--db is for --rdb; a URL ends in its database: redis://127.0.0.1:6379/%d", s.DB)
	case s.TrustRDB && s.RDB == "":
		return errors.New("--trust-rdb is for --rdb")
	case o.Replicas && s.Redis == "":
		return errors.New("--replicas is for --redis")
	case o.Run.Name != "" && s.Redis == "":
		return errors.New("--run is for --redis")
	case o.Sample < 2:
		return fmt.Errorf("--sample %d, must be at least 2", o.Sample)
	case o.Budget <= 0:
		return fmt.Errorf("--cpu-budget %v, must be more than nothing", o.Budget)
	case o.Price < 0 || math.IsNaN(o.Price) || math.IsInf(o.Price, 0):
		return fmt.Errorf("--price %v, must be an amount of USD", o.Price)
	}
	return o.Run.Validate()
}

// Run estimates the possible saving. When ctx ends it estimates from the keys seen until then, and
// returns ctx's error beside the answer.
func Run(ctx context.Context, s Source, o Options) (a *Advice, err error) {
	if err := s.Validate(&o); err != nil {
		return nil, fmt.Errorf("%w: %w", cli.ErrUsage, err)
	}
	o.Registry = keyspace.Redact(s.Registry)
	if s.Login.User != "" && o.Registry != "" { // the next commands are for another one, who may write
		o.Registry = "***"
	}
	switch {
	case len(s.Files) > 0:
		a, err = s.files(ctx, o)
	case s.RDB != "":
		a, err = s.file(ctx, o)
	default:
		o.Source = keyspace.Redact(s.Redis)
		if o.URL = o.Source; s.Login.User != "" {
			o.URL = "***"
		}
		if s.Yield != nil {
			s.Yield()
		}
		at := registry.Options{Streams: s.Streams, Data: []string{s.Redis}, URL: s.Registry, Prefix: s.Prefix, Login: s.Login, Pace: o.Pace}
		if o.Run.Name != "" {
			a, err = shared(ctx, at, o)
		} else {
			a, err = server(ctx, at, o)
		}
	}
	if a != nil {
		a.Go, a.CPU, a.Cores = runtime.Version(), o.CPU, runtime.NumCPU()
	}
	return a, err
}

// server reads a server.
func server(ctx context.Context, at registry.Options, o Options) (*Advice, error) {
	defer keyspace.Frugal()()
	client, err := at.Login.Open(ctx, at.Data[0])
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if single, ok := client.(*redis.Client); ok {
		o.Database = single.Options().DB
	}
	return ask(ctx, client, at, o)
}

// ask reads what a client reaches.
func ask(ctx context.Context, client redis.UniversalClient, at registry.Options, o Options) (*Advice, error) {
	at.Streams, at.LookOnly = &cli.Streams{Err: io.Discard}, true
	r := &reader{at: at}
	defer r.close()
	o.Reader = r
	return Redis(ctx, client, o)
}

// reader is a Reader by a registry, to which it connects when it is first used.
type reader struct {
	at       registry.Options
	opened   bool
	err      error
	registry *registry.Registry
	packer   *bale.Packer
}

func (r *reader) open(ctx context.Context) error {
	if r.opened {
		return r.err
	}
	r.opened = true
	if r.registry, r.err = registry.Open(ctx, r.at); r.err == nil {
		r.packer, r.err = r.registry.Packer(&compress.Set{}, bale.PackerOptions{MaxSize: packedMax})
	}
	return r.err
}

// Unpack implements Reader. A registry that does not answer is not asked again: there may be
// thousands of values.
func (r *reader) Unpack(ctx context.Context, stored []byte) ([]byte, error) {
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	v, err := r.packer.Unpack(ctx, nil, stored)
	if errors.Is(err, registry.ErrUnreachable) {
		r.err = fmt.Errorf("%w: it did not answer before, and was not asked again", registry.ErrUnreachable)
	}
	return v, err
}

func (r *reader) Read(ctx context.Context, id frame.DictionaryID) (*dict.Dictionary, error) {
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	return r.registry.Read(ctx, id)
}

func (r *reader) Group(ctx context.Context, id frame.DictionaryID) (found *dict.State, err error) {
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	states := registry.States{Registry: r.registry}
	err = states.All(ctx, func(st *dict.State) error {
		if st.Find(id) != nil && (found == nil || st.Current == id) {
			found = st
		}
		return nil
	})
	return found, err
}

func (r *reader) close() {
	if r.registry != nil {
		_ = r.registry.Close() // of a connection that was only read from
	}
}

// file reads an RDB file through a private server, which nobody else uses.
func (s *Source) file(ctx context.Context, o Options) (*Advice, error) {
	o.first = loading
	progress := o.progress(loading)
	loaded, err := rdb.Load(ctx, s.RDB, rdb.Options{Trust: s.TrustRDB, Progress: func(part float64) {
		if progress != nil {
			progress(int(1000*part), 1000, "loading "+filepath.Base(s.RDB))
		}
	}})
	if err != nil {
		return nil, err
	}
	defer loaded.Close()
	largest := rdb.Database{Number: max(0, s.DB)}
	for _, d := range loaded.Databases {
		if s.DB < 0 && d.Keys > largest.Keys {
			largest = d
		}
	}
	// --user and the pace are for the registry: the private server has its own user.
	address := strings.Replace(loaded.URL[:strings.LastIndexByte(loaded.URL, '/')], "//:", "//default:", 1)
	at := registry.Options{
		Data: []string{fmt.Sprintf("%s/%d", address, largest.Number)},
		URL:  s.Registry, Prefix: s.Prefix, Login: s.Login, Pace: o.Pace,
	}
	o.Source, o.Private, o.Pace = s.RDB, true, keyspace.Pace{}
	a, err := server(ctx, at, o)
	if a == nil {
		return nil, err
	}
	a.Warnings = append(a.Warnings, loaded.Warnings...)
	if loaded.Expired > 0 {
		a.warn("%d keys of the file had expired since it was written, and are not counted.",
			loaded.Expired)
	}
	for _, d := range loaded.Databases {
		if d.Number != largest.Number {
			a.warn("Database %d of the file holds %d keys more: --db %[1]d.", d.Number, d.Keys)
		}
	}
	return a, err
}

// files reads files of values.
func (s *Source) files(ctx context.Context, o Options) (*Advice, error) {
	var sets []Set
	for _, path := range s.Files {
		d, err := values.Load(ctx, path, s.In,
			values.Limits{Values: o.Sample, ValueSize: s.MaxValue, Seed: o.Seed})
		if err != nil {
			return nil, err
		}
		sets = append(sets, Set{Name: d.Name, File: path, Values: d.Values, Total: int64(d.Total)})
	}
	o.Source = strings.Join(s.Files, ", ")
	return Values(ctx, sets, o)
}
