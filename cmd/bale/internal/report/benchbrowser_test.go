package report

import (
	"testing"

	"github.com/balekv/bale/cmd/bale/internal/outcome"
)

// TestBenchHTMLInBrowser does all with one browser: each takes a second to start.
func TestBenchHTMLInBrowser(t *testing.T) {
	ctx := browser(t)
	baseline := mixed()
	baseline.faster, baseline.sweep = true, false
	open := mixed()
	open.rate, open.sweep, open.compress, open.profiles = 4000, false, open.compress[5:], nil
	codecs := whole()
	codecs.typed, codecs.codecs, codecs.compress, codecs.clients = codecs.typed[:1], []string{"json", "jsonv2", "goccy", "sonic", "jsoniter", "easyjson", "gob", "msgpack", "shamaton", "msgp", "cbor", "protobuf"}, []string{"none"}, []string{"goredis", "rueidis", "redigo"}
	for _, c := range []struct {
		name          string
		run, baseline *outcome.Run
		views         []view
		pictures      int // that are shown at first
	}{
		{"bench-mixed", outcomeOf(mixed()), nil, views[:3], 0},
		{"bench-baseline", outcomeOf(mixed()), outcomeOf(baseline), views[1:3], 0},
		{"bench-whole", outcomeOf(whole()), nil, views[2:3], 0},
		{"bench-open", outcomeOf(open), nil, views[:1], 0},
		{"bench-codecs", outcomeOf(codecs), nil, views[2:3], 0},
		{"bench-broken", broken(), nil, views[:1], 0},
		{"bench-none", &outcome.Run{}, nil, views[2:3], 0},
	} {
		for _, v := range c.views {
			t.Run(c.name+"-"+v.name, func(t *testing.T) {
				address := fileOf(t, benchHTML(t, c.run, c.baseline, BenchOptions{Choices: benchChoices}))
				tab, s := openAddress(t, ctx, address, v)
				screenshot(t, tab, c.name+"-"+v.name)
				evaluate[bool](t, tab, `(() => { const s = document.getElementById("picked"); if (s) { s.value = "all"; s.dispatchEvent(new Event("change", { bubbles: true })); } return true; })()`)
				found := evaluate[found](t, tab, faults)
				screenshot(t, tab, c.name+"-"+v.name+"-open")
				for _, f := range found.Faults {
					t.Error(f)
				}
				s.quiet(t, address)
			})
		}
	}
}
