package throttleredis

import (
	"time"

	"github.com/heed-go/heed/throttle"
)

// A limit is what has to be known to ask a script, and to read its answer.
type limit struct {
	algorithm string
	err       error // of the configuration
	policy    string
	scope     string        // what else tells it from others
	most      int64         // most units at once
	per       time.Duration // in which they come back
	scale     int64         // ticks in a microsecond
	args      []any         // for the script
	books     bool          // a grant may act later than it is made
	holds     bool          // a claim has to be ended
	refusals  bool          // a claim that was refused counts
	wide      bool          // a grant does not fit into Decision.Grant: see keep
	idle      time.Duration // in which the idle units of a wide limit come
	calendar  *calendar     // nil: the windows are not those of a calendar

	// share makes a limiter in memory with the n-th part of the limit, for one key.
	share func(n int64, c throttle.Clock) throttle.Limiter
}

// judges reports whether l is the part of a penalty that makes it.
func (l *limit) judges() bool { return l.algorithm == "penalty" }

func policy(name, says string) string {
	if name == "" {
		return says
	}
	return name
}

// decision returns what p says about a claim, if given is the reading of the server's
// clock that belongs to the local reading at.
func (l *limit) decision(p part, given int64, at time.Time) throttle.Decision {
	d := throttle.Decision{
		OK:         p.ok(),
		Policy:     l.policy,
		At:         at,
		Wait:       duration(p.wait(), l.scale),
		Limit:      l.most,
		Remaining:  p.remaining(),
		ResetAfter: duration(p.reset(), l.scale),
		Per:        l.per,
		Grant:      p.grant(),
	}
	if ahead := p.now() - given; ahead > 0 { // a stamp of the limit is newer
		d.At = at.Add(time.Duration(ahead) * time.Microsecond)
	}
	switch {
	case !d.OK:
		d.Wait = wholeMicros(d.Wait)
	case l.wide:
		d.Grant = p.bits()
	case l.holds:
		d.Grant |= uint64(p.reset()) << readingBits
	case l.books:
		d.Grant |= l.remainder(d.Wait, p.wait()) << readingBits
	}
	if l.holds {
		d.ResetAfter = 0 // the script returns the claim's number in its place
	}
	if l.calendar != nil {
		d.Per = l.calendar.per(int64(p.grant()))
	}
	return d
}

// readingBits is the number of bits of a Grant that hold the server's reading at which the
// claim was granted, in microseconds; they last until the year 2041. For a limit that holds,
// the other bits are the number of the claim among those of one reading. For a limit that
// books, they are the ticks by which the claim acts before the end of Wait, which is in whole
// nanoseconds; 13 bits are enough because maxScale is 4194 ticks per nanosecond.
const readingBits = 51

func (l *limit) remainder(wait time.Duration, ticks int64) uint64 {
	return uint64(mulDiv(int64(wait), l.scale, 1000) - ticks)
}
