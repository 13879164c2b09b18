package advise

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
)

// Heat is how often a group's values are read. Only a server with an LFU policy counts that.
type Heat struct {
	Keys  int64   `json:"keys"`  // read about once a second or more often: only these count here
	Reads float64 `json:"reads"` // a second

	// Most is more than Reads where a counter is at its end: with all the reads that the server has
	// counted and no counter explains.
	Most float64 `json:"most_reads"`

	CPU     float64 `json:"cpu"`               // processors that unpacking takes at Reads, in all programs
	MostCPU float64 `json:"most_cpu"`          // and at Most
	Hottest []Hot   `json:"hottest,omitempty"` // a few, those first that take most to unpack
}

// Hot is a key that is read often.
type Hot struct {
	Name    string  `json:"name"`
	Bytes   int64   `json:"bytes,omitempty"` // of a string
	Reads   float64 `json:"reads"`           // as in Heat
	Most    float64 `json:"most_reads"`
	CPU     float64 `json:"cpu"`
	MostCPU float64 `json:"most_cpu"`
}

const (
	hotReads   = 1    // a second, from which on a key counts
	hotShare   = 0.05 // of a processor, from which on unpacking is worth a word
	hotKept    = 5    // keys of a group
	lfuEnd     = 255  // of a counter
	lfuInitial = 5    // of a new key: LFU_INIT_VAL in src/server.h of Redis
)

// lfu is what the counters of a server count.
type lfu struct {
	factor, decay float64 // lfu-log-factor, and lfu-decay-time in minutes
	assumed       bool    // the server did not say
}

// lfuOf asks a server, whose policy is an LFU one. Nil is for counters that say nothing of the
// present, since they never fall.
func lfuOf(ctx context.Context, node redis.UniversalClient) *lfu {
	l := &lfu{factor: 10, decay: 1, assumed: true} // the defaults of Redis and Valkey
	settings, err := node.ConfigGet(ctx, "lfu-*").Result()
	if err != nil {
		return l
	}
	factor, factorErr := strconv.ParseFloat(settings["lfu-log-factor"], 64)
	decay, decayErr := strconv.ParseFloat(settings["lfu-decay-time"], 64)
	if factorErr != nil || decayErr != nil {
		return l
	}
	if decay <= 0 {
		return nil
	}
	return &lfu{factor: factor, decay: decay}
}

// reads is how often a key is used in a second if its counter neither grows nor falls. A use adds
// one to it with the probability 1/((counter-5)*factor+1), and every decay minutes take one away
// (LFULogIncr and LFUDecrAndReturn in src/evict.c of Redis).
func (l *lfu) reads(counter int64) float64 {
	return (float64(max(0, counter-lfuInitial))*l.factor + 1) / (60 * l.decay)
}

// heat is the part of a Heat that the walk finds.
type heat struct {
	keys, ends   int64   // ends: with the counter at its end
	reads, bytes float64 // a second
	hottest      []hot
}

type hot struct {
	name  string
	bytes int64 // of a string
	reads float64
	end   bool
}

// work orders keys by about what unpacking takes.
func (h hot) work() float64 { return h.reads * float64(1+h.bytes) }

func (h *heat) add(k hot) {
	h.keys++
	h.reads += k.reads
	h.bytes += k.reads * float64(k.bytes)
	if k.end {
		h.ends++
	}
	h.keep(k)
}

func (h *heat) keep(keys ...hot) {
	h.hottest = append(h.hottest, keys...)
	slices.SortFunc(h.hottest, func(a, b hot) int {
		return cmp.Or(cmp.Compare(b.work(), a.work()), cmp.Compare(a.name, b.name))
	})
	h.hottest = slices.CompactFunc(h.hottest, func(a, b hot) bool { return a.name == b.name }) // SCAN gave it twice
	h.hottest = h.hottest[:min(len(h.hottest), hotKept)]
}

func (h *heat) merge(o *heat) {
	h.keys, h.ends, h.reads, h.bytes = h.keys+o.keys, h.ends+o.ends, h.reads+o.reads, h.bytes+o.bytes
	h.keep(o.hottest...)
}

// heats are those of a group's keys, by their types.
type heats map[string]*heat

func (h heats) of(kind string) *heat {
	if h[kind] == nil {
		h[kind] = &heat{}
	}
	return h[kind]
}

// feel asks the masters for the counters of keys, which is no use of them. It asks the server that
// is read for the types and sizes of those that are hot.
func (w *walker) feel(ctx context.Context, at redis.UniversalClient, keys []string) error {
	if w.scanner.lfu == nil || len(keys) == 0 {
		return nil
	}
	counters := make([]*redis.IntCmd, len(keys))
	w.counters += int64(len(keys))
	if err := w.askAt(ctx, w.masters, func(p redis.Pipeliner) {
		for i, k := range keys {
			counters[i] = redis.NewIntCmd(ctx, "object", "freq", k)
			counters[i].SetFirstKeyPos(2)
			p.Process(ctx, counters[i])
		}
	}); err != nil {
		return err
	}
	type found struct {
		hot
		kind *redis.StatusCmd
		size *redis.IntCmd
	}
	var all []*found
	for i, c := range counters {
		n, err := c.Result()
		if r := w.scanner.lfu.reads(n); err == nil && r >= hotReads {
			all = append(all, &found{hot: hot{name: strings.Clone(keys[i]), reads: r, end: n >= lfuEnd}})
		}
	}
	if len(all) == 0 {
		return nil
	}
	if err := w.askAt(ctx, at, func(p redis.Pipeliner) {
		for _, k := range all {
			k.kind, k.size = p.Type(ctx, k.name), p.StrLen(ctx, k.name)
		}
	}); err != nil {
		return err
	}
	for _, k := range all {
		k.bytes = k.size.Val() // 0 of other types
		if t, ok := w.finder.Find(k.name); ok && reachable(k.kind.Val()) {
			t.heats.of(k.kind.Val()).add(k.hot)
		}
	}
	return nil
}

// warm tells how often groups are read, and what unpacking them takes.
func (a *Advice) warm() {
	explained := 0.0
	for i := range a.Groups {
		if h := a.Groups[i].heat; h != nil {
			explained += h.reads
		}
	}
	a.unexplained = max(0, a.reads()-explained)
	for i := range a.Groups {
		g := &a.Groups[i]
		found, unpack := g.heat, g.unpacking()
		if found == nil || unpack == 0 {
			continue
		}
		cost := func(reads, bytes float64) float64 { // of values that are larger than the mean
			return max(reads, bytes/max(1, g.Size.Mean)) * unpack / 1e6
		}
		h := &Heat{Keys: found.keys, Reads: found.reads, CPU: cost(found.reads, found.bytes)}
		h.Most, h.MostCPU = h.Reads, h.CPU
		if found.ends > 0 {
			h.Most += a.unexplained
			h.MostCPU *= h.Most / h.Reads
		}
		for _, k := range found.hottest {
			one := Hot{Name: printable.Name(k.name), Bytes: k.bytes, Reads: k.reads, Most: k.reads}
			one.CPU = cost(k.reads, k.reads*float64(k.bytes))
			if k.end {
				one.Most += a.unexplained
			}
			one.MostCPU = one.CPU * one.Most / one.Reads
			h.Hottest = append(h.Hottest, one)
		}
		g.Heat = h
	}
}

// unpacking is what unpacking a value takes in µs, as it is packed or would be; 0 where that is not
// known.
func (g *Group) unpacking() float64 {
	if o := chosenOf(g); o != nil {
		return o.Unpack.Mean
	}
	return g.unpack
}

// hotGroups warns of groups whose unpacking takes a good part of a processor, and says what is not
// known of that.
func (a *Advice) hotGroups() {
	if a.Server == nil {
		return
	}
	worst, ends := -1, false
	for i := range a.Groups {
		g := &a.Groups[i]
		if g.unpacking() > 0 && (worst < 0 || g.unpacking() > a.Groups[worst].unpacking()) {
			worst = i
		}
		ends = ends || g.heat != nil && g.heat.ends > 0
		if g.Heat == nil || g.Heat.MostCPU < hotShare {
			continue
		}
		text := fmt.Sprintf("HOT: %s: %s are read %s times a second, by the server's LFU counters.", g.Name,
			page.PluralOf(g.Heat.Keys, "key"), span(g.Heat.Reads, g.Heat.Most, reads))
		text += fmt.Sprintf(" Unpacking takes %s of a processor in the programs.",
			span(g.Heat.CPU, g.Heat.MostCPU, page.Share))
		var names []string
		for _, k := range g.Heat.Hottest[:min(3, len(g.Heat.Hottest))] {
			names = append(names, fmt.Sprintf("%s (%s a second)", page.Name(k.Name, page.Width), span(k.Reads, k.Most, reads)))
		}
		text += " The hottest: " + strings.Join(names, ", ") + "."
		text += " A bale.Cache with package extra/near before it keeps such values unpacked in the programs" +
			" (near.New); a hook has no such thing: leave these keys out of it (HookOptions.Exclude)."
		if a.lfu.assumed {
			text += " (This user may not run CONFIG GET: lfu-log-factor 10 and lfu-decay-time 1 are assumed.)"
		}
		a.warn("%s", text)
	}
	if worst < 0 || ends { // those have taken the rest
		return
	}
	cpu := a.unexplained * a.Groups[worst].unpacking() / 1e6
	if cpu < hotShare || cpu < 2*a.Total.CPU {
		return
	}
	why := fmt.Sprintf("only LFU policies count reads of a key, and maxmemory-policy is %s", cmp.Or(a.Server.Policy, "not known"))
	if a.lfu != nil {
		why = "the server's LFU counters need up to an hour to follow a change"
	}
	a.warn("It is not known which keys %s reads a second are of: %s. If all were of %s, unpacking would take %s of a processor.",
		reads(a.unexplained), why, a.Groups[worst].Name, page.Share(cpu))
}

func reads(n float64) string { return page.Thousands(int64(n + 0.5)) }

// span is two figures in words, or one where they are the same.
func span(low, high float64, text func(float64) string) string {
	if l, h := text(low), text(high); l != h {
		return l + " to " + h
	}
	return text(low)
}

// countsReads reports a policy by which the server counts how often keys are read.
func (s *Server) countsReads() bool { return strings.Contains(s.Policy, "lfu") }
