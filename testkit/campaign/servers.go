package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/internal/redisproc"
)

// servers are those of a walk.
type servers struct {
	kind     string
	all      []*redisproc.Server // with data
	registry *redisproc.Server   // of dictionaries, if it is apart
	sentinel *redisproc.Server
	cluster  *redisproc.Cluster
	proxies  map[string]*proxy // by the address that they stand for
	client   redis.UniversalClient
}

// toolUser is the user of the tools, whose rights a fault takes away.
const toolUser = "tool"

// startServers starts them. With lossy, a server that does not answer for some seconds is replaced.
// Otherwise it is replaced only on request, because a busy machine may stand still as long.
func startServers(ctx context.Context, kind string, lossy, apart bool) (_ *servers, err error) {
	s := &servers{kind: kind, proxies: map[string]*proxy{}}
	patience := "60000"
	if lossy {
		patience = "3000"
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if apart {
		if s.registry, err = redisproc.Start(ctx); err != nil {
			return s, err
		}
	}
	add := func(server *redisproc.Server, err error) error {
		if err == nil {
			s.all = append(s.all, server)
		}
		return err
	}
	switch kind {
	case "single":
		err = add(redisproc.Start(ctx, "--enable-debug-command", "yes"))
		if err == nil {
			s.client = redis.NewClient(&redis.Options{Addr: s.all[0].Addr()})
		}
	case "cluster":
		if s.cluster, err = redisproc.StartCluster(ctx, 3); err != nil {
			return s, err
		}
		s.all = slices.Clone(s.cluster.Servers)
		for _, master := range s.cluster.Servers {
			if err = add(s.cluster.AddReplica(ctx, master)); err != nil {
				return s, err
			}
		}
		s.each(ctx, "CONFIG", "SET", "cluster-node-timeout", patience)
		s.client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.cluster.Addrs()})
	case "sentinel":
		if err = add(redisproc.Start(ctx)); err != nil {
			return s, err
		}
		host, port, _ := strings.Cut(s.all[0].Addr(), ":")
		for range 2 {
			if err = add(redisproc.Start(ctx, "--replicaof", host+" "+port, "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")); err != nil {
				return s, err
			}
		}
		if s.sentinel, err = redisproc.StartSentinel(ctx, masterName, s.all[0]); err != nil {
			return s, err
		}
		for _, o := range [][2]string{{"down-after-milliseconds", patience}, {"failover-timeout", "3000"}} {
			if _, err = s.sentinel.Do(ctx, "SENTINEL", "SET", masterName, o[0], o[1]); err != nil {
				return s, err
			}
		}
		s.client = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: masterName, SentinelAddrs: []string{s.sentinel.Addr()}})
	default:
		return s, fmt.Errorf("no such servers: %q: single, cluster and sentinel are", kind)
	}
	if err != nil {
		return s, err
	}
	for _, server := range s.all {
		p, err := newProxy(server.Addr())
		if err != nil {
			return s, err
		}
		s.proxies[server.Addr()] = p
	}
	return s, s.heal(ctx)
}

// addrs is what clients are given.
func (s *servers) addrs() []string {
	switch s.kind {
	case "cluster":
		return s.cluster.Addrs()
	case "sentinel":
		return []string{s.sentinel.Addr()}
	}
	return []string{s.all[0].Addr()}
}

// tell sends the servers' addresses to a worker.
func (s *servers) tell(c *workerConfig) {
	c.Addrs, c.Proxies = s.addrs(), map[string]string{}
	for addr, p := range s.proxies {
		c.Proxies[addr] = p.addr()
	}
	if s.registry != nil {
		c.Registry = s.registry.Addr()
	}
}

// master is a server that commands can be sent to: the master, or a server of the cluster that
// answers.
func (s *servers) master(ctx context.Context) *redisproc.Server {
	for _, server := range s.all {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		info, err := server.Do(ctx, "INFO", "replication")
		cancel()
		if err == nil && strings.Contains(info, "role:master") {
			return server
		}
	}
	return s.all[0]
}

// masters are all of them.
func (s *servers) masters(ctx context.Context) []*redisproc.Server {
	var masters []*redisproc.Server
	for _, server := range s.all {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		info, err := server.Do(ctx, "INFO", "replication")
		cancel()
		if err == nil && strings.Contains(info, "role:master") {
			masters = append(masters, server)
		}
	}
	return masters
}

// lasting counts the keys without an expiry; -1 if the master does not answer for some seconds.
func (s *servers) lasting(ctx context.Context) int {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		masters := s.masters(ctx)
		if len(masters) != 1 {
			continue
		}
		soon, cancel := context.WithTimeout(ctx, time.Second)
		info, err := masters[0].Do(soon, "INFO", "keyspace")
		cancel()
		if err == nil {
			return lastingKeys(info)
		}
	}
	return -1
}

// lastingKeys is how many keys without an expiry there are by INFO keyspace.
func lastingKeys(info string) int {
	var keys, expires int
	if _, numbers, there := strings.Cut(info, "db0:"); there {
		_, _ = fmt.Sscanf(numbers, "keys=%d,expires=%d", &keys, &expires)
	}
	return keys - expires
}

// mastersAddrs are the addresses of the masters, in one line.
func (s *servers) mastersAddrs(ctx context.Context) string {
	var a []string
	for _, m := range s.masters(ctx) {
		a = append(a, m.Addr())
	}
	slices.Sort(a)
	return strings.Join(a, " ")
}

// toolArgs are what a tool is given.
func (s *servers) toolArgs(ctx context.Context) []string {
	args := []string{"--redis", "redis://" + toolUser + ":" + toolUser + "@" + s.master(ctx).Addr()}
	if s.registry != nil {
		args = append(args, "--registry", s.registry.URL())
	}
	return args
}

// each sends a command to every server, even after the context's end, and ignores what cannot be
// reached.
func (s *servers) each(ctx context.Context, args ...string) {
	for _, server := range s.all {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		_, _ = server.Do(ctx, args...)
		cancel()
	}
}

// heal ends all faults and waits until the servers serve.
func (s *servers) heal(ctx context.Context) error {
	for _, p := range s.proxies {
		p.delay.Store(0)
	}
	for _, server := range s.all {
		_ = syscall.Kill(server.PID(), syscall.SIGCONT)
	}
	if s.registry != nil {
		_ = syscall.Kill(s.registry.PID(), syscall.SIGCONT)
	}
	deadline := time.Now().Add(2 * time.Minute)
	var why string
	for time.Now().Before(deadline) && ctx.Err() == nil {
		if why = s.ill(ctx); why == "" {
			for _, args := range [][]string{
				{"CONFIG", "SET", "maxmemory", "0"}, {"CONFIG", "SET", "maxmemory-policy", "noeviction"},
				{"CONFIG", "SET", "client-output-buffer-limit", "normal 0 0 0 pubsub 33554432 8388608 60"},
				{"ACL", "SETUSER", toolUser, "on", ">" + toolUser, "resetkeys", "~*", "&*", "+@all"},
			} {
				s.each(ctx, args...)
			}
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.Join(ctx.Err(), fmt.Errorf("the servers do not recover: %s", why))
}

// ill describes the fault of the servers, "" if there is none.
func (s *servers) ill(ctx context.Context) string {
	masters := 0
	for _, server := range s.all {
		soon, cancel := context.WithTimeout(ctx, time.Second)
		info, err := server.Do(soon, "INFO", "replication")
		var cluster string
		if s.kind == "cluster" && err == nil {
			cluster, err = server.Do(soon, "CLUSTER", "INFO")
		}
		cancel()
		switch {
		case err != nil && (strings.Contains(err.Error(), "connection refused")):
			if err := s.restart(ctx, server, false); err != nil {
				return err.Error()
			}
			return "it was down: " + server.Addr()
		case err != nil:
			return err.Error()
		case strings.Contains(info, "role:master"):
			masters++
		case !strings.Contains(info, "master_link_status:up"):
			return "a replica has no link to its master: " + server.Addr()
		}
		if s.kind == "cluster" && !strings.Contains(cluster, "cluster_state:ok") {
			return "the cluster is down for " + server.Addr()
		}
	}
	if want := map[string]int{"single": 1, "cluster": 3, "sentinel": 1}[s.kind]; masters != want {
		return fmt.Sprintf("there are %d masters, not %d", masters, want)
	}
	if s.kind == "sentinel" {
		reply, err := s.sentinel.Do(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName)
		if now := strings.Join(strings.Split(reply, "\n"), ":"); err != nil || now != s.master(ctx).Addr() {
			return fmt.Sprintf("sentinel does not agree: %s %v", now, err)
		}
	}
	return ""
}

// restart kills a server and starts it again, with its last RDB file or without.
func (s *servers) restart(ctx context.Context, server *redisproc.Server, empty bool) error {
	if empty {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		dir, err := server.Do(ctx, "CONFIG", "GET", "dir")
		cancel()
		if err == nil {
			_, dir, _ = strings.Cut(dir, "\n")
			_ = os.Remove(filepath.Join(dir, "dump.rdb"))
		}
	}
	if s.kind == "sentinel" { // it would be a master, without the values, until it is told of the new one
		masters := slices.DeleteFunc(s.masters(ctx), func(m *redisproc.Server) bool { return m == server })
		if len(masters) == 0 {
			return fmt.Errorf("%s is down, and none has taken its place", server.Addr())
		}
		host, port, _ := strings.Cut(masters[0].Addr(), ":")
		return server.Restart(ctx, "--replicaof", host+" "+port)
	}
	return server.Restart(ctx)
}

func (s *servers) close() {
	for _, p := range s.proxies {
		p.close()
	}
	if s.client != nil {
		s.client.Close()
	}
	for _, server := range s.all {
		_ = syscall.Kill(server.PID(), syscall.SIGCONT)
	}
	if s.registry != nil {
		_ = syscall.Kill(s.registry.PID(), syscall.SIGCONT)
		s.registry.Close()
	}
	if s.sentinel != nil {
		s.sentinel.Close()
	}
	if s.cluster != nil {
		s.cluster.Close()
		return
	}
	for _, server := range s.all {
		server.Close()
	}
}

// addresses are those of all servers with data, sorted.
func (s *servers) addresses() []string { return slices.Sorted(maps.Keys(s.proxies)) }
