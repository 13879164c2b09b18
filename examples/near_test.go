package examples

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/balekv/bale"
	"github.com/balekv/bale/extra/formats/protobuf"
	"github.com/balekv/bale/extra/near"
	"github.com/balekv/bale/extra/observe/prom"
	"github.com/balekv/bale/internal/memstore"
)

// TestNearMetrics: Prometheus sees what near counts.
func TestNearMetrics(t *testing.T) {
	cache, err := bale.New(memstore.New(), bale.Options[string]{})
	if err != nil {
		t.Fatal(err)
	}
	hot, err := near.New(cache, near.Options[string]{})
	if err != nil {
		t.Fatal(err)
	}
	defer hot.Close()
	if err := hot.Set(t.Context(), "k", "v", bale.NoExpiry()); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"k", "k", "k", "other"} {
		if _, err := hot.Get(t.Context(), key); err != nil && !errors.Is(err, bale.ErrNotFound) {
			t.Fatal(err)
		}
	}
	collector, err := prom.NewCollector(prom.Options{})
	if err != nil {
		t.Fatal(err)
	}
	collector.Near("g", func() prom.NearStats { return prom.NearStats(hot.Stats()) })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collector)
	page := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	s := hot.Stats()
	for result, n := range map[string]uint64{"hit": s.Hits, "miss": s.Misses} {
		if line := fmt.Sprintf("\nbale_near_reads_total{group=\"g\",result=%q} %d\n", result, n); n == 0 ||
			!strings.Contains(page.Body.String(), line) {
			t.Errorf("no %q in %s", line, page.Body)
		}
	}
}

// TestNearProtobuf: near keeps messages. Their common type is not a part of each.
func TestNearProtobuf(t *testing.T) {
	cache, err := bale.New(memstore.New(), bale.Options[*descriptorpb.EnumValueDescriptorProto]{Codec: protobuf.Codec[*descriptorpb.EnumValueDescriptorProto]{}})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := near.New(cache, near.Options[*descriptorpb.EnumValueDescriptorProto]{})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if err := kept.Set(t.Context(), "k", &descriptorpb.EnumValueDescriptorProto{}, bale.NoExpiry()); err != nil {
		t.Fatal(err)
	}
	if _, err := kept.Get(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	if s := kept.Stats(); s.Entries != 1 || s.Bytes > 1000 {
		t.Errorf("%+v", s)
	}
}
