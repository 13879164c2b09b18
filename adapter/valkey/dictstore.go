// Code generated from adapter/rueidis by valkey.sh. DO NOT EDIT.

package valkey

import (
	"context"
	"strconv"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/adapters"
)

var _ dict.Store = (*Store)(nil)

// Read implements [dict.Store].
func (s *Store) Read(ctx context.Context, keys ...string) ([][]byte, error) {
	values := make([][]byte, len(keys))
	replies, err := s.masters(ctx, "GETRANGE", keys, "0", strconv.Itoa(frame.MaxDictionarySize))
	if err != nil {
		return values, err
	}
	return values, s.each("getrange", keys, replies, func(i int, r valkey.ValkeyResult) error {
		v, err := r.AsBytes()
		if len(v) > 0 {
			values[i] = v
		}
		return err
	})
}

// masters sends a command for each key to its master.
func (s *Store) masters(ctx context.Context, command string, keys []string, args ...string) ([]valkey.ValkeyResult, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	commands := make(valkey.Commands, len(keys))
	for i, k := range keys {
		commands[i] = s.masterCommand(command, k, args...)
	}
	return askMany(ctx, s, commands, part, sendMany)
}

// masterCommand makes a command that the client does not take for one that replicas may answer.
func (s *Store) masterCommand(command, key string, args ...string) valkey.Completed {
	return s.client.B().Arbitrary(command).Keys(key).Args(args...).Build().ToRetryable().Pin()
}

// Refresh implements [dict.Store].
func (s *Store) Refresh(ctx context.Context, keys ...string) ([]bool, error) {
	there := make([]bool, len(keys))
	replies, err := s.masters(ctx, "TOUCH", keys)
	if err != nil {
		return there, err
	}
	return there, s.each("touch", keys, replies, func(i int, r valkey.ValkeyResult) (err error) {
		there[i], err = r.AsBool()
		return err
	})
}

// EvictionPolicy implements [dict.Store]. On a cluster it asks replicas too.
func (s *Store) EvictionPolicy(ctx context.Context) (policy string, maxmemory int64, err error) {
	var infos []string
	for _, node := range s.client.Nodes() {
		r, err := read(ctx, s, 0, 1, node.B().Info().Section("memory").Build().Pin(), func(ctx context.Context, _ valkey.Client, c valkey.Completed) (valkey.ValkeyResult, error) {
			return sendOne(ctx, node, c)
		})
		if err != nil {
			return "", 0, err
		}
		info, err := r.ToString()
		if err != nil {
			return "", 0, err
		}
		infos = append(infos, info)
	}
	return adapters.WorstPolicy(infos...)
}

var (
	swap      = valkey.NewLuaScript(adapters.SwapScript)
	swapWhole = valkey.NewLuaScriptNoSha(adapters.SwapScript)
)

// Swap implements [bale.Store] and [dict.Store].
func (s *Store) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	args := adapters.SwapArguments(old, value, ttl)
	call := adapters.Call{Writes: []string{key}, Bytes: len(old) + len(value), Part: part(s.masterCommand("GET", key))}
	return write(ctx, s, call, func(ctx context.Context) (bool, error) {
		return s.script.Run(func(whole bool) (bool, error) {
			script := swap
			if whole {
				script = swapWhole
			}
			return script.Exec(ctx, s.client, []string{key}, args).AsBool()
		})
	})
}

// Notify implements [dict.Store].
func (s *Store) Notify(ctx context.Context, channel, message string) error {
	r, err := s.ask(ctx, s.client.B().Publish().Channel(channel).Message(message).Build().Pin())
	if err != nil {
		return err
	}
	return r.Error()
}

// Listen implements [dict.Store].
func (s *Store) Listen(ctx context.Context, channel string, receive func(message string)) error {
	return s.client.Receive(valkey.WithOnSubscriptionHook(ctx, func(valkey.PubSubSubscription) { receive("") }),
		s.client.B().Subscribe().Channel(channel).Build().Pin(), func(m valkey.PubSubMessage) { receive(m.Message) })
}
