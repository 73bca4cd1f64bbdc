package throttleredis

// What tests in the external package need.
var Fresh = fresh

// OnLocalClock has s decide by its Clock.
func (s *Store) OnLocalClock() { s.onLocalClock = true }
