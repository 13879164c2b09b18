package lab

import (
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"time"

	"github.com/balekv/bale/cmd/internal/outcome"
)

const (
	timelineInterval = 20 * time.Millisecond // between looks at the memory,
	momentsFirst     = 10                    // of which so many make a moment at first; twice as many each time that there are
	maxMoments       = 600                   // so many
)

// timeline looks at this process over the time of a run.
type timeline struct {
	run     *run
	memory  *residentSet
	closing chan struct{}
	closed  chan struct{}
	once    sync.Once

	mu        sync.Mutex
	peaks     peaks // since they were read
	what      string
	all       []outcome.Moment
	each      int // looks a moment
	looks     int
	lastAt    time.Time
	lastOps   int64
	lastGC    uint32
	lastPause uint64
}

// watchTime begins a timeline, which looks until it is stopped.
func (r *run) watchTime() *timeline {
	t := &timeline{run: r, memory: openResidentSet(r), closing: make(chan struct{}), closed: make(chan struct{}), each: momentsFirst, lastAt: time.Now()}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	t.lastGC, t.lastPause = stats.NumGC, stats.PauseTotalNs
	go func() {
		defer close(t.closed)
		defer t.memory.close()
		ticker := time.NewTicker(timelineInterval)
		defer ticker.Stop()
		for {
			select {
			case <-t.closing:
				return
			case <-ticker.C:
				t.look()
			}
		}
	}()
	return t
}

// stop ends it; it may be called more than once.
func (t *timeline) stop() {
	t.once.Do(func() { close(t.closing) })
	<-t.closed
}

func (t *timeline) doing(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.what = what
}

// peaks are the most of the resident set and the address space, in bytes, and of the goroutines.
type peaks struct {
	rss, vss   int64
	goroutines int
}

// read returns the peaks since the last call, and the resident set as it is. It allocates nothing.
func (t *timeline) read() (p peaks, rss int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.peak()
	p, t.peaks = t.peaks, peaks{}
	t.peak() // the next peak is at least what there is now
	return p, t.peaks.rss
}

func (t *timeline) peak() {
	rss, vss := t.memory.read()
	t.peaks = peaks{max(t.peaks.rss, rss), max(t.peaks.vss, vss), max(t.peaks.goroutines, runtime.NumGoroutine())}
}

const heapBytes = "/memory/classes/heap/objects:bytes"

func (t *timeline) look() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.peak()
	if t.looks++; t.looks%t.each != 0 {
		return
	}
	now := time.Now()
	rss, _ := t.memory.read()
	m := outcome.Moment{AtS: now.Sub(t.run.began).Seconds(), RSSBytes: rss, Goroutines: runtime.NumGoroutine(), Doing: t.what}
	var sample [1]metrics.Sample
	sample[0].Name = heapBytes
	metrics.Read(sample[:])
	if sample[0].Value.Kind() == metrics.KindUint64 {
		m.HeapBytes = int64(sample[0].Value.Uint64())
	}
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	ops := t.run.operations.Load()
	m.OpsPerSecond = float64(ops-t.lastOps) / now.Sub(t.lastAt).Seconds()
	m.GCCycles, m.GCPauseUS = int(stats.NumGC-t.lastGC), float64(stats.PauseTotalNs-t.lastPause)/1e3
	t.lastAt, t.lastOps, t.lastGC, t.lastPause = now, ops, stats.NumGC, stats.PauseTotalNs
	if t.all = append(t.all, m); len(t.all) == maxMoments {
		t.halve()
	}
}

// halve makes one moment of two.
func (t *timeline) halve() {
	for i := range maxMoments / 2 {
		a, b := t.all[2*i], t.all[2*i+1]
		b.GCCycles += a.GCCycles
		b.GCPauseUS += a.GCPauseUS
		b.OpsPerSecond = (a.OpsPerSecond + b.OpsPerSecond) / 2
		b.RSSBytes, b.HeapBytes, b.Goroutines = max(a.RSSBytes, b.RSSBytes), max(a.HeapBytes, b.HeapBytes), max(a.Goroutines, b.Goroutines)
		t.all[i] = b
	}
	t.all = t.all[:maxMoments/2]
	t.each *= 2
}

// moments are those so far.
func (t *timeline) moments() []outcome.Moment {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.all)
}
