package quota

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// quotaAt returns the quota of a new Tracker whose random numbers are random.
func quotaAt(t *testing.T, random float64) *quota {
	tr := &Tracker{Rand: func() float64 { return random }}
	return tr.endpointOf(request(t, users)).unknown.Load()
}

// The bound grows to 18: from 4 by one per two successes, and where the server states limits by one per
// success. After 100 successes the host is known.
func TestSlowStart_boundOfANewHost(t *testing.T) {
	for _, tt := range []struct {
		initial, successes int
		stated             bool
		bound              int64 // 0: none
	}{
		{0, 0, false, 4}, {0, 1, false, 4}, {0, 2, false, 5}, {0, 27, false, 17}, {0, 28, false, 18}, {0, 99, false, 18},
		{0, 100, false, 0}, {10, 0, false, 10}, {10, 99, false, 24}, {-1, 0, false, 0},
		{0, 0, true, 4}, {0, 1, true, 5}, {0, 13, true, 17}, {0, 14, true, 18}, {0, 99, true, 18}, {0, 100, true, 0}, {-1, 0, true, 0},
	} {
		q := quotaAt(t, 0)
		q.endpoint.tracker.initialConcurrency, q.slowStart.successes = cmp.Or(tt.initial, 4), tt.successes
		if tt.stated {
			q.estimates = make([]statedlimit.Estimate, 1)
		}
		require.Equal(t, tt.bound, q.maxInFlight(), "%+v", tt)
	}
}

// Processes that share an Exchange begin at the same time, so they divide the growth.
func TestSlowStart_processesDivideTheGrowth(t *testing.T) {
	q := quotaAt(t, 0)
	q.slowStart.successes, q.shared = 99, new(sharedState)
	require.EqualValues(t, 18, q.maxInFlight())
	for _, tt := range []struct{ peers, growth int64 }{{1, 7}, {13, 1}} {
		for sender := range tt.peers {
			q.shared.peers.add(&Update{Sender: uint64(sender)}, time.Unix(1000, 0))
		}
		require.EqualValues(t, 4+tt.growth, q.maxInFlight(), "%d processes", tt.peers)
	}
}

// When 100 requests have succeeded, 18 may be in flight, and one more for each further success. When
// less than half of the bound was used during as many responses, there is none.
func TestSlowStart_boundOfAKnownHost(t *testing.T) {
	succeed := func(q *quota, n int, open int64) {
		for range n {
			q.inFlight.Open = open
			q.countSuccess()
		}
	}
	q := quotaAt(t, 0)
	succeed(q, 99, 10)
	require.False(t, isKnown(q))
	require.Zero(t, q.slowStart.maxInFlight)
	succeed(q, 1, 10)
	require.True(t, isKnown(q))
	require.EqualValues(t, 18, q.slowStart.maxInFlight)
	require.False(t, q.endpoint.unlimited.Load())
	succeed(q, 17, 17) // 18 at the success
	require.EqualValues(t, 35, q.slowStart.maxInFlight)
	succeed(q, 1, 0)
	require.EqualValues(t, 36, q.slowStart.maxInFlight, "18 of 36 were used: that is half")
	succeed(q, 35, 33) // 34 at the success: less than half of 72
	require.EqualValues(t, 71, q.slowStart.maxInFlight)
	require.False(t, q.endpoint.unlimited.Load())
	succeed(q, 1, 34)
	require.Zero(t, q.slowStart.maxInFlight, "35 of 72 were used")
	require.True(t, q.endpoint.unlimited.Load())
	succeed(q, 1, 50)
	require.Zero(t, q.slowStart.maxInFlight)
}

// The bound after a hold does not grow for as many successes as stated, and only the use after them
// counts.
func TestSlowStart_boundAfterAHold(t *testing.T) {
	q := quotaAt(t, 0)
	q.slowStart.successes = knownAfter
	q.slowStart.bound(20, 3)
	for _, want := range []int64{20, 20, 20, 21} {
		q.inFlight.Open = 15
		q.countSuccess()
		require.Equal(t, want, q.slowStart.maxInFlight)
	}
	require.EqualValues(t, 16, q.slowStart.peak)
	require.EqualValues(t, 19, q.slowStart.countdown)
}

// A host that has served 50 requests is known when none is in flight or waits. The responses of a
// round trip may all arrive before one of the requests that wait for them is granted.
func TestSlowStart_aServedBurstEndsIt(t *testing.T) {
	for _, tt := range []struct {
		successes int // before this one
		open      int64
		denied    bool
		isNew     bool
	}{
		{48, 0, false, true}, {49, 0, false, false}, {49, 1, false, true}, {60, 0, false, false},
		{49, 0, true, true}, {60, 0, true, true},
	} {
		q := quotaAt(t, 0)
		q.slowStart.successes, q.slowStart.denied, q.inFlight.Open = tt.successes, tt.denied, tt.open
		q.countSuccess()
		require.Equal(t, !tt.isNew, isKnown(q), "%+v", tt)
		require.False(t, q.endpoint.unlimited.Load(), "%+v: before 100 successes", tt)
	}
	q := quotaAt(t, 0)
	for range knownAfter {
		q.countSuccess()
	}
	require.Zero(t, q.slowStart.maxInFlight, "it is not bounded again")
	require.True(t, q.endpoint.unlimited.Load())
	require.EqualValues(t, knownAfter, q.span.N)
}

// The latest claim decides whether a request waits. A dry run is no claim.
func TestSlowStart_remembersThatAClaimWasDenied(t *testing.T) {
	q := quotaAt(t, 0)
	claim := func(n int, dryRun, denied bool) {
		for range n {
			_, err := q.Reserve(t.Context(), throttle.Claim{Now: time.Unix(1000, 0), DryRun: dryRun})
			require.NoError(t, err)
		}
		require.Equal(t, denied, q.slowStart.denied)
	}
	claim(4, false, false)
	claim(1, true, false)
	claim(1, false, true)
	claim(1, true, true)
	q.inFlight.End(1)
	claim(1, false, false)
}

// Only a host that has shown no limit is unlimited.
func TestSlowStart_aHostWithALimitIsNotUnlimited(t *testing.T) {
	for name, limit := range map[string]func(*quota){
		"evidence": func(q *quota) { q.inference = new(inference) },
		"a limit":  func(q *quota) { q.estimates = make([]statedlimit.Estimate, 1) },
		"a hold":   func(q *quota) { q.hold.LastSent = 1 },
		"a quota":  func(q *quota) { q.endpoint.hasQuotas.Store(true) },
	} {
		q := quotaAt(t, 0)
		limit(q)
		for range 2 * knownAfter {
			q.countSuccess()
		}
		require.False(t, q.endpoint.unlimited.Load(), name)
	}
}

// While no response arrives, one request more is granted every 100 ms, for long polls.
func TestSlowStart_admitsOneMoreWithTime(t *testing.T) {
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
			q := quotaAt(t, 0)
			q.inFlight.Open = tt.open
			switch at := now.Add(-tt.since); {
			case tt.since == 0:
			case began:
				q.span.Since = at
			default:
				q.span.Since, q.lastResponse = at.Add(-time.Second), at
			}
			wait, ok := q.checkSlowStart(now)
			require.Equal(t, tt.ok, ok, "%+v", tt)
			if !ok {
				require.Equal(t, tt.wait, wait, "%+v", tt)
			}
		}
	}
}

// After a bare 429 that is not evidence, no claim is granted for one round trip. Then half of what was in
// flight may be, but at least four.
func TestConcurrencyCut_boundsRequestsInFlight(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		open int64
		rate int64 // accepted in each of the last seconds
		most int64
	}{
		"half":                       {50, 0, 25},
		"odd":                        {51, 0, 25},
		"ten":                        {10, 0, 5},
		"few":                        {9, 0, 4},
		"one":                        {1, 0, 4},
		"unlimited":                  {0, 3000, 30}, // 3,000 a second, 20 ms
		"more than can be in flight": {1 << 40, 0, inflight.Max},
	} {
		q := quotaAt(t, 0)
		q.inFlight.Open = tt.open
		q.inference, q.slow.typical = new(inference), 20*time.Millisecond
		for i := range 6 {
			q.inference.accepted.Add(tt.rate, now.Add(time.Duration(i-6)*time.Second))
		}
		q.cutConcurrency(now)
		c := &q.inference.cut
		require.Equal(t, concurrencyCut{until: now.Add(20 * time.Millisecond), maxInFlight: tt.most}, *c, name)
	}
}

// Where fewer than four requests have succeeded, no more than these may be in flight after a cut.
func TestConcurrencyCut_ofANewHost(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tt := range []struct {
		successes int
		open      int64
		ok        bool
	}{{0, 0, true}, {0, 1, false}, {1, 0, true}, {1, 1, false}, {3, 2, true}, {3, 3, false}, {4, 3, true}, {4, 4, false}, {50, 4, false}} {
		q := quotaAt(t, 0)
		q.inference = &inference{cut: concurrencyCut{maxInFlight: minInFlight}}
		q.slowStart.successes, q.inFlight.Open = tt.successes, tt.open
		_, ok := q.checkSlowStart(now)
		require.Equal(t, tt.ok, ok, "%+v", tt)
	}
}

// Rejections within the round trip of a cut are of the same burst, so only a later one cuts again. Eight
// successes in a row end it.
func TestConcurrencyCut_endsAfterEightSuccesses(t *testing.T) {
	now := time.Unix(1000, 0)
	q := quotaAt(t, 0)
	q.inference, q.slowStart.successes, q.inFlight.Open = new(inference), knownAfter, 40
	q.cutConcurrency(now)
	c := &q.inference.cut
	until := now.Add(unknownRoundTrip)
	wait, ok := q.checkSlowStart(now.Add(10 * time.Millisecond))
	require.False(t, ok)
	require.Equal(t, unknownRoundTrip-10*time.Millisecond, wait)
	wait, ok = q.checkSlowStart(until.Add(-1))
	require.False(t, ok)
	require.EqualValues(t, 1, wait)
	q.inFlight.Open = 20
	q.succeeded(1, now)
	q.cutConcurrency(until.Add(-1))
	require.Equal(t, concurrencyCut{until: until, maxInFlight: 20}, *c, "the same burst; the successes begin anew")
	wait, ok = q.checkSlowStart(until)
	require.False(t, ok, "20 are in flight")
	require.Zero(t, wait)
	q.inFlight.Open = 19
	_, ok = q.checkSlowStart(until)
	require.True(t, ok)
	q.cutConcurrency(until)
	require.Equal(t, concurrencyCut{until: until.Add(unknownRoundTrip), maxInFlight: 9}, *c, "another burst")
	for range 7 {
		q.succeeded(1, until)
		require.NotZero(t, c.maxInFlight)
	}
	q.succeeded(1, until)
	require.Equal(t, concurrencyCut{}, *c)
}

// isKnown reports whether the host of q is known: only then a stated limit removes the bound of slow start.
func isKnown(q *quota) bool {
	stated := quota{unitQuota: unitQuota{endpoint: q.endpoint, estimates: make([]statedlimit.Estimate, 1)}, slowStart: q.slowStart}
	return stated.maxInFlight() == 0
}
