package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/internal/testvalues"
)

// TestIndented: what is shown of a value is what json.Indent makes, up to a limit.
func TestIndented(t *testing.T) {
	for _, value := range []string{
		`{}`, `[]`, `[ ]`, `[{}]`, `null`, `"a\"b\\"`, `"\\\\"`, `-1.5e+3`, `{"a" : [ 1 ,2,{"b": null}], "c":{ } , "d":"x,y:{z}[\"]" }`, `[[[[]]],"é",true]`, "[\n\n1\n]", `{"a":{"b":{"c":[]}},"d":[[],{}]}`,
	} {
		var want bytes.Buffer
		clitest.OK(t, json.Indent(&want, []byte(value), "", "  "))
		if shown, used := new(indenter).next([]byte(value), maxShown); string(shown) != want.String() || used != len(value) {
			t.Errorf("%q: %d bytes as %q, want %q", value, used, shown, &want)
		}
		for most := range want.Len() {
			if shown, _ := new(indenter).next([]byte(value), most); !strings.HasPrefix(want.String(), string(shown)) || len(shown) < most {
				t.Errorf("%q, %d bytes: %q", value, most, shown)
			}
			var all, in = "", indenter{}
			for rest := []byte(value); len(rest) > 0; {
				shown, used := in.next(rest, max(most, 1))
				if rest = rest[used:]; !utf8.Valid(shown) {
					t.Errorf("%q, %d bytes: a piece is %q", value, most, shown)
				}
				all += string(shown)
			}
			if all != want.String() {
				t.Errorf("%q, pieces of %d bytes: %q", value, most, all)
			}
		}
	}
}

// TestInspectLargeValues: what inspect shows is bounded, and so is the memory for it, however the
// value is made.
func TestInspectLargeValues(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector allocates")
	}
	const size = 32 << 20
	deep := strings.Repeat("[", 5000) + strings.Repeat("1,", size/2) + "1" + strings.Repeat("]", 5000)
	for name, value := range map[string]string{
		"numbers": "[" + strings.Repeat("1,", size/2) + "1]", "a string": `"` + strings.Repeat("\xff", size) + `"`, "no characters": `"` + strings.Repeat("\x80", size) + `"`, "levels": deep, "spaces": strings.Repeat(" ", size) + "1\n", "objects": "[" + strings.Repeat(`{"a":{}},`, size/9) + "1]",
	} {
		var out bytes.Buffer
		var before, after runtime.MemStats
		given := []byte(value)
		runtime.ReadMemStats(&before)
		showValue(&out, given)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 4*size { // of escapes, most of it
			t.Errorf("%s: %d bytes of memory", name, took)
		}
		if out.Len() > 7*maxShown || (name != "spaces") != strings.Contains(out.String(), " bytes: bale unpack writes the whole value") {
			t.Errorf("%s: %d bytes are shown, the last %q", name, out.Len(), out.Bytes()[max(0, out.Len()-200):])
		}
	}
}

// TestShowLargeValues: a value is printed in pieces, and few bytes do not become gigabytes.
func TestShowLargeValues(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector allocates")
	}
	const size = 4 << 20
	for name, c := range map[string]struct {
		form  Form
		value string
	}{
		"levels":        {JSONForm, strings.Repeat("[", 9999) + strings.Repeat("1,", size/2) + "1" + strings.Repeat("]", 9999)},
		"strings":       {JSONForm, "[" + strings.Repeat(`"\u007f",`, size/4) + "1]"},
		"no characters": {JSONForm, `"` + strings.Repeat("\x80", size) + `"`},
		"text":          {TextForm, strings.Repeat("\x00", size)},
		"hex":           {HexForm, strings.Repeat("\x00", size)},
	} {
		var largest, total int
		w := writer(func(b []byte) { largest, total = max(largest, len(b)), total+len(b) })
		o := Options{Streams: &cli.Streams{Out: printable.NewWriter(w), Raw: w}, Form: c.form}
		clitest.OK(t, o.show(t.Context(), []byte(c.value)))
		if largest > 16<<20 || total > size*(deepest+4) {
			t.Errorf("%s: %d bytes, up to %d at once", name, total, largest)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := o.show(ctx, []byte(c.value)); c.form != HexForm && !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v after an interrupt", name, err)
		}
	}
}

type writer func(b []byte)

func (w writer) Write(b []byte) (int, error) {
	w(b)
	return len(b), nil
}
