package throttle

import "time"

// places are where the claims of a LeakyBucket stand, as far as it needs to know.
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
type places struct {
	era    *era  // ticks, and tat
	latest int64 // the latest place that was given
	held   int64 // the latest of those places that did not follow the latest at the time
}

// remainderBits of a Grant are by how many ticks its place is before At + Wait, which
// is in whole nanoseconds. The others are the number of the limit.
const remainderBits = 24 // as era.scale is at most 1<<24

// at returns p in ticks that can express now.
func (p places) at(now int64) places {
	if p.era.covers(now) {
		return p
	}
	return p.under(p.era.limit, now)
}

// under returns p as of now in ticks of limit l. Nobody moves.
func (p places) under(l Limit, now int64) places {
	e := p.era.next(l, now, p.era.tat.Load())
	gone := mulSat(subSat(now, p.era.origin), p.era.scale)
	move := func(place int64) int64 {
		return mulDivUp(max(subSat(place, gone), 0), e.scale, p.era.scale)
	}
	return places{e, move(p.latest), move(p.held)}
}

// grant returns a wait of so many ticks, and what Decision.Grant says of it.
func (p places) grant(wait int64) (time.Duration, uint64) {
	d := p.era.duration(wait)
	return d, p.era.number<<remainderBits | uint64(int64(d)*p.era.scale-wait)
}

// stand notes that a claim stands at place and takes cost ticks before it. Usually
// that is where the last one stands, who is then the next to be last.
func (p *places) stand(place, cost int64) {
	if place <= p.latest {
		p.held = max(p.held, place)
		return
	}
	if p.latest > place-cost {
		p.held = max(p.held, p.latest)
	}
	p.latest = place
}

// since returns the place of a grant that acts at acts, and how many ticks leave
// between it and until.
func (p places) since(grant uint64, acts, until int64) (place, ticks int64) {
	e := p.era
	if !e.covers(acts) {
		return neverRead, maxTicks // in an era long over
	}
	place = e.ticks(acts)
	if grant>>remainderBits == e.number {
		place -= int64(grant & (1<<remainderBits - 1))
		return place, until - place
	}
	if until <= place {
		return until, 0
	}
	end := e.origin + int64(e.duration(until))
	return place, e.returned(grant>>remainderBits, acts-1, end) // the limit has changed in between
}
