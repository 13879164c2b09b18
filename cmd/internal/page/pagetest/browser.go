// Package pagetest tests pages and texts of reports: [Golden] compares one with a file, [Open]
// shows a page in a real browser, and [Faults] finds what is wrong with its layout.
package pagetest

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// View is a way to look at a page.
type View struct {
	Name          string
	width, height int64
	dark, NoJS    bool
}

// Views are the usual ones.
var Views = []View{
	{"light", 1280, 900, false, false},
	{"dark", 1280, 900, true, false},
	{"phone", 390, 844, false, false},
	{"tablet", 768, 1024, false, true},
}

// Chromium is the path of Chromium. Without one the test is skipped, or fails where
// BALE_REQUIRE_CHROMIUM is set.
func Chromium(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("BALE_REQUIRE_CHROMIUM") != "" {
			t.Fatal(err)
		}
		t.Skipf("%v (Debian: apt-get install chromium)", err)
	}
	return path
}

// Browser starts a [Chromium] for the test.
func Browser(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(Chromium(t)), chromedp.NoSandbox)...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// Do runs steps without a result.
func Do(t *testing.T, tab context.Context, steps ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	if err := chromedp.Do(tab, steps...); err != nil {
		t.Fatal(err)
	}
}

// Get runs a step, and returns its result.
func Get[T any](t *testing.T, tab context.Context, a chromedp.Action[T]) T {
	t.Helper()
	v, err := chromedp.Run(tab, a)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// Evaluate returns the value of an expression in JavaScript.
func Evaluate[T any](t *testing.T, tab context.Context, expression string) T {
	t.Helper()
	return Get(t, tab, chromedp.Evaluate[T](expression))
}

// Call runs a command of the browser.
func Call[P, R any](t *testing.T, tab context.Context, command cdp.Command[P, R], params P) {
	t.Helper()
	if _, err := chromedp.Call(tab, command, params); err != nil {
		t.Fatal(err)
	}
}

// Seen is the output and the requests of a page while it was open.
type Seen struct {
	mu       sync.Mutex
	errors   []string
	requests []string
}

func (s *Seen) listen(event any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		s.errors = append(s.errors, fmt.Sprintf("console.%s", e.Type))
	case *runtime.EventExceptionThrown:
		s.errors = append(s.errors, (&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
	case *log.EventEntryAdded:
		s.errors = append(s.errors, fmt.Sprintf("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *network.EventRequestWillBeSent:
		s.requests = append(s.requests, e.Request.URL)
	}
}

// Quiet reports what a page complained of, and requests beside its own addresses.
func (s *Seen) Quiet(t *testing.T, addresses ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.errors {
		t.Error(e)
	}
	for _, r := range s.requests {
		if !slices.Contains(append(addresses, "data:,"), r) {
			t.Errorf("it asked for %s", r)
		}
	}
}

// File writes a page into a file, and returns its address.
func File(t *testing.T, html string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, []byte(html), 0o644); err != nil {
		t.Fatal(err)
	}
	return (&url.URL{Scheme: "file", Path: file}).String()
}

// Open shows a page in a new tab.
func Open(t *testing.T, ctx context.Context, address string, v View) (context.Context, *Seen) {
	t.Helper()
	s := &Seen{}
	tab, cancel := chromedp.NewContext(ctx, chromedp.WithListener(s.listen))
	t.Cleanup(cancel)
	Do(t, tab)
	tab, cancel = context.WithTimeout(tab, 3*time.Minute)
	t.Cleanup(cancel)
	scheme := map[bool]string{true: "dark", false: "light"}[v.dark]
	Call(t, tab, network.Enable, network.EnableParams{})
	Call(t, tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	Call(t, tab, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: v.NoJS})
	var o []chromedp.EmulateViewportOption
	if v.width < 500 {
		o = append(o, chromedp.EmulateMobile)
	}
	Do(t, tab, chromedp.EmulateViewport(v.width, v.height, o...), chromedp.Navigate(address))
	return tab, s
}

// Screenshot writes what the page looks like into the folder BALE_SCREENSHOTS, if it is set.
func Screenshot(t *testing.T, tab context.Context, name string) {
	t.Helper()
	folder := os.Getenv("BALE_SCREENSHOTS")
	if folder == "" {
		return
	}
	if err := os.WriteFile(filepath.Join(folder, name+".png"), Get(t, tab, chromedp.FullScreenshot(100)), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Found is what [Faults] evaluates to.
type Found struct {
	Faults   []string `json:"faults"`
	Pictures int      `json:"pictures"` // that are shown
}

// Faults finds what is wrong with how a page is laid out; empty is good. Sections are opened first.
const Faults = `(() => {
	const faults = [];
	for (const d of document.querySelectorAll("details")) d.open = true;
	const page = document.scrollingElement;
	if (page.scrollWidth > page.clientWidth) faults.push("the page is " + page.scrollWidth + " wide, in " + page.clientWidth);
	const short = (e) => e.textContent.slice(0, 50);
	let pictures = 0;
	for (const svg of document.querySelectorAll("svg[role=img]")) {
		if (!svg.getClientRects().length) continue;
		pictures++;
		const frame = svg.getBoundingClientRect();
		const name = svg.querySelector("title").id;
		if (!(frame.width > 100 && frame.height > 20)) faults.push(name + " is " + frame.width + " x " + frame.height);
		for (const id of svg.getAttribute("aria-labelledby").split(" ")) {
			if (!document.getElementById(id)?.textContent) faults.push(name + " has no " + id);
		}
		const texts = [...svg.querySelectorAll("text")].map((e) => ({ e, box: e.getBoundingClientRect() }));
		if (texts.length < 3) faults.push(name + " has " + texts.length + " texts");
		texts.forEach(({ e, box }, i) => {
			if (parseFloat(getComputedStyle(e).fontSize) * frame.width / svg.viewBox.baseVal.width < (matchMedia("print").matches ? 8.5 : 10.95)) faults.push(name + ": too small to read: " + short(e));
			if (box.left < frame.left - 0.5 || box.right > frame.right + 0.5 || box.top < frame.top - 0.5 || box.bottom > frame.bottom + 0.5) faults.push(name + ": outside: " + short(e));
			for (const { e: other, box: b } of texts.slice(i + 1)) {
				const x = Math.min(box.right, b.right) - Math.max(box.left, b.left);
				const y = Math.min(box.bottom, b.bottom) - Math.max(box.top, b.top);
				if (x > 1 && y > 3) faults.push(name + ": " + short(e) + " overlaps " + short(other));
			}
		});
	}
	// What can be read, and where it is cut off: only in boxes that scroll.
	const clear = (c) => c === "rgba(0, 0, 0, 0)" || c === "transparent";
	const light = (c) => {
		const [r, g, b] = c.match(/[\d.]+/g).map((v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const told = new Set();
	for (const e of document.querySelectorAll("body *:not(svg, svg *, script)")) {
		if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
		const box = e.getBoundingClientRect();
		if (!e.closest(".scroll, pre, .skip, .status") && box.right > innerWidth + 0.5) faults.push("cut off: " + short(e));
		let ground = e;
		while (ground && clear(getComputedStyle(ground).backgroundColor)) ground = ground.parentElement;
		const front = getComputedStyle(e).color, back = getComputedStyle(ground ?? document.body).backgroundColor;
		const [x, y] = [light(front), light(back)];
		const contrast = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
		if (contrast < 4.5 && !told.has(front + back)) {
			told.add(front + back);
			faults.push("contrast " + contrast.toFixed(2) + ": " + front + " on " + back + ": " + short(e));
		}
	}
	for (const e of document.querySelectorAll(".scroll")) {
		if (e.tabIndex !== 0 || e.getAttribute("role") !== "region" || !e.getAttribute("aria-label")) faults.push("a box that scrolls, and not by keyboard");
	}
	const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
	for (const id of ids.filter((id, i) => ids.indexOf(id) !== i)) faults.push("twice: #" + id);
	for (const a of document.querySelectorAll("a[href^='#']")) {
		if (!document.getElementById(a.getAttribute("href").slice(1))) faults.push("nowhere: " + a.getAttribute("href"));
	}
	for (const th of document.querySelectorAll("th")) if (!th.scope) faults.push("a heading of no column or row: " + short(th));
	if (document.scripts.length !== 1 || document.images.length || window.pwned) faults.push("a name was run");
	return { faults, pictures };
})()`
