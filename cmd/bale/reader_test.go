package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

// TestDictionariesAreBounded: a command that meets many dictionaries keeps those used last, and
// fetches one for all algorithms.
func TestDictionariesAreBounded(t *testing.T) {
	const (
		dictionaries = 40 // of 1 MiB
		allowed      = 32 << 20
	)
	algorithms := []frame.Algorithm{frame.Zstd, frame.S2, frame.LZ4}
	ctx := t.Context()
	client, url := newServer(t)
	servers, err := (&registryFlags{Prefix: dict.DefaultPrefix}).open(ctx, 0, url)
	clitest.OK(t, err)
	defer servers.close()
	r := newRegistryReader(servers)
	var ids []frame.DictionaryID
	payloads := map[frame.Algorithm][]byte{} // with the first dictionary
	noise := make([]byte, frame.MaxDictionarySize)
	for i := range dictionaries {
		rand.NewChaCha8([32]byte{byte(i)}).Read(noise)
		d, err := frame.NewDictionary(noise)
		clitest.OK(t, err, client.Set(ctx, dict.DefaultPrefix+"data:"+d.ID().String(), noise, 0).Err())
		ids = append(ids, d.ID())
		if i > 0 {
			continue
		}
		for _, a := range algorithms {
			var engine compress.Engine
			c, err := engine.New(compress.Setting{Algorithm: a}, d)
			clitest.OK(t, err)
			payloads[a], err = c.Compress(nil, d.Tail(1000))
			clitest.OK(t, err, c.Close())
		}
	}
	first := slices.Clone(noise)
	rand.NewChaCha8([32]byte{0}).Read(first)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	sent := func() (n int64) {
		t.Helper()
		info, err := client.InfoMap(ctx, "stats").Result()
		clitest.OK(t, err)
		_, err = fmt.Sscan(info["Stats"]["total_net_output_bytes"], &n)
		clitest.OK(t, err)
		return n
	}
	sentBefore := sent()
	readFirst := func() {
		t.Helper()
		for _, a := range algorithms {
			c, err := r.Reader(ctx, a, ids[0])
			clitest.OK(t, err)
			if plain, err := c.Decompress(nil, payloads[a], 1000); err != nil || !slices.Equal(plain, first[len(first)-1000:]) {
				t.Errorf("%v: %d bytes, %v", a, len(plain), err)
			}
		}
	}
	readFirst()
	for _, id := range ids[1:] {
		for _, a := range algorithms {
			_, err := r.Reader(ctx, a, id)
			clitest.OK(t, err)
		}
	}
	if grown := heap() - before; grown > allowed {
		t.Errorf("%d MiB are kept", grown>>20)
	}
	readFirst()                                                     // which was dropped
	const most = (2*(dictionaries+1) + 1) * frame.MaxDictionarySize // a fetch reads a dictionary twice
	if n := sent() - sentBefore; n > most {
		t.Errorf("the registry sent %d bytes, more than %d", n, most)
	}
	runtime.KeepAlive(r)
}
