package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/peers"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A decision describes the limit with the fewest units left, less those of claims in flight.
func TestQuota_describesTheLimitWithTheFewestUnits(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		estimates []statedlimit.Estimate
		open      int64
		want      throttle.Decision
	}{
		"one":              {[]statedlimit.Estimate{{Limit: 10, Remaining: 4, Reset: now.Add(time.Minute)}}, 1, throttle.Decision{Limit: 10, Remaining: 3, ResetAfter: time.Minute}},
		"none left":        {[]statedlimit.Estimate{{Limit: 10, Remaining: 4, Reset: now.Add(time.Minute)}}, 5, throttle.Decision{Limit: 10, ResetAfter: time.Minute}},
		"just none left":   {[]statedlimit.Estimate{{Limit: 10, Remaining: 4, Reset: now.Add(time.Minute)}}, 4, throttle.Decision{Limit: 10, ResetAfter: time.Minute}},
		"the reset is now": {[]statedlimit.Estimate{{Limit: 10, Remaining: 4, Reset: now}}, 0, throttle.Decision{Limit: 10, Remaining: 4}},
		"it is over":       {[]statedlimit.Estimate{{Limit: 10, Remaining: 4, Reset: now.Add(-time.Hour)}}, 0, throttle.Decision{Limit: 10, Remaining: 4}},
		"a limit of none":  {[]statedlimit.Estimate{{Reset: now}}, 0, throttle.Decision{Limit: 1}},
		"the second":       {[]statedlimit.Estimate{{Limit: 10, Remaining: 4, Reset: now}, {Limit: 9, Remaining: 3, Reset: now}}, 0, throttle.Decision{Limit: 9, Remaining: 3}},
		"the first":        {[]statedlimit.Estimate{{Limit: 10, Remaining: 3, Reset: now}, {Limit: 9, Remaining: 4, Reset: now}}, 0, throttle.Decision{Limit: 10, Remaining: 3}},
		"of two, either":   {[]statedlimit.Estimate{{Limit: 10, Remaining: 3, Reset: now}, {Limit: 9, Remaining: 3, Reset: now}}, 0, throttle.Decision{Limit: 10, Remaining: 3}},
	} {
		q := modelAt(0)
		q.Estimates, q.InFlight.Open = tt.estimates, tt.open
		var d throttle.Decision
		q.describe(&d, now)
		require.Equal(t, tt.want, d, name)
	}
}

// A quota is blank if it knows nothing that would be lost with it, idle if it admits all requests and none
// is in flight.
func TestQuota_isBlankOrIdle(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	for name, tt := range map[string]struct {
		change      func(q *Quota)
		blank, idle bool
	}{
		"new":                         {func(*Quota) {}, true, true},
		"a request is in flight":      {func(q *Quota) { q.InFlight.Open = 1 }, false, false},
		"a limit":                     {func(q *Quota) { q.Estimates = []statedlimit.Estimate{{Remaining: 1, Reset: in(1)}} }, false, true},
		"a limit that is used up":     {func(q *Quota) { q.Estimates = []statedlimit.Estimate{{Remaining: 1}, {Reset: in(1)}} }, false, false},
		"that has reset":              {func(q *Quota) { q.Estimates = []statedlimit.Estimate{{Reset: now}} }, false, true},
		"a hold":                      {func(q *Quota) { q.Hold = hold.Hold{Active: true, Until: in(1)} }, false, false},
		"a hold that is to be probed": {func(q *Quota) { q.Hold = hold.Hold{Active: true, Until: in(1 - staleAfter)} }, false, false},
		"a hold that was not probed":  {func(q *Quota) { q.Hold = hold.Hold{Active: true, Until: in(-staleAfter)} }, false, true},
		"it waits for a fetch":        {func(q *Quota) { q.Hold.Until = in(1) }, true, false},
		"evidence":                    {func(q *Quota) { q.Inference = new(Inference) }, false, true},
		"a rate": {func(q *Quota) {
			q.Inference = &Inference{Loop: learnedlimit.RateLoop{Cause: throttle.CauseUnstated}}
		}, false, false},
		"a loop begins soon":             {func(q *Quota) { q.Inference = &Inference{loopPending: true} }, false, false},
		"a stop begins soon":             {func(q *Quota) { q.Inference = &Inference{stopPending: true} }, false, false},
		"a window":                       {func(q *Quota) { q.Inference = &Inference{Window: learnedlimit.Window{Limit: 9, Reset: in(1)}} }, false, false},
		"a window that is over":          {func(q *Quota) { q.Inference = &Inference{Window: learnedlimit.Window{Limit: 9, Reset: now}} }, false, true},
		"the reset of no learned window": {func(q *Quota) { q.Inference = &Inference{Window: learnedlimit.Window{Reset: in(1)}} }, false, true},
	} {
		q := modelAt(0)
		q.LastGranted = in(-time.Minute)
		tt.change(q)
		require.Equal(t, tt.blank, q.IsBlank(), name)
		used, idle := q.LastUse(now)
		require.Equal(t, tt.idle, idle, name)
		require.Equal(t, in(-time.Minute), used, name)
	}
}

// A response concerns another quota if none of the limits that it states has the name of one that is known.
func TestQuota_statesOtherLimits(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		names []string
		want  bool
	}{"no limits": {nil, false}, "the same": {[]string{"a"}, false}, "another one": {[]string{"b"}, true}, "others": {[]string{"b", "c"}, true}, "one is the same": {[]string{"b", "a"}, false}} {
		q := modelAt(0)
		for _, n := range tt.names {
			q.Estimates = append(q.Estimates, statedlimit.Estimate{Name: n, Limit: 10, Reset: now})
		}
		require.Equal(t, tt.want, q.StatesOther([]throttle.RemoteLimit{{Name: "a", Limit: 10}}), name)
	}
}

// What was accepted before the first rejection of an unlimited host is known to its quota.
func TestQuota_appliesRejectionsOfOthers(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	f := throttle.Feedback{Now: now, Outcome: throttle.Throttled, Cause: throttle.CauseStated, RetryAfter: time.Minute}
	for n, want := range map[int64]learnedlimit.AcceptedSpan{0: {N: 3}, 1: {Since: now.Add(-time.Second), N: 1}} {
		q := modelAt(0)
		q.Span.N = 3
		q.RejectedElsewhere(&f, learnedlimit.AcceptedSpan{Since: now.Add(-time.Second), N: n}, now)
		require.Equal(t, want, q.Span, n)
		require.EqualValues(t, 1, q.InFlight.Sent, "the rejection stands for a claim")
		require.Equal(t, 1, q.Hold.Rejections)
		q.RejectedElsewhere(&f, learnedlimit.AcceptedSpan{Since: now, N: 9}, now)
		require.Equal(t, want, q.Span, "a rejection of the same burst")
		require.Equal(t, 1, q.Hold.Rejections)
	}
}

// Only a rejection of a claim that was granted after the latest statement shows that windows are not what
// they were taken for, or answers a probe.
func TestQuota_olderRejectionsShowLessOfLimits(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	usedUp := []throttle.RemoteLimit{{Limit: 10, Remaining: 0, ResetAfter: time.Minute}}
	for n, newer := range map[uint64]bool{5: false, 6: true} { // for its own limit, see TestEstimate_rejectionsRefuteCountedWindows
		q := modelAt(0)
		q.Estimates = []statedlimit.Estimate{
			{Limit: 10, Remaining: 9, At: now, Reset: now.Add(time.Minute), LastSent: 5},
			{Name: "other", Limit: 10, At: now, Reset: now, LastSent: 5, Probe: true},
		}
		require.True(t, q.updateEstimates(n, &throttle.Feedback{Now: now, Outcome: throttle.Throttled, RemoteLimits: usedUp}, now))
		require.Equal(t, !newer, q.Estimates[1].Probe, n)
	}
	q := modelAt(0)
	q.InFlight.Open = 3
	q.Estimates = []statedlimit.Estimate{{Per: time.Minute}, {Per: time.Hour}, {Per: time.Second}}
	r := q.rejectionOf(time.Second, now)
	require.EqualValues(t, 4, r.InFlight, "with the one that was rejected")
	require.Equal(t, time.Hour, r.Window)
}

// After more than a second without a request, and without a reason to wait, a new span of accepted requests
// begins.
func TestQuota_beginsASpanAfterAnIdleTime(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	before := learnedlimit.AcceptedSpan{Since: now.Add(-time.Minute), N: 7}
	for name, tt := range map[string]struct {
		granted, held time.Duration // before now
		idle          bool
	}{
		"a second":              {time.Second, time.Hour, false},
		"more than a second":    {time.Second + 1, time.Hour, true},
		"held until a second":   {time.Hour, time.Second, false},
		"held, but not so long": {time.Hour, time.Second + 1, true},
	} {
		q := modelAt(0)
		q.Span, q.LastGranted, q.Hold.Until = before, now.Add(-tt.granted), now.Add(-tt.held)
		q.grant(1, now)
		require.Equal(t, tt.idle, q.Span == learnedlimit.AcceptedSpan{Since: now}, name)
		require.Equal(t, !tt.idle, q.Span == before, name)
	}
	q := modelAt(0)
	q.LastGranted = now
	q.grant(1, now)
	require.Equal(t, learnedlimit.AcceptedSpan{Since: now}, q.Span, "the first one")
}

// modelAt returns the model of a quota of which nothing is known.
func modelAt(random float64) *Quota {
	c := Config{Full: true, InitialConcurrency: 4, Pacing: statedlimit.Pacing{MaxHold: 15 * time.Minute}, Random: func() float64 { return random }}
	a := &Account{Config: &c}
	a.Names = Names{Quota: "quota", RetryAfter: "retry-after", LearnedRate: "learned rate", SlowStart: "slow start", SlowResponses: "slow responses"}
	return &Quota{Units: Units{Account: a}}
}

// A quota passes its settings, and the number of processes, to slow start.
func TestQuota_slowStartOfProcesses(t *testing.T) {
	q := modelAt(0)
	q.SlowStart.Successes, q.Peers = 99, new(peers.Set)
	require.EqualValues(t, 18, q.MaxInFlight())
	for _, tt := range []struct{ peers, growth int64 }{{1, 7}, {13, 1}} {
		for sender := range tt.peers {
			q.Peers.Add(uint64(sender), 0, time.Unix(1000, 0))
		}
		require.EqualValues(t, 4+tt.growth, q.MaxInFlight(), "%d processes", tt.peers)
	}
	q.Estimates = make([]statedlimit.Estimate, 1)
	require.EqualValues(t, 18, q.MaxInFlight())
	q.Account.InitialConcurrency = 2
	require.EqualValues(t, 16, q.MaxInFlight())
}

// The latest claim decides whether a request waits. A dry run is no claim.
func TestQuota_remembersThatAClaimWasDenied(t *testing.T) {
	q := modelAt(0)
	claim := func(n int, dryRun, denied bool) {
		for range n {
			var d throttle.Decision
			q.Claim(&d, 1, dryRun, time.Unix(1000, 0))
		}
		require.Equal(t, denied, q.SlowStart.Denied)
	}
	claim(4, false, false)
	claim(1, true, false)
	claim(1, false, true)
	claim(1, true, true)
	q.InFlight.End(1)
	claim(1, false, false)
}

// While no response arrives, one request more is granted every 100 ms, for long polls.
func TestQuota_admitsOneMoreWithTime(t *testing.T) {
	const ms = time.Millisecond
	now := time.Unix(1000, 0)
	for _, tt := range []struct {
		open  int64
		since time.Duration // the latest response; 0: there was neither a response nor a request
		ok    bool
		wait  time.Duration // if not ok
	}{
		{3, 1, true, 0}, {4, 1, false, 100*ms - 1}, {4, 99 * ms, false, ms}, {4, 100 * ms, true, 0},
		{5, 199 * ms, false, ms}, {5, 200 * ms, true, 0}, {9, 250 * ms, false, 50 * ms}, {4, 0, false, 0},
	} {
		for _, began := range []bool{true, false} { // with a request, with a response
			q := modelAt(0)
			q.InFlight.Open = tt.open
			switch at := now.Add(-tt.since); {
			case tt.since == 0:
			case began:
				q.Span.Since = at
			default:
				q.Span.Since, q.LastResponse = at.Add(-time.Second), at
			}
			wait, ok := q.checkSlowStart(now)
			require.Equal(t, tt.ok, ok, "%+v", tt)
			if !ok {
				require.Equal(t, tt.wait, wait, "%+v", tt)
			}
		}
	}
}

// Requests that no limit granted are in flight, too.
func TestQuota_cutsWhatIsInFlight(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct{ open, rate, most int64 }{ // rate: accepted in each of the last seconds
		"claims":    {50, 0, 25},
		"unlimited": {0, 3000, 30}, // 3,000 a second, 20 ms
	} {
		q := modelAt(0)
		q.InFlight.Open = tt.open
		q.Inference, q.Slow.Typical = new(Inference), 20*time.Millisecond
		for i := range 6 {
			q.Inference.accepted.Add(tt.rate, now.Add(time.Duration(i-6)*time.Second))
		}
		q.cutConcurrency(now)
		require.Equal(t, concurrency.Cut{Until: now.Add(20 * time.Millisecond), MaxInFlight: tt.most}, q.Inference.Cut, name)
	}
}

// Where fewer than four requests have succeeded, no more than these may be in flight after a cut.
func TestQuota_cutsOfANewHost(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tt := range []struct {
		successes int
		open      int64
		ok        bool
	}{{0, 0, true}, {0, 1, false}, {1, 0, true}, {1, 1, false}, {3, 2, true}, {3, 3, false}, {4, 3, true}, {4, 4, false}, {50, 4, false}} {
		q := modelAt(0)
		q.Inference = &Inference{Cut: concurrency.Cut{MaxInFlight: 4}}
		q.SlowStart.Successes, q.InFlight.Open = tt.successes, tt.open
		_, ok := q.checkSlowStart(now)
		require.Equal(t, tt.ok, ok, "%+v", tt)
	}
}

// A cut grants no claim for a round trip, and then as many as its bound.
func TestQuota_waitsForACut(t *testing.T) {
	now := time.Unix(1000, 0)
	q := modelAt(0)
	q.Inference, q.SlowStart.Successes, q.InFlight.Open = new(Inference), concurrency.KnownAfter, 40
	q.cutConcurrency(now)
	until := now.Add(unknownRoundTrip)
	wait, ok := q.checkSlowStart(now.Add(10 * time.Millisecond))
	require.False(t, ok)
	require.Equal(t, unknownRoundTrip-10*time.Millisecond, wait)
	wait, ok = q.checkSlowStart(until.Add(-1))
	require.False(t, ok)
	require.EqualValues(t, 1, wait)
	q.InFlight.Open = 20
	wait, ok = q.checkSlowStart(until)
	require.False(t, ok, "20 are in flight")
	require.Zero(t, wait)
	q.InFlight.Open = 19
	_, ok = q.checkSlowStart(until)
	require.True(t, ok)
	for range 8 {
		require.NotZero(t, q.Inference.Cut)
		q.succeeded(1, now)
	}
	require.Zero(t, q.Inference.Cut)
}

// Slow responses bound the claims in flight of a quota. A claim that was cancelled is not watched any more.
func TestQuota_slowResponsesBoundItsClaims(t *testing.T) {
	q := modelAt(0)
	q.SlowStart.Successes = concurrency.KnownAfter
	for _, tt := range []struct {
		bound, open int64
		ok          bool
	}{{0, 1000, true}, {4, 3, true}, {4, 4, false}, {4, 5, false}} {
		var d throttle.Decision
		q.Slow.MaxInFlight, q.InFlight.Open = tt.bound, tt.open
		q.decide(&d, 1, false, time.Unix(1000, 0))
		require.Equal(t, tt.ok, d.OK, "%+v", tt)
	}
	q.Slow.Watched, q.InFlight = 25, inflight.Claims{Sent: 24}
	require.EqualValues(t, []uint64{25, 26}, []uint64{q.InFlight.Add(), q.InFlight.Add()})
	q.Canceled(26, 1)
	require.EqualValues(t, 25, q.Slow.Watched)
	q.Canceled(25, 1)
	require.Zero(t, q.Slow.Watched)
}

// A 403 counts as a failure for slow responses only where the server was healthy before.
func TestQuota_aForbiddenRequestIsAFailureOfAHealthyServer(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		cause    throttle.Cause
		outcome  throttle.Outcome
		accepted int64
		want     bool
	}{
		"a 403":                      {throttle.CauseForbidden, throttle.Accepted, 30, true},
		"a 403, none succeeded":      {throttle.CauseForbidden, throttle.Accepted, 0, false},
		"a 403 that a loop explains": {throttle.CauseForbidden, throttle.Throttled, 30, false},
		"a success":                  {throttle.CauseUnknown, throttle.Accepted, 30, false},
		"a 503":                      {throttle.CauseUnavailable, throttle.Failed, 0, true},
		"a 429":                      {throttle.CauseUnstated, throttle.Throttled, 30, false},
	} {
		q := modelAt(0)
		q.Span = learnedlimit.AcceptedSpan{Since: now.Add(-time.Second), N: tt.accepted}
		inf := q.infer(learnedlimit.AcceptedSpan{}, now)
		inf.Evidence.Add(tt.cause, now)
		q.Responded(1, &throttle.Feedback{Cause: tt.cause, Outcome: tt.outcome}, false, now)
		require.Equal(t, tt.want, q.Slow.Recent != 0, name)
	}
	q := modelAt(0)
	q.Responded(1, &throttle.Feedback{Cause: throttle.CauseForbidden}, false, now)
	require.Zero(t, q.Slow.Recent, "nothing is inferred")
}

// Clients that are not alone spread their probes over a second.
func TestQuota_spreadsProbesOfClients(t *testing.T) {
	q := modelAt(0)
	q.Estimates = make([]statedlimit.Estimate, 2)
	require.Zero(t, q.spreadOfClients())
	q.Estimates[1] = sharedEstimate(time.Unix(1_700_000_000, 0))
	require.Equal(t, time.Second, q.spreadOfClients())
}

// A quota of which nothing is known may have any limits. One with a hold or with evidence has been used.
func TestQuota_aNewQuotaMayHaveAnyLimits(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		change func(q *Quota)
		may    bool
	}{
		"new":                   {func(*Quota) {}, true},
		"a hold":                {func(q *Quota) { q.Hold.Active = true }, false},
		"until later":           {func(q *Quota) { q.Hold.Until = now.Add(1) }, false},
		"until now":             {func(q *Quota) { q.Hold.Until = now }, true},
		"a possible rejection":  {func(q *Quota) { q.Inference = new(Inference) }, false},
		"another known limit":   {func(q *Quota) { q.Estimates = []statedlimit.Estimate{{Name: "b", Limit: 10, Reset: now}} }, false},
		"a limit of other size": {func(q *Quota) { q.Estimates = []statedlimit.Estimate{{Name: "a", Limit: 9, Reset: now}} }, false},
	} {
		q := modelAt(0)
		tt.change(q)
		may, shown := q.Matches([]throttle.RemoteLimit{{Name: "a", Limit: 10, Remaining: 5, ResetAfter: time.Minute}}, 0, now)
		require.Equal(t, tt.may, may, name)
		require.False(t, shown, name)
	}
}

// sharedEstimate returns an estimate of a limit that other clients use, too: 5 of 10 units are left as of
// now, until a minute later.
func sharedEstimate(now time.Time) (e statedlimit.Estimate) {
	limit := throttle.RemoteLimit{Limit: 100, Remaining: 99, ResetAfter: time.Minute}
	e.Update(limit, 0, now.Add(-time.Second), &inflight.Claims{})
	limit.Remaining = 50
	e.Update(limit, 0, now, &inflight.Claims{})
	e.Limit, e.Remaining = 10, 5
	return e
}
