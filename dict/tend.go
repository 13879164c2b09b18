package dict

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"github.com/balekv/bale/frame"
)

// A Group tends its registry: it keeps dictionaries from being evicted, puts lost ones and lost
// states back, and fills the mirrors.

const (
	maxMerged = 64 // incarnations of a group, two for each loss
	maxLost   = 16 // dictionaries that one look at the registry asks for in vain; a forged state names thousands
)

// fetchAll loads the dictionaries that writers may need soon, and sees that the registry holds all
// of the group. Start is when the state was asked for. What is heard of is loaded later, if it may
// only be activated later.
func (g *Group) fetchAll(ctx context.Context, s *State, start time.Time, heard bool) error {
	var ids []frame.DictionaryID
	add := func(id frame.DictionaryID) {
		if id != 0 && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, id := range append([]frame.DictionaryID{s.Current, s.Previous}, pending(s)...) {
		add(id)
	}
	needed := len(ids)
	for _, e := range s.Dictionaries {
		add(e.ID)
	}
	if len(ids) == 0 {
		return nil
	}
	exists, err := g.touch(ctx, ids, needed)
	if err != nil {
		return fmt.Errorf("dict: group %q: %w", g.name, err)
	}
	if i := slices.Index(ids, g.writer.Load().key.id); i >= 0 && exists[i] {
		g.allow(start)
	}
	left, lost := 0, []frame.DictionaryID(nil)
	for i, id := range ids {
		if i >= needed && !exists[i] {
			left++
			if g.spare(id) == nil {
				lost = append(lost, id)
			}
		}
	}
	lost = chosen(lost)
	var failed, leftErr error
	for i, id := range ids {
		d := g.dictionary(id)
		if !exists[i] {
			d = g.spare(id)
		}
		switch {
		case i >= needed && (exists[i] || d == nil && !slices.Contains(lost, id)):
			continue
		case exists[i] && d == nil && heard && id != s.Current && id != s.Previous:
			g.later = true
			continue
		case exists[i]:
			_, err = g.load(ctx, readerKey{g.options.Setting.Algorithm, id}, nil)
		case d != nil:
			if err = g.restore(ctx, d, "memory"); err == nil && id == g.writer.Load().key.id {
				g.allow(start)
			}
		default:
			var from string
			if d, from, err = g.registry.fetch(ctx, id); err == nil {
				g.putBack(ctx, d, from)
				break
			}
			err = fmt.Errorf("dict: group %q: %w", g.name, err)
			if i < needed { // whoever has it puts it back, and the next poll finds it
				_ = g.registry.store.Notify(ctx, g.registry.channel(), wantMessage+id.String())
			}
		}
		if i >= needed {
			if leftErr = cmp.Or(leftErr, err); err == nil {
				left--
			}
			continue
		}
		if err != nil {
			failed = errors.Join(failed, err)
			if id == g.writer.Load().key.id && !exists[i] {
				g.write(g.plain) // the registry does not hold it, and nobody could read what is written with it
			}
		}
	}
	if leftErr != nil {
		leftErr = fmt.Errorf("%d, the first one: %w", left, leftErr)
	}
	g.report("dictionaries are not in the registry, and values that need them cannot be read", leftErr)
	return failed
}

// chosen takes at most maxLost dictionaries: the first one, so that reports stay the same, and
// random others, so that each has its turn.
func chosen(lost []frame.DictionaryID) []frame.DictionaryID {
	if len(lost) <= maxLost {
		return lost
	}
	lost = slices.Clone(lost)
	others := lost[1:]
	mathrand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	return lost[:maxLost]
}

// touch protects the group's keys in the registry from eviction, and reports which dictionaries are
// there. If the user may not touch, it reads the needed ones instead.
func (g *Group) touch(ctx context.Context, ids []frame.DictionaryID, needed int) ([]bool, error) {
	r := g.registry
	keys := make([]string, len(ids), len(ids)+3)
	for i, id := range ids {
		keys[i] = r.dataKey(id)
	}
	exists, err := r.store.Refresh(ctx, append(keys, r.groupKey(g.name), r.groupsKey(), r.settingsKey())...)
	if err == nil {
		return exists[:len(ids)], nil
	}
	values, again := r.store.Read(ctx, keys[:needed]...)
	if again != nil {
		return nil, err
	}
	g.report("dictionaries cannot be touched, so that Redis may evict them", err)
	exists = make([]bool, len(ids))
	for i := range ids {
		exists[i] = i >= needed || values[i] != nil
	}
	return exists, nil
}

// putBack puts a dictionary into the registry that was found elsewhere.
func (g *Group) putBack(ctx context.Context, d *Dictionary, from string) {
	if d == nil || from == "" {
		return
	}
	if err := g.restore(ctx, d, from); err != nil {
		g.log.Warn("a dictionary that the registry does not hold could not be put back", "id", d.ID(), "from", from, "err", err)
	}
}

// restore puts a dictionary into the registry that does not hold it.
func (g *Group) restore(ctx context.Context, d *Dictionary, from string) error {
	err := g.registry.put(ctx, d)
	if err == nil {
		g.isBack(d.ID(), from)
	}
	return err
}

// isBack logs and counts a dictionary that was put back.
func (g *Group) isBack(id frame.DictionaryID, from string) {
	g.log.Warn("the registry did not hold a dictionary: it is put back", "id", id, "from", from)
	g.restored.Add(1)
}

// provide restores a dictionary to the registry for a program that misses it, if it is in memory.
func (g *Group) provide(id frame.DictionaryID) {
	d := g.dictionary(id)
	if d == nil {
		return
	}
	ctx, cancel := context.WithTimeout(g.ctx, g.options.FetchTimeout)
	defer cancel()
	if there, err := g.registry.store.Refresh(ctx, g.registry.dataKey(id)); err == nil && there[0] {
		return
	}
	err := g.restore(ctx, d, "memory")
	g.report("a dictionary that others want could not be put back into the registry", err)
	if err == nil {
		g.look()
	}
}

// giveBack puts a state that the registry lost, and its dictionaries, back into it.
func (g *Group) giveBack(ctx context.Context, known *State) error {
	// Until the dictionaries are back, nobody could read what this program writes with them.
	g.write(g.plain)
	r := g.registry
	from := map[frame.DictionaryID]string{}
	lost, _ := r.missing(ctx, known.ids()) // without it nothing is counted
	err := r.giveBack(ctx, known, func(id frame.DictionaryID) (d *Dictionary) {
		if d, from[id] = g.dictionary(id), "memory"; d == nil && len(r.mirrors) > 0 {
			d, from[id], _ = r.fetch(ctx, id)
		}
		return d
	})
	left, unknown := r.missing(ctx, lost)
	for _, id := range lost {
		if unknown == nil && !slices.Contains(left, id) {
			g.isBack(id, from[id])
		}
	}
	return err
}

// giveBack writes the program's known state of a group back to a registry that lost it or a part of
// it. It keeps later publications and activations there. A dictionary that cannot be restored does
// not block the others; the error names it.
func (r *Registry) giveBack(ctx context.Context, known *State, held func(frame.DictionaryID) *Dictionary) error {
	var failed error
	there := map[frame.DictionaryID]bool{0: true}
	for _, e := range known.Dictionaries {
		if d := held(e.ID); d != nil {
			err := r.put(ctx, d)
			if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrCollision) {
				return err // no answer, as for the others
			}
			there[e.ID] = err == nil
			failed = errors.Join(failed, err)
		}
	}
	if err := r.addGroup(ctx, known.Group); err != nil {
		return err
	}
	return errors.Join(failed, r.change(ctx, known.Group, func(s *State) (bool, error) {
		if s.includes(known) {
			return false, nil // another program was faster, or knew more
		}
		s.merge(known, there[known.Current], r.time())
		return true, nil
	}))
}

// includes reports whether there is nothing in another state that this one does not know of.
func (s *State) includes(known *State) bool {
	if known == nil || known.Epoch == 0 {
		return true
	}
	epoch := s.Epoch
	if s.Incarnation != known.Incarnation {
		epoch = s.Merged[known.Incarnation]
	}
	return epoch >= known.Epoch
}

// include makes a state a new incarnation that includes itself and another one. In the old
// incarnation there may be lost changes, with the same epochs as those to come.
func (s *State) include(known *State) {
	merged := map[string]int64{}
	for _, other := range []*State{s, known} {
		for incarnation, epoch := range other.Merged {
			merged[incarnation] = max(merged[incarnation], epoch)
		}
		if other.Epoch > 0 {
			merged[other.Incarnation] = max(merged[other.Incarnation], other.Epoch)
		}
	}
	for len(merged) > maxMerged { // epochs rise with each incarnation
		oldest := ""
		for incarnation, epoch := range merged {
			if incarnation != known.Incarnation && (oldest == "" || epoch < merged[oldest]) {
				oldest = incarnation
			}
		}
		delete(merged, oldest)
	}
	s.Incarnation, s.Epoch, s.Merged = rand.Text(), max(s.Epoch, known.Epoch), merged
}

// merge adds what is known to a state that knows less. The later decision on what is the current
// dictionary holds, the known one only if it is usable. No entry becomes removable earlier by it.
func (s *State) merge(known *State, usable bool, now time.Time) {
	decided := usable && known.changed().After(s.changed())
	written := []frame.DictionaryID{s.Current, s.Previous, known.Current, known.Previous}
	all := slices.Clone(known.Dictionaries)
	for _, e := range s.Dictionaries {
		i := slices.IndexFunc(all, func(other Entry) bool { return other.ID == e.ID })
		if i < 0 {
			i = slices.IndexFunc(all, func(other Entry) bool { return other.Published.Before(e.Published) })
			if i < 0 {
				i = len(all)
			}
			all = slices.Insert(all, i, e)
			continue
		}
		other := e
		if !decided {
			all[i], other = e, all[i]
		}
		all[i].Uses = max(all[i].Uses, other.Uses)
		all[i].Used = later(all[i].Used, later(other.Used, other.Retired))
	}
	s.include(known)
	s.Dictionaries = all
	if decided {
		s.Current, s.Previous, s.Changed = known.Current, known.Previous, known.changed()
	}
	for i := range all {
		e := &all[i]
		if e.ID == s.Current {
			e.Retired = time.Time{}
		} else if !e.Activated.IsZero() && e.Retired.IsZero() {
			e.Retired = now
		}
		if e.ID != s.Current && e.ID != s.Previous && slices.Contains(written, e.ID) {
			e.used(now) // a writer that has not heard of it may still use it
		}
	}
}

// learn takes over the settings of the registry, or gives them back to it, and returns the grace
// period.
func (g *Group) learn(ctx context.Context, raw []byte) time.Duration {
	set, err := g.registry.parseSettings(raw)
	g.lock.Lock()
	known := g.settings
	g.lock.Unlock()
	if err == nil && !set.includes(known) {
		err = g.registry.changeSettings(ctx, func(s *settings) bool {
			set = s
			return s.merge(known, g.registry.time())
		})
	}
	g.report("settings of the registry could not be read, or put back", err)
	if err != nil { // what removers go by is not certain
		grace := time.Duration(defaultGrace)
		if known != nil {
			grace = min(grace, known.grace())
		}
		return grace
	}
	if set.Grace > 0 {
		g.lock.Lock()
		g.settings = set
		g.lock.Unlock()
	}
	return set.grace()
}

// tend does for the registry what no writer or reader waits for.
func (g *Group) tend(s *State) {
	r, o := g.registry, &g.options
	ctx, cancel := context.WithTimeout(g.ctx, max(o.FetchTimeout, o.Poll))
	defer cancel()
	g.report("the data server could not join the registry", g.join(ctx))

	g.lock.Lock()
	unproven := maps.Clone(g.unproven)
	g.lock.Unlock()
	if lost, err := r.missing(ctx, slices.Collect(maps.Keys(unproven))); err == nil {
		for _, id := range lost {
			g.putBack(ctx, g.spare(id), unproven[id])
		}
		g.lock.Lock()
		for id := range unproven {
			delete(g.unproven, id)
		}
		g.lock.Unlock()
	}
	if time.Since(g.checked) > seenFor {
		danger, err := r.Danger(ctx)
		g.report("the eviction policy of the registry's Redis could not be read", err)
		g.lock.Lock()
		if danger != "" && danger != g.danger {
			g.log.Warn("dictionaries are in danger", "why", danger)
		}
		g.danger = danger
		g.lock.Unlock()
		g.checked = time.Now()
	}
	for i := range r.mirrors {
		g.report(fmt.Sprintf("mirror %d of the registry is not up to date", i+1), g.mirror(ctx, i, s))
	}
}

// join makes the data server known to the registry, or its use.
func (g *Group) join(ctx context.Context) error {
	id, err := g.registry.ServerID(ctx, g.options.Data)
	if err != nil {
		return err
	}
	g.lock.Lock()
	known, set := g.server, g.settings
	g.lock.Unlock()
	if known != "" && known == id && set != nil {
		if i := slices.IndexFunc(set.Servers, func(s Server) bool { return s.ID == id }); i >= 0 && g.registry.now().Sub(set.Servers[i].Seen) < seenFor {
			return nil
		}
	}
	if id, err = g.registry.join(ctx, g.options.Data, g.options.DataName, known); err != nil {
		return err
	}
	g.lock.Lock()
	g.server = id
	g.lock.Unlock()
	return nil
}

// mirror gives a mirror what it lacks of the group's dictionaries, and keeps it from being evicted
// there.
func (g *Group) mirror(ctx context.Context, i int, s *State) error {
	m := g.registry.at(i)
	lost, failed := m.missing(ctx, s.ids())
	for _, id := range chosen(lost) {
		d, err := g.dictionary(id), error(nil)
		if d == nil {
			d, _, err = g.registry.fetch(ctx, id)
		}
		if err == nil {
			err = m.put(ctx, d)
		}
		failed = cmp.Or(failed, err)
	}
	return failed
}
