package goredis

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// transaction follows a transaction by hand: MULTI, commands and EXEC, each sent as a command of
// its own on one Conn or Tx, or all in one pipeline. The reply of EXEC names no keys, and the
// queued commands do. Commands that it cannot see are missing, and then there are more replies than
// commands.
type transaction struct {
	on     atomic.Bool // since MULTI
	mu     sync.Mutex
	queued []queued
}

// queued is a command that EXEC executes.
type queued struct {
	call
	args []any
}

// follow looks at a command that has its reply, and returns the queued ones for EXEC. A nil
// transaction has none.
func (t *transaction) follow(cmd redis.Cmder, c call) (all []queued) {
	if t == nil {
		return nil
	}
	name := cmd.Name()
	if !t.on.Load() && name != "multi" {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch name {
	case "multi":
		if cmd.Err() == nil {
			t.on.Store(true)
			t.queued = nil
		}
	case "exec", "discard", "reset":
		all, t.queued = t.queued, nil
		t.on.Store(false)
	default:
		if isQueued(cmd) {
			t.queued = append(t.queued, queued{c, slices.Clone(cmd.Args())})
		}
	}
	return all
}

// isQueued reports a command that waits for EXEC.
func isQueued(cmd redis.Cmder) bool {
	const reply = "QUEUED"
	switch cmd := cmd.(type) {
	case *redis.Cmd:
		return cmd.Val() == reply
	case *redis.StatusCmd:
		return cmd.Val() == reply
	case *redis.StringCmd:
		return cmd.Val() == reply
	}
	return false
}
