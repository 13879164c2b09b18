package eventfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/balekv/bale/internal/testvalues"
	"github.com/balekv/bale/stats"
)

// forged is a file with batches of one group each, as often as n says, and no events.
func forged(n int, name string) []byte {
	file := []byte(fileMagic)
	batch := []byte{0, 0, 0, 1}
	batch = append(append(binary.AppendUvarint(batch, uint64(len(name))), name...), 0)
	batch = append(binary.AppendUvarint(nil, uint64(len(batch))), batch...)
	return append(file, bytes.Repeat(batch, n)...)
}

// TestForgedGroups: a file that names more groups than a program's is refused, before they take
// memory.
func TestForgedGroups(t *testing.T) {
	inOne := binary.AppendUvarint([]byte{0, 0, 0}, 1_000_000)
	inOne = append(inOne, make([]byte, 1_000_001)...)
	for name, file := range map[string][]byte{
		"many batches": forged(1_000_000, ""), "one batch": append(binary.AppendUvarint([]byte(fileMagic), uint64(len(inOne))), inOne...), "long names": forged(64, strings.Repeat("x", 1<<20)),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := Read(bytes.NewReader(file), func(*stats.Batch) error { return nil })
		runtime.ReadMemStats(&after)
		if !errors.Is(err, errGroups) || !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > 16<<20 && !testvalues.Race {
			t.Errorf("%s: %d bytes were allocated", name, n)
		}
	}
}

// TestManyGroups: a program with more groups than a file names writes one that is read.
func TestManyGroups(t *testing.T) {
	const n, size = 3 * maxFileGroups, 1000
	huge := strings.Repeat("x", maxFileBatch)
	for name, group := range map[string]func(i int) string{
		"short names": func(i int) string { return fmt.Sprint(i) },
		"long names":  func(i int) string { return fmt.Sprintf("%0600d", i) },
		"huge names":  func(i int) string { return huge },
		"other":       func(i int) string { return OtherGroups },
	} {
		var out bytes.Buffer
		f := NewWriter(&out)
		for start := 0; start < n; start += size {
			var b stats.Batch
			for i := start; i < start+size; i++ {
				b.Groups, b.Events = append(b.Groups, group(i)), append(b.Events, stats.Event{Keys: int32(i)})
			}
			if err := f.Write(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}
		seen, others := 0, 0
		err := Read(&out, func(b *stats.Batch) error {
			for i, g := range b.Groups {
				if g != group(seen) {
					others++
				}
				if g != group(seen) && g != OtherGroups || b.Events[i].Keys != int32(seen) {
					t.Fatalf("%s: event %d is %+v of %.100q", name, seen, b.Events[i], g)
				}
				seen++
			}
			return nil
		})
		if err != nil || seen != n || (others == 0) != (name == "other") || (others == n) != (name == "huge names") {
			t.Errorf("%s: %d events, %d of other groups, %v", name, seen, others, err)
		}
	}
}
