package replay

import "math"

// peerQueue follows what golang.org/x/time/rate knows of its line: when the latest
// reservation acts. By that it works out how many tokens were reserved after one that
// is cancelled. It is wrong about it
//
//   - where a reservation fills a gap that an earlier cancel has left: it acts before
//     others that are in line, and counts as the latest all the same. To cancel one of
//     those others gives back tokens that were never taken, 15 for 1 in one trace;
//   - where the last in line is cancelled, and the one before it did not wait: the line
//     then seems as long as before, and tokens are lost;
//   - where limit or burst have changed since: the tokens are counted at the former
//     limit, and what a cut of the burst has forgiven comes back as well.
//
// Here nothing is forged, or lost for these reasons.
type peerQueue struct {
	limit   decimal
	changes int // of limit or burst
	latest  float64
	booked  map[int]peerReservation // those that may still be cancelled
}

// A peerReservation is a reservation of n tokens.
type peerReservation struct {
	actAt   float64
	n       float64
	per     float64 // nanoseconds for each, at the time
	changes int     // that there had been
}

// follow notes an operation. It reports true for a cancel while others stand behind
// what counts as the latest.
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
