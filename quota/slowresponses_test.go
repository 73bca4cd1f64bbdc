package quota

import (
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A stream is an open loop of n requests, one in every interval.
type stream struct {
	every time.Duration
	n     int
	takes func(at time.Duration) (time.Duration, error) // for a request sent at that time
	open  int
	peak  map[int]int // maximum in flight in each second
	mu    sync.Mutex
}

// run sends the requests and returns the time until the last response.
func (s *stream) run(t *testing.T, tr *Tracker) time.Duration {
	w, start := &queue.Queue{}, time.Now()
	s.peak = map[int]int{}
	var wg sync.WaitGroup
	for range s.n {
		wg.Go(func() {
			req := request(t, users)
			var ticket queue.Ticket
			ticket.Demands[0] = tr.Demand(req)
			assertNoError(t, w.Wait(t.Context(), &ticket))
			s.count(1, time.Since(start))
			took, err := s.takes(time.Since(start))
			time.Sleep(took)
			s.count(-1, time.Since(start))
			var resp *http.Response
			if err == nil {
				resp = answer(200, "X-RateLimit-Limit", "100000", "X-RateLimit-Remaining", "99000", "X-RateLimit-Reset", "600")
			}
			w.Observe(t.Context(), &ticket, tr.Feedback(req, ticket.Demands[0], resp, err, time.Now(), nil))
		})
		time.Sleep(s.every)
	}
	wg.Wait()
	return time.Since(start)
}

func (s *stream) count(n int, at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open += n
	second := int(at / time.Second)
	s.peak[second] = max(s.peak[second], s.open)
}

var errClosed = errors.New("connection reset by peer")

// A server that stops responding, responds late, or closes connections gets no more requests at a
// time than before. When it is healthy again, requests do not wait.
func TestTracker_boundsRequestsToASlowServer(t *testing.T) {
	overloaded := func(at time.Duration) bool { return at >= 5*time.Second && at < 15*time.Second }
	const fast = 50 * time.Millisecond
	for name, takes := range map[string]func(at time.Duration) (time.Duration, error){
		"silence": func(at time.Duration) (time.Duration, error) {
			if overloaded(at) {
				return 16*time.Second - at, errClosed
			}
			return fast, nil
		},
		"tarpit": func(at time.Duration) (time.Duration, error) {
			if overloaded(at) {
				return 4 * time.Second, nil
			}
			return fast, nil
		},
		"closes connections late": func(at time.Duration) (time.Duration, error) {
			if overloaded(at) {
				return 2 * time.Second, errClosed
			}
			return fast, nil
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := seeded(1)
			s := &stream{every: 20 * time.Millisecond, n: 1500, takes: takes} // 50 a second, for 30 s
			took := s.run(t, tr)
			t.Logf("%s: %v, peaks %v", name, took, s.peak)
			for at := 7; at < 15; at++ {
				require.LessOrEqual(t, s.peak[at], 60, "%s: it would be 100 to 500", name)
			}
			require.Less(t, took, 35*time.Second, name)
			for at := 25; at < 30; at++ {
				require.LessOrEqual(t, s.peak[at], 5, "%s: it is healthy again", name)
			}
		})
	}
}

// Some routes are slow. Requests of other routes do not wait for that.
func TestTracker_slowRoutesDoNotLimitFastRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		s := &stream{every: 10 * time.Millisecond, n: 2000, takes: func(time.Duration) (time.Duration, error) {
			if n.Add(1)%10 == 0 {
				return 3 * time.Second, nil
			}
			return 50 * time.Millisecond, nil
		}}
		took := s.run(t, seeded(1))
		t.Logf("%v, peaks %v", took, s.peak)
		require.Less(t, took, 24*time.Second, "20 s, and 3 s for the last")
	})
}

// A response is late if it takes longer than four times the usual time and 100 ms.
func TestSlowResponses_lateIsRelativeToTheUsualTime(t *testing.T) {
	s := slowResponses{typical: 100 * time.Millisecond}
	require.False(t, s.isLate(500*time.Millisecond))
	require.True(t, s.isLate(500*time.Millisecond+1))
	s.typical = 0
	require.False(t, s.isLate(time.Hour), "the usual time is not known")
}

// One claim is watched at a time. When its response is overdue as another claim is granted, no more
// requests may be in flight, and that other one is watched.
func TestSlowResponses_watchesOneClaim(t *testing.T) {
	const ms = time.Millisecond
	now := time.Unix(1000, 0)
	s := slowResponses{typical: 100 * ms}
	s.granted(1, 1, 4, now)
	s.granted(2, 2, 4, now.Add(500*ms))
	require.Equal(t, slowResponses{watched: 1, sent: now, typical: 100 * ms}, s, "it is not late yet")
	late := now.Add(500*ms + 1)
	s.granted(3, 9, 4, late)
	require.Equal(t, slowResponses{watched: 3, sent: late, typical: 100 * ms, maxInFlight: 9, since: 2}, s)
	s.granted(4, 9, 4, late.Add(time.Second))
	require.Equal(t, slowResponses{watched: 3, sent: late, typical: 100 * ms, maxInFlight: 9, since: 2}, s, "it was granted after the bound was set")
}

// What the response to the watched claim changes. The bound was set at 8 when claim 10 was the latest.
func TestSlowResponses_theResponseToTheWatchedClaimDecides(t *testing.T) {
	const ms = time.Millisecond
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		watched     uint64
		took        time.Duration
		maxInFlight int64
		open        int64
		wantMax     int64
		wantSince   uint64
		typical     time.Duration
	}{
		"in time, no bound":             {11, 100 * ms, 0, 7, 0, 10, 100 * ms},
		"late, no bound":                {11, 900 * ms, 0, 7, 8, 20, 200 * ms},
		"late, no bound, few in flight": {11, 900 * ms, 0, 1, 4, 20, 200 * ms},
		"late, bounded":                 {11, 900 * ms, 8, 7, 8, 10, 200 * ms},
		"in time, sent before":          {10, 100 * ms, 8, 7, 8, 10, 100 * ms},
		"in time, sent after":           {11, 100 * ms, 8, 4, 16, 20, 100 * ms},
		"in time, little is used":       {11, 100 * ms, 8, 3, 0, 10, 100 * ms},
		"faster than usual":             {11, 20 * ms, 0, 7, 0, 10, 90 * ms},
	} {
		s := slowResponses{watched: tt.watched, sent: now, typical: 100 * ms, maxInFlight: tt.maxInFlight, since: 10}
		s.record(tt.watched, false, 20, tt.open, 4, now.Add(tt.took))
		require.Equal(t, slowResponses{sent: now, typical: tt.typical, maxInFlight: tt.wantMax, since: tt.wantSince}, s, name)
	}
	var s slowResponses
	s.granted(1, 1, 4, now)
	s.record(1, false, 1, 0, 4, now.Add(-time.Hour))
	require.EqualValues(t, 1, s.typical, "a clock that was set back")
	s.watched = 1
	s.record(1, false, 1, 0, 4, now.Add(9))
	require.EqualValues(t, 2, s.typical)
}

// The first response is the usual time.
func TestSlowResponses_firstResponse(t *testing.T) {
	now := time.Unix(1000, 0)
	var s slowResponses
	s.granted(1, 1, 4, now)
	s.record(1, false, 1, 0, 4, now.Add(time.Second))
	require.Equal(t, slowResponses{sent: now, typical: time.Second}, s)
}

// The bound holds as many requests as are in flight, at least the minimum, and is set once.
func TestSlowResponses_boundsWhatIsInFlight(t *testing.T) {
	var s slowResponses
	s.begin(7, 3, 4)
	require.Equal(t, slowResponses{maxInFlight: 4, since: 7}, s)
	s.begin(8, 9, 4)
	require.Equal(t, slowResponses{maxInFlight: 4, since: 7}, s)
	s = slowResponses{}
	s.begin(7, 9, 4)
	require.EqualValues(t, 9, s.maxInFlight)
}

// Slow responses bound the claims in flight of a quota. A claim that was cancelled is not watched any more.
func TestQuota_slowResponsesBoundItsClaims(t *testing.T) {
	q := quotaAt(t, 0)
	q.slowStart.successes = knownAfter
	for _, tt := range []struct {
		bound, open int64
		ok          bool
	}{{0, 1000, true}, {4, 3, true}, {4, 4, false}, {4, 5, false}} {
		var d throttle.Decision
		q.slow.maxInFlight, q.inFlight.Open = tt.bound, tt.open
		q.decide(&d, 1, false, time.Unix(1000, 0))
		require.Equal(t, tt.ok, d.OK, "%+v", tt)
	}
	q.slow.watched, q.inFlight = 25, inflight.Claims{Sent: 24}
	require.EqualValues(t, []uint64{25, 26}, []uint64{q.inFlight.Add(), q.inFlight.Add()})
	q.Cancel(t.Context(), throttle.Claim{}, throttle.Decision{OK: true, Grant: 26})
	require.EqualValues(t, 25, q.slow.watched)
	q.Cancel(t.Context(), throttle.Claim{}, throttle.Decision{OK: true, Grant: 25})
	require.Zero(t, q.slow.watched)
}

// Four failures among the latest eight responses begin slow responses with half of what is in flight. A
// failed claim is not watched any more.
func TestSlowResponses_failuresBeginThem(t *testing.T) {
	now := time.Unix(1000, 0)
	var s slowResponses
	s.granted(21, 9, 4, now)
	record := func(n uint64, failed bool) { s.record(n, failed, 30, 9, 4, now) }
	record(20, true)
	require.EqualValues(t, 21, s.watched)
	record(22, false)
	require.Equal(t, slowResponses{watched: 21, sent: now, recent: 0b10}, s, "another claim succeeded")
	record(23, true)
	record(24, true)
	require.Zero(t, s.maxInFlight)
	record(21, true)
	require.Equal(t, slowResponses{sent: now, maxInFlight: 4, since: 30}, s)
	for recent, want := range map[uint8]int64{0b0100_0101: 20, 0b1000_0101: 0, 0b11: 0} {
		s = slowResponses{recent: recent}
		s.record(25, true, 30, 40, 4, now)
		require.Equal(t, want, s.maxInFlight, "%b", recent)
	}
	s = slowResponses{recent: 0b111, maxInFlight: 30, since: 7}
	record(25, true)
	require.Equal(t, slowResponses{recent: 0b1111, maxInFlight: 30, since: 7}, s, "they have begun already")
	s = slowResponses{watched: 24, sent: now, recent: 1}
	s.record(24, false, 30, 9, 4, now.Add(time.Second))
	require.Equal(t, slowResponses{sent: now, recent: 0b10, typical: time.Second}, s)
}

// When a response is late, and how many requests are sent until then, follows from the usual time.
func TestSlowResponses_whenARequestIsLate(t *testing.T) {
	now := time.Unix(1000, 0)
	s := slowResponses{typical: 100 * time.Millisecond}
	require.Equal(t, now.Add(500*time.Millisecond+1), s.lateAt(now))
	require.True(t, s.isLate(s.lateAt(now).Sub(now)))
	require.EqualValues(t, 4, s.sentUntilLate(10))
	require.EqualValues(t, 3, s.sentUntilLate(9.9))
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
		q := quotaAt(t, 0)
		q.span = learnedlimit.AcceptedSpan{Since: now.Add(-time.Second), N: tt.accepted}
		inf := q.infer(learnedlimit.AcceptedSpan{}, now)
		inf.evidence.Add(tt.cause, now)
		q.observe(1, &throttle.Feedback{Cause: tt.cause, Outcome: tt.outcome}, now)
		require.Equal(t, tt.want, q.slow.recent != 0, name)
	}
	q := quotaAt(t, 0)
	q.observe(1, &throttle.Feedback{Cause: throttle.CauseForbidden}, now)
	require.Zero(t, q.slow.recent, "nothing is inferred")
}
