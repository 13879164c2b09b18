package eventfile

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
	"github.com/google/go-cmp/cmp"
)

// TestFile: what is written is read, batch by batch.
func TestFile(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	var buf bytes.Buffer
	f := NewWriter(&buf)
	var want []stats.Batch
	for n := range 5 {
		b := stats.Batch{From: time.Unix(int64(n), 5), To: time.Unix(int64(n+1), 7), Dropped: uint64(n)}
		for range n * 20 {
			b.Groups, b.Events = append(b.Groups, string(rune('a'+r.IntN(n+1)))), append(b.Events, event(r))
		}
		for i := range b.Events {
			if b.Events[i].Timed {
				b.Events[i].Times[stats.Unpack] = 0
			}
		}
		want = append(want, b)
		if err := f.Write(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	file := buf.Bytes()
	var got []stats.Batch
	keep := func(b *stats.Batch) error {
		got = append(got, stats.Batch{From: b.From, To: b.To, Groups: append([]string(nil), b.Groups...), Events: append([]stats.Event(nil), b.Events...), Dropped: b.Dropped})
		return nil
	}
	if err := Read(bytes.NewReader(file), keep); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// Cut anywhere, it is an error after all whole batches, or the end of one.
	whole := 0
	for n := range file {
		got = nil
		err := Read(bytes.NewReader(file[:n]), keep)
		switch {
		case err == nil:
			whole++
		case !errors.Is(err, ErrFormat) || n > len(fileMagic) && !errors.Is(err, io.ErrUnexpectedEOF):
			t.Fatalf("cut at %d: %v", n, err)
		}
		for i := range got {
			if len(got[i].Events) != len(want[i].Events) {
				t.Fatalf("cut at %d: %d events in batch %d", n, len(got[i].Events), i)
			}
		}
	}
	if whole != len(want) { // the magic alone, and each batch but the last
		t.Errorf("%d prefixes are whole files", whole)
	}
	if err := Read(bytes.NewReader(file), func(*stats.Batch) error { return io.ErrClosedPipe }); err != io.ErrClosedPipe {
		t.Error(err)
	}
}

// failing fails at its first write, after some bytes.
type failing struct {
	bytes.Buffer
	after int
}

func (f *failing) Write(p []byte) (int, error) {
	if f.after >= 0 {
		n, _ := f.Buffer.Write(p[:f.after])
		f.after = -1
		return n, io.ErrShortWrite
	}
	return f.Buffer.Write(p)
}

func TestFileAfterAFailedWrite(t *testing.T) {
	b := stats.Batch{Groups: []string{"g"}, Events: []stats.Event{{Op: stats.Set}}}
	clean, cut := &failing{after: 0}, &failing{after: 10}
	for _, w := range []*failing{clean, cut} {
		f := NewWriter(w)
		if err := f.Write(t.Context(), &b); !errors.Is(err, io.ErrShortWrite) {
			t.Error(err)
		}
		if err := f.Write(t.Context(), &b); (err == nil) != (w == clean) {
			t.Errorf("after a failed write: %v", err)
		}
	}
	n := 0
	if err := Read(&clean.Buffer, func(b *stats.Batch) error { n += len(b.Events); return nil }); err != nil || n != 1 {
		t.Errorf("%d events, %v", n, err)
	}
}

// FuzzRead: no input panics or makes Read keep more than it was given.
func FuzzRead(f *testing.F) {
	var buf bytes.Buffer
	file := NewWriter(&buf)
	r := rand.New(rand.NewPCG(3, 3))
	for range 3 {
		if err := file.Write(f.Context(), &stats.Batch{Groups: []string{"a", "b"}, Events: []stats.Event{event(r), event(r)}, From: time.Unix(1, 2)}); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(buf.Bytes())
	f.Add([]byte(fileMagic))
	f.Add([]byte(fileMagic + "\xff\xff\xff\xff\x01"))
	f.Add([]byte(fileMagic + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		events := 0
		err := Read(bytes.NewReader(data), func(b *stats.Batch) error {
			if len(b.Events) != len(b.Groups) {
				t.Errorf("%d events of %d groups", len(b.Events), len(b.Groups))
			}
			events += len(b.Events)
			return nil
		})
		if err != nil && !errors.Is(err, ErrFormat) {
			t.Error(err)
		}
		if events > len(data)/12 {
			t.Errorf("%d events in %d bytes", events, len(data))
		}
	})
}

func event(r *rand.Rand) stats.Event {
	e := stats.Event{
		Op: stats.Op(r.IntN(stats.Ops)), Class: stats.Class(r.IntN(stats.Classes)), Keys: r.Int32N(5), Hits: r.Int32N(1000), Misses: r.Int32N(3), Errors: r.Int32N(3),
		Algorithm: frame.Zstd, DictionaryID: frame.DictionaryID(r.Uint32()), Fresh: r.Int32N(1000), Plain: r.IntN(1 << 20), Stored: r.IntN(1 << 20),
	}
	if r.IntN(2) == 0 {
		e.Timed = true
		for i := range e.Times {
			e.Times[i] = time.Duration(r.Int64N(int64(time.Second)))
		}
	}
	return e
}
