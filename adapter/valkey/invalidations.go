// Code generated from adapter/rueidis by valkey.sh. DO NOT EDIT.

package valkey

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/balekv/bale"
)

const (
	defaultInterval = time.Second
	minInterval     = 10 * time.Millisecond
)

// InvalidationsOptions are the settings of [Invalidations]; the zero value is useful.
type InvalidationsOptions struct {
	// Prefixes select the keys to listen for. None may begin with another: Redis demands this.
	// Defaults to all keys; on a server with many writes, each listener then receives every write.
	Prefixes []string

	// Interval is the time between two pings of a connection, and the timeout of a ping. It is also
	// the pause before a lost connection is replaced, and the time between two looks at a cluster's
	// nodes. Defaults to 1 s; at least 10 ms.
	Interval time.Duration

	// Log receives a message when a connection is lost, and when it is back. Defaults to no log.
	Log *slog.Logger
}

// Invalidations report the keys that any client has changed on the servers. Package
// github.com/balekv/bale/extra/near needs them. They use Redis' client tracking in broadcasting
// mode, over RESP3, with a dedicated connection to each node. On a cluster this includes replicas:
// a replica that becomes a master then loses no changes. The client's user needs HELLO, CLIENT
// TRACKING and PING. Invalidations are safe for concurrent use. Each Listen has connections of its
// own, from the client's pool for blocking commands.
type Invalidations struct {
	client  valkey.Client
	options InvalidationsOptions
	track   []string // the command
}

// Covers reports whether a key begins with one of the Prefixes.
func (i *Invalidations) Covers(key string) bool {
	return len(i.options.Prefixes) == 0 || slices.ContainsFunc(i.options.Prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
}

// NewInvalidations makes Invalidations. The caller closes the client, after the last Listen has
// ended. Listen uses the cluster nodes that the client knows. The client finds a change of nodes
// through its commands, or every valkey.ClientOption.ClusterOption.ShardsRefreshInterval. So give
// it the client of the Store, or one with that interval set. An option out of range is
// bale.ErrInvalid.
func NewInvalidations(client valkey.Client, o InvalidationsOptions) (*Invalidations, error) {
	if o.Interval == 0 {
		o.Interval = defaultInterval
	}
	if o.Interval < minInterval {
		return nil, fmt.Errorf("valkey: %w: Interval is %v, must be at least %v, or 0 for %v", bale.ErrInvalid, o.Interval, minInterval, defaultInterval)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	i := &Invalidations{client, o, []string{"TRACKING", "ON", "BCAST"}}
	for n, p := range o.Prefixes {
		for _, other := range o.Prefixes[:n] {
			if strings.HasPrefix(p, other) || strings.HasPrefix(other, p) {
				return nil, fmt.Errorf("valkey: %w: of the Prefixes %q and %q one begins with the other", bale.ErrInvalid, other, p)
			}
		}
		i.track = append(i.track, "PREFIX", p)
	}
	return i, nil
}

// Listen calls changed with keys that have changed, expired or been deleted. It calls changed with
// nil when any key may have changed. This happens when it starts to listen to a node, after a lost
// connection, and when a node was emptied. Calls come from several goroutines. changed may use the
// keys until it returns, and must not block. Listen replaces lost connections without a limit on
// attempts. It returns the context's error when ctx ends. If a server is unreachable then, it
// returns after the client's dial timeout.
func (i *Invalidations) Listen(ctx context.Context, changed func(keys []string)) error {
	var listeners sync.WaitGroup
	defer listeners.Wait()
	stops := map[string]context.CancelFunc{}
	defer func() {
		for _, stop := range stops {
			stop()
		}
	}()
	again := time.NewTicker(i.options.Interval)
	defer again.Stop()
	for {
		nodes := i.client.Nodes()
		for addr := range nodes {
			if stops[addr] == nil {
				var one context.Context
				one, stops[addr] = context.WithCancel(ctx)
				listeners.Go(func() { i.follow(one, addr, changed) })
			}
		}
		for addr, stop := range stops {
			if nodes[addr] == nil {
				stop()
				delete(stops, addr)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again.C:
		}
	}
}

// follow listens to one node, again and again.
func (i *Invalidations) follow(ctx context.Context, addr string, changed func(keys []string)) {
	log := i.options.Log.With("node", addr)
	failing := false
	for {
		// The client may have another connection pool for the address by now.
		if node := i.client.Nodes()[addr]; node != nil {
			err := i.session(ctx, node, changed, func() {
				if failing {
					log.Info("valkey: listening for invalidations again")
				}
				failing = false
			})
			if ctx.Err() != nil {
				return
			}
			if !failing {
				log.Warn("valkey: not listening for invalidations", "error", err, "again_in", i.options.Interval)
			}
			failing = true
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(i.options.Interval):
		}
	}
}

// session listens to one node until the connection is lost, the node does not answer, or ctx ends.
func (i *Invalidations) session(ctx context.Context, node valkey.Client, changed func(keys []string), listening func()) error {
	// The connection is dialled now, without a context, but within the client's dial timeout.
	conn, _ := node.Dedicate()
	defer conn.Close() // rather than back into the pool, with tracking on

	do := func(args ...string) valkey.ValkeyResult {
		ctx, cancel := context.WithTimeout(ctx, i.options.Interval)
		defer cancel()
		return conn.Do(ctx, conn.B().Arbitrary(args...).Build().Pin())
	}
	hello, err := do("HELLO").AsMap()
	if err != nil {
		return err
	}
	proto := hello["proto"]
	if version, err := proto.AsInt64(); err != nil || version < 3 {
		return errors.New("the connection speaks RESP2, on which servers do not tell of changes: unset valkey.ClientOption.AlwaysRESP2")
	}

	// Once the connection is lost the hook may still be called, and goes on by itself.
	var mu sync.Mutex
	over := false
	var keys []string
	lost := conn.SetOnInvalidations(func(messages []valkey.ValkeyMessage) {
		mu.Lock()
		defer mu.Unlock()
		if over {
			return
		}
		if messages == nil {
			changed(nil)
			return
		}
		keys = slices.Grow(keys[:0], len(messages))
		for _, m := range messages {
			key, err := m.ToString()
			if err != nil { // no server sends such a thing; nothing is missed if it does
				changed(nil)
				return
			}
			keys = append(keys, key)
		}
		changed(keys)
	})
	defer func() {
		mu.Lock()
		defer mu.Unlock()
		over = true
		changed(nil)
	}()

	// A client with client-side caching has switched on tracking in the other mode.
	if err := do("CLIENT", "TRACKING", "OFF").Error(); err != nil {
		return fmt.Errorf("CLIENT TRACKING OFF: %w", err)
	}
	if err := do(append([]string{"CLIENT"}, i.track...)...).Error(); err != nil {
		return fmt.Errorf("CLIENT %s: %w", strings.Join(i.track, " "), err)
	}
	changed(nil) // what was read before may have changed before the server said so
	listening()

	try := time.NewTicker(i.options.Interval)
	defer try.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-lost:
			return fmt.Errorf("connection lost: %w", err)
		case <-try.C:
			if err := do("PING").Error(); err != nil {
				return fmt.Errorf("no answer within %v: %w", i.options.Interval, err)
			}
		}
	}
}
