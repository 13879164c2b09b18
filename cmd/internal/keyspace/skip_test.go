package keyspace

import (
	"slices"
	"testing"

	"github.com/balekv/bale/frame"
)

// TestRegistryKeys: only the registry's own keys are skipped, not values that share its prefix.
func TestRegistryKeys(t *testing.T) {
	registry := []string{
		"user:groups", "user:settings", "user:server", "user:group:profile", "user:lease:profile", "user:auto:profile", "user:data:0a1b2c3d",
		"user:quarantine:0a1b2c3d", "bale:dict:groups", "bale:dict:data:0a1b2c3d",
	}
	values := []string{
		"user:1", "user:", "user:groups:1", "user:group", "user:auto", "user:server:1", "user:data:1", "user:data:0a1b2c3d:1",
		"user:quarantine:", "bale:dict:", "groups", "other:groups",
	}
	all := slices.Concat(registry, values)
	if left := RegistryKeys("user:", "").drop(slices.Clone(all)); !slices.Equal(left, values) {
		t.Errorf("left %q, want %q", left, values)
	}
	if left := Skip(nil).drop(slices.Clone(all)); !slices.Equal(left, all) {
		t.Errorf("nil left %q", left)
	}
}

// TestRegistryOf: dictionaries and groups of any registry are known by key and content.
func TestRegistryOf(t *testing.T) {
	d, err := frame.NewDictionary([]byte("words of a dictionary"))
	if err != nil {
		t.Fatal(err)
	}
	id, words, state := d.ID().String(), string(d.Bytes()), `{"group":"a:b","dictionaries":[]}`
	for _, c := range []struct{ key, stored, want string }{
		{"other:data:" + id, words, "other:"}, {"data:quarantine:" + id, words, "data:"}, {"group:group:a:b", state, "group:"},
	} {
		if prefix, ok := RegistryOf(c.key, []byte(c.stored)); !ok || prefix != c.want {
			t.Errorf("%q: %q, %v", c.key, prefix, ok)
		}
	}
	for _, c := range [][2]string{
		{"other:data:" + id, words + "."}, {"other:data:" + id + ":1", words}, {"other:group:a", state}, {"group:a", `{"group":"a"}`},
		{"group:a", "[]"}, {"", ""},
	} {
		if prefix, ok := RegistryOf(c[0], []byte(c[1])); ok {
			t.Errorf("%q: %q", c, prefix)
		}
	}
}
