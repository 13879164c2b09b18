// Package printable makes untrusted text safe on a terminal, in a log and on a page: keys, names of
// groups and files, answers of servers, strings of JSON. Such text may hold escape sequences, line
// breaks and marks that reorder the text around them.
//
// [Fprintf] escapes what it formats, [Line] and [Lines] a string, [JSON] a document, and [Shell]
// and [Option] the words of a command to be pasted. [Writer] is the last defence: it keeps
// everything from a terminal that would move the cursor or reorder text. [Name] shortens a long
// name.
//
// All of them leave what [unicode.IsPrint] calls printable as it is, so that escaping twice changes
// nothing.
package printable

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Line returns s on one line. Characters that are invisible, or move the text around them, become
// Go escapes. These are control characters, line breaks, tabs, marks of direction, spaces other
// than ' ', and bytes that are not UTF-8.
func Line(s string) string { return escaped(s, "", goEscape) }

// What is shown of a text at most, in bytes.
const (
	maxName    = 256      // of a key, a field or another name
	maxOperand = 16 << 10 // of Fprintf: messages name keys, too
)

// Name returns the name of a key, or another untrusted name, in a short form: its first 256 bytes,
// and its length.
func Name(s string) string { return cut(s, maxName) }

// cut leaves out what is beyond n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	start := n
	for start > n-utf8.UTFMax && !utf8.RuneStart(s[start]) {
		start--
	}
	return s[:start] + "... (" + Size(len(s)) + ")"
}

// Log writes a line of key=value pairs for each record. Its handler quotes untrusted text, and a
// text has at most 16 KiB: errors have what a server answers.
func Log(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if kind := a.Value.Kind(); kind == slog.KindString || kind == slog.KindAny {
			a.Value = slog.StringValue(cut(a.Value.String(), maxOperand))
		}
		return a
	}}))
}

// Size is a number of bytes in the largest unit that it fills, the one form for people. Exact bytes
// are for single values (inspect, B/value, B/key), for what does not match, and for JSON.
func Size[N int | int64 | uint64](n N) string {
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	f, unit := float64(n)/(1<<10), 0
	for f >= 1<<10 {
		f, unit = f/(1<<10), unit+1
	}
	return fmt.Sprintf("%.1f %ciB", f, "KMGTPE"[unit])
}

// Lines is Line for text of many lines: line feeds and tabs stay.
func Lines(s string) string { return escaped(s, "\n\t", goEscape) }

// JSON returns a JSON document with the same escapes, in JSON's form. The meaning stays the same,
// except that bytes that are not UTF-8 become U+FFFD, as in encoding/json. Line feeds stay; there
// must be no other white space between the items.
func JSON(document string) string { return escaped(document, "\n", jsonEscape) }

// goEscape is an escape as strconv.Quote writes it. Invalid is a byte that is not UTF-8.
func goEscape(r rune, invalid bool) string {
	if invalid {
		return fmt.Sprintf(`\x%02x`, r)
	}
	return strings.Trim(strconv.QuoteRune(r), "'")
}

func jsonEscape(r rune, invalid bool) string {
	if invalid {
		r = utf8.RuneError
	}
	var b strings.Builder
	for _, unit := range utf16.AppendRune(nil, r) {
		fmt.Fprintf(&b, `\u%04x`, unit)
	}
	return b.String()
}

func escaped(s, keep string, escape func(r rune, invalid bool) string) string {
	strange := func(r rune) bool { return !unicode.IsPrint(r) && !strings.ContainsRune(keep, r) }
	if utf8.ValidString(s) && !strings.ContainsFunc(s, strange) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b.WriteString(escape(rune(s[i]), true))
		case strange(r):
			b.WriteString(escape(r, false))
		default:
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}

// Fprintf is fmt.Fprintf whose operands are each on one line, as Line has them, whatever their
// type, and of 16 KiB at most. Only the format can start a line. It returns no error: the command's
// writers keep theirs.
func Fprintf(w io.Writer, format string, a ...any) {
	for i := range a {
		a[i] = operand{a[i]}
	}
	fmt.Fprintf(w, format, a...)
}

// Count is a number of things: "1 dictionary", "2 dictionaries".
func Count[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}

// operand is one of Fprintf.
type operand struct{ value any }

// Format implements fmt.Formatter.
func (o operand) Format(s fmt.State, verb rune) {
	io.WriteString(s, Line(cut(fmt.Sprintf(fmt.FormatString(s, verb), o.value), maxOperand)))
}

// Shell returns s as one word for a shell; zsh would look for a command after an equals sign. A
// word that starts with a dash may still be taken for an option: see [Option].
func Shell(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:@%+=,", r)
	}
	switch {
	case s != "" && s[0] != '=' && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0:
		return s
	case Line(s) == s:
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	var b strings.Builder // bash, ksh and zsh know $'...'
	for _, c := range []byte(s) {
		if c < ' ' || c >= 0x7F || c == '\'' || c == '\\' {
			fmt.Fprintf(&b, `\x%02x`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return "$'" + b.String() + "'"
}

// Option returns an option of a command and its value, to be pasted: "--match 'user:*'", or
// "--match='-user:*'" where the value would pass for an option.
func Option(name, value string) string {
	if strings.HasPrefix(value, "-") {
		return name + "=" + Shell(value)
	}
	return name + " " + Shell(value)
}

// Writer escapes what is written to it as Lines does, so that nothing a command forgot to escape
// reaches a terminal. A character may be split over writes. It may be used by several goroutines at
// once. Flush it in the end.
type Writer struct {
	to   io.Writer
	lock sync.Mutex
	rest []byte // the start of a character
}

// NewWriter returns a Writer to another one.
func NewWriter(to io.Writer) *Writer { return &Writer{to: to} }

// Unwrap returns the writer below, for binary data.
func (w *Writer) Unwrap() io.Writer { return w.to }

// Write implements io.Writer. After an error it is not known how much was written.
func (w *Writer) Write(b []byte) (int, error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	text := append(w.rest, b...)
	whole := len(text) - startedRune(text)
	w.rest = append([]byte(nil), text[whole:]...)
	if _, err := io.WriteString(w.to, Lines(string(text[:whole]))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Flush writes what is left of a character that never came to its end.
func (w *Writer) Flush() error {
	w.lock.Lock()
	defer w.lock.Unlock()
	_, err := io.WriteString(w.to, Lines(string(w.rest)))
	w.rest = nil
	return err
}

// startedRune is how many bytes at the end of a text start a character that goes on behind it.
func startedRune(text []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if tail := text[len(text)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// Versioned is a result whose JSON is an object with a schema in docs/schemas. Schema is its name
// and version: "advise-v1".
type Versioned interface{ Schema() string }

// WriteJSON writes the result as indented JSON, with escapes for what a terminal would obey. The
// first field of one that is [Versioned] is "schema".
func WriteJSON(w io.Writer, r any) error {
	e := json.NewEncoder(&document{w, r})
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// document escapes the JSON of a result piece by piece: it may be large, and is in memory as the
// Encoder has it alone.
type document struct {
	to     io.Writer
	result any // nil when its schema is written
}

const maxPiece = 64 << 10 // bytes

// Write implements io.Writer, for the whole of a result.
func (d *document) Write(b []byte) (n int, err error) {
	n = len(b)
	if v, ok := d.result.(Versioned); ok {
		b = bytes.TrimPrefix(b, []byte("{"))
		_, err = fmt.Fprintf(d.to, "{\n  \"schema\": %q,", v.Schema())
	}
	d.result = nil
	for len(b) > 0 && err == nil {
		piece := b[:min(len(b), maxPiece)]
		if len(piece) < len(b) {
			piece = piece[:len(piece)-startedRune(piece)]
		}
		b = b[len(piece):]
		_, err = io.WriteString(d.to, JSON(string(piece)))
	}
	return n, err
}
