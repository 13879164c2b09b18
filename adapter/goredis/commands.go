package goredis

import (
	"slices"
	"strconv"
	"strings"

	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/internal/glob"
)

// command says where a command has its keys and values, and what its reply holds. Positions count
// the arguments, the command's name being 0.
type command struct {
	keys   span  // the keys; a command has its first key at keys.first
	values span  // the values that it writes, each of the key before it, or of the only key
	reply  reply // the values that it reads

	// find replaces keys and values where they depend on the arguments.
	find func(args []any) (keys, values span)

	// replyIf replaces reply where it depends on the arguments.
	replyIf func(args []any) reply

	// refuse, if it is not empty, is why the command does not work on packed values.
	refuse string

	// refuseIf returns a reason to refuse the command with these arguments, or "".
	refuseIf func(args []any) string

	// script marks commands that run code inside the server.
	script bool

	// sorts marks SORT, whose patterns name further keys.
	sorts bool

	// moves marks commands that put the value of the first key under the second one as it is.
	moves bool
}

// span is every step-th argument from first up to last; last counts from the end when it is
// negative. The zero span is empty.
type span struct{ first, last, step int }

// reply says where a reply holds values.
type reply uint8

const (
	noValues   reply = iota
	oneValue         // the value of the first key
	keyValues        // a list, a value for each key
	listValues       // a list of values of the first key
	pairValues       // fields and values of the first key, in turn or as a map
	scanValues       // a cursor, and fields and values in turn
	anyValues        // EXEC: values of unknown keys, anywhere. SORT: a value for each GET in turn
)

var (
	firstKey = span{1, 1, 1}
	allKeys  = span{1, -1, 1}
	second   = span{2, 2, 1}
	third    = span{3, 3, 1}
)

const (
	bytesInServer = "it works on the value's bytes inside the server"
	comparesBytes = "it compares the value's bytes inside the server"
	handsOutBytes = "it hands out the value's bytes as they are, in a form that RESTORE alone reads"
	movesBytes    = "it puts the value's bytes as they are under a key that is not in scope, where they would be read packed"
)

// commands are the commands that the hook handles; all others pass. A server too old for a command
// returns its own error.
var commands = map[string]*command{
	"get":    {keys: firstKey, reply: oneValue},
	"getdel": {keys: firstKey, reply: oneValue},
	"getex":  {keys: firstKey, reply: oneValue},
	"getset": {keys: firstKey, values: second, reply: oneValue},
	"set":    {keys: firstKey, values: second, replyIf: option(3, "get", oneValue, noValues), refuseIf: compares(3)},
	"setex":  {keys: firstKey, values: third},
	"psetex": {keys: firstKey, values: third},
	"setnx":  {keys: firstKey, values: second},
	"mget":   {keys: allKeys, reply: keyValues},
	"mset":   {keys: span{1, -1, 2}, values: span{2, -1, 2}},
	"msetnx": {keys: span{1, -1, 2}, values: span{2, -1, 2}},
	"msetex": {find: numbered(1, 2)},

	"hset":       {keys: firstKey, values: span{3, -1, 2}},
	"hmset":      {keys: firstKey, values: span{3, -1, 2}},
	"hsetnx":     {keys: firstKey, values: third},
	"hsetex":     {find: hashFields},
	"hget":       {keys: firstKey, reply: oneValue},
	"hmget":      {keys: firstKey, reply: listValues},
	"hgetdel":    {keys: firstKey, reply: listValues},
	"hgetex":     {keys: firstKey, reply: listValues},
	"hvals":      {keys: firstKey, reply: listValues},
	"hgetall":    {keys: firstKey, reply: pairValues},
	"hrandfield": {keys: firstKey, replyIf: option(2, "withvalues", pairValues, noValues)},
	"hscan":      {keys: firstKey, replyIf: scanOption},
	"himport":    {find: imported},

	// Of a transaction by hand, on a connection of its own: TxPipeline has its replies in its
	// commands.
	"exec": {reply: anyValues},

	"append":      {keys: firstKey, refuse: bytesInServer},
	"setrange":    {keys: firstKey, refuse: bytesInServer},
	"getrange":    {keys: firstKey, refuse: bytesInServer},
	"substr":      {keys: firstKey, refuse: bytesInServer},
	"strlen":      {keys: firstKey, refuse: bytesInServer},
	"hstrlen":     {keys: firstKey, refuse: bytesInServer},
	"setbit":      {keys: firstKey, refuse: bytesInServer},
	"getbit":      {keys: firstKey, refuse: bytesInServer},
	"bitcount":    {keys: firstKey, refuse: bytesInServer},
	"bitpos":      {keys: firstKey, refuse: bytesInServer},
	"bitop":       {keys: span{2, -1, 1}, refuse: bytesInServer},
	"bitfield":    {keys: firstKey, refuse: bytesInServer},
	"bitfield_ro": {keys: firstKey, refuse: bytesInServer},
	"lcs":         {keys: span{1, 2, 1}, refuse: bytesInServer},
	"pfadd":       {keys: firstKey, refuse: bytesInServer},
	"pfcount":     {keys: allKeys, refuse: bytesInServer},
	"pfmerge":     {keys: allKeys, refuse: bytesInServer},
	"digest":      {keys: firstKey, refuse: comparesBytes},
	"delex":       {keys: firstKey, refuseIf: compares(2)},
	"delifeq":     {keys: firstKey, refuse: comparesBytes},
	"dump":        {keys: firstKey, refuse: handsOutBytes},

	// The sorted key itself is no string; its elements stay as they are.
	"sort":    {keys: firstKey, sorts: true},
	"sort_ro": {keys: firstKey, sorts: true},

	// Into the scope they pass: plain values there are read as they are.
	"rename":   {keys: span{1, 2, 1}, moves: true},
	"renamenx": {keys: span{1, 2, 1}, moves: true},
	"copy":     {keys: span{1, 2, 1}, moves: true},

	"eval":       {find: numbered(2, 1), script: true},
	"eval_ro":    {find: numbered(2, 1), script: true},
	"evalsha":    {find: numbered(2, 1), script: true},
	"evalsha_ro": {find: numbered(2, 1), script: true},
	"fcall":      {find: numbered(2, 1), script: true},
	"fcall_ro":   {find: numbered(2, 1), script: true},
}

// sorted reads the arguments of a SORT. If the command must not be sent, it returns the reason and
// the offending pattern. Otherwise it returns the first pattern whose values the reply holds. gets
// are the positions of all patterns of GET.
func (h *Hook) sorted(args []any) (reason, pattern string, gets []int) {
	var by, get string // those that may name keys in scope
	alpha, store := false, false
	for i := 2; i < len(args); i++ {
		option := strings.ToLower(word(args[i]))
		switch option {
		case "alpha":
			alpha = true
		case "limit":
			i += 2
		case "store":
			store = true
			i++
		case "by", "get":
			if i++; i == len(args) {
				continue
			}
			if option == "get" {
				gets = append(gets, i)
			}
			if !h.mayName(text(args[i])) {
				continue
			}
			if option == "by" {
				by = text(args[i])
			} else if get == "" {
				get = text(args[i])
			}
		}
	}
	switch {
	case by != "" && alpha: // without ALPHA the server wants numbers, and says so
		return comparesBytes, by, nil
	case get != "" && store:
		return "it puts the values' bytes as they are into a list, where nothing unpacks them", get, nil
	}
	return "", get, gets
}

// mayName reports whether a pattern of SORT may name a key in scope: some text stands for the first
// star in it.
func (h *Hook) mayName(pattern string) bool {
	prefix, _, star := strings.Cut(pattern, "*")
	if !star || strings.HasPrefix(prefix, dict.DefaultPrefix) {
		return false
	}
	for _, p := range h.options.Exclude {
		if literal, rest := glob.Prefix(p); rest == "*" && strings.HasPrefix(prefix, literal) {
			return false
		}
	}
	return len(h.options.Match) == 0 || slices.ContainsFunc(h.options.Match, func(p string) bool {
		literal, _ := glob.Prefix(p)
		return strings.HasPrefix(literal, prefix) || strings.HasPrefix(prefix, literal)
	})
}

// word is an argument as the name of an option. Numbers are none, and not worth to be written out
// for it.
func word(arg any) string {
	switch v := arg.(type) {
	case string:
		return v
	case int, int64, float64, bool:
		return ""
	}
	return text(arg)
}

// option chooses by an argument, from one on, that is there or not.
func option(from int, name string, with, without reply) func([]any) reply {
	return func(args []any) reply {
		for _, a := range args[min(from, len(args)):] {
			if strings.EqualFold(word(a), name) {
				return with
			}
		}
		return without
	}
}

// scanOption looks for NOVALUES among the options of HSCAN key cursor, of which the others have a
// value.
func scanOption(args []any) reply {
	for i := 3; i < len(args); i++ {
		switch strings.ToLower(word(args[i])) {
		case "novalues":
			return noValues
		case "match", "count":
			i++
		}
	}
	return scanValues
}

// compares refuses the options that compare the stored bytes, from an argument on.
func compares(from int) func([]any) string {
	return func(args []any) string {
		for _, a := range args[min(from, len(args)):] {
			if s := word(a); len(s) > 3 && (strings.EqualFold(s[:3], "ifd") || strings.EqualFold(s, "ifeq") || strings.EqualFold(s, "ifne")) {
				return comparesBytes
			}
		}
		return ""
	}
}

// numbered finds keys whose number is argument at: each is followed by a value when step is 2.
func numbered(at, step int) func([]any) (keys, values span) {
	return func(args []any) (keys, values span) {
		n, ok := number(args, at)
		if !ok || n == 0 {
			return span{}, span{}
		}
		first := at + 1
		last := min(first+n*step-1, len(args)-1)
		if step == 2 {
			values = span{first + 1, last, step}
		}
		return span{first, last, step}, values
	}
}

// hashFields finds the values of HSETEX key ... FIELDS n field value ...
func hashFields(args []any) (keys, values span) {
	for i := 2; i < len(args); i++ {
		if strings.EqualFold(word(args[i]), "fields") {
			if n, ok := number(args, i+1); ok && n > 0 {
				return firstKey, span{i + 3, min(i+1+2*n, len(args)-1), 2}
			}
		}
	}
	return firstKey, span{}
}

// imported finds the values of HIMPORT SET key fieldset value ..., the names of whose fields were
// sent before.
func imported(args []any) (keys, values span) {
	if len(args) > 2 && strings.EqualFold(word(args[1]), "set") {
		return second, span{4, -1, 1}
	}
	return span{}, span{}
}

// number reads an argument that counts what follows it: at most as many as there are.
func number(args []any, at int) (int, bool) {
	if at >= len(args) {
		return 0, false
	}
	n := -1
	switch v := args[at].(type) {
	case int:
		n = v
	case int64:
		n = int(min(v, int64(len(args))))
	default:
		if i, err := strconv.Atoi(text(v)); err == nil {
			n = i
		}
	}
	return min(n, len(args)), n >= 0
}

// spans are the keys and values among the arguments.
func (c *command) spans(args []any) (keys, values span) {
	keys, values = c.keys, c.values
	if c.find != nil {
		keys, values = c.find(args)
	}
	return keys.within(args), values.within(args)
}

// within resolves an end that counts from the end, and cuts the span to the arguments there are.
func (s span) within(args []any) span {
	if s.step == 0 {
		return span{first: 1, last: 0, step: 1}
	}
	if s.last < 0 {
		s.last += len(args)
	}
	s.last = min(s.last, len(args)-1)
	return s
}
