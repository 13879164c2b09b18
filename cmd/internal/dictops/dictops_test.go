package dictops

import (
	"encoding/json"
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

// TestLongName: of a name that no group can have, the JSON has the start.
func TestLongName(t *testing.T) {
	ctx := t.Context()
	client, at := clitest.Server(t)
	clitest.OK(t, client.Set(ctx, dict.DefaultPrefix+"groups", "no list", 0).Err(),
		client.Set(ctx, dict.DefaultPrefix+"group:"+strings.Repeat("g", 1<<20), "{}", 0).Err())
	list, err := Run(ctx, registry.Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{at}, Prefix: dict.DefaultPrefix}, Options{}, List)
	if err == nil || list == nil {
		t.Fatalf("%v, %v", list, err)
	}
	text, err := json.Marshal(list)
	if err != nil || len(text) > 4<<10 || !strings.Contains(string(text), "ggg... (1 MB)") {
		t.Errorf("%d bytes of JSON, %v", len(text), err)
	}
}
