package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
	"github.com/balekv/bale/stats/eventfile"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// batch is of events of one group that ended in a second after noon.
func batch(second int, group string, all ...stats.Event) *stats.Batch {
	b := &stats.Batch{From: noon.Add(time.Duration(second) * time.Second), To: noon.Add(time.Duration(second+1) * time.Second), Events: all}
	for range all {
		b.Groups = append(b.Groups, group)
	}
	return b
}

// file is what eventfile.NewWriter writes of batches.
func file(t *testing.T, batches ...*stats.Batch) []byte {
	t.Helper()
	var b bytes.Buffer
	f := eventfile.NewWriter(&b)
	for _, batch := range batches {
		if err := f.Write(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func collect(t *testing.T, o Options, files ...[]byte) *Summary {
	t.Helper()
	var sources []Source
	for i, f := range files {
		sources = append(sources, Source{Name: fmt.Sprint("file ", i), Reader: bytes.NewReader(f)})
	}
	s, err := Collect(t.Context(), sources, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestProgress: it ends with all bytes of the files, and has no total where one is not known.
func TestProgress(t *testing.T) {
	a, b := file(t, batch(0, "g", stats.Event{}), batch(2, "g", stats.Event{})), file(t, batch(1, "g", stats.Event{}, stats.Event{}))
	for _, known := range []bool{true, false} {
		sources := []Source{{Name: "a", Reader: bytes.NewReader(a), Size: int64(len(a))}, {Name: "b", Reader: bytes.NewReader(b)}}
		want := 0
		if known {
			sources[1].Size, want = int64(len(b)), len(a)+len(b)
		}
		last, total, said := 0, 0, ""
		_, err := Collect(t.Context(), sources, Options{Progress: func(done, of int, what string) {
			if done < last || done > of {
				t.Errorf("%d of %d after %d", done, of, last)
			}
			last, total, said = done, of, what
		}})
		if err != nil || last != want || total != want || said != "4 events read" {
			t.Errorf("%d of %d: %q, %v", last, total, said, err)
		}
	}
}

func event(r *rand.Rand) stats.Event {
	e := stats.Event{Op: stats.Op(r.IntN(stats.Ops)), Keys: 1, Algorithm: frame.S2, DictionaryID: 7, Plain: 1000 + r.IntN(1000), Stored: 1 + r.IntN(1000), Timed: r.IntN(3) == 0}
	switch r.IntN(4) {
	case 0:
		e.Class, e.Errors = stats.Class(1+r.IntN(stats.Classes-1)), 1
	case 1:
		e.Misses = 1
	default:
		e.Hits = 1
	}
	if e.Timed {
		for i := range e.Times {
			e.Times[i] = time.Duration(1 + r.ExpFloat64()*float64(time.Millisecond))
		}
	}
	return e
}

// TestAsCounted: a file gives the same counts as Counters for the same events, and percentiles
// match the sorted times.
func TestAsCounted(t *testing.T) {
	counters := stats.NewCounters(stats.CountersOptions{})
	var buf bytes.Buffer
	ring, err := stats.NewRing(eventfile.NewWriter(&buf), stats.RingOptions{Size: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	group := ring.Group("users")
	r := rand.New(rand.NewPCG(1, 2))
	totals := map[stats.Op][]time.Duration{}
	for range 20_000 {
		e := event(r)
		counters.Record(t.Context(), e)
		group.Record(t.Context(), e)
		if e.Timed {
			totals[e.Op] = append(totals[e.Op], e.Total())
		}
	}
	if err := ring.Close(); err != nil {
		t.Fatal(err)
	}
	s := collect(t, Options{Every: time.Millisecond}, buf.Bytes())
	if len(s.Rows) != stats.Ops || s.Events != 20_000 || s.Selected != 20_000 || len(s.Warnings) > 0 {
		t.Fatalf("%d rows, %+v", len(s.Rows), s)
	}
	snapshot := counters.Snapshot()
	var callers uint64
	for op, row := range s.Rows {
		want := snapshot.Ops[op]
		classes := map[string]uint64{}
		for class, n := range want.Errors {
			if n > 0 {
				classes[stats.Class(class).String()] = n
			}
		}
		if diff := cmp.Diff(classes, row.Errors); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.Op, diff)
		}
		if row.Op != stats.Op(op).String() || row.Group != "users" || row.Count != want.Count || row.Keys != want.Keys || row.Misses != want.Misses ||
			row.Plain != want.Plain || row.Stored != want.Stored || *row.Ratio != want.Ratio() || row.Algorithm != "s2" || row.Dictionary != "00000007" {
			t.Errorf("%+v, counted %+v", row, want)
		}
		if reads := stats.Op(op) == stats.Get || stats.Op(op) == stats.GetMany; reads != (row.HitRate != nil) || reads && row.Hits != want.Hits {
			t.Errorf("%+v, counted %d hits", row, want.Hits)
		}
		if len(row.Stages) != 1+stats.Stages || row.Stages[0].Stage != Total || row.Stages[3].Stage != "store" {
			t.Fatalf("stages %+v", row.Stages)
		}
		all := totals[stats.Op(op)]
		slices.Sort(all)
		if got := row.Stages[0].Timed; got != uint64(len(all)) {
			t.Errorf("%s: %d timed, want %d", row.Op, got, len(all))
		}
		for q, got := range map[int]float64{50: row.Stages[0].P50, 95: row.Stages[0].P95, 99: row.Stages[0].P99} {
			rank := len(all) * q / 100 // or one beside it, by how it is rounded
			if low, high := float64(all[rank-1])/1e3, float64(all[rank+1])/1e3; got < low*0.99 || got > high*1.01 {
				t.Errorf("%s: P%d is %.1f us, want %.1f to %.1f", row.Op, q, got, low, high)
			}
		}
		if stats.Op(op).Call() {
			callers += row.Count
		}
	}
	for _, i := range s.Series {
		callers -= i.Count
	}
	if callers != 0 {
		t.Errorf("the series has %d operations more or less", callers)
	}
}

// TestSeries: files are read in the order of time, a clock that was put back takes nothing back,
// and intervals without events are left out.
func TestSeries(t *testing.T) {
	get := stats.Event{Op: stats.Get, Keys: 1, Hits: 1, Plain: 300, Stored: 100, Timed: true, Times: [stats.Stages]time.Duration{stats.Store: time.Millisecond}}
	miss, failed := stats.Event{Op: stats.Get, Keys: 1, Misses: 1}, stats.Event{Op: stats.Load, Class: stats.Loader, Keys: 1}
	dropped := batch(25, "a")
	dropped.Dropped = 3
	a := file(t, batch(5, "a", get, get), batch(9, "a", get), batch(2, "a", get, failed), dropped)
	b := file(t, batch(6, "b", miss), batch(12, "a", get), batch(60, "a", get))
	s := collect(t, Options{Every: 10 * time.Second}, a, b)
	one, three, ms := 1., 3., s.Series[1].P99
	half := 0.8
	want := []Interval{
		{Start: noon, Seconds: 8, Count: 5, PerSecond: 5. / 8, Hits: 4, Misses: 1, HitRate: &half, Plain: 1200, Stored: 400, Ratio: &three, Timed: 4, P99: ms, Failed: 1},
		{Start: noon.Add(10 * time.Second), Seconds: 10, Count: 1, PerSecond: 0.1, Hits: 1, HitRate: &one, Plain: 300, Stored: 100, Ratio: &three, Timed: 1, P99: ms},
		{Start: noon.Add(20 * time.Second), Seconds: 10, Dropped: 3},
		{Start: noon.Add(60 * time.Second), Seconds: 1, Count: 1, PerSecond: 1, Hits: 1, HitRate: &one, Plain: 300, Stored: 100, Ratio: &three, Timed: 1, P99: ms},
	}
	if diff := cmp.Diff(want, s.Series); diff != "" || *ms < 999 || *ms > 1010 {
		t.Errorf("P99 %v, (-want +got):\n%s", *ms, diff)
	}
	if s.Files != 2 || !s.From.Equal(noon.Add(2*time.Second)) || s.Seconds != 59 || s.Events != 8 || s.Dropped != 3 || s.Timed != 6 {
		t.Errorf("%+v", s)
	}
	if s = collect(t, Options{Group: "b"}, a, b); s.Selected != 1 || len(s.Rows) != 1 || s.Rows[0].Group != "b" || s.Series != nil || s.Dropped != 3 {
		t.Errorf("%+v", s)
	}
	if s = collect(t, Options{Group: "c"}, a, b); s.Selected != 0 || s.Rows == nil || !slices.Equal(s.Groups, []string{"a", "b"}) {
		t.Errorf("%+v", s)
	}
}

func TestLike(t *testing.T) {
	for _, test := range []struct {
		pattern, group string
		want           bool
	}{{"", "x", true}, {"*", "a/b", true}, {"user:*", "user:1/2", true}, {"user:?", "user:/", true}, {"user:?", "user:12", false}, {"a/b", "a/b", true}, {"[ab]", "b", true}, {"x", "y", false}} {
		if got := like(test.pattern, test.group); got != test.want {
			t.Errorf("like(%q, %q) = %v", test.pattern, test.group, got)
		}
	}
}

// TestBounds: a file with a group for each user, or with a time for each event, takes no more
// memory than another.
func TestBounds(t *testing.T) {
	var batches []*stats.Batch
	for i := range 2000 {
		batches = append(batches, batch(0, fmt.Sprint("user:", i), stats.Event{Op: stats.Op(i % 2), Keys: 1}))
	}
	s := collect(t, Options{}, file(t, batches...))
	others := slices.IndexFunc(s.Rows, func(r *Row) bool { return r.Group == OtherGroups })
	if len(s.Rows) != maxRows+2 || others < 0 || s.Rows[others].Count != 750 || len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], OtherGroups) {
		t.Errorf("%d rows, others %d, warnings %v", len(s.Rows), others, s.Warnings)
	}
	batches = nil
	for i := range maxIntervals + 1 {
		batches = append(batches, batch(i, "a", stats.Event{Keys: 1}))
	}
	f := file(t, batches...)
	if _, err := Collect(t.Context(), []Source{{Name: "f", Reader: bytes.NewReader(f)}}, Options{Every: time.Second}); !errors.Is(err, ErrIntervals) {
		t.Error(err)
	}
	if s := collect(t, Options{Every: time.Minute}, f); len(s.Series) != maxIntervals/60+1 {
		t.Errorf("%d intervals", len(s.Series))
	}
}

// TestLongName: each event is looked at under the start of its group's name alone. With all of it,
// a file of 4 MiB whose events have a name of 1 MiB took an hour to be matched.
func TestLongName(t *testing.T) {
	long := strings.Repeat("/", 1<<20-100)
	f := file(t, batch(0, long, stats.Event{Keys: 1}))
	if s := collect(t, Options{}, f); len(s.Rows) != 1 || s.Rows[0].Group != printable.Name(long) {
		t.Errorf("%d rows, the name has %d bytes", len(s.Rows), len(s.Rows[0].Group))
	}
	if s := collect(t, Options{Group: "x"}, f); len(s.Groups) != 1 || s.Groups[0] != printable.Name(long) {
		t.Errorf("%d groups, the name has %d bytes", len(s.Groups), len(s.Groups[0]))
	}
}

// TestWhatIsWhole: a file is shown as far as it can be read, wherever it ends, and never fails in
// another way than by a warning or an error.
func TestWhatIsWhole(t *testing.T) {
	whole := file(t, batch(0, "a", stats.Event{Keys: 1}), batch(1, "a", stats.Event{Keys: 1}))
	first := len(file(t, batch(0, "a", stats.Event{Keys: 1})))
	for n := range whole {
		s, err := Collect(t.Context(), []Source{{Name: "app", Reader: bytes.NewReader(whole[:n])}}, Options{})
		switch {
		case n < first:
			if err == nil || !strings.HasPrefix(err.Error(), "app") {
				t.Errorf("%d bytes: %v", n, err)
			}
		case err != nil || s.Events != 1 || (len(s.Warnings) == 1) != (n > first):
			t.Errorf("%d bytes: %+v, %v", n, s, err)
		case n > first && s.Warnings[0] != "app ends within a batch, as that of a program that was killed may: what is before is shown, 1 batch":
			t.Errorf("%d bytes: %v", n, s.Warnings)
		}
	}
	broken := errors.New("the disk is broken")
	s, err := Collect(t.Context(), []Source{{Name: "app", Reader: io.MultiReader(bytes.NewReader(whole), iotest.ErrReader(broken))}}, Options{})
	if err != nil || s.Events != 2 || len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "app: the disk is broken: what is before is shown, 2 batches") {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := Collect(t.Context(), []Source{{Name: "a", Reader: iotest.ErrReader(broken)}}, Options{}); !errors.Is(err, broken) {
		t.Error(err)
	}
	magic := whole[:bytes.IndexByte(whole, '\n')+1]
	_, err = Collect(t.Context(), []Source{{Name: "a", Reader: bytes.NewReader(magic)}, {Name: "b", Reader: iotest.ErrReader(broken)}}, Options{})
	if !errors.Is(err, ErrNothing) || err.Error() != "nothing could be read: a is empty: no batch of events was written; b: the disk is broken" {
		t.Error(err)
	}
	if _, err := Collect(t.Context(), nil, Options{Group: "["}); !errors.Is(err, ErrPattern) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Collect(ctx, []Source{{Name: "a", Reader: bytes.NewReader(whole)}}, Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestLaterVersion: an operation and a class that this version does not know have a number for a
// name.
func TestLaterVersion(t *testing.T) {
	s := collect(t, Options{}, file(t, batch(0, "a", stats.Event{Op: 99, Class: 77, Keys: 1})))
	if len(s.Rows) != 1 || s.Rows[0].Op != "op 99" || s.Rows[0].Errors["class 77"] != 1 {
		t.Errorf("%+v", s.Rows[0])
	}
}

// endless gives a batch again and again, and says in the end how much memory is in use.
type endless struct {
	start, batch []byte
	at, left     int
	heap         uint64
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.start) > 0 {
		n := copy(p, e.start)
		e.start = e.start[n:]
		return n, nil
	}
	if e.left == 0 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		e.heap = m.HeapAlloc
		return 0, io.EOF
	}
	n := copy(p, e.batch[e.at:])
	if e.at += n; e.at == len(e.batch) {
		e.at, e.left = 0, e.left-1
	}
	return n, nil
}

// TestMemory: a hundred times the file takes no more memory.
func TestMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var all []stats.Event
	for range 100 {
		all = append(all, event(r))
	}
	first := file(t, batch(0, "a", all...))
	second := file(t, batch(0, "a", all...), batch(0, "a", all...))[len(first):] // without the name of the group
	heap := func(batches int) int64 {
		e := &endless{start: first, batch: second, left: batches}
		s, err := Collect(t.Context(), []Source{{Name: "f", Reader: e}}, Options{Every: time.Second})
		if err != nil || s.Events != uint64(batches+1)*100 {
			t.Fatalf("%+v, %v", s, err)
		}
		return int64(e.heap)
	}
	if short, long := heap(100), heap(10_000); long-short > 200<<10 {
		t.Errorf("%d bytes in use after a million events, %d after 10,000", long, short)
	}
}
