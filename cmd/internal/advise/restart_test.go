package advise

import (
	"strings"
	"testing"

	"github.com/balekv/bale/internal/redisproc"
)

// TestRestartMeanwhile: the answer says that the scan went on in another process.
func TestRestartMeanwhile(t *testing.T) {
	t.Parallel()
	server := redisproc.ForTest(t)
	client := opened(t, server.URL())
	fill(t, client, 200)
	for _, restart := range []bool{false, true} {
		o, warned := options(), restart
		o.Progress = func(int, int, string) {
			if restart {
				restart = false
				if err := client.Save(t.Context()).Err(); err != nil {
					t.Error(err)
				}
				if err := server.Restart(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
		a, err := Redis(t.Context(), client, o)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(strings.Join(a.Warnings, "\n"), "it was restarted during the scan"); got != warned {
			t.Errorf("%q", a.Warnings)
		}
	}
}
