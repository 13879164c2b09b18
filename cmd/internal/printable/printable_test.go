package printable

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"
)

// hostile is what a terminal obeys, or shows elsewhere than it stands.
const hostile = "\x1b[2J\x07\u009b31m\x9b\u202e\u2066\u200b\r\nbale: all is well\tx\x7f\u2028\U000E0041"

// obeyed reports what a terminal would not just show. It is written out here, and not taken from
// the code that is tested.
func obeyed(text, keep string) []rune {
	var found []rune
	for i, r := range text {
		switch {
		case strings.ContainsRune(keep, r):
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD"),
			r < ' ', r >= 0x7F && r < 0xA0,
			r == 0x61C, r >= 0x200B && r <= 0x200F, r >= 0x2028 && r <= 0x202E, r >= 0x2060 && r <= 0x206F, r == 0xFEFF, r >= 0xE0000 && r < 0xE1000:
			found = append(found, r)
		}
	}
	return found
}

func TestEscapes(t *testing.T) {
	if bad := obeyed(Line(hostile), ""); bad != nil {
		t.Errorf("a line has %q", bad)
	}
	if bad := obeyed(Lines(hostile), "\n\t"); bad != nil || strings.Count(Lines(hostile), "\n") != 1 {
		t.Errorf("lines have %q: %q", bad, Lines(hostile))
	}
	for s, want := range map[string]string{
		"": "", "user:*": "user:*", `C:\x`: `C:\x`, "héllo 世界 🎉": "héllo 世界 🎉", "a\nb\x1b": `a\nb\x1b`, "\xff": `\xff`, "\u00a0\u202e": `\u00a0\u202e`, "\uFFFD": "\uFFFD",
	} {
		if got := Line(s); got != want || Line(got) != want {
			t.Errorf("%q: %q, and then %q, want %q", s, got, Line(got), want)
		}
	}
}

// TestLong: a name that is too long is cut between characters, with its length.
func TestLong(t *testing.T) {
	for _, test := range []struct{ s, want string }{
		{"user:1", "user:1"}, {strings.Repeat("x", maxName), strings.Repeat("x", maxName)}, {strings.Repeat("x", maxName+1), strings.Repeat("x", maxName) + "... (257 B)"},
		{strings.Repeat("x", 12345), strings.Repeat("x", maxName) + "... (12.1 KiB)"}, {strings.Repeat("x", 30_000_000), strings.Repeat("x", maxName) + "... (28.6 MiB)"},
		{strings.Repeat("世", 100), strings.Repeat("世", maxName/3) + "... (300 B)"}, {strings.Repeat("\x80", 300), strings.Repeat("\x80", maxName-utf8.UTFMax) + "... (300 B)"},
	} {
		if got := Name(test.s); got != test.want {
			t.Errorf("%.20q of %d bytes: %q", test.s, len(test.s), got)
		}
	}
	var b strings.Builder
	Fprintf(&b, "%s %v\n", strings.Repeat("x", 1<<20), errors.New(strings.Repeat("\x01", 1<<20)))
	if b.Len() > 5*maxOperand+100 || !strings.HasSuffix(b.String(), "... (1.0 MiB)\n") {
		t.Errorf("%d bytes: %s", b.Len(), b.String()[b.Len()-100:])
	}
}

// TestJSON: an escaped document means what it meant.
func TestJSON(t *testing.T) {
	want := strings.ToValidUTF8(hostile, "\uFFFD")
	document, err := json.MarshalIndent(map[string]string{hostile: hostile}, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	escaped := JSON(string(document))
	if bad := obeyed(escaped, "\n"); bad != nil {
		t.Errorf("it has %q", bad)
	}
	var got map[string]string
	if err := json.Unmarshal([]byte(escaped), &got); err != nil || got[want] != want {
		t.Errorf("%q, %v", got, err)
	}
}

// TestFprintf: no operand of any kind starts a line, and formats work as they do in fmt.
func TestFprintf(t *testing.T) {
	var b strings.Builder
	Fprintf(&b, "%s|%v|%q|%v|%v|%[1]s\n", hostile, errors.New(hostile), hostile, []string{hostile}, stringer{})
	if bad := obeyed(strings.TrimSuffix(b.String(), "\n"), ""); bad != nil {
		t.Errorf("it has %q: %q", bad, b.String())
	}
	b.Reset()
	const format = "%5d|%-6s|%06.2f|%x|%+v|%v|%%|%[2]q\n"
	Fprintf(&b, format, 7, "ab", 3.14159, "hi", struct{ A int }{1}, nil)
	if want := fmt.Sprintf(format, 7, "ab", 3.14159, "hi", struct{ A int }{1}, nil); b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

type stringer struct{}

func (stringer) String() string { return hostile }

// TestWriter: a writer escapes the same however the text is cut, and loses nothing.
func TestWriter(t *testing.T) {
	text := "a 世界 🎉\n" + hostile + "\xe4\xb8" + "x\xf0\x9f"
	for size := 1; size <= len(text); size++ {
		var b bytes.Buffer
		w := NewWriter(&b)
		for i := 0; i < len(text); i += size {
			piece := text[i:min(i+size, len(text))]
			if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		if b.String() != Lines(text) {
			t.Fatalf("in pieces of %d: %q, want %q", size, b.String(), Lines(text))
		}
	}
}

// TestShell: a shell reads each word as it was.
func TestShell(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	for _, s := range []string{"user:1", "", "it's", "$(reboot)", "`x`", `a\b`, "a b", "!!", "-x", "~", "*", hostile, "\xff'\\", "世界"} {
		word := Shell(s)
		if bad := obeyed(word, ""); bad != nil {
			t.Errorf("%q has %q", word, bad)
		}
		got, err := exec.Command(bash, "-c", "printf %s "+"x"+word).Output()
		if err != nil || string(got) != "x"+s {
			t.Errorf("%q as %s: %q, %v", s, word, got, err)
		}
	}
}

func TestOption(t *testing.T) {
	for value, want := range map[string]string{"user:*": "--match 'user:*'", "-x": "--match=-x", "--a b": "--match='--a b'", "": "--match ''", "=ls": "--match '=ls'"} {
		if got := Option("--match", value); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
}

func FuzzEscapes(f *testing.F) {
	f.Add(hostile)
	f.Fuzz(func(t *testing.T, s string) {
		line := Line(s)
		if bad := obeyed(line, ""); bad != nil || Line(line) != line {
			t.Errorf("%q: %q", line, bad)
		}
		if bad := obeyed(Shell(s), ""); bad != nil {
			t.Errorf("%q: %q", Shell(s), bad)
		}
		document, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var want, got string
		if json.Unmarshal(document, &want) != nil || json.Unmarshal([]byte(JSON(string(document))), &got) != nil || got != want {
			t.Errorf("%q: %q", document, got)
		}
	})
}

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1 << 20: "1.0 MiB", 5 << 29: "2.5 GiB", 1<<64 - 1: "16.0 EiB"} {
		if got := Size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// TestLog: a log has a line for each record, whatever the texts in it are.
func TestLog(t *testing.T) {
	var b strings.Builder
	log := Log(&b).With(hostile, hostile)
	log.Warn(hostile, "err", errors.New(hostile), "text", hostile, "long", strings.Repeat("x", 1<<20), slog.Group(hostile, hostile, hostile))
	text := b.String()
	if strings.Count(text, "\n") != 1 || len(text) > 20<<10 || !strings.Contains(text, "... (1.0 MiB)") {
		t.Errorf("%d bytes: %.2000q", len(text), text)
	}
	if found := obeyed(text, "\n"); len(found) > 0 {
		t.Errorf("%q in %.2000q", found, text)
	}
	if n := strings.Count(text, `\u202e`); n != 8 {
		t.Errorf("shown %d times in %.2000q", n, text)
	}
}

type versioned struct {
	Name string `json:"name"`
}

func (*versioned) Schema() string { return "some-v3" }

// TestWriteJSON: the JSON of a result with a schema begins with its name, and is escaped.
func TestWriteJSON(t *testing.T) {
	for want, r := range map[string]any{
		"{\n  \"schema\": \"some-v3\",\n  \"name\": \"a\\u202eb\"\n}\n": &versioned{"a\u202eb"},
		"{\n  \"name\": \"a\\u001bb\"\n}\n":                             versioned{"a\x1bb"},
		"[\n  1\n]\n":                                                   []int{1},
	} {
		var b strings.Builder
		if err := WriteJSON(&b, r); err != nil || b.String() != want {
			t.Errorf("%q, %v; want %q", b.String(), err, want)
		}
	}
	if err := WriteJSON(io.Discard, func() {}); err == nil {
		t.Error("a function has JSON")
	}
}

// TestLargeJSON: a result is written in pieces, so that whoever escapes or keeps them has no copies
// of the whole.
func TestLargeJSON(t *testing.T) {
	result := manyTexts{Texts: []string{"", strings.Repeat(hostile+"世", 20), strings.Repeat("世界", 1<<20)}}
	want := strings.ToValidUTF8(result.Texts[1], "\uFFFD")
	for range 5 { // pieces end elsewhere
		result.Texts[0] += "x"
		var written pieces
		if err := WriteJSON(&written, result); err != nil {
			t.Fatal(err)
		}
		if written.largest > 6*maxPiece { // an escape has 6 bytes
			t.Errorf("a piece of %d bytes", written.largest)
		}
		text := written.text.String()
		var got struct {
			Schema string
			manyTexts
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil || got.Schema != "texts-v1" || got.Texts[0] != result.Texts[0] || got.Texts[1] != want || got.Texts[2] != result.Texts[2] {
			t.Fatalf("%v, schema %q", err, got.Schema)
		}
		if bad := obeyed(text, "\n"); bad != nil {
			t.Fatalf("it has %q", bad)
		}
	}
}

// pieces are what was written, and the size of the largest Write.
type pieces struct {
	text    bytes.Buffer
	largest int
}

func (p *pieces) Write(b []byte) (int, error) {
	p.largest = max(p.largest, len(b))
	return p.text.Write(b)
}

type manyTexts struct {
	Texts []string `json:"texts"`
}

func (manyTexts) Schema() string { return "texts-v1" }
