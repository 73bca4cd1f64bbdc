package rate_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	xrate "golang.org/x/time/rate"

	"github.com/heed-go/heed/rate"
)

// Random calls at given times have the same results as with x/time/rate, where x/time/rate is
// right: time does not go back, no Reservation is canceled twice, late, after a change of the
// limit, or while x/time/rate does not know its last reservation, and no reservation is made
// that never acts.
func TestXTime_randomCalls(t *testing.T) {
	counts := map[string]int{}
	for seed := range uint64(500) {
		p := newPair(t, rand.New(rand.NewPCG(seed, 13)))
		for range 60 {
			counts[p.step()]++
		}
	}
	for _, call := range []string{"allow", "reserve", "cancel", "limit", "burst"} {
		require.Greater(t, counts[call], 500, call)
	}
}

// A pair is a Limiter of each package with the same history.
type pair struct {
	t      *testing.T
	rnd    *rand.Rand
	now    time.Time
	ours   *rate.Limiter
	theirs *xrate.Limiter
	booked []booked  // since the latest change of the limit
	former time.Time // the latest time at which a reservation acts that was made before it, or canceled

	tokens    float64   // the maximum difference of tokens: x/time/rate truncates times to nanoseconds
	lastEvent time.Time // the time at which the last reservation acts, as x/time/rate knows it
	stopped   time.Time // the time of the latest change of the limit
	lastGap   time.Time // like that, when a reservation filled a gap before it
}

// booked is a reservation that may be canceled.
type booked struct {
	ours   *rate.Reservation
	theirs *xrate.Reservation
	n      int
	actAt  time.Time
}

// start returns the time from which the units of b are restored.
func (b booked) start(l *xrate.Limiter) time.Time {
	return b.actAt.Add(-time.Duration(float64(b.n) / float64(l.Limit()) * 1e9))
}

var (
	randomLimits = []float64{0, 1, 10, 10, 20, 50, 1000, 1. / 3, 0.7692307692307693, float64(xrate.Every(30 * time.Millisecond)), float64(xrate.Inf)}
	randomBursts = []int{0, 1, 2, 3, 5, 10, 40}
)

func newPair(t *testing.T, rnd *rand.Rand) *pair {
	limit, burst := randomLimits[rnd.IntN(len(randomLimits))], randomBursts[rnd.IntN(len(randomBursts))]
	return &pair{
		t: t, rnd: rnd, now: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		ours:   rate.NewLimiter(rate.Limit(limit), burst),
		theirs: xrate.NewLimiter(xrate.Limit(limit), burst),
		tokens: 1e-9,
	}
}

// step makes one call and returns its name.
func (p *pair) step() (call string) {
	p.now = p.now.Add(time.Duration(p.rnd.IntN(3)*p.rnd.IntN(30)) * 10 * time.Millisecond)
	n := p.rnd.IntN(min(p.theirs.Burst(), 12) + 2)
	switch k := p.rnd.IntN(20); {
	case k < 7:
		call = "allow"
		p.allow(n)
	case k < 14:
		call = "reserve"
		p.reserve(n)
	case k < 18:
		call = p.cancel()
	case k == 18:
		call = "limit"
		p.now = p.now.Add(10 * time.Millisecond) // under Inf, time restores the burst
		limit := randomLimits[p.rnd.IntN(len(randomLimits))]
		p.forget()
		if p.theirs.Limit() == 0 && p.former.After(p.stopped) { // booked positions wait as long as time stands still
			p.former = p.former.Add(p.now.Sub(p.stopped))
		}
		p.stopped = p.now
		p.tokens += 1e-6 // Inf rounds down to a millionth
		p.ours.SetLimitAt(p.now, rate.Limit(limit))
		p.theirs.SetLimitAt(p.now, xrate.Limit(limit))
	default:
		call = "burst"
		burst := randomBursts[p.rnd.IntN(len(randomBursts))]
		p.ours.SetBurstAt(p.now, burst)
		p.theirs.SetBurstAt(p.now, burst)
		p.forget()
	}
	require.Equal(p.t, float64(p.theirs.Limit()), float64(p.ours.Limit()))
	require.Equal(p.t, p.theirs.Burst(), p.ours.Burst())
	require.InDelta(p.t, p.theirs.TokensAt(p.now), p.ours.TokensAt(p.now), p.tokens, call)
	return call
}

func (p *pair) allow(n int) {
	want := p.theirs.AllowN(p.now, n)
	require.Equal(p.t, want, p.ours.AllowN(p.now, n), "AllowN(%d)", n)
	if want && p.theirs.Limit() != xrate.Inf {
		p.lastEvent = p.now
	}
}

func (p *pair) reserve(n int) {
	if p.theirs.Limit() == 0 && p.theirs.TokensAt(p.now) < float64(n) {
		require.False(p.t, p.ours.ReserveN(p.now, n).OK(), "it never acts")
		return
	}
	b := booked{p.ours.ReserveN(p.now, n), p.theirs.ReserveN(p.now, n), n, time.Time{}}
	require.Equal(p.t, b.theirs.OK(), b.ours.OK(), "ReserveN(%d)", n)
	delay := b.theirs.DelayFrom(p.now)
	if !b.theirs.OK() {
		require.Equal(p.t, delay, b.ours.DelayFrom(p.now))
		return
	}
	require.InDelta(p.t, delay, b.ours.DelayFrom(p.now), 3+p.tokens/float64(p.theirs.Limit())*1e9, "ReserveN(%d)", n)
	if p.theirs.Limit() != xrate.Inf {
		b.actAt = p.now.Add(delay)
		if last := p.last(); b.start(p.theirs).Before(last.Add(-10)) {
			p.lastGap = last
		}
		if p.lastEvent = b.actAt; n > 0 {
			p.booked = append(p.booked, b)
		}
	}
}

// cancel cancels a reservation, unless x/time/rate would return a wrong number of tokens.
func (p *pair) cancel() string {
	if len(p.booked) == 0 {
		return "none"
	}
	i, last := p.rnd.IntN(len(p.booked)), p.last()
	b := p.booked[i]
	if b.actAt.Before(p.now) || p.lastGap.After(p.now) || math.Abs(float64(last.Sub(p.lastEvent))) > 10 {
		return "no cancel"
	}
	if b.actAt.Before(last) && b.actAt.After(p.former) {
		p.former = b.actAt // its position stays taken
	}
	p.booked = append(p.booked[:i:i], p.booked[i+1:]...)
	b.ours.CancelAt(p.now)
	b.theirs.CancelAt(p.now)
	p.tokens += 5e-9 * min(float64(p.theirs.Limit()), 1e9)
	if previous := b.start(p.theirs); b.actAt.Equal(p.lastEvent) && !previous.Before(p.now) {
		p.lastEvent = previous
	}
	return "cancel"
}

// forget records that the limit changes.
func (p *pair) forget() { p.former, p.booked = p.last(), nil }

// last returns the time at which the last reservation acts.
func (p *pair) last() time.Time {
	last := p.former
	for _, b := range p.booked {
		if b.actAt.After(last) {
			last = b.actAt
		}
	}
	return last
}
