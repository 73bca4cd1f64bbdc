package quota

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// The rejection of one process holds all: after the first rejection of a window, only requests are
// rejected that were in flight, and a few that are sent at the instant at which the update arrives.
func TestSharing_oneRejectionHoldsAll(t *testing.T) {
	const rtt, delay = 20 * time.Millisecond, time.Millisecond
	for name, tt := range map[string]struct {
		server   func() server
		goal     string // see missed
		per      time.Duration
		rejected int // of a thousand calls
		later    int // of them, after all could know of the first, in the median of three runs
		ideal    time.Duration
	}{
		"window of 10 s, Retry-After": {func() server { return alignedWindow(50, 10*time.Second, false, true) }, "shared by exchange: Retry-After", 10 * time.Second, 150, 5, 190 * time.Second},
		"window of 1 s, Retry-After":  {func() server { return alignedWindow(50, time.Second, false, true) }, "shared by exchange: Retry-After", time.Second, 150, 5, 19 * time.Second},
		"window of 10 s, headers":     {func() server { return alignedWindow(50, 10*time.Second, true, true) }, "shared by exchange: headers", 10 * time.Second, 30, 3, 190 * time.Second},
		"window of 1 s, headers":      {func() server { return alignedWindow(50, time.Second, true, true) }, "shared by exchange: headers", time.Second, 30, 3, 19 * time.Second},
		// A server that states nothing causes no hold that could be shared, but evidence, and then
		// a learned rate in each process.
		"bucket that states nothing": {func() server { return tokenBucket(50, 50, false) }, "shared by exchange: nothing", 500 * time.Millisecond, 120, 25, 19 * time.Second},
	} {
		for _, skew := range []time.Duration{0, -time.Hour} {
			if testing.Short() && (skew == 0 || tt.per == time.Second) {
				continue
			}
			var later []int // depends on the order of goroutines
			run := func(t *testing.T) {
				var log []arrival
				all := trackers(&bus{delay: delay}, 10, skew)
				jobs := playAll(t, all, watch(tt.server(), &log), 100, 20, rtt)
				own, known := rejectedAfter(log, tt.per*9/10, rtt+delay)
				t.Logf("%s, skew %v: sent %d, rejected %d, %d of them later", name, skew, len(log), own+known, known)
				later = append(later, known)
				goal(t, tt.goal, own <= tt.rejected, "%s: %d rejected", name, own)
				for _, j := range jobs {
					goal(t, tt.goal, j.failed == 0, "%s: %v", name, j)
					require.Less(t, j.elapsed, 3*tt.ideal, name)
				}
				time.Sleep(time.Second)
			}
			within := 0
			for len(later) < 3 && within < 2 { // then the median is within the bound
				if synctest.Test(t, run); later[len(later)-1] <= tt.later {
					within++
				}
			}
			goal(t, tt.goal, within == 2, "%s: rejected although another process had published a hold: %v", name, later)
		}
	}
}

// two returns two Trackers that share over b and have asked for users before.
func two(t *testing.T, b *bus) (one, other *Tracker) {
	all := trackers(b, 2, 0)
	for _, tr := range all {
		tr.Demand(request(t, users))
	}
	settle(b)
	return all[0], all[1]
}

// settle waits until all messages have arrived.
func settle(b *bus) { time.Sleep(3*b.delay + time.Millisecond) }

// heldFor returns how long the quota of url is held from now on, as the server stated it.
func heldFor(t *testing.T, tr *Tracker, url string) time.Duration {
	q, _ := tr.Demand(request(t, url)).Limiter.(*quota)
	q.mu.Lock()
	defer q.mu.Unlock()
	require.True(t, q.Hold.Held)
	return q.Hold.Until.Sub(tr.now())
}

// A stated hold lasts in all processes until the time that the server stated.
func TestSharing_statedHoldsEndEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		one, other := two(t, b)
		reject(t, one, users, "Retry-After", "60")
		settle(b)
		d := claim(t, other, users)
		require.False(t, d.OK)
		require.True(t, d.ServerImposed)
		require.InDelta(t, time.Minute, heldFor(t, other, users), float64(time.Second))
		time.Sleep(time.Minute)
		require.True(t, claim(t, one, users).OK)
		require.True(t, claim(t, other, users).OK)
	})
}

// Where the server states no time, the accepted test of one process ends the hold in all of them.
func TestSharing_oneAcceptedTestReleasesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		one, other := two(t, b)
		reject(t, one, users)
		settle(b)
		require.False(t, claim(t, other, users).OK)
		time.Sleep(time.Second)
		m := one.Demand(request(t, users))
		test, err := m.Limiter.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		require.True(t, test.OK)
		settle(b)
		require.False(t, claim(t, other, users).OK, "the test of the other process is in flight")
		m.Limiter.Report(t.Context(), throttle.Claim{}, test, one.Feedback(request(t, users), m, answer(200), nil, time.Now(), nil))
		settle(b)
		require.True(t, claim(t, other, users).OK)
	})
}

// A process that ends before the result of its test delays other processes by a few seconds.
func TestSharing_processesTestIfNoResultArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		one, other := two(t, b)
		reject(t, one, users)
		time.Sleep(1100 * time.Millisecond)
		d, err := one.Demand(request(t, users)).Limiter.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		require.True(t, d.OK)
		settle(b)
		require.False(t, claim(t, other, users).OK)
		time.Sleep(2*time.Second + 200*time.Millisecond)
		require.True(t, claim(t, other, users).OK)
	})
}

// Updates wake waiters, which do not only wait for their timers.
func TestSharing_updatesWakeWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		one, other := two(t, b)
		reject(t, one, users)
		time.Sleep(1100 * time.Millisecond)
		w := &queue.Queue{}
		other.Notify(w)
		ask(t, one, users, answer(200)) // test and response
		start := time.Now()
		var ticket queue.Ticket
		ticket.Demands = append(ticket.Demands[:0], other.Demand(request(t, users)))
		require.NoError(t, w.Wait(t.Context(), &ticket))
		require.Less(t, time.Since(start), 100*time.Millisecond, "two round trips")
	})
}

func TestSharing_remainingIsTheLeastStated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		one, other := two(t, b)
		left := func(tr *Tracker) int64 { return claim(t, tr, users).Remaining }
		ask(t, one, users, quotaOf("core", "100", "80", "60"))
		settle(b)
		require.EqualValues(t, 80, left(other), "known without a response in this process")
		ask(t, other, users, quotaOf("core", "100", "40", "60"))
		settle(b)
		require.EqualValues(t, 40, left(one))
		ask(t, one, users, quotaOf("core", "100", "0", "60"))
		settle(b)
		d := claim(t, other, users)
		require.False(t, d.OK)
		require.InDelta(t, time.Minute, d.ResetAfter, float64(time.Second))
		time.Sleep(time.Minute + time.Second)
		require.True(t, claim(t, other, users).OK, "the window is over, and a sliding counter has restored one unit")
	})
}

// Each message is late by its transmission time. The reset in it does not move the reset that is known.
func TestSharing_resetDoesNotMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{}
		_, other := two(t, b)
		start, ep := time.Now(), other.endpointOf(request(t, users))
		for i := range 100 {
			late := time.Duration(i%30) * 30 * time.Millisecond
			b.publish(t, other, Update{Kind: UpdateLimits, Sender: 1, Route: ep.route(request(t, users)), Limits: []throttle.RemoteLimit{
				{Limit: 1000, Remaining: 1000 - int64(i), ResetAfter: time.Minute + late - time.Since(start)},
			}})
			time.Sleep(time.Millisecond)
		}
		d := claim(t, other, users)
		require.EqualValues(t, 901, d.Remaining)
		require.Equal(t, time.Minute, time.Since(start)+d.ResetAfter)
	})
}

func TestSharing_distinguishesRoutesAndAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		one, other := two(t, b)
		for _, path := range []string{users, search} {
			ask(t, other, path, quotaOf(path, "1000", "999", "60"))
			ask(t, one, path, quotaOf(path, "1000", "998", "60"))
		}
		reject(t, one, search, "Retry-After", "60")
		settle(b)
		require.False(t, claim(t, other, search).OK)
		require.True(t, claim(t, other, users).OK)
		m := other.Demand(request(t, search, "Authorization", "another"))
		settle(b)
		d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		require.True(t, d.OK)
	})
}

// A process that begins to use an account later fetches what is known, from the bus or from what it
// has received before.
func TestSharing_laterProcessesFetch(t *testing.T) {
	for name, forget := range map[string]bool{"kept by the bus": false, "received before": true} {
		synctest.Test(t, func(t *testing.T) {
			b := &bus{delay: time.Millisecond}
			all := trackers(b, 2, time.Hour)
			other := all[1]
			other.Demand(request(t, "https://elsewhere.test/")) // subscribes
			all[0].Demand(request(t, users))
			settle(b)
			reject(t, all[0], users, "Retry-After", "60")
			settle(b)
			if forget {
				b.mu.Lock()
				b.kept = nil
				b.mu.Unlock()
			}
			time.Sleep(10 * time.Second)
			require.False(t, claim(t, other, users).OK, "until the fetch has ended")
			settle(b)
			require.False(t, claim(t, other, users).OK, name)
			require.InDelta(t, 50*time.Second, heldFor(t, other, users), float64(time.Second), name)
		})
	}
}

func TestSharing_worksIfFetchesDoNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := trackers(silentBus{}, 1, 0)[0]
		require.Equal(t, 100*time.Millisecond, claim(t, tr, users).Wait)
		time.Sleep(fetchTime)
		reject(t, tr, users, "Retry-After", "60")
		require.False(t, claim(t, tr, users).OK)
	})
}

// silentBus is a bus that transports nothing.
type silentBus struct{}

func (silentBus) Publish(message)                          {}
func (silentBus) Subscribe(context.Context, func(message)) {}
func (silentBus) Fetch(string)                             {}

// If a hold is longer than the wait for other processes, it is the reason to wait.
func TestSharing_holdIsTheReasonToWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		one, other := two(t, b)
		req := request(t, users)
		ask(t, other, users, quotaOf("core", "100", "30", "600"))
		settle(b)
		reject(t, one, users, "Retry-After", "60")
		settle(b)
		for range 20 {
			time.Sleep(50 * time.Millisecond)
			require.Equal(t, "api.test: retry-after", claim(t, other, users).Policy)
			require.Greater(t, heldFor(t, other, users), 50*time.Second)
		}
		_, err := other.Demand(req).Limiter.Reserve(t.Context(), throttle.Claim{Cost: -1})
		require.ErrorIs(t, err, throttle.ErrCost)
	})
}

// Clocks of tests often begin at the Unix epoch. Updates of that time, and of the zero Time, count.
func TestSharing_worksFromAnyEpoch(t *testing.T) {
	for _, now := range []time.Time{time.Unix(0, 0), time.Unix(-1, 0), {}} {
		synctest.Test(t, func(t *testing.T) {
			b := &bus{delay: time.Millisecond}
			var all []*Tracker
			for i := range 2 {
				tr := seeded(uint64(i))
				tr.Clock = stopped(now)
				tr.Exchange = newExchange(b, secret, tr.Clock)
				tr.Demand(request(t, users))
				all = append(all, tr)
			}
			settle(b)
			for range holdAfter {
				m := all[0].Demand(request(t, users))
				d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{})
				require.NoError(t, err)
				f := all[0].Feedback(request(t, users), m, answer(429, "Retry-After", "60"), nil, now, nil)
				f.Now = now
				m.Limiter.Report(t.Context(), throttle.Claim{}, d, f)
			}
			settle(b)
			require.False(t, claim(t, all[1], users).OK, now)
		})
	}
}

// A release ends the hold that its test has tested, before its stated end, too, and not one that began after the
// test was sent.
func TestSharing_releaseEndsOnlyTheHoldThatWasProbed(t *testing.T) {
	for name, tt := range map[string]struct {
		hold, after, probed time.Duration // the hold, and after that a release of a probe sent so long before
		released            bool
	}{
		"probe after the hold":  {time.Second, 3 * time.Second, time.Second, true},
		"hold began later":      {time.Second, 3 * time.Second, 4 * time.Second, false},
		"hold that ends later":  {time.Minute, 3 * time.Second, time.Second, true},
		"hold that ends by now": {time.Minute, 59 * time.Second, time.Second, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &bus{}
			_, other := two(t, b)
			b.publish(t, other, Update{Kind: UpdateHold, Stated: true, Sender: 1, Wait: tt.hold})
			time.Sleep(tt.after)
			b.publish(t, other, Update{Kind: UpdateRelease, Sender: 1, Wait: tt.probed})
			quota, _ := other.Demand(request(t, users)).Limiter.(*quota)
			require.Equal(t, tt.released, !quota.Hold.Held, name)
		})
	}
}

// Of processes that were rejected at the same time, one sends the probe first.
func TestSharing_oneOfSeveralRejectedProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{}
		one, _ := two(t, b)
		reject(t, one, users, "Retry-After", "60")
		synctest.Wait()
		end := claim(t, one, users).Wait
		b.publish(t, one, Update{Kind: UpdateHold, Stated: true, Sender: math.MaxUint64, Wait: time.Minute})
		require.Equal(t, end, claim(t, one, users).Wait, "the other process has the higher identifier, and follows")
		b.publish(t, one, Update{Kind: UpdateHold, Stated: true, Sender: 0, Wait: time.Minute})
		require.Greater(t, claim(t, one, users).Wait, end)
	})
}

// An Exchange is called without a lock, so it may call the Tracker.
func TestSharing_exchangeMayCallTheTracker(t *testing.T) {
	e := new(callingExchange)
	e.tracker = &Tracker{Exchange: e}
	require.False(t, claim(t, e.tracker, users).OK, "the fetch has not ended")
	e.receive(Update{Account: e.account})
	reject(t, e.tracker, users, "Retry-After", "60")
	require.Equal(t, []UpdateKind{UpdateJoin, UpdateHold}, e.kinds)
}

// A callingExchange takes a snapshot of its Tracker whenever it is called.
type callingExchange struct {
	tracker *Tracker
	account string
	kinds   []UpdateKind
	receive func(Update)
}

func (e *callingExchange) Key() []byte { return secret }

func (e *callingExchange) Publish(u Update) {
	e.kinds = append(e.kinds, u.Kind)
	e.tracker.Snapshot(1)
}

func (e *callingExchange) Subscribe(_ context.Context, receive func(Update)) { e.receive = receive }

func (e *callingExchange) Fetch(account string) {
	e.account = account
	e.tracker.Snapshot(1)
}

// Limits are published again after five milliseconds, or when nothing is left.
func TestSharing_limitsArePublishedAtIntervals(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		after     time.Duration
		known     int64
		remaining int64
		want      bool
	}{
		"too soon":                     {publishEvery - 1, 100, 50, false},
		"after the interval":           {publishEvery, 100, 50, true},
		"nothing is left, immediately": {0, 100, 0, true},
		"the same":                     {publishEvery, 50, 50, false},
		"the same, for a second":       {joinEvery, 50, 50, true},
		"not yet for a second":         {joinEvery - 1, 50, 50, false},
	} {
		reset := now.Add(time.Hour)
		q := quota{shared: &sharedState{limitsAt: now.Add(-tt.after), limits: knownLimits(statedlimit.Estimate{Remaining: tt.known, Reset: reset})}}
		q.Estimates = []statedlimit.Estimate{{Limit: 100, Remaining: tt.remaining, Reset: reset}}
		require.Equal(t, tt.want, q.limitsChanged(now), name)
	}
	q := quota{shared: &sharedState{limitsAt: now.Add(-publishEvery)}, Quota: model.Quota{Units: model.Units{Estimates: []statedlimit.Estimate{{Limit: 100, Remaining: 99, Reset: now}}}}}
	require.True(t, q.limitsChanged(now), "a new limit")
}
