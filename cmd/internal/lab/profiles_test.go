package lab

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/pprof/profile"

	"github.com/balekv/bale/cmd/internal/flame"
	"github.com/balekv/bale/cmd/internal/outcome"
)

// TestProfiles: a profile of each kind for each cell, in files that pprof reads, and what the time
// went to.
func TestProfiles(t *testing.T) {
	rate := runtime.MemProfileRate
	runtime.MemProfileRate = 1 << 10 // and not 512 KiB: on a busy machine there are few operations
	defer func() { runtime.MemProfileRate = rate }()
	server := realServer(t)
	c := config(t, "none", "zstd:3")
	c.Clients = []ClientSetting{{Name: "goredis", Connections: 1}} // for callers to block one another
	c.Concurrency, c.Duration = []int{8}, 400*time.Millisecond
	c.Profiles, c.ProfileDir = ProfileKinds, filepath.Join(t.TempDir(), "not", "yet", "there")
	r, err := Measure(t.Context(), []*Server{server}, c)
	if err != nil {
		t.Fatal(err)
	}
	if n := runtime.SetMutexProfileFraction(-1); n != 0 {
		t.Errorf("waits for locks are sampled still, one of %d", n)
	}
	values := map[string]string{"cpu": "cpu", "heap": "alloc_space", "mutex": "delay", "block": "delay"} // that the last sample type must have, by kind
	var files []string
	for _, cell := range r.Cells {
		if !cell.Verified {
			t.Errorf("%s: %s", cell.Compress, cell.Error)
		}
		for _, kind := range ProfileKinds {
			found, there := cell.Profiles[kind]
			if !there || found.Tree == nil {
				t.Errorf("%s: no %s profile", cell.Compress, kind)
				continue
			}
			files = append(files, found.File)
			text, err := os.ReadFile(found.File)
			if err != nil {
				t.Error(err)
				continue
			}
			p, err := profile.ParseData(text)
			if err != nil {
				t.Errorf("%s: %v", found.File, err)
				continue
			}
			if !slices.ContainsFunc(p.SampleType, func(v *profile.ValueType) bool { return v.Type == values[kind] }) {
				t.Errorf("%s: it is of %v", found.File, p.SampleType)
			}
			samples, sum := int64(0), 0.0
			for _, s := range p.Sample {
				samples += s.Value[0]
			}
			for name, share := range found.Shares {
				if share < 0 || share > 1 {
					t.Errorf("%s %s: %s has %v", cell.Compress, kind, name, share)
				}
				sum += share
			}
			if samples != found.Samples || len(found.Shares) != len(flame.Categories()) || samples > 0 && math.Abs(sum-1) > 1e-9 {
				t.Errorf("%s %s: %d samples, the file has %d; shares %v are %v together", cell.Compress, kind, found.Samples, samples, found.Shares, sum)
			}
			if samples == 0 && kind != "mutex" { // a lock may be free whenever it is wanted
				t.Errorf("%s: %s profile without a sample", cell.Compress, kind)
			}
		}
	}
	if plain, packed := r.Cells[0].Profiles["heap"], r.Cells[1].Profiles["heap"]; plain.Shares["serialize"] <= 0 || packed.Shares["serialize"] <= 0 {
		t.Errorf("no allocation is JSON's: %v, %v", plain.Shares, packed.Shares)
	}
	left, err := filepath.Glob(filepath.Join(c.ProfileDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	if diff := cmp.Diff(files, left); diff != "" { // each cell and kind its own, and nothing beside
		t.Errorf("files (-said +there):\n%s", diff)
	}
	for _, f := range files {
		if name := filepath.Base(f); !strings.HasSuffix(name, ".pprof") || !strings.HasPrefix(name, "profiles-typed-json-") {
			t.Errorf("%s", name)
		}
	}
}

// TestProfilesWithoutFiles: only the requested kinds are made, without a file. A folder that cannot
// be made is an error, because the profiles were requested.
func TestProfilesWithoutFiles(t *testing.T) {
	server := realServer(t)
	t.Chdir(t.TempDir())
	c := config(t, "none")
	c.Concurrency, c.Profiles = []int{2}, []string{"heap"}
	r, err := Measure(t.Context(), []*Server{server}, c)
	if err != nil {
		t.Fatal(err)
	}
	if p := r.Cells[0].Profiles; len(p) != 1 || p["heap"].File != "" || p["heap"].Tree == nil {
		t.Errorf("%+v", p)
	}
	if left, err := filepath.Glob("*"); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	if err := os.WriteFile("file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.ProfileDir = filepath.Join("file", "profiles")
	if _, err := Measure(t.Context(), []*Server{server}, c); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("%v", err)
	}
}

func TestProfileFileNames(t *testing.T) {
	for want, i := range map[string]outcome.Identity{
		"profiles-typed-json-zstd_3+dict-goredis-8callers.cpu.pprof": {Dataset: "profiles", Track: "typed", Codec: "json", Compress: "zstd:3+dict", Client: "goredis", Concurrency: 8},
		"a_b-dynamic-raw-none-radix@twemproxy-link=1gbit_1ms-mset_10-1callers-2500ops.cpu.pprof": {Dataset: "a/b", Track: "dynamic", Codec: "raw", Compress: "none",
			Client: "radix@twemproxy", Server: "link=1gbit,1ms", Batch: "mset:10", Concurrency: 1, Rate: 2500},
	} {
		if got := fileName(i, "cpu"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
