// Command fill puts the keys of a small shop into a Redis, for bale advise and bale migrate to be
// tried on:
//
//	fill -redis redis://127.0.0.1:6379 -n 20000
//
// The URL may be that of a cluster's node.
//
// With files it stores their lines instead, each file's under a name of its own: films.ndjson under
// films:0, films:1 and so on.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	url := flag.String("redis", "redis://127.0.0.1:6379", "the Redis to fill")
	n := flag.Int("n", 20000, "how many values, when there are no files")
	flag.Parse()
	if err := run(context.Background(), *url, *n, flag.Args(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// pipeline is how many commands go at once.
const pipeline = 500

// maxLine is the longest line of a file in bytes.
const maxLine = 64 << 20

func run(ctx context.Context, url string, n int, files []string, out io.Writer) error {
	o, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	rdb := open(ctx, o)
	defer rdb.Close()
	w := &writer{pipe: rdb.Pipeline()}
	if len(files) == 0 {
		if err := shop(ctx, w, n); err != nil {
			return err
		}
	}
	for _, path := range files {
		if err := lines(ctx, w, path); err != nil {
			return err
		}
	}
	if err := w.flush(ctx); err != nil {
		return err
	}
	keys, err := rdb.DBSize(ctx).Result()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d values written; the database has %d keys\n", w.values, keys)
	return nil
}

// open opens a server, or the cluster that it is a node of.
func open(ctx context.Context, o *redis.Options) redis.UniversalClient {
	node := redis.NewClient(o)
	if node.ClusterInfo(ctx).Err() != nil {
		return node
	}
	node.Close()
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{o.Addr}, Username: o.Username, Password: o.Password, TLSConfig: o.TLSConfig})
}

// writer sends commands by pipelines.
type writer struct {
	pipe   redis.Pipeliner
	values int
}

// next counts a value whose command is in the pipeline.
func (w *writer) next(ctx context.Context) error {
	w.values++
	if w.pipe.Len() < pipeline {
		return nil
	}
	return w.flush(ctx)
}

func (w *writer) flush(ctx context.Context) error {
	_, err := w.pipe.Exec(ctx)
	return err
}

// lines stores the lines of a file.
func lines(ctx context.Context, w *writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	s := bufio.NewScanner(f)
	s.Buffer(nil, maxLine)
	for i := 0; s.Scan(); i++ {
		w.pipe.Set(ctx, fmt.Sprintf("%s:%d", name, i), s.Text(), 0)
		if err := w.next(ctx); err != nil {
			return err
		}
	}
	return s.Err()
}

// shop stores keys of seven kinds, the same for the same number.
func shop(ctx context.Context, w *writer, n int) error {
	rng := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range n {
		ttl := time.Minute + time.Duration(rng.IntN(24*3600))*time.Second
		switch rng.IntN(10) {
		case 0, 1, 2:
			w.pipe.Set(ctx, fmt.Sprintf("shop:user:%d:profile", i), user(rng, i), 0)
		case 3, 4:
			w.pipe.Set(ctx, fmt.Sprintf("shop:product:%d", i), product(rng, i), ttl)
		case 5, 6:
			w.pipe.HSet(ctx, fmt.Sprintf("shop:cart:%x", rng.Uint64()), "owner", i, "total", rng.IntN(1e5), "items", items(rng))
		case 7:
			w.pipe.Set(ctx, fmt.Sprintf("shop:session:%016x%016x", rng.Uint64(), rng.Uint64()), token(rng), ttl)
		case 8:
			w.pipe.Set(ctx, fmt.Sprintf("shop:views:%d", i), rng.IntN(1e6), 0)
		case 9:
			w.pipe.ZAdd(ctx, fmt.Sprintf("shop:sales:2026-%02d-%02d", 1+rng.IntN(12), 1+rng.IntN(28)), redis.Z{Score: float64(rng.IntN(1000)), Member: i})
		}
		if err := w.next(ctx); err != nil {
			return err
		}
	}
	return nil
}

func one(rng *rand.Rand, of ...string) string { return of[rng.IntN(len(of))] }

func user(rng *rand.Rand, i int) string {
	return fmt.Sprintf(`{"id":%d,"name":"%s %s","email":"user%d@example.com","country":"%s","language":"%s","verified":%v,"marketing":{"newsletter":%v,"sms":%v},"plan":"%s","balance":%d,"avatar_url":"https://cdn.example.com/avatars/%x.jpg","created_at":"20%02d-%02d-%02dT%02d:%02d:%02dZ"}`,
		i, one(rng, "Ada", "Grace", "Alan", "Edsger", "Barbara", "Radia"), one(rng, "Lovelace", "Hopper", "Turing", "Liskov", "Perlman"), i, one(rng, "DE", "FR", "US", "JP", "BR"), one(rng, "de", "fr", "en", "ja", "pt"),
		rng.IntN(10) > 0, rng.IntN(2) == 0, rng.IntN(5) == 0, one(rng, "free", "plus", "pro"), rng.IntN(1e5), rng.Uint64(), 15+rng.IntN(12), 1+rng.IntN(12), 1+rng.IntN(28), rng.IntN(24), rng.IntN(60), rng.IntN(60))
}

func product(rng *rand.Rand, i int) string {
	return fmt.Sprintf(`{"sku":"SKU-%06d","title":"%s %s %s","price":{"amount":%d,"currency":"EUR"},"stock":%d,"dimensions":{"width_mm":%d,"height_mm":%d,"depth_mm":%d},"rating":%.1f,"images":["https://cdn.example.com/products/%06d/front.jpg","https://cdn.example.com/products/%06d/back.jpg"],"description":"%s"}`,
		i, one(rng, "Oak", "Steel", "Paper", "Glass"), one(rng, "table", "lamp", "shelf", "mirror", "chair"), one(rng, "large", "small", "round"), rng.IntN(1e5), rng.IntN(500), rng.IntN(3000), rng.IntN(3000), rng.IntN(3000), rng.Float64()*5, i, i,
		strings.Repeat(one(rng, "Made to last. ", "Easy to clean. ", "Comes in one piece. ", "Two years of guarantee. "), 1+rng.IntN(4)))
}

func items(rng *rand.Rand) string {
	var all []string
	for range 1 + rng.IntN(5) {
		all = append(all, fmt.Sprintf(`{"sku":"SKU-%06d","quantity":%d,"price":%d,"gift":%v}`, rng.IntN(1e6), 1+rng.IntN(4), rng.IntN(1e5), rng.IntN(20) == 0))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// token is encrypted, as sessions often are: nothing makes it smaller.
func token(rng *rand.Rand) []byte {
	var b []byte
	for range 8 {
		sum := sha256.Sum256([]byte(hex.EncodeToString(fmt.Append(nil, rng.Uint64()))))
		b = append(b, sum[:]...)
	}
	return b
}
