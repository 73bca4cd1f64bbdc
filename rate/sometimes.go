package rate

import (
	"sync"
	"time"
)

// Sometimes calls a function at some of its occasions, for example to log the first of many
// equal errors and then one of them each minute. A call of Do runs the function if any of
// the fields says so. The zero Sometimes runs it once. A Sometimes must not be copied after
// the first call of Do.
type Sometimes struct {
	// First is the number of calls at the beginning that run the function. The first call
	// always does, also if First is zero or negative.
	First int

	// Every n runs the function in the first call and in each nth call after it. Zero or a
	// negative value means that the number of calls does not matter.
	Every int

	// Interval runs the function if so much time has passed since it last ended. Zero or a
	// negative value means that time does not matter.
	Interval time.Duration

	mu    sync.Mutex // held while the function runs
	calls int        // calls of Do that have returned
	ended time.Time  // when the function last ended; zero without Interval
}

// Do calls f or not, as First, Every and Interval say. Calls of Do run one after another,
// so that f is never run twice at the same time, and a Do that follows the one that ran f
// returns after f has ended. f must not call Do of the same Sometimes: it would wait
// forever. A call in which f panics does not count.
func (s *Sometimes) Do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isDue() {
		f()
		if s.Interval > 0 {
			s.ended = time.Now()
		}
	}
	s.calls++
}

// isDue reports whether the next call runs the function.
func (s *Sometimes) isDue() bool {
	return s.calls == 0 ||
		s.calls < s.First ||
		s.Every > 0 && s.calls%s.Every == 0 ||
		s.Interval > 0 && time.Since(s.ended) >= s.Interval
}
