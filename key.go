package bale

import (
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// keySeparator stands between the parts of a key.
const keySeparator = ":"

// Key is a Redis key of the form domain:resource:id or domain:resource:id:field, for example
// "shop:user:1001:profile". Keys of one group, domain:resource, hold values that look alike.
type Key struct {
	Domain   string // letters, digits, '-', '_' and '.'
	Resource string // likewise
	ID       string // any bytes, not empty
	Field    string // any bytes; empty for none
}

// NewKey makes a key and checks its parts.
func NewKey(domain, resource, id, field string) (Key, error) {
	k := Key{domain, resource, id, field}
	return k, k.Validate()
}

// Validate returns an error for a part that is missing or invalid.
func (k Key) Validate() error {
	for _, part := range []struct{ name, value string }{{"domain", k.Domain}, {"resource", k.Resource}} {
		if part.value == "" {
			return fmt.Errorf("bale: %w: a key needs a %s", ErrInvalid, part.name)
		}
		if i := strings.IndexFunc(part.value, notNameRune); i >= 0 {
			_, size := utf8.DecodeRuneInString(part.value[i:])
			return fmt.Errorf("bale: %w: the %s %q of a key may hold letters, digits, '-', '_' and '.', not %q", ErrInvalid, part.name, part.value, part.value[i:i+size])
		}
	}
	if k.ID == "" {
		return fmt.Errorf("bale: %w: a key needs an id", ErrInvalid)
	}
	return nil
}

func notNameRune(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
}

// escaper keeps the separator out of ids and fields, as URLs do.
var escaper = strings.NewReplacer("%", "%25", keySeparator, "%3A")

// String is the key as Redis gets it. A ':' or '%' in id or field is written as %3A or %25, so that
// no two keys are written alike.
func (k Key) String() string {
	s := k.Group() + keySeparator + escaper.Replace(k.ID)
	if k.Field != "" {
		s += keySeparator + escaper.Replace(k.Field)
	}
	return s
}

// Group is domain:resource, what keys with values that look alike have in common.
func (k Key) Group() string { return k.Domain + keySeparator + k.Resource }

// ParseKey is the inverse of [Key.String].
func ParseKey(s string) (Key, error) {
	parts := strings.Split(s, keySeparator)
	if len(parts) != 3 && len(parts) != 4 {
		return Key{}, fmt.Errorf("bale: %w: key %q has %d parts, must be domain:resource:id or domain:resource:id:field", ErrInvalid, s, len(parts))
	}
	k := Key{Domain: parts[0], Resource: parts[1]}
	var err error
	if k.ID, err = url.PathUnescape(parts[2]); err == nil && len(parts) == 4 {
		k.Field, err = url.PathUnescape(parts[3])
	}
	if err != nil {
		return Key{}, fmt.Errorf("bale: %w: key %q: %w", ErrInvalid, s, err)
	}
	if err := k.Validate(); err != nil {
		return Key{}, err
	}
	if k.String() != s {
		return Key{}, fmt.Errorf("bale: %w: key %q would be written %q", ErrInvalid, s, k)
	}
	return k, nil
}
