package statedlimit

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/throttle"
)

// Units are spread over the time until the reset if the program wishes it, and if they do not come back one by
// one.
func TestPacing_spreadsUnits(t *testing.T) {
	for name, tt := range map[string]struct {
		refill refill
		want   bool
	}{
		"not known":       {refill{}, true},
		"window":          {refill{kind: refillsAtReset}, true},
		"token bucket":    {refill{kind: refillsEvenly}, false},
		"sliding counter": {refill{kind: refillsNextWindow}, false},
		"sliding log":     {refill{kind: refillsEach, log: &sendLog{}}, false},
		"no log":          {refill{kind: refillsEach}, true},
	} {
		e := Estimate{Limit: 100, refill: tt.refill}
		require.Equal(t, tt.want, Pacing{Spread: true}.spreads(&e), name)
		require.False(t, Pacing{}.spreads(&e), name)
	}
}

// The free units divide the time until the reset.
func TestPacing_schedulesUnitsEvenly(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		headroom  float64
		remaining int64
		open      int64
		want      time.Duration // until the next claim
	}{
		"nine units":            {0, 9, 0, 10 * time.Second},
		"of them, in flight":    {0, 13, 4, 10 * time.Second},
		"of them, for others":   {.1, 19, 0, 10 * time.Second},
		"one unit":              {0, 1, 0, 50 * time.Second},
		"none":                  {0, 0, 0, 100 * time.Second},
		"more than are left":    {0, 2, 7, 100 * time.Second},
		"all reserved or spent": {.5, 40, 0, 100 * time.Second},
	} {
		e := Estimate{Limit: 100, Remaining: tt.remaining, Reset: now.Add(100 * time.Second), refill: refill{kind: refillsAtReset}}
		Pacing{Headroom: tt.headroom}.scheduleNext(&e, now, tt.open)
		require.Equal(t, tt.want, e.next.Sub(now), name)
		before := e.next
		Pacing{}.scheduleNext(&e, e.Reset, 0)
		require.Equal(t, before, e.next, "%s: the reset is over", name)
	}
}

// The share of this process is a moving average of the part of the used units that it has used. It
// rises by itself while less than half is used.
func TestOtherClients_estimatesTheShare(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		before        otherClients // of a window of 10 s that began 5 s ago, stated last a second ago
		limit, used   int64
		reset         time.Duration
		share         float64
		present, seen bool
	}{
		"all is own":                {otherClients{own: 40}, 100, 40, 5 * time.Second, 1, false, false},
		"half is own":               {otherClients{own: 20}, 100, 40, 5 * time.Second, .5, true, true},
		"nothing is own":            {otherClients{}, 100, 40, 5 * time.Second, 1. / 40, true, true},
		"part of the window before": {otherClients{own: 20, ownBefore: 40}, 100, 40, 5 * time.Second, 1, false, false},
		"too few":                   {otherClients{own: 1}, 100, 4, 5 * time.Second, 0, false, false},
		"a twentieth":               {otherClients{own: 0}, 120, 6, 5 * time.Second, 1, false, false},
		"more than a twentieth":     {otherClients{own: 0}, 120, 7, 5 * time.Second, 1. / 7, true, true},
		"few of few":                {otherClients{own: 1}, 10, 3, 5 * time.Second, 0, false, false},
		"two of few":                {otherClients{own: 2}, 10, 4, 5 * time.Second, 1, false, false},
		"three of few":              {otherClients{own: 1}, 10, 4, 5 * time.Second, .25, true, true},
		"five in a hundred":         {otherClients{own: 35}, 100, 40, 5 * time.Second, 1, false, false},
		"six in a hundred":          {otherClients{own: 34}, 100, 40, 5 * time.Second, 34. / 40, true, true},
		"falls by a quarter":        {otherClients{share: .8, own: 30}, 100, 60, 5 * time.Second, .8 - .3/4, true, true},
		"rises by a quarter":        {otherClients{share: .5, own: 60}, 100, 60, 5 * time.Second, .5 + .5/4, true, false},
		"rises while little used":   {otherClients{share: .5, own: 0, usedBefore: 48}, 100, 49, 5 * time.Second, .6, false, false},
		"not at half":               {otherClients{share: .5, own: 0, usedBefore: 49}, 100, 50, 5 * time.Second, .5, false, false},
		"at most to one":            {otherClients{share: .9, own: 0, usedBefore: 48}, 100, 49, 5 * time.Second, 1, false, false},
		"used before":               {otherClients{own: 10, usedBefore: 50}, 100, 60, 5 * time.Second, 1, false, false},
		"used before, some is back": {otherClients{share: .5, usedBefore: 60}, 100, 55, 5 * time.Second, .5, false, false},
		"used before, more":         {otherClients{own: 10, usedBefore: 40}, 100, 60, 5 * time.Second, .5, true, true},
	} {
		o := tt.before
		now := start.Add(5 * time.Second)
		o.since, o.at, o.window = start, now.Add(-time.Second), 10*time.Second
		o.update(tt.limit, tt.used, tt.reset, now)
		require.InDelta(t, tt.share, o.share, 1e-9, name)
		require.Equal(t, tt.present, o.present, name)
		require.Equal(t, tt.seen, o.lastSeen.Equal(now), name)
		require.Equal(t, now, o.at, name)
		require.Equal(t, min(tt.before.usedBefore, tt.used), o.usedBefore, name)
		require.Equal(t, 10*time.Second, o.window, name)
		require.Equal(t, start, o.since, name)
	}
}

// Other clients are there while the share is below nine tenths, and until five resets have passed
// since they were observed.
func TestOtherClients_areGoneAfterAWhile(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		share   float64
		unseen  time.Duration
		present bool
		want    bool
	}{
		"seen lately":           {.95, 25*time.Second - 1, true, true},
		"not seen":              {.95, 25 * time.Second, true, false},
		"were never there":      {.95, time.Second, false, false},
		"nine tenths":           {.87, time.Second, false, false}, // with this response
		"less than nine tenths": {.86, time.Hour, false, true},
	} {
		o := otherClients{present: tt.present, share: tt.share, lastSeen: now.Add(-tt.unseen), own: 80, since: now, at: now, window: time.Minute}
		o.update(100, 80, 5*time.Second, now)
		require.Equal(t, tt.want, o.present, name)
	}
}

// A window has at least the length of the longest stated reset. After it, own units are those of the
// window before, which counts for as long as it is not over.
func TestOtherClients_countsOwnUnitsByWindow(t *testing.T) {
	start := time.Unix(1000, 0)
	for after, want := range map[time.Duration]int64{0: 13, 2500 * time.Millisecond: 11, 10 * time.Second: 5, 20 * time.Second: 5} {
		o := otherClients{own: 5, ownBefore: 8, since: start, window: 10 * time.Second}
		require.Equal(t, want, o.recentOwn(start.Add(after)), "%v", after)
	}
	for name, tt := range map[string]struct {
		after, reset, window time.Duration
		own, before          int64
	}{
		"in the window":    {10*time.Second - 1, time.Second, 10 * time.Second, 5, 8},
		"after the window": {10 * time.Second, time.Second, 10 * time.Second, 0, 5},
		"a longer window":  {10 * time.Second, 20 * time.Second, 20 * time.Second, 5, 8},
	} {
		o := otherClients{own: 5, ownBefore: 8, since: start, at: start, window: 10 * time.Second}
		now := start.Add(tt.after)
		o.update(100, 0, tt.reset, now)
		require.Equal(t, tt.window, o.window, name)
		require.Equal(t, []int64{tt.own, tt.before}, []int64{o.own, o.ownBefore}, name)
		require.Equal(t, tt.own == 0, o.since.Equal(now), name)
	}
	for reset, before := range map[time.Duration]int64{2 * time.Second: 0, 2*time.Second + 1: 30} {
		o := otherClients{ownBefore: 4}
		o.begin(50, 20, reset, start)
		require.Equal(t, otherClients{ownBefore: 4, usedBefore: before, own: 20, since: start, at: start}, o, "%v", reset)
	}
	o := otherClients{}
	o.begin(20, 50, time.Hour, start)
	require.Zero(t, o.usedBefore)
}

// The first response begins the count, and so does one that states that most units came back: after
// the reset, or when other clients began the next window.
func TestEstimate_comparesOwnUseWithAllUse(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start.Add(5 * time.Second)
	for name, tt := range map[string]struct {
		first, present, over, sliding bool
		remaining, left               int64
		own                           int64 // afterwards
		early                         bool
	}{
		"first response":            {true, false, false, false, 100, 90, 8, false},
		"same window":               {false, true, false, false, 60, 50, 3, false},
		"same window, over":         {false, true, true, false, 60, 50, 3, false},
		"most came back, over":      {false, false, true, false, 20, 90, 1, false},
		"most came back, others":    {false, true, false, false, 20, 90, 1, true},
		"most came back, no others": {false, false, false, false, 20, 90, 3, false},
		"most came back, both":      {false, true, true, false, 20, 90, 1, true},
		"half came back":            {false, true, true, false, 20, 70, 3, false},
		"more than half came back":  {false, true, true, false, 20, 71, 1, true},
		"most of a log came back":   {false, true, true, true, 20, 90, 3, false},
	} {
		e := Estimate{Limit: 100, Remaining: tt.remaining, At: start, LastSent: 5, Reset: start.Add(20 * time.Second)}
		if tt.over {
			e.Reset = now
		}
		if tt.sliding {
			e.refill.kind = refillsEach
		}
		e.others = otherClients{present: tt.present, own: 3, ownBefore: 7, window: time.Minute, since: start, at: start}
		if tt.first {
			e.others = otherClients{}
		}
		require.Equal(t, tt.early, e.compare(throttle.RemoteLimit{Limit: 100, Remaining: tt.left, ResetAfter: 15 * time.Second}, 6, 8, now), name)
		require.Equal(t, tt.own, e.others.own, name)
		if tt.own == 1 {
			require.Zero(t, e.others.ownBefore, name)
		}
	}
}

// Responses that are older and state more are not compared. The lag is that of the claim that is
// watched, and a window whose first statement came late, in seconds, has a reset that may be earlier.
func TestEstimate_comparesResponses(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start.Add(5 * time.Second)
	for name, tt := range map[string]struct {
		n          uint64
		left       int64
		resolution time.Duration
		over       bool
		updated    bool
		lag        time.Duration
		late       bool
	}{
		"newer":                    {9, 60, 0, false, true, 2 * time.Second, false},
		"as old":                   {5, 60, 0, false, false, 0, false},
		"as old, as many":          {5, 50, 0, false, false, 0, true},
		"as old, less":             {5, 40, 0, false, true, 0, true},
		"before the watched claim": {6, 40, 0, false, true, 0, true},
		"the watched claim":        {7, 40, 0, false, true, 2 * time.Second, true},
		"most are used":            {9, 50, 0, true, true, 2 * time.Second, false},
		"most are used, seconds":   {9, 50, time.Second, true, true, 2 * time.Second, true},
		"half is left, seconds":    {9, 51, time.Second, true, true, 2 * time.Second, false},
	} {
		e := Estimate{Limit: 100, Remaining: 50, At: start, LastSent: 5, Reset: start.Add(20 * time.Second)}
		if tt.over {
			e.Reset = now
		}
		e.others = otherClients{own: 3, window: time.Minute, since: start, at: start, watched: 7, sent: start.Add(3 * time.Second), startedLate: true}
		e.compare(throttle.RemoteLimit{Limit: 100, Remaining: tt.left, ResetAfter: 15 * time.Second, Resolution: tt.resolution}, tt.n, 8, now)
		require.Equal(t, tt.updated, e.others.at.Equal(now), name)
		require.Equal(t, tt.lag, e.others.lag, name)
		require.Equal(t, tt.lag > 0, e.others.watched == 0, name)
		require.Equal(t, tt.late, e.others.startedLate, name)
	}
	var o otherClients
	o.granted(4, start, .25)
	require.Equal(t, otherClients{own: 1, jitter: .75, watched: 4, sent: start}, o)
	o.granted(5, now, .5)
	require.Equal(t, otherClients{own: 2, jitter: 1, watched: 4, sent: start}, o, "one is watched")
	e := Estimate{Limit: 100, others: otherClients{watched: 4, sent: now, since: start}}
	e.compare(throttle.RemoteLimit{Limit: 100, Remaining: 50, ResetAfter: time.Second}, 4, 4, start)
	require.Zero(t, e.others.lag, "the clock was set back")
}

// Claims are spread if the reset is near, or if those in flight and one more may take all that is left.
func TestEstimate_isSharedWithOtherClients(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		absent, unproven                 bool
		reset                            time.Duration
		remaining, usedBefore, own, open int64
		want                             bool
	}{
		"near":                         {false, false, 30 * time.Second, 99, 0, 1, 0, true},
		"near, no other clients":       {true, false, 30 * time.Second, 99, 0, 1, 0, false},
		"near, no rejection yet":       {false, true, 30 * time.Second, 99, 0, 1, 0, false},
		"not near":                     {false, false, 30*time.Second + 1, 99, 0, 1, 0, false},
		"a tenth":                      {false, false, time.Hour, 10, 0, 90, 0, false},
		"less than a tenth":            {false, false, time.Hour, 9, 0, 90, 0, false},
		"two units each, five":         {false, false, time.Hour, 10, 0, 49, 4, false},
		"two units each, six":          {false, false, time.Hour, 10, 0, 50, 5, true},
		"one unit each, six":           {false, false, time.Hour, 10, 45, 50, 5, false},
		"one unit each, eleven":        {false, false, time.Hour, 10, 45, 55, 10, true},
		"few responses":                {false, false, time.Hour, 10, 75, 0, 0, true},
		"many units each":              {false, false, time.Hour, 10, 0, 0, 0, true},
		"no response, nothing is used": {false, false, time.Hour, 10, 90, 3, 8, false},
	} {
		e := Estimate{Limit: 100, Remaining: tt.remaining, Reset: now.Add(tt.reset)}
		e.others = otherClients{present: !tt.absent, usedBefore: tt.usedBefore, own: tt.own, since: now, window: time.Hour}
		e.proof.right = !tt.unproven
		require.Equal(t, tt.want, e.isShared(now, tt.open), name)
	}
}

// Claim number n of a process with the share s is due when the integral of its pace is n: √s left
// (1-u^k)/k with k = (1-s)/√s, where u is the part of the time that is left then.
func TestOtherClients_paceOfClaims(t *testing.T) {
	start := time.Unix(1000, 0)
	reset := start.Add(10 * time.Second)
	for name, tt := range map[string]struct {
		others     otherClients
		left, open int64
		passed     time.Duration
		want       time.Duration
	}{
		"a quarter":                 {otherClients{share: .25, jitter: 1}, 102, 0, 0, 201013571},
		"the fourth one":            {otherClients{share: .25, jitter: 1}, 102, 3, 0, 816918301},
		"after a while":             {otherClients{share: .25, jitter: 1}, 102, 0, 200 * time.Millisecond, 1013571},
		"it is due":                 {otherClients{share: .25, jitter: 1}, 102, 0, 300 * time.Millisecond, 0},
		"with a lag":                {otherClients{share: .25, jitter: 1, lag: time.Second}, 102, 0, 0, 232089844},
		"all":                       {otherClients{share: 1, jitter: 1}, 102, 0, 0, 99502158},
		"at the end":                {otherClients{share: .25, jitter: 1}, 5, 0, 0, 10 * time.Second},
		"within the lag":            {otherClients{share: .25, jitter: 1, lag: 3 * time.Second}, 8, 0, 0, 10 * time.Second},
		"nothing is left":           {otherClients{share: .25, jitter: 1}, 2, 0, 0, 10 * time.Second},
		"the reset may be earlier":  {otherClients{share: .25, jitter: .75, startedLate: true}, 2, 0, 0, 9750 * time.Millisecond},
		"with one unit":             {otherClients{share: .25, jitter: .75, startedLate: true}, 1, 0, 0, 9750 * time.Millisecond},
		"not without a unit":        {otherClients{share: .25, jitter: .75, startedLate: true}, 0, 0, 0, 10 * time.Second},
		"not with one in flight":    {otherClients{share: .25, jitter: .75, startedLate: true}, 2, 1, 0, 10 * time.Second},
		"not earlier than two lags": {otherClients{share: .25, jitter: 1.5, lag: 4750 * time.Millisecond, startedLate: true}, 2, 0, 0, 9500 * time.Millisecond},
	} {
		o := tt.others
		require.InDelta(t, tt.want, o.wait(tt.left, tt.open, start, start.Add(tt.passed), reset), 1000, name)
	}
}

// An update begins the pause before the next claim again, but what was waited is not lost.
func TestEstimate_carriesJitter(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		others    otherClients
		remaining int64
		open      int64
		passed    time.Duration
		want      float64
	}{
		"part of the pause":  {otherClients{present: true, share: .25, jitter: 1}, 102, 0, 100 * time.Millisecond, 1 - .498746},
		"one in flight":      {otherClients{present: true, share: .25, jitter: 1}, 102, 1, 300 * time.Millisecond, 1 - .488694},
		"due, and in flight": {otherClients{present: true, share: .25, jitter: 1}, 102, 1, 100 * time.Millisecond, 1},
		"all of the pause":   {otherClients{present: true, share: .25, jitter: 1}, 102, 0, time.Second, 0},
		"no other clients":   {otherClients{share: .25, jitter: 1}, 102, 0, time.Second, 1},
		"no share":           {otherClients{present: true, jitter: 1}, 102, 0, time.Second, 1},
		"the reset is over":  {otherClients{present: true, share: .25, jitter: 1}, 102, 0, 10 * time.Second, 1},
		"no time passed":     {otherClients{present: true, share: .25, jitter: 1}, 102, 0, 0, 1},
		"nothing is left":    {otherClients{present: true, share: .25, jitter: 1}, 1, 0, time.Second, 1},
	} {
		e := Estimate{Limit: 200, Remaining: tt.remaining, At: start, Reset: start.Add(10 * time.Second), others: tt.others}
		e.CarryJitter(start.Add(tt.passed), tt.open)
		require.InDelta(t, tt.want, e.others.jitter, 1e-5, name)
	}
}

func TestPacing_reservesHeadroom(t *testing.T) {
	for headroom, want := range map[float64]int64{-1: 0, 0: 0, .001: 1, .5: 50, .501: 51, 1: 100, 7: 100} {
		require.Equal(t, want, Pacing{Headroom: headroom}.Reserved(100), "%v", headroom)
	}
	require.Zero(t, Pacing{Headroom: math.NaN()}.Reserved(100))
}

// While other clients use a bucket, only what was stated is shared among them, not what may have returned.
func TestEstimate_sharesWhatWasStated(t *testing.T) {
	at := time.Unix(1000, 0)
	now := at.Add(5 * time.Second)
	e := Estimate{Limit: 100, Remaining: 12, At: at, Reset: at.Add(20 * time.Second), refill: refill{kind: refillsEvenly, rate: 1}}
	e.others, e.proof.right = otherClients{present: true, share: .5, jitter: 9}, true
	units, wait := e.Free(now, &inflight.Claims{}, Pacing{})
	require.Zero(t, units)
	require.Equal(t, e.others.wait(12, 0, at, now, e.Reset), wait)
	require.NotEqual(t, e.others.wait(17, 0, at, now, e.Reset), wait)
}

// A share of exactly nine tenths is no sign of other clients.
func TestOtherClients_nineTenths(t *testing.T) {
	now := time.Unix(1000, 0)
	o := otherClients{share: .9, own: 54, since: now, at: now, window: time.Minute}
	o.update(100, 60, 5*time.Second, now)
	require.InDelta(t, .9, o.share, 0)
	require.False(t, o.present)
}

// If responses arrive later than units come back, what was used less what this process used shows nothing.
func TestOtherClients_areNotInferredFromLateResponses(t *testing.T) {
	now := time.Unix(1000, 0)
	for lag, want := range map[time.Duration]bool{0: true, 999 * time.Millisecond: true, time.Second: false, time.Minute: false} {
		o := otherClients{since: now, at: now, window: time.Second, lag: lag, own: 10}
		o.update(100, 90, time.Second, now.Add(time.Millisecond))
		require.Less(t, o.share, presentBelow)
		require.Equal(t, want, o.present, lag)
	}
}
