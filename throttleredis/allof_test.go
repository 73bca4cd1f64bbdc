package throttleredis

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// TestAllOf_decidesAsInMemory makes 1,200 random claims on random lists of limits.
//
// In memory, a limit that granted a claim that a later limit rejected gets its units back,
// but keeps the reading of the clock, an opened window, or a rounding. In Redis it does not
// change at all. Therefore limits with such effects are last in this test, and time does
// not run backwards.
func TestAllOf_decidesAsInMemory(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 4))
		clk := &manualClock{now: began}
		s := newTestStore(t)
		s.useLocalClock, s.Clock = true, clk
		g := &comparison{T: t, seed: seed, r: r, clk: clk, locals: map[string]throttle.Limiter{}, forward: true}
		chosen := choose(r)
		var limits []*Limiter
		for _, p := range chosen {
			limits = append(limits, p.remote(s).(*Limiter))
			g.maxCost, g.unitTime = max(g.maxCost, min(p.maxCost, 20)), max(g.unitTime, min(p.unitTime, time.Second))
			g.name += p.name + " + "
		}
		g.remote = AllOf(limits...)
		for _, key := range keys {
			var locals []throttle.Limiter
			for _, p := range chosen {
				locals = append(locals, p.local(clk))
			}
			g.locals[key] = throttle.AllOf(locals...)
		}
		t.Run(g.name, func(t *testing.T) {
			g.T = t
			for g.step = range 60 {
				g.advanceClock()
				if g.step%2 == 0 {
					g.claim()
				} else if len(g.held) > 0 {
					g.end()
				}
			}
		})
	}
}

// choose returns two to four pairs.
func choose(r *rand.Rand) (chosen []limiterPair) {
	var last []limiterPair
	all := pairs()
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, p := range all[:3+r.IntN(3)] {
		switch {
		// these need a MaxWait, or consist of several limits
		case strings.HasPrefix(p.name, "Penalty"), strings.HasPrefix(p.name, "TickQueue"):
		case !p.paysLater && !strings.HasPrefix(p.name, "Nginx") && p.name != "FixedWindow, first":
			chosen = append(chosen, p)
		case len(last) == 0:
			last = append(last, p)
		}
	}
	return append(chosen, last...)
}

func TestAllOf_takesNothingUnlessAllGrant(t *testing.T) {
	s := newTestStore(t)
	a := s.TokenBucket(throttle.Limit{Name: "a", Count: 5, Per: time.Hour})
	b := s.FixedWindow(throttle.FixedWindowConfig{Name: "b", Count: 3, Per: 24 * 365 * time.Hour})
	both := AllOf(a, b)
	for range 3 {
		require.True(t, take(t, both, "k").OK)
	}
	d := take(t, both, "k")
	require.False(t, d.OK)
	require.Equal(t, "b", d.Policy)
	left, err := a.Reserve(t.Context(), throttle.Claim{Key: "k", DryRun: true})
	require.NoError(t, err)
	require.Equal(t, int64(2), left.Remaining)
	require.True(t, take(t, both, "other").OK)
}

func TestAllOf_endsOnce(t *testing.T) {
	s := newTestStore(t)
	both := AllOf(s.FixedWindow(throttle.FixedWindowConfig{Count: 3, Per: 24 * 365 * time.Hour}), s.Concurrency(throttle.ConcurrencyConfig{Count: 3, MaxAge: time.Hour}))
	a, b := take(t, both, ""), take(t, both, "")
	require.True(t, a.OK && b.OK)
	for range 3 {
		both.Report(t.Context(), throttle.Claim{}, a, throttle.Feedback{State: throttle.Unused})
	}
	require.Equal(t, int64(1), take(t, both, "").Remaining)
}

func TestAllOf_panicsOnWhatCannotWork(t *testing.T) {
	s, other := newTestStore(t), newTestStore(t)
	one := s.TokenBucket(throttle.PerSecond(1))
	require.PanicsWithValue(t, "throttleredis: AllOf: there is no limit: use throttle.AllowAll for none", func() { AllOf() })
	require.PanicsWithValue(t, "throttleredis: AllOf: limit 1 is nil: leave it out", func() { AllOf(one, nil) })
	require.PanicsWithValue(t, "throttleredis: AllOf: limit 1 is of another Store: use throttle.AllOf", func() { AllOf(one, other.TokenBucket(throttle.PerSecond(1))) })
	require.PanicsWithValue(t, "throttleredis: AllOf: limit 1 is there twice: leave it out, or give it another Name", func() { AllOf(one, one) })
}

func take(t *testing.T, l throttle.Limiter, key string) throttle.Decision {
	d, err := l.Reserve(t.Context(), throttle.Claim{Key: key})
	require.NoError(t, err)
	return d
}
