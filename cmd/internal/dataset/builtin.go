package dataset

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/balekv/bale/cmd/internal/dataset/shop"
	"github.com/balekv/bale/cmd/internal/dataset/shop/flat"
	"github.com/balekv/bale/cmd/internal/dataset/shop/shoppb"
)

// The sizes of the built-in sets, in values: enough for a dictionary to be trained on, few enough
// to be made in a moment.
const (
	builtInValues  = 2000
	builtInLogs    = 200
	builtInTexts   = 1000
	builtInFields  = 400 // of 100 fields
	builtInLarge   = 100 // of 1,000 fields
	builtInBatches = 4   // of 10 MB
	logEntries     = 80
	batchEntries   = 62_500 // 10 MB of JSON
	randomSize     = 1024   // bytes
)

// set is a built-in set: its name and how to make it.
type set struct {
	name string
	make func(name string, seed uint64) (*Dataset, error)
}

// builtIn are the sets, in the order that Names gives.
func builtIn() []set {
	return []set{
		{"profiles", generated[shoppb.Profile](builtInValues, profile)},
		{"sessions", generated[shoppb.Session](builtInValues, session)},
		{"logs", generated[shoppb.LogBatch](builtInLogs, logs(logEntries))},
		{"text", texts},
		{"protobuf", messages},
		{"random", random},
		{"fields10", generated[shoppb.Fields10](builtInValues, filled[shop.Fields10])},
		{"fields100", generated[shoppb.Fields100](builtInFields, filled[shop.Fields100])},
		{"fields1000", generated[shoppb.Fields1000](builtInLarge, filled[shop.Fields1000])},
		{"flat1000", reflected(builtInLarge, filled[flat.Fields1000])},
		{"log10mb", generated[shoppb.LogBatch](builtInBatches, logs(batchEntries))},
	}
}

// Names lists the built-in sets. "profiles" are users (about 450 bytes of JSON), and "protobuf" has
// the same values as protocol buffers. "sessions" have a cart (800 bytes). "logs" are batches of 12
// KB, and "log10mb" batches of 10 MB. "text" is 2 KB of prose, and "random" 1 KB of random bytes.
// "fields10", "fields100" and "fields1000" are structs with that many fields of mixed types, the
// 1,000 in ten groups. They have about 370 bytes, 3.6 KB and 36 KB. "flat1000" has 1,000 fields in
// a row, for codecs that reflect.
func Names() []string {
	var names []string
	for _, s := range builtIn() {
		names = append(names, s.name)
	}
	return names
}

// Make makes a built-in set from a seed; the same seed makes the same values. It takes a moment;
// log10mb takes about a second.
func Make(name string, seed uint64) (*Dataset, error) {
	for _, s := range builtIn() {
		if s.name == name {
			return s.make(name, seed)
		}
	}
	return nil, fmt.Errorf("no built-in set %q; there are %q", name, Names())
}

// generated makes a set of a type that has generated code; M is its message.
func generated[M, T any, P code[T], PM message[M]](n int, make1 func(*rand.Rand, int) T) func(string, uint64) (*Dataset, error) {
	return func(name string, seed uint64) (*Dataset, error) {
		return newGenerated[M, T, P, PM](name, several(n, seed, make1))
	}
}

// reflected makes a set of a type without generated code.
func reflected[T any](n int, make1 func(*rand.Rand, int) T) func(string, uint64) (*Dataset, error) {
	return func(name string, seed uint64) (*Dataset, error) {
		return newStructs(name, several(n, seed, make1))
	}
}

func several[T any](n int, seed uint64, make1 func(*rand.Rand, int) T) []T {
	rng := rand.New(rand.NewPCG(seed, 0))
	values := make([]T, n)
	for i := range values {
		values[i] = make1(rng, i)
	}
	return values
}

func random(name string, seed uint64) (*Dataset, error) {
	rng := rand.New(rand.NewPCG(seed, 1))
	blobs := make([][]byte, builtInValues)
	for i := range blobs {
		blobs[i] = make([]byte, randomSize)
		for j := range blobs[i] {
			blobs[i][j] = byte(rng.Uint32())
		}
	}
	return newBytes(name, Typed, blobs), nil
}

func texts(name string, seed uint64) (*Dataset, error) {
	rng := rand.New(rand.NewPCG(seed, 2))
	raw := make([][]byte, builtInTexts)
	for i := range raw {
		raw[i] = text(rng, 1800+rng.IntN(500))
	}
	return newText(name, Typed, raw), nil
}

// messages makes the profiles as a program stores them that speaks protocol buffers: as bytes.
func messages(name string, seed uint64) (*Dataset, error) {
	profiles, err := Make("profiles", seed)
	if err != nil {
		return nil, err
	}
	coder, err := profiles.Coder("protobuf")
	if err != nil {
		return nil, err
	}
	raw := make([][]byte, len(profiles.Raw))
	for i := range raw {
		if raw[i], err = coder.Encode(nil, i); err != nil {
			return nil, err
		}
	}
	return newBytes(name, Typed, raw), nil
}

// epoch keeps the sets the same at every run.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func within(rng *rand.Rand, d time.Duration) time.Time {
	return epoch.Add(time.Duration(rng.Int64N(int64(d)))).Truncate(time.Millisecond)
}

func pick(rng *rand.Rand, from ...string) string { return from[rng.IntN(len(from))] }

func hexDigits(rng *rand.Rand, n int) string { return digits(rng, n, "0123456789abcdef") }

func digits(rng *rand.Rand, n int, alphabet string) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[rng.IntN(len(alphabet))]
	}
	return string(b)
}

func first(rng *rand.Rand) string {
	return pick(rng, "Ada", "Grace", "Linus", "Mei", "Omar", "Ines", "Jonas", "Priya", "Lucía", "Noah", "Aiko", "Tomasz", "Zoë", "Kofi", "Hanna", "Yusuf")
}

func last(rng *rand.Rand) string {
	return pick(rng, "Lovelace", "Hopper", "Nakamura", "García", "Schmidt", "Okafor", "Novak", "Rossi", "Kim", "Andersen", "Dubois", "Silva", "Haddad", "Müller", "Kowalski", "Singh")
}

func profile(rng *rand.Rand, i int) shop.Profile {
	f, l := first(rng), last(rng)
	id := 100_000 + int64(i)*17 + rng.Int64N(17)
	tags := []string{}
	for range 1 + rng.IntN(3) {
		tags = append(tags, pick(rng, "early-adopter", "newsletter", "vip", "beta", "wholesale", "returns-often"))
	}
	return shop.Profile{
		ID: id, Name: f + " " + l, Email: fmt.Sprintf("user%d@%s", id, pick(rng, "example.com", "example.org", "mail.example.net")),
		Country: pick(rng, "DE", "FR", "US", "JP", "BR", "NG", "IN", "PL"), Language: pick(rng, "de", "fr", "en", "ja", "pt", "hi", "pl"),
		Avatar: "https://cdn.example.com/avatars/" + hexDigits(rng, 32) + ".png",
		Plan:   pick(rng, "free", "free", "free", "pro", "team"), Verified: rng.IntN(3) > 0, Balance: rng.IntN(100_000),
		CreatedAt: within(rng, 3*365*24*time.Hour),
		Settings: shop.Settings{Theme: pick(rng, "light", "dark", "system"), Newsletter: rng.IntN(2) == 0, Notifications: pick(rng, "all", "mentions", "none"),
			Timezone: pick(rng, "Europe/Berlin", "America/New_York", "Asia/Tokyo", "Africa/Lagos", "America/Sao_Paulo")},
		Tags: tags,
	}
}

func session(rng *rand.Rand, _ int) shop.Session {
	s := shop.Session{
		Token: hexDigits(rng, 64), UserID: 100_000 + rng.Int64N(40_000),
		IP:        fmt.Sprintf("203.0.113.%d", rng.IntN(256)),
		UserAgent: fmt.Sprintf("Mozilla/5.0 (%s) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/%d.0.0.0 Safari/537.36", pick(rng, "X11; Linux x86_64", "Windows NT 10.0; Win64; x64", "Macintosh; Intel Mac OS X 10_15_7"), 120+rng.IntN(30)),
		ExpiresAt: within(rng, 30*24*time.Hour),
		Scopes:    []string{"read:profile", "write:cart", pick(rng, "read:orders", "read:invoices")},
		Cart:      []shop.Item{},
	}
	for range 1 + rng.IntN(10) {
		s.Cart = append(s.Cart, shop.Item{
			SKU:   fmt.Sprintf("%s-%05d", pick(rng, "SHOE", "BOOK", "LAMP", "DESK", "CABLE"), rng.IntN(100_000)),
			Title: pick(rng, "Trail running shoe", "Reading lamp, brass", "Standing desk, oak", "Cable, USB-C, 2 m", "The Art of Small Values", "Notebook, dotted, A5"),
			Price: 199 + rng.IntN(50_000), Quantity: 1 + rng.IntN(3),
		})
	}
	return s
}

func logs(entries int) func(*rand.Rand, int) shop.LogBatch {
	return func(rng *rand.Rand, _ int) shop.LogBatch { return logBatch(rng, entries) }
}

func logBatch(rng *rand.Rand, entries int) shop.LogBatch {
	b := shop.LogBatch{Service: pick(rng, "checkout", "catalog", "search", "auth"), Host: fmt.Sprintf("node-%02d.eu-central.example.com", rng.IntN(40))}
	at := within(rng, 24*time.Hour)
	for range entries {
		at = at.Add(time.Duration(rng.IntN(250)) * time.Millisecond)
		b.Entries = append(b.Entries, shop.LogEntry{
			Time: at, Level: pick(rng, "info", "info", "info", "debug", "warn", "error"), TraceID: hexDigits(rng, 32), Micros: 100 + rng.IntN(90_000),
			Message: pick(rng, "GET /api/v1/products served from cache", "cache miss, loading from database", "payment authorised", "token refreshed", "slow query: SELECT * FROM orders WHERE user_id = $1", "upstream timed out, retrying"),
		})
	}
	return b
}
