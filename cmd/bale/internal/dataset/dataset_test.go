package dataset

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMain(m *testing.M) {
	RegisterGob()
	os.Exit(m.Run())
}

// checkCoders takes every value through every codec, and makes sure that Verify can tell values apart.
func checkCoders(t *testing.T, d *Dataset) {
	t.Helper()
	for _, name := range Codecs() {
		c, err := d.Coder(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range d.Raw {
			b, err := c.Encode([]byte("before"), i)
			if err != nil {
				t.Fatalf("%s %s: value %d: %v", d.Name, name, i, err)
			}
			b = bytes.TrimPrefix(b, []byte("before"))
			if err := c.Decode(b); err != nil {
				t.Errorf("%s %s: value %d: decode: %v", d.Name, name, i, err)
			}
			if err := c.Verify(b, i); err != nil {
				t.Errorf("%s %s: value %d: %v", d.Name, name, i, err)
			}
			if other := (i + 1) % len(d.Raw); !bytes.Equal(d.Raw[i], d.Raw[other]) && c.Verify(b, other) == nil {
				t.Errorf("%s %s: value %d passes for value %d", d.Name, name, i, other)
			}
		}
	}
	if _, err := d.Coder("xml"); err == nil {
		t.Error("no error for codec xml")
	}
}

func TestBuiltIn(t *testing.T) {
	sets, err := BuiltIn(7)
	if err != nil {
		t.Fatal(err)
	}
	again, err := BuiltIn(7)
	if err != nil {
		t.Fatal(err)
	}
	other, err := BuiltIn(8)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i, d := range sets {
		names = append(names, d.Name)
		checkCoders(t, d)
		if !slices.EqualFunc(d.Raw, again[i].Raw, bytes.Equal) {
			t.Errorf("%s: the same seed makes other values", d.Name)
		}
		if slices.EqualFunc(d.Raw, other[i].Raw, bytes.Equal) {
			t.Errorf("%s: another seed makes the same values", d.Name)
		}
	}
	if diff := cmp.Diff([]string{"profiles", "sessions", "logs", "random"}, names); diff != "" {
		t.Error(diff)
	}
	// The sizes that the comments of the types promise.
	for i, bounds := range [][2]int64{{400, 550}, {700, 900}, {10_000, 16_000}, {1024, 1024}} {
		if mean := sets[i].RawBytes() / int64(len(sets[i].Raw)); mean < bounds[0] || mean > bounds[1] {
			t.Errorf("%s: %d bytes in the mean, want %v", sets[i].Name, mean, bounds)
		}
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
		d, err := Load("-", strings.NewReader(in), limits)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(d.Note, want) || (want == "") != (d.Note == "") {
			t.Errorf("%q: note %q, want %q", in, d.Note, want)
		}
	}
}

// TestHalves: each value is in one half, and neither half has one kind alone where two of them alternate.
func TestHalves(t *testing.T) {
	var in strings.Builder
	for i := range 101 {
		fmt.Fprintf(&in, "{\"kind\":%d,\"id\":%d}\n", i%2, i)
	}
	d, err := Load("-", strings.NewReader(in.String()), limits)
	if err != nil {
		t.Fatal(err)
	}
	train, measure := d.Halves()
	for _, half := range []*Dataset{train, measure} {
		checkCoders(t, half)
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

func TestCountFields(t *testing.T) {
	values := [][]byte{
		[]byte(`{"user":{"token":"a","name":"b"},"token":1}`),
		[]byte(`[{"user":[{"token":null}]}]`),
		[]byte(`{"a.b":1} {"deep":{"user":{"token":2}}}`),
		[]byte(`{"token":1`),
		[]byte(`text`),
		nil,
	}
	fields := []string{"token", "user.token", "name", "Token", "a.b", "user", "user.name.x", "deep.user.token"}
	if diff := cmp.Diff([]int{3, 2, 1, 0, 1, 3, 0, 1}, CountFields(values, fields)); diff != "" {
		t.Error(diff)
	}
}

var limits = Limits{Values: 1000, ValueSize: 1000, Seed: 1}

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
		d, err := Load(test.path, strings.NewReader(test.stdin), limits)
		if err != nil {
			t.Errorf("%s: %v", test.path, err)
			continue
		}
		if d.Name != test.name || d.Kind != test.kind || len(d.Raw) != test.values {
			t.Errorf("%s: %q, %s, %d values; want %+v", test.path, d.Name, d.Kind, len(d.Raw), test)
		}
		checkCoders(t, d)
	}
	for _, path := range []string{write("empty", ""), write("blank", "\n \n"), write("long", strings.Repeat("x", 1001)), filepath.Join(dir, "nowhere"), t.TempDir()} {
		if _, err := Load(path, nil, limits); !errors.Is(err, ErrData) {
			t.Errorf("%s: error %v, want ErrData", path, err)
		}
	}
	write("large/file", strings.Repeat("x", 1001))
	if _, err := Load(filepath.Join(dir, "large"), nil, limits); !errors.Is(err, ErrData) || !strings.Contains(err.Error(), "1001 bytes") {
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
		d, err := Load("-", strings.NewReader(in.String()), Limits{Values: 10, ValueSize: 10, Seed: seed})
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
