package keyspace

import (
	"context"
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
