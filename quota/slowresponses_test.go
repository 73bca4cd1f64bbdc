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
