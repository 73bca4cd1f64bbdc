package throttle

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"
)

// Forever is a wait that does not end. As Decision.Wait it says that the claim
// can never be granted, as Claim.MaxWait that any wait will do.
const Forever time.Duration = math.MaxInt64

// A Limiter grants or refuses claims.
//
// Its methods may be called by many goroutines at once. Reserve never sleeps; a
// limiter that keeps its state elsewhere may do I/O, bounded by ctx.
//
// What every Limiter promises is checked by package throttletest:
//
//   - A refusal takes nothing.
//   - The Wait of a refusal is honest: an equal claim made Wait after
//     Decision.At, with nobody in between, is granted.
//   - A reading of the clock older than one already granted at counts as that
//     one, so that no unit is credited twice. Refusals and dry runs advance
//     nothing.
//   - A granted claim may be observed any number of times with Feedback.Partial
//     set, and ends in exactly one Cancel or one Observe without More.
type Limiter interface {
	// Reserve decides on c. A refusal is a Decision, not an error: an error
	// means that no decision was reached and, as far as can be known, that
	// nothing was taken. A negative cost is ErrCost.
	Reserve(ctx context.Context, c Claim) (Decision, error)

	// Cancel gives back the units of a claim that was granted by d and will
	// not be used, as of c.Now: the cost less what time has given back since
	// d.At. It does nothing if d is a refusal, and works when ctx is done.
	Cancel(ctx context.Context, c Claim, d Decision)
}

// An Observer is a Limiter that learns from what the other side answers.
type Observer interface {
	// Observe reports what became of a claim that was granted by d and used.
	Observe(ctx context.Context, c Claim, d Decision, f Feedback)
}

// A Claim is what a caller asks of a Limiter. The zero Claim asks for one unit
// now, or not at all.
type Claim struct {
	Key     string        // whose share; limiters with a single state ignore it
	Cost    int64         // units; 0 means 1, negative is ErrCost
	Now     time.Time     // the caller's reading of the clock; zero: the limiter reads its own
	MaxWait time.Duration // longest acceptable Decision.Wait, for limiters that book ahead
	DryRun  bool          // decide, but take nothing

	// Waits says that the caller waits and asks again until it is granted, as a queue.Queue
	// does: a refusal is not its last answer. Limiters that count refusals do not count
	// this one; the Queue repeats the claim without Waits when the wait has failed.
	Waits bool

	// Waited is how long a caller that Waits has waited so far.
	Waited time.Duration
}

// Units returns how many units c asks for: Cost, or 1 if Cost is 0. The error is
// ErrCost if Cost is negative.
func (c Claim) Units() (int64, error) {
	switch {
	case c.Cost > 0:
		return c.Cost, nil
	case c.Cost == 0:
		return 1, nil
	}
	return 0, ErrCost
}

// A Decision is the answer to a Claim. The zero Decision is a refusal. Hand it
// back unchanged to Cancel and Observe of the limiter that made it.
type Decision struct {
	OK            bool // the units are taken
	Degraded      bool // decided without the primary limiter, see Fallback and keyed.Limiter
	OverLimit     bool // granted although a limit would refuse, see Soft, Elastic and Shadow
	ServerImposed bool // refused because of the other side, by what it stated or what was estimated of it, not by a limit of our own

	// Estimated says that a refusal rests on an estimate of what the other side
	// accepts, and not on anything that it stated.
	Estimated bool

	refusedBy uint8 // which limiter of an AllOf refused

	Policy string // name of the limit that decided

	// At is the local reading of the clock that the decision is based on, also
	// for remote limiters. Wait and ResetAfter count from it.
	At time.Time

	// Wait says, when OK, to act after it. When not OK, it says to ask again
	// after it; 0 means that the time is unknown (ask when there is news), and
	// Forever that an equal claim will never be granted.
	Wait time.Duration

	Limit      int64         // most units that can be had at once; 0: this limit does not count
	Remaining  int64         // units left
	ResetAfter time.Duration // until Remaining is Limit again
	Per        time.Duration // in which Limit units come back; 0: not said

	// Grant belongs to the limiter that granted: a window, a place, a lease.
	Grant uint64

	// queueBound is, in a refusal of a claim that Waits, one more than the units that may
	// wait for the limit; 0: it has no bound.
	queueBound int64

	// subGrant is how a composed limiter finds the limiters that granted again.
	subGrant *subGrant
}

// Part returns the index in Parts of the limiter of an AllOf that refused. It is 0 for
// grants and for other limiters.
func (d Decision) Part() int { return int(d.refusedBy) }

// AsRefusal returns d as a refusal, for a limiter that refuses what the limiter inside it
// granted in a dry run, or refused for a shorter time. Nothing is left of the units: Remaining
// is 0. Wait stays, and is for the caller to set.
func (d Decision) AsRefusal() Decision {
	d.OK, d.Remaining, d.subGrant = false, 0, nil
	return d
}

// QueueBound returns how many units may wait for the limit that refused a claim with
// Claim.Waits. If ok is false, the limit has no such bound, or d is not such a refusal.
func (d Decision) QueueBound() (units int64, ok bool) {
	return max(d.queueBound-1, 0), d.queueBound > 0
}

// Feedback is what the other side said about a claim that was used. The zero
// Feedback says that the work was accepted.
type Feedback struct {
	Now          time.Time     // the caller's reading of the clock; zero: the limiter reads its own
	Outcome      Outcome       // what became of the work
	Cause        Cause         // what a Throttled or Failed outcome looked like; zero: not known
	RetryAfter   time.Duration // 0: not said
	RemoteLimits []RemoteLimit // the server's own limits, one per bucket it named; read, never kept
	Cost         int64         // what the claim turned out to cost, in this limiter's unit; 0: as claimed
	Partial      bool          // the claim is still in use: more feedback follows
}

// ExtraCost returns how many units more than claimed the claim c, granted by d, turned
// out to cost; negative: how many less. It is 0 until the claim has ended.
func (f Feedback) ExtraCost(c Claim, d Decision) int64 {
	n, err := c.Units()
	if err != nil || !d.OK || f.Partial || f.Cost <= 0 {
		return 0
	}
	return f.Cost - n
}

// A RemoteLimit is the state of one limit of the other side, as it told us.
type RemoteLimit struct {
	Name             string        // of the bucket; "": not said
	Unit             string        // "": requests
	Limit            int64         // 0: not said
	Remaining        int64         // units left
	RemainingUnknown bool          // Remaining was not said
	ResetAfter       time.Duration // until units come back, from Feedback.Now; 0: not said, or at once
	Resolution       time.Duration // how much sooner than ResetAfter that may be, for it was told in whole seconds; 0: it is exact
	Per              time.Duration // length of the window; 0: not said
}

// Outcome classifies an answer.
type Outcome uint8

const (
	Accepted  Outcome = iota // the other side took the work
	Throttled                // it said to slow down
	Failed                   // no answer, or a broken one
)

// String returns the name of o in lower case.
func (o Outcome) String() string {
	switch o {
	case Accepted:
		return "accepted"
	case Throttled:
		return "throttled"
	case Failed:
		return "failed"
	}
	return "outcome " + strconv.Itoa(int(o))
}

// Cause says what a rejection or a failure looked like, for limiters that estimate
// what the other side does not state.
type Cause uint8

// CauseUnknown is the zero Cause: only the Outcome is known.
const (
	CauseUnknown     Cause = iota
	CauseStated            // a rejection that states that the client must stop: Retry-After, a used up quota, a documented error
	CauseRetryNow          // a rejection that allows a retry without delay: Retry-After: 0
	CauseUnstated          // a rejection that states nothing more: a 429 without rate-limit headers
	CauseUnavailable       // 503 without Retry-After
	CauseForbidden         // 403 that states nothing about limits
	CauseDropped           // the connection was closed before a response
	CauseTimeout           // no response in time, other than by the caller's own deadline
)

var (
	// ErrRefused matches every refusal that was turned into an error.
	ErrRefused = errors.New("throttle: refused")

	// ErrCost is returned for a claim with a negative cost.
	ErrCost = errors.New("throttle: negative cost: a claim must ask for at least one unit, or 0 for one")
)

// A RefusedError is a refusal as an error, for those who cannot return a
// Decision. It matches ErrRefused.
type RefusedError struct {
	Key      string
	Decision Decision

	// Reason is why the wait was not taken: context.DeadlineExceeded if the
	// context would have ended first. Nil: the wait was longer than allowed, or
	// the claim can never be granted.
	Reason error
}

// Error says which limit refused and when it may be asked again.
func (e *RefusedError) Error() string {
	s := "throttle: refused by limit " + strconv.Quote(e.Decision.Policy)
	if e.Key != "" {
		s += " for key " + strconv.Quote(e.Key)
	}
	switch e.Decision.Wait {
	case Forever:
		s += ": it can never grant this claim; at most " + strconv.FormatInt(e.Decision.Limit, 10) + " units can be had at once"
	case 0:
		s += ": ask again later"
	default:
		s += ": ask again in " + e.Decision.Wait.String()
	}
	if e.Reason != nil {
		s += ": " + e.Reason.Error()
	}
	return s
}

// Is reports whether target is ErrRefused.
func (e *RefusedError) Is(target error) bool { return target == ErrRefused }

// Unwrap returns e.Reason.
func (e *RefusedError) Unwrap() error { return e.Reason }

// Observe hands f to l if l is an Observer.
func Observe(ctx context.Context, l Limiter, c Claim, d Decision, f Feedback) {
	if o, ok := l.(Observer); ok {
		o.Observe(ctx, c, d, f)
	}
}
