package page_test

import (
	"regexp"
	"testing"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/page/pagetest"
)

func TestFormats(t *testing.T) {
	for got, want := range map[string]string{
		page.Share(0): "0%", page.Share(0.0001): "<0.1%", page.Share(0.0312): "3.1%", page.Share(0.0996): "10%", page.Share(-0.38): "−38%",
		page.Money(41.2): "$41.20", page.Money(-1234.4): "−$1,234", page.Amount(-2048): "−2.0 KiB", page.Microseconds(0.04): "0.04", page.Microseconds(1.23): "1.2", page.Microseconds(1234.4): "1,234", page.Microseconds(99.6): "100",
		page.Unbroken("3.7 GiB, 12 B in 1 s, 3 seconds"): "3.7\u00a0GiB, 12\u00a0B in 1\u00a0s, 3 seconds", page.Thousands(-1234567): "-1,234,567", page.Thousands(-123): "-123", page.Thousands(1000): "1,000", page.Span(4): "4.0 s", page.Span(90_000): "25.0 h", page.Span(200_000): "2.3 days", page.Span(600): "10 min", page.Span(61): "61 s",
		page.Name("a\\b", 9): "a\\b", page.Name("", 9): `""`, page.Name("a\nb\x1b", 20): `a\nb\x1b`, page.Name("abcdefgh", 5): "abcd…",
		page.TickBytes(2 << 30): "2 GiB", page.Capital(""): "", page.Capital("élan"): "Élan",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestContrast: text has 4.5:1 against its ground, and what is drawn 3:1 (WCAG 2.2, 1.4.3
// and 1.4.11, level AA).
func TestContrast(t *testing.T) {
	themes := pagetest.Themes(t, page.Style)
	for i, name := range []string{"light", "dark"} {
		colours := themes[i]
		checked := map[string]bool{"rule": true} // which only decorates
		for _, c := range []struct {
			front, ground string
			least         float64
		}{
			{"ink", "paper", 4.5}, {"muted", "paper", 4.5}, {"link", "paper", 4.5}, {"ink", "sheet", 4.5}, {"warn", "warn-ground", 4.5}, {"ink", "chosen-ground", 4.5},
			{"stays", "paper", 3}, {"saved", "paper", 3}, {"saved", "saved-ground", 3}, {"edge", "paper", 3}, {"stays", "saved-ground", 3}, {"ink", "saved-ground", 3}, {"link", "warn-ground", 3},
		} {
			checked[c.front], checked[c.ground] = true, true
			if got := pagetest.Contrast(t, colours, c.front, c.ground); got < c.least {
				t.Errorf("%s: %s on %s has a contrast of %.2f, less than %.1f", name, c.front, c.ground, got, c.least)
			}
		}
		for colour := range colours {
			if !checked[colour] {
				t.Errorf("%s: %s is compared with nothing", name, colour)
			}
		}
	}
	if loose := regexp.MustCompile(`(?:color|fill|stroke|background|border[a-z-]*):[^;}]*#[0-9a-f]+`).FindString(page.Style); loose != "" {
		t.Errorf("a colour beside the themes: %s", loose)
	}
}
