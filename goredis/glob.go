package goredis

import (
	"errors"
	"strings"
)

var (
	errPattern = errors.New("ends within a class or an escape")
	errRange   = errors.New("has a range from ASCII to a byte beyond it, which servers read as their machine does; write the bytes out")
)

// checkGlob reports a pattern that glob cannot read.
func checkGlob(pattern string) error {
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

// glob reports whether s matches the pattern, in the syntax of Redis' KEYS and SCAN: * for any bytes, ? for one
// byte, [a-c] or [^a-c] for a class, and a backslash to take the next byte literally. It takes time proportional to
// the product of the lengths at most.
func glob(pattern, s string) bool {
	// Only the last star needs to be tried again: an earlier one that took more could give no match that
	// the last one does not.
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

// one matches the first byte of s with the first element of the pattern, no star, and returns the rest of
// the pattern.
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

// class matches c with the class that the pattern starts with, and returns the rest of the pattern. The
// error is for a class that checkGlob refuses.
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
