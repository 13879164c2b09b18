package rivals

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/balekv/bale"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// account is what is cached: 838 bytes of JSON on average.
type account struct {
	ID       int64    `json:"id" msgpack:"id"`
	Name     string   `json:"name" msgpack:"name"`
	Email    string   `json:"email" msgpack:"email"`
	Phone    string   `json:"phone" msgpack:"phone"`
	Created  string   `json:"created_at" msgpack:"created_at"`
	LastSeen string   `json:"last_seen_at" msgpack:"last_seen_at"`
	Avatar   string   `json:"avatar_url" msgpack:"avatar_url"`
	Plan     string   `json:"plan" msgpack:"plan"`
	Verified bool     `json:"verified" msgpack:"verified"`
	Balance  int      `json:"balance_cents" msgpack:"balance_cents"`
	Note     string   `json:"note" msgpack:"note"`
	Tags     []string `json:"tags" msgpack:"tags"`
	Address  address  `json:"address" msgpack:"address"`
	Settings settings `json:"settings" msgpack:"settings"`
	Orders   []order  `json:"recent_orders" msgpack:"recent_orders"`
}

type address struct {
	Street  string `json:"street" msgpack:"street"`
	City    string `json:"city" msgpack:"city"`
	Zip     string `json:"zip" msgpack:"zip"`
	Country string `json:"country" msgpack:"country"`
}

type settings struct {
	Theme      string `json:"theme" msgpack:"theme"`
	Language   string `json:"language" msgpack:"language"`
	Timezone   string `json:"timezone" msgpack:"timezone"`
	Newsletter bool   `json:"newsletter" msgpack:"newsletter"`
}

type order struct {
	ID    string `json:"order_id" msgpack:"order_id"`
	Total int    `json:"total_cents" msgpack:"total_cents"`
	State string `json:"state" msgpack:"state"`
}

// newAccount makes account number i, always the same.
func newAccount(i int) account {
	r := rand.New(rand.NewPCG(uint64(i), 838))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	date := func() string {
		return fmt.Sprintf("202%d-%02d-%02dT%02d:%02d:%02dZ", r.IntN(6), 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60))
	}
	first, last := pick("Ada", "Grace", "Linus", "Mei", "Omar", "Ines", "Paul", "Yuki"), pick("Lovelace", "Hopper", "Nakamura", "García", "Okafor", "Lindqvist", "Moreau")
	a := account{
		ID: int64(1_000_000 + i), Name: first + " " + last, Email: fmt.Sprintf("%s.%s%d@example.com", first, last, r.IntN(1000)),
		Phone: fmt.Sprintf("+%d %d", 1+r.IntN(98), r.IntN(1_000_000_000)), Created: date(), LastSeen: date(),
		Avatar: fmt.Sprintf("https://cdn.example.com/avatars/%016x.png", r.Uint64()), Plan: pick("free", "pro", "team"), Verified: r.IntN(3) > 0, Balance: r.IntN(100_000), Note: pick("asked for invoices by post only", "prefers to be called in the afternoon", "moved here from the old shop in spring"),
		Tags:     []string{pick("vip", "beta", "churn-risk"), pick("newsletter", "wholesale", "partner")},
		Address:  address{fmt.Sprintf("%s %d", pick("Main Street", "Rue de Rivoli", "Unter den Linden", "Sakura-dori"), 1+r.IntN(200)), pick("Berlin", "Paris", "Osaka", "Lagos", "Lima"), fmt.Sprintf("%05d", r.IntN(100_000)), pick("DE", "FR", "JP", "NG", "PE")},
		Settings: settings{pick("light", "dark", "system"), pick("de", "en", "fr", "ja"), pick("Europe/Berlin", "Asia/Tokyo", "America/Lima"), r.IntN(2) == 0},
	}
	for range 4 {
		a.Orders = append(a.Orders, order{fmt.Sprintf("ord_%012x", r.Uint64()>>16), r.IntN(50_000), pick("paid", "shipped", "refunded")})
	}
	return a
}

func (a account) equal(b account) bool {
	return a.ID == b.ID && a.Email == b.Email && a.Avatar == b.Avatar && len(a.Orders) == len(b.Orders) && a.Orders[2] == b.Orders[2] && a.Settings == b.Settings
}

const (
	values    = 2000    // that are measured
	trainings = 1 << 20 // number of the first account that dictionaries are trained on
)

// TestValuesOfRivals: the values have their claimed lengths.
func TestValuesOfRivals(t *testing.T) {
	sum := 0
	for i := range values {
		b, err := json.Marshal(newAccount(i))
		if err != nil {
			t.Fatal(err)
		}
		sum += len(b)
	}
	if mean := float64(sum) / values; mean < 828 || mean > 848 {
		t.Errorf("%.1f bytes on average", mean)
	}
}

// packer packs what a codec makes with zstd and a dictionary trained on other values.
func packer(tb testing.TB, codec bale.Codec[account]) *bale.Packer {
	tb.Helper()
	samples := make([][]byte, 4000)
	for i := range samples {
		var err error
		if samples[i], err = codec.Append(nil, newAccount(trainings+i)); err != nil {
			tb.Fatal(err)
		}
	}
	setting := compress.Setting{Algorithm: frame.Zstd, Level: "3"}
	trained, err := dict.Train(tb.Context(), samples, dict.TrainOptions{Setting: setting})
	if err != nil {
		tb.Fatal(err)
	}
	c, err := setting.New(trained.Dictionary)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { c.Close() })
	p, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: c}})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { p.Close() })
	return p
}
