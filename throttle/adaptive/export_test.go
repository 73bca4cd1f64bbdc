package adaptive

// RateAt returns the rate of c so many seconds after a cut at peak.
func RateAt(c Curve, peak, seconds float64) float64 { return c.rateAt(peak, seconds) }

// DecreaseFactor returns the part of the peak that remains after a cut.
func DecreaseFactor(c Curve) float64 { return c.decreaseFactor() }
