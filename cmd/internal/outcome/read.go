package outcome

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// Limits of a result of balebench run --json: more than a machine measures in a day. A cell of ten
// rounds is 8 KB of JSON with 400 commas. A forged cell of 2 bytes would take 752 bytes of memory.
const (
	maxResult = 64 << 20
	maxCells  = 2_000
	maxCommas = 1 << 20 // and so elements of lists
	maxParts  = 1 << 15 // rounds, of 31 commas and 240 bytes of memory each, and elements of the run's other lists
	maxPoints = 1_000   // of a distribution, which has 18: the time to draw a line grows with their square
	maxName   = 4 << 10 // bytes of a cell's identity and the mix: each figure of the cell has them for a name
)

// ErrFormat marks a file that is no result of balebench run --json.
var ErrFormat = errors.New("no result of balebench run --json")

// ReadFile reads a result of balebench run --json.
func ReadFile(path string) (*Run, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(f, path)
}

// Read reads a result of balebench run --json. It refuses one that is too large before it takes the
// memory for it.
func Read(from io.Reader, name string) (*Run, error) {
	text, err := io.ReadAll(io.LimitReader(from, maxResult+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var r Run
	if err = checkSize(text); err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err == nil {
		err = checkRun(&r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s is %w: %w", name, ErrFormat, err)
	}
	for i := range r.Cells {
		r.Cells[i].spread()
	}
	return &r, nil
}

// spread gives the estimates of a cell their rounds.
func (c *Cell) spread() {
	perOp := c.ValuesPerSecond.Median / c.OpsPerSecond.Median
	for e, of := range map[*Estimate]func(Round) float64{
		&c.OpsPerSecond: func(r Round) float64 { return r.OpsPerSecond }, &c.ValuesPerSecond: func(r Round) float64 { return perOp * r.OpsPerSecond },
		&c.AllocsPerOp: func(r Round) float64 { return r.AllocsPerOp }, &c.BytesPerOp: func(r Round) float64 { return r.BytesPerOp },
		&c.P50: func(r Round) float64 { return r.StagesP50[len(Stages)-1] }, &c.P99: func(r Round) float64 { return r.P99 },
	} {
		e.Rounds = nil
		for _, r := range c.Rounds {
			if len(r.StagesP50) == len(Stages) {
				e.Rounds = append(e.Rounds, of(r))
			}
		}
	}
}

func checkSize(text []byte) error {
	if len(text) > maxResult {
		return fmt.Errorf("it is larger than %d MiB", maxResult>>20)
	}
	if n := bytes.Count(text, []byte(",")); n > maxCommas {
		return fmt.Errorf("it has %d commas, at most %d are read", n, maxCommas)
	}
	var lists struct {
		Schema                                            string // empty in a result from before it had one
		Cells                                             cellCounts
		Findings, Skipped, Dictionaries, Sweeps, Timeline elements
	}
	if err := json.Unmarshal(text, &lists); err != nil {
		return err
	}
	if want := (&Run{}).Schema(); lists.Schema != "" && lists.Schema != want {
		return fmt.Errorf("its schema is %.40q, and this reads %q", lists.Schema, want)
	}
	if n := lists.Cells.n; n > maxCells {
		return fmt.Errorf("it has %d cells, at most %d are read", n, maxCells)
	}
	if n := lists.Cells.rounds + lists.Findings + lists.Skipped + lists.Dictionaries + lists.Sweeps + lists.Timeline; n > maxParts {
		return fmt.Errorf("it has %d rounds and other parts, at most %d are read", n, maxParts)
	}
	return nil
}

// cellCounts are the numbers of cells and of their rounds.
type cellCounts struct{ n, rounds elements }

// UnmarshalJSON adds to the numbers, as that of elements does.
func (c *cellCounts) UnmarshalJSON(list []byte) error {
	var all []struct{ Rounds elements }
	json.Unmarshal(list, &all)
	c.n += elements(len(all))
	for _, cell := range all {
		c.rounds += cell.Rounds
	}
	return nil
}

// elements is the number of elements of a list in JSON. Counting takes no memory for them.
type elements int

// UnmarshalJSON adds to the number: a forged object may have a list twice.
func (n *elements) UnmarshalJSON(list []byte) error {
	var all []struct{}
	json.Unmarshal(list, &all) // of what type they are does not matter here
	*n += elements(len(all))
	return nil
}

// checkRun returns an error if a file is not a result of balebench run --json.
func checkRun(r *Run) error {
	if len(r.Cells) == 0 {
		return errors.New("it has no cell")
	}
	for _, c := range r.Cells {
		n := len(r.Environment.Mix)
		for _, part := range []string{c.Dataset, c.Track, c.Codec, c.Compress, c.Client, c.Server, c.Batch} {
			n += len(part)
		}
		if n > maxName {
			return fmt.Errorf("a cell has %d bytes of names, at most %d are read", n, maxName)
		}
		if n := max(len(c.Latency), len(c.Service)); n > maxPoints {
			return fmt.Errorf("a latency distribution of %s %s %s has %d points, at most %d are read",
				c.Dataset, c.Codec, c.Compress, n, maxPoints)
		}
		if !c.Verified {
			continue
		}
		if c.Values <= 0 || len(c.Rounds) == 0 || !(c.OpsPerSecond.Median > 0) {
			return fmt.Errorf("%s %s %s has no figures", c.Dataset, c.Codec, c.Compress)
		}
		for _, round := range c.Rounds {
			if len(round.StagesP50) != len(Stages) || !(round.OpsPerSecond > 0) {
				return fmt.Errorf("a round of %s %s %s is not whole", c.Dataset, c.Codec, c.Compress)
			}
		}
	}
	return nil
}
