package throttletest

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// Limiters of other kinds and their faults.
func TestTestLimiter_reportsOtherBrokenLimiters(t *testing.T) {
	two := func(w time.Duration) int64 { return 10 * (int64(w/time.Second) + 2) }
	for _, b := range []struct {
		name        string
		new         func(throttle.Clock) throttle.Limiter
		spec        Spec
		requirement string // "": it is sound
	}{
		{"window", newWindow(false), Spec{Bound: two}, ""},
		{"window that credits the next", newWindow(true), Spec{Bound: two}, "random histories obey the bound"},

		{"slots", newConcurrencyLimiter(""), Spec{Concurrency: 5, WaitUnknown: true}, ""},
		{"slots that leak", newConcurrencyLimiter("leaks"), Spec{Concurrency: 5, WaitUnknown: true}, "the end of a claim releases its units"},
		{"slots free at More", newConcurrencyLimiter("more"), Spec{Concurrency: 5, WaitUnknown: true}, "random histories obey the bound"},
		{"slots that end at the response", newConcurrencyLimiter("says EndsAtResponse"), Spec{Concurrency: 5, WaitUnknown: true}, "EndsAtResponse means that the end of a claim releases nothing"},
		{"slots too many", newConcurrencyLimiter("six"), Spec{Concurrency: 5, WaitUnknown: true}, "concurrent claims obey the bound"},
		{"slots that say they know", newConcurrencyLimiter(""), Spec{Concurrency: 5}, "a rejection takes nothing"},

		{"a bucket that ends twice", newBucket(""), Spec{Limit: five, EndsOnce: true}, "a second end does nothing"},
		{"nothing to check", newBucket(""), Spec{}, "a negative cost is ErrCost"},
		{"no limiter", func(throttle.Clock) throttle.Limiter { return nil }, Spec{Limit: five}, "no cost means one unit"},

		{"wrapper", newWrapper(wrapper{}), wrapSpec(wrapper{}), ""},
		{"wrapper that loses Observe", newWrapper(wrapper{losesObserve: true}), wrapSpec(wrapper{losesObserve: true}), wrapRequirement},
		{"wrapper that loses Cancel", newWrapper(wrapper{losesCancel: true}), wrapSpec(wrapper{losesCancel: true}), "Unused returns the units"},
		{"wrapper that copies field by field", newWrapper(wrapper{copiesFields: true}), wrapSpec(wrapper{copiesFields: true}), wrapRequirement},
		{"wrapper that writes its own Grant", newWrapper(wrapper{writesGrant: true}), wrapSpec(wrapper{writesGrant: true}), wrapRequirement},
		{"wrapper that hands back the latest", func(clk throttle.Clock) throttle.Limiter {
			return &latest{Limiter: newBucket("")(clk)}
		}, Spec{Limit: five, Wrap: func(l throttle.Limiter) throttle.Limiter { return &latest{Limiter: l} }}, wrapRequirement},
		{"two limits, the second rejects", func(clk throttle.Clock) throttle.Limiter {
			return wastefulPair{newBucket("")(clk), throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Count: 3, Per: time.Second, Burst: 3}), clk)}
		}, Spec{Bound: func(time.Duration) int64 { return math.MaxInt64 }}, "a rejection takes nothing"},
	} {
		t.Run(b.name, func(t *testing.T) {
			failed := failuresByRequirement(t, b.new, b.spec)
			if b.requirement == "" && len(failed) > 0 {
				t.Errorf("it is correct, and fails: %v", failed)
			}
			if b.requirement != "" && failed[b.requirement] == "" {
				t.Errorf("it meets the requirement %q; failed: %v", b.requirement, failed)
			}
			t.Log(failed[b.requirement])
		})
	}
}

const wrapRequirement = "a wrapper hands back what it was given"

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

func (w *window) Report(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		w.mu.Lock()
		defer w.mu.Unlock()
		if n, _ := c.Units(); d.OK && (w.credits || uint64(w.last.Unix()) == d.Grant) {
			w.used -= n
		}
	}
}

// Traits implements throttle.Limiter.
func (*window) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

// concurrencyLimiter allows five units at a time.
type concurrencyLimiter struct {
	fault string
	most  int64
	mu    sync.Mutex
	used  int64
}

func newConcurrencyLimiter(fault string) func(throttle.Clock) throttle.Limiter {
	most := int64(5)
	if fault == "six" {
		most = 6
	}
	return func(throttle.Clock) throttle.Limiter { return &concurrencyLimiter{fault: fault, most: most} }
}

func (s *concurrencyLimiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
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

func (s *concurrencyLimiter) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		s.Report(ctx, c, d, throttle.Feedback{})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n, _ := c.Units(); d.OK && s.fault != "leaks" && (f.State != throttle.Ongoing || s.fault == "more") {
		s.used -= n
	}
}

// Traits implements throttle.Limiter.
func (s *concurrencyLimiter) Traits() throttle.Traits {
	return throttle.Traits{EndsAtResponse: s.fault == "says EndsAtResponse"}
}

// wrapper forwards all calls unless it is broken.
type wrapper struct {
	throttle.Limiter
	losesObserve, losesCancel, copiesFields, writesGrant bool

	changesClaim    func(*throttle.Claim)
	changesDecision func(*throttle.Decision)
	changesTraits   func(*throttle.Traits)
}

func (w wrapper) Traits() throttle.Traits {
	t := w.Limiter.Traits()
	if w.changesTraits != nil {
		w.changesTraits(&t)
	}
	return t
}

func newWrapper(w wrapper) func(throttle.Clock) throttle.Limiter {
	return func(clk throttle.Clock) throttle.Limiter {
		w.Limiter = newBucket("")(clk)
		return w
	}
}

func wrapSpec(w wrapper) Spec {
	return Spec{Limit: five, Wrap: func(l throttle.Limiter) throttle.Limiter {
		w.Limiter = l
		return w
	}}
}

func (w wrapper) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if w.changesClaim != nil {
		w.changesClaim(&c)
	}
	d, err := w.Limiter.Reserve(ctx, c)
	if w.changesDecision != nil {
		w.changesDecision(&d)
	}
	if w.copiesFields {
		d = throttle.Decision{OK: d.OK, Policy: d.Policy, At: d.At, Wait: d.Wait, Limit: d.Limit, Remaining: d.Remaining, ResetAfter: d.ResetAfter, Grant: d.Grant}
	}
	if w.writesGrant {
		d.Grant = 1234
	}
	return d, err
}

func (w wrapper) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		if !w.losesCancel {
			w.Limiter.Report(ctx, c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		}
		return
	}
	if !w.losesObserve {
		w.Limiter.Report(ctx, c, d, f)
	}
}

// latest remembers one Decision, which is correct as long as claims do not overlap.
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

func (l *latest) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		if d.OK {
			l.Limiter.Report(ctx, c, l.own(), throttle.Feedback{Now: c.Now, State: throttle.Unused})
		}
		return
	}
	if d.OK {
		l.Limiter.Report(ctx, c, l.own(), f)
	}
}

// wastefulPair asks two limiters and keeps the units of the first if the second rejects.
type wastefulPair struct{ a, b throttle.Limiter }

func (g wastefulPair) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	d, err := g.a.Reserve(ctx, c)
	if err != nil || !d.OK {
		return d, err
	}
	return g.b.Reserve(ctx, c)
}

func (g wastefulPair) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		g.a.Report(ctx, c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		g.b.Report(ctx, c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
	}
}

// Traits implements throttle.Limiter.
func (wastefulPair) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

// A wrapper that changes what it forwards fails, unless the change is allowed.
func TestTestLimiter_reportsWhatAWrapperChanges(t *testing.T) {
	const forwards = "a wrapper forwards claims, decisions and Traits"
	for name, w := range map[string]wrapper{
		"Waits":          {changesClaim: func(c *throttle.Claim) { c.Waits = false }},
		"Waited":         {changesClaim: func(c *throttle.Claim) { c.Waited = 0 }},
		"Deadline":       {changesClaim: func(c *throttle.Claim) { c.Deadline = time.Time{} }},
		"DryRun":         {changesClaim: func(c *throttle.Claim) { c.DryRun = false }},
		"Key":            {changesClaim: func(c *throttle.Claim) { c.Key = "" }},
		"Cost":           {changesClaim: func(c *throttle.Claim) { c.Cost = 1 }},
		"Ahead":          {changesClaim: func(c *throttle.Claim) { c.Ahead = 0 }},
		"QueueBound":     {changesDecision: func(d *throttle.Decision) { d.QueueBound = 0 }},
		"Expected":       {changesDecision: func(d *throttle.Decision) { d.Expected = 0 }},
		"ServerImposed":  {changesDecision: func(d *throttle.Decision) { d.ServerImposed = false }},
		"Test":           {changesDecision: func(d *throttle.Decision) { d.Test = false }},
		"Fresh":          {changesDecision: func(d *throttle.Decision) { d.Fresh = true }},
		"NonBlocking":    {changesTraits: func(t *throttle.Traits) { t.NonBlocking = true }},
		"EndsAtResponse": {changesTraits: func(t *throttle.Traits) { t.EndsAtResponse = true }},
		"CountsRejected": {changesTraits: func(t *throttle.Traits) { t.CountsRejected = false }},
	} {
		failed := failuresByRequirement(t, newWrapper(w), wrapSpec(w))
		require.NotEmpty(t, failed[forwards], "%s: %v", name, failed)
	}
	for name, w := range map[string]wrapper{
		"Degraded":  {changesDecision: func(d *throttle.Decision) { d.Degraded = true }},
		"not Fresh": {changesDecision: func(d *throttle.Decision) { d.Fresh = false }},
		"not Ahead": {
			changesClaim:  func(c *throttle.Claim) { c.Ahead = 0 },
			changesTraits: func(t *throttle.Traits) { t.BooksAhead = false },
		},
	} {
		require.Empty(t, failuresByRequirement(t, newWrapper(w), wrapSpec(w)), name)
	}
}
