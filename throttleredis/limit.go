package throttleredis

import (
	"math"
	"time"

	saturated "github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A limit holds what is needed to run a script for a limit and to decode the reply.
type limit struct {
	algorithm        string
	err              error  // from validating the configuration
	name             string // that was configured; empty: none
	policy           string
	scope            string        // further text that distinguishes the limit from others
	capacity         int64         // maximum number of units at the same time
	per              time.Duration // time in which all units are restored
	ticksPerMicro    int64         // ticks in a microsecond; zero means 1
	args             []float64     // of the script
	shape            []any         // what the meaning of the stored state depends on, besides the algorithm
	scaledGrant      bool          // a grant holds by how many ticks it acts before whole microseconds
	queueBound       int64         // see throttle.Decision.QueueBound
	holdsUntilEnd    bool          // each claim must be ended
	countsRejections bool          // a rejected claim counts
	wideGrant        bool          // a grant does not fit into Decision.Grant: see appendGrant
	idleTime         time.Duration // time in which the idle units of a wide limit accrue
	calendar         *calendar     // nil: the windows are not those of a calendar

	window  time.Duration                     // length of the windows in Mode Eventual; zero: none, or those of the calendar
	newRule func(o EventualOptions) usageRule // of Mode Eventual; nil: not supported

	// Of Mode Leased: for how long units may be used after a decision that took them (nil: not
	// later); how long before their use they are taken at most; the units that must be left; the
	// time in which these are restored; and that in which one is, for a bucket.
	lease        func(p part) time.Duration
	leaseTime    time.Duration
	leaseMargin  int64
	leaseReserve time.Duration
	leaseUnit    time.Duration

	// newShare returns a limiter in memory with the n-th part of the limit, for one key.
	newShare func(n int64) throttle.Limiter
}

// isBan reports whether l counts the rejections of other limits and bans keys.
func (l *limit) isBan() bool { return l.algorithm == "ban" }

// decision returns the decision on c that p encodes. serverNow is the reading of the server's
// clock at the local time at.
func (l *limit) decision(p part, c throttle.Claim, serverNow int64, at time.Time) throttle.Decision {
	d := throttle.Decision{
		OK:         p.ok(),
		Policy:     l.policy,
		At:         at,
		Wait:       duration(p.wait(), l.ticksPerMicro),
		Limit:      l.capacity,
		Remaining:  p.remaining(),
		ResetAfter: duration(p.reset(), l.ticksPerMicro),
		Per:        l.per,
		Grant:      p.grant(),
	}
	if ahead := p.now() - serverNow; ahead > 0 { // a stored reading of the clock is newer
		d.At = at.Add(time.Duration(ahead) * time.Microsecond)
	}
	switch {
	case !d.OK:
		d.Wait = wholeMicros(d.Wait)
	case l.wideGrant:
		d.Grant = p.grantBits()
	case l.holdsUntilEnd:
		d.Grant |= uint64(p.reset()) << readingBits
	case l.scaledGrant:
		d.Grant |= uint64(saturated.MulDivDown(int64(d.Wait), l.ticksPerMicro, 1000)-p.wait()) << readingBits
	}
	if l.holdsUntilEnd {
		d.ResetAfter = 0 // the script returns the claim's number in its place
	}
	if l.calendar != nil {
		d.Per = l.calendar.windowLength(int64(p.grant()))
	}
	l.boundQueue(&d, c)
	d.Fresh = c.DryRun && !l.countsRejections && d.Limit > 0 && d.Remaining == d.Limit && d.ResetAfter == 0
	return d
}

// booksAhead reports whether l obeys throttle.Claim.Ahead.
func (l *limit) booksAhead() bool {
	switch l.algorithm {
	case "leakybucket", "tickqueue", "nginx", "warmup":
		return true
	}
	return false
}

// boundQueue sets d.QueueBound if d is a rejection of c and c.Waits is set.
func (l *limit) boundQueue(d *throttle.Decision, c throttle.Claim) {
	if c.Waits && !d.OK {
		d.QueueBound = l.queueBound
	}
}

// queueBoundOf returns the throttle.Decision.QueueBound of a limit for which so many units may
// wait; math.MaxInt64 means no bound.
func queueBoundOf(units int64) int64 {
	switch units {
	case 0:
		return -1
	case math.MaxInt64:
		return 0
	}
	return units
}

// readingBits is the number of bits of a Grant that hold the server's reading at which the
// claim was granted, in microseconds; they suffice until the year 2041. For a limit that
// holds units until the end, the other bits are the number of the claim among those of one
// reading. For a limit that books ahead, they are the ticks by which the claim acts before
// the end of Wait, which is in whole nanoseconds; 13 bits are enough because maxScale is
// 4194 ticks per nanosecond.
const readingBits = 51
