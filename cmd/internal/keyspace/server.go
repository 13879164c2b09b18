package keyspace

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/redismem"
)

// Info splits the text of INFO into its fields.
func Info(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// infoOf has the fields of a section of INFO, of all, or of those that it has by default. InfoMap
// of go-redis ends the program where a field stands in no section.
func infoOf(ctx context.Context, node *redis.Client, section ...string) (map[string]string, error) {
	text, err := node.Info(ctx, section...).Result()
	if err != nil {
		return nil, err
	}
	return Info(text), nil
}

// TakesWrites is [ErrReplica] if a server says that it is a replica that takes none. The client of
// a cluster writes to masters.
func TakesWrites(ctx context.Context, client redis.UniversalClient) error {
	info, err := replicationOf(ctx, client)
	if info["role"] == "slave" && info["slave_read_only"] != "0" {
		return ErrReplica
	}
	if IsReply(err) {
		return nil
	}
	return err
}

// Unlinked reports a replica that has no link to its master, or has nothing from it yet.
func Unlinked(ctx context.Context, client redis.UniversalClient) bool {
	info, _ := replicationOf(ctx, client)
	return info["role"] == "slave" && info["master_link_status"] != "up"
}

// replicationOf has nothing of a cluster.
func replicationOf(ctx context.Context, client redis.UniversalClient) (map[string]string, error) {
	if node, ok := client.(*redis.Client); ok {
		return infoOf(ctx, node, "replication")
	}
	return nil, nil
}

// callsPrefix begins the names of the fields of section commandstats.
const callsPrefix = "cmdstat_"

// callsIn are how often each command was called, by the fields of INFO.
func callsIn(info map[string]string) map[string]int64 {
	calls := map[string]int64{}
	for field, stats := range info {
		var n int64
		if name, ok := strings.CutPrefix(field, callsPrefix); ok {
			if _, err := fmt.Sscanf(stats, "calls=%d,", &n); err == nil {
				calls[name] = n
			}
		}
	}
	return calls
}

// Version is a server's version by the fields of its INFO: "7.0.15" of Redis, and with its name of
// another server: "Valkey 9.1.2".
func Version(info map[string]string) string {
	if name := info["server_name"]; name != "" && name != "redis" && info[name+"_version"] != "" {
		return strings.ToUpper(name[:1]) + name[1:] + " " + info[name+"_version"]
	}
	if v := info["valkey_version"]; v != "" {
		return "Valkey " + v
	}
	return info["redis_version"]
}

// ServerName is a [Version] with the server's name: "Redis 7.0.15", "Valkey 9.1.2".
func ServerName(version string) string {
	if version == "" || version[0] >= '0' && version[0] <= '9' {
		return strings.TrimSpace("Redis " + version)
	}
	return version
}

// memoryOf is the model of what a server allocates; that of the zero server where it gives no INFO.
func memoryOf(ctx context.Context, node *redis.Client) (*redismem.Server, error) {
	text, err := node.Info(ctx).Result()
	if err != nil && !IsReply(err) {
		return nil, err
	}
	m := redismem.Of(Info(text))
	return &m, nil
}
