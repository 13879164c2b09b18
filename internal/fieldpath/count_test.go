package fieldpath

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestCount(t *testing.T) {
	values := [][]byte{
		[]byte(`{"user":{"token":"a","name":"b"},"token":1}`),
		[]byte(`[{"user":[{"token":null}]}]`),
		[]byte(`{"a.b":1} {"deep":{"user":{"token":2}}}`),
		[]byte(`{"token":1`),
		[]byte(`text`),
		nil,
	}
	fields := []string{"token", "user.token", "name", "Token", "a.b", "user", "user.name.x", "deep.user.token"}
	if diff := cmp.Diff([]int{3, 2, 1, 0, 1, 3, 0, 1}, count(t, values, fields)); diff != "" {
		t.Error(diff)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Count(ctx, values, fields); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func count(t *testing.T, values [][]byte, fields []string) []int {
	t.Helper()
	counts, err := Count(t.Context(), values, fields)
	if err != nil {
		t.Fatal(err)
	}
	return counts
}

// TestCountNested: as TestRedactNested.
func TestCountNested(t *testing.T) {
	name := strings.Repeat("n", 1000)
	nested := func(depth int) []byte {
		return []byte(strings.Repeat(`{"`+name+`":`, depth) + "1" + strings.Repeat("}", depth))
	}
	fields := []string{name, strings.Repeat(name+".", MaxDepth-1) + name}
	deep := nested(MaxDepth)
	if diff := cmp.Diff([]int{1, 1}, count(t, [][]byte{deep, nested(MaxDepth + 1), []byte(strings.Repeat("[", 300_000))}, fields)); diff != "" {
		t.Error(diff)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	count(t, [][]byte{deep}, fields)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 40*uint64(len(deep)) {
		t.Errorf("%d bytes for a value of %d", n, len(deep))
	}
}

// TestCountEmpty: very many empty objects take no memory.
func TestCountEmpty(t *testing.T) {
	value := append(append([]byte("["), bytes.Repeat([]byte("{},"), 1<<20)...), `{"a":1}]`...)
	most, done, watched := uint64(0), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for m := (runtime.MemStats{}); ; {
			runtime.GC()
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	counts := count(t, [][]byte{value}, []string{"a"})
	close(done)
	<-watched
	if counts[0] != 1 || most > 10*uint64(len(value)) {
		t.Errorf("%d, and %d bytes for a value of %d", counts, most, len(value))
	}
}
