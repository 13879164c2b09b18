package goredis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/adapters"
)

// Store is a [bale.Store] over a go-redis client: standalone, Sentinel, Cluster or Ring. It is safe
// for concurrent use.
type Store struct {
	client redis.UniversalClient

	// oneServer: all keys are on one server, so that commands of many keys need not be
	// split.
	oneServer bool

	// auto is the client if it is one, else nil. It does not heed the context of a queued command.
	auto   *redis.AutoPipeliner
	calls  adapters.Calls // of auto
	script adapters.Script
}

var _ bale.Store = (*Store)(nil)

// NewStore makes a Store. The client stays the caller's, to be closed after the Store's last use.
// It should not have a [Hook] as well: a Cache's values are packed already, and would be escaped.
//
// If the client reads from replicas, writers of package stream and a dict.Registry still ask
// masters.
//
// With a [redis.AutoPipeliner], a call ends with its context, and its command stays until the
// client's own timeouts: later writes of its key wait for it. Set
// AutoPipelineOptions.MaxQueuedCommands: it bounds these commands, except with FullDuplex; by
// default there is no limit. For a context that can end, a write takes a goroutine, and so does a
// read through a blocking AutoPipeliner. The AutoPipeliner's client must not read from replicas,
// and a [dict.Registry] needs the client itself: go-redis does not show the one of an
// AutoPipeliner.
//
// With ClientSideCacheConfig the client keeps stored values past their expiry, until the server
// reports it. Until then, Get of a Cache returns them.
func NewStore(client redis.UniversalClient) *Store {
	_, oneServer := client.(*redis.Client)
	auto, _ := client.(*redis.AutoPipeliner)
	return &Store{client: client, oneServer: oneServer, auto: auto}
}

// process sends a command and waits for its reply. If it returns ctx's error, cmd may still be in
// use: it has its own copies of values, and is not to be read. Later writes of the keys that it
// writes wait for it.
func (s *Store) process(ctx context.Context, cmd redis.Cmder, written ...string) error {
	if s.auto == nil {
		return s.send(ctx, cmd)
	}
	call := adapters.Call{Writes: written, Always: true} // MaxQueuedCommands is the bound
	// WaitContext takes an answer that is there, even if ctx has ended.
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Done() != nil {
		args := cmd.Args()
		for i, a := range args {
			if value, ok := a.([]byte); ok {
				args[i] = bytes.Clone(value)
			}
		}
		if len(written) == 0 && !s.auto.IsBlocking() {
			return s.auto.Submit(ctx, cmd).WaitContext(ctx)
		}
	}
	_, err := adapters.Send(ctx, &s.calls, call, func() (struct{}, error) { return struct{}{}, s.send(ctx, cmd) })
	return err
}

func (s *Store) send(ctx context.Context, cmd redis.Cmder) error {
	if err := s.client.Process(ctx, cmd); err != nil {
		return err
	}
	return cmd.Err() // an asynchronous client (AsyncAutoPipeline) has only queued it: this waits
}

// Get implements [bale.Store].
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	cmd := redis.NewStringCmd(ctx, "get", key)
	if adapters.AsksMasters(ctx) { // in a pipeline, which the client-side cache of go-redis does not answer
		get := func(key string) redis.Cmder { return redis.NewStringCmd(ctx, "get", key) }
		cmds, err := s.masters(ctx, "get", []string{key}, get)
		if err != nil {
			return nil, err
		}
		cmd = cmds[0].(*redis.StringCmd)
	} else if err := s.process(ctx, cmd); err != nil && !errors.Is(err, redis.Nil) {
		return nil, err // cmd may still be in use
	}
	b, err := cmd.Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, bale.ErrNotFound
	}
	return b, err
}

// setArgs is the most that appendSet appends.
const setArgs = 5

// appendSet appends the arguments of SET with the expiry in the same command. Both forms have
// milliseconds, which go-redis' own methods round to seconds for absolute expiries.
func appendSet(args []any, key string, value []byte, e bale.Expiry) []any {
	args = append(args, "set", key, value)
	ms, absolute := e.Millis()
	switch {
	case ms == 0:
		return args
	case absolute:
		return append(args, "pxat", ms)
	}
	return append(args, "px", ms)
}

// Set implements [bale.Store].
func (s *Store) Set(ctx context.Context, key string, value []byte, e bale.Expiry) error {
	return s.process(ctx, redis.NewStatusCmd(ctx, appendSet(make([]any, 0, setArgs), key, value, e)...), key)
}

// GetMany implements [bale.Store]: one MGET where all keys are on one server, else one pipeline,
// which the client splits by slot. If MGET misses some keys, a second round trip (EXISTS) tells
// misses from keys of another type.
func (s *Store) GetMany(ctx context.Context, keys []string) ([][]byte, error) {
	values := make([][]byte, len(keys))
	if len(keys) == 0 {
		return values, nil
	}
	if !s.oneServer {
		return values, s.gets(ctx, keys, func(i int, v string) { values[i] = append([]byte{}, v...) }) // not nil, even if it is empty
	}
	replies, err := s.client.MGet(ctx, keys...).Result()
	if err == nil {
		err = adapters.CheckMany(len(keys), len(replies))
	}
	if err != nil {
		return values, err
	}
	var missing []string
	var at []int
	for i, r := range replies {
		if v, ok := r.(string); ok {
			values[i] = []byte(v)
		} else {
			missing, at = append(missing, keys[i]), append(at, i)
		}
	}
	if len(missing) == 0 {
		return values, nil
	}
	// MGET returns nil for a key of another type, too. EXISTS finds such a key and GET gives its
	// error; GET also replaces EXISTS if the user may not call it. An EXISTS of all keys beside
	// MGET would save this round trip. But it makes a batch of hits some 10% slower, with 10 more
	// allocations, and doubles keyspace_hits. A hit that expires between the two commands would
	// also hide a key of another type.
	if n, err := s.client.Exists(ctx, missing...).Result(); n == 0 && err == nil {
		return values, nil
	}
	return values, keyed("get", missing, s.gets(ctx, missing, func(i int, v string) { values[at[i]] = []byte(v) }))
}

// gets sends a GET for each key.
func (s *Store) gets(ctx context.Context, keys []string, put func(i int, v string)) error {
	cmds, err := s.pipeline(ctx, "get", keys, func(key string) redis.Cmder { return redis.NewStringCmd(ctx, "get", key) })
	for i, cmd := range cmds {
		if cmd.Err() == nil {
			put(i, cmd.(*redis.StringCmd).Val())
		}
	}
	return err
}

// keyed is an error of keys, while others have a value.
func keyed(op string, keys []string, err error) error {
	if _, is := errors.AsType[bale.KeyErrors](err); is || err == nil {
		return err
	}
	failed := make(bale.KeyErrors, len(keys))
	for i, key := range keys {
		failed[i] = &bale.KeyError{Op: op, Key: key, Err: err}
	}
	return failed
}

// SetMany implements [bale.Store].
func (s *Store) SetMany(ctx context.Context, items []bale.Item) error {
	if len(items) == 0 {
		return nil
	}
	keys := make([]string, len(items))
	for i, item := range items {
		keys[i] = item.Key
	}
	if err := s.calls.Wait(ctx, keys...); err != nil {
		return err
	}
	next := 0
	args := make([]any, 0, setArgs*len(items)) // of all commands
	_, err := s.pipeline(ctx, "set", keys, func(string) redis.Cmder {
		item, start := items[next], len(args)
		next++
		args = appendSet(args, item.Key, item.Value, item.Expiry)
		return redis.NewStatusCmd(ctx, args[start:len(args):len(args)]...)
	})
	return err
}

// errNoAnswer is for a command of a pipeline whose connection the client gave up without saying
// why.
var errNoAnswer = errors.New("no answer: the command may or may not have been done")

// Placeholders in commands until a reply replaces them. The client does not mark every command that
// it did not send. A stored value may have the text of noText, so its address counts. No command
// here has a number like noNumber for its reply.
var noText = strings.Clone("no answer")

const noNumber = math.MinInt64

// hold sets what a command of a pipeline holds.
func hold(cmd redis.Cmder, text string, number int64) {
	switch c := cmd.(type) {
	case *redis.StringCmd:
		c.SetVal(text)
	case *redis.StatusCmd:
		c.SetVal(text)
	case *redis.IntCmd:
		c.SetVal(number)
	}
}

// answered reports whether a command has a reply or an error.
func answered(cmd redis.Cmder) bool {
	switch c := cmd.(type) {
	case *redis.StringCmd:
		return c.Err() != nil || unsafe.StringData(c.Val()) != unsafe.StringData(noText)
	case *redis.StatusCmd:
		return c.Err() != nil || unsafe.StringData(c.Val()) != unsafe.StringData(noText)
	case *redis.IntCmd:
		return c.Err() != nil || c.Val() != noNumber
	}
	return true
}

// pipeline sends a command for each key. The error is a KeyErrors if the server refused some, and
// the common cause if none was answered. A key that does not exist is no error.
func (s *Store) pipeline(ctx context.Context, op string, keys []string, command func(key string) redis.Cmder) ([]redis.Cmder, error) {
	cmds := make([]redis.Cmder, len(keys))
	p := s.client.Pipeline()
	for i, key := range keys {
		cmds[i] = command(key)
		hold(cmds[i], noText, noNumber)
		if err := p.Process(ctx, cmds[i]); err != nil {
			return nil, err
		}
	}
	_, cause := p.Exec(ctx)
	if cause == nil || slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() == cause }) {
		cause = errNoAnswer // one command's own error says nothing of the others
	}
	var failed bale.KeyErrors
	some := false
	for i, cmd := range cmds {
		if !answered(cmd) {
			cmd.SetErr(cause)
		}
		err := cmd.Err()
		if err != nil {
			hold(cmd, "", 0)
		}
		if _, refused := errors.AsType[redis.Error](err); err == nil || refused && err != cause {
			some = true
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			failed = append(failed, &bale.KeyError{Op: op, Key: keys[i], Err: err})
		}
	}
	switch {
	case len(failed) == 0:
		return cmds, nil
	case !some:
		return cmds, fmt.Errorf("pipeline: %w", failed[0].Err)
	}
	return cmds, failed
}

// Delete implements [bale.Store]. It unlinks: the memory of large values is freed in the
// background, and not while other callers wait.
func (s *Store) Delete(ctx context.Context, keys []string) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	if err := s.calls.Wait(ctx, keys...); err != nil {
		return 0, err
	}
	if s.oneServer {
		n, err := s.client.Unlink(ctx, keys...).Result()
		return int(n), err
	}
	cmds, err := s.pipeline(ctx, "delete", keys, func(key string) redis.Cmder { return redis.NewIntCmd(ctx, "unlink", key) })
	n := 0
	for _, cmd := range cmds {
		n += int(cmd.(*redis.IntCmd).Val())
	}
	return n, err
}

// Touch implements [bale.Store].
func (s *Store) Touch(ctx context.Context, key string, e bale.Expiry) (bool, error) {
	ms, absolute := e.Millis()
	switch {
	case ms == 0:
		if err := s.calls.Wait(ctx, key); err != nil {
			return false, err
		}
		// PERSIST says 0 for a key that has no expiry as for one that does not exist.
		p := s.client.Pipeline()
		p.Persist(ctx, key)
		exists := p.Exists(ctx, key)
		_, err := p.Exec(ctx)
		return exists.Val() > 0, err
	case absolute:
		return s.touch(ctx, "pexpireat", key, ms)
	}
	return s.touch(ctx, "pexpire", key, ms)
}

func (s *Store) touch(ctx context.Context, command, key string, ms int64) (bool, error) {
	cmd := redis.NewBoolCmd(ctx, command, key, ms)
	if err := s.process(ctx, cmd, key); err != nil {
		return false, err
	}
	return cmd.Result()
}

// PTTL returns the reply of PTTL for each key: the remaining milliseconds, -1 for no expiry, or -2
// for a missing key. Packages near and stream use it.
func (s *Store) PTTL(ctx context.Context, keys []string) ([]int64, error) {
	ttls := make([]int64, len(keys))
	send := s.pipeline
	if adapters.AsksMasters(ctx) {
		send = s.masters
	}
	cmds, err := send(ctx, "pttl", keys, func(key string) redis.Cmder { return redis.NewIntCmd(ctx, "pttl", key) })
	for i, cmd := range cmds {
		ttls[i] = cmd.(*redis.IntCmd).Val()
	}
	return ttls, err
}
