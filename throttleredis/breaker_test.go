package throttleredis

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/backoff"
)

var errAway = errors.New("redis is away")

// asks lets a claim ask b, with the given outcome.
func asks(t *testing.T, b *Breaker, o outcome) {
	turn, err := b.enter()
	require.NoError(t, err)
	b.leave(turn, o, errAway)
}

// mustOpen has as many claims fail as open b.
func mustOpen(t *testing.T, b *Breaker) {
	for range 5 {
		asks(t, b, silent)
	}
	require.True(t, b.Open())
}

func TestBreaker_opensAfterFailuresInARow(t *testing.T) {
	b := new(Breaker)
	for range 10 {
		for range 4 {
			asks(t, b, silent)
		}
		asks(t, b, answered)
	}
	for range 4 {
		asks(t, b, silent)
	}
	for range 10 {
		asks(t, b, abandoned) // says nothing
	}
	require.False(t, b.Open())
	asks(t, b, silent)
	require.True(t, b.Open())
	_, err := b.enter()
	require.NoError(t, err, "the one that asks")
	_, err = b.enter()
	require.Equal(t, ErrOpen, err)
}

func TestBreaker_oneClaimAsksAfterEachPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Breaker{Pause: backoff.Exponential{Base: time.Second, Max: 3 * time.Second, Jitter: backoff.None}}
		mustOpen(t, b)
		require.Zero(t, b.next())
		asks(t, b, silent) // at once
		for _, pause := range []time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second} {
			require.Equal(t, pause, b.next())
			time.Sleep(pause - 1)
			_, err := b.enter()
			require.Equal(t, ErrOpen, err)
			time.Sleep(time.Nanosecond)
			turn, err := b.enter()
			require.NoError(t, err)
			for range 10 {
				_, err := b.enter()
				require.Equal(t, ErrOpen, err)
			}
			b.leave(turn, silent, errAway)
		}
		time.Sleep(3 * time.Second)
		asks(t, b, abandoned)
		require.True(t, b.Open())
		asks(t, b, answered) // at once, for the one before has left
		require.False(t, b.Open())
	})
}

func TestBreaker_whatBeganBeforeAChangeIsOldNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := new(Breaker)
		first, err := b.enter()
		require.NoError(t, err)
		mustOpen(t, b)
		b.leave(first, answered, nil)
		require.True(t, b.Open(), "a late answer does not close it")
		time.Sleep(time.Second)
		asking, err := b.enter()
		require.NoError(t, err)
		b.leave(first, silent, errAway)
		b.leave(asking, answered, nil)
		require.False(t, b.Open())
		for range 10 {
			b.leave(first, silent, errAway)
		}
		require.False(t, b.Open(), "late failures do not open it")
	})
}

// A stalled process fails all its claims at once, and finds that nothing is wrong. Where
// that goes on, Redis is asked less and less, until it was quiet for a second.
func TestBreaker_restsIfItOpensAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Breaker{Pause: backoff.Exponential{Base: time.Minute, Max: 4 * time.Minute, Jitter: backoff.None}}
		for _, quiet := range []time.Duration{0, time.Second, time.Hour} {
			time.Sleep(quiet)
			mustOpen(t, b)
			for _, pause := range []time.Duration{0, time.Minute, 2 * time.Minute, 4 * time.Minute, 4 * time.Minute} {
				require.Equal(t, pause, b.next())
				time.Sleep(pause)
				asks(t, b, answered)
				time.Sleep(time.Second - 1)
				mustOpen(t, b)
			}
			time.Sleep(b.next())
			asks(t, b, answered)
			time.Sleep(time.Second)
		}
	})
}

// Who has just come back is not asked by everybody at once.
func TestBreaker_letsInFewAtFirst(t *testing.T) {
	b := new(Breaker)
	mustOpen(t, b)
	asks(t, b, answered)
	for room := 2; room <= many; {
		var running []uint64
		for {
			turn, err := b.enter()
			if err != nil {
				break
			}
			running = append(running, turn)
		}
		require.Len(t, running, room)
		for _, turn := range running {
			b.leave(turn, answered, nil)
		}
		room += len(running)
	}
	for range 1000 {
		_, err := b.enter()
		require.NoError(t, err)
	}
}

func TestBreaker_pausesDifferAndStayBelowHalfASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := map[time.Duration]bool{}
		b := new(Breaker)
		mustOpen(t, b)
		for range 50 {
			asks(t, b, silent)
			pause := b.next()
			require.True(t, pause >= 25*time.Millisecond && pause <= 500*time.Millisecond, pause)
			seen[pause] = true
			time.Sleep(pause)
		}
		require.Greater(t, len(seen), 40)
	})
}

func TestBreaker_tellsOfItsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []any
		b := &Breaker{Failures: 2, Pause: backoff.Constant(time.Second), Trace: &BreakerTrace{
			Opened: func(err error) { told = append(told, err) },
			Asked:  func(_ error, next time.Duration) { told = append(told, next) },
			Closed: func(after time.Duration) { told = append(told, after) },
		}}
		asks(t, b, silent)
		asks(t, b, silent)
		asks(t, b, silent)
		time.Sleep(time.Second)
		asks(t, b, silent)
		time.Sleep(time.Second)
		asks(t, b, answered)
		require.Equal(t, []any{errAway, time.Second, time.Second, 2 * time.Second}, told)
	})
}
