package proxy

import (
	"net"
	"sync"
	"time"
)

// maxSlow is how many slow commands a second have a line, and how many connections that end. The
// others are counted.
const maxSlow = 10

// limiter keeps what happens often from filling the log.
type limiter struct {
	lock            sync.Mutex
	second          time.Time
	lines, leftOver int
}

// allow reports whether there may be a line, of so many a second, and how many had none before it.
func (l *limiter) allow(most int) (show bool, left int) {
	l.lock.Lock()
	defer l.lock.Unlock()
	if now := time.Now(); now.Sub(l.second) >= time.Second {
		l.second, l.lines, left, l.leftOver = now, 0, l.leftOver, 0
	}
	l.lines++
	if show = l.lines <= most; !show {
		l.leftOver++
	}
	return show, left
}

// ends notes which connection it ends, and why.
func (p *proxy) ends(format string, args ...any) {
	p.noteSome(&p.endings, "connections that it ended", "ends a "+format, args...)
}

// noteSome notes what may happen often, and how many of these were not logged.
func (p *proxy) noteSome(l *limiter, of, format string, args ...any) {
	show, left := l.allow(maxSlow)
	if left > 0 {
		p.options.Notef("%d more %s were not logged", left, of)
	}
	if show {
		p.options.Notef(format, args...)
	}
}

// slow notes a command if its time, from the request to the end of its reply, reaches SlowLog. A
// client that reads slowly adds to the time. Values never stand in the log.
func (p *proxy) slow(d *details, client net.Addr) {
	took := time.Since(d.sent)
	if took < p.options.SlowLog {
		return
	}
	p.counters.slow.Add(1)
	p.noteSome(&p.slowness, "slow commands", "slow: %v for %q, key %q, of %s",
		took.Round(time.Microsecond), d.name, d.key, client)
}
