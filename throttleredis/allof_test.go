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
// In memory a limit that granted what a later one refused has to be given its units back,
// and keeps the reading of the clock, a window that has opened, or what was rounded. In
// Redis it has never been touched. So limits that show it come last here, and time does
// not run back.
func TestAllOf_decidesAsInMemory(t *testing.T) {
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 4))
		clk := &wall{now: began}
		s := fresh(t)
		s.onLocalClock, s.Clock = true, clk
		g := &game{T: t, seed: seed, r: r, clk: clk, locals: map[string]throttle.Limiter{}, forward: true}
		chosen := choose(r)
		var limits []*Limiter
		for _, p := range chosen {
			limits = append(limits, p.remote(s).(*Limiter))
			g.most, g.pace = max(g.most, min(p.most, 20)), max(g.pace, min(p.pace, time.Second))
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
				g.pass()
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
func choose(r *rand.Rand) (chosen []pair) {
	var last []pair
	all := pairs()
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, p := range all[:3+r.IntN(3)] {
		switch {
		case strings.HasPrefix(p.name, "Penalty"), strings.HasPrefix(p.name, "TickQueue"): // they need a MaxWait, or are made of several
		case !p.paysLater && !strings.HasPrefix(p.name, "Nginx") && p.name != "FixedWindow, first":
			chosen = append(chosen, p)
		case len(last) == 0:
			last = append(last, p)
		}
	}
	return append(chosen, last...)
}

func TestAllOf_takesNothingUnlessAllGrant(t *testing.T) {
	s := fresh(t)
	a := s.TokenBucket(throttle.Limit{Name: "a", Count: 5, Per: time.Hour})
	b := s.FixedWindow(throttle.Quota{Name: "b", Count: 3, Per: 24 * 365 * time.Hour})
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
	s := fresh(t)
	both := AllOf(s.FixedWindow(throttle.Quota{Count: 3, Per: 24 * 365 * time.Hour}), s.InFlight(throttle.Capacity{Count: 3, MaxAge: time.Hour}))
	a, b := take(t, both, ""), take(t, both, "")
	require.True(t, a.OK && b.OK)
	for range 3 {
		both.Cancel(t.Context(), throttle.Claim{}, a)
	}
	require.Equal(t, int64(1), take(t, both, "").Remaining)
}

func TestAllOf_panicsOnWhatCannotWork(t *testing.T) {
	s, other := fresh(t), fresh(t)
	l := throttle.PerSecond(1)
	require.PanicsWithValue(t, "throttleredis: AllOf: there is no limit: use throttle.Unlimited for none", func() { AllOf() })
	require.PanicsWithValue(t, "throttleredis: AllOf: limit 1 is nil: leave it out", func() { AllOf(s.TokenBucket(l), nil) })
	require.PanicsWithValue(t, "throttleredis: AllOf: limit 1 is of another Store: use throttle.AllOf", func() { AllOf(s.TokenBucket(l), other.TokenBucket(l)) })
	require.PanicsWithValue(t, "throttleredis: AllOf: limit 1 is there twice: leave it out, or give it another Name", func() { AllOf(s.TokenBucket(l), s.TokenBucket(l)) })
}

func take(t *testing.T, l throttle.Limiter, key string) throttle.Decision {
	d, err := l.Reserve(t.Context(), throttle.Claim{Key: key})
	require.NoError(t, err)
	return d
}
