package dictops

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/cli/clitest"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/page/pagetest"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

func training(t *testing.T) *Training {
	t.Helper()
	d, err := frame.NewDictionary(bytes.Repeat([]byte("what values have in common "), 600))
	if err != nil {
		t.Fatal(err)
	}
	measure := func(stored, allocated int64) dict.Measure {
		return dict.Measure{Values: 1256, RawBytes: 1_053_000, PayloadBytes: stored - 12*1256, StoredBytes: stored, AllocatedBytes: allocated}
	}
	candidates := []dict.Candidate{
		{Builder: "libzstd default", Asked: 8 << 10, Size: 8 << 10, ID: 1, HeldOut: measure(400_000, 480_000)},
		{Builder: "libzstd default", Asked: 16 << 10, Size: 16 << 10, ID: 2, HeldOut: measure(390_000, 470_000)},
		{Builder: "libzstd fastcover", Params: "k=64 d=8", Asked: 16 << 10, Size: 16200, ID: d.ID(), HeldOut: measure(360_000, 420_000)},
		{Builder: "libzstd fastcover", Params: "k=32 d=8", Asked: 16 << 10, Size: 16200, ID: 3, HeldOut: measure(380_000, 440_000)},
		{Builder: "klauspost", Asked: 16 << 10, Error: "klauspost panicked: index out of range [3] with length 3, which is a long story"},
	}
	without, with := measure(660_000, 751_000), measure(360_000, 420_000)
	without.CompressNs, without.DecompressNs, with.CompressNs, with.DecompressNs = 5900, 1800, 3000, 912
	return &Training{
		Training: &dict.Training{
			Dictionary: d, Winner: candidates[2], Setting: compress.Setting{Algorithm: frame.Zstd}, Samples: 1256, SampleBytes: 1_052_000, HeldOut: 1256, Values: 1_000_000, Excluded: 3, Elsewhere: 12, Refitted: 2509,
			Without: without, With: with, Candidates: candidates,
		},
		Given: 2515, LeftOut: []LeftOut{{"email", 2512}, {"user.token", 17}},
		Source: "movies (a sample of 2512 of its 9000 values)", Compress: "zstd:3", Seconds: 7.13, File: "movies.dict", report: "movies.json", Go: "go1.26.8", CPU: "Some CPU", Cores: 2,
	}
}

// TestForgedTraining: the file of a training takes no more memory than its bytes tell.
func TestForgedTraining(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.json")
	document := `{"winner":{"id":"00000001"},"samples":7,"compress":"s2","ratio":2,"candidates":[` + strings.Repeat("{},", 1<<20) + `{}],"left_out":[]}`
	if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	info, err := trainingInfo(path, 1)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; err != nil || info != (dict.Info{Setting: "s2", Samples: 7, Ratio: 2}) || n > 64<<20 {
		t.Errorf("%+v, %d bytes, %v", info, n, err)
	}
}

func TestTraining(t *testing.T) {
	for golden, write := range map[string]func(*Training, *bytes.Buffer){
		"testdata/training.txt":     func(r *Training, w *bytes.Buffer) { r.WriteText(page.NewSheet(w, 0)) },
		"testdata/training-all.txt": func(r *Training, w *bytes.Buffer) { r.all = true; r.WriteText(page.NewSheet(w, 0)) },
		"testdata/no-dictionary.txt": func(r *Training, w *bytes.Buffer) {
			r.Dictionary, r.With = nil, dict.Measure{}
			r.Reason = "no dictionary pays: the best of 5 takes as much as none"
			r.WriteText(page.NewSheet(w, 0))
		},
		"testdata/too-few.txt": func(r *Training, w *bytes.Buffer) {
			r.LeftOut = nil
			r.Training = &dict.Training{Samples: 5, SampleBytes: 1000, HeldOut: 5}
			r.Reason = "no dictionary: too few samples: 10 values"
			r.WriteText(page.NewSheet(w, 0))
		},
		"testdata/training.json": func(r *Training, w *bytes.Buffer) {
			if err := printable.WriteJSON(w, r); err != nil {
				t.Fatal(err)
			}
		},
	} {
		var w bytes.Buffer
		write(training(t), &w)
		pagetest.Golden(t, golden, page.Width, w.String())
	}
}

// TestFieldsLeftOut: whole fields of hashes that stay out of a dictionary are in no figure of it,
// and the report says so.
func TestFieldsLeftOut(t *testing.T) {
	ctx := t.Context()
	client, at := clitest.Server(t)
	_, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range 400 {
			p.HSet(ctx, fmt.Sprint("conn:", i), "secret", rand.Text()+rand.Text()+rand.Text(),
				"options", fmt.Sprintf(`{"timeout":%d,"keepalive":%d,"compression":"on","charset":"utf8","retries":%d,"region":"europe","application":"shop","certificate":"none","preferences":["read","secondary"]}`, i, 7*i, 31*i))
		}
		return nil
	})
	clitest.OK(t, err)
	for exclude, said := range map[string]bool{"secret": true, "": false} {
		o := TrainOptions{Registry: registry.Options{Streams: &cli.Streams{Err: io.Discard}, Data: []string{at}, Prefix: dict.DefaultPrefix},
			Match: []string{"conn:*"}, Sample: 1000, MaxSize: 2048, Out: filepath.Join(t.TempDir(), "d"),
			Setting: engine.Setting{Setting: compress.Setting{Algorithm: frame.Zstd}}}
		if said {
			o.Exclude = []string{exclude}
		}
		trained, err := Train(ctx, o)
		clitest.OK(t, err)
		var text strings.Builder
		trained.WriteText(page.NewSheet(&text, 0))
		if strings.Contains(text.String(), "400 fields of hashes are left out whole") != said || strings.Contains(text.String(), "if nothing was left out") {
			t.Errorf("%q: %s", exclude, &text)
		}
	}
}
