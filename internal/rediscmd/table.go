// Package rediscmd is the table of commands that bale's hook and its proxy share: where a command
// has its keys and values, what its reply holds, and which commands cannot work on packed values.
//
// [New] makes the [Table], for arguments as the caller has them. [Table.Plan] says what to do with
// one command. A [Scope] is the keys that are packed. The package is internal to bale and may
// change.
package rediscmd

import (
	"strings"

	"github.com/balekv/bale/stats"
)

// Args reads arguments: any for go-redis, bytes for the proxy.
type Args[A any] struct {
	// Text is an argument as text, such as a key.
	Text func(A) string

	// Word is an argument as the name of an option. It may be empty if the argument cannot be one.
	Word func(A) string

	// Number is an argument that counts what follows; negative if it does not.
	Number func(A) int
}

// Word is a word as Redis compares it, by strcasecmp: up to a zero byte.
func Word(s string) string {
	if i := strings.IndexByte(s, 0); i >= 0 {
		return s[:i]
	}
	return s
}

// Table is the commands that bale handles; all others pass. A server too old for a command returns
// its own error.
type Table[A any] struct {
	args     Args[A]
	commands map[string]*Command[A]
}

// Command says where a command has its keys and values, and what its reply holds. Positions count
// the arguments, the command's name being 0.
type Command[A any] struct {
	keys   Span  // the keys; a command has its first key at keys.First
	values Span  // the values that it writes, each of the key before it, or of the only key
	reply  Reply // the values that it reads

	// find replaces keys and values where they depend on the arguments.
	find func(args []A) (keys, values Span)

	// replyIf replaces reply where it depends on the arguments.
	replyIf func(args []A) Reply

	// refuse, if it is not empty, is why the command does not work on packed values.
	refuse string

	// refuseIf returns a reason to refuse the command with these arguments, or "".
	refuseIf func(args []A) string

	// script marks commands that run code inside the server.
	script bool

	// sorts marks SORT, whose patterns name further keys.
	sorts bool

	// moves marks commands that put the value of the first key under the second one as it is.
	moves bool
}

// Span is every Step-th argument from First up to Last. In the table, Last counts from the end when
// it is negative, and the zero Span is empty.
type Span struct{ First, Last, Step int }

// Reply says where a reply holds values.
type Reply uint8

// The replies there are.
const (
	NoValues   Reply = iota
	OneValue         // the value of the first key
	KeyValues        // a list, a value for each key
	ListValues       // a list of values of the first key
	PairValues       // fields and values of the first key, in turn or as a map
	ScanValues       // a cursor, and fields and values in turn
	AnyValues        // EXEC: values of unknown keys, anywhere. SORT: a value for each GET in turn
)

var (
	firstKey = Span{1, 1, 1}
	allKeys  = Span{1, -1, 1}
	second   = Span{2, 2, 1}
	third    = Span{3, 3, 1}
)

const (
	bytesInServer = "it works on the value's bytes inside the server"
	comparesBytes = "it compares the value's bytes inside the server"
	handsOutBytes = "it hands out the value's bytes as they are, in a form that RESTORE alone reads"
	movesBytes    = "it puts the value's bytes as they are under a key that is not in scope, where they would be read packed"
	storesBytes   = "it puts the values' bytes as they are into a list, where nothing unpacks them"
)

// New makes the table.
func New[A any](o Args[A]) *Table[A] {
	read := o.Word
	o.Word = func(a A) string { return Word(read(a)) }
	return &Table[A]{o, map[string]*Command[A]{
		"get":    {keys: firstKey, reply: OneValue},
		"getdel": {keys: firstKey, reply: OneValue},
		"getex":  {keys: firstKey, reply: OneValue},
		"getset": {keys: firstKey, values: second, reply: OneValue},
		"set":    {keys: firstKey, values: second, replyIf: o.option(3, "get", OneValue, NoValues), refuseIf: o.compares(3)},
		"setex":  {keys: firstKey, values: third},
		"psetex": {keys: firstKey, values: third},
		"setnx":  {keys: firstKey, values: second},
		"mget":   {keys: allKeys, reply: KeyValues},
		"mset":   {keys: Span{1, -1, 2}, values: Span{2, -1, 2}},
		"msetnx": {keys: Span{1, -1, 2}, values: Span{2, -1, 2}},
		"msetex": {find: o.numbered(1, 2)},

		"hset":       {keys: firstKey, values: Span{3, -1, 2}},
		"hmset":      {keys: firstKey, values: Span{3, -1, 2}},
		"hsetnx":     {keys: firstKey, values: third},
		"hsetex":     {find: o.hashFields},
		"hget":       {keys: firstKey, reply: OneValue},
		"hmget":      {keys: firstKey, reply: ListValues},
		"hgetdel":    {keys: firstKey, reply: ListValues},
		"hgetex":     {keys: firstKey, reply: ListValues},
		"hvals":      {keys: firstKey, reply: ListValues},
		"hgetall":    {keys: firstKey, reply: PairValues},
		"hrandfield": {keys: firstKey, replyIf: o.option(2, "withvalues", PairValues, NoValues)},
		"hscan":      {keys: firstKey, replyIf: o.scanOption},
		"himport":    {find: o.imported},

		// Of a transaction by hand, on a connection of its own: TxPipeline has its replies in its
		// commands.
		"exec": {reply: AnyValues},

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
		"bitop":       {keys: Span{2, -1, 1}, refuse: bytesInServer},
		"bitfield":    {keys: firstKey, refuse: bytesInServer},
		"bitfield_ro": {keys: firstKey, refuse: bytesInServer},
		"lcs":         {keys: Span{1, 2, 1}, refuse: bytesInServer},
		"pfadd":       {keys: firstKey, refuse: bytesInServer},
		"pfcount":     {keys: allKeys, refuse: bytesInServer},
		"pfmerge":     {keys: allKeys, refuse: bytesInServer},
		"digest":      {keys: firstKey, refuse: comparesBytes},
		"delex":       {keys: firstKey, refuseIf: o.compares(2)},
		"delifeq":     {keys: firstKey, refuse: comparesBytes},
		"dump":        {keys: firstKey, refuse: handsOutBytes},

		// The sorted key itself is no string; its elements stay as they are.
		"sort":    {keys: firstKey, sorts: true},
		"sort_ro": {keys: firstKey, sorts: true},

		// Into the scope they pass: plain values there are read as they are.
		"rename":   {keys: Span{1, 2, 1}, moves: true},
		"renamenx": {keys: Span{1, 2, 1}, moves: true},
		"copy":     {keys: Span{1, 2, 1}, moves: true},

		"eval":       {find: o.numbered(2, 1), script: true},
		"eval_ro":    {find: o.numbered(2, 1), script: true},
		"evalsha":    {find: o.numbered(2, 1), script: true},
		"evalsha_ro": {find: o.numbered(2, 1), script: true},
		"fcall":      {find: o.numbered(2, 1), script: true},
		"fcall_ro":   {find: o.numbered(2, 1), script: true},
	}}
}

// Lookup finds a command and its name in lower case; nil for one that passes.
func (t *Table[A]) Lookup(name string) (*Command[A], string) {
	c, ok := t.commands[name]
	if !ok {
		name = strings.ToLower(name)
		c = t.commands[name]
	}
	return c, name
}

// Names calls f with the name of each command.
func (t *Table[A]) Names(f func(name string)) {
	for name := range t.commands {
		f(name)
	}
}

// Plan is what to do with one command.
type Plan struct {
	Keys, Values Span  // of its arguments, and First > Last if there are none
	Reply        Reply // with AnyValues for SORT if a pattern may name a key in scope

	Refuse string // why the command must not be sent
	At     string // the key or pattern in scope that is the reason

	Pattern string // of SORT, the first that may name keys in scope
	Gets    []int  // of SORT, where the patterns of GET are among the arguments
}

// Plan says what to do with a command, given its arguments and the keys in scope.
func (t *Table[A]) Plan(c *Command[A], args []A, s *Scope) (p Plan) {
	p.Keys, p.Values = c.Spans(args)
	p.Reply = c.reply
	if c.replyIf != nil {
		p.Reply = c.replyIf(args)
	}
	reason := c.refuse
	switch {
	case c.sorts:
		if p.Refuse, p.Pattern, p.Gets = t.args.sorted(args, s); p.Refuse != "" {
			p.At = p.Pattern
		} else if p.Pattern != "" {
			p.Reply = AnyValues
		}
	case c.script:
		reason = s.RefuseScripts
	case c.moves:
		if len(args) > 2 && s.Has(t.args.Text(args[1])) && !s.Has(t.args.Text(args[2])) {
			reason = movesBytes
		}
	case c.refuseIf != nil:
		reason = c.refuseIf(args)
	}
	if reason != "" {
		if key, in := t.InScope(&p, args, s); in {
			p.Refuse, p.At = reason, key
		}
	}
	return p
}

// InScope returns the first key of a command that is in scope.
func (t *Table[A]) InScope(p *Plan, args []A, s *Scope) (key string, in bool) {
	for i := p.Keys.First; i <= p.Keys.Last; i += p.Keys.Step {
		if key := t.args.Text(args[i]); s.Has(key) {
			return key, true
		}
	}
	return "", false
}

// KeyOf is the position of the key of the value at i: the only key, or the one before the value.
func (p *Plan) KeyOf(i int) int {
	if p.Keys.First == p.Keys.Last {
		return p.Keys.First
	}
	return i - 1
}

// IsScript reports whether the command runs code inside the server.
func (c *Command[A]) IsScript() bool { return c.script }

// OneKey reports whether the first argument is the only key, so that a key out of scope is reason
// enough to let the command pass.
func (c *Command[A]) OneKey() bool { return c.find == nil && c.keys == firstKey && !c.sorts }

// Operation returns the operation of a command's Event. It reports false for commands without an
// Event.
func (c *Command[A]) Operation(r Reply) (stats.Op, bool) {
	switch {
	case c.script || c.refuse != "":
		return 0, false
	case c.values == second || c.values == third:
		return stats.Set, true
	case c.values.Step > 0 || c.find != nil:
		return stats.SetMany, true
	case r == OneValue:
		return stats.Get, true
	case r == NoValues || r == AnyValues:
		return 0, false
	}
	return stats.GetMany, true
}

// sorted reads the arguments of a SORT. If the command must not be sent, it returns the reason and
// the offending pattern. Otherwise it returns the first pattern whose values the reply holds. gets
// are the positions of all patterns of GET.
func (o Args[A]) sorted(args []A, s *Scope) (reason, pattern string, gets []int) {
	var by, get string // those that may name keys in scope
	alpha, store := false, false
	for i := 2; i < len(args); i++ {
		option := strings.ToLower(o.Word(args[i]))
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
			if !s.MayName(o.Text(args[i])) {
				continue
			}
			if option == "by" {
				by = o.Text(args[i])
			} else if get == "" {
				get = o.Text(args[i])
			}
		}
	}
	switch {
	case by != "" && alpha: // without ALPHA the server wants numbers, and says so
		return comparesBytes, by, nil
	case get != "" && store:
		return storesBytes, get, nil
	}
	return "", get, gets
}

// option chooses by an argument, from one on, that is there or not.
func (o Args[A]) option(from int, name string, with, without Reply) func([]A) Reply {
	return func(args []A) Reply {
		for _, a := range args[min(from, len(args)):] {
			if strings.EqualFold(o.Word(a), name) {
				return with
			}
		}
		return without
	}
}

// scanOption looks for NOVALUES among the options of HSCAN key cursor, of which the others have a
// value.
func (o Args[A]) scanOption(args []A) Reply {
	for i := 3; i < len(args); i++ {
		switch strings.ToLower(o.Word(args[i])) {
		case "novalues":
			return NoValues
		case "match", "count":
			i++
		}
	}
	return ScanValues
}

// compares refuses the options that compare the stored bytes, from an argument on.
func (o Args[A]) compares(from int) func([]A) string {
	return func(args []A) string {
		for _, a := range args[min(from, len(args)):] {
			if comparing(o.Word(a)) {
				return comparesBytes
			}
		}
		return ""
	}
}

func comparing(option string) bool {
	return len(option) > 3 && (strings.EqualFold(option[:3], "ifd") || strings.EqualFold(option, "ifeq") || strings.EqualFold(option, "ifne"))
}

// Single returns the position of the only value that a command with n arguments writes, and where
// its reply may hold a value. It returns 0 if there are several values or none, or their position
// depends on the arguments.
func (c *Command[A]) Single(n int) (at int, reply Reply) {
	values := c.values.within(n)
	if c.find != nil || values.First != values.Last {
		return 0, NoValues
	}
	if c.replyIf != nil { // SET with GET
		return values.First, OneValue
	}
	return values.First, c.reply
}

// Refuses reports whether one of the options of a command with a single value makes it work on the
// stored bytes.
func (c *Command[A]) Refuses(option string) bool {
	return c.refuseIf != nil && comparing(Word(option))
}

// numbered finds keys whose number is argument at: each is followed by a value when step is 2.
func (o Args[A]) numbered(at, step int) func([]A) (keys, values Span) {
	return func(args []A) (keys, values Span) {
		n, ok := o.number(args, at)
		if !ok || n == 0 {
			return Span{}, Span{}
		}
		first := at + 1
		last := min(first+n*step-1, len(args)-1)
		if step == 2 {
			values = Span{first + 1, last, step}
		}
		return Span{first, last, step}, values
	}
}

// hashFields finds the values of HSETEX key ... FIELDS n field value ...
func (o Args[A]) hashFields(args []A) (keys, values Span) {
	for i := 2; i < len(args); i++ {
		if strings.EqualFold(o.Word(args[i]), "fields") {
			if n, ok := o.number(args, i+1); ok && n > 0 {
				return firstKey, Span{i + 3, min(i+1+2*n, len(args)-1), 2}
			}
		}
	}
	return firstKey, Span{}
}

// imported finds the values of HIMPORT SET key fieldset value ..., the names of whose fields were
// sent before.
func (o Args[A]) imported(args []A) (keys, values Span) {
	if len(args) > 2 && strings.EqualFold(o.Word(args[1]), "set") {
		return second, Span{4, -1, 1}
	}
	return Span{}, Span{}
}

// number reads an argument that counts what follows it: at most as many as there are.
func (o Args[A]) number(args []A, at int) (int, bool) {
	if at >= len(args) {
		return 0, false
	}
	n := o.Number(args[at])
	return min(n, len(args)), n >= 0
}

// Spans are the keys and values among the arguments.
func (c *Command[A]) Spans(args []A) (keys, values Span) {
	keys, values = c.keys, c.values
	if c.find != nil {
		keys, values = c.find(args)
	}
	return keys.within(len(args)), values.within(len(args))
}

// within resolves an end that counts from the end, and cuts the span to the arguments there are.
func (s Span) within(n int) Span {
	if s.Step == 0 {
		return Span{1, 0, 1}
	}
	if s.Last < 0 {
		s.Last += n
	}
	s.Last = min(s.Last, n-1)
	return s
}
