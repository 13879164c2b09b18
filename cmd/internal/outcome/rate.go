package outcome

const keptRate = 0.95 // of the rate that was asked for

// Kept reports whether a cell kept its rate, by the rule of [Sweep]. The median of the rounds must
// be at least 95% of it, with no operation left unstarted. A closed loop has no rate, and keeps
// none.
func (c *Cell) Kept() bool {
	return c.Rate > 0 && c.OpsPerSecond.Median >= keptRate*c.Rate && c.Unstarted == 0
}
