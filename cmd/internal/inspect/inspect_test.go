package inspect

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/internal/testvalues"
)

// TestIndented: what is shown of a value is what json.Indent makes, up to a limit.
func TestIndented(t *testing.T) {
	for _, value := range []string{
		`{}`, `[]`, `[ ]`, `[{}]`, `null`, `"a\"b\\"`, `"\\\\"`, `-1.5e+3`, `{"a" : [ 1 ,2,{"b": null}], "c":{ } , "d":"x,y:{z}[\"]" }`, `[[[[]]],"é",true]`, "[\n\n1\n]", `{"a":{"b":{"c":[]}},"d":[[],{}]}`,
	} {
		var want bytes.Buffer
		clitest.OK(t, json.Indent(&want, []byte(value), "", "  "))
		if shown, used := indented([]byte(value), maxShown); string(shown) != want.String() || used != len(value) {
			t.Errorf("%q: %d bytes as %q, want %q", value, used, shown, &want)
		}
		for most := range want.Len() {
			if shown, _ := indented([]byte(value), most); !strings.HasPrefix(want.String(), string(shown)) || len(shown) < most {
				t.Errorf("%q, %d bytes: %q", value, most, shown)
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
		"numbers": "[" + strings.Repeat("1,", size/2) + "1]", "a string": `"` + strings.Repeat("\xff", size) + `"`, "levels": deep, "spaces": strings.Repeat(" ", size) + "1\n", "objects": "[" + strings.Repeat(`{"a":{}},`, size/9) + "1]",
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
