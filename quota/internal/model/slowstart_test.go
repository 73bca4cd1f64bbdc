package model

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// To a new host 4 requests are in flight at the beginning, twice as many every 10 ms, and any number after 100 ms. There
// is no bound later, and none for callers that do not wait.
func TestQuota_aNewHostGetsAGrowingNumber(t *testing.T) {
	for _, tt := range []struct {
		after time.Duration // since the first request
		open  int64         // in flight
		ok    bool
		wait  time.Duration
	}{
		{0, 3, true, 0}, {0, 4, false, 3219281 * time.Nanosecond}, {0, 7, false, 10 * ms},
		{10*ms - 1, 7, false, 1}, {10 * ms, 7, true, 0}, {10 * ms, 15, false, 10 * ms}, {20 * ms, 15, true, 0},
		{90 * ms, 4096, false, 10 * ms}, {100*ms - 1, 4096, false, 1}, {100 * ms, 4096, true, 0}, {time.Hour, 1e6, true, 0},
	} {
		q := modelAt(0)
		require.True(t, reserve(q, start).OK)
		q.InFlight.Open = tt.open
		d := reserve(q, at(tt.after))
		require.Equal(t, tt.ok, d.OK, "%+v", tt)
		require.InDelta(t, tt.wait, d.Wait, float64(time.Microsecond), "%+v", tt)
		if !tt.ok {
			require.Equal(t, "slow start", d.Policy)
			require.False(t, d.ServerImposed || d.Estimated)
			require.True(t, ask(q, Claim{Waits: false}, at(tt.after)).OK, "%+v: a caller that does not wait", tt)
		}
	}
	q := modelAt(0)
	q.Account.InitialConcurrency = -1
	for range 1000 {
		require.True(t, reserve(q, start).OK, "there is no slow start")
	}
}

// A caller with a deadline waits for at most a tenth of the time until it because a host is new, and then no request
// waits for that any more. The deadline of a caller that is not delayed has no effect.
func TestQuota_slowStartEndsForDeadlines(t *testing.T) {
	for left, want := range map[time.Duration]time.Duration{
		300 * ms: 30 * ms, s: 100 * ms, time.Hour: 100 * ms, 50 * ms: 5 * ms, 0: 1, -s: 1,
	} {
		synctest.Test(t, func(t *testing.T) {
			now := time.Now()
			q := modelAt(0)
			require.True(t, ask(q, Claim{Waits: true, Deadline: now.Add(left)}, now).OK)
			q.InFlight.Open = 8192 // would wait for 100 ms
			require.Equal(t, 100*ms, dryRun(q, now).Wait, "the one that was granted has shown nothing")
			d := ask(q, Claim{Waits: true, Deadline: now.Add(left)}, now)
			require.False(t, d.OK)
			require.Equal(t, want, d.Wait, "%v", left)
			require.False(t, reserve(q, now.Add(want-1)).OK && want > 1, "%v", left)
			require.True(t, reserve(q, now.Add(want)).OK, "%v", left)
		})
	}
}

// The deadline of a caller does not end a release earlier: what has waited would be sent together.
func TestQuota_deadlinesDoNotEndAReleaseEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := held(t, 0, bare)
		q.ReleasedElsewhere(at(ms), at(100*s))
		require.True(t, reserve(q, at(100*s)).OK)
		d := ask(q, Claim{Waits: true, Deadline: time.Now().Add(s)}, at(100*s))
		require.False(t, d.OK)
		require.Equal(t, 500*ms, d.Wait)
		require.True(t, q.Ramp.On(at(105*s-1)))

		q = known(0)
		q.openUp(start)
		q.InFlight.Open = 1 << 20
		d = ask(q, Claim{Waits: true, Deadline: time.Now().Add(ms)}, start)
		require.Equal(t, []any{false, 80 * ms, "slow start"}, []any{d.OK, d.Wait, d.Policy}, "an estimate was wrong")
		require.True(t, q.Ramp.On(at(80*ms-1)))
	})
}

// The first requests wait until it is known what other processes know, whether or not the callers wait otherwise.
func TestQuota_waitsForAFetch(t *testing.T) {
	q := modelAt(0)
	q.FetchUntil = at(100 * ms)
	d := reserve(q, at(40*ms))
	require.Equal(t, []any{false, 60 * ms, true, "slow start"}, []any{d.OK, d.Wait, d.ServerImposed, d.Policy})
	require.False(t, ask(q, Claim{}, at(100*ms-1)).OK)
	require.True(t, reserve(q, at(100*ms)).OK)
}
