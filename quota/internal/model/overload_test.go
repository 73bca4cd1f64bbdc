package model

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/throttle"
)

// A server that fails more than eight requests at a time gets fewer in flight, also if its rejections state no time, or
// are 503s. Callers that do not wait are not bounded. Callers that give up because of it show that it is no use.
func TestQuota_fewerInFlightWhenOverloaded(t *testing.T) {
	for name, f := range map[string]throttle.Feedback{"500": failed, "dropped": dropped, "bare 429, repeated": {Outcome: throttle.Throttled, Cause: throttle.CauseUnstated, Repeated: true}} {
		q := known(0)
		q.remember(start).next = at(time.Hour) // no rate is put on test
		now, lowest := start, int64(100)
		for range 40 { // round trips with 30 callers
			var sent []throttle.Decision
			for range 30 {
				if d := reserve(q, now); d.OK {
					sent = append(sent, d)
				} else {
					require.Equal(t, []any{"overload", true, false, time.Duration(0)}, []any{d.Policy, d.Estimated, d.ServerImposed, d.Wait}, name)
				}
			}
			now = now.Add(rtt)
			for i, d := range slices.Backward(sent) {
				if i < 8 {
					respond(q, d, throttle.Feedback{Repeated: f.Repeated}, now)
				} else {
					respond(q, d, f, now)
				}
			}
			if n := q.Overload.Limit(); n > 0 {
				lowest = min(lowest, n)
			}
		}
		require.Less(t, lowest, int64(12), name)
		require.Greater(t, lowest, int64(3), name)
	}
}

// StatedOnly estimates nothing: any number of requests is in flight, however many fail.
func TestQuota_statedOnlyBoundsNoRequestsInFlight(t *testing.T) {
	q := known(0)
	q.Account.Full = false
	for now := start; now.Before(at(10 * s)); now = now.Add(rtt) {
		for i := range 30 {
			d := reserve(q, now)
			require.True(t, d.OK)
			respond(q, d, map[bool]throttle.Feedback{true: accepted, false: failed}[i < 8], now)
		}
	}
	require.Zero(t, q.Overload.Limit())
	require.InDelta(t, 22./30, q.Overload.Share(), .2, "it counts outcomes for holds")
}

// An outcome that something else explains does not count for the limiter.
func TestQuota_theLimiterCountsWhatNothingElseExplains(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(q *Quota)
		f      throttle.Feedback
		counts bool
	}{
		"a 500":                            {func(*Quota) {}, failed, true},
		"a bare 429":                       {func(*Quota) {}, bare, true},
		"accepted":                         {func(*Quota) {}, accepted, true},
		"canceled":                         {func(*Quota) {}, canceled, false},
		"of another quota":                 {func(*Quota) {}, throttle.Feedback{Outcome: throttle.Throttled, Cause: CauseOtherQuota}, false},
		"a stated limit is used up":        {func(*Quota) {}, states(bare, usedUp(start)), false},
		"a learned rate, a bare 429":       {func(q *Quota) { q.remember(start).Loop.BeginAt(throttle.CauseUnstated, 9, 0, start) }, bare, false},
		"a learned rate, a 500":            {func(q *Quota) { q.remember(start).Loop.BeginAt(throttle.CauseUnstated, 9, 0, start) }, failed, true},
		"a learned rate of 500s":           {func(q *Quota) { q.remember(start).Loop.BeginAt(throttle.CauseUnavailable, 9, 0, start) }, failed, false},
		"a rate of 500s, but a reset":      {func(q *Quota) { q.remember(start).Loop.BeginAt(throttle.CauseUnavailable, 9, 0, start) }, dropped, true},
		"a hold":                           {func(q *Quota) { q.Hold.Begin(0, at(time.Hour), start) }, accepted, false},
		"a hold, a 500":                    {func(q *Quota) { q.Hold.Begin(0, at(time.Hour), start) }, failed, false},
		"a hold that its acceptance ends":  {func(q *Quota) { q.Hold.Begin(0, time.Time{}, start) }, accepted, false},
		"a hold that is not confirmed yet": {func(q *Quota) { exchange(q, at(-rtt), bare); q.Overload = concurrency.AdaptiveLimiter{} }, bare, true},
	} {
		q := known(0)
		q.Overload = concurrency.AdaptiveLimiter{}
		tt.change(q)
		grant := throttle.Decision{Grant: q.grant(1, start)}
		before := q.Overload
		respond(q, grant, tt.f, at(s))
		require.Equal(t, tt.counts, before != q.Overload, name)
	}
}

// A right hold has explained the failures before it, and a wrong one has not: the limiter forgets them, or not.
func TestQuota_aRightHoldExplainsFailures(t *testing.T) {
	for name, tt := range map[string]struct {
		f    throttle.Feedback
		end  time.Duration // when a test is accepted
		want bool
	}{"right": {stated(s), s, true}, "ended early": {stated(time.Hour), s, false}, "ended early, no end": {bare, 10 * ms, false}} {
		q := held(t, 0, tt.f)
		share := q.Overload.Share()
		require.Greater(t, share, .25, name)
		q.Hold.Rejected = 0
		require.True(t, exchange(q, at(tt.end), accepted), name)
		require.False(t, q.Hold.Held, name)
		require.Equal(t, tt.want, q.Overload.Share() < share, name)
	}
}

// A limiter that has had no outcome for ten seconds, or for four round trips if they are longer, does not delay.
func TestQuota_theLimiterForgets(t *testing.T) {
	for trip, old := range map[time.Duration]time.Duration{rtt: 10 * s, 5 * s: 20 * s} {
		q := known(0)
		exchange(q, start, failed)
		for range 30 {
			q.InFlight.Open = 30
			respond(q, throttle.Decision{Grant: q.grant(1, at(rtt))}, failed, at(s))
		}
		require.Positive(t, q.Overload.Limit())
		q.InFlight.Open, q.trip.typical = 30, trip
		d := reserve(q, at(s+old))
		require.Equal(t, []any{false, "overload"}, []any{d.OK, d.Policy}, trip)
		require.True(t, reserve(q, at(s+old+1)).OK, trip)
	}
}

// While requests in flight are limited, no rate is put on test: it would be that of the few. What was measured does not count.
func TestQuota_noRateIsMeasuredWhileFewAreInFlight(t *testing.T) {
	for _, limited := range []bool{false, true} {
		q := known(0)
		l := q.remember(start)
		exchange(q, start, bare)
		measured := l.test
		if limited {
			for i := range 30 {
				q.Overload.Add(concurrency.Outcome{Claim: uint64(i + 1), Failed: true, With: 40, Open: 40, Sent: 40, RoundTrip: rtt}, at(time.Duration(i)*rtt))
			}
		}
		require.Equal(t, limited, q.Overload.Limit() > 0)
		q.testRate(99, &bare, at(s))
		require.Equal(t, limited, l.test == learnedlimit.RateTest{})
		require.NotEqual(t, learnedlimit.RateTest{}, measured)
	}
}
