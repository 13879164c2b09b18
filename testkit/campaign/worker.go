package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	rueidisclient "github.com/redis/rueidis"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/adapter/rueidis"
	"github.com/balekv/bale/batch"
	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/czstd"
	"github.com/balekv/bale/extra/formats/msgpack"
	"github.com/balekv/bale/extra/near"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stream"
)

// workerEnv makes the program a worker, with its config as the value.
const workerEnv = "BALE_CAMPAIGN_WORKER"

// The settings of workers that the model knows of.
const (
	negativeTTL  = 500 * time.Millisecond
	staleIfError = 3 * time.Second
	lockTTL      = 2 * time.Second
	loadTimeout  = time.Second
	nearMaxAge   = 5 * time.Second
	streamLease  = 2 * time.Second
	streamGrace  = time.Second
	streamChunk  = 64 << 10
	groupStrings = "campaign:strings" // the group of the hook's values
	groupCaches  = "campaign:caches"  // the group of all others
	groupStory   = "campaign:story-"  // those that tools alone write with
)

// worker is a process of the fleet.
type worker struct {
	config workerConfig
	plain  redis.UniversalClient // without a hook
	hooked redis.UniversalClient // or through the proxy
	proxy  *sidecar              // nil for the hook
	groups []*dict.Group
	caches map[string]*bale.Cache[Value] // by codec
	loads  *bale.Cache[Value]
	near   *near.Cache[Value]
	loaded *near.Cache[Value] // near, over loads
	batch  *bale.Cache[Value]
	stream *stream.Streams
}

// workerMain is the process of a worker: requests come from stdin, replies go to stdout.
func workerMain(config string) error {
	w := &worker{}
	if err := json.Unmarshal([]byte(config), &w.config); err != nil {
		return err
	}
	if err := w.open(context.Background()); err != nil {
		return err
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	send := func(r reply) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(r) // the driver is gone, and so are we soon
	}
	send(reply{Note: "ready"})
	in := bufio.NewReaderSize(os.Stdin, 1<<16)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil // the driver has gone
		}
		var r request
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.Timeout)*time.Millisecond)
			defer cancel()
			answer := w.do(ctx, &r)
			answer.ID = r.ID
			send(answer)
		}()
	}
}

// dial takes the driver's proxy to an address, where there is one.
func (w *worker) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if proxy := w.config.Proxies[addr]; proxy != "" {
		addr = proxy
	}
	d := net.Dialer{Timeout: time.Second}
	return d.DialContext(ctx, network, addr)
}

// newClient makes a go-redis client. It does not retry: the model would not know of a command that
// is sent twice.
func (w *worker) newClient() redis.UniversalClient {
	timeout := time.Duration(w.config.Timeout) * time.Millisecond
	switch w.config.Servers {
	case "cluster":
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: w.config.Addrs, Dialer: w.dial, MaxRetries: -1, ContextTimeoutEnabled: true,
			ReadTimeout: timeout, WriteTimeout: timeout, DialTimeout: timeout, PoolTimeout: 2 * timeout, PoolSize: 16})
	case "sentinel":
		return redis.NewFailoverClient(&redis.FailoverOptions{MasterName: masterName, SentinelAddrs: w.config.Addrs, Dialer: w.dial, MaxRetries: -1, ContextTimeoutEnabled: true,
			ReadTimeout: timeout, WriteTimeout: timeout, DialTimeout: timeout, PoolTimeout: 2 * timeout, PoolSize: 16})
	}
	return redis.NewClient(&redis.Options{Addr: w.config.Addrs[0], Dialer: w.dial, MaxRetries: -1, ContextTimeoutEnabled: true,
		ReadTimeout: timeout, WriteTimeout: timeout, DialTimeout: timeout, PoolTimeout: 2 * timeout, PoolSize: 16})
}

func (w *worker) newRueidis() (rueidisclient.Client, error) {
	o := rueidisclient.ClientOption{InitAddress: w.config.Addrs, DisableRetry: true, DisableCache: true, ConnWriteTimeout: time.Duration(w.config.Timeout) * time.Millisecond,
		DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return w.dial(ctx, "tcp", addr)
		}}
	o.ClusterOption.ShardsRefreshInterval = time.Second
	switch w.config.Servers {
	case "sentinel":
		o.Sentinel.MasterSet = masterName
	case "single":
		o.ForceSingleClient = true
	}
	return rueidisclient.NewClient(o)
}

// newCacheCodecs are the codecs of caches, by the name that is part of the key.
func newCacheCodecs() map[string]bale.Codec[Value] {
	return map[string]bale.Codec[Value]{"json": codec.JSON[Value]{}, "gob": codec.Gob[Value]{}, "mp": msgpack.Codec[Value]{}}
}

// addHook puts the hook on a client, and on all clients that it makes where the version of bale
// can.
func addHook(client redis.UniversalClient, hook any) error {
	if h, is := hook.(interface {
		Install(redis.UniversalClient) error
	}); is {
		return h.Install(client)
	}
	client.AddHook(hook.(redis.Hook))
	return nil
}

func (w *worker) open(ctx context.Context) error {
	var engine compress.Engine
	if w.config.Engine == "libzstd" {
		engine = czstd.Engine
	}
	setting := compress.Setting{Algorithm: frame.Zstd}
	switch w.config.Algorithm {
	case "s2":
		setting.Algorithm = frame.S2
	case "lz4":
		setting.Algorithm = frame.LZ4
	}
	w.plain = w.newClient()
	store := goredis.NewStore(w.plain)
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))

	packers := map[string]*bale.Packer{}
	grace := time.Duration(w.config.GraceMS) * time.Millisecond
	data := goredis.NewStore(w.plain)
	from := data
	if w.config.Registry != "" {
		from = goredis.NewStore(redis.NewClient(&redis.Options{Addr: w.config.Registry, MaxRetries: -1, ContextTimeoutEnabled: true}))
	}
	for _, name := range []string{groupStrings, groupCaches} {
		registry, err := dict.NewRegistry(from, dict.RegistryOptions{Grace: grace})
		if err != nil {
			return err
		}
		o := dict.GroupOptions{Setting: setting, Engine: engine, ReadOnly: !w.config.Dict, Poll: min(grace, 10*time.Second) / 2, FetchTimeout: time.Second, Log: log, Data: data}
		if w.config.Auto {
			o.Auto = &dict.Auto{
				Interval: 300 * time.Millisecond, MinValues: 60, MinAge: time.Second, SampleBytes: 64 << 10,
				Lease: time.Second, Retry: 3 * time.Second, Decay: 0.95, Train: dict.TrainOptions{MaxSize: 4 << 10},
			}
		}
		group, err := registry.Open(ctx, name, o)
		if err != nil {
			return err
		}
		w.groups = append(w.groups, group)
		if packers[name], err = bale.NewPacker(bale.PackerOptions{Compressors: group}); err != nil {
			return err
		}
	}
	var err error
	match := []string{"h:*", "hh:*", "x:*", "y:*"}
	if w.config.Sidecar != "" {
		if w.proxy, err = startSidecar(ctx, &w.config, match); err != nil {
			return err
		}
		timeout := time.Duration(w.config.Timeout) * time.Millisecond
		w.hooked = redis.NewClient(&redis.Options{Addr: w.proxy.addr, MaxRetries: -1, ContextTimeoutEnabled: true,
			ReadTimeout: timeout, WriteTimeout: timeout, DialTimeout: timeout, PoolTimeout: 2 * timeout, PoolSize: 16})
	} else {
		w.hooked = w.newClient()
		hook, err := goredis.NewHook(packers[groupStrings], goredis.HookOptions{Match: match, ReadOnly: w.config.ReadOnly})
		if err != nil {
			return err
		}
		if err := addHook(w.hooked, hook); err != nil {
			return err
		}
	}
	packer := packers[groupCaches]
	w.caches = map[string]*bale.Cache[Value]{}
	for name, c := range newCacheCodecs() {
		if w.caches[name], err = bale.New(store, bale.Options[Value]{Codec: c, Packer: packer}); err != nil {
			return err
		}
	}
	loadOptions := bale.LoadOptions{NegativeTTL: negativeTTL, StaleIfError: staleIfError, Lock: lockTTL, Timeout: loadTimeout, Patience: 300 * time.Millisecond}
	if w.loads, err = bale.New(store, bale.Options[Value]{Packer: packer, Load: loadOptions}); err != nil {
		return err
	}
	buffered, err := batch.New(store, batch.Options{Wait: true, Delay: 5 * time.Millisecond, Timeout: 2 * time.Second})
	if err != nil {
		return err
	}
	if w.batch, err = bale.New(buffered, bale.Options[Value]{Packer: packer}); err != nil {
		return err
	}
	if w.stream, err = stream.New(store, stream.Options{Chunk: streamChunk, Lease: streamLease, Grace: streamGrace}); err != nil {
		return err
	}
	client, err := w.newRueidis()
	if err != nil {
		return fmt.Errorf("rueidis: %w", err)
	}
	far := rueidis.NewStore(client, rueidis.StoreOptions{})
	for _, n := range []struct {
		prefix string
		load   bale.LoadOptions
		near   **near.Cache[Value]
	}{{"n:", bale.LoadOptions{}, &w.near}, {"nl:", loadOptions, &w.loaded}} {
		said, err := rueidis.NewInvalidations(client, rueidis.InvalidationsOptions{Prefixes: []string{n.prefix}, Interval: 500 * time.Millisecond})
		if err != nil {
			return err
		}
		cache, err := bale.New(far, bale.Options[Value]{Packer: packer, Load: n.load})
		if err != nil {
			return err
		}
		if *n.near, err = near.New(cache, near.Options[Value]{MaxAge: nearMaxAge, Invalidations: said}); err != nil {
			return err
		}
	}
	return nil
}

// fromProxy reports whether an error is the proxy's own, for a value that cannot be unpacked.
func fromProxy(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "BALE a value in scope cannot be unpacked: ")
}

// classOf is what the driver goes by.
func classOf(err error) string {
	if fromProxy(err) {
		for _, c := range []struct {
			err  error
			name string
		}{{bale.ErrCorrupt, "corrupt"}, {bale.ErrUnknownDictionary, "dictionary"}, {bale.ErrUnknownAlgorithm, "algorithm"}} {
			if strings.Contains(err.Error(), c.err.Error()) {
				return c.name
			}
		}
	}
	for _, c := range []struct {
		err  error
		name string
	}{{bale.ErrCorrupt, "corrupt"}, {bale.ErrUnknownDictionary, "dictionary"}, {bale.ErrUnknownAlgorithm, "algorithm"}, {bale.ErrCodec, "codec"}, {goredis.ErrCommand, "command"},
		{context.DeadlineExceeded, "deadline"}, {bale.ErrInvalid, "invalid"}} {
		if errors.Is(err, c.err) {
			return c.name
		}
	}
	return "other"
}

// of makes what was read of a key, and of the error.
func of(key string, v Value, err error) got {
	switch {
	case errors.Is(err, bale.ErrNotFound):
		return got{State: gotNone}
	case err != nil:
		return got{State: gotError, Err: err.Error(), Class: classOf(err)}
	}
	if err := v.check(key); err != nil {
		return got{State: gotBad, N: v.N, Err: err.Error()}
	}
	return got{State: gotValue, N: v.N}
}

// ofText does so for a string.
func ofText(key, s string, err error) got {
	switch {
	case errors.Is(err, redis.Nil):
		return got{State: gotNone}
	case err != nil:
		return got{State: gotError, Err: err.Error(), Class: classOf(err)}
	}
	n, err := checkText(key, []byte(s))
	if err != nil {
		return got{State: gotBad, N: n, Err: err.Error()}
	}
	return got{State: gotValue, N: n}
}

func wrote(err error) done {
	if err == nil {
		return done{OK: true}
	}
	// A server's refusal is certain; any other error may be that of the way back.
	refused := errors.Is(err, goredis.ErrCommand) || errors.Is(err, redis.TxFailedErr)
	for _, p := range []string{"BALE ", "OOM ", "NOPERM ", "READONLY ", "LOADING ", "CLUSTERDOWN ", "WRONGTYPE ", "MISCONF "} {
		var s redis.Error
		refused = refused || errors.As(err, &s) && strings.HasPrefix(s.Error(), p)
	}
	refused = refused && !strings.Contains(err.Error(), "the value is there") // a stream's, after the swap
	return done{Refused: refused, Err: err.Error()}
}

// each gives the outcome of a write of many to each key.
func each(keys []string, err error) []done {
	d := make([]done, len(keys))
	var failed bale.KeyErrors
	some := errors.As(err, &failed)
	for i, key := range keys {
		d[i] = wrote(err)
		if some {
			d[i] = done{OK: true}
			for _, f := range failed {
				if f.Key == key {
					d[i] = wrote(f.Err)
				}
			}
		}
	}
	return d
}

func expiry(ms int64) bale.Expiry {
	if ms == 0 {
		return bale.NoExpiry()
	}
	return bale.TTL(time.Duration(ms) * time.Millisecond)
}

// cacheOf is the cache of a key c:CODEC:NUMBER.
func (w *worker) cacheOf(key string) *bale.Cache[Value] {
	return w.caches[strings.Split(key, ":")[1]]
}

// typed is what bale.Cache and near.Cache have in common.
type typed interface {
	Get(ctx context.Context, key string) (Value, error)
	GetMany(ctx context.Context, keys ...string) (map[string]Value, error)
	Set(ctx context.Context, key string, v Value, e ...bale.Expiry) error
	SetMany(ctx context.Context, values map[string]Value, e ...bale.Expiry) error
	Delete(ctx context.Context, keys ...string) (int, error)
	Touch(ctx context.Context, key string, e ...bale.Expiry) error
	GetOrLoad(ctx context.Context, key string, load func(context.Context) (Value, error), e ...bale.Expiry) (bale.Entry[Value], error)
}

// do carries out a request.
func (w *worker) do(ctx context.Context, r *request) reply {
	var c typed
	switch {
	case strings.HasPrefix(r.Keys[0], "c:"):
		c = w.cacheOf(r.Keys[0])
	case strings.HasPrefix(r.Keys[0], "l:"):
		c = w.loads
	case strings.HasPrefix(r.Keys[0], "n:"):
		c = w.near
	case strings.HasPrefix(r.Keys[0], "nl:"):
		c = w.loaded
	case strings.HasPrefix(r.Keys[0], "b:"):
		c = w.batch
	}
	key := r.Keys[0]
	value := func(i int) Value { return newValue(r.Keys[i], r.N[i], r.Style, r.Size) }
	switch r.Kind {
	case "get":
		v, err := c.Get(ctx, key)
		return reply{Got: []got{of(key, v, err)}}
	case "getmany":
		values, err := c.GetMany(ctx, r.Keys...)
		var failed bale.KeyErrors
		if errors.As(err, &failed) {
			err = nil
		}
		var a reply
		for _, key := range r.Keys {
			v, there := values[key]
			e := err
			if i := slices.IndexFunc(failed, func(f *bale.KeyError) bool { return f.Key == key }); i >= 0 {
				e = failed[i]
			} else if !there && err == nil {
				e = bale.ErrNotFound
			}
			a.Got = append(a.Got, of(key, v, e))
		}
		return a
	case "set":
		return reply{Wrote: []done{wrote(c.Set(ctx, key, value(0), expiry(r.TTL)))}}
	case "setmany":
		values := map[string]Value{}
		for i := range r.Keys {
			values[r.Keys[i]] = value(i)
		}
		return reply{Wrote: each(r.Keys, c.SetMany(ctx, values, expiry(r.TTL)))}
	case "delete":
		_, err := c.Delete(ctx, r.Keys...)
		return reply{Wrote: each(r.Keys, err)}
	case "touch":
		err := c.Touch(ctx, key, expiry(r.TTL))
		if errors.Is(err, bale.ErrNotFound) {
			err = nil
		}
		return reply{Wrote: []done{wrote(err)}}
	case "load":
		return w.load(ctx, c, r, value)
	case "pttl":
		var a reply
		for _, key := range r.Keys {
			d, err := w.plain.Do(ctx, "PTTL", key).Int64()
			g := got{State: gotValue, PTTL: d}
			if err != nil {
				g = got{State: gotError, Err: err.Error()}
			}
			a.Got = append(a.Got, g)
		}
		return a
	case "sput":
		v := value(0)
		_, err := w.stream.PutReader(ctx, key, bytes.NewReader(v.text()), expiry(r.TTL))
		return reply{Wrote: []done{wrote(err)}}
	case "sget":
		return reply{Got: []got{w.readStream(ctx, key)}}
	case "srepair":
		var err error
		if repair := reflect.ValueOf(w.stream).MethodByName("Repair"); repair.IsValid() { // which older versions do not have
			out := repair.Call([]reflect.Value{reflect.ValueOf(ctx), reflect.ValueOf(key)})
			err, _ = out[1].Interface().(error)
		}
		return reply{Wrote: []done{wrote(err)}}
	case "sdelete":
		_, err := w.stream.Delete(ctx, key)
		return reply{Wrote: []done{wrote(err)}}
	}
	return w.doHooked(ctx, r, value)
}

func (w *worker) readStream(ctx context.Context, key string) got {
	in, err := w.stream.GetReader(ctx, key)
	var b []byte
	if err == nil {
		defer in.Close()
		b, err = io.ReadAll(in)
	}
	if err != nil {
		return of(key, Value{}, err)
	}
	return ofText(key, string(b), nil)
}

func (w *worker) load(ctx context.Context, c typed, r *request, value func(int) Value) reply {
	var mu sync.Mutex
	a := reply{}
	load := func(ctx context.Context) (Value, error) {
		mu.Lock()
		a.Loads++
		mu.Unlock()
		switch r.Loader {
		case "fail":
			return Value{}, errLoader
		case "none":
			return Value{}, bale.ErrNotFound
		case "hang":
			<-ctx.Done()
			return Value{}, ctx.Err()
		}
		return value(0), nil
	}
	entry, err := c.GetOrLoad(ctx, r.Keys[0], load, expiry(r.TTL))
	mu.Lock()
	defer mu.Unlock()
	return reply{Loads: a.Loads, Got: []got{of(r.Keys[0], entry.Value, err)}, Stale: entry.Stale}
}

var errLoader = errors.New("the loader fails, as it was asked to")

// doHooked is for a client with the hook.
func (w *worker) doHooked(ctx context.Context, r *request, value func(int) Value) reply {
	key, ttl := r.Keys[0], time.Duration(r.TTL)*time.Millisecond
	text := func(i int) string { v := value(i); return string(v.text()) }
	switch r.Kind {
	case "hget":
		s, err := w.hooked.Get(ctx, key).Result()
		return reply{Got: []got{ofText(key, s, err)}}
	case "hdo":
		s, err := w.hooked.Do(ctx, "get", key).Text()
		return reply{Got: []got{ofText(key, s, err)}}
	case "hset":
		return reply{Wrote: []done{wrote(w.hooked.Set(ctx, key, text(0), ttl).Err())}}
	case "hsetraw": // a program without bale writes
		return reply{Wrote: []done{wrote(w.plain.Set(ctx, key, text(0), ttl).Err())}}
	case "hgetset":
		s, err := w.hooked.SetArgs(ctx, key, text(0), redis.SetArgs{Get: true}).Result()
		werr := err
		if errors.Is(err, redis.Nil) {
			werr = nil
		}
		var ke *bale.KeyError
		if errors.As(err, &ke) || fromProxy(err) { // the old value could not be unpacked; the new one is there
			werr = nil
		}
		return reply{Got: []got{ofText(key, s, err)}, Wrote: []done{wrote(werr)}}
	case "pkill":
		w.proxy.running().kill()
		return reply{}
	case "hdelete":
		return reply{Wrote: each(r.Keys, w.hooked.Del(ctx, key).Err())}
	case "htouch":
		return reply{Wrote: []done{wrote(w.hooked.PExpire(ctx, key, ttl).Err())}}
	case "hmget":
		values, err := w.hooked.MGet(ctx, r.Keys...).Result()
		return reply{Got: ofMany(r.Keys, values, err)}
	case "hpipe", "htx":
		return w.pipeline(ctx, r, text)
	case "hwatch", "hconn":
		return w.watch(ctx, r, text)
	case "hnode":
		return w.onNode(ctx, r)
	case "hhset":
		fields := map[string]any{}
		for i, f := range r.Fields {
			v := newValue(fieldKey(key, f), r.N[i], r.Style, r.Size)
			fields[f] = string(v.text())
		}
		err := w.hooked.HSet(ctx, key, fields).Err()
		return reply{Wrote: each(r.Fields, err)}
	case "hhget":
		m, err := w.hooked.HGetAll(ctx, key).Result()
		var a reply
		for _, f := range r.Fields {
			s, there := m[f]
			e := err
			if err == nil && !there {
				e = redis.Nil
			}
			a.Got = append(a.Got, ofText(fieldKey(key, f), s, e))
		}
		return a
	case "hhmget":
		values, err := w.hooked.HMGet(ctx, key, r.Fields...).Result()
		names := make([]string, len(r.Fields))
		for i, f := range r.Fields {
			names[i] = fieldKey(key, f)
		}
		return reply{Got: ofMany(names, values, err)}
	case "hhdel":
		return reply{Wrote: each(r.Fields, w.hooked.HDel(ctx, key, r.Fields...).Err())}
	}
	return reply{Note: "no such operation: " + r.Kind}
}

// fieldKey is the name of a field's value in the model.
func fieldKey(key, field string) string { return key + "|" + field }

func ofMany(keys []string, values []any, err error) []got {
	g := make([]got, len(keys))
	for i, key := range keys {
		switch {
		case err != nil:
			g[i] = got{State: gotError, Err: err.Error(), Class: classOf(err)}
		case i >= len(values) || values[i] == nil:
			g[i] = got{State: gotNone}
		default:
			s, is := values[i].(string)
			if !is {
				s = fmt.Sprintf("%T", values[i])
			}
			g[i] = ofText(key, s, nil)
		}
	}
	return g
}

// pipeline writes the first key and reads all, in one pipeline or transaction.
func (w *worker) pipeline(ctx context.Context, r *request, text func(int) string) reply {
	pipe := w.hooked.Pipeline
	if r.Kind == "htx" {
		pipe = w.hooked.TxPipeline
	}
	p := pipe()
	set := p.Set(ctx, r.Keys[0], text(0), time.Duration(r.TTL)*time.Millisecond)
	gets := make([]*redis.StringCmd, len(r.Keys)-1)
	for i, key := range r.Keys[1:] {
		gets[i] = p.Get(ctx, key)
	}
	_, err := p.Exec(ctx)
	a := reply{Wrote: []done{wrote(set.Err())}}
	if err != nil && set.Err() == nil && set.Val() != "OK" {
		a.Wrote[0] = wrote(err)
	}
	for i, key := range r.Keys[1:] {
		s, err := gets[i].Result()
		if err == nil && s == "" { // not executed
			err = errors.New("no reply")
		}
		a.Got = append(a.Got, ofText(key, s, err))
	}
	return a
}

// watch reads and replaces a value in a transaction.
func (w *worker) watch(ctx context.Context, r *request, text func(int) string) reply {
	var a reply
	key := r.Keys[0]
	err := w.hooked.Watch(ctx, func(tx *redis.Tx) error {
		s, err := tx.Get(ctx, key).Result()
		a.Got = []got{ofText(key, s, err)}
		if a.Got[0].State != gotValue && a.Got[0].State != gotNone {
			return errNotWritten
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			return p.Set(ctx, key, text(0), time.Duration(r.TTL)*time.Millisecond).Err()
		})
		return err
	}, key)
	if err == nil && len(a.Got) == 0 {
		err = errNotCalled
	}
	d := wrote(err)
	if errors.Is(err, errNotWritten) || len(a.Got) == 0 {
		d.Refused = true // it did not come to the write
	}
	if len(a.Got) == 0 {
		a.Got = []got{{State: gotError, Err: err.Error(), Class: classOf(err)}}
	}
	a.Wrote = []done{d}
	return a
}

var (
	errNotWritten = errors.New("not written, for it could not be read")
	errNotCalled  = errors.New("Watch returned no error and did not call the function") // see the package comment
)

// onNode reads through the client of a node that a cluster's client hands out.
func (w *worker) onNode(ctx context.Context, r *request) reply {
	key := r.Keys[0]
	cluster, is := w.hooked.(*redis.ClusterClient)
	if !is {
		s, err := w.hooked.Get(ctx, key).Result()
		return reply{Got: []got{ofText(key, s, err)}}
	}
	node, err := cluster.MasterForKey(ctx, key)
	if err != nil {
		return reply{Got: []got{ofText(key, "", err)}}
	}
	s, err := node.Get(ctx, key).Result()
	return reply{Got: []got{ofText(key, s, err)}}
}
