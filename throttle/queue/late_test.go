package queue

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// Callers ask for twice and five times of what a limit admits, and their work takes random times. Of
// the units whose work takes less than the deadline, at least 95 % end in time with a HighLatency, and
// most do not without one. The limits state when they grant, or are estimates, or say nothing.
func TestQueue_unitsEndAsWorkInTime(t *testing.T) {
	const deadline, rate, length = time.Second, 10, time.Minute
	for name, newLimit := range map[string]func() throttle.Limiter{
		"stated":    func() throttle.Limiter { return bucket(time.Second/rate, 1) },
		"estimated": func() throttle.Limiter { return &estimatedRate{Limiter: bucket(time.Second/rate, 1)} },
		"unknown": func() throttle.Limiter {
			return &estimatedRate{Limiter: bucket(time.Second/rate, 1), unknown: true}
		},
	} {
		for _, demand := range []int{2 * rate, 5 * rate} {
			for _, median := range []float64{.1, .6} {
				if testing.Short() && (demand > 2*rate) != (median > .1) {
					continue
				}
				latency := func(z float64) time.Duration {
					return time.Duration(median * math.Exp(.5*z) * float64(time.Second))
				}
				share := func(high time.Duration) float64 {
					possible, inTime := 0, 0
					synctest.Test(t, func(t *testing.T) {
						r := rand.New(rand.NewPCG(1, uint64(demand)))
						var mu sync.Mutex
						var wg sync.WaitGroup
						q, l := new(Queue), newLimit()
						if e, ok := l.(*estimatedRate); ok && e.unknown {
							go e.wake(t.Context(), q, time.Second/rate)
						}
						for range int(length.Seconds()) * demand {
							time.Sleep(time.Second / time.Duration(demand))
							took := latency(r.NormFloat64())
							wg.Go(func() {
								ctx, cancel := context.WithTimeout(t.Context(), deadline)
								defer cancel()
								tk := ticket(l)
								tk.Latency, tk.HighLatency = latency(-.67), high
								end := time.Now().Add(deadline)
								if q.Wait(ctx, tk) != nil || took >= deadline {
									return
								}
								mu.Lock()
								defer mu.Unlock()
								possible++
								if took < time.Until(end) {
									inTime++
								}
							})
						}
						wg.Wait()
					})
					return float64(inTime) / float64(possible)
				}
				with, without := share(latency(1.8)), share(0)
				t.Logf("%s, %d a second, median %v s: %.3f, without HighLatency %.3f", name, demand, median, with, without)
				require.Greater(t, with, .95, name)
				require.Less(t, without, .7, name)
			}
		}
	}
}

// An estimatedRate is a limiter whose rejections are estimates, or do not state a wait.
type estimatedRate struct {
	throttle.Limiter
	unknown bool
}

func (e *estimatedRate) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	d, err := e.Limiter.Reserve(ctx, c)
	d.Limit, d.Per = 0, 0
	if !d.OK {
		d.ServerImposed, d.Estimated = true, true
		if e.unknown {
			d.Wait = 0
		}
	}
	return d, err
}

// Traits implements throttle.Limiter.
func (l *estimatedRate) Traits() throttle.Traits {
	t := l.Limiter.Traits()
	t.NonBlocking = true
	return t
}

// wake calls q.Wake at intervals.
func (*estimatedRate) wake(ctx context.Context, q *Queue, interval time.Duration) {
	for ctx.Err() == nil {
		select {
		case <-time.After(interval):
			q.Wake()
		case <-ctx.Done():
		}
	}
}

// Waiters that are late are granted in the order of their arrival if there is time for all.
func TestQueue_keepsTheOrderIfAllCanBeServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, l, d := new(Queue), bucket(time.Second, 1), newEventLog()
		require.NoError(t, q.Wait(t.Context(), ticket(l)))
		var wg sync.WaitGroup
		var want []string
		for i := range 10 {
			want = append(want, fmt.Sprint(i))
			wg.Go(func() {
				ctx, tk := ticketWithin(t, l, 30*time.Second, time.Second)
				tk.HighLatency = 29 * time.Second
				if assert.NoError(t, q.Wait(ctx, tk)) {
					d.record(fmt.Sprint(i))
				}
			})
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		require.Equal(t, want, d.order)
		requireEmpty(t, q)
	})
}

// A hold ends after which all can be granted. Those that are late are granted, too.
func TestQueue_lateWaitersAreGrantedAfterAHold(t *testing.T) {
	localAndRemote(t, func(t *testing.T, wrap func(throttle.Limiter) throttle.Limiter) {
		q, start := new(Queue), time.Now()
		l := wrap(&holdLimiter{until: start.Add(5 * time.Second), serverImposed: true})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				ctx, tk := ticketWithin(t, l, 10*time.Second, time.Second)
				tk.HighLatency = 9 * time.Second
				assert.NoError(t, q.Wait(ctx, tk))
				assert.Equal(t, 5*time.Second, time.Since(start))
			})
			synctest.Wait()
		}
		wg.Wait()
		requireEmpty(t, q)
	})
}

// When units are scarce, the late waiters of a class go behind the others, those with the most time
// left first. A ticket of another priority restores the order of arrival.
func TestQueue_lateWaitersGoBehind(t *testing.T) {
	for _, mixed := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q, s, d := new(Queue), &slotLimiter{}, newEventLog()
			var wg sync.WaitGroup
			join := func(name string, priority int32, deadline time.Duration) {
				wg.Go(func() {
					ctx, tk := ticketWithin(t, s, deadline, time.Second)
					tk.HighLatency, tk.Priority = 5*time.Second, priority
					if q.Wait(ctx, tk) == nil {
						d.record(name)
					}
				})
				synctest.Wait()
			}
			join("first", 0, 10*time.Second)
			q.mu.Lock()
			for _, lq := range q.limitQueues {
				lq.grantInterval = int64(5 * time.Second)
			}
			q.mu.Unlock()
			time.Sleep(time.Second)
			join("second", 0, 10*time.Second)
			time.Sleep(6 * time.Second)
			join("third", 0, 10*time.Second) // 3, 4 and 10 s are left
			q.Wake()
			if mixed {
				join("urgent", 1, 10*time.Second)
			}
			for range 4 {
				s.end()
				q.Wake()
				synctest.Wait()
			}
			wg.Wait()
			want := []string{"third", "second", "first"}
			if mixed {
				want = []string{"urgent", "first", "second", "third"}
			}
			require.Equal(t, want, d.order)
			requireEmpty(t, q)
		})
	}
}
