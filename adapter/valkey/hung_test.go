// Code generated from adapter/rueidis by valkey.sh. DO NOT EDIT.

//go:build unix

package valkey

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/balekv/bale"
	"github.com/balekv/bale/internal/redisproc"
)

// pause stops a server until resume is called, or the test ends.
func pause(t *testing.T, server *redisproc.Server) (resume func()) {
	if err := syscall.Kill(server.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume = sync.OnceFunc(func() { syscall.Kill(server.PID(), syscall.SIGCONT) })
	t.Cleanup(resume)
	return resume
}

// patient makes a client that does not give up a server during the test. Without AlwaysPipelining
// it closes the connection of a lone read at its deadline, and then may have no queue to fill.
func patient(t *testing.T, addrs ...string) valkey.Client {
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: addrs, ConnWriteTimeout: 10 * time.Minute, AlwaysPipelining: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// floodCalls are more than the client queues on the connections to a server, and the Store's bound.
const floodCalls = 10_000

// soon are those that end with their contexts before a Store gives up a server.
const soon = 7_000

// flood makes many calls that the server does not answer, and counts their errors. All return
// while it is stopped, or the test fails.
func flood(t *testing.T, call func(ctx context.Context, i int) error) (ended, hung int) {
	t.Helper()
	var next, returned, late, refused atomic.Int64
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			for i := next.Add(1); i <= floodCalls; i = next.Add(1) {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
				err := call(ctx, int(i))
				cancel()
				switch returned.Add(1); {
				case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded): // of the connection
					late.Add(1)
				case errors.Is(err, ErrHung):
					refused.Add(1)
				default:
					t.Errorf("a stopped server: %v", err)
				}
			}
		})
	}
	all := make(chan struct{})
	go func() { wg.Wait(); close(all) }()
	select {
	case <-all:
	case <-time.After(time.Minute):
		t.Fatalf("%d of %d calls have returned", returned.Load(), floodCalls)
	}
	return int(late.Load()), int(refused.Load())
}

// settle waits until no more goroutines run than before.
func settle(t *testing.T, before int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines run, %d did before", runtime.NumGoroutine(), before)
		}
	}
}

// TestHung: all calls end with their contexts while the server hangs, however many, and what they
// leave in the client is bounded. The Store uses the server again as soon as that answers.
func TestHung(t *testing.T) {
	key := func(i int) string { return fmt.Sprint("k", i) }
	for name, test := range map[string]struct {
		ttl  time.Duration
		call func(s *Store, ctx context.Context, i int) error
		most int // calls that may be waiting; 0 for as many as the client's queues and the bound take
	}{
		"Get":        {0, func(s *Store, ctx context.Context, i int) error { _, err := s.Get(ctx, key(i)); return err }, 0},
		"Get, cache": {time.Minute, func(s *Store, ctx context.Context, i int) error { _, err := s.Get(ctx, key(i)); return err }, 0},
		"GetMany": {0, func(s *Store, ctx context.Context, i int) error {
			_, err := s.GetMany(ctx, []string{key(i), "k"})
			return err
		}, 0},
		"GetMany, cache": {time.Minute, func(s *Store, ctx context.Context, i int) error {
			_, err := s.GetMany(ctx, []string{key(i), key(-i)})
			return err
		}, 0},
		"PTTL":           {0, func(s *Store, ctx context.Context, i int) error { _, err := s.PTTL(ctx, []string{key(i)}); return err }, 0},
		"Read":           {0, func(s *Store, ctx context.Context, i int) error { _, err := s.Read(ctx, key(i)); return err }, 0},
		"Refresh":        {0, func(s *Store, ctx context.Context, i int) error { _, err := s.Refresh(ctx, key(i)); return err }, 0},
		"Notify":         {0, func(s *Store, ctx context.Context, i int) error { return s.Notify(ctx, "channel", key(i)) }, 0},
		"EvictionPolicy": {0, func(s *Store, ctx context.Context, i int) error { _, _, err := s.EvictionPolicy(ctx); return err }, 0},
		"Set": {0, func(s *Store, ctx context.Context, i int) error {
			return s.Set(ctx, key(i), make([]byte, 10_000), bale.Expiry{})
		}, 16<<20/10_000 + soon},
		"SetMany": {0, func(s *Store, ctx context.Context, i int) error {
			return s.SetMany(ctx, []bale.Item{{Key: key(i), Value: make([]byte, 5_000)}, {Key: key(-i), Value: make([]byte, 5_000)}})
		}, 16<<20/10_000 + soon},
		"Delete": {0, func(s *Store, ctx context.Context, i int) error {
			_, err := s.Delete(ctx, []string{key(i)})
			return err
		}, 16<<20/(8<<10) + soon},
		"Touch": {0, func(s *Store, ctx context.Context, i int) error {
			_, err := s.Touch(ctx, key(i), bale.Expiry{})
			return err
		}, 16<<20/(8<<10) + soon},
		"Swap": {0, func(s *Store, ctx context.Context, i int) error {
			_, err := s.Swap(ctx, key(i), nil, []byte("x"), time.Minute)
			return err
		}, 16<<20/(8<<10) + soon},
	} {
		t.Run(name, func(t *testing.T) {
			server := redisproc.ForTest(t)
			client := patient(t, server.Addr())
			s := NewStore(client, StoreOptions{CacheTTL: test.ttl})
			var wg sync.WaitGroup
			for i := range 20 { // connections
				wg.Go(func() {
					if err := s.Set(t.Context(), key(i), []byte("v"), bale.Expiry{}); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			before := runtime.NumGoroutine()
			resume := pause(t, server)
			late, refused := flood(t, func(ctx context.Context, i int) error { return test.call(s, ctx, i) })
			if refused == 0 || test.most > 0 && late > test.most {
				t.Errorf("%d calls ended with their contexts, %d were not sent", late, refused)
			}
			// The client has one for each command in its queues, 1,024 for a connection. For a call that
			// the Store has left there are two, and two more for keys of two connections.
			if n := runtime.NumGoroutine() - before; n > 4*1024+4*(16<<20/(8<<10)+soon) {
				t.Errorf("%d goroutines are left", n)
			}
			resume()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for _, call := range []func() error{
				func() error { return s.Set(ctx, "after", []byte("v"), bale.Expiry{}) },
				func() error { return test.call(s, ctx, 1) },
			} {
				err := call()
				for errors.Is(err, ErrHung) { // until the first of the others is answered
					time.Sleep(time.Millisecond)
					err = call()
				}
				if err != nil && !errors.Is(err, bale.ErrNotFound) {
					t.Fatal(err)
				}
			}
			settle(t, before+20)
		})
	}
}

// TestHungClose: what calls have left ends with the client.
func TestHungClose(t *testing.T) {
	server := redisproc.ForTest(t)
	before := runtime.NumGoroutine()
	client := patient(t, server.Addr())
	s := NewStore(client, StoreOptions{})
	if err := s.Set(t.Context(), "k", []byte("v"), bale.Expiry{}); err != nil {
		t.Fatal(err)
	}
	pause(t, server)
	flood(t, func(ctx context.Context, i int) error {
		if i%2 == 0 {
			return s.Set(ctx, fmt.Sprint("k", i), []byte("v"), bale.Expiry{})
		}
		_, err := s.Get(ctx, fmt.Sprint("k", i))
		return err
	})
	client.Close()
	settle(t, before)
}

// TestHungOfCluster: a server of a cluster that hangs does not stop the calls to the others.
func TestHungOfCluster(t *testing.T) {
	cluster := redisproc.ClusterForTestWith(t, 3, redisproc.Options{Args: []string{"--cluster-node-timeout", "600000"}})
	s := NewStore(patient(t, cluster.Addrs()...), StoreOptions{})
	var there, elsewhere []string // keys of the first server, and of the last one
	for i := 0; len(there) < floodCalls+1 || len(elsewhere) < 1000; i++ {
		key := fmt.Sprint("k", i)
		command := s.client.B().Get().Key(key).Build()
		switch slot := command.Slot(); {
		case slot < 5000:
			there = append(there, key)
		case slot > 12_000:
			elsewhere = append(elsewhere, key)
		}
	}
	for _, key := range slices.Concat(there[:1], elsewhere[:1]) {
		if err := s.Set(t.Context(), key, []byte("v"), bale.Expiry{}); err != nil {
			t.Fatal(err)
		}
	}
	resume := pause(t, cluster.Servers[0])
	stop := make(chan struct{})
	var others sync.WaitGroup
	for w := range 4 {
		others.Go(func() {
			for i := w; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				key := elsewhere[i%len(elsewhere)]
				if err := s.Set(ctx, key, []byte("v"), bale.Expiry{}); err != nil {
					t.Error(err)
				}
				if v, err := s.Get(ctx, key); err != nil || string(v) != "v" {
					t.Errorf("%q, %v", v, err)
				}
				cancel()
			}
		})
	}
	for name, call := range map[string]func(ctx context.Context, i int) error{
		"Get": func(ctx context.Context, i int) error { _, err := s.Get(ctx, there[i]); return err },
		"Set": func(ctx context.Context, i int) error {
			return s.Set(ctx, there[i], make([]byte, 10_000), bale.Expiry{})
		},
	} {
		if late, refused := flood(t, call); refused == 0 {
			t.Errorf("%s: %d calls ended with their contexts, %d were not sent", name, late, refused)
		}
	}
	close(stop)
	others.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	values, err := s.GetMany(ctx, []string{there[0], elsewhere[0]})
	if failed, is := errors.AsType[bale.KeyErrors](err); !is || len(failed) != 1 || failed[0].Key != there[0] || string(values[1]) != "v" {
		t.Errorf("keys of two servers: %q, %v", values, err)
	}
	resume()
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		_, err := s.Get(ctx, there[0])
		if err == nil {
			break
		}
		if !errors.Is(err, ErrHung) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
}

// TestReadAllocations pins that a read costs no more than what it stands for.
func TestReadAllocations(t *testing.T) {
	server := redisproc.ForTest(t)
	client := patient(t, server.Addr())
	s := NewStore(client, StoreOptions{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if err := s.Set(ctx, "k", []byte("value"), bale.Expiry{}); err != nil {
		t.Fatal(err)
	}
	for range 200 { // the client makes its connections and their queues
		s.Get(ctx, "k")
	}
	byStore := testing.AllocsPerRun(500, func() { s.Get(ctx, "k") })
	byHand := testing.AllocsPerRun(500, func() { client.Do(ctx, client.B().Get().Key("k").Build().Pin()).AsBytes() })
	if byStore > byHand {
		t.Errorf("%v allocations, %v by hand", byStore, byHand)
	}
}
