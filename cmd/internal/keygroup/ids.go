package keygroup

import "strings"

// json returns the end of what looks like JSON and starts at i, 0 for none.
func json(key string, i int) int {
	if i+1 >= len(key) || key[i] != '{' && key[i] != '[' {
		return 0
	}
	if next := key[i+1]; next != '"' && next != '\'' && (key[i] != '[' || next != '{') {
		return 0
	}
	if e := strings.LastIndexAny(key[i:], "}]"); e > 0 {
		return i + e + 1
	}
	return 0
}

// wholeID returns the end of an id that starts at i and that only a whole part can be. The part
// ends at segment as far as separators go, but the id may contain separators. Zero means no id.
func wholeID(key string, i, segment int, primary, seen uint16) int {
	switch b := key[i]; {
	case b == '{' || b == '[':
		return json(key, i)
	case b == '"' || b == '\'' || b == '`':
		if e := strings.IndexByte(key[i+1:], b); e >= 0 {
			return i + 1 + e + 1
		}
	case b == '/' && i > 0 && primary == colon:
		return pathEnd(key, i)
	case b|0x20 >= 'a' && b|0x20 <= 'z':
		if e := url(key, i); e > 0 {
			return e
		}
	}
	if primary == colon {
		if e := ipv6(key, i); e > 0 {
			return e
		}
	}
	s := key[i:segment]
	if i > 0 && seen&question != 0 {
		if _, query, ok := strings.Cut(s, "?"); ok && strings.IndexByte(query, '=') > 0 {
			return segment
		}
	}
	if i > 0 && seen&slash != 0 && primary == colon && extension(s) {
		return segment
	}
	if seen&digit != 0 && seen&upper != 0 && seen&lower == 0 && i > 0 && code(s) && hasLower(key[:i]) {
		return segment
	}
	return 0
}

// idAt returns the end of an id that starts at i, with separators of its own in it. Zero is for
// none.
func idAt(key string, i, segment int, primary, seen uint16) int {
	b := key[i]
	c := classes[b]
	if (b == '-' || b == '+') && is(key, i+1, digit) && (i == 0 || !is(key, i-1, word)) {
		i++ // a sign
		b, c = key[i], digit
	}
	if c&alnum == 0 || i > 0 && is(key, i-1, word) {
		return 0
	}
	if seen&digit != 0 {
		if c&(digit|hexLetter) != 0 {
			if e := uuid(key, i); e > 0 {
				return e
			}
		}
		if c&digit != 0 {
			if e := timestamp(key, i); e > 0 {
				return e
			}
			if e := numbers(key, i); e > 0 {
				return e
			}
		} else if b|0x20 == 'v' {
			if e := numbers(key, i+1); e > 0 {
				return e
			}
		}
	}
	if seen&at != 0 {
		if e := mail(key, i); e > 0 {
			return e
		}
	}
	if strings.HasPrefix(key[i:], "eyJ") {
		if e := run(key, i, "-_."); e-i > 20 {
			return e
		}
	}
	if e := locale(key, i); e > 0 {
		return e
	}
	if seen&dot != 0 {
		if e := host(key, i); e > 0 {
			return e
		}
	}
	if segment-i >= 12 && seen&upper != 0 {
		extra := "-_+=~"
		if primary == colon && seen&slash != 0 {
			extra = "-_+=~/"
		}
		// In cus_NffrFeUfNV2Hib the word in front is none of the id.
		first := i
		for is(key, first, lower) {
			first++
		}
		named := first-i >= 2 && first-i <= 10 && first < len(key) && key[first] == '_'
		if e := run(key, i, extra); !named && e-i >= 12 && random(key[i:e]) {
			return e
		}
	}
	return 0
}

// run returns the end of the letters, digits and extra bytes from i.
func run(key string, i int, extra string) int {
	for i < len(key) && (is(key, i, alnum) || strings.IndexByte(extra, key[i]) >= 0) {
		i++
	}
	return i
}

// digits returns how many digits there are from i.
func digits(key string, i int) int {
	n := 0
	for is(key, i+n, digit) {
		n++
	}
	return n
}

// uuid is one with dashes.
func uuid(key string, i int) int {
	if len(key)-i < 36 || key[i+8] != '-' || key[i+13] != '-' || key[i+18] != '-' || key[i+23] != '-' {
		return 0
	}
	for j := i; j < i+36; j++ {
		if key[j] != '-' && !is(key, j, digit|hexLetter) {
			return 0
		}
	}
	if is(key, i+36, word) {
		return 0
	}
	return i + 36
}

// timestamp is an ISO date with a time: 2026-11-21T10:30:00.123+01:00, or with a space, '_', '-' or
// ':' for the T.
func timestamp(key string, i int) int {
	at := func(j int, n int) bool { return digits(key, j) == n }
	var e int
	switch {
	case at(i, 4) && i+6 < len(key) && key[i+4] == '-' && key[i+5] == 'W' && at(i+6, 2): // a week
		e = i + 8
	case at(i, 4) && (is(key, i+4, slash|dot) || i+4 < len(key) && key[i+4] == '-') && at(i+5, 2) && i+7 < len(key) && key[i+7] == key[i+4] && digits(key, i+8) >= 2:
		e = i + 10
	case at(i, 8):
		e = i + 8
	default:
		return 0
	}
	if is(key, e, digit) {
		return 0
	}
	if e < len(key) && strings.IndexByte("T _-:t", key[e]) >= 0 && at(e+1, 2) && e+3 < len(key) && key[e+3] == ':' && at(e+4, 2) {
		e += 6
		if e < len(key) && key[e] == ':' && at(e+1, 2) {
			e += 3
		}
		if e < len(key) && key[e] == '.' && digits(key, e+1) > 0 {
			e += 1 + digits(key, e+1)
		}
	} else if e < len(key) && key[e]|0x20 == 't' && digits(key, e+1) >= 4 {
		e += 1 + digits(key, e+1)
	}
	if e < len(key) && (key[e] == 'Z' || key[e] == 'z') {
		e++
	} else if e < len(key) && (key[e] == '+' || key[e] == '-') && at(e+1, 2) && e+3 < len(key) && key[e+3] == ':' && at(e+4, 2) {
		e += 6
	}
	if is(key, e, word) {
		return 0
	}
	return e
}

// numbers are two or more with dots between: an IP address of version 4, a version, a float.
func numbers(key string, i int) int {
	n, e := 0, i
	for digits(key, e) > 0 {
		e += digits(key, e)
		if n++; !is(key, e, dot) || !is(key, e+1, digit) {
			break
		}
		e++
	}
	if n < 2 || is(key, e, word) {
		return 0
	}
	if n == 4 && e < len(key) && key[e] == '/' && digits(key, e+1) > 0 && !is(key, e+1+digits(key, e+1), word) && digits(key, e+1) <= 2 {
		e += 1 + digits(key, e+1)
	}
	return e
}

// ipv6 matches an address of version 6. Its first group, of three or four characters with a digit,
// distinguishes it from words such as "add" and "cafe".
func ipv6(key string, i int) int {
	first := i
	for is(key, first, digit|hexLetter) && first < i+5 {
		first++
	}
	if n := first - i; n != 3 && n != 4 || !strings.ContainsAny(key[i:first], "0123456789") {
		return 0
	}
	groups, compressed, e := 0, false, i
	letters := false
	for groups < 8 {
		n := 0
		for n < 5 && is(key, e+n, digit|hexLetter) {
			letters = letters || is(key, e+n, hexLetter)
			n++
		}
		if n == 0 || n > 4 || is(key, e+n, word) {
			break
		}
		groups++
		e += n
		if e >= len(key) || key[e] != ':' {
			break
		}
		if e+1 < len(key) && key[e+1] == ':' {
			if compressed {
				break
			}
			compressed = true
			e++
		}
		e++
	}
	if groups < 8 && (!compressed || groups < 2) || groups == 8 && !compressed && !letters {
		return 0
	}
	if e > i && key[e-1] == ':' && !strings.HasSuffix(key[i:e], "::") || groups == 8 && e < len(key) && key[e-1] == ':' {
		e--
	}
	return e
}

// pathEnd is where a path ends that starts at i.
func pathEnd(key string, i int) int {
	for i < len(key) && key[i] != '|' && (key[i] != ':' || port(key, i)) {
		i++
	}
	return i
}

// port reports whether the colon at i has a port behind it, or the rest of "https://".
func port(key string, i int) bool {
	n := digits(key, i+1)
	return n > 0 && n <= 5 && is(key, i+1+n, slash|question) || strings.HasPrefix(key[i:], "://")
}

// url is an address with its scheme.
func url(key string, i int) int {
	e := i
	for e < len(key) && e-i < 10 && (is(key, e, alnum) || key[e] == '+') {
		e++
	}
	if !strings.HasPrefix(key[e:], "://") || !schemes[key[i:e]] {
		return 0
	}
	return pathEnd(key, e)
}

// mail is an e-mail address.
func mail(key string, i int) int {
	e := i
	for e < len(key) && (is(key, e, alnum) || strings.IndexByte("._%+-'", key[e]) >= 0) {
		e++
	}
	if e == i || !is(key, e, at) {
		return 0
	}
	// In user_ada@example.org of a key with no other part, "user" is a word.
	if j := strings.IndexByte(key[i:e], '_'); i == 0 && j > 0 {
		return 0
	}
	dots := 0
	j := e + 1
	for j < len(key) && (is(key, j, alnum|dot) || key[j] == '-') {
		if is(key, j, dot) {
			dots++
		}
		j++
	}
	if dots == 0 {
		return 0
	}
	return j
}

// host is a name of a host: of two labels or more, the last of which is a domain that is no word.
func host(key string, i int) int {
	e, last, labels := i, i, 1
	for e < len(key) && (is(key, e, alnum) || key[e] == '-' || is(key, e, dot) && is(key, e+1, alnum)) {
		if is(key, e, dot) {
			last = e + 1
			labels++
		}
		e++
	}
	if labels < 2 || is(key, e, word) || !domains[key[last:e]] && (labels < 3 || !countries[key[last:e]]) {
		return 0
	}
	if e < len(key) && key[e] == ':' {
		if n := digits(key, e+1); n >= 2 && n <= 5 && !is(key, e+1+n, word) { // its port
			e += 1 + n
		}
	}
	return e
}

// extension reports whether a path ends in a file's name.
func extension(s string) bool {
	j := strings.LastIndexByte(s, '.')
	if j <= 0 || len(s)-j-1 < 2 || len(s)-j-1 > 5 || !is(s, j-1, word) {
		return false
	}
	for k := j + 1; k < len(s); k++ {
		if !is(s, k, alnum) {
			return false
		}
	}
	return strings.LastIndexByte(s, '/') < j
}

// code is one of capitals and digits that starts with a capital, such as SKU-8837-XL.
func code(s string) bool {
	if !is(s, 0, upper) {
		return false
	}
	for i := range len(s) {
		if !is(s, i, upper|digit) && s[i] != '-' {
			return false
		}
	}
	return strings.IndexByte(s, '-') > 0
}

func hasLower(s string) bool {
	for i := range len(s) {
		if is(s, i, lower) {
			return true
		}
	}
	return false
}

// locale is a language with a country: en-US, pt_br.
func locale(key string, i int) int {
	if len(key)-i < 5 || key[i+2] != '-' && key[i+2] != '_' || is(key, i+5, word) || !is(key, i, letter) || !is(key, i+1, letter) {
		return 0
	}
	if kindOf(key[i:i+2])&language == 0 || kindOf(key[i+3:i+5])&country == 0 {
		return 0
	}
	return i + 5
}

// random reports whether a token changes between small letters, capitals and digits as often as
// drawn ones do. Of the pairs in base64 62% do; of those in camelCaseWords, a fifth.
func random(s string) bool {
	changes, pairs, last := 0, -1, uint16(0)
	for i := range len(s) {
		c := classes[s[i]] & alnum
		if c == 0 {
			continue
		}
		if pairs++; pairs > 0 && c != last {
			changes++
		}
		last = c
	}
	return pairs >= 7 && changes*100 >= pairs*36
}

// classify says how many bytes of a token, of letters and digits, are a word, and whether an id is
// behind them.
func classify(s string) (keep int, id bool) {
	if len(s) > 64 {
		return 0, true
	}
	var seen uint16
	hex := true
	changes, last, letters := 0, uint16(0), 0
	for i := range len(s) {
		c := classes[s[i]] & (alnum | high)
		seen |= c
		hex = hex && classes[s[i]]&(digit|hexLetter) != 0
		isDigit := c & digit
		if i > 0 && isDigit != last {
			changes++
		}
		last = isDigit
		if changes == 0 && isDigit == 0 {
			letters++
		}
	}
	switch {
	case seen&digit == 0:
		if seen&lower != 0 && seen&upper != 0 && len(s) >= 8 && random(s) {
			return 0, true
		}
		return len(s), false
	case seen&^digit == 0:
		return 0, true
	case hex && len(s) >= 7:
		return 0, true
	case letters == 1 && changes == 1 && (len(s) <= 3 || s[0]|0x20 == 'v' && len(s) <= 4): // v2, p95
		return len(s), false
	case known[s]:
		return len(s), false
	case letters >= 3 && (gluing[s[:letters]] || changes <= 2 && wordLike(s[:letters]) && len(s)-letters <= 10):
		return letters, true
	}
	return 0, true
}

// wordLike reports whether letters could be a word.
func wordLike(s string) bool {
	vowels, consonants, cases := 0, 0, 0
	for i := range len(s) {
		if strings.IndexByte("aeiouyAEIOUY", s[i]) >= 0 || s[i] >= 0x80 {
			vowels++
			consonants = 0
		} else if consonants++; consonants > 4 {
			return false
		}
		if i > 1 && classes[s[i]]&letter != classes[s[i-1]]&letter {
			cases++
		}
	}
	return vowels > 0 && cases*4 <= len(s)
}

func set(words string) map[string]bool {
	m := make(map[string]bool)
	for w := range strings.FieldsSeq(words) {
		m[w] = true
	}
	return m
}

var (
	// known are words with a digit in them.
	known = set("md5 sha1 sha256 sha512 oauth1 oauth2 ipv4 ipv6 utf8 utf16 base32 base58 base64 s3 ec2 mp3 mp4 h264 h265 http2 http3 k8s i18n l10n a11y e2e b2b b2c p2p 2fa 2d 3d x509 crc32 k6 log4j auth0 neo4j")

	// gluing are words that ids of any kind are glued to.
	gluing = set("user usr sess session order item cart token key cache job task post page product prod msg message chat room event file img image video doc lock queue account acct " +
		"customer cust client device node host server shard worker group team org project game player match ticket invoice payment article comment category tag")

	// schemes are those of addresses. Base64 may have any letters before its slashes.
	schemes = set("http https ftp sftp ws wss s3 gs file git ssh tcp udp redis rediss amqp amqps kafka mongodb postgres postgresql mysql jdbc grpc android ios data")

	// domains are what names of hosts end in; countries are that for names of three labels or more,
	// for home.de may be a page in German.
	domains   = set("com org net edu gov")
	countries = set("io dev local lan internal example test de fr uk nl eu ch pl se cz ru br cn jp kr au ca es pt dk hu gr ro ua cloud")
)

// codeKind is which lists a code is in.
type codeKind uint8

const (
	language codeKind = 1 << iota
	country
	currency
)

var codes = func() map[string]codeKind {
	m := make(map[string]codeKind)
	for kind, words := range map[codeKind]string{
		language: "en de fr es it pt nl sv da fi nb no pl cs sk sl hr hu ro bg el tr ru uk ja ko zh ar he fa hi bn ta th vi id ms et lv lt sr ca eu ga cy sq mk",
		country:  "us gb uk de fr es it pt br nl be at ch se dk no fi pl cz sk hu ro bg gr tr ru ua jp kr cn tw hk sg in au nz ca mx ar cl co pe za eg ng ke il ae sa ie lu lt lv ee si hr rs my th vn ph id pk",
		currency: "usd eur gbp jpy chf cad aud nzd sek nok dkk pln czk huf ron bgn try rub uah cny hkd twd krw sgd inr idr myr php thb vnd brl mxn ars clp cop pen zar egp ngn kes ils aed sar btc eth",
	} {
		for w := range strings.FieldsSeq(words) {
			m[w] |= kind
		}
	}
	return m
}()

// kindOf is what a word of small letters or of capitals is a code of.
func kindOf(s string) codeKind {
	if len(s) < 2 || len(s) > 3 {
		return 0
	}
	var small [3]byte
	for i := range len(s) {
		small[i] = s[i] | 0x20
	}
	return codes[string(small[:len(s)])]
}
