package cli

import (
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
)

// widest is how many columns a report takes at most: longer lines are hard to read.
const widest = 140

// TerminalWidth is how many columns the terminal behind w has; 0 where it is none.
func TerminalWidth(w io.Writer) int {
	f, ok := bare(w).(*os.File)
	if !ok {
		return 0
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// bare is the writer below those of a command, which takes what moves the cursor.
func bare(w io.Writer) io.Writer {
	for {
		over, ok := w.(interface{ Unwrap() io.Writer })
		if !ok {
			return w
		}
		w = over.Unwrap()
	}
}

// Sheet is stdout for a report, as wide as the terminal, or as any report where there is none.
func (s *Streams) Sheet() page.Sheet {
	columns := TerminalWidth(s.Out)
	if wanted, err := strconv.Atoi(os.Getenv("COLUMNS")); columns == 0 && err == nil {
		return page.NewSheet(s.Out, min(max(wanted, 0), widest))
	}
	to := page.NewSheet(s.Out, min(columns, widest))
	to.Terminal = columns > 0
	return to
}

const (
	progressInterval = 100 * time.Millisecond // the shortest time between two looks of the progress line
	quietInterval    = 30 * time.Second       // likewise where there is no terminal, and each look is a line
	progressTells    = 3                      // parts that tell how long one takes
	eraseLine        = "\r\x1b[K"
)

// ShowProgress keeps a line on w if that is a terminal; else it writes one now and then. Call stop
// before writing anything else.
func ShowProgress(w io.Writer) (update func(done, total int, what string), stop func()) {
	p := progressLine{began: time.Now()}
	shown, interval := time.Time{}, progressInterval
	write := func(line string) {
		// As wide as the terminal is by now, less a column, for some go on in the next line once
		// the last one is written to.
		io.WriteString(bare(w), eraseLine+fitted(line, max(1, TerminalWidth(w)-1)))
	}
	stop = func() { io.WriteString(bare(w), eraseLine) }
	if TerminalWidth(w) == 0 {
		shown, interval = p.began, quietInterval
		write = func(line string) { printable.Fprintf(w, "%s\n", strings.TrimSpace(line)) }
		stop = func() {}
	}
	return func(done, total int, what string) {
		now := time.Now()
		line := p.text(now, done, total, what)
		if now.Sub(shown) >= interval {
			shown = now
			write(printable.Line(line))
		}
	}, stop
}

var furtherCount = regexp.MustCompile(`, \d`)

// fitted shortens a line of progress to a number of columns. Counts after a comma go first, whole,
// the last one before the others. A line that is still too long ends with a whole word.
func fitted(line string, columns int) string {
	begin := len(line) - len(strings.TrimLeft(line, " "))
	status := line
	if i := strings.Index(line[begin:], "  "); i >= 0 {
		status = line[:begin+i]
	}
	what := line[len(status):]
	counts := furtherCount.FindAllStringIndex(what, -1)
	for ; text.StringWidth(status+what) > columns && len(counts) > 0; counts = counts[:len(counts)-1] {
		what = what[:counts[len(counts)-1][0]]
	}
	if line = status + what; text.StringWidth(line) <= columns {
		return line
	}
	cut := text.Trim(line, columns-1)
	if i := strings.LastIndexByte(cut, ' '); i > len(status)+1 && !strings.HasPrefix(line[len(cut):], " ") {
		cut = strings.TrimRight(cut[:i], " :")
	}
	return cut + "…"
}

// Step names one of several steps in the progress of a command: the promised rest is that of the
// step. Without progress it is nil.
func Step(
	progress func(done, total int, what string), step, of int,
) func(done, total int, what string) {
	if progress == nil {
		return nil
	}
	return func(done, total int, what string) {
		progress(done, total, fmt.Sprintf("step %d of %d: %s", step, of, what))
	}
}

// progressLine says how far a step of a command is. The promised rest of a step never grows. Where
// less is done than before, another step has begun.
type progressLine struct {
	began time.Time
	first time.Time // when the first part of the step was seen to be done: earlier time does not count
	from  int       // parts that were done by then

	done, total int
	promised    time.Duration
}

func (p *progressLine) text(now time.Time, done, total int, what string) string {
	if done == 0 || total <= 0 {
		return fmt.Sprintf("%4v  %s", now.Sub(p.began).Round(time.Second), what)
	}
	less := float64(done)/float64(total) < float64(p.done)/float64(p.total)
	if p.first.IsZero() || less || done < p.done {
		p.first, p.from, p.promised = now, done, math.MaxInt64
	}
	p.done, p.total = done, total
	left := ""
	if n := done - p.from; n >= progressTells {
		passed := now.Sub(p.first)
		// Early rates vary: a margin that shrinks as time goes by keeps the promise.
		margin := 1 + 1/math.Sqrt(1+passed.Seconds())
		rest := time.Duration(margin * float64(passed) / float64(n) * float64(total-done)).Round(time.Second)
		p.promised = min(p.promised, rest)
		left = fmt.Sprintf(", about %v left", p.promised)
	}
	return fmt.Sprintf("%3d%%%s  %s", 100*done/total, left, what)
}
