package adaptive_test

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/adaptive"
	"github.com/heed-go/heed/throttle/queue"
)

// Many callers use a server that allows a given number of requests per second and rejects
// the others without stating its limit. It returns the numbers of accepted and rejected
// requests in the given time.
func runCallers(t *testing.T, server throttle.Limiter, own *adaptive.Limiter, callers int, latency, d time.Duration) (accepted, rejected int64) {
	var accepts, rejections atomic.Int64
	q := new(queue.Queue)
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for ctx.Err() == nil {
				ticket := queue.Ticket{}
				ticket.Add(throttle.Demand{Limiter: own})
				if q.Wait(ctx, &ticket) != nil {
					return
				}
				time.Sleep(latency / 2)
				decision, _ := server.Reserve(t.Context(), throttle.Claim{})
				time.Sleep(latency / 2)
				f := throttle.Feedback{}
				if accepts.Add(1); !decision.OK {
					accepts.Add(-1)
					rejections.Add(1)
					f.Outcome = throttle.Throttled
				}
				q.Report(t.Context(), &ticket, f)
			}
		})
	}
	wg.Wait()
	return accepts.Load(), rejections.Load()
}

// Fifty callers find the limit of a server and follow its changes with few rejections.
func TestLimiter_findsTheLimit(t *testing.T) {
	for name, curve := range map[string]adaptive.Curve{"cubic": adaptive.Cubic{}, "aimd": adaptive.AIMD{Step: 3}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := func(n int64) throttle.Limit { return throttle.Limit{Count: n, Per: time.Second, Burst: 5} }
				server := throttle.NewTokenBucket(limit(40))
				own := adaptive.New(adaptive.Config{Curve: curve})
				steps := []int64{40, 10, 80, 80}
				if testing.Short() {
					steps = steps[:3]
				}
				for _, allowed := range steps {
					require.NoError(t, server.SetLimit(limit(allowed)))
					runCallers(t, server, own, 50, 50*time.Millisecond, 30*time.Second)
					accepted, rejected := runCallers(t, server, own, 50, 50*time.Millisecond, 60*time.Second)
					t.Logf("%d/s allowed: %d accepted, %d rejected in a minute", allowed, accepted, rejected)
					require.Greater(t, float64(accepted), .85*60*float64(allowed))
					require.Less(t, float64(rejected), .06*float64(accepted))
				}
			})
		})
	}
}

// A hundred rejections of one burst cause one cut. Later rejections of claims granted
// before the cut do not cut again.
func TestLimiter_decreasesOncePerBurst(t *testing.T) {
	l := adaptive.New(adaptive.Config{})
	now := time.Now()
	var granted []throttle.Decision
	for range 100 {
		now = now.Add(10 * time.Millisecond)
		granted = append(granted, reserve(t, l, throttle.Claim{Now: now}))
	}
	for _, d := range granted {
		require.True(t, d.OK)
		l.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{Now: now, Outcome: throttle.Throttled, State: throttle.Ongoing})
		l.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{Now: now, Outcome: throttle.Throttled})
		require.InDelta(t, .7*100, l.Rate(), 3)
	}
	d := reserve(t, l, throttle.Claim{Now: now.Add(time.Second)})
	l.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{Now: now.Add(time.Second), Outcome: throttle.Throttled})
	require.Less(t, l.Rate(), .7*.7*100+3)
}

// pacer claims at a constant rate, or as fast as possible.
type pacer struct {
	*testing.T
	l    *adaptive.Limiter
	now  time.Time
	sent int
}

func newPacer(t *testing.T, a adaptive.Config) *pacer {
	p := &pacer{T: t, now: time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)}
	p.l = throttle.WithClock(adaptive.New(a), p)
	return p
}

func (p *pacer) Now() time.Time                       { return p.now }
func (p *pacer) After(time.Duration) <-chan time.Time { return nil }

// work claims once per interval for the given time, or when it is allowed to; all claims
// are accepted.
func (p *pacer) work(interval, d time.Duration) {
	for end := p.now.Add(d); p.now.Before(end); {
		d := reserve(p.T, p.l, throttle.Claim{})
		if !d.OK {
			p.now = p.now.Add(d.Wait)
			continue
		}
		p.sent++
		p.now = p.now.Add(interval)
		p.l.Report(p.Context(), throttle.Claim{}, d, throttle.Feedback{})
	}
}

func (p *pacer) reject(f throttle.Feedback) {
	var d throttle.Decision
	for d = reserve(p.T, p.l, throttle.Claim{}); !d.OK; d = reserve(p.T, p.l, throttle.Claim{}) {
		p.now = p.now.Add(d.Wait)
	}
	f.Outcome = throttle.Throttled
	p.l.Report(p.Context(), throttle.Claim{}, d, f)
}

// The curve is that of the AWS SDKs: from 0.7 of the peak back to the peak in k seconds,
// flat near it, and then above it.
func TestLimiter_followsItsCurve(t *testing.T) {
	for _, curve := range []adaptive.Curve{adaptive.Cubic{}, adaptive.AIMD{}, adaptive.Cubic{Beta: .5, Scale: 2}, adaptive.AIMD{Beta: .5, Step: 4}} {
		p := newPacer(t, adaptive.Config{Curve: curve})
		p.work(10*time.Millisecond, 10*time.Second)
		p.reject(throttle.Feedback{})
		cut := p.now
		require.InDelta(t, adaptive.DecreaseFactor(curve)*100, p.l.Rate(), 1)
		for range 12 {
			p.work(time.Microsecond, time.Second)
			low, high := adaptive.RateAt(curve, 100, p.now.Sub(cut).Seconds()-1.2), adaptive.RateAt(curve, 100, p.now.Sub(cut).Seconds())
			require.GreaterOrEqual(t, p.l.Rate(), low-2)
			require.LessOrEqual(t, p.l.Rate(), high+2)
		}
		require.Greater(t, p.l.Rate(), adaptive.DecreaseFactor(curve)*100+5)
	}
	require.InDelta(t, 100, adaptive.RateAt(adaptive.Cubic{}, 100, math.Cbrt(100*.3/.4)), 1e-9)
}

// A rate for which no caller waits does not increase, and neither does it during a pause.
func TestLimiter_doesNotRaiseTheRateWhileIdle(t *testing.T) {
	p := newPacer(t, adaptive.Config{})
	p.work(10*time.Millisecond, 10*time.Second)
	p.reject(throttle.Feedback{})
	before := p.l.Rate()
	p.now = p.now.Add(200 * time.Millisecond)
	p.work(16*time.Millisecond, time.Minute) // no claim waits
	require.InDelta(t, before, p.l.Rate(), 1e-9)
	p.now = p.now.Add(time.Hour)
	require.InDelta(t, before, p.l.Rate(), 1e-9)
	p.work(50*time.Millisecond, time.Minute) // 20 a second, of 70
	require.LessOrEqual(t, p.l.Rate(), 40.5)
	require.GreaterOrEqual(t, p.l.Rate(), 39.)
	p.sent = 0
	p.work(time.Microsecond, 500*time.Millisecond)
	require.LessOrEqual(t, p.sent, 40, "not more than twice what was sent")
	p.work(time.Microsecond, 3*time.Second)
	require.Greater(t, p.l.Rate(), 70.)
}

func TestLimiter_neverFallsBelowMinRate(t *testing.T) {
	p := newPacer(t, adaptive.Config{InitialRate: 100})
	require.Equal(t, 100., p.l.Rate())
	for range 100 {
		p.reject(throttle.Feedback{})
	}
	require.Equal(t, .5, p.l.Rate())
	began := p.now
	p.reject(throttle.Feedback{RetryAfter: time.Minute})
	require.LessOrEqual(t, p.now.Sub(began), 2*time.Second)
	began = p.now
	p.work(0, time.Second)
	require.Equal(t, 62*time.Second, p.now.Sub(began), "its own RetryAfter, then the pace")
}

// A Curve that returns NaN leaves the lowest rate.
func TestLimiter_rateIsANumber(t *testing.T) {
	for name, curve := range map[string]adaptive.Curve{"aimd": adaptive.AIMD{Step: math.NaN()}, "cubic": adaptive.Cubic{Scale: math.NaN()}} {
		p := newPacer(t, adaptive.Config{Curve: curve, InitialRate: 10})
		p.work(0, 5*time.Second)
		require.Equal(t, .5, p.l.Rate(), name)
		p.sent = 0
		p.work(0, 10*time.Second)
		require.GreaterOrEqual(t, p.sent, 5, name)
	}
}

// A claim granted before a cut returns no units after it, because the cut emptied the
// bucket.
func TestLimiter_cancelAfterADecreaseRefundsNothing(t *testing.T) {
	p := newPacer(t, adaptive.Config{InitialRate: 10, Burst: time.Second})
	before := reserve(t, p.l, throttle.Claim{Cost: 5})
	p.reject(throttle.Feedback{})
	wait := reserve(t, p.l, throttle.Claim{DryRun: true}).Wait
	p.l.Report(t.Context(), throttle.Claim{Cost: 5}, before, throttle.Feedback{State: throttle.Unused})
	p.l.Report(t.Context(), throttle.Claim{Cost: 5}, before, throttle.Feedback{Cost: 1})
	require.Equal(t, wait, reserve(t, p.l, throttle.Claim{DryRun: true}).Wait)
}

// A claim whose units were restored at a high rate returns none at a lower one.
func TestLimiter_cancelCountsTheHighestRate(t *testing.T) {
	p := newPacer(t, adaptive.Config{InitialRate: 100, Burst: time.Second})
	old := reserve(t, p.l, throttle.Claim{Cost: 60})
	p.now = p.now.Add(10 * time.Second)
	p.work(time.Second, 3*time.Second)
	require.Less(t, p.l.Rate(), 20.)
	rest := reserve(t, p.l, throttle.Claim{DryRun: true}).Remaining
	require.True(t, reserve(t, p.l, throttle.Claim{Cost: rest}).OK)
	p.l.Report(t.Context(), throttle.Claim{Cost: 60}, old, throttle.Feedback{State: throttle.Unused})
	require.Zero(t, reserve(t, p.l, throttle.Claim{DryRun: true}).Remaining)
}

// A canceled claim was not sent and does not show what the server accepts.
func TestLimiter_doesNotCountCancelledClaims(t *testing.T) {
	p := newPacer(t, adaptive.Config{})
	for range 1000 {
		p.l.Report(t.Context(), throttle.Claim{}, reserve(t, p.l, throttle.Claim{}), throttle.Feedback{State: throttle.Unused})
	}
	for range 9 {
		reserve(t, p.l, throttle.Claim{})
	}
	p.reject(throttle.Feedback{})
	require.InDelta(t, .7*10/.5, p.l.Rate(), 1e-9)
}

// Independent clients of the same server all get a share of its limit.
func TestLimiter_sharesFairly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := throttle.NewTokenBucket(throttle.Limit{Count: 40, Per: time.Second, Burst: 5})
		var got [4]int64
		var wg sync.WaitGroup
		for i := range got {
			wg.Go(func() {
				own := adaptive.New(adaptive.Config{Curve: adaptive.AIMD{}, InitialRate: float64(5 + 10*i)})
				got[i], _ = runCallers(t, server, own, 10, time.Duration(40+i)*time.Millisecond, 5*time.Minute)
			})
		}
		wg.Wait()
		t.Log(got)
		for _, n := range got {
			require.Greater(t, n, int64(5*60*40/4/2))
		}
	})
}

func TestConfig_validate(t *testing.T) {
	for _, a := range []adaptive.Config{{InitialRate: -1}, {MinRate: math.NaN()}, {MaxRate: .1}, {Burst: -1}, {MinRate: 1e-9},
		{Curve: adaptive.Cubic{Beta: 1}}, {Curve: adaptive.AIMD{Beta: -1}}} {
		require.Error(t, a.Validate())
		require.Panics(t, func() { adaptive.New(a) })
	}
}

// A claim that was not granted has no outcome.
func TestLimiter_ignoresTheOutcomeOfRejectedClaims(t *testing.T) {
	p := newPacer(t, adaptive.Config{InitialRate: 1, Burst: time.Second})
	reserve(t, p.l, throttle.Claim{})
	rejected := reserve(t, p.l, throttle.Claim{})
	require.False(t, rejected.OK)
	rate := p.l.Rate()
	p.l.Report(t.Context(), throttle.Claim{}, rejected, throttle.Feedback{Now: p.now, Outcome: throttle.Throttled})
	require.Equal(t, rate, p.l.Rate())
	require.Equal(t, rejected.Wait, reserve(t, p.l, throttle.Claim{DryRun: true}).Wait)
}

// A cost of one unit more than claimed delays the next claim by one unit.
func TestLimiter_observeSettlesOneUnit(t *testing.T) {
	p := newPacer(t, adaptive.Config{InitialRate: 10, Burst: time.Second})
	d := reserve(t, p.l, throttle.Claim{Cost: 4})
	left := reserve(t, p.l, throttle.Claim{DryRun: true}).Remaining
	p.l.Report(t.Context(), throttle.Claim{Cost: 4}, d, throttle.Feedback{Now: p.now, Cost: 5})
	require.Equal(t, left-1, reserve(t, p.l, throttle.Claim{DryRun: true}).Remaining)
}
