package throttletest

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// concurrentClaims claims, holds, cancels and observes in eight goroutines while time
// passes.
func (s *suite) concurrentClaims() {
	const goroutines = 8
	span, most := s.recoveryAndLargest()
	tick := max(span/500, 1)
	sub := s.newSubject(epoch)
	var kept, largest atomic.Int64
	var wg sync.WaitGroup
	for id := range uint64(goroutines) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(id, 2))
			for range 200 {
				n := 1 + r.Int64N(min(most, 4))
				d, err := sub.l.Reserve(s.Context(), throttle.Claim{Key: key, Cost: n})
				switch {
				case err != nil:
					s.Errorf("Reserve of %d units: %v", n, err)
				case d.OK && r.IntN(3) == 0:
					sub.cancel(n, d)
				case d.OK:
					sub.observe(n, d, throttle.Feedback{})
					kept.Add(n)
					largest.Store(max(n, largest.Load()))
				}
				sub.clk.add(tick)
			}
		})
	}
	wg.Wait()
	w := sub.clk.Now().Sub(epoch)
	if bound := s.bound(w, 4); kept.Load() > bound {
		s.Errorf("%d goroutines used %d units within %v; the bound is %d", goroutines, kept.Load(), w, bound)
	}
	s.concurrentClaimsAtOneInstant(most)
}

// concurrentClaimsAtOneInstant claims in eight goroutines without advancing the clock.
func (s *suite) concurrentClaimsAtOneInstant(most int64) {
	sub := s.newSubject(epoch)
	var kept atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				c := throttle.Claim{Key: key, Cost: 1}
				if d, err := sub.l.Reserve(s.Context(), c); err == nil && d.OK {
					kept.Add(1)
				}
			}
		})
	}
	wg.Wait()
	bound := s.bound(time.Duration(0), 1)
	if s.Concurrency > 0 {
		bound = min(bound, s.Concurrency)
	}
	if kept.Load() > bound {
		s.Errorf("8 goroutines used %d units in one instant; the bound is %d", kept.Load(), bound)
	}
}
