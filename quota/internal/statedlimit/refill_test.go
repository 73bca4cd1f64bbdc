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

// The time until a unit is free is between one millisecond and headers.MaxDelay, however many units are
// missing and however slowly they come back.
func TestRefill_untilIsBounded(t *testing.T) {
	at := time.Unix(0, 0)
	for name, tt := range map[string]struct {
		rate   float64
		units  int64
		passed time.Duration
		want   time.Duration
	}{
		"one unit at two per second": {2, 0, 0, time.Second / 2},
		"part of it has passed":      {2, 0, 200 * time.Millisecond, 300 * time.Millisecond},
		"low rate":                   {1e-12, 0, 0, headers.MaxDelay},
		"many units are missing":     {10, math.MinInt64 / 2, 0, headers.MaxDelay},
		"high rate":                  {math.MaxInt64, 0, time.Hour, time.Millisecond},
	} {
		e := Estimate{Limit: math.MaxInt64, At: at, refill: refill{kind: refillsEvenly, rate: tt.rate}}
		require.Equal(t, tt.want, e.UntilFree(tt.units, at.Add(tt.passed)), name)
	}
}

// In a window, units come back only if more are left than before.
func TestRefill_windowThatRestoresUnitsIsNone(t *testing.T) {
	start := time.Unix(1000, 0)
	for left, want := range map[int64]refillKind{9: refillsAtReset, 10: refillsAtReset, 11: refillsOneByOne} {
		e := Estimate{Limit: 100, Remaining: 10, At: start, Per: time.Minute, Reset: start.Add(time.Minute), refill: refill{kind: refillsAtReset}}
		now := start.Add(time.Second)
		e.refill.update(&e, left, e.Reset, now, &inflight.Claims{})
		require.Equal(t, want, e.refill.kind, "%d left", left)
	}
}

// A bucket is what restored more units than the responses account for. Its rate is a lower bound: the
// last unit may not be a whole one, and claims in flight at the beginning count as used before it.
func TestRefill_measuresTheRateOfABucket(t *testing.T) {
	start := time.Unix(1000, 0)
	const never = 1000 * time.Hour
	for name, tt := range map[string]struct {
		refill refill // measures since start, when 10 of 100 units were left
		left   int64
		after  time.Duration
		kind   refillKind
		rate   float64
		ended  bool // the measurement has ended
	}{
		"five units":                  {refill{}, 15, time.Second, refillsEvenly, 4, false},
		"and three were used":         {refill{responses: 3}, 15, time.Second, refillsEvenly, 7, false},
		"less two in flight":          {refill{open: 2}, 15, time.Second, refillsEvenly, 2, false},
		"part of a unit":              {refill{}, 11, time.Second, refillsEvenly, .5, false},
		"two units":                   {refill{}, 12, time.Second, refillsEvenly, 1, false},
		"no unit":                     {refill{}, 10, time.Second, refillUnknown, 0, false},
		"in time":                     {refill{}, 15, 50 * time.Millisecond, refillsEvenly, 80, false},
		"too soon":                    {refill{}, 15, 49 * time.Millisecond, refillUnknown, 0, false},
		"a lower rate, soon":          {refill{kind: refillsEvenly, rate: 9}, 15, 999 * time.Millisecond, refillsEvenly, 9, false},
		"a lower rate, after a while": {refill{kind: refillsEvenly, rate: 9}, 15, time.Second, refillsEvenly, 4, false},
		"no unit, soon":               {refill{kind: refillsEvenly, rate: 9}, 10, 999 * time.Millisecond, refillsEvenly, 9, false},
		"no unit, after a while":      {refill{kind: refillsEvenly, rate: 9}, 10, 2 * time.Second, refillsEvenly, .25, false},
		"a higher rate, soon":         {refill{kind: refillsEvenly, rate: 9}, 15, 100 * time.Millisecond, refillsEvenly, 40, false},
		"almost ten seconds":          {refill{}, 15, 10*time.Second - 1, refillsEvenly, 4 / (10 - 1e-9), false},
		"ten seconds":                 {refill{}, 15, 10 * time.Second, refillsEvenly, .4, false}, // a unit more or less would be a quarter
		"of 19 units":                 {refill{}, 29, 10 * time.Second, refillsEvenly, 1.8, false},
		"of 20 units":                 {refill{}, 30, 10 * time.Second, refillsEvenly, 1.9, true},
		"it was full":                 {refill{kind: refillsEvenly, rate: 90}, 100, time.Second, refillsEvenly, 90, true},
		"it was almost full":          {refill{kind: refillsEvenly, rate: 89}, 100, time.Second, refillsEvenly, 89, false},
		"window":                      {refill{kind: refillsAtReset}, 5, time.Second, refillsAtReset, 0, false},
		"sliding log":                 {refill{kind: refillsOneByOne}, 15, time.Second, refillsOneByOne, 0, false},
	} {
		r := tt.refill
		r.left, r.at = 10, start
		e := Estimate{Limit: 100, Remaining: 10, At: start, refill: r}
		e.refill.update(&e, tt.left, start.Add(never), start.Add(tt.after), &inflight.Claims{})
		require.Equal(t, tt.kind, e.refill.kind, name)
		require.InDelta(t, tt.rate, e.refill.rate, 1e-9, name)
		require.Equal(t, tt.ended, e.refill.at.IsZero(), name)
	}
	e := Estimate{Limit: 100, Remaining: 10, At: start}
	e.refill.update(&e, 15, start.Add(never), start.Add(time.Second), &inflight.Claims{})
	require.Equal(t, refill{}, e.refill, "nothing was measured")
}

// A window is what restored less than half of what a bucket would have, and two units less. Requests
// that the server may have counted meanwhile count as used.
func TestRefill_recognizesAWindow(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		before, left int64
		sent         uint64        // while 2 were in flight and 5 had been sent at the start
		after, reset time.Duration // reset counts from then
		want         bool
		set          func(*Estimate) // nil: nothing
	}{
		"half of a bucket's":        {50, 50, 8, time.Second, 5 * time.Second, false, nil}, // 10 of a bucket, and at most 5
		"less":                      {50, 50, 8, 2 * time.Second, 4 * time.Second, true, nil},
		"exactly two":               {50, 40, 8, 2 * time.Second, 60 * time.Second, true, nil},
		"less than two":             {50, 40, 8, 2*time.Second - 1, 60 * time.Second, false, nil},
		"exactly half, and two":     {50, 52, 8, 8 * time.Second, 24 * time.Second, true, nil},
		"more than half":            {50, 52, 8, 8*time.Second - 1, 24 * time.Second, false, nil},
		"one more was sent":         {50, 52, 9, 8 * time.Second, 24 * time.Second, false, nil},
		"the bucket was never full": {100, 94, 8, 2 * time.Second, 6 * time.Second, true, nil},
		"the bucket was full":       {100, 95, 8, 2 * time.Second, 5 * time.Second, false, nil},
		"soon":                      {50, 0, 8, 50 * time.Millisecond, 50 * time.Millisecond, true, nil},
		"too soon":                  {50, 0, 8, 49 * time.Millisecond, 50 * time.Millisecond, false, nil},
		"the reset is over":         {50, 0, 8, time.Second, -time.Second, true, nil},
		"no reset is stated":        {50, 0, 8, time.Minute, time.Second, false, func(e *Estimate) { e.untimed = true }},
		"a small burst":             {1, 0, 6, time.Second, time.Second, false, func(e *Estimate) { e.highest = 1 }},
		"a burst of one":            {0, 0, 6, time.Second, time.Second, false, func(e *Estimate) { e.highest = 0 }},
		"a larger burst":            {1, 0, 6, time.Second, time.Second, true, func(e *Estimate) { e.highest = 8 }},
	} {
		e := Estimate{Limit: 100, Remaining: tt.before, highest: 100, At: start, openAtUpdate: 2, LastSent: 5}
		if tt.set != nil {
			tt.set(&e)
		}
		now := start.Add(tt.after)
		f := &inflight.Claims{Sent: tt.sent}
		require.Equal(t, tt.want, e.refill.contradicts(&e, tt.left, now.Add(tt.reset), now, f), name)
		want := refillUnknown
		if tt.want {
			want = refillsAtReset
		}
		e.refill.update(&e, tt.left, now.Add(tt.reset), now, f)
		require.Equal(t, want, e.refill.kind, name)
	}
}

// Units of a bucket return at its rate, and those of a sliding log a window after they were used: never
// more than are missing.
func TestRefill_returnsUnits(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		refill   refill
		from, to time.Duration
		missing  int64
		want     int64
	}{
		"bucket":                 {refill{kind: refillsEvenly, rate: 2}, 0, 3 * time.Second, 10, 6},
		"part of a unit":         {refill{kind: refillsEvenly, rate: 2}, 0, 1400 * time.Millisecond, 10, 2},
		"few are missing":        {refill{kind: refillsEvenly, rate: 2}, 0, 3 * time.Second, 5, 5},
		"none is missing":        {refill{kind: refillsEvenly, rate: 2}, 0, 3 * time.Second, -1, 0},
		"the clock was set back": {refill{kind: refillsEvenly, rate: 2}, 3 * time.Second, 0, 10, 0},
		"window":                 {refill{kind: refillsAtReset, rate: 2}, 0, 3 * time.Second, 10, 0},
		"one by one":             {refill{kind: refillsOneByOne, rate: 2}, 0, 3 * time.Second, 10, 0},
	} {
		e := Estimate{Limit: 100, Remaining: 100 - tt.missing, At: start.Add(tt.from), refill: tt.refill}
		require.Equal(t, tt.want, e.returned(start.Add(tt.to)), name)
	}
	e := Estimate{At: start}
	for _, kind := range []refillKind{refillUnknown, refillsAtReset, refillsOneByOne} {
		e.refill = refill{kind: kind, rate: 1}
		require.Zero(t, e.UntilFree(0, start), "%v", kind)
	}
	e.refill = refill{kind: refillsEvenly}
	require.Zero(t, e.UntilFree(0, start), "no rate")
}

// A measurement begins anew with fewer claims in flight, and after its end with any number of them.
func TestRefill_beginsAMeasurement(t *testing.T) {
	start := time.Unix(1000, 0)
	var r refill
	r.begin(10, start, 3)
	require.Equal(t, refill{left: 10, open: 3, at: start}, r)
	r.responses = 5
	r.begin(9, start.Add(time.Second), 3)
	require.Equal(t, refill{left: 10, open: 3, responses: 5, at: start}, r, "as many in flight")
	r.begin(9, start.Add(time.Second), 2)
	require.Equal(t, refill{left: 9, open: 2, at: start.Add(time.Second)}, r)
	r.restart()
	r.begin(8, start.Add(time.Minute), 7)
	require.EqualValues(t, 7, r.open)
}

// A response that states as many units as were expected does not change when the next one is: what has come back of it counts on. If there
// are more or fewer, that is not known, and the next unit is expected after a whole interval.
func TestEstimate_keepsThePartOfAUnit(t *testing.T) {
	start := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		left     int64 // of 10, of which 2 were left at the start
		after    time.Duration
		rejected bool
		sent     uint64 // claims, with that of the response
		open     int64  // in flight at the start
		want     time.Duration
	}{
		"a rejection":                          {2, 6 * time.Second, true, 1, 0, 4 * time.Second},
		"and a unit more":                      {3, 6 * time.Second, true, 1, 0, 10 * time.Second},
		"and a unit less":                      {1, 6 * time.Second, true, 1, 0, 10 * time.Second},
		"which another claim has used":         {1, 6 * time.Second, true, 2, 0, 4 * time.Second},
		"or one in flight":                     {1, 6 * time.Second, true, 1, 1, 4 * time.Second},
		"an accepted one":                      {1, 6 * time.Second, false, 1, 0, 4 * time.Second},
		"after a unit has come back":           {2, 13 * time.Second, false, 1, 0, 7 * time.Second},
		"which used none":                      {2, 6 * time.Second, false, 1, 0, 10 * time.Second},
		"which used two":                       {0, 6 * time.Second, false, 1, 0, 10 * time.Second},
		"after all have come back: it is full": {9, 85 * time.Second, false, 1, 0, 10 * time.Second},
	} {
		e := Estimate{Limit: 10, Remaining: 2, At: start, Reset: start.Add(80 * time.Second), LastSent: 5, openAtUpdate: tt.open, refill: refill{kind: refillsEvenly, rate: .1}}
		f, now := inflight.Claims{Sent: 5 + tt.sent}, start.Add(tt.after)
		e.update(throttle.RemoteLimit{Limit: 10, Remaining: tt.left, ResetAfter: time.Duration(10-tt.left) * 10 * time.Second}, 5+tt.sent, tt.rejected, now, &f)
		e.refill.rate = .1 // whatever was measured
		require.InDelta(t, tt.want.Seconds(), e.UntilFree(0, now).Seconds(), 1e-3, name)
		require.EqualValues(t, tt.left, e.Left(now.Add(tt.want-2*time.Millisecond)), name)
		require.EqualValues(t, tt.left+1, e.Left(now.Add(tt.want+2*time.Millisecond)), name)
	}
}
