package rediscmd

import (
	"slices"
	"strings"
	"time"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/glob"
)

// Scope is the keys whose values are packed: those that match a pattern of Match and none of
// Exclude.
type Scope struct {
	Match, Exclude []string // in the syntax of Redis' KEYS; each has passed glob.Check

	// Prefix is that of a registry's keys, which are never in scope: packed with themselves,
	// dictionaries could not be read.
	Prefix string

	// More are further keys, which are packed in another way. Their More and RefuseScripts are not
	// used.
	More []Scope

	// RefuseScripts is why scripts are refused if they declare a key in scope; empty if they are not.
	RefuseScripts string
}

// Has reports whether a key is in scope.
func (s *Scope) Has(key string) bool { return s.Which(key) >= 0 }

// Which returns the part of the scope that a key is in first: 0 for Match, i+1 for More[i], and -1
// if it is in none.
func (s *Scope) Which(key string) int {
	if strings.HasPrefix(key, s.Prefix) {
		return -1
	}
	if s.matches(key) {
		return 0
	}
	for i := range s.More {
		if s.More[i].matches(key) {
			return i + 1
		}
	}
	return -1
}

func (s *Scope) matches(key string) bool {
	for _, p := range s.Exclude {
		if glob.Match(p, key) {
			return false
		}
	}
	return slices.ContainsFunc(s.Match, func(p string) bool { return glob.Match(p, key) })
}

// All reports whether all keys are in scope, except for a registry's, which hold nothing packed.
func (s *Scope) All() bool { return len(s.Exclude) == 0 && slices.Contains(s.Match, "*") }

// MayName reports whether a pattern of SORT may name a key in scope: some text stands for the first
// star in it.
func (s *Scope) MayName(pattern string) bool {
	prefix, _, star := strings.Cut(pattern, "*")
	if !star || strings.HasPrefix(prefix, s.Prefix) {
		return false
	}
	return s.mayMatch(prefix) || slices.ContainsFunc(s.More, func(more Scope) bool { return more.mayMatch(prefix) })
}

func (s *Scope) mayMatch(prefix string) bool {
	for _, p := range s.Exclude {
		if literal, rest := glob.Prefix(p); rest == "*" && strings.HasPrefix(prefix, literal) {
			return false
		}
	}
	return len(s.Match) == 0 || slices.ContainsFunc(s.Match, func(p string) bool {
		literal, _ := glob.Prefix(p)
		return strings.HasPrefix(literal, prefix) || strings.HasPrefix(prefix, literal)
	})
}

// Gone reports whether a stored value is a frame that says that there is no value, or that it is
// kept beyond its expiry, which is for bale.Cache.GetOrLoad alone.
func Gone(stored []byte) bool {
	h, payload, ok := frame.Parse(stored)
	if !ok || h.Version != frame.V2 {
		return false
	}
	fresh, _, _, ok := frame.ParseTrailer(stored[payload:])
	return ok && (fresh.Absent || !fresh.Expires.IsZero() && !time.Now().Before(fresh.Expires))
}
