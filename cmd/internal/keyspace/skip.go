package keyspace

import (
	"encoding/json"
	"slices"
	"strings"

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

// RegistryOf returns the prefix of the registry that a string belongs to. It knows a dictionary by
// its id, and a group's state by its name, both at the end of the key.
func RegistryOf(key string, stored []byte) (prefix string, ok bool) {
	at := max(strings.LastIndex(key, "data:"), strings.LastIndex(key, "quarantine:"))
	if at >= 0 && isRegistryKey(key[at:]) {
		_, name, _ := strings.Cut(key[at:], ":")
		d, err := frame.NewDictionary(stored)
		return key[:at], err == nil && d.ID().String() == name
	}
	var state struct {
		Group        string          `json:"group"`
		Dictionaries json.RawMessage `json:"dictionaries"`
	}
	if !strings.Contains(key, "group:") || len(stored) > mostState || json.Unmarshal(stored, &state) != nil ||
		state.Group == "" || state.Dictionaries == nil {
		return "", false
	}
	return strings.CutSuffix(key, "group:"+state.Group)
}
