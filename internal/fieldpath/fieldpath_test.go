package fieldpath

import (
	"strings"
	"testing"
)

// TestPlaces compares with the names joined, for all places of a few odd names.
func TestPlaces(t *testing.T) {
	names := []string{"", "a", "b", "a.b", "ab", "."}
	fields := Paths{"a", "a.b", "b.a.b", "a.b.a", "ab", ".", "..", ".a", "a.", "", "a..b", "a.b.", "b.a"}
	var walk func(p *Place, path []string)
	walk = func(p *Place, path []string) {
		for i, f := range fields {
			want := len(path) > 0 && (f == path[len(path)-1] || strings.Contains(f, ".") && f == strings.Join(path, "."))
			if got := fields.Is(p, i); got != want {
				t.Errorf("%q at %q: %v, want %v", f, path, got, want)
			}
		}
		if len(path) == 4 {
			return
		}
		for _, name := range names {
			var below Place
			fields.Below(&below, p, name)
			walk(&below, append(path[:len(path):len(path)], name))
		}
	}
	walk(&Place{}, nil)
}

// TestNoCopies: a step takes no memory, however deep it is.
func TestNoCopies(t *testing.T) {
	fields := Paths{"user.token", "x"}
	places := make([]Place, 3)
	for i := range places {
		places[i].matched = make([]int, 0, len(fields))
	}
	if n := testing.AllocsPerRun(100, func() {
		fields.Below(&places[1], &places[0], "user")
		fields.Below(&places[2], &places[1], strings.Repeat("t", 0)+"token")
	}); n != 0 || !fields.Any(&places[2]) {
		t.Errorf("%v allocations, %v", n, fields.Any(&places[2]))
	}
}
