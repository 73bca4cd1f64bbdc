package quota

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// With a headroom of one half, another client that uses half of the quota, at any speed, is never
// rejected.
func TestTracker_leavesHeadroomToOtherClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := seeded(1)
		tr.Headroom = 0.5
		var start time.Time
		used, theirs, rejected := 0, 0, 0
		take := func(now time.Time) bool {
			if now.Sub(start) >= 5*time.Second {
				start, used, theirs = now, 0, 0
			}
			used++
			return used <= 100
		}
		s := func(now time.Time) (int, http.Header) {
			ok := take(now)
			for ; theirs < 50 && theirs < used; theirs++ { // the other client uses as much
				if !take(now) {
					rejected++
				}
			}
			h := http.Header{}
			h.Set("RateLimit-Limit", "100")
			h.Set("RateLimit-Remaining", strconv.Itoa(max(100-used, 0)))
			h.Set("RateLimit-Reset", strconv.Itoa(int(start.Add(5*time.Second).Sub(now).Seconds()+1)))
			if ok {
				return 200, h
			}
			return 429, h
		}
		j := play(t, tr, s, 200, 30, 20*time.Millisecond)
		require.Zero(t, rejected)
		require.Zero(t, j.throttled)
		require.Zero(t, j.failed)
	})
}

// The last tenth of an hourly quota is spread over the hour.
func TestTracker_spreadsRemainingUnits(t *testing.T) {
	for _, tt := range []struct {
		pace  Pacing
		min   int // requests sent in the first half of the hour
		max   int
		burst time.Duration
	}{
		{Burst, 100, 100, time.Minute},
		{Auto, 93, 97, 30 * time.Minute},
		{Spread, 48, 55, 30 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := seeded(1)
			tr.Pacing = tt.pace
			start := time.Now()
			j := playUntil(t, tr, fixedWindow(100, time.Hour, true, true), 100, 4, 20*time.Millisecond, start.Add(59*time.Minute))
			n := 0
			for _, a := range j.arrivals {
				if a < 30*time.Minute {
					n++
				}
			}
			require.GreaterOrEqual(t, n, tt.min, "%v: %v", tt.pace, j)
			require.LessOrEqual(t, n, tt.max, "%v: %v", tt.pace, j)
			require.Zero(t, j.throttled)
		})
	}
}

// Units are spread while few are left and the reset is neither near nor further away than an hour or
// the window that the server states.
func TestPacing_spreadsUnits(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		p     pacing
		units int64
		reset time.Duration
		per   time.Duration
		kind  refillKind
		want  bool
	}{
		"few":                           {pacing{}, 9, time.Minute, 0, refillUnknown, true},
		"a tenth":                       {pacing{}, 10, time.Minute, 0, refillUnknown, false},
		"near":                          {pacing{}, 9, 30 * time.Second, 0, refillUnknown, false},
		"not near":                      {pacing{}, 9, 30*time.Second + 1, 0, refillUnknown, true},
		"an hour":                       {pacing{}, 9, time.Hour, 0, refillUnknown, true},
		"more than an hour":             {pacing{}, 9, time.Hour + 1, 0, refillUnknown, false},
		"more than an hour, in windows": {pacing{}, 9, 24 * time.Hour, 24 * time.Hour, refillUnknown, true},
		"a token bucket":                {pacing{}, 9, time.Minute, 0, refillsEvenly, false},
		"all, Spread":                   {pacing{spread: true}, 100, 24 * time.Hour, 0, refillUnknown, true},
		"a token bucket, Spread":        {pacing{spread: true}, 9, time.Minute, 0, refillsEvenly, false},
		"Burst":                         {pacing{burst: true}, 9, time.Minute, 0, refillUnknown, false},
	} {
		e := estimate{limit: 100, reset: now.Add(tt.reset), per: tt.per, refill: refill{kind: tt.kind}}
		require.Equal(t, tt.want, tt.p.spreads(&e, tt.units, now), name)
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
		e := estimate{limit: 100, remaining: tt.remaining, reset: now.Add(100 * time.Second), refill: refill{kind: refillsAtReset}}
		pacing{headroom: tt.headroom}.scheduleNext(&e, now, tt.open)
		require.Equal(t, tt.want, e.next.Sub(now), name)
		before := e.next
		pacing{}.scheduleNext(&e, e.reset, 0)
		require.Equal(t, before, e.next, "%s: the reset is over", name)
	}
}
