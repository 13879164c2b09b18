package proxy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/balekv/bale"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/rediscmd"
)

// maxFrame bounds a stored value that is unpacked: 64 MiB and what an encoder may add to them.
const maxFrame = 64<<20 + 64<<20/6 + 4<<10

// maxWhole bounds a reply of many values in bytes, stored and decoded, that is held as a whole.
const maxWhole = 32 << 20

// A reply may decode to maxFree bytes, or to maxTimes the bytes of its packed values if that is
// more. A frame of a few KiB has 64 MiB, and how many a hash has is not the client's choice.
const (
	maxFree  = 256 << 20 // as PackerOptions.Budget
	maxTimes = 64        // usual values decode to 3 to 10 times
)

// maxText is the longest error of the proxy in bytes.
const maxText = 512

// maxClaim is the longest content in bytes that is allocated because a frame claims it.
const maxClaim = 1 << 20

// errUnasked: the server sends what belongs to no command. Which reply belongs to which is then
// unknown.
var errUnasked = fmt.Errorf("%w: a reply that no command asked for", errMalformed)

// errInflated: a reply decodes to more than it may.
var errInflated = fmt.Errorf("the reply decodes to more than %d MiB, and to more than %d times its stored bytes; read fewer values at once", maxFree>>20, maxTimes)

// growth is how many bytes the packed values of a reply have, and decode to, so far.
type growth struct{ stored, decoded uint64 }

// add counts a value. Beyond the limit it reports false, and counts nothing.
func (g *growth) add(stored int, decoded uint64) bool {
	after := g.stored + uint64(stored)
	if decoded > max(maxFree, maxTimes*after)-g.decoded {
		return false
	}
	g.stored, g.decoded = after, g.decoded+decoded
	return true
}

// session is the state of a connection as its replies tell it, which come in the order in which the
// server executes.
type session struct {
	protocol int  // 2 or 3
	within   bool // within MULTI
	queued   runs // the replies that EXEC will have
	off      bool // CLIENT REPLY OFF
	skip     bool // the next reply, after CLIENT REPLY SKIP

	// Subscriptions. total is what the server counts: channels and patterns together.
	channels, patterns, shards, total int
	missing                           int // confirmations of the first command in the queue; -1 is unknown

	// A push was taken for the confirmation of SUNSUBSCRIBE. When a slot leaves, the server sends the
	// same unasked, and refuses the command then.
	doubted bool
}

// replies forwards replies until the server ends, or the last one is there.
func (c *client) replies() error {
	r := c.down
	c.missing = -1
	for {
		if err := r.settle(); err != nil {
			return err
		}
		kind, err := r.peek()
		if err != nil {
			return err
		}
		own, err := c.unasked(kind)
		if err != nil || own {
			if err == nil && c.queue.drained() {
				return r.flush()
			}
			if err != nil {
				return err
			}
			continue
		}
		e, ok := c.queue.first()
		switch {
		case !ok && kind == '-': // the server says why it ends the connection
			return cmp.Or(r.reply(), r.flush(), io.EOF)
		case !ok:
			err = errUnasked
		default:
			if err = c.answer(e, kind); err != nil {
				break
			}
			if e.more != nil && !e.more.sent.IsZero() {
				c.proxy.slow(e.more, c.conn.RemoteAddr())
			}
			if e.more != nil && (e.role == exec || e.role == discard || e.role == reset) {
				c.memory.give(e.more.number)
			}
			if c.queue.take() || e.role == last {
				return r.flush()
			}
		}
		if err != nil {
			return err
		}
	}
}

// unasked forwards what is no reply to a command: messages and other pushes, and the lines of
// MONITOR. Confirmations of subscriptions are replies, but come with CLIENT REPLY OFF, too.
func (c *client) unasked(kind byte) (bool, error) {
	r := c.down
	e, _ := c.queue.first()
	waits := e.role == subscribe || e.role == unsubscribe
	switch {
	case kind == '>', kind == '*' && c.protocol == 2 && (waits || c.channels+c.patterns+c.shards > 0):
		word, err := c.firstWord()
		if err != nil {
			return false, err
		}
		switch word {
		case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe":
			return true, c.confirmation(word, e, waits)
		case "message", "pmessage", "smessage":
		default:
			if kind == '*' {
				return false, nil
			}
		}
		return true, r.reply()
	case kind == '+' && c.monitoring.Load():
		r.hold()
		r.at++
		b, err := r.peek()
		r.rewind()
		if err != nil || b < '0' || b > '9' {
			return false, err
		}
		return true, r.reply()
	}
	return false, nil
}

// firstWord looks ahead at the first element of a list; empty if it is no short string.
func (c *client) firstWord() (word string, err error) {
	r := c.down
	r.hold()
	defer r.rewind()
	if n, err := r.number(); err != nil || n <= 0 {
		return "", err
	}
	if kind, err := r.peek(); err != nil || kind != '$' {
		return "", err
	}
	n, err := r.number()
	if err != nil || n < 0 || n > 16 {
		return "", err
	}
	if err := r.body(n); err != nil {
		return "", err
	}
	return string(r.buf[r.at-int(n)-2 : r.at-2]), nil
}

// confirmation forwards one of a subscription, and counts it.
func (c *client) confirmation(word string, e expected, waits bool) error {
	r := c.down
	if waits && e.more.channel == word && c.missing < 0 {
		c.missing = e.more.number
		if e.role == unsubscribe {
			c.missing = max(1, map[string]int{"unsubscribe": c.channels, "punsubscribe": c.patterns, "sunsubscribe": c.shards}[word])
		}
	}
	n, err := r.number()
	if err != nil {
		return err
	}
	if n != 3 {
		return malformed("a confirmation of %d elements", n)
	}
	for range 2 {
		if err := r.reply(); err != nil {
			return err
		}
	}
	if kind, err := r.peek(); err != nil || kind != ':' {
		return cmp.Or(err, malformed("a confirmation without a count"))
	}
	count, err := r.number()
	if err != nil {
		return err
	}
	switch total := int(count); word {
	case "ssubscribe", "sunsubscribe":
		c.shards = total
	case "subscribe", "unsubscribe":
		c.channels += total - c.total
		c.total = total
	default:
		c.patterns += total - c.total
		c.total = total
	}
	if waits && e.more.channel == word {
		if c.missing--; c.missing == 0 {
			c.missing, c.skip, c.doubted = -1, false, word == "sunsubscribe"
			c.queue.take()
		}
	}
	return nil
}

// answer forwards the reply to a command.
func (c *client) answer(e expected, kind byte) error {
	r := c.down
	c.growth = growth{} // the replies within that of EXEC count together
	failed := kind == '-'
	if c.doubted && failed {
		word, err := c.ahead(len("-CLUSTERDOWN "))
		if err != nil {
			return err
		}
		if strings.HasPrefix(word, "-MOVED ") || word == "-CLUSTERDOWN " {
			return errUnasked // or the next command's own: nobody can tell
		}
	}
	c.doubted = false
	if failed && (e.role == subscribe || e.role == unsubscribe) {
		c.missing = -1 // some may have been confirmed before
	}
	if e.role == probe {
		word, err := c.ahead(len("-NOAUTH"))
		c.known.Store(err == nil && word != "-NOAUTH")
		return cmp.Or(err, c.quietly(true, r.reply))
	}
	if !failed && e.role != reset && !c.known.Load() { // all else but QUIT needs a login where there is one
		c.known.Store(true)
	}
	silent := c.off || c.skip
	c.skip = false
	var state string // the start of the reply, where it matters
	if c.within || e.role == exec {
		word, err := c.ahead(len("+QUEUED\r\n"))
		if err != nil {
			return err
		}
		state = word
	}
	switch e.role {
	case multi:
		if !failed {
			c.within, c.queued = true, runs{}
		}
	case discard:
		if !failed {
			c.within, c.queued = false, runs{}
		}
	case reset:
		if !failed {
			silent = silent && !c.off
			c.session = session{protocol: 2, missing: -1}
			c.monitoring.Store(false)
			c.known.Store(false)
		}
	case monitor:
		if !failed {
			c.monitoring.Store(true)
		}
	case replyOn, replyOff, replySkip:
		if state == "+QUEUED\r\n" || failed {
			break
		}
		switch e.role {
		case replyOn:
			c.off, silent = false, false
		case replyOff:
			c.off, silent = true, true
		case replySkip:
			c.skip, silent = !c.off, true
		}
	case exec:
		if word, _, _ := strings.Cut(state, " "); !failed || endsTransaction[word] {
			queued := c.queued
			c.within, c.queued = false, runs{}
			if kind == '*' {
				return c.quietly(silent, func() error { return c.executed(queued, silent) })
			}
		}
	}
	if state == "+QUEUED\r\n" && e.role != immediate && e.role != multi {
		// EXEC failed before, in a way that left the transaction, or the server queues what is no
		// command.
		if e.role >= replyOn || e.role == refused || e.role == last {
			return malformed("a transaction holds what the proxy cannot follow")
		}
		if e.more != nil && !e.more.sent.IsZero() {
			e.more = e.more.untimed
		}
		c.queued.push(e)
		return c.quietly(silent, r.reply)
	}
	err := c.quietly(silent, func() error { return c.element(e, silent) })
	if err == nil && c.within && (e.role == exec || e.role == discard || e.role == reset) {
		err = malformed("an error that ends no transaction: the proxy no longer counts its commands")
	}
	return err
}

// endsTransaction has the errors to EXEC by which a server ends a transaction, as far as answer has
// read them. A cluster sends those of its slots in place of EXECABORT, and a new replica of Valkey
// REDIRECT (processCommand in src/server.c).
var endsTransaction = map[string]bool{
	"-EXECABOR": true, "-MOVED": true, "-ASK": true, "-TRYAGAIN": true, "-CLUSTERD": true, "-CROSSSLO": true, "-REDIRECT": true,
}

// ahead are the next n bytes, or the rest of the line.
func (c *client) ahead(n int) (string, error) {
	r := c.down
	r.hold()
	defer r.rewind()
	for ; n > 0; n-- {
		b, err := r.peek()
		if err != nil {
			return "", err
		}
		if r.at++; b == '\n' {
			break
		}
	}
	return string(r.buf[r.held:r.at]), nil
}

// quietly calls f, and drops what it forwards if the client wants no reply.
func (c *client) quietly(silent bool, f func() error) error {
	if !silent {
		return f()
	}
	r := c.down
	if err := r.upTo(r.at); err != nil {
		return err
	}
	r.drop = true
	err := f()
	r.from, r.drop = r.at, false
	return err
}

// executed forwards the reply of EXEC: those of the commands in a list.
func (c *client) executed(queued runs, silent bool) error {
	r := c.down
	n, err := r.number()
	if err != nil || n < 0 {
		return err
	}
	for ; n > 0; n-- {
		kind, err := r.peek()
		if err != nil {
			return err
		}
		if kind == '>' { // of an old server, between the elements
			n++
			if err := r.reply(); err != nil {
				return err
			}
			continue
		}
		if queued.size() == 0 {
			return errUnasked
		}
		if err := c.element(queued.list[queued.head], silent); err != nil {
			return err
		}
		queued.pop()
	}
	if queued.size() > 0 {
		return errUnasked
	}
	return nil
}

// element forwards one reply, unpacked.
func (c *client) element(e expected, silent bool) error {
	r := c.down
	kind, err := r.peek()
	if err != nil {
		return err
	}
	switch {
	case e.role == hello && kind != '-' && e.more.number != 0:
		c.protocol = e.more.number
	case e.role == refused || e.role == last:
		return c.replaced(e.more.text, silent)
	}
	switch {
	case silent:
		return r.reply()
	case kind == '-':
		return c.failure()
	case e.role == slots || e.role == shards || e.role == nodeLines:
		return c.described(e.role)
	case e.reply == rediscmd.NoValues:
		return r.reply()
	}
	for kind == '|' { // attributes come before the reply
		n, err := r.number()
		for ; err == nil && n > 0; n-- {
			if err = r.reply(); err == nil {
				err = r.reply()
			}
		}
		if err != nil {
			return err
		}
		if kind, err = r.peek(); err != nil {
			return err
		}
	}
	switch {
	case kind == '$' && e.reply == rediscmd.OneValue:
		return c.value()
	case (kind == '*' || kind == '%' || kind == '~') && e.reply != rediscmd.OneValue:
		return c.list(&e)
	}
	return r.reply()
}

// replaced forwards an error of the proxy in place of a reply.
func (c *client) replaced(text string, silent bool) error {
	if silent {
		return c.down.reply()
	}
	if err := c.quietly(true, c.down.reply); err != nil {
		return err
	}
	c.fail(text)
	return nil
}

// fail puts an error for the client.
func (c *client) fail(text string) {
	text = strings.Map(func(b rune) rune {
		if b < ' ' {
			return ' '
		}
		return b
	}, text)
	c.down.room(maxText + len("\r\n")) // out grows by as little without it
	c.down.out = append(append(c.down.out, text[:min(len(text), maxText)]...), "\r\n"...)
}

// failed puts the error of a value that cannot be unpacked.
func (c *client) failed(err error) {
	if errors.Is(err, errMemory) {
		c.fail("-BALE the reply " + replyTooLarge)
		return
	}
	c.proxy.counters.lost.Add(1)
	if errors.Is(err, errInflated) {
		c.fail("-BALE " + err.Error())
		return
	}
	c.fail(fmt.Sprintf("-BALE a value in scope cannot be unpacked: %v; bale verify finds all of them", err))
}

const replyTooLarge = "is larger than a connection may hold (a quarter of --max-memory), or the proxy's memory is taken; try again, or read fewer values at once"

// nothing is the reply for no value.
func (c *client) nothing() string {
	if c.protocol == 3 {
		return "_\r\n"
	}
	return "$-1\r\n"
}

// value forwards a string that is a value of a key in scope.
func (c *client) value() error {
	batch := c.upstream.reader.Batch()
	is, err := c.single(&batch)
	if why, ok := errors.AsType[*valueError](err); ok {
		c.failed(why.error)
		return nil
	}
	if is == absent {
		c.down.room(maxNumber)
		c.down.out = append(c.down.out, c.nothing()...)
	}
	return err
}

// valueError is why a value cannot be unpacked.
type valueError struct{ error }

// single goes past a string that is a value, and puts its content. Of a value that is absent, or a
// valueError, it puts nothing.
func (c *client) single(batch *bale.Batch) (outcome, error) {
	r := c.down
	r.hold()
	n, err := r.number()
	if err != nil {
		return kept, err
	}
	magic := n >= 2
	for magic && r.end-r.at < 2 && err == nil {
		err = r.more()
	}
	if err != nil {
		return kept, err
	}
	if magic = magic && frame.HasMagic(r.buf[r.at:r.end]); !magic {
		r.release()
		if n < 0 {
			return kept, nil
		}
		return kept, r.body(n)
	}
	if n > maxFrame {
		if err := r.lose(); err != nil {
			return kept, err
		}
	}
	if err := r.body(n); err != nil {
		return kept, err
	}
	start, ok := r.release()
	if !ok {
		return kept, &valueError{errMemory}
	}
	if err := r.upTo(start); err != nil {
		return kept, err
	}
	stored := r.buf[r.at-2-int(n) : r.at-2]
	is, err := c.unpack(batch, stored)
	if err != nil {
		err = &valueError{err}
	}
	if is != kept || err != nil {
		r.from = r.at
	}
	return is, err
}

// outcome is what became of a value.
type outcome uint8

const (
	kept     outcome = iota // it is no frame
	unpacked                // its content is in out
	absent                  // the frame says that there is no value, or none any more
)

// unpack puts the content of a stored value with its length into out.
func (c *client) unpack(batch *bale.Batch, stored []byte) (outcome, error) {
	h, _, ok := frame.Parse(stored)
	if !ok {
		return kept, nil
	}
	if rediscmd.Gone(stored) {
		return absent, nil
	}
	r := c.down
	// The length that a frame claims is charged now. A large one is allocated when the bytes are
	// there.
	at, grown := len(r.out), c.growth
	if h.Length <= maxFrame {
		if !grown.add(len(stored), h.Length) {
			return kept, errInflated
		}
		if n := int(h.Length) + headRoom; n <= maxClaim && !r.room(n) || n > maxClaim && !r.charge(at+n) {
			return kept, errMemory
		}
	}
	out, err := batch.Unpack(c.ctx, appendHeader(r.out, '$', int(h.Length)), stored)
	if errors.Is(err, bale.ErrBudget) { // growth is the limit, and the batch that of fetches
		*batch = c.upstream.reader.Batch()
		out, err = batch.Unpack(c.ctx, out, stored)
	}
	if err != nil {
		r.grew(out[:at])
		return kept, err
	}
	r.grew(append(out, "\r\n"...))
	c.growth = grown
	c.proxy.counters.unpacked.Add(1)
	return unpacked, nil
}

// whole is the reply, as relay.whole reads it. It is nil if there was no memory: the client has an
// error in its place.
func (c *client) whole() ([]byte, error) {
	b, ok, err := c.down.whole()
	if !ok && err == nil {
		c.failed(errMemory)
	}
	return b, err
}

// list forwards a reply of many values. It stays in memory as a whole: if one of them cannot be
// unpacked, the reply is an error. A larger one is streamed. One of a shared connection is not: all
// of it would wait for its client.
func (c *client) list(e *expected) error {
	r := c.down
	if c.conn != nil {
		r.spill = max(bufferSize, int(min(maxWhole, c.memory.max/4)))
	}
	most := r.spill
	b, err := c.whole()
	r.spill = 0
	u := unpacking{client: c, batch: c.upstream.reader.Batch(), cursor: cursor{b: b}}
	if e.more != nil {
		u.scope = e.more.scope
	}
	if errors.Is(err, errFull) {
		r.rewind()
		return u.stream(e.reply)
	}
	if b == nil {
		return err
	}
	mark, before := len(r.out), c.growth
	u.most = most
	_, err = u.list(e.reply, false)
	if err == nil && u.copied == 0 {
		return nil // nothing changed
	}
	if err == nil && !r.put(u.b[u.copied:]) {
		err = errMemory
	}
	if err != nil {
		r.out, c.growth = r.out[:mark], before
		if errors.Is(err, errFull) {
			u.at = 0
			if err = u.weigh(e.reply, false, &before); err == nil {
				r.at -= len(b)
				return u.stream(e.reply)
			}
		}
		c.failed(err)
	}
	r.from = r.at
	return nil
}

// stream forwards a list value by value. What is sent cannot become an error: if a value cannot be
// unpacked, the connection ends in the middle of the reply.
func (u *unpacking) stream(reply rediscmd.Reply) error {
	r := u.down
	u.cursor = cursor{} // or it keeps the buffer alive that the reply was in as a whole
	if err := r.flush(); err != nil {
		return err
	}
	if !u.memory.take(maxClaim) { // others have it all
		err := u.quietly(true, r.reply)
		if err == nil {
			u.failed(errMemory)
		}
		return err
	}
	u.memory.give(maxClaim)
	err := u.streamList(reply, false)
	if why, ok := errors.AsType[*valueError](err); ok {
		if !errors.Is(why.error, errMemory) {
			u.proxy.counters.lost.Add(1)
		}
		u.proxy.ends("connection: a value in a reply that is too large to be held cannot be unpacked: %v", why.error)
		return errGone
	}
	return err
}

func (u *unpacking) streamList(reply rediscmd.Reply, pair bool) error {
	r := u.down
	kind, err := r.peek()
	if err != nil {
		return err
	}
	n, err := r.number()
	if err != nil {
		return err
	}
	if kind == '%' {
		n *= 2
	}
	for i := range int(n) {
		if len(r.out) >= keptOut/2 || len(r.buf) > maxClaim { // in which the reply began
			if err := r.settle(); err != nil {
				return err
			}
		}
		kind, err := r.peek()
		if err != nil {
			return err
		}
		is := kept
		switch {
		case kind == '$' && u.isValue(reply, i):
			is, err = u.single(&u.batch)
		case u.inner(kind, reply, i, pair):
			err = u.streamList(rediscmd.PairValues, reply == rediscmd.PairValues)
		default:
			err = r.reply()
		}
		switch {
		case err != nil:
			return err
		case is != absent:
		case reply == rediscmd.PairValues: // whose field is sent
			return &valueError{errors.New("a field has expired: the number of fields is sent")}
		default:
			r.room(maxNumber)
			r.out = append(r.out, u.nothing()...)
		}
	}
	return nil
}

// weigh goes past the list at u.at, which is held, and reports whether stream would find that its
// values decode to too much.
func (u *unpacking) weigh(reply rediscmd.Reply, pair bool, g *growth) error {
	for i := range u.elements() {
		switch kind := u.b[u.at]; {
		case kind == '$' && u.isValue(reply, i):
			value, _ := u.text()
			if h, _, ok := frame.Parse(value); ok && !rediscmd.Gone(value) && !g.add(len(value), h.Length) {
				return errInflated
			}
		case u.inner(kind, reply, i, pair):
			if err := u.weigh(rediscmd.PairValues, reply == rediscmd.PairValues, g); err != nil {
				return err
			}
		default:
			u.skip()
		}
	}
	return nil
}

// inner reports whether element i of a list is a pair, or the page of a scan.
func (u *unpacking) inner(kind byte, reply rediscmd.Reply, i int, pair bool) bool {
	return (kind == '*' || kind == '~' || kind == '%') && !pair && (reply == rediscmd.PairValues || reply == rediscmd.ScanValues && i == 1)
}

// unpacking rewrites a list.
type unpacking struct {
	*client
	cursor
	batch  bale.Batch
	scope  []bool // which elements, in turn, are values of keys in scope; nil for all
	copied int    // b[:copied] is in out, rewritten
	most   int    // bytes of out; 0 for no limit but that of the memory
}

// cursor reads a whole reply.
type cursor struct {
	b  []byte // which relay.reply has been past
	at int    // b[at:] is not looked at yet
}

// header reads a type and a number.
func (u *cursor) header() (kind byte, n int) {
	kind = u.b[u.at]
	end := u.at + bytes.IndexByte(u.b[u.at:], '\r')
	number, _ := parseInt(u.b[u.at+1 : end])
	u.at = end + 2
	return kind, int(number)
}

// elements goes into a list, and returns how many elements follow. It goes past anything else.
func (u *cursor) elements() int {
	switch u.b[u.at] {
	case '*', '~', '%':
		kind, n := u.header()
		if kind == '%' {
			n *= 2
		}
		return max(n, 0)
	}
	u.skip()
	return 0
}

// text goes past an element. It returns false if that is no string, or null.
func (u *cursor) text() (s []byte, ok bool) {
	if kind := u.b[u.at]; kind != '$' && kind != '=' {
		u.skip()
		return nil, false
	}
	_, n := u.header()
	if n < 0 {
		return nil, false
	}
	s = u.b[u.at : u.at+n]
	u.at += n + 2
	return s, true
}

// isValue reports whether element i of a list is a value.
func (u *unpacking) isValue(reply rediscmd.Reply, i int) bool {
	switch reply {
	case rediscmd.PairValues:
		return i%2 == 1
	case rediscmd.ScanValues:
		return false
	}
	return len(u.scope) == 0 || u.scope[i%len(u.scope)]
}

// list rewrites the list at u.at. gone reports a pair whose value is absent.
func (u *unpacking) list(reply rediscmd.Reply, pair bool) (gone bool, err error) {
	r := u.down
	header := u.at
	inOut := len(r.out) + header - u.copied // where the header will be
	kind, n := u.header()
	length := u.at - header
	elements, removed := n, 0
	if kind == '%' {
		elements *= 2
	}
	field := 0 // where the element before starts
	for i := range elements {
		start := u.at
		switch u.b[start] {
		case '$':
			_, size := u.header()
			if size < 0 {
				break
			}
			value := u.b[u.at : u.at+size]
			u.at += size + 2
			if !frame.HasMagic(value) || !u.isValue(reply, i) {
				break
			}
			// The bytes before the value come first.
			mark, copied := len(r.out), u.copied
			if !r.put(u.b[copied:start]) {
				return false, errMemory
			}
			is, err := u.unpack(&u.batch, value)
			if err == nil && u.most > 0 && len(r.out) > u.most || errors.Is(err, errMemory) && u.beyond(value) {
				err = errFull
			}
			if err != nil {
				return false, err
			}
			u.copied = u.at
			switch {
			case is == kept:
				r.out, u.copied = r.out[:mark], copied
			case is == unpacked:
			case pair:
				return true, nil
			case reply == rediscmd.PairValues && field >= copied: // else what is before it is no field
				r.out = append(r.out[:mark], u.b[copied:field]...) // which was there
				removed++
			case !r.put([]byte(u.nothing())):
				return false, errMemory
			}
		case '*', '~', '%':
			if !u.inner(u.b[start], reply, i, pair) {
				u.skip()
				break
			}
			mark, copied := len(r.out), u.copied
			gone, err := u.list(rediscmd.PairValues, reply == rediscmd.PairValues)
			if err != nil {
				return false, err
			}
			if gone {
				r.out = append(r.out[:mark], u.b[copied:start]...)
				u.copied = u.at
				removed++
			}
		default:
			u.skip()
		}
		field = start
	}
	if removed > 0 {
		left := n - removed
		if kind != '%' && !isNested(u.b[header+length:]) {
			left -= removed // two elements each
		}
		r.out = slices.Replace(r.out, inOut, inOut+length, appendHeader(nil, kind, left)...)
	}
	return false, nil
}

// beyond reports whether out may not be as large as it would be with a value.
func (u *unpacking) beyond(value []byte) bool {
	h, _, _ := frame.Parse(value)
	return u.most > 0 && uint64(len(u.down.out))+h.Length > uint64(u.most)
}

// isNested reports whether the elements are lists, of a pair each.
func isNested(elements []byte) bool { return elements[0] != '$' && elements[0] != '+' }

// skip goes past the element at u.at.
func (u *cursor) skip() {
	for left := 1; left > 0; left-- {
		switch u.b[u.at] {
		case '$', '=', '!':
			if _, n := u.header(); n >= 0 {
				u.at += n + 2
			}
		case '*', '~', '>', '%', '|':
			kind, n := u.header()
			switch kind {
			case '%':
				n *= 2
			case '|':
				n = 2*n + 1
			}
			left += max(n, 0)
		default:
			u.at += bytes.IndexByte(u.b[u.at:], '\n') + 1
		}
	}
}
