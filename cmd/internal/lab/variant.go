package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/dataset"
	"github.com/balekv/bale/cmd/internal/engine"
	"github.com/balekv/bale/cmd/internal/outcome"
	"github.com/balekv/bale/compress"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
)

// variant is what determines the stored bytes: all that is measured once for several cells.
type variant struct {
	data       *dataset.Dataset
	codec      string
	setting    engine.Setting
	dict       *dict.Dictionary
	report     int // of dict, among those of the run
	coder      dataset.Coder
	packer     *bale.Packer
	compressor compress.Compressor
	recorder   stats.Recorder // nil for none
	plainOf    [][]byte       // each value, serialized
	plain      int64
	unstable   bool     // two encodings of a value differ
	packed     [][]byte // each value as it is stored
	stored     int64
	keys       int
	perKey     *float64
	usageKey   *float64
	failure    failure
}

func (v *variant) close() {
	if v.packer != nil {
		v.packer.Close()
	}
	if v.compressor != nil {
		v.compressor.Close()
	}
}

func (v *variant) String() string {
	return fmt.Sprintf("%s %s %s", v.data.Name, v.codec, v.setting)
}

// group names it for an Observer.
func (v *variant) group() string {
	return v.data.Name + "/" + v.data.Track + "/" + v.codec + "/" + v.setting.String()
}

func (v *variant) identity() outcome.Identity {
	return outcome.Identity{Dataset: v.data.Name, Track: v.data.Track, Codec: v.codec, Compress: v.setting.String()}
}

// variants makes all possible variants. A setting with a dictionary trains it on one half of the
// values; all settings are measured on the other half. On an error it still returns the finished
// variants.
func (r *run) variants(ctx context.Context) (variants []*variant, err error) {
	r.total = len(r.Datasets) * len(r.Codecs) * len(r.Compress) * (1 + len(r.servers)*len(r.Clients)*len(r.Batches)*len(r.Concurrency)*len(r.Rates)*r.Rounds)
	for _, d := range r.Datasets {
		train, measured := r.halves(d)
		if len(measured.Raw) == 0 {
			return variants, fmt.Errorf("%s has a single value, and none is left to train a dictionary on", d.Name)
		}
		for _, codec := range d.Codecs(r.Codecs) {
			coder, err := measured.Coder(codec)
			if none, is := errors.AsType[*dataset.NoCoderError](err); is {
				r.skip(outcome.Identity{Dataset: d.Name, Track: d.Track, Codec: codec}, none.Reason)
				continue
			}
			if err != nil {
				return variants, err
			}
			for _, setting := range r.Compress {
				v := &variant{data: measured, codec: codec, setting: setting, coder: coder, keys: r.keyCount(measured)}
				if setting.Dict {
					if err := r.train(ctx, v, train); err != nil {
						return variants, err
					}
					if v.dict == nil {
						continue
					}
				}
				variants = append(variants, v)
				if v.compressor, err = setting.New(v.dict); err != nil {
					return variants, err
				}
				if v.packer, err = bale.NewPacker(bale.PackerOptions{Compressors: &compress.Set{Write: v.compressor, Engine: setting.Engine()}}); err != nil {
					return variants, err
				}
				if r.Observer != nil {
					v.recorder = r.Observer.Recorder(v.group())
				}
			}
		}
	}
	return variants, nil
}

// halves are the values to train on and those to measure: the same, where no setting asks for a
// dictionary.
func (r *run) halves(d *dataset.Dataset) (train, measured *dataset.Dataset) {
	if slices.ContainsFunc(r.Compress, func(s engine.Setting) bool { return s.Dict }) {
		return d.Halves()
	}
	return d, d
}

func (r *run) skip(i outcome.Identity, reason string) {
	r.skipped = append(r.skipped, outcome.Skipped{Identity: i, Reason: reason})
}

// train trains the dictionary of a variant, if one pays.
func (r *run) train(ctx context.Context, v *variant, data *dataset.Dataset) error {
	coder, err := data.Coder(v.codec)
	if err != nil {
		return err
	}
	samples := make([][]byte, len(data.Raw))
	for i := range samples {
		if samples[i], err = coder.Encode(nil, i); err != nil {
			return fmt.Errorf("serialize value %d: %w", i, err)
		}
	}
	// Train halves by the sequence that the set was halved by, and half of a half by that is every
	// other value again.
	rand.New(rand.NewPCG(r.Seed, 1)).Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
	start := time.Now()
	t, err := dict.Train(ctx, samples, dict.TrainOptions{
		Setting: v.setting.Setting, Engine: v.setting.Engine(), NoTimes: true,
		Progress: func(done, total int, what string) {
			r.tell(fmt.Sprintf("training %d of %d for %v, %s", done, total, v, what), 0, nil)
		},
	})
	report := outcome.Dictionary{Dataset: data.Name, Track: data.Track, Codec: v.codec, Compress: v.setting.String(), Samples: len(samples), Seconds: time.Since(start).Seconds()}
	switch {
	case errors.Is(err, dict.ErrNoDictionary):
		report.Reason = strings.TrimPrefix(err.Error(), "dict: ")
	case err != nil:
		return err
	default:
		v.dict = t.Dictionary
		report.ID, report.Bytes, report.Tried = t.Dictionary.ID(), len(t.Dictionary.Bytes()), len(t.Candidates)
		report.Builder = strings.TrimSpace(t.Winner.Builder + " " + t.Winner.Params)
		if r.Observer != nil {
			r.Observer.Trained(v.group(), t)
		}
	}
	r.dictionaries = append(r.dictionaries, report)
	v.report = len(r.dictionaries) - 1
	return nil
}

// encodedTwice is how many values are serialized twice, to find out whether that gives the same
// bytes.
const encodedTwice = 100

// fill stores every value on the server with the widest link, measures the memory that Redis takes
// for it, and verifies that each comes back.
func (r *run) fill(ctx context.Context, v *variant) error {
	server := r.widest()
	store := server.clients[0].store
	stored := make([][]byte, len(v.data.Raw))
	v.plainOf = make([][]byte, len(v.data.Raw))
	payload := 0
	for i := range stored {
		plain, err := v.coder.Encode(nil, i)
		if err != nil {
			return fmt.Errorf("serialize value %d: %w", i, err)
		}
		if i < encodedTwice && !v.unstable {
			again, err := v.coder.Encode(nil, i)
			if err != nil {
				return fmt.Errorf("serialize value %d: %w", i, err)
			}
			v.unstable = !bytes.Equal(again, plain)
		}
		packed, err := v.packer.Pack(nil, plain)
		if err != nil {
			return fmt.Errorf("pack value %d: %w", i, err)
		}
		v.plainOf[i], stored[i] = slices.Clip(plain), slices.Clip(packed)
		payload += len(packed)
		if _, offset, ok := frame.Parse(packed); ok {
			payload -= offset
		}
		v.plain += int64(len(plain))
		v.stored += int64(len(packed))
	}
	keys := r.keys[:v.keys]
	if err := r.firstCalls(ctx, server, store); err != nil {
		return err
	}
	if err := server.clear(ctx, r.keys); err != nil {
		return err
	}
	var before int64
	var err error
	if !server.Embedded {
		if before, err = server.usedMemory(ctx, keys); err != nil {
			return err
		}
	}
	if v.dict != nil {
		r.mu.Lock()
		r.dictionaries[v.report].Payload = float64(v.plain) / float64(payload)
		r.mu.Unlock()
		// Its bytes are a part of what the values take.
		if err := store.Set(ctx, r.dictKey(), v.dict.Bytes(), bale.Expiry{}); err != nil {
			return err
		}
	}
	if err := r.roundTrip(ctx, store, v, stored, 0, len(keys)); err != nil {
		return err
	}
	if !server.Embedded {
		after, err := server.usedMemory(ctx, keys)
		if err != nil {
			return err
		}
		perKey := float64(after-before) / float64(len(keys))
		v.perKey = &perKey
		if err := server.memoryUsage(ctx, v, keys); err != nil {
			return err
		}
	}
	// Values that were too many to be measured are verified all the same.
	if err := r.roundTrip(ctx, store, v, stored, len(keys), len(stored)); err != nil {
		return err
	}
	if r.Mix.Single() {
		v.packed = stored
	} else {
		v.plainOf = nil
	}
	return nil
}

// firstCalls calls each command of fill once: Redis 7 allocates about 24 KB of statistics at the
// first call of each command.
func (r *run) firstCalls(ctx context.Context, server *Server, store bale.Store) error {
	if server.called {
		return nil
	}
	server.called = true
	items := []bale.Item{{Key: r.keys[0], Value: []byte("value")}, {Key: r.keys[min(1, len(r.keys)-1)], Value: []byte("value")}}
	if err := store.SetMany(ctx, items); err != nil {
		return err
	}
	if err := store.Set(ctx, items[0].Key, items[0].Value, bale.Expiry{}); err != nil {
		return err
	}
	if _, err := store.GetMany(ctx, r.keys[:1]); err != nil {
		return err
	}
	if _, err := store.Get(ctx, r.keys[0]); err != nil {
		return err
	}
	if server.Embedded {
		return nil
	}
	if err := server.client.MemoryUsage(ctx, r.keys[0]).Err(); err != nil {
		return fmt.Errorf("MEMORY USAGE: %w", err)
	}
	_, err := server.usedMemory(ctx, r.keys[:1])
	return err
}

// roundTrip writes values to the keys from start up to end, and starts over if there are fewer
// values. It reads them back and compares them: all of them byte by byte, and each value once after
// decoding.
func (r *run) roundTrip(ctx context.Context, store bale.Store, v *variant, stored [][]byte, start, end int) error {
	for start < end {
		items := r.items(stored, start, end, batchBytes)
		if err := store.SetMany(ctx, items); err != nil {
			return err
		}
		got, err := store.GetMany(ctx, r.keys[start:start+len(items)])
		if err != nil {
			return err
		}
		for i := range items {
			if got[i] == nil && items[i].Value != nil {
				return errMissing
			}
			if !bytes.Equal(got[i], items[i].Value) {
				return errMismatch
			}
			if start+i < len(stored) {
				if err := v.verify(got[i], start+i); err != nil {
					return err
				}
			}
		}
		start += len(items)
	}
	return nil
}

// items returns the values for the keys from start on, as many as go into a pipeline. Key i has
// value i; if there are fewer values, they start over.
func (r *run) items(stored [][]byte, start, end, most int) []bale.Item {
	size := 0
	var items []bale.Item
	for i := start; i < end && i-start < batchKeys && size < most; i++ {
		value := stored[i%len(stored)]
		items = append(items, bale.Item{Key: r.keys[i], Value: value})
		size += len(value)
	}
	return items
}

// widest is the server with the widest link, or the first without one.
func (r *run) widest() *Server {
	best := r.servers[0]
	for _, s := range r.servers {
		if best.LinkBits > 0 && (s.LinkBits == 0 || s.LinkBits > best.LinkBits) {
			best = s
		}
	}
	return best
}

// loadKeys writes the keys that a mix reads and writes, by pipelines that a link takes in a second.
func (r *run) loadKeys(ctx context.Context, server *Server, store bale.Store, v *variant) error {
	pipeline := batchBytes
	if server.LinkBits > 0 {
		pipeline = min(pipeline, int(server.LinkBits/8))
	}
	for start := 0; start < v.keys; {
		items := r.items(v.packed, start, v.keys, pipeline)
		if err := store.SetMany(ctx, items); err != nil {
			return err
		}
		start += len(items)
	}
	return nil
}

// verify decodes a stored value all the way and compares it with value i.
func (v *variant) verify(stored []byte, i int) error {
	plain, err := v.packer.Unpack(context.Background(), nil, stored)
	if err != nil {
		return err
	}
	if err := v.coder.Verify(plain, i); err != nil {
		return fmt.Errorf("%w: %w", errMismatch, err)
	}
	return nil
}

// memoryUsage asks Redis what single keys take.
func (s *Server) memoryUsage(ctx context.Context, v *variant, keys []string) error {
	n := min(usageSamples, len(keys))
	usage := make([]*redis.IntCmd, n)
	if _, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range usage {
			usage[i] = p.MemoryUsage(ctx, keys[i*usageStride%len(keys)])
		}
		return nil
	}); err != nil {
		return fmt.Errorf("MEMORY USAGE: %w", err)
	}
	sum := int64(0)
	for _, u := range usage {
		sum += u.Val()
	}
	mean := float64(sum) / float64(n)
	v.usageKey = &mean
	return nil
}
