package model

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// nothingLeft returns a quota that was stated at start to have nothing left for a minute.
func nothingLeft() *Quota {
	q := known(0)
	d := reserve(q, at(-rtt))
	respond(q, d, states(accepted, usedUp(start)), start)
	return q
}

// A server that states that nothing is left is tested immediately, and the response decides: a rejection confirms the
// statement, and an acceptance contradicts it, so that it is ignored until rejections coincide with it again.
func TestQuota_aStatementIsTested(t *testing.T) {
	for _, right := range []bool{true, false} {
		q := nothingLeft()
		d := reserve(q, at(ms))
		require.True(t, d.OK && q.Testing())
		f := accepted
		if right {
			f = bare
		}
		respond(q, d, states(f, usedUp(at(rtt))), at(rtt))
		require.Equal(t, right, q.Estimates[0].Proven())
		require.Equal(t, !right, q.Estimates[0].Distrusted())
		d = reserve(q, at(2*s-ms-s))
		require.Equal(t, !right, d.OK)
		if right {
			require.Equal(t, []any{"quota", true, time.Duration(0)}, []any{d.Policy, d.ServerImposed, d.Expected}, "units may come back one by one")
			require.Equal(t, rtt+ms, d.Wait, "until the next test")
			require.False(t, q.Hold.Suspected, "the limit explains the rejection")
		}
	}
}

// Until a rejection confirms that nothing is left, callers wait for it for at most a second, or a tenth of the time to
// the deadline, from the first that waits on.
func TestQuota_anUnconfirmedStatementDelaysLittle(t *testing.T) {
	for name, tt := range map[string]struct {
		left time.Duration // to the deadline; 0: none
		want time.Duration
	}{"no deadline": {0, s}, "far": {time.Hour, s}, "3 s": {3 * s, 300 * ms}, "10 ms": {10 * ms, ms}, "over": {-s, 1}} {
		synctest.Test(t, func(t *testing.T) {
			q := nothingLeft()
			require.True(t, reserve(q, at(ms)).OK, "the test, to which there is no response")
			c := Claim{Waits: true}
			if tt.left != 0 {
				c.Deadline = time.Now().Add(tt.left)
			}
			require.Zero(t, dryRun(q, at(ms)).Wait)
			d := ask(q, c, at(ms))
			require.Equal(t, []any{false, tt.want, time.Duration(0)}, []any{d.OK, d.Wait, d.Expected}, name)
			d = ask(q, c, at(ms+tt.want-1))
			require.False(t, d.OK, name)
			require.True(t, ask(q, c, at(ms+tt.want)).OK, name)
		})
	}
}

// A statement that a rejection has confirmed is obeyed to its end, except by tests, and with NeverTest also one that
// nothing has confirmed.
func TestQuota_aConfirmedStatementIsObeyed(t *testing.T) {
	for _, never := range []bool{false, true} {
		q := nothingLeft()
		if q.Account.NeverTest = never; !never {
			require.True(t, exchange(q, at(ms), states(bare, usedUp(at(ms)))))
		}
		var tests []int
		for now := at(2 * rtt); now.Before(at(time.Minute)); now = now.Add(ms) {
			if exchange(q, now, states(bare, usedUp(now))) {
				tests = append(tests, int(now.Sub(start)/ms))
			}
		}
		if never {
			require.Empty(t, tests)
			require.Equal(t, s, reserve(q, at(59*s)).Wait)
		} else {
			require.Len(t, tests, 8)
			require.Equal(t, 1011, tests[0])
		}
	}
}

// Without a time, a statement that nothing is left delays nothing until a rejection coincides with it, and then for a
// second at a time.
func TestQuota_aStatementWithoutAReset(t *testing.T) {
	none := throttle.RemoteLimit{Limit: 10}
	q := known(0)
	for i := range 50 {
		now := at(time.Duration(i) * rtt)
		require.True(t, exchange(q, now, states(accepted, none)), i)
		require.True(t, reserve(q, now.Add(rtt)).OK, "%d: nor does it delay others", i)
	}
	q = known(0)
	require.True(t, exchange(q, start, states(accepted, none)))
	require.True(t, exchange(q, at(rtt), states(bare, none)))
	require.True(t, q.Estimates[0].Proven())
	require.Equal(t, []int{11, 1021}, grants(q, at(2*rtt), at(2*s), states(bare, none)), "tests")
}

// Some servers state one limit for another request, or a constant. When more requests are accepted than were left, the
// limit delays no request any more.
func TestQuota_aContradictedLimitDelaysNothing(t *testing.T) {
	q := known(0)
	few := func(now time.Time) throttle.RemoteLimit { l := usedUp(now); l.Remaining = 3; return l }
	for i := range 40 {
		now := at(time.Duration(i) * rtt)
		require.True(t, exchange(q, now, states(accepted, few(now.Add(rtt)))), i)
	}
	require.True(t, q.Estimates[0].Distrusted())
	for range 20 {
		require.True(t, ask(q, Claim{}, at(s)).OK)
	}
}

// Only a limit that is used up, and begins again later, explains a rejection.
func TestQuota_usedUpLimitsExplainRejections(t *testing.T) {
	one := func(l throttle.RemoteLimit) []throttle.RemoteLimit { return []throttle.RemoteLimit{l} }
	for name, tt := range map[string]struct {
		limits []throttle.RemoteLimit
		want   bool
	}{
		"used up":           {one(throttle.RemoteLimit{Limit: 10, ResetAfter: time.Minute}), true},
		"some are left":     {one(throttle.RemoteLimit{Limit: 10, Remaining: 1, ResetAfter: time.Minute}), false},
		"tokens":            {one(throttle.RemoteLimit{Limit: 10, Unit: "tokens", ResetAfter: time.Minute}), false},
		"not known":         {one(throttle.RemoteLimit{Limit: 10, RemainingUnknown: true, ResetAfter: time.Minute}), false},
		"within a trip":     {one(throttle.RemoteLimit{Limit: 10, ResetAfter: ms}), false},
		"one of two":        {[]throttle.RemoteLimit{{Name: "a", Limit: 10, Remaining: 9, ResetAfter: s}, {Name: "b", Limit: 10, ResetAfter: time.Minute}}, true},
		"nothing is stated": {nil, false},
	} {
		q := known(0)
		f := states(bare, tt.limits...)
		exchange(q, start, f)
		require.Equal(t, tt.want, !q.Hold.Suspected, name)
		require.Equal(t, tt.want, q.Overload.Share() < .1, "%s: the limiter", name)
	}
}

// A rejection that states a wait of 0 and no limit confirms one that earlier responses stated to be used up: callers then wait
// for the reset, and nothing else need explain the rejection. Others may concern one resource, and begin a suspicion.
func TestQuota_aWaitOfZeroConfirmsWhatIsUsedUp(t *testing.T) {
	now := throttle.Feedback{Outcome: throttle.Throttled, Cause: throttle.CauseRetryNow}
	for name, tt := range map[string]struct {
		limit throttle.RemoteLimit
		f     throttle.Feedback
		want  bool
	}{
		"without a time": {usedUp(start), bare, false},
		"wait of 0":      {usedUp(start), now, true},
		"some are left":  {throttle.RemoteLimit{Limit: 10, Remaining: 2, ResetAfter: time.Minute}, now, false},
		"within a trip":  {throttle.RemoteLimit{Limit: 10, ResetAfter: 12 * ms}, now, false},
	} {
		q := known(0)
		d := reserve(q, at(-rtt))
		respond(q, d, states(accepted, tt.limit), start)
		d = reserve(q, at(ms))
		require.True(t, d.OK, name)
		respond(q, d, tt.f, at(rtt))
		require.Equal(t, tt.want, q.Estimates[0].Proven(), name)
		require.Equal(t, tt.want, !q.Hold.Suspected, name)
		require.True(t, !tt.want || !reserve(q, at(2*rtt)).OK, name)
	}
	q := known(0)
	q.Estimates = []statedlimit.Estimate{concurrentEstimate(10, 0, at(time.Minute))}
	require.False(t, q.updateEstimates(1, &now, false, start), "one of requests in flight has no reset")
}

// Only a rejection of a claim that was granted after the latest statement shows that windows are not what
// they were taken for, or answers a probe.
func TestQuota_olderRejectionsShowLessOfLimits(t *testing.T) {
	stated := []throttle.RemoteLimit{{Limit: 10, Remaining: 0, ResetAfter: time.Minute}}
	for n, newer := range map[uint64]bool{5: false, 6: true} {
		q := modelAt(0)
		q.Estimates = []statedlimit.Estimate{
			{Limit: 10, Remaining: 9, At: start, Reset: at(time.Minute), LastSent: 5},
			{Name: "other", Limit: 10, At: start, Reset: start, LastSent: 5, Probe: true},
		}
		require.True(t, q.updateEstimates(n, &throttle.Feedback{Now: start, Outcome: throttle.Throttled, RemoteLimits: stated}, false, start))
		require.Equal(t, !newer, q.Estimates[1].Probe, n)
	}
}

// A statement that accepted requests contradict is ignored (rule 5), and what has waited for it is sent at a growing
// rate (rule 8), not all together.
func TestQuota_whatWaitedForAWrongStatementIsNotSentTogether(t *testing.T) {
	q := nothingLeft()
	d := reserve(q, at(ms))
	require.True(t, d.OK && q.Testing())
	require.False(t, reserve(q, at(2*ms)).OK, "the others wait")
	respond(q, d, states(accepted, usedUp(at(s))), at(s))
	require.True(t, q.Estimates[0].Distrusted())
	together := 0
	for together < 1000 && reserve(q, at(s+40*ms)).OK {
		together++
	}
	require.Positive(t, together)
	require.Less(t, together, 20)
	require.Equal(t, "slow start", reserve(q, at(s+40*ms)).Policy)
}

// A request is sent while calls wait for a stated limit, although its probe has ended without a response and other
// clients use it: nothing waits without an end (I3).
func TestQuota_aProbeWithoutAResponseStopsNothing(t *testing.T) {
	q, now, tokens := known(0), start, 3.
	for range 300 { // a bucket of 100/s, of which others use most
		now, tokens = now.Add(10*ms), min(tokens+.2, 3)
		d := reserve(q, now)
		if !d.OK {
			continue
		}
		f := bare
		if tokens >= 1 {
			f, tokens = accepted, tokens-1
		}
		respond(q, d, states(f, throttle.RemoteLimit{Limit: 100, Remaining: int64(tokens), ResetAfter: s}), now.Add(rtt))
	}
	require.True(t, q.states(), "rejections have confirmed it")
	reset := now
	sent := 0
	var last time.Time
	for now = reset; now.Before(reset.Add(30 * s)); now = now.Add(50 * ms) {
		if d := reserve(q, now); d.OK {
			if sent++; !last.IsZero() {
				require.LessOrEqual(t, now.Sub(last), 2*s)
			}
			last = now
			respond(q, d, canceled, now.Add(100*ms)) // its caller gives up
		}
	}
	require.Greater(t, sent, 15)
	require.Less(t, reset.Add(30*s).Sub(last), 2*s)
}

// Before a rejection has confirmed a limit, nothing waits for the response to the first request of its window for more than
// a second, however long responses take.
func TestQuota_anUnconfirmedLimitDoesNotWaitForItsProbe(t *testing.T) {
	q, limit := known(0), throttle.RemoteLimit{Limit: 1, ResetAfter: s}
	d := ask(q, Claim{Waits: true}, start)
	respond(q, d, states(accepted, limit), at(10*s)) // responses take 10 s
	q.trip = roundTrip{typical: 10 * s}
	q.sends = nil
	require.True(t, ask(q, Claim{Waits: true}, at(20*s)).OK, "the probe")
	require.True(t, q.Estimates[0].Probe)
	for now := at(20 * s); ; {
		d := ask(q, Claim{Waits: true}, now)
		require.LessOrEqual(t, now.Sub(at(20*s)), s)
		if d.OK {
			break
		}
		require.Positive(t, d.Wait)
		now = now.Add(d.Wait)
	}
}
