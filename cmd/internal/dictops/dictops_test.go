package dictops

import (
	"io"
	"strings"
	"testing"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/dict"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestReplacedServer: a data server that was emptied has another id, and the error says how to go
// on.
func TestReplacedServer(t *testing.T) {
	ctx := t.Context()
	_, at := clitest.Server(t)
	client, values := clitest.Server(t)
	r, err := registry.Open(ctx, registry.Options{Streams: &cli.Streams{Err: io.Discard}, URL: at, Data: []string{values}, Prefix: dict.DefaultPrefix})
	clitest.OK(t, err)
	defer r.Close()
	clitest.OK(t, r.Join(ctx), allScanned(ctx, r), client.FlushAll(ctx).Err())
	joined, err := r.Registry.Servers(ctx)
	if err != nil || len(joined) != 1 {
		t.Fatalf("%v, %v", joined, err)
	}
	err = allScanned(ctx, r)
	if want := "so it was emptied or replaced. If its old values are gone for good: bale dict servers --forget " + joined[0].ID; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
