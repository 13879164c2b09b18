package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/dict"
)

// Store reads keys of a registry at the pace of the command, also those with foreign content.
type Store struct {
	Explaining
	pacer *keyspace.Pacer
	read  int // bytes
}

// Paced is the Store of any Redis.
func (r *Registry) Paced(client redis.UniversalClient) *Store {
	return &Store{Explaining: NewExplaining(client), pacer: r.Pacer}
}

// Read implements [dict.Store].
func (s *Store) Read(ctx context.Context, keys ...string) ([][]byte, error) {
	values, err := s.Explaining.Read(ctx, keys...)
	n := 0
	for _, v := range values {
		n += len(v)
	}
	s.read += n
	if waited := s.pacer.Wait(ctx, nil, 0, n); waited != nil {
		return nil, waited
	}
	return values, err
}

// Explaining is a Store whose errors say which rule the user lacks for a refused command.
type Explaining struct {
	*goredis.Store
	user string
}

// NewExplaining is the Store of a Redis.
func NewExplaining(client redis.UniversalClient) Explaining {
	return Explaining{goredis.NewStore(client), keyspace.UserOf(client)}
}

// Read implements [dict.Store].
func (s Explaining) Read(ctx context.Context, keys ...string) ([][]byte, error) {
	values, err := s.Store.Read(ctx, keys...)
	return values, keyspace.Explain(err, s.user)
}

// Refresh implements [dict.Store].
func (s Explaining) Refresh(ctx context.Context, keys ...string) ([]bool, error) {
	there, err := s.Store.Refresh(ctx, keys...)
	return there, keyspace.Explain(err, s.user)
}

// Swap implements [dict.Store].
func (s Explaining) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	ok, err := s.Store.Swap(ctx, key, old, value, ttl)
	return ok, keyspace.Explain(err, s.user)
}

// Notify implements [dict.Store].
func (s Explaining) Notify(ctx context.Context, channel, message string) error {
	return keyspace.Explain(s.Store.Notify(ctx, channel, message), s.user)
}

// Listen implements [dict.Store].
func (s Explaining) Listen(ctx context.Context, channel string, receive func(message string)) error {
	return keyspace.Explain(s.Store.Listen(ctx, channel, receive), s.user)
}

// EvictionPolicy implements [dict.Store].
func (s Explaining) EvictionPolicy(ctx context.Context) (policy string, maxmemory int64, err error) {
	policy, maxmemory, err = s.Store.EvictionPolicy(ctx)
	return policy, maxmemory, keyspace.Explain(err, s.user)
}

const (
	// statesBytes bounds the states that a command reads: what they have in Redis and take in memory.
	// A group with ten dictionaries has 10 KiB.
	statesBytes = 64 << 20
	entryBytes  = 512 // of a dictionary of a group in memory, and of a group without one

	warnedOf = 10 // groups that a command names
)

// ErrUnread: the states of some groups were not read. Nobody knows which dictionaries these have.
var ErrUnread = errors.New("states of groups cannot be read, and may name any dictionary")

// Unread is a group whose state was not read, and why.
type Unread struct {
	Group string
	Err   error
}

// States reads the states of groups, as many as statesBytes allow. A state that cannot be read
// hides no other.
type States struct {
	Unread []Unread
	*Registry
	bytes int
}

// Foreign reports an error of the content of a registry's key. The server does answer.
func Foreign(err error) bool {
	return errors.Is(err, dict.ErrCorrupt) || errors.Is(err, dict.ErrInvalid) ||
		redis.HasErrorPrefix(err, "WRONGTYPE")
}

// Group is the state of a group that must be there.
func (r *Registry) Group(ctx context.Context, name string) (*dict.State, error) {
	st, err := r.State(ctx, name)
	if err == nil && st.Epoch == 0 {
		return nil, fmt.Errorf("there is no group %q", name)
	}
	return st, err
}

// Read is the state of a group, nil if it was not read.
func (s *States) Read(ctx context.Context, group string) (*dict.State, error) {
	if s.bytes > statesBytes {
		s.Unread = append(s.Unread, Unread{group, fmt.Errorf("key %q is not read: the states before it take more than %d MiB; if they are foreign, delete them and key %q, and programs that follow a group put its own back", s.GroupKey(group), statesBytes>>20, s.Prefix+"groups")})
		return nil, nil
	}
	before := s.Store.read
	st, err := s.State(ctx, group)
	s.bytes += s.Store.read - before + entryBytes
	switch {
	case err == nil:
		s.bytes += entryBytes * len(st.Dictionaries)
		return st, nil
	case !Foreign(err):
		return nil, err
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		err = fmt.Errorf("%w; delete the key, and programs that follow the group put it back", err)
	}
	s.Unread = append(s.Unread, Unread{group, err})
	return nil, nil
}

// All calls each with the states of all groups that can be read.
func (s *States) All(ctx context.Context, each func(*dict.State) error) error {
	names, err := s.Groups(ctx)
	for i := 0; i < len(names) && err == nil; i++ {
		var st *dict.State
		if st, err = s.Read(ctx, names[i]); st != nil {
			err = each(st)
		}
	}
	return err
}

// Whole is ErrUnread if a state was not read.
func (s *States) Whole() error {
	if len(s.Unread) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s (bale dict list names all), the first one: %w", ErrUnread,
		printable.Count(len(s.Unread), "group", "groups"), s.Unread[0].Err)
}

// Warn warns of the states that were not read.
func (s *States) Warn() {
	for _, u := range s.Unread[:min(warnedOf, len(s.Unread))] {
		s.Notef("warning: group %q is left out: %s", u.Group, cli.Message(u.Err))
	}
	if more := len(s.Unread) - warnedOf; more > 0 {
		s.Notef("warning: %d more groups are left out", more)
	}
}
