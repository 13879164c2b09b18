package main

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// loads is the model of keys that loaders alone write. A load may overwrite a newer one, as bale
// says, so a read may see any that has not expired.
type loads struct {
	mu      sync.Mutex
	trouble *stops // when a load may have failed though its loader did not
	issued  map[string]map[int64]*loaded
	absent  map[string][]instant // when a loader may last have said that there is no value
	last    map[string][]string  // what happened, for reports
}

// loaded is a call of a loader.
type loaded struct {
	start, end instant // of the operation; end is never while it goes on
	failing    bool    // the loader brings no value
	loaded     bool    // the operation returned its own loader's value at once: the load ended before it
	ttl        time.Duration
	reported   bool // as a violation
}

func newLoads(trouble *stops) *loads {
	return &loads{trouble: trouble, issued: map[string]map[int64]*loaded{}, absent: map[string][]instant{}, last: map[string][]string{}}
}

func (l *loads) begin(key string, n int64, ttl time.Duration, loader string, now instant) *loaded {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := &loaded{start: now, end: never, ttl: ttl, failing: loader != "ok"}
	if l.issued[key] == nil {
		l.issued[key] = map[int64]*loaded{}
	}
	l.issued[key][n] = v
	if loader == "none" {
		l.absent[key] = append(l.absent[key], now)
	}
	l.note(key, "%s load n=%d ttl=%v loader=%s", stamp(now), n, ttl, loader)
	return v
}

func (l *loads) note(key, format string, args ...any) {
	h := l.last[key]
	if len(h) >= historyKept {
		h = append(h[:0], h[1:]...)
	}
	l.last[key] = append(h, fmt.Sprintf(format, args...))
}

// lateness is how long after its operation a load may go on: it is ahead of the expiry and in the
// background, or waits for another's lock.
const lateness = loadTimeout + time.Second

// joined is how long before a read the load may have looked into Redis that the read joined.
const joined = loadTimeout + shortest

// No operation waits for less than shortest. So an old value that is returned sooner comes from a
// load that failed, or that others began.
const shortest = 300 * time.Millisecond

// allows checks what a read from start to end returned.
func (l *loads) allows(key string, start, end instant, g got, stale bool, loader string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(key, "%s   read: %s n=%d stale=%v %.80s", stamp(end), g.State, g.N, stale, g.Err)
	switch g.State {
	case gotNone:
		if loader != "ok" {
			return nil
		}
		for _, t := range l.absent[key] {
			if t <= end && start <= t+10*time.Second+lateness+negativeTTL {
				return nil
			}
		}
		return fmt.Errorf("not found, though no loader said so")
	case gotValue:
		v := l.issued[key][g.N]
		switch {
		case v == nil:
			return fmt.Errorf("number %d was read, which no loader brought", g.N)
		case v.end == never || v.reported:
			return nil
		}
		most := v.end + v.ttl + lateness
		if v.loaded {
			most = v.end + v.ttl + joined
		}
		// Package near does not say that a value is an old one.
		if stale || strings.HasPrefix(key, "nl:") && l.failed(key, start, end) {
			most += staleIfError
		}
		if start > most+slack {
			v.reported = true
			return fmt.Errorf("an expired value was read: number %d, at least %v after its end (stale: %v)", g.N, start-most, stale)
		}
	}
	return nil
}

// failed reports whether a read may have got an old value: it waited for a load in vain, or joined
// one that failed or took too long.
func (l *loads) failed(key string, start, end instant) bool {
	if end-start >= shortest || l.trouble.overlap(start-loadTimeout-slack, end) {
		return true
	}
	for _, v := range l.issued[key] {
		long := min(v.end, end)-v.start >= shortest
		if (v.failing || long) && v.start <= end && (v.end == never || v.end+lateness >= start) {
			return true
		}
	}
	return false
}

// finish notes that the operation that may have called a loader has ended. own says that it
// returned its own loader's value.
func (l *loads) finish(v *loaded, own bool, now instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v.end = now
	v.loaded = own && now-v.start < shortest/3 // half of its time a caller waits for the load's end
}

func (l *loads) history(key string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.last[key]...)
}
