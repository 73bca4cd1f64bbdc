package rules

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// An arrival is a claim of some units.
type arrival struct {
	at    time.Duration
	units int64
}

// crowd draws arrivals in bunches and pauses.
func crowd(r *rand.Rand, per time.Duration) (all []arrival) {
	at := time.Duration(0)
	for range 1 + r.IntN(6) {
		gap := 1 + r.Int64N(int64(per)/8)
		for range 1 + r.IntN(40) {
			all = append(all, arrival{at, 1 + r.Int64N(3)})
			at += time.Duration(r.Int64N(gap))
		}
		at += time.Duration(r.Int64N(3 * int64(per)))
	}
	return all
}

// refusals returns how many arrivals a limiter refuses.
func refusals(t *testing.T, l throttle.Limiter, start time.Time, all []arrival) (n int) {
	for _, a := range all {
		d, err := l.Reserve(t.Context(), throttle.Claim{Cost: a.units, Now: start.Add(a.at)})
		require.NoError(t, err)
		if !d.OK {
			n++
		}
	}
	return n
}

// What a visit needs is the least burst that is enough, and its peak the most in a Per.
func TestVisit_needsNoMoreAndNoLess(t *testing.T) {
	start := time.Now()
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := throttle.Limit{Count: 1 + r.Int64N(20), Per: time.Duration(1 + r.Int64N(int64(time.Hour)))}
		all := crowd(r, l.Per)
		m := newMeasure(l, 0)
		var v visit
		v.begin(m, int64(all[0].at), 1)
		for _, a := range all {
			v.asked(a.units, int64(a.at))
		}

		l.Burst = v.needs
		require.Zero(t, refusals(t, throttle.NewTokenBucket(l, nil), start, all), "seed %d: %v", seed, l)
		if l.Burst--; l.Burst > 0 {
			require.NotZero(t, refusals(t, throttle.NewTokenBucket(l, nil), start, all), "seed %d: %v", seed, l)
		}
		least, most := mostWithin(all, l.Per), mostWithin(all, l.Per+2*time.Duration(m.width))
		require.True(t, least <= v.peak && v.peak <= most, "seed %d: %d is not within %d and %d", seed, v.peak, least, most)
	}
}

// mostWithin returns the most units within any span that is shorter than per.
func mostWithin(all []arrival, per time.Duration) (most int64) {
	for i := range all {
		sum := int64(0)
		for _, a := range all[i:] {
			if a.at-all[i].at < per {
				sum += a.units
			}
		}
		most = max(most, sum)
	}
	return most
}

func TestVisit_isOverWhenNothingMatters(t *testing.T) {
	m := newMeasure(throttle.Limit{Count: 10, Per: 1600, Burst: 100}, 5000)
	var v visit
	v.begin(m, 0, 1)
	v.asked(1, 0)
	require.False(t, v.over(1700), "its bins still count")
	require.True(t, v.over(1701))
	v.asked(20, 0)
	require.False(t, v.over(21*160-1), "not all has come back")
	require.True(t, v.over(21*160))
	v.decided(true, 0)
	require.False(t, v.over(5000), "a grant would end its refusals")
	require.True(t, v.over(5001))
}

// Whatever is asked for, sums do not overflow.
func TestVisit_saturates(t *testing.T) {
	const most = 1<<63 - 1
	for _, l := range []throttle.Limit{throttle.PerSecond(1), {Count: 1 << 40, Per: 1}, {Count: 1, Per: 30 * 365 * 24 * time.Hour}} {
		m := newMeasure(l, 0)
		var v visit
		v.begin(m, -most/4, 1)
		for i := range int64(5000) {
			v.asked(most, -most/4+i*i*i)
			require.Positive(t, v.needs)
			require.Positive(t, v.peak)
		}
		v.asked(1, most/4)
		require.LessOrEqual(t, v.sum, int64(1<<62))
		require.GreaterOrEqual(t, v.needs, v.meter.level)
	}
	require.Equal(t, int64(1<<63-1), mulDivUp(most, most, 1))
}

func TestHistogram_boundIsNeverTooLow(t *testing.T) {
	require.Zero(t, new(histogram).bound())
	for i := range 960 {
		var h histogram
		n := largestIn(i)
		h.add(n, 1)
		require.EqualValues(t, 1, h.slots[i], n)
		require.Equal(t, n, h.bound())
	}
	var h histogram
	for n := range int64(1000) {
		h.add(n, 3)
	}
	require.GreaterOrEqual(t, h.bound(), int64(949))
	require.Less(t, h.bound(), int64(949+949/16+1))
}

func TestRoster_forgetsOnlyWhatIsOver(t *testing.T) {
	m := newMeasure(throttle.PerSecond(10), 0)
	var r roster[visit, *visit]
	for h := range uint64(4) {
		v := r.add(h, 4, 0)
		v.begin(m, 0, 1)
		v.asked(int64(h)+1, 0)
	}
	require.Nil(t, r.add(9, 4, 0))
	require.Equal(t, 4, r.used(0))
	later := int64(1200 * time.Millisecond)
	require.Zero(t, r.used(later))
	require.NotNil(t, r.add(9, 4, later))
	require.Nil(t, r.find(0), "its place was taken")
	require.NotNil(t, r.find(3))
	r.keepOnly(3)
	require.Nil(t, r.find(3))
	require.Nil(t, r.find(9))
	require.EqualValues(t, 2, r.find(1).needs)
	require.Len(t, r.slots, 2)
}

// Who is left when only every other key is followed stands for two.
func TestStripe_halvesWhatIsFollowed(t *testing.T) {
	m := newMeasure(throttle.PerSecond(10), 0)
	var s stripe
	for _, h := range []uint64{1, 1 << 62, 1 << 63, 3 << 62} {
		s.visits.add(h, 4, 0).begin(m, 0, 1)
	}
	s.halve()
	require.Len(t, s.visits.slots, 2)
	require.EqualValues(t, 2, s.visits.find(1).stands)
	require.Nil(t, s.visits.find(1<<63))
	s.halve()
	require.Len(t, s.visits.slots, 1)
	require.EqualValues(t, 4, s.visits.find(1).stands)
	s.thin-- // there was room, and now there is none again
	s.halve()
	require.EqualValues(t, 4, s.visits.find(1).stands)
}
