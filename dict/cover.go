package dict

import (
	"context"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
)

// coverBits is the size of the largest table of frequencies, as a power of two: 4 MiB, the default
// of libzstd's fastcover. Samples with fewer bytes have two to four entries for each of them.
const coverBits = 20

// coverPasses is how often the search passes over all samples to fill a dictionary, as in libzstd.
const coverPasses = 4

// checkEvery is how many samples are counted, or scored, between two looks at the context.
const checkEvery = 64

// substring is how many bytes are counted as one.
const substring = 8

// denseBytes bounds the bytes of samples whose substrings get numbers of their own, which take four
// bytes each. Larger samples go by the hash alone, at a few times the time.
const denseBytes = 4 << 20

// frequencies are those of the samples' substrings. A substring goes by its slot: its hash, or the
// number of that in the order of first appearance, with which neighbors are near in memory.
type frequencies struct {
	samples [][]byte
	data    []byte // the samples
	starts  []int  // of the samples in data
	of      []uint32
	shift   int      // of a hash
	slots   []uint32 // by position, nil where hashes are slots

	scored uint32   // how often score was called
	seen   []uint32 // the call that a substring was seen in last
}

// count counts substrings; up to dense bytes of samples have numbers.
func count(ctx context.Context, samples [][]byte, dense int) (*frequencies, error) {
	f := &frequencies{samples: samples, data: slices.Concat(samples...)}
	log := min(bits.Len(uint(len(f.data)))+1, coverBits)
	f.shift = 64 - log
	n := 1 << log
	if len(f.data) <= dense {
		numbers := make([]uint32, n) // by hash, from 1
		f.slots = make([]uint32, max(0, len(f.data)-substring+1))
		n = 0
		for i := range f.slots {
			if i%(1<<16) == 0 && ctx.Err() != nil {
				return nil, ctx.Err()
			}
			number := &numbers[f.hash(i)]
			if *number == 0 {
				n++
				*number = uint32(n)
			}
			f.slots[i] = *number - 1
		}
	}
	f.of = make([]uint32, n)
	start := 0
	for i, s := range samples { // not across the border of two samples
		if i%checkEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		f.starts = append(f.starts, start)
		for j := range len(s) - substring + 1 {
			f.of[f.slot(start+j)]++
		}
		start += len(s)
	}
	return f, nil
}

// clone returns frequencies to forget of.
func (f *frequencies) clone() *frequencies {
	c := *f
	c.of = slices.Clone(f.of)
	return &c
}

func (f *frequencies) hash(i int) uint32 {
	return uint32(binary.LittleEndian.Uint64(f.data[i:]) * 0xCF1BBCDCB7A56463 >> f.shift)
}

func (f *frequencies) slot(i int) uint32 {
	if f.slots != nil {
		return f.slots[i]
	}
	return f.hash(i)
}

// forget takes out the substrings from one position to another: what is in the dictionary counts no
// more.
func (f *frequencies) forget(from, to int) {
	for i := from; i < to; i++ {
		f.of[f.slot(i)] = 0
	}
}

// cover selects the content of a dictionary of size bytes. It picks the segments of k bytes with
// the most frequent content, and puts the best one last. It is FastCover of libzstd (fastcover.c).
// See "Effective Construction of Relative Lempel-Ziv Dictionaries" by Liao, Petri, Moffat and Wirth
// (2016).
func (f *frequencies) cover(ctx context.Context, size, k int) ([]byte, error) {
	n := len(f.data) - substring + 1 // positions that a substring may start at
	if n < k || k < substring {
		return nil, nil
	}
	inSegment := make([]uint16, len(f.of))
	epochs := max(1, size/k/coverPasses)
	epochSize := n / epochs
	if minimum := 10 * k; epochSize < minimum {
		epochSize = min(minimum, n)
		epochs = max(1, n/epochSize)
	}
	best := func(begin, end int) (from, to int, score uint64) {
		window, windowScore := begin, uint64(0)
		add := func(i int) {
			h := f.slot(i)
			if inSegment[h] == 0 {
				windowScore += uint64(f.of[h])
			}
			inSegment[h]++
		}
		remove := func() {
			h := f.slot(window)
			window++
			if inSegment[h]--; inSegment[h] == 0 {
				windowScore -= uint64(f.of[h])
			}
		}
		for i := begin; i < end; i++ {
			add(i)
			if i-window+1 > k-substring+1 {
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
		f.forget(from, to)
		length := min(to-from+substring-1, tail)
		if length < substring {
			break
		}
		tail -= length
		copy(content[tail:], f.data[from:from+length])
	}
	return content[tail:], nil
}

// wholes selects whole samples. Values that follow a template differ from one of them in few
// places, and all matches between have the same offset, which costs next to nothing again. It picks
// the samples with the most frequent substrings, and puts the best one last. With length 1 it
// divides that by the sample's length, with 0 it does not.
func (f *frequencies) wholes(ctx context.Context, size, length int) ([]byte, error) {
	samples := f.samples
	if len(samples) == 0 {
		return nil, nil
	}
	// It picks in turn from parts of the samples, so that no time of sampling is left out.
	mean := max(len(f.data)/len(samples), 1)
	parts := min(max(size/mean/coverPasses, 1), len(samples))
	f.seen = make([]uint32, len(f.of))
	scores := make([]float64, len(samples)) // as they were last: a score never rises
	for i := range scores {
		scores[i] = math.Inf(1)
	}
	content := make([]byte, size)
	tail := size
	for part, idle := 0, 0; tail > 0 && idle < parts; {
		if f.scored%checkEvery == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		best, score := -1, 0.0
		for i := len(samples) * part / parts; i < len(samples)*(part+1)/parts; i++ {
			if scores[i] > score {
				best, score = i, scores[i]
			}
		}
		if best < 0 {
			part = (part + 1) % parts
			idle++
			continue
		}
		idle = 0
		if scores[best] = f.score(best, samples[best], length); scores[best] < score {
			continue // perhaps another one is better now
		}
		part = (part + 1) % parts
		n := min(len(samples[best]), tail)
		f.forget(f.starts[best], f.starts[best]+n-substring+1)
		tail -= n
		copy(content[tail:], samples[best][:n])
	}
	return content[tail:], nil
}

// score is the sum of the frequencies of a sample's substrings, of each once.
func (f *frequencies) score(i int, sample []byte, length int) float64 {
	f.scored++
	sum, n := uint64(0), len(sample)
	for j := range n - substring + 1 {
		if h := f.slot(f.starts[i] + j); f.seen[h] != f.scored {
			f.seen[h] = f.scored
			sum += uint64(f.of[h])
		}
	}
	return float64(sum) / float64(max(length*n, 1))
}
