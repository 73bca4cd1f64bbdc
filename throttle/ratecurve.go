package throttle

import "math"

// A RateCurve says how the rate of an Adaptive goes on after a cut. Both methods are pure
// functions; rates are units a second.
type RateCurve interface {
	// Low returns the part of the peak that is left by a cut, between 0 and 1.
	DecreaseFactor() float64
	// Rate returns the rate after callers have waited for so many seconds since the
	// cut, where peak is what was sent before it.
	Rate(peak, seconds float64) float64
}

// Cubic grows around the peak: fast while it is far below, slowly near it, then faster
// and faster, as TCP CUBIC does (RFC 9438, section 4.2):
//
//	rate = Scale*(t-k)^3 + peak, where k = cbrt(peak*(1-Beta)/Scale)
//
// so that it begins at Beta*peak and is back at peak after k seconds, whatever rates
// are usual: the higher the peak, the longer it takes. The zero Cubic has the constants
// of the AWS SDKs.
type Cubic struct {
	Beta  float64 // part of the peak that a cut leaves; 0: 0.7
	Scale float64 // growth; 0: 0.4
}

// Low implements Law.
func (c Cubic) DecreaseFactor() float64 { return orElse(c.Beta, .7) }

// Rate implements Law.
func (c Cubic) Rate(peak, seconds float64) float64 {
	scale := orElse(c.Scale, .4)
	k := math.Cbrt(peak * (1 - c.DecreaseFactor()) / scale)
	return scale*math.Pow(seconds-k, 3) + peak
}

// AIMD grows evenly, and is cut to a part: additive increase, multiplicative decrease.
// Clients that share a server and all do so end up with equal parts of it.
type AIMD struct {
	Beta float64 // part of the peak that a cut leaves; 0: 0.7
	Step float64 // units a second that the rate grows by in each second; 0: 1
}

// Low implements Law.
func (a AIMD) DecreaseFactor() float64 { return orElse(a.Beta, .7) }

// Rate implements Law.
func (a AIMD) Rate(peak, seconds float64) float64 {
	return peak*a.DecreaseFactor() + orElse(a.Step, 1)*seconds
}

func orElse(f, or float64) float64 {
	if f == 0 {
		return or
	}
	return f
}
