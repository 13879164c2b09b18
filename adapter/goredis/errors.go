package goredis

import (
	"errors"
	"fmt"
)

// ErrCommand is the class of all [CommandError] values.
var ErrCommand = errors.New("command does not work on packed values")

// ErrInstall is the class of all [InstallError] values.
var ErrInstall = errors.New("the hook is not on all paths of the client")

// InstallError says what [Hook.Install] could not reach.
type InstallError struct {
	Client string // its type
	Reason string // and what to do

	// Installed reports that the hook is on all that Install could reach. Otherwise the client is
	// as it was.
	Installed bool
}

func (e *InstallError) Error() string {
	return fmt.Sprintf("goredis: %s: %v: %s", e.Client, ErrInstall, e.Reason)
}

// Unwrap returns ErrInstall.
func (e *InstallError) Unwrap() error { return ErrInstall }

// CommandError says that a command was not sent, because it would work on the packed bytes of a
// value.
type CommandError struct {
	Command string // in lower case
	Key     string // in the hook's scope
	Reason  string
}

func (e *CommandError) Error() string {
	return fmt.Sprintf("bale: %s %q: %v: %s (see HookOptions.Match to leave the key out)", e.Command, e.Key, ErrCommand, e.Reason)
}

// Unwrap returns ErrCommand.
func (e *CommandError) Unwrap() error { return ErrCommand }
