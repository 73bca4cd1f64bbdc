package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

const hangingTypical = 10 * time.Millisecond // a response is late after 140 ms

// burst returns a quota that has accepted 40 requests until now, each in hangingTypical. 18 are in flight
// since then, as many as slow start admits. The last of them was sent after the last response.
func burst(t *testing.T, now time.Time) *modelQuota {
	q := modelAt(0)
	for range 39 {
		n := q.grant(1, now.Add(-hangingTypical))
		q.inFlight.End(n)
		q.responded(n, &throttle.Feedback{}, false, now)
	}
	q.slow = concurrency.SlowResponses{}
	last := q.grant(1, now.Add(-hangingTypical))
	for range 17 {
		q.grant(1, now)
	}
	q.inFlight.End(last)
	q.responded(last, &throttle.Feedback{}, false, now)
	q.grant(1, now)
	require.EqualValues(t, []int64{18, 18, 58}, []int64{q.inFlight.Open, q.maxInFlight(), int64(q.inFlight.Sent)})
	require.Equal(t, hangingTypical, q.slow.Typical)
	return q
}

// reserve returns the decision on a claim of q.
func reserve(q *modelQuota, now time.Time) (d throttle.Decision) {
	q.claim(&d, 1, false, ticks.Later(now, q.lastGranted))
	return d
}

// dryRun returns the decision on a claim of q, which changes nothing.
func dryRun(q *modelQuota, now time.Time) (d throttle.Decision) {
	q.claim(&d, 1, true, ticks.Later(now, q.lastGranted))
	return d
}

// respond applies f, the response to claim n.
func respond(q *modelQuota, n uint64, f throttle.Feedback, now time.Time) {
	if f.Now = now; q.inFlight.End(n) {
		q.responded(n, &f, false, ticks.Later(now, q.lastGranted))
	}
}

var rejectedLate = throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseUnstated}

// Requests that hang as slow start admits no more begin a stop as soon as they are late. Its first probe
// is sent after 2 s, since the stop began within the first second. If it hangs, it counts as rejected.
// When one is accepted in time, a learned rate begins with what was accepted in that time.
func TestQuota_stopsWhenRequestsHang(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	q := burst(t, start)
	for _, tt := range []struct {
		ms     int
		waitMS int // 0: granted
		policy string
	}{
		{100, 50, q.account.names.slowStart}, // the first request more, for long polls
		{141, 100, q.account.names.learnedRate},
		{2005, 0, ""},
		{2006, 140, q.account.names.learnedRate}, // the probe hangs then
		{2146, 100, q.account.names.learnedRate}, // until 3 s after the first request
		{3005, 0, ""},
	} {
		d := reserve(q, at(tt.ms))
		require.Equal(t, tt.waitMS == 0, d.OK, "%+v", tt)
		if tt.waitMS > 0 {
			require.InDelta(t, tt.waitMS, d.Wait.Milliseconds(), 1, "%+v", tt)
			require.Equal(t, tt.policy, d.Policy, "%+v", tt)
		}
	}
	for n := range uint64(18) {
		respond(q, 41+n, rejectedLate, at(3006))
	}
	require.True(t, q.hold.Active, "late rejections change nothing")
	respond(q, 60, throttle.Feedback{}, at(3015))
	require.False(t, q.hold.Active)
	require.True(t, q.inference.loop.On())
	require.False(t, q.inference.window.On())
	require.InDelta(t, 40/2.58, q.inference.loop.Rate, .1, "40 until half of the time between the last two probes")
}

// Each of these shows that requests which hang are not rejected, or not known to be.
func TestQuota_whatIsNoEvidenceOfALimit(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	late := start.Add(141 * time.Millisecond)
	for name, change := range map[string]func(q *modelQuota){
		"evidence":                     func(*modelQuota) {},
		"few were accepted before":     func(q *modelQuota) { q.span.N = minBefore - 1 },
		"the usual time is not known":  func(q *modelQuota) { q.slow.Typical = 0 },
		"one of the latest failed":     func(q *modelQuota) { q.slow.Recent = 0b1000_0000 },
		"responses were late before":   func(q *modelQuota) { q.slow.MaxInFlight = 20 },
		"more may be in flight":        func(q *modelQuota) { q.inFlight.End(50) },
		"the host is known":            func(q *modelQuota) { q.slowStart.Successes = concurrency.KnownAfter },
		"a response has arrived":       func(q *modelQuota) { q.lastResponse = start.Add(time.Millisecond) },
		"the server states its limits": func(q *modelQuota) { q.estimates = make([]statedlimit.Estimate, 1) },
		"the stated limit is used up":  func(q *modelQuota) { q.hold.Active = true },
		"another estimate is on": func(q *modelQuota) {
			q.infer(learnedlimit.AcceptedSpan{}, start).loop = learnedlimit.RateLoop{Cause: throttle.CauseUnstated, Rate: 20, Next: start}
		},
		"a hanging one was accepted": func(q *modelQuota) { q.infer(learnedlimit.AcceptedSpan{}, start).nextEstimate[1] = late.Add(1) },
		"none is late":               func(q *modelQuota) { q.sentBefore, q.slow.Watched = 39, 0 },
		"no slow start":              func(q *modelQuota) { q.account.InitialConcurrency = -1 },
		"StatedOnly":                 func(q *modelQuota) { q.account.Full = false },
		"an idle time": func(q *modelQuota) {
			q.lastResponse, q.slow.Sent = start.Add(-2*time.Second), start.Add(-2*time.Second)
		},
		"older ones are slow": func(q *modelQuota) { // 18 hang, but 6 later than them were accepted
			for range 7 {
				q.inFlight.End(q.inFlight.Add())
			}
			q.sentBefore = q.inFlight.Sent
		},
	} {
		q := burst(t, start)
		change(q)
		dryRun(q, late)
		require.False(t, q.inference != nil && q.inference.hanging, "%s: a dry run changes nothing", name)
		reserve(q, late)
		require.Equal(t, name == "evidence", q.inference != nil && q.inference.hanging, name)
	}
}

// If a request that hung is accepted, the stop or the rate ends, and no other begins for a minute. A
// request that was sent too late to hang shows nothing, and neither does a rejection.
func TestQuota_aHangingRequestIsAcceptedAfterAll(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	late := start.Add(141 * time.Millisecond)
	for name, tt := range map[string]struct {
		claim    uint64
		feedback throttle.Feedback
		want     bool
	}{
		"accepted":                 {41, throttle.Feedback{}, true},
		"accepted, sent too late":  {59, throttle.Feedback{}, false},
		"a 403":                    {41, throttle.Feedback{Cause: throttle.CauseForbidden}, false},
		"rejected":                 {41, rejectedLate, false},
		"the transport timed out":  {41, throttle.Feedback{Outcome: throttle.Failed, Cause: throttle.CauseTimeout}, false},
		"the caller has cancelled": {41, throttle.Feedback{Outcome: throttle.Failed}, false},
	} {
		for _, stopped := range []bool{true, false} {
			q := burst(t, start)
			require.EqualValues(t, 59, q.inFlight.Add(), "sent later than the others")
			q.inFlight.Open = 18
			reserve(q, late)
			require.True(t, q.inference.hanging)
			require.EqualValues(t, 58, q.inference.lastHanging)
			if !stopped {
				q.hold.End()
				q.hold.Until = late
				q.inference.loop.BeginAt(throttle.CauseUnstated, 20, q.inFlight.Sent, late)
			}
			typical := q.slow.Typical
			respond(q, tt.claim, tt.feedback, late.Add(time.Second))
			require.Equal(t, !tt.want, q.inference.hanging, name)
			require.Equal(t, stopped && !tt.want, q.hold.Active, name)
			require.Equal(t, !stopped && !tt.want, q.inference.loop.On(), name)
			require.Equal(t, tt.want, q.inference.nextEstimate[1].Equal(late.Add(time.Second+learnedlimit.NoEstimate)), name)
			require.Equal(t, concurrency.SlowResponses{Typical: typical, Sent: start}, q.slow, "%s: it was slow, which is known", name)
			require.Equal(t, tt.want || !stopped, reserve(q, late.Add(time.Second)).OK, name)
		}
	}
}

// A hold that the server has stated meanwhile is not ended by that.
func TestQuota_aStatedHoldIsNotEndedByARequestThatHung(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	q := burst(t, start)
	late := start.Add(141 * time.Millisecond)
	reserve(q, late)
	stated := throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseStated, RetryAfter: 9 * time.Second}
	respond(q, 41, stated, late.Add(time.Second))
	q.hold.Estimated = false
	respond(q, 42, throttle.Feedback{}, late.Add(2*time.Second))
	require.True(t, q.hold.Active)
	require.Greater(t, reserve(q, late.Add(2*time.Second)).Wait, 7*time.Second)
}

// At a learned rate few requests are in flight, and one that hangs is a rejection as soon as it is late,
// before another one is sent. The goal becomes what was accepted before.
func TestQuota_aRequestThatHangsLowersTheRate(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	q := burst(t, start)
	now := start.Add(141 * time.Millisecond)
	reserve(q, now)
	q.hold.End()
	q.hold.Until = now
	l := &q.inference.loop
	l.BeginAfterStop(throttle.CauseUnstated, true, learnedlimit.AcceptedSpan{Since: now.Add(-time.Second), Until: now, N: 40}, now, now, now, 0, q.inFlight.Sent)
	require.InDelta(t, 40, l.Rate, 1e-9)
	for range 30 { // at 40/s
		now = now.Add(25 * time.Millisecond)
		d := reserve(q, now)
		require.True(t, d.OK)
		respond(q, d.Grant, throttle.Feedback{}, now.Add(hangingTypical))
	}
	now = now.Add(30 * time.Millisecond)
	for range 2 { // 4 x 10 ms at 40/s are one request, in addition to maxUnproven
		require.True(t, reserve(q, now).OK)
		now = now.Add(30 * time.Millisecond)
	}
	d := reserve(q, now)
	require.False(t, d.OK)
	require.Equal(t, []any{q.account.names.learnedRate, true, 80 * time.Millisecond}, []any{d.Policy, d.Estimated, d.Wait.Truncate(time.Millisecond)})
	require.True(t, dryRun(q, now).OK, "a response may arrive")
	before := l.Rate
	now = now.Add(d.Wait)
	d = reserve(q, now) // it is decided now that the others hang, so the next one waits
	require.False(t, d.OK)
	require.True(t, reserve(q, now.Add(d.Wait)).OK)
	require.Less(t, l.Rate, before)
	require.LessOrEqual(t, l.FiniteGoal(), 40., "what was accepted")
	require.EqualValues(t, 1, q.inFlight.Open, "the two that hang do not count")
	require.False(t, q.hold.Active)

	before = l.Rate
	q.stop(q.inFlight.Sent, now.Add(d.Wait))
	now = q.hold.Until
	probe := reserve(q, now)
	require.True(t, probe.OK)
	require.False(t, reserve(q, now.Add(time.Second)).OK)
	require.Equal(t, 2, q.hold.Rejections, "a probe that hangs extends the stop")
	require.GreaterOrEqual(t, l.Rate, before, "and does not lower the rate")
}

// While a rate is learned from requests that hang, all failures that servers reject with count as
// rejections.
func TestQuota_failuresOfRequestsThatHangAreRejections(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	for _, hanging := range []bool{true, false} {
		q := modelAt(0)
		inf := q.infer(learnedlimit.AcceptedSpan{}, start)
		inf.loop.BeginAt(throttle.CauseUnstated, 20, q.inFlight.Sent, start)
		inf.hanging = hanging
		f := throttle.Feedback{Outcome: throttle.Failed, Cause: throttle.CauseTimeout}
		q.suspect(&f, learnedlimit.AcceptedSpan{}, true, start)
		require.Equal(t, hanging, f.Outcome == throttle.Throttled)
		q.rejectedUnstated(q.inFlight.Add(), f.Cause, start.Add(time.Second))
		require.Equal(t, hanging, inf.loop.Rate < 19.8)
	}
}

// An earlier stop, which 403s began, has no effect on one that requests begin that hang: it is not
// bounded, and the learned rate is not one for 403s.
func TestQuota_aStopByRequestsThatHangIsNoBanBy403s(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	q := burst(t, start)
	q.infer(learnedlimit.AcceptedSpan{}, start).forbidden = true
	now := start.Add(141 * time.Millisecond)
	reserve(q, now)
	require.True(t, q.inference.hanging)
	require.Equal(t, throttle.CauseUnstated, q.inference.stopCause())
	for range 6 { // probes, which hang
		now = q.hold.Until
		require.True(t, reserve(q, now).OK)
		now = now.Add(141 * time.Millisecond)
		require.False(t, reserve(q, now).OK)
	}
	require.Greater(t, now.Sub(start), maxSuspectedStop)
	require.True(t, q.hold.Active)
}

// After a pause of 1.9 s slow start admits as many as before it, not one more for each 100 ms of it.
func TestQuota_slowStartBoundsRequestsAfterAPause(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	q := burst(t, start)
	reserve(q, start.Add(141*time.Millisecond))
	require.True(t, q.hold.Active)
	end := start.Add(1900 * time.Millisecond)
	respond(q, 41, throttle.Feedback{}, end)
	granted := int64(0)
	for granted < 100 && reserve(q, end).OK {
		granted++
	}
	require.Equal(t, q.maxInFlight(), granted)
}

// If lower rates do not make requests rarer that hang, they begin no stop for a minute.
func TestQuota_anAbandonedRateOfRequestsThatHang(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	for _, failed := range []bool{true, false} {
		q := burst(t, start)
		inf := q.infer(learnedlimit.AcceptedSpan{}, start)
		inf.hanging = true
		inf.loop.BeginAt(throttle.CauseUnstated, 20, q.inFlight.Sent, start)
		q.dropLoop(failed, start)
		reserve(q, start.Add(141*time.Millisecond))
		require.Equal(t, !failed, inf.hanging)
	}
}

// If the caller of a request that hangs gives up, nothing will show whether it was rejected.
func TestQuota_aCallerThatGivesUpShowsNoLimit(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	for cause, ended := range map[throttle.Cause]bool{throttle.CauseCanceled: true, throttle.CauseTimeout: false, throttle.CauseDropped: false} {
		q := burst(t, start)
		reserve(q, start.Add(141*time.Millisecond))
		require.True(t, q.hold.Active)
		respond(q, 41, throttle.Feedback{Outcome: throttle.Failed, Cause: cause}, start.Add(time.Second))
		require.Equal(t, ended, !q.hold.Active, cause)
		require.Equal(t, ended, !q.inference.hanging, cause)
	}
}
