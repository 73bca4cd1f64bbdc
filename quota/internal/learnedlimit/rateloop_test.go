package learnedlimit

import (
	"cmp"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// What the first rate of a loop is after a stop that ended with an accepted probe: what was accepted,
// over the time until now, or until the middle of the last stop if a probe was rejected.
func TestRateLoop_beginsAtWhatWasAccepted(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	for name, tt := range map[string]struct {
		accepted int64
		stopped  float64 // begin of the last stop; the first began after 1 s
		now      float64
		floor    float64
		rate     float64
		growth   float64
	}{
		"one stop":               {100, 1, 5, 0, 100. / 5, .2},
		"above the floor":        {100, 1, 5, 19, 20, .2},
		"below the floor":        {100, 1, 5, 30, 30, .2},
		"a probe was rejected":   {100, 5, 11, 0, 100. / 8, .2},
		"few accepted":           {7, 1, 7, 0, 1, 1},
		"just enough accepted":   {8, 1, 8, 0, 1, .2},
		"almost none, long ago":  {1, 1, 1000, 0, 1. / 60, 1},
		"in no time, on a clock": {100, 1, 0, 0, 1e5, .2},
	} {
		var l RateLoop
		first := AcceptedSpan{Since: at(0), Until: at(1), N: tt.accepted}
		l.BeginAfterStop(first, at(tt.stopped), at(tt.now), at(tt.now), tt.floor, 7)
		require.InEpsilon(t, tt.rate, l.Rate, 1e-9, name)
		require.False(t, l.hasGoal(), name)
		require.InDelta(t, tt.growth, l.growth, 1e-9, name)
		require.Equal(t, at(tt.now).Add(l.TimeOf(1)), l.Next, name)
		require.EqualValues(t, 1, l.granted, name)
		require.EqualValues(t, 7, l.lastSent, name)
		require.Equal(t, throttle.CauseUnstated, l.Cause, name)
		require.InDelta(t, 10, l.plateau, 1e-9, name)
	}
}

// respond adds responses: g is a success, r a rejection.
func (l *RateLoop) respond(text string) {
	for _, c := range text {
		l.count(c == 'r')
	}
}

func TestRateLoop_countsTheLatestResponses(t *testing.T) {
	for text, want := range map[string]struct{ ofEight, ofTwenty, all, inRow, accepted int }{
		"":                             {},
		"g":                            {0, 0, 1, 0, 1},
		"rgrr":                         {3, 3, 4, 2, 1},
		"rrgggggggg":                   {0, 2, 10, 0, 8},
		"rgggggggr":                    {1, 2, 9, 1, 7},
		"r" + strings.Repeat("g", 19):  {0, 1, 20, 0, 19},
		"rr" + strings.Repeat("g", 19): {0, 1, 20, 0, 19},
		strings.Repeat("g", 50) + "r":  {1, 1, 20, 1, 40},
		strings.Repeat("r", 30):        {8, 20, 20, 30, 0},
	} {
		var l RateLoop
		l.respond(text)
		eight, _ := l.rejections(8)
		twenty, all := l.rejections(20)
		require.Equal(t, want, struct{ ofEight, ofTwenty, all, inRow, accepted int }{eight, twenty, all, l.rejectionsInRow, l.accepted}, text)
	}
	l := RateLoop{rejectionsAtGoal: 3, uselessCuts: 2}
	l.respond(strings.Repeat("g", manyAccepted-1))
	require.Equal(t, 3, l.rejectionsAtGoal)
	l.respond("g")
	require.Zero(t, l.rejectionsAtGoal)
	require.Zero(t, l.uselessCuts)
}

// What a rejection means at a rate of 100 requests a second, the last of the given responses.
func TestRateLoop_lowersTheRate(t *testing.T) {
	const rtt = 50 * time.Millisecond
	now := time.Unix(1000, 0)
	unknown := math.Inf(1)
	nineteen := strings.Repeat("g", 19)
	for name, tt := range map[string]struct {
		loop       RateLoop
		responses  string
		best       float64
		LoopAction LoopAction
		rate, goal float64       // afterwards; 0: the loop ends
		ignored    time.Duration // responses do not count for so long
	}{
		"a second rejection":                   {RateLoop{Goal: 100}, "grr", 0, StopSending, 100, 100, 2 * rtt},
		"a second one, another cause":          {RateLoop{Cause: throttle.CauseDropped, Goal: 100}, "grr", 0, ContinueLoop, 50, 95, 2 * rtt},
		"after a ban":                          {RateLoop{Goal: 100, plateau: longPlateau}, "gggr", 0, ContinueLoop, .93 * 65, 65, 2 * rtt},
		"after a short one":                    {RateLoop{Goal: 100, plateau: longPlateau - 1}, "gggr", 0, ContinueLoop, .93 * 93, 93, 2 * rtt},
		"a third one, another cause":           {RateLoop{Cause: throttle.CauseDropped, Goal: 100}, "grrr", 0, ContinueLoop, 50, 100, 2 * rtt},
		"another cause, not below the goal/8":  {RateLoop{Cause: throttle.CauseDropped, Goal: 1600}, "grrr", 0, ContinueLoop, 200, 1600, 2 * rtt},
		"half of eight":                        {RateLoop{Goal: 100}, "grgrgrgr", 0, ContinueLoop, 47.5, 50, 2 * rtt},
		"half of eight, above what is known":   {RateLoop{Goal: 100}, "grgrgrgr", 100, ContinueLoop, 50, 50 / .95, 2 * rtt},
		"half of eight, for the fourth time":   {RateLoop{Goal: 100, uselessCuts: 3}, "grgrgrgr", 0, AbandonLoop, 0, 0, 0},
		"above a known goal":                   {RateLoop{Goal: 90, confirmed: true}, "gggr", 0, ContinueLoop, 90, 90, 2 * rtt},
		"above a known goal, more was seen":    {RateLoop{Goal: 90, confirmed: true, Span: AcceptedSpan{Since: now.Add(-time.Second), N: 98}}, "gggr", 0, ContinueLoop, .98 * 98, .98 * 98, 2 * rtt},
		"far above a known goal":               {RateLoop{Goal: 60, confirmed: true}, "gggr", 0, ContinueLoop, 70, 70, 2 * rtt},
		"at a known goal":                      {RateLoop{Goal: 100, confirmed: true}, nineteen + "r", 0, ContinueLoop, 93, 93, 2 * rtt},
		"at a known goal, for the fourth time": {RateLoop{Goal: 100, confirmed: true, rejectionsAtGoal: 3}, nineteen + "r", 0, ContinueLoop, 93, 93, 2 * rtt},
		"at a known goal, for the fifth time":  {RateLoop{Goal: 100, confirmed: true, rejectionsAtGoal: 4}, nineteen + "r", 0, EndLoop, 0, 0, 0},
		"the same, another cause":              {RateLoop{Cause: throttle.CauseDropped, Goal: 100, confirmed: true, rejectionsAtGoal: 4}, nineteen + "r", 0, AbandonLoop, 0, 0, 0},
		"nothing is known":                     {RateLoop{Goal: unknown}, "gggr", 0, ContinueLoop, .93 * 93, 93, 2 * rtt},
		"nothing is known, half was accepted":  {RateLoop{Goal: unknown, Span: AcceptedSpan{Since: now.Add(-time.Second), N: 50}}, nineteen + "r", 0, ContinueLoop, 60, 93, 2 * rtt},
		"another cause, 85 were accepted":      {RateLoop{Cause: throttle.CauseDropped, Goal: unknown, Span: AcceptedSpan{Since: now.Add(-time.Second), N: 85}}, nineteen + "r", 0, ContinueLoop, .98 * 85, 93, 2 * rtt},
		"another cause, 95 were accepted":      {RateLoop{Cause: throttle.CauseDropped, Goal: unknown, Span: AcceptedSpan{Since: now.Add(-time.Second), N: 95}}, nineteen + "r", 0, ContinueLoop, 93, 93, 2 * rtt},
		"the same, many rejections":            {RateLoop{Goal: unknown, Span: AcceptedSpan{Since: now.Add(-time.Second), N: 50}}, "gggr", 0, ContinueLoop, 49, 93, 2 * rtt},
		"two spans agree":                      {RateLoop{Goal: 100, lastRate: 52, Span: AcceptedSpan{Since: now.Add(-time.Second), N: 50}}, "gggr", 0, ContinueLoop, 49, .98 * 51, 2 * rtt},
		"two spans do not":                     {RateLoop{Goal: 100, lastRate: 54, Span: AcceptedSpan{Since: now.Add(-time.Second), N: 50}}, "gggr", 0, ContinueLoop, 49, 93, 2 * rtt},
		"the server stated how long":           {RateLoop{Goal: 100, stated: true, Span: AcceptedSpan{Since: now.Add(-time.Second), N: 50}}, "gggr", 0, ContinueLoop, 49, 57.5, 2 * rtt},
	} {
		l := tt.loop
		l.Rate, l.plateau = 100, max(l.plateau, plateauFirst)
		if l.Cause == throttle.CauseUnknown {
			l.Cause = throttle.CauseUnstated
		}
		l.respond(tt.responses)
		require.Equal(t, tt.LoopAction, l.rejected(tt.best, rtt, 9, now), name)
		if tt.rate == 0 {
			continue
		}
		require.InDelta(t, tt.rate, l.Rate, 1e-9, name)
		require.InDelta(t, tt.goal, l.Goal, 1e-9, name)
		require.Zero(t, l.Span.N, "%s: a new span begins", name)
		require.False(t, l.Span.Since.Before(now), name)
		require.False(t, l.Counts(9, now.Add(time.Hour)), "%s: an earlier request", name)
		require.False(t, l.Counts(10, now.Add(tt.ignored-1)), "%s: an early response", name)
		require.True(t, l.Counts(10, now.Add(tt.ignored)), name)
		require.Zero(t, l.accepted, name)
	}
}

// A request that follows a rejection immediately is rejected, too, if the server counts that.
func TestRateLoop_pausesAfterARejection(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		loop        RateLoop
		next, since time.Duration // after the rejection: when the next request may be sent, and the span begins
	}{
		"two and a half requests":  {RateLoop{Rate: 60, Goal: 50, Span: AcceptedSpan{N: 8}}, 50 * time.Millisecond, 20 * time.Millisecond},
		"at most a second":         {RateLoop{Rate: 1.2, Goal: 1, Span: AcceptedSpan{N: 8}}, time.Second, 400 * time.Millisecond},
		"a debt is not forgotten":  {RateLoop{Rate: 60, Goal: 50, Span: AcceptedSpan{N: 8}, Next: now.Add(time.Minute)}, time.Minute, 20 * time.Millisecond},
		"few were accepted before": {RateLoop{Rate: 60, Goal: 50, Span: AcceptedSpan{N: 7}}, 0, 0},
		"another cause":            {RateLoop{Cause: throttle.CauseDropped, Rate: 60, Goal: 50, Span: AcceptedSpan{N: 8}}, 0, 0},
	} {
		l := tt.loop
		l.confirmed, l.Span.Since = true, now.Add(-time.Second)
		if !l.On() {
			l.Cause = throttle.CauseUnstated
		}
		l.respond("ggggggggr")
		require.Equal(t, ContinueLoop, l.rejected(0, 20*time.Millisecond, 9, now), name)
		require.Equal(t, now.Add(tt.next), l.Next, name)
		require.Equal(t, AcceptedSpan{Since: now.Add(tt.since)}, l.Span, name)
	}
}

// Each time that cuts do not help although the rate is as low as it may be, that is halved.
func TestRateLoop_floorIsHalvedIfCutsDoNotHelp(t *testing.T) {
	l := RateLoop{Rate: 100}
	require.True(t, l.lowerRate(80, 120))
	require.InDelta(t, 80, l.Rate, 1e-9)
	require.False(t, l.lowerRate(40, 120))
	require.InDelta(t, 60, l.Rate, 1e-9, "half of the highest rate of the last minute")
	l.floorHalvings = 1
	require.True(t, l.lowerRate(40, 120))
	require.InDelta(t, 40, l.Rate, 1e-9)
	require.False(t, l.lowerRate(0, 0.001))
	require.InDelta(t, minRate, l.Rate, 1e-9)
}

// How the rate of 100 requests a second grows while it is needed.
func TestRateLoop_grows(t *testing.T) {
	start := time.Unix(1000, 0)
	unknown := math.Inf(1)
	for name, tt := range map[string]struct {
		loop  RateLoop
		after time.Duration // since the last step
		rate  float64
	}{
		"the goal is not known":        {RateLoop{Goal: unknown, growth: .2}, time.Second, 120},
		"too soon":                     {RateLoop{Goal: unknown, growth: .2}, time.Second - 1, 100},
		"below the goal":               {RateLoop{Goal: 200, confirmed: true}, time.Second, 150},
		"at the goal":                  {RateLoop{Goal: 100, confirmed: true, sinceRejection: 9}, time.Second, 100},
		"at the goal, after a plateau": {RateLoop{Goal: 100, confirmed: true, sinceRejection: 10}, time.Second, 102},
		"longer after":                 {RateLoop{Goal: 100, confirmed: true, sinceRejection: 11}, time.Second, 104},
		"at most a quarter":            {RateLoop{Goal: 100, confirmed: true, sinceRejection: 30}, time.Second, 125},
		"a longer plateau":             {RateLoop{Goal: 100, confirmed: true, sinceRejection: 10, plateau: 60}, time.Second, 100},
		"after an idle time":           {RateLoop{Goal: 200, confirmed: true}, time.Hour, 100},
		"beyond the goal":              {RateLoop{Goal: 50, confirmed: true, sinceRejection: 3}, time.Second, 100},
		"half of the way to the goal":  {RateLoop{Goal: 300, confirmed: true, sinceRejection: 3}, time.Second, 200},
	} {
		l := tt.loop
		l.Rate, l.plateau, l.grownAt, l.granted = 100, cmp.Or(l.plateau, plateauFirst), start, 1000
		if l.Cause == throttle.CauseUnknown {
			l.Cause = throttle.CauseUnstated
		}
		now, last := start.Add(tt.after), start
		var accepted AcceptedRate
		require.False(t, l.Grow(now, last, &accepted), name)
		require.InDelta(t, tt.rate, l.Rate, 1e-9, name)
	}
}

// A loop that begins at a measured rate uses 1 % less, and its first request waits for an interval. That rate is its
// goal. Earlier requests do not count.
func TestRateLoop_beginsAtAMeasuredRate(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, cause := range []throttle.Cause{throttle.CauseUnstated, throttle.CauseDropped} {
		l := RateLoop{Rate: 5, Goal: 6, confirmed: true, uselessCuts: 2, recent: 3, numRecent: 5, stated: true, lastRate: 8}
		l.BeginAt(cause, 100, 7, now)
		require.Equal(t, RateLoop{
			Cause: cause, Rate: 99, Goal: 99, plateau: 10, lastSent: 7,
			Span: AcceptedSpan{Since: now}, grownAt: now, effectAt: now, Next: now.Add(l.TimeOf(1)),
		}, l)
		require.False(t, l.Counts(7, now.Add(time.Hour)))
		require.True(t, l.Counts(8, now))
		l.BeginAt(cause, 0, 7, now)
		require.InDelta(t, 1./60, l.Rate, 1e-9)
		require.InDelta(t, 1./60, l.Goal, 1e-9)
	}
}

// Requests are sent at even intervals. Time that was not used is lost, and a request that was not sent
// gives its interval back.
func TestRateLoop_spacesRequests(t *testing.T) {
	const ms = time.Millisecond
	now := time.Unix(1000, 0)
	var l RateLoop
	_, ok := l.Check(now)
	require.True(t, ok, "no estimate")
	l.Unspend(1)
	require.True(t, l.Next.IsZero())
	l = RateLoop{Cause: throttle.CauseUnstated, Rate: 10, Next: now}
	_, ok = l.Check(now)
	require.True(t, ok)
	l.Spend(1, now)
	wait, ok := l.Check(now)
	require.False(t, ok)
	require.Equal(t, 100*ms, wait)
	wait, ok = l.Check(now.Add(100 * ms))
	require.True(t, ok)
	require.Zero(t, wait)
	l.Spend(2, now.Add(time.Second))
	require.Equal(t, now.Add(1200*ms), l.Next)
	require.EqualValues(t, 3, l.granted)
	l.Unspend(1)
	require.Equal(t, now.Add(1100*ms), l.Next)
	require.Equal(t, headers.MaxDelay, l.TimeOf(math.MaxInt64))
}

// A rate that is four times the goal, and four times what was accepted in the last minute, is not needed
// if less than half of it is used. Without a goal it has to have grown for ten seconds.
func TestRateLoop_endsWhenItIsNotNeeded(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		goal     float64
		since    float64 // seconds since a rejection
		granted  int64   // requests in the last second, of 100
		accepted int64   // in each of the last seconds
		unneeded bool
	}{
		"not used":                     {24, 0, 0, 0, true},
		"less than half":               {24, 0, 50, 0, true},
		"more than half":               {24, 0, 51, 0, false},
		"not four times the goal":      {26, 0, 0, 0, false},
		"not four times the accepted":  {24, 0, 0, 26, false},
		"four times the accepted":      {24, 0, 0, 24, true},
		"no goal, 9 s":                 {math.Inf(1), 8, 0, 0, false},
		"no goal, 10 s":                {math.Inf(1), 9, 0, 0, true},
		"no goal, 10 s, more accepted": {math.Inf(1), 9, 0, 40, false},
	} {
		l := RateLoop{Cause: throttle.CauseUnstated, Rate: 100, Goal: tt.goal, growth: .2, confirmed: true, sinceRejection: tt.since, plateau: plateauFirst, grownAt: start, granted: tt.granted}
		var a AcceptedRate
		for i := range 5 {
			a.Add(tt.accepted, start.Add(time.Duration(i-4)*time.Second))
		}
		require.Equal(t, tt.unneeded, l.Grow(start.Add(time.Second), start, &a), name)
		require.Zero(t, l.granted, name)
		require.Equal(t, start.Add(time.Second), l.grownAt, name)
	}
}

// A step takes a second, or at a slow rate with a goal the time of three requests, at most five seconds.
// After five seconds more without a request, growth begins again.
func TestRateLoop_steps(t *testing.T) {
	const s = time.Second
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		rate, goal  float64
		last, after time.Duration // of the latest request, before the step; since the step before
		since       float64       // afterwards: 20 and the step, or 0
	}{
		"too early":              {10, 10, 0, s - 1, 20},
		"a second":               {10, 10, 0, s, 21},
		"three requests":         {1, 1, 0, 3*s - 1, 20},
		"after three":            {1, 1, 0, 3 * s, 23},
		"five seconds":           {.1, .1, 0, 5*s - 1, 20},
		"after five":             {.1, .1, 0, 5 * s, 25},
		"no goal":                {.1, math.Inf(1), 0, s, 21},
		"not idle":               {10, 10, 5 * s, s, 21},
		"idle":                   {10, 10, 5*s + 1, s, 0},
		"idle, three requests":   {1, 1, 5*s + 1, 3 * s, 0},
		"not idle, five seconds": {.1, .1, 5 * s, 5 * s, 25},
	} {
		l := RateLoop{Cause: throttle.CauseUnstated, Rate: tt.rate, Goal: tt.goal, confirmed: true, sinceRejection: 20, plateau: 1000, growth: .2, grownAt: start, granted: 100}
		var a AcceptedRate
		now := start.Add(tt.after)
		require.False(t, l.Grow(now, start.Add(-tt.last), &a), name)
		require.InDelta(t, tt.since, l.sinceRejection, 1e-9, name)
		if tt.since != 20 {
			require.Equal(t, now, l.grownAt, name)
			require.Zero(t, l.granted, name)
		}
	}
}

// After a rejection far beyond the goal the plateau is doubled, to 20 s, or to the time of 60 requests.
func TestRateLoop_plateauGrows(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tt := range []struct{ goal, was, want float64 }{{100, 10, 20}, {100, 20, 20}, {2, 20, 30}, {2, 10, 20}, {1, 40, 60}} {
		l := RateLoop{Rate: 1.1 * tt.goal, Goal: tt.goal, plateau: tt.was}
		l.returnToGoal(now)
		require.InDelta(t, tt.want, l.plateau, 1e-9, "%+v", tt)
		require.InDelta(t, tt.goal, l.Rate, 1e-9, "%+v", tt)
	}
}

// Where a rejection stops all requests, the plateau is 20 times as long, at most five minutes.
func TestPlateauOf(t *testing.T) {
	for stop, want := range map[time.Duration]float64{0: 0, time.Second: 20, 15 * time.Second: 300, 16 * time.Second: 300, time.Hour: 300} {
		require.InDelta(t, want, plateauOf(stop), 1e-9, "%v", stop)
	}
}

// What counts as a rejected rate, and how the goal follows from what was accepted.
func TestRateLoop_spansThatCount(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		n         int64         // accepted in the span
		took      time.Duration // the span
		lastRate  float64
		confirmed bool
	}{
		"8 accepted":           {8, time.Second, 8, true},
		"7 accepted":           {7, time.Second, 7, false},
		"less than a second":   {8, time.Second - 1, 8, false},
		"no span before":       {8, time.Second, 0, false},
		"6.9 % apart":          {1000, time.Second, 931.1, true},
		"7 % apart":            {1000, time.Second, 929.9, false},
		"7 % apart, faster":    {1000, time.Second, 1070.1, false},
		"6.9 % apart, faster":  {1000, time.Second, 1069, true},
		"many seconds, slowly": {1000, 10 * time.Second, 100, true},
	} {
		l := RateLoop{Rate: 2000, Goal: 2000, lastRate: tt.lastRate, Span: AcceptedSpan{Since: now.Add(-tt.took), N: tt.n}}
		l.lowerGoal(0, 0, now)
		require.Equal(t, tt.confirmed, l.confirmed, name)
		if tt.n >= minAccepted {
			require.InDelta(t, float64(tt.n)/tt.took.Seconds(), l.lastRate, 1e-9, name)
		} else {
			require.InDelta(t, tt.lastRate, l.lastRate, 1e-9, name)
		}
	}
}

// A rate that grew beyond a confirmed goal returns to it, or to 98 % of what 40 requests showed since, if
// that is more and less than the rate. A rate of more than one and a half times the goal shows that the
// limit was raised: 70 % of it is the new goal.
func TestRateLoop_returnsToTheGoal(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		rate     float64
		accepted int64
		took     time.Duration
		want     float64 // of a goal of 100
	}{
		"nothing was accepted":        {110, 0, time.Second, 100},
		"39 accepted":                 {130, 39, 300 * time.Millisecond, 100},
		"40 accepted":                 {130, 40, 320 * time.Millisecond, .98 * 125},
		"fewer than the goal":         {130, 40, 400 * time.Millisecond, 100},
		"more than the rate":          {110, 40, 320 * time.Millisecond, 110},
		"half as much again":          {150, 0, time.Second, 150 / 1.5},
		"more than half as much":      {150.1, 0, time.Second, .7 * 150.1},
		"twice, but most is accepted": {200, 150, time.Second, .98 * 150},
		"twice, and less is accepted": {200, 120, time.Second, .7 * 200},
	} {
		l := RateLoop{Rate: tt.rate, Goal: 100, plateau: 10, Span: AcceptedSpan{Since: now.Add(-tt.took), N: tt.accepted}}
		l.returnToGoal(now)
		require.InDelta(t, tt.want, l.Rate, 1e-9, name)
		require.InDelta(t, tt.want, l.Goal, 1e-9, name)
	}
}

// A rejection that began a stated hold lengthens the plateau, because the hold stopped all requests.
func TestRateLoop_statedWaits(t *testing.T) {
	now := time.Unix(1000, 0)
	l := RateLoop{Cause: throttle.CauseUnstated, Rate: 10, Goal: 9, confirmed: true, plateau: 10}
	require.Equal(t, ContinueLoop, l.AddStatedWait(5*time.Second, new(AcceptedRate), 0, 5, now))
	require.InDelta(t, 9, l.Rate, 1e-9)
	require.True(t, l.stated)
	require.Equal(t, 1, l.numRecent)
	require.InDelta(t, 100, l.plateau, 1e-9, "20 times the stated wait")
	l.rejectionsAtGoal, l.recent, l.numRecent, l.rejectionsInRow = 4, 0, 0, 0
	for range 19 {
		l.AddResponse(false, new(AcceptedRate), 0, 5, now)
	}
	require.Equal(t, EndLoop, l.AddStatedWait(time.Second, new(AcceptedRate), 0, 5, now), "the fifth rejection at the goal")
}

// Of several processes, each delays its next request by a random part of the time between two.
func TestRateLoop_delayFirst(t *testing.T) {
	now := time.Unix(1000, 0)
	l := RateLoop{Cause: throttle.CauseUnstated, Rate: 5}
	l.DelayFirst(.5, now)
	require.Equal(t, now.Add(100*time.Millisecond), l.Next)
}

// A rejection at a known goal is one of few: less than a fifth of the responses that count, of which there
// are more than five.
func TestRateLoop_rejectionsAtTheGoalAreFew(t *testing.T) {
	now := time.Unix(1000, 0)
	for responses, atGoal := range map[string]bool{
		"r": false, "gggr": false, "ggggr": false, "gggggr": true,
		"rggggrggggggggr": false, "rggggrgggggggggr": true,
	} {
		l := RateLoop{Cause: throttle.CauseUnstated, Rate: 100, Goal: 100, confirmed: true, plateau: plateauFirst}
		l.respond(responses)
		require.Equal(t, ContinueLoop, l.rejected(0, time.Millisecond, 9, now))
		require.Equal(t, atGoal, l.rejectionsAtGoal == 1, responses)
		require.InDelta(t, map[bool]float64{true: 93, false: .93 * 93}[atGoal], l.Rate, 1e-9, responses)
	}
	for share, want := range map[float64]float64{.19: 60, .2: 25} {
		l := RateLoop{Cause: throttle.CauseUnstated, Rate: 100, Goal: math.Inf(1), Span: AcceptedSpan{Since: now.Add(-time.Second), N: 20}}
		l.lowerGoal(share, 0, now)
		require.InDelta(t, want, l.Rate, 1e-9, "a share of %v", share)
	}
	l := RateLoop{Rate: 1, Goal: 1, lastRate: .8, Span: AcceptedSpan{Since: now.Add(-10 * time.Second), N: 8}}
	l.lowerGoal(0, 0, now)
	require.True(t, l.confirmed, "rates of less than one a second agree, too")
	l = RateLoop{}
	wait, ok := l.Check(now)
	require.True(t, ok)
	require.Zero(t, wait, "there is no estimate")
}

// A trial doubles the rate, and a goal with it, which is not confirmed any more.
func TestRateLoop_double(t *testing.T) {
	for name, tt := range map[string]struct{ rate, goal, wantRate, wantGoal float64 }{
		"no goal":       {10, math.Inf(1), 20, math.Inf(1)},
		"at the goal":   {10, 10, 20, 20},
		"below it":      {5, 10, 10, 20},
		"far beyond it": {30, 10, 60, 60},
	} {
		l := RateLoop{Cause: throttle.CauseUnstated, Rate: tt.rate, Goal: tt.goal, confirmed: true}
		l.Double()
		require.InDelta(t, tt.wantRate, l.Rate, 1e-9, name)
		require.Equal(t, tt.wantGoal, l.Goal, name)
		require.Equal(t, math.IsInf(tt.goal, 1), l.confirmed, name)
	}
}

// When a trial has shown that the rate was right, responses to requests of the trial do not count.
func TestRateLoop_restored(t *testing.T) {
	now := time.Unix(1000, 0)
	const rtt = 50 * time.Millisecond
	for name, tt := range map[string]struct {
		next, want time.Duration // after now
	}{"it was idle": {-time.Minute, 0}, "it has debts": {time.Second, time.Second}} {
		l := RateLoop{Cause: throttle.CauseUnstated, Rate: 10, Goal: 9, Next: now.Add(tt.next), Span: AcceptedSpan{N: 99}, sinceRejection: 50}
		l.Restored(rtt, 70, now)
		require.Equal(t, now.Add(tt.want), l.Next, name)
		require.Equal(t, AcceptedSpan{Since: now}, l.Span, name)
		require.Equal(t, []float64{10, 9}, []float64{l.Rate, l.Goal}, name)
		require.False(t, l.Counts(70, now.Add(time.Hour)), name)
		require.False(t, l.Counts(71, now.Add(2*rtt-1)), name)
		require.True(t, l.Counts(71, now.Add(2*rtt)), name)
		require.Zero(t, l.sinceRejection, "%s: it does not grow soon", name)
	}
	var none RateLoop
	none.Restored(rtt, 70, now)
	require.Equal(t, RateLoop{}, none, "there is no estimate")
}

// Responses that arrive before the end of a stated wait do not show the effect of a rate, but at most for the time of 16
// requests: the wait may be that of one resource.
func TestRateLoop_countsFromTheEndOfAStatedWait(t *testing.T) {
	now := time.Unix(1000, 0)
	for until, from := range map[time.Duration]time.Duration{-time.Hour: 0, 0: 0, time.Second: time.Second, time.Hour: 4 * time.Second} {
		var l RateLoop
		l.BeginAt(throttle.CauseUnstated, 4/belowWindow, 10, now)
		l.CountFrom(now.Add(until), now)
		require.True(t, l.Counts(11, now.Add(from)), until)
		require.False(t, from > 0 && l.Counts(11, now.Add(from-1)), until)
		require.False(t, l.Counts(10, now.Add(from)), "it was sent before")
	}
}
