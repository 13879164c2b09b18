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
	sameWorth = 0.02 // of a group's memory: of options that are so close to the best one, the cheapest is recommended

	cheaper = 0.9 // of the time, above which another one is not: clocks are not that sure

	dictionaryKey = len("bale:dict:data:0a1b2c3d") // bytes of the name that a dictionary has in Redis
)

// estimator turns a sample into bytes of the whole group, and draws it again and again to say how
// sure that is (the bootstrap: Efron, 1979).
type estimator struct {
	*groupSample
	keys float64
	rng  *rand.Rand

	draws []draw

	// How much of the deviations is left for a sample that is a good part of the keys: 0 when it is
	// all of them.
	ofSizes, ofValues float64
}

// draw is the sample drawn once more: how often each entry is in it.
type draw struct {
	sizes    float64 // the mean bytes of a key
	others   []int   // entries that no dictionary was trained on
	trainees []int
}

func newEstimator(g *groupSample, keys int64, seed uint64) *estimator {
	e := &estimator{groupSample: g, keys: float64(keys), rng: rand.New(rand.NewPCG(seed, uint64(keys)))}
	e.ofSizes = math.Sqrt(max(0, 1-float64(len(g.sizes))/e.keys))
	e.ofValues = math.Sqrt(max(0, 1-g.read))
	var others, trainees []int
	for i, t := range g.trained {
		if t {
			trainees = append(trainees, i)
		} else {
			others = append(others, i)
		}
	}
	e.draws = append(e.draws, draw{e.meanSize(func(i int) int { return i }), others, trainees})
	for range resamples {
		e.draws = append(e.draws, draw{e.meanSize(func(int) int { return e.rng.IntN(len(g.sizes)) }), e.again(others), e.again(trainees)})
	}
	return e
}

func (e *estimator) meanSize(at func(i int) int) float64 {
	sum := 0.0
	for i := range e.sizes {
		sum += float64(e.sizes[at(i)].now)
	}
	return sum / float64(max(1, len(e.sizes)))
}

func (e *estimator) again(from []int) []int {
	drawn := make([]int, len(from))
	for i := range drawn {
		drawn[i] = from[e.rng.IntN(len(from))]
	}
	return drawn
}

// ratio is the part that is left of what is summed up over some entries.
func ratio(at []int, before, after func(i int) float64) (float64, bool) {
	var b, a float64
	for _, i := range at {
		b, a = b+before(i), a+after(i)
	}
	if b == 0 {
		return 1, false
	}
	return a / b, true
}

func (g *groupSample) before(i int) float64     { return g.pieces[i].before }
func (g *groupSample) wireBefore(i int) float64 { return g.pieces[i].wire }
func (t *trial) afterOf(i int) float64          { return t.after[i] }
func (t *trial) wireOf(i int) float64           { return t.wire[i] }

// left returns the remaining part of the group's bytes. A dictionary compresses its training values
// better than others, so left weighs them by their share in the group.
func (e *estimator) left(d draw, before, after func(i int) float64, dictionary bool) float64 {
	others, ok := ratio(d.others, before, after)
	trainees, trained := ratio(d.trainees, before, after)
	switch {
	case !ok && !trained:
		return 1
	case !ok:
		return trainees
	case !trained:
		return others
	}
	part := 0.5 // without a dictionary both are alike
	if dictionary {
		part = e.read * float64(len(d.trainees)) / float64(len(d.trainees)+len(d.others))
	}
	return part*trainees + (1-part)*others
}

// saving is what a trial saves of a group: one estimate for each draw, the first being the sample
// itself.
func (e *estimator) saving(t *trial) []float64 {
	own := 0.0
	if t.dictionary != nil {
		own = float64(e.memory.KeyString(dictionaryKey, len(t.dictionary.Bytes()), false))
	}
	all := e.saved(e.before, t.afterOf, t.dictionary != nil)
	for i, d := range e.draws {
		size := e.draws[0].sizes + e.ofSizes*(d.sizes-e.draws[0].sizes)
		all[i] = e.keys*size*all[i] - own
	}
	return all
}

// network is likewise what reading one value saves.
func (e *estimator) network(t *trial) []float64 {
	mean := 0.0
	for _, p := range e.pieces {
		mean += p.wire
	}
	mean /= float64(max(1, e.items))
	all := e.saved(e.wireBefore, t.wireOf, t.dictionary != nil)
	for i := range all {
		all[i] *= mean
	}
	return all
}

// saved is the part that is saved, for each draw.
func (e *estimator) saved(before, after func(i int) float64, dictionary bool) []float64 {
	all := make([]float64, len(e.draws))
	for i, d := range e.draws {
		all[i] = 1 - e.left(d, before, after, dictionary)
		all[i] = all[0] + e.ofValues*(all[i]-all[0])
	}
	return all
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

// evaluate fills in what the options of a group save, and recommends one of them.
func evaluate(g *Group, t *tried, e *estimator, budget time.Duration) (chosen []float64, network []float64) {
	limit := budget.Seconds() * 1e6
	savings := map[*trial][]float64{}
	for _, tr := range t.trials {
		all := e.saving(tr)
		savings[tr] = all
		tr.Saving = interval(all)
		tr.Saving.High = min(tr.Saving.High, float64(max(g.Now, int64(tr.Saving.Estimate)))) // not more than there is
		tr.Bytes = g.Now - int64(all[0])
		// Later values resemble the ones outside of the training.
		later := e.draws[0].others
		if len(later) == 0 {
			later = e.draws[0].trainees
		}
		tr.Ratio = 1
		if r, ok := ratio(later, e.wireBefore, tr.wireOf); ok && r > 0 {
			tr.Ratio = 1 / r
		}
		if r, ok := ratio(later, e.before, tr.afterOf); ok {
			tr.Later = 1 - r
		}
		tr.Network = e.network(tr)[0]
		tr.InBudget = tr.Pack.Mean <= limit && tr.Unpack.Mean <= limit
	}
	slices.SortStableFunc(t.trials, func(a, b *trial) int { return cmp.Compare(a.Bytes, b.Bytes) })
	g.Chosen, g.Options, g.Saving, g.Why = -1, nil, Interval{}, ""
	for i, tr := range t.trials {
		g.Options = append(g.Options, tr.Option)
		if tr.Encoding == "" && tr.InBudget && g.Chosen < 0 {
			g.Chosen = i
		}
	}
	if g.Chosen < 0 {
		if len(t.trials) > 0 {
			g.Why = fmt.Sprintf("nothing packs and unpacks a value within %v", budget)
		}
		return nil, nil
	}
	best := t.trials[g.Chosen]
	worth := func(tr *trial) bool { return tr.Saving.Estimate >= minSaving*float64(g.Now) && tr.Saving.Low > 0 }
	for i, tr := range t.trials {
		near := tr.Saving.Estimate >= best.Saving.Estimate-sameWorth*float64(g.Now)
		if tr.Encoding == "" && tr.InBudget && near && worth(tr) == worth(best) && tr.Pack.Mean+tr.Unpack.Mean < cheaper*(t.trials[g.Chosen].Pack.Mean+t.trials[g.Chosen].Unpack.Mean) {
			g.Chosen = i
		}
	}
	tr := t.trials[g.Chosen]
	if !worth(tr) {
		g.Chosen = -1
		g.Why = whyNot(g, best)
		return nil, nil
	}
	g.Saving = tr.Saving
	return savings[tr], e.network(tr)
}

// whyNot says why a group is better left alone.
func whyNot(g *Group, best *trial) string {
	main := g.Formats[0].Name
	part := best.Saving.Estimate / float64(max(1, g.Now))
	switch {
	case slices.ContainsFunc(g.Formats, func(f Format) bool { return f.Name == content.Bale.String() && f.Part >= somePacked }):
		return "packed by bale already, as far as it is worth it"
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

// somePacked is the part of a group's values that are packed from which on one takes it for packed.
const somePacked = 0.2

// smallValue is the size in bytes below which a Packer does not try to pack.
const smallValue = 64
