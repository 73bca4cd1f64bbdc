package throttleredis

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/backoff"
)

var errDown = errors.New("redis is down")

// probe makes a claim that b admits, with the given outcome.
func probe(t *testing.T, b *Breaker, o outcome) {
	generation, err := b.allow()
	require.NoError(t, err)
	b.report(generation, o, errDown)
}

// mustOpen makes as many claims fail as are necessary to open b.
func mustOpen(t *testing.T, b *Breaker) {
	for range 5 {
		probe(t, b, outcomeTimeout)
	}
	require.True(t, b.Open())
}

func TestBreaker_opensAfterFailuresInARow(t *testing.T) {
	b := new(Breaker)
	for range 10 {
		for range 4 {
			probe(t, b, outcomeTimeout)
		}
		probe(t, b, outcomeResponse)
	}
	for range 4 {
		probe(t, b, outcomeTimeout)
	}
	for range 10 {
		probe(t, b, outcomeAbandoned) // no effect
	}
	require.False(t, b.Open())
	probe(t, b, outcomeTimeout)
	require.True(t, b.Open())
	_, err := b.allow()
	require.NoError(t, err, "the one that asks")
	_, err = b.allow()
	require.Equal(t, ErrOpen, err)
}

func TestBreaker_oneProbeAfterEachOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Breaker{OpenFor: backoff.Exponential{Base: time.Second, Max: 3 * time.Second, Jitter: backoff.None}}
		mustOpen(t, b)
		require.Zero(t, b.timeToProbe())
		probe(t, b, outcomeTimeout) // without a pause
		for _, pause := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
			require.Equal(t, pause, b.timeToProbe())
			time.Sleep(pause - 1)
			_, err := b.allow()
			require.Equal(t, ErrOpen, err)
			time.Sleep(time.Nanosecond)
			generation, err := b.allow()
			require.NoError(t, err)
			for range 10 {
				_, err := b.allow()
				require.Equal(t, ErrOpen, err)
			}
			b.report(generation, outcomeTimeout, errDown)
		}
		time.Sleep(3 * time.Second)
		probe(t, b, outcomeAbandoned)
		require.True(t, b.Open())
		probe(t, b, outcomeResponse) // immediately, because the previous one has ended
		require.False(t, b.Open())
	})
}

func TestBreaker_ignoresOutcomesOfEarlierStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(Breaker)
		first, err := b.allow()
		require.NoError(t, err)
		mustOpen(t, b)
		b.report(first, outcomeResponse, nil)
		require.True(t, b.Open(), "a late answer does not close it")
		time.Sleep(time.Second)
		asking, err := b.allow()
		require.NoError(t, err)
		b.report(first, outcomeTimeout, errDown)
		b.report(asking, outcomeResponse, nil)
		require.False(t, b.Open())
		for range 10 {
			b.report(first, outcomeTimeout, errDown)
		}
		require.False(t, b.Open(), "late failures do not open it")
	})
}

// A stalled process fails all its claims at the same time, although Redis is healthy. If
// this repeats, probes become less frequent, until there was no failure for a second.
func TestBreaker_staysOpenLongerIfItReopens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Breaker{OpenFor: backoff.Exponential{Base: time.Minute, Max: 4 * time.Minute, Jitter: backoff.None}}
		for _, quiet := range []time.Duration{0, time.Second, time.Hour} {
			time.Sleep(quiet)
			mustOpen(t, b)
			for _, pause := range []time.Duration{0, time.Minute, 2 * time.Minute, 4 * time.Minute, 4 * time.Minute} {
				require.Equal(t, pause, b.timeToProbe())
				time.Sleep(pause)
				probe(t, b, outcomeResponse)
				time.Sleep(time.Second - 1)
				mustOpen(t, b)
			}
			time.Sleep(b.timeToProbe())
			probe(t, b, outcomeResponse)
			time.Sleep(time.Second)
		}
	})
}

// After a probe has succeeded the number of claims in flight is limited at first.
func TestBreaker_rampsUpAfterClosing(t *testing.T) {
	b := new(Breaker)
	mustOpen(t, b)
	probe(t, b, outcomeResponse)
	for maxInFlight := 2; maxInFlight <= fullInFlight; {
		var running []uint64
		for {
			generation, err := b.allow()
			if err != nil {
				break
			}
			running = append(running, generation)
		}
		require.Len(t, running, maxInFlight)
		for _, generation := range running {
			b.report(generation, outcomeResponse, nil)
		}
		maxInFlight += len(running)
	}
	for range 1000 {
		_, err := b.allow()
		require.NoError(t, err)
	}
}

func TestBreaker_openTimesDifferAndStayBelowHalfASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[time.Duration]bool{}
		b := new(Breaker)
		mustOpen(t, b)
		for range 50 {
			probe(t, b, outcomeTimeout)
			pause := b.timeToProbe()
			require.True(t, pause >= 25*time.Millisecond && pause <= 500*time.Millisecond, pause)
			seen[pause] = true
			time.Sleep(pause)
		}
		require.Greater(t, len(seen), 40)
	})
}

func TestBreaker_tracesItsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var traced []any
		b := &Breaker{Failures: 2, OpenFor: backoff.Constant(time.Second), Trace: &BreakerTrace{
			Opened: func(err error) { traced = append(traced, err) },
			Probed: func(_ error, next time.Duration) { traced = append(traced, next) },
			Closed: func(after time.Duration) { traced = append(traced, after) },
		}}
		probe(t, b, outcomeTimeout)
		probe(t, b, outcomeTimeout)
		probe(t, b, outcomeTimeout)
		time.Sleep(time.Second)
		probe(t, b, outcomeTimeout)
		time.Sleep(time.Second)
		probe(t, b, outcomeResponse)
		require.Equal(t, []any{errDown, time.Second, time.Second, 2 * time.Second}, traced)
	})
}

// TestBreaker_tracesWithoutALock checks that functions of a BreakerTrace may use the Breaker, that a
// panic of one does not stop later ones, and that changes during a call are reported after it.
func TestBreaker_tracesWithoutALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var traced []string
		b := &Breaker{Failures: 1, OpenFor: backoff.Constant(time.Second)}
		b.Trace = &BreakerTrace{
			Opened: func(error) {
				require.True(t, b.mu.TryLock(), "a call of Open would block")
				b.mu.Unlock()
				traced = append(traced, "opened")
				if len(traced) == 1 {
					probe(t, b, outcomeResponse) // a claim while the call is in progress
					traced = append(traced, "claimed")
				}
			},
			Closed: func(time.Duration) {
				traced = append(traced, "closed")
				panic("hook")
			},
		}
		require.PanicsWithValue(t, "hook", func() { probe(t, b, outcomeTimeout) })
		require.Equal(t, []string{"opened", "claimed", "closed"}, traced)
		require.False(t, b.Open())
		probe(t, b, outcomeTimeout)
		require.Equal(t, []string{"opened", "claimed", "closed", "opened"}, traced)
	})
}
