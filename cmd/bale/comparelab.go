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
	if err := checkRun(&r); err != nil {
		return nil, fmt.Errorf("not the JSON of bale bench: %w", err)
	}
	return goBenchmarks(&r), nil
}
