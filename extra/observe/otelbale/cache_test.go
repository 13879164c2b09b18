package otelbale_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/codec"
	"github.com/balekv/bale/extra/observe/otelbale"
	"github.com/balekv/bale/extra/observe/prom"
	"github.com/balekv/bale/internal/redisproc"
	"github.com/balekv/bale/stats"
)

// The secrets are what no key, value, error or anything else may bring to what is exported.
const (
	secretKey   = "SECRETKEY"
	secretValue = "SECRETVALUE"
	secretError = "SECRETERROR"
)

// TestCache: what a real Cache does is seen everywhere, and nothing of its keys and values.
func TestCache(t *testing.T) {
	server := redisproc.ForTest(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	w := watch(t)
	export := newOTLPServer(t, func() int { return http.StatusOK })
	ring, provider := otlp(t, export)
	collector, err := prom.NewCollector(prom.Options{Ring: ring})
	if err != nil {
		t.Fatal(err)
	}
	recorder := w.recorder(t, "shop:user", otelbale.Options{})
	cache, err := bale.New(goredis.NewStore(client), bale.Options[string]{
		Codec: codec.String{}, Recorder: stats.Multi(collector.Group("shop:user"), recorder, ring.Group("shop:user")),
	})
	if err != nil {
		t.Fatal(err)
	}

	ctx, parent := w.tracer.Tracer("test").Start(t.Context(), "parent")
	value := strings.Repeat(secretValue, 100)
	key := func(i int) string { return fmt.Sprint(secretKey, ":", i) }
	check := func(what string, err, want error) {
		t.Helper()
		if !errors.Is(err, want) || (err == nil) != (want == nil) {
			t.Errorf("%s: %v, not %v", what, err, want)
		}
	}
	check("set", cache.Set(ctx, key(1), value), nil)
	got, err := cache.Get(ctx, key(1))
	check("get", err, nil)
	if got != value {
		t.Error("another value")
	}
	_, err = cache.Get(ctx, key(2))
	check("miss", err, bale.ErrNotFound)
	check("set many", cache.SetMany(ctx, map[string]string{key(3): value, key(4): value}), nil)
	_, err = cache.GetMany(ctx, key(1), key(2), key(3))
	check("get many", err, nil)
	packed, err := client.Get(ctx, key(1)).Bytes()
	check("packed", err, nil)
	packed[len(packed)-1] ^= 1
	check("damage", client.Set(ctx, key(5), packed, 0).Err(), nil)
	_, err = cache.Get(ctx, key(5))
	check("corrupt", err, bale.ErrCorrupt)
	check("a list", client.LPush(ctx, key(6), secretValue).Err(), nil)
	if _, err = cache.Get(ctx, key(6)); err == nil {
		t.Error("a list is read")
	}
	broken := errors.New(secretError + " of " + key(7))
	_, err = cache.GetOrLoad(ctx, key(7), func(context.Context) (string, error) { return value, broken })
	check("load", err, broken)
	check("touch", cache.Touch(ctx, key(1), bale.NoExpiry()), nil)
	_, err = cache.Delete(ctx, key(1), key(3))
	check("delete", err, nil)
	if err := cache.Close(); err != nil {
		t.Fatal(err)
	}
	parent.End()

	// All that is exported, as bytes.
	if err := errors.Join(ring.Flush(t.Context()), provider.ForceFlush(t.Context())); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorHandling: promhttp.HTTPErrorOnError}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	spans, err := json.Marshal(tracetest.SpanStubsFromReadOnlySpans(w.spans.Ended()))
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := json.Marshal(w.collect(t))
	if err != nil {
		t.Fatal(err)
	}
	_, requests := export.got()
	if requests == 0 {
		t.Error("nothing is exported")
	}
	for _, of := range []struct {
		what string
		is   []byte
		has  string
	}{
		{"Prometheus' page", page.Body.Bytes(), `bale_operations_total{group="shop:user",op="get",outcome="corrupt"} 1`},
		{"spans", spans, "bale.stage.store.duration"},
		{"metrics", metrics, "bale.operations"},
		{"what OTLP sent", export.bodies, "bale.operations"},
	} {
		if !bytes.Contains(of.is, []byte(of.has)) {
			t.Errorf("%s has no %s:\n%s", of.what, of.has, of.is)
		}
		for _, secret := range []string{secretKey, secretValue, secretError} {
			if bytes.Contains(bytes.ToUpper(of.is), []byte(secret)) {
				t.Errorf("%s: %s", of.what, secret)
			}
		}
	}

	// And what is right in it: the Recorder and the Sink saw the same.
	exported, _ := export.got()
	seen := figures(w.collect(t))
	for name, want := range map[string]string{
		"bale.operations bale.group=shop:user,bale.operation=get,bale.outcome=hit":     "1",
		"bale.operations bale.group=shop:user,bale.operation=get,bale.outcome=miss":    "2", // one of them GetOrLoad's
		"bale.operations bale.group=shop:user,bale.operation=get,bale.outcome=corrupt": "1",
		"bale.operations bale.group=shop:user,bale.operation=get,bale.outcome=server":  "1",
		"bale.operations bale.group=shop:user,bale.operation=load,bale.outcome=loader": "1",
		"bale.keys bale.group=shop:user,bale.operation=get_many,bale.result=hit":       "2",
		"bale.keys bale.group=shop:user,bale.operation=get_many,bale.result=miss":      "1",
		"bale.keys bale.group=shop:user,bale.operation=delete,bale.result=any":         "2",
		"bale.plain.io bale.group=shop:user,bale.operation=set":                        fmt.Sprint(len(value)),
		"bale.stored.io bale.group=shop:user,bale.operation=set":                       fmt.Sprint(len(packed)),
		"bale.plain.io bale.group=shop:user,bale.operation=set_many":                   fmt.Sprint(2 * len(value)),
	} {
		if seen[name] != want || exported[name] != want {
			t.Errorf("%s: the recorder has %q, OTLP %q, not %s", name, seen[name], exported[name], want)
		}
	}
	names := map[string]int{}
	for _, s := range w.spans.Ended() {
		names[s.Name()]++
		if s.Name() != "parent" && s.Parent().SpanID() != parent.SpanContext().SpanID() {
			t.Errorf("%s is no child of the caller's span", s.Name())
		}
	}
	for name, want := range map[string]int{"GET": 5, "SET": 1, "MGET": 1, "PIPELINE SET": 1, "UNLINK": 1, "PEXPIRE": 1, "load": 1, "parent": 1} {
		if names[name] != want {
			t.Errorf("%d spans %s, not %d", names[name], name, want)
		}
	}
}
