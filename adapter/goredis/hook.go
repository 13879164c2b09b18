package goredis

import (
	"context"
	"encoding"
	"fmt"
	"math"
	"net"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/glob"
	"github.com/balekv/bale/internal/rediscmd"
	"github.com/balekv/bale/stats"
)

// HookOptions are the settings of a [Hook]. Match is required.
type HookOptions struct {
	// Match are patterns of the keys in scope, in the syntax of Redis' KEYS: "user:*". A key that
	// matches any of them is in scope; "*" is all keys. Those of a dictionary registry
	// (bale:dict:*) are never in scope.
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
	// stats.Set, and its old value is not counted. Numbers add no bytes; with NoEscape, neither do
	// values that marshal themselves. In a pipeline each command has its own Event, with the whole
	// pipeline's time in Redis. The Recorder receives no Event for a refused command, nor for the
	// reads of a transaction by hand (MULTI and EXEC sent as commands of their own).
	Recorder stats.Recorder
}

// Hook packs values as they are written and unpacks them as they are read. Make one with [NewHook]
// and put it on any number of clients with [Hook.Install]; it is safe for concurrent use. A Hook is
// no redis.Hook on purpose: AddHook would miss paths of a cluster client or a ring, and these would
// hand out packed bytes.
//
// It packs values as they are written: those of SET and its variants, and those of hashes. It
// unpacks them in the replies. It works in single commands, pipelines and transactions, with typed
// methods and with Do. Plain values, stored without the hook, are returned unchanged. If a value
// cannot be unpacked, its command fails with a *bale.KeyError. The hook never returns a packed
// value.
//
// Some commands work on a value's bytes inside the server: APPEND, GETRANGE, STRLEN, SETBIT, PFADD
// and others. They cannot work on packed bytes, so on keys in scope they fail with a [CommandError]
// before anything is sent. Commands that would take packed bytes out of the scope fail likewise:
// RENAME and COPY to a key outside it, and DUMP. INCR and its variants work. Values below 64 bytes
// (bale.PackerOptions.MinSize) are never packed, nor are numbers that are not given as text.
//
// [HookOptions].Recorder receives the same events as the Recorder of a bale.Cache: reads, writes,
// sizes, hits, errors and times.
//
// # Rolling out and rolling back
//
//  1. Give every process the hook with [HookOptions].ReadOnly: it unpacks, but does not pack. It
//     escapes a value that is itself a frame, such as an upload. A process without the hook sees
//     the header in front of an escaped value. NoEscape switches escaping off.
//  2. When all processes have it, remove ReadOnly process by process. Values are packed as they are
//     written.
//
// To roll back, set ReadOnly everywhere. Values become plain as they are rewritten or expire;
// escaped values stay escaped. Then remove the hook.
//
// # Limits
//
//   - Scripts and functions (EVAL, FCALL) see packed bytes. They pass, unless
//     [HookOptions].RefuseScripts is set.
//   - The commands of modules read keys that the hook does not know of. They pass.
//   - Clients without the hook see packed bytes. So does the client that WithTimeout returns:
//     go-redis drops all hooks there. Call [Hook.Install] on it, too.
//   - Auto-pipelining with FullDuplex sends a command before a hook can change it. [Hook.Install]
//     refuses a client that is set to it. Auto-pipelining without FullDuplex works.
//   - Other hooks see packed values if they were added after this one, and plain ones if before.
//     Those on a cluster's nodes see packed ones.
type Hook struct {
	packer  *bale.Packer
	options HookOptions
	scope   rediscmd.Scope
	scratch sync.Pool // of *[]byte, to pack into

	recordings sync.Pool // of *recordings
}

// maxScratch is the largest buffer in bytes that is kept for packing.
const maxScratch = 1 << 20

// NewHook makes a Hook. An empty Match, or a malformed pattern, is bale.ErrInvalid.
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
	scope := rediscmd.Scope{Match: o.Match, Exclude: o.Exclude, Prefix: dict.DefaultPrefix}
	if o.RefuseScripts {
		scope.RefuseScripts = "scripts see packed bytes, and HookOptions.RefuseScripts is set"
	}
	return &Hook{packer: packer, options: o, scope: scope,
		scratch:    sync.Pool{New: func() any { return new([]byte) }},
		recordings: sync.Pool{New: func() any { return new(recordings) }},
	}, nil
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
	cmd  redis.Cmder
	name string
	rediscmd.Plan
	saved []argument
	queue []queued // of EXEC, the commands that it executes, if they are known
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
	c := call{cmd: cmd, name: name, Plan: commands.Plan(spec, args, &h.scope)}
	if c.Refuse != "" {
		return call{}, &CommandError{name, c.At, c.Refuse}
	}
	if reason := unknownReply(cmd); reason != "" && c.Reply != rediscmd.NoValues {
		key, in := c.Pattern, c.Reply == rediscmd.AnyValues
		if !in {
			if key, in = commands.InScope(&c.Plan, args, &h.scope); !in {
				return call{}, nil
			}
		}
		return call{}, &CommandError{name, key, reason}
	}
	if rec != nil {
		h.begin(ctx, rec, spec, &c)
	}
	if h.options.ReadOnly && h.options.NoEscape {
		if rec != nil && rec.on {
			h.countPlain(rec, &c)
		}
		return c, nil
	}
	for i := c.Values.First; i <= c.Values.Last; i += c.Values.Step {
		key := text(args[c.KeyOf(i)])
		if !h.scope.Has(key) {
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
	if c.Values.First <= c.Values.Last {
		rec.stage(stats.Pack)
	}
	return c, nil
}

// commands is the table that the hook shares with bale proxy.
var commands = rediscmd.New(rediscmd.Args[any]{Text: text, Word: word, Number: number})

// lookup finds a command of the table. Names are in lower case, unless they come from Do.
func lookup(args []any) (*rediscmd.Command[any], string) {
	if len(args) == 0 {
		return nil, ""
	}
	name, ok := args[0].(string)
	if !ok {
		name = text(args[0])
	}
	return commands.Lookup(name)
}

// unknownReply is why the reply of a command cannot be unpacked, or empty.
func unknownReply(cmd redis.Cmder) string {
	switch cmd.(type) {
	case *redis.StringCmd, *redis.StatusCmd, *redis.SliceCmd, *redis.StringSliceCmd, *redis.MapStringStringCmd, *redis.KeyValueSliceCmd, *redis.ScanCmd, *redis.Cmd:
		return "" // what unpacking.replace deals with
	case *redis.IntCmd, *redis.BoolCmd, *redis.FloatCmd, *redis.IntSliceCmd, *redis.BoolSliceCmd, *redis.DurationCmd, *redis.TimeCmd:
		return "" // hold no bytes
	}
	return fmt.Sprintf("a %T hands out the reply's bytes as they are", cmd)
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

// text is an argument as a key, as go-redis sends it.
func text(arg any) string {
	switch v := arg.(type) {
	case string:
		return v
	case nil:
		return ""
	case bool:
		if v {
			return "1"
		}
		return "0"
	case float32:
		return text(float64(v))
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case time.Time:
		return v.Format(time.RFC3339Nano)
	case time.Duration:
		return strconv.FormatInt(int64(v), 10)
	}
	b, err := content(arg)
	if err == nil && b != nil {
		return string(b)
	}
	if p := reflect.ValueOf(arg); p.Kind() == reflect.Pointer && !p.IsNil() {
		return text(p.Elem().Interface())
	}
	return fmt.Sprint(arg)
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

// number is an argument that counts what follows it.
func number(arg any) int {
	switch v := arg.(type) {
	case int:
		return v
	case int64:
		return int(min(v, math.MaxInt))
	}
	n, err := strconv.Atoi(text(arg))
	if err != nil {
		return -1
	}
	return n
}

// finish unpacks the values of a reply. If a value cannot be unpacked, the command gets the error
// and holds no value; failed counts such values. A single cached miss is redis.Nil, like a missing
// key.
func (h *Hook) finish(ctx context.Context, c call, rec *recording, batch *bale.Batch) (err error, failed int) {
	if c.Reply == rediscmd.NoValues || c.cmd == nil || c.cmd.Err() != nil {
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
