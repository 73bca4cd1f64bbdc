package throttleredis

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// await returns when condition holds.
func await(t *testing.T, what string, condition func() bool) {
	require.Eventually(t, condition, time.Minute, 10*time.Millisecond, what)
}

// Waits are exact by the server's clock: after the wait the claim is granted, regardless of
// the local clock.
func TestLimiter_usesTheServersClock(t *testing.T) {
	s := newTestStore(t)
	s.Clock = &manualClock{now: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)}
	l := s.TokenBucket(throttle.Limit{Count: 1, Per: time.Hour})
	require.True(t, take(t, l, "").OK)
	d := take(t, l, "")
	require.False(t, d.OK)
	require.Equal(t, 1999, d.At.Year())
	require.InDelta(t, time.Hour, d.Wait, float64(30*time.Minute))
	then := time.Date(2042, 1, 1, 0, 0, 0, 0, time.UTC)
	again, err := l.Reserve(t.Context(), throttle.Claim{Now: then})
	require.NoError(t, err)
	require.False(t, again.OK)
	require.Equal(t, then, again.At)
}

// With a local clock that is wrong by a day, the first claim does not know the window of
// the server, and the limiter corrects it.
func TestFixedWindow_findsTheServersMinute(t *testing.T) {
	s := newTestStore(t)
	s.Clock = &manualClock{now: time.Now().Add(-24 * time.Hour)}
	l := s.FixedWindow(throttle.FixedWindowConfig{Count: 1000, Align: throttle.EachMinute})
	for range 3 {
		d := take(t, l, "")
		require.True(t, d.OK)
		require.Equal(t, time.Minute, d.Per)
		require.LessOrEqual(t, d.ResetAfter, time.Minute)
	}
	require.InDelta(t, 24*time.Hour/time.Microsecond, l.limit.calendar.clockOffset.Load(), float64(time.Hour/time.Microsecond))
}

// 1,000 claims at one microsecond are 1,000 units, in one entry of 14 bytes.
func TestSlidingLog_countsWhatComesInOneMicrosecond(t *testing.T) {
	s := newTestStore(t)
	s.useLocalClock, s.Clock = true, &manualClock{now: began}
	l := s.SlidingLog(throttle.SlidingLogConfig{Limit: throttle.Limit{Count: 1000, Per: time.Second}})
	for i := range 1000 {
		d := take(t, l, "")
		require.True(t, d.OK)
		require.Equal(t, int64(999-i), d.Remaining)
	}
	require.False(t, take(t, l, "").OK)
	require.Len(t, client(t).HGet(t.Context(), l.redisKey(""), "+").Val(), 14)
}

// A process that crashes does not return its units; they are available again after MaxAge.
func TestConcurrency_lostUnitsComeBack(t *testing.T) {
	s := newTestStore(t)
	clk := &manualClock{now: began}
	s.useLocalClock, s.Clock = true, clk
	l := s.Concurrency(throttle.ConcurrencyConfig{Count: 2, MaxAge: time.Minute})
	lost := take(t, l, "")
	clk.now = clk.now.Add(time.Second)
	held := take(t, l, "")
	require.True(t, lost.OK && held.OK)
	clk.now = clk.now.Add(59 * time.Second)
	require.True(t, take(t, l, "").OK)
	require.False(t, take(t, l, "").OK)
	l.Report(t.Context(), throttle.Claim{}, lost, throttle.Feedback{State: throttle.Unused}) // too late: its units belong to another claim
	require.False(t, take(t, l, "").OK)
	l.Report(t.Context(), throttle.Claim{}, held, throttle.Feedback{State: throttle.Ongoing})
	require.False(t, take(t, l, "").OK)
	l.Report(t.Context(), throttle.Claim{}, held, throttle.Feedback{})
	require.True(t, take(t, l, "").OK)
}

func TestLimiter_sendsScriptsAgainAfterAFlush(t *testing.T) {
	l := newTestStore(t).TokenBucket(throttle.PerHour(10))
	require.True(t, take(t, l, "").OK)
	require.NoError(t, client(t).ScriptFlush(t.Context()).Err())
	d := take(t, l, "")
	require.True(t, d.OK)
	require.Equal(t, int64(8), d.Remaining)
}

// Any redis.Scripter is sufficient.
func TestLimiter_worksWithAnyScripter(t *testing.T) {
	s := newTestStore(t)
	s.Client = struct{ redis.Scripter }{client(t)}
	l := s.TokenBucket(throttle.PerHour(10))
	require.NoError(t, client(t).ScriptFlush(t.Context()).Err())
	require.True(t, take(t, l, "").OK)
	require.Equal(t, int64(8), take(t, l, "").Remaining)
}

func TestReserve_errorsSayWhetherUnitsMayBeGone(t *testing.T) {
	away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	defer away.Close()
	_, err := (&Store{Client: away}).TokenBucket(throttle.PerHour(1)).Reserve(t.Context(), throttle.Claim{})
	require.ErrorContains(t, err, "no connection")
	require.NotErrorIs(t, err, ErrUncertain)

	s := newTestStore(t)
	l := s.TokenBucket(throttle.PerHour(1))
	require.NoError(t, client(t).LPush(t.Context(), l.redisKey("list"), "x").Err())
	_, err = l.Reserve(t.Context(), throttle.Claim{Key: "list"})
	require.ErrorContains(t, err, "WRONGTYPE")
	require.NotErrorIs(t, err, ErrUncertain)

	s.Client = failingScripter{errors.New("i/o timeout")}
	_, err = l.Reserve(t.Context(), throttle.Claim{})
	require.ErrorIs(t, err, ErrUncertain)
	require.ErrorContains(t, err, "i/o timeout")
}

// If only the reply is lost, the units have been taken. Timeout limits how long the caller
// waits for it.
func TestReserve_isUncertainWhenOnlyTheReplyIsLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	dial := func(addr string) *redis.Client {
		c := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, MaxRetries: -1})
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	limit := throttle.Limit{Count: 9, Per: 365 * 24 * time.Hour}
	l := (&Store{Client: dial(proxy.Addr), Timeout: time.Second}).TokenBucket(limit)
	await(t, "a decision in time", func() bool {
		d, err := l.Reserve(t.Context(), throttle.Claim{})
		return err == nil && d.OK
	})
	direct := (&Store{Client: dial(server.Addr)}).TokenBucket(limit)
	left := dryRun(t, direct).Remaining
	proxy.Set(redistest.NoReplies)
	_, err := l.Reserve(t.Context(), throttle.Claim{})
	require.ErrorIs(t, err, ErrUncertain)
	await(t, "the units to be gone", func() bool { return dryRun(t, direct).Remaining < left })
}

// A failingScripter returns err for every script.
type failingScripter struct{ err error }

func (s failingScripter) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(s.err)
	return cmd
}
func (s failingScripter) Eval(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	return s.EvalSha(ctx, "", nil)
}
func (failingScripter) EvalRO(context.Context, string, []string, ...any) *redis.Cmd    { return nil }
func (failingScripter) EvalShaRO(context.Context, string, []string, ...any) *redis.Cmd { return nil }
func (failingScripter) ScriptExists(context.Context, ...string) *redis.BoolSliceCmd    { return nil }
func (failingScripter) ScriptLoad(context.Context, string) *redis.StringCmd            { return nil }
