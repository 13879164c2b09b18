package content

import (
	"bytes"
	"encoding/json"
	"errors"
)

// textual finds the formats that are written in characters. JSON and PHP may hold bytes that are no
// text.
func textual(v []byte, whole, text bool) (Kind, bool) {
	switch {
	case text && whole && isNumber(v):
		return Number, true
	case isJSON(v, whole):
		return JSON, true
	case isPHP(v, whole) || isPHPSession(v, whole):
		return PHP, true
	}
	return Binary, false
}

// maxNumber bounds the length of a number in bytes: an int64 takes 20 and a float64 24; Redis
// writes a long double in up to 40 or so.
const maxNumber = 48

// isNumber reports whether v is a number as Redis and JSON write it, without zeros in front.
func isNumber(v []byte) bool {
	return len(v) <= maxNumber && (v[0] == '-' || v[0] >= '0' && v[0] <= '9') && v[len(v)-1] >= '0' && json.Valid(v)
}

// isJSON reports whether v is JSON, or the start of it. A number is not, see isNumber; nor are
// several values behind one another.
func isJSON(v []byte, whole bool) bool {
	trimmed := bytes.TrimLeft(v, " \t\r\n")
	if len(trimmed) == 0 {
		return false
	}
	switch trimmed[0] {
	case '{', '[', '"', 't', 'f', 'n':
	default:
		return false
	}
	if whole {
		return json.Valid(v)
	}
	// A part is valid if the reader finds no fault before its end. A fault in the very last byte
	// looks the same as the end.
	var raw json.RawMessage
	err := json.Unmarshal(v, &raw)
	fault, ok := errors.AsType[*json.SyntaxError](err)
	return err == nil || ok && fault.Offset >= int64(len(v))
}

// isPHP reports whether v starts as PHP's serialize writes values, and ends so. It does not look
// between.
func isPHP(v []byte, whole bool) bool {
	if len(v) < 2 || whole && v[len(v)-1] != ';' && v[len(v)-1] != '}' {
		return false
	}
	if string(v) == "N;" {
		return true
	}
	if len(v) < 4 || v[1] != ':' {
		return false
	}
	rest := v[2:]
	switch v[0] {
	case 'b':
		return whole && len(rest) == 2 && (rest[0] == '0' || rest[0] == '1')
	case 'i', 'd':
		number := rest[:len(rest)-1]
		return whole && (isNumber(number) || v[0] == 'd' && (string(number) == "INF" || string(number) == "-INF" || string(number) == "NAN"))
	}
	n, rest, ok := phpLength(rest)
	if !ok {
		return false
	}
	switch v[0] {
	case 's': // s:5:"bytes";
		return len(rest) > 0 && rest[0] == '"' && (whole && n == len(rest)-3 && rest[n+1] == '"' || !whole && n > len(rest)-3)
	case 'a': // a:1:{i:0;...}
		return len(rest) > 1 && rest[0] == '{' && (n == 0 && rest[1] == '}' || n > 0 && phpKey(rest[1:]))
	case 'O', 'C', 'E': // O:8:"stdClass":1:{...}
		return n > 0 && n < len(rest)-3 && rest[0] == '"' && rest[n+1] == '"' && (v[0] == 'E' || rest[n+2] == ':')
	}
	return false
}

// phpLength reads "123:", at the start of v.
func phpLength(v []byte) (n int, rest []byte, ok bool) {
	for i, c := range v[:min(len(v), 10)] { // 9 digits: nothing in Redis is longer than 512 MiB
		switch {
		case c == ':':
			return n, v[i+1:], i > 0
		case c < '0' || c > '9':
			return 0, nil, false
		}
		n = n*10 + int(c-'0')
	}
	return 0, nil, false
}

// phpKey reports whether v starts with the key of an array: i:0; or s:2:"id";
func phpKey(v []byte) bool {
	if len(v) < 3 || v[1] != ':' {
		return false
	}
	if v[0] == 'i' {
		end := bytes.IndexByte(v[:min(len(v), maxNumber)], ';')
		return end > 2 && isNumber(v[2:end])
	}
	_, rest, ok := phpLength(v[2:])
	return v[0] == 's' && ok && len(rest) > 0 && rest[0] == '"'
}

// isPHPSession reports whether v is what PHP's session handler writes: user|a:1:{...}cart|i:5;
func isPHPSession(v []byte, whole bool) bool {
	name, rest, ok := bytes.Cut(v[:min(len(v), 128)], []byte("|"))
	if !ok || len(name) == 0 || len(rest) < 4 || whole && v[len(v)-1] != ';' && v[len(v)-1] != '}' {
		return false
	}
	for _, c := range name {
		if c <= ' ' || c == '"' || c == '{' || c == ';' || c > '~' {
			return false
		}
	}
	rest = v[len(name)+1:]
	switch {
	case rest[1] != ':':
		return false
	case rest[0] == 'i' || rest[0] == 'd' || rest[0] == 'b':
		end := bytes.IndexByte(rest[:min(len(rest), maxNumber)], ';')
		return end > 0 && isPHP(rest[:end+1], true)
	case rest[0] == 's':
		n, quoted, ok := phpLength(rest[2:])
		return ok && len(quoted) > 0 && quoted[0] == '"' && (n > len(quoted)-3 && !whole || n <= len(quoted)-3 && quoted[n+1] == '"' && quoted[n+2] == ';')
	}
	return isPHP(rest, whole)
}
