package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
)

const (
	bufferSize = 16 << 10 // bytes of a relay's buffer: two for each connection
	keptOut    = 32 << 10 // bytes of rewritten commands or replies that wait for more; beyond them they are charged
	maxNumber  = 32       // bytes of a line with a number
)

// errMalformed is the class of errors in the protocol, of either side.
var errMalformed = errors.New("Protocol error")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// outs are the buffers for rewritten bytes. Idle connections have none.
var outs = sync.Pool{New: func() any { return new([keptOut]byte) }}

// memory bounds the bytes that connections hold beyond their buffers: all of them, or one.
type memory struct {
	max  int64
	held atomic.Int64
	all  *memory // of all connections, if it is that of one
}

// take reports false beyond the limits, and takes nothing then.
func (m *memory) take(n int) bool {
	if m.held.Add(int64(n)) <= m.max && (m.all == nil || m.all.take(n)) {
		return true
	}
	m.held.Add(int64(-n))
	return false
}

// add takes what is there already.
func (m *memory) add(n int) {
	for ; m != nil; m = m.all {
		m.held.Add(int64(n))
	}
}

func (m *memory) give(n int) { m.add(-n) }

// relay forwards one direction of a connection. What is not rewritten goes from the buffer that it
// was read into straight to the other side.
type relay struct {
	src io.Reader
	dst io.Writer

	buf []byte
	// buf[from:at] waits to be sent unchanged, and buf[at:end] is not looked at yet.
	from, at, end int

	out []byte // rewritten bytes, to be sent before buf[from:]

	// held is the start of a command or reply that stays in the buffer; -1 for none. lost reports
	// that it was too large and is dropped.
	held int
	lost bool
	drop bool // forward nothing that is not in out

	limit  int // bytes of what is held, at most
	spill  int // likewise, where more than that is errFull and stays; 0 for no such limit
	memory *memory
	taken  int // bytes of it, for buf
	forOut int // and for out

	received, sent *atomic.Int64 // bytes, of all relays

	writes atomic.Uint32 // begun and ended, but those with a deadline: one is under way if it is odd

	broken error // of the first write that failed, in the middle of something: no more can follow it

	// may, if it is not nil, is asked before the buffer grows beyond its first size.
	may func() bool

	// hurry, if it is not nil, is called before bytes are sent that are charged, and after.
	hurry func(bytes int)

	// after, if it is not nil, is called when all that was looked at is sent.
	after func() error

	// interrupted is asked whether to go on after a deadline passed in the middle of something.
	interrupted func() bool
}

func newRelay(src io.Reader, dst io.Writer, limit int, m *memory, received, sent *atomic.Int64) *relay {
	return &relay{src: src, dst: dst, buf: make([]byte, bufferSize), held: -1, limit: limit, memory: m, received: received, sent: sent}
}

// send sends everything before a position.
func (r *relay) send(upTo int) error {
	if r.broken != nil {
		return r.broken
	}
	raw := r.buf[r.from:upTo]
	r.from = upTo
	if r.drop {
		raw = nil
	}
	if n := len(r.out); n > 0 && n+len(raw) <= cap(r.out) {
		r.out, raw = append(r.out, raw...), nil
	}
	if charged := r.taken + r.forOut; charged > 0 && r.hurry != nil {
		r.hurry(charged)
		defer r.hurry(0)
	} else {
		r.writes.Add(1)
		defer r.writes.Add(1)
	}
	for _, b := range [][]byte{r.out, raw} {
		if len(b) > 0 {
			n, err := r.dst.Write(b)
			r.sent.Add(int64(n))
			if err != nil {
				r.broken = err
				return err
			}
		}
	}
	r.empty()
	if r.after != nil {
		return r.after()
	}
	return nil
}

// empty gives out back.
func (r *relay) empty() {
	lend(r.out)
	r.out = nil
	r.memory.give(r.forOut)
	r.forOut = 0
}

// flush sends everything that was looked at.
func (r *relay) flush() error { return r.send(r.at) }

// leave sends what is complete, at the end of the connection.
func (r *relay) leave() error {
	if r.held >= 0 {
		r.at = r.held
	}
	return r.flush()
}

// more reads. Before, it sends what need not stay, so that nothing waits for the other side.
func (r *relay) more() error {
	keep := r.at
	if r.held >= 0 {
		keep = r.held
	}
	if err := r.send(keep); err != nil {
		return err
	}
	if r.from > 0 {
		copy(r.buf, r.buf[r.from:r.end])
		r.at, r.end = r.at-r.from, r.end-r.from
		if r.held >= 0 {
			r.held = 0
		}
		r.from = 0
	}
	if r.end == len(r.buf) && !r.grow() {
		switch {
		case r.held < 0:
			return errLong
		case r.spill > 0 && 2*len(r.buf) > r.spill: // and it is not that others have the memory
			return errFull
		}
		if err := r.lose(); err != nil {
			return err
		}
		return r.more()
	}
	n, err := r.src.Read(r.buf[r.end:])
	if n > 0 {
		r.received.Add(int64(n))
		r.end += n
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && r.interrupted != nil && r.interrupted() {
		return r.more()
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// grow doubles the buffer, within the limits. The length that somebody announced is not believed.
func (r *relay) grow() bool {
	n := len(r.buf)
	size := min(2*n, r.limit)
	if size <= n || r.spill > 0 && size > r.spill || r.may != nil && !r.may() || !r.memory.take(size) {
		return false
	}
	r.buf = append(make([]byte, 0, size), r.buf...)[:size]
	r.memory.give(n)
	r.taken += size - n
	return true
}

// charge takes memory for a larger out, beside the one that is there until grew has the new one. It
// reports false beyond the limits.
func (r *relay) charge(capacity int) bool {
	if capacity <= max(keptOut, cap(r.out)) {
		return true
	}
	if !r.memory.take(capacity) {
		return false
	}
	r.forOut += capacity
	return true
}

// room makes room for n bytes more in out. It reports false beyond the limits.
func (r *relay) room(n int) bool {
	need := len(r.out) + n
	switch {
	case need <= cap(r.out):
		return true
	case need <= keptOut:
		r.out = append(outs.Get().(*[keptOut]byte)[:0], r.out...)
		return true
	}
	capacity := max(need, 2*cap(r.out))
	if !r.charge(capacity) {
		// Less would copy everything for each value.
		if capacity = max(need, cap(r.out)+cap(r.out)/4); !r.charge(capacity) {
			return false
		}
	}
	old := r.out
	r.grew(append(make([]byte, 0, capacity), old...))
	lend(old)
	return true
}

// lend gives a buffer for rewritten bytes to whoever needs one next.
func lend(out []byte) {
	if cap(out) == keptOut {
		outs.Put((*[keptOut]byte)(out[:keptOut]))
	}
}

// grew replaces out, and charges what it takes now.
func (r *relay) grew(out []byte) {
	n := cap(out)
	if n <= keptOut {
		n = 0
	}
	r.memory.add(n - r.forOut)
	r.out, r.forOut = out, n
}

// settle ends a command or reply: it gives memory back, and keeps out from piling up.
func (r *relay) settle() error {
	shrink := r.taken > 0 && r.end-r.at <= bufferSize
	if !shrink && len(r.out) < keptOut/2 {
		return nil
	}
	if err := r.flush(); err != nil {
		return err
	}
	if shrink {
		r.buf = append(make([]byte, 0, bufferSize), r.buf[r.at:r.end]...)[:bufferSize]
		r.from, r.at, r.end = 0, 0, r.end-r.at
		r.memory.give(r.taken)
		r.taken = 0
	}
	return nil
}

// hold keeps what comes from here on in the buffer, until release.
func (r *relay) hold() { r.held, r.lost = r.at, false }

// lose gives up holding: what was held is dropped, and so is the rest until release.
func (r *relay) lose() error {
	if r.held >= 0 {
		if err := r.upTo(r.held); err != nil {
			return err
		}
	}
	r.from, r.held, r.lost, r.drop = r.at, -1, true, true
	return nil
}

// release ends hold. It returns where in the buffer the held bytes start, which stay until the next
// read. It reports false if they were too large and are gone.
func (r *relay) release() (start int, ok bool) {
	if r.lost {
		r.from, r.drop, r.lost = r.at, false, false
		return r.at, false
	}
	start, r.held = r.held, -1
	return start, true
}

// whole reads a reply, which is there until the next read, after all that was before it. It reports
// false if the reply was too large and is gone.
func (r *relay) whole() (b []byte, ok bool, err error) {
	r.hold()
	if err := r.reply(); err != nil {
		return nil, false, err
	}
	start, ok := r.release()
	if !ok {
		return nil, false, nil
	}
	if err := r.upTo(start); err != nil {
		return nil, false, err
	}
	return r.buf[start:r.at], true, nil
}

// rewind goes back to where hold was called, for looking ahead.
func (r *relay) rewind() { r.at, r.held = r.held, -1 }

// put appends to out. It reports false beyond the limits.
func (r *relay) put(b []byte) bool {
	if !r.room(len(b)) {
		return false
	}
	r.out = append(r.out, b...)
	return true
}

// upTo puts the bytes before a position in front of what is put next.
func (r *relay) upTo(at int) error {
	if raw := r.buf[r.from:at]; !r.drop && len(r.out)+len(raw) <= keptOut/2 && r.put(raw) {
		r.from = at
		return nil
	}
	return r.send(at)
}

// peek is the next byte.
func (r *relay) peek() (byte, error) {
	for r.at == r.end {
		if err := r.more(); err != nil {
			return 0, err
		}
	}
	return r.buf[r.at], nil
}

// line returns the next line without its end, which is there until the next read. bare also takes a
// line that ends without a carriage return.
func (r *relay) line(most int, bare bool) ([]byte, error) {
	for looked := 0; ; {
		unread := r.buf[r.at:r.end]
		i := bytes.IndexByte(unread[looked:], '\n')
		if i += looked; i >= looked {
			line := unread[:i]
			switch cr := i > 0 && line[i-1] == '\r'; {
			case cr:
				line = line[:i-1]
			case !bare:
				return nil, malformed("a line without a carriage return")
			}
			if len(line) > most {
				return nil, errLong
			}
			r.at += i + 1
			return line, nil
		}
		if looked = len(unread); looked > most+1 {
			return nil, errLong
		}
		if err := r.more(); err != nil {
			return nil, err
		}
	}
}

var (
	errLong = malformed("a line is too long")
	errFull = errors.New("more than is held of a reply")
)

// number reads a line of a type byte and a number, as strictly as Redis does.
func (r *relay) number() (int64, error) {
	line, err := r.line(maxNumber, false)
	if err != nil {
		return 0, err
	}
	n, ok := parseInt(line[min(1, len(line)):])
	if !ok {
		return 0, malformed("a line of %d bytes that is no number", len(line))
	}
	return n, nil
}

// parseInt reads a number of up to 18 digits without a plus sign and leading zeros.
func parseInt(b []byte) (n int64, ok bool) {
	digits := b
	if len(b) > 1 && b[0] == '-' {
		digits = b[1:]
	}
	if len(digits) == 0 || len(digits) > 18 || digits[0] == '0' && len(b) > 1 {
		return 0, false
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = 10*n + int64(d-'0')
	}
	if len(digits) < len(b) {
		n = -n
	}
	return n, true
}

// skip goes past n bytes, which may be more than fit into memory.
func (r *relay) skip(n int64) error {
	for {
		k := min(n, int64(r.end-r.at))
		r.at += int(k)
		if n -= k; n == 0 {
			return nil
		}
		if err := r.more(); err != nil {
			return err
		}
	}
}

// body goes past the n bytes of a string and its end.
func (r *relay) body(n int64) error {
	if err := r.skip(n); err != nil {
		return err
	}
	for _, want := range "\r\n" {
		if b, err := r.peek(); err != nil || b != byte(want) {
			if err == nil {
				err = malformed("a string longer than its length")
			}
			return err
		}
		r.at++
	}
	return nil
}

// reply goes past a whole reply, or an element of one, without keeping its structure: however deep
// it is, the number of elements that are left is enough.
func (r *relay) reply() error {
	for left := int64(1); left > 0; left-- {
		kind, err := r.peek()
		if err != nil {
			return err
		}
		switch kind {
		case '+', '-', ':', '_', '#', ',', '(':
			if err := r.rest(); err != nil {
				return err
			}
			continue
		case '$', '=', '!', '*', '~', '>', '%', '|':
		default:
			return malformed("a reply starts with %q", kind)
		}
		n, err := r.number()
		switch {
		case err != nil:
			return err
		case n < -1 || n > 1<<40 || left > 1<<60:
			return malformed("a reply with a length of %d", n)
		case n == -1:
			continue
		}
		switch kind {
		case '$', '=', '!':
			if err := r.body(n); err != nil {
				return err
			}
		case '%':
			left += 2 * n
		case '|': // belongs to the element that follows
			left += 2*n + 1
		default:
			left += n
		}
	}
	return nil
}

// rest goes past a line of any length.
func (r *relay) rest() error {
	for {
		if i := bytes.IndexByte(r.buf[r.at:r.end], '\n'); i >= 0 {
			r.at += i + 1
			return nil
		}
		r.at = r.end
		if err := r.more(); err != nil {
			return err
		}
	}
}
