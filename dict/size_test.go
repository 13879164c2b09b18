package dict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/balekv/bale/frame"
)

// TestForgedDocuments: keys of the registry that nobody but a stranger writes take no memory and no
// time, and nobody writes one that others would refuse.
func TestForgedDocuments(t *testing.T) {
	ctx := t.Context()
	list := func(element string, n int) string { return "[" + strings.Repeat(element+",", n) + element + "]" }
	numbered := func(format string, n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i+1))
		}
		return strings.Join(all, ",")
	}
	state := func(dictionaries string) string { return `{"group":"g","dictionaries":` + dictionaries + `}` }
	entry := func(info string) string { return state(`[{"id":"00000001","info":` + info + `}]`) }
	long := strings.Repeat("x", maxText+1)
	r, err := NewRegistry(newMemory(), RegistryOptions{})
	must(t, err)
	for _, test := range []struct{ name, key, document string }{
		{"objects in a state", r.groupKey("g"), state(list("{}", 300_000))},
		{"nulls in a state", r.groupKey("g"), state(list("null", 200_000))},
		{"numbers in a state", r.groupKey("g"), state(list("0", 500_000))},
		{"an entry without an id", r.groupKey("g"), state("[null]")},
		{"an entry twice", r.groupKey("g"), state(list(`{"id":"00000001"}`, 1))},
		{"a long setting", r.groupKey("g"), entry(`{"setting":"` + long + `"}`)},
		{"a long builder", r.groupKey("g"), entry(`{"builder":"` + long + `"}`)},
		{"a long incarnation", r.groupKey("g"), `{"group":"g","incarnation":"` + long + `"}`},
		{"many incarnations", r.groupKey("g"), `{"group":"g","merged":{` + numbered(`"%d":1`, maxMerged+1) + `}}`},
		{"a long merged incarnation", r.groupKey("g"), `{"group":"g","merged":{"` + long + `":1}}`},
		{"a long name of a state", r.groupKey("g"), `{"group":"` + strings.Repeat("x", maxDocument/2) + `"}`},
		{"a long number in a state", r.groupKey("g"), `{"group":` + strings.Repeat("1", maxDocument/2) + `}`},
		{"a long group", r.groupsKey(), `["` + strings.Repeat("x", maxDocument) + `"]`},
		{"a group of half a document", r.groupsKey(), `["` + strings.Repeat("x", maxDocument/2) + `"]`},
		{"one group again and again", r.groupsKey(), list(`"user:profile"`, maxDocument/16)},
		{"a group twice", r.groupsKey(), `["a","a"]`},
		{"groups out of order", r.groupsKey(), `["b","a"]`},
		{"a group without a name", r.groupsKey(), `["","a"]`},
		{"a group with a space", r.groupsKey(), `["a b"]`},
		{"too many groups", r.groupsKey(), "[" + numbered(`"%06d"`, maxGroups+1) + "]"},
		{"objects in settings", r.settingsKey(), `{"servers":` + list("{}", 300_000) + `}`},
		{"nulls in settings", r.settingsKey(), `{"servers":` + list("null", 200_000) + `}`},
		{"a server twice", r.settingsKey(), `{"servers":` + list(`{"id":"a"}`, 1) + `}`},
		{"a server with a long id", r.settingsKey(), `{"servers":[{"id":"` + long + `"}]}`},
		{"a server with a long name", r.settingsKey(), `{"servers":[{"name":"` + long + `"}]}`},
	} {
		m := newMemory()
		r, err := NewRegistry(m, RegistryOptions{})
		must(t, err)
		m.set(test.key, []byte(test.document))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		switch test.key {
		case r.groupKey("g"):
			_, err = r.State(ctx, "g")
		case r.groupsKey():
			_, err = r.Groups(ctx)
		default:
			_, err = r.settings(ctx)
		}
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), test.key) || len(err.Error()) > maxText {
			t.Errorf("%s: %.500v", test.name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 32<<20 {
			t.Errorf("%s: %d bytes were allocated", test.name, n)
		}
	}
}

// TestRefusesToWrite: nobody writes a document that others would refuse, and the largest honest
// ones are read.
func TestRefusesToWrite(t *testing.T) {
	ctx := t.Context()
	m := newMemory()
	r, err := NewRegistry(m, RegistryOptions{})
	must(t, err)
	d := dictionaryOf(t, 1)
	long := strings.Repeat("x", maxText+1)
	var names []string
	for i := range maxGroups {
		names = append(names, fmt.Sprintf("%0*d", maxGroupName, i))
	}
	full, err := json.Marshal(names)
	must(t, err)
	m.set(r.groupsKey(), full)
	if got, err := r.Groups(ctx); err != nil || len(got) != maxGroups {
		t.Errorf("the longest list has %d groups, %v", len(got), err)
	}
	for name, err := range map[string]error{
		"one group too many":   r.Publish(ctx, "new", d, Info{}),
		"a long builder":       r.Publish(ctx, names[0], d, Info{Builder: long}),
		"a long setting":       r.Publish(ctx, names[0], d, Info{Setting: long}),
		"a group of bad UTF-8": r.Publish(ctx, "g\xff", d, Info{}),
		"a long server":        func() error { _, err := r.Join(ctx, nil, long); return err }(),
	} {
		if !errors.Is(err, ErrInvalid) || len(err.Error()) > maxText {
			t.Errorf("%s: %.500v", name, err)
		}
	}
	s := &State{Group: names[0]}
	now := time.Now()
	for i := range maxObjects/2 - 1 {
		s.Dictionaries = append(s.Dictionaries, Entry{ID: frame.DictionaryID(i + 1), Size: i, Published: now, Activated: now, Retired: now, Used: now, Uses: 1, Info: Info{
			Setting: "zstd:3", Builder: "go cover", Samples: 1, RatioWithout: 1, Ratio: 2, Auto: true}})
	}
	document, err := json.Marshal(s)
	must(t, err)
	m.set(r.groupKey(names[0]), document)
	if got, err := r.State(ctx, names[0]); err != nil || len(got.Dictionaries) != len(s.Dictionaries) {
		t.Errorf("a large state: %v", err)
	}
	for _, tooMuch := range [][]byte{make([]byte, maxDocument+1), bytes.Repeat([]byte("{"), maxObjects+1), bytes.Repeat([]byte(","), maxCommas+1)} {
		if err := r.update(ctx, "k", "the name", func([]byte) ([]byte, error) { return tooMuch, nil }); !errors.Is(err, ErrInvalid) {
			t.Error(err)
		}
	}
}

// TestForgedIDs: values with made-up dictionaries do not have a reader wait for each.
func TestForgedIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		r, err := NewRegistry(newMemory(), RegistryOptions{})
		must(t, err)
		g, err := r.Open(ctx, "g", GroupOptions{})
		must(t, err)
		defer g.Close()
		start := time.Now()
		for i := range 1000 {
			if _, err := g.Reader(ctx, frame.Zstd, frame.DictionaryID(1000+i)); !errors.Is(err, ErrUnknown) {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took > (maxUnknown+1)*time.Second {
			t.Errorf("1,000 ids take %v of the fake clock", took)
		}
	})
}
