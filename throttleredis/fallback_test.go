package throttleredis

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A fakeRedis is a limiter that may be unreachable, like a limit on Redis.
type fakeRedis struct {
	throttle.Limiter

	mu               sync.Mutex
	err              error         // nil: it responds
	latency          time.Duration // of a response
	ignoresDeadlines bool          // it ignores the deadlines of contexts
	counts           callCounts
}

// callCounts are the numbers of calls that a fakeRedis received.
type callCounts struct{ calls, running, maxRunning, canceled, windows int }

func newFakeRedis() *fakeRedis {
	return &fakeRedis{Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 10, Per: time.Second, Burst: 20})}
}

func (r *fakeRedis) set(err error, takes time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err, r.latency = err, takes
}

func (r *fakeRedis) count(f func(*callCounts)) callCounts {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.counts)
	return r.counts
}

func (r *fakeRedis) callCounts() callCounts { return r.count(func(*callCounts) {}) }

// roundTrip waits for the latency, or until ctx is done.
func (r *fakeRedis) roundTrip(ctx context.Context) error {
	r.count(func(v *callCounts) {
		v.calls, v.running, v.maxRunning = v.calls+1, v.running+1, max(v.maxRunning, v.running+1)
	})
	defer r.count(func(v *callCounts) { v.running-- })
	r.mu.Lock()
	latency, ignoresDeadlines, err := r.latency, r.ignoresDeadlines, r.err
	r.mu.Unlock()
	if ignoresDeadlines {
		ctx = context.Background()
	}
	if latency <= 0 { // the race detector of Go 1.26 can crash on timers of a bubble that have expired
		return cmp.Or(ctx.Err(), err)
	}
	select {
	case <-time.After(latency):
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *fakeRedis) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	if err := r.roundTrip(ctx); err != nil {
		return throttle.Decision{}, err
	}
	return r.Limiter.Reserve(ctx, c)
}

func (r *fakeRedis) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		if r.roundTrip(ctx) == nil {
			r.count(func(v *callCounts) { v.canceled++ })
			r.Limiter.Report(ctx, c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		}
		return
	}
	if r.roundTrip(ctx) == nil {
		for _, w := range f.RemoteLimits {
			r.count(func(v *callCounts) { v.windows += int(w.Limit) })
		}
		r.Limiter.Report(ctx, c, d, f)
	}
}

func (r *fakeRedis) Share(processes, _ int) throttle.Limiter {
	l := throttle.Limit{Count: 10, Per: time.Second, Burst: 20}
	return throttle.NewTokenBucket(shareOf(l, int64(processes)))
}

// claim makes a claim, which must be decided within the timeout.
func claim(t *testing.T, f *Fallback, c throttle.Claim) throttle.Decision {
	start := time.Now()
	d, err := f.Reserve(t.Context(), c)
	assert.NoError(t, err)
	assert.LessOrEqual(t, time.Since(start), 50*time.Millisecond)
	return d
}

// All waits are in a synctest bubble and exact to the nanosecond.
func TestFallback_decidesInTimeWhateverIsWrong(t *testing.T) {
	for name, wrong := range map[string]func(*fakeRedis){
		"it refuses connections": func(r *fakeRedis) { r.err = errDown },
		"it responds too late":   func(r *fakeRedis) { r.latency = 200 * time.Millisecond },
		"it never responds":      func(r *fakeRedis) { r.latency = time.Hour },
		"nor looks at deadlines": func(r *fakeRedis) { r.latency, r.ignoresDeadlines = time.Hour, true },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newFakeRedis()
			f := &Fallback{Limiter: r, MaxCalls: 8}
			require.False(t, claim(t, f, throttle.Claim{}).Degraded, name)
			wrong(r)
			var wg sync.WaitGroup
			for range 100 {
				wg.Go(func() {
					for range 20 {
						d := claim(t, f, throttle.Claim{})
						assert.True(t, d.OK && d.Degraded, name)
						time.Sleep(10 * time.Millisecond)
					}
				})
			}
			wg.Wait()
			require.LessOrEqual(t, r.callCounts().maxRunning, 8, name)
			// 100 at the same time, and then one after each pause
			require.LessOrEqual(t, r.callCounts().calls, 130, name)

			r.set(nil, 0)
			time.Sleep(2 * time.Hour) // until the calls that ignore deadlines have ended
			require.False(t, claim(t, f, throttle.Claim{}).Degraded, name)
		})
	}
}

// Within a second of its recovery, Redis decides again.
func TestFallback_comesBackByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRedis()
		f := &Fallback{Limiter: r, Secondary: throttle.DenyAll}
		for _, away := range []time.Duration{time.Second, time.Minute, 10 * time.Minute} {
			r.set(errDown, time.Millisecond)
			for start := time.Now(); time.Since(start) < away; time.Sleep(10 * time.Millisecond) {
				d := claim(t, f, throttle.Claim{})
				require.True(t, d.Degraded && !d.OK)
				require.True(t, d.Wait > 0 && d.Wait <= 550*time.Millisecond, d.Wait)
			}
			r.set(nil, time.Millisecond)
			back := time.Now()
			for claim(t, f, throttle.Claim{DryRun: true}).Degraded {
				time.Sleep(10 * time.Millisecond)
			}
			require.Less(t, time.Since(back), 600*time.Millisecond)
		}
	})
}

// A grant that arrives after the timeout is cancelled.
func TestFallback_lateGrantIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRedis()
		f := &Fallback{Limiter: r}
		r.set(nil, 200*time.Millisecond)
		require.True(t, claim(t, f, throttle.Claim{Cost: 5}).Degraded)
		time.Sleep(time.Second)
		require.Equal(t, 1, r.callCounts().canceled)
		d, err := r.Limiter.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.NoError(t, err)
		require.EqualValues(t, 20, d.Remaining)
	})
}

func TestFallback_reportsWhyRedisDidNotDecide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRedis()
		var reported []error
		f := &Fallback{Limiter: r, OnError: func(err error) { reported = append(reported, err) }}
		r.set(nil, time.Second)
		for range 20 {
			claim(t, f, throttle.Claim{})
		}
		require.Len(t, reported, 5+1, "and not each time that nobody asked")
		require.ErrorIs(t, reported[0], ErrUncertain)
		time.Sleep(time.Minute)
	})
}

func TestFallback_grantsEndWhereTheyWereMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRedis()
		local := throttle.NewTokenBucket(throttle.PerHour(10))
		f := &Fallback{Limiter: r, Secondary: local}
		up := claim(t, f, throttle.Claim{Cost: 3})
		r.set(nil, time.Hour)
		down := claim(t, f, throttle.Claim{Cost: 2})
		require.True(t, !up.Degraded && down.Degraded)

		start := time.Now()
		f.Report(t.Context(), throttle.Claim{Cost: 3}, up, throttle.Feedback{State: throttle.Unused})
		require.Equal(t, 50*time.Millisecond, time.Since(start), "as long as it is not known")
		for range 4 {
			claim(t, f, throttle.Claim{})
		}
		start = time.Now()
		f.Report(t.Context(), throttle.Claim{Cost: 3}, up, throttle.Feedback{State: throttle.Unused})
		f.Report(t.Context(), throttle.Claim{Cost: 3}, up, throttle.Feedback{})
		require.Zero(t, time.Since(start), "and then no time at all")

		d, err := local.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.NoError(t, err)
		require.EqualValues(t, 10-2-4, d.Remaining, "none of it went to the stand-in")
		f.Report(t.Context(), throttle.Claim{Cost: 2}, down, throttle.Feedback{State: throttle.Unused})
		d, err = local.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.NoError(t, err)
		require.EqualValues(t, 10-4, d.Remaining)
		time.Sleep(time.Minute)
	})
}

// Claims that end while Redis is unreachable are ended in Redis when it has recovered, one
// after the other, up to MaxCalls of them. If Redis fails again in the meantime, the others
// wait.
func TestFallback_endsAreSentLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRedis()
		r.Limiter = throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 20})
		f := &Fallback{Limiter: r, MaxCalls: 12}
		var held []throttle.Decision
		for range 20 {
			held = append(held, claim(t, f, throttle.Claim{}))
		}
		goes := func() {
			r.set(errDown, 0)
			for range 10 {
				claim(t, f, throttle.Claim{})
			}
		}
		left := func() int64 {
			time.Sleep(time.Minute)
			claim(t, f, throttle.Claim{DryRun: true}) // is sent, and starts the deferred ends
			claim(t, f, throttle.Claim{DryRun: true})
			time.Sleep(35 * time.Millisecond)
			d, err := r.Limiter.Reserve(t.Context(), throttle.Claim{DryRun: true})
			require.NoError(t, err)
			return d.Remaining
		}
		goes()
		for _, d := range held {
			f.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{})
		}
		r.set(nil, 10*time.Millisecond)
		require.EqualValues(t, 4, left(), "one every 10 ms, since the first claim")
		goes()
		require.EqualValues(t, 5, left(), "one was on its way")
		r.set(nil, 0)
		require.EqualValues(t, 12, left())
	})
}

// The caller of Observe may reuse its slice of limits when Observe has returned.
func TestFallback_keepsNoWindowsOfItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRedis()
		f := &Fallback{Limiter: r}
		d := claim(t, f, throttle.Claim{})
		r.set(nil, 100*time.Millisecond)
		windows := []throttle.RemoteLimit{{Limit: 3}}
		f.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{RemoteLimits: windows})
		clear(windows)
		time.Sleep(time.Second)
		require.Equal(t, 3, r.callCounts().windows)
	})
}

// Errors caused by the caller are not failures of Redis, and Secondary does not decide on
// them.
func TestFallback_callersErrorsStayErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRedis()
		b := new(Breaker)
		f := &Fallback{Limiter: r, Breaker: b, OnError: func(err error) { t.Error(err) }}
		for range 10 {
			_, err := f.Reserve(t.Context(), throttle.Claim{Cost: -1})
			require.Equal(t, throttle.ErrCost, err)
		}
		require.Zero(t, r.callCounts().calls)
		why := errors.New("the user has left")
		ctx, cancel := context.WithCancelCause(t.Context())
		r.set(nil, time.Second)
		time.AfterFunc(10*time.Millisecond, func() { cancel(why) })
		start := time.Now()
		for range 10 {
			_, err := f.Reserve(ctx, throttle.Claim{})
			require.Equal(t, why, err)
		}
		require.Equal(t, 10*time.Millisecond, time.Since(start))
		require.Equal(t, 1, r.callCounts().calls)
		time.Sleep(time.Minute)
		require.False(t, b.Open())
	})
}

// A Redis that returns an error is reachable: Secondary decides on each such claim, but the
// next claim is sent.
func TestFallback_errorRepliesDoNotOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, b := newFakeRedis(), new(Breaker)
		r.err = wrapError(serverError("OOM command not allowed when used memory > 'maxmemory'."), true)
		f := &Fallback{Limiter: r, Breaker: b}
		for range 20 {
			require.True(t, claim(t, f, throttle.Claim{}).Degraded)
		}
		require.False(t, b.Open())
		require.Equal(t, 20, r.callCounts().calls)
	})
}

// A serverError is an error reply of Redis.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

var _ redis.Error = serverError("")

func TestFallback_Validate(t *testing.T) {
	require.ErrorContains(t, (&Fallback{}).Validate(), "Limiter is nil")
	require.ErrorContains(t, (&Fallback{Limiter: newFakeRedis(), Processes: -1}).Validate(), "Processes is -1")
	require.ErrorContains(t, (&Fallback{Limiter: throttle.DenyAll, Processes: 2}).Validate(), "set Secondary")
	require.NoError(t, (&Fallback{Limiter: throttle.DenyAll, Processes: 2, Secondary: throttle.DenyAll}).Validate())
	require.Panics(t, func() { _, _ = (&Fallback{}).Reserve(t.Context(), throttle.Claim{}) })
}

// TestFallback_reportsWhatDecidesInstead has each kind of Secondary, and a Redis that is down.
func TestFallback_reportsWhatDecidesInstead(t *testing.T) {
	for want, f := range map[string]*Fallback{
		"open":      {},
		"share":     {Processes: 4},
		"closed":    {Secondary: throttle.DenyAll},
		"secondary": {Secondary: throttle.NewTokenBucket(throttle.PerHour(5))},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newFakeRedis()
			var modes []string
			var errs []error
			f.Limiter = r
			f.OnDegraded = func(mode string, err error) { modes, errs = append(modes, mode), append(errs, err) }
			claim(t, f, throttle.Claim{})
			require.Empty(t, modes, "Redis decides")
			r.set(errDown, 0)
			for range 7 {
				claim(t, f, throttle.Claim{})
			}
			require.Equal(t, slices.Repeat([]string{want}, 7), modes)
			require.ErrorIs(t, errs[0], errDown)
			require.ErrorIs(t, errs[6], ErrOpen, "the breaker is open after five failures, and a probe")
		})
	}
}

// panickyRedis panics after latency, as a limiter does whose hook panics.
type panickyRedis struct {
	latency time.Duration
	panics  atomic.Bool
}

func (p *panickyRedis) call() {
	time.Sleep(p.latency)
	if p.panics.Load() {
		panic("hook")
	}
}

func (p *panickyRedis) Reserve(context.Context, throttle.Claim) (throttle.Decision, error) {
	p.call()
	return throttle.Decision{OK: true}, nil
}

func (p *panickyRedis) Report(_ context.Context, _ throttle.Claim, _ throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		p.call()
	}
}

// Traits implements throttle.Limiter.
func (*panickyRedis) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

// A panic is raised by the call that waits for it, and otherwise reported to OnError. It leaves the
// Fallback usable.
func TestFallback_panicsReachTheCallerOrOnError(t *testing.T) {
	for _, latency := range []time.Duration{time.Millisecond, 49 * time.Millisecond, 51 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			r := &panickyRedis{latency: latency}
			r.panics.Store(true)
			var mu sync.Mutex
			var reported []string
			f := &Fallback{Limiter: r, MaxCalls: 2, Breaker: &Breaker{Failures: 100}, OnError: func(err error) {
				mu.Lock()
				defer mu.Unlock()
				if !errors.Is(err, ErrUncertain) {
					reported = append(reported, err.Error())
				}
				panic("OnError") // also in the background
			}}
			raised := func(call func()) (v any) {
				defer func() { v = recover() }()
				call()
				return nil
			}
			for range 4 {
				reserve := raised(func() { _, _ = f.Reserve(t.Context(), throttle.Claim{}) })
				cancel := raised(func() {
					f.Report(t.Context(), throttle.Claim{}, throttle.Decision{OK: true}, throttle.Feedback{State: throttle.Unused})
				})
				if latency < 50*time.Millisecond {
					require.Equal(t, []any{"hook", "hook"}, []any{reserve, cancel})
				} else {
					require.Equal(t, []any{"OnError", nil}, []any{reserve, cancel}, "OnError gets ErrUncertain")
				}
				time.Sleep(2 * time.Second)
			}
			synctest.Wait()
			if latency < 50*time.Millisecond {
				require.Empty(t, reported)
			} else {
				require.Equal(t, slices.Repeat([]string{"throttleredis: a limiter or hook panicked: hook"}, 8), reported)
			}
			r.panics.Store(false)
			r.latency = 0
			f.OnError = nil
			require.False(t, claim(t, f, throttle.Claim{}).Degraded)
		})
	}
}

// A probe whose caller gets a panic does not leave the Breaker open for good.
func TestFallback_aProbeMayPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRedis()
		p := &panickyRedis{}
		breaker := &Breaker{Failures: 1}
		f := &Fallback{Limiter: r, Breaker: breaker}
		r.set(errDown, 0)
		claim(t, f, throttle.Claim{})
		require.True(t, breaker.Open())
		time.Sleep(time.Minute)
		p.panics.Store(true)
		other := &Fallback{Limiter: p, Breaker: breaker}
		require.PanicsWithValue(t, "hook", func() { _, _ = other.Reserve(t.Context(), throttle.Claim{}) })
		r.set(nil, 0)
		time.Sleep(time.Minute)
		require.False(t, claim(t, f, throttle.Claim{}).Degraded)
		require.False(t, breaker.Open())
	})
}

// Ends that were kept during an outage, and hooks of a Breaker, may panic in the background.
func TestFallback_panicsInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRedis()
		var reported []string
		panicking := false
		f := &Fallback{Limiter: endsPanic{r, &panicking}, Breaker: &Breaker{Failures: 1, Trace: &BreakerTrace{Opened: func(error) { panic("opened") }}}, OnError: func(err error) {
			if !errors.Is(err, ErrUncertain) {
				reported = append(reported, err.Error())
			}
		}}
		held := claim(t, f, throttle.Claim{})
		r.set(nil, time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // the rest of the timeout is waited for in the background
		defer cancel()
		_, _ = f.Reserve(ctx, throttle.Claim{})
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"throttleredis: a limiter or hook panicked: opened"}, reported)
		require.True(t, f.Breaker.Open())
		f.Report(t.Context(), throttle.Claim{}, held, throttle.Feedback{State: throttle.Unused}) // kept
		time.Sleep(2 * time.Hour)                                                                // until the first call has ended
		synctest.Wait()
		panicking = true
		r.set(nil, 0)
		require.False(t, claim(t, f, throttle.Claim{}).Degraded)
		synctest.Wait()
		require.Equal(t, "throttleredis: a limiter or hook panicked: end", reported[len(reported)-1])
	})
}

// endsPanic is a Redis whose Cancel panics.
type endsPanic struct {
	*fakeRedis
	panics *bool
}

func (e endsPanic) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		if *e.panics {
			panic("end")
		}
		e.fakeRedis.Report(ctx, c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
	}
}

// Traits implements throttle.Limiter.
func (endsPanic) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }
