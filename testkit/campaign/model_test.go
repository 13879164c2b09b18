package main

import (
	"testing"
	"time"
)

const s = time.Second

// script is what happens to one key.
type script struct {
	m *model
	w map[int64]*write
}

func newScript() *script { return &script{newModel(), map[int64]*write{}} }

// write is one of a value, 0 for a deletion; it is acknowledged at end, unless that is 0.
func (x *script) write(n int64, start, end, ttl time.Duration) *script {
	w := x.m.begin("k", n, ttl, start, "set")
	if end > 0 {
		x.m.finish("k", w, done{OK: true}, false, end)
	}
	x.w[n] = w
	return x
}

func TestModelReads(t *testing.T) {
	for _, c := range []struct {
		name       string
		x          *script
		start, end time.Duration
		g          got
		ok         bool
	}{
		{"never written", newScript(), s, 2 * s, got{State: gotNone}, true},
		{"the value", newScript().write(1, s, 2*s, 0), 3 * s, 4 * s, got{State: gotValue, N: 1}, true},
		{"lost", newScript().write(1, s, 2*s, 0), 3 * s, 4 * s, got{State: gotNone}, false},
		{"not yet there", newScript().write(1, s, 3*s, 0), 2 * s, 4 * s, got{State: gotNone}, true},
		{"never written there", newScript().write(1, s, 2*s, 0), 3 * s, 4 * s, got{State: gotValue, N: 7}, false},
		{"old", newScript().write(1, s, 2*s, 0).write(2, 3*s, 4*s, 0), 5 * s, 6 * s, got{State: gotValue, N: 1}, false},
		{"at once", newScript().write(1, s, 4*s, 0).write(2, 3*s, 4*s, 0), 5 * s, 6 * s, got{State: gotValue, N: 1}, true},
		{"read meanwhile", newScript().write(1, s, 2*s, 0).write(2, 3*s, 4*s, 0), 3 * s, 6 * s, got{State: gotValue, N: 1}, true},
		{"in doubt, done", newScript().write(1, s, 2*s, 0).write(2, 3*s, 0, 0), 9 * s, 10 * s, got{State: gotValue, N: 2}, true},
		{"in doubt, not done", newScript().write(1, s, 2*s, 0).write(2, 3*s, 0, 0), 9 * s, 10 * s, got{State: gotValue, N: 1}, true},
		{"in doubt, done late", newScript().write(2, s, 0, 0).write(1, 3*s, 4*s, 0), 9 * s, 10 * s, got{State: gotValue, N: 2}, true},
		{"deleted", newScript().write(1, s, 2*s, 0).write(0, 3*s, 4*s, 0), 5 * s, 6 * s, got{State: gotNone}, true},
		{"deleted, and back", newScript().write(1, s, 2*s, 0).write(0, 3*s, 4*s, 0), 5 * s, 6 * s, got{State: gotValue, N: 1}, false},
		{"expired", newScript().write(1, s, 2*s, 3*s), 4 * s, 6 * s, got{State: gotNone}, true},
		{"expired too early", newScript().write(1, s, 2*s, 3*s), 3 * s, 3 * s, got{State: gotNone}, false},
		{"outlived", newScript().write(1, s, 2*s, 3*s), 7 * s, 8 * s, got{State: gotValue, N: 1}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.x.m.allows("k", c.start, c.end, c.g); (err == nil) != c.ok {
				t.Errorf("allows: %v", err)
			}
		})
	}
}

func TestModelLosses(t *testing.T) {
	x := newScript().write(1, s, 2*s, 0)
	loss := x.m.lose("flush", false, 3*s)
	x.m.lostUntil(loss, 4*s)
	for n, want := range map[int64]bool{0: true, 1: true} {
		g := got{State: gotValue, N: n}
		if n == 0 {
			g = got{State: gotNone}
		}
		if err := x.m.allows("k", 5*s, 6*s, g); (err == nil) != want {
			t.Errorf("after a flush: %d: %v", n, err)
		}
	}
	x.write(2, 5*s, 6*s, 0)
	if x.m.allows("k", 7*s, 8*s, got{State: gotNone}) == nil {
		t.Error("what was written after a flush may be lost")
	}

	x = newScript().write(1, s, 2*s, 0).write(2, 3*s, 4*s, 0).write(3, 5*s, 6*s, 0)
	x.m.revert("restart", 4500*time.Millisecond, 7*s)
	x.m.reverted()
	for n, want := range map[int64]bool{1: false, 2: true, 3: true} {
		if err := x.m.allows("k", 8*s, 9*s, got{State: gotValue, N: n}); (err == nil) != want {
			t.Errorf("after going back: %d: %v", n, err)
		}
	}

	x = newScript().write(1, s, 2*s, 0)
	x.m.lose("volatile-lru", true, 3*s)
	if x.m.allows("k", 5*s, 6*s, got{State: gotNone}) == nil {
		t.Error("volatile-lru may take what has no expiry")
	}
}

// TestModelDelay: what was moved may expire later, and what is written after it may not.
func TestModelDelay(t *testing.T) {
	x := newScript().write(1, s, 2*s, 10*s)
	x.m.delay([]string{"k", "unknown"}, 2*s)
	for at, want := range map[time.Duration]bool{13 * s: true, 15 * s: false} {
		if err := x.m.allows("k", at, at, got{State: gotValue, N: 1}); (err == nil) != want {
			t.Errorf("a read at %v: %v", at, err)
		}
	}
	if err := x.m.allowsTTL("k", 10*s, 3*s, 3*s); err != nil {
		t.Error(err)
	}
	x.write(2, 4*s, 5*s, 10*s)
	if x.m.allows("k", 16*s, 16*s, got{State: gotValue, N: 2}) == nil || x.m.allowsTTL("k", 10*s, 6*s, 6*s) == nil {
		t.Error("what was written after a move may expire later")
	}
}

// TestModelRest: what is seen at rest is what there is.
func TestModelRest(t *testing.T) {
	x := newScript().write(1, s, 2*s, 0).write(2, 3*s, 0, 0)
	x.m.settle(5 * s)
	x.m.found("k", got{State: gotValue, N: 1}, 6*s)
	if err := x.m.allows("k", 7*s, 8*s, got{State: gotValue, N: 1}); err != nil {
		t.Error(err)
	}
	if x.m.allows("k", 7*s, 8*s, got{State: gotValue, N: 2}) == nil {
		t.Error("a write in doubt, found not done, may be done later")
	}
}

func TestModelExpiries(t *testing.T) {
	for _, c := range []struct {
		name string
		ttl  time.Duration
		pttl time.Duration
		ok   bool
	}{
		{"none", 0, -1, true},
		{"invented", 0, s, false},
		{"less", 10 * s, 5 * s, true},
		{"prolonged", 10 * s, 9500 * time.Millisecond, false},
		{"for ever", 10 * s, -1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := newScript().write(1, s, 2*s, c.ttl)
			if err := x.m.allowsTTL("k", c.pttl, 3*s, 4*s); (err == nil) != c.ok {
				t.Errorf("allowsTTL: %v", err)
			}
		})
	}
}

func TestLoadsModel(t *testing.T) {
	l := newLoads(&stops{})
	v := l.begin("l:1", 1, s, "ok", s)
	l.finish(v, false, 2*s)
	late := 2*s + lateness + s + slack
	for _, c := range []struct {
		at    time.Duration
		g     got
		stale bool
		ok    bool
	}{
		{2 * s, got{State: gotValue, N: 1}, false, true},
		{late - time.Millisecond, got{State: gotValue, N: 1}, false, true},
		{late + time.Millisecond, got{State: gotValue, N: 1}, true, true},
		{2 * s, got{State: gotValue, N: 2}, false, false},
		{2 * s, got{State: gotNone}, false, false},
		{late + time.Millisecond, got{State: gotValue, N: 1}, false, false},
	} {
		if err := l.allows("l:1", c.at, c.at, c.g, c.stale, "ok"); (err == nil) != c.ok {
			t.Errorf("at %v %+v: %v", c.at, c.g, err)
		}
	}
}

// TestOldValuesFromNear: package near may return an old value where a load can have failed, and
// nowhere else.
func TestOldValuesFromNear(t *testing.T) {
	const key, expired, ms = "nl:1", 12*s + joined, time.Millisecond
	for _, c := range []struct {
		name       string
		do         func(l *loads)
		start, end time.Duration
		ok         bool
	}{
		{"expired", func(*loads) {}, expired + slack + ms, expired + slack + ms, false},
		{"not yet", func(*loads) {}, expired, expired, true},
		{"waited", func(*loads) {}, expired + s, expired + s + shortest, true},
		{"too old", func(*loads) {}, expired + staleIfError + slack + ms, expired + staleIfError + s, false},
		{"failed", func(l *loads) { l.finish(l.begin(key, 2, s, "fail", expired), false, expired+ms) }, expired + s, expired + s, true},
		{"failed before", func(l *loads) { l.finish(l.begin(key, 2, s, "fail", 9*s), false, 9*s+ms) }, expired + s, expired + s, false},
		{"hangs", func(l *loads) { l.begin(key, 2, s, "ok", expired) }, expired + s, expired + s, true},
		{"begins", func(l *loads) { l.begin(key, 2, s, "ok", expired+s) }, expired + s, expired + s, false},
		{"fault", func(l *loads) { l.trouble.begin(expired)(expired + ms) }, expired + s, expired + s, true},
		{"fault goes on", func(l *loads) { l.trouble.begin(s) }, expired + s, expired + s, true},
		{"fault before", func(l *loads) { l.trouble.begin(s)(expired - s) }, expired + s, expired + s, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLoads(&stops{})
			l.finish(l.begin(key, 1, 10*s, "ok", 2*s-ms), true, 2*s)
			c.do(l)
			if err := l.allows(key, c.start, c.end, got{State: gotValue, N: 1}, false, "ok"); (err == nil) != c.ok {
				t.Error(err)
			}
		})
	}
}

func TestValuesAreVerified(t *testing.T) {
	v := newValue("k", 7, 1, 500)
	if n, err := checkText("k", v.text()); err != nil || n != 7 {
		t.Error(n, err)
	}
	if _, err := checkText("other", v.text()); err == nil {
		t.Error("another key's value passes")
	}
	b := v.text()
	b[len(b)/2] ^= 1
	if _, err := checkText("k", b); err == nil {
		t.Error("a flipped bit passes")
	}
	if _, err := checkText("k", append([]byte{0xBA, 0x1E}, b...)); err == nil {
		t.Error("packed bytes pass")
	}
}

func TestLastingKeys(t *testing.T) {
	for info, want := range map[string]int{
		"# Keyspace\r\n": 0,
		"# Keyspace\r\ndb0:keys=2501,expires=300,avg_ttl=100\r\n":                2201,
		"# Keyspace\r\ndb0:keys=7,expires=0,avg_ttl=0,subexpiry=0\r\ndb1:keys=3": 7,
	} {
		if n := lastingKeys(info); n != want {
			t.Errorf("%q: %d, want %d", info, n, want)
		}
	}
}

func TestNeedsLost(t *testing.T) {
	const lost = " bale:dict:groups bale:dict:data:68030e14 bale:dict:data: bale:dict:quarantine:00000001"
	for what, want := range map[string]bool{
		"packed with zstd, dictionary 68030e14: unknown dictionary": true,
		"dictionary 00000001 is not in the registry":                true,
		"packed with zstd, dictionary 8f6adb94: unknown dictionary": false,
		"corrupt: checksum": false,
	} {
		if needsLost(what, lost) != want {
			t.Errorf("%q: not %v", what, want)
		}
	}
}
