package model

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/peers"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A hold of another process holds requests, too, and that process tests it. This one does so 2 to 3 s later, if it hears
// nothing. Of two processes that hold at the same time, the one with the smaller identifier tests.
func TestQuota_appliesHoldsOfOthers(t *testing.T) {
	const wait, follows = 10 * s, 2500 * ms // with the random number 0.5
	for name, tt := range map[string]struct {
		own     time.Duration // end of the own hold; 0: there is none, -1: none is stated
		follows bool          // the own hold is that of another process
		stated  bool          // the other process knows the end
		smaller bool          // its identifier
		until   time.Duration // end of the hold; 0: none is stated
		test    time.Duration // when this process tests
		isNew   bool
	}{
		"no hold":                       {0, false, true, false, wait, follows, true},
		"no hold, not stated":           {0, false, false, false, 0, follows, true},
		"hold, larger sender":           {wait, false, true, false, wait, 10 * ms, false},
		"hold, smaller sender":          {wait, false, true, true, wait, follows, true},
		"follows, smaller sender":       {wait, true, true, true, wait, 10 * ms, false},
		"both not stated, larger":       {-1, false, false, false, 0, 10 * ms, false},
		"both not stated, smaller":      {-1, false, false, true, 0, follows, true},
		"hold that ends later":          {wait + s, false, true, true, wait + s, follows, true},
		"hold that ends earlier":        {wait - statedlimit.Tolerance - 1, false, true, false, wait, 10 * ms, true},
		"hold that ends hardly earlier": {wait - statedlimit.Tolerance, false, true, false, wait - statedlimit.Tolerance, 10 * ms, false},
		"hold without an end":           {-1, false, true, false, wait, 10 * ms, true},
		"hold with an end, not stated":  {wait, false, false, false, wait, 10 * ms, false},
	} {
		q := known(.5)
		switch {
		case tt.own > 0:
			q.Hold.Begin(q.InFlight.Sent, at(tt.own), start)
		case tt.own < 0:
			q.Hold.Begin(q.InFlight.Sent, time.Time{}, start)
		}
		if tt.own != 0 {
			reserve(q, start)
		}
		q.follows = tt.follows
		require.Equal(t, tt.isNew, q.HeldElsewhere(at(wait), tt.stated, tt.smaller, start), name)
		until, waits := q.Hold.Waits(start)
		require.True(t, waits, name)
		require.Equal(t, tt.until, until, name)
		require.Equal(t, int(tt.test/ms), grants(q, start, at(3*s), bare)[0], name)
		require.Equal(t, tt.follows || tt.test == follows, q.follows, name)
	}
}

// A process that has followed another one leads the hold that it finds itself after the end of that.
func TestQuota_followsOneHoldOnly(t *testing.T) {
	for _, stated := range []bool{true, false} {
		q := known(0)
		require.True(t, q.HeldElsewhere(at(s), stated, true, start))
		require.True(t, q.follows)
		require.True(t, exchange(q, at(5*s), accepted))
		require.False(t, q.Hold.Held)
		require.False(t, q.follows)
		now := beginHold(t, q, bare, at(20*s))
		require.True(t, q.HeldElsewhere(now.Add(s), false, true, now), "the other one tests again")
		require.True(t, q.follows)
	}
}

// A hold whose stated end has passed, and that another process finds to go on, holds requests again.
func TestQuota_aHoldThatGoesOnElsewhere(t *testing.T) {
	for _, known := range []bool{true, false} {
		q := held(t, 0, stated(2*s))
		require.True(t, reserve(q, q.Hold.Until).OK)
		require.True(t, q.Hold.Ending)
		now := q.LastGranted.Add(rtt)
		require.True(t, q.HeldElsewhere(now.Add(9*s), known, false, now))
		require.False(t, reserve(q, now).OK)
		require.Equal(t, !known, q.Hold.Estimated())
		require.False(t, reserve(q, now.Add(2*s-1)).OK)
		require.True(t, reserve(q, now.Add(2*s)).OK)
	}
}

// A test of another process delays the own one by one to two seconds, unless one is in flight or nothing is held.
func TestQuota_appliesProbesOfOthers(t *testing.T) {
	for name, tt := range map[string]struct {
		held, own bool
		test      int // ms
	}{
		"a hold": {true, false, 1500}, "an own test is in flight": {true, true, 0}, "no hold": {false, false, 1},
	} {
		q := known(.5)
		if tt.held {
			q = held(t, .5, bare)
		}
		if tt.own {
			require.True(t, reserve(q, at(10*ms)).OK)
		}
		require.Equal(t, tt.held && !tt.own, q.ProbedElsewhere(start), name)
		if got := grants(q, start, at(2*s), bare); tt.own {
			require.Empty(t, got, name)
		} else {
			require.Equal(t, tt.test, got[0], name)
		}
	}
	q := held(t, 0, bare)
	q.tests.next = at(9 * s)
	q.ProbedElsewhere(start)
	require.Equal(t, at(9*s), q.NextTest(), "it is not sent earlier")
}

// After a rejected test of another process, that process sends the next one, after the pause and a quarter of it at
// most. This one tests later, and with the pause that the other has reached.
func TestQuota_appliesRejectedTestsOfOthers(t *testing.T) {
	q := held(t, 0, bare)
	q.TestRejectedElsewhere(8*s, start)
	require.Equal(t, 1, q.Hold.Rejected)
	require.Equal(t, []int{11000, 23010}, grants(q, start, at(30*s), bare), "8 s and a quarter and 1 s; then 12 s and a round trip")
	n, pause := q.RejectedTests()
	require.Equal(t, 2, n, "its own")
	require.Equal(t, 18*s, pause)

	q.TestRejectedElsewhere(s, at(30*s))
	_, pause = q.RejectedTests()
	require.Equal(t, 18*s, pause, "the pause does not become shorter")

	q = held(t, 0, stated(time.Minute))
	require.Zero(t, reserve(q, start).Expected)
	q.TestRejectedElsewhere(s, start)
	require.Equal(t, time.Minute, reserveWaited(q, start).Expected, "the end is known to be right")

	q = known(0)
	q.TestRejectedElsewhere(8*s, start)
	require.Zero(t, q.Hold.Rejected, "nothing is held")
	require.Zero(t, q.tests)
}

// An accepted test of another process ends a hold, but not one that began after it was sent. What has waited is sent at
// a growing rate from a random instant on, unless it is being sent already.
func TestQuota_appliesReleasesOfOthers(t *testing.T) {
	for name, tt := range map[string]struct {
		f        throttle.Feedback // of the hold; it began at start
		probed   time.Duration
		released bool
	}{
		"hold":             {bare, s, true},
		"with an end":      {stated(time.Hour), s, true},
		"at the same time": {bare, 0, true},
		"began later":      {bare, -1, false},
	} {
		q := held(t, .8, tt.f)
		q.follows = true
		now := at(10 * s)
		require.Equal(t, tt.released, q.ReleasedElsewhere(at(tt.probed), now), name)
		require.Equal(t, !tt.released, q.Hold.Held, name)
		require.Equal(t, !tt.released, q.follows, name)
		if tt.released {
			d := reserve(q, now)
			require.Equal(t, []any{false, "slow start"}, []any{d.OK, d.Policy}, name)
			require.InDelta(t, 200*ms, d.Wait, float64(10*ms), name)
			require.False(t, q.ReleasedElsewhere(now, now), "%s: it is over", name)
		}
	}
	q := known(0)
	require.False(t, q.ReleasedElsewhere(at(s), at(s)), "there was no hold")

	q = held(t, .8, stated(10*s))
	for i := range 100 {
		reserve(q, q.Hold.Until.Add(time.Duration(i)*rtt))
	}
	ramp, end := q.Ramp, q.Hold.Until.Add(2*s)
	require.False(t, ramp.On(end))
	require.True(t, q.ReleasedElsewhere(end, end))
	require.Equal(t, ramp, q.Ramp, "the stated end had passed")
	require.False(t, q.Hold.Held || q.Hold.Ending)
}

// A hold that another process has ended is right as an own one is: if it lasted until its stated end, or if tests were
// rejected. A right one begins a learned limit if none has stated an end.
func TestQuota_learnsFromHoldsOfOthers(t *testing.T) {
	for name, tt := range map[string]struct {
		stated   bool
		rejected int // tests, in each hold
		holds    int
		trusted  bool
		learned  bool
	}{
		"one": {false, 1, 1, false, true}, "two, none tested": {false, 0, 2, false, false},
		"one, stated": {true, 1, 1, false, false}, "two, stated": {true, 1, 2, true, false},
	} {
		q := known(0)
		now := start
		for range tt.holds {
			for range 40 {
				now = now.Add(rtt)
				require.True(t, exchange(q, now, accepted), name)
			}
			exchange(q, now.Add(rtt), bare)
			now = now.Add(2 * rtt)
			require.True(t, q.HeldElsewhere(now.Add(time.Minute), tt.stated, true, now))
			for range tt.rejected {
				q.TestRejectedElsewhere(s, now.Add(s))
			}
			require.False(t, q.Learned.Limits(), name)
			now = now.Add(10 * s)
			require.True(t, q.ReleasedElsewhere(now, now))
			require.Equal(t, tt.learned, q.Learned.Limits(), name)
			now = now.Add(5 * s)
		}
		require.Equal(t, tt.trusted, q.Hold.Trusted(), name)
	}
}

// With a learned rate, processes that receive a release at the same time do not send at the same time.
func TestQuota_aReleaseDelaysALearnedRate(t *testing.T) {
	q := known(.5)
	q.remember(start).Loop.BeginAt(throttle.CauseUnstated, 5/.99, 0, start)
	q.Hold.Begin(0, time.Time{}, start)
	require.True(t, q.ReleasedElsewhere(start, start))
	require.Equal(t, 100*ms, q.Learned.Loop.Next.Sub(start))
}

// Limits that another process knows are known here, too. The reset of a window that is known stays as it is.
func TestQuota_appliesLimitsOfOthers(t *testing.T) {
	q := known(0)
	l := throttle.RemoteLimit{Limit: 10, Remaining: 4, ResetAfter: time.Minute}
	q.ApplyLimits([]throttle.RemoteLimit{l, {Limit: 9, Unit: "tokens"}}, start)
	require.Len(t, q.Estimates, 1)
	l.Remaining = 2
	q.ApplyLimits([]throttle.RemoteLimit{l}, at(500*ms))
	require.Equal(t, at(time.Minute), q.Estimates[0].Reset)
	require.EqualValues(t, 2, q.Estimates[0].Remaining)
	l.ResetAfter, l.Remaining = 2*time.Minute, 1
	q.ApplyLimits([]throttle.RemoteLimit{l}, at(s))
	require.Equal(t, at(s+2*time.Minute), q.Estimates[0].Reset, "another window")
}

// A process has an equal part of half of what is left in flight, rounded at random. If that is none, it
// draws again after 50 ms.
func TestQuota_leavesUnitsToPeers(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		left   int64
		peers  int
		open   int64
		random float64
		ok     bool
		wait   time.Duration
	}{
		"alone":               {1, 0, 5, 0, true, 0},
		"part":                {60, 9, 2, 0, true, 0},
		"all of the part":     {60, 9, 3, 0, false, 0},
		"rounded up":          {70, 9, 3, .5, true, 0},
		"rounded down":        {70, 9, 3, .49, false, 0},
		"none of the last":    {4, 9, 0, .79, false, 50 * time.Millisecond},
		"one of the last":     {4, 9, 0, .8, true, 0},
		"nothing is left":     {0, 9, 0, 0, true, 0},
		"one peer":            {4, 1, 0, 0, true, 0},
		"one peer, in flight": {4, 1, 1, 0, false, 0},
	} {
		q := modelAt(tt.random)
		q.Peers = new(peers.Set)
		q.Estimates = []statedlimit.Estimate{{Limit: 100, Remaining: 90, Reset: now.Add(time.Minute)}, {Limit: 100, Remaining: tt.left, Reset: now.Add(time.Minute)}}
		for i := range tt.peers {
			q.Peers.Add(uint64(i), 0, now)
		}
		q.InFlight.Open = tt.open
		wait, ok := q.leaveToPeers(now)
		require.Equal(t, tt.ok, ok, name)
		require.Equal(t, tt.wait, wait, name)
		for range 2 {
			_, ok = q.leaveToPeers(now.Add(3*time.Second - 1))
			require.Equal(t, tt.ok, ok, name)
		}
		_, ok = q.leaveToPeers(now.Add(3 * time.Second))
		require.True(t, ok, "%s: no peer any longer", name)
		require.Zero(t, q.Peers.Len(), name)
	}
	for name, change := range map[string]func(q *Quota, e *statedlimit.Estimate){
		"hold":        func(q *Quota, e *statedlimit.Estimate) { q.Hold = hold.Hold{Held: true, Until: e.Reset} },
		"probe":       func(_ *Quota, e *statedlimit.Estimate) { e.Probe = true },
		"concurrency": func(_ *Quota, e *statedlimit.Estimate) { *e = concurrentEstimate(100, 1, e.Reset) },
		"over":        func(_ *Quota, e *statedlimit.Estimate) { e.Reset = e.Reset.Add(-time.Minute) },
		"no limit":    func(q *Quota, _ *statedlimit.Estimate) { q.Estimates = nil },
	} {
		q := modelAt(0)
		q.Peers = new(peers.Set)
		q.Estimates = []statedlimit.Estimate{{Limit: 100, Remaining: 1, Reset: now.Add(time.Minute)}}
		q.Peers.Add(1, 0, now)
		_, ok := q.leaveToPeers(now)
		require.False(t, ok, name)
		d := reserve(q, now)
		require.Equal(t, []any{false, true}, []any{d.OK, d.ServerImposed}, name)
		change(q, &q.Estimates[0])
		_, ok = q.leaveToPeers(now)
		require.True(t, ok, name)
	}
	draws := 0
	const every = 50 * time.Millisecond
	q := modelAt(0)
	q.Peers = new(peers.Set)
	q.Account.Random = func() float64 { draws++; return 0 }
	q.Estimates = []statedlimit.Estimate{{Limit: 100, Remaining: 1, Reset: now.Add(time.Minute)}}
	q.Peers.Add(1, 0, now)
	for after, want := range []int{1, 1, 2, 2} {
		at := now.Add(time.Duration(after) * every / 2)
		wait, ok := q.leaveToPeers(at)
		require.False(t, ok)
		require.Equal(t, want, draws)
		require.Equal(t, every-time.Duration(after%2)*every/2, wait)
	}
}

// What delays the requests of a quota does so whether or not other processes use it, too.
func TestQuota_aSharedQuotaIsHeldAsWell(t *testing.T) {
	for _, others := range []uint64{0, 3} {
		q := held(t, 0, stated(time.Minute))
		q.Peers = new(peers.Set)
		for id := range others {
			q.Peers.Add(id, time.Hour, start)
		}
		require.Equal(t, []int{10, 1020, 2530}, grants(q, start, at(3*s), stated(time.Minute)))

		q = nothingLeft()
		q.Peers = new(peers.Set)
		for id := range others {
			q.Peers.Add(id, time.Hour, start)
		}
		require.True(t, exchange(q, at(ms), states(bare, usedUp(at(ms)))))
		d := reserve(q, at(20*ms))
		require.Equal(t, []any{false, "quota"}, []any{d.OK, d.Policy})
	}
}

// A claim that leaves units to other processes waits for a response if one is to arrive.
func TestQuota_leavesUnitsUntilAResponse(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	q := modelAt(0)
	q.Peers = new(peers.Set)
	q.Estimates = []statedlimit.Estimate{{Limit: 100, Remaining: 4, Reset: now.Add(time.Minute)}}
	q.Peers.Add(1, 0, now)
	q.InFlight.Open = 1
	wait, ok := q.leaveToPeers(now)
	require.False(t, ok)
	require.Zero(t, wait)
}
