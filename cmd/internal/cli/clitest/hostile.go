package clitest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/tcptest"
)

// HostileText is what others may write: it clears a screen, sets a title, reorders what stands
// around it, and starts a line of its own. HostileName can be the name of a file.
const (
	Forged      = "FORGED: all is well"
	HostileText = "\x1b[2J\x1b]0;t\x07\u009b31m\u202e\u2066\u200b\x7f\r\n" + Forged + "\t\x9b\xff"
	HostileName = "g\u009b31m\u202e\u200b"
)

// CheckShown fails for what a terminal would obey, and for lines that the data began. It is written
// out here, and not taken from the code that is tested.
func CheckShown(t *testing.T, what, text string) {
	t.Helper()
	for i, r := range text {
		switch {
		case r == '\n', r == '\t':
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD"), r < ' ', r >= 0x7F && r < 0xA0,
			r == 0x61C, r >= 0x200B && r <= 0x200F, r >= 0x2028 && r <= 0x202E, r >= 0x2060 && r <= 0x206F, r == 0xFEFF:
			t.Errorf("%s: %q is in %q", what, r, text[max(0, i-100):min(len(text), i+100)])
			return
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, Forged) {
			t.Errorf("%s: the data began a line of\n%s", what, text)
			return
		}
	}
}

// HostileRun runs a command, and checks all it says. It must mention the data if it has to, so that
// the test sees something.
func HostileRun(t *testing.T, app cli.App, mentions bool, stdin string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	code, out, errs := Served(ctx, app, nil, strings.NewReader(stdin), args...)
	what := fmt.Sprintf("%s %.120q", app.Name, args)
	CheckShown(t, what+" to stdout", out)
	CheckShown(t, what+" to stderr", errs)
	if all := out + errs; mentions && !strings.Contains(all, `\u202e`) {
		t.Errorf("%s (exit status %d) does not show the data:\n%s", what, code, all)
	}
	if testing.Verbose() {
		t.Logf("%s: exit status %d\n%s%s", what, code, out, errs)
	}
}

// ReadPage reads a page, whose figures and units stand together by a space that does not break.
func ReadPage(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(b), "\u00a0", " ")
}

// HostileFiles writes files into a folder: file by a name, and hostile by the end of a hostile
// name. It returns functions that return the path.
func HostileFiles(t *testing.T, dir string) (file, hostile func(name string, content []byte) string) {
	file = func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		OK(t, os.WriteFile(path, content, 0o600))
		return path
	}
	return file, func(suffix string, content []byte) string {
		return file(strings.ToValidUTF8(HostileText, "")+suffix, content)
	}
}

// HostileValue is a value with a number: JSON with hostile names and texts.
func HostileValue(t *testing.T, i int) []byte {
	t.Helper()
	v, err := json.Marshal(map[string]any{HostileText: HostileText, "\u202eid": i, "text": "some words that are in all of these values, and some more of them"})
	OK(t, err)
	return v
}

// HostileServer answers every command with a hostile error.
func HostileServer(t *testing.T) string {
	t.Helper()
	reply := "ERR " + HostileText
	return "redis://" + tcptest.Listen(t, func(c net.Conn) {
		for r := bufio.NewReader(c); ; {
			_, command, err := ReadCommand(r)
			if err != nil {
				return
			}
			answer := fmt.Sprintf("!%d\r\n%s\r\n", len(reply), reply)
			switch strings.ToUpper(command[0]) {
			case "HELLO":
				answer = "%1\r\n+proto\r\n:3\r\n"
			case "CLIENT", "PING":
				answer = "+OK\r\n"
			}
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	})
}

// ReadCommand reads an array of bulk strings.
func ReadCommand(r *bufio.Reader) (raw []byte, command []string, err error) {
	number := func(kind string) (int, error) {
		line, err := r.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, kind) {
			return 0, errors.Join(err, fmt.Errorf("%q", line))
		}
		raw = append(raw, line...)
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	n, err := number("*")
	for i := 0; i < n && err == nil; i++ {
		var size int
		if size, err = number("$"); err == nil {
			b := make([]byte, size+2)
			_, err = io.ReadFull(r, b)
			raw, command = append(raw, b...), append(command, string(b[:size]))
		}
	}
	return raw, command, err
}
