package throttleredis

// What tests in the external package need.
var NewTestStore = newTestStore

// UseLocalClock has s decide by its Clock.
func (s *Store) UseLocalClock() { s.useLocalClock = true }
