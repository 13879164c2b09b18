package rediscmd

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
)

func text(arg any) string { return fmt.Sprint(arg) }

var commands = New(Args[any]{Text: text, Word: text, Number: func(arg any) int {
	n, err := strconv.Atoi(text(arg))
	if err != nil {
		return -1
	}
	return n
}})

// TestSpans checks where keys and values are found in the commands whose arguments tell, the
// server's version notwithstanding.
func TestSpans(t *testing.T) {
	for _, test := range []struct {
		args         []any
		keys, values []int
	}{
		{[]any{"msetex", 2, "k1", "v1", "k2", "v2", "ex", 10}, []int{2, 4}, []int{3, 5}},
		{[]any{"msetex", "2", "k1", "v1", "k2", "v2"}, []int{2, 4}, []int{3, 5}},
		{[]any{"msetex", 5, "k1", "v1"}, []int{2}, []int{3}},
		{[]any{"msetex", -1, "k1", "v1"}, nil, nil},
		{[]any{"msetex", "x", "k1", "v1"}, nil, nil},
		{[]any{"msetex"}, nil, nil},
		{[]any{"hsetex", "h", "ex", 10, "FIELDS", 2, "f1", "v1", "f2", "v2"}, []int{1}, []int{7, 9}},
		{[]any{"hsetex", "h", "fields", int64(1), "f1", "v1"}, []int{1}, []int{5}},
		{[]any{"hsetex", "h", "fields", 9, "f1", "v1"}, []int{1}, []int{5}},
		{[]any{"hsetex", "h", "fields"}, []int{1}, nil},
		{[]any{"eval", "script", 2, "k1", "k2", "arg"}, []int{3, 4}, nil},
		{[]any{"eval", "script", 0, "arg"}, nil, nil},
		{[]any{"bitop", "and", "dst", "a", "b"}, []int{2, 3, 4}, nil},
		{[]any{"himport", "SET", "h", "fieldset", "v1", "v2"}, []int{2}, []int{4, 5}},
		{[]any{"himport", "set", "h", "fieldset"}, []int{2}, nil},
		{[]any{"himport", "set"}, nil, nil},
		{[]any{"himport", "prepare", "fieldset", "f1", "f2"}, nil, nil},
		{[]any{"mset", "k1", "v1", "k2"}, []int{1, 3}, []int{2}},
		{[]any{"hset", "h", "f1", "v1", "f2"}, []int{1}, []int{3}},
		{[]any{"get"}, nil, nil},
	} {
		command, _ := commands.Lookup(test.args[0].(string))
		keys, values := command.Spans(test.args)
		if got := positions(keys); !slices.Equal(got, test.keys) {
			t.Errorf("%v: keys at %v, want %v", test.args, got, test.keys)
		}
		if got := positions(values); !slices.Equal(got, test.values) {
			t.Errorf("%v: values at %v, want %v", test.args, got, test.values)
		}
	}
}

func positions(s Span) (at []int) {
	for i := s.First; i <= s.Last; i += s.Step {
		at = append(at, i)
	}
	return at
}
