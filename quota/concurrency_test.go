package quota

import (
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

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

func (s *workers) serve() *http.Response {
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
		time.Sleep(s.takes())
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
	var wg sync.WaitGroup
	for range c {
		wg.Go(func() {
			for range calls {
				req := request(t, users)
				var ticket queue.Ticket
				for ok := false; !ok; {
					ticket.Demands[0] = tr.Demand(req)
					if !assertNoError(t, w.Wait(t.Context(), &ticket)) {
						return
					}
					time.Sleep(rtt / 2)
					resp := s.serve()
					time.Sleep(rtt / 2)
					ok = resp.StatusCode == 200
					w.Observe(t.Context(), &ticket, tr.Feedback(req, ticket.Demands[0], resp, nil, time.Now(), nil))
				}
			}
		})
	}
	wg.Wait()
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
		time.Sleep(concurrencyProbeAfter)
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
