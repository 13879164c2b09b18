package goredis

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/compress/zstd"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/stream"
)

// logLines makes n bytes of a service's log.
func logLines(seed, n int) []byte {
	b := make([]byte, 0, n+300)
	for i := seed; len(b) < n; i++ {
		b = fmt.Appendf(b, `{"time":"2026-01-%02dT%02d:%02d:%02d.%03dZ","level":"%s","service":"checkout","trace":"%016x","user":%d,"path":"/api/v1/products/%d","status":%d,"ms":%d,"message":"%s"}`+"\n",
			1+i/86400%28, i/3600%24, i/60%60, i%60, i*7919%1000, []string{"info", "info", "info", "warn"}[i%4], uint64(i)*0x9E3779B97F4A7C15, i*7919%100_003, i*104_729%5003,
			[]int{200, 200, 304, 404}[i*31%4], i*i%400, []string{"served from cache", "cache miss, loading from database", "token refreshed"}[i%3])
	}
	return b[:n]
}

// endless is a source of n bytes, which it generates and does not keep.
type endless struct {
	block []byte
	at    int64
	size  int64
	sum   hash.Hash
	peak  *uint64
}

func (e *endless) Read(p []byte) (int, error) {
	if e.at == e.size {
		return 0, io.EOF
	}
	start := int(e.at % int64(len(e.block)))
	if start == 0 { // no block is like another
		copy(e.block, strconv.FormatInt(e.at, 36))
		watchHeap(e.peak)
	}
	n := copy(p[:min(int64(len(p)), e.size-e.at)], e.block[start:])
	e.sum.Write(p[:n])
	e.at += int64(n)
	return n, nil
}

func watchHeap(peak *uint64) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	*peak = max(*peak, m.HeapInuse)
}

// TestStreamInBoundedMemory takes a value through Redis that is larger than the memory it may use.
// BALE_STREAM_BYTES is its size, up to 10 GiB.
func TestStreamInBoundedMemory(t *testing.T) {
	size := int64(64 << 20)
	if s := os.Getenv("BALE_STREAM_BYTES"); s != "" {
		var err error
		if size, err = strconv.ParseInt(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	for name, client := range map[string]func(t *testing.T) redis.UniversalClient{
		"standalone": func(t *testing.T) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: redisproc.ForTest(t).Addr()})
		},
		"cluster": func(t *testing.T) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: redisproc.ClusterForTest(t, 3).Addrs()})
		},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := client(t)
			defer rdb.Close()
			s, err := stream.New(NewStore(rdb), stream.Options{})
			if err != nil {
				t.Fatal(err)
			}
			runtime.GC()
			var before, peak uint64
			watchHeap(&before)
			source := &endless{block: logLines(0, 8<<20), size: size, sum: sha256.New(), peak: &peak}
			start := time.Now()
			info, err := s.PutReader(t.Context(), "log", source, bale.TTL(time.Hour))
			if err != nil || info.Size != size {
				t.Fatal(info, err)
			}
			written := time.Since(start)
			r, err := s.GetReader(t.Context(), "log")
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			start = time.Now()
			sum := sha256.New()
			for {
				watchHeap(&peak)
				if _, err := io.CopyN(sum, r, 8<<20); err == io.EOF {
					break
				} else if err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(sum.Sum(nil), source.sum.Sum(nil)) {
				t.Error("another value comes back")
			}
			t.Logf("%d MiB in %d chunks, ratio %.2f, written in %v, read in %v, the heap grew by %d MiB", size>>20, info.Chunks, float64(size)/float64(info.Stored),
				written.Round(time.Millisecond), time.Since(start).Round(time.Millisecond), (peak-before)>>20)
			if peak > before+96<<20 {
				t.Errorf("the heap grew by %d MiB", (peak-before)>>20)
			}
		})
	}
}

// TestStreamIsMended: on real servers a read or Repair keeps chunks from expiring before their
// value.
func TestStreamIsMended(t *testing.T) {
	for name, client := range map[string]func(t *testing.T) redis.UniversalClient{
		"standalone": func(t *testing.T) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: redisproc.ForTest(t).Addr()})
		},
		"cluster": func(t *testing.T) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: redisproc.ClusterForTest(t, 3).Addrs()})
		},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := client(t)
			defer rdb.Close()
			value := make([]byte, 300_000)
			rand.NewChaCha8([32]byte{}).Read(value)
			for _, how := range []string{"reader", "Repair"} {
				s, err := stream.New(NewStore(rdb), stream.Options{Chunk: 64 << 10})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.PutReader(t.Context(), "k", bytes.NewReader(value), bale.Expiry{}); err != nil {
					t.Fatal(err)
				}
				stored, err := rdb.Get(t.Context(), "k").Bytes()
				if err != nil {
					t.Fatal(err)
				}
				m, err := stream.ParseManifest(stored)
				if err != nil || m.Chunks < 2 {
					t.Fatal(m, err)
				}
				last := m.ChunkKey("k", m.Chunks-1)
				if ok, err := rdb.PExpire(t.Context(), last, time.Hour).Result(); !ok || err != nil {
					t.Fatal(ok, err)
				}
				if how == "reader" {
					r, err := s.GetReader(t.Context(), "k")
					if err != nil {
						t.Fatal(err)
					}
					if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, value) {
						t.Errorf("%d bytes, %v", len(got), err)
					}
					r.Close()
				} else if r, err := s.Repair(t.Context(), "k"); err != nil || r != (stream.Repaired{Mended: m.Chunks}) {
					t.Errorf("%+v, %v", r, err)
				}
				if d, err := rdb.PTTL(t.Context(), last).Result(); d != -1 || err != nil {
					t.Errorf("%s: the last chunk lives for %v, %v", how, d, err)
				}
				if n, err := rdb.Exists(t.Context(), "k:bale:journal").Result(); n != 0 || err != nil {
					t.Errorf("%s: the journal is there, %v", how, err)
				}
			}
		})
	}
}

// losing is a connection that breaks once, after the server has answered a swap of the key "k" and
// before the client reads the answer.
type losing struct {
	net.Conn
	armed *atomic.Bool
	lost  func()
}

func (l *losing) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	swap := bytes.Contains(p, []byte("evalsha")) && bytes.Contains(p, []byte("\r\n$1\r\nk\r\n"))
	if err == nil && swap && l.armed.CompareAndSwap(true, false) {
		answer := make([]byte, 4)
		if _, err := io.ReadFull(l.Conn, answer); err != nil || string(answer) != ":1\r\n" {
			return n, fmt.Errorf("the server answers %q, %w", answer, err)
		}
		l.Conn.Close()
		l.lost()
	}
	return n, err
}

// TestStreamSwapIsSentAgain: go-redis loses the answer to a swap and sends it again. Meanwhile
// another program replaces the value, or none does. A value that is there stays, and all other
// chunks expire.
func TestStreamSwapIsSentAgain(t *testing.T) {
	ctx := t.Context()
	rdb := redis.NewClient(&redis.Options{Addr: redisproc.ForTest(t).Addr()})
	defer rdb.Close()
	open := func(client *redis.Client) *stream.Streams {
		s, err := stream.New(NewStore(client), stream.Options{Chunk: 64 << 10})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	put := func(s *stream.Streams, seed byte) error {
		_, err := s.PutReader(ctx, "k", io.LimitReader(rand.NewChaCha8([32]byte{seed}), 200_000), bale.Expiry{})
		return err
	}
	remove := func(s *stream.Streams, _ byte) error { _, err := s.Delete(ctx, "k"); return err }
	other := open(rdb)
	for name, change := range map[string]func(s *stream.Streams, seed byte) error{"put": put, "delete": remove} {
		for _, replaced := range []bool{false, true} {
			if err := put(other, 0); err != nil {
				t.Fatal(err)
			}
			var armed atomic.Bool
			armed.Store(true)
			lost := func() {
				if replaced {
					if err := put(other, 2); err != nil {
						t.Error(err)
					}
				}
			}
			o := redis.Options{Addr: rdb.Options().Addr}
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := new(net.Dialer).DialContext(ctx, network, addr)
				return &losing{c, &armed, lost}, err
			}
			breaking := redis.NewClient(&o)
			if err := change(open(breaking), 1); err != nil || armed.Load() {
				t.Errorf("%s: %v, an answer is lost: %v", name, err, !armed.Load())
			}
			breaking.Close()
			var m stream.Manifest
			if stored, err := rdb.Get(ctx, "k").Bytes(); err == nil {
				if m, err = stream.ParseManifest(stored); err != nil {
					t.Error(err)
				}
			} else if name == "put" || !errors.Is(err, redis.Nil) {
				t.Error(err)
			}
			there := map[string]bool{}
			for i := range m.Chunks {
				there[m.ChunkKey("k", i)] = true
			}
			for _, key := range rdb.Keys(ctx, "k:*").Val() {
				if d := rdb.PTTL(ctx, key).Val(); there[key] != (d == -1) {
					t.Errorf("%s, replaced %v: %s lives for %v, and is of the value: %v", name, replaced, key, d, there[key])
				}
				delete(there, key)
			}
			if len(there) > 0 {
				t.Errorf("%s, replaced %v: missing chunks %v", name, replaced, there)
			}
		}
	}
}

// BenchmarkStream writes and reads a 10 MB batch of log lines, in turn as a stream and in one
// piece. Both use the same level of zstd. The ratios exclude their few bytes of headers.
func BenchmarkStream(b *testing.B) {
	rdb := redis.NewClient(&redis.Options{Addr: redisproc.ForTest(b).Addr()})
	defer rdb.Close()
	store := NewStore(rdb)
	value := logLines(1, 10_000_000)
	for name, level := range map[string]zstd.Level{"fastest": zstd.Fastest, "default": zstd.Default, "better": zstd.Better} {
		b.Run(name, func(b *testing.B) {
			c, err := zstd.New(zstd.Options{Level: level})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			packer, err := bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: c}})
			if err != nil {
				b.Fatal(err)
			}
			defer packer.Close()
			streams, err := stream.New(store, stream.Options{Level: level})
			if err != nil {
				b.Fatal(err)
			}
			var times [4]time.Duration
			var packed, got, plain []byte
			var info stream.Info
			out := bytes.NewBuffer(make([]byte, 0, len(value)+512))
			steps := []func() error{
				func() (err error) {
					if packed, err = packer.Pack(packed[:0], value); err != nil {
						return err
					}
					return store.Set(b.Context(), "piece", packed, bale.TTL(time.Hour))
				},
				func() (err error) {
					info, err = streams.PutReader(b.Context(), "stream", bytes.NewReader(value), bale.TTL(time.Hour))
					return err
				},
				func() (err error) {
					if got, err = store.Get(b.Context(), "piece"); err != nil {
						return err
					}
					plain, err = packer.Unpack(b.Context(), plain[:0], got)
					return err
				},
				func() error {
					r, err := streams.GetReader(b.Context(), "stream")
					if err != nil {
						return err
					}
					defer r.Close()
					out.Reset()
					_, err = r.WriteTo(out)
					return err
				},
			}
			n := 0
			for b.Loop() {
				n++
				for i, step := range steps {
					start := time.Now()
					if err := step(); err != nil {
						b.Fatal(err)
					}
					times[i] += time.Since(start)
				}
				if !bytes.Equal(plain, value) || !bytes.Equal(out.Bytes(), value) {
					b.Fatal("another value comes back")
				}
			}
			ms := func(i int) float64 { return times[i].Seconds() * 1000 / float64(n) }
			b.ReportMetric(ms(0), "ms-set-piece")
			b.ReportMetric(ms(1), "ms-put-stream")
			b.ReportMetric(ms(2), "ms-get-piece")
			b.ReportMetric(ms(3), "ms-get-stream")
			b.ReportMetric(float64(len(value))/float64(len(packed)), "x-piece")
			b.ReportMetric(float64(len(value))/float64(info.Stored), "x-stream")
			b.ReportMetric(0, "ns/op")
		})
	}
}
