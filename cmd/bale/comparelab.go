package main

import (
	"encoding/json"
	"fmt"

	"github.com/balekv/bale/cmd/bale/internal/compare"
	"github.com/balekv/bale/cmd/bale/internal/outcome"
)

// labRun is the JSON of bale bench as a run to compare.
func labRun(text []byte) (*compare.Run, error) {
	var r outcome.Run
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("not the JSON of bale bench: %w", err)
	}
	if len(r.Cells) == 0 {
		return nil, fmt.Errorf("%w: not the JSON of bale bench, or a run without a cell", compare.ErrNoBenchmarks)
	}
	return goBenchmarks(&r), nil
}
