package outcome

const keptRate = 0.95 // of the rate that was asked for

// Kept reports whether a cell did what was asked of it, as [Sweep] has it: at least 95% of its
// rate, by the median of the rounds, and nothing left unstarted. A closed loop, of which no rate is
// asked, keeps none.
func (c *Cell) Kept() bool {
	return c.Rate > 0 && c.OpsPerSecond.Median >= keptRate*c.Rate && c.Unstarted == 0
}
