package link

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The limits of a Setting. A single packet takes 0.12 s at the lowest rate.
const (
	minBits  = 100_000
	maxBits  = 100_000_000_000
	maxDelay = 10 * time.Second
)

// ErrSetting: the Setting is invalid.
var ErrSetting = errors.New("not a network")

// Setting is how a network is limited.
type Setting struct {
	// Bits a second in each direction, 100 kbit to 100 gbit. Packets count with their headers, so
	// that of 1 gbit values get 0.95 at most.
	Bits int64

	// Delay is what a round trip takes longer, 0 for nothing, to 10 s. Each direction has half of
	// it.
	Delay time.Duration
}

// units are those of tc, the largest first; powers of 1000.
var units = []struct {
	name string
	bits float64
}{{"gbit", 1e9}, {"mbit", 1e6}, {"kbit", 1e3}}

// Parse reads a rate and, after a comma, the delay if there is one: "1gbit,0.2ms". Rates are in
// kbit, mbit or gbit.
func Parse(text string) (Setting, error) {
	rate, delay, delayed := strings.Cut(strings.ToLower(strings.TrimSpace(text)), ",")
	rate = strings.TrimSpace(rate)
	var s Setting
	known := false
	for _, u := range units {
		if number, ok := strings.CutSuffix(rate, u.name); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			if err != nil || !(f*u.bits <= 2*maxBits) { // beyond that, what it is does not matter
				return Setting{}, fmt.Errorf("%w: the rate %q: want a number before %s, as in 1gbit,0.2ms; at most 100gbit", ErrSetting, rate, u.name)
			}
			s.Bits, known = int64(math.Round(f*u.bits)), true
			break
		}
	}
	if !known {
		return Setting{}, fmt.Errorf("%w: the rate %q: want kbit, mbit or gbit (bits a second), as in 1gbit,0.2ms", ErrSetting, rate)
	}
	if delayed {
		var err error
		if s.Delay, err = time.ParseDuration(strings.TrimSpace(delay)); err != nil {
			return Setting{}, fmt.Errorf("%w: the delay %q: want a time with its unit, as in 1gbit,0.2ms", ErrSetting, delay)
		}
	}
	return s, s.validate()
}

func (s Setting) validate() error {
	switch {
	case s.Bits < minBits || s.Bits > maxBits:
		return fmt.Errorf("%w: the rate %s: must be 100kbit to 100gbit", ErrSetting, s.rate())
	case s.Delay < 0 || s.Delay > maxDelay:
		return fmt.Errorf("%w: the delay %v: must be 0 to %v", ErrSetting, s.Delay, maxDelay)
	}
	return nil
}

func (s Setting) rate() string {
	for _, u := range units {
		if float64(s.Bits) >= u.bits || u.name == units[len(units)-1].name {
			return strconv.FormatFloat(float64(s.Bits)/u.bits, 'f', -1, 64) + u.name
		}
	}
	return ""
}

// String is the Setting as [Parse] reads it.
func (s Setting) String() string {
	if s.Delay == 0 {
		return s.rate()
	}
	return s.rate() + "," + strconv.FormatFloat(float64(s.Delay)/float64(time.Millisecond), 'f', -1, 64) + "ms"
}

// The queues of a direction.
const (
	// The burst is the amount that a queue may send at once after a pause; the rate holds over
	// longer times. It lasts a millisecond, because a shorter one loses throughput on a busy
	// machine: the timer comes late, and the missed part is never sent. It has two packets at
	// least.
	burstTime = time.Millisecond
	minBurst  = 2 * 1514

	// What may wait. The sender's kernel holds each connection to a few hundred KiB of it, so that
	// nothing is dropped with the usual number of them.
	queueBytes   = 16 << 20
	queuePackets = 100_000 // of netem
)

// queues are tc's arguments that limit a new device.
func (s Setting) queues(device string) [][]string {
	burst := max(minBurst, int64(float64(s.Bits)/8*burstTime.Seconds()))
	all := [][]string{{"qdisc", "add", "dev", device, "root", "handle", "1:", "tbf",
		"rate", strconv.FormatInt(s.Bits, 10) + "bit", "burst", strconv.FormatInt(burst, 10), "limit", strconv.Itoa(queueBytes)}}
	if s.Delay > 0 {
		each := strconv.FormatFloat(float64(s.Delay)/2/float64(time.Microsecond), 'f', -1, 64) + "us"
		all = append(all, []string{"qdisc", "add", "dev", device, "parent", "1:1", "netem", "delay", each, "limit", strconv.Itoa(queuePackets)})
	}
	return all
}
