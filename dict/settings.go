package dict

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/balekv/bale/internal/adapters"
)

const (
	defaultGrace = time.Minute
	maxGrace     = 30 * 24 * time.Hour // so that some of them are no overflow
	seenFor      = time.Hour           // a program refreshes Server.Seen no more often
)

// settings belong to the registry, not to a program.
type settings struct {
	Incarnation string    `json:"incarnation,omitempty"` // random: other settings, made after a loss, have another
	Recreated   time.Time `json:"recreated,omitzero"`    // made after a loss, until somebody who knew the lost ones has added them

	Epoch   int64         `json:"epoch"`
	Grace   time.Duration `json:"grace_ns"`
	Before  time.Duration `json:"grace_before_ns,omitempty"` // which removers use for six of its periods after Changed
	Changed time.Time     `json:"grace_changed,omitzero"`
	Servers []Server      `json:"servers,omitempty"`
}

// Server is a Redis whose values need the dictionaries of a registry.
type Server struct {
	ID   string    `json:"id"`   // random, and kept in that Redis under <prefix>server
	Name string    `json:"name"` // a label for people
	Seen time.Time `json:"seen"` // when a program last said that it uses it, to the hour
}

// grace is the period in force.
func (s *settings) grace() time.Duration {
	if s.Grace == 0 {
		return defaultGrace
	}
	return s.Grace
}

// retention is how long an unused dictionary is kept.
func (s *settings) retention(now time.Time) time.Duration {
	keep := removeGraces * max(s.grace(), minGrace)
	if before := removeGraces * max(s.Before, minGrace); before > keep && now.Sub(s.Changed) <= before {
		return before
	}
	return keep
}

// set changes the grace period, and reports whether it was another one.
func (s *settings) set(grace time.Duration, now time.Time) bool {
	if s.Grace == grace {
		return false
	}
	if s.Grace > 0 {
		s.Before = s.retention(now) / removeGraces
	}
	s.Grace, s.Changed = grace, now
	return true
}

// includes reports whether there is nothing in other settings that these do not know of.
func (s *settings) includes(known *settings) bool {
	return known == nil || s.Incarnation == known.Incarnation && s.Epoch >= known.Epoch
}

// merge adds what is known to settings that may know less, and reports whether there was anything
// to add. No dictionary becomes removable earlier by it.
func (s *settings) merge(known *settings, now time.Time) bool {
	if s.includes(known) {
		return false
	}
	if s.Grace == 0 && len(s.Servers) == 0 {
		*s = *known
		s.Servers = slices.Clone(known.Servers)
		return true
	}
	changed := s.Epoch < known.Epoch
	s.Epoch = max(s.Epoch, known.Epoch)
	grace := max(s.Grace, known.Grace)
	if s.Incarnation == known.Incarnation && known.Changed.After(s.Changed) {
		grace = known.Grace // a fail-over lost the change
	}
	keep := max(s.retention(now), known.retention(now))
	if s.Grace != grace || s.retention(now) < keep {
		s.Grace, s.Before, s.Changed = grace, keep/removeGraces, now
		changed = true
	}
	if known.Recreated.IsZero() && !s.Recreated.IsZero() {
		s.Recreated = time.Time{}
		changed = true
	}
	for _, server := range known.Servers {
		if i := slices.IndexFunc(s.Servers, func(other Server) bool { return other.ID == server.ID }); i < 0 {
			s.Servers = append(s.Servers, server)
			changed = true
		} else if server.Seen.After(s.Servers[i].Seen) {
			s.Servers[i].Seen = server.Seen
			changed = true
		}
	}
	return changed
}

// declare raises the grace period to that of this program. It sets one in a registry that has none,
// so that all programs agree on it.
func (r *Registry) declare(s *settings) bool {
	if s.Grace == 0 && r.declared == 0 {
		return s.set(defaultGrace, r.time())
	}
	return s.set(max(s.Grace, r.declared), r.time())
}

func (r *Registry) parseSettings(raw []byte) (*settings, error) {
	s := &settings{}
	if raw == nil {
		return s, nil
	}
	err := decode(raw, s)
	if err == nil {
		err = s.check()
	}
	if err != nil {
		return nil, fmt.Errorf("dict: %w: key %q holds no settings of a registry; delete it, and programs that run put it back: %w", ErrCorrupt, r.settingsKey(), err)
	}
	return s, nil
}

// check reports settings that bale does not write.
func (s *settings) check() error {
	for _, grace := range []time.Duration{s.Grace, s.Before} {
		if grace < 0 || grace > maxGrace {
			return fmt.Errorf("grace period %v, must be from 0 to %v", grace, maxGrace)
		}
	}
	if s.Epoch < 0 || s.Epoch > maxEpoch {
		return fmt.Errorf("epoch %d, which no registry comes to", s.Epoch)
	}
	if err := short(s.Incarnation); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, server := range s.Servers {
		if err := short(server.ID, server.Name); err != nil {
			return fmt.Errorf("data server: %w", err)
		}
		if seen[server.ID] {
			return fmt.Errorf("data server %q is there twice", server.ID)
		}
		seen[server.ID] = true
	}
	return nil
}

func (r *Registry) settings(ctx context.Context) (*settings, error) {
	values, err := r.store.Read(ctx, r.settingsKey())
	if err != nil {
		return nil, fmt.Errorf("dict: settings: %w", err)
	}
	return r.parseSettings(values[0])
}

// changeSettings applies a change, as update does; returning false leaves everything as it is.
func (r *Registry) changeSettings(ctx context.Context, change func(*settings) bool) error {
	return r.update(ctx, r.settingsKey(), "settings", func(raw []byte) ([]byte, error) {
		s, err := r.parseSettings(raw)
		if err != nil {
			return nil, err
		}
		if raw == nil {
			_, list, err := r.groups(ctx)
			if list != nil {
				s.Recreated = r.time()
			} else if err != nil {
				return nil, err
			}
			s.Incarnation = rand.Text()
		}
		if !change(s) {
			return nil, nil
		}
		s.Epoch++
		if err := s.check(); err != nil {
			return nil, fmt.Errorf("dict: %w: settings with this change: %w", ErrInvalid, err)
		}
		return json.Marshal(s)
	})
}

// Grace returns the registry's grace period, or a minute if it has none. A longer period that this
// program declares wins.
func (r *Registry) Grace(ctx context.Context) (time.Duration, error) {
	s, err := r.settings(ctx)
	if err != nil {
		return 0, err
	}
	return max(s.grace(), r.declared), nil
}

// inForce are the settings that writers and removers go by. Nobody knows them if they are lost:
// ErrUnlisted.
func (r *Registry) inForce(ctx context.Context) (*settings, error) {
	s, err := r.settings(ctx)
	if err == nil && s.Grace == 0 {
		err = fmt.Errorf("dict: %w: its key %q is gone, and with it the grace period; a program that opens a group puts it back, and so does publishing to one", ErrUnlisted, r.settingsKey())
	}
	return s, err
}

// retention is how long a dictionary is kept after its last use.
func (r *Registry) retention(ctx context.Context) (time.Duration, error) {
	s, err := r.inForce(ctx)
	if err != nil {
		return 0, err
	}
	if !s.Recreated.IsZero() {
		return 0, fmt.Errorf("dict: %w: its key %q was lost and made anew at %v, and may lack data servers and a longer grace period; a program that ran before puts them back; else see that all data servers are listed, and set the grace period", ErrUnlisted, r.settingsKey(), s.Recreated)
	}
	return max(s.retention(r.now()), removeGraces*r.declared), nil
}

// SetGrace sets the registry's grace period, at most 30 days, also to a shorter one. Removers go by
// the longer one for six of the old periods. A program that declares a longer one sets that again
// when it opens a group. After a loss of the settings SetGrace also confirms that
// [Registry.Servers] is complete.
func (r *Registry) SetGrace(ctx context.Context, grace time.Duration) error {
	if grace <= 0 || grace > maxGrace {
		return fmt.Errorf("dict: %w: grace period %v, must be positive, and at most %v", ErrInvalid, grace, maxGrace)
	}
	return r.changeSettings(ctx, func(s *settings) bool {
		lost := !s.Recreated.IsZero()
		s.Recreated = time.Time{}
		return s.set(grace, r.time()) || lost
	})
}

// Servers returns the data servers of the registry, in the order in which they joined.
func (r *Registry) Servers(ctx context.Context) ([]Server, error) {
	s, err := r.settings(ctx)
	if err != nil {
		return nil, err
	}
	return s.Servers, nil
}

// ServerID returns the id of a data server, empty if it has never joined. Nil is the registry's own
// Redis. An id that bale does not write counts as its SHA-256.
func (r *Registry) ServerID(ctx context.Context, data Store) (string, error) {
	if data == nil {
		data = r.store
	}
	values, err := data.Read(ctx, r.serverKey())
	if err != nil {
		return "", fmt.Errorf("dict: data server: %w", err)
	}
	id := string(values[0])
	if short(id) != nil || !utf8.ValidString(id) { // the settings could not have it
		id = fmt.Sprintf("%x", sha256.Sum256(values[0]))
	}
	return id, nil
}

// Join notes that values in a data server need the dictionaries of the registry: nothing is removed
// then without a scan of that server. Nil is the registry's own Redis. The name is a label for
// people; it must not hold a password. A [Group] joins by itself, with GroupOptions.Data.
func (r *Registry) Join(ctx context.Context, data Store, name string) (id string, err error) {
	return r.join(ctx, data, name, "")
}

// join is Join, or with an id joining again: a data server without an id gets that one, and the
// grace period is not declared again.
func (r *Registry) join(ctx context.Context, data Store, name, id string) (string, error) {
	if data == nil {
		data = r.store
	}
	first := id == ""
	if first {
		id = rand.Text()
	}
	ok, err := swap(ctx, data, r.serverKey(), nil, []byte(id), 0)
	if err != nil {
		return "", fmt.Errorf("dict: data server %q: %w", name, err)
	}
	if !ok {
		if id, err = r.ServerID(ctx, data); err != nil || id == "" {
			return "", fmt.Errorf("dict: data server %q: %w", name, errOr(err, ErrConflict))
		}
	}
	return id, r.changeSettings(ctx, func(s *settings) bool {
		changed := first && r.declare(s)
		i := slices.IndexFunc(s.Servers, func(server Server) bool { return server.ID == id })
		if i < 0 {
			s.Servers = append(s.Servers, Server{ID: id, Name: name, Seen: r.time()})
			return true
		}
		server := &s.Servers[i]
		if r.now().Sub(server.Seen) < seenFor && (name == "" || server.Name == name) {
			return changed
		}
		server.Seen = later(server.Seen, r.time())
		if name != "" {
			server.Name = name
		}
		return true
	})
}

func errOr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// Forget takes a data server off the list: its values are gone, or need no dictionary. A program
// that still uses it joins again at its next poll.
func (r *Registry) Forget(ctx context.Context, id string) error {
	found := false
	err := r.changeSettings(ctx, func(s *settings) bool {
		n := len(s.Servers)
		s.Servers = slices.DeleteFunc(s.Servers, func(server Server) bool { return server.ID == id })
		found = len(s.Servers) < n
		return found
	})
	if err == nil && !found {
		return fmt.Errorf("dict: %w: the registry knows no data server %q", ErrInvalid, id)
	}
	return err
}

// Danger says in one sentence how the registry's Redis may evict dictionaries and what to do about
// it, empty if it does not.
func (r *Registry) Danger(ctx context.Context) (string, error) {
	policy, maxmemory, err := r.store.EvictionPolicy(ctx)
	if err != nil {
		return "", fmt.Errorf("dict: eviction policy: %w", err)
	}
	switch adapters.Danger(policy, maxmemory) {
	case 2:
		return fmt.Sprintf("the registry's Redis evicts any key once it is full (maxmemory-policy %s), dictionaries too, and values cannot be read without theirs: put the registry into a Redis of its own with noeviction, or set a volatile-* policy, or give programs the dictionaries as a bundle", policy), nil
	case 1:
		return fmt.Sprintf("the registry's Redis evicts keys with a TTL once it is full (maxmemory-policy %s), and removed dictionaries in quarantine have one: they may go early, so export dictionaries before you remove them", policy), nil
	}
	return "", nil
}
