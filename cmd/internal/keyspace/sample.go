package keyspace

import (
	"bytes"
	"context"
	"errors"
	"regexp"
	"sort"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/frame"
)

// SampleOptions bound a sample.
type SampleOptions struct {
	Match  string // pattern of keys, all if empty
	Skip   Skip   // passes keys over; nil for none
	Values int    // how many are read at most
	Bytes  int    // and how many bytes of them
	Size   int    // a value that is larger, as it is stored or unpacked, is passed over
	Pace   Pace
	Seed   uint64 // of the order that the values are returned in, which is that of Rank

	// Unpack turns a stored value into the plain one.
	Unpack func(ctx context.Context, stored []byte) ([]byte, error)

	Progress func(values int)
}

// Sampled is what a sample holds, and what it passed over.
type Sampled struct {
	Values   [][]byte
	Keys     int // seen
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

// Sample reads string values in the order of SCAN. That is the order of the server's hash table,
// which is as good as random and different for each start of a server. It returns them in the order
// of their keys' ranks. On a cluster each master gives its share. If ctx ends, Sample returns the
// values read so far along with ctx's error.
func Sample(ctx context.Context, client redis.UniversalClient, o SampleOptions) (*Sampled, error) {
	s := &Sampled{}
	var ranks []uint64
	defer func() { sort.Sort(byRank{ranks, s.Values}) }()
	size := 0
	shares, share := 1, 0
	if cluster, ok := client.(*redis.ClusterClient); ok {
		nodes, err := masters(ctx, cluster)
		if err != nil {
			return s, err
		}
		shares = len(nodes)
	}
	var last *redis.Client
	limit := func() int { return o.Values * share / shares }
	err := Walk(ctx, client, o.Match, "string", o.Pace, func(ctx context.Context, node *redis.Client, keys []string) (read int, _ Next, _ error) {
		if node != last {
			last, share = node, share+1
		}
		keys = o.Skip.drop(keys)
		s.Keys += len(keys)
		lengths := make([]*redis.IntCmd, len(keys))
		if err := Pipeline(ctx, node, len(keys), func(p redis.Pipeliner, i int) { lengths[i] = p.StrLen(ctx, keys[i]) }); err != nil {
			return 0, Stop, err
		}
		var named []Value
		var sizes []int64
		for i, k := range keys {
			switch n := lengths[i].Val(); {
			case lengths[i].Err() != nil || n == 0:
				s.Gone++
			case n > int64(o.Size):
				s.TooLarge++
			default:
				named, sizes = append(named, Value{Key: k}), append(sizes, n)
			}
		}
		for from, to := range batches(sizes) {
			values, err := getAll(ctx, node, named[from:to], sizes[from:to], int64(o.Size))
			if err != nil {
				return read, Stop, err
			}
			for i, v := range values {
				key := named[from+i].Key
				if errors.Is(v.err, ErrTooLarge) { // by now
					s.TooLarge++
					continue
				}
				if v.err != nil {
					s.Gone++
					continue
				}
				read += len(v.stored)
				if ofStream(key, v.stored) {
					s.Streams++
					continue
				}
				plain, err := o.Unpack(ctx, v.stored)
				if errors.Is(err, bale.ErrNotFound) {
					s.Gone++
					continue
				}
				if err != nil {
					if s.Unread++; s.Err == nil {
						s.Err = err
					}
					continue
				}
				if len(plain) > o.Size { // one that was written to fill the sample, perhaps
					s.TooLarge++
					continue
				}
				if size += len(plain); size > o.Bytes {
					return read, Stop, nil
				}
				ranks = append(ranks, Rank(o.Seed, key))
				if s.Values = append(s.Values, bytes.Clone(plain)); len(s.Values) >= limit() {
					return read, NextNode, nil // it has given its share
				}
			}
		}
		if o.Progress != nil {
			o.Progress(len(s.Values))
		}
		return read, More, nil
	})
	return s, err
}

// byRank sorts values by their ranks.
type byRank struct {
	ranks  []uint64
	values [][]byte
}

func (b byRank) Len() int           { return len(b.ranks) }
func (b byRank) Less(i, j int) bool { return b.ranks[i] < b.ranks[j] }
func (b byRank) Swap(i, j int) {
	b.ranks[i], b.ranks[j] = b.ranks[j], b.ranks[i]
	b.values[i], b.values[j] = b.values[j], b.values[i]
}

// chunkKey is what the key of a stream's chunk ends in: a generation (crypto/rand.Text) and a
// number.
var chunkKey = regexp.MustCompile(`:[A-Z2-7]{26}:[0-9]+$`)

// ofStream reports the manifest or a chunk of a stream.
func ofStream(key string, stored []byte) bool {
	h, _, ok := frame.Parse(stored)
	return ok && (h.Algorithm == frame.Chunks || h.Algorithm == frame.Stored && chunkKey.MatchString(key))
}

// IsReply reports an error that a server answered with for one command of a pipeline, such as a key
// of another type.
func IsReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// isWrongType reports the error of a command for a key of another type.
func isWrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }
