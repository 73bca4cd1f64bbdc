package queue

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A testLimiter grants one claim each second. It says that it is a test if tests. It records who asked by the cost.
type testLimiter struct {
	mu    sync.Mutex
	tests bool
	skip  int // claims that are rejected, although a second is over
	next  time.Time
	asked []int64
}

func (l *testLimiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if wait := l.next.Sub(c.Now); wait > 0 {
		return throttle.Decision{At: c.Now, Wait: wait, Test: l.tests}, nil
	}
	l.asked = append(l.asked, c.Cost)
	if l.skip--; l.skip >= 0 {
		return throttle.Decision{At: c.Now, Wait: time.Millisecond}, nil
	}
	l.next = c.Now.Add(time.Second)
	return throttle.Decision{OK: true, At: c.Now}, nil
}
func (*testLimiter) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (*testLimiter) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
}

// If what a limit grants next is a test, of the waiters that were sent least often and have time the newest is asked, and the
// first one if that is rejected. If it is not a test, they are granted in the order of their arrival.
func TestQueue_asksTheNewestForATest(t *testing.T) {
	const first, second, newest, retry, late, other, twice = 2, 3, 4, 5, 6, 7, 8
	for name, tt := range map[string]struct {
		tests  bool
		skip   int
		tenant string // of the newest
		want   []int64
	}{
		"tests":                       {true, 0, "", []int64{newest, second, first, retry, twice}},
		"not tests":                   {false, 0, "", []int64{first, second, newest, twice, retry}},
		"a rejected one":              {true, 1, "", []int64{newest, first, newest, second, retry, twice}},
		"the newest is of another":    {true, 0, "x", []int64{newest, second, first, retry, twice}},
		"another one, which rejected": {true, 1, "x", []int64{newest, first, newest, second, retry, twice}},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, q := &testLimiter{tests: tt.tests}, new(Queue)
			full := &testLimiter{next: time.Now().Add(time.Hour)}
			wait := func(ctx context.Context, tk *Ticket) {
				go func() { _ = q.Wait(ctx, tk) }()
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
			of := func(cost int64) *Ticket {
				tk := new(Ticket)
				tk.Add(throttle.Demand{Limiter: l, Cost: cost})
				return tk
			}
			blocked := func() *Ticket {
				tk := ticket(full)
				tk.Add(of(other).Demands[0])
				return tk
			}
			canceled, leave := context.WithCancel(t.Context())
			wait(canceled, blocked())
			require.NoError(t, q.Wait(t.Context(), of(first)))
			wait(t.Context(), of(first))
			wait(t.Context(), of(second))
			tk := of(newest)
			tk.Tenant = tt.tenant
			wait(t.Context(), tk)
			for _, tt := range []struct{ cost, sent int64 }{{twice, 2}, {retry, 1}} {
				again := ticket(bucket(time.Second, 2))
				for range tt.sent {
					require.NoError(t, q.Wait(t.Context(), again))
					q.Report(t.Context(), again, throttle.Feedback{Outcome: throttle.Throttled})
				}
				again.Demands[0] = of(tt.cost).Demands[0]
				wait(t.Context(), again)
			}
			wait(canceled, blocked()) // newer, but its class waits at another limit
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
			defer cancel()
			tk = of(late)
			tk.HighLatency = time.Second
			wait(ctx, tk)
			l.mu.Lock()
			l.asked, l.skip = nil, tt.skip
			l.mu.Unlock()
			time.Sleep(10 * time.Second)
			leave()
			synctest.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			require.Equal(t, tt.want, l.asked, name)
			requireEmpty(t, q)
		})
	}
}
