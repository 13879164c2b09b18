package dict

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/balekv/bale/frame"
)

// Names of what a registry keeps, in Redis and in files.
const (
	// DefaultPrefix is the default prefix of a registry's keys.
	DefaultPrefix = "bale:dict:"

	// Extension is that of a file with a dictionary.
	Extension = ".dict"

	// StateFile is the file with the JSON of a [State] beside dictionaries.
	StateFile = "group.json"
)

const (
	swapAttempts = 20 // of a change, while other writers come in between
	maxGroupName = 200
	maxEpoch     = 1 << 53 // a change each millisecond for 285,000 years
)

// RegistryOptions are the settings of a [Registry]; the zero value is useful.
type RegistryOptions struct {
	// Prefix is the prefix of all keys. Defaults to "bale:dict:". Programs that share dictionaries
	// use the same one. On a cluster the keys spread over all nodes.
	Prefix string

	// Grace is the grace period that this program needs: long enough for every reader to poll once.
	// A published dictionary may be activated after one. A writer without an answer of the registry
	// stops using its dictionary after five. An unused dictionary may be removed after six. The
	// registry keeps the longest period that a program declared, and all programs use that one: see
	// [Registry.Grace]. At most 30 days. Defaults to 0: this program declares none, and a registry
	// without one gets a minute. All clocks must agree to less than one grace period.
	Grace time.Duration

	// Quarantine is how long the bytes of a removed dictionary can still be fetched, at least six
	// grace periods. Defaults to 30 days.
	Quarantine time.Duration

	// Mirrors are further registries that hold copies of the dictionaries. Publish writes to all of
	// them. A dictionary that the registry does not have is fetched from the first mirror that has
	// it, and put back into the registry. Groups and settings are in the registry alone.
	Mirrors []Store
}

// Registry keeps the dictionaries of a fleet, by groups, in Redis:
//
//	<prefix>groups            the names of all groups (JSON)
//	<prefix>group:<name>      the state of a group (JSON, see [State])
//	<prefix>data:<id>         the bytes of a dictionary
//	<prefix>quarantine:<id>   the bytes of a removed dictionary, with a TTL
//	<prefix>settings          the grace period and the data servers (JSON)
//	<prefix>lease:<name>      while a program trains for a group
//	<prefix>auto:<name>       how far [Auto] is (JSON, see [Registry.Progress]), with a TTL
//	<prefix>server            the id of a data server, in that Redis
//
// A dictionary is immutable, so readers may cache it without an expiry. The state of a group
// changes by compare-and-swap. A Registry is safe for concurrent use. [Registry.Open] follows a
// group in a running program.
//
// A group is a set of keys with similar values. A bale.Packer with a [Group] packs with the current
// dictionary and reads with all dictionaries that the group ever had:
//
//	registry, err := dict.NewRegistry(store, dict.RegistryOptions{})
//	group, err := registry.Open(ctx, "user:profile", dict.GroupOptions{Auto: &dict.Auto{}})
//	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: group})
//
// A dictionary must outlive the values that need it. So a program writes with a dictionary only if
// the registry has answered within the last five grace periods. A tool that writes calls
// [Registry.Use]. A remover waits for six grace periods, scans all values, and calls
// [Registry.Remove], which fails if anything has happened since. Removed dictionaries stay in
// quarantine, where readers still find them.
//
// A dictionary consists of pieces of its samples, and anyone who can read the registry can read
// them. [TrainOptions].Exclude keeps the values of fields out of it.
type Registry struct {
	store      Store
	mirrors    []Store
	prefix     string
	declared   time.Duration // the grace period, 0 for none
	quarantine time.Duration
	now        func() time.Time // for tests
}

// NewRegistry makes a Registry. An option out of range is [ErrInvalid].
func NewRegistry(store Store, o RegistryOptions) (*Registry, error) {
	r := &Registry{store: store, mirrors: o.Mirrors, prefix: o.Prefix, declared: o.Grace, quarantine: o.Quarantine, now: time.Now}
	if r.prefix == "" {
		r.prefix = DefaultPrefix
	}
	if r.quarantine == 0 {
		r.quarantine = defaultQuarantine
	}
	switch {
	case store == nil || slices.Contains(o.Mirrors, nil):
		return nil, fmt.Errorf("dict: %w: no Store", ErrInvalid)
	case o.Grace < 0 || o.Grace > maxGrace:
		return nil, fmt.Errorf("dict: %w: Grace is %v, must be from 0 to %v", ErrInvalid, o.Grace, maxGrace)
	case o.Quarantine < 0:
		return nil, fmt.Errorf("dict: %w: Quarantine is %v, must not be negative", ErrInvalid, o.Quarantine)
	}
	return r, nil
}

// Info describes the training of a dictionary.
type Info struct {
	Setting      string  `json:"setting,omitempty"`       // that it was measured with: "zstd:3"
	Builder      string  `json:"builder,omitempty"`       // who made it
	Samples      int     `json:"samples,omitempty"`       // values it was trained on
	RatioWithout float64 `json:"ratio_without,omitempty"` // on held-out values, header included
	Ratio        float64 `json:"ratio,omitempty"`         // the same, with the dictionary
	Exclude      string  `json:"exclude,omitempty"`       // the fields whose contents were left out, escaped as in URLs, with spaces between
	RatioWhole   float64 `json:"ratio_whole,omitempty"`   // Ratio if they had not been
	Auto         bool    `json:"auto,omitempty"`          // trained by [Auto], which will activate it
}

// excluded is what [Info] keeps of the names of fields. A comma in it would count as one of JSON's.
func excluded(fields []string) string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = url.PathEscape(f)
	}
	return strings.Join(names, " ")
}

// Info is what a registry keeps of a training.
func (t *Training) Info() Info {
	return Info{
		Setting: t.Setting.String(), Builder: strings.TrimSpace(t.Winner.Builder + " " + t.Winner.Params),
		Samples: t.Samples, RatioWithout: t.Without.Ratio(), Ratio: t.With.Ratio(),
		Exclude: excluded(t.Exclude), RatioWhole: t.Whole.Ratio(),
	}
}

// Entry is a dictionary of a group. One that [Registry.Restore] put there was published, activated
// and retired at the same time.
type Entry struct {
	ID        frame.DictionaryID `json:"id"`
	Size      int                `json:"size"`
	Published time.Time          `json:"published"`
	Activated time.Time          `json:"activated,omitzero"` // when it last became the current one; zero for never
	Retired   time.Time          `json:"retired,omitzero"`   // when it last ceased to be the current one
	Used      time.Time          `json:"used,omitzero"`      // when it was last used otherwise: by [Registry.Use], or as the previous one
	Uses      int64              `json:"uses,omitempty"`     // rises with every activation, retirement and use
	Info      Info               `json:"info,omitzero"`
}

// State is a group: its dictionaries, the newest first, and which of them are in use.
type State struct {
	Group string `json:"group"`
	// Epoch rises with every change.
	Epoch int64 `json:"epoch"`
	// Incarnation is random: a state that was made or mended after a loss has another one. A state
	// that was made before there was this field has none.
	Incarnation string `json:"incarnation,omitempty"`
	// Merged are the last incarnations that this one includes, each up to an epoch.
	Merged map[string]int64 `json:"merged,omitempty"`
	// Current is the dictionary that writers use, zero for none. Previous is the one before it.
	Current  frame.DictionaryID `json:"current"`
	Previous frame.DictionaryID `json:"previous"`
	// Changed is when Current last changed, later each time; zero for never, and in a state that
	// was written before there was this field.
	Changed      time.Time `json:"changed,omitzero"`
	Dictionaries []Entry   `json:"dictionaries"`
}

// changed is Changed. For an old state it derives the time from the entries.
func (s *State) changed() time.Time {
	at := s.Changed
	if at.IsZero() {
		for _, e := range s.Dictionaries {
			if !e.restored() {
				at = slices.MaxFunc([]time.Time{at, e.Activated, e.Retired}, time.Time.Compare)
			}
		}
	}
	return at
}

// Find returns the entry of a dictionary, nil when it is not in the group. The entry is part of the
// State.
func (s *State) Find(id frame.DictionaryID) *Entry {
	for i := range s.Dictionaries {
		if s.Dictionaries[i].ID == id {
			return &s.Dictionaries[i]
		}
	}
	return nil
}

// Excluded are the fields whose contents were left out of the dictionary, nil for none, or if the
// registry does not know how it was trained. A nil Entry has none.
func (e *Entry) Excluded() []string {
	if e == nil || e.Info.Exclude == "" {
		return nil
	}
	fields := strings.Fields(e.Info.Exclude)
	for i, f := range fields {
		if name, err := url.PathUnescape(f); err == nil {
			fields[i] = name
		}
	}
	return fields
}

// MayContain returns those of fields that were not excluded when the dictionary was trained: all of
// them if the registry does not know how it was trained, or if Entry is nil.
func (e *Entry) MayContain(fields []string) []string {
	excluded := e.Excluded()
	return slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return slices.Contains(excluded, f) })
}

// Latest is the entry of the current dictionary, or of the previous one if there is none now. It is
// nil without both, and part of the State.
func (s *State) Latest() *Entry { return s.Find(cmp.Or(s.Current, s.Previous)) }

// Excluded are the fields whose contents should stay out of the group's next dictionary: those of
// Latest, and of dictionaries that are newer or were never current. Without Latest they are those
// of all. bale migrate and [Auto] leave them out.
func (s *State) Excluded() (fields []string) {
	latest := s.Latest()
	for i := range s.Dictionaries {
		e := &s.Dictionaries[i]
		if latest == nil || e.Activated.IsZero() || !e.Published.Before(latest.Published) {
			fields = append(fields, e.Excluded()...)
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// ids are those of all its dictionaries.
func (s *State) ids() []frame.DictionaryID {
	ids := make([]frame.DictionaryID, len(s.Dictionaries))
	for i, e := range s.Dictionaries {
		ids[i] = e.ID
	}
	return ids
}

// use makes a dictionary the current one, and the current one the previous.
func (s *State) use(id frame.DictionaryID, now time.Time) {
	if last := s.changed(); !now.After(last) { // by another clock
		now = last.Add(time.Millisecond)
	}
	if e := s.Find(s.Previous); e != nil {
		e.used(now) // a writer that could not load the current one may have used it until now
	}
	if e := s.Find(s.Current); e != nil {
		e.Retired = now
		e.Uses++
	}
	if e := s.Find(id); e != nil {
		e.Activated, e.Retired = now, time.Time{}
		e.Uses++
	}
	s.Previous, s.Current, s.Changed = s.Current, id, now
}

func (r *Registry) time() time.Time { return r.now().UTC().Truncate(time.Millisecond) }

// GroupKey is the key of a group's state; without a name it is the pattern of all such keys.
func (r *Registry) GroupKey(name string) string {
	if name == "" {
		name = "*"
	}
	return r.groupKey(name)
}

// DataKey is the key of a dictionary's bytes; with zero it is the pattern of all such keys.
func (r *Registry) DataKey(id frame.DictionaryID) string {
	if id == 0 {
		return r.prefix + "data:*"
	}
	return r.dataKey(id)
}

func (r *Registry) groupsKey() string           { return r.prefix + "groups" }
func (r *Registry) groupKey(name string) string { return r.prefix + "group:" + name }
func (r *Registry) leaseKey(name string) string { return r.prefix + "lease:" + name }
func (r *Registry) autoKey(name string) string  { return r.prefix + "auto:" + name }
func (r *Registry) settingsKey() string         { return r.prefix + "settings" }
func (r *Registry) serverKey() string           { return r.prefix + "server" }
func (r *Registry) channel() string             { return r.prefix + "changes" }

func (r *Registry) dataKey(id frame.DictionaryID) string { return r.prefix + "data:" + id.String() }
func (r *Registry) quarantineKey(id frame.DictionaryID) string {
	return r.prefix + "quarantine:" + id.String()
}

// CheckGroup returns [ErrInvalid] for a name that no group can have. A name has 1 to 200 bytes of
// UTF-8, of visible characters: no spaces, no control characters and no marks of direction.
func CheckGroup(name string) error {
	if name == "" || len(name) > maxGroupName || !utf8.ValidString(name) || strings.ContainsFunc(name, func(c rune) bool { return c == ' ' || !unicode.IsPrint(c) }) {
		return fmt.Errorf("dict: %w: group %.*q, must be 1 to %d bytes of UTF-8, of visible characters without spaces", ErrInvalid, maxGroupName, name, maxGroupName)
	}
	return nil
}

// Groups are the names of all groups, sorted.
func (r *Registry) Groups(ctx context.Context) ([]string, error) {
	names, _, err := r.groups(ctx)
	return names, err
}

func (r *Registry) groups(ctx context.Context) (names []string, raw []byte, err error) {
	values, err := r.store.Read(ctx, r.groupsKey())
	if err != nil {
		return nil, nil, fmt.Errorf("dict: groups: %w", err)
	}
	names, err = r.parseGroups(values[0])
	return names, values[0], err
}

func (r *Registry) parseGroups(raw []byte) (names []string, err error) {
	if raw == nil {
		return nil, nil
	}
	err = decode(raw, &names)
	if err == nil {
		err = checkGroups(names)
	}
	if err != nil {
		return nil, fmt.Errorf("dict: %w: key %q is no list of groups: %w; delete it, and programs that follow a group put it back, as publishing to one does", ErrCorrupt, r.groupsKey(), err)
	}
	return names, nil
}

// checkGroups reports a list that addGroup does not write.
func checkGroups(names []string) error {
	if len(names) > maxGroups {
		return fmt.Errorf("%d names, at most %d", len(names), maxGroups)
	}
	for i, name := range names {
		if err := CheckGroup(name); err != nil {
			return err
		}
		if i > 0 && name <= names[i-1] {
			return fmt.Errorf("name %q is not in order, or there twice", name)
		}
	}
	return nil
}

// addGroup puts a name on the list of groups, if it is not there.
func (r *Registry) addGroup(ctx context.Context, name string) error {
	return r.update(ctx, r.groupsKey(), "list of groups", func(raw []byte) ([]byte, error) {
		names, err := r.parseGroups(raw)
		at, found := slices.BinarySearch(names, name)
		if err != nil || found {
			return nil, err
		}
		names = slices.Insert(names, at, name)
		if err := checkGroups(names); err != nil {
			return nil, fmt.Errorf("dict: %w: list of groups with %q: %w", ErrInvalid, name, err)
		}
		return json.Marshal(names)
	})
}

// update changes a key by compare-and-swap, and retries until no other writer interferes. The
// change may run more than once, each time with the present value. It returns nil to leave the key
// unchanged.
func (r *Registry) update(ctx context.Context, key, name string, change func(raw []byte) ([]byte, error)) error {
	for range swapAttempts {
		values, err := r.store.Read(ctx, key)
		if err != nil {
			return fmt.Errorf("dict: %s: %w", name, err)
		}
		value, err := change(values[0])
		if err != nil || value == nil {
			return err
		}
		if err := fits(value); err != nil {
			return fmt.Errorf("dict: %w: %s with this change: %w", ErrInvalid, name, err)
		}
		if ok, err := swap(ctx, r.store, key, values[0], value, 0); err != nil {
			return fmt.Errorf("dict: %s: %w", name, err)
		} else if ok {
			return nil
		}
	}
	return fmt.Errorf("dict: %s: %w", name, ErrConflict)
}

// swap is Swap for a key of a registry: an empty one is a missing one, as for Read.
func swap(ctx context.Context, store Store, key string, old, value []byte, ttl time.Duration) (bool, error) {
	ok, err := store.Swap(ctx, key, old, value, ttl)
	if err == nil && !ok && old == nil {
		return store.Swap(ctx, key, []byte{}, value, ttl)
	}
	return ok, err
}

// Limits of the registry's own keys, except those with dictionaries. They allow thousands of
// dictionaries in a group, and stay far below the memory of the programs that read them.
const (
	maxDocument = 1 << 20  // bytes
	maxObjects  = 4 << 10  // in JSON; one of two bytes becomes some hundred in memory
	maxCommas   = 32 << 10 // also in texts; an entry of a state has at most 16, and a null in a list takes what an object does
	maxGroups   = 4 << 10
	maxText     = 1 << 10 // bytes of a text that is no name of a group
	maxExclude  = 8 << 10 // bytes of Info.Exclude
)

// fits returns an error for a document beyond the registry's limits.
func fits(raw []byte) error {
	objects, commas := bytes.Count(raw, []byte("{")), bytes.Count(raw, []byte(","))
	if len(raw) > maxDocument || objects > maxObjects || commas > maxCommas {
		return fmt.Errorf("%d bytes with %d objects and %d commas, at most %d with %d and %d; bale dict gc removes dictionaries that no value needs",
			len(raw), objects, commas, maxDocument, maxObjects, maxCommas)
	}
	return nil
}

// short returns an error for a text longer than bale writes.
func short(texts ...string) error {
	for _, text := range texts {
		if len(text) > maxText {
			return fmt.Errorf("a text of %d bytes, at most %d", len(text), maxText)
		}
	}
	return nil
}

// decode reads one of the registry's own keys.
func decode(raw []byte, v any) error {
	if err := fits(raw); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("%.*s", maxGroupName, err.Error()) // it may quote the document
	}
	return nil
}

// State returns the state of a group; one that does not exist has no dictionaries and epoch 0.
func (r *Registry) State(ctx context.Context, group string) (*State, error) {
	s, _, err := r.state(ctx, group)
	return s, err
}

func (r *Registry) state(ctx context.Context, group string) (s *State, raw []byte, err error) {
	if err := CheckGroup(group); err != nil {
		return nil, nil, err
	}
	values, err := r.store.Read(ctx, r.groupKey(group))
	if err != nil {
		return nil, nil, fmt.Errorf("dict: group %q: %w", group, err)
	}
	s, err = r.parseState(group, values[0])
	return s, values[0], err
}

func (r *Registry) parseState(group string, raw []byte) (*State, error) {
	s := &State{Group: group}
	if raw == nil {
		return s, nil
	}
	err := decode(raw, s)
	switch {
	case err == nil && s.Group != group:
		err = fmt.Errorf("it says %.*q", maxGroupName, s.Group)
	case err == nil:
		err = s.check()
	}
	if err != nil {
		return nil, fmt.Errorf("dict: %w: key %q is not the state of group %q: %w; delete it, and programs that follow the group put it back", ErrCorrupt, r.groupKey(group), group, err)
	}
	if s.Epoch < 0 || s.Epoch > maxEpoch {
		return nil, fmt.Errorf("dict: %w: key %q says epoch %d, which no group comes to; delete it, and programs that follow the group put it back", ErrCorrupt, r.groupKey(group), s.Epoch)
	}
	return s, nil
}

// check reports a state that bale does not write.
func (s *State) check() error {
	if err := short(s.Incarnation); err != nil {
		return err
	}
	if len(s.Merged) > maxMerged {
		return fmt.Errorf("%d merged incarnations, at most %d", len(s.Merged), maxMerged)
	}
	for incarnation := range s.Merged {
		if err := short(incarnation); err != nil {
			return err
		}
	}
	seen := map[frame.DictionaryID]bool{}
	for _, e := range s.Dictionaries {
		if e.ID == 0 || seen[e.ID] {
			return fmt.Errorf("dictionary %v is no dictionary, or there twice", e.ID)
		}
		seen[e.ID] = true
		if err := short(e.Info.Setting, e.Info.Builder); err != nil {
			return fmt.Errorf("dictionary %v: %w", e.ID, err)
		}
		if len(e.Info.Exclude) > maxExclude {
			return fmt.Errorf("dictionary %v: names of fields in %d bytes, at most %d", e.ID,
				len(e.Info.Exclude), maxExclude)
		}
	}
	return nil
}

// change applies a change to a group, as update does; if it returns false, nothing changes.
func (r *Registry) change(ctx context.Context, group string, change func(*State) (bool, error)) error {
	if err := CheckGroup(group); err != nil {
		return err
	}
	done := false
	err := r.update(ctx, r.groupKey(group), fmt.Sprintf("group %q", group), func(raw []byte) ([]byte, error) {
		done = false
		s, err := r.parseState(group, raw)
		if err != nil {
			return nil, err
		}
		if raw == nil {
			s.Incarnation = rand.Text()
		}
		if done, err = change(s); err != nil || !done {
			return nil, err
		}
		if s.Epoch++; s.Epoch > maxEpoch {
			return nil, fmt.Errorf("dict: %w: group %q is at its last epoch", ErrCorrupt, group)
		}
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("dict: %w: group %q with this change: %w", ErrInvalid, group, err)
		}
		return json.Marshal(s)
	})
	if err == nil && done {
		// A lost nudge costs one poll.
		_ = r.store.Notify(ctx, r.channel(), changedMessage+group)
	}
	return err
}

// Publish puts a dictionary into a group, for readers to fetch. Writers use it after Activate.
// Publishing it again, to any group, stores it only once and does not restart the grace period. For
// a retired dictionary it counts as a use. If a mirror fails, Publish returns an error, but the
// dictionary is published.
func (r *Registry) Publish(ctx context.Context, group string, d *Dictionary, info Info) error {
	return r.publish(ctx, group, d, info, func(*State, *Entry) error { return nil })
}

// Restore puts a dictionary into a group for the sake of values that need it. The dictionary counts
// as retired there: [Auto] neither activates it nor waits for a person to do so, and a garbage
// collector may remove it six grace periods later. Activate needs no grace period. If the group has
// the dictionary, Restore is Publish.
func (r *Registry) Restore(ctx context.Context, group string, d *Dictionary, info Info) error {
	return r.publish(ctx, group, d, info, func(_ *State, e *Entry) error {
		e.Activated, e.Retired = e.Published, e.Published
		return nil
	})
}

// publish is Publish unless the group's state is against it. Admit may change the new entry.
func (r *Registry) publish(
	ctx context.Context, group string, d *Dictionary, info Info, admit func(*State, *Entry) error,
) error {
	if err := CheckGroup(group); err != nil {
		return err
	}
	if d == nil {
		return fmt.Errorf("dict: %w: no dictionary to publish", ErrInvalid)
	}
	if _, err := r.State(ctx, group); err != nil {
		return err // a damaged group: nothing is written
	}
	if err := r.changeSettings(ctx, r.declare); err != nil {
		return err
	}
	// Write the bytes first, so that a group never names a missing dictionary. A list that names a
	// group which does not exist yet is harmless.
	if err := r.put(ctx, d); err != nil {
		return err
	}
	if err := r.addGroup(ctx, group); err != nil {
		return err
	}
	if err := r.change(ctx, group, func(s *State) (bool, error) {
		if e := s.Find(d.ID()); e != nil {
			again := !e.Retired.IsZero() && e.ID != s.Previous
			if again {
				e.used(r.time()) // a removal under way stops
			}
			return again, nil
		}
		e := Entry{ID: d.ID(), Size: len(d.Bytes()), Published: r.time(), Info: info}
		if err := admit(s, &e); err != nil {
			return false, err
		}
		s.Dictionaries = slices.Insert(s.Dictionaries, 0, e)
		return true, nil
	}); err != nil {
		return err
	}
	// A removal from another group may have deleted the bytes meanwhile.
	if err := r.put(ctx, d); err != nil {
		return err
	}
	return r.mirror(ctx, d)
}

// mirror stores the bytes of a dictionary in all mirrors.
func (r *Registry) mirror(ctx context.Context, d *Dictionary) error {
	var failed error
	for i := range r.mirrors {
		if err := r.at(i).put(ctx, d); err != nil {
			failed = errors.Join(failed, fmt.Errorf("mirror %d: %w", i+1, err))
		}
	}
	return failed
}

// at is the registry in mirror i.
func (r *Registry) at(i int) *Registry {
	m := *r
	m.store, m.mirrors = r.mirrors[i], nil
	return &m
}

// put stores the bytes of a dictionary.
func (r *Registry) put(ctx context.Context, d *Dictionary) error {
	key := r.dataKey(d.ID())
	for range swapAttempts {
		done, err := swap(ctx, r.store, key, nil, d.Bytes(), 0)
		if err != nil {
			return fmt.Errorf("dict: publish %v: %w", d.ID(), err)
		}
		if done { // or it was there
			return nil
		}
		values, err := r.store.Read(ctx, key)
		if err != nil {
			return fmt.Errorf("dict: publish %v: %w", d.ID(), err)
		}
		there := values[0]
		if there == nil || bytes.Equal(there, d.Bytes()) {
			continue
		}
		if other, err := frame.NewDictionary(there); err == nil && other.ID() == d.ID() {
			return fmt.Errorf("dict: publish %v: %w", d.ID(), ErrCollision)
		}
		return fmt.Errorf("dict: publish %v: %w: key %q holds other bytes; delete it and publish again", d.ID(), ErrCorrupt, key)
	}
	return fmt.Errorf("dict: publish %v: %w", d.ID(), ErrConflict)
}

// missing returns the dictionaries whose bytes the registry does not hold. It touches the others,
// so that Redis does not evict them.
func (r *Registry) missing(ctx context.Context, ids []frame.DictionaryID) (lost []frame.DictionaryID, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = r.dataKey(id)
	}
	there, err := r.store.Refresh(ctx, keys...)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		if !there[i] {
			lost = append(lost, id)
		}
	}
	return lost, nil
}

// Fetch returns a dictionary by its id. It takes a removed dictionary from quarantine, and a lost
// one from the first mirror that has it. It writes both back to the registry. The error is
// ErrUnknown if all answer that they lack the dictionary, and ErrCorrupt if the bytes in the
// registry do not match the id.
func (r *Registry) Fetch(ctx context.Context, id frame.DictionaryID) (*Dictionary, error) {
	d, from, err := r.fetch(ctx, id)
	if err == nil && from != "" {
		_ = r.put(ctx, d) // it is good all the same, and the next reader tries again
	}
	return d, err
}

// Look is Fetch without writing anything back.
func (r *Registry) Look(ctx context.Context, id frame.DictionaryID) (*Dictionary, error) {
	d, _, err := r.fetch(ctx, id)
	return d, err
}

// fetch is Fetch without writing anything back. It also returns the source: "" is the regular key.
func (r *Registry) fetch(ctx context.Context, id frame.DictionaryID) (d *Dictionary, from string, err error) {
	key, quarantined := r.dataKey(id), r.quarantineKey(id)
	own, cancel := partOf(ctx, len(r.mirrors))
	defer cancel()
	values, err := r.store.Read(own, key, quarantined)
	switch {
	case err != nil && !slices.ContainsFunc(values, func(b []byte) bool { return b != nil }): // one is enough
		err = fmt.Errorf("dict: fetch %v: %w", id, err)
	case values[0] != nil:
		if d, err = parse(id, key, values[0]); err == nil {
			return d, "", nil
		}
	case values[1] != nil:
		if d, err = parse(id, quarantined, values[1]); err == nil {
			return d, "quarantine", nil
		}
	default:
		err = fmt.Errorf("dict: fetch %v: %w", id, ErrUnknown)
	}
	for i := range r.mirrors {
		own, cancel := partOf(ctx, len(r.mirrors)-1-i)
		defer cancel()
		d, _, other := r.at(i).fetch(own, id)
		switch {
		case other == nil:
			return d, fmt.Sprintf("mirror %d", i+1), nil
		case errors.Is(err, ErrUnknown) && !errors.Is(other, ErrUnknown): // the mirror may hold it
			err = fmt.Errorf("dict: fetch %v: %w: mirror %d: %w", id, errMirror, i+1, other)
		}
	}
	return nil, "", err
}

// partOf returns half of the time if there are further sources: a hanging server must not use all
// of it.
func partOf(ctx context.Context, others int) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok && others > 0 {
		return context.WithTimeout(ctx, time.Until(end)/2)
	}
	return ctx, func() {}
}

// parse makes a dictionary of the bytes of a key, and checks that they match the id.
func parse(id frame.DictionaryID, key string, b []byte) (*Dictionary, error) {
	d, err := frame.NewDictionary(b)
	if err != nil {
		return nil, fmt.Errorf("dict: fetch %v: %w: key %q: %w", id, ErrCorrupt, key, err)
	}
	if d.ID() != id {
		return nil, fmt.Errorf("dict: fetch %v: %w: key %q holds the bytes of %v", id, ErrCorrupt, key, d.ID())
	}
	return d, nil
}

// usable returns an error if the registry lacks a dictionary, after an attempt to restore it from
// quarantine or a mirror.
func (r *Registry) usable(ctx context.Context, id frame.DictionaryID) error {
	if id == 0 {
		return nil
	}
	d, _, err := r.fetch(ctx, id)
	if err != nil {
		return err
	}
	return r.put(ctx, d)
}

// Activate makes a published dictionary the current one of its group. With zero, writers use no
// dictionary. During the grace period after publishing it is ErrGrace, unless forced. Readers
// without the dictionary then fetch it when they meet it.
func (r *Registry) Activate(ctx context.Context, group string, id frame.DictionaryID, force bool) error {
	return r.activate(ctx, group, id, force, func(*State) bool { return true })
}

// activate is Activate, but does nothing if the group's state forbids it.
func (r *Registry) activate(ctx context.Context, group string, id frame.DictionaryID, force bool, allowed func(*State) bool) error {
	if err := r.usable(ctx, id); err != nil { // what cannot be read must not be written with
		return err
	}
	grace, err := r.Grace(ctx)
	if err != nil {
		return err
	}
	return r.change(ctx, group, func(s *State) (bool, error) {
		if s.Current == id || !allowed(s) {
			return false, nil
		}
		if id != 0 {
			e := s.Find(id)
			if e == nil {
				return false, fmt.Errorf("dict: activate %v: %w %q", id, ErrNotInGroup, group)
			}
			if left := e.Published.Add(grace).Sub(r.now()); left > 0 && !force && e.Activated.IsZero() {
				return false, fmt.Errorf("dict: activate %v: %w: %v of %v left", id, ErrGrace, left.Round(time.Millisecond), grace)
			}
		}
		s.use(id, r.time())
		return true, nil
	})
}

// Rollback swaps the current and the previous dictionary. If the group had none before, writers use
// none.
func (r *Registry) Rollback(ctx context.Context, group string) error {
	before, err := r.State(ctx, group)
	if err != nil {
		return err
	}
	if err := r.usable(ctx, before.Previous); err != nil { // as in Activate
		return err
	}
	return r.change(ctx, group, func(s *State) (bool, error) {
		if s.Current == 0 && s.Previous == 0 {
			return false, fmt.Errorf("dict: rollback of group %q: %w: nothing was ever activated", group, ErrNotInGroup)
		}
		if s.Previous != before.Previous {
			return false, fmt.Errorf("dict: rollback of group %q: %w: the previous dictionary is %v, and was %v", group, ErrConflict, s.Previous, before.Previous)
		}
		s.use(before.Previous, r.time())
		return true, nil
	})
}

// Messages on the channel.
const (
	changedMessage = "changed " // and a group
	wantMessage    = "want "    // and an id: whoever has the dictionary puts it into the registry
)
