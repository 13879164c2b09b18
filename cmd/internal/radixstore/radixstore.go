// Package radixstore stores bale's values through radix, to measure it beside the clients that bale
// has adapters for. [Open] connects, and a [Store] does the rest. radix is dormant. The package
// uses it as it is, and adds only the time-outs, which radix lacks.
//
// Its callers share connections, and one whose context ends may still wait for what others on its
// connection wait for: [Options.Timeout] at most.
package radixstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/mediocregopher/radix/v4"
	"github.com/mediocregopher/radix/v4/resp"
	"github.com/mediocregopher/radix/v4/resp/resp3"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/adapters"
)

// Options say how to connect. The zero Options are radix' own.
type Options struct {
	// Connections are how many there are, all made at once; 4 by default.
	Connections int

	Username, Password string // empty for none
	DB                 int

	// Dial makes connections, with TLS or without; a net.Dialer's by default.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)

	// Timeout bounds three steps: to connect, to wait for an answer, and to write. Default 10 s.
	// When it runs out, the connection is closed with all of its calls, and replaced.
	Timeout time.Duration
}

const defaultTimeout = 10 * time.Second

// Store is a [bale.Store] over a radix client. It is safe for concurrent use.
type Store struct {
	client radix.Client
}

var _ bale.Store = (*Store)(nil)

// Open connects to the server at host:port. The caller closes the Store. When ctx ends so do its
// connections, and all calls that wait for them.
func Open(ctx context.Context, addr string, o Options) (*Store, error) {
	ctx, end := context.WithCancel(ctx)
	connect := &dialer{dial: o.Dial, timeout: cmp.Or(o.Timeout, defaultTimeout), until: ctx}
	if o.Dial == nil {
		connect.dial = new(net.Dialer).DialContext
	}
	settings := radix.Dialer{AuthUser: o.Username, AuthPass: o.Password, NetDialer: connect}
	if o.DB != 0 {
		settings.SelectDB = strconv.Itoa(o.DB)
	}
	pool, err := radix.PoolConfig{Size: o.Connections, Dialer: settings}.New(ctx, "tcp", addr)
	if err != nil {
		end()
		return nil, fmt.Errorf("radix: %w", err)
	}
	return NewStore(client{pool, connect, end}), nil
}

// NewStore makes a Store over a client, which Close closes.
func NewStore(client radix.Client) *Store { return &Store{client} }

// Client is the radix client below.
func (s *Store) Client() radix.Client { return s.client }

// Close closes the client.
func (s *Store) Close() error { return s.client.Close() }

// Get implements [bale.Store].
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	var value []byte
	found := radix.Maybe{Rcv: &value}
	if err := s.client.Do(ctx, radix.Cmd(&found, "GET", key)); err != nil {
		return nil, err
	}
	if found.Null {
		return nil, bale.ErrNotFound
	}
	return value, nil
}

// set are the arguments of SET. radix takes texts alone, which copies the value.
func set(key string, value []byte, e bale.Expiry) []string {
	ms, absolute := e.Millis()
	switch {
	case ms == 0:
		return []string{key, string(value)}
	case absolute:
		return []string{key, string(value), "PXAT", strconv.FormatInt(ms, 10)}
	}
	return []string{key, string(value), "PX", strconv.FormatInt(ms, 10)}
}

// Set implements [bale.Store].
func (s *Store) Set(ctx context.Context, key string, value []byte, e bale.Expiry) error {
	return s.client.Do(ctx, radix.Cmd(nil, "SET", set(key, value, e)...))
}

// GetMany implements [bale.Store], by one MGET. If MGET misses some keys, a second round trip
// (EXISTS) tells misses from keys of another type.
func (s *Store) GetMany(ctx context.Context, keys []string) ([][]byte, error) {
	values := make([][]byte, len(keys))
	if len(keys) == 0 {
		return values, nil
	}
	err := s.client.Do(ctx, radix.Cmd(&values, "MGET", keys...))
	if err == nil {
		err = adapters.CheckMany(len(keys), len(values))
	}
	if err != nil {
		return values, err
	}
	var missing []string
	for i, v := range values {
		if v == nil {
			missing = append(missing, keys[i])
		}
	}
	var n int
	if len(missing) == 0 {
		return values, nil
	}
	if err := s.client.Do(ctx, radix.Cmd(&n, "EXISTS", missing...)); n == 0 && err == nil {
		return values, nil
	}
	var failed bale.KeyErrors // MGET has no value for a key of another type, either; GET says so
	for i, v := range values {
		if v == nil {
			if err := s.client.Do(ctx, radix.Cmd(&values[i], "GET", keys[i])); err != nil {
				failed = append(failed, &bale.KeyError{Op: "get", Key: keys[i], Err: err})
			}
		}
	}
	if len(failed) > 0 {
		return values, failed
	}
	return values, nil
}

// answer is the reply to a command of a pipeline, which fails for itself alone.
type answer struct {
	refused error
}

// UnmarshalRESP implements [resp.Unmarshaler].
func (a *answer) UnmarshalRESP(r resp.BufferedReader, o *resp.Opts) error {
	err := resp3.Unmarshal(r, nil, o)
	if errors.As(err, new(resp3.SimpleError)) || errors.As(err, new(resp3.BlobError)) {
		a.refused, err = err, nil
	}
	return err
}

// SetMany implements [bale.Store], by one pipeline.
func (s *Store) SetMany(ctx context.Context, items []bale.Item) error {
	if len(items) == 0 {
		return nil
	}
	pipeline := radix.NewPipeline()
	answers := make([]answer, len(items))
	for i, item := range items {
		pipeline.Append(radix.Cmd(&answers[i], "SET", set(item.Key, item.Value, item.Expiry)...))
	}
	if err := s.client.Do(ctx, pipeline); err != nil {
		return fmt.Errorf("pipeline: %w", err)
	}
	var failed bale.KeyErrors
	for i, a := range answers {
		if a.refused != nil {
			failed = append(failed, &bale.KeyError{Op: "set", Key: items[i].Key, Err: a.refused})
		}
	}
	if len(failed) > 0 {
		return failed
	}
	return nil
}

// Delete implements [bale.Store]. It unlinks: the memory of large values is freed in the
// background.
func (s *Store) Delete(ctx context.Context, keys []string) (int, error) {
	if len(keys) == 0 {
		return 0, nil
	}
	var n int
	err := s.client.Do(ctx, radix.Cmd(&n, "UNLINK", keys...))
	return n, err
}

// Touch implements [bale.Store].
func (s *Store) Touch(ctx context.Context, key string, e bale.Expiry) (bool, error) {
	ms, absolute := e.Millis()
	command, args := "PEXPIRE", []string{key, strconv.FormatInt(ms, 10)}
	switch {
	case ms == 0:
		// PERSIST answers 0 both for a key without an expiry and for a missing key.
		if err := s.client.Do(ctx, radix.Cmd(nil, "PERSIST", key)); err != nil {
			return false, err
		}
		command, args = "EXISTS", args[:1]
	case absolute:
		command = "PEXPIREAT"
	}
	var n int
	err := s.client.Do(ctx, radix.Cmd(&n, command, args...))
	return n == 1, err
}

var swap = radix.NewEvalScript(adapters.SwapScript)

// Swap implements [bale.Store].
func (s *Store) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error) {
	var n int
	err := s.client.Do(ctx, swap.Cmd(&n, []string{key}, adapters.SwapArguments(old, value, ttl)...))
	return n == 1, err
}
