package migrate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/outfile"
	"github.com/balekv/bale/frame"
)

// maxState is the largest file of a State in bytes: thousands of servers. Forged, it takes 30 times
// its bytes to read.
const maxState = 2 << 20

// stateVersion is of the layout of a State's file.
const stateVersion = 1

// State is how far a run is, kept in a file for another to go on.
type State struct {
	Version    int                `json:"version"`
	Settings   Settings           `json:"settings"`
	Dictionary frame.DictionaryID `json:"dictionary"` // that was chosen or trained for it
	Started    time.Time          `json:"started"`
	UsedMemory int64              `json:"used_memory"` // when it started
	Seconds    float64            `json:"seconds"`     // that it ran for
	Places     []keyspace.Place   `json:"places"`
	Counts     *Counts            `json:"result"`

	Calls map[string]int64 `json:"calls,omitempty"` // before it, of commands that give values other keys
}

// Settings are the options that make it the same run when it is resumed. Their names in JSON are
// those of the flags.
type Settings struct {
	Match    []string `json:"match,omitempty"`    // patterns of keys, each with a walk of its own
	Compress string   `json:"compress,omitempty"` // as engine.Parse reads it
	Dict     string   `json:"dict,omitempty"`     // an id, a file, or a word of this package; empty for none
	Group    string   `json:"group,omitempty"`    // of the dictionary
	Exclude  []string `json:"exclude,omitempty"`  // fields of JSON values that stay out of a dictionary
	Revert   bool     `json:"revert,omitempty"`   // unpack, in place of packing
	Repack   bool     `json:"repack,omitempty"`   // also what is packed with another algorithm or dictionary
	MinSize  int      `json:"min-size,omitempty"` // as bale.PackerOptions has both
	MinGain  float64  `json:"min-gain,omitempty"`
	Prefix   string   `json:"prefix"` // of the registry; Run sets both
	Database int      `json:"redis database"`
}

// Setting is the compressor. Default: zstd.
func (s *Settings) Setting() (engine.Setting, error) { return engine.Parse(cmp.Or(s.Compress, "zstd")) }

// byFlag are the settings that are set, as JSON.
func (s Settings) byFlag() map[string]string {
	var values map[string]json.RawMessage
	b, _ := json.Marshal(s) // NaN is refused before
	_ = json.Unmarshal(b, &values)
	all := map[string]string{}
	for name, value := range values {
		all["--"+name] = string(value)
	}
	return all
}

// NewState is the state of a run that starts.
func NewState(settings Settings, places []keyspace.Place) *State {
	return &State{Version: stateVersion, Settings: settings, Started: time.Now().UTC(), Places: places,
		Counts: newCounts()}
}

// ErrState says that a file is not of the run that is to go on.
var ErrState = errors.New("the file to resume from does not fit")

// Anew is a server that is walked from the start.
type Anew struct {
	Addr      string
	Restarted bool // or otherwise not as it was when the state was saved, by its INFO; else it is new
}

// ReadState reads the state of a run in a file, nil if there is no file. The state must have the
// same settings and the same servers. A server starts over if it is new, was restarted, failed
// over, or does not identify itself, and if the cluster has changed. Cursors of one process mean
// nothing to another, and its data may be older. The second result names these servers.
func ReadState(
	path string, settings Settings, places []keyspace.Place,
) (s *State, anew []Anew, err error) {
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
	patterns := max(len(settings.Match), 1)
	beyond := func(p keyspace.Place) bool {
		return p.Pattern < 0 || p.Pattern > patterns || p.Pattern == patterns && !p.Done
	}
	if err := json.Unmarshal(b, s); err != nil || len(b) > maxState || s.Version != stateVersion ||
		s.Counts == nil || s.Counts.Left == nil || slices.ContainsFunc(s.Places, beyond) {
		return nil, nil, fmt.Errorf("%w: %s is no state of a migration that this version wrote", ErrState,
			path)
	}
	before, now := s.Settings.byFlag(), settings.byFlag()
	names := maps.Clone(before)
	maps.Copy(names, now)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if before[name] != now[name] {
			return nil, nil, fmt.Errorf("%w: %s is of a run with %s %s, and this one has %s: give the same settings or another file",
				ErrState, path, name, cmp.Or(before[name], "not given"), cmp.Or(now[name], "not given"))
		}
	}
	known := false
	for i, now := range places {
		at := slices.IndexFunc(s.Places,
			func(p keyspace.Place) bool {
				return p.RunID == now.RunID && p.RunID != "" && // without INFO there is none
					p.ReplID == now.ReplID && p.Cluster == now.Cluster
			})
		if at >= 0 {
			known = true
			places[i].Pattern, places[i].Cursor, places[i].Done = s.Places[at].Pattern, s.Places[at].Cursor, s.Places[at].Done
			continue
		}
		restarted := slices.ContainsFunc(s.Places,
			func(p keyspace.Place) bool { return p.Addr == now.Addr })
		anew = append(anew, Anew{now.Addr, restarted})
		known = known || restarted
	}
	if !known {
		return nil, nil, fmt.Errorf("%w: %s is of a run on %s, and this is %s: give another file",
			ErrState, path, addrs(s.Places), addrs(places))
	}
	s.Places = places
	return s, anew, nil
}

func addrs(places []keyspace.Place) string {
	var all []string
	for _, p := range places {
		all = append(all, p.Addr)
	}
	return strings.Join(all, ", ")
}

// Save writes the file for another run to go on from; without a path it does nothing.
func (s *State) Save(path string) error {
	if path == "" {
		return nil
	}
	b, err := json.Marshal(s)
	if err == nil {
		err = outfile.Write(path, append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("--resume: %w", err)
	}
	return nil
}
