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
	"strconv"
	"strings"
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
const (
	floodCalls   = 10_000
	floodCallers = 100
)

// flood makes many calls that the server does not answer. All return while it is stopped, with the
// ends of their contexts, or the test fails.
func flood(t *testing.T, call func(ctx context.Context, i int) error) {
	t.Helper()
	var next, returned atomic.Int64
	var wg sync.WaitGroup
	for range floodCallers {
		wg.Go(func() {
			for i := next.Add(1); i <= floodCalls; i = next.Add(1) {
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
				err := call(ctx, int(i))
				cancel()
				returned.Add(1)
				if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) { // of the connection
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
}

// processed is the number of commands that a server has processed.
func processed(t *testing.T, client valkey.Client) int {
	t.Helper()
	info, err := client.Do(t.Context(), client.B().Info().Section("stats").Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(info, "total_commands_processed:")
	text, _, _ := strings.Cut(rest, "\r")
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
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
		ttl      time.Duration
		call     func(s *Store, ctx context.Context, i int) error
		commands int // of a call
		bytes    int // of its values
	}{
		"Get":        {0, func(s *Store, ctx context.Context, i int) error { _, err := s.Get(ctx, key(i)); return err }, 1, 0},
		"Get, cache": {time.Minute, func(s *Store, ctx context.Context, i int) error { _, err := s.Get(ctx, key(i)); return err }, 5, 0},
		"GetMany": {0, func(s *Store, ctx context.Context, i int) error {
			_, err := s.GetMany(ctx, []string{key(i), "k"})
			return err
		}, 2, 0},
		"GetMany, cache": {time.Minute, func(s *Store, ctx context.Context, i int) error {
			_, err := s.GetMany(ctx, []string{key(i), key(-i)})
			return err
		}, 10, 0},
		"PTTL":           {0, func(s *Store, ctx context.Context, i int) error { _, err := s.PTTL(ctx, []string{key(i)}); return err }, 1, 0},
		"Read":           {0, func(s *Store, ctx context.Context, i int) error { _, err := s.Read(ctx, key(i)); return err }, 1, 0},
		"Refresh":        {0, func(s *Store, ctx context.Context, i int) error { _, err := s.Refresh(ctx, key(i)); return err }, 1, 0},
		"Notify":         {0, func(s *Store, ctx context.Context, i int) error { return s.Notify(ctx, "channel", key(i)) }, 1, 0},
		"EvictionPolicy": {0, func(s *Store, ctx context.Context, i int) error { _, _, err := s.EvictionPolicy(ctx); return err }, 1, 0},
		"Set": {0, func(s *Store, ctx context.Context, i int) error {
			return s.Set(ctx, key(i), make([]byte, 10_000), bale.Expiry{})
		}, 1, 10000},
		"SetMany": {0, func(s *Store, ctx context.Context, i int) error {
			return s.SetMany(ctx, []bale.Item{{Key: key(i), Value: make([]byte, 5_000)}, {Key: key(-i), Value: make([]byte, 5_000)}})
		}, 2, 10000},
		"Delete": {0, func(s *Store, ctx context.Context, i int) error {
			_, err := s.Delete(ctx, []string{key(i)})
			return err
		}, 1, 0},
		"Touch": {0, func(s *Store, ctx context.Context, i int) error {
			_, err := s.Touch(ctx, key(i), bale.Expiry{})
			return err
		}, 2, 0},
		"Swap": {0, func(s *Store, ctx context.Context, i int) error {
			_, err := s.Swap(ctx, key(i), nil, []byte("x"), time.Minute)
			return err
		}, 4, 0},
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
			before, sent := runtime.NumGoroutine(), processed(t, client)
			resume := pause(t, server)
			flood(t, func(ctx context.Context, i int) error { return test.call(s, ctx, i) })
			// The client has one for each command in its queues, 1,024 for a connection. For a call that
			// the Store has left there are two, and two more for keys of two connections.
			most := (16<<20)/(8<<10+test.bytes) + floodCallers // calls that have room, and those that found some
			if n := runtime.NumGoroutine() - before; n > 4*1024+4*most {
				t.Errorf("%d goroutines are left", n)
			}
			resume()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := s.Set(ctx, "after", []byte("v"), bale.Expiry{}); err != nil {
				t.Fatal(err)
			}
			if err := test.call(s, ctx, 1); err != nil && !errors.Is(err, bale.ErrNotFound) {
				t.Fatal(err)
			}
			settle(t, before+20)
			// A read leaves its command in a queue, and no call waits for that.
			if n := processed(t, client) - sent; n > test.commands*(4*1024+most)+10 {
				t.Errorf("%d commands were sent for %d calls", n, floodCalls)
			}
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
	flood(t, func(ctx context.Context, i int) error { _, err := s.Get(ctx, there[i]); return err })
	flood(t, func(ctx context.Context, i int) error {
		return s.Set(ctx, there[i], make([]byte, 10_000), bale.Expiry{})
	})
	var apart atomic.Int64
	both := func(i int) []bale.Item {
		return []bale.Item{{Key: there[i], Value: make([]byte, 10_000)}, {Key: elsewhere[i%len(elsewhere)], Value: []byte("v")}}
	}
	flood(t, func(ctx context.Context, i int) error {
		err := s.SetMany(ctx, both(i))
		if failed, is := errors.AsType[bale.KeyErrors](err); is && len(failed) == 1 && failed[0].Key == there[i] {
			apart.Add(1)
			return context.DeadlineExceeded
		}
		return err
	})
	if apart.Load() == 0 {
		t.Errorf("%d writes of two keys have stored none of the other server", floodCalls)
	}
	close(stop)
	others.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.SetMany(ctx, []bale.Item{{Key: elsewhere[0], Value: []byte("v")}, {Key: elsewhere[1], Value: []byte("v")}}); err != nil {
		t.Error(err)
	}
	if n, err := s.Delete(ctx, elsewhere[1:3]); err != nil || n == 0 {
		t.Errorf("%d deleted, %v", n, err)
	}
	for _, keys := range [][]string{{there[0], elsewhere[0]}, {elsewhere[0], there[0]}} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		values, err := s.GetMany(ctx, keys)
		cancel()
		failed, is := errors.AsType[bale.KeyErrors](err)
		if !is || len(failed) != 1 || failed[0].Key != there[0] || string(values[slices.Index(keys, elsewhere[0])]) != "v" {
			t.Errorf("keys of two servers: %q, %v", values, err)
		}
	}
	// Reads of many keys take goroutines by parts, and not by keys.
	before := runtime.NumGoroutine()
	ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.GetMany(ctx, slices.Concat(there, elsewhere))
	}()
	for range 20 {
		time.Sleep(10 * time.Millisecond)
		if n := runtime.NumGoroutine() - before; n > 5*257 {
			t.Errorf("%d goroutines for a read of many keys", n)
			break
		}
	}
	<-done
	resume()
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := s.Get(ctx, there[0]); err != nil {
		t.Fatal(err)
	}
}

// TestCachedSaysNothing: what the client's cache answers is no answer of the server.
func TestCachedSaysNothing(t *testing.T) {
	cluster := redisproc.ClusterForTestWith(t, 3, redisproc.Options{Args: []string{"--cluster-node-timeout", "600000"}})
	s := NewStore(patient(t, cluster.Addrs()...), StoreOptions{CacheTTL: time.Minute})
	cached := []string{"{k}1", "{k}2"}
	if _, err := s.GetMany(t.Context(), cached); err != nil {
		t.Fatal(err)
	}
	command := s.client.B().Get().Key("{k}").Build()
	pause(t, cluster.Servers[int(command.Slot())*3>>14])
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.GetMany(ctx, []string{"{k}3", "other"}); err == nil {
		t.Error("a stopped server answers")
	}
	for name, read := range map[string]func() error{
		"Get":     func() error { _, err := s.Get(t.Context(), cached[0]); return err },
		"GetMany": func() error { _, err := s.GetMany(t.Context(), cached); return err },
	} {
		if err := read(); err != nil && !errors.Is(err, bale.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		if !s.calls.ReadsApart(part(command)) {
			t.Errorf("%s: the server counts as one that answers", name)
		}
	}
}

// TestKeysStayInOrder: commands of a part go together, also if it changes meanwhile whether the
// part goes apart.
func TestKeysStayInOrder(t *testing.T) {
	calls := 0
	apart := func(int) bool { calls++; return calls == 1 || calls == 3 || calls == 4 }
	var sent [][]string
	part := func(key string) int { return len(key) }
	var mu sync.Mutex
	_, err := byPart([]string{"a", "bb", "c", "dd", "e"}, part, apart, func(_ int, keys []string) ([]valkey.ValkeyResult, error) {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, keys)
		return nil, errors.New("not sent")
	})
	slices.SortFunc(sent, slices.Compare)
	if err != nil || fmt.Sprint(sent) != "[[a c e] [bb dd]]" {
		t.Errorf("%q, %v", sent, err)
	}
}

// TestGaps: while a slot has no node, the others of its part are read and written.
func TestGaps(t *testing.T) {
	cluster := redisproc.ClusterForTestWith(t, 3, redisproc.Options{Args: []string{"--cluster-require-full-coverage", "no"}})
	before := patient(t, cluster.Addrs()...)
	keys := map[uint16]string{} // by slot
	for i := 0; keys[100] == "" || keys[101] == ""; i++ {
		key := fmt.Sprint("k", i)
		command := before.B().Get().Key(key).Build()
		keys[command.Slot()] = key
	}
	for _, node := range before.Nodes() {
		if err := node.Do(t.Context(), node.B().Arbitrary("CLUSTER", "DELSLOTS", "100").Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: cluster.Addrs(), DisableRetry: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for name, o := range map[string]StoreOptions{"": {}, "cache": {CacheTTL: time.Minute}} {
		s := NewStore(client, o)
		err := s.SetMany(t.Context(), []bale.Item{{Key: keys[100], Value: []byte("v")}, {Key: keys[101], Value: []byte("v")}})
		if failed, is := errors.AsType[bale.KeyErrors](err); !is || len(failed) != 1 || failed[0].Key != keys[100] {
			t.Errorf("%s: written: %v", name, err)
		}
		values, err := s.GetMany(t.Context(), []string{keys[100], keys[101]})
		if failed, is := errors.AsType[bale.KeyErrors](err); !is || len(failed) != 1 || failed[0].Key != keys[100] || string(values[1]) != "v" {
			t.Errorf("%s: %q, %v", name, values, err)
		}
	}
}

// TestLeftWritesAreNotSentAgain: valkey follows redirections without an end. They may lead in a
// circle, as after a fail-over within a migration, or to a node that is down. Then a write ends
// after its context, and takes no effect later.
func TestLeftWritesAreNotSentAgain(t *testing.T) {
	cluster := redisproc.ClusterForTest(t, 3)
	client := patient(t, cluster.Addrs()...)
	s := NewStore(client, StoreOptions{})
	command := client.B().Get().Key("{k}").Build()
	slot, owner := int(command.Slot()), int(command.Slot())*3>>14
	from, to := cluster.Servers[owner], cluster.Servers[(owner+1)%3]
	id, err := to.Do(t.Context(), "CLUSTER", "MYID")
	if err != nil {
		t.Fatal(err)
	}
	migrate := func(state ...string) {
		if _, err := from.Do(t.Context(), append([]string{"CLUSTER", "SETSLOT", strconv.Itoa(slot)}, state...)...); err != nil {
			t.Fatal(err)
		}
	}
	key := func(i int) string { return fmt.Sprint("{k}", i) }
	const calls = 20
	left := func(call func(ctx context.Context, i int) error) {
		t.Helper()
		before := runtime.NumGoroutine()
		for i := range calls {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			if err := call(ctx, i); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
		}
		settle(t, before+calls) // a call has two, and the client may have more of its own
	}
	if err := s.Set(t.Context(), key(0), nil, bale.Expiry{}); err != nil { // connections are there
		t.Fatal(err)
	}
	if _, err := s.Delete(t.Context(), []string{key(0)}); err != nil {
		t.Fatal(err)
	}

	migrate("MIGRATING", id) // to a node that does not import it
	left(func(ctx context.Context, i int) error { return s.Set(ctx, key(i), []byte("late"), bale.Expiry{}) })
	migrate("STABLE")
	for i := range calls {
		if v, err := s.Get(t.Context(), key(i)); !errors.Is(err, bale.ErrNotFound) {
			t.Errorf("%s is stored after its context: %q, %v", key(i), v, err)
		}
	}

	from.Kill()
	left(func(ctx context.Context, i int) error { _, err := s.Touch(ctx, key(i), bale.NoExpiry()); return err })
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
