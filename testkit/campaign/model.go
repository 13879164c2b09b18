package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"
)

// instant is a time since the campaign's start, by the driver's monotonic clock.
type instant = time.Duration

// never is the instant of what has not ended.
const never = instant(math.MaxInt64)

// write is a write of a key: of a value, or of none (a deletion, or a loss).
type write struct {
	n     int64 // number of the value, 0 for none
	start instant
	end   instant // when it was acknowledged, never if it was not
	acked bool
	// last is the last instant at which it can take effect. It is later than end where a command
	// may be executed again, or the server may have lost what came after.
	last  instant
	lost  bool // the server may have lost it: it does not supersede what was before
	ttl   time.Duration
	cause string // of a loss
	// refused is when the write was found to have failed; 0 if it was not. What is buffered in the
	// process may be read until then.
	refused instant
	// volatile: it takes only values that have an expiry.
	volatile bool
	late     time.Duration // how much later the server may let it expire: it was moved to another one
}

// expiring is a change of the expiry alone.
type expiring struct {
	start, end, last instant
	ttl              time.Duration // 0 for never
	late             time.Duration // as that of a write
}

// register is what the model knows of a key, or of a field of a hash.
type register struct {
	key     string
	writes  []*write // that a read may see, in the order of their start
	touches []*expiring
	history []string // operations, the newest last
	broken  bool     // a violation was reported: it is not looked at until it is written again
	doubt   string   // why its value may be unreadable: the server lost a part of it
}

// historyKept is how many operations of a key a report shows.
const historyKept = 40

func (r *register) note(format string, args ...any) {
	if len(r.history) >= historyKept {
		r.history = append(r.history[:0], r.history[len(r.history)-historyKept+1:]...)
	}
	r.history = append(r.history, fmt.Sprintf(format, args...))
}

// model is the state of all keys, as far as it can be known. All methods lock mu.
type model struct {
	mu        sync.Mutex
	registers map[string]*register
	keys      []string // in the order in which they were first used
	losses    []*write // that go on: they hold for registers to come, too
	reverting int      // reversions that go on
}

func newModel() *model { return &model{registers: map[string]*register{}} }

// at returns the register of a key; mu is locked. A key that was never written has no value.
func (m *model) at(key string) *register {
	r := m.registers[key]
	if r == nil {
		r = &register{key: key, writes: []*write{{end: 0, acked: true}}}
		r.writes = append(r.writes, m.losses...)
		for _, l := range m.losses {
			r.doubt = l.cause
		}
		m.registers[key] = r
		m.keys = append(m.keys, key)
	}
	return r
}

// begin notes that a write is about to be sent.
func (m *model) begin(key string, n int64, ttl time.Duration, now instant, what string) *write {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.at(key)
	w := &write{n: n, start: now, end: never, last: never, ttl: ttl, lost: m.reverting > 0}
	r.writes = append(r.writes, w)
	r.note("%s %s n=%d ttl=%v", stamp(now), what, n, ttl)
	return w
}

// end notes what became of a write. again says that its command may have been sent twice.
func (m *model) finish(key string, w *write, d done, again bool, now instant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.at(key)
	switch {
	case d.OK:
		w.end, w.acked = now, true
		if !again {
			w.last = now
		}
		r.note("%s   n=%d acknowledged", stamp(now), w.n)
		if r.broken && !again {
			r.broken = false
		}
	case d.Refused:
		w.refused = now
		if !strings.HasPrefix(key, "b:") {
			r.writes = slices.DeleteFunc(r.writes, func(o *write) bool { return o == w })
		}
		r.note("%s   n=%d refused: %.120s", stamp(now), w.n, d.Err)
	default:
		r.note("%s   n=%d in doubt: %.160s", stamp(now), w.n, d.Err)
	}
}

// touch notes that the expiry of a key is about to change.
func (m *model) touch(key string, ttl time.Duration, now instant) *expiring {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.at(key)
	t := &expiring{start: now, end: never, last: never, ttl: ttl}
	r.touches = append(r.touches, t)
	r.note("%s touch ttl=%v", stamp(now), ttl)
	return t
}

func (m *model) touched(key string, t *expiring, d done, again bool, now instant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d.OK {
		t.end = now
		if !again {
			t.last = now
		}
	}
	m.at(key).note("%s   touch ttl=%v: %+v", stamp(now), t.ttl, d)
}

// delay notes that what keys have now may expire that much later.
func (m *model) delay(keys []string, by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		r := m.registers[key]
		if r == nil {
			continue
		}
		for _, w := range r.writes {
			if w.n != 0 { // the others are not this key's alone
				w.late += by
			}
		}
		for _, t := range r.touches {
			t.late += by
		}
	}
}

// admissible reports whether a read from start on may see a write: unless another one was
// acknowledged after the write's last effect and before the read.
func (r *register) admissible(w *write, start instant) bool {
	for _, o := range r.writes {
		if o != w && o.acked && !o.lost && o.start > w.last && o.end < start {
			return false
		}
	}
	return true
}

// slack is how much later than its expiry a value may be seen: for two clocks, and the rounding to
// milliseconds.
const slack = 150 * time.Millisecond

// allows checks a read from start to end: nil if the model allows what it returned.
func (m *model) allows(key string, start, end instant, g got) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.at(key).allows(start, end, g)
}

func (r *register) allows(start, end instant, g got) error {
	if g.State == gotNone {
		return r.allowsNone(start, end)
	}
	for _, w := range r.writes {
		if w.n != g.N || w.start > end || w.refused > 0 && start > w.refused {
			continue
		}
		if !r.admissible(w, start) {
			return fmt.Errorf("an older value was read: number %d, though a later one was acknowledged before (%s)", g.N, r.newest(start))
		}
		if w.acked && w.last == w.end && w.ttl > 0 && start > w.end+w.ttl+slack+w.late && len(r.touches) == 0 {
			return fmt.Errorf("an expired value was read: number %d, %v after its end", g.N, start-w.end-w.ttl)
		}
		return nil
	}
	return fmt.Errorf("number %d was read, which is none of the last values (%s)", g.N, r.newest(start))
}

// newest lists the values that the model allows.
func (r *register) newest(start instant) string {
	s := "there may be"
	for _, w := range r.writes {
		if w.start <= start && r.admissible(w, start) {
			s += fmt.Sprintf(" %d", w.n)
		}
	}
	return s
}

func (r *register) allowsNone(start, end instant) error {
	expires := false // there may be a value with an expiry
	for _, w := range r.writes {
		if w.start > end || w.refused > 0 || !r.admissible(w, start) {
			continue
		}
		if w.n == 0 && !w.volatile {
			return nil
		}
		if w.ttl > 0 {
			expires = true
			if end >= w.start+w.ttl-slack {
				return nil
			}
		}
	}
	for _, t := range r.touches {
		if t.ttl > 0 {
			expires = true
			if end >= t.start+t.ttl-slack {
				return nil
			}
		}
	}
	for _, w := range r.writes {
		if w.volatile && expires && w.start <= end && r.admissible(w, start) {
			return nil
		}
	}
	return fmt.Errorf("no value, though one was acknowledged and has not expired (%s)", r.newest(start))
}

// allowsTTL checks a PTTL that had no concurrent operation. It ignores a key without a value.
func (m *model) allowsTTL(key string, pttl time.Duration, start, end instant) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.at(key)
	for _, w := range r.losses() {
		if w.lost {
			return nil
		}
	}
	none, most := false, time.Duration(0) // the longest expiry there may be
	for _, w := range r.writes {
		switch {
		case w.n == 0 || w.refused > 0 || !r.admissible(w, start):
		case w.ttl == 0:
			none = true
		case w.acked && w.last == w.end:
			most = max(most, w.end+w.ttl+w.late-start)
		default:
			most = max(most, w.ttl+w.late)
		}
	}
	for _, t := range r.touches {
		switch {
		case t.ttl == 0:
			none = true
		case t.last == t.end:
			most = max(most, t.end+t.ttl+t.late-start)
		default:
			most = max(most, t.ttl+t.late)
		}
	}
	switch {
	case pttl == -1 && !none:
		return fmt.Errorf("it never expires, and it was to live %v more at the most", most)
	case pttl > 0 && pttl > most+slack && !(none && most == 0):
		return fmt.Errorf("it lives %v more, and it was to live %v more at the most", pttl, most)
	case pttl > 0 && most == 0 && len(r.touches) == 0:
		return fmt.Errorf("it has an expiry (%v more), and was never given one", pttl)
	}
	return nil
}

func (r *register) losses() []*write {
	var l []*write
	for _, w := range r.writes {
		if w.lost {
			l = append(l, w)
		}
	}
	return l
}

// lose begins a time in which the server may lose values: none is what a read may see. It ends with
// [model.lostUntil].
func (m *model) lose(cause string, volatile bool, now instant) *write {
	m.mu.Lock()
	defer m.mu.Unlock()
	loss := &write{start: now, end: never, last: never, cause: cause, volatile: volatile}
	m.losses = append(m.losses, loss)
	for _, key := range m.keys {
		r := m.registers[key]
		r.writes = append(r.writes, loss)
		r.doubt = cause
		r.note("%s THE SERVER MAY LOSE IT: %s", stamp(now), cause)
	}
	return loss
}

// lostUntil ends such a time.
func (m *model) lostUntil(loss *write, now instant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	loss.last = now
	for i, l := range m.losses {
		if l == loss {
			m.losses = append(m.losses[:i], m.losses[i+1:]...)
			break
		}
	}
}

// notLost ends such a time in which the server lost nothing after all.
func (m *model) notLost(loss *write) {
	m.mu.Lock()
	defer m.mu.Unlock()
	is := func(w *write) bool { return w == loss }
	m.losses = slices.DeleteFunc(m.losses, is)
	for _, r := range m.registers {
		r.writes = slices.DeleteFunc(r.writes, is)
	}
}

// revert begins a time in which the server may go back to any state since an instant. It ends with
// [model.reverted].
func (m *model) revert(cause string, since, now instant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reverting++
	for _, key := range m.keys {
		r := m.registers[key]
		for _, w := range r.writes {
			if w.last >= since && w.n+int64(w.end) != 0 {
				w.lost = true
			}
		}
		r.doubt = cause
		r.note("%s THE SERVER MAY GO BACK TO %s: %s", stamp(now), stamp(since), cause)
	}
}

// reverted ends such a time.
func (m *model) reverted() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reverting--
}

// settle notes that nothing is under way any more: what has not taken effect never will.
func (m *model) settle(now instant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.registers {
		for _, w := range r.writes {
			w.last = min(w.last, now)
		}
		for _, t := range r.touches {
			t.last, t.end = min(t.last, now), min(t.end, now)
		}
	}
}

// found notes what a read saw while nothing was under way: from now on that is what the key has.
func (m *model) found(key string, g got, now instant) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.at(key)
	kept := &write{end: now, acked: true, start: now, last: now}
	touches := r.touches[:0:0]
	if g.State == gotValue {
		for _, w := range r.writes {
			if w.n == g.N {
				kept = w
			}
		}
		touches = r.touches
	}
	kept.lost = false
	r.writes, r.touches = []*write{kept}, touches
	r.doubt = ""
	r.note("%s at rest: %s %d", stamp(now), g.State, g.N)
}

func stamp(t instant) string { return fmt.Sprintf("%8.3fs", t.Seconds()) }
