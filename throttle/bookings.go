package throttle

import (
	"time"

	"github.com/heed-go/heed/internal/gcra"
	"github.com/heed-go/heed/internal/ticks"
)

// bookings are where the claims of a LeakyBucket stand, as far as it needs to know.
//
//	      tat less the window
//	────────────┼──┼──┼─────────┼─────▶ ticks of era
//	            │  │  held      latest
//	            │  a claim that filled a gap, as did the one at held
//	            the next claim stands here
//
// Usually nobody stands behind the next one's place, and latest is the last claim
// before it. Gaps come from claims that were cancelled.
//
// Invariant: no claim stands behind latest. If the claim at latest is cancelled, none
// stands behind the place that it took its units from, or behind held.
//
// The odd case is a claim before a change of the limit: its Grant is in ticks that
// are no more. Its place is then known to the nanosecond.
type bookings struct {
	state   *bucketState // ticks, and tat
	last    int64        // the latest place that was given
	lastGap int64        // the latest of those places that did not follow the latest at the time
}

// remainderBits of a Grant are by how many ticks its place is before At + Wait, which
// is in whole nanoseconds. The others are the number of the limit.
const remainderBits = 24 // as era.scale is at most 1<<24

// covering returns p in ticks that can express now.
func (p bookings) covering(now int64) bookings {
	if p.state.Covers(now) {
		return p
	}
	return p.withLimit(p.state.limit, now)
}

// withLimit returns p as of now in ticks of limit l. Nobody moves.
func (p bookings) withLimit(l Limit, now int64) bookings {
	e := p.state.next(l, now, p.state.tat.Load())
	elapsed := ticks.Mul(ticks.Sub(now, p.state.Origin), p.state.Scale)
	move := func(position int64) int64 {
		return ticks.MulDivUp(max(ticks.Sub(position, elapsed), 0), e.Scale, p.state.Scale)
	}
	return bookings{e, move(p.last), move(p.lastGap)}
}

// encodeGrant returns a wait of so many ticks, and what Decision.Grant says of it.
func (p bookings) encodeGrant(wait int64) (time.Duration, uint64) {
	d := p.state.Duration(wait)
	return d, p.state.version<<remainderBits | uint64(int64(d)*p.state.Scale-wait)
}

// book notes that a claim stands at place and takes cost ticks before it. Usually
// that is where the last one stands, who is then the next to be last.
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

// ticksBehind returns the place of a grant that acts at acts, and how many ticks leave
// between it and until.
func (p bookings) ticksBehind(grant uint64, acts, until int64) (position, behind int64) {
	e := p.state
	if !e.Covers(acts) {
		return ticks.Never, gcra.MaxTicks // in an era long over
	}
	position = e.Ticks(acts)
	if grant>>remainderBits == e.version {
		position -= int64(grant & (1<<remainderBits - 1))
		return position, until - position
	}
	if until <= position {
		return until, 0
	}
	end := e.Origin + int64(e.Duration(until))
	return position, e.refilledSince(grant>>remainderBits, acts-1, end) // the limit has changed in between
}
