package statedlimit

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/throttle"
)

// A rate is stated by four responses whose resets differ by more than rounding. It is a lower bound.
func TestStatedRate_ofResponses(t *testing.T) {
	const ms, s = time.Millisecond, time.Second
	type response struct {
		missing           int64
		after, resolution time.Duration
	}
	for name, tt := range map[string]struct {
		responses []response
		want      float64
	}{
		"50/s":                         {[]response{{3, 60 * ms, ms}, {4, 80 * ms, ms}, {5, 100 * ms, ms}, {20, 400 * ms, ms}}, 19 / .401},
		"in any order":                 {[]response{{20, 400 * ms, ms}, {4, 80 * ms, ms}, {3, 60 * ms, ms}, {5, 100 * ms, ms}}, 19 / .401},
		"three":                        {[]response{{3, 60 * ms, ms}, {4, 80 * ms, ms}, {20, 400 * ms, ms}}, 0},
		"one, four times":              {[]response{{20, 400 * ms, ms}, {20, 400 * ms, ms}, {20, 400 * ms, ms}, {20, 400 * ms, ms}}, 0},
		"a full bucket states nothing": {[]response{{3, 60 * ms, ms}, {0, 20 * ms, ms}, {2, 0, ms}, {4, 80 * ms, ms}, {20, 400 * ms, ms}}, 0},
		"few units, little time":       {[]response{{1, 20 * ms, ms}, {2, 40 * ms, ms}, {3, ms, ms}, {4, 80 * ms, ms}, {20, 400 * ms, ms}}, 0},
		"1/s, in whole seconds":        {[]response{{20, 20 * s, s}, {30, 30 * s, s}, {40, 40 * s, s}, {41, 41 * s, s}}, 40 / 41.001},
		"no more than rounding":        {[]response{{50, 2 * s, s}, {60, 2 * s, s}, {70, 2 * s, s}, {90, 2 * s, s}}, 0},
		"a window":                     {[]response{{50, 5 * s, ms}, {60, 4 * s, ms}, {70, 3 * s, ms}, {90, 2 * s, ms}, {100, s, ms}}, 0},
		"another rate":                 {[]response{{3, 60 * ms, ms}, {4, 80 * ms, ms}, {5, 100 * ms, ms}, {20, 400 * ms, ms}, {20, 800 * ms, ms}}, 0},
		"almost twice as long":         {[]response{{50, s, ms}, {60, 1200 * ms, ms}, {80, 1600 * ms, ms}, {100, 2 * s, ms}}, 0},
		"twice as long":                {[]response{{50, s, ms}, {60, 1200 * ms, ms}, {80, 1600 * ms, ms}, {100, 2001 * ms, ms}}, 99 / 2.002},
	} {
		var r statedRate
		for _, x := range tt.responses {
			r.add(x.missing, x.after, x.resolution, true, time.Unix(1000, 0))
		}
		require.InDelta(t, tt.want, r.bound(0), 1e-9, name)
	}
}

// A bucket of a few units is always empty when it is used, so that its responses differ in nothing but the time: its reset moves before it
// has passed, more than latency explains. That of a window does not.
func TestStatedRate_ofAnEmptyBucket(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		missing    int64
		resolution time.Duration
		after      [4]time.Duration // a second passes between two
		unseen     bool             // it was never full
		known      bool
	}{
		"it moves":                 {3, s, [4]time.Duration{60 * s, 59 * s, 61 * s, 60 * s}, false, true},
		"it was never full":        {3, s, [4]time.Duration{60 * s, 59 * s, 61 * s, 60 * s}, true, false},
		"as two clocks do":         {3, 2 * s, [4]time.Duration{60 * s, 59 * s, 60 * s, 58 * s}, false, false},
		"exactly":                  {3, 0, [4]time.Duration{60 * s, 59 * s, 78 * s, 77 * s}, false, true},
		"as latency does":          {3, s, [4]time.Duration{60 * s, 60100 * time.Millisecond, 59 * s, 58 * s}, false, false},
		"it does not":              {3, s, [4]time.Duration{60 * s, 59 * s, 58 * s, 57 * s}, false, false},
		"it has passed":            {3, 0, [4]time.Duration{900 * time.Millisecond, time.Second, time.Second, time.Second}, false, false},
		"of two":                   {2, s, [4]time.Duration{60 * s, 59 * s, 61 * s, 60 * s}, false, false}, // 1 or 2 in 60 s
		"of two, seen at the best": {2, s, [4]time.Duration{60 * s, 31 * s, 60 * s, 31 * s}, false, true},
		"of one":                   {1, s, [4]time.Duration{60 * s, 31 * s, 60 * s, 31 * s}, false, false},
	} {
		var r statedRate
		for i, after := range tt.after {
			r.add(tt.missing, after, tt.resolution, !tt.unseen, time.Unix(int64(i), 0))
		}
		require.Equal(t, tt.known, r.known(), "%s: %+v", name, r)
		if tt.known {
			require.Equal(t, []float64{r.low, (r.low + r.high) / 2, r.high}, []float64{r.bound(0), r.bound((r.low + r.high) / 2), r.bound(1e9)}, name)
		} else {
			require.InDelta(t, 7, r.bound(7), 0, name)
		}
	}
}

// Windows never state a rate, whether or not others use them. That of a bucket is never overestimated, and it is found
// for most of those whose resets are precise enough.
func TestStatedRate_ofRandomServers(t *testing.T) {
	const worlds = 2000
	precise, found := 0, 0
	for seed := range uint64(worlds) {
		r := rand.New(rand.NewPCG(seed, 1))
		limit, length := int64(2+math.Exp(r.Float64()*7)), time.Duration(math.Exp(r.Float64()*9)*float64(time.Second))
		resolution := []time.Duration{time.Millisecond, time.Second}[r.IntN(2)]
		bucket := r.IntN(2) == 0
		request := randomWindow(r, limit, length)
		if bucket {
			request = fullBucket(limit, length)
		}
		var stated statedRate
		load, others := math.Exp(r.NormFloat64()), r.Float64()*float64(r.IntN(2))
		now, ok := time.Duration(0), false
		for range 3*limit + 20 {
			if r.IntN(4) > 0 { // else it is sent together with the one before
				now += time.Duration(r.ExpFloat64() * float64(length) / float64(limit) / load)
			}
			left, reset := request(now)
			if r.Float64() < others {
				continue // another client's
			}
			stated.add(limit-left, (reset - now + resolution - 1).Truncate(resolution), resolution, true, time.Unix(1000, 0).Add(now))
			rate := stated.bound(0)
			ok = ok || rate > 0
			if bucket {
				require.LessOrEqual(t, rate, float64(limit)/length.Seconds()*1.001, "seed %d: %+v", seed, stated)
			} else {
				require.Zero(t, rate, "seed %d: window of %d per %v, %+v", seed, limit, length, stated)
			}
		}
		if bucket && limit >= 20 && length > 20*resolution && load > 2 && others == 0 {
			precise++
			if ok {
				found++
			}
		}
	}
	require.Greater(t, precise, worlds/50)
	require.Greater(t, found, precise*9/10, "of %d", precise)
}

// randomWindow returns the responses of a window that is used in part: units that are left, and the time of the reset. Windows begin with a
// request or with the clock.
func randomWindow(r *rand.Rand, limit int64, length time.Duration) func(time.Duration) (int64, time.Duration) {
	end, used := time.Duration(r.Int64N(int64(length))), r.Int64N(limit)
	aligned := r.IntN(2) == 0
	return func(now time.Duration) (int64, time.Duration) {
		if now >= end {
			used, end = 0, now+length
			if aligned {
				end = now.Truncate(length) + length
			}
		}
		used = min(used+1, limit)
		return limit - used, end
	}
}

// fullBucket returns those of a bucket that is full at first.
func fullBucket(limit int64, length time.Duration) func(time.Duration) (int64, time.Duration) {
	level, at, rate := float64(limit), time.Duration(0), float64(limit)/length.Seconds()
	return func(now time.Duration) (int64, time.Duration) {
		level = min(level+rate*(now-at).Seconds(), float64(limit))
		at = now
		if level >= 1 {
			level--
		}
		return int64(level), now + time.Duration((float64(limit)-level)/rate*1e9)
	}
}

// Four responses that arrive together suffice for the rate, in any order. What is measured later does not replace it, and a
// single response can.
func TestEstimate_takesTheStatedRate(t *testing.T) {
	now, f := time.Unix(1000, 0), &inflight.Claims{}
	l := func(left int64, after time.Duration) throttle.RemoteLimit {
		return throttle.RemoteLimit{Limit: 25, Remaining: left, ResetAfter: after, Resolution: time.Millisecond}
	}
	e := NewEstimate(l(25, 0), false)
	respond := func(left int64, after time.Duration) {
		f.Sent++
		e.Update(l(left, after), f.Sent, now, f)
	}
	for _, left := range []int64{20, 0, 15, 10} {
		require.Zero(t, e.UntilFree(0, now))
		respond(left, time.Duration(25-left)*20*time.Millisecond)
	}
	require.InDelta(t, .02, e.UntilFree(0, now).Seconds(), .001)
	now = now.Add(200 * time.Millisecond)
	respond(0, 500*time.Millisecond)
	require.InDelta(t, .02, e.UntilFree(0, now).Seconds(), .001, "others have used what came back")
	require.EqualValues(t, 11, e.Left(now.Add(250*time.Millisecond)))
	respond(0, 5*time.Second)
	require.False(t, e.rate.known(), "it has another rate now")
}
