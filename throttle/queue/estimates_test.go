package queue

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// An estimateLimiter rejects all claims until an instant, each with the same wait. Between
// estimateStart and estimateEnd the rejections are estimates.
type estimateLimiter struct {
	until, estimateStart, estimateEnd time.Time
	wait                              time.Duration
}

func (l *estimateLimiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	if !c.Now.Before(l.until) {
		return throttle.Decision{OK: true, Policy: "estimate", At: c.Now}, nil
	}
	estimated := !c.Now.Before(l.estimateStart) && c.Now.Before(l.estimateEnd)
	return throttle.Decision{Policy: "estimate", At: c.Now, Wait: l.wait, ServerImposed: estimated, Estimated: estimated}, nil
}
func (*estimateLimiter) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {
}

// Traits implements throttle.Limiter.
func (*estimateLimiter) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
}

// TestQueue_maxServerWaitOfEachWaiter lets waiters with different limits wait for an estimate.
// Each leaves when its own limit is reached, whether or not it is the head, and the one without
// a limit is granted.
func TestQueue_maxServerWaitOfEachWaiter(t *testing.T) {
	for name, tt := range map[string]struct {
		maxServerWait []time.Duration // of the waiters, in the order of their arrival
		from, to      time.Duration   // when the rejections are estimates
		maxWait       time.Duration
		want          []time.Duration // when each waiter leaves; from 10 s on with a grant
	}{
		"all limited":            {[]time.Duration{2500e6, 4500e6, 3500e6}, 0, 10e9, 0, []time.Duration{2500e6, 4500e6, 3500e6}},
		"none limited":           {[]time.Duration{0, 0, 0}, 0, 10e9, 0, []time.Duration{10e9, 10e9, 10e9}},
		"the first is unlimited": {[]time.Duration{0, 1500e6, 2500e6}, 0, 10e9, 0, []time.Duration{10e9, 1500e6, 2500e6}},
		"the last is unlimited":  {[]time.Duration{1500e6, 2500e6, 0}, 0, 10e9, 0, []time.Duration{1500e6, 2500e6, 10e9}},
		"the estimate begins":    {[]time.Duration{2500e6, 4500e6, 3500e6, 0}, 1500e6, 10e9, 0, []time.Duration{2500e6, 4500e6, 3500e6, 10e9}},
		"the estimate is late":   {[]time.Duration{1500e6, 0, 5500e6, 0}, 4500e6, 10e9, 0, []time.Duration{5e9, 10e9, 5500e6, 10e9}},
		"the estimate ends":      {[]time.Duration{2500e6, 3500e6, 0}, 0, 2e9, 0, []time.Duration{10e9, 10e9, 10e9}},
		"MaxWait remains":        {[]time.Duration{2500e6, 3500e6, 0}, 0, 2e9, 4500e6, []time.Duration{4e9, 4e9, 4e9}}, // the next claim would be too late
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				q := &Queue{MaxWait: tt.maxWait}
				l := &estimateLimiter{start.Add(10 * time.Second), start.Add(tt.from), start.Add(tt.to), time.Second}
				got := make([]time.Duration, len(tt.want))
				var wg sync.WaitGroup
				for i, limit := range tt.maxServerWait {
					wg.Go(func() {
						tk := ticket(l)
						tk.MaxServerWait = limit
						err := q.Wait(t.Context(), tk)
						got[i] = time.Since(start)
						if got[i] >= 10*time.Second {
							got[i] = got[i].Truncate(time.Second) // when the head leaves, the next one asks immediately, and then every second
							assert.NoError(t, err)
							return
						}
						var rejected *throttle.RejectedError
						if assert.ErrorAs(t, err, &rejected) {
							assert.Equal(t, "estimate", rejected.Decision.Policy)
							assert.LessOrEqual(t, rejected.Decision.Wait, time.Second)
							assert.Equal(t, got[i] < tt.to, rejected.Decision.Estimated)
						}
					})
					synctest.Wait()
				}
				wg.Wait()
				require.Equal(t, tt.want, got)
				requireEmpty(t, q)
			})
		})
	}
}

// TestQueue_maxWaitAfterAnEstimate lets a ticket wait behind one that arrived later. When the
// estimate has ended, MaxWait still ends its wait.
func TestQueue_maxWaitAfterAnEstimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		q, d := &Queue{MaxWait: 4500 * time.Millisecond}, newEventLog()
		l := &estimateLimiter{until: start.Add(time.Minute), estimateEnd: start.Add(time.Second)}
		var wg sync.WaitGroup
		wg.Go(func() {
			tk := ticket(l)
			tk.MaxServerWait = 2500 * time.Millisecond
			assert.ErrorIs(t, q.Wait(t.Context(), tk), throttle.ErrRejected)
			d.record("first")
		})
		time.Sleep(500 * time.Millisecond)
		wg.Go(func() {
			tk := ticket(l)
			tk.Priority = 5
			assert.ErrorIs(t, q.Wait(t.Context(), tk), throttle.ErrRejected)
			d.record("urgent")
		})
		wg.Wait()
		require.Equal(t, map[string][]time.Duration{"first": {4500 * time.Millisecond}, "urgent": {5 * time.Second}}, d.times)
		requireEmpty(t, q)
	})
}

// TestQueue_highPriorityMovesItsClassForward lets two classes wait for the same limit. The class
// that arrived later goes first once a ticket of higher priority joins it.
func TestQueue_highPriorityMovesItsClassForward(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := &Queue{Aging: time.Minute}, bucket(time.Second, 1), newEventLog()
		require.NoError(t, q.Wait(t.Context(), ticket(l)))
		var wg sync.WaitGroup
		join := func(name string, tk *Ticket, priority int32) {
			tk.Priority = priority
			wg.Go(func() {
				if assert.NoError(t, q.Wait(t.Context(), tk)) {
					d.record(name)
				}
			})
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		join("both", ticket(l, throttle.AllowAll), 0)
		join("both again", ticket(l, throttle.AllowAll), 0)
		join("one", ticket(l), 0)
		join("one, urgent", ticket(l), 5)
		wg.Wait()
		require.Equal(t, []string{"one, urgent", "both", "both again", "one"}, d.order)
		requireEmpty(t, q)
	})
}

// TestQueue_maxWaitDuringASlowCall lets a limiter take longer for its decision than MaxWait,
// while other tickets use the Queue.
func TestQueue_maxWaitDuringASlowCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, d := &Queue{MaxWait: time.Second}, newEventLog()
		slow := &remoteLimiter{Limiter: bucket(time.Hour, 1), delay: 3 * time.Second}
		held := &holdLimiter{until: time.Now().Add(time.Minute)}
		var wg sync.WaitGroup
		wg.Go(func() {
			assert.NoError(t, q.Wait(t.Context(), ticket(slow)), "a decision that was made is used")
			d.record("slow")
		})
		synctest.Wait()
		for range 4 {
			require.ErrorIs(t, q.Wait(t.Context(), ticket(held)), throttle.ErrRejected)
			time.Sleep(500 * time.Millisecond)
		}
		wg.Wait()
		require.Equal(t, 3*time.Second, d.last("slow"))
		requireEmpty(t, q)
	})
}
