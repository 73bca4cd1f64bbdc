package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/peers"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// quotaAt returns the quota of a new Tracker whose random numbers are random.
// modelAt returns the model of a quota of which nothing is known.
func modelAt(random float64) *modelQuota {
	c := modelConfig{Full: true, InitialConcurrency: 4, Pacing: statedlimit.Pacing{MaxHold: 15 * time.Minute}, Random: func() float64 { return random }}
	a := &modelAccount{modelConfig: &c}
	a.names = modelNames{quota: "quota", retryAfter: "retry-after", learnedRate: "learned rate", slowStart: "slow start", slowResponses: "slow responses"}
	return &modelQuota{modelUnits: modelUnits{account: a}}
}

func quotaAt(t *testing.T, random float64) *quota {
	tr := &Tracker{Rand: func() float64 { return random }}
	return tr.endpointOf(request(t, users)).unknown.Load()
}

// A quota passes its settings, and the number of processes, to slow start.
func TestQuota_slowStartOfProcesses(t *testing.T) {
	q := modelAt(0)
	q.slowStart.Successes, q.peers = 99, new(peers.Set)
	require.EqualValues(t, 18, q.maxInFlight())
	for _, tt := range []struct{ peers, growth int64 }{{1, 7}, {13, 1}} {
		for sender := range tt.peers {
			q.peers.Add(uint64(sender), 0, time.Unix(1000, 0))
		}
		require.EqualValues(t, 4+tt.growth, q.maxInFlight(), "%d processes", tt.peers)
	}
	q.estimates = make([]statedlimit.Estimate, 1)
	require.EqualValues(t, 18, q.maxInFlight())
	q.account.InitialConcurrency = 2
	require.EqualValues(t, 16, q.maxInFlight())
}

// The latest claim decides whether a request waits. A dry run is no claim.
func TestSlowStart_remembersThatAClaimWasDenied(t *testing.T) {
	q := modelAt(0)
	claim := func(n int, dryRun, denied bool) {
		for range n {
			var d throttle.Decision
			q.claim(&d, 1, dryRun, time.Unix(1000, 0))
		}
		require.Equal(t, denied, q.slowStart.Denied)
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
		"evidence": func(q *quota) { q.inference = &inference{window: learnedlimit.NewDeclaredWindow(1e6, time.Hour)} }, // not forgotten
		"a limit":  func(q *quota) { q.estimates = []statedlimit.Estimate{{Limit: 1e6, Remaining: 1e6}} },
		"a hold":   func(q *quota) { q.hold.LastSent = 1 },
		"a quota":  func(q *quota) { q.endpoint.hasQuotas.Store(true) },
	} {
		q := quotaAt(t, 0)
		limit(q)
		for i := range int64(concurrency.KnownAfter) {
			require.False(t, q.endpoint.unlimited.Load(), name)
			q.Observe(t.Context(), throttle.Claim{}, throttle.Decision{OK: true, Grant: q.inFlight.Add()}, throttle.Feedback{Now: time.Unix(1000, 0)})
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
			q := modelAt(0)
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

// Requests that no limit granted are in flight, too.
func TestQuota_cutsWhatIsInFlight(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct{ open, rate, most int64 }{ // rate: accepted in each of the last seconds
		"claims":    {50, 0, 25},
		"unlimited": {0, 3000, 30}, // 3,000 a second, 20 ms
	} {
		q := modelAt(0)
		q.inFlight.Open = tt.open
		q.inference, q.slow.Typical = new(inference), 20*time.Millisecond
		for i := range 6 {
			q.inference.accepted.Add(tt.rate, now.Add(time.Duration(i-6)*time.Second))
		}
		q.cutConcurrency(now)
		require.Equal(t, concurrency.Cut{Until: now.Add(20 * time.Millisecond), MaxInFlight: tt.most}, q.inference.cut, name)
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
		q := modelAt(0)
		q.inference = &inference{cut: concurrency.Cut{MaxInFlight: 4}}
		q.slowStart.Successes, q.inFlight.Open = tt.successes, tt.open
		_, ok := q.checkSlowStart(now)
		require.Equal(t, tt.ok, ok, "%+v", tt)
	}
}

// A cut grants no claim for a round trip, and then as many as its bound.
func TestQuota_waitsForACut(t *testing.T) {
	now := time.Unix(1000, 0)
	q := modelAt(0)
	q.inference, q.slowStart.Successes, q.inFlight.Open = new(inference), concurrency.KnownAfter, 40
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
