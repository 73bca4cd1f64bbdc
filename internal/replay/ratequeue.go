package replay

import "math"

// peerQueue tracks what golang.org/x/time/rate stores about its queue: the time at which
// the latest reservation acts. From that time x/time/rate computes how many tokens were
// reserved after a reservation that is cancelled. The result is wrong
//
//   - if a reservation fills a gap that an earlier cancel has left: it acts before other
//     reservations, but is stored as the latest. Cancelling one of the others then returns
//     tokens that were never taken, 15 for 1 in one trace;
//   - if the last reservation is cancelled, and the one before it did not wait: the queue
//     then seems as long as before, and tokens are lost;
//   - if limit or burst have changed since: the tokens are computed with the former limit,
//     and tokens that were removed by a lower burst are returned as well.
//
// Our limiters do not create or lose tokens for these reasons.
type peerQueue struct {
	limit   decimal
	changes int // of limit or burst
	latest  float64
	booked  map[int]peerReservation // reservations that may still be cancelled
}

// A peerReservation is a reservation of n tokens.
type peerReservation struct {
	actAt   float64
	n       float64
	per     float64 // nanoseconds per token at the time of the reservation
	changes int     // number of changes before it
}

// follow records an operation. It returns true for a cancel while other reservations are
// after the one that is stored as the latest.
func (l *peerQueue) follow(op rateOp) (wrong bool) {
	now := float64(op.T)
	switch {
	case op.Op == "setlimit":
		l.limit = op.Limit
		l.changes++
	case op.Op == "setburst":
		l.changes++
	case op.Op == "allow" && op.OK:
		l.latest = now
	case op.Op == "reserve" && op.OK:
		b := peerReservation{now + float64(op.Delay), float64(op.N), 1e9 / float64(l.limit), l.changes}
		l.booked[op.ID], l.latest = b, b.actAt
	case op.Op == "cancel":
		return l.cancel(op.ID, now)
	}
	return false
}

func (l *peerQueue) cancel(id int, now float64) (wrong bool) {
	b, ok := l.booked[id]
	if !ok || b.actAt < now {
		return false
	}
	const rounding = 10 // nanoseconds
	last := b.actAt
	for _, other := range l.booked {
		last = math.Max(last, other.actAt)
	}
	wrong = math.Abs(last-l.latest) > rounding || b.changes != l.changes
	delete(l.booked, id)
	if previous := b.actAt - b.n*b.per; b.actAt == l.latest && previous >= now {
		l.latest = previous
	}
	return wrong
}
