package replay

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/heed-go/heed/throttle"
)

// An algorithm is a scenario of one of the classic algorithms, in exact rational numbers:
// the decisions must be equal.
type algorithm struct {
	Algo   string
	Params algorithmParams
	Flips  int `json:"float64_flips"`
	Ops    []algorithmOp
}

type algorithmParams struct {
	Capacity, Limit int64
	Rate            rational `json:"rate_per_s"`
	Initial         *int64   // nil: Capacity
	T0              int64    `json:"t0_us"`
	RefillAmount    int64    `json:"refill_amount"`
	RefillTime      int64    `json:"refill_time_us"`
	Window          int64    `json:"window_us"`
	Anchor          string
	RecordRejected  bool `json:"record_rejected"`
	Rounding        string
	K               int
}

type algorithmOp struct {
	T            int64 `json:"t_us"`
	N            int64
	Allowed      bool
	Slack        rational
	RetryAfter   *rational `json:"retry_after_s"`
	ResetAfter   *rational `json:"reset_after_s"`
	Wait         *rational `json:"wait_s"`
	WaitingAfter int64     `json:"waiting_after"`
}

// algorithms holds for each algorithm the constructor of the limiter, the function that
// compares values other than the decision itself, and the longest wait of a grant.
var algorithms = map[string]struct {
	new     func(m *Limiters, p algorithmParams, clk throttle.Clock) throttle.Limiter
	compare func(t *result, p algorithmParams, op algorithmOp, d throttle.Decision)
	maxWait time.Duration
}{
	"token_bucket":          {newTokenBucket, compareBucket, 0},
	"leaky_meter":           {newTokenBucket, compareBucket, 0},
	"token_bucket_interval": {newRefillBucket, compareBucket, 0},
	"leaky_queue":           {newLeakyBucket, compareQueue, throttle.Forever},
	"leaky_queue_tick":      {newTickQueue, compareQueue, throttle.Forever},
	"fixed_window":          {newFixedWindow, compareWindow, 0},
	"sliding_log":           {newSlidingLog, compareLog, 0},
	"sliding_counter":       {newSlidingCounter, compareRemaining, 0},
	"sliding_subwindows":    {newSubWindows, compareRemaining, 0},
}

func replayAlgorithm(line []byte, t *result) error {
	var s algorithm
	if err := json.Unmarshal(line, &s); err != nil {
		return err
	}
	a, ok := algorithms[s.Algo]
	if !ok {
		return fmt.Errorf("%q is not a known algorithm", s.Algo)
	}
	t.waive = s.Flips > 0
	clk := &clock{now: time.UnixMicro(s.Params.T0)}
	l := throttle.DenyAll
	if s.Params.Capacity+s.Params.Limit > 0 || s.Algo == "leaky_queue" { // a queue may have no waiting places
		if l = a.new(t.limiters, s.Params, clk); l == nil {
			return errNoLimiter
		}
	}
	for _, op := range s.Ops {
		t.op()
		clk.now = time.UnixMicro(op.T)
		c := throttle.Claim{Cost: op.N}
		if op.N == 0 { // claims nothing; here a cost of 0 means 1
			c.DryRun = true
		}
		d, err := throttle.ReserveAhead(context.Background(), l, c, a.maxWait)
		if err != nil {
			return err
		}
		if op.N == 0 {
			continue
		}
		expect(t, "allowed", op.Allowed, d.OK)
		a.compare(t, s.Params, op, d)
		if s.Algo == "fixed_window" && !d.OK {
			openWindow(l, d)
		}
	}
	return nil
}

func newTokenBucket(m *Limiters, p algorithmParams, clk throttle.Clock) throttle.Limiter {
	b := m.TokenBucket(p.Rate.perSecond(p.Capacity), clk)
	if p.Initial != nil && *p.Initial < p.Capacity {
		_, _ = b.Reserve(context.Background(), throttle.Claim{Cost: p.Capacity - *p.Initial})
	}
	return b
}

func newRefillBucket(m *Limiters, p algorithmParams, clk throttle.Clock) throttle.Limiter {
	r := throttle.RefillBucketConfig{Limit: throttle.Limit{Count: p.RefillAmount, Per: time.Duration(p.RefillTime) * time.Microsecond, Burst: p.Capacity}}
	if p.Initial != nil {
		r.InitialDeficit = p.Capacity - *p.Initial
	}
	return m.RefillBucket(r, clk)
}

func newLeakyBucket(m *Limiters, p algorithmParams, clk throttle.Clock) throttle.Limiter {
	return m.LeakyBucket(throttle.LeakyBucketConfig{Limit: p.Rate.perSecond(1), Queue: p.Capacity, Split: true}, clk)
}

func newTickQueue(m *Limiters, p algorithmParams, clk throttle.Clock) throttle.Limiter {
	return m.TickQueue(throttle.TickQueueConfig{Limit: p.Rate.perSecond(0), Queue: p.Capacity}, clk)
}

func newFixedWindow(m *Limiters, p algorithmParams, clk throttle.Clock) throttle.Limiter {
	q := throttle.FixedWindowConfig{Count: p.Limit, Per: time.Duration(p.Window) * time.Microsecond}
	if p.Anchor == "first" {
		q.Align = throttle.AtFirst
	}
	return m.FixedWindow(q, clk)
}

func newSlidingLog(m *Limiters, p algorithmParams, clk throttle.Clock) throttle.Limiter {
	return m.SlidingLog(throttle.SlidingLogConfig{Limit: p.perWindow(), CountRejected: p.RecordRejected}, clk)
}

func newSlidingCounter(m *Limiters, p algorithmParams, clk throttle.Clock) throttle.Limiter {
	return m.SlidingCounter(throttle.SlidingCounterConfig{Limit: p.perWindow(), RoundDown: p.Rounding == "floor"}, clk)
}

func newSubWindows(m *Limiters, p algorithmParams, clk throttle.Clock) throttle.Limiter {
	return m.SlidingCounter(throttle.SlidingCounterConfig{Limit: p.perWindow(), Parts: p.K}, clk)
}

func (p algorithmParams) perWindow() throttle.Limit {
	return throttle.Limit{Count: p.Limit, Per: time.Duration(p.Window) * time.Microsecond}
}

// compareRemaining compares the units left, which for a rejection are slack plus the units
// claimed.
func compareRemaining(t *result, _ algorithmParams, op algorithmOp, d throttle.Decision) {
	left := op.Slack.floor()
	if !op.Allowed {
		left += op.N
	}
	expect(t, "remaining", max(left, 0), d.Remaining)
}

func compareBucket(t *result, p algorithmParams, op algorithmOp, d throttle.Decision) {
	compareRemaining(t, p, op, d)
	compareRetry(t, op, d)
}

// compareRetry compares the time after which to retry; null means never.
func compareRetry(t *result, op algorithmOp, d throttle.Decision) {
	want := throttle.Forever
	if op.RetryAfter != nil {
		want = t.limiters.roundUp(op.RetryAfter.seconds())
	}
	expect(t, "wait", want, d.Wait)
}

// compareWindow ignores the end of a window in which no units were taken: there is nothing
// to reset.
func compareWindow(t *result, p algorithmParams, op algorithmOp, d throttle.Decision) {
	compareBucket(t, p, op, d)
	if d.Remaining < d.Limit {
		expect(t, "reset", op.ResetAfter.seconds(), d.ResetAfter)
	}
}

// openWindow opens the window that a rejected claim opens in the trace. Here a rejection
// changes no state, so openWindow takes a unit and returns it.
func openWindow(l throttle.Limiter, rejected throttle.Decision) {
	if rejected.Remaining == rejected.Limit {
		c := throttle.Claim{}
		if d, err := l.Reserve(context.Background(), c); err == nil {
			l.Report(context.Background(), c, d, throttle.Feedback{State: throttle.Unused})
		}
	}
}

// compareLog compares only the remaining units if rejected claims count: the trace does not
// state when they expire.
func compareLog(t *result, p algorithmParams, op algorithmOp, d throttle.Decision) {
	if p.RecordRejected {
		expect(t, "remaining", max(op.Slack.floor(), 0), d.Remaining)
		return
	}
	compareBucket(t, p, op, d)
}

// compareQueue compares the time at which the last unit leaves, and the length of the queue
// at that time. A queue that serves units immediately can hold one unit more than can wait:
// the one that is being served.
func compareQueue(t *result, p algorithmParams, op algorithmOp, d throttle.Decision) {
	if op.Allowed && op.Wait != nil {
		expect(t, "wait", op.Wait.seconds(), d.Wait)
	}
	if p.Capacity > 0 {
		expect(t, "waiting", op.WaitingAfter, max(p.Capacity-d.Remaining, 0))
	}
}
