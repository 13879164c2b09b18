package otelbale

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/balekv/bale/extra/resilient"
)

// ObserveGuard shows a resilient.Guard; stats is its method Stats. The metrics, by bale.guard, the
// given name:
//
//	bale.guard.calls       by bale.outcome, as resilient.Stats.Calls names them
//	bale.guard.state       of the breaker: 0 closed, 1 half open, 2 open
//	bale.guard.limit       calls that may be in flight; 0 without a limit
//	bale.guard.in_flight   and how many are, counted with a limit only
//	bale.guard.waiting     calls that wait for their turn
//
// The names become attributes: use one per endpoint, a few in total. A nil provider is the global
// one. After stop nothing is observed any more.
func ObserveGuard(name string, stats func() resilient.Stats, provider metric.MeterProvider) (stop func() error, err error) {
	return observe(provider, func(show func(string, resilient.Stats)) { show(name, stats()) })
}

// ObserveGuards shows the Guards of a resilient.Transport, of which guards is the method Guards, as
// [ObserveGuard] does. Each host is the guard "name/host". Only the first 100 hosts are shown:
// redirects may name any number.
func ObserveGuards(name string, guards func() iter.Seq2[string, *resilient.Guard], provider metric.MeterProvider) (stop func() error, err error) {
	return observe(provider, func(show func(string, resilient.Stats)) {
		n := 0
		for host, guard := range guards() {
			if n++; n > maxHosts {
				return
			}
			show(name+"/"+host, guard.Stats())
		}
	})
}

// maxHosts have 1,000 sets of attributes for bale.guard.calls, and the SDK takes 2,000.
const maxHosts = 100

// observe shows all Guards that each yields.
func observe(provider metric.MeterProvider, each func(show func(name string, s resilient.Stats))) (stop func() error, err error) {
	meter := cmp.Or(provider, otel.GetMeterProvider()).Meter(scope)
	calls, failed := meter.Int64ObservableCounter("bale.guard.calls", metric.WithUnit("{call}"),
		metric.WithDescription("Calls to the endpoint by what became of them; one call can be several."))
	observed := []metric.Observable{calls}
	gauges := map[metric.Int64ObservableGauge]func(*resilient.Stats) int{}
	for _, gauge := range []struct {
		name, description string
		is                func(*resilient.Stats) int
	}{
		{"state", "State of the breaker: 0 closed, 1 half open, 2 open.", func(s *resilient.Stats) int { return int(s.State) }},
		{"limit", "Calls that may be in flight; 0 without a limit.", func(s *resilient.Stats) int { return s.Limit }},
		{"in_flight", "Calls in flight, counted with a limit only.", func(s *resilient.Stats) int { return s.InFlight }},
		{"waiting", "Calls that wait for their turn.", func(s *resilient.Stats) int { return s.Waiting }},
	} {
		g, err := meter.Int64ObservableGauge("bale.guard."+gauge.name, metric.WithDescription(gauge.description))
		failed = errors.Join(failed, err)
		gauges[g] = gauge.is
		observed = append(observed, g)
	}
	if failed != nil {
		return nil, fmt.Errorf("otelbale: %w", failed)
	}
	registration, err := meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		each(func(name string, s resilient.Stats) {
			guard := attribute.String("bale.guard", strings.ToValidUTF8(name, "\uFFFD"))
			for outcome, n := range s.Calls() {
				to.ObserveInt64(calls, count(n), metric.WithAttributes(guard, attribute.String("bale.outcome", outcome)))
			}
			for g, is := range gauges {
				to.ObserveInt64(g, int64(is(&s)), metric.WithAttributes(guard))
			}
		})
		return nil
	}, observed...)
	if err != nil {
		return nil, fmt.Errorf("otelbale: %w", err)
	}
	return registration.Unregister, nil
}
