package quota

import (
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
// success. After 100 successes the host is known. Processes that share an Exchange begin at the same time,
// so they divide the growth.
func TestSlowStart_boundOfANewHost(t *testing.T) {
	for _, tt := range []struct {
		initial, successes int
		stated             bool
		bound              int64 // 0: none
	}{
		{4, 0, false, 4}, {4, 1, false, 4}, {4, 2, false, 5}, {4, 27, false, 17}, {4, 28, false, 18}, {4, 99, false, 18},
		{4, 100, false, 0}, {10, 0, false, 10}, {10, 99, false, 24}, {-1, 0, false, 0},
		{4, 0, true, 4}, {4, 1, true, 5}, {4, 13, true, 17}, {4, 14, true, 18}, {4, 99, true, 18}, {4, 100, true, 0}, {-1, 0, true, 0},
	} {
		s := slowStart{successes: tt.successes}
		require.Equal(t, tt.bound, s.limit(tt.initial, tt.stated, 1), "%+v", tt)
	}
	s := slowStart{successes: 99}
	for processes, bound := range map[int]int64{1: 18, 2: 11, 14: 5, 15: 4} {
		require.Equal(t, bound, s.limit(4, false, processes), processes)
	}
}

// A quota passes its settings, and the number of processes, to slow start.
func TestQuota_slowStartOfProcesses(t *testing.T) {
	q := quotaAt(t, 0)
	q.slowStart.successes, q.shared = 99, new(sharedState)
	require.EqualValues(t, 18, q.maxInFlight())
	for _, tt := range []struct{ peers, growth int64 }{{1, 7}, {13, 1}} {
		for sender := range tt.peers {
			q.shared.peers.add(&Update{Sender: uint64(sender)}, time.Unix(1000, 0))
		}
		require.EqualValues(t, 4+tt.growth, q.maxInFlight(), "%d processes", tt.peers)
	}
	q.estimates = make([]statedlimit.Estimate, 1)
	require.EqualValues(t, 18, q.maxInFlight())
	q.endpoint.tracker.initialConcurrency = 2
	require.EqualValues(t, 16, q.maxInFlight())
}

// When 100 requests have succeeded, 18 may be in flight, and one more for each further success. When
// less than half of the bound was used during as many responses, there is none.
func TestSlowStart_boundOfAKnownHost(t *testing.T) {
	var s slowStart
	succeed := func(n int, open int64) (over bool) {
		for range n {
			over = s.countSuccess(open, 4)
		}
		return over
	}
	require.False(t, succeed(99, 10))
	require.False(t, s.isKnown())
	require.Zero(t, s.maxInFlight)
	require.False(t, succeed(1, 10))
	require.True(t, s.isKnown())
	require.EqualValues(t, 18, s.maxInFlight)
	succeed(17, 17) // 18 at the success
	require.EqualValues(t, 35, s.maxInFlight)
	succeed(1, 0)
	require.EqualValues(t, 36, s.maxInFlight, "18 of 36 were used: that is half")
	require.False(t, succeed(35, 33)) // 34 at the success: less than half of 72
	require.EqualValues(t, 71, s.maxInFlight)
	require.True(t, succeed(1, 34))
	require.Zero(t, s.maxInFlight, "35 of 72 were used")
	require.True(t, succeed(1, 50))
	require.Zero(t, s.maxInFlight)
}

// isKnown reports whether the host is known: only then a stated limit removes the bound.
func (s slowStart) isKnown() bool { return s.limit(4, true, 1) == 0 }

// The bound after a hold does not grow for as many successes as stated, and only the use after them
// counts.
func TestSlowStart_boundAfterAHold(t *testing.T) {
	s := slowStart{successes: knownAfter}
	s.bound(20, 3)
	for _, want := range []int64{20, 20, 20, 21} {
		s.countSuccess(15, 4)
		require.Equal(t, want, s.maxInFlight)
	}
	require.EqualValues(t, 16, s.peak)
	require.EqualValues(t, 19, s.countdown)
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
		s := slowStart{successes: tt.successes, denied: tt.denied}
		require.False(t, s.countSuccess(tt.open, 4), "%+v: before 100 successes", tt)
		require.Equal(t, !tt.isNew, s.isKnown(), "%+v", tt)
	}
	var s slowStart
	for i := range knownAfter {
		require.Equal(t, i == knownAfter-1, s.countSuccess(0, 4))
	}
	require.Zero(t, s.maxInFlight, "it is not bounded again")
}

// The bound when a host becomes known grows with Tracker.InitialConcurrency.
func TestKnownBound(t *testing.T) {
	for initial, want := range map[int]int64{-1: 14, 4: 18, 10: 24} {
		require.Equal(t, want, knownBound(initial), initial)
	}
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

// A host is unlimited when slow start is over, and it has shown no limit.
func TestQuota_whichHostIsUnlimited(t *testing.T) {
	for name, limit := range map[string]func(*quota){
		"none":     func(*quota) {},
		"evidence": func(q *quota) { q.inference = &inference{nextEstimate: [2]time.Time{time.Unix(2000, 0)}} }, // not forgotten
		"a limit":  func(q *quota) { q.estimates = []statedlimit.Estimate{{Limit: 1e6, Remaining: 1e6}} },
		"a hold":   func(q *quota) { q.hold.LastSent = 1 },
		"a quota":  func(q *quota) { q.endpoint.hasQuotas.Store(true) },
	} {
		q := quotaAt(t, 0)
		limit(q)
		for i := range knownAfter {
			require.False(t, q.endpoint.unlimited.Load(), name)
			q.observe(uint64(i), &throttle.Feedback{}, time.Unix(1000, 0))
			require.EqualValues(t, i+1, q.span.N)
		}
		require.Equal(t, name == "none", q.endpoint.unlimited.Load(), name)
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
// flight may be, but at least four. Rejections within the round trip are of the same burst. Eight successes
// in a row end it.
func TestConcurrencyCut_boundsRequestsInFlight(t *testing.T) {
	now := time.Unix(1000, 0)
	const rtt = 20 * time.Millisecond
	for inFlight, want := range map[float64]int64{50: 25, 51: 25, 10: 5, 9: 4, 1: 4, 1 << 40: inflight.Max} {
		var c concurrencyCut
		c.begin(inFlight, rtt, now)
		require.Equal(t, concurrencyCut{until: now.Add(rtt), maxInFlight: want}, c, inFlight)
	}
	var c concurrencyCut
	c.begin(40, rtt, now)
	c.succeeded()
	c.begin(20, rtt, now.Add(rtt-1))
	require.Equal(t, concurrencyCut{until: now.Add(rtt), maxInFlight: 20}, c, "the same burst; the successes begin anew")
	c.begin(19, rtt, now.Add(rtt))
	require.Equal(t, concurrencyCut{until: now.Add(2 * rtt), maxInFlight: 9}, c, "another burst")
	for range 7 {
		c.succeeded()
		require.NotZero(t, c.maxInFlight)
	}
	c.succeeded()
	require.Equal(t, concurrencyCut{}, c)
}

// Requests that no limit granted are in flight, too.
func TestQuota_cutsWhatIsInFlight(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct{ open, rate, most int64 }{ // rate: accepted in each of the last seconds
		"claims":    {50, 0, 25},
		"unlimited": {0, 3000, 30}, // 3,000 a second, 20 ms
	} {
		q := quotaAt(t, 0)
		q.inFlight.Open = tt.open
		q.inference, q.slow.typical = new(inference), 20*time.Millisecond
		for i := range 6 {
			q.inference.accepted.Add(tt.rate, now.Add(time.Duration(i-6)*time.Second))
		}
		q.cutConcurrency(now)
		require.Equal(t, concurrencyCut{until: now.Add(20 * time.Millisecond), maxInFlight: tt.most}, q.inference.cut, name)
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
		q.inference = &inference{cut: concurrencyCut{maxInFlight: 4}}
		q.slowStart.successes, q.inFlight.Open = tt.successes, tt.open
		_, ok := q.checkSlowStart(now)
		require.Equal(t, tt.ok, ok, "%+v", tt)
	}
}

// A cut grants no claim for a round trip, and then as many as its bound.
func TestQuota_waitsForACut(t *testing.T) {
	now := time.Unix(1000, 0)
	q := quotaAt(t, 0)
	q.inference, q.slowStart.successes, q.inFlight.Open = new(inference), knownAfter, 40
	q.cutConcurrency(now)
	until := now.Add(unknownRoundTrip)
	wait, ok := q.checkSlowStart(now.Add(10 * time.Millisecond))
	require.False(t, ok)
	require.Equal(t, unknownRoundTrip-10*time.Millisecond, wait)
	wait, ok = q.checkSlowStart(until.Add(-1))
	require.False(t, ok)
	require.EqualValues(t, 1, wait)
	q.inFlight.Open = 20
	wait, ok = q.checkSlowStart(until)
	require.False(t, ok, "20 are in flight")
	require.Zero(t, wait)
	q.inFlight.Open = 19
	_, ok = q.checkSlowStart(until)
	require.True(t, ok)
	for range 8 {
		require.NotZero(t, q.inference.cut)
		q.succeeded(1, now)
	}
	require.Zero(t, q.inference.cut)
}
