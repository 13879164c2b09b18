package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale"
	"github.com/balekv/bale/adapter/goredis"
	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/printable"
	"github.com/balekv/bale/stream"
)

// largestRecord is more than a manifest or a journal has, in bytes.
const largestRecord = 1 << 20

// recordStore reads no more of a value than a manifest or a journal has. Anybody can put something
// large where a repair looks for one. It is for streams that are mended, and not read.
type recordStore struct {
	*goredis.Store
	client redis.UniversalClient
}

// Get returns the start of a value, which is no record if there is more.
func (s recordStore) Get(ctx context.Context, key string) ([]byte, error) {
	b, err := s.client.GetRange(ctx, key, 0, largestRecord).Bytes()
	if err != nil || len(b) > 0 {
		return b, err
	}
	there, err := s.client.Exists(ctx, key).Result()
	if err == nil && there == 0 {
		err = bale.ErrNotFound
	}
	return b, err
}

// chunkKeys says where the chunks are.
func chunkKeys(m *stream.Manifest, key string) string {
	switch m.Chunks {
	case 0:
		return "there is none"
	case 1:
		return m.ChunkKey(key, 0)
	}
	return fmt.Sprintf("%s to %d", m.ChunkKey(key, 0), m.Chunks-1)
}

// errStream says that a value is a stream, and how to get it.
func errStream(stored []byte) error {
	m, err := stream.ParseManifest(stored)
	if err != nil {
		return err
	}
	return fmt.Errorf("it is %v: its content is under other keys of the same Redis (%s), and a program reads it with stream.Streams.GetReader; bale inspect --redis URL --key KEY shows whether all is there",
		&m, chunkKeys(&m, "KEY"))
}

// showStream explains a stream, and looks for its chunks if there is a client.
func (c *inspectCommand) showStream(ctx context.Context, w io.Writer, client redis.UniversalClient, stored []byte) error {
	m, err := stream.ParseManifest(stored)
	if err != nil {
		return err
	}
	printable.Fprintf(w, "content: %v\n", &m)
	if client == nil || c.Field != "" {
		printable.Fprintf(w, "chunks: %s\n", chunkKeys(&m, "KEY"))
		return nil
	}
	printable.Fprintf(w, "chunks: %s\n", chunkKeys(&m, c.Key))
	lives, err := keyspace.Lives(ctx, client, c.Key)
	if err != nil {
		return err
	}
	chunks, err := keyspace.LookAt(ctx, client, m.Chunks, func(i int) string { return m.ChunkKey(c.Key, i) }, &keyspace.Pacer{Pace: keyspace.Pace{Rate: chunkRate}})
	if err != nil {
		return err
	}
	if len(chunks.Missing) > 0 || chunks.Bytes != m.Stored {
		now, err := c.fetch(ctx, client)
		if err != nil && !errors.Is(err, bale.ErrNotFound) {
			return err
		}
		if !bytes.Equal(now, stored) {
			return errors.New("the stream was replaced or deleted while it was looked at: look again")
		}
	}
	switch {
	case len(chunks.Missing) > 0:
		return missingChunks(&m, chunks)
	case chunks.Bytes != m.Stored:
		return fmt.Errorf("%w: the chunks have %d bytes, and the manifest says %d", bale.ErrCorrupt, chunks.Bytes, m.Stored)
	}
	printable.Fprintf(w, "the key lives %s; all chunks are there, with %d bytes", lifetime(lives), chunks.Bytes)
	switch {
	case m.Chunks == 0:
	case chunks.Shortest == chunks.Longest:
		printable.Fprintf(w, ", and live %s", lifetime(chunks.Shortest))
	default:
		printable.Fprintf(w, ", and live %s to %s", lifetime(chunks.Shortest), lifetime(chunks.Longest))
	}
	printable.Fprintf(w, "\n")
	if m.Chunks > 0 && chunks.Shortest < lives {
		printable.Fprintf(w, "WARNING: chunks expire before the key does, and the value is lost then. Right after it was written that lasts for a moment\n")
	}
	return nil
}

// chunkRate is how many chunks a second inspect looks for: those of the largest stream in half a
// minute.
const chunkRate = 5000

// missingChunks is the error of a stream whose chunks are not all there.
func missingChunks(m *stream.Manifest, c *keyspace.Chunks) error {
	return fmt.Errorf("%w: of %d chunks some are missing: %d", bale.ErrCorrupt, m.Chunks, c.Missing)
}

// lifetime says how long a key lives.
func lifetime(d time.Duration) string {
	if d == keyspace.ForEver {
		return "for ever"
	}
	return about(d)
}

// about is a time to the second, a short one to the millisecond.
func about(d time.Duration) string {
	if d < 10*time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
