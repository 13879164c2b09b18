package keyspace

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// Skip reports whether a walk passes a key over. Nil passes none over.
type Skip func(key string) bool

// drop returns the keys that are not passed over, in place.
func (s Skip) drop(keys []string) []string {
	if s == nil {
		return keys
	}
	return slices.DeleteFunc(keys, s)
}

// RegistryKeys skips the keys of registries of dictionaries with these prefixes; "" is the default
// one. Other keys may start with the same prefix: they hold values, and are not skipped.
func RegistryKeys(prefixes ...string) Skip {
	return func(key string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool {
			if prefix == "" {
				prefix = dict.DefaultPrefix
			}
			rest, ok := strings.CutPrefix(key, prefix)
			return ok && isRegistryKey(rest)
		})
	}
}

// isRegistryKey reports whether a registry has such a key, by what follows its prefix.
func isRegistryKey(rest string) bool {
	kind, name, _ := strings.Cut(rest, ":")
	switch kind {
	case "groups", "settings", "server", "runs":
		return rest == kind
	case "group", "lease", "auto", "run":
		return rest != kind
	case "data", "quarantine":
		_, err := frame.ParseDictionaryID(name)
		return err == nil
	}
	return false
}

// mostState is the largest state of a group in bytes.
const mostState = 1 << 20

// RegistryOf returns the prefix of the registry that a value belongs to. It knows a dictionary by
// its id, a group's state by its name, and settings by their fields. A list of groups and a run
// look like values of programs. They are a registry's if the state of the first group, or the list
// with the run, stands beside them. The other keys of a registry are too small to be packed.
func RegistryOf(ctx context.Context, c redis.Cmdable, v Value) (prefix string, ok bool, err error) {
	switch at := max(strings.LastIndex(v.Key, "data:"), strings.LastIndex(v.Key, "quarantine:")); {
	case v.InHash:
		if at = strings.LastIndex(v.Key, "run:"); at >= 0 {
			prefix = v.Key[:at]
			ok, err = c.HExists(ctx, prefix+"runs", v.Key[at+len("run:"):]).Result()
		}
	case at >= 0 && isRegistryKey(v.Key[at:]):
		_, name, _ := strings.Cut(v.Key[at:], ":")
		d, err := frame.NewDictionary(v.Stored)
		return v.Key[:at], err == nil && d.ID().String() == name, nil
	case strings.HasSuffix(v.Key, "settings"):
		var s struct {
			Epoch json.RawMessage `json:"epoch"`
			Grace json.RawMessage `json:"grace_ns"`
		}
		ok = len(v.Stored) <= mostState && json.Unmarshal(v.Stored, &s) == nil && s.Epoch != nil && s.Grace != nil
		return strings.TrimSuffix(v.Key, "settings"), ok, nil
	case strings.HasSuffix(v.Key, "groups"):
		prefix = strings.TrimSuffix(v.Key, "groups")
		var names []string
		if len(v.Stored) <= mostState && json.Unmarshal(v.Stored, &names) == nil &&
			len(names) > 0 && dict.CheckGroup(names[0]) == nil {
			var state string
			state, err = c.GetRange(ctx, prefix+"group:"+names[0], 0, mostState).Result()
			ok = groupOf([]byte(state)) == names[0]
		}
	case strings.Contains(v.Key, "group:"):
		name := groupOf(v.Stored)
		prefix, ok = strings.CutSuffix(v.Key, "group:"+name)
		return prefix, ok && name != "", nil
	}
	if redis.HasErrorPrefix(err, "WRONGTYPE") {
		ok, err = false, nil
	}
	return prefix, ok, err
}

// groupOf is the name of the group whose state a string is, "" if it is none.
func groupOf(stored []byte) string {
	var state struct {
		Group        string          `json:"group"`
		Dictionaries json.RawMessage `json:"dictionaries"`
	}
	if len(stored) > mostState || json.Unmarshal(stored, &state) != nil || state.Dictionaries == nil {
		return ""
	}
	return state.Group
}
