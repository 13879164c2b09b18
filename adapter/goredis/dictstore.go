package goredis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/adapters"
)

var _ dict.Store = (*Store)(nil)

// Read implements [dict.Store].
func (s *Store) Read(ctx context.Context, keys ...string) ([][]byte, error) {
	values := make([][]byte, len(keys))
	cmds, err := s.masters(ctx, "getrange", keys, func(key string) redis.Cmder {
		return redis.NewStringCmd(ctx, "getrange", key, 0, frame.MaxDictionarySize)
	})
	for i, cmd := range cmds {
		if v, err := cmd.(*redis.StringCmd).Bytes(); err == nil && len(v) > 0 {
			values[i] = v
		}
	}
	return values, err
}

// readsReplicas reports whether the client reads from replicas.
func (s *Store) readsReplicas() bool {
	cluster, ok := s.client.(*redis.ClusterClient)
	return ok && cluster.Options().ReadOnly
}

// masters sends a command for each key, also with a client that reads from replicas.
func (s *Store) masters(ctx context.Context, op string, keys []string, command func(key string) redis.Cmder) ([]redis.Cmder, error) {
	if !s.readsReplicas() {
		return s.pipeline(ctx, op, keys, command)
	}
	cluster := s.client.(*redis.ClusterClient)
	cmds := make([]redis.Cmder, len(keys))
	for i, key := range keys {
		client, err := cluster.MasterForKey(ctx, key)
		if err != nil {
			return nil, err
		}
		cmds[i] = command(key)
		err = client.Process(ctx, cmds[i])
		if e, ok := errors.AsType[redis.Error](err); ok && (redis.HasErrorPrefix(e, "MOVED") || redis.HasErrorPrefix(e, "ASK")) {
			cmds[i] = command(key)
			err = cluster.Process(ctx, cmds[i]) // which follows it
		}
		if err != nil && !errors.Is(err, redis.Nil) {
			return nil, &bale.KeyError{Op: op, Key: key, Err: err}
		}
	}
	return cmds, nil
}

// Refresh implements [dict.Store].
func (s *Store) Refresh(ctx context.Context, keys ...string) ([]bool, error) {
	there := make([]bool, len(keys))
	if len(keys) == 0 {
		return there, nil
	}
	cmds, err := s.masters(ctx, "touch", keys, func(key string) redis.Cmder { return redis.NewIntCmd(ctx, "touch", key) })
	for i, cmd := range cmds {
		there[i] = cmd.(*redis.IntCmd).Val() > 0
	}
	return there, err
}

// EvictionPolicy implements [dict.Store].
func (s *Store) EvictionPolicy(ctx context.Context) (policy string, maxmemory int64, err error) {
	var lock sync.Mutex
	var infos []string
	add := func(ctx context.Context, client *redis.Client) error {
		info, err := client.Info(ctx, "memory").Result()
		lock.Lock()
		defer lock.Unlock()
		infos = append(infos, info)
		return err
	}
	switch client := s.client.(type) {
	case *redis.Client:
		err = add(ctx, client)
	case *redis.ClusterClient:
		err = client.ForEachMaster(ctx, add)
	case *redis.Ring:
		err = client.ForEachShard(ctx, add)
	default:
		err = fmt.Errorf("goredis: no eviction policy through a %T: give NewStore the client itself", client)
	}
	if err != nil {
		return "", 0, err
	}
	return adapters.WorstPolicy(infos...)
}

var swap = redis.NewScript(adapters.SwapScript)

// Swap implements [bale.Store] and [dict.Store].
func (s *Store) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	run := func(command, script string) (bool, error) {
		args := []any{command, script, 1, key}
		for _, a := range adapters.SwapArguments(old, value, ttl) {
			args = append(args, a)
		}
		cmd := redis.NewCmd(ctx, args...)
		if err := s.process(ctx, cmd, key); err != nil {
			return false, err
		}
		n, err := cmd.Int()
		return n == 1, err
	}
	return s.script.Run(func(whole bool) (bool, error) {
		if !whole {
			swapped, err := run("evalsha", swap.Hash())
			if !redis.HasErrorPrefix(err, "NOSCRIPT") {
				return swapped, err
			}
		}
		return run("eval", adapters.SwapScript)
	})
}

// Notify implements [dict.Store].
func (s *Store) Notify(ctx context.Context, channel, message string) error {
	return s.process(ctx, redis.NewIntCmd(ctx, "publish", channel, message))
}

// silence is how long nothing may be heard before the server is asked whether it is there, and then
// until it answers.
const silence = 10 * time.Second

// Listen implements [dict.Store]. It returns an error if it cannot subscribe, or not any more.
func (s *Store) Listen(ctx context.Context, channel string, receive func(message string)) error {
	return s.listen(ctx, channel, silence, receive)
}

func (s *Store) listen(ctx context.Context, channel string, silence time.Duration, receive func(message string)) error {
	subscription := s.client.Subscribe(ctx, channel)
	defer subscription.Close()
	defer context.AfterFunc(ctx, func() { subscription.Close() })() // it does not heed ctx
	for asked := false; ; {
		m, err := next(ctx, subscription, silence)
		var timeout net.Error
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &timeout) && timeout.Timeout() && !asked:
			if err := subscription.Ping(ctx); err != nil {
				return err
			}
			asked = true
			continue
		case err != nil:
			return err
		}
		asked = false
		switch m := m.(type) {
		case *redis.Subscription:
			receive("")
		case *redis.Message:
			receive(m.Payload)
		}
	}
}

// next is the next message. go-redis panics where a server sends what no Redis does; in its own
// goroutine, that of a Channel, nobody could recover.
func next(ctx context.Context, s *redis.PubSub, within time.Duration) (message any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("goredis: a message that no Redis sends: %v", p)
		}
	}()
	return s.ReceiveTimeout(ctx, within)
}
