package dataset

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"
)

// The types of the built-in sets: what a shop keeps in its cache.
type (
	// Profile is a user's profile, about 450 bytes of JSON.
	Profile struct {
		ID        int64     `json:"id"`
		Name      string    `json:"name"`
		Email     string    `json:"email"`
		Country   string    `json:"country"`
		Language  string    `json:"language"`
		Avatar    string    `json:"avatar_url"`
		Plan      string    `json:"plan"`
		Verified  bool      `json:"verified"`
		Balance   int       `json:"balance_cents"`
		CreatedAt time.Time `json:"created_at"`
		Settings  Settings  `json:"settings"`
		Tags      []string  `json:"tags"`
	}

	// Settings are a part of a Profile.
	Settings struct {
		Theme         string `json:"theme"`
		Newsletter    bool   `json:"newsletter"`
		Notifications string `json:"notifications"`
		Timezone      string `json:"timezone"`
	}

	// Session is a login with a cart, about 800 bytes of JSON.
	Session struct {
		Token     string    `json:"token"`
		UserID    int64     `json:"user_id"`
		IP        string    `json:"ip"`
		UserAgent string    `json:"user_agent"`
		ExpiresAt time.Time `json:"expires_at"`
		Scopes    []string  `json:"scopes"`
		Cart      []Item    `json:"cart"`
	}

	// Item is a line of a cart.
	Item struct {
		SKU      string `json:"sku"`
		Title    string `json:"title"`
		Quantity int    `json:"quantity"`
		Price    int    `json:"price_cents"`
	}

	// LogBatch is what a service sent in a moment, about 12 KB of JSON.
	LogBatch struct {
		Service string     `json:"service"`
		Host    string     `json:"host"`
		Entries []LogEntry `json:"entries"`
	}

	// LogEntry is a line of a log.
	LogEntry struct {
		Time    time.Time `json:"time"`
		Level   string    `json:"level"`
		Message string    `json:"message"`
		TraceID string    `json:"trace_id"`
		Micros  int       `json:"duration_us"`
	}
)

// The sizes of the built-in sets, in values: enough for a dictionary to be trained on later, few enough
// to be made in a moment.
const (
	builtInValues = 2000
	builtInLogs   = 200
	logEntries    = 80
	randomSize    = 1024 // bytes
)

// BuiltIn makes the built-in sets from a seed: profiles, sessions, logs, random. The same seed
// makes the same values.
func BuiltIn(seed uint64) ([]*Dataset, error) {
	profiles, err := generate("profiles", builtInValues, seed, profile)
	if err != nil {
		return nil, err
	}
	sessions, err := generate("sessions", builtInValues, seed, session)
	if err != nil {
		return nil, err
	}
	logs, err := generate("logs", builtInLogs, seed, logBatch)
	if err != nil {
		return nil, err
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	blobs := make([][]byte, builtInValues)
	for i := range blobs {
		blobs[i] = make([]byte, randomSize)
		for j := range blobs[i] {
			blobs[i][j] = byte(rng.Uint32())
		}
	}
	return []*Dataset{profiles, sessions, logs, newTyped("random", "binary", blobs, blobs)}, nil
}

func generate[T any](name string, n int, seed uint64, make1 func(*rand.Rand, int) T) (*Dataset, error) {
	rng := rand.New(rand.NewPCG(seed, 0))
	values := make([]T, n)
	raw := make([][]byte, n)
	for i := range values {
		values[i] = make1(rng, i)
		b, err := json.Marshal(values[i])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		raw[i] = b
	}
	return newTyped(name, fmt.Sprintf("%T", values[0]), values, raw), nil
}

// epoch keeps the sets the same at every run.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func within(rng *rand.Rand, d time.Duration) time.Time {
	return epoch.Add(time.Duration(rng.Int64N(int64(d)))).Truncate(time.Millisecond)
}

func pick(rng *rand.Rand, from ...string) string { return from[rng.IntN(len(from))] }

func hex(rng *rand.Rand, digits int) string {
	const alphabet = "0123456789abcdef"
	b := make([]byte, digits)
	for i := range b {
		b[i] = alphabet[rng.IntN(16)]
	}
	return string(b)
}

func first(rng *rand.Rand) string {
	return pick(rng, "Ada", "Grace", "Linus", "Mei", "Omar", "Ines", "Jonas", "Priya", "Lucía", "Noah", "Aiko", "Tomasz", "Zoë", "Kofi", "Hanna", "Yusuf")
}

func last(rng *rand.Rand) string {
	return pick(rng, "Lovelace", "Hopper", "Nakamura", "García", "Schmidt", "Okafor", "Novak", "Rossi", "Kim", "Andersen", "Dubois", "Silva", "Haddad", "Müller", "Kowalski", "Singh")
}

func profile(rng *rand.Rand, i int) Profile {
	f, l := first(rng), last(rng)
	id := 100_000 + int64(i)*17 + rng.Int64N(17)
	tags := []string{}
	for range 1 + rng.IntN(3) {
		tags = append(tags, pick(rng, "early-adopter", "newsletter", "vip", "beta", "wholesale", "returns-often"))
	}
	return Profile{
		ID: id, Name: f + " " + l, Email: fmt.Sprintf("user%d@%s", id, pick(rng, "example.com", "example.org", "mail.example.net")),
		Country: pick(rng, "DE", "FR", "US", "JP", "BR", "NG", "IN", "PL"), Language: pick(rng, "de", "fr", "en", "ja", "pt", "hi", "pl"),
		Avatar: "https://cdn.example.com/avatars/" + hex(rng, 32) + ".png",
		Plan:   pick(rng, "free", "free", "free", "pro", "team"), Verified: rng.IntN(3) > 0, Balance: rng.IntN(100_000),
		CreatedAt: within(rng, 3*365*24*time.Hour),
		Settings: Settings{pick(rng, "light", "dark", "system"), rng.IntN(2) == 0, pick(rng, "all", "mentions", "none"),
			pick(rng, "Europe/Berlin", "America/New_York", "Asia/Tokyo", "Africa/Lagos", "America/Sao_Paulo")},
		Tags: tags,
	}
}

func session(rng *rand.Rand, _ int) Session {
	s := Session{
		Token: hex(rng, 64), UserID: 100_000 + rng.Int64N(40_000),
		IP:        fmt.Sprintf("203.0.113.%d", rng.IntN(256)),
		UserAgent: fmt.Sprintf("Mozilla/5.0 (%s) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/%d.0.0.0 Safari/537.36", pick(rng, "X11; Linux x86_64", "Windows NT 10.0; Win64; x64", "Macintosh; Intel Mac OS X 10_15_7"), 120+rng.IntN(30)),
		ExpiresAt: within(rng, 30*24*time.Hour),
		Scopes:    []string{"read:profile", "write:cart", pick(rng, "read:orders", "read:invoices")},
		Cart:      []Item{},
	}
	for range 1 + rng.IntN(10) {
		s.Cart = append(s.Cart, Item{
			SKU:   fmt.Sprintf("%s-%05d", pick(rng, "SHOE", "BOOK", "LAMP", "DESK", "CABLE"), rng.IntN(100_000)),
			Title: pick(rng, "Trail running shoe", "Reading lamp, brass", "Standing desk, oak", "Cable, USB-C, 2 m", "The Art of Small Values", "Notebook, dotted, A5"),
			Price: 199 + rng.IntN(50_000), Quantity: 1 + rng.IntN(3),
		})
	}
	return s
}

func logBatch(rng *rand.Rand, _ int) LogBatch {
	b := LogBatch{Service: pick(rng, "checkout", "catalog", "search", "auth"), Host: fmt.Sprintf("node-%02d.eu-central.example.com", rng.IntN(40))}
	at := within(rng, 24*time.Hour)
	for range logEntries {
		at = at.Add(time.Duration(rng.IntN(250)) * time.Millisecond)
		b.Entries = append(b.Entries, LogEntry{
			Time: at, Level: pick(rng, "info", "info", "info", "debug", "warn", "error"), TraceID: hex(rng, 32), Micros: 100 + rng.IntN(90_000),
			Message: pick(rng, "GET /api/v1/products served from cache", "cache miss, loading from database", "payment authorised", "token refreshed", "slow query: SELECT * FROM orders WHERE user_id = $1", "upstream timed out, retrying"),
		})
	}
	return b
}
