package advise

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ownCommands are those of inPlace that bale uses to look at values.
var ownCommands = map[string]bool{"getrange": true, "strlen": true, "hstrlen": true, "eval": true, "evalsha": true}

// tooMuch is how many times what there is an estimate may be.
const tooMuch = 1.1

// laterDiffers is the part of the memory from which on what comes later is worth a word.
const laterDiffers = 0.01

// conclude adds what to see to, and what to do next.
func (a *Advice) conclude(o *Options) {
	if a.Scan.Interrupted {
		a.warn("NOT ALL WAS SEEN: %s, after %d keys of about %d. The counts of groups are scaled up to all keys, rare groups may be missing, and groups that were not tried save nothing here.",
			a.Scan.Reason, a.Scan.Seen, a.Scan.Keys)
	}
	if s := a.Server; s != nil && s.UsedMemory > 0 && float64(a.Total.Now) > tooMuch*float64(s.UsedMemory) {
		a.warn("These keys seem to take more than the server has in all (%d bytes): a few large ones in the samples stand for too many. --group gives those a group of their own.", s.UsedMemory)
	}
	if s := a.Server; s != nil && len(s.InPlace) > 0 {
		var calls []string
		own := ""
		for _, name := range slices.Sorted(maps.Keys(s.InPlace)) {
			calls = append(calls, fmt.Sprintf("%s (%d)", strings.ToUpper(name), s.InPlace[name]))
			if ownCommands[name] {
				own = " (Some may be bale's own: it calls GETRANGE and STRLEN, and bale migrate scripts.)"
			}
		}
		a.warn("The server has had calls of %s since its start. On packed values they fail or see packed bytes: leave the keys that they work on as they are. "+
			"Which these are, the server does not tell.%s", strings.Join(calls, ", "), own)
	}
	if s := a.Server; s != nil && s.Reads == 0 && !o.Private {
		a.warn("The server has counted no reads of values yet: nothing is known of what they would save.")
	}
	if o.HideKeys {
		a.hide()
	}
	for i := range a.Groups {
		g := &a.Groups[i]
		if g.Chosen < 0 || g.Options[g.Chosen].Dictionary == 0 {
			continue
		}
		if now, later := g.Saving.Estimate/float64(g.Now), g.Options[g.Chosen].Later; now-later > laterDiffers {
			a.warn("%s: a good part of its %d keys are those that the dictionary was trained on, and it knows them better than others: of values that come later it saves %.0f%%.", g.Name, g.Keys, 100*later)
		}
	}
	a.next(o)
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
	}
	for i := range a.TopKeys {
		a.TopKeys[i].Name = fmt.Sprintf("key %d", i+1)
	}
}
