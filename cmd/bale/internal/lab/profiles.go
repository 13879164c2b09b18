package lab

import (
	"context"

	"github.com/balekv/bale/cmd/bale/internal/outcome"
)

// ProfileKinds are the kinds of profiles that can be taken.
var ProfileKinds = []string{"cpu", "heap", "mutex", "block"}

// profiles are those of a cell, by kind.
type profiles struct{}

func (c *cell) startProfiles(kinds []string) (stop func(context.Context, *failure)) {
	return func(context.Context, *failure) {}
}

func (p *profiles) results() map[string]outcome.Profile { return nil }
