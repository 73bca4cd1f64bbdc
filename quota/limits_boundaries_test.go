package quota

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// While other clients use a limit of which nothing is left, requests wait for its reset.
func TestEstimate_nothingIsFreeOfASharedLimit(t *testing.T) {
	now := time.Unix(1000, 0)
	e := estimate{limit: 100, at: now, reset: now.Add(10 * time.Second), others: otherClients{present: true, share: .5, jitter: 1}}
	for _, tt := range []struct{ remaining, open int64 }{{0, 0}, {1, 1}, {1, 0}} {
		e.remaining = tt.remaining
		units, wait := e.free(now, &inFlight{open: tt.open}, pacing{})
		require.Zero(t, units)
		require.Equal(t, 10*time.Second, wait, "%+v: the last units show other clients that the window is not over", tt)
	}
	units, wait := (&estimate{limit: 100, remaining: 1, at: now, reset: now.Add(10 * time.Second), refill: refill{kind: refillsAtReset}}).free(now, &inFlight{}, pacing{})
	require.EqualValues(t, 1, units)
	require.Zero(t, wait)
}

// A window of a limit that only rejections state is tested by one request after twenty windows. Windows end
// at multiples of their length after a stated end, unless one did not.
func TestCountedWindows_nextEnd(t *testing.T) {
	now := time.Unix(1000, 0)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	for name, tt := range map[string]struct {
		windows countedWindows
		want    time.Duration // from now
	}{
		"no length":            {countedWindows{end: in(-time.Second)}, 0},
		"of a nanosecond":      {countedWindows{length: 1}, 1},
		"the grid":             {countedWindows{end: in(-4 * time.Second), length: 10 * time.Second}, 6 * time.Second},
		"at a point of it":     {countedWindows{end: in(-20 * time.Second), length: 10 * time.Second}, 10 * time.Second},
		"the end is not over":  {countedWindows{end: in(4 * time.Second), length: 10 * time.Second}, 4 * time.Second},
		"not on a grid":        {countedWindows{end: in(-4 * time.Second), length: 10 * time.Second, offGrid: true}, 10 * time.Second},
		"no rejection said it": {countedWindows{length: 10 * time.Second}, 10 * time.Second},
	} {
		require.Equal(t, tt.want, tt.windows.nextEnd(now).Sub(now), name)
	}
	e := estimate{limit: 10, remaining: 3, counted: countedWindows{length: time.Minute}, probe: true, refill: refill{kind: refillsEvenly, rate: 9}, others: otherClients{present: true, window: time.Hour}}
	e.early.contradicted = 2
	f := inFlight{sent: 7, open: 2}
	for i := range testEvery {
		e.beginWindow(now, &f)
		require.EqualValues(t, i+1, e.counted.windows)
		require.Equal(t, time.Minute, e.counted.length)
		require.Equal(t, in(time.Minute), e.reset)
	}
	require.Equal(t, []int64{10, 9, 7, 2}, []int64{e.limit, e.remaining, int64(e.lastSent), e.openAtUpdate})
	require.False(t, e.probe)
	require.True(t, e.counted.on)
	require.Equal(t, earlyTest{}, e.early)
	require.Equal(t, refill{kind: refillsAtReset}, e.refill)
	require.Equal(t, otherClients{window: time.Hour}, e.others)
	e.beginWindow(now, &f)
	require.Zero(t, e.counted.windows)
	require.Zero(t, e.counted.length, "the limit may have been raised")
	require.Equal(t, now, e.reset)
}

// The length of a window is from its first request to the end that a rejection stated, or the usual length
// that is closest. If it did not end a multiple of its length after the one before, windows are on no grid.
func TestCountedWindows_endOnAGrid(t *testing.T) {
	before := time.Unix(1000, 0)
	const s = time.Second
	for name, tt := range map[string]struct {
		start, end time.Duration // after the end that was stated before
		length     time.Duration // known before
		off        bool          // rejections are not all that is stated
		want       time.Duration
		offGrid    bool
	}{
		"a usual length":              {0, 5 * s, 0, false, 5 * s, false},
		"almost":                      {0, 5*s + tolerance - 1, 0, false, 5 * s, false},
		"not quite":                   {0, 6100 * time.Millisecond, 0, false, 6100 * time.Millisecond, false},
		"a little less":               {0, 10*s - tolerance + 1, 0, false, 10 * s, false},
		"too little":                  {0, 8900 * time.Millisecond, 0, false, 8900 * time.Millisecond, false},
		"the same window":             {-4 * s, tolerance, 7 * s, false, 7 * s, false},
		"another one":                 {-4 * s, tolerance + 1, 0, false, 5 * s, false},
		"all responses state it":      {0, 5 * s, 7 * s, true, 7 * s, false},
		"on the grid":                 {5 * s, 10 * s, 5 * s, false, 5 * s, false},
		"on the grid, a little later": {5 * s, 10*s + tolerance, 5 * s, false, 5*s + tolerance, false},
		"too late for it":             {5 * s, 10*s + tolerance + 1, 5 * s, false, 5*s + tolerance + 1, true},
		"a little earlier":            {5 * s, 10*s - tolerance, 5 * s, false, 5*s - tolerance, false},
		"too early":                   {5 * s, 10*s - tolerance - 1, 5 * s, false, 5*s - tolerance - 1, true},
	} {
		c := countedWindows{on: !tt.off, end: before, length: tt.length, windows: 4}
		c.stateEnd(before.Add(tt.end), before.Add(tt.start))
		require.Equal(t, before.Add(tt.end), c.end, name)
		require.Equal(t, tt.want, c.length, name)
		require.Equal(t, tt.offGrid, c.offGrid, name)
		if tt.length != tt.want || tt.end > tolerance && !tt.off {
			require.Zero(t, c.windows, name)
		} else {
			require.EqualValues(t, 4, c.windows, name)
		}
	}
	for _, tt := range []struct {
		left, limit int64
		refuted     bool
	}{{2, 8, true}, {1, 8, false}, {1, 1, false}, {2, 1, true}, {12, 96, false}, {13, 96, true}, {13, 103, true}, {13, 104, false}} {
		c := countedWindows{on: true, length: time.Minute}
		c.rejected(tt.left, tt.limit)
		require.Equal(t, tt.refuted, c.refuted, "%d of %d left", tt.left, tt.limit)
		require.Equal(t, tt.refuted, c == countedWindows{refuted: true})
	}
	c := countedWindows{length: time.Minute}
	c.rejected(9, 10)
	require.Equal(t, countedWindows{length: time.Minute}, c, "all responses state it")
}

// When a bare response counts against a limit, begins a window of it, or shows that it is out of date.
func TestEstimate_countsUnstatedResponses(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		change   func(e *estimate)
		n        uint64
		accepted bool
		outdated bool
		left     int64 // of 5
		begun    bool
	}{
		"accepted":                         {nil, 6, true, false, 4, false},
		"rejected":                         {nil, 6, false, false, 4, false},
		"none left":                        {func(e *estimate) { e.remaining = 0 }, 6, true, false, 0, false},
		"the probe, rejected":              {func(e *estimate) { e.probe = true }, 6, false, true, 5, false},
		"the probe, accepted":              {func(e *estimate) { e.probe = true }, 6, true, false, 9, true},
		"a limit of none":                  {func(e *estimate) { e.probe, e.limit = true, 0 }, 6, true, true, 5, false},
		"a limit of one":                   {func(e *estimate) { e.probe, e.limit = true, 1 }, 6, true, false, 0, true},
		"windows are refuted":              {func(e *estimate) { e.probe, e.counted.refuted = true, true }, 6, true, true, 5, false},
		"before the probe":                 {func(e *estimate) { e.probe = true }, 5, true, false, 5, false},
		"before the probe, counted":        {func(e *estimate) { e.probe, e.counted.on = true, true }, 5, true, false, 4, false},
		"it counts requests in flight":     {func(e *estimate) { e.concurrency.confirmed = true }, 6, true, false, 5, false},
		"no probe, whatever it was before": {func(e *estimate) { e.counted.refuted = true }, 6, true, false, 4, false},
	} {
		e := estimate{limit: 10, remaining: 5, lastSent: 5}
		if tt.change != nil {
			tt.change(&e)
		}
		require.Equal(t, tt.outdated, e.countUnstated(tt.n, tt.accepted, now, &inFlight{}), name)
		require.Equal(t, tt.left, e.remaining, name)
		require.Equal(t, tt.begun, e.at.Equal(now), name)
	}
}

// The pause between probes of a limit without a reset is halved while many units are found, and begins again
// at a second when half of the limit is left.
func TestEstimate_adaptsThePauseOfProbes(t *testing.T) {
	for name, tt := range map[string]struct {
		pause time.Duration
		probe bool
		n     uint64
		left  int64
		want  time.Duration
	}{
		"the first probe":     {0, true, 6, 8, 500 * time.Millisecond},
		"seven units":         {time.Second, true, 6, 7, time.Second},
		"eight units":         {400 * time.Millisecond, true, 6, 8, 200 * time.Millisecond},
		"not below 50 ms":     {60 * time.Millisecond, true, 6, 8, 50 * time.Millisecond},
		"an earlier response": {400 * time.Millisecond, true, 5, 8, 400 * time.Millisecond},
		"no probe":            {400 * time.Millisecond, false, 6, 8, 400 * time.Millisecond},
		"half is left":        {400 * time.Millisecond, false, 6, 50, 0},
		"less than half":      {400 * time.Millisecond, false, 6, 49, 400 * time.Millisecond},
		"half, by a probe":    {400 * time.Millisecond, true, 6, 50, 500 * time.Millisecond},
	} {
		e := estimate{lastSent: 5, probe: tt.probe, probePause: tt.pause}
		e.adaptProbePause(throttle.RemoteLimit{Limit: 100, Remaining: tt.left}, tt.n)
		require.Equal(t, tt.want, e.probePause, name)
	}
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		pause time.Duration
		l     throttle.RemoteLimit
		want  time.Duration
	}{
		"nothing is stated":   {0, throttle.RemoteLimit{}, time.Second},
		"a pause is known":    {1, throttle.RemoteLimit{}, 1},
		"the reset is stated": {1, throttle.RemoteLimit{ResetAfter: time.Minute}, time.Minute},
		"a window is stated":  {1, throttle.RemoteLimit{Per: time.Minute}, time.Minute},
		"both":                {0, throttle.RemoteLimit{Per: time.Minute, ResetAfter: 1}, 1},
		"a negative one":      {0, throttle.RemoteLimit{Per: -1, ResetAfter: -1}, time.Second},
		"more than a year":    {0, throttle.RemoteLimit{ResetAfter: headers.MaxDelay + 1}, headers.MaxDelay},
		"a longer window":     {0, throttle.RemoteLimit{Per: headers.MaxDelay + 1}, headers.MaxDelay},
	} {
		e := estimate{probePause: tt.pause}
		require.Equal(t, tt.want, e.resetOf(tt.l, now).Sub(now), name)
	}
}

// How a stated reset refines the one that is known.
func TestEstimate_refinesItsReset(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		resolution time.Duration
		stated     time.Duration // of the present window, whose reset is a minute away
		want       time.Duration
	}{
		"earlier, in seconds": {time.Second, 59 * time.Second, 59 * time.Second},
		"later, in seconds":   {time.Second, 61 * time.Second, time.Minute},
		"later, exactly":      {0, 61 * time.Second, 61 * time.Second},
		"earlier, exactly":    {0, 59 * time.Second, 59 * time.Second},
	} {
		e := estimate{reset: now.Add(time.Minute)}
		require.Equal(t, tt.want, e.earlierReset(now.Add(tt.stated), throttle.RemoteLimit{Resolution: tt.resolution}).Sub(now), name)
	}
	for kind, want := range map[refillKind]time.Duration{refillsAtReset: 59 * time.Second, refillsEvenly: time.Minute} {
		e := estimate{reset: now.Add(time.Minute), openAtUpdate: 2, refill: refill{kind: kind}}
		for _, open := range []int64{1, 0, 0} {
			e.refineReset(now.Add(59 * time.Second))
			require.Equal(t, want, e.reset.Sub(now), "a bucket that is emptier later is full later")
			require.Equal(t, open, e.openAtUpdate)
		}
	}
}

// A log explains the used units that a response states, but for a twentieth of the limit, or two.
func TestEstimate_explainsWhatIsUsed(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		limit, left, open int64
		at                time.Duration // when the log counted 40 requests, before now
		want              bool
	}{
		"all of it":                  {100, 60, 0, 59 * time.Second, true},
		"five more":                  {100, 55, 0, 59 * time.Second, true},
		"six more":                   {100, 54, 0, 59 * time.Second, false},
		"six more, one in flight":    {100, 54, 1, 59 * time.Second, true},
		"of few, two more":           {50, 8, 0, 59 * time.Second, true},
		"of few, three more":         {50, 7, 0, 59 * time.Second, false},
		"a little more than a while": {100, 60, 0, 63*time.Second - 1, true},
		"too long ago":               {100, 60, 0, 63 * time.Second, false},
		"more than all":              {42, -10, 0, 59 * time.Second, true},
		"three more than all":        {43, -10, 0, 59 * time.Second, false},
	} {
		e := estimate{limit: tt.limit, refill: refill{kind: refillsEach, window: time.Minute, log: newSendLog(now.Add(-tt.at), 40)}}
		require.Equal(t, tt.want, e.explains(throttle.RemoteLimit{Limit: tt.limit, Remaining: tt.left}, now, &inFlight{open: tt.open}), name)
	}
	require.False(t, (&estimate{}).explains(throttle.RemoteLimit{}, now, &inFlight{}), "there is no log")
}

// An unused quota that is about to reset each time is a bucket: three responses in a row, until half of it is
// used.
func TestEstimate_countsUnusedResponses(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		limit, left int64
		reset       time.Duration
		want        uint8 // after 2
	}{
		"unused":           {100, 99, minLastUnitDelay - 1, 3},
		"all units":        {100, 100, minLastUnitDelay - 1, 3},
		"two are used":     {100, 98, minLastUnitDelay - 1, 2},
		"not soon":         {100, 99, minLastUnitDelay, 2},
		"a limit of one":   {1, 0, minLastUnitDelay - 1, 0},
		"a limit of two":   {2, 1, minLastUnitDelay - 1, 3},
		"half is used":     {100, 50, time.Minute, 2},
		"more than half":   {100, 49, time.Minute, 0},
		"one, that's left": {1, 1, minLastUnitDelay - 1, 2},
	} {
		e := estimate{limit: tt.limit, remaining: tt.limit, reset: now, numUnused: 2}
		var f inFlight
		f.add()
		e.update(throttle.RemoteLimit{Limit: tt.limit, Remaining: tt.left, ResetAfter: tt.reset}, 1, now, &f)
		require.Equal(t, tt.want, e.numUnused, name)
	}
}

// A share of exactly nine tenths is no sign of other clients.
func TestOtherClients_nineTenths(t *testing.T) {
	now := time.Unix(1000, 0)
	o := otherClients{share: .9, own: 54, since: now, at: now, window: time.Minute}
	o.update(100, 60, 5*time.Second, now)
	require.InDelta(t, .9, o.share, 0)
	require.False(t, o.present)
}

// Seconds that count for the highest rate are those of the last minute, and none before 1970.
func TestAcceptedRate_countsEachSecondOnce(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var a acceptedRate
	for _, ago := range []time.Duration{60, 59, 58, 57, 1, 0} {
		a.add(10, now.Add(-ago*time.Second))
	}
	require.InDelta(t, 40./5, a.highest(now), 1e-9, "the latest two and the oldest four are apart")
	require.InDelta(t, 30./5, a.highest(now.Add(time.Second)), 1e-9)
	require.InDelta(t, 20./5, a.highest(now.Add(3*time.Second)), 1e-9)
	require.Zero(t, a.highest(now.Add(61*time.Second)))
	a = acceptedRate{}
	for s := range int64(3) {
		a.add(10, time.Unix(s, 0))
	}
	require.InDelta(t, 30./5, a.highest(time.Unix(2, 0)), 1e-9)
	a.add(10, time.Unix(0, 0))
	require.EqualValues(t, 2, a.second, "the clock was set back")
}

// A response is old after exactly ten seconds of ticks.
func TestEvidence_ageInTicks(t *testing.T) {
	at := func(ticks int64) time.Time { return time.Unix(0, ticks<<16) }
	var ev evidence
	ev.add(throttle.CauseUnstated, at(1000))
	for after, want := range map[int64]int{0: 1, int64(maxEvidenceTicks) - 1: 1, int64(maxEvidenceTicks): 0} {
		n, all := ev.count(throttle.CauseUnstated, 8, at(1000+after))
		require.Equal(t, []int{want, 1}, []int{n, all}, after)
	}
	ev = evidence{}
	for _, n := range []int64{999, 1} {
		ev.addAccepted(n, time.Second, at(1000))
	}
	require.Equal(t, 1000, ev.total)
	ev.addAccepted(1001, time.Second, at(1000))
	require.Equal(t, 2000, ev.total, "at most a thousand at a time")
}

// A rejection at a known goal is one of few: less than a fifth of the responses that count, of which there
// are more than five.
func TestRateLoop_rejectionsAtTheGoalAreFew(t *testing.T) {
	now := time.Unix(1000, 0)
	for responses, atGoal := range map[string]bool{
		"r": false, "gggr": false, "ggggr": false, "gggggr": true,
		"rggggrggggggggr": false, "rggggrgggggggggr": true,
	} {
		l := rateLoop{cause: throttle.CauseUnstated, rate: 100, goal: 100, confirmed: true, plateau: plateauFirst}
		l.respond(responses)
		require.Equal(t, continueLoop, l.rejected(0, time.Millisecond, 9, now))
		require.Equal(t, atGoal, l.rejectionsAtGoal == 1, responses)
		require.InDelta(t, map[bool]float64{true: 93, false: .93 * 93}[atGoal], l.rate, 1e-9, responses)
	}
	for share, want := range map[float64]float64{.19: 60, .2: 25} {
		l := rateLoop{cause: throttle.CauseUnstated, rate: 100, goal: math.Inf(1), span: acceptedSpan{since: now.Add(-time.Second), n: 20}}
		l.lowerGoal(share, 0, now)
		require.InDelta(t, want, l.rate, 1e-9, "a share of %v", share)
	}
	l := rateLoop{rate: 1, goal: 1, lastRate: .8, span: acceptedSpan{since: now.Add(-10 * time.Second), n: 8}}
	l.lowerGoal(0, 0, now)
	require.True(t, l.confirmed, "rates of less than one a second agree, too")
	l = rateLoop{}
	wait, ok := l.check(now)
	require.True(t, ok)
	require.Zero(t, wait, "there is no estimate")
}

// A hold is over at its end, not a nanosecond before.
func TestHold_endsExactly(t *testing.T) {
	now := time.Unix(1000, 0)
	h := hold{until: now}
	wait, ok := h.check(now.Add(-1), &inFlight{})
	require.False(t, ok)
	require.EqualValues(t, 1, wait)
	wait, ok = h.check(now, &inFlight{})
	require.True(t, ok)
	require.Zero(t, wait)
	h = hold{}
	require.True(t, h.rejected(1, now, rejection{retryAfter: 1, sent: 1, maxHold: time.Minute}))
	require.Equal(t, now.Add(1), h.until, "a wait of a nanosecond is a wait")
}

// A host whose quotas are small has one for each route, too, of which nothing is known: it admits one
// request at a time.
func TestEndpoint_addsUnstatedQuotas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, _, _ := small(t, 3)
		q, ok := tr.Demand(request(t, routeURL(100))).Limiter.(*smallQuota)
		require.True(t, ok)
		require.EqualValues(t, []int32{1, 1}, []int32{q.limit, q.remaining})
		require.Zero(t, q.name)
		require.False(t, q.statesNothing())
		d, err := q.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		require.True(t, d.OK)
		require.EqualValues(t, 1, d.Limit)
		d, err = q.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		require.False(t, d.OK, "one is in flight")
	})
}

// If there is no memory, the small quota that was used least recently is dropped, but none that holds
// requests.
func TestEndpoint_dropsTheSmallQuotaUsedLeastRecently(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		change func(all []smallRoute)
		gone   uint64 // route; 0: none
	}{
		"the first":            {func([]smallRoute) {}, 1},
		"the second is older":  {func(all []smallRoute) { all[1].quota.lastUsed = 0 }, 2},
		"the last is older":    {func(all []smallRoute) { all[3].quota.lastUsed = 0 }, 4},
		"they are equally old": {func(all []smallRoute) { all[1].quota.lastUsed = 1 }, 1},
		"the first is in use":  {func(all []smallRoute) { all[0].quota.open = 1 }, 2},
		"the first is used up": {func(all []smallRoute) { all[0].quota.remaining = 0 }, 2},
		"the first has reset":  {func(all []smallRoute) { all[0].quota.remaining, all[0].quota.reset = 0, time.Minute }, 1},
		"one remains":          {func(all []smallRoute) { all[0].quota.remaining = 1 }, 1},
		"all of them are used up": {func(all []smallRoute) {
			for _, r := range all {
				r.quota.remaining = 0
			}
		}, 0},
	} {
		ep := (&Tracker{}).endpointOf(request(t, users))
		ep.small = &smallQuotas{began: now.Add(-time.Minute)}
		for i := range uint64(4) {
			ep.addSmall(i+1, &smallQuota{endpoint: ep, limit: 9, remaining: 5, reset: time.Minute + 1, lastUsed: uint32(i) + 1}, now)
		}
		tt.change(ep.small.routes)
		ep.memory.Store(maxBytes)
		q := &smallQuota{endpoint: ep}
		ep.addSmall(9, q, now)
		require.Len(t, ep.small.routes, 4, name)
		_, known := ep.small.search(9)
		require.Equal(t, tt.gone > 0, known, name)
		if tt.gone > 0 {
			_, known = ep.small.search(tt.gone)
			require.False(t, known, name)
		}
		for i := range 3 {
			require.Less(t, ep.small.routes[i].route, ep.small.routes[i+1].route, "%s: they are in order", name)
		}
	}
}
