package throttletest

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// nonBlocking checks that the methods of a limiter that states NonBlocking do not use their context, so
// that they cannot wait for it to end.
func (s *suite) nonBlocking() {
	sub := s.newSubject(epoch)
	if !sub.l.Traits().NonBlocking {
		return
	}
	ctx := &watchedContext{Context: s.Context()}
	for _, c := range []throttle.Claim{{Key: key}, {Key: key, DryRun: true}, {Key: key, Waits: true}} {
		for range 2 {
			d, err := sub.l.Reserve(ctx, c)
			if err == nil && d.OK && !c.DryRun {
				sub.l.Report(ctx, c, d, throttle.Feedback{State: throttle.Ongoing})
				sub.l.Report(ctx, c, d, throttle.Feedback{State: throttle.Unused})
			}
			if err != nil || ctx.used.Load() {
				s.Fatalf("Traits.NonBlocking is true; with a context that is done, Reserve(%+v): error %v, uses the context: %v", c, err, ctx.used.Load())
			}
		}
	}
}

// A watchedContext is done, and records whether it was asked.
type watchedContext struct {
	context.Context
	used atomic.Bool
}

func (c *watchedContext) Done() <-chan struct{} {
	c.used.Store(true)
	done := make(chan struct{})
	close(done)
	return done
}

func (c *watchedContext) Err() error {
	c.used.Store(true)
	return context.Canceled
}

// endsAtResponse checks that the end of claims releases none of their units if the limiter states
// that they may end before the work does.
func (s *suite) endsAtResponse() {
	sub := s.newSubject(epoch)
	held, dry := sub.hold()
	if !dry || !sub.l.Traits().EndsAtResponse {
		return
	}
	for _, d := range held {
		sub.observe(1, d, throttle.Feedback{})
	}
	if d := sub.take(1); d.OK {
		s.Errorf("Traits.EndsAtResponse is true, but the end of %d claims released their units: the next was %s", len(held), describe(d))
	}
}

// booksAhead checks that a limiter that states BooksAhead grants for later what it would otherwise
// reject. One that wraps others states it if it forwards Ahead, which the test of Wrap checks.
func (s *suite) booksAhead() {
	sub := s.newSubject(epoch)
	_, d, dry := sub.drain()
	if s.Wrap != nil || !dry || !sub.l.Traits().BooksAhead || d.Wait == throttle.Forever {
		return
	}
	if ahead := sub.reserveAhead(throttle.Claim{DryRun: true}, throttle.Forever); !ahead.OK {
		s.Errorf("Traits.BooksAhead is true, but a claim for any later time was %s", describe(ahead))
	}
}

// parts checks that the part to which a limiter attributes a rejection rejects the claim.
func (s *suite) parts() {
	sub := s.newSubject(epoch)
	parts := sub.l.Traits().Parts
	_, d, dry := sub.drain()
	if !dry || len(parts) == 0 {
		return
	}
	if d.Part() >= len(parts) {
		s.Fatalf("a claim was %s: by part %d of %d", describe(d), d.Part(), len(parts))
	}
	p, err := parts[d.Part()].Reserve(s.Context(), throttle.Claim{Key: key, Now: sub.clk.Now(), DryRun: true})
	if err != nil || p.OK {
		s.Errorf("a claim was %s: by part %d, which does not reject it: %s, error %v", describe(d), d.Part(), describe(p), err)
	}
}

// fresh compares a limiter that states Fresh with a new one.
func (s *suite) fresh() {
	span, most := s.recoveryAndLargest()
	for name, use := range map[string]func(*subject){
		"a dry run":   func(sub *subject) { sub.peek() },
		"a claim":     func(sub *subject) { sub.take(1) },
		"a rejection": func(sub *subject) { sub.drain() },
		"rejections": func(sub *subject) {
			for range 8 {
				sub.drain()
			}
		},
	} {
		for _, later := range []time.Duration{0, 1, span / 2, span, 3 * span} {
			sub := s.newSubject(epoch)
			use(sub)
			sub.clk.add(later)
			if !sub.peek().Fresh {
				continue
			}
			unused := s.newSubject(sub.clk.Now())
			for i := range int64(20) {
				n := 1 + i%2*(most/4)
				a, b := sub.take(n), unused.take(n)
				if a.OK != b.OK || a.Limit != b.Limit || a.Remaining != b.Remaining {
					s.Fatalf("Fresh is true %v after %s, but a claim of %d units is %s; by a new limiter: %s", later, name, n, describe(a), describe(b))
				}
			}
		}
	}
}
