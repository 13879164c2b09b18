package lab

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/values"
)

// TestLibraries: what was measured is named once each, by what the command line calls it, with the
// module that it is.
func TestLibraries(t *testing.T) {
	pages, err := dataset.Load(t.Context(), "-", strings.NewReader("<p>\n"), values.Limits{Values: 1, ValueSize: 10})
	if err != nil {
		t.Fatal(err)
	}
	names := "none,s2,s2+dict,s2:best,lz4,gzip,zstd:3,zstd:3/naive"
	var libzstd []outcome.Library
	if engine.Libzstd != "" {
		names += ",zstd/cgo"
		libzstd = append(libzstd, outcome.Library{Name: "zstd/cgo", Module: "libzstd"})
	}
	c := Config{Datasets: []*dataset.Dataset{pages}, Codecs: []string{"json", dataset.Auto, "gob"}}
	for _, name := range strings.Split(names, ",") {
		s, err := engine.ParseForm(name)
		if err != nil {
			t.Fatal(err)
		}
		c.Compress = append(c.Compress, s)
	}
	for _, name := range strings.Split("radix:2,goredis,goredis+auto,rueidis,redigo", ",") {
		s, err := ParseClient(name)
		if err != nil {
			t.Fatal(err)
		}
		c.Clients = append(c.Clients, s)
	}
	want := slices.Concat([]outcome.Library{
		{Name: "json", Module: "encoding/json", Version: runtime.Version()}, {Name: "raw"},
		{Name: "gob", Module: "encoding/gob", Version: runtime.Version(), Note: "each value has its type's description"},
		{Name: "s2", Module: "github.com/klauspost/compress"}, {Name: "lz4", Module: "github.com/pierrec/lz4/v4"}, {Name: "gzip", Module: "github.com/klauspost/compress"},
		{Name: "zstd", Module: "github.com/klauspost/compress", Note: "values with a dictionary use bale's own engine"},
	}, libzstd, []outcome.Library{
		{Name: "radix", Module: "github.com/mediocregopher/radix/v4", Note: "dormant"}, {Name: "goredis", Module: "github.com/redis/go-redis/v9"},
		{Name: "rueidis", Module: "github.com/redis/rueidis"}, {Name: "redigo", Module: "github.com/gomodule/redigo"},
	})
	got := libraries(&c)
	for i, l := range got {
		if l.Version != runtime.Version() {
			got[i].Version = "" // as go.mod has it; a test binary may lack it
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
