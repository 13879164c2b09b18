package flame

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/pprof/profile"

	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/internal/testvalues"
)

var update = flag.Bool("update", false, "write the pictures of testdata anew")

// sample is a stack from the outermost call on, calls separated by spaces; "a|b" is b inlined into
// a.
type sample struct {
	stack string
	value int64
}

// made makes a profile. Each sample counts once, and with its value as the second sample type.
func made(t testing.TB, sampleType, unit string, samples ...sample) *profile.Profile {
	t.Helper()
	p := &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: sampleType, Unit: unit}},
		PeriodType: &profile.ValueType{Type: sampleType, Unit: unit},
	}
	functions, locations := map[string]*profile.Function{}, map[string]*profile.Location{}
	for _, s := range samples {
		out := &profile.Sample{Value: []int64{1, s.value}}
		for call := range strings.FieldsSeq(s.stack) {
			l := locations[call]
			if l == nil {
				l = &profile.Location{ID: uint64(len(p.Location) + 1), Address: uint64(len(p.Location) + 1)}
				locations[call] = l
				p.Location = append(p.Location, l)
				for name := range strings.SplitSeq(call, "|") {
					f := functions[name]
					if f == nil {
						f = &profile.Function{ID: uint64(len(p.Function) + 1), Name: name, SystemName: name}
						functions[name] = f
						p.Function = append(p.Function, f)
					}
					l.Line = append([]profile.Line{{Function: f}}, l.Line...) // the innermost comes first
				}
			}
			out.Location = append([]*profile.Location{l}, out.Location...)
		}
		p.Sample = append(p.Sample, out)
	}
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	return p
}

func cpu(t testing.TB, samples ...sample) *profile.Profile {
	return made(t, "cpu", "nanoseconds", samples...)
}

func grow(t testing.TB, p *profile.Profile, o Options) *Tree {
	t.Helper()
	tree, err := New(p, o)
	if err != nil {
		t.Fatal(err)
	}
	check(t, tree, o)
	return tree
}

// check verifies what is true of every tree.
func check(t testing.TB, tree *Tree, o Options) {
	t.Helper()
	if n := len(tree.Nodes); n < 1 || n > max(o.MaxNodes, 200) {
		t.Fatalf("the tree has %d nodes", n)
	}
	if root := tree.Nodes[0]; root.Name != rootName || root.Depth != 0 || root.Value != tree.Total {
		t.Errorf("the root is %+v, and the total %d", root, tree.Total)
	}
	sum := 0.0
	for _, s := range tree.Shares {
		sum += s
	}
	if want := min(1, float64(tree.Total)); math.Abs(sum-want) > 1e-9 {
		t.Errorf("shares sum to %v: %v", sum, tree.Shares)
	}
	room := []int64{tree.Total} // of each depth
	for i, n := range tree.Nodes {
		if n.Depth >= len(room) || i > 0 && n.Depth == 0 || n.Value > room[n.Depth] {
			t.Fatalf("node %d, %+v, does not fit where it is, with room for %v", i, n, room)
		}
		room[n.Depth] -= n.Value
		room = append(room[:n.Depth+1], n.Value)
	}
}

const (
	call    = "github.com/balekv/bale/cmd/internal/lab.(*run).call"
	pack    = "github.com/balekv/bale.(*Packer).Pack"
	czstd   = "github.com/balekv/bale/extra/czstd.(*Compressor).Compress github.com/balekv/bale/extra/czstd._Cfunc_bale_compress runtime.cgocall"
	marshal = "encoding/json.Marshal encoding/json.(*encodeState).marshal|encoding/json.(*encodeState).reflectValue"
	set     = "github.com/redis/go-redis/v9.(*Client).Process bufio.(*Writer).Flush net.(*conn).Write internal/poll.(*FD).Write " +
		"syscall.write internal/runtime/syscall.Syscall6"
)

// profiled is a round of a cell as it might be.
func profiled(t testing.TB) *profile.Profile {
	return cpu(t,
		sample{call + " " + pack + " " + czstd, 4e9},
		sample{call + " " + pack + " github.com/klauspost/compress/zstd.(*Encoder).EncodeAll runtime.growslice runtime.mallocgc", 1e9},
		sample{call + " " + marshal + " reflect.Value.Field", 1e9},
		sample{call + " " + marshal + " runtime.mallocgc runtime.gcAssistAlloc runtime.systemstack runtime.gcDrainN", 1e9},
		sample{call + " " + set, 2e9},
		sample{"runtime.gcBgMarkWorker runtime.systemstack runtime.gcDrain", 5e8},
		sample{"runtime.mcall runtime.park_m runtime.schedule runtime.findRunnable runtime.netpoll internal/runtime/syscall.EpollWait", 4e8},
		sample{call + " " + pack + " github.com/cespare/xxhash/v2.Sum64", 1e8},
	)
}

func TestTree(t *testing.T) {
	tree := grow(t, profiled(t), Options{MinShare: 0.02})
	want := &Tree{
		Unit: "nanoseconds", Total: 1e10,
		Shares: Shares{Compress: 0.5, Serialize: 0.1, Network: 0.2, GC: 0.15, Scheduler: 0.04, Other: 0.01},
		Nodes: []Node{
			{"all", 0, 1e10, Other},
			{"lab.(*run).call", 1, 91e8, Other},
			{"bale.(*Packer).Pack", 2, 51e8, Other},
			{"czstd.(*Compressor).Compress", 3, 4e9, Compress},
			{"czstd._Cfunc_bale_compress", 4, 4e9, Compress},
			{"runtime.cgocall", 5, 4e9, Compress},
			{"zstd.(*Encoder).EncodeAll", 3, 1e9, Compress},
			{"runtime.growslice", 4, 1e9, Compress},
			{"runtime.mallocgc", 5, 1e9, Compress},
			{"json.Marshal", 2, 2e9, Serialize},
			{"json.(*encodeState).marshal", 3, 2e9, Serialize},
			{"json.(*encodeState).reflectValue", 4, 2e9, Serialize},
			{"reflect.Value.Field", 5, 1e9, Serialize},
			{"runtime.mallocgc", 5, 1e9, Serialize},
			{"runtime.gcAssistAlloc", 6, 1e9, GC},
			{"runtime.systemstack", 7, 1e9, GC},
			{"runtime.gcDrainN", 8, 1e9, GC},
			{"go-redis.(*Client).Process", 2, 2e9, Network},
			{"bufio.(*Writer).Flush", 3, 2e9, Network},
			{"net.(*conn).Write", 4, 2e9, Network},
			{"poll.(*FD).Write", 5, 2e9, Network},
			{"syscall.write", 6, 2e9, Network},
			{"syscall.Syscall6", 7, 2e9, Network},
			{"runtime.gcBgMarkWorker", 1, 5e8, GC},
			{"runtime.systemstack", 2, 5e8, GC},
			{"runtime.gcDrain", 3, 5e8, GC},
			{"runtime.mcall", 1, 4e8, Other},
			{"runtime.park_m", 2, 4e8, Scheduler},
			{"runtime.schedule", 3, 4e8, Scheduler},
			{"runtime.findRunnable", 4, 4e8, Scheduler},
			{"runtime.netpoll", 5, 4e8, Scheduler},
			{"syscall.EpollWait", 6, 4e8, Scheduler},
		},
	}
	if diff := cmp.Diff(want, tree); diff != "" {
		t.Errorf("tree differs (-want +got):\n%s", diff)
	}
	if want := "10s, compression 50.0%, network 20.0%, garbage collection 15.0%, serialization 10.0%, scheduler 4.0%, other 1.0%; " +
		"most in runtime.cgocall 40.0%, syscall.Syscall6 20.0%, reflect.Value.Field 10.0%"; tree.Summary() != want {
		t.Errorf("summary is %q, want %q", tree.Summary(), want)
	}
}

func TestPrune(t *testing.T) {
	p := cpu(t,
		sample{"a.A a.B", 600}, sample{"a.A a.C", 200}, sample{"a.A a.D", 60}, sample{"a.A a.E", 60}, sample{"a.A a.F", 4}, sample{"a.G a.H", 76},
	)
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{}, "all 1000, A 924, B 600, C 200, D 60, E 60, G 76, H 76"}, // F is too little to be shown even folded
		{Options{MinShare: 0.001}, "all 1000, A 924, B 600, C 200, D 60, E 60, F 4, G 76, H 76"},
		{Options{MinShare: 0.1}, "all 1000, A 924, B 600, C 200, (other) 124"},
		{Options{MinShare: 0.07}, "all 1000, A 924, B 600, C 200, (other) 124, G 76, H 76"},
		{Options{MaxNodes: 6}, "all 1000, A 924, B 600, C 200, (other) 124, (other) 76"},
		{Options{MaxNodes: 4}, "all 1000, A 924, (other) 924, (other) 76"},
		{Options{MaxNodes: 3}, "all 1000, (other) 1000"},
		{Options{MaxNodes: 2}, "all 1000, (other) 1000"},
	} {
		tree := grow(t, p, c.o)
		var got []string
		for _, n := range tree.Nodes {
			got = append(got, fmt.Sprintf("%s %d", strings.TrimPrefix(n.Name, "a."), n.Value))
		}
		if s := strings.Join(got, ", "); s != c.want {
			t.Errorf("%+v: %s, want %s", c.o, s, c.want)
		}
	}
}

// many is a profile of more functions than a tree shows.
func many(t testing.TB, seed int) *profile.Profile {
	var samples []sample
	for i := range 2000 {
		samples = append(samples, sample{
			fmt.Sprintf("%s github.com/klauspost/compress/zstd.(*some).encoder%d encoding/json.function%d net.f%d", call, i%7, i%(31+seed), i),
			int64(1e7 * (1 + i*i%97)),
		})
	}
	return cpu(t, samples...)
}

func TestForest(t *testing.T) {
	var f Forest
	for i := range 5 {
		f = append(f, grow(t, many(t, i), Options{MinShare: 1e-6}))
		if n := len(f[i].Nodes); n < 150 {
			t.Fatalf("a tree has %d nodes, and is to be large", n)
		}
	}
	for len(f) < 100 {
		f = append(f, f[len(f)-5]) // cells of a run call much the same functions
	}
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 400_000 {
		t.Errorf("100 trees of 200 nodes take %d bytes", len(b))
	}

	tree := grow(t, cpu(t, sample{"net.A encoding/json.B", 1}, sample{"net.A net.C", 2}), Options{})
	b, err = json.Marshal(Forest{tree, nil, tree})
	if err != nil {
		t.Fatal(err)
	}
	one := `{"unit":"nanoseconds","total":3,"shares":[0,0,0.3333,0.6667,0,0],"nodes":[0,0,100000,0,1,1,100000,3,2,2,66666,3,3,2,33333,2]}`
	want := `{"categories":["other","compress","serialize","network","gc","scheduler"],"names":["all","net.A","net.C","json.B"],` +
		`"trees":[` + one + `,null,` + one + `]}`
	if string(b) != want {
		t.Errorf("it is\n%s\nwant\n%s", b, want)
	}
	if b, err := json.Marshal(Forest(nil)); err != nil || !strings.Contains(string(b), `"names":[],"trees":[]`) {
		t.Errorf("an empty forest is %s, %v", b, err)
	}
}

func TestCategories(t *testing.T) {
	for function, want := range map[string]Category{
		"compress/flate.(*compressor).deflate": Compress, "github.com/pierrec/lz4/v4.(*Compressor).CompressBlock": Compress,
		"github.com/valyala/gozstd._Cfunc_ZSTD_decompressDCtx_wrapper": Compress, "github.com/balekv/bale/compress/zstd.(*Compressor).Compress": Compress,
		"encoding/json.Marshal": Serialize, "github.com/goccy/go-json.Marshal": Serialize, "google.golang.org/protobuf/proto.Marshal": Serialize,
		"github.com/go-json-experiment/json/jsontext.(*Encoder).WriteToken": Serialize, "github.com/tinylib/msgp/msgp.AppendInt": Serialize,
		"github.com/balekv/bale/cmd/internal/dataset.typed[go.shape.struct { a/b.C }].Encode": Serialize,
		"net.(*conn).Read": Network, "github.com/redis/rueidis.(*pipe).sync": Network, "github.com/mediocregopher/radix/v4.(*conn).Do": Network,
		"syscall.Syscall": Network, "github.com/balekv/bale/adapter/goredis.(*Store).Get": Network,
		"runtime.gcAssistAlloc": GC, "runtime.bgsweep": GC, "runtime.scanobject": GC, "runtime._GC": GC,
		"runtime.schedule": Scheduler, "runtime.goready": Scheduler,
		// No category of their own.
		"runtime.cgocall": Other, "runtime.mallocgc": Other, "runtime.memmove": Other, "ZSTD_compress2": Other, "sort.Sort": Other, "main.main": Other,
		"github.com/balekv/bale.(*Packer).Pack": Other, "network.Dial": Other, "compressor.Run": Other, "github.com/redis/go-redis-like.F": Other,
		"internal/runtime/syscall.Syscall6": Other, "": Other,
	} {
		if got := categoryOf(function, Other); got != want {
			t.Errorf("%s belongs to %v, want %v", function, got, want)
		}
		if got := categoryOf(function, Network); want == Other && got != Network {
			t.Errorf("%s belongs to %v, and its caller to network", function, got)
		}
	}
	for _, c := range Categories() {
		if c.String() == "" || c.Label() == "" {
			t.Errorf("category %d has no name", c)
		}
	}
	if len(Categories()) != categories {
		t.Errorf("%d categories are shown", len(Categories()))
	}
}

func TestShort(t *testing.T) {
	for function, want := range map[string]string{
		"main.main": "main.main", "encoding/json.(*decodeState).value": "json.(*decodeState).value",
		"github.com/redis/go-redis/v9.(*Client).Process":             "go-redis.(*Client).Process",
		"github.com/redis/go-redis/v9/internal/pool.(*ConnPool).Get": "pool.(*ConnPool).Get",
		"gopkg.in/yaml%2ev3.Marshal":                                 "yaml.v3.Marshal",
		"slices.Grow[go.shape.[]uint8,go.shape.uint8]":               "slices.Grow",
		"a/b.(*T[github.com/x/y.Z]).Do.func1":                        "b.(*T).Do.func1",
		"github.com/balekv/bale/cmd/internal/lab.(*run).call.func2":  "lab.(*run).call.func2",
		"ZSTD_compress2": "ZSTD_compress2", "v9.F": "v9.F",
	} {
		if got := short(function); got != want {
			t.Errorf("%s is %s, want %s", function, got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	p := profiled(t)
	for _, o := range []Options{{Kind: "wall"}, {MinShare: -1}, {MinShare: 1}, {MinShare: math.NaN()}, {MaxNodes: 1}, {MaxNodes: -1}} {
		if _, err := New(p, o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
	if _, err := New(p, Options{Kind: "heap"}); !errors.Is(err, ErrProfile) {
		t.Errorf("a CPU profile is taken for one of the heap: %v", err)
	}
	heap := made(t, "alloc_space", "bytes", sample{"a.A", 1})
	if _, err := Merge(p, heap); err == nil {
		t.Error("profiles of two kinds are merged")
	}
	if _, err := Difference(heap, p); err == nil {
		t.Error("profiles of two kinds are subtracted")
	}
	if _, err := Merge(); err == nil {
		t.Error("no profiles are merged")
	}
}

func TestMergeAndDifference(t *testing.T) {
	first := made(t, "delay", "nanoseconds", sample{"a.A a.B", 10}, sample{"a.A a.C", 5})
	second := made(t, "delay", "nanoseconds", sample{"a.A a.B", 30}, sample{"a.A a.C", 5}, sample{"a.D", 7})
	merged, err := Merge(first, second)
	if err != nil {
		t.Fatal(err)
	}
	since, err := Difference(first, second)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		p     *profile.Profile
		total int64
		nodes int
	}{{first, 15, 4}, {second, 42, 5}, {merged, 57, 5}, {since, 27, 4}} {
		tree := grow(t, c.p, Options{Kind: "mutex"})
		if tree.Total != c.total || len(tree.Nodes) != c.nodes {
			t.Errorf("total is %d, want %d: %v", tree.Total, c.total, tree.Nodes)
		}
	}
	none, err := Difference(second, second)
	if err != nil {
		t.Fatal(err)
	}
	if tree := grow(t, none, Options{Kind: "block"}); tree.Total != 0 || tree.Summary() != "no samples" {
		t.Errorf("a profile less itself is %+v", tree)
	}
}

func TestSVG(t *testing.T) {
	empty := grow(t, cpu(t), Options{})
	odd := grow(t, made(t, "alloc_space", "bytes",
		sample{`main.<b>"&'`, 3 << 20}, sample{"main.f[a/b.C] main.aNameThatIsMuchTooLongForThePlaceThatItHas", 1 << 20}, sample{"main.g", 5 << 9},
	), Options{Kind: "heap", MinShare: 1e-4})
	for name, tree := range map[string]*Tree{"cpu": grow(t, profiled(t), Options{}), "empty": empty, "odd": odd} {
		got := tree.SVG("profiles <json> & zstd")
		if d := xml.NewDecoder(strings.NewReader(got)); true {
			for err := error(nil); err != io.EOF; _, err = d.Token() {
				if err != nil {
					t.Fatalf("%s is not XML: %v\n%s", name, err, got)
				}
			}
		}
		for _, colour := range []string{"fill", "stroke", "style", "color"} {
			if strings.Contains(got, colour+"=") {
				t.Errorf("%s has a colour of its own: %s", name, colour)
			}
		}
		if n := strings.Count(got, "<title>"); n != len(tree.Nodes) {
			t.Errorf("%s has %d tooltips for %d frames", name, n, len(tree.Nodes))
		}
		path := filepath.Join("testdata", name+".svg")
		if *update {
			if err := os.WriteFile(path, []byte(got+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got+"\n"); diff != "" {
			t.Errorf("%s differs; if that is meant, run the test with -update (-want +got):\n%s", path, diff)
		}
	}
}

// profileCPU profiles what work does, over and over, until there are enough samples: a busy machine
// takes its time.
func profileCPU(t *testing.T, work func()) *profile.Profile {
	t.Helper()
	const enough = 20
	var all []*profile.Profile
	for range 20 {
		var b bytes.Buffer
		if err := pprof.StartCPUProfile(&b); err != nil {
			t.Skip(err) // the tests themselves are being profiled
		}
		for start := time.Now(); time.Since(start) < 300*time.Millisecond; {
			work()
		}
		pprof.StopCPUProfile()
		p, err := profile.Parse(&b)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
		merged, err := Merge(all...)
		if err != nil {
			t.Fatal(err)
		}
		n := int64(0)
		for _, s := range merged.Sample {
			n += s.Value[0]
		}
		if n >= enough {
			return merged
		}
	}
	t.Fatal("no samples come")
	return nil
}

type document struct {
	Name string
	Tags []string
	N    []int
}

func documents() (document, []byte) {
	d := document{Name: "flame", Tags: strings.Fields(strings.Repeat("alpha beta gamma ", 200))}
	for i := range 2000 {
		d.N = append(d.N, i*i%1009)
	}
	b, err := json.Marshal(d)
	if err != nil {
		panic(err)
	}
	return d, b
}

// TestRealCPU profiles loops that mostly do one thing: in C, where the command is built with it, in
// Go, and in JSON.
func TestRealCPU(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector, which has no Go stack, is what takes the time")
	}
	d, b := documents()
	for _, name := range []string{"zstd:12/cgo", "zstd:better", "gzip"} {
		if engine.Libzstd == "" && strings.HasSuffix(name, "/cgo") {
			continue
		}
		s, err := engine.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		c, err := s.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var out []byte
		p := profileCPU(t, func() {
			if out, err = c.Compress(out[:0], b); err != nil {
				t.Fatal(err)
			}
		})
		tree := grow(t, p, Options{})
		if tree.Shares[Compress] < 0.5 || tree.Shares[Serialize] > 0.2 {
			t.Errorf("%s: shares are %v in\n%v", name, tree.Summary(), tree.Nodes)
		}
		if name == "zstd:12/cgo" {
			found := false
			for _, n := range tree.Nodes {
				found = found || n.Name == "runtime.cgocall" && n.Category == Compress
			}
			if !found {
				t.Errorf("%s: no call of C is compression in\n%v", name, tree.Nodes)
			}
		}
	}
	tree := grow(t, profileCPU(t, func() {
		if _, err := json.Marshal(d); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, &document{}); err != nil {
			t.Fatal(err)
		}
	}), Options{})
	if tree.Shares[Serialize] < 0.3 || tree.Shares[Compress] > 0.1 {
		t.Errorf("JSON: shares are %v in\n%v", tree.Summary(), tree.Nodes)
	}
}

func TestRealHeap(t *testing.T) {
	_, b := documents()
	heap := func() *profile.Profile {
		runtime.GC()
		runtime.GC()
		var out bytes.Buffer
		if err := pprof.Lookup("heap").WriteTo(&out, 0); err != nil {
			t.Fatal(err)
		}
		p, err := profile.Parse(&out)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	before := heap()
	for range 300 { // of 50 KB and more: some 30 samples
		if err := json.Unmarshal(b, &document{}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Difference(before, heap())
	if err != nil {
		t.Fatal(err)
	}
	tree := grow(t, p, Options{Kind: "heap"})
	if tree.Unit != "bytes" || tree.Total < 5<<20 || tree.Shares[Serialize] < 0.8 {
		t.Errorf("%s in\n%v", tree.Summary(), tree.Nodes)
	}
}

func BenchmarkNew(b *testing.B) {
	p := many(b, 0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := New(p, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
