package dict

import (
	"errors"
	"fmt"

	"github.com/balekv/bale/compress"
)

// The reasons why there is no dictionary, and the errors of a Registry, for errors.Is.
var (
	// ErrNoDictionary: no dictionary can be made of the samples, or none saves enough to pay for
	// itself.
	ErrNoDictionary = errors.New("no dictionary")

	// ErrTooFew: there are too few samples. It comes with ErrNoDictionary.
	ErrTooFew = errors.New("too few samples")

	// ErrUnknown: the registry does not hold the dictionary, and neither does any mirror. It is a
	// compress.ErrUnknownDictionary.
	ErrUnknown = fmt.Errorf("%w: the registry does not hold the dictionary", compress.ErrUnknownDictionary)

	// errMirror: the registry does not hold the dictionary, and a mirror may.
	errMirror = errors.New("the registry does not hold the dictionary, and a mirror failed")

	// ErrCorrupt: the bytes in the registry are not those of the dictionary, or not a state of a
	// group.
	ErrCorrupt = errors.New("corrupt registry entry")

	// ErrCollision: another dictionary has the same id. With ids of 32 bits that is one chance in a
	// million for a fleet of a hundred dictionaries; train with another seed or size.
	ErrCollision = errors.New("another dictionary has this id")

	// ErrNotInGroup: the dictionary was not published to the group.
	ErrNotInGroup = errors.New("not published to the group")

	// ErrGrace: the dictionary was published so lately that not every reader may have it.
	ErrGrace = errors.New("the grace period since publishing is not over")

	// ErrInUse: the dictionary is the current or previous one, or a writer may still use it. It is
	// not removed.
	ErrInUse = errors.New("the dictionary is in use")

	// ErrUnlisted: the registry has lost its list of groups, the state of a group or its settings.
	// The dictionaries in use are unknown then. Running programs restore the lost keys at their
	// next poll, and so does publishing to a group.
	ErrUnlisted = errors.New("the registry has lost a part of itself")

	// ErrConflict: others changed the group meanwhile, again and again or in a way that matters.
	ErrConflict = errors.New("the group was changed by others")

	// ErrInvalid: an argument or option is out of range.
	ErrInvalid = errors.New("invalid argument")
)
