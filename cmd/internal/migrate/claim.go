package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/balekv/bale/cmd/internal/keyspace"
	"github.com/balekv/bale/cmd/internal/registry"
	"github.com/balekv/bale/dict"
	"github.com/balekv/bale/frame"
)

const (
	writerGraces = 5                     // a writer may go on for so many grace periods: see dict.Registry.Use
	firstWait    = 10 * time.Millisecond // between two questions to a registry that does not answer
	longestWait  = time.Second
)

// claim keeps a dictionary in use while a run writes with it, by the rules of [dict.Registry.Use].
type claim struct {
	Registry   *dict.Registry
	Group      string
	Dictionary frame.DictionaryID

	// Join makes the data server known to the registry. Where the registry has lost its settings,
	// that makes new ones, by which nothing is removed.
	Join func(context.Context) error

	// Waiting, if set, receives once per outage the reason why the run waits.
	Waiting func(err error)

	until, renew time.Time
}

// Hold returns until when the run may write. It asks the registry once in each grace period, and
// waits while there is no answer. It fails when the dictionary was removed.
func (c *claim) Hold(ctx context.Context) (until time.Time, err error) {
	warned := false
	for wait := firstWait; !time.Now().Before(c.renew); wait = min(2*wait, longestWait) {
		start := time.Now()
		grace, err := c.Registry.Use(ctx, c.Group, c.Dictionary)
		switch {
		case err == nil:
			c.until, c.renew = start.Add(writerGraces*grace), start.Add(grace)
			if time.Now().Before(c.until) {
				return c.until, nil
			}
			continue // the answer took too long
		case ctx.Err() != nil:
			return time.Time{}, ctx.Err()
		case errors.Is(err, dict.ErrNotInGroup), errors.Is(err, dict.ErrUnknown):
			return time.Time{}, fmt.Errorf("dictionary %v was removed, so nothing more is packed with it; start again with another one, without the file of --resume: %w", c.Dictionary, err)
		case registry.Foreign(err), keyspace.IsForbidden(err), // waiting changes nothing
			c.until.IsZero() && errors.Is(err, keyspace.ErrReplica):
			return time.Time{}, err
		case errors.Is(err, dict.ErrUnlisted):
			if joined := c.Join(ctx); joined == nil {
				continue
			}
		}
		if c.Waiting != nil && !warned {
			warned = true
			c.Waiting(err)
		}
		select {
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		case <-time.After(wait):
		}
	}
	return c.until, ctx.Err()
}
