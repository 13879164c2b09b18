package rueidis

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/testkit/storetest"
)

// heard is what Listen has told.
type heard struct {
	mu     sync.Mutex
	keys   []string
	resets int
}

func (h *heard) changed(keys []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if keys == nil {
		h.resets++
	}
	h.keys = append(h.keys, keys...)
}

// await waits until a condition holds of what was heard, and forgets that.
func (h *heard) await(t *testing.T, otherwise string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		h.mu.Lock()
		holds := is()
		if holds {
			h.keys, h.resets = nil, 0
		}
		h.mu.Unlock()
		if holds {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s; heard of %q and %d resets", otherwise, h.keys, h.resets)
		}
	}
}

// listen listens until the test ends, or stop is called, and returns what Listen did.
func listen(t *testing.T, i *Invalidations, h *heard) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() { result <- i.Listen(ctx, h.changed); close(result) }()
	t.Cleanup(func() { cancel(); <-result })
	return func() error { cancel(); return <-result }
}

func TestInvalidations(t *testing.T) {
	server := redisproc.ForTest(t)
	client := connect(t, storetest.Deployment{Kind: storetest.Standalone, Addrs: []string{server.Addr()}})
	var log bytes.Buffer
	i, err := NewInvalidations(client, InvalidationsOptions{Prefixes: []string{"a:", "b:"}, Interval: 500 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	h := new(heard)
	stop := listen(t, i, h)
	do := func(command string) {
		t.Helper()
		if _, err := server.Do(t.Context(), strings.Fields(command)...); err != nil {
			t.Fatal(err)
		}
	}
	keys := func(want ...string) func() bool {
		return func() bool {
			slices.Sort(h.keys)
			return slices.Equal(h.keys, want) && h.resets == 0
		}
	}
	reset := func() bool { return h.resets > 0 }

	h.await(t, "it does not say that it listens", reset)
	do("MSET a:1 x b:1 x c:1 x")
	h.await(t, "changes are not told", keys("a:1", "b:1"))
	do("DEL c:1 b:1")
	h.await(t, "a delete is not told", keys("b:1"))
	do("PEXPIRE a:1 300") // what changes twice before the server sleeps is told once
	h.await(t, "an expiry is not told", func() bool { return len(h.keys) >= 2 && h.keys[0] == "a:1" })
	if err := NewStore(client, StoreOptions{}).Set(t.Context(), "a:own", []byte("x"), bale.Expiry{}); err != nil {
		t.Fatal(err)
	}
	h.await(t, "own writes are not told", keys("a:own"))
	do("FLUSHALL")
	h.await(t, "a flush is not told", reset)
	for range 3 {
		do("CLIENT KILL TYPE normal")
		h.await(t, "the loss is not told", reset)
		do("SET a:2 x")
		h.await(t, "it does not listen again", func() bool { return slices.Contains(h.keys, "a:2") || h.resets > 0 })
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.await(t, "the loss is not told", reset)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		do("SET a:3 x")
		h.mu.Lock()
		again := slices.Contains(h.keys, "a:3")
		h.mu.Unlock()
		if again {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not listen again")
		}
	}
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	h.mu.Lock()
	h.keys, h.resets = nil, 0
	h.mu.Unlock()
	do("SET a:4 x")
	do("FLUSHALL")
	if h.keys != nil || h.resets != 0 {
		t.Errorf("after Listen has returned it told of %q", h.keys)
	}
	for _, want := range []string{"not listening", "listening for invalidations again"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, &log)
		}
	}
}

// TestInvalidationsOfSentinel: the master that a sentinel names is listened to.
func TestInvalidationsOfSentinel(t *testing.T) {
	master := redisproc.ForTest(t)
	sentinel := redisproc.SentinelForTest(t, "main", master)
	client := connect(t, storetest.Deployment{Kind: storetest.Sentinel, Addrs: []string{sentinel.Addr()}, Master: "main"})
	i, err := NewInvalidations(client, InvalidationsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	h := new(heard)
	listen(t, i, h)
	h.await(t, "it does not say that it listens", func() bool { return h.resets > 0 })
	if _, err := master.Do(t.Context(), "SET", "k", "x"); err != nil {
		t.Fatal(err)
	}
	h.await(t, "a change is not told", func() bool { return slices.Equal(h.keys, []string{"k"}) })
}

// TestInvalidationsNeedRESP3: Listen returns an error if the server cannot send invalidations.
func TestInvalidationsNeedRESP3(t *testing.T) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{redisproc.ForTest(t).Addr()}, ForceSingleClient: true, AlwaysRESP2: true, DisableCache: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var log said
	i, err := NewInvalidations(client, InvalidationsOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	h := new(heard)
	stop := listen(t, i, h)
	h.await(t, "nothing is said", func() bool { return strings.Contains(log.String(), "RESP2") })
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if h.resets > 0 {
		t.Error("it says that it listens")
	}
}

// said keeps the messages of a log.
type said struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestInvalidationsOptions(t *testing.T) {
	for _, test := range []struct {
		o    InvalidationsOptions
		want string
	}{
		{InvalidationsOptions{Interval: time.Millisecond}, "rueidis: invalid argument: Interval is 1ms, must be at least 10ms, or 0 for 1s"},
		{InvalidationsOptions{Prefixes: []string{"user:", "shop:", "user:1"}}, `rueidis: invalid argument: of the Prefixes "user:" and "user:1" one begins with the other`},
		{InvalidationsOptions{Prefixes: []string{"user:", ""}}, `rueidis: invalid argument: of the Prefixes "user:" and "" one begins with the other`},
	} {
		if _, err := NewInvalidations(nil, test.o); !errors.Is(err, bale.ErrInvalid) || err.Error() != test.want {
			t.Errorf("%+v: %v", test.o, err)
		}
	}
}
