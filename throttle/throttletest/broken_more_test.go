package throttletest

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
)

// Limiters of other kinds, and what goes wrong with those.
func TestTestLimiter_catchesOthers(t *testing.T) {
	two := func(w time.Duration) int64 { return 10 * (int64(w/time.Second) + 2) }
	for _, b := range []struct {
		name    string
		new     func(throttle.Clock) throttle.Limiter
		spec    Spec
		promise string // "": it is sound
	}{
		{"window", newWindow(false), Spec{Bound: two}, ""},
		{"window that credits the next", newWindow(true), Spec{Bound: two}, "the acts of random histories obey the bound"},

		{"slots", newSlots(""), Spec{InFlight: 5, WaitUnknown: true}, ""},
		{"slots that leak", newSlots("leaks"), Spec{InFlight: 5, WaitUnknown: true}, "the end of a claim frees its place"},
		{"slots free at More", newSlots("more"), Spec{InFlight: 5, WaitUnknown: true}, "the acts of random histories obey the bound"},
		{"slots too many", newSlots("six"), Spec{InFlight: 5, WaitUnknown: true}, "the acts of many goroutines obey the bound"},
		{"slots that say they know", newSlots(""), Spec{InFlight: 5}, "a refusal takes nothing"},

		{"a bucket that ends twice", newBucket(""), Spec{Limit: five, EndsOnce: true}, "a second end does nothing"},
		{"nothing to check", newBucket(""), Spec{}, "a negative cost is ErrCost"},
		{"no limiter", func(throttle.Clock) throttle.Limiter { return nil }, Spec{Limit: five}, "no cost means one unit"},

		{"wrapper", wrapped(wrapper{}), wrapping(wrapper{}), ""},
		{"wrapper that loses Observe", wrapped(wrapper{deaf: true}), wrapping(wrapper{deaf: true}), wrapPromise},
		{"wrapper that loses Cancel", wrapped(wrapper{keeps: true}), wrapping(wrapper{keeps: true}), "Cancel gives back"},
		{"wrapper that copies field by field", wrapped(wrapper{copies: true}), wrapping(wrapper{copies: true}), wrapPromise},
		{"wrapper that writes its own Grant", wrapped(wrapper{grants: true}), wrapping(wrapper{grants: true}), wrapPromise},
		{"wrapper that hands back the latest", func(clk throttle.Clock) throttle.Limiter {
			return &latest{Limiter: newBucket("")(clk)}
		}, Spec{Limit: five, Wrap: func(l throttle.Limiter) throttle.Limiter { return &latest{Limiter: l} }}, wrapPromise},
		{"two limits, the second refuses", func(clk throttle.Clock) throttle.Limiter {
			return greedy{newBucket("")(clk), throttle.NewTokenBucket(throttle.Limit{Count: 3, Per: time.Second, Burst: 3}, clk)}
		}, Spec{Bound: func(time.Duration) int64 { return math.MaxInt64 }}, "a refusal takes nothing"},
	} {
		t.Run(b.name, func(t *testing.T) {
			said := failures(t, b.new, b.spec)
			if b.promise == "" && len(said) > 0 {
				t.Errorf("it is sound, and fails: %v", said)
			}
			if b.promise != "" && said[b.promise] == "" {
				t.Errorf("it keeps the promise %q; broken: %v", b.promise, said)
			}
			t.Log(said[b.promise])
		})
	}
}

const wrapPromise = "a wrapper hands back what it was given"

// window allows ten units in each second of the clock.
type window struct {
	clk     throttle.Clock
	credits bool // Cancel credits whatever window it is
	mu      sync.Mutex
	last    time.Time
	used    int64
}

func newWindow(credits bool) func(throttle.Clock) throttle.Limiter {
	return func(clk throttle.Clock) throttle.Limiter {
		return &window{clk: clk, credits: credits}
	}
}

func (w *window) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	if c.Now.IsZero() {
		c.Now = w.clk.Now()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.Now.Before(w.last) {
		c.Now = w.last
	}
	second, used := c.Now.Unix(), w.used
	if second > w.last.Unix() {
		used = 0
	}
	d := throttle.Decision{Policy: "window", At: c.Now, Limit: 10, Grant: uint64(second)}
	d.ResetAfter = time.Unix(second+1, 0).Sub(c.Now)
	switch {
	case n > 10:
		d.Wait = throttle.Forever
	case n > 10-used:
		d.Wait = d.ResetAfter
	default:
		d.OK = true
		if used += n; !c.DryRun {
			w.last, w.used = c.Now, used
		}
	}
	d.Remaining = 10 - used
	if c.DryRun && d.OK {
		d.Remaining += n
	}
	return d, nil
}

func (w *window) Cancel(_ context.Context, c throttle.Claim, d throttle.Decision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n, _ := c.Units(); d.OK && (w.credits || uint64(w.last.Unix()) == d.Grant) {
		w.used -= n
	}
}

// slots allows five units at a time.
type slots struct {
	fault string
	most  int64
	mu    sync.Mutex
	used  int64
}

func newSlots(fault string) func(throttle.Clock) throttle.Limiter {
	most := int64(5)
	if fault == "six" {
		most = 6
	}
	return func(throttle.Clock) throttle.Limiter { return &slots{fault: fault, most: most} }
}

func (s *slots) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := throttle.Decision{Policy: "slots", At: c.Now, OK: n <= s.most-s.used}
	if n > s.most {
		d.Wait = throttle.Forever
	}
	if d.OK && !c.DryRun {
		s.used += n
	}
	return d, nil
}

func (s *slots) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	s.Observe(ctx, c, d, throttle.Feedback{})
}

func (s *slots) Observe(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, _ := c.Units(); d.OK && s.fault != "leaks" && (!f.More || s.fault == "more") {
		s.used -= n
	}
}

// wrapper passes on what it is told, unless it is broken.
type wrapper struct {
	throttle.Limiter
	deaf, keeps, copies, grants bool
}

func wrapped(w wrapper) func(throttle.Clock) throttle.Limiter {
	return func(clk throttle.Clock) throttle.Limiter {
		w.Limiter = newBucket("")(clk)
		return w
	}
}

func wrapping(w wrapper) Spec {
	return Spec{Limit: five, Wrap: func(l throttle.Limiter) throttle.Limiter {
		w.Limiter = l
		return w
	}}
}

func (w wrapper) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	d, err := w.Limiter.Reserve(ctx, c)
	if w.copies {
		d = throttle.Decision{OK: d.OK, Policy: d.Policy, At: d.At, Wait: d.Wait, Limit: d.Limit, Remaining: d.Remaining, ResetAfter: d.ResetAfter, Grant: d.Grant}
	}
	if w.grants {
		d.Grant = 1234
	}
	return d, err
}

func (w wrapper) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	if !w.keeps {
		w.Limiter.Cancel(ctx, c, d)
	}
}

func (w wrapper) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if !w.deaf {
		throttle.Observe(ctx, w.Limiter, c, d, f)
	}
}

// latest remembers one Decision, which is right as long as claims do not overlap.
type latest struct {
	throttle.Limiter
	mu sync.Mutex
	d  throttle.Decision
}

func (l *latest) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	d, err := l.Limiter.Reserve(ctx, c)
	l.mu.Lock()
	defer l.mu.Unlock()
	if d.OK && !c.DryRun {
		l.d = d
	}
	return d, err
}

func (l *latest) own() throttle.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.d
}

func (l *latest) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	if d.OK {
		l.Limiter.Cancel(ctx, c, l.own())
	}
}

func (l *latest) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if d.OK {
		throttle.Observe(ctx, l.Limiter, c, l.own(), f)
	}
}

// greedy asks two limiters and keeps what the first one granted if the second refuses.
type greedy struct{ a, b throttle.Limiter }

func (g greedy) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	d, err := g.a.Reserve(ctx, c)
	if err != nil || !d.OK {
		return d, err
	}
	return g.b.Reserve(ctx, c)
}

func (g greedy) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	g.a.Cancel(ctx, c, d)
	g.b.Cancel(ctx, c, d)
}
