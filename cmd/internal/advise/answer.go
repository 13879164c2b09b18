package advise

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/balekv/bale/cmd/internal/content"
)

const (
	resamples  = 300  // of the bootstrap; its 2.5% and 97.5% quantiles are the interval
	confidence = 0.95 // of the intervals

	minSaving = 0.05 // of a group's memory, below which it is not worth a change
	sameWorth = 0.02 // of a group's memory: of options that may be so close to the best one, the first of settings is recommended

	sure = 1.645 // standard deviations, for 95% on one side

	// Dictionaries that were trained on other values of a group saved 0.1% to 0.9% more or less of it
	// (TestAdviceStands): so much is a standard deviation at least.
	dictionaryApart = 0.005

	budgetBytes = 4 << 10 // of a value, up to which the budget is as it was given; a larger one has in proportion more

	dictionaryKey = len("bale:dict:data:0a1b2c3d") // bytes of the name that a dictionary has in Redis
)

// estimator turns a sample into bytes of the whole group, and draws it again and again to say how
// sure that is (the bootstrap: Efron, 1979).
type estimator struct {
	*groupSample
	keys float64
	rng  *rand.Rand

	heavy map[*entry]int // the pieces of those that count for themselves
	draws []draw

	// How much of the deviations is left for a sample that is a good part of the keys: 0 when it is
	// all of them.
	ofSizes, ofValues float64
}

// draw is the sample drawn once more: how often each entry is in it.
type draw struct {
	sizes      float64 // the mean bytes of a key, without heavy ones
	heavy      float64 // what these add to the mean
	heavies    []int   // the pieces of those that were read
	read       float64 // their part of heavy
	others     []int   // entries to estimate on
	dictionary float64 // how far another dictionary is from this one, in standard deviations
}

func newEstimator(g *groupSample, keys int64, seed uint64) *estimator {
	e := &estimator{groupSample: g, keys: float64(keys), heavy: map[*entry]int{}, rng: rand.New(rand.NewPCG(seed, uint64(keys)))}
	e.ofSizes = math.Sqrt(max(0, 1-float64(len(g.sizes))/e.keys))
	// Of the values in the sample all is known. Others are estimated by half of it.
	e.ofValues = math.Sqrt(max(0, 1-g.read) / (1 - g.read/2))
	for i := range g.pieces {
		if g.pieces[i].heavy {
			e.heavy[g.pieces[i].entry] = i
		}
	}
	first := e.sized(func(i int) int { return i })
	first.others = g.used(toEstimate)
	e.draws = append(e.draws, first)
	dictionaries := rand.New(rand.NewPCG(seed, 0)) // the same for all groups: more values to train on are better for all
	for range resamples {
		d := e.sized(func(int) int { return e.rng.IntN(len(g.sizes)) })
		d.others, d.dictionary = e.again(e.draws[0].others), dictionaries.NormFloat64()
		e.draws = append(e.draws, d)
	}
	return e
}

// used returns the pieces with one of the given uses, without heavy ones. Without arguments, or if
// no piece matches, it returns all pieces that are not heavy.
func (g *groupSample) used(as ...use) (at []int) {
	for i, u := range g.uses {
		if !g.pieces[i].heavy && (len(as) == 0 || slices.Contains(as, u)) {
			at = append(at, i)
		}
	}
	if len(at) == 0 && len(as) > 0 {
		return g.used()
	}
	return at
}

// sized is a draw of the keys whose sizes are known.
func (e *estimator) sized(at func(i int) int) (d draw) {
	n := float64(max(1, len(e.sizes)))
	for i := range e.sizes {
		s := e.sizes[at(i)]
		if !s.heavy {
			d.sizes += float64(s.now) / n
			continue
		}
		d.heavy += float64(s.now) / n
		if piece, ok := e.heavy[s]; ok {
			d.heavies, d.read = append(d.heavies, piece), d.read+float64(s.now)/n
		}
	}
	if d.heavy > 0 {
		d.read /= d.heavy
	}
	return d
}

func (e *estimator) again(from []int) []int {
	drawn := make([]int, len(from))
	for i := range drawn {
		drawn[i] = from[e.rng.IntN(len(from))]
	}
	return drawn
}

func sumOf(at []int, of func(i int) float64) (sum float64) {
	for _, i := range at {
		sum += of(i)
	}
	return sum
}

// ratio is the part that is left of what is summed up over some entries.
func ratio(at []int, before, after func(i int) float64) (float64, bool) {
	b := sumOf(at, before)
	if b == 0 {
		return 1, false
	}
	return sumOf(at, after) / b, true
}

func (g *groupSample) before(i int) float64     { return g.pieces[i].before }
func (g *groupSample) wireBefore(i int) float64 { return g.pieces[i].wire }
func (t *trial) afterOf(i int) float64          { return t.after[i] }
func (t *trial) wireOf(i int) float64           { return t.wire[i] }

// saving is what a trial saves of a group: one estimate for each draw, the first being the sample
// itself.
func (e *estimator) saving(t *trial) []float64 {
	all, heavy := e.saved(e.before, t.afterOf)
	first := e.draws[0]
	for i, d := range e.draws {
		size, heavies := first.sizes+e.ofSizes*(d.sizes-first.sizes), first.heavy+e.ofSizes*(d.heavy-first.heavy)
		all[i] = e.keys*(size*all[i]+heavies*heavy[i]) - e.dictionary(t) + d.dictionary*t.apart
	}
	return all
}

// promise is what a trial saves of a group by the values that are there to choose by.
func (e *estimator) promise(t *trial) float64 {
	left, _ := ratio(e.used(toChoose), e.before, t.afterOf)
	return e.keys*(e.draws[0].sizes*(1-left)+e.draws[0].heavy*e.ofHeavy(e.before, t.afterOf)) - e.dictionary(t)
}

// ahead is what a trial saves more than another one, in bytes: the least that the values to choose
// by are sure of (a ratio's standard error: Cochran, Sampling Techniques, 1977, 6.4).
func (e *estimator) ahead(best, other *trial) float64 {
	at := e.used(toChoose)
	more := func(i int) float64 { return other.after[i] - best.after[i] }
	mean, _ := ratio(at, e.before, more)
	sum, squares := 0.0, 0.0
	for _, i := range at {
		sum += e.before(i)
		squares += math.Pow(more(i)-mean*e.before(i), 2)
	}
	bytes := e.keys * e.draws[0].sizes
	deviations := math.Pow(bytes*e.ofValues/max(sum, 1), 2) * squares
	if best.built.dictionary != other.built.dictionary {
		deviations += math.Pow(dictionaryApart*bytes, 2)
	}
	return best.promise - other.promise - sure*math.Sqrt(deviations)
}

// dictionary is the memory of a trial's dictionary.
func (e *estimator) dictionary(t *trial) float64 {
	if t.built.dictionary == nil {
		return 0
	}
	return float64(e.memory.KeyString(dictionaryKey, t.Dictionary, false))
}

// network is likewise what reading one value saves.
func (e *estimator) network(t *trial) []float64 {
	all, heavy := e.saved(e.wireBefore, t.wireOf)
	light := e.used()
	values := sumOf(light, func(i int) float64 { return e.pieces[i].times * float64(len(e.pieces[i].items)) })
	n := float64(max(1, len(e.sizes)))
	ofLight, ofHeavy := sumOf(light, e.wireBefore)/max(1, values), 0.0
	part := ofLight / n
	for _, s := range e.sizes {
		if s.heavy {
			ofLight, ofHeavy = ofLight-part, ofHeavy+float64(s.size)/n
		}
	}
	for i := range all {
		all[i] = ofLight*all[i] + ofHeavy*heavy[i]
	}
	return all
}

// later is the part that is left of values that come later: they resemble those outside of the
// training.
func (e *estimator) later(before, after func(i int) float64) float64 {
	d := e.draws[0]
	left, _ := ratio(d.others, before, after)
	if d.heavy > 0 {
		left = (d.sizes*left + d.heavy*(1-e.ofHeavy(before, after))) / (d.sizes + d.heavy)
	}
	return left
}

// ofHeavy is the part that is saved of heavy ones. What was not read is taken to save nothing.
func (e *estimator) ofHeavy(before, after func(i int) float64) float64 {
	left, _ := ratio(e.draws[0].heavies, before, after)
	return e.draws[0].read * (1 - left)
}

// saved returns two parts for each draw. all is the part saved of light values: those in the sample
// count as measured, others as the values to estimate on. A dictionary compresses its training
// values better. heavy is the part saved of heavy values: ofHeavy. Every other draw adds the whole
// of the unread ones.
func (e *estimator) saved(before, after func(i int) float64) (all, heavy []float64) {
	first, ofHeavy := e.draws[0], e.ofHeavy(before, after)
	known := e.used(toTrain, toChoose)
	trainees, _ := ratio(known, before, after)
	bytes := sumOf(known, before)
	part := e.read * bytes / max(1, bytes+sumOf(first.others, before))
	all, heavy = make([]float64, len(e.draws)), make([]float64, len(e.draws))
	for i, d := range e.draws {
		heavy[i] = ofHeavy + (1-first.read)*float64(i%2)
		if left, ok := ratio(d.heavies, before, after); ok {
			heavy[i] += e.ofSizes * (first.read*(1-left) - ofHeavy)
		}
		others, _ := ratio(d.others, before, after)
		all[i] = 1 - part*trainees - (1-part)*others
		all[i] = all[0] + e.ofValues*(all[i]-all[0])
	}
	return all, heavy
}

// interval is the estimate with the quantiles of the draws.
func interval(all []float64) Interval {
	if len(all) == 0 {
		return Interval{}
	}
	sorted := slices.Sorted(slices.Values(all[1:]))
	tail := (1 - confidence) / 2
	return Interval{Low: min(all[0], quantile(sorted, tail)), Estimate: all[0], High: max(all[0], quantile(sorted, 1-tail))}
}

// sum adds up what was drawn for several groups.
func sum(into, all []float64, times float64) []float64 {
	if into == nil {
		into = make([]float64, resamples+1)
	}
	for i, v := range all {
		into[i] += times * v
	}
	return into
}

// evaluate fills in what a trial saves of a group.
func (e *estimator) evaluate(g *Group, t *trial) {
	t.saved = e.saving(t)
	t.Saving = interval(t.saved)
	t.Saving.High = min(t.Saving.High, float64(max(g.Now, int64(t.Saving.Estimate)))) // not more than there is
	t.Bytes = g.Now - int64(t.Saving.Estimate)
	t.Ratio = 1
	if left := e.later(e.wireBefore, t.wireOf); left > 0 {
		t.Ratio = 1 / left
	}
	t.Later = 1 - e.later(e.before, t.afterOf)
	t.Network = e.network(t)[0]
}

// choose recommends one of the trials of a group, nil for none.
func choose(g *Group, trials []*trial, e *estimator, budget time.Duration) *trial {
	g.Budget = budget
	if e.timed > budgetBytes {
		g.Budget = time.Duration(float64(budget) * e.timed / budgetBytes)
	}
	var within []*trial // the budget, the best first
	for _, t := range trials {
		e.evaluate(g, t)
		t.promise = e.promise(t)
		if t.InBudget = t.within(g.Budget); t.InBudget && t.enc == nil {
			within = append(within, t)
		}
	}
	if len(within) == 0 {
		if g.Why = fmt.Sprintf("nothing packs and unpacks a value within %v", g.Budget); g.packed() {
			g.Why = alreadyPacked
		}
		return nil
	}
	slices.SortStableFunc(within, func(a, b *trial) int { return cmp.Compare(b.promise, a.promise) })
	worth := func(t *trial) bool { return t.promise >= minSaving*float64(g.Now) && t.Saving.Low > 0 }
	best := within[0]
	chosen := best
	for _, t := range within {
		if near := e.ahead(best, t) <= sameWorth*float64(g.Now); near && worth(t) == worth(best) && t.rank < chosen.rank {
			chosen = t
		}
	}
	if !worth(chosen) {
		g.list(trials, nil)
		g.Why = whyNot(g, best)
		return nil
	}
	return chosen
}

// within reports whether packing and unpacking take no longer than a budget.
func (t *trial) within(budget time.Duration) bool { return t.slowest() <= budget.Seconds()*1e6 }

// slowest is the longer of the two, in microseconds.
func (o *Option) slowest() float64 { return max(o.Pack.Mean, o.Unpack.Mean) }

// list shows the trials as the options of a group, smallest first.
func (g *Group) list(trials []*trial, chosen *trial) {
	slices.SortStableFunc(trials, func(a, b *trial) int { return cmp.Compare(a.Bytes, b.Bytes) })
	g.Options, g.Chosen = nil, slices.Index(trials, chosen)
	for _, t := range trials {
		g.Options = append(g.Options, t.Option)
	}
	if chosen != nil {
		g.Saving = chosen.Saving
	}
}

// whyNot says why a group is better left alone.
func whyNot(g *Group, best *trial) string {
	main := g.Formats[0].Name
	part := best.Saving.Estimate / float64(max(1, g.Now))
	switch {
	case g.packed():
		return alreadyPacked
	case main == content.Number.String():
		return "numbers, which stay as they are for INCR and its like"
	case content.ParseKind(main).Compressed():
		return fmt.Sprintf("%s already: the best of %d settings saves %.1f%%", map[bool]string{true: "random or encrypted", false: "compressed (" + main + ")"}[main == content.Random.String()], len(g.Options), 100*part)
	case g.Size.P90 < smallValue:
		return fmt.Sprintf("too small: 9 values in 10 have %d bytes or less", g.Size.P90)
	case best.Saving.Low <= 0 && best.Saving.Estimate > 0:
		return fmt.Sprintf("a sample of %d values does not show that it saves anything (%.1f%% at the best)", g.Sampled, 100*part)
	case part <= 0:
		return fmt.Sprintf("none of %d settings saves anything", len(g.Options))
	}
	return fmt.Sprintf("the best of %d settings saves %.1f%%, which is not worth a change", len(g.Options), 100*part)
}

const alreadyPacked = "packed by bale already, as far as it is worth it"

// packed reports a group with so many packed values that it counts as packed.
func (g *Group) packed() bool {
	return slices.ContainsFunc(g.Formats,
		func(f Format) bool { return f.Name == content.Bale.String() && f.Part >= somePacked })
}

// somePacked is the part of a group's values that are packed from which on one takes it for packed.
const somePacked = 0.2

// smallValue is the size in bytes below which a Packer does not try to pack.
const smallValue = 64
