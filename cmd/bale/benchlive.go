package main

import (
	"context"

	"github.com/balekv/bale/cmd/bale/internal/lab"
	"github.com/balekv/bale/cmd/bale/internal/outcome"
)

type livePage struct{}

func (*livePage) Close() error { return nil }

func (b *benchCommand) live(ctx context.Context, s *streams, servers []*lab.Server, c *lab.Config) (*livePage, error) {
	return &livePage{}, nil
}

func (b *benchCommand) push(ctx context.Context, s *streams, r *outcome.Run) error { return nil }

func (b *benchCommand) twoCommands(ctx context.Context, s *streams) error { return nil }
