package quota

// A Mode selects the reasons for which a Tracker may hold requests.
type Mode uint8

const (
	// Full obeys the limits that servers state, and estimates those that they do not state.
	Full Mode = iota

	// StatedOnly obeys the limits that servers state: Retry-After, the remaining units of a
	// quota, and documented errors. There is no slow start, no learned rate, and no bound on
	// requests in flight to a server that responds late.
	StatedOnly

	// Disabled holds no requests. Responses are still classified.
	Disabled
)
