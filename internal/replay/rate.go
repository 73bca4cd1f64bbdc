package replay

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A rateTrace is a scenario of golang.org/x/time/rate, replayed with the Verbs of a
// LeakyBucket whose queue has no end.
//
// Meant to differ, and waived: scenarios in which a float64 decided (ideal_flips),
// in which time goes back and is credited twice (time_goes_back), or in which a
// reservation is cancelled twice and gives back twice (cancels_twice). Also waived is
// what follows two more quirks, which the operations themselves show: a negative
// number of events, which theirs adds to the bucket and a Limiter refuses; and a
// cancel while theirs has forgotten who stands last in line: see theirLine.
type rateTrace struct {
	Limit        decimal
	Burst        int64
	Flips        int  `json:"ideal_flips"`
	TimeGoesBack bool `json:"time_goes_back"`
	CancelsTwice bool `json:"cancels_twice"`
	Ops          []rateOp
}

type rateOp struct {
	Op     string
	T      int64 `json:"t_ns"`
	N      int64
	ID     int
	OK     bool
	Delay  int64 `json:"delay_ns"` // -1: none
	Limit  decimal
	Burst  int64
	Tokens float64 // after it
}

func replayRate(line []byte, t *tally) error {
	var s rateTrace
	if err := json.Unmarshal(line, &s); err != nil {
		return err
	}
	t.waive = s.Flips > 0 || s.TimeGoesBack || s.CancelsTwice
	l := newRateLimiter(s.Limit, s.Burst)
	booked := map[int]booking{}
	theirs := theirLine{booked: map[int]theirBooking{}, limit: s.Limit}
	for _, op := range s.Ops {
		t.op()
		t.waive = t.waive || op.N < 0 || theirs.follow(op)
		switch op.Op {
		case "allow":
			expect(t, "ok", op.OK, l.reserve(op.T, op.N, 0).ok)
		case "reserve":
			b := l.reserve(op.T, op.N, throttle.Forever)
			booked[op.ID] = b
			op.compare(t, b, l.rounding())
		case "cancel":
			l.cancel(op.T, booked[op.ID])
		case "delay":
			op.OK = op.Delay >= 0
			op.compare(t, booked[op.ID], l.rounding())
		case "setlimit":
			l.set(op.T, op.Limit, l.burst)
		case "setburst":
			l.set(op.T, l.limit, op.Burst)
		}
		if !l.limit.infinite() && l.burst > 0 {
			near(t, "tokens", op.Tokens, l.tokens(op.T), l.tolerance())
		}
	}
	return nil
}

// compare compares the delay of a booking. Theirs are cut to nanoseconds, ours
// rounded up. What is not for years may as well be refused.
func (op rateOp) compare(t *tally, b booking, rounding float64) {
	if op.OK && op.Delay == math.MaxInt64 {
		if b.ok && b.acts-op.T < int64(365*24*time.Hour) {
			t.differ("delay: want never, got %v", time.Duration(b.acts-op.T))
		}
		return
	}
	if expect(t, "ok", op.OK, b.ok); op.OK && b.ok {
		near(t, "delay", float64(op.Delay), float64(max(b.acts-op.T, 0)), rounding)
	}
}

// A rateLimiter is a LeakyBucket with what only x/time/rate has: limits without end,
// bursts of 0, and claims of 0 events.
type rateLimiter struct {
	clk     clock
	cancels float64 // how many there were: in each, theirs rounds three instants
	bucket  *throttle.LeakyBucket
	verbs   *throttle.Verbs
	limit   decimal
	burst   int64
	idle    int64 // since when the limit has no end
}

// A booking is a granted claim.
type booking struct {
	ok     bool
	acts   int64
	cancel func(now time.Time)
}

func newRateLimiter(limit decimal, burst int64) *rateLimiter {
	l := &rateLimiter{clk: clock{time.Unix(0, 0)}, limit: limit, burst: burst, idle: math.MinInt64}
	l.renew()
	return l
}

// renew makes a full bucket.
func (l *rateLimiter) renew() {
	l.bucket = throttle.NewLeakyBucket(throttle.Leak{Limit: l.throttle(), Queue: math.MaxInt64}, &l.clk)
	l.verbs = &throttle.Verbs{Limiter: l.bucket, Clock: &l.clk}
}

// throttle returns the limit, or the nearest that a Limit can be.
func (l *rateLimiter) throttle() throttle.Limit {
	if l.limit.infinite() {
		return decimal(1).perSecond(max(l.burst, 1))
	}
	return l.limit.perSecond(max(l.burst, 1))
}

func (l *rateLimiter) reserve(at, n int64, longest time.Duration) booking {
	switch {
	case l.limit.infinite():
		return booking{ok: true, acts: at}
	case n == 0: // costs nothing, but waits for a debt to be paid
		debt := max(l.look(at).ResetAfter-l.full(), 2) - 2 // both are rounded
		return booking{ok: debt <= longest, acts: at + int64(debt)}
	case l.burst == 0:
		return booking{}
	}
	now := time.Unix(0, at)
	switch longest {
	case 0:
		return booking{ok: l.verbs.AllowN(now, int(n)), acts: at}
	case throttle.Forever:
		r := l.verbs.ReserveN(now, int(n))
		return booking{r.OK(), at + int64(min(r.DelayFrom(now), never)), r.CancelAt}
	}
	c := throttle.Claim{Cost: n, Now: now, MaxWait: longest}
	d, err := l.bucket.Reserve(context.Background(), c)
	return booking{err == nil && d.OK, at + int64(d.Wait), func(now time.Time) {
		c.Now = now
		l.bucket.Cancel(context.Background(), c, d)
	}}
}

// cancel gives back what is booked. As theirs, it leaves alone what has come due.
func (l *rateLimiter) cancel(at int64, b booking) {
	if b.acts < at || b.cancel == nil || l.limit.infinite() {
		return
	}
	l.cancels++
	b.cancel(time.Unix(0, at))
}

// set changes the limit at an instant. Whatever time passes under a limit without end
// fills the bucket; a burst of 0 empties it.
func (l *rateLimiter) set(at int64, limit decimal, burst int64) {
	l.clk.now = time.Unix(0, at)
	was, had := l.limit, l.burst
	if limit.infinite() && !was.infinite() {
		l.idle = at
	}
	l.limit, l.burst = limit, burst
	if was.infinite() && !limit.infinite() && at > l.idle {
		l.renew()
	}
	if limit.infinite() || burst == 0 {
		return
	}
	if err := l.bucket.SetLimit(l.throttle()); err != nil {
		panic(err) // l.throttle makes limits that are valid
	}
	if had == 0 {
		l.renew()
		l.reserve(at, burst, 0)
	}
}

func (l *rateLimiter) look(at int64) throttle.Decision {
	d, _ := l.bucket.Reserve(context.Background(), throttle.Claim{Now: time.Unix(0, at), DryRun: true})
	return d
}

// full returns how long the bucket takes to fill.
func (l *rateLimiter) full() time.Duration {
	return time.Duration(float64(l.burst) / l.perSecond() * 1e9)
}

// perSecond returns the rate that the bucket has.
func (l *rateLimiter) perSecond() float64 {
	t := l.throttle()
	return float64(t.Count) / t.Per.Seconds()
}

// tokens returns what is in the bucket, negative if it is in debt.
func (l *rateLimiter) tokens(at int64) float64 {
	return float64(l.burst) - l.look(at).ResetAfter.Seconds()*l.perSecond()
}

// tolerance is what tokens may be off by: what theirs, as floats, are off by, and what
// flows in the nanoseconds that a ResetAfter is rounded by.
func (l *rateLimiter) tolerance() float64 { return 3e-5 + l.rounding()*1e-9*l.perSecond() }

// rounding returns how many nanoseconds the two may be apart.
func (l *rateLimiter) rounding() float64 { return 3 + 3*l.cancels }
