package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// What a server states to be used is own use if it exceeds what was counted by at most a twentieth
// of the limit, or two requests. Otherwise there are other clients.
func TestEstimate_attributesUseToOtherClients(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		limit, counted, open, used int64
		own                        bool
	}{
		"all is counted":            {400, 50, 0, 50, true},
		"a twentieth is not":        {400, 50, 0, 70, true},
		"more is not":               {400, 50, 0, 71, false},
		"one is in flight":          {400, 50, 1, 71, true},
		"two of few are not":        {10, 3, 0, 5, true},
		"three of few are not":      {10, 3, 0, 6, false},
		"nothing was ever counted":  {400, 0, 0, 100, false},
		"less is used than counted": {400, 50, 0, 20, true},
	} {
		e := estimate{limit: tt.limit, refill: refill{kind: refillsEach, window: time.Minute, log: newSendLog(now.Add(-time.Second), tt.counted)}}
		l := throttle.RemoteLimit{Limit: tt.limit, Remaining: tt.limit - tt.used}
		require.Equal(t, tt.own, e.logExplains(l, now, &inFlight{open: tt.open}), name)
	}
}

// A limit that was contradicted by accepted requests is believed again when it states that units
// are left, be it one.
func TestEarlyTest_unitsThatAreLeftEndIt(t *testing.T) {
	now := time.Unix(1000, 0)
	for left, distrusted := range map[int64]bool{0: true, 1: false, 2: false} {
		e := estimate{limit: 100, early: earlyTest{end: now.Add(time.Hour), since: now, contradicted: contradictions}}
		e.early.update(&e, now.Add(time.Hour), left, 1, now)
		require.Equal(t, distrusted, e.early.distrusted(), "%d left", left)
	}
}

// A rejection while more than an eighth of a counted window is left, and more than one request, shows
// that units come back in another way.
func TestCountedWindows_earlyRejectionRefutesThem(t *testing.T) {
	for name, tt := range map[string]struct {
		left, limit int64
		refuted     bool
	}{
		"used up":                   {0, 100, false},
		"an eighth is left":         {12, 100, false},
		"more is left":              {13, 100, true},
		"one of few is left":        {1, 4, false},
		"two of few are left":       {2, 4, true},
		"nothing was used so far":   {100, 100, true},
		"more was sent than stated": {-3, 100, false},
	} {
		c := countedWindows{on: true, length: time.Minute}
		c.rejected(tt.left, tt.limit)
		require.Equal(t, tt.refuted, c.refuted, name)
		require.Equal(t, !tt.refuted, c.on, name)
	}
	off := countedWindows{}
	off.rejected(100, 100)
	require.False(t, off.refuted)
}

// The last unit is kept for a moment while it is not known how units come back, but not that of a
// limit of one, and not if the reset is near.
func TestEstimate_keepsTheLastUnit(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		limit int64
		reset time.Duration
		kind  refillKind
		want  bool
	}{
		"not known":     {2, time.Minute, refillUnknown, true},
		"limit of one":  {1, time.Minute, refillUnknown, false},
		"window":        {2, time.Minute, refillsAtReset, false},
		"near":          {2, 100 * time.Millisecond, refillUnknown, true},
		"nearer":        {2, 99 * time.Millisecond, refillUnknown, false},
		"token bucket":  {2, time.Minute, refillsEvenly, false},
		"several units": {100, time.Minute, refillUnknown, true},
	} {
		e := estimate{limit: tt.limit, at: now, reset: now.Add(tt.reset), refill: refill{kind: tt.kind}}
		require.Equal(t, tt.want, e.delaysLastUnit(), name)
	}
}

// Two responses are of the same bucket if their missing units and the times until it is full show
// about the same rate: here, 40 of 100 units are missing and return within 20 seconds.
func TestEstimate_mayBeTheSameBucket(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		after     time.Duration
		remaining int64
		reset     time.Duration
		want      bool
	}{
		"the same":                     {0, 60, 20 * time.Second, true},
		"later":                        {10 * time.Second, 80, 10 * time.Second, true},
		"later, others used units":     {10 * time.Second, 40, 30 * time.Second, true},
		"more than can have come back": {time.Second, 65, 17 * time.Second, false},
		"far too slow":                 {0, 60, 10 * time.Minute, false},
		"far too fast":                 {0, 20, 2 * time.Second, false},
		"before":                       {-time.Second, 100, time.Minute, true},
		"before, more than the limit":  {-time.Second, 101, time.Minute, false},
	} {
		e := estimate{limit: 100, remaining: 60, at: start, reset: start.Add(20 * time.Second)}
		now := start.Add(tt.after)
		l := throttle.RemoteLimit{Limit: 100, Remaining: tt.remaining, ResetAfter: tt.reset}
		require.Equal(t, tt.want, e.mayBeBucket(l, 0, now), name)
	}
}

// Resets that are stated in seconds differ by little more than one, rougher ones by more.
func TestEstimate_toleranceGrowsWithTheResolution(t *testing.T) {
	for resolution, want := range map[time.Duration]time.Duration{
		0: tolerance, time.Millisecond: tolerance, time.Second: tolerance, time.Minute: time.Minute + tolerance - time.Second,
	} {
		require.Equal(t, want, toleranceOf(throttle.RemoteLimit{Resolution: resolution}), "%v", resolution)
	}
}

// Each test of a reset that is far away is planned from the one before, and those that moved the
// reset by more than a minute are counted.
func TestEarlyTest_countsTests(t *testing.T) {
	start := time.Unix(1000, 0)
	end := start.Add(240 * time.Hour)
	e := estimate{limit: 100, lastSent: 5}
	e.early.update(&e, end, 0, 1, start)
	require.Equal(t, earlyTest{end: end, since: start}, e.early, "nothing is left")
	now := start.Add(time.Minute)
	e.early.update(&e, end, 0, 6, now)
	require.Equal(t, earlyTest{end: end, since: start}, e.early, "no test")
	e.probe = true
	e.early.update(&e, end, 0, 5, now)
	require.Equal(t, earlyTest{end: end, since: start}, e.early, "a request before the test")
	e.early.update(&e, end.Add(movedBy), 0, 6, now)
	require.Equal(t, earlyTest{end: end.Add(movedBy), since: now, tests: 1}, e.early)
	moved := end.Add(2*movedBy + 1)
	e.early.update(&e, moved, 0, 6, now.Add(time.Minute))
	require.Equal(t, earlyTest{end: moved, since: now.Add(time.Minute), tests: 2, moved: 1}, e.early)
	e.early.update(&e, end, 0, 6, now.Add(time.Hour))
	require.Equal(t, earlyTest{end: moved, since: now.Add(time.Hour), tests: 3, moved: 1}, e.early, "the reset never becomes earlier")
}
