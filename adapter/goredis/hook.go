package goredis

import (
	"context"
	"encoding"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/glob"
	"github.com/balekv/bale/stats"
)

// HookOptions are the settings of a [Hook]. Match is required.
type HookOptions struct {
	// Match are patterns of the keys in scope, in the syntax of Redis' KEYS: "user:*". A key that
	// matches any of them is; "*" is all keys. Those of a dictionary registry (bale:dict:*) are
	// never in scope.
	Match []string

	// Exclude are patterns of keys that are out of scope even if they match. Their values are
	// neither packed nor unpacked, and no command on them is refused.
	Exclude []string

	// ReadOnly unpacks but does not pack: the first phase of a roll-out, and the last phase of a
	// roll-back. Values are written unchanged, with one exception: a value that is itself a frame
	// is escaped, which takes 10 to 18 bytes more. Otherwise readers would unpack an uploaded
	// frame. Of random bytes, one value in 4 billion starts like a frame. Programs without the hook
	// see an escaped value with these bytes in front.
	ReadOnly bool

	// NoEscape writes frames unchanged, with ReadOnly. Set it if programs without the hook must
	// read these values byte for byte, or if the program moves packed values itself. Then the
	// writer of a value controls the bytes that readers get. Without ReadOnly it has no effect.
	NoEscape bool

	// RefuseScripts refuses EVAL, FCALL and their variants if a key that they declare is in scope:
	// scripts see packed bytes.
	RefuseScripts bool

	// Recorder receives an Event for each command that reads or writes values of keys in scope. Nil
	// for none. A command for one value is a stats.Get or stats.Set. A command that can have many
	// values (such as MGET, HGETALL, MSET or HSET) is a stats.GetMany or stats.SetMany; its keys
	// are the keys or fields in scope. A command that reads and writes (GETSET, SET with GET) is a
	// stats.Set, and its old value is not counted. Numbers have no bytes; with NoEscape, neither
	// have values that marshal themselves. In a pipeline each command has its own Event, with the
	// whole pipeline's time in Redis. The Recorder receives no Event for a refused command, nor for
	// the reads of a transaction by hand (MULTI and EXEC sent as commands of their own).
	Recorder stats.Recorder
}

// Hook packs values as they are written and unpacks them as they are read. Make one with [NewHook]
// and put it on any number of clients with [Hook.Install]; it is safe for concurrent use. A Hook is
// no redis.Hook on purpose: AddHook would leave paths of a cluster client or a ring without it,
// which hand out packed bytes.
type Hook struct {
	packer  *bale.Packer
	options HookOptions
	scratch sync.Pool // of *[]byte, to pack into

	recordings sync.Pool // of *recordings
}

// maxScratch is the largest buffer in bytes that is kept for packing.
const maxScratch = 1 << 20

// NewHook makes a Hook. An empty Match and a pattern that is none are bale.ErrInvalid.
func NewHook(packer *bale.Packer, o HookOptions) (*Hook, error) {
	if packer == nil {
		return nil, fmt.Errorf("goredis: %w: no Packer", bale.ErrInvalid)
	}
	if len(o.Match) == 0 {
		return nil, fmt.Errorf(`goredis: %w: no Match: name the keys to pack, or "*" for all`, bale.ErrInvalid)
	}
	for _, patterns := range [][]string{o.Match, o.Exclude} {
		for _, p := range patterns {
			if err := glob.Check(p); err != nil {
				return nil, fmt.Errorf("goredis: %w: pattern %q %w", bale.ErrInvalid, p, err)
			}
		}
	}
	return &Hook{packer: packer, options: o,
		scratch:    sync.Pool{New: func() any { return new([]byte) }},
		recordings: sync.Pool{New: func() any { return new(recordings) }},
	}, nil
}

// inScope reports whether the hook deals with a key.
func (h *Hook) inScope(key string) bool {
	if strings.HasPrefix(key, dict.DefaultPrefix) {
		return false // packed with themselves, dictionaries could not be read
	}
	for _, p := range h.options.Exclude {
		if glob.Match(p, key) {
			return false
		}
	}
	return slices.ContainsFunc(h.options.Match, func(p string) bool { return glob.Match(p, key) })
}

// holdsAll reports whether all keys are in scope, except for a registry's, which hold nothing
// packed.
func (h *Hook) holdsAll() bool {
	return len(h.options.Exclude) == 0 && slices.Contains(h.options.Match, "*")
}

// process sends one command, packed, and unpacks its reply. If outer is set, it marks the context
// for the hook on the node's client.
func (h *Hook) process(ctx context.Context, cmd redis.Cmder, outer bool, tx *transaction, next redis.ProcessHook) error {
	recs := h.recordingsOf(1)
	rec := recs.at(0)
	c, err := h.prepare(ctx, cmd, rec)
	if err != nil {
		cmd.SetErr(err)
		return err
	}
	defer c.restore() // also when a hook further down panics
	sending := ctx
	if outer && c.cmd != nil {
		c.texts()
		sending = &underway{Context: ctx, hook: h, cmd: cmd}
	}
	err = next(sending, cmd)
	rec.stage(stats.Store)
	c.restore()
	c.queue = tx.follow(cmd, c)
	batch := h.packer.Batch()
	failure, failed := h.finish(ctx, c, rec, &batch)
	if failure != nil {
		err = failure
	}
	h.tell(ctx, rec, err, failed)
	h.done(recs)
	return err
}

// processPipeline is process for a pipeline or a transaction.
func (h *Hook) processPipeline(ctx context.Context, cmds []redis.Cmder, outer bool, next redis.ProcessPipelineHook) error {
	calls := make([]call, 0, len(cmds))
	send := make([]redis.Cmder, 0, len(cmds))
	recs := h.recordingsOf(len(cmds))
	var refused error
	for _, cmd := range cmds {
		rec := recs.at(len(calls)) // one of a command that is refused is used for the next
		c, err := h.prepare(ctx, cmd, rec)
		if err != nil {
			cmd.SetErr(err)
			if refused == nil {
				refused = err
			}
			continue
		}
		calls = append(calls, c)
		send = append(send, cmd)
	}
	defer func() { // also when a hook further down panics
		for _, c := range calls {
			c.restore()
		}
	}()
	if refused != nil && isTransaction(cmds) {
		for _, cmd := range send {
			cmd.SetErr(fmt.Errorf("bale: the transaction was not sent: %w", refused))
		}
		return refused
	}
	var err error
	if len(send) > 0 {
		var started time.Duration
		if recs != nil {
			started = time.Since(clock)
		}
		sending := ctx
		if outer {
			sending = &underway{Context: ctx, hook: h, cmds: send}
		}
		err = next(sending, send)
		recs.sent(started)
	}
	unsent := recs != nil && err != nil && !slices.ContainsFunc(send, func(cmd redis.Cmder) bool { return cmd.Err() != nil })
	changed := refused != nil
	batch := h.packer.Batch()
	var tx *transaction
	if isTransaction(send) {
		tx = new(transaction)
	}
	for i, c := range calls {
		c.restore()
		c.queue = tx.follow(send[i], c)
		rec := recs.at(i)
		rec.start()
		failure, failed := h.finish(ctx, c, rec, &batch)
		changed = failure != nil || changed
		if rec == nil {
			continue
		}
		if failure = send[i].Err(); unsent {
			failure = err
		}
		h.tell(ctx, rec, failure, failed)
	}
	h.done(recs)
	if !changed {
		return err
	}
	// As go-redis does: the error of the first command that failed.
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil {
			return err
		}
	}
	return err
}

// isTransaction reports a MULTI anywhere in a pipeline. If a command of the transaction is refused,
// the others must not run.
func isTransaction(cmds []redis.Cmder) bool {
	return slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Name() == "multi" })
}

// call is a command in flight. The hook ignores the zero call.
type call struct {
	cmd   redis.Cmder
	name  string
	keys  span
	reply reply
	saved []argument

	pattern string   // of SORT, the first that may name keys in scope
	gets    []int    // of SORT, where the patterns of GET are among the arguments
	queue   []queued // of EXEC, the commands that it executes, if they are known
}

// argument is a replaced argument, to be restored.
type argument struct {
	at    int
	value any
}

// restore puts the application's arguments back. Other code that looks at the command, or sends it
// again, finds it unchanged.
func (c *call) restore() {
	for _, a := range slices.Backward(c.saved) { // an argument may be there twice
		c.cmd.Args()[a.at] = a.value
	}
	c.saved = nil
}

// texts turns packed values into strings where the plain ones were strings: a ClusterClient that
// splits a command by slot takes nothing else.
func (c *call) texts() {
	for _, a := range c.saved {
		if _, is := a.value.(string); !is {
			continue
		}
		if p, is := c.cmd.Args()[a.at].(packedArgument); is {
			c.cmd.Args()[a.at] = unsafe.String(unsafe.SliceData(p), len(p)) // nobody changes them
		}
	}
}

// prepare packs the values of a command in place of the plain ones. The error is for a command that
// must not be sent, whose arguments are then as they were.
func (h *Hook) prepare(ctx context.Context, cmd redis.Cmder, rec *recording) (call, error) {
	args := cmd.Args()
	spec, name := lookup(args)
	if spec == nil {
		return call{}, nil
	}
	keys, values := spec.spans(args)
	c := call{cmd: cmd, name: name, keys: keys, reply: spec.reply}
	if spec.replyIf != nil {
		c.reply = spec.replyIf(args)
	}
	if spec.sorts {
		var reason string
		if reason, c.pattern, c.gets = h.sorted(args); reason != "" {
			return call{}, &CommandError{name, c.pattern, reason}
		}
		if c.pattern != "" {
			c.reply = anyValues
		}
	}
	if reason := h.refusal(spec, cmd, c.reply); reason != "" {
		if c.reply == anyValues {
			return call{}, &CommandError{name, c.pattern, reason}
		}
		for i := keys.first; i <= keys.last; i += keys.step {
			if key := text(args[i]); h.inScope(key) {
				return call{}, &CommandError{name, key, reason}
			}
		}
		return call{}, nil // out of scope, all of it
	}
	if rec != nil {
		h.begin(ctx, rec, spec, &c, values)
	}
	if h.options.ReadOnly && h.options.NoEscape {
		if rec != nil && rec.on {
			h.countPlain(rec, &c, values)
		}
		return c, nil
	}
	for i := values.first; i <= values.last; i += values.step {
		key := text(args[c.keyOf(i)])
		if !h.inScope(key) {
			continue
		}
		packed, err := h.pack(args[i], rec)
		if err != nil {
			c.restore()
			err = &bale.KeyError{Op: name, Key: key, Err: err}
			h.tell(ctx, rec, err, 0)
			if rec != nil {
				*rec = recording{}
			}
			return call{}, err
		}
		if packed != nil {
			c.saved = append(c.saved, argument{i, args[i]})
			args[i] = packed
		}
	}
	if values.first <= values.last {
		rec.stage(stats.Pack)
	}
	return c, nil
}

// keyOf is the position of the key of the value at i: the only key, or the one before the value.
func (c *call) keyOf(i int) int {
	if c.keys.first == c.keys.last {
		return c.keys.first
	}
	return i - 1
}

// lookup finds the table entry of a command. Names are in lower case, unless they come from Do.
func lookup(args []any) (*command, string) {
	if len(args) == 0 {
		return nil, ""
	}
	name, ok := args[0].(string)
	if !ok {
		name = text(args[0])
	}
	spec, ok := commands[name]
	if !ok {
		name = strings.ToLower(name)
		if spec, ok = commands[name]; !ok {
			return nil, ""
		}
	}
	return spec, name
}

// refusal is why a command must not be sent for keys in scope, or empty.
func (h *Hook) refusal(spec *command, cmd redis.Cmder, r reply) string {
	switch {
	case spec.refuse != "":
		return spec.refuse
	case spec.script && h.options.RefuseScripts:
		return "scripts see packed bytes, and HookOptions.RefuseScripts is set"
	case spec.moves:
		if args := cmd.Args(); len(args) > 2 && h.inScope(text(args[1])) && !h.inScope(text(args[2])) {
			return movesBytes
		}
		return ""
	}
	if spec.refuseIf != nil {
		if reason := spec.refuseIf(cmd.Args()); reason != "" {
			return reason
		}
	}
	if r != noValues {
		switch cmd.(type) {
		case *redis.StringCmd, *redis.StatusCmd, *redis.SliceCmd, *redis.StringSliceCmd, *redis.MapStringStringCmd, *redis.KeyValueSliceCmd, *redis.ScanCmd, *redis.Cmd:
			// what unpacking.replace deals with
		case *redis.IntCmd, *redis.BoolCmd, *redis.FloatCmd, *redis.IntSliceCmd, *redis.BoolSliceCmd, *redis.DurationCmd, *redis.TimeCmd:
			// hold no bytes
		default:
			return fmt.Sprintf("a %T hands out the reply's bytes as they are", cmd)
		}
	}
	return ""
}

// pack returns the packed form of an argument, with ReadOnly the escaped one, or nil if that is the
// argument itself. The bytes are newly allocated, not pooled: after a time-out, go-redis may still
// be writing them.
func (h *Hook) pack(arg any, rec *recording) (any, error) {
	if p, ok := arg.(packedArgument); ok && rec != nil {
		rec.stored(p)
	}
	plain, err := content(arg)
	if err != nil || plain == nil {
		return nil, err
	}
	pack := h.packer.Pack
	if h.options.ReadOnly {
		if pack = h.packer.Escape; !frame.HasMagic(plain) {
			if rec != nil {
				rec.stored(plain)
			}
			return nil, nil
		}
	}
	scratch := h.scratch.Get().(*[]byte)
	defer func() {
		if cap(*scratch) <= maxScratch {
			h.scratch.Put(scratch)
		}
	}()
	room := cap(*scratch)
	packed, err := pack((*scratch)[:0], plain)
	*scratch = packed[:0]
	if err != nil {
		return nil, err
	}
	if rec != nil {
		rec.stored(packed)
		if cap(packed) != room {
			rec.event.Fresh++
		}
	}
	if !frame.HasMagic(packed) {
		return nil, nil // it did not get smaller
	}
	return packedArgument(append(make([]byte, 0, len(packed)), packed...)), nil
}

// packedArgument is a value that a hook has packed. A program may queue one slice of arguments
// twice. The second command then finds packed values, and must not pack them again.
type packedArgument []byte

// MarshalBinary returns the bytes to send, for go-redis.
func (p packedArgument) MarshalBinary() ([]byte, error) { return p, nil }

// content returns the bytes that go-redis would send for an argument that can hold a value. It
// returns nil for other types, such as numbers and times, which stay unchanged.
func content(arg any) ([]byte, error) {
	switch v := arg.(type) {
	case packedArgument:
		return nil, nil
	case string:
		return unsafeBytes(v), nil
	case []byte:
		return v, nil
	case *string:
		if v == nil {
			return nil, nil
		}
		return unsafeBytes(*v), nil
	case net.IP:
		return v, nil
	case time.Time, *time.Time: // marshalers, but go-redis writes them as text
		return nil, nil
	case encoding.BinaryMarshaler:
		b, err := v.MarshalBinary()
		if err != nil {
			return nil, &codec.Error{Op: "encode", Codec: "MarshalBinary", Type: fmt.Sprintf("%T", v), Err: err}
		}
		return b, nil
	}
	return nil, nil
}

// unsafeBytes are the bytes of a string, to be read only.
func unsafeBytes(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// text is an argument as a key.
func text(arg any) string {
	switch v := arg.(type) {
	case string:
		return v
	case nil:
		return ""
	}
	b, err := content(arg)
	if err == nil && b != nil {
		return string(b)
	}
	return fmt.Sprint(arg)
}

// finish unpacks the values of a reply. If a value cannot be unpacked, the command gets the error
// and holds no value; failed counts such values. A single cached miss is redis.Nil, like a missing
// key.
func (h *Hook) finish(ctx context.Context, c call, rec *recording, batch *bale.Batch) (err error, failed int) {
	if c.reply == noValues || c.cmd == nil || c.cmd.Err() != nil {
		return nil, 0
	}
	u := unpacking{ctx: ctx, h: h, batch: *batch, call: c, args: c.cmd.Args()}
	if rec != nil && rec.on {
		u.rec = rec
	}
	u.replace()
	*batch = u.batch // a copy in u keeps both off the heap
	switch {
	case u.none:
		err = redis.Nil
	case len(u.failed) == 0:
		return nil, 0
	case len(u.failed) == 1:
		err = u.failed[0]
	default:
		err = u.failed
	}
	c.cmd.SetErr(err)
	return err, u.bad
}
