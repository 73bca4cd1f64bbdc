package model

import (
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/peers"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A Quota is everything that delays the requests of one quota of a server. A claim is granted if all of these admit
// it, which are asked in this order:
//
//	Peers       other processes use what is left, too: no more claims in flight than the part of this one
//	Hold        the server rejects requests: none until the end that it stated, or until a test is accepted
//	Estimates   the server states what is left: no more claims than that
//	Learned     rejections depend on the rate: the rate, or the window, that the server accepts
//	Overload    failures depend on the requests in flight: fewer of them
//	Ramp        the end of a wait: a growing number in flight
//
// While claims wait for Hold or Estimates, one at a time is granted as a test, and a claim that does not wait any longer as
// its last chance. If all that is known of a wait for Estimates is that it ends within the second to which resets are rounded, claims
// are granted as guesses instead of tests. While they wait for Learned, it is doubled now and then as a trial. Each response updates all of them, see Responded. A claim without a response counts as in
// flight until it is canceled or observed. The time of a method is never before LastGranted.
type Quota struct {
	Units // counts requests

	Hold     hold.Hold
	Overload concurrency.AdaptiveLimiter
	Ramp     concurrency.Ramp
	Learned  *Learned                  // nil: nothing was learned from rejections
	Span     learnedlimit.AcceptedSpan // requests accepted since the latest idle time or hold
	Peers    *peers.Set                // other processes that use the quota; nil: it is not shared

	FetchUntil time.Time // requests wait until then for what other processes know; zero: they do not

	trip    roundTrip
	tests   tests
	guesses guesses
	firsts  firstAttempts
	passed  int64                // requests accepted since the latest idle time, release after a hold, or rejection that began none
	sends   *statedlimit.SendLog // when requests were sent; nil: responses arrive before units come back
	follows bool                 // another process sends the tests of the hold
}

// A Claim asks for units of a Quota.
type Claim struct {
	Units    int64
	DryRun   bool // nothing is taken
	Waits    bool // its caller waits if it is not granted
	GivesUp  bool // its caller has waited, and its call fails if it is not granted
	Waited   time.Duration
	Deadline time.Time // of its caller, on the system clock; zero: there is none, or it is not known
}

// A decision is a throttle.Decision, and what denied the claim.
type decision struct {
	*throttle.Decision
	end      time.Duration         // until the end that the server has stated; 0: it has not
	learned  bool                  // a learned limit denied the claim
	server   bool                  // a hold or a stated limit did, which a test may end
	rounded  bool                  // all that is known of end is that it is within the second to which resets are rounded
	guess    bool                  // no unit may be left, but the reset is rounded
	inFlight bool                  // units are left, but the requests in flight may take them
	proven   bool                  // rejections have shown that end is right
	unsure   bool                  // they have shown only that the wait is not over
	chances  int8                  // last chances that are given before one was accepted
	doubt    *statedlimit.Estimate // the stated limit, if nothing has confirmed it; nil: something has
}

const (
	longestDoubt = time.Second // longest wait for a statement before a rejection confirms it
	doubtOf      = 10          // part of the time to the deadline that this wait takes at most
	releaseOf    = 10          // part of the time of a wait in which what has waited is sent
	releaseTrips = 2           // round trips in which it is sent at least
	maxRelease   = 5 * time.Second
	crowdedTrips = 2 // round trips in which the requests in flight end
)

// A claim is identified by its number, the number of claims in flight when it was granted, and whether it was a last
// chance or a guess.
const (
	numberBits    = 40
	lastChanceBit = 1 << 63
	guessBit      = 1 << 62
)

// number returns the number of the claim of a grant.
func number(grant uint64) uint64 { return grant & (1<<numberBits - 1) }

// inFlight returns how many claims were in flight when that of a grant was granted, it included.
func inFlight(grant uint64) int64 { return int64(grant &^ (lastChanceBit | guessBit) >> numberBits) } //nolint:gosec // 22 bits

// Number returns the number of the claim of a Decision.Grant of a Quota.
func Number(grant uint64) uint64 { return number(grant) }

// Claim decides on c as of now, and grants it unless it is a dry run.
func (q *Quota) Claim(to *throttle.Decision, c Claim, now time.Time) {
	d := decision{Decision: to}
	d.Policy = q.Account.Names.Quota
	if len(q.Estimates) > 0 {
		q.describe(to, now)
	}
	if q.Peers != nil {
		if wait, ok := q.leaveToPeers(now); !ok {
			d.Wait, d.ServerImposed = wait, true
			return
		}
	}
	if !c.DryRun {
		q.prepare(now)
	}
	q.decide(&d, c, now)
	switch {
	case d.OK && c.DryRun:
	case d.OK:
		d.Grant = q.grant(c.Units, now)
		if q.tests.on = q.tests.on && d.guess; d.guess {
			d.Grant |= guessBit
			q.guesses.sent(now)
		}
	case d.server:
		if !d.rounded {
			q.testInstead(&d, c, now)
		} else if !c.DryRun {
			q.beginWait(&d, now)
			q.guesses.begin(now)
		}
		switch {
		case d.OK:
		case d.proven, q.Account.NeverTest, c.DryRun && d.doubt == nil:
			if d.Expected = d.end; d.unsure && c.Waits && !q.Account.NeverTest {
				d.failAfter(q.trip.Typical() - c.Waited)
			}
		case c.GivesUp && q.tests.takeChance(d.chances):
			d.grant(q.grant(c.Units, now) | lastChanceBit)
		case d.doubt != nil:
			q.doubt(&d, c, now)
		}
	case c.DryRun:
	case d.learned:
		q.tryLearned(false, now)
	}
}

// grant grants the claim although something has denied it.
func (d *decision) grant(grant uint64) {
	d.OK, d.Wait, d.ServerImposed, d.Estimated, d.Grant = true, 0, false, false, grant
}

// failAfter makes a call that cannot wait until the stated end fail no sooner than after a time, in which the server would reject it.
// Otherwise a worker that makes one call after the other loses thousands of them in a second, although the statement may be wrong.
func (d *decision) failAfter(rest time.Duration) {
	if rest <= 0 || d.end == 0 {
		return
	}
	if d.Expected = 0; d.Wait == 0 || rest < d.Wait {
		d.Wait = rest
	}
}

// doubt bounds the wait for a statement that no rejection has confirmed.
func (q *Quota) doubt(d *decision, c Claim, now time.Time) {
	if c.DryRun {
		d.Wait = 0 // it is shorter than that for any caller
		return
	}
	longest := longestDoubt
	if !c.Deadline.IsZero() {
		longest = min(longest, max(time.Until(c.Deadline)/doubtOf, 1))
	}
	if free := d.doubt.Delay(longest, now); d.Wait == 0 || free < d.Wait {
		d.Wait = free
	}
}

// prepare updates what changes with time, before a claim is decided.
func (q *Quota) prepare(now time.Time) {
	if h := &q.Hold; h.Held && !h.Ending && !h.Estimated() && !now.Before(h.Until) {
		h.Lapse(q.InFlight.Sent)
		q.releaseHeld(h.Until)
	}
	q.Ramp.Resume(0, q.InFlight.Open, now)
	if l := q.Learned; l != nil && l.Loop.On() && l.Loop.Grow(now, q.LastGranted, &l.accepted) {
		q.dropLoop(false, now)
	}
}

// releaseHeld sends what has waited for the hold. The server probably accepts as many requests as it did between the rejections before.
// So the others wait for the response to the one after these:
//
//	hold  accepted  hold   as many, and one   pause   at a growing rate
//	├────┤✓✓✓✓✓    ├──────┤✓✓✓✓✓ ?           │ ? ✗: the next hold, or ✓
func (q *Quota) releaseHeld(now time.Time) {
	q.release(q.Hold.Since, releaseTrips, now)
	q.Ramp.PauseAfter(q.passed + 1)
	q.passed = 0
}

// release sends what has waited since then at a growing rate from now on, in so many round trips at least.
func (q *Quota) release(since time.Time, trips time.Duration, now time.Time) {
	length := min(max(now.Sub(since)/releaseOf, trips*q.trip.Typical()), maxRelease)
	late := time.Duration(q.Account.Random() * float64(length) / 4)
	q.Ramp = concurrency.NewRamp(q.InFlight.Open, now.Add(late), length-late)
}

// ChangesWithTime reports whether a claim as of now may change what q knows, although no response has arrived: the
// rate of the loop grows, or the stated end of a hold has passed.
func (q *Quota) ChangesWithTime() bool {
	return q.Learned != nil && q.Learned.Loop.On() || q.Hold.Held
}

// describe sets Limit, Remaining and ResetAfter of d: those of the estimate with the fewest units
// left.
func (q *Quota) describe(d *throttle.Decision, now time.Time) {
	for i := range q.Estimates {
		e := &q.Estimates[i]
		if left := max(e.Remaining-q.InFlight.Open, 0); d.Limit == 0 || left < d.Remaining {
			d.Limit, d.Remaining, d.ResetAfter = max(e.Limit, 1), left, max(e.Reset.Sub(now), 0)
		}
	}
}

// decide sets OK of d, and if that is false what denies the claim c. It changes nothing else. The bounds on the
// requests in flight hold for claims whose callers wait.
func (q *Quota) decide(d *decision, c Claim, now time.Time) {
	names := &q.Account.Names
	if wait := q.FetchUntil.Sub(now); wait > 0 {
		d.Policy, d.Wait, d.ServerImposed = names.SlowStart, wait, true
		return
	}
	if wait, waits := q.Hold.Waits(now); waits {
		d.Policy, d.ServerImposed, d.Estimated, d.server = names.RetryAfter, true, q.Hold.Estimated(), true
		if d.Estimated {
			d.Policy = names.LearnedRate
		}
		d.Wait, d.end, d.proven, d.chances = wait, wait, q.Hold.Rejected > 0 || q.Hold.Trusted(), holdChances
		d.unsure = !q.Hold.Trusted()
		return
	}
	for i := range q.Estimates {
		e := &q.Estimates[i]
		f := q.counted(e, now)
		free, wait := e.Free(now, f, q.Account.Pacing)
		if free < min(c.Units, max(e.Limit, 1)) {
			if wait == 0 && f != &q.InFlight && f.Open > 0 { // the units of those in flight come back before their responses
				wait = max(q.sends.Next(e.Window()+statedlimit.OpeningDelay, now), time.Millisecond)
			}
			d.Wait, d.ServerImposed, d.server, d.chances = wait, true, !e.CountsInFlight() && !q.isOwnChoice(e, now), quotaChances
			d.inFlight, d.Test = f.Open > 0 && e.Left(now) > 0, wait > 0 && e.Untimed()
			if e.Probe && wait == 0 && e.Proven() { // its response decides, if it arrives
				due := q.LastGranted.Add(max(longestDoubt, 2*q.trip.Typical())).Sub(now)
				d.Wait, d.server = max(due, 0), d.server && due <= 0
			}
			if d.end, d.rounded = wait, d.server && e.Proven() && e.Rounded(wait) && !q.Account.NeverTest; d.rounded {
				due := q.guesses.dueIn(now)
				if due == 0 {
					d.Wait, d.ServerImposed, d.server, d.guess = 0, false, false, true
					continue
				}
				if d.Wait == 0 || due < d.Wait {
					d.Wait = due
				}
				return
			}
			if d.proven = e.Proven() && e.ResetsTogether(); !e.Proven() && d.server {
				d.doubt = e
			}
			return
		}
	}
	if !q.decideLearned(d, now) || !c.Waits {
		return
	}
	if !q.Overload.Check(q.InFlight.Open, q.trip.Typical(), now) {
		d.Policy, d.OK, d.Estimated = names.Overload, false, true
		return
	}
	if d.Wait, d.OK = q.Ramp.Check(q.InFlight.Open, now); !d.OK {
		d.Policy, d.ServerImposed = names.SlowStart, true
	}
}

// counted returns the claims in flight whose units have not come back to e. If responses take longer than that, these are
// the claims that were sent within its window:
//
//	sent     1 2 3 4 5 6 7 8 9        in flight: 9
//	window               |←──→| now   counted: 3
func (q *Quota) counted(e *statedlimit.Estimate, now time.Time) *inflight.Claims {
	window := e.Window()
	if q.sends == nil || window == 0 || e.CountsInFlight() {
		return &q.InFlight
	}
	f := q.InFlight
	f.Open = min(f.Open, q.sends.Within(window+statedlimit.OpeningDelay, now))
	return &f
}

// outlasts reports whether a response takes longer than the units of e to come back, so that what it states is over when it arrives.
func (q *Quota) outlasts(e *statedlimit.Estimate) bool {
	return q.sends != nil && e.Window() > 0 && e.Window() < q.trip.Typical()
}

// logSend records that a claim is sent now, if responses take longer than units to come back.
func (q *Quota) logSend(claim uint64, now time.Time) {
	window := time.Duration(0)
	for i := range q.Estimates {
		if w := q.Estimates[i].Window(); w < q.trip.Typical() {
			window = max(window, w)
		}
	}
	switch {
	case window > 0 && q.sends == nil && q.Account.Memory.Reserve(statedlimit.LogBytes):
		q.sends = statedlimit.NewSendLog(now)
	case window == 0 && q.sends != nil:
		q.Account.Memory.Release(q.dropSends())
	}
	if q.sends == nil {
		return
	}
	q.sends.Add(window+statedlimit.OpeningDelay, now)
	for i := range q.Estimates {
		if e := &q.Estimates[i]; q.outlasts(e) {
			e.Sent(claim, q.counted(e, now).Open, &q.InFlight)
		}
	}
}

// isOwnChoice reports whether claims wait for e, of which units are left, because of the settings of the Tracker: the
// headroom, or that requests are spread.
func (q *Quota) isOwnChoice(e *statedlimit.Estimate, now time.Time) bool {
	return q.Account.Pacing != (statedlimit.Pacing{}) && e.Left(now) > 0
}

// decideLearned sets OK of d, which it returns, as far as learned and declared limits are concerned.
func (q *Quota) decideLearned(d *decision, now time.Time) bool {
	l := q.Learned
	if d.OK = true; l == nil || !l.Limits() {
		return true
	}
	full := q.Account.Full
	if full {
		d.Wait, d.OK = l.Loop.Check(now)
	}
	declared := l.Window.Declared
	if d.OK && (full || declared) {
		d.Wait, d.OK = l.Window.Check(now, &q.InFlight)
	}
	if !d.OK {
		d.ServerImposed, d.Estimated, d.learned = true, !declared, !declared
		if d.Estimated {
			d.Policy = q.Account.Names.LearnedRate
		}
	}
	return d.OK
}

// grant records that a claim of n units is granted at now, and returns its Decision.Grant. After an idle
// time, what was accepted before shows nothing about the rate that is accepted now.
func (q *Quota) grant(n int64, now time.Time) uint64 {
	a, l := q.Account, q.Learned
	for i := range q.Estimates {
		e := &q.Estimates[i]
		if e.Granted(now, q.counted(e, now), a.Pacing) && q.tests.on && e.Proven() && !q.Ramp.On(now) {
			q.release(q.tests.since, releaseTrips, now)
		}
	}
	claim := q.InFlight.Add()
	q.logSend(claim, now)
	q.Ramp.Sent(claim, q.InFlight.Open, min(releaseTrips*q.trip.Typical(), maxRelease), now)
	q.trip.granted(claim, now)
	busyUntil := ticks.Later(q.LastGranted, q.Hold.Until)
	q.LastGranted = now
	if l != nil {
		busyUntil = ticks.Later(busyUntil, l.Loop.Next)
	}
	idle := q.Span.Since.IsZero() || now.Sub(busyUntil) > learnedlimit.IdleAfter
	if idle {
		q.Span, q.passed = learnedlimit.AcceptedSpan{Since: now}, 0
	}
	if l != nil {
		if idle {
			l.Loop.BeginSpan(q.Span)
		}
		if l.Loop.On() {
			l.Loop.Spend(n, now)
		}
		l.Window.Granted(claim, now)
	}
	return claim | uint64(min(q.InFlight.Open, math.MaxInt64>>(numberBits+1)))<<numberBits //nolint:gosec // 22 bits, not negative
}

// Canceled applies that the claim of grant, of a number of units, was not sent.
func (q *Quota) Canceled(grant uint64, units int64) {
	n := number(grant)
	if !q.InFlight.End(n) {
		return
	}
	q.trip.ended(n, false, q.LastGranted)
	if grant&lastChanceBit != 0 {
		q.tests.chanceEnded(false, false)
	}
	if q.tests.claim == n {
		q.tests.claim = 0
	}
	if l := q.Learned; l != nil {
		l.Loop.Unspend(units)
		l.Window.Canceled(n)
	}
}
