package quota

import (
	"context"
	"math"
	"slices"
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
		per      time.Duration
		rejected int // of a thousand calls
		later    int // of them, after all could know of the first, in the median of three runs
		ideal    time.Duration
	}{
		"window of 10 s, Retry-After": {func() server { return alignedWindow(50, 10*time.Second, false, true) }, 10 * time.Second, 150, 5, 190 * time.Second},
		"window of 1 s, Retry-After":  {func() server { return alignedWindow(50, time.Second, false, true) }, time.Second, 150, 5, 19 * time.Second},
		"window of 10 s, headers":     {func() server { return alignedWindow(50, 10*time.Second, true, true) }, 10 * time.Second, 30, 3, 190 * time.Second},
		"window of 1 s, headers":      {func() server { return alignedWindow(50, time.Second, true, true) }, time.Second, 30, 3, 19 * time.Second},
		// A server that states nothing causes no hold that could be shared, but evidence, and then
		// a learned rate in each process.
		"bucket that states nothing": {func() server { return tokenBucket(50, 50, false) }, 500 * time.Millisecond, 120, 25, 19 * time.Second},
	} {
		for _, skew := range []time.Duration{0, -time.Hour} {
			var later []int // depends on the order of goroutines
			run := func(t *testing.T) {
				var log []arrival
				all := trackers(&bus{delay: delay}, 10, skew)
				jobs := playAll(t, all, watch(tt.server(), &log), 100, 20, rtt)
				own, known := rejectedAfter(log, tt.per*9/10, rtt+delay)
				t.Logf("%s, skew %v: sent %d, rejected %d, %d of them later", name, skew, len(log), own+known, known)
				later = append(later, known)
				require.LessOrEqual(t, own, tt.rejected, name)
				for _, j := range jobs {
					require.Zero(t, j.failed, name)
					require.Less(t, j.elapsed, 3*tt.ideal, name)
				}
				time.Sleep(time.Second)
			}
			for range 3 {
				synctest.Test(t, run)
			}
			slices.Sort(later)
			require.LessOrEqual(t, later[1], tt.later, "%s: rejected although another process had published a hold: %v", name, later)
		}
	}
}

// reject lets tr send one request, which is rejected.
func reject(t *testing.T, tr *Tracker, url string, header ...string) {
	require.True(t, ask(t, tr, url, answer(429, header...)).OK)
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

func TestSharing_oneAcceptedProbeReleasesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		one, other := two(t, b)
		reject(t, one, users, "Retry-After", "60")
		settle(b)
		d := claim(t, other, users)
		require.False(t, d.OK)
		require.True(t, d.ServerImposed)
		require.InDelta(t, time.Minute+2*time.Second, d.Wait, float64(3*time.Second))
		time.Sleep(62 * time.Second)

		probe, err := one.Demand(request(t, users)).Limiter.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		require.True(t, probe.OK)
		settle(b)
		require.False(t, claim(t, other, users).OK, "the probe of the other process is in flight")
		m := one.Demand(request(t, users))
		throttle.Observe(t.Context(), m.Limiter, throttle.Claim{}, probe, one.Feedback(request(t, users), m, answer(200), nil, time.Now(), nil))
		settle(b)
		time.Sleep(time.Second) // the learned rate begins
		require.True(t, claim(t, other, users).OK)
	})
}

// A process that ends before the result of its probe delays other processes by two seconds at most.
func TestSharing_processesProbeIfNoResultArrives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bus{delay: time.Millisecond}
		one, other := two(t, b)
		reject(t, one, users, "Retry-After", "1")
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
		reject(t, one, users, "Retry-After", "1")
		time.Sleep(1100 * time.Millisecond)
		w := &queue.Queue{}
		other.Notify(w)
		ask(t, one, users, answer(200)) // probe and response
		start := time.Now()
		var ticket queue.Ticket
		ticket.Demands[0] = other.Demand(request(t, users))
		require.NoError(t, w.Wait(t.Context(), &ticket))
		require.Less(t, time.Since(start), 10*time.Millisecond)
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
		require.InDelta(t, time.Minute, d.Wait, float64(time.Second))
		time.Sleep(time.Minute)
		require.True(t, claim(t, other, users).OK, "the window is over")
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
			d := claim(t, other, users)
			require.False(t, d.OK, name)
			require.InDelta(t, 51*time.Second, d.Wait, float64(2*time.Second), name)
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
		req, m := request(t, users), one.Demand(request(t, users))
		early, err := m.Limiter.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		ask(t, other, users, quotaOf("core", "100", "3", "600"))
		settle(b)
		throttle.Observe(t.Context(), m.Limiter, throttle.Claim{}, early, one.Feedback(req, m, answer(429, "Retry-After", "60"), nil, time.Now(), nil))
		settle(b)
		for range 20 {
			time.Sleep(50 * time.Millisecond)
			require.Greater(t, claim(t, other, users).Wait, 50*time.Second)
		}
		_, err = other.Demand(req).Limiter.Reserve(t.Context(), throttle.Claim{Cost: -1})
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
			m := all[0].Demand(request(t, users))
			d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{})
			require.NoError(t, err)
			f := all[0].Feedback(request(t, users), m, answer(429, "Retry-After", "60"), nil, now, nil)
			f.Now = now
			throttle.Observe(t.Context(), m.Limiter, throttle.Claim{}, d, f)
			settle(b)
			require.False(t, claim(t, all[1], users).OK, now)
		})
	}
}

// A release ends the hold that its probe tested: not one that began after the probe was sent, and
// not one that the server stated to end much later.
func TestSharing_releaseEndsOnlyTheHoldThatWasProbed(t *testing.T) {
	for name, tt := range map[string]struct {
		hold, after, probed time.Duration // the hold, and after that a release of a probe sent so long before
		released            bool
	}{
		"probe after the hold":  {time.Second, 3 * time.Second, time.Second, true},
		"hold began later":      {time.Second, 3 * time.Second, 4 * time.Second, false},
		"hold that ends later":  {time.Minute, 3 * time.Second, time.Second, false},
		"hold that ends by now": {time.Minute, 59 * time.Second, time.Second, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &bus{}
			_, other := two(t, b)
			route := other.endpointOf(request(t, users)).route(request(t, users))
			b.publish(t, other, Update{Kind: UpdateHold, Stated: true, Sender: 1, Route: route, Wait: tt.hold})
			time.Sleep(tt.after)
			b.publish(t, other, Update{Kind: UpdateRelease, Sender: 1, Route: route, Wait: tt.probed})
			quota, _ := other.Demand(request(t, users)).Limiter.(*quota)
			require.Equal(t, tt.released, !quota.Hold.Active, name)
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
		route := one.endpointOf(request(t, users)).route(request(t, users))
		b.publish(t, one, Update{Kind: UpdateHold, Stated: true, Sender: math.MaxUint64, Route: route, Wait: time.Minute})
		require.Equal(t, end, claim(t, one, users).Wait, "the other process has the higher identifier, and follows")
		b.publish(t, one, Update{Kind: UpdateHold, Stated: true, Sender: 0, Route: route, Wait: time.Minute})
		require.Greater(t, claim(t, one, users).Wait, end)
	})
}

// An Exchange is called without a lock, so it may call the Tracker.
func TestSharing_exchangeMayCallTheTracker(t *testing.T) {
	e := new(callingExchange)
	e.tracker = &Tracker{Exchange: e}
	require.False(t, claim(t, e.tracker, users).OK, "the fetch has not ended")
	e.receive(Update{Account: e.account})
	require.True(t, ask(t, e.tracker, users, answer(429, "Retry-After", "60")).OK)
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
