package dictops

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// Proof are the settings of a scan that proves that no value needs a dictionary.
type Proof struct {
	SkipTypes   []string // types whose keys hold no packed values
	AcceptMoves bool     // go on if commands that move values ran during the scan
	Empty       bool     // go on if the scan finds no packed value
}

// prove scans all values for references to dictionaries. An error says why it proves nothing.
func (p Proof) prove(
	ctx context.Context, r *registry.Registry, ids map[frame.DictionaryID]bool,
) (*keyspace.References, error) {
	if err := allScanned(ctx, r); err != nil {
		return nil, err
	}
	refs, err := references(ctx, r, p.options(ids))
	if err != nil {
		return nil, err
	}
	return refs, allScanned(ctx, r) // a program may have joined
}

func (p Proof) options(ids map[frame.DictionaryID]bool) keyspace.ReferenceOptions {
	return keyspace.ReferenceOptions{Known: ids, Proof: true, SkipTypes: p.SkipTypes, AcceptMoves: p.AcceptMoves}
}

// notEmpty is an error if there was no packed value, which is what the wrong server shows.
func (p Proof) notEmpty(refs *keyspace.References) error {
	if refs.Packed() > 0 || p.Empty {
		return nil
	}
	return fmt.Errorf("none of %d keys holds a packed value, so these may be the wrong servers: --redis says where the values are, --empty that there are none", refs.Keys)
}

// references scans all servers with values, and shows its progress.
func references(
	ctx context.Context, r *registry.Registry, o keyspace.ReferenceOptions,
) (*keyspace.References, error) {
	if err := r.WarnOfDenied(ctx, keyspace.ServerInfo, keyspace.MemoryUsage); err != nil {
		return nil, err
	}
	progress, stop := cli.ShowProgress(r.Err)
	defer stop()
	var total int64
	var clients []redis.UniversalClient
	for _, s := range r.Servers {
		clients = append(clients, s.Client)
		n, err := keyspace.Count(ctx, s.Client)
		if err != nil {
			return nil, err
		}
		total += n
	}
	o.Pace = r.Pace
	if progress != nil {
		o.Progress = func(keys int64) {
			progress(int(keys), int(max(total, keys, 1)), fmt.Sprintf("%d keys seen", keys))
		}
	}
	return keyspace.FindReferences(ctx, clients, o)
}

var errNotScanned = errors.New("not all data servers of the registry are scanned")

// allScanned is an error if the registry knows of a data server that is not among those of the
// command.
func allScanned(ctx context.Context, r *registry.Registry) error {
	known, err := r.Registry.Servers(ctx)
	if err != nil {
		return err
	}
	scanned, names := map[string]bool{}, map[string]bool{}
	for _, s := range r.Servers {
		names[withoutDatabase(s.Label())] = true
		if err := keyspace.EachDatabase(ctx, s.Client, func(c redis.UniversalClient) error {
			id, err := r.ServerID(ctx, r.Paced(c))
			scanned[id] = true
			return err
		}); err != nil {
			return err
		}
	}
	for _, s := range known {
		forget, seen := printable.Option("--forget", s.ID), s.Seen.Format(time.RFC3339)
		switch {
		case scanned[s.ID]:
		case names[withoutDatabase(s.Name)]:
			return fmt.Errorf("%w: %s has another id than at %s, so it was emptied or replaced. If its old values are gone for good: bale dict servers %s", errNotScanned, s.Name, seen, forget)
		default:
			return fmt.Errorf("%w: programs keep values in %s, which was last seen at %s: give its URL with --redis, too. If it is gone for good: bale dict servers %s",
				errNotScanned, cmp.Or(s.Name, "a server without a name"), seen, forget)
		}
	}
	return nil
}

// withoutDatabase is the URL of a server, whose databases are all scanned, or a label as it is.
func withoutDatabase(name string) string {
	if scheme, rest, ok := strings.Cut(name, "://"); ok {
		rest, _, _ = strings.Cut(rest, "/")
		return scheme + "://" + rest
	}
	return name
}

// Removal is what a command did with dictionaries that may go.
type Removal struct {
	groups int   // of the registry
	keys   int64 // that were looked at; negative for none
	all    []removed
	kept   []string // why the first dictionaries may not go
	more   int      // that may not go either
}

// mostKept is how many dictionaries that may not go are named.
const mostKept = 10

// keep adds the dictionaries of a group that may not go.
func (l *Removal) keep(st *dict.State, may []dict.Entry, grace time.Duration) {
	for _, e := range st.Dictionaries {
		if slices.ContainsFunc(may, func(m dict.Entry) bool { return m.ID == e.ID }) {
			continue
		}
		if len(l.kept) == mostKept {
			l.more++
			continue
		}
		last := slices.MaxFunc([]time.Time{e.Published, e.Retired, e.Used}, time.Time.Compare)
		why := fmt.Sprintf("it was used less than six grace periods ago: try again after %s",
			last.Add(removeGraces*grace).Format(time.RFC3339))
		switch {
		case e.ID == st.Current:
			why = "the group is written with it"
		case e.ID == st.Previous:
			why = "bale dict activate previous goes back to it, until another one is the previous one"
		case e.Activated.IsZero():
			why = "it was never activated; bale dict remove takes it back"
		}
		l.kept = append(l.kept, fmt.Sprintf("%v of %s stays: %s", e.ID, st.Group, why))
	}
}

// removeGraces are the grace periods after its last use within which dict.Registry.Removable
// refuses a dictionary.
const removeGraces = 6

// removed is a dictionary that may go.
type removed struct {
	ID     frame.DictionaryID `json:"id"`
	Group  string             `json:"group,omitempty"` // empty for none
	Fate   fate               `json:"fate"`
	Values int64              `json:"values,omitempty"` // that refer to it
	Keeper string             `json:"keeper,omitempty"` // a group that has it still
	Until  time.Time          `json:"until,omitzero"`   // in quarantine; zero if it is not there any more
}

// fate is what became of a dictionary.
type fate int

const (
	unknown  fate = iota // after an error
	needed               // values refer to it
	idle                 // nothing needs it, and nothing was changed
	busy                 // it was used during the scan
	out                  // removed
	unlisted             // from the group; another one has it
	gone                 // already
)

// WriteText writes a line for each dictionary.
func (l *Removal) WriteText(w page.Sheet) {
	switch {
	case len(l.all) == 0 && l.groups == 0:
		w.Lines("The registry is empty.")
	case len(l.all) == 0:
		w.Lines("Nothing to remove:")
		w.Lines(l.kept...)
		if l.more > 0 {
			w.Lines(fmt.Sprintf("and %d more stay", l.more))
		}
	}
	why, idles := "without a look at the values", 0
	if l.keys >= 0 {
		why = fmt.Sprintf("no value of %d keys refers to it", l.keys)
	}
	for _, d := range l.all {
		group := cmp.Or(d.Group, "no group")
		switch d.Fate {
		case needed:
			w.Lines(fmt.Sprintf("%v of %s stays: %d values refer to it", d.ID, group, d.Values))
		case idle:
			idles++
			w.Lines(fmt.Sprintf("%v of %s would be removed: %s", d.ID, group, why))
		case busy:
			w.Lines(fmt.Sprintf("%v of %s stays: it was used during the scan", d.ID, group))
		case out:
			quarantine := ""
			if !d.Until.IsZero() {
				quarantine = fmt.Sprintf("; quarantined %s, comes back by itself when a reader asks for it",
					registry.EndText(d.Until))
			}
			w.Lines(fmt.Sprintf("%v of %s is removed: %s%s", d.ID, group, why, quarantine))
		case unlisted:
			if d.Group == "" {
				w.Lines(fmt.Sprintf("%v of %s stays: %s has it", d.ID, group, d.Keeper))
			} else {
				w.Lines(fmt.Sprintf("%v is out of %s; its bytes stay: %s has it", d.ID, group, d.Keeper))
			}
		case gone:
			w.Lines(fmt.Sprintf("%v of %s was gone already", d.ID, group))
		}
	}
	if idles > 0 {
		w.Lines("Nothing was changed: --apply removes.")
	}
}

// settle finds out what became of a dictionary that was taken out of its group.
func (d *removed) settle(ctx context.Context, r *registry.Registry, quarantined bool) (err error) {
	if quarantined {
		d.Fate = out
		d.Until, err = r.QuarantinedUntil(ctx, d.ID)
		return err
	}
	if d.Keeper, err = keeper(ctx, r, d.ID, ""); err != nil {
		return err
	}
	if d.Fate = unlisted; d.Keeper == "" {
		d.Fate = gone
	}
	return nil
}

// keeper is a group that has a dictionary, other than the given one; empty for none. It is
// ErrUnread if there is none, and a group that could not be read may have it.
func keeper(
	ctx context.Context, r *registry.Registry, id frame.DictionaryID, but string,
) (group string, err error) {
	states := registry.States{Registry: r}
	err = states.All(ctx, func(st *dict.State) error {
		if group == "" && st.Group != but && st.Find(id) != nil {
			group = st.Group
		}
		return nil
	})
	if err == nil && group == "" {
		err = states.Whole()
	}
	return group, err
}

// Remove takes a dictionary back that no value refers to.
func Remove(ctx context.Context, r *registry.Registry, o Options) (*Removal, error) {
	st, err := r.Group(ctx, o.Group)
	if err != nil {
		return nil, err
	}
	e := st.Find(o.ID)
	switch {
	case e == nil:
		return nil, fmt.Errorf("%s has no dictionary %v: bale dict list shows what it has", o.Group, o.ID)
	case o.ID == st.Current:
		return nil, fmt.Errorf("%v is what %s is written with: activate another one, or none, first",
			o.ID, o.Group)
	case o.ID == st.Previous:
		return nil, fmt.Errorf("%v is what bale dict activate previous goes back to in %s: it stays until it is neither the current nor the previous one", o.ID, o.Group)
	}
	if err := keyspace.TakesWrites(ctx, r.Keys); err != nil { // before the scan
		return nil, err
	}
	l := &Removal{keys: -1, all: []removed{{ID: o.ID, Group: o.Group}}}
	if !o.Force {
		if _, err := r.Removable(ctx, st, o.ID); err != nil {
			return nil, err
		}
	}
	other, err := keeper(ctx, r, o.ID, o.Group)
	if err == nil && other == "" && !o.Force {
		l.keys, err = o.Proof.unused(ctx, r, e)
	}
	if err != nil {
		return nil, err
	}
	quarantined := false
	if other == "" || o.Force {
		quarantined, err = r.Remove(ctx, o.Group, *e, o.Force)
	} else { // nobody has looked at the values
		err = r.Unlist(ctx, o.Group, *e)
	}
	if err != nil {
		return nil, err
	}
	return l, l.all[0].settle(ctx, r, quarantined)
}

// unused is an error if a value may refer to a dictionary; else it returns the number of keys that
// were looked at.
func (p Proof) unused(
	ctx context.Context, r *registry.Registry, e *dict.Entry,
) (keys int64, err error) {
	refs, err := p.prove(ctx, r, map[frame.DictionaryID]bool{e.ID: true})
	if err != nil {
		return 0, err
	}
	if ref := refs.ByID[e.ID]; ref != nil {
		return 0, fmt.Errorf("%v stays: %d values refer to it, and could not be read without it; --force removes it all the same", e.ID, ref.Values)
	}
	if e.Uses > 0 || !e.Activated.IsZero() {
		err = p.notEmpty(refs)
	}
	return refs.Keys, err
}

// candidate is a dictionary that goes unless a value refers to it.
type candidate struct {
	Group string     `json:"group,omitempty"` // empty for one that no group has
	Seen  dict.Entry `json:"seen"`            // as it was before the scan
}

// mostOrphans bounds the dictionaries of no group that a gc removes, and thus its memory.
const mostOrphans = 10_000

// candidates are the dictionaries that may go. The others are kept by l, with the number of groups.
func candidates(ctx context.Context, r *registry.Registry, l *Removal) (all []candidate, err error) {
	grace, err := r.Registry.Grace(ctx)
	if err != nil {
		return nil, err
	}
	listed, known := map[string]bool{}, map[frame.DictionaryID]bool{}
	states := registry.States{Registry: r}
	if err := states.All(ctx, func(st *dict.State) error {
		listed[st.Group] = true
		for _, e := range st.Dictionaries {
			known[e.ID] = true
		}
		entries, err := r.Collectable(ctx, st)
		l.keep(st, entries, grace)
		for _, e := range entries {
			e.Info = dict.Info{}
			all = append(all, candidate{st.Group, e})
		}
		return err
	}); err != nil {
		return nil, err
	}
	if err := states.Whole(); err != nil {
		return nil, err
	}
	l.groups = len(listed)
	orphans := 0
	err = walk(ctx, r, func(kind, name string) error {
		id, err := frame.ParseDictionaryID(name)
		switch {
		case kind == "group" && !listed[name]: // it would lose its dictionaries
			return fmt.Errorf("%q is a group of the registry that is not on its list of groups, which was lost in part: nothing is removed. A program that has the group open puts it back within its Poll; so does publishing one of its dictionaries again. If no program has it, delete key %q", name, r.GroupKey(name))
		case kind != "data", err != nil, id == 0, known[id], orphans > mostOrphans:
			return nil
		}
		if orphans++; orphans > mostOrphans {
			r.Notef("more than %d dictionaries are in no group: gc goes on with the others when it runs again", mostOrphans)
			return nil
		}
		known[id] = true
		all = append(all, candidate{"", dict.Entry{ID: id}})
		return nil
	})
	return all, err
}

// GC removes the dictionaries that no value refers to. Without Apply it only lists them.
func GC(ctx context.Context, r *registry.Registry, o Options) (*Removal, error) {
	if o.Apply {
		if err := keyspace.TakesWrites(ctx, r.Keys); err != nil { // a scan may find nothing to write
			return nil, err
		}
	}
	r.WarnOfEviction(ctx)
	if o.Run.Name != "" {
		return gcShared(ctx, r, o)
	}
	l := &Removal{}
	all, err := candidates(ctx, r, l)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return l, nil
	}
	refs, err := o.Proof.prove(ctx, r, idsOf(all))
	if err != nil {
		return nil, err
	}
	return l.known(o.collect(ctx, r, all, refs, l))
}

// known is what came of a gc, nothing if an error came before the first dictionary.
func (l *Removal) known(err error) (*Removal, error) {
	if err != nil && len(l.all) == 0 {
		return nil, err
	}
	return l, err
}

func idsOf(all []candidate) map[frame.DictionaryID]bool {
	ids := map[frame.DictionaryID]bool{}
	for _, c := range all {
		ids[c.Seen.ID] = true
	}
	return ids
}

// collect removes the candidates that no value refers to, with Apply, and says what became of all.
func (o *Options) collect(
	ctx context.Context, r *registry.Registry, all []candidate, refs *keyspace.References, l *Removal,
) error {
	if err := o.Proof.notEmpty(refs); err != nil && o.Apply {
		return err
	} else if err != nil {
		r.Notef("WARNING: %v", err)
	}
	l.keys = refs.Keys
	for _, c := range all {
		var err error
		d := removed{ID: c.Seen.ID, Group: c.Group}
		switch ref := refs.ByID[d.ID]; {
		case ref != nil:
			d.Fate, d.Values = needed, ref.Values
		case o.Apply:
			err = c.remove(ctx, r, &d)
		default:
			d.Fate = idle
		}
		if l.all = append(l.all, d); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a dictionary unless it was used since.
func (c *candidate) remove(ctx context.Context, r *registry.Registry, d *removed) error {
	quarantined, err := false, error(nil)
	if c.Group == "" {
		quarantined, err = r.RemoveOrphan(ctx, d.ID)
	} else {
		quarantined, err = r.Remove(ctx, c.Group, c.Seen, false)
	}
	switch {
	case errors.Is(err, dict.ErrConflict), errors.Is(err, dict.ErrInUse):
		d.Fate = busy
		return nil
	case err != nil && !errors.Is(err, dict.ErrNotInGroup): // another gc has removed it
		return err
	}
	return d.settle(ctx, r, quarantined)
}

// inventory looks at all that the registry has, and changes nothing. The group, if one is given,
// must be there.
func inventory(
	ctx context.Context, r *registry.Registry, group string,
) (in Inventory, err error) {
	in = Inventory{Prefix: r.Prefix, Sound: map[frame.DictionaryID]bool{},
		Quarantined: map[frame.DictionaryID]time.Time{}, Auto: map[string]*Progress{}}
	names, err := r.Groups(ctx)
	listed := !registry.Foreign(err)
	if err != nil && listed {
		return in, err
	}
	if !listed { // the keys below name the groups, too
		in.Unreadable = append(in.Unreadable, UnreadableGroup{Cause: causeOf(ctx, r, r.Prefix+"groups", err)})
	}
	states, looked := registry.States{Registry: r}, map[string]bool{}
	state := func(name string) error {
		if looked[name] || len(looked) > mostGroups {
			return nil
		}
		if looked[name] = true; len(looked) > mostGroups {
			in.Unreadable = append(in.Unreadable, UnreadableGroup{
				Cause: fmt.Sprintf("more than %d keys look like groups: the others are not read", mostGroups)})
			return nil
		}
		st, err := states.Read(ctx, name)
		if st == nil {
			return err
		}
		if group != "" && name != group { // only its ids are of interest
			for i, e := range st.Dictionaries {
				st.Dictionaries[i] = dict.Entry{ID: e.ID}
			}
		}
		in.Groups = append(in.Groups, st)
		return nil
	}
	foreign := 0
	progress := func(name string) error {
		if dict.CheckGroup(name) != nil || len(in.Auto)+foreign >= mostGroups {
			return nil
		}
		p, err := r.Progress(ctx, name)
		if registry.Foreign(err) {
			if foreign++; foreign <= mostForeign {
				r.Notef("warning: %s", cli.Message(err))
			}
			return nil
		}
		if p != nil { // not expired meanwhile
			in.Auto[name] = &Progress{p.Collected, p.Wanted, p.Training}
		}
		return err
	}
	if group != "" { // first: it must be there, on the list or not
		if err := progress(group); err != nil {
			return in, err
		}
		switch _, err := r.Group(ctx, group); {
		case err == nil:
			names = slices.Insert(names, 0, group)
		case in.Auto[group] == nil || registry.Foreign(err):
			return in, err
		}
	}
	for _, name := range names {
		if err := state(name); err != nil {
			return in, err
		}
	}
	err = walk(ctx, r, func(kind, name string) error {
		if kind == "group" && !listed {
			return state(printable.Name(name)) // whole, very many long ones are too much to keep
		}
		if kind == "auto" && group == "" {
			return progress(name)
		}
		id, err := frame.ParseDictionaryID(name)
		switch {
		case err != nil || id == 0:
			return nil
		case kind == "quarantine":
			until, err := r.QuarantinedUntil(ctx, id)
			if !until.IsZero() {
				in.Quarantined[id] = until
			}
			return err
		case kind != "data":
			return nil
		}
		values, err := r.Store.Read(ctx, r.DataKey(id))
		if err != nil || values[0] == nil { // gone meanwhile
			return err
		}
		d, err := frame.NewDictionary(values[0])
		in.Sound[id] = err == nil && d.ID() == id
		if !in.Sound[id] && isPacked(r, values[0]) {
			in.Packed = append(in.Packed, id)
		}
		return nil
	})
	for _, u := range states.Unread {
		in.Unreadable = append(in.Unreadable,
			UnreadableGroup{Name: u.Group, Cause: causeOf(ctx, r, r.GroupKey(u.Group), u.Err)})
	}
	return in, err
}

// isPacked reports a key of the registry that a migrate with another --prefix took for a value. It
// knows the default prefix always.
func isPacked(r *registry.Registry, stored []byte) bool {
	_, _, ok := frame.Parse(stored)
	return ok && r.Prefix != dict.DefaultPrefix
}

// causeOf is why a key of the registry cannot be read.
func causeOf(ctx context.Context, r *registry.Registry, key string, err error) string {
	if errors.Is(err, dict.ErrCorrupt) && isPacked(r, []byte(r.Keys.GetRange(ctx, key, 0, frame.MaxHeaderSize-1).Val())) {
		return unpackText(key)
	}
	return cli.Message(err)
}

// unpackText says how to unpack a key of the registry.
func unpackText(key string) string {
	return fmt.Sprintf("key %s is packed like a value: unpack it with bale migrate --revert %s, without --prefix",
		key, printable.Option("--match", key))
}

const (
	mostGroups  = 5000 // more than a registry lists: without the list, keys name the groups
	mostForeign = 10   // keys with no progress of Auto that are named
)

// namesRate is how many keys a walk to the registry's keys goes over for each one of --max-rate.
// The server compares their names alone: 50,000 a second by default, 7% of a core.
const namesRate = 5

// walk calls each for every key of the registry, by its kind and the name after it.
func walk(ctx context.Context, r *registry.Registry, each func(kind, name string) error) error {
	pace := r.Pace
	pace.Rate *= namesRate
	return keyspace.EachString(ctx, r.Keys, r.Prefix, pace, func(rest string) error {
		kind, name, _ := strings.Cut(rest, ":")
		return each(kind, name)
	})
}
