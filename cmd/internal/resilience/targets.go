package resilience

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/origin"
	"github.com/balekv/bale/extra/resilient"
	"github.com/balekv/bale/internal/redisproc"
)

// service is an HTTP server.
type service struct {
	server *origin.Server
	fault  origin.Behaviour
	client http.Client
	g      *resilient.Guard
}

func overHTTP(ctx context.Context, p policy, fault origin.Behaviour) (target, error) {
	server, err := origin.Start(ctx, origin.Net, well)
	if err != nil {
		return nil, err
	}
	s := &service{server: server, fault: fault}
	transport := &http.Transport{MaxIdleConnsPerHost: maxCalls}
	s.client.Transport = transport
	if p.name != none.name {
		guarded, err := resilient.NewTransport(transport, p.o)
		if err != nil {
			return nil, errors.Join(err, server.Close())
		}
		s.client.Transport, s.g = guarded, guarded.Guard(server.Addr())
	}
	return s, nil
}

const size = 256 // bytes of an answer

func (s *service) call(ctx context.Context, id uint64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.server.Addr()+s.server.Path(size, id), nil)
	if err != nil {
		return err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, size+1))
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return origin.Check(body, size, id)
}

func (s *service) guard() *resilient.Guard { return s.g }

func (s *service) asked() (int64, error) {
	stats, err := s.server.Stats()
	return stats.Requests, err
}

func (s *service) fall(context.Context, time.Duration) error { return s.server.Set(s.fault) }

func (s *service) recover() error { return s.server.Set(well) }

func (s *service) close() error {
	s.client.CloseIdleConnections()
	return s.server.Close()
}

const (
	keys     = 200
	loadTime = 2 * time.Millisecond
)

// cached is a cache in Redis before a source of values.
type cached struct {
	server *redisproc.Server
	client *redis.Client
	cache  *bale.Cache[string]
	g      *resilient.Guard
	loads  atomic.Int64
}

// startRedis runs a server for this process alone.
func startRedis(ctx context.Context) (_ *redisproc.Server, password string, err error) {
	password = rand.Text()
	server, err := redisproc.StartWith(ctx, redisproc.Options{Password: password, Unprivileged: true})
	return server, password, err
}

func overRedis(ctx context.Context, p policy) (target, error) {
	server, password, err := startRedis(ctx)
	if err != nil {
		return nil, err
	}
	c := &cached{server: server, client: redis.NewClient(&redis.Options{
		Addr: server.Addr(), Password: password, Dialer: server.Dial, ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true, PoolSize: maxCalls,
	})}
	var store bale.Store = goredis.NewStore(c.client)
	if p.name != none.name {
		p.o.Failed = resilient.StoreFailed
		if c.g, err = resilient.New(p.o); err == nil {
			store = resilient.NewStore(store, c.g)
		}
	}
	if err == nil {
		c.cache, err = bale.New(store, bale.Options[string]{})
	}
	if err != nil {
		return nil, errors.Join(err, c.client.Close(), server.Close())
	}
	return c, nil
}

func (c *cached) call(ctx context.Context, id uint64) error {
	want := "value " + strconv.FormatUint(id%keys, 10)
	got, err := c.cache.GetOrLoad(ctx, strconv.FormatUint(id%keys, 10), func(ctx context.Context) (string, error) {
		c.loads.Add(1)
		if !sleep(ctx, loadTime) {
			return "", ctx.Err()
		}
		return want, nil
	})
	if err == nil && got.Value != want {
		return fmt.Errorf("%w: it is another one", origin.ErrMismatch)
	}
	return err
}

func (c *cached) guard() *resilient.Guard { return c.g }

func (c *cached) asked() (int64, error) { return c.loads.Load(), nil }

func (c *cached) fall(ctx context.Context, length time.Duration) error {
	_, err := c.server.Do(ctx, "CLIENT", "PAUSE", strconv.FormatInt(max(1, length.Milliseconds()), 10), "ALL")
	return err
}

func (c *cached) recover() error { return nil } // the pause ends by itself

func (c *cached) close() error {
	c.cache.Close()
	return errors.Join(c.client.Close(), c.server.Close())
}
