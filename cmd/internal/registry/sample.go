package registry

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/cli"
	"github.com/balekv/bale/cmd/internal/keyspace"
)

// MaxSample bounds the values of a sample in bytes: all of them are in memory.
const MaxSample = 48 << 20

// MaxSampled is the largest value in bytes that is read to train a dictionary of a size. A
// dictionary hardly helps a value a hundred times as large.
func MaxSampled(dictionary int) int { return 100 * dictionary }

// SampleOptions bound a sample.
type SampleOptions struct {
	Match    []string // patterns of keys, which share the number of values; all keys if empty
	Values   int      // how many are read
	Size     int      // in bytes of the largest value
	Seed     uint64
	FewBelow int                                // fields of hashes fill the sample if there are fewer strings
	Progress func(done, total int, what string) // may be nil
}

// Sampled is a sample, and the number of its values from hashes.
type Sampled struct {
	keyspace.Sampled
	Fields int
}

// Source describes where the values come from.
func (s *Sampled) Source(url string) string {
	text := fmt.Sprintf("%s, %d keys looked at", keyspace.Redact(url), s.Keys)
	if s.Fields > 0 {
		text += fmt.Sprintf(", and %d values of hashes", s.Fields)
	}
	if s.TooLarge > 0 {
		text += fmt.Sprintf(", %d passed over as too large", s.TooLarge)
	}
	if s.Streams > 0 {
		text += fmt.Sprintf(", %d of streams passed over", s.Streams)
	}
	if s.Unread > 0 {
		text += fmt.Sprintf(", %d that could not be unpacked (%s)", s.Unread, cli.Told(s.Err))
	}
	return text
}

// Sample reads values of the first server to train on: those of strings, and of hashes if there are
// few strings.
func (r *Registry) Sample(ctx context.Context, o SampleOptions) (*Sampled, error) {
	packer, err := r.Packer(nil, bale.PackerOptions{})
	if err != nil {
		return nil, err
	}
	progress := func(n int, what string) {
		if o.Progress != nil {
			o.Progress(n, o.Values, fmt.Sprintf("%d values%s read", n, what))
		}
	}
	s := &Sampled{}
	match := o.Match
	if len(match) == 0 {
		match = []string{""}
	}
	for i, pattern := range match {
		some, err := keyspace.Sample(ctx, r.Client(), keyspace.SampleOptions{
			Match: pattern, Skip: keyspace.RegistryKeys(r.Prefix), Values: o.Values*(i+1)/len(match) - len(s.Values), Bytes: MaxSample / len(match), Size: o.Size, Pace: r.Pace, Seed: o.Seed,
			Unpack: func(ctx context.Context, stored []byte) ([]byte, error) {
				return packer.UnpackContext(ctx, nil, stored)
			},
			Progress: func(n int) { progress(n, "") },
		})
		if err != nil {
			return nil, err
		}
		some.Values = append(s.Values, some.Values...)
		some.Keys, some.TooLarge, some.Streams, some.Unread = s.Keys+some.Keys, s.TooLarge+some.TooLarge, s.Streams+some.Streams, s.Unread+some.Unread
		if s.Err != nil {
			some.Err = s.Err
		}
		s.Sampled = *some
	}
	if len(s.Values) >= min(o.FewBelow, o.Values) {
		return s, nil
	}
	before := len(s.Values)
	fields, err := r.sampleFields(ctx, packer, o, o.Values-before, func(n int) { progress(before+n, ", also of hashes,") })
	s.Fields = len(fields)
	s.Values = append(s.Values, fields...)
	return s, err
}

// sampleFields reads a number of values of hashes, in the order of the ranks of their keys and
// fields. On a cluster each master gives its share.
func (r *Registry) sampleFields(ctx context.Context, packer *bale.Packer, o SampleOptions, most int, progress func(n int)) ([][]byte, error) {
	nodes, err := keyspace.Places(ctx, r.Client())
	if err != nil {
		return nil, err
	}
	type field struct {
		rank  uint64
		value []byte
	}
	var fields []field
	var last redis.UniversalClient
	limit, bytes, share := 0, 0, (most+len(nodes)-1)/len(nodes)
	batch := packer.Batch() // what it holds is all kept
	err = keyspace.ReadValues(ctx, r.Client(), keyspace.ValuesOptions{
		Match: o.Match, Skip: keyspace.RegistryKeys(r.Prefix), Size: o.Size, Pace: r.Pace, Kind: "hash", Places: nodes,
		Values: func(ctx context.Context, node redis.UniversalClient, some []keyspace.Value) (keyspace.Next, error) {
			if node != last {
				last, limit = node, min(limit+share, most)
			}
			for _, v := range some {
				if bytes > MaxSample {
					return keyspace.Stop, nil
				}
				if len(fields) >= limit {
					return keyspace.NextNode, nil
				}
				if plain, err := batch.Unpack(ctx, nil, v.Stored); err == nil && len(plain) > 0 {
					bytes += len(plain)
					fields = append(fields, field{keyspace.Rank(o.Seed, v.Key+"\x00"+v.Field), plain})
				}
			}
			progress(len(fields))
			return keyspace.More, nil
		},
	})
	slices.SortFunc(fields, func(a, b field) int { return cmp.Compare(a.rank, b.rank) })
	values := make([][]byte, len(fields))
	for i, f := range fields {
		values[i] = f.value
	}
	return values, err
}
