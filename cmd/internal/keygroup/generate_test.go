package keygroup

import (
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"
)

// pattern is a group of keys as a program makes them.
type pattern struct {
	name string // as it has to be found
	key  func(r *source) string
}

// source makes ids.
type source struct{ *rand.Rand }

func newSource(seed uint64) *source { return &source{rand.New(rand.NewPCG(seed, 1))} }

func (r *source) of(alphabet string, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(b)
}

func (r *source) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

const (
	digitsOnly = "0123456789"
	smallOnly  = "abcdefghijklmnopqrstuvwxyz"
	capitals   = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	base62     = digitsOnly + smallOnly + capitals
	crockford  = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
)

func (r *source) uuid() string {
	h := hex.EncodeToString(r.bytes(16))
	return h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-" + h[16:20] + "-" + h[20:]
}
func (r *source) number() string { return fmt.Sprint(r.IntN(1 << (4 + r.IntN(40)))) }
func (r *source) nanoid() string { return r.of(base62+"_-", 21) }
func (r *source) ulid() string   { return "01" + r.of(crockford, 24) }
func (r *source) ksuid() string  { return r.of(base62, 27) }
func (r *source) base64() string { return base64.StdEncoding.EncodeToString(r.bytes(18 + r.IntN(6))) }
func (r *source) base64u() string {
	return base64.RawURLEncoding.EncodeToString(r.bytes(16 + r.IntN(16)))
}
func (r *source) md5() string    { h := md5.Sum(r.bytes(8)); return hex.EncodeToString(h[:]) }
func (r *source) sha1() string   { h := sha1.Sum(r.bytes(8)); return hex.EncodeToString(h[:]) }
func (r *source) sha256() string { h := sha256.Sum256(r.bytes(8)); return hex.EncodeToString(h[:]) }
func (r *source) time() time.Time {
	return time.Unix(1.6e9+int64(r.IntN(2e8)), int64(r.IntN(1e9))).UTC()
}
func (r *source) ipv4() string {
	return netip.AddrFrom4([4]byte(r.bytes(4))).String()
}

func (r *source) ipv6() string {
	b := [16]byte(r.bytes(16))
	b[0], b[1] = 0x20, 0x01
	if r.IntN(2) == 0 {
		clear(b[4:12])
	}
	return netip.AddrFrom16(b).String()
}

// word is one of very many that could be.
func (r *source) word() string {
	var b strings.Builder
	for range 2 + r.IntN(2) {
		b.WriteByte("bcdfghklmnprstvw"[r.IntN(16)])
		b.WriteByte("aeiou"[r.IntN(5)])
	}
	if r.IntN(3) == 0 {
		b.WriteByte("nrstl"[r.IntN(5)])
	}
	return b.String()
}

func (r *source) user() string {
	switch r.IntN(6) {
	case 0:
		return r.word() + fmt.Sprint(r.IntN(100))
	case 1:
		return r.word() + "_" + r.word()
	case 2:
		return r.word() + "." + r.word()
	default:
		return r.word() + r.word()
	}
}

func (r *source) slug() string {
	words := []string{"the", "how", "to", "my", "first", "best", "ten", "of", "guide", "with", "new", "and", "10", "2026", "a"}
	var b strings.Builder
	for i := range 2 + r.IntN(6) {
		if i > 0 {
			b.WriteByte('-')
		}
		if r.IntN(2) == 0 {
			b.WriteString(words[r.IntN(len(words))])
		} else {
			b.WriteString(r.word())
		}
	}
	b.WriteString("-" + r.word())
	return b.String()
}

func (r *source) mail() string {
	return strings.ToLower(r.user()) + "@" + r.pick("example.com", "mail.example.org", "corp.co.uk", "gmail.com")
}

func (r *source) host() string {
	return r.word() + "-" + fmt.Sprint(r.IntN(50)) + "." + r.pick("example.com", "eu-west-1.example.net", "db.internal")
}

func (r *source) path() string {
	var b strings.Builder
	for range 1 + r.IntN(4) {
		b.WriteString("/" + r.pick("shop", "blog", "about", r.word(), fmt.Sprint(r.IntN(1000))))
	}
	if r.IntN(3) == 0 {
		b.WriteString("?x=" + fmt.Sprint(r.IntN(100)) + "&q=" + r.word())
	}
	return b.String()
}

func (r *source) pick(of ...string) string { return of[r.IntN(len(of))] }

// any is an id of one of many kinds.
func (r *source) any() string {
	switch r.IntN(8) {
	case 0:
		return r.uuid()
	case 1:
		return r.md5()
	case 2:
		return r.ulid()
	case 3:
		return r.nanoid()
	case 4:
		return r.user()
	case 5:
		return r.mail()
	case 6:
		return r.base64u()
	default:
		return r.number()
	}
}

// mixed are 20 patterns with ids of every kind.
var mixed = []pattern{
	{"user:*:profile", func(r *source) string { return "user:" + r.any() + ":profile" }},
	{"user:*:cart:v2", func(r *source) string { return "user:" + r.number() + ":cart:v2" }},
	{"user:*", func(r *source) string { return "user:" + r.user() }},
	{"order:*", func(r *source) string { return "order:" + r.any() }},
	{"session:*", func(r *source) string { return "session:" + r.uuid() }},
	{"token:*:refresh", func(r *source) string { return "token:" + r.pick(r.base64u(), r.nanoid(), r.ksuid()) + ":refresh" }},
	{"blob:*", func(r *source) string { return "blob:" + r.pick(r.sha256(), r.sha1(), r.md5(), r.base64()) }},
	{"post:*", func(r *source) string { return "post:" + r.slug() }},
	{"post:*:comments", func(r *source) string { return "post:" + r.slug() + ":comments" }},
	{"page:*", func(r *source) string { return "page:" + r.path() }},
	{"ip:*:hits", func(r *source) string { return "ip:" + r.pick(r.ipv4(), r.ipv6()) + ":hits" }},
	{"mail:*", func(r *source) string { return "mail:" + r.mail() }},
	{"daily:*:views", func(r *source) string {
		return "daily:" + r.time().Format(r.pick("2006-01-02", "20060102", time.RFC3339, "2006-01-02T15:04:05.000Z07:00", "2006-01-02 15:04:05")) + ":views"
	}},
	{"at:*", func(r *source) string { return "at:" + fmt.Sprint(r.time().Unix(), "") + r.pick("", "000") }},
	{"{user:*}:cart", func(r *source) string { return "{user:" + r.number() + "}:cart" }},
	{"{*}:lock", func(r *source) string { return "{" + r.pick(r.number(), r.uuid()) + "}:lock" }},
	{"host:*:load", func(r *source) string { return "host:" + r.host() + ":load" }},
	{"i18n:*:*", func(r *source) string {
		return "i18n:" + r.pick("en", "de", "fr", "es", "it", "pt-BR", "en-US", "zh_CN", "ja") + ":" + r.word() + "." + r.word()
	}},
	{"sess*", func(r *source) string { return "sess" + r.number() + r.pick("abc", "", "x") }},
	{"user_*_settings", func(r *source) string { return "user_" + r.number() + "_settings" }},
}

// flat are patterns with weak separators, names and binary parts.
var flat = []pattern{
	{"member_*_profile", func(r *source) string { return "member_" + r.word() + r.word() + "_profile" }},
	{"member_*_cart", func(r *source) string { return "member_" + r.word() + r.word() + "_cart" }},
	{"app/users/*/avatar", func(r *source) string { return "app/users/" + r.number() + "/avatar" }},
	{"app/posts/*", func(r *source) string { return "app/posts/" + r.slug() }},
	{"metrics.web*-*.cpu", func(r *source) string { return "metrics.web" + fmt.Sprint(r.IntN(9000)) + "-" + r.word() + ".cpu" }},
	{"metrics.web*-*.mem", func(r *source) string { return "metrics.web" + fmt.Sprint(r.IntN(9000)) + "-" + r.word() + ".mem" }},
	{"raw:*", func(r *source) string { return "raw:" + string(r.bytes(16)) }},
	{"quoted:*:x", func(r *source) string { return `quoted:"` + r.word() + " " + r.slug() + `":x` }},
	{"rate:GET:*", func(r *source) string { return "rate:GET:" + r.ipv4() }},
	{"rate:POST:*", func(r *source) string { return "rate:POST:" + r.ipv4() }},
	{"rate:DELETE:*", func(r *source) string { return "rate:DELETE:" + r.ipv4() }},
	{"follows:*:*", func(r *source) string { return "follows:" + r.user() + ":" + r.user() }},
	{"release:*", func(r *source) string { return fmt.Sprintf("release:v%d.%d.%d", r.IntN(9), r.IntN(90), r.IntN(900)) }},
	{"files:*", func(r *source) string {
		return "files:" + strings.TrimPrefix(r.path(), "/") + "/" + r.word() + r.pick(".jpg", ".png")
	}},
	{"url:*", func(r *source) string { return "url:https://" + r.host() + r.pick("", ":8080") + r.path() }},
	{"geo:*", func(r *source) string { return fmt.Sprintf("geo:%.4f,%.4f", r.Float64()*360-180, r.Float64()*180-90) }},
	{"user#*|*", func(r *source) string { return "user#" + r.number() + "|" + r.uuid() }},
	{"slot:*:*:*", func(r *source) string { return "slot:" + r.time().Format("15:04:05") }},
	{"cache:user:*:[*]", func(r *source) string { return "cache:user:" + r.number() + ":[" + r.number() + "]" }},
	{"weird\\*:*", func(r *source) string { return "weird*:" + r.number() }},
}

// wild are patterns that programs and frameworks make.
var wild = []pattern{
	{"views/products/*/*", func(r *source) string {
		return "views/products/" + fmt.Sprint(r.IntN(9000)) + "-" + r.time().Format("20060102150405") + "/" + r.md5()
	}},
	{"laravel_cache:users.*", func(r *source) string { return "laravel_cache:users." + fmt.Sprint(r.IntN(1e6)) }},
	{":1:views.decorators.cache.cache_page..GET.*.UTC", func(r *source) string {
		return ":1:views.decorators.cache.cache_page..GET." + r.md5() + "." + r.md5() + "." + r.pick("en-us", "de", "fr", "es", "ja") + ".UTC"
	}},
	{"bull:mail:*", func(r *source) string { return "bull:mail:" + fmt.Sprint(r.IntN(1e6)) }},
	{"stat:processed:*", func(r *source) string { return "stat:processed:" + r.time().Format("2006-01-02") }},
	{"spring:session:sessions:expires:*", func(r *source) string { return "spring:session:sessions:expires:" + r.uuid() }},
	{"spring:session:sessions:*", func(r *source) string { return "spring:session:sessions:" + r.uuid() }},
	{"rl:*:*", func(r *source) string { return "rl:" + r.ipv4() + ":" + r.pick("/login", "/api/v1/items", "/search") }},
	{"feature:*:enabled", func(r *source) string { return "feature:" + r.word() + "-" + r.word() + ":enabled" }},
	{"leaderboard:weekly:*", func(r *source) string {
		return fmt.Sprintf("leaderboard:weekly:%d-W%02d-%d", 2000+r.IntN(26), r.IntN(53), r.IntN(100))
	}},
	{"tile:*:*:*", func(r *source) string { return fmt.Sprintf("tile:%d:%d:%d", r.IntN(20), r.IntN(5000), r.IntN(5000)) }},
	{"price:*:*", func(r *source) string {
		return "price:" + r.pick("EUR", "USD", "GBP", "JPY", "CHF", "SEK") + ":SKU-" + r.of(digitsOnly, 4) + "-" + r.pick("XS", "S", "M", "L", "XL")
	}},
	{"exp:checkout-v2:u:*", func(r *source) string { return "exp:checkout-v2:u:" + r.of(digitsOnly, 6) }},
	{"PHPREDIS_SESSION:*", func(r *source) string { return "PHPREDIS_SESSION:" + r.of(digitsOnly+smallOnly, 26) }},
	{"jwt:*", func(r *source) string {
		return "jwt:eyJhbGciOiJIUzI1NiJ9." + r.base64u() + "." + r.base64u()
	}},
	{"jti:*", func(r *source) string { return "jti:" + r.base64u() }},
	{"cart:*:items", func(r *source) string { return "cart:" + r.of(digitsOnly, 7) + ":items" }},
	{"cart:guest-*:items", func(r *source) string { return "cart:guest-" + r.md5() + ":items" }},
	{"celery-task-meta-*", func(r *source) string { return "celery-task-meta-" + r.uuid() }},
	{"inventory:*:*", func(r *source) string {
		return "inventory:" + r.pick("DE", "FR", "US", "GB", "NL", "AT") + ":" + r.number()
	}},
	{"asynq:{default}:t:*", func(r *source) string { return "asynq:{default}:t:" + r.uuid() }},
}

// blind were written after the rules, to see what they make of them.
var blind = []pattern{
	{"resque:gitlab:cron_job:*", func(r *source) string { return "resque:gitlab:cron_job:" + r.word() + "_worker" }},
	{"cache:gitlab:root_ref:*:*", func(r *source) string { return "cache:gitlab:root_ref:" + r.word() + "/" + r.word() + ":" + r.number() }},
	{"wp:session_tokens:*", func(r *source) string { return "wp:session_tokens:" + r.number() }},
	{"wp_:posts:*", func(r *source) string { return "wp_:posts:" + r.number() }},
	{"wp_:post_meta:*", func(r *source) string { return "wp_:post_meta:" + r.number() }},
	{"zc:k:*", func(r *source) string {
		return "zc:k:" + r.of("0123456789abcdef", 3) + "_" + strings.ToUpper(r.word()) + "_" + strings.ToUpper(r.word()) + "_" + strings.ToUpper(r.sha1())
	}},
	{"c:1:project:*:*", func(r *source) string { return "c:1:project:" + r.number() + ":" + r.of("0123456789abcdef", 8) }},
	{"bull:{orders}:*:logs", func(r *source) string { return "bull:{orders}:" + r.number() + ":logs" }},
	{"bull:rep:repeat:*:*", func(r *source) string { return "bull:rep:repeat:" + r.md5() + ":" + fmt.Sprint(r.time().UnixMilli()) }},
	{"nextjs:*", func(r *source) string { return "nextjs:/blog/" + r.slug() }},
	{"apq:*", func(r *source) string { return "apq:" + r.sha256() }},
	{"keyv:users:*", func(r *source) string { return "keyv:users:" + r.mail() }},
	{"t_*:docs:*", func(r *source) string { return "t_" + r.of(base62, 6) + ":docs:" + r.uuid() }},
	{"billing:cus_*", func(r *source) string { return "billing:cus_" + r.of(base62, 14) }},
	{"geo:*", func(r *source) string { return "geo:" + r.of("0123456789bcdefghjkmnpqrstuvwxyz", 7) }},
	{"item:*", func(r *source) string { return "item:" + r.of("0123456789abcdef", 24) }},
	{"wallet:*", func(r *source) string { return "wallet:0x" + r.of("0123456789abcdefABCDEF", 40) }},
	{"otp:+*", func(r *source) string { return "otp:+49" + r.of(digitsOnly, 10) }},
	{"dev:*:*:*:*:*:*", func(r *source) string {
		h := r.md5()
		return "dev:" + h[:2] + ":" + h[2:4] + ":" + h[4:6] + ":" + h[6:8] + ":" + h[8:10] + ":" + h[10:12]
	}},
	{"flask_cache_view//*/*", func(r *source) string { return "flask_cache_view//" + r.word() + "/" + r.number() }},
	{"fn:get_user(*, *", func(r *source) string { return "fn:get_user(" + r.number() + ", '" + r.word() + "')" }},
	{"totp:*", func(r *source) string { return "totp:" + r.of("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16) }},
	{"push:fcm:*:*", func(r *source) string { return "push:fcm:" + r.of(base62, 22) + ":APA91b" + r.of(base62+"-_", 134) }},
	{"csrf:*", func(r *source) string { return "csrf:" + base64.StdEncoding.EncodeToString(r.bytes(32)) }},
	{"nick:*", func(r *source) string { return "nick:" + r.of(smallOnly, 8) + "." + r.of(smallOnly, 2) }},
	{"report:*:pdf", func(r *source) string {
		return "report:" + r.time().Format("2006-01-02") + "_" + r.time().Format("2006-01-02") + ":pdf"
	}},
	{"quota:*:*", func(r *source) string { return "quota:" + r.number() + ":" + r.time().Format("2006-01") }},
	{"stats.timers.*.p95", func(r *source) string { return "stats.timers." + r.word() + r.word() + ".p95" }},
	{"*::*", func(r *source) string { return "\xac\xed\x00\x05t\x00\x12com.acme.User::" + r.number() }},
	{"products::*", func(r *source) string { return "products::" + r.number() }},
	{"搜索:*", func(r *source) string {
		return "搜索:" + string([]rune{rune(0x4e00 + r.IntN(20000)), rune(0x4e00 + r.IntN(20000))})
	}},
}

// keys makes n different keys of each pattern, in the order of a seed.
func keys(patterns []pattern, n int, seed uint64) []string {
	r := newSource(seed)
	seen := make(map[string]bool)
	var keys []string
	for _, p := range patterns {
		for made, tries := 0, 0; made < n && tries < 4*n; tries++ {
			if k := p.key(r); !seen[k] {
				seen[k] = true
				keys = append(keys, k)
				made++
			}
		}
	}
	r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}
