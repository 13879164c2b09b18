package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/tcptest"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/compress/zstd"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
)

func TestMain(m *testing.M) { tcptest.VerifyTestMain(m) }

// running is a proxy that serves until the test ends, or stop.
type running struct {
	addr string
	stop func() error
}

func options(redis, match string) Options {
	return Options{
		Streams: &cli.Streams{Out: io.Discard, Err: io.Discard, Command: "bale proxy"}, Listen: "127.0.0.1:0", ListenMode: 0o600, Redis: redis, Prefix: dict.DefaultPrefix,
		Config:     Config{Groups: []Group{{Match: []string{match}, Compress: "zstd:3"}}},
		MaxClients: 100, MaxRequest: 64 << 20, MaxMemory: 1 << 30, Stall: time.Minute, Drain: time.Minute,
	}
}

func start(t testing.TB, o Options) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	listening, ended := make(chan net.Addr, 1), make(chan error, 1)
	o.Listening = func(a net.Addr) { listening <- a }
	go func() { ended <- Run(ctx, o) }()
	r := &running{}
	var err error
	done := false
	r.stop = func() error {
		if cancel(); !done {
			err, done = <-ended, true
		}
		return err
	}
	select {
	case err := <-ended:
		cancel()
		t.Fatal(err)
	case addr := <-listening:
		r.addr = addr.String()
	}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// clients are one through a proxy, and one past it.
func clients(t testing.TB, o func(*Options), protocol int) (through, past *redis.Client) {
	t.Helper()
	server := redisproc.ForTest(t)
	options := options(server.URL(), "user:*")
	if o != nil {
		o(&options)
	}
	p := start(t, options)
	through = redis.NewClient(&redis.Options{Addr: p.addr, Protocol: protocol})
	past = redis.NewClient(&redis.Options{Addr: server.Addr(), Protocol: protocol})
	t.Cleanup(func() { through.Close(); past.Close() })
	return through, past
}

func big(s string) string { return strings.Repeat("the value of "+s+", ", 20) }

func isPacked(s string) bool {
	_, _, ok := frame.Parse([]byte(s))
	return ok
}

// dial is a raw connection that ends with the test.
func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	network := "tcp"
	if filepath.IsAbs(addr) {
		network = "unix"
	}
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

// talk sends bytes and expects bytes.
func talk(t testing.TB, c net.Conn, send, want string) {
	t.Helper()
	if _, err := io.WriteString(c, send); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	n, err := io.ReadFull(c, got)
	if string(got[:n]) != want {
		t.Fatalf("%.500q: %.500q, %v\nwant %.500q", send, got[:n], err, want)
	}
}

// atEnd expects that the connection ends without another byte, and closes it.
func atEnd(t testing.TB, c net.Conn) {
	t.Helper()
	if b, err := io.ReadAll(c); err != nil || len(b) > 0 {
		t.Errorf("%q and %v in place of an end", b, err)
	}
	c.Close()
}

func TestPacksAndUnpacks(t *testing.T) {
	for _, protocol := range []int{2, 3} {
		through, past := clients(t, nil, protocol)
		ctx := t.Context()
		if err := through.MSet(ctx, "user:1", big("a"), "other", big("o"), "user:2", "short").Err(); err != nil {
			t.Fatal(err)
		}
		if v := past.Get(ctx, "user:1").Val(); !isPacked(v) {
			t.Error("it is not packed")
		}
		for key, want := range map[string]string{"other": big("o"), "user:2": "short"} {
			if v := past.Get(ctx, key).Val(); v != want {
				t.Errorf("%s is stored as %q", key, v)
			}
		}
		if v, err := through.Get(ctx, "user:1").Result(); v != big("a") || err != nil {
			t.Errorf("%q, %v", v, err)
		}
		v, err := through.MGet(ctx, "none", "user:1", "other", "user:2").Result()
		if err != nil || v[0] != nil || v[1] != big("a") || v[2] != big("o") || v[3] != "short" {
			t.Errorf("%q, %v", v, err)
		}
		if err := through.HSet(ctx, "user:h", "f", big("f"), "g", big("g"), "n", 5).Err(); err != nil {
			t.Fatal(err)
		}
		if v := past.HGet(ctx, "user:h", "g").Val(); !isPacked(v) {
			t.Error("a field is not packed")
		}
		m, err := through.HGetAll(ctx, "user:h").Result()
		if err != nil || len(m) != 3 || m["f"] != big("f") || m["g"] != big("g") || m["n"] != "5" {
			t.Errorf("%q, %v", m, err)
		}
		page, _, err := through.HScan(ctx, "user:h", 0, "f", 10).Result()
		if err != nil || len(page) != 2 || page[1] != big("f") {
			t.Errorf("%q, %v", page, err)
		}
		pairs, err := through.HRandFieldWithValues(ctx, "user:h", 5).Result()
		if err != nil || len(pairs) != 3 {
			t.Errorf("%q, %v", pairs, err)
		}
		for _, p := range pairs {
			if m[p.Key] != p.Value {
				t.Errorf("%q", p)
			}
		}
		if err := through.Append(ctx, "user:1", "x").Err(); err == nil || !strings.HasPrefix(err.Error(), "BALE APPEND on a key in scope: ") {
			t.Errorf("APPEND: %v", err)
		}
		var get *redis.StringCmd
		if _, err := through.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "user:t", big("t"), 0)
			get = p.Get(ctx, "user:t")
			return nil
		}); err != nil || get.Val() != big("t") {
			t.Errorf("%q, %v", get.Val(), err)
		}
		if _, err := through.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "user:u", big("t"), 0)
			p.Append(ctx, "user:u", "x")
			return nil
		}); err == nil || past.Exists(ctx, "user:u").Val() != 0 {
			t.Errorf("a transaction with a refused command: %v", err)
		}
		past.Set(ctx, "user:absent", frame.Freshness{Absent: true}.Append(frame.Header{Version: frame.V2}.Append(nil)), 0)
		past.Set(ctx, "user:bad", damaged(past.Get(ctx, "user:1").Val()), 0)
		if err := through.Get(ctx, "user:absent").Err(); !errors.Is(err, redis.Nil) {
			t.Errorf("absent: %v", err)
		}
		if v, err := through.MGet(ctx, "user:absent", "user:1").Result(); err != nil || v[0] != nil || v[1] != big("a") {
			t.Errorf("absent of two: %q, %v", v, err)
		}
		for _, err := range []error{through.Get(ctx, "user:bad").Err(), through.MGet(ctx, "user:1", "user:bad").Err()} {
			if err == nil || !strings.HasPrefix(err.Error(), "BALE a value in scope cannot be unpacked: ") {
				t.Errorf("damaged: %v", err)
			}
		}
		past.HSet(ctx, "user:h", "gone", past.Get(ctx, "user:absent").Val())
		if m, err := through.HGetAll(ctx, "user:h").Result(); err != nil || len(m) != 3 {
			t.Errorf("a hash with an absent field: %q, %v", m, err)
		}
		if page, _, err := through.HScan(ctx, "user:h", 0, "*", 10).Result(); err != nil || len(page) != 6 {
			t.Errorf("a page with an absent field: %q, %v", page, err)
		}
		if pairs, err := through.HRandFieldWithValues(ctx, "user:h", 5).Result(); err != nil || len(pairs) != 3 {
			t.Errorf("pairs with an absent one: %q, %v", pairs, err)
		}
	}
}

// damaged is a frame whose last byte differs.
func damaged(stored string) []byte {
	b := bytes.Clone([]byte(stored))
	b[len(b)-1] ^= 1
	return b
}

// activated is a dictionary that the group user writes with.
func activated(t testing.TB, past redis.UniversalClient, content string) *frame.Dictionary {
	t.Helper()
	registry, err := dict.NewRegistry(goredis.NewStore(past), dict.RegistryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := frame.NewDictionary([]byte(content))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(registry.Publish(t.Context(), "user", d, dict.Info{}), registry.Activate(t.Context(), "user", d.ID(), true)); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDictionary: values are packed with the group's dictionary, and a proxy without a group reads
// them. A read-only one packs nothing, but escapes a value that is a frame.
func TestDictionary(t *testing.T) {
	ctx := t.Context()
	server := redisproc.ForTest(t)
	past := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer past.Close()
	d := activated(t, past, strings.Repeat("words that stand in many values: name, email, country, plan; ", 5))
	through := func(change func(*Options)) *redis.Client {
		o := options(server.URL(), "user:*")
		change(&o)
		c := redis.NewClient(&redis.Options{Addr: start(t, o).addr})
		t.Cleanup(func() { c.Close() })
		return c
	}
	writer := through(func(o *Options) {
		o.Groups[0].Compress, o.Groups[0].Group = "zstd:3+dict", "user"
	})
	reader := through(func(o *Options) { o.ReadOnly, o.Listen = true, "unix:"+filepath.Join(t.TempDir(), "s") })
	value := "name, email, country, plan; words that stand in many values: and others that do not"
	if err := writer.Set(ctx, "user:1", value, 0).Err(); err != nil {
		t.Fatal(err)
	}
	stored := past.Get(ctx, "user:1").Val()
	if h, _, ok := frame.Parse([]byte(stored)); !ok || h.DictionaryID != d.ID() {
		t.Errorf("stored with dictionary %v", h.DictionaryID)
	}
	if got, err := reader.Get(ctx, "user:1").Result(); err != nil || got != value {
		t.Errorf("%q, %v", got, err)
	}
	for key, v := range map[string]string{"user:2": big("plain"), "user:3": stored} {
		if err := reader.Set(ctx, key, v, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := reader.Get(ctx, key).Result(); err != nil || got != v {
			t.Errorf("%s: %q, %v", key, got, err)
		}
	}
	// As docs/security.md says: a forged frame reads a dictionary, without a right to the registry's
	// keys.
	encoder, err := zstd.New(zstd.Options{Dictionary: d})
	if err != nil {
		t.Fatal(err)
	}
	defer encoder.Close()
	forger, err := bale.NewPacker(bale.PackerOptions{NoChecksum: true, Compressors: &compress.Set{Write: encoder}})
	if err != nil {
		t.Fatal(err)
	}
	forged, err := forger.Pack(nil, d.Bytes()) // a copy of so many bytes, which needs no knowledge of them
	if err != nil || bytes.Contains(forged, []byte("words")) {
		t.Fatalf("%q, %v", forged, err)
	}
	for _, command := range [][]any{{"set", "other", forged}, {"rename", "other", "user:4"}} {
		if err := reader.Do(ctx, command...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := reader.Get(ctx, "user:4").Bytes(); err != nil || !bytes.Equal(got, d.Bytes()) {
		t.Errorf("%q, %v", got, err)
	}
	if past.Get(ctx, "user:2").Val() != big("plain") || past.Get(ctx, "user:3").Val() == stored {
		t.Error("packed in spite of --read-only, or not escaped")
	}
}

// TestSocket: the socket of a proxy that was killed is replaced; one in use, and a file, are not.
func TestSocket(t *testing.T) {
	server := redisproc.ForTest(t)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	o := options(server.URL(), "user:*")
	o.Listen, o.ListenMode = "unix:"+path, 0o640
	if err := Run(t.Context(), o); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a socket in use: %v", err)
	}
	l.Close()
	p := start(t, o)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", info, err)
	}
	c := dial(t, path)
	talk(t, c, wire("PING"), "+PONG\r\n")
	c.Close()
	if err := p.stop(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), o); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a file: %v", err)
	}
}
