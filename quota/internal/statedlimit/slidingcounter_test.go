package statedlimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/throttle"
)

// counterEstimate returns a limit of 100 per 10 s, of which nothing was left a second before its reset, which is
// at start.
func counterEstimate(start time.Time, kind refillKind) Estimate {
	return Estimate{Limit: 100, Per: 10 * time.Second, At: start.Add(-time.Second), Reset: start, LastSent: 100, refill: refill{kind: kind}}
}

// The first response after a reset shows how units come back: all of them, evenly as in a sliding counter, or
// although the reset is as before. In between, or with other clients, it shows nothing.
func TestEstimate_firstResponseAfterAResetShowsTheKind(t *testing.T) {
	start := time.Unix(1000, 0)
	const s = time.Second
	type want struct {
		kind     refillKind
		together bool
		rate     float64
	}
	for name, tt := range map[string]struct {
		kind       refillKind
		left       int64
		late       time.Duration // after the reset
		ahead      time.Duration // of the next reset
		resolution time.Duration
		change     func(*Estimate)
		want       want
	}{
		"counter":                          {refillsAtReset, 0, s / 10, 10 * s, 0, nil, want{refillsNextWindow, false, 10}},
		"not known before":                 {refillUnknown, 0, s / 10, 10 * s, 0, nil, want{refillsNextWindow, false, 10}},
		"a bucket before":                  {refillsEvenly, 0, s / 10, 10 * s, 0, nil, want{refillsNextWindow, false, 10}},
		"later":                            {refillUnknown, 49, 5 * s, 10 * s, 0, nil, want{refillsNextWindow, false, 10}},
		"as many as a counter restores":    {refillUnknown, 55, 5 * s, 10 * s, 0, nil, want{refillsNextWindow, false, 10}},
		"more":                             {refillUnknown, 56, 5 * s, 10 * s, 0, nil, want{refillUnknown, true, 0}},
		"with a resolution":                {refillUnknown, 65, 5 * s, 10 * s, s, nil, want{refillsNextWindow, false, 10}},
		"more, with a resolution":          {refillUnknown, 66, 5 * s, 10 * s, s, nil, want{refillUnknown, true, 0}},
		"as few as a counter restores":     {refillUnknown, 44, 5 * s, 10 * s, 0, nil, want{refillsNextWindow, false, 10}},
		"fewer":                            {refillUnknown, 43, 5 * s, 10 * s, 0, nil, want{refillUnknown, false, 0}},
		"window":                           {refillsAtReset, 99, s / 10, 10 * s, 0, nil, want{refillsAtReset, true, 0}},
		"a counter that was none":          {refillsNextWindow, 99, s / 10, 10 * s, 0, nil, want{refillsAtReset, true, 0}},
		"both look the same":               {refillUnknown, 89, 8900 * time.Millisecond, 10 * s, 0, nil, want{refillUnknown, false, 0}},
		"both almost look the same":        {refillUnknown, 89, 8899 * time.Millisecond, 10 * s, 0, nil, want{refillsNextWindow, false, 10}},
		"the next reset is as late":        {refillUnknown, 0, s / 10, 10*s + Tolerance, 0, nil, want{refillsNextWindow, false, 10}},
		"the next reset is later":          {refillUnknown, 0, s / 10, 10*s + Tolerance + 1, 0, nil, want{refillUnknown, false, 0}},
		"the next reset is earlier":        {refillUnknown, 0, s / 10, 10*s - Tolerance - 1, 0, nil, want{refillUnknown, false, 0}},
		"before the reset":                 {refillUnknown, 99, -1, 10 * s, 0, nil, want{refillUnknown, false, 0}},
		"a window later":                   {refillsNextWindow, 0, s / 10, 10 * s, 0, nil, want{refillsNextWindow, false, 10}},
		"not even a window later":          {refillsNextWindow, 50, 14 * s, 15*s - 1, 0, nil, want{refillsNextWindow, false, 10}},
		"two windows later":                {refillsNextWindow, 99, 14 * s, 15 * s, 0, nil, want{refillsNextWindow, false, 0}},
		"the same window":                  {refillsNextWindow, 0, 0, 5*s - 1, 0, func(e *Estimate) { e.refill.rate = 3 }, want{refillsNextWindow, false, 3}},
		"log: the reset is as before":      {refillsAtReset, 60, s / 10, Tolerance - 1, 0, nil, want{refillsOneByOne, false, 0}},
		"log: not known before":            {refillUnknown, 60, s / 10, 0, 0, nil, want{refillsOneByOne, false, 0}},
		"log: almost all came back":        {refillUnknown, 93, s / 10, 0, 0, nil, want{refillsOneByOne, false, 0}},
		"bucket or window: all came back":  {refillUnknown, 94, s / 10, 0, 0, nil, want{refillUnknown, true, 0}},
		"no log: the reset is later":       {refillsAtReset, 60, s / 10, Tolerance, 0, nil, want{refillsAtReset, true, 0}},
		"units of different costs":         {refillUnknown, 0, s / 10, 10 * s, 0, func(e *Estimate) { e.Weighted = true }, want{refillUnknown, false, 0}},
		"no length is known":               {refillUnknown, 0, s / 10, 10 * s, 0, func(e *Estimate) { e.Per = 0 }, want{refillUnknown, false, 0}},
		"a usual length":                   {refillUnknown, 0, s / 10, 10 * s, 0, func(e *Estimate) { e.Per, e.window = 0, 6*s }, want{refillsNextWindow, false, 10}},
		"the reset before was of a window": {refillUnknown, 0, s / 10, 10 * s, 0, func(e *Estimate) { e.refill.together = true }, want{refillUnknown, false, 0}},
	} {
		e := counterEstimate(start, tt.kind)
		if tt.kind == refillsNextWindow {
			e.refill.window = 10 * s
		}
		if tt.change != nil {
			tt.change(&e)
		}
		now := start.Add(tt.late)
		e.observeReset(throttle.RemoteLimit{Resolution: tt.resolution}, tt.left, start.Add(tt.ahead), now, &inflight.Claims{Sent: 101})
		require.Equal(t, tt.want, want{e.refill.kind, e.refill.together, e.refill.rate}, name)
	}
}

// A unit of a sliding counter comes back at the rate of the window before, and from the reset on at that of the
// present one, until all are back a window later.
func TestEstimate_unitsOfACounterComeBack(t *testing.T) {
	start := time.Unix(1000, 0)
	const s = time.Second
	e := counterEstimate(start, refillsNextWindow) // 100 are missing at -1 s
	e.refill.window, e.refill.rate = 10*s, 20
	for at, want := range map[time.Duration]int64{-2 * s: 0, -s: 0, -s / 2: 10, 0: 20, s: 28, 5 * s: 60, 10 * s: 100, 20 * s: 100} {
		require.Equal(t, want, e.returned(start.Add(at)), "%v", at)
	}
	for at, want := range map[time.Duration]time.Duration{-s: 50 * time.Millisecond, -s / 2: 50 * time.Millisecond, 0: s / 8, 5 * s: s / 8} {
		require.InDelta(t, want, e.UntilFree(0, start.Add(at)), 2e3, "%v", at)
	}
	require.InDelta(t, s+s/8, e.UntilFree(-20, start.Add(-s)), 2e3, "one of the present window")
	require.InDelta(t, 11*s, e.UntilFree(-99, start.Add(-s)), 2e3, "the last one")
	require.Zero(t, e.UntilFree(-100, start.Add(-s)), "more than are missing")
	require.Zero(t, e.UntilFree(0, start.Add(10*s)), "none is missing")
	require.Equal(t, start.Add(10*s), e.OpensAt(), "until then no probe is needed")

	e = counterEstimate(start, refillsNextWindow)
	e.refill.window, e.At = 10*s, start.Add(5*s)
	require.EqualValues(t, 10, e.returned(start.Add(6*s)), "an update after the reset")
}

// The probe after a reset waits until a sliding counter has restored one unit, if that is soon and possible.
func TestEstimate_probeWaitsForAUnitOfACounter(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		change func(*Estimate)
		want   time.Duration
	}{
		"100 of 10 s":     {func(*Estimate) {}, 100 * time.Millisecond},
		"half is left":    {func(e *Estimate) { e.Remaining = 50 }, 200 * time.Millisecond},
		"40 of 10 s":      {func(e *Estimate) { e.Limit = 40 }, 0},
		"41 of 10 s":      {func(e *Estimate) { e.Limit = 41 }, 10 * time.Second / 41},
		"60 of a minute":  {func(e *Estimate) { e.Limit, e.Per = 60, time.Minute }, 0},
		"61 of a minute":  {func(e *Estimate) { e.Limit, e.Per = 61, time.Minute }, time.Minute / 61},
		"all are left":    {func(e *Estimate) { e.Remaining = 100 }, 0},
		"no length":       {func(e *Estimate) { e.Per = 0 }, 0},
		"a window":        {func(e *Estimate) { e.refill.together = true }, 0},
		"a log":           {func(e *Estimate) { e.refill.kind = refillsOneByOne }, 0},
		"different costs": {func(e *Estimate) { e.Weighted = true }, 0},
	} {
		e := counterEstimate(start, refillUnknown)
		tt.change(&e)
		if tt.want > 0 {
			tt.want += time.Microsecond
		}
		require.Equal(t, tt.want, e.unitDelay(), name)
		require.Equal(t, start.Add(tt.want), e.OpensAt(), name)
	}
}

// A rejection for which a unit should have come back shows that the limit is no sliding counter, or that its
// resets are rounded down: once, within the resolution of a reset.
func TestEstimate_rejectionByACounter(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		kind     refillKind
		floor    bool
		at       time.Duration
		want     refillKind
		together bool
		rounded  bool
	}{
		"soon after the reset":         {refillsNextWindow, false, time.Second - 1, refillsNextWindow, false, true},
		"at the end of the resolution": {refillsNextWindow, false, time.Second, refillsAtReset, true, false},
		"soon after the reset before":  {refillsNextWindow, false, -9*time.Second - 1, refillsNextWindow, false, true},
		"later after the reset before": {refillsNextWindow, false, -9 * time.Second, refillsAtReset, true, false},
		"soon, but that is known":      {refillsNextWindow, true, 0, refillsAtReset, true, true},
		"a window":                     {refillsAtReset, false, 0, refillsAtReset, false, false},
		"not known":                    {refillUnknown, false, 0, refillUnknown, false, false},
		"a bucket":                     {refillsEvenly, false, 5 * time.Second, refillsEvenly, false, false},
		"a log":                        {refillsOneByOne, false, 5 * time.Second, refillsOneByOne, false, false},
	} {
		e := counterEstimate(start, tt.kind)
		e.refill.window, e.refill.floor = 10*time.Second, tt.floor
		e.rejectedByCounter(time.Second, start.Add(tt.at))
		require.Equal(t, tt.want, e.refill.kind, name)
		require.Equal(t, []bool{tt.together, tt.rounded}, []bool{e.refill.together, e.refill.floor}, name)
	}
}

// In the window of a sliding counter, responses show that it is none: more or far fewer units came back than
// its largest rate, or its rate, restores.
func TestRefill_responsesRefuteACounter(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		left int64
		want refillKind
	}{"most": {15, refillsNextWindow}, "more": {16, refillsOneByOne}, "few": {0, refillsNextWindow}} {
		e := counterEstimate(start, refillsNextWindow)
		e.Reset, e.refill.window, e.refill.rate = start.Add(5*time.Second), 10*time.Second, 1
		e.refill.update(&e, tt.left, e.Reset, start, &inflight.Claims{Sent: 100})
		require.Equal(t, tt.want, e.refill.kind, name)
		require.Zero(t, e.refill.at, "%s: its rate is not measured", name)
	}
	for rate, want := range map[float64]refillKind{1.9: refillsNextWindow, 2: refillsAtReset} {
		e := counterEstimate(start, refillsNextWindow)
		e.highest, e.Reset, e.refill.window, e.refill.rate = 99, start.Add(5*time.Second), 10*time.Second, rate
		e.refill.update(&e, 0, e.Reset, start, &inflight.Claims{Sent: 100})
		require.Equal(t, want, e.refill.kind, "%v per second, none of which came back", rate)
	}
}

// The resets of a sliding counter are neither those of windows that begin with a request nor, if they are
// rounded down, those that are stated.
func TestEstimate_resetsOfACounter(t *testing.T) {
	start := time.Unix(1000, 0)
	for floor, want := range map[bool]time.Duration{false: 9 * time.Second, true: 10 * time.Second} {
		e := counterEstimate(start, refillsNextWindow)
		e.refill.window, e.refill.floor, e.start.at = 10*time.Second, floor, start.Add(-1500*time.Millisecond)
		e.Update(throttle.RemoteLimit{Limit: 100, ResetAfter: 9 * time.Second, Resolution: time.Second, Per: 10 * time.Second}, 101, start, &inflight.Claims{Sent: 101})
		require.Equal(t, start.Add(want), e.Reset, "rounded down: %v", floor)
	}
}

// A rejected probe shows that resets are rounded down only if it states no later one: otherwise the window is over,
// and its units come back in another way.
func TestEstimate_rejectedProbeOfTheNextWindow(t *testing.T) {
	start := time.Unix(1000, 0)
	for ahead, want := range map[time.Duration]bool{Tolerance: true, Tolerance + 1: false} {
		e := counterEstimate(start, refillsAtReset)
		e.Probe, e.start.at = true, start.Add(-10*time.Second)
		e.Update(throttle.RemoteLimit{Limit: 100, ResetAfter: ahead, Per: 10 * time.Second}, 101, start, &inflight.Claims{Sent: 101})
		require.Equal(t, want, e.start.floor, "%v", ahead)
	}
}

func TestLengthOf(t *testing.T) {
	const s = time.Second
	for d, want := range map[time.Duration]time.Duration{0: 0, 1: s, s: s, s + 1: 2 * s, 6 * s: 10 * s, time.Hour + 1: 24 * time.Hour, 25 * time.Hour: 25 * time.Hour} {
		require.Equal(t, want, lengthOf(d), "at least %v", d)
	}
}

// Units of a sliding counter come back evenly, so claims are not spread until its reset.
func TestEstimate_counterIsNotSpread(t *testing.T) {
	start := time.Unix(1000, 0)
	for kind, want := range map[refillKind]bool{refillsAtReset: true, refillsNextWindow: false} {
		e := counterEstimate(start, kind)
		e.Reset, e.refill.window = start.Add(time.Minute), time.Minute
		require.Equal(t, want, Pacing{Spread: true}.spreads(&e), "%v", kind)
	}
}
