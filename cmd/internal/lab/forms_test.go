package lab

import (
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/outcome"
)

// TestForms takes values through a real Redis in each way to call a compressor. All forms store
// about the same bytes, and the allocations show the encoders that are made anew for each value.
func TestForms(t *testing.T) {
	server := realServer(t)
	c := config(t)
	values := c.Datasets[0]
	for range 4 { // fewer, for the sake of time
		values, _ = values.Halves()
	}
	c.Datasets, c.Concurrency = []*dataset.Dataset{values}, []int{2}
	for _, name := range engine.Built(
		"zstd:3", "zstd:3/naive", "zstd:3/stream", "gzip", "gzip/naive", "lz4", "lz4/naive", "lz4/stream", "s2/stream", "snappy/stream",
		"zstd:3+dict", "zstd:3/naive+dict", "zstd:3/stream+dict",
		"zstd:3/cgo", "zstd:3/cgo/naive", "zstd:3/cgo/stream",
	) {
		s, err := engine.ParseForm(name)
		if err != nil {
			t.Fatal(err)
		}
		c.Compress = append(c.Compress, s)
	}
	r, err := Measure(t.Context(), []*Server{server}, c)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]outcome.Cell{}
	for _, cell := range r.Cells {
		found[cell.Compress] = cell
		if !cell.Verified || cell.Operations == 0 {
			t.Errorf("%s: %s", cell.Compress, cell.Error)
		}
	}
	for _, s := range c.Compress {
		if _, there := found[s.String()]; !there {
			t.Errorf("no cell of %s", s)
		}
	}
	for _, pair := range []struct {
		pooled, other string
		more          float64 // bytes allocated an operation, at least
	}{
		{"zstd:3", "zstd:3/naive", 100_000}, {"zstd:3", "zstd:3/stream", 0},
		{"gzip", "gzip/naive", 100_000}, {"lz4", "lz4/naive", 0}, {"zstd:3+dict", "zstd:3/naive+dict", 0}, {"zstd:3+dict", "zstd:3/stream+dict", 0},
	} {
		a, b := found[pair.pooled], found[pair.other]
		if b.Ratio > 1.1*a.Ratio || !strings.Contains(pair.pooled, "+dict") && a.Ratio > 1.1*b.Ratio {
			t.Errorf("ratio %.2f of %s, %.2f of %s", a.Ratio, pair.pooled, b.Ratio, pair.other)
		}
		if more := b.BytesPerOp.Median - a.BytesPerOp.Median; more < pair.more && pair.more > 0 {
			t.Errorf("%s allocates %.0f bytes more than %s, want %.0f", pair.other, more, pair.pooled, pair.more)
		}
	}
	if with, without := found["zstd:3/naive+dict"], found["zstd:3/naive"]; with.Ratio < 2*without.Ratio {
		t.Errorf("ratio %.2f with a dictionary, %.2f without", with.Ratio, without.Ratio)
	}
}
