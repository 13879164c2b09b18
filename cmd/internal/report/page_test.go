package report

import (
	"regexp"
	"testing"
)

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1 << 20: "1.0 MiB", 5 << 29: "2.5 GiB", 1<<64 - 1: "16.0 EiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func TestFormats(t *testing.T) {
	for got, want := range map[string]string{
		share(0): "0%", share(0.0001): "<0.1%", share(0.0312): "3.1%", share(0.0996): "10%", share(-0.38): "−38%",
		money(41.2): "$41.20", money(-1234.4): "−$1,234", amount(-2048): "−2.0 KiB", microseconds(0.04): "0.04", microseconds(1.23): "1.2", microseconds(1234.4): "1,234", microseconds(99.6): "100",
		unbroken("3.7 GiB, 12 B in 1 s, 3 seconds"): "3.7\u00a0GiB, 12\u00a0B in 1\u00a0s, 3 seconds", thousands(-1234567): "-1,234,567", thousands(-123): "-123", thousands(1000): "1,000", span(4): "4.0 s", span(90_000): "25.0 h", span(200_000): "2.3 days", span(600): "10 min", span(61): "61 s",
		keyName("a\\b", 9): "a\\b", keyName("", 9): `""`, keyName("a\nb\x1b", 20): `a\nb\x1b`, keyName("abcdefgh", 5): "abcd…",
		tickBytes(2 << 30): "2 GiB", capital(""): "", capital("élan"): "Élan",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestContrast: text has 4.5:1 against its ground, and what is drawn 3:1 (WCAG 2.2, 1.4.3
// and 1.4.11, level AA).
func TestContrast(t *testing.T) {
	themes := themesOf(t, pageStyle)
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
			if got := contrast(t, colours, c.front, c.ground); got < c.least {
				t.Errorf("%s: %s on %s has a contrast of %.2f, less than %.1f", name, c.front, c.ground, got, c.least)
			}
		}
		for colour := range colours {
			if !checked[colour] {
				t.Errorf("%s: %s is compared with nothing", name, colour)
			}
		}
	}
	if loose := regexp.MustCompile(`(?:color|fill|stroke|background|border[a-z-]*):[^;}]*#[0-9a-f]+`).FindString(pageStyle); loose != "" {
		t.Errorf("a colour beside the themes: %s", loose)
	}
}
