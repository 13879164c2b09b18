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
//
// Spans and the metric db.client.operation.duration follow the semantic conventions for Redis,
// version 1.43. An operation of a Cache is one span of kind client, made when the operation has
// ended. The span includes serializing and packing. If the Redis client is instrumented as well,
// its span is a sibling. A load is a span of kind internal. Two attributes of the conventions
// differ, because a stats.Event does not have them:
//
//   - db.operation.name is the equivalent command of the operation: GET, SET, MGET, PIPELINE SET,
//     UNLINK or PEXPIRE. A Store may send others, as on a cluster.
//   - error.type is the stats.Class of the error; there is no db.response.status_code.
//
// The metrics of bale, by bale.group:
//
//	bale.operations        by bale.operation and bale.outcome: hit, miss, ok, or the class of the error
//	bale.keys              by bale.operation and bale.result: hit, miss or error for reads, any for the others
//	bale.plain.io          bytes of the values, serialized, by bale.operation
//	bale.stored.io         bytes of the same values in Redis: the ratio is one rate divided by the other
//	bale.stage.duration    by bale.operation and bale.stage, of those operations that were timed
//	bale.buffers.fresh     buffers that had to be made or to grow
//	bale.dictionary        1 for the bale.algorithm and bale.dictionary.id that the group wrote last with
//	bale.dictionary.*      how far dict.Auto is: see [ObserveDictionary]
//	bale.events.dropped    events that the Ring dropped; of a Sink alone
//
// Both durations come from a sample: see Options.TimeEvery. No attribute contains a key, a value or
// a part of one, because a stats.Event has none.
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
