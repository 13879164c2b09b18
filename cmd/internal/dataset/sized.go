package dataset

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/balekv/bale/cmd/internal/dataset/shop"
	"github.com/balekv/bale/cmd/internal/dataset/shop/shoppb"
)

// MaxSized is the largest size that Sized takes, in bytes.
const MaxSized = 64 << 20

const (
	minListing = 512      // bytes of JSON that a Listing with a post has room in
	sizedBytes = 32 << 20 // of all values together, more or less
)

// Sized makes a set of values of exactly this many bytes, 1 to MaxSized, named for the size
// ("1024B"). From 512 bytes on a value is a listing of posts as JSON, which zstd compresses to
// about a half; below that it is prose. There are 2,000 values, or fewer if they are large, but at
// least 2. The same seed makes the same values.
func Sized(bytes int, seed uint64) (*Dataset, error) {
	if bytes < 1 || bytes > MaxSized {
		return nil, fmt.Errorf("values of %d bytes: must be 1 to %d", bytes, MaxSized)
	}
	name := fmt.Sprintf("%dB", bytes)
	n := min(builtInValues, max(2, sizedBytes/bytes))
	rng := rand.New(rand.NewPCG(seed, uint64(bytes)))
	if bytes < minListing {
		raw := make([][]byte, n)
		for i := range raw {
			raw[i] = words(rng, bytes)
		}
		return newText(name, Typed, raw), nil
	}
	values := make([]shop.Listing, n)
	for i := range values {
		v, err := listing(rng, bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		values[i] = v
	}
	return newGenerated[shoppb.Listing](name, values)
}

// listing makes a listing whose JSON has exactly size bytes: as many posts as fit, and a note that
// fills the rest.
func listing(rng *rand.Rand, size int) (shop.Listing, error) {
	v := shop.Listing{ID: 1_000_000 + rng.Int64N(9_000_000)}
	empty, err := json.Marshal(&shop.Listing{ID: v.ID, Posts: []shop.Post{}})
	if err != nil {
		return v, err
	}
	left := size - len(empty)
	for len(v.Posts) == 0 || left >= minListing {
		p := post(rng)
		b, err := json.Marshal(&p)
		if err != nil {
			return v, err
		}
		if len(v.Posts) > 0 {
			left-- // the comma
		}
		v.Posts = append(v.Posts, p)
		left -= len(b)
	}
	v.Note = string(words(rng, left))
	return v, nil
}

// post has at most 430 bytes of JSON.
func post(rng *rand.Rand) shop.Post {
	return shop.Post{
		ID: token(rng, 32), Author: first(rng) + " " + last(rng), At: within(rng, 365*24*time.Hour),
		Title: string(words(rng, 20+rng.IntN(20))), Body: string(words(rng, 40+rng.IntN(80))),
		Image: "https://cdn.example.com/" + token(rng, 64) + ".jpg", Likes: rng.IntN(10_000), Score: float64(rng.IntN(100_000)) / 100_000,
	}
}

// token is random in six bits of each byte: what keeps a listing from compressing better than real
// JSON.
func token(rng *rand.Rand, n int) string {
	return digits(rng, n, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
}
