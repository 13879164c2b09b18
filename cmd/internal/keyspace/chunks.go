package keyspace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/frame"
)

// ForEver is how long a key without an expiry lives.
const ForEver = time.Duration(math.MaxInt64)

// missingShown is how many of the keys that are missing are named.
const missingShown = 5

// Chunks is what there is of the chunks of a stream.
type Chunks struct {
	Number  int   // that there should be
	Bytes   int64 // of those that are there
	Missing []int // the first that are not, or are no chunks

	// Shortest and Longest are how long those that are there live.
	Shortest, Longest time.Duration
}

// WholeOf returns an error if chunks are missing, or have not the bytes that the manifest says.
func (c *Chunks) WholeOf(stored int64) error {
	switch {
	case len(c.Missing) == 0 && c.Bytes == stored:
		return nil
	case len(c.Missing) == 0:
		return fmt.Errorf("%w: the chunks have %d bytes, and the manifest says %d", bale.ErrCorrupt, c.Bytes, stored)
	}
	return fmt.Errorf("%w: of %d chunks some are missing or damaged: %d", bale.ErrCorrupt, c.Number, c.Missing)
}

// LookAt looks for the n chunks of a stream, a page at a time, and reads only their headers, at a
// pace.
// It ends after the first page that misses chunks: the number of chunks may be forged.
func LookAt(
	ctx context.Context, client redis.UniversalClient, n int, key func(i int) string, pace *Pacer,
) (*Chunks, error) {
	c := &Chunks{Number: n, Shortest: ForEver}
	name := len(key(0)) // which is sent three times
	most := min(max(replyBytes/3/name, 1), pageSize)
	page := min(missingShown, most, n) // of a forged one none are there
	for start := 0; start < n && c.Missing == nil; start, page = start+page, min(most, n-start-page) {
		if err := pace.Wait(ctx, nil, page, 3*page*name); err != nil {
			return nil, err
		}
		lengths, starts, lives := make([]*redis.IntCmd, page), make([]*redis.StringCmd, page), make([]*redis.DurationCmd, page)
		if _, err := client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i := range page {
				k := key(start + i)
				lengths[i], starts[i], lives[i] = p.StrLen(ctx, k), p.GetRange(ctx, k, 0, frame.MaxHeaderSize-1), p.PTTL(ctx, k)
			}
			return nil
		}); err != nil && !IsReply(err) {
			return nil, err
		}
		for i := range page {
			length, err := lengths[i].Result()
			if err != nil && !isWrongType(err) {
				return nil, fmt.Errorf("STRLEN %q: %w", key(start+i), err)
			}
			if err := starts[i].Err(); err != nil && !isWrongType(err) && !errors.Is(err, redis.Nil) {
				return nil, fmt.Errorf("GETRANGE %q: %w", key(start+i), err)
			}
			h, offset, ok := frame.Parse([]byte(starts[i].Val())) // nothing of another type, or where none is
			if !ok || h.Algorithm != frame.Stored || uint64(length-int64(offset)) != h.Length {
				if len(c.Missing) < missingShown {
					c.Missing = append(c.Missing, start+i)
				}
				continue
			}
			live, err := lifetime(lives[i])
			if err != nil {
				return nil, err
			}
			c.Bytes += length
			c.Shortest, c.Longest = min(c.Shortest, live), max(c.Longest, live)
		}
	}
	return c, nil
}

// Lives is how long a key lives; zero for one that is not there.
func Lives(ctx context.Context, client redis.UniversalClient, key string) (time.Duration, error) {
	return lifetime(client.PTTL(ctx, key))
}

// lifetime reads the reply to PTTL, of which -1 is no expiry, and -2 no key.
func lifetime(reply *redis.DurationCmd) (time.Duration, error) {
	d, err := reply.Result()
	switch {
	case err != nil:
		return 0, fmt.Errorf("PTTL: %w", err)
	case d == -1:
		return ForEver, nil
	}
	return max(d, 0), nil
}
