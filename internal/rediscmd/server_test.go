package rediscmd

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/balekv/bale/internal/redisproc"
)

// TestServerCommands holds the table against the server at hand: each of its commands is in the
// table, or passes for one reason. Those that the server counts as commands of strings or hashes,
// and that may hand out or take a value, are in the table.
func TestServerCommands(t *testing.T) {
	server := redisproc.ForTest(t)
	list := func(command ...string) []string {
		t.Helper()
		reply, err := server.Do(t.Context(), command...)
		if err != nil {
			t.Fatal(err)
		}
		names := strings.Fields(strings.ToLower(reply))
		if len(names) < 10 {
			t.Fatalf("%q: %q", command, reply)
		}
		return slices.DeleteFunc(names, func(name string) bool { return strings.ContainsAny(name, "|.") }) // of modules, and parts of a command
	}
	for _, name := range list("COMMAND", "LIST") {
		c, _ := commands.Lookup(name)
		switch reason := Passes(name); {
		case c == nil && reason == Unknown:
			t.Errorf("%s is not known", name)
		case c != nil && reason != Unknown:
			t.Errorf("%s is in the table, and passes", name)
		}
	}
	for _, category := range []string{"string", "hash"} {
		for _, name := range list("ACL", "CAT", category) {
			if c, _ := commands.Lookup(name); c == nil && Passes(name) != Numbers && Passes(name) != NoValue {
				t.Errorf("%s is of category %s, and passes for reason %d", name, category, Passes(name))
			}
		}
	}
}

// TestServerKeys: the keys that the table finds among arguments are those that the server finds.
func TestServerKeys(t *testing.T) {
	server := redisproc.ForTest(t)
	checked := 0
	commands.Names(func(name string) {
		c, _ := commands.Lookup(name)
		args := map[string]string{
			"msetex": "2 k1 v1 k2 v2", "hsetex": "k1 FIELDS 2 f v g w", "hgetex": "k1 FIELDS 1 f", "hgetdel": "k1 FIELDS 1 f", "himport": "SET k1 set v w",
			"eval": "s 2 k1 k2 a", "eval_ro": "s 2 k1 k2 a", "evalsha": "s 2 k1 k2 a", "evalsha_ro": "s 2 k1 k2 a", "fcall": "s 2 k1 k2 a", "fcall_ro": "s 2 k1 k2 a",
			"bitop": "AND k1 k2 k3", "exec": "", "lcs": "k1 k2", "rename": "k1 k2", "renamenx": "k1 k2", "copy": "k1 k2", "mset": "k1 v k2 w", "msetnx": "k1 v k2 w",
		}[name]
		if args == "" {
			args = "k1 a b c"
			if c.keys == allKeys {
				args = "k1 k2 k3"
			}
			if c.keys == firstKey {
				args = "k1"
			}
		}
		words := strings.Fields(name + " " + args)
		reply := ""
		for err := error(nil); len(words) < 12; words = append(words, "x") { // until there are enough arguments
			if reply, err = server.Do(t.Context(), append([]string{"COMMAND", "GETKEYS"}, words...)...); err == nil {
				break
			}
			if !strings.Contains(err.Error(), "nvalid number of arguments") {
				reply = err.Error()
				break
			}
		}
		switch {
		case strings.Contains(reply, "nvalid command specified"): // the server does not have it
			return
		case strings.Contains(reply, "has no key"):
			reply = ""
		}
		anything := make([]any, len(words))
		for i, w := range words {
			anything[i] = w
		}
		keys, _ := c.Spans(anything)
		var found []string
		for _, at := range positions(keys) {
			found = append(found, fmt.Sprint(anything[at]))
		}
		if want := strings.Fields(reply); !slices.Equal(found, want) {
			t.Errorf("%v: the table finds %v, and the server %q", words, found, reply)
		}
		checked++
	})
	if checked < 50 {
		t.Errorf("only %d commands were checked", checked)
	}
}
