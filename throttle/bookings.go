package throttle

import (
	"time"

	"github.com/heed-go/heed/internal/gcra"
	"github.com/heed-go/heed/internal/ticks"
)

// bookings are the positions of the booked claims of a leaky bucket, as far as Unused claims need
// them.
//
//	      tat less the window
//	────────────┼──┼──┼─────────┼─────▶ ticks of state
//	            │  │  lastGap   last
//	            │  a claim that filled a gap, as did the one at lastGap
//	            position of the next claim
//
// Usually no claim is booked behind the position of the next claim, and last is the latest
// claim before it. Gaps are positions of canceled claims.
//
// Invariant: no claim is booked behind last. If the claim at last is canceled, no claim is
// booked behind both the position where its units began and lastGap.
//
// Limitations: the Grant of a claim made before a change of the limit is in ticks of the
// former limit, so its position is not known, and its units cannot be returned.
type bookings struct {
	state   *bucketState // ticks and tat
	last    int64        // latest booked position
	lastGap int64        // latest of the positions that did not directly follow the latest one when they were booked
}

// remainderBits is the number of low bits of a Grant that hold by how many ticks its
// position is before At + Wait, which is in whole nanoseconds. The other bits hold the
// version of the limit. Params.Scale is at most 1<<24.
const remainderBits = 24

// covering returns p, whose tat is given, and its tat in ticks that can express now.
func (p bookings) covering(now, tat int64) (bookings, int64) {
	if p.state.Covers(now) {
		return p, tat
	}
	p = p.withLimit(p.state.limit, now, tat)
	return p, p.state.tat.Load()
}

// withLimit returns p, whose tat is given, as of now in ticks of limit l. All positions stay at the same times.
func (p bookings) withLimit(l Limit, now, tat int64) bookings {
	e := p.state.next(l, now, tat)
	elapsed := ticks.Mul(ticks.Sub(now, p.state.Origin), p.state.Scale)
	move := func(position int64) int64 {
		return ticks.MulDivUp(max(ticks.Sub(position, elapsed), 0), e.Scale, p.state.Scale)
	}
	return bookings{e, move(p.last), move(p.lastGap)}
}

// encodeGrant returns a wait of so many ticks as a duration, and the Decision.Grant for
// it.
func (p bookings) encodeGrant(wait int64) (time.Duration, uint64) {
	d := p.state.Duration(wait)
	return d, p.state.version<<remainderBits | uint64(int64(d)*p.state.Scale-wait)
}

// book records that a claim at position takes the cost ticks before it. Usually it
// directly follows the last one and becomes the last.
func (p *bookings) book(position, cost int64) {
	if position <= p.last {
		p.lastGap = max(p.lastGap, position)
		return
	}
	if p.last > position-cost {
		p.lastGap = max(p.lastGap, p.last)
	}
	p.last = position
}

// ticksBehind returns the position of a grant that may be used at acts, and the number of
// ticks between it and until.
func (p bookings) ticksBehind(grant uint64, acts, until int64) (position, behind int64) {
	e := p.state
	if !e.Covers(acts) {
		return ticks.Never, gcra.MaxTicks // outside the range of ticks
	}
	if grant>>remainderBits != e.version {
		return ticks.Never, gcra.MaxTicks // the limit has changed: nothing can be returned
	}
	position = e.Ticks(acts) - int64(grant&(1<<remainderBits-1))
	return position, until - position
}
