package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/jedib0t/go-pretty/v6/text"
)

// amount is a number of bytes, which may be negative.
func amount(n float64) string {
	n = math.Round(n)
	sign := ""
	if n < 0 {
		sign, n = "−", -n
	}
	return sign + size(uint64(n))
}

// part is a part of a whole, in percent.
func part(n float64, of int64) string {
	if of <= 0 {
		return "0%"
	}
	return share(n / float64(of))
}

// share is a part of 1 in percent, with a digit behind the point below 10.
func share(f float64) string {
	sign, p := "", 100*f
	if p < 0 {
		sign, p = "−", -p
	}
	switch {
	case p == 0:
		return "0%"
	case p < 0.05:
		return sign + "<0.1%"
	case p < 9.95:
		return fmt.Sprintf("%s%.1f%%", sign, p)
	}
	return fmt.Sprintf("%s%.0f%%", sign, p)
}

func money(usd float64) string {
	sign := ""
	if usd < 0 {
		sign, usd = "−", -usd
	}
	if usd < 100 {
		return fmt.Sprintf("%s$%.2f", sign, usd)
	}
	return sign + "$" + thousands(int64(math.Round(usd)))
}

// microseconds are microseconds with the digits that a measurement has.
func microseconds(us float64) string {
	switch {
	case us == 0:
		return "0"
	case us < 0.095:
		return fmt.Sprintf("%.2f", us)
	case us < 99.5:
		return fmt.Sprintf("%.1f", us)
	}
	return thousands(int64(math.Round(us)))
}

// span is a time in the largest unit that fits twice.
func span(seconds float64) string {
	switch {
	case seconds >= 2*86400:
		return fmt.Sprintf("%.1f days", seconds/86400)
	case seconds >= 2*3600:
		return fmt.Sprintf("%.1f h", seconds/3600)
	case seconds >= 120:
		return fmt.Sprintf("%.0f min", seconds/60)
	case seconds >= 10:
		return fmt.Sprintf("%.0f s", seconds)
	}
	return fmt.Sprintf("%.1f s", seconds)
}

// thousands is a number with its thousands set apart.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func plural(n int, what string) string { return pluralOf(int64(n), what) }

func pluralOf(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return thousands(n) + " " + what + "s"
}

func capital(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return strings.ToUpper(s[:n]) + s[n:]
}

// keyName returns the name of a key on one line, of at most this many columns.
func keyName(name string, columns int) string {
	if name == "" {
		return `""`
	}
	return text.Snip(printable.Line(name), columns, "…")
}

// size is a number of bytes in the largest unit that it fills.
func size(n uint64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n)/(1<<10), 0
	for f >= 1<<10 {
		f, unit = f/(1<<10), unit+1
	}
	return fmt.Sprintf("%.1f %s", f, units[unit])
}

// filled are those texts that are not empty.
func filled(all ...string) []string {
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

// short is a number without digits that say nothing.
func short(f float64) string { return strconv.FormatFloat(f, 'g', 3, 64) }

// shortCount is a count in thousands or millions.
func shortCount(n float64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f billion", n/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f million", n/1e6)
	}
	return thousands(int64(n))
}

// enumerated joins names as a sentence does.
func enumerated(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}
