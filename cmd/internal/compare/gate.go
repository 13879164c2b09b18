package compare

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// The units that gates and notes know by name.
const (
	timeUnit   = "sec/op"
	allocsUnit = "allocs/op"
	storedUnit = "stored-B/value"
	redisUnit  = "redis-B/key"
)

// errGate marks a gate that is not understood.
var errGate = errors.New("no gate")

// Gate is a set of units that may not get worse, each with its floor: the change that is tolerated.
// The zero Gate has none.
type Gate struct{ limits []limit }

// limit is one of a gate.
type limit struct {
	Name     string
	relative float64 // of the old figure
	absolute float64 // in the unit
	text     string
}

// named are the gates with a name of their own.
var named = map[string][]string{
	"time":   {timeUnit},
	"bytes":  {storedUnit, redisUnit},
	"allocs": {allocsUnit},
	"cpu":    {"user+sys-sec/op"},
	"rss":    {"peak-RSS-bytes"},
}

// percentile is a gate of latencies: p99 is p99-sec/op.
var percentile = regexp.MustCompile(`^p[0-9]{1,2}(\.[0-9]+)?$`)

// counted are the gates whose floor may be a number of their unit.
var counted = []string{"bytes", "allocs"}

// DefaultGate is time=5%,bytes=0,allocs=0.
func DefaultGate() Gate {
	return Gate{[]limit{{Name: "time", relative: 0.05, text: "5%"}, {Name: "bytes", text: "0"}, {Name: "allocs", text: "0"}}}
}

// orDefault is the gate, or the default one for the zero one.
func (g Gate) orDefault() Gate {
	if len(g.limits) == 0 {
		return DefaultGate()
	}
	return g
}

// isDefault says that a gate is the default one, given or not.
func (g Gate) isDefault() bool { return g.String() == DefaultGate().String() }

// ParseGate reads a list such as time=5%,bytes=0,allocs=2,p99=10%. Names are time (sec/op), bytes
// (stored-B/value and redis-B/key), allocs (allocs/op), cpu (user+sys-sec/op), rss
// (peak-RSS-bytes), p50 to p99.99 (p99-sec/op), or a unit as it is (B/op). A floor is a percentage,
// or 0; of bytes and allocs it may be a number of them.
func ParseGate(text string) (Gate, error) {
	var g Gate
	for part := range strings.SplitSeq(text, ",") {
		name, floor, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || name == "" {
			return g, fmt.Errorf("%w: %q, must be a name, = and a floor, such as time=5%%", errGate, part)
		}
		l := limit{Name: name, text: floor}
		if named[name] == nil && !percentile.MatchString(name) && !strings.Contains(name, "/") {
			return g, fmt.Errorf("%w: %q; there are time, bytes, allocs, cpu, rss, p50 to p99.99, and units such as B/op", errGate, name)
		}
		if slices.ContainsFunc(g.limits, func(o limit) bool { return o.Name == name }) {
			return g, fmt.Errorf("%w: %s is there twice", errGate, name)
		}
		number, percent := strings.CutSuffix(floor, "%")
		v, err := strconv.ParseFloat(number, 64)
		switch {
		case err != nil || v < 0 || math.IsNaN(v) || math.IsInf(v, 0):
			return g, fmt.Errorf("%w: %s=%q, the floor must be a number of at least 0 with %% behind it, such as %[2]s=5%%", errGate, name, floor)
		case percent:
			l.relative = v / 100
		case v != 0 && !slices.Contains(counted, name):
			return g, fmt.Errorf("%w: %s=%s, the floor must be a percentage: %[2]s=%[3]s%%", errGate, name, floor)
		default:
			l.absolute = v
		}
		g.limits = append(g.limits, l)
	}
	return g, nil
}

// UnmarshalText reads a gate as ParseGate does.
func (g *Gate) UnmarshalText(text []byte) (err error) {
	*g, err = ParseGate(string(text))
	return err
}

// String is the gate as ParseGate reads it.
func (g Gate) String() string {
	parts := make([]string, len(g.limits))
	for i, l := range g.limits {
		parts[i] = l.Name + "=" + l.text
	}
	return strings.Join(parts, ",")
}

// of is the limit of a unit, if it has one.
func (g Gate) of(unit string) (limit, bool) {
	for _, l := range g.limits {
		if slices.Contains(l.units(), unit) {
			return l, true
		}
	}
	return limit{}, false
}

// unused are the limits that are of no comparison.
func (g Gate) unused(cs []Comparison) (unused []limit) {
	for _, l := range g.limits {
		if !slices.ContainsFunc(cs, func(c Comparison) bool { return c.Gate == l.Name }) {
			unused = append(unused, l)
		}
	}
	return unused
}

func (l limit) units() []string {
	switch {
	case named[l.Name] != nil:
		return named[l.Name]
	case percentile.MatchString(l.Name):
		return []string{l.Name + "-" + timeUnit}
	}
	return []string{l.Name}
}

const (
	// jitterAllocs is less than an allocation: a mean over a process is not a whole number, for
	// what the runtime and pools do now and then.
	jitterAllocs = 0.5
	// jitterBytes is what used_memory differs by between runs of the same, a key: a client's
	// buffers, once 41 KB over 10,000 keys. The smallest step of Redis' allocator is 8 bytes.
	jitterBytes = 5
	// jitterShare is the same for large values, of which there are fewer keys; a step of the
	// allocator is an eighth of them.
	jitterShare = 0.005
)

// tolerated is the change up to which a comparison is no regression, on the scale of its Change.
func (l limit) tolerated(c Comparison) float64 {
	relative, absolute := l.relative, l.absolute
	switch c.Unit {
	case allocsUnit:
		absolute = max(absolute, jitterAllocs)
	case redisUnit:
		relative, absolute = max(relative, jitterShare), max(absolute, jitterBytes)
	}
	old := math.Abs(c.Old.Median)
	if c.Absolute {
		return max(relative*old, absolute)
	}
	return max(relative, absolute/old)
}
