package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/flame"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/cmd/internal/report"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/stats"
)

// hostileText is what others may write: it clears a screen, sets a title, reorders what stands
// around it, and starts a line of its own. hostileName can be the name of a group, which has no
// control characters but those beyond 7F.
const (
	forged      = "FORGED: all is well"
	hostileText = "\x1b[2J\x1b]0;t\x07\u009b31m\u202e\u2066\u200b\x7f\r\n" + forged + "\t\x9b\xff"
	hostileName = "g\u009b31m\u202e\u200b"
)

// checkShown fails for what a terminal would obey, and for lines that the data began. It is written
// out here, and not taken from the code that is tested.
func checkShown(t *testing.T, what, text string) {
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
		if strings.HasPrefix(line, forged) {
			t.Errorf("%s: the data began a line of\n%s", what, text)
			return
		}
	}
}

// hostileRun runs a command, and checks all it says. It must mention the data if it has to, so that
// the test sees something.
func hostileRun(t *testing.T, mentions bool, args ...string) {
	t.Helper()
	hostileRunWith(t, mentions, "", args...)
}

func hostileRunWith(t *testing.T, mentions bool, stdin string, args ...string) {
	t.Helper()
	var out, errs bytes.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	code := run(ctx, args, strings.NewReader(stdin), &out, &errs)
	what := fmt.Sprintf("bale %.120q", args)
	checkShown(t, what+" to stdout", out.String())
	checkShown(t, what+" to stderr", errs.String())
	if all := out.String() + errs.String(); mentions && !strings.Contains(all, `\u202e`) {
		t.Errorf("%s (exit status %d) does not show the data:\n%s", what, code, all)
	}
	if testing.Verbose() {
		t.Logf("%s: exit status %d\n%s%s", what, code, &out, &errs)
	}
}

// TestHostile feeds every command with hostile keys, fields, values, names and answers, and looks
// at every byte that it prints.
func TestHostile(t *testing.T) {
	ctx := context.Background()
	server := redisproc.ForTest(t)
	url := server.URL()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(o)
	defer client.Close()
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	hostileFile := func(suffix string, content []byte) string {
		return file(strings.ToValidUTF8(hostileText, "")+suffix, content)
	}
	values := bytes.Buffer{}
	for i := range 400 {
		v, err := json.Marshal(map[string]any{hostileText: hostileText, "\u202eid": i, "text": "some words that are in all of these values, and some more of them"})
		if err != nil {
			t.Fatal(err)
		}
		values.Write(append(v, '\n'))
		client.Set(ctx, fmt.Sprintf("%s:%d", hostileText, i), v, 0)
		client.Set(ctx, fmt.Sprintf("-%s:%d", hostileName, i), v, 0)
		client.HSet(ctx, hostileText+"hash", hostileText+strconv.Itoa(i), v)
	}
	client.LPush(ctx, hostileText+"list", hostileText)
	raw := "{\"\u202ea\u009b\x7f\": \"\u2066" + "\xff\"}"
	client.Set(ctx, hostileText+"raw", raw, 0)
	data := hostileFile(".ndjson", values.Bytes())
	dictionary := hostileFile(".dict", bytes.Repeat([]byte("some words that are in all of these values, "), 30))
	d, err := readDictionary(dictionary)
	if err != nil {
		t.Fatal(err)
	}
	id := d.ID().String()

	t.Run("usage", func(t *testing.T) {
		hostileRun(t, true, hostileText)
		hostileRun(t, true, "dict", hostileText)
		hostileRun(t, true, "--"+hostileText)
		hostileRun(t, true, "dict", "show", hostileText)
		hostileRun(t, true, "inspect", hostileText)
		hostileRun(t, true, "bench", "--codec", hostileText)
		hostileRun(t, true, "study", hostileText)
		hostileRun(t, true, "bench", "--ab", hostileText, hostileText)
	})
	t.Run("dict", func(t *testing.T) {
		at := func(args ...string) []string { return append(args, "--redis", url) }
		hostileRun(t, true, at("dict", "publish", dictionary, "--group", hostileName)...)
		hostileRun(t, true, at("dict", "publish", dictionary, "--group", hostileText)...)
		hostileRun(t, true, at("dict", "activate", id, "--group", hostileName, "--force")...)
		poisonRegistry(t, client)
		hostileRun(t, true, at("dict", "list")...)
		hostileRun(t, true, at("dict", "list", "--scan")...)
		hostileRun(t, true, at("dict", "list", "--json")...)
		hostileRun(t, true, at("dict", "list", "--group", hostileText)...)
		hostileRun(t, false, at("dict", "list", "--prefix", hostileText+":")...)
		hostileRun(t, true, at("dict", "show", id)...)
		hostileRun(t, false, "dict", "show", dictionary)
		hostileRun(t, true, at("dict", "export", "--group", hostileName, "--out", filepath.Join(dir, hostileName))...)
		hostileRun(t, true, at("dict", "import", filepath.Join(dir, hostileName), "--group", hostileName+"2")...)
		hostileRun(t, true, at("dict", "rollback", "--group", hostileName)...)
		hostileRun(t, true, at("dict", "remove", id, "--group", hostileName)...)
		hostileRun(t, true, at("dict", "gc")...)
		hostileRun(t, true, at("dict", "servers")...)
		hostileRun(t, true, at("dict", "servers", "--json")...)
		hostileRun(t, false, at("dict", "grace")...)
		hostileRun(t, true, at("dict", "remove", id, "--group", hostileName, "--force")...)
		hostileRun(t, true, at("dict", "restore", id, "--group", hostileName+"3")...)
		hostileRun(t, true, at("dict", "servers", "--forget", hostileText)...)
		hostileRun(t, false, at("dict", "servers", "--forget", "x")...)
		hostileRun(t, true, at("dict", "gc", "--empty", "--accept-moves")...)
		hostileRun(t, true, at("dict", "gc", "--empty", "--accept-moves", "--apply")...)
		hostileRun(t, true, at("migrate", "--match", "*", "--dry-run", "--dict", "current", "--group", hostileName)...)
		client.Set(ctx, "bale:dict:group:"+hostileName, hostileText, 0)
		hostileRun(t, true, at("dict", "list")...)
		client.Del(ctx, "bale:dict:groups", "bale:dict:settings", "bale:dict:group:"+hostileName)
	})
	t.Run("values", func(t *testing.T) {
		hostileRun(t, true, "inspect", "--redis", url, "--key", hostileText+":1")
		hostileRun(t, true, "inspect", "--redis", url, "--key", hostileText+"hash", "--field", hostileText+"1")
		hostileRun(t, true, "inspect", "--redis", url, "--key", hostileText+"raw")
		hostileRun(t, true, "inspect", "--redis", url, "--key", hostileText+"list")
		hostileRun(t, true, "inspect", "--redis", url, "--key", hostileText+"none")
		hostileRunWith(t, true, raw, "inspect")
		client.Set(ctx, hostileText+"bad", unknownFrame(), 0)
		hostileRun(t, true, "inspect", "--redis", url, "--key", hostileText+"bad", "--prefix", hostileText)
		hostileRun(t, true, "verify", "--redis", url)
		hostileRun(t, true, "verify", "--redis", url, "--json", "-")
		hostileRun(t, true, "train", "--data", data, "--out", filepath.Join(dir, "trained"), "--exclude", hostileText+","+hostileText)
		hostileRun(t, true, "train", "--data", data, "--out", filepath.Join(dir, "trained"), "--json", "-")
		hostileRun(t, false, "train", "--redis", url, "--out", filepath.Join(dir, "trained"))
		hostileRun(t, true, "dict", "publish", dictionary, "--group", "g", "--redis", url, "--training", hostileFile("training", []byte("{\"winner\":{},\"compress\":\"\u202e\"}")))
		hostileRun(t, true, "migrate", "--redis", url, "--match", "*", "--dry-run")
		hostileRun(t, true, "migrate", "--redis", url, "--match", hostileText+"*", "--dry-run", "--json", "-")
		hostileRun(t, true, "migrate", "--redis", url, "--match", "*", "--resume", file("state", poisonedState(t)))
		hostileRun(t, true, "migrate", "--redis", url, "--match", "*", "--dict", "auto", "--group", hostileText, "--dry-run")
		hostileRun(t, true, "migrate", "--redis", url, "--match", "*")
		hostileRun(t, true, "migrate", "--redis", url, "--match", "*", "--revert")
	})
	t.Run("advise", func(t *testing.T) {
		page := filepath.Join(dir, "advice.html")
		shown := []string{"--all", "--show-samples", "--sample", "60", "--html", page}
		hostileRun(t, true, append([]string{"advise", "--redis", url, "--match", "*FORGED*"}, shown...)...)
		hostileRun(t, true, append([]string{"advise", "--redis", url}, shown...)...)
		checkShown(t, "the page of bale advise", readPage(t, page))
		hostileRun(t, true, append([]string{"advise", "--data", data, "--json", "-"}, shown...)...)
		hostileRun(t, true, append([]string{"advise", "--data", data}, shown...)...)
		checkShown(t, "the page of bale advise", readPage(t, page))
		version := "7.0.0\u202e\x1b[2J\n" + forged
		newer := "REDIS0099\xfa\x09redis-ver" + string(rune(len(version))) + version + "\xff" + strings.Repeat("\x00", 8)
		hostileRun(t, true, "advise", "--rdb", file("newer.rdb", []byte(newer)))
		hostileRun(t, true, "advise", "--rdb", hostileFile(".rdb", []byte(hostileText)))
	})
	t.Run("stats", func(t *testing.T) {
		var events bytes.Buffer
		b := &stats.Batch{From: time.Unix(1, 0), To: time.Unix(2, 0), Groups: []string{hostileText, hostileText},
			Events: []stats.Event{{Op: stats.Get, Keys: 1, Hits: 1, Timed: true}, {Op: stats.Get, Class: stats.Timeout, Keys: 1, Errors: 1}}}
		if err := stats.NewFile(&events).Write(ctx, b); err != nil {
			t.Fatal(err)
		}
		path := hostileFile(".events", append(events.Bytes(), 1, 2, 3))
		hostileRun(t, true, "stats", path)
		hostileRun(t, true, "stats", "--json", "-", path)
		hostileRun(t, true, "stats", "--group", hostileText, path)
		hostileRun(t, true, "stats", hostileText)
	})
	t.Run("results", func(t *testing.T) {
		results, page := filepath.Join(dir, "results.json"), filepath.Join(dir, "bench.html")
		bench := []string{"bench", "--redis", url, "--data", data, "--compress", "none,zstd", "--concurrency", "1", "--duration", "20ms", "--repeat", "2", "--values", "40"}
		hostileRun(t, true, append(slices.Clone(bench), "--json", results, "--html", page)...)
		text, err := os.ReadFile(results)
		if err != nil {
			t.Fatal(err)
		}
		checkShown(t, "the JSON of bale bench", string(text))
		checkShown(t, "the page of bale bench", readPage(t, page))
		var run, other outcome.Run
		if json.Unmarshal(text, &run) != nil || json.Unmarshal(text, &other) != nil {
			t.Fatal("the JSON of bale bench is none")
		}
		for i, r := range []*outcome.Run{&run, &other} {
			r.Skipped = []outcome.Skipped{{}}
			r.Dictionaries = []outcome.Dictionary{{}, {Payload: 1}}
			r.Environment.Libraries = []outcome.Library{{}}
			r.Environment.Notes = []string{"", busyMachine}
			r.Findings = []outcome.Finding{{Says: []string{"", ""}, Columns: []string{"", ""}, Rows: [][]outcome.Figure{{{}, {}}}}}
			r.Cells = append(r.Cells, r.Cells[0])
			r.Cells[len(r.Cells)-1].Verified = false
			poison(reflect.ValueOf(r).Elem(), hostileText+strconv.Itoa(i))
			r.Cells[0].Error = ""
			r.Cells[0].Stages[hostileText] = outcome.Stage{P50: 1}
			r.Cells[0].Profiles = map[string]outcome.Profile{hostileText: {File: hostileText, Shares: map[string]float64{hostileText: 1},
				Tree: &flame.Tree{Unit: "bytes", Total: 9, Nodes: []flame.Node{{Name: "all", Value: 9}, {Name: hostileText, Depth: 1, Value: 9}}}}}
			r.Timeline = []outcome.Moment{{Doing: hostileText}, {AtS: 1, Doing: hostileText}}
		}
		write := func(name string, r *outcome.Run) string {
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			return file(name, b)
		}
		old, now := write("old.json", &run), write("new.json", &other)
		hostileRun(t, true, "compare", "--all", old, now)
		hostileRun(t, true, "compare", old, now)
		hostileRun(t, true, "compare", "--json", "-", old, now)
		hostileRun(t, true, "compare", hostileFile("old", []byte("cpu: \u202e\x1b\nBenchmarkX/\u202e\x1b[2J 1 100 ns/op\n")), hostileFile("new", []byte("BenchmarkX/\u202e\x1b[2J 1 100 ns/op 5 \u202e/op\n")))
		hostileRun(t, true, append(slices.Clone(bench), "--baseline", old, "--html", page)...)
		checkShown(t, "the page of bale bench with a baseline", readPage(t, page))
		ab := file("ab.txt", []byte("goos: \u202e\x1b\r\nBenchmarkX/\u202e\x1b[2J 1 100 ns/op 5 \u202e/op\n"))
		hostileRun(t, true, "bench", "--ab", "--blocks", "1", "--all", "cat "+ab, "cat "+ab)
		hostileRun(t, true, "bench", "--ab", "--blocks", "1", "grep -r . "+ab+" /nothing/\u202e", "false")
		hostileRun(t, true, append(slices.Clone(bench), "--go-bench", "-")...)
		for _, findings := range []bool{true, false} {
			if !findings {
				run.Findings = nil
			}
			var table, pages bytes.Buffer
			report.Table(&table, &run, report.Options{Stages: true})
			checkShown(t, "the tables of a run", table.String())
			if err := report.BenchHTML(&pages, &run, &other, report.BenchOptions{}); err != nil {
				t.Fatal(err)
			}
			checkShown(t, "the page of a run", strings.ReplaceAll(pages.String(), "\u00a0", " "))
		}
	})
	t.Run("answers", func(t *testing.T) {
		at := hostileServer(t)
		hostileRun(t, true, "inspect", "--redis", at, "--key", "k")
		hostileRun(t, true, "verify", "--redis", at)
		hostileRun(t, true, "advise", "--redis", at)
		hostileRun(t, true, "train", "--redis", at, "--out", filepath.Join(dir, "trained"))
		hostileRun(t, true, "migrate", "--redis", at, "--match", "*")
		hostileRun(t, true, "bench", "--redis", at)
		for _, args := range [][]string{{"list"}, {"gc"}, {"servers"}, {"grace"}, {"show", id}, {"publish", dictionary, "--group", "g"}, {"activate", id, "--group", "g"},
			{"rollback", "--group", "g"}, {"remove", id, "--group", "g"}, {"restore", id}, {"export", "--group", "g", "--out", dir}, {"import", dir, "--group", "g"}} {
			hostileRun(t, true, append(append([]string{"dict"}, args...), "--redis", at)...)
		}
	})
}

// TestInspectNested: what is shown of a value is bounded by its size, however deep it nests.
func TestInspectNested(t *testing.T) {
	for depth, lines := range map[int]bool{20: true, 9000: false, 20_000: false} { // encoding/json reads 10,000
		value := strings.Repeat(`{"]\"[":[`, depth/2) + strings.Repeat("1,", 5000) + "1" + strings.Repeat("]}", depth/2)
		var out, errs bytes.Buffer
		if code := run(t.Context(), []string{"inspect"}, strings.NewReader(value), &out, &errs); code != exitDone {
			t.Fatalf("%s", &errs)
		}
		if n := out.Len(); n > 20*len(value)+128<<10 || lines != (strings.Count(out.String(), "\n") > 5000) {
			t.Errorf("%d deep: %d bytes of %d", depth, n, len(value))
		}
	}
}

// TestPrintsPrintable: what reaches people is formatted by package printable, which escapes every
// operand. Text in memory (&b) is on its way there, and markup has escapes of its own.
func TestPrintsPrintable(t *testing.T) {
	for _, dir := range []string{".", "../internal/report"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) < 10 {
			t.Fatal(files, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			parsed, err := parser.ParseFile(set, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				if f, ok := call.Fun.(*ast.SelectorExpr); ok {
					from, _ := f.X.(*ast.Ident)
					if from == nil || from.Name != "fmt" || !strings.HasPrefix(f.Sel.Name, "Print") && !strings.HasPrefix(f.Sel.Name, "Fprint") {
						return true
					}
					if to, ok := call.Args[0].(*ast.UnaryExpr); !ok || to.Op != token.AND {
						t.Errorf("%v: fmt.%s prints what others wrote as it is: use printable.Fprintf", set.Position(call.Pos()), f.Sel.Name)
					}
				}
				return true
			})
		}
	}
}

// readPage reads a page, whose figures and units stand together by a space that does not break.
func readPage(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(b), "\u00a0", " ")
}

// poisonRegistry puts hostile text into all that the registry keeps as text.
func poisonRegistry(t *testing.T, client *redis.Client) {
	t.Helper()
	ctx := context.Background()
	change := func(key string, change func(map[string]any)) {
		b, err := client.Get(ctx, key).Bytes()
		if err != nil {
			t.Fatal(key, err)
		}
		var m map[string]any
		d := json.NewDecoder(bytes.NewReader(b))
		d.UseNumber()
		if err := d.Decode(&m); err != nil {
			t.Fatal(key, err)
		}
		change(m)
		if b, err = json.Marshal(m); err == nil {
			err = client.Set(ctx, key, b, 0).Err()
		}
		if err != nil {
			t.Fatal(key, err)
		}
	}
	change("bale:dict:group:"+hostileName, func(m map[string]any) {
		for _, e := range m["dictionaries"].([]any) {
			e.(map[string]any)["info"] = dict.Info{Setting: hostileText, Builder: hostileText, Ratio: 2, RatioWithout: 1}
		}
		long := time.Unix(1e9, 0)
		m["dictionaries"] = append(m["dictionaries"].([]any), dict.Entry{ID: 0xdeadbeef, Size: 9, Published: long, Activated: long, Retired: long, Used: long, Uses: 1})
	})
	change("bale:dict:settings", func(m map[string]any) {
		m["servers"] = []dict.Server{{ID: hostileText, Name: hostileText, Seen: time.Unix(1e9, 0)}, {ID: "x", Name: "redis://" + hostileText + "/0"}}
	})
}

// poison adds a text to every string in a value, but to names that code knows.
func poison(v reflect.Value, text string) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + text)
	case reflect.Pointer:
		if !v.IsNil() {
			poison(v.Elem(), text)
		}
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i), text)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				poison(v.Field(i), text)
			}
		}
	}
}

// poisonedState is a file of bale migrate --resume that somebody else wrote.
func poisonedState(t *testing.T) []byte {
	t.Helper()
	b, err := json.Marshal(map[string]any{"version": 1, "settings": map[string]string{hostileText: hostileText}, "result": map[string]any{"left": map[string]any{}},
		"places": []map[string]string{{"addr": hostileText, "run_id": hostileText}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// unknownFrame is packed with a dictionary that nobody has.
func unknownFrame() []byte {
	h := frame.Header{Algorithm: frame.Zstd, DictionaryID: 0x0badf00d, HasChecksum: true}
	return append(h.Append(nil), "whatever"...)
}

// hostileServer answers every command with a hostile error.
func hostileServer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	reply := "ERR " + hostileText
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for r := bufio.NewReader(c); ; {
					_, command, err := readCommand(r)
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
			}()
		}
	}()
	return "redis://" + l.Addr().String()
}
