package proxy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/balekv/bale"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/rediscmd"
)

const (
	maxName   = 32       // bytes: no command that the proxy knows has a longer name
	maxLong   = 1 << 10  // bytes of a command's name that is passed on
	maxInline = 64 << 10 // bytes of a command without lengths, as in Redis
	maxArgs   = 1 << 20  // of a command that the proxy looks into
	freeArgs  = 128      // that are not charged
	perArg    = 24       // bytes
	maxKey    = 200      // bytes of a key in the slow log
	minSize   = 64       // bytes: the Packer's default, below which it packs nothing
	headRoom  = maxNumber

	// substitute is sent in place of a command that is refused. Redis rejects it in its turn, and
	// the reply becomes the proxy's. Within a transaction EXEC then fails, as it should.
	substitute = "*1\r\n$3\r\nGET\r\n"

	// loud is sent for CLIENT REPLY OFF and SKIP. The proxy leaves replies out itself: it must see
	// each, to know which command it belongs to.
	loud = "*3\r\n$6\r\nCLIENT\r\n$5\r\nREPLY\r\n$2\r\nON\r\n"
)

const ping = "*1\r\n$4\r\nPING\r\n"

var (
	errGone = errors.New("the other side is gone")
	errLast = errors.New("the connection ends after the last reply")
)

const (
	tooLarge   = "it is larger than the proxy holds (--max-request; 16 KiB before the login), or its memory is taken (--max-memory); try again, or send it in parts"
	tooMany    = "it has more arguments than the proxy looks into, 1,048,576 with its name; send it in parts"
	noReplica  = "the proxy is no source for replicas; connect to Redis itself"
	inMonitor  = "a connection in MONITOR takes PING, RESET and QUIT alone; use another one"
	notInMulti = "the proxy takes it outside of transactions alone; send it before MULTI"
	noName     = "a command's name has no zero byte, and at most 1,024 bytes"
	notShared  = "counts writes of its own connection, and earlier ones were shared (--pool); begin one with CLIENT ID"
	longMulti  = "the transaction has more commands than the proxy holds, or its memory is taken (--max-memory); split it"
)

// specials are commands that change the connection's state.
var specials = map[string]role{
	"multi": multi, "exec": exec, "discard": discard, "watch": immediate, "quit": immediate, "reset": reset, "auth": login, "hello": hello, "monitor": monitor, "client": replyOn, "cluster": slots,
	"subscribe": subscribe, "psubscribe": subscribe, "ssubscribe": subscribe, "unsubscribe": unsubscribe, "punsubscribe": unsubscribe, "sunsubscribe": unsubscribe,
	"sync": refused, "psync": refused, "replconf": refused,
}

// table is the hook's.
var table = rediscmd.New(rediscmd.Args[[]byte]{Text: text, Word: text, Number: func(b []byte) int {
	n, ok := parseInt(b)
	if !ok {
		return -1
	}
	return int(min(n, math.MaxInt))
}})

// is compares a word as Redis does.
func is(word []byte, name string) bool { return strings.EqualFold(rediscmd.Word(text(word)), name) }

// text is an argument as a string, which is there until the next read.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// requests forwards requests until the client ends, or the proxy drains.
func (c *client) requests() error {
	r := c.up
	for {
		if err := r.settle(); err != nil {
			return err
		}
		if c.hurried { // the deadline is for one request
			c.hurried = r.taken > 0
			c.deadline(c.conn.SetReadDeadline, r.taken)
		}
		if r.at == r.end && !c.proxy.draining.Load() { // a request finished meanwhile was the last
			c.idle = true
			_, err := r.peek()
			if c.idle = false; err != nil && !c.proxy.draining.Load() {
				return err
			}
		}
		if c.proxy.draining.Load() {
			return nil
		}
		if c.outbox != nil {
			pooled, err := c.shares()
			if err == nil && !pooled {
				err = c.own()
			}
			if err != nil {
				return err
			}
		}
		if c.queue.full() {
			if err := r.flush(); err != nil {
				return err
			}
			if !c.await((*queue).tooMany) {
				return errGone
			}
		}
		if err := c.checkMulti(); err != nil {
			return err
		}
		r.hold()
		c.packing = c.proxy.packing.Load()
		err := c.request()
		if c.hurried && errors.Is(err, os.ErrDeadlineExceeded) && !c.proxy.draining.Load() {
			err = malformed("the request does not go on (--stall)")
		}
		if errors.Is(err, errMalformed) {
			err = c.malformed(err)
		}
		if err != nil {
			return err
		}
	}
}

// checkMulti keeps a client without a login from taking memory for a transaction, which it cannot
// have.
func (c *client) checkMulti() error {
	if c.multi.used < freeExpected || c.known.Load() {
		return nil
	}
	_, err := c.transacts(c.up.at)
	return err
}

// transacts reports whether a transaction has begun. The server may have refused MULTI: until the
// reply is known, it sends what is before start and waits for all replies.
func (c *client) transacts(start int) (bool, error) {
	if !c.inMulti || c.begun {
		return c.inMulti, nil
	}
	if err := c.up.send(start); err != nil {
		return false, err
	}
	if !c.await((*queue).any) {
		return false, errGone
	}
	if c.begun = c.within; !c.begun { // of the other side, which has nothing to do now
		c.memory.give(c.multi.taken)
		c.inMulti, c.multi.used, c.multi.taken, c.before = false, 0, 0, expected{}
	}
	return c.inMulti, nil
}

// malformed ends a connection whose client breaks the protocol.
func (c *client) malformed(why error) error {
	r := c.up
	if r.held < 0 && !r.lost {
		// A part of the command may be with the server, which finds out by itself.
		r.at = min(r.at+1, r.end)
		r.out = append(append(r.out, r.buf[r.from:r.at]...), "\r\n"...)
		r.from = r.at
		return cmp.Or(r.flush(), io.EOF)
	}
	if err := r.lose(); err != nil {
		return err
	}
	start, _ := r.release()
	if err := c.instead(start, substitute, expected{role: last, more: &details{text: "-ERR " + why.Error()}}); err != nil {
		return err
	}
	return cmp.Or(r.flush(), errLast)
}

// request forwards one request, whose start is held.
func (c *client) request() error {
	r := c.up
	if kind, err := r.peek(); err != nil {
		return err
	} else if kind != '*' {
		return c.inline()
	}
	n, err := r.number()
	switch {
	case errors.Is(err, errMalformed) || err == nil && n > math.MaxInt32:
		return malformed("invalid multibulk length")
	case err != nil:
		return err
	case n <= 0: // has no reply
		r.release()
		return nil
	}
	size, err := c.bulk()
	if err != nil {
		return err
	}
	c.called, c.key = "", ""
	var word []byte
	if size <= maxLong {
		before := r.at - r.held
		if err := r.body(size); err != nil {
			return err
		}
		if !r.lost {
			word = r.buf[r.held+before:][:size]
		}
		size = 0
	}
	name, spec, role, why, err := c.lookup(word, r.held)
	if err != nil {
		return err
	}
	if role == login && why == "" {
		if why, err = c.alone(r.held); err != nil {
			return err
		}
	}
	left := n - 1 // arguments
	switch {
	case why != "":
	case spec == nil && role != hello && role != replyOn && role != slots:
		c.passes(name, role)
		c.expects(c.expectedOf(name, role, int(left)))
		r.release()
		if size > 0 {
			if err := r.body(size); err != nil {
				return err
			}
		}
		if err := c.arguments(left); err != nil {
			return err
		}
		return c.settled(role)
	case spec != nil && spec.OneKey() && left > 0:
		size, err := c.bulk()
		if err != nil {
			return err
		}
		before := r.at - r.held
		if err := r.body(size); err != nil {
			return err
		}
		left--
		if !r.lost {
			c.note(&c.key, text(r.buf[r.held+before:][:size]))
		}
		if !r.lost && !c.packing.scope.Has(text(r.buf[r.held+before:][:size])) {
			c.expects(expected{})
			r.release()
			return c.arguments(left)
		}
		if at, reply := spec.Single(int(min(n, maxArgs))); at > 0 {
			between := int64(at - 2)
			if err := c.arguments(between); err != nil {
				return err
			}
			size, err := c.bulk()
			if err != nil {
				return err
			}
			left -= between + 1
			if !r.lost && int64(r.at-r.held)+size > int64(r.limit) {
				return c.stream(name, spec, reply, size, left)
			}
			if err := r.body(size); err != nil {
				return err
			}
		}
	}
	if n > maxArgs {
		why = cmp.Or(why, tooMany)
	}
	if why != "" {
		if err := r.lose(); err != nil {
			return err
		}
	}
	if size > 0 {
		if err := r.body(size); err != nil {
			return err
		}
	}
	if err := c.arguments(left); err != nil {
		return err
	}
	start, ok := r.release()
	if !ok {
		return c.refuse(start, name, cmp.Or(why, tooLarge))
	}
	if n > freeArgs && !c.takeArgs(int(n)*perArg) {
		return c.refuse(start, name, tooLarge)
	}
	defer c.giveArgs()
	c.args = c.args[:0]
	for at := start + len("*\r\n") + digits(int(n)); at < r.at; {
		size := 0
		for at++; r.buf[at] != '\r'; at++ {
			size = 10*size + int(r.buf[at]-'0')
		}
		at += len("\r\n")
		c.args = append(c.args, r.buf[at:at+size])
		at += size + len("\r\n")
	}
	return c.command(start, name, spec, role, false)
}

// takeArgs takes n bytes of memory for the arguments of a command, until giveArgs.
func (c *client) takeArgs(n int) bool {
	if !c.memory.take(n) {
		return false
	}
	c.forArgs = n
	return true
}

// giveArgs gives back what many arguments take. It clears all of them: an argument keeps its whole
// buffer alive, however large that grew.
func (c *client) giveArgs() {
	if c.memory.give(c.forArgs); c.forArgs > 0 {
		c.args, c.forArgs = nil, 0
	}
	clear(c.args)
}

// stream forwards a command with a value that is too large to be packed, from the value on. left is
// how many options follow.
func (c *client) stream(name string, spec *rediscmd.Command[[]byte], reply rediscmd.Reply, size, left int64) error {
	r := c.up
	for r.end-r.at < 2 {
		if err := r.more(); err != nil {
			return err
		}
	}
	// It may have to be escaped, or what is before it is gone.
	if r.lost || frame.HasMagic(r.buf[r.at:r.end]) {
		if err := r.lose(); err != nil {
			return err
		}
		if err := r.body(size); err != nil {
			return err
		}
		if err := c.arguments(left); err != nil {
			return err
		}
		start, _ := r.release()
		return c.refuse(start, name, tooLarge)
	}
	c.proxy.counters.large.Add(1)
	c.expects(expected{reply: reply})
	r.release()
	// What is before the value is not held any more, however large it was.
	there := min(size, int64(r.end-r.at))
	r.at += int(there)
	if err := r.settle(); err != nil {
		return err
	}
	if c.hurried && r.taken == 0 {
		c.hurried = false
		c.deadline(c.conn.SetReadDeadline, 0)
	}
	if err := r.body(size - there); err != nil {
		return err
	}
	for range left {
		size, err := c.bulk()
		if err != nil {
			return err
		}
		seen := int(min(size, maxName)) // of the option: a longer one may end with a zero byte before
		for r.end-r.at < seen {
			if err := r.more(); err != nil {
				return err
			}
		}
		if option := r.buf[r.at:][:seen]; spec.Refuses(text(option)) {
			copy(option, "----") // a syntax error for Redis: it is too late to refuse the command
		}
		if err := r.body(size); err != nil {
			return err
		}
	}
	return nil
}

// bars is why a command is refused whatever its arguments are, or empty.
func (c *client) bars(name string, role role) string {
	switch {
	case c.monitoring.Load() && name != "ping" && role != reset && name != "quit":
		return inMonitor
	case role == refused:
		return noReplica
	case c.submitted && (name == "wait" || name == "waitaof"):
		return notShared
	case c.inMulti && (role == subscribe || role == unsubscribe || role == monitor):
		return notInMulti
	case c.inMulti && role != exec && role != discard && role != reset && (c.multi.used >= maxQueued || !c.multi.fits()):
		return longMulti
	}
	return ""
}

// passes counts a command that the proxy does not know.
func (c *client) passes(name string, role role) {
	if role == plain && rediscmd.Passes(name) == rediscmd.Unknown {
		c.proxy.counters.unknown.add(name)
	}
}

// expectedOf is the reply to a command of which only the number of arguments matters.
func (c *client) expectedOf(name string, role role, args int) expected {
	e := expected{role: role}
	switch {
	case role == subscribe && args == 0, args > 0 && (role == multi || role == discard || role == reset || role == monitor):
		e.role = plain // an error
	case role == subscribe, role == unsubscribe:
		if args > 0 {
			e.role = subscribe
		}
		e.more = &details{number: args, channel: strings.Clone(name)}
	}
	return e
}

// alone sends what is before a login, and waits for the replies. Redis from 7.2 on leaves the error
// of a login out while others wait to be sent, and within EXEC: so why is not empty there.
func (c *client) alone(start int) (why string, err error) {
	c.giveArgs()
	if err := c.up.send(start); err != nil {
		return "", err
	}
	if !c.await((*queue).any) {
		return "", errGone
	}
	if c.within { // of the other side, which has nothing to do now
		return notInMulti, nil
	}
	return "", nil
}

// settled waits until all replies are there if they decide what the connection takes next. A login
// without a reply, which pushes can cause, ends the connection.
func (c *client) settled(role role) error {
	switch {
	case role == login:
		defer c.endIn(c.proxy.options.Stall, "the reply to its login does not come in time").Stop()
	case role != monitor && (role != reset || !c.monitoring.Load()):
		return nil
	}
	c.giveArgs()
	if err := c.up.flush(); err != nil {
		return err
	}
	if !c.await((*queue).any) {
		return errGone
	}
	return nil
}

// digits is how long a number is.
func digits(n int) int {
	d := 1
	for ; n > 9; n /= 10 {
		d++
	}
	return d
}

// bulk reads the length of an argument.
func (c *client) bulk() (int64, error) {
	kind, err := c.up.peek()
	if err != nil {
		return 0, err
	}
	if kind != '$' {
		return 0, malformed("expected '$', got '%c'", kind)
	}
	n, err := c.up.number()
	if errors.Is(err, errMalformed) || err == nil && (n < 0 || n > 1<<40) {
		return 0, malformed("invalid bulk length")
	}
	return n, err
}

// arguments goes past n arguments.
func (c *client) arguments(n int64) error {
	for range n {
		size, err := c.bulk()
		if err == nil {
			err = c.up.body(size)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// expects notes the reply to a command before anything of it is sent.
func (c *client) expects(e expected) {
	untimed := e
	c.timed(&e)
	if c.outbox != nil {
		c.batch = append(c.batch, e)
		return
	}
	switch {
	case e.role == multi && !c.inMulti:
		c.inMulti, c.begun = true, false
	case e.role == exec || e.role == discard || e.role == reset:
		c.inMulti = false
		if c.multi.taken > 0 { // until the reply is there
			if e.more == nil {
				e.more = new(details)
			}
			e.more.number = c.multi.taken
		}
		c.multi.used, c.multi.taken, c.before = 0, 0, expected{}
	case c.inMulti && e.role != refused && e.role != last && !untimed.like(&c.before): // EXEC lacks those
		c.multi.use(untimed.weight())
		c.before = untimed
	}
	c.queue.add(e)
}

// timed notes when a command is sent, for the slow log. Behind many replies it does not: commands
// with a time of their own are not alike, and the client would wait for much fewer of them.
func (c *client) timed(e *expected) {
	if c.proxy.options.SlowLog == 0 || e.role == probe || waits[c.called] || c.queue.long() {
		return
	}
	d := details{}
	if e.more != nil {
		d = *e.more
	}
	d.sent, d.name, d.key, d.untimed = time.Now(), c.called, c.key, e.more
	e.more = &d
}

// note keeps a part of the request for the slow log, if there is one.
func (c *client) note(into *string, s string) {
	if c.proxy.options.SlowLog > 0 {
		*into = strings.Clone(s[:min(len(s), maxKey)])
	}
}

// waits are the commands that take their time on purpose.
var waits = map[string]bool{
	"blmove": true, "blmpop": true, "blpop": true, "brpop": true, "brpoplpush": true, "bzmpop": true, "bzpopmax": true, "bzpopmin": true, "monitor": true,
	"wait": true, "waitaof": true, "xread": true, "xreadgroup": true,
}

// lower is the name of a command in lower case, which is there until the next one.
func (c *client) lower(name []byte) string {
	for i, b := range name {
		if 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		c.name[i] = b
	}
	return text(c.name[:len(name)])
}

// lookup finds a command by the word that names it, nil for one that is too long. Redis looks names
// up with all their bytes, and compares them up to a zero byte: which command it takes one with a
// zero byte for depends on chance. So why it must not be sent is not empty then. start is where the
// command starts.
func (c *client) lookup(word []byte, start int) (name string, spec *rediscmd.Command[[]byte], role role, why string, err error) {
	if word == nil || bytes.IndexByte(word, 0) >= 0 {
		return "", nil, plain, noName, nil
	}
	if len(word) <= maxName {
		name = c.lower(word)
	}
	c.note(&c.called, name)
	role, ok := specials[name]
	if !ok {
		spec, _ = table.Lookup(name)
	}
	if why = c.bars(name, role); why == notInMulti || why == longMulti {
		var begun bool
		if begun, err = c.transacts(start); !begun {
			why = ""
		}
	}
	return name, spec, role, why, err
}

// inline forwards a command as a person types it.
func (c *client) inline() error {
	r := c.up
	line, err := r.line(maxInline, true)
	switch {
	case errors.Is(err, errLong):
		return malformed("too big inline request")
	case err != nil:
		return err
	}
	// At most half as many words, with a buffer each, in a list that grows.
	if n := len(line); n > freeArgs && !c.takeArgs(n*perArg) {
		start, _ := r.release()
		return c.refuse(start, "inline command", tooLarge)
	}
	defer c.giveArgs()
	if c.args, err = words(line); err != nil {
		return err
	}
	start, _ := r.release()
	if len(c.args) == 0 {
		return nil // has no reply
	}
	c.note(&c.key, "")
	word := c.args[0]
	if len(word) > maxLong {
		word = nil
	}
	name, spec, role, why, err := c.lookup(word, start)
	if err != nil {
		return err
	}
	if why != "" {
		return c.refuse(start, name, why)
	}
	return cmp.Or(c.command(start, name, spec, role, true), c.settled(role))
}

// command forwards a command whose arguments are there; the buffer has it from start on.
func (c *client) command(start int, name string, spec *rediscmd.Command[[]byte], role role, inline bool) error {
	switch {
	case role == hello:
		e := expected{role: hello, more: new(details)}
		if len(c.args) > 1 {
			n, _ := parseInt(c.args[1])
			e.more.number = int(n)
		}
		if !slices.ContainsFunc(c.args[1:], func(option []byte) bool { return is(option, "auth") }) {
			c.expects(e)
			return nil
		}
		switch why, err := c.alone(start); {
		case err != nil:
			return err
		case why != "":
			return c.refuse(start, name, why)
		}
		c.expects(e)
		return c.settled(login)
	case role == replyOn:
		return c.clientReply(start)
	case role == slots:
		c.expects(expected{role: c.describes()})
		return nil
	case role == login:
		switch why, err := c.alone(start); {
		case err != nil:
			return err
		case why != "":
			return c.refuse(start, name, why)
		}
		c.expects(expected{role: login})
		return nil
	case spec == nil:
		c.passes(name, role)
		c.expects(c.expectedOf(name, role, len(c.args)-1))
		return nil
	}
	if spec.IsScript() {
		c.proxy.counters.scripts.Add(1)
	}
	scope := &c.packing.scope
	p := table.Plan(spec, c.args, scope)
	if p.Refuse != "" {
		return c.refuse(start, name, "on a key in scope: "+p.Refuse+"; ask Redis itself, or leave the key out (--match, --exclude)")
	}
	if p.Keys.First <= p.Keys.Last {
		c.note(&c.key, text(c.args[p.Keys.First]))
	}
	e := expected{reply: p.Reply}
	switch p.Reply {
	case rediscmd.NoValues:
	case rediscmd.KeyValues:
		e = c.mixed(e, p.Keys, scope.Has)
	case rediscmd.AnyValues:
		e.more = new(details)
		for _, at := range p.Gets {
			e.more.scope = append(e.more.scope, scope.MayName(text(c.args[at])))
		}
	default:
		if p.Keys.First > p.Keys.Last || !scope.Has(text(c.args[p.Keys.First])) {
			e.reply = rediscmd.NoValues
		}
	}
	if err := c.pack(start, &p, inline); err != nil {
		if k := c.proxy.packing.Load(); k != c.packing && errors.Is(err, os.ErrClosed) { // replaced meanwhile
			c.packing = k
			return c.command(start, name, spec, role, inline)
		}
		if errors.Is(err, errMemory) {
			return c.refuse(start, name, tooLarge)
		}
		if _, ok := errors.AsType[*packError](err); ok {
			c.proxy.counters.bad.Add(1)
			return c.refuse(start, name, err.Error())
		}
		return err
	}
	c.expects(e)
	return nil
}

// mixed says which elements of a reply are values of keys in scope.
func (c *client) mixed(e expected, keys rediscmd.Span, has func(string) bool) expected {
	in := 0
	scope := make([]bool, 0, (keys.Last-keys.First)/keys.Step+1)
	for i := keys.First; i <= keys.Last; i += keys.Step {
		scope = append(scope, has(text(c.args[i])))
		if scope[len(scope)-1] {
			in++
		}
	}
	switch in {
	case 0:
		e.reply = rediscmd.NoValues
	case len(scope):
	default:
		e.more = &details{scope: scope}
	}
	return e
}

// descriptions are the CLUSTER commands whose replies name nodes.
var descriptions = map[string]role{"slots": slots, "shards": shards, "nodes": nodeLines, "replicas": nodeLines, "slaves": nodeLines}

// describes is the role of a CLUSTER command.
func (c *client) describes() role {
	if len(c.args) > 1 && c.proxy.cluster != nil {
		for name, role := range descriptions {
			if is(c.args[1], name) {
				return role
			}
		}
	}
	return plain
}

// clientReply forwards CLIENT, of which CLIENT REPLY decides which replies there are. CLIENT
// MAINT_NOTIFICATIONS would have the server announce other addresses, and the client would connect
// there, past the proxy. It gets the error of a server without this subcommand.
func (c *client) clientReply(start int) error {
	e := expected{}
	if len(c.args) > 1 && is(c.args[1], "maint_notifications") {
		why := fmt.Sprintf("-ERR unknown subcommand '%s'. Try CLIENT HELP.", rediscmd.Word(text(c.args[1])))
		return c.instead(start, substitute, expected{role: refused, more: &details{text: why}})
	}
	if len(c.args) == 3 && is(c.args[1], "reply") {
		switch {
		case is(c.args[2], "on"):
			e.role = replyOn
		case is(c.args[2], "off"):
			e.role = replyOff
		case is(c.args[2], "skip"):
			e.role = replySkip
		}
	}
	if e.role != plain {
		if begun, err := c.transacts(start); err != nil {
			return err
		} else if begun {
			return c.refuse(start, "client", notInMulti)
		}
	}
	switch {
	case e.role == replyOff, e.role == replySkip:
		return c.instead(start, loud, e)
	}
	c.expects(e)
	return nil
}

// refuse has the server reject something in place of a command, so that replies keep their order.
// The reply will be an error that says why.
func (c *client) refuse(start int, name, why string) error {
	c.proxy.counters.refused.add(name)
	return c.instead(start, substitute, expected{role: refused, more: &details{text: fmt.Sprintf("-BALE %s %s", strings.ToUpper(name), why)}})
}

// instead sends another command in place of the one from start on.
func (c *client) instead(start int, command string, e expected) error {
	if err := c.up.upTo(start); err != nil {
		return err
	}
	c.up.from = c.up.at
	c.up.room(len(command)) // out grows by as little without it
	c.up.out = append(c.up.out, command...)
	c.expects(e)
	return nil
}

// packError is why a value cannot be packed.
type packError struct{ err error }

func (e *packError) Error() string { return "cannot pack a value: " + e.err.Error() }
func (e *packError) Unwrap() error { return e.err }

var errMemory = errors.New("no memory")

// pack replaces the values of a command by packed ones. On an error nothing of it is sent.
func (c *client) pack(start int, p *rediscmd.Plan, inline bool) error {
	r := c.up
	begun, mark, from := false, 0, 0
	next := 0 // argument, of an inline command
	k := c.packing
	put := func(at int, arg []byte) bool {
		if !inline {
			raw := cap(r.buf) - cap(arg) - len("$\r\n") - digits(len(arg))
			ok := r.put(r.buf[r.from:raw])
			r.from = raw
			return ok
		}
		ok := true
		for ; next < at && ok; next++ {
			ok = r.putString(c.args[next])
		}
		return ok
	}
	undo := func(err error) error {
		if begun {
			r.out, r.from = r.out[:mark], from
		}
		return err
	}
	for i := p.Values.First; i <= p.Values.Last; i += p.Values.Step {
		value := c.args[i]
		magic := frame.HasMagic(value)
		if !magic && (len(value) < minSize || k.readOnly) {
			continue
		}
		which := k.scope.Which(text(c.args[p.KeyOf(i)]))
		if which < 0 {
			continue
		}
		if !begun {
			if err := r.upTo(start); err != nil {
				return err
			}
			begun, mark, from = true, len(r.out), r.from
			if inline {
				r.out = strconv.AppendInt(append(r.out, '*'), int64(len(c.args)), 10)
				r.out = append(r.out, "\r\n"...)
			}
		}
		if !put(i, value) || !r.room(headRoom+bale.MaxPackedLen(len(value))) {
			return undo(errMemory)
		}
		at := len(r.out)
		pack := k.packers[which].Pack
		if k.readOnly {
			pack = k.packers[which].Escape
		}
		out, err := pack(r.out[:at+headRoom], value)
		if err != nil {
			return undo(&packError{err})
		}
		packed := out[at+headRoom:]
		if !k.readOnly {
			counters := &c.proxy.counters
			counters.packed.Add(1)
			counters.plain.Add(int64(len(value)))
			counters.stored.Add(int64(len(packed)))
		}
		if !frame.HasMagic(packed) && !inline { // it did not get smaller, and goes as it is
			continue
		}
		r.out = appendHeader(out[:at], '$', len(packed))
		r.out = append(append(r.out, packed...), "\r\n"...)
		if inline {
			next = i + 1
		} else {
			r.from = cap(r.buf) - cap(value) + len(value) + len("\r\n")
		}
	}
	if !begun {
		return nil
	}
	if inline {
		if !put(len(c.args), nil) {
			return undo(errMemory)
		}
		r.from = r.at
	}
	return nil
}

// putString puts a string with its length.
func (r *relay) putString(b []byte) bool {
	if !r.room(len(b) + headRoom + 2) {
		return false
	}
	r.out = appendHeader(r.out, '$', len(b))
	r.out = append(append(r.out, b...), "\r\n"...)
	return true
}

func appendHeader(dst []byte, kind byte, n int) []byte {
	return append(strconv.AppendInt(append(dst, kind), int64(n), 10), "\r\n"...)
}

// words splits a line as Redis does: by white space, with quotes and escapes. A zero byte is
// refused: Redis would take it for the end.
func words(line []byte) (words [][]byte, err error) {
	if bytes.IndexByte(line, 0) >= 0 {
		return nil, malformed("a zero byte in an inline request")
	}
	unbalanced := malformed("unbalanced quotes in request")
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) {
			return words, nil
		}
		word := []byte{}
		quote := byte(0)
		for ; ; i++ {
			if i == len(line) {
				if quote != 0 {
					return nil, unbalanced
				}
				break
			}
			b := line[i]
			switch {
			case quote == 0 && isSpace(b) && b != '\v' && b != '\f': // which end no word that has begun
			case quote == 0 && (b == '"' || b == '\''):
				quote = b
				continue
			case quote == '\'' && b == '\\' && i+1 < len(line) && line[i+1] == '\'':
				i++
				word = append(word, '\'')
				continue
			case quote == '"' && b == '\\' && i+1 < len(line):
				if i+3 < len(line) && line[i+1] == 'x' {
					if n, err := strconv.ParseUint(string(line[i+2:i+4]), 16, 8); err == nil {
						word = append(word, byte(n))
						i += 3
						continue
					}
				}
				i++
				b = line[i]
				if at := strings.IndexByte("nrtba", b); at >= 0 {
					b = "\n\r\t\b\a"[at]
				}
				word = append(word, b)
				continue
			case quote != 0 && b == quote: // nothing but white space may follow
				if i+1 < len(line) && !isSpace(line[i+1]) {
					return nil, unbalanced
				}
				i++
			default:
				word = append(word, b)
				continue
			}
			break
		}
		words = append(words, word)
	}
}

func isSpace(b byte) bool { return b == ' ' || b >= '\t' && b <= '\r' }
