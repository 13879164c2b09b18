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
		{"long names of excluded fields", r.groupKey("g"), entry(`{"exclude":"` + strings.Repeat("x", maxExclude+1) + `"}`)},
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
			Setting: "zstd:3", Builder: "go cover", Samples: 1, RatioWithout: 1, Ratio: 2, Exclude: "email", RatioWhole: 3, Auto: true}})
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
		for i := range 5 * maxMissing {
			if _, err := g.Reader(ctx, frame.Zstd, frame.DictionaryID(1000+i)); !errors.Is(err, ErrUnknown) {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); took > (maxUnknown+1)*time.Second {
			t.Errorf("5,000 ids take %v of the fake clock", took)
		}
		g.lock.Lock()
		defer g.lock.Unlock()
		if n := len(g.missing); n > maxMissing {
			t.Errorf("%d ids are kept", n)
		}
	})
}

// TestForgedStates: states with made-up dictionaries fill neither the log nor the memory of a
// group, and cost the registry and its mirrors few questions. A real one among them comes back.
func TestForgedStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		m, mirror := newMemory(), newMemory()
		r, err := NewRegistry(m, RegistryOptions{Mirrors: []Store{mirror}})
		must(t, err)
		var log lines
		g, err := r.Open(ctx, "g", GroupOptions{Log: log.logger()})
		must(t, err)
		defer g.Close()
		synctest.Wait()
		next := 1
		forge := func(epoch, n int, more ...frame.DictionaryID) {
			var all []string
			for range n {
				all = append(all, fmt.Sprintf(`{"id":"%08x","activated":"2020-01-01T00:00:00Z"}`, next))
				next++
			}
			for _, id := range more {
				all = append(all, fmt.Sprintf(`{"id":"%v","activated":"2020-01-01T00:00:00Z"}`, id))
			}
			m.set(r.groupKey("g"), fmt.Appendf(nil, `{"group":"g","epoch":%d,"incarnation":"x","dictionaries":[%s]}`, epoch, strings.Join(all, ",")))
		}
		const looks = 10
		asked := func() int {
			m.lock.Lock()
			mirror.lock.Lock()
			defer m.lock.Unlock()
			defer mirror.lock.Unlock()
			return len(m.gets) + len(mirror.gets)
		}
		before := asked()
		for epoch := range looks {
			forge(epoch+1, 2000)
			g.look()
			time.Sleep(2 * heardApart)
		}
		if s := g.Status().State; s.Epoch != looks || len(s.Dictionaries) != 2000 {
			t.Fatalf("epoch %d with %d dictionaries", s.Epoch, len(s.Dictionaries))
		}
		if n := asked() - before; n > 8*looks*maxLost {
			t.Errorf("%d keys are asked for", n)
		}
		g.lock.Lock()
		reported := len(g.reported)
		g.lock.Unlock()
		if reported > 5 || log.count("\n") > 3*looks || len(log.text.String()) > 3*looks*500 {
			t.Errorf("%d errors are kept, %d lines of log with %d bytes", reported, log.count("\n"), len(log.text.String()))
		}
		if n := log.count("2000, the first one: dict: group"); n != looks {
			t.Errorf("the log has %d reports of lost dictionaries:\n%.1000s", n, log.text.String())
		}

		d, err := frame.NewDictionary(bytes.Repeat([]byte("words of a real one, "), 20))
		must(t, err)
		mirror.set(r.dataKey(d.ID()), d.Bytes())
		forge(looks+1, 100, d.ID())
		for range 200 {
			g.look()
			time.Sleep(2 * heardApart)
		}
		if m.count(m.swaps, r.dataKey(d.ID())) == 0 {
			t.Error("the real one is not put back")
		}
		if n := log.count("100, the first one: dict: group"); n != 1 {
			t.Errorf("%d reports of the same", n)
		}
	})
}
