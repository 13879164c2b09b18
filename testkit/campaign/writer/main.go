// Command writer gives the readers in other languages what to read. It writes JSON lines to stdout.
//
//	writer fleet [cluster]   starts a Redis, and writes through Caches and a Hook while dictionaries
//	                         are rolled out; each line of stdin asks for the next phase
//	writer fuzz N SEED       changes N stored values as faults do, with the verdict of Go
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/internal/testvalues"
)

func main() {
	ctx := context.Background()
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 1 && args[0] == "fleet":
		err = withServer(ctx, os.Stdin, os.Stdout)
	case len(args) == 2 && args[0] == "fleet" && args[1] == "cluster":
		err = withCluster(ctx, os.Stdin, os.Stdout)
	case len(args) == 3 && args[0] == "fuzz":
		err = fuzz(ctx, args[1], args[2], os.Stdout)
	default:
		err = errors.New("writer fleet [cluster], or writer fuzz N SEED")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "writer:", err)
		os.Exit(1)
	}
}

func withServer(ctx context.Context, in io.Reader, out io.Writer) error {
	s, err := redisproc.Start(ctx)
	if err != nil {
		return err
	}
	defer s.Close()
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	defer client.Close()
	return fleet(ctx, client, s.URL(), in, out)
}

func withCluster(ctx context.Context, in io.Reader, out io.Writer) error {
	c, err := redisproc.StartCluster(ctx, 3)
	if err != nil {
		return err
	}
	defer c.Close()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer client.Close()
	return fleet(ctx, client, c.Servers[0].URL(), in, out)
}

// entry is a value and what a reader must make of it.
type entry struct {
	Key     string `json:"key"`
	Field   string `json:"field,omitempty"`
	Content string `json:"content"`         // hex
	Error   string `json:"error,omitempty"` // as in frame/testdata; "not found" for a miss
}

// phase is a line of output: all that is in Redis.
type phase struct {
	Name   string  `json:"phase"`
	URL    string  `json:"url"`
	Values []entry `json:"values"`
}

const valuesOfPhase = 20

// writer writes the phases.
type writer struct {
	client   redis.UniversalClient
	store    *goredis.Store
	registry *dict.Registry
	values   []entry
}

func fleet(ctx context.Context, client redis.UniversalClient, url string, in io.Reader, out io.Writer) error {
	store := goredis.NewStore(client)
	registry, err := dict.NewRegistry(store, dict.RegistryOptions{})
	if err != nil {
		return err
	}
	w := &writer{client: client, store: store, registry: registry}
	first, second, lost := dictionary(1), dictionary(2), dictionary(3)
	zstd, lz4 := compress.Setting{Algorithm: frame.Zstd}, compress.Setting{Algorithm: frame.LZ4}
	asked := bufio.NewScanner(in)
	for _, p := range []struct {
		name  string
		write func() error
	}{
		{"no dictionary", func() error { return w.write(ctx, "none", zstd, nil) }},
		{"the first dictionary", func() error { return w.write(ctx, "first", zstd, first) }},
		{"the second dictionary", func() error { return w.write(ctx, "second", zstd, second) }},
		{"lz4", func() error { return w.write(ctx, "lz4", lz4, second) }},
		{"loaded values", func() error { return w.load(ctx) }},
		{"the first one in quarantine", func() error { return w.quarantine(ctx, first) }},
		{"a lost dictionary", func() error { return w.lose(ctx, lost) }},
	} {
		if err := p.write(); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		if err := json.NewEncoder(out).Encode(phase{p.name, url, w.values}); err != nil {
			return err
		}
		if !asked.Scan() {
			break
		}
	}
	return asked.Err()
}

// dictionary is raw content that profiles have in common.
func dictionary(n int) *frame.Dictionary {
	d, err := frame.NewDictionary(bytes.Join([][]byte{testvalues.Profile(1000 + n), testvalues.Profile(2000 + n)}, nil))
	if err != nil {
		panic(err) // of their size
	}
	return d
}

// write rolls a dictionary out, nil for none, and then writes values through a Cache, and the
// fields of a hash through a Hook.
func (w *writer) write(ctx context.Context, name string, s compress.Setting, d *frame.Dictionary) error {
	if d != nil {
		if err := w.registry.Publish(ctx, name, d, dict.Info{}); err != nil {
			return err
		}
		if err := w.registry.Activate(ctx, name, d.ID(), true); err != nil {
			return err
		}
	}
	group, err := w.registry.Open(ctx, name, dict.GroupOptions{Setting: s})
	if err != nil {
		return err
	}
	defer group.Close()
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: group})
	if err != nil {
		return err
	}
	defer packer.Close()
	if id := group.Writer().DictionaryID(); id != d.ID() {
		return fmt.Errorf("the group writes with dictionary %v, not %v", id, d.ID())
	}
	cache, err := bale.New(w.store, bale.Options[[]byte]{Codec: codec.Bytes{}, Packer: packer})
	if err != nil {
		return err
	}
	defer cache.Close()
	for i := range valuesOfPhase {
		key := fmt.Sprintf("%s:%d", name, i)
		value := testvalues.Profile(i)
		switch i {
		case 0:
			value = []byte("12") // stays plain
		case 1:
			value = []byte("\xba\x1e, escaped")
		case 2:
			value = testvalues.Page(i)
		}
		if err := cache.Set(ctx, key, value); err != nil {
			return err
		}
		w.values = append(w.values, entry{Key: key, Content: hex.EncodeToString(value)})
	}
	hook, err := goredis.NewHook(packer, goredis.HookOptions{Match: []string{"hash:*"}})
	if err != nil {
		return err
	}
	key := "hash:" + name
	for i := range 5 {
		field, value := fmt.Sprintf("field%d", i), testvalues.Profile(i)
		if err := w.hset(ctx, hook, key, field, value); err != nil {
			return err
		}
		w.values = append(w.values, entry{Key: key, Field: field, Content: hex.EncodeToString(value)})
	}
	return nil
}

// hset writes a field as a program with the hook does.
func (w *writer) hset(ctx context.Context, hook *goredis.Hook, key, field string, value []byte) error {
	var client redis.UniversalClient
	switch c := w.client.(type) {
	case *redis.Client:
		client = redis.NewClient(c.Options())
	case *redis.ClusterClient:
		client = redis.NewClusterClient(c.Options())
	}
	defer client.Close()
	if err := hook.Install(client); err != nil {
		return err
	}
	return client.HSet(ctx, key, field, value).Err()
}

// load writes what a Cache with a loader does: a fresh value, an old one and a cached miss.
func (w *writer) load(ctx context.Context) error {
	cache, err := bale.New(w.store, bale.Options[[]byte]{Codec: codec.Bytes{},
		Load: bale.LoadOptions{StaleIfError: time.Hour, NegativeTTL: time.Hour}})
	if err != nil {
		return err
	}
	defer cache.Close()
	value := testvalues.Profile(1)
	loaded := func(context.Context) ([]byte, error) { return value, nil }
	missed := func(context.Context) ([]byte, error) { return nil, bale.ErrNotFound }
	if _, err := cache.GetOrLoad(ctx, "fresh", loaded, bale.TTL(time.Hour)); err != nil {
		return err
	}
	if _, err := cache.GetOrLoad(ctx, "old", loaded, bale.TTL(time.Millisecond)); err != nil {
		return err
	}
	if _, err := cache.GetOrLoad(ctx, "missed", missed); !errors.Is(err, bale.ErrNotFound) {
		return fmt.Errorf("a miss: %w", err)
	}
	time.Sleep(10 * time.Millisecond) // until the old one is
	w.values = append(w.values, entry{Key: "fresh", Content: hex.EncodeToString(value)},
		entry{Key: "old", Error: "not found"}, entry{Key: "missed", Error: "not found"}, entry{Key: "never written", Error: "not found"})
	return nil
}

// quarantine moves a dictionary as a removal does.
func (w *writer) quarantine(ctx context.Context, d *frame.Dictionary) error {
	if err := w.client.Set(ctx, dict.DefaultPrefix+"quarantine:"+d.ID().String(), d.Bytes(), time.Hour).Err(); err != nil {
		return err
	}
	return w.client.Del(ctx, w.registry.DataKey(d.ID())).Err()
}

// lose writes with a dictionary that the registry then loses.
func (w *writer) lose(ctx context.Context, d *frame.Dictionary) error {
	from := len(w.values)
	if err := w.write(ctx, "lost", compress.Setting{Algorithm: frame.Zstd}, d); err != nil {
		return err
	}
	for i := range w.values[from:] {
		e := &w.values[from+i]
		stored, err := w.client.Get(ctx, e.Key).Bytes()
		if e.Field != "" {
			stored, err = w.client.HGet(ctx, e.Key, e.Field).Bytes()
		}
		if err != nil {
			return err
		}
		if h, _, _ := frame.Parse(stored); h.DictionaryID == d.ID() {
			e.Content, e.Error = "", "unknown dictionary"
		}
	}
	return w.client.Del(ctx, w.registry.DataKey(d.ID())).Err()
}

// verdict is a line of fuzz, with the fields of frame/testdata.
type verdict struct {
	Stored  string `json:"stored"`
	Content string `json:"content,omitempty"`
	Error   string `json:"error,omitempty"`
}

var classes = map[string]error{
	"corrupt": bale.ErrCorrupt, "too large": bale.ErrTooLarge, "unknown dictionary": bale.ErrUnknownDictionary,
	"unknown algorithm": bale.ErrUnknownAlgorithm, "not found": bale.ErrNotFound,
}

const vectorsFile = "frame/testdata/vectors.ndjson"

// mostFuzzed is the largest decoded value in bytes.
const mostFuzzed = 1 << 20

// fuzz reads the vectors from the folder that it runs in, that of the repository.
func fuzz(ctx context.Context, n, seed string, out io.Writer) error {
	count, err := strconv.Atoi(n)
	if err != nil {
		return err
	}
	s, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		return err
	}
	packer, err := reader()
	if err != nil {
		return err
	}
	defer packer.Close()
	b, err := os.ReadFile(vectorsFile)
	if err != nil {
		return err
	}
	var stored [][]byte
	for line := range bytes.Lines(b) {
		var v verdict
		if err := json.Unmarshal(line, &v); err != nil {
			return err
		}
		value, err := hex.DecodeString(v.Stored)
		if err != nil {
			return err
		}
		stored = append(stored, value)
	}
	claims := testvalues.Claims(mostFuzzed)
	for _, name := range slices.Sorted(maps.Keys(claims)) {
		c := claims[name]
		stored = append(stored, append(frame.Header{Algorithm: c.Algorithm, Length: mostFuzzed}.Append(nil), c.Payload...))
	}
	rng := rand.New(rand.NewPCG(s, 0))
	lines := bufio.NewWriter(out)
	for range count {
		value := change(rng, stored[rng.IntN(len(stored))])
		content, err := packer.Unpack(ctx, nil, value)
		v := verdict{Stored: hex.EncodeToString(value), Content: hex.EncodeToString(content)}
		for name, class := range classes {
			if errors.Is(err, class) {
				v.Error = name
			}
		}
		if err := json.NewEncoder(lines).Encode(v); err != nil {
			return err
		}
	}
	return lines.Flush()
}

// reader reads with the dictionaries of frame/testdata.
func reader() (*bale.Packer, error) {
	set := &compress.Set{}
	for _, file := range []string{"raw.dict", "trained.dict"} {
		b, err := os.ReadFile("frame/testdata/" + file)
		if err != nil {
			return nil, err
		}
		d, err := frame.NewDictionary(b)
		if err != nil {
			return nil, err
		}
		for _, a := range []frame.Algorithm{frame.S2, frame.LZ4, frame.Zstd} {
			c, err := compress.Setting{Algorithm: a}.New(d)
			if err != nil {
				return nil, err
			}
			set.Read = append(set.Read, c)
		}
	}
	return bale.NewPacker(bale.PackerOptions{Compressors: set, MaxSize: mostFuzzed})
}

// change damages a stored value: anywhere, or so that its header checks, or not at all.
func change(rng *rand.Rand, stored []byte) []byte {
	h, offset, ok := frame.Parse(stored)
	if rng.IntN(10) == 0 {
		return stored
	}
	if !ok || rng.IntN(3) == 0 {
		return testvalues.Mutate(rng, stored)
	}
	payload := stored[offset:]
	switch rng.IntN(4) {
	case 0:
		return testvalues.Forge(rng, payload)
	case 1:
		h.HasChecksum = false // so that the decoder alone can find it out
	}
	return append(h.Append(nil), testvalues.Mutate(rng, payload)...)
}
