package adaptive

import (
	"cmp"
	"math"
)

// A Curve determines how the rate of a Limiter increases after a cut: Cubic or AIMD. Both methods are pure functions;
// rates are in units per second.
type Curve interface {
	// decreaseFactor returns the part of the peak that remains after a cut, between 0 and 1.
	decreaseFactor() float64
	// rateAt returns the rate after callers have waited for so many seconds since the cut, where
	// peak is the rate of sending before the cut. NaN counts as Config.MinRate.
	rateAt(peak, seconds float64) float64
}

// Cubic increases the rate fast while it is far below the peak, slowly near the peak, and
// then faster again, as TCP CUBIC does (RFC 9438, section 4.2):
//
//	rate = Scale*(t-k)^3 + peak, where k = cbrt(peak*(1-Beta)/Scale)
//
// The rate starts at Beta*peak and reaches the peak after k seconds: the higher the peak,
// the longer it takes. The zero Cubic has the constants of the AWS SDKs.
type Cubic struct {
	// Beta is the part of the peak that remains after a cut. Zero means 0.7.
	Beta float64

	// Scale is the constant C of RFC 9438. Zero means 0.4.
	Scale float64
}

// decreaseFactor implements Curve.
func (c Cubic) decreaseFactor() float64 { return cmp.Or(c.Beta, .7) }

// rateAt implements Curve.
func (c Cubic) rateAt(peak, seconds float64) float64 {
	scale := cmp.Or(c.Scale, .4)
	k := math.Cbrt(peak * (1 - c.decreaseFactor()) / scale)
	return scale*math.Pow(seconds-k, 3) + peak
}

// AIMD increases the rate linearly and cuts it to a fraction: additive increase,
// multiplicative decrease. Clients of the same server that all use AIMD converge to equal
// shares.
type AIMD struct {
	// Beta is the part of the peak that remains after a cut. Zero means 0.7.
	Beta float64

	// Step is the increase of the rate in each second, in units per second. Zero means 1.
	Step float64
}

// decreaseFactor implements Curve.
func (a AIMD) decreaseFactor() float64 { return cmp.Or(a.Beta, .7) }

// rateAt implements Curve.
func (a AIMD) rateAt(peak, seconds float64) float64 {
	return peak*a.decreaseFactor() + cmp.Or(a.Step, 1)*seconds
}
