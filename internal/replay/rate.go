package replay

import (
	"encoding/json"
	"math"
	"time"

	"github.com/heed-go/heed/rate"
	"github.com/heed-go/heed/throttle"
)

// A rateTrace is a scenario of golang.org/x/time/rate, replayed with a rate.Limiter.
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
		t.waive = t.waive || op.N < 0 || op.OK && op.Delay == math.MaxInt64 || peer.follow(op)
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
		if !l.limit.infinite() {
			near(t, "tokens", op.Tokens, l.tokens(op.T), l.tolerance())
		}
	}
	return nil
}

// compare compares the delay of a reservation. Delays of x/time/rate are truncated to
// nanoseconds, ours are rounded up.
func (op rateOp) compare(t *result, b reservation, rounding float64) {
	if expect(t, "ok", op.OK, b.ok); op.OK && b.ok {
		near(t, "delay", float64(op.Delay), float64(max(b.actAt-op.T, 0)), rounding)
	}
}

// A peerLimiter is a rate.Limiter in a scenario of golang.org/x/time/rate.
type peerLimiter struct {
	*rate.Limiter
	cancels float64 // number of cancels: in each of them x/time/rate rounds three instants
	limit   decimal
	burst   int64
}

// A reservation is a granted claim.
type reservation struct {
	ok     bool
	actAt  int64
	cancel func(now time.Time)
}

func newPeerLimiter(limit decimal, burst int64) *peerLimiter {
	return &peerLimiter{Limiter: rate.NewLimiter(rate.Limit(limit), int(burst)), limit: limit, burst: burst}
}

// reserve reserves n units that may be used within maxWait.
func (l *peerLimiter) reserve(at, n int64, maxWait time.Duration) reservation {
	now := time.Unix(0, at)
	if maxWait == 0 {
		return reservation{ok: l.AllowN(now, int(n)), actAt: at}
	}
	r := l.ReserveN(now, int(n))
	wait := r.DelayFrom(now)
	if r.OK() && wait > maxWait {
		r.CancelAt(now)
		return reservation{}
	}
	return reservation{r.OK(), at + int64(min(wait, farFuture)), r.CancelAt}
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

// set changes the limit and the burst at an instant.
func (l *peerLimiter) set(at int64, limit decimal, burst int64) {
	now := time.Unix(0, at)
	if limit != l.limit {
		l.SetLimitAt(now, rate.Limit(limit))
	}
	if burst != l.burst {
		l.SetBurstAt(now, int(burst))
	}
	l.limit, l.burst = limit, burst
}

// tokens returns the number of tokens in the bucket, which is negative if it is in debt.
func (l *peerLimiter) tokens(at int64) float64 { return l.TokensAt(time.Unix(0, at)) }

// tolerance returns the maximum difference of tokens: the rounding errors of x/time/rate's
// floats, plus the tokens of the nanoseconds by which its instants are rounded.
func (l *peerLimiter) tolerance() float64 { return 3e-5 + l.rounding()*1e-9*float64(l.limit) }

// rounding returns the maximum difference of the two limiters in nanoseconds.
func (l *peerLimiter) rounding() float64 { return 3 + 3*l.cancels }
