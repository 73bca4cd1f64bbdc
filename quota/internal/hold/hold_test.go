package hold

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/quota/internal/inflight"
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
		var h Hold
		now, n := start, uint64(1)
		for i, want := range tt.want {
			require.True(t, h.Rejected(n, now, Rejection{RetryAfter: tt.retryAfter(now), Window: tt.window, MaxHold: 15 * time.Minute, Sent: n}), name)
			require.InDelta(t, want, h.Until.Sub(now), float64(time.Second), "%s, %d", name, i)
			now, n = h.Until, n+1
		}
		// A probe that is rejected with a shorter wait does not shorten the hold.
		end := h.statedEnd
		h.Rejected(n, now, Rejection{RetryAfter: time.Second, MaxHold: 15 * time.Minute, Sent: n})
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
		h := Hold{Active: true, Estimated: !tt.stated, LastSent: 7, Since: begin, RejectedAt: begin.Add(tt.closed), Until: begin.Add(tt.until), LastPause: tt.before}
		require.False(t, h.Accepted(7, begin), "%s: it was sent before the hold", name)
		require.True(t, h.Accepted(8, begin.Add(tt.sent)), name)
		require.Equal(t, tt.gap, h.LastPause, name)
		require.Equal(t, tt.lasting, h.LastTotal, name)
		require.False(t, h.Accepted(9, begin.Add(tt.sent)), "%s: it is over", name)
	}
}

// If the server states no wait, the pause grows from one second by 60 % with each rejected probe, to a
// minute. A random part of it, at most a half, is left out.
func TestHold_pausesGrow(t *testing.T) {
	now := time.Unix(1000, 0)
	for random, shorter := range map[float64]float64{0: 1, .5: .75, 1: .5} {
		var h Hold
		for i, want := range []float64{1, 1.6, 2.56, 4.096, 6.5536, 10.48576, 16.777216, 26.8435456, 42.94967296, 60, 60} {
			n := uint64(i + 1)
			require.True(t, h.Rejected(n, now, Rejection{Random: random, Sent: n}))
			require.InDelta(t, shorter*want, h.Until.Sub(now).Seconds(), 1e-6, "rejection %d, random number %v", n, random)
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
		h := Hold{LastSent: 4}
		want := now.Add(min(tt.wait, headers.MaxDelay) + tt.later)
		if tt.wait < 0 {
			want = now.Add(BasePause)
		}
		h.Rejected(5, now, Rejection{RetryAfter: tt.wait, Spread: tt.spread, Random: tt.random, Window: 2 * headers.MaxDelay, Sent: 5})
		require.Equal(t, want, h.Until, name)
	}
}

// Rejections of claims that were granted before the latest event belong to it: only a longer stated
// wait changes the hold.
func TestHold_rejectionsOfOneBurstAreOneEvent(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	var h Hold
	require.True(t, h.Rejected(5, start, Rejection{RetryAfter: 10 * time.Second, Sent: 8, InFlight: 4}))
	for name, r := range map[string]Rejection{
		"a shorter wait": {RetryAfter: 5 * time.Second},
		"no wait":        {},
		"a pause":        {Pause: time.Minute, Estimated: true},
	} {
		before := h
		r.Sent, r.InFlight = 9, 7
		require.False(t, h.Rejected(8, at(1), r), name)
		require.Equal(t, before, h, name)
	}
	require.False(t, h.Rejected(8, at(1), Rejection{RetryAfter: 20 * time.Second, Sent: 9}))
	require.Equal(t, at(21), h.Until)
	require.Equal(t, Hold{
		Until: at(21), Active: true, Rejections: 1, Since: start, RejectedAt: start, LastSent: 8, InFlight: 4, statedEnd: at(21),
	}, h)
	require.True(t, h.Rejected(9, at(22), Rejection{Estimated: true, Pause: 3 * time.Second, Sent: 12, InFlight: 1}))
	require.Equal(t, at(25), h.Until)
	require.Equal(t, 2, h.Rejections)
	require.True(t, h.Estimated, "the stated end is over")
	require.Equal(t, start, h.Since)
	require.EqualValues(t, 4, h.InFlight, "as before the first event")
	require.EqualValues(t, 12, h.LastSent)
	require.Equal(t, at(22), h.RejectedAt)
}

// An early probe that is rejected without a new end does not end the hold, and does not make it an
// estimate: the next probe follows after three times as long, or at the stated end.
func TestHold_keepsAStatedEnd(t *testing.T) {
	start := time.Unix(1000, 0)
	var h Hold
	r := Rejection{RetryAfter: 3 * time.Hour, MaxHold: 15 * time.Minute, Sent: 1}
	require.True(t, h.Rejected(1, start, r))
	now := start
	for i, wait := range []time.Duration{45 * time.Minute, 2 * time.Hour} {
		now = h.Until
		r = Rejection{Estimated: true, Pause: time.Second, MaxHold: 15 * time.Minute, Sent: uint64(i + 2)}
		require.True(t, h.Rejected(uint64(i+2), now, r))
		require.Equal(t, now.Add(wait), h.Until, i)
		require.Equal(t, start.Add(3*time.Hour), h.statedEnd, i)
		require.False(t, h.Estimated, i)
	}
}

// A rejected probe has moved the end if that is more than a minute later.
func TestHold_anEndThatIsAMinuteLaterHasMoved(t *testing.T) {
	now := time.Unix(1000, 0)
	for later, moved := range map[time.Duration]int{0: 0, time.Minute: 0, time.Minute + 1: 1} {
		h := Hold{Active: true, Rejections: 1, statedEnd: now.Add(2 * time.Hour), LastSent: 1}
		require.True(t, h.Rejected(2, now, Rejection{RetryAfter: 2*time.Hour + later, MaxHold: time.Minute, Sent: 2}))
		require.Equal(t, moved, h.movedProbes, "%v later", later)
		require.False(t, h.Rejected(2, now, Rejection{RetryAfter: 9 * time.Hour, MaxHold: time.Minute, Sent: 2}))
		require.Equal(t, moved, h.movedProbes, "another response to the same burst")
	}
	h := Hold{LastSent: 1, statedEnd: now}
	h.Rejected(2, now, Rejection{RetryAfter: 2 * time.Hour, MaxHold: time.Minute, Sent: 2})
	require.Zero(t, h.movedProbes, "the first rejection is not a probe")
}

// No claim is granted before the end of a hold, and then one at a time: the probe.
func TestHold_grantsOneProbe(t *testing.T) {
	now := time.Unix(1000, 0)
	var f inflight.Claims
	f.Add() // was sent before the rejection
	h := Hold{Active: true, Until: now.Add(time.Second), LastSent: f.Sent}
	wait, ok := h.Check(now, &f)
	require.False(t, ok)
	require.Equal(t, time.Second, wait)
	_, ok = h.Check(h.Until, &f)
	require.True(t, ok, "the probe")
	probe := f.Add()
	wait, ok = h.Check(h.Until, &f)
	require.False(t, ok, "it is in flight")
	require.Zero(t, wait, "until it has a response")
	f.End(probe)
	_, ok = h.Check(h.Until, &f)
	require.True(t, ok, "it failed for another reason")
	require.True(t, h.Accepted(f.Add(), h.Until))
	f.Add()
	_, ok = h.Check(h.Until, &f)
	require.True(t, ok, "the hold is over")
	require.Equal(t, Hold{Until: now.Add(time.Second), LastSent: 1}, h, "what a stated hold leaves")
}

// Waits that grow are bounded by a year.
func TestTripled(t *testing.T) {
	for n, want := range map[int]time.Duration{-1: time.Minute, 0: time.Minute, 1: 3 * time.Minute, 2: 9 * time.Minute, 100: headers.MaxDelay} {
		require.Equal(t, want, Tripled(time.Minute, n), "%d", n)
	}
}

// The longest random delay after a stated end is a fortieth of the wait, at most MaxLate. Each
// rejected probe doubles it, five times: the probes of many clients that were rejected together come
// apart, and a server that rounds down is met. A release begins again.
func TestHold_probesOfManyClientsComeApart(t *testing.T) {
	var h Hold
	now, n := time.Unix(1000, 0), uint64(1)
	reject := func() time.Duration {
		h.Rejected(n, now, Rejection{RetryAfter: 4 * time.Second, MaxHold: 15 * time.Minute, Sent: n, Random: 1})
		late := h.Until.Sub(now) - 4*time.Second
		now, n = h.Until, n+1
		return late
	}
	for i := range 8 {
		require.Equal(t, 100*time.Millisecond<<min(i, 5), reject(), "rejection %d", i)
	}
	require.True(t, h.Accepted(n, now))
	require.Equal(t, 100*time.Millisecond, reject())
	h = Hold{}
	h.Rejected(1, now, Rejection{RetryAfter: time.Hour, MaxHold: 15 * time.Minute, Sent: 1, Random: 1})
	require.Equal(t, time.Hour+MaxLate, h.Until.Sub(now))
}

// A hold is over at its end, not a nanosecond before.
func TestHold_endsExactly(t *testing.T) {
	now := time.Unix(1000, 0)
	h := Hold{Until: now}
	wait, ok := h.Check(now.Add(-1), &inflight.Claims{})
	require.False(t, ok)
	require.EqualValues(t, 1, wait)
	wait, ok = h.Check(now, &inflight.Claims{})
	require.True(t, ok)
	require.Zero(t, wait)
	h = Hold{}
	require.True(t, h.Rejected(1, now, Rejection{RetryAfter: 1, Sent: 1, MaxHold: time.Minute}))
	require.Equal(t, now.Add(1), h.Until, "a wait of a nanosecond is a wait")
}

// Another rejection begins a hold that is not abandoned, unlike the one before.
func TestHold_isNotAbandonedAfterARejection(t *testing.T) {
	h := Hold{Abandoned: true}
	require.True(t, h.Rejected(1, time.Unix(1000, 0), Rejection{Sent: 1}))
	require.False(t, h.Abandoned)
}
