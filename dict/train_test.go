package dict

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/fieldpath"
	"github.com/balekv/bale/internal/holdout"
	"github.com/balekv/bale/internal/testvalues"
	"github.com/balekv/bale/redismem"
)

func profiles(n int) [][]byte { return many(n, testvalues.Profile) }

func logs(n int) [][]byte {
	return many(n, func(i int) []byte { return testvalues.LogBatch(i, 3)[:900] })
}

func many(n int, value func(i int) []byte) [][]byte {
	values := make([][]byte, n)
	for i := range values {
		values[i] = value(i)
	}
	return values
}

func randomValues(n, size int) [][]byte {
	r := rand.NewChaCha8([32]byte{3})
	values := make([][]byte, n)
	for i := range values {
		values[i] = make([]byte, size)
		r.Read(values[i])
	}
	return values
}

// quick trains with a few builders, so that a test takes no longer than need be.
func quick(o TrainOptions) TrainOptions {
	if o.Builders == nil {
		for _, b := range Builders(compress.Setting{}) {
			if strings.Contains(b.Params, "k=256") || strings.Contains(b.Params, "k=2048") {
				o.Builders = append(o.Builders, b)
			}
		}
	}
	if o.MaxSize == 0 {
		o.MaxSize = 16 << 10
	}
	return o
}

// TestFootprint: a dictionary is charged as the level's tables need. TestMemoryOfDictionaries in
// package compress measures them.
func TestFootprint(t *testing.T) {
	for name, copies := range map[string]int64{"zstd": 4, "zstd:fastest": 4, "zstd:5": 4, "zstd:6": 9, "zstd:19": 9, "zstd:better": 9, "zstd:best": 9, "s2:better": 4, "lz4": 4} {
		setting, err := compress.Parse(name)
		must(t, err)
		got := (&Training{Setting: setting}).footprint(1 << 20)
		if once := int64(redismem.Server{}.String(1 << 20)); got != copies*once {
			t.Errorf("%s: %d bytes, must be %d times %d", name, got, copies, once)
		}
	}
}

func TestTrain(t *testing.T) {
	values := profiles(600)
	for _, name := range []string{"zstd", "zstd:better", "s2", "lz4"} {
		t.Run(name, func(t *testing.T) {
			setting, err := compress.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			steps := 0
			o := quick(TrainOptions{Setting: setting, NoRefit: true, Progress: func(done, total int, what string) {
				if steps++; done != steps || done > total || what == "" {
					t.Errorf("progress %d of %d: %q", done, total, what)
				}
			}})
			got, err := Train(context.Background(), values, o)
			if err != nil {
				t.Fatal(err)
			}
			swapped := 0
			for _, c := range got.Candidates {
				if c.Swapped.Values > 0 {
					swapped++
				}
			}
			if got.Samples != 300 || got.HeldOut != 300 || swapped == 0 || steps != len(got.Candidates)+swapped {
				t.Errorf("%d samples, %d held out, %d steps for %d candidates, %d of them with the halves swapped", got.Samples, got.HeldOut, steps, len(got.Candidates), swapped)
			}
			if got.With.Ratio() < 1.7*got.Without.Ratio() {
				t.Errorf("ratio %.2f with, %.2f without", got.With.Ratio(), got.Without.Ratio())
			}
			if got.Winner.ID != got.Dictionary.ID() || got.Winner.Size != len(got.Dictionary.Bytes()) {
				t.Errorf("the winner is %+v, the dictionary %v of %d bytes", got.Winner, got.Dictionary.ID(), len(got.Dictionary.Bytes()))
			}
			if n := got.PaysFrom(); n < 10 || n > 1000 {
				t.Errorf("pays from %d values on", n)
			}
			if got.With.CompressNs <= 0 || got.With.DecompressNs <= 0 {
				t.Errorf("no costs: %+v", got.With)
			}
			// The figures, counted again.
			c, err := setting.New(got.Dictionary)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var raw, payload, allocated int64
			for i := range values {
				if holdout.Training(i) {
					continue
				}
				p, err := c.Compress(nil, values[i])
				if err != nil {
					t.Fatal(err)
				}
				h := frame.Header{Algorithm: setting.Algorithm, DictionaryID: got.Dictionary.ID(), HasChecksum: true, Length: uint64(len(values[i]))}
				raw, payload = raw+int64(len(values[i])), payload+int64(len(p))
				allocated += int64(redismem.Server{}.String(h.PayloadOffset() + len(p)))
			}
			if raw != got.With.RawBytes || payload != got.With.PayloadBytes || allocated != got.With.AllocatedBytes {
				t.Errorf("counted %d %d %d, reported %+v", raw, payload, allocated, got.With)
			}
			o.Workers, o.Progress = 1, nil
			again, err := Train(context.Background(), values, o)
			if err != nil || again.Dictionary.ID() != got.Dictionary.ID() {
				t.Errorf("again, with one worker: %v, %v; was %v", again.Dictionary.ID(), err, got.Dictionary.ID())
			}
		})
	}
}

// TestHalfOfShortValues: fields of hashes alternate, and those of one half may all be too short for
// a dictionary. The other half is still worth one.
func TestHalfOfShortValues(t *testing.T) {
	values := profiles(400)
	for i := range values {
		if holdout.Training(i) {
			values[i] = values[i][:4]
		}
	}
	for _, b := range Builders(compress.Setting{}) {
		if d, err := b.build(t.Context(), values, 4<<10); err != nil || len(d.Bytes()) < 1<<10 {
			t.Errorf("%v: %v", &b, err)
		}
	}
}

// TestTrainSizes: many values are worth a larger dictionary than few.
func TestTrainSizes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	paragraphs := randomValues(600, 512)
	values := make([][]byte, 500)
	for i := range values {
		for range 4 {
			values[i] = append(values[i], paragraphs[rng.IntN(1+rng.IntN(len(paragraphs)))]...)
		}
	}
	o := TrainOptions{MaxSize: 1 << 20, NoRefit: true, Builders: Builders(compress.Setting{})[2:3]}
	sizes := map[int64]int{}
	for _, n := range []int64{500, defaultValues} {
		o.Values = n
		got, err := Train(t.Context(), values, o)
		if err != nil {
			t.Fatal(err)
		}
		sizes[n] = got.Winner.Size
	}
	if sizes[500] > 128<<10 || sizes[defaultValues] < 200<<10 {
		t.Errorf("sizes by values: %v", sizes)
	}
	// Few values are not worth one that takes as much as it saves.
	o.Values = 20
	if got, err := Train(t.Context(), profiles(20), o); !errors.Is(err, ErrNoDictionary) || got.With.AllocatedBytes >= got.Without.AllocatedBytes {
		t.Errorf("%+v, %v", got.With, err)
	}
}

// BenchmarkDictionarySize compares a large dictionary with one of zstd's usual size, in turn: times
// of values with 1 MiB over those with 112 KiB. Half of the values train, the others are measured.
func BenchmarkDictionarySize(b *testing.B) {
	corpora, err := testvalues.Corpora()
	if err != nil {
		b.Fatal(err)
	}
	if corpora == nil {
		corpora = map[string][][]byte{}
	}
	corpora["profiles"] = profiles(10_000)
	for name, values := range corpora {
		var train, heldOut [][]byte
		for i, v := range values {
			if holdout.Training(i) {
				train = append(train, v)
			} else {
				heldOut = append(heldOut, v)
			}
		}
		b.Run(name, func(b *testing.B) {
			var compressors [2]compress.Compressor
			var payloads [2][][]byte
			var bytes [2]int
			for i, size := range []int{libzstdDefault, 1 << 20} {
				d, err := Builders(compress.Setting{})[2].build(b.Context(), train, size)
				if err != nil {
					b.Skip(err)
				}
				if compressors[i], err = (compress.Setting{Algorithm: frame.Zstd}).New(d); err != nil {
					b.Fatal(err)
				}
				defer compressors[i].Close()
				for _, v := range heldOut {
					p, err := compressors[i].Compress(nil, v)
					if back, err2 := compressors[i].Decompress(nil, p, len(v)); err != nil || err2 != nil || !slices.Equal(back, v) {
						b.Fatal(err, err2, "or another value")
					}
					payloads[i] = append(payloads[i], p)
					bytes[i] += len(p)
				}
			}
			var dst []byte
			var write, read [2]time.Duration
			for b.Loop() {
				for i, c := range compressors {
					start := time.Now()
					for _, v := range heldOut {
						dst, _ = c.Compress(dst[:0], v)
					}
					middle := time.Now()
					for j, p := range payloads[i] {
						dst, _ = c.Decompress(dst[:0], p, len(heldOut[j]))
					}
					write[i] += middle.Sub(start)
					read[i] += time.Since(middle)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(write[1])/float64(write[0]), "write")
			b.ReportMetric(float64(read[1])/float64(read[0]), "read")
			b.ReportMetric(float64(bytes[1])/float64(bytes[0]), "bytes")
		})
	}
}

// TestTrainOnCorpora: pure Go finds a dictionary that pays on real values, too.
func TestTrainOnCorpora(t *testing.T) {
	if testvalues.Race {
		t.Skip("takes minutes with the race detector; .ci/run has it without")
	}
	corpora, err := testvalues.Corpora()
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range corpora {
		got, err := Train(context.Background(), values, TrainOptions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		t.Logf("%s: %s %s, %d bytes: ratio %.2f (payload alone %.2f), without %.2f", name, got.Winner.Builder, got.Winner.Params, got.Winner.Size, got.With.Ratio(), got.With.PayloadRatio(), got.Without.Ratio())
	}
}

// TestTablesOfLevel: entropy tables that were counted at a level make later values smaller at it
// than those of the default level, over all builders.
func TestTablesOfLevel(t *testing.T) {
	train, later := profiles(400), many(200, func(i int) []byte { return testvalues.Profile(1000 + i) })
	for _, level := range []string{"better", "best"} {
		setting := compress.Setting{Algorithm: frame.Zstd, Level: level}
		sum := [2]int64{}
		for i, builders := range [2][]Builder{Builders(setting), Builders(compress.Setting{})} {
			for _, b := range builders {
				d, err := b.build(t.Context(), train, 8<<10)
				must(t, err)
				c, err := setting.New(d)
				must(t, err)
				m, err := measure(t.Context(), c, later)
				must(t, err)
				c.Close()
				sum[i] += m.PayloadBytes
			}
		}
		if float64(sum[0]) > 0.99*float64(sum[1]) {
			t.Errorf("%s: %d bytes, with the tables of the default level %d", level, sum[0], sum[1])
		}
		t.Logf("%s: %.3f", level, float64(sum[0])/float64(sum[1]))
	}
}

// TestCrossValidation: a dictionary that suits the held-out values by chance does not win.
func TestCrossValidation(t *testing.T) {
	rng := rand.NewChaCha8([32]byte{4})
	values := many(200, func(i int) []byte {
		secret := make([]byte, 200)
		rng.Read(secret)
		return fmt.Appendf(nil, `{"id":%d,"kind":"a kind of which there are many","state":"of every value","secret":"%x"}`, i, secret)
	})
	var lucky []byte
	for i, v := range values {
		if !holdout.Training(i) && len(lucky) < 32<<10 {
			lucky = append(lucky, v[len(v)-420:]...)
		}
	}
	o := quick(TrainOptions{MaxSize: 64 << 10, Values: 1_000_000_000, NoRefit: true, NoTimes: true})
	o.Builders = append(o.Builders, Builder{Name: "lucky", Build: func(context.Context, [][]byte, int) ([]byte, error) { return lucky, nil }})
	got, err := Train(t.Context(), values, o)
	must(t, err)
	var luck, other int64
	for _, c := range got.Candidates {
		switch {
		case c.Error != "":
		case c.Builder == "lucky":
			luck = c.HeldOut.AllocatedBytes
		case other == 0 || c.HeldOut.AllocatedBytes < other:
			other = c.HeldOut.AllocatedBytes
		}
	}
	if luck >= other || got.Winner.Builder == "lucky" {
		t.Errorf("%s won; on the held-out values the lucky one takes %d bytes, the best other %d", got.Winner.Builder, luck, other)
	}
}

// TestAlternatingSamples: two kinds in turn are both trained on, and both held out.
func TestAlternatingSamples(t *testing.T) {
	var values [][]byte
	for i, v := range profiles(200) {
		values = append(values, v, fmt.Appendf(nil, "GET /page/%d HTTP/1.1 200 OK in %d ms, from the cache of the shop", i, i%7))
	}
	got, err := Train(context.Background(), values, quick(TrainOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	if got.With.Ratio() < 1.7*got.Without.Ratio() {
		t.Errorf("ratio %.2f with, %.2f without", got.With.Ratio(), got.Without.Ratio())
	}
}

// TestTrainRefit: the dictionary is made of all samples, and serves later values better.
func TestTrainRefit(t *testing.T) {
	values := logs(80)
	once, err := Train(context.Background(), values, quick(TrainOptions{NoRefit: true, MaxSize: 64 << 10}))
	if err != nil || once.Refitted != 0 || once.Winner.ID != once.Dictionary.ID() {
		t.Fatalf("%+v, %v", once.Winner, err)
	}
	again, err := Train(context.Background(), values, quick(TrainOptions{MaxSize: 64 << 10}))
	if err != nil || again.Refitted != len(values) || again.Winner.ID != again.Dictionary.ID() || again.Dictionary.ID() == once.Dictionary.ID() {
		t.Fatalf("%+v of %d, was %+v; %v", again.Winner, again.Refitted, once.Winner, err)
	}
	if again.With.StoredBytes != once.With.StoredBytes || again.Winner.HeldOut != once.Winner.HeldOut {
		t.Errorf("the figures are not those of held-out values: %+v, want %+v", again.With, once.With)
	}
	size := func(d *Dictionary) int64 {
		c, err := once.Setting.New(d)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		m, err := measure(context.Background(), c, logs(300)[80:]) // values that neither has seen
		if err != nil {
			t.Fatal(err)
		}
		return m.StoredBytes
	}
	if a, b := size(again.Dictionary), size(once.Dictionary); a >= b {
		t.Errorf("of all samples it is no better: %d bytes, of half of them %d", a, b)
	}
}

func TestTrainRefuses(t *testing.T) {
	ctx := context.Background()
	for _, test := range []struct {
		name    string
		values  [][]byte
		options TrainOptions
		want    error
		says    string
	}{
		{"nothing", nil, TrainOptions{}, ErrTooFew, "0 values"},
		{"few", profiles(19), TrainOptions{}, ErrTooFew, "19 values"},
		{"empty ones", make([][]byte, 100), TrainOptions{}, ErrTooFew, "0 values"},
		{"random", randomValues(100, 300), TrainOptions{}, ErrNoDictionary, "0.0% less"},
		{"no gain", profiles(200), TrainOptions{MinGain: 0.99}, ErrNoDictionary, "% less, must be 99.0%"},
		{"text with excluded fields", bytes.Split(bytes.Repeat([]byte("not JSON\n"), 50), []byte("\n"))[:50], TrainOptions{Exclude: []string{"a"}}, ErrTooFew, "25 were left out"},
		{"gzip", profiles(100), TrainOptions{Setting: compress.Setting{Algorithm: frame.Gzip}}, ErrInvalid, "gzip takes no dictionary"},
		{"size", profiles(100), TrainOptions{MaxSize: 100}, ErrInvalid, "MaxSize is 100"},
		{"gain", profiles(100), TrainOptions{MinGain: 1}, ErrInvalid, "MinGain is 1"},
		{"workers", profiles(100), TrainOptions{Workers: -1}, ErrInvalid, "Workers is -1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := Train(ctx, test.values, quick(test.options))
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
				t.Fatalf("%v, want %v with %q", err, test.want, test.says)
			}
			if got != nil && got.Dictionary != nil {
				t.Error("a dictionary all the same")
			}
		})
	}
	cancelled, cancel := context.WithCancel(ctx)
	o := quick(TrainOptions{Progress: func(done, _ int, _ string) {
		if done == 2 {
			cancel()
		}
	}})
	if _, err := Train(cancelled, profiles(400), o); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	// The same value again and again has no need of a dictionary that is larger than the value;
	// whatever comes of it must not fail in another way.
	if _, err := Train(ctx, bytes.Split(bytes.Repeat(append(profiles(1)[0], '\n'), 100), []byte("\n"))[:100], quick(TrainOptions{})); err != nil && !errors.Is(err, ErrNoDictionary) {
		t.Errorf("uniform: %v", err)
	}
}

// TestTrainGuards: builders that panic, or make what nobody can use, do no harm.
func TestTrainGuards(t *testing.T) {
	good := quick(TrainOptions{}).Builders
	bad := []Builder{
		{Name: "panics", Build: func(context.Context, [][]byte, int) ([]byte, error) { panic("index out of range") }},
		{Name: "fails", Build: func(context.Context, [][]byte, int) ([]byte, error) { return nil, errors.New("no luck") }},
		{Name: "empty", Build: func(context.Context, [][]byte, int) ([]byte, error) { return nil, nil }},
		{Name: "broken", Build: func(_ context.Context, _ [][]byte, size int) ([]byte, error) {
			return append([]byte{0x37, 0xA4, 0x30, 0xEC}, bytes.Repeat([]byte{0xFF}, size-4)...), nil
		}},
		{Name: "large", Build: func(_ context.Context, _ [][]byte, size int) ([]byte, error) {
			return bytes.Repeat([]byte("x"), size+1), nil
		}},
	}
	got, err := Train(context.Background(), profiles(300), TrainOptions{Builders: append(bad, good...), MaxSize: 8 << 10})
	if err != nil {
		t.Fatal(err)
	}
	says := map[string]string{"panics": "panic with a value of type string", "fails": "no luck", "empty": "0 bytes", "broken": "not usable", "large": "where"}
	seen := map[string]bool{}
	for _, c := range got.Candidates {
		if want, ok := says[c.Builder]; ok {
			seen[c.Builder] = true
			if !strings.Contains(c.Error, want) {
				t.Errorf("%s: %q, want %q", c.Builder, c.Error, want)
			}
		}
	}
	if len(seen) != len(bad) {
		t.Errorf("tried %v", seen)
	}
	if _, err := Train(context.Background(), profiles(300), TrainOptions{Builders: bad}); !errors.Is(err, ErrNoDictionary) {
		t.Errorf("with bad builders alone: %v", err)
	}
}

// liar is an engine whose compressor, with a dictionary, does not give back what it got.
type liar struct{ compress.Compressor }

func (l liar) Decompress(dst, src []byte, size int) ([]byte, error) {
	return append(dst, make([]byte, size)...), nil
}

func TestTrainValidates(t *testing.T) {
	o := quick(TrainOptions{Engine: func(s compress.Setting, d *Dictionary) (compress.Compressor, error) {
		c, err := s.New(d)
		return liar{c}, err
	}})
	got, err := Train(context.Background(), profiles(100), o)
	if !errors.Is(err, ErrNoDictionary) || !strings.Contains(err.Error(), "comes back different") {
		t.Errorf("%v", err)
	}
	if got.NotVerifiable == 0 {
		t.Error("no candidate is said to have failed")
	}
}

// watched calls back before each value that it compresses or decompresses.
type watched struct {
	compress.Compressor
	before func(dictionary, decompress bool)
}

func (w watched) Compress(dst, src []byte) ([]byte, error) {
	w.before(w.DictionaryID() != 0, false)
	return w.Compressor.Compress(dst, src)
}

func (w watched) Decompress(dst, src []byte, size int) ([]byte, error) {
	w.before(w.DictionaryID() != 0, true)
	return w.Compressor.Decompress(dst, src, size)
}

// TestTrainEndsAtOnce: once it is cancelled no more values are compressed, whatever it was at.
func TestTrainEndsAtOnce(t *testing.T) {
	for name, when := range map[string]struct {
		dictionary, decompress bool
		call                   int // of that kind
	}{
		"measured without a dictionary": {false, false, 50},
		"timed":                         {false, false, 150},
		"timed again and again":         {false, true, 50},
		"a candidate is measured":       {true, false, 50},
		"the winner is proved":          {true, true, 10},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			calls, after := 0, 0
			o := quick(TrainOptions{Workers: 1, Engine: func(s compress.Setting, d *Dictionary) (compress.Compressor, error) {
				c, err := s.New(d)
				return watched{c, func(dictionary, decompress bool) {
					if ctx.Err() != nil {
						after++
					}
					if dictionary == when.dictionary && decompress == when.decompress {
						if calls++; calls == when.call {
							cancel()
						}
					}
				}}, err
			}})
			got, err := Train(ctx, profiles(200), o)
			if !errors.Is(err, context.Canceled) || got.Dictionary != nil {
				t.Errorf("%v, %v", got.Dictionary, err)
			}
			if after > 2 { // what it had begun with a value
				t.Errorf("%d calls after it was cancelled", after)
			}
		})
	}
}

// TestTrainEndsWithLargeDictionaries: once it is cancelled, no dictionary of a megabyte is made or
// digested any more. At a level that searches all matches a digest takes a third of a second, and
// cannot be interrupted.
func TestTrainEndsWithLargeDictionaries(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	built, after := 0, 0
	o := TrainOptions{Workers: 1, MaxSize: 1 << 20, Values: 1_000_000_000, NoTimes: true, Setting: compress.Setting{Algorithm: frame.Zstd, Level: "9"}}
	count := func(size int) {
		if ctx.Err() != nil {
			after++
		}
		if size == 1<<20 {
			built++
		}
	}
	o.Builders = []Builder{{Name: "first", Build: func(_ context.Context, samples [][]byte, size int) ([]byte, error) {
		count(0)
		all := slices.Concat(samples...)
		return all[:min(size, len(all))], nil
	}}}
	o.Engine = func(s compress.Setting, d *Dictionary) (compress.Compressor, error) {
		if d == nil {
			return s.New(nil)
		}
		count(len(d.Bytes()))
		c, err := s.New(d)
		return watched{c, func(bool, bool) {
			if len(d.Bytes()) == 1<<20 {
				cancel()
			}
		}}, err
	}
	got, err := Train(ctx, many(2200, func(i int) []byte { // like one of the other half, and no more of that
		v := make([]byte, 1<<10)
		rand.NewChaCha8([32]byte{byte(i / 2), byte(i >> 9)}).Read(v)
		return v
	}), o)
	if !errors.Is(err, context.Canceled) || got.Dictionary != nil || built == 0 || after > 0 {
		t.Errorf("%d of a megabyte, %d steps after the end, %v", built, after, err)
	}
}

// TestTrainAgainstCurrent: a new dictionary must be better than the one in use.
func TestTrainAgainstCurrent(t *testing.T) {
	ctx := context.Background()
	values := profiles(600)
	first, err := Train(ctx, values, quick(TrainOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Train(ctx, values, quick(TrainOptions{Current: first.Dictionary})); !errors.Is(err, ErrNoDictionary) || !strings.Contains(err.Error(), "with the current one") {
		t.Errorf("the same again: %v", err)
	}
	other := logs(300)
	if _, err := Train(ctx, other, quick(TrainOptions{Current: first.Dictionary})); err != nil {
		t.Errorf("other values: %v", err)
	}
}

func secretProfile(i int) []byte {
	r := rand.New(rand.NewPCG(uint64(i), 7))
	email := fmt.Sprintf("someone%d@private.example", r.IntN(5)) // often the same, so that a trainer would want it
	return fmt.Appendf(nil, `{"id":%d,"email":%q,"name":"user","token":"tok_%d_secret","note":"write to %s","card":{"number":"4111 1111 1111 %04d","ccv":[1234567,"abcdefgh%d"]},"plan":"pro","city":"Springfield","settings":{"theme":"dark","token":"inner%d"}}`,
		i, email, r.IntN(3), email, r.IntN(3), r.IntN(2), r.IntN(2))
}

func TestExclude(t *testing.T) {
	var values [][]byte
	for i := range 400 {
		values = append(values, secretProfile(i))
	}
	secrets := []string{"private.example", "someone", "tok_", "_secret", "4111", "1234567", "abcdefgh", "inner0", "inner1"}
	without, err := Train(context.Background(), values, quick(TrainOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	leaked := 0
	for _, s := range secrets {
		if bytes.Contains(without.Dictionary.Bytes(), []byte(s)) {
			leaked++
		}
	}
	if leaked < len(secrets)/2 {
		t.Fatalf("only %d of the values enter a dictionary even where they may: the test shows nothing", leaked)
	}
	got, err := Train(context.Background(), append(values, []byte("not JSON"), []byte("nor this"), []byte(`{"cut":`), []byte(`{"cut":`)), quick(TrainOptions{Exclude: []string{"email", "token", "card"}}))
	if err != nil {
		t.Fatal(err)
	}
	if got.Excluded != 2 {
		t.Errorf("%d samples were left out, want 2", got.Excluded)
	}
	for _, s := range secrets {
		if bytes.Contains(got.Dictionary.Bytes(), []byte(s)) {
			t.Errorf("%q is in the dictionary", s)
		}
	}
	// A path excludes one of the two tokens alone.
	got, err = Train(context.Background(), values, quick(TrainOptions{Exclude: []string{"settings.token"}}))
	if err != nil {
		t.Fatal(err)
	}
	if d := got.Dictionary.Bytes(); bytes.Contains(d, []byte("inner")) || !bytes.Contains(d, []byte("_secret")) {
		t.Error("settings.token is not what was left out")
	}
	// In another field of other values the same content is found out.
	for i := range values {
		values[i] = append(bytes.TrimSuffix(values[i], []byte("}")), fmt.Sprintf(`,"friend":"someone%d@private.example"}`, i%5)...)
	}
	if _, err := Train(context.Background(), values, quick(TrainOptions{Exclude: []string{"email"}})); !errors.Is(err, ErrNoDictionary) || !strings.Contains(err.Error(), "excluded fields email") {
		t.Errorf("%v", err)
	}
}

// TestExcludeNames: the names inside an excluded object are left out with it.
func TestExcludeNames(t *testing.T) {
	var values [][]byte
	for i := range 400 {
		values = append(values, fmt.Appendf(nil, `{"id":%d,"kind":"share","by_email":{"ada@private.example":{"role":"owner"},"bob%d@private.example":{"role":"reader"}},"n":%d}`, i*7919, i%7, i*31))
	}
	o := quick(TrainOptions{MaxSize: 4 << 10, MinGain: -1})
	without, err := Train(context.Background(), values, o)
	if err != nil || !bytes.Contains(without.Dictionary.Bytes(), []byte("private.example")) {
		t.Fatalf("the addresses do not enter the dictionary even where they may: %v", err)
	}
	o.Exclude = []string{"by_email"}
	got, err := Train(context.Background(), values, o)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(got.Dictionary.Bytes(), []byte("private.example")) {
		t.Error("an address is in the dictionary")
	}
}

func TestRedact(t *testing.T) {
	for _, test := range []struct{ fields, in, want string }{
		{"a", `{"a":"secret1","b":2}`, `{"a":"","b":2}`},
		{"a", `{ "a" : 12345678 , "b" : "x" }`, `{ "a" :  , "b" : "x" }`},
		{"a", `{"a":{"x":"secret1","y":[true,"secret2",{"z":null}]},"b":"keep"}`, `{"a":{"":"","":[,"",{"":}]},"b":"keep"}`},
		{"a", `{"a":{"ada@example.com":{"role":"owner"}},"by":"ada@example.com","role":"owner"}`, `{"a":{"":{"":""}},"by":"","role":"owner"}`},
		{"a", `{"a":[{ "currency" : 1 }],"b":{"currency":"currency"}}`, `{"a":[{ "" :  }],"b":{"currency":"currency"}}`},
		{"a", `[{"a":"secret1"},{"b":{"a":""}},"a"]`, `[{"a":""},{"b":{"a":""}},"a"]`},
		{"b.a", `{"a":"kept","b":{"a":"secret1"},"c":{"b":{"a":"kept"}}}`, `{"a":"kept","b":{"a":""},"c":{"b":{"a":"kept"}}}`},
		{"a", `{"a":"sec\u0072et","t":"it is sec\u0072et"}`, `{"a":"","t":"it is "}`},
		{"a,b", `{"a":"x","b":"y","c":"z"}`, `{"a":"","b":"","c":"z"}`},
	} {
		got, skipped, err := newExcluder(strings.Split(test.fields, ",")).redact(context.Background(), [][]byte{[]byte(test.in)})
		if skipped != 0 || err != nil {
			t.Errorf("%s is taken for something else than JSON", test.in)
			continue
		}
		if diff := cmp.Diff(test.want, string(got[0])); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.in, diff)
		}
	}
	for _, in := range []string{"", "{", `{"a"}`, `[1,`, "text", `{"a":1}}`, `{"a":1]`, `"a"`, "4583289286293124", ` null `, `{"a":1} 2`} {
		if got, skipped, err := newExcluder([]string{"a"}).redact(context.Background(), [][]byte{[]byte(in)}); skipped != 1 || err != nil {
			t.Errorf("%q is taken for JSON: %q", in, got)
		}
	}
}

// TestRedactNested: a value as deep as may be is redacted in memory that its size bounds, however
// long its paths are; a deeper one is left out.
func TestRedactNested(t *testing.T) {
	name := strings.Repeat("n", 1000)
	nested := func(depth int) []byte {
		return []byte(strings.Repeat(`{"`+name+`":`, depth) + `"secret1"` + strings.Repeat("}", depth))
	}
	fields := []string{"user.token", strings.Repeat(name+".", fieldpath.MaxDepth-1) + name}
	deep := nested(fieldpath.MaxDepth)
	got, skipped, err := newExcluder(fields).redact(context.Background(), [][]byte{deep, nested(fieldpath.MaxDepth + 1), []byte(strings.Repeat("[", 300_000))})
	if skipped != 2 || err != nil || len(got) != 1 || bytes.Contains(got[0], []byte("secret1")) || len(got[0]) != len(deep)-len("secret1") {
		t.Errorf("%d left out, %d redacted, %v", skipped, len(got), err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	newExcluder(fields).redact(context.Background(), [][]byte{deep})
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 40*uint64(len(deep)) { // it was 500 times: each path was put together anew
		t.Errorf("%d bytes for a value of %d", n, len(deep))
	}
}

func TestRedactEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if got, _, err := newExcluder([]string{"a"}).redact(ctx, [][]byte{[]byte(`{"a":1}`)}); !errors.Is(err, context.Canceled) || got != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestCutterLong: a long value is cut out as a whole, and compared piece by piece.
func TestCutterLong(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for _, n := range []int{maxWord - 1, maxWord, maxWord + 1, 3*maxWord + 1, 100_000} {
		long := make([]byte, n)
		for i := range long {
			long[i] = 'a' + byte(r.IntN(26))
		}
		c := newCutter([]string{string(long), strings.Repeat("x", n)})
		for _, w := range c.words {
			if len(w) > maxWord || len(w) < minSecret {
				t.Errorf("a piece of %d bytes", len(w))
			}
		}
		got := string(c.cut([]byte("<" + string(long) + "|" + strings.Repeat("x", n) + "|" + string(long) + ">")))
		if middle, ok := strings.CutPrefix(got, "<|"); !ok || !strings.HasSuffix(middle, "|>") || len(middle) > len("|>")+minSecret-1 { // what is as short is no secret
			t.Errorf("%d bytes: %.80q is left", n, got)
		}
	}
}

// TestCutter: as the slow and simple way does it, for words that begin, end and contain each other.
func TestCutter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "aab"[r.IntN(3)]
		}
		return string(b)
	}
	cut := 0
	for range 2000 {
		var words []string
		for range r.IntN(12) {
			words = append(words, random(minSecret+r.IntN(8)))
		}
		text := random(r.IntN(200))
		var want []byte
		for i := 0; i < len(text); {
			longest := 0
			for _, w := range words {
				if strings.HasPrefix(text[i:], w) {
					longest = max(longest, len(w))
				}
			}
			if longest == 0 {
				want = append(want, text[i])
				longest = 1
			}
			i += longest
		}
		cut += len(text) - len(want)
		if got := newCutter(slices.Clone(words)).cut([]byte(text)); !bytes.Equal(got, want) {
			t.Fatalf("%q without %q: %q, want %q", text, words, got, want)
		}
	}
	if cut < 1000 {
		t.Errorf("only %d bytes were cut: the test shows nothing", cut)
	}
}

// FuzzRedact: whatever the sample, no value of the field is left where it was, and nothing panics.
func FuzzRedact(f *testing.F) {
	f.Add([]byte(`{"a":"secret12","b":[{"a":12345678}]}`))
	f.Add([]byte(`{"a":{"b":["secret12"]}}`))
	f.Add(secretProfile(1))
	f.Fuzz(func(t *testing.T, sample []byte) {
		e := newExcluder([]string{"a"})
		got, skipped, err := e.redact(context.Background(), [][]byte{sample})
		if err != nil {
			t.Fatal(err)
		}
		if skipped == 1 {
			return
		}
		again := newExcluder([]string{"a"})
		if left, ok := again.collect(got[0]); ok && len(left) > 0 {
			for _, s := range left {
				if s.to > s.from {
					t.Fatalf("%q of %q is left", got[0][s.from:s.to], got[0])
				}
			}
		}
	})
}

// cover is the content that a builder chooses.
func cover(ctx context.Context, samples [][]byte, size, k int) ([]byte, error) {
	f, err := count(ctx, samples, denseBytes)
	if err != nil {
		return nil, err
	}
	return f.cover(ctx, size, k)
}

func TestCover(t *testing.T) {
	values := profiles(300)
	for _, k := range []int{16, 64, 1000, 1 << 20} {
		for _, size := range []int{100, 4 << 10, 1 << 20} {
			got, err := cover(t.Context(), values, size, k)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) > size {
				t.Errorf("k=%d: %d bytes where %d were asked for", k, len(got), size)
			}
			if k < 1<<20 && size < 1<<20 && len(got) < size/2 {
				t.Errorf("k=%d: %d bytes of %d", k, len(got), size)
			}
		}
	}
	if got, err := cover(t.Context(), [][]byte{[]byte("short")}, 100, 64); got != nil || err != nil {
		t.Errorf("of too little: %q, %v", got, err)
	}
}

// TestDense: content is the same whether substrings have numbers or go by their hashes, and whether
// other builders have counted the same samples before.
func TestDense(t *testing.T) {
	samples := append(profiles(300), logs(100)...)
	dense, err := count(t.Context(), samples, denseBytes)
	must(t, err)
	hashed, err := count(t.Context(), samples, 0)
	must(t, err)
	if dense.slots == nil || hashed.slots != nil {
		t.Fatal("the wrong ones have numbers")
	}
	for _, size := range []int{2 << 10, 16 << 10} {
		for _, choose := range []func(f *frequencies) ([]byte, error){
			func(f *frequencies) ([]byte, error) { return f.cover(t.Context(), size, 64) },
			func(f *frequencies) ([]byte, error) { return f.cover(t.Context(), size, 2048) },
			func(f *frequencies) ([]byte, error) { return f.wholes(t.Context(), size, 0) },
			func(f *frequencies) ([]byte, error) { return f.wholes(t.Context(), size, 1) },
		} {
			want, err := choose(hashed.clone())
			must(t, err)
			if got, err := choose(dense.clone()); err != nil || len(got) == 0 || !bytes.Equal(got, want) {
				t.Errorf("%d bytes: others with numbers than by hashes, %v", size, err)
			}
		}
	}
	var kept materials
	m := kept.get(samples, 1<<20)
	if m != kept.get(samples, 2<<20) || m == kept.get(samples, 10<<10) {
		t.Error("material is for the wrong samples")
	}
	ctx := context.WithValue(t.Context(), materialKey{}, m)
	for _, b := range Builders(compress.Setting{}) {
		want, err := b.build(t.Context(), samples, 8<<10)
		must(t, err)
		if got, err := b.build(ctx, samples, 8<<10); err != nil || got.ID() != want.ID() {
			t.Errorf("%v: another dictionary of material that is kept, %v", &b, err)
		}
	}
	large := slices.Repeat([][]byte{make([]byte, 1<<20)}, 5)
	if kept.get(large, 8<<20) == kept.get(large, 8<<20) {
		t.Error("much material is kept")
	}
}

// TestSearchEnds: sizes end where larger ones come nowhere near the best, and not before.
func TestSearchEnds(t *testing.T) {
	largest := func(values int64) (n int) {
		o := quick(TrainOptions{Values: values, MaxSize: 128 << 10, NoRefit: true, NoTimes: true})
		got, err := Train(t.Context(), profiles(4000), o)
		must(t, err)
		for _, c := range got.Candidates {
			n = max(n, c.Asked)
		}
		return n
	}
	if few, many := largest(4000), largest(10_000_000); few > 32<<10 || many != 128<<10 {
		t.Errorf("sizes up to %d for few values, %d for many", few, many)
	}
}

func TestReadFS(t *testing.T) {
	a, b := bytes.Repeat([]byte("a"), 20), bytes.Repeat([]byte("b"), 30)
	got, err := ReadFS(fstest.MapFS{"a.dict": {Data: a}, "b.dict": {Data: b}, "other.txt": {Data: []byte("x")}})
	if err != nil || len(got) != 2 || !bytes.Equal(got[0].Bytes(), a) || !bytes.Equal(got[1].Bytes(), b) {
		t.Errorf("%v, %v", got, err)
	}
	same := fstest.MapFS{"a.dict": {Data: a}, "b.dict": {Data: b}, "c.dict": {Data: a}}
	if got, err := ReadFS(same); err != nil || len(got) != 2 {
		t.Errorf("a dictionary in two files: %v, %v", got, err)
	}
	many := fstest.MapFS{}
	for i := range maxBundle/frame.MaxDictionarySize + 1 {
		many[fmt.Sprintf("%d.dict", i)] = &fstest.MapFile{Data: make([]byte, frame.MaxDictionarySize)}
	}
	if _, err := ReadFS(many); !errors.Is(err, ErrInvalid) {
		t.Errorf("%d large files: %v", len(many), err)
	}
	for name, fsys := range map[string]fstest.MapFS{"none": {}, "short": {"a.dict": {Data: []byte("x")}}} {
		if _, err := ReadFS(fsys); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// BenchmarkRedact: the time for a byte must not rise with the number of values.
func BenchmarkRedact(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var members []string
			for i := range n {
				members = append(members, fmt.Sprintf("user-%08d-abcdefgh", i*7919))
			}
			sample, err := json.Marshal(map[string]any{"members": members, "text": strings.Repeat("user-00000000-something else ", n)})
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(sample)))
			for b.Loop() {
				if _, _, err := newExcluder([]string{"members"}).redact(context.Background(), [][]byte{sample}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkCover(b *testing.B) {
	values := profiles(2500)
	size := 0
	for _, v := range values {
		size += len(v)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := cover(b.Context(), values, 64<<10, 256); err != nil {
			b.Fatal(err)
		}
	}
}

// lasting is a context that ends after a number of calls of Err.
type lasting struct {
	context.Context
	left int
}

func (l *lasting) Err() error {
	if l.left--; l.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestWholesForged: samples that are worth nothing once one of them is chosen are not looked at
// again for each small one that is.
func TestWholesForged(t *testing.T) {
	const size, small = 8 << 10, 400
	rng := rand.New(rand.NewPCG(1, 2))
	same := make([]byte, 1000)
	for i := range same {
		same[i] = byte(rng.Uint32())
	}
	samples := slices.Repeat([][]byte{same}, 800)
	for range small {
		samples = append(samples, binary.LittleEndian.AppendUint64(nil, rng.Uint64()))
	}
	f, err := count(t.Context(), samples, denseBytes)
	if err != nil {
		t.Fatal(err)
	}
	for length := range 2 {
		if content, err := f.wholes(t.Context(), size, length); err != nil || len(content) < len(same)+7*small {
			t.Errorf("%d bytes, %v", len(content), err)
		}
		if most := uint32(3 * len(samples)); f.scored > most {
			t.Errorf("%d samples were scored, at most %d are to be", f.scored, most)
		}
		if f, err = count(t.Context(), samples, denseBytes); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBuildersEnd: a builder returns when its context ends, at whatever step, and so does Train.
func TestBuildersEnd(t *testing.T) {
	values := profiles(300)
	for _, b := range append(Builders(compress.Setting{})[2:4], Builders(compress.Setting{})[7]) {
		steps := 0
		for ended := true; ended; steps++ {
			ctx := &lasting{t.Context(), steps}
			d, err := b.build(ctx, values, 4<<10)
			if ended = ctx.left < 0; ended && (d != nil || !errors.Is(err, context.Canceled)) {
				t.Fatalf("%v, at step %d: %v, %v", &b, steps, d, err)
			}
			if ctx.left < -2 {
				t.Fatalf("%v, at step %d: it goes on for %d steps", &b, steps, -ctx.left)
			}
			if !ended && err != nil {
				t.Fatalf("%v: %v", &b, err)
			}
		}
		if steps < 6 {
			t.Errorf("%v looks at its context %d times", &b, steps)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	waits := Builder{Name: "waits", Build: func(ctx context.Context, _ [][]byte, _ int) ([]byte, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	if _, err := Train(ctx, values, TrainOptions{Builders: []Builder{waits}, NoTimes: true}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestBuildersFrozen: every platform makes the same dictionaries of the same samples. A change of
// the builders, or of the encoder's default level, makes others.
func TestBuildersFrozen(t *testing.T) {
	values := append(profiles(300), logs(100)...)
	got := map[string]frame.DictionaryID{}
	for _, b := range Builders(compress.Setting{}) {
		d, err := b.build(t.Context(), values, 16<<10)
		if err != nil {
			t.Fatal(err)
		}
		got[b.String()] = d.ID()
	}
	want := map[string]frame.DictionaryID{
		"go cover k=64": 0xef913d2c, "go cover k=128": 0x6465f6a5, "go cover k=256": 0x6a28fb79, "go cover k=512": 0xa563daee,
		"go cover k=2048": 0xb618068d, "go cover k=4096": 0x0b0197ab, "go values by score": 0x4c03ff2b, "go values by density": 0xf1e23b13,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestThin: a single value that is larger than the limit does not pass it.
// TestTrainDespiteOne: one large value, wherever it stands, leaves room for the others in each part
// of the samples.
func TestTrainDespiteOne(t *testing.T) {
	for _, half := range []bool{true, false} {
		samples := profiles(4000)
		i := 0
		for holdout.Training(i) != half {
			i++
		}
		samples[i] = make([]byte, 4<<20)
		if _, err := Train(t.Context(), samples, quick(TrainOptions{MaxSize: 16 << 10})); err != nil {
			t.Errorf("large value at %d: %v", i, err)
		}
	}
}

func TestThin(t *testing.T) {
	large := make([]byte, 1000)
	for _, values := range [][][]byte{{large}, {large, large[:8], large[:8]}, slices.Repeat([][]byte{large}, 50)} {
		kept := thin(values, 80)
		if sum := len(slices.Concat(kept...)); sum > 80 || len(kept[0]) != 10 {
			t.Errorf("%d values of %d bytes, the first of %d", len(kept), sum, len(kept[0]))
		}
	}
	for kinds := 2; kinds <= 12; kinds++ { // in turns
		var values [][]byte
		for i := range 6000 {
			values = append(values, fmt.Appendf(nil, "%02d", i%kinds))
		}
		for every := 2; every <= 12; every++ {
			counts := map[string]int{}
			for _, v := range thin(values, 12000/every) {
				counts[string(v)]++
			}
			for _, n := range counts {
				if len(counts) < kinds || n < 6000/every/kinds*2/3 {
					t.Errorf("of %d kinds, one of %d: %v", kinds, every, counts)
				}
			}
		}
	}
	small := slices.Repeat([][]byte{large[:8]}, 900)
	if kept := thin(append([][]byte{large[:800]}, small...), 800); len(kept) < 50 {
		t.Errorf("%d values are left beside a large one", len(kept))
	}
}

// TestExclusionCosts: a training says what exclusion costs, and the registry keeps it.
func TestExclusionCosts(t *testing.T) {
	var samples [][]byte
	for i := range 600 {
		samples = append(samples, fmt.Appendf(nil, `{"id":%d,"note":"this text stands in all values, and is what makes them alike %d"}`, i*7919, i%7))
	}
	got, err := Train(t.Context(), samples, quick(TrainOptions{Exclude: []string{"note"}, MinGain: -1, NoTimes: true}))
	if err != nil && !errors.Is(err, ErrNoDictionary) {
		t.Fatal(err)
	}
	info := got.Info()
	if info.Exclude != "note" || info.RatioWhole < 1.5*info.Ratio || info.Ratio == 0 {
		t.Errorf("%+v", info)
	}
	if got.Dictionary != nil && bytes.Contains(got.Dictionary.Bytes(), []byte("this text stands")) {
		t.Error("the dictionary has what is excluded")
	}
	fields := []string{"", "a,b", "first name", "50%", "user.token", "é"}
	info.Exclude = excluded(fields)
	if (&Entry{}).Excluded() != nil || (*Entry)(nil).Excluded() != nil {
		t.Error("excluded without a name")
	}
	if e := (&Entry{Info: info}); !slices.Equal(e.Excluded(), fields[1:]) || strings.Contains(info.Exclude, ",") {
		t.Errorf("%q of %q", e.Excluded(), info.Exclude)
	}
}

// TestExcludedInOtherHalf: an excluded value that only a held-out sample has as such, and the
// others in another field, is in no dictionary.
func TestExcludedInOtherHalf(t *testing.T) {
	const secret = "ada.lovelace@example.com"
	var samples [][]byte
	for i := range 600 {
		email := fmt.Sprintf("%08x@example.com", i*7919)
		if !holdout.Training(i) && i < 3 {
			email = secret
		}
		samples = append(samples, fmt.Appendf(nil, `{"id":%d,"email":%q,"note":"in case of questions write to %s, who knows","plan":"free"}`, i, email, secret))
	}
	for _, measured := range []bool{false, true} {
		training, err := Train(t.Context(), samples, quick(TrainOptions{Exclude: []string{"email"}, NoRefit: measured}))
		if !errors.Is(err, ErrNoDictionary) || !strings.Contains(err.Error(), "stand in other fields") || training != nil && training.Dictionary != nil {
			t.Errorf("NoRefit %v: %v", measured, err)
		}
	}
}
