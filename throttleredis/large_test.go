package throttleredis

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// The units of a log that is never empty are exact after any number of them have expired.
func TestSlidingLog_staysExactBeyondTheIntegersOfADouble(t *testing.T) {
	s := newTestStore(t)
	s.useLocalClock = true
	log := throttle.SlidingLogConfig{Limit: throttle.Limit{Count: 1 << 49, Per: time.Second}}
	l, memory := s.SlidingLog(log), throttle.NewSlidingLog(log)
	for i := range 300 {
		c := throttle.Claim{Cost: log.Limit.Count/4 - 7, Now: began.Add(time.Duration(i) * 200 * time.Millisecond)}
		remote, err := l.Reserve(t.Context(), c)
		require.NoError(t, err)
		local, err := memory.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, [2]any{local.OK, local.Remaining}, [2]any{remote.OK, remote.Remaining}, "claim %d", i)
	}
}

// Each grant removes a part of the lost claims, and counts none of them.
func TestConcurrency_removesLostClaimsInBatches(t *testing.T) {
	s, clk := newTestStore(t), &manualClock{now: began}
	s.useLocalClock, s.Clock = true, clk
	const count = 300
	l := s.Concurrency(throttle.ConcurrencyConfig{Count: count, MaxAge: time.Minute})
	for range count {
		require.True(t, take(t, l, "").OK)
	}
	clk.now = clk.now.Add(time.Minute)
	members := func() int64 { return client(t).ZCard(t.Context(), l.redisKey("")).Val() }
	for i := range 20 {
		before := members()
		require.EqualValues(t, count-1-i, take(t, l, "").Remaining)
		require.LessOrEqual(t, before-members(), int64(50))
	}
	require.EqualValues(t, 20+1, members())
}

// The oldest of thousands of entries is settled without a command for each of the others.
func TestSlidingLog_settlesItsOldestEntryWithFewCommands(t *testing.T) {
	s, clk := newTestStore(t), &manualClock{now: began}
	s.useLocalClock, s.Clock = true, clk
	const entries = 3000
	l := s.SlidingLog(throttle.SlidingLogConfig{Limit: throttle.Limit{Count: entries, Per: time.Hour}})
	var claims []throttle.Decision
	for range entries {
		clk.now = clk.now.Add(time.Microsecond)
		claims = append(claims, take(t, l, ""))
	}
	require.False(t, take(t, l, "").OK)
	for i, d := range claims[:64] {
		require.LessOrEqual(t, commands(t, func() { l.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{State: throttle.Unused}) }), 40)
		require.EqualValues(t, i+1, dryRun(t, l).Remaining)
	}
}

// commands returns the number of commands that the server executes while f runs.
func commands(t *testing.T, f func()) int {
	count := func() (n int) {
		for _, stat := range client(t).InfoMap(t.Context(), "commandstats").Val()["Commandstats"] {
			var calls int
			_, err := fmt.Sscanf(stat, "calls=%d,", &calls)
			require.NoError(t, err)
			n += calls
		}
		return n
	}
	before := count()
	f()
	return count() - before
}
