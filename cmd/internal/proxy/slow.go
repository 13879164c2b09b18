package proxy

import (
	"net"
	"sync"
	"time"
)

// maxSlow is how many slow commands a second have a line. The others are counted.
const maxSlow = 10

// slowness keeps a Redis that stalls from filling the log.
type slowness struct {
	lock            sync.Mutex
	second          time.Time
	lines, leftOver int
}

// slow notes a command if its time, from the request to the end of its reply, reaches SlowLog. A
// client that reads slowly adds to the time. Values never stand in the log.
func (p *proxy) slow(d *details, client net.Addr) {
	took := time.Since(d.sent)
	if took < p.options.SlowLog {
		return
	}
	p.counters.slow.Add(1)
	s := &p.slowness
	s.lock.Lock()
	left := 0
	if now := time.Now(); now.Sub(s.second) >= time.Second {
		s.second, s.lines, left, s.leftOver = now, 0, s.leftOver, 0
	}
	s.lines++
	show := s.lines <= maxSlow
	if !show {
		s.leftOver++
	}
	s.lock.Unlock()
	if left > 0 {
		p.options.Notef("%d more slow commands have no line", left)
	}
	if show {
		p.options.Notef("slow: %v for %q, key %q, of %s", took.Round(time.Microsecond), d.name, d.key, client)
	}
}
