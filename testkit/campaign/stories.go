package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// The tools of the stories, filled in like those of commands.
const (
	tellPublish  = "dict publish %f --group %g --grace %d"
	tellActivate = "dict activate %i --group %g --force --grace %d"
	tellCollect  = "dict gc --apply --grace %d --max-rate %r"
	tellRemove   = "dict remove %i --group %g --grace %d --max-rate %r"
	tellPlain    = "migrate --match y:* --max-rate 0 --max-bandwidth 0"
	tellMigrate  = "migrate --match %m --group %g --dict current --max-rate %r"
	tellRepack   = "migrate --match %m --group %g --dict current --repack --max-rate %r"
	tellResume   = "migrate --match y:* --group %g --dict current --max-rate %r --resume %t/resume-%g"
	tellRevert   = "migrate --match y:* --revert --max-rate 0 --max-bandwidth 0"
	tellExpired  = "migrate --match %m --revert --max-rate 0 --max-bandwidth 0"
)

// story is a sequence of tools that meet: what chance alone brings together too seldom. All else
// goes on beside it.
type story struct {
	name string
	on   string // as of a fault
	tell func(t *telling)
}

// stories are all of them. They work on the keys y:*, which no program reads between two rests: one
// that has a dictionary would put it back.
var stories = []story{
	// A long walk with a dictionary that the group leaves, and that is collected before the walk
	// has met a value to pack.
	{"slow-migrate", "sce", func(t *telling) {
		t.run(tellPlain, 0, 0)
		t.run(tellActivate, 0, 0)
		wait := t.begin(tellMigrate, 0, t.lasting(40), 0, 0)
		t.moveOn()
		t.collect()
		t.run(tellRevert, 0, 0)
		wait()
	}},
	// One that stands still instead.
	{"stopped-migrate", "sce", func(t *telling) {
		line := []string{tellMigrate, tellRepack}[t.r.IntN(2)]
		t.run(tellRevert, 0, 0)
		t.run(tellActivate, 0, 0)
		wait := t.begin(line, 0, t.lasting(8), time.Duration(100+t.r.IntN(1000))*time.Millisecond, t.graces(20))
		t.moveOn()
		t.collect()
		wait()
	}},
	// One that was killed, and begins again from its state when its dictionary may be collected.
	{"resumed-migrate", "sce", func(t *telling) {
		t.run(tellPlain, 0, 0)
		t.run(tellActivate, 0, 0)
		p := t.plan(tellResume, 0, t.lasting(16))
		p.chaos, p.after = "kill", t.graces(3)
		t.w.runTool(t.ctx, p)
		t.moveOn()
		t.pause(6.2)
		wait := t.begin(tellResume, 0, t.lasting(30), 0, 0)
		t.pause(0.5 + t.r.Float64())
		t.run(tellCollect, 0, 0)
		t.run(tellRevert, 0, 0)
		wait()
	}},
	// A collection that lasts while its candidate is in use again, and left again.
	{"old-list", "sce", func(t *telling) {
		t.run(tellRevert, 0, 0)
		t.run(tellActivate, 0, 0)
		t.moveOn()
		t.pause(6.5)
		line := []string{tellCollect, tellRemove}[t.r.IntN(2)]
		wait := t.begin(line, 0, t.lasting(14), 0, 0)
		t.pause(7 + 4*t.r.Float64())
		t.run(tellActivate, 0, 0)
		t.pattern = t.w.archiveKey(t.r.IntN(archiveKeys))
		t.run(tellMigrate, 0, 0)
		t.moveOn()
		wait()
	}},
	// A collection by a user who may not see all keys.
	{"blind-gc", "sce", func(t *telling) {
		t.run(tellRevert, 0, 0)
		t.run(tellActivate, 0, 0)
		t.run(tellMigrate, 0, 0)
		t.moveOn()
		t.pause(6.5)
		t.w.event("ACL of the tools: some keys")
		t.w.servers.each(t.ctx, "ACL", "SETUSER", toolUser, "resetkeys", "~bale:dict:*", []string{"~h:*", "~c:*", "~x:*", "%R~h*"}[t.r.IntN(4)])
		t.run(tellCollect, 0, 0)
		t.w.servers.each(t.ctx, "ACL", "SETUSER", toolUser, "resetkeys", "~*", "&*", "+@all")
	}},
	// A collection while slots move: of few keys, which a walk can miss.
	{"moving-gc", "c", func(t *telling) {
		t.pattern = t.w.archiveKey(t.r.IntN(archiveKeys))
		t.run(tellRevert, 0, 0)
		t.run(tellActivate, 0, 0)
		t.run(tellMigrate, 0, 0)
		t.moveOn()
		t.pause(6.5)
		wait := t.begin(tellCollect, 0, t.lasting(6), 0, 0)
		for range 6 {
			t.w.moveKey(t.ctx, t.r, t.pattern)
			t.pause(t.r.Float64())
		}
		wait()
	}},
	// A value that was in a backup while its dictionary was collected: the dictionary comes back
	// from quarantine.
	{"backup", "sce", func(t *telling) {
		t.pattern = t.w.archiveKey(t.r.IntN(archiveKeys))
		t.run(tellRevert, 0, 0)
		t.run(tellActivate, 0, 0)
		t.run(tellMigrate, 0, 0)
		defer t.backUp(t.pattern)()
		t.moveOn()
		t.collect()
	}},
	// A revert of values that have expired, and are kept for when they cannot be loaded.
	{"revert-expired", "sce", func(t *telling) {
		for range 4 {
			t.pattern = []string{"l:*", "nl:*", "*"}[t.r.IntN(3)]
			t.run(tellExpired, 0, 0)
			t.pause(t.r.Float64())
		}
	}},
}

// telling is a story under way.
type telling struct {
	w       *walk
	ctx     context.Context
	r       *rand.Rand
	group   string
	pattern string
	*dictionaries
}

func (t *telling) graces(n float64) time.Duration { return time.Duration(n * float64(t.w.c.grace)) }

func (t *telling) pause(graces float64) { sleep(t.ctx, t.graces(graces)) }

func (t *telling) plan(line string, next, rate int) toolPlan {
	return toolPlan{name: "story", args: t.w.fillWith(t.dictionaries, line, t.group, t.pattern, next, rate), chaos: "none"}
}

// run runs a tool, with the dictionary that comes next places after the story's.
func (t *telling) run(line string, next, rate int) {
	if t.ctx.Err() != nil {
		return
	}
	if line == tellActivate {
		t.w.runTool(t.ctx, t.plan(tellPublish, next, rate))
	}
	t.w.runTool(t.ctx, t.plan(line, next, rate))
}

// lasting returns the rate at which a walk over all keys takes this number of grace periods.
func (t *telling) lasting(graces float64) int {
	t.w.model.mu.Lock()
	defer t.w.model.mu.Unlock()
	return max(20, int(float64(len(t.w.model.keys))/t.graces(graces).Seconds()))
}

// begin runs a tool, which is stopped for a time if that is not 0. It returns when the tool has
// begun; the function that it returns waits.
func (t *telling) begin(line string, next, rate int, after, stopped time.Duration) (wait func()) {
	p := t.plan(line, next, rate)
	if stopped > 0 {
		p.chaos, p.after, p.stopped = "stop", after, stopped
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.w.runTool(t.ctx, p)
	}()
	sleep(t.ctx, after+200*time.Millisecond)
	return func() { <-done }
}

// moveOn activates two other dictionaries, so that the story's is neither the current nor the
// previous one.
func (t *telling) moveOn() {
	t.run(tellActivate, 1, 0)
	t.pause(0.3 * t.r.Float64())
	t.run(tellActivate, 2, 0)
}

// collect waits until a dictionary that was left can be collected, and does so.
func (t *telling) collect() {
	t.pause(6.2)
	t.run(tellCollect, 0, 0)
}

// backUp takes a value out of the servers. The function that it returns puts it back as it was.
func (t *telling) backUp(key string) (putBack func()) {
	c, ctx := t.w.servers.client, context.WithoutCancel(t.ctx)
	value, err := c.Dump(ctx, key).Result()
	end := c.PExpireTime(ctx, key)
	if err != nil || end.Err() != nil {
		return func() {}
	}
	args := []any{"RESTORE", key, max(0, end.Val().Milliseconds()), value, "REPLACE", "ABSTTL"}
	deleted := c.Del(ctx, key)
	t.w.event("backup of %s: %v", key, deleted.Err())
	return func() {
		for range 200 { // a server may stand still, or be full
			if err = c.Do(ctx, args...).Err(); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.w.event("%s is back: %v", key, err)
	}
}

// storyLoop tells one story after another until the context ends.
func (w *walk) storyLoop(ctx context.Context, r *rand.Rand) {
	var possible []story
	for _, s := range stories {
		if w.concerns(s.on) {
			possible = append(possible, s)
		}
	}
	for n := 1; ctx.Err() == nil; n++ {
		s := possible[r.IntN(len(possible))]
		d, err := newDictionaries(w.folder, r.Int64N(1<<40))
		if err != nil {
			w.violate("", "campaign", err.Error())
			return
		}
		// A group and dictionaries of its own: nothing else refers to them, or publishes them
		// again.
		t := &telling{w: w, ctx: ctx, r: rand.New(rand.NewPCG(r.Uint64(), 4)), group: fmt.Sprintf("%s%d-%d", groupStory, w.counted("rests"), n), dictionaries: d}
		t.pattern = "y:*"
		w.event("story %s: %s of %s, dictionaries %v", s.name, t.pattern, t.group, d.ids)
		w.count("story "+s.name, 1)
		s.tell(t)
	}
}
