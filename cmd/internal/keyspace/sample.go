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
	"github.com/balekv/bale/cmd/internal/keygroup"
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
	Untried  int   // those after MostWasted of them
	Err      error // why, of the first one
}

// MostWasted bounds the decoded bytes of values that turn out to be damaged once they are unpacked.
// Forged ones of a few hundred bytes each would take minutes.
const MostWasted = 256 << 20

// Wasted are the bytes that a damaged value counts against MostWasted: those that it claims, as far
// as it can decode to them. A block of zstd takes 4 bytes, and has up to 128 KiB.
func Wasted(decoded int64, stored []byte) int64 { return min(decoded, int64(len(stored))<<15) }

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
// server. Of each hash it takes the same part of the fields. It returns the values in the order of
// the ranks of their keys and fields. On a cluster each master gives its share. If ctx ends, Sample
// returns the values read so far along with ctx's error.
func Sample(ctx context.Context, client redis.UniversalClient, o SampleOptions) (*Sampled, error) {
	s := &sampling{SampleOptions: o, found: Sampled{Excluded: make([]int, len(o.Exclude))}}
	s.Match = nil
	for i, p := range o.Match { // one that is covered would walk over all keys for nothing
		if !slices.ContainsFunc(o.Match[:i], func(q string) bool { return keygroup.Covers(q, p) }) &&
			!slices.ContainsFunc(o.Match[i+1:], func(q string) bool { return keygroup.Covers(q, p) && !keygroup.Covers(p, q) }) {
			s.Match = append(s.Match, p)
		}
	}
	if len(s.Match) == 0 {
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
	wasted int64   // bytes of values that were unpacked, and are damaged
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
		nodes, err := nodesOf(ctx, client)
		if err != nil {
			return err
		}
		places, err := placesOf(ctx, nodes)
		if err != nil {
			return err
		}
		start := len(s.ranked)
		share := before + (s.Values-before)*(i+1)/len(s.Match) - start
		skip := func(key string) bool { // a value twice would be in both halves of a training
			return s.Skip != nil && s.Skip(key) ||
				slices.ContainsFunc(s.Match[:i], func(before string) bool { return keygroup.Match(before, key) })
		}
		parts, all := make([]part, len(places)), 0.0
		for j, place := range places {
			p := &parts[j]
			*p = part{ValuesOptions: ValuesOptions{
				Match: []string{pattern}, Skip: skip, Kind: kind, Size: s.Size, Pacer: s.Pacer, Places: []Place{place},
			}, node: nodes[place.Addr], values: 1}
			if kind == "hash" {
				if err := p.count(ctx, client, share/len(places), fewHashes/len(places)); err != nil {
					return err
				}
			}
			all += p.values
		}
		sum := 0.0
		for _, p := range parts {
			sum += p.values
			if err := s.part(ctx, client, p, start+int(math.Round(float64(share)*sum/all))); err != nil {
				return err
			}
		}
	}
	return nil
}

// fewHashes is how many hashes of a pattern are looked at if there are more, and their fields are
// enough. In the order of SCAN they are as good as random.
const fewHashes = 200

// part is the values of one server for a sample.
type part struct {
	ValuesOptions
	node    *redis.Client
	values  float64          // its weight: of hashes the fields that there are, about, or 1
	lengths map[uint64]int64 // of the hashes that were counted, by Rank
	fields  int64            // of those
}

// count counts the fields of hashes. It stops early with enough hashes, and as many fields as
// wanted.
func (p *part) count(ctx context.Context, client redis.UniversalClient, wanted, hashes int) error {
	o, scanned := p.ValuesOptions, int64(0)
	p.lengths = map[uint64]int64{}
	o.Names = func(ctx context.Context, c redis.UniversalClient, names []string) ([]string, error) {
		names = slices.DeleteFunc(names, func(name string) bool { return len(name) > longestName })
		replies := make([]*redis.IntCmd, len(names))
		err := Pipeline(ctx, c, len(names), func(q redis.Pipeliner, i int) { replies[i] = q.HLen(ctx, names[i]) })
		for i, name := range names {
			if IsForbidden(replies[i].Err()) {
				return nil, replies[i].Err()
			}
			if rank := Rank(0, name); p.lengths[rank] == 0 { // else SCAN gave it twice
				p.lengths[rank] = replies[i].Val() // 0 for one that is gone
				p.fields += p.lengths[rank]
			}
		}
		return nil, err
	}
	o.Page = func(places []Place, l Looked) error {
		if len(p.lengths) >= hashes && p.fields >= int64(wanted) && !places[0].Done {
			scanned = l.Scanned
			return errStopped
		}
		return nil
	}
	err := ReadValues(ctx, client, o)
	if IsForbidden(err) { // as many are taken as there are, hash by hash
		p.fields = 0
		return nil
	}
	p.values = max(1, float64(p.fields))
	if errors.Is(err, errStopped) {
		all := p.node.DBSize(ctx).Val()
		p.values *= max(1, float64(all)/float64(scanned))
		return nil
	}
	return err
}

// part reads values of a server until the sample has upTo: of each hash that was counted its part,
// so that all are looked at.
func (s *sampling) part(ctx context.Context, client redis.UniversalClient, p part, upTo int) error {
	start, limit := len(s.ranked), upTo
	var looked Looked
	full, keys, last := false, 0, "" // not all values were read, of so many keys
	tried, passed := 0, int64(0)     // values, and fields of the hashes until now
	o := p.ValuesOptions
	o.Values = func(_ context.Context, _ redis.UniversalClient, values []Value) (Next, error) {
		for len(values) > 0 {
			n := slices.IndexFunc(values, func(v Value) bool { return v.Key != values[0].Key })
			if n < 0 {
				n = len(values)
			}
			of := values[:n]
			values = values[n:]
			if key := of[0].Key; keys == 0 || key != last {
				keys, last = keys+1, key
				if p.fields > 0 {
					passed = min(passed+p.lengths[Rank(0, key)], p.fields)
					limit = start + int(math.Round(float64(upTo-start)*float64(passed)/float64(p.fields)))
				}
			}
			if len(s.ranked)+len(of) > limit { // an object's fields come in their order
				slices.SortFunc(of, func(a, b Value) int { return cmp.Compare(s.rank(a), s.rank(b)) })
			}
			for _, v := range of {
				if len(s.ranked) >= limit {
					break
				}
				tried++
				if !s.add(ctx, v) {
					full = true
					return Stop, ctx.Err()
				}
			}
			if len(s.ranked) >= upTo {
				full = true
				return Stop, nil // it has given its share
			}
		}
		if s.Progress != nil {
			s.Progress(len(s.ranked), s.Values, fmt.Sprintf("%d values read", len(s.ranked)))
		}
		return More, nil
	}
	o.Enough = func(hash string) bool { return hash == last && len(s.ranked) >= limit }
	o.Page = func(_ []Place, l Looked) error {
		looked = l
		return nil
	}
	err := ReadValues(ctx, client, o)
	s.found.Keys += int(looked.Keys - looked.Skipped)
	s.found.TooLarge += int(looked.TooLarge + looked.LargeFields)
	s.found.Gone += int(looked.Gone)
	if err != nil {
		return err
	}
	added, all := float64(len(s.ranked)-start), int64(0)
	switch {
	case p.fields > 0:
		added = max(added, p.values*added/float64(max(tried, 1)))
	case full:
		all = p.node.DBSize(ctx).Val()
	}
	if all > 0 { // a server that does not say has no more
		listed, scanned := float64(looked.Keys-looked.Skipped), float64(min(looked.Scanned, all))
		added = max(added, float64(all)*listed/scanned*max(added, 1)/float64(keys))
	}
	s.most += added
	return nil
}

// rank is that of a value in the sample. A string has the rank that advise gives it.
func (s *sampling) rank(v Value) uint64 {
	name := v.Key
	if v.Field != "" {
		name += "\x00" + v.Field
	}
	return Rank(s.Seed, name)
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
	h, _, framed := frame.Parse(v.Stored)
	if framed && s.wasted >= MostWasted {
		s.found.Untried++
		return true
	}
	plain, err := s.Unpack(ctx, v.Stored)
	if framed && errors.Is(err, bale.ErrCorrupt) {
		s.wasted += Wasted(int64(h.Length), v.Stored)
	}
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
		s.ranked = append(s.ranked, ranked{s.rank(v), bytes.Clone(plain)})
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
