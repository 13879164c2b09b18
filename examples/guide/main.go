// Command guide is the code of docs/guide.md, whole: a service's caches from the first line to
// production.
package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	rueidislib "github.com/redis/rueidis"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/adapter/rueidis"
	"github.com/balekv/bale/batch"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/extra/formats/fastjson"
	"github.com/balekv/bale/extra/near"
	"github.com/balekv/bale/extra/observe/prom"
	"github.com/balekv/bale/extra/ready"
	"github.com/balekv/bale/stats"
	"github.com/balekv/bale/stats/eventfile"
	"github.com/balekv/bale/stream"
)

// User is what the service caches.
type User struct {
	ID    int      `json:"id"`
	Name  string   `json:"name"`
	Email string   `json:"email"`
	Tags  []string `json:"tags"`
}

// Clone is the copy that a caller may change.
func (u User) Clone() User {
	u.Tags = slices.Clone(u.Tags)
	return u
}

// database is where users come from: user 404 does not exist.
func database(_ context.Context, id int) (User, error) {
	if id == 404 {
		return User{}, sql.ErrNoRows
	}
	return User{id, "Ada Lovelace", fmt.Sprintf("ada%d@example.com", id), []string{"mathematics", "engines"}}, nil
}

func main() {
	addr := os.Getenv("REDIS_ADDR")
	if addr == "" {
		log.Fatal("set REDIS_ADDR to the address of a Redis, for example 127.0.0.1:6379")
	}
	if err := run(context.Background(), addr); err != nil {
		log.Fatal(err)
	}
}

// run has all that follows.
func run(ctx context.Context, addr string) error {
	// The first line.
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	visitors, err := bale.New(goredis.NewStore(rdb), bale.Options[User]{TTL: time.Hour, Jitter: 0.1})
	if err != nil {
		return err
	}
	defer visitors.Close()

	entry, err := visitors.GetOrLoad(ctx, "shop:visitor:1001", func(ctx context.Context) (User, error) {
		return database(ctx, 1001)
	})
	if err != nil {
		return err
	}
	user := entry.Value // entry.Stale says that it is an old one: see StaleIfError
	fmt.Println("loaded", user.Name)

	if err := visitors.Set(ctx, "shop:visitor:1002", user, bale.TTL(time.Minute)); err != nil {
		return err
	}
	many, err := visitors.GetMany(ctx, "shop:visitor:1001", "shop:visitor:1002", "shop:visitor:1003")
	if err != nil {
		return err // a bale.KeyErrors names the keys that could not be read; many has the others
	}
	deleted, err := visitors.Delete(ctx, "shop:visitor:1002", "shop:visitor:1003")
	if err != nil {
		return err
	}
	fmt.Println(len(many), "of three there,", deleted, "of two deleted")

	// Which client.
	client, err := rueidislib.NewClient(rueidislib.ClientOption{InitAddress: []string{addr}, ConnWriteTimeout: 2 * time.Second, DisableRetry: true})
	if err != nil {
		return err
	}
	defer client.Close()
	store := rueidis.NewStore(client, rueidis.StoreOptions{})

	// Dictionaries.
	registry, err := dict.NewRegistry(store, dict.RegistryOptions{})
	if err != nil {
		return err
	}
	group, err := registry.Open(ctx, "shop:user", dict.GroupOptions{
		Auto: &dict.Auto{Train: dict.TrainOptions{Exclude: []string{"email"}}},
		Log:  slog.Default(),
	})
	if err != nil {
		return err
	}
	defer group.Close()
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: group})
	if err != nil {
		return err
	}
	defer packer.Close()

	// Metrics.
	collector, err := prom.NewCollector(prom.Options{})
	if err != nil {
		return err
	}
	collector.Dictionary("shop:user", group.Status)
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(collector)

	file, err := os.CreateTemp("", "bale-*.stats") // a service keeps its own
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	ring, err := stats.NewRing(eventfile.NewWriter(file), stats.RingOptions{})
	if err != nil {
		return err
	}
	defer ring.Close()

	// Loading.
	users, err := bale.New(store, bale.Options[User]{
		Packer:   packer,
		Codec:    fastjson.Codec[User]{},
		TTL:      time.Hour,
		Jitter:   0.1,
		Recorder: collector.Group("shop:user"),
		Load: bale.LoadOptions{
			NegativeTTL:  time.Minute,
			StaleIfError: 6 * time.Hour,
			SoftTimeout:  300 * time.Millisecond,
			Lock:         3 * time.Second,
			Timeout:      5 * time.Second,
		},
	})
	if err != nil {
		return err
	}
	defer users.Close()

	load := func(id int) func(context.Context) (User, error) {
		return func(ctx context.Context) (User, error) {
			user, err := database(ctx, id)
			if errors.Is(err, sql.ErrNoRows) {
				return user, fmt.Errorf("user %d: %w", id, bale.ErrNotFound) // remembered for NegativeTTL
			}
			return user, err
		}
	}
	loaded, err := users.GetOrLoad(ctx, "shop:user:1001", load(1001))
	if err != nil {
		return err
	}
	_, err = users.GetOrLoad(ctx, "shop:user:404", load(404))
	fmt.Printf("loaded %s; user 404 is not there: %v\n", loaded.Value.Name, errors.Is(err, bale.ErrNotFound))

	// Values in the process.
	invalidations, err := rueidis.NewInvalidations(client, rueidis.InvalidationsOptions{Prefixes: []string{"shop:user:"}})
	if err != nil {
		return err
	}
	hot, err := near.New(users, near.Options[User]{
		MaxBytes:      128 << 20,
		Clone:         User.Clone,
		Invalidations: invalidations,
	})
	if err != nil {
		return err
	}
	defer hot.Close()
	collector.Near("shop:user", func() prom.NearStats { return prom.NearStats(hot.Stats()) })
	hottest, err := hot.Get(ctx, "shop:user:1001")
	if err != nil {
		return err
	}
	fmt.Println("near:", hottest.Name)

	// Writing by the thousand.
	buffered, err := batch.New(goredis.NewStore(rdb), batch.Options{
		Entries:  100,
		Delay:    50 * time.Millisecond,
		MaxBytes: 32 << 20,
		Failed:   func(failed bale.KeyErrors) { slog.Error("not cached", "err", failed) },
		Recorder: ring.Group("shop:event"),
	})
	if err != nil {
		return err
	}
	defer buffered.Close() // sends what is left, and waits for it
	events, err := bale.New(buffered, bale.Options[User]{TTL: time.Hour, Recorder: ring.Group("shop:event")})
	if err != nil {
		return err
	}
	for i := range 1000 {
		if err := events.Set(ctx, fmt.Sprint("shop:event:", i), User{ID: i}); err != nil {
			return err
		}
	}
	if err := buffered.Flush(ctx); err != nil {
		return err
	}
	n, err := rdb.Exists(ctx, "shop:event:0", "shop:event:999").Result()
	if err != nil {
		return err
	}
	fmt.Println("both ends of the batch are there:", n == 2)

	// Large values.
	source := strings.NewReader(strings.Repeat("a line of the log\n", 1_000_000))
	streams, err := stream.New(goredis.NewStore(rdb), stream.Options{})
	if err != nil {
		return err
	}
	info, err := streams.PutReader(ctx, "shop:log:2026-11-21", source, bale.TTL(24*time.Hour))
	if err != nil {
		return err
	}
	reader, err := streams.GetReader(ctx, "shop:log:2026-11-21")
	if err != nil {
		return err
	}
	defer reader.Close()
	var destination bytes.Buffer
	if _, err := io.Copy(&destination, reader); err != nil {
		return err
	}
	fmt.Printf("%d bytes as fewer than %d: %v\n", destination.Len(), info.Size/100, info.Stored < info.Size/100)

	// Readiness.
	readiness, err := ready.New(ready.Options{Store: store, Packer: packer, Groups: []*dict.Group{group}})
	if err != nil {
		return err
	}
	defer readiness.Close()
	if err := readiness.Wait(ctx); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /ready", readiness)
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	for _, path := range []string{"/ready", "/metrics"} {
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequest("GET", path, nil))
		fmt.Println(path, answer.Code)
	}
	return nil // a service calls http.ListenAndServe(":8080", mux) here
}
