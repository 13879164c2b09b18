package page

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

// Amount is a number of bytes, which may be negative.
func Amount(n float64) string {
	n = math.Round(n)
	sign := ""
	if n < 0 {
		sign, n = "−", -n
	}
	return sign + printable.Size(uint64(n))
}

// Part is a part of a whole, in percent.
func Part(n float64, of int64) string {
	if of <= 0 {
		return "0%"
	}
	return Share(n / float64(of))
}

// Share is a part of 1 in percent, with a digit behind the point below 10.
func Share(f float64) string {
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

// Money is an amount of US dollars.
func Money(usd float64) string {
	sign := ""
	if usd < 0 {
		sign, usd = "−", -usd
	}
	if usd < 100 {
		return fmt.Sprintf("%s$%.2f", sign, usd)
	}
	return sign + "$" + Thousands(int64(math.Round(usd)))
}

// Microseconds are microseconds with the digits that a measurement has.
func Microseconds(us float64) string {
	switch {
	case us == 0:
		return "0"
	case us < 0.095:
		return fmt.Sprintf("%.2f", us)
	case us < 99.5:
		return fmt.Sprintf("%.1f", us)
	}
	return Thousands(int64(math.Round(us)))
}

// Span is a time in the largest unit that fits twice.
func Span(seconds float64) string {
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

// Thousands is a number with its thousands set apart.
func Thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Plural is a number of things: "1 key", "2 keys".
func Plural(n int, what string) string { return PluralOf(int64(n), what) }

// PluralOf is Plural for an int64.
func PluralOf(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return Thousands(n) + " " + what + "s"
}

// Capital is s with its first letter in upper case.
func Capital(s string) string {
	_, n := utf8.DecodeRuneInString(s)
	return strings.ToUpper(s[:n]) + s[n:]
}

// Name returns the name of a key on one line, of at most this many columns.
func Name(name string, columns int) string {
	if name == "" {
		return `""`
	}
	return text.Snip(printable.Line(name), columns, "…")
}

// Filled are those texts that are not empty.
func Filled(all ...string) []string {
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

// Short is a number without digits that say nothing.
func Short(f float64) string { return strconv.FormatFloat(f, 'g', 3, 64) }

// ShortCount is a count in thousands or millions.
func ShortCount(n float64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1f billion", n/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.1f million", n/1e6)
	}
	return Thousands(int64(n))
}

// Enumerated joins names as a sentence does.
func Enumerated(names []string) string {
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}

// AtLeast stands before a figure that is a lower bound.
const AtLeast = "≥"
