package statedlimit

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/throttle"
)

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
		e := Estimate{Limit: 100, Remaining: 60, At: start, Reset: start.Add(20 * time.Second)}
		now := start.Add(tt.after)
		l := throttle.RemoteLimit{Limit: 100, Remaining: tt.remaining, ResetAfter: tt.reset}
		require.Equal(t, tt.want, e.mayBeBucket(l, 0, now), name)
	}
}

// Resets that are stated in seconds differ by little more than one, rougher ones by more.
func TestEstimate_toleranceGrowsWithTheResolution(t *testing.T) {
	for resolution, want := range map[time.Duration]time.Duration{
		0: Tolerance, time.Millisecond: Tolerance, time.Second: Tolerance, time.Minute: time.Minute + Tolerance - time.Second,
	} {
		require.Equal(t, want, ToleranceOf(throttle.RemoteLimit{Resolution: resolution}), "%v", resolution)
	}
}

// A response corrects the state as the documentation of estimate says.
func TestEstimate_appliesResponses(t *testing.T) {
	start := time.Unix(1000, 0)
	now, end := start.Add(10*time.Second), start.Add(time.Minute)
	for name, tt := range map[string]struct {
		n          uint64        // 10 claims had been sent at the latest update
		left       int64         // 50 of 100 were left then
		reset      time.Duration // from now on; 50 s: as before
		resolution time.Duration
		kind       refillKind
		over       bool // the reset has passed
		want       int64
		wantReset  time.Time
		replaced   bool // the state is that of this response
	}{
		"newer":                           {11, 45, 50 * time.Second, 0, refillUnknown, false, 45, end, true},
		"newer, more":                     {11, 55, 50 * time.Second, 0, refillUnknown, false, 55, end, true},
		"newer, earlier reset":            {11, 45, 40 * time.Second, 0, refillUnknown, false, 45, end.Add(-10 * time.Second), true},
		"newer, later reset":              {11, 45, 60 * time.Second, 0, refillUnknown, false, 45, end.Add(10 * time.Second), true},
		"newer, in seconds":               {11, 45, 51 * time.Second, time.Second, refillUnknown, false, 45, end, true},
		"newer, in seconds, earlier":      {11, 45, 49500 * time.Millisecond, time.Second, refillUnknown, false, 45, end.Add(-500 * time.Millisecond), true},
		"newer, exact":                    {11, 45, 51 * time.Second, 0, refillUnknown, false, 45, end.Add(time.Second), true},
		"newer, sliding":                  {11, 45, 51 * time.Second, time.Second, refillsOneByOne, false, 45, end.Add(time.Second), true},
		"newer, bucket":                   {11, 45, 40 * time.Second, time.Second, refillsEvenly, false, 45, end.Add(-10 * time.Second), true},
		"older, fewer":                    {10, 49, 50 * time.Second, 0, refillUnknown, false, 49, end, true},
		"older, as many":                  {10, 50, 49500 * time.Millisecond, 0, refillUnknown, false, 50, end.Add(-500 * time.Millisecond), false},
		"older, as many, sliding":         {10, 50, 49500 * time.Millisecond, 0, refillsOneByOne, false, 50, end.Add(-500 * time.Millisecond), false},
		"older, as many, bucket":          {10, 50, 49500 * time.Millisecond, 0, refillsEvenly, false, 50, end, false},
		"older, as many, fuller":          {10, 50, 55 * time.Second, 0, refillsEvenly, false, 50, end.Add(5 * time.Second), false},
		"older, of a window that is over": {10, 5, 50*time.Second - Tolerance - 1, 0, refillUnknown, false, 50, end, false},
		"older, hardly earlier":           {10, 5, 50*time.Second - Tolerance, 0, refillUnknown, false, 5, end.Add(-Tolerance), true},
		"older, of a fuller bucket":       {10, 51, 50*time.Second + Tolerance + 1, 0, refillUnknown, false, 50, end, false},
		"older, later reset":              {10, 50, 50*time.Second + Tolerance + 1, 0, refillUnknown, false, 50, end.Add(Tolerance + 1), true},
		"older, hardly later":             {10, 50, 50*time.Second + Tolerance, 0, refillUnknown, false, 50, end.Add(Tolerance), false},
		"older, over, fewer":              {10, 49, 50 * time.Second, 0, refillUnknown, true, 49, end, true},
		"older, over, more":               {10, 99, 50 * time.Second, 0, refillUnknown, true, 50, now, false},
		"from another quota":              {0, 50, 50 * time.Second, 0, refillUnknown, false, 50, end, false},
	} {
		e := Estimate{Limit: 100, Remaining: 50, At: start, Reset: end, LastSent: 10, openAtUpdate: 3, Probe: true, refill: refill{kind: tt.kind}}
		if tt.over {
			e.Reset = now
		}
		f := &inflight.Claims{Sent: 12, Open: 2}
		e.Update(throttle.RemoteLimit{Limit: 100, Remaining: tt.left, ResetAfter: tt.reset, Resolution: tt.resolution, Per: e.Per}, tt.n, now, f)
		require.Equal(t, tt.want, e.Remaining, name)
		require.Equal(t, tt.wantReset, e.Reset, name)
		require.Equal(t, tt.replaced, e.At.Equal(now), name)
		require.Equal(t, !tt.replaced, e.Probe, name)
		switch {
		case tt.replaced:
			require.Equal(t, []int64{12, 2, 100}, []int64{int64(e.LastSent), e.openAtUpdate, e.Limit}, name)
		case tt.over || tt.wantReset.Equal(end) && tt.kind == refillUnknown && tt.n > 0: // ignored
			require.EqualValues(t, 3, e.openAtUpdate, name)
		default:
			require.EqualValues(t, 2, e.openAtUpdate, "%s: one of those in flight had been counted", name)
		}
	}
	e := Estimate{Limit: 100, Remaining: 50, At: start, Reset: end}
	e.Update(throttle.RemoteLimit{Limit: 80, Remaining: 90, ResetAfter: time.Second, Per: time.Hour}, 1, now, &inflight.Claims{Sent: 1})
	require.Equal(t, []int64{90, 90}, []int64{e.Limit, e.Remaining}, "more are left than the limit")
	require.Equal(t, time.Hour, e.Per)
	e.Update(throttle.RemoteLimit{Limit: 80, Remaining: -7, ResetAfter: time.Second}, 2, now, &inflight.Claims{Sent: 2})
	require.Equal(t, []int64{80, 0}, []int64{e.Limit, e.Remaining})
}

// The measurement of a rate follows the responses.
func TestEstimate_responsesCorrectTheRefill(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start.Add(10 * time.Second)
	update := func(e *Estimate, left int64, open int64) {
		e.Update(throttle.RemoteLimit{Limit: 100, Remaining: left, ResetAfter: 50 * time.Second}, 11, now, &inflight.Claims{Sent: 12, Open: open})
	}
	e := Estimate{Limit: 100, Remaining: 50, At: start, Reset: start.Add(time.Minute), LastSent: 10, refill: refill{kind: refillsAtReset}}
	update(&e, 45, 2)
	require.Equal(t, refill{kind: refillsAtReset, left: 45, open: 2, at: now}, e.refill, "a measurement begins")
	e = Estimate{Limit: 100, Remaining: 50, At: start, Reset: now, LastSent: 10, refill: refill{left: 50, responses: 3, at: start, open: 1}}
	update(&e, 99, 2)
	require.Equal(t, refill{together: true, left: 99, open: 2, at: now}, e.refill, "and again after the reset, at which all came back")
}

// A limit is obeyed with what is left, less what is in flight and reserved. Without units the wait is
// until one comes back.
func TestEstimate_freeUnits(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		e          Estimate
		open       int64
		headroom   float64
		after      time.Duration
		free       int64
		wait       time.Duration
		needsProbe bool
	}{
		"some":                          {Estimate{Remaining: 50}, 20, .1, 0, 20, 0, false},
		"none":                          {Estimate{Remaining: 30}, 20, .1, time.Second, 0, 59 * time.Second, false},
		"all in flight":                 {Estimate{Remaining: 20}, 20, 0, time.Second, 0, 59 * time.Second, false},
		"bucket":                        {Estimate{Remaining: 20, refill: refill{kind: refillsEvenly, rate: 2}}, 20, 0, 200 * time.Millisecond, 0, 300 * time.Millisecond, false},
		"slow bucket":                   {Estimate{Remaining: 20, refill: refill{kind: refillsEvenly, rate: .001}}, 20, 0, time.Second, 0, 59 * time.Second, false},
		"after the reset":               {Estimate{Remaining: 1, refill: refill{kind: refillsAtReset}}, 1, 0, time.Minute, math.MaxInt64, 0, true},
		"after the reset, all reserved": {Estimate{Remaining: 10}, 0, .1, time.Minute, math.MaxInt64, 0, true},
		"after the reset, some left":    {Estimate{Remaining: 9}, 1, 0, time.Minute, 8, 0, false},
		"the last":                      {Estimate{Remaining: 1}, 0, 0, time.Second, 1, 0, false},
		"the last, with one in flight":  {Estimate{Remaining: 2}, 1, 0, time.Second, 1, 0, false},
		"two":                           {Estimate{Remaining: 2}, 0, 0, 0, 2, 0, false},
		"ignored":                       {Estimate{proof: proof{ignored: true}}, 0, 0, 0, math.MaxInt64, 0, false},
		"without a reset":               {Estimate{untimed: true}, 0, 0, 0, math.MaxInt64, 0, false},
		"without a reset, confirmed":    {Estimate{untimed: true, proof: proof{right: true}}, 0, 0, 0, 0, time.Minute, false},
		"after the reset, too few left": {Estimate{Remaining: 2, use: use{each: 5}, proof: proof{right: true}}, 0, 0, time.Minute, math.MaxInt64, 0, true},
		"after the reset, one left":     {Estimate{Remaining: 3, use: use{each: 5}, proof: proof{right: true}}, 0, 0, time.Minute, 1, 0, false},
		"probe":                         {Estimate{Remaining: 50, highest: 99, Probe: true}, 30, .1, 0, 60, 0, false},
		"probe of a small bucket":       {Estimate{Remaining: 50, highest: 60, Probe: true}, 30, 0, 0, 31, 0, false},
		"probe, none was ever left":     {Estimate{Probe: true}, 1, 0, 0, 0, 0, false},
	} {
		e := tt.e
		e.Limit, e.At, e.Reset = 100, start, start.Add(time.Minute)
		f := inflight.Claims{Open: tt.open, Sent: 100}
		if !tt.e.Probe {
			e.highest = 100
		}
		if tt.e.Probe {
			f.Sent, f.Open = 99, tt.open-1
			f.Add() // the probe
		}
		free, wait := e.Free(start.Add(tt.after), &f, Pacing{Headroom: tt.headroom})
		require.Equal(t, tt.free, free, name)
		require.Equal(t, tt.wait, wait, name)
		require.Equal(t, tt.needsProbe, e.needsProbe(start.Add(tt.after), &f, Pacing{Headroom: tt.headroom}), name)
		e.Granted(start.Add(tt.after), &f, Pacing{Headroom: tt.headroom})
		require.Equal(t, tt.needsProbe || tt.e.Probe, e.Probe, name)
		if tt.needsProbe {
			require.EqualValues(t, 100, e.LastSent, name)
			for range 2 {
				f.Add()
				free, wait = e.Free(start.Add(tt.after), &f, Pacing{})
				want := e.requests(100) - f.Open // the known limit, although more may be left
				require.Equal(t, []int64{want, 0}, []int64{free, int64(wait)}, name)
			}
			f = inflight.Claims{Sent: f.Sent} // its caller has given up: the next claim may be sent
			free, _ = e.Free(start.Add(tt.after), &f, Pacing{Headroom: tt.headroom})
			require.Positive(t, free, name)
		}
	}
	e := Estimate{Limit: 100, Remaining: 9, At: start, Reset: start.Add(time.Minute), next: start.Add(3 * time.Second), refill: refill{kind: refillsAtReset}}
	free, wait := e.Free(start, &inflight.Claims{}, Pacing{Spread: true})
	require.Equal(t, []int64{0, int64(3 * time.Second)}, []int64{free, int64(wait)}, "spread over the time until the reset")
	free, _ = e.Free(start, &inflight.Claims{}, Pacing{})
	require.EqualValues(t, 9, free, "units are not spread")
	free, _ = e.Free(start.Add(3*time.Second), &inflight.Claims{}, Pacing{Spread: true})
	require.EqualValues(t, 9, free)
	free, wait = e.Free(start, &inflight.Claims{Open: 8}, Pacing{Spread: true})
	require.Equal(t, []int64{0, int64(3 * time.Second)}, []int64{free, int64(wait)}, "so is the last one")
}

// Responses that do not state a limit use one unit of it. If the response to the probe does not state
// it either, a window begins of which nothing else is known, or the limit is out of date.
func TestEstimate_countsResponsesThatStateNothing(t *testing.T) {
	start := time.Unix(1000, 0)
	now := start.Add(time.Minute)
	for name, tt := range map[string]struct {
		e        Estimate
		n        uint64
		accepted bool
		outdated bool
		left     int64
	}{
		"no probe":                  {Estimate{Remaining: 5}, 11, true, false, 4},
		"rejected":                  {Estimate{Remaining: 5}, 11, false, false, 4},
		"nothing is left":           {Estimate{}, 11, true, false, 0},
		"in flight":                 {Estimate{Remaining: 5, concurrent: true, enforced: true}, 11, true, false, 5},
		"before the probe":          {Estimate{Remaining: 5, Probe: true}, 10, true, false, 5},
		"the probe":                 {Estimate{Probe: true}, 11, true, false, 99},
		"the probe, not accepted":   {Estimate{Probe: true}, 11, false, true, 0},
		"the probe, a limit of one": {Estimate{Limit: -99, Probe: true}, 11, true, false, 0},
		"the probe, without limit":  {Estimate{Limit: -100, Probe: true}, 11, true, true, 0},
	} {
		e := tt.e
		e.Limit, e.LastSent, e.Reset = e.Limit+100, 10, start
		require.Equal(t, tt.outdated, e.CountUnstated(tt.n, tt.accepted, now, &inflight.Claims{Sent: 12, Open: 1}), name)
		require.Equal(t, tt.left, e.Remaining, name)
	}
	e := Estimate{Limit: 100, Probe: true, LastSent: 10, proof: proof{known: true}, refill: refill{kind: refillsEvenly, rate: 7}, window: time.Hour}
	e.CountUnstated(11, true, now, &inflight.Claims{Sent: 12, Open: 1})
	want := Estimate{Limit: 100, Remaining: 99, At: now, LastSent: 12, openAtUpdate: 1, Reset: now, refill: refill{kind: refillsAtReset}, window: time.Hour}
	require.Equal(t, want, e)
}

// The pause between probes of a limit without a reset halves when many units are found, and begins
// anew when half of the limit is left.
func TestEstimate_adaptsThePauseBetweenProbes(t *testing.T) {
	for name, tt := range map[string]struct {
		pause    time.Duration
		left     int64
		n        uint64
		rejected bool
		want     time.Duration
	}{
		"accepted":                {time.Second, 0, 6, false, 750 * time.Millisecond},
		"first":                   {0, 7, 6, false, 750 * time.Millisecond},
		"often":                   {60 * time.Millisecond, 7, 6, false, 50 * time.Millisecond},
		"rejected":                {200 * time.Millisecond, 0, 6, true, 400 * time.Millisecond},
		"rejected, long":          {1200 * time.Millisecond, 0, 6, true, 2 * time.Second},
		"rejected, no probe":      {200 * time.Millisecond, 0, 5, true, 200 * time.Millisecond},
		"no probe":                {time.Second, 8, 5, false, time.Second},
		"half is left":            {time.Second, 50, 5, false, 0},
		"almost half is left":     {time.Second, 49, 5, false, time.Second},
		"half is left, the probe": {time.Second, 50, 6, false, 750 * time.Millisecond},
	} {
		e := Estimate{Limit: 100, Probe: true, LastSent: 5, probePause: tt.pause}
		e.adaptProbePause(throttle.RemoteLimit{Limit: 100, Remaining: tt.left}, tt.n, tt.rejected)
		require.Equal(t, tt.want, e.probePause, name)
	}
	e := Estimate{Limit: 100, LastSent: 5}
	e.adaptProbePause(throttle.RemoteLimit{Limit: 100, Remaining: 20}, 6, false)
	require.Zero(t, e.probePause, "it was no probe")
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		pause time.Duration
		l     throttle.RemoteLimit
		want  time.Duration
	}{
		"nothing is stated":            {0, throttle.RemoteLimit{}, time.Second},
		"the pause":                    {7 * time.Second, throttle.RemoteLimit{}, 7 * time.Second},
		"reset":                        {7 * time.Second, throttle.RemoteLimit{ResetAfter: 3, Per: 5}, 3},
		"window":                       {7 * time.Second, throttle.RemoteLimit{Per: 5}, 5},
		"hostile":                      {0, throttle.RemoteLimit{ResetAfter: math.MaxInt64}, headers.MaxDelay},
		"hostile window":               {0, throttle.RemoteLimit{ResetAfter: math.MinInt64, Per: math.MaxInt64}, headers.MaxDelay},
		"hostile window, negative too": {0, throttle.RemoteLimit{ResetAfter: -1, Per: -1}, time.Second},
	} {
		e := Estimate{probePause: tt.pause}
		require.Equal(t, tt.want, e.resetOf(tt.l, now).Sub(now), name)
	}
}

// A response may be of the window that is known if its reset differs by little and it states no more
// units. One of another size is of another limit if its window ends at another time.
func TestEstimate_comparesWindows(t *testing.T) {
	now := time.Unix(1000, 0)
	rough := 2 * Tolerance
	for name, tt := range map[string]struct {
		over, bucket bool
		left         int64
		apart        time.Duration
		want         bool
	}{
		"the same":              {false, false, 50, 0, true},
		"more units":            {false, false, 51, 0, false},
		"later":                 {false, false, 50, rough - 1, true},
		"too late":              {false, false, 50, rough, false},
		"earlier":               {false, false, 50, -rough + 1, true},
		"too early":             {false, false, 50, -rough, false},
		"bucket":                {false, true, 50, time.Hour, true},
		"bucket, more units":    {false, true, 51, time.Hour, false},
		"the window is over":    {true, false, 100, time.Hour, true},
		"the windows are equal": {true, false, 50, 0, true},
	} {
		e := Estimate{Limit: 100, Remaining: 50, At: now, Reset: now.Add(time.Minute)}
		l := throttle.RemoteLimit{Limit: 100, Remaining: tt.left, ResetAfter: time.Minute + tt.apart}
		if tt.over {
			e.Reset = now
		}
		if tt.bucket {
			e.refill.kind = refillsEvenly
		}
		require.Equal(t, tt.want, e.MayBeSameWindow(l, now), name)
	}
	for name, tt := range map[string]struct {
		over   bool
		window time.Duration // the longest that was stated
		reset  time.Duration // 0: not stated
		want   bool
	}{
		"ends at that time":     {false, time.Minute, time.Minute + rough, false},
		"ends later":            {false, time.Minute, time.Minute + rough + 1, true},
		"ends earlier":          {false, time.Minute, time.Minute - rough - 1, true},
		"nothing is stated":     {false, time.Minute, 0, false},
		"next window":           {true, time.Minute, 2*time.Minute + rough, false},
		"a much longer one":     {true, time.Minute, 2*time.Minute + rough + 1, true},
		"longer than not known": {true, 0, time.Hour, false},
	} {
		e := Estimate{Reset: now.Add(time.Minute), window: tt.window}
		if tt.over {
			e.Reset = now
		}
		require.Equal(t, tt.want, e.IsOtherWindow(throttle.RemoteLimit{ResetAfter: tt.reset}, now), name)
	}
	for name, tt := range map[string]struct {
		l              throttle.RemoteLimit
		counts, resets bool
	}{
		"requests":    {throttle.RemoteLimit{Unit: "requests"}, true, false},
		"no unit":     {throttle.RemoteLimit{ResetAfter: 1}, true, true},
		"concurrency": {throttle.RemoteLimit{Unit: UnitConcurrent, Per: 1}, true, true},
		"tokens":      {throttle.RemoteLimit{Unit: "tokens"}, false, false},
		"not known":   {throttle.RemoteLimit{RemainingUnknown: true}, false, false},
	} {
		require.Equal(t, tt.counts, CountsRequests(tt.l), name)
		require.Equal(t, tt.resets, statesReset(tt.l), name)
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
		e := Estimate{Reset: now.Add(time.Minute)}
		require.Equal(t, tt.want, e.earlierReset(now.Add(tt.stated), throttle.RemoteLimit{Resolution: tt.resolution}).Sub(now), name)
	}
	for kind, want := range map[refillKind]time.Duration{refillsAtReset: 59 * time.Second, refillsEvenly: time.Minute} {
		e := Estimate{Reset: now.Add(time.Minute), openAtUpdate: 2, refill: refill{kind: kind}}
		for _, open := range []int64{1, 0, 0} {
			e.refineReset(now.Add(59 * time.Second))
			require.Equal(t, want, e.Reset.Sub(now), "a bucket that is emptier later is full later")
			require.Equal(t, open, e.openAtUpdate)
		}
	}
}

// A later reset begins a window if it is later by more than the tolerance.
func TestEstimate_laterResetsBeginAWindow(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	now := start.Add(time.Second)
	for ahead, over := range map[time.Duration]bool{0: false, Tolerance: false, Tolerance + 1: true} {
		e := Estimate{Limit: 100, Remaining: 50, At: start, Reset: start.Add(time.Minute), LastSent: 1, refill: refill{kind: refillsAtReset, at: start}}
		f := inflight.Claims{Sent: 2}
		e.Update(throttle.RemoteLimit{Limit: 100, Remaining: 49, ResetAfter: e.Reset.Sub(now) + ahead}, 2, now, &f)
		require.Equal(t, over, e.refill.at.Equal(now), ahead)
	}
}

// A response may concern an estimate if it states about the same reset, less than twice the tolerance
// apart, and no more units left than are known, but for responses that arrive in another order.
func TestEstimate_mayBeTheSameWindow(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		change    func(e *Estimate)
		left      int64
		reset     time.Duration // of e it is a minute
		reordered int64
		want      bool
	}{
		"the same":                       {nil, 50, time.Minute, 0, true},
		"fewer left":                     {nil, 0, time.Minute, 0, true},
		"more left":                      {nil, 51, time.Minute, 0, false},
		"more left, reordered":           {nil, 53, time.Minute, 3, true},
		"more left than reordered":       {nil, 54, time.Minute, 3, false},
		"almost 2.2 s later":             {nil, 50, time.Minute + 2*Tolerance - 1, 0, true},
		"2.2 s later":                    {nil, 50, time.Minute + 2*Tolerance, 0, false},
		"almost 2.2 s earlier":           {nil, 50, time.Minute - 2*Tolerance + 1, 0, true},
		"2.2 s earlier":                  {nil, 50, time.Minute - 2*Tolerance, 0, false},
		"it counts requests in flight":   {func(e *Estimate) { e.concurrent, e.enforced = true, true }, 99, time.Hour, 0, true},
		"its window is over in 1.1 s":    {func(e *Estimate) { e.Reset = now.Add(Tolerance) }, 99, time.Hour, 0, true},
		"its window is over after 1.1 s": {func(e *Estimate) { e.Reset = now.Add(Tolerance + 1) }, 99, time.Hour, 0, false},
		"maybe a bucket":                 {func(e *Estimate) { e.refill.kind = refillUnknown }, 50, 40 * time.Second, 0, true},
		"a window is no bucket":          {nil, 50, 40 * time.Second, 0, false},
	} {
		e := Estimate{Limit: 100, Remaining: 50, At: now, Reset: now.Add(time.Minute), refill: refill{kind: refillsAtReset}}
		if tt.change != nil {
			tt.change(&e)
		}
		require.Equal(t, tt.want, e.MayBe(throttle.RemoteLimit{Limit: 100, Remaining: tt.left, ResetAfter: tt.reset}, tt.reordered, now), name)
	}
}

// Two responses may state one bucket if no more units are left in the later one than have returned
// since, and one that is not whole, and if the rates at which they say that it will be full differ at
// most by a factor of four, beside the tolerance of both times. e has missed 60 of 100 units, and was
// full in 60 s: one unit per second.
func TestEstimate_mayBeABucketOfTheSameRate(t *testing.T) {
	at := time.Unix(1000, 0)
	const s = time.Second
	for name, tt := range map[string]struct {
		remaining int64         // of e, of 100
		full      time.Duration // when e is full, after at
		passed    time.Duration
		left      int64
		reset     time.Duration
		reordered int64
		want      bool
	}{
		"no time passed":                 {40, 60 * s, 0, 40, 60 * s, 0, true},
		"a part of a unit returned":      {40, 60 * s, 0, 41, 59 * s, 0, true},
		"two units, in no time":          {40, 60 * s, 0, 42, 58 * s, 0, false},
		"two units, reordered":           {40, 60 * s, 0, 42, 58 * s, 1, true},
		"ten seconds passed":             {40, 60 * s, 10 * s, 51, 49 * s, 0, true},
		"ten seconds, twelve units":      {40, 60 * s, 10 * s, 52, 48 * s, 0, false},
		"full at most":                   {40, 60 * s, 1000 * s, 100, 0, 0, true},
		"more than full":                 {40, 60 * s, 1000 * s, 102, 0, 0, false},
		"four times as fast":             {40, 60 * s, 0, 40, 13900 * time.Millisecond, 0, true},
		"faster":                         {40, 60 * s, 0, 40, 13900*time.Millisecond - 1, 0, false},
		"four times as slow":             {40, 60 * s, 0, 40, 241100 * time.Millisecond, 0, true},
		"slower":                         {40, 60 * s, 0, 40, 241100*time.Millisecond + 1, 0, false},
		"half of it is missing now":      {40, 60 * s, 0, 10, 90 * s, 0, true},
		"it was full":                    {100, 60 * s, 0, 100, 999 * s, 0, true},
		"it was full, more than that":    {100, 60 * s, 0, 101, 999 * s, 0, false},
		"its reset was over":             {40, 0, 0, 100, 999 * s, 0, true},
		"the clock was set back":         {40, 60 * s, -1, 100, 999 * s, 0, true},
		"a reset within its tolerance":   {40, 2 * s, 2 * s, 100, 0, 0, true},
		"half of the time, at least":     {40, 2 * s, s, 100, 0, 0, true},
		"less than half of it":           {40, 2 * s, s / 2, 71, s, 0, true},
		"more than that returned by now": {40, 2 * s, s / 2, 74, s, 0, false},
	} {
		e := Estimate{Limit: 100, Remaining: tt.remaining, At: at, Reset: at.Add(tt.full)}
		w := throttle.RemoteLimit{Limit: 100, Remaining: tt.left, ResetAfter: tt.reset}
		now := at.Add(tt.passed)
		if tt.reset == 0 {
			w.ResetAfter = 1
		}
		require.Equal(t, tt.want, e.mayBeBucket(w, tt.reordered, now), name)
	}
}

// Statements that are over change what is known of a limit only if its size is another one, or if it is a bucket or counts requests in flight.
func TestEstimate_outdatedStatements(t *testing.T) {
	for name, tt := range map[string]struct {
		e        Estimate
		limit    int64
		outdated bool
	}{
		"a window":           {Estimate{Limit: 10}, 10, true},
		"of another size":    {Estimate{Limit: 10}, 9, false},
		"a bucket":           {Estimate{Limit: 10, refill: refill{kind: refillsEvenly}}, 10, false},
		"requests in flight": {Estimate{Limit: 10, concurrent: true, enforced: true}, 10, false},
	} {
		before := tt.e
		require.Equal(t, tt.outdated, tt.e.Outdated(throttle.RemoteLimit{Limit: tt.limit, Remaining: 7}, 1, time.Unix(1000, 0)), name)
		if tt.outdated {
			require.EqualValues(t, 7, tt.e.highest)
			tt.e.highest, tt.e.proof.highest = 0, 0
		}
		require.Equal(t, before, tt.e, name)
	}
}

// The requests of a window and what was left after them are the part of the limit that this process may use, however much others use of it and
// however little is sent. The least of four claims counts.
func TestShare_isMeasured(t *testing.T) {
	var f inflight.Claims
	var s share
	measure := func(own, left int64) (int64, bool) {
		n := f.Add()
		s.sent(n, own, &f)
		other := f.Add()
		s.sent(other, 1, &f)
		_, ok := s.accepted(other, 0)
		require.False(t, ok, "it is not watched")
		f.End(n)
		f.End(other)
		return s.accepted(n, left)
	}
	for range 3 {
		for i, left := range []int64{3, 0, 5, 2} {
			units, ok := measure(4, left)
			require.Equal(t, i == 3, ok)
			if ok {
				require.EqualValues(t, 4, units)
			}
		}
	}
	_, ok := measure(1, math.MaxInt64)
	require.False(t, ok)
	n := f.Add()
	s.sent(n, 1, &f)
	f.End(n) // it was rejected
	for range 2 {
		_, ok = measure(1, 7)
		require.False(t, ok)
	}
	units, ok := measure(2, 7)
	require.True(t, ok)
	require.EqualValues(t, 8, units)
}

// The reset of a bucket is not refined by the time at which it was full: it moves with each request.
func TestEstimate_theResetOfABucketIsNotRefined(t *testing.T) {
	start := time.Unix(1000, 0)
	for kind, want := range map[refillKind]time.Duration{refillsAtReset: time.Second, refillsEvenly: 1900 * time.Millisecond} {
		f := &inflight.Claims{}
		l := throttle.RemoteLimit{Limit: 20, Remaining: 19, ResetAfter: time.Second, Resolution: time.Second}
		e := NewEstimate(l, false)
		e.Update(l, f.Add(), start, f)
		e.refill.kind, e.refill.rate = kind, 20
		l.Remaining = 5
		e.Update(l, f.Add(), start.Add(900*time.Millisecond), f)
		require.Equal(t, want, e.Reset.Sub(start), kind)
	}
}
