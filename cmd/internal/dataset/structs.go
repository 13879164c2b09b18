package dataset

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"time"

	"github.com/balekv/bale/cmd/internal/dataset/shop"
)

// filled makes a struct with many fields, each filled by its type.
func filled[T any](rng *rand.Rand, _ int) (v T) {
	fill(rng, reflect.ValueOf(&v).Elem())
	return v
}

func fill(rng *rand.Rand, fields reflect.Value) {
	for i := range fields.NumField() {
		var value any
		name := fields.Type().Field(i).Name
		switch fields.Field(i).Interface().(type) {
		case string:
			if value = first(rng) + " " + last(rng); strings.HasSuffix(name, "Status") {
				value = pick(rng, "active", "active", "active", "pending", "suspended", "closed")
			}
		case int64:
			value = rng.Int64N(100_000)
		case int32:
			value = rng.Int32N(100)
		case float64:
			if value = float64(rng.IntN(10_000_000)) / 100; strings.HasSuffix(name, "Score") {
				value = float64(rng.IntN(1_000_000)) / 1_000_000
			}
		case bool:
			value = rng.IntN(2) == 0
		case time.Time:
			value = within(rng, 3*365*24*time.Hour)
		case []string:
			value = []string{pick(rng, "spring", "summer", "autumn", "winter"), pick(rng, "sale", "regular", "outlet")}
		case shop.Place:
			value = shop.Place{
				Street: fmt.Sprintf("%s Street %d", last(rng), 1+rng.IntN(200)), City: pick(rng, "Berlin", "Lagos", "Tokyo", "São Paulo", "New York", "Warsaw"),
				Latitude: float64(rng.IntN(180_000_000)-90_000_000) / 1e6, Longitude: float64(rng.IntN(360_000_000)-180_000_000) / 1e6,
			}
		default:
			fill(rng, fields.Field(i))
			continue
		}
		fields.Field(i).Set(reflect.ValueOf(value))
	}
}
