// Package rueidis keeps bale's values and dictionaries through a rueidis client: [Store] for a
// bale.Cache and a dict.Registry.
//
// The client pipelines the commands of all callers and can keep what it read in the process,
// invalidated by the server: see [StoreOptions].CacheTTL. Standalone, Sentinel and Cluster go
// through the client's own types. Redis and Valkey are served alike. For valkey-go, the same client
// under another name, use adapter/valkey.
package rueidis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/adapters"
)

// StoreOptions are the settings of a [Store]; the zero value is useful.
type StoreOptions struct {
	// CacheTTL keeps the results of Get and GetMany in the process, for at most this long
	// (client-side caching, RESP3). When the server reports a change, the value is dropped. The
	// cache keeps packed bytes and unpacks them at each read, so
	// rueidis.ClientOption.CacheSizeEachConn holds more values. The report may arrive a moment
	// after the change. Until then even the program that made the change may see the old value.
	// Writers of package stream do not use the cache.
	// Defaults to 0: no cache.
	CacheTTL time.Duration
}

// Store is a [bale.Store] over a rueidis client. It is safe for concurrent use.
//
// A call ends with its context. The client may have several connections to a server, and takes any
// of them for a command. So a write takes a goroutine if its context can end, and later writes of
// its keys wait for it.
//
// While a connection's queue is full, the client does not heed a context. So a read takes a
// goroutine while its server does not answer, or if 512 calls of the Store are in flight. Other
// commands in the client do not count, and this needs rueidis.ClientOption.RingScaleEachConn at its
// default or above, and ConnWriteTimeout at its default or below. A read that is alone on its
// connection ends with the context's deadline, but ends with its cancellation only if
// AlwaysPipelining is set.
//
// A call may stay in the client after its context has ended, until the server answers or the client
// gives up (ConnWriteTimeout). But it is not sent again, to follow a redirection for example. While
// such calls hold 16 MiB beside what was in flight, further ones wait for their end, also where the
// client caches a value. In a cluster, the reads or writes of 64 slots wait only if there are such
// calls among them. When 128 MiB are held, all wait. A call for many keys takes a goroutine or two
// for each of these parts whose server may hang.
//
// Its commands are pinned. Otherwise the client would reuse a command's memory as soon as its call
// ends. On a connection that breaks, the connection's writer may still read that memory.
type Store struct {
	client  rueidis.Client
	options StoreOptions
	single  bool // all keys are on one server
	calls   adapters.Calls
	script  adapters.Script
}

var _ bale.Store = (*Store)(nil)

// NewStore makes a Store. The client stays the caller's, to be closed after the Store's last use.
//
// If the client reads from replicas (SendToReplicas), writers of package stream and a dict.Registry
// still ask masters. For that SendToReplicas must go by IsReadOnly of a command, not by its name.
func NewStore(client rueidis.Client, o StoreOptions) *Store {
	return &Store{client: client, options: o, single: client.Mode() != rueidis.ClientModeCluster}
}

// Get implements [bale.Store].
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	var r rueidis.RedisResult
	var err error
	switch {
	case adapters.AsksMasters(ctx):
		r, err = s.ask(ctx, s.masterCommand("GET", key))
	case s.options.CacheTTL > 0:
		cached := rueidis.CT(s.client.B().Get().Key(key).Cache().Pin(), s.options.CacheTTL)
		r, err = read(ctx, s, partCached(cached), 1, cached, sendCached)
	default:
		r, err = s.ask(ctx, s.client.B().Get().Key(key).Build().Pin())
	}
	if err != nil {
		return nil, err
	}
	return s.value(r)
}

// read calls send with commands that write nothing, for n keys. send returns an error if a command
// has no answer. Usually the client has room, and the read needs no goroutine.
func read[C, R any](
	ctx context.Context, s *Store, part, n int, commands C,
	send func(context.Context, rueidis.Client, C) (R, error),
) (R, error) {
	if err := ctx.Err(); err != nil {
		var none R
		return none, err
	}
	var r R
	var err error
	if s.calls.Direct(part) {
		r, err = send(ctx, s.client, commands)
		s.calls.Ended(ctx, part, err)
	} else {
		call := adapters.Call{Bytes: n * adapters.CommandSize, Part: part}
		r, err = adapters.Send(ctx, &s.calls, call, func() (R, error) { return send(ctx, s.client, commands) })
	}
	if err == errCached {
		err = nil
	}
	return r, err
}

// errCached is of reads that the client's cache has answered: they say nothing of the server.
var errCached = errors.New("cached")

// ask is read for one command.
func (s *Store) ask(ctx context.Context, command rueidis.Completed) (rueidis.RedisResult, error) {
	return read(ctx, s, part(command), 1, command, sendOne)
}

// askMany is read for commands that have a key each.
func askMany[C any](
	ctx context.Context, s *Store, commands []C, part func(C) int,
	send func(context.Context, rueidis.Client, []C) ([]rueidis.RedisResult, error),
) ([]rueidis.RedisResult, error) {
	return byPart(commands, part, s.calls.ReadsApart, func(p int, commands []C) ([]rueidis.RedisResult, error) {
		replies, err := some(read(ctx, s, p, len(commands), commands, send))
		for i, c := range commands {
			s.calls.NoteRead(ctx, part(c), answerOf(replies, i, err))
		}
		return replies, err
	})
}

// byPart sends commands that have a key each: those that go apart by their parts of a cluster, all
// at once, and the others together. A server that hangs may take the answers of the commands that
// go with its own.
func byPart[C any](
	commands []C, part func(C) int, apart func(part int) bool,
	send func(part int, commands []C) ([]rueidis.RedisResult, error),
) ([]rueidis.RedisResult, error) {
	if len(commands) == 0 {
		return nil, nil
	}
	if !slices.ContainsFunc(commands, func(c C) bool { return apart(part(c)) }) {
		common := part(commands[0])
		if slices.ContainsFunc(commands, func(c C) bool { return part(c) != common }) {
			common = 0
		}
		return send(common, commands)
	}
	places, as := map[int][]int{}, map[int]int{}
	for i, c := range commands {
		p := part(c)
		if _, known := as[p]; !known { // apart may change, and commands of a key stay in order
			as[p] = 0
			if apart(p) {
				as[p] = p
			}
		}
		places[as[p]] = append(places[as[p]], i)
	}
	replies := make([]rueidis.RedisResult, len(commands))
	var wg sync.WaitGroup
	for p, places := range places {
		wg.Go(func() {
			group := make([]C, len(places))
			for i, place := range places {
				group[i] = commands[place]
			}
			answers, err := send(p, group)
			for i, place := range places {
				if answers == nil {
					replies[place] = rueidis.NewErrorResult(err)
				} else {
					replies[place] = answers[i]
				}
			}
		})
	}
	wg.Wait()
	return replies, nil
}

// unanswered returns the error of the first command without an answer, or nil. It is errCached if
// the server answered none.
func unanswered(replies []rueidis.RedisResult) error {
	cached := len(replies) > 0
	for _, r := range replies {
		if err := r.NonRedisError(); err != nil {
			return err
		}
		cached = cached && r.IsCacheHit()
	}
	if cached {
		return errCached
	}
	return nil
}

// answerOf is unanswered for one of the replies, or err if there are none.
func answerOf(replies []rueidis.RedisResult, i int, err error) error {
	if replies == nil {
		return err
	}
	return unanswered(replies[i : i+1])
}

// some are the replies to several commands, if there are any: each has its own error.
func some(replies []rueidis.RedisResult, err error) ([]rueidis.RedisResult, error) {
	if replies != nil {
		return replies, nil
	}
	return nil, err
}

func part(c rueidis.Completed) int { return adapters.Part(c.Slot()) }

func partCached(c rueidis.CacheableTTL) int { return adapters.Part(c.Cmd.Slot()) }

func slot(c rueidis.Completed) int { return int(c.Slot()) }

func slotCached(c rueidis.CacheableTTL) int { return int(c.Cmd.Slot()) }

func sendOne(ctx context.Context, client rueidis.Client, command rueidis.Completed) (rueidis.RedisResult, error) {
	r := client.Do(ctx, command)
	return r, r.NonRedisError()
}

func sendCached(ctx context.Context, client rueidis.Client, c rueidis.CacheableTTL) (rueidis.RedisResult, error) {
	r := client.DoCache(ctx, c.Cmd, c.TTL)
	return r, unanswered([]rueidis.RedisResult{r})
}

// value is that of a reply, as the caller's own.
func (s *Store) value(r rueidis.RedisResult) ([]byte, error) {
	v, err := r.AsBytes()
	switch {
	case rueidis.IsRedisNil(err):
		return nil, bale.ErrNotFound
	case err != nil:
		return nil, err
	case s.options.CacheTTL > 0:
		return append(make([]byte, 0, len(v)), v...), nil // the client keeps that one
	case v == nil:
		return []byte{}, nil
	}
	return v, nil
}

// write sends commands that write the keys. send must not use what belongs to the caller: it goes
// on when ctx ends.
func write[T any](
	ctx context.Context, s *Store, call adapters.Call, send func(ctx context.Context) (T, error),
) (T, error) {
	later := adapters.Left(ctx) // or the client follows redirections and sends again without an end
	call.Bytes += adapters.CommandSize * len(call.Writes)
	return adapters.Send(ctx, &s.calls, call, func() (T, error) { return send(later) })
}

// do is write for one command; bytes is the length of its value.
func (s *Store) do(
	ctx context.Context, command rueidis.Completed, bytes int, keys ...string,
) (rueidis.RedisResult, error) {
	call := adapters.Call{Writes: keys, Bytes: bytes, Part: part(command)}
	r, err := write(ctx, s, call, func(ctx context.Context) (rueidis.RedisResult, error) {
		return sendOne(ctx, s.client, command)
	})
	if err == nil {
		err = r.Error()
	}
	return r, err
}

// doMany is write for commands that have a key each, and perhaps a value after it.
func (s *Store) doMany(ctx context.Context, commands rueidis.Commands) ([]rueidis.RedisResult, error) {
	return byPart(commands, part, s.calls.WritesApart, func(
		p int, commands []rueidis.Completed,
	) ([]rueidis.RedisResult, error) {
		call := adapters.Call{Part: p, Writes: make([]string, len(commands))}
		for i, c := range commands {
			words := c.Commands()
			call.Writes[i] = words[1]
			for _, word := range words[2:] {
				call.Bytes += len(word)
			}
		}
		replies, err := some(write(ctx, s, call, func(ctx context.Context) ([]rueidis.RedisResult, error) {
			return sendMany(ctx, s.client, commands)
		}))
		for i, c := range commands {
			s.calls.NoteWrite(ctx, part(c), answerOf(replies, i, err))
		}
		return replies, err
	})
}

// set is SET with its expiry and a copy of the value.
func (s *Store) set(key string, value []byte, e bale.Expiry) rueidis.Completed {
	command := s.client.B().Set().Key(key).Value(string(value))
	ms, absolute := e.Millis()
	switch {
	case ms == 0:
		return command.Build().Pin()
	case absolute:
		return command.PxatMillisecondsTimestamp(ms).Build().Pin()
	}
	return command.PxMilliseconds(ms).Build().Pin()
}

// Set implements [bale.Store].
func (s *Store) Set(ctx context.Context, key string, value []byte, e bale.Expiry) error {
	_, err := s.do(ctx, s.set(key, value, e), len(value), key)
	return err
}

// GetMany implements [bale.Store]: one MGET where all keys are on one server, else one pipeline for
// each node. If MGET misses some keys, a second round trip (EXISTS) tells misses from keys of
// another type.
func (s *Store) GetMany(ctx context.Context, keys []string) ([][]byte, error) {
	values := make([][]byte, len(keys))
	if len(keys) == 0 {
		return values, nil
	}
	switch {
	case s.options.CacheTTL > 0:
		commands := make([]rueidis.CacheableTTL, len(keys))
		for i, k := range keys {
			commands[i] = rueidis.CT(s.client.B().Get().Key(k).Cache().Pin(), s.options.CacheTTL)
		}
		replies, err := askMany(ctx, s, commands, partCached, sendManyCached)
		if err != nil {
			return values, err
		}
		return values, s.each("get", keys, replies, s.into(values))
	case s.single:
		r, err := read(ctx, s, 0, len(keys), s.client.B().Mget().Key(keys...).Build().Pin(), sendOne)
		if err != nil {
			return values, err
		}
		replies, err := r.ToArray()
		if err == nil {
			err = adapters.CheckMany(len(keys), len(replies))
		}
		if err != nil {
			return values, err
		}
		var missing []string
		var at []int
		for i, r := range replies {
			if v, err := r.AsBytes(); err == nil && !r.IsNil() {
				values[i] = append(make([]byte, 0, len(v)), v...)
			} else {
				missing, at = append(missing, keys[i]), append(at, i)
			}
		}
		if len(missing) == 0 {
			return values, nil
		}
		// MGET returns nil for a key of another type, too, while GET returns an error. So send
		// GET if EXISTS finds one of the missing keys. Send it also if EXISTS fails, because a user
		// may have no right to EXISTS.
		if r, err = read(ctx, s, 0, len(missing), s.client.B().Exists().Key(missing...).Build().Pin(), sendOne); err == nil {
			if n, err := r.AsInt64(); n == 0 && err == nil {
				return values, nil
			}
		}
		found := make([][]byte, len(missing))
		err = s.gets(ctx, missing, found)
		for i, v := range found {
			values[at[i]] = v
		}
		if _, is := errors.AsType[bale.KeyErrors](err); is || err == nil {
			return values, err
		}
		failed := make(bale.KeyErrors, len(missing)) // the others have a value
		for i, key := range missing {
			failed[i] = &bale.KeyError{Op: "get", Key: key, Err: err}
		}
		return values, failed
	}
	return values, s.gets(ctx, keys, values)
}

// gets sends a GET for each key.
func (s *Store) gets(ctx context.Context, keys []string, values [][]byte) error {
	commands := make(rueidis.Commands, len(keys))
	for i, k := range keys {
		commands[i] = s.client.B().Get().Key(k).Build().Pin()
	}
	replies, err := askMany(ctx, s, commands, part, sendMany)
	if err != nil {
		return err
	}
	return s.each("get", keys, replies, s.into(values))
}

// sendMany sends commands that have a key each.
func sendMany(
	ctx context.Context, client rueidis.Client, commands []rueidis.Completed,
) ([]rueidis.RedisResult, error) {
	return despiteGaps(commands, slot, func(c []rueidis.Completed) []rueidis.RedisResult {
		return client.DoMulti(ctx, c...)
	})
}

func sendManyCached(
	ctx context.Context, client rueidis.Client, commands []rueidis.CacheableTTL,
) ([]rueidis.RedisResult, error) {
	return despiteGaps(commands, slotCached, func(c []rueidis.CacheableTTL) []rueidis.RedisResult {
		return client.DoMultiCache(ctx, c...)
	})
}

// despiteGaps sends a pipeline, and returns an error if there is no answer to some. The client
// sends nothing of it while the slot of one command has no node; then each slot is sent by itself.
func despiteGaps[C any](
	commands []C, slot func(C) int, send func([]C) []rueidis.RedisResult,
) ([]rueidis.RedisResult, error) {
	replies := send(commands)
	sent := func(r rueidis.RedisResult) bool { return !errors.Is(r.Error(), rueidis.ErrNoSlot) }
	if !slices.ContainsFunc(replies, sent) {
		always := func(int) bool { return true }
		replies, _ = byPart(commands, slot, always, func(_ int, commands []C) ([]rueidis.RedisResult, error) {
			return send(commands), nil
		})
	}
	return replies, unanswered(replies)
}

// into puts values into a list; one that does not exist leaves its place nil.
func (s *Store) into(values [][]byte) func(i int, r rueidis.RedisResult) error {
	return func(i int, r rueidis.RedisResult) (err error) {
		if values[i], err = s.value(r); errors.Is(err, bale.ErrNotFound) {
			err = nil
		}
		return err
	}
}

// each looks at the replies of a pipeline. If the server refused some, the error is a KeyErrors for
// those; if none was answered, their common cause.
func (s *Store) each(op string, keys []string, replies []rueidis.RedisResult, look func(i int, r rueidis.RedisResult) error) error {
	var failed bale.KeyErrors
	answered := false
	for i, r := range replies {
		err := look(i, r)
		_, refused := rueidis.IsRedisErr(err)
		if err == nil || refused {
			answered = true
		}
		if err != nil {
			failed = append(failed, &bale.KeyError{Op: op, Key: keys[i], Err: err})
		}
	}
	switch {
	case len(failed) == 0:
		return nil
	case !answered:
		return fmt.Errorf("pipeline: %w", failed[0].Err)
	}
	return failed
}

// SetMany implements [bale.Store].
func (s *Store) SetMany(ctx context.Context, items []bale.Item) error {
	if len(items) == 0 {
		return nil
	}
	commands := make(rueidis.Commands, len(items))
	keys := make([]string, len(items))
	for i, item := range items {
		keys[i], commands[i] = item.Key, s.set(item.Key, item.Value, item.Expiry)
	}
	replies, err := s.doMany(ctx, commands)
	if err != nil {
		return err
	}
	return s.each("set", keys, replies, func(_ int, r rueidis.RedisResult) error { return r.Error() })
}

// Delete implements [bale.Store]. It unlinks: the memory of large values is freed in the
// background, and not while other callers wait.
func (s *Store) Delete(ctx context.Context, keys []string) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	if s.single {
		r, err := s.do(ctx, s.client.B().Unlink().Key(keys...).Build().Pin(), 0, keys...)
		if err != nil {
			return 0, err
		}
		n, err := r.AsInt64()
		return int(n), err
	}
	commands := make(rueidis.Commands, len(keys))
	for i, k := range keys {
		commands[i] = s.client.B().Unlink().Key(k).Build().Pin()
	}
	replies, err := s.doMany(ctx, commands)
	if err != nil {
		return 0, err
	}
	deleted := 0
	err = s.each("delete", keys, replies, func(_ int, r rueidis.RedisResult) error {
		n, err := r.AsInt64()
		deleted += int(n)
		return err
	})
	return deleted, err
}

// Touch implements [bale.Store].
func (s *Store) Touch(ctx context.Context, key string, e bale.Expiry) (bool, error) {
	ms, absolute := e.Millis()
	b := s.client.B()
	if ms == 0 {
		// PERSIST says 0 for a key that has no expiry as for one that does not exist. A replica may
		// not have the key yet.
		commands := rueidis.Commands{b.Persist().Key(key).Build().Pin(), s.masterCommand("EXISTS", key)}
		return write(ctx, s, adapters.Call{Writes: []string{key}, Part: part(commands[0])}, func(ctx context.Context) (bool, error) {
			replies := s.client.DoMulti(ctx, commands...)
			if err := replies[0].Error(); err != nil {
				return false, err
			}
			return replies[1].AsBool()
		})
	}
	var command rueidis.Completed
	if absolute {
		command = b.Pexpireat().Key(key).MillisecondsTimestamp(ms).Build().Pin()
	} else {
		command = b.Pexpire().Key(key).Milliseconds(ms).Build().Pin()
	}
	r, err := s.do(ctx, command, 0, key)
	if err != nil {
		return false, err
	}
	return r.AsBool()
}

// PTTL returns the reply of PTTL for each key: the remaining milliseconds, -1 for no expiry, or -2
// for a missing key. Packages near and stream use it.
func (s *Store) PTTL(ctx context.Context, keys []string) ([]int64, error) {
	ttls := make([]int64, len(keys))
	commands := make(rueidis.Commands, len(keys))
	masters := adapters.AsksMasters(ctx)
	for i, k := range keys {
		if masters {
			commands[i] = s.masterCommand("PTTL", k)
		} else {
			commands[i] = s.client.B().Pttl().Key(k).Build().Pin()
		}
	}
	replies, err := askMany(ctx, s, commands, part, sendMany)
	if err != nil {
		return ttls, err
	}
	return ttls, s.each("pttl", keys, replies, func(i int, r rueidis.RedisResult) (err error) {
		ttls[i], err = r.AsInt64()
		return err
	})
}
