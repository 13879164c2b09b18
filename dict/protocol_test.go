package dict

import (
	"fmt"
	"slices"
	"testing"
)

// The model of the protocol has one dictionary d and one value that may need it. It explores all
// interleavings of a program or a tool, an operator, a garbage collector and the time. Its rules
// are those at the head of protocol.go.

type rule uint

const (
	ruleLapse      rule = 1 << iota // a program without an answer for lapseGraces does not write with d
	ruleAtOnce                      // nor one that reads that d is neither current nor previous
	ruleUse                         // a tool notes its use in the group
	ruleReassert                    // a tool without a success of Use for lapseGraces does not write with d
	ruleUsed                        // ceasing to be the previous one is a use
	ruleRetention                   // only what was not used for removeGraces is a candidate
	ruleMargin                      // removeGraces is one more than lapseGraces
	ruleSeen                        // the candidates are chosen before the scan
	ruleScan                        // a scan that did not see everything proves nothing
	ruleSame                        // inside the swap the entry is as it was seen
	ruleGroupFirst                  // d leaves the group before its bytes go
	ruleQuarantine                  // and its bytes go to quarantine first
	ruleLookAgain                   // a remover of bytes looks for a group again afterwards
	rulePutAgain                    // Publish puts the bytes again after the group has d
	ruleUsable                      // activations, uses and polls look for the bytes, and put them back
	ruleIncludes                    // a program puts back what it knows, unless the registry includes it
	allRules       = 1<<iota - 1
)

var ruleNames = []string{"lapse", "at once", "use", "reassert", "used", "retention", "margin", "seen", "scan", "same", "group first", "quarantine", "look again", "put again", "usable", "includes"}

// The time goes by in halves of a grace period. One half is left for clocks that differ, one for a
// write in flight. Only the difference of the two periods matters, so they are shorter here.
const (
	modelLapse  = 2
	modelRemove = modelLapse + 2*(removeGraces-lapseGraces)
	modelSkew   = 1
	modelFlight = 1
	oldest      = modelRemove // ages stop here
)

// roles of d in the group
const (
	absent uint8 = iota
	published
	current
	previous
	retired
)

// steps of the garbage collector, and of Publish
const (
	idle uint8 = iota

	looked   // at the states: d is a candidate
	scanned  // and no value needs it
	out      // d was taken out of the group, or was in none
	unlisted // and no group has it
	copied   // to quarantine
	deleted  // the bytes are gone

	stored // Publish: the bytes are there
	added  // and the group has them
)

// agent is who writes with d: a program or a tool.
type agent struct {
	asking, asked bool  // a poll or Use under way, and its age
	reply         uint8 // what the poll read
	askAge        uint8
	writes        bool // it may write with d
	age           uint8
	flight        uint8 // of a write: 0 none, else 1 + its age
	holds         bool  // a program has the bytes
	sees          bool  // the poll under way sees that the registry was emptied
}

type world struct {
	role             uint8
	since            uint8 // the last use of the entry
	data, quarantine bool
	torn             bool // a remover was killed before its second look, or Publish before it put the bytes again, and nobody has looked for them since
	emptied          bool // the registry was, and filled again, and the program has not polled since
	value            bool // needs d
	agent            agent
	gc               uint8
	stale            bool // the entry has changed since the garbage collector saw it
	grouped          bool // the garbage collector removes d from the group, not an orphan
	publisher        uint8
}

// model is who takes part, by which rules.
type model struct {
	rules rule
	tool  bool // writes, instead of a program
}

func (m model) has(r rule) bool { return m.rules&r != 0 }

// changed is a change of d's entry.
func (w *world) changed() { w.stale = true }

// lookForBytes is Registry.usable. A program that polls may have the bytes itself.
func (m model) lookForBytes(w *world, held bool) bool {
	if m.has(ruleUsable) {
		w.data = w.data || w.quarantine || held
	}
	w.torn = w.torn && m.has(ruleUsable) && !w.data
	return w.data || !m.has(ruleUsable)
}

// lapses reports whether an agent stops writing by itself.
func (m model) lapses() bool {
	if m.tool {
		return m.has(ruleReassert)
	}
	return m.has(ruleLapse)
}

// forget drops what no step goes by any more, so that fewer states differ.
func (m model) forget(w *world) {
	if w.role == absent || w.role == current || w.role == previous && m.has(ruleUsed) {
		w.since = 0
	}
	if w.gc != looked && w.gc != scanned {
		w.stale, w.grouped = false, false
	}
	if w.data {
		w.torn = false
	}
	a := &w.agent
	if a.writes && a.age > modelLapse && m.lapses() {
		a.writes = false
	}
	if !a.writes {
		a.age = 0
	}
	a.age, a.askAge = min(a.age, modelLapse+1), min(a.askAge, modelLapse+1)
}

// next are all steps that are possible.
func (m model) next(w world, emit func(step string, w world)) {
	step := func(name string, possible bool, do func(w *world)) {
		if possible {
			n := w
			do(&n)
			m.forget(&n)
			emit(name, n)
		}
	}
	tick := func(age *uint8) { *age = min(*age+1, oldest) }
	step("time", w.agent.flight <= modelFlight, func(w *world) {
		tick(&w.since)
		if w.agent.writes {
			tick(&w.agent.age)
		}
		if w.agent.asking {
			tick(&w.agent.askAge)
		}
		if w.agent.flight > 0 {
			w.agent.flight++
		}
	})
	step("the value expires", w.value, func(w *world) { w.value = false })

	// The operator.
	step("publish: put", w.publisher == idle, func(w *world) { w.data, w.publisher = true, stored })
	step("publish: group", w.publisher == stored, func(w *world) {
		if w.role == absent {
			w.role, w.since = published, 0
			w.changed()
		} else if w.role == retired {
			w.since = 0
			w.changed()
		}
		w.publisher = added
		if !m.has(rulePutAgain) {
			w.publisher = idle
		}
	})
	step("publish: put again", w.publisher == added, func(w *world) { w.data, w.torn, w.publisher = true, false, idle })
	step("publish: killed", w.publisher != idle, func(w *world) { w.torn, w.publisher = w.torn || w.publisher == added, idle })
	step("activate", w.role == published || w.role == previous || w.role == retired, func(w *world) {
		if m.lookForBytes(w, false) {
			w.role = current
			w.changed()
		}
	})
	step("activate another", w.role == current || w.role == previous, func(w *world) {
		if w.role == current {
			w.role, w.since = previous, 0
		} else {
			w.role = retired
			if m.has(ruleUsed) {
				w.since = 0
			}
		}
		if w.role == previous || m.has(ruleUsed) {
			w.changed()
		}
	})

	// The program, or the tool.
	a := w.agent
	if m.tool {
		step("use: start", !a.asking, func(w *world) { w.agent.asking, w.agent.askAge = true, 0 })
		step("use: group", a.asking && !a.asked, func(w *world) {
			if w.role == absent {
				w.agent = agent{flight: w.agent.flight} // it stops
				return
			}
			if m.has(ruleUse) {
				w.since = 0
				w.changed()
			}
			w.agent.asked = true
		})
		step("use: bytes", a.asking && a.asked, func(w *world) {
			ok := m.lookForBytes(w, false)
			w.agent = agent{writes: ok, age: w.agent.askAge, flight: w.agent.flight}
		})
	} else {
		step("poll: read", !a.asking, func(w *world) {
			w.agent.asking, w.agent.askAge, w.agent.reply, w.agent.sees = true, 0, w.role, w.emptied
			if !m.has(ruleAtOnce) {
				w.agent.age = 0 // the answer counts before it is applied
			}
		})
		apply := func(w *world, reply uint8) {
			there := reply != absent && m.lookForBytes(w, a.holds)
			w.agent = agent{
				writes: there && (reply == current || reply == previous && a.writes), age: w.agent.askAge, flight: w.agent.flight,
				holds: a.holds || there && w.data && reply != retired,
			}
		}
		step("poll: apply", a.asking && !(a.sees && m.has(ruleIncludes)), func(w *world) {
			apply(w, a.reply)
			w.emptied = w.emptied && !a.sees
		})
		putBack := func(role uint8) func(w *world) {
			return func(w *world) {
				w.data, w.role, w.since, w.torn, w.emptied = true, role, 0, false, false
				w.changed()
				apply(w, w.role)
			}
		}
		step("poll: put back", a.asking && a.sees && m.has(ruleIncludes), putBack(current))
		step("poll: put back, another is current", a.asking && a.sees && m.has(ruleIncludes), putBack(retired))
		for _, role := range []uint8{absent, published} {
			step("the registry is emptied and filled again", a.holds && !w.emptied, func(w *world) {
				w.role, w.since, w.data, w.quarantine, w.torn, w.emptied = role, 0, role == published, false, false, true
			})
		}
	}
	step("pack", a.writes && a.flight == 0, func(w *world) { w.agent.flight = 1 })
	step("store", a.flight > 0, func(w *world) { w.value, w.agent.flight = true, 0 })
	// Not while nobody else has the bytes, or the registry is about to lose them: a remover was at
	// its last step when it was emptied.
	step("the writer is killed", a != agent{} && !w.emptied && (w.quarantine || w.data && w.gc != copied), func(w *world) { w.agent = agent{} })

	// The garbage collector.
	remove := modelRemove
	if !m.has(ruleMargin) {
		remove = modelLapse
	}
	due := int(w.since)+modelSkew > remove || !m.has(ruleRetention)
	removable := w.role == published || w.role == retired
	step("gc: looks", w.gc == idle && removable && (due || !m.has(ruleSeen)), func(w *world) { w.gc, w.stale, w.grouped = looked, false, true })
	step("gc: looks at an orphan", w.gc == idle && w.role == absent && w.data, func(w *world) { w.gc, w.stale, w.grouped = looked, false, false })
	step("gc: scans", w.gc == looked && (!w.value || !m.has(ruleScan)), func(w *world) {
		w.gc = scanned
		if !m.has(ruleSeen) {
			w.stale = false
		}
	})
	step("gc: takes it out", w.gc == scanned, func(w *world) {
		same := !w.stale || !m.has(ruleSame)
		switch {
		case !w.grouped:
			w.gc = out
		case !removable || !due || !same:
			w.gc = idle
		default:
			w.gc = out
			if m.has(ruleGroupFirst) {
				w.role = absent
				w.changed()
			}
		}
	})
	step("gc: looks for a group", w.gc == out, func(w *world) {
		w.gc = unlisted
		if w.role != absent && m.has(ruleGroupFirst) {
			w.gc = idle
		}
	})
	step("gc: quarantines", w.gc == unlisted, func(w *world) { w.gc, w.quarantine = copied, m.has(ruleQuarantine) })
	step("gc: deletes", w.gc == copied, func(w *world) {
		w.gc, w.data = deleted, false
		if !m.has(ruleGroupFirst) {
			w.role = absent
		}
	})
	step("gc: looks again", w.gc == deleted, func(w *world) {
		w.gc = idle
		if w.role != absent && m.has(ruleLookAgain) {
			w.data = true
		}
	})
	step("gc: killed", w.gc != idle, func(w *world) { w.torn = w.torn || w.gc == deleted; w.gc = idle })
}

// violated says what must never be so, and is.
func (w *world) violated() string {
	switch {
	case w.emptied || (w.torn || w.gc == deleted) && w.agent.holds: // until the program polls
	case w.value && !w.data && !w.quarantine:
		return "a value outlives its dictionary"
	case w.value && !w.data && w.gc != deleted && !w.torn:
		return "a value outlives its dictionary's bytes, which are in quarantine alone"
	case w.role != absent && !w.data && w.publisher == idle && w.gc != deleted && !w.torn:
		return "a group names a dictionary that is not there"
	}
	return ""
}

// explore returns the shortest way to a violation, or nothing and the number of states.
func (m model) explore() (trace []string, states int) {
	type origin struct {
		from world
		step string
	}
	first := world{role: current, data: true}
	seen := map[world]origin{first: {}}
	for queue := []world{first}; len(queue) > 0; {
		w := queue[0]
		queue = queue[1:]
		if v := w.violated(); v != "" {
			for trace = []string{v}; w != first; w = seen[w].from {
				trace = append(trace, seen[w].step)
			}
			slices.Reverse(trace)
			return trace, len(seen)
		}
		m.next(w, func(step string, n world) {
			if _, ok := seen[n]; !ok {
				seen[n] = origin{w, step}
				queue = append(queue, n)
			}
		})
	}
	return nil, len(seen)
}

// TestProtocol: no interleaving breaks the protocol, and without any one of its rules one does.
func TestProtocol(t *testing.T) {
	t.Parallel()
	for _, tool := range []bool{false, true} {
		trace, states := model{allRules, tool}.explore()
		t.Logf("tool %v: %d states", tool, states)
		if trace != nil {
			t.Errorf("tool %v: %q", tool, trace)
		}
	}
	for i, name := range ruleNames {
		t.Run(name, func(t *testing.T) {
			r := rule(1) << i
			trace, states := model{allRules &^ r, r&(ruleUse|ruleReassert) != 0}.explore()
			t.Logf("%d states: %q", states, trace)
			if trace == nil {
				t.Error("no violation is found without this rule")
			}
		})
	}
	if want := fmt.Sprintf("%b", uint(allRules)); len(want) != len(ruleNames) {
		t.Errorf("%d rules and %d names", len(want), len(ruleNames))
	}
}
