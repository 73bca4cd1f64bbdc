package rate

import (
	"sync"
	"time"
)

// Sometimes runs a function in some of the calls of Do, for example to log the first of many
// equal errors and then one of them each minute. Each field is a condition, and Do runs the
// function if one of them is met. The zero Sometimes runs it once. A Sometimes must not be
// copied after the first call of Do.
type Sometimes struct {
	// First is the number of calls, counted from the first, that run the function. The first
	// call always does, also if First is zero or negative.
	First int

	// Every n runs the function in the first call and in each nth call after it. Zero or a
	// negative value means that the number of calls does not matter.
	Every int

	// Interval runs the function if at least Interval has passed since it last ended. Zero or a
	// negative value means that time does not matter.
	Interval time.Duration

	mu    sync.Mutex // held while the function runs
	calls int        // calls of Do that have returned
	ended time.Time  // when the function last ended; zero without Interval
}

// Do runs f if First, Every or Interval requires it. Calls of Do run one after another: f is
// never run twice at the same time, and a concurrent Do returns after f has ended. f must
// not call Do of the same Sometimes, which would block forever. A call in which f panics
// does not count.
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
