package redisproc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// clusterSlots is the number of hash slots of every Redis Cluster.
const clusterSlots = 16384

// Cluster is a running Redis Cluster.
type Cluster struct {
	Servers  []*Server // those that the cluster was started with, all masters
	Replicas []*Server // those that AddReplica made

	options Options // of all
}

// A replica has its data at once, and shows it with the first ping.
var clusterArgs = []string{"--cluster-enabled", "yes", "--cluster-node-timeout", "2000", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}

// StartCluster runs a cluster of n servers, the slots spread evenly, and returns when all
// agree on it. The caller closes it.
func StartCluster(ctx context.Context, n int) (*Cluster, error) {
	return StartClusterWith(ctx, n, Options{})
}

// StartClusterWith runs a cluster as [StartCluster] does, of servers as Options say, without a
// password. The caller closes it.
func StartClusterWith(ctx context.Context, n int, o Options) (_ *Cluster, err error) {
	c := &Cluster{options: o}
	c.options.Args = slices.Concat(clusterArgs, o.Args)
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	for range n {
		s, err := StartWith(ctx, c.options)
		if err != nil {
			return nil, err
		}
		c.Servers = append(c.Servers, s)
	}
	for i, s := range c.Servers {
		commands := []string{
			fmt.Sprintf("CLUSTER SET-CONFIG-EPOCH %d", i+1),
			fmt.Sprintf("CLUSTER ADDSLOTSRANGE %d %d", i*clusterSlots/n, (i+1)*clusterSlots/n-1),
			"CLUSTER MEET 127.0.0.1 " + strconv.Itoa(c.Servers[0].port),
		}
		for _, command := range commands {
			if reply, err := s.Do(ctx, strings.Fields(command)...); err != nil || reply != "OK" {
				return nil, fmt.Errorf("redisproc: %s: %s: %w", command, reply, err)
			}
		}
	}
	return c, until(ctx, "the cluster did not form", c.agreed)
}

// until waits for a condition of a cluster.
func until(ctx context.Context, failure string, met func(ctx context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 3*startTimeout)
	defer cancel()
	for !met(ctx) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("redisproc: %s: %w", failure, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// AddReplica runs a replica of a server of the cluster, and returns when it has that one's data and
// all know it. It is closed with the cluster. Further args are settings, as for [Start].
func (c *Cluster) AddReplica(ctx context.Context, of *Server, args ...string) (*Server, error) {
	o := c.options
	o.Args = slices.Concat(o.Args, args)
	s, err := StartWith(ctx, o)
	if err != nil {
		return nil, err
	}
	c.Replicas = append(c.Replicas, s)
	id, err := of.Do(ctx, "CLUSTER", "MYID")
	if err != nil {
		return nil, err
	}
	if _, err := s.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(of.port)); err != nil {
		return nil, err
	}
	// REPLICATE works once the replica has heard of the master.
	if err := until(ctx, "the replica does not know its master", func(ctx context.Context) bool {
		_, err := s.Do(ctx, "CLUSTER", "REPLICATE", id)
		return err == nil
	}); err != nil {
		return nil, err
	}
	return s, until(ctx, "the replica did not get its master's data", func(ctx context.Context) bool {
		info, err := s.Do(ctx, "INFO", "replication")
		if err != nil || !strings.Contains(info, "master_link_status:up") {
			return false
		}
		for _, server := range c.Servers {
			slots, err := server.Do(ctx, "CLUSTER", "SLOTS") // which names replicas that have data
			if err != nil || !strings.Contains(slots, "\n"+strconv.Itoa(s.port)+"\n") {
				return false
			}
		}
		return c.agreed(ctx)
	})
}

// agreed reports whether every server knows an owner of every slot and every other server.
func (c *Cluster) agreed(ctx context.Context) bool {
	all := slices.Concat(c.Servers, c.Replicas)
	for _, s := range all {
		info, err := s.Do(ctx, "CLUSTER", "INFO")
		if err != nil || !strings.Contains(info, "cluster_state:ok") ||
			!strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", len(all))) {
			return false
		}
	}
	return true
}

// Move moves a slot from one of its masters to another, and calls between before each five keys.
func (c *Cluster) Move(ctx context.Context, slot int, from, to *Server, between func()) error {
	number := strconv.Itoa(slot)
	source, err := from.Do(ctx, "CLUSTER", "MYID")
	if err != nil {
		return err
	}
	target, err := to.Do(ctx, "CLUSTER", "MYID")
	if err != nil {
		return err
	}
	if _, err := to.Do(ctx, "CLUSTER", "SETSLOT", number, "IMPORTING", source); err != nil {
		return err
	}
	if _, err := from.Do(ctx, "CLUSTER", "SETSLOT", number, "MIGRATING", target); err != nil {
		return err
	}
	for {
		between()
		keys, err := from.Do(ctx, "CLUSTER", "GETKEYSINSLOT", number, "5")
		if err != nil {
			return err
		}
		if keys == "" {
			break
		}
		move := append([]string{"MIGRATE", "127.0.0.1", strconv.Itoa(to.port), "", "0", "5000", "KEYS"}, strings.Split(keys, "\n")...)
		if _, err := from.Do(ctx, move...); err != nil {
			return err
		}
	}
	for _, s := range []*Server{to, from} { // gossip tells the others
		if _, err := s.Do(ctx, "CLUSTER", "SETSLOT", number, "NODE", target); err != nil {
			return err
		}
	}
	return nil
}

// Addrs are the addresses of Servers.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, s := range c.Servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Close ends all servers.
func (c *Cluster) Close() error {
	var err error
	for _, s := range slices.Concat(c.Replicas, c.Servers) {
		err = errors.Join(err, s.Close())
	}
	return err
}
