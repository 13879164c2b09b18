package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/dictops"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/stats"
	"github.com/balekv/bale/stats/eventfile"
)

// hostileRun runs a command, and checks all it says.
func hostileRun(t *testing.T, mentions bool, args ...string) {
	t.Helper()
	clitest.HostileRun(t, app, mentions, "", args...)
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
	file, hostileFile := clitest.HostileFiles(t, dir)
	values := bytes.Buffer{}
	for i := range 400 {
		v := clitest.HostileValue(t, i)
		values.Write(append(v, '\n'))
		client.Set(ctx, fmt.Sprintf("%s:%d", clitest.HostileText, i), v, 0)
		client.Set(ctx, fmt.Sprintf("-%s:%d", clitest.HostileName, i), v, 0)
		client.HSet(ctx, clitest.HostileText+"hash", clitest.HostileText+strconv.Itoa(i), v)
	}
	client.LPush(ctx, clitest.HostileText+"list", clitest.HostileText)
	raw := "{\"\u202ea\u009b\x7f\": \"\u2066" + "\xff\"}"
	client.Set(ctx, clitest.HostileText+"raw", raw, 0)
	data := hostileFile(".ndjson", values.Bytes())
	dictionary := hostileFile(".dict", bytes.Repeat([]byte("some words that are in all of these values, "), 30))
	d, err := registry.ReadFile(dictionary)
	if err != nil {
		t.Fatal(err)
	}
	id := d.ID().String()

	t.Run("usage", func(t *testing.T) {
		hostileRun(t, true, clitest.HostileText)
		hostileRun(t, true, "dict", clitest.HostileText)
		hostileRun(t, true, "--"+clitest.HostileText)
		hostileRun(t, true, "dict", "show", clitest.HostileText)
		hostileRun(t, true, "inspect", clitest.HostileText)
	})
	t.Run("dict", func(t *testing.T) {
		at := func(args ...string) []string { return append(args, "--redis", url) }
		const group = "group"
		out := filepath.Join(dir, clitest.HostileName)
		hostileRun(t, true, at("dict", "publish", dictionary, "--group", group)...)
		hostileRun(t, false, at("dict", "activate", id, "--group", group, "--force")...)
		poisonRegistry(t, client, group)
		hostileRun(t, false, at("dict", "list")...)
		hostileRun(t, false, at("dict", "list", "--scan")...)
		hostileRun(t, true, at("dict", "list", "--json")...)
		hostileRun(t, false, at("dict", "list", "--prefix", clitest.HostileText+":")...)
		hostileRun(t, true, at("dict", "show", id)...)
		hostileRun(t, false, "dict", "show", dictionary)
		hostileRun(t, true, at("dict", "export", "--group", group, "--out", out)...)
		hostileRun(t, false, at("dict", "import", out, "--group", group+"2")...)
		hostileRun(t, false, at("dict", "activate", "previous", "--group", group)...)
		hostileRun(t, false, at("dict", "remove", id, "--group", group)...)
		hostileRun(t, true, at("dict", "gc")...)
		hostileRun(t, true, at("dict", "servers")...)
		hostileRun(t, true, at("dict", "servers", "--json")...)
		hostileRun(t, false, at("dict", "grace")...)
		hostileRun(t, false, at("dict", "remove", id, "--group", group, "--force")...)
		hostileRun(t, false, at("dict", "restore", id, "--group", group+"3")...)
		hostileRun(t, true, at("dict", "servers", "--forget", clitest.HostileText)...)
		hostileRun(t, false, at("dict", "servers", "--forget", "x")...)
		hostileRun(t, false, at("dict", "gc", "--empty", "--accept-moves")...)
		hostileRun(t, false, at("dict", "gc", "--empty", "--accept-moves", "--apply")...)
		hostileRun(t, false, at("migrate", "--match", "*", "--dry-run", "--dict", "current", "--group", group)...)
		hostileRun(t, false, at("proxy", "--match", "*", "--listen", "127.0.0.1:0", "--compress", "zstd:3+dict", "--group", group)...)
		for _, hostile := range []string{clitest.HostileName, clitest.HostileText} { // which no group can be called
			for _, args := range [][]string{{"dict", "list"}, {"dict", "publish", dictionary}, {"dict", "activate", id}, {"dict", "activate", "previous"}, {"dict", "remove", id},
				{"dict", "export", "--out", out + "2"}, {"dict", "import", out}, {"dict", "restore", id}, {"proxy", "--match", "*", "--compress", "zstd:3+dict"}, {"migrate", "--match", "*", "--dry-run", "--dict", "current"}} {
				hostileRun(t, true, at(append(args, "--group", hostile)...)...)
			}
			names, err := json.Marshal([]string{hostile})
			clitest.OK(t, err, client.Set(ctx, "bale:dict:groups", names, 0).Err())
			hostileRun(t, true, at("dict", "list")...)
		}
		client.Set(ctx, "bale:dict:groups", `["`+group+`"]`, 0)
		client.Set(ctx, "bale:dict:group:"+group, clitest.HostileText, 0)
		hostileRun(t, false, at("dict", "list")...)
		hostileRun(t, false, at("proxy", "--match", "*", "--listen", "127.0.0.1:0", "--compress", "zstd:3+dict", "--group", group)...) // logs that the state is damaged
		client.Del(ctx, "bale:dict:groups", "bale:dict:settings", "bale:dict:group:"+group)
	})
	t.Run("values", func(t *testing.T) {
		hostileRun(t, true, "inspect", "--redis", url, "--key", clitest.HostileText+":1")
		hostileRun(t, true, "inspect", "--redis", url, "--key", clitest.HostileText+"hash", "--field", clitest.HostileText+"1")
		hostileRun(t, true, "inspect", "--redis", url, "--key", clitest.HostileText+"raw")
		hostileRun(t, true, "inspect", "--redis", url, "--key", clitest.HostileText+"list")
		hostileRun(t, true, "inspect", "--redis", url, "--key", clitest.HostileText+"none")
		for _, form := range [][]string{nil, {"--json"}} {
			cat := func(key string, args ...string) []string {
				return append(append([]string{"cat", clitest.HostileText + key, "--redis", url}, args...), form...)
			}
			hostileRun(t, true, cat(":1")...)
			hostileRun(t, true, cat("hash", "--field", clitest.HostileText+"1")...)
			hostileRun(t, true, cat("hash", "--field", clitest.HostileText)...)
			hostileRun(t, true, cat("raw")...)
			hostileRun(t, true, cat("list")...)
			hostileRun(t, true, cat("none")...)
		}
		hostileRun(t, false, "unpack", clitest.HostileText+":1", "--redis", url, "--hex")
		hostileRun(t, true, "proxy", "--redis", url, "--match", clitest.HostileText+"[")
		hostileRun(t, true, "proxy", "--redis", url, "--match", "*", "--compress", clitest.HostileText)
		hostileRun(t, true, "proxy", "--redis", url, "--match", "*", "--listen", clitest.HostileText)
		hostileRun(t, true, "proxy", "--redis", url, "--match", "*", "--listen", "unix:"+filepath.Join(dir, clitest.HostileName))
		clitest.HostileRun(t, app, true, raw, "inspect")
		client.Set(ctx, clitest.HostileText+"bad", unknownFrame(), 0)
		hostileRun(t, true, "inspect", "--redis", url, "--key", clitest.HostileText+"bad", "--prefix", clitest.HostileText)
		hostileRun(t, true, "verify", "--redis", url)
		hostileRun(t, true, "verify", "--redis", url, "--json", "-")
		hostileRun(t, true, "train", "--data", data, "--out", filepath.Join(dir, "trained"), "--exclude", clitest.HostileText+","+clitest.HostileText)
		hostileRun(t, true, "train", "--data", data, "--out", filepath.Join(dir, "trained"), "--json", "-")
		hostileRun(t, false, "train", "--redis", url, "--out", filepath.Join(dir, "trained"))
		hostileRun(t, true, "dict", "publish", dictionary, "--group", "g", "--redis", url, "--training", hostileFile("training", []byte("{\"winner\":{},\"compress\":\"\u202e\"}")))
		hostileRun(t, true, "migrate", "--redis", url, "--match", "*", "--dry-run")
		hostileRun(t, true, "migrate", "--redis", url, "--match", clitest.HostileText+"*", "--dry-run", "--json", "-")
		hostileRun(t, true, "migrate", "--redis", url, "--match", "*", "--resume", file("state", poisonedState(t)))
		hostileRun(t, true, "migrate", "--redis", url, "--match", "*", "--dict", "auto", "--group", clitest.HostileText, "--dry-run")
		hostileRun(t, true, "migrate", "--redis", url, "--match", "*")
		hostileRun(t, true, "migrate", "--redis", url, "--match", "*", "--revert")
	})
	t.Run("advise", func(t *testing.T) {
		page := filepath.Join(dir, "advice.html")
		shown := []string{"--all", "--show-samples", "--sample", "60", "--html", page}
		hostileRun(t, true, append([]string{"advise", "--redis", url, "--match", "*FORGED*"}, shown...)...)
		hostileRun(t, true, append([]string{"advise", "--redis", url}, shown...)...)
		clitest.CheckShown(t, "the page of bale advise", clitest.ReadPage(t, page))
		hostileRun(t, true, append([]string{"advise", "--data", data, "--json", "-"}, shown...)...)
		hostileRun(t, true, append([]string{"advise", "--data", data}, shown...)...)
		clitest.CheckShown(t, "the page of bale advise", clitest.ReadPage(t, page))
		version := "7.0.0\u202e\x1b[2J\n" + clitest.Forged
		newer := "REDIS0099\xfa\x09redis-ver" + string(rune(len(version))) + version + "\xff" + strings.Repeat("\x00", 8)
		hostileRun(t, true, "advise", "--rdb", file("newer.rdb", []byte(newer)))
		hostileRun(t, true, "advise", "--rdb", hostileFile(".rdb", []byte(clitest.HostileText)))
	})
	t.Run("stats", func(t *testing.T) {
		var events bytes.Buffer
		b := &stats.Batch{From: time.Unix(1, 0), To: time.Unix(2, 0), Groups: []string{clitest.HostileText, clitest.HostileText},
			Events: []stats.Event{{Op: stats.Get, Keys: 1, Hits: 1, Timed: true}, {Op: stats.Get, Class: stats.Timeout, Keys: 1, Errors: 1}}}
		if err := eventfile.NewWriter(&events).Write(ctx, b); err != nil {
			t.Fatal(err)
		}
		path := hostileFile(".events", append(events.Bytes(), 1, 2, 3))
		hostileRun(t, true, "stats", path)
		hostileRun(t, true, "stats", "--json", "-", path)
		hostileRun(t, true, "stats", "--group", clitest.HostileText, path)
		hostileRun(t, true, "stats", clitest.HostileText)
	})
	t.Run("answers", func(t *testing.T) {
		at := clitest.HostileServer(t)
		hostileRun(t, true, "inspect", "--redis", at, "--key", "k")
		hostileRun(t, true, "cat", "k", "--redis", at)
		hostileRun(t, true, "proxy", "--match", "*", "--redis", at)
		hostileRun(t, true, "proxy", "--match", "*", "--redis", url, "--registry", at)
		hostileRun(t, true, "verify", "--redis", at)
		hostileRun(t, true, "advise", "--redis", at)
		hostileRun(t, true, "train", "--redis", at, "--out", filepath.Join(dir, "trained"))
		hostileRun(t, true, "migrate", "--redis", at, "--match", "*")
		for _, args := range [][]string{{"list"}, {"gc"}, {"servers"}, {"grace"}, {"show", id}, {"publish", dictionary, "--group", "g"}, {"activate", id, "--group", "g"},
			{"activate", "previous", "--group", "g"}, {"remove", id, "--group", "g"}, {"restore", id}, {"export", "--group", "g", "--out", dir}, {"import", dir, "--group", "g"}} {
			hostileRun(t, true, append(append([]string{"dict"}, args...), "--redis", at)...)
		}
	})
}

// TestInspectNested: what is shown of a value is bounded by its size, however deep it nests.
func TestInspectNested(t *testing.T) {
	for depth, lines := range map[int]int{20: 5000, 9000: 1000, 20_000: 1} { // encoding/json reads 10,000
		value := strings.Repeat(`{"]\"[":[`, depth/2) + strings.Repeat("1,", 5000) + "1" + strings.Repeat("]}", depth/2)
		var out, errs bytes.Buffer
		if code := app.Run(t.Context(), []string{"inspect"}, strings.NewReader(value), &out, &errs); code != cli.ExitDone {
			t.Fatalf("%s", &errs)
		}
		if n := out.Len(); n > 20*len(value)+128<<10 || strings.Count(out.String(), "\n") < lines {
			t.Errorf("%d deep: %d bytes of %d in %d lines", depth, n, len(value), strings.Count(out.String(), "\n"))
		}
	}
}

// TestPrintsPrintable: what reaches people is formatted by package printable, which escapes every
// operand. Text in memory (&b) is on its way there, and markup has escapes of its own.
func TestPrintsPrintable(t *testing.T) {
	forMachines := []string{"../internal/compare/format.go", "../internal/printable/printable.go", "../internal/twemproxy/conn.go"}
	for dir, least := range map[string]int{".": 8, "../balebench": 5, "../internal/*": 100} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) < least {
			t.Fatal(files, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") || slices.Contains(forMachines, name) {
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
					if from != nil && (from.Name == "slog" && strings.HasSuffix(f.Sel.Name, "Handler") || from.Name == "log") {
						t.Errorf("%v: %s.%s logs what others wrote without a limit: use printable.Log", set.Position(call.Pos()), from.Name, f.Sel.Name)
					}
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

// poisonRegistry puts hostile text into all that the registry keeps as text.
func poisonRegistry(t *testing.T, client *redis.Client, group string) {
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
	change("bale:dict:group:"+group, func(m map[string]any) {
		for _, e := range m["dictionaries"].([]any) {
			e.(map[string]any)["info"] = dict.Info{Setting: clitest.HostileText, Builder: clitest.HostileText, Ratio: 2, RatioWithout: 1}
		}
		long := time.Unix(1e9, 0)
		m["dictionaries"] = append(m["dictionaries"].([]any), dict.Entry{ID: 0xdeadbeef, Size: 9, Published: long, Activated: long, Retired: long, Used: long, Uses: 1})
	})
	change("bale:dict:settings", func(m map[string]any) {
		m["servers"] = []dict.Server{{ID: clitest.HostileText, Name: clitest.HostileText, Seen: time.Unix(1e9, 0)}, {ID: "x", Name: "redis://" + clitest.HostileText + "/0"}}
	})
}

// poisonedState is a file of bale migrate --resume that somebody else wrote.
func poisonedState(t *testing.T) []byte {
	t.Helper()
	b, err := json.Marshal(map[string]any{"version": 1, "settings": map[string]any{"match": []string{clitest.HostileText}}, "result": map[string]any{"left": map[string]any{}},
		"places": []map[string]string{{"addr": clitest.HostileText, "run_id": clitest.HostileText}}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestForgedIDs: frames with made-up dictionaries fill no list, and hide no value of a real one.
func TestForgedIDs(t *testing.T) {
	ctx := t.Context()
	url := redisproc.ForTest(t).URL()
	o, err := redis.ParseURL(url)
	clitest.OK(t, err)
	client := redis.NewClient(o)
	defer client.Close()
	d, err := frame.NewDictionary(bytes.Repeat([]byte("an orphan, "), 30))
	clitest.OK(t, err)
	frames := make([]any, 3000)
	for i := range frames {
		frames[i] = frame.Header{Algorithm: frame.Zstd, DictionaryID: frame.DictionaryID(i + 1)}.Append(nil)
	}
	frames = append(frames, frame.Header{Algorithm: frame.Zstd, DictionaryID: d.ID()}.Append(nil))
	clitest.OK(t, client.RPush(ctx, "list", frames...).Err(), client.Set(ctx, "bale:dict:data:"+d.ID().String(), d.Bytes(), 0).Err())
	if out := operator(t, url, "gc", "--max-rate", "0"); !strings.Contains(out, d.ID().String()+" of no group stays: 1 values refer to it") {
		t.Error(out)
	}
	if out := operator(t, url, "list", "--scan", "--max-rate", "0"); !strings.Contains(out, "beyond those that are named: 2900 values") {
		t.Error(out)
	}
	var list dictops.Dictionaries
	clitest.OK(t, json.Unmarshal([]byte(operator(t, url, "list", "--scan", "--json", "--max-rate", "0")), &list))
	if len(list.Unknown) != 101 || list.Unknown[d.ID()] == nil || list.UnknownOthers == nil || list.UnknownOthers.Values != 2900 {
		t.Errorf("%d are named; others %+v", len(list.Unknown), list.UnknownOthers)
	}
}

// unknownFrame is packed with a dictionary that nobody has.
func unknownFrame() []byte {
	h := frame.Header{Algorithm: frame.Zstd, DictionaryID: 0x0badf00d, HasChecksum: true}
	return append(h.Append(nil), "whatever"...)
}
