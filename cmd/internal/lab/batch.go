package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	redigolib "github.com/gomodule/redigo/redis"
	"github.com/mediocregopher/radix/v4"
	"github.com/redis/go-redis/v9"
	rueidislib "github.com/redis/rueidis"

	"github.com/balekv/bale"
	"github.com/balekv/bale/stats"
)

// batcher sends many values at once, as a program would by the client's own calls.
type batcher interface {
	// pipeline sends a SET for each value, or a GET for each key where values are nil, and returns
	// what was read.
	pipeline(ctx context.Context, keys []string, values [][]byte) ([][]byte, error)

	// multi is the same by one MSET or MGET.
	multi(ctx context.Context, keys []string, values [][]byte) ([][]byte, error)
}

// batchBuffers are those of a caller for many values at once.
type batchBuffers struct {
	numbers                 []int
	plain, packed, unpacked [][]byte
}

// many takes as many values as a batch has through all stages together, and compares what came
// back.
func (c *caller) many(ctx context.Context) (err error) {
	v, n, b := c.cell.variant, c.cell.batch.N, &c.batch
	if b.numbers == nil {
		b.numbers, b.plain, b.packed, b.unpacked = make([]int, n), make([][]byte, n), make([][]byte, n), make([][]byte, n)
	}
	for j := range b.numbers {
		b.numbers[j] = c.rng.IntN(len(v.data.Raw))
	}
	keys := c.keys[:n]
	send := c.cell.client.batcher.pipeline
	if c.cell.batch.MSet {
		send = c.cell.client.batcher.multi
	}
	c.began()
	for j, i := range b.numbers {
		if b.plain[j], err = v.coder.Encode(b.plain[j][:0], i); err != nil {
			return fmt.Errorf("serialize value %d: %w", i, err)
		}
	}
	c.times[serialize] = c.lap()
	for j := range b.numbers {
		if b.packed[j], err = v.packer.Pack(b.packed[j][:0], b.plain[j]); err != nil {
			return fmt.Errorf("pack value %d: %w", b.numbers[j], err)
		}
	}
	c.times[pack] = c.lap()
	if _, err := send(ctx, keys, b.packed); err != nil {
		return fmt.Errorf("set %d values: %w", n, err)
	}
	c.times[set] = c.lap()
	stored, err := send(ctx, keys, nil)
	if err != nil {
		return fmt.Errorf("get %d values: %w", n, err)
	}
	c.times[get] = c.lap()
	if len(stored) != n {
		return fmt.Errorf("%w: %d values came back of %d", errMismatch, len(stored), n)
	}
	for j := range stored {
		if stored[j] == nil && b.packed[j] != nil {
			return fmt.Errorf("get: %w", bale.ErrNotFound)
		}
		if b.unpacked[j], err = v.packer.Unpack(ctx, b.unpacked[j][:0], stored[j]); err != nil {
			return fmt.Errorf("unpack value %d: %w", b.numbers[j], err)
		}
	}
	c.times[unpack] = c.lap()
	for j := range stored {
		err = errors.Join(err, v.coder.Decode(b.unpacked[j]))
	}
	c.times[deserialize] = c.lap()
	c.sum()
	for j := range stored {
		if !bytes.Equal(b.unpacked[j], b.plain[j]) {
			return errMismatch
		}
	}
	if err != nil {
		return fmt.Errorf("deserialize: %w", err)
	}
	c.tellMany(ctx, stored)
	return nil
}

// tellMany gives a batch to the recorder.
func (c *caller) tellMany(ctx context.Context, stored [][]byte) {
	v := c.cell.variant
	if v.recorder == nil {
		return
	}
	n := int32(len(stored))
	write := stats.Event{Op: stats.SetMany, Keys: n, Timed: v.recorder.Timed(ctx)}
	read := stats.Event{Op: stats.GetMany, Keys: n, Hits: n, Timed: write.Timed}
	for j := range stored {
		write.Plain, write.Stored = write.Plain+len(c.batch.plain[j]), write.Stored+len(c.batch.packed[j])
		read.Plain, read.Stored = read.Plain+len(c.batch.unpacked[j]), read.Stored+len(stored[j])
	}
	write.Algorithm, write.DictionaryID = packedBy(c.batch.packed[n-1])
	write.Times[stats.Encode], write.Times[stats.Pack], write.Times[stats.Store] = c.times[serialize], c.times[pack], c.times[set]
	read.Times[stats.Store], read.Times[stats.Unpack], read.Times[stats.Decode] = c.times[get], c.times[unpack], c.times[deserialize]
	v.recorder.Record(ctx, write)
	v.recorder.Record(ctx, read)
}

// notFound is a miss, whatever the client calls it.
func notFound(key string) error { return fmt.Errorf("%w: key %q", bale.ErrNotFound, key) }

type goredisBatcher struct{ redis.Cmdable }

func (c goredisBatcher) pipeline(ctx context.Context, keys []string, values [][]byte) ([][]byte, error) {
	gets := make([]*redis.StringCmd, 0, len(keys))
	if _, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for j, key := range keys {
			if values != nil {
				p.Set(ctx, key, values[j], 0)
			} else {
				gets = append(gets, p.Get(ctx, key))
			}
		}
		return nil
	}); err != nil && !errors.Is(err, redis.Nil) || values != nil {
		return nil, err
	}
	out := make([][]byte, len(gets))
	for j, get := range gets {
		var err error
		if out[j], err = get.Bytes(); errors.Is(err, redis.Nil) {
			return nil, notFound(keys[j])
		} else if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c goredisBatcher) multi(ctx context.Context, keys []string, values [][]byte) ([][]byte, error) {
	if values != nil {
		args := make([]any, 0, 2*len(keys))
		for j, key := range keys {
			args = append(args, key, values[j])
		}
		return nil, c.MSet(ctx, args...).Err()
	}
	got, err := c.MGet(ctx, keys...).Result()
	if err != nil {
		return nil, err
	}
	out := make([][]byte, len(got))
	for j := range got {
		s, ok := got[j].(string)
		if !ok {
			return nil, notFound(keys[j])
		}
		out[j] = []byte(s)
	}
	return out, nil
}

type rueidisBatcher struct{ rueidislib.Client }

func (c rueidisBatcher) pipeline(ctx context.Context, keys []string, values [][]byte) ([][]byte, error) {
	commands := make(rueidislib.Commands, len(keys))
	for j, key := range keys {
		if values != nil {
			commands[j] = c.B().Set().Key(key).Value(rueidislib.BinaryString(values[j])).Build()
		} else {
			commands[j] = c.B().Get().Key(key).Build()
		}
	}
	replies := c.DoMulti(ctx, commands...)
	out := make([][]byte, len(replies))
	for j := range replies {
		var err error
		if values != nil {
			err = replies[j].Error()
		} else {
			out[j], err = replies[j].AsBytes()
		}
		if rueidislib.IsRedisNil(err) {
			return nil, notFound(keys[j])
		} else if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c rueidisBatcher) multi(ctx context.Context, keys []string, values [][]byte) ([][]byte, error) {
	if values != nil {
		pairs := c.B().Mset().KeyValue()
		for j, key := range keys {
			pairs = pairs.KeyValue(key, rueidislib.BinaryString(values[j]))
		}
		return nil, c.Do(ctx, pairs.Build()).Error()
	}
	got, err := c.Do(ctx, c.B().Mget().Key(keys...).Build()).ToArray()
	if err != nil {
		return nil, err
	}
	out := make([][]byte, len(got))
	for j := range got {
		if out[j], err = got[j].AsBytes(); rueidislib.IsRedisNil(err) {
			return nil, notFound(keys[j])
		} else if err != nil {
			return nil, err
		}
	}
	return out, nil
}

type redigoBatcher struct{ *redigolib.Pool }

func (c redigoBatcher) pipeline(ctx context.Context, keys []string, values [][]byte) (_ [][]byte, err error) {
	conn, err := c.GetContext(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for j, key := range keys {
		if values != nil {
			err = conn.Send("SET", key, values[j])
		} else {
			err = conn.Send("GET", key)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := conn.Flush(); err != nil {
		return nil, err
	}
	out := make([][]byte, len(keys))
	for j := range keys {
		reply, err := conn.Receive()
		if values == nil {
			out[j], err = redigolib.Bytes(reply, err)
		}
		if errors.Is(err, redigolib.ErrNil) {
			return nil, notFound(keys[j])
		} else if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c redigoBatcher) multi(ctx context.Context, keys []string, values [][]byte) (_ [][]byte, err error) {
	conn, err := c.GetContext(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	args := redigolib.Args{}
	for j, key := range keys {
		args = append(args, key)
		if values != nil {
			args = append(args, values[j])
		}
	}
	if values != nil {
		_, err := conn.Do("MSET", args...)
		return nil, err
	}
	return redigolib.ByteSlices(conn.Do("MGET", args...))
}

type radixBatcher struct{ radix.Client }

func (c radixBatcher) pipeline(ctx context.Context, keys []string, values [][]byte) ([][]byte, error) {
	p := radix.NewPipeline()
	out := make([][]byte, len(keys))
	for j, key := range keys {
		if values != nil {
			p.Append(radix.Cmd(nil, "SET", key, string(values[j])))
		} else {
			p.Append(radix.Cmd(&out[j], "GET", key))
		}
	}
	return out, c.Do(ctx, p)
}

func (c radixBatcher) multi(ctx context.Context, keys []string, values [][]byte) ([][]byte, error) {
	if values != nil {
		args := make([]string, 0, 2*len(keys))
		for j, key := range keys {
			args = append(args, key, string(values[j]))
		}
		return nil, c.Do(ctx, radix.Cmd(nil, "MSET", args...))
	}
	out := make([][]byte, 0, len(keys))
	err := c.Do(ctx, radix.Cmd(&out, "MGET", keys...))
	return out, err
}
