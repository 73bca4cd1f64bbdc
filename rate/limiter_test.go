package rate_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"math"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rate"
	"github.com/heed-go/heed/throttle"
)

var morning = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)

func tenASecond(burst int64) throttle.Limit {
	return throttle.Limit{Name: "ten", Count: 10, Per: time.Second, Burst: burst}
}

func bookingLimiter(burst int) *rate.Limiter {
	v := rate.NewLimiter(10, burst)
	v.Clock = &stoppedClock{morning}
	return v
}

// A stoppedClock is a clock whose time changes only when it is set.
type stoppedClock struct{ now time.Time }

func (s *stoppedClock) Now() time.Time                       { return s.now }
func (s *stoppedClock) After(time.Duration) <-chan time.Time { return nil }

func TestLimiter_allowsAndReserves(t *testing.T) {
	v := bookingLimiter(2)
	require.True(t, v.Allow())
	require.True(t, v.AllowN(morning, 1))
	require.False(t, v.Allow())
	require.True(t, v.AllowN(morning, 0), "nothing costs nothing")
	a, b := v.Reserve(), v.ReserveN(morning, 2)
	require.True(t, a.OK() && b.OK())
	require.NoError(t, b.Err())
	require.Equal(t, 100*time.Millisecond, a.Delay())
	require.Equal(t, 300*time.Millisecond, b.Delay())
	require.Equal(t, 50*time.Millisecond, b.DelayFrom(morning.Add(250*time.Millisecond)))
	require.Zero(t, b.DelayFrom(morning.Add(time.Hour)))
	require.Equal(t, 300*time.Millisecond, v.ReserveN(morning, 0).Delay(), "issue 13: as in x/time/rate, it waits until the debt is paid")
	require.False(t, v.AllowN(morning, 0))
}

// x/time/rate returns the tokens at each call of Cancel.
func TestReservation_cancelsOnce(t *testing.T) {
	v := bookingLimiter(5)
	v.ReserveN(morning, 5)
	r := v.ReserveN(morning, 3)
	for range 5 {
		r.Cancel()
	}
	require.Equal(t, 100*time.Millisecond, v.Reserve().Delay())
	var wg sync.WaitGroup
	r = v.ReserveN(morning, 3)
	for range 8 {
		wg.Go(r.Cancel)
	}
	wg.Wait()
	require.Equal(t, 200*time.Millisecond, v.Reserve().Delay())
	for _, v := range []*rate.Limiter{
		rate.New(throttle.WithClock(throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 5, Per: time.Minute}), &stoppedClock{morning})),
		rate.New(throttle.WithClock(throttle.NewTokenBucket(tenASecond(5)), &stoppedClock{morning})),
		bookingLimiter(5),
	} {
		v.AllowN(morning, 5)
		v.ReserveN(morning, 0).Cancel()
		require.False(t, v.Allow())
	}
}

// Canceled units are granted to waiters.
func TestReservation_cancelWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := rate.NewLimiter(10, 5)
		start := time.Now()
		v.ReserveN(time.Time{}, 5)
		r := v.ReserveN(time.Time{}, 5)
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, v.Wait(t.Context())) })
		synctest.Wait()
		r.Cancel()
		wg.Wait()
		require.Equal(t, 100*time.Millisecond, time.Since(start))
	})
}

// x/time/rate returns no tokens once the units could have been used.
func TestReservation_lateCancelRefundsTheRest(t *testing.T) {
	v := bookingLimiter(5)
	r := v.ReserveN(morning, 5)
	r.CancelAt(morning.Add(time.Nanosecond))
	require.True(t, v.AllowN(morning.Add(time.Nanosecond), 5))
}

// x/time/rate adds the tokens of the time between twice.
func TestLimiter_olderReadingsCreditNothing(t *testing.T) {
	v := bookingLimiter(1)
	for i := range 20 {
		ok := v.AllowN(morning.Add(time.Duration(i%2)*100*time.Millisecond), 1)
		require.Equal(t, i < 2, ok)
	}
}

func TestLimiter_errors(t *testing.T) {
	v := bookingLimiter(2)
	require.False(t, v.AllowN(morning, -3))
	r := v.ReserveN(morning, -3)
	require.ErrorIs(t, r.Err(), throttle.ErrCost)
	require.ErrorIs(t, v.WaitN(t.Context(), -3), throttle.ErrCost)
	require.True(t, v.AllowN(morning, 2), "the original has five now")
	require.False(t, v.Allow())

	r = v.ReserveN(morning, 3)
	require.False(t, r.OK())
	require.Equal(t, throttle.Forever, r.Delay())
	require.ErrorIs(t, r.Err(), throttle.ErrRejected)
	require.ErrorContains(t, r.Err(), "at most 2 units")
	require.ErrorContains(t, v.WaitN(t.Context(), 3), "at most 2 units")
	r.Cancel()

	v = rate.New(throttle.WithClock(throttle.NewFixedWindow(throttle.FixedWindowConfig{Name: "ten", Count: 1, Per: 100 * time.Millisecond}), &stoppedClock{morning}))
	v.Clock = &stoppedClock{morning}
	require.True(t, v.Reserve().OK())
	r = v.Reserve()
	require.ErrorContains(t, r.Err(), "books ahead")
	require.ErrorContains(t, r.Err(), "100 ms")
	rejected := new(throttle.RejectedError)
	require.ErrorAs(t, r.Err(), &rejected)
	require.Equal(t, "ten", rejected.Decision.Policy)

	v = rate.New(unreachable{})
	require.False(t, v.Allow())
	require.ErrorIs(t, v.Reserve().Err(), errUnavailable)
	require.ErrorIs(t, v.Wait(t.Context()), errUnavailable)
}

func TestLimiter_waits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := rate.New(throttle.NewTokenBucket(tenASecond(1)))
		start := time.Now()
		require.NoError(t, v.Wait(t.Context()))
		require.NoError(t, v.WaitN(t.Context(), 0))

		short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		require.ErrorIs(t, v.Wait(short), context.DeadlineExceeded)
		require.Zero(t, time.Since(start), "a wait that cannot end in time is not begun")
		cancel()
		require.ErrorIs(t, v.WaitN(short, 0), context.Canceled)

		var wg sync.WaitGroup
		gone, leave := context.WithCancelCause(t.Context())
		why := errors.New("gone")
		wg.Go(func() { assert.ErrorIs(t, v.Wait(gone), why) })
		synctest.Wait()
		wg.Go(func() { assert.NoError(t, v.Wait(t.Context())) })
		synctest.Wait()
		time.Sleep(50 * time.Millisecond)
		leave(why)
		wg.Wait()
		require.Equal(t, 100*time.Millisecond, time.Since(start), "the waiter behind it moves up")

		wg.Go(func() { assert.NoError(t, v.Wait(t.Context())) })
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		require.False(t, v.Allow(), "it must not overtake a waiter")
		wg.Wait()

		v.SetLimit(rate.Every(time.Hour))
		wg.Go(func() { assert.NoError(t, v.Wait(t.Context())) })
		synctest.Wait()
		v.SetLimit(1000)
		wg.Wait()
		require.Less(t, time.Since(start), time.Second)
	})
}

// Waiters are granted when x/time/rate grants them, in scenarios without canceled waits: after
// a canceled wait, other waiters of x/time/rate keep their times. x/time/rate truncates each
// wait to a nanosecond where this package rounds up.
func TestLimiter_agreesWithXTimeRate(t *testing.T) {
	file, err := os.Open("../throttle/testdata/rate_wait.jsonl")
	require.NoError(t, err)
	defer file.Close()
	played := 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var s waitTrace
		if json.Unmarshal(lines.Bytes(), &s) == nil && s.maxWait() {
			played++
			synctest.Test(t, func(t *testing.T) { s.run(t, rate.NewLimiter(rate.Limit(s.Limit), int(s.Burst))) })
			limit := throttle.Limit{Count: int64(math.Round(s.Limit * 1000)), Per: 1000 * time.Second, Burst: s.Burst}
			synctest.Test(t, func(t *testing.T) { s.run(t, rate.New(throttle.NewTokenBucket(limit))) })
		}
	}
	require.Equal(t, 5, played)
}

type waitTrace struct {
	Name    string
	Limit   float64 // a scenario without a limit has a text here and is skipped
	Burst   int64
	Waiters []struct {
		Start    int64 `json:"start_ns"`
		Deadline int64 `json:"deadline_ns"` // 0: none
		N        int
		Result   string
		End      int64 `json:"end_ns"`
	}
}

func (s *waitTrace) maxWait() bool {
	for _, w := range s.Waiters {
		if w.Result != "ok" && w.Result != "exceeds_burst" || w.Deadline == w.End {
			return false
		}
	}
	return s.Burst > 0 && s.Limit >= .001
}

func (s *waitTrace) run(t *testing.T, v *rate.Limiter) {
	start := time.Now()
	var wg sync.WaitGroup
	for i, w := range s.Waiters {
		time.Sleep(time.Duration(w.Start) - time.Since(start))
		wg.Go(func() {
			ctx := t.Context()
			if w.Deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithDeadline(ctx, start.Add(time.Duration(w.Deadline)))
				defer cancel()
			}
			err := v.WaitN(ctx, w.N)
			assert.Equal(t, w.Result == "ok", err == nil, "%s: waiter %d: %v", s.Name, i, err)
			assert.InDelta(t, w.End, time.Since(start), float64(2+i), "%s: waiter %d", s.Name, i)
		})
		synctest.Wait()
	}
	wg.Wait()
}

// Callers of all methods run at the same time, while limit and burst change.
func TestLimiter_concurrentCallers(t *testing.T) {
	leaky := throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: 1e6, Per: time.Second, Burst: 100}, Queue: 1000}
	for name, v := range map[string]*rate.Limiter{
		"NewLimiter":  rate.NewLimiter(1e6, 100),
		"LeakyBucket": rate.New(throttle.NewLeakyBucket(leaky)),
		"TokenBucket": rate.New(throttle.NewTokenBucket(leaky.Limit)),
	} {
		t.Run(name, func(t *testing.T) {
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for i := range 200 {
						v.Allow()
						v.Reserve().Cancel()
						assert.NoError(t, v.WaitN(t.Context(), 1+i%3))
						v.SetLimit(rate.Limit(1e6 + i))
						v.SetBurst(100 + i%2)
						v.Tokens()
						assert.GreaterOrEqual(t, v.Limit(), rate.Limit(1e6))
						assert.GreaterOrEqual(t, v.Burst(), 100)
					}
				})
			}
			wg.Wait()
		})
	}
}

func TestLimiter_allocatesNothing(t *testing.T) {
	if racing {
		return
	}
	for _, v := range []*rate.Limiter{rate.New(throttle.NewTokenBucket(throttle.PerSecond(math.MaxInt32))), rate.NewLimiter(1e9, 1e9)} {
		ctx := t.Context()
		noAllocs(t, "Allow", func() { v.Allow() })
		noAllocs(t, "Wait", func() { v.Wait(ctx) })
		noAllocs(t, "Tokens", func() { v.Tokens() })
	}
}

func noAllocs(t *testing.T, what string, f func()) {
	t.Helper()
	if n := testing.AllocsPerRun(200, f); n != 0 {
		t.Errorf("%s: %v allocations", what, n)
	}
}

// An unreachable is a limiter whose store cannot be reached.
type unreachable struct{}

var errUnavailable = errors.New("store is away")

func (unreachable) Reserve(context.Context, throttle.Claim) (throttle.Decision, error) {
	return throttle.Decision{}, errUnavailable
}
func (unreachable) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (unreachable) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }
