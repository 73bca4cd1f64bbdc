package replay

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/heed-go/heed/rate"
	"github.com/heed-go/heed/throttle"
)

// A rateTrace is a scenario of golang.org/x/time/rate, replayed with a rate.Limiter of a
// LeakyBucket with an unlimited queue.
//
// Intended differences, which are waived: scenarios in which the rounding of float64
// determined a decision (ideal_flips), in which time goes back and is credited twice
// (time_goes_back), or in which a reservation is cancelled twice and returns its tokens
// twice (cancels_twice). Also waived are the differences after two further peculiarities,
// which the operations show: a negative number of events, which x/time/rate adds to the
// bucket and a Limiter rejects; and a cancel while x/time/rate does not know the last
// reservation of its queue: see peerQueue.
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
	Tokens float64 // after the operation
}

func replayRate(line []byte, t *result) error {
	var s rateTrace
	if err := json.Unmarshal(line, &s); err != nil {
		return err
	}
	t.waive = s.Flips > 0 || s.TimeGoesBack || s.CancelsTwice
	l := newPeerLimiter(s.Limit, s.Burst)
	booked := map[int]reservation{}
	peer := peerQueue{booked: map[int]peerReservation{}, limit: s.Limit}
	for _, op := range s.Ops {
		t.op()
		t.waive = t.waive || op.N < 0 || peer.follow(op)
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

// compare compares the delay of a reservation. Delays of x/time/rate are truncated to
// nanoseconds, ours are rounded up. A reservation that acts in years may also be rejected.
func (op rateOp) compare(t *result, b reservation, rounding float64) {
	if op.OK && op.Delay == math.MaxInt64 {
		if b.ok && b.actAt-op.T < int64(365*24*time.Hour) {
			t.differ("delay: want never, got %v", time.Duration(b.actAt-op.T))
		}
		return
	}
	if expect(t, "ok", op.OK, b.ok); op.OK && b.ok {
		near(t, "delay", float64(op.Delay), float64(max(b.actAt-op.T, 0)), rounding)
	}
}

// A peerLimiter is a LeakyBucket with the features that only x/time/rate has: infinite
// limits, bursts of 0, and claims of 0 events.
type peerLimiter struct {
	clk            clock
	cancels        float64 // number of cancels: in each of them x/time/rate rounds three instants
	bucket         *throttle.LeakyBucket
	waiter         *rate.Limiter
	limit          decimal
	burst          int64
	unlimitedSince int64 // time since which the limit is infinite
}

// A reservation is a granted claim.
type reservation struct {
	ok     bool
	actAt  int64
	cancel func(now time.Time)
}

func newPeerLimiter(limit decimal, burst int64) *peerLimiter {
	l := &peerLimiter{clk: clock{time.Unix(0, 0)}, limit: limit, burst: burst, unlimitedSince: math.MinInt64}
	l.renew()
	return l
}

// renew creates a full bucket.
func (l *peerLimiter) renew() {
	l.bucket = throttle.WithClock(throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: l.throttle(), Queue: math.MaxInt64}), &l.clk)
	l.waiter = &rate.Limiter{Limiter: l.bucket, Clock: &l.clk}
}

// throttle returns the limit, or the nearest valid Limit.
func (l *peerLimiter) throttle() throttle.Limit {
	if l.limit.infinite() {
		return decimal(1).perSecond(max(l.burst, 1))
	}
	return l.limit.perSecond(max(l.burst, 1))
}

func (l *peerLimiter) reserve(at, n int64, maxWait time.Duration) reservation {
	switch {
	case l.limit.infinite():
		return reservation{ok: true, actAt: at}
	case n == 0: // costs nothing, but waits until a debt is paid
		debt := max(l.dryRun(at).ResetAfter-l.fillTime(), 2) - 2 // both are rounded
		return reservation{ok: debt <= maxWait, actAt: at + int64(debt)}
	case l.burst == 0:
		return reservation{}
	}
	now := time.Unix(0, at)
	switch maxWait {
	case 0:
		return reservation{ok: l.waiter.AllowN(now, int(n)), actAt: at}
	case throttle.Forever:
		r := l.waiter.ReserveN(now, int(n))
		return reservation{r.OK(), at + int64(min(r.DelayFrom(now), farFuture)), r.CancelAt}
	}
	c := throttle.Claim{Cost: n, Now: now}
	d, err := l.bucket.ReserveAhead(context.Background(), c, maxWait)
	return reservation{err == nil && d.OK, at + int64(d.Wait), func(now time.Time) {
		c.Now = now
		l.bucket.Cancel(context.Background(), c, d)
	}}
}

// cancel cancels a reservation. Like x/time/rate, it does nothing if the reservation
// already acts.
func (l *peerLimiter) cancel(at int64, b reservation) {
	if b.actAt < at || b.cancel == nil || l.limit.infinite() {
		return
	}
	l.cancels++
	b.cancel(time.Unix(0, at))
}

// set changes the limit at an instant. Time under an infinite limit fills the bucket; a
// burst of 0 empties it.
func (l *peerLimiter) set(at int64, limit decimal, burst int64) {
	l.clk.now = time.Unix(0, at)
	oldLimit, oldBurst := l.limit, l.burst
	if limit.infinite() && !oldLimit.infinite() {
		l.unlimitedSince = at
	}
	l.limit, l.burst = limit, burst
	if oldLimit.infinite() && !limit.infinite() && at > l.unlimitedSince {
		l.renew()
	}
	if limit.infinite() || burst == 0 {
		return
	}
	if err := l.bucket.SetLimit(l.throttle()); err != nil {
		panic(err) // l.throttle returns valid limits
	}
	if oldBurst == 0 {
		l.renew()
		l.reserve(at, burst, 0)
	}
}

func (l *peerLimiter) dryRun(at int64) throttle.Decision {
	d, _ := l.bucket.Reserve(context.Background(), throttle.Claim{Now: time.Unix(0, at), DryRun: true})
	return d
}

// fillTime returns the time in which the bucket is filled.
func (l *peerLimiter) fillTime() time.Duration {
	return time.Duration(float64(l.burst) / l.perSecond() * 1e9)
}

// perSecond returns the rate of the bucket.
func (l *peerLimiter) perSecond() float64 {
	t := l.throttle()
	return float64(t.Count) / t.Per.Seconds()
}

// tokens returns the number of tokens in the bucket, which is negative if it is in debt.
func (l *peerLimiter) tokens(at int64) float64 {
	return float64(l.burst) - l.dryRun(at).ResetAfter.Seconds()*l.perSecond()
}

// tolerance returns the maximum difference of tokens: the rounding errors of x/time/rate's
// floats, plus the tokens of the nanoseconds by which ResetAfter is rounded.
func (l *peerLimiter) tolerance() float64 { return 3e-5 + l.rounding()*1e-9*l.perSecond() }

// rounding returns the maximum difference of the two limiters in nanoseconds.
func (l *peerLimiter) rounding() float64 { return 3 + 3*l.cancels }
