package redismem

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/balekv/bale/internal/redisproc"
)

// overflows reports whether a difference may come from buckets that overflow. The model has their
// average.
func (s Server) overflows(model, server, fields int) bool {
	if s.Layout != Valkey91 {
		return false
	}
	buckets := float64(fields)/7 + 1
	return math.Abs(float64(server-model)) <= 64*(2+3*math.Sqrt(buckets))+0.01*float64(server)
}

// hashes compares the model with MEMORY USAGE for hashes that grow to n fields.
func hashes(t *testing.T, c *client, m Server, what string, fields int, value func(i int) string) (listpacks, tables int) {
	t.Helper()
	h := Hash{Server: m}
	for i := range fields {
		field, v := strconv.Itoa(i), value(i)
		if i%3 == 0 {
			field = strings.Repeat("f", i%40) + field
		}
		h.Add([]byte(field), []byte(v))
		c.do("HSET", "h", field, v)
		table := c.do("OBJECT", "ENCODING", "h") == "hashtable"
		if table {
			tables++
			// Reading moves what is left of a former table.
			for range i {
				c.send("HEXISTS", "h", field)
			}
			c.replies()
		} else {
			listpacks++
		}
		// Of a table the server multiplies a mean, which may lose a byte.
		got, want := m.Key(1, false)+h.Bytes(), c.usages("h")[0]
		if !m.same(got, want) && (!table || got != want+1) && !(table && m.overflows(got, want, i+1)) {
			t.Fatalf("%s: %d fields: the model says %d, the server %d", what, i+1, got, want)
		}
	}
	c.do("DEL", "h")
	return listpacks, tables
}

func TestHash(t *testing.T) {
	t.Parallel()
	s := redisproc.ForTest(t)
	m := modelOf(t, s)
	m.MemoryUsage = true
	c := dial(t, s)
	if got := (&Hash{Server: m}).Bytes(); got != 0 {
		t.Errorf("an empty hash: %d bytes", got)
	}
	for _, v := range numbers {
		if _, tables := hashes(t, c, m, v, 40, func(int) string { return v }); tables > 0 {
			t.Errorf("%q: not a listpack", v)
		}
	}
	mixed := func(i int) string {
		if i%2 == 0 {
			return strconv.Itoa(i * i * i)
		}
		return strings.Repeat("v", i%64)
	}
	if listpacks, _ := hashes(t, c, m, "mixed", 1200, mixed); listpacks != 512 {
		t.Errorf("a listpack up to %d fields", listpacks)
	}
	if listpacks, _ := hashes(t, c, m, "the tenth is too long", 300, func(i int) string { return strings.Repeat("v", 55+i) }); listpacks != 10 {
		t.Errorf("a listpack up to %d fields", listpacks)
	}
	hashes(t, c, m, "long", 300, func(i int) string { return strings.Repeat("v", 1+i*i) })

	for _, test := range []struct {
		entries, value       string // as CONFIG SET takes them
		maxEntries, maxValue int
		listpacks            int
	}{
		{"16", "64", 16, 0, 16},
		{"0", "64", -1, 0, 0},
		{"512", "20", 0, 20, 21},
		{"512", "0", 0, -1, 0},
		{"512", "100000", 0, 100000, 150},
	} {
		c.do("CONFIG", "SET", "hash-max-listpack-entries", test.entries, "hash-max-listpack-value", test.value)
		m.HashMaxListpackEntries, m.HashMaxListpackValue = test.maxEntries, test.maxValue
		what := fmt.Sprintf("at most %s entries of %s bytes", test.entries, test.value)
		// The fields' names are of up to 42 bytes.
		listpacks, _ := hashes(t, c, m, what, 150, func(i int) string { return strings.Repeat("v", i) })
		if listpacks != test.listpacks {
			t.Errorf("%s: a listpack up to %d fields, not %d", what, listpacks, test.listpacks)
		}
	}
	// Texts at the borders of how a listpack has their lengths.
	for _, n := range []int{63, 64, 125, 126, 4095, 4096, 16377, 16378} {
		hashes(t, c, m, fmt.Sprintf("values of %d bytes", n), 20, func(int) string { return strings.Repeat("v", n) })
	}
}

func BenchmarkHash(b *testing.B) {
	var fields, values [][]byte
	for i := range 1000 {
		fields, values = append(fields, []byte("field:"+strconv.Itoa(i))), append(values, []byte(strings.Repeat("v", i%100)))
	}
	b.ReportAllocs()
	for b.Loop() {
		var h Hash
		for i, f := range fields {
			h.Add(f, values[i])
		}
		sink += h.Bytes()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(fields)), "ns/field")
}
