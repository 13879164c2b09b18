package keyspace

import (
	"slices"
	"testing"
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
