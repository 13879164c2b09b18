package bale

import (
	"errors"
	"fmt"
	"strings"

	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
)

// The causes of failure, for errors.Is. Callers get one of them wrapped in a [KeyError], a
// [DecodeError] or both. The exception is ErrNotFound, which [Cache.Get] returns bare. A value that
// cannot be read is never deleted or overwritten, unless LoadOptions.ReplaceUnreadable is set.
var (
	// ErrNotFound: the key does not exist, or has expired.
	ErrNotFound = errors.New("key not found")

	// ErrCorrupt: the value is a frame, but its content does not match its header. It was cut,
	// changed, or written with another dictionary.
	ErrCorrupt = errors.New("corrupt value")

	// ErrTooLarge: the decoded value is larger than PackerOptions.MaxSize.
	ErrTooLarge = errors.New("value too large")

	// ErrBudget: the operation has read more values than PackerOptions.Budget allows it to decode.
	// It says nothing about the value.
	ErrBudget = errors.New("too many decoded bytes in one operation")

	// ErrUnknownDictionary: the Packer does not have the dictionary of the value.
	ErrUnknownDictionary = compress.ErrUnknownDictionary

	// ErrUnknownAlgorithm: the Packer does not have the algorithm of the value, or the value comes
	// from a later version of bale.
	ErrUnknownAlgorithm = compress.ErrUnknownAlgorithm

	// ErrCodec: the codec cannot encode or decode a value. Another codec may have written it. The
	// error is a [codec.Error].
	ErrCodec = codec.ErrFailed

	// ErrLoadFailed: a load of the key failed a moment ago, in this process or another. No new load
	// starts before LoadOptions.Backoff has passed. The process that loaded has the cause.
	ErrLoadFailed = errors.New("the load of another caller has just failed")

	// ErrInvalid: an argument or option is out of range.
	ErrInvalid = errors.New("invalid argument")
)

// noMiss is an error of something that reads a value, and may have looked for something else. An
// ErrNotFound in it would make the value a miss, and a load would overwrite it.
func noMiss(err error) error {
	if errors.Is(err, ErrNotFound) {
		return errors.New(err.Error())
	}
	return err
}

// DecodeError reports how the unreadable value was packed.
type DecodeError struct {
	Algorithm    frame.Algorithm
	DictionaryID frame.DictionaryID // zero for none
	Err          error
}

func (e *DecodeError) Error() string {
	if e.DictionaryID != 0 {
		return fmt.Sprintf("packed with %v, dictionary %v: %v", e.Algorithm, e.DictionaryID, e.Err)
	}
	return fmt.Sprintf("packed with %v: %v", e.Algorithm, e.Err)
}

// Unwrap returns the cause.
func (e *DecodeError) Unwrap() error { return e.Err }

// KeyError names the failed operation and its key. It never holds the value.
type KeyError struct {
	Op  string // "get", "set", "delete", "touch", or a Redis command
	Key string
	Err error
}

func (e *KeyError) Error() string { return fmt.Sprintf("bale: %s %q: %v", e.Op, e.Key, e.Err) }

// Unwrap returns the cause.
func (e *KeyError) Unwrap() error { return e.Err }

// KeyErrors are the failures of an operation on many keys, one for each key that
// failed; the other keys succeeded unless the operation's comment says otherwise.
type KeyErrors []*KeyError

// keysShown bounds the length of the message of KeyErrors.
const keysShown = 3

func (e KeyErrors) Error() string {
	var b strings.Builder
	for i, err := range e {
		if i == keysShown {
			fmt.Fprintf(&b, "; and %d more", len(e)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(err.Error())
	}
	return b.String()
}

// Unwrap returns all the failures.
func (e KeyErrors) Unwrap() []error {
	errs := make([]error, len(e))
	for i, err := range e {
		errs[i] = err
	}
	return errs
}
