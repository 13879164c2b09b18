package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// proofFlags are the settings of a scan that proves that no value needs a dictionary.
type proofFlags struct {
	SkipType    []string `placeholder:"TYPE" help:"A module's type (as TYPE names it) whose keys hold no packed values. Repeatable. Without it, a key of an unknown type stops the command."`
	AcceptMoves bool     `help:"Go on if commands that move values (RENAME, COPY, LMOVE, SORT and others) ran during the scan. Only if they never touch packed values."`
	Empty       bool     `help:"Go on if the scan finds no packed value at all. Only if that is right."`
}

// prove scans all values for dictionaries. An error says why it proves nothing.
func (f *proofFlags) prove(ctx context.Context, servers *redisServers, command string, ids map[frame.DictionaryID]bool, pace keyspace.Pace, s *cli.Streams) (*keyspace.References, error) {
	if err := servers.allScanned(ctx); err != nil {
		return nil, err
	}
	refs, err := servers.references(ctx, command, keyspace.ReferenceOptions{Known: ids, Proof: true, Pace: pace, SkipTypes: f.SkipType, AcceptMoves: f.AcceptMoves}, s)
	if err != nil {
		return nil, err
	}
	return refs, servers.allScanned(ctx) // a program may have joined
}

// notEmpty is an error if there was no packed value, which is what the wrong server shows.
func (f *proofFlags) notEmpty(refs *keyspace.References) error {
	if refs.Packed() > 0 || f.Empty {
		return nil
	}
	return fmt.Errorf("none of %d keys holds a packed value, so these may be the wrong servers: --redis says where the values are, --empty that there are none", refs.Keys)
}

type dictRemove struct {
	dataFlags
	proofFlags
	groupFlag
	ID    string `arg:"" name:"id|file" help:"The dictionary: its id, or its file."`
	Force bool   `help:"Remove it at once and without a look at the values: those that were written with it cannot be read once the quarantine is over."`
}

const quarantineHelp = `A removed dictionary stays in quarantine for 30 days. It comes back by itself when a reader asks for it, or with bale dict restore.`

// Help is shown below the options.
func (dictRemove) Help() string {
	return `For a dictionary that was published by mistake. The current and the previous dictionary stay, and one that was used less than six grace periods ago. The command looks at every value of every type in every database of the servers. A dictionary that a value refers to stays, too. It cannot see values elsewhere, in a backup or a Redis that never joined the registry.

` + quarantineHelp + `

Examples:
  bale dict remove 0a1b2c3d --group user:profile
  bale dict remove wrong.dict --group user:profile`
}

// Run removes.
func (c *dictRemove) Run(ctx context.Context, s *cli.Streams) error {
	id, err := idOf(c.ID)
	if err := errors.Join(err, c.check()); err != nil {
		return err
	}
	servers, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer servers.close()
	states, err := groupStates(ctx, servers.registry, c.Group)
	if err != nil {
		return usageIfInvalid(err)
	}
	st := states[0]
	e := st.Find(id)
	switch {
	case e == nil:
		return fmt.Errorf("%s has no dictionary %v: bale dict list shows what it has", c.Group, id)
	case id == st.Current:
		return fmt.Errorf("%v is what %s is written with: activate another one, or none, first", id, c.Group)
	case id == st.Previous:
		return fmt.Errorf("%v is what a rollback of %s goes back to: it stays until it is neither the current nor the previous one", id, c.Group)
	}
	seen, why := *e, "without a look at the values"
	if !c.Force {
		if why, err = c.proof(ctx, s, servers, st, e); err != nil {
			return err
		}
	}
	quarantined := false
	if c.Force || why != "" {
		quarantined, err = servers.registry.Remove(ctx, c.Group, seen, c.Force)
	} else { // another group has it, and nobody has looked at the values
		err = servers.registry.Unlist(ctx, c.Group, seen)
	}
	if err != nil {
		return err
	}
	return removed(ctx, s, servers, id, c.Group, why, quarantined)
}

// removed says what became of a dictionary.
func removed(ctx context.Context, s *cli.Streams, servers *redisServers, id frame.DictionaryID, group, why string, quarantined bool) error {
	if !quarantined {
		keeper, err := keeperOf(ctx, servers.registry, id)
		switch {
		case err != nil:
			return err
		case keeper == "":
			printable.Fprintf(s.Out, "%v of %s was gone already\n", id, group)
		case group == noGroup:
			printable.Fprintf(s.Out, "%v of %s stays: %s has it\n", id, group, keeper)
		default:
			printable.Fprintf(s.Out, "%v is out of %s; its bytes stay: %s has it\n", id, group, keeper)
		}
		return nil
	}
	until, err := servers.quarantinedUntil(ctx, id)
	if !until.IsZero() {
		why += fmt.Sprintf("; quarantined until %s, comes back by itself when a reader asks for it", until.Format(time.RFC3339))
	}
	printable.Fprintf(s.Out, "%v of %s is removed: %s\n", id, group, why)
	return err
}

// noGroup stands for the group of a dictionary that no group has.
const noGroup = "no group"

// keeperOf is a group that has a dictionary, empty if there is none.
func keeperOf(ctx context.Context, r *dict.Registry, id frame.DictionaryID) (string, error) {
	all, err := groupStates(ctx, r, "")
	i := slices.IndexFunc(all, func(st *dict.State) bool { return st.Find(id) != nil })
	if err != nil || i < 0 {
		return "", err
	}
	return all[i].Group, nil
}

// proof says why no value is lost with a dictionary, or is an error. Without either, another group
// has the dictionary, and no value was looked at.
func (c *dictRemove) proof(ctx context.Context, s *cli.Streams, servers *redisServers, st *dict.State, e *dict.Entry) (string, error) {
	if _, err := servers.registry.Removable(ctx, st, e.ID); err != nil {
		return "", err
	}
	all, err := groupStates(ctx, servers.registry, "")
	if err != nil {
		return "", err
	}
	for _, other := range all {
		if other.Group != st.Group && other.Find(e.ID) != nil {
			return "", nil
		}
	}
	refs, err := c.prove(ctx, servers, "dict remove", map[frame.DictionaryID]bool{e.ID: true}, c.pace(s.Err, "dict remove"), s)
	if err != nil {
		return "", err
	}
	if ref := refs.ByID[e.ID]; ref != nil {
		return "", fmt.Errorf("%v stays: %d values refer to it, and could not be read without it; --force removes it all the same", e.ID, ref.Values)
	}
	if e.Uses > 0 || !e.Activated.IsZero() {
		if err := c.notEmpty(refs); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("no value of %d keys refers to it", refs.Keys), nil
}

type dictGC struct {
	dataFlags
	proofFlags
	Apply bool `help:"Remove them. Without it nothing is changed."`
}

// Help is shown below the options.
func (dictGC) Help() string {
	return `The command looks at every value of every type in every database of the servers. Current and previous dictionaries stay, those that were never activated, and those that were used less than six grace periods ago. It cannot see values elsewhere, in a backup or a Redis that never joined the registry: export first what they may need.

It removes nothing if it may have missed a value: a key that the user may not read, slots that move, a restart or a failover, a data server of the registry that is not given, no packed value at all.

` + quarantineHelp + `

Examples:
  bale dict gc
  bale dict gc --apply
  bale dict gc --registry redis://127.0.0.1:6379 --redis redis://127.0.0.1:6379 --redis redis://127.0.0.1:6379/1`
}

// gcCandidate is a dictionary that goes unless a value refers to it.
type gcCandidate struct {
	group string     // empty for one that no group has
	seen  dict.Entry // as it was before the scan
}

// candidates are the dictionaries that may go, and the number of groups.
func (c *dictGC) candidates(ctx context.Context, servers *redisServers) (all []gcCandidate, groups int, err error) {
	r := servers.registry
	states, err := groupStates(ctx, r, "")
	if err != nil {
		return nil, 0, err
	}
	listed, known := map[string]bool{}, map[frame.DictionaryID]bool{}
	for _, st := range states {
		listed[st.Group] = true
		for _, e := range st.Dictionaries {
			known[e.ID] = true
		}
		entries, err := r.Collectable(ctx, st)
		if err != nil {
			return nil, 0, err
		}
		for _, e := range entries {
			all = append(all, gcCandidate{st.Group, e})
		}
	}
	// A group that is not on the list of groups would lose its dictionaries.
	if err := servers.walk(ctx, strings.TrimSuffix(r.GroupKey(""), "*"), func(group string) error {
		if !listed[group] {
			return fmt.Errorf("%q is a group of the registry that is not on its list of groups, which was lost in part: nothing is removed. A program that has the group open puts it back within its Poll; so does publishing one of its dictionaries again", group)
		}
		return nil
	}); err != nil {
		return nil, 0, err
	}
	return all, len(states), servers.walk(ctx, strings.TrimSuffix(r.DataKey(0), "*"), func(name string) error {
		if id, err := frame.ParseDictionaryID(name); err == nil && id != 0 && !known[id] {
			known[id] = true
			all = append(all, gcCandidate{"", dict.Entry{ID: id}})
		}
		return nil
	})
}

// Run collects.
func (c *dictGC) Run(ctx context.Context, s *cli.Streams) error {
	if err := c.check(); err != nil {
		return err
	}
	servers, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer servers.close()
	servers.warnOfDanger(ctx, s.Err, "dict gc")
	candidates, groups, err := c.candidates(ctx, servers)
	if err != nil {
		return err
	}
	if len(candidates) == 0 && groups == 0 {
		printable.Fprintf(s.Out, "The registry is empty.\n")
		return nil
	}
	if len(candidates) == 0 {
		printable.Fprintf(s.Out, "Nothing to remove: every dictionary is current or previous, was never activated, or was used less than six grace periods ago.\n")
		return nil
	}
	ids := map[frame.DictionaryID]bool{}
	for _, d := range candidates {
		ids[d.seen.ID] = true
	}
	refs, err := c.prove(ctx, servers, "dict gc", ids, c.pace(s.Err, "dict gc"), s)
	if err != nil {
		return err
	}
	if err := c.notEmpty(refs); err != nil && c.Apply {
		return err
	} else if err != nil {
		printable.Fprintf(s.Err, "bale dict gc: WARNING: %v\n", err)
	}
	why, would := fmt.Sprintf("no value of %d keys refers to it", refs.Keys), 0
	for _, d := range candidates {
		group := d.group
		if group == "" {
			group = noGroup
		}
		if ref := refs.ByID[d.seen.ID]; ref != nil {
			printable.Fprintf(s.Out, "%v of %s stays: %d values refer to it\n", d.seen.ID, group, ref.Values)
			continue
		}
		if !c.Apply {
			would++
			printable.Fprintf(s.Out, "%v of %s would be removed: %s\n", d.seen.ID, group, why)
			continue
		}
		quarantined := false
		if d.group == "" {
			quarantined, err = servers.registry.RemoveOrphan(ctx, d.seen.ID)
		} else {
			quarantined, err = servers.registry.Remove(ctx, d.group, d.seen, false)
		}
		switch {
		case errors.Is(err, dict.ErrConflict), errors.Is(err, dict.ErrInUse), errors.Is(err, dict.ErrNotInGroup):
			printable.Fprintf(s.Out, "%v of %s stays: it was used during the scan\n", d.seen.ID, group)
		case err != nil:
			return err
		default:
			if err := removed(ctx, s, servers, d.seen.ID, group, why, quarantined); err != nil {
				return err
			}
		}
	}
	if would > 0 {
		printable.Fprintf(s.Out, "Nothing was changed: --apply removes.\n")
	}
	return nil
}

type dictRestore struct {
	dictFlags
	ID    string `arg:"" name:"id" help:"The dictionary."`
	Group string `placeholder:"NAME" help:"Publish it to this group, too, so that the next gc leaves it."`
}

// Help is shown below the options.
func (dictRestore) Help() string {
	return `Brings a removed dictionary back from quarantine. bale dict list shows which are there, and until when. Without --group it belongs to no group, and the next gc removes it again unless a value refers to it.

Examples:
  bale dict restore 0a1b2c3d --group user:profile`
}

// Run restores.
func (c *dictRestore) Run(ctx context.Context, s *cli.Streams) error {
	id, err := idOf(c.ID)
	if err != nil {
		return err
	}
	return c.with(ctx, func(servers *redisServers) error {
		d, err := servers.registry.Fetch(ctx, id)
		if err != nil {
			return err
		}
		if c.Group == "" {
			printable.Fprintf(s.Out, "%v is in the registry. No group has it: --group publishes it to one.\n", id)
			return nil
		}
		if err := servers.registry.Publish(ctx, c.Group, d, dict.Info{}); err != nil {
			return usageIfInvalid(err)
		}
		printable.Fprintf(s.Out, "%v is in the registry, published to %s.\n", id, c.Group)
		return nil
	})
}

type dictGrace struct {
	dictFlags
	Period time.Duration `arg:"" optional:"" name:"period" help:"The new grace period."`
}

// Help is shown below the options.
func (dictGrace) Help() string {
	return `Shows or sets the grace period of the registry. A published dictionary may be activated after one period, so that every reader has it; it may be removed six periods after its last use, so that no writer uses it any more. After a change to a shorter one, removal goes by the longer one for another six of its periods. A program that declares a longer one sets that again.

Examples:
  bale dict grace
  bale dict grace 2m`
}

// Run shows or sets.
func (c *dictGrace) Run(ctx context.Context, s *cli.Streams) error {
	return c.with(ctx, func(servers *redisServers) error {
		if c.Period != 0 {
			if err := servers.registry.SetGrace(ctx, c.Period); err != nil {
				return usageIfInvalid(err)
			}
		}
		grace, err := servers.registry.Grace(ctx)
		if err == nil {
			printable.Fprintf(s.Out, "The grace period is %v.\n", grace)
		}
		return err
	})
}

type dictServers struct {
	dictFlags
	Forget string `placeholder:"ID" help:"Take a server off the list: its values are gone, or none is packed."`
	JSON   bool   `name:"json" help:"Write JSON."`
}

// Help is shown below the options.
func (dictServers) Help() string {
	return `Shows the servers whose programs use the registry. bale dict gc and remove need all of them. A program joins by itself (GroupOptions.Data), and so does bale migrate; one that still uses a forgotten server joins again.

Examples:
  bale dict servers
  bale dict servers --json`
}

// Run shows or forgets.
func (c *dictServers) Run(ctx context.Context, s *cli.Streams) error {
	return c.with(ctx, func(servers *redisServers) error {
		if c.Forget != "" {
			if err := servers.registry.Forget(ctx, c.Forget); err != nil {
				return usageIfInvalid(err)
			}
			printable.Fprintf(s.Out, "%s is forgotten.\n", c.Forget)
			return nil
		}
		all, err := servers.registry.Servers(ctx)
		switch {
		case err != nil:
			return err
		case c.JSON:
			return printable.WriteJSON(s.Out, append([]dict.Server{}, all...))
		case len(all) == 0:
			printable.Fprintf(s.Out, "No server has joined this registry.\n")
			return nil
		}
		t := tabwriter.NewWriter(s.Out, 0, 0, 2, ' ', 0)
		printable.Fprintf(t, "id\tname\tlast seen\n")
		for _, server := range all {
			printable.Fprintf(t, "%s\t%s\t%s\n", server.ID, server.Name, server.Seen.Format(time.RFC3339))
		}
		return t.Flush()
	})
}
