package throttle

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/heed-go/heed/internal/explain"
)

// Forever is a wait that does not end.
const Forever time.Duration = math.MaxInt64

// A Limiter grants or rejects claims.
//
// Its methods may be called by several goroutines at the same time. Every Limiter meets these
// requirements, which package throttletest checks:
//
//   - A rejected claim takes nothing.
//   - After a rejection, an equal claim made at Decision.At plus Decision.Wait is
//     granted if no other claim was granted in between.
//   - A reading of the clock that is older than that of the latest grant counts as the latter,
//     so that no unit is credited twice. Those of rejections and dry runs do not count.
//   - A granted claim may be reported any number of times with State Ongoing, and ends in exactly
//     one Report with another State.
//   - The Traits are true.
//
// A type that embeds a Limiter forwards all of it, and replaces the methods that it defines.
type Limiter interface {
	// Reserve decides on c. It never sleeps; with a remote store it may do I/O, bounded by ctx.
	// A rejection is a Decision: an error means that no decision was reached and, as far as the
	// limiter can determine, that nothing was taken. A negative cost is ErrCost.
	Reserve(ctx context.Context, c Claim) (Decision, error)

	// Report states what became of a claim that was granted by d. If it is Unused, its units are
	// returned, less those that the limit has restored between d.At and f.Now. Report does
	// nothing if d is a rejection. It works when ctx is done.
	Report(ctx context.Context, c Claim, d Decision, f Feedback)

	// Traits returns what callers may rely on. It is called often and must not block.
	Traits() Traits
}

// An Adjustable is a Limiter whose limit can be changed while it is in use.
type Adjustable interface {
	Limiter

	// SetLimit replaces the limit as of now. Units that were taken stay taken, as the constructor of the limiter
	// describes. If l is invalid, or has what the limiter does not support, SetLimit returns an error and changes nothing.
	SetLimit(l Limit) error
}

// Traits are properties of a Limiter on which its callers rely. The zero Traits is always safe.
type Traits struct {
	// NonBlocking reports that the limiter keeps its state in memory, so that its methods return
	// immediately and ignore ctx. A queue.Queue calls such limiters from any goroutine that
	// changes a limit, without holding a lock, and raises a panic of theirs in the waiter. It
	// calls others, one call at a time for waiters with the same limits, on the goroutine and
	// with the ctx of the waiter. A limiter that wraps others is non-blocking if all of them are.
	NonBlocking bool

	// EndsAtResponse reports that a claim may end when the response has begun. If it is false, as
	// for a limit on concurrency, code that admits HTTP requests reports Ongoing when the response
	// begins and ends the claim after its body. It may become false with the first grant, and
	// stays false from then on. A limiter that wraps others ends at the response if all of them do.
	EndsAtResponse bool

	// BooksAhead reports that the limiter obeys Claim.Ahead: it may grant for later what it would
	// otherwise reject. A limiter that wraps others obeys it if it forwards it. See ReserveAhead.
	BooksAhead bool

	// CountsRejected reports that the decisions depend on the number of claims that the limiter
	// has rejected, as those of keyed.NewBan do. It must not count claims with Waits. A limiter
	// that wraps others counts rejections if one of them does.
	CountsRejected bool

	// Parts are the limiters that each must grant a claim, in order. A change of one of them wakes
	// the waiters of this limiter. The slice must not be modified. Nil means none, or not known: then
	// they are woken when Wait ends, and by reports to this limiter.
	Parts []Limiter
}

// A Claim asks a Limiter for units. The zero Claim asks for one unit.
type Claim struct {
	// Key selects the limit in limiters that have one per key, where "" is a key like any
	// other. Limiters with a single limit ignore it.
	Key string

	// Cost is the number of units. Zero means 1; a negative value is ErrCost.
	Cost int64

	// Now is the caller's reading of the clock. Zero means that the limiter reads its own.
	Now time.Time

	// DryRun makes the limiter decide without taking units.
	DryRun bool

	// Waits reports that the caller asks again until the claim is granted, as a queue.Queue does,
	// so that a rejection is not final. Limiters that count rejections do not count this one. If
	// the wait fails, the Queue repeats the claim without Waits.
	Waits bool

	// Waited is how long the caller has waited so far. Without Waits, more than zero means that
	// its wait, which the server imposed, has failed, and that this is its last attempt.
	Waited time.Duration

	// Ahead is the longest Decision.Wait that the caller accepts, see ReserveAhead, which alone
	// sets it. Limiters that combine several limits clear it, because the other limits may have
	// changed by the time at which a booked unit may be used. Zero means none.
	Ahead time.Duration

	// Deadline is when the caller stops waiting, on the system clock. Zero means that there is none,
	// or that it is not known.
	Deadline time.Time
}

// Units returns Cost, or 1 if Cost is 0. The error is ErrCost if Cost is negative.
func (c Claim) Units() (int64, error) {
	switch {
	case c.Cost > 0:
		return c.Cost, nil
	case c.Cost == 0:
		return 1, nil
	}
	return 0, ErrCost
}

// ReserveAhead is l.Reserve for a caller that accepts a Decision.Wait of up to maxWait. The units
// are taken now, and the work may start Decision.Wait after Decision.At. Zero or a negative
// maxWait means that the work must be able to start now, Forever that any wait is acceptable. If
// l does not have Traits.BooksAhead, ReserveAhead is l.Reserve.
//
// Book ahead only if this limit alone decides when the work starts. Otherwise wait with a
// queue.Queue, which takes no units before the work may start.
func ReserveAhead(ctx context.Context, l Limiter, c Claim, maxWait time.Duration) (Decision, error) {
	if c.Ahead = 0; maxWait > 0 && l.Traits().BooksAhead {
		c.Ahead = maxWait
	}
	return l.Reserve(ctx, c)
}

// A Demand is one of several claims that must be granted together.
type Demand struct {
	// Limiter must grant the claim. Nil means no limit.
	Limiter Limiter

	// Key is the Claim.Key.
	Key string

	// Cost is the Claim.Cost. Zero means 1.
	Cost int64
}

// A Decision is the answer to a Claim. The zero Decision is a rejection. Pass it unchanged
// to Report of the limiter that returned it.
type Decision struct {
	// OK reports that the claim was granted. Its units are taken, except after a dry run.
	OK bool

	// Degraded reports that the primary limiter did not decide: see NewFallback, keyed.Limiter.
	Degraded bool

	// OverLimit reports that the claim was granted above a limit: see NewSoftLimit.
	OverLimit bool

	// ServerImposed reports that the claim was rejected because of a quota that the server
	// stated or that was estimated for it, not because of a configured limit.
	ServerImposed bool

	// Estimated reports that a rejection is based on an estimate of what the server accepts,
	// and not on anything that the server stated.
	Estimated bool

	// Test reports, in a rejection, that what is granted next tests what the server accepts. A
	// queue.Queue then asks for the newest of the waiters that were sent least often and have
	// enough time, and for the first waiter if that is rejected.
	Test bool

	// Shadow reports that the limit rejects no claims, see the function Shadow. Do not send to
	// clients what the Decision states: those that obey it would be limited by it.
	Shadow bool

	// Fresh reports, after a dry run, that a new limiter would decide the same on every claim. A
	// keyed.Limiter evicts such limiters. False is always safe.
	Fresh bool

	rejectedBy uint8 // index of the limiter of an AllOf that rejected the claim

	// Policy is the name of the limit that decided.
	Policy string

	// At is the reading of the local clock that the decision is based on, also for remote
	// limiters. Wait and ResetAfter count from it.
	At time.Time

	// Wait is, for a granted claim, the time until the work may start. For a rejected claim, it
	// is the time after which to ask again, with the same Ahead; 0 means unknown (ask again when
	// the state of the limit changes), and Forever that an equal claim will never be granted.
	Wait time.Duration

	// Expected is, for a rejected claim, the time after which an equal claim is expected to be
	// granted. It is more than Wait if the limit is to be tested before. Zero means Wait or, if
	// ServerImposed is set, that it is not known.
	Expected time.Duration

	// Limit is the maximum number of units that can be granted at one time. Zero means that
	// the limiter does not count units.
	Limit int64

	// Remaining is the number of units left.
	Remaining int64

	// ResetAfter is the time until Remaining equals Limit again.
	ResetAfter time.Duration

	// Per is the time in which Limit units are restored. Zero means unknown.
	Per time.Duration

	// Grant is private to the limiter that granted the claim, such as to identify a window.
	Grant uint64

	// QueueBound is, in the rejection of a claim with Waits, the number of units that may wait
	// in a queue.Queue for the limit. Zero means no bound, a negative value that none may wait.
	QueueBound int64

	subGrant *subGrant // leads a composed limiter to the Decisions of those that granted the claim
}

// Part returns the index in Parts of the limiter of an AllOf that rejected the claim. It
// is 0 for grants and for other limiters.
func (d Decision) Part() int { return int(d.rejectedBy) }

// boundQueue sets d.QueueBound to units if d is a rejection of c and c.Waits is set.
func (d *Decision) boundQueue(c *Claim, units int64) {
	if !c.Waits || d.OK || units == math.MaxInt64 {
		return
	}
	if d.QueueBound = units; units == 0 {
		d.QueueBound = -1
	}
}

// setFresh sets d.Fresh if d, on c, states that all units are available and none are being
// restored. That is sufficient for a limiter with a single limit.
func (d *Decision) setFresh(c *Claim) {
	d.Fresh = c.DryRun && d.Limit > 0 && d.Remaining == d.Limit && d.ResetAfter == 0
}

// A State is what has become of a granted claim.
type State uint8

const (
	// Ended means that the work has ended, and the claim with it.
	Ended State = iota

	// Ongoing means that the work continues, and that more feedback follows.
	Ongoing

	// Unused means that the work was not started. The claim has ended, and its units are returned.
	Unused
)

// Feedback is the outcome of a granted claim. The zero Feedback means that the work has ended
// and the server accepted it.
type Feedback struct {
	// State is what has become of the claim. Zero means Ended.
	State State

	// Now is the caller's reading of the clock. Zero means that the limiter reads its own.
	Now time.Time

	// Outcome classifies the response. Zero means Accepted.
	Outcome Outcome

	// Cause describes a Throttled or Failed outcome. Zero means unknown.
	Cause Cause

	// RetryAfter is the delay that the server asked for. Zero means that it stated none.
	RetryAfter time.Duration

	// RemoteLimits are the server's own limits, one for each bucket that it named. Limiters
	// must not retain or modify the slice.
	RemoteLimits []RemoteLimit

	// Cost is the actual cost of the claim, in units of this limiter. Zero or less means the
	// cost that was claimed.
	Cost int64

	// Repeated reports that the same request was rejected before, so that its outcome says less.
	Repeated bool
}

// ExtraCost returns by how many units the actual cost of the claim c, granted by d, exceeds the
// claimed cost: a negative number if it cost less or is Unused, and 0 if f is Ongoing.
func (f Feedback) ExtraCost(c Claim, d Decision) int64 {
	n, err := c.Units()
	switch {
	case err != nil || !d.OK || f.State == Ongoing:
		return 0
	case f.State == Unused:
		return -n
	case f.Cost <= 0:
		return 0
	}
	return f.Cost - n
}

// A RemoteLimit is the state of one limit of the server, as the server stated it.
type RemoteLimit struct {
	// Name is the name of the bucket. Empty means not stated.
	Name string

	// Unit is the unit that the limit counts. Empty means requests.
	Unit string

	// Limit is the maximum number of units. Zero means not stated.
	Limit int64

	// Remaining is the number of units left, unless RemainingUnknown is set.
	Remaining int64

	// RemainingUnknown reports that the server did not state Remaining.
	RemainingUnknown bool

	// ResetAfter is the time from Feedback.Now until units are restored. Zero means not
	// stated, or immediately.
	ResetAfter time.Duration

	// Resolution is by how much ResetAfter may be too long because the server stated it in
	// coarse units, such as whole seconds. Zero means that it is exact.
	Resolution time.Duration

	// Per is the length of the window. Zero means not stated.
	Per time.Duration
}

// Outcome classifies a response.
type Outcome uint8

const (
	Accepted  Outcome = iota // the server accepted the work
	Throttled                // the server rejected the work because of a limit
	Failed                   // there was no response, or a 5xx that does not mention a limit
)

var outcomes = [...]string{Accepted: "accepted", Throttled: "throttled", Failed: "failed"}

// String returns the name of o in lower case.
func (o Outcome) String() string { return nameOf(outcomes[:], uint8(o), "outcome") }

// nameOf returns names[i], or kind and i if i has no name.
func nameOf(names []string, i uint8, kind string) string {
	if int(i) < len(names) {
		return names[i]
	}
	return kind + " " + strconv.Itoa(int(i))
}

// Cause describes a rejection or a failure, for limiters that estimate limits of the server. Package quota has one more
// for its own limiters, "other quota", which other limiters treat as CauseStated.
type Cause uint8

// CauseUnknown is the zero Cause: only the Outcome is known.
const (
	CauseUnknown     Cause = iota
	CauseStated            // a rejection that states until when the client must stop: Retry-After, an exhausted quota, a documented wait
	CauseRetryNow          // a rejection that allows a retry without delay: Retry-After: 0
	CauseUnstated          // a rejection that states no time: a 429 without rate-limit headers
	CauseUnavailable       // 503, or another 5xx that says that the client is limited; Throttled if it is that, or states a Retry-After
	CauseDropped           // the connection was closed before a response
	CauseTimeout           // no response in time, other than by the caller's own deadline
	CauseCanceled          // no response, because the caller gave up: its context has ended
)

var causes = [...]string{
	CauseUnknown: "unknown", CauseStated: "stated", CauseRetryNow: "retry now", CauseUnstated: "unstated", CauseUnavailable: "unavailable",
	CauseDropped: "dropped", CauseTimeout: "timeout", CauseCanceled: "canceled", CauseCanceled + 1: "other quota",
}

// String returns the name of c in lower case, without the word cause.
func (c Cause) String() string { return nameOf(causes[:], uint8(c), "cause") }

var (
	// ErrRejected matches every RejectedError.
	ErrRejected = errors.New("throttle: rejected")

	// ErrCost is returned for a claim with a negative cost.
	ErrCost = errors.New("throttle: the cost of a claim is negative")
)

// A RejectedError is a rejection as an error. It matches ErrRejected.
type RejectedError struct {
	// Key is the key of the claim.
	Key string

	// Decision is the rejection.
	Decision Decision

	// Reason is context.DeadlineExceeded if the context would have ended before the wait. Nil
	// means that the wait was longer than allowed or that the claim can never be granted.
	Reason error
}

// Error returns a message with the name of the limit and the time after which to ask again.
func (e *RejectedError) Error() string {
	s := "throttle: rejected by limit " + strconv.Quote(e.Decision.Policy)
	if e.Key != "" {
		s += " for key " + strconv.Quote(e.Key)
	}
	switch e.Decision.Wait {
	case Forever:
		s += ": it can never grant this claim"
		if e.Decision.Limit > 0 {
			s += "; at most " + strconv.FormatInt(e.Decision.Limit, 10) + " units can be granted together"
		}
	case 0:
		s += ": ask again later"
	default:
		s += ": ask again in " + explain.DurationUp(e.Decision.Wait)
	}
	if e.Reason != nil {
		s += ": " + e.Reason.Error()
	}
	return s
}

// Is reports whether target is ErrRejected.
func (e *RejectedError) Is(target error) bool { return target == ErrRejected }

// Unwrap returns e.Reason.
func (e *RejectedError) Unwrap() error { return e.Reason }
