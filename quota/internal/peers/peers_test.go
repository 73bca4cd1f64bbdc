package peers

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A process is dropped three seconds after the end of its wait, but at most a minute after its update.
func TestSet_dropsProcesses(t *testing.T) {
	now := time.Unix(1000, 0)
	for wait, want := range map[time.Duration]time.Duration{0: 3 * time.Second, time.Second: 4 * time.Second, 57 * time.Second: time.Minute, time.Hour: time.Minute} {
		var p Set
		p.Add(7, wait, now)
		p.Add(7, 0, now)
		require.Equal(t, map[uint64]time.Time{7: now.Add(want)}, p.all, "%v: never earlier", wait)
		require.Equal(t, 1, p.Drop(now.Add(want-1)))
		require.Zero(t, p.Drop(now.Add(want)))
		require.Zero(t, p.Len())
	}
	var p Set
	for i := range uint64(Max + 5) {
		p.Add(i, 0, now)
	}
	require.Equal(t, Max, p.Len())
	p.Add(3, time.Second, now)
	require.Equal(t, 1, p.Drop(now.Add(3*time.Second)), "a process that is known is updated although there are many")
}

// Each process has an equal part of half of what is left, rounded at random. Another random number is drawn
// after 50 ms.
func TestSet_part(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tt := range []struct {
		left, others int64
		random       float64
		part         int64
	}{{60, 9, 0, 3}, {70, 9, .5, 4}, {70, 9, .49, 3}, {4, 9, .79, 0}, {4, 9, .8, 1}, {4, 1, 0, 1}, {4, 0, 0, 2}} {
		var p Set
		for id := range tt.others {
			p.Add(uint64(id), 0, now)
		}
		part, next := p.Part(tt.left, func() float64 { return tt.random }, now)
		require.Equal(t, tt.part, part, "%+v", tt)
		require.Equal(t, roundEvery, next)
	}
	var p Set
	draws := 0
	for i, want := range []int{1, 1, 2, 2} {
		_, next := p.Part(1, func() float64 { draws++; return 0 }, now.Add(time.Duration(i)*roundEvery/2))
		require.Equal(t, want, draws)
		require.Equal(t, roundEvery-time.Duration(i%2)*roundEvery/2, next)
	}
}

// A limit has changed when a quarter of what is left was used, or when the window is another one.
func TestLimits_changed(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	end := now.Add(time.Hour)
	for name, tt := range map[string]struct {
		known, left int64
		moved       time.Duration
		confirmed   bool
		other       string // name of the limit that is known
		want        bool
		after       int64 // known afterwards
		last        bool  // nothing remains
	}{
		"a quarter":          {100, 75, 0, false, "", true, 100, false},
		"less":               {100, 76, 0, false, "", false, 100, false},
		"one of few":         {3, 2, 0, false, "", true, 3, false},
		"none of few":        {3, 3, 0, false, "", false, 3, false},
		"the last, of none":  {0, 0, 0, false, "", false, 0, false},
		"the last one":       {1, 0, 0, false, "", true, 1, true},
		"more":               {50, 60, 0, false, "", false, 60, false},
		"another window":     {100, 100, statedlimit.Tolerance + 1, false, "", true, 100, false},
		"not another window": {100, 100, statedlimit.Tolerance, false, "", false, 100, false},
		"in flight":          {100, 10, 0, true, "", false, 100, false},
		"another limit":      {100, 100, 0, false, "b", true, 100, false},
	} {
		for _, recent := range []bool{false, true} {
			l := Limits{{name: tt.other, remaining: tt.known, reset: end.Add(-tt.moved)}}
			limits := []statedlimit.Estimate{{Limit: 100, Remaining: tt.left, Reset: end}}
			if tt.confirmed {
				limits[0] = statedlimit.NewEstimate(throttle.RemoteLimit{Unit: statedlimit.UnitConcurrent}, false)
				limits[0].Limit, limits[0].Remaining, limits[0].Reset = 100, tt.left, end
			}
			require.Equal(t, tt.want && (!recent || tt.last), l.Changed(limits, recent), "%s, %v", name, recent)
			require.Equal(t, tt.after, l[0].remaining, name)
		}
	}
	var l Limits
	require.False(t, l.Changed(nil, false), "there is no limit")
	l = Limits{{name: "old"}}
	l.Set([]statedlimit.Estimate{{Name: "a", Limit: 100, Remaining: 7, Per: time.Hour, Reset: end}, {Name: "b", Limit: 10, Remaining: 6, Reset: now}})
	require.Equal(t, Limits{{"a", time.Hour, 7, end}, {"b", 0, 6, now}}, l)
}
