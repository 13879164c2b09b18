package advise

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/balekv/bale/cmd/internal/keygroup"
	"github.com/balekv/bale/cmd/internal/page"
	"github.com/balekv/bale/cmd/internal/printable"
)

// tooMuch is how many times what there is an estimate may be.
const tooMuch = 1.1

// laterDiffers is the part of the memory from which on what comes later is worth a word.
const laterDiffers = 0.01

// unbound takes the bounds from all intervals: no sample bounds what keys that were not seen take.
func (a *Advice) unbound() {
	all := []*Interval{&a.Total.Saving, &a.Total.Month, &a.Total.Network}
	for i := range a.Groups {
		g := &a.Groups[i]
		all = append(all, &g.Saving, &g.Month)
		for j := range g.Options {
			all = append(all, &g.Options[j].Saving)
		}
		if g.Packed != nil && g.Packed.Better != nil {
			all = append(all, g.Packed.Better)
		}
	}
	for _, i := range all {
		i.Low, i.High = i.Estimate, i.Estimate
	}
}

// conclude adds what to see to, and what to do next.
func (a *Advice) conclude(o *Options) {
	if a.Scan.Interrupted {
		a.warn("NOT ALL WAS SEEN: %s, after %d keys of about %d. The counts of groups are scaled up to all keys, rare groups may be missing, and groups that were not tried save nothing here.",
			a.Scan.Reason, a.Scan.Seen, a.Scan.Keys)
		a.unbound()
	}
	if s := a.Server; s != nil && s.UsedMemory > 0 && float64(a.Total.Now) > tooMuch*float64(s.UsedMemory) {
		a.warn("These keys seem to take more than the server has in all (%s): a few large ones in the samples stand for too many. --group gives those a group of their own.", printable.Size(s.UsedMemory))
	}
	if s := a.Server; s != nil && len(s.InPlace)+len(s.Watched) > 0 {
		a.warn("Programs have called %s. On packed values these fail, or see packed bytes: leave the keys that they work on as they are. "+
			"The server does not report which keys these are.", strings.Join(s.inside(), ", "))
	}
	if s := a.Server; s != nil && s.Reads == 0 && !o.Private {
		a.warn("The server has counted no reads of values yet: the saving in traffic is unknown.")
	}
	if o.HideKeys {
		a.hide()
	}
	a.hotGroups()
	for i := range a.Groups {
		g := &a.Groups[i]
		a.nearBudget(g)
		a.amongOthers(g)
		if g.Together != nil {
			a.warn("%s", joined(g))
		}
		if g.Chosen >= 0 && g.cut() {
			a.warn("%s: of each value above %d KiB the first part was tried. The rest is taken to be like it, and no interval covers that.", g.Name, headBytes>>10)
		}
		if u := g.unread; u.part >= muchUnread && g.Sampled > 0 {
			a.warn("%s: %s of its memory is in strings of unusual size that were not read (%d of those looked at). "+
				"The estimate for them is zero. How much is read depends on --sample and the limits.", g.Name, page.Share(u.part), u.strings)
		}
		if g.Chosen < 0 || g.Options[g.Chosen].Dictionary == 0 {
			continue
		}
		if now, later := g.Saving.Estimate/float64(g.Now), g.Options[g.Chosen].Later; now-later > laterDiffers {
			a.warn("%s: a good part of its %d keys are those that the dictionary was trained on, and it knows them better than others: of values that come later it saves %.0f%%.", g.Name, g.Keys, 100*later)
		}
	}
	a.next(o)
}

const muchUnread = 0.05 // of a group's memory, from which on it is worth a line

// unread is what of a group's memory is in strings of unusual size that were not read.
type unread struct {
	strings int
	part    float64
}

const (
	muchOfAll   = 0.1 // of what can be saved, from which on keys without a group are worth a line
	othersShown = 3   // of them
)

// amongOthers names the largest of the keys without a group where they save much. They may be of
// some few kinds, which --group makes groups of.
func (a *Advice) amongOthers(g *Group) {
	if g.Name != keygroup.Other || g.Chosen < 0 || g.Saving.Estimate < muchOfAll*a.Total.Saving.Estimate {
		return
	}
	var names []string
	for _, k := range a.TopKeys {
		if k.Group == g.Name && len(names) < othersShown {
			names = append(names, fmt.Sprintf("%s (%s)", k.Name, printable.Size(k.Bytes)))
		}
	}
	if len(names) > 0 {
		a.warn("%s would save %s. It holds many kinds with few keys each. Its largest keys: %s. "+
			"To make a kind a group, give its pattern with --group.",
			g.Name, page.Amount(g.Saving.Estimate), strings.Join(names, ", "))
	}
}

// cut reports whether values of the group are too large to be tried whole.
func (g Group) cut() bool { return g.Size.Max > headBytes }

// nearBudget is how near to the budget, in parts of it, another machine or budget would perhaps
// lead to another choice.
const nearBudget = 0.2

// nearBudget warns of a choice that the budget barely allows, or barely prevents.
func (a *Advice) nearBudget(g *Group) {
	chosen := chosenOf(g)
	if chosen == nil {
		return
	}
	limit := float64(g.Budget) / float64(time.Microsecond)
	best := func(from, to float64) *Option { // of the options that take so much
		i := slices.IndexFunc(g.Options, func(o Option) bool { return o.Encoding == "" && o.slowest() > from && o.slowest() <= to })
		if i < 0 {
			return nil
		}
		return &g.Options[i]
	}
	if o := best(limit, (1+nearBudget)*limit); o != nil && float64(chosen.Bytes-o.Bytes) >= worthSaying*float64(g.Now) {
		a.warn("%s: %s would save %s more, and takes %s µs for a value where the budget is %s: --cpu-budget %v allows it.", g.Name, settingOf(o), page.Amount(float64(chosen.Bytes-o.Bytes)),
			page.Microseconds(o.slowest()), budgetOf(g.Budget), time.Duration((1+nearBudget)*float64(a.Budget)).Round(100*time.Nanosecond))
	}
	if chosen.slowest() <= (1-nearBudget)*limit {
		return
	}
	less := g.Saving.Estimate
	without := "nothing else is worth it"
	if o := best(0, (1-nearBudget)*limit); o != nil {
		less, without = float64(o.Bytes-chosen.Bytes), settingOf(o)+" is the next"
	}
	if less >= worthSaying*float64(g.Now) {
		a.warn("%s: %s takes %s µs for a value, near the budget of %s. With less, %s and saves %s less.", g.Name, settingOf(chosen), page.Microseconds(chosen.slowest()), budgetOf(g.Budget), without, page.Amount(less))
	}
}

// inside are the calls of commands that work inside of values, most frequent first.
func (s *Server) inside() (all []string) {
	all = callsOf(s.InPlace, "since the server's start")
	return append(all, callsOf(s.Watched, s.whileWatched())...)
}

func (s *Server) whileWatched() string {
	return fmt.Sprintf("in the %.0f s that advise ran", math.Ceil(s.WatchedSeconds))
}

// unattributed is a sentence on calls that bale may have made, "" for none.
func (s *Server) unattributed() string {
	if len(s.Unattributed) == 0 {
		return ""
	}
	return fmt.Sprintf("Clients called %s. bale calls these itself, and it is in use here: other programs that call them on packed values would see packed bytes.",
		strings.Join(callsOf(s.Unattributed, s.whileWatched()), ", "))
}

// callsOf are calls in words, most frequent first.
func callsOf(calls map[string]int64, since string) (all []string) {
	names := slices.SortedFunc(maps.Keys(calls), func(a, b string) int {
		return cmp.Or(cmp.Compare(calls[b], calls[a]), cmp.Compare(a, b))
	})
	for i, name := range names {
		text := fmt.Sprintf("%s (%s)", strings.ToUpper(printable.Line(name)), page.PluralOf(calls[name], "call"))
		if i == len(names)-1 {
			text += " " + since
		}
		all = append(all, text)
	}
	return all
}

// hide puts numbers in place of all names of keys.
func (a *Advice) hide() {
	for i := range a.Groups {
		g := &a.Groups[i]
		hidden := fmt.Sprintf("group %d", i+1)
		for j := range a.TopKeys {
			if a.TopKeys[j].Group == g.Name {
				a.TopKeys[j].Group = hidden
			}
		}
		g.Name, g.Match, g.names = hidden, "", nil
		if g.Heat != nil {
			for j := range g.Heat.Hottest {
				g.Heat.Hottest[j].Name = fmt.Sprintf("hot key %d", j+1)
			}
		}
		if g.Together != nil {
			for i := range g.Together.Groups {
				g.Together.Groups[i] = fmt.Sprintf("part %d", i+1)
			}
		}
	}
	for i := range a.TopKeys {
		a.TopKeys[i].Name = fmt.Sprintf("key %d", i+1)
	}
}
