package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// One rejection shows that one request is rejected. Others wait when four requests that were sent after it had arrived
// are rejected, too, whatever the rejections state. An acceptance between them begins the count anew, and then five are
// needed, because a third of the latest responses were rejections.
func TestQuota_othersWaitWhenTheyWouldBeRejected(t *testing.T) {
	for name, f := range map[string]throttle.Feedback{"bare 429": bare, "429": stated(9 * s), "503": unavailable(9 * s)} {
		q := known(0)
		for _, tt := range []struct {
			f    throttle.Feedback
			held bool
		}{{f, false}, {f, false}, {f, false}, {f, false}, {accepted, false}, {f, false}, {f, false}, {f, false}, {f, false}, {f, false}, {f, true}} {
			now := q.LastGranted.Add(rtt)
			require.True(t, dryRun(q, now).OK, "%s: others are free", name)
			require.True(t, exchange(q, now, tt.f), name)
			require.Equal(t, tt.held, q.Hold.Held, name)
		}
		d := reserve(q, q.Hold.Latest)
		require.False(t, d.OK)
		require.True(t, d.ServerImposed)
		require.Equal(t, f.RetryAfter == 0, d.Estimated, name)
		require.Equal(t, map[bool]string{true: "learned rate", false: "retry-after"}[d.Estimated], d.Policy, name)
	}
}

// These rejections do not show that others would be rejected.
func TestQuota_rejectionsThatConfirmNothing(t *testing.T) {
	repeated := bare
	repeated.Repeated = true
	other := bare
	other.Cause = CauseOtherQuota
	for name, send := range map[string]func(q *Quota, now time.Time){
		"sent before the first one arrived": nil,
		"the same request again":            func(q *Quota, now time.Time) { exchange(q, now, repeated) },
		"of another quota":                  func(q *Quota, now time.Time) { exchange(q, now, other) },
		"not sent by this quota":            func(q *Quota, now time.Time) { f := bare; q.RejectedElsewhere(&f, now) },
		"failures":                          func(q *Quota, now time.Time) { exchange(q, now, dropped) },
		"callers that gave up":              func(q *Quota, now time.Time) { exchange(q, now, canceled) },
	} {
		q := known(0)
		var early []throttle.Decision
		for range 20 {
			early = append(early, reserve(q, start))
		}
		q.InFlight.Open = 0
		exchange(q, at(rtt), bare)
		require.True(t, q.Hold.Suspected)
		for i, d := range early {
			now := at(time.Duration(i+2) * 2 * rtt)
			if send == nil {
				q.InFlight.Open++
				respond(q, d, bare, now)
			} else {
				send(q, now)
			}
			require.False(t, q.Hold.Held, name)
		}
	}
}

// Rejections of requests that were sent with more in flight than accepted ones confirm nothing for two round trips. Later that
// explains no more why all of them are rejected, and they make others wait as any do.
func TestQuota_rejectionsWithManyInFlight(t *testing.T) {
	for name, later := range map[string]time.Duration{"soon": 0, "later": 3 * rtt} {
		q := known(0)
		exchange(q, start, bare)
		require.True(t, q.Hold.Suspected)
		for i := range 20 {
			q.InFlight.Open += 100
			exchange(q, at(later+rtt+time.Duration(i)*ms/20), bare)
			q.InFlight.Open -= 100
		}
		require.Equal(t, later > 0, q.Hold.Held, name)
	}
}

// The same few requests, sent again and again, do not show that others would be rejected: half of the rejected requests
// must be new ones (rule 3). How often they are rejected does not matter.
func TestQuota_othersAreRejected(t *testing.T) {
	for _, tt := range []struct {
		then  string // rejections after the first: r repeated, x not
		every time.Duration
		held  bool
	}{
		{"rrrrrrrrrr", 2 * rtt, false}, {"rrrxrrrrrr", 2 * rtt, false}, {"xrrx", 2 * rtt, true}, {"rrxx", 2 * rtt, true}, {"xxr", 2 * rtt, false},
		{"xxxx", 500 * ms, true}, {"xxxx", 5 * s, true},
	} {
		q := known(0)
		exchange(q, start, bare)
		for i, kind := range tt.then {
			require.False(t, q.Hold.Held, "%+v: %d", tt, i)
			f := bare
			f.Repeated = kind == 'r'
			require.True(t, exchange(q, at(time.Duration(i+1)*tt.every), f))
		}
		require.Equal(t, tt.held, q.Hold.Held, "%+v", tt)
	}
}

// A hold that ends early doubles the number of rejections that begin the next one, each time, so that wrong holds become
// rare however many requests there are (I4), unless one of its tests was rejected.
func TestQuota_aWrongHoldMakesTheNextOneLater(t *testing.T) {
	for _, tt := range []struct {
		tests int // rejected in each hold
		want  []int
	}{{0, []int{7, 13, 25, 49}}, {1, []int{7, 13, 25, 49}}} {
		q, now := known(0), start
		q.Account.Full = false // no rate is put on test
		for _, want := range tt.want {
			q.Overload.Explained()
			for i := range 64 { // 44 % fail
				f := accepted
				if i%9 < 4 {
					f = failed
				}
				now = now.Add(2 * rtt)
				require.True(t, exchange(q, now, f))
			}
			n := 0
			for n < 50 && !q.Hold.Held {
				now = now.Add(2 * rtt)
				require.True(t, exchange(q, now, bare))
				n++
			}
			require.Equal(t, want, n, "%+v", tt)
			for range tt.tests {
				now = q.NextTest()
				require.True(t, exchange(q, now, bare))
			}
			now = q.NextTest()
			require.True(t, exchange(q, now, accepted))
			require.False(t, q.Hold.Held || q.Hold.Trusted())
			now = now.Add(20 * s)
		}
	}
}

// Others wait until the latest time that a rejection stated. Then they are sent at a growing rate, and the first
// acceptance ends the hold.
func TestQuota_aStatedHold(t *testing.T) {
	q := known(0)
	for i, after := range []time.Duration{20 * s, 5 * s, 30 * s, 7 * s, s} {
		require.True(t, exchange(q, at(time.Duration(i-5)*rtt), stated(after)))
	}
	q.Account.NeverTest = true
	end := at(-2*rtt + 30*s)
	for _, now := range []time.Time{start, at(9 * s), end.Add(-1)} {
		require.Equal(t, []any{false, end.Sub(now), "retry-after"}, []any{reserve(q, now).OK, reserve(q, now).Wait, reserve(q, now).Policy})
	}
	first := reserve(q, end)
	require.True(t, first.OK)
	require.Equal(t, "slow start", reserve(q, end).Policy, "one is in flight, more follow within a tenth of the wait")
	require.True(t, q.Hold.Held && q.Hold.Ending)
	ramp := q.Ramp
	respond(q, first, accepted, end.Add(rtt))
	require.False(t, q.Hold.Held || q.Hold.Ending)
	require.Equal(t, ramp, q.Ramp, "it does not begin again")
}

// Repeated rejections begin no hold while most requests are accepted when they are sent first: what is rejected may be one
// resource. They do where half of the others are rejected, too, because then each caller of a used-up limit has been: unless those
// that were rejected before are hardly ever accepted, and others are.
func TestQuota_repeatedRejectionsWhereMostAreRejected(t *testing.T) {
	again, later := bare, accepted
	again.Repeated, later.Repeated = true, true
	for _, tt := range []struct {
		first, again int // of 16 requests that many are rejected
		want         bool
	}{
		{0, 8, false}, {1, 8, false}, {7, 8, false}, {9, 8, true}, {16, 8, true},
		{7, 16, false}, {9, 16, false}, {13, 16, false}, {15, 16, true}, {16, 16, true},
		{9, 12, true}, {9, 0, true}, {13, 14, true},
	} {
		q := known(0)
		for i := range 10 * 16 {
			count := func(part int, rejected, accepted throttle.Feedback) {
				f := accepted
				if (i+1)*part/16 > i*part/16 {
					f = rejected
				}
				q.firsts.add(&f)
			}
			count(tt.first, bare, accepted)
			count(tt.again, again, later)
		}
		for range 200 { // without responses of others
			q.rejected(q.InFlight.Add(), 1, &again, false, start)
			if q.Hold.Held {
				break
			}
		}
		require.Equal(t, tt.want, q.Hold.Held, "%+v", tt)
	}
}

// After a hold, as many requests are sent as were accepted after the hold before, and one more. The others wait for its
// response: a server that permits five in each second rejects one of them, and not all that have waited.
func TestQuota_aReleasePausesAfterWhatWasAccepted(t *testing.T) {
	for _, permits := range []int{1, 5, 50} {
		q := known(0)
		q.Hold.Begin(0, at(s), start)
		now, sent, rejected := at(s), 0, 0
		for window := range 10 { // 100 callers wait; responses arrive after 50 ms
			used := 0
			end := now.Add(s)
			type exchange struct {
				d  throttle.Decision
				f  throttle.Feedback
				at time.Time
			}
			var open []exchange
			for ; now.Before(end); now = now.Add(ms) {
				for len(open) > 0 && !now.Before(open[0].at) {
					respond(q, open[0].d, open[0].f, now)
					open = open[1:]
				}
				for len(open) < 100 {
					d := reserve(q, now)
					if !d.OK {
						break
					}
					sent++
					used++
					f := accepted
					if used > permits {
						f = stated(end.Sub(now))
						if window >= 3 {
							rejected++
						}
					}
					open = append(open, exchange{d, f, now.Add(50 * ms)})
				}
			}
			for _, e := range open {
				respond(q, e.d, e.f, now)
			}
		}
		require.LessOrEqual(t, rejected, 7*2, "%d in each window: the others do not wait in vain", permits)
		require.GreaterOrEqual(t, sent, 10*permits)
	}
}

// Accepted requests before rejections that began no hold, and before an idle time, do not count for the pause of the next release.
func TestQuota_aReleaseCountsFromTheLastRejection(t *testing.T) {
	for name, between := range map[string]func(q *Quota, now time.Time) time.Time{
		"rejections": func(q *Quota, now time.Time) time.Time {
			exchange(q, now, bare) // the first of a suspicion, which the next acceptance ends
			return now.Add(rtt)
		},
		"idle time": func(_ *Quota, now time.Time) time.Time { return now.Add(time.Minute) },
	} {
		q, now := known(0), start
		for range 40 {
			now = now.Add(rtt)
			exchange(q, now, accepted)
		}
		for range 10 {
			now = between(q, now)
			for range 7 {
				exchange(q, now, accepted)
				now = now.Add(rtt)
			}
		}
		for range 10 {
			exchange(q, now, stated(20*s))
			now = now.Add(rtt)
		}
		require.True(t, q.Hold.Held, name)
		end, sent := q.Hold.Until.Add(s), 0 // half of the release has passed: its rate permits 32 in flight
		for reserve(q, end).OK {
			sent++
			require.Less(t, sent, 100, name)
		}
		require.LessOrEqual(t, sent, 7+1, name)
	}
}

// The rate at which what has waited is sent grows from the stated end on, whether or not one is sent then: a burst that comes
// after it is not slowed.
func TestQuota_aBurstAfterAStatedHoldIsNotSlowed(t *testing.T) {
	q := held(t, 0, stated(20*s))
	require.True(t, reserve(q, at(20*s)).OK)
	require.False(t, reserve(q, at(20*s)).OK, "slow start")

	q = held(t, 0, stated(20*s))
	for range 100 {
		require.True(t, reserve(q, at(22*s+4*rtt/10)).OK) // a tenth of the wait, which began with the first rejection
	}
}

// A rejection of a request that was sent after the stated end means that the hold goes on: until the new end, or until
// a test is accepted.
func TestQuota_aHoldGoesOn(t *testing.T) {
	for _, after := range []time.Duration{0, 7 * s} {
		q := held(t, 0, stated(2*s))
		end := q.Hold.Until
		d := reserve(q, end)
		require.True(t, d.OK)
		f := bare
		if after > 0 {
			f = stated(after)
		}
		respond(q, d, f, end.Add(rtt))
		require.True(t, q.Hold.Held)
		require.False(t, q.Hold.Ending)
		require.Equal(t, end.Add(2*rtt), q.NextTest(), "it is tested first after a round trip")
		d = reserveWaited(q, end.Add(rtt))
		require.False(t, d.OK)
		require.Equal(t, after == 0, q.Hold.Estimated())
		require.Equal(t, after, d.Expected, "the rejection after the end was one of a test")
	}
}

// After a wait, what has waited is sent within a tenth of the time that it waited, at least two round trips and at most
// 5 s: a growing number in flight, which begins at a random instant in the first quarter.
func TestQuota_releasesAtAGrowingRate(t *testing.T) {
	for _, tt := range []struct {
		waited, trip time.Duration
		random       float64
		begins, ends time.Duration
	}{
		{10 * s, rtt, 0, 0, s}, {10 * s, rtt, .8, 200 * ms, s}, {time.Hour, rtt, 0, 0, 5 * s}, {time.Hour, rtt, 1, 1250 * ms, 5 * s},
		{100 * ms, rtt, 0, 0, 20 * ms}, {s, 300 * ms, .5, 75 * ms, 600 * ms},
	} {
		q := known(tt.random)
		q.trip.typical = tt.trip
		now := at(tt.waited)
		q.release(start, releaseTrips, now)
		if tt.begins > 0 {
			d := reserve(q, now.Add(tt.begins-1))
			require.Equal(t, []any{false, time.Duration(1)}, []any{d.OK, d.Wait}, "%+v", tt)
		}
		require.True(t, reserve(q, now.Add(tt.begins)).OK, "%+v", tt)
		require.False(t, reserve(q, now.Add(tt.begins)).OK, "%+v: a second one", tt)
		require.EqualValues(t, 32, q.Ramp.Bound(now.Add((tt.begins+tt.ends)/2)), "%+v", tt)
		require.True(t, q.Ramp.On(now.Add(tt.ends-1)), "%+v", tt)
		require.False(t, q.Ramp.On(now.Add(tt.ends)), "%+v", tt)
	}
}

// A hold that concerns all of an account holds each quota, for at most headers.MaxDelay.
func TestQuota_holdAll(t *testing.T) {
	for wait, want := range map[time.Duration]time.Duration{0: 0, -s: 0, 9 * s: 9 * s, 1 << 62: headers.MaxDelay} {
		q := known(0)
		q.HoldAll(wait, start)
		got, waits := q.Hold.Waits(start)
		require.Equal(t, want > 0, waits)
		require.Equal(t, want, got)
	}
	q := held(t, 0, stated(2*s))
	reserve(q, at(2*s))
	require.True(t, q.Hold.Ending)
	q.HoldAll(9*s, at(2*s))
	require.False(t, reserve(q, at(2*s+rtt-1)).OK, "it goes on, and is tested after a round trip")
	q.Account.NeverTest = true
	for range 40 {
		reserve(q, at(11*s+s/2))
	}
	require.Equal(t, "slow start", reserve(q, at(11*s+s/2)).Policy, "what has waited is sent at a growing rate")
}

// A learned limit that rejections explain begins no hold, unless they state a time.
func TestQuota_aLearnedLimitExplainsRejections(t *testing.T) {
	for _, wait := range []time.Duration{0, 9 * s} {
		q := known(0)
		q.remember(start).Loop.BeginAt(throttle.CauseUnstated, 1000, q.InFlight.Sent, start)
		f := bare
		f.RetryAfter = wait
		exchange(q, at(s), f)
		require.Equal(t, wait > 0, q.Hold.Suspected)
		require.Less(t, q.Learned.Loop.Rate, 990.)
	}
}

// A caller that gives up shows nothing about the server: the round trip, the hold and the limiter do not change.
func TestQuota_aCanceledRequestShowsNothing(t *testing.T) {
	q := known(0)
	exchange(q, start, bare)
	before := *q
	d := reserve(q, at(s))
	respond(q, d, canceled, at(time.Hour))
	require.Equal(t, before.Hold, q.Hold)
	require.Equal(t, before.Overload, q.Overload)
	require.Equal(t, before.trip.typical, q.trip.typical)
	require.Equal(t, before.Span, q.Span)
	require.Zero(t, q.InFlight.Open)

	q = held(t, 0, bare)
	test := reserve(q, at(20*ms))
	require.True(t, test.OK && q.Testing())
	respond(q, test, canceled, at(30*ms))
	require.True(t, q.Hold.Held)
	require.Zero(t, q.Hold.Rejected)
	require.True(t, reserve(q, at(20*ms+s)).OK, "the next test is due, and the host is sent one in a second")
}
