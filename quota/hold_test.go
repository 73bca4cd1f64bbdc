package quota

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
)

// A stated end that is more than an hour away is probed early, each time after three times as long.
// After two rejected probes that moved the end, there are no early probes.
func TestHold_probesLateEndsEarly(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		retryAfter func(now time.Time) time.Duration
		window     time.Duration
		want       []time.Duration // between the rejections
	}{
		"an hour":             {func(time.Time) time.Duration { return time.Hour }, 0, []time.Duration{time.Hour, time.Hour}},
		"a day, in its quota": {func(time.Time) time.Duration { return 24 * time.Hour }, 24 * time.Hour, []time.Duration{24 * time.Hour}},
		"a fixed end in ten days": {func(now time.Time) time.Duration { return start.Add(240 * time.Hour).Sub(now) }, 0,
			[]time.Duration{15 * time.Minute, 45 * time.Minute, 135 * time.Minute, 405 * time.Minute}},
		"two hours, renewed by each rejection": {func(time.Time) time.Duration { return 2 * time.Hour }, 0,
			[]time.Duration{15 * time.Minute, 45 * time.Minute, 2 * time.Hour}},
		"more than a year": {func(time.Time) time.Duration { return 1 << 62 }, 0, []time.Duration{15 * time.Minute, 45 * time.Minute}},
	} {
		var h hold
		now, n := start, uint64(1)
		for i, want := range tt.want {
			require.True(t, h.rejected(n, now, rejection{retryAfter: tt.retryAfter(now), window: tt.window, maxHold: 15 * time.Minute, sent: n}), name)
			require.InDelta(t, want, h.until.Sub(now), float64(time.Second), "%s, %d", name, i)
			now, n = h.until, n+1
		}
		// A probe that is rejected with a shorter wait does not shorten the hold.
		end := h.statedEnd
		h.rejected(n, now, rejection{retryAfter: time.Second, maxHold: 15 * time.Minute, sent: n})
		require.False(t, h.statedEnd.Before(end), name)
	}
}

// What a hold that the server did not state shows of the length of the next one: the time without
// requests that ended it, or all of it if that was much longer than the latest such time, because
// probes do not extend the ban then. A time in which no request was to be sent does not count.
func TestHold_remembersWhatEndedABan(t *testing.T) {
	begin := time.Unix(1000, 0)
	const s = time.Second
	for name, tt := range map[string]struct {
		stated       bool
		before       time.Duration // lastPause
		closed       time.Duration // when it was last closed, from its beginning
		until, sent  time.Duration // when the probe was due and sent
		gap, lasting time.Duration
	}{
		"first probe":                 {false, 0, 0, 5 * s, 5 * s, 5 * s, 5 * s},
		"second probe":                {false, 0, 5 * s, 8 * s, 8 * s, 3 * s, 8 * s},
		"idle since":                  {false, 0, 0, 5 * s, 60 * s, 6 * s, 6 * s},
		"just not idle":               {false, 0, 0, 5 * s, 6 * s, 6 * s, 6 * s},
		"as long as twice before":     {false, 4 * s, 5 * s, 8 * s, 8 * s, 3 * s, 8 * s},
		"longer than twice before":    {false, 4 * s, 6 * s, 9 * s, 9 * s, 9 * s, 9 * s},
		"stated, which shows nothing": {true, 4 * s, 0, 9 * s, 9 * s, 4 * s, 0},
	} {
		h := hold{active: true, estimated: !tt.stated, lastSent: 7, since: begin, rejectedAt: begin.Add(tt.closed), until: begin.Add(tt.until), lastPause: tt.before}
		require.False(t, h.accepted(7, begin), "%s: it was sent before the hold", name)
		require.True(t, h.accepted(8, begin.Add(tt.sent)), name)
		require.Equal(t, tt.gap, h.lastPause, name)
		require.Equal(t, tt.lasting, h.lastTotal, name)
		require.False(t, h.accepted(9, begin.Add(tt.sent)), "%s: it is over", name)
	}
}

// Requests that wait for the end of a hold are not sent in one round trip, although the host was
// known to be without a limit before: it may reject all of them.
func TestTracker_sendsFewRequestsAfterAHold(t *testing.T) {
	const (
		far     = 40 * time.Millisecond
		bounded = 5 // round trips of the first 100 responses
	)
	for name, tt := range map[string]struct {
		before int // requests that were accepted before
		most   int // requests in one round trip
	}{
		"known host": {200, 18},
		"new host":   {1, 18},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := seeded(1)
			d := driver{t, tr}
			for range tt.before {
				require.True(t, d.send("/", 200), name)
				time.Sleep(time.Millisecond)
			}
			d.send("/", 429, "Retry-After", "2")
			j := play(t, tr, func(time.Time) (int, http.Header) { return 200, nil }, 1000, 1000, far)
			require.Zero(t, j.failed, name)
			probe := slices.Min(j.arrivals)
			require.GreaterOrEqual(t, probe, 2*time.Second, name)
			trips := map[time.Duration]int{}
			for _, at := range j.arrivals {
				trips[(at-probe)/far]++
			}
			require.Equal(t, 1, trips[0], "%s: the probe", name)
			for i := range time.Duration(bounded) {
				require.LessOrEqual(t, trips[i+1], tt.most, "%s, round trip %d: %v", name, i+1, trips)
			}
			require.Less(t, j.elapsed, 4*time.Second, "%s: the bound is doubled then: %v", name, trips)
		})
	}
}

// If the server states no wait, the pause grows from one second by 60 % with each rejected probe, to a
// minute. A random part of it, at most a half, is left out.
func TestHold_pausesGrow(t *testing.T) {
	now := time.Unix(1000, 0)
	for random, shorter := range map[float64]float64{0: 1, .5: .75, 1: .5} {
		var h hold
		for i, want := range []float64{1, 1.6, 2.56, 4.096, 6.5536, 10.48576, 16.777216, 26.8435456, 42.94967296, 60, 60} {
			n := uint64(i + 1)
			require.True(t, h.rejected(n, now, rejection{random: random, sent: n}))
			require.InDelta(t, shorter*want, h.until.Sub(now).Seconds(), 1e-6, "rejection %d, random number %v", n, random)
		}
	}
}

// If the server states a wait, the probe is sent after it: later by at most a fortieth of the wait and
// 250 ms, or by the spread of several clients if that is longer.
func TestHold_probesAfterTheStatedEnd(t *testing.T) {
	const s, ms = time.Second, time.Millisecond
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		wait   time.Duration
		spread time.Duration
		random float64
		later  time.Duration
	}{
		"exactly":                    {4 * s, 0, 0, 0},
		"at most a fortieth":         {4 * s, 0, 1, 100 * ms},
		"half of that":               {4 * s, 0, .5, 50 * ms},
		"at most 250 ms":             {time.Minute, 0, 1, 250 * ms},
		"spread over several":        {4 * s, s, 1, s},
		"a shorter spread":           {4 * s, 50 * ms, 1, 100 * ms},
		"a year at most":             {headers.MaxDelay + time.Hour, 0, 0, 0},
		"negative: none, so a pause": {-s, 0, 0, 0},
	} {
		h := hold{lastSent: 4}
		want := now.Add(min(tt.wait, headers.MaxDelay) + tt.later)
		if tt.wait < 0 {
			want = now.Add(basePause)
		}
		h.rejected(5, now, rejection{retryAfter: tt.wait, spread: tt.spread, random: tt.random, window: 2 * headers.MaxDelay, sent: 5})
		require.Equal(t, want, h.until, name)
	}
}

// Rejections of claims that were granted before the latest event belong to it: only a longer stated
// wait changes the hold.
func TestHold_rejectionsOfOneBurstAreOneEvent(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	var h hold
	require.True(t, h.rejected(5, start, rejection{retryAfter: 10 * time.Second, sent: 8, inFlight: 4}))
	for name, r := range map[string]rejection{
		"a shorter wait": {retryAfter: 5 * time.Second},
		"no wait":        {},
		"a pause":        {pause: time.Minute, estimated: true},
	} {
		before := h
		r.sent, r.inFlight = 9, 7
		require.False(t, h.rejected(8, at(1), r), name)
		require.Equal(t, before, h, name)
	}
	require.False(t, h.rejected(8, at(1), rejection{retryAfter: 20 * time.Second, sent: 9}))
	require.Equal(t, at(21), h.until)
	require.Equal(t, hold{
		until: at(21), active: true, rejections: 1, since: start, rejectedAt: start, lastSent: 8, inFlight: 4, statedEnd: at(21),
	}, h)
	require.True(t, h.rejected(9, at(22), rejection{estimated: true, pause: 3 * time.Second, sent: 12, inFlight: 1}))
	require.Equal(t, at(25), h.until)
	require.Equal(t, 2, h.rejections)
	require.True(t, h.estimated, "the stated end is over")
	require.Equal(t, start, h.since)
	require.EqualValues(t, 4, h.inFlight, "as before the first event")
	require.EqualValues(t, 12, h.lastSent)
	require.Equal(t, at(22), h.rejectedAt)
}

// An early probe that is rejected without a new end does not end the hold, and does not make it an
// estimate: the next probe follows after three times as long, or at the stated end.
func TestHold_keepsAStatedEnd(t *testing.T) {
	start := time.Unix(1000, 0)
	var h hold
	r := rejection{retryAfter: 3 * time.Hour, maxHold: 15 * time.Minute, sent: 1}
	require.True(t, h.rejected(1, start, r))
	now := start
	for i, wait := range []time.Duration{45 * time.Minute, 2 * time.Hour} {
		now = h.until
		r = rejection{estimated: true, pause: time.Second, maxHold: 15 * time.Minute, sent: uint64(i + 2)}
		require.True(t, h.rejected(uint64(i+2), now, r))
		require.Equal(t, now.Add(wait), h.until, i)
		require.Equal(t, start.Add(3*time.Hour), h.statedEnd, i)
		require.False(t, h.estimated, i)
	}
}

// A rejected probe has moved the end if that is more than a minute later.
func TestHold_anEndThatIsAMinuteLaterHasMoved(t *testing.T) {
	now := time.Unix(1000, 0)
	for later, moved := range map[time.Duration]int{0: 0, time.Minute: 0, time.Minute + 1: 1} {
		h := hold{active: true, rejections: 1, statedEnd: now.Add(2 * time.Hour), lastSent: 1}
		require.True(t, h.rejected(2, now, rejection{retryAfter: 2*time.Hour + later, maxHold: time.Minute, sent: 2}))
		require.Equal(t, moved, h.movedProbes, "%v later", later)
		require.False(t, h.rejected(2, now, rejection{retryAfter: 9 * time.Hour, maxHold: time.Minute, sent: 2}))
		require.Equal(t, moved, h.movedProbes, "another response to the same burst")
	}
	h := hold{lastSent: 1, statedEnd: now}
	h.rejected(2, now, rejection{retryAfter: 2 * time.Hour, maxHold: time.Minute, sent: 2})
	require.Zero(t, h.movedProbes, "the first rejection is not a probe")
}

// No claim is granted before the end of a hold, and then one at a time: the probe.
func TestHold_grantsOneProbe(t *testing.T) {
	now := time.Unix(1000, 0)
	var f inFlight
	f.add() // was sent before the rejection
	h := hold{active: true, until: now.Add(time.Second), lastSent: f.sent}
	wait, ok := h.check(now, &f)
	require.False(t, ok)
	require.Equal(t, time.Second, wait)
	_, ok = h.check(h.until, &f)
	require.True(t, ok, "the probe")
	probe := f.add()
	wait, ok = h.check(h.until, &f)
	require.False(t, ok, "it is in flight")
	require.Zero(t, wait, "until it has a response")
	f.end(probe)
	_, ok = h.check(h.until, &f)
	require.True(t, ok, "it failed for another reason")
	require.True(t, h.accepted(f.add(), h.until))
	f.add()
	_, ok = h.check(h.until, &f)
	require.True(t, ok, "the hold is over")
	require.Equal(t, hold{until: now.Add(time.Second), lastSent: 1}, h, "what a stated hold leaves")
}

// Waits that grow are bounded by a year.
func TestTripled(t *testing.T) {
	for n, want := range map[int]time.Duration{-1: time.Minute, 0: time.Minute, 1: 3 * time.Minute, 2: 9 * time.Minute, 100: headers.MaxDelay} {
		require.Equal(t, want, tripled(time.Minute, n), "%d", n)
	}
}

// The longest random delay after a stated end is a fortieth of the wait, at most maxLate. Each
// rejected probe doubles it, five times: the probes of many clients that were rejected together come
// apart, and a server that rounds down is met. A release begins again.
func TestHold_probesOfManyClientsComeApart(t *testing.T) {
	var h hold
	now, n := time.Unix(1000, 0), uint64(1)
	reject := func() time.Duration {
		h.rejected(n, now, rejection{retryAfter: 4 * time.Second, maxHold: 15 * time.Minute, sent: n, random: 1})
		late := h.until.Sub(now) - 4*time.Second
		now, n = h.until, n+1
		return late
	}
	for i := range 8 {
		require.Equal(t, 100*time.Millisecond<<min(i, 5), reject(), "rejection %d", i)
	}
	require.True(t, h.accepted(n, now))
	require.Equal(t, 100*time.Millisecond, reject())
	h = hold{}
	h.rejected(1, now, rejection{retryAfter: time.Hour, maxHold: 15 * time.Minute, sent: 1, random: 1})
	require.Equal(t, time.Hour+maxLate, h.until.Sub(now))
}
