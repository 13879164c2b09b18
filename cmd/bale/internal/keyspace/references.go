package keyspace

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/frame"
)

// Reference is what values a dictionary was used for.
type Reference struct {
	Values      int64 `json:"values"` // strings, and values within hashes and other types
	PlainBytes  int64 `json:"plain_bytes"`
	StoredBytes int64 `json:"stored_bytes"`
}

// References are the dictionaries that values refer to.
type References struct {
	ByID    map[frame.DictionaryID]*Reference // zero is for frames without a dictionary
	Keys    int64                             // looked at
	Foreign int64                             // values that are not frames
	Streams int64                             // values that are in chunks under other keys, whose manifests ByID has not
}

// headerBytes is enough of a value to read its header.
const headerBytes = frame.MaxHeaderSize

// elements is how many elements of a large value are read at a time.
const elements = 100

// FindReferences looks at every value of every type in every database, but for keys that start with skip (if it is not empty), at its first bytes where Redis can give those alone. A
// value that is moved meanwhile (RENAME, COPY, RESTORE) may be missed.
func FindReferences(ctx context.Context, client redis.UniversalClient, match, skip string, rate int, progress func(keys int64)) (*References, error) {
	r := &References{ByID: map[frame.DictionaryID]*Reference{}}
	look := func(ctx context.Context, node *redis.Client, keys []string) (Next, error) {
		keys = slices.DeleteFunc(keys, func(k string) bool { return skip != "" && strings.HasPrefix(k, skip) })
		if len(keys) == 0 {
			return More, nil
		}
		kinds := make([]*redis.StatusCmd, len(keys))
		starts := make([]*redis.StringCmd, len(keys))
		lengths := make([]*redis.IntCmd, len(keys))
		// GETRANGE of another type than a string is an error, which does no harm.
		if _, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, k := range keys {
				kinds[i], starts[i], lengths[i] = p.Type(ctx, k), p.GetRange(ctx, k, 0, headerBytes-1), p.StrLen(ctx, k)
			}
			return nil
		}); err != nil && !IsReply(err) {
			return Stop, err
		}
		for i, k := range keys {
			r.Keys++
			var err error
			switch kind := kinds[i].Val(); kind {
			case "string":
				if starts[i].Err() == nil {
					r.add(starts[i].Val(), lengths[i].Val())
				}
			case "hash", "list", "set", "zset", "stream":
				err = r.within(ctx, node, kind, k)
			}
			if err != nil && !IsReply(err) {
				return Stop, fmt.Errorf("key %q: %w", k, err)
			}
		}
		if progress != nil {
			progress(r.Keys)
		}
		return More, nil
	}
	databases, closeAll, err := databases(ctx, client)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	for _, db := range databases {
		if err := Walk(ctx, db, match, "", rate, look); err != nil {
			return r, err
		}
	}
	return r, nil
}

// add counts a value by its first bytes.
func (r *References) add(start string, length int64) {
	h, _, ok := frame.Parse([]byte(start))
	if !ok {
		r.Foreign++
		return
	}
	if h.Algorithm == frame.Chunks {
		r.Streams++
		return
	}
	ref := r.ByID[h.DictionaryID]
	if ref == nil {
		ref = &Reference{}
		r.ByID[h.DictionaryID] = ref
	}
	ref.Values++
	ref.PlainBytes += int64(h.Length)
	ref.StoredBytes += length
}

// within looks at the elements of a value.
func (r *References) within(ctx context.Context, node *redis.Client, kind, key string) error {
	add := func(values []string) {
		for _, v := range values {
			r.add(v[:min(len(v), headerBytes)], int64(len(v)))
		}
	}
	switch kind {
	case "list":
		for i := int64(0); ; i += elements {
			values, err := node.LRange(ctx, key, i, i+elements-1).Result()
			if err != nil || len(values) == 0 {
				return err
			}
			add(values)
		}
	case "stream":
		from := "-"
		for {
			messages, err := node.XRangeN(ctx, key, from, "+", elements).Result()
			if err != nil || len(messages) == 0 {
				return err
			}
			for _, m := range messages {
				for _, v := range m.Values {
					if s, ok := v.(string); ok {
						add([]string{s})
					}
				}
				from = "(" + m.ID
			}
		}
	}
	scan := map[string]func(context.Context, string, uint64, string, int64) *redis.ScanCmd{"hash": node.HScan, "set": node.SScan, "zset": node.ZScan}[kind]
	for cursor := uint64(0); ; {
		values, next, err := scan(ctx, key, cursor, "", elements).Result()
		if err != nil {
			return err
		}
		add(values) // of a hash the fields' names, too, which are no frames
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// databases are clients for all databases of a server that hold keys; a cluster has one.
func databases(ctx context.Context, client redis.UniversalClient) (all []redis.UniversalClient, closeAll func(), err error) {
	single, ok := client.(*redis.Client)
	if !ok {
		return []redis.UniversalClient{client}, func() {}, nil
	}
	info, err := single.InfoMap(ctx, "keyspace").Result()
	if err != nil {
		return nil, nil, fmt.Errorf("INFO keyspace: %w", err)
	}
	closeAll = func() {
		for _, c := range all {
			c.Close()
		}
	}
	for name := range info["Keyspace"] {
		var db int
		if _, err := fmt.Sscanf(name, "db%d", &db); err != nil {
			continue
		}
		o := *single.Options()
		o.DB, o.PushNotificationProcessor = db, nil // a processor is one client's: go-redis logs an error for the second
		all = append(all, redis.NewClient(&o))
	}
	return all, closeAll, nil
}

// Count is how many keys there are, in all databases.
func Count(ctx context.Context, client redis.UniversalClient) (int64, error) {
	all, closeAll, err := databases(ctx, client)
	if err != nil {
		return 0, err
	}
	defer closeAll()
	var total int64
	for _, c := range all {
		n, err := c.DBSize(ctx).Result()
		if err != nil {
			return 0, fmt.Errorf("DBSIZE: %w", err)
		}
		total += n
	}
	return total, nil
}
