package rate_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	xrate "golang.org/x/time/rate"

	"github.com/heed-go/heed/rate"
)

// differing lists the tests of golang.org/x/time/rate that do not hold for this package: the
// first assertion that fails, and why. All of them are differences of the package comment.
var differing = map[string]struct{ failure, reason string }{
	"TestLimiterJumpBackwards":  {"step 9: tokens at t1: 0, want 1", "an older time counts as the latest one, so that no time is credited twice"},
	"TestReserveJumpBack":       {"step 1: reserve at t0: t2, want t1", "an older time counts as the latest one"},
	"TestReserveJumpBackCancel": {"step 4: reserve at t1: t5, want t4", "a Cancel with an older time counts as made at the latest one"},
	"TestReserveSetBurst":       {"step 3: reserve at t0: t12, want t9", "a time before the change of the burst counts as that of the change"},
	"TestCancelTooLate":         {"step 3: reserve at t3: t3, want t4", "a late Cancel returns the unit that time has not restored"},
	"TestReserveSetLimitCancel": {"step 4: reserve at t2: t5, want t3", "a Cancel across a change of the limit returns nothing"},
}

// Each test of golang.org/x/time/rate v0.15.0, rewritten from its assertions, holds for
// x/time/rate itself, and for this package unless it is listed in differing.
func TestXTime_testsOfTheOriginal(t *testing.T) {
	require.Len(t, originalTests, 29+3+5, "tests of Limiter, tests of Sometimes, examples of Sometimes")
	passed := 0
	for name, test := range originalTests {
		require.NoError(t, bubble(t, name, test, theirAPI), "x/time/rate: %s", name)
		err := bubble(t, name, test, ourAPI)
		if want, ok := differing[name]; ok {
			require.EqualError(t, err, want.failure, "%s: %s", name, want.reason)
			continue
		}
		require.NoError(t, err, name)
		passed++
	}
	require.Equal(t, 31, passed)
}

// Every exported method of x/time/rate exists with the same signature. The types of both
// packages have the same names.
func TestXTime_sameAPI(t *testing.T) {
	for _, pair := range [][2]any{
		{xrate.NewLimiter, rate.NewLimiter}, {xrate.Every, rate.Every},
		{(*xrate.Limiter)(nil), (*rate.Limiter)(nil)},
		{(*xrate.Reservation)(nil), (*rate.Reservation)(nil)},
		{(*xrate.Sometimes)(nil), (*rate.Sometimes)(nil)},
	} {
		theirs, ours := reflect.TypeOf(pair[0]), reflect.TypeOf(pair[1])
		require.Equal(t, theirs.String(), ours.String())
		for i := range theirs.NumMethod() {
			m := theirs.Method(i)
			o, ok := ours.MethodByName(m.Name)
			require.True(t, ok, "%v.%s", theirs, m.Name)
			require.Equal(t, m.Type.String(), o.Type.String(), m.Name)
		}
	}
	require.Equal(t, float64(xrate.Inf), float64(rate.Inf))
	require.Equal(t, xrate.InfDuration, rate.InfDuration)
	const limit rate.Limit = rate.Inf // a constant, as there
	require.Equal(t, reflect.Float64, reflect.TypeOf(limit).Kind())
	_ = rate.Sometimes{First: 1, Every: 2, Interval: time.Second}
}

// bubble runs a test in a bubble of its own, where time passes only while it waits.
func bubble(t *testing.T, name string, test func(api) error, a api) (err error) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(*testing.T) { err = test(a) })
	})
	return err
}

// An api is one of the two packages.
type api struct {
	newLimiter func(limit float64, burst int) limiter
	every      func(time.Duration) float64
	inf        float64
	sometimes  func(first, every int, interval time.Duration) interface{ Do(func()) }
}

type limiter interface {
	Allow() bool
	AllowN(now time.Time, n int) bool
	TokensAt(now time.Time) float64
	SetBurstAt(now time.Time, burst int)
	WaitN(ctx context.Context, n int) error

	setLimitAt(now time.Time, limit float64)
	reserveN(now time.Time, n int) reservation
}

type reservation interface {
	OK() bool
	DelayFrom(now time.Time) time.Duration
	CancelAt(now time.Time)
}

type ours struct{ *rate.Limiter }

func (l ours) setLimitAt(now time.Time, limit float64)   { l.SetLimitAt(now, rate.Limit(limit)) }
func (l ours) reserveN(now time.Time, n int) reservation { return l.ReserveN(now, n) }

type theirs struct{ *xrate.Limiter }

func (l theirs) setLimitAt(now time.Time, limit float64)   { l.SetLimitAt(now, xrate.Limit(limit)) }
func (l theirs) reserveN(now time.Time, n int) reservation { return l.ReserveN(now, n) }

var (
	ourAPI = api{
		func(limit float64, burst int) limiter { return ours{rate.NewLimiter(rate.Limit(limit), burst)} },
		func(d time.Duration) float64 { return float64(rate.Every(d)) },
		float64(rate.Inf),
		func(first, every int, interval time.Duration) interface{ Do(func()) } {
			return &rate.Sometimes{First: first, Every: every, Interval: interval}
		},
	}
	theirAPI = api{
		func(limit float64, burst int) limiter { return theirs{xrate.NewLimiter(xrate.Limit(limit), burst)} },
		func(d time.Duration) float64 { return float64(xrate.Every(d)) },
		float64(xrate.Inf),
		func(first, every int, interval time.Duration) interface{ Do(func()) } {
			return &xrate.Sometimes{First: first, Every: every, Interval: interval}
		},
	}
)

// A step is one call of a Limiter, with times in multiples of 100 ms: t0, t1 and so on.
type step struct {
	at   int
	call string // allow, reserve, reserve within t1, cancel, tokens, limit or burst
	n    int    // units; for cancel, the number of the reservation; for limit and burst, the new value
	want string // yes, no, a number of tokens, or the time at which a reservation acts
}

// script returns the test that makes the calls of steps, the first of which creates the
// limiter.
func script(limit float64, burst int, steps ...step) func(api) error {
	return func(a api) error {
		l, start := a.newLimiter(limit, burst), time.Now()
		var made []reservation
		for i, s := range steps {
			got, now := "", start.Add(time.Duration(s.at)*tenth)
			switch s.call {
			case "allow":
				got = yesNo(l.AllowN(now, s.n))
			case "tokens":
				got = fmt.Sprint(l.TokensAt(now))
			case "reserve", "reserve within t1":
				r := l.reserveN(now, s.n)
				got = acts(r, now, start)
				if r.OK() && s.call != "reserve" && r.DelayFrom(now) > tenth {
					r.CancelAt(now)
					got = "no"
				}
				made = append(made, r)
			case "cancel":
				made[s.n].CancelAt(now)
			case "limit":
				l.setLimitAt(now, float64(s.n))
			case "burst":
				l.SetBurstAt(now, s.n)
			}
			if got != s.want {
				return fmt.Errorf("step %d: %s at t%d: %s, want %s", i, s.call, s.at, got, s.want)
			}
		}
		return nil
	}
}

const tenth = 100 * time.Millisecond

func yesNo(ok bool) string {
	if ok {
		return "yes"
	}
	return "no"
}

// acts returns the time from which r may be used.
func acts(r reservation, now, start time.Time) string {
	if !r.OK() {
		return "no"
	}
	at := now.Add(r.DelayFrom(now)).Sub(start)
	return fmt.Sprintf("t%d", at.Round(tenth)/tenth)
}

// A waitCall is a call of WaitN.
type waitCall struct {
	ctx   context.Context
	n     int
	fails bool
	takes int // tenths of a second
}

func (w waitCall) run(l limiter) error {
	start := time.Now()
	err := l.WaitN(w.ctx, w.n)
	if took := time.Since(start).Round(tenth) / tenth; w.fails != (err != nil) || int(took) != w.takes {
		return fmt.Errorf("WaitN(%d) took t%d: %v, want t%d, error: %v", w.n, took, err, w.takes, w.fails)
	}
	return nil
}

// waits makes the calls one after another.
func waits(l limiter, calls ...waitCall) error {
	for _, w := range calls {
		if err := w.run(l); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error with the text if ok is false.
func check(ok bool, text string) error {
	if !ok {
		return errors.New(text)
	}
	return nil
}

// originalTests are the tests of golang.org/x/time/rate by name.
var originalTests = map[string]func(api) error{
	"TestLimit": func(a api) error { return check(a.inf != 10, "10 is infinite") },

	"TestEvery": func(a api) error {
		for interval, want := range map[time.Duration]float64{
			0: a.inf, -1: a.inf,
			1: 1e9, time.Microsecond: 1e6, time.Millisecond: 1e3, 10 * time.Millisecond: 100, tenth: 10,
			time.Second: 1, 2 * time.Second: .5, 2500 * time.Millisecond: .4, 4 * time.Second: .25, 10 * time.Second: .1,
			math.MaxInt64: 1e9 / float64(math.MaxInt64),
		} {
			if got := a.every(interval); math.Abs(got/want-1) > 1e-9 {
				return fmt.Errorf("Every(%v) = %g, want %g", interval, got, want)
			}
		}
		return nil
	},

	"TestLimiterBurst1": script(10, 1,
		step{0, "tokens", 0, "1"}, step{0, "allow", 1, "yes"}, step{0, "tokens", 0, "0"},
		step{0, "allow", 1, "no"}, step{0, "allow", 1, "no"},
		step{1, "tokens", 0, "1"}, step{1, "allow", 1, "yes"}, step{1, "allow", 1, "no"}, step{1, "allow", 1, "no"},
		step{2, "tokens", 0, "1"}, step{2, "allow", 2, "no"}, step{2, "tokens", 0, "1"},
		step{2, "allow", 1, "yes"}, step{2, "allow", 1, "no"}, step{2, "tokens", 0, "0"}),

	"TestLimiterBurst3": script(10, 3,
		step{0, "tokens", 0, "3"}, step{0, "allow", 2, "yes"}, step{0, "tokens", 0, "1"},
		step{0, "allow", 2, "no"}, step{0, "allow", 1, "yes"}, step{0, "tokens", 0, "0"}, step{0, "allow", 1, "no"},
		step{1, "tokens", 0, "1"}, step{1, "allow", 4, "no"},
		step{2, "tokens", 0, "2"}, step{2, "allow", 1, "yes"},
		step{3, "tokens", 0, "2"}, step{3, "allow", 1, "yes"},
		step{4, "tokens", 0, "2"}, step{4, "allow", 1, "yes"}, step{4, "tokens", 0, "1"}, step{4, "allow", 1, "yes"},
		step{4, "tokens", 0, "0"}, step{4, "allow", 1, "no"}, step{4, "allow", 1, "no"},
		step{9, "tokens", 0, "3"}, step{9, "allow", 3, "yes"}, step{9, "tokens", 0, "0"}, step{9, "allow", 0, "yes"}),

	"TestLimiterJumpBackwards": script(10, 3,
		step{1, "tokens", 0, "3"}, step{1, "allow", 1, "yes"},
		step{0, "tokens", 0, "2"}, step{0, "allow", 1, "yes"}, step{0, "tokens", 0, "1"}, step{0, "allow", 1, "yes"},
		step{0, "tokens", 0, "0"}, step{0, "allow", 1, "no"}, step{0, "allow", 1, "no"},
		step{1, "tokens", 0, "1"}, step{1, "allow", 1, "yes"}, step{1, "allow", 1, "no"}, step{1, "allow", 1, "no"},
		step{2, "tokens", 0, "1"}, step{2, "allow", 1, "yes"}, step{2, "allow", 1, "no"}, step{2, "allow", 1, "no"}),

	"TestLimiter/noTruncationErrors": func(a api) error {
		return check(a.newLimiter(0.7692307692307693, 1).Allow(), "the first unit is not allowed")
	},

	"TestSimultaneousRequests": func(a api) error {
		l := a.newLimiter(1, 5)
		var granted atomic.Int32
		var wg sync.WaitGroup
		for range 15 {
			wg.Go(func() {
				if l.Allow() {
					granted.Add(1)
				}
			})
		}
		wg.Wait()
		return check(granted.Load() == 5, "not 5 of 15 were allowed")
	},

	"TestLongRunningQPS": func(a api) error {
		l, start, granted := a.newLimiter(100, 100), time.Now(), 0.0
		for at := time.Duration(0); at < 5*time.Second; at += 2 * time.Millisecond {
			if l.AllowN(start.Add(at), 1) {
				granted++
			}
		}
		return check(granted <= 601 && granted >= 599, fmt.Sprintf("%v were allowed in 5 s", granted))
	},

	"TestSimpleReserve": script(10, 2,
		step{0, "reserve", 2, "t0"}, step{0, "reserve", 2, "t2"}, step{3, "reserve", 2, "t4"}),

	"TestMix": script(10, 2,
		step{0, "reserve", 3, "no"}, step{0, "reserve", 2, "t0"},
		step{1, "tokens", 0, "1"}, step{1, "allow", 2, "no"}, step{1, "reserve", 2, "t2"},
		step{1, "tokens", 0, "-1"}, step{1, "allow", 1, "no"}, step{3, "tokens", 0, "1"}, step{3, "allow", 1, "yes"}),

	"TestCancelInvalid": script(10, 2,
		step{0, "reserve", 2, "t0"}, step{0, "reserve", 3, "no"}, step{0, "cancel", 1, ""}, step{0, "reserve", 2, "t2"}),

	"TestCancelLast": script(10, 2,
		step{0, "reserve", 2, "t0"}, step{0, "reserve", 2, "t2"}, step{1, "cancel", 1, ""}, step{1, "reserve", 2, "t2"}),

	"TestCancelTooLate": script(10, 2,
		step{0, "reserve", 2, "t0"}, step{0, "reserve", 2, "t2"}, step{3, "cancel", 1, ""}, step{3, "reserve", 2, "t4"}),

	"TestCancel0Tokens": script(10, 2,
		step{0, "reserve", 2, "t0"}, step{0, "reserve", 1, "t1"}, step{0, "reserve", 1, "t2"},
		step{0, "cancel", 1, ""}, step{0, "reserve", 1, "t3"}),

	"TestCancel1Token": script(10, 2,
		step{0, "reserve", 2, "t0"}, step{0, "reserve", 2, "t2"}, step{0, "reserve", 1, "t3"},
		step{2, "cancel", 1, ""}, step{2, "reserve", 2, "t4"}),

	"TestCancelMulti": script(10, 4,
		step{0, "reserve", 4, "t0"}, step{0, "reserve", 3, "t3"}, step{0, "reserve", 1, "t4"}, step{0, "reserve", 1, "t5"},
		step{1, "cancel", 3, ""}, step{1, "cancel", 1, ""}, step{1, "reserve", 3, "t5"}),

	"TestReserveJumpBack": script(10, 2,
		step{1, "reserve", 2, "t1"}, step{0, "reserve", 1, "t1"}, step{2, "reserve", 2, "t3"},
		step{0, "reserve", 3, "no"}, step{2, "reserve", 1, "t4"},
		step{2, "reserve within t1", 2, "no"}, step{2, "reserve", 1, "t5"}),

	"TestReserveJumpBackCancel": script(10, 2,
		step{1, "reserve", 2, "t1"}, step{1, "reserve", 2, "t3"}, step{1, "reserve", 1, "t4"},
		step{0, "cancel", 1, ""}, step{1, "reserve", 2, "t4"}),

	"TestReserveSetLimit": script(5, 2,
		step{0, "reserve", 2, "t0"}, step{0, "reserve", 2, "t4"}, step{2, "limit", 10, ""}, step{2, "reserve", 1, "t4"}),

	"TestReserveSetBurst": script(5, 2,
		step{0, "reserve", 2, "t0"}, step{0, "reserve", 2, "t4"}, step{3, "burst", 4, ""}, step{0, "reserve", 4, "t9"}),

	"TestReserveSetLimitCancel": script(5, 2,
		step{0, "reserve", 2, "t0"}, step{0, "reserve", 2, "t4"}, step{2, "limit", 10, ""},
		step{2, "cancel", 1, ""}, step{2, "reserve", 2, "t3"}),

	"TestReserveMax": script(10, 2,
		step{0, "reserve within t1", 2, "t0"}, step{0, "reserve within t1", 1, "t1"}, step{0, "reserve within t1", 1, "no"}),

	"TestWaitSimple": func(a api) error {
		done, cancel := context.WithCancel(context.Background())
		cancel()
		ctx := context.Background()
		return waits(a.newLimiter(10, 3), waitCall{done, 1, true, 0}, waitCall{ctx, 4, true, 0}, waitCall{ctx, 2, false, 0}, waitCall{ctx, 3, false, 2})
	},

	"TestWaitCancel": func(a api) error {
		l, ctx := a.newLimiter(10, 3), context.Background()
		ending, cancel := context.WithCancel(ctx)
		defer time.AfterFunc(tenth, cancel).Stop()
		return waits(l, waitCall{ending, 2, false, 0}, waitCall{ending, 3, true, 1}, waitCall{ctx, 2, false, 0})
	},

	"TestWaitTimeout": func(a api) error {
		ctx, cancel := context.WithTimeout(context.Background(), tenth)
		defer cancel()
		return waits(a.newLimiter(10, 3), waitCall{ctx, 2, false, 0}, waitCall{ctx, 3, true, 0})
	},

	"TestWaitInf": func(a api) error {
		return waits(a.newLimiter(a.inf, 0), waitCall{context.Background(), 3, false, 0})
	},

	"TestZeroLimit": func(a api) error {
		l := a.newLimiter(0, 1)
		return check(l.Allow() && !l.Allow(), "not 1 of 2 was allowed")
	},

	"TestSetAfterZeroLimit": func(a api) error {
		l := a.newLimiter(0, 1)
		if !l.Allow() || l.Allow() {
			return errors.New("not 1 of 2 was allowed")
		}
		l.setLimitAt(time.Now(), 10)
		return waits(l, waitCall{context.Background(), 1, false, 1})
	},

	"TestTinyLimit": func(a api) error {
		l := a.newLimiter(1e-10, 1)
		return check(l.Allow() && !l.Allow(), "not 1 of 2 was allowed")
	},

	// These assert only that nothing panics; the runs are those of x/time/rate.
	"TestSometimesZero":     occasions(0, 0, 0, "run", "skip"),
	"TestSometimesMax":      occasions(0, 0, math.MaxInt64, "run", "skip"),
	"TestSometimesNegative": occasions(0, 0, -1, "run", "skip"),

	"ExampleSometimes/once":     occasions(0, 0, 0, "run", "skip", "skip"),
	"ExampleSometimes/first":    occasions(2, 0, 0, "run", "run", "skip"),
	"ExampleSometimes/every":    occasions(0, 2, 0, "run", "skip", "run"),
	"ExampleSometimes/interval": occasions(0, 0, time.Second, "run", "skip", "pass 1s", "run"),
	"ExampleSometimes/mix":      occasions(2, 2, 2*time.Second, "run", "run", "run", "pass 2s", "run", "run", "skip"),
}

// occasions returns the test that calls Do for each run and skip of want.
func occasions(first, every int, interval time.Duration, want ...string) func(api) error {
	return func(a api) error {
		s := a.sometimes(first, every, interval)
		got := slices.Clone(want)
		for i, w := range want {
			if text, ok := strings.CutPrefix(w, "pass "); ok {
				d, err := time.ParseDuration(text)
				if err != nil {
					return err
				}
				time.Sleep(d)
				continue
			}
			got[i] = "skip"
			s.Do(func() { got[i] = "run" })
		}
		return check(slices.Equal(want, got), fmt.Sprintf("%v, want %v", got, want))
	}
}
