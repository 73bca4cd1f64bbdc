package quota

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/turns"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// workers is a server with count workers, each of which takes some time for a request. It states in
// headers that begin with prefix how many are idle.
type workers struct {
	count, busy, peak, rejected int
	takes                       func() time.Duration
	prefix                      string
	mu                          sync.Mutex
}

func (s *workers) serve(ctx context.Context) *http.Response {
	s.mu.Lock()
	ok := s.busy < s.count
	if ok {
		s.busy++
		s.peak = max(s.peak, s.busy)
	} else {
		s.rejected++
	}
	s.mu.Unlock()
	if ok {
		turns.Sleep(ctx, s.takes())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	resp := answer(200, s.prefix+"-Limit", strconv.Itoa(s.count), s.prefix+"-Remaining", strconv.Itoa(s.count-s.busy))
	if ok {
		s.busy--
	} else {
		resp.StatusCode = 429
	}
	return resp
}

// work sends n requests from c goroutines to s, rtt away, and returns how long that took.
func work(t *testing.T, tr *Tracker, s *workers, n, c int, rtt time.Duration) time.Duration {
	w, start := &queue.Queue{}, time.Now()
	calls := make(chan int, n)
	for i := range n {
		calls <- i
	}
	close(calls)
	turns.Run(t.Context(), 1, c, func(ctx context.Context, _ int) {
		for range calls {
			req := request(t, users)
			var ticket queue.Ticket
			for ok := false; !ok; {
				ticket.Demands[0] = tr.Demand(req)
				if !assertNoError(t, w.Wait(ctx, &ticket)) {
					return
				}
				turns.Sleep(ctx, rtt/2)
				resp := s.serve(ctx)
				turns.Sleep(ctx, rtt/2)
				ok = resp.StatusCode == 200
				w.Observe(ctx, &ticket, tr.Feedback(req, ticket.Demands[0], resp, nil, time.Now(), nil))
			}
		}
	})
	return time.Since(start)
}

func assertNoError(t *testing.T, err error) bool {
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// Units come back when responses end. Whether the name of the header states that or not, as many
// requests are in flight as there are workers, and no more.
func TestTracker_learnsConcurrencyLimits(t *testing.T) {
	for _, prefix := range []string{"Concurrency", "X-RateLimit"} {
		for _, rtt := range []time.Duration{2 * time.Millisecond, 20 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				slow := false
				s := &workers{count: 10, prefix: prefix, takes: func() time.Duration {
					if slow {
						return time.Second
					}
					return 100 * time.Millisecond
				}}
				tr := seeded(1)
				first := work(t, tr, s, 600, 30, rtt)
				cold := s.rejected
				second := work(t, tr, s, 300, 30, rtt)
				t.Logf("%s, %v away: %v and %v, %d and %d rejected, peak %d", prefix, rtt, first, second, cold, s.rejected-cold, s.peak)
				slow = true
				third := work(t, tr, s, 100, 30, rtt)
				t.Logf("%s, %v away, ten times as slow: %v, %d rejected", prefix, rtt, third, s.rejected-cold)
				require.LessOrEqual(t, cold, 10, prefix)
				require.LessOrEqual(t, s.rejected-cold, 2, "once the limit is known, also if responses take longer")
				ideal := 30 * (100*time.Millisecond + rtt)
				require.Less(t, second, ideal*3/2, prefix)
				require.Less(t, third, 15*time.Second, prefix)
			})
		}
	}
}

func TestConcurrencyTest_distinguishesWindows(t *testing.T) {
	var s concurrencyTest
	for window := range int64(5) {
		for k := range int64(100) { // windows, up to 30 at a time
			require.False(t, s.update(100, 99-k, min(29, 99-k)-(k+window)%7))
		}
	}
	s = concurrencyTest{}
	for k := range int64(40) { // workers, up to ten at a time
		s.update(100, 99-k%10, k%10)
	}
	require.True(t, s.confirmed)
	for range maxMisfits {
		require.True(t, s.update(100, 20, 3), "other clients may have some")
	}
	require.False(t, s.update(100, 20, 3))
	s.confirmed = true
	s.rejected()
	for k := range int64(40) {
		require.False(t, s.update(100, 99-k%10, k%10), "a request was rejected")
	}
}

// Other clients have all the units, and then give some back.
func TestTracker_probesFullConcurrencyLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		ask(t, &tr, users, answer(200, "Concurrency-Limit", "5", "Concurrency-Remaining", "0"))
		require.False(t, mayAsk(t, &tr, users))
		time.Sleep(time.Second) // concurrencyProbeAfter
		require.True(t, mayAsk(t, &tr, users))
		ask(t, &tr, users, answer(200, "Concurrency-Limit", "5", "Concurrency-Remaining", "3"))
		b := tr.Demand(request(t, users)).Limiter
		for i := range 4 {
			d, err := b.Reserve(t.Context(), throttle.Claim{})
			require.NoError(t, err)
			require.Equal(t, i < 3, d.OK)
		}
	})
}

// A server without a concurrency limit may state the largest number.
func TestTracker_unlimitedConcurrencyHoldsNoRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		b := tr.Demand(request(t, users)).Limiter
		d, err := b.Reserve(t.Context(), throttle.Claim{}) // is in flight meanwhile
		require.NoError(t, err)
		const unlimited = "9223372036854775807"
		ask(t, &tr, users, answer(200, "Concurrency-Limit", unlimited, "Concurrency-Remaining", unlimited))
		require.True(t, mayAsk(t, &tr, users))
		b.Cancel(t.Context(), throttle.Claim{}, d)
		require.True(t, mayAsk(t, &tr, users))
	})
}

// What is idle and what is in flight make up the limit, or differ from it by one, or by a third of
// the requests in flight, which may not have arrived.
func TestConcurrencyTest_toleratesRequestsThatHaveNotArrived(t *testing.T) {
	for _, tt := range []struct {
		left, open int64
		fits       int64
	}{
		{6, 3, 1}, {5, 3, 0}, // of 10
		{7, 3, 1}, {8, 3, 1}, {9, 3, 1}, {10, 3, 0},
		{9, 0, 1}, {8, 0, 0}, {11, 0, 1}, {12, 0, 0},
		{8, 6, 0}, {7, 6, 1},
	} {
		var c concurrencyTest
		require.False(t, c.update(10, tt.left, tt.open))
		require.Equal(t, tt.fits, c.fits, "%d left, %d in flight", tt.left, tt.open)
		require.EqualValues(t, 1-tt.fits, c.misfits, "%d left, %d in flight", tt.left, tt.open)
	}
}

// A limit counts requests in flight if its sum was constant for eight responses and one for each request
// in flight, of which the number has varied by three. Nine other sums in a row end that.
func TestConcurrencyTest_confirms(t *testing.T) {
	fits := func(opens ...int64) (c concurrencyTest) {
		for _, open := range opens {
			c.update(10, 10-open, open)
		}
		return c
	}
	for name, tt := range map[string]struct {
		c         concurrencyTest
		confirmed bool
	}{
		"12 fits, up to 4":           {fits(1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4), true},
		"11 fits, up to 4":           {fits(1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3), false},
		"a range of 2":               {fits(1, 2, 3, 3, 1, 2, 3, 3, 1, 2, 3, 1, 2, 3), false},
		"lower later":                {fits(4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1), true},
		"none in flight at first":    {fits(3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 0), true},
		"never fewer than two below": {fits(5, 4, 3, 5, 4, 3, 5, 4, 3, 5, 4, 3, 5), false},
	} {
		require.Equal(t, tt.confirmed, tt.c.confirmed, name)
	}
	c := fits(1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4)
	require.EqualValues(t, 12, c.fits)
	for i := range 8 {
		require.True(t, c.update(10, 0, 1), i)
		require.EqualValues(t, []int64{6, 3, 1, 0, 0, 0, 0, 0}[i], c.fits)
	}
	one := c
	require.True(t, one.update(10, 9, 1), "one that fits begins the count anew")
	require.Zero(t, one.misfits)
	require.EqualValues(t, []int64{1, 1}, []int64{one.minOpen, one.maxOpen})
	require.False(t, c.update(10, 0, 1))
	require.False(t, c.confirmed)
}

// A rejection that such a limit would not have caused excludes it, unless the server names it so.
func TestConcurrencyTest_rejectionExcludesIt(t *testing.T) {
	for name, tt := range map[string]struct{ before, after concurrencyTest }{
		"not confirmed": {concurrencyTest{fits: 3}, concurrencyTest{fits: 3}},
		"confirmed":     {concurrencyTest{confirmed: true, fits: 30}, concurrencyTest{excluded: true}},
		"named":         {concurrencyTest{confirmed: true, named: true}, concurrencyTest{confirmed: true, named: true}},
	} {
		c := tt.before
		c.rejected()
		require.Equal(t, tt.after, c, name)
	}
	c := concurrencyTest{excluded: true}
	for range 30 {
		require.False(t, c.update(10, 9, 1))
	}
	require.Zero(t, c.fits)
	c = newEstimate(throttle.RemoteLimit{Unit: unitConcurrent}, false).concurrency
	require.True(t, c.update(10, 0, 0), "named: whatever the sum is")
	require.Equal(t, concurrencyTest{}, newEstimate(throttle.RemoteLimit{Unit: "requests"}, false).concurrency)
}

// If other clients have all units, one request is sent a second after the latest response.
func TestEstimate_probesAConcurrencyLimitOfOthers(t *testing.T) {
	now := time.Unix(1000, 0)
	e := estimate{concurrency: concurrencyTest{confirmed: true, named: true}}
	var f inFlight
	require.True(t, e.updateConcurrency(throttle.RemoteLimit{Limit: 10, Remaining: 0, Unit: unitConcurrent}, now, &f))
	units, wait := e.freeConcurrency(now, &f, pacing{})
	require.Zero(t, units)
	require.Equal(t, time.Second, wait)
	units, wait = e.freeConcurrency(now.Add(time.Second), &f, pacing{})
	require.EqualValues(t, 1, units)
	require.Zero(t, wait)
	f.add()
	units, wait = e.freeConcurrency(now.Add(time.Second), &f, pacing{})
	require.Zero(t, units, "it is in flight")
	require.Zero(t, wait, "until its response arrives")
	require.True(t, e.updateConcurrency(throttle.RemoteLimit{Limit: 10, Remaining: 3, Unit: unitConcurrent}, now, &f))
	require.Equal(t, []int64{10, 4}, []int64{e.limit, e.remaining}, "with the one in flight")
	units, _ = e.freeConcurrency(now, &f, pacing{})
	require.EqualValues(t, 3, units)
	require.True(t, e.updateConcurrency(throttle.RemoteLimit{Limit: 10, Remaining: 12, Unit: unitConcurrent}, now, &f))
	require.Equal(t, []int64{12, 10}, []int64{e.limit, e.remaining}, "at most the limit")
	require.True(t, e.updateConcurrency(throttle.RemoteLimit{Remaining: 5, Unit: unitConcurrent}, now, &f))
	require.Equal(t, []int64{5, 6}, []int64{e.limit, e.remaining}, "without a limit")
	require.True(t, e.updateConcurrency(throttle.RemoteLimit{Limit: 1, Remaining: 1, Unit: unitConcurrent}, now, &f))
	require.Equal(t, []int64{1, 1}, []int64{e.limit, e.remaining}, "a limit of one")
	units, wait = e.freeConcurrency(now, &inFlight{}, pacing{})
	require.EqualValues(t, 1, units)
	require.Zero(t, wait)
	e.remaining = 0
	units, wait = e.freeConcurrency(e.reset.Add(-1), &inFlight{}, pacing{})
	require.Zero(t, units)
	require.EqualValues(t, 1, wait)
}
