package adaptive

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestAdmissionControl_doesNotCountWaitingClaims(t *testing.T) {
	draw := 0.0
	l := NewAdmissionControl(AdmissionControlConfig{Rand: func() float64 { return draw }})
	c := throttle.Claim{Waits: true}
	for range 3 {
		draw = 1
		d, err := l.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.True(t, d.OK)
		l.Observe(t.Context(), c, d, throttle.Feedback{Outcome: throttle.Failed})
	}
	draw = 0
	for range 10 {
		d, err := l.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.False(t, d.OK)
	}
	require.Equal(t, requestCounts{requests: 3}, l.sum)
}

// Outcomes at random instants are counted for Per, in numParts parts that are counted from the
// first one, as in a list of all outcomes.
func TestAdmissionControl_agreesWithAList(t *testing.T) {
	type outcome struct {
		part int64
		requestCounts
	}
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 3))
		draw := 0.0
		l := NewAdmissionControl(AdmissionControlConfig{K: 1.5, Per: numParts * time.Second, Rand: func() float64 { return draw }})
		start := time.Now()
		var list []outcome
		first, newest := time.Duration(-1), int64(0)
		partOf := func(now time.Duration) int64 {
			if first < 0 {
				return 0
			}
			return max(int64((now-first)/time.Second), newest)
		}
		count := func(now time.Duration, c requestCounts) {
			if first < 0 {
				first = now
			}
			newest = partOf(now)
			list = append(list, outcome{newest, c})
		}
		now := time.Duration(0)
		for step := range 300 {
			now += time.Duration(r.Int64N(2)) * time.Duration(r.Int64N(int64([]time.Duration{time.Second, 3 * time.Second, 30 * time.Second}[r.IntN(3)])))
			at := now
			if r.IntN(4) == 0 {
				at = max(now-time.Duration(r.Int64N(int64(3*time.Second))), 0)
			}
			var sum requestCounts
			for _, o := range list {
				if o.part > partOf(at)-numParts {
					sum.requests += o.requests
					sum.accepts += o.accepts
				}
			}
			require.Equal(t, sum, l.recent(l.time.Read(start.Add(at))), "seed %d, step %d", seed, step)
			require.Equal(t, sum == requestCounts{}, l.Evictable(start.Add(at)))
			p := (float64(sum.requests) - 1.5*float64(sum.accepts)) / float64(sum.requests+1)
			draw = r.Float64()
			n := 1 + r.Int64N(3)
			c := throttle.Claim{Cost: n, Now: start.Add(at)}
			d, err := l.Reserve(t.Context(), c)
			require.NoError(t, err)
			require.Equal(t, draw >= p, d.OK, "seed %d, step %d", seed, step)
			switch {
			case !d.OK:
				count(at, requestCounts{requests: n})
				l.Observe(t.Context(), c, d, throttle.Feedback{Now: start.Add(at)})
			case r.IntN(5) > 0:
				f := throttle.Feedback{Now: start.Add(at), Outcome: []throttle.Outcome{throttle.Accepted, throttle.Throttled, throttle.Failed}[r.IntN(3)]}
				l.Observe(t.Context(), c, d, f)
				counted := requestCounts{requests: n}
				if f.Outcome == throttle.Accepted {
					counted.accepts = n
				}
				count(at, counted)
			}
		}
	}
}

// A K of 1 and a Per of less than numParts nanoseconds are valid; so is a Per that divides
// into parts of one nanosecond.
func TestAdmissionControl_extremeSettings(t *testing.T) {
	require.NoError(t, AdmissionControlConfig{K: 1, Per: 1}.Validate())
	require.EqualValues(t, 1, NewAdmissionControl(AdmissionControlConfig{Per: 1}).partLength())
	require.EqualValues(t, 5*time.Second, NewAdmissionControl(AdmissionControlConfig{}).partLength())
}

// The rate changes at most once per half second, counted from the first grant.
func TestLimiter_climbsEachHalfSecond(t *testing.T) {
	for at, changes := range map[time.Duration]bool{
		0: false, time.Second/2 - 1: false, time.Second / 2: true, time.Second: true,
	} {
		l, start := New(Config{InitialRate: 10}), time.Now()
		c := throttle.Claim{Now: start}
		d, err := l.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.True(t, d.OK)
		wait, err := l.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.False(t, wait.OK)
		l.Observe(t.Context(), c, d, throttle.Feedback{Now: start.Add(at)})
		require.Equal(t, changes, l.Rate() != 10, "%v: %v", at, l.Rate())
	}
}
