package monitor

import (
	"math"
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

// randomArrivals returns arrivals in bursts with pauses.
func randomArrivals(r *rand.Rand, per time.Duration) (all []arrival) {
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

// countRejections returns how many arrivals a limiter rejects.
func countRejections(t *testing.T, l throttle.Limiter, start time.Time, all []arrival) (n int) {
	for _, a := range all {
		d, err := l.Reserve(t.Context(), throttle.Claim{Cost: a.units, Now: start.Add(a.at)})
		require.NoError(t, err)
		if !d.OK {
			n++
		}
	}
	return n
}

// TestSession_minBurstIsExact checks that minBurst is the least burst that is sufficient, and peak
// the maximum number of units in a Per.
func TestSession_minBurstIsExact(t *testing.T) {
	start := time.Now()
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := throttle.Limit{Count: 1 + r.Int64N(20), Per: time.Duration(1 + r.Int64N(int64(time.Hour)))}
		all := randomArrivals(r, l.Per)
		m := newSessionParams(l, 0)
		var v session
		v.begin(m, int64(all[0].at), 1)
		for _, a := range all {
			v.addClaim(a.units, int64(a.at))
		}

		l.Burst = v.minBurst
		require.Zero(t, countRejections(t, throttle.NewTokenBucket(l), start, all), "seed %d: %v", seed, l)
		if l.Burst--; l.Burst > 0 {
			require.NotZero(t, countRejections(t, throttle.NewTokenBucket(l), start, all), "seed %d: %v", seed, l)
		}
		least, most := mostWithin(all, l.Per), mostWithin(all, l.Per+2*time.Duration(m.binWidth))
		require.True(t, least <= v.peak && v.peak <= most, "seed %d: %d is not within %d and %d", seed, v.peak, least, most)
	}
}

// mostWithin returns the maximum number of units within any span that is shorter than per.
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

func TestSession_expires(t *testing.T) {
	m := newSessionParams(throttle.Limit{Count: 10, Per: 1600, Burst: 100}, 5000)
	var v session
	v.begin(m, 0, 1)
	v.addClaim(1, 0)
	require.False(t, v.expired(1700), "its bins still count")
	require.True(t, v.expired(1701))
	v.addClaim(20, 0)
	require.False(t, v.expired(21*160-1), "not all has come back")
	require.True(t, v.expired(21*160))
	v.addDecision(true, 0)
	require.False(t, v.expired(5000), "a grant would end its rejections")
	require.True(t, v.expired(5001))
}

// TestSession_saturates checks that sums do not overflow.
func TestSession_saturates(t *testing.T) {
	const most = 1<<63 - 1
	for _, l := range []throttle.Limit{throttle.PerSecond(1), {Count: 1 << 40, Per: 1}, {Count: 1, Per: 30 * 365 * 24 * time.Hour}} {
		m := newSessionParams(l, 0)
		var v session
		v.begin(m, -most/4, 1)
		for i := range int64(5000) {
			v.addClaim(most, -most/4+i*i*i)
			require.Positive(t, v.minBurst)
			require.Positive(t, v.peak)
		}
		v.addClaim(1, most/4)
		require.LessOrEqual(t, v.sum, int64(1<<62))
		require.GreaterOrEqual(t, v.minBurst, v.meter.level)
	}
}

func TestHistogram_quantileIsNeverTooLow(t *testing.T) {
	require.Zero(t, new(histogram).quantile())
	for i := range 960 {
		var h histogram
		n := slotMax(i)
		h.add(n, 1)
		require.EqualValues(t, 1, h.slots[i], n)
		require.Equal(t, n, h.quantile())
	}
	var h histogram
	for n := range int64(1000) {
		h.add(n, 3)
	}
	require.GreaterOrEqual(t, h.quantile(), int64(949))
	require.Less(t, h.quantile(), int64(949+949/16+1))
}

func TestTable_evictsOnlyExpired(t *testing.T) {
	m := newSessionParams(throttle.PerSecond(10), 0)
	var r table[session, *session]
	for h := range uint64(4) {
		v := r.add(h, 4, 0)
		v.begin(m, 0, 1)
		v.addClaim(int64(h)+1, 0)
	}
	require.Nil(t, r.add(9, 4, 0))
	require.Equal(t, 4, r.numActive(0))
	later := int64(1200 * time.Millisecond)
	require.Zero(t, r.numActive(later))
	require.NotNil(t, r.add(9, 4, later))
	require.Nil(t, r.find(0), "its place was taken")
	require.NotNil(t, r.find(3))
	r.retainBelow(3)
	require.Nil(t, r.find(3))
	require.Nil(t, r.find(9))
	require.EqualValues(t, 2, r.find(1).minBurst)
	require.Len(t, r.slots, 2)
}

// TestShard_halvesSample checks that a session that remains after half of the keys were removed
// represents two.
func TestShard_halvesSample(t *testing.T) {
	m := newSessionParams(throttle.PerSecond(10), 0)
	var s shard
	for _, h := range []uint64{1, 1 << 62, 1 << 63, 3 << 62} {
		s.sessions.add(h, 4, 0).begin(m, 0, 1)
	}
	s.halveSample()
	require.Len(t, s.sessions.slots, 2)
	require.EqualValues(t, 2, s.sessions.find(1).weight)
	require.Nil(t, s.sessions.find(1<<63))
	s.halveSample()
	require.Len(t, s.sessions.slots, 1)
	require.EqualValues(t, 4, s.sessions.find(1).weight)
	s.sampleBits-- // the sample has grown and is halved again
	s.halveSample()
	require.EqualValues(t, 4, s.sessions.find(1).weight)
}

// TestStats_samplesWhatFits checks that of keys that do not fit, those whose hash begins
// with zeros are tracked, and that the sample grows again when most of them have expired.
func TestStats_samplesWhatFits(t *testing.T) {
	stats := &Stats{Limit: throttle.PerSecond(10), MaxSessions: 49} // 4 for each shard
	stats.once.Do(stats.setup)
	s := &stats.shards[0]
	for i := range uint64(16) {
		v := stats.session(s, i<<60, 0)
		require.Equal(t, i < 4, v != nil, "%d", i) // the fifth one halves the sample twice and is not in it
	}
	require.Len(t, s.sessions.slots, 4)
	for i := range uint64(4) {
		require.EqualValues(t, 4, s.sessions.find(i<<60).weight, "%d", i)
	}
	later := int64(time.Hour)
	require.Nil(t, stats.session(s, 4<<60, later))
	require.EqualValues(t, 2, stats.session(s, 1<<59, later).weight, "half of the keys are tracked again")
	require.EqualValues(t, 2, stats.session(s, 4<<60, later).weight)
	require.Nil(t, stats.session(s, 8<<60, later))
}

// TestStats_sampleGrowsOnlyIfMostSessionsHaveExpired asks for a further key in a sample with one
// expired session of four, and with all of them expired.
func TestStats_sampleGrowsOnlyIfMostSessionsHaveExpired(t *testing.T) {
	for renewed, weight := range map[uint64]int64{3: 4, 2: 4, 1: 4, 0: 2} {
		stats := &Stats{Limit: throttle.PerSecond(10), MaxSessions: 64}
		stats.once.Do(stats.setup)
		s := &stats.shards[0]
		for i := range uint64(16) {
			stats.session(s, i<<60, 0)
		}
		later := int64(time.Hour)
		for i := range renewed {
			stats.session(s, i<<60, later)
		}
		require.EqualValues(t, weight, stats.session(s, 1, later).weight, "%d of 4 sessions have not expired", renewed)
	}
}

// TestStats_boundsSessions checks the number of tracked sessions, which is rounded up to a
// multiple of 16.
func TestStats_boundsSessions(t *testing.T) {
	for limit, want := range map[int]int{0: 1024, -1: 1024, 1: 16, 16: 16, 17: 32, 48: 48, 1024: 1024} {
		stats := &Stats{Limit: throttle.PerSecond(10), MaxSessions: limit}
		stats.once.Do(stats.setup)
		most := 0
		for i := range stats.shards {
			for h := range uint64(200) {
				stats.session(&stats.shards[i], h<<40, 0)
				most = max(most, len(stats.shards[i].sessions.slots))
			}
		}
		require.Equal(t, want/numShards, most, limit)
	}
}

// TestMeter_restoresOverLongTimes checks products of time and rate that need more than 64 bits.
func TestMeter_restoresOverLongTimes(t *testing.T) {
	for _, tt := range []struct {
		level, part, now int64
		rate             drainRate
		want             meter
	}{
		{1 << 30, 1, 1<<32 + 1, drainRate{1<<32 - 1, 1 << 40}, meter{1<<30 - 1<<24, 0, 1<<32 + 1}}, // the sum is 1<<64
		{1 << 30, 0, 1<<32 + 1, drainRate{1<<32 - 1, 1 << 40}, meter{1<<30 - 1<<24 + 1, 1<<40 - 1, 1<<32 + 1}},
		{10, 5, 1, drainRate{1, 10}, meter{10, 6, 1}},
		{10, 9, 1, drainRate{1, 10}, meter{9, 0, 1}},
		{1, 9, 1, drainRate{1, 10}, meter{0, 0, 1}},
		{10, 5, 0, drainRate{1, 10}, meter{10, 5, 0}},
		{10, 5, -1, drainRate{1, 10}, meter{10, 5, 0}},
		{math.MaxInt64, 0, math.MaxInt64, drainRate{math.MaxInt64, 1}, meter{0, 0, math.MaxInt64}},
	} {
		m := meter{level: tt.level, part: tt.part}
		m.drain(tt.now, tt.rate)
		require.Equal(t, tt.want, m, "%+v", tt)
	}
}
