//go:build unix

package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/stream"
)

// RunDict tests a dict.Store on all kinds of deployments, but those named.
func RunDict(t *testing.T, open Open[dict.Store], without ...Kind) {
	for _, kind := range []Kind{Standalone, Cluster, Sentinel} {
		if slices.Contains(without, kind) {
			continue
		}
		t.Run(string(kind), func(t *testing.T) {
			d := deploy(t, kind)
			testDictStore(t, open(t, d), d)
			if kind == Standalone {
				testWithoutEVALSHA(t, open, d)
			}
		})
	}
}

// RunDictMasters tests that a dict.Store asks masters alone, also with a client that reads from
// replicas, which may lag behind. If it is a bale.Store too, so must writers of package stream. The
// client that open makes reads from replicas; get is its GET.
func RunDictMasters(t *testing.T, open func(t *testing.T, d Deployment) (s dict.Store, get func(key string))) {
	ctx := t.Context()
	cluster := redisproc.ClusterForTest(t, 3)
	var replicas []*redisproc.Server
	for _, master := range cluster.Servers {
		replica, err := cluster.AddReplica(ctx, master)
		must(t, err)
		replicas = append(replicas, replica)
	}
	asked := func() (n int) {
		for _, r := range replicas {
			stats, err := r.Do(ctx, "INFO", "commandstats")
			must(t, err)
			for _, command := range []string{"get", "getrange", "touch", "pttl", "exists"} {
				n += strings.Count(stats, "cmdstat_"+command+":")
			}
		}
		return n
	}
	s, get := open(t, Deployment{Kind: Cluster, Addrs: cluster.Addrs()})
	if ok, err := s.Swap(ctx, "a", nil, []byte("1"), 0); err != nil || !ok {
		t.Fatal(ok, err)
	}
	values, err := s.Read(ctx, "a", "b", "c")
	if err != nil || string(values[0]) != "1" || values[1] != nil {
		t.Errorf("%q, %v", values, err)
	}
	if there, err := s.Refresh(ctx, "a", "b", "c"); err != nil || !there[0] || there[1] {
		t.Errorf("%v, %v", there, err)
	}
	if values, ok := s.(bale.Store); ok {
		testStreamMasters(t, values)
	}
	if asked() != 0 {
		t.Error("replicas were asked")
	}
	for _, key := range []string{"a", "b", "c"} {
		get(key)
	}
	if asked() == 0 {
		t.Error("the client asks no replica by itself: the test shows nothing")
	}
	if policy, limit, err := s.EvictionPolicy(ctx); err != nil || policy != "noeviction" || limit != 0 {
		t.Errorf("%q, %d, %v", policy, limit, err)
	}
}

// testStreamMasters makes all reads of writers of a stream.
func testStreamMasters(t *testing.T, s bale.Store) {
	ctx := t.Context()
	streams, err := stream.New(s, stream.Options{})
	must(t, err)
	for _, e := range []bale.Expiry{bale.NoExpiry(), bale.TTL(time.Hour)} {
		if _, err := streams.PutReader(ctx, "stream", strings.NewReader("value"), e); err != nil {
			t.Fatal(err)
		}
		if _, err := streams.Repair(ctx, "stream"); err != nil {
			t.Error(err)
		}
	}
	if is, err := streams.Delete(ctx, "stream"); err != nil || !is {
		t.Errorf("%v, %v", is, err)
	}
}

func testDictStore(t *testing.T, s dict.Store, d Deployment) {
	ctx := t.Context()
	testSwap(t, s, func(key string) ([]byte, error) {
		values, err := s.Read(ctx, key, "none")
		if err != nil || values[1] != nil {
			return nil, fmt.Errorf("%d bytes of no value, %w", len(values[1]), err)
		}
		there, err := s.Refresh(ctx, "none", key)
		if err != nil || there[0] || values[0] != nil && !there[1] {
			t.Errorf("touched %v, %v", there, err)
		}
		if there[1] && values[0] == nil {
			return []byte{}, nil // which counts as none
		}
		return values[0], nil
	}, d)
	for size, want := range map[int]int{frame.MaxDictionarySize: frame.MaxDictionarySize, 4 * frame.MaxDictionarySize: frame.MaxDictionarySize + 1} {
		if ok, err := s.Swap(ctx, fmt.Sprint("large:", size), nil, make([]byte, size), 0); err != nil || !ok {
			t.Fatal(ok, err)
		}
		if values, err := s.Read(ctx, fmt.Sprint("large:", size)); err != nil || len(values[0]) != want {
			t.Errorf("%d bytes of %d, %v", len(values[0]), size, err)
		}
	}
	if policy, limit, err := s.EvictionPolicy(ctx); err != nil || policy != "noeviction" || limit != 0 {
		t.Errorf("eviction policy %q, maxmemory %d, %v", policy, limit, err)
	}
	listening, stop := context.WithCancel(ctx)
	heard := make(chan string, 10)
	ended := make(chan error, 1)
	go func() { ended <- s.Listen(listening, "news", func(m string) { heard <- m }) }()
	if m := <-heard; m != "" {
		t.Errorf("heard %q first", m)
	}
	if err := s.Notify(ctx, "news", "hello"); err != nil {
		t.Error(err)
	}
	if m := <-heard; m != "hello" {
		t.Errorf("heard %q", m)
	}
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("listening ended with %v", err)
	}
}

// testWithoutEVALSHA: a user may have EVAL alone, and a server may have it alone. Without either,
// the error names EVAL, which is enough.
func testWithoutEVALSHA(t *testing.T, open Open[dict.Store], d Deployment) {
	d.Username, d.Password = "scripts", "secret"
	for _, test := range []struct{ rules, want string }{
		{"-evalsha", ""}, {"-evalsha -eval", "'eval'"},
	} {
		d.do(t, append(strings.Fields("ACL SETUSER scripts reset on >secret ~* &* +@all"), strings.Fields(test.rules)...)...)
		s := open(t, d)
		for i := range 3 {
			key := fmt.Sprint(test.rules, i)
			ok, err := s.Swap(t.Context(), key, nil, []byte("1"), 0)
			if test.want == "" && (!ok || err != nil) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("%s: %v, %v", test.rules, ok, err)
			}
		}
		// The refusal is asked for once, and not for each call.
		stats := d.do(t, "INFO", "commandstats")
		if _, sha, ok := strings.Cut(stats, "cmdstat_evalsha:"); ok {
			_, rejected, _ := strings.Cut(sha, "rejected_calls=")
			if !strings.HasPrefix(rejected, "1,") {
				t.Errorf("%s: EVALSHA %.30s", test.rules, rejected)
			}
		}
		d.do(t, "CONFIG", "RESETSTAT")
	}
	missing := redisproc.ForTest(t, "--rename-command", "EVALSHA", "")
	s := open(t, Deployment{Kind: Standalone, Addrs: []string{missing.Addr()}, server: missing, nodes: []*redisproc.Server{missing}})
	if ok, err := s.Swap(t.Context(), "a", nil, []byte("1"), 0); err != nil || !ok {
		t.Errorf("without EVALSHA: %v, %v", ok, err)
	}
}

// testSwap covers Swap of a bale.Store and of a dict.Store. get returns nil for a missing key.
func testSwap(t *testing.T, s interface {
	Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (bool, error)
}, get func(key string) ([]byte, error), d Deployment) {
	ctx := t.Context()
	large := bytes.Repeat([]byte{0, 0xFF, '\n', 'x'}, 100<<10)
	for _, step := range []struct {
		name       string
		old, value []byte
		want       bool
		after      []byte
	}{
		{"create", nil, []byte("1"), true, []byte("1")},
		{"create what exists", nil, []byte("2"), false, []byte("1")},
		{"create again, the reply having been lost", nil, []byte("1"), true, []byte("1")},
		{"replace another", []byte("3"), []byte("2"), false, []byte("1")},
		{"replace", []byte("1"), large, true, large},
		{"replace large", large, []byte("2"), true, []byte("2")},
		{"replace again", large, []byte("2"), true, []byte("2")},
		{"delete another", []byte("1"), nil, false, []byte("2")},
		{"nothing by nothing, but there is something", nil, nil, false, []byte("2")},
		{"delete", []byte("2"), nil, true, nil},
		{"delete what is gone", []byte("2"), nil, false, nil},
		{"replace what is gone", []byte("2"), []byte("3"), false, nil},
		{"nothing by nothing", nil, nil, true, nil},
		{"create empty", nil, []byte{}, true, []byte{}},
		{"replace empty", []byte{}, []byte("4"), true, []byte("4")},
	} {
		ok, err := s.Swap(ctx, "swap", step.old, step.value, 0)
		if err != nil || ok != step.want {
			t.Errorf("%s: %v, %v", step.name, ok, err)
		}
		value, err := get("swap")
		if err != nil || (value == nil) != (step.after == nil) || !bytes.Equal(value, step.after) {
			t.Errorf("%s: afterwards %d bytes, %v", step.name, len(value), err)
		}
	}
	for name, old := range map[string][]byte{"new": nil, "old": []byte("1")} {
		key := "ttl:" + name
		if old != nil {
			if ok, err := s.Swap(ctx, key, nil, old, 0); err != nil || !ok {
				t.Fatal(ok, err)
			}
		}
		if ok, err := s.Swap(ctx, key, old, []byte("2"), 1500*time.Millisecond); err != nil || !ok {
			t.Fatal(ok, err)
		}
		if ttl, err := strconv.Atoi(d.do(t, "PTTL", key)); err != nil || ttl <= 1000 || ttl > 1500 {
			t.Errorf("%s expires in %d ms, %v", name, ttl, err)
		}
	}
	// A value in its own place lives longer: so a lock is renewed.
	for _, ttl := range []time.Duration{time.Second, time.Hour} {
		if ok, err := s.Swap(ctx, "ttl:new", []byte("2"), []byte("2"), ttl); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	if ttl, err := strconv.Atoi(d.do(t, "PTTL", "ttl:new")); err != nil || ttl <= 1000 {
		t.Errorf("prolonged, it expires in %d ms, %v", ttl, err)
	}
	// So far that the time until then is the longest there is.
	if ok, err := s.Swap(ctx, "far", nil, []byte("1"), math.MaxInt64); err != nil || !ok {
		t.Errorf("for 292 years: %v, %v", ok, err)
	}
	// One of many wins.
	var wg sync.WaitGroup
	won := make(chan int, 20)
	for i := range 20 {
		wg.Go(func() {
			ok, err := s.Swap(ctx, "race", nil, fmt.Append(nil, i), 0)
			if err != nil {
				t.Error(err)
			}
			if ok {
				won <- i
			}
		})
	}
	wg.Wait()
	if len(won) != 1 {
		t.Errorf("%d of 20 won", len(won))
	}
}
