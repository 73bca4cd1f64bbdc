package throttle

// A Demand is a claim on one limit, as one of several claims that must be granted
// together.
type Demand struct {
	// Limiter must grant the claim. Nil means no limit.
	Limiter Limiter

	// Key is the Claim.Key. Limiters with a single limit ignore it.
	Key string

	// Cost is the Claim.Cost. Zero means 1.
	Cost int64
}
