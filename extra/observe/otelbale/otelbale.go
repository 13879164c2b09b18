// Package otelbale shows bale's stats to OpenTelemetry, as spans and metrics.
//
// [NewRecorder] makes a stats.Recorder for a group:
//
//	recorder, err := otelbale.NewRecorder("shop:user", otelbale.Options{ServerAddress: "redis.example.com"})
//	users, err := bale.New(store, bale.Options[User]{Recorder: recorder})
//
// [NewSink] makes a stats.Sink that turns the events of a stats.Ring into the same metrics, without
// spans. A caller then pays only for the ring. Both use the program's own providers, and so its
// exporter.
package otelbale

import (
	"fmt"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/balekv/bale"
	"github.com/balekv/bale/stats"
)

// scope is the instrumentation scope of the spans and metrics.
const scope = "github.com/balekv/bale/extra/observe/otelbale"

// Options are the settings of [NewRecorder] and [NewSink]; the zero value is useful.
type Options struct {
	// TracerProvider defaults to the global one. A Sink makes no spans.
	TracerProvider trace.TracerProvider

	// MeterProvider defaults to the global one.
	MeterProvider metric.MeterProvider

	// ServerAddress is server.address: the host of Redis as the client is configured, or the path
	// of a socket. Defaults to none. It must not have credentials.
	ServerAddress string

	// ServerPort is server.port, valid only with ServerAddress; 1 to 65535. Default none, which
	// means 6379.
	ServerPort int

	// Namespace is db.namespace: the index of the database. Defaults to none.
	Namespace string

	// Roots makes a span of each operation that the provider's sampler chooses, and times all of
	// them. By default an operation is a span only if the caller's context has a recorded span.
	Roots bool

	// TimeEvery times one in TimeEvery operations, chosen at random, and all that become spans: see
	// stats.CountersOptions. 1 makes db.client.operation.duration count all operations. Default 32;
	// a negative number times none.
	TimeEvery int

	// MaxGroups is how many groups a Sink has at most; further ones share the group "other". A
	// group takes some 60 KiB. Default 200; at least 1.
	MaxGroups int
}

// check fills in the defaults, and returns the attributes of the server.
func (o *Options) check() ([]attribute.KeyValue, error) {
	switch {
	case strings.Contains(o.ServerAddress, "@") || strings.Contains(o.ServerAddress, "://"):
		return nil, fmt.Errorf("otelbale: %w: ServerAddress is a URL or has credentials, must be a host or the path of a socket", bale.ErrInvalid)
	case o.ServerPort < 0 || o.ServerPort > 65535:
		return nil, fmt.Errorf("otelbale: %w: ServerPort is %d, must be 1 to 65535", bale.ErrInvalid, o.ServerPort)
	case o.ServerPort != 0 && o.ServerAddress == "":
		return nil, fmt.Errorf("otelbale: %w: ServerPort is %d, without a ServerAddress", bale.ErrInvalid, o.ServerPort)
	case o.MaxGroups < 0:
		return nil, fmt.Errorf("otelbale: %w: MaxGroups is %d, must be at least 1", bale.ErrInvalid, o.MaxGroups)
	}
	if o.TracerProvider == nil {
		o.TracerProvider = otel.GetTracerProvider()
	}
	if o.MeterProvider == nil {
		o.MeterProvider = otel.GetMeterProvider()
	}
	server := []attribute.KeyValue{semconv.DBSystemNameRedis}
	if o.Namespace != "" {
		server = append(server, semconv.DBNamespace(o.Namespace))
	}
	if o.ServerAddress != "" {
		server = append(server, semconv.ServerAddress(o.ServerAddress))
	}
	if o.ServerPort != 0 {
		server = append(server, semconv.ServerPort(o.ServerPort))
	}
	return server, nil
}

// The attributes that the conventions do not have.
const (
	groupKey      = attribute.Key("bale.group")
	operationKey  = attribute.Key("bale.operation")
	outcomeKey    = attribute.Key("bale.outcome")
	resultKey     = attribute.Key("bale.result")
	stageKey      = attribute.Key("bale.stage")
	algorithmKey  = attribute.Key("bale.algorithm")
	dictionaryKey = attribute.Key("bale.dictionary.id")
	keysKey       = attribute.Key("bale.keys")
	hitsKey       = attribute.Key("bale.hits")
	missesKey     = attribute.Key("bale.misses")
	errorsKey     = attribute.Key("bale.errors")
	plainKey      = attribute.Key("bale.plain.size")
	storedKey     = attribute.Key("bale.stored.size")
	ratioKey      = attribute.Key("bale.ratio")
)

// stageKeys are the keys of the stage durations in a span, in seconds.
var stageKeys = func() (keys [stats.Stages]attribute.Key) {
	for i := range keys {
		keys[i] = attribute.Key("bale.stage." + stats.Stage(i).String() + ".duration")
	}
	return keys
}()

// command is db.operation.name: the equivalent command of an operation, and whether it is a
// pipeline. It is empty for an operation without Redis.
func command(op stats.Op, keys int32) (name string, pipeline bool) {
	switch op {
	case stats.Get:
		return "GET", false
	case stats.Set:
		return "SET", false
	case stats.GetMany:
		return "MGET", false // which the conventions do not take for a batch, of however many keys
	case stats.SetMany:
		if keys < 2 {
			return "SET", false
		}
		return "PIPELINE SET", true
	case stats.Delete:
		return "UNLINK", false
	case stats.Touch:
		return "PEXPIRE", false
	case stats.Flush:
		return "PIPELINE", keys >= 2
	}
	return "", false
}
