package content

import "testing"

// TestCollidingGrams: nobody can choose values whose runs of bytes all have one place in the table,
// which would take minutes for a group.
func TestCollidingGrams(t *testing.T) {
	const shift, wanted = 44, 30_000 // the table of the largest sample, and a third of its runs
	var forged []byte
	for x, n := uint64(0), 0; n < wanted; x++ {
		if g := x&(1<<48-1) | 1<<63; g*0x9e3779b97f4a7c15>>shift < 64 {
			for i := range gramSize {
				forged = append(forged, byte(x>>(8*i)))
			}
			n++
		}
	}
	var values [][]byte
	for len(forged) > 0 {
		n := min(len(forged), maxGramValue/gramSize*gramSize)
		values, forged = append(values, forged[:n]), forged[n:]
	}
	filler := make([]byte, maxGramValue) // for a table as large
	for range 6 {
		values = append(values, filler)
	}
	run, longest := 0, 0
	for _, g := range newGrams(values).table {
		if run++; g == 0 {
			run = 0
		}
		longest = max(longest, run)
	}
	if longest > 1000 {
		t.Errorf("%d of %d runs stand side by side in the table", longest, wanted)
	}
}
