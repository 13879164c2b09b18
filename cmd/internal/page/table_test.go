package page_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/page/pagetest"
)

// TestTableFits: a table leaves out columns in its order, and cuts names last. It says what it left
// out.
func TestTableFits(t *testing.T) {
	for _, test := range []struct {
		columns int
		want    string
	}{
		{60, "group                             keys  decompress  P99\n" +
			"─────────────────────────────────────────────────────────\n" +
			"frag:product:*:de:and more        1000        12.5  100\n" +
			"user:*                      10,000,000         0.1    2\n"},
		{55, "group                            keys decompress P99\n" +
			"─────────────────────────────────────────────────────\n" +
			"frag:product:*:de:and more       1000       12.5 100\n" +
			"user:*                     10,000,000        0.1   2\n"},
		{51, "group                            keys decomp. P99\n" +
			"──────────────────────────────────────────────────\n" +
			"frag:product:*:de:and more       1000    12.5 100\n" +
			"user:*                     10,000,000     0.1   2\n"},
		{48, "group                          keys decomp. P99\n" +
			"────────────────────────────────────────────────\n" +
			"frag:product:*:de:and m…       1000    12.5 100\n" +
			"user:*                   10,000,000     0.1   2\n"},
		{46, "group                            keys decomp.\n" +
			"──────────────────────────────────────────────\n" +
			"frag:product:*:de:and more       1000    12.5\n" +
			"user:*                     10,000,000     0.1\n" +
			"Left out for width, but in --json: P99\n"},
		{40, "group                             keys\n" +
			"────────────────────────────────────────\n" +
			"frag:product:*:de:and more        1000\n" +
			"user:*                      10,000,000\n" +
			"Left out for width, but in --json: P99\n" +
			"  and decompress\n"},
	} {
		got := pagetest.Written(t, test.columns, func(to page.Sheet) {
			table := to.Table(1, "group", "keys", "decompress", "P99")
			table.Short = map[string]string{"decompress": "decomp."}
			table.Drop = []string{"P99", "decompress"}
			table.Row("frag:product:*:de:and more", 1000, 12.5, 100)
			table.Row("user:*", "10,000,000", 0.1, "2")
			table.Render()
		})
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%d columns (-want +got):\n%s", test.columns, diff)
		}
	}
}

// TestTableCutsNames: where no column is left to drop, names are cut, and then columns go from the
// right.
func TestTableCutsNames(t *testing.T) {
	write := func(numbers int) string {
		return pagetest.Written(t, 40, func(to page.Sheet) {
			header, row := []string{"name", "kind"}, []any{strings.Repeat("n", 200), strings.Repeat("é", 30)}
			for range numbers {
				header, row = append(header, "number"), append(row, 1_234_567)
			}
			table := to.Table(2, header...)
			table.Row(row...)
			table.Render()
		})
	}
	pagetest.Has(t, write(1), "nnn… ", "ééé… ", "1234567")
	pagetest.Has(t, write(9), "nnn… ", "ééé… ", "1234567", "Left out for width")
}

// TestTableForged: names of a forged file, however long and many, take no time to be cut.
func TestTableForged(t *testing.T) {
	const columns, length = 30, 4 << 20
	for _, name := range []string{strings.Repeat("n", length), strings.Repeat("\xff", length), strings.Repeat("\u0301", length)} {
		header, row := make([]string, columns), make([]any, columns)
		for i := range columns {
			header[i], row[i] = fmt.Sprint(i), name[i:]
		}
		header[0] = name
		var got strings.Builder
		table := page.NewSheet(&got, 100).Table(columns, header...)
		table.Row(row...)
		table.Render()
		if got.Len() > 16<<10 {
			t.Errorf("%d bytes for a table of 100 columns", got.Len())
		}
	}
}

// TestLongLines: a line has 16 KiB of a text at most, on a terminal, too.
func TestLongLines(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		var b bytes.Buffer
		s := page.NewSheet(&b, 80)
		s.Terminal = terminal
		s.Lines("a key could not be read: " + strings.Repeat("\x01", 1<<20))
		if b.Len() > 100<<10 || !strings.HasSuffix(b.String(), "(1.0 MiB)\n") {
			t.Errorf("terminal %v: %d bytes, the last %q", terminal, b.Len(), b.String()[max(0, b.Len()-100):])
		}
	}
}
