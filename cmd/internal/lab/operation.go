package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/balekv/bale"
	"github.com/balekv/bale/cmd/internal/latency"
	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/stats"
)

// The places of what is recorded of an operation: its stages, in the order of outcome.Stages, and
// in an open loop two more.
const (
	serialize = iota
	pack
	set
	get
	unpack
	deserialize
	total
	timed

	service  = timed     // the whole operation from when it really started
	late     = timed + 1 // how long after its time the generator sent it
	recorded = timed + 2
)

// absent is the time of a stage that an operation does not have.
const absent = time.Duration(-1)

// caller does operations, one after the other, with buffers and a clock of its own. The lab itself
// allocates nothing for them, so that the allocations it reports are the library's and the
// client's.
type caller struct {
	cell   *cell
	rng    *rand.Rand
	keys   []string    // its own, or everybody's
	draw   *popularity // of everybody's; nil for its own
	misses string      // begins keys that do not exist
	times  [timed]time.Duration
	turn   int
	hit    int           // 1 for a GET that found a value, -1 for one that did not, 0 for none
	epoch  time.Time     // what its clock counts from,
	at     time.Duration // and when it was read last

	plain, packed, unpacked []byte

	batch batchBuffers
}

// next does an operation, and leaves what its stages took in times.
func (c *caller) next(ctx context.Context) error {
	switch mix := c.cell.mix; {
	case c.cell.batch.N > 0:
		return c.many(ctx)
	case !mix.Single():
		// Keys in turn and values at random: what a key held before is most often another value, so
		// that a write that is lost is found.
		c.turn++
		return c.roundTrip(ctx, c.rng.IntN(len(c.cell.data.Raw)), c.keys[c.turn%len(c.keys)])
	case c.rng.IntN(mix.Gets+mix.Sets) < mix.Gets:
		return c.get(ctx)
	default:
		return c.set(ctx)
	}
}

// began starts the clock, and lap reads it and starts it again. A reading takes half as long as one
// by [time.Now], which reads two clocks.
func (c *caller) began() { c.at = time.Since(c.epoch) }

func (c *caller) lap() time.Duration {
	now := time.Since(c.epoch)
	d := now - c.at
	c.at = now
	return d
}

// roundTrip takes value i through all stages and compares what came back.
func (c *caller) roundTrip(ctx context.Context, i int, key string) (err error) {
	v, store := c.cell.variant, c.cell.client.store
	c.began()
	if c.plain, err = v.coder.Encode(c.plain[:0], i); err != nil {
		return fmt.Errorf("serialize value %d: %w", i, err)
	}
	c.times[serialize] = c.lap()
	if c.packed, err = v.packer.Pack(c.packed[:0], c.plain); err != nil {
		return fmt.Errorf("pack value %d: %w", i, err)
	}
	c.times[pack] = c.lap()
	if err := store.Set(ctx, key, c.packed, bale.Expiry{}); err != nil {
		return fmt.Errorf("set: %w", err)
	}
	c.times[set] = c.lap()
	stored, err := store.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	c.times[get] = c.lap()
	if c.unpacked, err = v.packer.Unpack(ctx, c.unpacked[:0], stored); err != nil {
		return fmt.Errorf("unpack value %d: %w", i, err)
	}
	c.times[unpack] = c.lap()
	err = v.coder.Decode(c.unpacked)
	c.times[deserialize] = c.lap()
	c.sum()
	// What is not the value explains an error, too.
	if !bytes.Equal(c.unpacked, c.plain) {
		return errMismatch
	}
	if err != nil {
		return fmt.Errorf("deserialize value %d: %w", i, err)
	}
	c.tell(ctx, stats.Set, stats.Get, len(stored))
	return nil
}

// none records every stage as absent from the operation.
func (c *caller) none() {
	for i := range c.times {
		c.times[i] = absent
	}
}

// record counts the stages that there were.
func (c *caller) record(to *latency.Shard) {
	if !c.cell.mix.Single() {
		to.RecordAll(c.times[:])
		return
	}
	for i, d := range c.times {
		if d != absent {
			to.Record(i, d)
		}
	}
}

// sum adds the stages up.
func (c *caller) sum() {
	whole := time.Duration(0)
	for _, d := range c.times[:total] {
		whole += max(0, d)
	}
	c.times[total] = whole
}

// set writes the value of a key once more.
func (c *caller) set(ctx context.Context) (err error) {
	v := c.cell.variant
	key := c.draw.draw(c.rng)
	i := key % len(v.data.Raw)
	c.none()
	c.began()
	if c.plain, err = v.coder.Encode(c.plain[:0], i); err != nil {
		return fmt.Errorf("serialize value %d: %w", i, err)
	}
	c.times[serialize] = c.lap()
	if c.packed, err = v.packer.Pack(c.packed[:0], c.plain); err != nil {
		return fmt.Errorf("pack value %d: %w", i, err)
	}
	c.times[pack] = c.lap()
	if err := c.cell.client.store.Set(ctx, c.keys[key], c.packed, bale.Expiry{}); err != nil {
		return fmt.Errorf("set: %w", err)
	}
	c.times[set] = c.lap()
	c.hit = 0
	c.sum()
	c.tell(ctx, stats.Set, stats.Set, 0)
	return nil
}

// get reads the value of a key, or of one that does not exist, and compares it with the expected
// one. It compares the bytes first. If a codec has more than one way to write a value, it compares
// the decoded values.
func (c *caller) get(ctx context.Context) error {
	v := c.cell.variant
	key := c.draw.draw(c.rng)
	i := key % len(v.data.Raw)
	c.none()
	name, there := c.keys[key], c.cell.mix.Misses == 0 || c.rng.Float64() >= c.cell.mix.Misses
	if !there {
		name = c.misses // one key stands for all that do not exist: the server looks them all up alike
	}
	c.began()
	stored, err := c.cell.client.store.Get(ctx, name)
	c.times[get] = c.lap()
	if !there && errors.Is(err, bale.ErrNotFound) {
		c.hit = -1
		c.sum()
		c.tell(ctx, stats.Get, stats.Get, 0)
		return nil
	}
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	if !there {
		return errMismatch
	}
	if c.unpacked, err = v.packer.Unpack(ctx, c.unpacked[:0], stored); err != nil {
		return fmt.Errorf("unpack value %d: %w", i, err)
	}
	c.times[unpack] = c.lap()
	err = v.coder.Decode(c.unpacked)
	c.times[deserialize] = c.lap()
	c.hit = 1
	c.sum()
	if !bytes.Equal(c.unpacked, v.plainOf[i]) {
		if err := v.coder.Verify(c.unpacked, i); err != nil {
			return fmt.Errorf("%w: %w", errMismatch, err)
		}
	}
	if err != nil {
		return fmt.Errorf("deserialize value %d: %w", i, err)
	}
	c.tell(ctx, stats.Get, stats.Get, len(stored))
	return nil
}

// tell gives the operation to the recorder, as one event for a write and one for a read.
func (c *caller) tell(ctx context.Context, first, last stats.Op, stored int) {
	v := c.cell.variant
	if v.recorder == nil {
		return
	}
	e := stats.Event{Keys: 1, Timed: v.recorder.Timed(ctx)}
	if first == stats.Set {
		e.Op, e.Plain, e.Stored = stats.Set, len(c.plain), len(c.packed)
		e.Algorithm, e.DictionaryID = packedBy(c.packed)
		e.Times[stats.Encode], e.Times[stats.Pack], e.Times[stats.Store] = c.times[serialize], c.times[pack], c.times[set]
		v.recorder.Record(ctx, e)
	}
	if last == stats.Get {
		e = stats.Event{Op: stats.Get, Keys: 1, Timed: e.Timed, Plain: len(c.unpacked), Stored: stored, Hits: 1}
		if c.hit < 0 {
			e.Hits, e.Misses, e.Plain = 0, 1, 0
		}
		e.Times[stats.Store], e.Times[stats.Unpack], e.Times[stats.Decode] = c.times[get], max(0, c.times[unpack]), max(0, c.times[deserialize])
		v.recorder.Record(ctx, e)
	}
}

// packedBy reads how a value is packed from its header.
func packedBy(packed []byte) (frame.Algorithm, frame.DictionaryID) {
	h, _, ok := frame.Parse(packed)
	if !ok {
		return frame.Stored, 0
	}
	return h.Algorithm, h.DictionaryID
}
