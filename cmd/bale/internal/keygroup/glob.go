package keygroup

import (
	"errors"
	"fmt"
	"strings"

	"github.com/balekv/bale"
)

// Match reports whether a key matches a pattern of SCAN. The pattern has passed CheckPattern.
func Match(pattern, key string) bool { return glob(pattern, key) }

// CheckPattern reports a pattern that nothing can be matched with: it is empty, or ends within a class or an escape.
func CheckPattern(pattern string) error {
	if pattern == "" {
		return fmt.Errorf("keygroup: %w: an empty pattern", bale.ErrInvalid)
	}
	if err := checkGlob(pattern); err != nil {
		return fmt.Errorf("keygroup: %w: pattern %q: %w", bale.ErrInvalid, pattern, err)
	}
	return nil
}

var errPattern = errors.New("ends within a class or an escape")

// checkGlob reports a pattern that glob cannot read.
func checkGlob(pattern string) error {
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			if i++; i == len(pattern) {
				return errPattern
			}
		case '[':
			_, rest, ok := class(pattern[i:], 0)
			if !ok {
				return errPattern
			}
			i = len(pattern) - len(rest) - 1
		}
	}
	return nil
}

// glob reports whether s matches the pattern, in the syntax of Redis' SCAN: * for any bytes, ? for one byte, [a-c] or [^a-c] for
// a class, and a backslash to take the next byte literally.
func glob(pattern, s string) bool {
	// Only the last star needs to be tried again: an earlier one that took more could give no match that the last one
	// does not.
	retryPattern, retry, star := "", "", false
	for {
		if len(pattern) > 0 && pattern[0] == '*' {
			if pattern = strings.TrimLeft(pattern, "*"); pattern == "" {
				return true
			}
			retryPattern, retry, star = pattern, s, true
			continue
		}
		if rest, ok := one(pattern, s); ok {
			pattern, s = rest, s[1:]
			continue
		}
		if pattern == "" && s == "" {
			return true
		}
		if !star || retry == "" {
			return false
		}
		retry = retry[1:]
		pattern, s = retryPattern, retry
	}
}

// one matches the first byte of s with the first element of the pattern, no star, and returns the rest of the pattern.
func one(pattern, s string) (rest string, ok bool) {
	if pattern == "" || s == "" {
		return "", false
	}
	switch pattern[0] {
	case '?':
		return pattern[1:], true
	case '[':
		in, rest, _ := class(pattern, s[0])
		return rest, in
	case '\\':
		pattern = pattern[1:]
	}
	return pattern[1:], pattern[0] == s[0]
}

// class matches c with the class that the pattern starts with, and returns the rest of the pattern. It is not ok where the class
// has no end.
func class(pattern string, c byte) (in bool, rest string, ok bool) {
	p := pattern[1:]
	negated := strings.HasPrefix(p, "^")
	if negated {
		p = p[1:]
	}
	for len(p) > 0 && p[0] != ']' {
		if p[0] == '\\' && len(p) > 1 { // it starts no range
			in = in || p[1] == c
			p = p[2:]
			continue
		}
		low, high := p[0], p[0]
		p = p[1:]
		if len(p) > 1 && p[0] == '-' {
			high = p[1]
			p = p[2:]
		}
		in = in || min(low, high) <= c && c <= max(low, high)
	}
	if p == "" {
		return false, "", false
	}
	return in != negated, p[1:], true
}
