//go:build cgo

package czstd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/holdout"
	"github.com/balekv/bale/internal/zstd"
	"github.com/balekv/bale/redismem"
)

// corpora are the values that dictionaries are tried on: profiles, and what BALE_CORPORA has.
func corpora(t *testing.T) map[string][][]byte {
	all := map[string][][]byte{}
	for i := range 2000 {
		all["profiles"] = append(all["profiles"], profile(i))
	}
	if dir := os.Getenv("BALE_CORPORA"); dir != "" {
		files, err := filepath.Glob(filepath.Join(dir, "*.ndjson"))
		if err != nil || len(files) == 0 {
			t.Fatalf("BALE_CORPORA: no files in %s, %v", dir, err)
		}
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			all[filepath.Base(f)] = bytes.Split(bytes.TrimSpace(b), []byte("\n"))
		}
	}
	return all
}

// TestTrainBeatsDefaults: what Train chooses is at least as good on held-out values as libzstd's
// default trainer is at the best of the usual sizes, by both counts.
func TestTrainBeatsDefaults(t *testing.T) {
	for name, values := range corpora(t) {
		t.Run(name, func(t *testing.T) {
			got, err := dict.Train(context.Background(), values, dict.TrainOptions{Engine: Engine, Builders: Builders()})
			if err != nil {
				t.Fatal(err)
			}
			var train, heldOut [][]byte
			for i, v := range values {
				if holdout.Training(i) {
					train = append(train, v)
				} else {
					heldOut = append(heldOut, v)
				}
			}
			for _, size := range []int{4, 8, 16, 32, 64, 112} {
				b, err := builder(defaultTrainer)(t.Context(), train, size<<10)
				if err != nil {
					t.Logf("%d KiB: %v", size, err)
					continue
				}
				d, err := frame.NewDictionary(b)
				if err != nil {
					t.Fatal(err)
				}
				c := native(t, 3, d)
				header := frame.Header{Algorithm: frame.Zstd, DictionaryID: d.ID(), HasChecksum: true}
				stored, allocated := 0, 0
				for _, v := range heldOut {
					p, err := c.Compress(nil, v)
					if err != nil {
						t.Fatal(err)
					}
					header.Length = uint64(len(v))
					stored += header.PayloadOffset() + len(p)
					allocated += redismem.Server{}.String(header.PayloadOffset() + len(p))
				}
				t.Logf("libzstd's default at %3d KiB: ratio %.2f, %.0f bytes a value in Redis", size, float64(got.With.RawBytes)/float64(stored), float64(allocated)/float64(len(heldOut)))
				if got.With.AllocatedBytes > int64(allocated) || got.With.StoredBytes > int64(stored) {
					t.Errorf("%d KiB by default are better: %d bytes stored, %d allocated, against %d and %d", size, stored, allocated, got.With.StoredBytes, got.With.AllocatedBytes)
				}
			}
			t.Logf("chosen of %d: %s %s, %d bytes: ratio %.2f, %.0f bytes a value in Redis; without %.2f, %.0f", len(got.Candidates), got.Winner.Builder, got.Winner.Params, got.Winner.Size,
				got.With.Ratio(), got.With.AllocatedPerValue(), got.Without.Ratio(), got.Without.AllocatedPerValue())
			best := map[string]string{}
			bytes := map[string]int64{}
			for _, c := range got.Candidates {
				if b, ok := bytes[c.Builder]; c.Error == "" && (!ok || c.HeldOut.AllocatedBytes < b) {
					bytes[c.Builder] = c.HeldOut.AllocatedBytes
					best[c.Builder] = fmt.Sprintf("%s, %d bytes: ratio %.2f", c.Params, c.Size, c.HeldOut.Ratio())
				}
			}
			for name, b := range best {
				t.Logf("best of %s: %s", name, b)
			}
		})
	}
}

// TestTrainersInGo: at every size the best builder in pure Go takes no more bytes than the best one
// of libzstd, with the same encoder on held-out values.
func TestTrainersInGo(t *testing.T) {
	for name, values := range corpora(t) {
		t.Run(name, func(t *testing.T) {
			var train, heldOut [][]byte
			for i, v := range values {
				if holdout.Training(i) {
					train = append(train, v)
				} else {
					heldOut = append(heldOut, v)
				}
			}
			best := func(builders []dict.Builder, size int) (least int, name string) {
				for _, b := range builders {
					content, err := b.Build(t.Context(), train, size)
					if err != nil {
						continue
					}
					d, err := zstd.NewDictionary(content)
					if err != nil {
						t.Fatalf("%v: %v", &b, err)
					}
					e := zstd.NewEncoder(zstd.NewDigest(d, zstd.Default))
					n := 0
					var packed []byte
					for _, v := range heldOut {
						if packed, err = e.Encode(packed[:0], v); err != nil {
							t.Fatal(err)
						}
						n += len(packed)
					}
					if least == 0 || n < least {
						least, name = n, b.String()
					}
				}
				return least, name
			}
			for _, size := range []int{4, 16, 64, 112} {
				theirs, them := best(Builders(), size<<10)
				ours, us := best(dict.Builders(compress.Setting{}), size<<10)
				t.Logf("%3d KiB: %d bytes by %s, %d by %s, ratio %.4f", size, ours, us, theirs, them, float64(ours)/float64(theirs))
				if ours == 0 || ours > theirs {
					t.Errorf("%d KiB: libzstd's %s is better: %d bytes, %d by %s", size, them, theirs, ours, us)
				}
			}
		})
	}
}

// TestTrainerIsDeterministic: the same samples, the same dictionary, from each builder.
func TestTrainerIsDeterministic(t *testing.T) {
	var samples [][]byte
	for i := range 400 {
		samples = append(samples, profile(i))
	}
	for _, b := range Builders() {
		first, err := b.Build(t.Context(), samples, 8<<10)
		if err != nil {
			continue
		}
		again, err := b.Build(t.Context(), slices.Clone(samples), 8<<10)
		if err != nil || !bytes.Equal(first, again) {
			t.Errorf("%v makes another dictionary, %v", &b, err)
		}
	}
}

// TestTrainersAtOnce: builders do not disturb each other.
func TestTrainersAtOnce(t *testing.T) {
	sets := make([][][]byte, 4)
	for i := range 400 {
		sets[i%4] = append(sets[i%4], profile(i))
	}
	for _, b := range Builders() {
		if b.Params != "k=512 d=8" {
			continue // one of fastcover, one of cover
		}
		alone := make([][]byte, len(sets))
		for i, samples := range sets {
			var err error
			if alone[i], err = b.Build(t.Context(), samples, 8<<10); err != nil {
				t.Fatalf("%v: %v", &b, err)
			}
		}
		var wg sync.WaitGroup
		for i, samples := range sets {
			wg.Go(func() {
				if got, err := b.Build(t.Context(), samples, 8<<10); err != nil || !bytes.Equal(got, alone[i]) {
					t.Errorf("%v makes another dictionary beside others, %v", &b, err)
				}
			})
		}
		wg.Wait()
	}
}

func TestTrainerErrors(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, b := range Builders() {
		if d, err := b.Build(ended, [][]byte{profile(1), profile(2)}, 4<<10); d != nil || !errors.Is(err, context.Canceled) {
			t.Errorf("%v after the end of its context: %d bytes, %v", &b, len(d), err)
		}
	}
	for _, b := range Builders() {
		for _, samples := range [][][]byte{nil, {nil, nil}, {[]byte("a")}, slices.Repeat([][]byte{[]byte("the same")}, 50)} {
			if d, err := b.Build(t.Context(), samples, 4<<10); err == nil && len(d) == 0 {
				t.Errorf("%v makes an empty dictionary of %d samples", &b, len(samples))
			}
		}
	}
	_, err := dict.Train(context.Background(), nil, dict.TrainOptions{Setting: compress.Setting{Algorithm: frame.Gzip}})
	if err == nil {
		t.Error("gzip takes no dictionary")
	}
}
