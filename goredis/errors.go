package goredis

import (
	"errors"
	"fmt"
)

// ErrCommand is the class of all [CommandError] values.
var ErrCommand = errors.New("command does not work on packed values")

// errMarshal is the class of what a value's MarshalBinary says.
var errMarshal = errors.New("marshal")

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
