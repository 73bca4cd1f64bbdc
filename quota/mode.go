package quota

// A Mode says what a Tracker may hold requests back for.
type Mode uint8

const (
	// Full obeys what servers state, and estimates what they do not state.
	Full Mode = iota

	// StatedOnly obeys what servers state: Retry-After, what is left of a quota, and
	// documented errors. There is no slow start, no learned rate, and no bound on
	// requests in flight to a server that responds late.
	StatedOnly

	// Disabled holds no request back. Responses are still classified.
	Disabled
)
