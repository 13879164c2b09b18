package outcome

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/balekv/bale/cmd/internal/page/pagetest"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"
)

// TestBenchHTMLInBrowser does all with one browser: each takes a second to start.
func TestBenchHTMLInBrowser(t *testing.T) {
	ctx := pagetest.Browser(t)
	baseline := mixed()
	baseline.faster, baseline.sweep = true, false
	open := mixed()
	open.rate, open.sweep, open.compress, open.profiles = 4000, false, open.compress[5:], nil
	codecs := whole()
	codecs.typed, codecs.codecs, codecs.compress, codecs.clients = codecs.typed[:1], []string{"json", "jsonv2", "goccy", "sonic", "jsoniter",
		"easyjson", "gob", "msgpack", "shamaton", "msgp", "cbor", "protobuf"}, []string{"none"}, []string{"goredis", "rueidis", "redigo"}
	for _, c := range []struct {
		name          string
		run, baseline *Run
		views         []pagetest.View
		sheets        int
	}{
		{"bench-mixed", outcomeOf(mixed()), nil, pagetest.Views, 3},
		{"bench-baseline", outcomeOf(mixed()), outcomeOf(baseline), pagetest.Views[1:3], 3},
		{"bench-whole", outcomeOf(whole()), nil, pagetest.Views[2:3], 10},
		{"bench-open", outcomeOf(open), nil, pagetest.Views[:1], 3},
		{"bench-codecs", outcomeOf(codecs), nil, pagetest.Views[2:3], 1},
		{"bench-study", studied(), nil, pagetest.Views, 1},
		{"bench-broken", broken(), nil, pagetest.Views[:1], 3},
		{"bench-none", &Run{}, nil, pagetest.Views[2:3], 0},
	} {
		for _, v := range c.views {
			t.Run(c.name+"-"+v.Name, func(t *testing.T) {
				address := pagetest.File(t, benchHTML(t, c.run, PageOptions{Baseline: c.baseline}))
				tab, s := pagetest.Open(t, ctx, address, v)
				pagetest.Screenshot(t, tab, c.name+"-"+v.Name)
				if n, want := len(pagetest.Evaluate[[]string](t, tab, sheets)), map[bool]int{true: c.sheets, false: min(c.sheets, 1)}[v.NoJS]; n != want {
					t.Errorf("%d sheets are shown at first, want %d", n, want)
				}
				pagetest.Evaluate[bool](t, tab, `(() => { const s = document.getElementById("picked"); if (s) { s.value = "all"; s.dispatchEvent(new Event("change", { bubbles: true })); } return true; })()`)
				if n := len(pagetest.Evaluate[[]string](t, tab, sheets)); n != c.sheets {
					t.Errorf("of all %d sheets %d are shown", c.sheets, n)
				}
				found := pagetest.Evaluate[pagetest.Found](t, tab, pagetest.Faults)
				pagetest.Screenshot(t, tab, c.name+"-"+v.Name+"-open")
				for _, f := range found.Faults {
					t.Error(f)
				}
				s.Quiet(t, address)
			})
		}
	}
	t.Run("keyboard", func(t *testing.T) { benchByKeyboard(t, ctx) })
	t.Run("live", func(t *testing.T) { benchLive(t, ctx) })
	t.Run("paper", func(t *testing.T) { benchOnPaper(t, ctx) })
}

// pressed gives an element the focus, and presses keys.
func pressed(t *testing.T, tab context.Context, selector, keys string) {
	t.Helper()
	pagetest.Do(t, tab, chromedp.Focus(chromedp.CSS(selector)), chromedp.KeyEvent(keys))
}

// sheets evaluates to the ids of the sheets that are shown.
const sheets = `[...document.querySelectorAll(".sheet:not([hidden])")].map((s) => s.id)`

// typedCells evaluates to the cells of a column, by its name, of the rows of the typed track that
// are shown.
func typedCells(column string) string {
	return fmt.Sprintf(`(() => {
		const table = document.getElementById("cells-typed-table");
		const at = [...table.tHead.rows[0].cells].findIndex((h) => h.textContent === %q);
		return [...table.tBodies[0].rows].filter((r) => !r.hidden).map((r) => r.cells[at].textContent);
	})()`, column)
}

func benchByKeyboard(t *testing.T, ctx context.Context) {
	run := broken()
	address := pagetest.File(t, benchHTML(t, run, PageOptions{}))
	tab, s := pagetest.Open(t, ctx, address, pagetest.Views[0])
	shown := func(want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, pagetest.Evaluate[[]string](t, tab, sheets)); diff != "" {
			t.Errorf("sheets (-want +got):\n%s", diff)
		}
	}
	shown("data-profile")
	pressed(t, tab, "#picked", kb.ArrowDown)
	shown("data-script-pwned-1-script-img-src-x-onerror-pwned-1")
	pressed(t, tab, "#picked-next", kb.Enter)
	shown("data-profile-2")
	pressed(t, tab, "#picked-next", " ")
	shown("data-profile", "data-script-pwned-1-script-img-src-x-onerror-pwned-1", "data-profile-2")
	pressed(t, tab, "#picked-next", kb.Enter)
	shown("data-profile")
	pressed(t, tab, `a[href="#data-profile-2"]`, kb.Enter)
	shown("data-profile-2")
	pressed(t, tab, "#picked-before", kb.Enter)
	pressed(t, tab, "#picked-before", kb.Enter)

	head := func(name string) string {
		return pagetest.Evaluate[string](t, tab, fmt.Sprintf(`(() => {
			const h = [...document.querySelectorAll("#cells-typed-table th")].find((h) => h.textContent === %q);
			h.querySelector("button").id = "pressed";
			return h.ariaSort ?? "";
		})()`, name))
	}
	before := head("Ratio")
	pressed(t, tab, "#pressed", kb.Enter)
	by := pagetest.Evaluate[[]string](t, tab, typedCells("Ratio"))
	if after := head("Ratio"); before != "" || after != "descending" || by[0] < "3.8" || by[len(by)-1] != "–" {
		t.Errorf("aria-sort was %q and is %q; by ratio: %v", before, after, by)
	}
	pressed(t, tab, "#cells-typed-table-filter", "profile zstd:3+dict 64")
	if got := pagetest.Evaluate[[]string](t, tab, typedCells("Compress")); len(got) != 8 || got[0] != "zstd:3+dict" {
		t.Errorf("with all the words there are %v", got)
	}
	pagetest.Evaluate[string](t, tab, `document.getElementById("cells-typed-table-filter").value = ""`)
	pressed(t, tab, "#cells-typed-table-filter", "failed")
	if got := pagetest.Evaluate[[]string](t, tab, typedCells("State")); len(got) != 1 || !strings.HasPrefix(got[0], "FAILED a value came back with other bytes") {
		t.Errorf("failed are %v", got)
	}
	width := func() int {
		return pagetest.Evaluate[int](t, tab, `[...document.querySelectorAll("#cells-typed-table thead th:not([hidden])")].length`)
	}
	narrow := width()
	pressed(t, tab, "#cells-typed-table-stages", " ")
	if n := width(); n != narrow+len(Stages) {
		t.Errorf("%d columns and the stages are %d", narrow, n)
	}

	pressed(t, tab, "#data-profile-profiles > summary", kb.Enter)
	pagetest.Get(t, tab, chromedp.Poll[bool](`document.querySelector("#data-profile-profiles-table tbody button") !== null`))
	pressed(t, tab, "#data-profile-profiles-table tbody tr:last-child button", kb.Enter)
	frames := pagetest.Evaluate[int](t, tab, `document.querySelectorAll("#data-profile-profiles-table-graph svg.flame g").length`)
	said := pagetest.Evaluate[string](t, tab, `document.querySelector("#data-profile-profiles-table-graph figcaption").textContent`)
	if frames < 10 || !strings.Contains(said, "Most was spent in ") {
		t.Errorf("a flame graph of %d functions, which says %q", frames, said)
	}
	pagetest.Screenshot(t, tab, "bench-flame")
	pressed(t, tab, "#data-profile-profiles-table tbody tr:last-child button", kb.Enter)
	if !pagetest.Evaluate[bool](t, tab, `document.getElementById("data-profile-profiles-table-graph").hidden`) {
		t.Error("the flame graph does not close")
	}
	s.Quiet(t, address)
}

// benchLive follows a run that goes on: what its user did stays, and it ends when the run does.
func benchLive(t *testing.T, ctx context.Context) {
	run := outcomeOf(mixed())
	var mu sync.Mutex
	cells, live, asked := 12, true, 0
	part := func(w io.Writer, write func(*Run, io.Writer, PageOptions) error) {
		mu.Lock()
		defer mu.Unlock()
		some := *run
		some.Cells, some.Sweeps = run.Cells[:cells], nil
		if err := write(&some, w, PageOptions{Live: live}); err != nil {
			t.Error(err)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /run/{$}", func(w http.ResponseWriter, _ *http.Request) {
		if err := (&Run{}).WritePage(w, PageOptions{Live: true}); err != nil {
			t.Error(err)
		}
	})
	mux.HandleFunc("GET /run/content", func(w http.ResponseWriter, _ *http.Request) {
		part(w, (*Run).WriteContent)
		mu.Lock()
		asked++
		mu.Unlock()
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	tab, s := pagetest.Open(t, ctx, server.URL+"/run/", pagetest.Views[0])
	until := func(condition string) {
		t.Helper()
		pagetest.Get(t, tab, chromedp.Poll[bool](condition))
	}
	until(`document.getElementById("answer").textContent.startsWith("12 cells")`)
	pressed(t, tab, "#data-profile-all > summary", kb.Enter)
	pagetest.Evaluate[bool](t, tab, `(() => { [...document.querySelectorAll("#cells-typed-table th")].find((h) => h.textContent === "Ratio").querySelector("button").click(); return true; })()`)
	pressed(t, tab, "#cells-typed-table-resources", " ")
	pressed(t, tab, "#cells-typed-table-filter", "dict")
	pagetest.Evaluate[bool](t, tab, `(() => { const i = document.activeElement; i.setSelectionRange(2, 3); document.querySelector("#cells-typed .scroll").scrollLeft = 40; window.same = document.getElementById("measured"); return true; })()`)
	mu.Lock()
	cells = 40 // another dataset, too
	mu.Unlock()
	until(`document.getElementById("answer").textContent.startsWith("40 cells")`)
	const state = `({
		Open: document.getElementById("data-profile-all").open, Sort: [...document.querySelectorAll("#cells-typed-table th[aria-sort]")].map((h) => h.textContent + " " + h.ariaSort),
		Resources: document.getElementById("cells-typed-table-resources").checked, Filter: document.activeElement.id + " " + document.activeElement.value, Caret: document.activeElement.selectionStart,
		Left: document.querySelector("#cells-typed .scroll").scrollLeft, Same: window.same === document.getElementById("measured"), Sheets: [...document.querySelectorAll(".sheet:not([hidden])")].map((s) => s.id).join(),
	})`
	type kept struct {
		Open      bool
		Sort      []string
		Resources bool
		Filter    string
		Caret     int
		Left      float64
		Same      bool
		Sheets    string
	}
	want := kept{true, []string{"Ratio descending"}, true, "cells-typed-table-filter dict", 2, 40, true, "data-profile"}
	if diff := cmp.Diff(want, pagetest.Evaluate[kept](t, tab, state)); diff != "" {
		t.Errorf("after new content (-want +got):\n%s", diff)
	}
	if got := pagetest.Evaluate[[]string](t, tab, typedCells("Ratio")); len(got) != 12 || !slices.IsSortedFunc(got, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Errorf("40 cells with the word dict, by ratio: %v", got)
	}
	pressed(t, tab, "#picked-next", kb.Enter)
	mu.Lock()
	cells, live = len(run.Cells), false
	mu.Unlock()
	until(`document.getElementById("answer").textContent.includes("less memory") && document.getElementById("top").dataset.live === "false"`)
	if got := pagetest.Evaluate[[]string](t, tab, sheets); !cmp.Equal(got, []string{"data-logs"}) {
		t.Errorf("the chosen sheet was data-logs, now it is %v", got)
	}
	for _, f := range pagetest.Evaluate[pagetest.Found](t, tab, pagetest.Faults).Faults {
		t.Error(f)
	}
	s.Quiet(t, server.URL+"/run/", server.URL+"/run/content")
}

// benchOnPaper prints: all sheets are on the paper.
func benchOnPaper(t *testing.T, ctx context.Context) {
	tab, _ := pagetest.Open(t, ctx, pagetest.File(t, benchHTML(t, outcomeOf(mixed()), PageOptions{})), pagetest.Views[1])
	paper := pagetest.Get(t, tab, chromedp.PrintToPDF(chromedp.PDFPaper(chromedp.PaperA4)))
	if !bytes.HasPrefix(paper, []byte("%PDF-")) {
		t.Errorf("%.20q is no PDF", paper)
	}
	if got := pagetest.Evaluate[[]string](t, tab, sheets); len(got) != 3 {
		t.Errorf("on paper there are only %v", got)
	}
}
