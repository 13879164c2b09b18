package redismem

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/balekv/bale/internal/redisproc"
)

func TestClass(t *testing.T) {
	for n, want := range map[int]int{0: 8, 8: 8, 9: 16, 16: 16, 17: 32, 128: 128, 129: 160, 160: 160, 161: 192, 256: 256, 257: 320, 1024: 1024, 1025: 1280, 4097: 5120, 32769: 40960} {
		if got := (Server{}).class(n); got != want {
			t.Errorf("Class(%d) = %d, want %d", n, got, want)
		}
	}
	for n, want := range map[int]int{0: 8, 9: 16, 17: 24, 24: 24, 25: 32, 33: 40, 41: 48, 49: 56, 57: 64, 64: 64, 65: 80, 81: 96, 128: 128, 129: 160, 1025: 1280} {
		if got := (Server{FineClasses: true}).class(n); got != want {
			t.Errorf("Class(%d) = %d with fine classes, want %d", n, got, want)
		}
	}
}

// TestOf: the model of a server by what it says of itself.
func TestOf(t *testing.T) {
	for _, test := range []struct {
		info map[string]string
		want Server
	}{
		{nil, Server{}},
		{map[string]string{"redis_version": "7.0.15", "mem_allocator": "jemalloc-5.3.0", "cluster_enabled": "1"}, Server{Cluster: true}},
		{map[string]string{"redis_version": "7.2.4", "mem_allocator": "libc"}, Server{Libc: true}},
		{map[string]string{"redis_version": "8.0.3", "mem_allocator": "jemalloc-5.3.0"}, Server{}},
		{map[string]string{"redis_version": "8.2.3", "mem_allocator": "jemalloc-5.3.0"}, Server{Layout: Redis82, FineClasses: true}},
		{map[string]string{"redis_version": "10.0", "mem_allocator": "libc"}, Server{Layout: Redis82, Libc: true}},
		{map[string]string{"redis_version": "7.2.4", "valkey_version": "7.2.7"}, Server{}},
		{map[string]string{"redis_version": "7.2.4", "valkey_version": "8.0.1"}, Server{}},
		{map[string]string{"redis_version": "7.2.4", "valkey_version": "9.1.2", "mem_allocator": "libc"}, Server{Layout: Valkey91, Libc: true}},
		{map[string]string{"redis_version": "7.2.4", "valkey_version": "9.1.2", "mem_allocator": "jemalloc-5.3.0"}, Server{Layout: Valkey91, FineClasses: true}},
	} {
		if got := Of(test.info); got != test.want {
			t.Errorf("%v: %+v", test.info, got)
		}
	}
}

// TestCandidates: a measured version has one layout, another version has all.
func TestCandidates(t *testing.T) {
	for _, test := range []struct {
		info map[string]string
		want []Server
	}{
		{map[string]string{"redis_version": "7.0.15", "mem_allocator": "jemalloc-5.3.0"}, []Server{{}, {FineClasses: true}}},
		{map[string]string{"redis_version": "8.2.3", "mem_allocator": "jemalloc-5.3.0"}, []Server{{Layout: Redis82, FineClasses: true}, {Layout: Redis82}}},
		{map[string]string{"redis_version": "7.2.4", "valkey_version": "9.1.2", "mem_allocator": "libc"}, []Server{{Layout: Valkey91, Libc: true}}},
		{map[string]string{"redis_version": "7.4.1", "mem_allocator": "libc"}, []Server{{Libc: true}, {Layout: Redis82, Libc: true}, {Layout: Valkey91, Libc: true}}},
		{map[string]string{"redis_version": "8.4.0", "mem_allocator": "jemalloc-5.3.0"}, []Server{
			{Layout: Redis82, FineClasses: true}, {}, {FineClasses: true}, {Layout: Redis82}, {Layout: Valkey91}, {Layout: Valkey91, FineClasses: true},
		}},
		{map[string]string{"redis_version": "7.2.4", "valkey_version": "8.0.1", "mem_allocator": "jemalloc-5.3.0"}, []Server{
			{}, {FineClasses: true}, {Layout: Redis82}, {Layout: Redis82, FineClasses: true}, {Layout: Valkey91}, {Layout: Valkey91, FineClasses: true},
		}},
	} {
		if got := Candidates(test.info); !slices.Equal(got, test.want) {
			t.Errorf("%v: %+v", test.info, got)
		}
	}
	if got := len(Candidates(nil)); got != 9 {
		t.Errorf("%d candidates without INFO", got)
	}
}

// TestString compares the model with a real server, at the borders of every class up to 128 KiB and
// between them.
func TestString(t *testing.T) {
	s := redisproc.ForTest(t)
	m := modelOf(t, s)
	m.MemoryUsage = true
	c := dial(t, s)
	checked := 0
	for n := 1; n < 128<<10; n += 1 + n/37 {
		for _, n := range []int{n, m.class(n) - 4, m.class(n) - 6, m.class(n) - 10} {
			if n < 1 {
				continue
			}
			checked++
			c.do("SET", "k", strings.Repeat("x", n))
			got, want := m.KeyString(1, n, false), c.usages("k")[0]
			if n >= 32<<10 && got+m.class(n+64)-m.class(n) == want {
				continue // kept in a buffer somewhat larger
			}
			if !m.same(got, want) {
				t.Errorf("%d bytes: the model says %d, the server %d", n, got, want)
			}
		}
	}
	if checked < 500 {
		t.Errorf("only %d sizes checked", checked)
	}
}

// TestKeyString compares the model with a real server where a name and a short value may share an
// allocation.
func TestKeyString(t *testing.T) {
	s := redisproc.ForTest(t)
	m := modelOf(t, s)
	m.MemoryUsage = true
	c := dial(t, s)
	for name := 1; name < 140; name += 1 + name/20 {
		for n := 1; n < 140; n += 1 + n/20 {
			for _, expires := range []bool{false, true} {
				command := []string{"SET", strings.Repeat("k", name), strings.Repeat("x", n)}
				if expires {
					command = append(command, "PX", "3600000")
				}
				c.do(command...)
				got, want := m.KeyString(name, n, expires), c.usages(command[1])[0]
				if !m.same(got, want) {
					t.Errorf("a name of %d bytes, %d bytes, expires %v: the model says %d, the server %d", name, n, expires, got, want)
				}
				c.do("DEL", command[1])
			}
		}
	}
}

// numbers are whole numbers at the borders of how Redis keeps them, and texts that are nearly such.
var numbers = []string{
	"0", "1", "-1", "127", "128", "4095", "4096", "-4096", "-4097", "9999", "10000", "32767", "32768", "-32768", "-32769",
	"8388607", "8388608", "-8388608", "-8388609", "2147483647", "2147483648", "-2147483648", "-2147483649",
	"999999999999999999", "9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809",
	"18446744073709551616", "12345678901234567890", "123456789012345678901", "-12345678901234567890",
	"", "-", "--1", "+1", "-0", "00", "007", "-07", "1.0", " 1", "1 ", "1e3", "0x1", "٣", "1\x00", "/", ":",
}

func TestWhole(t *testing.T) {
	for _, v := range numbers {
		want, err := strconv.ParseInt(v, 10, 64)
		exact := err == nil && strconv.FormatInt(want, 10) == v
		if !exact {
			want = 0
		}
		if got, ok := whole([]byte(v)); got != want || ok != exact {
			t.Errorf("whole(%q) = %d, %v, want %d, %v", v, got, ok, want, exact)
		}
	}
}

func TestValue(t *testing.T) {
	s := redisproc.ForTest(t)
	m := modelOf(t, s)
	c := dial(t, s)
	for _, policy := range []string{"noeviction", "allkeys-lru"} {
		c.do("CONFIG", "SET", "maxmemory", "1gb", "maxmemory-policy", policy)
		m.Unshared = policy != "noeviction"
		for _, v := range numbers {
			c.do("SET", "k", v)
			if shared, size := c.do("OBJECT", "REFCOUNT", "k") != "1", m.value([]byte(v)); m.Layout == Redis70 && shared != (size == 0) {
				t.Errorf("%s: %q: the model says %d bytes, but that it is shared is %v", policy, v, size, shared)
			}
			said := m
			said.MemoryUsage = true
			if got, want := said.KeyValue(1, []byte(v), false), c.usages("k")[0]; !m.same(got, want) {
				t.Errorf("%s: %q: the model says %d, the server %d", policy, v, got, want)
			}
		}
	}
}

// TestKey compares the model with MEMORY USAGE for names of each length, and with used_memory for
// some lengths, by themselves: their value takes nothing.
func TestKey(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) { testKey(t, redisproc.ForTest(t)) })
	t.Run("cluster", func(t *testing.T) { testKey(t, redisproc.ClusterForTest(t, 1).Servers[0]) })
}

func testKey(t *testing.T, s *redisproc.Server) {
	m := modelOf(t, s)
	said := m
	said.MemoryUsage = true
	c := dial(t, s)
	for n := 1; n <= 300; n++ {
		name := strings.Repeat("k", n)
		c.do("SET", name, "1")
		for _, expires := range []bool{false, true} {
			if expires {
				c.do("PEXPIRE", name, "3600000")
			}
			if got, want := said.KeyValue(n, []byte("1"), expires), c.usages(name)[0]; !m.same(got, want) {
				t.Errorf("a name of %d bytes, expires %v: the model says %d, the server %d", n, expires, got, want)
			}
		}
	}
	c.do("FLUSHALL", "SYNC")
	c.conn.Close()
	const keys = 20000 // of which the table has 32768 buckets
	for _, n := range []int{5, 22, 31, 32, 252, 253} {
		for _, expiring := range []int{0, 3000} {
			before := used(t, s, m, 0, 0)
			c := dial(t, s)
			model := m.Tables(keys, expiring)
			for i := range keys {
				// Numbers one after another fall into few of a cluster's slots.
				name := fmt.Sprintf("%0*s", n, strconv.FormatInt(int64(i)*27644437%60466176, 36))
				if i < expiring {
					c.send("SET", name, "1", "PX", "3600000")
				} else {
					c.send("SET", name, "1")
				}
				model += m.KeyValue(n, []byte("1"), i < expiring)
			}
			c.replies()
			c.conn.Close()
			grown := used(t, s, m, keys, expiring) - before
			// A server's memory for itself varies by some KB; slots are random.
			bound := 32 << 10
			if m.Cluster && m.Layout != Redis70 {
				bound = model / 50
			}
			if off := grown - model; off < -bound || off > bound {
				t.Errorf("%d names of %d bytes, %d expire: the model says %d, the server has grown by %d (%+d)", keys, n, expiring, model, grown, off)
			}
			c = dial(t, s)
			c.do("FLUSHALL", "SYNC")
			c.conn.Close()
		}
	}
}

func TestTable(t *testing.T) {
	for keys, want := range map[int]int{-1: 0, 0: 0, 1: 32, 4: 32, 5: 64, 8: 64, 9: 128, 512: 4096, 513: 8192, 100000: 1 << 20} {
		if got := (Server{}).table(keys); got != want {
			t.Errorf("Table(%d) = %d, want %d", keys, got, want)
		}
	}
	Server{Layout: Valkey91}.table(math.MaxInt) // ends
}

// TestTablesOfFew compares the model of few keys with a server: a table takes memory of its own
// beside its buckets.
func TestTablesOfFew(t *testing.T) {
	s := redisproc.ForTest(t)
	m := modelOf(t, s)
	c := dial(t, s)
	fill := func() (model int) {
		for i := range 200 {
			name, value := fmt.Sprintf("name:%04d", i), strings.Repeat("x", 80)
			model += m.KeyString(len(name), len(value), true)
			c.send("SET", name, value, "PX", "3600000")
		}
		c.replies()
		return model + m.Tables(200, 200)
	}
	fill() // the first use of a command takes memory for the server's own figures
	c.do("FLUSHALL", "SYNC")
	model := fill()
	c.conn.Close()
	with := used(t, s, m, 200, 200)
	if _, err := s.Do(t.Context(), "FLUSHALL", "SYNC"); err != nil {
		t.Fatal(err)
	}
	if fell := with - used(t, s, m, 0, 0); math.Abs(float64(fell-model)) > 1500 {
		t.Errorf("the model says %d, the server's memory fell by %d", model, fell)
	}
}

// TestKeySpace compares the model of a key space of many kinds of keys with the server. It uses the
// MEMORY USAGE of each key, and the growth of used_memory.
func TestKeySpace(t *testing.T) {
	t.Parallel()
	s := redisproc.ForTest(t)
	m := modelOf(t, s)
	testKeySpace(t, s, m, 100_000)
}

func TestKeySpaceOfCluster(t *testing.T) {
	t.Parallel()
	s := redisproc.ClusterForTest(t, 1).Servers[0]
	m := modelOf(t, s)
	testKeySpace(t, s, m, 20_000)
}

func testKeySpace(t *testing.T, s *redisproc.Server, m Server, keys int) {
	// In percent: when just loaded, with tables among the hashes that still have their former
	// buckets, and without these. Reused memory of libc, buckets that overflow and slots vary at
	// random.
	loaded, settled := 3.0, 0.3
	switch {
	case m.Layout != Redis70 && m.Cluster:
		settled = 2
	case m.Libc || m.Layout == Valkey91:
		settled = 1
	}
	// Bytes: as modelled, as modelled in the terms of MEMORY USAGE, and as that says.
	type sum struct{ keys, model, said, usage int }
	said := m
	said.MemoryUsage = true
	kinds := []string{"string", "number", "listpack", "table"}
	sums := make([]sum, len(kinds))
	rng := rand.New(rand.NewPCG(7, 7))
	random := func(low, high float64) string { // sizes are skewed: as many of 5 to 50 bytes as of 50 to 500
		b := make([]byte, int(low*math.Pow(high/low, rng.Float64())))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return string(b)
	}
	// The first use of a command takes memory for the server's own figures.
	warm := dial(t, s)
	warm.do("SET", "k", "v")
	warm.do("HSET", "h", "f", "v")
	warm.do("PEXPIRE", "h", "3600000")
	warm.do("HDEL", "h", "none")
	warm.usages("h")
	warm.do("FLUSHALL", "SYNC")
	warm.conn.Close()
	before := used(t, s, m, 0, 0)

	c := dial(t, s)
	var names []string
	var kindOf []int
	expiring := 0
	for i := range keys {
		name := "k:" + strconv.Itoa(i) + ":" + strings.Repeat("n", rng.IntN(60)*rng.IntN(2))
		expires := rng.IntN(3) == 0
		kind, size, saidSize := 0, 0, 0
		switch n := rng.IntN(1000); {
		case n < 600:
			v := random(5, 5000)
			size = m.KeyValue(len(name), []byte(v), expires)
			saidSize = said.KeyValue(len(name), []byte(v), expires)
			c.send("SET", name, v)
		case n < 800:
			kind = 1
			v := strconv.FormatUint(rng.Uint64()>>(1+rng.IntN(63)), 10)
			size = m.KeyValue(len(name), []byte(v), expires)
			saidSize = said.KeyValue(len(name), []byte(v), expires)
			c.send("SET", name, v)
		default:
			kind = 2
			fields, longest := 1+rng.IntN(30), 64.0
			if n >= 995 {
				kind, fields, longest = 3, 100+rng.IntN(900), 300
			}
			h, saidHash := Hash{Server: m}, Hash{Server: said}
			command := []string{"HSET", name}
			for f := range fields {
				// Of the same names all hashes of a Valkey would have as many overflowing buckets.
				field, v := "f"+strconv.Itoa(i*1000+f), random(1, longest)
				if rng.IntN(3) == 0 {
					v = strconv.Itoa(rng.IntN(1 << 20))
				}
				command = append(command, field, v)
				h.Add([]byte(field), []byte(v))
				saidHash.Add([]byte(field), []byte(v))
			}
			c.send(command...)
			size = m.Key(len(name), expires) + h.Bytes()
			saidSize = said.Key(len(name), expires) + saidHash.Bytes()
		}
		if expires {
			c.send("PEXPIRE", name, "3600000")
			expiring++
		}
		names, kindOf = append(names, name), append(kindOf, kind)
		sums[kind].keys++
		sums[kind].model += size
		sums[kind].said += saidSize
		if c.sent >= 1000 {
			c.replies()
		}
	}
	c.replies()
	c.conn.Close()
	grown := used(t, s, m, keys, expiring) - before

	c = dial(t, s)
	for i, kind := range kindOf {
		if kind == 3 { // each field that is looked for moves a bucket
			c.send(append([]string{"HDEL", names[i]}, make([]string, 1000)...)...)
		}
	}
	c.replies()
	for from := 0; from < keys; from += 1000 {
		to := min(from+1000, keys)
		for i, usage := range c.usages(names[from:to]...) {
			sums[kindOf[from+i]].usage += usage
		}
	}
	c.conn.Close()
	after := used(t, s, m, keys, expiring) - before

	var all sum
	for i, sum := range sums {
		t.Logf("%-8s %6d keys: model %9d, MEMORY USAGE %9d (%+.2f%%), in its terms %9d (%+.3f%%)",
			kinds[i], sum.keys, sum.model, sum.usage, off(sum.model, sum.usage), sum.said, off(sum.said, sum.usage))
		if sum.keys == 0 {
			t.Errorf("no key is a %s", kinds[i])
		}
		if p := off(sum.said, sum.usage); math.Abs(p) > settled {
			t.Errorf("%s: the model, in the terms of MEMORY USAGE, is off it by %+.2f%%", kinds[i], p)
		}
		all.model += sum.model
		all.said += sum.said
		all.usage += sum.usage
	}
	t.Logf("%-8s %6d keys: model %9d, MEMORY USAGE %9d (%+.2f%%), in its terms %9d (%+.3f%%)",
		"all", keys, all.model, all.usage, off(all.model, all.usage), all.said, off(all.said, all.usage))
	all.model += m.Tables(keys, expiring)
	t.Logf("with their tables:    model %9d, used_memory grew by %d (%+.3f%%), after reads by %d (%+.3f%%)",
		all.model, grown, off(all.model, grown), after, off(all.model, after))
	if p := off(all.model, grown); math.Abs(p) > loaded {
		t.Errorf("the model is off used_memory by %+.2f%%", p)
	}
	if p := off(all.model, after); math.Abs(p) > settled {
		t.Errorf("the model is off used_memory by %+.2f%% after reads", p)
	}
}

// off is how much more a is than b, in percent.
func off(a, b int) float64 { return 100 * float64(a-b) / float64(b) }

func TestAllocs(t *testing.T) {
	field, value, number := []byte("name"), []byte("some value"), []byte("-1234567")
	m := Server{Cluster: true}
	var h Hash
	sum := 0
	if n := testing.AllocsPerRun(100, func() {
		sum += m.value(value) + m.value(number) + m.Key(20, true) + Server{}.table(1000)
		h.Add(field, value)
		h.Add(field, number)
		sum += h.Bytes()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

var sink int

func BenchmarkValue(b *testing.B) {
	for _, v := range []string{"some text of a value", "-1234567890123"} {
		b.Run(v, func(b *testing.B) {
			b.ReportAllocs()
			v := []byte(v)
			for b.Loop() {
				sink += Server{}.value(v)
			}
		})
	}
}
