package migrate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/frame"
)

// maxState is the largest file of a State in bytes: thousands of servers.
const maxState = 16 << 20

// stateVersion is of the layout of a State's file.
const stateVersion = 1

// State is how far a run is, kept in a file for another to go on.
type State struct {
	Version    int                `json:"version"`
	Settings   map[string]string  `json:"settings"`   // flags that make it the same run
	Dictionary frame.DictionaryID `json:"dictionary"` // that was chosen or trained for it
	Started    time.Time          `json:"started"`
	UsedMemory int64              `json:"used_memory"` // when it started
	Seconds    float64            `json:"seconds"`     // that it ran for
	Places     []keyspace.Place   `json:"places"`
	Result     *Result            `json:"result"`
}

// NewState is the state of a run that starts.
func NewState(settings map[string]string, places []keyspace.Place) *State {
	return &State{Version: stateVersion, Settings: settings, Started: time.Now().UTC(), Places: places, Result: &Result{Left: map[Reason]Tally{}}}
}

// ErrState says that a file is not of the run that is to go on.
var ErrState = errors.New("the file to resume from does not fit")

// ReadState reads the state of a run in a file, nil if there is no file. The state must have the
// same settings and the same servers. A server starts over if it is new, was restarted, or does not
// identify itself. Cursors of one process mean nothing to another, and its data may be older. The
// second result names these servers. Patterns is the number of the run's patterns of keys.
func ReadState(path string, settings map[string]string, places []keyspace.Place, patterns int) (s *State, anew []string, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxState+1))
	if err != nil {
		return nil, nil, err
	}
	s = &State{}
	beyond := func(p keyspace.Place) bool {
		return p.Pattern < 0 || p.Pattern > patterns || p.Pattern == patterns && !p.Done
	}
	if err := json.Unmarshal(b, s); err != nil || len(b) > maxState || s.Version != stateVersion || s.Result == nil || s.Result.Left == nil || slices.ContainsFunc(s.Places, beyond) {
		return nil, nil, fmt.Errorf("%w: %s is no state of a migration that this version wrote", ErrState, path)
	}
	names := map[string]string{}
	maps.Copy(names, settings)
	maps.Copy(names, s.Settings)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if was, is := s.Settings[name], settings[name]; was != is {
			return nil, nil, fmt.Errorf("%w: %s is of a run with %s %s, and this one has %s: give the same settings or another file", ErrState, path, name, quoted(was), quoted(is))
		}
	}
	known := false
	for i, now := range places {
		at := slices.IndexFunc(s.Places, func(p keyspace.Place) bool { return p.RunID == now.RunID && p.RunID != "" }) // without INFO there is none
		if at >= 0 {
			known = true
			places[i].Pattern, places[i].Cursor, places[i].Done = s.Places[at].Pattern, s.Places[at].Cursor, s.Places[at].Done
			continue
		}
		anew = append(anew, now.Addr)
		known = known || slices.ContainsFunc(s.Places, func(p keyspace.Place) bool { return p.Addr == now.Addr })
	}
	if !known {
		return nil, nil, fmt.Errorf("%w: %s is of a run on %s, and this is %s: give another file", ErrState, path, addrs(s.Places), addrs(places))
	}
	s.Places = places
	return s, anew, nil
}

func quoted(setting string) string {
	if setting == "" {
		return "not given"
	}
	return fmt.Sprintf("%q", setting)
}

func addrs(places []keyspace.Place) string {
	var all []string
	for _, p := range places {
		all = append(all, p.Addr)
	}
	return strings.Join(all, ", ")
}

// Bytes are what the file holds.
func (s *State) Bytes() ([]byte, error) {
	b, err := json.Marshal(s)
	return append(b, '\n'), err
}
