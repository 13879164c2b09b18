package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/twemproxy"
	"github.com/balekv/bale/internal/redisproc"
)

// Server is the Redis that is measured through.
type Server struct {
	Options  *redis.Options
	Version  string  // as keyspace.Version has it; "miniredis" when Embedded
	Embedded bool    // miniredis, in this process: latencies and memory say nothing about Redis
	Private  bool    // ours alone: it may be flushed
	Here     bool    // it runs on this machine, so that it and this process share its cores
	Setting  string  // what differs from a server as it comes: "appendonly=always"
	LinkBits float64 // a second, of the link to it; 0 for no limit

	LinkDelay time.Duration // of a round trip over the link

	client  *redis.Client    // for setting up and looking after, not for measuring
	clients []*client        // to measure by
	proxy   *twemproxy.Proxy // nil for none
	called  bool             // the commands that fill takes were called before
	evicted int64            // keys, before the run
	lost    bool             // it answers no more
	close   func() error
}

// OpenServer connects to the server at url, or runs a private redis-server when url is empty, or
// the embedded one where none is installed. The caller closes it.
func OpenServer(ctx context.Context, url string, login keyspace.Login) (*Server, error) {
	if url != "" {
		o, _, err := login.Server(ctx, url)
		if err != nil {
			return nil, err
		}
		login.Guard(o)
		return connect(ctx, &Server{Options: o, close: func() error { return nil }})
	}
	s, err := OpenPrivate(ctx, ServerSetting{})
	if errors.Is(err, redisproc.ErrNotInstalled) {
		return OpenEmbedded(ctx)
	}
	return s, err
}

// OpenEmbedded runs miniredis in this process.
func OpenEmbedded(ctx context.Context) (*Server, error) {
	m, err := miniredis.Run()
	if err != nil {
		return nil, fmt.Errorf("embedded server: %w", err)
	}
	password := rand.Text()
	m.RequireAuth(password)
	return connect(ctx, &Server{
		Options: &redis.Options{Addr: m.Addr(), Password: password}, Private: true, Embedded: true, Here: true, Version: "miniredis",
		close: func() error { m.Close(); return nil },
	})
}

func connect(ctx context.Context, s *Server) (*Server, error) {
	s.Options.DisableIdentity = true // one round trip less for each connection
	o := *s.Options
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, -1, 1 // a server that is gone is to be found out soon,
	o.ReadTimeout, o.WriteTimeout = opTimeout, opTimeout                 // and one behind a full link is not gone
	s.client = redis.NewClient(&o)
	if err := s.client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(keyspace.Unusable(s.Options.Addr, err, o.Username), s.Close())
	}
	if s.Embedded {
		return s, nil
	}
	info, err := s.info(ctx, "server")
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.Here = s.Here || onThisMachine(s.Options.Addr)
	s.Version = keyspace.Version(info)
	return s, nil
}

// onThisMachine reports whether an address is a socket's, or of loopback.
func onThisMachine(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return true
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Close disconnects and ends the server if it is ours.
func (s *Server) Close() error { return errors.Join(s.client.Close(), s.close()) }

// usedMemory returns the memory of the data set in bytes: Redis' allocations, less the memory for
// its clients, whose buffers come and go. Each lookup rehashes one place of the table, and so does
// a background task, which runs late on a busy machine. So usedMemory first looks up enough keys to
// pass each place twice. Then it waits until two readings agree; on a busy server that may never
// happen, and then the last reading counts.
func (s *Server) usedMemory(ctx context.Context, keys []string) (int64, error) {
	names := make([]string, rehashLooks)
	for i := range names {
		names[i] = keys[0]
	}
	for done := 0; done < 4*len(keys); done += rehashLooks {
		if err := s.client.Exists(ctx, names...).Err(); err != nil {
			return 0, fmt.Errorf("EXISTS: %w", err)
		}
	}
	var last int64 = -1
	for range 40 {
		used, err := s.usedNow(ctx)
		if err != nil {
			return 0, err
		}
		if used == last {
			break
		}
		last = used
		sleep(ctx, 10*time.Millisecond)
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
	}
	return last, nil
}

// usedNow is used_memory less what the clients hold, both of one moment: the sum that INFO has of
// the latter is a second old.
func (s *Server) usedNow(ctx context.Context) (int64, error) {
	var memory, clients *redis.StringCmd
	if _, err := s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		memory, clients = p.Info(ctx, "memory"), redis.NewStringCmd(ctx, "CLIENT", "LIST")
		return p.Process(ctx, clients)
	}); err != nil {
		return 0, fmt.Errorf("INFO memory, CLIENT LIST: %w", err)
	}
	info := fields(memory.Val())
	used, err := strconv.ParseInt(info["used_memory"], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("INFO memory: used_memory: %w", err)
	}
	held, known := int64(0), false
	for word := range strings.FieldsSeq(clients.Val()) {
		if bytes, ok := strings.CutPrefix(word, "tot-mem="); ok {
			held, known = held+count(bytes), true
		}
	}
	if !known { // before Redis 6.2
		held = count(info["mem_clients_normal"])
	}
	return used - held, nil
}

const rehashLooks = 1000 // in a command

// examine looks for a reason of a failure at the server. It ends the run where the server answers
// no more; what was measured then stays.
func (r *run) examine(ctx context.Context, s *Server, err error) error {
	if s.Embedded || ctx.Err() != nil {
		return err
	}
	short, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	silence := s.client.Ping(short).Err()
	if _, answered := errors.AsType[redis.Error](silence); silence != nil && !answered && ctx.Err() == nil {
		s.lost = true
		r.end(fmt.Errorf("the server at %s does not answer any more: %w", s.Options.Addr, silence))
		return nil
	}
	if !errors.Is(err, bale.ErrNotFound) && !errors.Is(err, errMissing) {
		return err
	}
	if n := s.evictedKeys(short) - s.evicted; n > 0 {
		return fmt.Errorf("the server evicted %d keys meanwhile: its maxmemory is too small for these values; give it more, or measure fewer --values", n)
	}
	return err
}

// evictedKeys is how many keys the server has evicted since it was started; 0 where that is
// unknown.
func (s *Server) evictedKeys(ctx context.Context) int64 {
	if s.Embedded {
		return 0
	}
	info, err := s.info(ctx, "stats")
	if err != nil {
		return 0
	}
	return count(info["evicted_keys"])
}

// clear removes the keys of a run: everything on a private server.
func (s *Server) clear(ctx context.Context, keys []string) error {
	if s.Private && s.lost {
		return nil
	}
	if s.Private {
		return s.client.FlushAll(ctx).Err()
	}
	const chunk = 500
	for len(keys) > 0 {
		n := min(chunk, len(keys))
		if err := s.client.Unlink(ctx, keys[:n]...).Err(); err != nil {
			return fmt.Errorf("removing the keys of the benchmark: %w", err)
		}
		keys = keys[n:]
	}
	return nil
}
