package events

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/page/pagetest"
)

func ofEvents() *Summary {
	f := func(f float64) *float64 { return &f }
	from := time.Date(2026, 1, 2, 10, 0, 0, 123456789, time.UTC)
	stages := func(p50 float64, names ...string) (all []Stage) {
		for _, name := range append([]string{Total}, names...) {
			all = append(all, Stage{Stage: name, Timed: 125_000, P50: p50, P95: 2 * p50, P99: 1234.5 * p50})
			p50 /= 2
		}
		return all
	}
	return &Summary{
		Files: 2, From: from, To: from.Add(10 * time.Minute), Seconds: 600, Events: 6_000_001, Dropped: 12, Selected: 6_000_001, Timed: 187_500,
		Rows: []*Row{
			{Group: "shop:session", Op: "get_many", Count: 1, PerSecond: 1. / 600, Keys: 10, Hits: 10, HitRate: f(1), Plain: 100, Stored: 120, Ratio: f(100. / 120)},
			{Group: "shop:user:profile", Op: "get", Count: 4_000_000, PerSecond: 6666.7, Keys: 4_000_000, Hits: 3_500_000, Misses: 499_000, HitRate: f(3.5 / 3.999), Failed: 1000,
				Errors: map[string]uint64{"unknown_dictionary": 1, "timeout": 999}, Plain: 14_000_000_000, Stored: 4_000_000_000, Ratio: f(3.5), Algorithm: "zstd", Dictionary: "0a1b2c3d",
				Stages: stages(123.4, "store", "unpack", "decode")},
			{Group: "shop:user:profile", Op: "set", Count: 1_500_000, PerSecond: 2500, Plain: 5_250_000_000, Stored: 1_750_000_000, Ratio: f(3), Algorithm: "s2", Stages: stages(98.7, "encode", "pack", "store")},
			{Group: "shop:user:profile", Op: "delete", Count: 500_000, PerSecond: 833.3},
		},
	}
}

func TestEvents(t *testing.T) {
	for golden, change := range map[string]func(*Summary){
		"testdata/events.txt": func(*Summary) {},
		"testdata/events-series.txt": func(s *Summary) {
			s.Every = 0.25
			s.Group = "shop:*"
			for i := range 3 {
				p99, rate := 1000.5*float64(i+1), 0.5
				s.Series = append(s.Series, Interval{Start: s.From.Truncate(time.Second).Add(time.Duration(i) * 250 * time.Millisecond), PerSecond: 12345.6, HitRate: &rate, Ratio: &p99, P99: &p99,
					Timed: 10, Failed: uint64(i), Dropped: uint64(2 - i)})
			}
			s.Series[1].HitRate, s.Series[1].Ratio, s.Series[1].P99 = nil, nil, nil
		},
		"testdata/events-long-names.txt": func(s *Summary) {
			for i, r := range s.Rows {
				r.Group = fmt.Sprint("группа ", i, strings.Repeat(" of users", 9))
			}
			s.Rows[0].Group = "a\x1b[2Jb"
		},
		"testdata/events-none.txt": func(s *Summary) {
			s.Rows, s.Selected, s.Timed, s.Group, s.Groups, s.Files, s.Events, s.Dropped = nil, 0, 0, "users", []string{"shop:session", "shop:user:profile"}, 1, 1, 0
		},
		"testdata/events-untimed.txt": func(s *Summary) {
			s.Timed, s.Rows = 0, s.Rows[:1]
		},
	} {
		s := ofEvents()
		change(s)
		var w bytes.Buffer
		s.WriteText(page.NewSheet(&w, 0))
		pagetest.Golden(t, golden, page.Width, w.String())
	}
}
