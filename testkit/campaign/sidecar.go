package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/internal/redisproc"
)

// sidecar is a bale proxy that packs in place of the hook. It runs again when it was killed.
type sidecar struct {
	addr string
	path string
	args []string

	mu    sync.Mutex
	child *process
}

// startSidecar runs a proxy with the settings of the hook, and returns when it serves. It ends with
// the worker.
func startSidecar(ctx context.Context, c *workerConfig, match []string) (*sidecar, error) {
	port, err := redisproc.FreePort()
	if err != nil {
		return nil, err
	}
	s := &sidecar{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), path: c.Sidecar}
	url := "redis://" + c.Addrs[0]
	if link := c.Proxies[c.Addrs[0]]; link != "" {
		url = "redis://" + link
	}
	if c.Servers == "sentinel" {
		url += "?master_name=" + masterName
	}
	s.args = []string{"proxy", "--redis", url, "--listen", s.addr, "--compress", c.Algorithm}
	if c.Dict {
		s.args = append(s.args[:len(s.args)-1], c.Algorithm+"+dict", "--group", groupStrings)
	}
	for _, pattern := range match {
		s.args = append(s.args, "--match", pattern)
	}
	if c.ReadOnly {
		s.args = append(s.args, "--read-only")
	}
	if c.Registry != "" {
		s.args = append(s.args, "--registry", "redis://"+c.Registry)
	}
	if err := s.start(); err != nil {
		return nil, err
	}
	go func() {
		for {
			<-s.running().done
			time.Sleep(20 * time.Millisecond) // the port may be taken for as long
			if err := s.start(); err != nil {
				return // the worker ends, or its operations fail
			}
		}
	}()
	client := redis.NewClient(&redis.Options{Addr: s.addr, MaxRetries: -1})
	defer client.Close()
	for until := time.Now().Add(10 * time.Second); client.Ping(ctx).Err() != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(until) {
			return nil, fmt.Errorf("bale proxy does not serve: %s", s.running().tail)
		}
	}
	return s, nil
}

func (s *sidecar) start() error {
	child, _, _, err := run(s.path, s.args, nil, false)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.child = child
	return nil
}

func (s *sidecar) running() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child
}

// sidecarLoop kills the proxy of the worker that has one, until the context ends.
func (w *walk) sidecarLoop(ctx context.Context, r *rand.Rand) {
	for sleep(ctx, time.Duration(r.Float64()*4*float64(w.c.pause))) {
		for i, s := range w.workers {
			f := s.load()
			if f == nil || f.config.Sidecar == "" {
				continue
			}
			w.event("kill -9 the proxy of worker %d", i)
			if w.send(f, request{Kind: "pkill", Keys: []string{"h:"}, Timeout: 1000}, func() {}, func(reply, instant) {}) {
				w.count("fault proxy-kill", 1)
			}
		}
	}
}
