package cli

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"

	"github.com/balekv/bale/cmd/internal/printable"
)

// The widths in columns that reports are made for; beyond the widest lines are hard to read.
const (
	narrowest = 40
	widest    = 140
)

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

// ReportWidth is how many columns a report on w takes at most; 0 for those it takes anywhere.
func ReportWidth(w io.Writer) int {
	columns := TerminalWidth(w)
	if columns == 0 {
		return 0
	}
	return min(max(columns, narrowest), widest)
}

const (
	progressInterval = 100 * time.Millisecond // the shortest time between two looks of the progress line
	progressTells    = 3                      // steps that tell how long one takes
	eraseLine        = "\r\x1b[K"
)

// ShowProgress keeps a line on w if that is a terminal. Call stop before writing anything else.
func ShowProgress(w io.Writer) (update func(done, total int, what string), stop func()) {
	if TerminalWidth(w) == 0 {
		return nil, func() {}
	}
	p := progressLine{began: time.Now()}
	var shown time.Time
	update = func(done, total int, what string) {
		now := time.Now()
		line := p.text(now, done, total, what)
		if now.Sub(shown) < progressInterval {
			return
		}
		shown = now
		// As wide as the terminal is by now, less a column, for some go on in the next line once
		// the last one is written to.
		io.WriteString(bare(w), eraseLine+text.Snip(printable.Line(line), max(1, TerminalWidth(w)-1), "…"))
	}
	return update, func() { io.WriteString(bare(w), eraseLine) }
}

// progressLine says how far something is.
type progressLine struct {
	began time.Time
	first time.Time // when the first step was seen to be done: what came before is no step
	from  int       // steps that were done by then
}

func (p *progressLine) text(now time.Time, done, total int, what string) string {
	if done == 0 || total <= 0 {
		return fmt.Sprintf("%4v  %s", now.Sub(p.began).Round(time.Second), what)
	}
	if p.first.IsZero() {
		p.first, p.from = now, done
	}
	left := ""
	if n := done - p.from; n >= progressTells {
		rest := time.Duration(float64(now.Sub(p.first)) / float64(n) * float64(total-done))
		left = fmt.Sprintf(", about %v left", rest.Round(time.Second))
	}
	return fmt.Sprintf("%3d%%%s  %s", 100*done/total, left, what)
}
