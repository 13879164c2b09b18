// Package glob matches keys with the patterns of Redis' KEYS and SCAN, byte for byte as the server
// does.
//
// [Check] reports a pattern that cannot be matched; [Match] takes only patterns that have passed
// it. The package is internal to bale and may change.
package glob

import (
	"errors"
	"strings"
)

var (
	errEmpty   = errors.New("is empty")
	errPattern = errors.New("ends within a class or an escape")
	errRange   = errors.New("has a range from ASCII to a byte beyond it, which servers read as their machine does; write the bytes out")
)

// Check reports a pattern that Match cannot read, or that servers read in different ways. The error
// completes a sentence that starts with the pattern.
func Check(pattern string) error {
	if pattern == "" {
		return errEmpty
	}
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '\\':
			if i++; i == len(pattern) {
				return errPattern
			}
		case '[':
			_, rest, err := class(pattern[i:], 0)
			if err != nil {
				return err
			}
			i = len(pattern) - len(rest) - 1
		}
	}
	return nil
}

// Prefix returns the bytes that each match of the pattern starts with, and the rest of the pattern.
// A pattern that has passed Check matches all keys with the prefix if the rest is "*".
func Prefix(pattern string) (prefix, rest string) {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '*', '?', '[':
			return b.String(), pattern[i:]
		case '\\':
			i++
		}
		b.WriteByte(pattern[i])
	}
	return b.String(), ""
}

// Match reports whether s matches the pattern. * is any bytes, and ? is one byte. [a-c] and [^a-c]
// are a class. A backslash takes the next byte literally. The time is at most proportional to the
// product of the lengths.
func Match(pattern, s string) bool {
	// Only the last star needs to be tried again: an earlier one that took more could give no match
	// that the last one does not.
	retryPattern, retry, star := "", "", false
	for {
		if len(pattern) > 0 && pattern[0] == '*' {
			pattern = strings.TrimLeft(pattern, "*")
			if pattern == "" {
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

// one matches the first byte of s with the first element of the pattern, no star, and returns the
// rest of the pattern.
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

// class matches c with the class that the pattern starts with, and returns the rest of the pattern.
// The error is for a class that Check refuses.
func class(pattern string, c byte) (in bool, rest string, err error) {
	p := pattern[1:]
	negated := strings.HasPrefix(p, "^")
	if negated {
		p = p[1:]
	}
	for len(p) > 0 && p[0] != ']' {
		if p[0] == '\\' && len(p) > 1 { // it starts no range: `[\a-c]` is "a", "-" and "c"
			in = in || p[1] == c
			p = p[2:]
			continue
		}
		low, high := p[0], p[0]
		p = p[1:]
		if len(p) > 1 && p[0] == '-' { // "[a-]" is a range up to "]", and does not end
			high = p[1]
			p = p[2:]
			if (low^high)&0x80 != 0 {
				err = errRange
			}
		}
		in = in || min(low, high) <= c && c <= max(low, high)
	}
	if p == "" {
		return false, "", errPattern
	}
	return in != negated, p[1:], err
}
