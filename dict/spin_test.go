package dict

import (
	"testing"
	"time"
)

// TestRemovedBeforeItIsLoaded: a dictionary that is published and taken back before a program's
// next poll leaves the program polling as before.
func TestRemovedBeforeItIsLoaded(t *testing.T) {
	m := newMemory()
	r := newRegistry(t, m, time.Minute)
	open(t, newRegistry(t, m, time.Minute), GroupOptions{Poll: 2 * time.Second})
	time.Sleep(300 * time.Millisecond)
	a := dictionaryOf(t, 1)
	must(t, r.Publish(t.Context(), "g", a, Info{}))
	time.Sleep(200 * time.Millisecond) // it is heard of
	must(t, remove(r, "g", a.ID(), true))
	time.Sleep(3 * time.Second)
	before := m.count(m.gets, r.groupKey("g"))
	time.Sleep(2 * time.Second)
	n := m.count(m.gets, r.groupKey("g")) - before
	t.Logf("the program asks for the group's state %d times in two seconds; its Poll is two seconds", n)
	if n > 4 {
		t.Errorf("%d looks in two seconds", n)
	}
}

// TestRegistryDownBeforeItIsLoaded: the registry fails after a publication, before a program's next
// poll.
func TestRegistryDownBeforeItIsLoaded(t *testing.T) {
	m := newMemory()
	h := &hooked{memory: m}
	r := newRegistry(t, m, time.Minute)
	open(t, newRegistry(t, h, time.Minute), GroupOptions{Poll: 2 * time.Second})
	time.Sleep(300 * time.Millisecond)
	must(t, r.Publish(t.Context(), "g", dictionaryOf(t, 1), Info{}))
	time.Sleep(50 * time.Millisecond) // it is heard of
	m.setDown(true)
	time.Sleep(3 * time.Second)
	h.lock.Lock()
	before := h.left
	h.lock.Unlock()
	time.Sleep(2 * time.Second)
	h.lock.Lock()
	n := before - h.left
	h.lock.Unlock()
	t.Logf("the program asks a registry that is down %d times in two seconds", n)
	if n > 6 {
		t.Errorf("%d requests in two seconds", n)
	}
}
