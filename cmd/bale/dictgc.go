package main

import (
	"context"
	"time"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/dictops"
	"github.com/balekv/bale/cmd/internal/registry"
)

// proofFlags are the settings of a scan that proves that no value needs a dictionary.
type proofFlags struct {
	SkipType    []string `placeholder:"TYPE" help:"A module's type (as TYPE names it) whose keys hold no packed values. Repeatable. Without it, a key of an unknown type stops the command."`
	AcceptMoves bool     `help:"Go on if commands that move values (RENAME, COPY, LMOVE, SORT and others) ran during the scan. Only if they never touch packed values."`
	Empty       bool     `help:"Go on if the scan finds no packed value at all. Only if that is right."`
}

func (f *proofFlags) proof() dictops.Proof {
	return dictops.Proof{SkipTypes: f.SkipType, AcceptMoves: f.AcceptMoves, Empty: f.Empty}
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
	id, err := registry.ID(c.ID)
	if err != nil {
		return err
	}
	return operate(ctx, s, c, false, dictops.Options{Group: c.Group, ID: id, Force: c.Force, Proof: c.proof()}, dictops.Remove)
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

// Run collects.
func (c *dictGC) Run(ctx context.Context, s *cli.Streams) error {
	return operate(ctx, s, c, false, dictops.Options{Proof: c.proof(), Apply: c.Apply}, dictops.GC)
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
	id, err := registry.ID(c.ID)
	if err != nil {
		return err
	}
	return operate(ctx, s, c, false, dictops.Options{ID: id, Group: c.Group}, dictops.Restore)
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
	if c.Period < 0 {
		return usagef("the period %v must be positive", c.Period)
	}
	return operate(ctx, s, c, false, dictops.Options{Period: c.Period}, dictops.Grace)
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
	return operate(ctx, s, c, c.JSON && c.Forget == "", dictops.Options{Forget: c.Forget}, dictops.Servers)
}
