package throttleredis

// NewTestStore is newTestStore, for tests in the external package.
var NewTestStore = newTestStore

// UseLocalClock makes s use its Clock instead of the server's.
func (s *Store) UseLocalClock() { s.useLocalClock = true }
