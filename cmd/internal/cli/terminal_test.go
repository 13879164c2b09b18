package cli

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/balekv/bale/cmd/internal/page"
)

// TestProgressLine: there is no percentage before the first step. The estimate of the remaining
// time counts from the first step, so that a slow start does not distort it.
func TestProgressLine(t *testing.T) {
	began := time.Unix(1000, 0)
	p := progressLine{began: began}
	for _, test := range []struct {
		after       time.Duration
		done, total int
		want        string
	}{
		{0, 0, 100, "  0s  at work"},
		{12 * time.Second, 0, 100, " 12s  at work"},
		{20 * time.Second, 0, 0, " 20s  at work"},
		{30 * time.Second, 1, 100, "  1%  at work"},
		{31 * time.Second, 3, 100, "  3%  at work"},
		{36 * time.Second, 4, 100, "  4%, about 4m25s left  at work"},
		{228 * time.Second, 100, 100, "100%, about 0s left  at work"},
	} {
		if got := p.text(began.Add(test.after), test.done, test.total, "at work"); got != test.want {
			t.Errorf("%d of %d after %v: %q, want %q", test.done, test.total, test.after, got, test.want)
		}
	}
}

// TestProgressImproves: the rest of ten million keys at changing rates never grows, and ends at
// zero. The next step of the command has a rest of its own.
func TestProgressImproves(t *testing.T) {
	const keys, page = 10_000_000, 1000
	began := time.Now()
	rng := rand.New(rand.NewPCG(1, 2))
	p := progressLine{began: began}
	rest := func(after time.Duration, done, total int) time.Duration {
		_, text, found := strings.Cut(p.text(began.Add(after), done, total, "x"), "about ")
		if !found {
			return -1
		}
		text, _, _ = strings.Cut(text, " left")
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	now, last := time.Duration(0), time.Duration(-1)
	for done := page; done <= keys; done += page {
		pace := 100 * time.Millisecond // 10,000 keys a second
		if done/1_000_000%2 == 1 {     // every other million is slow, and ever slower
			pace *= time.Duration(2 + done/1_000_000)
		}
		now += time.Duration(float64(pace) * (0.5 + rng.Float64()))
		got := rest(now, done, keys)
		if last >= 0 && (got > last || got < 0) {
			t.Fatalf("%d keys after %v: %v left, after %v", done, now, got, last)
		}
		if last = got; done >= 4*page && got < 0 {
			t.Fatalf("%d keys after %v: no rest", done, now)
		}
	}
	if last != 0 {
		t.Errorf("%v left in the end", last)
	}
	for _, earlier := range []struct{ done, total int }{{keys, keys}, {keys / 1000, keys}} {
		rest(now, earlier.done, earlier.total)
		for done := 1; done <= 3; done++ {
			now += time.Minute
			if got := rest(now, done, 50); got >= 0 {
				t.Errorf("%v left of a step of which %d parts are done", got, done)
			}
		}
		now += time.Minute
		if got := rest(now, 4, 50); got < 46*time.Minute {
			t.Errorf("%v left of a step with 46 parts of a minute to go", got)
		}
	}
}

// TestProgressWords: in 60 columns a line of progress has its first count and the time that is
// left, and ends with a whole word.
func TestProgressWords(t *testing.T) {
	const left = " 45%, about 1h12m34s left  "
	for line, want := range map[string]string{
		left + "10000000 keys seen, 9000000 packed":                   left + "10000000 keys seen",
		left + "10000000 keys seen, 3 unreadable":                     left + "10000000 keys seen, 3 unreadable",
		left + "step 4 of 4: 1000000 keys seen, 900000 to be packed":  left + "step 4 of 4: 1000000 keys seen",
		left + "step 3 of 4: waiting for readers":                     left + "step 3 of 4: waiting for readers",
		left + "step 2 of 3: user:*:profile, 2000 values":             left + "step 2 of 3: user:*:profile",
		left + "step 1 of 3: 1000000 keys seen, 20000 looked at":      left + "step 1 of 3: 1000000 keys seen",
		left + "step 2 of 2: cover of pieces and tables, 112 KiB":     left + "step 2 of 2: cover of pieces…",
		left + "round 3 of 10, profiles easyjson zstd:3+dict goredis": left + "round 3 of 10, profiles…",
		left + "round 3 of 10, tweets cbor zstd:3+dict goredis":       left + "round 3 of 10, tweets cbor…",
		"  0s  " + strings.Repeat("x", 100):                           "  0s  " + strings.Repeat("x", 52) + "…",
		" 45%  " + strings.Repeat("x", 60) + " y, 3 z, 4":             " 45%  " + strings.Repeat("x", 52) + "…",
	} {
		if got := fitted(line, 59); got != want {
			t.Errorf("%q\n got %q\nwant %q", line, got, want)
		}
	}
}

// TestStep: the progress of a step has its number.
func TestStep(t *testing.T) {
	if Step(nil, 1, 2) != nil {
		t.Error("a step without progress")
	}
	var p progressLine
	line := ""
	show := func(done, total int, what string) { line = p.text(time.Now(), done, total, what) }
	if Step(show, 2, 3)(1, 2, "training"); line != " 50%  step 2 of 3: training" {
		t.Errorf("%q", line)
	}
}

// TestNoTerminal: what is no terminal has no width, and gets no progress.
func TestNoTerminal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var buffer bytes.Buffer
	if w := (&Streams{Out: &checked{Writer: f}}).Sheet().Width; w != page.Width {
		t.Errorf("a file is %d columns wide", w)
	}
	if TerminalWidth(&buffer) != 0 {
		t.Error("a buffer is a terminal")
	}
	t.Setenv("COLUMNS", "72")
	if w := (&Streams{Out: &checked{Writer: f}}).Sheet().Width; w != 72 {
		t.Errorf("a file is %d columns wide, and COLUMNS 72", w)
	}
}

// TestProgressWithoutTerminal: a long command writes a line of progress now and then, and a short
// one none.
func TestProgressWithoutTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var buffer bytes.Buffer
		update, stop := ShowProgress(&buffer)
		for i := range 100 {
			update(i, 100, "at work")
			time.Sleep(time.Second)
		}
		stop()
		lines := strings.Split(strings.TrimSuffix(buffer.String(), "\n"), "\n")
		if len(lines) != 3 || !strings.HasPrefix(lines[0], "30%, about ") || !strings.HasSuffix(lines[2], "left  at work") {
			t.Errorf("%q", lines)
		}
	})
}
