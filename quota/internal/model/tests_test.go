package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/throttle"
)

// While requests wait, one at a time is sent as a test: first after a round trip, then after pauses that grow by half
// and a random quarter. After a 5xx they are at most 2 s. Times are in milliseconds since the hold began; the response
// to each arrives 10 ms later.
func TestQuota_testsAHold(t *testing.T) {
	for name, tt := range map[string]struct {
		f      throttle.Feedback
		random float64
		want   []int
	}{
		"bare 429":             {bare, 0, []int{10, 1020, 2530, 4790, 8175, 13248, 20852, 32253, 49349}},
		"bare 429, random":     {bare, 1, []int{10, 1270, 3155, 5978, 10207, 16546, 26049, 40298}},
		"a minute":             {stated(time.Minute), 0, []int{10, 1020, 2530, 4790, 8175, 13248, 20852, 32253, 49349}},
		"503, a minute":        {unavailable(time.Minute), 0, []int{10, 1020, 2530, 4140, 5750, 7360}},
		"503, random":          {unavailable(time.Minute), 1, []int{10, 1270, 3155, 5165, 7175, 9185}},
		"failures show little": {failed, 0, []int{10, 1020, 2030, 3040, 4050}},
	} {
		begin := tt.f
		if tt.f.Outcome == throttle.Failed {
			begin = bare
		}
		q := held(t, tt.random, begin)
		got := grants(q, start, at(59*s), tt.f)
		require.GreaterOrEqual(t, len(got), len(tt.want), name)
		require.Equal(t, tt.want, got[:len(tt.want)], name)
		if len(tt.want) > 6 {
			require.Len(t, got, len(tt.want), name)
		}
		for i := 1; i < len(got) && tt.f.Cause == throttle.CauseUnavailable; i++ {
			require.LessOrEqual(t, got[i]-got[i-1], 2010, name)
		}
	}
}

// While a test is in flight no other is sent, and the wait of the others is not known. An accepted test ends the wait:
// the others are sent at a growing rate.
func TestQuota_anAcceptedTestEndsTheWait(t *testing.T) {
	for name, f := range map[string]throttle.Feedback{"bare": bare, "an hour": stated(time.Hour)} {
		q := held(t, 0, f)
		require.Equal(t, []any{10 * ms, true}, []any{reserve(q, start).Wait, reserve(q, start).Test}, "what is granted next is a test")
		test := reserve(q, at(10*ms))
		require.True(t, test.OK && q.Testing(), name)
		require.Zero(t, test.Wait+test.Expected)
		require.False(t, test.Test, "it is that of rejections")
		require.False(t, test.ServerImposed || test.Estimated)
		for _, now := range []time.Time{at(10 * ms), at(9 * s)} {
			d := reserve(q, now)
			require.Equal(t, []any{false, time.Duration(0)}, []any{d.OK, d.Wait}, name)
		}
		respond(q, test, accepted, at(9*s))
		require.False(t, q.Hold.Held)
		require.True(t, reserve(q, at(9*s)).OK)
		require.Equal(t, "slow start", reserve(q, at(9*s)).Policy)
		require.False(t, q.Testing())
	}
}

// A request that was sent after all that were rejected ends the wait, too, although it was no test. One that was sent
// before shows nothing.
func TestQuota_anyLaterAcceptanceEndsTheWait(t *testing.T) {
	for _, early := range []bool{false, true} {
		q := known(0)
		var other throttle.Decision
		if early {
			other = reserve(q, at(-s))
		}
		begun := beginHold(t, q, bare, start)
		test := reserve(q, q.NextTest())
		if !early {
			other = throttle.Decision{Grant: q.InFlight.Add()} // sent by a caller that has not waited
		}
		respond(q, other, accepted, begun.Add(s))
		require.Equal(t, early, q.Hold.Held)
		respond(q, test, bare, begun.Add(2*s))
		require.Equal(t, early, q.Hold.Held, "the response to the test is late")
	}
}

// All quotas of a host send it at most one test in a second. When one is accepted, the others need not wait for theirs.
func TestQuota_testsOfOneHostAreASecondApart(t *testing.T) {
	for _, shared := range []bool{true, false} {
		host, all := new(Host), []*Quota(nil)
		for range 20 {
			q := held(t, 0, unavailable(time.Minute))
			if shared {
				q.Account.Host = host
			}
			all = append(all, q)
		}
		var times []time.Duration
		for now := at(ms); now.Before(at(30 * s)); now = now.Add(ms) {
			for _, q := range all {
				if d := reserve(q, now); d.OK {
					times = append(times, now.Sub(start))
					respond(q, d, unavailable(time.Minute), now)
				}
			}
		}
		if !shared {
			require.Greater(t, len(times), 20*15, "each host for itself")
			continue
		}
		require.Len(t, times, 30)
		for i := range times[1:] {
			require.GreaterOrEqual(t, times[i+1]-times[i], s)
		}
		tested := 0
		for _, q := range all {
			if d := reserve(q, at(31*s)); d.OK {
				tested++
				respond(q, d, accepted, at(31*s))
			}
		}
		require.Greater(t, tested, 10, "those whose pause is over")
	}
}

// With NeverTest what the server has stated is obeyed to its end. A hold without an end can only end by a test.
func TestQuota_neverTests(t *testing.T) {
	for name, tt := range map[string]struct {
		f     throttle.Feedback
		tests int
	}{"a minute": {stated(time.Minute), 0}, "503, a minute": {unavailable(time.Minute), 0}, "bare": {bare, 9}} {
		q := held(t, 0, tt.f)
		q.Account.NeverTest = true
		require.Len(t, grants(q, start, at(59*s), bare), tt.tests, name)
		if tt.tests == 0 {
			require.Equal(t, s, reserve(q, q.Hold.Until.Add(-s)).Wait)
			require.True(t, reserve(q, q.Hold.Until).OK)
		}
	}
}

// Where the server states the ends of waits, the pause is kept from one wait to the next: right statements are hardly
// ever tested. An accepted test halves it. A wait whose end is not stated is tested after a round trip, and so is a hold before two
// were right: a test decides whether it is.
func TestQuota_keepsThePauseOfStatedEnds(t *testing.T) {
	q := held(t, 0, stated(10*s))
	require.Equal(t, []int{10, 1020, 2530, 4790, 8175}, grants(q, start, at(9900*ms), stated(10*s-9900*ms)))
	require.True(t, exchange(q, q.Hold.Until, accepted))
	require.False(t, q.Hold.Held)
	require.InDelta(t, 5062*ms, *q.tests.pause(), float64(ms))

	now := beginHold(t, q, stated(10*s), at(20*s))
	require.Equal(t, []int{10, 7614}, grants(q, now, now.Add(9900*ms), stated(10*s-9900*ms)), "not trusted yet")
	require.True(t, exchange(q, q.Hold.Until, accepted))
	require.True(t, q.Hold.Trusted())
	pause, next := *q.tests.pause(), q.NextTest()
	require.InDelta(t, 11390*ms, pause, float64(ms))

	now = beginHold(t, q, stated(20*s), now.Add(12*s))
	require.Equal(t, []int{int(next.Sub(now)/ms) + 1}, grants(q, now, now.Add(19*s), accepted)[:1], "the pause goes on")
	require.Equal(t, pause/2, *q.tests.pause())

	now = beginHold(t, q, bare, now.Add(30*s))
	require.Equal(t, []int{10, 1020}, grants(q, now, now.Add(2*s), bare))
	require.True(t, exchange(q, now.Add(20*s), accepted), "a test")
	require.NotEqual(t, pause/2, *q.tests.pause())
	now = beginHold(t, q, stated(10*s), now.Add(40*s))
	require.True(t, exchange(q, now.Add(rtt), stated(10*s)))
	require.Equal(t, pause*3/4, *q.tests.pause(), "waits whose end is not stated do not change it")

	q.Hold = hold.Hold{}
	now = beginHold(t, q, bare, now.Add(20*s))
	require.Equal(t, 10, grants(q, now, now.Add(2*s), bare)[0], "and theirs begins anew")
}

// A server that limits requests in flight may state a wait that is far too long. Holds that are shorter than the pause between tests
// are tested nevertheless, and when a test is accepted, they are no longer trusted.
func TestQuota_testsShortHolds(t *testing.T) {
	q := known(0)
	now := beginHold(t, q, stated(10*s), start)
	for range 3 { // of right holds, whose tests are rejected
		require.NotEmpty(t, grants(q, now, q.Hold.Until.Add(-10*ms), stated(10*ms)))
		require.True(t, exchange(q, q.Hold.Until, accepted))
		now = beginHold(t, q, stated(10*s), q.Hold.Until.Add(s))
	}
	require.True(t, exchange(q, q.Hold.Until, accepted))
	require.True(t, q.Hold.Trusted())
	pause := *q.tests.pause()
	require.Greater(t, pause, 5*s)

	begin, rejected := q.Hold.Until.Add(s), 0
	for now = begin; q.Hold.Trusted(); now = now.Add(500 * ms) {
		require.Less(t, now.Sub(begin), 4*pause)
		require.Equal(t, now.Add(rtt), beginHold(t, q, stated(s), now), "by the first rejection")
		rejected++
		now = q.Hold.Until
		grants(q, now.Add(-s), now.Add(-ms), accepted) // a test would be
		exchange(q, now, accepted)
	}
	require.Greater(t, rejected, 2)
	require.Equal(t, pause/2, *q.tests.pause())
}

// How long a claim is expected to wait is known when a test has shown that the stated end is right, or when the latest
// two holds were right.
func TestQuota_expectsStatedEndsThatWereTested(t *testing.T) {
	q := held(t, 0, stated(time.Minute))
	require.Zero(t, reserve(q, start).Expected)
	require.True(t, exchange(q, at(10*ms), stated(time.Minute)), "the test")
	end := at(10*ms + rtt + time.Minute)
	d := reserve(q, at(30*ms))
	require.Equal(t, []time.Duration{0, rtt}, []time.Duration{d.Expected, d.Wait}, "a call that cannot wait fails no sooner than the server would reject it")
	d = reserveWaited(q, at(30*ms))
	require.Equal(t, end.Sub(at(30*ms)), d.Expected)
	require.Equal(t, at(20*ms+s).Sub(at(30*ms)), d.Wait, "until the next test")
	test := reserve(q, at(20*ms+s))
	require.Equal(t, []any{true, time.Duration(0)}, []any{test.OK, test.Expected})
	d = reserveWaited(q, at(2*s))
	require.Equal(t, []any{false, time.Duration(0), end.Sub(at(2 * s))}, []any{d.OK, d.Wait, d.Expected}, "the test is in flight")

	q = held(t, 0, bare)
	for range 3 {
		exchange(q, q.NextTest(), bare)
	}
	require.Equal(t, 3, q.Hold.Rejected)
	require.Zero(t, reserve(q, q.Hold.Latest).Expected, "no end is stated")

	q = known(0)
	now := start
	for i := range 3 { // two are right
		now = beginHold(t, q, stated(s), now)
		q.Account.NeverTest = false
		require.Equal(t, i == 2, reserve(q, now).Expected > 0, i)
		q.Account.NeverTest = true
		require.Positive(t, reserve(q, now).Expected, "nothing ends it earlier")
		require.True(t, exchange(q, q.Hold.Until, accepted))
		now = q.Hold.Until.Add(9 * s)
	}
}

// A dry run changes nothing, and reports what a claim would get.
func TestQuota_dryRunsDuringAWait(t *testing.T) {
	q := held(t, 0, bare)
	before := *q
	require.Equal(t, 10*ms, dryRun(q, start).Wait)
	require.False(t, dryRun(q, at(9*ms)).OK)
	require.True(t, dryRun(q, at(10*ms)).OK, "the test")
	require.Equal(t, before.tests, q.tests)
	require.Equal(t, before.InFlight.Sent, q.InFlight.Sent)
	require.True(t, reserve(q, at(10*ms)).OK)
	require.Equal(t, []any{false, time.Duration(0)}, []any{dryRun(q, at(11*ms)).OK, dryRun(q, at(11*ms)).Wait})
}

// How long a claim is expected to wait for a stated limit is known if rejections have confirmed the limit and its units
// come back together. Otherwise a request may be accepted long before the reset, also soon after a test was rejected.
func TestQuota_expectsResetsThatAreProven(t *testing.T) {
	for _, together := range []bool{false, true} {
		q := nothingLeft()
		require.Zero(t, dryRun(q, at(ms)).Expected)
		require.True(t, exchange(q, at(ms), states(bare, usedUp(at(rtt+ms)))), "a test")
		d := reserve(q, at(50*ms))
		require.Equal(t, []any{false, time.Duration(0)}, []any{d.OK, d.Expected})

		now, end := at(time.Minute), at(2*time.Minute)
		for n := int64(9); n >= 0; n-- {
			if n == 0 && together {
				now = now.Add(20 * s) // no unit has come back meanwhile
			}
			require.True(t, exchange(q, now, states(accepted, throttle.RemoteLimit{Limit: 10, Remaining: n, ResetAfter: end.Sub(now.Add(rtt))})), n)
			now = now.Add(50 * ms)
		}
		require.Equal(t, []bool{true, together}, []bool{q.Estimates[0].Proven(), q.Estimates[0].ResetsTogether()})
		want := time.Duration(0)
		if together {
			want = end.Sub(now)
		}
		for range 2 {
			d = reserve(q, now)
			require.Equal(t, []any{false, "quota", want}, []any{d.OK, d.Policy, d.Expected}, together)
		}
		now = q.NextTest()
		require.True(t, exchange(q, now, states(bare, throttle.RemoteLimit{Limit: 10, ResetAfter: end.Sub(now.Add(rtt))})))
		now = now.Add(2 * rtt)
		d = reserve(q, now)
		if want = 0; together {
			want = end.Sub(now)
		}
		require.Equal(t, []any{false, want}, []any{d.OK, d.Expected}, "%t: a test of this wait was rejected", together)
	}
}

// A call whose wait for a stated limit fails is sent instead, as its last chance, until one is rejected.
func TestQuota_lastChance(t *testing.T) {
	givesUp := Claim{GivesUp: true}
	q := nothingLeft()
	require.True(t, exchange(q, at(ms), states(bare, usedUp(at(rtt+ms)))), "a test")
	now := at(2 * rtt)
	send := func(f throttle.Feedback) bool {
		now = now.Add(ms)
		d := ask(q, givesUp, now)
		if !d.OK {
			return false
		}
		require.False(t, q.Testing())
		respond(q, d, states(f, usedUp(now)), now)
		return true
	}
	require.False(t, ask(q, Claim{}, now).OK, "it has not waited")
	require.False(t, ask(q, Claim{GivesUp: true, DryRun: true}, now).OK)
	d := ask(q, givesUp, now)
	require.True(t, d.OK)
	require.False(t, ask(q, givesUp, now).OK, "one is in flight")
	respond(q, d, states(failed, usedUp(now)), now)
	require.True(t, send(bare), "the one before showed nothing")
	for next := now; next.Before(at(s)); next = next.Add(ms) {
		require.False(t, exchange(q, next, states(bare, usedUp(next.Add(rtt)))), "the next test is sent as late as without them")
	}
	require.False(t, send(bare), "it was rejected")

	q = held(t, 0, stated(30*s))
	require.True(t, ask(q, givesUp, at(ms)).OK)
	q.Account.NeverTest = true
	require.False(t, ask(q, givesUp, at(ms)).OK)
}

// During a hold, so are 64 calls that are rejected. Each one that is accepted, and each accepted test, permits two more.
func TestQuota_lastChancesDuringAHold(t *testing.T) {
	q := held(t, 0, stated(30*s))
	for i := range 65 {
		d := ask(q, Claim{GivesUp: true}, at(ms))
		if require.Equal(t, i < 64, d.OK, i); d.OK {
			respond(q, d, stated(30*s), at(ms))
		}
	}
}

// A last chance takes one. It is returned if it shows nothing, and two are returned for one that is accepted, up to 64.
func TestQuota_returnsChances(t *testing.T) {
	for name, tt := range map[string]struct {
		ends func(*Quota, throttle.Decision)
		left int8 // of 10
	}{
		"rejected": {func(q *Quota, d throttle.Decision) { respond(q, d, bare, at(2*rtt)) }, 9},
		"accepted": {func(q *Quota, d throttle.Decision) { respond(q, d, accepted, at(2*rtt)) }, 11},
		"failed":   {func(q *Quota, d throttle.Decision) { respond(q, d, failed, at(2*rtt)) }, 10},
		"canceled": {func(q *Quota, d throttle.Decision) { respond(q, d, canceled, at(2*rtt)) }, 10},
		"another quota": {func(q *Quota, d throttle.Decision) {
			respond(q, d, throttle.Feedback{Outcome: throttle.Throttled, Cause: CauseOtherQuota}, at(2*rtt))
		}, 10},
		"not sent": {func(q *Quota, d throttle.Decision) { q.Canceled(d.Grant, 1) }, 10},
	} {
		q := held(t, 0, stated(30*s))
		q.tests.chances = 10
		d := ask(q, Claim{GivesUp: true}, at(ms))
		require.True(t, d.OK, name)
		tt.ends(q, d)
		require.Equal(t, tt.left, q.tests.chances, name)
	}
	for before, want := range map[int8]int8{-64: -62, 0: 2, 63: 64, 64: 64} {
		x := tests{chances: before}
		x.accepted()
		require.Equal(t, want, x.chances, "an accepted test")
		x = tests{chances: before, kind: statedEnd, pauses: [2]time.Duration{statedEnd: 2 * s}, on: true}
		x.onTime(0, start)
		require.Equal(t, tests{chances: want, kind: statedEnd, pauses: [2]time.Duration{statedEnd: 3 * s}, next: at(3 * s)}, x, "one that was accepted when the wait was over")
	}
}

// A limit whose units come back together, but that no rejection has confirmed, may not be enforced.
func TestQuota_expectsNoResetThatNothingHasConfirmed(t *testing.T) {
	q, now := known(0), start
	for n := int64(9); n >= 0; n-- {
		if n == 0 {
			now = now.Add(20 * s)
		}
		require.True(t, exchange(q, now, states(accepted, throttle.RemoteLimit{Limit: 10, Remaining: n, ResetAfter: at(time.Minute).Sub(now.Add(rtt))})), n)
		now = now.Add(50 * ms)
	}
	require.Equal(t, []bool{false, true}, []bool{q.Estimates[0].Proven(), q.Estimates[0].ResetsTogether()})
	require.True(t, reserve(q, now).OK, "the test")
	d := reserve(q, now)
	require.Equal(t, []any{false, "quota", time.Duration(0)}, []any{d.OK, d.Policy, d.Expected})
}

// In waits for a reset that is stated in whole seconds, rejected guesses become rarer from one wait to the next, although each wait is
// shorter than the time between them. That the window was over before the end of such a second proves nothing.
func TestQuota_guessesInRightWindowsAreRare(t *testing.T) {
	const length, limit = 200 * s, 5
	for late := time.Duration(0); late < s; late += 100 * ms { // how much later than the reset the server states it
		q, window, used := known(0), int64(0), int64(0)
		var rejected, granted int
		for now := start; now.Before(at(length)); now = now.Add(20 * ms) {
			d := reserve(q, now)
			if !d.OK {
				continue
			}
			if w := int64(now.Sub(start) / s); w > window {
				window, used = w, 0
			}
			f := accepted
			if used++; used > limit {
				f = bare
				rejected++
			} else {
				granted++
			}
			reset := start.Add(time.Duration(window+1)*s + late).Sub(now)
			l := throttle.RemoteLimit{Limit: limit, Remaining: max(limit-used, 0), ResetAfter: (reset + s - 1).Truncate(s), Resolution: s}
			respond(q, d, states(f, l), now.Add(rtt))
		}
		require.LessOrEqual(t, rejected, 60, "%v: of a thousand, some of them where five requests are sent as a window ends", late)
		require.GreaterOrEqual(t, granted, 400, "%v", late)
	}
}

// A test that ends a hold halves the pause, also shortly before the stated end.
func TestQuota_aTestThatEndsAHoldHalvesThePause(t *testing.T) {
	q := held(t, 0, stated(1500*ms))
	q.tests.kind, q.tests.pauses[statedEnd], q.tests.next = statedEnd, 4*s, at(ms)
	d := reserve(q, at(ms))
	require.True(t, q.Testing())
	respond(q, d, states(accepted, throttle.RemoteLimit{Limit: 10, Remaining: 5, ResetAfter: time.Minute}), at(600*ms))
	require.Equal(t, 2*s, *q.tests.pause())
}
