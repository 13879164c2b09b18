package link

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]struct {
		s     Setting
		again string // as String writes it
	}{
		"1gbit,0.2ms":        {Setting{1e9, 200 * time.Microsecond}, "1gbit,0.2ms"},
		"1gbit":              {Setting{1e9, 0}, "1gbit"},
		" 2.5Gbit , 1s ":     {Setting{25e8, time.Second}, "2.5gbit,1000ms"},
		"100mbit,0s":         {Setting{1e8, 0}, "100mbit"},
		"100kbit,150us":      {Setting{1e5, 150 * time.Microsecond}, "100kbit,0.15ms"},
		"0.1mbit":            {Setting{1e5, 0}, "100kbit"},
		"1500kbit":           {Setting{15e5, 0}, "1.5mbit"},
		"0.000100001gbit":    {Setting{100001, 0}, "100.001kbit"},
		"100000mbit,10s":     {Setting{1e11, 10 * time.Second}, "100gbit,10000ms"},
		"10mbit,1ms200us1ns": {Setting{1e7, 1200001}, "10mbit,1.200001ms"},
	} {
		got, err := Parse(text)
		if err != nil || got != want.s || got.String() != want.again {
			t.Errorf("%q: %+v as %q, %v; want %+v", text, got, got, err, want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"":              "kbit, mbit or gbit",
		"1":             "kbit, mbit or gbit",
		"1mbps":         "kbit, mbit or gbit",
		"0.2ms":         "kbit, mbit or gbit",
		"gbit":          "a number before gbit",
		"fastgbit":      "a number before gbit",
		"1e300gbit":     "at most 100gbit",
		"nangbit":       "a number before gbit",
		"infgbit":       "at most 100gbit",
		"101gbit":       "rate 101gbit: must be 100kbit to 100gbit",
		"99kbit":        "rate 99kbit: must be",
		"0gbit":         "rate 0kbit: must be",
		"-1gbit":        "must be 100kbit",
		"1gbit,":        "a time with its unit",
		"1gbit,5":       "a time with its unit",
		"1gbit,5ms,6ms": "a time with its unit",
		"1gbit,-1ms":    "must be 0 to 10s",
		"1gbit,11s":     "must be 0 to 10s",
	} {
		s, err := Parse(text)
		if !errors.Is(err, ErrSetting) || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %+v, %v; want %q", text, s, err, says)
		}
	}
}

func TestStringParses(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		s := Setting{Bits: minBits + random.Int64N(maxBits-minBits+1), Delay: time.Duration(random.Int64N(int64(maxDelay) + 1))}
		if got, err := Parse(s.String()); err != nil || got != s {
			t.Fatalf("%+v: %q is read as %+v, %v", s, s, got, err)
		}
	}
}

func TestQueues(t *testing.T) {
	for _, test := range []struct {
		s    Setting
		want []string
	}{
		{Setting{Bits: 1e9}, []string{
			"qdisc add dev eth0 root handle 1: tbf rate 1000000000bit burst 125000 limit 16777216"}},
		{Setting{Bits: 1e7}, []string{
			"qdisc add dev eth0 root handle 1: tbf rate 10000000bit burst 3028 limit 16777216"}},
		{Setting{Bits: 1e9, Delay: 200 * time.Microsecond}, []string{
			"qdisc add dev eth0 root handle 1: tbf rate 1000000000bit burst 125000 limit 16777216",
			"qdisc add dev eth0 parent 1:1 netem delay 100us limit 100000"}},
		{Setting{Bits: 1e8, Delay: time.Microsecond}, []string{
			"qdisc add dev eth0 root handle 1: tbf rate 100000000bit burst 12500 limit 16777216",
			"qdisc add dev eth0 parent 1:1 netem delay 0.5us limit 100000"}},
		{Setting{Bits: 1e5, Delay: 10 * time.Second}, []string{
			"qdisc add dev eth0 root handle 1: tbf rate 100000bit burst 3028 limit 16777216",
			"qdisc add dev eth0 parent 1:1 netem delay 5000000us limit 100000"}},
	} {
		var got []string
		for _, args := range test.s.queues("eth0") {
			got = append(got, strings.Join(args, " "))
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", test.s, diff)
		}
	}
}
