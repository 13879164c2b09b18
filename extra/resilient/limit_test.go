package resilient

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// phase is what an endpoint is like, and how much is asked of it, for a time.
type phase struct {
	lasts   time.Duration
	workers int           // calls that the endpoint works on at once
	service time.Duration // of one, on average
	offered float64       // calls a second
	room    int           // calls that may queue at the endpoint, 0 for no bound; it refuses all if negative
	fails   float64       // share of calls that fail at once
	refuse  time.Duration // of a worker for a call that is refused
}

// event is the end of something in a simulated world.
type event struct {
	at      time.Duration
	began   time.Duration // when the call was sent
	asked   time.Duration // when its caller came
	refused bool
	over    *bool // its caller has left or got the answer, nil if it waits for ever
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	x := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return x
}

// simulate sends calls to an endpoint under a limit, and returns how many ended within patience of
// their caller's coming, by phase. Callers come at random (Poisson), service times are random
// (a third of them fixed, the rest exponential), the endpoint has a queue of its own, and does not
// notice who has left. With hurry its caller ends a call when patience is over.
func simulate(phases []phase, patience time.Duration, hurry bool, l *limiter, fixed bool, seed uint64, trace func(now time.Duration, l *limiter)) []int {
	rng := rand.New(rand.NewPCG(seed, 1))
	var now, phaseEnds time.Duration
	good := make([]int, len(phases))
	var working events   // in the endpoint's workers
	var atServer []event // in its queue
	var waiting []event  // in ours
	var refused []event  // on their way
	var leaving events   // the callers of calls
	p := -1
	var current phase
	next := time.Duration(0)
	spread := func(mean float64) time.Duration { return time.Duration(mean * rng.ExpFloat64()) }
	serve := func() {
		for len(working) < current.workers && len(atServer) > 0 {
			e := atServer[0]
			atServer = atServer[1:]
			e.at = now + current.service/3 + spread(float64(current.service)*2/3)
			if e.refused {
				e.at = now + current.refuse
			} else if current.fails > 0 && rng.Float64() < current.fails {
				e.at, e.refused = now+current.service/10, true
			}
			heap.Push(&working, e)
		}
	}
	send := func(e event) {
		e.began = now
		if hurry {
			e.over = new(bool)
			heap.Push(&leaving, event{at: e.asked + patience, began: now, asked: e.asked, refused: true, over: e.over})
		}
		switch {
		case current.room < 0: // it is gone
			e.at, e.refused = now+current.service/10, true
			refused = append(refused, e)
		case current.room == 0 || len(atServer) < current.room:
			atServer = append(atServer, e)
		case current.refuse == 0: // somebody else does it
			e.at, e.refused = now+current.service/10, true
			refused = append(refused, e)
		default: // a worker does it, before all others
			e.refused = true
			atServer = append([]event{e}, atServer...)
		}
		serve()
	}
	for {
		if p < 0 || now >= phaseEnds {
			if p++; p == len(phases) {
				return good
			}
			current = phases[p]
			phaseEnds += current.lasts
			next = now + spread(float64(time.Second)/current.offered)
			serve()
		}
		at := min(next, phaseEnds)
		var ended *event
		for _, first := range []events{working, refused, leaving} {
			if len(first) > 0 && first[0].at <= at {
				ended, at = &first[0], first[0].at
			}
		}
		if ended != nil {
			e := *ended
			switch now = e.at; {
			case len(leaving) > 0 && ended == &leaving[0]:
				heap.Pop(&leaving)
			case len(refused) > 0 && ended == &refused[0]:
				refused = refused[1:]
			default:
				heap.Pop(&working)
				serve()
			}
			if e.over != nil {
				if *e.over {
					continue
				}
				*e.over = true
			}
			before := l.limit
			l.leave(now, now-e.began, true, e.refused)
			if fixed {
				l.limit = before
			} else if trace != nil && l.limit != before {
				trace(now, l)
			}
			if now-e.asked <= patience && !e.refused {
				good[p]++
			}
			for len(waiting) > 0 {
				if now-waiting[0].asked > l.Wait {
					waiting = waiting[1:]
					continue
				}
				if !l.take() {
					break
				}
				e := waiting[0]
				if now-e.asked > l.Wait/2 { // the newest
					e = waiting[len(waiting)-1]
					waiting = waiting[:len(waiting)-1]
				} else {
					waiting = waiting[1:]
				}
				send(e)
			}
			continue
		}
		now = at
		if now == next {
			next = now + spread(float64(time.Second)/current.offered)
			e := event{asked: now}
			switch {
			case len(waiting) == 0 && l.take():
				send(e)
			case len(waiting) < int(l.limit):
				l.inFull = true
				waiting = append(waiting, e)
			}
		}
	}
}

// TestLimitFindsTheCapacity: whatever happens to the endpoint, as many calls succeed as with the
// best fixed limit, but for a tenth. The limiter knows nothing of the endpoint but how long a call
// takes while it is well. Afterwards the endpoint is well again, and no limit is stuck.
func TestLimitFindsTheCapacity(t *testing.T) {
	const s = time.Second
	const healthy = 10 * time.Millisecond
	well := phase{lasts: 20 * s, workers: 50, service: healthy, offered: 2 * 5000}
	with := func(p phase, change func(*phase)) phase { change(&p); return p }
	ramp := []phase{}
	for i := range 20 {
		ramp = append(ramp, with(well, func(p *phase) { p.lasts = 2 * s; p.service += time.Duration(i) * healthy / 5 }))
	}
	scenarios := map[string][]phase{
		"well":          {well},
		"light":         {with(well, func(p *phase) { p.offered = 1000 })},
		"small":         {with(well, func(p *phase) { p.workers = 8; p.offered = 1600 })},
		"few calls":     {with(well, func(p *phase) { p.workers = 2; p.service *= 2; p.offered = 150 })},
		"few, slower":   {with(well, func(p *phase) { p.workers = 6; p.offered = 700 }), with(well, func(p *phase) { p.workers = 6; p.service *= 5; p.offered = 700 })},
		"gone and back": {well, with(well, func(p *phase) { p.workers = 1; p.lasts = 5 * s }), well},
		"large":         {with(well, func(p *phase) { p.workers = 400; p.offered = 60000; p.lasts = 5 * s })},
		"step to slow":  {well, with(well, func(p *phase) { p.service *= 4 }), well},
		"ramp":          ramp,
		"half is gone":  {well, with(well, func(p *phase) { p.workers /= 2 }), well},
		"most is gone":  {well, with(well, func(p *phase) { p.workers /= 10 }), well},
		"spike":         {with(well, func(p *phase) { p.offered = 3000 }), with(well, func(p *phase) { p.offered = 50000; p.lasts = 3 * s }), with(well, func(p *phase) { p.offered = 3000 })},
		"slow and back": {with(well, func(p *phase) { p.service *= 6; p.offered = 2000 }), well, with(well, func(p *phase) { p.service *= 3 })},
	}
	for name, phases := range scenarios {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			again := phases[0]
			again.lasts, again.service = 5*s, healthy
			compareWithFixed(t, append(phases, again), healthy, 30*healthy, false, 0.9, 3)
		})
	}
}

// TestLimitOfOddEndpoints: the same for endpoints that refuse calls, for callers in a hurry, and if
// Healthy is wrong.
func TestLimitOfOddEndpoints(t *testing.T) {
	const s = time.Second
	const healthy = 10 * time.Millisecond
	well := phase{lasts: 20 * s, workers: 50, service: healthy, offered: 10000}
	with := func(change func(*phase)) phase { p := well; change(&p); return p }
	half := with(func(p *phase) { p.workers /= 2 })
	slow := with(func(p *phase) { p.service *= 3 })
	for name, test := range map[string]struct {
		healthy, patience time.Duration
		phases            []phase
	}{
		"refuses what is too much":      {healthy, 30 * healthy, []phase{with(func(p *phase) { p.room = 50; p.refuse = healthy / 10 })}},
		"refuses, with half of it gone": {healthy, 30 * healthy, []phase{well, with(func(p *phase) { p.workers /= 2; p.room = 20; p.refuse = healthy / 10 }), well}},
		"is gone, at once":              {healthy, 30 * healthy, []phase{well, with(func(p *phase) { p.room = -1; p.lasts = 5 * s }), well}},
		"fails a third, at once":        {healthy, 30 * healthy, []phase{well, with(func(p *phase) { p.fails = 0.3 }), well}},
		"has callers in a hurry":        {healthy, 6 * healthy, []phase{well, half, slow, well}},
		"is faster than Healthy":        {healthy * 2, 30 * healthy, []phase{well, half, slow, well}},
		"is slower than Healthy":        {healthy / 2, 30 * healthy, []phase{well, half, slow, well}},
		"takes seconds":                 {100 * healthy, 3000 * healthy, []phase{{lasts: 1000 * s, workers: 50, service: s, offered: 100}, {lasts: 1000 * s, workers: 25, service: s, offered: 100}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			again := test.phases[0]
			again.room, again.lasts = 0, 500*again.service
			compareWithFixed(t, append(test.phases, again), test.healthy, test.patience, false, 0.9, 3)
		})
	}
}

// TestLimitAtRandom: the same for endpoints and faults that nobody thought of, and for callers that
// wait and callers that end their calls by a deadline.
func TestLimitAtRandom(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 2))
		between := func(least, most float64) float64 { return least * math.Pow(most/least, rng.Float64()) }
		healthy := time.Duration(between(float64(5*time.Millisecond), float64(50*time.Millisecond)))
		workers := between(4, 64)
		capacity := workers / healthy.Seconds()
		var phases []phase
		for range 4 {
			p := phase{lasts: 20 * time.Second, workers: int(workers), service: healthy, offered: capacity * between(0.3, 3)}
			switch rng.IntN(4) {
			case 0:
				p.workers = max(2, p.workers/(2+rng.IntN(5)))
			case 1:
				p.service = time.Duration(float64(p.service) * between(1, 5))
			}
			phases = append(phases, p)
		}
		patience := time.Duration(between(15, 50) * float64(healthy))
		phases = append(phases, phase{lasts: 500 * healthy, workers: int(workers), service: healthy, offered: 1.5 * capacity})
		for _, hurry := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d, hurry %v", seed, hurry), func(t *testing.T) {
				t.Parallel()
				t.Log(phases)
				compareWithFixed(t, phases, healthy, patience, hurry, 0.9, 1)
			})
		}
	}
}

// TestLimitBeforeDeadlines: callers end their calls by a deadline, and the endpoint goes on with
// the work. Under a fault that no call survives at first, most of what the best fixed limit gives
// comes back. Few calls end then, so a good limit takes several experiments of two seconds.
func TestLimitBeforeDeadlines(t *testing.T) {
	const s = time.Second
	const healthy = 10 * time.Millisecond
	small := phase{lasts: s, workers: 8, service: healthy, offered: 500}
	large := phase{lasts: s, workers: 50, service: healthy, offered: 10000}
	for name, test := range map[string]struct {
		well  phase
		fault func(*phase)
	}{
		"half is gone":                   {small, func(p *phase) { p.workers /= 2 }},
		"most is gone":                   {small, func(p *phase) { p.workers /= 8 }},
		"hangs":                          {small, func(p *phase) { p.workers = 0; p.lasts = s / 2 }},
		"ten times slower":               {small, func(p *phase) { p.service *= 10 }},
		"is large, ten times slower":     {large, func(p *phase) { p.service *= 10 }},
		"is large, fifteen times slower": {large, func(p *phase) { p.service *= 15 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fault, again := test.well, test.well
			fault.lasts, again.lasts = 20*s, 5*s
			test.fault(&fault)
			compareWithFixed(t, []phase{test.well, fault, again, again}, healthy, 20*healthy, true, 0.9, 3)
		})
	}
}

// TestLimitIsWorse: what the limit cannot do as well, and how much less it does.
func TestLimitIsWorse(t *testing.T) {
	const s = time.Second
	const healthy = 10 * time.Millisecond
	small := phase{lasts: s, workers: 8, service: healthy, offered: 500}
	well := phase{lasts: 5 * s, workers: 50, service: healthy, offered: 4000}
	with := func(p phase, change func(*phase)) phase { change(&p); return p }
	bursts := func(lasts time.Duration, offered float64) (all []phase) {
		for range 10 {
			all = append(all, with(well, func(p *phase) { p.lasts, p.offered = lasts, offered }), with(well, func(p *phase) { p.lasts, p.offered = s, 500 }))
		}
		return all
	}
	slow := func(lasts time.Duration) []phase {
		return []phase{with(small, func(p *phase) { p.lasts, p.service = lasts, 10*healthy })}
	}
	for name, test := range map[string]struct {
		healthy, patience time.Duration
		hurry             bool
		phases            []phase
		least             float64
	}{
		"the first 5 s at 80 answers a second": {healthy, 20 * healthy, true, slow(5 * s), 0.35},
		"a minute at 80 answers a second":      {healthy, 20 * healthy, true, slow(60 * s), 0.8},
		"bursts of 1 s":                        {healthy, 300 * healthy, false, bursts(s, 10000), 0.8},
		"bursts of 0.2 s":                      {healthy, 300 * healthy, false, bursts(s/5, 20000), 0.6},
		"bursts of 0.1 s":                      {healthy, 300 * healthy, false, bursts(s/10, 30000), 0.45},
		"refusals cost a third of a call":      {healthy, 30 * healthy, false, []phase{with(well, func(p *phase) { p.lasts, p.offered, p.room, p.refuse = 20*s, 10000, 50, healthy/3 })}, 0.75},
		"callers leave within twice Healthy":   {6 * healthy, 10 * healthy, true, []phase{with(well, func(p *phase) { p.lasts, p.offered = 20*s, 10000 })}, 0.3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			again := small
			if test.phases[0].workers > small.workers {
				again = well
			}
			again.lasts = 5 * s
			compareWithFixed(t, append(test.phases, again), test.healthy, test.patience, test.hurry, test.least, 3)
		})
	}
}

// compareWithFixed compares the calls that end in time with those under the best fixed limit: at
// least this share of them. In the last phase, which follows the faults, it is nine tenths: neither
// a fault nor its end leaves a limit that is stuck.
func compareWithFixed(t *testing.T, phases []phase, healthy, patience time.Duration, hurry bool, least float64, seeds uint64) {
	limit := func(n int) Limit {
		return Limit{Healthy: healthy, Min: 4, Max: 1000, Initial: n, Wait: 4 * healthy}
	}
	total := func(good []int) (n int) {
		for _, g := range good[:len(good)-1] {
			n += g
		}
		return n
	}
	best, at, bestAgain := 0, 0, 0
	for n := 4.0; n <= 1000; n *= 1.5 {
		l := newLimiter(limit(int(n)))
		good := simulate(phases, patience, hurry, &l, true, 1, nil)
		if g := total(good); g > best {
			best, at = g, int(n)
		}
		bestAgain = max(bestAgain, good[len(good)-1])
	}
	worst, worstAgain := math.Inf(1), math.Inf(1)
	for seed := range seeds {
		l := newLimiter(limit(20))
		limits, last := "", time.Duration(0)
		good := simulate(phases, patience, hurry, &l, false, seed, func(now time.Duration, l *limiter) {
			if now-last > time.Second {
				limits += fmt.Sprintf(" %.0f:%.0f", now.Seconds(), l.limit)
				last = now
			}
		})
		share, again := float64(total(good))/float64(best), float64(good[len(good)-1])/float64(bestAgain)
		worst, worstAgain = min(worst, share), min(worstAgain, again)
		if share < least || again < 0.9 {
			t.Errorf("seed %d: %.3f of what limit %d gives (%d), afterwards %.3f: %v%s", seed, share, at, best, again, good, limits)
		}
	}
	t.Logf("%.3f of what limit %d gives (%d), afterwards %.3f", worst, at, best, worstAgain)
}
