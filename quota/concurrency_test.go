package quota

import (
	"context"
	"math/rand/v2"
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
// headers how many are idle.
type workers struct {
	count, busy, peak, rejected int
	takes                       func() time.Duration
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
	resp := answer(200, "Concurrency-Limit", strconv.Itoa(s.count), "Concurrency-Remaining", strconv.Itoa(s.count-s.busy))
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
				ticket.Demands = append(ticket.Demands[:0], tr.Demand(req))
				if !assertNoError(t, w.Wait(ctx, &ticket)) {
					return
				}
				turns.Sleep(ctx, rtt/2)
				resp := s.serve(ctx)
				turns.Sleep(ctx, rtt/2)
				ok = resp.StatusCode == 200
				w.Report(ctx, &ticket, tr.Feedback(req, ticket.Demands[0], resp, nil, time.Now(), nil))
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

// Units come back when responses end: as many requests are in flight as there are workers, and no more. Only a server that
// names its limit so is understood: it was inferred from other headers, too, which no world of bench/regret needed.
func TestTracker_learnsConcurrencyLimits(t *testing.T) {
	for _, rtt := range []time.Duration{2 * time.Millisecond, 20 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			slow := false
			s := &workers{count: 10, takes: func() time.Duration {
				if slow {
					return time.Second
				}
				return 100 * time.Millisecond
			}}
			tr := seeded(1)
			first := work(t, tr, s, 600, 30, rtt)
			cold := s.rejected
			second := work(t, tr, s, 300, 30, rtt)
			t.Logf("%v away: %v and %v, %d and %d rejected, peak %d", rtt, first, second, cold, s.rejected-cold, s.peak)
			slow = true
			third := work(t, tr, s, 100, 30, rtt)
			t.Logf("%v away, ten times as slow: %v, %d rejected", rtt, third, s.rejected-cold)
			require.LessOrEqual(t, cold, 30, "as many as workers")
			require.LessOrEqual(t, s.rejected-cold, 2, "once the limit is known, also if responses take longer")
			ideal := 30 * (100*time.Millisecond + rtt)
			require.Less(t, second, ideal*3/2)
			require.Less(t, third, 15*time.Second)
		})
	}
}

// All places are used of a limit of any size that the server names so: also of one, whose responses all state that none is
// left, because the request of the response had it.
func TestTracker_usesAllOfAConcurrencyLimit(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	for range 40 {
		count, callers := 1+random.IntN(30)>>random.IntN(4), 1+random.IntN(40)
		rtt, takes := time.Duration(2+random.IntN(40))*time.Millisecond, time.Duration(50+random.IntN(500))*time.Millisecond
		synctest.Test(t, func(t *testing.T) {
			s := &workers{count: count, takes: func() time.Duration { return takes/2 + time.Duration(random.Int64N(int64(takes))) }}
			const rounds = 20
			elapsed, served := work(t, seeded(1), s, rounds*min(count, callers), callers, rtt), min(count, callers)
			ideal := rounds * (rtt + takes)
			require.LessOrEqual(t, elapsed, ideal*3/2, "limit %d, %d callers, %v away, %v each", count, callers, rtt, takes)
			require.LessOrEqual(t, s.rejected, callers, "limit %d, %d callers, %v away, %v each", count, callers, rtt, takes)
			require.Equal(t, served, s.peak)
		})
	}
}

// Other clients have all the units, and then give some back.
func TestTracker_probesFullConcurrencyLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		ask(t, &tr, users, answer(429, "Concurrency-Limit", "5", "Concurrency-Remaining", "0"))
		require.False(t, mayAsk(t, &tr, users))
		time.Sleep(time.Second) // concurrencyProbeAfter
		require.True(t, mayAsk(t, &tr, users))
		ask(t, &tr, users, answer(200, "Concurrency-Limit", "5", "Concurrency-Remaining", "3"))
		b := tr.Demand(request(t, users)).Limiter
		for i := range 5 {
			d, err := b.Reserve(t.Context(), throttle.Claim{})
			require.NoError(t, err)
			require.Equal(t, i < 4, d.OK, "three, and the unit of the request whose response states that")
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
		b.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{State: throttle.Unused})
		require.True(t, mayAsk(t, &tr, users))
	})
}
