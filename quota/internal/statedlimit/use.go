package statedlimit

// A use measures how many units are used for each request of this process, because other clients use the limit, too, or
// because requests cost several units. Both are a reason to send fewer requests when few units are left:
//
//	claim 20: 100 left ─────────────────▶ claim 30: 60 left       40 used, 4 for each
//
// It is measured from the first response of a window on, and what was measured in the window before counts like
// priorClaims claims. If units come back meanwhile, it is a lower bound. The zero use is one unit.
type use struct {
	left   int64   // units left by the response from which on it is measured
	claim  uint64  // the claim of that response
	before float64 // units for each request in the window before; 0: 1
	each   float64 // units for each request; 0: 1
}

const priorClaims = 4

// update applies the response to claim n, which states that left units are left, and whether a window has begun. If none
// are left, claims may have been rejected, which use none.
func (u *use) update(left int64, n uint64, begins bool) {
	if begins || left > u.left { // units have come back
		u.left, u.claim, u.before = left, n, u.each
	}
	if n > u.claim && left > 0 {
		u.each = max((priorClaims*max(u.before, 1)+float64(u.left-left))/(priorClaims+float64(n-u.claim)), 1)
	}
}
