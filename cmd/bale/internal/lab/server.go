package lab

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/bale/internal/keyspace"
	"github.com/balekv/bale/redisproc"
)

// Server is the Redis that is measured through.
type Server struct {
	Options  *redis.Options
	Version  string // of Redis; "miniredis" when Embedded
	Embedded bool   // miniredis, in this process: latencies and memory say nothing about Redis
	Private  bool   // ours alone: it may be flushed

	client *redis.Client // for setting up and looking after, not for measuring
	close  func() error
}

// OpenServer connects to the server at url, or runs a private redis-server when url is empty, or the
// embedded one where none is installed. The caller closes it.
func OpenServer(ctx context.Context, url string) (*Server, error) {
	if url != "" {
		o, err := keyspace.ParseURL(url)
		if err != nil {
			return nil, err
		}
		return connect(ctx, &Server{Options: o, close: func() error { return nil }})
	}
	private, err := redisproc.Start(ctx)
	if errors.Is(err, redisproc.ErrNotInstalled) {
		return OpenEmbedded(ctx)
	}
	if err != nil {
		return nil, err
	}
	return connect(ctx, &Server{Options: &redis.Options{Addr: private.Addr()}, Private: true, close: private.Close})
}

// OpenEmbedded runs miniredis in this process.
func OpenEmbedded(ctx context.Context) (*Server, error) {
	m, err := miniredis.Run()
	if err != nil {
		return nil, fmt.Errorf("embedded server: %w", err)
	}
	return connect(ctx, &Server{
		Options: &redis.Options{Addr: m.Addr()}, Private: true, Embedded: true, Version: "miniredis",
		close: func() error { m.Close(); return nil },
	})
}

func connect(ctx context.Context, s *Server) (*Server, error) {
	s.Options.DisableIdentity = true // one round trip less for each connection
	o := *s.Options
	s.client = redis.NewClient(&o)
	if err := s.client.Ping(ctx).Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("no answer from Redis at %s: %w", s.Options.Addr, err), s.Close())
	}
	if s.Embedded {
		return s, nil
	}
	info, err := s.info(ctx, "server")
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.Version = info["redis_version"]
	if v := info["valkey_version"]; v != "" {
		s.Version = "Valkey " + v
	}
	return s, nil
}

// Close disconnects and ends the server if it is ours.
func (s *Server) Close() error { return errors.Join(s.client.Close(), s.close()) }

// info reads a section of INFO.
func (s *Server) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.client.Info(ctx, section).Result()
	if err != nil {
		return nil, fmt.Errorf("INFO %s: %w", section, err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

// usedMemory is the memory of the data set in bytes: what Redis allocated, less what it holds for
// its clients, whose buffers come and go. It waits until two readings agree, for the key table is rehashed in
// the background; a busy server may never come to rest, and then the last reading counts.
func (s *Server) usedMemory(ctx context.Context) (int64, error) {
	var last int64 = -1
	for range 40 {
		info, err := s.info(ctx, "memory")
		if err != nil {
			return 0, err
		}
		used, err := strconv.ParseInt(info["used_memory"], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("INFO memory: used_memory: %w", err)
		}
		if clients, err := strconv.ParseInt(info["mem_clients_normal"], 10, 64); err == nil {
			used -= clients
		}
		if used == last {
			break
		}
		last = used
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return last, nil
}

// clear removes the keys of a run: everything on a private server.
func (s *Server) clear(ctx context.Context, keys []string) error {
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
