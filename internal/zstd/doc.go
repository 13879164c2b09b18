// Package zstd encodes and decodes small values with a dictionary, as standard Zstandard frames.
//
// The format is that of RFC 8878. A frame's magic number may be left out.
package zstd

import "errors"

// ErrCorrupt is the class of all errors about damaged frames and dictionaries.
var ErrCorrupt = errors.New("zstd: corrupt")

// corrupt says what is damaged.
type corrupt string

func (c corrupt) Error() string      { return ErrCorrupt.Error() + ": " + string(c) }
func (corrupt) Is(target error) bool { return target == ErrCorrupt }
