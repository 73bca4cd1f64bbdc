package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// A plannedCall is one call of a history, in time since its start.
type plannedCall struct {
	at       time.Duration
	deadline time.Duration // after at
	ticket   Ticket        // without demands
	costs    [2]int64      // of the two limits; negative: the call does not need it
}

// An outcome is how a call ended.
type outcome struct {
	ended time.Duration // since the start of the history
	err   error
}

// early reports whether p was rejected as soon as it was made.
func (o outcome) early(p plannedCall) bool { return o.err != nil && o.ended == p.at }

// replay makes the calls of a history on a new Queue, with limits that new returns. The deadline of
// the call with index patient is ignored.
func replay(t *testing.T, calls []plannedCall, newLimits func() [2]throttle.Limiter, patient int) []outcome {
	ended := make([]outcome, len(calls))
	synctest.Test(t, func(t *testing.T) {
		q, start, limits := new(Queue), time.Now(), newLimits()
		var wg sync.WaitGroup
		for i, p := range calls {
			wg.Go(func() {
				time.Sleep(p.at)
				tk := p.ticket
				for k, cost := range p.costs {
					if cost >= 0 {
						tk.Add(throttle.Demand{Limiter: limits[k], Cost: cost})
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), p.deadline)
				defer cancel()
				if i == patient {
					ctx = t.Context()
				}
				err := q.Wait(ctx, &tk)
				ended[i] = outcome{time.Since(start), err}
			})
		}
		wg.Wait()
	})
	return ended
}

// limitsForEarly are pairs of limits that state when they grant.
var limitsForEarly = map[string]func() [2]throttle.Limiter{
	"bucket": func() [2]throttle.Limiter {
		return [2]throttle.Limiter{bucket(100*time.Millisecond, 4), throttle.AllowAll}
	},
	"two buckets": func() [2]throttle.Limiter {
		return [2]throttle.Limiter{throttle.NewTokenBucket(throttle.Limit{Count: 7, Per: time.Second, Burst: 4}), bucket(50*time.Millisecond, 4)}
	},
	"per host and global": func() [2]throttle.Limiter {
		perHost := &keyed.Limiter{New: func(string) throttle.Limiter { return throttle.NewTokenBucket(throttle.PerSecond(20)) }}
		return [2]throttle.Limiter{perHost, throttle.NewTokenBucket(throttle.PerSecond(5))}
	},
	"window": func() [2]throttle.Limiter {
		return [2]throttle.Limiter{throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 8, Per: time.Second}), throttle.AllowAll}
	},
	"window and bucket": func() [2]throttle.Limiter {
		return [2]throttle.Limiter{throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 5, Per: 600 * time.Millisecond}), bucket(100*time.Millisecond, 4)}
	},
	"refilled in steps": func() [2]throttle.Limiter {
		return [2]throttle.Limiter{throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: throttle.Limit{Count: 3, Per: 250 * time.Millisecond, Burst: 4}}), throttle.AllowAll}
	},
	"sliding log": func() [2]throttle.Limiter {
		return [2]throttle.Limiter{throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: throttle.Limit{Count: 6, Per: 700 * time.Millisecond}}), throttle.AllowAll}
	},
	"sliding counter": func() [2]throttle.Limiter {
		return [2]throttle.Limiter{throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: throttle.Limit{Count: 8, Per: time.Second}}), throttle.AllowAll}
	},
	"leaky bucket": func() [2]throttle.Limiter {
		return [2]throttle.Limiter{throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: 10, Per: time.Second, Burst: 4}, Queue: 20}), throttle.AllowAll}
	},
	"tick queue": func() [2]throttle.Limiter {
		return [2]throttle.Limiter{throttle.NewTickQueue(throttle.TickQueueConfig{Limit: throttle.Limit{Count: 10, Per: time.Second}, Queue: 30}), throttle.AllowAll}
	},
	"nginx": func() [2]throttle.Limiter {
		return [2]throttle.Limiter{throttle.NewNginx(throttle.NginxConfig{Rate: 10, Per: time.Second, Burst: 10, Delay: 3}), throttle.AllowAll}
	},
	"all of two": func() [2]throttle.Limiter {
		return [2]throttle.Limiter{throttle.AllOf(bucket(100*time.Millisecond, 4), throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 8, Per: time.Second})), throttle.AllowAll}
	},
}

// history returns random calls, about twice as many units as limits of ten a second grant. With
// mixed set, they are of several tenants, priorities and sets of limits.
func history(r *rand.Rand, mixed bool) []plannedCall {
	calls := make([]plannedCall, 60)
	at := time.Duration(0)
	for i := range calls {
		if r.IntN(3) > 0 {
			at += time.Duration(r.Int64N(int64(300 * time.Millisecond)))
		}
		at++ // no two calls at the same instant
		p := plannedCall{at: at, deadline: time.Duration(1 + r.Int64N(int64(3*time.Second))), costs: [2]int64{r.Int64N(4), 1}}
		p.ticket.Latency = time.Duration(r.Int64N(int64(400 * time.Millisecond)))
		if mixed {
			p.ticket.Tenant, p.ticket.Priority = []string{"", "a", "b"}[r.IntN(3)], int32(r.IntN(2))
			p.costs[r.IntN(2)] = r.Int64N(4) - 1
		}
		calls[i] = p
	}
	return calls
}

// Each call that is rejected as soon as it is made is made again in a replay of its history, with
// patience, and would not have been granted in time. The time until that is only a lower bound for
// claims of several units if a limit restores them neither one by one nor all together, and for
// several limits. Then a waiter may leave that was taken to be granted before others.
func TestQueue_rejectsOnlyWhatWouldBeGrantedTooLate(t *testing.T) {
	bounds := map[string]bool{"two buckets": true, "window and bucket": true, "all of two": true, "sliding log": true, "sliding counter": true}
	allEarly, allWrong := 0, 0
	for name, newLimits := range limitsForEarly {
		for _, mixed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, mixed %v", name, mixed), func(t *testing.T) {
				early, wrong, failed, seeds := 0, 0, 0, uint64(6)
				if testing.Short() {
					seeds = 1
				}
				for seed := range seeds {
					calls := history(rand.New(rand.NewPCG(seed, 1)), mixed)
					for i, o := range replay(t, calls, newLimits, -1) {
						p := calls[i]
						if o.err != nil {
							failed++
						}
						if !o.early(p) || errors.As(o.err, new(*FullError)) {
							continue
						}
						early++
						if testing.Short() && early > 8 {
							break
						}
						got := replay(t, calls, newLimits, i)[i]
						if got.err == nil && got.ended < p.at+p.deadline-p.ticket.Latency {
							wrong++
							t.Logf("seed %d: call %d of %d units at %v with %v and latency %v: granted at %v: %v", seed, i, p.costs[0], p.at, p.deadline, p.ticket.Latency, got.ended, o.err)
						}
					}
				}
				t.Logf("%d failed, %d of them early, %d wrongly", failed, early, wrong)
				require.Positive(t, early)
				require.True(t, wrong == 0 || bounds[name] && wrong <= early/20)
				allEarly, allWrong = allEarly+early, allWrong+wrong
			})
		}
	}
	require.LessOrEqual(t, allWrong, allEarly/100)
}

// Limits of which one grants a unit a second grant the waiters one after the other, so that a call behind five others
// waits six seconds. The limits of docs/per-host-and-global.md delay all but the first as well.
func TestQueue_rejectsWhatIsTooLateBehindOthers(t *testing.T) {
	second := throttle.PerSecond(1)
	for name, newLimits := range map[string]func() [2]throttle.Limiter{
		"one limit": func() [2]throttle.Limiter { return [2]throttle.Limiter{throttle.NewTokenBucket(second)} },
		"per host and global": func() [2]throttle.Limiter {
			perHost := &keyed.Limiter{New: func(string) throttle.Limiter { return throttle.NewTokenBucket(throttle.PerSecond(10)) }}
			return [2]throttle.Limiter{perHost, throttle.NewTokenBucket(second)}
		},
		"both delay": func() [2]throttle.Limiter {
			return [2]throttle.Limiter{throttle.NewTokenBucket(throttle.PerSecond(4).WithBurst(2)), throttle.NewTokenBucket(second)}
		},
	} {
		for deadline, granted := range map[time.Duration]bool{3 * time.Second: false, 5900 * time.Millisecond: false, 6100 * time.Millisecond: true} {
			calls := make([]plannedCall, 7)
			for i := range calls {
				calls[i] = plannedCall{at: time.Duration(i), deadline: time.Hour, costs: [2]int64{1, 1}}
			}
			last := len(calls) - 1
			calls[last].deadline = deadline
			o := replay(t, calls, newLimits, -1)[last]
			if granted {
				require.NoError(t, o.err, "%s: %v", name, deadline)
				require.InDelta(t, 6*time.Second, o.ended, 10, "%s: %v", name, deadline)
			} else {
				require.True(t, o.early(calls[last]), "%s: %v: %v after %v", name, deadline, o.err, o.ended)
			}
		}
	}
}
