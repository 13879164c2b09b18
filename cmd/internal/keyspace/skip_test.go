package keyspace

import (
	"slices"
	"testing"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
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

// TestRegistryOf: the keys of any registry are known by name and content, and what stands beside
// them.
func TestRegistryOf(t *testing.T) {
	c := opened(t, redisproc.ForTest(t).URL())
	d, err := frame.NewDictionary([]byte("words of a dictionary"))
	if err != nil {
		t.Fatal(err)
	}
	id, words, state := d.ID().String(), string(d.Bytes()), `{"group":"a:b","dictionaries":[]}`
	must(t, c.Set(t.Context(), "other:group:a:b", state, 0).Err())
	must(t, c.HSet(t.Context(), "other:runs", "nightly", "migrate").Err())
	must(t, c.HSet(t.Context(), "user:group:a:b", "x", 1).Err())
	must(t, c.Set(t.Context(), "user:runs", "x", 0).Err())
	const settings = `{"epoch":3,"grace_ns":60000000000,"servers":[]}`
	for _, v := range []struct {
		key, stored, want string
		inHash            bool
	}{
		{key: "other:data:" + id, stored: words, want: "other:"}, {key: "data:quarantine:" + id, stored: words, want: "data:"},
		{key: "group:group:a:b", stored: state, want: "group:"}, {key: "x:settings", stored: settings, want: "x:"},
		{key: "other:groups", stored: `["a:b","c"]`, want: "other:"}, {key: "other:run:nightly", want: "other:", inHash: true},
	} {
		prefix, ok, err := RegistryOf(t.Context(), c, Value{Key: v.key, Stored: []byte(v.stored), InHash: v.inHash})
		if !ok || prefix != v.want || err != nil {
			t.Errorf("%q: %q, %v, %v", v.key, prefix, ok, err)
		}
	}
	for _, v := range []struct {
		key, stored string
		inHash      bool
	}{
		{key: "other:data:" + id, stored: words + "."}, {key: "other:data:" + id + ":1", stored: words}, {key: "other:group:a", stored: state},
		{key: "group:a", stored: `{"group":"a"}`}, {key: "group:a", stored: "[]"}, {key: "group:", stored: `{"group":"","dictionaries":[]}`}, {},
		{key: "x:settings", stored: `{"grace_ns":1}`}, {key: "x:settings", stored: "[]"}, {key: "other:groups", stored: `["c","d"]`},
		{key: "user:groups", stored: `["a:b"]`}, {key: "user:groups", stored: `[]`}, {key: "user:groups", stored: `[1]`},
		{key: "other:run:weekly", inHash: true}, {key: "user:run:nightly", inHash: true}, {key: "other:settings", stored: settings, inHash: true},
	} {
		if prefix, ok, err := RegistryOf(t.Context(), c, Value{Key: v.key, Stored: []byte(v.stored), InHash: v.inHash}); ok || err != nil {
			t.Errorf("%+v: %q, %v", v, prefix, err)
		}
	}
}
