package dict

import (
	"context"
	"encoding/binary"
	"slices"
)

// coverBits is the size of the table of frequencies, as a power of two: 4 MiB, the default of
// libzstd's fastcover.
const coverBits = 20

// coverPasses is how often the search passes over all samples to fill a dictionary, as in libzstd.
const coverPasses = 4

// checkEvery is how many samples are counted between two looks at the context.
const checkEvery = 256

// cover selects the content of a dictionary of size bytes. It picks the segments of k bytes with
// the most frequent content, and puts the best one last. It is FastCover of libzstd (fastcover.c),
// on substrings of d bytes, 6 or 8. See "Effective Construction of Relative Lempel-Ziv
// Dictionaries" by Liao, Petri, Moffat and Wirth (2016).
func cover(ctx context.Context, samples [][]byte, size, k, d int) ([]byte, error) {
	data := slices.Concat(samples...)
	n := len(data) - max(d, 8) + 1 // positions that a substring may start at
	if n < k || k < d {
		return nil, nil
	}
	hash := func(i int) uint32 {
		v := binary.LittleEndian.Uint64(data[i:])
		if d == 6 {
			v <<= 16
		}
		return uint32(v * 0xCF1BBCDCB7A56463 >> (64 - coverBits))
	}
	freqs := make([]uint32, 1<<coverBits)
	start := 0
	for i, s := range samples { // not across the border of two samples
		if i%checkEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		for i := start; i+max(d, 8) <= start+len(s) && i < n; i++ {
			freqs[hash(i)]++
		}
		start += len(s)
	}
	inSegment := make([]uint16, 1<<coverBits)
	epochs := max(1, size/k/coverPasses)
	epochSize := n / epochs
	if minimum := 10 * k; epochSize < minimum {
		epochSize = min(minimum, n)
		epochs = max(1, n/epochSize)
	}
	best := func(begin, end int) (from, to int, score uint64) {
		window, windowScore := begin, uint64(0)
		add := func(i int) {
			h := hash(i)
			if inSegment[h] == 0 {
				windowScore += uint64(freqs[h])
			}
			inSegment[h]++
		}
		remove := func() {
			h := hash(window)
			window++
			if inSegment[h]--; inSegment[h] == 0 {
				windowScore -= uint64(freqs[h])
			}
		}
		for i := begin; i < end; i++ {
			add(i)
			if i-window+1 > k-d+1 {
				remove()
			}
			if windowScore > score {
				from, to, score = window, i+1, windowScore
			}
		}
		for window < end {
			remove()
		}
		return from, to, score
	}
	content := make([]byte, size)
	tail := size
	idle, maxIdle := 0, min(max(10, epochs>>3), 100)
	for epoch := 0; tail > 0 && idle < maxIdle; epoch = (epoch + 1) % epochs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		begin := epoch * epochSize
		from, to, score := best(begin, min(begin+epochSize, n))
		if score == 0 {
			idle++
			continue
		}
		idle = 0
		for i := from; i < to; i++ {
			freqs[hash(i)] = 0 // what is in the dictionary counts no more
		}
		length := min(to-from+d-1, tail)
		if length < d {
			break
		}
		tail -= length
		copy(content[tail:], data[from:from+length])
	}
	return content[tail:], nil
}
