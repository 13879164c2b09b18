package dataset

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/balekv/bale/cmd/internal/values"
	"github.com/balekv/bale/internal/testvalues"
)

func TestMain(m *testing.M) {
	RegisterGob()
	os.Exit(m.Run())
}

// checkCoders takes the values, or at most about this number of them, through every codec of the
// set's track. It makes sure that Verify distinguishes different values.
func checkCoders(t *testing.T, d *Dataset, most int) {
	t.Helper()
	for _, info := range CodecInfos() {
		c, err := d.Coder(info.Name)
		generated := info.Typed && !info.Dynamic && (d.Track == Dynamic || d.Kind == "text" || d.Kind == "binary" || d.Name == "flat1000") // needed, and not there
		if generated {
			if !errors.Is(err, ErrNoCoder) {
				t.Errorf("%s as %s: error %v, want ErrNoCoder", d.Name, info.Name, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(d.Raw); i += 1 + len(d.Raw)/most {
			b, err := c.Encode([]byte("before"), i)
			if err != nil {
				t.Fatalf("%s %s: value %d: %v", d.Name, info.Name, i, err)
			}
			if !bytes.HasPrefix(b, []byte("before")) {
				t.Fatalf("%s %s: value %d does not append", d.Name, info.Name, i)
			}
			b = bytes.TrimPrefix(b, []byte("before"))
			if err := c.Decode(b); err != nil {
				t.Errorf("%s %s: value %d: decode: %v", d.Name, info.Name, i, err)
			}
			if err := c.Verify(b, i); err != nil {
				t.Errorf("%s %s: value %d: %v", d.Name, info.Name, i, err)
			}
			if other := (i + 1) % len(d.Raw); !bytes.Equal(d.Raw[i], d.Raw[other]) && c.Verify(b, other) == nil {
				t.Errorf("%s %s: value %d passes for value %d", d.Name, info.Name, i, other)
			}
		}
	}
	if _, err := d.Coder("xml"); err == nil || errors.Is(err, ErrNoCoder) {
		t.Errorf("codec xml: error %v", err)
	}
}

// small are the built-in sets that a test can take whole.
func small() []string {
	return slices.DeleteFunc(Names(), func(name string) bool { return name == "log10mb" })
}

var cached = map[string]*Dataset{}

// made makes a set once for all tests, none of which is parallel.
func made(t testing.TB, name string, seed uint64) *Dataset {
	t.Helper()
	key := fmt.Sprint(name, " ", seed)
	if cached[key] == nil {
		d, err := Make(name, seed)
		if err != nil {
			t.Fatal(err)
		}
		cached[key] = d
	}
	return cached[key]
}

// TestMake takes every set through every codec in both tracks.
func TestMake(t *testing.T) {
	// The mean sizes that the comment of Names promises.
	sizes := map[string][2]int64{
		"profiles": {400, 550}, "sessions": {700, 900}, "logs": {10_000, 16_000}, "text": {1900, 2200}, "protobuf": {190, 210}, "random": {1024, 1024},
		"fields10": {365, 385}, "fields100": {3550, 3700}, "fields1000": {35_000, 37_000}, "flat1000": {35_000, 37_000}, "log10mb": {10_000_000, 10_100_000},
	}
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			if testvalues.Race && (name == "fields1000" || name == "flat1000" || name == "log10mb") {
				t.Skip("slow with the race detector, and a single goroutine")
			}
			d := made(t, name, 7)
			if mean, bounds := d.RawBytes()/int64(len(d.Raw)), sizes[name]; mean < bounds[0] || mean > bounds[1] {
				t.Errorf("%d bytes in the mean, want %v", mean, bounds)
			}
			if d.Name != name || d.Track != Typed {
				t.Errorf("%s, %s", d.Name, d.Track)
			}
			if name == "log10mb" {
				checkBatches(t, d)
				return
			}
			checkCoders(t, d, 5)
			few := *d
			few.Raw = d.Raw[:20]
			dynamic, err := few.Dynamic()
			if d.Kind == "text" || d.Kind == "binary" {
				if !errors.Is(err, ErrNoCoder) {
					t.Errorf("dynamic: error %v, want ErrNoCoder", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if dynamic.Name != name || dynamic.Track != Dynamic || &dynamic.Raw[0] != &d.Raw[0] {
				t.Errorf("%s, %s", dynamic.Name, dynamic.Track)
			}
			checkCoders(t, dynamic, 5)
		})
	}
	if _, err := Make("nothing", 1); err == nil || !strings.Contains(err.Error(), "profiles") {
		t.Errorf("error %v", err)
	}
}

// checkBatches tries the codecs of which each does its work in another way on values of 10 MB.
func checkBatches(t *testing.T, d *Dataset) {
	for _, name := range []string{"json", "msgp", "raw"} {
		c, err := d.Coder(name)
		if err != nil {
			t.Fatal(err)
		}
		b, err := c.Encode(nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Verify(b, 1); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	train, measure := d.Halves()
	if len(train.Raw) == 0 || len(measure.Raw) == 0 {
		t.Errorf("halves of %d and %d values", len(train.Raw), len(measure.Raw))
	}
}

// TestFrozen keeps the values of the sets, for published figures speak of them.
func TestFrozen(t *testing.T) {
	got := map[string]string{}
	for _, name := range small() {
		for _, seed := range []uint64{1, 7} {
			d := made(t, name, seed)
			h := sha256.New()
			for _, v := range d.Raw[:100] {
				h.Write(v)
			}
			got[fmt.Sprint(name, " ", seed)] = hex.EncodeToString(h.Sum(nil)[:8])
		}
	}
	want := map[string]string{
		"profiles 1": "dbc746a3ac4e7626", "profiles 7": "86c4d603d89c9bfb",
		"sessions 1": "8c1a21272635d157", "sessions 7": "d017a7fac6cdece7",
		"logs 1": "16cb6a7b47c51cc5", "logs 7": "b3ca0b54fb08e7b4",
		"text 1": "a196db13f4dcf466", "text 7": "2b75f5ca3eaaeb58",
		"protobuf 1": "71409f3246c47136", "protobuf 7": "953f2ca501daff96",
		"random 1": "6f28de75b14b9d4c", "random 7": "580c7d446ff536c3",
		"fields10 1": "8ed49d6055327cc0", "fields10 7": "cd5aad008bf84d24",
		"fields100 1": "d374f1a9a2e6da61", "fields100 7": "735f24b67cb16a72",
		"fields1000 1": "19b3f928d468a1ff", "fields1000 7": "bb7df9b80b3eef73",
		"flat1000 1": "189aa13cbdfc2d86", "flat1000 7": "a6d845a7d6c3e5bc",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestOpen: values that are no JSON have no dynamic track.
func TestOpen(t *testing.T) {
	sets, err := Open(t.Context(), Options{Builtin: []string{"profiles", "random"}, Tracks: []string{Typed, Dynamic}, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range sets {
		names = append(names, d.Name+" "+d.Track)
	}
	if diff := cmp.Diff([]string{"profiles typed", "profiles dynamic", "random typed"}, names); diff != "" {
		t.Error(diff)
	}
}

func TestSized(t *testing.T) {
	for _, size := range []int{1, 100, 511, 512, 513, 1024, 65_537, 1 << 20} {
		if testvalues.Race && size > 1024 {
			continue // slow, and a single goroutine
		}
		d, err := Sized(size, 1)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Raw) < 2 || len(d.Raw) > 2000 || d.Name != fmt.Sprintf("%dB", size) || d.Track != Typed {
			t.Errorf("%s of the %s track has %d values", d.Name, d.Track, len(d.Raw))
		}
		for i, v := range d.Raw {
			if len(v) != size {
				t.Fatalf("%s: value %d has %d bytes", d.Name, i, len(v))
			}
		}
		again, err := Sized(size, 1)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(d.Raw, again.Raw, bytes.Equal) {
			t.Errorf("%s: the same seed makes other values", d.Name)
		}
		if size <= 1024 { // of more there are only longer listings
			checkCoders(t, d, 3)
		}
	}
	for _, size := range []int{-1, 0, MaxSized + 1} {
		if _, err := Sized(size, 1); err == nil {
			t.Errorf("%d bytes are taken", size)
		}
	}
}

// TestCompressibility: zstd leaves of a listing about what it leaves of real JSON, and of prose
// what it leaves of English.
func TestCompressibility(t *testing.T) {
	if testvalues.Race {
		t.Skip("slow with the race detector, and a single goroutine")
	}
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	ratio := func(v []byte) float64 { return float64(len(v)) / float64(len(enc.EncodeAll(v, nil))) }
	for _, size := range []int{65_537, 1 << 20} {
		d, err := Sized(size, 1)
		if err != nil {
			t.Fatal(err)
		}
		if r := ratio(d.Raw[0]); r < 1.7 || r > 2.5 {
			t.Errorf("%s: %.2f", d.Name, r)
		}
	}
	d, err := Make("text", 1)
	if err != nil {
		t.Fatal(err)
	}
	// English prose: 1.6 to 1.9 a value of 2 KB, 2.5 to 3 where there is much of it.
	if r := ratio(d.Raw[0]); r < 1.5 || r > 2 {
		t.Errorf("a text: %.2f", r)
	}
	if r := ratio(bytes.Join(d.Raw, nil)); r < 2.3 || r > 3.2 {
		t.Errorf("all texts: %.2f", r)
	}
}

func TestNotes(t *testing.T) {
	for in, want := range map[string]string{
		"{\n  \"a\": 1\n}\n":                  "looks like JSON over several lines",
		"[\n  {\"a\": 1},\n  {\"a\": 2}\n]\n": "looks like JSON over several lines",
		"{\"a\": 1,\n \"b\": 2}\n":            "looks like JSON over several lines",
		"[{\"a\":1},{\"a\":2}]\n":             "a single value, which is a list: jq -c '.[]'",
		"{\"a\":1}\nnot JSON\n":               "taken for text, since not every value is JSON",
		"{\"a\":1}\n":                         "",
		"[1]\n[2]\n":                          "",
		"text {\nmore\n":                      "",
	} {
		d, err := Load(t.Context(), "-", strings.NewReader(in), limits)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(d.Note, want) || (want == "") != (d.Note == "") {
			t.Errorf("%q: note %q, want %q", in, d.Note, want)
		}
	}
}

// TestAutoCodec: values of a file that are no JSON are measured as they are.
func TestAutoCodec(t *testing.T) {
	for content, want := range map[string]string{"{\"a\":1}\n": "json", "<p>a</p>\n": "raw", "\x00\xff\n": "raw"} {
		d, err := Load(t.Context(), "-", strings.NewReader(content), values.Limits{Values: 10, ValueSize: 100})
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Codecs([]string{Auto, "gob"}); !slices.Equal(got, []string{want, "gob"}) {
			t.Errorf("%q: %q", content, got)
		}
	}
	if d, err := Make("text", 1); err != nil || !slices.Equal(d.Codecs([]string{Auto}), []string{"json"}) {
		t.Errorf("%v, %v", d, err)
	}
}

// TestUniform: a value that is not JSON among JSON values is an error. The error shows its place
// and the next step, but not the value.
func TestUniform(t *testing.T) {
	const secret = "sesame"
	good, bad := `{"id":1}`, `{"id":`+secret+`}`
	write := func(name string, lines ...string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	folder := t.TempDir()
	for name, v := range map[string]string{"a": good, "b": bad, "c": good} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(v+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name, path, stdin string
		want              []string // of the error
		kind              string   // where there is none
	}{
		{name: "by its name", path: write("x.ndjson", good, "", bad, bad, bad), want: []string{"x.ndjson line 3 is not JSON, from byte 7 on", "by the name of .ndjson", ".txt"}},
		{name: "by its name in capitals", path: write("x.JSONL", bad), want: []string{"x.JSONL line 1 "}},
		{name: "a document over several lines", path: write("x.json", "{", `"id": 1`, "}"), want: []string{"x.json line 1 ", "jq -c"}},
		{name: "most values", path: write("x.log", good, good, bad), want: []string{"x.log line 3 is not JSON, from byte 7 on, as 2 of 3 values are", ".txt"}},
		{name: "most lines of stdin", path: "-", stdin: bad + "\n" + good + "\n[1]\n", want: []string{"stdin line 1 ", "2 of 3"}},
		{name: "most files", path: folder, want: []string{filepath.Join(folder, "b") + " is not JSON", "leave the file out"}},
		{name: "half of the values", path: write("x", good, bad), kind: "text"},
		{name: "most values are numbers", path: write("x", "1", "2", "3", "four"), kind: "text"},
		{name: "text by its name", path: write("x.txt", good, good, bad), kind: "text"},
		{name: "JSON in a text", path: write("x.txt", good), kind: "json"},
		{name: "JSON", path: write("x.json", good, "1", `"a"`), kind: "json"},
	} {
		t.Run(test.name, func(t *testing.T) {
			uniform := limits
			uniform.Uniform = true
			d, err := Load(t.Context(), test.path, strings.NewReader(test.stdin), uniform)
			if test.want == nil {
				if err != nil || d.Kind != test.kind {
					t.Errorf("%+v, %v", d, err)
				}
				return
			}
			if !errors.Is(err, values.ErrData) || strings.Contains(err.Error(), secret) {
				t.Fatal(err)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
			if _, err := Load(t.Context(), test.path, strings.NewReader(test.stdin), limits); err != nil {
				t.Errorf("where they may be what they will: %v", err)
			}
		})
	}
}

// TestHalves: each value is in one half, and neither half has one kind alone where two of them
// alternate.
func TestHalves(t *testing.T) {
	var in strings.Builder
	for i := range 101 {
		fmt.Fprintf(&in, "{\"kind\":%d,\"id\":%d}\n", i%2, i)
	}
	d, err := Load(t.Context(), "-", strings.NewReader(in.String()), limits)
	if err != nil {
		t.Fatal(err)
	}
	train, measure := d.Halves()
	for _, half := range []*Dataset{train, measure} {
		checkCoders(t, half, 20)
		first := 0
		for _, v := range half.Raw {
			if bytes.Contains(v, []byte(`"kind":0`)) {
				first++
			}
		}
		if n := len(half.Raw); n < 50 || n > 51 || first < 24 || first > 27 {
			t.Errorf("%d values, %d of the first kind", n, first)
		}
	}
	all := slices.Concat(train.Raw, measure.Raw)
	slices.SortFunc(all, bytes.Compare)
	want := slices.SortedFunc(slices.Values(d.Raw), bytes.Compare)
	if !slices.EqualFunc(all, want, bytes.Equal) {
		t.Error("the halves are not the whole")
	}
}

var limits = values.Limits{Values: 1000, ValueSize: 1000, Seed: 1}

// TestItemsAreBounded: a file of 34 MB, of empty objects, took 2 GB to be decoded.
func TestItemsAreBounded(t *testing.T) {
	defer func(n int) { maxItems = n }(maxItems)
	maxItems = 100
	limits := values.Limits{Values: 10, ValueSize: 1 << 20}
	few, many := "["+strings.Repeat("{},", 40)+"{}]\n", "["+strings.Repeat("{},", 50)+"{}]\n"
	if _, err := Load(t.Context(), "-", strings.NewReader(few), limits); err != nil {
		t.Error(err)
	}
	for _, in := range []string{many, few + few} {
		if _, err := Load(t.Context(), "-", strings.NewReader(in), limits); !errors.Is(err, values.ErrData) || !strings.Contains(err.Error(), "more than 100") {
			t.Error(err)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("blobs/a", "\xff\x00binary")
	write("blobs/sub/b", "more")
	write("blobs/empty", "")
	for _, test := range []struct {
		path, stdin string
		name, kind  string
		values      int
	}{
		{path: write("docs.ndjson", "{\"id\":9007199254740993}\r\n\n[null,{},[],{\"a\":[{}]}]\n\"x\"\n12.50\ntrue\nnull"), name: "docs", kind: "json", values: 6},
		{path: write("lines.txt", "some text\n{\"a\":1}\n"), name: "lines", kind: "text", values: 2},
		{path: filepath.Join(dir, "blobs"), name: "blobs", kind: "binary", values: 2},
		{path: "-", stdin: "{\"a\":1}\n{\"a\":2}", name: "stdin", kind: "json", values: 2},
	} {
		d, err := Load(t.Context(), test.path, strings.NewReader(test.stdin), limits)
		if err != nil {
			t.Errorf("%s: %v", test.path, err)
			continue
		}
		if d.Name != test.name || d.Kind != test.kind || len(d.Raw) != test.values {
			t.Errorf("%s: %q, %s, %d values; want %+v", test.path, d.Name, d.Kind, len(d.Raw), test)
		}
		checkCoders(t, d, 20)
	}
	for _, path := range []string{write("empty", ""), write("blank", "\n \n"), write("long", strings.Repeat("x", 1001)), filepath.Join(dir, "nowhere"), t.TempDir()} {
		if _, err := Load(t.Context(), path, nil, limits); !errors.Is(err, values.ErrData) {
			t.Errorf("%s: error %v, want ErrData", path, err)
		}
	}
	write("large/file", strings.Repeat("x", 1001))
	if _, err := Load(t.Context(), filepath.Join(dir, "large"), nil, limits); !errors.Is(err, values.ErrData) || !strings.Contains(err.Error(), "more than 1000 B") {
		t.Errorf("large file: error %v", err)
	}
}

func TestSampleIsUniform(t *testing.T) {
	var in strings.Builder
	for i := range 100 {
		fmt.Fprintln(&in, i)
	}
	var counts [100]int
	for seed := range uint64(2000) {
		d, err := Load(t.Context(), "-", strings.NewReader(in.String()), values.Limits{Values: 10, ValueSize: 10, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		if len(d.Raw) != 10 || !strings.Contains(d.Note, "a sample of 10 of its 100 values") {
			t.Fatalf("%d values, note %q", len(d.Raw), d.Note)
		}
		for _, v := range d.Raw {
			var i int
			fmt.Sscan(string(v), &i)
			counts[i]++
		}
	}
	for i, n := range counts { // 200 expected, standard deviation 13.4: five of them to each side
		if n < 133 || n > 267 {
			t.Errorf("value %d was taken %d times of 2000, want about 200", i, n)
		}
	}
}

// TestErrorsHideValues: no error about values shows text of them.
func TestErrorsHideValues(t *testing.T) {
	const secret = "4111111111111111"
	refused := []byte(`{"id":"` + secret + `","at":x` + secret + `}`)
	typed, err := Make("profiles", 1)
	if err != nil {
		t.Fatal(err)
	}
	dynamic, err := typed.Dynamic()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, d := range []*Dataset{typed, dynamic} {
		for _, name := range Codecs() {
			c, err := d.Coder(name)
			if err != nil || name == "raw" {
				continue
			}
			for _, err := range []error{c.Decode(refused), c.Verify(refused, 0)} {
				if err == nil { // some read the start alone
					continue
				}
				if seen++; strings.Contains(err.Error(), secret[:4]) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	if seen < 10 {
		t.Errorf("%d errors", seen)
	}
	if _, _, err := parse([][]byte{refused}); err == nil || strings.Contains(err.Error(), secret[:4]) {
		t.Error(err)
	}
}
