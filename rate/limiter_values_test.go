package rate_test

import (
	"context"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rate"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

func TestLimiter_unusualLimitsAndBursts(t *testing.T) {
	for name, tt := range map[string]struct {
		limit   rate.Limit
		burst   int
		granted int // of 5 units, one at a time
		later   int // of 5 units an hour later
	}{
		"zero limit":          {0, 3, 3, 0},
		"negative limit":      {-1, 3, 3, 0},
		"NaN":                 {rate.Limit(math.NaN()), 3, 3, 0},
		"too low to be known": {1e-11, 3, 3, 0},
		"zero burst":          {10, 0, 0, 0},
		"negative burst":      {10, -2, 0, 0},
		"zero":                {0, 0, 0, 0},
		"Inf":                 {rate.Inf, 0, 5, 5},
		"+Inf":                {rate.Limit(math.Inf(1)), -1, 5, 5},
		"every hour":          {rate.Every(time.Hour), 1, 1, 1},
		"largest numbers":     {math.MaxFloat64 / 2, math.MaxInt, 5, 5},
		"largest burst":       {1, math.MaxInt, 5, 5},
	} {
		t.Run(name, func(t *testing.T) {
			l := rate.NewLimiter(tt.limit, tt.burst)
			count := func(now time.Time) (n int) {
				for range 5 {
					if l.AllowN(now, 1) {
						n++
					}
				}
				return n
			}
			require.Equal(t, tt.granted, count(morning))
			require.Equal(t, tt.later, count(morning.Add(time.Hour)))
			if !math.IsNaN(float64(tt.limit)) {
				require.Equal(t, tt.limit, l.Limit())
			}
			require.Equal(t, tt.burst, l.Burst())
			require.Equal(t, tt.limit >= rate.Inf, l.AllowN(morning, math.MaxInt))
			require.False(t, l.AllowN(morning, math.MinInt))
		})
	}
}

// The zero Limiter grants nothing until it has a limit and a burst.
func TestLimiter_zeroValue(t *testing.T) {
	var l rate.Limiter
	require.False(t, l.Allow())
	require.False(t, l.Reserve().OK())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NotErrorIs(t, l.Wait(ctx), context.DeadlineExceeded)
	require.Zero(t, l.Tokens())
	require.Zero(t, l.Limit())
	require.Zero(t, l.Burst())
	now := time.Now()
	l.SetLimitAt(now, 10)
	l.SetBurstAt(now, 1)
	require.False(t, l.AllowN(now, 1), "a burst adds no units")
	require.True(t, l.AllowN(now.Add(100*time.Millisecond), 1))
}

// Any method may be the first one that is called.
func TestLimiter_zeroValueOfEachMethod(t *testing.T) {
	for name, call := range map[string]func(l *rate.Limiter) bool{
		"Allow":      func(l *rate.Limiter) bool { return l.Allow() },
		"AllowN":     func(l *rate.Limiter) bool { return l.AllowN(morning, 1) },
		"AllowN 0":   func(l *rate.Limiter) bool { return !l.AllowN(morning, 0) },
		"Reserve":    func(l *rate.Limiter) bool { return l.Reserve().OK() },
		"Wait":       func(l *rate.Limiter) bool { return l.Wait(t.Context()) == nil },
		"WaitN 0":    func(l *rate.Limiter) bool { return l.WaitN(t.Context(), 0) != nil },
		"Limit":      func(l *rate.Limiter) bool { return l.Limit() != 0 },
		"Burst":      func(l *rate.Limiter) bool { return l.Burst() != 0 },
		"Tokens":     func(l *rate.Limiter) bool { return l.Tokens() != 0 },
		"TokensAt":   func(l *rate.Limiter) bool { return l.TokensAt(morning) != 0 },
		"SetLimit":   func(l *rate.Limiter) bool { l.SetLimit(3); return l.Limit() != 3 },
		"SetBurstAt": func(l *rate.Limiter) bool { l.SetBurstAt(morning, 3); return l.Burst() != 3 },
	} {
		require.False(t, call(new(rate.Limiter)), name)
	}
}

// Methods without a time read Clock.
func TestLimiter_readsItsClock(t *testing.T) {
	config := throttle.Limit{Count: 10, Per: time.Second, Burst: 5}
	for name, l := range map[string]*rate.Limiter{
		"NewLimiter":  rate.NewLimiter(10, 5),
		"TokenBucket": rate.New(throttle.NewTokenBucket(config)),
		"LeakyBucket": rate.New(throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: config})),
	} {
		clk := &stoppedClock{morning}
		l.Clock = clk
		require.True(t, l.AllowN(morning, 5), name)
		require.Zero(t, l.Tokens(), name)
		require.False(t, l.Allow(), name)
		clk.now = morning.Add(200 * time.Millisecond)
		require.InDelta(t, 2, l.Tokens(), 0, name)
		l.SetLimit(20)
		clk.now = morning.Add(250 * time.Millisecond)
		require.InDelta(t, 3, l.Tokens(), 0, name)
	}
}

// A limit of 0 keeps the units and the fractions of units for as long as it is in force.
func TestLimiter_timeStandsStillUnderAZeroLimit(t *testing.T) {
	l, at := rate.NewLimiter(10, 5), func(d time.Duration) time.Time { return morning.Add(d) }
	require.True(t, l.AllowN(at(0), 5))
	l.SetLimitAt(at(250*time.Millisecond), 0)
	require.Equal(t, 2.5, l.TokensAt(at(time.Hour)))
	require.True(t, l.AllowN(at(time.Hour), 1))
	r := l.ReserveN(at(time.Hour), 2)
	require.False(t, r.OK())
	require.ErrorContains(t, r.Err(), `limit "0 per second, burst 5": it can never grant this claim; at most 1 units`)
	var rejected *throttle.RejectedError
	require.ErrorAs(t, r.Err(), &rejected)
	require.Equal(t, throttle.Decision{
		Policy: "0 per second, burst 5", At: at(time.Hour), Wait: throttle.Forever, Limit: 1, Remaining: 1, ResetAfter: throttle.Forever,
	}, rejected.Decision, "no Per: it restores nothing")
	r = l.ReserveN(at(time.Hour), 1)
	require.Zero(t, r.DelayFrom(at(time.Hour)))
	require.Equal(t, .5, l.TokensAt(at(time.Hour)))
	r.CancelAt(at(2 * time.Hour))
	require.Equal(t, 1.5, l.TokensAt(at(2*time.Hour)), "no unit was restored meanwhile")

	l.SetLimitAt(at(3*time.Hour), 1)
	require.Equal(t, 1.5, l.TokensAt(at(3*time.Hour)))
	r = l.ReserveN(at(3*time.Hour), 3)
	require.Equal(t, 1500*time.Millisecond, r.DelayFrom(at(3*time.Hour)))
	r.CancelAt(at(3 * time.Hour))
	require.Equal(t, 2.5, l.TokensAt(at(3*time.Hour+time.Second)))
}

func TestLimiter_infiniteLimitRestoresTheBurst(t *testing.T) {
	l := rate.NewLimiter(10, 5)
	l.AllowN(morning, 5)
	booked := l.ReserveN(morning, 5)
	l.SetLimitAt(morning, rate.Inf)
	free := l.ReserveN(morning, 1000)
	require.Zero(t, free.DelayFrom(morning))
	later := morning.Add(time.Millisecond)
	l.SetLimitAt(later, 10)
	require.Equal(t, 5.0, l.TokensAt(later))
	require.True(t, l.AllowN(later, 5))
	booked.CancelAt(later)
	free.CancelAt(later)
	require.False(t, l.AllowN(later, 1), "a Cancel across a change returns nothing")
}

// A Reservation for a time counts from the time that the caller gave, not from the clock.
func TestLimiter_timesFarFromTheClock(t *testing.T) {
	for _, now := range []time.Time{time.Unix(0, 0), morning, morning.AddDate(100, 0, 0)} {
		l := rate.NewLimiter(10, 5)
		l.AllowN(now, 5)
		r := l.ReserveN(now, 3)
		require.Equal(t, 300*time.Millisecond, r.DelayFrom(now))
		r.CancelAt(now)
		require.Zero(t, l.TokensAt(now))
	}
}

// Changes count from the current time if they have none: time stands still under a limit of 0.
func TestLimiter_changesOfNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := rate.NewLimiter(10, 5)
		require.True(t, l.AllowN(time.Now(), 5))
		time.Sleep(100 * time.Millisecond)
		l.SetLimit(0)
		time.Sleep(time.Hour)
		require.InDelta(t, 1, l.Tokens(), 1e-9)
		l.SetLimit(10)
		require.InDelta(t, 1, l.Tokens(), 1e-9)
		time.Sleep(100 * time.Millisecond)
		require.InDelta(t, 2, l.Tokens(), 1e-9)
		l.SetBurst(1)
		time.Sleep(time.Hour)
		l.SetBurst(5)
		require.InDelta(t, 1, l.Tokens(), 1e-9, "a higher burst adds none")
	})
}

// Errors name the limit and the burst in force.
func TestLimiter_namesItsLimit(t *testing.T) {
	l := rate.NewLimiter(10, 0)
	require.ErrorContains(t, l.Reserve().Err(), `limit "10 per second, burst 0"`)
	l.SetBurst(1)
	require.ErrorContains(t, l.ReserveN(morning, 2).Err(), `limit "10 per second, burst 1"`)
	l.SetLimit(2.5)
	require.ErrorContains(t, l.ReserveN(morning, 2).Err(), `limit "2.5 per second, burst 1"`)
	l.SetBurst(-1)
	require.ErrorContains(t, l.Reserve().Err(), `limit "2.5 per second, burst -1"`)
}

// The limits of token buckets and leaky buckets change with SetLimit and SetBurst.
func TestNew_changesBuckets(t *testing.T) {
	from := throttle.Limit{Name: "old", Count: 10, Per: time.Second, Burst: 4}
	for name, l := range map[string]throttle.Limiter{
		"TokenBucket": throttle.NewTokenBucket(from),
		"LeakyBucket": throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: from}),
	} {
		b := l.(interface{ Limit() throttle.Limit })
		t.Run(name, func(t *testing.T) {
			l := rate.New(l)
			require.Equal(t, rate.Limit(10), l.Limit())
			require.Equal(t, 4, l.Burst())
			require.Equal(t, 4.0, l.TokensAt(morning))
			for _, tt := range []struct {
				change func()
				want   throttle.Limit
			}{
				{func() { l.SetBurstAt(morning, 1) }, throttle.Limit{Name: "old", Count: 10, Per: time.Second, Burst: 1}},
				{func() { l.SetBurstAt(morning, 6) }, throttle.Limit{Name: "old", Count: 10, Per: time.Second, Burst: 6}},
				{func() { l.SetBurstAt(morning, 0) }, throttle.Limit{Name: "old", Count: 1, Per: 100 * time.Millisecond, Burst: 1}},
				{func() { l.SetBurstAt(morning, 6) }, throttle.Limit{Name: "old", Count: 1, Per: 100 * time.Millisecond, Burst: 6}},
				{func() { l.SetLimitAt(morning, 20) }, throttle.Limit{Name: "old", Count: 1, Per: 50 * time.Millisecond, Burst: 6}},
				{func() { l.SetBurstAt(morning, -6) }, throttle.Limit{Name: "old", Count: 1, Per: 50 * time.Millisecond, Burst: 1}},
				{func() { l.SetLimitAt(morning, 0) }, throttle.Limit{Name: "old", Count: 1, Per: 36 * 365 * 24 * time.Hour, Burst: 1}},
				{func() { l.SetLimitAt(morning, rate.Inf) }, throttle.Limit{Name: "old", Count: 1 << 24, Per: 1<<20 - 1, Burst: 1}},
			} {
				tt.change()
				require.Equal(t, tt.want, b.Limit())
			}
		})
	}
}

// Other limiters are not changed, and state what their decisions state.
func TestNew_otherLimiters(t *testing.T) {
	window := rate.New(throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 120, Per: time.Minute}))
	window.SetLimit(1000)
	window.SetBurst(1000)
	require.Equal(t, rate.Limit(2), window.Limit())
	require.Equal(t, 120, window.Burst())
	require.Equal(t, 120.0, window.Tokens())
	require.True(t, window.AllowN(time.Time{}, 0))

	all := rate.New(throttle.AllowAll)
	require.Equal(t, rate.Inf, all.Limit())
	require.Zero(t, all.Burst())
	require.Equal(t, rate.Inf, rate.New(unreachable{}).Limit())
	for _, tt := range []struct {
		limit int64
		per   time.Duration
		want  rate.Limit
	}{{5, 0, rate.Inf}, {5, -1, rate.Inf}, {0, time.Second, rate.Inf}, {-1, time.Second, rate.Inf}, {1, time.Second, 1}, {1, time.Nanosecond, 1e9}} {
		l := rate.New(stating{throttle.AllowAll, throttle.Decision{Limit: tt.limit, Per: tt.per}})
		require.InEpsilon(t, float64(tt.want), float64(l.Limit()), 1e-12, "%+v", tt)
	}
	require.Zero(t, rate.New(unreachable{}).Tokens())
	require.Panics(t, func() { rate.New(nil) })
}

// A stating limiter returns the same decision for each claim.
type stating struct {
	throttle.Limiter
	decision throttle.Decision
}

func (s stating) Reserve(context.Context, throttle.Claim) (throttle.Decision, error) {
	return s.decision, nil
}

// SetLimit keeps the burst of a bucket: a throttle.Limit without one has a burst of Count.
func TestNew_setLimitKeepsTheBurst(t *testing.T) {
	for burst, want := range map[int64]int64{0: 10, 1: 1, 2: 2, 10: 10} {
		b := throttle.NewTokenBucket(throttle.Limit{Count: 10, Per: time.Second, Burst: burst})
		rate.New(b).SetLimit(20)
		require.Equal(t, throttle.Limit{Count: 1, Per: 50 * time.Millisecond, Burst: want}, b.(interface{ Limit() throttle.Limit }).Limit())
	}
}

func TestLimiter_claimsHaveKeyAndTime(t *testing.T) {
	seen := &recorder{}
	l := rate.New(seen)
	l.Key, l.Queue, l.Clock = "key", new(queue.Queue), &stoppedClock{morning}
	l.Allow()
	l.Reserve().Cancel()
	require.NoError(t, l.Wait(t.Context()))
	l.Tokens()
	require.Len(t, seen.claims, 5)
	for i, c := range seen.claims {
		require.Equal(t, "key", c.Key, "%d", i)
		require.EqualValues(t, 1, c.Cost, "%d", i)
		require.Equal(t, i == 4, c.DryRun, "%d", i)
		if i != 3 { // the Queue has a clock of its own
			require.Equal(t, morning, c.Now, "%d", i)
		}
	}
}

// A recorder grants all claims and records them.
type recorder struct{ claims []throttle.Claim }

func (r *recorder) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	r.claims = append(r.claims, c)
	return throttle.Decision{OK: true, At: c.Now}, nil
}

func (r *recorder) Report(_ context.Context, c throttle.Claim, _ throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		r.claims = append(r.claims, c)
	}
}

// Traits implements throttle.Limiter.
func (*recorder) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

func TestLimiter_waitsInOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, start := rate.NewLimiter(10, 5), time.Now()
		require.True(t, l.AllowN(start, 5))
		ended := make(chan int, 20)
		for i := range 20 {
			go func() {
				assert.NoError(t, l.WaitN(t.Context(), 1+i%3))
				ended <- i
			}()
			synctest.Wait()
		}
		for i := range 20 {
			require.Equal(t, i, <-ended)
		}
		require.Equal(t, 3900*time.Millisecond, time.Since(start), "39 units")
	})
}

// A caller whose ctx ends takes nothing; the callers behind it continue earlier.
func TestLimiter_waitThatEndsTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, start := rate.NewLimiter(10, 5), time.Now()
		require.True(t, l.AllowN(start, 5))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- l.WaitN(ctx, 5) }()
		synctest.Wait()
		go func() { second <- l.WaitN(t.Context(), 2) }()
		time.Sleep(350 * time.Millisecond)
		require.Equal(t, 3.5, l.Tokens(), "a waiter takes nothing")
		require.False(t, l.Allow(), "but is not overtaken")
		cancel()
		require.ErrorIs(t, <-first, context.Canceled)
		require.NoError(t, <-second)
		require.Equal(t, 350*time.Millisecond, time.Since(start))
		require.Equal(t, 1.5, l.Tokens())
	})
}

func TestLimiter_waitFailsImmediatelyIfItCannotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, start := rate.NewLimiter(10, 2), time.Now()
		l.AllowN(start, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		err := l.WaitN(ctx, 2)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, `throttle: rejected by limit "10 per second, burst 2": ask again in 200 ms: context deadline exceeded`)
		err = l.WaitN(t.Context(), 3)
		require.EqualError(t, err, `throttle: rejected by limit "10 per second, burst 2": it can never grant this claim; at most 2 units can be granted together`)
		l.SetLimit(0)
		require.ErrorIs(t, l.Wait(t.Context()), throttle.ErrRejected)
		require.Zero(t, time.Since(start))
		require.Zero(t, l.Tokens())
	})
}

// WaitN of no units waits until all reservations may be used.
func TestLimiter_waitForNoUnits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, start := rate.NewLimiter(10, 5), time.Now()
		require.NoError(t, l.WaitN(t.Context(), 0))
		l.ReserveN(start, 5)
		require.NoError(t, l.WaitN(t.Context(), 0), "no debt")
		require.Zero(t, time.Since(start))
		l.ReserveN(start, 3)
		require.NoError(t, l.WaitN(t.Context(), 0))
		require.Equal(t, 300*time.Millisecond, time.Since(start))
		require.Zero(t, l.Tokens())
		l.ReserveN(time.Time{}, 3)
		l.SetLimit(0)
		require.ErrorIs(t, l.WaitN(t.Context(), 0), throttle.ErrRejected)
		require.False(t, l.ReserveN(time.Time{}, 0).OK())
		l.SetLimit(rate.Inf)
		require.NoError(t, l.WaitN(t.Context(), 0))
	})
}

// Callers that wait are granted by the limit and burst in force.
func TestLimiter_changesWakeWaiters(t *testing.T) {
	for name, change := range map[string]func(*rate.Limiter){
		"higher limit": func(l *rate.Limiter) { l.SetLimit(1e9); time.Sleep(time.Microsecond) },
		"Inf":          func(l *rate.Limiter) { l.SetLimit(rate.Inf) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, start := rate.NewLimiter(rate.Every(time.Hour), 2), time.Now()
				l.AllowN(start, 2)
				done := make(chan error, 1)
				go func() { done <- l.WaitN(t.Context(), 2) }()
				synctest.Wait()
				change(l)
				require.NoError(t, <-done)
				require.Less(t, time.Since(start), time.Second)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		l, start := rate.NewLimiter(rate.Every(time.Hour), 2), time.Now()
		l.AllowN(start, 2)
		done := make(chan error, 1)
		go func() { done <- l.WaitN(t.Context(), 2) }()
		synctest.Wait()
		l.SetBurst(1)
		require.ErrorIs(t, <-done, throttle.ErrRejected)
		require.Zero(t, time.Since(start))
	})
}

// Each field alone, and together with others, decides which calls run the function.
func TestSometimes_fields(t *testing.T) {
	for _, tt := range []struct {
		s    *rate.Sometimes
		want string // of calls 100 ms apart: x runs
	}{
		{&rate.Sometimes{}, "x---------"},
		{&rate.Sometimes{First: -1, Every: -1, Interval: -1}, "x---------"},
		{&rate.Sometimes{First: 1}, "x---------"},
		{&rate.Sometimes{First: 3}, "xxx-------"},
		{&rate.Sometimes{Every: 1}, "xxxxxxxxxx"},
		{&rate.Sometimes{Every: 3}, "x--x--x--x"},
		{&rate.Sometimes{First: 2, Every: 4}, "xx--x---x-"},
		{&rate.Sometimes{Interval: 1}, "xxxxxxxxxx"},
		{&rate.Sometimes{Interval: 300 * time.Millisecond}, "x--x--x--x"},
		{&rate.Sometimes{Interval: 300*time.Millisecond + 1}, "x---x---x-"},
		{&rate.Sometimes{First: 2, Interval: 300 * time.Millisecond}, "xx--x--x--"},
		{&rate.Sometimes{Every: 5, Interval: 300 * time.Millisecond}, "x--x-x--x-"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got []byte
			for i := range tt.want {
				time.Sleep(time.Duration(min(i, 1)) * 100 * time.Millisecond)
				got = append(got, '-')
				tt.s.Do(func() { got[i] = 'x' })
			}
			require.Equal(t, tt.want, string(got))
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s, ran := rate.Sometimes{Interval: 1}, 0
		for range 3 {
			s.Do(func() { ran++ })
		}
		require.Equal(t, 1, ran, "at the same instant")
	})
}

// Calls of Do run one after another, and one that panics does not count.
func TestSometimes_panics(t *testing.T) {
	var s rate.Sometimes
	require.Panics(t, func() { s.Do(func() { panic("failed") }) })
	ran := 0
	for range 3 {
		s.Do(func() { ran++ })
	}
	require.Equal(t, 1, ran)
}

// The cancellation of a reservation of no units returns none.
func TestReservation_cancelOfNoUnits(t *testing.T) {
	for name, l := range map[string]*rate.Limiter{
		"NewLimiter":  rate.NewLimiter(1, 5),
		"TokenBucket": rate.New(throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: time.Second, Burst: 5})),
		"LeakyBucket": rate.New(throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: 1, Per: time.Second, Burst: 5}})),
	} {
		require.True(t, l.AllowN(morning, 3), name)
		r := l.ReserveN(morning, 0)
		require.True(t, r.OK(), name)
		r.CancelAt(morning)
		r.CancelAt(morning)
		require.InDelta(t, 2.0, l.TokensAt(morning), 1e-9, name)
	}
	ended := &endCounter{Limiter: throttle.AllowAll}
	r := rate.New(ended).ReserveN(morning, 0)
	r.Cancel()
	require.Zero(t, ended.cancels, "a limiter does not end a claim that it has not granted")
}

// An endCounter counts the claims that have ended.
type endCounter struct {
	throttle.Limiter
	cancels, observed int
}

func (l *endCounter) Report(_ context.Context, _ throttle.Claim, _ throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		l.cancels++
		return
	}
	l.observed++
}

// AllowN ends each claim that was granted, so that a limiter of concurrent claims does not count
// it any more.
func TestLimiter_allowEndsItsClaim(t *testing.T) {
	ended := &endCounter{Limiter: throttle.AllowAll}
	l := rate.New(ended)
	require.True(t, l.Allow())
	require.True(t, l.AllowN(morning, 3))
	require.Equal(t, 2, ended.observed)
	require.False(t, rate.New(&endCounter{Limiter: throttle.DenyAll}).Allow())
}

// A caller that waits behind others fails immediately if their units take longer than its deadline
// allows, and waits otherwise.
func TestLimiter_waitBehindOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := rate.NewLimiter(1, 1)
		require.NoError(t, l.Wait(t.Context()))
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() { _ = l.Wait(t.Context()) })
			synctest.Wait()
		}
		start := time.Now()
		for _, deadline := range []time.Duration{5 * time.Second, 6*time.Second - 1, 6*time.Second + 1} {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			err := l.Wait(ctx)
			cancel()
			if deadline > 6*time.Second {
				require.NoError(t, err)
				require.Equal(t, 6*time.Second, time.Since(start))
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Zero(t, time.Since(start))
			}
		}
		wg.Wait()
	})
}

// A foreignBucket has the methods of a bucket of package throttle.
type foreignBucket struct {
	throttle.Limiter
	changes int
}

func (*foreignBucket) Limit() throttle.Limit { return throttle.PerSecond(10) }

func (b *foreignBucket) SetLimitAt(time.Time, throttle.Limit) error {
	b.changes++
	return nil
}

// SetLimit and SetBurst do nothing to limiters of other modules, which would be called while a lock is held.
func TestNew_changesNoForeignLimiter(t *testing.T) {
	b := &foreignBucket{Limiter: throttle.NewTokenBucket(throttle.PerSecond(10))}
	l := rate.New(b)
	l.SetLimit(20)
	l.SetBurst(5)
	require.Zero(t, b.changes)
	require.Equal(t, rate.Limit(10), l.Limit(), "of the decisions of b")
}
