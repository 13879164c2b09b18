package redisproc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// clusterSlots is the number of hash slots of every Redis Cluster.
const clusterSlots = 16384

// Cluster is a running Redis Cluster without replicas.
type Cluster struct {
	Servers []*Server
}

// StartCluster runs a cluster of n servers, the slots spread evenly, and returns when all
// agree on it. The caller closes it.
func StartCluster(ctx context.Context, n int) (_ *Cluster, err error) {
	c := &Cluster{}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	for range n {
		s, err := Start(ctx, "--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
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
	ctx, cancel := context.WithTimeout(ctx, 3*startTimeout)
	defer cancel()
	for !c.agreed(ctx) {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("redisproc: the cluster did not form: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return c, nil
}

// agreed reports whether every server knows an owner of every slot and every other server.
func (c *Cluster) agreed(ctx context.Context) bool {
	for _, s := range c.Servers {
		info, err := s.Do(ctx, "CLUSTER", "INFO")
		if err != nil || !strings.Contains(info, "cluster_state:ok") ||
			!strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", len(c.Servers))) {
			return false
		}
	}
	return true
}

// Addrs are the addresses of the servers.
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
	for _, s := range c.Servers {
		err = errors.Join(err, s.Close())
	}
	return err
}
