package advise

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/page/pagetest"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"
)

// open shows an advice in a new tab, from a file.
func open(t *testing.T, ctx context.Context, a *Advice, v pagetest.View) (context.Context, *pagetest.Seen, string) {
	t.Helper()
	address := pagetest.File(t, adviceHTML(t, a))
	tab, s := pagetest.Open(t, ctx, address, v)
	return tab, s, address
}

func TestAdviceHTMLInBrowser(t *testing.T) {
	ctx := pagetest.Browser(t)
	headings := []string{"Before you rely on it", "Saving by group", "All groups", "The largest groups", "The largest keys", "What to leave alone", "Next steps", "How it was measured"}
	for _, c := range []struct {
		name     string
		advice   *Advice
		views    []pagetest.View
		headings []string
		pictures int
	}{
		{"all", advice(), pagetest.Views, headings, 2 * detailedGroups}, // counters have no options
		{"files", files(), pagetest.Views[:3], []string{headings[0], headings[1], headings[2], headings[3], headings[6], headings[7]}, 3},
		{"none", nothing(), pagetest.Views[1:3], headings[7:], 0},
		{"unmoved", unmoved(), pagetest.Views[1:3], headings, 0},
		{"crowded", crowded(200), pagetest.Views[:3], headings, 1 + 2*detailedGroups},
	} {
		for _, v := range c.views {
			t.Run(c.name+"-"+v.Name, func(t *testing.T) {
				tab, s, address := open(t, ctx, c.advice, v)
				pagetest.Screenshot(t, tab, c.name+"-"+v.Name)
				found := pagetest.Evaluate[pagetest.Found](t, tab, pagetest.Faults)
				got := pagetest.Evaluate[[]string](t, tab, `[...document.querySelectorAll("h2")].map((h) => h.textContent)`)
				pagetest.Screenshot(t, tab, c.name+"-"+v.Name+"-open")
				for _, f := range found.Faults {
					t.Error(f)
				}
				if c.pictures > 0 && found.Pictures != c.pictures {
					t.Errorf("%d pictures, want %d", found.Pictures, c.pictures)
				}
				if diff := cmp.Diff(c.headings, got); diff != "" {
					t.Errorf("headings (-want +got):\n%s", diff)
				}
				s.Quiet(t, address)
			})
		}
	}
}

// cells evaluates to the cells of a column of the table of all groups, those that are shown.
func cells(column int) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#all tbody tr:not([hidden])")].map((r) => r.cells[%d].textContent)`, column)
}

func TestAdviceHTMLByKeyboard(t *testing.T) {
	ctx := pagetest.Browser(t)
	tab, s, address := open(t, ctx, advice(), pagetest.Views[0])
	press := func(selector, keys string) {
		t.Helper()
		pagetest.Do(t, tab, chromedp.Focus(chromedp.CSS(selector)), chromedp.KeyEvent(keys))
	}
	descending := []string{"6,100,000", "5,100,000", "2,400,000", "310,000", "120,000", "90,000", "60,000", "44,000", "41,000", "21,000", "9,000", "1,200", "300"}
	if cmp.Equal(descending, pagetest.Evaluate[[]string](t, tab, cells(5))) {
		t.Error("it was sorted before")
	}
	press(`#all th:nth-child(6) button`, kb.Enter)
	if diff := cmp.Diff(descending, pagetest.Evaluate[[]string](t, tab, cells(5))); diff != "" {
		t.Errorf("by the number of keys (-want +got):\n%s", diff)
	}
	order, said := pagetest.Evaluate[string](t, tab, `document.querySelector("#all th:nth-child(6)").ariaSort`), pagetest.Evaluate[string](t, tab, `document.getElementById("status").textContent`)
	if order != "descending" || said != "Sorted by Keys, descending" {
		t.Errorf("aria-sort is %q, and it says %q", order, said)
	}
	press(`#all th:nth-child(6) button`, " ")
	slices.Reverse(descending)
	if diff := cmp.Diff(descending, pagetest.Evaluate[[]string](t, tab, cells(5))); diff != "" {
		t.Errorf("the other way round (-want +got):\n%s", diff)
	}
	press(`#all th:nth-child(4) button`, kb.Enter) // the units differ
	bySize := pagetest.Evaluate[[]string](t, tab, cells(3))
	if n := len(bySize); n != 13 || !strings.HasSuffix(bySize[0], "GiB") || bySize[n-2] != "6.6 MiB" || bySize[n-1] != "4.4 MiB" {
		t.Errorf("by size: %v", bySize)
	}

	press(`#all-filter`, "SESSION")
	filtered, count := pagetest.Evaluate[[]string](t, tab, cells(0)), pagetest.Evaluate[string](t, tab, `document.querySelector(".filter output").textContent`)
	if !cmp.Equal(filtered, []string{"session:*"}) || count != "1 of 13" {
		t.Errorf("with the word session there are %v, %q", filtered, count)
	}

	press(`#all a[href="#group-2"]`, kb.Enter)
	if !pagetest.Get(t, tab, chromedp.Poll[bool](`document.querySelector("#group-2").closest("details").open`)) {
		t.Error("the section is closed")
	}
	press(`.copying button`, kb.Enter)
	pagetest.Get(t, tab, chromedp.Poll[bool](`document.querySelector(".copying button").textContent === "Copied"`))
	s.Quiet(t, address)
}

// TestAdviceHTMLIsOnePage: whatever was found, it prints as one page of A4, which has the answer,
// the money, the picture, the risks and the next steps.
func TestAdviceHTMLIsOnePage(t *testing.T) {
	chromium := pagetest.Chromium(t)
	warned := advice()
	for range 20 {
		warned.Warnings = append(warned.Warnings, strings.Repeat("A risk that takes many words to tell. ", 12))
	}
	full := crowded(19)
	full.Warnings = warned.Warnings[4:]
	full.next(&Options{URL: "redis://***@cache.example:6379/0"})
	for name, a := range map[string]*Advice{"all": advice(), "files": files(), "nothing": nothing(), "crowded": crowded(400), "warned": warned, "full": full} {
		dir := t.TempDir()
		html, pdf := filepath.Join(dir, "advice.html"), filepath.Join(dir, "advice.pdf")
		if err := os.WriteFile(html, []byte(adviceHTML(t, a)), 0o600); err != nil {
			t.Fatal(err)
		}
		run := exec.CommandContext(t.Context(), chromium, "--headless", "--no-sandbox", "--user-data-dir="+dir, "--print-to-pdf="+pdf, html)
		if out, err := run.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		paper, err := os.ReadFile(pdf)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(regexp.MustCompile(`/Type\s*/Page[^s]`).FindAll(paper, -1)); n != 1 {
			t.Errorf("%s: %d pages", name, n)
		}
		if folder := os.Getenv("BALE_SCREENSHOTS"); folder != "" {
			os.WriteFile(filepath.Join(folder, "page-"+name+".pdf"), paper, 0o600)
		}
	}
	tab, _, _ := open(t, pagetest.Browser(t), advice(), pagetest.Views[0])
	pagetest.Call(t, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
	for _, shown := range []string{"h1", ".figures", "svg.wide", ".warnings", ".steps p"} {
		if !pagetest.Evaluate[bool](t, tab, `document.querySelector("`+shown+`").getClientRects().length > 0`) {
			t.Errorf("%s is not on paper", shown)
		}
	}
}

// TestAdviceHTMLOnPaper prints from a browser in the dark: the paper is light, and the sections are
// open.
func TestAdviceHTMLOnPaper(t *testing.T) {
	ctx := pagetest.Browser(t)
	tab, _, _ := open(t, ctx, advice(), pagetest.Views[1])
	paper := pagetest.Get(t, tab, chromedp.PrintToPDF(chromedp.PDFPaper(chromedp.PaperA4)))
	if !bytes.HasPrefix(paper, []byte("%PDF-")) {
		t.Errorf("%.20q is no PDF", paper)
	}
	if n := pagetest.Evaluate[int](t, tab, `document.querySelectorAll("details:not([open])").length`); n > 0 {
		t.Errorf("%d sections are closed", n)
	}
	pagetest.Call(t, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print", Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}})
	if ground := pagetest.Evaluate[string](t, tab, `getComputedStyle(document.body).backgroundColor`); ground != "rgb(252, 251, 248)" {
		t.Errorf("the paper is %s", ground)
	}
	pagetest.Do(t, tab, chromedp.EmulateViewport(718, 1000)) // A4 without its margins
	for _, f := range pagetest.Evaluate[pagetest.Found](t, tab, pagetest.Faults).Faults {
		t.Error(f)
	}
	pagetest.Screenshot(t, tab, "paper")
	if folder := os.Getenv("BALE_SCREENSHOTS"); folder != "" {
		if err := os.WriteFile(filepath.Join(folder, "all.pdf"), paper, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
