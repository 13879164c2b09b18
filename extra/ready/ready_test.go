package ready

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/balekv/bale"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/adapters"
	"github.com/balekv/bale/internal/memstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memory is a Store that can fail.
type memory struct {
	bale.Store
	mu     sync.Mutex
	values map[string][]byte
	gets   int
	fail   error
	lie    bool
}

func (m *memory) set(fail error, lie bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail, m.lie = fail, lie
}

func (m *memory) Get(ctx context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.gets++
	v, ok := m.values[key]
	switch {
	case m.fail != nil:
		return nil, m.fail
	case m.lie:
		return []byte("something else"), nil
	case !adapters.AsksMasters(ctx): // a replica that lags
		return nil, bale.ErrNotFound
	case !ok:
		return nil, bale.ErrNotFound
	}
	return v, nil
}

func (m *memory) Set(_ context.Context, key string, value []byte, e bale.Expiry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fail != nil {
		return m.fail
	}
	if ms, absolute := e.Millis(); ms <= 0 || absolute {
		return errors.New("a probe value that stays")
	}
	m.values[key] = append([]byte{}, value...)
	return nil
}

func (m *memory) Delete(_ context.Context, keys []string) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, keys[0])
	return 1, m.fail
}

// evicting is an empty registry in a Redis that evicts any key.
type evicting struct{}

func (evicting) Read(_ context.Context, keys ...string) ([][]byte, error) {
	return make([][]byte, len(keys)), nil
}
func (evicting) Refresh(_ context.Context, keys ...string) ([]bool, error) {
	return make([]bool, len(keys)), nil
}
func (evicting) Swap(context.Context, string, []byte, []byte, time.Duration) (bool, error) {
	return true, nil
}
func (evicting) Notify(context.Context, string, string) error { return nil }
func (evicting) Listen(ctx context.Context, _ string, receive func(string)) error {
	receive("")
	<-ctx.Done()
	return ctx.Err()
}
func (evicting) EvictionPolicy(context.Context) (string, int64, error) { return "allkeys-lru", 1, nil }

// TestDangerIsAWarning: dictionaries that Redis may evict are reported, and the program is ready
// all the same.
func TestDangerIsAWarning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, err := dict.NewRegistry(evicting{}, dict.RegistryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		group, err := registry.Open(t.Context(), "users", dict.GroupOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer group.Close()
		synctest.Wait()
		r, err := New(Options{Store: &memory{values: map[string][]byte{}}, Groups: []*dict.Group{group}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		synctest.Wait()
		s := r.Status()
		if s.State != Ready || s.Reason != "" {
			t.Errorf("%s: %s", s.State, s.Reason)
		}
		if w := s.Checks[0].Warning; !strings.Contains(w, `group "users"`) || !strings.Contains(w, "allkeys-lru") {
			t.Errorf("warning %q", w)
		}
	})
}

// TestReadOnlyGroup: a program that only reads packed values stays ready when others write with a
// dictionary, as in a roll-out.
func TestReadOnlyGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry, err := dict.NewRegistry(memstore.New(), dict.RegistryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		group, err := registry.Open(t.Context(), "users", dict.GroupOptions{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer group.Close()
		d, err := frame.NewDictionary(bytes.Repeat([]byte("common text "), 100))
		if err == nil {
			err = registry.Publish(t.Context(), "users", d, dict.Info{})
		}
		if err == nil {
			err = registry.Activate(t.Context(), "users", d.ID(), true)
		}
		if err != nil {
			t.Fatal(err)
		}
		r, err := New(Options{Store: &memory{values: map[string][]byte{}}, Groups: []*dict.Group{group}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		time.Sleep(time.Minute)
		if s := r.Status(); s.State != Ready || group.Status().State.Current != d.ID() {
			t.Errorf("%s: %s", s.State, s.Reason)
		}
	})
}

// observed counts the values that it hears of.
type observed struct {
	compress.Set
	n atomic.Int64
}

func (o *observed) Packed([]byte, int) { o.n.Add(1) }
func (o *observed) Unpacked([]byte)    { o.n.Add(1) }

// TestProbesAreNoValues: dict.Auto hears of no probe, and so takes none for a sample.
func TestProbesAreNoValues(t *testing.T) {
	o := &observed{}
	packer, err := bale.NewPacker(bale.PackerOptions{Compressors: o})
	if err != nil {
		t.Fatal(err)
	}
	m := &memory{values: map[string][]byte{}}
	r, err := New(Options{Store: m, Packer: packer, Interval: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := o.n.Load(); n != 0 {
		t.Errorf("the compressors heard of %d values", n)
	}
	if _, err := packer.Pack(nil, r.value); err != nil || o.n.Load() != 1 {
		t.Errorf("and of %d of the program's one, %v", o.n.Load(), err)
	}
}

func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		packer, err := bale.NewPacker(bale.PackerOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer packer.Close()
		down := errors.New("connection refused")
		m := &memory{values: map[string][]byte{}, fail: down}
		var migrated error = errors.New("the schema is old")
		var mu sync.Mutex
		r, err := New(Options{Store: m, Packer: packer, Connections: 7, Checks: map[string]func(context.Context) error{
			"schema": func(ctx context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				if _, ok := ctx.Deadline(); !ok {
					t.Error("a check has no deadline")
				}
				return migrated
			},
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		start := time.Now()
		expect := func(state State, reason string, checks ...string) {
			t.Helper()
			synctest.Wait()
			s := r.Status()
			var names []string
			for _, c := range s.Checks {
				names = append(names, c.Name)
				if c.OK != (c.Error == "") {
					t.Errorf("%+v", c)
				}
			}
			if s.State != state || s.Reason != reason {
				t.Errorf("%s, %q; want %s, %q", s.State, s.Reason, state, reason)
			}
			if diff := cmp.Diff(checks, names); diff != "" {
				t.Error(diff)
			}
			w := httptest.NewRecorder()
			r.ServeHTTP(w, httptest.NewRequest("GET", "/ready", nil))
			var shown Status
			if err := json.Unmarshal(w.Body.Bytes(), &shown); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(s, shown); diff != "" {
				t.Error(diff)
			}
			if want := map[State]int{Ready: 200, Warming: 503, Tripped: 503}[state]; w.Code != want || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%s is answered with %d", state, w.Code)
			}
		}
		all := []string{"dictionaries", "contexts", "connections", "probe", "schema"}
		expect(Warming, "connections: connection refused", all[:3]...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("Wait: %v", err)
		}
		m.set(nil, true)
		time.Sleep(time.Second)
		expect(Warming, "probe: read: another value came back", all[:4]...)
		m.set(nil, false)
		time.Sleep(time.Second)
		expect(Warming, "schema: the schema is old", all...)
		mu.Lock()
		migrated = nil
		mu.Unlock()
		if err := r.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		expect(Ready, "", all...)
		since := r.Status().Since
		if since.Before(start.Add(3*time.Second)) || len(m.values) != 0 {
			t.Errorf("ready since %v, %d keys left", since.Sub(start), len(m.values))
		}
		m.set(down, false)
		time.Sleep(2 * defaultInterval)
		expect(Ready, "probe: write: connection refused", all[:4]...)
		time.Sleep(defaultInterval)
		expect(Tripped, "probe: write: connection refused", all[:4]...)
		if !r.Status().Since.After(since) {
			t.Error("it has tripped before it was ready")
		}
		m.set(nil, false)
		time.Sleep(defaultInterval)
		expect(Ready, "", all...)
		r.Close()
		if err := r.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestNeverTrips: a program that can do without its cache stays ready, and says what is wrong.
func TestNeverTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{values: map[string][]byte{}}
		r, err := New(Options{Store: m, Failures: -1, Key: "mine"})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := r.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		m.set(errors.New("down"), false)
		time.Sleep(time.Hour)
		synctest.Wait()
		if s := r.Status(); s.State != Ready || s.Reason != "probe: write: down" {
			t.Errorf("%+v", s)
		}
	})
}

func TestClosedWhileWarming(t *testing.T) {
	r, err := New(Options{Store: &memory{fail: errors.New("down")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := r.Wait(t.Context()); err == nil {
		t.Error("ready although it is closed")
	}
}

func TestOptions(t *testing.T) {
	m := &memory{}
	for name, o := range map[string]Options{
		"Store": {}, "Interval": {Store: m, Interval: 1}, "Timeout": {Store: m, Timeout: -1}, "Connections": {Store: m, Connections: -1},
		"nil": {Store: m, Checks: map[string]func(context.Context) error{"x": nil}},
	} {
		if _, err := New(o); !errors.Is(err, bale.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
