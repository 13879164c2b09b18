package bale

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/balekv/bale/frame"
	"github.com/balekv/bale/internal/bufpool"
)

// Batch unpacks the values of one operation on many keys within PackerOptions.Budget. Make one with
// [Packer.Batch] for each operation. It is for one goroutine at a time.
type Batch struct {
	packer  *Packer
	decoded int           // bytes that the values so far have, or say that they have
	unknown int           // values so far whose dictionary is unknown
	fetched int           // and whose dictionary was not at hand
	waited  time.Duration // for dictionaries, in vain
}

// maxUnknown is how many values with unknown dictionaries an operation has before it asks for no
// more of them: each costs a round trip to the registry, and a forged frame has a few bytes.
const maxUnknown = 64

// maxFetched is how many dictionaries an operation asks for at most: as many as a dict.Group keeps.
// With more in turn each value of a few bytes would fetch a whole dictionary again.
const maxFetched = 256

// patience is how long an operation waits in vain for dictionaries, beside the last wait. Then it
// asks for the others, and waits for none of them: soon is for that. Whoever waits behind the
// operation would wait as long, as with a client that sends one pipeline at a time.
const (
	patience = 500 * time.Millisecond
	soon     = time.Millisecond
)

// over is for sources of dictionaries that are to give what is at hand.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Batch begins an operation. A [Cache] does so itself.
func (p *Packer) Batch() Batch { return Batch{packer: p} }

// Unpack is [Packer.Unpack] for one value of the operation. If the operation would have more
// decoded bytes than PackerOptions.Budget, the error is ErrBudget, and the value is not decoded. A
// smaller value may still fit after that. An operation asks the source for at most 256
// dictionaries, and for none after 64 values with unknown ones. A value whose dictionary is not at
// hand then gets ErrUnknownDictionary.
func (b *Batch) Unpack(ctx context.Context, dst, src []byte) ([]byte, error) {
	return b.packer.unpack(ctx, dst, src, b)
}

// take counts a value, unless the budget of its batch does not allow it. A nil Batch is a single
// value, which MaxSize bounds.
func (b *Batch) take(h *frame.Header) error {
	if b == nil {
		return nil
	}
	if int(h.Length) > b.packer.budget-b.decoded { // at most MaxSize
		return fmt.Errorf("%w: %d bytes more than the %d decoded so far, and Budget is %d: read fewer values at once, or raise PackerOptions.Budget", ErrBudget, h.Length, b.decoded, b.packer.budget)
	}
	b.decoded += int(h.Length)
	return nil
}

// largeValue is the size in bytes above which a value passes the gate.
const largeValue = bufpool.MaxCap

// gate bounds the decoded bytes of large values that are decoded at a time. The others wait in
// line. Small values pass by: their callers' goroutines and connections cost as much.
type gate struct {
	turn  chan struct{} // held by the first in line
	freed chan struct{} // tells it that bytes came back

	mu   sync.Mutex
	free int // bytes
}

func newGate(bytes int) *gate {
	return &gate{turn: make(chan struct{}, 1), freed: make(chan struct{}, 1), free: bytes}
}

// enter waits for n bytes, at most the whole budget. The caller must give them back. After the end
// of ctx it takes what is free.
func (g *gate) enter(ctx context.Context, n int) error {
	select {
	case g.turn <- struct{}{}:
	default:
		select {
		case g.turn <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("while other large values were decoded (PackerOptions.Budget): %w", ctx.Err())
		}
	}
	defer func() { <-g.turn }()
	for {
		g.mu.Lock()
		enough := g.free >= n
		if enough {
			g.free -= n
		}
		g.mu.Unlock()
		if enough {
			return nil
		}
		select {
		case <-g.freed:
		case <-ctx.Done():
			return fmt.Errorf("while other large values were decoded (PackerOptions.Budget): %w", ctx.Err())
		}
	}
}

// leave gives bytes back.
func (g *gate) leave(n int) {
	g.mu.Lock()
	g.free += n
	g.mu.Unlock()
	select {
	case g.freed <- struct{}{}:
	default:
	}
}
