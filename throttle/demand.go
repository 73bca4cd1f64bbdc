package throttle

// A Demand is a claim on one limit, one of several that must be granted together.
type Demand struct {
	Limiter Limiter // nil: none
	Key     string  // Claim.Key
	Cost    int64   // Claim.Cost
}
