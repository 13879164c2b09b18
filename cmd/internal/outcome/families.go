package outcome

import (
	"fmt"
	"strings"
)

// families are the classes of lines by their names: a colour for each family, which is the name up
// to its first mark, and a dash for each of its members.
func families(names []string) []string {
	order, members := map[string]int{}, map[string]int{}
	classes := make([]string, len(names))
	for i, name := range names {
		family := strings.TrimRight(name[:len(name)-len(strings.TrimLeftFunc(name, inFamily))], " ")
		if _, known := order[family]; !known {
			order[family] = len(order)
		}
		// More families than colours begin again, with another dash.
		dash := members[family] + order[family]/len(hues)
		members[family]++
		classes[i] = hues[order[family]%len(hues)]
		if dash %= dashes; dash > 0 {
			classes[i] += fmt.Sprintf(" dash-%d", dash)
		}
	}
	return classes
}

// dashes is how many kinds of lines the style has.
const dashes = 4

// inFamily reports whether a letter does not end the name of a family.
func inFamily(r rune) bool { return !strings.ContainsRune(":@+/,-(", r) }

func familiesOf(lines []Line) []string {
	names := make([]string, len(lines))
	for i, l := range lines {
		names[i] = l.Name
	}
	return families(names)
}
