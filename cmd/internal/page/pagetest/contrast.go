package pagetest

import (
	"math"
	"regexp"
	"strconv"
	"testing"
)

// Colour is red, green and blue, 0 to 1.
type Colour = [3]float64

// Themes are the colours of a style by name: the light ones, and the dark ones.
func Themes(t *testing.T, style string) (themes []map[string]Colour) {
	t.Helper()
	for _, theme := range regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(style, -1) {
		colours := map[string]Colour{}
		for _, m := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{6});`).FindAllStringSubmatch(theme[1], -1) {
			n, err := strconv.ParseUint(m[2], 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			colours[m[1]] = Colour{float64(n>>16) / 255, float64(n>>8&255) / 255, float64(n&255) / 255}
		}
		themes = append(themes, colours)
	}
	if len(themes) != 2 {
		t.Fatalf("%d themes, want light and dark", len(themes))
	}
	return themes
}

// Contrast is that of WCAG 2.2 between two colours of a theme.
func Contrast(t *testing.T, theme map[string]Colour, front, ground string) float64 {
	t.Helper()
	f, ok := theme[front]
	g, also := theme[ground]
	if !ok || !also {
		t.Fatalf("no %s or %s", front, ground)
	}
	x, y := luminance(f), luminance(g)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

// luminance is the relative luminance of WCAG 2.2.
func luminance(c Colour) float64 {
	for i, v := range c {
		if v <= 0.04045 {
			c[i] = v / 12.92
		} else {
			c[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2]
}
