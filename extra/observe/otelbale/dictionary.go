package otelbale

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/balekv/bale/dict"
)

// ObserveDictionary shows how far a dict.Group's Auto is, and what the registry lost; status is the
// group's method Status. The metrics, by bale.group, the given name:
//
//	bale.dictionary.collected   values that Auto has seen: to judge by, and then for its sample
//	bale.dictionary.wanted      and how many it wants
//	bale.dictionary.restored    dictionaries that the registry did not hold, and that this program put back
//
// The first two are missing without Auto. A nil provider is the global one. After stop nothing is
// observed any more. status must be safe for concurrent use.
func ObserveDictionary(name string, status func() dict.Status, provider metric.MeterProvider) (stop func() error, err error) {
	meter := cmp.Or(provider, otel.GetMeterProvider()).Meter(scope)
	collected, failed := meter.Int64ObservableGauge("bale.dictionary.collected", metric.WithUnit("{value}"),
		metric.WithDescription("Values that Auto has seen, to judge whether a dictionary is needed and then for its sample."))
	wanted, err := meter.Int64ObservableGauge("bale.dictionary.wanted", metric.WithUnit("{value}"), metric.WithDescription("Values that Auto wants to see."))
	restored, more := meter.Int64ObservableCounter("bale.dictionary.restored", metric.WithUnit("{dictionary}"),
		metric.WithDescription("Dictionaries that the registry did not hold, and that this program put back."))
	if failed = errors.Join(failed, err, more); failed != nil {
		return nil, fmt.Errorf("otelbale: %w", failed)
	}
	group := metric.WithAttributes(groupKey.String(strings.ToValidUTF8(name, "\uFFFD")))
	registration, err := meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		s := status()
		if !s.Synced.IsZero() {
			to.ObserveInt64(restored, s.Restored, group)
		}
		if s.Wanted > 0 {
			to.ObserveInt64(collected, int64(s.Collected), group)
			to.ObserveInt64(wanted, int64(s.Wanted), group)
		}
		return nil
	}, collected, wanted, restored)
	if err != nil {
		return nil, fmt.Errorf("otelbale: %w", err)
	}
	return registration.Unregister, nil
}
