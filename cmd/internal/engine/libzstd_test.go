//go:build cgo

package engine

import (
	"bytes"
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/shirou/gopsutil/v4/process"

	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/internal/testvalues"
)

// TestNaiveFrees disables the garbage collector, which could free what a call must free itself, and
// reads the memory of the process. Each leaked context would take 100 KB and more.
func TestNaiveFrees(t *testing.T) {
	if testvalues.Race {
		t.Skip("the race detector keeps memory of its own")
	}
	d := dictionaries(t)[0]
	own, err := process.NewProcess(int32(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	rss := func() int64 {
		m, err := own.MemoryInfo()
		if err != nil {
			t.Fatal(err)
		}
		return int64(m.RSS)
	}
	const calls, limit = 1000, 20 << 20
	for name, d := range map[string]*dict.Dictionary{"zstd:3/cgo/naive": nil, "zstd:3/cgo/naive+dict": d} {
		s, err := ParseForm(name)
		if err != nil {
			t.Fatal(err)
		}
		c := makes(t, s, d)
		value := text(4096, 1)
		payload, back := make([]byte, 0, 8192), make([]byte, 0, 8192)
		call := func() {
			if payload, err = c.Compress(payload[:0], value); err != nil {
				t.Fatal(err)
			}
			if back, err = c.Decompress(back[:0], payload, len(value)); err != nil || !bytes.Equal(back, value) {
				t.Fatal(err)
			}
			// Failures too.
			if _, err := c.Decompress(back[:0], payload[:len(payload)/2], len(value)); err == nil {
				t.Fatal("half a payload is taken")
			}
		}
		call()
		runtime.GC()
		percent := debug.SetGCPercent(-1)
		before := rss()
		for range calls {
			call()
		}
		grown := rss() - before
		debug.SetGCPercent(percent)
		if grown > limit {
			t.Errorf("%s: the process grew by %d bytes in %d calls", name, grown, calls)
		}
	}
}
