package inspect

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stream"
)

// Result is a stored value and what is known of it.
type Result struct {
	stored    []byte
	fields    []frame.Field
	header    frame.Header
	freshness *frame.Freshness // of a loaded value, else nil
	content   content
	value     []byte // as far as it is decoded

	// Of a stream.
	manifest *stream.Manifest
	key      string
	lives    time.Duration
	chunks   *keyspace.Chunks // nil if they were not looked for, or are not whole

	now    time.Time
	prefix string // of the registry, empty for none
}

// content is what a stored value turned out to hold.
type content int

const (
	unknown content = iota // it was not found out
	plain
	unpacked
	absent    // a cached miss
	undecoded // the dictionary is missing
	chunked
)

// Write writes the explanation.
func (r *Result) Write(w io.Writer) {
	for _, f := range r.fields {
		printable.Fprintf(w, "%v\n", f)
	}
	if f := r.freshness; f != nil {
		switch left := f.Expires.Sub(r.now); {
		case f.Expires.IsZero():
			printable.Fprintf(w, "fresh: for ever\n")
		case left > 0:
			printable.Fprintf(w, "fresh: for another %s\n", about(left))
		default:
			printable.Fprintf(w, "expired: %s ago, and to be loaded anew; it is kept in case that fails\n", about(-left))
		}
	}
	switch r.content {
	case plain:
		showValue(w, r.value)
	case unpacked:
		printable.Fprintf(w, "content: %d bytes stored in %d (ratio %.2f)", len(r.value), len(r.stored), float64(len(r.value))/float64(len(r.stored)))
		if r.header.HasChecksum {
			printable.Fprintf(w, ", the checksum matches")
		}
		printable.Fprintf(w, "\n")
		showValue(w, r.value)
	case absent:
		printable.Fprintf(w, "content: none, for the frame says that there is no value: it was looked for and not found\n")
	case undecoded:
		if r.prefix == "" {
			printable.Fprintf(w, "content: not decoded, for it needs the dictionary: give it with --dict FILE\n")
		} else {
			printable.Fprintf(w, "content: not decoded, for it needs the dictionary, which the registry (prefix %s) does not hold: give it with --dict FILE, or the registry's --prefix\n", r.prefix)
		}
	case chunked:
		printable.Fprintf(w, "content: %v\nchunks: %s\n", r.manifest, chunkKeys(r.manifest, r.key))
		if r.chunks != nil {
			r.writeChunks(w)
		}
	}
}

func (r *Result) writeChunks(w io.Writer) {
	c := r.chunks
	printable.Fprintf(w, "the key lives %s; all chunks are there, with %d bytes", lifetime(r.lives), c.Bytes)
	switch {
	case c.Number == 0:
	case c.Shortest == c.Longest:
		printable.Fprintf(w, ", and live %s", lifetime(c.Shortest))
	default:
		printable.Fprintf(w, ", and live %s to %s", lifetime(c.Shortest), lifetime(c.Longest))
	}
	printable.Fprintf(w, "\n")
	if c.Number > 0 && c.Shortest < r.lives {
		printable.Fprintf(w, "WARNING: chunks expire before the key does, and the value is lost then. Right after it was written that lasts for a moment\n")
	}
}

// maxShown bounds what is shown of a value, indented, in bytes: more than people read.
const maxShown = 1 << 20

// showValue prints the start of a value that is JSON.
func showValue(w io.Writer, value []byte) {
	if !json.Valid(value) {
		printable.Fprintf(w, "value: not JSON\n")
		return
	}
	value = bytes.TrimSpace(value)
	shown, used := indented(value, maxShown)
	io.WriteString(w, printable.JSON(string(shown))+"\n")
	if left := len(value) - used; left > 0 {
		printable.Fprintf(w, "... and another %d bytes: bale unpack writes the whole value\n", left)
	}
}

// indented returns the start of valid JSON as json.Indent makes it, until it has most bytes or more,
// and the number of bytes that it read. The JSON must have no spaces around it.
func indented(value []byte, most int) (shown []byte, used int) {
	depth, opened, quoted := 0, false, false
	newline := func() { shown = append(append(shown, '\n'), strings.Repeat("  ", depth)...) }
	for used < len(value) && len(shown) < most {
		c := value[used]
		used++
		if quoted {
			shown = append(shown, c)
			if c == '\\' {
				shown = append(shown, value[used])
				used++
			}
			quoted = c != '"'
			continue
		}
		closes := c == '}' || c == ']'
		switch {
		case strings.IndexByte(" \t\r\n", c) >= 0:
			continue
		case opened && !closes: // an empty object or list stays on its line
			depth++
			newline()
		case closes && !opened:
			depth--
			newline()
		}
		shown = append(shown, c)
		opened, quoted = c == '{' || c == '[', c == '"'
		switch c {
		case ',':
			newline()
		case ':':
			shown = append(shown, ' ')
		}
	}
	return shown, used
}

// lifetime says how long a key lives.
func lifetime(d time.Duration) string {
	if d == keyspace.ForEver {
		return "for ever"
	}
	return about(d)
}

// about is a time to the second, a short one to the millisecond.
func about(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
