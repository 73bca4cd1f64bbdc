package quota

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// What the first rate of a loop is after a stop that ended with an accepted probe: what was
// accepted, over the time until the stated end of a short hold, or else until now.
func TestRateLoop_beginsAtWhatWasAccepted(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	for name, tt := range map[string]struct {
		accepted      int64
		hold          time.Duration // stated
		stopped       float64       // begin of the last stop; the first began after 1 s
		now           float64
		floor         float64
		rate          float64
		knowsTheLimit bool
	}{
		"stated, short":                {100, 3 * time.Second, 1, 5, 0, .99 * 100 / 4, true},
		"stated, short, above floor":   {100, 3 * time.Second, 1, 5, 20, .99 * 100 / 4, true},
		"stated, short, below floor":   {100, 3 * time.Second, 1, 5, 30, 30, true},
		"stated, 10 s":                 {110, 10 * time.Second, 1, 12, 0, .99 * 110 / 11, true},
		"stated, long":                 {100, 11 * time.Second, 1, 20, 0, 100. / 20, false},
		"stated, a probe was rejected": {100, 3 * time.Second, 5, 11, 0, 100. / 8, false},
		"not stated":                   {100, 0, 1, 5, 0, 100. / 5, false},
		"few accepted":                 {7, 3 * time.Second, 1, 7, 0, 1, false},
		"just enough accepted":         {8, 3 * time.Second, 1, 7, 0, .99 * 8 / 4, true},
		"almost none, long ago":        {1, 0, 1, 1000, 0, 1. / 60, false},
	} {
		var l rateLoop
		first := acceptedSpan{since: at(0), until: at(1), n: tt.accepted}
		l.beginAfterStop(first, tt.hold, at(tt.stopped), at(tt.now), at(tt.now), tt.floor, 1)
		require.InEpsilon(t, tt.rate, l.rate, 1e-9, name)
		require.Equal(t, tt.knowsTheLimit, l.goal == l.rate, name)
	}
}

// respond adds responses: g is a success, r a rejection.
func (l *rateLoop) respond(text string) {
	for _, c := range text {
		l.addResponse(c == 'r')
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
		var l rateLoop
		l.respond(text)
		eight, _ := l.rejections(8)
		twenty, all := l.rejections(20)
		require.Equal(t, want, struct{ ofEight, ofTwenty, all, inRow, accepted int }{eight, twenty, all, l.rejectionsInRow, l.accepted}, text)
	}
	l := rateLoop{rejectionsAtGoal: 3, goalBefore: 5, uselessCuts: 2}
	l.respond(strings.Repeat("g", manyAccepted-1))
	require.Equal(t, 3, l.rejectionsAtGoal)
	l.respond("g")
	require.Zero(t, l.rejectionsAtGoal)
	require.Zero(t, l.goalBefore)
	require.Zero(t, l.uselessCuts)
}

// What a rejection means at a rate of 100 requests a second, the last of the given responses.
func TestRateLoop_lowersTheRate(t *testing.T) {
	const rtt = 50 * time.Millisecond
	now := time.Unix(1000, 0)
	unknown := math.Inf(1)
	nineteen := strings.Repeat("g", 19)
	for name, tt := range map[string]struct {
		loop       rateLoop
		responses  string
		best       float64
		loopAction loopAction
		rate, goal float64       // afterwards; 0: the loop ends
		ignored    time.Duration // responses do not count for so long
	}{
		"the goal that was given up was right": {rateLoop{goal: 100, goalBefore: 50}, "gr", 0, continueLoop, 50, 50, 2 * rtt},
		"a second rejection":                   {rateLoop{goal: 100, goalBefore: 50}, "grr", 0, stopSending, 100, 100, 2 * rtt},
		"a second one, of a learned window":    {rateLoop{goal: unknown, measured: true}, "grr", 0, stopSending, 93, 93, 2 * rtt},
		"a second one, suspected":              {rateLoop{cause: throttle.CauseDropped, goal: 100}, "grr", 0, continueLoop, 50, 95, 2 * rtt},
		"a third one, suspected":               {rateLoop{cause: throttle.CauseDropped, goal: 100}, "grrr", 0, continueLoop, 50, 100, 2 * rtt},
		"suspected, not below the goal/8":      {rateLoop{cause: throttle.CauseDropped, goal: 1600}, "grrr", 0, continueLoop, 200, 1600, 2 * rtt},
		"half of eight":                        {rateLoop{goal: 100}, "grgrgrgr", 0, continueLoop, 47.5, 50, 2 * rtt},
		"half of eight, above what is known":   {rateLoop{goal: 100}, "grgrgrgr", 100, continueLoop, 50, 50 / .95, 2 * rtt},
		"half of eight, for the fourth time":   {rateLoop{goal: 100, uselessCuts: 3}, "grgrgrgr", 0, abandonLoop, 0, 0, 0},
		"above a known goal":                   {rateLoop{goal: 90, confirmed: true}, "gggr", 0, continueLoop, 90, 90, 3 * rtt},
		"above a known goal, more was seen":    {rateLoop{goal: 90, confirmed: true, span: acceptedSpan{since: now.Add(-time.Second), n: 98}}, "gggr", 0, continueLoop, .98 * 98, .98 * 98, 3 * rtt},
		"far above a known goal":               {rateLoop{goal: 60, confirmed: true}, "gggr", 0, continueLoop, 70, 70, 3 * rtt},
		"at a known goal":                      {rateLoop{goal: 100, confirmed: true}, nineteen + "r", 0, continueLoop, 93, 93, 2 * rtt},
		"at a known goal, for the fourth time": {rateLoop{goal: 100, confirmed: true, rejectionsAtGoal: 3}, nineteen + "r", 0, continueLoop, 93, 93, 2 * rtt},
		"at a known goal, for the fifth time":  {rateLoop{goal: 100, confirmed: true, rejectionsAtGoal: 4}, nineteen + "r", 0, endLoop, 0, 0, 0},
		"the same, suspected":                  {rateLoop{cause: throttle.CauseDropped, goal: 100, confirmed: true, rejectionsAtGoal: 4}, nineteen + "r", 0, abandonLoop, 0, 0, 0},
		"nothing is known":                     {rateLoop{goal: unknown}, "gggr", 0, continueLoop, .93 * 93, 93, 2 * rtt},
		"nothing is known, half was accepted":  {rateLoop{goal: unknown, span: acceptedSpan{since: now.Add(-time.Second), n: 50}}, nineteen + "r", 0, continueLoop, 60, 93, 2 * rtt},
		"the same, many rejections":            {rateLoop{goal: unknown, span: acceptedSpan{since: now.Add(-time.Second), n: 50}}, "gggr", 0, continueLoop, 49, 93, 2 * rtt},
		"two spans agree":                      {rateLoop{goal: 100, lastRate: 52, span: acceptedSpan{since: now.Add(-time.Second), n: 50}}, "gggr", 0, continueLoop, 49, .98 * 51, 2 * rtt},
		"two spans do not":                     {rateLoop{goal: 100, lastRate: 54, span: acceptedSpan{since: now.Add(-time.Second), n: 50}}, "gggr", 0, continueLoop, 49, 93, 2 * rtt},
		"the server stated how long":           {rateLoop{goal: 100, stated: time.Second, span: acceptedSpan{since: now.Add(-time.Second), n: 50}}, "gggr", 0, continueLoop, 49, 57.5, 2 * rtt},
	} {
		l := tt.loop
		l.rate, l.plateau = 100, plateauFirst
		if l.cause == throttle.CauseUnknown {
			l.cause = throttle.CauseUnstated
		}
		l.respond(tt.responses)
		require.Equal(t, tt.loopAction, l.rejected(tt.best, rtt, 9, now), name)
		if tt.rate == 0 {
			continue
		}
		require.InDelta(t, tt.rate, l.rate, 1e-9, name)
		require.InDelta(t, tt.goal, l.goal, 1e-9, name)
		require.Equal(t, acceptedSpan{since: now}, l.span, "%s: a new span begins", name)
		require.False(t, l.counts(9, now.Add(time.Hour)), "%s: an earlier request", name)
		require.False(t, l.counts(10, now.Add(tt.ignored-1)), "%s: an early response", name)
		require.True(t, l.counts(10, now.Add(tt.ignored)), name)
		require.Zero(t, l.accepted, name)
	}
}

// Each time that cuts do not help although the rate is as low as it may be, that is halved.
func TestRateLoop_floorIsHalvedIfCutsDoNotHelp(t *testing.T) {
	l := rateLoop{rate: 100}
	require.True(t, l.lowerRate(80, 120))
	require.InDelta(t, 80, l.rate, 1e-9)
	require.False(t, l.lowerRate(40, 120))
	require.InDelta(t, 60, l.rate, 1e-9, "half of the highest rate of the last minute")
	l.floorHalvings = 1
	require.True(t, l.lowerRate(40, 120))
	require.InDelta(t, 40, l.rate, 1e-9)
	require.False(t, l.lowerRate(0, 0.001))
	require.InDelta(t, minRate, l.rate, 1e-9)
}

// A trial ends when the failures have become rarer, and lowers the rate again when they have not.
func TestRateLoop_trialOfASuspectedCause(t *testing.T) {
	for name, tt := range map[string]struct {
		cuts       int
		responses  string
		loopAction loopAction
		active     bool
		rate       float64
	}{
		"six successes":           {1, "gggggg", continueLoop, false, 100},
		"five successes":          {1, "ggggg", continueLoop, true, 100},
		"six after a failure":     {1, "rgggggg", continueLoop, false, 100},
		"five failures":           {1, "rrrrr", continueLoop, true, 100},
		"six failures":            {1, "rrrrrr", continueLoop, true, 25},
		"six failures, third cut": {3, "rrrrrr", abandonLoop, true, 100},
		"half as many of 20":      {1, strings.Repeat("rggg", 5), continueLoop, false, 100},
		"6 of 20":                 {1, "rgrg" + strings.Repeat("rggg", 4), continueLoop, true, 25},
		"6 of 19":                 {1, "rgrg" + strings.Repeat("rggg", 3) + "rgg", continueLoop, true, 100},
	} {
		l := rateLoop{rate: 100, trial: trial{active: true, share: .5, cuts: tt.cuts}}
		loopAction := continueLoop
		for _, c := range tt.responses {
			loopAction = l.judge(c == 'r', time.Millisecond, 1, time.Unix(1000, 0))
		}
		require.Equal(t, tt.loopAction, loopAction, name)
		require.Equal(t, tt.active, l.trial.active, name)
		require.InDelta(t, tt.rate, l.rate, 1e-9, name)
	}
}

// How the rate of 100 requests a second grows while it is needed.
func TestRateLoop_grows(t *testing.T) {
	start := time.Unix(1000, 0)
	unknown := math.Inf(1)
	for name, tt := range map[string]struct {
		loop  rateLoop
		after time.Duration // since the last step
		rate  float64
	}{
		"the goal is not known":        {rateLoop{goal: unknown, growth: 2}, time.Second, 120},
		"not known, for long":          {rateLoop{goal: unknown, growth: 2, sinceRejection: 19}, time.Second, 220},
		"too soon":                     {rateLoop{goal: unknown, growth: 2}, time.Second - 1, 100},
		"below the goal":               {rateLoop{goal: 200, confirmed: true}, time.Second, 150},
		"at the goal":                  {rateLoop{goal: 100, confirmed: true, sinceRejection: 9}, time.Second, 100},
		"at the goal, after a plateau": {rateLoop{goal: 100, confirmed: true, sinceRejection: 10}, time.Second, 102},
		"longer after":                 {rateLoop{goal: 100, confirmed: true, sinceRejection: 11}, time.Second, 104},
		"at most a quarter":            {rateLoop{goal: 100, confirmed: true, sinceRejection: 30}, time.Second, 125},
		"a longer plateau":             {rateLoop{goal: 100, confirmed: true, sinceRejection: 10, minPlateau: 60}, time.Second, 100},
		"suspected, a shorter plateau": {rateLoop{cause: throttle.CauseDropped, goal: 100, sinceRejection: 2}, time.Second, 104},
		"after an idle time":           {rateLoop{goal: 200, confirmed: true}, time.Hour, 100},
		"during a trial":               {rateLoop{goal: 200, trial: trial{active: true}}, time.Second, 100},
		"half of the way to the goal":  {rateLoop{goal: 300, confirmed: true, sinceRejection: 3}, time.Second, 200},
	} {
		l := tt.loop
		l.rate, l.plateau, l.grownAt, l.granted = 100, plateauFirst, start, 1000
		if l.cause == throttle.CauseUnknown {
			l.cause = throttle.CauseUnstated
		}
		now, last := start.Add(tt.after), start
		var accepted acceptedRate
		require.False(t, l.grow(now, last, &accepted), name)
		require.InDelta(t, tt.rate, l.rate, 1e-9, name)
	}
}
