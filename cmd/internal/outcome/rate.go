package outcome

// KeptRate is the share of the rate that was asked for from which on it counts as kept.
const KeptRate = 0.95

// Kept reports whether a cell kept its rate, by the rule of [Sweep]. The median of the rounds must
// be at least 95% of it, with no operation left unstarted. A closed loop has no rate, and keeps
// none.
func (c *Cell) Kept() bool {
	return c.Rate > 0 && c.OpsPerSecond.Median >= KeptRate*c.Rate && c.Unstarted == 0
}
