package keyspace

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/frame"
)

// SampleOptions bound a sample.
type SampleOptions struct {
	Match  []string // patterns of keys, which share the values evenly; all keys if empty
	Skip   Skip     // passes keys over; nil for none
	Values int      // how many are read at most
	Bytes  int      // and how many bytes of them
	Size   int      // a value that is larger, as it is stored or unpacked, is passed over
	Pacer  *Pacer   // nil for no limits
	Seed   uint64   // of the order that the values are returned in, which is that of Rank

	// Exclude are fields of JSON values that stay out of a dictionary. A field of a hash that has such
	// a name, or is the start of such a path, is passed over.
	Exclude []string

	// FewStrings is from how many strings on no fields of hashes are read; 0 for never.
	FewStrings int

	// Unpack turns a stored value into the plain one.
	Unpack func(ctx context.Context, stored []byte) ([]byte, error)

	Progress func(done, total int, what string) // may be nil
}

// Sampled is what a sample holds, and what it passed over.
type Sampled struct {
	Values   [][]byte
	Fields   int   // of Values: those of hashes
	Keys     int   // seen
	Most     int64 // how many such values there are; by their part of the keys gone over if some were not read
	Excluded []int // for each of SampleOptions.Exclude: fields of hashes that it left out
	TooLarge int
	Streams  int   // manifests and chunks of streams, which no dictionary is for
	Gone     int   // expired or removed between SCAN and GET, overwritten by another type, or loaded with the result that there is none
	Unread   int   // packed values that could not be unpacked
	Err      error // why, of the first one
}

// Rank is a hash of a key's name (FNV-1a, and a finalizer, MurmurHash3's, that makes its upper bits
// depend on all of them). Keys in its order are as good as shuffled, and for a seed always the same
// way.
func Rank(seed uint64, name string) uint64 {
	h := uint64(14695981039346656037) ^ seed*0x9E3779B97F4A7C15
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Sample reads strings, and fields of hashes if there are few, in the order of SCAN. That is the
// order of the server's hash table, which is as good as random and different for each start of a
// server. It returns them in the order of the ranks of their keys and fields. On a cluster each
// master gives its share. If ctx ends, Sample returns the values read so far along with ctx's
// error.
func Sample(ctx context.Context, client redis.UniversalClient, o SampleOptions) (*Sampled, error) {
	s := &sampling{SampleOptions: o, found: Sampled{Excluded: make([]int, len(o.Exclude))}}
	if len(o.Match) == 0 {
		s.Match = []string{""}
	}
	err := s.read(ctx, client, "string")
	strings := len(s.ranked)
	if err == nil && strings < min(o.FewStrings, o.Values) {
		err = s.read(ctx, client, "hash")
	}
	s.found.Fields = len(s.ranked) - strings
	slices.SortFunc(s.ranked, func(a, b ranked) int { return cmp.Compare(a.rank, b.rank) })
	for _, r := range s.ranked {
		s.found.Values = append(s.found.Values, r.value)
	}
	s.found.Most = max(int64(len(s.ranked)), int64(math.Round(s.most)))
	return &s.found, err
}

// sampling is a sample in the making.
type sampling struct {
	SampleOptions
	found  Sampled
	ranked []ranked
	size   int     // bytes of all
	most   float64 // values that there are, by those read
}

type ranked struct {
	rank  uint64
	value []byte
}

// read reads values of one type.
func (s *sampling) read(ctx context.Context, client redis.UniversalClient, kind string) error {
	before := len(s.ranked)
	for i, pattern := range s.Match {
		places, err := Places(ctx, client)
		if err != nil {
			return err
		}
		start := len(s.ranked)
		share := before + (s.Values-before)*(i+1)/len(s.Match) - start
		seen := map[redis.UniversalClient]bool{}
		var looked Looked
		full, keys, last := false, 0, "" // not all values were read, of so many keys
		err = ReadValues(ctx, client, ValuesOptions{
			Match: []string{pattern}, Skip: s.Skip, Kind: kind, Size: s.Size, Pacer: s.Pacer, Places: places,
			Values: func(_ context.Context, node redis.UniversalClient, values []Value) (Next, error) {
				seen[node] = true
				for _, v := range values {
					if keys == 0 || v.Key != last {
						keys, last = keys+1, v.Key
					}
					if !s.add(ctx, v) {
						full = true
						return Stop, ctx.Err()
					}
					if len(s.ranked)-start >= share*len(seen)/len(places) {
						full = true
						return NextNode, nil // it has given its share
					}
				}
				if s.Progress != nil {
					s.Progress(len(s.ranked), s.Values, fmt.Sprintf("%d values read", len(s.ranked)))
				}
				return More, nil
			},
			Page: func(_ []Place, l Looked) error {
				looked = l
				return nil
			},
		})
		s.found.Keys += int(looked.Keys - looked.Skipped)
		s.found.TooLarge += int(looked.TooLarge + looked.LargeFields)
		s.found.Gone += int(looked.Gone)
		if err != nil {
			return err
		}
		added, all := float64(len(s.ranked)-start), int64(0)
		if full {
			all = client.DBSize(ctx).Val()
		}
		if all > 0 { // a server that does not say has no more
			listed, scanned := float64(looked.Keys-looked.Skipped), float64(min(looked.Scanned, all))
			added = max(added, float64(all)*listed/scanned*max(added, 1)/float64(keys))
		}
		s.most += added
	}
	return nil
}

// add adds a value, and reports whether there is room and time for more.
func (s *sampling) add(ctx context.Context, v Value) bool {
	if ctx.Err() != nil {
		return false
	}
	if ofStream(v.Key, v.Stored) {
		s.found.Streams++
		return true
	}
	if v.InHash && s.excludes(v.Field) {
		return true
	}
	plain, err := s.Unpack(ctx, v.Stored)
	switch {
	case err == nil && IsNumber(plain): // which is not packed
	case errors.Is(err, bale.ErrNotFound):
		s.found.Gone++
	case errors.Is(err, bale.ErrTooLarge) || len(plain) > s.Size: // one that was written to fill the sample, perhaps
		s.found.TooLarge++
	case err != nil:
		if s.found.Unread++; s.found.Err == nil {
			s.found.Err = err
		}
	case s.size+len(plain) > s.Bytes:
		return false
	case len(plain) > 0:
		s.size += len(plain)
		name := v.Key // a string has the rank that advise gives it
		if v.Field != "" {
			name += "\x00" + v.Field
		}
		s.ranked = append(s.ranked, ranked{Rank(s.Seed, name), bytes.Clone(plain)})
	}
	return true
}

// excludes reports whether a field of a hash stays out, and counts it.
func (s *sampling) excludes(field string) (out bool) {
	for i, e := range s.Exclude {
		if root, _, _ := strings.Cut(e, "."); field == e || field == root {
			s.found.Excluded[i]++
			out = true
		}
	}
	return out
}

// maxNumber is MAX_LONG_DOUBLE_CHARS: the longest number in bytes that INCRBYFLOAT takes.
const maxNumber = 5 << 10

// IsNumber reports whether a value is what INCR and INCRBYFLOAT work on, or spelled like it.
func IsNumber(b []byte) bool {
	if len(b) == 0 || len(b) > maxNumber || !bytes.ContainsRune([]byte("+-.0123456789"), rune(b[0])) {
		return false
	}
	_, err := strconv.ParseFloat(string(b), 64)
	return err == nil || errors.Is(err, strconv.ErrRange)
}

// chunkKey is what the key of a stream's chunk ends in: a generation (crypto/rand.Text) and a
// number.
var chunkKey = regexp.MustCompile(`:[A-Z2-7]{26}:[0-9]+$`)

// ofStream reports the manifest or a chunk of a stream.
func ofStream(key string, stored []byte) bool {
	h, _, ok := frame.Parse(stored)
	return ok && (h.Algorithm == frame.Chunks || h.Algorithm == frame.Stored &&
		chunkKey.MatchString(key))
}

// IsReply reports an error that a server answered with for one command of a pipeline, such as a key
// of another type.
func IsReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// isWrongType reports the error of a command for a key of another type.
func isWrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }
