package outcome

import (
	"errors"
	"strings"
	"testing"
)

// TestForgedResults: the reader refuses a result that is too large for a run, before it takes much
// more memory than the file's size.
func TestForgedResults(t *testing.T) {
	list := func(element string, n int) string { return "[" + strings.Repeat(element+",", n-1) + element + "]" }
	for want, text := range map[string]string{
		"it has 2001 cells, at most 2000 are read":                  `{"cells":` + list("{}", maxCells+1) + `}`,
		"it has 2002 cells, at most 2000 are read":                  `{"cells":` + list("1", maxCells+1) + `,"cells":[null]}`,
		"it has 1048577 commas, at most 1048576 are read":           `{"environment":{"notes":` + list(`""`, maxCommas+2) + `}}`,
		"it has 32769 rounds and other parts, at most 32768 are":    `{"cells":[{"rounds":` + list("{}", maxParts) + `,"rounds":[null]}]}`,
		"it has 32770 rounds and other parts, at most 32768 are":    `{"cells":[{"rounds":` + list("0", maxParts-2) + `},{}],"skipped":[{}],"sweeps":[1],"timeline":[{}],"findings":[null]}`,
		"it is larger than 64 MiB":                                  `{"x":"` + strings.Repeat("x", maxResult) + `"}`,
		`its schema is "bench-v2", and this reads "bench-v1"`:       `{"schema":"bench-v2","cells":[{}]}`,
		"unexpected end of JSON input":                              `{"cells":[`,
		"cannot unmarshal number into Go struct field Run.cells of": `{"cells":[1]}`,
		"has 1001 points, at most 1000 are read":                    `{"cells":[{"latency":` + list("{}", maxPoints+1) + `}]}`,
		"a cell has 4097 bytes of names, at most 4096 are read":     `{"environment":{"mix":"9:1"},"cells":[{"dataset":"` + strings.Repeat("d", maxName-8) + `","server":"123456"}]}`,
		"codec  has 1001 points, at most 1000 are":                  `{"cells":[{"codec":"codec","service":` + list("{}", maxPoints+1) + `}]}`,
	} {
		if _, err := Read(strings.NewReader(text), "run.json"); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
