package engine

import (
	"github.com/balekv/bale/frame"
)

// Form is how a program calls its compression library.
type Form uint8

const (
	// Pooled is what bale itself does: one call for a value, contexts that are kept and used again,
	// a dictionary digested once.
	Pooled Form = iota

	// Naive is the usual code: a new encoder or decoder for each value, with the library's defaults
	// except for the level, dropped right after. It digests a dictionary anew for each value.
	Naive

	// Stream is the library's streaming writers and readers, pooled and reset for each value; a
	// dictionary is digested once.
	Stream
)

// String is the form's name, as a Setting has it.
func (f Form) String() string { return [...]string{"pooled", "naive", "stream"}[f] }

// lacks returns why a setting does not have this form, "" if it has.
func (s Setting) lacks() string {
	switch a := s.Algorithm; {
	case s.Form == Pooled:
	case a == frame.Stored:
		return "none has nothing to pool or to stream"
	case s.Form == Naive && a == frame.Snappy:
		return "snappy has no encoder that a program could make anew"
	case s.Form == Naive && a == frame.S2 && !s.Dict:
		return "s2 has no encoder that a program could make anew, but for a dictionary: " + Setting{s.Setting, false, Naive, true}.String()
	case s.Form == Stream && a == frame.Gzip:
		return "gzip has streams alone: " + s.Setting.String() + " is measured with them, pooled"
	case s.Form == Stream && s.Dict && a != frame.Zstd:
		return "streams of " + a.String() + " take no dictionary; those of zstd do"
	}
	return ""
}
