package dict

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/frame"
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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

// TestThin: a single value that is larger than the limit does not pass it.
// TestTrainDespiteOne: one large value, wherever it stands, leaves room for the others in each part
// of the samples.
func TestTrainDespiteOne(t *testing.T) {
	t.Parallel()
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
